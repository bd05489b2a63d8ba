// A running sum of bytes by category with its high-water mark.
#ifndef SLIMPACK_SIM_MODEL_MEMORY_GAUGE_H
#define SLIMPACK_SIM_MODEL_MEMORY_GAUGE_H

#include "sim/model/footprint.h"

typedef struct sp_i_memory_gauge {
    sp_bytes now;
    sp_bytes high; // at the first moment of the largest total
    int64_t total, high_total;
} sp_i_memory_gauge;

// Starts at what is there, which is also the first mark.
sp_i_memory_gauge sp_i_memory_gauge_at(const sp_bytes *bytes);
void sp_i_memory_take(sp_i_memory_gauge *gauge, sp_memory_category category, int64_t bytes);
void sp_i_memory_give(sp_i_memory_gauge *gauge, sp_memory_category category, int64_t bytes);

#endif
