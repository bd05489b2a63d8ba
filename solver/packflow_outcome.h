// What PackFlow makes of a packing, before there is a plan. Private to solver.
#ifndef SLIMPACK_SOLVER_PACKFLOW_OUTCOME_H
#define SLIMPACK_SOLVER_PACKFLOW_OUTCOME_H

#include <stdbool.h>

#include "sim/cost/step_costs.h"
#include "sim/scenario/scenario.h"

typedef struct sp_i_packflow_outcome {
    int64_t makespan_ns; // of the slowest rank asked for
    bool fits;           // activations in memory
} sp_i_packflow_outcome;

// Fitting goes before time.
bool sp_i_packflow_is_better(const sp_i_packflow_outcome *a, const sp_i_packflow_outcome *b);

// Of data-parallel ranks [dp_first, dp_end), which have packs; `times` with those of every pack
// (sp_step_costs_by_pack); `split`: input and weight gradients apart.
sp_status sp_i_packflow_outcome_of(const sp_scenario *scenario, const sp_step_costs *costs,
                                   const sp_schedule_costs *times, const sp_packing *packing,
                                   bool split, int dp_first, int dp_end,
                                   sp_i_packflow_outcome *outcome, sp_error *err);

#endif
