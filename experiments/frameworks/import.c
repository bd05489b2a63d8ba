// Launch scripts and recipes as a scenario: which framework they are of, the rows of its table, and
// what was not understood.
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "experiments/frameworks/frameworks.h"
#include "experiments/frameworks/private.h"
#include "sim/base/alloc.h"
#include "sim/base/files.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/model/recompute.h"
#include "sim/scenario/scenario.h"

enum { MOST_BYTES = 16 << 20, PATH = 1024, MOST_NAMES = 1024, TEXT = 320 };

static const char schema[] = "slimpack/scenario/1";

// ---- tables ----

const framework *framework_find(const char *name)
{
    const framework *const *of = framework_table;
    while (*of != NULL && !sp_same_name((*of)->name, name)) {
        of++;
    }
    return *of;
}

sp_status framework_unknown(const char *option, const char *name, sp_error *err)
{
    char hint[SP_NAME_HINT];
    char known[128] = "; known: ";
    int count = 0;
    for (; framework_names[count] != NULL; count++) {
        sp_append(known, sizeof known, "%s%s", count > 0 ? ", " : "", framework_names[count]);
    }
    sp_name_hint(name, framework_names, count, hint);
    return sp_error_set(err, SP_ERR_USAGE, "%sno framework is called '%s'%s", option, name,
                        hint[0] != '\0' ? hint : known);
}

