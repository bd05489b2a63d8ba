#include "experiments/sweep/point.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "solver/strategy.h"

// What the cache of batches keeps that nobody uses; 16 bytes per sample.
enum { MOST_ENTRIES = 64, MOST_SAMPLES = 4 << 20 };

const char *const sweep_status_names[] = {"ok", "oom", "infeasible", "invalid", NULL};

const char *const sweep_figure_names[] = {
#define X(name, key, better) key,
    SWEEP_FIGURES(X)
#undef X
        NULL};

const char *const sweep_degree_names[] = {"tp", "cp", "pp", "dp"};

const int sweep_figure_better[] = {
#define X(name, key, better) better,
    SWEEP_FIGURES(X)
#undef X
};

sp_status sweep_evaluator_init(sweep_evaluator *evaluator, const sweep_spec *spec, int threads,
                               sp_error *err)
{
    *evaluator = (sweep_evaluator){.spec = spec, .threads = threads};
    evaluator->options = (sp_evaluate_options){
        .no_bounds = true, .no_causes = true, .names_sample = true, .allocator_if_tight = true};
    if (spec != NULL) {
        evaluator->documents = sp_calloc((size_t)threads, sizeof *evaluator->documents);
    }
    sp_status status = spec == NULL || evaluator->documents != NULL
                           ? sp_scenario_cache_new(&evaluator->files, err)
                           : sp_error_no_memory(err, "a sweep");
    return status == SP_OK ? sweep_batch_cache_new(&evaluator->batches, err) : status;
}

void sweep_evaluator_fini(sweep_evaluator *evaluator)
{
    for (int t = 0; evaluator->documents != NULL && t < evaluator->threads; t++) {
        json_decref(evaluator->documents[t]);
    }
    sp_free((void *)evaluator->documents);
    sweep_batch_cache_free(evaluator->batches);
    sp_scenario_cache_free(evaluator->files);
    *evaluator = (sweep_evaluator){0};
}

json_t *sweep_evaluator_scenario(const sweep_evaluator *evaluator, int thread,
                                 const int64_t digit[SWEEP_AXES])
{
    json_t **own = &evaluator->documents[thread];
    if (*own == NULL) {
        *own = json_deep_copy(evaluator->spec->document);
    }
    return *own != NULL ? sweep_spec_scenario(evaluator->spec, *own, digit) : NULL;
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
    *cache = sp_calloc(1, sizeof **cache);
    if (*cache != NULL && pthread_mutex_init(&(*cache)->mutex, NULL) != 0) {
        sp_free(*cache);
        *cache = NULL;
    }
    return *cache != NULL ? SP_OK : sp_error_no_memory(err, "a sweep");
}

static void entry_free(sweep_batch_entry *entry)
{
    json_decref(entry->workload);
    sp_batches_fini(&entry->batches);
    sp_free(entry);
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
        sp_free(cache);
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
    sweep_batch_entry *made = sp_calloc(1, sizeof *made);
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
        found = sp_strategy_check_shares(scenario, err);
    }
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

void sweep_digest_begin(sweep_digest *digest, sweep_status status)
{
    *digest = (sweep_digest){.status = status, .fits = SP_FITS_NONE, .median_error = (double)NAN};
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        digest->figure[f] = (double)NAN;
    }
}

// As a line holds it: a run that goes on with lines then ranks points as one that wrote them.
static double rounded(double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.*g", SWEEP_DIGITS, value);
    return isfinite(value) ? strtod(text, NULL) : value;
}

static void take_result(const sp_result *result, sweep_digest *digest)
{
    digest->fits = sp_result_fits(result);
    digest->stall_ms = result->stall_ns / (double)result->batch_count / SP_NS_PER_MS;
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        digest->figure[f] = rounded(sp_figure_value(result, sweep_figure_names[f]));
    }
    const sp_layout *layout = &result->layout;
    memcpy(digest->degree, (const int[]){layout->tp, layout->cp, layout->pp, layout->dp},
           sizeof digest->degree);
    digest->lossy = !result->lossless;
    if (result->step_error.known) {
        digest->median_error = rounded(result->step_error.median);
    } else if (!sp_result_is_oom(result)) {
        snprintf(digest->not_validated, sizeof digest->not_validated, "%s",
                 result->step_error.not_validated);
    }
    snprintf(digest->strategy, sizeof digest->strategy, "%s", result->strategy);
    snprintf(digest->schedule, sizeof digest->schedule, "%s", result->schedule);
    snprintf(digest->reason, sizeof digest->reason, "%s", result->oom_diagnosis);
}

sp_status sweep_evaluate_document(const sweep_evaluator *evaluator, json_t *document,
                                  sweep_status *status, sp_result *result, sp_error *err)
{
    sp_scenario scenario;
    *status = SWEEP_INVALID;
    *result = (sp_result){0};
    sp_status found =
        sp_scenario_from_json_cached(document, "point", evaluator->files, &scenario, err);
    if (found == SP_OK) {
        found = evaluate_scenario(evaluator, &scenario, result, status, err);
        sp_scenario_fini(&scenario);
    }
    return found;
}

static sp_status evaluate(const sweep_evaluator *evaluator, int thread,
                          const int64_t digit[SWEEP_AXES], sweep_digest *digest, sp_error *err)
{
    sp_result result;
    json_t *document = sweep_evaluator_scenario(evaluator, thread, digit);
    if (document == NULL) {
        return sp_error_no_memory(err, "a point");
    }
    sp_status found = sweep_evaluate_document(evaluator, document, &digest->status, &result, err);
    json_decref(document);
    if (found == SP_OK) {
        take_result(&result, digest);
    }
    sp_result_fini(&result);
    return found;
}

sp_status sweep_evaluate_point(const sweep_evaluator *evaluator, int thread, int64_t combination,
                               sweep_digest *digest, sp_error *err)
{
    int64_t digit[SWEEP_AXES];
    sp_error reason = {0};
    sweep_digest_begin(digest, SWEEP_INVALID);
    sweep_spec_digits(evaluator->spec, combination, digit);
    sp_status found = evaluate(evaluator, thread, digit, digest, &reason);
    const char *text = reason.count > 0 ? reason.message[0] : sp_status_text(found);
    if (sp_status_is_fatal(found)) {
        return sp_error_set(err, found, "%s", text);
    }
    if (found != SP_OK) {
        snprintf(digest->reason, sizeof digest->reason, "%s", text);
    }
    return SP_OK;
}

double sweep_whole_ms(const sweep_digest *digest)
{
    double left_out = digest->figure[SWEEP_LEFT_OUT_SHARE];
    double ms = digest->figure[SWEEP_ITERATION_MS];
    return left_out > 0.0 ? ms / (1.0 - left_out) : ms;
}

bool sweep_is_tighter(const sweep_digest *a, const sweep_digest *b)
{
    return a->fits == SP_FITS_TIGHT && b->fits != SP_FITS_TIGHT;
}

// Figures of one sweep are of one kind: all its points have tokens, or none.
bool sweep_is_better(const sweep_digest *a, const sweep_digest *b)
{
    if (sweep_is_tighter(a, b) || sweep_is_tighter(b, a)) {
        return sweep_is_tighter(b, a);
    }
    double tokens = a->figure[SWEEP_TOKENS_PER_S] - b->figure[SWEEP_TOKENS_PER_S];
    return isfinite(tokens) ? tokens > 0.0
                            : a->figure[SWEEP_ITERATION_MS] < b->figure[SWEEP_ITERATION_MS];
}
