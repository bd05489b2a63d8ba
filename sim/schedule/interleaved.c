// Interleaved 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2). The units (micro-batch,
// chunk) run in groups of g >= p micro-batches: inside a group chunk 0 of all g, then chunk 1, ...;
// backwards take the same list with the chunks mirrored. Rank r runs 2(p-1-r) + (v-1)g forwards
// first. Bubble (p-1)(F+B)/v for g = p; (v-1)g + 2(p-1-r) + 1 chunks in flight.
#include <stdio.h>

#include "sim/schedule/sliced.h"

// Sizes of groups that are spread evenly differ by one. The last of groups of a given size takes
// the remainder.
static int group_begin(const sp_i_schedule_job *job, int size, int index)
{
    int m = job->microbatches;
    if (size == SP_GROUP_EVEN) {
        int groups = m >= job->pp ? m / job->pp : 1;
        return (int)((int64_t)m * index / groups);
    }
    return index <= m / size ? index * size : m;
}

// A group smaller than the pipeline would wait for its own backwards, so Megatron-LM asks for at
// least p micro-batches in each, the last one too (microbatch_group_size_per_vp_stage; p by
// default).
static bool fits(int pp, int m, int size)
{
    return m == 0 || (size >= pp && size <= m && (m % size == 0 || m % size >= pp));
}

// The smallest size of groups that all data-parallel ranks can have; 0 where there is none.
// O(micro- batches * dp).
static int common_size(const sp_i_schedule_job *job)
{
    int dp = job->plan->layout.dp;
    for (int size = job->pp; size <= job->microbatches; size++) {
        int fitting = 0;
        while (fitting < dp && fits(job->pp, job->counts[fitting], size)) {
            fitting++;
        }
        if (fitting == dp) {
            return size;
        }
    }
    return 0;
}

static sp_status check_group(const sp_i_schedule_job *job, int size)
{
    int m = job->microbatches;
    if (size == SP_GROUP_EVEN || fits(job->pp, m, size)) {
        return SP_OK;
    }
    char text[96];
    int common = common_size(job);
    if (common > 0) {
        snprintf(text, sizeof text, "; %d or \"even\" would do", common);
    } else if (m >= job->pp) {
        snprintf(text, sizeof text, "; \"even\" would do");
    } else {
        snprintf(text, sizeof text,
                 "; expected at least %d micro-batches, or parallel.chunks_per_rank 1 (1f1b)",
                 job->pp);
    }
    return sp_error_in(job->err, SP_ERR_CONTENT, job->source, "schedule.group",
                       "%d micro-batches cannot be cut into groups of %d%s of which each has at "
                       "least the %d of parallel.pp%s",
                       m, size, job->spec->group == 0 ? " (parallel.pp by default)" : "", job->pp,
                       text);
}

void sp_i_schedule_interleaved(sp_i_schedule_job *job)
{
    int m = job->microbatches;
    int chunks = job->plan->layout.chunks;
    int size = job->spec->group != 0 ? job->spec->group : job->pp;
    if (chunks == 1) {
        size = m; // 1F1B, whatever the groups
    } else if (job->pp == 1) {
        job->status =
            sp_error_in(job->err, SP_ERR_CONTENT, job->source, "schedule.kind",
                        "\"interleaved\" with several chunks needs parallel.pp of at least 2");
    } else {
        job->status = check_group(job, size);
    }
    if (job->status != SP_OK) {
        return;
    }
    sp_i_sliced order = sp_i_sliced_begin(job);
    int largest = 0;
    for (int g = 0, begin = 0; begin < m; g++) {
        int end = group_begin(job, size, g + 1);
        largest = end - begin > largest ? end - begin : largest;
        sp_i_sliced_group(&order, begin, end);
        begin = end;
    }
    sp_i_sliced_emit(&order, 2, (chunks - 1) * (int64_t)largest, INT_MAX);
}
