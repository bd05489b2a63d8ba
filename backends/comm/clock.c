#include "backends/comm/clock.h"

#include "backends/comm/private.h"

int64_t sp_comm_clock(const sp_comm *me)
{
    return me->clock_ns;
}

void sp_comm_clock_add(sp_comm *me, int64_t ns)
{
    me->clock_ns += ns;
}

void sp_comm_clock_start(sp_comm *me, int64_t at_ns)
{
    sp_i_comm_clock_skip(me);
    me->clock_ns = at_ns;
}

int64_t sp_comm_clock_read(sp_comm *me)
{
    sp_i_comm_clock_advance(me);
    return me->clock_ns;
}

int64_t sp_comm_clock_own(sp_comm *me)
{
    sp_i_comm_clock_advance(me);
    return me->own_ns;
}

void sp_i_comm_clock_skip(sp_comm *me)
{
    sp_comm_world *world = me->world;
    if (world->clocked) {
        me->reading_ns = world->machine->ops->now_ns(world->machine);
    }
}

void sp_i_comm_clock_advance(sp_comm *me)
{
    int64_t before_ns = me->reading_ns;
    sp_i_comm_clock_skip(me);
    me->clock_ns += me->reading_ns - before_ns;
    me->own_ns += me->reading_ns - before_ns;
}

void sp_i_comm_clock_meet(sp_comm *me, int64_t other_ns)
{
    sp_i_comm_clock_advance(me);
    if (other_ns > me->clock_ns) {
        me->clock_ns = other_ns;
    }
}

void sp_i_comm_clock_enter(sp_comm *me, sp_i_comm_group *group, int member, uint64_t meeting)
{
    sp_i_comm_clock_advance(me);
    group->members[member].clock_ns[meeting % 2] = me->clock_ns;
}

void sp_i_comm_clock_leave(sp_comm *me, const sp_i_comm_group *group, uint64_t meeting)
{
    int64_t latest_ns = group->members[0].clock_ns[meeting % 2];
    for (int i = 1; i < group->size; i++) {
        int64_t entered_ns = group->members[i].clock_ns[meeting % 2];
        latest_ns = entered_ns > latest_ns ? entered_ns : latest_ns;
    }
    me->clock_ns = latest_ns;
}
