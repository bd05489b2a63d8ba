#include "experiments/execution/remote.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "sim/base/files.h"
#include "sim/base/json.h"
#include "sim/base/units.h"

void sp_case_file_name(const sp_scenario_case *of, size_t index, char name[SP_CASE_FILE])
{
    int used = snprintf(name, SP_CASE_FILE, "%02zu", index + 1);
    size_t end = (size_t)used;
    bool gap = true;
    for (const char *c = of->name; *c != '\0' && end + 2 < SP_CASE_FILE; c++) {
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
static json_t *scenario_of(const sp_scenario_case *of, const sp_backend *backend)
{
    json_t *scenario = json_copy((json_t *)(uintptr_t)of->scenario.resolved);
    const char *stack = sp_backend_stack(backend);
    if (!of->scenario.stack_given && stack != NULL) {
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

static sp_status write_plan(const sp_scenario_case *of, const sp_execution_options *options,
                            exporter *e, sp_case_outcome *outcome, sp_error *err)
{
    sp_execution_options own = *options;
    json_t *scenario = scenario_of(of, options->backend);
    own.executed = NULL;
    own.record = NULL;
    own.taker = write_batch;
    own.taker_context = e;
    sp_status status = sp_plan_json_begin(e->file, scenario, err);
    json_decref(scenario);
    status = status == SP_OK ? sp_set_run_case(of, &own, outcome, err) : status;
    return status == SP_OK ? sp_plan_json_end(e->file, err) : status;
}

sp_status sp_set_export_case(const sp_scenario_case *of, const sp_execution_options *options,
                             const char *path, sp_case_outcome *outcome, sp_error *err)
{
    sp_output out;
    sp_status status = sp_output_open(&out, path, err);
    if (status != SP_OK) {
        return status;
    }
    exporter e = {.file = out.file};
    status = write_plan(of, options, &e, outcome, err);
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
    // What stays where this process is stopped from outside, or crashes.
    (void)sp_error_set(&failed, SP_ERR_INTERNAL, "the execution did not end");
    sp_status status =
        sp_is_stream(path) ? SP_OK : write_record(path, new_record(in, options, &failed), err);
    if (status != SP_OK) {
        return status;
    }
    sp_error_clear(&failed);
    own.record = new_record(in, options, NULL);
    if (own.record == NULL) {
        return sp_error_no_memory(err, "a record");
    }
    status = sp_execution_run(&in->scenario, &own, execution, &failed);
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

// What a plan is executed by is to be what its case has now.
static sp_status compare_scenarios(json_t *executed, json_t *now, const char *source, sp_error *err)
{
    static const char *const parts[] = {"model", "parallel", "memory", "stack"};
    sp_status status = SP_OK;
    for (size_t i = 0; status == SP_OK && i < sizeof parts / sizeof *parts; i++) {
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
        status = sp_error_in(err, SP_ERR_CONTENT, source, place,
                             "executed with %s, the scenario has %s", texts[0], texts[1]);
    }
    return status;
}

sp_status sp_set_read_executed(const sp_scenario_case *of, const sp_backend *backend,
                               const char *path, sp_result_file *executed, sp_error *err)
{
    json_t *root = NULL;
    *executed = (sp_result_file){0};
    sp_status status = sp_json_read_file(path, 0, &root, err);
    if (status != SP_OK) {
        return status;
    }
    json_t *scenario =
        json_object_get(json_object_get(json_object_get(root, "request"), "plan"), "scenario");
    json_t *now = scenario_of(of, backend);
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
    return sp_result_json_read(root, path, &of->scenario.layout, executed, err);
}
