// The search for the shape of one rank's packs: shapes are tried one after the other, each judged
// by a run of PackFlow over the cost model's times, and the fastest that fits in memory is taken.
// Private to solver.
#ifndef SLIMPACK_SOLVER_SHAPE_SEARCH_H
#define SLIMPACK_SOLVER_SHAPE_SEARCH_H

#include "solver/micropacks.h"
#include "solver/rank_score.h"

typedef struct sp_i_shape_search {
    sp_i_rank_scorer *scorer;
    const sp_i_work *work;
    const sp_batch *batch;
    bool split;           // input and weight gradients apart
    bool taper;           // packs may grow and shrink; otherwise all have equal work
    int64_t slice_tokens; // 0: searched as well
    int trials;           // shapes tried beyond the first ones, fewer where they have many packs
    double deadline_s;    // of sp_clock_s(): no more trials after it; 0: none
} sp_i_shape_search;

typedef struct sp_i_best_shape {
    sp_i_shape shape;
    sp_i_packflow_outcome out;
} sp_i_best_shape;

// Of samples whose work is work_s on each of their ranks; at least one sample. *best is
// uninitialised, or `warm` the result of a search of nearly the same samples, from which this one
// starts. The search is simulated annealing over a fixed random sequence: the result depends on
// nothing but the arguments, and on the time where that runs out. Backward packs mirror the forward
// packs.
sp_status sp_i_search_shape(const sp_i_shape_search *search, const sp_i_rank_samples *samples,
                            double work_s, bool warm, sp_i_best_shape *best, sp_error *err);

// From the best shape on, backward packs that are a partition of their own, as long as that is
// better.
sp_status sp_i_search_regrouped(const sp_i_shape_search *search, const sp_i_rank_samples *samples,
                                sp_i_best_shape *best, sp_error *err);

#endif
