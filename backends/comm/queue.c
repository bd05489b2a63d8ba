#include "backends/comm/queue.h"

#include <string.h>

#include "backends/comm/private.h"
#include "sim/base/alloc.h"

static _Atomic(sp_i_comm_queue *) *list_of(sp_comm_world *world, int from, int to)
{
    return &world->queues[(size_t)from * (size_t)world->rank_count + (size_t)to];
}

static sp_i_comm_queue *find(sp_comm_world *world, int from, int to, int tag)
{
    sp_i_comm_queue *queue = atomic_load(list_of(world, from, to));
    while (queue != NULL && queue->tag != tag) {
        queue = queue->next;
    }
    return queue;
}

static void queue_free(sp_i_comm_queue *queue)
{
    for (int i = 0; i < queue->slots; i++) {
        sp_free(queue->slot[i].data);
    }
    sp_free(queue->slot);
    sp_free(queue);
}

static bool slot_reserve(sp_i_comm_slot *slot, size_t bytes)
{
    if (bytes <= slot->capacity) {
        return true;
    }
    char *data = sp_malloc(bytes);
    if (data == NULL) {
        return false;
    }
    sp_free(slot->data);
    slot->data = data;
    slot->capacity = bytes;
    return true;
}

static sp_i_comm_queue *queue_new(int from, int to, int tag, int slots)
{
    sp_i_comm_queue *queue = sp_calloc(1, sizeof *queue);
    if (queue == NULL) {
        return NULL;
    }
    queue->from = from;
    queue->to = to;
    queue->tag = tag;
    queue->slots = slots;
    queue->slot = sp_calloc((size_t)slots, sizeof *queue->slot);
    if (queue->slot == NULL) {
        sp_free(queue);
        return NULL;
    }
    return queue;
}

// Sender and receiver may both come first. Queues never leave their list, so it is read without a
// lock.
static sp_i_comm_queue *find_or_add(sp_comm_world *world, int from, int to, int tag)
{
    sp_i_comm_queue *queue = find(world, from, to, tag);
    if (queue != NULL) {
        return queue;
    }
    pthread_mutex_t *lock = &world->ranks[to].lock;
    pthread_mutex_lock(lock);
    queue = find(world, from, to, tag);
    if (queue == NULL) {
        queue = queue_new(from, to, tag, world->queue_slots);
        if (queue != NULL) {
            queue->next = atomic_load(list_of(world, from, to));
            atomic_store(list_of(world, from, to), queue);
        }
    }
    pthread_mutex_unlock(lock);
    return queue;
}

void sp_i_comm_queues_free(sp_comm_world *world)
{
    size_t pairs = (size_t)world->rank_count * (size_t)world->rank_count;
    for (size_t i = 0; world->queues != NULL && i < pairs; i++) {
        sp_i_comm_queue *queue = atomic_load(&world->queues[i]);
        while (queue != NULL) {
            sp_i_comm_queue *next = queue->next;
            queue_free(queue);
            queue = next;
        }
    }
}

// The queue of a call of `me`; NULL with the status set.
static sp_i_comm_queue *start(sp_comm *me, int from, int to, int tag, sp_status *status,
                              sp_error *err)
{
    sp_comm_world *world = me->world;
    int peer = from == me->rank ? to : from;
    *status = sp_comm_world_failure(world, err);
    if (*status != SP_OK) {
        return NULL;
    }
    if (peer < 0 || peer >= world->rank_count) {
        *status =
            sp_i_comm_fail(me, err, SP_ERR_USAGE, "there is no rank %d to exchange with", peer);
        return NULL;
    }
    if (world->fenced) {
        *status = sp_i_comm_fail(me, err, SP_ERR_USAGE,
                                 "messages with rank %d, in memory that is not plain", peer);
        return NULL;
    }
    sp_i_comm_queue *queue = find_or_add(world, from, to, tag);
    if (queue == NULL) {
        *status =
            sp_i_comm_fail(me, err, SP_ERR_NO_MEMORY, "no memory for a queue with rank %d", peer);
    }
    return queue;
}

