// Fits the free constants of a profile to measured steps, and finds out how far they can be
// trusted: errors on rows that the fit did not see, spread over resamples, parts taken away.
#ifndef SLIMPACK_EXPERIMENTS_FIT_CALIBRATE_H
#define SLIMPACK_EXPERIMENTS_FIT_CALIBRATE_H

#include "experiments/fit/fit_model.h"
#include "experiments/measure/validation.h"
#include "sim/base/prng.h"

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

#endif
