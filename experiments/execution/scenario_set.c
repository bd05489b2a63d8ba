// Sets of scenarios (slimpack/validation-set/1): predicted and executed, or written as plans for
// another machine and read back.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/execution/execution.h"
#include "sim/base/alloc.h"
#include "sim/base/files.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "solver/strategy.h"

typedef struct set_reader {
    sp_scenario_set *set;
    const char *source;
    const json_t *base;
    const char *const *overrides;
    int override_count;
    sp_error *err;
} set_reader;

bool sp_is_scenario_set(const json_t *document)
{
    const char *schema = json_string_value(json_object_get(document, "schema"));
    return schema != NULL && strcmp(schema, SP_SCENARIO_SET_SCHEMA) == 0;
}

void sp_scenario_set_fini(sp_scenario_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        sp_scenario_fini(&set->cases[i].scenario);
    }
    sp_free(set->cases);
    json_decref(set->document);
    *set = (sp_scenario_set){0};
}

// ---- one case ----

// Each member is a dotted path and its value. No setting that is missing is an error here.
static sp_status apply(const set_reader *reader, json_t *scenario, const json_t *settings)
{
    const char *path;
    json_t *value;
    sp_status status = SP_OK;
    json_object_foreach ((json_t *)(uintptr_t)settings, path, value) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        json_t *assignment = json_sprintf("%s=%s", path, text);
        free(text);
        if (status == SP_OK) {
            status = sp_scenario_override(scenario, json_string_value(assignment), reader->err);
        }
        json_decref(assignment);
    }
    return status;
}

static sp_status read_scenario(const set_reader *reader, const json_t *group_settings,
                               const json_t *settings, sp_scenario_case *scenario_case)
{
    char source[SP_SOURCE_NAME];
    snprintf(source, sizeof source, "%s: %s: %s", reader->source, scenario_case->group,
             scenario_case->name);
    json_t *document = json_deep_copy(reader->base);
    sp_status status = sp_scenario_place(document, reader->source, reader->err);
    if (status == SP_OK) {
        status = apply(reader, document, group_settings);
    }
    if (status == SP_OK) {
        status = apply(reader, document, settings);
    }
    if (status == SP_OK) {
        status = sp_scenario_from_json(document, source, reader->overrides, reader->override_count,
                                       &scenario_case->scenario, reader->err);
    }
    json_decref(document);
    if (status != SP_OK) {
        return status;
    }
    reader->set->count++;
    return sp_strategy_resolve(&scenario_case->scenario, false, reader->err);
}

// ---- the document ----

static const char *clock_of(sp_object *object, const char *fallback)
{
    bool given = sp_object_has(object, "clock");
    int index = sp_object_enum(object, "clock", sp_clock_names, 0);
    return given ? sp_clock_names[index] : fallback;
}

// Settings that the cases of a group have in common.
typedef struct group_settings {
    const char *name, *clock;
    const json_t *settings;
} group_settings;

static sp_status read_case(set_reader *reader, sp_object *group, const group_settings *shared,
                           size_t index)
{
    sp_object object;
    sp_object settings;
    sp_scenario_case *scenario_case = &reader->set->cases[reader->set->count];
    sp_object_item(group, "cases", index, &object);
    sp_object_require(&object, "name");
    scenario_case->group = shared->name;
    scenario_case->name = sp_object_string(&object, "name", "");
    scenario_case->clock = clock_of(&object, shared->clock);
    sp_object_member(&object, "set", &settings);
    sp_object_end(&object);
    if (reader->err->status != SP_OK) {
        return reader->err->status;
    }
    return read_scenario(reader, shared->settings, settings.json, scenario_case);
}

static const json_t *filled_array(sp_object *object, const char *key)
{
    const json_t *array = sp_object_get(object, key);
    if (json_array_size(array) == 0) {
        sp_object_error(object, key, "expected an array that is not empty");
    }
    return array;
}

