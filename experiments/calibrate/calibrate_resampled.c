#include "experiments/calibrate/calibrate_resampled.h"

#include <math.h>

#include "experiments/calibrate/resample.h"
#include "sim/base/alloc.h"

// Of "fold 2" or "resample 7", which may have too few rows for a fit that all rows allow.
static sp_status refit_part(fit_i_calibration *c, const char *part, int number,
                            const double *weight, fit_solution *solution)
{
    sp_error *outer = c->err;
    sp_error inner;
    sp_error_clear(&inner);
    c->err = &inner;
    sp_status status = fit_i_refit(c, &c->outcome->model, weight, &c->best.derivatives, solution);
    c->err = outer;
    return status == SP_OK
               ? SP_OK
               : sp_error_set(outer, status, "%s %d: %.500s", part, number, inner.message[0]);
}

// ---- cross-validation ----

// Leaves fold k of every table out at once.
static sp_status leave_out(fit_i_calibration *c, int k, double *weight, uint8_t *held)
{
    fit_outcome *outcome = c->outcome;
    fit_solution solution;
    for (size_t row = 0; row < outcome->rows.count; row++) {
        held[row] = outcome->fold[row] == k;
        weight[row] = held[row] != 0 ? 0.0 : outcome->rows.weight[row];
    }
    sp_status status = refit_part(c, "fold", k + 1, weight, &solution);
    if (status == SP_OK) {
        status =
            fit_model_predict(&outcome->model, solution.constants, held, outcome->left_out, c->err);
        fit_solution_fini(&solution);
        fit_i_step_done(c);
    }
    return status;
}

sp_status fit_i_cross_validate(fit_i_calibration *c)
{
    fit_outcome *outcome = c->outcome;
    size_t count = outcome->rows.count;
    double *weight = sp_i_calloc(count, sizeof *weight);
    uint8_t *held = sp_i_calloc(count, sizeof *held);
    sp_status status = weight != NULL && held != NULL ? SP_OK : sp_error_no_memory(c->err, "folds");
    int most = 0;
    for (int t = 0; t < outcome->rows.table_count; t++) {
        most = outcome->folds[t] > most ? outcome->folds[t] : most;
    }
    for (int k = 0; status == SP_OK && k < most; k++) {
        status = leave_out(c, k, weight, held);
    }
    for (int t = 0; status == SP_OK && t < outcome->rows.table_count; t++) {
        if (outcome->folds[t] > 0) {
            status =
                fit_errors_of(outcome->rows.observed, outcome->left_out, outcome->rows.first[t],
                              outcome->rows.first[t + 1], &outcome->fold_errors[t], c->err);
        }
    }
    sp_i_free(weight);
    sp_i_free(held);
    return status;
}

// ---- bootstrap ----

static void draw(fit_i_calibration *c, sp_prng *prng, double *weight)
{
    const fit_rows *rows = &c->outcome->rows;
    for (int t = 0; t < rows->table_count; t++) {
        fit_draw_rows(prng, rows->first[t], rows->first[t + 1], weight);
    }
    for (size_t row = 0; row < rows->count; row++) {
        weight[row] *= rows->weight[row];
    }
}

sp_status fit_i_bootstrap(fit_i_calibration *c)
{
    fit_outcome *outcome = c->outcome;
    int count = outcome->model.constant_count;
    double mean[FIT_CONSTANTS] = {0.0};
    double squares[FIT_CONSTANTS] = {0.0}; // of deviations, by Welford's recurrence
    double *weight = sp_i_calloc(outcome->rows.count, sizeof *weight);
    sp_status status = weight != NULL ? SP_OK : sp_error_no_memory(c->err, "a resample");
    sp_prng prng;
    // Not the numbers that dealt the folds.
    sp_prng_seed(&prng, c->spec->seed ^ UINT64_C(0x9e3779b97f4a7c15));
    for (int b = 0; status == SP_OK && b < c->resamples; b++) {
        fit_solution solution;
        draw(c, &prng, weight);
        status = refit_part(c, "resample", b + 1, weight, &solution);
        if (status != SP_OK) {
            break;
        }
        for (int i = 0; i < count; i++) {
            double deviation = log(solution.constants[i] / c->best.constants[i]) - mean[i];
            mean[i] += deviation / (double)(b + 1);
            squares[i] += deviation * (log(solution.constants[i] / c->best.constants[i]) - mean[i]);
        }
        fit_solution_fini(&solution);
        fit_i_step_done(c);
    }
    if (status == SP_OK && c->resamples >= 2) {
        outcome->resamples = c->resamples;
        for (int i = 0; i < count; i++) {
            outcome->values[i].spread = sqrt(squares[i] / (double)(c->resamples - 1));
        }
    }
    sp_i_free(weight);
    return status;
}
