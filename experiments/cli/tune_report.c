// The answer of `tune` for people and for programs.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/model/inventory.h"
#include "solver/strategy.h"

// Settings that the search turns, and how a column of them is headed.
typedef struct tune_axis {
    const char *path, *name;
    const char *width; // of the column, with its rank
} tune_axis;

enum { AXES = 12, EP_AXIS = 4, CHUNKS_AXIS = 8 };

static const tune_axis axes[AXES] = {
    {"parallel.tp", "tp", "3"},
    {"parallel.cp", "cp", "3"},
    {"parallel.pp", "pp", "3"},
    {"parallel.dp", "dp", "4"},
    [EP_AXIS] = {"parallel.ep", "ep", "3"},
    {"parallel.zero", "zero", "4"},
    {"memory.recompute", "recompute", "9"},
    {"schedule.kind", "schedule", "11"},
    [CHUNKS_AXIS] = {"parallel.chunks_per_rank", "chunks", "6"},
    {"schedule.microbatch_samples", "rows", "4"},
    {"strategy.rank_tokens", "rank_tokens", "11~3"},
    {"strategy.chunk_tokens", "chunk_tokens", "12~4"},
};

// Dense models have no choice of experts.
static bool has_column(const cli_tuned *tuned, int axis)
{
    return axis != EP_AXIS || sp_model_most_experts(&tuned->scenario->model) > 0;
}

// Modules with commas between them.
static sp_recompute recompute_of(const json_t *value, char text[CLI_TUNE_VALUE])
{
    sp_recompute recompute = SP_RECOMPUTE_NONE;
    char names[SP_RECOMPUTE_TEXT];
    if (sp_recompute_read(value, &recompute, names)) {
        snprintf(text, CLI_TUNE_VALUE, "%s", sp_recompute_text(recompute, names));
    }
    return recompute;
}

// An integer, a text or modules of a recomputation, "-" where there is none of them; returns text.
static const char *value_text(const json_t *value, char text[CLI_TUNE_VALUE])
{
    snprintf(text, CLI_TUNE_VALUE, "-");
    if (json_is_integer(value)) {
        snprintf(text, CLI_TUNE_VALUE, "%lld", (long long)json_integer_value(value));
    } else if (json_is_string(value)) {
        snprintf(text, CLI_TUNE_VALUE, "%s", json_string_value(value));
    } else if (json_is_array(value)) {
        recompute_of(value, text);
    }
    return text;
}

static const char *loss_text(const sweep_trial *trial, char text[CLI_LOSS])
{
    return cli_loss_text(cli_loss_of_trial(trial), text);
}

// Says what a point's strategy loses ("12.3 % of tokens left out", "no tokens lost") where the
// answer does not lose as much, else ""; returns text.
static const char *loss_beside_answer(const cli_tuned *tuned, const sweep_trial *trial,
                                      char text[CLI_LOSS])
{
    char answer[CLI_LOSS];
    loss_text(&tuned->layouts->ranked[0]->trial, answer);
    loss_text(trial, text);
    if (strcmp(text, answer) == 0) {
        text[0] = '\0';
    } else if (text[0] == '\0') {
        snprintf(text, CLI_LOSS, "no tokens lost");
    }
    return text;
}

const char *cli_tune_point(const sweep_layouts_options *options, const sweep_layouts *layouts,
                           const sweep_layout *point, char text[CLI_TUNE_POINT])
{
    json_t *settings = sweep_layouts_settings(layouts, point);
    text[0] = '\0';
    for (int a = 0; a < AXES; a++) {
        char value[CLI_TUNE_VALUE];
        const json_t *json = json_object_get(settings, axes[a].path);
        if (json != NULL) {
            sp_append(text, CLI_TUNE_POINT, "%s %s, ", axes[a].name, value_text(json, value));
        }
    }
    sp_append(text, CLI_TUNE_POINT, "%s", options->strategies[point->strategy]);
    json_decref(settings);
    return text;
}

const char *cli_tune_gib(double gib, char text[CLI_TUNE_VALUE])
{
    snprintf(text, CLI_TUNE_VALUE, gib < 1.0 ? "%.3f GiB" : "%.1f GiB", gib);
    return text;
}

enum { FINDINGS = SP_TIME_PARTS + 3, AXES_TRIED = 3, REMEDY = 320 };

static const double told_share = 0.05;  // of the step, from which a part of it limits it
static const double most_lacking = 0.5; // of the memory limit

// Which values of a setting are tried against a limit: others, or those before the answer's in the
// order of the search.
typedef struct remedy_axis {
    const char *path; // NULL: of no setting; "strategy.kind": of the strategy
    bool smaller;
} remedy_axis;

// A part of the step has a name, and settings that take less of it.
typedef struct limit_kind {
    const char *name;
    remedy_axis axes[AXES_TRIED];
} limit_kind;

// As cli_time_part_names.
static const limit_kind part_kinds[SP_TIME_PARTS] = {
    {"computing", {{"memory.recompute", true}}},
    {"tensor parallelism's traffic", {{"parallel.tp", true}}},
    {"context parallelism's traffic", {{"parallel.cp", true}}},
    {"waiting for stages' transfers", {{"parallel.pp", true}, {"schedule.kind", false}}},
    {"data parallelism's traffic", {{"parallel.zero", true}, {"parallel.dp", true}}},
    {"experts on other ranks", {{"parallel.ep", true}, {"parallel.cp", true}}},
    {"the optimizer", {{"parallel.zero", false}}},
    {"the bubble", {{"parallel.pp", true}, {"schedule.kind", false}}},
};

// Parts of what the step takes over pure work that no part of the time shows.
static const limit_kind pack_kind = {
    "what packs take over pure work",
    {{"strategy.kind", false}, {"schedule.microbatch_samples", false}, {"parallel.cp", true}}};
static const limit_kind uneven_kind = {"data-parallel ranks with uneven work",
                                       {{"strategy.kind", false}, {"parallel.dp", true}}};

typedef struct finding {
    const char *limit;
    double share; // of the step; NAN: it is no part of it
    char remedy[REMEDY];
} finding;

// The fastest point with another value: of those that fit well, and of those that lack memory.
typedef struct other {
    const sweep_layout *fits, *short_of;
} other;

// ---- points with another value ----

// For all tokens: a strategy that leaves some out does less work in its step. Of a point that lacks
// memory this is compared with that of the answer, as with more memory both would run.
static double time_of(const sweep_layout *point)
{
    return sweep_whole_ms(&point->trial);
}

// By how many percent the time to be expected of a point is above that of the answer; NAN: no
// point.
static double cost_of(const cli_tuned *tuned, const sweep_trial *trial)
{
    double best_ms = sweep_expected_ms(&tuned->layouts->ranked[0]->trial);
    return trial != NULL ? 100.0 * (sweep_expected_ms(trial) / best_ms - 1.0) : (double)NAN;
}

