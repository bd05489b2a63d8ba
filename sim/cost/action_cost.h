// What one action of a plan costs its rank, and what a share of a vocabulary does.
#ifndef SLIMPACK_SIM_COST_ACTION_COST_H
#define SLIMPACK_SIM_COST_ACTION_COST_H

#include <stdbool.h>

#include "sim/cost/step_costs.h"
#include "sim/plan/depends.h"
#include "sim/plan/plan.h"

// Cost of one action of the plan on its virtual stage, without its rank's shares of a vocabulary;
// `recomputed` says that the plan recomputes all of a backward's forward packs explicitly, so that
// it does not.
sp_action_cost sp_action_cost_of(const sp_plan *plan, const sp_step_costs *costs, sp_action action,
                                 int vstage, bool recomputed);

// Cost of a rank's share of a vocabulary's work.
sp_action_cost sp_share_cost_of(const sp_plan *plan, const sp_step_costs *costs,
                                const sp_share *share);

#endif
