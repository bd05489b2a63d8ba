// The fastest layout of a strategy: every way to place a scenario on its GPUs is evaluated, with
// the schedules, recomputation and budgets that the strategy can run with.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_BEST_LAYOUT_H
#define SLIMPACK_EXPERIMENTS_SWEEP_BEST_LAYOUT_H

#include "experiments/sweep/point.h"

typedef struct sweep_best_layout {
    int64_t of_status[SWEEP_STATUSES]; // layouts
    json_t *document;           // the scenario at the fastest that fits; owned, NULL: none fits
    char reason[SP_ERROR_TEXT]; // then why not, of the first that was out of memory or infeasible
} sweep_best_layout;

// Evaluates the scenario of `base` (changed by no one; `scenario` is what it reads as) under the
// strategy on its GPUs, as many as its layout has: tensor parallelism inside a node, context
// parallelism up to 16 in powers of two, pipeline and data parallelism by divisors, recomputation
// none, attention or full, schedules 1f1b, interleaved (2 and 4 chunks), zb-h1 and zb-v for
// strategies that bring no order, and rank_tokens and chunk_tokens in powers of two. Of equally
// fast layouts the first in this order counts; those that fit tightly come last. The result does
// not depend on `threads`. The caller calls sweep_best_layout_fini().
sp_status sweep_best_layout_find(const json_t *base, const sp_scenario *scenario,
                                 const char *strategy, int threads, sweep_best_layout *best,
                                 sp_error *err);
void sweep_best_layout_fini(sweep_best_layout *best);

#endif
