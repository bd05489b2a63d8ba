#include <sched.h>
#include <string.h>

#include "backends/ranks/private.h"
#include "sim/base/alloc.h"

// A member's share of a collective: what it copies or reduces while the buffers of all members
// stand still. The shares of two members never write the same element, and none writes what another
// still reads.

static const sp_i_comm_call *call_at(const sp_i_comm_group *group, int member, uint64_t phase)
{
    return &group->members[member].call[phase % 2];
}

// Shares of an all-reduce end on whole cache lines of fp32, so that members do not write to the
// same one.
enum { SHARE_ELEMENTS = SP_I_CACHE_LINE / 4 };

static int64_t part_count(const sp_i_comm_call *call, int member)
{
    return call->rows != NULL ? call->rows[member] * call->count : call->count;
}

// Elements before a member's part.
static int64_t part_offset(const sp_i_comm_call *call, int member)
{
    int64_t rows = 0;
    for (int j = 0; j < member; j++) {
        rows += call->rows[j];
    }
    return rows * call->count;
}

// Lets the device sum the members' elements [begin, begin + count) of in, or take their maximum, to
// out, or where that is NULL to the same elements of every member's out.
static void reduce(sp_comm *me, const sp_i_comm_group *group, uint64_t phase, int64_t begin,
                   int64_t count, char *out)
{
    const sp_i_comm_call *first = call_at(group, 0, phase);
    sp_runtime *runtime = me->world->runtime;
    int64_t element = sp_element_bytes(first->type);
    int outs = out != NULL ? 1 : group->size;
    for (int j = 0; j < group->size; j++) {
        const sp_i_comm_call *call = call_at(group, j, phase);
        me->inputs[j] = call->in + begin * element;
        me->outputs[j] = out != NULL ? out : call->out + begin * element;
    }
    if (count > 0) {
        runtime->ops->reduce(runtime, first->type, first->op == SP_COMM_MAX, count, me->inputs,
                             group->size, me->outputs, outs);
    }
}

static void all_reduce(sp_comm *me, const sp_i_comm_group *group, int member, uint64_t phase)
{
    int64_t count = call_at(group, member, phase)->count;
    int64_t units = (count + SHARE_ELEMENTS - 1) / SHARE_ELEMENTS;
    int64_t each = units / group->size;
    int64_t extra = units % group->size;
    int64_t first = each * member + (member < extra ? member : extra);
    int64_t begin = first * SHARE_ELEMENTS;
    int64_t end = begin + (each + (member < extra ? 1 : 0)) * SHARE_ELEMENTS;
    end = end < count ? end : count;
    if (begin < end) {
        reduce(me, group, phase, begin, end - begin, NULL);
    }
}

static void reduce_scatter(sp_comm *me, const sp_i_comm_group *group, int member, uint64_t phase)
{
    const sp_i_comm_call *mine = call_at(group, member, phase);
    reduce(me, group, phase, part_offset(mine, member), part_count(mine, member), mine->out);
}

static void copy(sp_comm *me, char *to, const char *from, int64_t bytes)
{
    sp_runtime *runtime = me->world->runtime;
    if (to != from && bytes > 0) {
        runtime->ops->copy(runtime, to, from, bytes);
    }
}

static void all_gather(sp_comm *me, const sp_i_comm_group *group, int member, uint64_t phase)
{
    const sp_i_comm_call *mine = call_at(group, member, phase);
    int64_t element = sp_element_bytes(mine->type);
    int64_t offset = 0;
    for (int j = 0; j < group->size; j++) {
        int64_t bytes = part_count(mine, j) * element;
        copy(me, mine->out + offset, call_at(group, j, phase)->in, bytes);
        offset += bytes;
    }
}

static void broadcast(sp_comm *me, const sp_i_comm_group *group, int member, uint64_t phase)
{
    const sp_i_comm_call *mine = call_at(group, member, phase);
    copy(me, mine->out, call_at(group, mine->root, phase)->in,
         mine->count * sp_element_bytes(mine->type));
}

// This member's share of a collective between two phases.
static void work(sp_comm *me, const sp_i_comm_group *group, int member, uint64_t phase)
{
    switch (call_at(group, member, phase)->kind) {
    case SP_I_BARRIER:
        return;
    case SP_I_ALL_REDUCE:
        all_reduce(me, group, member, phase);
        return;
    case SP_I_ALL_GATHER:
        all_gather(me, group, member, phase);
        return;
    case SP_I_REDUCE_SCATTER:
        reduce_scatter(me, group, member, phase);
        return;
    case SP_I_BROADCAST:
        broadcast(me, group, member, phase);
        return;
    }
    SP_UNREACHABLE("kind of collective");
}

