#include "experiments/sweep/layouts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"
#include "solver/evaluate/evaluate.h"
#include "solver/strategy.h"

enum {
    MOST_CP = 16,
    MOST_PP = 64,
    LEAST_BUDGET = 4096,
    MOST_BUDGETS = 5,
    DEGREES = 4,    // axes of a layout alone
    MOST_ALIKE = 2, // survivors of the same degrees
    MOST_ROWS = 4,  // of a micro-batch
    MICROBATCH_TOKENS = 16384,
    CONDITION = 512,
    BLOCK = 64, // points that are evaluated before the fastest is looked for again
};

// ---- the layouts as a sweep ----

// 1, 2, 4, ... up to `most`, or all numbers, those that divide `number`.
static json_t *divisors(int64_t number, int64_t most, bool powers)
{
    json_t *list = json_array();
    for (int64_t d = 1; d <= most && d <= number; d = powers ? 2 * d : d + 1) {
        if (number % d == 0) {
            json_array_append_new(list, json_integer(d));
        }
    }
    return list;
}

// From 4096 tokens to those of the context.
static json_t *budgets(int64_t context)
{
    json_t *list = json_array();
    for (int64_t b = LEAST_BUDGET, i = 0; i < MOST_BUDGETS && (b <= context || i == 0);
         b *= 2, i++) {
        json_array_append_new(list, json_integer(b < context ? b : context));
    }
    return list;
}

// Rows of a micro-batch: short ones are too little work for a GPU.
static json_t *microbatches(int64_t context)
{
    json_t *list = json_pack("[i]", 1);
    for (int rows = 2; rows <= MOST_ROWS && rows * context <= MICROBATCH_TOKENS; rows *= 2) {
        json_array_append_new(list, json_integer(rows));
    }
    return list;
}

static bool has_option(const sp_strategy *strategy, const char *option)
{
    const char *found = strstr(strategy->options, option);
    size_t length = strlen(option);
    return found != NULL && (found[length] == ',' || found[length] == '\0');
}

// The schedules of strategies that bring none, with the chunks that each runs. Without a pipeline
// they are all alike.
static const char *const any_schedule =
    "tp * cp * pp * dp == %lld && ((schedule.kind == '1f1b' && chunks_per_rank == 1) || pp > 1 && "
    "(schedule.kind == 'interleaved' && chunks_per_rank > 1 || "
    "(schedule.kind == 'zb-h1' || schedule.kind == 'zb-h2') && chunks_per_rank == 1 || "
    "(schedule.kind == 'zb-v' || schedule.kind == 'v-half') && chunks_per_rank == 2))";

// The axes that the bound depends on come first, the same for every strategy (work_of).
static json_t *grid_of(const sp_scenario *scenario, const sp_strategy *strategy, bool wide)
{
    int64_t ranks = sp_layout_ranks(&scenario->layout);
    int64_t most_pp = scenario->model.layers < MOST_PP ? scenario->model.layers : MOST_PP;
    int64_t context = scenario->workload.context;
    json_t *grid = json_object();
    sp_json_put(grid, "parallel.tp", divisors(ranks, scenario->cluster.gpus_per_node, true));
    sp_json_put(grid, "parallel.cp", divisors(ranks, MOST_CP, true));
    sp_json_put(grid, "parallel.pp", divisors(ranks, most_pp, false));
    sp_json_put(grid, "parallel.dp", divisors(ranks, ranks, false));
    sp_json_put(grid, "memory.recompute", json_pack("[s, s, s]", "none", "attention", "full"));
    if (wide) {
        sp_json_put(grid, "parallel.zero", json_pack("[i, i, i]", 1, 2, 3));
    }
    if (!strategy->brings_order) {
        sp_json_put(grid, "schedule.kind",
                    json_pack("[s, s, s, s, s*, s*]", "1f1b", "interleaved", "zb-h1", "zb-v",
                              wide ? "zb-h2" : NULL, wide ? "v-half" : NULL));
    }
    if (!strategy->brings_order || strategy->schedule == SP_SCHEDULE_SLIMPIPE) {
        sp_json_put(grid, "parallel.chunks_per_rank", json_pack("[i, i, i]", 1, 2, 4));
    }
    if (wide && strategy->kind == SP_STRATEGY_ROWS) {
        sp_json_put(grid, "schedule.microbatch_samples", microbatches(context));
    }
    if (has_option(strategy, "rank_tokens")) {
        sp_json_put(grid, "strategy.rank_tokens", budgets(context));
    }
    if (has_option(strategy, "chunk_tokens")) {
        sp_json_put(grid, "strategy.chunk_tokens", budgets(context));
    }
    return grid;
}

