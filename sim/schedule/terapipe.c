// TeraPipe (Li et al., arXiv 2102.07988, section 3.2): the slices of a micro-batch follow each
// other through the pipeline as micro-batches do in GPipe, then everything runs backward in
// reverse. Forward of one micro-batch over K ranks: sum t_i + (K-1) max t_j; with equal slices the
// bubble is (p-1)(f+b) in times of a slice. All slices of all micro-batches are in flight.
#include "sim/schedule/schedule_family.h"

void sp_i_schedule_terapipe(sp_i_schedule_job *job)
{
    sp_i_schedule_gpipe(job);
}