static int folded(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

bool framework_list_holds(const char *list, const char *name)
{
    if (list == NULL) {
        return false;
    }
    if (sp_names_hold(list, name)) {
        return true;
    }
    for (const char *star = strchr(list, '*'); star != NULL; star = strchr(star + 1, '*')) {
        const char *begin = star;
        while (begin > list && begin[-1] != ' ') {
            begin--;
        }
        const char *at = name;
        while (begin < star && *at != '\0' && folded(*begin) == folded(*at)) {
            begin++;
            at++;
        }
        if (begin == star) {
            return true;
        }
    }
    return false;
}

const framework_row *framework_row_of(const framework *of, const char *name)
{
    for (const framework_row *row = of->rows; row->key != NULL; row++) {
        const char *own = row->names[of->dialect];
        if ((own != NULL && sp_names_hold(own, name)) ||
            (row->also != NULL && sp_names_hold(row->also, name))) {
            return row;
        }
    }
    return NULL;
}

// The name that the table has, of an entry.
static const char *table_name(const framework *of, const char *name)
{
    static const char container[] = "ConfigContainer.";
    const char *dot = of->by_leaf && strncmp(name, "launch.", 7) != 0 ? strrchr(name, '.') : NULL;
    if (dot != NULL) {
        return dot + 1;
    }
    return of->overrides && strncmp(name, container, sizeof container - 1) == 0
               ? name + sizeof container - 1
               : name;
}

// ---- the document ----

void framework_put_at(json_t *document, const char *key, json_t *value)
{
    char part[SP_JSON_PATH];
    while (sp_json_path_next(&key, part)) {
        json_t *inner = json_object_get(document, part);
        if (!json_is_object(inner)) {
            inner = json_object();
            sp_json_put(document, part, inner);
        }
        document = inner;
    }
    sp_json_put(document, part, value);
}

void framework_put(framework_import *import, const char *key, json_t *value)
{
    if (value == NULL) {
        return;
    }
    // A model that another file names is opened, so that what is stated beside it counts.
    if (sp_scenario_in_name(key)) {
        sp_error own = {0};
        const char *section = json_string_value(json_object_get(import->scenario, "model"));
        if (section != NULL && strncmp(key, "model.", 6) == 0) {
            sp_scenario_open_name(import->scenario, key, &own);
        }
    }
    json_object_set_new(import->stated, key, json_true());
    framework_put_at(import->scenario, key, value);
}

json_t *framework_get(const json_t *document, const char *key)
{
    char part[SP_JSON_PATH];
    const json_t *object = document;
    while (sp_json_path_next(&key, part)) {
        object = json_object_get(object, part);
    }
    return json_object_get(object, part);
}

json_int_t framework_get_int(const json_t *document, const char *key, json_int_t fallback)
{
    const json_t *value = framework_get(document, key);
    return json_is_integer(value) ? json_integer_value(value) : fallback;
}

void framework_note(framework_import *import, const char *format, ...)
{
    char text[TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_array_append_new(import->notes, json_string(text));
}

void framework_wrong(framework_import *import, const framework_entry *entry, const char *format,
                     ...)
{
    char text[TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sp_error_at(import->err, SP_ERR_CONTENT, entry->source, entry->line, 0, "%s: %s", entry->name,
                text);
}

// ---- what is not understood ----

// All names of a framework; both are the caller's.
static int all_names(const framework *of, const char ***names, char **space)
{
    const char **found = sp_calloc(MOST_NAMES, sizeof *found);
    size_t bytes = 1;
    int count = 0;
    const char *lists[] = {of->own, of->free, of->noted};
    for (const framework_row *row = of->rows; row->key != NULL; row++) {
        bytes += row->names[of->dialect] != NULL ? strlen(row->names[of->dialect]) + 1 : 0;
    }
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        bytes += lists[i] != NULL ? strlen(lists[i]) + 1 : 0;
    }
    char *text = sp_calloc(bytes + 1, 1);
    char *at = text;
    for (const framework_row *row = of->rows; row->key != NULL; row++) {
        if (row->names[of->dialect] != NULL) {
            at += sprintf(at, "%s ", row->names[of->dialect]);
        }
    }
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (lists[i] != NULL) {
            at += sprintf(at, "%s ", lists[i]);
        }
    }
    char *rest = NULL;
    for (char *name = strtok_r(text, " ", &rest); name != NULL && count < MOST_NAMES;
         name = strtok_r(NULL, " ", &rest)) {
        if (strchr(name, '*') == NULL) {
            found[count++] = name;
        }
    }
    *names = found;
    *space = text;
    return count;
}

void framework_unread(framework_import *import, const framework_entry *entry, const char *why)
{
    char hint[SP_NAME_HINT] = "";
    char text[TEXT];
    if (why == NULL) {
        const char **names = NULL;
        char *space = NULL;
        int count = all_names(import->of, &names, &space);
        snprintf(text, sizeof text, "%s does not have it, or slimpack does not know it%s",
                 import->of->name,
                 sp_name_hint(table_name(import->of, entry->name), names, count, hint));
        sp_free(space);
        sp_free((void *)names);
    }
    size_t i;
    json_t *other;
    json_array_foreach (import->unread, i, other) {
        if (json_integer_value(json_object_get(other, "line")) == entry->line &&
            strcmp(json_string_value(json_object_get(other, "name")), entry->name) == 0 &&
            strcmp(json_string_value(json_object_get(other, "file")), entry->source) == 0) {
            return; // several settings follow from it
        }
    }
    json_array_append_new(
        import->unread,
        sp_json_object(SP_JSON("file", entry->source), SP_JSON("line", entry->line),
                       SP_JSON("name", entry->name),
                       SP_JSON("value", entry->unknown != NULL ? json_string(entry->unknown)
                                                               : json_incref(entry->value)),
                       SP_JSON("matters", why != NULL ? json_true() : json_null()),
                       SP_JSON("why", why != NULL ? why : text)));
}

static void tell_unknown_value(framework_import *import, const framework_entry *entry)
{
    char why[TEXT];
    snprintf(why, sizeof why, "the value of %s is not known from this file", entry->unknown);
    framework_unread(import, entry, why);
}

// Does it state nothing, or turn off what it is about?
static bool is_nothing(const json_t *value)
{
    static const char nothing[] = "false none null 0 0.0 no off -1";
    const char *text = json_string_value(value);
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0.0) ||
           (text != NULL && (text[0] == '\0' || sp_names_hold(nothing, text))) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

// The base of rotary positions is a part of the model that no scenario holds: it is told, so that
// nobody trains with another one by what --emit writes.
static void tell_rotary_base(framework_import *import, const framework_entry *entry,
                             const char *leaf)
{
    static const char names[] = "rotary-base rotary_base rope_theta";
    char value[TEXT];
    if (!sp_names_hold(names, leaf) || is_nothing(entry->value) || entry->unknown != NULL) {
        return;
    }
    snprintf(value, sizeof value, "%s", json_string_value(entry->value));
    if (!json_is_string(entry->value)) {
        sp_json_quote(entry->value, value, sizeof value);
    }
    framework_note(import,
                   "%s:%d: %s %s changes neither time nor memory and is not kept: a launch file "
                   "that is made of the scenario needs it again",
                   entry->source, entry->line, entry->name, value);
}

static void list_unread(framework_import *import, const framework_entry *entry)
{
    const framework *of = import->of;
    const char *name = table_name(of, entry->name);
    const char *leaf = sp_setting_leaf(name);
    char value[TEXT] = "";
    tell_rotary_base(import, entry, leaf);
    if (strncmp(entry->name, "launch.", 7) == 0 || framework_list_holds(of->free, name) ||
        json_is_null(entry->value)) {
        if (entry->unknown == NULL || entry->unknown[0] != '$' ||
            strcmp(entry->unknown, entry->name) != 0) {
            return;
        }
        framework_unread(import, entry,
                         "its value is not known from this file: it may hold more "
                         "arguments");
        return;
    }
    if (json_is_string(entry->value)) {
        snprintf(value, sizeof value, "%s", json_string_value(entry->value));
    } else {
        sp_json_quote(entry->value, value, sizeof value);
    }
    bool noted = framework_list_holds(of->noted, name);
    const char *why = sp_setting_missing(leaf);
    if ((noted && is_nothing(entry->value)) ||
        (why != NULL && (sp_setting_is_modelled(leaf, value) || is_nothing(entry->value)))) {
        return;
    }
    if (noted || why != NULL) {
        framework_unread(import, entry, why != NULL ? why : "it is not modelled");
    } else if (entry->unknown != NULL) {
        tell_unknown_value(import, entry);
    } else {
        framework_unread(import, entry, NULL);
    }
}

// ---- values ----

static framework_entry *last_of(framework_import *import, const char *name)
{
    framework_entry *found = NULL;
    for (size_t i = 0; i < import->entries->count; i++) {
        framework_entry *entry = &import->entries->items[i];
        if (sp_names_hold(name, table_name(import->of, entry->name))) {
            entry->read = true;
            found = entry;
        }
    }
    return found;
}

const framework_entry *framework_take(framework_import *import, const char *name)
{
    framework_entry *found = last_of(import, name);
    if (found != NULL && found->unknown != NULL) {
        tell_unknown_value(import, found);
        return NULL;
    }
    // DeepSpeed's file leaves to the arguments of the Trainer what it calls so.
    const char *text = found != NULL ? json_string_value(found->value) : NULL;
    bool open = text != NULL && strcmp(text, "auto") == 0 && import->of->syntax == FRAMEWORK_JSON;
    return found != NULL && !open && !json_is_null(found->value) ? found : NULL;
}

// A number of an entry; false: it is none.
static bool number_of(const framework_entry *entry, double *number)
{
    const char *text = json_string_value(entry->value);
    char *end = NULL;
    *number = text != NULL ? strtod(text, &end) : json_number_value(entry->value);
    bool is = text != NULL ? end != text && *end == '\0' : json_is_number(entry->value);
    return is && *number > -1e18 && *number < 1e18;
}

static bool whole_of(framework_import *import, const framework_entry *entry, json_int_t least,
                     json_int_t *whole)
{
    double number = 0.0;
    char text[96];
    bool is = number_of(entry, &number) && number >= (double)least && number <= 1e15 &&
              number == (double)(json_int_t)number;
    if (!is) {
        sp_json_quote(entry->value, text, sizeof text);
        framework_wrong(import, entry, "expected a whole number of at least %lld, got %s",
                        (long long)least, text);
    }
    *whole = is ? (json_int_t)number : least;
    return is;
}

json_int_t framework_take_int(framework_import *import, const char *name, json_int_t least,
                              json_int_t fallback)
{
    const framework_entry *entry = framework_take(import, name);
    json_int_t whole = fallback;
    return entry != NULL && whole_of(import, entry, least, &whole) ? whole : fallback;
}

double framework_take_real(framework_import *import, const char *name, double fallback)
{
    const framework_entry *entry = framework_take(import, name);
    double number = fallback;
    if (entry != NULL && !number_of(entry, &number)) {
        char text[96];
        sp_json_quote(entry->value, text, sizeof text);
        framework_wrong(import, entry, "expected a number, got %s", text);
        return fallback;
    }
    return number;
}

static bool switch_of(framework_import *import, const framework_entry *entry, bool *on)
{
    const char *text = json_string_value(entry->value);
    bool yes = json_is_true(entry->value) || (text != NULL && sp_names_hold("true 1 yes", text)) ||
               json_integer_value(entry->value) == 1;
    bool no = json_is_false(entry->value) || (text != NULL && sp_names_hold("false 0 no", text)) ||
              (json_is_integer(entry->value) && json_integer_value(entry->value) == 0);
    *on = yes;
    if (!yes && !no) {
        char quoted[96];
        sp_json_quote(entry->value, quoted, sizeof quoted);
        framework_wrong(import, entry, "expected true or false, got %s", quoted);
    }
    return yes || no;
}

bool framework_take_switch(framework_import *import, const char *name, bool fallback)
{
    const framework_entry *entry = framework_take(import, name);
    bool on = fallback;
    return entry != NULL && switch_of(import, entry, &on) ? on : fallback;
}

const char *framework_take_text(framework_import *import, const char *name)
{
    const framework_entry *entry = framework_take(import, name);
    const char *text = entry != NULL ? json_string_value(entry->value) : NULL;
    if (entry != NULL && text == NULL) {
        char quoted[96];
        sp_json_quote(entry->value, quoted, sizeof quoted);
        framework_wrong(import, entry, "expected a text, got %s", quoted);
    }
    return text;
}

// "theirs=ours": ours, as JSON where it is such; NULL: not among them.
static json_t *ours_of(const char *words, const char *theirs)
{
    size_t length = strlen(theirs);
    for (const char *at = words; *at != '\0'; at += strspn(at, " ")) {
        const char *equals = strchr(at, '=');
        size_t whole = strcspn(at, " ");
        size_t name = (size_t)(equals - at);
        if (name == length && strncasecmp(at, theirs, length) == 0) {
            return json_stringn(equals + 1, whole - name - 1);
        }
        at += whole;
    }
    return NULL;
}

static void apply_name(framework_import *import, const framework_row *row,
                       const framework_entry *entry)
{
    char quoted[96];
    const char *text = json_string_value(entry->value);
    const char *said = text != NULL                  ? text
                       : json_is_true(entry->value)  ? "true"
                       : json_is_false(entry->value) ? "false"
                                                     : NULL;
    char number[32];
    if (json_is_integer(entry->value)) {
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(entry->value));
        said = number;
    }
    json_t *ours = said != NULL ? ours_of(row->words, said) : NULL;
    if (ours == NULL) {
        char why[TEXT];
        sp_json_quote(entry->value, quoted, sizeof quoted);
        snprintf(why, sizeof why, "%s is no value that %s can be given", quoted, row->key);
        framework_unread(import, entry, why);
        return;
    }
    json_t *plain = json_loads(json_string_value(ours), JSON_DECODE_ANY, NULL);
    framework_put(import, row->key, plain != NULL ? plain : json_incref(ours));
    json_decref(ours);
}

