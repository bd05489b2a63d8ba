// The positions of a page's sliders, evaluated by the program.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/report/report.h"
#include "experiments/sweep/sweep.h"
#include "sim/base/alloc.h"
#include "sim/base/files.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"
#include "sim/base/writer.h"

enum {
    VALUES = 16, // of an axis
    TEXT = 64,
    NOTES = 4,           // of a position that are shown
    NOTES_BYTES = 500000 // of different texts
};

// The figures of a position, as the result of `simulate` has them. The first is written with all
// digits of a document.
static const char *const columns[] = {
    "iteration_ms",     "tokens_per_gpu_s",         "mfu_full_attention", "bubble_ratio",
    "peak_memory_gib",  "peak_memory_reserved_gib", "memory_margin_gib",  "fit_probability",
    "parts_ms.compute", "parts_ms.launch",          "parts_ms.tp_comm",   "parts_ms.cp_comm",
    "parts_ms.pp_comm", "parts_ms.dp_comm",         "parts_ms.ep_comm",   "parts_ms.optimizer",
    "parts_ms.bubble",  "parts_ms.allocator",       "error.median",
};

enum { COLUMNS = sizeof columns / sizeof columns[0] };

typedef enum axis_kind { GPUS, CONTEXT, TP, PP, RECOMPUTE, AXES } axis_kind;

static const struct {
    const char *key, *name;
} axis_names[AXES] = {
    {"gpus", "GPUs"},
    {"workload.context", "context"},
    {"parallel.tp", "tensor-parallel ranks"},
    {"parallel.pp", "pipeline ranks"},
    {"memory.recompute", "recomputation"},
};

typedef struct axis {
    int64_t value[VALUES]; // of recomputation the index of its name
    int count;
    int base; // that of the scenario
} axis;

typedef enum outcome { NO_TURN, RUNS, TIGHT, NO_ROOM, CANNOT, OUTCOMES } outcome;

static const char outcome_letters[OUTCOMES] = {'-', 'y', 't', 'n', 'x'};

typedef struct position {
    outcome outcome;
    int dp;           // 0: GPUs cannot be shared out so
    char *reason;     // why it does not run or does not fit; owned, NULL: none
    json_t *warnings; // owned, NULL: none
    double figure[COLUMNS];
} position;

struct report_sliders {
    report_slider_options options;
    sp_scenario scenario;
    const char *nodes; // the key by which the scenario states its nodes; NULL: none
    const char *recompute[SP_RECOMPUTE_MODES + 1]; // names, and the scenario's own set of modules
    char modules[SP_RECOMPUTE_TEXT];
    axis axes[AXES];
    int count; // positions
    int turns; // positions that may be evaluated
    int *order;
    position *positions;
    sweep_evaluator evaluator;
    sp_progress progress;
    double until_s;
    char *words;
};

static sp_status choose_positions(report_sliders *sliders, sp_error *err);
static sp_status evaluate_positions(report_sliders *sliders, sp_error *err);
static char *words_of(const report_slider_options *options);

sp_status report_sliders_new(const report_slider_options *options, report_sliders **sliders,
                             sp_error *err)
{
    report_sliders *made = sp_calloc(1, sizeof *made);
    *sliders = NULL;
    made->options = *options;
    sp_status status = sp_scenario_read(options->path, options->overrides, options->override_count,
                                        &made->scenario, err);
    if (status == SP_OK) {
        made->words = words_of(options);
        status = choose_positions(made, err);
    }
    if (status == SP_OK) {
        status = evaluate_positions(made, err);
    }
    if (status != SP_OK) {
        report_sliders_free(made);
        return status;
    }
    *sliders = made;
    return SP_OK;
}

void report_sliders_free(report_sliders *sliders)
{
    if (sliders == NULL) {
        return;
    }
    for (int i = 0; sliders->positions != NULL && i < sliders->count; i++) {
        sp_free(sliders->positions[i].reason);
        json_decref(sliders->positions[i].warnings);
    }
    sp_free(sliders->positions);
    sp_free(sliders->order);
    sp_free(sliders->words);
    sp_scenario_fini(&sliders->scenario);
    sp_free(sliders);
}

const sp_scenario *report_sliders_scenario(const report_sliders *sliders)
{
    return &sliders->scenario;
}

const char *report_sliders_path(const report_sliders *sliders)
{
    return sliders->options.path;
}

const char *report_sliders_words(const report_sliders *sliders)
{
    return sliders->words;
}

