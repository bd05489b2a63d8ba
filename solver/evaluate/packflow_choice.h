// PackFlow over the packs of a whole step: what its order looks at, and what comes of it. Private
// to solver.
#ifndef SLIMPACK_SOLVER_EVALUATE_PACKFLOW_CHOICE_H
#define SLIMPACK_SOLVER_EVALUATE_PACKFLOW_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/cost/cost_model.h"
#include "sim/scenario/scenario.h"

// What a run of PackFlow over packs comes to.
typedef struct sp_packflow_outcome {
    int64_t makespan_ns; // of the slowest rank
    bool fits;           // activations in memory
} sp_packflow_outcome;

// Fitting goes before time.
bool sp_packflow_is_better(const sp_packflow_outcome *a, const sp_packflow_outcome *b);

// Fills in what PackFlow looks at besides the times of every pack (sp_step_costs_by_pack): the
// memory of the plan's packs, in a block that the caller frees with sp_i_free when the order is
// made, and whether gradients run apart: only where that is faster, or fits where whole backwards
// do not.
sp_status sp_i_packflow_choose(const sp_scenario *scenario, const sp_cost_model *cost,
                               const sp_plan *plan, const sp_step_costs *costs,
                               sp_schedule_costs *times, sp_schedule_spec *spec, int64_t **memory,
                               sp_error *err);

#endif
