// Seq1F1B (Sun et al., arXiv 2406.03488, section 3; thunlp/Seq1F1B, schedules.py): 1F1B over
// slices. Micro-batches run backward in order, the slices of each last first. Rank r runs p-2-r+n
// forwards first; bubble (p-1)(F+B)/n, at most n+p-1-r slices in flight.
//
// Interleaved: chunk after chunk in groups of p slices, (v-1)p + 2(p-1-r) + n-1 forwards first.
// That order finds the last slice of each micro-batch where n divides p; otherwise a group is here
// as many whole micro-batches as have p slices.
#include <limits.h>

#include "sim/schedule/sliced.h"

static int slices_between(const sp_i_schedule_job *job, int begin, int end)
{
    return job->first[end] - job->first[begin];
}

// A rest of fewer than p slices would leave bubbles of its own: it joins the last group.
static int group_end(const sp_i_schedule_job *job, int begin)
{
    int pp = job->plan->layout.pp;
    int end = begin + 1;
    while (end < job->microbatches && slices_between(job, begin, end) < pp) {
        end++;
    }
    return slices_between(job, end, job->microbatches) < pp ? job->microbatches : end;
}

static void order_group(const sp_i_schedule_job *job, int begin, int end, sp_i_sliced *order)
{
    int chunks = job->plan->layout.chunks;
    for (int c = 0; c < chunks; c++) {
        for (int m = begin; m < end; m++) {
            for (int s = 0; s < sp_i_slices_of(job, m); s++) {
                sp_i_sliced_forward(order, job, (sp_i_unit){m, c, s});
                // The backward list has the same shape with chunks and slices mirrored.
                sp_i_sliced_backward(
                    order, (sp_i_unit){m, chunks - 1 - c, sp_i_slices_of(job, m) - 1 - s});
            }
        }
    }
}

sp_status sp_i_schedule_seq1f1b(const sp_i_schedule_job *job, sp_error *err)
{
    (void)err;
    sp_i_sliced order;
    int pp = job->plan->layout.pp;
    int slope = job->plan->layout.chunks == 1 ? 1 : 2;
    if (!sp_i_sliced_init(&order, job)) {
        return SP_ERR_NO_MEMORY;
    }
    for (int m = 0; m < job->microbatches;) {
        int end = group_end(job, m);
        order_group(job, m, end, &order);
        m = end;
    }
    bool ok = true;
    for (int r = 0; ok && r < pp; r++) {
        ok = sp_i_sliced_rank(&order, job, r, slope * (pp - 1 - r), INT_MAX);
    }
    sp_i_sliced_fini(&order);
    return ok ? SP_OK : SP_ERR_NO_MEMORY;
}
