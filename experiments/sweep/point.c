#include "experiments/sweep/point.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "solver/strategy.h"

// What the cache of batches keeps that nobody uses; 16 bytes per sample.
enum { MOST_ENTRIES = 64, MOST_SAMPLES = 4 << 20 };

// As many digits as all JSON output of the program has.
#define LINE_FLAGS (JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15))

const char *const sweep_status_names[] = {"ok", "oom", "infeasible", "invalid", NULL};

sp_status sweep_evaluator_init(sweep_evaluator *evaluator, const sweep_spec *spec, int threads,
                               sp_error *err)
{
    *evaluator = (sweep_evaluator){.spec = spec, .threads = threads};
    evaluator->documents = sp_i_calloc((size_t)threads, sizeof *evaluator->documents);
    bool complete = evaluator->documents != NULL;
    for (int t = 0; complete && t < threads; t++) {
        evaluator->documents[t] = json_deep_copy(spec->document);
        complete = evaluator->documents[t] != NULL;
    }
    sp_status status = complete ? sp_scenario_cache_new(&evaluator->files, err)
                                : sp_error_no_memory(err, "a sweep");
    return status == SP_OK ? sweep_batch_cache_new(&evaluator->batches, err) : status;
}

void sweep_evaluator_fini(sweep_evaluator *evaluator)
{
    for (int t = 0; evaluator->documents != NULL && t < evaluator->threads; t++) {
        json_decref(evaluator->documents[t]);
    }
    sp_i_free((void *)evaluator->documents);
    sweep_batch_cache_free(evaluator->batches);
    sp_scenario_cache_free(evaluator->files);
    *evaluator = (sweep_evaluator){0};
}

// ---- batches ----

struct sweep_batch_entry {
    json_t *workload; // as resolved; owned
    sp_batches batches;
    int64_t samples;
    int users;
    uint64_t used; // count of uses at the last one
    sweep_batch_entry *next;
};

struct sweep_batch_cache {
    pthread_mutex_t mutex;
    sweep_batch_entry *first;
    uint64_t uses;
    int count;
    int64_t samples;
};

sp_status sweep_batch_cache_new(sweep_batch_cache **cache, sp_error *err)
{
    *cache = sp_i_calloc(1, sizeof **cache);
    if (*cache != NULL && pthread_mutex_init(&(*cache)->mutex, NULL) != 0) {
        sp_i_free(*cache);
        *cache = NULL;
    }
    return *cache != NULL ? SP_OK : sp_error_no_memory(err, "a sweep");
}

static void entry_free(sweep_batch_entry *entry)
{
    json_decref(entry->workload);
    sp_batches_fini(&entry->batches);
    sp_i_free(entry);
}

void sweep_batch_cache_free(sweep_batch_cache *cache)
{
    while (cache != NULL && cache->first != NULL) {
        sweep_batch_entry *entry = cache->first;
        cache->first = entry->next;
        entry_free(entry);
    }
    if (cache != NULL) {
        pthread_mutex_destroy(&cache->mutex);
        sp_i_free(cache);
    }
}

const sp_batches *sweep_batch_entry_batches(const sweep_batch_entry *entry)
{
    return &entry->batches;
}

static sweep_batch_entry *find(sweep_batch_cache *cache, const json_t *workload)
{
    for (sweep_batch_entry *entry = cache->first; entry != NULL; entry = entry->next) {
        if (json_equal(entry->workload, workload)) {
            return entry;
        }
    }
    return NULL;
}

static sp_status form_batches(const sp_scenario *scenario, const json_t *workload,
                              sweep_batch_entry **entry, sp_error *err)
{
    sweep_batch_entry *made = sp_i_calloc(1, sizeof *made);
    if (made == NULL) {
        return sp_error_no_memory(err, "batches");
    }
    sp_status status = sp_evaluate_batches(scenario, &made->batches, err);
    // Uniform costs have no workload; null stands for it.
    made->workload = workload != NULL ? json_deep_copy(workload) : json_null();
    if (status == SP_OK && made->workload == NULL) {
        status = sp_error_no_memory(err, "batches");
    }
    for (int b = 0; status == SP_OK && b < made->batches.count; b++) {
        made->samples += (int64_t)made->batches.batch[b].count;
    }
    if (status != SP_OK) {
        entry_free(made);
        return status;
    }
    *entry = made;
    return SP_OK;
}

// Drops what was not used for longest until the bounds are kept.
static void trim(sweep_batch_cache *cache)
{
    while (cache->count > MOST_ENTRIES || cache->samples > MOST_SAMPLES) {
        sweep_batch_entry **oldest = NULL;
        for (sweep_batch_entry **at = &cache->first; *at != NULL; at = &(*at)->next) {
            if ((*at)->users == 0 && (oldest == NULL || (*at)->used < (*oldest)->used)) {
                oldest = at;
            }
        }
        if (oldest == NULL) {
            return;
        }
        sweep_batch_entry *entry = *oldest;
        *oldest = entry->next;
        cache->count--;
        cache->samples -= entry->samples;
        entry_free(entry);
    }
}

