#include "tests/support/threaded_transport.h"

#include <string.h>

#include "backends/host/cpu_runtime.h"
#include "sim/base/alloc.h"

enum { MOST_GROUPS = 512, MOST_CHANNELS = 512 };

// ---- collectives ----

static int64_t count_of(const threaded_call *c, int member)
{
    bool parts = c->kind == THREADED_GATHER || c->kind == THREADED_SCATTER;
    return parts ? c->rows[member] * c->count : c->count;
}

static bool are_alike(const threaded_group *g, const threaded_call *a, const threaded_call *b)
{
    bool alike = a->kind == b->kind && a->element == b->element && a->maximum == b->maximum &&
                 a->root == b->root;
    for (int m = 0; alike && a->kind != THREADED_EXCHANGE && m < g->size; m++) {
        alike = count_of(a, m) == count_of(b, m);
    }
    return alike;
}

// What all members brought, one behind the other.
static char *copy_inputs(const threaded_group *g, int64_t bytes)
{
    char *copy = sp_malloc((size_t)(bytes * g->size));
    for (int m = 0; m < g->size && bytes > 0; m++) {
        if (g->calls[m].in != NULL) {
            memcpy(copy + m * bytes, g->calls[m].in, (size_t)bytes);
        }
    }
    return copy;
}

// Elements [begin, begin + count) of all copied inputs.
static void reduce(const threaded_group *g, const char *copy, int64_t bytes, int64_t begin,
                   int64_t count, void *out)
{
    const void *in[THREADED_RANKS];
    int64_t element = sp_element_bytes(g->calls[0].element);
    for (int m = 0; m < g->size; m++) {
        in[m] = copy + m * bytes + begin * element;
    }
    if (count > 0 && out != NULL) {
        sp_i_cpu_reduce(g->calls[0].element, g->calls[0].maximum, count, in, g->size, &out, 1);
    }
}

static void reduce_all(const threaded_group *g)
{
    int64_t bytes = g->calls[0].count * sp_element_bytes(g->calls[0].element);
    char *copy = copy_inputs(g, bytes);
    for (int m = 0; m < g->size; m++) {
        reduce(g, copy, bytes, 0, g->calls[0].count, g->calls[m].out);
    }
    sp_free(copy);
}

static void scatter(const threaded_group *g)
{
    int64_t all = 0, begin = 0;
    for (int m = 0; m < g->size; m++) {
        all += count_of(&g->calls[0], m);
    }
    int64_t bytes = all * sp_element_bytes(g->calls[0].element);
    char *copy = copy_inputs(g, bytes);
    for (int m = 0; m < g->size; m++) {
        int64_t count = count_of(&g->calls[0], m);
        reduce(g, copy, bytes, begin, count, g->calls[m].out);
        begin += count;
    }
    sp_free(copy);
}

static void gather(const threaded_group *g)
{
    int64_t element = sp_element_bytes(g->calls[0].element);
    int64_t at = 0;
    for (int m = 0; m < g->size; m++) {
        int64_t bytes = count_of(&g->calls[0], m) * element;
        for (int to = 0; to < g->size && bytes > 0; to++) {
            memmove((char *)g->calls[to].out + at, g->calls[m].in, (size_t)bytes);
        }
        at += bytes;
    }
}

static void broadcast(const threaded_group *g)
{
    const threaded_call *root = &g->calls[g->calls[0].root];
    for (int m = 0; m < g->size && root->count > 0; m++) {
        memmove(g->calls[m].out, root->in, (size_t)(root->count * sp_element_bytes(root->element)));
    }
}

static void exchange_parts(const threaded_group *g)
{
    for (int to = 0; to < g->size; to++) {
        sp_transport_part *parts = g->calls[to].out;
        for (int m = 0; m < g->size; m++) {
            parts[m].bytes = (size_t)g->calls[m].count;
            parts[m].data = sp_malloc(parts[m].bytes);
            if (parts[m].bytes > 0) {
                memcpy(parts[m].data, g->calls[m].in, parts[m].bytes);
            }
        }
    }
}

