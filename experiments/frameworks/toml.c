// TOML 1.0 (https://toml.io/en/v1.0.0) as JSON, because Debian has no C library for it: all of it,
// checked as the specification asks. Dates and times stay texts.
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/frameworks/frameworks.h"
#include "sim/base/alloc.h"

enum { MOST_NESTED = 64, NUMBER = 64, PATH = 1024 };

// How a table came to be: what may still be added to it.
enum {
    BY_PARENT = 1, // named by the header or the key of one inside it
    BY_HEADER,     // by a header of its own
    BY_KEY,        // by a dotted key
    CLOSED,        // written in braces
};

typedef struct reader {
    const char *source, *text;
    size_t bytes, at;
    int line;
    size_t line_begin;
    json_t *root, *lines;
    json_t *kinds; // of tables, by path; of arrays of tables CLOSED + 1
    json_t *table; // that of the last header
    char table_path[PATH];
    int nested;
    sp_error *err;
    sp_status status;
} reader;

enum { OF_TABLES = CLOSED + 1 };

typedef struct bytes {
    char *items;
    size_t count, capacity;
} bytes;

static json_t *read_value(reader *r, const char *path);

static bool fail(reader *r, const char *what)
{
    if (r->status == SP_OK) {
        r->status = sp_error_at(r->err, SP_ERR_SYNTAX, r->source, r->line,
                                (long)(r->at - r->line_begin) + 1, "%s", what);
    }
    return false;
}

static int here(const reader *r)
{
    return r->at < r->bytes ? (unsigned char)r->text[r->at] : -1;
}

static int ahead(const reader *r, size_t n)
{
    return r->at + n < r->bytes ? (unsigned char)r->text[r->at + n] : -1;
}

static void add_byte(bytes *to, int c)
{
    void *items = to->items;
    sp_reserve(&items, &to->capacity, to->count + 1, 1);
    to->items = items;
    to->items[to->count++] = (char)c;
}

static void end_line(reader *r)
{
    r->at++;
    r->line++;
    r->line_begin = r->at;
}

static bool at_line_end(const reader *r)
{
    return here(r) == '\n' || (here(r) == '\r' && ahead(r, 1) == '\n');
}

static void skip_line_end(reader *r)
{
    r->at += here(r) == '\r';
    end_line(r);
}

static void skip_blanks(reader *r)
{
    while (here(r) == ' ' || here(r) == '\t') {
        r->at++;
    }
}

static bool skip_comment(reader *r)
{
    if (here(r) != '#') {
        return true;
    }
    while (r->at < r->bytes && !at_line_end(r)) {
        int c = here(r);
        if ((c < ' ' && c != '\t') || c == 0x7f) {
            return fail(r, "a control character in a comment");
        }
        r->at++;
    }
    return true;
}

// Blanks, comments and line ends.
static bool skip_space(reader *r)
{
    for (;;) {
        skip_blanks(r);
        if (!skip_comment(r)) {
            return false;
        }
        if (!at_line_end(r)) {
            return true;
        }
        skip_line_end(r);
    }
}

// ---- strings ----

static void add_character(bytes *to, unsigned long code)
{
    if (code < 0x80) {
        add_byte(to, (int)code);
    } else if (code < 0x800) {
        add_byte(to, (int)(0xc0 | (code >> 6)));
        add_byte(to, (int)(0x80 | (code & 0x3f)));
    } else if (code < 0x10000) {
        add_byte(to, (int)(0xe0 | (code >> 12)));
        add_byte(to, (int)(0x80 | ((code >> 6) & 0x3f)));
        add_byte(to, (int)(0x80 | (code & 0x3f)));
    } else {
        add_byte(to, (int)(0xf0 | (code >> 18)));
        add_byte(to, (int)(0x80 | ((code >> 12) & 0x3f)));
        add_byte(to, (int)(0x80 | ((code >> 6) & 0x3f)));
        add_byte(to, (int)(0x80 | (code & 0x3f)));
    }
}

