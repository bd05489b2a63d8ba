#include "backends/cuda/distributed/nccl_messages.h"

#include <stdio.h>

#include "sim/base/alloc.h"

// Of streams: lower numbers go first, and CUDA takes the nearest one that there is.
enum { FIRST = -100 };

sp_status sp_i_nccl_give_up(sp_i_nccl *n, sp_status status, const sp_error *found, sp_error *err)
{
    (void)sp_i_nccl_abort(n, status, "%s", found->message[0]);
    return sp_i_nccl_check(n, err);
}

static sp_status no_room(sp_i_nccl_messages *m, sp_error *err)
{
    sp_error found = {0};
    sp_status status = sp_error_no_memory(&found, "messages");
    return sp_i_nccl_give_up(m->n, status, &found, err);
}

// ---- channels ----

// One byte, which both ends wait for.
static sp_status connect_ends(sp_i_nccl_messages *m, const sp_i_nccl_channel *c, sp_error *err)
{
    sp_status status = c->sends ? sp_i_nccl_send(m->n, c->group, SP_ELEMENT_BYTE, m->token, 1,
                                                 c->peer, c->stream, err)
                                : sp_i_nccl_receive(m->n, c->group, SP_ELEMENT_BYTE, m->token, 1,
                                                    c->peer, c->stream, err);
    return status == SP_OK ? sp_i_nccl_synchronize(m->n, c->stream, err) : status;
}

sp_status sp_i_nccl_messages_channel(sp_i_nccl_messages *m, int from, int to, sp_error *err)
{
    char name[SP_I_NCCL_NAME];
    const int ends[2] = {from, to};
    sp_error found = {0};
    SP_ASSERT(from != to);
    if (!sp_reserve((void **)&m->channels, &m->channel_capacity, m->channel_count + 1,
                    sizeof *m->channels)) {
        return no_room(m, err);
    }
    sp_i_nccl_channel *c = &m->channels[m->channel_count];
    *c = (sp_i_nccl_channel){.sends = m->rank == from, .peer = m->rank == from ? 1 : 0};
    snprintf(name, sizeof name, "%d to %d", from, to);
    sp_status status = sp_i_nccl_group_new(m->n, name, ends, 2, &c->group, err);
    if (status != SP_OK) {
        return status;
    }
    m->channel_count++;
    if (m->rank != from && m->rank != to) {
        return SP_OK;
    }
    status = SP_I_CUDA(&m->device, &found, StreamCreateWithPriority, &c->stream,
                       cudaStreamNonBlocking, FIRST);
    return status == SP_OK ? connect_ends(m, c, err) : sp_i_nccl_give_up(m->n, status, &found, err);
}

// ---- messages ----

static sp_status take_event(sp_i_nccl_messages *m, cudaEvent_t *event, sp_error *err)
{
    if (m->spare_count > 0) {
        *event = m->spare[--m->spare_count];
        return SP_OK;
    }
    return SP_I_CUDA(&m->device, err, EventCreateWithFlags, event, cudaEventDisableTiming);
}

// Room for all events is there when a message is put.
static void close_message(sp_i_nccl_messages *m, size_t i)
{
    m->spare[m->spare_count++] = m->open[i].over;
    m->open[i] = m->open[--m->open_count];
}

static sp_status follow(sp_i_nccl_messages *m, cudaStream_t after, cudaEvent_t event,
                        cudaStream_t before, sp_error *err)
{
    sp_status status = SP_I_CUDA(&m->device, err, EventRecord, event, before);
    return status == SP_OK ? SP_I_CUDA(&m->device, err, StreamWaitEvent, after, event, 0) : status;
}

sp_status sp_i_nccl_messages_put(sp_i_nccl_messages *m, int channel, bool sends, void *data,
                                 int64_t bytes, uint64_t *message, sp_error *err)
{
    SP_ASSERT(channel >= 0 && (size_t)channel < m->channel_count);
    const sp_i_nccl_channel *c = &m->channels[channel];
    SP_ASSERT(c->stream != NULL && c->sends == sends);
    sp_error found = {0};
    size_t events = m->open_count + m->spare_count + 1;
    if (!sp_reserve((void **)&m->open, &m->open_capacity, events, sizeof *m->open) ||
        !sp_reserve((void **)&m->spare, &m->spare_capacity, events, sizeof *m->spare)) {
        return no_room(m, err);
    }
    sp_i_nccl_message *made = &m->open[m->open_count];
    sp_status status = take_event(m, &made->over, &found);
    if (status != SP_OK) {
        return sp_i_nccl_give_up(m->n, status, &found, err);
    }
    made->number = *message = ++m->put;
    m->open_count++;
    // The wait is for the record that stands now: the event can be recorded again behind it.
    status = follow(m, c->stream, made->over, m->work, &found);
    if (status == SP_OK) {
        sp_status own = sends ? sp_i_nccl_send(m->n, c->group, SP_ELEMENT_BYTE, data, bytes,
                                               c->peer, c->stream, err)
                              : sp_i_nccl_receive(m->n, c->group, SP_ELEMENT_BYTE, data, bytes,
                                                  c->peer, c->stream, err);
        if (own != SP_OK) {
            return own;
        }
        status = SP_I_CUDA(&m->device, &found, EventRecord, made->over, c->stream);
    }
    return status == SP_OK ? SP_OK : sp_i_nccl_give_up(m->n, status, &found, err);
}

// A message that is not open is waited for already.
sp_status sp_i_nccl_messages_wait(sp_i_nccl_messages *m, uint64_t message, sp_error *err)
{
    SP_ASSERT(message > 0 && message <= m->put);
    for (size_t i = 0; i < m->open_count; i++) {
        if (m->open[i].number == message) {
            sp_error found = {0};
            sp_status status =
                SP_I_CUDA(&m->device, &found, StreamWaitEvent, m->work, m->open[i].over, 0);
            close_message(m, i);
            return status == SP_OK ? SP_OK : sp_i_nccl_give_up(m->n, status, &found, err);
        }
    }
    return SP_OK;
}

sp_status sp_i_nccl_messages_synchronize(sp_i_nccl_messages *m, sp_error *err)
{
    sp_status status = SP_OK;
    for (size_t i = 0; status == SP_OK && i < m->channel_count; i++) {
        if (m->channels[i].stream != NULL) {
            status = sp_i_nccl_synchronize(m->n, m->channels[i].stream, err);
        }
    }
    while (status == SP_OK && m->open_count > 0) {
        close_message(m, m->open_count - 1);
    }
    return status;
}

void sp_i_nccl_messages_end(sp_i_nccl_messages *m)
{
    for (size_t i = 0; i < m->channel_count; i++) {
        if (m->channels[i].stream != NULL) {
            (void)m->device.api->StreamSynchronize(m->channels[i].stream);
        }
    }
}

void sp_i_nccl_messages_fini(sp_i_nccl_messages *m)
{
    const sp_i_cuda_api *api = m->device.api;
    while (m->open_count > 0) {
        close_message(m, m->open_count - 1);
    }
    for (size_t i = 0; i < m->spare_count; i++) {
        (void)api->EventDestroy(m->spare[i]);
    }
    for (size_t i = 0; i < m->channel_count; i++) {
        if (m->channels[i].stream != NULL) {
            (void)api->StreamDestroy(m->channels[i].stream);
        }
    }
    sp_free(m->spare);
    sp_free(m->open);
    sp_free(m->channels);
}
