// The strategies slimpack-symmetric, slimpack, slimpack-zb and slimpack-zones (arXiv 2509.26246):
// packs of the search, packs of all ranks together and packs of nested groups, of which the best in
// the whole step are taken.
#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/metrics/result.h"
#include "solver/rows.h"
#include "solver/search.h"
#include "solver/slimpack/slimpack_search.h"
#include "solver/step/step.h"
#include "solver/strategy_list.h"

// Part of the time in which packs are searched for before nested groups are tried.
#define SEARCHING 0.5
// Part of the work before nested groups, and packs of all ranks, are tried.
#define PACKING_WORK 0.6

// A step that takes so many times what level ranks would has ranks that wait, or merged ranks whose
// exchange is dear: 512 documents of Wikipedia on 2 ranks and 8 stages come to 1.14. Of 170 random
// jobs (tests/bench/rivals.c) 17 gain 0.5 to 9 % by packs of all ranks or zeppelin's: those with
// few samples or little memory, those from 1.22 times on, and two far from their work (below).
#define UNEVEN_STEP 1.2

// So many times its work is a step that other packs may make much shorter: long samples on
// pipelines too deep for them, or context parallelism that makes small packs dear. Documents of
// Wikipedia come to 1.1 to 1.4. Without a pipeline, where nothing fills and drains and packs are
// soon made, one of these jobs gains 1.5 % at 1.38 times, and one 9 % at 1.8.
#define FAR_FROM_WORK 1.6
#define FAR_WITHOUT_PIPELINE 1.2

// With a pipeline a short search for packs of all ranks, without zones, tells where they are not
// faster: of 99 of these jobs it came to 0.92 to 1.02 times the step so far in the 10 that gain by
// them, and in the 34 in which it came to more than this they are 4 % slower or more.
#define FAR_LOOK 1.5
enum { LOOK_PARTS = 12 }; // of the effort of a whole search; 6 and 24 changed none of 12 jobs

// With the margin of memory left free a step takes at least so many times what it took without: in
// 21 steps of 30 random jobs no less than 0.989 times.
#define SPARED 0.95

// So many times the best step so far may take packs that are run in 1F1B, too. With 1.02 and 1.5
// none of 53 steps with a pipeline changed.
#define NEAR_BEST 1.1

// One data-parallel rank of all their GPUs.
typedef struct all_ranks_pool {
    sp_scenario scenario;
    sp_cost_model cost;
    sp_strategy_input input;
} all_ranks_pool;

static bool may_share(const sp_scenario *scenario);
static sp_status pack_for_all_ranks(const sp_strategy_input *input, sp_strategy_pack_function pack,
                                    sp_packing *packing, sp_error *err);
static sp_status pool_init(all_ranks_pool *pool, const sp_strategy_input *input, sp_error *err);
static void pool_fini(all_ranks_pool *pool);
static sp_status try_nested_groups(const sp_strategy_input *input, sp_packing *packing,
                                   sp_packflow_outcome *outcome, sp_error *err);

// With a pipeline a tight step is judged again with the margin of memory left free, and taken so
// where that is better, or where it then fits well and the best so far does.
static sp_status judge_packs(const sp_strategy_input *input, bool counts_blocks,
                             sp_packing *packing, const sp_packflow_outcome *best,
                             sp_packflow_outcome *tried, sp_error *err)
{
    sp_packflow_outcome spared;
    sp_status status = counts_blocks ? sp_step_judge_blocks(input, packing, best, tried, err)
                                     : sp_step_judge(input, packing, tried, err);
    const sp_packflow_outcome least = {.makespan_ns =
                                           sp_whole(SPARED * (double)tried->makespan_ns)};
    if (status != SP_OK || !tried->tight || input->scenario->layout.pp == 1 ||
        packing->spare_bytes > 0 || !sp_packflow_is_better(&least, best)) {
        return status;
    }
    packing->spare_bytes = sp_whole(SP_MEMORY_TIGHT * (double)input->scenario->memory_limit_bytes);
    status = sp_step_judge(input, packing, &spared, err);
    bool fits_well = status == SP_OK && !sp_packflow_is_short(&spared);
    if (status == SP_OK &&
        (sp_packflow_is_better(&spared, tried) || (fits_well && !sp_packflow_is_short(best)))) {
        *tried = spared;
    } else {
        packing->spare_bytes = 0;
    }
    return status;
}

// With a pipeline of one chunk packs that have none of their own backward are run as 1F1B runs
// them, too, where their step is not far from the best: data-parallel ranks that share some then
// keep one order, and with fewer in flight less is lost to gaps between blocks.
static sp_status try_in_1f1b(const sp_strategy_input *input, bool gaps, sp_packing *packing,
                             const sp_packflow_outcome *best, sp_packflow_outcome *tried,
                             sp_error *err)
{
    const sp_layout *layout = &input->scenario->layout;
    sp_packflow_outcome few;
    const sp_packflow_outcome least = {.makespan_ns =
                                           sp_whole((double)tried->makespan_ns / NEAR_BEST)};
    if (layout->pp == 1 || layout->chunks > 1 || packing->backward.count > 0 ||
        !sp_packflow_is_better(&least, best)) {
        return SP_OK;
    }
    packing->in_1f1b = true;
    sp_status status = gaps ? sp_step_judge_gaps(input, packing, &few, err)
                            : sp_step_judge(input, packing, &few, err);
    if (status == SP_OK && sp_packflow_is_better(&few, tried)) {
        *tried = few;
    } else {
        packing->in_1f1b = false;
    }
    return status;
}

// Takes packs of an input that may differ from the one that they are judged by, where they are
// better in the whole step. *tried is what they come to. Ends the packing or takes it over.
static sp_status keep_packs(const sp_strategy_input *input, const sp_strategy_input *with,
                            bool counts_blocks, sp_packing *packing, sp_packing *best,
                            sp_packflow_outcome *outcome, sp_packflow_outcome *tried, sp_error *err)
{
    if (with != input) {
        packing->row_tokens = with->scenario->strategy.rank_tokens; // a budget that is tried
    }
    sp_status status = judge_packs(input, counts_blocks, packing, outcome, tried, err);
    if (status == SP_OK) {
        status = try_in_1f1b(input, false, packing, outcome, tried, err);
    }
    if (status != SP_OK) {
        sp_packing_fini(packing);
        return status;
    }
    sp_i_keep_better(best, outcome, packing, tried);
    return SP_OK;
}

