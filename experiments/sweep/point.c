#include "experiments/sweep/point.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/json.h"
#include "solver/evaluate/evaluate.h"
#include "solver/strategy.h"

// As many digits as all JSON output of the program has.
#define LINE_FLAGS (JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15))

const char *const sweep_status_names[] = {"ok", "oom", "infeasible", "invalid", NULL};

sp_status sweep_worker_init(sweep_worker *worker, const sweep_spec *spec, sp_scenario_cache *files,
                            sweep_batch_cache *cache, sp_error *err)
{
    *worker = (sweep_worker){.spec = spec, .files = files, .cache = cache};
    worker->document = json_deep_copy(spec->document);
    return worker->document != NULL ? SP_OK : sp_error_no_memory(err, "a sweep");
}

void sweep_worker_fini(sweep_worker *worker)
{
    json_decref(worker->document);
    *worker = (sweep_worker){0};
}

// ---- evaluation ----

static sp_status evaluate_scenario(const sweep_worker *worker, const sp_scenario *scenario,
                                   sp_result *result, sweep_status *status, sp_error *err)
{
    static const sp_evaluate_options plain;
    sweep_batch_entry *entry = NULL;
    *status = SWEEP_INVALID;
    sp_status found =
        scenario->uniform ? SP_OK : sp_strategy_check(scenario->strategy.kind, "point", err);
    if (found == SP_OK) {
        found = sweep_batch_cache_take(worker->cache, scenario, &entry, err);
    }
    if (found != SP_OK) {
        return found;
    }
    found = sp_evaluate(scenario, sweep_batch_entry_batches(entry), &plain, result, err);
    sweep_batch_cache_give(worker->cache, entry);
    *status = SWEEP_INFEASIBLE;
    if (found == SP_OK) {
        *status = sp_result_is_oom(result) ? SWEEP_OOM : SWEEP_OK;
    }
    return found;
}

// The result's keys, all null where there is none.
static sp_status evaluate(const sweep_worker *worker, const int64_t digit[SWEEP_AXES],
                          json_t **keys, sweep_status *status, char shortage[SP_WARNING_TEXT],
                          sp_error *err)
{
    sp_scenario scenario;
    sp_result result = {0};
    json_t *document = sweep_spec_scenario(worker->spec, worker->document, digit);
    if (document == NULL) {
        return sp_error_no_memory(err, "a point");
    }
    *status = SWEEP_INVALID;
    sp_status found =
        sp_scenario_from_json_cached(document, "point", worker->files, &scenario, err);
    json_decref(document);
    if (found == SP_OK) {
        found = evaluate_scenario(worker, &scenario, &result, status, err);
        *keys = found == SP_OK ? sp_result_json(&result, false) : NULL;
        snprintf(shortage, SP_WARNING_TEXT, "%s", result.oom_diagnosis);
        sp_result_fini(&result);
        sp_scenario_fini(&scenario);
    }
    if (found != SP_OK && !sp_status_is_fatal(found)) {
        *keys = sp_result_json_empty();
        return SP_OK;
    }
    return found;
}

static json_t *make_row(const sweep_worker *worker, const int64_t digit[SWEEP_AXES],
                        sweep_status status, const char *reason, json_t *keys)
{
    json_t *row = json_object();
    bool complete =
        sp_json_put(row, "point", sweep_spec_point(worker->spec, digit)) &&
        sp_json_put(row, "status", json_string(sweep_status_names[status])) &&
        sp_json_put(row, "reason", reason != NULL ? json_string(reason) : json_null()) &&
        sp_json_put(row, "base", json_string(worker->spec->base_tag)) &&
        json_object_update(row, keys) == 0;
    if (!complete) {
        json_decref(row);
        return NULL;
    }
    return row;
}

static char *line_text(const json_t *row)
{
    size_t bytes = json_dumpb(row, NULL, 0, LINE_FLAGS);
    char *line = malloc(bytes + 2);
    if (line == NULL || bytes == 0 || json_dumpb(row, line, bytes, LINE_FLAGS) != bytes) {
        free(line);
        return NULL;
    }
    memcpy(line + bytes, "\n", 2);
    return line;
}

sp_status sweep_evaluate_point(const sweep_worker *worker, const int64_t digit[SWEEP_AXES],
                               char **line, sweep_digest *digest, sp_error *err)
{
    sp_error reason;
    sp_error_clear(&reason);
    json_t *keys = NULL;
    sweep_status status = SWEEP_INVALID;
    const char *expected;
    *line = NULL;
    char shortage[SP_WARNING_TEXT] = "";
    sp_status found = evaluate(worker, digit, &keys, &status, shortage, &reason);
    if (found != SP_OK) {
        return sp_error_set(err, found, "%s",
                            reason.count > 0 ? reason.message[0] : sp_status_text(found));
    }
    const char *text = reason.count > 0 ? reason.message[0] : shortage[0] != '\0' ? shortage : NULL;
    json_t *row = make_row(worker, digit, status, text, keys);
    if (row != NULL) {
        *line = line_text(row);
        SP_ASSERT(sweep_digest_read(row, digest, &expected));
    }
    json_decref(keys);
    json_decref(row);
    return *line != NULL ? SP_OK : sp_error_no_memory(err, "a line of results");
}

// ---- lines ----

static double figure(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? text : "";
}

bool sweep_digest_read(const json_t *row, sweep_digest *digest, const char **expected)
{
    *digest = (sweep_digest){.status = SWEEP_STATUSES};
    const char *status = json_string_value(json_object_get(row, "status"));
    for (int s = 0; status != NULL && sweep_status_names[s] != NULL; s++) {
        if (strcmp(status, sweep_status_names[s]) == 0) {
            digest->status = (sweep_status)s;
        }
    }
    *expected = "an object with a point";
    if (!json_is_object(json_object_get(row, "point"))) {
        return false;
    }
    *expected = "a status: ok, oom, infeasible or invalid";
    if (digest->status == SWEEP_STATUSES) {
        return false;
    }
    digest->iteration_ms = figure(row, "iteration_ms");
    digest->tokens_per_s = figure(row, "tokens_per_s");
    digest->tokens_per_gpu_s = figure(row, "tokens_per_gpu_s");
    digest->tflops_per_gpu = figure(row, "tflops_per_gpu");
    digest->mfu_full_attention = figure(row, "mfu_full_attention");
    digest->mfu = figure(row, "mfu");
    digest->peak_memory_gib = figure(row, "peak_memory_gib");
    digest->memory_margin_gib = figure(row, "memory_margin_gib");
    digest->median_error = figure(json_object_get(row, "error"), "median");
    const char *fits = text_of(row, "fits");
    digest->fits = SP_FITS_NONE;
    for (int f = 0; sp_fits_names[f] != NULL; f++) {
        digest->fits = strcmp(fits, sp_fits_names[f]) == 0 ? (sp_fits)f : digest->fits;
    }
    snprintf(digest->not_validated, sizeof digest->not_validated, "%s",
             text_of(row, "not_validated"));
    snprintf(digest->reason, sizeof digest->reason, "%s", text_of(row, "reason"));
    return true;
}

char *sweep_point_text(const json_t *point)
{
    return json_dumps(point, LINE_FLAGS);
}
