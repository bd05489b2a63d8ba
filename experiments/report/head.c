// The head of a page beside its answer: the title, the commands to go on with, and the settings.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/report/report.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/writer.h"

enum { SETTINGS = 64, DEEP = 8, KEY = 200, VALUE = 120 };

// ---- which model and GPUs ----

// The scenario of the first plan; NULL: there is none.
static const json_t *planned_scenario(const report_page *page)
{
    for (int i = 0; i < page->inputs->count; i++) {
        if (page->inputs->items[i].kind == REPORT_PLAN) {
            return json_object_get(page->inputs->items[i].json, "scenario");
        }
    }
    return NULL;
}

// Its name where it has one, else the text itself; NULL: neither.
static const char *name_in(const json_t *value)
{
    return json_is_string(value) ? json_string_value(value) : report_string(value, "name");
}

// The points of a page's sweep, and the base of its grid; NULL: the page is of something else, or
// the file does not say the base.
static const json_t *swept_points(const report_page *page)
{
    const report_input *first = report_first_answer(page);
    return first == NULL || first->settings == NULL ? NULL
           : first->kind == REPORT_SWEEP            ? first->json
                                                    : json_object_get(first->json, "best");
}

static const json_t *swept_base(const report_page *page)
{
    return swept_points(page) != NULL ? report_first_answer(page)->settings : NULL;
}

// Does the grid change the whole of a section?
static bool is_swept(const report_page *page, const char *path)
{
    const json_t *point = json_object_get(json_array_get(swept_points(page), 0), "point");
    return json_object_get(point, path) != NULL;
}

// A model that is described by its shape alone has no name.
static const char *swept_model(const report_page *page)
{
    const json_t *model = json_object_get(swept_base(page), "model");
    if (model == NULL || is_swept(page, "model")) {
        return NULL;
    }
    return name_in(model) != NULL ? name_in(model) : "custom";
}

static const char *swept_gpu(const report_page *page, sp_cluster *cluster)
{
    const json_t *stated = json_object_get(swept_base(page), "cluster");
    const char *gpu = report_string(stated, "gpu");
    const char *name = name_in(stated);
    if (is_swept(page, "cluster") || is_swept(page, "cluster.gpu")) {
        return NULL;
    }
    return gpu != NULL                                                        ? gpu
           : name != NULL && sp_cluster_builtin(name, cluster, NULL) == SP_OK ? cluster->gpu
                                                                              : NULL;
}

static const json_t *question_of(const report_page *page)
{
    const report_input *first = report_first_answer(page);
    return first != NULL && first->kind == REPORT_TUNE ? json_object_get(first->json, "question")
                                                       : NULL;
}

const char *report_model(const report_page *page)
{
    const char *model = report_string(question_of(page), "model");
    model = model != NULL ? model : name_in(json_object_get(report_main_result(page), "model"));
    return model != NULL ? model : swept_model(page);
}

static const char *model_of(const report_page *page)
{
    const char *model = report_model(page);
    if (model == NULL && page->sliders != NULL) {
        model = report_sliders_scenario(page->sliders)->model.name;
    }
    if (model == NULL && report_first_answer(page) == NULL) {
        model = name_in(json_object_get(planned_scenario(page), "model"));
    }
    return model;
}

// Ranks along all axes of an object that has them; 0: it does not.
static double ranks_in(const json_t *degrees)
{
    static const char *const names[] = {"tp", "cp", "pp", "dp"};
    double ranks = 1.0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ranks *= report_number(degrees, names[i]);
    }
    return isfinite(ranks) ? ranks : 0.0;
}

// "8 to 64 H100 GPUs"
static void add_swept_gpus(const report_page *page, char text[REPORT_TITLE])
{
    double least = HUGE_VAL;
    double most = 0.0;
    size_t i;
    json_t *point;
    sp_cluster cluster;
    json_array_foreach (swept_points(page), i, point) {
        double ranks = ranks_in(point);
        least = ranks > 0.0 && ranks < least ? ranks : least;
        most = ranks > most ? ranks : most;
    }
    if (most < 1.0) {
        return;
    }
    const char *gpu = swept_gpu(page, &cluster);
    sp_append(text, REPORT_TITLE, " on %.0f", least);
    if (most > least) {
        sp_append(text, REPORT_TITLE, " to %.0f", most);
    }
    sp_append(text, REPORT_TITLE, " %s%s%s", gpu != NULL ? gpu : "", gpu != NULL ? " " : "",
              most > 1.0 ? "GPUs" : "GPU");
}