// One setting of a point: its place on the axis, for all points are asked for every axis that is
// tried. The caller owns it; NULL: the point has no such setting.
static json_t *value_of(const cli_tuned *tuned, const sweep_layout *point, const char *path)
{
    if (strcmp(path, "strategy.kind") == 0) {
        return json_string(tuned->options->strategies[point->strategy]);
    }
    int64_t digit[SWEEP_AXES];
    const sweep_spec *spec = &tuned->layouts->spec[point->strategy];
    int a = 0;
    while (a < spec->axis_count && strcmp(spec->axes[a].path, path) != 0) {
        a++;
    }
    if (a == spec->axis_count) {
        return NULL;
    }
    sweep_spec_digits(spec, point->combination, digit);
    return json_incref(json_array_get(spec->axes[a].values, (size_t)digit[a]));
}

// Place among the values of recomputation, where sets of modules stand before whole layers, or an
// integer.
static int64_t order_of(const json_t *value)
{
    char text[CLI_TUNE_VALUE];
    if (json_is_integer(value)) {
        return json_integer_value(value);
    }
    int64_t recompute = (int64_t)recompute_of(value, text);
    return recompute < SP_RECOMPUTE_MODES ? recompute : SP_RECOMPUTE_FULL - 1;
}

static bool is_other(const remedy_axis *axis, const json_t *value, const json_t *answer)
{
    if (value == NULL || answer == NULL) {
        return false;
    }
    return axis->smaller ? order_of(value) < order_of(answer) : !json_equal(value, answer);
}

// By how much of a GPU's memory at most; more is no advice.
static bool lacks_memory(const sweep_layout *point)
{
    const sweep_trial *d = &point->trial;
    double margin_gib = d->figure[SWEEP_MEMORY_MARGIN_GIB];
    double limit_gib = d->figure[SWEEP_PEAK_MEMORY_GIB] + margin_gib;
    return point->lacks == SWEEP_RUNS && point->evaluated && d->status == SWEEP_OOM &&
           margin_gib < 0.0 && margin_gib >= -most_lacking * limit_gib;
}

static void take(const sweep_layout *point, other *best)
{
    const sweep_trial *d = &point->trial;
    bool fits = d->status == SWEEP_OK && d->fits != SP_FITS_TIGHT;
    if (fits && (best->fits == NULL || sweep_is_better(d, &best->fits->trial))) {
        best->fits = point;
    } else if (lacks_memory(point) &&
               (best->short_of == NULL || time_of(point) < time_of(best->short_of))) {
        best->short_of = point;
    }
}

static other find_other(const cli_tuned *tuned, const remedy_axis *axis)
{
    const sweep_layouts *all = tuned->layouts;
    json_t *answer = value_of(tuned, all->ranked[0], axis->path);
    other best = {NULL, NULL};
    for (int64_t i = 0; i < all->count; i++) {
        const sweep_layout *point = &all->point[i];
        if (point->lacks == SWEEP_RUNS && point->evaluated && isfinite(time_of(point))) {
            json_t *value = value_of(tuned, point, axis->path);
            if (is_other(axis, value, answer)) {
                take(point, &best);
            }
            json_decref(value);
        }
    }
    json_decref(answer);
    return best;
}

// ---- what is said of them ----

// Without the gaps between PyTorch's blocks, which are not counted of points that do not fit.
static const char *lacking_text(const sweep_layout *point, char text[CLI_TUNE_VALUE])
{
    return cli_tune_gib(-point->trial.figure[SWEEP_MEMORY_MARGIN_GIB], text);
}

// Where the strategy of another point does not train as many tokens as the answer's.
static void add_loss(const cli_tuned *tuned, const sweep_layout *point, char text[REMEDY])
{
    char loss[CLI_LOSS];
    if (loss_beside_answer(tuned, &point->trial, loss)[0] != '\0') {
        sp_append(text, REMEDY, " for as many tokens (%s)", loss);
    }
}

static void name_choice(const cli_tuned *tuned, const sweep_layout *point, const char *path,
                        char text[REMEDY])
{
    char value[CLI_TUNE_VALUE];
    const char *name = "";
    for (int a = 0; a < AXES; a++) {
        name = strcmp(axes[a].path, path) == 0 ? axes[a].name : name;
    }
    json_t *json = value_of(tuned, point, path);
    sp_append(text, REMEDY, "%s%s%s", name, name[0] != '\0' ? " " : "", value_text(json, value));
    json_decref(json);
}

// Where the chance is not known nothing is sure.
static const char *fitting_text(const sweep_trial *trial, char risk[CLI_RISK])
{
    const double chance = trial->figure[SWEEP_FIT_PROBABILITY];
    if (cli_memory_risk(chance, trial->figure[SWEEP_MEMORY_MARGIN_GIB], risk)[0] == '\0') {
        snprintf(risk, CLI_RISK, isfinite(chance) ? "surely fits" : "fits");
    }
    return risk;
}

static void add_other(const cli_tuned *tuned, const remedy_axis *axis, char text[REMEDY])
{
    char gib[CLI_TUNE_VALUE];
    char risk[CLI_RISK];
    double best_ms = time_of(tuned->layouts->ranked[0]);
    other found = find_other(tuned, axis);
    bool saves = found.short_of != NULL && time_of(found.short_of) < best_ms;
    if (saves) {
        sp_append(text, REMEDY, "%s", text[0] != '\0' ? "; " : "");
        name_choice(tuned, found.short_of, axis->path, text);
        sp_append(text, REMEDY, " would save %.1f %% with at least %s more a GPU",
                  100.0 * (1.0 - time_of(found.short_of) / best_ms),
                  lacking_text(found.short_of, gib));
        add_loss(tuned, found.short_of, text);
    }
    if (found.fits != NULL) {
        sp_append(text, REMEDY, "%s", text[0] != '\0' ? "; " : "");
        name_choice(tuned, found.fits, axis->path, text);
        // The answer is ranked by tokens a second: times may differ from it by rounding.
        sp_append(text, REMEDY, " that %s costs %.1f %%", fitting_text(&found.fits->trial, risk),
                  fmax(0.0, cost_of(tuned, &found.fits->trial)));
        add_loss(tuned, found.fits, text);
    }
}

static void add_finding(const cli_tuned *tuned, const limit_kind *kind, double share,
                        finding list[FINDINGS], int *count)
{
    finding *f = &list[(*count)++];
    *f = (finding){.limit = kind->name, .share = share};
    for (int a = 0; a < AXES_TRIED && kind->axes[a].path != NULL; a++) {
        add_other(tuned, &kind->axes[a], f->remedy);
    }
}

// Finds the fastest point that would fit if a GPU held more, at any setting.
static void find_memory(const cli_tuned *tuned, finding list[FINDINGS], int *count)
{
    const sweep_layouts *all = tuned->layouts;
    const sweep_layout *best = all->ranked[0];
    char layout[CLI_TUNE_POINT];
    char gib[CLI_TUNE_VALUE];
    for (int64_t i = 0; i < all->count; i++) {
        const sweep_layout *point = &all->point[i];
        best = lacks_memory(point) && time_of(point) < time_of(best) ? point : best;
    }
    if (best == all->ranked[0]) {
        return;
    }
    finding *f = &list[(*count)++];
    *f = (finding){.limit = "memory", .share = (double)NAN};
    sp_append(f->remedy, REMEDY, "at least %s more a GPU would save %.1f %%: %s",
              lacking_text(best, gib), 100.0 * (1.0 - time_of(best) / time_of(all->ranked[0])),
              cli_tune_point(tuned->options, all, best, layout));
    add_loss(tuned, best, f->remedy);
}

