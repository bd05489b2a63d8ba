#include "sim/base/json.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/base/alloc.h"
#include "sim/base/files.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"

enum {
    DEFAULT_LIMIT_BYTES = 256 << 20,
    PIPE_BYTES = 1 << 16, // read at once where the size is not known
    FLAGS = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY,
};

// Memory that jansson cannot have ends the program too: in some places it would tell of it as of a
// malformed text, in others not at all.
__attribute__((constructor)) static void watch_memory(void)
{
    json_set_alloc_funcs(sp_malloc, sp_free);
}

// ---- texts ----

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_blank(const char *text, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && is_space(text[i])) {
        i++;
    }
    return i == bytes;
}

// jansson puts the text it stopped at into the message; only the part a person needs is kept.
sp_status sp_json_load_error(sp_error *err, const char *source, long line,
                             const json_error_t *error)
{
    line = line > 0 ? line : error->line;
    if (strstr(error->text, "'\xef\xbb\xbf") != NULL) {
        return sp_error_at(err, SP_ERR_SYNTAX, source, line, error->column,
                           "a byte order mark (UTF-8 BOM) is no JSON: save the text without it");
    }
    if (strstr(error->text, "JSON_ALLOW_NUL") != NULL) {
        return sp_error_at(err, SP_ERR_SYNTAX, source, line, error->column,
                           "a text with the character \\u0000 is not read");
    }
    const enum json_error_code code = json_error_code(error);
    return sp_error_at(err, SP_ERR_SYNTAX, source, line, error->column, "%s%s", error->text,
                       code == json_error_premature_end_of_input ||
                               strstr(error->text, "near end of file") != NULL
                           ? ": the text ends too early, as of a file that was cut off: write it "
                             "again"
                       : code == json_error_end_of_input_expected
                           ? ": one document is read. Of a sweep's results, a line each, 'slimpack "
                             "report' makes a page and 'sweep SPEC -o FILE' lists the best again"
                           : "");
}

// The bytes of Python's NaN, Infinity or -Infinity that begin the text; 0: none does.
static size_t not_finite(const char *text, size_t bytes)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t length = strlen(words[i]);
        if (bytes >= length && memcmp(text, words[i], length) == 0) {
            return length;
        }
    }
    return 0;
}

// Does a value begin here, outside of strings?
static bool begins_value(const char *text, size_t at)
{
    return at == 0 || is_space(text[at - 1]) || strchr(":,[", text[at - 1]) != NULL;
}

char *sp_json_from_python(const char *text, size_t bytes, size_t *plain_bytes)
{
    // "null" is longer than "NaN" by a byte, and what separates two of them is one at least.
    char *plain = sp_malloc(bytes + bytes / 3 + 2);
    size_t used = 0;
    bool quoted = false;
    for (size_t i = 0; i < bytes;) {
        size_t word = quoted || !begins_value(text, i) ? 0 : not_finite(text + i, bytes - i);
        if (word > 0) {
            memcpy(plain + used, "null     ", word > 4 ? word : 4);
            used += word > 4 ? word : 4;
            i += word;
            continue;
        }
        bool escape = quoted && text[i] == '\\' && i + 1 < bytes;
        quoted = quoted != (text[i] == '"');
        memcpy(plain + used, text + i, escape ? 2 : 1);
        used += escape ? 2 : 1;
        i += escape ? 2 : 1;
    }
    *plain_bytes = used;
    return plain;
}

// Python's NaN is told where nothing else is wrong with the text.
static bool is_python(const char *text, size_t bytes)
{
    size_t used = 0;
    char *plain = sp_json_from_python(text, bytes, &used);
    json_t *root = used != bytes || memcmp(plain, text, used) != 0
                       ? json_loadb(plain, used, FLAGS, NULL)
                       : NULL;
    bool parsed = root != NULL;
    json_decref(root);
    sp_free(plain);
    return parsed;
}

// Where a text begins with a byte order mark that is told.
static bool begins_json(const char *text, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && is_space(text[i])) {
        i++;
    }
    return i < bytes && (strchr("{[\"", text[i]) != NULL || (unsigned char)text[i] >= 0x80);
}

