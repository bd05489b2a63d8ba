// Ranks in other processes. All knowledge of how they are reached is the transport's, whose
// failures become the world's.
#include "backends/comm/transport.h"

#include <stdio.h>

#include "backends/comm/private.h"

// What the rank waits for goes on record for reports at a deadline.
static void begin_wait(sp_comm *me, const char *operation, const char *what)
{
    pthread_mutex_lock(&me->lock);
    me->wait = (sp_i_comm_wait){.operation = operation};
    snprintf(me->wait.what, sizeof me->wait.what, "%s", what);
    pthread_mutex_unlock(&me->lock);
}

static sp_status end_call(sp_comm_world *world, sp_status status, const sp_error *own,
                          sp_error *err)
{
    if (status == SP_OK) {
        return SP_OK;
    }
    sp_i_comm_adopt(world, status, own);
    return sp_comm_world_failure(world, err);
}

static sp_status end_wait(sp_comm *me, sp_status status, const sp_error *own, sp_error *err)
{
    status = end_call(me->world, status, own, err);
    pthread_mutex_lock(&me->lock);
    me->wait.operation = NULL;
    pthread_mutex_unlock(&me->lock);
    return status;
}

// ---- collectives ----

static sp_status call_transport(sp_transport *transport, int number, const sp_i_comm_call *call,
                                sp_error *err)
{
    const sp_transport_ops *ops = transport->ops;
    bool maximum = call->op == SP_COMM_MAX;
    switch (call->kind) {
    case SP_I_BARRIER:
        return ops->barrier(transport, number, err);
    case SP_I_ALL_REDUCE:
        return ops->all_reduce(transport, number, call->type, maximum, call->in, call->out,
                               call->count, err);
    case SP_I_ALL_GATHER:
        return ops->all_gather(transport, number, call->type, call->in, call->out, call->rows,
                               call->count, err);
    case SP_I_REDUCE_SCATTER:
        return ops->reduce_scatter(transport, number, call->type, maximum, call->in, call->out,
                                   call->rows, call->count, err);
    case SP_I_BROADCAST:
        return ops->broadcast(transport, number, call->type, call->in, call->out, call->count,
                              call->root, err);
    }
    SP_UNREACHABLE("kind of collective");
}

// Of the result, which each member writes for itself.
static int64_t bytes_written(const sp_i_comm_group *group, int member, const sp_i_comm_call *call)
{
    bool gathers = call->kind == SP_I_ALL_GATHER;
    int64_t count = call->kind == SP_I_BARRIER ? 0 : sp_i_comm_part_count(call, member);
    for (int j = 0; gathers && j < group->size; j++) {
        count += j != member ? sp_i_comm_part_count(call, j) : 0;
    }
    return count * sp_element_bytes(call->type);
}

sp_status sp_i_comm_remote_collective(sp_comm *me, int number, const sp_i_comm_group *group,
                                      const sp_i_comm_call *call, sp_error *err)
{
    sp_error own = {0};
    char what[SP_COMM_WHAT];
    const char *name = sp_i_comm_kind_names[call->kind];
    snprintf(what, sizeof what, "others (%s, group '%s')", name, group->name);
    begin_wait(me, name, what);
    me->counts.collectives++;
    me->counts.collective_bytes += bytes_written(group, group->member_of[me->rank], call);
    sp_status status = call_transport(me->world->transport, number, call, &own);
    return end_wait(me, status, &own, err);
}

// ---- messages, and beside the device ----

sp_status sp_comm_channel_new(sp_comm_world *world, int from, int to, sp_error *err)
{
    sp_error own = {0};
    sp_status status = world->transport->ops->channel_new(world->transport, from, to, &own);
    return end_call(world, status, &own, err);
}

sp_status sp_comm_channel_send(sp_comm *me, int channel, const void *data, int64_t bytes,
                               uint64_t *message, sp_error *err)
{
    sp_transport *transport = me->world->transport;
    sp_error own = {0};
    me->counts.messages_sent++;
    me->counts.sent_bytes += bytes;
    sp_status status = transport->ops->send(transport, channel, data, bytes, message, &own);
    return end_call(me->world, status, &own, err);
}

sp_status sp_comm_channel_receive(sp_comm *me, int channel, void *data, int64_t bytes,
                                  uint64_t *message, sp_error *err)
{
    sp_transport *transport = me->world->transport;
    sp_error own = {0};
    me->counts.messages_received++;
    me->counts.received_bytes += bytes;
    sp_status status = transport->ops->receive(transport, channel, data, bytes, message, &own);
    return end_call(me->world, status, &own, err);
}

sp_status sp_comm_channel_wait(sp_comm *me, uint64_t message, const char *what, sp_error *err)
{
    sp_transport *transport = me->world->transport;
    sp_error own = {0};
    begin_wait(me, "message", what);
    sp_status status = transport->ops->wait(transport, message, &own);
    return end_wait(me, status, &own, err);
}

sp_status sp_comm_exchange(sp_comm *me, const void *mine, size_t bytes, sp_transport_part *parts,
                           sp_error *err)
{
    sp_transport *transport = me->world->transport;
    sp_error own = {0};
    begin_wait(me, "exchange", "what other ranks give");
    sp_status status = transport->ops->exchange(transport, mine, bytes, parts, &own);
    return end_wait(me, status, &own, err);
}

sp_status sp_comm_synchronize(sp_comm *me, sp_error *err)
{
    sp_transport *transport = me->world->transport;
    sp_runtime *runtime = me->world->runtime;
    sp_error own = {0};
    begin_wait(me, "settle", "the end of its work with others");
    sp_status status = transport->ops->synchronize(transport, NULL);
    // What is no failure of the ranks went wrong in this one's own work: its caller says where.
    if (status != SP_OK) {
        status = transport->ops->check(transport, &own);
    }
    status = end_wait(me, status, &own, err);
    sp_status settled = runtime->ops->synchronize(runtime, status == SP_OK ? err : NULL);
    return status == SP_OK ? settled : status;
}

// A rank that failed tells the others before it waits for its work, which may wait for theirs.
sp_status sp_i_comm_end_work(sp_comm *me, sp_status status, sp_error *err)
{
    sp_runtime *runtime = me->world->runtime;
    sp_error *settled = status == SP_OK ? err : NULL;
    if (me->world->transport == NULL) {
        return runtime->ops->synchronize(runtime, settled);
    }
    if (status != SP_OK) {
        sp_comm_abort(me, status, "%s", err->count > 0 ? err->message[0] : sp_status_text(status));
    }
    return sp_comm_synchronize(me, settled);
}
