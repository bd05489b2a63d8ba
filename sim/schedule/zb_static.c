// ZB-H1 and ZB-H2 (Zero Bubble, arXiv 2401.10241, sections 2.1 and 2.2). Longest stage's bubble for
// F, B (input gradient) and W of similar size: (p-1)(F+B-W) and (p-1)(F+B-2W). With M_B held for B
// and M_W for W rank r holds (p-r)M_B + r M_W and (2p-1-2r)M_B + 2r M_W at most (section 2.3).
#include "sim/schedule/zb_clock.h"

static sp_status schedule_static(const sp_i_schedule_job *job, int steepness)
{
    sp_i_zb_order order;
    if (!sp_i_zb_order_init(&order, job->plan->layout.pp, job->microbatches)) {
        return SP_ERR_NO_MEMORY;
    }
    sp_i_zb_order_static(&order, steepness);
    bool ok = sp_i_zb_order_emit(&order, job);
    sp_i_zb_order_fini(&order);
    return ok ? SP_OK : SP_ERR_NO_MEMORY;
}

sp_status sp_i_schedule_zb_h1(const sp_i_schedule_job *job, sp_error *err)
{
    (void)err;
    return schedule_static(job, 1);
}

sp_status sp_i_schedule_zb_h2(const sp_i_schedule_job *job, sp_error *err)
{
    (void)err;
    return schedule_static(job, 2);
}
