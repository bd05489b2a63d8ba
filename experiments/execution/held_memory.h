// What ranks hold between their actions. What passes while an action runs is each executor's own;
// what is left after it is what the saved-tensor table (sim/model/footprint.h) describes, for the
// simulator and for whatever executes the plan.
#ifndef SLIMPACK_EXPERIMENTS_EXECUTION_HELD_MEMORY_H
#define SLIMPACK_EXPERIMENTS_EXECUTION_HELD_MEMORY_H

#include "sim/plan/timeline.h"

// Of one rank: of each category, the most that is held after any action.
typedef struct sp_held_memory {
    sp_bytes predicted, measured;
} sp_held_memory;

// Raises held[dp * pp + p] of every rank of the timeline to what it held after its actions;
// `memory` has its points. O(actions + points).
void sp_held_memory_add(sp_held_memory *held, int pp, const sp_timeline *timeline,
                        const sp_memory_timeline *memory, bool measured);

#endif
