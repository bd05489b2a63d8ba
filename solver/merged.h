// DP-Merge for strategies of whole samples: packs that run on blocks of data-parallel ranks, their
// tokens sharded by context parallelism. A block of `degree` ranks begins at a multiple of its
// degree, and degrees are powers of two or all ranks, so any two blocks are nested or apart.
#ifndef SLIMPACK_SOLVER_MERGED_H
#define SLIMPACK_SOLVER_MERGED_H

#include "solver/strategy.h"

// The sample's tokens that one data-parallel rank takes at most: strategy.rank_tokens, or the
// context over all ranks (rounded up), so that all ranks together hold the longest sample.
int64_t sp_i_merged_rank_tokens(const sp_strategy_input *input);

// The next larger degree; that of all ranks has none larger and is its own.
int sp_i_merged_next(int degree, int dp);

// The smallest degree that holds the tokens; 0: not even all ranks do.
int sp_i_merged_degree(int64_t tokens, int64_t rank_tokens, int dp);

// SP_ERR_INFEASIBLE with the reason where a sample does not fit all ranks.
sp_status sp_i_merged_check(const sp_strategy_input *input, sp_error *err);

// A whole sample at the end of the last pack; false when memory runs out.
bool sp_i_merged_add(sp_packing *packing, int32_t sample);

// Puts the finished packs into an order that pipelines can run. Without a pipeline every common
// order is free of deadlock: a rank runs a pack forward and backward before its next one. With one,
// two ranks must also agree on which backwards stand between the forwards of two packs they share.
// They do if a shared pack has the same place among the packs of all its ranks, and the order of
// descending degree gives it that: whoever shares a pack shares all packs of larger degree, for the
// blocks are nested. Within a degree the packs stay in order.
sp_status sp_i_merged_order(const sp_strategy_input *input, sp_packing *packing, sp_error *err);

#endif
