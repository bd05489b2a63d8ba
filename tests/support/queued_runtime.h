// A machine that puts its ranks' work into queues and does it as late as it can, so that a fence
// that is missing shows: work is done only when someone must see it (now_ns, synchronize, download,
// sum_of_squares), by the thread that must, and then only what that needs,
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

// The rank's next piece of work but `pieces` goes wrong: synchronize says so, once.
void queued_runtime_fail(sp_runtime *runtime, int rank, int pieces);

// Pieces of the rank that are not done.
int64_t queued_runtime_left(sp_runtime *runtime, int rank);

#endif
