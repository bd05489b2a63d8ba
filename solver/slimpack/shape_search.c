#include "solver/slimpack/shape_search.h"

#include <limits.h>
#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "sim/base/progress.h"
#include "solver/time_limit.h"

enum {
    MOST_PACKS = 4096,
    LEAST_PACK = 512,
    LEAST_SLICE = 128,
    MOST_SLICE = 2048,
    MOST_DOUBLINGS = 6
};

enum {
    EXPLORED = 30, // shapes from each start
    WHOLE_STARTS = 3,
    WHOLE_SHARE = 4, // of the effort, as much again for them
    STEPS_AWAY = 3,
    VAIN_WAYS = 20,
    VAIN = 4,              // steps of each coordinate that may be in vain
    SAMPLES_PER_ACTION = 4 // that are placed while one action is timed
};

// Work (solver/time_limit.h) of the price of a pack, and of a sample or a slice.
enum { PRICED = 16, PLACED = 4 };

// A start with whole samples that takes longer than so many times the best shape is left.
#define NEAR 1.25

static bool is_over(const sp_i_shape_search *search)
{
    return search->effort <= 0 || (search->deadline_s > 0.0 && sp_clock_s() > search->deadline_s);
}

static bool is_enough(const sp_i_shape_search *search, const sp_i_best_shape *best)
{
    return best->out.lacking_bytes == 0 && best->out.makespan_ns <= search->enough_ns;
}

// Takes its effort from what is left. With `beaten` no more is asked than whether it is better.
static sp_status try_shape(sp_i_shape_search *search, const sp_i_rank_samples *samples,
                           const sp_i_shape *shape, const sp_packflow_outcome *beaten,
                           sp_i_best_shape *tried, sp_error *err)
{
    const sp_layout *layout = &search->scorer->scenario->layout;
    sp_packing packing;
    sp_i_needs needs = {0};
    *tried = (sp_i_best_shape){.shape = *shape};
    sp_packing_init(&packing, search->batch, search->scorer->scenario->layout.dp);
    sp_i_micropacks_make(search->work, search->batch, samples, shape, &packing, &needs);
    sp_status status = sp_i_rank_score(search->scorer, &packing, needs.pack, search->split, beaten,
                                       &tried->out, err);
    size_t actions = packing.forward.count + (search->split ? 2 : 1) * packing.backward.count;
    search->effort -= (int64_t)actions * sp_layout_vstages(layout) +
                      (int64_t)(samples->count / SAMPLES_PER_ACTION);
    search->spent += sp_i_timed_work(layout, (int64_t)actions) + PRICED * (int64_t)actions +
                     PLACED * (int64_t)(samples->count + packing.forward.slice_count);
    sp_free(needs.pack);
    sp_packing_fini(&packing);
    return status;
}

// Uniform packs of a pipeline lose about M*o + (p-1)*W/M, least at M = sqrt((p-1)*W/o); packs of
// few tokens cost more than that says.
static double best_count(const sp_i_shape_search *s, const sp_i_rank_samples *samples,
                         double work_s)
{
    double tokens = 0.0;
    for (size_t i = 0; i < samples->count; i++) {
        tokens += (double)s->batch->tokens[samples->sample[i]];
    }
    double fixed_s = s->work->forward.pack_s + s->work->backward.pack_s;
    double stages = s->scorer->scenario->layout.pp - 1;
    double most = fmin(MOST_PACKS, 1.0 + tokens / samples->dp_count / LEAST_PACK);
    if (stages < 1.0) {
        // As few as memory allows.
        double room = (double)sp_i_rank_scorer_most_tokens(s->scorer, s->split);
        return fmin(most, 1.0 + tokens / samples->dp_count / room);
    }
    return fmin(most, sqrt(stages * work_s / fmax(fixed_s, 1e-9 * work_s)));
}

// How fast packs may grow in the fill, and shrink in the drain, without idle time on the last stage
// (bounds.h): by the share of backward work per stage, and its inverse. Somewhat faster is best.
static void set_rates(const sp_i_shape_search *s, const sp_i_rank_samples *samples,
                      sp_i_taper *taper)
{
    double forward_s = 0.0;
    double backward_s = 0.0;
    for (size_t i = 0; i < samples->count; i++) {
        double n = (double)s->batch->tokens[samples->sample[i]];
        forward_s += s->work->forward.token_s * n + s->work->forward.pair_s * 0.5 * n * n;
        backward_s += s->work->backward.token_s * n + s->work->backward.pair_s * 0.5 * n * n;
    }
    double ratio = forward_s > 0.0 && backward_s > 0.0 ? backward_s / forward_s : 2.0;
    double hops = fmax(1.0, s->scorer->scenario->layout.pp - 1);
    taper->grow = 1.0 + 1.1 * ratio / hops;
    taper->shrink = 1.0 + 1.1 / (ratio * hops);
}

