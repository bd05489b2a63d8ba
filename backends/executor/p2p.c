#include "backends/executor/run.h"

#include <stdio.h>

#include "sim/base/alloc.h"

// ---- The order of transfers ----

// From one pipeline rank to another, of the forward or the backward.
typedef struct route {
    const sp_depends *depends;
    int from, to;
    bool gradient;
} route;

static bool passes(const route *r, sp_action action)
{
    return sp_depends_passes(action) && sp_action_is_backward(action) == r->gradient;
}

// The stage that reads what an action leaves, if it is on the other rank; else -1.
static int reader_of(const route *r, sp_action action)
{
    int vstage = sp_depends_vstage(r->depends, r->from, action);
    int reader = passes(r, action) ? sp_depends_target(r->depends, action, vstage) : -1;
    return reader >= 0 && r->depends->rank_of[reader] == r->to ? reader : -1;
}

static void add(const route *r, sp_i_exec_transfers *transfers, sp_action action, size_t sent)
{
    int reader = reader_of(r, action);
    if (reader >= 0) {
        transfers->items[transfers->count++] =
            (sp_i_exec_transfer){.vstage = reader, .pack = action.pack, .sent = sent};
    }
}

// The output of the first of a pair goes off with that of the second, before it.
static void list_sent(const route *r, const sp_stage_plan *sender, sp_i_exec_transfers *transfers)
{
    for (size_t a = 0; a < sender->count; a++) {
        if (a > 0 && sender->actions[a - 1].with_next) {
            add(r, transfers, sender->actions[a - 1], a);
        }
        if (!sender->actions[a].with_next) {
            add(r, transfers, sender->actions[a], a);
        }
    }
}

// places [chunks][packs]: the action that reads for a pack.
static void find_places(const route *r, const sp_stage_plan *receiver, size_t packs, size_t *places)
{
    for (size_t a = 0; a < receiver->count; a++) {
        sp_action action = receiver->actions[a];
        if (passes(r, action)) {
            places[action.chunk * packs + (size_t)action.pack] = a;
        }
    }
}

static void place_transfers(const route *r, size_t packs, const size_t *places,
                            sp_i_exec_transfers *transfers)
{
    size_t receive_by = SIZE_MAX;
    for (size_t i = transfers->count; i-- > 0;) {
        sp_i_exec_transfer *transfer = &transfers->items[i];
        size_t chunk = (size_t)r->depends->chunk_of[transfer->vstage];
        transfer->read = places[chunk * packs + (size_t)transfer->pack];
        receive_by = transfer->read < receive_by ? transfer->read : receive_by;
        transfer->receive_by = receive_by;
    }
}

void sp_i_exec_transfers_make(const sp_depends *depends, int dp, int from, int to, bool gradient,
                              sp_i_exec_transfers *transfers)
{
    const route r = {.depends = depends, .from = from, .to = to, .gradient = gradient};
    const sp_plan *plan = depends->plan;
    const sp_stage_plan *sender = sp_plan_stage(plan, dp, from);
    const sp_pack_list *list = depends->packs[gradient];
    size_t *places = sp_calloc(list->count * (size_t)plan->layout.chunks, sizeof *places);
    *transfers = (sp_i_exec_transfers){.items = sp_calloc(sender->count, sizeof *transfers->items)};
    list_sent(&r, sender, transfers);
    find_places(&r, sp_plan_stage(plan, dp, to), list->count, places);
    place_transfers(&r, list->count, places, transfers);
    sp_free(places);
}

void sp_i_exec_transfers_fini(sp_i_exec_transfers *transfers)
{
    sp_free(transfers->items);
    *transfers = (sp_i_exec_transfers){0};
}

// ---- Buffers ----

// Which buffer: `gradient` tells the backward from the forward, `vstage` is the stage that reads.
typedef struct slot {
    bool gradient;
    int vstage;
    int32_t pack;
    int pipeline;
} slot;

static sp_i_exec_p2p_buffer *buffer_at(const sp_i_exec_p2p *p2p, const slot *at)
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

