// The cold start of groups (strategy.group_start_ms). Private to solver.
#ifndef SLIMPACK_SOLVER_STEP_GROUP_STARTS_H
#define SLIMPACK_SOLVER_STEP_GROUP_STARTS_H

#include "sim/cost/step_costs.h"
#include "sim/scenario/scenario.h"

// The groups that the job has so far.
typedef struct sp_i_group_starts {
    double start_ms; // 0: groups are there from the beginning
    int dp;
    bool *started; // [3 * dp], by sp_zone_of; 0: all ranks
    int *joined;   // [dp] groups that a pack has each rank join; 0 between packs
} sp_i_group_starts;

void sp_i_group_starts_init(sp_i_group_starts *starts, const sp_scenario *scenario);
void sp_i_group_starts_fini(sp_i_group_starts *starts);

// Adds what the groups of a packing take that no earlier packing had, to the forwards of their
// first packs. A rank joins its groups one after the other, groups without a common rank start at
// the same time, and a pack waits for the rank that joins most. O(slices + packs * (dp + classes)).
void sp_i_group_starts_add(sp_i_group_starts *starts, const sp_packing *packing,
                           sp_step_costs *costs);

// The same for a packing that is only tried. NULL: nothing starts.
void sp_i_group_starts_try(const sp_i_group_starts *starts, const sp_packing *packing,
                           sp_step_costs *costs);

#endif
