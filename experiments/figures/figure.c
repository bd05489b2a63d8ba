#include "experiments/figures/figure.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/measurements.h"
#include "experiments/measure/validation.h"
#include "experiments/sweep/sweep.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/inference/decode.h"
#include "sim/prefill/prefill.h"

enum { DOCUMENT_LIMIT_BYTES = 16 << 20, PLACE = 32 };

static const char *const figure_measure_names[] = {"value",     "ratio",   "difference",
                                                   "reduction", "longest", NULL};
const char *const figure_claim_names[] = {"equal", "at_least", "at_most", NULL};
static const char *const take_names[] = {"mean", "max", "min", NULL};

// Keys that the points of a file have in common stand beside them.
typedef struct reader {
    figure_spec *spec;
    sp_object root;
    sp_error *err;
} reader;

void figure_spec_fini(figure_spec *spec)
{
    for (size_t i = 0; i < spec->count; i++) {
        sp_free(spec->points[i].scenarios);
        sp_free(spec->points[i].baselines);
    }
    for (size_t i = 0; i < spec->scenario_count; i++) {
        json_decref(spec->scenarios[i]);
    }
    sp_free(spec->points);
    sp_free((void *)spec->scenarios);
    json_decref(spec->document);
    *spec = (figure_spec){0};
}

// The value at a dotted path, in which a number takes an element of an array ("ranks.0.span_ms");
// NULL where there is none.
static const json_t *value_at(const json_t *json, const char *path)
{
    char part[SP_JSON_PATH];
    bool more = sp_json_path_is_valid(path, SP_JSON_PATH);
    json = more ? json : NULL;
    while (json != NULL && more) {
        more = sp_json_path_next(&path, part);
        char *end = part;
        size_t index = strtoul(part, &end, 10);
        bool element = json_is_array(json) && *end == '\0';
        json = element ? json_array_get(json, index) : json_object_get(json, part);
    }
    return json;
}

// ---- scenarios ----

// The place of the scenario among those of the figure; takes it over.
static int place_of(figure_spec *spec, json_t *scenario)
{
    for (size_t i = 0; i < spec->scenario_count; i++) {
        if (json_equal(spec->scenarios[i], scenario)) {
            json_decref(scenario);
            return (int)i;
        }
    }
    *SP_ADDED(spec->scenarios, spec->scenario_capacity, spec->scenario_count) = scenario;
    return (int)spec->scenario_count - 1;
}

// {"base": ..., "grid": {...}} of settings in which a single value stands for an array of one.
static json_t *sweep_of(const json_t *base, const json_t *settings, const json_t *replaced)
{
    const json_t *sources[] = {settings, replaced};
    json_t *grid = json_object();
    for (int s = 0; s < 2; s++) {
        const char *path;
        json_t *value;
        json_object_foreach ((json_t *)sources[s], path, value) {
            json_t *copy = json_deep_copy(value);
            json_t *values = json_is_array(value) ? copy : json_pack("[o]", copy);
            sp_json_put(grid, path, values);
        }
    }
    return sp_json_object(SP_JSON("base", base != NULL ? json_deep_copy(base) : json_object()),
                          SP_JSON("grid", grid));
}

static void expand(figure_spec *spec, const sweep_spec *sweep, int **places)
{
    *places = sp_calloc((size_t)sweep->combinations, sizeof **places);
    for (int64_t c = 0; c < sweep->combinations; c++) {
        int64_t digit[SWEEP_AXES];
        sweep_spec_digits(sweep, c, digit);
        json_t *shared = sweep_spec_scenario(sweep, sweep->document, digit);
        (*places)[c] = place_of(spec, json_deep_copy(shared));
        json_decref(shared);
    }
}

// The scenarios of a point, or (`replaced` not NULL) of its baseline.
static sp_status take_scenarios(reader *r, sp_object *object, const json_t *replaced, int *count,
                                int **places)
{
    char source[FIGURE_SOURCE + SP_JSON_PATH + 2];
    sweep_spec sweep;
    snprintf(source, sizeof source, "%s: %s", r->spec->file, object->path);
    json_t *document =
        sweep_of(sp_object_get(&r->root, "base"), sp_object_get(object, "set"), replaced);
    SP_TRY(sweep_spec_from_json(document, source, &sweep, r->err));
    sp_status status = SP_OK;
    *count = sweep.combinations <= FIGURE_COMBINATIONS ? (int)sweep.combinations : 0;
    if (*count == 0) {
        sp_object_error(object, "set", "makes more than %d combinations", (int)FIGURE_COMBINATIONS);
        status = r->err->status;
    } else {
        expand(r->spec, &sweep, places);
    }
    sweep_spec_fini(&sweep);
    return status;
}

