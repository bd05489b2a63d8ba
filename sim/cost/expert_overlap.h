// A forward and the backward of another micro-batch that run beside each other layer by layer, as
// Megatron-LM's 1F1B with overlap_moe_expert_parallel_comm does (core/pipeline_parallel/
// combined_1f1b.py), and DualPipe: while tokens of one go to their experts, the other computes.
#ifndef SLIMPACK_SIM_COST_EXPERT_OVERLAP_H
#define SLIMPACK_SIM_COST_EXPERT_OVERLAP_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/plan/plan.h"

// The tasks of one layer of a kind for a pack on one rank, each without the others, in ns. A
// forward runs attention (with norms, router and permutation), sends rows (first), computes its
// experts and shared ones (mlp) and takes rows back (return); a backward sends gradients of outputs
// (first), runs the experts', takes gradients back (return) and runs attention's. Layers without
// experts have attention alone. Weight gradients are the backward's, beside its input gradients.
typedef struct sp_layer_tasks {
    int64_t attention_ns, first_ns, mlp_ns, return_ns;
    int64_t attention_weights_ns, mlp_weights_ns;
} sp_layer_tasks;

typedef struct sp_task_chain {
    const sp_layer_tasks *tasks; // by kind of layer
    const uint8_t *kind;         // [layers], in the order of the model
    int layers;
} sp_task_chain;

// While a layer computes beside an exchange, computation takes 1 + compute_slows times as long,
// since the exchange's kernels hold SMs, and the exchange 1 + exchange_slows times.
typedef struct sp_overlap_rates {
    double compute_slows, exchange_slows;
    bool delays_weights; // weight gradients run when nothing else can, not behind input gradients
} sp_overlap_rates;

typedef struct sp_pair_times {
    int64_t makespan_ns;
    int64_t compute_ns, exchange_ns; // sums over both, without slowing
    int64_t forward_exchange_ns;     // part of exchange_ns
} sp_pair_times;

// The makespan of a forward's and a backward's tasks, of which one computes and one exchanges at a
// time. Tasks of each side follow one another; of two that are ready the one begins whose side has
// more before it (as list schedules of critical tasks do). It is no less than the sum of either
// kind and than either side alone, and no more than the sum of all. O(layers).
sp_pair_times sp_time_pair(const sp_overlap_rates *rates, const sp_task_chain *forward,
                           const sp_task_chain *backward);

// The tasks of all packs of a step.
typedef struct sp_expert_overlap {
    sp_overlap_rates rates;
    int kinds;                // of layers
    sp_layer_tasks *tasks[2]; // of forward and backward packs, [pack * kinds + kind]; NULL: nothing
                              // overlaps
    uint8_t *kind;            // of the layers of all virtual stages in their order
    int *first;               // [virtual stages + 1], into `kind`
} sp_expert_overlap;

// Takes from the cost of an action of a pair (with_next) on a pipeline rank its part of what the
// pair hides: the sum of its tasks less their makespan, shared out by what each of both exchanges.
void sp_hide_experts(const sp_plan *plan, const sp_expert_overlap *overlap, int pp,
                     sp_action action, sp_action partner, sp_action_cost *cost);

#endif
