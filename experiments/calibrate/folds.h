// Rows drawn at random: the folds of a cross-validation, the resamples of a bootstrap.
#ifndef SLIMPACK_EXPERIMENTS_CALIBRATE_FOLDS_H
#define SLIMPACK_EXPERIMENTS_CALIBRATE_FOLDS_H

#include "experiments/calibrate/fit_model.h"
#include "sim/base/prng.h"

// fold[row] from 0 to folds[table] - 1, -1 in tables without (folds[table] 0). `count` of every
// table, or (negative) what the specification says of each: a number of folds, drawn at random by
// its seed, or groups of the rows that agree in some columns, each a fold of its own or put whole
// into so many folds. A table with fewer rows or groups has as many folds, with one none. Content
// errors: a column that the table does not have; more than FIT_FOLDS groups.
sp_status fit_assign_folds(const fit_spec *spec, const fit_rows *rows, int count,
                           int folds[FIT_TABLES], int *fold, sp_error *err);

// fold[first..end) = 0 to folds-1 in random order, each as often as the others, give or take one.
void fit_random_folds(sp_prng *prng, size_t first, size_t end, int folds, int *fold);

// times[first..end) = how often each row is among end - first draws with replacement (Efron,
// "Bootstrap Methods: Another Look at the Jackknife", 1979).
void fit_resample_rows(sp_prng *prng, size_t first, size_t end, double *times);

#endif
