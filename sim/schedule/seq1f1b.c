// Seq1F1B (Sun et al., arXiv 2406.03488, section 3; thunlp/Seq1F1B, schedules.py): 1F1B over
// slices. Micro-batches run backward in order, the slices of each last first. Rank r runs p-2-r+n
// forwards first; bubble (p-1)(F+B)/n, at most n+p-1-r slices in flight.
//
// Interleaved: chunk after chunk in groups of p slices, (v-1)p + 2(p-1-r) + n-1 forwards first.
// That order finds the last slice of each micro-batch where n divides p; otherwise a group is here
// as many whole micro-batches as have p slices.
#include "sim/schedule/sliced.h"

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
