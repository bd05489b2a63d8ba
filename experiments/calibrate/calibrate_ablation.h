// The model without its parts, one at a time.
#ifndef SLIMPACK_EXPERIMENTS_CALIBRATE_CALIBRATE_ABLATION_H
#define SLIMPACK_EXPERIMENTS_CALIBRATE_CALIBRATE_ABLATION_H

#include "experiments/calibrate/refit.h"

// Fills outcome->ablations.
sp_status fit_i_ablate(fit_i_calibration *c);

#endif