static int find_all(const cli_tuned *tuned, finding list[FINDINGS])
{
    const sp_result *result = tuned->result;
    double ms[SP_TIME_PARTS];
    double step_ms = sp_result_iteration_ms(result);
    double per_step = 1.0 / ((double)result->batch_count * SP_NS_PER_MS * step_ms);
    int count = 0;
    sp_result_time_parts(result, ms);
    // Without a pipeline it is of the uneven ranks below.
    double waiting_ms = cli_waits_for_peers(result) ? ms[SP_TIME_BUBBLE] : 0.0;
    ms[SP_TIME_BUBBLE] -= waiting_ms;
    for (int i = 0; i < SP_TIME_PARTS; i++) {
        if (i == 0 || ms[i] >= told_share * step_ms) {
            add_finding(tuned, &part_kinds[i], ms[i] / step_ms, list, &count);
        }
    }
    double packs = result->sum.gap_packs_ns * per_step;
    double uneven = fmax(result->sum.gap_uneven_ns * per_step, waiting_ms / step_ms);
    if (packs >= told_share) {
        add_finding(tuned, &pack_kind, packs, list, &count);
    }
    if (uneven >= told_share) {
        add_finding(tuned, &uneven_kind, uneven, list, &count);
    }
    find_memory(tuned, list, &count);
    return count;
}

// Says what the step spends its time on, and what would take less of it.
static void print_findings(const cli_tuned *tuned)
{
    finding list[FINDINGS];
    int count = find_all(tuned, list);
    puts("\nwhat limits it (traffic: what computing does not hide), and what other points save or "
         "cost:");
    for (int i = 0; i < count; i++) {
        const finding *f = &list[i];
        printf("  %s", f->limit);
        if (isfinite(f->share)) {
            printf(", %.1f %% of the step", 100.0 * f->share);
        }
        printf("%s%s\n", f->remedy[0] != '\0' ? ": " : "", f->remedy);
    }
}

// [{"limit", "share" (of the step, null where it is no part of it), "remedy"}]
static json_t *findings_json(const cli_tuned *tuned)
{
    finding list[FINDINGS];
    int count = find_all(tuned, list);
    json_t *array = json_array();
    for (int i = 0; i < count; i++) {
        json_array_append_new(array, sp_json_object(SP_JSON("limit", list[i].limit),
                                                    SP_JSON("share", list[i].share),
                                                    SP_JSON("remedy", list[i].remedy)));
    }
    return array;
}

// ---- what another choice costs ----

enum { CHOICES = 64, COST = 48 + CLI_LOSS, GROUPS = AXES + 1 };

typedef struct choice {
    json_t *value;            // borrowed from a spec, or a strategy's name; owned
    const sweep_trial *best;  // the best of those that fit well; NULL: none
    const sweep_trial *tight; // of those that fit tightly
    double bound_ms;          // least of those that were left out for it; NAN: none
    bool dropped;             // some were not tried
    sweep_status status;      // the best of those that were evaluated; SWEEP_STATUSES: none was
    const char *reason;       // of the first of these
} choice;

typedef struct choices {
    const char *name;
    choice of[CHOICES];
    int count;
} choices;

static choice *find_choice(choices *all, const json_t *value)
{
    for (int i = 0; i < all->count; i++) {
        if (json_equal(all->of[i].value, value)) {
            return &all->of[i];
        }
    }
    if (all->count == CHOICES) {
        return NULL;
    }
    all->of[all->count] =
        (choice){.value = json_deep_copy(value), .bound_ms = (double)NAN, .status = SWEEP_STATUSES};
    return &all->of[all->count++];
}

static void count_evaluated(choice *c, const sweep_trial *trial)
{
    if (trial->status < c->status) {
        c->status = trial->status;
        c->reason = trial->reason;
    }
    if (trial->status == SWEEP_OK) {
        const sweep_trial **best = trial->fits == SP_FITS_TIGHT ? &c->tight : &c->best;
        *best = *best == NULL || sweep_is_better(trial, *best) ? trial : *best;
    }
}

static void count_choice(choices *all, const json_t *value, const sweep_layout *point)
{
    choice *c = value != NULL ? find_choice(all, value) : NULL;
    if (c == NULL) {
        return;
    }
    bool known = point->evaluated || point->left_out || point->trial.status == SWEEP_OOM;
    if (point->dropped || !known) {
        c->dropped = true;
    } else if (point->left_out) {
        c->bound_ms = fmin(c->bound_ms, point->bound_ms);
    } else {
        count_evaluated(c, &point->trial);
    }
}

// The first group is that of strategies, then comes one for every axis.
static void count_choices(const cli_tuned *tuned, choices all[GROUPS])
{
    all[0] = (choices){.name = "strategy"};
    for (int a = 0; a < AXES; a++) {
        all[a + 1] = (choices){.name = axes[a].name};
    }
    for (int64_t i = 0; i < tuned->layouts->count; i++) {
        const sweep_layout *point = &tuned->layouts->point[i];
        if (point->lacks != SWEEP_RUNS) {
            continue;
        }
        json_t *settings = sweep_layouts_settings(tuned->layouts, point);
        json_t *strategy = json_string(tuned->options->strategies[point->strategy]);
        count_choice(&all[0], strategy, point);
        for (int a = 0; a < AXES; a++) {
            count_choice(&all[a + 1], json_object_get(settings, axes[a].path), point);
        }
        json_decref(strategy);
        json_decref(settings);
    }
}

static void free_choices(choices all[GROUPS])
{
    for (int a = 0; a < GROUPS; a++) {
        for (int i = 0; i < all[a].count; i++) {
            json_decref(all[a].of[i].value);
        }
    }
}

// "+12.3 %" of the time to be expected, or from what pure work takes of those that were left out to
// what was found.
static const char *cost_text(const cli_tuned *tuned, const choice *c, char text[COST])
{
    char loss[CLI_LOSS];
    double best_ms = sweep_expected_ms(&tuned->layouts->ranked[0]->trial);
    double found = cost_of(tuned, c->best);
    double least = 100.0 * (c->bound_ms / best_ms - 1.0);
    if (isfinite(found) && least < found) {
        snprintf(text, COST, "+%.1f to %.1f %%", least, found);
    } else if (isfinite(found)) {
        snprintf(text, COST, found > 0.0 ? "+%.1f %%" : "best", found);
    } else if (c->tight != NULL) {
        snprintf(text, COST, "tight %+.1f %%", cost_of(tuned, c->tight));
    } else if (c->dropped) {
        snprintf(text, COST, "not tried");
    } else if (isfinite(least)) {
        snprintf(text, COST, "at least +%.1f %%", least);
    } else {
        snprintf(text, COST,
                 c->status == SWEEP_OOM          ? "does not fit"
                 : c->status == SWEEP_INFEASIBLE ? "has no plan"
                                                 : "does not go together");
    }
    const sweep_trial *shown = c->best != NULL ? c->best : c->tight;
    if (shown != NULL && loss_beside_answer(tuned, shown, loss)[0] != '\0') {
        sp_append(text, COST, " (%s)", loss);
    }
    return text;
}