// Settings of the base that the grid takes the place of are left out where not every point has
// them.
static json_t *base_of(const json_t *base, const char *strategy)
{
    static const char *const layout[] = {"chunks_per_rank", "layers_per_chunk", "stage_layers",
                                         "order"};
    json_t *copy = json_deep_copy(base);
    json_t *parallel = json_object_get(copy, "parallel");
    for (size_t i = 0; i < sizeof layout / sizeof layout[0]; i++) {
        json_object_del(parallel, layout[i]);
    }
    json_object_del(json_object_get(copy, "schedule"), "kind");
    if (!json_is_object(json_object_get(copy, "strategy"))) {
        sp_json_put(copy, "strategy", json_object());
    }
    sp_json_put(json_object_get(copy, "strategy"), "kind", json_string(strategy));
    return copy;
}

static sp_status spec_of(const json_t *base, const sp_scenario *scenario, const char *name,
                         bool wide, sweep_spec *spec, sp_error *err)
{
    const sp_strategy *strategy = sp_strategy_find(name);
    char where[CONDITION];
    long long ranks = (long long)sp_layout_ranks(&scenario->layout);
    snprintf(where, sizeof where,
             strategy->brings_order ? "tp * cp * pp * dp == %lld" : any_schedule, ranks);
    json_t *document =
        json_pack("{s: s, s: o, s: o, s: s}", "schema", SWEEP_SCHEMA, "base", base_of(base, name),
                  "grid", grid_of(scenario, strategy, wide), "where", where);
    return document != NULL ? sweep_spec_from_json(document, scenario->source, spec, err)
                            : sp_error_no_memory(err, "layouts");
}

// ---- their bounds ----

typedef struct finder {
    const sweep_layouts_options *options;
    sweep_layouts *layouts;
    sweep_evaluator *evaluator; // [spec_count]
    sp_batches batches;
    int axes;         // of the first ones, which the bound depends on
    int64_t works;    // combinations of these
    int64_t alike;    // of these with the same degrees
    int64_t inner;    // combinations of the others, of the first strategy
    double *bound_ms; // [of the first axes]; negative: not known yet
    int64_t *wanted;  // of these, those with points
    int64_t wanted_count;
    bool *survives;       // [of the first axes]; NULL: all do
    sweep_layout **order; // [count]
    int64_t from;         // in `order`, of the block in work
    double best_ms;       // of those that fit well, so far
} finder;

static int64_t work_of(const finder *f, const sweep_layout *point)
{
    const sweep_spec *spec = &f->layouts->spec[point->strategy];
    int64_t inner = 1;
    for (int a = f->axes; a < spec->axis_count; a++) {
        inner *= spec->axes[a].count;
    }
    return point->combination / inner;
}

// Pure work depends on degrees and recomputation, not on strategy, schedule or chunks.
static sp_status bound_one(void *context, int worker, int job, sp_error *err)
{
    finder *f = context;
    sp_scenario scenario;
    sp_error own = {0};
    int64_t digit[SWEEP_AXES];
    int64_t work = f->wanted[job];
    double bound_s = 0.0;
    sweep_spec_digits(&f->layouts->spec[0], work * f->inner, digit);
    json_t *document = sweep_evaluator_scenario(&f->evaluator[0], worker, digit);
    if (document == NULL) {
        return sp_error_no_memory(err, "layouts");
    }
    f->bound_ms[work] = 0.0;
    sp_status status =
        sp_scenario_from_json_cached(document, "layout", f->evaluator[0].files, &scenario, &own);
    json_decref(document);
    if (status == SP_OK) {
        status = sp_evaluate_work_bound(&scenario, &f->batches, &bound_s, &own);
        f->bound_ms[work] = status == SP_OK ? bound_s * 1e3 : 0.0;
        sp_scenario_fini(&scenario);
    }
    return sp_status_is_fatal(status) ? sp_error_set(err, status, "%s", own.message[0]) : SP_OK;
}

