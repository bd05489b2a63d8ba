#include "experiments/figures/reproduction.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

#include "experiments/measurements/measurements.h"
#include "experiments/measurements/validation.h"
#include "experiments/sweep/point.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/prefill/prefill.h"
#include "sim/inference/decode.h"

// What a scenario of a figure came to.
typedef struct evaluated {
    sweep_status status;
    json_t *result; // NULL: none
    char reason[SP_ERROR_TEXT];
} evaluated;

typedef struct job {
    const figure_spec *spec;
    sweep_evaluator evaluator;
    evaluated *evaluated;
    sp_progress progress;
    atomic_int done;
} job;

void figure_reproduction_fini(figure_reproduction *reproduction)
{
    sp_free(reproduction->outcomes);
    *reproduction = (figure_reproduction){0};
}

// ---- scenarios ----

static sp_status train_step(const sweep_evaluator *evaluator, json_t *scenario, evaluated *to,
                            sp_error *err)
{
    sp_result result;
    sp_status found = sweep_evaluate_document(evaluator, scenario, &to->status, &result, err);
    to->result = found == SP_OK ? sp_result_json(&result, true) : NULL;
    sp_result_fini(&result);
    return found;
}

// The first token of the prompts.
static sp_status read_prompts(const sp_scenario *scenario, evaluated *to, sp_error *err)
{
    sp_batches batches = {0};
    sp_prefill_result result = {0};
    int64_t crossover_tokens = 0;
    sp_status found = sp_evaluate_batches(scenario, &batches, err);
    if (found == SP_OK) {
        found = sp_prefill(scenario, &batches.batch[0], NULL, NULL, &result, err);
    }
    if (found == SP_OK) {
        found = sp_prefill_crossover(scenario, &crossover_tokens, err);
    }
    if (found == SP_OK) {
        to->status = sp_prefill_fits(scenario, &result) ? SWEEP_OK : SWEEP_OOM;
        to->result = sp_prefill_json(scenario, &result, crossover_tokens);
    }
    sp_prefill_result_fini(&result);
    sp_batches_fini(&batches);
    return found;
}

static sp_status decode_text(const sp_scenario *scenario, evaluated *to, sp_error *err)
{
    sp_decode_result result;
    sp_status found = sp_decode_scenario(scenario, &result, err);
    if (found == SP_OK) {
        sp_decode_machine machine = sp_decode_machine_of(scenario);
        to->status = result.fits ? SWEEP_OK : SWEEP_OOM;
        to->result = sp_decode_result_json(scenario->decode, &machine, &result);
    }
    return found;
}

// Of a scenario that has a section `prefill` or `decode`.
static sp_status infer(const sweep_evaluator *evaluator, json_t *document, evaluated *to,
                       sp_error *err)
{
    sp_scenario scenario;
    to->status = SWEEP_INVALID;
    sp_status found =
        sp_scenario_from_json_cached(document, "point", evaluator->files, &scenario, err);
    if (found != SP_OK) {
        return found;
    }
    found = (scenario.decode != NULL ? decode_text : read_prompts)(&scenario, to, err);
    sp_scenario_fini(&scenario);
    return found;
}

static sp_status evaluate(void *context, int worker, int index, sp_error *err)
{
    job *all = context;
    evaluated *to = &all->evaluated[index];
    json_t *document = all->spec->scenarios[index];
    sp_error reason = {0};
    bool infers =
        json_object_get(document, "prefill") != NULL || json_object_get(document, "decode") != NULL;
    sp_status found = (infers ? infer : train_step)(&all->evaluator, document, to, &reason);
    const char *text = reason.count > 0 ? reason.message[0] : sp_status_text(found);
    int done = atomic_fetch_add(&all->done, 1) + 1;
    if (worker == 0) {
        sp_progress_update(&all->progress, done);
    }
    if (found != SP_OK && (to->status == SWEEP_INVALID || sp_status_is_fatal(found))) {
        return sp_error_set(err, found, "%.200s: scenario %d: %.400s", all->spec->file, index,
                            text);
    }
    snprintf(to->reason, sizeof to->reason, "%s", found != SP_OK ? text : "");
    return SP_OK;
}

// ---- values ----