// Returns why none of the points makes a step, without the name of the document; else NULL.
static const char *reason_of(const choice *c)
{
    static const char document[] = "point: ";
    bool none = c->status == SWEEP_INFEASIBLE || c->status == SWEEP_INVALID;
    if (!none || c->dropped || isfinite(c->bound_ms)) {
        return NULL;
    }
    bool named = strncmp(c->reason, document, sizeof document - 1) == 0;
    return c->reason + (named ? sizeof document - 1 : 0);
}

// Returns the first choice of a setting that makes no step; NULL: all do.
static const choice *first_reason(const choices *group)
{
    int i = 0;
    while (i < group->count && reason_of(&group->of[i]) == NULL) {
        i++;
    }
    return i < group->count ? &group->of[i] : NULL;
}

// Each reason once.
static void print_reasons(const choices all[GROUPS])
{
    for (int a = 0; a < GROUPS; a++) {
        const choice *c = first_reason(&all[a]);
        bool told = c == NULL;
        for (int before = 0; before < a && !told; before++) {
            const choice *earlier = first_reason(&all[before]);
            told = earlier != NULL && strcmp(reason_of(earlier), reason_of(c)) == 0;
        }
        if (!told) {
            char value[CLI_TUNE_VALUE];
            int column = printf("  %s %s: ", all[a].name, value_text(c->value, value));
            cli_print_wrapped(stdout, reason_of(c), column, 16);
        }
    }
}

// Says what other choices cost, with all others free.
static void print_choices(const cli_tuned *tuned)
{
    choices all[GROUPS];
    if (!cli_is_wide()) {
        return;
    }
    count_choices(tuned, all);
    puts("\nwhat another choice costs, with all others free:");
    for (int a = 0; a < GROUPS; a++) {
        if (all[a].count > 1) {
            printf("  %-13s", all[a].name);
            for (int i = 0; i < all[a].count; i++) {
                char value[CLI_TUNE_VALUE];
                char cost[COST];
                const choice *c = &all[a].of[i];
                printf("%s%s %s", i > 0 ? ", " : " ", value_text(c->value, value),
                       cost_text(tuned, c, cost));
            }
            putchar('\n');
        }
    }
    print_reasons(all);
    free_choices(all);
}

static double figure_of(const sweep_trial *trial, sweep_figure figure)
{
    return trial != NULL ? trial->figure[figure] : (double)NAN;
}

static json_t *choice_json(const cli_tuned *tuned, const choice *c)
{
    char cost[COST];
    const sweep_trial *shown = c->best != NULL ? c->best : c->tight;
    return sp_json_object(SP_JSON("value", json_incref(c->value)),
                          SP_JSON("iteration_ms", figure_of(c->best, SWEEP_ITERATION_MS)),
                          SP_JSON("tight_ms", figure_of(c->tight, SWEEP_ITERATION_MS)),
                          SP_JSON("at_least_ms", c->bound_ms),
                          SP_JSON("cost", cost_text(tuned, c, cost)),
                          SP_JSON("reason", sp_json_text_or_null(reason_of(c))),
                          SP_JSON("left_out_share", figure_of(shown, SWEEP_LEFT_OUT_SHARE)),
                          SP_JSON("cut_share", figure_of(shown, SWEEP_CUT_SHARE)));
}

// {"tp": [{"value", "iteration_ms", "tight_ms", "at_least_ms", "cost", "reason", "left_out_share",
// "cut_share"}], ...}: times are null where there is none, "cost" says in words what the terminal
// says, "reason" why no such point goes together; shares of tokens are of the point of that time.
static json_t *choices_json(const cli_tuned *tuned)
{
    choices all[GROUPS];
    json_t *object = json_object();
    count_choices(tuned, all);
    for (int a = 0; a < GROUPS; a++) {
        if (a > 0 && !has_column(tuned, a - 1)) {
            continue;
        }
        json_t *list = json_array();
        for (int i = 0; i < all[a].count; i++) {
            json_array_append_new(list, choice_json(tuned, &all[a].of[i]));
        }
        sp_json_put(object, all[a].name, list);
    }
    free_choices(all);
    return object;
}

// ---- for people ----

enum { TIME = 32 };

static const char *time_text(double ms, char text[TIME])
{
    // Three digits: no error of a prediction is below a thousandth.
    const double number = ms < 1e3 ? ms : ms / 1e3;
    snprintf(text, TIME, "%.*f %s",
             number < 10.0    ? 2
             : number < 100.0 ? 1
                              : 0,
             number, ms < 1e3 ? "ms" : "s");
    return text;
}

// Says in which settings a point is not the answer.
static void print_difference(const cli_tuned *tuned, const sweep_layout *point)
{
    const sweep_layout *answer = tuned->layouts->ranked[0];
    const char *separator = "";
    for (int a = 0; a < AXES; a++) {
        char text[CLI_TUNE_VALUE];
        json_t *own = value_of(tuned, point, axes[a].path);
        json_t *usual = value_of(tuned, answer, axes[a].path);
        if (own != NULL && (usual == NULL || !json_equal(own, usual))) {
            printf("%s%s %s", separator, axes[a].name, value_text(own, text));
            separator = ", ";
        }
        json_decref(own);
        json_decref(usual);
    }
    if (point->strategy != answer->strategy) {
        printf("%s%s", separator, tuned->options->strategies[point->strategy]);
    }
}

// By how many percent a point is faster than the answer, whatever the risk of both.
static double faster_percent(const cli_tuned *tuned, const sweep_layout *point)
{
    return 100.0 * (time_of(tuned->layouts->ranked[0]) / time_of(point) - 1.0);
}

// Of those that risk more memory than the answer the fastest, where it is faster than this, else
// NULL. Those that only lack expandable_segments:True are told by themselves.
static const sweep_layout *find_passed_over(const cli_tuned *tuned)
{
    const sweep_layouts *all = tuned->layouts;
    const sweep_layout *best = all->ranked[0];
    for (int64_t i = 1; i < all->ranked_count; i++) {
        const sweep_layout *point = all->ranked[i];
        const bool gaps = point->counted && point->trial.figure[SWEEP_MEMORY_MARGIN_GIB] < 0.0;
        best = !gaps && time_of(point) < time_of(best) ? point : best;
    }
    return faster_percent(tuned, best) < 0.05 ? NULL : best; // less is printed as none
}

static void print_passed_over(const cli_tuned *tuned)
{
    const sweep_layout *best = find_passed_over(tuned);
    char risk[CLI_RISK];
    char time[TIME];
    if (best == NULL) {
        return;
    }
    fputs("passed over: ", stdout);
    print_difference(tuned, best);
    printf(" is %.1f %% faster (%s), but %s\n", faster_percent(tuned, best),
           time_text(best->trial.figure[SWEEP_ITERATION_MS], time),
           cli_memory_risk(best->trial.figure[SWEEP_FIT_PROBABILITY],
                           best->trial.figure[SWEEP_MEMORY_MARGIN_GIB], risk)[0] != '\0'
               ? risk
               : "fits tightly");
}

// How many behind the first are no slower than by the error; 0 where that is not known.
static int64_t count_within(const cli_tuned *tuned)
{
    const sweep_layouts *all = tuned->layouts;
    const sweep_trial *first = &all->ranked[0]->trial;
    double bound_ms = sweep_expected_ms(first) * (1.0 + tuned->result->step_error.median);
    int64_t within = 1;
    while (within < all->ranked_count && all->ranked[within]->trial.fits == first->fits &&
           sweep_expected_ms(&all->ranked[within]->trial) <= bound_ms) {
        within++;
    }
    return tuned->result->step_error.known ? within - 1 : 0;
}

