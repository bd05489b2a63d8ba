// Samples to ranks at the costs of merging that are assumed where none were measured.
#ifndef SLIMPACK_TESTS_SUPPORT_ASSUMED_SPLIT_H
#define SLIMPACK_TESTS_SUPPORT_ASSUMED_SPLIT_H

#include "solver/slimpack/slimpack_search.h"

// sp_i_rank_split_priced for groups of at most `most_merged` ranks.
static inline void assumed_split(const sp_i_work *work, const sp_batch *batch, int dp,
                                 int most_merged, double merge_share, int64_t token_limit,
                                 sp_i_rank_split *split)
{
    const sp_i_merge_costs costs = sp_i_merge_costs_assumed(most_merged);
    sp_i_rank_split_priced(work, batch, dp, &costs, merge_share, token_limit, split);
}

#endif
