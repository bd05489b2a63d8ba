#include "sim/base/scan.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "sim/base/alloc.h"

enum {
    BUFFER = 1 << 20,
    MOST_DEPTH = 64, // of brackets in brackets
};

// ---- the text ----

void sp_scan_init(sp_scan *s, FILE *file, const char *bytes, size_t count, const char *source,
                  sp_error *err)
{
    *s = (sp_scan){.file = file,
                   .source = source,
                   .err = err,
                   .buffer = bytes,
                   .count = count,
                   .line = 1,
                   .column = 1};
}

void sp_scan_fini(sp_scan *s)
{
    sp_free(s->own);
    sp_free(s->text);
}

void sp_scan_place(const sp_scan *s, long *line, long *column)
{
    const char *from = s->buffer;
    const char *here = s->next > 0 ? s->buffer + s->next : from;
    *line = s->line;
    *column = s->column;
    for (const char *end; from < here && (end = memchr(from, '\n', (size_t)(here - from))) != NULL;
         from = end + 1) {
        (*line)++;
        *column = 1;
    }
    *column += (long)(here - from);
}

bool sp_scan_goes_on(const sp_scan *s)
{
    return s->status == SP_OK && s->wanted == NULL;
}

bool sp_scan_fail(sp_scan *s, const char *what)
{
    long line, column;
    if (sp_scan_goes_on(s)) {
        sp_scan_place(s, &line, &column);
        s->status = sp_error_at(s->err, SP_ERR_SYNTAX, s->source, line, column, "%s", what);
    }
    return false;
}

static bool refill(sp_scan *s)
{
    if (s->file == NULL || !sp_scan_goes_on(s)) {
        return false;
    }
    sp_scan_place(s, &s->line, &s->column);
    s->own = s->own != NULL ? s->own : sp_malloc(BUFFER);
    s->buffer = s->own;
    s->next = 0;
    errno = 0;
    s->count = fread(s->own, 1, BUFFER, s->file);
    // What a cut file has comes before its end, and so does that of a damaged one.
    if (s->count == 0 && ferror(s->file) != 0 && errno != ENODATA) {
        s->status = errno != EBADMSG
                        ? sp_error_system(s->err, s->source, errno)
                        : sp_error_set(s->err, SP_ERR_CONTENT,
                                       "%s: damaged gzip file, from line %ld of what it holds on",
                                       s->source, s->line);
    }
    return s->count > 0;
}

static bool at_end(sp_scan *s)
{
    return s->next == s->count && !refill(s);
}

static bool cut(sp_scan *s, const char *wanted)
{
    s->wanted = sp_scan_goes_on(s) ? wanted : s->wanted;
    return false;
}

