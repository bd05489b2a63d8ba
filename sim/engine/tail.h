// The end of a step: when the gradients of each pipeline rank are reduced and its optimizer runs.
#ifndef SLIMPACK_SIM_ENGINE_TAIL_H
#define SLIMPACK_SIM_ENGINE_TAIL_H

#include "sim/cost/step_costs.h"
#include "sim/plan/timeline.h"

// Fills the tails of all ranks, makespan and iteration. The optimizer of a pipeline rank waits for
// the reduction of its gradients, which needs those of all data-parallel ranks. O(spans + ranks *
// chunks^2).
sp_status sp_i_fill_tail(const sp_step_costs *costs, sp_timeline *timeline, sp_error *err);

#endif
