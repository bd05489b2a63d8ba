// Folding: data-parallel ranks that are provably alike are simulated once and counted.
#ifndef SLIMPACK_SIM_ENGINE_FOLD_H
#define SLIMPACK_SIM_ENGINE_FOLD_H

#include <stdbool.h>

#include "sim/base/status.h"
#include "sim/cost/step_costs.h"
#include "sim/plan/timeline.h"

// Two ranks are alike when their action lists are equal up to the numbering of their packs, every
// pack costs and holds the same, and regrouped packs take the same tokens from the same forward
// packs. Merged packs tie ranks together: nothing is folded then, nor when `unfold`. O(actions)
// expected.
sp_status sp_i_fold(const sp_plan *plan, const sp_step_costs *costs, bool unfold,
                    sp_alike_ranks *alike, sp_error *err);
void sp_i_alike_fini(sp_alike_ranks *alike);

#endif
