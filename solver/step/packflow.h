// PackFlow over the packs of a whole step: what its order looks at. Private to solver.
#ifndef SLIMPACK_SOLVER_STEP_PACKFLOW_H
#define SLIMPACK_SOLVER_STEP_PACKFLOW_H

#include "sim/cost/cost_model.h"
#include "sim/scenario/scenario.h"
#include "sim/schedule/packflow.h"

// Fills in what PackFlow looks at besides the times of every pack (sp_step_costs_by_pack): the
// memory of the plan's packs, and whether gradients run apart: only where that is no slower, or
// fits where whole backwards do not. Where both orders were tried, the better one is there as well.
// All that is in memory of `work`, which the caller frees when the plan is made.
sp_status sp_i_packflow_choose(const sp_scenario *scenario, const sp_cost_model *cost,
                               const sp_plan *plan, const sp_step_costs *costs,
                               sp_schedule_costs *times, sp_schedule_spec *spec, sp_arena *work,
                               sp_error *err);

#endif
