#include "experiments/execution/set_validation.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"

const char *const sp_case_status_names[] = {"ok",     "oom", "infeasible", "cannot execute",
                                            "failed", NULL};

static uint32_t categories_that_differ(const sp_execution *execution)
{
    size_t ranks = (size_t)execution->measured.layout.dp * (size_t)execution->measured.layout.pp;
    uint32_t differs = 0;
    for (size_t r = 0; r < ranks; r++) {
        const sp_held_memory *held = &execution->held[r];
        for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
            bool equal = held->predicted.of[c] == held->measured.of[c];
            differs |= equal ? 0 : UINT32_C(1) << c;
        }
    }
    return differs;
}

static void take_predicted(const sp_execution *execution, sp_case_outcome *outcome)
{
    const sp_result *predicted = &execution->predicted;
    outcome->status = sp_result_is_oom(predicted) ? SP_CASE_OOM : SP_CASE_OK;
    outcome->predicted_ms = sp_result_iteration_ms(predicted);
    outcome->predicted_bubble = sp_result_bubble_ratio(predicted);
    outcome->predicted_peak_bytes = predicted->peak_bytes;
}

static void take_figures(const sp_execution *execution, sp_case_outcome *outcome)
{
    const sp_result *measured = &execution->measured;
    if (sp_result_is_oom(measured)) {
        outcome->status = SP_CASE_OOM;
    }
    snprintf(outcome->device, sizeof outcome->device, "%s", execution->device.name);
    outcome->measured_ms = sp_result_iteration_ms(measured);
    outcome->measured_bubble = sp_result_bubble_ratio(measured);
    outcome->measured_peak_bytes = measured->peak_bytes;
    outcome->error = sp_execution_compare(execution);
    outcome->memory_compared = execution->held != NULL;
    outcome->memory_differs = execution->held != NULL ? categories_that_differ(execution) : 0;
}

sp_status sp_set_run_case(const sp_scenario_case *of, const sp_execution_options *options,
                          sp_case_outcome *outcome, sp_error *err)
{
    sp_execution execution = {0};
    sp_error reason = {0};
    *outcome =
        (sp_case_outcome){.of = of, .clock = options->clock, .speed = (double)NAN, .runs = 1};
    sp_status status = sp_execution_run(&of->scenario, options, &execution, &reason);
    switch (status) {
    case SP_OK:
        take_predicted(&execution, outcome);
        if (options->taker == NULL) {
            take_figures(&execution, outcome);
        }
        break;
    case SP_ERR_INFEASIBLE:
        outcome->status = SP_CASE_INFEASIBLE;
        break;
    case SP_ERR_CONTENT:
        outcome->status = SP_CASE_CANNOT_EXECUTE;
        break;
    case SP_ERR_DEADLOCK:
    case SP_ERR_LIMIT:
    case SP_ERR_INTERNAL:
        outcome->status = SP_CASE_FAILED;
        break;
    case SP_ERR_USAGE:
    case SP_ERR_IO:
    case SP_ERR_SYNTAX:
    case SP_ERR_ACCESS:
    case SP_ERR_SYSTEM:
    case SP_ERR_NO_MEMORY:
    case SP_ERR_STOPPED:
        return sp_error_set(err, status, "%s: %s: %.400s", of->group, of->name,
                            reason.count > 0 ? reason.message[0] : sp_status_text(status));
    }
    if (status != SP_OK) {
        snprintf(outcome->reason, sizeof outcome->reason, "%s",
                 reason.count > 0 ? reason.message[0] : sp_status_text(status));
    }
    sp_execution_fini(&execution);
    return SP_OK;
}

bool sp_case_memory_is_exact(const sp_case_outcome *outcome)
{
    const uint32_t work_spaces = UINT32_C(1) << SP_MEM_WORKSPACE;
    return outcome->memory_compared && (outcome->memory_differs & ~work_spaces) == 0;
}

// ---- all cases ----

bool sp_case_has_figures(const sp_case_outcome *outcome)
{
    return outcome->status == SP_CASE_OK || outcome->status == SP_CASE_OOM;
}

// A figure that is not known is outside every bound.
static bool within(double figure, double bound)
{
    return bound < 0.0 || figure <= bound;
}

