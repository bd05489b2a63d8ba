// Launch scripts and recipes of training frameworks: read as a scenario (import.c) and written for
// one (emit.c). One table a framework (tables_megatron.c, tables_torch.c; listed in tables.c) says
// which argument of it is which setting here, and drives both ways (arguments.c).
#ifndef SLIMPACK_EXPERIMENTS_FRAMEWORKS_FRAMEWORKS_H
#define SLIMPACK_EXPERIMENTS_FRAMEWORKS_FRAMEWORKS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "sim/base/status.h"
#include "sim/scenario/scenario.h"

// ---- what a file states ----

// An argument or a key with its value. In a script the name has no dashes before it, in a document
// it is the dotted path.
typedef struct framework_entry {
    char *name;    // owned
    json_t *value; // owned; null: stated as nothing. Of a script a text, an array of them, or true
    char *unknown; // owned: what the file does not tell the value of, such as "$TP"; NULL: it does
    const char *source; // the file that states it; lives as long as the files' names
    int line;           // from 1 on
    bool read;          // a row or a framework's own function took it
} framework_entry;

typedef struct framework_entries {
    framework_entry *items;
    size_t count, capacity;
} framework_entries;

// Takes over `value` and `unknown`; copies `name`.
void framework_add(framework_entries *entries, const char *name, json_t *value, char *unknown,
                   int line);
void framework_entries_free(framework_entries *entries);

// The commands of a shell script, in the order in which they would run, each with its arguments.
// What stands before the script that a launcher runs has "launch." before its name. `notes` are
// texts about assignments that stand under a condition.
typedef struct framework_commands {
    framework_entries *items;
    size_t count, capacity;
    json_t *notes; // array of texts
} framework_commands;

void framework_commands_free(framework_commands *commands);

// Readers of text. `source` names it in messages (source:line: ...). SP_ERR_SYNTAX where it is
// malformed, SP_ERR_LIMIT where variables or anchors make more of it than anyone wrote.
sp_status framework_read_shell(const char *source, const char *text, size_t bytes,
                               framework_commands *out, sp_error *err);
sp_status framework_read_yaml(const char *source, const char *text, size_t bytes,
                              framework_entries *out, sp_error *err);
sp_status framework_read_json(const char *source, const char *text, size_t bytes,
                              framework_entries *out, sp_error *err);
sp_status framework_read_toml(const char *source, const char *text, size_t bytes,
                              framework_entries *out, sp_error *err);

// TOML 1.0 as JSON: dates and times are texts, as are inf and nan, which JSON has not. *lines, an
// object, has the line of every key under its path, whose parts are joined by the byte 0x1f; both
// are the caller's.
sp_status framework_parse_toml(const char *source, const char *text, size_t bytes, json_t **root,
                               json_t **lines, sp_error *err);

// ---- tables ----

typedef enum framework_kind {
    FRAMEWORK_INT,
    FRAMEWORK_REAL,
    FRAMEWORK_SWITCH, // true or false; in a script there or not
    FRAMEWORK_INVERT, // a switch that is false where the setting is true
    FRAMEWORK_FLAG, // a switch that, where it is true, gives the setting the JSON value of `words`
    FRAMEWORK_NAME, // one of `words`: "theirs=ours theirs=ours"; of several for one of ours the
                    // first is written
    FRAMEWORK_IMPLIED, // no argument: the setting is as `absent` says, whatever the file
} framework_kind;

enum { FRAMEWORK_DIALECTS = 4 };

// The setting `key` is what the framework calls `names[dialect]`; NULL: the dialect has no argument
// for it. `also` are other names for the same, between blanks, which are read and never written.
// `absent` is the JSON value that holds where a file does not state the argument, "@key" another
// setting's value, NULL: nothing is known.
typedef struct framework_row {
    const char *key;
    framework_kind kind;
    const char *words;
    const char *absent;
    const char *names[FRAMEWORK_DIALECTS];
    const char *also;
} framework_row;

typedef enum framework_syntax {
    FRAMEWORK_SHELL,
    FRAMEWORK_YAML,
    FRAMEWORK_TOML,
    FRAMEWORK_JSON,
} framework_syntax;

struct framework_import;
struct framework_output;

