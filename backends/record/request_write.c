#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/record/request.h"
#include "backends/record/request_links.h"
#include "backends/record/request_settings.h"

static sp_status check_contents(const sp_run_request *run, sp_error *err)
{
    if (run->model == NULL) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: uniform costs cannot be executed on another machine",
                            run->source != NULL ? run->source : "plan");
    }
    if (run->seed > INT64_MAX) {
        return sp_error_set(err, SP_ERR_CONTENT, "seed: expected at most 2^63 - 1, got %llu",
                            (unsigned long long)run->seed);
    }
    for (size_t o = 0; o < run->option_count; o++) {
        for (size_t k = 0; k < o; k++) {
            if (strcmp(run->options[o].key, run->options[k].key) == 0) {
                return sp_error_set(err, SP_ERR_CONTENT, "option '%.64s' is given twice",
                                    run->options[o].key);
            }
        }
    }
    return SP_OK;
}

static json_t *options_json(const sp_run_request *run)
{
    json_t *options = json_object();
    bool ok = options != NULL;
    for (size_t o = 0; ok && o < run->option_count; o++) {
        ok = sp_json_put(options, run->options[o].key, json_string(run->options[o].value));
    }
    if (!ok) {
        json_decref(options);
        return NULL;
    }
    return options;
}

// All of a request but its plan.
static json_t *head_json(const char *backend, const sp_run_request *run)
{
    static const sp_memory_options none;
    const sp_memory_options *memory = run->memory != NULL ? run->memory : &none;
    json_t *head = json_object();
    bool ok = sp_json_put(head, "schema", json_string("slimpack/execution-request/1")) &&
              sp_json_put(head, "backend", json_string(backend)) &&
              sp_json_put(head, "clock", json_string(sp_clock_names[run->clock])) &&
              sp_json_put(head, "precision", json_string(sp_precision_names[run->precision])) &&
              sp_json_put(head, "seed", json_integer((json_int_t)run->seed)) &&
              sp_json_put(head, "steps", json_integer(run->steps)) &&
              sp_json_put(head, "memory_limit_bytes", json_integer(run->memory_limit_bytes)) &&
              sp_json_put(head, "timeout_ns", json_integer(run->timeout_ns)) &&
              sp_json_put(head, "memory_points", json_boolean(run->memory_points)) &&
              sp_json_put(head, "options", options_json(run)) &&
              sp_json_put(head, "parallel", sp_i_layout_json(&run->plan->layout)) &&
              sp_json_put(head, "model", sp_model_to_json(run->model)) &&
              sp_json_put(head, "memory", sp_i_memory_json(memory));
    if (!ok) {
        json_decref(head);
        return NULL;
    }
    return head;
}

static sp_status check_written(FILE *file, sp_error *err)
{
    return ferror(file) == 0
               ? SP_OK
               : sp_error_set(err, SP_ERR_IO, "cannot write the request: %s", strerror(errno));
}

sp_status sp_request_json_begin(FILE *file, const char *backend, const sp_run_request *run,
                                const json_t *scenario, sp_error *err)
{
    sp_status status = check_contents(run, err);
    if (status != SP_OK) {
        return status;
    }
    json_t *head = head_json(backend, run);
    char *text = head != NULL ? json_dumps(head, JSON_REAL_PRECISION(17)) : NULL;
    json_decref(head);
    if (text == NULL) {
        return sp_error_no_memory(err, "a request");
    }
    // Plans are written as they come: their object and what follows it are put before the closing
    // brace.
    fwrite(text, 1, strlen(text) - 1, file);
    free(text);
    fputs(",\n\"plan\": ", file);
    status = check_written(file, err);
    return status == SP_OK ? sp_plan_json_begin(file, scenario, err) : status;
}

sp_status sp_request_json_batch(FILE *file, int index, const sp_plan *plan, sp_error *err)
{
    const sp_plan_predictions none = {.lower_bound_ms = -1.0, .predicted_ms = -1.0};
    return sp_plan_json_batch(file, index, plan, none, err);
}

sp_status sp_request_links_add(json_t **links, const sp_run_request *run, sp_error *err)
{
    const sp_link_times times = sp_run_request_links(run);
    if (times.crosses_nodes == NULL) {
        return SP_OK;
    }
    *links = *links != NULL ? *links : json_array();
    return json_array_append_new(*links, sp_i_links_json(&times, run->plan->layout.pp)) == 0
               ? SP_OK
               : sp_error_no_memory(err, "the times of links");
}

sp_status sp_request_json_end(FILE *file, const json_t *links, sp_error *err)
{
    sp_status status = sp_plan_json_end(file, err);
    char *text = status == SP_OK && links != NULL ? json_dumps(links, JSON_COMPACT) : NULL;
    if (status == SP_OK && links != NULL && text == NULL) {
        return sp_error_no_memory(err, "the times of links");
    }
    if (text != NULL) {
        fprintf(file, ",\n\"links\": %s", text);
    }
    free(text);
    fputs("}\n", file);
    fflush(file);
    return status == SP_OK ? check_written(file, err) : status;
}
