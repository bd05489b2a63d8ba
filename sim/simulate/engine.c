#include "sim/simulate/engine.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "sim/cost/step_costs.h"
#include "sim/plan/rounds.h"
#include "sim/plan/walk.h"
#include "sim/simulate/memory.h"
#include "sim/simulate/private.h"
#include "sim/verify/dependency_graph.h"

// ---- GPUs that differ ----

#define TWO_PI 6.283185307179586
#define LEAST_FACTOR 0.5
#define SQRT_HALF 0.7071067811865476

static double normal(sp_prng *prng)
{
    double radius = sqrt(-2.0 * log(1.0 - sp_prng_uniform(prng)));
    return radius * cos(TWO_PI * sp_prng_uniform(prng));
}

static double next_factor(const sp_jitter *jitter, sp_prng *prng)
{
    return fmax(LEAST_FACTOR, 1.0 + jitter->gpu_cv * normal(prng));
}

// The pipeline rank of a GPU.
static size_t rank_of_gpu(const sp_layout *layout, int64_t gpu)
{
    int64_t dp = gpu / sp_layout_stride(layout, SP_AXIS_DP) % layout->dp;
    int64_t pp = gpu / sp_layout_stride(layout, SP_AXIS_PP) % layout->pp;
    return (size_t)(dp * layout->pp + pp);
}

// Data-parallel ranks that meet in every layer are as slow as the slowest of them.
static void wait_for_slowest(const sp_layout *layout, double *factors)
{
    int ranks = sp_layout_round_ranks(layout);
    for (int first = 0; ranks > 1 && first < layout->dp; first += ranks) {
        for (int pp = 0; pp < layout->pp; pp++) {
            double slowest = 0.0;
            for (int dp = first; dp < first + ranks; dp++) {
                slowest = fmax(slowest, factors[dp * layout->pp + pp]);
            }
            for (int dp = first; dp < first + ranks; dp++) {
                factors[dp * layout->pp + pp] = slowest;
            }
        }
    }
}

double *sp_i_jitter_factors(const sp_layout *layout, const sp_jitter *jitter)
{
    sp_prng prng;
    sp_prng_seed(&prng, jitter->seed);
    double *factors = sp_calloc((size_t)layout->dp * (size_t)layout->pp, sizeof *factors);
    for (int64_t gpu = 0; gpu < sp_layout_ranks(layout); gpu++) {
        double *factor = &factors[rank_of_gpu(layout, gpu)];
        *factor = fmax(*factor, next_factor(jitter, &prng));
    }
    wait_for_slowest(layout, factors);
    return factors;
}

double sp_jitter_slowest(const sp_layout *layout, const sp_jitter *jitter)
{
    sp_prng prng;
    double slowest = LEAST_FACTOR;
    sp_prng_seed(&prng, jitter->seed);
    for (int64_t gpu = 0; gpu < sp_layout_ranks(layout); gpu++) {
        slowest = fmax(slowest, next_factor(jitter, &prng));
    }
    return slowest;
}

// Probability that one of n normal variates is above z.
static double any_above(double z, double n)
{
    double log_below =
        z > 0.0 ? log1p(-0.5 * erfc(z * SQRT_HALF)) : log(0.5 * erfc(-z * SQRT_HALF));
    return -expm1(n * log_below);
}

double sp_jitter_expected_slowest(double gpu_cv, int64_t gpus)
{
    // Simpson's rule. Outside 9 standard deviations are 1e-19 of a normal variate's values.
    enum { STEPS = 2000 };
    const double end = 9.0;
    if (!(gpu_cv > 0.0)) {
        return 1.0;
    }
    double least = fmax(-end, (LEAST_FACTOR - 1.0) / gpu_cv);
    double step = (end - least) / STEPS;
    double sum = 0.0;
    for (int i = 0; i <= STEPS; i++) {
        double weight = i == 0 || i == STEPS ? 1.0 : i % 2 != 0 ? 4.0 : 2.0;
        sum += weight * any_above(least + i * step, (double)gpus);
    }
    return 1.0 + gpu_cv * (least + sum * step / 3.0);
}

// ---- the step ----

