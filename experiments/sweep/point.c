// Points of a sweep, their lines, and the summary of these.
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/sweep/sweep.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "solver/strategy.h"

#define LINE_FLAGS (JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(SWEEP_DIGITS))

// The cache keeps so many batches that nobody uses; 16 bytes per sample.
enum { MOST_ENTRIES = 64, MOST_SAMPLES = 4 << 20 };

const char *const sweep_status_names[] = {"ok", "oom", "infeasible", "invalid", "cannot_run", NULL};

const char *const sweep_figure_names[SWEEP_FIGURE_COUNT + 1] = {
#define KEY(...)
#define NUMBER(...)
#define COMPARED(name, place, way, kind, key, ...) [place - 1] = key,
#include "sim/metrics/figures.inc"
#undef KEY
#undef NUMBER
#undef COMPARED
};

const char *const sweep_degree_names[] = {"tp", "cp", "pp", "dp"};
const char *const sweep_choice_names[] = {"chunks_per_rank", "row_tokens"};

int sweep_figure_better(sweep_figure figure)
{
    return sp_figure_find(sweep_figure_names[figure])->better;
}

// ---- batches ----

// Batches by workload, which the threads of a sweep share.
typedef struct batch_entry {
    json_t *workload;        // as resolved; owned
    sp_workload_spec filled; // how large its batches are: that may follow from other settings
    sp_batches batches;
    int64_t samples;
    int users;
    uint64_t used; // count of uses at the last one
    struct batch_entry *next;
} batch_entry;

typedef struct sweep_batch_cache {
    pthread_mutex_t mutex;
    batch_entry *first;
    uint64_t uses;
    int count;
    int64_t samples;
} batch_cache;

static void entry_free(batch_entry *entry)
{
    json_decref(entry->workload);
    sp_batches_fini(&entry->batches);
    sp_free(entry);
}

static void free_batches(batch_cache *cache)
{
    while (cache != NULL && cache->first != NULL) {
        batch_entry *entry = cache->first;
        cache->first = entry->next;
        entry_free(entry);
    }
    if (cache != NULL) {
        pthread_mutex_destroy(&cache->mutex);
        sp_free(cache);
    }
}

static batch_entry *find_batches(batch_cache *cache, const json_t *workload,
                                 const sp_workload_spec *filled)
{
    for (batch_entry *entry = cache->first; entry != NULL; entry = entry->next) {
        if (json_equal(entry->workload, workload) &&
            sp_workload_fills_alike(&entry->filled, filled)) {
            return entry;
        }
    }
    return NULL;
}