// NAN, with a note, where the scenario has no such figure.
static double figure_of(const evaluated *e, const char *key, char note[FIGURE_NOTE])
{
    const json_t *value = e->result != NULL ? figure_value_at(e->result, key) : NULL;
    if (e->result == NULL) {
        snprintf(note, FIGURE_NOTE, "%s: %.230s", sweep_status_names[e->status], e->reason);
    } else if (!json_is_number(value)) {
        snprintf(note, FIGURE_NOTE, "the result has no number '%.64s'", key);
    } else if (e->status == SWEEP_OOM && note[0] == '\0') {
        snprintf(note, FIGURE_NOTE, "needs more memory than there is");
    }
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static double value_of(const job *all, const figure_point *point, int combination,
                       char note[FIGURE_NOTE])
{
    const evaluated *own = &all->evaluated[point->scenarios[combination]];
    char other[FIGURE_NOTE] = "";
    if (point->measure == FIGURE_LONGEST) {
        const json_t *scenario = all->spec->scenarios[point->scenarios[combination]];
        const json_t *setting = figure_value_at(scenario, point->key);
        return own->status == SWEEP_OK ? json_number_value(setting) : 0.0;
    }
    double value = figure_of(own, point->key, note);
    if (point->baselines == NULL) {
        return value;
    }
    double base = figure_of(&all->evaluated[point->baselines[combination]], point->key, other);
    if (other[0] != '\0' && note[0] == '\0') {
        snprintf(note, FIGURE_NOTE, "the baseline: %.230s", other);
    }
    return point->measure == FIGURE_DIFFERENCE  ? value - base
           : point->measure == FIGURE_REDUCTION ? 1.0 - value / base
                                                : value / base;
}

static double taken(const job *all, const figure_point *point, char note[FIGURE_NOTE])
{
    double value = (double)NAN;
    figure_take take = point->measure == FIGURE_LONGEST ? FIGURE_MAX : point->take;
    for (int c = 0; c < point->combinations; c++) {
        double next = value_of(all, point, c, note);
        value = c == 0                                   ? next
                : take == FIGURE_MEAN                    ? value + next
                : (take == FIGURE_MAX) == (next > value) ? next
                                                         : value;
    }
    return take == FIGURE_MEAN ? value / point->combinations : value;
}

static bool keeps(const figure_outcome *o)
{
    // What is printed with so many digits is met to half of the last one.
    double slack = 1e-9 * fmax(1.0, fabs(o->bar));
    bool above = o->error >= -(o->bar + slack);
    bool below = o->error <= o->bar + slack;
    return o->claim == FIGURE_AT_LEAST  ? above
           : o->claim == FIGURE_AT_MOST ? below
                                        : above && below;
}

static void take_point(const job *all, const figure_point *point, figure_outcome *o)
{
    *o = (figure_outcome){.published = point->published,
                          .relative = point->bar.relative,
                          .claim = point->claim,
                          .has_bar = true,
                          .bar = point->bar.size,
                          .fitted = point->fitted,
                          .why = point->why};
    snprintf(o->label, sizeof o->label, "%s", point->label);
    o->computed = taken(all, point, o->note) / point->per;
    o->error = o->relative ? o->computed / o->published - 1.0 : o->computed - o->published;
    o->within = isfinite(o->computed) && keeps(o);
}

static sp_status run_scenarios(job *all, int threads, bool quiet, sp_error *err)
{
    int count = (int)all->spec->scenario_count;
    all->evaluated = sp_calloc((size_t)count, sizeof *all->evaluated);
    sweep_evaluator_init(&all->evaluator, NULL, threads);
    sp_progress_begin(&all->progress, all->spec->name, count, quiet);
    sp_status status = sp_parallel_for(threads, count, evaluate, all, err);
    sp_progress_end(&all->progress);
    sweep_evaluator_fini(&all->evaluator);
    return status;
}

static sp_status reproduce_points(figure_reproduction *to, int threads, bool quiet, sp_error *err)
{
    job all = {.spec = to->spec};
    sp_status status = run_scenarios(&all, threads, quiet, err);
    to->count = to->spec->count;
    to->outcomes = sp_calloc(to->count, sizeof *to->outcomes);
    for (size_t i = 0; status == SP_OK && i < to->count; i++) {
        take_point(&all, &to->spec->points[i], &to->outcomes[i]);
        to->within_count += to->outcomes[i].within;
        to->fitted_count += to->outcomes[i].within && to->outcomes[i].fitted;
    }
    for (size_t i = 0; i < to->spec->scenario_count; i++) {
        json_decref(all.evaluated[i].result);
    }
    sp_free(all.evaluated);
    to->within = to->within_count == to->count;
    return status;
}

// ---- tables ----

static void take_rows(const sp_validation *validation, figure_reproduction *to)
{
    const sp_measurements *table = validation->measurements;
    to->of_table = true;
    to->unit = sp_measured_names[table->kind];
    to->relative = !sp_validation_is_difference(table->kind);
    to->table_bar = table->bound;
    to->table_error = to->relative ? validation->errors.mean : fabs(validation->errors.worst);
    to->within = validation->within_bound;
    to->count = table->count;
    to->outcomes = sp_calloc(to->count, sizeof *to->outcomes);
    for (size_t i = 0; i < to->count; i++) {
        const sp_measured_case *row = &table->cases[i];
        figure_outcome *o = &to->outcomes[i];
        *o = (figure_outcome){.published = row->measured,
                              .computed = validation->cases[i].computed,
                              .error = validation->cases[i].error,
                              .relative = to->relative,
                              .claim = row->at_most ? FIGURE_AT_MOST : FIGURE_EQUAL,
                              .fitted = to->spec->fitted,
                              .within = true};
        snprintf(o->label, sizeof o->label, "%s", row->label);
    }
}

static sp_status reproduce_table(figure_reproduction *to, int threads, sp_error *err)
{
    sp_published published;
    sp_measurements table = {0};
    sp_validation validation = {0};
    char path[SP_PUBLISHED_PATH];
    sp_status status = sp_published_list(&published, err);
    if (status == SP_OK) {
        status = sp_published_file(&published, to->spec->table, path, err);
    }
    if (status == SP_OK) {
        status = sp_measurements_read(path, NULL, NULL, 0, &table, err);
    }
    if (status == SP_OK && table.bound < 0.0) {
        status = sp_error_in(err, SP_ERR_CONTENT, to->spec->file, "table", "'%.64s' has no bound",
                             to->spec->table);
    }
    if (status == SP_OK) {
        status = sp_validation_run(&table, threads, &validation, err);
    }
    if (status == SP_OK) {
        take_rows(&validation, to);
    }
    sp_validation_fini(&validation);
    sp_measurements_fini(&table);
    return status;
}

sp_status figure_reproduce(const figure_spec *spec, int threads, bool quiet,
                           figure_reproduction *reproduction, sp_error *err)
{
    *reproduction = (figure_reproduction){.spec = spec};
    sp_status status = spec->table != NULL ? reproduce_table(reproduction, threads, err)
                                           : reproduce_points(reproduction, threads, quiet, err);
    if (status != SP_OK) {
        figure_reproduction_fini(reproduction);
    }
    return status;
}

// ---- JSON ----

static json_t *outcome_json(const figure_outcome *o)
{
    sp_json_builder b = sp_json_build();
    sp_json_add_text(&b, "label", o->label);
    sp_json_add(&b, "published", sp_json_figure(o->published));
    sp_json_add_text(&b, "claim", figure_claim_names[o->claim]);
    sp_json_add(&b, "computed", sp_json_figure(o->computed));
    sp_json_add(&b, "error", sp_json_figure(o->error));
    sp_json_add_text(&b, "error_is", o->relative ? "relative" : "absolute");
    if (o->has_bar) {
        sp_json_add_real(&b, "bar", o->bar);
        sp_json_add_bool(&b, "within", o->within);
    }
    sp_json_add_bool(&b, "fitted", o->fitted);
    if (o->note[0] != '\0') {
        sp_json_add_text(&b, "note", o->note);
    }
    if (!o->within && o->why != NULL) {
        sp_json_add_text(&b, "why", o->why);
    }
    return sp_json_built(b);
}

json_t *figure_reproduction_json(const figure_reproduction *reproduction)
{
    const figure_spec *spec = reproduction->spec;
    sp_json_builder b = sp_json_build();
    sp_json_add_text(&b, "name", spec->name);
    sp_json_add_text(&b, "title", spec->title);
    sp_json_add_text(&b, "source", spec->source);
    json_t *points = json_array();
    for (size_t i = 0; i < reproduction->count; i++) {
        if (json_array_append_new(points, outcome_json(&reproduction->outcomes[i])) != 0) {
            json_decref(points);
            points = NULL;
        }
    }
    sp_json_add(&b, "points", points);
    sp_json_add(&b, "assumptions", json_deep_copy(spec->assumptions));
    if (reproduction->of_table) {
        sp_json_add_text(&b, "table", spec->table);
        sp_json_add_text(&b, "unit", reproduction->unit);
        sp_json_add_real(&b, "error", reproduction->table_error);
        sp_json_add_real(&b, "bar", reproduction->table_bar);
    } else {
        sp_json_add_int(&b, "within_count", (int64_t)reproduction->within_count);
        sp_json_add_int(&b, "fitted_count", (int64_t)reproduction->fitted_count);
    }
    sp_json_add_bool(&b, "within", reproduction->within);
    return sp_json_built(b);
}