static double gpus_of(const report_page *page)
{
    const json_t *result = report_main_result(page);
    double gpus = report_number(question_of(page), "gpus");
    if (!(gpus > 0.0)) {
        gpus = ranks_in(json_object_get(result, "layout"));
    }
    if (!(gpus > 0.0) && report_first_answer(page) == NULL) {
        gpus = ranks_in(json_object_get(planned_scenario(page), "parallel"));
    }
    return gpus;
}

// A scenario tells of the GPUs of an answer where it is of the same model.
static const char *gpu_of(const report_page *page, const char *model)
{
    const char *gpu = report_string(question_of(page), "gpu");
    const json_t *planned = planned_scenario(page);
    const char *of_plan = name_in(json_object_get(planned, "model"));
    if (gpu == NULL && page->sliders != NULL) {
        const sp_scenario *scenario = report_sliders_scenario(page->sliders);
        gpu = strcmp(scenario->model.name, model) == 0 ? scenario->cluster.gpu : NULL;
    }
    if (gpu == NULL && of_plan != NULL && strcmp(of_plan, model) == 0) {
        gpu = report_string(json_object_get(planned, "cluster"), "gpu");
    }
    return gpu;
}

// What a document without a model is.
static void add_kind(const report_page *page, char text[REPORT_TITLE])
{
    const report_input *first = report_first_answer(page);
    switch (first != NULL ? first->kind : REPORT_KINDS) {
    case REPORT_SWEEP:
    case REPORT_SWEEP_SUMMARY: {
        double points = first->kind == REPORT_SWEEP
                            ? (double)first->points
                            : fmax(0.0, report_number(first->json, "points"));
        sp_append(text, REPORT_TITLE, "%cweep of %.0f point%s", text[0] == '\0' ? 'S' : 's', points,
                  points == 1.0 ? "" : "s");
        break;
    }
    case REPORT_VALIDATION:
        sp_append(text, REPORT_TITLE, "Predicted and measured steps");
        break;
    case REPORT_MEMORY_CURVE:
        sp_append(text, REPORT_TITLE, "Strategies by the memory of a GPU");
        break;
    case REPORT_PREFILL:
        sp_append(text, REPORT_TITLE, "Time to the first token");
        break;
    case REPORT_DECODE:
        sp_append(text, REPORT_TITLE, "Generated text");
        break;
    case REPORT_COMPARISON:
        sp_append(text, REPORT_TITLE, "Strategies compared");
        break;
    case REPORT_RESULT:
    case REPORT_TUNE:
        sp_append(text, REPORT_TITLE, "One step");
        break;
    case REPORT_PLAN:
    case REPORT_TRACE:
    case REPORT_KINDS:
        sp_append(text, REPORT_TITLE, page->timeline_count > 0 ? "A timeline" : "A plan");
    }
}

const char *report_title(const report_page *page, char text[REPORT_TITLE])
{
    const report_input *first = report_first_answer(page);
    const char *model = model_of(page);
    text[0] = '\0';
    if (model == NULL || model[0] == '\0') {
        add_kind(page, text);
        return text;
    }
    double gpus = gpus_of(page);
    sp_append(text, REPORT_TITLE, "%s", model);
    if (swept_base(page) != NULL) {
        add_swept_gpus(page, text);
        sp_append(text, REPORT_TITLE, ": ");
        add_kind(page, text);
    } else if (first != NULL && first->kind == REPORT_PREFILL) {
        sp_append(text, REPORT_TITLE, ": time to the first token");
    } else if (first != NULL && first->kind == REPORT_DECODE) {
        sp_append(text, REPORT_TITLE, ": generated text");
    } else if (gpus >= 1.0) {
        const char *gpu = gpu_of(page, model);
        sp_append(text, REPORT_TITLE, " on %.0f%s%s %s", gpus, gpu != NULL ? " " : "",
                  gpu != NULL ? gpu : "", gpus > 1.0 ? "GPUs" : "GPU");
    }
    text[sp_fitting(text, REPORT_TITLE)] = '\0';
    return text;
}

// ---- what was swept ----

