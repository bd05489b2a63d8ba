// The simulation of one step: plan and costs to timeline and memory.
#ifndef SLIMPACK_SIM_SIMULATE_ENGINE_H
#define SLIMPACK_SIM_SIMULATE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/cost/step_costs.h"
#include "sim/network/topology.h"
#include "sim/plan/plan.h"
#include "sim/plan/timeline.h"

typedef struct sp_engine_options {
    bool unfold; // simulate alike data-parallel ranks one by one (tests: must not change a number)
    bool memory_points;        // keep the whole memory timeline, not only the peaks
    bool verify;               // check the makespan against an independent longest path (igraph)
    bool no_cycle;             // a deadlock is told in the words of the walk, without its cycle
    const char *source;        // names the plan in messages; NULL: "plan"
    sp_jitter jitter;          // gpu_cv 0: all GPUs are alike
    const sp_network *network; // whose links transfers may share; NULL: each takes what it costs
} sp_engine_options;

typedef struct sp_engine_counts {
    size_t tasks, edges; // of the walk (alike ranks counted once, but where links are shared)
} sp_engine_counts;

// Simulates the plan. A plan that cannot finish is SP_ERR_DEADLOCK with the cycle in the plan's
// words, which takes many times as long to find as the simulation; a failed --verify is
// SP_ERR_INTERNAL.
sp_status sp_simulate(const sp_plan *plan, const sp_step_costs *costs,
                      const sp_engine_options *options, sp_timeline *timeline,
                      sp_memory_timeline *memory, sp_engine_counts *counts, sp_error *err);

// Bytes that the sends, exchanges, reductions and gathers of a step take over each link of its
// network, [links of *topology], those hidden behind computation and in the next step's first
// forward too; rates and latencies have no part in them. Left out are tensor parallelism, attention
// in zones or handed to other pipeline ranks, and sums of tied embeddings. Ways are those of flows,
// whatever the network's detail. Both are the caller's. Errors as those of
// sp_simulate; SP_ERR_CONTENT where flows do not go with the plan.
SP_API sp_status sp_step_traffic(const sp_plan *plan, const sp_step_costs *costs,
                                 const sp_network *network, sp_topology **topology,
                                 double **link_bytes, sp_error *err);

// ---- The parts of it that stand by themselves ----

// Data-parallel ranks that are provably alike, which are simulated once and counted. Two ranks are
// alike when their action lists are equal up to the numbering of their packs, every pack costs and
// holds the same, and regrouped packs take the same tokens from the same forward packs. Merged
// packs tie ranks together: nothing is folded then, nor when `unfold`. O(actions) expected.
void sp_i_fold(const sp_plan *plan, const sp_step_costs *costs, bool unfold, sp_alike_ranks *alike);
void sp_i_alike_fini(sp_alike_ranks *alike);

// The optimizer epilogue of all ranks: when the gradients of each pipeline rank are reduced, which
// needs those of all data-parallel ranks, and when its optimizer then runs. sp_timeline_finish is
// left to the caller. O(spans + ranks * chunks^2).
void sp_epilogue_fill(const sp_step_costs *costs, sp_timeline *timeline);

// ---- GPUs of one kind that do not compute equally fast: what a step waits for is the slowest of
// those that work together ----

// How many times as long each pipeline rank computes, [dp * pp + pp rank], freed with sp_free: the
// most of its tp * cp GPUs (and of those of ranks that share its experts), of which GPU g takes 1 +
// gpu_cv * z, z being number g of a sequence of normal variates (Box, Muller 1958) and the whole at
// least a half. The same seed gives the same GPUs in every layout. O(ranks).
double *sp_i_jitter_factors(const sp_layout *layout, const sp_jitter *jitter);

// How many times the mean the slowest GPU of a layout takes with the jitter's seed: what a step
// waits for where all of them have as much to compute. O(GPUs).
double sp_jitter_slowest(const sp_layout *layout, const sp_jitter *jitter);

// The mean of that over seeds, for `gpus` GPUs: of the largest of n variates of distribution
// function F, it is the integral of 1 - F^n (David, Nagaraja, Order Statistics, 3rd ed. 2003,
// section 3.1). It grows as sqrt(2 log n). O(1).
double sp_jitter_expected_slowest(double gpu_cv, int64_t gpus);

#endif
