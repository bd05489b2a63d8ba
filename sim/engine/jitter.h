// GPUs of one kind that do not compute equally fast: what a step waits for is the slowest of those
// that work together.
#ifndef SLIMPACK_SIM_ENGINE_JITTER_H
#define SLIMPACK_SIM_ENGINE_JITTER_H

#include "sim/model/cluster.h"
#include "sim/model/layout.h"

// How many times as long each pipeline rank computes, [dp * pp + pp rank], freed with sp_free: the
// most of its tp * cp GPUs, of which GPU g takes 1 + gpu_cv * z, z being number g of a sequence of
// normal variates (Box, Muller 1958) and the whole at least a half. The same seed gives the same
// GPUs in every layout. O(ranks). Error: SP_ERR_NO_MEMORY.
sp_status sp_i_jitter_factors(const sp_layout *layout, const sp_jitter *jitter, double **factors,
                              sp_error *err);

#endif
