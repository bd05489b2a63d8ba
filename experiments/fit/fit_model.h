// A profile with free constants as a model of measured rows: the rows of all tables of a fit in one
// list, and what the profile predicts for them.
#ifndef SLIMPACK_EXPERIMENTS_FIT_FIT_MODEL_H
#define SLIMPACK_EXPERIMENTS_FIT_FIT_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "experiments/fit/fit_spec.h"
#include "experiments/fit/least_squares.h"
#include "experiments/measure/measurements.h"
#include "sim/base/status.h"

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
    sp_arena arena;           // of the arrays below
    sp_measured_case **cases; // [count], of the tables
    double *observed;         // [count]
    double *weight;           // [count], of the row's table
} fit_rows;

// Reads the tables that the specification names, each from the source of its name. Their scenarios
// run with the stack of `profile`, the document of a fit, and with the overrides of `ablation`
// (NULL: none). Errors: a table without source or the other way round; those of reading.
sp_status fit_rows_read(const fit_spec *spec, const fit_source *sources, int source_count,
                        const json_t *profile, const fit_ablation *ablation, fit_rows *rows,
                        sp_error *err);
void fit_rows_fini(fit_rows *rows);

int fit_rows_table(const fit_rows *rows, size_t row);

typedef struct fit_model {
    json_t *document; // of the profile, with what the fit sets on it; owned
    const char *source;
    fit_constant constants[FIT_CONSTANTS]; // that are free
    int number[FIT_CONSTANTS];             // each one's number in the specification
    int constant_count;
    const fit_rows *rows;
    int threads;
} fit_model;

// The specification's start profile with its settings and, where there is one, the ablation's.
// Constants that the ablation sets are not free. rows and threads are left to the caller. Errors: a
// constant is no number there, or lies outside its bounds.
sp_status fit_model_init(const fit_spec *spec, const fit_ablation *ablation, fit_model *model,
                         sp_error *err);
void fit_model_fini(fit_model *model);

// Where a fit begins.
sp_status fit_model_parameters(const fit_model *model, fit_parameter *parameters, sp_error *err);

// The document with the constants in it; the caller owns it.
json_t *fit_model_document(const fit_model *model, const double *constants);

// A fit_predict; the context is a fit_model.
sp_status fit_model_predict(void *context, const double *constants, const uint8_t *wanted,
                            double *predicted, sp_error *err);

// ---- Documents ----

// A profile as a JSON document: its numbers by dotted path, and its text.

// Does it read as a profile?
sp_status fit_document_check(const json_t *document, const char *source, sp_error *err);

// The value at a path, or NULL.
json_t *fit_document_get(const json_t *document, const char *path);
// Takes over `value` and puts it at a path, making objects on the way; NULL takes away what is
// there, and what is above a scalar or an array is replaced.
void fit_document_set(json_t *document, const char *path, json_t *value);
// Sets every path of the object `settings` (NULL: none) to a copy of its value, null taking away.
void fit_document_apply(json_t *document, const json_t *settings);

// Leaves of *document, which will be written to `file`, the sections in which it differs from the
// profile `name`, which it extends from then on.
sp_status fit_document_extend(const char *name, const char *file, json_t **document, sp_error *err);

// Writes it with arrays on one line and 15 digits. What could not be written shows in the error
// flag of the stream.
void fit_document_write(const json_t *document, FILE *file);

#endif
