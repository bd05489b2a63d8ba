// Finds other settings that would have let a step fit that is out of memory, or be faster where
// memory is short.
#include <stdio.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/memory/footprint.h"
#include "solver/evaluate/evaluate.h"
#include "solver/evaluate/evaluation.h"
#include "solver/search.h"
#include "solver/strategy.h"

enum {
    MOST_DOUBLINGS = 3, // of a degree of parallelism: what is further is another cluster
    MOST_SEARCHED = 2,  // where a strategy searches by effort, which takes as long each time
    MOST_TRIED = 43,    // settings in all
    MOST_TRIED_SEARCHED = 15,
    PARTS = 5,         // of the most work of a plan, for a setting that a step may need to fit
    MOST_SETTINGS = 2, // that are tried together
    SETTING = 64,
};

#define RECOMPUTE "memory.recompute=full"

static bool searches(const sp_i_evaluation *ev)
{
    return sp_strategy_find(ev->stated->strategy.kind)->by_effort;
}

sp_status sp_evaluate_states(const sp_scenario *scenario, int64_t *bytes, sp_error *err)
{
    const sp_layout *layout = &scenario->layout;
    int vstages = sp_layout_vstages(layout);
    sp_stage *stages = sp_calloc((size_t)vstages, sizeof *stages);
    sp_status status = sp_layout_stages(layout, &scenario->model, scenario->source, stages, err);
    *bytes = 0;
    if (status == SP_OK && scenario->memory_model == SP_MEMORY_TENSORS) {
        sp_bytes all;
        sp_footprint_states(&scenario->model, layout, &scenario->memory.stack, stages, vstages,
                            &all);
        all.of[SP_MEM_WORKSPACE] = 0;
        *bytes = sp_bytes_total(&all) / layout->pp;
    }
    sp_free(stages);
    return status;
}

// The outcome of a setting.
typedef struct trial {
    bool read;     // it goes with the scenario
    int64_t bytes; // peak of the fullest batch; 0: it does not fit, or cannot be planned
    double ms;     // of a mean step that fits
} trial;

// Work of all settings: as much as the plan had, or little where a plan of so many actions has
// ended at its bound.
static int64_t most_tried(const sp_i_evaluation *ev, const sp_batches *batches)
{
    bool curtailed = ev->curtailed || ev->steps.scenario->strategy.curtailed;
    return sp_i_most_work(batches->count) / (curtailed ? PARTS : 1);
}

// The batches stay: no setting that is tried changes them.
static sp_status evaluate(sp_i_evaluation *ev, const sp_batches *batches,
                          const sp_scenario *scenario, trial *found, sp_error *err)
{
    const sp_evaluate_options *stated = ev->steps.options;
    const sp_evaluate_options options = {.no_bounds = true,
                                         .no_causes = true,
                                         .ends_when_oom = true,
                                         .effort_percent = stated->effort_percent,
                                         .threads = stated->threads,
                                         .compared = stated->compared};
    sp_result result = {0};
    int64_t states_bytes = 0;
    sp_status status = sp_evaluate_states(scenario, &states_bytes, err);
    if (status != SP_OK || states_bytes > scenario->memory_limit_bytes) {
        return status;
    }
    status = ev->evaluate(scenario, batches, &options, &result, err);
    if (status == SP_OK && !sp_result_is_oom(&result)) {
        found->bytes = result.peak_bytes;
        found->ms = sp_result_iteration_ms(&result);
    }
    sp_result_fini(&result);
    return status;
}

// At `dp` data-parallel ranks. Only fatal errors are returned.
static sp_status try_settings(sp_i_evaluation *ev, const sp_batches *batches,
                              const char *const *settings, int count, int dp, trial *found,
                              sp_error *err)
{
    sp_error own;
    sp_scenario scenario;
    *found = (trial){0};
    if (ev->tried >= most_tried(ev, batches)) {
        return SP_OK;
    }
    sp_error_clear(&own);
    // At so many data-parallel ranks, whatever they followed from.
    char ranks[SETTING];
    const char *overrides[2 + MOST_SETTINGS] = {"nodes=null", ranks};
    snprintf(ranks, sizeof ranks, "parallel.dp=%d", dp);
    SP_ASSERT(count <= MOST_SETTINGS);
    for (int i = 0; i < count; i++) {
        overrides[2 + i] = settings[i];
    }
    // The limit and the strategy are those of the evaluation, which may have put others in place of
    // what was read. All settings together have no more time than the plan had, and one that fits
    // is planned as it would be by itself, since its time is told.
    const sp_strategy_spec *strategy = &ev->stated->strategy;
    sp_meter meter = {.limit = most_tried(ev, batches) / PARTS};
    bool metered = ev->oom.limit_bytes > 0 && searches(ev) && strategy->time_limit_ms == 0;
    const sp_scenario_changes changes = {
        .overrides = overrides,
        .override_count = 2 + count,
        .strategy = strategy->kind,
        .memory_limit_bytes = ev->stated->memory_limit_bytes,
        .time_limit_ms =
            sp_ceil_div(strategy->time_limit_ms, searches(ev) ? MOST_TRIED_SEARCHED : MOST_TRIED),
        .meter = metered ? &meter : NULL};
    sp_status status = sp_scenario_copy_with(ev->stated, &changes, &scenario, &own);
    if (status == SP_OK) {
        // Batches may follow from the ranks.
        found->read = sp_workload_fills_alike(&scenario.workload, &ev->stated->workload);
        status = found->read ? evaluate(ev, batches, &scenario, found, &own) : SP_OK;
        ev->tried += meter.spent;
        sp_scenario_fini(&scenario);
    }
    return sp_i_only_fatal(status, &own, err);
}