// Quotes the beginning of what is some other kind of file, such as a table.
static sp_status not_json(const char *text, size_t bytes, const char *source, sp_error *err)
{
    enum { SHOWN = 40 };
    char start[SHOWN + 1];
    size_t used = 0;
    size_t i = 0;
    while (i < bytes && is_space(text[i])) {
        i++;
    }
    while (i < bytes && used < SHOWN && text[i] >= ' ' && text[i] <= '~') {
        start[used++] = text[i++];
    }
    start[used] = '\0';
    bool table = strpbrk(start, ",;") != NULL || (i < bytes && text[i] == '\t');
    return sp_error_at(err, SP_ERR_SYNTAX, source, 1, 0,
                       "expected JSON, which begins with '{', got \"%s\"%s", start,
                       table             ? ": is it a table (CSV)?"
                       : start[0] == '#' ? ": is it a launch file ('slimpack import FILE')?"
                                         : "");
}

sp_status sp_json_read_text(const char *text, size_t bytes, const char *source, json_t **root,
                            sp_error *err)
{
    json_error_t error;
    *root = NULL;
    if (is_blank(text, bytes)) {
        return sp_error_set(err, SP_ERR_SYNTAX, "%s: is empty, expected JSON", source);
    }
    *root = json_loadb(text, bytes, FLAGS, &error);
    if (*root == NULL && is_python(text, bytes)) {
        return sp_error_at(err, SP_ERR_SYNTAX, source, error.line, error.column,
                           "NaN and Infinity, which Python writes, are no JSON: write null or a "
                           "number");
    }
    if (*root == NULL && !begins_json(text, bytes)) {
        return not_json(text, bytes, source, err);
    }
    return *root == NULL ? sp_json_load_error(err, source, 0, &error) : SP_OK;
}

static sp_status read_python_text(const char *text, size_t bytes, const char *source, json_t **root,
                                  sp_error *err)
{
    size_t used = 0;
    char *plain = sp_json_from_python(text, bytes, &used);
    sp_status status = sp_json_read_text(plain, used, source, root, err);
    sp_free(plain);
    return status;
}

static sp_status too_long(const char *path, int64_t bytes, int64_t limit_bytes, sp_error *err)
{
    return sp_error_set(err, SP_ERR_CONTENT, "%s: %lld bytes are more than the %lld read as JSON",
                        path, (long long)bytes, (long long)limit_bytes);
}

// The caller frees *text.
static sp_status read_stream(FILE *file, const char *path, int64_t limit_bytes, char **text,
                             size_t *bytes, sp_error *err)
{
    struct stat info = {0}; // of no size where a stream has no descriptor
    size_t room = 0;
    void *held = NULL;
    *bytes = 0;
    // The size of a pipe is not known, nor that of a stream without a file.
    int64_t size = fstat(fileno(file), &info) == 0 ? info.st_size : 0;
    if (size > limit_bytes) {
        return too_long(path, size, limit_bytes, err);
    }
    size_t wanted = (size_t)sp_larger(size + 1, PIPE_BYTES); // one byte more tells the end
    do {
        sp_reserve(&held, &room, *bytes + wanted, 1);
        errno = 0;
        *bytes += fread((char *)held + *bytes, 1, room - *bytes, file);
    } while (*bytes == room && *bytes <= (size_t)limit_bytes);
    sp_status status = SP_OK;
    if (ferror(file)) {
        status = sp_error_system(err, path, errno);
    } else if (*bytes > (size_t)limit_bytes) {
        status = too_long(path, (int64_t)*bytes, limit_bytes, err);
    }
    if (status != SP_OK) {
        sp_free(held);
        return status;
    }
    *text = held;
    return SP_OK;
}

typedef sp_status (*text_reader)(const char *text, size_t bytes, const char *source, json_t **root,
                                 sp_error *err);

