// Attention-context exchange of SlimPipe (arXiv 2504.14519; kwai/Megatron-Kwai,
// megatron/core/kv_cache/attention.py). The pipeline ranks run in lock step, each a slice with
// another length of context. At every step the rank with the k-th longest context hands attention
// over whole slices of keys and values to the rank with the k-th shortest, so that both work alike.
#ifndef SLIMPACK_SIM_COST_EXCHANGE_H
#define SLIMPACK_SIM_COST_EXCHANGE_H

#include <stdint.h>

#include "sim/base/status.h"
#include "sim/cost/step_costs.h"
#include "sim/plan/plan.h"

typedef struct sp_exchange_report {
    // Attention of the busiest rank, summed over the steps in which at least two are at work, over
    // the sum of the mean of those. 1: level.
    double imbalance_before, imbalance_after;
    int64_t messages;  // two for every hand-over: there and back
    int64_t q_tokens;  // queries that went to another rank, forward and backward
    int64_t kv_tokens; // keys and values that went along
} sp_exchange_report;

// Moves attention between the ranks in the costs of a plan whose ranks run the same units in the
// same order: at step t rank r runs forward unit t - r and backward unit t - (p-1-r), and a rank
// without a unit takes no part. The attention of a pack is its causal pairs; of its context whole
// stretches as long as the pack can be handed over, at most half of the difference between the two
// ranks. For equal slices of one sequence these are int((longer - shorter) / 2) slices.
// Ranks are levelled step by step, forward and backward apart: the makespan of ranks that do not
// wait for each other at every step falls as a rule, not in every plan.
// Afterwards each virtual stage is a class of its own. Sums of attention and compute time stay as
// they are; the transfers themselves are taken to be hidden behind computation. With one pipeline
// rank nothing changes. A plan whose ranks are not in lock step, or with packs merged over
// data-parallel ranks, is a content error; after an error the costs are as before.
// Time O(actions log pp + packs * virtual stages), memory O(packs * virtual stages).
sp_status sp_exchange_apply(const sp_plan *plan, sp_step_costs *costs, sp_exchange_report *report,
                            sp_error *err);

// Bytes sent. q_bytes: queries of one token in all layers of a virtual stage on one rank; kv_bytes:
// its keys and values together. Forward, queries, keys and values go and outputs (as large as the
// queries) return; backward, gradients of outputs go and gradients of queries, keys and values
// return. The softmax statistics (one number per head and token) are not counted.
double sp_exchange_bytes(const sp_exchange_report *report, double q_bytes, double kv_bytes);

#endif
