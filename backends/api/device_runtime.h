// The device runtime of a run: where the memory of the run's ranks lies and where their work is
// done. That is this computer's own memory and the calling thread (backends/host/cpu_runtime.h), or
// a GPU's memory and a stream for each rank.
//
// Memory of a device is reached by these calls and by what computes on the device. Only memory of a
// runtime with `plain_memory` may be read and written directly. Each thread works for one rank at a
// time (`enter`). Work of a rank is done in the order of the calls made for it, and a call may
// return before its work is done. Only fences order the work of different ranks.
//
// A failure in work that was only enqueued is kept with the rank, and `synchronize` returns it.
// Until then further work of the rank has no effect that counts.
#ifndef SLIMPACK_BACKENDS_API_DEVICE_RUNTIME_H
#define SLIMPACK_BACKENDS_API_DEVICE_RUNTIME_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/status.h"

typedef struct sp_runtime sp_runtime;

typedef enum sp_element {
    SP_ELEMENT_F32,
    SP_ELEMENT_F64,
    SP_ELEMENT_BF16,
    SP_ELEMENT_BYTE
} sp_element;
static inline int64_t sp_element_bytes(sp_element element)
{
    static const int64_t bytes[] = {4, 8, 2, 1};
    return bytes[element];
}

// A point in a rank's work. Zeroed: before all work.
typedef struct sp_fence {
    int rank;
    uint64_t point;
} sp_fence;

enum { SP_RUNTIME_ALIGNMENT = 256 };

// A runtime begins with this table. Every slot is there unless its comment says otherwise.
typedef struct sp_runtime_ops {
    // At least `bytes`, aligned to SP_RUNTIME_ALIGNMENT; NULL where there is none. Of any thread.
    // errno is ENOSPC where a device has none, anything else where this computer has none.
    void *(*allocate)(sp_runtime *runtime, int64_t bytes);
    // All ranks' work on it is over.
    void (*release)(sp_runtime *runtime, void *memory);
    // Host memory that copies of the device reach as fast as they can, and that no other work of
    // the device reaches. Of any thread; NULL where there is none.
    void *(*allocate_host)(sp_runtime *runtime, int64_t bytes);
    void (*release_host)(sp_runtime *runtime, void *memory);
    // Bytes that `allocate` can still have where all ranks share them; NULL: it is not known.
    int64_t (*free_bytes)(sp_runtime *runtime);

    // The calling thread works for this rank of the run from now on.
    void (*enter)(sp_runtime *runtime, int rank);

    // Work of the calling thread's rank. Pieces do not overlap. Either may be of allocate_host.
    void (*copy)(sp_runtime *runtime, void *to, const void *from, int64_t bytes);
    // `rows` pieces of `bytes` each, their begins `to_stride` and `from_stride` bytes apart.
    void (*copy_rows)(sp_runtime *runtime, int64_t rows, int64_t bytes, void *to, int64_t to_stride,
                      const void *from, int64_t from_stride);
    void (*zero)(sp_runtime *runtime, void *to, int64_t bytes);
    // From memory of the caller, which may change it when the call returns.
    void (*upload)(sp_runtime *runtime, void *to, const void *from, int64_t bytes);
    // Into memory of the caller, complete when the call returns.
    void (*download)(sp_runtime *runtime, void *to, const void *from, int64_t bytes);
    // out[k][i] = in[0][i] + in[1][i] + ..., or the maximum, in this order, by fp32 for bf16,
    // rounded once; `members` of in, the same result in `outs` of out. The tables are the caller's,
    // who may change them when the call returns, what they point to is the device's. Each out may
    // be one of in, and else overlaps none. Not for bytes. A maximum with a NaN is NaN.
    void (*reduce)(sp_runtime *runtime, sp_element element, bool maximum, int64_t count,
                   const void *const *in, int members, void *const *out, int outs);
    // *sum = sum of x^2, n elements of fp32 or fp64, in fp64 and in an order that depends on n
    // alone; complete when the call returns.
    void (*sum_of_squares)(sp_runtime *runtime, sp_element element, int64_t n, const void *x,
                           double *sum);

    // The point that the calling thread's rank has come to.
    sp_fence (*mark)(sp_runtime *runtime);
    // All that the calling thread's rank is given from now on is done after that point.
    void (*wait)(sp_runtime *runtime, sp_fence fence);

    // Waits until all work of the calling thread's rank is done and returns the time of the
    // device's clock at its end, by which virtual time counts: of a CPU the thread's processor
    // time.
    int64_t (*now_ns)(sp_runtime *runtime);
    // Notes the time at the point that the rank has come to, without waiting: the same clock for
    // all ranks, on which a run's wall clock counts.
    uint64_t (*stamp)(sp_runtime *runtime);
    // The time of a stamp, when all work of the rank that noted it is done
    // (sp_runtime_ops.synchronize).
    int64_t (*stamp_ns)(sp_runtime *runtime, uint64_t stamp);

    // Waits until all work of the calling thread's rank is done; the first thing that went wrong.
    sp_status (*synchronize)(sp_runtime *runtime, sp_error *err);

    // Names what the calling thread puts down until `end`, for profilers: the rank's action. Both
    // may be NULL.
    void (*begin)(sp_runtime *runtime, const char *action);
    void (*end)(sp_runtime *runtime);
    // Work of the calling thread's rank: memory that has just been taken holds what is no number,
    // so that a test sees who reads it before it is written. NULL: not done.
    void (*spoil)(sp_runtime *runtime, void *memory, int64_t bytes);

    bool plain_memory;
} sp_runtime_ops;

struct sp_runtime {
    const sp_runtime_ops *ops;
};

#endif