static sp_status read_open(FILE *file, int64_t limit_bytes, const char *source,
                           text_reader read_text, json_t **root, sp_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    *root = NULL;
    SP_TRY(read_stream(file, source, limit_bytes, &text, &bytes, err));
    sp_status status = read_text(text, bytes, source, root, err);
    sp_free(text);
    return status;
}

static sp_status read_file(const char *path, int64_t limit_bytes, text_reader read_text,
                           json_t **root, sp_error *err)
{
    *root = NULL;
    FILE *file;
    sp_status status = sp_input_open(path, &file, err);
    if (status == SP_OK) {
        status = read_open(file, limit_bytes > 0 ? limit_bytes : DEFAULT_LIMIT_BYTES, path,
                           read_text, root, err);
        fclose(file);
    }
    return status;
}

sp_status sp_json_read_stream(FILE *file, int64_t limit_bytes, const char *source, json_t **root,
                              sp_error *err)
{
    return read_open(file, limit_bytes, source, sp_json_read_text, root, err);
}

sp_status sp_json_read_file(const char *path, int64_t limit_bytes, json_t **root, sp_error *err)
{
    return read_file(path, limit_bytes, sp_json_read_text, root, err);
}

sp_status sp_json_read_python_file(const char *path, int64_t limit_bytes, json_t **root,
                                   sp_error *err)
{
    return read_file(path, limit_bytes, read_python_text, root, err);
}

void sp_json_quote(const json_t *value, char *text, size_t bytes)
{
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII |
                                       JSON_REAL_PRECISION(15));
    snprintf(text, bytes, "%s", dump == NULL ? "?" : dump);
    if (dump != NULL && strlen(dump) >= bytes && bytes > 4) {
        memcpy(text + bytes - 4, "...", 4);
    }
    free(dump);
}

// ---- objects that are read ----

// Path of member `key` below the object, into `out` (SP_JSON_PATH bytes).
static void member_path(const sp_object *object, const char *key, char *out)
{
    if (object->path[0] == '\0') {
        snprintf(out, SP_JSON_PATH, "%s", key);
        return;
    }
    size_t used = strlen(object->path);
    memcpy(out, object->path, used + 1);
    snprintf(out + used, SP_JSON_PATH - used, ".%s", key);
}

void sp_object_error(sp_object *object, const char *key, const char *format, ...)
{
    char path[SP_JSON_PATH];
    char text[SP_ERROR_TEXT];
    member_path(object, key, path);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sp_error_in(object->err, SP_ERR_CONTENT, object->source, path, "%s", text);
}

void sp_object_expected(sp_object *object, const char *key, const json_t *value, const char *format,
                        ...)
{
    char what[SP_ERROR_TEXT / 4];
    char found[80];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    sp_json_quote(value, found, sizeof found);
    sp_object_error(object, key, "expected %s, got %s", what, found);
}

void sp_object_expected_item(sp_object *object, const char *key, size_t index, const json_t *value,
                             const char *expected)
{
    char item[SP_JSON_PATH];
    snprintf(item, sizeof item, "%.120s[%zu]", key, index);
    sp_object_expected(object, item, value, "%s", expected);
}

static void begin(sp_object *object, const json_t *json, const char *source, const char *path,
                  const sp_key_watch *watch, sp_error *err)
{
    *object = (sp_object){.json = json, .source = source, .err = err, .watch = watch};
    snprintf(object->path, sizeof object->path, "%s", path);
    if (json != NULL && !json_is_object(json)) {
        char found[80];
        char hint[SP_JSON_PATH + 20] = "";
        const char *text = json_string_value(json);
        bool asks = text != NULL && watch != NULL && watch->held != NULL;
        const char *held = asks ? watch->held(path, text) : NULL;
        if (held != NULL) {
            snprintf(hint, sizeof hint, " (did you mean '%s'?)", held);
        }
        sp_json_quote(json, found, sizeof found);
        sp_error_in(err, SP_ERR_CONTENT, source, path, "expected an object, got %s%s", found, hint);
        object->json = NULL;
    }
}

