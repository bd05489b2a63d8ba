// GPUs of one kind that do not compute equally fast: what a step waits for is the slowest of those
// that work together.
#ifndef SLIMPACK_SIM_ENGINE_JITTER_H
#define SLIMPACK_SIM_ENGINE_JITTER_H

#include "sim/model/cluster.h"
#include "sim/model/layout.h"

// How many times as long each pipeline rank computes, [dp * pp + pp rank], freed with sp_free: the
// most of its tp * cp GPUs, of which GPU g takes 1 + gpu_cv * z, z being number g of a sequence of
// normal variates (Box, Muller 1958) and the whole at least a half. The same seed gives the same
// GPUs in every layout. O(ranks).
double *sp_i_jitter_factors(const sp_layout *layout, const sp_jitter *jitter);

// How many times the mean the slowest GPU of a layout takes with the jitter's seed: what a step
// waits for where all of them have as much to compute. O(GPUs).
double sp_jitter_slowest(const sp_layout *layout, const sp_jitter *jitter);

// The mean of that over seeds, for `gpus` GPUs: of the largest of n variates of distribution
// function F, it is the integral of 1 - F^n (David, Nagaraja, Order Statistics, 3rd ed. 2003,
// section 3.1). It grows as sqrt(2 log n). O(1).
double sp_jitter_expected_slowest(double gpu_cv, int64_t gpus);

#endif
