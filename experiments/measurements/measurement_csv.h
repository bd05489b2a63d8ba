// A CSV file with a header line, held as cells that know where they stand.
#ifndef SLIMPACK_EXPERIMENTS_MEASUREMENTS_MEASUREMENT_CSV_H
#define SLIMPACK_EXPERIMENTS_MEASUREMENTS_MEASUREMENT_CSV_H

#include <stddef.h>

#include "sim/base/status.h"

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

// Reads records by sim/base/csv.h with a comma as the delimiter. A byte order mark and empty lines
// are skipped, blanks around a cell without quotes cut off. Rows with other cells than the header
// has columns, and header names that are empty or stand twice, are errors, up to ten of them
// collected. O(bytes).
sp_status sp_csv_read_file(const char *path, sp_csv *csv, sp_error *err);
sp_status sp_csv_read_text(const char *text, size_t bytes, const char *source, sp_csv *csv,
                           sp_error *err);
void sp_csv_fini(sp_csv *csv);

const sp_csv_cell *sp_csv_header(const sp_csv *csv, int column);
const sp_csv_cell *sp_csv_at(const sp_csv *csv, size_t row, int column);

#endif
