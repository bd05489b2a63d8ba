// Built-in length distributions, each from a published table.
#ifndef SLIMPACK_SIM_WORKLOAD_DISTRIBUTION_H
#define SLIMPACK_SIM_WORKLOAD_DISTRIBUTION_H

#include <stdint.h>

#include "sim/base/prng.h"

// An inverse CDF by points: quantile[i] (ascending from 0 to 1) and the length there; between
// points the logarithm of the length is interpolated (or the length, where `linear`).
typedef struct sp_distribution {
    const char *name;   // "wikipedia"
    const char *title;  // one line for people
    const char *source; // where the table was published
    const double *quantile;
    const double *tokens;
    int points;
    int linear;
} sp_distribution;

int sp_distribution_count(void);
const sp_distribution *sp_distribution_at(int index);

// NULL when there is none of that name.
const sp_distribution *sp_distribution_find(const char *name);

// The length at quantile u in [0, 1): at least 1.
int64_t sp_distribution_quantile(const sp_distribution *distribution, double u);
int64_t sp_distribution_sample(const sp_distribution *distribution, sp_prng *prng);

#endif
