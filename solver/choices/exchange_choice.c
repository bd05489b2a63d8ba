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

// Exchanges of one kind differ little: of those that are near to the best one of each kind counts.
typedef enum exchange_kind { RINGS, HEADS, GATHERS, EXCHANGE_KINDS } exchange_kind;

// Short searches tell exchanges badly apart whose steps differ by less than this share: of 56
// others that were as near in 58 random jobs (tests/bench/rivals.c) 10 made faster plans, by 0.5 to
// 3 %; of 25 that were 3 to 8 % slower one did, by 0.3 %.
#define NEAR_LOOKS 0.03

// Part of the work that is left for each whole plan that is compared.
#define OF_A_PLAN 0.25

static exchange_kind kind_of(sp_cp_overlap overlap)
{
    return overlap == SP_CP_ATTENTION                         ? RINGS
           : overlap == SP_CP_A2A || overlap == SP_CP_A2A_P2P ? HEADS
                                                              : GATHERS;
}

bool sp_i_exchange_is_open(const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    bool shares = layout->cp > 1 || (layout->dp > 1 && scenario->strategy.dp_merge);
    return shares && sp_scenario_exchange_is_open(scenario) &&
           scenario->strategy.exchange_of[0] == '\0';
}

typedef struct other_exchange {
    sp_cp_overlap overlap;
    double share;    // of the time that is left
    int64_t look_ns; // INT64_MAX: it has not been looked at, or does not fit
} other_exchange;

// The choice among exchanges.
typedef struct choice {
    const sp_scenario *scenario;
    sp_batches batches; // the first of the workload
    double deadline_s;  // 0: none
    bool unlimited;     // by time alone, whatever memory there is
    other_exchange others[EXCHANGES];
    int other_count;
    sp_cp_overlap own, best;   // `own` is the stack's
    sp_packflow_outcome least; // of the best
    // By time alone, of those that fit, tightly or well.
    sp_cp_overlap fastest;
    int64_t fastest_ns;
    int64_t own_look_ns; // of the stack's own
} choice;

static bool is_late(const choice *c)
{
    return sp_i_is_late(c->scenario, c->deadline_s);
}

