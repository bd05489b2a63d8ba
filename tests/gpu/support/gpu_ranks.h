// Ranks that meet by a file and NCCL, each a thread of this process, over the fakes of CUDA,
// cuBLASLt and NCCL: with an emulated GPU of its own and messages in the order of streams
// (streamed_nccl.h), or with the little of CUDA that NCCL's worlds alone need (fake_nccl.h).
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_GPU_RANKS_H
#define SLIMPACK_TESTS_GPU_SUPPORT_GPU_RANKS_H

#include "backends/api/device_runtime.h"
#include "backends/cuda/device.h"
#include "backends/cuda/gemm.h"
#include "backends/cuda/nccl.h"
#include "backends/cuda/nccl_api.h"
#include "backends/ranks/comm.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/job.h"

enum { MOST_GPU_RANKS = 8, GPU_RANKS_LONG_MS = 60000, GPU_RANK_MEMORY = 256 << 20 };

typedef struct gpu_rank gpu_rank;
// What a rank does, in a thread of its own: it must not assert.
typedef sp_status (*gpu_rank_body)(gpu_rank *me, sp_error *err);

struct gpu_rank {
    sp_i_place place;
    gpu_rank_body body;
    void *context;
    int timeout_ms;
    sp_runtime *runtime;     // of gpu_ranks_with_transport
    sp_transport *transport; // likewise
    sp_i_nccl *n;            // of gpu_ranks_with_world
    sp_status status;        // what came of it
    sp_error err;
};

extern gpu_rank gpu_ranks[MOST_GPU_RANKS];
extern sp_cuda_api gpu_ranks_cuda;
extern sp_i_cublas_api gpu_ranks_cublas;
extern sp_i_nccl_api gpu_ranks_nccl;

// Fakes on which nothing fails. What is to fail is set after this.
void gpu_ranks_reset(void);
// A place for that many ranks, each of which has its rank to fill in, by a file that no others use.
sp_i_place gpu_ranks_place(int ranks);
bool gpu_ranks_left_nothing(const sp_i_place *place);

// The body of each of the ranks, in a thread of its own.
void gpu_ranks_run(int ranks);

// Runs the body on that many ranks, with a machine and a transport for which the thread has entered
// the machine, and waits for all, which must end well and leave nothing alive of CUDA or NCCL.
void gpu_ranks_with_transport(int ranks, gpu_rank_body body, void *context);
// How they end where one fails. Waits for a GPU end after timeout_ms.
job_end gpu_ranks_fail_with_transport(int ranks, int timeout_ms, gpu_rank_body body, void *context);

// ---- worlds of NCCL alone; every call has this stream ----

extern sp_i_nccl_api gpu_ranks_other_nccl; // of rank 1, where it has another
void gpu_ranks_reset_worlds(void);
CUstream gpu_ranks_world_stream(void);
void gpu_ranks_with_world(int ranks, gpu_rank_body body, void *context);
job_end gpu_ranks_fail_with_world(int ranks, int timeout_ms, gpu_rank_body body, void *context);

// ---- for bodies ----

enum { GPU_RANK_NUMBERS = 64 };
// Memory of the rank's machine, all -1. The fake's memory of a GPU is this process's own.
double *gpu_rank_numbers(gpu_rank *me);
// A group of `size` ranks from `first` on.
sp_status gpu_rank_group(gpu_rank *me, const char *name, int first, int size, sp_error *err);

#endif
