// The parts of layouts.h. Private to experiments/sweep.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_LAYOUTS_PRIVATE_H
#define SLIMPACK_EXPERIMENTS_SWEEP_LAYOUTS_PRIVATE_H

#include "experiments/sweep/layouts.h"

enum {
    // Axes that come first in every grid: tp, cp, pp, dp, recomputation, and where the search is
    // wide the ZeRO stage.
    SWEEP_I_WORK_AXES = 5,
    SWEEP_I_BLOCK = 64,          // points that are evaluated before the fastest is looked for again
    SWEEP_I_HURRY_PERCENT = 10,  // of a search's effort, at first
    SWEEP_I_MOST_COUNTED = 1024, // points whose blocks are counted, about
};

// A search under way.
typedef struct sweep_layouts_finder {
    const sweep_layouts_options *options;
    sweep_layouts *layouts;
    sweep_evaluator *evaluator; // [spec_count]
    sp_batches batches;
    int axes;         // of the first ones, which the bound depends on
    int64_t works;    // combinations of these
    int64_t alike;    // of these with the same degrees
    int64_t inner;    // combinations of the others, of the first strategy
    double *bound_ms; // [of the first axes]; negative: not known yet
    int64_t *wanted;  // of these, those with points
    int64_t wanted_count;
    bool *survives;       // [of the first axes]; NULL: all do
    sweep_layout **order; // [count]
    sweep_layout **block; // those in work
    double best_ms;       // of those that fit well, so far
    int scout;            // strategy that is tried to find survivors alone; -1: none
    int counted;          // points whose blocks were
} sweep_layouts_finder;

// Makes the spec of a strategy, the one after those that are made, and appends its points
// (layouts_grid.c). `context`: that of the batches, the longest sample where none is stated.
sp_status sweep_layouts_list(const json_t *base, const sp_scenario *scenario, int64_t context,
                             const sweep_layouts_options *options, int strategy,
                             sweep_layouts *layouts, sp_error *err);

// The bound of every point (layouts_bounds.c), and the combination of the first axes at one.
sp_status sweep_layouts_bound(sweep_layouts_finder *f, sp_error *err);
int64_t sweep_layouts_work_of(const sweep_layouts_finder *f, const sweep_layout *point);

// Evaluates the points that may be the fastest, in an `order` of its own (layouts_evaluate.c).
sp_status sweep_layouts_evaluate(sweep_layouts_finder *f, sp_error *err);
// Those of a block, at a share of the effort (0: all) of strategies that search by effort;
// `counts`: with PyTorch's blocks.
sp_status sweep_layouts_evaluate_block(sweep_layouts_finder *f, sweep_layout **block, int count,
                                       int effort_percent, bool counts, sp_error *err);
// Bytes that fit may be lost to gaps between blocks that were not counted.
bool sweep_layouts_must_count(const sweep_layouts_finder *f, const sweep_layout *point);

// Ranks the points that fit, and counts the blocks of those that are shown (layouts_rank.c).
sp_status sweep_layouts_rank(sweep_layouts_finder *f, sp_error *err);
// Where nothing fits: what is nearest, the first of equals, and what it lacks.
sp_status sweep_layouts_find_reason(sweep_layouts_finder *f, sp_error *err);

#endif