// " ±4.0 % (the 2nd is within it)", or that the error is not known.
static void print_error(const cli_tuned *tuned)
{
    const sp_step_error *error = &tuned->result->step_error;
    int64_t within = count_within(tuned);
    if (!error->known) {
        fputs(" (error not known)", stdout);
        return;
    }
    printf(" ±%.1f %%", 100.0 * error->median);
    if (within == 1) {
        fputs(" (the 2nd is within it)", stdout);
    } else if (within > 1) {
        printf(" (the next %lld are within it)", (long long)within);
    }
}

static void print_answer(const cli_tuned *tuned)
{
    const sp_result *result = tuned->result;
    char layout[CLI_LAYOUT];
    double ms = sp_result_iteration_ms(result);
    char time[2][TIME];
    char loss[CLI_LOSS];
    char rate[CLI_SHORT_NUMBER];
    printf("fastest: %s, %s: %s per step, %s tokens/s/GPU",
           cli_layout_text(result, tuned->scenario, layout), result->strategy,
           time_text(ms, time[0]), cli_short_number(sp_result_tokens_per_gpu_s(result), rate));
    print_error(tuned);
    loss_text(&tuned->layouts->ranked[0]->trial, loss);
    printf("%s%s", loss[0] != '\0' ? ", " : "", loss);
    printf(", %.1f of %.0f GiB", sp_gib_from_bytes(result->peak_bytes),
           sp_gib_from_bytes(result->memory_limit_bytes));
    const bool gaps = result->reserved_peak_bytes > result->memory_limit_bytes;
    if (sp_result_fits(result) == SP_FITS_TIGHT) {
        printf(gaps ? ", may not fit" : ", TIGHTLY");
    }
    if (gaps) {
        printf("; PyTorch would reserve %.1f GiB: set expandable_segments:True",
               sp_gib_from_bytes(result->reserved_peak_bytes));
    } else if (result->reserved_peak_bytes > result->peak_bytes) {
        printf(" (%.1f reserved)", sp_gib_from_bytes(result->reserved_peak_bytes));
    }
    if (isfinite(tuned->current_ms)) {
        double trained = 1.0 - sp_result_left_out_share(result);
        double factor = tuned->current_ms / (1.0 - tuned->current_left_out) * trained / ms;
        printf("; %.2f times as fast as the current layout (%s", factor,
               time_text(tuned->current_ms, time[1]));
        if (isfinite(tuned->switched_ms)) {
            double switches = tuned->current_ms / tuned->switched_ms;
            printf("): %.2fx by switches of the stack, %.2fx by layout and packing", switches,
                   factor / switches);
        } else {
            putchar(')');
        }
    } else if (tuned->current != NULL) {
        printf("; no time of the current layout: %s", tuned->current);
    }
    putchar('\n');
}

// The mean is over steps.
static double tokens_of(const cli_tuned *tuned)
{
    double tokens = 0.0;
    for (int b = 0; b < tuned->batches->count; b++) {
        tokens += (double)tuned->batches->batch[b].total_tokens;
    }
    return tokens / tuned->batches->count;
}

// How many times over the steps take the list of lengths; 0: there is none.
static double times_over(const cli_tuned *tuned)
{
    const int64_t listed = sp_workload_tokens(&tuned->scenario->workload);
    return listed > 0 ? tokens_of(tuned) * tuned->batches->count / (double)listed : 0.0;
}

enum { STEP = 96 };

// Says " (assumed, the lengths 102 times over: --tokens-per-batch)" of a step that nobody states,
// or that repeats lengths.
static const char *step_text(const cli_tuned *tuned, char text[STEP])
{
    const char *why = tuned->step != NULL ? tuned->step : "";
    text[0] = '\0';
    if (why[0] != '\0' || tuned->batches->wrapped) {
        sp_append(text, STEP, " (%s", why);
        if (tuned->batches->wrapped) {
            sp_append(text, STEP, "%sthe lengths %.3g times over", why[0] != '\0' ? ", " : "",
                      times_over(tuned));
        }
        sp_append(text, STEP, "; --tokens-per-batch)");
    }
    return text;
}

static json_t *stack_of(const sp_scenario *scenario)
{
    return json_object_get(json_object_get(scenario->resolved, "stack"), "name");
}

// Of lengths that differ another batch is another step.
static const char *batches_text(const cli_tuned *tuned, char text[STEP])
{
    const int count = tuned->batches->count;
    text[0] = '\0';
    if (tuned->scenario->workload.uniform_tokens == 0) {
        snprintf(text, STEP,
                 count > 1 ? ", mean of %d batches"
                           : ", by %d batch alone (--set workload.batches=N draws more)",
                 count);
    }
    return text;
}

static void print_question(const cli_tuned *tuned)
{
    const sp_scenario *scenario = tuned->scenario;
    char number[CLI_SHORT_NUMBER];
    char over[CLI_LOSS];
    char step[STEP];
    char profile[CLI_PROFILE];
    cli_loss_text(cli_loss_over_length(scenario, tuned->result->over_length_share), over);
    char batches[STEP];
    printf("%s%s on %lld %s (%s), %s tokens a step%s%s%s%s, context %lld, profile %s, stack %s\n",
           cli_model_name(scenario), cli_model_comma(scenario),
           (long long)sp_layout_ranks(&scenario->layout), scenario->cluster.gpu,
           scenario->cluster.name, cli_short_number(tokens_of(tuned), number),
           step_text(tuned, step), batches_text(tuned, batches), over[0] != '\0' ? ", " : "", over,
           (long long)tuned->batches->context,
           cli_profile_text(scenario, sp_profile_level(&scenario->profile), profile),
           json_string_value(stack_of(scenario)));
}

static void print_source(const cli_tuned *tuned)
{
    char text[CLI_STEP_ERROR];
    int column = printf("times ");
    cli_print_wrapped(stdout, cli_step_error(&tuned->result->step_error, text), column, column);
    char risk[CLI_RISK];
    const double margin_gib = sp_gib_from_bytes(sp_result_margin_bytes(tuned->result));
    if (cli_memory_risk(sp_result_fit_probability(tuned->result), margin_gib, risk)[0] != '\0') {
        printf("memory: the answer %s, by logged steps that fill %s of it\n", risk,
               margin_gib < 0.0 ? "all" : "as much");
    }
    if (sp_model_most_experts(&tuned->scenario->model) > 0 && tuned->scenario->layout.etp == 0) {
        puts(CLI_TUNE_EXPERTS);
    }
}

