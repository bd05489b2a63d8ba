// How the ranks of a job bring keys and values together, where the scenario leaves that to its
// strategy: one of the exchanges that Transformer Engine and Megatron-LM ship (cp_comm_type), or
// what the stack does by itself.
//
// Rings hide behind the attention on what is there already, gathers behind nothing or behind the
// QKV projection, all-to-alls move less but block: which is fastest depends on the lengths, the
// groups and the network. A short search of the first batch is made for each of them, within memory
// and up to the whole step: what a search predicts of the first groups of ranks is too good where
// one exchange merges other ranks than the next.
#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "solver/choices/choices.h"
#include "solver/search.h"
#include "solver/slimpack/slimpack_search.h"

// Actions timed for each exchange.
enum { LOOK = 60000 };

// Part of a time limit in which the exchanges are compared, and the least that is enough.
#define CHOOSING 0.1
#define CHOOSING_WORK 0.7 // where work is bounded, and the plan has work of its own
#define LEAST_S 1e-3

// More than any step needs.
#define UNLIMITED_BYTES ((int64_t)1 << 56)

// Another exchange has to gain this share of a step's time: short searches differ by less for no
// reason.
#define MIN_GAIN 2e-3

enum { EXCHANGES = 4 };
static const sp_cp_overlap exchanges[EXCHANGES] = {SP_CP_ATTENTION, SP_CP_A2A_P2P, SP_CP_A2A,
                                                   SP_CP_BLOCKING};

bool sp_i_exchange_is_open(const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    bool shares = layout->cp > 1 || (layout->dp > 1 && scenario->strategy.dp_merge);
    return shares && sp_scenario_exchange_is_open(scenario) &&
           scenario->strategy.exchange_of[0] == '\0';
}

typedef struct other_exchange {
    sp_cp_overlap overlap;
    double share; // of the time that is left
} other_exchange;

// The choice among exchanges.
typedef struct choice {
    const sp_scenario *scenario;
    sp_batches batches; // the first of the workload
    double deadline_s;  // 0: none
    bool unlimited;     // by time alone, whatever memory there is
    other_exchange others[EXCHANGES];
    int other_count;
    sp_cp_overlap best;
    sp_packflow_outcome least; // of the best
    // By time alone, of those that fit, tightly or well.
    sp_cp_overlap fastest;
    int64_t fastest_ns;
} choice;

static bool is_late(const choice *c)
{
    return sp_i_is_late(c->scenario, c->deadline_s);
}

static sp_status search(const choice *c, const sp_scenario *tried, sp_packflow_outcome *outcome,
                        sp_error *err)
{
    sp_cost_model cost;
    sp_packing packing;
    sp_strategy_input input;
    const sp_i_slimpack_options options = {.effort = sp_i_slimpack_effort(&tried->strategy, LOOK),
                                           .deadline_s = c->deadline_s};
    sp_status status = sp_i_trial_input(tried, &c->batches, &cost, &input, err);
    if (status != SP_OK) {
        return status;
    }
    status = sp_i_slimpack_search(&input, &options, &packing, outcome, err);
    if (status == SP_OK) {
        sp_packing_fini(&packing);
    }
    sp_cost_model_fini(&cost);
    return status;
}

// An exchange that the layout or its cuts do not know has no plan.
static sp_status look(const choice *c, sp_cp_overlap overlap, sp_packflow_outcome *outcome,
                      sp_error *err)
{
    sp_error own;
    sp_scenario tried;
    const sp_scenario_changes changes = {.cp_overlap = &overlap,
                                         .memory_limit_bytes = c->unlimited ? UNLIMITED_BYTES : 0};
    sp_error_clear(&own);
    *outcome = SP_PACKFLOW_WORST;
    sp_status status = sp_scenario_copy_with(c->scenario, &changes, &tried, &own);
    bool heads = overlap == SP_CP_A2A_P2P || overlap == SP_CP_A2A;
    bool alike = heads && tried.layout.cp_a2a <= 1; // a ring alone
    if (status == SP_OK && !alike) {
        status = search(c, &tried, outcome, &own);
    }
    sp_scenario_fini(&tried);
    return sp_i_only_fatal(status, &own, err);
}

static void note_time(choice *c, sp_cp_overlap overlap, const sp_packflow_outcome *outcome)
{
    if (outcome->lacking_bytes == 0 &&
        (1.0 + MIN_GAIN) * (double)outcome->makespan_ns < (double)c->fastest_ns) {
        c->fastest = overlap;
        c->fastest_ns = outcome->makespan_ns;
    }
}

// The other exchanges are tried in turn.
static sp_status judge_look(void *context, int i, const sp_packflow_outcome *best,
                            sp_packflow_outcome *outcome, sp_error *err)
{
    choice *c = context;
    (void)best;
    sp_status status = look(c, c->others[i].overlap, outcome, err);
    note_time(c, c->others[i].overlap, outcome);
    return status;
}

static bool is_choice_over(const void *context)
{
    return is_late(context);
}

// Takes another exchange than c->best where that is worth it.
static sp_status search_others(choice *c,
                               sp_status (*judge)(void *context, int i,
                                                  const sp_packflow_outcome *best,
                                                  sp_packflow_outcome *outcome, sp_error *err),
                               sp_error *err)
{
    const sp_i_candidates candidates = {.count = c->other_count,
                                        .judge = judge,
                                        .is_over = is_choice_over,
                                        .context = c,
                                        .min_gain = MIN_GAIN};
    int best = -1;
    sp_status status = sp_i_search(&candidates, &best, &c->least, err);
    c->best = best >= 0 ? c->others[best].overlap : c->best;
    return status;
}

