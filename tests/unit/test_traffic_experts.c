// Rows of experts as flows: max-min shares by hand where groups meet on links, what formulas give
// where none do, and the bytes that each dispatcher puts on network cards.

#include "sim/simulate/engine.h"
#include "tests/support/flow_run.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

enum { F_NS = 10000, B_NS = 20000, TOKENS = 1000 };

static void is_near(int64_t ns, int64_t expected_ns, int64_t within_ns)
{
    must_hold(ns >= expected_ns - within_ns && ns <= expected_ns + within_ns,
              "%lld ns, expected %lld", (long long)ns, (long long)expected_ns);
}

// Groups of experts over `nodes` nodes of two GPUs and a network card of 10 bytes a nanosecond,
// each of which has its own part of the spine: `per_leaf` nodes a leaf switch.
static void set_groups(flow_step *s, int groups, int nodes, int per_leaf, double oversubscription)
{
    *s = (flow_step){.layout = {LAYOUT(1, 1, 1, 2 * groups * nodes, 1), .ep = 2 * nodes}};
    flow_step_uniform(s, 0.0, 0.0);
    for (size_t k = 0; k < s->costs.side[0].count; k++) {
        s->packing.forward.packs[k].computed = TOKENS;
        s->costs.side[1].pack[k].cp = s->costs.side[1].pack[k].cp_again = (sp_cp_exchange){0};
    }
    sp_plan_init(&s->plan, &s->layout, &s->packing);
    flow_step_set_cluster(s, SP_NETWORK_FLOWS);
    s->cluster.fabric.nodes_per_leaf = per_leaf;
    s->cluster.fabric.oversubscription = oversubscription;
    s->cluster.host_link_latency_s = 0.0;
    s->network.rates.nic_latency_s = s->network.rates.nvlink_latency_s = 0.0;
    s->costs.experts = sp_calloc(SP_EXPERT_PASSES, sizeof *s->costs.experts);
}

// In a forward, of `bytes` of a GPU: as long as the closed formula says of its half of a card.
static int64_t set_exchange(flow_step *s, sp_expert_way way, double bytes)
{
    double nodes = s->layout.ep / 2.0;
    s->costs.experts[0].bytes[way] = bytes / TOKENS;
    s->costs.experts[0].calls[way] = 4.0;
    return llround(bytes * (1.0 - 1.0 / nodes) / 5.0);
}

static void set_forward(flow_step *s, int64_t compute_ns, int64_t ep_ns, int first, int count)
{
    for (int k = first; k < first + count; k++) {
        char actions[32];
        s->costs.action[SP_ACTION_F][k] =
            (sp_action_cost){.compute_ns = compute_ns, .ep_ns = ep_ns};
        s->costs.action[SP_ACTION_B][k] = (sp_action_cost){.compute_ns = B_NS};
        snprintf(actions, sizeof actions, "F%dB%d", k, k);
        plan_add_actions(&s->plan, k, 0, actions);
    }
}

// Ends of the forwards of the first rank of each of two groups.
static void run_two(flow_step *s, sp_network_detail detail, int64_t end_ns[2])
{
    AUTO(sp_timeline) timeline;
    s->network.detail = detail;
    flow_run(s, &s->network, &timeline);
    for (int g = 0; g < 2; g++) {
        const sp_span *span = &timeline.ranks[g * s->layout.ep].spans[0];
        end_ns[g] = span->end_ns;
        // All ranks of a group end together, and what took longer counts as theirs.
        for (int d = 1; d < s->layout.ep; d++) {
            const sp_span *other = &timeline.ranks[g * s->layout.ep + d].spans[0];
            assert_int_equal(other->end_ns, span->end_ns);
            assert_int_equal(other->ep_ns, span->ep_ns);
            assert_int_equal(other->cp_ns, 0);
            assert_int_equal(other->dp_ns, 0);
        }
    }
}

static const sp_expert_way ways[] = {SP_WAY_EXPERTS, SP_WAY_NODES};

