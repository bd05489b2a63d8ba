// The actions of a plan: one of one rank, and all of them as the clock of the run has it.
#include "backends/executor/run.h"

#include "sim/base/alloc.h"

// Fills in the times of an action when its rank's work is done.
static void fill_times(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_i_exec_log *log)
{
    int64_t spent_ns[SP_I_EXEC_EXCHANGE_KINDS] = {0};
    for (size_t e = log->first_exchange; e < log->end_exchange; e++) {
        const sp_i_exec_exchange *exchange = &rank->links.exchanges[e];
        spent_ns[exchange->kind] += sp_i_exec_timestamp_ns(run, exchange->end) -
                                    sp_i_exec_timestamp_ns(run, exchange->begin);
    }
    log->start_ns = sp_i_exec_timestamp_ns(run, log->start);
    log->end_ns = sp_i_exec_timestamp_ns(run, log->end);
    log->tp_ns = spent_ns[SP_I_EXEC_TP];
    log->cp_ns = spent_ns[SP_I_EXEC_CP];
    log->dp_ns = spent_ns[SP_I_EXEC_DP];
}

// ---- One action of one rank ----

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
    const void *input = sp_i_exec_input(run, w->rank, w->action);
    void *output;
    if (!sp_i_exec_make_output(run, w->rank, w->action, &output)) {
        return false;
    }
    bool runs_again = forward && sp_i_exec_runs_again(run, w->vstage, w->action.pack);
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

// Posts the receives of what this action and the next one read from other processes.
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

