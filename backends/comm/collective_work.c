// A member's share of a collective: what it copies or reduces while the buffers of all members
// stand still. The shares of two members never write the same element, and none writes what another
// still reads.
#include "backends/comm/private.h"

// What the state that ranks share says.

const sp_i_comm_call *sp_i_comm_call_at(const sp_i_comm_group *group, int member, uint64_t phase)
{
    return &group->members[member].call[phase % 2];
}

bool sp_i_comm_is_over(const sp_i_comm_wait *wait)
{
    if (wait->group != NULL) {
        return atomic_load(&wait->group->arrivals) >= wait->phase * (uint64_t)wait->group->size;
    }
    if (wait->flag != NULL) {
        return atomic_load(&wait->flag->raised);
    }
    if (wait->queue == NULL) {
        return false;
    }
    uint64_t held = atomic_load(&wait->queue->sent) - atomic_load(&wait->queue->received);
    return wait->sending ? held < (uint64_t)wait->queue->slots : held > 0;
}

// Shares of an all-reduce end on whole cache lines of fp32, so that members do not write to the
// same one.
enum { SHARE_ELEMENTS = SP_I_CACHE_LINE / 4 };

int64_t sp_i_comm_part_count(const sp_i_comm_call *call, int member)
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
// out, or where that is NULL to the same elements of every member's out. Returns the bytes written.
static int64_t reduce(sp_comm *me, const sp_i_comm_group *group, uint64_t phase, int64_t begin,
                      int64_t count, char *out)
{
    const sp_i_comm_call *first = sp_i_comm_call_at(group, 0, phase);
    sp_runtime *runtime = me->world->runtime;
    int64_t element = sp_element_bytes(first->type);
    int outs = out != NULL ? 1 : group->size;
    for (int j = 0; j < group->size; j++) {
        const sp_i_comm_call *call = sp_i_comm_call_at(group, j, phase);
        me->inputs[j] = call->in + begin * element;
        me->outputs[j] = out != NULL ? out : call->out + begin * element;
    }
    if (count > 0) {
        runtime->ops->reduce(runtime, first->type, first->op == SP_COMM_MAX, count, me->inputs,
                             group->size, me->outputs, outs);
    }
    return count * element * outs;
}

static int64_t all_reduce(sp_comm *me, const sp_i_comm_group *group, int member, uint64_t phase)
{
    int64_t count = sp_i_comm_call_at(group, member, phase)->count;
    int64_t units = (count + SHARE_ELEMENTS - 1) / SHARE_ELEMENTS;
    int64_t each = units / group->size;
    int64_t extra = units % group->size;
    int64_t first = each * member + (member < extra ? member : extra);
    int64_t begin = first * SHARE_ELEMENTS;
    int64_t end = begin + (each + (member < extra ? 1 : 0)) * SHARE_ELEMENTS;
    end = end < count ? end : count;
    return begin < end ? reduce(me, group, phase, begin, end - begin, NULL) : 0;
}

static int64_t reduce_scatter(sp_comm *me, const sp_i_comm_group *group, int member, uint64_t phase)
{
    const sp_i_comm_call *mine = sp_i_comm_call_at(group, member, phase);
    return reduce(me, group, phase, part_offset(mine, member), sp_i_comm_part_count(mine, member),
                  mine->out);
}

// Returns the bytes written.
static int64_t copy(sp_comm *me, char *to, const char *from, int64_t bytes)
{
    if (to == from || bytes == 0) {
        return 0;
    }
    sp_runtime *runtime = me->world->runtime;
    runtime->ops->copy(runtime, to, from, bytes);
    return bytes;
}

static int64_t all_gather(sp_comm *me, const sp_i_comm_group *group, int member, uint64_t phase)
{
    const sp_i_comm_call *mine = sp_i_comm_call_at(group, member, phase);
    int64_t element = sp_element_bytes(mine->type);
    int64_t offset = 0;
    int64_t written = 0;
    for (int j = 0; j < group->size; j++) {
        int64_t bytes = sp_i_comm_part_count(mine, j) * element;
        written += copy(me, mine->out + offset, sp_i_comm_call_at(group, j, phase)->in, bytes);
        offset += bytes;
    }
    return written;
}

static int64_t broadcast(sp_comm *me, const sp_i_comm_group *group, int member, uint64_t phase)
{
    const sp_i_comm_call *mine = sp_i_comm_call_at(group, member, phase);
    return copy(me, mine->out, sp_i_comm_call_at(group, mine->root, phase)->in,
                mine->count * sp_element_bytes(mine->type));
}

int64_t sp_i_comm_work(sp_comm *me, const sp_i_comm_group *group, int member, uint64_t phase)
{
    switch (sp_i_comm_call_at(group, member, phase)->kind) {
    case SP_I_BARRIER:
        return 0;
    case SP_I_ALL_REDUCE:
        return all_reduce(me, group, member, phase);
    case SP_I_ALL_GATHER:
        return all_gather(me, group, member, phase);
    case SP_I_REDUCE_SCATTER:
        return reduce_scatter(me, group, member, phase);
    case SP_I_BROADCAST:
        return broadcast(me, group, member, phase);
    }
    SP_UNREACHABLE("kind of collective");
}