static sp_status form_batches(const sp_scenario *scenario, const json_t *workload,
                              batch_entry **entry, sp_error *err)
{
    batch_entry *made = sp_calloc(1, sizeof *made);
    sp_status status = sp_evaluate_batches(scenario, &made->batches, err);
    // Uniform costs have no workload; null stands for it.
    made->workload = workload != NULL ? json_deep_copy(workload) : json_null();
    made->filled = scenario->workload;
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
static void trim_batches(batch_cache *cache)
{
    while (cache->count > MOST_ENTRIES || cache->samples > MOST_SAMPLES) {
        batch_entry **oldest = NULL;
        for (batch_entry **link = &cache->first; *link != NULL; link = &(*link)->next) {
            if ((*link)->users == 0 && (oldest == NULL || (*link)->used < (*oldest)->used)) {
                oldest = link;
            }
        }
        if (oldest == NULL) {
            return;
        }
        batch_entry *entry = *oldest;
        *oldest = entry->next;
        cache->count--;
        cache->samples -= entry->samples;
        entry_free(entry);
    }
}

static sp_status acquire_batches(batch_cache *cache, const sp_scenario *scenario,
                                 batch_entry **entry, sp_error *err)
{
    const json_t *workload = json_object_get(scenario->resolved, "workload");
    batch_entry *made = NULL;
    pthread_mutex_lock(&cache->mutex);
    batch_entry *found =
        find_batches(cache, workload != NULL ? workload : json_null(), &scenario->workload);
    if (found == NULL) {
        pthread_mutex_unlock(&cache->mutex);
        SP_TRY(form_batches(scenario, workload, &made, err));
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

static void release_batches(batch_cache *cache, batch_entry *entry)
{
    pthread_mutex_lock(&cache->mutex);
    entry->users--;
    trim_batches(cache);
    pthread_mutex_unlock(&cache->mutex);
}

// ---- evaluation ----

void sweep_evaluator_init(sweep_evaluator *evaluator, const sweep_spec *spec, int threads)
{
    *evaluator = (sweep_evaluator){.spec = spec, .threads = threads};
    evaluator->options = (sp_evaluate_options){
        .no_bounds = true, .no_causes = true, .names_sample = true, .allocator_if_near = true};
    if (spec != NULL) {
        evaluator->documents = sp_calloc((size_t)threads, sizeof *evaluator->documents);
    }
    evaluator->batches = sp_calloc(1, sizeof *evaluator->batches);
    evaluator->batches->mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    evaluator->files = sp_scenario_cache_new();
}

void sweep_evaluator_fini(sweep_evaluator *evaluator)
{
    for (int t = 0; evaluator->documents != NULL && t < evaluator->threads; t++) {
        json_decref(evaluator->documents[t]);
    }
    sp_free((void *)evaluator->documents);
    free_batches(evaluator->batches);
    sp_scenario_cache_free(evaluator->files);
    *evaluator = (sweep_evaluator){0};
}

json_t *sweep_evaluator_scenario(const sweep_evaluator *evaluator, int thread,
                                 const int64_t digit[SWEEP_AXES])
{
    json_t **own = &evaluator->documents[thread];
    *own = *own != NULL ? *own : json_deep_copy(evaluator->spec->document);
    return sweep_spec_scenario(evaluator->spec, *own, digit);
}

static sp_status evaluate_scenario(const sweep_evaluator *evaluator, const sp_scenario *scenario,
                                   sp_result *result, sweep_status *status, sp_error *err)
{
    batch_entry *entry = NULL;
    *status = SWEEP_INVALID;
    sp_status found =
        scenario->uniform ? SP_OK : sp_strategy_check(scenario->strategy.kind, "point", err);
    if (found == SP_OK) {
        found = sp_strategy_check_shares(scenario, err);
    }
    if (found == SP_OK) {
        found = acquire_batches(evaluator->batches, scenario, &entry, err);
    }
    if (found != SP_OK) {
        return found;
    }
    found = sp_evaluate(scenario, &entry->batches, &evaluator->options, result, err);
    release_batches(evaluator->batches, entry);
    *status = SWEEP_INFEASIBLE;
    if (found == SP_OK) {
        *status = sp_result_is_oom(result) ? SWEEP_OOM : SWEEP_OK;
    }
    return found;
}

void sweep_trial_begin(sweep_trial *trial, sweep_status status)
{
    *trial = (sweep_trial){.status = status,
                           .fits = SP_FITS_NONE,
                           .choice = {(double)NAN, (double)NAN},
                           .median_error = (double)NAN};
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        trial->figure[f] = (double)NAN;
    }
}

// As a line holds it: a run that goes on with lines then ranks points as one that wrote them.
static double rounded(double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.*g", SWEEP_DIGITS, value);
    return isfinite(value) ? strtod(text, NULL) : value;
}

static void take_result(const sp_result *result, sweep_trial *trial)
{
    trial->fits = sp_result_fits(result);
    trial->stall_ms = result->stall_ns / (double)result->batch_count / SP_NS_PER_MS;
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        trial->figure[f] = rounded(sp_figure_value(result, sweep_figure_names[f]));
    }
    const sp_layout *layout = &result->layout;
    memcpy(trial->degree, (const int[]){layout->tp, layout->cp, layout->pp, layout->dp},
           sizeof trial->degree);
    trial->choice[SWEEP_ROW_TOKENS] = rounded(sp_result_row_tokens(result));
    trial->lossy = !result->lossless;
    if (result->step_error.known) {
        trial->median_error = rounded(result->step_error.median);
    } else if (!sp_result_is_oom(result)) {
        snprintf(trial->not_validated, sizeof trial->not_validated, "%s",
                 result->step_error.not_validated);
    }
    snprintf(trial->strategy, sizeof trial->strategy, "%s", result->strategy);
    snprintf(trial->schedule, sizeof trial->schedule, "%s", result->schedule);
    snprintf(trial->reason, sizeof trial->reason, "%s", result->oom_diagnosis);
}

// Finds what the stack lacks for the point; an error where the point is not evaluated for that.
static sp_status ask_stack(const sweep_evaluator *evaluator, const sp_scenario *scenario,
                           sweep_trial *trial, sp_error *err)
{
    if (!evaluator->asks_stack ||
        sweep_point_lack(evaluator->spec, scenario, trial->lacks) == SWEEP_RUNS ||
        !evaluator->within_stack) {
        return SP_OK;
    }
    const sp_stack *stack = &scenario->memory.stack;
    trial->status = SWEEP_CANNOT_RUN;
    return sp_error_set(err, SP_ERR_INFEASIBLE,
                        "stack %s does not run %s ('slimpack help %s'); --any-schedule tries it",
                        stack->name, trial->lacks, stack->name);
}

// Of a trial the status, and what of it follows from the scenario.
static sp_status evaluate_document(const sweep_evaluator *evaluator, json_t *document,
                                   sweep_trial *trial, sp_result *result, sp_error *err)
{
    sp_scenario scenario;
    trial->status = SWEEP_INVALID;
    *result = (sp_result){0};
    sp_status found =
        sp_scenario_from_json_cached(document, "point", evaluator->files, &scenario, err);
    if (found != SP_OK) {
        return found;
    }
    found = ask_stack(evaluator, &scenario, trial, err);
    if (found == SP_OK) {
        found = evaluate_scenario(evaluator, &scenario, result, &trial->status, err);
    }
    bool chosen = found == SP_OK && !scenario.uniform && !scenario.chunks_given &&
                  sp_strategy_find(scenario.strategy.kind)->chooses_chunks;
    trial->choice[SWEEP_CHUNKS] = chosen ? result->layout.chunks : (double)NAN;
    sp_scenario_fini(&scenario);
    return found;
}

sp_status sweep_evaluate_document(const sweep_evaluator *evaluator, json_t *document,
                                  sweep_status *status, sp_result *result, sp_error *err)
{
    sweep_trial trial = {.status = SWEEP_INVALID};
    sp_status found = evaluate_document(evaluator, document, &trial, result, err);
    *status = trial.status;
    return found;
}

// NULL: none.
static json_t *lines_of(const char *first, size_t stride, int count)
{
    return count > 0 ? sp_json_lines(first, stride, count) : NULL;
}

static json_t *notes_of(const sp_result *result)
{
    sp_warnings warnings = {.count = 0};
    sp_warnings_add_all(&warnings, &result->warnings, result->oom_diagnosis);
    return json_pack("{s:o*, s:o*}", "warnings",
                     lines_of(warnings.text[0], SP_WARNING_TEXT, warnings.count), "uncalibrated",
                     lines_of(result->uncalibrated[0], sizeof result->uncalibrated[0],
                              result->uncalibrated_count));
}

static sp_status evaluate(const sweep_evaluator *evaluator, int thread,
                          const int64_t digit[SWEEP_AXES], sweep_trial *trial, json_t **notes,
                          sp_error *err)
{
    sp_result result;
    json_t *document = sweep_evaluator_scenario(evaluator, thread, digit);
    sp_status found = evaluate_document(evaluator, document, trial, &result, err);
    json_decref(document);
    if (found == SP_OK) {
        take_result(&result, trial);
        if (notes != NULL) {
            *notes = notes_of(&result);
        }
    }
    sp_result_fini(&result);
    return found;
}

sp_status sweep_evaluate_point(const sweep_evaluator *evaluator, int thread, int64_t combination,
                               sweep_trial *trial, json_t **notes, sp_error *err)
{
    int64_t digit[SWEEP_AXES];
    sp_error reason = {0};
    sweep_trial_begin(trial, SWEEP_INVALID);
    sweep_spec_digits(evaluator->spec, combination, digit);
    sp_status found = evaluate(evaluator, thread, digit, trial, notes, &reason);
    const char *text = reason.count > 0 ? reason.message[0] : sp_status_text(found);
    if (sp_status_is_fatal(found)) {
        return sp_error_set(err, found, "%s", text);
    }
    if (found != SP_OK) {
        snprintf(trial->reason, sizeof trial->reason, "%s", text);
    }
    return SP_OK;
}

double sweep_whole_ms(const sweep_trial *trial)
{
    double left_out = trial->figure[SWEEP_LEFT_OUT_SHARE];
    double ms = trial->figure[SWEEP_ITERATION_MS];
    return left_out > 0.0 ? ms / (1.0 - left_out) : ms;
}

static double chance_of(const sweep_trial *trial)
{
    return sp_fit_chance(trial->figure[SWEEP_FIT_PROBABILITY]);
}

double sweep_expected_ms(const sweep_trial *trial)
{
    return sweep_whole_ms(trial) / chance_of(trial);
}

// Does a fit tightly and b not? A tight step is slower than predicted, so it comes behind all that
// are not, in any order.
static bool is_tighter(const sweep_trial *a, const sweep_trial *b)
{
    return a->fits == SP_FITS_TIGHT && b->fits != SP_FITS_TIGHT;
}

// Figures of one sweep are of one kind: all its points have tokens, or none.
bool sweep_is_better(const sweep_trial *a, const sweep_trial *b)
{
    if (is_tighter(a, b) || is_tighter(b, a)) {
        return is_tighter(b, a);
    }
    double tokens =
        a->figure[SWEEP_TOKENS_PER_S] * chance_of(a) - b->figure[SWEEP_TOKENS_PER_S] * chance_of(b);
    return isfinite(tokens) ? tokens > 0.0 : sweep_expected_ms(a) < sweep_expected_ms(b);
}

// ---- lines: writing ----

static void put_text(json_t *row, const char *key, const char *text)
{
    if (text[0] != '\0') {
        sp_json_put(row, key, json_string(text));
    }
}

json_t *sweep_choice_json(const sweep_trial *trial, int choice)
{
    double value = trial->choice[choice];
    return choice == SWEEP_CHUNKS && isfinite(value) ? json_integer((json_int_t)value)
                                                     : json_real(value);
}

static void put_trial(json_t *row, const sweep_trial *trial)
{
    for (int d = 0; d < SWEEP_DEGREES && trial->degree[d] > 0; d++) {
        sp_json_put(row, sweep_degree_names[d], json_integer(trial->degree[d]));
    }
    put_text(row, "strategy", trial->strategy);
    put_text(row, "schedule", trial->schedule);
    for (int c = 0; c < SWEEP_CHOICES; c++) {
        sp_json_put(row, sweep_choice_names[c], sweep_choice_json(trial, c));
    }
    put_text(row, "lacks", trial->lacks);
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        sp_json_put(row, sweep_figure_names[f], json_real(trial->figure[f]));
    }
    if (trial->fits != SP_FITS_NONE) {
        sp_json_put(row, "fits", json_string(sp_fits_names[trial->fits]));
    }
    if (trial->lossy) {
        sp_json_put(row, "lossless", json_false());
    }
    if (isfinite(trial->median_error)) {
        sp_json_put(row, "error", sp_json_object(SP_JSON("median", trial->median_error)));
    }
    put_text(row, "not_validated", trial->not_validated);
}

