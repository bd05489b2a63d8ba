#include "experiments/sweep/layouts_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"
#include "solver/evaluate/evaluate.h"
#include "solver/strategy.h"

enum {
    DEGREES = 4,         // axes of a layout alone
    MOST_ALIKE = 2,      // survivors of the same degrees
    BLOCK = 64,          // points that are evaluated before the fastest is looked for again ...
    SEARCH_BLOCK = 8,    // ... or searched with all effort ...
    COUNT_BLOCK = 4,     // ... or counted
    HURRY_PERCENT = 10,  // of a search's effort, at first
    MOST_COUNTED = 1024, // points whose blocks are counted, about
};

// A search with all effort is taken to find no less than this share of what a hurried one found:
// where that fits well, and where memory is short. No search was seen to find less than 0.95 where
// memory was not short.
static const double least_share = 0.9;
static const double least_short_share = 0.7;

// Cheap, in rows and any schedule: its layouts tell which are fast for others.
static const char scout_strategy[] = "packed";

// ---- the bounds of points ----

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
    sweep_layout **block; // those in work
    double best_ms;       // of those that fit well, so far
    int scout;            // strategy that is tried to find survivors alone; -1: none
    int counted;          // points whose blocks were
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
    f->axes = SWEEP_I_WORK_AXES + f->options->wide;
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

static double time_of(const sweep_layout *point)
{
    return sweep_whole_ms(&point->digest);
}

static int by_time(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    return time_of(p) < time_of(q) ? -1 : time_of(q) < time_of(p) ? 1 : (p > q) - (p < q);
}

static sp_status evaluate_one(void *context, int worker, int job, sp_error *err)
{
    finder *f = context;
    sweep_layout *point = f->block[job];
    const sweep_evaluator *evaluator = &f->evaluator[point->strategy];
    sp_status status =
        sweep_evaluate_point(evaluator, worker, point->combination, &point->digest, err);
    point->evaluated = status == SP_OK;
    point->hurried = evaluator->options.effort_percent > 0;
    point->counted = evaluator->options.allocator_peak;
    return status;
}

// At a share of the effort (0: all) of strategies that search by effort; `counts`: with PyTorch's
// blocks.
static sp_status evaluate_block(finder *f, sweep_layout **block, int count, int effort_percent,
                                bool counts, sp_error *err)
{
    for (int s = 0; s < f->options->strategy_count; s++) {
        const sp_strategy *strategy = sp_strategy_find(f->options->strategies[s]);
        f->evaluator[s].options.effort_percent = strategy->by_effort ? effort_percent : 0;
        f->evaluator[s].options.allocator_peak = counts;
    }
    f->block = block;
    return sp_parallel_for(f->options->threads, count, evaluate_one, f, err);
}

// Bytes that fit may be lost to gaps between blocks.
static bool must_count(const finder *f, const sweep_layout *point)
{
    return f->options->counts_blocks && !point->counted && point->strategy != f->scout;
}

static bool is_fastest(const finder *f, const sweep_layout *point)
{
    return point->digest.status == SWEEP_OK && time_of(point) < f->best_ms;
}

static void take_fastest(finder *f, sweep_layout *const *block, int count)
{
    for (int i = 0; i < count; i++) {
        if (is_fastest(f, block[i]) && !must_count(f, block[i]) &&
            block[i]->digest.fits != SP_FITS_TIGHT) {
            f->best_ms = time_of(block[i]);
        }
    }
}

// Counts the blocks of what would be the fastest, until one of these fits.
static sp_status count_fastest(finder *f, sweep_layout *const *block, int count, sp_error *err)
{
    sweep_layout *open[BLOCK];
    int opened = 0;
    sp_status status = SP_OK;
    for (int i = 0; i < count; i++) {
        if (must_count(f, block[i]) && !block[i]->hurried && is_fastest(f, block[i])) {
            open[opened++] = block[i];
        }
    }
    qsort((void *)open, (size_t)opened, sizeof *open, by_time);
    for (int from = 0;
         status == SP_OK && from < opened && is_fastest(f, open[from]) && f->counted < MOST_COUNTED;
         from += COUNT_BLOCK) {
        int counted = opened - from < COUNT_BLOCK ? opened - from : COUNT_BLOCK;
        status = evaluate_block(f, open + from, counted, 0, true, err);
        take_fastest(f, open + from, counted);
        f->counted += counted;
    }
    return status;
}