// Uniform costs have no time for copies to and from host memory.
static sp_status refuse_unknown_costs(const sp_plan *plan, const sp_step_costs *costs,
                                      sp_error *err)
{
    if (costs->o_ns != NULL && costs->l_ns != NULL) {
        return SP_OK;
    }
    const sp_action *copy = sp_plan_find(plan, SP_ACTION_O);
    copy = copy != NULL ? copy : sp_plan_find(plan, SP_ACTION_L);
    if (copy == NULL) {
        return SP_OK;
    }
    char name[32];
    sp_action_name(*copy, plan->layout.chunks, name);
    return sp_error_set(err, SP_ERR_CONTENT,
                        "action %s: the simulator has no cost for offload and load", name);
}

// Costs and transfers of a simulated step.
typedef struct pricing {
    const sp_plan *plan;
    const sp_step_costs *costs;
    double total_ns;
    int times;             // that each action may count for, since ranks that are alike run once
    sp_i_traffic *traffic; // NULL: transfers share nothing
    double *factors;       // of computation, [dp * pp]; NULL: all ranks are alike
} pricing;

// Ends, and sums over all data-parallel ranks, must fit int64_t.
static sp_status add_ns(pricing *p, int64_t ns, sp_error *err)
{
    p->total_ns += (double)ns;
    return p->total_ns * p->times < 9e18
               ? SP_OK
               : sp_error_set(err, SP_ERR_LIMIT, "the actions of a step add up to over 285 years");
}

static sp_status price(void *context, const sp_walk_action *action, sp_walk_outcome *outcome,
                       sp_error *err)
{
    pricing *p = context;
    outcome->took = sp_action_cost_of(p->plan, p->costs, action->place.action, action->vstage,
                                      action->recomputed);
    if (action->partner != NULL) {
        sp_hide_experts(p->plan, &p->costs->overlap, action->place.pp, action->place.action,
                        *action->partner, &outcome->took);
    }
    SP_TRY(add_ns(p, sp_action_cost_ns(&outcome->took), err));
    for (int r = 0; action->shares != NULL && r < p->plan->layout.pp; r++) {
        if (action->shares[r] != NULL) {
            outcome->shares[r] = sp_share_cost_of(p->plan, p->costs, action->shares[r]);
            SP_TRY(add_ns(p, sp_action_cost_ns(&outcome->shares[r]), err));
        }
    }
    return SP_OK;
}

static void slow_down(const pricing *p, int dp, int pp, sp_action_cost *cost)
{
    double factor = p->factors[(size_t)dp * (size_t)p->plan->layout.pp + (size_t)pp];
    cost->compute_ns = llround(factor * (double)cost->compute_ns);
    cost->attention_ns = llround(factor * (double)cost->attention_ns);
    cost->launch_ns = llround(factor * (double)cost->launch_ns);
    cost->again_ns = llround(factor * (double)cost->again_ns);
    // Those waited for compute at this pace, too (wait_for_slowest).
    int64_t dp_wait_ns = llround(factor * (double)cost->dp_wait_ns);
    int64_t ep_wait_ns = llround(factor * (double)cost->ep_wait_ns);
    cost->dp_ns += dp_wait_ns - cost->dp_wait_ns;
    cost->ep_ns += ep_wait_ns - cost->ep_wait_ns;
    cost->dp_wait_ns = dp_wait_ns;
    cost->ep_wait_ns = ep_wait_ns;
}

// On GPUs that differ.
static sp_status price_apart(void *context, const sp_walk_action *action, sp_walk_outcome *outcome,
                             sp_error *err)
{
    const pricing *p = context;
    sp_status status = price(context, action, outcome, err);
    if (!sp_action_is_copy(action->place.action)) {
        slow_down(p, action->place.dp, action->place.pp, &outcome->took);
    }
    for (int r = 0; action->shares != NULL && r < p->plan->layout.pp; r++) {
        if (action->shares[r] != NULL) {
            slow_down(p, action->place.dp, r, &outcome->shares[r]);
        }
    }
    return status;
}

static int64_t transfer_ns(void *context, const sp_plan_place *from, int to)
{
    pricing *p = context;
    int64_t ns = sp_step_costs_p2p_ns(p->costs, sp_action_is_backward(from->action),
                                      (size_t)from->action.pack, from->pp, to, p->plan->layout.pp);
    // A sum that is too large is told with the next action.
    p->total_ns += (double)ns;
    return ns;
}

