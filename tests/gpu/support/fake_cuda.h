// A table of CUDA entry points without a GPU behind it: counts what is alive, fails where it is
// told to, and keeps a log of calls. Memory is the host's. Several threads may call; one sets it
// up.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_FAKE_CUDA_H
#define SLIMPACK_TESTS_GPU_SUPPORT_FAKE_CUDA_H

#include "backends/cuda/device.h"

enum { FAKE_LOG = 4096 };

// A stream that waits for the event that was recorded on another as number `record` of all.
typedef struct fake_wait {
    CUstream stream, recorded_on;
    int record;
} fake_wait;

typedef struct fake_cuda {
    // ---- set by the test ----
    int devices;
    const char *fail; // call that fails, such as "MemAlloc"; NULL: none
    int fail_at;      // which of its calls, from 0
    CUresult fail_code;
    size_t free_bytes, total_bytes;
    bool counts_memory;   // free_bytes is less by what the fake gives; else many devices are one
    size_t context_bytes; // that a green context takes
    unsigned sms, smallest, alignment;
    unsigned groups_less; // fewer groups than a split should give
    int wait_dropped;     // which wait of a stream for an event is left out, from 1; 0: none
    int64_t tick_ns;      // that the clock goes on with every record of an event
    // ---- kept by the fake ----
    int live_blocks, live_streams, live_events, live_contexts, splits;
    int calls; // of `fail`
    // Copies between the device and memory that MemHostAlloc did not give, on a stream whose work
    // may wait for another GPU and has not been seen to be over: the host would wait in the driver.
    int blocked_copies;
    size_t taken_bytes;
    int records;      // of events
    int waits;        // of streams for events
    fake_wait waited; // the last
    int64_t clock_ns; // recorded by events; a delay adds to it
    char log[FAKE_LOG];
} fake_cuda;

extern fake_cuda fake;

// The context that a stream belongs to, and the calling thread's current one. NULL: the device's
// primary context, which the others stand on.
CUcontext fake_stream_context(CUstream stream);
CUcontext fake_current_context(void);

// Work that may wait for another GPU is on the stream; the host has seen that all of it is over.
void fake_stream_may_wait(CUstream stream);
void fake_stream_is_over(CUstream stream);

// Resets the fake: one device of 132 SMs in steps of 8, nothing fails.
void fake_cuda_reset(sp_cuda_api *api);

#endif
