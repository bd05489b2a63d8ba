#include "solver/slimpack/shape_search.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "sim/base/progress.h"

enum { MOST_PACKS = 4096, LEAST_PACK = 512, LEAST_SLICE = 128, SLICE_SIZES = 5 };

enum { USUAL_PACKS = 250 }; // of a rank

// Longer makespans are taken at first up to about this share, then ever less.
#define HEAT 2e-3

static bool is_late(const sp_i_shape_search *search)
{
    return search->deadline_s > 0.0 && sp_clock_s() > search->deadline_s;
}

static sp_status try_shape(const sp_i_shape_search *search, const sp_i_rank_samples *samples,
                           const sp_i_shape *shape, sp_i_best_shape *tried, sp_error *err)
{
    sp_packing packing;
    sp_i_needs needs = {0};
    *tried = (sp_i_best_shape){.shape = *shape};
    sp_packing_init(&packing, search->batch, search->scorer->scenario->layout.dp);
    sp_status status =
        sp_i_micropacks_make(search->work, search->batch, samples, shape, &packing, &needs, err);
    if (status == SP_OK) {
        status =
            sp_i_rank_score(search->scorer, &packing, needs.pack, search->split, &tried->out, err);
    }
    sp_i_free(needs.pack);
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
    return stages < 1.0 ? 1.0 : fmin(most, sqrt(stages * work_s / fmax(fixed_s, 1e-9 * work_s)));
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

static int rounded(double value)
{
    return value < 0.0 ? 0 : value > MOST_PACKS ? MOST_PACKS : (int)(value + 0.5);
}

static sp_i_taper varied_taper(const sp_i_taper *taper, bool tapers, sp_prng *prng)
{
    sp_i_taper next = *taper;
    double up = 0.75 + 0.55 * sp_prng_uniform(prng);
    int step = (int)sp_prng_below(prng, 7) - 3;
    switch (tapers ? sp_prng_below(prng, 7) : 0) {
    case 0:
        next.flat = rounded(taper->flat * up + 0.3 * step);
        break;
    case 1:
        next.fall = rounded(taper->fall * up + 0.3 * step);
        break;
    case 2:
        next.grow = 1.0 + (taper->grow - 1.0) * up;
        break;
    case 3:
        next.shrink = 1.0 + (taper->shrink - 1.0) * up;
        break;
    case 4:
        next.rise = rounded(taper->rise + step);
        break;
    case 5:
        next.flat = rounded(taper->flat - step);
        next.fall = rounded(taper->fall + step);
        break;
    default:
        next.rise = rounded(taper->rise + step);
        next.flat = rounded(taper->flat - step);
        break;
    }
    if (sp_i_taper_packs(&next) < 1) {
        next.flat = 1;
    }
    return next;
}

// A step in the neighbourhood of a shape.
static sp_i_shape varied(const sp_i_shape_search *s, const sp_i_shape *shape, sp_prng *prng)
{
    sp_i_shape next = *shape;
    uint64_t kind = sp_prng_below(prng, 12);
    if (kind < 3) {
        next.shorts_first = 0.95 * sp_prng_uniform(prng);
    } else if (kind < 4 && s->slice_tokens == 0) {
        next.slice_tokens = (int64_t)LEAST_SLICE << sp_prng_below(prng, SLICE_SIZES);
    } else {
        next.forward = varied_taper(&shape->forward, s->taper, prng);
    }
    return next;
}

// The same with backward packs of their own.
static sp_i_shape varied_backward(const sp_i_shape_search *s, const sp_i_shape *shape,
                                  sp_prng *prng)
{
    if (sp_prng_below(prng, 3) == 0) {
        return varied(s, shape, prng);
    }
    sp_i_shape next = *shape;
    next.backward = varied_taper(&shape->backward, s->taper, prng);
    return next;
}

// Shares of the best count of uniform packs, for rise, flat and fall.
typedef struct preset {
    double rise, flat, fall;
} preset;

static sp_status try_presets(const sp_i_shape_search *search, const sp_i_rank_samples *samples,
                             double work_s, sp_i_best_shape *best, sp_error *err)
{
    static const preset presets[] = {{0.15, 0.2, 0.3},  {0.0, 1.0, 0.0},  {0.17, 0.05, 0.5},
                                     {0.17, 0.3, 0.0},  {0.1, 0.15, 0.0}, {0.0, 0.5, 0.0},
                                     {0.17, 0.02, 0.3}, {0.0, 0.25, 0.0}, {0.0, 1.5, 0.0}};
    double count = best_count(search, samples, work_s);
    sp_i_shape shape = {.shorts_first = 0.5,
                        .slice_tokens =
                            search->slice_tokens > 0 ? search->slice_tokens : LEAST_SLICE};
    set_rates(search, samples, &shape.forward);
    *best = (sp_i_best_shape){.out = {.makespan_ns = INT64_MAX}};
    sp_status status = SP_OK;
    for (size_t i = 0; status == SP_OK && i < sizeof presets / sizeof presets[0]; i++) {
        const preset *p = &presets[i];
        if ((!search->taper && p->rise + p->fall > 0.0) || (i > 1 && is_late(search))) {
            continue;
        }
        shape.forward.rise = rounded(p->rise * count);
        shape.forward.flat = rounded(fmax(1.0, p->flat * count));
        shape.forward.fall = rounded(p->fall * count);
        sp_i_best_shape tried;
        status = try_shape(search, samples, &shape, &tried, err);
        if (status == SP_OK && sp_packflow_is_better(&tried.out, &best->out)) {
            *best = tried;
        }
    }
    return status;
}

// A trial takes as long as there are packs.
static int trials_for(const sp_i_shape_search *search, const sp_i_shape *shape)
{
    int packs = sp_i_taper_packs(&shape->forward);
    return packs > USUAL_PACKS ? (int)((int64_t)search->trials * USUAL_PACKS / packs)
                               : search->trials;
}

typedef sp_i_shape (*neighbour)(const sp_i_shape_search *s, const sp_i_shape *shape, sp_prng *prng);

static sp_status anneal(const sp_i_shape_search *search, const sp_i_rank_samples *samples,
                        neighbour step, int trials, sp_i_best_shape *best, sp_error *err)
{
    sp_prng prng;
    sp_prng_seed(&prng, 1);
    sp_i_best_shape at = *best;
    double heat_ns = HEAT * (double)best->out.makespan_ns;
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < trials && !is_late(search); i++) {
        sp_i_shape next = step(search, &at.shape, &prng);
        sp_i_best_shape tried;
        status = try_shape(search, samples, &next, &tried, err);
        double left = 1.0 - (double)i / trials;
        double longer_ns = -heat_ns * left * left * log(1.0 - sp_prng_uniform(&prng));
        if (status == SP_OK && tried.out.fits >= at.out.fits &&
            (double)tried.out.makespan_ns <= (double)at.out.makespan_ns + longer_ns) {
            at = tried;
        }
        if (status == SP_OK && sp_packflow_is_better(&tried.out, &best->out)) {
            *best = tried;
        }
    }
    return status;
}

