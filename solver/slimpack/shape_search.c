// The search for the shape of one rank's packs, and the score of packs by which it is led.
#include "solver/slimpack/slimpack_search.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "sim/schedule/packflow.h"
#include "solver/search.h"

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

// Work (solver/search.h) of the price of a pack, and of a sample or a slice.
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
        int64_t tokens = s->batch->tokens[samples->sample[i]];
        forward_s += sp_i_slice_pass_s(s->work, false, 0, tokens);
        backward_s += sp_i_slice_pass_s(s->work, true, 0, tokens);
    }
    double ratio = forward_s > 0.0 && backward_s > 0.0 ? backward_s / forward_s : 2.0;
    double hops = fmax(1.0, s->scorer->scenario->layout.pp - 1);
    taper->grow = 1.0 + 1.1 * ratio / hops;
    taper->shrink = 1.0 + 1.1 / (ratio * hops);
}

// ---- Rosenbrock's method: one coordinate of the shape after the other ----

// A step changes one of these. A step of 1 is a tenth of all packs where packs are counted.
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

// Backward packs of their own, with fewer or more packs than forward.
typedef struct scaling {
    sp_i_shape_search *search;
    const sp_i_rank_samples *samples;
    const sp_i_shape *mirrored;
} scaling;

static const double scales[] = {1.0, 0.5, 0.7, 0.85, 1.2, 1.5, 2.0};

static sp_i_shape scaled_shape(const sp_i_shape *mirrored, int i)
{
    sp_i_shape shape = *mirrored;
    shape.regrouped = true;
    shape.backward = scaled(&mirrored->forward, scales[i]);
    return shape;
}

static sp_status judge_scale(void *context, int i, const sp_packflow_outcome *best,
                             sp_packflow_outcome *outcome, sp_error *err)
{
    const scaling *of = context;
    const sp_i_shape shape = scaled_shape(of->mirrored, i);
    sp_i_best_shape tried;
    sp_status status = try_shape(of->search, of->samples, &shape, best, &tried, err);
    *outcome = tried.out;
    return status;
}

static bool is_scaling_over(const void *context)
{
    const scaling *of = context;
    return is_over(of->search);
}

