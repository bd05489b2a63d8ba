#include "experiments/measurements/measurement_csv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/files.h"

enum { SHOWN = 64 }; // bytes of a cell in a message

typedef struct csv_reader {
    sp_csv *csv;
    const char *source;
    sp_error *err;
    char *at, *end;         // what is not read yet
    const char *line_begin; // of the line that `at` lies in
    int line;
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
        sp_reserve((void **)&csv->text, &capacity, *bytes + 65536, 1);
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

static int column_of(const csv_reader *reader, const char *at)
{
    return (int)(at - reader->line_begin) + 1;
}

static bool at_line_end(const csv_reader *reader)
{
    return reader->at == reader->end || *reader->at == '\n' ||
           (*reader->at == '\r' && (reader->at + 1 == reader->end || reader->at[1] == '\n'));
}

static void next_line(csv_reader *reader)
{
    reader->at += reader->at < reader->end && *reader->at == '\r';
    reader->at += reader->at < reader->end;
    reader->line_begin = reader->at;
    reader->line++;
}

// The text between quotes, moved together over the doubled ones. The terminator takes a quote's
// place.
static sp_status quoted_cell(csv_reader *reader, sp_csv_cell *cell)
{
    char *out = ++reader->at;
    cell->text = out;
    while (reader->at < reader->end) {
        char c = *reader->at++;
        if (c == '"' && (reader->at == reader->end || *reader->at != '"')) {
            *out = '\0';
            if (at_line_end(reader) || *reader->at == ',') {
                return SP_OK;
            }
            return sp_error_at(reader->err, SP_ERR_SYNTAX, reader->source, reader->line,
                               column_of(reader, reader->at),
                               "expected a comma or the end of the line after the closing quote");
        }
        reader->at += c == '"';
        if (c == '\n') {
            reader->line_begin = reader->at;
            reader->line++;
        }
        *out++ = c;
    }
    return sp_error_at(reader->err, SP_ERR_SYNTAX, reader->source, cell->line, cell->column,
                       "a quoted cell does not end");
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

// The terminator's place may be the comma or line end that is still to be read: *last.
static sp_status plain_cell(csv_reader *reader, sp_csv_cell *cell, char **last)
{
    char *end = reader->at;
    cell->text = end;
    while (!at_line_end(reader) && *reader->at != ',') {
        if (*reader->at == '"') {
            return sp_error_at(reader->err, SP_ERR_SYNTAX, reader->source, reader->line,
                               column_of(reader, reader->at),
                               "a quote inside a cell that does not begin with one");
        }
        reader->at++;
        end = is_blank(reader->at[-1]) ? end : reader->at;
    }
    *last = end;
    return SP_OK;
}

static void keep_cell(csv_reader *reader, const sp_csv_cell *cell)
{
    sp_reserve((void **)&reader->csv->cells, &reader->capacity, reader->count + 1, sizeof *cell);
    reader->csv->cells[reader->count++] = *cell;
}

// One cell with the comma or the line end after it. Cells past the header's are read, not kept.
static sp_status read_cell(csv_reader *reader, int column, sp_csv_cell *cell, bool *ends)
{
    char *last = NULL;
    while (reader->at < reader->end && is_blank(*reader->at)) {
        reader->at++;
    }
    *cell = (sp_csv_cell){.line = reader->line, .column = column_of(reader, reader->at)};
    sp_status status = reader->at < reader->end && *reader->at == '"'
                           ? quoted_cell(reader, cell)
                           : plain_cell(reader, cell, &last);
    if (status != SP_OK) {
        return status;
    }
    *ends = at_line_end(reader);
    if (*ends) {
        next_line(reader);
    } else {
        reader->at++;
    }
    if (last != NULL) {
        *last = '\0';
    }
    int kept = reader->csv->columns > 0 ? reader->csv->columns : SP_CSV_COLUMNS;
    if (column < kept) {
        keep_cell(reader, cell);
    }
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

static sp_status read_records(csv_reader *reader)
{
    sp_status status = SP_OK;
    if (memchr(reader->at, '\0', (size_t)(reader->end - reader->at)) != NULL) {
        return sp_error_set(reader->err, SP_ERR_SYNTAX,
                            "%s: holds bytes of value 0: is it a text file?", reader->source);
    }
    while (status == SP_OK && reader->at < reader->end) {
        if (at_line_end(reader)) {
            next_line(reader);
            continue;
        }
        sp_csv_cell cell;
        sp_csv_cell extra = {0};
        bool ends = false;
        int cells = 0;
        while (status == SP_OK && !ends) {
            status = read_cell(reader, cells, &cell, &ends);
            if (cells == reader->csv->columns) {
                extra = cell;
            }
            cells++;
        }
        if (status == SP_OK) {
            status = end_record(reader, cells, &extra);
        }
    }
    return status;
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
    reader.line_begin = reader.at;
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
    sp_status status = sp_input_open(path, &file, err);
    if (status != SP_OK) {
        return status;
    }
    status = read_bytes(file, path, csv, &bytes, err);
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
