// SM partitions: the streams of each run on SMs of its own, by green contexts of the driver. Where
// that cannot be had there is one partition for all, of the whole device, with the reason; nothing
// but the streams' place changes then.
//
// Source: CUDA driver API 13.0, "Green Contexts". Streams carry the place: a green context is never
// made current, because libraries switch the current context.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_PARTITION_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_PARTITION_H

#include <stdbool.h>
#include <stddef.h>

#include "backends/cuda/device/device.h"

// How many streaming multiprocessors (SMs) each of several equal partitions gets. Green contexts
// are made from one split into equal groups: split calls made one after another overlap, so that
// partitions of different sizes would have to be put together from groups of one split.

typedef struct sp_i_cuda_partition_plan {
    int partitions;
    int sms;  // of each
    int rest; // in none
} sp_i_cuda_partition_plan;

// The largest equal groups of `total` SMs, each a multiple of `alignment` and at least `smallest`
// (compute capability 9.0: 8 and 8). False, with the reason in `text`, where they do not fit.
bool sp_i_cuda_plan_partitions(int total, int smallest, int alignment, int partitions,
                               sp_i_cuda_partition_plan *plan, char *text, size_t text_bytes);

typedef struct sp_i_cuda_partitions sp_i_cuda_partitions;

// What the device says of its SMs.
typedef struct sp_i_cuda_sm_resource {
    int count, smallest, alignment;
} sp_i_cuda_sm_resource;

// `partitions` groups of SMs from one split, each with `streams` streams that do not wait for the
// default stream. The calling thread must use the device (sp_i_cuda_use).
sp_status sp_i_cuda_partitions_new(const sp_i_cuda_device *device, int partitions, int streams,
                                   sp_i_cuda_partitions **made, sp_error *err);
void sp_i_cuda_partitions_free(sp_i_cuda_partitions *partitions);

// Disjoint SMs? Where not, `reason` (may be NULL) gets why.
bool sp_i_cuda_are_partitioned(const sp_i_cuda_partitions *partitions, const char **reason);
// SMs that the streams of a partition run on.
int sp_i_cuda_partition_sms(const sp_i_cuda_partitions *partitions, int partition);
cudaStream_t sp_i_cuda_partition_stream(const sp_i_cuda_partitions *partitions, int partition,
                                        int stream);

// The device's SMs as a resource to split. SP_ERR_USAGE with the reason where the driver has none.
sp_status sp_i_cuda_sms(const sp_i_cuda_device *device, sp_i_cuda_sm_resource *resource,
                        sp_error *err);

#endif
