// Ranks in other processes. All knowledge of how they are reached is the transport's.
#include "backends/comm/transport.h"

#include "backends/comm/private.h"

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
    me->counts.collectives++;
    me->counts.collective_bytes += bytes_written(group, group->member_of[me->rank], call);
    return call_transport(me->world->transport, number, call, err);
}

// ---- messages ----

sp_status sp_comm_channel_send(sp_comm *me, int channel, const void *data, int64_t bytes,
                               uint64_t *message, sp_error *err)
{
    sp_transport *transport = me->world->transport;
    me->counts.messages_sent++;
    me->counts.sent_bytes += bytes;
    return transport->ops->send(transport, channel, data, bytes, message, err);
}

sp_status sp_comm_channel_receive(sp_comm *me, int channel, void *data, int64_t bytes,
                                  uint64_t *message, sp_error *err)
{
    sp_transport *transport = me->world->transport;
    me->counts.messages_received++;
    me->counts.received_bytes += bytes;
    return transport->ops->receive(transport, channel, data, bytes, message, err);
}

// After an error the rank's work may wait for others for ever.
sp_status sp_i_comm_end_work(sp_comm *me, sp_status status, sp_error *err)
{
    sp_runtime *runtime = me->world->runtime;
    sp_transport *transport = me->world->transport;
    if (transport != NULL) {
        return status == SP_OK ? transport->ops->synchronize(transport, err) : SP_OK;
    }
    return runtime->ops->synchronize(runtime, status == SP_OK ? err : NULL);
}
