// JSON lines (an object with the length under one key, or a bare number, per line) and a JSON array
// of numbers or of such objects, which is scanned by hand so that the whole of it never stands in
// memory. Of a document's token ids (input_ids) the number is its length, without those that
// an attention_mask of as many entries leaves out.
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/workload/length_reader.h"

enum {
    KEYS = 64,      // keys of the first object that are looked at
    KEY_BYTES = 64, // longest key chosen when none is given
    NUMBER = 64,    // longest number
};

// Of a file.
#define FORMS                                                                            \
    "expected an array of numbers or of objects with a number under one key, or one of " \
    "these a line"

static const char bare[] = "numbers without keys";

// A value stands in the current line, or at `where` ("[5]") of an array.
typedef struct list_item {
    const json_t *json;
    const char *where; // NULL: the line
} list_item;

static sp_status wrong_item(sp_i_reader *reader, const list_item *item, const char *text)
{
    return item->where == NULL
               ? sp_error_at(reader->err, SP_ERR_CONTENT, reader->source, reader->line, 0, "%s",
                             text)
               : sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, item->where, "%s", text);
}

// Ids of one document: of a batch of them (an array of arrays) each is another length.
static bool holds_ids(const char *key, const json_t *value)
{
    size_t length = strlen(key);
    return length >= 3 && strcmp(key + length - 3, "ids") == 0 && json_is_array(value) &&
           !json_is_array(json_array_get(value, 0));
}

// Of a document's ids those that the mask beside them counts: the others are padding.
static size_t count_ids(const json_t *object, const json_t *ids)
{
    const json_t *mask = json_object_get(object, "attention_mask");
    size_t count = json_array_size(ids);
    if (json_array_size(mask) == count) {
        size_t i;
        const json_t *one;
        json_array_foreach (mask, i, one) {
            count -= json_is_number(one) && json_number_value(one) == 0.0;
        }
    }
    return count;
}

// key NULL: a bare number.
static sp_status take_value(sp_i_reader *reader, const list_item *item, const char *key,
                            const json_t *value)
{
    bool counted = key != NULL && holds_ids(key, value);
    double number = counted                 ? (double)count_ids(item->json, value)
                    : json_is_number(value) ? json_number_value(value)
                                            : 0;
    bool whole = number == floor(number);
    if (whole && number >= 1 && number <= SP_MAX_LENGTH_TOKENS) {
        sp_lengths_append(reader->lengths, (int64_t)number);
        return SP_OK;
    }
    if (json_is_array(value) && !counted) {
        return wrong_item(reader, item,
                          "got an array under the key: " FORMS
                          "; the entries are counted of arrays under a key that ends in ids");
    }
    char found[SP_I_QUOTE];
    if (json_is_number(value) && whole && fabs(number) < 1e15) {
        snprintf(found, sizeof found, "%.0f", number);
    } else {
        sp_json_quote(value, found, sizeof found);
    }
    return sp_i_refuse(reader, item->where, found);
}

// The key of the lengths, by the first object.
static sp_status choose_key(sp_i_reader *reader, json_t *object, char key[KEY_BYTES])
{
    const char *names[KEYS];
    int count = 0;
    for (void *at = json_object_iter(object); at != NULL && count < KEYS;
         at = json_object_iter_next(object, at)) {
        names[count++] = json_object_iter_key(at);
    }
    int chosen = 0;
    sp_status status = sp_i_choose_column(reader, "key", names, count, &chosen);
    if (status != SP_OK) {
        return status;
    }
    if (strlen(names[chosen]) >= KEY_BYTES) {
        return sp_error_at(reader->err, SP_ERR_CONTENT, reader->source, reader->line, 0,
                           "the key is longer than %d bytes", KEY_BYTES - 1);
    }
    memcpy(key, names[chosen], strlen(names[chosen]) + 1);
    return SP_OK;
}

// Of a number beside the document's ids one of the two is what is trained, which nobody has said.
static sp_status check_ids(sp_i_reader *reader, const list_item *item, const char *key,
                           const json_t *value)
{
    static const char ids_key[] = "input_ids";
    const json_t *ids = json_object_get(item->json, ids_key);
    if (!json_is_number(value) || !holds_ids(ids_key, ids) ||
        json_number_value(value) == (double)count_ids(item->json, ids)) {
        return SP_OK;
    }
    char text[KEY_BYTES + 160];
    snprintf(text, sizeof text,
             "'%s' is %.15g, '%s' holds %zu: which of them? (--column, workload.column)", key,
             json_number_value(value), ids_key, count_ids(item->json, ids));
    return wrong_item(reader, item, text);
}

