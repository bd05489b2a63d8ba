#include "experiments/calibrate/calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/calibrate/calibrate_ablation.h"
#include "experiments/calibrate/calibrate_resampled.h"
#include "experiments/calibrate/folds.h"
#include "experiments/calibrate/refit.h"
#include "sim/base/alloc.h"

enum { NUMBER = 32 };

static const double near_bound = 1e-3;
static const double no_slope = 1e-9;

static sp_status set_up(fit_i_calibration *c, const fit_options *options);
static sp_status settle_values(fit_i_calibration *c);
static void find_correlations(fit_i_calibration *c);

sp_status fit_calibrate(const fit_spec *spec, const fit_source *sources, int source_count,
                        const fit_options *options, fit_outcome *outcome, sp_error *err)
{
    sp_error own;
    sp_error_clear(&own);
    fit_i_calibration c = {.spec = spec,
                           .sources = sources,
                           .source_count = source_count,
                           .outcome = outcome,
                           .err = err != NULL ? err : &own};
    *outcome = (fit_outcome){0};
    sp_status status = set_up(&c, options);
    if (status != SP_OK) {
        fit_outcome_fini(outcome);
        return status;
    }
    status = fit_i_fit_all_rows(&c);
    if (status == SP_OK) {
        status = settle_values(&c);
    }
    if (status == SP_OK) {
        find_correlations(&c);
        status = fit_i_cross_validate(&c);
    }
    if (status == SP_OK) {
        status = fit_i_bootstrap(&c);
    }
    if (status == SP_OK && options->ablations) {
        status = fit_i_ablate(&c);
    }
    sp_progress_end(&c.progress);
    fit_solution_fini(&c.best);
    if (status != SP_OK) {
        fit_outcome_fini(outcome);
    }
    return status;
}

// ---- set-up ----

static int most_folds(const fit_outcome *outcome)
{
    int most = 0;
    for (int t = 0; t < outcome->rows.table_count; t++) {
        most = outcome->folds[t] > most ? outcome->folds[t] : most;
    }
    return most;
}

// A fit to values in a wrong unit would bend every constant before it gives up.
static sp_status check_units(fit_i_calibration *c)
{
    fit_outcome *outcome = c->outcome;
    const fit_rows *rows = &outcome->rows;
    fit_parameter parameters[FIT_CONSTANTS];
    double start[FIT_CONSTANTS] = {0.0};
    sp_status status = fit_model_parameters(&outcome->model, parameters, c->err);
    for (int i = 0; status == SP_OK && i < outcome->model.constant_count; i++) {
        start[i] = parameters[i].start;
    }
    if (status == SP_OK) {
        status = fit_model_predict(&outcome->model, start, NULL, outcome->predicted, c->err);
    }
    for (int t = 0; status == SP_OK && t < rows->table_count; t++) {
        status = sp_measurements_check_units(&rows->tables[t], outcome->predicted + rows->first[t],
                                             c->err);
    }
    return status;
}

static sp_status set_up(fit_i_calibration *c, const fit_options *options)
{
    fit_outcome *outcome = c->outcome;
    sp_status status = fit_model_init(c->spec, NULL, &outcome->model, c->err);
    if (status == SP_OK) {
        status = fit_rows_read(c->spec, c->sources, c->source_count, outcome->model.document, NULL,
                               &outcome->rows, c->err);
    }
    if (status != SP_OK) {
        return status;
    }
    outcome->model.rows = &outcome->rows;
    outcome->model.threads = options->threads;
    outcome->predicted = sp_i_calloc(outcome->rows.count, sizeof *outcome->predicted);
    outcome->left_out = sp_i_calloc(outcome->rows.count, sizeof *outcome->left_out);
    outcome->fold = sp_i_calloc(outcome->rows.count, sizeof *outcome->fold);
    if (outcome->predicted == NULL || outcome->left_out == NULL || outcome->fold == NULL) {
        return sp_error_no_memory(c->err, "predictions");
    }
    status = check_units(c);
    if (status == SP_OK) {
        status = fit_deal_rows(c->spec, &outcome->rows, options->folds, outcome->folds,
                               outcome->fold, c->err);
    }
    if (status != SP_OK) {
        return status;
    }
    c->resamples = options->bootstrap >= 0 ? options->bootstrap : c->spec->bootstrap;
    int64_t steps = 1 + (int64_t)most_folds(outcome) + c->resamples +
                    (options->ablations ? c->spec->ablation_count : 0);
    sp_progress_begin(&c->progress, "fitting", steps, options->quiet);
    return SP_OK;
}

// ---- what comes out ----

static double rounded(double value)
{
    char text[NUMBER];
    snprintf(text, sizeof text, "%.*g", FIT_DIGITS, value);
    return strtod(text, NULL);
}

static bool is_blind(const fit_i_calibration *c, int constant)
{
    size_t count = (size_t)c->outcome->model.constant_count;
    for (size_t row = 0; row < c->outcome->rows.count; row++) {
        if (fabs(c->best.derivatives.matrix[row * count + (size_t)constant]) > no_slope) {
            return false;
        }
    }
    return true;
}

// The constants as they will be written, and what they predict.
static sp_status settle_values(fit_i_calibration *c)
{
    fit_outcome *outcome = c->outcome;
    int count = outcome->model.constant_count;
    double constants[FIT_CONSTANTS] = {0.0};
    for (int i = 0; i < count; i++) {
        const fit_constant *constant = &outcome->model.constants[i];
        double value = c->best.constants[i];
        double variance = c->best.covariance[i * count + i];
        constants[i] = rounded(value);
        outcome->values[i] = (fit_value){
            .value = constants[i],
            .spread = variance > 0.0 ? sqrt(variance) : -1.0,
            .at_bound = log(value / constant->least) < near_bound ||
                        log(constant->most / value) < near_bound,
            .blind = is_blind(c, i),
        };
    }
    sp_status status =
        fit_model_predict(&outcome->model, constants, NULL, outcome->predicted, c->err);
    if (status == SP_OK) {
        status = fit_i_table_errors(&outcome->rows, outcome->predicted, outcome->errors, c->err);
    }
    return status;
}

static void find_correlations(fit_i_calibration *c)
{
    fit_outcome *outcome = c->outcome;
    int count = outcome->model.constant_count;
    const double *covariance = c->best.covariance;
    for (int a = 0; a < count; a++) {
        for (int b = a + 1; b < count; b++) {
            double scale = sqrt(covariance[a * count + a] * covariance[b * count + b]);
            double r = scale > 0.0 ? covariance[a * count + b] / scale : 0.0;
            if (fabs(r) >= FIT_CORRELATED) {
                outcome->correlations[outcome->correlation_count++] =
                    (fit_correlation){.a = a, .b = b, .r = r};
            }
        }
    }
}
