// What the ranks of one stream share: its products, scratch memory, pinned memory through which
// bytes of the host pass, or where a captured step keeps them, and events. Behind a device runtime
// (runtime.h) alone; who calls holds the stream context.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_STREAM_CONTEXT_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_STREAM_CONTEXT_H

#include <pthread.h>

#include "backends/api/device_runtime.h"
#include "backends/cuda/device/device.h"
#include "backends/cuda/device/events.h"
#include "backends/cuda/device/rank.h"

// What a captured step uploads from the host (runtime.h, capture_begin): in pinned memory of its
// own, because every repetition copies it again. Behind a stream context (stream_context.h) alone.

// Numbers that are read again before each repetition, or their order.
typedef struct sp_i_cuda_kept_numbers {
    const int64_t *from; // [count], the caller's
    int64_t *to;         // [count]; of an order [2 * count], the second half for its making
    int64_t count;
    bool ordered;
} sp_i_cuda_kept_numbers;

typedef struct sp_i_cuda_kept {
    bool capturing;  // what is uploaded now is kept
    bool fixed;      // a captured step knows the stream context's addresses
    int64_t counted; // bytes that the uploads since the rehearsal's begin would keep
    char *room;
    int64_t bytes, used;
    sp_i_cuda_kept_numbers *numbers;
    size_t count, capacity;
} sp_i_cuda_kept;

// What so many bytes take of the room.
int64_t sp_i_cuda_kept_size(int64_t bytes);

// Makes room for what was counted; uploads are kept from here to _end.
sp_status sp_i_cuda_kept_begin(sp_i_cuda_kept *kept, const sp_i_cuda_device *device, sp_error *err);
void sp_i_cuda_kept_end(sp_i_cuda_kept *kept);
void sp_i_cuda_kept_fini(sp_i_cuda_kept *kept, const sp_i_cuda_device *device);

// Room for bytes; NULL where it does not suffice.
void *sp_i_cuda_kept_take(sp_i_cuda_kept *kept, int64_t bytes);
// Takes over numbers that stay where they are and may change. NULL where room or memory of the host
// does not suffice.
void *sp_i_cuda_kept_add(sp_i_cuda_kept *kept, const int64_t *numbers, int64_t count, bool ordered);
// Reads all numbers again.
void sp_i_cuda_kept_refill(const sp_i_cuda_kept *kept);

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
    uint64_t over; // points up to this one are over: nothing waits for their events
    // The clock: `clock_ns` is the time of event `clock_at`.
    sp_i_cuda_events clock;
    int clock_at;
    int64_t clock_ns;
    sp_i_cuda_kept kept;
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