// Lets one action go wrong as the request asks, on the first rank of its (dp, pp).
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
    if (w->run->wall && sp_i_exec_names(options->stall, plan, place)) {
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
    if (!w->run->wall && sp_share_part_of(sp_i_exec_layout(w->run), w->vstage, w->action, &part)) {
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

// An output goes off to another stage when the end of its action is on record, that of the first
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

static sp_status run_rank_action(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action,
                                 sp_error *err)
{
    bool computes = pack_of(rank, action)->all_rows > 0 || rank->links.expert_group >= 0;
    const sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = action};
    const work w = work_of(run, rank, action);
    sp_status status = fail_on_demand(&w, &place, err);
    status = status == SP_OK ? post_receives(&w, &place, err) : status;
    if (status == SP_OK && run->wall) {
        status = sp_i_exec_wait_input(run, rank, action, err);
    }
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

// Does what a forward keeps stay? What will run again keeps nothing the first time.
static bool keeps(const sp_i_exec_run *run, const sp_share *share)
{
    int vstage = sp_share_stage(sp_i_exec_layout(run), share->part);
    bool runs_again = sp_i_exec_runs_again(run, vstage, share->action.pack);
    return sp_depends_left(share->action, runs_again) == SP_HOLDS_ALL;
}

static bool compute_share(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                          const sp_share *share)
{
    sp_i_exec_stage *stage = sp_i_exec_stage_of(run, rank, share->action.chunk);
    switch (share->part) {
    case SP_SHARE_EMBEDDING:
        return run->math->share(stage, SP_I_EXEC_EMBED, share->action.pack, keeps(run, share));
    case SP_SHARE_EMBEDDING_BACKWARD:
        return run->math->share(stage, SP_I_EXEC_EMBED_BACKWARD, share->action.pack,
                                sp_depends_splits(share->action));
    case SP_SHARE_HEAD:
        return run->math->share(stage, SP_I_EXEC_HEAD, share->action.pack, keeps(run, share));
    case SP_SHARE_HEAD_BACKWARD:
        return run->math->share(stage, SP_I_EXEC_HEAD_BACKWARD, share->action.pack,
                                sp_depends_splits(share->action));
    }
    SP_UNREACHABLE("a share of no part");
}

static sp_status run_rank_share(sp_i_exec_run *run, sp_i_exec_rank *rank, const sp_share *share,
                                sp_error *err)
{
    const sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = share->action};
    sp_i_exec_log *log = &rank->share_log[rank->shares_logged++];
    sp_i_exec_mark(rank->arena);
    int64_t own_ns = sp_comm_clock_own(rank->links.me);
    log->first_exchange = rank->links.exchange_count;
    log->start = sp_i_exec_timestamp(run, rank);
    if (!compute_share(run, rank, share)) {
        return sp_i_exec_rank_failure(run, rank, &place, err);
    }
    log->end = sp_i_exec_timestamp(run, rank);
    log->end_exchange = rank->links.exchange_count;
    rank->share_ns = sp_comm_clock_own(rank->links.me) - own_ns;
    log->during = *sp_i_exec_high(rank->arena, run->options.measure);
    log->after = sp_i_exec_rank_held(run, rank);
    return SP_OK;
}

static sp_status run_rank_shares(sp_i_exec_run *run, sp_i_exec_rank *rank, size_t place,
                                 size_t *done, sp_error *err)
{
    size_t count;
    const sp_share *shares =
        sp_shares_of(&run->shares, sp_i_exec_layout(run), rank->dp, rank->pp, &count);
    for (; *done < count && shares[*done].before <= place; (*done)++) {
        if (!shares[*done].own) {
            SP_TRY(run_rank_share(run, rank, &shares[*done], err));
        }
    }
    return SP_OK;
}

// ---- All actions in virtual time ----

// sp_walk says which action is next, the ranks that share it run it, and how long it took, by the
// device's clock (sp_runtime_ops.now_ns), decides when it would have run.

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

static sp_status run_alone(sp_comm *me, void *data, sp_error *err)
{
    const job *j = data;
    sp_i_exec_rank *rank = &j->run->ranks[sp_comm_rank(me)];
    const sp_plan_place place = {.dp = rank->dp, .pp = j->pp, .action = j->action};
    sp_comm_clock_start(me, 0);
    int other = (rank->dp - j->dp) * sp_i_exec_layout(j->run)->pp + rank->pp;
    sp_status status = rank->pp == j->pp
                           ? run_rank_action(j->run, rank, j->action, &rank->err)
                           : run_rank_share(j->run, rank, j->shares[other], &rank->err);
    status = status == SP_OK ? sp_i_exec_synchronize(j->run, &place, &rank->err) : status;
    if (status == SP_OK && rank->pp == j->pp) {
        fill_times(j->run, rank, &rank->log[rank->logged - 1]);
    }
    if (status != SP_OK) {
        sp_error_add(err, &rank->err);
    }
    return status;
}

// The exchanges inside one device are copies in its memory: where they are to take what the
// prediction says of the links between devices, that stands in the place of what they took.
static void predict_exchanges(const sp_i_exec_run *run, const sp_walk_action *action,
                              sp_action_cost *took)
{
    const sp_run_request *request = run->request;
    const sp_action_cost predicted = sp_action_cost_of(
        request->plan, request->costs, action->place.action, action->vstage, action->recomputed);
    took->tp_ns = predicted.tp_ns;
    took->cp_ns = predicted.cp_ns;
}

// Moves up to `wanted` of what is left to a part of it.
static int64_t part_of(int64_t *left_ns, int64_t wanted_ns)
{
    const int64_t part_ns = wanted_ns < *left_ns ? wanted_ns : *left_ns;
    *left_ns -= part_ns;
    return part_ns;
}

// The action is over when the last of its ranks is done.
static void fill_outcome(const sp_i_exec_run *run, const sp_walk_action *action,
                         sp_walk_outcome *outcome)
{
    const sp_plan_place *place = &action->place;
    int64_t took_ns = 0;
    for (int m = 0; m < sp_i_exec_members(run); m++) {
        const sp_i_exec_rank *rank = sp_i_exec_rank_at(run, place->dp, place->pp, m);
        const sp_i_exec_log *log = &rank->log[rank->logged - 1];
        int64_t ns = log->end_ns - log->start_ns;
        took_ns = ns > took_ns ? ns : took_ns;
    }
    const sp_i_exec_rank *first = sp_i_exec_rank_at(run, place->dp, place->pp, 0);
    const sp_i_exec_log *log = &first->log[first->logged - 1];
    outcome->took.tp_ns = part_of(&took_ns, log->tp_ns);
    outcome->took.cp_ns = part_of(&took_ns, log->cp_ns);
    outcome->took.dp_ns = part_of(&took_ns, log->dp_ns);
    outcome->took.compute_ns = took_ns;
    if (run->options.predicted_exchanges && !sp_action_is_copy(place->action)) {
        predict_exchanges(run, action, &outcome->took);
    }
}

static void set_share_times(const sp_i_exec_run *run, const sp_walk_action *action,
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
            sp_i_exec_on_ranks(run, d->ranks, find_ranks(d, action, together), run_alone, &j, err);
    }
    if (status == SP_OK) {
        fill_outcome(run, action, outcome);
        set_share_times(run, action, outcome);
    }
    return status;
}

