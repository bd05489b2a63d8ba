// Which points of a search the scenario's stack can run.
#ifndef SLIMPACK_EXPERIMENTS_TUNE_ABILITIES_H
#define SLIMPACK_EXPERIMENTS_TUNE_ABILITIES_H

#include "experiments/tune/layouts.h"

// What keeps the stack from running the point of a strategy's grid; settings with one value are
// stated, and no choice of the search.
sweep_lack sweep_lack_of(const sp_scenario *scenario, const sweep_layouts_options *options,
                         const sweep_spec *spec, int strategy, const int64_t digit[SWEEP_AXES]);

#endif