void sp_object_begin(sp_object *object, const json_t *json, const char *source, const char *path,
                     sp_error *err)
{
    begin(object, json, source, path, NULL, err);
}

const json_t *sp_object_get(sp_object *object, const char *key)
{
    bool noted = false;
    for (int i = 0; i < object->known_count && !noted; i++) {
        noted = strcmp(object->known[i], key) == 0;
    }
    if (!noted) {
        SP_ASSERT(object->known_count < SP_JSON_KEYS);
        object->known[object->known_count++] = key;
    }
    const json_t *value = object->json == NULL ? NULL : json_object_get(object->json, key);
    return json_is_null(value) ? NULL : value;
}

bool sp_object_has(sp_object *object, const char *key)
{
    return sp_object_get(object, key) != NULL;
}

bool sp_object_member(sp_object *parent, const char *key, sp_object *child)
{
    char path[SP_JSON_PATH];
    const json_t *json = sp_object_get(parent, key);
    member_path(parent, key, path);
    begin(child, json, parent->source, path, parent->watch, parent->err);
    return json != NULL;
}

void sp_object_item(sp_object *parent, const char *key, size_t index, sp_object *child)
{
    char item[SP_JSON_PATH];
    char path[SP_JSON_PATH];
    snprintf(item, sizeof item, "%.120s[%zu]", key, index);
    member_path(parent, item, path);
    begin(child, json_array_get(json_object_get(parent->json, key), index), parent->source, path,
          parent->watch, parent->err);
}

const json_t *sp_object_array(sp_object *object, const char *key)
{
    const json_t *value = sp_object_get(object, key);
    if (value != NULL && !json_is_array(value)) {
        sp_object_expected(object, key, value, "an array");
    }
    return json_is_array(value) ? value : NULL;
}

const json_t *sp_object_list(sp_object *object, const char *key, int most, const char *elements)
{
    const json_t *list = sp_object_get(object, key);
    if (list != NULL && (!json_is_array(list) || json_array_size(list) > (size_t)most)) {
        sp_object_error(object, key, "expected an array of at most %d %s", most, elements);
        return NULL;
    }
    return list;
}

const json_t *sp_object_texts(sp_object *object, const char *key)
{
    const json_t *texts = sp_object_get(object, key);
    bool good = texts == NULL || json_is_array(texts);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        good = good && json_is_string(json_array_get(texts, i));
    }
    if (!good) {
        sp_object_expected(object, key, texts, "an array of texts");
    }
    return good ? texts : NULL;
}

int64_t sp_object_int(sp_object *object, const char *key, int64_t fallback, int64_t min,
                      int64_t max)
{
    const json_t *value = sp_object_get(object, key);
    if (value == NULL) {
        return fallback;
    }
    // A real with a whole value (1e6, 8.0) is as good as an integer.
    int64_t number = min - 1;
    bool whole = json_is_integer(value);
    if (whole) {
        number = json_integer_value(value);
    } else if (json_is_real(value)) {
        double real = json_real_value(value);
        whole = real == floor(real) && fabs(real) < 0x1p53;
        number = whole ? (int64_t)real : 0;
    }
    if (!whole || number < min || number > max) {
        if (max == INT64_MAX) {
            sp_object_expected(object, key, value, "an integer of at least %lld", (long long)min);
        } else {
            sp_object_expected(object, key, value, "an integer from %lld to %lld", (long long)min,
                               (long long)max);
        }
        return fallback;
    }
    return number;
}

bool sp_tokens_from_text(const char *text, int64_t *tokens)
{
    char *end = NULL;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || errno != 0) {
        return false;
    }
    int shift = *end == 'K' || *end == 'k' ? 10 : *end == 'M' || *end == 'm' ? 20 : 0;
    if (end[shift > 0] != '\0' || number > INT64_MAX >> shift) {
        return false;
    }
    *tokens = (int64_t)number << shift;
    return true;
}