static void apply(framework_import *import, const framework_row *row, const framework_entry *entry)
{
    json_int_t whole = 0;
    double number = 0.0;
    bool on = false;
    switch (row->kind) {
    case FRAMEWORK_INT:
        if (whole_of(import, entry, 0, &whole)) {
            framework_put(import, row->key, json_integer(whole));
        }
        break;
    case FRAMEWORK_REAL:
        if (number_of(entry, &number)) {
            framework_put(import, row->key, json_real(number));
        } else {
            framework_wrong(import, entry, "expected a number");
        }
        break;
    case FRAMEWORK_SWITCH:
    case FRAMEWORK_INVERT:
        if (switch_of(import, entry, &on)) {
            framework_put(import, row->key, json_boolean(on == (row->kind == FRAMEWORK_SWITCH)));
        }
        break;
    case FRAMEWORK_FLAG:
        if (switch_of(import, entry, &on) && on) {
            framework_put(import, row->key, json_loads(row->words, JSON_DECODE_ANY, NULL));
        }
        break;
    case FRAMEWORK_NAME:
        apply_name(import, row, entry);
        break;
    case FRAMEWORK_IMPLIED:
        break;
    }
}

static void apply_rows(framework_import *import)
{
    for (const framework_row *row = import->of->rows; row->key != NULL; row++) {
        const char *name = row->names[import->of->dialect];
        const framework_entry *entry = name != NULL ? framework_take(import, name) : NULL;
        const framework_entry *other = row->also != NULL ? framework_take(import, row->also) : NULL;
        if (entry != NULL || other != NULL) {
            apply(import, row, entry != NULL ? entry : other);
        }
    }
}

