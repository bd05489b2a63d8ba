// The parts of layouts.h. Private to experiments/sweep.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_LAYOUTS_PRIVATE_H
#define SLIMPACK_EXPERIMENTS_SWEEP_LAYOUTS_PRIVATE_H

#include "experiments/sweep/layouts.h"

// Axes that come first in every grid: tp, cp, pp, dp, recomputation, and where the search is wide
// the ZeRO stage.
enum { SWEEP_I_WORK_AXES = 5 };

// Makes the spec of a strategy, the one after those that are made, and appends its points
// (layouts_grid.c). `context`: that of the batches, the longest sample where none is stated.
sp_status sweep_layouts_list(const json_t *base, const sp_scenario *scenario, int64_t context,
                             const sweep_layouts_options *options, int strategy,
                             sweep_layouts *layouts, sp_error *err);

#endif