// The last part of a path where no other has the same, of kinds that of the section.
static const char *swept_name(const json_t *swept, const char *path, char text[KEY])
{
    const char *dot = strrchr(path, '.');
    const char *leaf = dot != NULL ? dot + 1 : path;
    const char *other;
    json_t *values;
    if (dot != NULL && strcmp(leaf, "kind") == 0) {
        snprintf(text, KEY, "%.*s", (int)(dot - path), path);
        return text;
    }
    json_object_foreach ((json_t *)swept, other, values) {
        const char *end = strrchr(other, '.');
        if (strcmp(other, path) != 0 && strcmp(end != NULL ? end + 1 : other, leaf) == 0) {
            return path;
        }
    }
    return leaf;
}

const char *report_swept(const report_page *page, char text[REPORT_SWEPT])
{
    enum { LISTED = 8 };
    const report_input *first = report_first_answer(page);
    const json_t *swept = first != NULL ? first->swept : NULL;
    const char *path;
    json_t *values;
    text[0] = '\0';
    json_object_foreach ((json_t *)swept, path, values) {
        const size_t count = json_object_size(values);
        const char *key;
        json_t *value;
        char name[KEY];
        size_t i = 0;
        if (count < 2) {
            continue;
        }
        sp_append(text, REPORT_SWEPT, "%s%s", text[0] == '\0' ? "swept: " : "; ",
                  swept_name(swept, path, name));
        json_object_foreach (values, key, value) {
            const char *word = name_in(value) != NULL ? name_in(value) : key;
            if (count <= LISTED || i == 0) {
                sp_append(text, REPORT_SWEPT, "%s %s", i > 0 ? "," : "", word);
            } else if (i + 1 == count) {
                sp_append(text, REPORT_SWEPT, " to %s (%zu values)", word, count);
            }
            i++;
        }
    }
    text[sp_fitting(text, REPORT_SWEPT)] = '\0';
    return text;
}

// ---- what to run next ----

static void add_command(json_t *list, sp_text *command, const char *why)
{
    char *words = sp_text_end(command);
    json_t *text = json_string(words); // NULL where a path is not UTF-8
    if (text != NULL) {
        json_array_append_new(list, sp_json_object(SP_JSON("command", text), SP_JSON("why", why)));
    }
    sp_free(words);
}

// The file of the scenario where the page knows it.
static void put_scenario(FILE *out, const report_page *page)
{
    (void)fputs(page->sliders != NULL ? report_sliders_words(page->sliders) : "SCENARIO", out);
}

static void put_set(FILE *out, const char *path, const json_t *value)
{
    enum { DIGITS = 15 };
    char *text =
        json_is_string(value)
            ? NULL
            : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(DIGITS));
    const char *word = text != NULL ? text : json_string_value(value);
    char *assignment = sp_calloc(strlen(path) + strlen(word) + sizeof "=", 1);
    (void)sprintf(assignment, "%s=%s", path, word);
    (void)fputs(" --set ", out);
    sp_print_word(out, assignment);
    sp_free(assignment);
    free(text);
}

static void put_sets(FILE *out, const json_t *point)
{
    const char *path;
    json_t *value;
    json_object_foreach ((json_t *)point, path, value) {
        put_set(out, path, value);
    }
}

// The question to `tune` that a scenario asks, where its words can say model and cluster.
static void add_tune(const report_page *page, json_t *list, const char *why)
{
    const sp_scenario *scenario =
        page->sliders != NULL ? report_sliders_scenario(page->sliders) : NULL;
    if (scenario == NULL) {
        return;
    }
    const char *model = json_string_value(json_object_get(scenario->stated, "model"));
    const json_t *cluster = json_object_get(scenario->stated, "cluster");
    const json_t *lengths =
        json_object_get(json_object_get(scenario->stated, "workload"), "lengths");
    int64_t context = scenario->workload.context;
    if (model == NULL || context < 1 || (cluster != NULL && !json_is_string(cluster))) {
        return;
    }
    sp_text c;
    sp_text_begin(&c);
    (void)fputs("slimpack tune ", c.file);
    sp_print_word(c.file, model);
    (void)fprintf(c.file, " --gpus %lld --context %lld --cluster ",
                  (long long)sp_layout_ranks(&scenario->layout), (long long)context);
    sp_print_word(c.file, cluster != NULL ? json_string_value(cluster) : scenario->cluster.name);
    if (json_is_string(lengths)) {
        (void)fputs(" --lengths ", c.file);
        sp_print_word(c.file, json_string_value(lengths));
    }
    add_command(list, &c, why);
}