// Behind the members of a line stands a check of them, by which a line that was changed is told.
enum { CHECK = 32 }; // `,"check":"0123456789abcdef"}`

static void check_of(const char *members, size_t bytes, char check[CHECK])
{
    char tag[SWEEP_TAG];
    sweep_tag(members, bytes, tag);
    snprintf(check, CHECK, ",\"check\":\"%s\"}", tag);
}

// Lines of a version without checks are taken as they are.
static bool is_as_written(const json_t *row, const char *line, size_t bytes)
{
    char check[CHECK];
    check_of("", 0, check);
    size_t length = strlen(check);
    if (json_object_get(row, "check") == NULL) {
        return true;
    }
    if (bytes < length) {
        return false;
    }
    check_of(line, bytes - length, check);
    return memcmp(line + bytes - length, check, length) == 0;
}

// The line of a point with its newline, without what it has no value for.
static char *write_line(const sweep_spec *spec, const sweep_row *point)
{
    int64_t digit[SWEEP_AXES];
    const sweep_trial *trial = &point->trial;
    sweep_spec_digits(spec, point->combination, digit);
    json_t *row = sp_json_object(SP_JSON("point", sweep_spec_point(spec, digit)),
                                 SP_JSON("status", sweep_status_names[trial->status]));
    put_text(row, "reason", trial->reason);
    sp_json_put(row, "base", json_string(spec->base_tag));
    put_trial(row, trial);
    json_object_update(row, point->notes);
    if (point->first) {
        sp_json_put(row, "settings", json_incref(spec->settings));
    }
    size_t bytes = json_dumpb(row, NULL, 0, LINE_FLAGS);
    char *line = sp_malloc(bytes + CHECK + 2);
    json_dumpb(row, line, bytes, LINE_FLAGS);
    check_of(line, bytes - 1, line + bytes - 1);
    strcat(line, "\n");
    json_decref(row);
    return line;
}