// Takes out of the block what cannot be the fastest, and no survivors; returns how many stay.
static int keep_promising(finder *f, sweep_layout **block, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (!f->options->exhaustive && block[i]->bound_ms > f->best_ms) {
            f->layouts->left_out++;
        } else if (f->survives != NULL && !f->survives[work_of(f, block[i])]) {
            f->layouts->dropped++;
            block[i]->dropped = true;
        } else {
            block[kept++] = block[i];
        }
    }
    return kept;
}

// Those in `order` from `from` up to `end`.
static sp_status evaluate_points(finder *f, int64_t from, int64_t end, int effort_percent,
                                 sp_progress *progress, sp_error *err)
{
    sp_status status = SP_OK;
    while (status == SP_OK && from < end) {
        sweep_layout **block = f->order + from;
        int count = (int)(end - from < BLOCK ? end - from : BLOCK);
        int kept = keep_promising(f, block, count);
        status = evaluate_block(f, block, kept, effort_percent, false, err);
        take_fastest(f, block, kept);
        if (status == SP_OK) {
            status = count_fastest(f, block, kept, err);
        }
        from += count;
        if (isfinite(f->best_ms)) {
            sp_progress_note(progress, "best %.4g s", f->best_ms / 1e3);
        }
        sp_progress_update(progress, from);
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
    bool any = false;
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
            time_ms[work] = fmin(time_ms[work], time_of(point));
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
        any = true;
    }
    sp_free(time_ms);
    if (!any && f->scout >= 0) {
        sp_free(f->survives); // the scout runs nowhere, and tells nothing of the others
        f->survives = NULL;
    }
    return SP_OK;
}

// May a search with all effort make it the fastest?
static bool may_win(const finder *f, const sweep_layout *point)
{
    bool fits = point->digest.status == SWEEP_OK && point->digest.fits != SP_FITS_TIGHT;
    double share = fits ? least_share : least_short_share;
    return point->bound_ms <= f->best_ms && share * time_of(point) <= f->best_ms;
}

// Hurried searches again with all effort, the fastest first, as long as they may win.
static sp_status search_winners(finder *f, sp_error *err)
{
    int64_t count = 0;
    sp_status status = SP_OK;
    for (int64_t i = 0; i < f->layouts->count; i++) {
        sweep_layout *point = &f->layouts->point[i];
        if (point->evaluated && point->hurried && may_fit(&point->digest)) {
            f->order[count++] = point;
        }
    }
    qsort((void *)f->order, (size_t)count, sizeof *f->order, by_time);
    for (int64_t from = 0; status == SP_OK && from < count; from += SEARCH_BLOCK) {
        sweep_layout *block[SEARCH_BLOCK];
        int kept = 0;
        for (int64_t i = from; i < count && i < from + SEARCH_BLOCK; i++) {
            block[kept] = f->order[i];
            kept += may_win(f, f->order[i]);
        }
        status = evaluate_block(f, block, kept, 0, f->options->counts_blocks, err);
        take_fastest(f, block, kept);
    }
    return status;
}

// The scout's points are the last ones of the list, and nobody asked for them.
static void forget_scout(finder *f)
{
    sweep_layouts *all = f->layouts;
    while (f->scout >= 0 && all->count > 0 && all->point[all->count - 1].strategy == f->scout) {
        all->count--;
    }
}

