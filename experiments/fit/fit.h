// Fitting constants of a profile to tables of measured steps.
#ifndef SLIMPACK_EXPERIMENTS_FIT_FIT_H
#define SLIMPACK_EXPERIMENTS_FIT_FIT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "experiments/measure/validation.h"
#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "sim/base/status.h"
#include "sim/cost/profile.h"

// ---- least squares ----

// Constants of a model from observations: a robust least-squares fit in log space with bounds and
// log-normal priors, by the trust-region solver of the GNU Scientific Library.

typedef struct fit_parameter {
    double start;
    double least, most;    // 0 < least < most; a start outside is moved in
    double expect, within; // prior: sd of log(value / expect); within 0: no prior
} fit_parameter;

// The model: predicted[i] > 0 for every row i with wanted[i] != 0; the others are left alone.
typedef sp_status (*fit_predict)(void *context, const double *constants, const uint8_t *wanted,
                                 double *predicted, sp_error *err);

// Derivatives of log(predicted) by log(constant) and the place they were taken at.
typedef struct fit_derivatives {
    double *at;     // [parameters]: logs of the constants
    double *matrix; // [rows][parameters]
    bool known;
} fit_derivatives;

typedef struct fit_problem {
    const fit_parameter *parameters;
    size_t parameter_count;
    const double *observed; // [rows], > 0
    const double *weight;   // [rows]; rows of weight 0 are not asked for
    size_t row_count;
    double scale;     // of a residual log(predicted / observed)
    bool squares;     // plain least squares in place of the soft-L1 loss
    double tolerance; // ends when the loss falls by less than this share; 0: 1e-8
    int most_iterations;
    fit_predict predict;
    void *context;
    const fit_derivatives *derivatives; // from another fit of the same rows; may be NULL
} fit_problem;

typedef struct fit_solution {
    sp_arena arena;     // of all arrays
    double *constants;  // [parameters]
    double *covariance; // [parameters][parameters] of the logs; 0 where nothing is determined
    double *predicted;  // [rows]; 0 where not wanted
    fit_derivatives derivatives;
    double loss;
    int iterations;
    int64_t evaluations;
    bool converged;
} fit_solution;

// Minimises, over constants within their bounds,
//   sum_i weight_i * rho(log(predicted_i / observed_i) / scale) + sum_j (log(c_j / expect_j) /
//   within_j)^2
// with rho(u) = 2 (sqrt(1 + u^2) - 1), the soft-L1 loss, or rho(u) = u^2. The loss becomes a sum of
// squares of sign(u) sqrt(rho(u)). Bounds: log(c) = middle + half * sin(y) over a free y (F. James,
// MINUIT, CERN D506, section 1.3.1), so that the solver itself knows of none. The covariance is
// that of the linearised problem times loss / (rows + priors - parameters).
// Errors: those of predict; SP_ERR_CONTENT where rows and priors are fewer than the parameters or a
// prediction is not positive. Equal input gives equal output, to the bit.
sp_status fit_least_squares(const fit_problem *problem, fit_solution *solution, sp_error *err);
void fit_solution_fini(fit_solution *solution);

// ---- the task ----

// The task of a fit (slimpack/fit/1): the profile to start from, the constants that are free, the
// tables of measured steps and how they count.

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

// ---- the model ----

// A profile with free constants as a model of measured rows: the rows of all tables of a fit in one
// list, and what the profile predicts for them.

