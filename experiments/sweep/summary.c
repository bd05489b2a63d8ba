#include "experiments/sweep/summary.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"

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

static void copy_symbol(sweep_symbols *symbols, const sweep_spec *spec, const char *path, int axis,
                        const sweep_value *values)
{
    int64_t count = axis >= 0 ? spec->axes[axis].count : 1;
    sweep_symbol symbol = {.path = sp_strdup(path), .axis = axis};
    symbol.values = sp_calloc((size_t)count, sizeof *symbol.values);
    if (values != NULL) {
        memcpy(symbol.values, values, (size_t)count * sizeof *values);
    }
    symbols->items[symbols->count++] = symbol;
}

// The settings of the sweep, and the figures, whose values are those of the line at hand.
static void make_symbols(sweep_summary *summary)
{
    const sweep_symbols *settings = &summary->spec->symbols;
    sweep_symbols *symbols = &summary->symbols;
    symbols->unknown = "no figure, and set neither by the grid nor by the base";
    size_t count = settings->count + SWEEP_FIGURE_COUNT + 2;
    sp_reserve((void **)&symbols->items, &symbols->capacity, count, sizeof *symbols->items);
    for (size_t i = 0; i < settings->count; i++) {
        const sweep_symbol *s = &settings->items[i];
        copy_symbol(symbols, summary->spec, s->path, s->axis, s->values);
    }
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        copy_symbol(symbols, summary->spec, sweep_figure_names[f], -1, NULL);
    }
    copy_symbol(symbols, summary->spec, "status", -1, NULL);
    copy_symbol(symbols, summary->spec, "fits", -1, NULL);
    summary->of_figures = symbols->items + settings->count;
}

static sweep_value text_value(const char *text)
{
    return text != NULL ? (sweep_value){.kind = SWEEP_STRING, .text = text} : (sweep_value){0};
}

static sp_status is_listed(const sweep_summary *summary, int64_t combination,
                           const sweep_digest *digest, bool *listed, sp_error *err)
{
    int64_t digit[SWEEP_AXES];
    *listed = digest->status == SWEEP_OK;
    if (!*listed || summary->where == NULL) {
        return SP_OK;
    }
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        bool known = isfinite(digest->figure[f]);
        summary->of_figures[f].values[0] =
            known ? (sweep_value){.kind = SWEEP_NUMBER, .number = digest->figure[f]}
                  : (sweep_value){0};
    }
    bool known = digest->fits != SP_FITS_NONE;
    summary->of_figures[SWEEP_FIGURE_COUNT].values[0] =
        text_value(sweep_status_names[digest->status]);
    summary->of_figures[SWEEP_FIGURE_COUNT + 1].values[0] =
        text_value(known ? sp_fits_names[digest->fits] : NULL);
    sweep_spec_digits(summary->spec, combination, digit);
    return sweep_where_holds(summary->where, digit, listed, err);
}

// ---- the best ----

static bool is_better(const sweep_summary *summary, const sweep_digest *a, const sweep_digest *b)
{
    if (!summary->options.by_figure) {
        return sweep_is_better(a, b);
    }
    if (sweep_is_tighter(a, b) || sweep_is_tighter(b, a)) {
        return sweep_is_tighter(b, a);
    }
    sweep_figure by = summary->options.by;
    double x = sweep_figure_better[by] * a->figure[by];
    double y = sweep_figure_better[by] * b->figure[by];
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
    while (at > first && is_better(summary, &point->digest, &summary->best[at - 1].digest)) {
        at--;
    }
    if (at - first == summary->options.top) {
        return;
    }
    sp_reserve((void **)&summary->best, &summary->best_capacity, (size_t)count + 1,
               sizeof *summary->best);
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
    double better_x = sweep_figure_better[x];
    double better_y = sweep_figure_better[y];
    const double *own = point->digest.figure;
    int64_t first = begin_of(summary->front, summary->front_count, point->group);
    int64_t end = begin_of(summary->front, summary->front_count, point->group + 1);
    int64_t kept = first;
    if (isnan(own[x]) || isnan(own[y])) {
        return;
    }
    for (int64_t i = first; i < end; i++) {
        const double *other = summary->front[i].digest.figure;
        if (better_x * other[x] >= better_x * own[x] && better_y * other[y] >= better_y * own[y]) {
            return;
        }
    }
    for (int64_t i = first; i < end; i++) {
        const double *other = summary->front[i].digest.figure;
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
    sp_reserve((void **)&summary->front, &summary->front_capacity, (size_t)count + 1,
               sizeof *summary->front);
    int64_t at = kept;
    while (at > first && summary->front[at - 1].digest.figure[x] > own[x]) {
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
        summary->options.top = SWEEP_TOP;
    }
    choose_groups(summary);
    if (summary->options.where == NULL) {
        return SP_OK;
    }
    make_symbols(summary);
    return sweep_where_parse(summary->options.where, "--where", "", &summary->symbols,
                             &summary->where, err);
}

sp_status sweep_summary_add(sweep_summary *summary, int64_t combination, const sweep_digest *digest,
                            sp_error *err)
{
    sweep_status s = digest->status;
    bool listed = false;
    if (summary->of_status[s]++ == 0) {
        memcpy(summary->reason[s], digest->reason, sizeof digest->reason);
    }
    summary->written++;
    sp_status status = is_listed(summary, combination, digest, &listed, err);
    if (status == SP_OK && summary->options.each != NULL) {
        summary->options.each(summary->options.context, combination, digest, listed);
    }
    if (status != SP_OK || !listed) {
        return status;
    }
    const sweep_best point = {
        .combination = combination, .group = group_of(summary, combination), .digest = *digest};
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
    *summary = (sweep_summary){0};
}
