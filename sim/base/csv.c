#include "sim/base/csv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/files.h"

// ---- Records ----

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

char sp_csv_delimiter(const char *text, size_t bytes, char usual)
{
    const char others[] = {usual, ',', ';', '\t', '\0'};
    bool found[sizeof others] = {false};
    bool quoted = false;
    size_t i = 0;
    while (i < bytes && (text[i] == '\n' || text[i] == '\r')) {
        i++;
    }
    for (; i < bytes && (quoted || text[i] != '\n'); i++) {
        quoted = quoted != (text[i] == '"');
        const char *other = quoted || text[i] == '\0' ? NULL : strchr(others, text[i]);
        if (other != NULL) {
            found[other - others] = true;
        }
    }
    for (i = 0; others[i] != '\0'; i++) {
        if (found[i]) {
            return others[i];
        }
    }
    return usual;
}

// ---- Tables ----

enum { SHOWN = 64 }; // bytes of a cell in a message

typedef struct csv_reader {
    sp_csv *csv;
    const char *source;
    sp_error *err;
    const char *at, *end; // what is not read yet
    char delimiter;
    long line;
    size_t count, capacity; // cells
} csv_reader;

static sp_status too_large(const char *source, sp_error *err)
{
    return sp_error_set(err, SP_ERR_LIMIT, "%s: has more than the %d MiB that a table may have",
                        source, SP_CSV_BYTES >> 20);
}

static sp_status read_bytes(FILE *file, const char *path, sp_csv *csv, size_t *bytes, sp_error *err)
{
    size_t capacity = 0;
    *bytes = 0;
    while (*bytes <= SP_CSV_BYTES) {
        // One byte stays free for the terminator of the last cell.
        SP_RESERVE(csv->text, capacity, *bytes + 65536);
        size_t got = fread(csv->text + *bytes, 1, capacity - *bytes - 1, file);
        if (got == 0) {
            return ferror(file) != 0 ? sp_error_system(err, path, errno) : SP_OK;
        }
        *bytes += got;
    }
    return too_large(path, err);
}

void sp_csv_fini(sp_csv *csv)
{
    sp_free(csv->cells);
    sp_free(csv->text);
    *csv = (sp_csv){0};
}

const sp_csv_cell *sp_csv_header(const sp_csv *csv, int column)
{
    return &csv->cells[column];
}

const sp_csv_cell *sp_csv_at(const sp_csv *csv, size_t row, int column)
{
    return &csv->cells[(row + 1) * (size_t)csv->columns + (size_t)column];
}

// ---- records ----

// The text of a field ends where it lies, over what comes behind it and was read.
static sp_status read_cell(const csv_reader *reader, sp_csv_record *record, sp_csv_cell *cell)
{
    sp_csv_field field;
    SP_TRY(sp_csv_next_field(record, &field, reader->err));
    char *text = reader->csv->text + (field.text - reader->csv->text);
    const char *quote = field.quoted ? NULL : memchr(field.text, '"', field.bytes);
    *cell = (sp_csv_cell){.text = text, .line = (int)field.line, .column = field.column};
    if (quote != NULL) {
        return sp_error_at(reader->err, SP_ERR_SYNTAX, reader->source, field.line,
                           field.column + (int)(quote - field.text),
                           "a quote inside a cell that does not begin with one");
    }
    (void)sp_csv_copy_field(&field, text);
    return SP_OK;
}

static void wrong_count(const csv_reader *reader, int found, const sp_csv_cell *extra)
{
    const sp_csv *csv = reader->csv;
    if (found < csv->columns) {
        const sp_csv_cell *first = &csv->cells[reader->count - (size_t)found];
        sp_error_at(reader->err, SP_ERR_CONTENT, reader->source, first->line, 0,
                    "expected %d cells, got %d: column '%.64s' is missing", csv->columns, found,
                    csv->cells[found].text);
    } else {
        sp_error_at(reader->err, SP_ERR_CONTENT, reader->source, extra->line, extra->column,
                    "expected %d cells, got %d: no column is named for \"%.*s\"", csv->columns,
                    found, SHOWN, extra->text);
    }
}

static sp_status end_record(csv_reader *reader, int cells, const sp_csv_cell *extra)
{
    sp_csv *csv = reader->csv;
    if (csv->columns == 0 && cells > SP_CSV_COLUMNS) {
        return sp_error_set(reader->err, SP_ERR_LIMIT, "%s: has %d columns, more than %d",
                            reader->source, cells, SP_CSV_COLUMNS);
    }
    if (csv->columns == 0) {
        csv->columns = cells;
        return SP_OK;
    }
    if (csv->rows == SP_CSV_ROWS) {
        return sp_error_set(reader->err, SP_ERR_LIMIT, "%s: has more than %d rows", reader->source,
                            SP_CSV_ROWS);
    }
    if (cells != csv->columns) {
        wrong_count(reader, cells, extra);
        // The rows that follow are told of as well; no row is used.
        reader->count = (csv->rows + 1) * (size_t)csv->columns;
        return SP_OK;
    }
    csv->rows++;
    return SP_OK;
}

