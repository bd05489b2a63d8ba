// Where the CP ranks' pieces of a pack come from in the backward. Private to sim/cost.
#ifndef SLIMPACK_SIM_COST_CP_REGROUP_H
#define SLIMPACK_SIM_COST_CP_REGROUP_H

#include "sim/model/layout.h"
#include "sim/plan/packing.h"

// A pack as it was cut.
typedef struct sp_i_cp_row {
    const sp_pack_list *list;
    const sp_pack *pack;
} sp_i_cp_row;

// Sequence and adaptive sharding depend on what else is in the pack and in which order. A backward
// pack over several CP ranks must hold the slices of one forward pack, whose cut it then keeps:
// otherwise activations would have to change ranks in between. *forward_pack is sp_regroup's,
// freed by the caller; NULL for the other ways, and where there are no backward packs. Errors:
// SP_ERR_CONTENT at strategy.cp_sharding of `source`, SP_ERR_NO_MEMORY. O(slices * log slices).
sp_status sp_i_cp_regroup(const sp_layout *layout, const sp_packing *packing, const char *source,
                          int32_t **forward_pack, sp_error *err);

// The forward pack whose cut a backward pack keeps, else the pack itself.
sp_i_cp_row sp_i_cp_row_of(const sp_layout *layout, const sp_packing *packing,
                           const int32_t *forward_pack, const sp_pack *pack);

#endif
