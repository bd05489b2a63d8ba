// Statistics of a list of lengths.
#ifndef SLIMPACK_SIM_WORKLOAD_LENGTH_STATS_H
#define SLIMPACK_SIM_WORKLOAD_LENGTH_STATS_H

#include <stdint.h>

#include "sim/base/status.h"
#include "sim/workload/lengths.h"

enum { SP_LENGTH_QUANTILES = 10, SP_LENGTH_BINS = 32 };

extern const char *const sp_length_quantile_names[SP_LENGTH_QUANTILES]; // "p1", ..., "p99.9"

// Lengths in (previous upto, upto]; bins double from 128.
typedef struct sp_length_bin {
    int64_t upto;
    int64_t samples;
    int64_t tokens;
    double sum_squares;
} sp_length_bin;

typedef struct sp_length_stats {
    int64_t count;
    int64_t tokens;
    int64_t min, max;
    double mean;
    double stddev; // population
    double sum_squares;
    double token_weighted_mean;             // sum s^2 / sum s
    int64_t quantiles[SP_LENGTH_QUANTILES]; // nearest rank: smallest length with CDF >= q
    sp_length_bin bins[SP_LENGTH_BINS];
    int bin_count; // bins up to the one that holds the longest sample
} sp_length_stats;

// O(n) expected; reorders the list. The list must not be empty (content error naming `source`).
sp_status sp_length_stats_compute(sp_lengths *lengths, const char *source, sp_length_stats *stats,
                                  sp_error *err);

#endif