// `same`: on as many GPUs, with fewer data-parallel ranks; experts have places on those that there
// are.
static sp_status try_degree(sp_i_evaluation *ev, const sp_batches *batches, int which,
                            bool recompute, bool same, sp_error *err)
{
    const sp_layout *layout = &ev->stated->layout;
    const int most = searches(ev) ? MOST_SEARCHED : MOST_DOUBLINGS;
    const int stated[SP_OOM_DEGREES] = {sp_layout_ep(layout), layout->tp, layout->cp, layout->pp};
    const bool takes = same && which > 0;
    sp_status status = SP_OK;
    trial found = {.read = true};
    for (int times = 1; status == SP_OK && found.read && found.bytes == 0 && times <= most &&
                        (!takes || layout->dp % (1 << times) == 0);
         times++) {
        char setting[SETTING];
        int degree = stated[which] << times;
        int dp = takes ? layout->dp >> times : layout->dp;
        snprintf(setting, sizeof setting, "parallel.%s=%d", sp_i_oom_degree_names[which], degree);
        status = try_settings(ev, batches, (const char *const[]){setting, RECOMPUTE},
                              recompute ? 2 : 1, dp, &found, err);
        if (found.read) {
            ev->oom.degree[which].degree = degree;
            ev->oom.degree[which].bytes = found.bytes;
            ev->oom.degree[which].dp = takes ? dp : 0;
        }
    }
    return status;
}

// True where one of them fits. More GPUs are asked for where none does on those that there are.
static sp_status try_degrees(sp_i_evaluation *ev, const sp_batches *batches, bool recompute,
                             bool *fits, sp_error *err)
{
    sp_status status = SP_OK;
    bool any = false;
    for (int more = 0; more <= 1 && !any; more++) {
        for (int which = more; status == SP_OK && which < SP_OOM_DEGREES; which++) {
            status = try_degree(ev, batches, which, recompute, more == 0, err);
            any = any || ev->oom.degree[which].bytes > 0;
        }
    }
    *fits = *fits || any;
    return status;
}

sp_status sp_i_oom_settings_find(sp_i_evaluation *ev, const sp_batches *batches, sp_error *err)
{
    bool more = ev->stated->memory.recompute != SP_RECOMPUTE_FULL;
    trial found = {0};
    sp_status status = SP_OK;
    if (ev->stated->stated == NULL) {
        return SP_OK;
    }
    if (more) {
        status = try_settings(ev, batches, (const char *const[]){RECOMPUTE}, 1,
                              ev->stated->layout.dp, &found, err);
        ev->oom.recompute_tried = found.read;
        ev->oom.recompute_bytes = found.bytes;
    }
    bool fits = found.bytes > 0;
    if (status == SP_OK) {
        status = try_degrees(ev, batches, false, &fits, err);
    }
    if (status == SP_OK && found.read && !fits && !searches(ev)) {
        ev->oom.both = true;
        status = try_degrees(ev, batches, true, &fits, err);
    }
    return status;
}

sp_status sp_i_oom_settings_of_refused(sp_i_evaluation *ev, const sp_batches *batches,
                                       sp_error *err)
{
    sp_error own;
    char settings[SP_WARNING_TEXT];
    static const char separator[] = "; ";
    char text[SP_ERROR_TEXT + SP_WARNING_TEXT + sizeof separator];
    sp_error_clear(&own);
    sp_status status = sp_i_oom_settings_find(ev, batches, &own);
    if (status != SP_OK) {
        sp_error_clear(err);
        return sp_error_set(err, status, "%s", own.message[0]);
    }
    sp_oom_diagnosis_settings(&ev->oom, settings);
    if (err != NULL && err->count > 0 && settings[0] != '\0') {
        snprintf(text, sizeof text, "%s%s%s", err->message[0], separator, settings);
        sp_error_clear(err);
        sp_error_set(err, SP_ERR_INFEASIBLE, "%s", text);
    }
    return SP_ERR_INFEASIBLE;
}

sp_status sp_i_recompute_find(sp_i_evaluation *ev, const sp_batches *batches, sp_error *err)
{
    trial found;
    sp_result *result = ev->steps.result;
    const double now_ms = sp_result_iteration_ms(result);
    if (ev->stated->stated == NULL || ev->stated->memory.recompute == SP_RECOMPUTE_FULL) {
        return SP_OK;
    }
    sp_status status = try_settings(ev, batches, (const char *const[]){RECOMPUTE}, 1,
                                    ev->stated->layout.dp, &found, err);
    if (status == SP_OK && found.bytes > 0 && found.ms < now_ms) {
        snprintf(result->settings, sizeof result->settings,
                 "memory.recompute full would take %.3f ms instead of %.3f, in %.2f GiB", found.ms,
                 now_ms, sp_gib_from_bytes(found.bytes));
        sp_warnings_add(&result->warnings, "%s", result->settings);
    }
    return status;
}
