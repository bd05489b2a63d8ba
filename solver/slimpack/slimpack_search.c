#include "solver/slimpack/slimpack_search.h"

#include "sim/base/alloc.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"
#include "solver/slimpack/rank_split.h"
#include "solver/slimpack/shape_search.h"
#include "solver/step/step.h"

// A sample beyond this share of a rank's fair share gets several ranks.
#define MERGE_SHARE 0.95

// Part of a time limit that is searched; the rest is for writing the packs and their order down.
#define SEARCHING 0.9

enum {
    TRIALS = 6000,     // of all ranks together
    LEAST_TRIALS = 60, // of one rank
    MOST_TRIALS = 2000,
    LEVELLINGS = 4,
    TYPICAL_TOKENS = 4096
};

// A search and the step as it stands: the ranks' samples and the shape of each group's packs.
typedef struct search {
    const sp_strategy_input *input;
    sp_i_slimpack_options options;
    sp_i_work work;
    sp_i_rank_scorer *scorers; // [threads]
    int threads;
    int trials; // of one group
    sp_i_rank_split ranks;
    sp_i_best_shape *best; // [groups]
} search;

sp_i_slimpack_options sp_i_slimpack_options_of(const sp_strategy_spec *spec, bool asymmetric,
                                               bool split)
{
    sp_i_slimpack_options options = {
        .asymmetric = asymmetric && spec->asymmetric, .split = split, .trials = TRIALS};
    if (spec->time_limit_ms > 0) {
        options.deadline_s = sp_clock_s() + SEARCHING * 1e-3 * (double)spec->time_limit_ms;
    }
    return options;
}

// Ways of context parallelism that cut whole packs need backward packs that mirror the forward
// packs (sim/cost/attention_load.h).
static bool may_regroup(const sp_layout *layout)
{
    return layout->cp_sharding == SP_SHARD_EVEN || layout->cp_sharding == SP_SHARD_DOCUMENT;
}

static void search_fini(search *s)
{
    for (int i = 0; s->scorers != NULL && i < s->threads; i++) {
        sp_i_rank_scorer_fini(&s->scorers[i]);
    }
    sp_i_free(s->scorers);
    sp_i_free(s->best);
    sp_i_rank_split_fini(&s->ranks);
}

// Samples to ranks. A sample that no rank can hold, or that is most of a rank's work, gets several.
static sp_status split_ranks(search *s, sp_error *err)
{
    const sp_scenario *scenario = s->input->scenario;
    const sp_strategy_spec *spec = &scenario->strategy;
    const sp_batch *batch = s->input->batch;
    sp_i_merge_costs costs;
    sp_status status =
        sp_i_merge_costs_measure(s->input->cost, sp_batch_longest(batch), &costs, err);
    if (status == SP_OK) {
        status = sp_i_rank_split_priced(
            &s->work, batch, scenario->layout.dp, &costs, spec->dp_merge ? MERGE_SHARE : 0.0,
            sp_i_rank_scorer_most_tokens(&s->scorers[0], s->options.split), &s->ranks, err);
    }
    // A quarter of a time limit.
    int64_t limit_ms = spec->time_limit_ms > 0 ? spec->time_limit_ms / 4 + 1 : 0;
    return status == SP_OK && spec->milp
               ? sp_i_rank_split_prove(&s->work, batch, limit_ms, spec->mip_gap, &s->ranks, err)
               : status;
}

static sp_status search_init(search *s, const sp_strategy_input *input,
                             const sp_i_slimpack_options *options, sp_error *err)
{
    const sp_scenario *scenario = input->scenario;
    int dp = scenario->layout.dp;
    *s = (search){.input = input, .options = *options};
    s->options.asymmetric = options->asymmetric && may_regroup(&scenario->layout);
    s->threads = input->threads < 1 ? 1 : input->threads < dp ? input->threads : dp;
    s->scorers = sp_i_calloc((size_t)s->threads, sizeof *s->scorers);
    s->best = sp_i_calloc((size_t)dp, sizeof *s->best);
    sp_status status = s->scorers != NULL && s->best != NULL
                           ? SP_OK
                           : sp_error_no_memory(err, "the search for a packing");
    for (int i = 0; status == SP_OK && i < s->threads; i++) {
        status = sp_i_rank_scorer_init(&s->scorers[i], scenario, input->cost,
                                       sp_batch_longest(input->batch), err);
    }
    if (status == SP_OK) {
        status = sp_i_work_measure(input->cost, TYPICAL_TOKENS, &s->work, err);
    }
    if (status == SP_OK) {
        status = split_ranks(s, err);
    }
    if (status == SP_OK) {
        int share = options->trials / s->ranks.count;
        s->trials = share < LEAST_TRIALS ? LEAST_TRIALS : share > MOST_TRIALS ? MOST_TRIALS : share;
    }
    return status;
}