// ---- Rosenbrock's method: one coordinate of the shape after the other ----

// What a step changes. A step of 1 is a tenth of all packs where packs are counted.
typedef enum coordinate {
    SHORTS_FIRST,
    SLICES,
    FORWARD, // from here on those of a taper
    BACKWARD = FORWARD + 8,
    COORDINATES = BACKWARD + 8
    // One more after those of a shape that leaves long samples whole: up to which work.
} coordinate;

typedef enum taper_step {
    ALL_PACKS, // more or fewer of each kind, growing as fast over all of them
    FLAT_TO_FALL,
    FLAT_TO_RISE,
    GROWTH,
    SHRINKING,
    FALL,
    RISE,
    FLAT
} taper_step;

static int coordinates_of(const sp_i_shape *shape)
{
    return (shape->regrouped ? COORDINATES : BACKWARD) + (shape->doublings > 0);
}

static int rounded(double value)
{
    return value < 0.0 ? 0 : value > MOST_PACKS ? MOST_PACKS : (int)(value + 0.5);
}

static sp_i_taper scaled(const sp_i_taper *taper, double by)
{
    sp_i_taper next = *taper;
    next.rise = rounded(taper->rise * by);
    next.flat = rounded(fmax(1.0, taper->flat * by));
    next.fall = rounded(taper->fall * by);
    next.grow = pow(taper->grow, 1.0 / by);
    next.shrink = pow(taper->shrink, 1.0 / by);
    return next;
}

static sp_i_taper moved_taper(const sp_i_taper *taper, taper_step kind, double step)
{
    sp_i_taper next = *taper;
    double share = 0.1 * step * sp_i_taper_packs(taper);
    double packs = step < 0.0 ? fmin(share, -1.0) : fmax(share, 1.0);
    switch (kind) {
    case ALL_PACKS:
        return scaled(taper, exp(0.15 * step));
    case FLAT_TO_FALL:
        next.flat = rounded(taper->flat - packs);
        next.fall = rounded(taper->fall + packs);
        break;
    case FLAT_TO_RISE:
        next.flat = rounded(taper->flat - packs);
        next.rise = rounded(taper->rise + packs);
        break;
    case GROWTH:
        next.grow = 1.0 + (taper->grow - 1.0) * exp(0.25 * step);
        break;
    case SHRINKING:
        next.shrink = 1.0 + (taper->shrink - 1.0) * exp(0.25 * step);
        break;
    case FALL:
        next.fall = rounded(taper->fall + packs);
        break;
    case RISE:
        next.rise = rounded(taper->rise + packs);
        break;
    case FLAT:
        next.flat = rounded(taper->flat + packs);
        break;
    }
    if (sp_i_taper_packs(&next) < 1) {
        next.flat = 1;
    }
    return next;
}

static bool is_same_taper(const sp_i_taper *a, const sp_i_taper *b)
{
    return a->rise == b->rise && a->flat == b->flat && a->fall == b->fall &&
           !(a->grow < b->grow || a->grow > b->grow || a->shrink < b->shrink ||
             a->shrink > b->shrink);
}

// False where the step leads nowhere: there is nothing to try.
static bool move(const sp_i_shape_search *search, int at, double step, sp_i_shape *shape)
{
    if (at == (shape->regrouped ? COORDINATES : BACKWARD)) {
        shape->doublings += step > 0.0 ? 1 : -1;
        return shape->doublings >= 0 && shape->doublings <= MOST_DOUBLINGS;
    }
    if (at == SHORTS_FIRST) {
        double was = shape->shorts_first;
        shape->shorts_first = fmin(0.95, fmax(0.0, was + 0.25 * step));
        return shape->shorts_first < was || shape->shorts_first > was;
    }
    if (at == SLICES) {
        shape->slice_tokens = step > 0.0 ? 2 * shape->slice_tokens : shape->slice_tokens / 2;
        return search->slice_tokens == 0 && shape->slice_tokens >= LEAST_SLICE &&
               shape->slice_tokens <= MOST_SLICE;
    }
    sp_i_taper *taper = at < BACKWARD ? &shape->forward : &shape->backward;
    taper_step kind = (taper_step)(at < BACKWARD ? at - FORWARD : at - BACKWARD);
    if (!search->taper && kind != ALL_PACKS && kind != FLAT) {
        return false;
    }
    const sp_i_taper was = *taper;
    *taper = moved_taper(&was, kind, step);
    return sp_i_taper_packs(taper) <= MOST_PACKS && !is_same_taper(taper, &was);
}

