// SlimPack (arXiv 2509.26246): samples are given to data-parallel ranks, then each rank's samples
// are cut and packed. Shapes of packs are tried one after the other, each judged by a run of
// PackFlow over the cost model's times, and the fastest that fits in memory is taken.
#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "solver/micropacks.h"
#include "solver/packflow_outcome.h"
#include "solver/rank_split.h"
#include "solver/strategies.h"

// A sample beyond this share of a rank's fair share gets several ranks.
#define MERGE_SHARE 0.95

// A rank with a sample of this share of its work has equal packs: its forwards all come before its
// backwards, which leaves nothing for a taper to fill.
#define DOMINATED 0.85

enum {
    REFINEMENTS = 800, // of all groups together
    LEAST_REFINEMENTS = 24,
    MOST_REFINEMENTS = 200, // of one
    LEVELLINGS = 3,
    TYPICAL_TOKENS = 4096,
    MOST_PACKS = 4096
};

typedef struct search {
    const sp_strategy_input *input;
    sp_i_work work;
    int refinements; // of one group
    bool split;      // input and weight gradients apart
} search;

static sp_status score(const search *s, const sp_packing *packing, sp_i_packflow_outcome *out,
                       sp_error *err)
{
    const sp_scenario *scenario = s->input->scenario;
    sp_step_costs costs = {0};
    const sp_plan plan = {.layout = scenario->layout, .packing = packing};
    sp_schedule_costs *times = NULL;
    sp_status status = sp_cost_model_build(s->input->cost, packing, &costs, err);
    if (status == SP_OK) {
        status = sp_step_costs_means(&costs, &plan, &times, err);
    }
    if (status == SP_OK) {
        status = sp_step_costs_by_pack(&costs, &plan, times, err);
    }
    if (status == SP_OK) {
        int dp_first = packing->forward.packs[0].dp_first;
        status = sp_i_packflow_outcome_of(scenario, &costs, times, packing, s->split, dp_first,
                                          dp_first + 1, out, err);
    }
    sp_schedule_costs_free(times);
    sp_step_costs_fini(&costs);
    return status;
}

static sp_status try_shape(const search *s, const sp_i_rank_samples *rank, const sp_i_shape *shape,
                           sp_i_packflow_outcome *out, sp_error *err)
{
    sp_packing packing;
    sp_packing_init(&packing, s->input->batch, s->input->scenario->layout.dp);
    sp_status status = sp_i_micropacks_add(&s->work, s->input->batch, rank, shape, &packing, err);
    if (status == SP_OK) {
        status = score(s, &packing, out, err);
    }
    sp_packing_fini(&packing);
    return status;
}

typedef struct best_shape {
    sp_i_shape shape;
    sp_i_packflow_outcome out;
} best_shape;

static sp_status consider(const search *s, const sp_i_rank_samples *rank, sp_i_shape shape,
                          best_shape *best, sp_error *err)
{
    sp_i_packflow_outcome out = {0};
    shape.packs = shape.packs < 1 ? 1 : shape.packs > MOST_PACKS ? MOST_PACKS : shape.packs;
    sp_status status = try_shape(s, rank, &shape, &out, err);
    if (status == SP_OK && sp_i_packflow_is_better(&out, &best->out)) {
        *best = (best_shape){shape, out};
    }
    return status;
}

// Uniform packs of a pipeline lose about M*o + (p-1)*W/M, least at M = sqrt((p-1)*W/o).
static double best_count(const search *s, double work_s)
{
    double fixed_s = s->work.forward.pack_s + s->work.backward.pack_s;
    double stages = s->input->scenario->layout.pp - 1;
    return stages < 1.0 ? 1.0 : sqrt(stages * work_s / fmax(fixed_s, 1e-3 * work_s / MOST_PACKS));
}

// A step in the neighbourhood of a shape.
static sp_i_shape varied(const sp_i_shape *shape, sp_prng *prng)
{
    sp_i_shape next = *shape;
    double up = 0.8 + 0.45 * sp_prng_uniform(prng);
    switch (sp_prng_below(prng, 6)) {
    case 0:
        next.packs = (int)(next.packs * up + 0.5);
        break;
    case 1:
        next.first = fmin(1.0, next.first * up);
        break;
    case 2:
        next.last = fmin(1.0, next.last * up);
        break;
    case 3:
        next.grow = 1.0 + (next.grow - 1.0) * up;
        break;
    case 4:
        next.shrink = 1.0 + (next.shrink - 1.0) * up;
        break;
    default:
        next.shorts_first = 0.6 * sp_prng_uniform(prng);
        break;
    }
    return next;
}