// Takes the packs that `pack` makes, as keep_packs(), where time is left. *tried stays as it is
// where no packs are made. Only fatal errors are returned.
static sp_status try_packs(const sp_strategy_input *input, const sp_strategy_input *with,
                           sp_strategy_pack_function pack, bool counts_blocks, sp_packing *best,
                           sp_packflow_outcome *outcome, sp_packflow_outcome *tried, sp_error *err)
{
    sp_error own;
    sp_packing packing;
    if (sp_i_is_late(with->scenario, with->deadline_s)) {
        return SP_OK;
    }
    sp_error_clear(&own);
    sp_strategy_input than = *with;
    than.beaten = outcome;
    sp_status status = pack(&than, &packing, &own);
    return status == SP_OK
               ? keep_packs(input, with, counts_blocks, &packing, best, outcome, tried, err)
               : sp_i_only_fatal(status, &own, err);
}

static sp_status pack_symmetric_for_all(const sp_strategy_input *input, sp_packing *packing,
                                        sp_error *err)
{
    return pack_for_all_ranks(input, sp_i_pack_slimpack_symmetric, packing, err);
}

static sp_status pack_slimpack_for_all(const sp_strategy_input *input, sp_packing *packing,
                                       sp_error *err)
{
    return pack_for_all_ranks(input, sp_i_pack_slimpack, packing, err);
}

static bool runs_again(const sp_packing *packing)
{
    bool again = false;
    for (size_t k = 0; k < packing->forward.count; k++) {
        again = again || packing->forward.packs[k].runs_again;
    }
    return again;
}

// How many times longer a step takes than if all data-parallel ranks had the same work in as many
// packs and none was merged with another.
static sp_status times_level(const sp_strategy_input *input, const sp_packing *packing,
                             const sp_packflow_outcome *outcome, double *times, sp_error *err)
{
    const sp_layout *layout = &input->scenario->layout;
    const sp_batch *batch = input->batch;
    double packs = 0.0; // of a rank
    double work_s = 0.0;
    sp_i_work work;
    sp_status status = sp_i_work_measure(input->cost, SP_I_TYPICAL_TOKENS, &work, err);
    for (size_t i = 0; status == SP_OK && i < batch->count; i++) {
        work_s += sp_i_slice_work_s(&work, 0, batch->tokens[i]);
    }
    for (size_t k = 0; k < packing->forward.count; k++) {
        packs += (double)packing->forward.packs[k].dp_count / layout->dp;
    }
    double fill = (layout->pp - 1.0) / (packs * layout->chunks);
    *times = (double)outcome->makespan_ns / SP_NS_PER_S /
             (work_s * layout->chunks / layout->dp * (1.0 + fill));
    return status;
}

// How many times longer a step takes than the work of all samples at the cheapest rates, spread
// evenly over all ranks.
static double times_least_work(const sp_strategy_input *input, const sp_packflow_outcome *outcome)
{
    const sp_layout *layout = &input->scenario->layout;
    sp_sample_sums sums = {0};
    double work_s = 0.0;
    for (size_t i = 0; i < input->batch->count; i++) {
        sp_sample_sums_add(&sums, &input->scenario->model, input->batch->tokens[i]);
    }
    for (int v = 0; v < sp_layout_vstages(layout); v++) {
        work_s += sp_least_work_s(sp_cost_model_least_work(input->cost, v, 0), &sums);
    }
    return (double)outcome->makespan_ns / SP_NS_PER_S / (work_s / layout->dp / layout->pp);
}

// ---- packs by the rules of other strategies ----

// Each rule takes one packing and one simulated step, little beside a search. Its packs run in the
// order of PackFlow, mostly as fast as in the schedule of the strategy itself or faster.
typedef struct rule {
    sp_strategy_pack_function pack;
    bool shares; // packs among data-parallel ranks
    bool zones; // which need no padding of samples; among data-parallel ranks they are tried anyway
} rule;

static const rule rules[] = {
    {sp_i_pack_kk_flops, false, false}, {sp_i_pack_dp_balanced, false, false},
    {sp_i_pack_hybrid_dp, true, false}, {sp_i_pack_te_cp, true, false},
    {sp_i_pack_bytescale, true, false}, {sp_i_pack_hybrid_cp, true, false},
    {sp_i_pack_zeppelin, false, true}};

static bool may_differ(const rule *by, const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    return by->zones    ? layout->dp == 1 && layout->cp > 1 && scenario->strategy.zones
           : by->shares ? layout->dp > 1
                        : true;
}

// Gains of less than half a percent are not looked for: a quarter changed no plan of 16 random
// jobs, one percent none of 15.
#define AT_WORK 1.005

// A search with a part of its effort is a first look, which rules would make half as dear again.
// With a part of SlimPack switched off the packs are to show what the others are worth. A strategy
// of slices is refused models that hand on a state (step.c), whatever its packs.
static bool may_rule(const sp_strategy_input *input)
{
    const sp_strategy_spec *spec = &input->scenario->strategy;
    return spec->effort_percent == 0 && spec->slices && spec->taper && spec->dp_merge &&
           spec->milp && !input->zoned && !sp_model_has_state(&input->scenario->model);
}

static double pack_s(const sp_i_work *work, const sp_pack_list *list, const sp_pack *pack,
                     bool backward)
{
    double all_s = backward ? work->backward.pack_s : work->forward.pack_s;
    for (size_t i = pack->first_slice; i < pack->first_slice + pack->slice_count; i++) {
        all_s += sp_i_slice_pass_s(work, backward, list->slices[i].begin, list->slices[i].tokens) /
                 pack->dp_count;
    }
    return all_s;
}

// Of a backward, what others wait for: weight gradients may come later, about half of its work.
static double backward_share(const sp_strategy_input *input)
{
    return input->scenario->schedule.split_backward ? 0.5 : 1.0;
}

