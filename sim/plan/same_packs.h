// Backward packs that are forward packs.
#ifndef SLIMPACK_SIM_PLAN_SAME_PACKS_H
#define SLIMPACK_SIM_PLAN_SAME_PACKS_H

#include "sim/plan/packing.h"

// Of each pack of packing->backward the forward pack with the same slices in the same order, -1
// where there is none, in an array that the caller frees with sp_i_free. Neither side need be
// complete. O(slices), and the square of the packs that begin with one sample.
sp_status sp_i_same_packs(const sp_packing *packing, int32_t **forward, sp_error *err);

#endif
