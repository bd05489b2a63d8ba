// Messages between joined ranks.
#include <string.h>

#include "sim/base/alloc.h"
#include "tests/support/joined_private.h"

sp_status joined_channel_new(sp_transport *transport, int from, int to, sp_error *err)
{
    joined_end *me = joined_end_of(transport);
    joined_ranks *j = me->joined;
    SP_ASSERT(me->channels < MOST_CHANNELS);
    pthread_mutex_lock(&j->lock);
    channel **made = &j->channels[me->channels++];
    if (*made == NULL) {
        *made = sp_calloc(1, sizeof **made);
        SP_ASSERT(*made != NULL);
        (*made)->from = from;
        (*made)->to = to;
    } else if ((*made)->from != from || (*made)->to != to) {
        joined_fail(j, SP_ERR_INTERNAL, "channels that differ");
    }
    sp_status status = joined_failed(j, err);
    pthread_mutex_unlock(&j->lock);
    return status;
}

// Copies the next message that both ends are there of. A failure ends it: buffers may be gone.
static void copy_next(joined_ranks *j, channel *c)
{
    const end *from = &c->ends[0][c->over];
    const end *to = &c->ends[1][c->over];
    if (from->bytes != to->bytes) {
        joined_fail(j, SP_ERR_INTERNAL, "messages whose sizes differ");
        return;
    }
    memcpy(to->data, from->data, (size_t)to->bytes);
    c->over++;
    pthread_cond_broadcast(&j->change);
}

static bool has_next(const channel *c)
{
    return c->over < c->count[0] && c->over < c->count[1];
}

enum { SIDE_BITS = 1, MESSAGE_BITS = 32 };

// `side`: 0 sends, 1 receives.
static sp_status give_end(sp_transport *transport, int number, int side, void *data, int64_t bytes,
                          uint64_t *message, sp_error *err)
{
    joined_end *me = joined_end_of(transport);
    joined_ranks *j = me->joined;
    pthread_mutex_lock(&j->lock);
    channel *c = j->channels[number];
    SP_ASSERT((side == 0 ? c->from : c->to) == transport->rank && bytes > 0);
    bool room = sp_reserve((void **)&c->ends[side], &c->capacity[side], c->count[side] + 1,
                           sizeof *c->ends[side]);
    SP_ASSERT(room);
    *message = ((uint64_t)number << MESSAGE_BITS) | (c->count[side] << SIDE_BITS) | (uint64_t)side;
    c->ends[side][c->count[side]++] = (end){.data = data, .bytes = bytes};
    pthread_cond_broadcast(&j->change);
    while (!j->late && has_next(c) && joined_failed(j, NULL) == SP_OK) {
        copy_next(j, c);
    }
    sp_status status = joined_failed(j, err);
    pthread_mutex_unlock(&j->lock);
    return status;
}

sp_status joined_send(sp_transport *transport, int number, const void *data, int64_t bytes,
                      uint64_t *message, sp_error *err)
{
    return give_end(transport, number, 0, (void *)data, bytes, message, err);
}

sp_status joined_receive(sp_transport *transport, int number, void *data, int64_t bytes,
                         uint64_t *message, sp_error *err)
{
    return give_end(transport, number, 1, data, bytes, message, err);
}

// Until the first `count` messages of a channel are over.
static void wait_for(joined_ranks *j, channel *c, int side, size_t count)
{
    while (c->over < count && joined_failed(j, NULL) == SP_OK) {
        if (side == 1 && has_next(c)) {
            copy_next(j, c);
        } else {
            pthread_cond_wait(&j->change, &j->lock);
        }
    }
}

sp_status joined_wait(sp_transport *transport, uint64_t message, sp_error *err)
{
    joined_ranks *j = joined_end_of(transport)->joined;
    size_t index = (size_t)(message & ((UINT64_C(1) << MESSAGE_BITS) - 1)) >> SIDE_BITS;
    pthread_mutex_lock(&j->lock);
    channel *c = j->channels[message >> MESSAGE_BITS];
    wait_for(j, c, (int)(message & 1), index + 1);
    c->ends[message & 1][index].waited = true;
    sp_status status = joined_failed(j, err);
    pthread_mutex_unlock(&j->lock);
    return status;
}

// Who settles without has given back what others may still write or read.
static void must_have_waited(joined_ranks *j, const channel *c, int side)
{
    for (size_t i = 0; i < c->count[side]; i++) {
        if (!c->ends[side][i].waited) {
            joined_fail(j, SP_ERR_INTERNAL, "a message that was not waited for");
        }
    }
}

sp_status joined_settle(sp_transport *transport, sp_error *err)
{
    joined_ranks *j = joined_end_of(transport)->joined;
    pthread_mutex_lock(&j->lock);
    for (int i = 0; i < joined_end_of(transport)->channels; i++) {
        channel *c = j->channels[i];
        if (c->from == transport->rank || c->to == transport->rank) {
            int side = c->to == transport->rank;
            wait_for(j, c, side, c->count[side]);
            must_have_waited(j, c, side);
        }
    }
    sp_status status = joined_failed(j, err);
    pthread_mutex_unlock(&j->lock);
    return status;
}