static sp_status find_bounds(finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    f->works = 1;
    f->alike = 1;
    f->axes = f->options->wide ? 6 : 5;
    f->inner = 1;
    for (int a = 0; a < all->spec[0].axis_count; a++) {
        *(a < f->axes ? &f->works : &f->inner) *= all->spec[0].axes[a].count;
        f->alike *= a >= DEGREES && a < f->axes ? all->spec[0].axes[a].count : 1;
    }
    f->bound_ms = sp_calloc((size_t)f->works, sizeof *f->bound_ms);
    f->wanted = sp_calloc((size_t)f->works, sizeof *f->wanted);
    if (f->bound_ms == NULL || f->wanted == NULL) {
        return sp_error_no_memory(err, "layouts");
    }
    for (int64_t i = 0; i < all->count; i++) {
        int64_t work = work_of(f, &all->point[i]);
        if (f->bound_ms[work] == 0.0) {
            f->bound_ms[work] = -1.0;
            f->wanted[f->wanted_count++] = work;
        }
    }
    sp_status status =
        sp_parallel_for(f->options->threads, (int)f->wanted_count, bound_one, f, err);
    for (int64_t i = 0; status == SP_OK && i < all->count; i++) {
        // Documents that are cut see less of each other: less work than the batch has.
        const char *name = f->options->strategies[all->point[i].strategy];
        bool whole = !sp_strategy_find(name)->joins_documents;
        all->point[i].bound_ms = whole ? f->bound_ms[work_of(f, &all->point[i])] : 0.0;
    }
    return status;
}

// ---- their evaluation ----

// A search, or a budget of tokens with another schedule than the first.
static bool is_late(const finder *f, int strategy, const int64_t digit[SWEEP_AXES])
{
    const sweep_spec *spec = &f->layouts->spec[strategy];
    sp_strategy_kind kind = sp_strategy_find(f->options->strategies[strategy])->kind;
    bool other = false;
    for (int a = 0; a < spec->axis_count; a++) {
        bool schedule = strcmp(spec->axes[a].path, "schedule.kind") == 0 ||
                        strcmp(spec->axes[a].path, "parallel.chunks_per_rank") == 0;
        other = other || (schedule && digit[a] > 0);
    }
    return kind == SP_STRATEGY_SEARCH || (kind == SP_STRATEGY_BUDGETS && other);
}

static sp_status list_points(finder *f, int strategy, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    sweep_cursor cursor;
    bool found = false;
    int64_t count = 0;
    sp_status status = sweep_spec_count(&all->spec[strategy], &count, err);
    size_t capacity = (size_t)all->count;
    if (status == SP_OK && !sp_reserve((void **)&all->point, &capacity,
                                       (size_t)(all->count + count) + 1, sizeof *all->point)) {
        status = sp_error_no_memory(err, "layouts");
    }
    if (status != SP_OK) {
        return status;
    }
    sweep_cursor_begin(&cursor, &all->spec[strategy]);
    for (status = sweep_cursor_next(&cursor, &found, err); status == SP_OK && found;
         status = sweep_cursor_next(&cursor, &found, err)) {
        all->point[all->count++] = (sweep_layout){.strategy = strategy,
                                                  .combination = cursor.combination,
                                                  .late = is_late(f, strategy, cursor.digit)};
    }
    return status;
}

static sp_status evaluate_point(void *context, int worker, int job, sp_error *err)
{
    finder *f = context;
    sweep_layout *point = f->order[f->from + job];
    sp_status status = sweep_evaluate_point(&f->evaluator[point->strategy], worker,
                                            point->combination, &point->digest, err);
    point->evaluated = status == SP_OK;
    return status;
}

// Cheap points first, then small bounds; in the order of the points where these are equal.
static int by_promise(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    if (p->late != q->late) {
        return p->late ? 1 : -1;
    }
    return p->bound_ms != q->bound_ms ? (p->bound_ms > q->bound_ms ? 1 : -1) : (p > q) - (p < q);
}

static int by_digest(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    return sweep_is_better(&p->digest, &q->digest)   ? -1
           : sweep_is_better(&q->digest, &p->digest) ? 1
                                                     : (p > q) - (p < q);
}

// Takes out of the block what cannot be the fastest, and no survivors; returns how many stay.
static int keep_promising(finder *f, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        sweep_layout *point = f->order[f->from + i];
        if (!f->options->exhaustive && point->bound_ms > f->best_ms) {
            f->layouts->left_out++;
        } else if (f->survives != NULL && !f->survives[work_of(f, point)]) {
            f->layouts->dropped++;
            point->dropped = true;
        } else {
            f->order[f->from + kept++] = point;
        }
    }
    return kept;
}