static int64_t transfer_ns(void *context, const sp_plan_place *from, int to)
{
    return sp_i_exec_transfer_ns(((const driver *)context)->run, from, to);
}

static sp_status run_virtual(sp_i_exec_run *run, sp_timeline *timeline, sp_error *err)
{
    driver d = {.run = run, .ranks = sp_calloc(sp_i_exec_rank_count(run), sizeof *d.ranks)};
    const sp_walk_driver virtual = {
        .context = &d, .run = run_action, .transfer_ns = transfer_ns, .shares = &run->shares};
    sp_status status = sp_walk(run->request->plan, &virtual, timeline, NULL, err);
    sp_free(d.ranks);
    return status;
}

// ---- All actions on the wall clock ----

// Every rank runs its actions in a thread of its own, as its inputs come. Copies to and from host
// memory are that thread's work too: they hide behind nothing.

// The times of a rank's actions and shares, when its work is done. What went wrong in work that was
// only put down is found here, and no sooner than at the last action.
static sp_status end_actions(sp_i_exec_run *run, sp_i_exec_rank *rank)
{
    const sp_stage_plan *stage = sp_plan_stage(run->request->plan, rank->dp, rank->pp);
    sp_plan_place last = {.dp = rank->dp, .pp = rank->pp};
    if (stage->count > 0) {
        last.action = stage->actions[stage->count - 1];
    }
    SP_TRY(run->transport == NULL ? SP_OK : sp_i_exec_channels_end(run, rank, &rank->err));
    SP_TRY(sp_i_exec_synchronize(run, stage->count > 0 ? &last : NULL, &rank->err));
    for (size_t a = 0; a < rank->logged; a++) {
        fill_times(run, rank, &rank->log[a]);
    }
    for (size_t i = 0; i < rank->shares_logged; i++) {
        fill_times(run, rank, &rank->share_log[i]);
    }
    return SP_OK;
}

// The moment that the times of the ranks that are here count from.
static sp_status begin_clock(sp_i_exec_run *run, sp_error *err)
{
    sp_i_exec_enter(run, sp_i_exec_local_rank(run));
    uint64_t stamp = run->runtime->ops->stamp(run->runtime);
    run->wall_began_ns = sp_i_exec_wall_ns();
    sp_status status = sp_i_exec_synchronize(run, NULL, err);
    run->step_began_ns = status == SP_OK ? run->runtime->ops->stamp_ns(run->runtime, stamp) : 0;
    return status;
}

// A rank in a process of its own begins behind a barrier, which stands for one moment of all ranks,
// whose devices have clocks of their own: each counts from where it has left it.
static sp_status begin_together(sp_i_exec_run *run, sp_i_exec_rank *rank)
{
    sp_comm_set_action(rank->links.me, "begin of the step");
    SP_TRY(run->all_group >= 0 ? sp_comm_barrier(rank->links.me, run->all_group, &rank->err)
                               : SP_OK);
    SP_TRY(sp_i_exec_synchronize(run, NULL, &rank->err));
    return begin_clock(run, &rank->err);
}

