// The search for the shape of one rank's packs: shapes are tried one after the other, each judged
// by a run of PackFlow over the cost model's times, and the fastest that fits in memory is taken.
// Private to solver.
#ifndef SLIMPACK_SOLVER_SLIMPACK_SHAPE_SEARCH_H
#define SLIMPACK_SOLVER_SLIMPACK_SHAPE_SEARCH_H

#include "sim/base/alloc.h"
#include "sim/cost/cost_model.h"
#include "sim/scenario/scenario.h"
#include "sim/schedule/packflow.h"
#include "solver/slimpack/micropacks.h"
#include "solver/step/pack_memory.h"

// The score of a packing that was asked for before: shapes that differ often make equal packs.
enum { SP_I_SCORES = 1024 };

typedef struct sp_i_score {
    uint64_t key; // of the packs and of all that is asked; 0: none. Packs of one key count as equal
    bool exact;   // else no better than what it was asked against
    sp_packflow_outcome outcome;
} sp_i_score;

// How long PackFlow takes over the packs of one data-parallel rank, without tables of a whole step:
// what the search judges its candidates by (rank_score.c).
typedef struct sp_i_rank_scorer {
    const sp_scenario *scenario;
    int64_t limit_bytes; // of memory
    sp_cost_model *cost;
    sp_arena arrays;             // those of fixed size
    sp_pack_memory memory;       // of the packs at hand
    sp_fullest_pack *fullest;    // [dp] of the packs at hand
    sp_i_score *scores;          // [SP_I_SCORES] at its key modulo their number, the last
    double p2p_ns, p2p_token_ns; // between pipeline ranks: fixed, and per token of a pack
    int64_t *class_ns;           // [3 * classes]
    sp_pack_room room;
    int64_t *times; // of the packs at hand
    size_t times_capacity;
    int64_t *tokens; // of forward packs, of backward packs, then their transfers
    size_t tokens_capacity;
} sp_i_rank_scorer;

// For samples of up to so many tokens; several that work side by side have a cost model each.
sp_status sp_i_rank_scorer_init(sp_i_rank_scorer *scorer, const sp_scenario *scenario,
                                sp_cost_model *cost, int64_t longest_tokens, sp_error *err);
void sp_i_rank_scorer_fini(sp_i_rank_scorer *scorer);

// Tokens of one sample that every pipeline rank can hold at once, as its backwards begin; 0: any.
int64_t sp_i_rank_scorer_most_tokens(sp_i_rank_scorer *scorer, bool split);

// Of a packing that holds one rank's packs, or those of ranks that share them all; `need` says for
// each backward pack which forward packs it waits for (packflow.h); `split`: input and weight
// gradients apart. What is no better than `beaten` may come out a little better than it is, but no
// better than that; NULL: all is exact. O(slices + actions).
sp_status sp_i_rank_score(sp_i_rank_scorer *scorer, const sp_packing *packing, const int32_t *need,
                          bool split, const sp_packflow_outcome *beaten,
                          sp_packflow_outcome *outcome, sp_error *err);

typedef struct sp_i_shape_search {
    sp_i_rank_scorer *scorer;
    const sp_i_work *work;
    const sp_batch *batch;
    bool split;           // input and weight gradients apart
    bool taper;           // packs may grow and shrink; otherwise all have equal work
    bool whole;           // long samples may stay whole where slices cost exchanges
    int64_t slice_tokens; // 0: searched as well
    int retained;         // of the shapes (micropacks.h)
    int64_t effort;       // left: actions that may be timed, of all virtual stages
    int64_t spent;        // work so far (solver/time_limit.h)
    uint64_t seed;        // of its random ways
    int64_t enough_ns;    // a shape that is as fast ends the search; 0: none is
    double deadline_s;    // of sp_clock_s(): no more trials after it; 0: none
} sp_i_shape_search;

typedef struct sp_i_best_shape {
    sp_i_shape shape;
    sp_packflow_outcome out;
} sp_i_best_shape;

// Of samples whose work is work_s on each of their ranks; at least one sample. *best is
// uninitialised, or `warm` the result of a search of nearly the same samples, from which this one
// starts. The search goes down from several shapes, and then again from random ones near the best;
// its sequence is fixed: the result depends on nothing but the arguments, and on the time where
// that runs out. At least one shape is tried. Backward packs mirror the forward packs.
sp_status sp_i_search_shape(sp_i_shape_search *search, const sp_i_rank_samples *samples,
                            double work_s, bool warm, sp_i_best_shape *best, sp_error *err);

// From the best shape on, backward packs that are a partition of their own, as long as that is
// better.
sp_status sp_i_search_regrouped(sp_i_shape_search *search, const sp_i_rank_samples *samples,
                                sp_i_best_shape *best, sp_error *err);

#endif