typedef struct fit_source {
    const char *csv;
    const char *map; // NULL: the one beside it
    // Logs of one run: `csv` is then its scenario. NULL: it is a table.
    const char *const *logs;
    int log_count;
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

// ---- the fit ----

// Fits the free constants of a profile to measured steps, and finds out how far they can be
// trusted: errors on rows that the fit did not see, spread over resamples, parts taken away.

enum { FIT_DIGITS = 6, FIT_CORRELATIONS = FIT_CONSTANTS * (FIT_CONSTANTS - 1) / 2 };

typedef struct fit_value {
    double value;      // FIT_DIGITS significant digits
    double spread;     // sd of its logarithm; negative: unknown
    bool at_bound;     // within 0.1 % of one
    bool undetermined; // no row depends on it
} fit_value;

// Correlation of the logs of two constants, by their numbers.
typedef struct fit_correlation {
    int a, b;
    double r;
} fit_correlation;

// The model without a part: with the constants as they were, and with those left fitted again.
typedef struct fit_ablation_result {
    const char *name;
    sp_prediction_errors kept[FIT_TABLES], refitted[FIT_TABLES];
    double constants[FIT_CONSTANTS]; // fitted again, by number; 0: not free
} fit_ablation_result;

// Points into itself: it stays where it was made.
typedef struct fit_outcome {
    fit_model model;
    fit_rows rows;
    fit_value values[FIT_CONSTANTS];
    sp_arena arena;    // of the arrays below
    double *predicted; // [rows], with the values above
    double *left_out;  // [rows], by a fit without the row's fold, 0 where there was none
    sp_prediction_errors errors[FIT_TABLES], fold_errors[FIT_TABLES];
    int *fold; // [rows]: which left the row out, negative: none
    // Of rows of times that were left out, as the fitted profile predicts them: the kind of step,
    // the time of a layer's micro-batch, and the traits that set it apart from the rows that its
    // fold was fitted to.
    sp_step_kind *kinds; // [rows]
    double *layer_ms;    // [rows]
    int *differing;      // [rows]
    int *foreign;        // [rows]: of these
    // What the rows of each table warn of under the fitted profile (sp_measurements_warnings);
    // owned.
    json_t *warnings[FIT_TABLES];
    int folds[FIT_TABLES];
    int resamples; // 0: spreads are those of the linearised fit
    fit_correlation correlations[FIT_CORRELATIONS];
    int correlation_count;
    fit_ablation_result *ablations;
    int ablation_count;
    int iterations;
    int64_t evaluations; // of all rows or a part of them, over all fits
    bool converged;
} fit_outcome;

// Correlations are reported from this size on.
#define FIT_CORRELATED 0.95

typedef struct fit_options {
    int threads;
    bool quiet;
    int folds;     // of every table; negative: as the specification says
    int bootstrap; // resamples; negative: as the specification says
    bool ablations;
} fit_options;

// The outcome depends on nothing but the specification, the tables and folds, bootstrap and
// ablations of the options.
sp_status fit_calibrate(const fit_spec *spec, const fit_source *sources, int source_count,
                        const fit_options *options, fit_outcome *outcome, sp_error *err);
void fit_outcome_fini(fit_outcome *outcome);

// Is it a row of times that a fit of others predicted? Kinds and what follows are of these alone.
bool fit_left_out_time(const fit_outcome *outcome, size_t row);

// Finds the errors predicted / observed - 1 in rows [first, end); unknown where there are none.
void fit_errors_of(const double *observed, const double *predicted, size_t first, size_t end,
                   sp_prediction_errors *errors);

// ---- Folds and resamples ----

// Rows drawn at random: the folds of a cross-validation, the resamples of a bootstrap.

// fold[first..end) = 0 to folds-1 in random order, each as often as the others, give or take one.
void fit_random_folds(sp_prng *prng, size_t first, size_t end, int folds, int *fold);

// times[first..end) = how often each row is among end - first draws with replacement (Efron,
// "Bootstrap Methods: Another Look at the Jackknife", 1979).
void fit_resample_rows(sp_prng *prng, size_t first, size_t end, double *times);

// ---- the findings ----

// The findings of a fit, for people and for programs, and as a profile.

// Rows that are off by more than this are named.
#define FIT_UNEXPLAINED 0.10

// Markdown with aligned columns: constants, errors, ablations; with `whole` title and description
// before them, and the rows that are not explained behind.
void fit_report_text(FILE *out, const fit_spec *spec, const fit_outcome *outcome, bool whole);

// The report as a document (slimpack/calibration/1).
json_t *fit_report_json(const fit_spec *spec, const fit_outcome *outcome);

// The start document with the fitted constants, the specification's name, level and source of every
// section that holds a fitted constant, and "fit", which says how good it is. The caller owns it.
// It is read back as a profile before it is returned.
sp_status fit_profile_document(const fit_spec *spec, const fit_outcome *outcome, json_t **document,
                               sp_error *err);

// A table of all rows for plots/residuals.gp: table number, measured, predicted, error in percent,
// left-out error in percent ("-": none), name of the table.
void fit_report_data(FILE *out, const fit_outcome *outcome);

#endif
