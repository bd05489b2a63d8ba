// Exchange and chunks together, where the packs of another strategy ask for it.
//
// A job's exchange and its chunks are chosen one after the other, each by short searches for
// SlimPack's own packs. Packs by the rules of other strategies (sp_i_best_rule), whose steps take
// one simulation each, may be faster in another exchange and in the few chunks that their systems
// run: 586 samples of 67K to 258K tokens on 4 stages take 5 % less in one chunk. Where they are
// faster there than all that a short search finds here, whole plans decide.
#include "sim/base/units.h"
#include "sim/schedule/schedule.h"
#include "solver/choices/choices.h"
#include "solver/search.h"
#include "solver/slimpack/slimpack_search.h"

// Actions timed for the job as it is (as many as for an exchange; half and twice as many changed no
// plan of 16 random jobs), and the most chunks of other jobs: one, or two as a V.
enum { LOOK = 60000, RULED_CHUNKS = 2, EXCHANGES = 3, MOST_WAYS = EXCHANGES * (RULED_CHUNKS + 1) };

// Part of the work left for the plan of the job as it is: half of two equal plans. It tells only
// where the bound of work ends a search; all of it changed no plan of 3 random jobs, a quarter
// of 2.
#define AS_IT_IS 0.5

typedef struct way {
    sp_cp_overlap overlap;
    int chunks; // of equal shares; 0: the cut that is there
} way;

typedef struct rule_choice {
    const sp_scenario *scenario;
    sp_batches batches; // the first of the workload
    way ways[MOST_WAYS];
    int count;
} rule_choice;

static void list_ways(rule_choice *c, sp_cp_overlap own)
{
    const sp_scenario *scenario = c->scenario;
    const sp_layout *layout = &scenario->layout;
    const sp_cp_overlap now = scenario->memory.stack.cp_overlap;
    const sp_cp_overlap exchanges[EXCHANGES] = {now, own, SP_CP_ATTENTION};
    bool cuts = !scenario->chunks_given && !scenario->cuts_layers && !scenario->shares_open;
    for (int e = 0; e < EXCHANGES; e++) {
        bool known = (e > 0 && exchanges[e] == now) || (e > 1 && exchanges[e] == own);
        for (int chunks = 0; chunks <= RULED_CHUNKS && !known; chunks++) {
            bool possible = chunks == 0
                                ? e > 0
                                : cuts && scenario->model.layers % (layout->pp * chunks) == 0 &&
                                      !(chunks == layout->chunks && layout->stage_layers == NULL);
            if (possible && (e == 0 || sp_i_exchange_is_open(scenario))) {
                c->ways[c->count++] = (way){exchanges[e], chunks};
            }
        }
    }
}

static sp_i_job_way job_way(const way *tried)
{
    return (sp_i_job_way){.overlap = &tried->overlap, .chunks = tried->chunks};
}

// The best packs by rules, better than *outcome, and of the job as it is a short search first.
static sp_status look(const rule_choice *c, const sp_scenario *with, bool searches,
                      sp_packflow_outcome *outcome, sp_error *err)
{
    sp_i_trial trial;
    sp_packing packing;
    const sp_strategy *strategy = sp_strategy_find(with->strategy.kind);
    sp_status status = sp_i_trial_init(with, &c->batches, &trial, err);
    if (status != SP_OK) {
        return status;
    }
    if (searches) {
        sp_i_slimpack_options options =
            sp_i_slimpack_options_of(&trial.input, false, strategy->split_backward);
        options.effort = sp_i_slimpack_effort(&with->strategy, LOOK);
        options.proves = false;
        status = sp_i_slimpack_search(&trial.input, &options, &packing, outcome, err);
        if (status == SP_OK) {
            sp_packing_fini(&packing);
        }
    }
    if (status == SP_OK) {
        status = sp_i_best_rule(&trial.input, outcome, err);
    }
    sp_cost_model_fini(&trial.cost);
    return status;
}

static sp_status judge_way(void *context, int i, const sp_packflow_outcome *best,
                           sp_packflow_outcome *outcome, sp_error *err)
{
    const rule_choice *c = context;
    const sp_i_job_way other = job_way(&c->ways[i]);
    sp_scenario with;
    *outcome = *best;
    sp_status status = sp_i_job_copy(c->scenario, &other, &with, err);
    if (status == SP_OK) {
        status = look(c, &with, false, outcome, err);
        sp_scenario_fini(&with);
    }
    return status;
}

static bool is_over(const void *context)
{
    const rule_choice *c = context;
    return sp_i_is_late(c->scenario, 0.0);
}

// Is the plan of the first batch better in that way?
static sp_status compare_plans(const rule_choice *c, const way *tried, bool *better, sp_error *err)
{
    const sp_i_job_way as_it_is = {0};
    const sp_i_job_way other = job_way(tried);
    sp_packflow_outcome now, then;
    const int64_t limit = sp_i_begin_part(c->scenario, AS_IT_IS);
    sp_status status = sp_i_job_plan(c->scenario, &as_it_is, &c->batches, 0.0, &now, NULL, err);
    sp_i_end_part(c->scenario, limit);
    if (status == SP_OK) {
        status = sp_i_job_plan(c->scenario, &other, &c->batches, 0.0, &then, NULL, err);
    }
    *better = status == SP_OK && sp_packflow_is_better(&then, &now) &&
              (!then.tight || sp_packflow_is_short(&now));
    return status;
}

static sp_status choose(rule_choice *c, const way **taken, sp_error *err)
{
    sp_packflow_outcome least;
    int best = -1;
    bool better = false;
    const sp_i_candidates candidates = {
        .count = c->count, .judge = judge_way, .is_over = is_over, .context = c};
    sp_status status = look(c, c->scenario, true, &least, err);
    if (status == SP_OK) {
        status = sp_i_search(&candidates, &best, &least, err);
    }
    if (status == SP_OK && best >= 0 && !is_over(c)) {
        status = compare_plans(c, &c->ways[best], &better, err);
    }
    *taken = better ? &c->ways[best] : NULL;
    return status;
}

sp_status sp_i_choose_by_rules(sp_scenario *scenario, sp_cp_overlap own, sp_error *err)
{
    sp_error none;
    rule_choice c = {.scenario = scenario};
    sp_workload_spec first = scenario->workload;
    const way *taken = NULL;
    first.batches = 1;
    list_ways(&c, own);
    if (scenario->layout.pp == 1 || scenario->strategy.time_limit_ms > 0 ||
        scenario->strategy.effort_percent > 0 || c.count == 0 || is_over(&c)) {
        return SP_OK;
    }
    sp_error_clear(&none);
    sp_status status = sp_scenario_resolve_layout(scenario, err); // placement of the chunks
    if (status == SP_OK) {
        status = sp_batches_make(&first, &c.batches, err);
    }
    if (status == SP_OK && c.batches.count > 0 && c.batches.batch[0].count > 0) {
        status = sp_i_only_fatal(choose(&c, &taken, &none), &none, err);
    }
    if (status == SP_OK && taken != NULL) {
        if (taken->chunks > 0) {
            sp_scenario_take_cut(scenario, taken->chunks, NULL);
        }
        status = sp_i_take_exchange(scenario, taken->overlap, own, err);
    }
    sp_batches_fini(&c.batches);
    return status;
}
