#include "backends/executor/p2p.h"

#include <stdio.h>

#include "backends/executor/run.h"
#include "sim/base/alloc.h"

sp_i_exec_p2p_buffer *sp_i_exec_p2p_buffer_at(const sp_i_exec_p2p *p2p,
                                              const sp_i_exec_p2p_slot *at)
{
    size_t unit = (size_t)at->vstage * p2p->packs[at->gradient] + (size_t)at->pack;
    return &p2p->buffers[at->gradient][unit * p2p->pipelines + (size_t)at->pipeline];
}

void sp_i_exec_p2p_init(sp_i_exec_p2p *p2p, sp_runtime *runtime, size_t vstages,
                        size_t forward_packs, size_t backward_packs, size_t pipelines)
{
    *p2p = (sp_i_exec_p2p){
        .vstages = vstages, .packs = {forward_packs, backward_packs}, .pipelines = pipelines};
    p2p->arena = sp_i_exec_arena_new_shared(runtime);
    pthread_mutex_init(&p2p->lock, NULL);
    for (int i = 0; i < 2; i++) {
        p2p->buffers[i] = sp_calloc(vstages * p2p->packs[i] * pipelines, sizeof **p2p->buffers);
    }
}

void sp_i_exec_p2p_fini(sp_i_exec_p2p *p2p)
{
    if (p2p->arena != NULL) {
        sp_i_exec_arena_free(p2p->arena);
        pthread_mutex_destroy(&p2p->lock);
    }
    sp_free(p2p->buffers[0]);
    sp_free(p2p->buffers[1]);
    *p2p = (sp_i_exec_p2p){0};
}

void *sp_i_exec_p2p_allocate(sp_i_exec_p2p *p2p, const sp_i_exec_p2p_slot *to, int64_t elements,
                             sp_i_exec_width width)
{
    sp_i_exec_p2p_buffer *buffer = sp_i_exec_p2p_buffer_at(p2p, to);
    pthread_mutex_lock(&p2p->lock);
    buffer->content = sp_i_exec_take(p2p->arena, SP_MEM_COMMUNICATION, elements, width);
    pthread_mutex_unlock(&p2p->lock);
    return buffer->content;
}

sp_status sp_i_exec_p2p_failure(sp_i_exec_p2p *p2p, char *text, size_t text_bytes)
{
    pthread_mutex_lock(&p2p->lock);
    sp_status status = sp_i_exec_arena_failure(p2p->arena, text, text_bytes);
    pthread_mutex_unlock(&p2p->lock);
    return status;
}

void sp_i_exec_p2p_release(sp_i_exec_p2p *p2p, void *content)
{
    pthread_mutex_lock(&p2p->lock);
    sp_i_exec_give(p2p->arena, content);
    pthread_mutex_unlock(&p2p->lock);
}

int64_t sp_i_exec_p2p_in_flight(const sp_i_exec_p2p *p2p)
{
    return sp_i_exec_blocks(p2p->arena);
}

// ---- What an action reads and gives, by sim/plan/depends ----

// Of emulated links between pipeline ranks, on the virtual clock.
int64_t sp_i_exec_transfer_ns(const sp_i_exec_run *run, const sp_plan_place *from, int to)
{
    sp_action_kind kind = (sp_action_kind)from->action.kind;
    if (!run->options.emulated_links || from->pp == to) {
        return 0;
    }
    const sp_link_times links = sp_run_request_links(run->request);
    return sp_link_times_ns(&links, kind != SP_ACTION_F, (size_t)from->action.pack, from->pp, to,
                            sp_i_exec_layout(run)->pp);
}

static int vstage_of(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_action action)
{
    return sp_depends_vstage(&run->depends, rank->pp, action);
}

static bool reads(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_action action)
{
    return sp_depends_source(&run->depends, action, vstage_of(run, rank, action)) >= 0;
}

// The virtual stage that reads what an action gives; -1: none.
static int target_of(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_action action)
{
    return sp_depends_target(&run->depends, action, vstage_of(run, rank, action));
}