// *key is NULL until the first object.
static sp_status take_item(sp_i_reader *reader, const list_item *item, const char **key,
                           char chosen[KEY_BYTES])
{
    char text[SP_I_QUOTE + KEY_BYTES];
    if (!json_is_object(item->json)) {
        if (*key == NULL && json_is_number(item->json)) {
            sp_status status = sp_i_refuse_column(reader, bare);
            return status == SP_OK ? take_value(reader, item, NULL, item->json) : status;
        }
        if (json_is_array(item->json)) {
            return wrong_item(reader, item, "got an array: " FORMS);
        }
        char found[SP_I_QUOTE];
        sp_json_quote(item->json, found, sizeof found);
        snprintf(text, sizeof text, "expected an object, got %s", found);
        return wrong_item(reader, item, text);
    }
    if (*key == NULL) {
        sp_status status = choose_key(reader, (json_t *)(uintptr_t)item->json, chosen);
        if (status != SP_OK) {
            return status;
        }
        *key = chosen;
    }
    const json_t *value = json_object_get(item->json, *key);
    if (value == NULL) {
        snprintf(text, sizeof text, "no key '%s'", *key);
        return wrong_item(reader, item, text);
    }
    sp_status status = reader->column == NULL ? check_ids(reader, item, *key, value) : SP_OK;
    return status == SP_OK ? take_value(reader, item, *key, value) : status;
}

// Integers as reals, since other keys (hashes) may hold more than 63 bits; lengths are exact all
// the same. Python's NaN in another key harms nobody.
static json_t *load(const char *text, size_t bytes, json_error_t *error)
{
    static const size_t flags =
        JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL;
    json_t *root = json_loadb(text, bytes, flags, error);
    if (root == NULL) {
        size_t plain_bytes = 0;
        char *plain = sp_json_from_python(text, bytes, &plain_bytes);
        root = json_loadb(plain, plain_bytes, flags, NULL);
        sp_free(plain);
    }
    return root;
}

sp_status sp_i_lengths_read_jsonl(sp_i_reader *reader)
{
    char chosen[KEY_BYTES];
    const char *key = NULL;
    for (;;) {
        const char *line = NULL;
        size_t n = 0;
        sp_status status = sp_i_reader_line(reader, '\0', &line, &n);
        if (status != SP_OK || line == NULL) {
            return status;
        }
        while (n > 0 && sp_i_is_space(line[n - 1])) {
            n--;
        }
        if (n == 0) {
            continue;
        }
        json_error_t error;
        errno = 0;
        json_t *root = load(line, n, &error);
        if (root == NULL) {
            return sp_json_load_error(reader->err, reader->source, reader->line, &error);
        }
        status = take_item(reader, &(list_item){.json = root}, &key, chosen);
        json_decref(root);
        if (status != SP_OK) {
            return status;
        }
    }
}

typedef struct array_scanner {
    sp_i_reader *reader;
    sp_status status; // of the last read from the stream
    long line, column;
    const char *key; // of objects; NULL until the first
    char chosen[KEY_BYTES];
    char *text; // of an object; owned
} array_scanner;

enum { END = -1 };

// The byte at the position; END behind the last one and after a read error.
static int peek(array_scanner *scanner)
{
    sp_i_reader *reader = scanner->reader;
    if (reader->begin == reader->end && scanner->status == SP_OK) {
        scanner->status = sp_i_reader_fill(reader);
    }
    if (scanner->status != SP_OK || reader->begin == reader->end) {
        return END;
    }
    return (unsigned char)reader->buffer[reader->begin];
}

static void skip(array_scanner *scanner)
{
    if (scanner->reader->buffer[scanner->reader->begin++] == '\n') {
        scanner->line++;
        scanner->column = 1;
    } else {
        scanner->column++;
    }
}

static int peek_past_space(array_scanner *scanner)
{
    int c = peek(scanner);
    while (sp_i_is_space(c)) {
        skip(scanner);
        c = peek(scanner);
    }
    return c;
}

static sp_status unexpected(array_scanner *scanner, const char *expected)
{
    if (scanner->status != SP_OK) {
        return scanner->status;
    }
    sp_i_reader *reader = scanner->reader;
    int c = peek(scanner);
    if (c == END) {
        return sp_error_at(reader->err, SP_ERR_SYNTAX, reader->source, scanner->line,
                           scanner->column, "expected %s, got the end of the file", expected);
    }
    char quoted[SP_I_QUOTE];
    sp_quote(&(char){(char)c}, 1, quoted);
    return sp_error_at(reader->err, SP_ERR_SYNTAX, reader->source, scanner->line, scanner->column,
                       "expected %s, got '%s'", expected, quoted);
}

