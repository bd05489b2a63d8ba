// Records of CSV and TSV files (RFC 4180) and their fields, one after the other: double quotes are
// doubled inside a quoted field, which may hold delimiters and line ends; lines end in LF or CRLF.
#ifndef SLIMPACK_SIM_BASE_CSV_H
#define SLIMPACK_SIM_BASE_CSV_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/status.h"

// The rest of a record that is not read yet; it lies in memory without its line end.
typedef struct sp_csv_record {
    const char *at; // NULL behind the last field
    const char *end;
    char delimiter;
    const char *source;     // for messages
    long line;              // that `at` lies in, from 1
    const char *line_begin; // of that line
} sp_csv_record;

// The text lies in the record: without blanks around it, or between quotes with doubled quotes as
// they are.
typedef struct sp_csv_field {
    const char *text;
    size_t bytes;
    bool quoted;
    long line;
    int column; // of its first byte or quote, from 1
} sp_csv_field;

// Bytes of the first record of a text with its line end; 0 where it does not end within the text.
size_t sp_csv_record_bytes(const char *text, size_t bytes, char delimiter);

// The usual delimiter, or where the first line has none outside of quotes what it has in its place:
// a comma, a semicolon (as spreadsheets write in countries with a decimal comma) or a tab.
char sp_csv_delimiter(const char *text, size_t bytes, char usual);

// Takes the next field off a record, of which `at` is not NULL. SP_ERR_SYNTAX with line and column.
sp_status sp_csv_next_field(sp_csv_record *record, sp_csv_field *field, sp_error *err);

// Copies a field with doubled quotes made single, and a terminator; returns the byte behind that.
// `out` may be where the field lies.
char *sp_csv_copy_field(const sp_csv_field *field, char *out);

// ---- Tables ----

// A CSV file with a header line, held as cells that know where they stand.

enum {
    SP_CSV_ROWS = 100000,
    SP_CSV_COLUMNS = 64,
    SP_CSV_BYTES = 64 << 20,
};

typedef struct sp_csv_cell {
    const char *text; // without quotes and the blanks around it
    int line, column; // of its first byte in the file, from 1
} sp_csv_cell;

typedef struct sp_csv {
    char *text;         // owned
    sp_csv_cell *cells; // header first, row by row; owned
    int columns;
    size_t rows; // without the header
} sp_csv;

// Reads records whose fields are separated by commas or, where the header has none, by semicolons
// or tabs. A byte order mark and empty lines are skipped, blanks around a cell without quotes cut
// off. Rows with other cells than the header has columns, and header names that are empty or stand
// twice, are errors, up to ten of them collected. O(bytes).
sp_status sp_csv_read_file(const char *path, sp_csv *csv, sp_error *err);
sp_status sp_csv_read_text(const char *text, size_t bytes, const char *source, sp_csv *csv,
                           sp_error *err);
void sp_csv_fini(sp_csv *csv);

const sp_csv_cell *sp_csv_header(const sp_csv *csv, int column);
const sp_csv_cell *sp_csv_at(const sp_csv *csv, size_t row, int column);

#endif
