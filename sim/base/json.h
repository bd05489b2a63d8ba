// Reading JSON with errors a person can act on: syntax errors carry line and column, content errors
// the JSON path, the value found and what was expected; unknown keys get the nearest known name
// (nearest_name.c). Below that dotted paths, and building JSON.
#ifndef SLIMPACK_SIM_BASE_JSON_H
#define SLIMPACK_SIM_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/status.h"

enum {
    SP_JSON_KEYS = 64,  // known keys of one object
    SP_JSON_PATH = 160, // bytes of a JSON path
};

// Who knows the keys of a whole document: of an object, and of all objects in it.
typedef struct sp_key_watch {
    // The dotted path of the key that somebody means who writes `key`, which nobody reads, or NULL.
    const char *(*meant)(const char *key);
    // Why nothing stands for what others call the key of this dotted path, or NULL.
    const char *(*missing)(const char *path);
    // The dotted key that is spelt most alike in the whole document, where none of the object's is.
    const char *(*near)(const char *key);
    // The dotted key that is meant where a text stands in place of the object of this path, or
    // NULL.
    const char *(*held)(const char *path, const char *text);
} sp_key_watch;

// Reads a whole JSON file (duplicate keys refused), which may be a pipe. Files above limit_bytes
// (0: 256 MiB) are refused, where their size is known unread. The caller owns *root.
SP_API sp_status sp_json_read_file(const char *path, int64_t limit_bytes, json_t **root,
                                   sp_error *err);

// Parses a JSON text in memory; `source` names it in messages.
SP_API sp_status sp_json_read_text(const char *text, size_t bytes, const char *source,
                                   json_t **root, sp_error *err);

// JSON as Python writes it: NaN, Infinity and -Infinity are null.
sp_status sp_json_read_python_file(const char *path, int64_t limit_bytes, json_t **root,
                                   sp_error *err);
// Such a text as JSON, with null in their place; the caller frees it.
char *sp_json_from_python(const char *text, size_t bytes, size_t *plain_bytes);

// The error of a text that jansson did not read; `line` is that of a text which is one line of its
// source, else 0.
sp_status sp_json_load_error(sp_error *err, const char *source, long line,
                             const json_error_t *error);

// Reads what follows of a stream likewise.
sp_status sp_json_read_stream(FILE *file, int64_t limit_bytes, const char *source, json_t **root,
                              sp_error *err);

// The kind of document by its schema or its keys, for messages about a file that is given in the
// place of another kind ("a scenario"); NULL: it is none that the program knows.
const char *sp_json_kind(const json_t *root);

// One object being read. Every getter notes its key as known; sp_object_end() then reports the keys
// nobody asked for. Content errors go to *err (collected, up to ten); the getters return the
// default then, so that reading goes on. `json` may be NULL (absent): every getter returns its
// default.
typedef struct sp_object {
    const json_t *json;
    const char *source;
    sp_error *err;
    char path[SP_JSON_PATH]; // of the object itself, "" for the root
    const char *known[SP_JSON_KEYS];
    int known_count;
    const sp_key_watch *watch; // not owned; NULL: nobody. Members take it over
} sp_object;

// Begins the object `json` (an error is noted if it is no object); path is its own JSON path. `err`
// must not be NULL.
void sp_object_begin(sp_object *object, const json_t *json, const char *source, const char *path,
                     sp_error *err);

// Begins the member `key` of parent as an object; false when it is absent (the child is then empty
// and usable all the same).
bool sp_object_member(sp_object *parent, const char *key, sp_object *child);

// Begins the element `index` of the array `key` of parent as an object, at "path.key[index]".
void sp_object_item(sp_object *parent, const char *key, size_t index, sp_object *child);

// How the text of a message begins that tells of a key that nobody reads.
#define SP_UNKNOWN_KEY "unknown key '"

// Reports unknown keys. Call once, after all getters.
void sp_object_end(sp_object *object);

// Was the key given (and not null)? Notes it as known.
bool sp_object_has(sp_object *object, const char *key);

// The raw value or NULL. Notes the key as known.
const json_t *sp_object_get(sp_object *object, const char *key);

int64_t sp_object_int(sp_object *object, const char *key, int64_t fallback, int64_t min,
                      int64_t max);
// An integer of tokens, which may also be a text such as "128K".
int64_t sp_object_tokens(sp_object *object, const char *key, int64_t fallback, int64_t min,
                         int64_t max);
double sp_object_real(sp_object *object, const char *key, double fallback, double min, double max);
bool sp_object_bool(sp_object *object, const char *key, bool fallback);

// A string, owned by the JSON document.
const char *sp_object_string(sp_object *object, const char *key, const char *fallback);

// A string of fewer than `bytes` bytes into `to`, which stays as it is after an error.
void sp_object_text(sp_object *object, const char *key, const char *fallback, char *to,
                    size_t bytes);

// The member "schema" of a document: absent, or this one.
void sp_object_schema(sp_object *root, const char *schema);

// One of the names (NULL-terminated), whatever case, hyphens and underscores; returns its index.
int sp_object_enum(sp_object *object, const char *key, const char *const *names, int fallback);

// The array `key`, which is a content error where it is anything else, with NULL. Of up to `most`
// elements, in words what they are; of texts.
const json_t *sp_object_array(sp_object *object, const char *key);
const json_t *sp_object_list(sp_object *object, const char *key, int most, const char *elements);
const json_t *sp_object_texts(sp_object *object, const char *key);

