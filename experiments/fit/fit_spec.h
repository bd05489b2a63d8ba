// The task of a fit (slimpack/fit/1): the profile to start from, the constants that are free, the
// tables of measured steps and how they count.
#ifndef SLIMPACK_EXPERIMENTS_FIT_FIT_SPEC_H
#define SLIMPACK_EXPERIMENTS_FIT_FIT_SPEC_H

#include <jansson.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/cost/profile.h"

#define FIT_SCHEMA "slimpack/fit/1"

enum {
    FIT_CONSTANTS = 32,
    FIT_TABLES = 16,
    FIT_ABLATIONS = 64,
    FIT_OVERRIDES = 16, // of the scenarios of one ablation
    FIT_FOLDS = 100,
    FIT_GROUP_COLUMNS = 8,
    FIT_RECORD_TRAITS = 4,
    FIT_RESAMPLES = 1000,
    FIT_SOURCE = 256,
};

// Texts and values belong to the document.
typedef struct fit_constant {
    const char *path; // "gemm_model.tflops", of a number in the profile
    const char *unit;
    double start; // 0: what the profile has
    double least, most;
    double expect, within; // prior: sd of log(value / expect); within 0: none
} fit_constant;

typedef struct fit_table_spec {
    const char *name;                     // of the table's file, without folder and ".csv"
    double weight;                        // of each row
    int folds;                            // 0: no cross-validation, with groups: one for each
    const char *group[FIT_GROUP_COLUMNS]; // columns that the rows of a fold agree in
    int group_count;
    // Traits of a step (sim/cost/error_record.h), by whose values the errors are recorded beside
    // those of the whole table.
    int errors_by[FIT_RECORD_TRAITS];
    int errors_by_count;
    bool own_stack; // rows run with the stack of the table's map, not that of the profile
} fit_table_spec;

// The model without one of its parts.
typedef struct fit_ablation {
    const char *name;
    const json_t *set;                    // path to value, on the profile; may be NULL
    const char *overrides[FIT_OVERRIDES]; // "stack.blocking_transfers=false"
    int override_count;
} fit_ablation;

typedef struct fit_spec {
    char source[FIT_SOURCE]; // file name, for messages
    json_t *document;        // owned
    const char *name;        // of the profile that comes out
    const char *description;
    const json_t *tried; // texts on rows that stay unexplained; may be NULL
    const char *profile; // to start from: name or path
    bool extends;        // what comes out holds only the sections that differ from it
    const json_t *start; // path to value, set on it; may be NULL
    fit_constant constants[FIT_CONSTANTS];
    int constant_count;
    fit_table_spec tables[FIT_TABLES];
    int table_count;
    bool leaves_out_tables; // each table is a fold, whatever it says of folds itself
    fit_ablation ablations[FIT_ABLATIONS];
    int ablation_count;
    double loss_scale;
    int bootstrap; // resamples
    uint64_t seed;
} fit_spec;

sp_status fit_spec_read(const char *path, fit_spec *spec, sp_error *err);
// Takes over the document.
sp_status fit_spec_from_json(json_t *document, const char *source, fit_spec *spec, sp_error *err);
void fit_spec_fini(fit_spec *spec);

// Number of the table, or -1.
int fit_spec_table(const fit_spec *spec, const char *name);

#endif
