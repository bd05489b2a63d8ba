// Links between pipeline ranks that are emulated: how long a hidden state or its gradient is under
// way. On the virtual clock the time is counted, on the wall clock the machine holds up the reader.
#include "backends/executor/run.h"

int64_t sp_i_exec_transfer_ns(const sp_i_exec_run *run, const sp_plan_place *from, int to)
{
    sp_action_kind kind = (sp_action_kind)from->action.kind;
    if (!run->options.emulated_links || from->pp == to) {
        return 0;
    }
    const sp_link_times links = sp_run_request_links(run->request);
    return sp_link_times_ns(&links, kind != SP_ACTION_F, (size_t)from->action.pack, from->pp, to,
                            sp_i_exec_layout(run)->pp);
}