// ---- points ----

// The object that has the key: the point, or the file, for all points.
static sp_object *holder(reader *r, sp_object *object, const char *key)
{
    bool common = sp_object_has(&r->root, key);
    return !sp_object_has(object, key) && common ? &r->root : object;
}

static figure_bar read_bar(reader *r, sp_object *object)
{
    sp_object bar;
    sp_object *at = holder(r, object, "bar");
    sp_object_require(at, "bar");
    if (!sp_object_member(at, "bar", &bar)) {
        return (figure_bar){0};
    }
    bool relative = sp_object_has(&bar, "relative");
    if (relative == sp_object_has(&bar, "absolute")) {
        sp_object_error(at, "bar", "expected one of relative and absolute");
    }
    double size = sp_object_real(&bar, relative ? "relative" : "absolute", 0.0, 0.0, 1e9);
    sp_object_end(&bar);
    return (figure_bar){.relative = relative, .size = size};
}

static void read_values(reader *r, sp_object *object, figure_point *point)
{
    sp_object_require_all(object, "label", "published");
    point->label = sp_object_string(object, "label", "");
    point->published = sp_object_real(object, "published", 0.0, -1e18, 1e18);
    point->per = sp_object_real(object, "per", 1.0, 1e-9, 1e9);
    sp_object *at = holder(r, object, "key");
    if (!sp_object_has(object, "mean_of")) {
        sp_object_require(at, "key");
    }
    point->key = sp_object_string(at, "key", "");
    point->why = sp_object_string(object, "why", NULL);
    point->headline = sp_object_bool(object, "headline", false);
    point->measure = (figure_measure)sp_object_enum(holder(r, object, "measure"), "measure",
                                                    figure_measure_names, FIGURE_VALUE);
    point->take =
        (figure_take)sp_object_enum(holder(r, object, "take"), "take", take_names, FIGURE_MEAN);
    point->claim = (figure_claim)sp_object_enum(holder(r, object, "claim"), "claim",
                                                figure_claim_names, FIGURE_EQUAL);
    point->bar = read_bar(r, object);
    point->fitted = sp_object_bool(holder(r, object, "fitted"), "fitted", false);
    if (point->bar.relative && point->published == 0.0) {
        sp_object_error(object, "published", "is 0, of which no bar can be a share");
    }
}

static bool has_baseline(const figure_point *point)
{
    return point->measure == FIGURE_RATIO || point->measure == FIGURE_DIFFERENCE ||
           point->measure == FIGURE_REDUCTION;
}

static sp_status read_scenarios(reader *r, sp_object *object, figure_point *point)
{
    sp_object ignored;
    sp_object_member(object, "set", &ignored);
    sp_object *at = holder(r, object, "baseline");
    if (has_baseline(point)) {
        sp_object_require(at, "baseline");
    }
    sp_object_member(at, "baseline", &ignored);
    if (r->err->status != SP_OK) {
        return r->err->status;
    }
    const json_t *replaced = sp_object_get(at, "baseline");
    SP_TRY(take_scenarios(r, object, NULL, &point->combinations, &point->scenarios));
    if (has_baseline(point)) {
        int count = 0;
        SP_TRY(take_scenarios(r, object, replaced, &count, &point->baselines));
        if (count != point->combinations) {
            sp_object_error(at, "baseline", "makes %d scenarios for the point's %d", count,
                            point->combinations);
            SP_TRY(r->err->status);
        }
    }
    return SP_OK;
}

