// ZB-H1 and ZB-H2 (Zero Bubble, arXiv 2401.10241, sections 2.1 and 2.2). Longest stage's bubble for
// F, B (input gradient) and W of similar size: (p-1)(F+B-W) and (p-1)(F+B-2W). With M_B held for B
// and M_W for W rank r holds (p-r)M_B + r M_W and (2p-1-2r)M_B + 2r M_W at most (section 2.3).
#include "sim/schedule/zb_clock.h"

static void schedule_static(sp_i_schedule_job *job, int steepness)
{
    sp_i_zb_order order = sp_i_zb_order_new(&job->work, job->pp, job->microbatches);
    if (!job->work.failed) {
        sp_i_zb_order_static(&order, steepness);
        sp_i_zb_order_emit(&order, job);
    }
}

void sp_i_schedule_zb_h1(sp_i_schedule_job *job)
{
    schedule_static(job, 1);
}

void sp_i_schedule_zb_h2(sp_i_schedule_job *job)
{
    schedule_static(job, 2);
}
