#include "backends/comm/comm.h"
#include "backends/comm/private.h"
#include "backends/comm/workers.h"
#include "sim/base/alloc.h"

typedef struct turn turn;

typedef struct run {
    sp_comm_world *world;
    const int *ranks; // NULL: all, in order
    int count;
    sp_comm_body *body;
    void *data;
    turn *scheduler; // [count], where they are needed
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

static void begin(const run *r)
{
    for (int i = 0; i < r->count; i++) {
        set_ended(rank_at(r, i), false);
    }
    sp_i_comm_start_work(r->world, r->count);
}

static void cancel(const run *r)
{
    for (int i = 0; i < r->count; i++) {
        set_ended(rank_at(r, i), true);
    }
    sp_i_comm_start_work(r->world, -r->count);
}

static sp_status run_rank(void *data, int number, sp_error *err)
{
    const run *r = data;
    sp_comm *me = rank_at(r, number);
    sp_runtime *runtime = r->world->runtime;
    runtime->ops->enter(runtime, me->rank);
    sp_i_comm_clock_skip(me);
    sp_status status = r->body(me, r->data, err);
    sp_status settled = sp_i_comm_end_work(me, status, err);
    status = status == SP_OK ? settled : status;
    if (status != SP_OK) {
        sp_comm_abort(me, status, "%s", err->count > 0 ? err->message[0] : sp_status_text(status));
    }
    sp_i_comm_stop_work(me, true);
    return status;
}

static sp_status run_threads(run *r, int threads, const sp_workers_options *options,
                             sp_worker_run *work, int64_t timeout_ns, sp_error *err)
{
    sp_workers *workers;
    sp_status status = sp_workers_start(threads, options, work, r, &workers, err);
    if (status != SP_OK) {
        return status;
    }
    sp_workers_join(workers, timeout_ns, NULL);
    if (sp_workers_running(workers) > 0) {
        sp_i_comm_deadline_over(r->world);
    }
    sp_workers_free(workers);
    return SP_OK;
}

// ---- one at a time ----

struct turn {
    run *run;
    int number;
};

static void run_turn(void *data)
{
    const turn *t = data;
    sp_error own = {0};
    (void)run_rank(t->run, t->number, &own);
}

static sp_status drive(void *data, int thread, sp_error *err)
{
    run *r = data;
    (void)thread;
    (void)err;
    for (int i = 0; i < r->count; i++) {
        r->scheduler[i] = (turn){r, i};
        sp_i_comm_fiber_start(rank_at(r, i), run_turn, &r->scheduler[i]);
    }
    sp_i_comm_scheduler_run(r->world, r->count);
    return SP_OK;
}

static sp_status make_fibers(const run *r, sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < r->count; i++) {
        status = sp_i_comm_fiber_make(rank_at(r, i), err);
    }
    return status;
}

// A deadline is kept by a thread beside the one that all ranks are on.
static sp_status run_fibers(run *r, const sp_workers_options *options, int64_t timeout_ns,
                            sp_error *err)
{
    r->scheduler = sp_calloc((size_t)r->count, sizeof *r->scheduler);
    sp_status status =
        r->scheduler != NULL ? make_fibers(r, err) : sp_error_no_memory(err, "ranks");
    if (status == SP_OK && timeout_ns == 0) {
        drive(r, 0, NULL);
    } else if (status == SP_OK) {
        status = run_threads(r, 1, options, drive, timeout_ns, err);
    }
    sp_free(r->scheduler);
    return status;
}

// ---- runs ----

// Of ranks in processes of their own only one is here; false: not even that. How long it may wait
// for others is its transport's matter.
static bool keep_here(run *r)
{
    const int *here = &r->world->transport->rank;
    bool found = false;
    for (int i = 0; i < r->count; i++) {
        found = found || (r->ranks != NULL ? r->ranks[i] : i) == *here;
    }
    r->ranks = here;
    r->count = 1;
    return found;
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
    run r = {.world = world, .ranks = ranks, .count = count, .body = body, .data = data};
    sp_status status = SP_OK;
    if (world->transport != NULL && !keep_here(&r)) {
        return sp_comm_world_failure(world, err);
    }
    timeout_ns = world->transport != NULL ? 0 : timeout_ns;
    begin(&r);
    if (r.count == 1 && timeout_ns == 0) {
        sp_error own = {0};
        run_rank(&r, 0, &own);
    } else if (world->one_at_a_time) {
        status = run_fibers(&r, options, timeout_ns, err);
    } else {
        status = run_threads(&r, r.count, options, run_rank, timeout_ns, err);
    }
    if (status != SP_OK) {
        cancel(&r);
        return status;
    }
    return sp_comm_world_failure(world, err);
}
