#include "experiments/tune/layouts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/tune/layout_grid.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "solver/evaluate/evaluate.h"
#include "solver/strategy.h"

enum {
    BLOCK = 64,          // points that are evaluated before the fastest is looked for again
    LEAST_BLOCK = 4,     // or the one that needs the least memory, which comes early
    HURRY_PERCENT = 10,  // of a search's effort, at first
    MOST_COUNTED = 1024, // points whose blocks are counted, about
};

// A search under way.
typedef struct finder {
    const sweep_layouts_options *options;
    sweep_layouts *layouts;
    sweep_evaluator *evaluator; // [spec_count]
    sp_batches batches;
    int axes;         // of the first ones, which the bound depends on
    int zero_axis;    // the last of them; negative: none
    int64_t works;    // combinations of these
    int64_t alike;    // of these with the same degrees
    int64_t inner;    // combinations of the others, of the first strategy
    double *bound_ms; // [of the first axes]; negative: not known yet
    int64_t *wanted;  // of these, those with points
    int64_t wanted_count;
    int *survives;        // [of the first axes]: how many do up to this one; 0: not; NULL: all do
    sweep_layout **order; // [order_count], all but those that cannot run
    int64_t order_count;
    sweep_layout **winner; // [count], those that are searched with all effort
    sweep_layout **block;  // those in work
    // Of those that fit well, so far: of points that run, and of those that the stack lacks.
    double best_ms[SWEEP_LACKS];
    const sweep_layout *best; // of the former; NULL: none yet
    double *cheap_ms;    // [of the first axes], the fastest cheap point; INFINITY: none may fit
    bool *cheap_fits;    // one fits well
    bool *cheap_open;    // one was left out: whether it fits is not known
    int64_t *states;     // [of the first axes], bytes; 0: not known
    int64_t limit_bytes; // of memory
    int64_t tokens;      // of a batch, the mean
    int scout;           // strategy that is tried to find survivors alone; -1: none
    int counted;         // points whose blocks were
} finder;

// ---- bounds of points ----

// The combination of the first axes at a point.
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
    f->bound_ms[work] = 0.0;
    sp_status status =
        sp_scenario_from_json_cached(document, "layout", f->evaluator[0].files, &scenario, &own);
    json_decref(document);
    if (status == SP_OK) {
        if (!f->options->least_memory) {
            status = sp_evaluate_work_bound(&scenario, &f->batches, &bound_s, &own);
            f->bound_ms[work] = status == SP_OK ? bound_s * 1e3 : 0.0;
        }
        if (sp_evaluate_states(&scenario, &f->states[work], &own) != SP_OK) {
            f->states[work] = 0;
        }
        sp_scenario_fini(&scenario);
    }
    return sp_status_is_fatal(status) ? sp_error_set(err, status, "%s", own.message[0]) : SP_OK;
}

// Data-parallel ranks over the most that work where each sample is trained by one: the work is
// spread over so many fewer.
static double idle_factor(const finder *f, const sweep_layout *point)
{
    const sweep_spec *spec = &f->layouts->spec[point->strategy];
    int64_t digit[SWEEP_AXES];
    size_t most = 1;
    for (int b = 0; b < f->batches.count; b++) {
        most = f->batches.batch[b].count > most ? f->batches.batch[b].count : most;
    }
    sweep_spec_digits(spec, point->combination, digit);
    return fmax((double)sweep_layout_number(spec, digit, "parallel.dp", 1) / (double)most, 1.0);
}

static const double half_filled = 0.5;

// The bound and the bubble of 1F1B, (pp - 1) / (micro-batches * chunks) of it (arXiv 2104.04473,
// section 2.2), a third of that where weight gradients fill it (arXiv 2401.10241, table 1).
static double guess_of(const finder *f, const sweep_layout *point)
{
    const sweep_spec *spec = &f->layouts->spec[point->strategy];
    int64_t digit[SWEEP_AXES];
    sweep_spec_digits(spec, point->combination, digit);
    int64_t pp = sweep_layout_number(spec, digit, "parallel.pp", 1);
    int64_t rows = sweep_layout_number(spec, digit, "schedule.microbatch_samples", 1);
    int64_t tokens =
        sweep_layout_number(spec, digit, "strategy.chunk_tokens", rows * f->batches.context);
    int64_t ranks = sweep_layout_number(spec, digit, "parallel.dp", 1);
    double microbatches = fmax((double)f->tokens / (double)(tokens * ranks), 1.0);
    double bubble = (double)(pp - 1) / microbatches /
                    (double)sweep_layout_number(spec, digit, "parallel.chunks_per_rank", 1);
    const char *schedule = json_string_value(sweep_layout_value(spec, digit, "schedule.kind"));
    bool split = schedule != NULL && schedule[0] == 'z';
    // States that leave little memory come later: such points mostly do not fit.
    double filled = (double)f->states[work_of(f, point)] / (double)f->limit_bytes;
    return point->bound_ms * (1.0 + (split ? bubble / 3.0 : bubble)) *
           (1.0 + fmax(filled - half_filled, 0.0));
}

// Pure work of the point alone; 0: not known.
static double work_bound_of(const finder *f, const sweep_layout *point)
{
    // Documents that are cut see less of each other: less work than the batch has.
    const sp_strategy *strategy = sp_strategy_find(f->options->strategies[point->strategy]);
    double idle = strategy->kind == SP_STRATEGY_ROWS ? idle_factor(f, point) : 1.0;
    return strategy->joins_documents ? 0.0 : idle * f->bound_ms[work_of(f, point)];
}

// The place of its ZeRO stage among those that are tried.
static int64_t zero_digit(const finder *f, const sweep_layout *point)
{
    int64_t digit[SWEEP_AXES];
    sweep_spec_digits(&f->layouts->spec[point->strategy], point->combination, digit);
    return f->zero_axis >= 0 ? digit[f->zero_axis] : 0;
}

