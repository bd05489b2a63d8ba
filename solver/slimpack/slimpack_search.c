#include "solver/slimpack/slimpack_search.h"

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "solver/slimpack/search_state.h"
#include "solver/step/step.h"
#include "solver/time_limit.h"

// A sample beyond this share of a rank's fair share gets several ranks.
#define MERGE_SHARE 0.95

// Other groups of ranks are looked at where the largest has so much more than its share of the
// work, of many samples more, as a look at them takes longer; and are searched where a look takes
// no longer than so many times what the first came to.
#define UNEVEN 0.1
#define UNEVEN_MANY 0.25
#define PROMISING 1.1

// Part of the time left in which samples are given to ranks by integer programs.
#define PROVING 0.25

enum {
    EFFORT = 500000, // actions timed for all ranks together, about
    // Packs of few samples are cut in many ways of nearly one time, and each is soon timed: with
    // three times the effort a local search finds less than 1 % beyond (build/bench/local_search).
    FEW_SAMPLES = 32,
    EFFORT_FOR_FEW = 3 * EFFORT,
    TYPICAL_TOKENS = 4096,
    SLICE_TOKENS = 8192, // that ranks are merged for before any packs are tried
    MANY_SAMPLES = 48,   // a rank
    SPLIT = 20,          // work of a sample that is given to a rank (solver/time_limit.h)
    LEAST_LOOK = 500     // actions timed of each virtual stage for other groups of ranks
};

int64_t sp_i_slimpack_effort(const sp_strategy_spec *spec, int64_t usual)
{
    return spec->effort_percent > 0 ? usual * spec->effort_percent / 100 : usual;
}

bool sp_i_has_few_samples(const sp_batch *batch)
{
    return batch->count <= FEW_SAMPLES;
}

sp_i_slimpack_options sp_i_slimpack_options_of(const sp_strategy_input *input, bool asymmetric,
                                               bool split)
{
    const sp_strategy_spec *spec = &input->scenario->strategy;
    int64_t usual = sp_i_has_few_samples(input->batch) ? EFFORT_FOR_FEW : EFFORT;
    return (sp_i_slimpack_options){.asymmetric = asymmetric && spec->asymmetric,
                                   .split = split,
                                   .effort = sp_i_slimpack_effort(spec, usual),
                                   .deadline_s = input->deadline_s};
}

// Ways of context parallelism that cut whole packs need backward packs that mirror the forward
// packs (sim/cost/attention_load.c).
static bool may_regroup(const sp_layout *layout)
{
    return layout->cp_sharding == SP_SHARD_EVEN || layout->cp_sharding == SP_SHARD_DOCUMENT;
}

static void search_fini(sp_i_search *s)
{
    for (int i = 0; i < s->threads; i++) {
        sp_i_rank_scorer_fini(&s->scorers[i]);
    }
    sp_free(s->scorers);
    sp_free(s->best);
    sp_free(s->order);
    sp_free(s->used);
    sp_free(s->spent);
    sp_i_rank_split_fini(&s->ranks);
}

static double merge_share(const sp_i_search *s)
{
    return s->input->scenario->strategy.dp_merge ? MERGE_SHARE : 0.0;
}

static int64_t token_limit(const sp_i_search *s)
{
    return sp_i_rank_scorer_most_tokens(&s->scorers[0], s->options.split);
}

// Samples to ranks. A sample that no rank can hold, or that is most of a rank's work, gets several.
static sp_status split_ranks(sp_i_search *s, sp_error *err)
{
    const sp_scenario *scenario = s->input->scenario;
    const sp_strategy_spec *spec = &scenario->strategy;
    const sp_batch *batch = s->input->batch;
    sp_i_merge_costs costs;
    sp_status status = sp_i_merge_costs_measure(s->input->cost, sp_batch_longest(batch),
                                                SLICE_TOKENS, &costs, err);
    if (status == SP_OK) {
        sp_i_merge_costs_keep_worth(&costs);
        sp_i_rank_split_priced(&s->work, batch, scenario->layout.dp, &costs, merge_share(s),
                               token_limit(s), &s->ranks);
    }
    double deadline_s = sp_i_deadline_part_s(s->options.deadline_s, PROVING);
    int64_t limit_ms = sp_i_deadline_left_ms(deadline_s);
    return status == SP_OK && spec->milp
               ? sp_i_rank_split_prove(&s->work, batch, limit_ms, spec->mip_gap, &s->ranks, err)
               : status;
}