static sp_status try_scaled(sp_i_shape_search *search, const sp_i_rank_samples *samples,
                            const sp_i_shape *mirrored, sp_i_best_shape *best, sp_error *err)
{
    scaling of = {search, samples, mirrored};
    int fastest = 0;
    const sp_i_candidates candidates = {.count = sizeof scales / sizeof scales[0],
                                        .judge = judge_scale,
                                        .is_over = is_scaling_over,
                                        .context = &of};
    *best = (sp_i_best_shape){.out = SP_PACKFLOW_WORST};
    sp_status status = sp_i_search(&candidates, &fastest, &best->out, err);
    best->shape = scaled_shape(mirrored, fastest);
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

// ---- the score of one rank's packs ----

// Packs whose transfers are measured, tokens on a rank.
enum { SMALL = 256, TYPICAL = 4096 };

static sp_status measure(sp_i_rank_scorer *s, int64_t longest_tokens, sp_error *err)
{
    const sp_layout *layout = s->cost->layout;
    sp_packing packing;
    sp_packing_init(&packing, NULL, layout->dp);
    for (int32_t i = 0; i < 2; i++) {
        int64_t tokens = i == 0 ? SMALL : TYPICAL;
        // A rank's states have tables of as many positions as the longest sample.
        int64_t begin = longest_tokens > tokens ? longest_tokens - tokens : 0;
        sp_slice slice = {.sample = i, .begin = begin, .tokens = tokens, .computed_tokens = tokens};
        sp_pack_list_begin(&packing.forward, 0, 1);
        sp_pack_list_add(&packing.forward, slice, true);
    }
    sp_step_costs costs = {0};
    sp_status status = sp_cost_model_build(s->cost, &packing, &costs, err);
    if (status == SP_OK) {
        sp_pack_memory_init(&s->memory, layout, &costs);
        double small_ns = sp_step_costs_mean_p2p_ns(&costs, layout->pp, 0, 0);
        double typical_ns = sp_step_costs_mean_p2p_ns(&costs, layout->pp, 0, 1);
        s->p2p_token_ns = (typical_ns - small_ns) / (TYPICAL - SMALL);
        s->p2p_ns = small_ns - s->p2p_token_ns * SMALL;
    }
    sp_step_costs_fini(&costs);
    sp_packing_fini(&packing);
    return status;
}

sp_status sp_i_rank_scorer_init(sp_i_rank_scorer *scorer, const sp_scenario *scenario,
                                sp_cost_model *cost, int64_t longest_tokens, sp_error *err)
{
    *scorer = (sp_i_rank_scorer){
        .scenario = scenario, .limit_bytes = scenario->memory_limit_bytes, .cost = cost};
    size_t vstages = (size_t)sp_layout_vstages(cost->layout);
    size_t pp = (size_t)cost->layout->pp;
    size_t dp = (size_t)cost->layout->dp;
    scorer->room =
        (sp_pack_room){.token_bytes = sp_arena_take(&scorer->arrays, vstages, sizeof(int64_t)),
                       .room_bytes = sp_arena_take(&scorer->arrays, pp, sizeof(int64_t)),
                       .again_bytes = sp_arena_take(&scorer->arrays, pp, sizeof(int64_t))};
    scorer->class_ns = sp_arena_take(&scorer->arrays, 3 * vstages, sizeof(int64_t));
    scorer->fullest = sp_arena_take(&scorer->arrays, dp, sizeof *scorer->fullest);
    scorer->scores = sp_arena_take(&scorer->arrays, SP_I_SCORES, sizeof *scorer->scores);
    sp_status status = measure(scorer, longest_tokens, err);
    if (status != SP_OK) {
        sp_i_rank_scorer_fini(scorer);
    }
    return status;
}

void sp_i_rank_scorer_fini(sp_i_rank_scorer *scorer)
{
    sp_pack_memory_fini(&scorer->memory);
    sp_arena_free(&scorer->arrays);
    sp_free(scorer->times);
    sp_free(scorer->tokens);
    *scorer = (sp_i_rank_scorer){0};
}

int64_t sp_i_rank_scorer_most_tokens(sp_i_rank_scorer *s, bool split)
{
    const sp_layout *layout = s->cost->layout;
    const sp_fullest_pack typical = {
        .dp_count = 1, .tokens = TYPICAL, .slices = 1, .summed_tokens = TYPICAL};
    sp_pack_memory_measure(&s->memory, s->cost, &typical);
    int64_t most = INT64_MAX;
    sp_pack_memory_room(&s->memory, layout, split, s->limit_bytes, &s->room);
    for (int r = 0; r < layout->pp; r++) {
        double bytes = 0.0; // of a token, with the sums of the gradients of its key and value
        double room = (double)s->room.room_bytes[r];
        for (int chunk = 0; chunk < layout->chunks; chunk++) {
            int v = sp_layout_vstage(layout, r, chunk);
            bytes += (double)s->room.token_bytes[v] + s->memory.sums[v] / TYPICAL;
            room += s->memory.sums[v];
        }
        int64_t tokens = bytes > 0.0 ? sp_whole(room / bytes) : INT64_MAX;
        most = tokens < most ? tokens : most;
    }
    return most < 1 ? 1 : most;
}

static void spread(const sp_i_rank_scorer *s, const int64_t *class_ns, int64_t *at)
{
    for (int v = 0; v < sp_layout_vstages(s->cost->layout); v++) {
        at[v] = class_ns[s->cost->class_of_vstage[v]];
    }
}

// The forward pack that a backward pack mirrors, where backward packs mirror forward packs block by
// block, each of which needs its last pack; `block` is the first of the block so far.
static size_t mirrored(const int32_t *need, size_t j, size_t *block)
{
    *block = j > 0 && need[j] != need[j - 1] ? j : *block;
    return (size_t)need[j] - (j - *block);
}

static bool has_same_slices(const sp_packing *packing, const sp_pack *forward,
                            const sp_pack *backward)
{
    return forward->slice_count == backward->slice_count && forward->gathers == backward->gathers &&
           memcmp(packing->forward.slices + forward->first_slice,
                  packing->backward.slices + backward->first_slice,
                  forward->slice_count * sizeof(sp_slice)) == 0;
}

// Packs that mirror each other are priced at once.
static void fill_times(sp_i_rank_scorer *s, const sp_packing *packing, const int32_t *need,
                       bool split, size_t nf, size_t nb)
{
    size_t vstages = (size_t)sp_layout_vstages(s->cost->layout);
    int64_t *f_ns = s->class_ns;
    int64_t *b_ns = f_ns + s->cost->stage_classes;
    int64_t *w_ns = b_ns + s->cost->stage_classes;
    int64_t *backward = s->times + nf * vstages;
    int64_t *weights = backward + nb * vstages;
    bool is_mirror = nf == nb;
    size_t block = 0;
    for (size_t j = 0; is_mirror && j < nb; j++) {
        const size_t k = mirrored(need, j, &block);
        is_mirror = k < nf && has_same_slices(packing, &packing->forward.packs[k],
                                              &packing->backward.packs[j]);
    }
    block = 0;
    for (size_t j = 0; j < nb; j++) {
        const sp_pack *pack = &packing->backward.packs[j];
        sp_cost_model_pack_ns(s->cost, &packing->backward, pack, split, is_mirror ? f_ns : NULL,
                              b_ns, w_ns);
        if (is_mirror) {
            spread(s, f_ns, s->times + mirrored(need, j, &block) * vstages);
        }
        spread(s, b_ns, backward + j * vstages);
        if (split) {
            spread(s, w_ns, weights + j * vstages);
        }
    }
    for (size_t k = 0; !is_mirror && k < nf; k++) {
        sp_cost_model_pack_ns(s->cost, &packing->forward, &packing->forward.packs[k], false, f_ns,
                              NULL, NULL);
        spread(s, f_ns, s->times + k * vstages);
    }
}

// Tokens of each pack on one of the ranks that share it.
static void fill_tokens(const sp_pack_list *list, int64_t *tokens)
{
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        tokens[k] = (pack->computed + pack->dp_count - 1) / pack->dp_count;
    }
}