// ---- the scenario as words of a command ----

static void put_words(FILE *out, const report_slider_options *options)
{
    // Standard input has been read.
    sp_print_word(out, strcmp(options->path, SP_STANDARD_INPUT) == 0 ? "SCENARIO" : options->path);
    for (int i = 0; i < options->override_count; i++) {
        (void)fputs(" --set ", out);
        sp_print_word(out, options->overrides[i]);
    }
}

static char *words_of(const report_slider_options *options)
{
    sp_text text;
    put_words(sp_text_begin(&text), options);
    return sp_text_end(&text);
}

// ---- which positions there are ----

static void add_value(axis *a, int64_t value, int64_t base)
{
    int at = 0;
    while (at < a->count && a->value[at] < value) {
        at++;
    }
    bool is_there = at < a->count && a->value[at] == value;
    if (!is_there && a->count < VALUES) {
        memmove(a->value + at + 1, a->value + at, (size_t)(a->count - at) * sizeof a->value[0]);
        a->value[at] = value;
        a->count++;
    }
    for (a->base = 0; a->base + 1 < a->count && a->value[a->base] < base;) {
        a->base++;
    }
}

// Halves and doubles of the base that are multiples of `unit`.
static void add_around(axis *a, int64_t base, int64_t unit, int halves, int doubles, int64_t most)
{
    for (int i = -halves; i <= doubles; i++) {
        int64_t value = i < 0 ? base >> -i : base << i;
        bool exact = i >= 0 || value << -i == base;
        if (exact && value >= unit && value % unit == 0 && value <= most) {
            add_value(a, value, base);
        }
    }
    add_value(a, base, base);
}

// Powers of two that divide `whole` (0: all), and the base.
static void add_powers(axis *a, int64_t base, int64_t most, int64_t whole)
{
    enum { POWERS = 6 };
    add_value(a, base, base);
    for (int i = 0; i < POWERS && (int64_t)1 << i <= most; i++) {
        if (whole % ((int64_t)1 << i) == 0) {
            add_value(a, (int64_t)1 << i, base);
        }
    }
}

static const char *nodes_key(const report_sliders *sliders)
{
    static const char *const keys[] = {"nodes", "cluster.nodes"};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        for (int i = 0; sp_setting_at(i) != NULL; i++) {
            if (strcmp(sp_setting_at(i)->key, keys[k]) == 0 &&
                sp_scenario_states(&sliders->scenario, i)) {
                return keys[k];
            }
        }
    }
    return NULL;
}

// The modes that the model can have, and what the scenario states.
static void add_recomputations(report_sliders *sliders, axis *a)
{
    sp_recompute stated = sliders->scenario.memory.recompute;
    bool is_mode = (unsigned)stated < SP_RECOMPUTE_MODES;
    int base = is_mode ? (int)stated : SP_RECOMPUTE_MODES;
    for (int i = 0; i < SP_RECOMPUTE_MODES; i++) {
        sliders->recompute[i] = sp_recompute_names[i];
    }
    sliders->recompute[SP_RECOMPUTE_MODES] = sp_recompute_text(stated, sliders->modules);
    for (int i = 0; i <= SP_RECOMPUTE_MODES; i++) {
        bool has = i < SP_RECOMPUTE_MODES &&
                   sp_recompute_lacks((sp_recompute)i, &sliders->scenario.model, NULL) == NULL;
        if (has || i == base) {
            a->value[a->count] = i;
            a->base = i == base ? a->count : a->base;
            a->count++;
        }
    }
}

static void digits_of(const report_sliders *sliders, int at, int digit[AXES])
{
    for (int a = AXES - 1; a >= 0; a--) {
        digit[a] = at % sliders->axes[a].count;
        at /= sliders->axes[a].count;
    }
}

static int distance(const report_sliders *sliders, int at)
{
    int digit[AXES];
    int sum = 0;
    digits_of(sliders, at, digit);
    for (int a = 0; a < AXES; a++) {
        sum += abs(digit[a] - sliders->axes[a].base);
    }
    return sum;
}

// The order in which positions are evaluated: by how far the sliders are moved, then as they come.
static void order_positions(report_sliders *sliders)
{
    int next = 0;
    for (int far = 0; next < sliders->count; far++) {
        for (int i = 0; i < sliders->count; i++) {
            if (distance(sliders, i) == far) {
                sliders->order[next++] = i;
            }
        }
    }
}

