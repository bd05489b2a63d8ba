// Private to solver/evaluate.
#ifndef SLIMPACK_SOLVER_EVALUATE_GROUP_STARTS_H
#define SLIMPACK_SOLVER_EVALUATE_GROUP_STARTS_H

#include "sim/cost/step_costs.h"
#include "sim/scenario/scenario.h"

typedef struct sp_i_group_starts {
    double start_ms; // 0: groups are there from the beginning
    int dp;
    bool *started; // [3 * dp], by sp_zone_of; 0: all ranks
} sp_i_group_starts;

sp_status sp_i_group_starts_init(sp_i_group_starts *starts, const sp_scenario *scenario,
                                 sp_error *err);
void sp_i_group_starts_fini(sp_i_group_starts *starts);

// Adds what the groups of a packing take that no earlier packing had, to the forwards of their
// first packs. A pack that starts several pays for one after the other. O(slices + packs *
// classes).
void sp_i_group_starts_add(sp_i_group_starts *starts, const sp_packing *packing,
                           sp_step_costs *costs);

#endif
