// A step's transfers as flows that share links: where no link is full they take their closed times,
// to the nanosecond; where links are shared every action runs when a small event simulation that is
// written by itself says so (flow_step.h). Every run is checked against igraph's longest path.
#include "sim/simulate/engine.h"
#include "tests/support/flow_run.h"
#include "tests/support/random_step.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"
#include "tests/support/uniform_step.h"

static void compare(const flow_step *s, const sp_network *first, const sp_network *second)
{
    AUTO(sp_timeline) a, b;
    flow_run(s, first, &a);
    flow_run(s, second, &b);
    flow_assert_same(&a, &b);
}

// Drawn steps; by the algorithm that every reduction and gather names for itself, or the profile's.
static void compare_drawn(uint64_t seed, int rounds, bool busy, bool by_algorithm)
{
    sp_prng prng = prng_seeded(seed);
    for (int round = 0; round < test_rounds(rounds); round++) {
        AUTO(flow_step) s;
        flow_step_draw(&prng, &s, busy);
        if (busy) {
            flow_step_draw_spine(&prng, &s);
        }
        if (by_algorithm) {
            flow_step_draw_algorithms(&prng, &s);
        }
        sp_network quick = s.network;
        quick.detail = SP_NETWORK_AUTO;
        compare(&s, busy ? &quick : NULL, &s.network);
    }
}

TEST(links_that_are_never_full_change_nothing)
{
    compare_drawn(3, 40, false, false);
    compare_drawn(14, 60, false, true);
}

// Also where some transfers cannot meet others and take their closed times.
TEST(auto_is_flows)
{
    compare_drawn(4, 120, true, false);
    compare_drawn(15, 120, true, true);
}

// A reduction's rings inside nodes and between them, and its gather's, follow each other: alone in
// the cluster they need no flows, and alike ranks are walked once.
TEST(legs_of_one_exchange_do_not_meet)
{
    for (int a = SP_ALGORITHM_PROFILE; a < SP_ALGORITHM_AUTO; a++) {
        sp_collective_algorithm by = (sp_collective_algorithm)a;
        AUTO(flow_step) s = {
            .layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 4, .chunks = 1, .zero = 1}};
        size_t tasks[3];
        flow_step_uniform(&s, 0.0, 0.0);
        s.costs.ranks[0].epilogue = (sp_epilogue_cost){.grad_reduce_ns = 100000,
                                                       .param_gather_ns = 100000,
                                                       .reduce_bytes = 5000.0,
                                                       .gather_bytes = 5000.0,
                                                       .reduces_by = by,
                                                       .gathers_by = by};
        flow_step_schedule(&s, SP_SCHEDULE_1F1B, SP_NETWORK_CLOSED);
        for (int detail = 0; detail < 3; detail++) {
            const sp_engine_options options = {.network = &s.network};
            AUTO(sp_timeline) timeline;
            AUTO(sp_memory_timeline) memory;
            sp_engine_counts counts;
            s.network.detail = (sp_network_detail)detail;
            must_succeed(
                sp_simulate(&s.plan, &s.costs, &options, &timeline, &memory, &counts, ERR));
            tasks[detail] = counts.tasks;
        }
        assert_true(tasks[SP_NETWORK_AUTO] == tasks[SP_NETWORK_CLOSED]);
        assert_true(tasks[SP_NETWORK_FLOWS] > tasks[SP_NETWORK_CLOSED]);
    }
}

// Nanoseconds are rounded at every change of a rate there and at every event here.
TEST_ROUNDS(a_step_event_by_event, 5, test_rounds(60))
{
    AUTO(flow_step) s;
    AUTO(sp_timeline) walked, expected;
    flow_step_draw(prng, &s, true);
    flow_step_draw_spine(prng, &s);
    flow_run(&s, &s.network, &walked);
    flow_step_events(&s, &expected);
    for (size_t r = 0; r < walked.rank_count; r++) {
        for (size_t a = 0; a < walked.ranks[r].count; a++) {
            assert_within((double)walked.ranks[r].spans[a].start_ns,
                          (double)expected.ranks[r].spans[a].start_ns, 200.0);
        }
        assert_within((double)walked.ranks[r].gather_end_ns,
                      (double)expected.ranks[r].gather_end_ns, 200.0);
    }
}

// On GPUs that differ, alone on the network and not.
static void run_apart(const flow_step *s, int seed)
{
    for (int shared = 0; shared < 2; shared++) {
        const sp_engine_options options = {.verify = true,
                                           .jitter = {0.1, (uint64_t)seed},
                                           .network = shared == 0 ? NULL : &s->network};
        AUTO(simulated_plan) made;
        simulate_plan(&s->plan, &s->costs, &options, &made);
        flow_reduced_last(&made.timeline);
    }
}

