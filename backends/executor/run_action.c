#include "backends/comm/comm.h"
#include "backends/executor/run.h"

static const sp_i_exec_pack *pack_of(const sp_i_exec_rank *rank, sp_action action)
{
    return sp_i_exec_pack_at(&rank->job->slices, sp_action_is_backward(action), action.pack);
}

// One action at work.
typedef struct work {
    sp_i_exec_run *run;
    sp_i_exec_rank *rank;
    sp_i_exec_stage *stage;
    sp_action action;
    int vstage;
} work;

// A forward, or a backward of which an I leaves the weight gradients to its W.
static bool run_pass(const work *w)
{
    sp_i_exec_run *run = w->run;
    bool forward = w->action.kind == SP_ACTION_F;
    size_t unit = (size_t)w->vstage * w->rank->job->slices.forward_count + (size_t)w->action.pack;
    const void *input = sp_i_exec_input(run, w->rank, w->action);
    void *output;
    if (!sp_i_exec_make_output(run, w->rank, w->action, &output)) {
        return false;
    }
    bool runs_again = forward && run->runs_again[unit] != 0;
    bool keeps = sp_depends_left(w->action, runs_again) == SP_HOLDS_ALL;
    bool ok = forward ? run->math->forward(w->stage, w->action.pack, input, output, keeps)
                      : run->math->backward(w->stage, w->action.pack, input, output,
                                            sp_depends_splits(w->action));
    sp_i_exec_drop_input(run, w->rank, w->action);
    return ok;
}

static bool dispatch(const work *w)
{
    switch ((sp_action_kind)w->action.kind) {
    case SP_ACTION_F:
    case SP_ACTION_B:
    case SP_ACTION_I:
        return run_pass(w);
    case SP_ACTION_R:
        return w->run->math->again(w->stage, w->action.pack);
    case SP_ACTION_W:
        return w->run->math->weights(w->stage, w->action.pack);
    case SP_ACTION_O:
        return sp_i_exec_copy_out(w->run, w->rank, w->action);
    case SP_ACTION_L:
        return sp_i_exec_copy_back(w->run, w->rank, w->action);
    case SP_ACTION_KINDS:
        break;
    }
    SP_UNREACHABLE("an action of no kind");
}

// Profilers see it under the action's name.
static bool dispatch_named(const work *w)
{
    sp_runtime *runtime = w->run->runtime;
    if (runtime->ops->begin == NULL) {
        return dispatch(w);
    }
    char name[32];
    sp_action_name(w->action, sp_i_exec_layout(w->run)->chunks, name);
    runtime->ops->begin(runtime, name);
    bool ok = dispatch(w);
    runtime->ops->end(runtime);
    return ok;
}

// What this action and the next one read from other processes.
static sp_status post_receives(const work *w, const sp_plan_place *place, sp_error *err)
{
    sp_error own = {0};
    sp_status status = w->run->transport == NULL
                           ? SP_OK
                           : sp_i_exec_post_receives(w->run, w->rank, w->rank->logged + 1, &own);
    return status == SP_OK ? SP_OK
                           : sp_error_at_action(err, status, w->run->request->plan, place, "%s",
                                                own.message[0]);
}

// What a request can make go wrong at one action, of the first rank of its (dp, pp).
static sp_status fail_on_demand(const work *w, const sp_plan_place *place, sp_error *err)
{
    const sp_i_exec_options *options = &w->run->options;
    const sp_plan *plan = w->run->request->plan;
    if (sp_i_exec_member(w->run, w->rank) > 0 || w->run->steps_done + 1 != options->fault_step) {
        return SP_OK;
    }
    if (sp_i_exec_names(options->fail, plan, place)) {
        return sp_error_at_action(err, SP_ERR_INTERNAL, plan, place, "it fails on demand");
    }
    if (sp_i_exec_names(options->exhaust, plan, place)) {
        return sp_error_at_action(err, SP_ERR_INFEASIBLE, plan, place,
                                  "it finds no memory, on demand");
    }
    if (w->run->request->clock == SP_CLOCK_WALL && sp_i_exec_names(options->stall, plan, place)) {
        sp_comm_flag never = {0};
        int me = sp_comm_rank(w->rank->links.me);
        return sp_comm_flag_wait(w->rank->links.me, &never, me, "its own end", err);
    }
    return SP_OK;
}