// A setting that another of the job's files or arguments has: `where` ends a sentence on it.
typedef struct framework_elsewhere {
    const char *key, *where;
} framework_elsewhere;

typedef struct framework {
    const char *name, *title;  // of options, and as its authors write it
    framework_syntax syntax;   // that it is written in
    unsigned reads;            // bits 1 << syntax of what it is read from
    int dialect;               // its column of the rows
    const framework_row *rows; // ends with a row without key
    // Names between blanks; those that end in * stand for all that begin so. `own` are read and
    // written by the two functions, `free` change neither time nor memory, `noted` do and are not
    // modelled, unless they state nothing (false, none, 0, empty).
    // `switches` are those of `own` that have no value in a script.
    const char *own, *free, *noted, *switches;
    const char *stack;       // that runs what it launches (sim/model/stack.h); NULL: as others say
    const char *rotary_base; // its argument for the base of rotary positions; NULL: it has none
    const framework_elsewhere *elsewhere; // ends with a row without key; NULL: nothing
    bool by_leaf;                         // of a dotted path the last part is the name
    bool overrides; // a file says what changes in a recipe: what it does not state is open
    // Reads what no row says, after the rows; writes it, after them.
    void (*read)(struct framework_import *import);
    void (*write)(struct framework_output *output);
} framework;

extern const framework *const framework_table[]; // NULL ends it
extern const char *const framework_names[];      // their names; NULL ends them

// NULL: none of that name.
const framework *framework_find(const char *name);
// That of whose launch files a stack is; NULL: none.
const framework *framework_find_stack(const char *stack);
// The error of a name that is none; the message begins with `option`.
sp_status framework_unknown(const char *option, const char *name, sp_error *err);

// The row that has such an argument, or NULL.
const framework_row *framework_row_of(const framework *of, const char *name);
// Is the name one of a list, whose names may end in *?
bool framework_list_holds(const char *list, const char *name);

// ---- reading ----

// A scenario in the making, of one file or several.
typedef struct framework_import {
    const framework *of;
    const char *source;         // the file at hand, the last one of a framework's
    framework_entries *entries; // what all files of that framework state, the strongest last
    json_t *scenario;           // the document so far
    // What settings follow from, once all files are read: gpus, gpus_per_node, nodes, rows of a
    // micro-batch and micro-batches of a replica where the settings themselves do not hold them;
    // deepspeed: what its file states of a batch; trainer: the trainer's arguments have the rest.
    json_t *facts;
    json_t *given;  // array of texts: all files
    json_t *stated; // object: keys of settings that the files at hand state
    json_t *unread; // array of {file, line, name, value, matters, why}
    json_t *notes;  // array of texts: what was assumed
    sp_error *err;
} framework_import;

// Of functions of frameworks. The last entry of a name, marked as read; NULL: not stated, or its
// value is not known, which is noted.
const framework_entry *framework_take(framework_import *import, const char *name);
// A whole number from `least` on, or `fallback` where it is not stated; something else is an error.
json_int_t framework_take_int(framework_import *import, const char *name, json_int_t least,
                              json_int_t fallback);
// A switch: true, false, or in a script there.
bool framework_take_switch(framework_import *import, const char *name, bool fallback);
double framework_take_real(framework_import *import, const char *name, double fallback);
// A text, NULL where it is not stated.
const char *framework_take_text(framework_import *import, const char *name);

// A setting of the scenario by its dotted key; takes over `value`, NULL: nothing.
void framework_put(framework_import *import, const char *key, json_t *value);
// The same of any document.
void framework_put_at(json_t *document, const char *key, json_t *value);
// NULL: not there.
json_t *framework_get(const json_t *document, const char *key);
json_int_t framework_get_int(const json_t *document, const char *key, json_int_t fallback);
// Of numbers that a file states; 0 where one is none, or all make more than any job has.
json_int_t framework_product(json_int_t a, json_int_t b, json_int_t c);
// GPUs of a replica: tp x cp x pp.
json_int_t framework_replica(const json_t *scenario);

void framework_note(framework_import *import, const char *format, ...) SP_PRINTF(2, 3);
// The entry names another file of the job: a note, unless that is given, too.
void framework_other_file(framework_import *import, const framework_entry *entry);
// Lists an entry as not understood; `why` NULL: its name is not known.
void framework_unread(framework_import *import, const framework_entry *entry, const char *why);
// An error at the entry's line.
void framework_wrong(framework_import *import, const framework_entry *entry, const char *format,
                     ...) SP_PRINTF(3, 4);

