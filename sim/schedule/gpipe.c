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