static sp_status evaluate_all(finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    sp_progress progress;
    int64_t rows = 0;
    while (rows < all->count && !f->order[rows]->late) {
        rows++;
    }
    bool chooses = rows > 0 && f->options->survivors > 0 && !f->options->exhaustive;
    char label[64];
    bool alone = f->options->strategy_count == 1;
    snprintf(label, sizeof label, "trying layouts%s%s", alone ? " of " : "",
             alone ? f->options->strategies[0] : "");
    sp_progress_begin(&progress, label, all->count, f->options->quiet);
    sp_status status = evaluate_points(f, 0, rows, 0, &progress, err);
    if (status == SP_OK && chooses) {
        status = choose_survivors(f, err);
    }
    if (f->scout >= 0) {
        f->best_ms = (double)HUGE_VAL;
        all->left_out = 0;
    }
    if (status == SP_OK) {
        status = evaluate_points(f, rows, all->count, chooses ? HURRY_PERCENT : 0, &progress, err);
    }
    if (status == SP_OK && chooses) {
        status = search_winners(f, err);
    }
    sp_progress_end(&progress);
    return status;
}

// ---- their ranks ----

static int by_digest(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    return sweep_is_better(&p->digest, &q->digest)   ? -1
           : sweep_is_better(&q->digest, &p->digest) ? 1
                                                     : (p > q) - (p < q);
}

static void rank_points(sweep_layouts *all)
{
    memset(all->of_status, 0, sizeof all->of_status);
    all->ranked_count = 0;
    for (int64_t i = 0; i < all->count; i++) {
        sweep_layout *point = &all->point[i];
        all->of_status[point->digest.status] += point->evaluated;
        if (point->evaluated && point->digest.status == SWEEP_OK) {
            all->ranked[all->ranked_count++] = point;
        }
    }
    qsort((void *)all->ranked, (size_t)all->ranked_count, sizeof *all->ranked, by_digest);
}

// Those that are shown and not counted yet; room for BLOCK of them.
static int list_uncounted(const finder *f, sweep_layout **block)
{
    const sweep_layouts *all = f->layouts;
    double least_gib = (double)HUGE_VAL;
    int64_t front = 0;
    int count = 0;
    for (int64_t i = 0; i < all->ranked_count && count < BLOCK; i++) {
        sweep_layout *point = all->ranked[i];
        bool in_front = front < f->options->shown && sweep_layouts_extends(point, &least_gib);
        front += in_front;
        if ((i < f->options->shown || in_front) && must_count(f, point)) {
            block[count++] = point;
        }
    }
    return count;
}

// Ranks all, and again as long as blocks of those that are shown are to be counted.
static sp_status rank_all(finder *f, sp_error *err)
{
    sweep_layout *block[BLOCK];
    sp_status status = SP_OK;
    int count = 1;
    for (rank_points(f->layouts); status == SP_OK && count > 0 && f->counted < MOST_COUNTED;
         rank_points(f->layouts)) {
        int alike = 0;
        count = list_uncounted(f, block);
        // Of one kind at a time: hurried searches are repeated as they were.
        for (int i = 0; i < count; i++) {
            if (block[i]->hurried == block[0]->hurried) {
                block[alike++] = block[i];
            }
        }
        if (alike > 0) {
            status =
                evaluate_block(f, block, alike, block[0]->hurried ? HURRY_PERCENT : 0, true, err);
        }
        f->counted += alike;
    }
    return status;
}

// Does a lack less memory than b, or has it a plan or a scenario at least where b has none?
static bool is_nearer(const sweep_layout *a, const sweep_layout *b)
{
    const sweep_digest *of_a = &a->digest;
    const sweep_digest *of_b = &b->digest;
    return of_a->status != of_b->status
               ? of_a->status < of_b->status
               : of_a->figure[SWEEP_MEMORY_MARGIN_GIB] > of_b->figure[SWEEP_MEMORY_MARGIN_GIB];
}

