// TeraPipe (Li et al., arXiv 2102.07988, section 3.2): the slices of a micro-batch follow each
// other through the pipeline as micro-batches do in GPipe, then everything runs backward in
// reverse. Forward of one micro-batch over K ranks: sum t_i + (K-1) max t_j; with equal slices the
// bubble is (p-1)(f+b) in times of a slice. All slices of all micro-batches are in flight.
#include "sim/schedule/schedule_family.h"

static bool schedule_rank(const sp_i_schedule_job *job, int pp_rank)
{
    bool ok = true;
    for (int m = 0; m < job->microbatches; m++) {
        for (int s = 0; ok && s < sp_i_slices_of(job, m); s++) {
            ok = sp_i_schedule_add(job, pp_rank, SP_ACTION_F, 0, m, s);
        }
    }
    for (int m = job->microbatches; m > 0; m--) {
        for (int s = sp_i_slices_of(job, m - 1); ok && s > 0; s--) {
            ok = sp_i_schedule_add(job, pp_rank, SP_ACTION_B, 0, m - 1, s - 1);
        }
    }
    return ok;
}

sp_status sp_i_schedule_terapipe(const sp_i_schedule_job *job, sp_error *err)
{
    (void)err;
    bool ok = true;
    for (int r = 0; ok && r < job->plan->layout.pp; r++) {
        ok = schedule_rank(job, r);
    }
    return ok ? SP_OK : SP_ERR_NO_MEMORY;
}
