// What fills the memory of the fullest rank at the moment of its peak, by named tensors.
#ifndef SLIMPACK_SIM_METRICS_PEAK_MEMORY_H
#define SLIMPACK_SIM_METRICS_PEAK_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/cost/step_costs.h"
#include "sim/model/model.h"
#include "sim/plan/timeline.h"

enum { SP_PEAK_HOLDERS = 10, SP_HOLDER_NAME = 48, SP_HOLDER_ACTION = 32 };

// Bytes that hold the same thing.
typedef struct sp_memory_holder {
    char name[SP_HOLDER_NAME];
    sp_memory_category category;
    int64_t bytes;
    int64_t count; // units that hold it; buffers; 1 of what a rank has once
} sp_memory_holder;

typedef struct sp_peak_memory {
    bool known;
    int dp, pp;
    int64_t at_ns;
    char action[SP_HOLDER_ACTION];             // that ran then, "F12.1"; "" before the first
    sp_memory_holder holders[SP_PEAK_HOLDERS]; // largest first
    int count;
    int64_t bytes; // of all holders, also those beyond the largest
} sp_peak_memory;

// For a simulated step whose costs were made from this model and these options. Of ranks with
// equal peaks the first. O(spans of the rank + its units * tensors).
sp_status sp_peak_memory_explain(const sp_timeline *timeline, const sp_memory_timeline *memory,
                                 const sp_step_costs *costs, const sp_model *model,
                                 const sp_memory_options *options, sp_peak_memory *peak,
                                 sp_error *err);

#endif