static bool read_escape(reader *r, bytes *to)
{
    static const char letters[] = "btnfr\"\\";
    static const char values[] = "\b\t\n\f\r\"\\";
    r->at++;
    int c = here(r);
    const char *found = c > 0 ? strchr(letters, c) : NULL;
    if (found != NULL) {
        add_byte(to, values[found - letters]);
        r->at++;
        return true;
    }
    int digits = c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
        return fail(r, "an escape that TOML does not have");
    }
    unsigned long code = 0;
    for (int i = 1; i <= digits; i++) {
        int digit = ahead(r, (size_t)i);
        if (digit < 0 || !isxdigit(digit)) {
            return fail(r, "expected hexadecimal digits after '\\u'");
        }
        code =
            code * 16 + (unsigned long)(isdigit(digit) ? digit - '0' : tolower(digit) - 'a' + 10);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        return fail(r, "no Unicode character");
    }
    if (code == 0) {
        return fail(r, "the character 0 is not read");
    }
    r->at += (size_t)digits + 1;
    add_character(to, code);
    return true;
}

// Behind a backslash at the end of a line of a long string all space up to the next text goes.
static bool skip_folded(reader *r)
{
    size_t at = r->at + 1;
    while (at < r->bytes && (r->text[at] == ' ' || r->text[at] == '\t')) {
        at++;
    }
    if (at >= r->bytes || (r->text[at] != '\n' && !(r->text[at] == '\r' && at + 1 < r->bytes &&
                                                    r->text[at + 1] == '\n'))) {
        return false;
    }
    r->at = at;
    for (;;) {
        skip_blanks(r);
        if (!at_line_end(r)) {
            return true;
        }
        skip_line_end(r);
    }
}

static bool read_string(reader *r, bytes *to, bool may_be_long)
{
    int quote = here(r);
    bool is_long = ahead(r, 1) == quote && ahead(r, 2) == quote;
    if (is_long && !may_be_long) {
        return fail(r, "a key is no string of several lines");
    }
    r->at += is_long ? 3 : 1;
    if (is_long && at_line_end(r)) {
        skip_line_end(r);
    }
    for (;;) {
        int c = here(r);
        if (c < 0 || (!is_long && at_line_end(r))) {
            return fail(r, "a string that is not closed");
        }
        if (c == quote && !is_long) {
            r->at++;
            return true;
        }
        if (c == quote && ahead(r, 1) == quote && ahead(r, 2) == quote) {
            // Up to two quotes may stand before the three that end it.
            int more = ahead(r, 3) != quote ? 0 : ahead(r, 4) != quote ? 1 : 2;
            for (int i = 0; i < more; i++) {
                add_byte(to, quote);
            }
            r->at += (size_t)more + 3;
            return true;
        }
        if (c == '\\' && quote == '"') {
            if (!(is_long && skip_folded(r)) && !read_escape(r, to)) {
                return false;
            }
        } else if (is_long && at_line_end(r)) {
            add_byte(to, '\n');
            skip_line_end(r);
        } else if ((c < ' ' && c != '\t') || c == 0x7f) {
            return fail(r, "a control character in a string");
        } else {
            add_byte(to, c);
            r->at++;
        }
    }
}

// ---- numbers, dates and times ----

static bool is_digits(const char *text, int count)
{
    for (int i = 0; i < count; i++) {
        if (!isdigit((unsigned char)text[i])) {
            return false;
        }
    }
    return true;
}

static int two(const char *text)
{
    return (text[0] - '0') * 10 + text[1] - '0';
}

static bool is_date(const char *text)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (strlen(text) < 10 || !is_digits(text, 4) || text[4] != '-' || !is_digits(text + 5, 2) ||
        text[7] != '-' || !is_digits(text + 8, 2)) {
        return false;
    }
    int year = two(text) * 100 + two(text + 2);
    int month = two(text + 5);
    int day = two(text + 8);
    bool leaps = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month >= 1 && month <= 12 && day >= 1 &&
           day <= days[month - 1] + (month == 2 && leaps ? 1 : 0);
}

