// The bubble of one step, whose metrics hold what it is made of.
#ifndef SLIMPACK_TESTS_SUPPORT_STEP_BUBBLE_H
#define SLIMPACK_TESTS_SUPPORT_STEP_BUBBLE_H

#include "sim/metrics/metrics.h"
#include "sim/metrics/result.h"

static inline double step_bubble(const sp_step_metrics *m)
{
    return sp_bubble_of((double)m->busy_ns, (double)m->rank_count * (double)m->makespan_ns);
}

static inline double step_bubble_longest_stage(const sp_step_metrics *m)
{
    const sp_result result = {.longest_span_ns = (double)m->longest_span_ns,
                              .longest_span_work_ns = (double)m->longest_span_work_ns};
    return sp_result_bubble_ratio_longest_stage(&result);
}

#endif
