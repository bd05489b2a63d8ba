// Plans for the batches of a training job, one at a time, from lengths that the job brings: what
// `slimpack plan --stream` does, inside the process of a data loader.
//
//     sp_planner_open("scenario.json", NULL, NULL, 0, &planner, &err);
//     sp_plan_batch(planner, tokens, count, &plan, &err);  // for every batch
//
// A planner serves one thread at a time; any number of planners share one scenario, which they only
// read. The plan of a batch depends on nothing but the scenario and its lengths. The first batch
// that is out of memory takes longer, once a planner: up to 25 other settings are tried as whole
// steps, with what the strategy chooses for the job in each.
#ifndef SLIMPACK_SOLVER_EVALUATE_PLAN_BATCH_H
#define SLIMPACK_SOLVER_EVALUATE_PLAN_BATCH_H

#include "sim/metrics/result.h"
#include "sim/plan/plan.h"
#include "sim/scenario/scenario.h"

typedef struct sp_planner sp_planner;

// Holds pointers into itself.
typedef struct sp_batch_plan {
    // The samples that are planned, or the pieces of joined ones; an id is the position among the
    // lengths given.
    sp_batch batch;
    sp_packing packing; // of the batch; `delayed` samples are the caller's to bring again
    sp_plan plan;       // of the packing
    double predicted_ms;
    double lower_bound_ms;      // no plan of these samples is faster
    int64_t peak_bytes;         // of the fullest rank
    int64_t memory_limit_bytes; // 0: none
    bool curtailed;             // a bound of work ended the search for it; also a warning
    bool oom;                   // the peak is above the limit; the plan is whole all the same
    // Of a plan that is out of memory: the sample and bytes, or the bytes of the plan, with the
    // settings where they were tried; else "".
    char reason[SP_WARNING_TEXT];
    // With which other settings the first batch of a planner that is out of memory would fit, or
    // that none of those tried is enough; "" of all others, as each setting is a whole step. Where
    // that batch has no plan at all, the error says so.
    char settings[SP_WARNING_TEXT];
    // Samples longer than the context, as workload.over_length says.
    int64_t dropped, truncated, split;
    int64_t lost_tokens, source_tokens; // what that costs of the tokens given
    sp_warnings warnings;
} sp_batch_plan;

// Makes the choices that the scenario leaves to its strategy, unless they are made
// (sp_strategy_resolve): each batch has all of strategy.time_limit_ms. The scenario must outlive
// the planner; of its workload `context` and `over_length` count. A scenario of uniform costs has
// no samples to plan (SP_ERR_CONTENT).
SP_API sp_status sp_planner_new(const sp_scenario *scenario, sp_planner **planner, sp_error *err);
// A planner with a scenario of its own, which is read from the file `source` or, where `text` is
// not NULL, is that JSON text, named `source` in messages and with paths from the working
// directory. Overrides are `path=value` texts. Whoever plans by this function, sp_plan_batch() and
// the texts below needs to know no member of a struct but those of sp_error.
SP_API sp_status sp_planner_open(const char *source, const char *text, const char *const *overrides,
                                 int override_count, sp_planner **planner, sp_error *err);
SP_API void sp_planner_free(sp_planner *planner);
// Its scenario as resolved, as a JSON text that the caller frees with sp_batch_plan_text_free().
SP_API char *sp_planner_scenario_text(const sp_planner *planner);
// Did the last batch have no plan (SP_ERR_INFEASIBLE) because it lacks memory?
SP_API bool sp_planner_refused_for_memory(const sp_planner *planner);
// From now on no settings are tried: where several planners plan one stream of batches, one is
// enough to tell of them.
SP_API void sp_planner_skip_settings(sp_planner *planner);

// Plans one batch of `count` samples of tokens[i] >= 1 tokens. SP_ERR_CONTENT where the lengths
// make no batch, SP_ERR_INFEASIBLE with the reason where the strategy has no plan for it; *plan is
// NULL then. Any error leaves the planner usable. The caller frees the plan.
SP_API sp_status sp_plan_batch(sp_planner *planner, const int64_t *tokens, size_t count,
                               sp_batch_plan **plan, sp_error *err);
SP_API void sp_batch_plan_free(sp_batch_plan *plan);
// Warning i of a plan, from 0 on; NULL behind the last. The plan owns the text.
SP_API const char *sp_batch_plan_warning(const sp_batch_plan *plan, int i);

// The plan as a document of its own (schema slimpack/plan/1, one batch) on one line: no blank and
// no newline outside strings, none at the end. `bytes` counts without the terminator. It holds the
// reason of a plan that is out of memory. The caller frees the text with sp_batch_plan_text_free().
SP_API sp_status sp_batch_plan_text(const sp_planner *planner, const sp_batch_plan *plan,
                                    char **text, size_t *bytes, sp_error *err);
SP_API void sp_batch_plan_text_free(char *text);

#endif