// Hours, minutes, seconds and parts of one; returns what follows, NULL: it is no time.
static const char *past_time(const char *text)
{
    if (strlen(text) < 8 || !is_digits(text, 2) || text[2] != ':' || !is_digits(text + 3, 2) ||
        text[5] != ':' || !is_digits(text + 6, 2) || two(text) > 23 || two(text + 3) > 59 ||
        two(text + 6) > 60) {
        return NULL;
    }
    text += 8;
    if (*text != '.') {
        return text;
    }
    size_t digits = strspn(text + 1, "0123456789");
    return digits > 0 ? text + 1 + digits : NULL;
}

static bool is_offset(const char *text)
{
    return strcmp(text, "Z") == 0 || strcmp(text, "z") == 0 ||
           ((text[0] == '+' || text[0] == '-') && strlen(text) == 6 && is_digits(text + 1, 2) &&
            text[3] == ':' && is_digits(text + 4, 2) && two(text + 1) <= 23 && two(text + 4) <= 59);
}

static bool is_moment(const char *text)
{
    if (is_date(text)) {
        if (text[10] == '\0') {
            return true;
        }
        if (text[10] != 'T' && text[10] != 't' && text[10] != ' ') {
            return false;
        }
        const char *rest = past_time(text + 11);
        return rest != NULL && (*rest == '\0' || is_offset(rest));
    }
    const char *rest = past_time(text);
    return rest != NULL && *rest == '\0';
}

// Digits in `set`, with single underscores between them; copied without.
static const char *take_digits(const char *from, const char *set, char *to, size_t *length)
{
    if (*from == '\0' || strchr(set, *from) == NULL) {
        return NULL;
    }
    for (;;) {
        size_t run = strspn(from, set);
        memcpy(to + *length, from, run);
        *length += run;
        from += run;
        if (*from != '_') {
            return from;
        }
        from++;
        if (*from == '\0' || strchr(set, *from) == NULL) {
            return NULL;
        }
    }
}

static json_t *number_of(const char *text)
{
    static const struct {
        const char *prefix, *digits;
        int base;
    } bases[] = {{"0x", "0123456789abcdefABCDEF", 16}, {"0o", "01234567", 8}, {"0b", "01", 2}};
    char plain[NUMBER + 2] = "";
    size_t length = 0;
    for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++) {
        if (strncmp(text, bases[i].prefix, 2) == 0) {
            const char *rest = take_digits(text + 2, bases[i].digits, plain, &length);
            errno = 0;
            long long value =
                rest != NULL && *rest == '\0' ? strtoll(plain, NULL, bases[i].base) : 0;
            return rest != NULL && *rest == '\0' && errno == 0 ? json_integer(value) : NULL;
        }
    }
    const char *at = text;
    if (*at == '+' || *at == '-') {
        plain[length++] = *at++;
    }
    if (strcmp(at, "inf") == 0 || strcmp(at, "nan") == 0) {
        return json_string(text);
    }
    const char *digits = at;
    at = take_digits(at, "0123456789", plain, &length);
    if (at == NULL || (digits[0] == '0' && at - digits > 1)) {
        return NULL;
    }
    if (*at == '\0') {
        errno = 0;
        long long value = strtoll(plain, NULL, 10);
        return errno == 0 ? json_integer(value) : NULL;
    }
    if (*at == '.') {
        plain[length++] = '.';
        at = take_digits(at + 1, "0123456789", plain, &length);
    }
    if (at != NULL && (*at == 'e' || *at == 'E')) {
        plain[length++] = *at++;
        if (*at == '+' || *at == '-') {
            plain[length++] = *at++;
        }
        at = take_digits(at, "0123456789", plain, &length);
    }
    if (at == NULL || *at != '\0') {
        return NULL;
    }
    json_t *value = json_real(strtod(plain, NULL));
    return value != NULL ? value : json_string(text); // beyond what a double holds
}

