// A machine that puts its ranks' work into queues and does it as late as it can, so that a fence
// that is missing shows: work is done only when someone must see it (now_ns, synchronize, download,
// sum_of_squares, queued_runtime_finish), by the thread that must, and then only what that needs,
// or by chance more, in an order drawn among the ranks that fences allow.
//
// Addresses are held against the machine's blocks of memory: work on anything else, or on memory
// that has been released, ends the program. New memory holds NaN. Its clock is no real one: a piece
// of work takes a microsecond, and a nanosecond for each byte written, of its own rank (now_ns) or
// of the machine, which does one thing at a time (stamp).
#ifndef SLIMPACK_TESTS_SUPPORT_QUEUED_MACHINE_H
#define SLIMPACK_TESTS_SUPPORT_QUEUED_MACHINE_H

#include <stddef.h>

#include "backends/api/device_runtime.h"

typedef struct queued_runtime_options {
    int ranks;
    uint64_t seed; // of the order
    bool guarded;  // its addresses are for its calls alone: to read or write there ends the program
} queued_runtime_options;

sp_runtime *queued_runtime_new(const queued_runtime_options *options);
// All memory must have been released.
void queued_runtime_free(sp_runtime *runtime);

// Does all work of the calling thread's rank, for what is computed without the machine next.
void queued_runtime_finish(sp_runtime *runtime);

// Puts down a call as work of the calling thread's rank; `arguments` are copied and handed to it.
// It may call nothing of the machine but queued_runtime_reach.
typedef void queued_call(sp_runtime *runtime, const void *arguments);
void queued_runtime_put(sp_runtime *runtime, queued_call *call, const void *arguments,
                        size_t bytes);
// For such a call alone: where `bytes` of the machine's memory can be read and written.
void *queued_runtime_reach(sp_runtime *runtime, const void *memory, int64_t bytes);

// The rank's next piece of work but `pieces` goes wrong: synchronize says so, once.
void queued_runtime_fail(sp_runtime *runtime, int rank, int pieces);

// Pieces of the rank that are not done.
int64_t queued_runtime_left(sp_runtime *runtime, int rank);

#endif
