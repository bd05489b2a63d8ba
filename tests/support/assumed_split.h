// Samples to ranks where merged ranks are as dear as is assumed here.
#ifndef SLIMPACK_TESTS_SUPPORT_ASSUMED_SPLIT_H
#define SLIMPACK_TESTS_SUPPORT_ASSUMED_SPLIT_H

#include "solver/slimpack/slimpack_search.h"

// Of groups of at most `most_merged` ranks, each 5 % dearer than one rank.
static inline sp_i_merge_costs assumed_costs(int most_merged)
{
    sp_i_merge_costs costs = {.levels = 1, .cost = {1.0}};
    while (1 << costs.levels <= most_merged) {
        costs.cost[costs.levels++] = 1.05;
    }
    return costs;
}

// sp_i_rank_split_priced for groups of at most `most_merged` ranks.
static inline void assumed_split(const sp_i_work *work, const sp_batch *batch, int dp,
                                 int most_merged, double merge_share, int64_t token_limit,
                                 sp_i_rank_split *split)
{
    const sp_i_merge_costs costs = assumed_costs(most_merged);
    sp_i_rank_split_priced(work, batch, dp, &costs, merge_share, token_limit, split);
}

#endif