static void *allocate(sp_i_exec_p2p *p2p, const slot *to, int64_t elements, sp_i_exec_width width)
{
    sp_i_exec_p2p_buffer *buffer = buffer_at(p2p, to);
    pthread_mutex_lock(&p2p->lock);
    buffer->content = sp_i_exec_take(p2p->arena, SP_MEM_COMMUNICATION, elements, width);
    pthread_mutex_unlock(&p2p->lock);
    return buffer->content;
}

static sp_status failure(sp_i_exec_p2p *p2p, sp_error *err)
{
    char text[SP_ERROR_TEXT / 2];
    pthread_mutex_lock(&p2p->lock);
    sp_status status = sp_i_exec_arena_failure(p2p->arena, text, sizeof text);
    pthread_mutex_unlock(&p2p->lock);
    return sp_error_set(err, status, "%s", text);
}

static void release(sp_i_exec_p2p *p2p, void *content)
{
    pthread_mutex_lock(&p2p->lock);
    sp_i_exec_give(p2p->arena, content);
    pthread_mutex_unlock(&p2p->lock);
}

int64_t sp_i_exec_p2p_in_flight(const sp_i_exec_p2p *p2p)
{
    return sp_i_exec_blocks(p2p->arena);
}

// ---- Transfers between processes ----

void sp_i_exec_channels_fini(sp_i_exec_channels *channels)
{
    for (size_t i = 0; i < channels->count; i++) {
        sp_i_exec_transfers_fini(&channels->items[i].transfers);
        sp_free(channels->items[i].sent_items);
    }
    sp_free(channels->items);
    *channels = (sp_i_exec_channels){0};
}

// ---- all of them, before the first step ----

static void keep_channel(sp_i_exec_run *run, const sp_i_exec_rank *from, int pp, bool gradient,
                         int number)
{
    sp_i_exec_channels *channels = &run->channels;
    int sender = (int)(from - run->ranks);
    int receiver = sp_i_exec_rank_number(run, from->dp, pp, sp_i_exec_member(run, from));
    bool sends = run->transport->rank == sender;
    if (!sends && run->transport->rank != receiver) {
        return;
    }
    sp_i_exec_channel *made = SP_ADDED(channels->items, channels->capacity, channels->count);
    *made = (sp_i_exec_channel){
        .number = number, .peer = sends ? receiver : sender, .sends = sends, .gradient = gradient};
    sp_i_exec_transfers_make(&run->depends, from->dp, from->pp, pp, gradient, &made->transfers);
    made->sent_items = sp_calloc(made->transfers.count, sizeof *made->sent_items);
}

// Does some stage of one pipeline rank leave what one of the other reads?
static bool are_linked(const sp_i_exec_run *run, int from, int to, bool gradient)
{
    const sp_depends *depends = &run->depends;
    for (int c = 0; c < sp_i_exec_layout(run)->chunks; c++) {
        const sp_action action = {.kind = gradient ? SP_ACTION_B : SP_ACTION_F,
                                  .chunk = (uint16_t)c};
        int target = sp_depends_target(depends, action, sp_depends_vstage(depends, from, action));
        if (target >= 0 && depends->rank_of[target] == to) {
            return true;
        }
    }
    return false;
}

sp_status sp_i_exec_channels_make(sp_i_exec_run *run, sp_error *err)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    int number = 0;
    sp_status status = SP_OK;
    for (size_t r = 0; r < sp_i_exec_rank_count(run); r++) {
        const sp_i_exec_rank *from = &run->ranks[r];
        for (int i = 0; status == SP_OK && i < 2 * layout->pp; i++) {
            int to = i / 2;
            bool gradient = i % 2 != 0;
            if (to == from->pp || !are_linked(run, from->pp, to, gradient)) {
                continue;
            }
            int receiver = sp_i_exec_rank_number(run, from->dp, to, sp_i_exec_member(run, from));
            status = run->transport->ops->channel_new(run->transport, (int)r, receiver, err);
            if (status == SP_OK) {
                keep_channel(run, from, to, gradient, number);
            }
            number++;
        }
    }
    return status;
}

// ---- in a step ----

static bool is_remote(const sp_i_exec_run *run, int rank)
{
    return run->transport != NULL && run->transport->rank != rank;
}

