// How many streaming multiprocessors (SMs) each of several equal partitions gets. Green contexts
// are made from one split into equal groups: split calls made one after another overlap, so that
// partitions of different sizes would have to be put together from groups of one split.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_PARTITION_PLAN_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_PARTITION_PLAN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct sp_i_cuda_partition_plan {
    int partitions;
    int sms;  // of each
    int rest; // in none
} sp_i_cuda_partition_plan;

// The largest equal groups of `total` SMs, each a multiple of `alignment` and at least `smallest`
// (compute capability 9.0: 8 and 8). False, with the reason in `text`, where they do not fit.
bool sp_i_cuda_plan_partitions(int total, int smallest, int alignment, int partitions,
                               sp_i_cuda_partition_plan *plan, char *text, size_t text_bytes);

#endif
