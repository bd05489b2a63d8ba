#include "sim/cost/error_record.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/writer.h"
#include "sim/model/inventory.h"

const char *const sp_step_figure_names[] = {"model_parameters",
                                            "experts",
                                            "gpus",
                                            "tp",
                                            "tp_nodes",
                                            "cp",
                                            "pp",
                                            "zero",
                                            "context",
                                            "chunks",
                                            "microbatch",
                                            "microbatches_per_stage",
                                            "bubble",
                                            "peak_tflops",
                                            "memory_gib",
                                            "hbm_gb_per_s",
                                            "nvlink_gb_per_s",
                                            "gpus_per_node",
                                            "nics_per_node",
                                            "nic_gbit_per_s",
                                            NULL};
const char *const sp_step_word_names[] = {"cluster",   "stack",   "precision", "attention",
                                          "recompute", "lengths", "schedule",  NULL};

const char *sp_step_trait_name(int trait)
{
    return trait < SP_STEP_FIGURES ? sp_step_figure_names[trait]
                                   : sp_step_word_names[trait - SP_STEP_FIGURES];
}

// ---- which record ----

// What a figure may lie beyond those of logged steps, as a factor: records are written with six
// digits, a cluster's rates and memory are alike within a tenth, and twice as many micro-batches,
// or half, change the bubble alone, which is compared itself.
static double slack_of(int figure)
{
    bool is_rate = figure >= SP_STEP_PEAK && figure != SP_STEP_NODE && figure != SP_STEP_NODE_NICS;
    return figure == SP_STEP_MICROBATCHES_PER_STAGE ? 2.0 : is_rate ? 1.1 : 1.0 + 1e-5;
}

static bool figure_holds(const sp_error_record *record, const sp_step_kind *kind, int figure)
{
    double value = kind->figure[figure];
    double slack = slack_of(figure);
    return isnan(value) ||
           (value * slack >= record->least[figure] && value <= record->most[figure] * slack);
}

static bool word_holds(const sp_error_record *record, const sp_step_kind *kind, int word)
{
    const char *list = record->words[word];
    size_t length = strlen(kind->word[word]);
    if (list[0] == '\0') {
        return true;
    }
    while (*list != '\0') {
        size_t next = strcspn(list, "\n");
        if (next == length && memcmp(list, kind->word[word], length) == 0) {
            return true;
        }
        list += next + (list[next] == '\n');
    }
    return false;
}

int sp_error_record_differing(const sp_error_record *record, const sp_step_kind *kind, int *foreign)
{
    int failed = 0;
    *foreign = 0;
    for (int f = 0; f < SP_STEP_FIGURES; f++) {
        bool fails = !figure_holds(record, kind, f);
        failed += fails;
        *foreign += fails && f >= SP_STEP_PEAK;
    }
    for (int w = 0; w < SP_STEP_WORDS; w++) {
        bool fails = !word_holds(record, kind, w);
        failed += fails;
        *foreign += fails;
    }
    return failed;
}

void sp_error_record_extend(sp_error_record *record, const sp_step_kind *kind)
{
    for (int f = 0; f < SP_STEP_FIGURES; f++) {
        double value = kind->figure[f];
        bool is_bubble = f == SP_STEP_BUBBLE; // a step of a slightly other one is like these
        record->least[f] = fmin(record->least[f], is_bubble ? floor(100.0 * value) / 100.0 : value);
        record->most[f] = fmax(record->most[f], is_bubble ? ceil(100.0 * value) / 100.0 : value);
    }
    for (int w = SP_STEP_CLUSTER + 1; w < SP_STEP_WORDS; w++) { // its figures say what it is
        char *list = record->words[w];
        if (list[0] == '\0' || !word_holds(record, kind, w)) {
            sp_append(list, SP_ERROR_WORDS, "%s%s", list[0] != '\0' ? "\n" : "", kind->word[w]);
        }
    }
}

// A record, and how many traits of a step it lacks, and of these of other hardware or software.
typedef struct candidate {
    const sp_error_record *record;
    int failed, foreign;
} candidate;