static void print_counts(const cli_tuned *tuned)
{
    const sweep_layouts *all = tuned->layouts;
    const struct {
        int64_t count;
        const char *one, *many;
    } parts[] = {
        {all->of_status[SWEEP_OK], "fits", "fit"},
        {all->of_status[SWEEP_OOM], "needs more memory", "need more memory"},
        {all->of_status[SWEEP_INFEASIBLE], "has no plan", "have no plan"},
        {all->of_status[SWEEP_INVALID], "does not go together", "do not go together"},
        {all->of_status[SWEEP_CANNOT_RUN] + all->cannot_run, "is beyond the stack",
         "are beyond the stack"},
        {all->left_out, "cannot be faster", "cannot be faster"},
        {all->dropped, "is of a layout that was slow", "are of layouts that were slow"},
        {all->untried, "was not tried before it stopped", "were not tried before it stopped"}};
    char number[CLI_GROUPED];
    printf("%s point%s:", cli_grouped(all->count, number), sp_plural(all->count));
    const char *separator = "";
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].count > 0) {
            printf("%s %s %s", separator, cli_grouped(parts[i].count, number),
                   parts[i].count == 1 ? parts[i].one : parts[i].many);
            separator = ",";
        }
    }
    putchar('\n');
}

enum { COLUMNS = 320, TOP_SHOWN = 3, STRATEGY_WIDTH = 11 };

static void write_columns(const cli_tuned *tuned, sweep_layout *const *points, int64_t count,
                          char columns[COLUMNS])
{
    bool chosen = false;
    size_t name = STRATEGY_WIDTH;
    for (int64_t i = 0; i < count; i++) {
        size_t length = strlen(tuned->options->strategies[points[i]->strategy]);
        chosen = chosen || isfinite(points[i]->trial.choice[SWEEP_ROW_TOKENS]);
        name = length > name ? length : name;
    }
    snprintf(columns, COLUMNS, "9 @iteration_ms=step ms|8 @peak_memory_gib|-%zu strategy", name);
    for (int a = 0; a < AXES; a++) {
        if (has_column(tuned, a)) {
            sp_append(columns, COLUMNS, "|%s %s", axes[a].width, axes[a].name);
        }
    }
    sp_append(columns, COLUMNS,
              "%s|12~2 @tokens_per_gpu_s|5~5 fits|8~6 @mfu_full_attention|0 notes",
              chosen ? "|10 @row_tokens" : "");
}

static void print_point(cli_table *table, const cli_tuned *tuned, const sweep_layout *point)
{
    char text[CLI_TUNE_VALUE];
    char notes[CLI_NOTES];
    bool fastest = point == tuned->layouts->ranked[0];
    json_t *settings = sweep_layouts_settings(tuned->layouts, point);
    cli_row_begin(table);
    cli_figure_cells(table, cli_figure_of_trial, &point->trial);
    cli_cell(table, "%s", tuned->options->strategies[point->strategy]);
    for (int a = 0; a < AXES; a++) {
        if (has_column(tuned, a)) {
            json_t *value = json_incref(json_object_get(settings, axes[a].path));
            if (value == NULL && a == CHUNKS_AXIS) {
                value = sweep_choice_json(&point->trial, SWEEP_CHUNKS);
            }
            cli_cell(table, "%s", value_text(value, text));
            json_decref(value);
        }
    }
    cli_figure_cells(table, cli_figure_of_trial, &point->trial);
    cli_cell(table, "%s", sp_fits_names[point->trial.fits]);
    cli_figure_cells(table, cli_figure_of_trial, &point->trial);
    cli_row_notes(cli_loss_of_trial(&point->trial), point->trial.figure[SWEEP_FIT_PROBABILITY],
                  point->trial.figure[SWEEP_MEMORY_MARGIN_GIB], notes);
    cli_add_choices(table, &point->trial, notes);
    cli_cell(table, "%s%s%s", fastest ? "fastest" : "", fastest && notes[0] != '\0' ? ", " : "",
             notes);
    cli_row_end(table);
    json_decref(settings);
}

static void print_points(const cli_tuned *tuned, sweep_layout *const *points, int64_t count,
                         const char *title, int most)
{
    char columns[COLUMNS];
    cli_table table;
    write_columns(tuned, points, count, columns);
    cli_table_begin(&table, columns, title, most);
    for (int64_t i = 0; i < count; i++) {
        print_point(&table, tuned, points[i]);
    }
    cli_table_end(&table);
}

static void print_front(const cli_tuned *tuned)
{
    int64_t count = 0;
    if (!cli_is_wide()) {
        return;
    }
    sweep_layout **front = sweep_layouts_front(tuned->layouts, &count);
    printf("\nthe front of time against memory, of what was evaluated");
    if (count > CLI_FRONT_SHOWN) {
        printf(" (%d of %lld, all with --json)", CLI_FRONT_SHOWN, (long long)count);
    }
    puts(":");
    print_points(tuned, front, count < CLI_FRONT_SHOWN ? count : CLI_FRONT_SHOWN, "front", 0);
    sp_free((void *)front);
}

// A faster point that runs out of memory by gaps between PyTorch's blocks alone, or NULL.
static sweep_layout *find_expandable(const cli_tuned *tuned)
{
    const sweep_layouts *all = tuned->layouts;
    sweep_layout *fastest = all->ranked[0];
    for (int64_t i = 1; i < all->ranked_count; i++) {
        sweep_layout *point = all->ranked[i];
        if (point->counted && point->trial.figure[SWEEP_MEMORY_MARGIN_GIB] < 0.0 &&
            sweep_whole_ms(&point->trial) < sweep_whole_ms(&fastest->trial)) {
            fastest = point;
        }
    }
    return fastest != all->ranked[0] ? fastest : NULL;
}

static void print_expandable(const cli_tuned *tuned)
{
    sweep_layout *fastest = find_expandable(tuned);
    if (fastest != NULL) {
        puts("\nthe fastest with expandable_segments:True, which leaves no gaps between PyTorch's "
             "blocks:");
        print_points(tuned, (sweep_layout *const[]){fastest}, 1, "expandable", 0);
    }
}

// By how many percent a point that the stack lacks trains faster than the answer.
static double added_percent(const cli_tuned *tuned, const sweep_layout *point)
{
    return 100.0 * (sweep_expected_ms(&tuned->layouts->ranked[0]->trial) /
                        sweep_expected_ms(&point->trial) -
                    1.0);
}

// What stands for what the stack lacks.
static const char *lacked_name(const cli_tuned *tuned, const sweep_layout *point)
{
    return point->lacks == SWEEP_LACKS_SCHEDULE ? point->trial.schedule
                                                : tuned->options->strategies[point->strategy];
}

// An answer that runs less likely is slow for that alone: percents would say nothing of others.
#define LIKELY 0.5

// What another stack would add; nothing where it searches for all that there is.
// Returns whether the stack, or the launch file, lacks what would be faster.
static bool print_lack(const cli_tuned *tuned, sweep_lack lack)
{
    const double chance = tuned->layouts->ranked[0]->trial.figure[SWEEP_FIT_PROBABILITY];
    const sweep_layout *point = sweep_layouts_beyond(tuned->layouts, lack);
    char layout[CLI_TUNE_POINT];
    char time[TIME];
    char what[96];
    char option[64] = "to search among such: --any-schedule";
    if (point == NULL || added_percent(tuned, point) < 0.05) {
        return false;
    }
    const char *name = lacked_name(tuned, point);
    if (lack == SWEEP_LACKS_ARGUMENT) {
        snprintf(what, sizeof what, "of what the launch file cannot ask for, %s", name);
        snprintf(option, sizeof option, "--strategies %s", name);
    } else {
        snprintf(what, sizeof what, "a stack with %s", name);
    }
    cli_tune_point(tuned->options, tuned->layouts, point, layout);
    if (chance < LIKELY) {
        printf("the answer hardly runs; %s would take %s (%s): %s\n", what,
               time_text(point->trial.figure[SWEEP_ITERATION_MS], time), option, layout);
    } else {
        printf("%s would train %.1f %% faster (%s): %s\n", what, added_percent(tuned, point),
               option, layout);
    }
    return true;
}