// The empty micro-batches before the next action, whose time is not counted.
static sp_status run_joins(sp_i_exec_run *run, sp_i_exec_rank *rank, size_t action, size_t *done,
                           sp_error *err)
{
    const sp_i_exec_joins *joins = &rank->joins;
    for (; *done < joins->count && joins->items[*done].before <= action; (*done)++) {
        const sp_i_exec_join *join = &joins->items[*done];
        const sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = join->action};
        sp_comm_set_action(rank->links.me, "an empty micro-batch");
        if (!sp_i_exec_run_join(run, rank, join)) {
            return sp_i_exec_rank_failure(run, rank, &place, err);
        }
    }
    return SP_OK;
}

static sp_status run_rank(sp_comm *me, void *data, sp_error *err)
{
    sp_i_exec_run *run = data;
    sp_i_exec_rank *rank = &run->ranks[sp_comm_rank(me)];
    const sp_stage_plan *stage = sp_plan_stage(run->request->plan, rank->dp, rank->pp);
    sp_status status = run->transport != NULL ? begin_together(run, rank) : SP_OK;
    size_t shares = 0;
    size_t joins = 0;
    for (size_t a = 0; status == SP_OK && a < stage->count; a++) {
        char name[32];
        status = run_joins(run, rank, a, &joins, &rank->err);
        if (status != SP_OK) {
            break;
        }
        sp_action_name(stage->actions[a], sp_i_exec_layout(run)->chunks, name);
        sp_comm_set_action(me, name);
        status = sp_comm_world_failure(run->world, &rank->err);
        status = status == SP_OK ? run_rank_shares(run, rank, a, &shares, &rank->err) : status;
        status =
            status == SP_OK ? run_rank_action(run, rank, stage->actions[a], &rank->err) : status;
    }
    status = status == SP_OK ? run_joins(run, rank, stage->count, &joins, &rank->err) : status;
    if (status == SP_OK) {
        status = run_rank_shares(run, rank, stage->count, &shares, &rank->err);
    }
    status = status == SP_OK ? end_actions(run, rank) : status;
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
        const int64_t tp_ns = part_of(&took_ns, log->tp_ns);
        const int64_t cp_ns = part_of(&took_ns, log->cp_ns);
        sp_action action = stage->actions[a];
        sp_span *span = sp_action_is_copy(action) ? &line->copies[line->copy_count++]
                                                  : &line->spans[line->count++];
        *span = (sp_span){.action = action,
                          .start_ns = log->start_ns,
                          .end_ns = log->end_ns,
                          .tp_ns = tp_ns,
                          .cp_ns = cp_ns,
                          .dp_ns = part_of(&took_ns, log->dp_ns)};
    }
    fill_shares(run, line, rank);
}

void sp_i_exec_fill_spans(const sp_i_exec_run *run, sp_timeline *timeline)
{
    for (size_t r = 0; r < timeline->rank_count; r++) {
        fill_rank(run, &timeline->ranks[r]);
    }
}

static sp_status run_wall(sp_i_exec_run *run, sp_timeline *timeline, sp_error *err)
{
    run->wall_began_ns = sp_i_exec_wall_ns();
    SP_TRY(run->transport == NULL ? begin_clock(run, err) : SP_OK);
    SP_TRY(sp_i_exec_on_ranks(run, NULL, (int)sp_i_exec_rank_count(run), run_rank, run, err));
    if (run->transport == NULL) {
        sp_i_exec_fill_spans(run, timeline);
    }
    return SP_OK;
}

sp_status sp_i_exec_run_actions(sp_i_exec_run *run, sp_timeline *timeline, sp_error *err)
{
    return run->wall ? run_wall(run, timeline, err) : run_virtual(run, timeline, err);
}
