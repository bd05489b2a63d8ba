#include "backends/comm/collective.h"

#include <sched.h>

#include "backends/comm/private.h"

const char *const sp_i_comm_kind_names[] = {"barrier", "all-reduce", "all-gather", "reduce-scatter",
                                            "broadcast"};

sp_i_comm_group *sp_i_comm_group_of(sp_comm *me, int group, int *member, sp_error *err)
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
        if (sp_i_comm_part_count(a, j) != sp_i_comm_part_count(b, j)) {
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
    const sp_i_comm_call *mine = sp_i_comm_call_at(group, member, phase);
    for (int j = 0; j < group->size; j++) {
        const sp_i_comm_call *other = sp_i_comm_call_at(group, j, phase);
        if (!are_alike(mine, other, group->size)) {
            return sp_i_comm_fail(me, err, SP_ERR_INTERNAL,
                                  "%s in group '%s', but rank %d came with another %s, type, "
                                  "size or root",
                                  sp_i_comm_kind_names[mine->kind], group->name, group->ranks[j],
                                  sp_i_comm_kind_names[other->kind]);
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
        me->counts.collective_bytes += sp_i_comm_work(me, group, member, phase);
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
    const char *name = sp_i_comm_kind_names[call->kind];
    int member;
    sp_i_comm_group *group = sp_i_comm_group_of(me, group_id, &member, err);
    sp_status status = sp_comm_world_failure(me->world, group != NULL ? err : NULL);
    if (status != SP_OK) {
        return status;
    }
    if (!is_valid(group, call)) {
        return sp_i_comm_fail(me, err, SP_ERR_USAGE,
                              "%s in group '%s': a size below 0, a root that is no member, or a "
                              "reduction of bytes",
                              name, group->name);
    }
    if (me->world->transport != NULL) {
        return sp_i_comm_remote_collective(me, group_id, group, call, err);
    }
    uint64_t phase = atomic_load(&group->members[member].entered) + 1;
    group->members[member].call[phase % 2] = *call;
    me->counts.collectives++;
    status = sp_i_comm_wait_group(me, group, member, name, err);
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
