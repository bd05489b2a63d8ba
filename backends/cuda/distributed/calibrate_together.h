// A calibration by several processes of one machine with a GPU each: rank 0 measures its GPU while
// the others wait, then all time NCCL's collectives between them, as the profile's
// "collective_times". A rank that fails returns its reason, frees nothing and ends its process; the
// launcher ends the others.
#ifndef SLIMPACK_BACKENDS_CUDA_CALIBRATE_TOGETHER_H
#define SLIMPACK_BACKENDS_CUDA_CALIBRATE_TOGETHER_H

#include <jansson.h>

#include "backends/cuda/calibrate/collective_bench.h"
#include "backends/cuda/distributed/nccl.h"
#include "sim/model/model.h"

typedef struct sp_i_cuda_team {
    const sp_i_place *place; // of two ranks or more
    const sp_i_cuda_api *api;
    int device;            // that the caller named, see sp_i_cuda_process_device
    const sp_model *model; // equal at all ranks
    uint64_t seed;
    int wait_ms;                      // for rank 0 to come, and for its measurements
    const struct sp_i_nccl_api *nccl; // NULL: that of libnccl
} sp_i_cuda_team;

// What rank 0 alone does, with its GPU.
typedef sp_status (*sp_i_cuda_measure)(void *context, const sp_i_cuda_device *device,
                                       json_t **document, sp_error *err);

// *document is the same at all ranks, each one's own. SP_ERR_USAGE: no NCCL, other machines, other
// models of GPU, two ranks on one GPU.
sp_status sp_i_cuda_calibrate_together(const sp_i_cuda_team *team, sp_i_cuda_measure measure,
                                       void *context, json_t **document, sp_error *err);

// As sp_i_cuda_time_collectives, in groups of the world's first ranks, with what puts a collective
// and waits for it filled in. The groups stay until the world is freed. A rank that is in few of
// them returns long before the others.
sp_status sp_i_nccl_time_collectives(sp_i_nccl *n, const sp_i_cuda_collective_bench *bench,
                                     json_t **tables, sp_error *err);

// The largest tensor that is timed: the gradients of all parameters, fp32 as they are reduced, up
// to 256 MiB; 1 KiB times a power of four, which the tables' sizes are.
int64_t sp_i_cuda_most_exchanged_bytes(const sp_model *model);

#endif
