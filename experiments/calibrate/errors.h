// How far predictions are from what was measured.
#ifndef SLIMPACK_EXPERIMENTS_CALIBRATE_ERRORS_H
#define SLIMPACK_EXPERIMENTS_CALIBRATE_ERRORS_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/status.h"

// Fractions; the error of a row is predicted / observed - 1.
typedef struct fit_errors {
    bool known;
    double mean, median, p90; // of absolute errors; p90: nine in ten are at most so large
    double bias;              // mean error
    double worst;             // the error that is largest in size
    size_t worst_row;
} fit_errors;

// Of rows [first, end); unknown where there are none. O(n log n).
sp_status fit_errors_of(const double *observed, const double *predicted, size_t first, size_t end,
                        fit_errors *errors, sp_error *err);

#endif