// Those in `order` from f->from up to `end`.
static sp_status evaluate_points(finder *f, int64_t end, sp_progress *progress, sp_error *err)
{
    sp_status status = SP_OK;
    while (status == SP_OK && f->from < end) {
        int count = (int)(end - f->from < BLOCK ? end - f->from : BLOCK);
        int kept = keep_promising(f, count);
        status = sp_parallel_for(f->options->threads, kept, evaluate_point, f, err);
        for (int i = 0; status == SP_OK && i < kept; i++) {
            const sweep_digest *d = &f->order[f->from + i]->digest;
            f->layouts->of_status[d->status]++;
            if (d->status == SWEEP_OK && d->fits != SP_FITS_TIGHT) {
                f->best_ms = fmin(f->best_ms, d->figure[SWEEP_ITERATION_MS]);
            }
        }
        f->from += count;
        sp_progress_update(progress, f->from);
    }
    return status;
}

// At most half of the memory is lacking.
static bool may_fit(const sweep_digest *d)
{
    bool evaluated = d->status == SWEEP_OK || d->status == SWEEP_OOM;
    double limit_gib = d->figure[SWEEP_PEAK_MEMORY_GIB] + d->figure[SWEEP_MEMORY_MARGIN_GIB];
    return evaluated && !(d->figure[SWEEP_MEMORY_MARGIN_GIB] < -0.5 * limit_gib);
}

// Of the cheap points the fastest of each combination of the first axes; the best of these survive,
// not too many of the same degrees.
static sp_status choose_survivors(finder *f, sp_error *err)
{
    double *time_ms = sp_calloc((size_t)f->works, sizeof *time_ms);
    f->survives = sp_calloc((size_t)f->works, sizeof *f->survives);
    if (time_ms == NULL || f->survives == NULL) {
        sp_free(time_ms);
        return sp_error_no_memory(err, "layouts");
    }
    for (int64_t w = 0; w < f->works; w++) {
        time_ms[w] = (double)HUGE_VAL;
    }
    for (int64_t i = 0; i < f->layouts->count; i++) {
        const sweep_layout *point = &f->layouts->point[i];
        if (!point->late && point->evaluated && may_fit(&point->digest)) {
            int64_t work = work_of(f, point);
            time_ms[work] = fmin(time_ms[work], point->digest.figure[SWEEP_ITERATION_MS]);
        }
    }
    for (int n = 0; n < f->options->survivors;) {
        int64_t fastest = 0;
        for (int64_t w = 1; w < f->works; w++) {
            fastest = time_ms[w] < time_ms[fastest] ? w : fastest;
        }
        if (!isfinite(time_ms[fastest])) {
            break;
        }
        time_ms[fastest] = (double)HUGE_VAL;
        // Works of the same degrees lie side by side.
        int64_t first = fastest / f->alike * f->alike;
        int alike = 0;
        for (int64_t w = first; w < first + f->alike; w++) {
            alike += f->survives[w];
        }
        f->survives[fastest] = alike < MOST_ALIKE;
        n += alike < MOST_ALIKE;
    }
    sp_free(time_ms);
    return SP_OK;
}

static sp_status evaluate_all(finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    sp_progress progress;
    int64_t rows = 0;
    while (rows < all->count && !f->order[rows]->late) {
        rows++;
    }
    sp_progress_begin(&progress, "trying layouts", all->count, f->options->quiet);
    sp_status status = evaluate_points(f, rows, &progress, err);
    if (status == SP_OK && rows > 0 && f->options->survivors > 0 && !f->options->exhaustive) {
        status = choose_survivors(f, err);
    }
    if (status == SP_OK) {
        status = evaluate_points(f, all->count, &progress, err);
    }
    sp_progress_end(&progress);
    return status;
}

static void rank_points(finder *f)
{
    sweep_layouts *all = f->layouts;
    for (int64_t i = 0; i < all->count; i++) {
        if (all->point[i].evaluated && all->point[i].digest.status == SWEEP_OK) {
            all->ranked[all->ranked_count++] = &all->point[i];
        }
    }
    qsort((void *)all->ranked, (size_t)all->ranked_count, sizeof *all->ranked, by_digest);
}

