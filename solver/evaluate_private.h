// What the files of the evaluation share.
#ifndef SLIMPACK_SOLVER_EVALUATE_PRIVATE_H
#define SLIMPACK_SOLVER_EVALUATE_PRIVATE_H

#include "sim/cost/cost_model.h"
#include "solver/evaluate.h"

// What stays the same over the batches of one evaluation.
typedef struct sp_i_evaluation {
    const sp_scenario *scenario;
    const sp_evaluate_options *options;
    sp_cost_model cost; // unused with uniform costs
    double recompute_flops_per_token, recompute_flops_per_pair2;
    sp_result *result;
} sp_i_evaluation;

// ---- provenance ----

// Begins the result: names, level, limits and warnings of the scenario.
void sp_i_evaluate_describe(const sp_scenario *scenario, sp_result *result);
void sp_i_evaluate_warn_of_batches(sp_result *result, const sp_batches *batches);

// ---- from a batch to a plan ----

// The packs of a batch: the strategy's rows, cut into slices where the schedule runs slices. With
// uniform costs `batch` is NULL and `uniform` becomes the batch of equal samples.
sp_status sp_i_evaluate_pack(sp_i_evaluation *ev, const sp_batch *batch, int64_t context,
                             sp_batch *uniform, sp_packing *packing, sp_error *err);

// Fills in the actions, and changes costs where ranks exchange attention.
sp_status sp_i_evaluate_schedule(const sp_i_evaluation *ev, sp_plan *plan, sp_step_costs *costs,
                                 sp_error *err);

// Lets the ranks exchange attention where the schedule does.
sp_status sp_i_evaluate_exchange(const sp_i_evaluation *ev, const sp_plan *plan,
                                 sp_step_costs *costs, sp_error *err);

// ---- counts ----

// FLOPs that the recomputation of all layers adds, per token and per half pair, before sharding.
void sp_i_evaluate_recompute(sp_i_evaluation *ev);

// Samples, tokens, micro-batches and FLOPs.
void sp_i_evaluate_count(const sp_i_evaluation *ev, const sp_packing *packing,
                         sp_batch_facts *facts);

// No step of the same samples is faster; with uniform costs, of the same micro-batches.
double sp_i_evaluate_bound_ns(sp_i_evaluation *ev, const sp_packing *packing,
                              const sp_step_costs *costs, const sp_step_metrics *metrics);

// ---- one step ----

// Simulates, adds to the result and hands to the observer.
sp_status sp_i_evaluate_simulate(sp_i_evaluation *ev, int index, const sp_plan *plan,
                                 const sp_step_costs *costs, sp_batch_facts *facts, sp_error *err);

#endif