// Reads files, each a launch script, a recipe or a model (config.json of Hugging Face or a folder
// that has one; "-" is standard input), into one scenario. `from` names the framework, NULL: that
// which knows most of the names. Files of one framework are read as one: of what several state the
// last holds, but a script is stronger than a file that its arguments name (--config), and what a
// framework has by default holds where no file states it. Overrides are `path=value` texts.
// *scenario is the caller's, as are the arrays *unread and *notes.
sp_status framework_import_files(const char *const *files, int count, const char *from,
                                 const char *const *overrides, int override_count,
                                 json_t **scenario, json_t **unread, json_t **notes, sp_error *err);
// The same of one text.
sp_status framework_import_text(const char *source, const char *text, size_t bytes,
                                const framework *of, json_t **scenario, json_t **unread,
                                json_t **notes, sp_error *err);

// The framework whose configuration or script a file is, by the names in it; NULL: none, or it
// cannot be read twice.
const framework *framework_of_file(const char *path, bool *is_script);

// A built-in model of so many layers, such a width and such heads; NULL: there is none.
const char *framework_model_of_shape(const json_t *scenario);

// ---- writing ----

typedef struct framework_output {
    const framework *of;
    const json_t *scenario; // as resolved, with what is as it is anyway
    const json_t *resolved;
    json_t *arguments; // object: name to value, in the order in which they are written
    json_t *comments;  // object: name of an argument of YAML to what stands behind it
    json_t *launch;    // of a script: what stands before the arguments; object
    json_t *advice;    // array of texts, for comments (framework_advice())
} framework_output;

// Takes over `value`.
void framework_say(framework_output *output, const char *name, json_t *value);
// A comment behind an argument that YAML has.
void framework_comment(framework_output *output, const char *name, const char *comment);
void framework_say_launch(framework_output *output, const char *name, json_t *value);

// Writes the scenario as arguments of a framework, then reads them back: what differs then is what
// the framework cannot say, *lost, an array of {key, value, read, elsewhere} that the caller owns;
// comments of the text name it, too. *text is the caller's (sp_free).
sp_status framework_emit(const framework *of, const sp_scenario *scenario, char **text,
                         json_t **lost, sp_error *err);

// What of a launch file changes for what it asks to be `then`, where it asks for the work of `then`
// by itself and the GPUs are as many: {"framework", "file", "syntax", "arguments": [{"argument",
// "from", "to"}], "not_expressed": what there is no argument for and `now`, which the file asks
// for, has otherwise, as *lost of framework_emit()}. Of an argument `from` null: it is added; `to`
// null: it goes, or in a file that says what changes in a recipe is stated as nothing. Arguments
// keep the file's own names, and what changes nothing stays. NULL: it is not such a file, or its
// arguments cannot be made to ask for it. The caller owns it.
json_t *framework_changes_of_file(const char *path, const sp_scenario *now,
                                  const sp_scenario *then);
// The same of the file that framework_emit() writes for `now`; "file" is null.
json_t *framework_changes(const framework *of, const sp_scenario *now, const sp_scenario *then);

// Line `i` of `changes`, without its end: "  --tp 8 -> 4", "+ key: 4", "- --flag".
void framework_print_change(FILE *out, const json_t *changes, size_t i);

// What somebody has to know who runs the scenario's file: an array of texts, the caller's.
json_t *framework_advice(const framework *of, const sp_scenario *scenario);

// Is a setting among what cannot be said?
bool framework_is_lost(const json_t *lost, const char *key);

// What the framework has in the place of a setting that cannot be said, of *lost; NULL: the setting
// can be said, another of the job's files says it, or nothing is known.
json_t *framework_own_value(const json_t *lost, const char *key);

// What cannot be said, of an entry of *lost, in words: the key with its value, with what the
// framework has in its place where it has something, and where else of the job it is set.
enum { FRAMEWORK_LOST = 256 };
const char *framework_lost_text(const json_t *lost, char text[FRAMEWORK_LOST]);

#endif
