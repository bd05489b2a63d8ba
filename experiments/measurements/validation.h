// Tables of measured steps against what is computed for them.
#ifndef SLIMPACK_EXPERIMENTS_MEASUREMENTS_VALIDATION_H
#define SLIMPACK_EXPERIMENTS_MEASUREMENTS_VALIDATION_H

#include "experiments/measurements/measurements.h"
#include "experiments/measurements/ranking.h"

// Errors are computed / measured - 1, of bubble rates computed - measured. What stays below a
// measured upper bound has none.
typedef struct sp_validated_case {
    double computed, error;
    sp_fits fits;              // in memory, as predicted
    double measured_mfu;       // of times with a model: of all pairs, as Megatron counts; else 0
    double plain, plain_error; // memory: of plain bytes in place of allocator blocks
} sp_validated_case;

typedef struct sp_validation {
    const sp_measurements *measurements; // not owned
    sp_validated_case *cases;            // one for each of the measurements; owned
    double mean_error, bias;             // mean of |error| and of error
    double median_error;                 // of |error|
    double plain_mean_error, plain_bias;
    sp_ranking ranking;
    size_t worst;      // case with the largest |error|, the first of equal ones
    bool within_bound; // true where there is no bound
} sp_validation;

// Simulates every case with its own profile; the outcome does not depend on the number of threads.
// An error is that of the first case that has one, or a measured value in a wrong unit.
sp_status sp_validation_run(const sp_measurements *measurements, int threads,
                            sp_validation *validation, sp_error *err);
void sp_validation_fini(sp_validation *validation);

// Is the error a difference of ratios, and not a share of what was measured?
bool sp_validation_is_difference(sp_measured kind);

// What the bound is of: mean |error|, or the largest one of differences.
double sp_validation_bounded_error(const sp_validation *validation);

#endif