void sp_set_summarize(const sp_case_outcome *outcomes, size_t count,
                      const sp_scenario_set_bounds *bounds, sp_set_summary *summary)
{
    double time = 0.0;
    double bias = 0.0;
    double bubble = 0.0;
    double peak = 0.0;
    size_t peaks = 0;
    *summary = (sp_set_summary){0};
    for (size_t i = 0; i < count; i++) {
        const sp_case_outcome *o = &outcomes[i];
        summary->of_status[o->status]++;
        if (!sp_case_has_figures(o)) {
            continue;
        }
        summary->compared++;
        time += fabs(o->error.iteration_time);
        bias += o->error.iteration_time;
        bubble = fmax(bubble, fabs(o->error.bubble_ratio));
        if (isfinite(o->error.peak_memory_mape)) {
            peak += o->error.peak_memory_mape;
            peaks++;
        }
        if (isfinite(o->speed)) {
            bool first = summary->speeds++ == 0;
            summary->steady += o->steady;
            summary->least_speed = first ? o->speed : fmin(summary->least_speed, o->speed);
            summary->most_speed = first ? o->speed : fmax(summary->most_speed, o->speed);
        }
        summary->memory_compared += o->memory_compared;
        summary->memory_exact += sp_case_memory_is_exact(o);
    }
    double compared = (double)summary->compared;
    summary->iteration_time_mape = compared > 0.0 ? time / compared : (double)NAN;
    summary->iteration_time_bias = compared > 0.0 ? bias / compared : (double)NAN;
    summary->largest_bubble_error = compared > 0.0 ? bubble : (double)NAN;
    summary->peak_memory_mape = peaks > 0 ? peak / (double)peaks : (double)NAN;
    summary->within_bounds = within(summary->iteration_time_mape, bounds->iteration_time_mape) &&
                             within(summary->largest_bubble_error, bounds->bubble_ratio_abs) &&
                             within(summary->peak_memory_mape, bounds->peak_memory_mape);
}

// ---- runs at the speed of the profile ----

// Is the speed of the reference work that of the profile? `speed` of the two together, before and
// after a run.
static bool is_steady(double profile_s, double before_s, double after_s, double *speed)
{
    *speed = 2.0 * profile_s / (before_s + after_s);
    return fabs(profile_s / before_s - 1.0) <= SP_STEADY_SPEED &&
           fabs(profile_s / after_s - 1.0) <= SP_STEADY_SPEED;
}

static sp_status run_once(const sp_scenario_case *of, const sp_execution_options *options,
                          sp_case_outcome *outcome, sp_error *err)
{
    double profile_s = of->scenario.profile.reference_s;
    int64_t all = sp_layout_ranks(&of->scenario.layout);
    int ranks = options->clock == SP_CLOCK_WALL ? (int)all : 0;
    double before_s = 0.0;
    double after_s = 0.0;
    sp_status status = SP_OK;
    if (profile_s > 0.0) {
        status = sp_backend_reference(options->backend, options->device, ranks, &before_s, err);
    }
    if (status == SP_OK) {
        status = sp_set_run_case(of, options, outcome, err);
    }
    if (status == SP_OK && before_s > 0.0) {
        status = sp_backend_reference(options->backend, options->device, ranks, &after_s, err);
        outcome->steady = is_steady(profile_s, before_s, after_s, &outcome->speed);
    }
    return status;
}

// Of runs of one kind the one of median time; of equal ones the earlier counts as the faster.
static const sp_case_outcome *median(const sp_case_outcome *runs, int count, bool steady)
{
    const sp_case_outcome *found = &runs[0];
    for (int i = 0; i < count; i++) {
        int faster = 0;
        int among = 0;
        for (int k = 0; k < count; k++) {
            double more_ms = runs[k].measured_ms - runs[i].measured_ms;
            among += runs[k].steady == steady;
            faster += runs[k].steady == steady && (k < i ? more_ms <= 0.0 : more_ms < 0.0);
        }
        found = runs[i].steady == steady && faster == (among - 1) / 2 ? &runs[i] : found;
    }
    return found;
}

const sp_case_outcome *sp_set_steady_run(const sp_case_outcome *runs, int count)
{
    int steady = 0;
    int known = 0;
    const sp_case_outcome *nearest = &runs[0];
    for (int i = 0; i < count; i++) {
        steady += runs[i].steady;
        known += isfinite(runs[i].speed) != 0;
        if (fabs(log(runs[i].speed)) < fabs(log(nearest->speed))) {
            nearest = &runs[i];
        }
    }
    if (steady > 0) {
        return median(runs, count, true);
    }
    return known > 0 ? nearest : median(runs, count, false);
}

sp_status sp_set_run_steady_case(const sp_scenario_case *of, const sp_execution_options *options,
                                 int repeat, sp_case_outcome *outcome, sp_error *err)
{
    int most = SP_RUNS_PER_REPEAT * repeat;
    int count = 0;
    int good = 0;
    sp_case_outcome *runs = sp_calloc((size_t)most, sizeof *runs);
    sp_status status = SP_OK;
    bool figures = true;
    while (status == SP_OK && figures && count < most && good < repeat) {
        sp_case_outcome *run = &runs[count];
        status = run_once(of, options, run, err);
        figures = status == SP_OK && sp_case_has_figures(run);
        good += run->steady || !isfinite(run->speed);
        count += status == SP_OK;
    }
    if (status == SP_OK) {
        // One that broke is what is to be said of the case.
        *outcome = figures ? *sp_set_steady_run(runs, count) : runs[count - 1];
        outcome->runs = count;
    }
    sp_free(runs);
    return status;
}