// Pack 0 is on both data-parallel ranks, pack 1 on the first, pack 2 on the second.
TEST_ROUNDS(merged_packs, 8, 40)
{
    static const int ranks[3][2] = {{0, 2}, {0, 1}, {1, 1}};
    AUTO(flow_step) s = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1}};
    sp_packing_init(&s.packing, NULL, 2);
    for (int k = 0; k < 3; k++) {
        sp_pack_list_begin(&s.packing.forward, ranks[k][0], ranks[k][1]);
    }
    random_costs(prng, &s.layout, &s.packing, 0, &s.costs);
    flow_step_lengthen(&s.costs);
    flow_step_set_bytes(&s.costs, round % 2 == 0 ? 20.0 : 20000.0, 20.0);
    flow_step_set_exchanges(&s, round % 2 == 0 ? 2.0 : 2000.0);
    flow_step_draw_sharded(prng, &s, round % 2 == 0 ? 10.0 : 10000.0);
    sp_plan_init(&s.plan, &s.layout, &s.packing);
    bool last = round % 4 < 2; // pack 0, on the first rank
    plan_add_actions(&s.plan, 0, 0, last ? "F1F0B1B0" : "F0F1B0B1");
    plan_add_actions(&s.plan, 0, 1, last ? "F1B1F0B0" : "F0B0F1B1");
    plan_add_actions(&s.plan, 1, 0, "F2F0B2B0");
    plan_add_actions(&s.plan, 1, 1, "F2B2F0B0");
    must_succeed(sp_plan_check(&s.plan, "test", ERR));
    flow_step_set_cluster(&s, SP_NETWORK_FLOWS);
    s.cluster.nics_per_node = 1 + (round % 2 == 0);
    sp_network quick = s.network;
    quick.detail = SP_NETWORK_AUTO;
    compare(&s, &quick, &s.network);
    if (round % 2 == 0) {
        compare(&s, NULL, &s.network);
    }
    run_apart(&s, round);
}

// ---- the bytes that links carry ----

// Both pipelines send a hidden state from node to node and a gradient back; both stages reduce
// inside their nodes.
TEST(bytes_on_links)
{
    AUTO(flow_step) s = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1, .zero = 0}};
    double sums[SP_LINK_KINDS][2];
    flow_step_uniform(&s, 40000.0, 30000.0);
    for (int k = 0; k < 2; k++) {
        s.costs.side[0].p2p[k].ns = s.costs.side[1].p2p[k].ns = 100000;
        s.costs.ranks[k].epilogue.grad_reduce_ns = 100000;
        s.costs.ranks[k].epilogue.reduce_bytes = 5000.0;
    }
    flow_step_schedule(&s, SP_SCHEDULE_1F1B, SP_NETWORK_CLOSED);
    flow_link_bytes(&s, sums);
    for (int inward = 0; inward < 2; inward++) {
        // An all-reduce of n ranks sends 2 (n - 1) / n of the tensor from each.
        assert_close(sums[SP_LINK_NIC][inward], 2 * (40000.0 + 30000.0), 1e-12);
        assert_close(sums[SP_LINK_NVLINK][inward], 2 * 2 * 5000.0, 1e-12);
    }
}

// Four data-parallel ranks in two nodes of two GPUs reduce 5000 bytes: a ring over all sends three
// quarters of them twice from each node, trees send all of them from each, and so do rings of one
// GPU of each node, with half of them; those have sent half of them twice inside the nodes before
// and after.
TEST(bytes_on_links_by_algorithm)
{
    const struct {
        sp_collective_algorithm by;
        double nic, nvlink; // of a node, of a GPU
    } cases[] = {{SP_ALGORITHM_PROFILE, 1.5, 0.75},
                 {SP_ALGORITHM_RING, 1.5, 0.75},
                 {SP_ALGORITHM_TREE, 1.0, 1.0},
                 {SP_ALGORITHM_NVLS, 1.0, 1.5},
                 {SP_ALGORITHM_HIERARCHICAL, 1.0, 1.0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO(flow_step) s = {
            .layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 4, .chunks = 1, .zero = 0}};
        sp_topology *topology;
        AUTO_FREE double *bytes;
        flow_step_uniform(&s, 0.0, 0.0);
        s.costs.ranks[0].epilogue = (sp_epilogue_cost){
            .grad_reduce_ns = 100000, .reduce_bytes = 5000.0, .reduces_by = cases[i].by};
        flow_step_schedule(&s, SP_SCHEDULE_1F1B, SP_NETWORK_FLOWS);
        must_succeed(sp_step_traffic(&s.plan, &s.costs, &s.network, &topology, &bytes, ERR));
        for (int32_t l = 0; l < sp_topology_links(topology); l++) {
            sp_link link = sp_topology_link(topology, l);
            if (link.kind == SP_LINK_NIC) {
                assert_close(bytes[l], cases[i].nic * 5000.0, 1e-9);
            }
        }
        double nvlink = 0.0;
        for (int32_t l = 0; l < sp_topology_links(topology); l++) {
            nvlink += sp_topology_link(topology, l).kind == SP_LINK_NVLINK ? bytes[l] : 0.0;
        }
        assert_close(nvlink, 8 * cases[i].nvlink * 5000.0, 1e-9);
        sp_topology_free(topology);
    }
}

