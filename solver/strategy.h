// Strategies: from the samples of a batch to a packing.
#ifndef SLIMPACK_SOLVER_STRATEGY_H
#define SLIMPACK_SOLVER_STRATEGY_H

#include <stdbool.h>

#include "sim/cost/cost_model.h"
#include "sim/plan/packing.h"
#include "sim/plan/plan.h"
#include "sim/scenario/scenario.h"

// The input of a strategy.
typedef struct sp_strategy_input {
    const sp_scenario *scenario; // strategy, layout, memory, schedule
    const sp_batch *batch;       // with what earlier batches delayed in front
    size_t carried;              // so many samples in front
    int64_t context;             // tokens of a row at most
    sp_cost_model *cost;         // times of packs, also of those that are only tried
    int threads;                 // to solve on; 0: one
    double deadline_s;           // of sp_clock_s(): the best plan so far is taken then; 0: none
    // Groups of ranks that earlier batches connected; NULL: all are there.
    const struct sp_i_group_starts *starts;
    // Takes the best of the steps that are judged (solver/step/step.h); NULL: none is kept.
    struct sp_i_best_step *best_step;
    // Packs that are no better in the whole step are of no use: a strategy that tries whole steps
    // may leave them out, and has no packing where all of them are; NULL: the best are asked for.
    const struct sp_packflow_outcome *beaten;
    // Filled beside SP_ERR_INFEASIBLE where the batch lacks memory (solver/step/step.h); NULL:
    // nobody asks.
    struct sp_oom_diagnosis *refused;
    bool zoned; // packs that get zones (slimpack-zones): what slices exchange is not known yet
} sp_strategy_input;

// Fills a packing (uninitialised) that refers to the batch. SP_ERR_INFEASIBLE with the reason where
// the strategy has no packing for this batch.
typedef sp_status (*sp_strategy_pack_function)(const sp_strategy_input *input, sp_packing *packing,
                                               sp_error *err);

// Kinds of strategies, by the limit of their packs and the effort to find them.
typedef enum sp_strategy_kind {
    SP_STRATEGY_ROWS,    // rows of whole samples, of up to `context` tokens each
    SP_STRATEGY_BUDGETS, // packs up to a budget of tokens or work, by a constructive rule
    SP_STRATEGY_SEARCH,  // packs that are searched for by the cost model or by whole steps
} sp_strategy_kind;

// All facts of a strategy: a row of solver/strategy_list.h. It is called by sp_strategy_pack().
typedef struct sp_strategy {
    const char *name;
    const char *summary; // one line for help
    const char *options; // the settings of `strategy` in a scenario that it reads, for help
    sp_strategy_kind kind;
    bool sliced;       // makes slices of its own: a sliced schedule does not cut its packs again
    bool cuts_rows;    // its slices depend on their row alone, and not on the rest of the batch
    bool brings_order; // its packs run in a schedule of its own, not in that of the scenario
    sp_schedule_kind schedule; // then that one
    bool split_backward;       // with input and weight gradients apart
    // Ranks that share packs exchange keys and values in its way, where the scenario states none.
    bool brings_exchange;
    sp_cp_overlap cp_overlap; // then that one
    int cp_ring_nics;         // and so many NICs for a hop (sp_stack)
    // Its system exchanges in rings: it does so where a scenario states stack.cp_ring_nics and no
    // cp_overlap, so that all strategies of a comparison pay for the NICs by one rule.
    bool rings;
    // Its ranks read parameters one-sidedly (sp_stack), where the scenario does not say otherwise:
    // it refuses what does not go with that (sp_scenario_not_one_sided).
    bool one_sided;
    bool shares_ranks;     // several data-parallel ranks may take part in one pack
    bool own_microbatches; // of its own making, not of schedule.microbatch_samples rows
    bool pads;             // each row is one sample, padded as strategy.pad_to says
    bool plain;            // what a stack that packs does: baseline of a comparison
    bool chooses_rows;     // the length of its rows (row_tokens of a result)
    bool joins_documents;  // samples are joined and cut before they are packed
    bool outlier_queues;   // may delay samples to later batches: then it is not lossless
    bool symmetric;        // of SlimPack: backward packs are the forward packs
    bool by_effort;        // searches as long as its effort lasts (sp_strategy_spec)
    bool zones;            // its packs may have zones of ranks, each for the attention of a sample
    // Chooses stack.cp_overlap, and then the chunks of each rank, where the scenario does not state
    // them.
    bool chooses_chunks;
    // Its framework, with the option there that strategy.rank_tokens is; NULL: none.
    const char *rank_tokens_option;
    // The strategy that it is where layouts have no pipeline; NULL: it is its own.
    const char *without_pipeline;
} sp_strategy;

// NULL-terminated, in the order of comparisons.
SP_API_DATA const char *const sp_strategy_names[];

// Does resolving a scenario (sp_strategy_resolve), whose strategy is known, change anything of it?
bool sp_strategy_resolves(const sp_scenario *scenario);

// NULL: no strategy has this name.
SP_API const sp_strategy *sp_strategy_find(const char *name);

// Packs the input's batch by the strategy, as sp_strategy_pack_function says
// (solver/choices/run_job.c).
SP_API sp_status sp_strategy_pack(const sp_strategy *strategy, const sp_strategy_input *input,
                                  sp_packing *packing, sp_error *err);

// To what the scenario's stack pads the samples of packs by its strategy.
sp_padding sp_strategy_padding(const sp_scenario *scenario);

// Does it train every sample of a batch in its step? Not where it is asked for outlier queues.
SP_API bool sp_strategy_is_lossless(const sp_strategy *strategy, const sp_strategy_spec *spec);

// A content error where neither the scenario nor its strategy says how layers are cut that equal
// shares do not divide.
SP_API sp_status sp_strategy_check_shares(const sp_scenario *scenario, sp_error *err);

// Ends the reading of a scenario, once: puts the order that its strategy brings, if it brings one,
// in the place of schedule.kind, also in the resolved document if there is one, with the chunks per
// rank that the strategy chooses, and the way of exchanging keys and values that it brings or
// chooses in the place of stack.cp_overlap and stack.cp_ring_nics where those are not stated, and
// layers in the place of parallel.stage_layers "auto". Before that a strategy that chooses by the
// whole job may leave another one in its place (strategy.asked is then what was asked for). What
// the user gave stays given, and a scenario that is resolved (order_resolved) is left as it is.
// Evaluations and planners then share the scenario; one that is not resolved they copy and resolve
// each for itself. Content errors: another kind stated in the scenario, unless strategies are
// `compared` and that is for the others; a layout that the order does not run on.
SP_API sp_status sp_strategy_resolve(sp_scenario *scenario, bool compared, sp_error *err);

// What a scenario asks of its plans, beyond what makes any plan a plan (sim/plan/plan.h); shares no
// code with the strategies that it checks. Checks batch `index` of a plan file at `source`: no
// sample longer than the context; no pack of a strategy of rows longer than the rows of a
// micro-batch; nothing dropped or delayed by a strategy that trains every sample. A broken rule is
// a content error that names pack or sample; up to ten are collected. Uniform costs ask for
// nothing.
sp_status sp_plan_check_scenario(const sp_plan *plan, int index, const sp_scenario *scenario,
                                 const char *source, sp_error *err);

// Is `name` a strategy? Otherwise a content error at `source`: strategy.kind, with the nearest
// name.
SP_API sp_status sp_strategy_check(const char *name, const char *source, sp_error *err);

#endif
