// A whole scenario: batches, packing, schedule, simulation, result.
#ifndef SLIMPACK_SOLVER_EVALUATE_EVALUATE_H
#define SLIMPACK_SOLVER_EVALUATE_EVALUATE_H

#include "sim/engine/allocator_replay.h"
#include "sim/engine/engine.h"
#include "sim/metrics/result.h"
#include "sim/scenario/scenario.h"

// Called after each batch while its plan, costs and timelines are alive (export, plan files).
typedef struct sp_step_view {
    int batch;
    const sp_plan *plan;
    const sp_step_costs *costs;
    const sp_timeline *timeline;
    const sp_memory_timeline *memory;
    double lower_bound_ms; // negative: unknown
} sp_step_view;

typedef sp_status (*sp_step_observer)(void *context, const sp_step_view *view, sp_error *err);

typedef struct sp_evaluate_options {
    sp_engine_options engine;
    bool allocator_peak;     // also the peak that an allocator counts (costs several simulations)
    sp_world_rank rank_peak; // the same of one rank alone
    int64_t reserved_bytes;  // what that peak was found to reserve before; 0: not known
    bool no_bounds; // leaves lower bounds and gaps unknown, which saves most of a small step
    int threads;    // to solve each batch on; 0: one. The plans are the same for any number
    bool compared;  // schedule.kind is for the strategies that bring no order of their own
    const sp_batches *formed;  // of plans: what their batches left out; NULL: nothing is known
    sp_step_observer observer; // may be NULL
    void *observer_context;
} sp_evaluate_options;

// Forms the batches of the scenario's workload once, to be shared by several evaluations. Uniform
// costs have none: count 0.
SP_API sp_status sp_evaluate_batches(const sp_scenario *scenario, sp_batches *batches,
                                     sp_error *err);

// Evaluates the scenario with its strategy and schedule on these batches. SP_ERR_INFEASIBLE with
// the reason where the strategy cannot pack them. The caller frees the result.
SP_API sp_status sp_evaluate(const sp_scenario *scenario, const sp_batches *batches,
                             const sp_evaluate_options *options, sp_result *result, sp_error *err);

// Evaluates plans that exist already (plan.json), in place of packing and scheduling.
SP_API sp_status sp_evaluate_plans(const sp_scenario *scenario, const sp_plan *plans, int count,
                                   const sp_evaluate_options *options, sp_result *result,
                                   sp_error *err);

#endif
