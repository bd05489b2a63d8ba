// The measured rows of all tables of a fit, in one list, and what a profile predicts for them.
#ifndef SLIMPACK_EXPERIMENTS_CALIBRATE_FIT_ROWS_H
#define SLIMPACK_EXPERIMENTS_CALIBRATE_FIT_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "experiments/calibrate/fit_spec.h"
#include "experiments/measurements/measurements.h"

typedef struct fit_source {
    const char *csv;
    const char *map; // NULL: the one beside it
} fit_source;

// Rows stand table by table, in the order of the specification.
typedef struct fit_rows {
    sp_measurements tables[FIT_TABLES];
    int table_count;
    size_t first[FIT_TABLES + 1]; // first row of each table
    size_t count;
    sp_measured_case **cases; // [count], of the tables; owned array
    double *observed;         // [count]; owned
    double *weight;           // [count], of the row's table; owned
} fit_rows;

// Reads the tables that the specification names, each from the source of its name. Their scenarios
// run with the stack of `profile`, the document of a fit, and with the overrides of `ablation`
// (NULL: none). Errors: a table without source or the other way round; those of reading.
sp_status fit_rows_read(const fit_spec *spec, const fit_source *sources, int source_count,
                        const json_t *profile, const fit_ablation *ablation, fit_rows *rows,
                        sp_error *err);
void fit_rows_fini(fit_rows *rows);

int fit_rows_table(const fit_rows *rows, size_t row);

// predicted[i] of every row with wanted[i] != 0 (NULL: all rows), the other values are left alone.
// Of several rows that fail the first one's error is returned. Independent of `threads`.
sp_status fit_rows_predict(const fit_rows *rows, const sp_profile *profile, const uint8_t *wanted,
                           int threads, double *predicted, sp_error *err);

#endif