static bool is_nearer(const candidate *of_a, const candidate *of_b)
{
    const sp_error_record *a = of_a->record;
    const sp_error_record *b = of_b->record;
    if (of_a->failed != of_b->failed) {
        return of_a->failed < of_b->failed;
    }
    if (of_a->foreign != of_b->foreign) {
        return of_a->foreign < of_b->foreign;
    }
    if (of_a->failed > 0) {
        return a->steps > b->steps;
    }
    return a->conditions != b->conditions ? a->conditions > b->conditions : a->steps < b->steps;
}

// ---- what keeps a record off ----

enum { MOST_TOLD = 5 }; // traits that are named

static void add_figure(char text[SP_NOT_VALIDATED], double value)
{
    bool billions = value >= 1e8;
    sp_append(text, SP_NOT_VALIDATED,
              billions               ? "%.4g billion"
              : value == rint(value) ? "%.6g"
                                     : "%.3g",
              billions ? value / 1e9 : value);
}

static void add_range(char text[SP_NOT_VALIDATED], double least, double most)
{
    sp_append(text, SP_NOT_VALIDATED, " (logged: ");
    add_figure(text, least);
    if (least != most) {
        sp_append(text, SP_NOT_VALIDATED, " to ");
        add_figure(text, most);
    }
    sp_append(text, SP_NOT_VALIDATED, ")");
}

static void add_words(char text[SP_NOT_VALIDATED], const char *list)
{
    sp_append(text, SP_NOT_VALIDATED, " (logged: ");
    while (*list != '\0') {
        size_t next = strcspn(list, "\n");
        sp_append(text, SP_NOT_VALIDATED, "%.*s", (int)next, list);
        list += next;
        if (*list == '\n') {
            sp_append(text, SP_NOT_VALIDATED, ", ");
            list++;
        }
    }
    sp_append(text, SP_NOT_VALIDATED, ")");
}

static void tell_trait(const sp_error_record *record, const sp_step_kind *kind, int trait,
                       char text[SP_NOT_VALIDATED])
{
    int word = trait - SP_STEP_FIGURES;
    if (word < 0) {
        sp_append(text, SP_NOT_VALIDATED, "%s ", sp_step_figure_names[trait]);
        add_figure(text, kind->figure[trait]);
        add_range(text, record->least[trait], record->most[trait]);
    } else {
        sp_append(text, SP_NOT_VALIDATED, "%s %s", sp_step_word_names[word], kind->word[word]);
        add_words(text, record->words[word]);
    }
}

// No error of such other steps is told: it says nothing of this one.
static void tell_failed(const sp_error_record *record, const sp_step_kind *kind,
                        char text[SP_NOT_VALIDATED])
{
    const char *separator = "no logged step has ";
    int told = 0;
    int left = 0;
    text[0] = '\0';
    for (int trait = 0; trait < SP_STEP_FIGURES + SP_STEP_WORDS; trait++) {
        bool holds = trait < SP_STEP_FIGURES ? figure_holds(record, kind, trait)
                                             : word_holds(record, kind, trait - SP_STEP_FIGURES);
        if (holds) {
            continue;
        }
        if (told == MOST_TOLD) {
            left++;
            continue;
        }
        sp_append(text, SP_NOT_VALIDATED, "%s", separator);
        tell_trait(record, kind, trait, text);
        separator = ", ";
        told++;
    }
    if (left > 0) {
        sp_append(text, SP_NOT_VALIDATED, " and %d more", left);
    }
    sp_append(text, SP_NOT_VALIDATED, "; the nearest logged: %s", record->scope);
}

// Steps of yet another group are off by more than those that were left out in turn, the fewer
// groups there were. Stacks grow faster between releases: nine in ten steps of NVIDIA's recipes of
// v25.04 lie within 6 % of a profile fitted to v24.11 to v25.02 (experiments/results/evidence.md).
static double prediction_interval(const sp_error_record *record)
{
    const double later_release = 0.06;
    return hypot(record->p90 * sqrt(1.0 + 1.0 / record->folds), later_release);
}