static sp_status send(void *context, const sp_plan_place *from, int to, int64_t at_ns,
                      int64_t *there_ns, sp_error *err)
{
    pricing *p = context;
    transfer_ns(p, from, to);
    return sp_i_traffic_send(p->traffic, from, to, at_ns, there_ns, err);
}

static sp_status begin(void *context, const sp_walk_action *action, int64_t start_ns,
                       const sp_action_cost *took, bool *exchanges, sp_error *err)
{
    const pricing *p = context;
    return sp_i_traffic_begin(p->traffic, action, start_ns, took, exchanges, err);
}

static sp_status next(void *context, const sp_walk_event **events, size_t *count, sp_error *err)
{
    const pricing *p = context;
    return sp_i_traffic_next(p->traffic, events, count, err);
}

// `varies`: GPUs differ, or links are shared.
static sp_walk_driver driver_of(pricing *prices, const sp_shares *shares, bool varies)
{
    sp_walk_driver driver = {.context = prices,
                             .run = prices->factors != NULL ? price_apart : price,
                             .transfer_ns = transfer_ns,
                             .blocking_transfers = prices->costs->blocking_transfers,
                             .shares = shares,
                             .joint_inputs = varies,
                             .limit_ns = INT64_MAX};
    if (prices->traffic != NULL) {
        driver.transfer_ns = NULL;
        driver.begin = begin;
        driver.send = send;
        driver.next = next;
    }
    return driver;
}

static size_t count_tasks(const sp_timeline *timeline)
{
    size_t tasks = 0;
    for (size_t r = 0; r < timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &timeline->ranks[r];
        tasks += rank->count + rank->copy_count + rank->share_count;
    }
    return tasks;
}

// Fills the spans of all ranks that stand for others. Ranks that share links stand each for itself:
// their ways differ.
static sp_status run(const sp_plan *plan, const sp_step_costs *costs,
                     const sp_engine_options *options, sp_i_traffic *traffic, sp_timeline *timeline,
                     sp_engine_counts *counts, sp_error *err)
{
    bool differ = options->jitter.gpu_cv > 0.0;
    bool varies = traffic != NULL || differ;
    pricing prices = {.plan = plan, .costs = costs, .times = 1, .traffic = traffic};
    sp_alike_ranks alike;
    sp_shares shares = {0};
    sp_status status = SP_OK;
    sp_i_fold(plan, costs, options->unfold || varies, &alike);
    if (differ) {
        prices.factors = sp_i_jitter_factors(&plan->layout, &options->jitter);
    }
    if (costs->share_class > 0) {
        status = sp_shares_make(plan, &shares, err);
    }
    sp_timeline_init_alike(timeline, plan, &alike);
    if (alike.kinds < plan->layout.dp) {
        prices.times = plan->layout.dp;
    }
    timeline->varies = varies;
    if (traffic != NULL) {
        sp_timeline_keep_arrivals(timeline);
    }
    if (status == SP_OK) {
        const sp_walk_driver driver = driver_of(&prices, &shares, varies);
        status = sp_walk(plan, &driver, timeline, &counts->edges, err);
    }
    counts->tasks = status == SP_OK ? count_tasks(timeline) : 0;
    sp_free(prices.factors);
    sp_shares_fini(&shares);
    sp_i_alike_fini(&alike);
    return status;
}

sp_status sp_step_traffic(const sp_plan *plan, const sp_step_costs *costs,
                          const sp_network *network, sp_topology **topology, double **link_bytes,
                          sp_error *err)
{
    sp_network flows = *network;
    sp_timeline timeline = {0};
    sp_i_traffic *traffic = NULL;
    sp_engine_counts counts = {0};
    flows.detail = SP_NETWORK_FLOWS;
    *topology = NULL;
    *link_bytes = NULL;
    sp_status status = refuse_unknown_costs(plan, costs, err);
    if (status == SP_OK) {
        status = sp_i_traffic_new(plan, costs, &flows, &timeline, &traffic, err);
    }
    if (status == SP_OK) {
        const sp_engine_options plain = {.unfold = true};
        status = run(plan, costs, &plain, traffic, &timeline, &counts, err);
    }
    if (status == SP_OK) {
        sp_i_traffic_take(traffic, topology, link_bytes);
    }
    sp_timeline_fini(&timeline);
    sp_i_traffic_free(traffic);
    return status;
}

