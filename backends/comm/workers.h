// Worker threads: one function run once per rank, each in a thread of its own.
#ifndef SLIMPACK_BACKENDS_COMM_WORKERS_H
#define SLIMPACK_BACKENDS_COMM_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/status.h"

typedef struct sp_workers sp_workers;

// What a worker runs. `err` is its own and is returned by the join.
typedef sp_status sp_worker_run(void *data, int rank, sp_error *err);

typedef struct sp_workers_options {
    bool pin; // each to a core of its own where the process may use enough of them
} sp_workers_options;

// Starts `count` threads; none runs before all are there. SP_ERR_NO_MEMORY where one cannot be
// made, and then none has run. `options` may be NULL; `data` must outlive the threads.
sp_status sp_workers_start(int count, const sp_workers_options *options, sp_worker_run *run,
                           void *data, sp_workers **workers, sp_error *err);

// Waits until all have ended, at most timeout_ns (0: for ever). Returns the status and messages of
// the lowest rank that failed. SP_ERR_LIMIT names the ranks that still run: let their world fail
// and join again.
sp_status sp_workers_join(sp_workers *workers, int64_t timeout_ns, sp_error *err);

// Threads that have not ended. After a join with a deadline, whether it was met.
int sp_workers_running(sp_workers *workers);

// Has every thread a core of its own?
bool sp_workers_are_pinned(const sp_workers *workers);

// Waits for threads that still run.
void sp_workers_free(sp_workers *workers);

// Cores that this process may use; at least 1.
int sp_i_cores(void);

#endif
