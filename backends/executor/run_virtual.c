// Actions in virtual time: sp_walk says which is next, the ranks that share it run it, and
// how long it took, by the device's clock (sp_runtime_ops.now_ns), decides when it would have run.
#include "backends/comm/comm.h"
#include "backends/executor/run.h"
#include "sim/base/alloc.h"
#include "sim/plan/walk.h"

typedef struct driver {
    sp_i_exec_run *run;
    int *ranks; // scratch: [all]
} driver;

typedef struct job {
    sp_i_exec_run *run;
    sp_action action;
    int dp, pp;              // that the action is on, of several data-parallel ranks the first
    const sp_share **shares; // [data-parallel ranks * pp]: what others do with it
} job;

static sp_status run_one(sp_comm *me, void *data, sp_error *err)
{
    const job *j = data;
    sp_i_exec_rank *rank = &j->run->ranks[sp_comm_rank(me)];
    const sp_plan_place place = {.dp = rank->dp, .pp = j->pp, .action = j->action};
    sp_comm_clock_start(me, 0);
    int other = (rank->dp - j->dp) * sp_i_exec_layout(j->run)->pp + rank->pp;
    sp_status status = rank->pp == j->pp
                           ? sp_i_exec_rank_action(j->run, rank, j->action, &rank->err)
                           : sp_i_exec_rank_share(j->run, rank, j->shares[other], &rank->err);
    status = status == SP_OK ? sp_i_exec_synchronize(j->run, &place, &rank->err) : status;
    if (status == SP_OK && rank->pp == j->pp) {
        sp_i_exec_fill_times(j->run, rank, &rank->log[rank->logged - 1]);
    }
    if (status != SP_OK) {
        sp_error_add(err, &rank->err);
    }
    return status;
}

// The action is over when the last of its ranks is done.
static void fill_outcome(const sp_i_exec_run *run, const sp_plan_place *place,
                         sp_walk_outcome *outcome)
{
    int64_t took_ns = 0;
    for (int m = 0; m < sp_i_exec_members(run); m++) {
        const sp_i_exec_rank *rank = sp_i_exec_rank_at(run, place->dp, place->pp, m);
        const sp_i_exec_log *log = &rank->log[rank->logged - 1];
        int64_t ns = log->end_ns - log->start_ns;
        took_ns = ns > took_ns ? ns : took_ns;
    }
    const sp_i_exec_rank *first = sp_i_exec_rank_at(run, place->dp, place->pp, 0);
    const sp_i_exec_log *log = &first->log[first->logged - 1];
    outcome->took.tp_ns = log->tp_ns < took_ns ? log->tp_ns : took_ns;
    took_ns -= outcome->took.tp_ns;
    outcome->took.dp_ns = log->dp_ns < took_ns ? log->dp_ns : took_ns;
    outcome->took.compute_ns = took_ns - outcome->took.dp_ns;
}

static void fill_shares(const sp_i_exec_run *run, const sp_walk_action *action,
                        sp_walk_outcome *outcome)
{
    for (int p = 0; action->shares != NULL && p < sp_i_exec_layout(run)->pp; p++) {
        int64_t took_ns = 0;
        for (int m = 0; action->shares[p] != NULL && m < sp_i_exec_members(run); m++) {
            int64_t ns = sp_i_exec_rank_at(run, action->place.dp, p, m)->share_ns;
            took_ns = ns > took_ns ? ns : took_ns;
        }
        outcome->shares[p] = (sp_action_cost){.compute_ns = took_ns};
    }
}

// The ranks that run an action: data-parallel ones, on its pipeline rank or, where they share the
// vocabulary, on all. Returns how many.
static int find_ranks(const driver *d, const sp_walk_action *action, sp_dp_ranks together)
{
    const sp_i_exec_run *run = d->run;
    const sp_plan_place *place = &action->place;
    bool shared = action->shares != NULL;
    int count = 0;
    for (int dp = together.first; dp < together.first + together.count; dp++) {
        for (int pp = 0; pp < sp_i_exec_layout(run)->pp; pp++) {
            for (int m = 0; (shared || pp == place->pp) && m < sp_i_exec_members(run); m++) {
                d->ranks[count++] = sp_i_exec_rank_number(run, dp, pp, m);
            }
        }
    }
    return count;
}

static sp_status run_action(void *context, const sp_walk_action *action, sp_walk_outcome *outcome,
                            sp_error *err)
{
    const driver *d = context;
    sp_i_exec_run *run = d->run;
    const sp_plan_place *place = &action->place;
    const sp_dp_ranks together = sp_depends_together(sp_depends_pack(&run->depends, place->action),
                                                     place->action, place->dp);
    outcome->stalls = run->steps_done + 1 == run->options.fault_step &&
                      sp_i_exec_names(run->options.stall, run->request->plan, place);
    if (outcome->stalls) {
        return SP_OK;
    }
    sp_status status = SP_OK;
    // A merged pack comes once for each of its ranks; all of them run it the first time.
    if (place->dp == together.first) {
        job j = {.run = run,
                 .action = place->action,
                 .dp = place->dp,
                 .pp = place->pp,
                 .shares = action->shares};
        status =
            sp_i_exec_on_ranks(run, d->ranks, find_ranks(d, action, together), run_one, &j, err);
    }
    if (status == SP_OK) {
        fill_outcome(run, place, outcome);
        fill_shares(run, action, outcome);
    }
    return status;
}

static int64_t transfer_ns(void *context, const sp_plan_place *from, int to)
{
    return sp_i_exec_transfer_ns(((const driver *)context)->run, from, to);
}

sp_status sp_i_exec_run_virtual(sp_i_exec_run *run, sp_timeline *timeline, sp_error *err)
{
    driver d = {.run = run, .ranks = sp_calloc(sp_i_exec_rank_count(run), sizeof *d.ranks)};
    const sp_walk_driver virtual = {
        .context = &d, .run = run_action, .transfer_ns = transfer_ns, .shares = &run->shares};
    sp_status status = sp_walk(run->request->plan, &virtual, timeline, NULL, err);
    sp_free(d.ranks);
    return status;
}
