// GPipe (Huang et al., arXiv 1811.06965, figure 2c): all forwards, then all backwards in reverse
// order. Bubble (p-1)(F+B); all m micro-batches in flight.
#include "sim/schedule/schedule_family.h"

sp_status sp_i_schedule_gpipe(const sp_i_schedule_job *job, sp_error *err)
{
    (void)err;
    bool ok = true;
    for (int r = 0; r < job->plan->layout.pp; r++) {
        for (int k = 0; ok && k < job->microbatches; k++) {
            ok = sp_i_schedule_add(job, r, SP_ACTION_F, 0, k, 0);
        }
        for (int k = job->microbatches; ok && k > 0; k--) {
            ok = sp_i_schedule_add(job, r, SP_ACTION_B, 0, k - 1, 0);
        }
    }
    return ok ? SP_OK : SP_ERR_NO_MEMORY;
}