sp_status sweep_row_evaluate(const sweep_evaluator *evaluator, int thread, sweep_row *row,
                             sp_error *err)
{
    SP_TRY(
        sweep_evaluate_point(evaluator, thread, row->combination, &row->trial, &row->notes, err));
    row->line = write_line(evaluator->spec, row);
    return SP_OK;
}

void sweep_row_fini(sweep_row *row)
{
    json_decref(row->notes);
    sp_free(row->line);
    *row = (sweep_row){0};
}

// ---- lines: reading ----

static double figure(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static int degree(const json_t *row, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(row, key));
    return value > 0 && value <= INT_MAX ? (int)value : 0;
}

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? text : "";
}

void sweep_trial_take(const json_t *row, sweep_trial *trial)
{
    sweep_trial_begin(trial, SWEEP_STATUSES);
    const char *status = json_string_value(json_object_get(row, "status"));
    for (int s = 0; status != NULL && sweep_status_names[s] != NULL; s++) {
        if (strcmp(status, sweep_status_names[s]) == 0) {
            trial->status = (sweep_status)s;
        }
    }
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        trial->figure[f] = figure(row, sweep_figure_names[f]);
    }
    trial->median_error = figure(json_object_get(row, "error"), "median");
    trial->lossy = json_is_false(json_object_get(row, "lossless"));
    for (int d = 0; d < SWEEP_DEGREES; d++) {
        trial->degree[d] = degree(row, sweep_degree_names[d]);
    }
    for (int c = 0; c < SWEEP_CHOICES; c++) {
        trial->choice[c] = figure(row, sweep_choice_names[c]);
    }
    snprintf(trial->strategy, sizeof trial->strategy, "%s", text_of(row, "strategy"));
    snprintf(trial->schedule, sizeof trial->schedule, "%s", text_of(row, "schedule"));
    snprintf(trial->lacks, sizeof trial->lacks, "%s", text_of(row, "lacks"));
    const char *fits = text_of(row, "fits");
    for (int f = 0; sp_fits_names[f] != NULL; f++) {
        trial->fits = strcmp(fits, sp_fits_names[f]) == 0 ? (sp_fits)f : trial->fits;
    }
    snprintf(trial->not_validated, sizeof trial->not_validated, "%s",
             text_of(row, "not_validated"));
    snprintf(trial->reason, sizeof trial->reason, "%s", text_of(row, "reason"));
}

