// From a timeline to numbers. Definitions: INTERFACE, section Result; each is repeated at its
// field.
#ifndef SLIMPACK_SIM_METRICS_METRICS_H
#define SLIMPACK_SIM_METRICS_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/plan/timeline.h"

// One pipeline rank of one data-parallel rank (CP and TP ranks are alike).
typedef struct sp_rank_metrics {
    int dp, pp;
    int64_t busy_ns;
    int64_t span_ns; // last end - first start
    int64_t peak_bytes;
    double units_peak;
} sp_rank_metrics;

// Sums over ranks (all dp x pp ranks, alike ones counted) where not said otherwise.
typedef struct sp_step_metrics {
    int64_t makespan_ns;  // end of the last F, B, I, W or recompute
    int64_t iteration_ns; // with gradient reduction, optimizer and parameter gather
    int64_t busy_ns;
    int64_t tp_ns, cp_ns, dp_ns, wait_p2p_ns;      // dp_ns: inside the actions
    int64_t launch_ns;                             // waiting for launches, counted as computing
    int64_t reduce_ns, optimizer_ns;               // of the pipeline rank that ends last
    int64_t rank_count;                            // dp * pp
    int64_t longest_span_ns, longest_span_work_ns; // the rank with the longest span
    // Busy time of a data-parallel rank is that of its busiest stage: the largest, and the mean.
    double dp_busiest_ns, dp_mean_ns;
    double dp_max_over_mean; // their ratio
    // Coefficient of variation of pack times, over ranks; of a backward in parts their sum.
    double forward_pack_cv, backward_pack_cv;
    int64_t peak_bytes;
    sp_bytes peak;          // categories at the largest rank's peak
    sp_rank_metrics *ranks; // [dp * pp], by dp then pp; owned
} sp_step_metrics;

sp_status sp_step_metrics_compute(const sp_timeline *timeline, const sp_memory_timeline *memory,
                                  sp_step_metrics *metrics, sp_error *err);
void sp_step_metrics_fini(sp_step_metrics *metrics);

// 1 - busy / (ranks * makespan).
double sp_bubble_ratio(const sp_step_metrics *metrics);
// (longest span - its work) / longest span: the zero-bubble papers' measure.
double sp_bubble_ratio_longest_stage(const sp_step_metrics *metrics);

#endif
