// The two phases of SlimPack's planner (arXiv 2509.26246): samples are given to data-parallel
// ranks, then each rank's samples are cut and packed. Private to solver.
#ifndef SLIMPACK_SOLVER_SLIMPACK_SLIMPACK_SEARCH_H
#define SLIMPACK_SOLVER_SLIMPACK_SLIMPACK_SEARCH_H

#include "sim/scenario/scenario.h"
#include "sim/schedule/packflow.h"
#include "solver/strategy.h"

typedef struct sp_i_slimpack_options {
    bool asymmetric;   // backward packs may be a partition of their own
    bool split;        // packs are chosen for input and weight gradients apart
    bool whole;        // no order of them runs gradients apart
    int64_t effort;    // actions timed for all ranks together, about
    double deadline_s; // of sp_clock_s(): the best plan so far is taken then; 0: none
} sp_i_slimpack_options;

// So few that it is worth while to look further for each of them.
bool sp_i_has_few_samples(const sp_batch *batch);

// So much of a usual effort as the settings of a scenario ask for.
int64_t sp_i_slimpack_effort(const sp_strategy_spec *spec, int64_t usual);

// The settings of a scenario for a strategy that would search its batch freely.
sp_i_slimpack_options sp_i_slimpack_options_of(const sp_strategy_input *input, bool asymmetric,
                                               bool split);

// Fills the packing (uninitialised; not with an error) unless it is NULL, and what comes of it: the
// whole step as it is simulated where there is a packing, as predicted by the search where not.
// Ranks are searched on input->threads threads; the plan is the same for any number of them. What
// is better in the prediction but not in the whole step is not taken. Where a few long samples
// leave ranks idle, other groups of ranks are searched as well, as much again at most.
sp_status sp_i_slimpack_search(const sp_strategy_input *input, const sp_i_slimpack_options *options,
                               sp_packing *packing, sp_packflow_outcome *outcome, sp_error *err);

// Takes a packing in the place of the best one where its outcome is better; ends the other one.
void sp_i_keep_better(sp_packing *best, sp_packflow_outcome *outcome, sp_packing *tried,
                      const sp_packflow_outcome *judged);

// Takes the packs of `pack` where they are better in the whole step and time is left. Only fatal
// errors are returned.
sp_status sp_i_try_packs(const sp_strategy_input *input, sp_strategy_pack_function pack,
                         sp_packing *best, sp_packflow_outcome *outcome, sp_error *err);

// ---- all data-parallel ranks as one (pooled.c) ----

// May the ranks run all packs together, and does the cost model know zones?
bool sp_i_may_pool(const sp_scenario *scenario);

// Where that may be, the packs that `pack` makes for one data-parallel rank of all their GPUs, with
// zones for the attention (sim/plan/packing.h).
sp_status sp_i_pack_pooled(const sp_strategy_input *input, sp_strategy_pack_function pack,
                           sp_packing *packing, sp_error *err);

// ---- without a pipeline (nested_groups.c) ----

bool sp_i_may_nest(const sp_scenario *scenario);

// Where that may be, puts packs of nested groups of ranks in the place of *packing if they are
// better in the whole step: those that other strategies make under several budgets of tokens.
sp_status sp_i_try_nested_groups(const sp_strategy_input *input, sp_packing *packing,
                                 sp_packflow_outcome *outcome, sp_error *err);

#endif