bool sweep_trial_read(const json_t *row, sweep_trial *trial, const char **expected)
{
    bool has_point = json_is_object(json_object_get(row, "point"));
    sweep_trial_take(row, trial);
    *expected = has_point ? "a status: ok, oom, infeasible, invalid or cannot_run"
                          : "an object with a point";
    return has_point && trial->status != SWEEP_STATUSES;
}

char *sweep_point_text(const json_t *point)
{
    return json_dumps(point, LINE_FLAGS);
}

sp_status sweep_line_of_other(const sweep_spec *spec, const sweep_line_place *place,
                              const char *text, sp_error *err)
{
    return sp_error_at(err, SP_ERR_CONTENT, place->path, place->number, 0,
                       "%s: these are not the results of %s", text, spec->source);
}

static bool has_value(const json_t *values, const json_t *value)
{
    size_t i = 0;
    while (i < json_array_size(values) && !json_equal(json_array_get(values, i), value)) {
        i++;
    }
    return i < json_array_size(values);
}

static bool is_of_grid(const sweep_spec *spec, const json_t *point)
{
    bool is = json_object_size(point) == (size_t)spec->axis_count;
    for (int a = 0; is && a < spec->axis_count; a++) {
        const json_t *value = json_object_get(point, spec->axes[a].path);
        is = value != NULL && has_value(sweep_spec_stated(spec, a), value);
    }
    return is;
}

static sp_status other_point(const sweep_spec *spec, const json_t *row, const char *expected,
                             const char *found, const sweep_line_place *place, sp_error *err)
{
    char text[SP_ERROR_TEXT / 2];
    snprintf(text, sizeof text, "expected point %.120s, got %.120s", expected, found);
    return is_of_grid(spec, json_object_get(row, "point"))
               ? sp_error_at(err, SP_ERR_CONTENT, place->path, place->number, 0,
                             "%s: the file was written with other --sample, --search, --seed, "
                             "--shard or --pareto, or for another 'where'",
                             text)
               : sweep_line_of_other(spec, place, text, err);
}

static sp_status same_point(const sweep_spec *spec, int64_t combination, const json_t *row,
                            const sweep_line_place *place, sp_error *err)
{
    int64_t digit[SWEEP_AXES];
    const char *tag = json_string_value(json_object_get(row, "base"));
    if (tag != NULL && strcmp(tag, spec->base_tag) != 0) {
        return sweep_line_of_other(spec, place,
                                   "has another base, or a file that it names has changed", err);
    }
    sweep_spec_digits(spec, combination, digit);
    json_t *point = sweep_spec_point(spec, digit);
    char *expected = sweep_point_text(point);
    char *found = sweep_point_text(json_object_get(row, "point"));
    sp_status status = SP_OK;
    if (strcmp(expected, found) != 0) {
        status = other_point(spec, row, expected, found, place, err);
    }
    json_decref(point);
    free(expected);
    free(found);
    return status;
}

