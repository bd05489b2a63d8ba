#include "experiments/stream/batch_lines.h"

#include <errno.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/workload/length_reader.h"

enum {
    FIRST_BYTES = 1 << 16,
    ELEMENT = 64, // longest element of an array that can be a length
};

void stream_lines_init(stream_lines *lines, stream_source source, size_t limit)
{
    *lines = (stream_lines){.source = source, .limit = limit > 0 ? limit : STREAM_LINE_BYTES};
}

void stream_lines_fini(stream_lines *lines)
{
    sp_free(lines->buffer);
    *lines = (stream_lines){0};
}

static void take(stream_lines *lines, size_t length, char **text, size_t *bytes)
{
    char *copy = sp_malloc(length + 1);
    memcpy(copy, lines->buffer + lines->begin, length);
    copy[length] = '\0';
    *text = copy;
    *bytes = length;
    lines->line++;
    lines->begin += length;
    // The newline, which only the last line may lack.
    lines->begin += lines->begin < lines->end;
    lines->searched = lines->begin;
}

// Moves what is left to the front and reads behind it.
static sp_status fill(stream_lines *lines, sp_error *err)
{
    size_t left = lines->end - lines->begin;
    if (lines->begin > 0) {
        memmove(lines->buffer, lines->buffer + lines->begin, left);
        lines->searched -= lines->begin;
        lines->begin = 0;
        lines->end = left;
    }
    if (lines->end == lines->capacity) {
        void *buffer = lines->buffer;
        size_t needed = lines->capacity > 0 ? lines->capacity + 1 : FIRST_BYTES;
        sp_reserve(&buffer, &lines->capacity, needed, 1);
        lines->buffer = buffer;
    }
    errno = 0;
    long got = lines->source.read(lines->source.context, lines->buffer + lines->end,
                                  lines->capacity - lines->end);
    if (got < 0) {
        return sp_error_at(err, SP_ERR_IO, lines->source.name, (long)lines->line + 1, 0,
                           "cannot read: %s", strerror(errno));
    }
    lines->ended = got == 0;
    lines->end += (size_t)got;
    return SP_OK;
}

sp_status stream_lines_next(stream_lines *lines, char **text, size_t *bytes, sp_error *err)
{
    *text = NULL;
    *bytes = 0;
    for (;;) {
        size_t fresh = lines->end - lines->searched;
        const char *newline =
            fresh > 0 ? memchr(lines->buffer + lines->searched, '\n', fresh) : NULL;
        size_t length = newline != NULL ? (size_t)(newline - lines->buffer) - lines->begin
                                        : lines->end - lines->begin;
        if (length > lines->limit) {
            return sp_error_at(err, SP_ERR_LIMIT, lines->source.name, (long)lines->line + 1, 0,
                               "the line is longer than %zu bytes", lines->limit);
        }
        if (newline != NULL || (lines->ended && length > 0)) {
            take(lines, length, text, bytes);
            return SP_OK;
        }
        if (lines->ended) {
            return SP_OK;
        }
        lines->searched = lines->end;
        sp_status status = fill(lines, err);
        if (status != SP_OK) {
            return status;
        }
    }
}

// ---- a batch ----

typedef struct scanner {
    const char *text;
    size_t bytes, at;
    const char *source;
    int64_t line;
    sp_lengths *lengths;
    sp_error *err;
} scanner;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void skip_blanks(scanner *in)
{
    while (in->at < in->bytes && is_blank(in->text[in->at])) {
        in->at++;
    }
}

static bool next_is(const scanner *in, char c)
{
    return in->at < in->bytes && in->text[in->at] == c;
}

// A byte that belongs in another place.
static sp_status unexpected(const scanner *in, const char *expected)
{
    if (in->at == in->bytes) {
        return sp_error_at(in->err, SP_ERR_SYNTAX, in->source, (long)in->line, (long)in->at + 1,
                           "expected %s, got the end of the line", expected);
    }
    char found[SP_I_QUOTE];
    sp_quote(in->text + in->at, 1, found);
    return sp_error_at(in->err, SP_ERR_SYNTAX, in->source, (long)in->line, (long)in->at + 1,
                       "expected %s, got '%s'", expected, found);
}

static sp_status read_element(scanner *in)
{
    size_t begin = in->at;
    while (in->at < in->bytes && in->text[in->at] != ',' && in->text[in->at] != ']' &&
           !is_blank(in->text[in->at])) {
        in->at++;
    }
    size_t length = in->at - begin;
    if (length == 0) {
        return unexpected(in, "a length");
    }
    int64_t tokens = 0;
    if (length <= ELEMENT && sp_parse_length(in->text + begin, length, &tokens)) {
        sp_lengths_append(in->lengths, tokens);
        return SP_OK;
    }
    char found[SP_I_QUOTE];
    sp_quote(in->text + begin, length, found);
    return sp_error_at(in->err, SP_ERR_CONTENT, in->source, (long)in->line, (long)begin + 1,
                       "expected a length from 1 to %d, got '%s'", SP_MAX_LENGTH_TOKENS, found);
}

static sp_status read_array(scanner *in)
{
    skip_blanks(in);
    if (!next_is(in, '[')) {
        return unexpected(in, "'['");
    }
    in->at++;
    skip_blanks(in);
    if (next_is(in, ']')) {
        return sp_error_at(in->err, SP_ERR_CONTENT, in->source, (long)in->line, (long)in->at + 1,
                           "expected at least one length, got an empty array");
    }
    for (;;) {
        sp_status status = read_element(in);
        if (status != SP_OK) {
            return status;
        }
        skip_blanks(in);
        if (next_is(in, ']')) {
            break;
        }
        if (!next_is(in, ',')) {
            return unexpected(in, "',' or ']'");
        }
        in->at++;
        skip_blanks(in);
    }
    in->at++;
    skip_blanks(in);
    return in->at == in->bytes ? SP_OK : unexpected(in, "the end of the line");
}

sp_status stream_read_lengths(const char *text, size_t bytes, const char *source, int64_t line,
                              sp_lengths *lengths, sp_error *err)
{
    scanner in = {.text = text,
                  .bytes = bytes,
                  .source = source,
                  .line = line,
                  .lengths = lengths,
                  .err = err};
    *lengths = (sp_lengths){0};
    sp_status status = read_array(&in);
    if (status != SP_OK) {
        sp_lengths_fini(lengths);
    }
    return status;
}
