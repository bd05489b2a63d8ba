// 1F1B, PipeDream-flush (Narayanan et al., arXiv 2006.09503, section 2.2): rank r runs min(p-1-r,
// m) forwards, then one forward and one backward in turn, then the remaining backwards. Bubble
// (p-1)(F+B); min(p-r, m) micro-batches in flight.
#include "sim/schedule/schedule_family.h"

static bool schedule_rank(const sp_i_schedule_job *job, int pp_rank)
{
    int warmup = job->plan->layout.pp - 1 - pp_rank;
    if (warmup > job->microbatches) {
        warmup = job->microbatches;
    }
    bool ok = true;
    for (int k = 0; ok && k < warmup; k++) {
        ok = sp_i_schedule_add(job, pp_rank, SP_ACTION_F, 0, k, 0);
    }
    for (int k = 0; ok && k < job->microbatches; k++) {
        if (warmup + k < job->microbatches) {
            ok = sp_i_schedule_add(job, pp_rank, SP_ACTION_F, 0, warmup + k, 0);
        }
        ok = ok && sp_i_schedule_add(job, pp_rank, SP_ACTION_B, 0, k, 0);
    }
    return ok;
}

sp_status sp_i_schedule_1f1b(const sp_i_schedule_job *job, sp_error *err)
{
    (void)err;
    bool ok = true;
    for (int r = 0; ok && r < job->plan->layout.pp; r++) {
        ok = schedule_rank(job, r);
    }
    return ok ? SP_OK : SP_ERR_NO_MEMORY;
}