sp_status sweep_line_read(const sweep_spec *spec, const char *line, size_t bytes,
                          const sweep_line_place *place, sweep_row *row, sp_error *err)
{
    const char *expected = "";
    json_error_t wrong;
    errno = 0;
    json_t *object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (object == NULL) {
        return sp_json_load_error(err, place->path, place->number, &wrong);
    }
    sp_status status = SP_OK;
    if (!is_as_written(object, line, bytes)) {
        status = sp_error_at(err, SP_ERR_CONTENT, place->path, place->number, 0,
                             "the line was changed after it was written (its check differs): "
                             "without it and the lines behind it --resume evaluates them again");
    } else if (!sweep_trial_read(object, &row->trial, &expected)) {
        status = sp_error_at(err, SP_ERR_CONTENT, place->path, place->number, 0, "expected %s",
                             expected);
    }
    if (status == SP_OK) {
        status = same_point(spec, row->combination, object, place, err);
    }
    row->notes = json_pack("{s:O*}", "warnings", json_object_get(object, "warnings"));
    json_decref(object);
    return status;
}

bool sweep_figure_find(const char *name, sweep_figure *figure)
{
    for (int f = 0; sweep_figure_names[f] != NULL; f++) {
        if (strcmp(sweep_figure_names[f], name) == 0) {
            *figure = (sweep_figure)f;
            return true;
        }
    }
    return false;
}

// ---- the condition on results ----

// The symbol has its own path and values, which are null where it has none yet.
static void add_symbol(sweep_symbols *symbols, const sweep_spec *spec, sweep_symbol symbol)
{
    int64_t count = symbol.axis >= 0 ? spec->axes[symbol.axis].count : 1;
    const sweep_value *values = symbol.values;
    symbol.path = sp_strdup(symbol.path);
    symbol.values = sp_calloc((size_t)count, sizeof *symbol.values);
    if (values != NULL) {
        memcpy(symbol.values, values, (size_t)count * sizeof *values);
    }
    symbols->items[symbols->count++] = symbol;
}

enum { CHOSEN = SWEEP_DEGREES + SWEEP_CHOICES };

// Degrees and choices, by the settings that state them where there are such.
static const char *const chosen_paths[CHOSEN] = {
    "parallel.tp", "parallel.cp", "parallel.pp", "parallel.dp", "parallel.chunks_per_rank",
    "row_tokens"};

// CHOSEN: it is none.
static int chosen_at(const char *path)
{
    int c = 0;
    while (c < CHOSEN && strcmp(chosen_paths[c], path) != 0) {
        c++;
    }
    return c;
}

// NAN: the point does not say.
static double chosen_value(const sweep_trial *trial, int c)
{
    return c >= SWEEP_DEGREES      ? trial->choice[c - SWEEP_DEGREES]
           : trial->degree[c] == 0 ? (double)NAN
                                   : trial->degree[c];
}

// The settings of the sweep, and the figures, whose values are those of the line at hand.
static void make_symbols(sweep_summary *summary)
{
    const sweep_symbols *settings = &summary->spec->symbols;
    sweep_symbols *symbols = &summary->symbols;
    symbols->unknown = "no figure, and set neither by the grid nor by the base";
    size_t count = settings->count + SWEEP_FIGURE_COUNT + 2 + CHOSEN;
    SP_RESERVE(symbols->items, symbols->capacity, count);
    for (size_t i = 0; i < settings->count; i++) {
        const sweep_symbol *setting = &settings->items[i];
        int c = chosen_at(setting->path);
        if (c < CHOSEN) {
            summary->stated[c] = setting;
        } else {
            add_symbol(symbols, summary->spec, *setting);
        }
    }
    size_t kept = symbols->count;
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        const sp_figure *figure = sp_figure_find(sweep_figure_names[f]);
        add_symbol(symbols, summary->spec,
                   (sweep_symbol){.path = (char *)figure->key, .axis = -1, .figure = figure});
    }
    add_symbol(symbols, summary->spec,
               (sweep_symbol){.path = "status", .axis = -1, .names = sweep_status_names});
    add_symbol(symbols, summary->spec,
               (sweep_symbol){.path = "fits", .axis = -1, .names = sp_fits_names});
    for (int c = 0; c < CHOSEN; c++) {
        add_symbol(symbols, summary->spec,
                   (sweep_symbol){.path = (char *)chosen_paths[c],
                                  .axis = -1,
                                  .figure = sp_figure_find(chosen_paths[c])});
    }
    summary->of_figures = symbols->items + kept;
}