// What holds where the file does not say otherwise. A file without a model of its own, beside one
// that has it, says nothing about that.
static void apply_absent(framework_import *import)
{
    bool has_model = framework_get(import->scenario, "model.layers") != NULL &&
                     json_object_get(import->stated, "model.layers") != NULL;
    for (const framework_row *row = import->of->rows; row->key != NULL; row++) {
        const char *precision = json_string_value(json_object_get(import->scenario, "precision"));
        bool is_fp8 = precision != NULL && strcmp(precision, "fp8") == 0;
        if (row->absent == NULL || (strncmp(row->key, "fp8_", 4) == 0 && !is_fp8) ||
            framework_get(import->scenario, row->key) != NULL || // also of an earlier file
            (strncmp(row->key, "model.", 6) == 0 && !has_model)) {
            continue;
        }
        json_t *value = row->absent[0] == '@'
                            ? json_incref(framework_get(import->scenario, row->absent + 1))
                            : json_loads(row->absent, JSON_DECODE_ANY, NULL);
        framework_put(import, row->key, value);
    }
}

// ---- one file ----

static int score_of(const framework *of, const framework_entries *entries)
{
    int score = 0;
    for (size_t i = 0; i < entries->count; i++) {
        const char *name = table_name(of, entries->items[i].name);
        score += framework_row_of(of, name) != NULL || framework_list_holds(of->own, name) ? 4
                 : framework_list_holds(of->noted, name)                                   ? 2
                 : framework_list_holds(of->free, name)                                    ? 1
                                                                                           : 0;
    }
    return score;
}

