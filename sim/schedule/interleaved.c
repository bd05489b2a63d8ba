// Interleaved 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2). The units (micro-batch,
// chunk) run in groups of g >= p micro-batches: inside a group chunk 0 of all g, then chunk 1, ...;
// backwards take the same list with the chunks mirrored. Rank r runs 2(p-1-r) + (v-1)g forwards
// first. Bubble (p-1)(F+B)/v for g = p; (v-1)g + 2(p-1-r) + 1 chunks in flight.
#include "sim/schedule/sliced.h"

// Where group `index` of `groups` begins. With a given size the last group takes the remainder;
// without one the micro-batches are spread evenly over floor(m/p) groups, so that no group falls
// below p (fewer than p micro-batches make one group).
static int group_begin(const sp_i_schedule_job *job, int groups, int index)
{
    if (job->spec->group > 0) {
        int begin = index * job->spec->group;
        return begin < job->microbatches ? begin : job->microbatches;
    }
    return (int)((int64_t)job->microbatches * index / groups);
}

// Megatron-LM asks the same of its groups (microbatch_group_size_per_virtual_pipeline_stage).
static sp_status check_group(const sp_i_schedule_job *job)
{
    int group = job->spec->group;
    int rest = group > 0 ? job->microbatches % group : 0;
    if (group == 0 || (group >= job->pp && (rest == 0 || rest >= job->pp))) {
        return SP_OK;
    }
    return sp_error_in(job->err, SP_ERR_CONTENT, job->source, "schedule.group",
                       "%d micro-batches in groups of %d leave a group smaller than the %d "
                       "pipeline ranks",
                       job->microbatches, group, job->pp);
}

void sp_i_schedule_interleaved(sp_i_schedule_job *job)
{
    int m = job->microbatches;
    int given = job->spec->group;
    int groups = given > 0 ? (m + given - 1) / given : m >= job->pp ? m / job->pp : 1;
    int chunks = job->plan->layout.chunks;
    if (job->pp == 1 && chunks > 1) {
        job->status =
            sp_error_in(job->err, SP_ERR_CONTENT, job->source, "schedule.kind",
                        "\"interleaved\" with several chunks needs parallel.pp of at least 2");
    } else {
        job->status = check_group(job);
    }
    if (job->status != SP_OK) {
        return;
    }
    sp_i_sliced order = sp_i_sliced_begin(job);
    int largest = 0;
    for (int g = 0; g < groups; g++) {
        int begin = group_begin(job, groups, g);
        int end = group_begin(job, groups, g + 1);
        largest = end - begin > largest ? end - begin : largest;
        sp_i_sliced_group(&order, begin, end);
    }
    sp_i_sliced_emit(&order, 2, (chunks - 1) * (int64_t)largest, INT_MAX);
}