static sp_status search(const choice *c, const sp_scenario *tried, sp_packflow_outcome *outcome,
                        sp_error *err)
{
    sp_i_trial trial;
    sp_packing packing;
    const sp_i_slimpack_options options = {.effort = sp_i_slimpack_effort(&tried->strategy, LOOK),
                                           .deadline_s = c->deadline_s};
    sp_status status = sp_i_trial_init(tried, &c->batches, &trial, err);
    if (status != SP_OK) {
        return status;
    }
    status = sp_i_slimpack_search(&trial.input, &options, &packing, outcome, err);
    if (status == SP_OK) {
        sp_packing_fini(&packing);
    }
    sp_cost_model_fini(&trial.cost);
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

static int64_t time_of(const sp_packflow_outcome *outcome)
{
    return outcome->lacking_bytes == 0 ? outcome->makespan_ns : INT64_MAX;
}

static void note_time(choice *c, other_exchange *other, const sp_packflow_outcome *outcome)
{
    other->look_ns = time_of(outcome);
    if (other->look_ns < INT64_MAX &&
        (1.0 + MIN_GAIN) * (double)other->look_ns < (double)c->fastest_ns) {
        c->fastest = other->overlap;
        c->fastest_ns = other->look_ns;
    }
}

// The other exchanges are tried in turn.
static sp_status judge_look(void *context, int i, const sp_packflow_outcome *best,
                            sp_packflow_outcome *outcome, sp_error *err)
{
    choice *c = context;
    (void)best;
    sp_status status = look(c, c->others[i].overlap, outcome, err);
    note_time(c, &c->others[i], outcome);
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
    c->own_look_ns = time_of(&c->least);
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
                      sp_packflow_outcome *outcome, double *uneven, sp_error *err)
{
    const double deadline_s = sp_i_deadline_part_s(c->deadline_s, share);
    const int64_t limit = sp_i_begin_part(c->scenario, share);
    const sp_i_job_way way = {.overlap = &overlap,
                              .time_limit_ms =
                                  deadline_s > 0.0 ? sp_i_deadline_left_ms(deadline_s) + 1 : 0,
                              .choose = choose_chunks};
    sp_status status =
        sp_i_job_plan(c->scenario, &way, &c->batches, deadline_s, outcome, uneven, err);
    sp_i_end_part(c->scenario, limit);
    return status;
}

// Where ranks share nothing, other exchanges gain by packs that ranks would share: these level the
// ranks, by no more than they are uneven, and need less memory. 7 samples on ranks that are 1.3 %
// uneven gain 1.2 %; of 150 random jobs one, 0.4 % uneven, gains 1.1 %, where memory is so short
// that packs run again.
static bool is_decided(const sp_packflow_outcome *outcome, double uneven)
{
    return uneven < MIN_GAIN && !sp_packflow_is_short(outcome);
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
    sp_status status = plan(c, other, 0.5, &of_other, NULL, err);
    if (status == SP_OK) {
        status = plan(c, c->fastest, 1.0, &of_fastest, NULL, err);
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
    return plan(c, c->others[i].overlap, c->others[i].share, outcome, NULL, err);
}

// Without a pipeline plans come out otherwise than in a short search, which knows neither nested
// groups nor packs of all ranks, and are soon made.
static sp_status plan_all(choice *c, sp_error *err)
{
    double uneven = 0.0;
    sp_status status = plan(c, c->best, 1.0 / (EXCHANGES + 1), &c->least, &uneven, err);
    return status == SP_OK && !is_decided(&c->least, uneven) ? search_others(c, judge_plan, err)
                                                             : status;
}

// Lists the exchanges that may run beside the stack's own, each with its share of the time that is
// left when its turn comes.
static void list_others(choice *c)
{
    for (int i = 0; i < EXCHANGES; i++) {
        const sp_cp_overlap overlap = exchanges[i];
        if (overlap != c->best) {
            c->others[c->other_count++] =
                (other_exchange){overlap, 1.0 / (EXCHANGES - i), INT64_MAX};
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

// Of each kind of exchange but that of the best the fastest, where it is near.
static void note_near(const choice *c, sp_i_near_exchanges *near)
{
    int64_t least_ns[EXCHANGE_KINDS] = {INT64_MAX, INT64_MAX, INT64_MAX};
    sp_cp_overlap fastest[EXCHANGE_KINDS] = {c->best, c->best, c->best};
    int64_t all_ns = c->own_look_ns;
    least_ns[kind_of(c->own)] = c->own_look_ns;
    fastest[kind_of(c->own)] = c->own;
    for (int i = 0; i < c->other_count; i++) {
        const other_exchange *other = &c->others[i];
        const exchange_kind kind = kind_of(other->overlap);
        if (other->look_ns < least_ns[kind]) {
            least_ns[kind] = other->look_ns;
            fastest[kind] = other->overlap;
        }
        all_ns = other->look_ns < all_ns ? other->look_ns : all_ns;
    }
    for (int k = 0; k < EXCHANGE_KINDS; k++) {
        if (k != (int)kind_of(c->best) && least_ns[k] < INT64_MAX &&
            (double)least_ns[k] <= (1.0 + NEAR_LOOKS) * (double)all_ns) {
            near->overlap[near->count++] = fastest[k];
        }
    }
}

sp_status sp_i_take_exchange(sp_scenario *scenario, sp_cp_overlap overlap, sp_cp_overlap own,
                             sp_error *err)
{
    const bool changes = overlap != scenario->memory.stack.cp_overlap;
    scenario->memory.stack.cp_overlap = overlap;
    scenario->strategy.exchange_chosen = overlap != own;
    sp_status status = sp_scenario_resolve_layout(scenario, err);
    if (status == SP_OK && changes) {
        sp_scenario_set_stack(scenario);
    }
    return status;
}

sp_status sp_i_choose_exchange(sp_scenario *scenario, sp_i_near_exchanges *near, sp_error *err)
{
    const double begun_s = sp_clock_s();
    double limit_s =
        CHOOSING * sp_i_time_left_s(scenario->strategy.time_limit_ms, scenario->strategy.spent_s);
    near->count = 0;
    if (!sp_i_exchange_is_open(scenario) || (limit_s > 0.0 && limit_s < LEAST_S)) {
        return SP_OK;
    }
    const sp_cp_overlap own = scenario->memory.stack.cp_overlap;
    choice c = {.scenario = scenario, .own = own, .best = own};
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
    if (status == SP_OK && c.own_look_ns > 0) {
        note_near(&c, near);
    }
    return status == SP_OK && c.best != own ? sp_i_take_exchange(scenario, c.best, own, err)
                                            : status;
}

// ---- between exchanges that are near to one another ----

typedef struct near_choice {
    const sp_scenario *scenario;
    sp_batches batches; // the first of the workload
    const sp_i_near_exchanges *near;
} near_choice;

static sp_status plan_near(const near_choice *c, const sp_i_job_way *way,
                           sp_packflow_outcome *outcome, double *uneven, sp_error *err)
{
    const int64_t limit = sp_i_begin_part(c->scenario, OF_A_PLAN);
    sp_status status = sp_i_job_plan(c->scenario, way, &c->batches, 0.0, outcome, uneven, err);
    sp_i_end_part(c->scenario, limit);
    return status;
}

static sp_status judge_near(void *context, int i, const sp_packflow_outcome *best,
                            sp_packflow_outcome *outcome, sp_error *err)
{
    const near_choice *c = context;
    const sp_i_job_way way = {.overlap = &c->near->overlap[i]};
    (void)best;
    return plan_near(c, &way, outcome, NULL, err);
}

static bool is_near_over(const void *context)
{
    const near_choice *c = context;
    return sp_i_is_late(c->scenario, 0.0);
}

static sp_status find_near(near_choice *c, int *best, sp_error *err)
{
    const sp_i_job_way as_it_is = {0};
    const sp_i_candidates candidates = {.count = c->near->count,
                                        .judge = judge_near,
                                        .is_over = is_near_over,
                                        .context = c,
                                        .min_gain = MIN_GAIN};
    sp_packflow_outcome least;
    double uneven = 0.0;
    sp_status status = plan_near(c, &as_it_is, &least, &uneven, err);
    return status == SP_OK && !is_decided(&least, uneven)
               ? sp_i_search(&candidates, best, &least, err)
               : status;
}

sp_status sp_i_decide_exchange(sp_scenario *scenario, const sp_i_near_exchanges *near,
                               sp_cp_overlap own, sp_error *err)
{
    near_choice c = {.scenario = scenario, .near = near};
    sp_workload_spec first = scenario->workload;
    int best = -1;
    first.batches = 1;
    if (near->count == 0 || scenario->strategy.time_limit_ms > 0 ||
        scenario->strategy.effort_percent > 0 || is_near_over(&c)) {
        return SP_OK;
    }
    sp_status status = sp_scenario_resolve_layout(scenario, err); // placement of the chunks
    if (status == SP_OK) {
        status = sp_batches_make(&first, &c.batches, err);
    }
    if (status == SP_OK) {
        status = find_near(&c, &best, err);
    }
    sp_batches_fini(&c.batches);
    return status == SP_OK && best >= 0
               ? sp_i_take_exchange(scenario, near->overlap[best], own, err)
               : status;
}