// Groups of three nodes, two nodes a leaf switch: the middle leaf joins the last node of the first
// group and the first of the second. Of a group's pairs, (2 * 4 of a node) each of a sixth of a
// GPU's bytes, as many cross the middle leaf's links as a card: those carry two cards' rate over
// the oversubscription. At 2 one group fills them as long as its cards; two need twice as long, one
// that comes when the other is half done lets that go on at half the rate.
TEST(two_groups_on_one_leaf)
{
    for (int w = 0; w < COUNT_OF(ways); w++) {
        for (int detail = SP_NETWORK_FLOWS; detail <= SP_NETWORK_AUTO; detail++) {
            static const int64_t later[] = {0, 1, 2}; // in halves of an exchange
            for (int i = 0; i < COUNT_OF(later); i++) {
                AUTO(flow_step) s;
                int64_t end_ns[2];
                set_groups(&s, 2, 3, 2, 2.0);
                int64_t lone_ns = set_exchange(&s, ways[w], 150000.0);
                assert_int_equal(lone_ns, 20000);
                int64_t begin_ns = F_NS + later[i] * lone_ns / 2;
                set_forward(&s, F_NS, lone_ns, 0, 6);
                set_forward(&s, begin_ns, lone_ns, 6, 6);
                run_two(&s, (sp_network_detail)detail, end_ns);
                int64_t longer_ns = lone_ns - later[i] * lone_ns / 2;
                is_near(end_ns[0], F_NS + lone_ns + longer_ns, 2);
                is_near(end_ns[1], begin_ns + lone_ns + longer_ns, 2);
                run_two(&s, SP_NETWORK_CLOSED, end_ns);
                assert_int_equal(end_ns[0], F_NS + lone_ns);
                assert_int_equal(end_ns[1], begin_ns + lone_ns);
            }
        }
    }
}

// Groups of two nodes and three nodes a leaf switch: the first group lies below one, the second
// crosses the spine, by links of three cards' rate over the oversubscription. It fills one card's.
TEST(one_group_over_the_spine)
{
    static const double narrow[] = {1.0, 3.0, 6.0, 12.0};
    for (int w = 0; w < COUNT_OF(ways); w++) {
        for (int i = 0; i < COUNT_OF(narrow); i++) {
            AUTO(flow_step) s;
            int64_t end_ns[2];
            set_groups(&s, 3, 2, 3, narrow[i]);
            int64_t lone_ns = set_exchange(&s, ways[w], 100000.0);
            set_forward(&s, F_NS, lone_ns, 0, 12);
            run_two(&s, SP_NETWORK_FLOWS, end_ns);
            assert_int_equal(end_ns[0], F_NS + lone_ns);
            is_near(end_ns[1], F_NS + llround(fmax(1.0, narrow[i] / 3.0) * (double)lone_ns), 2);
        }
    }
}

// What runs behind shared experts, or the other action of a pair, takes no time of its own as long
// as links carry it in that of the work: four fifths of the exchange, beside 10,000 ns.
TEST(hidden_rows_hold_work_up_where_links_are_narrow)
{
    static const double narrow[] = {3.0, 6.0, 30.0};
    for (int i = 0; i < COUNT_OF(narrow); i++) {
        AUTO(flow_step) s;
        int64_t end_ns[2];
        set_groups(&s, 3, 2, 3, narrow[i]);
        int64_t lone_ns = set_exchange(&s, SP_WAY_EXPERTS, 25000.0);
        assert_int_equal(lone_ns, 2500);
        set_forward(&s, F_NS, lone_ns / 5, 0, 12);
        for (int k = 0; k < 12; k++) {
            s.costs.action[SP_ACTION_F][k].ep_beside_ns = lone_ns / 5 * 4;
        }
        run_two(&s, SP_NETWORK_FLOWS, end_ns);
        int64_t hidden_ns = llround(0.8 * narrow[i] / 3.0 * (double)lone_ns);
        int64_t shown_ns = llround(0.2 * narrow[i] / 3.0 * (double)lone_ns);
        assert_int_equal(end_ns[0], F_NS + lone_ns / 5);
        is_near(end_ns[1], (hidden_ns > F_NS ? hidden_ns : F_NS) + shown_ns, 2);
    }
}

