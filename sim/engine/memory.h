// The memory timeline: bytes allocated and freed by the actions of a timeline.
#ifndef SLIMPACK_SIM_ENGINE_MEMORY_H
#define SLIMPACK_SIM_ENGINE_MEMORY_H

#include <stdbool.h>

#include "sim/cost/step_costs.h"
#include "sim/engine/timeline.h"

// Walks every rank entry of the timeline: states all the time; what a unit holds from the start of
// its F to the end of its B, but what an O takes away from the end of the O to the start of the L
// that brings it back; of a split backward what the weight gradient needs to the end of W
// (regrouped packs: all of it); transients while an action runs. With `points` the whole course is
// kept. Every rank must drain back to its states, else SP_ERR_INTERNAL. O(spans).
sp_status sp_i_memory_replay(const sp_timeline *timeline, const sp_step_costs *costs, bool points,
                             sp_memory_timeline *memory, sp_error *err);

#endif
