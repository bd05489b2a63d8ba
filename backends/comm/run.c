#include "backends/comm/run.h"

#include "backends/comm/private.h"

typedef struct run {
    sp_comm_world *world;
    const int *ranks; // NULL: all, in order
    sp_comm_body *body;
    void *data;
} run;

static sp_comm *rank_at(const run *r, int number)
{
    return sp_comm_of(r->world, r->ranks != NULL ? r->ranks[number] : number);
}

static void set_ended(sp_comm *me, bool ended)
{
    pthread_mutex_lock(&me->lock);
    me->ended = ended;
    pthread_mutex_unlock(&me->lock);
}

static void begin(const run *r, int count)
{
    for (int i = 0; i < count; i++) {
        set_ended(rank_at(r, i), false);
    }
    sp_i_comm_work_on(r->world, count);
}

static void cancel(const run *r, int count)
{
    for (int i = 0; i < count; i++) {
        set_ended(rank_at(r, i), true);
    }
    sp_i_comm_work_on(r->world, -count);
}

static sp_status run_rank(void *data, int number, sp_error *err)
{
    const run *r = data;
    sp_comm *me = rank_at(r, number);
    sp_machine *machine = r->world->machine;
    machine->ops->enter(machine, me->rank);
    sp_i_comm_baton_take(me);
    sp_i_comm_clock_skip(me);
    sp_status status = r->body(me, r->data, err);
    sp_status settled = machine->ops->settle(machine, status == SP_OK ? err : NULL);
    status = status == SP_OK ? settled : status;
    if (status != SP_OK) {
        sp_comm_abort(me, status, "%s", err->count > 0 ? err->message[0] : sp_status_text(status));
    }
    sp_i_comm_baton_give(me);
    sp_i_comm_rest(me, true);
    return status;
}

// All in threads of their own.
static sp_status run_workers(run *r, int count, const sp_workers_options *options,
                             int64_t timeout_ns, sp_error *err)
{
    sp_workers *workers;
    sp_status status = sp_workers_start(count, options, run_rank, r, &workers, err);
    if (status != SP_OK) {
        return status;
    }
    sp_workers_join(workers, timeout_ns, NULL);
    if (sp_workers_running(workers) > 0) {
        sp_i_comm_time_out(r->world);
    }
    sp_workers_free(workers);
    return SP_OK;
}

sp_status sp_comm_run(sp_comm_world *world, const sp_workers_options *options, sp_comm_body *body,
                      void *data, int64_t timeout_ns, sp_error *err)
{
    return sp_comm_run_ranks(world, NULL, sp_comm_world_ranks(world), options, body, data,
                             timeout_ns, err);
}

sp_status sp_comm_run_ranks(sp_comm_world *world, const int *ranks, int count,
                            const sp_workers_options *options, sp_comm_body *body, void *data,
                            int64_t timeout_ns, sp_error *err)
{
    run r = {.world = world, .ranks = ranks, .body = body, .data = data};
    begin(&r, count);
    if (count == 1 && timeout_ns == 0) {
        sp_error own = {0};
        run_rank(&r, 0, &own);
        return sp_comm_world_failure(world, err);
    }
    sp_status status = run_workers(&r, count, options, timeout_ns, err);
    if (status != SP_OK) {
        cancel(&r, count);
        return status;
    }
    return sp_comm_world_failure(world, err);
}
