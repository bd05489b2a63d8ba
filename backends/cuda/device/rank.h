// What an operation works with: the calling thread's rank, and the first error in its work.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_RANK_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_RANK_H

#include "backends/cuda/attention/attention.h"
#include "backends/cuda/products/gemm.h"

typedef struct sp_i_cuda_stream_context sp_i_cuda_stream_context;

// The first thing that went wrong in the rank's work stays; nothing is put down after it.
typedef struct sp_i_cuda_rank {
    sp_i_cuda_device device;
    int number;
    cudaStream_t stream;
    sp_i_cuda_stream_context *context; // the stream's, and of all ranks on it
    sp_i_cuda_attention *attention;    // likewise; one thread at a time. NULL: no cuDNN
    int limit_ms; // of a wait for work that may wait for other GPUs'; 0: there are none
    sp_status status;
    sp_error error;
} sp_i_cuda_rank;

// That the thread entered last (sp_runtime_ops.enter).
sp_i_cuda_rank *sp_i_cuda_rank_now(void);
// The thread works for this rank from here on.
void sp_i_cuda_rank_enter(sp_i_cuda_rank *rank);

// Keeps what a launcher of a kernel, or a call of CUDA, returned.
void sp_i_cuda_note(sp_i_cuda_rank *rank, int code, const char *call, const char *file, int line);
// Keeps an error of another kind; `err` may be the rank's own.
void sp_i_cuda_fail(sp_i_cuda_rank *rank, sp_status status, const sp_error *err);

// Waits for the rank's stream, or, unless it is NULL, for an event on it.
#define SP_I_CUDA_WAIT(rank, event) sp_i_cuda_rank_wait((rank), (event), __FILE__, __LINE__)
void sp_i_cuda_rank_wait(sp_i_cuda_rank *rank, cudaEvent_t event, const char *file, int line);

// Puts a kernel on the rank's stream: `SP_I_CUDA_PUT(rank, add, n, x, y)` calls sp_cuda_add.
#define SP_I_CUDA_PUT(rank, kernel, ...)                                          \
    do {                                                                          \
        if ((rank)->status == SP_OK) {                                            \
            sp_i_cuda_note((rank), sp_cuda_##kernel(__VA_ARGS__, (rank)->stream), \
                           "sp_cuda_" #kernel, __FILE__, __LINE__);               \
        }                                                                         \
    } while (0)

// Calls a member of the device's table, whose name says what it does.
#define SP_I_CUDA_CALL(rank, call, ...)                                                      \
    do {                                                                                     \
        if ((rank)->status == SP_OK) {                                                       \
            sp_i_cuda_note((rank), (int)(rank)->device.api->call(__VA_ARGS__), "cuda" #call, \
                           __FILE__, __LINE__);                                              \
        }                                                                                    \
    } while (0)

// ---- what its stream context gives it (stream_context.c) ----

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

#endif