static sweep_value text_value(const char *text)
{
    return text != NULL ? (sweep_value){.kind = SWEEP_STRING, .text = text} : (sweep_value){0};
}

// Does the condition hold of the point, whether it fits or not?
static sp_status where_holds(const sweep_summary *summary, int64_t combination,
                             const sweep_trial *trial, bool *holds, sp_error *err)
{
    int64_t digit[SWEEP_AXES];
    *holds = true;
    if (summary->where == NULL) {
        return SP_OK;
    }
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        bool known = isfinite(trial->figure[f]);
        summary->of_figures[f].values[0] =
            known ? (sweep_value){.kind = SWEEP_NUMBER, .number = trial->figure[f]}
                  : (sweep_value){0};
    }
    bool known = trial->fits != SP_FITS_NONE;
    summary->of_figures[SWEEP_FIGURE_COUNT].values[0] =
        text_value(sweep_status_names[trial->status]);
    summary->of_figures[SWEEP_FIGURE_COUNT + 1].values[0] =
        text_value(known ? sp_fits_names[trial->fits] : NULL);
    sweep_spec_digits(summary->spec, combination, digit);
    for (int c = 0; c < CHOSEN; c++) {
        const sweep_symbol *stated = summary->stated[c];
        double chosen = chosen_value(trial, c);
        sweep_value *value = summary->of_figures[SWEEP_FIGURE_COUNT + 2 + c].values;
        *value = isfinite(chosen) ? (sweep_value){.kind = SWEEP_NUMBER, .number = chosen}
                 : stated != NULL ? stated->values[stated->axis < 0 ? 0 : digit[stated->axis]]
                                  : (sweep_value){.unknown = c >= SWEEP_DEGREES};
    }
    return sweep_where_holds(summary->where, digit, holds, err);
}

// ---- the best ----

static bool is_better(const sweep_summary *summary, const sweep_trial *a, const sweep_trial *b)
{
    if (!summary->options.by_figure) {
        return sweep_is_better(a, b);
    }
    if (is_tighter(a, b) || is_tighter(b, a)) {
        return is_tighter(b, a);
    }
    sweep_figure by = summary->options.by;
    double x = sweep_figure_better(by) * a->figure[by];
    double y = sweep_figure_better(by) * b->figure[by];
    return isnan(y) ? !isnan(x) : x > y;
}

// The first of points, ordered by group, whose group is not below `group`.
static int64_t begin_of(const sweep_best *points, int64_t count, int64_t group)
{
    int64_t low = 0;
    while (low < count) {
        int64_t middle = low + (count - low) / 2;
        if (points[middle].group < group) {
            low = middle + 1;
        } else {
            count = middle;
        }
    }
    return low;
}

static void rank(sweep_summary *summary, const sweep_best *point)
{
    int64_t count = summary->best_count;
    int64_t first = begin_of(summary->best, count, point->group);
    int64_t end = begin_of(summary->best, count, point->group + 1);
    int64_t at = end;
    while (at > first && is_better(summary, &point->trial, &summary->best[at - 1].trial)) {
        at--;
    }
    if (at - first == summary->options.top) {
        return;
    }
    SP_RESERVE(summary->best, summary->best_capacity, (size_t)count + 1);
    // The last of a full group makes room, else all behind it go one further.
    bool full = end - first == summary->options.top;
    memmove(&summary->best[at + 1], &summary->best[at],
            (size_t)((full ? end - 1 : count) - at) * sizeof summary->best[0]);
    summary->best[at] = *point;
    summary->best_count = count + !full;
}

// ---- the front ----

