// All ranks of a world at work: a thread each, or one for all where they compute one at a time; one
// failure, one deadline. Without a deadline one rank alone, and ranks one at a time, run on the
// thread of the caller.
#ifndef SLIMPACK_BACKENDS_COMM_RUN_H
#define SLIMPACK_BACKENDS_COMM_RUN_H

#include "backends/comm/comm.h"
#include "backends/comm/workers.h"

typedef sp_status sp_comm_body(sp_comm *me, void *data, sp_error *err);

// Runs the body on every rank, for which its thread has entered the machine, and returns when all
// have ended and their work is done. A rank whose body fails, or then its work, lets the world fail
// with its messages. After timeout_ns (0: none) the world fails with SP_ERR_LIMIT, first with the
// ranks that were at work; ranks that compute end with their next call. Returns the world's
// failure, so the first reason, even where no body gave one, or SP_OK; SP_ERR_NO_MEMORY where the
// threads cannot start. `options` may be NULL.
sp_status sp_comm_run(sp_comm_world *world, const sp_workers_options *options, sp_comm_body *body,
                      void *data, int64_t timeout_ns, sp_error *err);
// On `count` distinct ranks alone, of a world that has not failed: what they wait for must come
// from each other. `ranks` NULL: the first ones.
sp_status sp_comm_run_ranks(sp_comm_world *world, const int *ranks, int count,
                            const sp_workers_options *options, sp_comm_body *body, void *data,
                            int64_t timeout_ns, sp_error *err);

#endif