sp_status sweep_batch_cache_acquire(sweep_batch_cache *cache, const sp_scenario *scenario,
                                    sweep_batch_entry **entry, sp_error *err)
{
    const json_t *workload = json_object_get(scenario->resolved, "workload");
    sweep_batch_entry *made = NULL;
    pthread_mutex_lock(&cache->mutex);
    sweep_batch_entry *found = find(cache, workload != NULL ? workload : json_null());
    if (found == NULL) {
        pthread_mutex_unlock(&cache->mutex);
        sp_status status = form_batches(scenario, workload, &made, err);
        if (status != SP_OK) {
            return status;
        }
        pthread_mutex_lock(&cache->mutex);
        made->next = cache->first;
        cache->first = made;
        cache->count++;
        cache->samples += made->samples;
        found = made;
    }
    found->users++;
    found->used = ++cache->uses;
    pthread_mutex_unlock(&cache->mutex);
    *entry = found;
    return SP_OK;
}

void sweep_batch_cache_release(sweep_batch_cache *cache, sweep_batch_entry *entry)
{
    pthread_mutex_lock(&cache->mutex);
    entry->users--;
    trim(cache);
    pthread_mutex_unlock(&cache->mutex);
}

// ---- evaluation ----

static sp_status evaluate_scenario(const sweep_evaluator *evaluator, const sp_scenario *scenario,
                                   sp_result *result, sweep_status *status, sp_error *err)
{
    sweep_batch_entry *entry = NULL;
    *status = SWEEP_INVALID;
    sp_status found =
        scenario->uniform ? SP_OK : sp_strategy_check(scenario->strategy.kind, "point", err);
    if (found == SP_OK) {
        found = sweep_batch_cache_acquire(evaluator->batches, scenario, &entry, err);
    }
    if (found != SP_OK) {
        return found;
    }
    found = sp_evaluate(scenario, &entry->batches, &evaluator->options, result, err);
    sweep_batch_cache_release(evaluator->batches, entry);
    *status = SWEEP_INFEASIBLE;
    if (found == SP_OK) {
        *status = sp_result_is_oom(result) ? SWEEP_OOM : SWEEP_OK;
    }
    return found;
}

// The result's keys, all null where there is none.
static sp_status evaluate(const sweep_evaluator *evaluator, int thread,
                          const int64_t digit[SWEEP_AXES], json_t **keys, sweep_status *status,
                          char oom_reason[SP_WARNING_TEXT], sp_error *err)
{
    sp_scenario scenario;
    sp_result result = {0};
    json_t *document = sweep_spec_scenario(evaluator->spec, evaluator->documents[thread], digit);
    if (document == NULL) {
        return sp_error_no_memory(err, "a point");
    }
    *status = SWEEP_INVALID;
    sp_status found =
        sp_scenario_from_json_cached(document, "point", evaluator->files, &scenario, err);
    json_decref(document);
    if (found == SP_OK) {
        found = evaluate_scenario(evaluator, &scenario, &result, status, err);
        *keys = found == SP_OK ? sp_result_json(&result, false) : NULL;
        snprintf(oom_reason, SP_WARNING_TEXT, "%s", result.oom_diagnosis);
        sp_result_fini(&result);
        sp_scenario_fini(&scenario);
    }
    if (found != SP_OK && !sp_status_is_fatal(found)) {
        *keys = sp_result_json_empty();
        return SP_OK;
    }
    return found;
}

static json_t *make_row(const sweep_spec *spec, const int64_t digit[SWEEP_AXES],
                        sweep_status status, const char *reason, json_t *keys)
{
    json_t *row = json_object();
    bool complete =
        sp_json_put(row, "point", sweep_spec_point(spec, digit)) &&
        sp_json_put(row, "status", json_string(sweep_status_names[status])) &&
        sp_json_put(row, "reason", reason != NULL ? json_string(reason) : json_null()) &&
        sp_json_put(row, "base", json_string(spec->base_tag)) && json_object_update(row, keys) == 0;
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

sp_status sweep_evaluate_point(const sweep_evaluator *evaluator, int thread, int64_t combination,
                               char **line, sweep_digest *digest, sp_error *err)
{
    int64_t digit[SWEEP_AXES];
    sweep_spec_digits(evaluator->spec, combination, digit);
    sp_error reason = {0};
    json_t *keys = NULL;
    sweep_status status = SWEEP_INVALID;
    const char *expected;
    *line = NULL;
    char oom_reason[SP_WARNING_TEXT] = "";
    sp_status found = evaluate(evaluator, thread, digit, &keys, &status, oom_reason, &reason);
    if (found != SP_OK) {
        return sp_error_set(err, found, "%s",
                            reason.count > 0 ? reason.message[0] : sp_status_text(found));
    }
    const char *text = reason.count > 0        ? reason.message[0]
                       : oom_reason[0] != '\0' ? oom_reason
                                               : NULL;
    json_t *row = make_row(evaluator->spec, digit, status, text, keys);
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

// A tight step is slower than predicted, so it comes behind all that are not. Figures of one sweep
// are of one kind: all its points have tokens, or none.
bool sweep_is_better(const sweep_digest *a, const sweep_digest *b)
{
    if ((a->fits == SP_FITS_TIGHT) != (b->fits == SP_FITS_TIGHT)) {
        return b->fits == SP_FITS_TIGHT;
    }
    bool by_tokens = isfinite(a->tokens_per_s) && isfinite(b->tokens_per_s);
    return by_tokens ? a->tokens_per_s > b->tokens_per_s : a->iteration_ms < b->iteration_ms;
}

char *sweep_point_text(const json_t *point)
{
    return json_dumps(point, LINE_FLAGS);
}