// About the least that the busiest data-parallel rank takes, by which packs are left out before
// they are simulated: its work, and what its last pipeline rank waits for the first forward and its
// first one after the last backward. No bound: packs are those of forwards alone, at the search's
// prices. Ranks that share packs exchange for nothing.
static double guessed_step_s(const sp_strategy_input *input, const sp_i_work *work,
                             const sp_packing *packing)
{
    const sp_layout *layout = &input->scenario->layout;
    const sp_pack_list *list = &packing->forward;
    double most_s = 0.0;
    double *rank_s = sp_calloc(2 * (size_t)layout->dp, sizeof *rank_s);
    double *fill_s = rank_s + layout->dp;
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        double forward_s = pack_s(work, list, pack, false);
        double backward_s = pack_s(work, list, pack, true);
        double way_s = (layout->pp - 1) * (forward_s + backward_share(input) * backward_s);
        for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
            fill_s[d] = rank_s[d] > 0.0 ? fmin(fill_s[d], way_s) : way_s;
            rank_s[d] += layout->chunks * (forward_s + backward_s);
        }
    }
    for (int d = 0; d < layout->dp; d++) {
        most_s = fmax(most_s, rank_s[d] + fill_s[d]);
    }
    sp_free(rank_s);
    return most_s;
}

// About the least that the longest sample takes as one pack, on as many ranks as may share it: it
// goes through all stages forward and backward.
static double longest_way_s(const sp_strategy_input *input, const sp_i_work *work, bool shares)
{
    const sp_layout *layout = &input->scenario->layout;
    const int64_t tokens = sp_batch_longest(input->batch);
    const double way_s = sp_i_slice_pass_s(work, false, 0, tokens) +
                         backward_share(input) * sp_i_slice_pass_s(work, true, 0, tokens);
    return way_s * sp_layout_vstages(layout) / (shares ? layout->dp : 1);
}

static size_t most_packs(const sp_packing *packing)
{
    size_t most = 0;
    for (int d = 0; d < packing->dp; d++) {
        size_t count = 0;
        for (size_t k = 0; k < packing->forward.count; k++) {
            const sp_pack *pack = &packing->forward.packs[k];
            count += pack->dp_first <= d && d < pack->dp_first + pack->dp_count;
        }
        most = count > most ? count : most;
    }
    return most;
}

static bool is_in_reach(const sp_packflow_outcome *outcome, double least_s)
{
    return sp_packflow_is_short(outcome) || SP_NS_PER_S * least_s < (double)outcome->makespan_ns;
}

// Packs of `rank_tokens` at most on a rank, 0: as many as the strategy takes by itself. *most
// becomes how many packs a rank runs at most, 0: there are none.
static sp_status try_rule(const sp_strategy_input *input, const sp_i_work *work, const rule *by,
                          int64_t rank_tokens, size_t *most, sp_packing *best,
                          sp_packflow_outcome *outcome, sp_error *err)
{
    sp_error own;
    sp_packing packing;
    sp_packflow_outcome tried;
    sp_scenario scenario = *input->scenario;
    sp_strategy_input with = *input;
    *most = 0;
    with.scenario = &scenario;
    scenario.strategy.rank_tokens = rank_tokens;
    sp_error_clear(&own);
    sp_status status = by->pack(&with, &packing, &own);
    if (status != SP_OK) {
        return sp_i_only_fatal(status, &own, err);
    }
    *most = most_packs(&packing);
    packing.row_tokens = rank_tokens > 0 ? rank_tokens : packing.row_tokens;
    if (!is_in_reach(outcome, guessed_step_s(input, work, &packing)) ||
        sp_step_is_beaten(input, &packing, outcome)) {
        sp_packing_fini(&packing);
        return SP_OK;
    }
    return keep_packs(input, input, true, &packing, best, outcome, &tried, err);
}

// Of packs that ranks share fewer and larger ones are tried, too, where a rank has few of them.
enum { FEW_PACKS = 32 };

static sp_status try_rule_in_sizes(const sp_strategy_input *input, const sp_i_work *work,
                                   const rule *by, sp_packing *best, sp_packflow_outcome *outcome,
                                   sp_error *err)
{
    const int64_t stated = input->scenario->strategy.rank_tokens;
    size_t most;
    sp_status status = try_rule(input, work, by, stated, &most, best, outcome, err);
    int64_t tokens = by->shares && stated == 0 ? 2 * sp_i_merged_rank_tokens(input) : 0;
    while (status == SP_OK && tokens > 0 && tokens < 2 * input->batch->total_tokens && most > 1 &&
           most <= FEW_PACKS) {
        status = try_rule(input, work, by, tokens, &most, best, outcome, err);
        tokens *= 2;
    }
    return status;
}

// At the rates of the longest sample, which are the best.
static sp_status try_rules(const sp_strategy_input *input, sp_packing *best,
                           sp_packflow_outcome *outcome, sp_error *err)
{
    sp_i_work work;
    if (!may_rule(input)) {
        return SP_OK;
    }
    sp_status status = sp_i_work_measure(
        input->cost, sp_larger(sp_batch_longest(input->batch), SP_I_TYPICAL_TOKENS), &work, err);
    for (size_t i = 0; status == SP_OK && i < sizeof rules / sizeof *rules; i++) {
        bool differs = may_differ(&rules[i], input->scenario);
        bool gains = sp_packflow_is_short(outcome) || times_least_work(input, outcome) > AT_WORK;
        if (differs && gains &&
            is_in_reach(outcome, longest_way_s(input, &work, rules[i].shares)) &&
            !sp_i_is_late(input->scenario, input->deadline_s)) {
            status = try_rule_in_sizes(input, &work, &rules[i], best, outcome, err);
        }
    }
    return status;
}

sp_status sp_i_best_rule(const sp_strategy_input *input, sp_packflow_outcome *outcome,
                         sp_error *err)
{
    sp_packing best;
    sp_packing_init(&best, input->batch, input->scenario->layout.dp);
    sp_status status = try_rules(input, &best, outcome, err);
    sp_packing_fini(&best);
    return status;
}

// Are packs of all ranks far slower by a short search?
static sp_status look_at_all_ranks(const sp_strategy_input *input,
                                   const sp_packflow_outcome *outcome, bool *far, sp_error *err)
{
    all_ranks_pool pool;
    sp_packflow_outcome looked = SP_PACKFLOW_WORST;
    sp_status status = pool_init(&pool, input, err);
    if (status != SP_OK) {
        return status;
    }
    sp_i_slimpack_options options = sp_i_slimpack_options_of(&pool.input, false, false);
    options.effort /= LOOK_PARTS;
    status = sp_i_slimpack_search(&pool.input, &options, NULL, &looked, err);
    pool_fini(&pool);
    *far = status == SP_OK && (double)looked.makespan_ns > FAR_LOOK * (double)outcome->makespan_ns;
    return status;
}

