#include "tests/support/threaded_transport.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "tests/support/threaded_private.h"

threaded_rank *threaded_rank_of(sp_transport *transport)
{
    return (threaded_rank *)(void *)transport;
}

// ---- groups ----

static sp_status group_new(sp_transport *transport, const char *name, const int *ranks, int size,
                           sp_error *err)
{
    threaded_rank *me = threaded_rank_of(transport);
    threaded_world *j = me->world;
    (void)name;
    (void)err;
    SP_ASSERT(me->groups < MOST_GROUPS && size <= THREADED_RANKS);
    pthread_mutex_lock(&j->lock);
    threaded_group **made = &j->groups[me->groups++];
    if (*made == NULL) {
        *made = sp_calloc(1, sizeof **made);
        SP_ASSERT(*made != NULL);
        (*made)->size = size;
        memcpy((*made)->ranks, ranks, (size_t)size * sizeof *ranks);
    }
    SP_ASSERT((*made)->size == size &&
              memcmp((*made)->ranks, ranks, (size_t)size * sizeof *ranks) == 0);
    pthread_mutex_unlock(&j->lock);
    return SP_OK;
}

// The last of the members does the work of all.
static sp_status collective(threaded_rank *me, int number, const threaded_call *mine, sp_error *err)
{
    (void)err;
    threaded_world *j = me->world;
    pthread_mutex_lock(&j->lock);
    threaded_group *g = j->groups[number];
    uint64_t generation = g->generation;
    int member = 0;
    while (g->ranks[member] != me->transport.rank) {
        member++;
        SP_ASSERT(member < g->size);
    }
    g->calls[member] = *mine;
    if (++g->arrived == g->size) {
        for (int m = 1; m < g->size; m++) {
            SP_ASSERT(threaded_alike(g, &g->calls[0], &g->calls[m]));
        }
        threaded_work(g);
        g->arrived = 0;
        g->generation++;
        pthread_cond_broadcast(&j->change);
    }
    while (g->generation == generation) {
        pthread_cond_wait(&j->change, &j->lock);
    }
    pthread_mutex_unlock(&j->lock);
    return SP_OK;
}

static sp_status barrier(sp_transport *transport, int number, sp_error *err)
{
    return collective(threaded_rank_of(transport), number,
                      &(threaded_call){.kind = THREADED_BARRIER}, err);
}

static sp_status all_reduce(sp_transport *transport, int number, sp_element element, bool maximum,
                            const void *in, void *out, int64_t count, sp_error *err)
{
    return collective(threaded_rank_of(transport), number,
                      &(threaded_call){.kind = THREADED_REDUCE,
                                       .element = element,
                                       .maximum = maximum,
                                       .in = in,
                                       .out = out,
                                       .count = count},
                      err);
}

static sp_status all_gather(sp_transport *transport, int number, sp_element element, const void *in,
                            void *out, const int64_t *rows, int64_t width, sp_error *err)
{
    return collective(threaded_rank_of(transport), number,
                      &(threaded_call){.kind = THREADED_GATHER,
                                       .element = element,
                                       .in = in,
                                       .out = out,
                                       .count = width,
                                       .rows = rows},
                      err);
}

static sp_status reduce_scatter(sp_transport *transport, int number, sp_element element,
                                bool maximum, const void *in, void *out, const int64_t *rows,
                                int64_t width, sp_error *err)
{
    return collective(threaded_rank_of(transport), number,
                      &(threaded_call){.kind = THREADED_SCATTER,
                                       .element = element,
                                       .maximum = maximum,
                                       .in = in,
                                       .out = out,
                                       .count = width,
                                       .rows = rows},
                      err);
}

static sp_status broadcast_from(sp_transport *transport, int number, sp_element element,
                                const void *in, void *out, int64_t count, int root, sp_error *err)
{
    return collective(threaded_rank_of(transport), number,
                      &(threaded_call){.kind = THREADED_BROADCAST,
                                       .element = element,
                                       .in = in,
                                       .out = out,
                                       .count = count,
                                       .root = root},
                      err);
}

static sp_status exchange(sp_transport *transport, const void *mine, size_t bytes,
                          sp_transport_part *parts, sp_error *err)
{
    memset(parts, 0, (size_t)transport->ranks * sizeof *parts);
    return collective(
        threaded_rank_of(transport), MOST_GROUPS,
        &(threaded_call){
            .kind = THREADED_EXCHANGE, .in = mine, .out = parts, .count = (int64_t)bytes},
        err);
}

// ---- the whole ----

static const sp_transport_ops threaded_ops = {.group_new = group_new,
                                              .barrier = barrier,
                                              .all_reduce = all_reduce,
                                              .all_gather = all_gather,
                                              .reduce_scatter = reduce_scatter,
                                              .broadcast = broadcast_from,
                                              .channel_new = threaded_channel_new,
                                              .send = threaded_send,
                                              .receive = threaded_receive,
                                              .wait = threaded_wait,
                                              .exchange = exchange,
                                              .synchronize = threaded_synchronize};

threaded_world *threaded_world_new(int ranks, bool late)
{
    threaded_world *made = sp_calloc(1, sizeof *made);
    SP_ASSERT(made != NULL && ranks <= THREADED_RANKS);
    made->count = ranks;
    made->late = late;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->change, NULL);
    threaded_group *all = sp_calloc(1, sizeof *all);
    SP_ASSERT(all != NULL);
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