// Latencies and counts of rows come first and are no slower on a narrow link.
TEST(fixed_costs_stay)
{
    for (int narrow = 1; narrow <= 2; narrow++) {
        AUTO(flow_step) s;
        int64_t end_ns[2];
        set_groups(&s, 3, 2, 3, 3.0 * narrow);
        s.network.rates.nic_latency_s = 100e-9;
        int64_t wire_ns = set_exchange(&s, SP_WAY_EXPERTS, 100000.0);
        s.costs.experts[0].fixed_s = 3e-6;
        // Four calls, each with a step between nodes; inside them a step takes nothing here.
        set_forward(&s, F_NS, wire_ns + 3000 + 4 * 100, 0, 12);
        run_two(&s, SP_NETWORK_FLOWS, end_ns);
        is_near(end_ns[1], F_NS + narrow * wire_ns + 3000 + 4 * 100, 2);
    }
}

// ---- whole steps ----

enum { GPUS = 32, LAYERS = 4, HIDDEN = 512, TOP = 4, EXPERTS = 32 };

static const char *const dispatchers[] = {"alltoall", "allgather", "deepep", "hybridep"};

typedef struct grid {
    int tp, cp, ep, etp;
} grid;

// Each GPU has a card and all nodes one leaf switch; reductions wait for the last action.
static const char *step_text(const char *dispatcher, bool shared, const char *detail, int length,
                             grid g)
{
    return json_text(
        "{'model': {'layers': %d, 'hidden': %d, 'ffn': 768, 'heads': 8, 'kv_heads': 4, 'vocab': "
        "1024, 'experts': %d, 'experts_per_token': %d, 'shared_ffn': 768}, 'cluster': {'name': "
        "'h100-8', 'host_link_latency_us': 0, 'host_link_gb_per_s': 1000}, 'profile': 'h100', "
        "'network': {'detail': '%s'}, 'parallel': {'tp': %d, 'cp': %d, 'dp': %d, 'ep': %d, 'etp': "
        "%d, 'zero': 1, 'sequence_parallel': %s}, 'stack': {'name': 'megatron-core-2025', "
        "'dispatcher': '%s', 'shared_expert_overlap': %s, 'hide_gradient_reduce': false, "
        "'hide_parameter_gather': false}, 'workload': {'uniform': %d, 'samples_per_batch': %d}, "
        "'memory': {'limit_gib': 5000}}",
        LAYERS, HIDDEN, EXPERTS, TOP, detail, g.tp, g.cp, GPUS / g.tp / g.cp, g.ep, g.etp,
        g.tp > 1 ? "true" : "false", dispatcher, shared ? "true" : "false", length,
        2 * GPUS / g.tp / g.cp);
}

TEST(formulas_hold_where_nothing_meets)
{
    static const grid cases[] = {{1, 1, 8, 1}, {1, 1, 16, 1}, {1, 1, 32, 1}, {2, 1, 16, 1},
                                 {2, 2, 8, 2}, {4, 1, 4, 4},  {4, 2, 16, 1}, {2, 1, 4, 4}};
    static const char *const details[] = {"closed", "flows", "auto"};
    for (int i = 0; i < COUNT_OF(cases) * COUNT_OF(dispatchers) * 2; i++) {
        const char *dispatcher = dispatchers[i / 2 % COUNT_OF(dispatchers)];
        const grid g = cases[i / 2 / COUNT_OF(dispatchers)];
        bool shared = i % 2 == 1 && strcmp(dispatcher, "alltoall") == 0;
        int64_t ns[3];
        for (int d = 0; d < 3; d++) {
            SCENARIO_RUN(r, step_text(dispatcher, shared, details[d], 2048, g), &run_verified);
            ns[d] = r.result.batches[0].iteration_ns;
        }
        // Each action rounds its parts.
        is_near(ns[1], ns[0], 20);
        assert_int_equal(ns[2], ns[1]);
    }
}

static double choose(int n, int k)
{
    return exp(lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0));
}