static sp_status read_group(set_reader *reader, sp_object *root, size_t index)
{
    sp_object group;
    sp_object settings;
    sp_object_item(root, "groups", index, &group);
    sp_object_require(&group, "name");
    group_settings shared = {.name = sp_object_string(&group, "name", "")};
    shared.clock = clock_of(&group, NULL);
    sp_object_member(&group, "set", &settings);
    shared.settings = settings.json;
    const json_t *cases = filled_array(&group, "cases");
    sp_object_end(&group);
    SP_TRY(reader->err->status);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        SP_TRY(read_case(reader, &group, &shared, i));
    }
    return SP_OK;
}

static void read_bounds(sp_object *root, sp_scenario_set_bounds *bounds)
{
    sp_object object;
    sp_object_member(root, "bounds", &object);
    bounds->iteration_time_mape = sp_object_real(&object, "iteration_time_mape", -1.0, 0.0, 1.0);
    bounds->bubble_ratio_abs = sp_object_real(&object, "bubble_ratio_abs", -1.0, 0.0, 1.0);
    bounds->peak_memory_mape = sp_object_real(&object, "peak_memory_mape", -1.0, 0.0, 1.0);
    sp_object_end(&object);
}

static size_t count_cases(const json_t *groups)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(groups); i++) {
        count += json_array_size(json_object_get(json_array_get(groups, i), "cases"));
    }
    return count;
}

static sp_status read_set(set_reader *reader)
{
    sp_scenario_set *set = reader->set;
    sp_object root;
    sp_object_begin(&root, set->document, reader->source, "", reader->err);
    sp_object_require_all(&root, "schema", "base");
    sp_object_string(&root, "schema", "");
    reader->base = sp_object_get(&root, "base");
    read_bounds(&root, &set->bounds);
    const json_t *groups = filled_array(&root, "groups");
    sp_object_end(&root);
    if (reader->err->status != SP_OK) {
        return reader->err->status;
    }
    // Scenarios hold pointers into themselves: they never move.
    set->cases = sp_calloc(count_cases(groups) + 1, sizeof *set->cases);
    for (size_t i = 0; i < json_array_size(groups); i++) {
        SP_TRY(read_group(reader, &root, i));
    }
    return SP_OK;
}

sp_status sp_scenario_set_from_json(json_t *document, const char *source,
                                    const char *const *overrides, int override_count,
                                    sp_scenario_set *set, sp_error *err)
{
    sp_error own = {0};
    *set = (sp_scenario_set){.document = document};
    set_reader reader = {.set = set,
                         .source = source,
                         .overrides = overrides,
                         .override_count = override_count,
                         .err = err != NULL ? err : &own};
    sp_status status = read_set(&reader);
    if (status != SP_OK) {
        sp_scenario_set_fini(set);
    }
    return status;
}

// ---- Runs ----

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

