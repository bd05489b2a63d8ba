// Messages between ranks that are threads.
#include <string.h>

#include "sim/base/alloc.h"
#include "tests/support/threaded_private.h"

sp_status threaded_channel_new(sp_transport *transport, int from, int to, sp_error *err)
{
    threaded_rank *me = threaded_rank_of(transport);
    threaded_world *j = me->world;
    (void)err;
    SP_ASSERT(me->channels < MOST_CHANNELS);
    pthread_mutex_lock(&j->lock);
    channel **made = &j->channels[me->channels++];
    if (*made == NULL) {
        *made = sp_calloc(1, sizeof **made);
        SP_ASSERT(*made != NULL);
        (*made)->from = from;
        (*made)->to = to;
    }
    SP_ASSERT((*made)->from == from && (*made)->to == to);
    pthread_mutex_unlock(&j->lock);
    return SP_OK;
}

// Copies the next message that both ends are there of.
static void copy_next(threaded_world *j, channel *c)
{
    const end *from = &c->ends[0][c->over];
    const end *to = &c->ends[1][c->over];
    SP_ASSERT(from->bytes == to->bytes);
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
                          uint64_t *message)
{
    threaded_rank *me = threaded_rank_of(transport);
    threaded_world *j = me->world;
    pthread_mutex_lock(&j->lock);
    channel *c = j->channels[number];
    SP_ASSERT((side == 0 ? c->from : c->to) == transport->rank && bytes > 0);
    sp_reserve((void **)&c->ends[side], &c->capacity[side], c->count[side] + 1,
               sizeof *c->ends[side]);
    *message = ((uint64_t)number << MESSAGE_BITS) | (c->count[side] << SIDE_BITS) | (uint64_t)side;
    c->ends[side][c->count[side]++] = (end){.data = data, .bytes = bytes};
    pthread_cond_broadcast(&j->change);
    while (!j->late && has_next(c)) {
        copy_next(j, c);
    }
    pthread_mutex_unlock(&j->lock);
    return SP_OK;
}

sp_status threaded_send(sp_transport *transport, int number, const void *data, int64_t bytes,
                        uint64_t *message, sp_error *err)
{
    (void)err;
    return give_end(transport, number, 0, (void *)data, bytes, message);
}

sp_status threaded_receive(sp_transport *transport, int number, void *data, int64_t bytes,
                           uint64_t *message, sp_error *err)
{
    (void)err;
    return give_end(transport, number, 1, data, bytes, message);
}

// Until the first `count` messages of a channel are over.
static void wait_for(threaded_world *j, channel *c, int side, size_t count)
{
    while (c->over < count) {
        if (side == 1 && has_next(c)) {
            copy_next(j, c);
        } else {
            pthread_cond_wait(&j->change, &j->lock);
        }
    }
}

sp_status threaded_wait(sp_transport *transport, uint64_t message, sp_error *err)
{
    threaded_world *j = threaded_rank_of(transport)->world;
    (void)err;
    size_t index = (size_t)(message & ((UINT64_C(1) << MESSAGE_BITS) - 1)) >> SIDE_BITS;
    pthread_mutex_lock(&j->lock);
    channel *c = j->channels[message >> MESSAGE_BITS];
    wait_for(j, c, (int)(message & 1), index + 1);
    c->ends[message & 1][index].waited = true;
    pthread_mutex_unlock(&j->lock);
    return SP_OK;
}

// Who settles without has given back what others may still write or read.
static void must_have_waited(const channel *c, int side)
{
    for (size_t i = 0; i < c->count[side]; i++) {
        SP_ASSERT(c->ends[side][i].waited);
    }
}

sp_status threaded_synchronize(sp_transport *transport, sp_error *err)
{
    threaded_world *j = threaded_rank_of(transport)->world;
    (void)err;
    pthread_mutex_lock(&j->lock);
    for (int i = 0; i < threaded_rank_of(transport)->channels; i++) {
        channel *c = j->channels[i];
        if (c->from == transport->rank || c->to == transport->rank) {
            int side = c->to == transport->rank;
            wait_for(j, c, side, c->count[side]);
            must_have_waited(c, side);
        }
    }
    pthread_mutex_unlock(&j->lock);
    return SP_OK;
}
