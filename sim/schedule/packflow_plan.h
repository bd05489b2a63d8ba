// PackFlow as a schedule: the orders of all data-parallel ranks of a plan.
#ifndef SLIMPACK_SIM_SCHEDULE_PACKFLOW_PLAN_H
#define SLIMPACK_SIM_SCHEDULE_PACKFLOW_PLAN_H

#include "sim/schedule/packflow.h"
#include "sim/schedule/schedule.h"

// Fills the action lists of the plan by a run of packflow.h over the costs of
// its packs. Ranks that share merged packs must have equal lists, or their orders may wait for each
// other, which the engine finds. O(stages * packs).
sp_status sp_i_schedule_packflow(const sp_schedule_spec *spec, const sp_schedule_costs *costs,
                                 sp_plan *plan, sp_error *err);

// What a run gives for data-parallel rank `dp` alone, without a plan.
sp_status sp_i_packflow_rank(const sp_schedule_spec *spec, const sp_schedule_costs *costs,
                             const sp_packing *packing, const sp_layout *layout, int dp,
                             sp_packflow_result *result, sp_error *err);

#endif