// Where nothing fits: why not, with what would make the first point fit.
static sp_status find_reason(finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    for (int64_t i = 0; all->ranked_count == 0 && i < all->count; i++) {
        const sweep_layout *point = &all->point[i];
        sweep_status found = point->digest.status;
        if (point->evaluated && (found == SWEEP_OOM || found == SWEEP_INFEASIBLE)) {
            sweep_digest digest;
            sweep_evaluator *evaluator = &f->evaluator[point->strategy];
            evaluator->options.no_causes = false;
            sp_status status = sweep_evaluate_point(evaluator, 0, point->combination, &digest, err);
            snprintf(all->reason, sizeof all->reason, "%s", digest.reason);
            return status;
        }
    }
    return SP_OK;
}

static sp_status find(finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    sp_status status = find_bounds(f, err);
    f->order = sp_calloc((size_t)all->count + 1, sizeof *f->order);
    all->ranked = sp_calloc((size_t)all->count + 1, sizeof *all->ranked);
    if (status == SP_OK && (f->order == NULL || all->ranked == NULL)) {
        status = sp_error_no_memory(err, "layouts");
    }
    if (status == SP_OK) {
        for (int64_t i = 0; i < all->count; i++) {
            f->order[i] = &all->point[i];
        }
        qsort((void *)f->order, (size_t)all->count, sizeof *f->order, by_promise);
        status = evaluate_all(f, err);
    }
    if (status == SP_OK) {
        rank_points(f);
        status = find_reason(f, err);
    }
    return status;
}

sp_status sweep_layouts_find(const json_t *base, const sp_scenario *scenario,
                             const sweep_layouts_options *options, sweep_layouts *layouts,
                             sp_error *err)
{
    finder f = {.options = options, .layouts = layouts, .best_ms = (double)HUGE_VAL};
    size_t count = (size_t)options->strategy_count;
    *layouts = (sweep_layouts){0};
    layouts->spec = sp_calloc(count, sizeof *layouts->spec);
    f.evaluator = sp_calloc(count, sizeof *f.evaluator);
    sp_status status = layouts->spec != NULL && f.evaluator != NULL
                           ? sp_evaluate_batches(scenario, &f.batches, err)
                           : sp_error_no_memory(err, "layouts");
    for (int s = 0; status == SP_OK && s < options->strategy_count; s++) {
        status =
            spec_of(base, scenario, options->strategies[s], options->wide, &layouts->spec[s], err);
        layouts->spec_count += status == SP_OK;
        if (status == SP_OK) {
            status = list_points(&f, s, err);
        }
        if (status == SP_OK) {
            status =
                sweep_evaluator_init(&f.evaluator[s], &layouts->spec[s], options->threads, err);
        }
    }
    if (status == SP_OK) {
        status = find(&f, err);
    }
    for (size_t s = 0; f.evaluator != NULL && s < count; s++) {
        sweep_evaluator_fini(&f.evaluator[s]);
    }
    sp_free(f.evaluator);
    sp_free(f.bound_ms);
    sp_free(f.wanted);
    sp_free(f.survives);
    sp_free((void *)f.order);
    sp_batches_fini(&f.batches);
    return status;
}

void sweep_layouts_fini(sweep_layouts *layouts)
{
    for (int s = 0; s < layouts->spec_count; s++) {
        sweep_spec_fini(&layouts->spec[s]);
    }
    sp_free(layouts->spec);
    sp_free(layouts->point);
    sp_free((void *)layouts->ranked);
    *layouts = (sweep_layouts){0};
}

json_t *sweep_layouts_settings(const sweep_layouts *layouts, const sweep_layout *point)
{
    int64_t digit[SWEEP_AXES];
    const sweep_spec *spec = &layouts->spec[point->strategy];
    sweep_spec_digits(spec, point->combination, digit);
    return sweep_spec_point(spec, digit);
}

json_t *sweep_layouts_document(const sweep_layouts *layouts, const sweep_layout *point)
{
    int64_t digit[SWEEP_AXES];
    const sweep_spec *spec = &layouts->spec[point->strategy];
    sweep_spec_digits(spec, point->combination, digit);
    json_t *shared = sweep_spec_scenario(spec, spec->document, digit);
    json_t *document = json_deep_copy(shared);
    json_decref(shared);
    return document;
}
