// Fits to parts of the rows: k-fold cross-validation and the bootstrap.
#ifndef SLIMPACK_EXPERIMENTS_CALIBRATE_CALIBRATE_RESAMPLED_H
#define SLIMPACK_EXPERIMENTS_CALIBRATE_CALIBRATE_RESAMPLED_H

#include "experiments/calibrate/refit.h"

// Fills outcome->left_out and fold_errors.
sp_status fit_i_cross_validate(fit_i_calibration *c);
// Fills the spreads of outcome->values from c->resamples resamples.
sp_status fit_i_bootstrap(fit_i_calibration *c);

#endif
