// Phase 1: samples to data-parallel ranks. Private to solver.
#ifndef SLIMPACK_SOLVER_RANK_SPLIT_H
#define SLIMPACK_SOLVER_RANK_SPLIT_H

#include <stdbool.h>

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
} sp_i_rank_split;

// Longest processing time first (Graham 1969) on forward plus backward work. A sample that exceeds
// `merge_share` of a rank's fair share, or has more tokens than `token_limit` (0: any), gets a
// power-of-two aligned group of ranks, at most the ranks of a node; merge_share 0: no rank is
// merged. O(samples log samples + samples log ranks).
sp_status sp_i_rank_split_make(const sp_i_work *work, const sp_batch *batch, int dp,
                               int most_merged, double merge_share, int64_t token_limit,
                               sp_i_rank_split *split, sp_error *err);
// A copy of its own.
sp_status sp_i_rank_split_copy(const sp_i_rank_split *from, sp_i_rank_split *to, sp_error *err);
// Moves samples, the longest that fit first, of at most `work_s` seconds from one group to another;
// *moved is false where none is so small, or where it would leave the group without a sample.
sp_status sp_i_rank_split_move(const sp_i_work *work, const sp_batch *batch, sp_i_rank_split *split,
                               int from, int to, double work_s, bool *moved, sp_error *err);
void sp_i_rank_split_fini(sp_i_rank_split *split);

#endif
