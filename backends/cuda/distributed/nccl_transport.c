#include "backends/cuda/distributed/nccl_transport.h"

#include <stdio.h>
#include <string.h>

#include "backends/cuda/device/rank.h"
#include "sim/base/alloc.h"

enum {
    FIRST =
        -100, // of streams: lower numbers go first, and CUDA takes the nearest one that there is
    TOKEN_BYTES = 256
};

typedef struct p2p_channel {
    int group;
    int peer;            // its member that is the other end
    bool sends;          // this rank, else it receives
    cudaStream_t stream; // NULL: this rank is neither end
} p2p_channel;

// A message that no work of the rank waits for yet.
typedef struct p2p_message {
    uint64_t number;
    cudaEvent_t over;
} p2p_message;

typedef struct nccl_transport {
    sp_transport base; // first
    sp_i_cuda_device device;
    sp_runtime *runtime;
    sp_i_nccl *n;
    const sp_i_cuda_rank *own;
    cudaStream_t stream; // the rank's
    void *token;         // of the GPU: what a barrier adds up and a channel's first message carries
    int *groups;         // of n, those that are no channels
    size_t group_count, group_capacity;
    p2p_channel *channels;
    size_t channel_count, channel_capacity;
    p2p_message *open;
    size_t open_count, open_capacity;
    cudaEvent_t *spare; // events of messages that are waited for
    size_t spare_count, spare_capacity;
    uint64_t put; // messages so far
} nccl_transport;

static nccl_transport *of(sp_transport *transport)
{
    return (nccl_transport *)(void *)transport;
}

// ---- groups ----

static int group_at(const nccl_transport *t, int group)
{
    SP_ASSERT(group >= 0 && (size_t)group < t->group_count);
    return t->groups[group];
}

static sp_status group_new(sp_transport *transport, const char *name, const int *ranks, int size,
                           sp_error *err)
{
    nccl_transport *t = of(transport);
    sp_reserve((void **)&t->groups, &t->group_capacity, t->group_count + 1, sizeof *t->groups);
    return sp_i_nccl_group_new(t->n, name, ranks, size, &t->groups[t->group_count++], err);
}

static sp_status all_reduce(sp_transport *transport, int group, sp_element element, bool maximum,
                            const void *in, void *out, int64_t count, sp_error *err)
{
    nccl_transport *t = of(transport);
    return sp_i_nccl_all_reduce(t->n, group_at(t, group), element, maximum, in, out, count,
                                t->stream, err);
}

// A sum that nobody needs: its end is after every member's begin.
static sp_status barrier(sp_transport *transport, int group, sp_error *err)
{
    void *token = of(transport)->token;
    return all_reduce(transport, group, SP_ELEMENT_F32, false, token, token, 1, err);
}

static sp_status all_gather(sp_transport *transport, int group, sp_element element, const void *in,
                            void *out, const int64_t *rows, int64_t width, sp_error *err)
{
    nccl_transport *t = of(transport);
    return sp_i_nccl_all_gather_rows(t->n, group_at(t, group), element, in, out, rows, width,
                                     t->stream, err);
}

static sp_status reduce_scatter(sp_transport *transport, int group, sp_element element,
                                bool maximum, const void *in, void *out, const int64_t *rows,
                                int64_t width, sp_error *err)
{
    nccl_transport *t = of(transport);
    return sp_i_nccl_reduce_scatter_rows(t->n, group_at(t, group), element, maximum, in, out, rows,
                                         width, t->stream, err);
}

static sp_status broadcast(sp_transport *transport, int group, sp_element element, const void *in,
                           void *out, int64_t count, int root, sp_error *err)
{
    nccl_transport *t = of(transport);
    return sp_i_nccl_broadcast(t->n, group_at(t, group), element, in, out, count, root, t->stream,
                               err);
}

// ---- messages ----

// One byte, which both ends wait for.
static sp_status connect_ends(nccl_transport *t, const p2p_channel *c, sp_error *err)
{
    sp_status status = c->sends ? sp_i_nccl_send(t->n, c->group, SP_ELEMENT_BYTE, t->token, 1,
                                                 c->peer, c->stream, err)
                                : sp_i_nccl_receive(t->n, c->group, SP_ELEMENT_BYTE, t->token, 1,
                                                    c->peer, c->stream, err);
    return status == SP_OK ? sp_i_nccl_synchronize(t->n, c->stream, err) : status;
}

