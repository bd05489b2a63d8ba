// Actions on the wall clock: every rank runs its own in a thread of its own, as its inputs come.
// Copies to and from host memory are that thread's work too: they hide behind nothing.
#include "backends/executor/run.h"
#include "sim/base/alloc.h"

// ---- Ranks side by side ----

// The times of a rank's actions and shares, when its work is done. What went wrong in work that was
// only put down is found here, and no sooner than at the last action.
static sp_status end_rank(sp_i_exec_run *run, sp_i_exec_rank *rank)
{
    sp_status status =
        run->transport == NULL ? SP_OK : sp_i_exec_channels_end(run, rank, &rank->err);
    status = status == SP_OK ? sp_i_exec_synchronize_last(run, rank, &rank->err) : status;
    for (size_t a = 0; status == SP_OK && a < rank->logged; a++) {
        sp_i_exec_fill_times(run, rank, &rank->log[a]);
    }
    for (size_t i = 0; status == SP_OK && i < rank->shares_logged; i++) {
        sp_i_exec_fill_times(run, rank, &rank->share_log[i]);
    }
    return status;
}

// The moment that the times of the ranks that are here count from.
static sp_status begin_clock(sp_i_exec_run *run, sp_error *err)
{
    sp_i_exec_enter(run, sp_i_exec_rank_here(run));
    uint64_t stamp = run->runtime->ops->stamp(run->runtime);
    run->wall_began_ns = sp_i_exec_wall_ns();
    sp_status status = sp_i_exec_synchronize(run, NULL, err);
    run->step_began_ns = status == SP_OK ? run->runtime->ops->stamp_ns(run->runtime, stamp) : 0;
    return status;
}

// Of a rank in a process of its own. The barrier stands for one moment of all ranks, whose devices
// have clocks of their own: each counts from where it has left it.
static sp_status begin_together(sp_i_exec_run *run, sp_i_exec_rank *rank)
{
    sp_comm_set_action(rank->links.me, "begin of the step");
    sp_status status =
        run->all_group >= 0 ? sp_comm_barrier(rank->links.me, run->all_group, &rank->err) : SP_OK;
    status = status == SP_OK ? sp_i_exec_synchronize(run, NULL, &rank->err) : status;
    return status == SP_OK ? begin_clock(run, &rank->err) : status;
}

static sp_status run_rank(sp_comm *me, void *data, sp_error *err)
{
    sp_i_exec_run *run = data;
    sp_i_exec_rank *rank = &run->ranks[sp_comm_rank(me)];
    const sp_stage_plan *stage = sp_plan_stage(run->request->plan, rank->dp, rank->pp);
    sp_status status = run->transport != NULL ? begin_together(run, rank) : SP_OK;
    size_t shares = 0;
    for (size_t a = 0; status == SP_OK && a < stage->count; a++) {
        char name[32];
        sp_action_name(stage->actions[a], sp_i_exec_layout(run)->chunks, name);
        sp_comm_set_action(me, name);
        status = sp_comm_world_failure(run->world, &rank->err);
        status =
            status == SP_OK ? sp_i_exec_rank_shares(run, rank, a, &shares, &rank->err) : status;
        status = status == SP_OK ? sp_i_exec_rank_action(run, rank, stage->actions[a], &rank->err)
                                 : status;
    }
    if (status == SP_OK) {
        status = sp_i_exec_rank_shares(run, rank, stage->count, &shares, &rank->err);
    }
    status = status == SP_OK ? end_rank(run, rank) : status;
    if (status != SP_OK) {
        sp_error_add(err, &rank->err);
    }
    sp_comm_set_action(me, "");
    return status;
}

// Waits for other ranks count: on this clock shares are where all ranks meet. The stage's rank has
// its own in its actions.
static void fill_shares(const sp_i_exec_run *run, sp_rank_timeline *line,
                        const sp_i_exec_rank *rank)
{
    size_t count;
    size_t logged = 0;
    const sp_share *shares =
        sp_shares_of(&run->shares, sp_i_exec_layout(run), line->dp, line->pp, &count);
    for (size_t i = 0; i < count; i++) {
        if (!shares[i].own) {
            const sp_i_exec_log *log = &rank->share_log[logged++];
            line->shares[line->share_count++] = (sp_share_span){.span = {.action = shares[i].action,
                                                                         .start_ns = log->start_ns,
                                                                         .end_ns = log->end_ns},
                                                                .part = shares[i].part};
        }
    }
}

// The first of the ranks of a (dp, pp) stands for all: they go from exchange to exchange together.
static void fill_rank(const sp_i_exec_run *run, sp_rank_timeline *line)
{
    const sp_i_exec_rank *rank = sp_i_exec_rank_at(run, line->dp, line->pp, 0);
    const sp_stage_plan *stage = sp_plan_stage(run->request->plan, line->dp, line->pp);
    for (size_t a = 0; a < stage->count; a++) {
        const sp_i_exec_log *log = &rank->log[a];
        int64_t took_ns = log->end_ns - log->start_ns;
        int64_t tp_ns = log->tp_ns < took_ns ? log->tp_ns : took_ns;
        sp_action action = stage->actions[a];
        sp_span *span = sp_action_is_copy(action) ? &line->copies[line->copy_count++]
                                                  : &line->spans[line->count++];
        *span = (sp_span){.action = action,
                          .start_ns = log->start_ns,
                          .end_ns = log->end_ns,
                          .tp_ns = tp_ns,
                          .dp_ns = log->dp_ns < took_ns - tp_ns ? log->dp_ns : took_ns - tp_ns};
    }
    fill_shares(run, line, rank);
}

void sp_i_exec_fill_wall(const sp_i_exec_run *run, sp_timeline *timeline)
{
    for (size_t r = 0; r < timeline->rank_count; r++) {
        fill_rank(run, &timeline->ranks[r]);
    }
}

sp_status sp_i_exec_run_wall(sp_i_exec_run *run, sp_timeline *timeline, sp_error *err)
{
    size_t count = sp_i_exec_rank_count(run);
    int *ranks = sp_calloc(count, sizeof *ranks);
    for (size_t r = 0; r < count; r++) {
        ranks[r] = (int)r;
    }
    run->wall_began_ns = sp_i_exec_wall_ns();
    sp_status status = run->transport == NULL ? begin_clock(run, err) : SP_OK;
    if (status == SP_OK) {
        status = sp_i_exec_on_ranks(run, ranks, (int)count, run_rank, run, err);
    }
    if (status == SP_OK && run->transport == NULL) {
        sp_i_exec_fill_wall(run, timeline);
    }
    sp_free(ranks);
    return status;
}
