#include <stdio.h>

#include "backends/comm/comm.h"
#include "backends/executor/run.h"

static bool passes_gradients(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
}

static const sp_i_exec_pack *pack_of(const sp_i_exec_rank *rank, sp_action action)
{
    const sp_i_exec_slices *slices = &rank->job->slices;
    return (sp_action_is_backward(action) ? slices->backward : slices->forward) + action.pack;
}

// One action at work.
typedef struct work {
    sp_i_exec_run *run;
    sp_i_exec_rank *rank;
    sp_i_exec_stage *stage;
    sp_action action;
    int vstage;
    int64_t own_rows;
} work;

static sp_i_exec_address address(const work *w, int vstage)
{
    return (sp_i_exec_address){.gradient = passes_gradients(w->action),
                               .vstage = vstage,
                               .pack = w->action.pack,
                               .seat =
                                   w->run->transport != NULL ? 0 : sp_i_exec_seat(w->run, w->rank)};
}

static void *open_mail(const work *w, int vstage)
{
    sp_i_exec_address to = address(w, vstage);
    void *room = sp_i_exec_mail_open(&w->run->mail, &to, w->own_rows * w->rank->job->model->hidden,
                                     w->rank->job->specs.value);
    if (room == NULL) {
        sp_i_exec_links *links = &w->rank->links;
        char text[SP_ERROR_TEXT / 2];
        sp_status status = sp_i_exec_mail_failure(&w->run->mail, text, sizeof text);
        links->status = sp_error_set(&links->err, status, "%s", text);
    }
    return room;
}

static void post_mail(const work *w, int vstage)
{
    sp_i_exec_address to = address(w, vstage);
    int pp = w->run->depends.rank_of[vstage];
    int reader = sp_i_exec_rank_number(w->run, w->rank->dp, pp, sp_i_exec_member(w->run, w->rank));
    const sp_plan_place from = {.dp = w->rank->dp, .pp = w->rank->pp, .action = w->action};
    bool wall = w->run->request->clock == SP_CLOCK_WALL;
    if (sp_i_exec_is_far(w->run, reader)) {
        sp_i_exec_send(w->run, w->rank, &to, reader);
    } else {
        sp_i_exec_mail_post(&w->run->mail, &to, w->rank->links.me, reader,
                            wall ? sp_i_exec_transfer_ns(w->run, &from, pp) : 0);
    }
}

static const void *read_mail(const work *w)
{
    sp_i_exec_address at = address(w, w->vstage);
    return sp_i_exec_mail_read(&w->run->mail, &at);
}

static void drop_mail(const work *w)
{
    sp_i_exec_address at = address(w, w->vstage);
    sp_i_exec_mail_drop(&w->run->mail, &at);
}

static bool run_forward(const work *w)
{
    sp_i_exec_run *run = w->run;
    size_t unit = (size_t)w->vstage * w->rank->job->slices.forward_count + (size_t)w->action.pack;
    const void *input = w->stage->first ? NULL : read_mail(w);
    void *output = w->stage->last ? NULL : open_mail(w, w->vstage + 1);
    if (!w->stage->last && output == NULL) {
        return false;
    }
    bool ok =
        run->math->forward(w->stage, w->action.pack, input, output, run->runs_again[unit] == 0);
    if (!w->stage->first) {
        drop_mail(w);
    }
    return ok;
}

static bool run_backward(const work *w)
{
    const void *gradient = w->stage->last ? NULL : read_mail(w);
    void *input_gradient = w->stage->first ? NULL : open_mail(w, w->vstage - 1);
    if (!w->stage->first && input_gradient == NULL) {
        return false;
    }
    bool ok = w->run->math->backward(w->stage, w->action.pack, gradient, input_gradient,
                                     w->action.kind == SP_ACTION_I);
    if (!w->stage->last) {
        drop_mail(w);
    }
    return ok;
}

static bool reads_mail(const work *w)
{
    return sp_depends_source(&w->run->depends, w->action, w->vstage) >= 0;
}

static void post_output(const work *w)
{
    int target = sp_depends_target(&w->run->depends, w->action, w->vstage);
    if (target >= 0) {
        post_mail(w, target);
    }
}

