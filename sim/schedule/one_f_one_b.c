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