// ---- Collectives with ranks in other processes ----

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

static const char *const kind_names[] = {"barrier", "all-reduce", "all-gather", "reduce-scatter",
                                         "broadcast"};

// The group of an id that `me` is a member of; otherwise the world fails and it is NULL.
static sp_i_comm_group *group_of(sp_comm *me, int group, int *member, sp_error *err)
{
    sp_comm_world *world = me->world;
    if (group < 0 || (size_t)group >= world->group_count) {
        sp_i_comm_fail(me, err, SP_ERR_USAGE, "there is no group %d", group);
        return NULL;
    }
    sp_i_comm_group *found = world->groups[group];
    *member = found->member_of[me->rank];
    if (*member < 0) {
        sp_i_comm_fail(me, err, SP_ERR_USAGE, "is not in group '%s'", found->name);
        return NULL;
    }
    return found;
}

static bool have_equal_parts(const sp_i_comm_call *a, const sp_i_comm_call *b, int size)
{
    for (int j = 0; j < size; j++) {
        if (part_count(a, j) != part_count(b, j)) {
            return false;
        }
    }
    return true;
}

static bool are_alike(const sp_i_comm_call *a, const sp_i_comm_call *b, int size)
{
    return a->kind == b->kind && a->type == b->type && a->op == b->op && a->root == b->root &&
           have_equal_parts(a, b, size);
}

// Every member compares its own call with those of all others, so whoever differs is found before
// anyone touches a buffer.
static sp_status check_calls(sp_comm *me, const sp_i_comm_group *group, int member, uint64_t phase,
                             sp_error *err)
{
    const sp_i_comm_call *mine = call_at(group, member, phase);
    for (int j = 0; j < group->size; j++) {
        const sp_i_comm_call *other = call_at(group, j, phase);
        if (!are_alike(mine, other, group->size)) {
            return sp_i_comm_fail(me, err, SP_ERR_INTERNAL,
                                  "%s in group '%s', but rank %d came with another %s, type, "
                                  "size or root",
                                  kind_names[mine->kind], group->name, group->ranks[j],
                                  kind_names[other->kind]);
        }
    }
    return SP_OK;
}

// `touching` is set before the look at `failed`. A member that leaves after a failure waits until
// nobody touches its buffers; who begins later sees the failure and does not.
static sp_status touch(sp_comm *me, sp_i_comm_group *group, int member, uint64_t phase,
                       sp_error *err)
{
    atomic_store(&group->members[member].touching, true);
    sp_status status = sp_comm_world_failure(me->world, err);
    if (status == SP_OK) {
        status = check_calls(me, group, member, phase, err);
    }
    if (status == SP_OK) {
        work(me, group, member, phase);
    }
    atomic_store(&group->members[member].touching, false);
    return status;
}

// Work between two phases is finite, and no member waits in it.
static void leave_failed(const sp_i_comm_group *group)
{
    for (int j = 0; j < group->size; j++) {
        while (atomic_load(&group->members[j].touching)) {
            sched_yield();
        }
    }
}

static bool is_valid(const sp_i_comm_group *group, const sp_i_comm_call *call)
{
    for (int j = 0; call->rows != NULL && j < group->size; j++) {
        if (call->rows[j] < 0) {
            return false;
        }
    }
    bool reduces = call->kind == SP_I_ALL_REDUCE || call->kind == SP_I_REDUCE_SCATTER;
    return call->count >= 0 && call->root >= 0 && call->root < group->size &&
           !(reduces && call->type == SP_ELEMENT_BYTE);
}

static sp_status collective(sp_comm *me, int group_id, const sp_i_comm_call *call, sp_error *err)
{
    const char *name = kind_names[call->kind];
    int member = -1;
    sp_i_comm_group *group = group_of(me, group_id, &member, err);
    SP_TRY(sp_comm_world_failure(me->world, group != NULL ? err : NULL));
    if (!is_valid(group, call)) {
        return sp_i_comm_fail(me, err, SP_ERR_USAGE,
                              "%s in group '%s': a size below 0, a root that is no member, or a "
                              "reduction of bytes",
                              name, group->name);
    }
    if (me->world->transport != NULL) {
        return call_transport(me->world->transport, group_id, call, err);
    }
    uint64_t phase = atomic_load(&group->members[member].entered) + 1;
    group->members[member].call[phase % 2] = *call;
    sp_status status = sp_i_comm_wait_group(me, group, member, name, err);
    if (call->kind == SP_I_BARRIER) {
        return status;
    }
    if (status == SP_OK) {
        status = touch(me, group, member, phase, err);
    }
    if (status == SP_OK) {
        status = sp_i_comm_wait_group(me, group, member, name, err);
    }
    if (status != SP_OK) {
        leave_failed(group);
    }
    return status;
}