static sp_status choose_positions(report_sliders *sliders, sp_error *err)
{
    enum { HALVES = 2, DOUBLES = 3 };
    const sp_scenario *scenario = &sliders->scenario;
    const sp_layout *layout = &scenario->layout;
    int64_t gpus = sp_layout_ranks(layout);
    int64_t context = scenario->workload.context;
    int64_t of_node = scenario->cluster.gpus_per_node;
    if (scenario->uniform) {
        return sp_error_in(err, SP_ERR_CONTENT, sliders->options.path, "uniform_costs",
                           "sliders need a model on a cluster, which stated costs are not");
    }
    axis *axes = sliders->axes;
    sliders->nodes = nodes_key(sliders);
    add_around(&axes[GPUS], gpus, sliders->nodes != NULL ? of_node : 1, HALVES, DOUBLES, INT32_MAX);
    add_around(&axes[CONTEXT], context, 1, HALVES, HALVES, INT32_MAX);
    add_powers(&axes[TP], layout->tp, of_node, 0);
    // Layers in equal shares, unless the scenario's own are not.
    int64_t layers = scenario->model.layers;
    bool equal = layout->stage_layers == NULL && !scenario->cuts_layers && !scenario->shares_open;
    add_powers(&axes[PP], layout->pp, layers, equal ? layers : 0);
    add_recomputations(sliders, &axes[RECOMPUTE]);
    sliders->count = 1;
    for (int a = 0; a < AXES; a++) {
        sliders->count *= axes[a].count;
    }
    sliders->turns =
        sliders->options.points < sliders->count ? (int)sliders->options.points : sliders->count;
    sliders->order = sp_calloc((size_t)sliders->count, sizeof *sliders->order);
    sliders->positions = sp_calloc((size_t)sliders->count, sizeof *sliders->positions);
    for (int i = 0; i < sliders->count; i++) {
        for (int c = 0; c < COLUMNS; c++) {
            sliders->positions[i].figure[c] = (double)NAN;
        }
    }
    order_positions(sliders);
    return SP_OK;
}

// ---- evaluating them ----

static sp_status override_int(json_t *document, const char *key, int64_t value, sp_error *err)
{
    char text[TEXT];
    snprintf(text, sizeof text, "%s=%lld", key, (long long)value);
    return sp_scenario_override(document, text, err);
}

// What --set of the position's command does, in its order. *document is the caller's.
static sp_status place_sliders(const report_sliders *sliders, const int digit[AXES], int dp,
                               json_t *document, sp_error *err)
{
    const axis *axes = sliders->axes;
    char text[TEXT];
    int64_t gpus = axes[GPUS].value[digit[GPUS]];
    int64_t of_node = sliders->scenario.cluster.gpus_per_node;
    sp_status status = SP_OK;
    if (sliders->nodes != NULL) {
        status = override_int(document, sliders->nodes, gpus / of_node, err);
    }
    for (int a = CONTEXT; a <= PP && status == SP_OK; a++) {
        // A context of 0 is that of the longest sample, which nobody stated.
        status = axes[a].value[digit[a]] == 0
                     ? SP_OK
                     : override_int(document, axis_names[a].key, axes[a].value[digit[a]], err);
    }
    if (status == SP_OK) {
        status = override_int(document, "parallel.dp", dp, err);
    }
    snprintf(text, sizeof text, "%s=%s", axis_names[RECOMPUTE].key,
             sliders->recompute[axes[RECOMPUTE].value[digit[RECOMPUTE]]]);
    return status == SP_OK ? sp_scenario_override(document, text, err) : status;
}