static json_t *read_plain(reader *r)
{
    char text[NUMBER] = "";
    size_t length = 0;
    size_t at = r->at;
    while (at < r->bytes && length + 1 < sizeof text &&
           (isalnum((unsigned char)r->text[at]) || strchr("+-_.:", r->text[at]) != NULL ||
            (r->text[at] == ' ' && length == 10 && is_date(text) && at + 1 < r->bytes &&
             isdigit((unsigned char)r->text[at + 1])))) {
        if (r->text[at] == '\0') {
            break;
        }
        text[length++] = r->text[at++];
        text[length] = '\0';
    }
    json_t *value = strcmp(text, "true") == 0    ? json_true()
                    : strcmp(text, "false") == 0 ? json_false()
                    : is_moment(text)            ? json_string(text)
                                                 : number_of(text);
    if (value == NULL) {
        fail(r, length == 0 ? "expected a value"
                            : "expected a number, a date, true, false or a string in quotes");
        return NULL;
    }
    r->at = at;
    return value;
}

// ---- tables ----

static int kind_at(const reader *r, const char *path)
{
    return (int)json_integer_value(json_object_get(r->kinds, path));
}

static void set_kind(reader *r, const char *path, int kind)
{
    json_object_set_new(r->kinds, path, json_integer(kind));
}

// Behind the path of a table the name of something in it.
static bool join(reader *r, char path[PATH], const char *name)
{
    size_t length = strlen(path);
    int written = snprintf(path + length, PATH - length, "%s%s", length > 0 ? "\x1f" : "", name);
    return written >= 0 && (size_t)written < PATH - length ? true
                                                           : fail(r, "keys that are too long");
}

static bool read_key(reader *r, char name[PATH])
{
    bytes key = {0};
    int c = here(r);
    if (c == '"' || c == '\'') {
        if (!read_string(r, &key, false)) {
            sp_free(key.items);
            return false;
        }
    } else {
        while (here(r) >= 0 && (isalnum(here(r)) || here(r) == '_' || here(r) == '-')) {
            add_byte(&key, here(r));
            r->at++;
        }
        if (key.count == 0) {
            return fail(r, "expected a key");
        }
    }
    // U+001F parts the names of a path.
    bool fits = key.count < PATH && (key.count == 0 || memchr(key.items, 0x1f, key.count) == NULL);
    if (fits) {
        memcpy(name, key.count > 0 ? key.items : "", key.count);
        name[key.count] = '\0';
    }
    sp_free(key.items);
    return fits ? true : fail(r, "a key that is too long, or has the character U+001F");
}

// The table in `table` that a part of a key or a header names; the last of an array of tables.
static json_t *enter(reader *r, json_t *table, const char *name, char path[PATH], bool by_header)
{
    json_t *found = json_object_get(table, name);
    if (!join(r, path, name)) {
        return NULL;
    }
    if (found == NULL) {
        found = json_object();
        if (json_object_set_new(table, name, found) != 0) {
            fail(r, "a key that is no UTF-8");
            return NULL;
        }
        set_kind(r, path, by_header ? BY_PARENT : BY_KEY);
        json_object_set_new(r->lines, path, json_integer(r->line));
        return found;
    }
    int kind = kind_at(r, path);
    if (json_is_array(found) && kind == OF_TABLES && by_header) {
        size_t last = json_array_size(found) - 1;
        char index[32];
        snprintf(index, sizeof index, "%zu", last);
        return join(r, path, index) ? json_array_get(found, last) : NULL;
    }
    if (!json_is_object(found) || kind == CLOSED || (!by_header && kind != BY_KEY)) {
        fail(r, "a key that has a value already");
        return NULL;
    }
    return found;
}

static bool put_value(reader *r, json_t *table, const char *name, const char *path, json_t *value,
                      int line)
{
    if (value == NULL) {
        return false;
    }
    if (json_object_get(table, name) != NULL) {
        json_decref(value);
        return fail(r, "a key that is stated twice");
    }
    if (json_object_set_new(table, name, value) != 0) {
        return fail(r, "text that is no UTF-8");
    }
    json_object_set_new(r->lines, path, json_integer(line));
    return true;
}

