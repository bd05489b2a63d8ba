// 1F1B, PipeDream-flush (Narayanan et al., arXiv 2006.09503, section 2.2): rank r runs min(p-1-r,
// m) forwards, then one forward and one backward in turn, then the remaining backwards. Bubble
// (p-1)(F+B); min(p-r, m) micro-batches in flight.
#include "sim/schedule/sliced.h"

void sp_i_schedule_1f1b(sp_i_schedule_job *job)
{
    sp_i_sliced order = sp_i_sliced_begin(job);
    sp_i_sliced_group(&order, 0, job->microbatches);
    sp_i_sliced_emit(&order, 1, 0, INT_MAX);
}

// ChunkFlow (Yuan et al., arXiv 2503.02356, section 4): the chunks of a long sample are the slices
// of its micro-batch. Of N chunks the last K keep their activations and run backward first, in
// reverse; each earlier one, descending because the gradients of its keys and values come from the
// later ones, runs forward again (R) just before its backward. Over ranks this is 1F1B in chunks
// that waits for all chunks of a micro-batch before its first backward.
void sp_i_schedule_chunkflow(sp_i_schedule_job *job)
{
    sp_i_sliced order = sp_i_sliced_begin(job);
    sp_i_sliced_group(&order, 0, job->microbatches);
    sp_i_sliced_emit(&order, 1, 0, job->spec->retained > 0 ? job->spec->retained : 1);
}

static int slices_between(const sp_i_schedule_job *job, int begin, int end)
{
    return job->first[end] - job->first[begin];
}

// A rest of fewer than p slices would leave bubbles of its own: it joins the last group.
static int group_end(const sp_i_schedule_job *job, int begin)
{
    int pp = job->pp;
    int end = begin + 1;
    while (end < job->microbatches && slices_between(job, begin, end) < pp) {
        end++;
    }
    return slices_between(job, end, job->microbatches) < pp ? job->microbatches : end;
}

// Seq1F1B (Sun et al., arXiv 2406.03488, section 3; thunlp/Seq1F1B, schedules.py): 1F1B over
// slices. Micro-batches run backward in order, the slices of each last first. Rank r runs p-2-r+n
// forwards first; bubble (p-1)(F+B)/n, at most n+p-1-r slices in flight.
//
// Interleaved: chunk after chunk in groups of p slices, (v-1)p + 2(p-1-r) + n-1 forwards first.
// That order finds the last slice of each micro-batch where n divides p; otherwise a group is here
// as many whole micro-batches as have p slices.
void sp_i_schedule_seq1f1b(sp_i_schedule_job *job)
{
    sp_i_sliced order = sp_i_sliced_begin(job);
    for (int m = 0; m < job->microbatches;) {
        int end = group_end(job, m);
        sp_i_sliced_group(&order, m, end);
        m = end;
    }
    sp_i_sliced_emit(&order, job->plan->layout.chunks == 1 ? 1 : 2, 0, INT_MAX);
}