static bool dispatch(const work *w)
{
    switch ((sp_action_kind)w->action.kind) {
    case SP_ACTION_F:
        return run_forward(w);
    case SP_ACTION_R:
        return w->run->math->again(w->stage, w->action.pack);
    case SP_ACTION_B:
    case SP_ACTION_I:
        return run_backward(w);
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
    sp_machine *machine = w->run->machine;
    if (machine->ops->begin == NULL) {
        return dispatch(w);
    }
    char name[32];
    sp_action_name(w->action, sp_i_exec_layout(w->run)->chunks, name);
    machine->ops->begin(machine, name);
    bool ok = dispatch(w);
    machine->ops->end(machine);
    return ok;
}

// On the wall clock a rank waits for its input, and for the others that share the pack.
static sp_status wait_inputs(const work *w, sp_error *err)
{
    const sp_depends *depends = &w->run->depends;
    const sp_plan_place place = {.dp = w->rank->dp, .pp = w->rank->pp, .action = w->action};
    sp_plan_place from;
    sp_status status = SP_OK;
    if (sp_depends_from(depends, &place, &from)) {
        char action[32];
        char what[SP_COMM_WHAT];
        sp_action_name(from.action, sp_i_exec_layout(w->run)->chunks, action);
        snprintf(what, sizeof what, "%s of dp %d pp %d", action, from.dp, from.pp);
        sp_i_exec_address at = address(w, w->vstage);
        int writer =
            sp_i_exec_rank_number(w->run, from.dp, from.pp, sp_i_exec_member(w->run, w->rank));
        status =
            sp_i_exec_is_far(w->run, writer)
                ? sp_i_exec_await(w->run, w->rank, &at, writer, what, err)
                : sp_i_exec_mail_wait(&w->run->mail, &at, w->rank->links.me, writer, what, err);
    }
    const sp_i_exec_pack *pack = pack_of(w->rank, w->action);
    if (status == SP_OK && sp_depends_is_joint(w->action) && pack->count > 0) {
        int32_t forward = w->rank->job->slices.slice[pack->slice[0]].forward_pack;
        int group = w->rank->links.token_group[forward];
        status = group >= 0 ? sp_comm_barrier(w->rank->links.me, group, err) : SP_OK;
    }
    return status;
}

// What this action and the next one read from other processes.
static sp_status ask_ahead(const work *w, const sp_plan_place *place, sp_error *err)
{
    sp_error own = {0};
    sp_status status = w->run->transport == NULL
                           ? SP_OK
                           : sp_i_exec_ask(w->run, w->rank, w->rank->logged + 1, &own);
    if (status == SP_OK || sp_comm_world_failure(w->run->world, err) != SP_OK) {
        return status;
    }
    return sp_error_at_action(err, status, w->run->request->plan, place, "%s", own.message[0]);
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
    log->end = sp_i_exec_moment(run, w->rank);
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
    sp_share_end end;
    if (w->run->request->clock == SP_CLOCK_VIRTUAL &&
        sp_share_end_of(sp_i_exec_layout(w->run), w->vstage, w->action, &end)) {
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
                  .vstage = sp_layout_vstage(sp_i_exec_layout(run), rank->pp, action.chunk),
                  .own_rows = pack_of(rank, action)->own_rows};
}

// What an action leaves for another stage goes off when its end is on record, and that of the first
// of a pair with that of the second.
static void post_outputs(const work *w)
{
    sp_i_exec_rank *rank = w->rank;
    if (w->action.with_next) {
        rank->first_of_pair = w->action;
        return;
    }
    if (rank->first_of_pair.with_next) {
        work first = work_of(w->run, rank, rank->first_of_pair);
        post_output(&first);
        rank->first_of_pair.with_next = 0;
    }
    post_output(w);
}

sp_status sp_i_exec_rank_action(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action,
                                sp_error *err)
{
    bool computes = pack_of(rank, action)->all_rows > 0;
    const sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = action};
    const work w = work_of(run, rank, action);
    bool wall = run->request->clock == SP_CLOCK_WALL;
    sp_status status = fail_on_demand(&w, &place, err);
    status = status == SP_OK ? ask_ahead(&w, &place, err) : status;
    status = status == SP_OK && wall ? wait_inputs(&w, err) : status;
    if (status != SP_OK) {
        return status;
    }
    sp_i_exec_mark(rank->arena);
    rank->log[rank->logged].first_exchange = rank->links.exchange_count;
    rank->links.end_ns = 0;
    uint64_t start = sp_i_exec_moment(run, rank);
    int64_t own_ns = sp_comm_clock_own(rank->links.me);
    if (computes && !dispatch_named(&w)) {
        return sp_i_exec_rank_failure(run, rank, &place, err);
    }
    if (!computes && reads_mail(&w)) {
        drop_mail(&w);
    }
    note(&w, start);
    take_share(&w, start, own_ns);
    post_outputs(&w);
    if (action.kind == SP_ACTION_F && !sp_i_exec_forward_ended(run, rank)) {
        return sp_i_exec_rank_failure(run, rank, &place, err);
    }
    return SP_OK;
}