// Bytes that leave nodes over network cards.
typedef struct sums {
    sp_network network;
    double nic;
} sums;

static sp_status add_links(void *context, const sp_step_view *view, sp_error *err)
{
    sums *of = context;
    sp_topology *topology;
    AUTO_FREE double *bytes;
    sp_status status =
        sp_step_traffic(view->plan, view->costs, &of->network, &topology, &bytes, err);
    for (int32_t l = 0; status == SP_OK && l < sp_topology_links(topology); l++) {
        sp_link link = sp_topology_link(topology, l);
        of->nic += link.kind == SP_LINK_NIC && !link.inward ? bytes[l] : 0.0;
    }
    sp_topology_free(topology);
    return status;
}

// Of a token, of a step's tokens alone: its bytes less those of a step of half the tokens, since
// gradients and parameters are as many in both.
static double token_bytes(const char *dispatcher, grid g)
{
    double nic[2];
    for (int i = 0; i < 2; i++) {
        AUTO(scenario_run) r;
        sums of = {.nic = 0.0};
        const char *text = step_text(dispatcher, false, "flows", 1024 << i, g);
        read_good(text, &r.scenario);
        of.network = sp_scenario_network(&r.scenario);
        const sp_evaluate_options options = {.observer = add_links, .observer_context = &of};
        r.result = (sp_result){0};
        must_succeed(sp_evaluate_batches(&r.scenario, &r.batches, ERR));
        must_succeed(sp_evaluate(&r.scenario, &r.batches, &options, &r.result, ERR));
        nic[i] = of.nic;
    }
    return (nic[1] - nic[0]) / (1024.0 * 2.0 * GPUS / g.tp / g.cp);
}

// A dispatch and a combination of each layer, there and back in forward and backward; a row has 2
// bytes a feature, a dispatched one and the gradient of that a probability for each expert of its
// token as well, or of all experts where all tokens go everywhere. Nodes of 8 GPUs, which a group
// fills or which hold several.
TEST(dispatchers_send_their_bytes_over_cards)
{
    static const grid cases[] = {{1, 1, 8, 1}, {1, 1, 16, 1}, {1, 1, 32, 1}, {2, 1, 16, 1},
                                 {2, 2, 8, 2}, {4, 1, 32, 1}, {4, 2, 16, 2}};
    for (int i = 0; i < COUNT_OF(cases) * COUNT_OF(dispatchers); i++) {
        const grid g = cases[i / COUNT_OF(dispatchers)];
        const int by = i % COUNT_OF(dispatchers);
        const double ranks = g.ep * g.etp;
        const double nodes = fmax(1.0, ranks / 8.0);
        const double row = 2.0 * HIDDEN;
        const double outside = (nodes - 1.0) / nodes;
        double once = 0.0; // one way without probabilities
        double weights = 4.0 * TOP;
        if (by == 0) { // a row for each expert, of which ETP ranks add up theirs inside a node
            once = TOP * outside * row;
            weights *= outside;
        } else if (by == 1) { // around a ring but for one hop, over the borders of its nodes
            const double borders = nodes > 1.0 ? nodes * (ranks - 1.0) / ranks : 0.0;
            once = borders * row;
            weights = borders * 4.0 * EXPERTS;
        } else { // once to each other node that has an expert of it
            const double held = EXPERTS / nodes;
            const double reached = 1.0 - choose(EXPERTS - (int)held, TOP) / choose(EXPERTS, TOP);
            once = (nodes - 1.0) * reached * row;
            weights *= (nodes - 1.0) * reached;
        }
        const double expected = LAYERS * (4.0 * once + 2.0 * weights);
        assert_near(token_bytes(dispatchers[by], g), expected, 1e-9, 1e-6);
    }
}

// ---- anything ----