int64_t sp_object_tokens(sp_object *object, const char *key, int64_t fallback, int64_t min,
                         int64_t max)
{
    const json_t *value = sp_object_get(object, key);
    int64_t tokens = 0;
    if (!json_is_string(value)) {
        return sp_object_int(object, key, fallback, min, max);
    }
    bool read = sp_tokens_from_text(json_string_value(value), &tokens);
    if (!read || tokens < min || tokens > max) {
        sp_object_expected(object, key, value,
                           "an integer from %lld to %lld, or such as \"32K\" (of 1024) or \"1M\"",
                           (long long)min, (long long)max);
        return fallback;
    }
    return tokens;
}

double sp_object_real(sp_object *object, const char *key, double fallback, double min, double max)
{
    const json_t *value = sp_object_get(object, key);
    if (value == NULL) {
        return fallback;
    }
    double number = json_is_number(value) ? json_number_value(value) : (double)NAN;
    if (!(number >= min && number <= max)) {
        if (max >= HUGE_VAL || max > 1e300) {
            sp_object_expected(object, key, value, "a number of at least %g", min);
        } else {
            sp_object_expected(object, key, value, "a number from %g to %g", min, max);
        }
        return fallback;
    }
    return number;
}

bool sp_object_bool(sp_object *object, const char *key, bool fallback)
{
    const json_t *value = sp_object_get(object, key);
    if (value != NULL && !json_is_boolean(value)) {
        sp_object_expected(object, key, value, "true or false");
    }
    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

const char *sp_object_string(sp_object *object, const char *key, const char *fallback)
{
    const json_t *value = sp_object_get(object, key);
    if (value != NULL && !json_is_string(value)) {
        sp_object_expected(object, key, value, "a string");
    }
    return json_is_string(value) ? json_string_value(value) : fallback;
}

void sp_object_text(sp_object *object, const char *key, const char *fallback, char *to,
                    size_t bytes)
{
    const char *text = sp_object_string(object, key, fallback);
    if (strlen(text) >= bytes) {
        sp_object_error(object, key, "expected at most %d bytes of text, got %d", (int)bytes - 1,
                        (int)strlen(text));
        return;
    }
    memcpy(to, text, strlen(text) + 1);
}

void sp_object_schema(sp_object *root, const char *schema)
{
    const json_t *found = sp_object_get(root, "schema");
    if (found != NULL &&
        (!json_is_string(found) || strcmp(json_string_value(found), schema) != 0)) {
        sp_object_expected(root, "schema", found, "\"%s\"", schema);
    }
}

const char *sp_json_kind(const json_t *root)
{
    // Without a schema a document is of the first kind of which it has a key.
    static const struct {
        const char *schema, *keys[4], *kind;
    } kinds[] = {
        {"slimpack/sweep/", {"grid"}, "a sweep's specification"},
        {"slimpack/measurements/", {"measured"}, "the map of a table"},
        {"slimpack/fit/", {"constants"}, "a fit's specification"},
        {"slimpack/validation-set/", {"cases"}, "a set of steps to validate"},
        {"slimpack/measurement/", {NULL}, "a measurement"},
        {"slimpack/plan/", {NULL}, "a plan"},
        {"slimpack/profile/", {NULL}, "a profile"},
        {"slimpack/result/", {NULL}, "a result"},
        {"slimpack/scenario/", {"workload", "uniform_costs", "parallel"}, "a scenario"},
        {"", {"model_type", "architectures"}, "a model's config.json"},
    };
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    const char *schema = json_string_value(json_object_get(root, "schema"));
    for (int k = 0; schema != NULL && k < KINDS - 1; k++) {
        if (strncmp(schema, kinds[k].schema, strlen(kinds[k].schema)) == 0) {
            return kinds[k].kind;
        }
    }
    for (int k = 0; schema == NULL && k < KINDS; k++) {
        for (int i = 0; i < 4 && kinds[k].keys[i] != NULL; i++) {
            if (json_object_get(root, kinds[k].keys[i]) != NULL) {
                return kinds[k].kind;
            }
        }
    }
    return schema != NULL && strncmp(schema, "slimpack/", 9) == 0 ? "an output of the program"
                                                                  : NULL;
}

int sp_object_enum(sp_object *object, const char *key, const char *const *names, int fallback)
{
    const json_t *value = sp_object_get(object, key);
    const char *word = json_string_value(value);
    char list[192] = "";
    char found[80];
    int n = 0;
    if (value == NULL) {
        return fallback;
    }
    for (; names[n] != NULL; n++) {
        if (word != NULL && sp_same_name(word, names[n])) {
            return n;
        }
        sp_append(list, sizeof list, "%s\"%s\"", n > 0 ? ", " : "", names[n]);
    }
    const char *near = word != NULL ? sp_nearest_name(word, names, n) : NULL;
    sp_json_quote(value, found, sizeof found);
    sp_object_error(object, key, "expected one of %s, got %s%s%s%s", list, found,
                    near != NULL ? " (did you mean \"" : "", near != NULL ? near : "",
                    near != NULL ? "\"?)" : "");
    return fallback;
}

void sp_object_require(sp_object *object, const char *key)
{
    if (!sp_object_has(object, key)) {
        sp_error_in(object->err, SP_ERR_CONTENT, object->source, object->path,
                    "key '%s' is missing", key);
    }
}

void sp_object_require_keys(sp_object *object, const char *const *keys)
{
    for (; *keys != NULL; keys++) {
        sp_object_require(object, *keys);
    }
}

static bool has_word(const char *key, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = strstr(key, word); at != NULL; at = strstr(at + 1, word)) {
        bool begins = at == key || at[-1] == '_';
        if (begins && (at[length] == '\0' || at[length] == '_')) {
            return true;
        }
    }
    return false;
}

