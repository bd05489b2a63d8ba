// ChunkFlow (Yuan et al., arXiv 2503.02356, section 4): the chunks of a long sample are the slices
// of its micro-batch. Of N chunks the last K keep their activations and run backward first, in
// reverse; each earlier one, descending because the gradients of its keys and values come from the
// later ones, runs forward again (R) just before its backward. Over ranks this is 1F1B in chunks
// that waits for all chunks of a micro-batch before its first backward.
#include "sim/schedule/sliced.h"

sp_status sp_i_schedule_chunkflow(const sp_i_schedule_job *job, sp_error *err)
{
    (void)err;
    sp_i_sliced order;
    int pp = job->plan->layout.pp;
    int retained = job->spec->retained > 0 ? job->spec->retained : 1;
    if (!sp_i_sliced_init(&order, job)) {
        return SP_ERR_NO_MEMORY;
    }
    for (int m = 0; m < job->microbatches; m++) {
        int chunks = sp_i_slices_of(job, m);
        for (int s = 0; s < chunks; s++) {
            sp_i_sliced_forward(&order, job, (sp_i_unit){m, 0, s});
            sp_i_sliced_backward(&order, (sp_i_unit){m, 0, chunks - 1 - s});
        }
    }
    bool ok = true;
    for (int r = 0; ok && r < pp; r++) {
        ok = sp_i_sliced_rank(&order, job, r, pp - 1 - r, retained);
    }
    sp_i_sliced_fini(&order);
    return ok ? SP_OK : SP_ERR_NO_MEMORY;
}