static double figure_of(const json_t *result, const char *key)
{
    const char *dot = strchr(key, '.');
    char name[TEXT];
    const json_t *value = result;
    if (dot != NULL) {
        snprintf(name, sizeof name, "%.*s", (int)(dot - key), key);
        value = json_object_get(value, name);
        key = dot + 1;
    }
    value = json_object_get(value, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static void take_result(const sp_result *result, position *p)
{
    json_t *json = sp_result_json(result, false);
    report_add_parts(json);
    for (int c = 0; c < COLUMNS; c++) {
        p->figure[c] = figure_of(json, columns[c]);
    }
    sp_fits fits = sp_result_fits(result);
    p->outcome = fits == SP_FITS_NO ? NO_ROOM : fits == SP_FITS_TIGHT ? TIGHT : RUNS;
    if (result->oom_diagnosis[0] != '\0') {
        p->reason = sp_strdup(result->oom_diagnosis);
    }
    p->warnings = json_incref(json_object_get(json, "warnings"));
    json_decref(json);
}

static void note_failure(sp_status status, const sp_error *reason, position *p)
{
    const char *text = reason->count > 0 ? reason->message[0] : sp_status_text(status);
    static const char of_point[] = "point: "; // the name of the document that an evaluator reads
    bool named = strncmp(text, of_point, sizeof of_point - 1) == 0;
    p->outcome = CANNOT;
    p->reason = sp_strdup(named ? text + sizeof of_point - 1 : text);
}

static sp_status evaluate_position(const report_sliders *sliders, const int digit[AXES],
                                   position *p, sp_error *err)
{
    const axis *axes = sliders->axes;
    int64_t ranks =
        axes[TP].value[digit[TP]] * axes[PP].value[digit[PP]] * sliders->scenario.layout.cp;
    int64_t gpus = axes[GPUS].value[digit[GPUS]];
    if (gpus % ranks != 0) {
        sp_error reason = {0};
        sp_error_set(&reason, SP_ERR_CONTENT,
                     "%lld GPUs are no multiple of the %lld ranks of tp x cp x pp", (long long)gpus,
                     (long long)ranks);
        note_failure(SP_ERR_CONTENT, &reason, p);
        return SP_OK;
    }
    p->dp = (int)(gpus / ranks);
    sp_result result = {0};
    sp_error reason = {0};
    sweep_status of_point;
    json_t *document = json_deep_copy(sliders->scenario.stated);
    sp_status status = place_sliders(sliders, digit, p->dp, document, &reason);
    if (status == SP_OK) {
        status =
            sweep_evaluate_document(&sliders->evaluator, document, &of_point, &result, &reason);
    }
    json_decref(document);
    if (status == SP_OK) {
        take_result(&result, p);
    } else if (!sp_status_is_fatal(status)) {
        note_failure(status, &reason, p);
        status = SP_OK;
    } else {
        status = sp_error_set(err, status, "%s",
                              reason.count > 0 ? reason.message[0] : sp_status_text(status));
    }
    sp_result_fini(&result);
    return status;
}

static sp_status take_turn(void *context, int worker, int job, sp_error *err)
{
    report_sliders *sliders = context;
    int digit[AXES];
    if (worker == 0) {
        sp_progress_update(&sliders->progress, job);
    }
    // The scenario itself is the first, and has its turn whatever the time.
    if (job > 0 && sp_clock_s() > sliders->until_s) {
        return SP_OK;
    }
    digits_of(sliders, sliders->order[job], digit);
    return evaluate_position(sliders, digit, &sliders->positions[sliders->order[job]], err);
}

static sp_status evaluate_positions(report_sliders *sliders, sp_error *err)
{
    sweep_evaluator *evaluator = &sliders->evaluator;
    sweep_evaluator_init(evaluator, NULL, sliders->options.threads);
    // As `simulate` evaluates, but for what no position shows.
    evaluator->options.allocator_if_near = false;
    evaluator->options.allocator_peak = true;
    sliders->until_s = sp_clock_s() + sliders->options.seconds;
    sp_progress_begin(&sliders->progress, "sliders", sliders->turns, sliders->options.quiet);
    sp_status status =
        sp_parallel_for(sliders->options.threads, sliders->turns, take_turn, sliders, err);
    sp_progress_end(&sliders->progress);
    sweep_evaluator_fini(evaluator);
    return status;
}

double report_sliders_base_ms(const report_sliders *sliders)
{
    return sliders->positions[sliders->order[0]].figure[0];
}

int64_t report_sliders_count(const report_sliders *sliders, int64_t *without_answer)
{
    *without_answer = 0;
    for (int i = 0; i < sliders->count; i++) {
        *without_answer += sliders->positions[i].outcome == NO_TURN ? 1 : 0;
    }
    return sliders->count;
}

// ---- as JSON ----

static void write_axis(sp_writer *out, const report_sliders *sliders, int a)
{
    const axis *of = &sliders->axes[a];
    sp_write(out, "{\"key\":\"%s\",\"name\":\"%s\",\"base\":%d,\"values\":[", axis_names[a].key,
             axis_names[a].name, of->base);
    for (int i = 0; i < of->count; i++) {
        if (a == RECOMPUTE) {
            sp_write(out, "%s\"%s\"", i > 0 ? "," : "", sliders->recompute[of->value[i]]);
        } else {
            sp_write(out, "%s%lld", i > 0 ? "," : "", (long long)of->value[i]);
        }
    }
    sp_write(out, "]");
    if (a == GPUS && sliders->nodes != NULL) {
        sp_write(out, ",\"nodes_key\":\"%s\",\"nodes\":[", sliders->nodes);
        for (int i = 0; i < of->count; i++) {
            int64_t nodes = of->value[i] / sliders->scenario.cluster.gpus_per_node;
            sp_write(out, "%s%lld", i > 0 ? "," : "", (long long)nodes);
        }
        sp_write(out, "]");
    }
    sp_write(out, "}");
}

static void write_column(sp_writer *out, const report_sliders *sliders, int c)
{
    enum { SHOWN = 9 };
    sp_write(out, "%s\"%s\":[", c > 0 ? ",\n" : "\n", columns[c]);
    for (int i = 0; i < sliders->count; i++) {
        double value = sliders->positions[i].figure[c];
        char text[TEXT];
        snprintf(text, sizeof text, "%.*g", c == 0 ? SWEEP_DIGITS : SHOWN, value);
        sp_write(out, "%s%s", i > 0 ? "," : "", isfinite(value) ? text : "null");
    }
    sp_write(out, "]");
}

// Texts of positions, each once; those beyond NOTES_BYTES are number -1.
typedef struct texts {
    json_t *numbers; // by text
    json_t *list;
    size_t bytes;
} texts;

static int number_of(texts *t, const char *text)
{
    const json_t *found = json_object_get(t->numbers, text);
    size_t bytes = strlen(text);
    if (found != NULL) {
        return (int)json_integer_value(found);
    }
    json_t *string = json_string(text);
    if (string == NULL || t->bytes + bytes > NOTES_BYTES) {
        json_decref(string);
        return -1;
    }
    int number = (int)json_array_size(t->list);
    t->bytes += bytes;
    json_array_append_new(t->list, string);
    json_object_set_new(t->numbers, text, json_integer(number));
    return number;
}

// The numbers of a position's reason and warnings.
static void write_notes(sp_writer *out, texts *t, const position *p)
{
    const char *separator = "";
    sp_write(out, "[");
    if (p->reason != NULL) {
        sp_write(out, "%d", number_of(t, p->reason));
        separator = ",";
    }
    int shown = 0;
    for (size_t i = 0; i < json_array_size(p->warnings) && shown < NOTES; i++) {
        const char *text = json_string_value(json_array_get(p->warnings, i));
        if (text != NULL && (p->reason == NULL || strcmp(text, p->reason) != 0)) {
            sp_write(out, "%s%d", separator, number_of(t, text));
            separator = ",";
            shown++;
        }
    }
    sp_write(out, "]");
}

void report_sliders_write(sp_writer *out, const report_sliders *sliders)
{
    if (sliders == NULL) {
        sp_write(out, "null");
        return;
    }
    texts t = {.numbers = json_object(), .list = json_array()};
    sp_write(out, "{\"path\":");
    report_write_text(out, strcmp(sliders->options.path, SP_STANDARD_INPUT) == 0
                               ? "SCENARIO"
                               : sliders->options.path);
    sp_write(out, ",\"words\":");
    report_write_text(out, sliders->words);
    sp_write(out, ",\"axes\":[");
    for (int a = 0; a < AXES; a++) {
        sp_write(out, "%s", a > 0 ? "," : "");
        write_axis(out, sliders, a);
    }
    sp_write(out, "],\"status\":\"");
    for (int i = 0; i < sliders->count; i++) {
        sp_write(out, "%c", outcome_letters[sliders->positions[i].outcome]);
    }
    sp_write(out, "\",\"dp\":[");
    for (int i = 0; i < sliders->count; i++) {
        sp_write(out, "%s%d", i > 0 ? "," : "", sliders->positions[i].dp);
    }
    sp_write(out, "],\"notes\":[");
    for (int i = 0; i < sliders->count; i++) {
        sp_write(out, "%s", i > 0 ? "," : "");
        write_notes(out, &t, &sliders->positions[i]);
    }
    sp_write(out, "],\"texts\":");
    report_write_json(out, t.list);
    sp_write(out, ",\"columns\":{");
    for (int c = 0; c < COLUMNS; c++) {
        write_column(out, sliders, c);
    }
    sp_write(out, "}}");
    json_decref(t.numbers);
    json_decref(t.list);
}
