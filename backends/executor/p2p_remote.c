#include <stdio.h>

#include "backends/comm/comm.h"
#include "backends/executor/run.h"
#include "sim/base/alloc.h"

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

static sp_status keep_channel(sp_i_exec_run *run, const sp_i_exec_rank *from, int pp, bool gradient,
                              int number, sp_error *err)
{
    sp_i_exec_channels *channels = &run->channels;
    int sender = (int)(from - run->ranks);
    int receiver = sp_i_exec_rank_number(run, from->dp, pp, sp_i_exec_member(run, from));
    bool sends = run->transport->rank == sender;
    if (!sends && run->transport->rank != receiver) {
        return SP_OK;
    }
    sp_reserve((void **)&channels->items, &channels->capacity, channels->count + 1,
               sizeof *channels->items);
    sp_i_exec_channel *made = &channels->items[channels->count++];
    *made = (sp_i_exec_channel){
        .number = number, .peer = sends ? receiver : sender, .sends = sends, .gradient = gradient};
    sp_status status = sp_i_exec_transfers_make(&run->depends, from->dp, from->pp, pp, gradient,
                                                &made->transfers, err);
    made->sent_items = sp_calloc(made->transfers.count, sizeof *made->sent_items);
    return status == SP_OK && made->sent_items == NULL
               ? sp_error_no_memory(err, "channels between ranks")
               : status;
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
            status = status == SP_OK ? keep_channel(run, from, to, gradient, number, err) : status;
            number++;
        }
    }
    return status;
}

// ---- in a step ----

bool sp_i_exec_is_remote(const sp_i_exec_run *run, int rank)
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
    return elements_of(rank, gradient, pack) * rank->job->specs.value.real_bytes;
}

void sp_i_exec_send(sp_i_exec_run *run, sp_i_exec_rank *rank, const sp_i_exec_p2p_slot *to,
                    int reader)
{
    sp_i_exec_channel *channel = channel_of(run, reader, true, to->gradient);
    SP_ASSERT(channel->next < channel->transfers.count);
    const sp_i_exec_transfer *transfer = &channel->transfers.items[channel->next];
    sp_i_exec_sent *sent_item = &channel->sent_items[channel->next++];
    sp_i_exec_p2p_buffer *buffer = sp_i_exec_p2p_buffer_at(&run->p2p, to);
    SP_ASSERT(transfer->vstage == to->vstage && transfer->pack == to->pack);
    sent_item->content = buffer->content;
    buffer->content = NULL;
    int64_t bytes = bytes_of(rank, to->gradient, to->pack);
    if (bytes > 0) {
        sp_status status = sp_comm_channel_send(rank->links.me, channel->number, sent_item->content,
                                                bytes, &sent_item->message, &rank->links.err);
        rank->links.status = rank->links.status == SP_OK ? status : rank->links.status;
    }
}

static sp_status post_receive(sp_i_exec_run *run, sp_i_exec_rank *rank,
                              const sp_i_exec_channel *channel, const sp_i_exec_transfer *transfer,
                              sp_error *err)
{
    const sp_i_exec_p2p_slot at = {
        .gradient = channel->gradient, .vstage = transfer->vstage, .pack = transfer->pack};
    sp_i_exec_p2p_buffer *buffer = sp_i_exec_p2p_buffer_at(&run->p2p, &at);
    buffer->sent = transfer->sent;
    if (sp_i_exec_pack_at(&rank->job->slices, at.gradient, at.pack)->all_rows == 0) {
        return SP_OK;
    }
    int64_t bytes = bytes_of(rank, at.gradient, at.pack);
    void *room = sp_i_exec_p2p_allocate(&run->p2p, &at, elements_of(rank, at.gradient, at.pack),
                                        rank->job->specs.value);
    if (room == NULL) {
        char text[SP_ERROR_TEXT / 2];
        sp_status status = sp_i_exec_p2p_failure(&run->p2p, text, sizeof text);
        return sp_error_set(err, status, "%s", text);
    }
    return bytes == 0 ? SP_OK
                      : sp_comm_channel_receive(rank->links.me, channel->number, room, bytes,
                                                &buffer->message, err);
}

sp_status sp_i_exec_post_receives(sp_i_exec_run *run, sp_i_exec_rank *rank, size_t action,
                                  sp_error *err)
{
    sp_status status = SP_OK;
    for (size_t i = 0; status == SP_OK && i < run->channels.count; i++) {
        sp_i_exec_channel *channel = &run->channels.items[i];
        const sp_i_exec_transfers *transfers = &channel->transfers;
        while (!channel->sends && status == SP_OK && channel->next < transfers->count &&
               transfers->items[channel->next].receive_by <= action) {
            status = post_receive(run, rank, channel, &transfers->items[channel->next++], err);
        }
    }
    return status;
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
    sp_i_exec_p2p_release(&run->p2p, sent_item->content);
    sent_item->content = NULL;
    return status;
}

sp_status sp_i_exec_wait_receive(sp_i_exec_run *run, sp_i_exec_rank *rank,
                                 const sp_i_exec_p2p_slot *at, int writer, sp_error *err)
{
    const sp_i_exec_p2p_buffer *buffer = sp_i_exec_p2p_buffer_at(&run->p2p, at);
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