// Of what stage `vstage` reads for the pack of an action.
static sp_i_exec_p2p_slot slot_at(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                                  sp_action action, int vstage)
{
    return (sp_i_exec_p2p_slot){.gradient = sp_action_is_backward(action),
                                .vstage = vstage,
                                .pack = action.pack,
                                .pipeline =
                                    run->transport != NULL ? 0 : sp_i_exec_pipeline(run, rank)};
}

const void *sp_i_exec_input(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_action action)
{
    sp_i_exec_p2p_slot at = slot_at(run, rank, action, vstage_of(run, rank, action));
    return reads(run, rank, action) ? sp_i_exec_p2p_buffer_at(&run->p2p, &at)->content : NULL;
}

void sp_i_exec_drop_input(sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_action action)
{
    if (reads(run, rank, action)) {
        sp_i_exec_p2p_slot at = slot_at(run, rank, action, vstage_of(run, rank, action));
        sp_i_exec_p2p_buffer *buffer = sp_i_exec_p2p_buffer_at(&run->p2p, &at);
        sp_i_exec_p2p_release(&run->p2p, buffer->content);
        buffer->content = NULL;
        sp_comm_flag_clear(&buffer->full);
    }
}

bool sp_i_exec_make_output(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action,
                           void **output)
{
    int target = target_of(run, rank, action);
    *output = NULL;
    if (target < 0) {
        return true;
    }
    sp_i_exec_p2p_slot to = slot_at(run, rank, action, target);
    const sp_i_exec_pack *pack = sp_i_exec_pack_at(&rank->job->slices, to.gradient, action.pack);
    *output = sp_i_exec_p2p_allocate(&run->p2p, &to, pack->own_rows * rank->job->model->hidden,
                                     rank->job->specs.value);
    if (*output == NULL) {
        char text[SP_ERROR_TEXT / 2];
        sp_status status = sp_i_exec_p2p_failure(&run->p2p, text, sizeof text);
        rank->links.status = sp_error_set(&rank->links.err, status, "%s", text);
    }
    return *output != NULL;
}

void sp_i_exec_send_output(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action)
{
    int target = target_of(run, rank, action);
    if (target < 0) {
        return;
    }
    sp_i_exec_p2p_slot to = slot_at(run, rank, action, target);
    int pp = run->depends.rank_of[target];
    int reader = sp_i_exec_rank_number(run, rank->dp, pp, sp_i_exec_member(run, rank));
    if (sp_i_exec_is_remote(run, reader)) {
        sp_i_exec_send(run, rank, &to, reader);
    } else {
        sp_comm_flag_raise(rank->links.me, reader, &sp_i_exec_p2p_buffer_at(&run->p2p, &to)->full);
    }
}

// The hidden state or gradient that another pipeline rank sends.
static sp_status wait_transfer(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action,
                               const sp_plan_place *from, sp_error *err)
{
    char name[32];
    char what[SP_COMM_WHAT];
    sp_i_exec_p2p_slot at = slot_at(run, rank, action, vstage_of(run, rank, action));
    int writer = sp_i_exec_rank_number(run, from->dp, from->pp, sp_i_exec_member(run, rank));
    if (sp_i_exec_is_remote(run, writer)) {
        return sp_i_exec_wait_receive(run, rank, &at, writer, err);
    }
    sp_action_name(from->action, sp_i_exec_layout(run)->chunks, name);
    snprintf(what, sizeof what, "%s of dp %d pp %d", name, from->dp, from->pp);
    return sp_comm_flag_wait(rank->links.me, &sp_i_exec_p2p_buffer_at(&run->p2p, &at)->full, writer,
                             what, err);
}

sp_status sp_i_exec_wait_input(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action,
                               sp_error *err)
{
    const sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = action};
    sp_plan_place from;
    sp_status status = sp_depends_from(&run->depends, &place, &from)
                           ? wait_transfer(run, rank, action, &from, err)
                           : SP_OK;
    const sp_i_exec_slices *slices = &rank->job->slices;
    const sp_i_exec_pack *pack =
        sp_i_exec_pack_at(slices, sp_action_is_backward(action), action.pack);
    if (status == SP_OK && sp_depends_is_joint(action) && pack->count > 0) {
        int group = rank->links.token_group[slices->slice[pack->slice[0]].forward_pack];
        status = group >= 0 ? sp_comm_barrier(rank->links.me, group, err) : SP_OK;
    }
    return status;
}
