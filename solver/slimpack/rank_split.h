// Phase 1: samples to data-parallel ranks. Private to solver.
#ifndef SLIMPACK_SOLVER_SLIMPACK_RANK_SPLIT_H
#define SLIMPACK_SOLVER_SLIMPACK_RANK_SPLIT_H

#include <stdbool.h>

#include "solver/slimpack/rank_groups.h"
#include "solver/work.h"

// Neighbouring data-parallel ranks that run their packs together (DP-Merge), or one alone.
typedef struct sp_i_rank_group {
    int dp_first, dp_count;
    int32_t *sample; // [count], longest first; owned
    size_t count;
    double work_s; // of all its samples over its ranks
} sp_i_rank_group;

typedef struct sp_i_rank_split {
    sp_i_rank_group *groups;
    int count;
    sp_i_merge_costs costs;
    double bound_s; // no groups and no assignment have a smaller largest work_s
} sp_i_rank_split;

// Forward plus backward work to the ranks: longest processing time first, then exchanges between
// two ranks (makespan.h). A sample that exceeds `merge_share` of a rank's fair share, or has
// more tokens than `token_limit` (0: any), gets a power-of-two aligned group of ranks
// (rank_groups.h) of the sizes and at the costs that are given; merge_share 0: no rank is
// merged. O(samples log samples), and the exchanges.
sp_status sp_i_rank_split_priced(const sp_i_work *work, const sp_batch *batch, int dp,
                                 const sp_i_merge_costs *costs, double merge_share,
                                 int64_t token_limit, sp_i_rank_split *split, sp_error *err);
// The largest group's work over the bound, less 1.
double sp_i_rank_split_gap(const sp_i_rank_split *split);
// A copy of its own.
sp_status sp_i_rank_split_copy(const sp_i_rank_split *from, sp_i_rank_split *to, sp_error *err);
// Moves samples, the longest that fit first, of at most `work_s` seconds from one group to another;
// *moved is false where none is so small, or where it would leave the group without a sample.
sp_status sp_i_rank_split_move(const sp_i_work *work, const sp_batch *batch, sp_i_rank_split *split,
                               int from, int to, double work_s, bool *moved, sp_error *err);
void sp_i_rank_split_fini(sp_i_rank_split *split);

// Replaces, by integer programming, an assignment without merged ranks by a better one, or raises
// its bound, where there are few enough samples and its gap is larger than `gap` (negative: 1e-3).
// A limit of nodes and iterations ends the search, before it one of time in milliseconds; 0: no
// limit of time.
sp_status sp_i_rank_split_prove(const sp_i_work *work, const sp_batch *batch, int64_t time_limit_ms,
                                double gap, sp_i_rank_split *split, sp_error *err);

#endif
