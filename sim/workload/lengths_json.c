// JSON lines (an object with the length under one key, or a bare number, per line) and a JSON array
// of numbers or of such objects, which is read as it goes by, so that the whole of it never stands
// in memory. Of a document's token ids (input_ids) the number is its length, without those that
// an attention_mask of as many entries leaves out.
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/scan.h"
#include "sim/base/writer.h"
#include "sim/workload/length_reader.h"

enum {
    KEYS = 64,      // keys of the first object that are looked at
    KEY_BYTES = 64, // longest key chosen when none is given
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
        return sp_i_wrong(reader, item->where,
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

// The keys of an object that holds a document in words; false: it holds none. A conversation is
// under one key; of several texts those with a usual name count, and others where
// no number is beside them.
static bool find_texts(const json_t *object, char keys[SP_I_QUOTE], bool *chat)
{
    static const char whole[] = "text content raw_content document";
    static const char parts[] = "prompt completion instruction input output response question "
                                "answer query";
    char prose[SP_I_QUOTE] = "";
    char usual[SP_I_QUOTE] = "";
    const char *key;
    json_t *value;
    keys[0] = '\0';
    bool numbers = false; // of which one may be the length
    *chat = false;
    json_object_foreach ((json_t *)(uintptr_t)object, key, value) {
        const char *text = json_string_value(value);
        numbers = numbers || json_is_number(value);
        // Typed in a shell as it stands.
        const bool plain = key[strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                           "0123456789_")] == '\0';
        const bool talks = json_is_string(json_object_get(json_array_get(value, 0), "role"));
        if (plain && (talks || (text != NULL && sp_names_hold(whole, key)))) {
            snprintf(keys, SP_I_QUOTE, "%s", key);
            *chat = talks;
            return true;
        }
        if (plain && text != NULL && sp_names_hold(parts, key)) {
            sp_append(usual, sizeof usual, "%s%s", usual[0] != '\0' ? " " : "", key);
        } else if (plain && text != NULL && sp_i_is_prose(text)) {
            sp_append(prose, sizeof prose, "%s%s", prose[0] != '\0' ? " " : "", key);
        }
    }
    snprintf(keys, SP_I_QUOTE, "%s", usual[0] != '\0' ? usual : numbers ? "" : prose);
    return keys[0] != '\0';
}

// The key of the lengths, by the first object.
static sp_status choose_key(sp_i_reader *reader, json_t *object, bool array, char key[KEY_BYTES])
{
    const char *names[KEYS];
    int count = 0;
    for (void *at = json_object_iter(object); at != NULL && count < KEYS;
         at = json_object_iter_next(object, at)) {
        names[count++] = json_object_iter_key(at);
    }
    int chosen = 0;
    sp_error own = {0};
    sp_error *told = reader->err;
    char texts[SP_I_QUOTE];
    bool chat = false;
    reader->err = &own;
    sp_status status = sp_i_choose_column(reader, "key", names, count, &chosen);
    reader->err = told;
    const json_t *value = status == SP_OK ? json_object_get(object, names[chosen]) : NULL;
    const bool counts = json_is_number(value) || (value != NULL && holds_ids(names[chosen], value));
    if (reader->column == NULL && !counts && find_texts(object, texts, &chat)) {
        return sp_i_refuse_texts(reader, texts, chat, array);
    }
    if (status != SP_OK) {
        *told = own;
        return status;
    }
    if (strlen(names[chosen]) >= KEY_BYTES) {
        return sp_i_wrong(reader, NULL, "the key is longer than %d bytes", KEY_BYTES - 1);
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
    return sp_i_wrong(reader, item->where,
                      "'%s' is %.15g, '%s' holds %zu: which of them? " SP_I_NAME_COLUMN, key,
                      json_number_value(value), ids_key, count_ids(item->json, ids));
}

// *key is NULL until the first object.
static sp_status take_item(sp_i_reader *reader, const list_item *item, const char **key,
                           char chosen[KEY_BYTES])
{
    if (!json_is_object(item->json)) {
        if (*key == NULL && json_is_number(item->json)) {
            sp_status status = sp_i_refuse_column(reader, bare);
            return status == SP_OK ? take_value(reader, item, NULL, item->json) : status;
        }
        if (json_is_array(item->json)) {
            return sp_i_wrong(reader, item->where, "got an array: " FORMS);
        }
        char found[SP_I_QUOTE];
        sp_json_quote(item->json, found, sizeof found);
        return sp_i_wrong(reader, item->where, "expected an object, got %s", found);
    }
    if (*key == NULL) {
        SP_TRY(choose_key(reader, (json_t *)(uintptr_t)item->json, item->where != NULL, chosen));
        *key = chosen;
    }
    const json_t *value = json_object_get(item->json, *key);
    if (value == NULL) {
        return sp_i_wrong(reader, item->where, "no key '%s'", *key);
    }
    SP_TRY(reader->column == NULL ? check_ids(reader, item, *key, value) : SP_OK);
    return take_value(reader, item, *key, value);
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

typedef struct array_reader {
    sp_i_reader *reader;
    sp_scan scan;
    const char *key; // of objects; NULL until the first
    char chosen[KEY_BYTES];
} array_reader;

static sp_status take_number(array_reader *a, const char *text, size_t bytes, const char *where)
{
    int64_t tokens = 0;
    if (sp_parse_length(text, bytes, &tokens)) {
        sp_status good = sp_i_refuse_column(a->reader, bare);
        if (good == SP_OK) {
            sp_lengths_append(a->reader->lengths, tokens);
        }
        return good;
    }
    char found[SP_I_QUOTE];
    sp_quote(text, bytes, found);
    return sp_i_refuse(a->reader, where, found);
}

static sp_status take_object(array_reader *a, const char *text, size_t bytes, const char *where)
{
    json_error_t error;
    json_t *object = load(text, bytes, &error);
    if (object == NULL) {
        long line, column;
        sp_scan_place(&a->scan, &line, &column);
        for (const char *c = text; (c = memchr(c, '\n', bytes - (size_t)(c - text))) != NULL; c++) {
            line--;
        }
        return sp_error_at(a->reader->err, SP_ERR_SYNTAX, a->reader->source, line + error.line - 1,
                           error.line > 1 ? error.column : 0, "%s", error.text);
    }
    sp_status status =
        take_item(a->reader, &(list_item){.json = object, .where = where}, &a->key, a->chosen);
    json_decref(object);
    return status;
}

static sp_status take_element(array_reader *a, int64_t index)
{
    const char *text;
    char where[32];
    size_t bytes = 0;
    snprintf(where, sizeof where, "[%lld]", (long long)index);
    if (sp_scan_peek(&a->scan) == '[') {
        return sp_i_wrong(a->reader, where, "got an array: " FORMS);
    }
    if (!sp_scan_text(&a->scan, SP_I_LINE_BYTES, &text, &bytes)) {
        return a->scan.status;
    }
    if (bytes == 0) {
        (void)sp_scan_unexpected(&a->scan, "a number");
        return a->scan.status;
    }
    return text[0] == '{' ? take_object(a, text, bytes, where) : take_number(a, text, bytes, where);
}

static sp_status read_array(array_reader *a)
{
    bool first = true;
    sp_status status = SP_OK;
    (void)sp_scan_expect(&a->scan, '[', "'['");
    for (int64_t index = 0;
         status == SP_OK && sp_scan_goes_on(&a->scan) && sp_scan_next_item(&a->scan, &first, ']');
         index++) {
        status = take_element(a, index);
    }
    if (status == SP_OK && sp_scan_goes_on(&a->scan) && sp_scan_peek(&a->scan) >= 0) {
        (void)sp_scan_unexpected(&a->scan, "the end of the file");
    }
    if (status == SP_OK && a->scan.wanted != NULL) {
        long line, column;
        sp_scan_place(&a->scan, &line, &column);
        status = sp_error_at(a->reader->err, SP_ERR_SYNTAX, a->reader->source, line, column,
                             "expected %s, got the end of the file", a->scan.wanted);
    }
    return status != SP_OK ? status : a->scan.status;
}

sp_status sp_i_lengths_read_json(sp_i_reader *reader)
{
    array_reader a = {.reader = reader};
    sp_scan_init(&a.scan, reader->ended ? NULL : reader->stream, reader->buffer + reader->begin,
                 reader->end - reader->begin, reader->source, reader->err);
    sp_status status = read_array(&a);
    sp_scan_fini(&a.scan);
    return status;
}