// Cells past those of the header are read, not kept.
static sp_status read_record(csv_reader *reader, sp_csv_record *record)
{
    const sp_csv *csv = reader->csv;
    int kept = csv->columns > 0 ? csv->columns : SP_CSV_COLUMNS;
    sp_csv_cell extra = {0};
    int cells = 0;
    for (; record->at != NULL; cells++) {
        sp_csv_cell cell = {0};
        SP_TRY(read_cell(reader, record, &cell));
        if (cells < kept) {
            *SP_ADDED(reader->csv->cells, reader->capacity, reader->count) = cell;
        }
        extra = cells == csv->columns ? cell : extra;
    }
    return end_record(reader, cells, &extra);
}

static sp_status read_records(csv_reader *reader)
{
    if (memchr(reader->at, '\0', (size_t)(reader->end - reader->at)) != NULL) {
        return sp_error_set(reader->err, SP_ERR_SYNTAX,
                            "%s: holds bytes of value 0: is it a text file?", reader->source);
    }
    while (reader->at < reader->end) {
        size_t left = (size_t)(reader->end - reader->at);
        size_t bytes = sp_csv_record_bytes(reader->at, left, reader->delimiter);
        bytes = bytes > 0 ? bytes : left;
        sp_csv_record record = {.at = reader->at,
                                .end = reader->at + bytes,
                                .delimiter = reader->delimiter,
                                .source = reader->source,
                                .line = reader->line,
                                .line_begin = reader->at};
        record.end -= record.end > record.at && record.end[-1] == '\n';
        record.end -= record.end > record.at && record.end[-1] == '\r';
        reader->at += bytes;
        if (record.end > record.at) {
            SP_TRY(read_record(reader, &record));
        }
        reader->line = record.line + 1;
    }
    return SP_OK;
}

static void check_header(csv_reader *reader)
{
    const sp_csv *csv = reader->csv;
    for (int c = 0; c < csv->columns; c++) {
        const sp_csv_cell *name = sp_csv_header(csv, c);
        if (name->text[0] == '\0') {
            sp_error_at(reader->err, SP_ERR_CONTENT, reader->source, name->line, name->column,
                        "column %d has no name", c + 1);
        }
        for (int before = 0; before < c; before++) {
            if (name->text[0] != '\0' &&
                strcmp(name->text, sp_csv_header(csv, before)->text) == 0) {
                sp_error_at(reader->err, SP_ERR_CONTENT, reader->source, name->line, name->column,
                            "column '%.*s' stands twice", SHOWN, name->text);
                break;
            }
        }
    }
}

static sp_status read_owned(sp_csv *csv, size_t bytes, const char *source, sp_error *err)
{
    sp_error own = {0};
    csv_reader reader = {.csv = csv,
                         .source = source,
                         .err = err != NULL ? err : &own,
                         .at = csv->text,
                         .end = csv->text + bytes,
                         .line = 1};
    if (bytes >= 3 && memcmp(csv->text, "\xef\xbb\xbf", 3) == 0) {
        reader.at += 3;
    }
    reader.delimiter = sp_csv_delimiter(reader.at, (size_t)(reader.end - reader.at), ',');
    sp_status status = read_records(&reader);
    if (status == SP_OK && csv->columns == 0) {
        status = sp_error_set(reader.err, SP_ERR_CONTENT,
                              "%s: is empty: expected a header line of column names", source);
    }
    if (status == SP_OK) {
        check_header(&reader);
        status = reader.err->status;
    }
    if (status != SP_OK) {
        sp_csv_fini(csv);
    }
    return status;
}

sp_status sp_csv_read_file(const char *path, sp_csv *csv, sp_error *err)
{
    size_t bytes = 0;
    *csv = (sp_csv){0};
    FILE *file;
    SP_TRY(sp_input_open(path, &file, err));
    sp_status status = read_bytes(file, path, csv, &bytes, err);
    fclose(file);
    if (status != SP_OK) {
        sp_csv_fini(csv);
        return status;
    }
    return read_owned(csv, bytes, path, err);
}

sp_status sp_csv_read_text(const char *text, size_t bytes, const char *source, sp_csv *csv,
                           sp_error *err)
{
    *csv = (sp_csv){0};
    if (bytes > SP_CSV_BYTES) {
        return too_large(source, err);
    }
    csv->text = sp_malloc(bytes + 1);
    if (bytes > 0) {
        memcpy(csv->text, text, bytes);
    }
    return read_owned(csv, bytes, source, err);
}
