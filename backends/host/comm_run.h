// All ranks of a world at work: a thread each, one failure, one deadline.
#ifndef SLIMPACK_BACKENDS_HOST_COMM_RUN_H
#define SLIMPACK_BACKENDS_HOST_COMM_RUN_H

#include "backends/host/comm.h"
#include "backends/host/comm_workers.h"

typedef sp_status sp_comm_body(sp_comm *me, void *data, sp_error *err);

// Runs the body on every rank and returns when all have ended. A rank whose body fails lets the
// world fail with its messages. After timeout_ns (0: none) the world fails with SP_ERR_LIMIT and
// the ranks that were at work; ranks that compute end with their next call. Returns the world's
// failure, so the first reason, even where no body gave one, or SP_OK; SP_ERR_NO_MEMORY where the
// threads cannot start. `options` may be NULL.
sp_status sp_comm_run(sp_comm_world *world, const sp_workers_options *options, sp_comm_body *body,
                      void *data, int64_t timeout_ns, sp_error *err);

#endif