// The only known key that has `word` as one of its words ("cv" of "gpu_cv"), or NULL.
static const char *with_word(const sp_object *object, const char *word)
{
    const char *found = NULL;
    int count = 0;
    for (int i = 0; word[0] != '\0' && i < object->known_count; i++) {
        if (has_word(object->known[i], word)) {
            found = object->known[i];
            count++;
        }
    }
    return count == 1 ? found : NULL;
}

// "name" and "type" are what others call the kind of a thing.
static const char *kind_of(const sp_object *object, const char *key)
{
    bool is_kind = strcmp(key, "name") == 0 || strcmp(key, "type") == 0;
    for (int i = 0; is_kind && i < object->known_count; i++) {
        if (strcmp(object->known[i], "kind") == 0) {
            return object->known[i];
        }
    }
    return NULL;
}

void sp_object_end(sp_object *object)
{
    if (object->json == NULL) {
        return;
    }
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)object->json, key, value) {
        bool known = false;
        for (int i = 0; i < object->known_count && !known; i++) {
            known = strcmp(object->known[i], key) == 0;
        }
        if (known) {
            continue;
        }
        if (object->err->count == SP_ERROR_MESSAGES) {
            // It is counted; looking for a name like each of very many would take minutes.
            sp_error_set(object->err, SP_ERR_CONTENT, "unknown key");
            continue;
        }
        char whole[SP_JSON_PATH + 66];
        snprintf(whole, sizeof whole, "%s.%.64s", object->path, key);
        const char *near = kind_of(object, key);
        const char *why =
            near == NULL && object->watch != NULL ? object->watch->missing(whole) : NULL;
        if (why != NULL) {
            sp_error_in(object->err, SP_ERR_CONTENT, object->source, object->path,
                        SP_UNKNOWN_KEY "%.64s': %s", key, why);
            continue;
        }
        if (near == NULL && object->watch != NULL) {
            near = object->watch->meant(key);
        }
        const char *own = sp_nearest_name(key, object->known, object->known_count);
        // A key of another section by this name does something else where one of the object's own
        // is nearly so called.
        bool is_elsewhere =
            near != NULL && strrchr(near, '.') != NULL && sp_same_name(strrchr(near, '.') + 1, key);
        if (near == NULL || (is_elsewhere && own != NULL && strlen(key) > 3)) {
            near = own;
        }
        if (near == NULL) {
            near = with_word(object, key);
        }
        if (near == NULL && object->watch != NULL) {
            near = object->watch->near(key);
        }
        if (near != NULL) {
            sp_error_in(object->err, SP_ERR_CONTENT, object->source, object->path,
                        SP_UNKNOWN_KEY "%.64s' (did you mean '%s'?)", key, near);
        } else {
            sp_error_in(object->err, SP_ERR_CONTENT, object->source, object->path,
                        SP_UNKNOWN_KEY "%.64s'", key);
        }
    }
}

