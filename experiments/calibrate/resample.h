// Rows drawn at random: folds for cross-validation, resamples for the bootstrap.
#ifndef SLIMPACK_EXPERIMENTS_CALIBRATE_RESAMPLE_H
#define SLIMPACK_EXPERIMENTS_CALIBRATE_RESAMPLE_H

#include <stddef.h>

#include "sim/base/prng.h"
#include "sim/base/status.h"

// fold[first..end) = 0 to folds-1 in random order, each as often as the others, give or take one.
sp_status fit_deal_folds(sp_prng *prng, size_t first, size_t end, int folds, int *fold,
                         sp_error *err);

// times[first..end) = how often each row is among end - first draws with replacement (Efron,
// "Bootstrap Methods: Another Look at the Jackknife", 1979).
void fit_draw_rows(sp_prng *prng, size_t first, size_t end, double *times);

#endif