bool threaded_collective(threaded_group *g, int member, const threaded_call *mine,
                         pthread_mutex_t *lock, pthread_cond_t *change)
{
    static void (*const works[])(const threaded_group *) = {NULL,    reduce_all, gather,
                                                            scatter, broadcast,  exchange_parts};
    const uint64_t generation = g->generation;
    g->calls[member] = *mine;
    if (++g->arrived == g->size) {
        g->unlike = false;
        for (int m = 1; m < g->size; m++) {
            g->unlike = g->unlike || !are_alike(g, &g->calls[0], &g->calls[m]);
        }
        if (!g->unlike && works[mine->kind] != NULL) {
            works[mine->kind](g);
        }
        g->arrived = 0;
        g->generation++;
        pthread_cond_broadcast(change);
    }
    while (g->generation == generation) {
        pthread_cond_wait(change, lock);
    }
    return !g->unlike;
}

// ---- the transport ----

// One end of a message.
typedef struct end {
    void *data;
    int64_t bytes;
    bool waited; // the rank has waited for it
} end;

typedef struct channel {
    int from, to;
    end *ends[2]; // of the sender, of the receiver
    size_t count[2], capacity[2];
    size_t over; // messages that are
} channel;

typedef struct threaded_rank {
    sp_transport transport;
    threaded_world *world;
    int groups, channels;
} threaded_rank;

struct threaded_world {
    pthread_mutex_t lock;
    pthread_cond_t change;
    int count;
    bool late;
    threaded_rank ranks[THREADED_RANKS];
    threaded_group *groups[MOST_GROUPS + 1]; // the last one is of all, for exchanges
    channel *channels[MOST_CHANNELS];
};

static threaded_rank *rank_of(sp_transport *transport)
{
    return (threaded_rank *)(void *)transport;
}

static sp_status group_new(sp_transport *transport, const char *name, const int *ranks, int size,
                           sp_error *err)
{
    threaded_rank *me = rank_of(transport);
    threaded_world *j = me->world;
    SP_ASSERT(me->groups < MOST_GROUPS && size <= THREADED_RANKS);
    pthread_mutex_lock(&j->lock);
    threaded_group **made = &j->groups[me->groups++];
    if (*made == NULL) {
        *made = sp_calloc(1, sizeof **made);
        (*made)->size = size;
        memcpy((*made)->ranks, ranks, (size_t)size * sizeof *ranks);
    }
    SP_ASSERT((*made)->size == size &&
              memcmp((*made)->ranks, ranks, (size_t)size * sizeof *ranks) == 0);
    pthread_mutex_unlock(&j->lock);
    return SP_OK;
}

static sp_status collective(sp_transport *transport, int number, const threaded_call *mine)
{
    threaded_world *j = rank_of(transport)->world;
    pthread_mutex_lock(&j->lock);
    threaded_group *g = j->groups[number];
    int member = 0;
    while (g->ranks[member] != transport->rank) {
        member++;
        SP_ASSERT(member < g->size);
    }
    SP_ASSERT(threaded_collective(g, member, mine, &j->lock, &j->change));
    pthread_mutex_unlock(&j->lock);
    return SP_OK;
}

static sp_status barrier(sp_transport *transport, int number, sp_error *err)
{
    return collective(transport, number, &(threaded_call){.kind = THREADED_BARRIER});
}

static sp_status all_reduce(sp_transport *transport, int number, sp_element element, bool maximum,
                            const void *in, void *out, int64_t count, sp_error *err)
{
    return collective(transport, number,
                      &(threaded_call){THREADED_REDUCE, element, maximum, in, out, count, NULL, 0});
}

static sp_status all_gather(sp_transport *transport, int number, sp_element element, const void *in,
                            void *out, const int64_t *rows, int64_t width, sp_error *err)
{
    return collective(transport, number,
                      &(threaded_call){THREADED_GATHER, element, false, in, out, width, rows, 0});
}

static sp_status reduce_scatter(sp_transport *transport, int number, sp_element element,
                                bool maximum, const void *in, void *out, const int64_t *rows,
                                int64_t width, sp_error *err)
{
    return collective(
        transport, number,
        &(threaded_call){THREADED_SCATTER, element, maximum, in, out, width, rows, 0});
}

static sp_status broadcast_from(sp_transport *transport, int number, sp_element element,
                                const void *in, void *out, int64_t count, int root, sp_error *err)
{
    return collective(
        transport, number,
        &(threaded_call){THREADED_BROADCAST, element, false, in, out, count, NULL, root});
}