// Rows come first: they are cheap, and tell what is fast.
static int after_of(const finder *f, const sweep_layout *point)
{
    const sweep_spec *spec = &f->layouts->spec[point->strategy];
    sp_strategy_kind kind = sp_strategy_find(f->options->strategies[point->strategy])->kind;
    int64_t digit[SWEEP_AXES];
    int zero = (int)zero_digit(f, point);
    if (!f->options->wide) {
        return zero;
    }
    sweep_spec_digits(spec, point->combination, digit);
    int repeats = (int)spec->axes[LAYOUT_RECOMPUTE_AXIS].count;
    return kind == SP_STRATEGY_BUDGETS && !point->late
               ? 1 + zero * repeats + (int)digit[LAYOUT_RECOMPUTE_AXIS]
               : 0;
}

// States that are more than so many times the memory: what else a point needs is not asked. Points
// of the first strategy tell what more memory would save, if they lack half of it at most.
static const double most_states_of_first = 1.5;

static sp_status bound_points(finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    f->works = 1;
    f->alike = 1;
    f->zero_axis = sweep_layout_axis(&all->spec[0], "parallel.zero");
    f->axes = LAYOUT_WORK_AXES + (f->zero_axis >= 0) +
              (sweep_layout_axis(&all->spec[0], "parallel.ep") >= 0);
    f->inner = 1;
    for (int a = 0; a < all->spec[0].axis_count; a++) {
        *(a < f->axes ? &f->works : &f->inner) *= all->spec[0].axes[a].count;
        f->alike *= a >= LAYOUT_DEGREES && a < f->axes ? all->spec[0].axes[a].count : 1;
    }
    f->bound_ms = sp_calloc((size_t)f->works, sizeof *f->bound_ms);
    f->wanted = sp_calloc((size_t)f->works, sizeof *f->wanted);
    f->states = sp_calloc((size_t)f->works, sizeof *f->states);
    for (int64_t i = 0; i < all->count; i++) {
        int64_t work = work_of(f, &all->point[i]);
        if (all->point[i].lacks != SWEEP_LACKS_OTHER && f->bound_ms[work] == 0.0) {
            f->bound_ms[work] = -1.0;
            f->wanted[f->wanted_count++] = work;
        }
    }
    SP_TRY(sp_parallel_for(f->options->threads, (int)f->wanted_count, bound_one, f, err));
    for (int64_t i = 0; i < all->count; i++) {
        all->point[i].bound_ms = work_bound_of(f, &all->point[i]);
        double most = all->point[i].strategy == 0 ? most_states_of_first : 1.0;
        all->point[i].too_big =
            (double)f->states[work_of(f, &all->point[i])] > most * (double)f->limit_bytes;
        all->point[i].guess_ms = guess_of(f, &all->point[i]);
        all->point[i].after = after_of(f, &all->point[i]);
    }
    return SP_OK;
}

// ---- which points are evaluated, with how much effort, and of which blocks are counted ----

enum {
    MOST_ALIKE = 2,   // survivors of the same degrees
    MOST_BEYOND = 6,  // searches with all effort of what the stack lacks
    HURRY_BLOCK = 8,  // searches, mostly with little effort, before the fastest is looked for
    SEARCH_BLOCK = 4, // points that are searched with all effort before the fastest is looked for
    COUNT_BLOCK = 4,  // or counted
};

// A search with all effort is taken to find no less than this share of what a hurried one found:
// where that fits well, and where memory is short. No search was seen to find less than 0.95 where
// memory was not short.
static const double least_share = 0.95;
static const double least_short_share = 0.7;

// Points come in phases: cheap ones that run, cheap ones that the stack lacks, then late ones.
static int phase_of(const sweep_layout *point)
{
    return 2 * point->late + (point->lacks != SWEEP_RUNS);
}

// Then those that promise most; in the order of the points where these are equal.
static int by_promise(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    if (phase_of(p) != phase_of(q)) {
        return phase_of(p) - phase_of(q);
    }
    if (p->after != q->after) {
        return p->after - q->after;
    }
    return p->guess_ms != q->guess_ms ? (p->guess_ms > q->guess_ms ? 1 : -1) : (p > q) - (p < q);
}

// Without what it waits for the allocator, which other points of less memory may not have.
static double unstalled_ms(const sweep_layout *point)
{
    const sweep_trial *d = &point->trial;
    return sweep_whole_ms(d) * (1.0 - d->stall_ms / d->figure[SWEEP_ITERATION_MS]);
}

// Blocks that are not counted yet may fit, and then it does not wait for the allocator.
static double time_of(const sweep_layout *point)
{
    return point->counted ? sweep_whole_ms(&point->trial) : unstalled_ms(point);
}

// With the risk of running out of memory, by what is known of it.
static double expected_of(const sweep_layout *point)
{
    return time_of(point) / sp_fit_chance(point->trial.figure[SWEEP_FIT_PROBABILITY]);
}

static int by_time(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    return time_of(p) < time_of(q) ? -1 : time_of(q) < time_of(p) ? 1 : (p > q) - (p < q);
}

static int by_expected(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    double of_p = expected_of(p);
    double of_q = expected_of(q);
    return of_p != of_q ? (of_p > of_q ? 1 : -1) : (p > q) - (p < q);
}

static sp_status evaluate_one(void *context, int worker, int job, sp_error *err)
{
    finder *f = context;
    sweep_layout *point = f->block[job];
    const sweep_evaluator *evaluator = &f->evaluator[point->strategy];
    sweep_trial trial;
    SP_TRY(sweep_evaluate_point(evaluator, worker, point->combination, &trial, NULL, err));
    // One that is stopped stays what it was.
    point->trial = trial;
    point->evaluated = true;
    point->hurried = evaluator->options.effort_percent > 0;
    point->counted = evaluator->options.allocator_peak;
    return SP_OK;
}