// Forwards that run again, of packs that mirror each other, and what is there again of them.
static void add_repeats(sp_i_rank_scorer *s, const sp_packing *packing, const int32_t *need,
                        int64_t *freed, int64_t *again)
{
    size_t vstages = (size_t)sp_layout_vstages(s->cost->layout);
    size_t nf = packing->forward.count;
    double share = sp_pack_memory_kept_share(&s->memory, s->cost->layout);
    int64_t *b_ns = s->times + nf * vstages;
    size_t block = 0;
    for (size_t j = 0; j < packing->backward.count; j++) {
        size_t k = mirrored(need, j, &block);
        again[j] = 0;
        if (!packing->forward.packs[k].runs_again) {
            continue;
        }
        again[j] = s->tokens[k];
        s->tokens[k] = sp_packflow_kept(s->tokens[k], share);
        again[j] -= s->tokens[k];
        freed[j] = s->tokens[k];
        for (size_t v = 0; v < vstages; v++) {
            b_ns[j * vstages + v] += s->times[k * vstages + v];
        }
    }
}

static void fill_memory(sp_i_rank_scorer *s, const sp_packing *packing, bool split)
{
    const sp_layout *layout = s->cost->layout;
    sp_fullest_packs(packing, layout->cp, s->fullest);
    sp_pack_memory_measure(&s->memory, s->cost, &s->fullest[packing->forward.packs[0].dp_first]);
    sp_pack_memory_room(&s->memory, layout, split, s->limit_bytes, &s->room);
}

