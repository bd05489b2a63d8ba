// Which data-parallel ranks run their packs together (DP-Merge), and what no choice of them can
// beat. Private to solver.
#ifndef SLIMPACK_SOLVER_RANK_GROUPS_H
#define SLIMPACK_SOLVER_RANK_GROUPS_H

#include <stddef.h>

#include "sim/base/status.h"
#include "solver/merge_costs.h"

typedef struct sp_i_group_problem {
    const double *work_s; // [count] of the samples, descending
    const int *least;     // [count] ranks that a sample's tokens need, a power of two, descending
    size_t count;
    int dp;
    const sp_i_merge_costs *costs; // of which the largest group has dp ranks at most
    double merge_share; // of a rank's fair share, beyond which a sample is to have several ranks
} sp_i_group_problem;

// Sizes of the groups, powers of two, descending, so that groups side by side from rank 0 on are
// aligned: size [dp], of which *groups are filled. First the longest samples get the least group in
// which none of them exceeds its share. Where the last group would still end late, because several
// such samples meet in a group that is too small for them, sizes are joined and split as long as
// the overload of all groups gets less. O(samples * log samples), in the second case times dp.
sp_status sp_i_group_sizes(const sp_i_group_problem *p, int *size, int *groups, sp_error *err);

// No groups and no assignment of samples to them end earlier. To end by T a sample with more work
// than T, or with tokens that ask for it, runs in a group that is large enough, at the cost of
// merging; with these costs all ranks together have to have room for all work until T. The least
// such T, by bisection. Without merging: sp_i_makespan_bound_s.
double sp_i_group_bound_s(const sp_i_group_problem *p);

#endif
