#include "backends/executor/links.h"

#include "backends/comm/comm.h"
#include "sim/base/alloc.h"

void sp_i_exec_links_fini(sp_i_exec_links *links)
{
    sp_i_free(links->exchanges);
}

uint64_t sp_i_exec_exchange_begin(const sp_i_exec_links *links)
{
    return links->stamps ? links->machine->ops->stamp(links->machine)
                         : (uint64_t)sp_comm_clock_own(links->me);
}

bool sp_i_exec_exchange_end(sp_i_exec_links *links, sp_i_exec_exchange_kind kind, uint64_t begin,
                            sp_status status)
{
    uint64_t end = sp_i_exec_exchange_begin(links);
    links->status = status;
    if (status == SP_OK && !sp_i_reserve((void **)&links->exchanges, &links->exchange_capacity,
                                         links->exchange_count + 1, sizeof *links->exchanges)) {
        links->status = sp_error_no_memory(&links->err, "the times of exchanges");
    }
    if (links->status != SP_OK) {
        return false;
    }
    links->exchanges[links->exchange_count++] = (sp_i_exec_exchange){kind, begin, end};
    return true;
}
