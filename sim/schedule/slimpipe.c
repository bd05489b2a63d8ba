// SlimPipe (arXiv 2504.14519; kwai/Megatron-Kwai): a micro-batch of n slices runs in groups of g
// slices, inside a group chunk after chunk, and backward in the exact reverse of its forward order.
// Rank r runs a forward while fewer than K_r = nv + 2(p-1-r) units are in flight, otherwise a
// backward. With balanced slices the bubble is (p-1)(f+b) in times of a unit, (p-1)/(nvm+p-1) of
// the step. The runtime of the authors asks for at least K_r units; fewer (one micro-batch) run
// here all forward, then all backward.
#include "sim/schedule/sliced.h"

// The smallest divisor of the slices that is at least p, so that a group comes back to rank 0 just
// when its next chunk is due; 0: there is none. One chunk needs no groups.
static int group_size(const sp_i_schedule_job *job, int slices)
{
    if (job->plan->layout.chunks == 1) {
        return slices;
    }
    int group = job->pp;
    while (group <= slices && slices % group != 0) {
        group++;
    }
    return group <= slices ? group : 0;
}

static void order_microbatch(sp_i_sliced *order, int m, int group)
{
    size_t begin = order->forwards;
    for (int s0 = 0; s0 < sp_i_slices_of(order->job, m); s0 += group) {
        for (int c = 0; c < order->job->plan->layout.chunks; c++) {
            for (int s = s0; s < s0 + group; s++) {
                sp_i_sliced_forward(order, (sp_i_unit){m, c, s});
            }
        }
    }
    sp_i_sliced_reverse(order, begin);
}

void sp_i_schedule_slimpipe(sp_i_schedule_job *job)
{
    sp_i_sliced order = sp_i_sliced_begin(job);
    for (int m = 0; m < job->microbatches; m++) {
        int slices = sp_i_slices_of(job, m);
        int group = group_size(job, slices);
        if (group == 0) {
            job->status =
                sp_error_in(job->err, SP_ERR_CONTENT, job->source, "schedule.slices",
                            "\"slimpipe\" with several chunks needs at least as many slices as "
                            "pipeline ranks (%d), a micro-batch has %d",
                            job->pp, slices);
            return;
        }
        order_microbatch(&order, m, group);
    }
    sp_i_sliced_emit(&order, 2, 0, INT_MAX);
}
