#include "solver/strategy.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/base/units.h"
#include "solver/strategy_list.h"

const char *const sp_strategy_names[] = {
#define X(text, function, ...) text,
    SP_STRATEGY_LIST(X)
#undef X
        NULL};

static const sp_strategy strategies[] = {
#define X(text, function, kind_, summary_, ...) \
    {.name = (text), .kind = SP_STRATEGY_##kind_, .summary = (summary_), .options = __VA_ARGS__},
    SP_STRATEGY_LIST(X)
#undef X
};

enum { COUNT = sizeof strategies / sizeof strategies[0] };

const sp_strategy *sp_strategy_find(const char *name)
{
    for (int i = 0; i < COUNT; i++) {
        if (strcmp(strategies[i].name, name) == 0) {
            return &strategies[i];
        }
    }
    return NULL;
}

bool sp_strategy_is_lossless(const sp_strategy *strategy, const sp_strategy_spec *spec)
{
    return !strategy->outlier_queues || spec->outlier_queues == 0;
}

sp_status sp_strategy_check(const char *name, const char *source, sp_error *err)
{
    if (sp_strategy_find(name) != NULL) {
        return SP_OK;
    }
    const char *near = sp_nearest_name(name, sp_strategy_names, COUNT);
    if (near != NULL) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "strategy.kind",
                           "unknown strategy \"%s\" (did you mean \"%s\"?)", name, near);
    }
    char known[SP_ERROR_TEXT / 2] = "";
    for (int i = 0; i < COUNT; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%.40s", i > 0 ? ", " : "",
                 sp_strategy_names[i]);
    }
    return sp_error_in(err, SP_ERR_CONTENT, source, "strategy.kind",
                       "unknown strategy \"%s\" (known: %s)", name, known);
}

// The strategy that was asked for cuts, whichever then runs the job.
sp_status sp_strategy_check_shares(const sp_scenario *scenario, sp_error *err)
{
    const sp_strategy_spec *spec = &scenario->strategy;
    const sp_strategy *asked = sp_strategy_find(spec->asked[0] != '\0' ? spec->asked : spec->kind);
    return asked != NULL && asked->chooses_chunks ? SP_OK : sp_scenario_check_shares(scenario, err);
}

// A row that is cut as a whole needs none, nor do ranks that are dealt what does not divide
// (WLB-LLM, arXiv 2503.17924), blocks that go to any rank, and zones: Zeppelin's own
// engine cuts their samples, of which nothing is published (assumed).
sp_padding sp_strategy_padding(const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    const sp_stack *stack = &scenario->memory.stack;
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    bool pads = stack->padded_documents && !scenario->uniform && strategy != NULL &&
                !strategy->joins_documents && layout->cp_sharding == SP_SHARD_EVEN &&
                !sp_stack_has_blocks(stack);
    int64_t tp = layout->sequence_parallel ? layout->tp : 1;
    return (sp_padding){.cp = layout->cp, .each = pads ? (int)(2 * tp / sp_gcd(2, tp)) : 0};
}

// ---- which strategies run a plan ----

enum { PATH = 96 };

static sp_status check_samples(const sp_batch *batch, int64_t context, int index,
                               const char *source, sp_error *err)
{
    sp_status status = SP_OK;
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->tokens[i] > context) {
            char path[PATH];
            snprintf(path, sizeof path, "batches[%d].samples[%zu]", index, i);
            status = sp_error_in(err, SP_ERR_CONTENT, source, path,
                                 "%lld tokens are more than the context of %lld",
                                 (long long)batch->tokens[i], (long long)context);
        }
    }
    return status;
}

static sp_status check_rows(const sp_pack_list *list, const char *side, int64_t rows,
                            int64_t context, int index, const char *source, sp_error *err)
{
    sp_status status = SP_OK;
    for (size_t p = 0; p < list->count; p++) {
        // Divided, not multiplied: both factors come from a file.
        if ((list->packs[p].computed - 1) / context >= rows) {
            char path[PATH];
            snprintf(path, sizeof path, "batches[%d].%s[%zu]", index, side, p);
            status = sp_error_in(err, SP_ERR_CONTENT, source, path,
                                 "%lld tokens are more than %lld x the context of %lld",
                                 (long long)list->packs[p].computed, (long long)rows,
                                 (long long)context);
        }
    }
    return status;
}

static sp_status check_left_out(const sp_packing *packing, const char *kind, int index,
                                const char *source, sp_error *err)
{
    if (packing->dropped_count + packing->delayed_count == 0) {
        return SP_OK;
    }
    char path[PATH];
    snprintf(path, sizeof path, "batches[%d].%s", index,
             packing->dropped_count > 0 ? "dropped" : "delayed");
    return sp_error_in(err, SP_ERR_CONTENT, source, path,
                       "strategy \"%s\" trains every sample, got %zu samples left out", kind,
                       packing->dropped_count + packing->delayed_count);
}

sp_status sp_plan_check_scenario(const sp_plan *plan, int index, const sp_scenario *scenario,
                                 const char *source, sp_error *err)
{
    const sp_packing *packing = plan->packing;
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    int64_t context = scenario->workload.context;
    sp_status status = SP_OK;
    if (scenario->uniform || packing->batch == NULL) {
        return SP_OK;
    }
    if (context > 0) {
        status = check_samples(packing->batch, context, index, source, err);
    }
    if (context > 0 && strategy != NULL && strategy->kind == SP_STRATEGY_ROWS) {
        const sp_padding padding = sp_strategy_padding(scenario);
        int64_t rows = scenario->strategy.microbatch_samples;
        sp_status forward = check_rows(&packing->forward, "forward_packs", rows,
                                       sp_padded_tokens(&padding, context, 1), index, source, err);
        status = forward != SP_OK ? forward : status;
    }
    if (strategy != NULL && sp_strategy_is_lossless(strategy, &scenario->strategy)) {
        sp_status kept = check_left_out(packing, scenario->strategy.kind, index, source, err);
        status = kept != SP_OK ? kept : status;
    }
    return status;
}
