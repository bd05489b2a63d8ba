// A search for SlimPack's packs and the step as it stands: what its parts share. Private to solver.
#ifndef SLIMPACK_SOLVER_SLIMPACK_SEARCH_STATE_H
#define SLIMPACK_SOLVER_SLIMPACK_SEARCH_STATE_H

#include "solver/slimpack/rank_split.h"
#include "solver/slimpack/shape_search.h"
#include "solver/slimpack/slimpack_search.h"

enum { SP_I_SEARCH_PARTS = 12 }; // of the effort, in which the slowest group gets faster

// A search and the step as it stands: the ranks' samples and the shape of each group's packs.
typedef struct sp_i_search {
    const sp_strategy_input *input;
    sp_i_slimpack_options options;
    sp_i_work work;
    sp_i_rank_scorer *scorers; // [threads]
    int threads;
    sp_i_rank_split ranks;
    sp_i_best_shape *best; // [groups]
    int *order;            // [groups] those that go on at the same time
    int64_t spare_bytes;   // of memory that the search leaves
    int retained;          // packs of each block that keep their activations; 0: all
    int64_t left;          // effort
    int64_t share;         // of each of them
    int64_t *used, *spent; // [groups] effort and work of each of them
    int64_t enough_ns;     // no need for any of them to be faster
    uint64_t round;        // of improvements: each goes other ways
    bool regroups;         // they look for backward packs of their own
} sp_i_search;

bool sp_i_search_is_late(const sp_i_search *s);

// ---- shapes of all groups of ranks (group_search.c) ----

// The first group of each number of ranks is searched for itself.
sp_status sp_i_search_leaders(sp_i_search *s, int64_t effort, sp_error *err);

// Of the slowest group.
sp_packflow_outcome sp_i_search_outcome(const sp_i_search *s);

// First shapes of all groups, within the memory that the scorers know of.
sp_status sp_i_search_begin(sp_i_search *s, sp_error *err);

// Are the shapes of any group slower in the memory that the scorers know of by now?
sp_status sp_i_search_is_slower(sp_i_search *s, bool *slower, sp_error *err);

// From the first shapes on. What is better in the whole step takes the place of *best, which is
// empty at first.
sp_status sp_i_search_finish(sp_i_search *s, sp_packing *best, sp_packflow_outcome *judged,
                             sp_error *err);

// ---- within memory (memory_search.c) ----

// So much of the memory is left by the scorers.
void sp_i_search_set_spare(sp_i_search *s, int64_t spare_bytes);

// Shapes that fit the whole step: in less room where it needs more than was reckoned, with some to
// spare where they fit tightly, and with forwards that run again where none fits or all are slow.
sp_status sp_i_search_in_memory(sp_i_search *s, sp_packing *best, sp_packflow_outcome *judged,
                                sp_error *err);

#endif