static void note(const work *w, uint64_t start)
{
    const sp_i_exec_run *run = w->run;
    sp_i_exec_log *log = &w->rank->log[w->rank->logged++];
    log->start = start;
    log->end = sp_i_exec_timestamp(run, w->rank);
    log->end_exchange = w->rank->links.exchange_count;
    if (sp_action_is_copy(w->action)) {
        return;
    }
    log->during = *sp_i_exec_high(w->rank->arena, run->options.measure);
    log->after = sp_i_exec_rank_held(run, w->rank);
    log->during.of[SP_MEM_OFFLOADED] = log->after.of[SP_MEM_OFFLOADED];
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        log->during.of[c] -= w->rank->offload.moved.of[c];
        log->after.of[c] -= w->rank->offload.moved.of[c];
    }
}

// On the virtual clock an action with other ranks in it takes what its own rank computes, without
// its share of the head, which is noted apart.
static void take_share(const work *w, uint64_t start, int64_t own_ns)
{
    sp_i_exec_rank *rank = w->rank;
    sp_share_part part;
    if (w->run->request->clock == SP_CLOCK_VIRTUAL &&
        sp_share_part_of(sp_i_exec_layout(w->run), w->vstage, w->action, &part)) {
        rank->share_ns = rank->links.end_ns;
        rank->log[rank->logged - 1].end =
            start + (uint64_t)(sp_comm_clock_own(rank->links.me) - own_ns - rank->share_ns);
    }
}

static work work_of(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action)
{
    return (work){.run = run,
                  .rank = rank,
                  .stage = sp_i_exec_stage_of(run, rank, action.chunk),
                  .action = action,
                  .vstage = sp_layout_vstage(sp_i_exec_layout(run), rank->pp, action.chunk)};
}

// What an action gives to another stage goes off when its end is on record, and that of the first
// of a pair with that of the second.
static void send_outputs(const work *w)
{
    sp_i_exec_rank *rank = w->rank;
    if (w->action.with_next) {
        rank->first_of_pair = w->action;
        return;
    }
    if (rank->first_of_pair.with_next) {
        sp_i_exec_send_output(w->run, rank, rank->first_of_pair);
        rank->first_of_pair.with_next = 0;
    }
    sp_i_exec_send_output(w->run, rank, w->action);
}

sp_status sp_i_exec_rank_action(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action,
                                sp_error *err)
{
    bool computes = pack_of(rank, action)->all_rows > 0;
    const sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = action};
    const work w = work_of(run, rank, action);
    bool wall = run->request->clock == SP_CLOCK_WALL;
    sp_status status = fail_on_demand(&w, &place, err);
    status = status == SP_OK ? post_receives(&w, &place, err) : status;
    status = status == SP_OK && wall ? sp_i_exec_wait_input(run, rank, action, err) : status;
    if (status != SP_OK) {
        return status;
    }
    sp_i_exec_mark(rank->arena);
    rank->log[rank->logged].first_exchange = rank->links.exchange_count;
    rank->links.end_ns = 0;
    uint64_t start = sp_i_exec_timestamp(run, rank);
    int64_t own_ns = sp_comm_clock_own(rank->links.me);
    if (computes && !dispatch_named(&w)) {
        return sp_i_exec_rank_failure(run, rank, &place, err);
    }
    if (!computes) {
        sp_i_exec_drop_input(run, rank, action);
    }
    note(&w, start);
    take_share(&w, start, own_ns);
    send_outputs(&w);
    bool sent = rank->links.status == SP_OK;
    if (!sent || (action.kind == SP_ACTION_F && !sp_i_exec_forward_ended(run, rank))) {
        return sp_i_exec_rank_failure(run, rank, &place, err);
    }
    return SP_OK;
}

