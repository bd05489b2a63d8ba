// GPipe (Huang et al., arXiv 1811.06965, figure 2c): all forwards, then all backwards in reverse
// order. Bubble (p-1)(F+B); all m micro-batches in flight.
#include "sim/schedule/sliced.h"

void sp_i_schedule_gpipe(sp_i_schedule_job *job)
{
    sp_i_sliced order = sp_i_sliced_begin(job);
    for (int m = 0; m < job->microbatches; m++) {
        for (int s = 0; s < sp_i_slices_of(job, m); s++) {
            sp_i_sliced_forward(&order, (sp_i_unit){m, 0, s});
        }
    }
    sp_i_sliced_reverse(&order, 0);
    sp_i_sliced_emit(&order, 0, 0, INT_MAX);
}

// TeraPipe (Li et al., arXiv 2102.07988, section 3.2): the slices of a micro-batch follow each
// other through the pipeline as micro-batches do in GPipe, then everything runs backward in
// reverse. Forward of one micro-batch over K ranks: sum t_i + (K-1) max t_j; with equal slices the
// bubble is (p-1)(f+b) in times of a slice. All slices of all micro-batches are in flight.
void sp_i_schedule_terapipe(sp_i_schedule_job *job)
{
    sp_i_schedule_gpipe(job);
}
