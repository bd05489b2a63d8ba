// What the files of the evaluation share.
#ifndef SLIMPACK_SOLVER_EVALUATE_EVALUATE_PRIVATE_H
#define SLIMPACK_SOLVER_EVALUATE_EVALUATE_PRIVATE_H

#include "sim/cost/cost_model.h"
#include "sim/metrics/result.h"
#include "sim/model/footprint.h"
#include "sim/plan/packing.h"
#include "sim/scenario/scenario.h"
#include "solver/evaluate/evaluate.h"
#include "solver/evaluate/oom_diagnosis.h"

// What stays the same over the batches of one evaluation.
typedef struct sp_i_evaluation {
    const sp_scenario *scenario; // as stated, or `own`
    const sp_scenario *stated;
    // With the order that the strategy brings; owns its document and the layers of chunks that the
    // strategy chose.
    sp_scenario own;
    const sp_evaluate_options *options;
    // Unused with uniform costs. The second is for packs that are only tried: they say nothing of
    // the tables that the simulated packs use.
    sp_cost_model cost, trial;
    double recompute_flops_per_token, recompute_flops_per_pair2;
    sp_oom_diagnosis shortage; // the worst of the result's batches so far
    sp_batch carried; // what the batches so far delayed; it stands in front of the next one
    sp_result *result;
} sp_i_evaluation;

// A batch on its way through the evaluation. The plan refers to the packing: it stays where it is.
typedef struct sp_i_step {
    sp_batch uniform;
    sp_packing packing;
    sp_plan plan;
    sp_step_costs costs;
    sp_batch_facts facts;
} sp_i_step;

// ---- the evaluation ----

// Costs and a result that holds no batch yet. sp_i_evaluate_end() in any case; with an error it
// frees the result.
sp_status sp_i_evaluate_begin(sp_i_evaluation *ev, const sp_scenario *scenario,
                              const sp_evaluate_options *options, sp_result *result, sp_error *err);
void sp_i_evaluate_end(sp_i_evaluation *ev, sp_status status);

// The cost models of ev->scenario, and their end.
sp_status sp_i_evaluate_costs(sp_i_evaluation *ev, sp_error *err);
void sp_i_evaluate_costs_fini(sp_i_evaluation *ev);

// What the actions of a packing cost.
sp_status sp_i_evaluate_build(sp_i_evaluation *ev, const sp_packing *packing, sp_step_costs *costs,
                              sp_error *err);

// Schedules and simulates a packing into a result that holds nothing else: time and memory as they
// would be reported.
sp_status sp_i_evaluate_alone(sp_i_evaluation *ev, const sp_packing *packing, sp_error *err);

// Plans and simulates one batch and adds it to the result. sp_i_step_fini() in any case.
sp_status sp_i_evaluate_batch(sp_i_evaluation *ev, int index, const sp_batch *batch,
                              int64_t context, sp_i_step *step, sp_error *err);
void sp_i_step_fini(sp_i_step *step);

// ---- provenance ----

// Begins the result: names, level, limits and warnings of the scenario.
void sp_i_evaluate_describe(const sp_scenario *scenario, sp_result *result);
void sp_i_evaluate_warn_of_batches(sp_result *result, const sp_batches *batches);

// ---- from a batch to a plan ----

// The packs of a batch: the strategy's rows, cut into slices where the schedule runs slices. With
// uniform costs `batch` is NULL and `uniform` becomes the batch of equal samples.
sp_status sp_i_evaluate_pack(sp_i_evaluation *ev, const sp_batch *batch, int64_t context,
                             sp_batch *uniform, sp_packing *packing, sp_error *err);

// Cuts a strategy's rows where the schedule runs slices; SP_ERR_CONTENT where they are not as many
// micro-batches as stated.
sp_status sp_i_evaluate_rows(sp_i_evaluation *ev, sp_packing *packing, sp_error *err);

// Cuts rows into slices where the schedule runs slices.
sp_status sp_i_evaluate_cut(sp_i_evaluation *ev, sp_packing *packing, sp_error *err);

// Fills in the actions, and changes costs where ranks exchange attention.
sp_status sp_i_evaluate_schedule(const sp_i_evaluation *ev, sp_plan *plan, sp_step_costs *costs,
                                 sp_error *err);

// Lets the ranks exchange attention where the schedule does.
sp_status sp_i_evaluate_exchange(const sp_i_evaluation *ev, const sp_plan *plan,
                                 sp_step_costs *costs, sp_error *err);

// ---- counts ----

// FLOPs that the recomputation of all layers adds, per token and per half pair, before sharding.
void sp_i_evaluate_recompute(sp_i_evaluation *ev);

// The slices of a row are one micro-batch.
int64_t sp_i_evaluate_microbatches(const sp_packing *packing);

// Samples, tokens, micro-batches and FLOPs.
void sp_i_evaluate_count(const sp_i_evaluation *ev, const sp_packing *packing,
                         sp_batch_facts *facts);

// What no step of the same samples gets below: by its work, and among plans of this kind (whole
// samples or slices, split backward or not, merged ranks or not; bounds.h). With uniform costs both
// are the busiest rank's work.
sp_status sp_i_evaluate_bounds(sp_i_evaluation *ev, const sp_plan *plan, const sp_step_costs *costs,
                               const sp_step_metrics *metrics, sp_batch_facts *facts,
                               sp_error *err);

// ---- one step ----

// Simulates, adds to the result and hands to the observer.
sp_status sp_i_evaluate_simulate(sp_i_evaluation *ev, int index, const sp_plan *plan,
                                 const sp_step_costs *costs, sp_batch_facts *facts, sp_error *err);

#endif