// Where nothing fits: what is nearest, the first of equals, and what it lacks.
static sp_status find_reason(finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    const sweep_layout *nearest = NULL;
    for (int64_t i = 0; all->ranked_count == 0 && i < all->count; i++) {
        const sweep_layout *point = &all->point[i];
        bool better = nearest == NULL || is_nearer(point, nearest);
        nearest = point->evaluated && better ? point : nearest;
    }
    all->nearest = nearest;
    if (nearest == NULL) {
        return SP_OK;
    }
    sweep_digest digest;
    sweep_evaluator *evaluator = &f->evaluator[nearest->strategy];
    evaluator->options.no_causes = false;
    evaluator->options.effort_percent = nearest->hurried ? HURRY_PERCENT : 0;
    sp_status status = sweep_evaluate_point(evaluator, 0, nearest->combination, &digest, err);
    snprintf(all->reason, sizeof all->reason, "%s", digest.reason);
    return status;
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
    forget_scout(f);
    if (status == SP_OK) {
        status = rank_all(f, err);
    }
    return status == SP_OK ? find_reason(f, err) : status;
}

// Where all strategies search and survivors are wanted, none would choose them.
static bool needs_scout(const sweep_layouts_options *options)
{
    bool needs = options->survivors > 0 && !options->exhaustive;
    for (int s = 0; needs && s < options->strategy_count; s++) {
        needs = sp_strategy_find(options->strategies[s])->kind == SP_STRATEGY_SEARCH;
    }
    return needs;
}

static sp_status find_layouts(finder *f, const json_t *base, const sp_scenario *scenario,
                              sp_error *err)
{
    const sweep_layouts_options *options = f->options;
    sweep_layouts *layouts = f->layouts;
    size_t count = (size_t)options->strategy_count;
    layouts->spec = sp_calloc(count, sizeof *layouts->spec);
    f->evaluator = sp_calloc(count, sizeof *f->evaluator);
    sp_status status = layouts->spec != NULL && f->evaluator != NULL
                           ? sp_evaluate_batches(scenario, &f->batches, err)
                           : sp_error_no_memory(err, "layouts");
    for (int s = 0; status == SP_OK && s < options->strategy_count; s++) {
        status = sweep_layouts_list(base, scenario, f->batches.context, options, s, layouts, err);
        if (status == SP_OK) {
            status =
                sweep_evaluator_init(&f->evaluator[s], &layouts->spec[s], options->threads, err);
            f->evaluator[s].options.names_sample = false; // the reason of one point alone is told
            // Else of all points that are short of memory.
            f->evaluator[s].options.allocator_if_tight = !options->counts_blocks;
        }
    }
    if (status == SP_OK) {
        status = find(f, err);
    }
    for (size_t s = 0; f->evaluator != NULL && s < count; s++) {
        sweep_evaluator_fini(&f->evaluator[s]);
    }
    sp_free(f->evaluator);
    sp_free(f->bound_ms);
    sp_free(f->wanted);
    sp_free(f->survives);
    sp_free((void *)f->order);
    sp_batches_fini(&f->batches);
    return status;
}

sp_status sweep_layouts_find(const json_t *base, const sp_scenario *scenario,
                             const sweep_layouts_options *options, sweep_layouts *layouts,
                             sp_error *err)
{
    sweep_layouts_options with_scout = *options;
    finder f = {
        .options = &with_scout, .layouts = layouts, .best_ms = (double)HUGE_VAL, .scout = -1};
    *layouts = (sweep_layouts){0};
    const char **strategies =
        (const char **)sp_calloc((size_t)options->strategy_count + 1, sizeof *strategies);
    if (strategies == NULL) {
        return sp_error_no_memory(err, "layouts");
    }
    for (int s = 0; s < options->strategy_count; s++) {
        strategies[s] = options->strategies[s];
    }
    if (needs_scout(options)) {
        f.scout = with_scout.strategy_count++;
        strategies[f.scout] = scout_strategy;
    }
    with_scout.strategies = strategies;
    sp_status status = find_layouts(&f, base, scenario, err);
    sp_free((void *)strategies);
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

bool sweep_layouts_extends(const sweep_layout *point, double *least_gib)
{
    double gib = point->digest.figure[SWEEP_PEAK_MEMORY_GIB];
    bool extends = point->digest.fits != SP_FITS_TIGHT && gib < *least_gib;
    *least_gib = extends ? gib : *least_gib;
    return extends;
}