// Evaluates those of a block, at a share of the effort (0: all) of strategies that search by
// effort; `counts`: with PyTorch's blocks.
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

// Bytes that fit may be lost to gaps between blocks that were not counted.
static bool must_count(const finder *f, const sweep_layout *point)
{
    return !point->counted && point->strategy != f->scout;
}

static void forget_best(finder *f)
{
    for (int lack = 0; lack < SWEEP_LACKS; lack++) {
        f->best_ms[lack] = (double)HUGE_VAL;
    }
    f->best = NULL;
}

// The time that a point must beat: of those that run, and of its own kind.
static double best_for(const finder *f, const sweep_layout *point)
{
    return fmin(f->best_ms[SWEEP_RUNS], f->best_ms[point->lacks]);
}

static bool is_fastest(const finder *f, const sweep_layout *point)
{
    return point->trial.status == SWEEP_OK && expected_of(point) < best_for(f, point);
}

// Forwards are a third of the computing: backwards have twice the products.
static const double forward_share = 1.0 / 3.0;

static bool searches(const finder *f, const sweep_layout *point)
{
    return sp_strategy_find(f->options->strategies[point->strategy])->by_effort;
}

static bool has_pipeline(const finder *f, const sweep_layout *point)
{
    const sweep_spec *spec = &f->layouts->spec[point->strategy];
    int64_t digit[SWEEP_AXES];
    sweep_spec_digits(spec, point->combination, digit);
    return sweep_layout_number(spec, digit, "parallel.pp", 1) > 1;
}

// Schedules run the same packs, unless these are searched: none is faster than the others without
// their bubble, but for what it hides of other exchanges, which is taken to be a tenth of the step
// at most. A search of packs is taken to gain no more than two fifths of the fastest cheap point
// with its degrees.
static const double schedule_share = 0.9;
static const double search_share = 0.6;
static const double plain_share = 0.98;
static const double work_share = 0.9;

// The point with these digits; NULL: it is none of the search.
static const sweep_layout *point_at(const finder *f, int strategy, const int64_t digit[SWEEP_AXES])
{
    const sweep_layouts *all = f->layouts;
    int64_t combination = sweep_spec_combination(&all->spec[strategy], digit);
    // Points stand by strategy, then by combination.
    int64_t low = 0;
    int64_t high = all->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const sweep_layout *p = &all->point[middle];
        bool before =
            p->strategy != strategy ? p->strategy < strategy : p->combination < combination;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    const sweep_layout *found = low < all->count ? &all->point[low] : NULL;
    bool same = found != NULL && found->strategy == strategy && found->combination == combination;
    return same ? found : NULL;
}

// What other schedules, all else the same, leave the point; 0: nothing is known.
static double schedule_least(const finder *f, const sweep_layout *point)
{
    const sp_strategy *strategy = sp_strategy_find(f->options->strategies[point->strategy]);
    const sweep_spec *spec = &f->layouts->spec[point->strategy];
    int64_t digit[SWEEP_AXES];
    int kind = sweep_layout_axis(spec, "schedule.kind");
    int chunks = sweep_layout_axis(spec, "parallel.chunks_per_rank");
    double least_ms = (double)HUGE_VAL;
    if (strategy->kind == SP_STRATEGY_SEARCH || kind < 0 || chunks < 0) {
        return 0.0;
    }
    sweep_spec_digits(spec, point->combination, digit);
    for (digit[kind] = 0; digit[kind] < spec->axes[kind].count; digit[kind]++) {
        for (digit[chunks] = 0; digit[chunks] < spec->axes[chunks].count; digit[chunks]++) {
            const sweep_layout *other = point_at(f, point->strategy, digit);
            if (other != NULL && other->evaluated && isfinite(unstalled_ms(other))) {
                double busy = 1.0 - other->trial.figure[SWEEP_BUBBLE_RATIO];
                least_ms = fmin(least_ms, schedule_share * busy * unstalled_ms(other));
            }
        }
    }
    return isfinite(least_ms) ? least_ms : 0.0;
}

// A forward that runs again adds its work, and ZeRO adds traffic: a point is taken not to be faster
// than a plainer one, all else the same, and slower by nine tenths of the work at least.
static double above_plain(const finder *f, const sweep_layout *point, const sweep_layout *plain)
{
    if (plain == NULL || !(plain->left_out || plain->evaluated)) {
        return 0.0;
    }
    double plain_ms = plain->left_out ? plain->bound_ms : unstalled_ms(plain);
    double more_ms = work_bound_of(f, point) - work_bound_of(f, plain);
    return isfinite(plain_ms) ? plain_share * plain_ms + work_share * more_ms : 0.0;
}

// The most of what plainer points say: without its recomputation, or less of its ZeRO.
static double plain_least(const finder *f, const sweep_layout *point)
{
    int64_t digit[SWEEP_AXES];
    double least_ms = 0.0;
    sweep_spec_digits(&f->layouts->spec[point->strategy], point->combination, digit);
    int64_t recompute = digit[LAYOUT_RECOMPUTE_AXIS];
    for (int64_t zero = zero_digit(f, point); f->options->wide && zero >= 0; zero--) {
        for (int kept = 0; kept < 2; kept++) {
            digit[LAYOUT_RECOMPUTE_AXIS] = kept == 0 ? 0 : recompute;
            if (f->zero_axis >= 0) {
                digit[f->zero_axis] = zero;
            }
            least_ms = fmax(least_ms, above_plain(f, point, point_at(f, point->strategy, digit)));
        }
    }
    return least_ms;
}

// ZeRO saves memory, and time only as far as its exchanges hide better, which is taken to be a
// tenth of the step at most where less of it fits well.
static const double sharded_share = 0.9;