static void add_next_of_result(const report_page *page, const report_input *first, json_t *list)
{
    const char *fits = report_string(first->json, "fits");
    bool has_room = fits == NULL || strcmp(fits, "no") != 0;
    sp_text c;
    if (!has_room) {
        add_tune(page, list, "finds the fastest layout that fits on these GPUs");
    }
    sp_text_begin(&c);
    (void)fputs("slimpack compare ", c.file);
    put_scenario(c.file, page);
    add_command(list, &c, "sets other packing strategies beside it, on the same batches");
    if (has_room) {
        add_tune(page, list, "looks for a faster layout on these GPUs");
    }
    if (page->timeline_count == 0) {
        sp_text_begin(&c);
        (void)fputs("slimpack simulate ", c.file);
        put_scenario(c.file, page);
        (void)fputs(" --json --trace trace.json --plan plan.json > result.json && slimpack report "
                    "result.json trace.json plan.json -o page.html",
                    c.file);
        add_command(list, &c, "adds a timeline and memory over time to this page");
    }
    if (page->sliders == NULL) {
        sp_text_begin(&c);
        (void)fputs("slimpack report ", c.file);
        sp_print_word(c.file, first->path);
        (void)fputs(" --sliders SCENARIO -o page.html", c.file);
        add_command(list, &c,
                    "adds sliders: GPUs, context, tensor and pipeline ranks, recomputation");
    }
}

static bool all_have(const json_t *rows, const char *key, const char *text)
{
    size_t i;
    json_t *row;
    json_array_foreach (rows, i, row) {
        const char *other = report_string(row, key);
        if (other != NULL && strcmp(other, text) != 0) {
            return false;
        }
    }
    return true;
}

// The best row is another strategy or another schedule, at the layout that serves it best where
// such were looked for.
static void add_next_of_comparison(const report_page *page, const report_input *first, json_t *list)
{
    static const char *const settings[][2] = {{"strategy", "strategy.kind"},
                                              {"schedule", "schedule.kind"}};
    const json_t *best = report_main_result(page);
    const json_t *rows = json_object_get(first->json, "rows");
    if (best == NULL) {
        add_tune(page, list, "finds the fastest layout that fits on these GPUs");
        return;
    }
    sp_text c;
    sp_text_begin(&c);
    (void)fputs("slimpack simulate ", c.file);
    put_scenario(c.file, page);
    // A strategy that brings its schedule is not told that of others.
    size_t kind =
        all_have(rows, "strategy",
                 report_string(best, "strategy") != NULL ? report_string(best, "strategy") : "")
            ? 1
            : 0;
    if (json_is_string(json_object_get(best, settings[kind][0]))) {
        put_set(c.file, settings[kind][1], json_object_get(best, settings[kind][0]));
    }
    const json_t *found = json_object_get(best, "best");
    put_sets(c.file, json_is_object(found) ? found : NULL);
    (void)fputs(" --timeline", c.file);
    add_command(list, &c, "draws the step of the fastest row");
    add_tune(page, list, "looks for a faster layout on these GPUs");
}

static json_t *next_commands(const report_page *page)
{
    const report_input *first = report_first_answer(page);
    const json_t *point = json_object_get(report_main_result(page), "point");
    json_t *list = json_array();
    sp_text c;
    switch (first != NULL ? first->kind : REPORT_KINDS) {
    case REPORT_RESULT:
        add_next_of_result(page, first, list);
        break;
    case REPORT_COMPARISON:
        add_next_of_comparison(page, first, list);
        break;
    case REPORT_TUNE:
        if (report_string(first->json, "go_on") != NULL) {
            sp_text_begin(&c);
            (void)fputs(report_string(first->json, "go_on"), c.file);
            add_command(list, &c, "simulates the answer and draws its timeline");
        }
        break;
    case REPORT_SWEEP:
    case REPORT_SWEEP_SUMMARY:
        if (point != NULL) {
            sp_text_begin(&c);
            (void)fputs("slimpack simulate ", c.file);
            put_scenario(c.file, page);
            put_sets(c.file, point);
            (void)fputs(" --timeline", c.file);
            add_command(list, &c, "draws the step of the fastest point");
        }
        break;
    case REPORT_VALIDATION:
    case REPORT_PLAN:
    case REPORT_MEMORY_CURVE:
    case REPORT_PREFILL:
    case REPORT_DECODE:
    case REPORT_TRACE:
    case REPORT_KINDS:
        break;
    }
    return list;
}

