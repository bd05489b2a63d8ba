// Attention time of the CP rank that takes longest over a pack, by the way its tokens are cut.
// Private to sim/cost.
#ifndef SLIMPACK_SIM_COST_CP_LOAD_H
#define SLIMPACK_SIM_COST_CP_LOAD_H

#include "sim/cost/attention_load.h"

// Fills forward_s and backward_s, those that are asked for, of one layer: every layer gathers keys
// and values anew, so that the ranks wait for the slowest of each pass. The layout must shard in
// another way than evenly and have several CP ranks. Adaptive takes the way whose passes of the
// whole step, forward (again where it is recomputed) and backward, are the shorter together, the
// sequence where they are alike: the forward and the backward of a pack agree on it. O(slices *
// cp).
void sp_i_cp_slowest_s(const sp_i_attention *attention, const sp_pack_list *list,
                       const sp_pack *pack, bool forward, bool backward, sp_i_attention_load *load);

#endif
