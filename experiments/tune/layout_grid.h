// Which points a search of layouts has: internal to experiments/tune.
#ifndef SLIMPACK_EXPERIMENTS_TUNE_LAYOUT_GRID_H
#define SLIMPACK_EXPERIMENTS_TUNE_LAYOUT_GRID_H

#include "experiments/tune/layouts.h"

// Axes that come first in every grid, so that points of different strategies are alike in them: tp,
// cp, pp and dp, which are the degrees, recomputation, with experts ep, and but for a search around
// a point the ZeRO stage.
enum {
    LAYOUT_DEGREES = 4,
    LAYOUT_RECOMPUTE_AXIS = 4,
    LAYOUT_WORK_AXES = 5, // of the above, those of every search
};

// Makes the spec of a strategy (index in the options), the one after those that are made, and
// appends its points. `context`: tokens, that of the batches, the longest sample where none is
// stated. Errors: those of sweep_spec_from_json and sweep_spec_count.
sp_status sweep_layouts_list(const json_t *base, const sp_scenario *scenario, int64_t context,
                             const sweep_layouts_options *options, int strategy,
                             sweep_layouts *layouts, sp_error *err);

// The number of a setting's axis; negative: the grid has none.
int sweep_layout_axis(const sweep_spec *spec, const char *path);
// Has the grid several values of the setting? One alone is stated, and no choice of the search.
bool sweep_layout_chooses(const sweep_spec *spec, const char *path);
// The value of a setting at a point; NULL: the grid has no such axis.
const json_t *sweep_layout_value(const sweep_spec *spec, const int64_t digit[SWEEP_AXES],
                                 const char *path);
// An integer; `otherwise` where the grid has no such axis, or the value is none.
int64_t sweep_layout_number(const sweep_spec *spec, const int64_t digit[SWEEP_AXES],
                            const char *path, int64_t otherwise);

// What keeps the stack from running the point of a strategy's grid; settings with one value are
// stated, and no choice of the search.
sweep_lack sweep_layout_lack(const sp_scenario *scenario, const sweep_layouts_options *options,
                             const sweep_spec *spec, int strategy, const int64_t digit[SWEEP_AXES]);

#endif
