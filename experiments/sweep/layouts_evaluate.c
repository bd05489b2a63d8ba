// Which points are evaluated, with how much effort, and of which PyTorch's blocks are counted.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/sweep/layouts_private.h"
#include "sim/base/alloc.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"
#include "solver/strategy.h"

enum {
    MOST_ALIKE = 2,   // survivors of the same degrees
    SEARCH_BLOCK = 8, // points that are searched with all effort before the fastest is looked for
    COUNT_BLOCK = 4,  // or counted
};

// A search with all effort is taken to find no less than this share of what a hurried one found:
// where that fits well, and where memory is short. No search was seen to find less than 0.95 where
// memory was not short.
static const double least_share = 0.9;
static const double least_short_share = 0.7;

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

// Blocks that are not counted yet may fit, and then it does not wait for the allocator.
static double time_of(const sweep_layout *point)
{
    const sweep_digest *d = &point->digest;
    double unknown_ms = point->counted ? 0.0 : d->stall_ms;
    return sweep_whole_ms(d) * (1.0 - unknown_ms / d->figure[SWEEP_ITERATION_MS]);
}

static int by_time(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    return time_of(p) < time_of(q) ? -1 : time_of(q) < time_of(p) ? 1 : (p > q) - (p < q);
}

static sp_status evaluate_one(void *context, int worker, int job, sp_error *err)
{
    sweep_layouts_finder *f = context;
    sweep_layout *point = f->block[job];
    const sweep_evaluator *evaluator = &f->evaluator[point->strategy];
    sweep_digest digest;
    sp_status status = sweep_evaluate_point(evaluator, worker, point->combination, &digest, err);
    // One that is stopped stays what it was.
    if (status == SP_OK) {
        point->digest = digest;
        point->evaluated = true;
        point->hurried = evaluator->options.effort_percent > 0;
        point->counted = evaluator->options.allocator_peak;
    }
    return status;
}

sp_status sweep_layouts_evaluate_block(sweep_layouts_finder *f, sweep_layout **block, int count,
                                       int effort_percent, bool counts, sp_error *err)
{
    for (int s = 0; s < f->options->strategy_count; s++) {
        const sp_strategy *strategy = sp_strategy_find(f->options->strategies[s]);
        f->evaluator[s].options.effort_percent = strategy->by_effort ? effort_percent : 0;
        f->evaluator[s].options.allocator_peak = counts;
    }
    f->block = block;
    return sp_parallel_for(f->options->threads, count, evaluate_one, f, err);
}

bool sweep_layouts_must_count(const sweep_layouts_finder *f, const sweep_layout *point)
{
    return !point->counted && point->strategy != f->scout;
}

static bool is_fastest(const sweep_layouts_finder *f, const sweep_layout *point)
{
    return point->digest.status == SWEEP_OK && time_of(point) < f->best_ms;
}

static void take_fastest(sweep_layouts_finder *f, sweep_layout *const *block, int count)
{
    for (int i = 0; i < count; i++) {
        if (is_fastest(f, block[i]) && !sweep_layouts_must_count(f, block[i]) &&
            block[i]->digest.fits != SP_FITS_TIGHT) {
            f->best_ms = time_of(block[i]);
        }
    }
}

// Counts the blocks of what would be the fastest, until one of these fits.
static sp_status count_fastest(sweep_layouts_finder *f, sweep_layout *const *block, int count,
                               sp_error *err)
{
    sweep_layout *open[SWEEP_I_BLOCK];
    int opened = 0;
    sp_status status = SP_OK;
    for (int i = 0; i < count; i++) {
        if (sweep_layouts_must_count(f, block[i]) && !block[i]->hurried &&
            is_fastest(f, block[i])) {
            open[opened++] = block[i];
        }
    }
    qsort((void *)open, (size_t)opened, sizeof *open, by_time);
    for (int from = 0; status == SP_OK && from < opened && is_fastest(f, open[from]) &&
                       f->counted < SWEEP_I_MOST_COUNTED;
         from += COUNT_BLOCK) {
        int counted = opened - from < COUNT_BLOCK ? opened - from : COUNT_BLOCK;
        status = sweep_layouts_evaluate_block(f, open + from, counted, 0, true, err);
        take_fastest(f, open + from, counted);
        f->counted += counted;
    }
    return status;
}

