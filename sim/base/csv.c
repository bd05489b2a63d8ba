#include "sim/base/csv.h"

#include <string.h>

static bool is_blank(char c, char delimiter)
{
    return (c == ' ' || c == '\t') && c != delimiter;
}

size_t sp_csv_record_bytes(const char *text, size_t bytes, char delimiter)
{
    enum { FIELD_START, PLAIN, QUOTED, QUOTE_SEEN } state = FIELD_START;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (state == QUOTED) {
            state = c == '"' ? QUOTE_SEEN : QUOTED;
        } else if (c == '\n') {
            return i + 1;
        } else if (c == delimiter) {
            state = FIELD_START;
        } else if (c == '"' && state != PLAIN) {
            state = QUOTED;
        } else if (state != FIELD_START || !is_blank(c, delimiter)) {
            state = PLAIN;
        }
    }
    return 0;
}

static sp_status wrong_at(const sp_csv_record *record, long line, int column, sp_error *err,
                          const char *text)
{
    return sp_error_at(err, SP_ERR_SYNTAX, record->source, line, column, "%s", text);
}

// `record->at` is behind the opening quote.
static sp_status take_quoted(sp_csv_record *record, sp_csv_field *field, sp_error *err)
{
    const char *at = record->at;
    const char *end = record->end;
    field->quoted = true;
    field->text = at;
    for (; at < end && (at[0] != '"' || (at + 1 < end && at[1] == '"')); at++) {
        at += at[0] == '"';
        if (at[0] == '\n') {
            record->line++;
            record->line_begin = at + 1;
        }
    }
    if (at == end) {
        return wrong_at(record, field->line, field->column, err, "a quoted field does not end");
    }
    field->bytes = (size_t)(at - field->text);
    record->at = at + 1;
    if (record->at < end && *record->at != record->delimiter) {
        return wrong_at(record, record->line, (int)(record->at - record->line_begin) + 1, err,
                        "expected a delimiter or the end of the line after the closing quote");
    }
    return SP_OK;
}

static void take_plain(sp_csv_record *record, sp_csv_field *field)
{
    const char *at = record->at;
    const char *end = memchr(at, record->delimiter, (size_t)(record->end - at));
    record->at = end != NULL ? end : record->end;
    end = record->at;
    while (end > at && is_blank(end[-1], record->delimiter)) {
        end--;
    }
    field->text = at;
    field->bytes = (size_t)(end - at);
}

sp_status sp_csv_next_field(sp_csv_record *record, sp_csv_field *field, sp_error *err)
{
    sp_status status = SP_OK;
    while (record->at < record->end && is_blank(*record->at, record->delimiter)) {
        record->at++;
    }
    *field =
        (sp_csv_field){.line = record->line, .column = (int)(record->at - record->line_begin) + 1};
    if (record->at < record->end && *record->at == '"') {
        record->at++;
        status = take_quoted(record, field, err);
    } else {
        take_plain(record, field);
    }
    record->at = record->at == record->end ? NULL : record->at + 1;
    return status;
}

char *sp_csv_copy_field(const sp_csv_field *field, char *out)
{
    for (size_t i = 0; i < field->bytes; i++) {
        *out++ = field->text[i];
        // The second one of a pair is left out.
        i += field->quoted && field->text[i] == '"';
    }
    *out++ = '\0';
    return out;
}