static sp_status exchange(sp_transport *transport, const void *mine, size_t bytes,
                          sp_transport_part *parts, sp_error *err)
{
    memset(parts, 0, (size_t)transport->ranks * sizeof *parts);
    return collective(transport, MOST_GROUPS,
                      &(threaded_call){THREADED_EXCHANGE, SP_ELEMENT_BYTE, false, mine, parts,
                                       (int64_t)bytes, NULL, 0});
}

// ---- messages ----

static sp_status channel_new(sp_transport *transport, int from, int to, sp_error *err)
{
    threaded_rank *me = rank_of(transport);
    threaded_world *j = me->world;
    SP_ASSERT(me->channels < MOST_CHANNELS);
    pthread_mutex_lock(&j->lock);
    channel **made = &j->channels[me->channels++];
    if (*made == NULL) {
        *made = sp_calloc(1, sizeof **made);
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
    threaded_rank *me = rank_of(transport);
    threaded_world *j = me->world;
    pthread_mutex_lock(&j->lock);
    channel *c = j->channels[number];
    SP_ASSERT((side == 0 ? c->from : c->to) == transport->rank && bytes > 0);
    SP_RESERVE(c->ends[side], c->capacity[side], c->count[side] + 1);
    *message = ((uint64_t)number << MESSAGE_BITS) | (c->count[side] << SIDE_BITS) | (uint64_t)side;
    c->ends[side][c->count[side]++] = (end){.data = data, .bytes = bytes};
    pthread_cond_broadcast(&j->change);
    while (!j->late && has_next(c)) {
        copy_next(j, c);
    }
    pthread_mutex_unlock(&j->lock);
    return SP_OK;
}

static sp_status send_message(sp_transport *transport, int number, const void *data, int64_t bytes,
                              uint64_t *message, sp_error *err)
{
    return give_end(transport, number, 0, (void *)data, bytes, message);
}

static sp_status receive_message(sp_transport *transport, int number, void *data, int64_t bytes,
                                 uint64_t *message, sp_error *err)
{
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

static sp_status wait_message(sp_transport *transport, uint64_t message, sp_error *err)
{
    threaded_world *j = rank_of(transport)->world;
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

static sp_status synchronize(sp_transport *transport, sp_error *err)
{
    threaded_world *j = rank_of(transport)->world;
    pthread_mutex_lock(&j->lock);
    for (int i = 0; i < rank_of(transport)->channels; i++) {
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
// ---- the whole ----

static const sp_transport_ops threaded_ops = {.group_new = group_new,
                                              .barrier = barrier,
                                              .all_reduce = all_reduce,
                                              .all_gather = all_gather,
                                              .reduce_scatter = reduce_scatter,
                                              .broadcast = broadcast_from,
                                              .channel_new = channel_new,
                                              .send = send_message,
                                              .receive = receive_message,
                                              .wait = wait_message,
                                              .exchange = exchange,
                                              .synchronize = synchronize};

threaded_world *threaded_world_new(int ranks, bool late)
{
    threaded_world *made = sp_calloc(1, sizeof *made);
    SP_ASSERT(ranks <= THREADED_RANKS);
    made->count = ranks;
    made->late = late;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->change, NULL);
    threaded_group *all = sp_calloc(1, sizeof *all);
    all->size = ranks;
    made->groups[MOST_GROUPS] = all;
    for (int r = 0; r < ranks; r++) {
        all->ranks[r] = r;
        made->ranks[r] = (threaded_rank){.transport = {&threaded_ops, r, ranks}, .world = made};
    }
    return made;
}

void threaded_world_free(threaded_world *world)
{
    for (int i = 0; i <= MOST_GROUPS; i++) {
        sp_free(world->groups[i]);
    }
    for (int i = 0; i < MOST_CHANNELS; i++) {
        if (world->channels[i] != NULL) {
            sp_free(world->channels[i]->ends[0]);
            sp_free(world->channels[i]->ends[1]);
            sp_free(world->channels[i]);
        }
    }
    pthread_cond_destroy(&world->change);
    pthread_mutex_destroy(&world->lock);
    sp_free(world);
}

sp_transport *threaded_rank_at(threaded_world *world, int rank)
{
    return &world->ranks[rank].transport;
}