// A step that was better is repeated and grows, another turns round and shrinks (Rosenbrock, An
// automatic method for finding the greatest or least value of a function, 1960). It ends where
// steps of all sizes are in vain.
static sp_status descend(sp_i_shape_search *search, const sp_i_rank_samples *samples, int trials,
                         sp_i_best_shape *best, sp_error *err)
{
    double step[COORDINATES + 1];
    int coordinates = coordinates_of(&best->shape);
    int vain = 0;
    sp_status status = SP_OK;
    for (int i = 0; i < coordinates; i++) {
        step[i] = 1.0;
    }
    for (int at = 0; status == SP_OK && trials > 0 && vain < VAIN * coordinates &&
                     !is_enough(search, best) && !is_over(search);
         at = (at + 1) % coordinates) {
        sp_i_best_shape tried;
        sp_i_shape next = best->shape;
        bool better = false;
        if (move(search, at, step[at], &next)) {
            status = try_shape(search, samples, &next, &best->out, &tried, err);
            better = status == SP_OK && sp_packflow_is_better(&tried.out, &best->out);
            trials--;
        }
        vain = better ? 0 : vain + 1;
        step[at] *= better ? 1.7 : -0.6;
        if (fabs(step[at]) < 0.02) {
            step[at] = step[at] < 0.0 ? -1.0 : 1.0;
        }
        if (better) {
            *best = tried;
        }
    }
    return status;
}

// Goes on from shapes a few random steps away from the best one, as long as effort is left.
static sp_status wander(sp_i_shape_search *search, const sp_i_rank_samples *samples,
                        sp_i_best_shape *best, sp_error *err)
{
    sp_prng prng;
    int coordinates = coordinates_of(&best->shape);
    sp_status status = search->seed == 0 ? descend(search, samples, INT_MAX, best, err) : SP_OK;
    sp_prng_seed(&prng, search->seed);
    for (int vain = 0;
         status == SP_OK && vain < VAIN_WAYS && !is_enough(search, best) && !is_over(search);
         vain++) {
        sp_i_best_shape tried;
        sp_i_shape next = best->shape;
        for (int i = 0; i < STEPS_AWAY; i++) {
            sp_i_shape was = next;
            if (!move(search, (int)sp_prng_below(&prng, (uint64_t)coordinates),
                      4.0 * sp_prng_uniform(&prng) - 2.0, &next)) {
                next = was;
            }
        }
        status = try_shape(search, samples, &next, NULL, &tried, err);
        if (status == SP_OK) {
            status = descend(search, samples, EXPLORED, &tried, err);
        }
        if (status == SP_OK && sp_packflow_is_better(&tried.out, &best->out)) {
            *best = tried;
            vain = 0;
        }
    }
    return status;
}

// Shares of the best count of uniform packs, for rise, flat and fall.
typedef struct preset {
    double rise, flat, fall;
} preset;

// Where the search starts, from a good taper to packs of equal work. Of `count` they are the best
// first; of equal ones the earlier.
enum { PRESETS = 9 };

typedef struct starts {
    sp_i_best_shape best[PRESETS];
    int count;
} starts;

static sp_status try_starts(sp_i_shape_search *search, const sp_i_rank_samples *samples,
                            double work_s, starts *s, sp_error *err)
{
    static const preset presets[PRESETS] = {{0.15, 0.2, 0.3},  {0.0, 1.0, 0.0},  {0.17, 0.05, 0.5},
                                            {0.17, 0.3, 0.0},  {0.1, 0.15, 0.0}, {0.0, 0.5, 0.0},
                                            {0.17, 0.02, 0.3}, {0.0, 0.25, 0.0}, {0.0, 1.5, 0.0}};
    double packs = best_count(search, samples, work_s);
    sp_i_shape shape = {.shorts_first = 0.5,
                        .retained = search->retained,
                        .slice_tokens =
                            search->slice_tokens > 0 ? search->slice_tokens : LEAST_SLICE};
    set_rates(search, samples, &shape.forward);
    sp_status status = SP_OK;
    s->count = 0;
    for (int i = 0; status == SP_OK && i < PRESETS; i++) {
        const preset *p = &presets[i];
        if ((!search->taper && p->rise + p->fall > 0.0) || (i > 1 && is_over(search))) {
            continue;
        }
        shape.forward.rise = rounded(p->rise * packs);
        shape.forward.flat = rounded(fmax(1.0, p->flat * packs));
        shape.forward.fall = rounded(p->fall * packs);
        sp_i_best_shape tried;
        status = try_shape(search, samples, &shape, NULL, &tried, err);
        int at = s->count++;
        for (; at > 0 && sp_packflow_is_better(&tried.out, &s->best[at - 1].out); at--) {
            s->best[at] = s->best[at - 1];
        }
        s->best[at] = tried;
    }
    return status;
}

