#include "backends/comm/flag.h"

#include <stdio.h>

#include "backends/comm/private.h"

void sp_comm_flag_raise(sp_comm *me, int waiting_rank, sp_comm_flag *flag)
{
    sp_comm_flag_raise_later(me, waiting_rank, flag, 0);
}

void sp_comm_flag_raise_later(sp_comm *me, int waiting_rank, sp_comm_flag *flag, int64_t ns)
{
    SP_ASSERT(waiting_rank >= 0 && waiting_rank < me->world->rank_count);
    SP_ASSERT(!atomic_load(&flag->raised));
    sp_machine *machine = me->world->machine;
    sp_i_comm_clock_advance(me);
    flag->raised_ns = me->clock_ns + ns;
    flag->fence = ns > 0 ? machine->ops->mark_later(machine, ns) : machine->ops->mark(machine);
    atomic_store(&flag->raised, true);
    sp_i_comm_wake(me->world, waiting_rank);
    sp_i_comm_clock_skip(me);
}

sp_status sp_comm_flag_wait(sp_comm *me, const sp_comm_flag *flag, int raiser, const char *what,
                            sp_error *err)
{
    sp_i_comm_wait wait = {.operation = "wait", .flag = flag, .raiser = raiser};
    SP_ASSERT(raiser >= 0 && raiser < me->world->rank_count);
    sp_status status = sp_i_comm_check(me->world, err);
    if (status != SP_OK) {
        return status;
    }
    snprintf(wait.what, sizeof wait.what, "%s", what);
    status = sp_i_comm_wait_for(me, &wait, err);
    if (status == SP_OK) {
        sp_machine *machine = me->world->machine;
        machine->ops->wait(machine, flag->fence);
        sp_i_comm_clock_meet(me, flag->raised_ns);
    }
    return status;
}

void sp_comm_flag_clear(sp_comm_flag *flag)
{
    atomic_store(&flag->raised, false);
}
