// ChunkFlow (Yuan et al., arXiv 2503.02356, section 4): the chunks of a long sample are the slices
// of its micro-batch. Of N chunks the last K keep their activations and run backward first, in
// reverse; each earlier one, descending because the gradients of its keys and values come from the
// later ones, runs forward again (R) just before its backward. Over ranks this is 1F1B in chunks
// that waits for all chunks of a micro-batch before its first backward.
#include "sim/schedule/sliced.h"

void sp_i_schedule_chunkflow(sp_i_schedule_job *job)
{
    sp_i_sliced order = sp_i_sliced_begin(job);
    sp_i_sliced_group(&order, 0, job->microbatches);
    sp_i_sliced_emit(&order, 1, 0, job->spec->retained > 0 ? job->spec->retained : 1);
}