// ---- JSON ----

static json_t *figures_json(double iteration_ms, double bubble_ratio, int64_t peak_bytes)
{
    return json_pack("{s:o, s:o, s:o}", "iteration_ms", sp_json_figure(iteration_ms),
                     "bubble_ratio", sp_json_figure(bubble_ratio), "peak_memory_gib",
                     sp_json_figure(sp_gib_from_bytes(peak_bytes)));
}

static json_t *differing_json(uint32_t differs)
{
    json_t *names = json_array();
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        if ((differs >> c & 1u) != 0) {
            json_array_append_new(names, json_string(sp_memory_category_names[c]));
        }
    }
    return names;
}

static json_t *parallel_json(const sp_layout *layout)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i}", "tp", layout->tp, "cp", layout->cp, "pp",
                     layout->pp, "dp", layout->dp, "chunks_per_rank", layout->chunks);
}

static void put_figures(json_t *object, const sp_case_outcome *o)
{
    json_t *measured = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:i, s:o, s:o}", "profile", o->of->scenario.profile.name,
        "predicted", figures_json(o->predicted_ms, o->predicted_bubble, o->predicted_peak_bytes),
        "measured", figures_json(o->measured_ms, o->measured_bubble, o->measured_peak_bytes),
        "error", sp_execution_error_json(&o->error), "speed", sp_json_figure(o->speed), "steady",
        isfinite(o->speed) ? json_boolean(o->steady) : json_null(), "runs", o->runs, "memory_exact",
        o->memory_compared ? json_boolean(sp_case_memory_is_exact(o)) : json_null(),
        "memory_differs", differing_json(o->memory_differs));
    json_object_update(object, measured);
    json_decref(measured);
}

// A reason that is not UTF-8 has no place in JSON: its key is left out.
static json_t *case_json(const sp_case_outcome *outcome)
{
    const sp_scenario *scenario = &outcome->of->scenario;
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:o*, s:o, s:s, s:s, s:s}", "group", outcome->of->group, "name",
        outcome->of->name, "status", sp_case_status_names[outcome->status], "reason",
        sp_json_text_or_null(outcome->reason), "parallel", parallel_json(&scenario->layout),
        "schedule", sp_schedule_names[scenario->schedule.kind], "strategy", scenario->strategy.kind,
        "clock", sp_clock_names[outcome->clock]);
    if (sp_case_has_figures(outcome)) {
        put_figures(object, outcome);
    }
    return object;
}

static json_t *bound_json(double bound)
{
    return bound >= 0.0 ? json_real(bound) : json_null();
}

static json_t *summary_json(const sp_set_summary *s, const sp_scenario_set_bounds *bounds)
{
    json_t *of_status = json_object();
    for (int i = 0; i < SP_CASE_STATUSES; i++) {
        sp_json_put(of_status, sp_case_status_names[i], json_integer((json_int_t)s->of_status[i]));
    }
    json_t *stated =
        json_pack("{s:o, s:o, s:o}", "iteration_time_mape", bound_json(bounds->iteration_time_mape),
                  "bubble_ratio_abs", bound_json(bounds->bubble_ratio_abs), "peak_memory_mape",
                  bound_json(bounds->peak_memory_mape));
    return json_pack("{s:o, s:I, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:b}", "cases",
                     of_status, "compared", (json_int_t)s->compared, "iteration_time_mape",
                     sp_json_figure(s->iteration_time_mape), "iteration_time_bias",
                     sp_json_figure(s->iteration_time_bias), "bubble_ratio_abs",
                     sp_json_figure(s->largest_bubble_error), "peak_memory_mape",
                     sp_json_figure(s->peak_memory_mape), "memory_exact",
                     (json_int_t)s->memory_exact, "memory_compared", (json_int_t)s->memory_compared,
                     "speeds_known", (json_int_t)s->speeds, "steady", (json_int_t)s->steady,
                     "bounds", stated, "within_bounds", (int)s->within_bounds);
}

json_t *sp_set_validation_json(const sp_case_outcome *outcomes, size_t count,
                               const sp_execution_options *options, int repeat,
                               const sp_scenario_set_bounds *bounds)
{
    sp_set_summary summary;
    const char *device = "";
    json_t *cases = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(cases, case_json(&outcomes[i]));
        device = outcomes[i].device[0] != '\0' ? outcomes[i].device : device;
    }
    sp_set_summarize(outcomes, count, bounds, &summary);
    return json_pack("{s:s, s:o*, s:o*, s:s, s:I, s:i, s:i, s:o, s:o}", "schema",
                     "slimpack/validation/1", "backend",
                     json_string(sp_backend_name(options->backend)), "device", json_string(device),
                     "precision", sp_precision_names[options->precision], "seed",
                     (json_int_t)options->seed, "steps", options->steps, "repeat", repeat, "cases",
                     cases, "summary", summary_json(&summary, bounds));
}