static double sharded_least(const finder *f, const sweep_layout *point)
{
    int64_t digit[SWEEP_AXES];
    if (f->options->wide || point->after == 0) {
        return 0.0;
    }
    sweep_spec_digits(&f->layouts->spec[point->strategy], point->combination, digit);
    double least_ms = 0.0;
    while (digit[f->zero_axis]-- > 0) {
        const sweep_layout *less = point_at(f, point->strategy, digit);
        bool fits = less != NULL && less->evaluated && less->trial.status == SWEEP_OK &&
                    less->trial.fits != SP_FITS_TIGHT;
        least_ms = fits ? fmax(least_ms, sharded_share * time_of(less)) : least_ms;
    }
    return least_ms;
}

// No plan of the point is faster, as far as is known or taken to be.
static double least_of(const finder *f, const sweep_layout *point)
{
    double ms = fmax(point->bound_ms, sharded_least(f, point));
    if (f->options->survivors > 0 && !searches(f, point)) {
        ms = fmax(ms, fmax(schedule_least(f, point), plain_least(f, point)));
    }
    if (f->survives != NULL && searches(f, point)) {
        int64_t work = work_of(f, point);
        // A search that lacks memory runs forwards again; without a pipeline nothing else helps.
        bool lacks = !f->cheap_fits[work] && !f->cheap_open[work];
        bool again = lacks && !has_pipeline(f, point);
        ms = fmax(ms, again ? point->bound_ms * (1.0 + forward_share) : 0.0);
        ms = fmax(ms, isfinite(f->cheap_ms[work]) ? search_share * f->cheap_ms[work] : 0.0);
    }
    return ms;
}

