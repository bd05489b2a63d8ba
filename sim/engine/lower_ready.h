// Which action may run: what it reads is lowered, on its own rank and on its neighbour.
#ifndef SLIMPACK_SIM_ENGINE_LOWER_READY_H
#define SLIMPACK_SIM_ENGINE_LOWER_READY_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/engine/lowering.h"

// Can the lane run this action, as far as its own rank and its neighbour are concerned?
bool sp_i_lower_ready(const sp_i_lowering *low, sp_action action, int dp, int pp_rank);

// A merged pack runs on its data-parallel ranks together: has every one come to the action?
bool sp_i_lower_group_ready(const sp_i_lowering *low, sp_action action, int pp_rank);

// The neighbour's task that this action waits for, SP_I_NONE before it is lowered, and the lag
// after it. Returns false when it waits for none.
bool sp_i_lower_source(const sp_i_lowering *low, sp_action action, int dp, int pp_rank, int vstage,
                       int32_t *task, int64_t *lag_ns);

#endif
