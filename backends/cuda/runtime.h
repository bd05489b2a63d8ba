// One GPU as the device runtime of a run, and the rank of the calling thread, which operations work
// for, with the first error in its work.
#ifndef SLIMPACK_BACKENDS_CUDA_RUNTIME_H
#define SLIMPACK_BACKENDS_CUDA_RUNTIME_H

#include <jansson.h>
#include <stdatomic.h>

#include "backends/api/device_runtime.h"
#include "backends/cuda/attention.h"
#include "backends/cuda/device.h"
#include "backends/cuda/gemm.h"

typedef struct sp_i_cuda_stream_context sp_i_cuda_stream_context;

// The first thing that went wrong in the rank's work stays; nothing is put down after it.
typedef struct sp_i_cuda_rank {
    sp_i_cuda_device device;
    int number;
    CUstream stream;
    sp_i_cuda_stream_context *context; // the stream's, and of all ranks on it
    sp_i_cuda_attention *attention;    // likewise; one thread at a time. NULL: no cuDNN
    int limit_ms;           // of a wait for work that may wait for other GPUs'; 0: there are none
    atomic_int attended[2]; // launches of attention: by the reference kernels, by cuDNN
    sp_status status;
    sp_error error;
} sp_i_cuda_rank;

// The rank that the thread entered last (sp_runtime_ops.enter).
sp_i_cuda_rank *sp_i_cuda_rank_now(void);
// The thread works for this rank from here on.
void sp_i_cuda_rank_enter(sp_i_cuda_rank *rank);

// Keeps what a launcher of a kernel, or a call of CUDA, returned.
void sp_i_cuda_note(sp_i_cuda_rank *rank, int code, const char *call, const char *file, int line);
// Keeps an error of another kind; `err` may be the rank's own.
void sp_i_cuda_fail(sp_i_cuda_rank *rank, sp_status status, const sp_error *err);

// Waits for the rank's stream, or, unless it is NULL, for an event on it.
#define SP_I_CUDA_WAIT(rank, event) sp_i_cuda_rank_wait((rank), (event), __FILE__, __LINE__)
void sp_i_cuda_rank_wait(sp_i_cuda_rank *rank, CUevent event, const char *file, int line);

