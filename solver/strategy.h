// Strategies: from the samples of a batch to a packing. One file per strategy.
#ifndef SLIMPACK_SOLVER_STRATEGY_H
#define SLIMPACK_SOLVER_STRATEGY_H

#include <stdbool.h>

#include "sim/cost/cost_model.h"
#include "sim/plan/packing.h"
#include "sim/scenario/scenario.h"

// What a strategy looks at.
typedef struct sp_strategy_input {
    const sp_scenario *scenario; // strategy, layout, memory, schedule
    const sp_batch *batch;       // with what earlier batches delayed in front
    size_t carried;              // so many samples in front
    int64_t context;             // tokens of a row at most
    sp_cost_model *cost;         // times of packs, also of those that are only tried
    int threads;                 // to solve on; 0: one
} sp_strategy_input;

// Fills a packing (uninitialised) that refers to the batch. SP_ERR_INFEASIBLE with the reason where
// the strategy has no packing for this batch.
typedef sp_status (*sp_strategy_pack_function)(const sp_strategy_input *input, sp_packing *packing,
                                               sp_error *err);

typedef struct sp_strategy {
    const char *name;
    sp_strategy_pack_function pack;
    bool rows;         // packs whole samples in rows of up to `context` tokens
    bool sliced;       // makes slices of its own: a sliced schedule does not cut its packs again
    bool brings_order; // its packs run in a schedule of its own, not in that of the scenario
    sp_schedule_kind schedule; // then that one
    bool split_backward;       // with input and weight gradients apart
    bool outlier_queues;       // may delay samples to later batches: then it is not lossless
    // Chooses the chunks of each rank where the scenario does not state them; NULL: it does not.
    sp_status (*choose_chunks)(sp_scenario *scenario, sp_error *err);
} sp_strategy;

SP_API_DATA const char *const sp_strategy_names[]; // NULL-terminated

// NULL: no strategy has this name.
SP_API const sp_strategy *sp_strategy_find(const char *name);

// Does it train every sample of a batch in its step? Not where it is asked for outlier queues.
SP_API bool sp_strategy_is_lossless(const sp_strategy *strategy, const sp_strategy_spec *spec);

// Puts the order that the scenario's strategy brings, if it brings one, in the place of
// schedule.kind, also in the resolved document if there is one, and resolves the scenario again,
// with the chunks per rank that the strategy chooses.
// Content errors: another kind stated in the scenario, unless strategies are `compared` and that is
// for the others; a layout that the order does not run on.
SP_API sp_status sp_strategy_resolve(sp_scenario *scenario, bool compared, sp_error *err);

// Is `name` a strategy? Otherwise a content error at `source`: strategy.kind, with the nearest
// name.
SP_API sp_status sp_strategy_check(const char *name, const char *source, sp_error *err);

#endif