// May packs of all ranks be better than those that are there? A rank holds least of a pack that all
// ranks share, few samples and some long ones mostly leave ranks uneven that run packs of their
// own, and ranks that meet in every layer (ZeRO 3) wait least for each other in such packs. With a
// pipeline blocks are not counted, and a tight step may fit well.
static sp_status may_gain_by_all_ranks(const sp_strategy_input *input, const sp_packing *packing,
                                       const sp_packflow_outcome *outcome, bool *may, sp_error *err)
{
    const sp_scenario *scenario = input->scenario;
    const bool alone = sp_i_may_nest(scenario);
    const bool is_short =
        outcome->lacking_bytes > 0 || runs_again(packing) || (outcome->tight && alone);
    const bool meets = sp_layout_parameter_ranks(&scenario->layout) > 1;
    double times = 0.0;
    bool far = false;
    sp_status status = times_level(input, packing, outcome, &times, err);
    *may = is_short || meets || times > UNEVEN_STEP || sp_i_has_few_samples(input->batch) ||
           times_least_work(input, outcome) > (alone ? FAR_WITHOUT_PIPELINE : FAR_FROM_WORK);
    if (status == SP_OK && *may && scenario->layout.pp > 1 && !is_short &&
        !sp_i_is_late(scenario, input->deadline_s)) {
        status = look_at_all_ranks(input, outcome, &far, err);
        *may = !far;
    }
    return status;
}

static sp_status try_all_ranks(const sp_strategy_input *input, bool asymmetric, sp_packing *packing,
                               sp_packflow_outcome *outcome, sp_error *err)
{
    sp_packflow_outcome tried;
    sp_error own;
    bool may = false;
    if (!may_share(input->scenario)) {
        return SP_OK;
    }
    sp_error_clear(&own);
    sp_status status = may_gain_by_all_ranks(input, packing, outcome, &may, &own);
    if (status != SP_OK || !may) {
        return sp_i_only_fatal(status, &own, err);
    }
    status = try_packs(input, input, asymmetric ? pack_slimpack_for_all : pack_symmetric_for_all,
                       true, packing, outcome, &tried, err);
    return status == SP_OK
               ? try_packs(input, input, sp_i_pack_zeppelin, true, packing, outcome, &tried, err)
               : status;
}

static size_t gathering(const sp_pack_list *list)
{
    size_t count = 0;
    for (size_t k = 0; k < list->count; k++) {
        count += list->packs[k].gathers;
    }
    return count;
}

static void gather_nothing(sp_pack_list *list)
{
    for (size_t k = 0; k < list->count; k++) {
        list->packs[k].gathers = false;
    }
}

// Packs gather keys and values where their rings take longer, and all stay in rings where the whole
// step is no better for it. Zeppelin's packs have made that choice, and packs that are made for all
// ranks as one get zones.
static sp_status try_gathers(const sp_strategy_input *input, sp_packing *packing,
                             sp_packflow_outcome *outcome, sp_error *err)
{
    sp_packflow_outcome tried;
    if (!sp_i_may_gather(input->scenario) || input->zoned || gathering(&packing->forward) > 0 ||
        sp_i_is_late(input->scenario, input->deadline_s) ||
        sp_i_gather_packs(input, false, packing) == 0) {
        return SP_OK;
    }
    sp_status status = sp_step_judge_blocks(input, packing, outcome, &tried, err);
    if (status == SP_OK && sp_packflow_is_better(&tried, outcome)) {
        *outcome = tried;
    } else {
        gather_nothing(&packing->forward);
        gather_nothing(&packing->backward);
    }
    return status;
}

static sp_status search(const sp_strategy_input *input, bool asymmetric, sp_packing *packing,
                        sp_error *err)
{
    sp_packflow_outcome outcome;
    sp_i_slimpack_options options = sp_i_slimpack_options_of(input, asymmetric, false);
    if (sp_i_may_nest(input->scenario)) {
        options.deadline_s = sp_i_deadline_part_s(options.deadline_s, SEARCHING);
    }
    const int64_t limit = sp_i_begin_part(input->scenario, PACKING_WORK);
    sp_status status = sp_i_slimpack_search(input, &options, packing, &outcome, err);
    sp_i_end_part(input->scenario, limit);
    if (status == SP_OK) {
        status = try_nested_groups(input, packing, &outcome, err);
        if (status == SP_OK) {
            status = try_rules(input, packing, &outcome, err);
        }
        if (status == SP_OK) {
            status = try_all_ranks(input, asymmetric, packing, &outcome, err);
        }
        if (status == SP_OK) {
            status = try_gathers(input, packing, &outcome, err);
        }
        if (status != SP_OK) {
            sp_packing_fini(packing);
        }
    }
    return status;
}

// ---- within what PyTorch's allocator loses to gaps ----

// Rooms that are tried, each so much smaller than the one before: of seven random jobs whose packs
// lost 3 to 32 GiB too much to gaps between blocks four fitted in the first and three in the
// second, and took 0.1 to 2 % longer than without gaps. A 13B on 8 stages with 16 GB free needs the
// last one, for 2.6 %.
enum { MOST_ROOMS = 6 };
#define LESS_ROOM 0.85

// Where packs that fit take so many times as long as without gaps, rooms between theirs and the
// last that was too large are tried: 37 samples on 2 stages take 1.59 times as long in the second
// room, and 1.10 times in one between.
#define CRAMPED 1.02

// Packs in the room of with->scenario, of the limit of the input, where they are better. *fits:
// their gaps do, too.
static sp_status try_room(const sp_strategy_input *input, const sp_strategy_input *with,
                          sp_strategy_pack_function pack, sp_packing *best,
                          sp_packflow_outcome *outcome, bool *fits, sp_error *err)
{
    sp_error own;
    sp_packing packing;
    sp_packflow_outcome judged;
    *fits = false;
    sp_error_clear(&own);
    sp_status status = pack(with, &packing, &own);
    if (status != SP_OK) {
        return sp_i_only_fatal(status, &own, err);
    }
    packing.spare_bytes += input->scenario->memory_limit_bytes - with->scenario->memory_limit_bytes;
    status = sp_step_judge_gaps(input, &packing, &judged, err);
    if (status == SP_OK) {
        *fits = !judged.overfull && judged.lacking_bytes == 0;
        sp_i_keep_better(best, outcome, &packing, &judged);
    } else {
        sp_packing_fini(&packing);
    }
    return status;
}

