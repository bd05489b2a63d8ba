#include "solver/strategy.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "solver/strategy_list.h"
#include "solver/time_limit.h"

const char *const sp_strategy_names[] = {
#define X(text, function, ...) text,
    SP_STRATEGY_LIST(X)
#undef X
        NULL};

static const sp_strategy strategies[] = {
#define X(text, function, kind_, summary_, ...) \
    {.name = (text),                            \
     .pack = sp_i_pack_##function,              \
     .kind = SP_STRATEGY_##kind_,               \
     .summary = (summary_),                     \
     .options = __VA_ARGS__},
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

// What was asked for cuts, whichever strategy then runs the job.
sp_status sp_strategy_check_shares(const sp_scenario *scenario, sp_error *err)
{
    const sp_strategy_spec *spec = &scenario->strategy;
    const sp_strategy *asked = sp_strategy_find(spec->asked[0] != '\0' ? spec->asked : spec->kind);
    return asked != NULL && asked->choose_chunks != NULL ? SP_OK
                                                         : sp_scenario_check_shares(scenario, err);
}

// ---- What a strategy brings, in the place of the scenario's own ----

// Ranks that share the vocabulary are alike.
static bool cuts_layers(const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    return scenario->cuts_layers && layout->pp > 1 && !layout->vocab_parallel;
}

bool sp_strategy_resolves(const sp_scenario *scenario)
{
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    return strategy->brings_order || strategy->brings_exchange || strategy->rings ||
           cuts_layers(scenario) || scenario->shares_open;
}

// No strategy that brings an exchange, or rings, brings an order.
sp_status sp_i_take_exchange(const sp_strategy *strategy, sp_scenario *scenario, sp_error *err)
{
    sp_stack *stack = &scenario->memory.stack;
    if (strategy->rings && stack->cp_ring_nics == 0) {
        return SP_OK;
    }
    if (!scenario->cp_overlap_given) {
        stack->cp_overlap = strategy->rings ? SP_CP_ATTENTION : strategy->cp_overlap;
    }
    if (!scenario->cp_ring_nics_given && !strategy->rings) {
        stack->cp_ring_nics = strategy->cp_ring_nics;
    }
    (void)err;
    sp_scenario_set_stack(scenario);
    return SP_OK;
}

static sp_status resolve(const sp_strategy *strategy, sp_scenario *scenario, bool compared,
                         sp_error *err);

static sp_status resolve_all(sp_scenario *scenario, bool compared, sp_error *err)
{
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    if (scenario->uniform || scenario->order_resolved || strategy == NULL ||
        !sp_strategy_resolves(scenario)) {
        return SP_OK;
    }
    sp_status allowed = sp_strategy_check_shares(scenario, err);
    if (allowed != SP_OK) {
        return allowed;
    }
    if (strategy->choose_job != NULL && scenario->strategy.asked[0] == '\0') {
        sp_status status = strategy->choose_job(scenario, compared, err);
        if (status != SP_OK) {
            return status;
        }
        strategy = sp_strategy_find(scenario->strategy.kind);
    }
    sp_status status = resolve(strategy, scenario, compared, err);
    return status == SP_OK && cuts_layers(scenario) ? sp_i_choose_cut(scenario, err) : status;
}

sp_status sp_strategy_resolve(sp_scenario *scenario, bool compared, sp_error *err)
{
    sp_strategy_spec *spec = &scenario->strategy;
    if (spec->meter != NULL || spec->time_limit_ms > 0) {
        return resolve_all(scenario, compared, err);
    }
    sp_meter meter = {.limit = sp_i_most_work(scenario->workload.batches)};
    spec->meter = &meter;
    sp_status status = resolve_all(scenario, compared, err);
    spec->curtailed = meter.ended;
    spec->meter = NULL;
    return status;
}

// Which layers "auto" takes is chosen afterwards.
static void take_chunks(sp_scenario *scenario, int chunks)
{
    int *layers = NULL;
    if (scenario->layout.chunks == chunks) {
        return;
    }
    scenario->layout.chunks = chunks;
    if (scenario->cuts_layers) {
        layers = sp_calloc((size_t)sp_layout_vstages(&scenario->layout), sizeof *layers);
        sp_layout_level(&scenario->layout, scenario->model.layers, 0.0, 0.0, NULL, NULL, layers);
    }
    sp_scenario_take_cut(scenario, chunks, layers);
}

static sp_status resolve(const sp_strategy *strategy, sp_scenario *scenario, bool compared,
                         sp_error *err)
{
    if (strategy->brings_exchange || strategy->rings) {
        return sp_i_take_exchange(strategy, scenario, err);
    }
    if (!strategy->brings_order) {
        return SP_OK;
    }
    sp_schedule_spec *schedule = &scenario->schedule;
    if (scenario->schedule_given && schedule->kind != strategy->schedule && !compared) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "schedule.kind",
                           "is \"%s\", but strategy \"%s\" brings its own order, \"%s\"",
                           sp_schedule_names[schedule->kind], strategy->name,
                           sp_schedule_names[strategy->schedule]);
    }
    if (schedule->kind != strategy->schedule && !scenario->chunks_given) {
        int chunks = sp_schedule_traits_of(strategy->schedule).chunks;
        take_chunks(scenario, chunks > 1 ? chunks : 1);
    }
    schedule->kind = strategy->schedule;
    schedule->split_backward = strategy->split_backward;
    if (schedule->slices == 0) {
        schedule->slices = scenario->layout.pp;
    }
    sp_status status = sp_scenario_resolve_layout(scenario, err);
    if (status == SP_OK && strategy->choose_exchange != NULL) {
        status = strategy->choose_exchange(scenario, err);
    }
    if (status == SP_OK && strategy->choose_chunks != NULL) {
        status = strategy->choose_chunks(scenario, err);
    }
    return status == SP_OK ? sp_scenario_set_order(scenario, err) : status;
}