static sp_status find_score(sp_i_rank_scorer *scorer, const sp_packing *packing,
                            const int32_t *need, bool split, const sp_packflow_outcome *beaten,
                            sp_packflow_outcome *outcome, sp_error *err)
{
    const sp_layout *layout = scorer->cost->layout;
    size_t vstages = (size_t)sp_layout_vstages(layout);
    size_t nf = packing->forward.count;
    size_t nb = packing->backward.count;
    sp_reserve((void **)&scorer->times, &scorer->times_capacity, (nf + 2 * nb) * vstages,
               sizeof *scorer->times);
    sp_reserve((void **)&scorer->tokens, &scorer->tokens_capacity, 2 * nf + 3 * nb,
               sizeof *scorer->tokens);
    int64_t *freed = scorer->tokens + nf;
    fill_tokens(&packing->forward, scorer->tokens);
    fill_tokens(&packing->backward, freed);
    for (size_t k = 0; k < nf + nb; k++) {
        freed[nb + k] =
            (int64_t)(scorer->p2p_ns + scorer->p2p_token_ns * (double)scorer->tokens[k] + 0.5);
    }
    fill_times(scorer, packing, need, split, nf, nb);
    fill_memory(scorer, packing, split);
    bool repeats = scorer->fullest[packing->forward.packs[0].dp_first].again_tokens > 0;
    int64_t *again = repeats ? freed + nf + 2 * nb : NULL;
    if (repeats) {
        add_repeats(scorer, packing, need, freed, again);
    }
    sp_packflow_job job = {
        .layout = layout,
        .beaten = beaten,
        .forward = nf,
        .backward = nb,
        .f_ns = scorer->times,
        .b_ns = scorer->times + nf * vstages,
        .w_ns = split ? scorer->times + (nf + nb) * vstages : NULL,
        .need = need,
        .tokens = scorer->tokens,
        .freed = freed,
        .p2p_f_ns = freed + nb,
        .p2p_b_ns = freed + nb + nf,
        .again = again,
        .token_bytes = scorer->room.token_bytes,
        .room_bytes = scorer->room.room_bytes,
        .again_bytes = scorer->room.again_bytes,
    };
    return sp_packflow_run(&job, NULL, outcome, err);
}

// ---- scores that are known ----

static uint64_t mixed(uint64_t key, int64_t value)
{
    key = (key ^ (uint64_t)value) * 0x9E3779B97F4A7C15u;
    return key ^ (key >> 32);
}

static uint64_t key_of_list(uint64_t key, const sp_pack_list *list)
{
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        key = mixed(key, (int64_t)(2 * pack->slice_count) + pack->runs_again);
        key = mixed(key, pack->kv_tokens);
    }
    for (size_t i = 0; i < list->slice_count; i++) {
        const sp_slice *slice = &list->slices[i];
        key = mixed(key, slice->sample);
        key = mixed(key, slice->begin);
        key = mixed(key, slice->tokens);
    }
    return key;
}

static uint64_t key_of(const sp_i_rank_scorer *scorer, const sp_packing *packing, bool split)
{
    const sp_pack *first = &packing->forward.packs[0];
    uint64_t key = mixed(mixed(1, scorer->limit_bytes), split);
    key = mixed(mixed(key, first->dp_first), first->dp_count);
    key = key_of_list(key_of_list(key, &packing->forward), &packing->backward);
    return key == 0 ? 1 : key;
}

sp_status sp_i_rank_score(sp_i_rank_scorer *scorer, const sp_packing *packing, const int32_t *need,
                          bool split, const sp_packflow_outcome *beaten,
                          sp_packflow_outcome *outcome, sp_error *err)
{
    uint64_t key = key_of(scorer, packing, split);
    sp_i_score *known = &scorer->scores[key % SP_I_SCORES];
    bool better = beaten == NULL || sp_packflow_is_better(&known->outcome, beaten);
    if (known->key == key && (known->exact || !better)) {
        *outcome = known->outcome;
        return SP_OK;
    }
    sp_status status = find_score(scorer, packing, need, split, beaten, outcome, err);
    if (status == SP_OK) {
        better = beaten == NULL || sp_packflow_is_better(outcome, beaten);
        *known = (sp_i_score){key, better, *outcome};
    }
    return status;
}