static sp_i_rank_samples samples_of(const sp_i_rank_group *group)
{
    return (sp_i_rank_samples){group->sample, group->count, group->dp_first, group->dp_count};
}

// Each group's share of the time that is left, where it is limited.
static double group_deadline_s(const search *s, int group)
{
    if (s->options.deadline_s <= 0.0) {
        return 0.0;
    }
    double now_s = sp_clock_s();
    double rounds = (double)(s->ranks.count - group + s->threads - 1) / s->threads;
    return now_s + (s->options.deadline_s - now_s) / (rounds > 1.0 ? rounds : 1.0);
}

static sp_i_shape_search shapes_of(search *s, int worker, int trials)
{
    const sp_strategy_spec *spec = &s->input->scenario->strategy;
    return (sp_i_shape_search){.scorer = &s->scorers[worker],
                               .work = &s->work,
                               .batch = s->input->batch,
                               .split = s->options.split,
                               .taper = spec->taper,
                               .slice_tokens = spec->slices ? spec->slice_tokens : INT64_MAX / 4,
                               .trials = trials};
}

static sp_status search_group(void *context, int worker, int group, sp_error *err)
{
    search *s = context;
    const sp_i_rank_group *ranks = &s->ranks.groups[group];
    sp_i_rank_samples samples = samples_of(ranks);
    sp_i_shape_search shapes = shapes_of(s, worker, s->trials);
    shapes.deadline_s = group_deadline_s(s, group);
    s->best[group] = (sp_i_best_shape){.out = {.fits = true}};
    return ranks->count > 0
               ? sp_i_search_shape(&shapes, &samples, ranks->work_s, false, &s->best[group], err)
               : SP_OK;
}

// Two groups after samples went from one to the other.
typedef struct moved {
    search *s;
    sp_i_rank_split *split;
    int group[2];
    sp_i_best_shape best[2];
} moved;

static sp_status search_moved(void *context, int worker, int which, sp_error *err)
{
    moved *m = context;
    const sp_i_rank_group *ranks = &m->split->groups[m->group[which]];
    sp_i_rank_samples samples = samples_of(ranks);
    sp_i_shape_search shapes = shapes_of(m->s, worker, LEAST_TRIALS);
    shapes.deadline_s = m->s->options.deadline_s;
    bool warm = m->s->best[m->group[which]].out.makespan_ns > 0;
    m->best[which] = m->s->best[m->group[which]];
    return sp_i_search_shape(&shapes, &samples, ranks->work_s, warm, &m->best[which], err);
}

// Equal work is not equal time: the rank with the longest sample has more idle time. Samples go
// from the slowest group to the fastest as long as the slower of the two gets faster.
static sp_status level_once(search *s, bool *improved, sp_error *err)
{
    int slow = 0;
    int fast = 0;
    *improved = false;
    for (int g = 1; g < s->ranks.count; g++) {
        slow = s->best[g].out.makespan_ns > s->best[slow].out.makespan_ns ? g : slow;
        fast = s->best[g].out.makespan_ns < s->best[fast].out.makespan_ns ? g : fast;
    }
    double slow_ns = (double)s->best[slow].out.makespan_ns;
    double fast_ns = (double)s->best[fast].out.makespan_ns;
    double moved_s = 0.5 * (1.0 - fast_ns / slow_ns) * s->ranks.groups[slow].work_s;
    sp_i_rank_split tried;
    bool any = false;
    sp_status status = sp_i_rank_split_copy(&s->ranks, &tried, err);
    if (status == SP_OK) {
        status =
            sp_i_rank_split_move(&s->work, s->input->batch, &tried, slow, fast, moved_s, &any, err);
    }
    moved m = {.s = s, .split = &tried, .group = {slow, fast}};
    if (status == SP_OK && any) {
        status = sp_i_parallel_for(s->threads, 2, search_moved, &m, err);
        *improved = status == SP_OK && sp_packflow_is_better(&m.best[0].out, &s->best[slow].out) &&
                    sp_packflow_is_better(&m.best[1].out, &s->best[slow].out);
    }
    if (*improved) {
        sp_i_rank_split_fini(&s->ranks);
        s->ranks = tried;
        s->best[slow] = m.best[0];
        s->best[fast] = m.best[1];
    } else {
        sp_i_rank_split_fini(&tried);
    }
    return status;
}