static sp_status read_point(reader *r, const json_t *json, size_t index)
{
    sp_object object;
    char path[PLACE];
    figure_spec *spec = r->spec;
    figure_point *point = SP_ADDED(spec->points, spec->capacity, spec->count);
    *point = (figure_point){0};
    snprintf(path, sizeof path, "points.%zu", index);
    sp_object_begin(&object, json, spec->file, path, r->err);
    read_values(r, &object, point);
    sp_status status = SP_OK;
    if (sp_object_get(&object, "mean_of") == NULL) {
        status = read_scenarios(r, &object, point);
    } else if (sp_object_has(&object, "set") || sp_object_has(&object, "take") ||
               sp_object_has(&object, "per")) {
        sp_object_error(&object, "mean_of",
                        "takes the settings of other points, beside which set, take and per have "
                        "no use");
    }
    sp_object_end(&object);
    return sp_status_is_fatal(status) ? status : SP_OK;
}

// ---- points that are the mean of others ----

// NULL, with an error, where not exactly one point that evaluates scenarios has the label.
static const figure_point *point_of_label(sp_object *object, const figure_spec *spec,
                                          const char *label)
{
    const figure_point *found = NULL;
    for (size_t i = 0; i < spec->count; i++) {
        const figure_point *point = &spec->points[i];
        if (point->combinations == 0 || strcmp(point->label, label) != 0) {
            continue;
        }
        if (found != NULL) {
            sp_object_error(object, "mean_of", "two points have the label '%.100s'", label);
            return NULL;
        }
        found = point;
    }
    if (found == NULL) {
        sp_object_error(object, "mean_of", "no point with settings has the label '%.100s'", label);
    }
    return found;
}

static int *joined(int *to, int count, const int *from, int more)
{
    to = sp_realloc(to, (size_t)(count + more) * sizeof *to);
    memcpy(to + count, from, (size_t)more * sizeof *to);
    return to;
}

// Of all combinations of the points with these labels; key, measure and per are theirs.
static void join_points(sp_object *object, const figure_spec *spec, const json_t *labels,
                        figure_point *to)
{
    size_t i;
    json_t *label;
    int count = 0;
    json_array_foreach (labels, i, label) {
        const figure_point *from =
            point_of_label(object, spec, json_is_string(label) ? json_string_value(label) : "");
        if (from == NULL) {
            return;
        }
        bool alike =
            strcmp(from->key, to->key) == 0 && from->measure == to->measure && from->per == to->per;
        if (i > 0 && !alike) {
            sp_object_error(object, "mean_of",
                            "'%.100s' has another key, measure or per than '%.100s'", from->label,
                            json_string_value(json_array_get(labels, 0)));
            return;
        }
        to->key = from->key;
        to->measure = from->measure;
        to->per = from->per;
        to->scenarios = joined(to->scenarios, count, from->scenarios, from->combinations);
        if (from->baselines != NULL) {
            to->baselines = joined(to->baselines, count, from->baselines, from->combinations);
        }
        count += from->combinations;
    }
    to->combinations = count;
}

static void read_means(reader *r, const json_t *points)
{
    size_t i;
    json_t *json;
    json_array_foreach (points, i, json) {
        sp_object object;
        char path[PLACE];
        const json_t *labels = json_object_get(json, "mean_of");
        if (labels == NULL || r->err->status != SP_OK) {
            continue;
        }
        snprintf(path, sizeof path, "points.%zu", i);
        sp_object_begin(&object, json, r->spec->file, path, r->err);
        if (json_array_size(labels) == 0) {
            sp_object_expected(&object, "mean_of", labels, "labels of points");
        } else {
            join_points(&object, r->spec, labels, &r->spec->points[i]);
        }
    }
}

// ---- panels ----

// How "panels" names the kind of a point: its key, after its measure where that is not value.
static void kind_of_point(const figure_point *point, char kind[FIGURE_PANEL])
{
    snprintf(kind, FIGURE_PANEL, "%s%s%s",
             point->measure != FIGURE_VALUE ? figure_measure_names[point->measure] : "",
             point->measure != FIGURE_VALUE ? " " : "", point->key);
}

static void read_panels(reader *r)
{
    sp_object panels;
    const char *kind;
    json_t *value;
    if (!sp_object_member(&r->root, "panels", &panels)) {
        return;
    }
    json_object_foreach ((json_t *)panels.json, kind, value) {
        const char *title = sp_object_string(&panels, kind, "");
        bool used = false;
        for (size_t i = 0; i < r->spec->count; i++) {
            char own[FIGURE_PANEL];
            kind_of_point(&r->spec->points[i], own);
            if (strcmp(own, kind) == 0) {
                r->spec->points[i].panel = title;
                used = true;
            }
        }
        if (!used) {
            sp_object_error(&panels, kind,
                            "no point has this key, after its measure where that is "
                            "not value");
        }
    }
}