sp_status sp_i_search_shape(const sp_i_shape_search *search, const sp_i_rank_samples *samples,
                            double work_s, bool warm, sp_i_best_shape *best, sp_error *err)
{
    sp_status status = SP_OK;
    if (warm) {
        const sp_i_shape shape = best->shape;
        status = try_shape(search, samples, &shape, best, err);
    } else {
        status = try_presets(search, samples, work_s, best, err);
    }
    return status == SP_OK
               ? anneal(search, samples, varied, trials_for(search, &best->shape), best, err)
               : status;
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

// Backward packs of their own with fewer or more packs than forward; the best of these.
static sp_status try_scaled(const sp_i_shape_search *search, const sp_i_rank_samples *samples,
                            const sp_i_shape *mirrored, sp_i_best_shape *best, sp_error *err)
{
    static const double scales[] = {1.0, 0.5, 0.7, 0.85, 1.2, 1.5, 2.0};
    sp_status status = SP_OK;
    *best = (sp_i_best_shape){.out = {.makespan_ns = INT64_MAX}};
    for (size_t i = 0; status == SP_OK && i < sizeof scales / sizeof scales[0]; i++) {
        sp_i_shape shape = *mirrored;
        shape.regrouped = true;
        shape.backward = scaled(&mirrored->forward, scales[i]);
        sp_i_best_shape tried;
        if (is_late(search)) {
            break;
        }
        status = try_shape(search, samples, &shape, &tried, err);
        if (status == SP_OK && sp_packflow_is_better(&tried.out, &best->out)) {
            *best = tried;
        }
    }
    return status;
}

sp_status sp_i_search_regrouped(const sp_i_shape_search *search, const sp_i_rank_samples *samples,
                                sp_i_best_shape *best, sp_error *err)
{
    sp_i_best_shape own;
    sp_status status = try_scaled(search, samples, &best->shape, &own, err);
    if (status == SP_OK && own.out.makespan_ns < INT64_MAX) {
        status =
            anneal(search, samples, varied_backward, trials_for(search, &own.shape) / 4, &own, err);
    }
    if (status == SP_OK && sp_packflow_is_better(&own.out, &best->out)) {
        *best = own;
    }
    return status;
}