static sp_status search_init(sp_i_search *s, const sp_strategy_input *input,
                             const sp_i_slimpack_options *options, sp_error *err)
{
    const sp_scenario *scenario = input->scenario;
    int dp = scenario->layout.dp;
    *s = (sp_i_search){.input = input, .options = *options};
    s->options.asymmetric = options->asymmetric && may_regroup(&scenario->layout);
    s->threads = input->threads < 1 ? 1 : input->threads < dp ? input->threads : dp;
    s->scorers = sp_calloc((size_t)s->threads, sizeof *s->scorers);
    s->best = sp_calloc((size_t)dp, sizeof *s->best);
    s->order = sp_calloc((size_t)dp + 1, sizeof *s->order);
    s->used = sp_calloc((size_t)dp + 1, sizeof *s->used);
    s->spent = sp_calloc((size_t)dp + 1, sizeof *s->spent);
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < s->threads; i++) {
        sp_cost_model *cost;
        status = sp_cost_model_searching(input->cost, i, &cost, err);
        if (status == SP_OK) {
            status = sp_i_rank_scorer_init(&s->scorers[i], scenario, cost,
                                           sp_batch_longest(input->batch), err);
        }
    }
    if (status == SP_OK) {
        status = sp_i_work_measure(input->cost, TYPICAL_TOKENS, &s->work, err);
    }
    sp_i_spend(scenario, SPLIT * (int64_t)input->batch->count);
    sp_i_spend_idle(scenario, (int64_t)input->batch->count);
    return status == SP_OK ? split_ranks(s, err) : status;
}

// ---- groups of ranks ----

// The packs are what `packing` gets, which is empty, and the outcome that of the whole step; NULL:
// what a search without the groups that follow predicts.
static sp_status search_packs(sp_i_search *s, sp_packing *packing, sp_packflow_outcome *outcome,
                              sp_error *err)
{
    if (packing != NULL) {
        return sp_i_search_in_memory(s, packing, outcome, err);
    }
    sp_status status = sp_i_search_leaders(s, s->options.effort, err);
    *outcome = sp_i_search_outcome(s);
    return status;
}

static void swap_groups(sp_i_search *s, sp_i_rank_split *other)
{
    const sp_i_rank_split was = s->ranks;
    s->ranks = *other;
    *other = was;
}

// No packs of these groups take less time than their work, about.
static bool is_beaten(const sp_i_search *s, const sp_packflow_outcome *best)
{
    double chunks = s->input->scenario->layout.chunks;
    return best->lacking_bytes == 0 &&
           SP_NS_PER_S * chunks * sp_i_rank_split_largest_s(&s->ranks) > (double)best->makespan_ns;
}

// The best of other groups, by a short search of each; -1: none is worth a longer one.
static sp_status look_at_groupings(sp_i_search *s, sp_i_groupings *others,
                                   const sp_packflow_outcome *first, int *best, sp_error *err)
{
    sp_status status = SP_OK;
    sp_packflow_outcome least = *first;
    int64_t effort = LEAST_LOOK * sp_layout_vstages(&s->input->scenario->layout);
    effort = sp_larger(effort, s->options.effort / SP_I_SEARCH_PARTS);
    least.makespan_ns = sp_whole(PROMISING * (double)least.makespan_ns);
    *best = -1;
    for (int i = 0; status == SP_OK && i < others->count && !sp_i_search_is_late(s); i++) {
        swap_groups(s, &others->split[i]);
        if (!is_beaten(s, &least)) {
            status = sp_i_search_leaders(s, effort, err);
            const sp_packflow_outcome outcome = sp_i_search_outcome(s);
            if (status == SP_OK && sp_packflow_is_better(&outcome, &least)) {
                least = outcome;
                *best = i;
            }
        }
        swap_groups(s, &others->split[i]);
    }
    return status;
}

void sp_i_keep_better(sp_packing *best, sp_packflow_outcome *outcome, sp_packing *tried,
                      const sp_packflow_outcome *judged)
{
    bool better = sp_packflow_is_better(judged, outcome);
    sp_packing_fini(better ? best : tried);
    if (better) {
        *best = *tried;
        *outcome = *judged;
    }
}

sp_status sp_i_try_packs(const sp_strategy_input *input, sp_strategy_pack_function pack,
                         sp_packing *best, sp_packflow_outcome *outcome, sp_error *err)
{
    sp_error own;
    sp_packing tried;
    sp_packflow_outcome judged;
    if (sp_i_is_late(input->scenario, input->deadline_s)) {
        return SP_OK;
    }
    sp_error_clear(&own);
    sp_status status = pack(input, &tried, &own);
    if (status != SP_OK) {
        return sp_status_is_fatal(status) ? sp_error_set(err, status, "%s", own.message[0]) : SP_OK;
    }
    status = sp_step_judge_blocks(input, &tried, outcome, &judged, err);
    if (status != SP_OK) {
        sp_packing_fini(&tried);
        return status;
    }
    sp_i_keep_better(best, outcome, &tried, &judged);
    return SP_OK;
}

