// What the state that ranks share says.
#include "backends/comm/private.h"

const sp_i_comm_call *sp_i_comm_call_at(const sp_i_comm_group *group, int member, uint64_t meeting)
{
    return &group->members[member].call[meeting % 2];
}

bool sp_i_comm_is_over(const sp_i_comm_wait *wait)
{
    if (wait->group != NULL) {
        return atomic_load(&wait->group->arrivals) >= wait->meeting * (uint64_t)wait->group->size;
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