// ---- the file ----

static void read_texts(reader *r)
{
    figure_spec *spec = r->spec;
    sp_object_require_all(&r->root, "title", "source", "assumptions");
    spec->title = sp_object_string(&r->root, "title", "");
    spec->source = sp_object_string(&r->root, "source", "");
    spec->assumptions = sp_object_texts(&r->root, "assumptions");
}

static sp_status read_points(reader *r)
{
    sp_object base;
    const json_t *points = sp_object_get(&r->root, "points");
    sp_status status = SP_OK;
    sp_object_member(&r->root, "base", &base);
    sp_object_require(&r->root, "points");
    if (points != NULL && json_array_size(points) == 0) {
        sp_object_expected(&r->root, "points", points, "an array of points");
    }
    for (size_t i = 0; status == SP_OK && i < json_array_size(points); i++) {
        status = read_point(r, json_array_get(points, i), i);
    }
    if (r->err->status == SP_OK) {
        read_means(r, points);
    }
    if (r->err->status == SP_OK) {
        read_panels(r);
    }
    return status;
}

sp_status figure_spec_from_json(json_t *document, const char *file, figure_spec *spec,
                                sp_error *err)
{
    sp_error own = {0};
    reader r = {.spec = spec, .err = err != NULL ? err : &own};
    *spec = (figure_spec){.document = document};
    snprintf(spec->file, sizeof spec->file, "%s", file);
    const char *slash = strrchr(file, '/');
    snprintf(spec->name, sizeof spec->name, "%s", slash != NULL ? slash + 1 : file);
    char *dot = strrchr(spec->name, '.');
    if (dot != NULL && strcmp(dot, ".json") == 0) {
        *dot = '\0';
    }
    sp_object_begin(&r.root, document, spec->file, "", r.err);
    sp_object_require(&r.root, "schema");
    sp_object_schema(&r.root, FIGURE_SCHEMA);
    read_texts(&r);
    spec->table = sp_object_string(&r.root, "table", NULL);
    spec->fitted = sp_object_bool(&r.root, "fitted", false);
    sp_status status = spec->table == NULL ? read_points(&r) : SP_OK;
    sp_object_end(&r.root);
    status = status == SP_OK ? r.err->status : status;
    if (status != SP_OK) {
        figure_spec_fini(spec);
    }
    return status;
}

// A point that sets the key itself would not be changed.
static sp_status refuse_set_by_point(const json_t *document, const char *file, const char *override,
                                     sp_error *err)
{
    char key[SP_JSON_PATH];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(override, "="), override);
    size_t i;
    const json_t *point;
    json_array_foreach (json_object_get(document, "points"), i, point) {
        if (json_object_get(json_object_get(point, "set"), key) != NULL) {
            return sp_error_set(err, SP_ERR_CONTENT,
                                "%s: --set %s changes nothing: the points set it, such as '%s'",
                                file, key, json_string_value(json_object_get(point, "label")));
        }
    }
    return SP_OK;
}

// Changes the scenario that all points have in common, and says so beside what is assumed.
static sp_status override_base(json_t *document, const char *file, const char *override,
                               sp_error *err)
{
    json_t *base = json_object_get(document, "base");
    if (!json_is_object(base)) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: --set has no scenario to change: the figure is a table of "
                            "measurements",
                            file);
    }
    json_t *assumptions = json_object_get(document, "assumptions");
    if (!json_is_array(assumptions)) {
        assumptions = json_array();
        sp_json_put(document, "assumptions", assumptions);
    }
    char text[SP_ERROR_TEXT];
    snprintf(text, sizeof text, "Not as published, but with --set %s.", override);
    json_array_append_new(assumptions, json_string(text));
    SP_TRY(refuse_set_by_point(document, file, override, err));
    return sp_scenario_override(base, override, err);
}

