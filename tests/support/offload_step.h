// A step with copies to host memory, and all that is made of it.
#ifndef SLIMPACK_TESTS_SUPPORT_OFFLOAD_STEP_H
#define SLIMPACK_TESTS_SUPPORT_OFFLOAD_STEP_H

#include <stdbool.h>

#include "sim/cost/step_costs.h"
#include "sim/metrics/metrics.h"
#include "sim/plan/plan.h"
#include "sim/simulate/engine.h"

typedef struct offload_step {
    sp_layout layout;
    sp_batch batch;
    sp_packing packing;
    sp_plan plan;
    sp_step_costs costs;
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts;
    sp_step_metrics metrics;
} offload_step;

// Adds the copies to the plan and checks it.
void step_offload(offload_step *s);
// Under --verify.
void step_simulate(offload_step *s, bool unfold);

// What the simulation made, and everything.
void step_outcome_fini(offload_step *s);
void offload_step_fini(offload_step *s);

// Names of the actions of a pipeline rank of data-parallel rank 0.
void step_assert_actions(const offload_step *s, int pp_rank, const char *expected);

// Bytes on the GPU from `time_ns` on, on the first rank.
int64_t step_held_at(const offload_step *s, int64_t time_ns);

#endif
