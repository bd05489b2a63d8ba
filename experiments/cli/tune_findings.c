// What the answer of `tune` spends its step on, and what other points that were evaluated would
// take less of it.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/tune_parts.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/model/inventory.h"

enum { FINDINGS = SP_TIME_PARTS + 3, AXES_TRIED = 3, REMEDY = 320 };

static const double told_share = 0.05;  // of the step, from which a part of it limits it
static const double most_lacking = 0.5; // of the memory limit

// Which values of a setting are tried against a limit: others, or those before the answer's in the
// order of the search.
typedef struct remedy_axis {
    const char *path; // NULL: of no setting; "strategy.kind": of the strategy
    bool smaller;
} remedy_axis;

// What a part of the step is called, and which settings take less of it.
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
    {"the optimizer", {{"parallel.zero", false}}},
    {"the bubble", {{"parallel.pp", true}, {"schedule.kind", false}}},
};

// Parts of what the step takes over pure work that no part of the time shows.
static const limit_kind pack_kind = {
    "packs over pure work",
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

// For all tokens: a strategy that leaves some out does less work in its step.
static double time_of(const sweep_layout *point)
{
    return sweep_whole_ms(&point->digest);
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

// Place among the values of recomputation, or an integer.
static int64_t order_of(const json_t *value)
{
    const char *text = json_string_value(value);
    int64_t order = json_integer_value(value);
    for (int i = 0; text != NULL && sp_recompute_names[i] != NULL; i++) {
        order = strcmp(text, sp_recompute_names[i]) == 0 ? i : order;
    }
    return order;
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
    const sweep_digest *d = &point->digest;
    double margin_gib = d->figure[SWEEP_MEMORY_MARGIN_GIB];
    double limit_gib = d->figure[SWEEP_PEAK_MEMORY_GIB] + margin_gib;
    return point->evaluated && d->status == SWEEP_OOM && margin_gib < 0.0 &&
           margin_gib >= -most_lacking * limit_gib;
}

static void take(const sweep_layout *point, other *best)
{
    const sweep_digest *d = &point->digest;
    bool lacks = lacks_memory(point);
    bool fits = d->status == SWEEP_OK && d->fits != SP_FITS_TIGHT;
    const sweep_layout **at = fits ? &best->fits : &best->short_of;
    if ((fits || lacks) && (*at == NULL || time_of(point) < time_of(*at))) {
        *at = point;
    }
}

static other find_other(const cli_tuned *tuned, const remedy_axis *axis)
{
    const sweep_layouts *all = tuned->layouts;
    json_t *answer = value_of(tuned, all->ranked[0], axis->path);
    other best = {NULL, NULL};
    for (int64_t i = 0; i < all->count; i++) {
        const sweep_layout *point = &all->point[i];
        if (point->evaluated && isfinite(time_of(point))) {
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
    return cli_tune_gib(-point->digest.figure[SWEEP_MEMORY_MARGIN_GIB], text);
}

// Where the strategy of another point does not train as many tokens as the answer's.
static void add_loss(const cli_tuned *tuned, const sweep_layout *point, char text[REMEDY])
{
    char loss[CLI_LOSS];
    if (cli_tune_loss(tuned, &point->digest, loss)[0] != '\0') {
        sp_append(text, REMEDY, " for as many tokens (%s)", loss);
    }
}

static void name_choice(const cli_tuned *tuned, const sweep_layout *point, const char *path,
                        char text[REMEDY])
{
    char value[CLI_TUNE_VALUE];
    const char *name = "";
    for (int a = 0; a < CLI_TUNE_AXES; a++) {
        name = strcmp(cli_tune_axes[a].path, path) == 0 ? cli_tune_axes[a].name : name;
    }
    json_t *json = value_of(tuned, point, path);
    sp_append(text, REMEDY, "%s%s%s", name, name[0] != '\0' ? " " : "",
              cli_tune_value(json, value));
    json_decref(json);
}

static void add_other(const cli_tuned *tuned, const remedy_axis *axis, char text[REMEDY])
{
    char gib[CLI_TUNE_VALUE];
    double best_ms = time_of(tuned->layouts->ranked[0]);
    other found = find_other(tuned, axis);
    bool saves = found.short_of != NULL && time_of(found.short_of) < best_ms;
    if (saves) {
        sp_append(text, REMEDY, "%s", text[0] != '\0' ? "; " : "");
        name_choice(tuned, found.short_of, axis->path, text);
        sp_append(text, REMEDY, " saves %.1f %% but lacks at least %s",
                  100.0 * (1.0 - time_of(found.short_of) / best_ms),
                  lacking_text(found.short_of, gib));
        add_loss(tuned, found.short_of, text);
    }
    if (found.fits != NULL) {
        sp_append(text, REMEDY, "%s", text[0] != '\0' ? "; " : "");
        name_choice(tuned, found.fits, axis->path, text);
        sp_append(text, REMEDY, " costs %.1f %% in all",
                  100.0 * (time_of(found.fits) / best_ms - 1.0));
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

// What would be faster at any setting if a GPU held more: the fastest of these.
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

void cli_print_findings(const cli_tuned *tuned)
{
    finding list[FINDINGS];
    int count = find_all(tuned, list);
    puts("\nwhat limits it (communication that computing does not hide), and what others of the "
         "points cost:");
    for (int i = 0; i < count; i++) {
        const finding *f = &list[i];
        printf("  %s", f->limit);
        if (isfinite(f->share)) {
            printf(", %.1f %% of the step", 100.0 * f->share);
        }
        printf("%s%s\n", f->remedy[0] != '\0' ? ": " : "", f->remedy);
    }
}

json_t *cli_findings_json(const cli_tuned *tuned)
{
    finding list[FINDINGS];
    int count = find_all(tuned, list);
    json_t *array = json_array();
    for (int i = 0; i < count; i++) {
        json_array_append_new(array,
                              json_pack("{s:s, s:o, s:s}", "limit", list[i].limit, "share",
                                        sp_json_figure(list[i].share), "remedy", list[i].remedy));
    }
    return array;
}
