// What the ranks of one stream share: its products, scratch memory, pinned memory through which
// bytes of the host pass, and events. Behind a device runtime (runtime.h) alone; who calls holds
// the stream context.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_STREAM_CONTEXT_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_STREAM_CONTEXT_H

#include <pthread.h>

#include "backends/api/device_runtime.h"
#include "backends/cuda/device/device.h"
#include "backends/cuda/device/events.h"
#include "backends/cuda/device/rank.h"

enum {
    SP_I_CUDA_CHUNKS = 4,
    SP_I_CUDA_CHUNK_BYTES = 1 << 20,
    SP_I_CUDA_POINTS = 256 // fences whose own event is kept
};

struct sp_i_cuda_stream_context {
    sp_runtime *runtime; // memory comes from it
    cudaStream_t stream;
    pthread_mutex_t lock;
    bool locks; // the lock is made
    sp_i_cuda_gemm *gemm;
    void *gemm_workspace;
    sp_i_cuda_attention *attention; // or NULL
    void *scratch;
    int64_t scratch_bytes;
    // A chunk is free again when its event is over.
    char *pinned;
    sp_i_cuda_events chunks;
    uint64_t chunks_used;
    // Point p is event p mod SP_I_CUDA_POINTS; a later point of the same event is as good.
    sp_i_cuda_events points;
    uint64_t marks;
    // The clock: `clock_ns` is the time of event `clock_at`.
    sp_i_cuda_events clock;
    int clock_at;
    int64_t clock_ns;
};

// The stream's, which runs on `sms` SMs (0: all). What was made before a failure is freed by _fini.
sp_status sp_i_cuda_stream_context_init(sp_i_cuda_stream_context *context,
                                        const sp_i_cuda_device *device,
                                        const sp_i_cublas_api *cublas, sp_runtime *runtime,
                                        cudaStream_t stream, int sms, sp_error *err);
void sp_i_cuda_stream_context_fini(sp_i_cuda_stream_context *context,
                                   const sp_i_cuda_device *device);

void sp_i_cuda_stage_back(sp_i_cuda_rank *rank, void *to, const void *from, int64_t bytes);

#endif