// Puts a kernel on the rank's stream: `SP_I_CUDA_PUT(rank, add, n, x, y)` calls sp_cuda_add.
#define SP_I_CUDA_PUT(rank, kernel, ...)                                          \
    do {                                                                          \
        if ((rank)->status == SP_OK) {                                            \
            sp_i_cuda_note((rank), sp_cuda_##kernel(__VA_ARGS__, (rank)->stream), \
                           "sp_cuda_" #kernel, __FILE__, __LINE__);               \
        }                                                                         \
    } while (0)

// Calls a member of the device's table, whose name says what it does.
#define SP_I_CUDA_CALL(rank, call, ...)                                                    \
    do {                                                                                   \
        if ((rank)->status == SP_OK) {                                                     \
            sp_i_cuda_note((rank), (int)(rank)->device.api->call(__VA_ARGS__), "cu" #call, \
                           __FILE__, __LINE__);                                            \
        }                                                                                  \
    } while (0)

// ---- what the rank has from its stream context ----

// Keeps other ranks of the stream out until _release: between the two stand the work that fills
// scratch memory and the work that reads it, and products.
void sp_i_cuda_hold(sp_i_cuda_rank *rank);
void sp_i_cuda_release(sp_i_cuda_rank *rank);
// While held: device memory of at least `bytes`, good until the release. NULL when the rank's work
// has failed, or fails now. Two calls of one hold give the same memory.
void *sp_i_cuda_scratch(sp_i_cuda_rank *rank, int64_t bytes);
// While held: from memory of the caller, which may change it when the call returns.
void sp_i_cuda_stage(sp_i_cuda_rank *rank, void *to, const void *from, int64_t bytes);
// While held: the order of tokens by these numbers (sp_cuda_embedding_order), which the caller may
// change when the call returns.
void sp_i_cuda_stage_order(sp_i_cuda_rank *rank, void *to, const int64_t *numbers, int64_t count);
// While held: a product on the rank's stream. With a bias (NULL: none) it returns whether the
// product adds it (sp_i_cuda_gemm_run_biased).
bool sp_i_cuda_multiply(sp_i_cuda_rank *rank, const sp_i_cuda_product *product,
                        const sp_i_cuda_operands *operands, const void *bias);

// ---- A GPU as a device runtime ----

// One GPU as the device runtime of a run (backends/api/device_runtime.h). Its memory is one block
// of the device. Ranks work on one stream, one after the other (virtual time), or each on a stream
// of its own and, where the driver can, on SMs of its own (the wall clock).

typedef struct sp_i_cuda_runtime_options {
    int ranks;
    bool partitioned;     // a stream for each rank; else one for all
    bool cudnn;           // attention by cuDNN, where it is there
    bool stale;           // memory that a rank takes holds NaN at first
    int64_t memory_bytes; // of the device; 0: what is free, less SP_I_CUDA_RESERVE
    int64_t spare_bytes;  // and less this
} sp_i_cuda_runtime_options;

// Left to what CUDA, cuBLASLt and cuDNN load while they run (kernels, local memory of all SMs);
// a guess that no GPU has tried.
#define SP_I_CUDA_RESERVE (INT64_C(2) << 30)

// SP_ERR_NO_MEMORY where the device or the host has not enough.
sp_status sp_i_cuda_runtime_new(const sp_i_cuda_device *device, const sp_i_cublas_api *cublas,
                                const sp_i_cuda_runtime_options *options, sp_runtime **made,
                                sp_error *err);
// Waits for all work.
void sp_i_cuda_runtime_free(sp_runtime *runtime);

// Returns whether ranks have SMs of their own; where not, `reason` (may be NULL) gets why.
bool sp_i_cuda_runtime_partitioned(const sp_runtime *runtime, const char **reason);

// Returns whether attention may go by cuDNN; where it was asked for and is not there, `reason` gets
// why.
bool sp_i_cuda_runtime_has_cudnn(const sp_runtime *runtime, const char **reason);

// How the ranks have worked so far: {"ranks", "streams", "sms": of each stream, "partitioned",
// "reason": why not, "attention": {"cudnn", "reference": launches, "reason": why cuDNN has none},
// "memory": {"total", "context": taken before the runtime, by other users of the GPU as well,
// "libraries": by handles and streams, "block": for the ranks, "block_peak": of it, held at once,
// "workspaces": of that, cuBLASLt's, "beside": taken since the block was, "device": all of this
// with the block as large as its peak}}. Memory is in bytes, as cuMemGetInfo sees it.
json_t *sp_i_cuda_runtime_report(sp_runtime *runtime);

// ---- The device's memory ----

// One block of the device, given out in parts whose addresses depend on nothing but the order of
// calls. What is held is counted by who takes (backends/executor/stage.h), not here.

typedef struct sp_i_cuda_arena sp_i_cuda_arena;

// Over `bytes` at `base`, which the caller owns and frees after the arena; it is never read.
sp_i_cuda_arena *sp_i_cuda_arena_new(void *base, int64_t bytes);
void sp_i_cuda_arena_free(sp_i_cuda_arena *arena);

// Aligned to SP_RUNTIME_ALIGNMENT; NULL, and errno ENOSPC, where no gap is long enough. O(1).
void *sp_i_cuda_arena_take(sp_i_cuda_arena *arena, int64_t bytes);
// Neighbouring gaps become one. NULL is nothing. O(1) but for blocks in the same of 1024 lists.
void sp_i_cuda_arena_give(sp_i_cuda_arena *arena, void *memory);

// The most that was held at once, in bytes of whole blocks.
int64_t sp_i_cuda_arena_peak(const sp_i_cuda_arena *arena);

#endif
