// Which points of a sweep a run evaluates, and in which order: all, a shard, a sample drawn at
// random, or those that a search along the Pareto front asks for.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_CHOICE_H
#define SLIMPACK_EXPERIMENTS_SWEEP_CHOICE_H

#include "experiments/sweep/summary.h"

enum { SWEEP_MOST_POINTS = 100000000, SWEEP_MOST_SHARDS = 100000 };

typedef struct sweep_choice_options {
    int64_t sample; // so many points, drawn with equal chance, in the order of the grid; 0: all
    int64_t search; // so many points, found by a search; 0: none
    int64_t seed;   // of both
    int64_t shard,
        shards; // of the points every `shards`th, from number `shard`, 1 to shards; 0: all
} sweep_choice_options;

typedef struct sweep_choice {
    const sweep_spec *spec;
    sweep_choice_options options;
    int64_t in_grid; // points of the whole grid
    int64_t points;  // that the run evaluates
    int64_t passed;  // points of all shards that were passed
    sweep_cursor cursor;
    int64_t *chosen; // combinations; NULL: those of the cursor; owned
    int64_t chosen_count;
    int64_t *sorted; // of a search: the chosen ones, ascending; owned
    sp_prng prng;
} sweep_choice;

// The caller calls sweep_choice_end(),
// also after an error.
sp_status sweep_choice_begin(sweep_choice *choice, const sweep_spec *spec,
                             const sweep_choice_options *options, sp_error *err);

// The next point; *found is false after the last one that is chosen so far.
sp_status sweep_choice_next(sweep_choice *choice, int64_t *combination, bool *found, sp_error *err);

// Has a search choose more points by what is known of those before, all of which are in `summary`.
// Children of the front: one to three settings of a point on it are changed, or taken from another
// one. Nothing depends on threads or on time.
sp_status sweep_choice_extend(sweep_choice *choice, const sweep_summary *summary, sp_error *err);

void sweep_choice_end(sweep_choice *choice);

#endif
