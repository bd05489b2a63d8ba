// Orders of sliced micro-batches: two lists of units and a lag give the actions of a rank.
#ifndef SLIMPACK_SIM_SCHEDULE_SLICED_H
#define SLIMPACK_SIM_SCHEDULE_SLICED_H

#include "sim/schedule/schedule_family.h"

// A slice of a micro-batch on one chunk of every rank.
typedef struct sp_i_unit {
    int32_t microbatch, chunk, slice;
} sp_i_unit;

// All units of a job once in forward and once in backward order, the same on every rank.
typedef struct sp_i_sliced {
    sp_i_unit *forward, *backward;
    size_t forwards, backwards; // added so far
    int64_t *place;             // [chunk * slices of all micro-batches + slice]: among the forwards
    size_t slices;              // of all micro-batches
} sp_i_sliced;

// Empty lists with room for all units of the job; false when memory runs out.
bool sp_i_sliced_init(sp_i_sliced *order, const sp_i_schedule_job *job);
void sp_i_sliced_fini(sp_i_sliced *order);

void sp_i_sliced_forward(sp_i_sliced *order, const sp_i_schedule_job *job, sp_i_unit unit);
void sp_i_sliced_backward(sp_i_sliced *order, sp_i_unit unit);

// Appends the actions of a rank: before the first backward come its own forward and `lag` more,
// then one forward for each backward; where micro-batches have different numbers of slices, as many
// more as it takes for a backward to find its own forward `lag` units behind. Of the slices of a
// micro-batch all but the last `retained` are recomputed before their backward. False when memory
// runs out.
bool sp_i_sliced_rank(const sp_i_sliced *order, const sp_i_schedule_job *job, int pp_rank, int lag,
                      int retained);

#endif
