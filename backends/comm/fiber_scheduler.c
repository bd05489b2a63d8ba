// Ranks of a world that compute one at a time: fibers of one thread. One goes on until it waits or
// ends; then the next one does of those that may, in the order in which they came to be so.
#include "backends/comm/private.h"
#include "sim/base/alloc.h"

sp_status sp_i_comm_turns_init(sp_comm_world *world, int ranks, sp_error *err)
{
    world->turns.queue = sp_i_calloc((size_t)ranks, sizeof *world->turns.queue);
    return world->turns.queue != NULL ? SP_OK : sp_error_no_memory(err, "a world of ranks");
}

void sp_i_comm_turns_fini(sp_comm_world *world)
{
    for (int rank = 0; rank < world->rank_count; rank++) {
        sp_i_fiber_free(world->ranks[rank].fiber);
    }
    sp_i_free(world->turns.queue);
}

void sp_i_comm_turn_ask(sp_comm *me)
{
    sp_i_comm_turns *turns = &me->world->turns;
    if (!me->queued) {
        me->queued = true;
        turns->queue[(turns->first + turns->waiting++) % me->world->rank_count] = me;
    }
}

static sp_comm *next_of(sp_comm_world *world)
{
    sp_i_comm_turns *turns = &world->turns;
    if (turns->waiting == 0) {
        return NULL;
    }
    sp_comm *next = turns->queue[turns->first];
    turns->first = (turns->first + 1) % world->rank_count;
    turns->waiting--;
    next->queued = false;
    return next;
}

void sp_i_comm_turn_leave(sp_comm *me)
{
    sp_machine *machine = me->world->machine;
    sp_i_fiber_park(me->fiber);
    machine->ops->enter(machine, me->rank);
}

void sp_i_comm_turn_pass(sp_comm *me)
{
    if (!me->world->one_at_a_time) {
        return;
    }
    sp_i_comm_clock_advance(me);
    if (me->world->turns.waiting > 0) {
        sp_i_comm_turn_ask(me);
        sp_i_comm_turn_leave(me);
    }
    sp_i_comm_clock_skip(me);
}

sp_status sp_i_comm_turn_make(sp_comm *me, sp_error *err)
{
    if (me->fiber == NULL) {
        me->fiber = sp_i_fiber_new();
    }
    return me->fiber != NULL ? SP_OK : sp_error_no_memory(err, "a rank's stack");
}

void sp_i_comm_turn_start(sp_comm *me, void (*main)(void *data), void *data)
{
    sp_i_fiber_start(me->fiber, main, data);
    sp_i_comm_turn_ask(me);
}

// Where nobody may go on, a failure has ended all waiting.
static void ask_for_all(sp_comm_world *world)
{
    SP_ASSERT(atomic_load(&world->failed));
    for (int rank = 0; rank < world->rank_count; rank++) {
        if (!world->ranks[rank].ended) {
            sp_i_comm_turn_ask(&world->ranks[rank]);
        }
    }
}

void sp_i_comm_turns_run(sp_comm_world *world, int started)
{
    while (started > 0) {
        sp_comm *next = next_of(world);
        if (next == NULL) {
            ask_for_all(world);
        } else if (!sp_i_fiber_resume(next->fiber)) {
            started--;
        }
    }
}