// ---- the settings ----

static void add_setting(json_t *list, const char *key, const json_t *value)
{
    char text[VALUE];
    if (value == NULL || json_is_null(value) || json_array_size(list) >= SETTINGS) {
        return;
    }
    if (json_is_string(value)) {
        snprintf(text, sizeof text, "%s", json_string_value(value));
    } else if (json_is_real(value)) {
        snprintf(text, sizeof text, "%.9g", json_real_value(value));
    } else {
        sp_json_quote(value, text, sizeof text);
    }
    text[sp_fitting(text, sizeof text)] = '\0';
    json_array_append_new(list, json_pack("[s, s]", key, text));
}

// Dotted keys down to what is no object.
static void add_settings(json_t *list, const char *prefix, const json_t *object, int depth)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)object, name, value) {
        char key[KEY] = "";
        bool of_document =
            depth == 0 && (strcmp(name, "schema") == 0 || strcmp(name, "chosen") == 0);
        sp_append(key, sizeof key, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", name);
        key[sp_fitting(key, sizeof key)] = '\0';
        if (json_is_object(value) && depth < DEEP && !of_document) {
            add_settings(list, key, value, depth + 1);
        } else if (!of_document) {
            add_setting(list, key, value);
        }
    }
}

// Of a resolved scenario what its sections say that are not the model's or the cluster's own.
static void add_resolved(json_t *list, const json_t *scenario)
{
    static const char *const named[] = {"model", "cluster", "stack"};
    static const char *const sections[] = {"nodes",    "profile", "precision", "parallel",
                                           "schedule", "memory",  "workload",  "strategy"};
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        add_setting(list, named[i], json_object_get(json_object_get(scenario, named[i]), "name"));
    }
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        json_t *value = json_object_get(scenario, sections[i]);
        if (json_is_object(value)) {
            add_settings(list, sections[i], value, 1);
        } else {
            add_setting(list, sections[i], value);
        }
    }
}

// The base of a grid, without what the grid changes: what all points share.
static void add_shared(json_t *list, const report_page *page)
{
    const json_t *point = json_object_get(json_array_get(swept_points(page), 0), "point");
    json_t *shared = json_deep_copy(swept_base(page));
    const char *path;
    json_t *value;
    json_object_foreach ((json_t *)point, path, value) {
        json_t *holder = shared;
        const char *key = path;
        for (const char *dot; (dot = strchr(key, '.')) != NULL; key = dot + 1) {
            char part[KEY];
            snprintf(part, sizeof part, "%.*s", (int)(dot - key), key);
            holder = json_object_get(holder, part);
        }
        json_object_del(holder, key);
    }
    add_settings(list, "", shared, 0);
    json_decref(shared);
}

static json_t *settings(const report_page *page)
{
    static const char *const of_result[] = {"strategy", "schedule", "cp_overlap", "stage_layers",
                                            "seed"};
    const json_t *result = report_main_result(page);
    const json_t *planned = planned_scenario(page);
    const char *of_plan = name_in(json_object_get(planned, "model"));
    const char *model = model_of(page);
    json_t *list = json_array();
    if (page->sliders != NULL) {
        add_settings(list, "", report_sliders_scenario(page->sliders)->stated, 0);
    } else if (swept_base(page) != NULL) {
        add_shared(list, page);
    } else if (of_plan != NULL && model != NULL && strcmp(of_plan, model) == 0) {
        add_resolved(list, planned);
    } else {
        add_settings(list, "", question_of(page), 1);
        const json_t *top = json_array_get(
            json_object_get(
                report_first_answer(page) != NULL ? report_first_answer(page)->json : NULL, "top"),
            0);
        add_settings(list, "", json_object_get(question_of(page) != NULL ? top : result, "point"),
                     1);
        for (size_t i = 0; question_of(page) == NULL && i < sizeof of_result / sizeof of_result[0];
             i++) {
            add_setting(list, of_result[i], json_object_get(result, of_result[i]));
        }
        add_settings(list, "layout",
                     question_of(page) == NULL ? json_object_get(result, "layout") : NULL, 1);
        add_setting(list, "profile",
                    json_object_get(json_object_get(result, "provenance"), "profile"));
    }
    return list;
}

json_t *report_head_json(const report_page *page)
{
    return sp_json_object(SP_JSON("next", next_commands(page)),
                          SP_JSON("settings", settings(page)));
}
