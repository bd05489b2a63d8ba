#include "backends/host/comm_run.h"

typedef struct run {
    sp_comm_world *world;
    sp_comm_body *body;
    void *data;
} run;

static sp_status run_rank(void *data, int rank, sp_error *err)
{
    const run *r = data;
    sp_comm *me = sp_comm_of(r->world, rank);
    sp_status status = r->body(me, r->data, err);
    if (status != SP_OK) {
        sp_comm_abort(me, status, "%s", err->count > 0 ? err->message[0] : sp_status_text(status));
    }
    return status;
}

sp_status sp_comm_run(sp_comm_world *world, const sp_workers_options *options, sp_comm_body *body,
                      void *data, int64_t timeout_ns, sp_error *err)
{
    run r = {.world = world, .body = body, .data = data};
    sp_workers *workers;
    sp_error late = {0};
    sp_status status =
        sp_workers_start(sp_comm_world_ranks(world), options, run_rank, &r, &workers, err);
    if (status != SP_OK) {
        return status;
    }
    sp_workers_join(workers, timeout_ns, &late);
    if (sp_workers_running(workers) > 0) {
        sp_comm_world_abort(world, SP_ERR_LIMIT, "%s", late.message[0]);
    }
    sp_workers_free(workers);
    return sp_comm_world_failure(world, err);
}