sp_status sp_comm_barrier(sp_comm *me, int group, sp_error *err)
{
    sp_i_comm_call call = {.kind = SP_I_BARRIER};
    return collective(me, group, &call, err);
}

sp_status sp_comm_all_reduce(sp_comm *me, int group, sp_element type, sp_comm_op op, const void *in,
                             void *out, int64_t count, sp_error *err)
{
    sp_i_comm_call call = {
        .kind = SP_I_ALL_REDUCE, .type = type, .op = op, .count = count, .in = in, .out = out};
    return collective(me, group, &call, err);
}

sp_status sp_comm_all_gather(sp_comm *me, int group, sp_element type, const void *in, void *out,
                             const int64_t *rows, int64_t width, sp_error *err)
{
    sp_i_comm_call call = {
        .kind = SP_I_ALL_GATHER, .type = type, .count = width, .rows = rows, .in = in, .out = out};
    return collective(me, group, &call, err);
}

sp_status sp_comm_reduce_scatter(sp_comm *me, int group, sp_element type, sp_comm_op op,
                                 const void *in, void *out, const int64_t *rows, int64_t width,
                                 sp_error *err)
{
    sp_i_comm_call call = {.kind = SP_I_REDUCE_SCATTER,
                           .type = type,
                           .op = op,
                           .count = width,
                           .rows = rows,
                           .in = in,
                           .out = out};
    return collective(me, group, &call, err);
}

sp_status sp_comm_broadcast(sp_comm *me, int group, sp_element type, const void *in, void *out,
                            int64_t count, int root, sp_error *err)
{
    sp_i_comm_call call = {
        .kind = SP_I_BROADCAST, .type = type, .count = count, .root = root, .in = in, .out = out};
    return collective(me, group, &call, err);
}

// ---- Messages within a process ----

// The queue of a call of `me`; NULL with the status set.
static sp_i_comm_queue *find_queue(sp_comm *me, int from, int to, int tag, sp_status *status,
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
    return sp_i_comm_queue_find(world, from, to, tag);
}

// There is room.
static void put(sp_comm *me, sp_i_comm_queue *queue, const void *data, size_t bytes)
{
    uint64_t sent = atomic_load(&queue->sent);
    sp_i_comm_slot *slot = &queue->slot[sent % SP_I_COMM_SLOTS];
    if (bytes > slot->capacity) {
        sp_free(slot->data);
        slot->data = sp_malloc(bytes);
        slot->capacity = bytes;
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
}

// There is a message.
static sp_status take(sp_comm *me, sp_i_comm_queue *queue, void *data, size_t bytes, sp_error *err)
{
    uint64_t received = atomic_load(&queue->received);
    const sp_i_comm_slot *slot = &queue->slot[received % SP_I_COMM_SLOTS];
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
    return SP_OK;
}

sp_status sp_comm_send(sp_comm *me, int to, int tag, const void *data, size_t bytes, sp_error *err)
{
    sp_status status;
    sp_i_comm_queue *queue = find_queue(me, me->rank, to, tag, &status, err);
    if (queue == NULL) {
        return status;
    }
    sp_i_comm_wait wait = {.operation = "send", .queue = queue, .sending = true};
    status = sp_i_comm_wait_for(me, &wait, err);
    if (status == SP_OK) {
        put(me, queue, data, bytes);
    }
    return status;
}

sp_status sp_comm_receive(sp_comm *me, int from, int tag, void *data, size_t bytes, sp_error *err)
{
    sp_status status;
    sp_i_comm_queue *queue = find_queue(me, from, me->rank, tag, &status, err);
    if (queue == NULL) {
        return status;
    }
    sp_i_comm_wait wait = {.operation = "receive", .queue = queue};
    status = sp_i_comm_wait_for(me, &wait, err);
    return status == SP_OK ? take(me, queue, data, bytes, err) : status;
}
