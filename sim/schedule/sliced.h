// Orders of micro-batches, whole or sliced: two lists of units and a lag give the actions of a
// rank.
#ifndef SLIMPACK_SIM_SCHEDULE_SLICED_H
#define SLIMPACK_SIM_SCHEDULE_SLICED_H

#include <limits.h>

#include "sim/schedule/schedule_family.h"

// A slice of a micro-batch on one chunk of every rank.
typedef struct sp_i_unit {
    int32_t microbatch, chunk, slice;
} sp_i_unit;

// All units of a job once in forward and once in backward order, the same on every rank.
typedef struct sp_i_sliced {
    sp_i_schedule_job *job;
    sp_i_unit *forward, *backward;
    size_t forwards, backwards; // added so far
    int64_t *place;             // [chunk * slices of all micro-batches + slice]: among the forwards
    size_t slices;              // of all micro-batches
} sp_i_sliced;

// Empty lists with room for all units of the job.
sp_i_sliced sp_i_sliced_begin(sp_i_schedule_job *job);

// Adds a unit to the forward order.
void sp_i_sliced_forward(sp_i_sliced *order, sp_i_unit unit);

// Adds micro-batches [begin, end), chunk after chunk, to the forward order; to the backward order
// in the same shape, with chunks and slices mirrored.
void sp_i_sliced_group(sp_i_sliced *order, int begin, int end);

// Adds what stands in the forward order from place `from` on to the backward order, in reverse.
void sp_i_sliced_reverse(sp_i_sliced *order, size_t from);

// Appends the actions of all ranks. Behind rank r come p-1-r others, and its lag is `slope` times
// that. Before its first backward stand its own forward and `lag` more, or lag + `ahead` forwards
// and one more where those are not fewer; then comes one forward for each backward; where
// micro-batches have different numbers of slices, as many more as it takes for a backward to find
// its own forward `lag` units behind. Of the slices of a micro-batch all but the last `retained`
// are recomputed before their backward.
void sp_i_sliced_emit(const sp_i_sliced *order, int slope, int64_t ahead, int retained);

#endif
