// What the device runtime of a GPU is made of; for runtime*.c.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_RUNTIME_STATE_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_RUNTIME_STATE_H

#include <stdint.h>

#include "backends/api/device_runtime.h"
#include "backends/cuda/device/events.h"
#include "backends/cuda/device/partition.h"
#include "backends/cuda/device/stream_context.h"

// One block of the device, given out in parts whose addresses depend on nothing but the order of
// calls. What is held is counted by who takes (backends/executor/arena.h), not here.

typedef struct sp_i_cuda_arena sp_i_cuda_arena;

// Over `bytes` at `base`, which the caller owns and frees after the arena; it is never read. NULL
// when host memory ran out.
sp_i_cuda_arena *sp_i_cuda_arena_new(void *base, int64_t bytes);
void sp_i_cuda_arena_free(sp_i_cuda_arena *arena);

// Aligned to SP_RUNTIME_ALIGNMENT; NULL where no gap is long enough (errno ENOSPC), or when host
// memory ran out (ENOMEM).
// O(1).
void *sp_i_cuda_arena_take(sp_i_cuda_arena *arena, int64_t bytes);
// Neighbouring gaps become one. NULL is nothing. O(1) but for blocks in the same of 1024 lists.
void sp_i_cuda_arena_give(sp_i_cuda_arena *arena, void *memory);

// A moment of a rank that was noted; `known` when its time was asked for.
typedef struct sp_i_cuda_stamp {
    cudaEvent_t event;
    bool known;
    int64_t ns;
} sp_i_cuda_stamp;

// A rank's stamps. They start anew with the first that is noted after one was asked for.
typedef struct sp_i_cuda_stamps {
    sp_i_cuda_stamp *of;
    size_t used, made, capacity; // `made` have an event
    bool asked;
} sp_i_cuda_stamps;

typedef struct sp_i_cuda_runtime {
    sp_runtime base; // first
    sp_i_cuda_device device;
    int ranks, contexts; // one stream context for all ranks, or as many
    sp_i_cuda_rank *rank;
    sp_i_cuda_stream_context *context;
    cudaStream_t stream;              // of all ranks, or
    sp_i_cuda_partitions *partitions; // of each
    pthread_mutex_t lock;             // of the arena and of the reference
    bool locks;
    char no_cudnn[SP_I_CUDA_TEXT]; // why not
    void *memory;
    sp_i_cuda_arena *arena;
    sp_i_cuda_stamps *stamps; // of each rank
    cudaEvent_t reference;    // whose time is reference_ns
    int64_t reference_ns;
} sp_i_cuda_runtime;

static inline sp_i_cuda_runtime *sp_i_cuda_runtime_of(sp_runtime *runtime)
{
    return (sp_i_cuda_runtime *)(void *)runtime;
}

// ---- slots of the runtime's table ----

void *sp_i_cuda_runtime_allocate(sp_runtime *runtime, int64_t bytes);
void sp_i_cuda_runtime_release(sp_runtime *runtime, void *memory);
void *sp_i_cuda_runtime_allocate_host(sp_runtime *runtime, int64_t bytes);
void sp_i_cuda_runtime_release_host(sp_runtime *runtime, void *memory);
void sp_i_cuda_runtime_copy(sp_runtime *runtime, void *to, const void *from, int64_t bytes);
void sp_i_cuda_runtime_copy_rows(sp_runtime *runtime, int64_t rows, int64_t bytes, void *to,
                                 int64_t to_stride, const void *from, int64_t from_stride);
void sp_i_cuda_runtime_zero(sp_runtime *runtime, void *to, int64_t bytes);
void sp_i_cuda_runtime_upload(sp_runtime *runtime, void *to, const void *from, int64_t bytes);
void sp_i_cuda_runtime_download(sp_runtime *runtime, void *to, const void *from, int64_t bytes);
void sp_i_cuda_runtime_reduce(sp_runtime *runtime, sp_element element, bool maximum, int64_t count,
                              const void *const *in, int members, void *const *out, int outs);
void sp_i_cuda_runtime_sum_of_squares(sp_runtime *runtime, sp_element element, int64_t n,
                                      const void *x, double *sum);

// Order between ranks, and times.
sp_fence sp_i_cuda_runtime_mark(sp_runtime *runtime);
void sp_i_cuda_runtime_wait(sp_runtime *runtime, sp_fence fence);
int64_t sp_i_cuda_runtime_now_ns(sp_runtime *runtime);
uint64_t sp_i_cuda_runtime_stamp(sp_runtime *runtime);
int64_t sp_i_cuda_runtime_stamp_ns(sp_runtime *runtime, uint64_t stamp);
sp_status sp_i_cuda_runtime_start_clock(sp_i_cuda_runtime *runtime, sp_error *err);
void sp_i_cuda_runtime_stop_clock(sp_i_cuda_runtime *runtime);

// Ranges on the host's timeline for profilers (NVTX, Nsight Systems), named after the plan's
// actions. Without a profiler, and in builds without NVTX's header, they cost next to nothing and
// do nothing.

// Ranges of the calling thread, one inside another.
typedef struct sp_i_cuda_ranges {
    void (*push)(const char *name);
    void (*pop)(void);
} sp_i_cuda_ranges;

extern const sp_i_cuda_ranges sp_i_cuda_nvtx;

enum { SP_I_CUDA_RANGE = 48 };

// Around the launches of an action, as "F3.1 rank 2": the action as in plan.json, then who works at
// it; cut to SP_I_CUDA_RANGE - 1 bytes. Each push has its pop, by the same thread.
void sp_i_cuda_range_push(const sp_i_cuda_ranges *ranges, const char *action, int rank);
void sp_i_cuda_range_pop(const sp_i_cuda_ranges *ranges);

#endif
