// How long PackFlow takes over the packs of one data-parallel rank, without tables of a whole step:
// what the search for a packing judges its candidates by. Private to solver.
#ifndef SLIMPACK_SOLVER_RANK_SCORE_H
#define SLIMPACK_SOLVER_RANK_SCORE_H

#include "sim/cost/cost_model.h"
#include "sim/scenario/scenario.h"
#include "solver/pack_memory.h"
#include "solver/packflow_outcome.h"

// Has a cost model of its own, so that several can work side by side.
typedef struct sp_i_rank_scorer {
    const sp_scenario *scenario;
    sp_cost_model cost;
    sp_i_pack_memory memory;     // of the packs at hand
    sp_i_fullest_pack *fullest;  // [dp] of the packs at hand
    double p2p_ns, p2p_token_ns; // between pipeline ranks: fixed, and per token of a pack
    int64_t *class_ns;           // [2 * classes]
    int64_t *token_bytes, *room_bytes;
    int64_t *times; // of the packs at hand
    size_t times_capacity;
    int64_t *tokens; // of forward packs, of backward packs, then their transfers
    size_t tokens_capacity;
} sp_i_rank_scorer;

// For samples of up to so many tokens.
sp_status sp_i_rank_scorer_init(sp_i_rank_scorer *scorer, const sp_scenario *scenario,
                                const sp_cost_model *cost, int64_t longest_tokens, sp_error *err);
void sp_i_rank_scorer_fini(sp_i_rank_scorer *scorer);

// Tokens of one sample that every pipeline rank can hold at once, as its backwards begin; 0: any.
int64_t sp_i_rank_scorer_most_tokens(sp_i_rank_scorer *scorer, bool split);

// Of a packing that holds one rank's packs, or those of ranks that share them all; `need` says for
// each backward pack which forward packs it waits for (packflow.h); `split`: input and weight
// gradients apart. O(slices + actions).
sp_status sp_i_rank_score(sp_i_rank_scorer *scorer, const sp_packing *packing, const int32_t *need,
                          bool split, sp_i_packflow_outcome *outcome, sp_error *err);

#endif
