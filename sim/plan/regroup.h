// Where the slices of backward packs lie among the forward packs.
#ifndef SLIMPACK_SIM_PLAN_REGROUP_H
#define SLIMPACK_SIM_PLAN_REGROUP_H

#include "sim/plan/packing.h"

// Gives, for every slice of the backward list, the forward pack that holds the same slice, in an
// array the caller frees with sp_i_free; *pack is NULL where the packing has no backward packs of
// its own. The packing must hold every slice on both sides (sp_plan_check). O(slices * log slices).
sp_status sp_i_regroup(const sp_packing *packing, int32_t **pack, sp_error *err);

#endif