// There is room.
static sp_status put(sp_comm *me, sp_i_comm_queue *queue, const void *data, size_t bytes,
                     sp_error *err)
{
    uint64_t sent = atomic_load(&queue->sent);
    sp_i_comm_slot *slot = &queue->slot[sent % (uint64_t)queue->slots];
    if (!slot_reserve(slot, bytes)) {
        return sp_i_comm_fail(me, err, SP_ERR_NO_MEMORY,
                              "no memory for a message of %zu bytes to rank %d", bytes, queue->to);
    }
    if (bytes > 0) {
        memcpy(slot->data, data, bytes);
    }
    slot->bytes = bytes;
    sp_i_comm_clock_advance(me);
    slot->sent_ns = me->clock_ns;
    atomic_store(&queue->sent, sent + 1);
    sp_i_comm_wake(me->world, queue->to);
    sp_i_comm_clock_skip(me);
    me->counts.sent_bytes += (int64_t)bytes;
    me->counts.messages_sent++;
    return SP_OK;
}

// There is a message.
static sp_status take(sp_comm *me, sp_i_comm_queue *queue, void *data, size_t bytes, sp_error *err)
{
    uint64_t received = atomic_load(&queue->received);
    const sp_i_comm_slot *slot = &queue->slot[received % (uint64_t)queue->slots];
    if (slot->bytes != bytes) {
        return sp_i_comm_fail(me, err, SP_ERR_INTERNAL,
                              "expected %zu bytes from rank %d with tag %d, got %zu", bytes,
                              queue->from, queue->tag, slot->bytes);
    }
    sp_i_comm_clock_merge(me, slot->sent_ns);
    if (bytes > 0) {
        memcpy(data, slot->data, bytes);
    }
    atomic_store(&queue->received, received + 1);
    sp_i_comm_clock_advance(me);
    sp_i_comm_wake(me->world, queue->from);
    sp_i_comm_clock_skip(me);
    me->counts.received_bytes += (int64_t)bytes;
    me->counts.messages_received++;
    return SP_OK;
}

sp_status sp_comm_send(sp_comm *me, int to, int tag, const void *data, size_t bytes, sp_error *err)
{
    sp_status status;
    sp_i_comm_queue *queue = start(me, me->rank, to, tag, &status, err);
    if (queue == NULL) {
        return status;
    }
    sp_i_comm_wait wait = {.operation = "send", .queue = queue, .sending = true};
    status = sp_i_comm_wait_for(me, &wait, err);
    return status == SP_OK ? put(me, queue, data, bytes, err) : status;
}

sp_status sp_comm_receive(sp_comm *me, int from, int tag, void *data, size_t bytes, sp_error *err)
{
    sp_status status;
    sp_i_comm_queue *queue = start(me, from, me->rank, tag, &status, err);
    if (queue == NULL) {
        return status;
    }
    sp_i_comm_wait wait = {.operation = "receive", .queue = queue};
    status = sp_i_comm_wait_for(me, &wait, err);
    return status == SP_OK ? take(me, queue, data, bytes, err) : status;
}

sp_status sp_comm_shift(sp_comm *me, int group, int tag, const void *out, size_t out_bytes,
                        void *in, size_t in_bytes, sp_error *err)
{
    int member;
    const sp_i_comm_group *ring = sp_i_comm_group_of(me, group, &member, err);
    if (ring == NULL) {
        return sp_comm_world_failure(me->world, NULL);
    }
    int next = ring->ranks[(member + 1) % ring->size];
    int previous = ring->ranks[(member + ring->size - 1) % ring->size];
    sp_status status = sp_comm_send(me, next, tag, out, out_bytes, err);
    return status == SP_OK ? sp_comm_receive(me, previous, tag, in, in_bytes, err) : status;
}