static bool ends_in(const char *text, const char *ending)
{
    size_t length = strlen(text);
    size_t end = strlen(ending);
    return length >= end && strcmp(text + length - end, ending) == 0;
}

// By the name of the file, or by its first line that says something.
static framework_syntax syntax_of(const char *source, const char *text, size_t bytes)
{
    if (ends_in(source, ".toml")) {
        return FRAMEWORK_TOML;
    }
    if (ends_in(source, ".yaml") || ends_in(source, ".yml")) {
        return FRAMEWORK_YAML;
    }
    if (ends_in(source, ".json")) {
        return FRAMEWORK_JSON;
    }
    for (size_t i = 0; i < bytes;) {
        const char *line = text + i;
        const char *end = memchr(line, '\n', bytes - i);
        size_t length = end != NULL ? (size_t)(end - line) : bytes - i;
        size_t blank = 0;
        while (blank < length &&
               (line[blank] == ' ' || line[blank] == '\t' || line[blank] == '\r')) {
            blank++;
        }
        bool says = blank < length && line[blank] != '#';
        bool script = length > 2 && line[0] == '#' && line[1] == '!';
        if (script || ends_in(source, ".sh")) {
            return FRAMEWORK_SHELL;
        }
        if (says) {
            size_t word = blank;
            while (word < length && strchr(" \t=:({[", line[word]) == NULL) {
                word++;
            }
            char after = word < length ? line[word] : '\0';
            return line[blank] == '{' ? FRAMEWORK_JSON
                   : line[blank] == '[' && length > blank + 1 && line[blank + 1] != ' '
                       ? FRAMEWORK_TOML
                   : after == ':' || strncmp(line, "---", length) == 0          ? FRAMEWORK_YAML
                   : after == ' ' && word + 1 < length && line[word + 1] == '=' ? FRAMEWORK_TOML
                                                                                : FRAMEWORK_SHELL;
        }
        i += length + 1;
    }
    return FRAMEWORK_SHELL;
}

static const framework *best_of(framework_syntax syntax, const framework_entries *entries,
                                int *score)
{
    const framework *best = NULL;
    *score = 0;
    for (const framework *const *of = framework_table; *of != NULL; of++) {
        int found = (*of)->reads & (1U << syntax) ? score_of(*of, entries) : 0;
        if (found > *score) {
            *score = found;
            best = *of;
        }
    }
    return best;
}

// Behind a switch of a script a word that is not known is no value, but may hold more arguments.
static void part_switches(framework_import *import)
{
    size_t count = import->entries->count;
    for (size_t i = 0; i < count; i++) {
        framework_entry *entry = &import->entries->items[i];
        const framework_row *row =
            framework_row_of(import->of, table_name(import->of, entry->name));
        bool is_switch =
            (row != NULL && (row->kind == FRAMEWORK_SWITCH || row->kind == FRAMEWORK_INVERT ||
                             row->kind == FRAMEWORK_FLAG)) ||
            framework_list_holds(import->of->switches, entry->name);
        if (is_switch && entry->unknown != NULL && import->of->syntax == FRAMEWORK_SHELL) {
            char *unknown = entry->unknown;
            const char *source = entry->source;
            int line = entry->line;
            entry->unknown = NULL;
            json_decref(entry->value);
            entry->value = json_true();
            framework_add(import->entries, unknown, json_null(), unknown, line);
            import->entries->items[import->entries->count - 1].source = source;
        }
    }
}