bool sp_scan_unexpected(sp_scan *s, const char *wanted)
{
    char text[160];
    const int c = sp_scan_peek(s);
    snprintf(text, sizeof text,
             isprint(c) ? "expected %.120s, got '%c'" : "expected %.120s, got '\\x%02x'", wanted,
             c);
    return c < 0 ? cut(s, wanted) : sp_scan_fail(s, text);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

int sp_scan_peek(sp_scan *s)
{
    do {
        while (s->next < s->count) {
            if (!is_blank(s->buffer[s->next])) {
                return (unsigned char)s->buffer[s->next];
            }
            s->next++;
        }
    } while (refill(s));
    return -1;
}

bool sp_scan_expect(sp_scan *s, char c, const char *wanted)
{
    if (sp_scan_peek(s) != (unsigned char)c) {
        return sp_scan_unexpected(s, wanted);
    }
    s->next++;
    return true;
}

// ---- values ----

// A text into to[bytes], cut short; NULL: skipped.
static bool read_string(sp_scan *s, char *to, size_t bytes, size_t *length)
{
    size_t count = 0;
    bool escaped = false;
    if (!sp_scan_expect(s, '"', "a text in quotation marks")) {
        return false;
    }
    for (;;) {
        if (at_end(s)) {
            return cut(s, "'\"'");
        }
        const char *from = s->buffer + s->next;
        size_t left = s->count - s->next;
        size_t plain = 0;
        while (plain < left && (escaped || (from[plain] != '"' && from[plain] != '\\'))) {
            escaped = false;
            plain++;
        }
        if (to != NULL && count < bytes - 1) {
            size_t taken = plain < bytes - 1 - count ? plain : bytes - 1 - count;
            memcpy(to + count, from, taken);
            count += taken;
        }
        s->next += plain;
        if (plain < left) {
            s->next++;
            if (from[plain] == '"') {
                break;
            }
            escaped = true;
        }
    }
    if (to != NULL) {
        to[count] = '\0';
        *length = count;
    }
    return true;
}

static bool is_bare(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '+' || c == '.';
}

static bool read_bare(sp_scan *s, char *to, size_t bytes)
{
    size_t count = 0;
    while (!at_end(s) && is_bare(s->buffer[s->next])) {
        if (count < bytes - 1) {
            to[count++] = s->buffer[s->next];
        }
        s->next++;
    }
    to[count] = '\0';
    if (!sp_scan_goes_on(s)) {
        return false;
    }
    return count > 0 || sp_scan_unexpected(s, "a value");
}

// Skips a value where `to` is NULL.
bool sp_scan_raw(sp_scan *s, char *to, size_t bytes)
{
    char open[MOST_DEPTH];
    char word[SP_SCAN_WORD];
    int depth = 0;
    size_t count = 0;
    size_t length;
    bool long_value = false;
    do {
        int c = sp_scan_peek(s);
        if (c < 0) {
            return cut(s, "a value");
        }
        if (to != NULL && depth == 0 && is_bare((char)c)) {
            return read_bare(s, to, bytes);
        }
        if (to != NULL && count < bytes - 1 && c != '"') {
            to[count++] = (char)c;
        } else if (to != NULL && c != '"') {
            long_value = true;
        }
        if (c == '"') {
            size_t room = to != NULL && count + 3 < bytes ? bytes - count - 2 : 0;
            if (!read_string(s, room > 0 ? to + count + 1 : NULL, room, &length)) {
                return false;
            }
            if (room > 0) {
                to[count] = '"';
                count += length + 1;
                to[count++] = '"';
            }
            long_value = long_value || (to != NULL && (room <= 1 || length + 1 == room));
        } else if (c == '{' || c == '[') {
            if (depth == MOST_DEPTH) {
                return sp_scan_fail(s, "more than 64 brackets in brackets");
            }
            open[depth++] = (char)c;
            s->next++;
        } else if (c == '}' || c == ']') {
            if (depth == 0 || open[depth - 1] != (c == '}' ? '{' : '[')) {
                return sp_scan_fail(s, "a bracket closes what is not open");
            }
            depth--;
            s->next++;
        } else if (c == ',' || c == ':') {
            if (depth == 0) {
                return sp_scan_unexpected(s, "a value");
            }
            s->next++;
        } else if (to != NULL && is_bare((char)c)) {
            s->next++; // one character of a number
        } else if (!read_bare(s, word, sizeof word)) {
            return false;
        }
    } while (depth > 0);
    if (to != NULL) {
        to[long_value ? 0 : count] = '\0';
    }
    return true;
}

bool sp_scan_skip(sp_scan *s)
{
    return sp_scan_raw(s, NULL, 0);
}

bool sp_scan_word(sp_scan *s, char *to, size_t bytes)
{
    size_t length;
    int c = sp_scan_peek(s);
    if (c == '"') {
        return read_string(s, to, bytes, &length);
    }
    if (c == '{' || c == '[') {
        to[0] = '\0';
        return sp_scan_skip(s);
    }
    return c < 0 ? cut(s, "a value") : read_bare(s, to, bytes);
}

bool sp_scan_text(sp_scan *s, size_t most, const char **text, size_t *bytes)
{
    const int begin = sp_scan_peek(s);
    const bool is_word = begin != '"' && begin != '{' && begin != '[';
    size_t n = 0;
    int depth = 0;
    bool quoted = false;
    bool escaped = false;
    do {
        if (at_end(s)) {
            if (is_word && sp_scan_goes_on(s)) {
                break;
            }
            return cut(s, begin == '{' ? "'}'" : begin == '[' ? "']'" : "'\"'");
        }
        const char c = s->buffer[s->next];
        if (is_word && (c == ',' || c == ']' || c == '}' || c == '\0' || is_blank(c))) {
            break;
        }
        if (n == most) {
            long line, column;
            sp_scan_place(s, &line, &column);
            s->status = sp_error_at(s->err, SP_ERR_CONTENT, s->source, line, 0,
                                    "the value is longer than %zu bytes", most);
            return false;
        }
        if (n == s->room) {
            SP_RESERVE(s->text, s->room, n + 1);
        }
        s->text[n++] = c;
        s->next++;
        quoted = quoted != (c == '"' && !escaped);
        escaped = quoted && c == '\\' && !escaped;
        depth += quoted ? 0 : (c == '{' || c == '[') - (c == '}' || c == ']');
    } while (is_word || quoted || depth > 0);
    *text = s->text;
    *bytes = n;
    return true;
}

// ---- objects and arrays ----

bool sp_scan_next_item(sp_scan *s, bool *first, char end)
{
    if (sp_scan_peek(s) == (unsigned char)end) {
        s->next++;
        return false;
    }
    if (!*first && !sp_scan_expect(s, ',', end == ']' ? "',' or ']'" : "',' or '}'")) {
        return false;
    }
    *first = false;
    return true;
}

bool sp_scan_next_key(sp_scan *s, bool *first, char key[SP_SCAN_WORD])
{
    size_t length;
    return sp_scan_next_item(s, first, '}') && read_string(s, key, SP_SCAN_WORD, &length) &&
           sp_scan_expect(s, ':', "':'");
}