static sp_status channel_new(sp_transport *transport, int from, int to, sp_error *err)
{
    nccl_transport *t = of(transport);
    char name[SP_I_NCCL_NAME];
    const int ends[2] = {from, to};
    SP_ASSERT(from != to);
    sp_reserve((void **)&t->channels, &t->channel_capacity, t->channel_count + 1,
               sizeof *t->channels);
    p2p_channel *c = &t->channels[t->channel_count];
    *c = (p2p_channel){.sends = t->base.rank == from, .peer = t->base.rank == from ? 1 : 0};
    snprintf(name, sizeof name, "%d to %d", from, to);
    sp_status status = sp_i_nccl_group_new(t->n, name, ends, 2, &c->group, err);
    if (status != SP_OK) {
        return status;
    }
    t->channel_count++;
    if (t->base.rank != from && t->base.rank != to) {
        return SP_OK;
    }
    status = SP_I_CUDA(&t->device, err, StreamCreateWithPriority, &c->stream, cudaStreamNonBlocking,
                       FIRST);
    return status == SP_OK ? connect_ends(t, c, err) : status;
}

static sp_status take_event(nccl_transport *t, cudaEvent_t *event, sp_error *err)
{
    if (t->spare_count > 0) {
        *event = t->spare[--t->spare_count];
        return SP_OK;
    }
    return SP_I_CUDA(&t->device, err, EventCreateWithFlags, event, cudaEventDisableTiming);
}

// Room for all events is there when a message is put.
static void close_message(nccl_transport *t, size_t i)
{
    t->spare[t->spare_count++] = t->open[i].over;
    t->open[i] = t->open[--t->open_count];
}

static sp_status follow(nccl_transport *t, cudaStream_t after, cudaEvent_t event,
                        cudaStream_t before, sp_error *err)
{
    sp_status status = SP_I_CUDA(&t->device, err, EventRecord, event, before);
    return status == SP_OK ? SP_I_CUDA(&t->device, err, StreamWaitEvent, after, event, 0) : status;
}

// The wait of the rank's stream is for the record that stands now: the event can be recorded again
// behind it.
static sp_status put(sp_transport *transport, int number, bool sends, void *data, int64_t bytes,
                     uint64_t *given, sp_error *err)
{
    nccl_transport *t = of(transport);
    SP_ASSERT(number >= 0 && (size_t)number < t->channel_count);
    const p2p_channel *c = &t->channels[number];
    SP_ASSERT(c->stream != NULL && c->sends == sends);
    size_t events = t->open_count + t->spare_count + 1;
    sp_reserve((void **)&t->open, &t->open_capacity, events, sizeof *t->open);
    sp_reserve((void **)&t->spare, &t->spare_capacity, events, sizeof *t->spare);
    p2p_message *made = &t->open[t->open_count];
    sp_status status = take_event(t, &made->over, err);
    if (status != SP_OK) {
        return status;
    }
    made->number = *given = ++t->put;
    t->open_count++;
    status = follow(t, c->stream, made->over, t->stream, err);
    if (status == SP_OK) {
        status = sends ? sp_i_nccl_send(t->n, c->group, SP_ELEMENT_BYTE, data, bytes, c->peer,
                                        c->stream, err)
                       : sp_i_nccl_receive(t->n, c->group, SP_ELEMENT_BYTE, data, bytes, c->peer,
                                           c->stream, err);
    }
    return status == SP_OK ? SP_I_CUDA(&t->device, err, EventRecord, made->over, c->stream)
                           : status;
}

static sp_status send_message(sp_transport *transport, int channel, const void *data, int64_t bytes,
                              uint64_t *message, sp_error *err)
{
    return put(transport, channel, true, (void *)(uintptr_t)data, bytes, message, err);
}

static sp_status receive_message(sp_transport *transport, int channel, void *data, int64_t bytes,
                                 uint64_t *message, sp_error *err)
{
    return put(transport, channel, false, data, bytes, message, err);
}

// A message that is not open is waited for already.
static sp_status wait_message(sp_transport *transport, uint64_t number, sp_error *err)
{
    nccl_transport *t = of(transport);
    SP_ASSERT(number > 0 && number <= t->put);
    for (size_t i = 0; i < t->open_count; i++) {
        if (t->open[i].number == number) {
            sp_status status =
                SP_I_CUDA(&t->device, err, StreamWaitEvent, t->stream, t->open[i].over, 0);
            close_message(t, i);
            return status;
        }
    }
    return SP_OK;
}