static void read_entries(framework_import *import)
{
    json_object_clear(import->stated);
    part_switches(import);
    apply_rows(import);
    if (import->of->stack != NULL && framework_get(import->scenario, "stack.name") == NULL) {
        framework_put(import, "stack.name", json_string(import->of->stack));
    }
    if (!import->of->overrides) {
        apply_absent(import);
    }
    if (import->of->read != NULL) {
        import->of->read(import);
    }
    for (size_t i = 0; i < import->entries->count; i++) {
        if (!import->entries->items[i].read) {
            list_unread(import, &import->entries->items[i]);
        }
    }
}

// What one file states: entries of a framework, or a model.
typedef struct file_part {
    const char *source;
    const framework *of;       // NULL: a model
    framework_entries entries; // owned
    json_t *model;             // owned; NULL: none
    bool is_script;
} file_part;

static void set_source(file_part *part)
{
    for (size_t i = 0; i < part->entries.count; i++) {
        part->entries.items[i].source = part->source;
    }
}

// The command of a script that has most arguments of a framework.
static sp_status read_script(framework_import *import, const framework *of, const char *text,
                             size_t bytes, file_part *part)
{
    framework_commands commands;
    sp_status status = framework_read_shell(import->source, text, bytes, &commands, import->err);
    int most = 0;
    size_t best = 0;
    for (size_t c = 0; status == SP_OK && c < commands.count; c++) {
        int score = 0;
        const framework *found = best_of(FRAMEWORK_SHELL, &commands.items[c], &score);
        if (of != NULL) {
            found = of;
            score = score_of(of, &commands.items[c]);
        }
        if (score > most) {
            most = score;
            best = c;
            import->of = found;
        }
    }
    if (status == SP_OK && most == 0) {
        status = sp_error_set(import->err, SP_ERR_CONTENT,
                              "%s: no command with arguments of a framework that is read",
                              import->source);
    }
    for (size_t c = 0; status == SP_OK && c < commands.count; c++) {
        if (c != best && score_of(import->of, &commands.items[c]) * 2 > most) {
            framework_note(import, "%s:%d: a second command with arguments of %s is not read",
                           import->source, commands.items[c].items[0].line, import->of->name);
        }
    }
    if (status == SP_OK) {
        json_array_extend(import->notes, commands.notes);
        part->of = import->of;
        part->entries = commands.items[best];
        commands.items[best] = (framework_entries){0};
    }
    framework_commands_free(&commands);
    return status;
}

static sp_status read_document(framework_import *import, const framework *of,
                               framework_syntax syntax, const char *text, size_t bytes,
                               file_part *part)
{
    framework_entries *entries = &part->entries;
    int score = 1;
    sp_status status = syntax == FRAMEWORK_TOML
                           ? framework_read_toml(import->source, text, bytes, entries, import->err)
                       : syntax == FRAMEWORK_JSON
                           ? framework_read_json(import->source, text, bytes, entries, import->err)
                           : framework_read_yaml(import->source, text, bytes, entries, import->err);
    part->of = of;
    if (status == SP_OK && of == NULL) {
        part->of = best_of(syntax, entries, &score);
    }
    if (status == SP_OK && (part->of == NULL || score == 0)) {
        status = sp_error_set(import->err, SP_ERR_CONTENT, "%s: no key of a framework that is read",
                              import->source);
    }
    return status;
}

static sp_status read_text(framework_import *import, const framework *of, const char *text,
                           size_t bytes, file_part *part)
{
    part->source = import->source;
    framework_syntax syntax = syntax_of(import->source, text, bytes);
    // A text of a known framework that has one syntax is in it.
    if (of != NULL && (of->reads & (1U << syntax)) == 0) {
        return sp_error_set(import->err, SP_ERR_CONTENT, "%s: is no file as %s reads them",
                            import->source, of->name);
    }
    sp_status status = syntax == FRAMEWORK_SHELL
                           ? read_script(import, of, text, bytes, part)
                           : read_document(import, of, syntax, text, bytes, part);
    part->is_script = syntax == FRAMEWORK_SHELL;
    set_source(part);
    return status;
}