sp_status figure_spec_read(const char *path, const char *const *overrides, int count,
                           figure_spec *spec, sp_error *err)
{
    *spec = (figure_spec){0};
    json_t *document = NULL;
    SP_TRY(sp_json_read_file(path, DOCUMENT_LIMIT_BYTES, &document, err));
    sp_status status = sp_scenario_place(json_object_get(document, "base"), path, err);
    const char *slash = strrchr(path, '/');
    const char *file = slash != NULL ? slash + 1 : path;
    for (int i = 0; i < count && status == SP_OK; i++) {
        status = override_base(document, file, overrides[i], err);
    }
    if (status != SP_OK) {
        json_decref(document);
        return status;
    }
    status = figure_spec_from_json(document, path, spec, err);
    spec->changed = count > 0;
    return status;
}

// ---- reproduction ----

// The result of a scenario of a figure.
typedef struct evaluated {
    sweep_status status;
    json_t *result;             // NULL: none
    int64_t memory_limit_bytes; // of a rank; 0: not known
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

// ---- reproduction: scenarios ----

static sp_status train_step(const sweep_evaluator *evaluator, json_t *scenario, evaluated *to,
                            sp_error *err)
{
    sp_result result;
    sp_status found = sweep_evaluate_document(evaluator, scenario, &to->status, &result, err);
    to->result = found == SP_OK ? sp_result_json(&result, true) : NULL;
    to->memory_limit_bytes = found == SP_OK ? result.memory_limit_bytes : 0;
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

// Evaluates a scenario that has a section `prefill` or `decode`.
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

// ---- reproduction: values ----

// NAN, with a note, where the scenario has no such figure.
static double figure_of(const evaluated *e, const char *key, char note[FIGURE_NOTE])
{
    const json_t *value = e->result != NULL ? value_at(e->result, key) : NULL;
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
        const json_t *setting = value_at(scenario, point->key);
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

// ---- reproduction: panels ----

// A result's key in words, its unit in brackets: "peak memory (GiB)" of "memory.peak_memory_gib".
static void words_of_key(const char *key, char text[FIGURE_PANEL])
{
    static const struct {
        const char *ending, *unit;
    } units[] = {{"_ms", " (ms)"}, {"_gib", " (GiB)"}, {"_per_s", " per second"}};
    const char *dot = strrchr(key, '.');
    const char *name = dot != NULL ? dot + 1 : key;
    size_t length = strlen(name);
    const char *unit = "";
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        size_t end = strlen(units[i].ending);
        if (length > end && strcmp(name + length - end, units[i].ending) == 0) {
            unit = units[i].unit;
            length -= end;
            break;
        }
    }
    snprintf(text, FIGURE_PANEL, "%.*s%s", (int)(length < 64 ? length : 64), name, unit);
    for (char *c = text; *c != '\0'; c++) {
        *c = *c == '_' ? ' ' : *c;
    }
}

static void panel_of_point(const figure_point *point, char text[FIGURE_PANEL])
{
    static const char *const forms[] = {[FIGURE_VALUE] = "%s",
                                        [FIGURE_RATIO] = "%s, over that of the baseline",
                                        [FIGURE_DIFFERENCE] = "%s, less that of the baseline",
                                        [FIGURE_REDUCTION] =
                                            "%s, share of the baseline's that is gone",
                                        [FIGURE_LONGEST] = "longest %s that fits"};
    char words[FIGURE_PANEL];
    words_of_key(point->key, words);
    const char *form = point->panel != NULL ? "%s" : forms[point->measure];
    const char *at = strstr(form, "%s");
    snprintf(text, FIGURE_PANEL, "%.*s%.*s%s", (int)(at - form), form, FIGURE_PANEL / 2,
             point->panel != NULL ? point->panel : words, at + 2);
}

// The least limit of memory of the scenarios whose memory the point shows, by what divides it.
static double limit_of_point(const job *all, const figure_point *point)
{
    bool memory = point->measure == FIGURE_VALUE && strcmp(point->key, "peak_memory_gib") == 0;
    double limit = (double)INFINITY;
    for (int c = 0; memory && c < point->combinations; c++) {
        int64_t bytes = all->evaluated[point->scenarios[c]].memory_limit_bytes;
        limit = bytes > 0 ? fmin(limit, sp_gib_from_bytes(bytes) / point->per) : limit;
    }
    return isfinite(limit) ? limit : (double)NAN;
}

static bool keeps(const figure_outcome *o)
{
    // A number that is printed with so many digits is met to half of the last one.
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
                          .headline = point->headline,
                          .limit = limit_of_point(all, point)};
    snprintf(o->label, sizeof o->label, "%s", point->label);
    panel_of_point(point, o->panel);
    o->computed = taken(all, point, o->note) / point->per;
    o->error = o->relative ? o->computed / o->published - 1.0 : o->computed - o->published;
    o->within = isfinite(o->computed) && keeps(o);
    // What is known of the figure as published need not hold of another scenario.
    const char *known = point->why == NULL && point->headline ? "not known" : point->why;
    o->why = o->within || all->spec->changed ? NULL : known;
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

// ---- reproduction: tables ----

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
                              .limit = (double)NAN,
                              .claim = row->at_most ? FIGURE_AT_MOST : FIGURE_EQUAL,
                              .fitted = to->spec->fitted,
                              .within = true};
        snprintf(o->label, sizeof o->label, "%s", row->label);
        words_of_key(to->unit, o->panel);
    }
}