// Without a pipeline the search counts blocks itself, unless a rank has many packs.
static bool has_counted_blocks(const sp_scenario *scenario, const sp_packing *packing)
{
    int64_t packs = 0; // of all ranks
    for (size_t k = 0; k < packing->forward.count; k++) {
        packs += packing->forward.packs[k].dp_count;
    }
    return scenario->layout.pp == 1 &&
           2 * scenario->model.layers * packs / scenario->layout.dp <= SP_STEP_COUNTED_PASSES;
}

// Packs of many sizes follow each other, and with a pipeline are in flight together, and blocks of
// one fit another badly: where the gaps between blocks are more than there is room for, packs are
// searched for in less room. That is seen of whole plans alone, for it takes as long as several
// steps.
static sp_status pack_within_gaps(const sp_strategy_input *input, sp_strategy_pack_function pack,
                                  sp_packing *packing, sp_error *err)
{
    const sp_scenario *scenario = input->scenario;
    sp_scenario less = *scenario;
    sp_strategy_input with = *input;
    sp_packflow_outcome outcome;
    sp_status status = pack(input, packing, err);
    if (status != SP_OK || has_counted_blocks(scenario, packing) || input->zoned ||
        scenario->memory_limit_bytes <= 0) {
        return status;
    }
    with.scenario = &less;
    with.best_step = NULL; // its steps are of another limit
    status = sp_step_judge_gaps(input, packing, &outcome, err);
    if (status == SP_OK && outcome.overfull) {
        status = try_in_1f1b(input, true, packing, &SP_PACKFLOW_WORST, &outcome, err);
    }
    const double ample_ns = (double)outcome.makespan_ns;
    double fails = (double)scenario->memory_limit_bytes;
    // With a part of the effort packs in less room are too bad to be worth that they fit well.
    const bool worth = outcome.lacking_bytes > 0 || scenario->strategy.effort_percent % 100 == 0;
    double fits = outcome.overfull && worth ? 0.0 : fails;
    for (int i = 0; status == SP_OK && i < MOST_ROOMS &&
                    (fits == 0.0 || (double)outcome.makespan_ns > CRAMPED * ample_ns) &&
                    !sp_i_is_late(scenario, input->deadline_s);
         i++) {
        const double room = fits > 0.0 ? 0.5 * (fits + fails) : LESS_ROOM * fails;
        bool good;
        less.memory_limit_bytes = sp_whole(room);
        status = try_room(input, &with, pack, packing, &outcome, &good, err);
        *(good ? &fits : &fails) = room;
    }
    if (status != SP_OK) {
        sp_packing_fini(packing);
    }
    return status;
}

static sp_status search_mirrored(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return search(input, false, packing, err);
}

static sp_status search_any(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return search(input, true, packing, err);
}

sp_status sp_i_pack_slimpack_symmetric(const sp_strategy_input *input, sp_packing *packing,
                                       sp_error *err)
{
    return pack_within_gaps(input, search_mirrored, packing, err);
}

sp_status sp_i_pack_slimpack(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return pack_within_gaps(input, search_any, packing, err);
}

// Actions timed to see whether gradients should run apart. Chosen by trial: with half as many one
// of 9 random jobs was 0.2 % slower, with twice as many none of 3 changed.
enum { GLANCE = 15000 };

// Part of the time in which that is done.
#define GLANCING 0.3

typedef struct glance {
    const sp_strategy_input *input;
    sp_i_slimpack_options options;
} glance;

static sp_status look_at_split(void *context, int whole, const sp_packflow_outcome *best,
                               sp_packflow_outcome *outcome, sp_error *err)
{
    const glance *g = context;
    sp_i_slimpack_options options = g->options;
    (void)best;
    options.split = whole == 0;
    return sp_i_slimpack_search(g->input, &options, NULL, outcome, err);
}

static bool is_glance_over(const void *context)
{
    const glance *g = context;
    return sp_i_is_late(g->input->scenario, g->options.deadline_s);
}

// Searches packs for whole backwards and takes them where they are better.
static sp_status try_whole(const sp_strategy_input *input, sp_i_slimpack_options options,
                           sp_packing *packing, sp_packflow_outcome *outcome, sp_error *err)
{
    sp_packing other;
    sp_packflow_outcome whole;
    options.split = false;
    options.whole = true;
    sp_status status = sp_i_slimpack_search(input, &options, &other, &whole, err);
    if (status == SP_OK) {
        sp_i_keep_better(packing, outcome, &other, &whole);
    }
    return status;
}

// Weight gradients of their own hold memory that packs then lack: where these leave more than the
// margin of any step for them, the plan of slimpack may be faster.
static bool leaves_much(const sp_scenario *scenario, const sp_packing *packing)
{
    return (double)packing->spare_bytes >
           SP_MEMORY_TIGHT * (double)scenario->memory_limit_bytes + 1.0;
}

// Weight gradients of their own hold activations for longer, and some ranks have no idle time for
// them: packs are searched for whole backwards instead where those look faster. The order runs the
// packs either way, as it is faster (packflow.h), but reckons memory less closely than the whole
// step: where that is short of memory, or packs leave far more of it, the plan of slimpack is there
// as well. Without a pipeline nothing is idle that weight gradients could fill.
static sp_status search_split(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    sp_packflow_outcome outcome = SP_PACKFLOW_WORST;
    sp_i_slimpack_options options = sp_i_slimpack_options_of(input, true, true);
    glance g = {input, options};
    int faster = 0;
    if (input->scenario->layout.pp == 1) {
        return search(input, true, packing, err);
    }
    g.options.effort = sp_i_slimpack_effort(&input->scenario->strategy, GLANCE);
    g.options.proves = false;
    g.options.deadline_s = sp_i_deadline_part_s(options.deadline_s, GLANCING);
    const sp_i_candidates candidates = {
        .count = 2, .judge = look_at_split, .is_over = is_glance_over, .context = &g};
    sp_status status = sp_i_search(&candidates, &faster, &outcome, err);
    if (status != SP_OK) {
        return status;
    }
    options.split = faster == 0;
    status = sp_i_slimpack_search(input, &options, packing, &outcome, err);
    if (status != SP_OK) {
        return status;
    }
    if ((sp_packflow_is_short(&outcome) || leaves_much(input->scenario, packing)) &&
        !sp_i_is_late(input->scenario, options.deadline_s)) {
        status = try_whole(input, options, packing, &outcome, err);
    }
    if (status == SP_OK) {
        status = try_rules(input, packing, &outcome, err);
    }
    if (status == SP_OK) {
        status = try_all_ranks(input, true, packing, &outcome, err);
    }
    if (status == SP_OK) {
        status = try_gathers(input, packing, &outcome, err);
    }
    if (status != SP_OK) {
        sp_packing_fini(packing);
    }
    return status;
}