// ---- several files ----

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

void framework_other_file(framework_import *import, const framework_entry *entry)
{
    const char *path = entry != NULL ? json_string_value(entry->value) : NULL;
    size_t i;
    json_t *file;
    bool is_given = path == NULL || path[0] == '\0';
    json_array_foreach (import->given, i, file) {
        is_given = is_given || strcmp(base_name(json_string_value(file)), base_name(path)) == 0;
    }
    if (!is_given) {
        framework_note(import, "%s:%d: %s: the file that it names is read where it is given, too",
                       entry->source, entry->line, sp_setting_leaf(entry->name));
    }
}

// Does a file of a job take what it does not state from another?
static bool takes_from(const file_part *part, const file_part *other)
{
    static const char names[] = "config yaml_cfg launch.config_file accelerate_config";
    for (size_t i = 0; i < part->entries.count; i++) {
        const framework_entry *entry = &part->entries.items[i];
        const char *path = json_string_value(entry->value);
        if (path != NULL && sp_names_hold(names, entry->name) &&
            strcmp(base_name(path), base_name(other->source)) == 0) {
            return true;
        }
    }
    return false;
}

// What a file takes from another goes before it, so that it is the stronger.
static void order_parts(file_part *parts, int count)
{
    for (int i = 0; i < count; i++) {
        for (int j = i + 1; j < count; j++) {
            if (takes_from(&parts[i], &parts[j]) && !takes_from(&parts[j], &parts[i])) {
                file_part other = parts[j];
                memmove(&parts[i + 1], &parts[i], (size_t)(j - i) * sizeof *parts);
                parts[i++] = other;
            }
        }
    }
}

// Reads a framework's files where the last of them stands.
static void apply_parts(framework_import *import, file_part *parts, int count)
{
    for (int i = 0; i < count; i++) {
        file_part *part = &parts[i];
        int later = i + 1;
        import->source = part->source;
        if (part->model != NULL) {
            sp_json_put(import->scenario, "model", json_incref(part->model));
            continue;
        }
        while (later < count && parts[later].of != part->of) {
            later++;
        }
        if (later == count) {
            import->of = part->of;
            import->entries = &part->entries;
            read_entries(import);
            continue;
        }
        framework_entries all = part->entries;
        framework_entries *last = &parts[later].entries;
        for (size_t e = 0; e < last->count; e++) {
            framework_entry *entry = &last->items[e];
            framework_add(&all, entry->name, entry->value, entry->unknown, entry->line);
            all.items[all.count - 1].source = entry->source;
            sp_free(entry->name);
        }
        sp_free(last->items);
        *last = all;
        part->entries = (framework_entries){0};
    }
}

static void free_parts(file_part *parts, int count)
{
    for (int i = 0; i < count; i++) {
        framework_entries_free(&parts[i].entries);
        json_decref(parts[i].model);
    }
    sp_free(parts);
}

// ---- all files ----

