// Independent jobs on several threads, and a stop that ends them all early.
#ifndef SLIMPACK_SIM_BASE_PARALLEL_H
#define SLIMPACK_SIM_BASE_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/status.h"

// A stop that somebody asks for, such as a person with Ctrl-C: what simulates, searches or runs
// jobs looks at it now and then, and ends with SP_ERR_STOPPED. Of the whole process, until it is
// forgotten. sp_stop_request() may be called by a signal handler.
void sp_stop_request(void);
void sp_stop_forget(void);
bool sp_stop_requested(void);
// A stop that comes by itself at a time of sp_clock_s(); 0: none does. sp_stop_forget() forgets it.
void sp_stop_at(double clock_s);
bool sp_stop_by_request(void); // did somebody ask?
// SP_OK, or SP_ERR_STOPPED where a stop was asked for.
sp_status sp_stop_check(sp_error *err);

// One job; `worker` tells apart the threads, 0 to threads - 1, for what each keeps of its own.
typedef sp_status (*sp_i_job)(void *context, int worker, int job, sp_error *err);

// Runs jobs 0 to count - 1, each once, on up to `threads` threads, this one among them; fewer where
// the system has no more. The error is that of the lowest job that failed, whatever the threads;
// jobs after a failed one, or after a stop was asked for, may not have run.
sp_status sp_parallel_for(int threads, int count, sp_i_job job, void *context, sp_error *err);

// Items that are made one after another, worked on by several threads, and taken in the order in
// which they were made.
typedef struct sp_ordered {
    int threads;       // that make items and work on them, at least 1
    int ahead;         // most items that are made and not yet taken, at least 1
    size_t item_bytes; // an item is zeroed before it is made
    void *context;     // of all functions below
    // Makes the next item, *more false: there is none. Calls do not overlap.
    sp_status (*make)(void *context, void *item, bool *more, sp_error *err);
    sp_status (*work)(void *context, int worker, void *item, sp_error *err);
    // Takes an item on the caller's thread; an error ends the run.
    sp_status (*take)(void *context, void *item, sp_error *err);
    // Frees what an item holds, once for each that was made, taken or not.
    void (*drop)(void *item);
    // Are the items made so far to be the last? Asked on the caller's thread before every item and
    // ten times a second while none comes. NULL: never.
    bool (*stops)(void *context);
    // Nothing further is wanted: ends a call of `make` that waits. NULL: `make` does not wait.
    void (*cancel)(void *context);
} sp_ordered;

// Runs until `make` has no more, something fails, or `stops` says so. The error is that of the
// first item that could not be made, worked on or taken, after all items before it were taken.
// SP_ERR_LIMIT where no thread can be started; fewer than asked for do.
sp_status sp_ordered_run(const sp_ordered *how, sp_error *err);

#endif