// Takes the element that begins at the position.
static sp_status take_element(array_scanner *scanner, int64_t index)
{
    char text[NUMBER];
    size_t n = 0;
    int c = peek(scanner);
    char where[32];
    snprintf(where, sizeof where, "[%lld]", (long long)index);
    if (c == '[') {
        return wrong_item(scanner->reader, &(list_item){.where = where}, "got an array: " FORMS);
    }
    bool nested = c == '"';
    while (c != END && c != ',' && c != ']' && !sp_i_is_space(c) && n < sizeof text) {
        text[n++] = (char)c;
        skip(scanner);
        c = peek(scanner);
    }
    if (scanner->status != SP_OK) {
        return scanner->status;
    }
    if (n == 0) {
        return unexpected(scanner, "a number");
    }
    int64_t tokens = 0;
    if (n < sizeof text && sp_parse_length(text, n, &tokens)) {
        sp_status good = sp_i_refuse_column(scanner->reader, bare);
        if (good == SP_OK) {
            sp_lengths_append(scanner->reader->lengths, tokens);
        }
        return good;
    }
    char found[SP_I_QUOTE];
    sp_quote(text, n, found);
    sp_status status = sp_i_refuse(scanner->reader, where, found);
    // The end of a string or a nested value is not looked for, so the next element is not known.
    return nested || n == sizeof text ? SP_ERR_CONTENT : status;
}

// The text of the object that begins at the position; *bytes is 0 after an error.
static sp_status take_object_text(array_scanner *scanner, size_t *bytes)
{
    sp_i_reader *reader = scanner->reader;
    size_t n = 0;
    int depth = 0;
    bool quoted = false;
    bool escaped = false;
    *bytes = 0;
    if (scanner->text == NULL) {
        scanner->text = sp_malloc(SP_I_LINE_BYTES);
    }
    do {
        int c = peek(scanner);
        if (c == END) {
            return unexpected(scanner, "'}'");
        }
        if (n == SP_I_LINE_BYTES) {
            return sp_error_at(reader->err, SP_ERR_CONTENT, reader->source, scanner->line, 0,
                               "the object is longer than %d bytes", (int)SP_I_LINE_BYTES);
        }
        scanner->text[n++] = (char)c;
        skip(scanner);
        quoted = quoted != (c == '"' && !escaped);
        escaped = quoted && c == '\\' && !escaped;
        depth += quoted ? 0 : (c == '{' || c == '[') - (c == '}' || c == ']');
    } while (depth > 0);
    *bytes = n;
    return SP_OK;
}

static sp_status take_object(array_scanner *scanner, int64_t index)
{
    sp_i_reader *reader = scanner->reader;
    char where[32];
    size_t bytes = 0;
    long line = scanner->line;
    sp_status status = take_object_text(scanner, &bytes);
    if (status != SP_OK) {
        return status;
    }
    json_error_t error;
    json_t *object = load(scanner->text, bytes, &error);
    if (object == NULL) {
        return sp_error_at(reader->err, SP_ERR_SYNTAX, reader->source, line + error.line - 1,
                           error.line > 1 ? error.column : 0, "%s", error.text);
    }
    snprintf(where, sizeof where, "[%lld]", (long long)index);
    status = take_item(reader, &(list_item){.json = object, .where = where}, &scanner->key,
                       scanner->chosen);
    json_decref(object);
    return status;
}

static sp_status scan_array(array_scanner *scanner);

sp_status sp_i_lengths_read_json(sp_i_reader *reader)
{
    array_scanner scanner = {.reader = reader, .line = 1, .column = 1};
    sp_status status = scan_array(&scanner);
    sp_free(scanner.text);
    return status;
}

static sp_status scan_array(array_scanner *scanner)
{
    if (peek_past_space(scanner) != '[') {
        return unexpected(scanner, "'['");
    }
    skip(scanner);
    int c = peek_past_space(scanner);
    for (int64_t index = 0; c != ']' || index > 0; index++) {
        sp_status status = c == '{' ? take_object(scanner, index) : take_element(scanner, index);
        if (status != SP_OK) {
            return status;
        }
        c = peek_past_space(scanner);
        if (c == ']') {
            break;
        }
        if (c != ',') {
            return unexpected(scanner, "',' or ']'");
        }
        skip(scanner);
        c = peek_past_space(scanner);
    }
    skip(scanner);
    if (peek_past_space(scanner) != END || scanner->status != SP_OK) {
        return unexpected(scanner, "the end of the file");
    }
    return SP_OK;
}