// Where the stack's own exchange does not fit well in so short a search, keys and values are mostly
// not what lacks, and searches within too little memory take long: exchanges are compared by time
// alone.
static sp_status look_at_all(choice *c, sp_error *err)
{
    const sp_cp_overlap own = c->best;
    sp_status status = look(c, own, &c->least, err);
    if (status == SP_OK && sp_packflow_is_short(&c->least)) {
        c->unlimited = true;
        status = look(c, own, &c->least, err);
    }
    c->fastest = own;
    c->fastest_ns = c->least.makespan_ns;
    return status == SP_OK ? search_others(c, judge_look, err) : status;
}

static sp_status choose_chunks(sp_scenario *scenario, sp_error *err)
{
    sp_status status = sp_i_choose_chunks(scenario, err);
    return status == SP_OK ? sp_scenario_resolve_layout(scenario, err) : status; // their placement
}

// Plans the job's first batch in an exchange, with model chunks of its own, in that share of
// what is left.
static sp_status plan(const choice *c, sp_cp_overlap overlap, double share,
                      sp_packflow_outcome *outcome, sp_error *err)
{
    const double deadline_s = sp_i_deadline_part_s(c->deadline_s, share);
    const int64_t limit = sp_i_begin_part(c->scenario, share);
    const sp_i_job_way way = {.overlap = &overlap,
                              .time_limit_ms =
                                  deadline_s > 0.0 ? sp_i_deadline_left_ms(deadline_s) + 1 : 0,
                              .choose = choose_chunks};
    sp_status status = sp_i_job_plan(c->scenario, &way, &c->batches, deadline_s, outcome, err);
    sp_i_end_part(c->scenario, limit);
    return status;
}

// An exchange that was faster by time alone may need too much memory, and one that fits tightly in
// a short search may fit well in a whole one: whole plans decide between the fastest exchange and
// the best other.
static sp_status decide_by_plans(choice *c, sp_error *err)
{
    const sp_cp_overlap own = c->scenario->memory.stack.cp_overlap;
    const sp_cp_overlap other = c->best == c->fastest ? own : c->best;
    sp_packflow_outcome of_other, of_fastest;
    if (c->fastest == own || (c->best == c->fastest && !c->unlimited) || is_late(c)) {
        return SP_OK;
    }
    sp_status status = plan(c, other, 0.5, &of_other, err);
    if (status == SP_OK) {
        status = plan(c, c->fastest, 1.0, &of_fastest, err);
    }
    if (status == SP_OK) {
        c->best = sp_packflow_is_better(&of_other, &of_fastest) ? other : c->fastest;
    }
    return status;
}

static sp_status judge_plan(void *context, int i, const sp_packflow_outcome *best,
                            sp_packflow_outcome *outcome, sp_error *err)
{
    const choice *c = context;
    (void)best;
    return plan(c, c->others[i].overlap, c->others[i].share, outcome, err);
}

// Without a pipeline plans come out otherwise than in a short search, which knows neither nested
// groups nor packs of all ranks, and are soon made.
static sp_status plan_all(choice *c, sp_error *err)
{
    sp_status status = plan(c, c->best, 1.0 / (EXCHANGES + 1), &c->least, err);
    return status == SP_OK ? search_others(c, judge_plan, err) : status;
}

// Lists the exchanges that may run beside the stack's own, each with its share of the time that is
// left when its turn comes.
static void list_others(choice *c)
{
    for (int i = 0; i < EXCHANGES; i++) {
        const sp_cp_overlap overlap = exchanges[i];
        if (overlap != c->best) {
            c->others[c->other_count++] = (other_exchange){overlap, 1.0 / (EXCHANGES - i)};
        }
    }
}

static sp_status choose(choice *c, sp_error *err)
{
    if (c->batches.count == 0 || c->batches.batch[0].count == 0) {
        return SP_OK;
    }
    list_others(c);
    if (sp_i_may_nest(c->scenario)) {
        return plan_all(c, err);
    }
    sp_status status = look_at_all(c, err);
    return status == SP_OK ? decide_by_plans(c, err) : status;
}

sp_status sp_i_choose_exchange(sp_scenario *scenario, sp_error *err)
{
    const double begun_s = sp_clock_s();
    double limit_s =
        CHOOSING * sp_i_time_left_s(scenario->strategy.time_limit_ms, scenario->strategy.spent_s);
    if (!sp_i_exchange_is_open(scenario) || (limit_s > 0.0 && limit_s < LEAST_S)) {
        return SP_OK;
    }
    choice c = {.scenario = scenario, .best = scenario->memory.stack.cp_overlap};
    sp_workload_spec first = scenario->workload;
    first.batches = 1;
    c.deadline_s = limit_s > 0.0 ? begun_s + limit_s : 0.0;
    const int64_t limit = sp_i_begin_part(scenario, CHOOSING_WORK);
    sp_status status = sp_batches_make(&first, &c.batches, err);
    if (status == SP_OK) {
        status = choose(&c, err);
    }
    sp_i_end_part(scenario, limit);
    sp_batches_fini(&c.batches);
    scenario->strategy.spent_s += sp_clock_s() - begun_s;
    if (status != SP_OK || c.best == scenario->memory.stack.cp_overlap) {
        return status;
    }
    scenario->memory.stack.cp_overlap = c.best;
    scenario->strategy.exchange_chosen = true;
    status = sp_scenario_resolve_layout(scenario, err);
    if (status == SP_OK) {
        sp_scenario_set_stack(scenario);
    }
    return status;
}