sp_status sp_i_pack_slimpack_zb(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return pack_within_gaps(input, search_split, packing, err);
}

// ---- slimpack-zones ----

// slimpack-zones: SlimPack's packs within pipelines with Zeppelin's zones for the attention (arXiv
// 2509.26246, 2509.21841).
//
// Packs of all data-parallel ranks together (slimpack.c), slimpack's and zeppelin's are simulated,
// and the fastest are taken.

// Shares of the time and work that are left, for slimpack and for packs of all ranks.
#define ALONE 0.45
#define SHARED 0.75

static sp_status search_zones(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    sp_strategy_input with = *input;
    sp_packflow_outcome outcome, tried;
    bool shares = may_share(input->scenario);
    with.deadline_s = sp_i_deadline_part_s(input->deadline_s, shares ? ALONE : SHARED);
    const int64_t limit = sp_i_begin_part(input->scenario, ALONE);
    sp_status status = search_any(&with, packing, err);
    sp_i_end_part(input->scenario, limit);
    if (status == SP_OK && !sp_i_is_late(input->scenario, input->deadline_s)) {
        status = sp_step_judge_blocks(input, packing, &SP_PACKFLOW_WORST, &outcome, err);
        if (status == SP_OK && shares) {
            with.deadline_s = sp_i_deadline_part_s(input->deadline_s, SHARED);
            const int64_t rest = sp_i_begin_part(input->scenario, SHARED);
            status = try_packs(&with, &with, pack_slimpack_for_all, true, packing, &outcome, &tried,
                               err);
            sp_i_end_part(input->scenario, rest);
        }
        if (status == SP_OK) {
            status =
                try_packs(input, input, sp_i_pack_zeppelin, true, packing, &outcome, &tried, err);
        }
        if (status != SP_OK) {
            sp_packing_fini(packing);
        }
    }
    return status;
}

sp_status sp_i_pack_slimpack_zones(const sp_strategy_input *input, sp_packing *packing,
                                   sp_error *err)
{
    return pack_within_gaps(input, search_zones, packing, err);
}

// ---- packs of all data-parallel ranks together ----

// Packs that all data-parallel ranks run together, with equal shares of their tokens: SlimPack's
// (arXiv 2509.26246), cut and packed as for one rank of wider context parallelism, with Zeppelin's
// zones for the attention (arXiv 2509.21841).
//
// Their pipelines are level whatever the samples, and each rank holds the least of a pack. Where
// that would send every sample around all ranks, its attention stays on as few as level it: one
// zone for each sample, since late slices read the keys of early ones.

// Slices of a packing by sample, and what each pack's ranks have to attend to.
typedef struct zoning {
    const sp_strategy_input *input;
    sp_packing *packing;
    int dp;
    size_t *first;  // [samples + 1] into slice
    size_t *slice;  // [slices] of the forward packs, by sample
    int32_t *pack;  // [slices] of the forward packs
    double *mean;   // [packs] pairs of one rank, were they level
    double *load;   // [packs * dp] pairs
    int32_t *order; // [samples] in which they are placed
    int32_t *zone;  // [samples]
    int excess;     // times an even part of its pack that a slice may be for a rank
} zoning;

static sp_status add_zones(const sp_strategy_input *input, sp_packing *packing, sp_error *err);

// May the ranks run all packs together, and does the cost model know zones?
static bool may_share(const sp_scenario *scenario)
{
    return scenario->layout.dp > 1 && !scenario->layout.order.given &&
           scenario->layout.cp_sharding == SP_SHARD_EVEN && scenario->strategy.dp_merge &&
           scenario->strategy.zones && scenario->strategy.remap &&
           !sp_stack_counts_device(&scenario->memory.stack);
}

static void span_all_ranks(sp_pack_list *list, int dp)
{
    for (size_t k = 0; k < list->count; k++) {
        list->packs[k].dp_count = dp;
    }
}

static sp_status pool_init(all_ranks_pool *pool, const sp_strategy_input *input, sp_error *err)
{
    pool->scenario = *input->scenario;
    pool->scenario.layout.cp *= input->scenario->layout.dp;
    pool->scenario.layout.dp = 1;
    pool->input = *input;
    pool->input.scenario = &pool->scenario;
    pool->input.cost = &pool->cost;
    pool->input.best_step = NULL; // its steps are of another layout
    pool->input.beaten = NULL;    // as are they
    pool->input.zoned = true;
    pool->input.batch = sp_batch_unpadded(input->batch); // zones need none
    return sp_scenario_cost_model(&pool->scenario, &pool->cost, err);
}

static void pool_fini(all_ranks_pool *pool)
{
    sp_cost_model_fini(&pool->cost);
}

// Where that may be, the packs that `pack` makes for one data-parallel rank of all their GPUs, with
// zones for the attention (sim/plan/packing.h).
static sp_status pack_for_all_ranks(const sp_strategy_input *input, sp_strategy_pack_function pack,
                                    sp_packing *packing, sp_error *err)
{
    const int dp = input->scenario->layout.dp;
    all_ranks_pool pool;
    sp_status status = pool_init(&pool, input, err);
    if (status != SP_OK) {
        return status;
    }
    status = pack(&pool.input, packing, err);
    pool_fini(&pool);
    if (status == SP_OK) {
        packing->dp = dp;
        span_all_ranks(&packing->forward, dp);
        span_all_ranks(&packing->backward, dp);
        status = add_zones(input, packing, err);
        if (status != SP_OK) {
            sp_packing_fini(packing);
        }
    }
    return status;
}