// KEY = VALUE, or KEY.KEY = VALUE, into a table.
static bool read_pair(reader *r, json_t *table, const char *table_path)
{
    char path[PATH];
    char name[PATH];
    int line = r->line;
    snprintf(path, sizeof path, "%s", table_path);
    if (!read_key(r, name)) {
        return false;
    }
    skip_blanks(r);
    while (here(r) == '.') {
        r->at++;
        table = enter(r, table, name, path, false);
        skip_blanks(r);
        if (table == NULL || !read_key(r, name)) {
            return false;
        }
        skip_blanks(r);
    }
    if (here(r) != '=') {
        return fail(r, "expected '=' after a key");
    }
    r->at++;
    skip_blanks(r);
    return join(r, path, name) && put_value(r, table, name, path, read_value(r, path), line);
}

static json_t *read_inline(reader *r, const char *path)
{
    json_t *table = json_object();
    r->at++;
    skip_blanks(r);
    bool good = true;
    if (here(r) != '}') {
        for (;;) {
            skip_blanks(r);
            good = read_pair(r, table, path);
            skip_blanks(r);
            if (!good || here(r) != ',') {
                break;
            }
            r->at++;
        }
    }
    if (good && here(r) != '}') {
        good = fail(r, "expected ',' or '}'");
    }
    if (!good) {
        json_decref(table);
        return NULL;
    }
    r->at++;
    set_kind(r, path, CLOSED);
    return table;
}

static json_t *read_array(reader *r, const char *path)
{
    json_t *array = json_array();
    r->at++;
    bool good = skip_space(r);
    while (good && here(r) != ']') {
        char element[PATH];
        char index[32];
        snprintf(element, sizeof element, "%s", path);
        snprintf(index, sizeof index, "%zu", json_array_size(array));
        json_t *value = join(r, element, index) ? read_value(r, element) : NULL;
        good = value != NULL && json_array_append_new(array, value) == 0 && skip_space(r);
        if (good && here(r) == ',') {
            r->at++;
            good = skip_space(r);
        } else if (good && here(r) != ']') {
            good = fail(r, "expected ',' or ']'");
        }
    }
    if (!good) {
        json_decref(array);
        return NULL;
    }
    r->at++;
    return array;
}

static json_t *string_value(reader *r)
{
    bytes text = {0};
    json_t *value = NULL;
    if (read_string(r, &text, true)) {
        value = json_stringn(text.count > 0 ? text.items : "", text.count);
        if (value == NULL) {
            fail(r, "text that is no UTF-8");
        }
    }
    sp_free(text.items);
    return value;
}

static json_t *read_value(reader *r, const char *path)
{
    int c = here(r);
    if (c == '"' || c == '\'') {
        return string_value(r);
    }
    if (c != '[' && c != '{') {
        return read_plain(r);
    }
    if (r->nested >= MOST_NESTED) {
        fail(r, "values that are nested too deep");
        return NULL;
    }
    r->nested++;
    json_t *value = c == '[' ? read_array(r, path) : read_inline(r, path);
    r->nested--;
    return value;
}