static sp_status level_times(search *s, sp_error *err)
{
    sp_status status = SP_OK;
    bool improved = s->ranks.count > 1;
    for (int round = 0; status == SP_OK && improved && round < LEVELLINGS * s->ranks.count;
         round++) {
        if (s->options.deadline_s > 0.0 && sp_clock_s() > s->options.deadline_s) {
            break;
        }
        status = level_once(s, &improved, err);
    }
    return status;
}

// Backward packs of their own for every group.
static sp_status regroup(void *context, int worker, int group, sp_error *err)
{
    search *s = context;
    const sp_i_rank_group *ranks = &s->ranks.groups[group];
    sp_i_rank_samples samples = samples_of(ranks);
    sp_i_shape_search shapes = shapes_of(s, worker, s->trials);
    shapes.deadline_s = group_deadline_s(s, group);
    return ranks->count > 0 ? sp_i_search_regrouped(&shapes, &samples, &s->best[group], err)
                            : SP_OK;
}

static sp_status write_packing(const search *s, sp_packing *packing, sp_error *err)
{
    int dp = s->input->scenario->layout.dp;
    sp_status status = SP_OK;
    sp_packing_init(packing, s->input->batch, dp);
    for (int g = 0; status == SP_OK && g < s->ranks.count; g++) {
        sp_i_rank_samples samples = samples_of(&s->ranks.groups[g]);
        sp_packing rank;
        sp_packing_init(&rank, s->input->batch, dp);
        if (samples.count > 0) {
            status = sp_i_micropacks_make(&s->work, s->input->batch, &samples, &s->best[g].shape,
                                          &rank, NULL, err);
        }
        if (status == SP_OK) {
            status = sp_i_micropacks_append(&rank, packing, err);
        }
        sp_packing_fini(&rank);
    }
    if (status != SP_OK) {
        sp_packing_fini(packing);
    }
    return status;
}

// The slowest group's.
static sp_packflow_outcome outcome_of(const search *s)
{
    sp_packflow_outcome all = {.fits = true};
    for (int g = 0; g < s->ranks.count; g++) {
        const sp_packflow_outcome *out = &s->best[g].out;
        if (s->ranks.groups[g].count > 0) {
            all.fits = all.fits && out->fits;
            all.makespan_ns =
                out->makespan_ns > all.makespan_ns ? out->makespan_ns : all.makespan_ns;
        }
    }
    return all;
}

// The packs as they stand take the place of *packing, which is empty at first, where they are
// better.
static sp_status judge(const search *s, sp_packing *packing, sp_packflow_outcome *outcome,
                       sp_error *err)
{
    sp_packing now;
    sp_packflow_outcome judged = {0};
    sp_status status = write_packing(s, &now, err);
    if (status != SP_OK) {
        return status;
    }
    status = sp_step_judge(s->input, &now, &judged, err);
    bool better =
        status == SP_OK && (packing->forward.count == 0 || sp_packflow_is_better(&judged, outcome));
    sp_packing_fini(better ? packing : &now);
    if (better) {
        *packing = now;
        *outcome = judged;
    }
    return status;
}

sp_status sp_i_slimpack_search(const sp_strategy_input *input, const sp_i_slimpack_options *options,
                               sp_packing *packing, sp_packflow_outcome *outcome, sp_error *err)
{
    search s;
    sp_packing best;
    sp_packing_init(&best, input->batch, input->scenario->layout.dp);
    sp_status status = search_init(&s, input, options, err);
    if (status == SP_OK) {
        status = sp_i_parallel_for(s.threads, s.ranks.count, search_group, &s, err);
    }
    if (status == SP_OK) {
        status = level_times(&s, err);
    }
    if (status == SP_OK && packing != NULL) {
        status = judge(&s, &best, outcome, err);
    }
    if (status == SP_OK && s.options.asymmetric) {
        status = sp_i_parallel_for(s.threads, s.ranks.count, regroup, &s, err);
    }
    if (status == SP_OK && packing == NULL) {
        *outcome = outcome_of(&s);
    } else if (status == SP_OK && s.options.asymmetric) {
        status = judge(&s, &best, outcome, err);
    }
    if (status == SP_OK && packing != NULL) {
        *packing = best;
    } else {
        sp_packing_fini(&best);
    }
    search_fini(&s);
    return status;
}
