// Ranks that meet by files and NCCL, each a thread of this process with an emulated GPU of
// its own, over the fakes of CUDA, cuBLASLt and NCCL (streamed_nccl.h).
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_GPU_RANKS_H
#define SLIMPACK_TESTS_GPU_SUPPORT_GPU_RANKS_H

#include "backends/api/device_runtime.h"
#include "backends/comm/transport.h"
#include "backends/cuda/device/api.h"
#include "backends/cuda/distributed/nccl_world.h"
#include "backends/cuda/distributed/rendezvous.h"
#include "backends/cuda/products/gemm.h"

enum { MOST_GPU_RANKS = 8, GPU_RANKS_LONG_MS = 60000, GPU_RANK_MEMORY = 256 << 20 };

typedef struct gpu_rank gpu_rank;
// What a rank does, in a thread of its own: it must not assert.
typedef sp_status (*gpu_rank_body)(gpu_rank *me, sp_error *err);

struct gpu_rank {
    sp_i_place place;
    gpu_rank_body body;
    void *context;
    int timeout_ms;
    sp_i_rendezvous *rendezvous; // of gpu_ranks_with_transport
    sp_runtime *runtime;         // likewise
    sp_transport *transport;     // likewise
    sp_status status;            // what came of it
    sp_error err;
};

extern gpu_rank gpu_ranks[MOST_GPU_RANKS];
extern sp_i_cuda_api gpu_ranks_cuda;
extern sp_i_cublas_api gpu_ranks_cublas;
extern sp_i_nccl_api gpu_ranks_nccl;

// Fakes on which nothing fails. What is to fail is set after this.
void gpu_ranks_reset(void);
// Runs the body on that many ranks and waits for all. Fails the test case where anything of CUDA or
// NCCL is still alive.
void gpu_ranks_run(int ranks, int timeout_ms, gpu_rank_body body, void *context);
// The same with a machine and a transport, for which the thread has entered the machine.
void gpu_ranks_with_transport(int ranks, int timeout_ms, gpu_rank_body body, void *context);
// Every rank ended well.
void gpu_ranks_must_be_well(int ranks);

// ---- for bodies ----

#define RANK_TRY(call)          \
    do {                        \
        sp_status tried = call; \
        if (tried != SP_OK) {   \
            return tried;       \
        }                       \
    } while (0)
#define RANK_MUST(what)                                                                \
    do {                                                                               \
        if (!(what)) {                                                                 \
            return sp_error_set(err, SP_ERR_INTERNAL, "line %d: %s", __LINE__, #what); \
        }                                                                              \
    } while (0)

enum { GPU_RANK_NUMBERS = 64 };
// Memory of the rank's machine, all -1. The fake's memory of a GPU is this process's own.
double *gpu_rank_numbers(gpu_rank *me);
// A group of `size` ranks from `first` on.
sp_status gpu_rank_group(gpu_rank *me, const char *name, int first, int size, sp_error *err);

#endif