// ---- zones ----

static double pairs_of(const zoning *z, const sp_slice *slice)
{
    return 0.5 * sp_model_pairs2(&z->input->scenario->model, (double)slice->begin,
                                 (double)slice->computed_tokens);
}

static void sort_slices(zoning *z, size_t samples)
{
    const sp_pack_list *list = &z->packing->forward;
    for (size_t i = 0; i < list->slice_count; i++) {
        z->first[list->slices[i].sample]++;
    }
    for (size_t s = 0; s < samples; s++) {
        z->first[s + 1] += z->first[s];
    }
    for (size_t k = list->count; k-- > 0;) {
        for (size_t i = list->packs[k].slice_count; i-- > 0;) {
            size_t slice = list->packs[k].first_slice + i;
            z->slice[--z->first[list->slices[slice].sample]] = slice;
            z->pack[slice] = (int32_t)k;
            z->mean[k] += pairs_of(z, &list->slices[slice]) / z->dp;
        }
    }
}

// The fewest ranks among which no slice of the sample is more than it may be.
static int degree_of(const zoning *z, const size_t *slice, size_t count)
{
    int degree = 1;
    for (size_t i = 0; i < count; i++) {
        double pairs = pairs_of(z, &z->packing->forward.slices[slice[i]]);
        while (degree < z->dp && pairs > z->excess * z->mean[z->pack[slice[i]]] * degree) {
            degree = sp_i_merged_next(degree, z->dp);
        }
    }
    return degree;
}

// The pairs of the busiest rank of a block, in all packs of the sample.
static double load_of(const zoning *z, const size_t *slice, size_t count, int first, int degree)
{
    double load = 0.0;
    for (size_t i = 0; i < count; i++) {
        const double *of = z->load + (size_t)z->pack[slice[i]] * (size_t)z->dp;
        double most = 0.0;
        for (int r = first; r < first + degree; r++) {
            most = fmax(most, of[r]);
        }
        load += most;
    }
    return load;
}

static void place(zoning *z, int32_t sample)
{
    const size_t *slice = z->slice + z->first[sample];
    size_t count = z->first[sample + 1] - z->first[sample];
    int degree = degree_of(z, slice, count);
    int best = 0;
    double least = HUGE_VAL;
    for (int first = 0; first + degree <= z->dp; first += degree) {
        double load = load_of(z, slice, count, first, degree);
        best = load < least ? first : best;
        least = fmin(load, least);
    }
    for (size_t i = 0; i < count; i++) {
        double *of = z->load + (size_t)z->pack[slice[i]] * (size_t)z->dp;
        for (int r = best; r < best + degree; r++) {
            of[r] += pairs_of(z, &z->packing->forward.slices[slice[i]]) / degree;
        }
    }
    z->zone[sample] = degree < z->dp ? sp_zone_of(best, degree) : 0;
}

static void place_all(zoning *z, int excess)
{
    const size_t packs = z->packing->forward.count;
    memset(z->load, 0, packs * (size_t)z->dp * sizeof *z->load);
    z->excess = excess;
    for (size_t i = 0; i < z->packing->batch->count; i++) {
        place(z, z->order[i]);
    }
}

static void write_zones(const zoning *z, sp_pack_list *list)
{
    for (size_t i = 0; i < list->slice_count; i++) {
        list->slices[i].zone = z->zone[list->slices[i].sample];
    }
}

static void zone_all(zoning *z, int excess)
{
    place_all(z, excess);
    write_zones(z, &z->packing->forward);
    write_zones(z, &z->packing->backward);
}

// The i-th bound of a slice: 0, 1, 2, 4, ... times an even part of its pack.
static int nth_excess(int i)
{
    return i == 0 ? 0 : 1 << (i - 1);
}

static sp_status judge_excess(void *context, int i, const sp_packflow_outcome *best,
                              sp_packflow_outcome *outcome, sp_error *err)
{
    zoning *z = context;
    zone_all(z, nth_excess(i));
    return sp_step_is_beaten(z->input, z->packing, best)
               ? SP_OK
               : sp_step_judge(z->input, z->packing, outcome, err);
}

static bool is_zoning_late(const void *context)
{
    const zoning *z = context;
    return sp_i_is_late(z->input->scenario, z->input->deadline_s);
}

// Each rank more that attends to a sample has more to exchange: from samples on all ranks, over
// level ranks, to samples that stay on one rank each, the best in the whole step is taken.
static sp_status choose_excess(zoning *z, sp_error *err)
{
    sp_packflow_outcome least = SP_PACKFLOW_WORST;
    int best = -1;
    sp_i_candidates candidates = {
        .always_tried = 1, .judge = judge_excess, .is_over = is_zoning_late, .context = z};
    while (nth_excess(candidates.count) < 2 * z->dp) {
        candidates.count++;
    }
    sp_status status = sp_i_search(&candidates, &best, &least, err);
    if (status == SP_OK && best < 0 && z->input->beaten != NULL) {
        return sp_error_set(err, SP_ERR_INFEASIBLE, "no zones are faster than the packs before");
    }
    zone_all(z, nth_excess(best < 0 ? 0 : best));
    return status;
}

static sp_status add_zones(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    const sp_pack_list *list = &packing->forward;
    size_t samples = packing->batch->count;
    int dp = packing->dp;
    sp_arena memory = {0};
    zoning z = {.input = input, .packing = packing, .dp = dp};
    z.first = sp_arena_take(&memory, samples + 1, sizeof *z.first);
    z.slice = sp_arena_take(&memory, list->slice_count, sizeof *z.slice);
    z.pack = sp_arena_take(&memory, list->slice_count, sizeof *z.pack);
    z.mean = sp_arena_take(&memory, list->count, sizeof *z.mean);
    z.load = sp_arena_take(&memory, list->count * (size_t)dp, sizeof *z.load);
    z.zone = sp_arena_take(&memory, samples, sizeof *z.zone);
    z.order = sp_i_order_descending(packing->batch);
    sort_slices(&z, samples);
    sp_status status = choose_excess(&z, err);
    sp_free(z.order);
    sp_arena_free(&memory);
    return status;
}

// ---- nested groups, without a pipeline ----