// ---- Shares of a vocabulary that pipeline ranks share ----

// A vocabulary spread over the pipeline ranks: all of them embed the tokens of a pack for the first
// virtual stage, and compute logits and loss for the last one. Each does its share at the place
// among its actions that sim/plan/walk.h names; there all ranks meet, because sums go
// over all of them. On the virtual clock a share takes what its rank computes, as if sums were
// under way while others go on; on the wall clock ranks wait for each other.

// Of a forward: does what it keeps stay? What will run again keeps nothing the first time.
static bool keeps(const sp_i_exec_run *run, const sp_i_exec_rank *rank, const sp_share *share)
{
    int vstage = sp_share_stage(sp_i_exec_layout(run), share->part);
    size_t unit = (size_t)vstage * rank->job->slices.forward_count + (size_t)share->action.pack;
    return sp_depends_left(share->action, run->runs_again[unit] != 0) == SP_HOLDS_ALL;
}

static bool run_share(const sp_i_exec_run *run, const sp_i_exec_rank *rank, const sp_share *share)
{
    sp_i_exec_stage *stage = sp_i_exec_stage_of(run, rank, share->action.chunk);
    switch (share->part) {
    case SP_SHARE_EMBEDDING:
        return run->math->share(stage, SP_I_EXEC_EMBED, share->action.pack,
                                keeps(run, rank, share));
    case SP_SHARE_EMBEDDING_BACKWARD:
        return run->math->share(stage, SP_I_EXEC_EMBED_BACKWARD, share->action.pack,
                                sp_depends_splits(share->action));
    case SP_SHARE_HEAD:
        return run->math->share(stage, SP_I_EXEC_HEAD, share->action.pack, keeps(run, rank, share));
    case SP_SHARE_HEAD_BACKWARD:
        return run->math->share(stage, SP_I_EXEC_HEAD_BACKWARD, share->action.pack,
                                sp_depends_splits(share->action));
    }
    SP_UNREACHABLE("a share of no part");
}

sp_status sp_i_exec_rank_share(sp_i_exec_run *run, sp_i_exec_rank *rank, const sp_share *share,
                               sp_error *err)
{
    const sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = share->action};
    sp_i_exec_log *log = &rank->share_log[rank->shares_logged++];
    sp_i_exec_mark(rank->arena);
    int64_t own_ns = sp_comm_clock_own(rank->links.me);
    log->first_exchange = rank->links.exchange_count;
    log->start = sp_i_exec_timestamp(run, rank);
    if (!run_share(run, rank, share)) {
        return sp_i_exec_rank_failure(run, rank, &place, err);
    }
    log->end = sp_i_exec_timestamp(run, rank);
    log->end_exchange = rank->links.exchange_count;
    rank->share_ns = sp_comm_clock_own(rank->links.me) - own_ns;
    log->during = *sp_i_exec_high(rank->arena, run->options.measure);
    log->after = sp_i_exec_rank_held(run, rank);
    return SP_OK;
}

sp_status sp_i_exec_rank_shares(sp_i_exec_run *run, sp_i_exec_rank *rank, size_t place,
                                size_t *done, sp_error *err)
{
    size_t count;
    const sp_share *shares =
        sp_shares_of(&run->shares, sp_i_exec_layout(run), rank->dp, rank->pp, &count);
    sp_status status = SP_OK;
    for (; status == SP_OK && *done < count && shares[*done].before <= place; (*done)++) {
        if (!shares[*done].own) {
            status = sp_i_exec_rank_share(run, rank, &shares[*done], err);
        }
    }
    return status;
}
