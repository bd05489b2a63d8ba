#include "tests/support/joined_ranks.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "tests/support/joined_private.h"

joined_end *joined_end_of(sp_transport *transport)
{
    return (joined_end *)(void *)transport;
}

// ---- failure; all but abort and check are called with the lock held ----

sp_status joined_failed(const joined_ranks *j, sp_error *err)
{
    return j->failure.count == 0
               ? SP_OK
               : sp_error_set(err, j->failure.status, "%s", j->failure.message[0]);
}

sp_status joined_fail(joined_ranks *j, sp_status status, const char *text)
{
    if (j->failure.count == 0) {
        sp_error_set(&j->failure, status, "%s", text);
        pthread_cond_broadcast(&j->change);
    }
    return j->failure.status;
}

static sp_status check(sp_transport *transport, sp_error *err)
{
    joined_ranks *j = joined_end_of(transport)->joined;
    pthread_mutex_lock(&j->lock);
    sp_status status = joined_failed(j, err);
    pthread_mutex_unlock(&j->lock);
    return status;
}

static sp_status abort_all(sp_transport *transport, sp_status status, const char *text)
{
    joined_ranks *j = joined_end_of(transport)->joined;
    pthread_mutex_lock(&j->lock);
    status = joined_fail(j, status, text);
    pthread_mutex_unlock(&j->lock);
    return status;
}

// ---- groups ----

static sp_status group_new(sp_transport *transport, const char *name, const int *ranks, int size,
                           sp_error *err)
{
    joined_end *me = joined_end_of(transport);
    joined_ranks *j = me->joined;
    (void)name;
    SP_ASSERT(me->groups < MOST_GROUPS && size <= JOINED_RANKS);
    pthread_mutex_lock(&j->lock);
    joined_group **made = &j->groups[me->groups++];
    if (*made == NULL) {
        *made = sp_calloc(1, sizeof **made);
        SP_ASSERT(*made != NULL);
        (*made)->size = size;
        memcpy((*made)->ranks, ranks, (size_t)size * sizeof *ranks);
    } else if ((*made)->size != size ||
               memcmp((*made)->ranks, ranks, (size_t)size * sizeof *ranks) != 0) {
        joined_fail(j, SP_ERR_INTERNAL, "groups that differ");
    }
    sp_status status = joined_failed(j, err);
    pthread_mutex_unlock(&j->lock);
    return status;
}

// The last of the members does the work of all.
static sp_status meet(joined_end *me, int number, const joined_call *mine, sp_error *err)
{
    joined_ranks *j = me->joined;
    pthread_mutex_lock(&j->lock);
    joined_group *g = j->groups[number];
    uint64_t meeting = g->meetings;
    int member = 0;
    while (g->ranks[member] != me->transport.rank) {
        member++;
        SP_ASSERT(member < g->size);
    }
    g->calls[member] = *mine;
    if (joined_failed(j, NULL) == SP_OK && ++g->arrived == g->size) {
        bool alike = true;
        for (int m = 1; m < g->size; m++) {
            alike = alike && joined_alike(g, &g->calls[0], &g->calls[m]);
        }
        if (alike) {
            joined_work(g);
        } else {
            joined_fail(j, SP_ERR_INTERNAL, "collectives that differ");
        }
        g->arrived = 0;
        g->meetings++;
        pthread_cond_broadcast(&j->change);
    }
    while (g->meetings == meeting && joined_failed(j, NULL) == SP_OK) {
        pthread_cond_wait(&j->change, &j->lock);
    }
    sp_status status = g->meetings != meeting ? SP_OK : joined_failed(j, err);
    pthread_mutex_unlock(&j->lock);
    return status;
}

static sp_status barrier(sp_transport *transport, int number, sp_error *err)
{
    return meet(joined_end_of(transport), number, &(joined_call){.kind = JOINED_BARRIER}, err);
}

static sp_status all_reduce(sp_transport *transport, int number, sp_element element, bool maximum,
                            const void *in, void *out, int64_t count, sp_error *err)
{
    return meet(joined_end_of(transport), number,
                &(joined_call){.kind = JOINED_REDUCE,
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
    return meet(joined_end_of(transport), number,
                &(joined_call){.kind = JOINED_GATHER,
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
    return meet(joined_end_of(transport), number,
                &(joined_call){.kind = JOINED_SCATTER,
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
    return meet(joined_end_of(transport), number,
                &(joined_call){.kind = JOINED_BROADCAST,
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
    return meet(
        joined_end_of(transport), MOST_GROUPS,
        &(joined_call){.kind = JOINED_EXCHANGE, .in = mine, .out = parts, .count = (int64_t)bytes},
        err);
}

// ---- the whole ----

static const sp_transport_ops joined_ops = {.group_new = group_new,
                                            .barrier = barrier,
                                            .all_reduce = all_reduce,
                                            .all_gather = all_gather,
                                            .reduce_scatter = reduce_scatter,
                                            .broadcast = broadcast_from,
                                            .channel_new = joined_channel_new,
                                            .send = joined_send,
                                            .receive = joined_receive,
                                            .wait = joined_wait,
                                            .exchange = exchange,
                                            .synchronize = joined_settle,
                                            .check = check,
                                            .abort = abort_all};

joined_ranks *joined_ranks_new(int ranks, bool late)
{
    joined_ranks *made = sp_calloc(1, sizeof *made);
    SP_ASSERT(made != NULL && ranks <= JOINED_RANKS);
    made->count = ranks;
    made->late = late;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->change, NULL);
    joined_group *all = sp_calloc(1, sizeof *all);
    SP_ASSERT(all != NULL);
    all->size = ranks;
    made->groups[MOST_GROUPS] = all;
    for (int r = 0; r < ranks; r++) {
        all->ranks[r] = r;
        made->ranks[r] = (joined_end){.transport = {&joined_ops, r, ranks}, .joined = made};
    }
    return made;
}

void joined_ranks_free(joined_ranks *joined)
{
    for (int i = 0; i <= MOST_GROUPS; i++) {
        sp_free(joined->groups[i]);
    }
    for (int i = 0; i < MOST_CHANNELS; i++) {
        if (joined->channels[i] != NULL) {
            sp_free(joined->channels[i]->ends[0]);
            sp_free(joined->channels[i]->ends[1]);
            sp_free(joined->channels[i]);
        }
    }
    pthread_cond_destroy(&joined->change);
    pthread_mutex_destroy(&joined->lock);
    sp_free(joined);
}

sp_transport *joined_rank_at(joined_ranks *joined, int rank)
{
    return &joined->ranks[rank].transport;
}