// Takes out of the block what cannot be the fastest, and no survivors; returns how many stay.
static int keep_promising(sweep_layouts_finder *f, sweep_layout **block, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (!f->options->exhaustive && block[i]->bound_ms > f->best_ms) {
            f->layouts->left_out++;
        } else if (f->survives != NULL && !f->survives[sweep_layouts_work_of(f, block[i])]) {
            f->layouts->dropped++;
            block[i]->dropped = true;
        } else {
            block[kept++] = block[i];
        }
    }
    return kept;
}

// Those in `order` from `from` up to `end`.
static sp_status evaluate_points(sweep_layouts_finder *f, int64_t from, int64_t end,
                                 int effort_percent, sp_progress *progress, sp_error *err)
{
    sp_status status = SP_OK;
    while (status == SP_OK && from < end) {
        sweep_layout **block = f->order + from;
        int count = (int)(end - from < SWEEP_I_BLOCK ? end - from : SWEEP_I_BLOCK);
        int kept = keep_promising(f, block, count);
        status = sweep_layouts_evaluate_block(f, block, kept, effort_percent, false, err);
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

// Its bytes fit, or lack at most half of the memory.
static bool may_fit(const sweep_digest *d)
{
    double limit_gib = d->figure[SWEEP_PEAK_MEMORY_GIB] + d->figure[SWEEP_MEMORY_MARGIN_GIB];
    return d->status == SWEEP_OK ||
           (d->status == SWEEP_OOM && !(d->figure[SWEEP_MEMORY_MARGIN_GIB] < -0.5 * limit_gib));
}

// Of the cheap points the fastest of each combination of the first axes; the best of these survive,
// not too many of the same degrees.
static sp_status choose_survivors(sweep_layouts_finder *f, sp_error *err)
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
            int64_t work = sweep_layouts_work_of(f, point);
            time_ms[work] = fmin(time_ms[work], sweep_whole_ms(&point->digest));
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
static bool may_win(const sweep_layouts_finder *f, const sweep_layout *point)
{
    bool fits = point->digest.status == SWEEP_OK && point->digest.fits != SP_FITS_TIGHT;
    double share = fits ? least_share : least_short_share;
    return point->bound_ms <= f->best_ms && share * time_of(point) <= f->best_ms;
}

// Hurried searches again with all effort, the fastest first, as long as they may win.
static sp_status search_winners(sweep_layouts_finder *f, sp_error *err)
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
        status = sweep_layouts_evaluate_block(f, block, kept, 0, true, err);
        take_fastest(f, block, kept);
    }
    return status;
}

sp_status sweep_layouts_evaluate(sweep_layouts_finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    sp_progress progress;
    int64_t rows = 0;
    for (int64_t i = 0; i < all->count; i++) {
        f->order[i] = &all->point[i];
    }
    qsort((void *)f->order, (size_t)all->count, sizeof *f->order, by_promise);
    while (rows < all->count && !f->order[rows]->late) {
        rows++;
    }
    bool chooses = rows > 0 && f->options->survivors > 0 && !f->options->exhaustive;
    char label[64];
    bool alone = f->options->strategy_count == 1;
    snprintf(label, sizeof label, "trying layouts%s%s", alone ? " of " : "",
             alone ? f->options->strategies[0] : "");
    sp_progress_begin(&progress, label, all->count, f->options->quiet);
    sp_progress_update(&progress, 0);
    sp_status status = evaluate_points(f, 0, rows, 0, &progress, err);
    if (status == SP_OK && chooses) {
        status = choose_survivors(f, err);
    }
    if (f->scout >= 0) {
        f->best_ms = (double)HUGE_VAL;
        all->left_out = 0;
    }
    if (status == SP_OK) {
        status = evaluate_points(f, rows, all->count, chooses ? SWEEP_I_HURRY_PERCENT : 0,
                                 &progress, err);
    }
    if (status == SP_OK && chooses) {
        status = search_winners(f, err);
    }
    sp_progress_end(&progress);
    return status;
}