// ---- beside the device runtime ----

// What went wrong in the rank's own work ends the wait: others may wait for what it would have
// done.
static sp_status synchronize(sp_transport *transport, sp_error *err)
{
    nccl_transport *t = of(transport);
    if (t->own->status != SP_OK) {
        return sp_error_set(err, t->own->status, "%s", t->own->error.message[0]);
    }
    sp_status status = sp_i_nccl_synchronize(t->n, t->stream, err);
    for (size_t i = 0; status == SP_OK && i < t->channel_count; i++) {
        if (t->channels[i].stream != NULL) {
            status = sp_i_nccl_synchronize(t->n, t->channels[i].stream, err);
        }
    }
    while (status == SP_OK && t->open_count > 0) {
        close_message(t, t->open_count - 1);
    }
    return status;
}

// Memory for it is taken when nothing of this GPU waits for another.
static sp_status exchange(sp_transport *transport, const void *mine, size_t bytes,
                          sp_transport_part *parts, sp_error *err)
{
    nccl_transport *t = of(transport);
    memset(parts, 0, (size_t)t->base.ranks * sizeof *parts);
    sp_status status = synchronize(transport, err);
    return status == SP_OK ? sp_i_nccl_exchange_bytes(t->n, mine, bytes, parts, t->stream, err)
                           : status;
}

static const sp_transport_ops transport_ops = {.group_new = group_new,
                                               .barrier = barrier,
                                               .all_reduce = all_reduce,
                                               .all_gather = all_gather,
                                               .reduce_scatter = reduce_scatter,
                                               .broadcast = broadcast,
                                               .channel_new = channel_new,
                                               .send = send_message,
                                               .receive = receive_message,
                                               .wait = wait_message,
                                               .exchange = exchange,
                                               .synchronize = synchronize};

// ---- begin and end ----

static sp_status make(nccl_transport *t, const sp_i_nccl_transport_options *options, sp_error *err)
{
    sp_runtime *runtime = t->runtime;
    runtime->ops->enter(runtime, t->base.rank);
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    rank->limit_ms = options->timeout_ms;
    t->own = rank;
    t->stream = rank->stream;
    t->token = runtime->ops->allocate(runtime, TOKEN_BYTES);
    if (t->token == NULL) {
        return sp_error_set(err, SP_ERR_INFEASIBLE, "GPU %d: no %d bytes for messages",
                            t->device.index, TOKEN_BYTES);
    }
    runtime->ops->zero(runtime, t->token, TOKEN_BYTES);
    const sp_i_nccl_options world = {
        .device = options->device,
        .place = options->place,
        .card = options->card,
        .timeout_ms = options->timeout_ms,
        .api = options->api,
    };
    sp_status status = runtime->ops->synchronize(runtime, err);
    return status == SP_OK ? sp_i_nccl_new(&world, &t->n, err) : status;
}

sp_status sp_i_nccl_transport_new(const sp_i_nccl_transport_options *options, sp_transport **made,
                                  sp_error *err)
{
    *made = NULL;
    nccl_transport *t = sp_calloc(1, sizeof *t);
    t->base = (sp_transport){&transport_ops, options->place->rank, options->place->ranks};
    t->device = options->device;
    t->runtime = options->runtime;
    sp_status status = make(t, options, err);
    if (status != SP_OK) {
        sp_free(t);
        return status;
    }
    *made = &t->base;
    return SP_OK;
}

void sp_i_nccl_transport_free(sp_transport *transport)
{
    if (transport == NULL) {
        return;
    }
    nccl_transport *t = of(transport);
    const sp_i_cuda_api *api = t->device.api;
    t->runtime->ops->enter(t->runtime, t->base.rank);
    (void)synchronize(transport, NULL);
    sp_i_nccl_free(t->n);
    for (size_t i = 0; i < t->spare_count; i++) {
        (void)api->EventDestroy(t->spare[i]);
    }
    for (size_t i = 0; i < t->channel_count; i++) {
        if (t->channels[i].stream != NULL) {
            (void)api->StreamDestroy(t->channels[i].stream);
        }
    }
    t->runtime->ops->release(t->runtime, t->token);
    sp_free(t->spare);
    sp_free(t->open);
    sp_free(t->channels);
    sp_free(t->groups);
    sp_free(t);
}