static sp_status read_whole(const char *path, char **text, size_t *bytes, sp_error *err)
{
    FILE *file = NULL;
    size_t capacity = 0;
    *text = NULL;
    *bytes = 0;
    sp_status status = sp_input_open(path, &file, err);
    while (status == SP_OK) {
        void *items = *text;
        sp_reserve(&items, &capacity, *bytes + 4096, 1);
        *text = items;
        size_t got = fread(*text + *bytes, 1, capacity - *bytes, file);
        *bytes += got;
        if (*bytes > MOST_BYTES) {
            status = sp_error_set(err, SP_ERR_LIMIT, "%s: is longer than 16 MiB", path);
        } else if (got == 0) {
            status =
                ferror(file) ? sp_error_set(err, SP_ERR_IO, "%s: cannot be read", path) : SP_OK;
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return status;
}

// The path stands for it, but where the file cannot be read again.
static sp_status import_model(framework_import *import, const char *path, const json_t *config,
                              file_part *part)
{
    sp_model model;
    sp_status status = sp_model_from_hf(config, path, &model, import->err);
    if (status == SP_OK) {
        part->model = sp_is_stream(path) || strcmp(path, SP_STANDARD_INPUT) == 0
                          ? sp_model_to_json(&model)
                          : json_string(path);
    }
    return status;
}

static sp_status read_file(framework_import *import, const char *path, const framework *of,
                           file_part *part)
{
    char *text = NULL;
    size_t bytes = 0;
    import->source = path;
    part->source = path;
    if (!sp_is_file(path) && !sp_is_stream(path) && sp_model_is_there(path)) {
        sp_model model;
        bool known = false;
        sp_status status = sp_model_named(path, &model, &known, import->err);
        if (status == SP_OK) {
            part->model = json_string(path);
        }
        return status;
    }
    sp_status status = read_whole(path, &text, &bytes, import->err);
    json_t *root = status == SP_OK ? json_loadb(text, bytes, 0, NULL) : NULL;
    const char *schema_name = json_string_value(json_object_get(root, "schema"));
    if (schema_name != NULL && strncmp(schema_name, "slimpack/", 9) == 0) {
        status = sp_error_set(import->err, SP_ERR_CONTENT,
                              "%s: is slimpack's own already: commands take it as it is", path);
    } else if (json_is_string(json_object_get(root, "model_type"))) {
        status = import_model(import, path, root, part);
    } else if (status == SP_OK) {
        status = read_text(import, of, text, bytes, part);
    }
    json_decref(root);
    sp_free(text);
    return status;
}

static framework_import begin(sp_error *err)
{
    return (framework_import){.scenario = sp_json_object(SP_JSON("schema", schema)),
                              .facts = json_object(),
                              .given = json_array(),
                              .stated = json_object(),
                              .unread = json_array(),
                              .notes = json_array(),
                              .err = err};
}

static sp_status end(framework_import *import, sp_status status, json_t **scenario, json_t **unread,
                     json_t **notes)
{
    json_decref(import->facts);
    json_decref(import->given);
    json_decref(import->stated);
    if (status == SP_OK && import->err->count > 0) {
        status = import->err->status;
    }
    if (status != SP_OK) {
        json_decref(import->scenario);
        import->scenario = NULL;
    }
    *scenario = import->scenario;
    *unread = import->unread;
    *notes = import->notes;
    return status;
}

sp_status framework_import_text(const char *source, const char *text, size_t bytes,
                                const framework *of, json_t **scenario, json_t **unread,
                                json_t **notes, sp_error *err)
{
    framework_import import = begin(err);
    file_part *part = sp_calloc(1, sizeof *part);
    import.source = source;
    sp_status status = read_text(&import, of, text, bytes, part);
    if (status == SP_OK) {
        apply_parts(&import, part, 1);
        framework_settle_text(&import);
    }
    free_parts(part, 1);
    return end(&import, status, scenario, unread, notes);
}

const framework *framework_of_file(const char *path, bool *is_script)
{
    enum { SETTING = 4 }; // the score of one
    sp_error own = {0};
    json_t *scenario = NULL;
    json_t *unread = NULL;
    json_t *notes = NULL;
    if (strcmp(path, SP_STANDARD_INPUT) == 0 || sp_is_stream(path)) {
        return NULL;
    }
    framework_import import = begin(&own);
    file_part *part = sp_calloc(1, sizeof *part);
    const bool is = read_file(&import, path, NULL, part) == SP_OK && part->of != NULL &&
                    score_of(part->of, &part->entries) >= SETTING;
    const framework *of = is ? part->of : NULL;
    *is_script = part->is_script;
    free_parts(part, 1);
    end(&import, SP_OK, &scenario, &unread, &notes);
    json_decref(scenario);
    json_decref(unread);
    json_decref(notes);
    return of;
}

sp_status framework_import_files(const char *const *files, int count, const char *from,
                                 const char *const *overrides, int override_count,
                                 json_t **scenario, json_t **unread, json_t **notes, sp_error *err)
{
    framework_import import = begin(err);
    const framework *of = from != NULL ? framework_find(from) : NULL;
    sp_status status = SP_OK;
    if (from != NULL && of == NULL) {
        status = framework_unknown("", from, err);
    }
    file_part *parts = sp_calloc((size_t)count, sizeof *parts);
    for (int i = 0; i < count && status == SP_OK; i++) {
        json_array_append_new(import.given, json_string(files[i]));
        status = read_file(&import, files[i], of, &parts[i]);
    }
    if (status == SP_OK) {
        order_parts(parts, count);
        apply_parts(&import, parts, count);
        status = framework_settle(&import, overrides, override_count);
    }
    free_parts(parts, count);
    return end(&import, status, scenario, unread, notes);
}