static void print_beyond(const cli_tuned *tuned)
{
    bool adds = sweep_layouts_beyond(tuned->layouts, SWEEP_LACKS_ARGUMENT) != NULL;
    for (int lack = SWEEP_LACKS_SCHEDULE; lack < SWEEP_LACKS_ARGUMENT; lack++) {
        adds = print_lack(tuned, (sweep_lack)lack) || adds;
    }
    if (!adds && tuned->layouts->beyond_count > 0) {
        puts("no schedule or strategy of other stacks that was tried is faster");
    }
}

enum { TO_DO = 320 };

// What the answer asks of the data loader, by the name that the stack has for it.
static const char *to_do_text(const cli_tuned *tuned, char text[TO_DO])
{
    const sp_scenario *scenario = tuned->scenario;
    const sp_strategy *strategy = sp_strategy_find(tuned->result->strategy);
    const char *name = sp_stack_abilities_of(&scenario->memory.stack).row_setting;
    double chosen = sp_result_row_tokens(tuned->result);
    char number[CLI_GROUPED];
    text[0] = '\0';
    if (strategy->pads && scenario->strategy.pad_to == SP_PAD_LONGEST) {
        sp_append(text, TO_DO, "pad rows to the longest of each micro-batch");
    } else if (strategy->kind == SP_STRATEGY_ROWS || strategy->chooses_rows) {
        bool chose = strategy->chooses_rows && isfinite(chosen);
        sp_append(text, TO_DO, "%s rows to %s tokens", strategy->pads ? "pad" : "pack",
                  cli_grouped(chose ? (int64_t)chosen : tuned->batches->context, number));
        sp_append(text, TO_DO, name != NULL ? " (%s)" : "%s", name != NULL ? name : "");
    } else if (scenario->strategy.rank_tokens > 0) {
        sp_append(text, TO_DO, "pack up to %s tokens for each rank",
                  cli_grouped(scenario->strategy.rank_tokens, number));
        const char *option = strategy->rank_tokens_option;
        sp_append(text, TO_DO, " (%s)", option != NULL ? option : "strategy.rank_tokens");
    } else if (scenario->strategy.chunk_tokens > 0) {
        sp_append(text, TO_DO, "cut samples into chunks of %s tokens",
                  cli_grouped(scenario->strategy.chunk_tokens, number));
    } else {
        sp_append(text, TO_DO,
                  "train the packs of a plan: slimpack plan --stream plans each batch");
        if (isfinite(chosen)) {
            sp_append(text, TO_DO, ", here of %s tokens for each rank",
                      cli_grouped((int64_t)chosen, number));
        }
    }
    if (scenario->strategy.microbatch_samples > 1) {
        sp_append(text, TO_DO, ", %lld to a micro-batch",
                  (long long)scenario->strategy.microbatch_samples);
    }
    return text;
}

enum { COMMAND_COLUMNS = 96 };

// Behind the next blank before which a command may be broken: an option or a second command
// follows; a blank in quotes is part of a word.
static const char *next_part(const char *text)
{
    bool quoted = false;
    for (; *text != '\0'; text++) {
        quoted = *text == '\'' ? !quoted : quoted;
        text += *text == '\\' && !quoted && text[1] != '\0';
        if (*text == ' ' && !quoted && (text[1] == '-' || text[1] == '&' || text[-1] == '&')) {
            return text + 1;
        }
    }
    return text;
}

enum { CHANGES_SHOWN = 12 };

static void print_changes_of(const json_t *changes)
{
    const framework *of = framework_find(json_string_value(json_object_get(changes, "framework")));
    const char *file = json_string_value(json_object_get(changes, "file"));
    const json_t *arguments = json_object_get(changes, "arguments");
    const json_t *lost = json_object_get(changes, "not_expressed");
    const size_t count = json_array_size(arguments);
    const size_t shown = cli_is_wide() || count <= CHANGES_SHOWN ? count : CHANGES_SHOWN - 1;
    printf("%s to change in ", count > 0 ? "what" : "nothing");
    printf(file != NULL ? "%s" : "a launch file of %s", file != NULL ? file : of->title);
    printf(" for it%s\n", count > 0 ? ":" : "");
    for (size_t i = 0; i < shown; i++) {
        sp_text text;
        framework_print_change(sp_text_begin(&text), changes, i);
        char *line = sp_text_end(&text);
        printf("  %s\n", line);
        sp_free(line);
    }
    if (shown < count) {
        printf("  ... %zu more with --wide\n", count - shown);
    }
    sp_text text;
    FILE *out = sp_text_begin(&text);
    for (size_t i = 0; i < json_array_size(lost); i++) {
        char words[FRAMEWORK_LOST];
        fprintf(out, "%s%s", i > 0 ? ", " : "",
                framework_lost_text(json_array_get(lost, i), words));
    }
    char *words = sp_text_end(&text);
    if (words[0] != '\0') {
        cli_print_wrapped(stdout, words, printf("  %s has no argument for ", of->name), 4);
    }
    sp_free(words);
}

// Says what to go on with, on lines that a shell takes as one.
static void print_command(const char *command)
{
    int column = printf("go on with:");
    for (const char *from = command; *from != '\0';) {
        const char *end = next_part(from);
        int length = (int)(end - from) - (*end != '\0');
        if (column + 1 + length > COMMAND_COLUMNS) {
            printf("%s\n   ", from - command > 2 && from[-2] == '&' ? "" : " \\");
            column = 3;
        }
        column += printf(" %.*s", length, from);
        from = end;
    }
    putchar('\n');
}

static void print_what_to_type(const cli_tuned *tuned)
{
    for (size_t i = 0; i < json_array_size(tuned->changes); i++) {
        print_changes_of(json_array_get(tuned->changes, i));
    }
    print_beyond(tuned);
    if (tuned->train_tokens > 0.0) {
        char training[CLI_TRAINING];
        printf("%s\n", cli_training_text(tuned->train_tokens, tuned->result, training));
    }
    char to_do[TO_DO];
    printf("%s\n", to_do_text(tuned, to_do));
    if (cli_is_wide() || tuned->written) {
        printf("go on with: %s\n", tuned->go_on);
    } else {
        print_command(tuned->again);
    }
}

// A screen may cut what comes last: of a launch file what to change in it is the answer.
void cli_print_tuned(const cli_tuned *tuned)
{
    const bool changes = json_array_size(tuned->changes) > 0;
    if (tuned->stopped) {
        printf("%s before all points were tried: the fastest so far\n",
               tuned->late ? "the time of --time-limit was up" : "stopped by a signal");
    }
    print_answer(tuned);
    cli_print_limit(stdout, tuned->result, "limit: ", 6);
    print_question(tuned);
    print_lack(tuned, SWEEP_LACKS_ARGUMENT);
    print_source(tuned);
    print_passed_over(tuned);
    print_counts(tuned);
    putchar('\n');
    if (changes) {
        print_what_to_type(tuned);
        putchar('\n');
    }
    int64_t top = tuned->layouts->ranked_count;
    print_points(tuned, tuned->layouts->ranked, top < tuned->top ? top : tuned->top, "top",
                 TOP_SHOWN);
    print_expandable(tuned);
    print_front(tuned);
    if (!changes) {
        if (tuned->layouts->beyond_count > 0) {
            putchar('\n');
        }
        print_what_to_type(tuned);
    }
    print_findings(tuned);
    print_choices(tuned);
}