static void take_fastest(finder *f, sweep_layout *const *block, int count)
{
    for (int i = 0; i < count; i++) {
        if (is_fastest(f, block[i]) && !must_count(f, block[i]) &&
            block[i]->trial.fits != SP_FITS_TIGHT) {
            f->best_ms[block[i]->lacks] = expected_of(block[i]);
            f->best = block[i]->lacks == SWEEP_RUNS ? block[i] : f->best;
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
    qsort((void *)open, (size_t)opened, sizeof *open, by_expected);
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

// What the stack lacks is tried at fewer combinations: it is told of, and no answer.
static bool survives(const finder *f, const sweep_layout *point)
{
    int nth = f->survives[work_of(f, point)];
    return nth > 0 && (point->lacks == SWEEP_RUNS || nth <= f->options->survivors / 2);
}

// May the point be the fastest? Else it is counted as what it is.
static bool is_promising(finder *f, sweep_layout *point)
{
    double least_ms = least_of(f, point);
    if (!f->options->exhaustive && least_ms > best_for(f, point)) {
        f->layouts->left_out++;
        point->left_out = true;
        point->bound_ms = least_ms;
    } else if (f->survives != NULL && !survives(f, point)) {
        f->layouts->dropped++;
        point->dropped = true;
    } else if (!f->options->exhaustive && point->too_big) {
        sweep_trial_begin(&point->trial, SWEEP_OOM);
    } else {
        return true;
    }
    return false;
}

// The best so far, with its layout.
static void note_best(const finder *f, sp_progress *progress)
{
    char text[96] = "";
    const sweep_layout *point = f->best;
    if (point == NULL) {
        return;
    }
    const sweep_trial *best = &point->trial;
    for (int d = 0; d < SWEEP_DEGREES; d++) {
        sp_append(text, sizeof text, " %s %d", sweep_degree_names[d], best->degree[d]);
    }
    sp_progress_note(progress, "best %.4g s:%s, %s, %s", f->best_ms[SWEEP_RUNS] / 1e3, text,
                     best->schedule, best->strategy);
}

// Evaluates those in `order` from `from` up to `end`, `at_once` before the fastest is looked for
// again, or HURRY_BLOCK of those that search, of which one more that is left out is worth the look.
static sp_status evaluate_points(finder *f, int64_t from, int64_t end, int at_once,
                                 int effort_percent, sp_progress *progress, sp_error *err)
{
    sp_status status = SP_OK;
    while (status == SP_OK && from < end) {
        sweep_layout *block[BLOCK];
        int count = 0;
        const bool few = searches(f, f->order[from]) && !f->options->exhaustive;
        for (; from < end && count < (few ? HURRY_BLOCK : at_once); from++) {
            block[count] = f->order[from];
            count += is_promising(f, f->order[from]);
        }
        status = evaluate_block(f, block, count, effort_percent, false, err);
        take_fastest(f, block, count);
        if (status == SP_OK) {
            status = count_fastest(f, block, count, err);
        }
        note_best(f, progress);
        sp_progress_update(progress, from);
    }
    return status;
}

// Its bytes fit, or lack at most half of the memory.
static bool may_fit(const sweep_trial *d)
{
    double limit_gib = d->figure[SWEEP_PEAK_MEMORY_GIB] + d->figure[SWEEP_MEMORY_MARGIN_GIB];
    return d->status == SWEEP_OK ||
           (d->status == SWEEP_OOM && !(d->figure[SWEEP_MEMORY_MARGIN_GIB] < -0.5 * limit_gib));
}

// Finds the fastest cheap point of each combination of the first axes, and whether one fits well.
static void note_cheap(finder *f)
{
    f->cheap_ms = sp_calloc((size_t)f->works, sizeof *f->cheap_ms);
    f->cheap_fits = sp_calloc((size_t)f->works, sizeof *f->cheap_fits);
    f->cheap_open = sp_calloc((size_t)f->works, sizeof *f->cheap_open);
    for (int64_t w = 0; w < f->works; w++) {
        f->cheap_ms[w] = (double)HUGE_VAL;
    }
    for (int64_t i = 0; i < f->layouts->count; i++) {
        const sweep_layout *point = &f->layouts->point[i];
        int64_t work = work_of(f, point);
        f->cheap_open[work] = f->cheap_open[work] || (!point->late && point->left_out);
        if (!point->late && point->evaluated && may_fit(&point->trial)) {
            f->cheap_ms[work] = fmin(f->cheap_ms[work], sweep_whole_ms(&point->trial));
            f->cheap_fits[work] = f->cheap_fits[work] || (point->trial.status == SWEEP_OK &&
                                                          point->trial.fits != SP_FITS_TIGHT);
        }
    }
}

// Is there a combination that shards less by ZeRO, all else the same, at which a cheap point fits
// well and no slower? More ZeRO saves memory alone.
static bool shards_in_vain(const finder *f, int64_t work)
{
    const sweep_spec *spec = &f->layouts->spec[0];
    int64_t zero_count = f->zero_axis >= 0 ? spec->axes[f->zero_axis].count : 1;
    bool vain = false;
    for (int64_t less = work - work % zero_count; less < work; less++) {
        vain = vain || (f->cheap_fits[less] && f->cheap_ms[less] <= f->cheap_ms[work]);
    }
    return vain;
}

// The fastest combinations of the first axes survive, not too many of the same degrees.
static void choose_survivors(finder *f)
{
    bool any = false;
    note_cheap(f);
    double *time_ms = sp_calloc((size_t)f->works, sizeof *time_ms);
    f->survives = sp_calloc((size_t)f->works, sizeof *f->survives);
    for (int64_t w = 0; w < f->works; w++) {
        time_ms[w] = shards_in_vain(f, w) ? (double)HUGE_VAL : f->cheap_ms[w];
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
            alike += f->survives[w] > 0;
        }
        n += alike < MOST_ALIKE;
        f->survives[fastest] = alike < MOST_ALIKE ? n : 0;
        any = true;
    }
    sp_free(time_ms);
    if (!any && f->scout >= 0) {
        sp_free(f->survives); // the scout runs nowhere, and tells nothing of the others
        f->survives = NULL;
    }
}

// May a search with all effort make it the fastest?
static bool may_win(const finder *f, const sweep_layout *point)
{
    bool fits = point->trial.status == SWEEP_OK && point->trial.fits != SP_FITS_TIGHT;
    double share = fits ? least_share : least_short_share;
    return point->bound_ms <= best_for(f, point) && share * time_of(point) <= best_for(f, point);
}

// Hurried searches again with all effort, the fastest first, as long as they may win.
static sp_status search_winners(finder *f, bool beyond, sp_error *err)
{
    int64_t count = 0;
    sp_status status = SP_OK;
    for (int64_t i = 0; i < f->layouts->count; i++) {
        sweep_layout *point = &f->layouts->point[i];
        if (point->evaluated && point->hurried && may_fit(&point->trial) &&
            (point->lacks != SWEEP_RUNS) == beyond) {
            f->winner[count++] = point;
        }
    }
    qsort((void *)f->winner, (size_t)count, sizeof *f->winner, by_time);
    count = beyond && count > MOST_BEYOND ? MOST_BEYOND : count;
    for (int64_t from = 0; status == SP_OK && from < count; from += SEARCH_BLOCK) {
        sweep_layout *block[SEARCH_BLOCK];
        int kept = 0;
        for (int64_t i = from; i < count && i < from + SEARCH_BLOCK; i++) {
            block[kept] = f->winner[i];
            kept += may_win(f, f->winner[i]);
        }
        status = evaluate_block(f, block, kept, 0, true, err);
        take_fastest(f, block, kept);
    }
    return status;
}

// A search is the more promising the faster the cheap points with its degrees are.
static void guess_search(const finder *f, sweep_layout *point)
{
    double cheap_ms = f->cheap_ms[work_of(f, point)];
    if (searches(f, point) && isfinite(cheap_ms)) {
        point->guess_ms = fmax(cheap_ms, least_of(f, point));
    }
}

static int64_t end_of_phase(const finder *f, int phase)
{
    int64_t end = 0;
    while (end < f->order_count && phase_of(f->order[end]) <= phase) {
        end++;
    }
    return end;
}

// Evaluates the points that may be the fastest: cheap ones, then what searches, the stack's first.
static sp_status evaluate_all(finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    sp_progress progress;
    for (int64_t i = 0; i < all->count; i++) {
        f->order[f->order_count] = &all->point[i];
        f->order_count += all->point[i].lacks != SWEEP_LACKS_OTHER;
    }
    qsort((void *)f->order, (size_t)f->order_count, sizeof *f->order, by_promise);
    int64_t cheap = end_of_phase(f, 1);
    bool chooses = cheap > 0 && f->options->survivors > 0 && !f->options->exhaustive;
    int effort_percent = chooses ? HURRY_PERCENT : 0;
    char label[64];
    bool alone = f->options->strategy_count == 1;
    snprintf(label, sizeof label, "trying layouts%s%s", alone ? " of " : "",
             alone ? f->options->strategies[0] : "");
    sp_progress_begin(&progress, label, f->order_count, f->options->quiet);
    sp_progress_tell_lines(&progress, f->options->quiet);
    sp_progress_update(&progress, 0);
    sp_status status = evaluate_points(f, 0, cheap, BLOCK, 0, &progress, err);
    if (status == SP_OK && chooses) {
        choose_survivors(f);
        for (int64_t i = cheap; i < f->order_count; i++) {
            guess_search(f, f->order[i]);
        }
        qsort((void *)(f->order + cheap), (size_t)(f->order_count - cheap), sizeof *f->order,
              by_promise);
    }
    if (f->scout >= 0) {
        forget_best(f);
        all->left_out = 0;
    }
    int64_t from = cheap;
    for (int phase = 2; status == SP_OK && phase <= 3; phase++) {
        int64_t end = end_of_phase(f, phase);
        status = evaluate_points(f, from, end, chooses ? HURRY_BLOCK : BLOCK, effort_percent,
                                 &progress, err);
        if (status == SP_OK && chooses) {
            status = search_winners(f, phase == 3, err);
        }
        from = end;
    }
    sp_progress_end(&progress);
    return status;
}

// ---- the order of the points that fit, and what is nearest where none does ----

static int by_trial(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    return sweep_is_better(&p->trial, &q->trial)   ? -1
           : sweep_is_better(&q->trial, &p->trial) ? 1
                                                   : (p > q) - (p < q);
}

// As its row shows it, without the risk of running out of memory.
static int by_shown_time(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    double ms = sweep_whole_ms(&p->trial) - sweep_whole_ms(&q->trial);
    double gib = p->trial.figure[SWEEP_PEAK_MEMORY_GIB] - q->trial.figure[SWEEP_PEAK_MEMORY_GIB];
    double first = ms != 0.0 ? ms : gib;
    return first != 0.0 ? (first > 0.0 ? 1 : -1) : (p > q) - (p < q);
}

sweep_layout **sweep_layouts_front(const sweep_layouts *layouts, int64_t *count)
{
    size_t bytes = (size_t)layouts->ranked_count * sizeof *layouts->ranked;
    sweep_layout **front = sp_calloc((size_t)layouts->ranked_count + 1, sizeof *front);
    double least_gib = (double)HUGE_VAL;
    *count = 0;
    memcpy((void *)front, (const void *)layouts->ranked, bytes);
    qsort((void *)front, (size_t)layouts->ranked_count, sizeof *front, by_shown_time);
    for (int64_t i = 0; i < layouts->ranked_count; i++) {
        sweep_layout *point = front[i];
        double gib = point->trial.figure[SWEEP_PEAK_MEMORY_GIB];
        if (point->trial.fits != SP_FITS_TIGHT && gib < least_gib) {
            front[(*count)++] = point;
            least_gib = gib;
        }
    }
    return front;
}

sweep_layout *sweep_layouts_beyond(const sweep_layouts *layouts, sweep_lack lack)
{
    for (int64_t i = 0; i < layouts->beyond_count; i++) {
        if (layouts->beyond[i]->lacks == lack && layouts->beyond[i]->trial.fits != SP_FITS_TIGHT) {
            return layouts->beyond[i];
        }
    }
    return NULL;
}

static void rank_points(sweep_layouts *all)
{
    memset(all->of_status, 0, sizeof all->of_status);
    all->ranked_count = 0;
    all->beyond_count = 0;
    all->cannot_run = 0;
    all->untried = all->count - all->left_out - all->dropped;
    for (int64_t i = 0; i < all->count; i++) {
        sweep_layout *point = &all->point[i];
        bool known = point->evaluated || point->trial.status == SWEEP_OOM; // or too big
        all->of_status[point->trial.status] += known;
        all->cannot_run += point->lacks == SWEEP_LACKS_OTHER;
        all->untried -= known || point->lacks == SWEEP_LACKS_OTHER;
        if (point->evaluated && point->trial.status == SWEEP_OK) {
            bool runs = point->lacks == SWEEP_RUNS;
            sweep_layout ***list = runs ? &all->ranked : &all->beyond;
            (*list)[runs ? all->ranked_count++ : all->beyond_count++] = point;
        }
    }
    qsort((void *)all->ranked, (size_t)all->ranked_count, sizeof *all->ranked, by_trial);
    qsort((void *)all->beyond, (size_t)all->beyond_count, sizeof *all->beyond, by_trial);
}

// Adds those of the first `shown` that are not counted yet; room for BLOCK of them.
static int add_uncounted(const finder *f, sweep_layout **points, int64_t shown,
                         sweep_layout **block, int count)
{
    for (int64_t i = 0; i < shown && count < BLOCK; i++) {
        bool is_new = must_count(f, points[i]);
        for (int b = 0; b < count; b++) {
            is_new = is_new && block[b] != points[i];
        }
        block[count] = points[i];
        count += is_new;
    }
    return count;
}

// Those that are shown and not counted yet.
static int list_uncounted(const finder *f, sweep_layout **block)
{
    const sweep_layouts *all = f->layouts;
    int64_t shown = f->options->shown > 0 ? f->options->shown : 1;
    int64_t front_count = 0;
    sweep_layout **front = sweep_layouts_front(all, &front_count);
    int64_t in_front = f->options->shown < front_count ? f->options->shown : front_count;
    shown = shown < all->ranked_count ? shown : all->ranked_count;
    int count = add_uncounted(f, all->ranked, shown, block, 0);
    count = add_uncounted(f, front, in_front, block, count);
    for (int lack = SWEEP_LACKS_SCHEDULE; lack <= SWEEP_LACKS_ARGUMENT; lack++) {
        sweep_layout *best = sweep_layouts_beyond(all, (sweep_lack)lack);
        count = add_uncounted(f, &best, best != NULL, block, count);
    }
    sp_free((void *)front);
    return count;
}

// Ranks all, and again as long as blocks of those that are shown are to be counted.
static sp_status rank_all(finder *f, sp_error *err)
{
    sweep_layout *block[BLOCK];
    int count = 1;
    for (rank_points(f->layouts); count > 0 && f->counted < MOST_COUNTED; rank_points(f->layouts)) {
        int alike = 0;
        count = list_uncounted(f, block);
        // One kind at a time: hurried searches are repeated as they were.
        for (int i = 0; i < count; i++) {
            if (block[i]->hurried == block[0]->hurried) {
                block[alike++] = block[i];
            }
        }
        if (alike > 0) {
            SP_TRY(
                evaluate_block(f, block, alike, block[0]->hurried ? HURRY_PERCENT : 0, true, err));
        }
        f->counted += alike;
    }
    return SP_OK;
}

// Does a lack less memory than b, or has it a plan or a scenario at least where b has none?
static bool is_nearer(const sweep_layout *a, const sweep_layout *b)
{
    const sweep_trial *of_a = &a->trial;
    const sweep_trial *of_b = &b->trial;
    return of_a->status != of_b->status
               ? of_a->status < of_b->status
               : of_a->figure[SWEEP_MEMORY_MARGIN_GIB] > of_b->figure[SWEEP_MEMORY_MARGIN_GIB];
}

// Those that were too big without an evaluation, the least states first.
static int by_guess(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    return p->guess_ms != q->guess_ms ? (p->guess_ms > q->guess_ms ? 1 : -1) : (p > q) - (p < q);
}

// GiB that a point lacks; negative: it leaves some, infinite: not known.
static double lacking_gib(const sweep_layout *point)
{
    bool known =
        point != NULL && (point->trial.status == SWEEP_OK || point->trial.status == SWEEP_OOM);
    double margin_gib = known ? point->trial.figure[SWEEP_MEMORY_MARGIN_GIB] : (double)NAN;
    return isfinite(margin_gib) ? -margin_gib : (double)HUGE_VAL;
}

// Evaluates what is too big as long as its states alone may lack less than `nearest` does.
static sp_status evaluate_big(finder *f, const sweep_layout **nearest, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    const int most = f->options->least_memory ? LEAST_BLOCK : BLOCK;
    sp_status status = SP_OK;
    int64_t count = 0;
    for (int64_t i = 0; i < all->count; i++) {
        sweep_layout *point = &all->point[i];
        if (!point->evaluated && point->trial.status == SWEEP_OOM) {
            double lacks_bytes = (double)(f->states[work_of(f, point)] - f->limit_bytes);
            point->guess_ms = lacks_bytes / (double)SP_GIB; // of no use otherwise any more
            f->order[count++] = point;
        }
    }
    qsort((void *)f->order, (size_t)count, sizeof *f->order, by_guess);
    for (int64_t from = 0; status == SP_OK && from < count; from += most) {
        int size = count - from < most ? (int)(count - from) : most;
        bool enough =
            f->options->until_fits && *nearest != NULL && (*nearest)->trial.status == SWEEP_OK;
        bool in_vain = f->options->until_fits && f->order[from]->guess_ms > 0.0;
        if (enough || in_vain || f->order[from]->guess_ms > lacking_gib(*nearest)) {
            break;
        }
        status = evaluate_block(f, f->order + from, size, HURRY_PERCENT, false, err);
        for (int i = 0; status == SP_OK && i < size; i++) {
            const sweep_layout *point = f->order[from + i];
            bool better = *nearest == NULL || is_nearer(point, *nearest);
            *nearest = point->lacks == SWEEP_RUNS && better ? point : *nearest;
        }
    }
    return status;
}

// A stop is no error: points that were evaluated before it are an answer.
static sp_status unless_stopped(sweep_layouts *all, sp_status status, sp_error *err)
{
    if (status != SP_ERR_STOPPED) {
        return status;
    }
    all->stopped = true;
    sp_error_clear(err);
    return SP_OK;
}

// Finds the point that needs the least memory.
static sp_status find_least(finder *f, sp_error *err)
{
    for (int64_t i = 0; i < f->layouts->count; i++) {
        if (f->layouts->point[i].lacks == SWEEP_RUNS) {
            sweep_trial_begin(&f->layouts->point[i].trial, SWEEP_OOM);
        }
    }
    return unless_stopped(f->layouts, evaluate_big(f, &f->layouts->nearest, err), err);
}

// Finds, where nothing fits, what is nearest, the first of equals, and what it lacks.
static sp_status find_reason(finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    const sweep_layout *nearest = NULL;
    if (all->ranked_count > 0) {
        return SP_OK;
    }
    for (int64_t i = 0; i < all->count; i++) {
        const sweep_layout *point = &all->point[i];
        bool better = nearest == NULL || is_nearer(point, nearest);
        nearest = point->evaluated && point->lacks == SWEEP_RUNS && better ? point : nearest;
    }
    sp_status status = SP_OK;
    if (!all->stopped) {
        status = unless_stopped(all, evaluate_big(f, &nearest, err), err);
    }
    rank_points(all);
    all->nearest = nearest;
    if (nearest == NULL || status != SP_OK || all->stopped) {
        return status;
    }
    sweep_trial trial;
    sweep_evaluator *evaluator = &f->evaluator[nearest->strategy];
    evaluator->options.no_causes = false;
    evaluator->options.effort_percent = nearest->hurried ? HURRY_PERCENT : 0;
    status = sweep_evaluate_point(evaluator, 0, nearest->combination, &trial, NULL, err);
    if (status != SP_OK) {
        return unless_stopped(all, status, err);
    }
    snprintf(all->reason, sizeof all->reason, "%s", trial.reason);
    return status;
}

// ---- the search ----

// Cheap, in rows and any schedule: its layouts tell which are fast for others.
static const char scout_strategy[] = "packed";

// The scout's points are the last ones of the list, and nobody asked for them.
static void forget_scout(finder *f)
{
    sweep_layouts *all = f->layouts;
    while (f->scout >= 0 && all->count > 0 && all->point[all->count - 1].strategy == f->scout) {
        all->count--;
    }
}

static sp_status find(finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    sp_status status = unless_stopped(all, bound_points(f, err), err);
    f->order = sp_calloc((size_t)all->count + 1, sizeof *f->order);
    f->winner = sp_calloc((size_t)all->count + 1, sizeof *f->winner);
    all->beyond = sp_calloc((size_t)all->count + 1, sizeof *all->beyond);
    all->ranked = sp_calloc((size_t)all->count + 1, sizeof *all->ranked);
    if (status == SP_OK && f->options->least_memory) {
        return all->stopped ? SP_OK : find_least(f, err);
    }
    if (status == SP_OK && !all->stopped) {
        status = unless_stopped(all, evaluate_all(f, err), err);
    }
    forget_scout(f);
    if (status == SP_OK) {
        status = unless_stopped(all, rank_all(f, err), err);
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

// What the stack lacks for each point from `first` on.
static void note_lacks(const finder *f, const sp_scenario *scenario, int64_t first)
{
    for (int64_t i = first; i < f->layouts->count; i++) {
        sweep_layout *point = &f->layouts->point[i];
        const sweep_spec *spec = &f->layouts->spec[point->strategy];
        int64_t digit[SWEEP_AXES];
        sweep_spec_digits(spec, point->combination, digit);
        point->lacks = sweep_layout_lack(scenario, f->options, spec, point->strategy, digit);
    }
}

static sp_status find_layouts(finder *f, const json_t *base, const sp_scenario *scenario,
                              sp_error *err)
{
    const sweep_layouts_options *options = f->options;
    sweep_layouts *layouts = f->layouts;
    size_t count = (size_t)options->strategy_count;
    layouts->spec = sp_calloc(count, sizeof *layouts->spec);
    f->evaluator = sp_calloc(count, sizeof *f->evaluator);
    sp_status status = sp_evaluate_batches(scenario, &f->batches, err);
    for (int b = 0; status == SP_OK && b < f->batches.count; b++) {
        f->tokens += f->batches.batch[b].total_tokens / f->batches.count;
    }
    for (int s = 0; status == SP_OK && s < options->strategy_count; s++) {
        int64_t first = layouts->count;
        status = sweep_layouts_list(base, scenario, f->batches.context, options, s, layouts, err);
        if (status == SP_OK) {
            note_lacks(f, scenario, first);
            sweep_evaluator_init(&f->evaluator[s], &layouts->spec[s], options->threads);
            f->evaluator[s].options.names_sample = false; // the reason of one point alone is told
            // Else of all points that are short of memory.
            f->evaluator[s].options.allocator_if_near = false;
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
    sp_free(f->states);
    sp_free(f->cheap_ms);
    sp_free(f->cheap_fits);
    sp_free(f->cheap_open);
    sp_free((void *)f->winner);
    sp_free((void *)f->order);
    sp_batches_fini(&f->batches);
    return status;
}

sp_status sweep_layouts_find(const json_t *base, const sp_scenario *scenario,
                             const sweep_layouts_options *options, sweep_layouts *layouts,
                             sp_error *err)
{
    sweep_layouts_options with_scout = *options;
    finder f = {.options = &with_scout,
                .layouts = layouts,
                .scout = -1,
                .limit_bytes = scenario->memory_limit_bytes};
    forget_best(&f);
    *layouts = (sweep_layouts){0};
    const char **strategies =
        (const char **)sp_calloc((size_t)options->strategy_count + 1, sizeof *strategies);
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
    sp_free((void *)layouts->beyond);
    *layouts = (sweep_layouts){0};
}

// ---- around the fastest ----

enum { MOST_STARTS = 6 };

static bool same_work(const sweep_layouts *layouts, const sweep_layout *a, const sweep_layout *b)
{
    int64_t p[SWEEP_AXES];
    int64_t q[SWEEP_AXES];
    sweep_spec_digits(&layouts->spec[a->strategy], a->combination, p);
    sweep_spec_digits(&layouts->spec[b->strategy], b->combination, q);
    return memcmp(p, q, LAYOUT_WORK_AXES * sizeof p[0]) == 0;
}

// The fastest points, none of the degrees and recomputation of another.
static int choose_starts(const sweep_layouts *layouts, const sweep_layout *start[MOST_STARTS])
{
    int count = 0;
    for (int64_t i = 0; i < layouts->ranked_count && count < MOST_STARTS; i++) {
        bool is_new = true;
        for (int s = 0; s < count; s++) {
            is_new = is_new && !same_work(layouts, layouts->ranked[i], start[s]);
        }
        if (is_new) {
            start[count++] = layouts->ranked[i];
        }
    }
    return count;
}

// Layouts around a point; none where there is nothing to try.
static sp_status look_around(const sweep_layouts_options *options, const char *source,
                             const sweep_layouts *layouts, const sweep_layout *start,
                             sweep_layouts *found, sp_error *err)
{
    sweep_layouts_options around = *options;
    sp_scenario scenario;
    json_t *base = sweep_layouts_document(layouts, start);
    *found = (sweep_layouts){0};
    around.around = true;
    sp_status status = sp_scenario_from_json(base, source, NULL, 0, &scenario, err);
    if (status == SP_OK) {
        status = sweep_layouts_find(base, &scenario, &around, found, err);
        sp_scenario_fini(&scenario);
    }
    json_decref(base);
    return status;
}

// Keeps the layouts with the faster best one in *best.
static void keep_better(sweep_layouts *best, sweep_layouts *found)
{
    bool better = found->ranked_count > 0 &&
                  (best->ranked_count == 0 ||
                   sweep_is_better(&found->ranked[0]->trial, &best->ranked[0]->trial));
    bool stopped = best->stopped || found->stopped;
    if (better) {
        sweep_layouts swapped = *best;
        *best = *found;
        *found = swapped;
    }
    best->stopped = stopped;
    sweep_layouts_fini(found);
}

sp_status sweep_layouts_refine(const sweep_layouts_options *options, const char *source,
                               sweep_layouts *layouts, sp_error *err)
{
    if (sp_strategy_find(options->strategies[0])->by_effort) {
        return SP_OK; // searches by itself what is tried here
    }
    const sweep_layout *start[MOST_STARTS];
    int count = choose_starts(layouts, start);
    sweep_layouts best = {0};
    sweep_layouts found;
    sp_status status = SP_OK;
    for (int s = 0; status == SP_OK && s < count && !best.stopped; s++) {
        status = look_around(options, source, layouts, start[s], &found, err);
        keep_better(&best, &found);
    }
    if (status == SP_OK && best.ranked_count > 0 && !best.stopped) {
        status = look_around(options, source, &best, best.ranked[0], &found, err);
        keep_better(&best, &found);
    }
    keep_better(layouts, &best);
    return status;
}