// Whatever meets on links, a step with experts is the longest path through what ran, and no step is
// faster than its bound.
TEST(any_experts_over_shared_links)
{
    enum { ROUNDS = 400 };
    static const char *const details[] = {"flows", "auto"};
    static const char *const strategies[] = {"packed", "bfd", "slimpack", "balanced", "hybrid-cp"};
    static const char *const schedules[] = {"1f1b", "gpipe", "zb-h1"};
    static const int degrees[] = {1, 1, 2}, eps[] = {2, 4, 8};
    sp_prng prng = prng_seeded(83);
    int ran = 0;
    for (int round = 0; round < test_draws(ROUNDS); round++) {
        const char *strategy = strategies[prng_below(&prng, COUNT_OF(strategies))];
        const char *dispatcher = dispatchers[prng_below(&prng, COUNT_OF(dispatchers))];
        int tp = degrees[prng_below(&prng, COUNT_OF(degrees))];
        int etp = prng_below(&prng, 2) == 0 ? 1 : tp;
        bool beside = strcmp(dispatcher, "alltoall") == 0 && prng_below(&prng, 2) == 0;
        char text[RUN_TEXT] = "";
        put_json(text,
                 "{'model': {'layers': 4, 'hidden': 256, 'ffn': 512, 'heads': 4, 'vocab': 1000, "
                 "'experts': 8, 'experts_per_token': %d, 'shared_ffn': 512, 'expert_imbalance': "
                 "%s}, 'workload': {'lengths': [",
                 1 + prng_below(&prng, 3), prng_below(&prng, 2) == 0 ? "'exact'" : "0.3");
        for (int i = 0; i < 24; i++) {
            put_json(text, "%s%d", i > 0 ? ", " : "", 1 + prng_below(&prng, 4000));
        }
        put_json(text,
                 "], 'context': 4096, 'samples_per_batch': 24}, 'memory': {'limit_gib': 5000}, "
                 "'cluster': {'name': 'h100-8', 'gpus_per_node': %d, 'nics_per_node': %d, "
                 "'nic_gbit_per_s': %d, 'fabric': {'nodes_per_leaf': %d, 'oversubscription': %d}}, "
                 "'profile': 'h100', 'network': {'detail': '%s'}, 'parallel': {'tp': %d, 'cp': %d, "
                 "'pp': %d, 'dp': 8, 'ep': %d, 'etp': %d, 'zero': %d, 'sequence_parallel': %s}, "
                 "'strategy': {'kind': '%s'}, 'stack': {'name': 'megatron-core-2025', "
                 "'dispatcher': '%s', 'shared_expert_overlap': %s}",
                 2 << prng_below(&prng, 3), 1 << prng_below(&prng, 3), 10 << prng_below(&prng, 6),
                 1 + prng_below(&prng, 4), 1 + prng_below(&prng, 4), details[prng_below(&prng, 2)],
                 tp, degrees[prng_below(&prng, 3)], degrees[prng_below(&prng, 3)],
                 eps[prng_below(&prng, 3)], etp, prng_below(&prng, 2), tp > 1 ? "true" : "false",
                 strategy, dispatcher, beside ? "true" : "false");
        put_json(text, strcmp(strategy, "slimpack") == 0 ? "}" : ", 'schedule': {'kind': '%s'}}",
                 schedules[prng_below(&prng, COUNT_OF(schedules))]);
        AUTO(scenario_run) r = {0};
        sp_error_clear(ERR);
        if (run_text(text, &run_verified, &r, ERR) == SP_OK) {
            limit_holds(text, &r.result);
            const sp_batch_result *batch = &r.result.batches[0];
            must_hold(batch->facts.lower_bound_ns <= (double)batch->iteration_ns,
                      "bound %.3f above %lld ns: %s", batch->facts.lower_bound_ns,
                      (long long)batch->iteration_ns, text);
            ran++;
        }
    }
    assert_true(ran > test_draws(ROUNDS) / 2);
}

TEST(exchanges_within_actions_are_refused)
{
    run_refused("{'model': 'mixtral-8x7b', 'cluster': 'h100-8', 'parallel': {'dp': 8, 'ep': 8, "
                "'zero': 3}, 'network': {'detail': 'flows'}}",
                "network.detail: \"flows\" does not go with parallel.zero 2 or 3 beside experts");
}