static sp_i_exec_channel *channel_of(const sp_i_exec_run *run, int peer, bool sends, bool gradient)
{
    for (size_t i = 0; i < run->channels.count; i++) {
        sp_i_exec_channel *channel = &run->channels.items[i];
        if (channel->peer == peer && channel->sends == sends && channel->gradient == gradient) {
            return channel;
        }
    }
    SP_UNREACHABLE("a channel that was not made");
}

// Elements of a transfer. A transfer without elements makes no message.
static int64_t elements_of(const sp_i_exec_rank *rank, bool gradient, int32_t pack)
{
    return sp_i_exec_pack_at(&rank->job->slices, gradient, pack)->own_rows *
           rank->job->model->hidden;
}

static int64_t bytes_of(const sp_i_exec_rank *rank, bool gradient, int32_t pack)
{
    return elements_of(rank, gradient, pack) * rank->job->width.value.real_bytes;
}

static void send(sp_i_exec_run *run, sp_i_exec_rank *rank, const slot *to, int reader)
{
    sp_i_exec_channel *channel = channel_of(run, reader, true, to->gradient);
    SP_ASSERT(channel->next < channel->transfers.count);
    const sp_i_exec_transfer *transfer = &channel->transfers.items[channel->next];
    sp_i_exec_sent *sent_item = &channel->sent_items[channel->next++];
    sp_i_exec_p2p_buffer *buffer = buffer_at(&run->p2p, to);
    SP_ASSERT(transfer->vstage == to->vstage && transfer->pack == to->pack);
    sent_item->content = buffer->content;
    buffer->content = NULL;
    int64_t bytes = bytes_of(rank, to->gradient, to->pack);
    if (bytes > 0) {
        sp_status status =
            run->transport->ops->send(run->transport, channel->number, sent_item->content, bytes,
                                      &sent_item->message, &rank->links.err);
        rank->links.status = rank->links.status == SP_OK ? status : rank->links.status;
    }
}

static sp_status post_receive(sp_i_exec_run *run, sp_i_exec_rank *rank,
                              const sp_i_exec_channel *channel, const sp_i_exec_transfer *transfer,
                              sp_error *err)
{
    const slot at = {
        .gradient = channel->gradient, .vstage = transfer->vstage, .pack = transfer->pack};
    sp_i_exec_p2p_buffer *buffer = buffer_at(&run->p2p, &at);
    buffer->sent = transfer->sent;
    if (sp_i_exec_pack_at(&rank->job->slices, at.gradient, at.pack)->all_rows == 0) {
        return SP_OK;
    }
    int64_t bytes = bytes_of(rank, at.gradient, at.pack);
    void *room =
        allocate(&run->p2p, &at, elements_of(rank, at.gradient, at.pack), rank->job->width.value);
    return room == NULL ? failure(&run->p2p, err)
           : bytes == 0 ? SP_OK
                        : run->transport->ops->receive(run->transport, channel->number, room, bytes,
                                                       &buffer->message, err);
}

sp_status sp_i_exec_post_receives(sp_i_exec_run *run, sp_i_exec_rank *rank, size_t action,
                                  sp_error *err)
{
    for (size_t i = 0; i < run->channels.count; i++) {
        sp_i_exec_channel *channel = &run->channels.items[i];
        const sp_i_exec_transfers *transfers = &channel->transfers;
        while (!channel->sends && channel->next < transfers->count &&
               transfers->items[channel->next].receive_by <= action) {
            SP_TRY(post_receive(run, rank, channel, &transfers->items[channel->next++], err));
        }
    }
    return SP_OK;
}

static sp_status reclaim(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_i_exec_channel *channel,
                         sp_error *err)
{
    sp_i_exec_sent *sent_item = &channel->sent_items[channel->over];
    const sp_i_exec_transfer *transfer = &channel->transfers.items[channel->over++];
    sp_status status = SP_OK;
    if (bytes_of(rank, channel->gradient, transfer->pack) > 0) {
        status = run->transport->ops->wait(run->transport, sent_item->message, err);
    }
    release(&run->p2p, sent_item->content);
    sent_item->content = NULL;
    return status;
}

