#include "experiments/stream/lengths_line.h"

#include <stdbool.h>

#include "sim/workload/length_reader.h"

enum { ELEMENT = 64 }; // longest element that can be a length

typedef struct scanner {
    const char *text;
    size_t bytes, at;
    const char *source;
    int64_t line;
    sp_lengths *lengths;
    sp_error *err;
} scanner;

static sp_status read_array(scanner *in);

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
    sp_i_quote(in->text + in->at, 1, found);
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
    if (length <= ELEMENT && sp_i_parse_length(in->text + begin, length, &tokens)) {
        return sp_lengths_append(in->lengths, tokens, in->err);
    }
    char found[SP_I_QUOTE];
    sp_i_quote(in->text + begin, length, found);
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
