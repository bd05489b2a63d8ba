// The state of a calibration (calibrate.h), and the fits that its parts make.
#ifndef SLIMPACK_EXPERIMENTS_CALIBRATE_REFIT_H
#define SLIMPACK_EXPERIMENTS_CALIBRATE_REFIT_H

#include <stdint.h>

#include "experiments/calibrate/outcome.h"
#include "sim/base/progress.h"

typedef struct fit_i_calibration {
    const fit_spec *spec;
    const fit_source *sources;
    int source_count;
    fit_outcome *outcome;
    fit_solution best; // of all rows
    int resamples;
    sp_progress progress;
    int64_t steps_done; // of the progress
    sp_error *err;
} fit_i_calibration;

// Fits to all rows: fills c->best, and counts it in the outcome.
sp_status fit_i_fit_all_rows(fit_i_calibration *c);

// Fits `model` once more with other weights, from the constants of c->best. `derivatives` may be
// NULL.
sp_status fit_i_refit(fit_i_calibration *c, const fit_model *model, const double *weight,
                      const fit_derivatives *derivatives, fit_solution *solution);

void fit_i_step_done(fit_i_calibration *c);

// Errors of every table's predictions.
sp_status fit_i_table_errors(const fit_rows *rows, const double *predicted,
                             fit_errors errors[FIT_TABLES], sp_error *err);

#endif