static void assert_same_bytes(const double *a, const double *b, const sp_topology *topology)
{
    for (int32_t l = 0; l < sp_topology_links(topology); l++) {
        assert_within(a[l], b[l], 1e-9 * a[l]);
    }
}

// How fast links are, how late, and how long everything takes alone: none of it moves a byte.
TEST_ROUNDS(bytes_depend_on_no_rate_and_no_latency, 16, test_rounds(60))
{
    AUTO(flow_step) s;
    sp_topology *topology[2];
    double *bytes[2];
    flow_step_draw(prng, &s, true);
    s.cluster.fabric.nodes_per_leaf = 1;
    flow_step_draw_algorithms(prng, &s);
    must_succeed(sp_step_traffic(&s.plan, &s.costs, &s.network, &topology[0], &bytes[0], ERR));
    flow_step_draw_spine(prng, &s);
    s.cluster.nic_bytes_per_s *= 0.1 + sp_prng_uniform(prng);
    s.network.rates.nvlink_bytes_per_s *= 0.1 + sp_prng_uniform(prng);
    s.network.rates.nic_latency_s *= 1000.0 * sp_prng_uniform(prng);
    for (int r = 0; r < s.layout.pp; r++) {
        s.costs.ranks[r].epilogue.param_gather_ns = 1 + prng_below(prng, 40000);
    }
    must_succeed(sp_step_traffic(&s.plan, &s.costs, &s.network, &topology[1], &bytes[1], ERR));
    assert_same_bytes(bytes[0], bytes[1], topology[0]);
    for (int i = 0; i < 2; i++) {
        sp_topology_free(topology[i]);
        sp_free(bytes[i]);
    }
}

// ---- steps that are refused: times that do not fit, what flows do not go with ----

// Four ranks that run two actions each: all of them together are below the limit, or above it.
TEST(sums_over_all_ranks)
{
    const struct {
        int64_t action_ns;
        sp_status status;
    } cases[] = {{500000000000000000, SP_OK}, {2000000000000000000, SP_ERR_LIMIT}};
    for (int i = 0; i < 4; i++) {
        AUTO(flow_step) s = {.layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 4, .chunks = 1}};
        flow_step_uniform(&s, 0.0, 0.0);
        for (int k = 0; k < 4; k++) {
            s.costs.action[SP_ACTION_F][k].compute_ns = s.costs.action[SP_ACTION_B][k].compute_ns =
                cases[i / 2].action_ns;
        }
        flow_step_schedule(&s, SP_SCHEDULE_1F1B, SP_NETWORK_FLOWS);
        // Alone, ranks that are alike run once.
        const sp_engine_options options = {.network = i % 2 == 0 ? NULL : &s.network};
        AUTO(sp_timeline) timeline;
        AUTO(sp_memory_timeline) memory;
        sp_engine_counts counts;
        sp_error_clear(ERR);
        assert_int_equal(sp_simulate(&s.plan, &s.costs, &options, &timeline, &memory, &counts, ERR),
                         cases[i / 2].status);
    }
}

TEST(what_flows_do_not_go_with)
{
    sp_prng prng = prng_seeded(6);
    AUTO(flow_step) s;
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts;
    flow_step_draw(&prng, &s, true);
    const sp_engine_options options = {.network = &s.network};
    s.plan.layout.vocab_parallel = true;
    must_fail(sp_simulate(&s.plan, &s.costs, &options, &timeline, &memory, &counts, ERR),
              SP_ERR_CONTENT, "network.detail: flows do not go with parallel.vocab_parallel");
    s.plan.layout.vocab_parallel = false;
    s.costs.has_bytes = false;
    must_fail(sp_simulate(&s.plan, &s.costs, &options, &timeline, &memory, &counts, ERR),
              SP_ERR_CONTENT, "network.detail: uniform costs have no bytes");
}
