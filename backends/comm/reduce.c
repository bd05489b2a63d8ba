// Sums and maxima of the members' elements: what the machine reduces, and where to.
#include "backends/comm/private.h"

int64_t sp_i_comm_reduce(sp_comm *me, const sp_i_comm_group *group, uint64_t meeting, int64_t begin,
                         int64_t count, char *out)
{
    const sp_i_comm_call *first = sp_i_comm_call_at(group, 0, meeting);
    sp_machine *machine = me->world->machine;
    int64_t element = sp_element_bytes(first->type);
    int outs = out != NULL ? 1 : group->size;
    for (int j = 0; j < group->size; j++) {
        const sp_i_comm_call *call = sp_i_comm_call_at(group, j, meeting);
        me->inputs[j] = call->in + begin * element;
        me->outputs[j] = out != NULL ? out : call->out + begin * element;
    }
    if (count > 0) {
        machine->ops->reduce(machine, first->type, first->op == SP_COMM_MAX, count, me->inputs,
                             group->size, me->outputs, outs);
    }
    return count * element * outs;
}