// Takes the packs of other groups where they are better.
static sp_status try_groups(sp_i_search *s, sp_packing *best, sp_packflow_outcome *outcome,
                            sp_error *err)
{
    sp_packing packing;
    sp_packflow_outcome tried;
    sp_packing_init(&packing, s->input->batch, s->input->scenario->layout.dp);
    sp_status status = search_packs(s, best != NULL ? &packing : NULL, &tried, err);
    if (status == SP_OK && best != NULL) {
        sp_i_keep_better(best, outcome, &packing, &tried);
        return SP_OK;
    }
    if (status == SP_OK && sp_packflow_is_better(&tried, outcome)) {
        *outcome = tried;
    }
    sp_packing_fini(&packing);
    return status;
}

// As if the first groups had not had less room, forwards that run again and packs of their own
// backward.
static void begin_anew(sp_i_search *s)
{
    s->retained = 0;
    s->regroups = false;
    s->round = 0;
    sp_i_search_set_spare(s, 0);
}

static sp_status search_other_groups(sp_i_search *s, sp_packing *best, sp_packflow_outcome *outcome,
                                     sp_error *err)
{
    int at;
    sp_i_groupings others;
    begin_anew(s);
    sp_status status = sp_i_groupings_make(s->input->cost, &s->work, s->input->batch,
                                           merge_share(s), token_limit(s), &s->ranks, &others, err);
    if (status != SP_OK) {
        return status;
    }
    sp_i_spend(s->input->scenario, SP_I_GROUPINGS * SPLIT * (int64_t)s->input->batch->count);
    sp_i_spend_idle(s->input->scenario, (int64_t)s->input->batch->count);
    status = look_at_groupings(s, &others, outcome, &at, err);
    if (status == SP_OK && at >= 0 && !sp_i_search_is_late(s)) {
        swap_groups(s, &others.split[at]);
        status = try_groups(s, best, outcome, err);
    }
    sp_i_groupings_fini(&others);
    return status;
}

static bool may_group_otherwise(const sp_i_search *s)
{
    int dp = s->input->scenario->layout.dp;
    bool many = s->input->batch->count > MANY_SAMPLES * (size_t)dp;
    double excess = sp_i_rank_split_excess(&s->ranks, dp);
    return merge_share(s) > 0.0 && excess > (many ? UNEVEN_MANY : UNEVEN) &&
           !sp_i_search_is_late(s);
}

static sp_status search_once(const sp_strategy_input *input, const sp_i_slimpack_options *options,
                             sp_packing *packing, sp_packflow_outcome *outcome, sp_error *err)
{
    sp_i_search s;
    sp_packing best;
    sp_packing *made = packing != NULL ? &best : NULL;
    sp_packing_init(&best, input->batch, input->scenario->layout.dp);
    sp_status status = search_init(&s, input, options, err);
    if (status == SP_OK) {
        status = search_packs(&s, made, outcome, err);
    }
    if (status == SP_OK && may_group_otherwise(&s)) {
        status = search_other_groups(&s, made, outcome, err);
    }
    if (status == SP_OK && packing != NULL) {
        *packing = best;
    } else {
        sp_packing_fini(&best);
    }
    search_fini(&s);
    return status;
}

// Scores of packs know nothing of the cold start of groups, which the whole step counts: where
// there is one, packs of ranks that share none are searched for, too.
static sp_status search_apart(const sp_strategy_input *input, const sp_i_slimpack_options *options,
                              sp_packing *packing, sp_packflow_outcome *outcome, sp_error *err)
{
    sp_scenario scenario = *input->scenario;
    sp_strategy_input with = *input;
    sp_packing apart;
    sp_packflow_outcome judged;
    scenario.strategy.dp_merge = false;
    with.scenario = &scenario;
    sp_status status = search_once(&with, options, &apart, &judged, err);
    if (status != SP_OK) {
        return status;
    }
    sp_i_keep_better(packing, outcome, &apart, &judged);
    return SP_OK;
}

sp_status sp_i_slimpack_search(const sp_strategy_input *input, const sp_i_slimpack_options *options,
                               sp_packing *packing, sp_packflow_outcome *outcome, sp_error *err)
{
    bool starts = input->starts != NULL && input->starts->start_ms > 0.0 &&
                  input->scenario->strategy.dp_merge && input->scenario->layout.dp > 1;
    sp_status status = search_once(input, options, packing, outcome, err);
    if (status == SP_OK && packing != NULL && starts &&
        !sp_i_is_late(input->scenario, options->deadline_s)) {
        status = search_apart(input, options, packing, outcome, err);
        if (status != SP_OK) {
            sp_packing_fini(packing);
        }
    }
    return status;
}