void sp_step_error_find(const sp_error_records *records, const sp_step_kind *kind,
                        const char *profile, sp_step_error *found)
{
    *found = (sp_step_error){.differing = -1};
    if (records->count == 0) {
        snprintf(found->not_validated, sizeof found->not_validated,
                 "profile %s has no record of logged steps", profile);
        return;
    }
    candidate nearest = {0};
    for (int i = 0; i < records->count; i++) {
        candidate next = {.record = &records->record[i]};
        next.failed = sp_error_record_differing(next.record, kind, &next.foreign);
        if (i == 0 || is_nearer(&next, &nearest)) {
            nearest = next;
        }
    }
    const sp_error_record *best = nearest.record;
    found->foreign = nearest.foreign;
    found->known = nearest.failed == 0;
    found->differing = nearest.failed;
    if (!found->known) {
        tell_failed(best, kind, found->not_validated);
    } else {
        found->median = best->median;
        found->p90 = prediction_interval(best);
        found->bias = best->bias;
    }
    found->steps = best->steps;
    memcpy(found->scope, best->scope, sizeof found->scope);
}

// ---- where nothing is like it ----

enum {
    NEAR_TRAITS = 3, // so many of model and layout
    NEAR = 0,
    FAR,
    NO_RECORD,
};

// Both are written by experiments/evidence.sh.
static const sp_error_range ranges[] = {
#include "sim/cost/error_ranges.inc"
};

static const struct {
    bool tp_over_nodes;
    struct {
        int nodes, steps, waited;
    } logged;
} waiting[] = {
#include "sim/cost/waiting_steps.inc"
};

sp_error_range sp_error_range_of(int differing, int foreign, double layer_ms)
{
    sp_error_range found = {0.0, 0.0, 0, 0, 0.0};
    if (differing == 0 || !(layer_ms > 0.0)) {
        return found;
    }
    bool is_near = differing <= NEAR_TRAITS && foreign == 0;
    found = ranges[differing < 0 ? NO_RECORD : is_near ? NEAR : FAR];
    double of_launches = found.launch_ms / layer_ms;
    if (of_launches > found.most) {
        found.most = of_launches;
    } else {
        found.launch_ms = 0.0;
    }
    return found;
}

sp_waiting_steps sp_waiting_steps_of(double nodes, bool tp_over_nodes)
{
    sp_waiting_steps found = {0};
    double nearest = HUGE_VAL;
    for (size_t i = 0; nodes > 1.0 && i < sizeof waiting / sizeof waiting[0]; i++) {
        double away = fabs(log(nodes / waiting[i].logged.nodes));
        if (waiting[i].tp_over_nodes == tp_over_nodes && waiting[i].logged.nodes > 1 &&
            away < nearest) {
            nearest = away;
            found = (sp_waiting_steps){waiting[i].logged.nodes, waiting[i].logged.steps,
                                       waiting[i].logged.waited, (int)nodes};
        }
    }
    return found;
}

// ---- storage ----

// Room for so many records, all zero.
static void allocate_records(sp_error_records *records, int count)
{
    records->count = count;
    records->record = count > 0 ? sp_calloc((size_t)count, sizeof *records->record) : NULL;
}

void sp_i_error_records_copy(const sp_error_records *from, sp_error_records *to)
{
    allocate_records(to, from->count);
    if (from->count > 0) {
        memcpy(to->record, from->record, (size_t)from->count * sizeof *to->record);
    }
}

void sp_i_error_records_fini(sp_error_records *records)
{
    sp_free(records->record);
    *records = (sp_error_records){0};
}

// The `errors` of a profile from JSON.

static const double most_error = 1e3; // a thousandfold of what was measured
static const double most_figure = 1e18;
static const int64_t most_steps = INT64_C(1) << 40;

// Allowed words, where they are known here; clusters and stacks may be anybody's own.
static const char *const lengths[] = {"uniform", "mixed", NULL};
static const char *const *const allowed[SP_STEP_WORDS] = {
    [SP_STEP_PRECISION] = sp_compute_names,
    [SP_STEP_ATTENTION] = sp_attention_names,
    [SP_STEP_RECOMPUTE] = sp_recompute_names,
    [SP_STEP_LENGTHS] = lengths,
    [SP_STEP_SCHEDULE] = NULL,
};