static sp_status reproduce_table(figure_reproduction *to, int threads, sp_error *err)
{
    sp_published published;
    sp_measurements table = {0};
    sp_validation validation = {0};
    char path[SP_PUBLISHED_PATH];
    sp_status status = sp_published_list(&sp_published_tables, &published, err);
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

// ---- reproduction: JSON ----

static json_t *outcome_json(const figure_outcome *o)
{
    json_t *b = sp_json_object(SP_JSON("label", o->label), SP_JSON("published", o->published),
                               SP_JSON("claim", figure_claim_names[o->claim]),
                               SP_JSON("computed", o->computed), SP_JSON("error", o->error),
                               SP_JSON("error_is", o->relative ? "relative" : "absolute"));
    if (o->has_bar) {
        sp_json_add(b, SP_JSON("bar", o->bar), SP_JSON("within", o->within));
    }
    sp_json_put(b, "fitted", json_boolean(o->fitted));
    if (o->headline) {
        sp_json_put(b, "headline", json_true());
    }
    if (isfinite(o->limit)) {
        sp_json_add(b, SP_JSON("memory_limit", o->limit));
    }
    if (o->note[0] != '\0') {
        sp_json_put(b, "note", json_string(o->note));
    }
    if (o->why != NULL) {
        sp_json_put(b, "why", json_string(o->why));
    }
    return b;
}

json_t *figure_reproduction_json(const figure_reproduction *reproduction)
{
    const figure_spec *spec = reproduction->spec;
    json_t *b = sp_json_object(SP_JSON("name", spec->name), SP_JSON("title", spec->title),
                               SP_JSON("source", spec->source));
    json_t *points = json_array();
    for (size_t i = 0; i < reproduction->count; i++) {
        json_array_append_new(points, outcome_json(&reproduction->outcomes[i]));
    }
    sp_json_add(b, SP_JSON("points", points),
                SP_JSON("assumptions", json_deep_copy(spec->assumptions)));
    if (reproduction->of_table) {
        sp_json_add(b, SP_JSON("table", spec->table), SP_JSON("unit", reproduction->unit),
                    SP_JSON("error", reproduction->table_error),
                    SP_JSON("bar", reproduction->table_bar));
    } else {
        sp_json_add(b, SP_JSON("within_count", reproduction->within_count),
                    SP_JSON("fitted_count", reproduction->fitted_count));
    }
    sp_json_put(b, "within", json_boolean(reproduction->within));
    return b;
}

// ---- the figures that travel with the program ----

const sp_published_kind figure_published = {
    .noun = "figure", .plural = "figures", .folder = "experiments/figures", .brief = true};

sp_status figure_file(const sp_published *figures, const char *name, char path[SP_DATA_PATH],
                      sp_error *err)
{
    const char *ending = strrchr(name, '.');
    bool is_file = (ending != NULL && ending != name && strcmp(ending, ".json") == 0) ||
                   strchr(name, '/') != NULL;
    if (!is_file) {
        return sp_published_file(figures, name, path, err);
    }
    return snprintf(path, SP_DATA_PATH, "%s", name) < SP_DATA_PATH
               ? SP_OK
               : sp_error_set(err, SP_ERR_IO, "%.64s: the path is too long", name);
}