static sp_status search_shape(const search *s, const sp_i_rank_samples *rank, double work_s,
                              best_shape *best, sp_error *err)
{
    static const double counts[] = {0.35, 0.45, 0.6, 0.75, 0.9, 1.2, 1.5};
    const sp_i_shape uniform = {.first = 1.0,
                                .grow = 1.0,
                                .last = 1.0,
                                .shrink = 1.0,
                                .shorts_first = 0.3,
                                .merge_backward = 1};
    const sp_i_shape tapered = {.first = 0.12,
                                .grow = 1.21,
                                .last = 0.13,
                                .shrink = 1.07,
                                .shorts_first = 0.3,
                                .merge_backward = 1};
    double count = best_count(s, work_s);
    double longest_s = sp_i_slice_work_s(&s->work, 0, s->input->batch->tokens[rank->sample[0]]);
    bool dominated = longest_s > DOMINATED * work_s * rank->dp_count;
    *best = (best_shape){.out = {.makespan_ns = INT64_MAX}};
    sp_status status = SP_OK;
    for (size_t i = 0; status == SP_OK && i < sizeof counts / sizeof counts[0]; i++) {
        sp_i_shape shape = uniform;
        shape.packs = (int)ceil(counts[i] * count);
        status = consider(s, rank, shape, best, err);
        shape = tapered;
        // A tapered list has more packs for the same largest one.
        shape.packs = (int)ceil(1.4 * counts[i] * count);
        if (status == SP_OK && !dominated) {
            status = consider(s, rank, shape, best, err);
        }
    }
    sp_prng prng;
    sp_prng_seed(&prng, 1);
    for (int i = 0; status == SP_OK && i < s->refinements; i++) {
        status = consider(s, rank, varied(&best->shape, &prng), best, err);
    }
    return status;
}

static sp_i_rank_samples samples_of(const sp_i_rank_group *group)
{
    return (sp_i_rank_samples){group->sample, group->count, group->dp_first, group->dp_count};
}

static sp_status search_group(const search *s, const sp_i_rank_group *group, best_shape *best,
                              sp_error *err)
{
    sp_i_rank_samples samples = samples_of(group);
    *best = (best_shape){0};
    return group->count > 0 ? search_shape(s, &samples, group->work_s, best, err) : SP_OK;
}

// Equal work is not equal time: the rank with the longest sample has more idle time. Samples go
// from the slowest group to the fastest as long as the slower of the two gets faster.
static sp_status level_times(const search *s, sp_i_rank_split *ranks, best_shape *best,
                             sp_error *err)
{
    sp_status status = SP_OK;
    for (int round = 0; status == SP_OK && round < LEVELLINGS && ranks->count > 1; round++) {
        int slow = 0;
        int fast = 0;
        for (int g = 1; g < ranks->count; g++) {
            slow = best[g].out.makespan_ns > best[slow].out.makespan_ns ? g : slow;
            fast = best[g].out.makespan_ns < best[fast].out.makespan_ns ? g : fast;
        }
        double slow_s = (double)best[slow].out.makespan_ns;
        double fast_s = (double)best[fast].out.makespan_ns;
        double moved_s = 0.5 * (1.0 - fast_s / slow_s) * ranks->groups[slow].work_s;
        sp_i_rank_split tried;
        status = sp_i_rank_split_copy(ranks, &tried, err);
        if (status != SP_OK) {
            return status;
        }
        bool moved = false;
        bool improves = false;
        best_shape slower = {0};
        best_shape faster = {0};
        status = sp_i_rank_split_move(&s->work, s->input->batch, &tried, slow, fast, moved_s,
                                      &moved, err);
        if (status == SP_OK && moved) {
            status = search_group(s, &tried.groups[slow], &slower, err);
        }
        if (status == SP_OK && moved) {
            status = search_group(s, &tried.groups[fast], &faster, err);
        }
        if (status == SP_OK && moved) {
            improves = sp_i_packflow_is_better(&slower.out, &best[slow].out) &&
                       sp_i_packflow_is_better(&faster.out, &best[slow].out);
        }
        if (!improves) {
            sp_i_rank_split_fini(&tried);
            return status;
        }
        sp_i_rank_split_fini(ranks);
        *ranks = tried;
        best[slow] = slower;
        best[fast] = faster;
    }
    return status;
}

// Other packs backward than forward: neighbouring ones made one, where that is faster.
static sp_status try_merged_backward(const search *s, const sp_i_rank_group *group,
                                     best_shape *best, sp_error *err)
{
    sp_i_rank_samples samples = samples_of(group);
    const sp_i_shape symmetric = best->shape;
    sp_status status = SP_OK;
    for (int merge = 2; status == SP_OK && merge <= 3; merge++) {
        sp_i_shape shape = symmetric;
        shape.merge_backward = merge;
        status = consider(s, &samples, shape, best, err);
    }
    return status;
}

