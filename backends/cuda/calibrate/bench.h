// Times of work on a stream: warm-up, the L2 cache cleared before each repeat, events around it,
// the median of the repeats and their spread. Clearing also gives the host time to queue what is
// timed, so that launches are not in it.
//
// Under load, the same work runs on other streams at the same time, on memory of their own: all
// start behind one delay, the others go on a little longer, and caches are what they leave.
#ifndef SLIMPACK_BACKENDS_CUDA_CALIBRATE_BENCH_H
#define SLIMPACK_BACKENDS_CUDA_CALIBRATE_BENCH_H

#include "backends/cuda/device/device.h"
#include "backends/cuda/device/events.h"

// Puts one repeat on the stream.
typedef sp_status (*sp_i_cuda_work)(void *context, cudaStream_t stream, sp_error *err);

// Median seconds, half the distance between the quartiles as a share of it, and the fastest.
typedef struct sp_i_cuda_timing {
    double median_s, spread, least_s;
    int repeats;
} sp_i_cuda_timing;

enum {
    SP_I_CUDA_BATCH = 16,
    SP_I_CUDA_LEAST_REPEATS = 4, // of what takes longer than its budget
    SP_I_CUDA_MOST_REPEATS = 512
};

enum { SP_I_CUDA_MOST_NEIGHBOURS = 15 };

typedef struct sp_i_cuda_bench {
    sp_i_cuda_device device;
    cudaStream_t stream; // borrowed
    sp_i_cuda_events events;
    void *flushed; // NULL: caches stay warm
    int64_t flushed_bytes;
    // ---- for work under load; set by the caller ----
    int neighbours;
    cudaStream_t neighbour[SP_I_CUDA_MOST_NEIGHBOURS]; // borrowed
    sp_i_cuda_delay delay;                             // that all wait for at the start
} sp_i_cuda_bench;

// flushed_bytes: memory that is overwritten before each repeat, at least the size of the L2 cache
// where it is to be cold; 0: none.
sp_status sp_i_cuda_bench_init(const sp_i_cuda_device *device, cudaStream_t stream,
                               int64_t flushed_bytes, sp_i_cuda_bench *bench, sp_error *err);
void sp_i_cuda_bench_fini(sp_i_cuda_bench *bench);

// Repeats until about budget_s of device time is over, between SP_I_CUDA_LEAST_REPEATS and
// SP_I_CUDA_MOST_REPEATS times, in batches of SP_I_CUDA_BATCH or, of long pieces, of as many as the
// budget holds. A first repeat, which says how long a piece takes, and of short pieces a first
// batch warm up and do not count.
sp_status sp_i_cuda_bench_time(sp_i_cuda_bench *bench, sp_i_cuda_work work, void *context,
                               double budget_s, sp_i_cuda_timing *timing, sp_error *err);

// Times work under load: contexts[0] is timed, the others are the neighbours'. Alone where there
// are none.
sp_status sp_i_cuda_bench_time_loaded(sp_i_cuda_bench *bench, sp_i_cuda_work work,
                                      void *const *contexts, double budget_s,
                                      sp_i_cuda_timing *timing, sp_error *err);

// Of `count` samples, at least one, which it sorts.
sp_i_cuda_timing sp_i_cuda_timing_of(double *seconds, int count);

// Random numbers in device memory: what a product takes depends on its operands' bits (zeros draw
// less power), so that nothing is timed on constant data.

// Fills `elements` bf16 numbers at `data`: normal, mean 0, this standard deviation. A drawn block
// of up to 8 MiB is repeated. Returns when it is done.
sp_status sp_i_cuda_fill_normal(const sp_i_cuda_device *device, void *data, int64_t elements,
                                double deviation, uint64_t seed, cudaStream_t stream,
                                sp_error *err);

// Parts of one block of memory, one behind the other: what so many bytes take, and the next of
// them.
int64_t sp_i_cuda_aligned_bytes(int64_t bytes);
void *sp_i_cuda_take_part(char **next, int64_t bytes);

#endif