// Goes a little way from a start.
static sp_status explore_start(sp_i_shape_search *search, const sp_i_rank_samples *samples,
                               sp_i_best_shape *start, sp_i_best_shape *best, sp_error *err)
{
    sp_status status = descend(search, samples, EXPLORED, start, err);
    if (status == SP_OK && sp_packflow_is_better(&start->out, &best->out)) {
        *best = *start;
    }
    return status;
}

// Each slice of a sample needs the keys and values of all tokens before it, which ranks that share
// the sample then exchange once more.
static bool may_stay_whole(const sp_i_shape_search *search, const sp_i_rank_samples *samples)
{
    return search->whole && search->scorer->scenario->layout.cp * samples->dp_count > 1;
}

// Whole samples are nearly as fast as slices, or several times slower where some are far longer
// than the mean pack.
static bool is_near(const sp_packflow_outcome *whole, const sp_packflow_outcome *best)
{
    return whole->lacking_bytes <= best->lacking_bytes &&
           (double)whole->makespan_ns < NEAR * (double)best->makespan_ns;
}

// From the best starts with long samples left whole, as long as they come near. The effort is on
// top: where slices are better, the search is as long as without.
static sp_status explore_whole(sp_i_shape_search *search, const sp_i_rank_samples *samples,
                               const starts *s, int64_t effort, sp_i_best_shape *best,
                               sp_error *err)
{
    const int64_t left = search->effort;
    sp_status status = SP_OK;
    bool near = true;
    search->effort = effort;
    for (int i = 0; status == SP_OK && i < s->count && i < WHOLE_STARTS && near &&
                    !is_over(search) && !is_enough(search, best);
         i++) {
        sp_i_shape shape = s->best[i].shape;
        sp_i_best_shape whole;
        shape.doublings = MOST_DOUBLINGS;
        status = try_shape(search, samples, &shape, NULL, &whole, err);
        near = status == SP_OK && is_near(&whole.out, &best->out);
        if (near) {
            status = explore_start(search, samples, &whole, best, err);
        }
    }
    search->effort = left;
    return status;
}

// From every start, as far as effort is left, from the best ones first.
static sp_status explore(sp_i_shape_search *search, const sp_i_rank_samples *samples, double work_s,
                         sp_i_best_shape *best, sp_error *err)
{
    const int64_t effort_whole = search->effort / WHOLE_SHARE;
    starts s;
    sp_status status = try_starts(search, samples, work_s, &s, err);
    if (status != SP_OK) {
        return status;
    }
    const starts first = s;
    const bool whole = may_stay_whole(search, samples) && !is_over(search);
    *best = s.best[0];
    for (int i = 0; status == SP_OK && i < s.count && !is_enough(search, best); i++) {
        status = explore_start(search, samples, &s.best[i], best, err);
    }
    return status == SP_OK && whole
               ? explore_whole(search, samples, &first, effort_whole, best, err)
               : status;
}

sp_status sp_i_search_shape(sp_i_shape_search *search, const sp_i_rank_samples *samples,
                            double work_s, bool warm, sp_i_best_shape *best, sp_error *err)
{
    sp_status status = SP_OK;
    if (warm) {
        const sp_i_shape shape = best->shape;
        status = try_shape(search, samples, &shape, NULL, best, err);
    } else {
        status = explore(search, samples, work_s, best, err);
    }
    return status == SP_OK ? wander(search, samples, best, err) : status;
}

// Backward packs of their own with fewer or more packs than forward; the best of these.
static sp_status try_scaled(sp_i_shape_search *search, const sp_i_rank_samples *samples,
                            const sp_i_shape *mirrored, sp_i_best_shape *best, sp_error *err)
{
    static const double scales[] = {1.0, 0.5, 0.7, 0.85, 1.2, 1.5, 2.0};
    sp_status status = SP_OK;
    *best = (sp_i_best_shape){.out = SP_PACKFLOW_WORST};
    for (size_t i = 0; status == SP_OK && i < sizeof scales / sizeof scales[0]; i++) {
        sp_i_shape shape = *mirrored;
        shape.regrouped = true;
        shape.backward = scaled(&mirrored->forward, scales[i]);
        sp_i_best_shape tried;
        if (is_over(search)) {
            break;
        }
        status = try_shape(search, samples, &shape, &best->out, &tried, err);
        if (status == SP_OK && sp_packflow_is_better(&tried.out, &best->out)) {
            *best = tried;
        }
    }
    return status;
}

sp_status sp_i_search_regrouped(sp_i_shape_search *search, const sp_i_rank_samples *samples,
                                sp_i_best_shape *best, sp_error *err)
{
    sp_i_best_shape own;
    sp_status status = try_scaled(search, samples, &best->shape, &own, err);
    if (status == SP_OK && own.out.makespan_ns < INT64_MAX) {
        status = wander(search, samples, &own, err);
    }
    if (status == SP_OK && sp_packflow_is_better(&own.out, &best->out)) {
        *best = own;
    }
    return status;
}