// A required key that is missing is a content error.
void sp_object_require(sp_object *object, const char *key);
// Requires every key: sp_object_require_all(object, "n", "k").
#define sp_object_require_all(object_, ...) \
    sp_object_require_keys((object_), (const char *const[]){__VA_ARGS__, NULL})
void sp_object_require_keys(sp_object *object, const char *const *keys);

// Notes a content error at `key` of the object: "source: path.key: text".
void sp_object_error(sp_object *object, const char *key, const char *format, ...) SP_PRINTF(3, 4);

// Notes that a value at `key` is not what was expected: "... expected <text>, got <value>".
void sp_object_expected(sp_object *object, const char *key, const json_t *value, const char *format,
                        ...) SP_PRINTF(4, 5);

// Notes likewise of the element `index` of the array `key`.
void sp_object_expected_item(sp_object *object, const char *key, size_t index, const json_t *value,
                             const char *expected);

// A number of tokens as people write it: digits, and after them K (or k) for 1024 or M (or m) for
// 1048576. False where the text is none.
SP_API bool sp_tokens_from_text(const char *text, int64_t *tokens);

// The compact text of a value, cut at `bytes` with "..." (for messages).
void sp_json_quote(const json_t *value, char *text, size_t bytes);

// The name of names[0..n) that `word` means: the same but for case and marks, what others call so,
// the shortest that begins with it, or the nearest with like numbers if it is near enough (edit
// distance at most a third of its length, 2 where that is less, and 1 in words of up to three
// letters); else NULL.
const char *sp_nearest_name(const char *word, const char *const *names, int n);

// The name of names[] (NULL-terminated) that sp_same_name() says `word` to be; NULL: none.
const char *sp_listed_name(const char *word, const char *const *names);

// Is it the same name, but for case, hyphens, underscores and spaces?
bool sp_same_name(const char *a, const char *b);
// Is it one of the names between blanks, but for case, and hyphens for underscores?
bool sp_names_hold(const char *names, const char *name);

// " (did you mean 'NAME'?)" with the nearest name, or "" where none is near enough; returns `text`.
enum { SP_NAME_HINT = 96 };
const char *sp_name_hint(const char *word, const char *const *names, int n,
                         char text[SP_NAME_HINT]);
// " (did you mean 'NAME'? known: NAMES)", without the nearest where none is near enough.
enum { SP_NAME_CHOICE = SP_ERROR_TEXT / 2 + SP_NAME_HINT };
const char *sp_name_choice(const char *word, const char *const *names, int n,
                           char text[SP_NAME_CHOICE]);

// Dotted paths such as "parallel.tp". A valid one has no empty part and fewer than `bytes` bytes.
bool sp_json_path_is_valid(const char *path, size_t bytes);

// True where one path is the other, or names an object around it.
bool sp_json_paths_overlap(const char *a, const char *b);

// Takes the first part off a valid path; returns false with the last part.
bool sp_json_path_next(const char **path, char part[SP_JSON_PATH]);

// Sets root.<dotted path> to `text`, read as JSON where it is valid JSON and as a string otherwise
// (`--set parallel.pp=8`); intermediate objects are made. `root` is changed in place.
sp_status sp_json_override(json_t *root, const char *assignment, sp_error *err);

// Member of an object being built; takes over `value`. False, and nothing is put, where the key is
// no UTF-8 or the value NULL: that of a text that is none, or of a number that is not finite.
bool sp_json_put(json_t *object, const char *key, json_t *value);

// A number, or null where it is not finite.
json_t *sp_json_figure(double value);

// A text, or null where it is NULL or empty.
json_t *sp_json_text_or_null(const char *text);

// An array of texts: those up to NULL, or `count` of them, each in `stride` bytes. Those are left
// out that are no UTF-8, cut short as they may be.
json_t *sp_json_texts(const char *const *texts);
json_t *sp_json_lines(const char *first, size_t stride, int count);

// Members of an object: sp_json_object(SP_JSON("gpus", 8), SP_JSON("cluster", name)). A value is an
// integer, a real (null where it is not finite), a text, a bool or a json_t *, which the object
// takes over; a comparison is an int in C, so that it stands in json_boolean(). Members are put as
// sp_json_put() does.
typedef struct sp_json_entry {
    const char *key;
    json_t *value;
} sp_json_entry;

// clang-format off
#define SP_JSON(key_, value_)                                                                     \
    {(key_), _Generic((value_), bool: sp_json_flag, int: json_integer, unsigned: json_integer,    \
                      long: json_integer, unsigned long: sp_json_count, long long: json_integer,  \
                      unsigned long long: sp_json_count, double: sp_json_figure,                  \
                      char *: json_string, const char *: json_string,                             \
                      json_t *: sp_json_itself)(value_)}
#define sp_json_add(object_, ...) \
    sp_json_add_entries((object_), (const sp_json_entry[]){__VA_ARGS__, {NULL, NULL}})
#define sp_json_object(...) sp_json_add(json_object(), __VA_ARGS__)
// clang-format on

json_t *sp_json_flag(bool value);
json_t *sp_json_count(uint64_t value);
json_t *sp_json_itself(json_t *value);
// Adds entries up to one of NULL; returns the object.
json_t *sp_json_add_entries(json_t *object, const sp_json_entry *entries);

#endif