// ---- for programs ----

static json_t *point_json(const cli_tuned *tuned, const sweep_layout *point)
{
    json_t *object =
        sp_json_object(SP_JSON("strategy", tuned->options->strategies[point->strategy]),
                       SP_JSON("point", sweep_layouts_settings(tuned->layouts, point)));
    cli_put_figures(object, &point->trial);
    sp_json_put(object, "fits", json_string(sp_fits_names[point->trial.fits]));
    cli_put_choices(object, &point->trial);
    return object;
}

static json_t *points_json(const cli_tuned *tuned, const sweep_layout *const *points, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++) {
        json_array_append_new(list, point_json(tuned, points[i]));
    }
    return list;
}

// NULL: there is a time.
static json_t *current_reason(const cli_tuned *tuned)
{
    return isfinite(tuned->current_ms)
               ? NULL
               : json_string(tuned->current != NULL ? tuned->current : "--current names no layout");
}

// The nearest logged steps, where none is like the answer: of their errors nothing is told.
static json_t *nearest_json(const sp_step_error *error)
{
    if (error->known || error->steps == 0) {
        return json_null();
    }
    return sp_json_object(SP_JSON("median", json_null()), SP_JSON("steps", error->steps),
                          SP_JSON("scope", error->scope));
}

static json_t *question_json(const cli_tuned *tuned)
{
    const sp_scenario *scenario = tuned->scenario;
    return sp_json_object(
        SP_JSON("model", scenario->model.name), SP_JSON("gpus", sp_layout_ranks(&scenario->layout)),
        SP_JSON("gpu", scenario->cluster.gpu), SP_JSON("cluster", scenario->cluster.name),
        SP_JSON("stack", json_incref(stack_of(scenario))),
        SP_JSON("context", tuned->batches->context), SP_JSON("tokens_per_step", tokens_of(tuned)),
        SP_JSON("tokens_chosen", sp_json_text_or_null(tuned->step)),
        SP_JSON("lengths_times_over", tuned->batches->wrapped ? times_over(tuned) : (double)NAN));
}

static json_t *counts_json(const sweep_layouts *all)
{
    json_t *points = cli_statuses_json(all->of_status);
    sp_json_add(points, SP_JSON("left_out", all->left_out), SP_JSON("dropped", all->dropped));
    return all->cannot_run + all->untried > 0
               ? sp_json_add(points, SP_JSON("cannot_run", all->cannot_run),
                             SP_JSON("untried", all->untried))
               : points;
}

json_t *cli_tuned_json_empty(const cli_tuned *tuned)
{
    json_t *question = question_json(tuned);
    sp_json_put(question, "gpus", json_integer(tuned->options->gpus));
    return sp_json_object(SP_JSON("question", question), SP_JSON("answer", json_null()),
                          SP_JSON("nearest_error", json_null()),
                          SP_JSON("within_error", json_null()), SP_JSON("go_on", json_null()),
                          SP_JSON("current_ms", json_null()), SP_JSON("switched_ms", json_null()),
                          SP_JSON("current_reason", json_null()), SP_JSON("changes", json_array()),
                          SP_JSON("points", counts_json(tuned->layouts)),
                          SP_JSON("top", json_array()), SP_JSON("front", json_array()),
                          SP_JSON("limits_ms", json_null()), SP_JSON("findings", json_array()),
                          SP_JSON("choices", json_object()));
}

// [a point, with "lacks" (what the stack has not) and "added_percent" (of training speed)]
static json_t *beyond_json(const cli_tuned *tuned)
{
    json_t *list = json_array();
    for (int lack = SWEEP_LACKS_SCHEDULE; lack <= SWEEP_LACKS_ARGUMENT; lack++) {
        const sweep_layout *point = sweep_layouts_beyond(tuned->layouts, (sweep_lack)lack);
        if (point != NULL) {
            json_array_append_new(
                list,
                sp_json_add(point_json(tuned, point), SP_JSON("lacks", lacked_name(tuned, point)),
                            SP_JSON("added_percent", added_percent(tuned, point))));
        }
    }
    return list;
}

json_t *cli_tuned_json(const cli_tuned *tuned)
{
    const sweep_layouts *all = tuned->layouts;
    double ms[SP_TIME_PARTS];
    int64_t count = 0;
    sweep_layout **front = sweep_layouts_front(all, &count);
    json_t *points = counts_json(all);
    json_t *limits = json_object();
    sp_result_time_parts(tuned->result, ms);
    for (int i = 0; i < SP_TIME_PARTS; i++) {
        if (i != SP_TIME_EP || sp_layout_dispatches(&tuned->result->layout)) {
            sp_json_put(limits, cli_time_part_names[i], json_real(ms[i]));
        }
    }
    int64_t top = all->ranked_count < tuned->top ? all->ranked_count : tuned->top;
    json_t *object = sp_json_object(
        SP_JSON("schema", "slimpack/tune/1"), SP_JSON("question", question_json(tuned)),
        SP_JSON("answer", sp_result_json(tuned->result, false)),
        SP_JSON("nearest_error", nearest_json(&tuned->result->step_error)),
        SP_JSON("within_error", count_within(tuned)), SP_JSON("go_on", tuned->go_on),
        SP_JSON("current_ms", tuned->current_ms), SP_JSON("switched_ms", tuned->switched_ms),
        SP_JSON("current_reason", current_reason(tuned)),
        SP_JSON("changes", json_incref(tuned->changes)), SP_JSON("points", points),
        SP_JSON("top", points_json(tuned, (const sweep_layout *const *)all->ranked, top)),
        SP_JSON("front", points_json(tuned, (const sweep_layout *const *)front, count)),
        SP_JSON("limits_ms", limits), SP_JSON("findings", findings_json(tuned)),
        SP_JSON("choices", choices_json(tuned)));
    sp_free((void *)front);
    const sweep_layout *passed = find_passed_over(tuned);
    sp_json_put(object, "passed_over",
                passed == NULL
                    ? json_null()
                    : sp_json_add(point_json(tuned, passed),
                                  SP_JSON("faster_percent", faster_percent(tuned, passed))));
    const sweep_layout *expandable = find_expandable(tuned);
    sp_json_put(object, "expandable",
                expandable != NULL ? point_json(tuned, expandable) : json_null());
    if (tuned->stopped) {
        sp_json_put(object, "stopped", json_true());
    }
    char to_do[TO_DO];
    sp_json_put(object, "to_do", json_string(to_do_text(tuned, to_do)));
    if (all->beyond_count > 0) {
        sp_json_put(object, "beyond", beyond_json(tuned));
    }
    json_t *training = cli_training_json(tuned->train_tokens, tuned->result);
    if (training != NULL) {
        sp_json_put(object, "training", training);
    }
    return object;
}