// Packs without a pipeline: ranks merged for each sample by itself.
//
// Ranks that are merged for a long sample run short ones apart, as ByteScale packs them, or each
// sample as a pack of its own, as Megatron's hybrid CP does: with a pipeline they would have to
// agree on an order. Packs of equal tokens, as ChunkFlow makes them, leave PyTorch's allocator no
// holes. Without a pipeline the best is taken, of several budgets of tokens a rank.

enum {
    LEAST_RANK_TOKENS = 2048,
    FEW_SAMPLES = 32, // a rank, each of which may be a pack of its own
    SIXTEENTHS = 16,
    LEAST_SIXTEENTHS =
        9,              // from here to twice as many: budgets between the powers of two beside one
    MOST_OVERFULL = 32, // then blocks are counted no more
    MOST_BUDGETS = 256, // that are remembered
    NOT_MADE = -1       // bytes that packs lack which were not made
};

// A strategy with a budget, and whether its packs lacked memory.
typedef struct budget {
    sp_strategy_pack_function pack;
    int64_t tokens;
    bool lacked;
} budget;

// The best packs so far.
typedef struct nested {
    const sp_strategy_input *input;
    sp_packing *packing;
    sp_packflow_outcome *outcome;
    bool lacked;  // memory, the last that was tried
    int overfull; // packings that were found not to fit by their blocks
    budget tried[MOST_BUDGETS];
    int tried_count;
    // Of a budget of tokens, the best of these: how they are made, and their outcome.
    sp_strategy_pack_function pack;
    int64_t tokens; // 0: none was made
    sp_packflow_outcome of_budget;
} nested;

// The longest sample over powers of two may be a power of two itself, and so come twice.
static bool was_tried(nested *n, sp_strategy_pack_function pack, int64_t tokens)
{
    for (int i = 0; i < n->tried_count; i++) {
        if (n->tried[i].pack == pack && n->tried[i].tokens == tokens) {
            n->lacked = n->tried[i].lacked;
            return true;
        }
    }
    return false;
}

// Packs that a strategy makes of a budget of tokens that it has not been given, where it makes any
// and time is left.
static sp_status try_tokens(nested *n, sp_strategy_pack_function pack, int64_t tokens,
                            sp_error *err)
{
    sp_packflow_outcome tried = {.lacking_bytes = NOT_MADE};
    sp_scenario scenario = *n->input->scenario;
    sp_strategy_input with = *n->input;
    if (was_tried(n, pack, tokens)) {
        return SP_OK;
    }
    scenario.strategy.rank_tokens = tokens;
    scenario.strategy.chunk_tokens = tokens;
    scenario.strategy.pack_rounds = false;
    scenario.schedule.slices = 1;
    with.scenario = &scenario;
    sp_status status = try_packs(n->input, &with, pack, n->overfull < MOST_OVERFULL, n->packing,
                                 n->outcome, &tried, err);
    if (status != SP_OK || tried.lacking_bytes == NOT_MADE) {
        return status;
    }
    n->lacked = tried.lacking_bytes > 0;
    n->overfull += tried.overfull;
    if (n->tried_count < MOST_BUDGETS) {
        n->tried[n->tried_count++] = (budget){pack, tokens, n->lacked};
    }
    if (tokens > 0 && sp_packflow_is_better(&tried, &n->of_budget)) {
        n->pack = pack;
        n->tokens = tokens;
        n->of_budget = tried;
    }
    return SP_OK;
}

static sp_status try_budget(nested *n, int64_t tokens, sp_error *err)
{
    sp_status status = try_tokens(n, sp_i_pack_bytescale, tokens, err);
    if (status == SP_OK) {
        status = try_tokens(n, sp_i_pack_chunkflow, tokens, err);
    }
    if (status == SP_OK &&
        n->input->batch->count <= FEW_SAMPLES * (size_t)n->input->scenario->layout.dp) {
        status = try_tokens(n, sp_i_pack_hybrid_cp, tokens, err);
    }
    return status;
}

// Budgets beside the best of those that were tried, which are far apart.
static sp_status try_around(nested *n, sp_error *err)
{
    const sp_strategy_pack_function pack = n->pack;
    const int64_t tokens = n->tokens;
    sp_status status = SP_OK;
    for (int i = LEAST_SIXTEENTHS; status == SP_OK && tokens > 0 && i < 2 * SIXTEENTHS; i++) {
        status = try_tokens(n, pack, sp_ceil_div(tokens * i, SIXTEENTHS), err);
    }
    return status;
}

bool sp_i_may_nest(const sp_scenario *scenario)
{
    return scenario->layout.pp == 1 && scenario->strategy.dp_merge;
}

// Where that may be, puts packs of nested groups of ranks in the place of *packing if they are
// better in the whole step: those that other strategies make under several budgets of tokens.
static sp_status try_nested_groups(const sp_strategy_input *input, sp_packing *packing,
                                   sp_packflow_outcome *outcome, sp_error *err)
{
    const sp_layout *layout = &input->scenario->layout;
    int64_t longest = sp_batch_longest(input->batch);
    nested n = {
        .input = input, .packing = packing, .outcome = outcome, .of_budget = SP_PACKFLOW_WORST};
    sp_status status = SP_OK;
    if (!sp_i_may_nest(input->scenario)) {
        return SP_OK;
    }
    // Equal cuts of the samples in batch order: packs with long samples among short ones hide more
    // of what context parallelism sends.
    status = try_tokens(&n, sp_i_pack_slimpipe, 0, err);
    for (int ranks = 1; status == SP_OK && ranks <= layout->dp; ranks *= 2) {
        status = try_budget(&n, sp_ceil_div(longest, ranks), err);
        if (status == SP_OK && longest > ranks) {
            // A little less, and the longest sample takes more ranks.
            status = try_tokens(&n, sp_i_pack_bytescale, (longest - 1) / ranks, err);
        }
    }
    int64_t share = input->batch->total_tokens / layout->dp;
    int64_t most = share > input->context ? share : input->context;
    n.lacked = false;
    for (int64_t tokens = LEAST_RANK_TOKENS;
         status == SP_OK && tokens < 2 * most && (!n.lacked || outcome->lacking_bytes > 0);
         tokens *= 2) {
        status = try_budget(&n, tokens, err);
    }
    return status == SP_OK ? try_around(&n, err) : status;
}