// A whole step: the ranks' samples and the shape of each group's packs.
typedef struct step {
    sp_i_rank_split ranks;
    best_shape *best; // [groups]
} step;

static void step_fini(step *st)
{
    sp_i_free(st->best);
    sp_i_rank_split_fini(&st->ranks);
}

// The slowest group's.
static sp_i_packflow_outcome outcome_of(const step *st)
{
    sp_i_packflow_outcome all = {.fits = true};
    for (int g = 0; g < st->ranks.count; g++) {
        const best_shape *best = &st->best[g];
        if (st->ranks.groups[g].count > 0) {
            all.fits = all.fits && best->out.fits;
            all.makespan_ns =
                best->out.makespan_ns > all.makespan_ns ? best->out.makespan_ns : all.makespan_ns;
        }
    }
    return all;
}

static sp_status search_step(const search *s, bool asymmetric, step *st, sp_error *err)
{
    const sp_scenario *scenario = s->input->scenario;
    *st = (step){.best = sp_i_calloc((size_t)scenario->layout.dp, sizeof *st->best)};
    if (st->best == NULL) {
        return sp_error_no_memory(err, "the search for a packing");
    }
    sp_status status =
        sp_i_rank_split_make(&s->work, s->input->batch, scenario->layout.dp,
                             scenario->cluster.gpus_per_node, MERGE_SHARE, 0, &st->ranks, err);
    search each = *s;
    if (status == SP_OK) {
        int share = REFINEMENTS / st->ranks.count;
        each.refinements = share < LEAST_REFINEMENTS  ? LEAST_REFINEMENTS
                           : share > MOST_REFINEMENTS ? MOST_REFINEMENTS
                                                      : share;
    }
    for (int g = 0; status == SP_OK && g < st->ranks.count; g++) {
        status = search_group(&each, &st->ranks.groups[g], &st->best[g], err);
    }
    if (status == SP_OK) {
        status = level_times(&each, &st->ranks, st->best, err);
    }
    for (int g = 0; status == SP_OK && asymmetric && g < st->ranks.count; g++) {
        if (st->ranks.groups[g].count > 0) {
            status = try_merged_backward(s, &st->ranks.groups[g], &st->best[g], err);
        }
    }
    return status;
}

static sp_status write_packing(const search *s, const step *st, sp_packing *packing, sp_error *err)
{
    sp_status status = SP_OK;
    for (int g = 0; status == SP_OK && g < st->ranks.count; g++) {
        sp_i_rank_samples samples = samples_of(&st->ranks.groups[g]);
        if (samples.count > 0) {
            status = sp_i_micropacks_add(&s->work, s->input->batch, &samples, &st->best[g].shape,
                                         packing, err);
        }
    }
    return status;
}

// With `split` also the packing for apart gradients is searched, and the faster one taken; the
// order then runs it either way, as it is faster (evaluate_plan.c).
static sp_status pack(const sp_strategy_input *input, bool asymmetric, bool split,
                      sp_packing *packing, sp_error *err)
{
    search s = {.input = input};
    step whole = {0};
    step apart = {0};
    sp_packing_init(packing, input->batch, input->scenario->layout.dp);
    sp_status status = sp_i_work_measure(input->cost, TYPICAL_TOKENS, &s.work, err);
    if (status == SP_OK) {
        status = search_step(&s, asymmetric, &whole, err);
    }
    const step *chosen = &whole;
    if (status == SP_OK && split) {
        s.split = true;
        status = search_step(&s, asymmetric, &apart, err);
        sp_i_packflow_outcome of_whole = outcome_of(&whole);
        sp_i_packflow_outcome of_apart = outcome_of(&apart);
        chosen = status == SP_OK && sp_i_packflow_is_better(&of_apart, &of_whole) ? &apart : &whole;
    }
    if (status == SP_OK) {
        status = write_packing(&s, chosen, packing, err);
    }
    step_fini(&whole);
    step_fini(&apart);
    if (status != SP_OK) {
        sp_packing_fini(packing);
    }
    return status;
}

sp_status sp_i_pack_slimpack_symmetric(const sp_strategy_input *input, sp_packing *packing,
                                       sp_error *err)
{
    return pack(input, false, false, packing, err);
}

sp_status sp_i_pack_slimpack(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return pack(input, true, false, packing, err);
}

sp_status sp_i_pack_slimpack_zb(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return pack(input, true, true, packing, err);
}
