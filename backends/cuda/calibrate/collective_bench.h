// Times of collectives between GPUs, by kind, group and size: the tables of a profile's
// "collective_times" (profiles/README.md). What puts a collective on a stream is the caller's.
#ifndef SLIMPACK_BACKENDS_CUDA_CALIBRATE_COLLECTIVE_BENCH_H
#define SLIMPACK_BACKENDS_CUDA_CALIBRATE_COLLECTIVE_BENCH_H

#include <jansson.h>

#include "backends/cuda/device/device.h"
#include "sim/cost/profile.h"

// A collective of the world's first `ranks` ranks, of which this one is one, over a tensor of
// `bytes`, a multiple of 2 * ranks; bf16 where it adds up. `in` and `out` hold the whole tensor.
typedef sp_status (*sp_i_cuda_collective)(void *context, sp_collective kind, int ranks,
                                          const void *in, void *out, int64_t bytes,
                                          cudaStream_t stream, sp_error *err);

// Waits until the stream's work is over, or until another rank has failed.
typedef sp_status (*sp_i_cuda_synchronize)(void *context, cudaStream_t stream, sp_error *err);

typedef struct sp_i_cuda_collective_bench {
    sp_i_cuda_device device;
    cudaStream_t stream;
    int rank, ranks; // of the world, each with a GPU of its own inside one node
    sp_i_cuda_collective put;
    sp_i_cuda_synchronize synchronize; // NULL: waits for ever where another rank does not come
    void *context;
    uint64_t seed;
    int64_t most_bytes; // of a tensor
    const char *source; // stands in each table: what was measured, on what
} sp_i_cuda_collective_bench;

// Groups of 2, 4, ... ranks and of all; tensors of 1 KiB and four times as much each. All ranks of
// the world call it with the same numbers, and put the same collectives. *tables is an array for
// the profile at rank 0, by its own events, NULL elsewhere. SP_ERR_USAGE for a world of one.
sp_status sp_i_cuda_time_collectives(const sp_i_cuda_collective_bench *bench, json_t **tables,
                                     sp_error *err);

#endif