sp_status sp_set_run_case(const sp_scenario_case *scenario_case,
                          const sp_execution_options *options, sp_case_outcome *outcome,
                          sp_error *err)
{
    sp_execution execution = {0};
    sp_error reason = {0};
    *outcome = (sp_case_outcome){
        .of = scenario_case, .clock = options->clock, .speed = (double)NAN, .runs = 1};
    sp_status status = sp_execution_run(&scenario_case->scenario, options, &execution, &reason);
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
        return sp_error_set(err, status, "%s: %s: %.400s", scenario_case->group,
                            scenario_case->name,
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

static sp_status run_once(const sp_scenario_case *scenario_case,
                          const sp_execution_options *options, sp_case_outcome *outcome,
                          sp_error *err)
{
    double profile_s = scenario_case->scenario.profile.reference_s;
    int64_t all = sp_layout_ranks(&scenario_case->scenario.layout);
    int ranks = options->clock == SP_CLOCK_WALL ? (int)all : 0;
    double before_s = 0.0;
    double after_s = 0.0;
    sp_status status = SP_OK;
    if (profile_s > 0.0) {
        status = sp_backend_reference(options->backend, options->device, ranks, &before_s, err);
    }
    if (status == SP_OK) {
        status = sp_set_run_case(scenario_case, options, outcome, err);
    }
    if (status == SP_OK && before_s > 0.0) {
        status = sp_backend_reference(options->backend, options->device, ranks, &after_s, err);
        outcome->steady = is_steady(profile_s, before_s, after_s, &outcome->speed);
    }
    return status;
}

// Returns the run of median time of one kind; of equal ones the earlier counts as the faster.
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

sp_status sp_set_run_steady_case(const sp_scenario_case *scenario_case,
                                 const sp_execution_options *options, int repeat,
                                 sp_case_outcome *outcome, sp_error *err)
{
    int most = SP_RUNS_PER_REPEAT * repeat;
    int count = 0;
    int good = 0;
    sp_case_outcome *runs = sp_calloc((size_t)most, sizeof *runs);
    sp_status status = SP_OK;
    bool figures = true;
    while (status == SP_OK && figures && count < most && good < repeat) {
        sp_case_outcome *run = &runs[count];
        status = run_once(scenario_case, options, run, err);
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
    return sp_json_object(SP_JSON("iteration_ms", iteration_ms),
                          SP_JSON("bubble_ratio", bubble_ratio),
                          SP_JSON("peak_memory_gib", sp_gib_from_bytes(peak_bytes)));
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
    return sp_json_object(SP_JSON("tp", layout->tp), SP_JSON("cp", layout->cp),
                          SP_JSON("pp", layout->pp), SP_JSON("dp", layout->dp),
                          SP_JSON("chunks_per_rank", layout->chunks));
}

static void put_figures(json_t *object, const sp_case_outcome *o)
{
    json_t *measured = sp_json_object(
        SP_JSON("profile", o->of->scenario.profile.name),
        SP_JSON("predicted",
                figures_json(o->predicted_ms, o->predicted_bubble, o->predicted_peak_bytes)),
        SP_JSON("measured",
                figures_json(o->measured_ms, o->measured_bubble, o->measured_peak_bytes)),
        SP_JSON("error", sp_execution_error_json(&o->error)), SP_JSON("speed", o->speed),
        SP_JSON("steady", isfinite(o->speed) ? json_boolean(o->steady) : json_null()),
        SP_JSON("runs", o->runs),
        SP_JSON("memory_exact",
                o->memory_compared ? json_boolean(sp_case_memory_is_exact(o)) : json_null()),
        SP_JSON("memory_differs", differing_json(o->memory_differs)));
    json_object_update(object, measured);
    json_decref(measured);
}

// A reason that is not UTF-8 has no place in JSON: its key is left out.
static json_t *case_json(const sp_case_outcome *outcome)
{
    const sp_scenario *scenario = &outcome->of->scenario;
    json_t *object =
        sp_json_object(SP_JSON("group", outcome->of->group), SP_JSON("name", outcome->of->name),
                       SP_JSON("status", sp_case_status_names[outcome->status]),
                       SP_JSON("reason", sp_json_text_or_null(outcome->reason)),
                       SP_JSON("parallel", parallel_json(&scenario->layout)),
                       SP_JSON("schedule", sp_schedule_names[scenario->schedule.kind]),
                       SP_JSON("strategy", scenario->strategy.kind),
                       SP_JSON("clock", sp_clock_names[outcome->clock]));
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
        sp_json_object(SP_JSON("iteration_time_mape", bound_json(bounds->iteration_time_mape)),
                       SP_JSON("bubble_ratio_abs", bound_json(bounds->bubble_ratio_abs)),
                       SP_JSON("peak_memory_mape", bound_json(bounds->peak_memory_mape)));
    return sp_json_object(SP_JSON("cases", of_status), SP_JSON("compared", s->compared),
                          SP_JSON("iteration_time_mape", s->iteration_time_mape),
                          SP_JSON("iteration_time_bias", s->iteration_time_bias),
                          SP_JSON("bubble_ratio_abs", s->largest_bubble_error),
                          SP_JSON("peak_memory_mape", s->peak_memory_mape),
                          SP_JSON("memory_exact", s->memory_exact),
                          SP_JSON("memory_compared", s->memory_compared),
                          SP_JSON("speeds_known", s->speeds), SP_JSON("steady", s->steady),
                          SP_JSON("bounds", stated), SP_JSON("within_bounds", s->within_bounds));
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
    return sp_json_object(
        SP_JSON("schema", "slimpack/validation/1"),
        SP_JSON("backend", sp_backend_name(options->backend)), SP_JSON("device", device),
        SP_JSON("precision", sp_precision_names[options->precision]),
        SP_JSON("seed", options->seed), SP_JSON("steps", options->steps), SP_JSON("repeat", repeat),
        SP_JSON("cases", cases), SP_JSON("summary", summary_json(&summary, bounds)));
}

// ---- Cases that another machine executes ----

void sp_case_file_name(const sp_scenario_case *scenario_case, size_t index, char name[SP_CASE_FILE])
{
    int used = snprintf(name, SP_CASE_FILE, "%02zu", index + 1);
    size_t end = (size_t)used;
    bool gap = true;
    for (const char *c = scenario_case->name; *c != '\0' && end + 2 < SP_CASE_FILE; c++) {
        if (!isalnum((unsigned char)*c)) {
            gap = true;
            continue;
        }
        if (gap) {
            name[end++] = '-';
        }
        gap = false;
        name[end++] = (char)tolower((unsigned char)*c);
    }
    name[end] = '\0';
}

// The case's scenario as resolved, with the stack that executes it where none was stated. The
// caller's.
static json_t *scenario_of(const sp_scenario_case *scenario_case, const sp_backend *backend)
{
    json_t *scenario = json_deep_copy((json_t *)(uintptr_t)scenario_case->scenario.resolved);
    const char *stack = sp_backend_stack(backend);
    if (!scenario_case->scenario.stack_given && stack != NULL) {
        sp_json_put(scenario, "stack", json_string(stack));
    }
    return scenario;
}

typedef struct exporter {
    FILE *file;
    int count; // batches written
} exporter;

static sp_status write_batch(void *context, const sp_step_view *predicted, sp_error *err)
{
    exporter *e = context;
    const sp_plan_predictions predictions = {.lower_bound_ms = predicted->lower_bound_ms,
                                             .predicted_ms =
                                                 sp_ms_from_ns(predicted->timeline->iteration_ns)};
    return sp_plan_json_batch(e->file, e->count++, predicted->plan, predictions, err);
}

static sp_status write_plan(const sp_scenario_case *scenario_case,
                            const sp_execution_options *options, const char *path, exporter *e,
                            sp_case_outcome *outcome, sp_error *err)
{
    sp_execution_options own = *options;
    json_t *scenario = scenario_of(scenario_case, options->backend);
    own.executed = NULL;
    own.record = NULL;
    own.taker = write_batch;
    own.taker_context = e;
    sp_status status = sp_scenario_place_in(scenario, path, err);
    status = status == SP_OK ? sp_plan_json_begin(e->file, scenario, err) : status;
    json_decref(scenario);
    status = status == SP_OK ? sp_set_run_case(scenario_case, &own, outcome, err) : status;
    return status == SP_OK ? sp_plan_json_end(e->file, NULL, NULL, err) : status;
}

sp_status sp_set_export_case(const sp_scenario_case *scenario_case,
                             const sp_execution_options *options, const char *path,
                             sp_case_outcome *outcome, sp_error *err)
{
    sp_output out;
    SP_TRY(sp_output_open(&out, path, err));
    exporter e = {.file = out.file};
    sp_status status = write_plan(scenario_case, options, path, &e, outcome, err);
    bool kept = status != SP_OK || sp_case_has_figures(outcome);
    sp_status closed = sp_output_close(&out, kept ? status : SP_ERR_INFEASIBLE, err);
    if (!kept) {
        remove(path); // an earlier plan of the case, which has none now
    }
    return kept ? closed : SP_OK;
}

// ---- execution with a record ----

static json_t *new_record(const sp_plan_input *in, const sp_execution_options *options,
                          const sp_error *failed)
{
    sp_device_info device;
    const sp_run_request run = {.clock = options->clock,
                                .precision = options->precision,
                                .seed = options->seed,
                                .steps = options->steps,
                                .memory_points = options->memory_points,
                                .options = options->options,
                                .option_count = options->option_count};
    bool known = sp_backend_device_info(options->backend, options->device, &device, NULL) == SP_OK;
    return sp_result_document(sp_backend_name(options->backend), &run, in->root,
                              known ? &device : NULL, failed != NULL ? failed->status : SP_OK,
                              failed != NULL ? failed->message[0] : NULL);
}

// `record` is NULL where a text in it is no UTF-8: nothing is written then.
static sp_status write_record(const char *path, json_t *record, sp_error *err)
{
    const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(17); // each number comes back
    sp_output out = {0};
    sp_status status =
        record != NULL ? sp_output_open(&out, path, err) : sp_error_no_memory(err, "a record");
    if (status == SP_OK) {
        errno = 0;
        json_dumpf(record, out.file, flags); // what could not be written shows in the stream
        status = sp_output_close(&out, SP_OK, err);
    }
    json_decref(record);
    return status;
}

sp_status sp_execution_run_recorded(const sp_plan_input *in, const sp_execution_options *options,
                                    const char *path, sp_execution *execution, sp_error *err)
{
    sp_execution_options own = *options;
    sp_error failed = {0};
    own.plans = &in->plans;
    if (path == NULL) {
        sp_status status = sp_execution_run(&in->scenario, &own, execution, err);
        execution->options = options;
        return status;
    }
    // This stays where this process is stopped from outside, or crashes.
    (void)sp_error_set(&failed, SP_ERR_INTERNAL, "the execution did not end");
    SP_TRY(sp_is_stream(path) ? SP_OK : write_record(path, new_record(in, options, &failed), err));
    sp_error_clear(&failed);
    own.record = new_record(in, options, NULL);
    if (own.record == NULL) {
        return sp_error_no_memory(err, "a record");
    }
    sp_status status = sp_execution_run(&in->scenario, &own, execution, &failed);
    execution->options = options;
    if (status == SP_OK) {
        return write_record(path, own.record, err);
    }
    json_decref(own.record);
    *err = failed;
    sp_error unwritten = {0};
    (void)write_record(path, new_record(in, options, &failed), &unwritten);
    return status;
}

// ---- what came back ----

// A plan must have been executed by what its case has now.
static sp_status compare_scenarios(json_t *executed, json_t *now, const char *source, sp_error *err)
{
    static const char *const parts[] = {"model", "parallel", "memory", "stack"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *key;
        const json_t *value;
        const json_t *theirs = json_object_get(executed, parts[i]);
        json_t *ours = json_object_get(now, parts[i]);
        if (json_equal(theirs, ours)) {
            continue;
        }
        char place[SP_JSON_PATH];
        snprintf(place, sizeof place, "%s", parts[i]);
        json_object_foreach (ours, key, value) {
            if (json_is_object(theirs) && !json_equal(json_object_get(theirs, key), value)) {
                snprintf(place, sizeof place, "%s.%s", parts[i], key);
                theirs = json_object_get(theirs, key);
                ours = (json_t *)(uintptr_t)value;
                break;
            }
        }
        char texts[2][80] = {"nothing", "nothing"};
        const json_t *const sides[] = {theirs, ours};
        for (int side = 0; side < 2; side++) {
            if (sides[side] != NULL) {
                sp_json_quote(sides[side], texts[side], sizeof texts[side]);
            }
        }
        SP_TRY(sp_error_in(err, SP_ERR_CONTENT, source, place,
                           "executed with %s, the scenario has %s", texts[0], texts[1]));
    }
    return SP_OK;
}

sp_status sp_set_read_executed(const sp_scenario_case *scenario_case, const sp_backend *backend,
                               const char *path, sp_result_file *executed, sp_error *err)
{
    json_t *root = NULL;
    *executed = (sp_result_file){0};
    SP_TRY(sp_json_read_file(path, 0, &root, err));
    sp_status status = SP_OK;
    json_t *scenario =
        json_object_get(json_object_get(json_object_get(root, "request"), "plan"), "scenario");
    json_t *now = scenario_of(scenario_case, backend);
    const char *name =
        json_string_value(json_object_get(json_object_get(root, "request"), "backend"));
    if (scenario != NULL && name != NULL && strcmp(name, sp_backend_name(backend)) != 0) {
        status = sp_error_in(err, SP_ERR_CONTENT, path, "request.backend",
                             "expected \"%s\", got \"%.40s\"", sp_backend_name(backend), name);
    } else if (scenario != NULL) {
        status = compare_scenarios(scenario, now, path, err);
    }
    json_decref(now);
    if (status != SP_OK) {
        json_decref(root);
        return status;
    }
    return sp_result_json_read(root, path, &scenario_case->scenario.layout, executed, err);
}
