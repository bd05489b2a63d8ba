// How steps are evaluated, and what an observer sees of each.
#ifndef SLIMPACK_SOLVER_STEP_OPTIONS_H
#define SLIMPACK_SOLVER_STEP_OPTIONS_H

#include "sim/simulate/allocator_replay.h"
#include "sim/simulate/engine.h"

// A step while its plan, costs and timelines are alive (export, plan files).
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
    bool allocator_peak;    // also the peak that an allocator counts (costs several simulations)
    bool allocator_if_near; // that peak only of steps that fit and fill SP_MEMORY_NEAR of the limit
    sp_world_rank rank_peak; // the allocator's peak of one rank alone
    int64_t reserved_bytes;  // what that peak was found to reserve before; 0: not known
    bool no_bounds; // leaves lower bounds and gaps unknown, which saves most of a small step
    // Leaves causes unknown, for sweeps: what fills the peak, and of which sample and with which
    // settings a step out of memory would fit.
    bool no_causes;
    bool names_sample;  // of a step out of memory all the same, which costs a few small steps
    bool ends_when_oom; // no further batches after the first that is out of memory
    int effort_percent; // of the effort of strategies that search by effort; 0: all of it
    int threads;        // to solve each batch on; 0: one. The plans are the same for any number
    bool any_rate;      // rates above the GPU's peak are no error: a fit tries constants
    bool compared;      // schedule.kind is for the strategies that bring no order of their own
    sp_step_observer observer; // may be NULL
    void *observer_context;
} sp_evaluate_options;

#endif