static void add_to_front(sweep_summary *summary, const sweep_best *point)
{
    sweep_figure x = summary->options.x;
    sweep_figure y = summary->options.y;
    double better_x = sweep_figure_better(x);
    double better_y = sweep_figure_better(y);
    const double *own = point->trial.figure;
    int64_t first = begin_of(summary->front, summary->front_count, point->group);
    int64_t end = begin_of(summary->front, summary->front_count, point->group + 1);
    int64_t kept = first;
    if (isnan(own[x]) || isnan(own[y])) {
        return;
    }
    for (int64_t i = first; i < end; i++) {
        const double *other = summary->front[i].trial.figure;
        if (better_x * other[x] >= better_x * own[x] && better_y * other[y] >= better_y * own[y]) {
            return;
        }
    }
    for (int64_t i = first; i < end; i++) {
        const double *other = summary->front[i].trial.figure;
        bool dominated =
            better_x * own[x] >= better_x * other[x] && better_y * own[y] >= better_y * other[y];
        if (!dominated) {
            summary->front[kept++] = summary->front[i];
        }
    }
    if (summary->front_count > end) { // points of later groups close up
        memmove(&summary->front[kept], &summary->front[end],
                (size_t)(summary->front_count - end) * sizeof *summary->front);
    }
    int64_t count = summary->front_count - (end - kept);
    SP_RESERVE(summary->front, summary->front_capacity, (size_t)count + 1);
    int64_t at = kept;
    while (at > first && summary->front[at - 1].trial.figure[x] > own[x]) {
        at--;
    }
    memmove(&summary->front[at + 1], &summary->front[at],
            (size_t)(count - at) * sizeof *summary->front);
    summary->front[at] = *point;
    summary->front_count = count + 1;
}

// ---- groups ----

bool sweep_is_work(const char *path)
{
    return sp_json_paths_overlap(path, "model") || sp_json_paths_overlap(path, "workload");
}

static void choose_groups(sweep_summary *summary)
{
    const sweep_spec *spec = summary->spec;
    int64_t groups = 1;
    for (int a = 0; a < spec->axis_count; a++) {
        if (spec->axes[a].count > 1 && sweep_is_work(spec->axes[a].path)) {
            summary->group_axes[summary->group_axis_count++] = a;
            groups *= spec->axes[a].count;
        }
    }
    if (groups > SWEEP_MOST_GROUPS) {
        summary->group_axis_count = 0;
        summary->mixed = groups;
    }
}

static int64_t group_of(const sweep_summary *summary, int64_t combination)
{
    int64_t digit[SWEEP_AXES];
    int64_t group = 0;
    sweep_spec_digits(summary->spec, combination, digit);
    for (int g = 0; g < summary->group_axis_count; g++) {
        int a = summary->group_axes[g];
        group = group * summary->spec->axes[a].count + digit[a];
    }
    return group;
}

// ---- the summary ----

sp_status sweep_summary_begin(sweep_summary *summary, const sweep_spec *spec,
                              const sweep_summary_options *options, sp_error *err)
{
    *summary = (sweep_summary){.spec = spec};
    if (options != NULL) {
        summary->options = *options;
    }
    if (summary->options.top == 0) {
        summary->options.top = summary->options.front ? SWEEP_TOP_BESIDE_FRONT : SWEEP_TOP;
    }
    choose_groups(summary);
    if (summary->options.where == NULL) {
        return SP_OK;
    }
    make_symbols(summary);
    return sweep_where_parse(summary->options.where, "--where", "", &summary->symbols,
                             &summary->where, err);
}

static void count_warnings(sweep_summary *summary, const json_t *texts)
{
    sp_warnings warnings = {.count = 0};
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const char *text = json_string_value(json_array_get(texts, i));
        sp_warnings_add(&warnings, "%s", text != NULL ? text : "?");
    }
    sp_warning_kinds_add(&summary->warnings, &warnings);
}

sp_status sweep_summary_add(sweep_summary *summary, const sweep_row *row, sp_error *err)
{
    const sweep_trial *trial = &row->trial;
    int64_t combination = row->combination;
    sweep_status s = trial->status;
    bool holds = false;
    if (summary->of_status[s]++ == 0) {
        memcpy(summary->reason[s], trial->reason, sizeof trial->reason);
    }
    summary->written++;
    summary->beyond += trial->lacks[0] != '\0' && s != SWEEP_CANNOT_RUN;
    if (s == SWEEP_OK && row->notes != NULL) {
        count_warnings(summary, json_object_get(row->notes, "warnings"));
    }
    sp_status status = where_holds(summary, combination, trial, &holds, err);
    if (status == SP_OK && summary->options.each != NULL) {
        summary->options.each(summary->options.context, combination, trial, holds);
    }
    if (status != SP_OK || !holds || trial->status != SWEEP_OK) {
        return status;
    }
    const sweep_best point = {
        .combination = combination, .group = group_of(summary, combination), .trial = *trial};
    rank(summary, &point);
    if (summary->options.front) {
        add_to_front(summary, &point);
    }
    return SP_OK;
}

void sweep_summary_fini(sweep_summary *summary)
{
    sweep_where_free(summary->where);
    sweep_symbols_fini(&summary->symbols);
    sp_free(summary->best);
    sp_free(summary->front);
    sp_free(summary->warnings.kind);
    *summary = (sweep_summary){0};
}
