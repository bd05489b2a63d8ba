// Independent jobs on several threads.
#ifndef SLIMPACK_SIM_BASE_PARALLEL_H
#define SLIMPACK_SIM_BASE_PARALLEL_H

#include "sim/base/status.h"

// One job; `worker` tells apart the threads, 0 to threads - 1, for what each keeps of its own.
typedef sp_status (*sp_i_job)(void *context, int worker, int job, sp_error *err);

// Runs jobs 0 to count - 1, each once, on up to `threads` threads, this one among them; fewer where
// the system has no more. The error is that of the lowest job that failed, whatever the threads;
// jobs after a failed one may not have run.
sp_status sp_i_parallel_for(int threads, int count, sp_i_job job, void *context, sp_error *err);

#endif