// ---- dotted paths ----

bool sp_json_path_is_valid(const char *path, size_t bytes)
{
    size_t length = strlen(path);
    return length > 0 && length < bytes && path[0] != '.' && path[length - 1] != '.' &&
           strstr(path, "..") == NULL;
}

bool sp_json_paths_overlap(const char *a, const char *b)
{
    size_t i = 0;
    while (a[i] != '\0' && a[i] == b[i]) {
        i++;
    }
    return (a[i] == '\0' && (b[i] == '\0' || b[i] == '.')) || (b[i] == '\0' && a[i] == '.');
}

bool sp_json_path_next(const char **path, char part[SP_JSON_PATH])
{
    size_t length = strcspn(*path, ".");
    bool more = (*path)[length] == '.';
    memcpy(part, *path, length);
    part[length] = '\0';
    *path += more ? length + 1 : length;
    return more;
}

// ---- building ----

bool sp_json_put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

json_t *sp_json_figure(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *sp_json_text_or_null(const char *text)
{
    return text != NULL && text[0] != '\0' ? json_string(text) : json_null();
}

json_t *sp_json_texts(const char *const *texts)
{
    json_t *array = json_array();
    for (int i = 0; texts[i] != NULL; i++) {
        json_array_append_new(array, json_string(texts[i]));
    }
    return array;
}

json_t *sp_json_lines(const char *first, size_t stride, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++) {
        json_array_append_new(array, json_string(first + (size_t)i * stride));
    }
    return array;
}

// Finds or makes the object that holds the last part of `path` (which is cut apart in place).
static json_t *holder_of(json_t *root, char *path, char **last)
{
    json_t *object = root;
    for (char *dot = strchr(path, '.'); dot != NULL; dot = strchr(path, '.')) {
        *dot = '\0';
        json_t *child = json_object_get(object, path);
        if (child == NULL || json_is_null(child)) {
            child = json_object();
            if (!sp_json_put(object, path, child)) {
                return NULL;
            }
        }
        if (!json_is_object(child)) {
            return NULL;
        }
        object = child;
        path = dot + 1;
    }
    *last = path;
    return object;
}

sp_status sp_json_override(json_t *root, const char *assignment, sp_error *err)
{
    const char *equals = strchr(assignment, '=');
    if (equals == NULL || equals == assignment || !json_is_object(root)) {
        return sp_error_set(err, SP_ERR_USAGE, "--set expects KEY=VALUE, got '%s'", assignment);
    }
    char *path = sp_strdup(assignment);
    path[equals - assignment] = '\0';
    json_t *value = json_loads(equals + 1, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    value = value != NULL ? value : json_string(equals + 1);
    char *last = NULL;
    json_t *holder = value == NULL ? NULL : holder_of(root, path, &last);
    bool placed = holder != NULL && last[0] != '\0';
    if (placed) {
        placed = sp_json_put(holder, last, value);
    } else {
        json_decref(value);
    }
    sp_free(path);
    return placed ? SP_OK
                  : sp_error_set(err, SP_ERR_USAGE, "--set %s: no such place in the scenario",
                                 assignment);
}

json_t *sp_json_flag(bool value)
{
    return json_boolean(value);
}

json_t *sp_json_count(uint64_t value)
{
    return json_integer((json_int_t)value);
}

json_t *sp_json_itself(json_t *value)
{
    return value;
}

json_t *sp_json_add_entries(json_t *object, const sp_json_entry *entries)
{
    for (; entries->key != NULL; entries++) {
        sp_json_put(object, entries->key, entries->value);
    }
    return object;
}