static sp_status wait_receive(sp_i_exec_run *run, sp_i_exec_rank *rank, const slot *at, int writer,
                              sp_error *err)
{
    const sp_i_exec_p2p_buffer *buffer = buffer_at(&run->p2p, at);
    if (bytes_of(rank, at->gradient, at->pack) == 0) {
        return SP_OK;
    }
    sp_status status = run->transport->ops->wait(run->transport, buffer->message, err);
    for (size_t i = 0; i < run->channels.count; i++) {
        sp_i_exec_channel *channel = &run->channels.items[i];
        while (status == SP_OK && channel->sends && channel->peer == writer &&
               channel->over < channel->next &&
               channel->transfers.items[channel->over].read <= buffer->sent) {
            status = reclaim(run, rank, channel, err);
        }
    }
    return status;
}

sp_status sp_i_exec_channels_end(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_error *err)
{
    sp_status status = SP_OK;
    for (size_t i = 0; i < run->channels.count; i++) {
        sp_i_exec_channel *channel = &run->channels.items[i];
        while (status == SP_OK && channel->sends && channel->over < channel->next) {
            status = reclaim(run, rank, channel, err);
        }
        if (status == SP_OK) {
            SP_ASSERT(channel->next == channel->transfers.count);
            channel->next = 0;
            channel->over = 0;
        }
    }
    return status;
}

// ---- What an action reads and gives, by sim/plan/depends ----

// Links between pipeline ranks are emulated on the virtual clock alone.
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

// The slot of what stage `vstage` reads for the pack of an action.
static slot slot_at(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_action action,
                    int vstage)
{
    return (slot){.gradient = sp_action_is_backward(action),
                  .vstage = vstage,
                  .pack = action.pack,
                  .pipeline = run->transport != NULL ? 0 : sp_i_exec_pipeline(run, rank)};
}

const void *sp_i_exec_input(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_action action)
{
    slot at = slot_at(run, rank, action, vstage_of(run, rank, action));
    return reads(run, rank, action) ? buffer_at(&run->p2p, &at)->content : NULL;
}

void sp_i_exec_drop_input(sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_action action)
{
    if (reads(run, rank, action)) {
        slot at = slot_at(run, rank, action, vstage_of(run, rank, action));
        sp_i_exec_p2p_buffer *buffer = buffer_at(&run->p2p, &at);
        release(&run->p2p, buffer->content);
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
    slot to = slot_at(run, rank, action, target);
    *output = allocate(&run->p2p, &to, elements_of(rank, to.gradient, action.pack),
                       rank->job->width.value);
    if (*output == NULL) {
        rank->links.status = failure(&run->p2p, &rank->links.err);
    }
    return *output != NULL;
}

void sp_i_exec_send_output(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action)
{
    int target = target_of(run, rank, action);
    if (target < 0) {
        return;
    }
    slot to = slot_at(run, rank, action, target);
    int pp = run->depends.rank_of[target];
    int reader = sp_i_exec_rank_number(run, rank->dp, pp, sp_i_exec_member(run, rank));
    if (is_remote(run, reader)) {
        send(run, rank, &to, reader);
    } else {
        sp_comm_flag_raise(rank->links.me, reader, &buffer_at(&run->p2p, &to)->full);
    }
}

// The hidden state or gradient that another pipeline rank sends.
static sp_status wait_transfer(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action,
                               const sp_plan_place *from, sp_error *err)
{
    char name[32];
    char what[SP_COMM_WHAT];
    slot at = slot_at(run, rank, action, vstage_of(run, rank, action));
    int writer = sp_i_exec_rank_number(run, from->dp, from->pp, sp_i_exec_member(run, rank));
    if (is_remote(run, writer)) {
        return wait_receive(run, rank, &at, writer, err);
    }
    sp_action_name(from->action, sp_i_exec_layout(run)->chunks, name);
    snprintf(what, sizeof what, "%s of dp %d pp %d", name, from->dp, from->pp);
    return sp_comm_flag_wait(rank->links.me, &buffer_at(&run->p2p, &at)->full, writer, what, err);
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
