// Actions on the wall clock: every rank runs its own in a thread of its own, as its inputs come.
// Copies to and from host memory are that thread's work too: they hide behind nothing.
#include "backends/host/run.h"
#include "sim/base/alloc.h"

static sp_status run_rank(sp_comm *me, void *data, sp_error *err)
{
    sp_i_host_run *run = data;
    sp_i_host_rank *rank = &run->ranks[sp_comm_rank(me)];
    const sp_stage_plan *stage = sp_plan_stage(run->request->plan, rank->dp, rank->pp);
    sp_status status = SP_OK;
    for (size_t a = 0; status == SP_OK && a < stage->count; a++) {
        char name[32];
        sp_action_name(stage->actions[a], sp_i_host_layout(run)->chunks, name);
        sp_comm_set_action(me, name);
        status = sp_comm_world_failure(run->world, &rank->err);
        status = status == SP_OK ? sp_i_host_rank_action(run, rank, stage->actions[a], &rank->err)
                                 : status;
    }
    for (int i = 0; status != SP_OK && i < rank->err.count; i++) {
        sp_error_set(err, status, "%s", rank->err.message[i]);
    }
    sp_comm_set_action(me, "");
    return status;
}

// The first of the ranks of a (dp, pp) stands for all: they go from exchange to exchange together.
static void fill_rank(const sp_i_host_run *run, sp_rank_timeline *line)
{
    const sp_i_host_rank *rank = sp_i_host_rank_at(run, line->dp, line->pp, 0);
    const sp_stage_plan *stage = sp_plan_stage(run->request->plan, line->dp, line->pp);
    for (size_t a = 0; a < stage->count; a++) {
        const sp_i_host_log *log = &rank->log[a];
        int64_t took_ns = log->end_ns - log->start_ns;
        int64_t tp_ns = log->tp_ns < took_ns ? log->tp_ns : took_ns;
        sp_action action = stage->actions[a];
        bool copy = action.kind == SP_ACTION_O || action.kind == SP_ACTION_L;
        sp_span *span = copy ? &line->copies[line->copy_count++] : &line->spans[line->count++];
        *span = (sp_span){.action = action,
                          .start_ns = log->start_ns,
                          .end_ns = log->end_ns,
                          .tp_ns = tp_ns,
                          .dp_ns = log->dp_ns < took_ns - tp_ns ? log->dp_ns : took_ns - tp_ns};
    }
}

sp_status sp_i_host_run_wall(sp_i_host_run *run, sp_timeline *timeline, sp_error *err)
{
    size_t count = sp_i_host_rank_count(run);
    int *ranks = sp_i_calloc(count, sizeof *ranks);
    if (ranks == NULL) {
        return sp_error_no_memory(err, "the ranks of a step");
    }
    for (size_t r = 0; r < count; r++) {
        ranks[r] = (int)r;
    }
    run->step_began_ns = sp_i_host_wall_ns();
    sp_status status = sp_i_host_on_ranks(run, ranks, (int)count, run_rank, run, err);
    for (size_t r = 0; status == SP_OK && r < timeline->rank_count; r++) {
        fill_rank(run, &timeline->ranks[r]);
    }
    sp_i_free(ranks);
    return status;
}