static sp_status verify(const sp_plan *plan, const sp_step_costs *costs,
                        const sp_timeline *timeline, sp_error *err)
{
    int64_t makespan_ns = timeline->makespan_ns;
    sp_structure *structure = NULL;
    int64_t expected_ns = 0;
    sp_status status = sp_structure_new(plan, costs, timeline, &structure, err);
    if (status == SP_OK) {
        status = sp_structure_makespan(structure, &expected_ns, err);
    }
    if (status == SP_OK && expected_ns != makespan_ns) {
        status =
            sp_error_set(err, SP_ERR_INTERNAL,
                         "verification: the engine ends at %lld ns, the longest path at %lld ns",
                         (long long)makespan_ns, (long long)expected_ns);
    }
    sp_structure_free(structure);
    return status;
}

// In the words of the graph, which knows the shortest cycle, else in those of the walk.
static sp_status name_cycle(const sp_plan *plan, const sp_step_costs *costs, const char *source,
                            const sp_error *walked, sp_error *err)
{
    sp_structure *structure = NULL;
    sp_status status = sp_structure_new(plan, costs, NULL, &structure, err);
    if (status == SP_OK) {
        status = sp_structure_cycle(structure, source, err);
    }
    sp_structure_free(structure);
    return status != SP_OK ? status
                           : sp_error_set(err, SP_ERR_DEADLOCK, "%s: the plan cannot finish: %s",
                                          source, walked->message[0]);
}

// As `run`, with a cycle named.
static sp_status run_named(const sp_plan *plan, const sp_step_costs *costs,
                           const sp_engine_options *options, sp_i_traffic *traffic,
                           sp_timeline *timeline, sp_engine_counts *counts, sp_error *err)
{
    const char *source = options->source != NULL ? options->source : "plan";
    sp_error walk_err = {0};
    sp_status status = run(plan, costs, options, traffic, timeline, counts, &walk_err);
    if (status == SP_ERR_DEADLOCK && !options->no_cycle) {
        return name_cycle(plan, costs, source, &walk_err, err);
    }
    for (int i = 0; status != SP_OK && i < walk_err.count; i++) {
        sp_error_set(err, status, "%s", walk_err.message[i]);
    }
    return status;
}

static sp_network network_of(const sp_plan *plan, const sp_engine_options *options)
{
    sp_network network = options->network != NULL ? *options->network : (sp_network){0};
    // Transfers that cannot meet are known by times, which are not certain then.
    if (network.detail == SP_NETWORK_AUTO && options->jitter.gpu_cv > 0.0 &&
        !sp_shares_are(&plan->layout)) {
        network.detail = SP_NETWORK_FLOWS;
    }
    return network;
}

sp_status sp_simulate(const sp_plan *plan, const sp_step_costs *costs,
                      const sp_engine_options *options, sp_timeline *timeline,
                      sp_memory_timeline *memory, sp_engine_counts *counts, sp_error *err)
{
    *timeline = (sp_timeline){0};
    *memory = (sp_memory_timeline){0};
    *counts = (sp_engine_counts){0};
    sp_i_traffic *traffic = NULL;
    const sp_network network = network_of(plan, options);
    sp_status status = refuse_unknown_costs(plan, costs, err);
    if (status == SP_OK) {
        status = sp_rounds_check(plan, options->source != NULL ? options->source : "plan", err);
    }
    if (status == SP_OK) {
        status = sp_i_traffic_new(plan, costs, &network, timeline, &traffic, err);
    }
    if (status == SP_OK) {
        status = run_named(plan, costs, options, traffic, timeline, counts, err);
    }
    if (status == SP_OK && traffic == NULL) {
        sp_epilogue_fill(costs, timeline);
    }
    if (status == SP_OK) {
        sp_timeline_finish(timeline);
        status = sp_memory_replay(timeline, costs, options->memory_points, memory, err);
    }
    if (status == SP_OK && options->verify) {
        status = verify(plan, costs, timeline, err);
    }
    sp_i_traffic_free(traffic);
    if (status != SP_OK) {
        sp_timeline_fini(timeline);
        sp_memory_timeline_fini(memory);
    }
    return status;
}
