// The parts of layouts.h. Private to experiments/sweep.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_LAYOUTS_PRIVATE_H
#define SLIMPACK_EXPERIMENTS_SWEEP_LAYOUTS_PRIVATE_H

#include "experiments/sweep/layouts.h"

// Makes the spec of a strategy, the one after those that are made, and appends its points
// (layouts_grid.c).
sp_status sweep_layouts_list(const json_t *base, const sp_scenario *scenario,
                             const sweep_layouts_options *options, int strategy,
                             sweep_layouts *layouts, sp_error *err);

#endif
