// SlimPipe (arXiv 2504.14519; kwai/Megatron-Kwai): a micro-batch of n slices runs in groups of g
// slices, inside a group chunk after chunk, and backward in the exact reverse of its forward order.
// Rank r runs a forward while fewer than K_r = nv + 2(p-1-r) units are in flight, otherwise a
// backward. With balanced slices the bubble is (p-1)(f+b) in times of a unit, (p-1)/(nvm+p-1) of
// the step. The runtime of the authors asks for at least K_r units; fewer (one micro-batch) run
// here all forward, then all backward.
#include <limits.h>

#include "sim/schedule/sliced.h"

// The smallest divisor of the slices that is at least p, so that a group comes back to rank 0 just
// when its next chunk is due; 0: there is none. One chunk needs no groups.
static int group_size(const sp_i_schedule_job *job, int slices)
{
    if (job->plan->layout.chunks == 1) {
        return slices;
    }
    int group = job->plan->layout.pp;
    while (group <= slices && slices % group != 0) {
        group++;
    }
    return group <= slices ? group : 0;
}

static void order_microbatch(const sp_i_schedule_job *job, int m, int group, sp_i_sliced *order)
{
    size_t begin = order->forwards;
    for (int s0 = 0; s0 < sp_i_slices_of(job, m); s0 += group) {
        for (int c = 0; c < job->plan->layout.chunks; c++) {
            for (int s = s0; s < s0 + group; s++) {
                sp_i_sliced_forward(order, job, (sp_i_unit){m, c, s});
            }
        }
    }
    for (size_t k = order->forwards; k > begin; k--) {
        sp_i_sliced_backward(order, order->forward[k - 1]);
    }
}

sp_status sp_i_schedule_slimpipe(const sp_i_schedule_job *job, sp_error *err)
{
    sp_i_sliced order;
    int pp = job->plan->layout.pp;
    if (!sp_i_sliced_init(&order, job)) {
        return SP_ERR_NO_MEMORY;
    }
    sp_status status = SP_OK;
    for (int m = 0; status == SP_OK && m < job->microbatches; m++) {
        int group = group_size(job, sp_i_slices_of(job, m));
        if (group == 0) {
            status =
                sp_error_in(err, SP_ERR_CONTENT, job->source, "schedule.slices",
                            "\"slimpipe\" with several chunks needs at least as many slices as "
                            "pipeline ranks (%d), a micro-batch has %d",
                            pp, sp_i_slices_of(job, m));
        } else {
            order_microbatch(job, m, group, &order);
        }
    }
    for (int r = 0; status == SP_OK && r < pp; r++) {
        if (!sp_i_sliced_rank(&order, job, r, 2 * (pp - 1 - r), INT_MAX)) {
            status = SP_ERR_NO_MEMORY;
        }
    }
    sp_i_sliced_fini(&order);
    return status;
}
