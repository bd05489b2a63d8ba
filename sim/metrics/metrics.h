// From a timeline to numbers. Each number is defined at its field.
#ifndef SLIMPACK_SIM_METRICS_METRICS_H
#define SLIMPACK_SIM_METRICS_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/cost/step_costs.h"
#include "sim/model/model.h"
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
    int64_t ep_ns, ep_wait_ns;                     // the second is part of the first
    int64_t ep_hidden_ns;                          // behind other actions
    int64_t dp_wait_ns;                            // part of an action's dp_ns that is idle
    int64_t launch_ns;                             // waiting for launches, counted as computing
    int64_t again_ns;                              // computing a forward again, beside launch_ns
    int64_t reduce_ns, optimizer_ns;               // of the pipeline rank that ends last
    int64_t rank_count;                            // dp * pp
    int64_t longest_span_ns, longest_span_work_ns; // the rank with the longest span
    // Busy time of a data-parallel rank is that of its busiest stage: the largest, and the mean.
    double dp_busiest_ns, dp_mean_ns;
    // Coefficient of variation of pack times, over ranks; of a backward in parts their sum.
    double forward_pack_cv, backward_pack_cv;
    int64_t peak_bytes;
    sp_bytes peak;               // categories at the largest rank's peak
    int64_t uncopied_peak_bytes; // the peak if nothing had been copied to the host
    sp_rank_metrics *ranks;      // [dp * pp], by dp then pp; owned
} sp_step_metrics;

// The times above that are sums over the actions of all ranks.
// clang-format off
#define SP_RANK_TIMES(X)                                                                           \
    X(busy_ns) X(tp_ns) X(cp_ns) X(dp_ns) X(ep_ns) X(dp_wait_ns) X(ep_wait_ns) X(ep_hidden_ns)     \
    X(launch_ns) X(again_ns) X(wait_p2p_ns)
// clang-format on

void sp_step_metrics_compute(const sp_timeline *timeline, const sp_memory_timeline *memory,
                             sp_step_metrics *metrics);
void sp_step_metrics_fini(sp_step_metrics *metrics);

// 1 - busy / rank time, `rank_ns` being ranks * makespan; 0 where there is no time.
double sp_bubble_of(double busy_ns, double rank_ns);

// ---- what fills the memory of the fullest rank at its peak, by named tensors ----

enum { SP_PEAK_HOLDERS = 10, SP_HOLDER_NAME = 48, SP_HOLDER_ACTION = 32 };

// Bytes of one purpose at the peak, such as the optimizer states.
typedef struct sp_memory_holder {
    char name[SP_HOLDER_NAME];
    sp_memory_category category;
    int64_t bytes;
    int64_t count; // units that hold it; buffers; 1 of what a rank has once
} sp_memory_holder;

typedef struct sp_peak_memory {
    bool known;
    int dp, pp;
    int64_t at_ns;
    char action[SP_HOLDER_ACTION];             // that ran then, "F12.1"; "" before the first
    sp_memory_holder holders[SP_PEAK_HOLDERS]; // largest first
    int count;
    int64_t bytes; // of all holders, also those beyond the largest
} sp_peak_memory;

// For a simulated step whose costs were made from this model and these options. Of ranks with
// equal peaks the first. O(spans of the rank + its units * tensors).
sp_status sp_peak_memory_explain(const sp_timeline *timeline, const sp_memory_timeline *memory,
                                 const sp_step_costs *costs, const sp_model *model,
                                 const sp_memory_options *options, sp_peak_memory *peak,
                                 sp_error *err);

#endif
