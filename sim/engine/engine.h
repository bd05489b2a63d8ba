// The simulation of one step: plan and costs to timeline and memory.
#ifndef SLIMPACK_SIM_ENGINE_ENGINE_H
#define SLIMPACK_SIM_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/cost/step_costs.h"
#include "sim/plan/plan.h"
#include "sim/plan/timeline.h"

typedef struct sp_engine_options {
    bool unfold; // simulate alike data-parallel ranks one by one (tests: must not change a number)
    bool memory_points; // keep the whole memory timeline, not only the peaks
    bool verify;        // check the makespan against an independent longest path (igraph)
    const char *source; // names the plan in messages; NULL: "plan"
} sp_engine_options;

typedef struct sp_engine_counts {
    size_t tasks, edges; // lowered (alike ranks counted once)
} sp_engine_counts;

// Simulates the plan. A plan that cannot finish is SP_ERR_DEADLOCK with the cycle in the plan's
// words; a failed --verify is SP_ERR_INTERNAL.
sp_status sp_simulate(const sp_plan *plan, const sp_step_costs *costs,
                      const sp_engine_options *options, sp_timeline *timeline,
                      sp_memory_timeline *memory, sp_engine_counts *counts, sp_error *err);

#endif