// [NAME] or [[NAME]]: the table that the pairs below go into.
static bool read_header(reader *r)
{
    bool of_array = ahead(r, 1) == '[';
    char path[PATH] = "";
    char name[PATH];
    json_t *table = r->root;
    r->at += of_array ? 2 : 1;
    skip_blanks(r);
    if (!read_key(r, name)) {
        return false;
    }
    skip_blanks(r);
    while (here(r) == '.') {
        r->at++;
        table = enter(r, table, name, path, true);
        skip_blanks(r);
        if (table == NULL || !read_key(r, name)) {
            return false;
        }
        skip_blanks(r);
    }
    if (here(r) != ']' || (of_array && ahead(r, 1) != ']')) {
        return fail(r, "expected ']' after the name of a table");
    }
    json_t *found = json_object_get(table, name);
    if (of_array) {
        if (!join(r, path, name)) {
            return false;
        }
        if (found == NULL) {
            found = json_array();
            if (json_object_set_new(table, name, found) != 0) {
                return fail(r, "a key that is no UTF-8");
            }
            set_kind(r, path, OF_TABLES);
        } else if (kind_at(r, path) != OF_TABLES) {
            return fail(r, "a key that has a value already");
        }
        char index[32];
        snprintf(index, sizeof index, "%zu", json_array_size(found));
        r->table = json_object();
        json_array_append_new(found, r->table);
        if (!join(r, path, index)) {
            return false;
        }
        set_kind(r, path, BY_HEADER);
    } else {
        if (found != NULL && json_is_array(found)) {
            return fail(r, "a key that has a value already");
        }
        r->table = enter(r, table, name, path, true);
        if (r->table == NULL) {
            return false;
        }
        if (kind_at(r, path) != BY_PARENT) {
            return fail(r, "a table that is stated twice");
        }
        set_kind(r, path, BY_HEADER);
    }
    memcpy(r->table_path, path, sizeof path);
    r->at += of_array ? 2 : 1;
    return true;
}

static bool read_line(reader *r)
{
    skip_blanks(r);
    bool good = true;
    if (here(r) == '[') {
        good = read_header(r);
    } else if (here(r) >= 0 && here(r) != '#' && !at_line_end(r)) {
        good = read_pair(r, r->table, r->table_path);
    }
    skip_blanks(r);
    if (!good || !skip_comment(r)) {
        return false;
    }
    if (here(r) >= 0 && !at_line_end(r)) {
        return fail(r, "expected the end of the line");
    }
    if (here(r) >= 0) {
        skip_line_end(r);
    }
    return true;
}

sp_status framework_parse_toml(const char *source, const char *text, size_t count, json_t **root,
                               json_t **lines, sp_error *err)
{
    reader r = {.source = source,
                .text = text,
                .bytes = count,
                .line = 1,
                .root = json_object(),
                .lines = json_object(),
                .kinds = json_object(),
                .err = err};
    r.table = r.root;
    if (count >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        r.at = r.line_begin = 3;
    }
    while (r.status == SP_OK && r.at < r.bytes && read_line(&r)) {
    }
    json_decref(r.kinds);
    if (r.status != SP_OK) {
        json_decref(r.root);
        json_decref(r.lines);
        r.root = r.lines = NULL;
    }
    *root = r.root;
    *lines = r.lines;
    return r.status;
}

// ---- entries ----

static void add_all(const json_t *value, const json_t *lines, const char *path, const char *name,
                    framework_entries *out)
{
    const char *key;
    json_t *member;
    size_t i;
    json_t *element;
    bool of_tables = json_array_size(value) > 0;
    json_array_foreach ((json_t *)value, i, element) {
        of_tables = of_tables && json_is_object(element);
    }
    if (!json_is_object(value) && !of_tables) {
        int line = (int)json_integer_value(json_object_get(lines, path));
        framework_add(out, name, json_incref((json_t *)value), NULL, line);
        return;
    }
    json_object_foreach ((json_t *)value, key, member) {
        char inner[PATH];
        char inner_name[PATH];
        snprintf(inner, sizeof inner, "%s%s%s", path, path[0] != '\0' ? "\x1f" : "", key);
        snprintf(inner_name, sizeof inner_name, "%s%s%s", name, name[0] != '\0' ? "." : "", key);
        add_all(member, lines, inner, inner_name, out);
    }
    json_array_foreach ((json_t *)value, i, element) {
        char inner[PATH];
        snprintf(inner, sizeof inner, "%s\x1f%zu", path, i);
        add_all(element, lines, inner, name, out);
    }
}

sp_status framework_read_toml(const char *source, const char *text, size_t count,
                              framework_entries *out, sp_error *err)
{
    json_t *root = NULL;
    json_t *lines = NULL;
    sp_status status = framework_parse_toml(source, text, count, &root, &lines, err);
    if (status == SP_OK) {
        add_all(root, lines, "", "", out);
    }
    json_decref(root);
    json_decref(lines);
    return status;
}