// [least, most], or one number for both.
static void read_figure(sp_object *when, int figure, sp_error_record *record)
{
    const char *key = sp_step_figure_names[figure];
    const json_t *value = sp_object_get(when, key);
    record->least[figure] = -HUGE_VAL;
    record->most[figure] = HUGE_VAL;
    if (value == NULL) {
        return;
    }
    const json_t *first = json_is_number(value) ? value : json_array_get(value, 0);
    const json_t *last = json_is_number(value) ? value : json_array_get(value, 1);
    double least = json_is_number(first) ? json_number_value(first) : (double)NAN;
    double most = json_is_number(last) ? json_number_value(last) : (double)NAN;
    bool two = json_is_number(value) || json_array_size(value) == 2;
    if (!two || !(least >= 0.0 && least <= most && most <= most_figure)) {
        sp_object_expected(when, key, value, "a number or [least, most], from 0 to 1e+18");
        return;
    }
    record->least[figure] = least;
    record->most[figure] = most;
    record->conditions++;
}

static bool is_allowed(int word, const char *text)
{
    const char *const *names = allowed[word];
    if (names == NULL) {
        // One that is longer than any step's would never hold.
        return text[0] != '\0' && strlen(text) < SP_STEP_WORD && strchr(text, '\n') == NULL;
    }
    while (*names != NULL && strcmp(*names, text) != 0) {
        names++;
    }
    return *names != NULL;
}

static void expected_words(int word, char text[SP_ERROR_WORDS])
{
    const char *const *names = allowed[word];
    size_t used = (size_t)snprintf(text, SP_ERROR_WORDS, "a text or an array of texts%s",
                                   names != NULL ? " among " : "");
    for (int i = 0; names != NULL && names[i] != NULL; i++) {
        used += (size_t)snprintf(text + used, SP_ERROR_WORDS - used, "%s\"%s\"", i > 0 ? ", " : "",
                                 names[i]);
    }
}

static void read_words(sp_object *when, int word, sp_error_record *record)
{
    const char *key = sp_step_word_names[word];
    const json_t *value = sp_object_get(when, key);
    if (value == NULL) {
        return;
    }
    char *list = record->words[word];
    size_t used = 0;
    size_t count = json_is_string(value) ? 1 : json_array_size(value);
    bool good = count > 0;
    for (size_t i = 0; good && i < count; i++) {
        const char *text =
            json_string_value(json_is_string(value) ? value : json_array_get(value, i));
        good = text != NULL && is_allowed(word, text) && used + strlen(text) + 2 < SP_ERROR_WORDS;
        if (good) {
            used += (size_t)snprintf(list + used, SP_ERROR_WORDS - used, "%s%s", i > 0 ? "\n" : "",
                                     text);
        }
    }
    if (!good) {
        char expected[SP_ERROR_WORDS];
        expected_words(word, expected);
        sp_object_expected(when, key, value, "%s", expected);
        list[0] = '\0';
        return;
    }
    record->conditions++;
}

static void read_record(sp_object *object, sp_error_record *record)
{
    sp_object when;
    sp_object_require_all(object, "scope", "source", "when");
    sp_object_text(object, "scope", "", record->scope, sizeof record->scope);
    sp_object_text(object, "source", "", record->source, sizeof record->source);
    sp_object_member(object, "when", &when);
    for (int f = 0; f < SP_STEP_FIGURES; f++) {
        read_figure(&when, f, record);
    }
    for (int w = 0; w < SP_STEP_WORDS; w++) {
        read_words(&when, w, record);
    }
    sp_object_end(&when);
    sp_object_require_all(object, "steps", "median", "p90", "bias");
    record->steps = sp_object_int(object, "steps", 1, 1, most_steps);
    record->folds = (int)sp_object_int(object, "folds", 1, 1, SP_ERROR_FOLDS);
    record->median = sp_object_real(object, "median", 0.0, 0.0, most_error);
    record->p90 = sp_object_real(object, "p90", record->median, 0.0, most_error);
    record->bias = sp_object_real(object, "bias", 0.0, -1.0, most_error);
    if (record->p90 < record->median) {
        sp_object_error(object, "p90", "expected at least the median, %g, got %g", record->median,
                        record->p90);
    }
    sp_object_end(object);
}

void sp_i_error_records_read(sp_object *root, sp_error_records *records)
{
    const json_t *list = sp_object_list(root, "errors", SP_ERROR_RECORDS, "records");
    allocate_records(records, (int)json_array_size(list));
    for (int i = 0; i < records->count; i++) {
        sp_object object;
        sp_object_item(root, "errors", (size_t)i, &object);
        read_record(&object, &records->record[i]);
    }
}
