// Folding: data-parallel ranks that are provably alike are simulated once and counted.
#ifndef SLIMPACK_SIM_ENGINE_FOLD_H
#define SLIMPACK_SIM_ENGINE_FOLD_H

#include <stdbool.h>

#include "sim/base/status.h"
#include "sim/cost/step_costs.h"
#include "sim/plan/plan.h"

typedef struct sp_i_folding {
    int simulated; // distinct data-parallel ranks
    int *rank;     // [simulated]: the first rank of each kind, ascending
    int *kind;     // [dp]: which of them a rank is like
    int *members;  // [dp]: ranks by kind, ascending inside a kind
    int *first;    // [simulated + 1]: members of kind k are members[first[k] .. first[k+1])
} sp_i_folding;

// Two ranks are alike when their action lists are equal up to the numbering of their packs, every
// pack costs and holds the same, and regrouped packs take the same tokens from the same forward
// packs. Merged packs tie ranks together: nothing is folded then, nor when `unfold`. O(actions)
// expected.
sp_status sp_i_fold(const sp_plan *plan, const sp_step_costs *costs, bool unfold,
                    sp_i_folding *folding, sp_error *err);
void sp_i_folding_fini(sp_i_folding *folding);

#endif
