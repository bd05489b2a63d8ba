// A step's transfers as flows that share links: where no link is full they take their closed times,
// to the nanosecond; where links are shared every action runs when a small event simulation that is
// written by itself says so (flow_step.h). Every run is checked against igraph's longest path.
#include "sim/base/alloc.h"
#include "sim/engine/engine.h"
#include "tests/support/flow_step.h"
#include "tests/support/random_step.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"
#include "tests/support/uniform_step.h"

// Reductions wait for the last action of their pipeline rank on any data-parallel rank.
static void assert_reduced_last(const sp_timeline *timeline)
{
    int pp = timeline->plan->layout.pp;
    for (size_t r = 0; r < timeline->rank_count; r++) {
        int64_t last_ns = 0;
        for (size_t i = r % (size_t)pp; i < timeline->rank_count; i += (size_t)pp) {
            int64_t end_ns = sp_rank_last_ns(&timeline->ranks[i]);
            last_ns = end_ns > last_ns ? end_ns : last_ns;
        }
        assert_int_equal(timeline->ranks[r].reduce_start_ns, last_ns);
    }
}

static void run(const flow_step *s, const sp_network *network, sp_timeline *timeline)
{
    const sp_engine_options options = {.verify = true, .unfold = true, .network = network};
    sp_memory_timeline memory;
    sp_engine_counts counts;
    must_succeed(sp_simulate(&s->plan, &s->costs, &options, timeline, &memory, &counts, ERR));
    assert_reduced_last(timeline);
    sp_memory_timeline_fini(&memory);
}

static void assert_same(const sp_timeline *a, const sp_timeline *b)
{
    assert_int_equal(a->rank_count, b->rank_count);
    for (size_t r = 0; r < a->rank_count; r++) {
        assert_int_equal(a->ranks[r].count, b->ranks[r].count);
        assert_memory_equal(a->ranks[r].spans, b->ranks[r].spans,
                            a->ranks[r].count * sizeof *a->ranks[r].spans);
        assert_int_equal(a->ranks[r].gather_end_ns, b->ranks[r].gather_end_ns);
    }
    assert_int_equal(a->iteration_ns, b->iteration_ns);
}

static void compare(const flow_step *s, const sp_network *first, const sp_network *second)
{
    sp_timeline a, b;
    run(s, first, &a);
    run(s, second, &b);
    assert_same(&a, &b);
    sp_timeline_fini(&a);
    sp_timeline_fini(&b);
}

TEST(links_that_are_never_full_change_nothing)
{
    sp_prng prng = prng_seeded(3);
    for (int round = 0; round < test_rounds(40); round++) {
        flow_step s;
        flow_step_draw(&prng, &s, false);
        compare(&s, NULL, &s.network);
        flow_step_fini(&s);
    }
}

// A leaf switch for each node, and a spine that slows what crosses it.
static void draw_spine(sp_prng *prng, flow_step *s)
{
    if (prng_below(prng, 2) == 0) {
        s->cluster.fabric.nodes_per_leaf = 1;
        s->cluster.fabric.oversubscription = 1.0 + sp_prng_uniform(prng);
        s->cluster.fabric.spine_latency_s = prng_below(prng, 2) * 1e-6;
    }
}

// As costs name them: every reduction and every gather by another one.
static void draw_algorithms(sp_prng *prng, flow_step *s)
{
    for (int p = 0; p < s->layout.pp; p++) {
        sp_epilogue_cost *epilogue = &s->costs.epilogue[p];
        epilogue->reduces_by = (sp_collective_algorithm)prng_below(prng, SP_ALGORITHM_AUTO);
        epilogue->gathers_by = (sp_collective_algorithm)prng_below(prng, SP_ALGORITHM_AUTO);
    }
    for (int v = 0; s->costs.buckets != NULL && v < sp_layout_vstages(&s->layout); v++) {
        s->costs.buckets[v].reduces_by =
            (sp_collective_algorithm)prng_below(prng, SP_ALGORITHM_AUTO);
    }
    for (int v = 0; s->costs.sharded != NULL && v < sp_layout_vstages(&s->layout); v++) {
        sp_sharded_stage *of = &s->costs.sharded[v];
        of->gathers_by = (sp_collective_algorithm)prng_below(prng, SP_ALGORITHM_AUTO);
        of->scatters_by = (sp_collective_algorithm)prng_below(prng, SP_ALGORITHM_AUTO);
    }
}

TEST(algorithms_alone_take_their_closed_times)
{
    sp_prng prng = prng_seeded(14);
    for (int round = 0; round < test_rounds(60); round++) {
        flow_step s;
        flow_step_draw(&prng, &s, false);
        draw_algorithms(&prng, &s);
        compare(&s, NULL, &s.network);
        flow_step_fini(&s);
    }
}

TEST(auto_is_flows_for_every_algorithm)
{
    sp_prng prng = prng_seeded(15);
    for (int round = 0; round < test_rounds(120); round++) {
        flow_step s;
        flow_step_draw(&prng, &s, true);
        draw_spine(&prng, &s);
        draw_algorithms(&prng, &s);
        sp_network quick = s.network;
        quick.detail = SP_NETWORK_AUTO;
        compare(&s, &quick, &s.network);
        flow_step_fini(&s);
    }
}

// Also where some transfers cannot meet others and take their closed times.
TEST(auto_is_flows)
{
    sp_prng prng = prng_seeded(4);
    for (int round = 0; round < test_rounds(120); round++) {
        flow_step s;
        flow_step_draw(&prng, &s, true);
        draw_spine(&prng, &s);
        sp_network quick = s.network;
        quick.detail = SP_NETWORK_AUTO;
        compare(&s, &quick, &s.network);
        flow_step_fini(&s);
    }
}

// Nanoseconds are rounded at every change of a rate there and at every event here.
TEST(a_step_event_by_event)
{
    sp_prng prng = prng_seeded(5);
    for (int round = 0; round < test_rounds(60); round++) {
        flow_step s;
        sp_timeline walked, expected;
        flow_step_draw(&prng, &s, true);
        draw_spine(&prng, &s);
        run(&s, &s.network, &walked);
        flow_step_events(&s, &expected);
        for (size_t r = 0; r < walked.rank_count; r++) {
            for (size_t a = 0; a < walked.ranks[r].count; a++) {
                assert_within((double)walked.ranks[r].spans[a].start_ns,
                              (double)expected.ranks[r].spans[a].start_ns, 200.0);
            }
            assert_within((double)walked.ranks[r].gather_end_ns,
                          (double)expected.ranks[r].gather_end_ns, 200.0);
        }
        sp_timeline_fini(&walked);
        sp_timeline_fini(&expected);
        flow_step_fini(&s);
    }
}

// ---- closed forms ----

enum { F_NS = 10000, B_NS = 20000 };

// One micro-batch of 40,000 bytes on each of dp pipelines of two stages, whose first stages are in
// one node and the last in another: with several, they share its NIC, of which the formula gives
// each its part. Each pipeline begins later_ns behind the one before. Fills the starts of the last
// stages' forwards.
static int64_t makespan_ns(const char *order, int dp, double rate, int64_t later_ns,
                           sp_network_detail detail, int64_t starts_ns[])
{
    flow_step s = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = dp, .chunks = 1}};
    sp_timeline timeline;
    assert_true(sp_rank_order_read(order, &s.layout.order));
    must_succeed(uniform_packing(&s.packing, dp, 1, ERR));
    must_succeed(sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, false, ERR));
    flow_step_set_bytes(&s.costs, 40000.0, 40000.0);
    s.costs.crosses_nodes[0] = s.costs.crosses_nodes[1] = 1;
    for (int k = 0; k < dp; k++) {
        s.costs.f[k].compute_ns = F_NS + k * later_ns;
        s.costs.b[k].compute_ns = B_NS;
        s.costs.p2p_f_internode_ns[k] = s.costs.p2p_b_internode_ns[k] =
            llround(40000.0 / rate * dp * 1e9);
    }
    must_succeed(plan_by_schedule(&s.plan, &s.layout, &s.packing, SP_SCHEDULE_1F1B, ERR));
    flow_step_set_cluster(&s, detail);
    s.cluster.nodes = 2;
    s.cluster.nic_bytes_per_s = rate;
    s.network.rates.nic_latency_s = 0.0;
    s.cluster.gpus_per_node = dp;
    run(&s, &s.network, &timeline);
    for (int d = 0; starts_ns != NULL && d < dp; d++) {
        starts_ns[d] = timeline.ranks[2 * d + 1].spans[0].start_ns;
    }
    int64_t ns = timeline.makespan_ns;
    sp_timeline_fini(&timeline);
    flow_step_fini(&s);
    return ns;
}

// Both pipelines send a hidden state from node to node and a gradient back; both stages reduce
// inside their nodes.
TEST(bytes_on_links)
{
    flow_step s = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1, .zero = 0}};
    sp_topology *topology;
    double *bytes;
    double sums[SP_LINK_KINDS][2] = {{0.0}};
    must_succeed(uniform_packing(&s.packing, 2, 1, ERR));
    must_succeed(sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, false, ERR));
    flow_step_set_bytes(&s.costs, 40000.0, 30000.0);
    for (int k = 0; k < 2; k++) {
        s.costs.p2p_f_ns[k] = s.costs.p2p_b_ns[k] = 100000;
        s.costs.epilogue[k].grad_reduce_ns = 100000;
        s.costs.epilogue[k].reduce_bytes = 5000.0;
    }
    must_succeed(plan_by_schedule(&s.plan, &s.layout, &s.packing, SP_SCHEDULE_1F1B, ERR));
    flow_step_set_cluster(&s, SP_NETWORK_CLOSED);
    must_succeed(sp_step_traffic(&s.plan, &s.costs, &s.network, &topology, &bytes, ERR));
    for (int32_t l = 0; l < sp_topology_links(topology); l++) {
        sp_link link = sp_topology_link(topology, l);
        sums[link.kind][link.inward] += bytes[l];
    }
    for (int inward = 0; inward < 2; inward++) {
        // An all-reduce of n ranks sends 2 (n - 1) / n of the tensor from each.
        assert_close(sums[SP_LINK_NIC][inward], 2 * (40000.0 + 30000.0), 1e-12);
        assert_close(sums[SP_LINK_NVLINK][inward], 2 * 2 * 5000.0, 1e-12);
    }
    sp_topology_free(topology);
    sp_free(bytes);
    flow_step_fini(&s);
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
        flow_step s = {.layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 4, .chunks = 1, .zero = 0}};
        sp_topology *topology;
        double *bytes;
        must_succeed(uniform_packing(&s.packing, 4, 1, ERR));
        must_succeed(sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, false, ERR));
        flow_step_set_bytes(&s.costs, 0.0, 0.0);
        s.costs.epilogue[0] = (sp_epilogue_cost){
            .grad_reduce_ns = 100000, .reduce_bytes = 5000.0, .reduces_by = cases[i].by};
        must_succeed(plan_by_schedule(&s.plan, &s.layout, &s.packing, SP_SCHEDULE_1F1B, ERR));
        flow_step_set_cluster(&s, SP_NETWORK_FLOWS);
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
        sp_free(bytes);
        flow_step_fini(&s);
    }
}

// A reduction's rings inside nodes and between them, and its gather's, follow each other: alone in
// the cluster they need no flows, and alike ranks are walked once.
TEST(legs_of_one_exchange_do_not_meet)
{
    for (int a = SP_ALGORITHM_PROFILE; a < SP_ALGORITHM_AUTO; a++) {
        sp_collective_algorithm by = (sp_collective_algorithm)a;
        flow_step s = {.layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 4, .chunks = 1, .zero = 1}};
        size_t tasks[3];
        must_succeed(uniform_packing(&s.packing, 4, 1, ERR));
        must_succeed(sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, false, ERR));
        flow_step_set_bytes(&s.costs, 0.0, 0.0);
        s.costs.epilogue[0] = (sp_epilogue_cost){.grad_reduce_ns = 100000,
                                                 .param_gather_ns = 100000,
                                                 .reduce_bytes = 5000.0,
                                                 .gather_bytes = 5000.0,
                                                 .reduces_by = by,
                                                 .gathers_by = by};
        must_succeed(plan_by_schedule(&s.plan, &s.layout, &s.packing, SP_SCHEDULE_1F1B, ERR));
        flow_step_set_cluster(&s, SP_NETWORK_CLOSED);
        for (int detail = 0; detail < 3; detail++) {
            const sp_engine_options options = {.network = &s.network};
            sp_timeline timeline;
            sp_memory_timeline memory;
            sp_engine_counts counts;
            s.network.detail = (sp_network_detail)detail;
            must_succeed(
                sp_simulate(&s.plan, &s.costs, &options, &timeline, &memory, &counts, ERR));
            tasks[detail] = counts.tasks;
            sp_memory_timeline_fini(&memory);
            sp_timeline_fini(&timeline);
        }
        assert_true(tasks[SP_NETWORK_AUTO] == tasks[SP_NETWORK_CLOSED]);
        assert_true(tasks[SP_NETWORK_FLOWS] > tasks[SP_NETWORK_CLOSED]);
        flow_step_fini(&s);
    }
}

static void assert_same_bytes(const double *a, const double *b, const sp_topology *topology)
{
    for (int32_t l = 0; l < sp_topology_links(topology); l++) {
        assert_within(a[l], b[l], 1e-9 * a[l]);
    }
}

// How fast links are, how late, and how long everything takes alone: none of it moves a byte.
TEST(bytes_depend_on_no_rate_and_no_latency)
{
    sp_prng prng = prng_seeded(16);
    for (int round = 0; round < test_rounds(60); round++) {
        flow_step s;
        sp_topology *topology[2];
        double *bytes[2];
        flow_step_draw(&prng, &s, true);
        s.cluster.fabric.nodes_per_leaf = 1;
        draw_algorithms(&prng, &s);
        must_succeed(sp_step_traffic(&s.plan, &s.costs, &s.network, &topology[0], &bytes[0], ERR));
        draw_spine(&prng, &s);
        s.cluster.nic_bytes_per_s *= 0.1 + sp_prng_uniform(&prng);
        s.network.rates.nvlink_bytes_per_s *= 0.1 + sp_prng_uniform(&prng);
        s.network.rates.nic_latency_s *= 1000.0 * sp_prng_uniform(&prng);
        for (int r = 0; r < s.layout.pp; r++) {
            s.costs.epilogue[r].param_gather_ns = 1 + prng_below(&prng, 40000);
        }
        must_succeed(sp_step_traffic(&s.plan, &s.costs, &s.network, &topology[1], &bytes[1], ERR));
        assert_same_bytes(bytes[0], bytes[1], topology[0]);
        for (int i = 0; i < 2; i++) {
            sp_topology_free(topology[i]);
            sp_free(bytes[i]);
        }
        flow_step_fini(&s);
    }
}

TEST(two_pipelines_on_one_nic)
{
    const int64_t work_ns = 2 * (F_NS + B_NS);
    for (int detail = 0; detail < 3; detail++) {
        sp_network_detail of = (sp_network_detail)detail;
        const char *order = "tp-cp-dp-pp";
        assert_int_equal(makespan_ns(order, 1, 10e9, 0, of, NULL), work_ns + 2 * 4000);
        assert_int_equal(makespan_ns(order, 2, 10e9, 0, of, NULL), work_ns + 2 * 2 * 4000);
        assert_int_equal(makespan_ns(order, 2, 20e9, 0, of, NULL), work_ns + 2 * 2 * 2000);
        assert_int_equal(makespan_ns(order, 4, 20e9, 0, of, NULL), work_ns + 2 * 4 * 2000);
    }
}

// All of the NIC while one sends, and half of it each while both do: it is never less than full, so
// that the second is there when all bytes have been sent since it, or the first, began.
TEST(a_pipeline_alone_has_all_of_a_nic)
{
    enum { ALONE_NS = 4000 };
    for (int64_t later_ns = 0; later_ns <= 6000; later_ns += 500) {
        bool meet = later_ns < ALONE_NS;
        for (int detail = SP_NETWORK_FLOWS; detail <= SP_NETWORK_AUTO; detail++) {
            int64_t starts_ns[2];
            makespan_ns("tp-cp-dp-pp", 2, 10e9, later_ns, (sp_network_detail)detail, starts_ns);
            assert_int_equal(starts_ns[0], F_NS + (meet ? 2 * ALONE_NS - later_ns : ALONE_NS));
            assert_int_equal(starts_ns[1], F_NS + (meet ? 2 * ALONE_NS : later_ns + ALONE_NS));
        }
    }
}

// Two pipeline ranks of each node reduce over its one NIC, 40,000 bytes in 2000 ns alone, or 4000
// by a half of it, by rings that carry half of them. The last stage begins as much earlier as the
// first takes to run its backward and to get what it needs for that; from then on each has half of
// the NIC.
static void run_reductions(int64_t b_ns, sp_network_detail detail, sp_timeline *timeline)
{
    flow_step s = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1, .zero = 1}};
    assert_true(sp_rank_order_read("tp-pp-cp-dp", &s.layout.order));
    must_succeed(uniform_packing(&s.packing, 2, 1, ERR));
    must_succeed(sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, false, ERR));
    flow_step_set_bytes(&s.costs, 0.0, 0.0);
    for (int k = 0; k < 2; k++) {
        s.costs.f[k].compute_ns = F_NS;
        s.costs.b[k].compute_ns = b_ns;
        s.costs.epilogue[k].grad_reduce_ns = 4000;
        s.costs.epilogue[k].reduce_bytes = 40000.0;
    }
    must_succeed(plan_by_schedule(&s.plan, &s.layout, &s.packing, SP_SCHEDULE_1F1B, ERR));
    flow_step_set_cluster(&s, detail);
    s.network.rates.nic_latency_s = 0.0;
    run(&s, &s.network, timeline);
    flow_step_fini(&s);
}

TEST(two_stages_reduce_over_one_nic)
{
    enum { ALONE_NS = 2000 };
    for (int64_t b_ns = 500; b_ns <= 2500; b_ns += 500) {
        int64_t last_ns = 2 * F_NS + b_ns;
        int64_t first_ns = last_ns + b_ns;
        int64_t left_ns = b_ns < ALONE_NS ? ALONE_NS - b_ns : 0;
        for (int detail = 0; detail < 3; detail++) {
            bool shared = detail != SP_NETWORK_CLOSED;
            sp_timeline timeline;
            run_reductions(b_ns, (sp_network_detail)detail, &timeline);
            for (size_t r = 0; r < timeline.rank_count; r++) {
                int64_t begin_ns = timeline.ranks[r].pp == 0 ? first_ns : last_ns;
                assert_int_equal(timeline.ranks[r].reduce_end_ns,
                                 begin_ns + (shared ? ALONE_NS + left_ns : 2 * ALONE_NS));
            }
            sp_timeline_fini(&timeline);
        }
    }
}

// One pack on each of two data-parallel ranks, whose context-parallel ranks lie in two nodes: both
// groups exchange over the same NICs, by rings that carry half of the bytes.
static void set_groups_of(flow_step *s, int cp, int dp, const char *order, sp_network_detail detail)
{
    *s = (flow_step){.layout = {.tp = 1, .cp = cp, .pp = 1, .dp = dp, .chunks = 1}};
    assert_true(sp_rank_order_read(order, &s->layout.order));
    must_succeed(uniform_packing(&s->packing, dp, 1, ERR));
    must_succeed(sp_i_step_costs_init(&s->costs, &s->layout, &s->packing, 1, false, ERR));
    flow_step_set_bytes(&s->costs, 0.0, 0.0);
    flow_step_set_exchanges(s, 0.0);
    for (int k = 0; k < dp; k++) {
        s->costs.cp_i[k] = s->costs.cp_r[k] = (sp_cp_exchange){0};
    }
    must_succeed(sp_plan_init(&s->plan, &s->layout, &s->packing, ERR));
    flow_step_set_cluster(s, detail);
    s->network.rates.nic_latency_s = 0.0;
}

static void set_groups(flow_step *s, sp_network_detail detail)
{
    set_groups_of(s, 2, 2, "dp-tp-cp-pp", detail);
}

// In each of two layers, of what takes whole_ns in all.
static sp_cp_exchange each_of_two(double bytes, int64_t whole_ns)
{
    return (sp_cp_exchange){.s = (double)whole_ns / 2.0 * 1e-9, .bytes = 0.5 * bytes};
}

static int64_t span_ns(const sp_timeline *timeline, size_t span)
{
    const sp_span *of = &timeline->ranks[1].spans[span];
    return of->end_ns - of->start_ns;
}

static void add_actions(flow_step *s, int dp, int pp, const char *actions)
{
    for (const char *c = actions; *c != '\0'; c += 2) {
        sp_action_kind kind = *c == 'F' ? SP_ACTION_F : *c == 'R' ? SP_ACTION_R : SP_ACTION_B;
        assert_true(sp_stage_plan_add(sp_plan_stage(&s->plan, dp, pp), kind, 0, c[1] - '0'));
    }
}

// A forward whose shown_ns come after 10,000 ns of computation.
static int64_t exchange_ns(double bytes, int64_t whole_ns, int64_t shown_ns,
                           sp_network_detail detail)
{
    flow_step s;
    sp_timeline timeline;
    set_groups(&s, detail);
    for (int k = 0; k < 2; k++) {
        s.costs.cp_f[k] = each_of_two(bytes, whole_ns);
        s.costs.f[k] = (sp_action_cost){.compute_ns = F_NS, .cp_ns = shown_ns};
        add_actions(&s, k, 0, k == 0 ? "F0B0" : "F1B1");
    }
    run(&s, &s.network, &timeline);
    int64_t ns = span_ns(&timeline, 0);
    assert_int_equal(timeline.ranks[1].spans[0].cp_ns, ns - F_NS);
    sp_timeline_fini(&timeline);
    flow_step_fini(&s);
    return ns;
}

TEST(two_groups_exchange_over_one_nic)
{
    for (int detail = 0; detail < 3; detail++) {
        sp_network_detail of = (sp_network_detail)detail;
        bool shared = detail != SP_NETWORK_CLOSED;
        // In the open, with a NIC of 10 bytes a nanosecond full.
        assert_int_equal(exchange_ns(20000.0, 2000, 2000, of), F_NS + 2000);
        // Behind the computation, at a tenth of the NIC each, and at three quarters.
        assert_int_equal(exchange_ns(20000.0, 2000, 0, of), F_NS);
        assert_int_equal(exchange_ns(150000.0, 15000, 5000, of), 15000);
        // All behind it, what takes half as long alone as by the formula.
        assert_int_equal(exchange_ns(50000.0, 5000, 1000, of), F_NS + (shared ? 0 : 1000));
        // Four fifths of that, where both fit, and the rest in the open.
        assert_int_equal(exchange_ns(50000.0, 5000, 3000, of), F_NS + (shared ? 1000 : 3000));
    }
}

// Two of four context-parallel ranks exchange heads, and two rings of two their keys and values, of
// two groups that share every node's NIC. Where nothing is shared the parts follow each other.
TEST(heads_follow_keys)
{
    for (int detail = 0; detail < 3; detail++) {
        bool shared = detail != SP_NETWORK_CLOSED;
        flow_step s;
        sp_timeline timeline;
        set_groups_of(&s, 4, 2, "dp-tp-cp-pp", (sp_network_detail)detail);
        for (int k = 0; k < 2; k++) {
            // Of 2500 ns for the keys, at 10 bytes a nanosecond, 2000 are hidden; a NIC sends one
            // of two ranks' blocks, and of a rank's heads those of the other. Formulas give half of
            // it.
            sp_cp_exchange *exchange = &s.costs.cp_f[k];
            *exchange = each_of_two(50000.0, 5000);
            exchange->head_ranks = 2;
            exchange->heads_s = 600e-9;
            exchange->heads_bytes = 6000.0;
            s.costs.f[k] = (sp_action_cost){.compute_ns = F_NS, .cp_ns = 3000 + 1200};
            add_actions(&s, k, 0, k == 0 ? "F0B0" : "F1B1");
        }
        run(&s, &s.network, &timeline);
        assert_int_equal(span_ns(&timeline, 0), F_NS + (shared ? 2 * 500 : 3000) + 1200);
        sp_timeline_fini(&timeline);
        flow_step_fini(&s);
    }
}

// Each of four GPUs sends the other one of its node half of its heads, and hands one of two blocks
// to the one of the other node; a forward and a backward that hides it, of two layers each.
TEST(bytes_of_heads_and_keys)
{
    flow_step s;
    sp_topology *topology;
    double *bytes;
    double sums[SP_LINK_KINDS][2] = {{0.0}};
    set_groups_of(&s, 4, 1, "tp-cp-dp-pp", SP_NETWORK_CLOSED);
    sp_cp_exchange exchange = {
        .s = 2e-6, .bytes = 8000.0, .heads_s = 1e-6, .heads_bytes = 3000.0, .head_ranks = 2};
    s.costs.cp_f[0] = s.costs.cp_i[0] = exchange;
    s.costs.f[0] = (sp_action_cost){.compute_ns = F_NS, .cp_ns = 2500};
    s.costs.b[0] = (sp_action_cost){.compute_ns = F_NS};
    add_actions(&s, 0, 0, "F0B0");
    must_succeed(sp_step_traffic(&s.plan, &s.costs, &s.network, &topology, &bytes, ERR));
    for (int32_t l = 0; l < sp_topology_links(topology); l++) {
        sp_link link = sp_topology_link(topology, l);
        sums[link.kind][link.inward] += bytes[l];
    }
    for (int inward = 0; inward < 2; inward++) {
        assert_close(sums[SP_LINK_NIC][inward], 2 * 2 * 4 * 4000.0, 1e-12);
        assert_close(sums[SP_LINK_NVLINK][inward], 2 * 2 * 4 * 1500.0, 1e-12);
    }
    sp_topology_free(topology);
    sp_free(bytes);
    flow_step_fini(&s);
}

// A ring whose hops between nodes go by one NIC of two, or by both.
TEST(bytes_of_a_ring_by_its_nics)
{
    for (int nics = 1; nics <= 2; nics++) {
        flow_step s;
        sp_topology *topology;
        double *bytes;
        int used = 0;
        set_groups_of(&s, 4, 1, "tp-cp-dp-pp", SP_NETWORK_FLOWS);
        s.cluster.nics_per_node = 2;
        s.costs.cp_f[0] = (sp_cp_exchange){.s = 2e-6, .bytes = 8000.0, .ring_nics = nics};
        s.costs.f[0] = (sp_action_cost){.compute_ns = F_NS, .cp_ns = 2500};
        s.costs.b[0] = (sp_action_cost){.compute_ns = F_NS};
        add_actions(&s, 0, 0, "F0B0");
        must_succeed(sp_step_traffic(&s.plan, &s.costs, &s.network, &topology, &bytes, ERR));
        for (int32_t l = 0; l < sp_topology_links(topology); l++) {
            if (sp_topology_link(topology, l).kind == SP_LINK_NIC && bytes[l] > 0.0) {
                // Of two layers, three of four blocks each.
                assert_close(bytes[l], 2 * 6000.0 / nics, 1e-12);
                used++;
            }
        }
        assert_int_equal(used, 2 * 2 * nics);
        sp_topology_free(topology);
        sp_free(bytes);
        flow_step_fini(&s);
    }
}

// A recomputation exchanges again, by itself or in the backward, at three quarters of what its
// formula gives it of the NIC.
TEST(a_recomputation_exchanges_again)
{
    for (int apart = 0; apart < 2; apart++) {
        for (int detail = 0; detail < 3; detail++) {
            bool shared = detail != SP_NETWORK_CLOSED;
            flow_step s;
            sp_timeline timeline;
            set_groups(&s, (sp_network_detail)detail);
            for (int k = 0; k < 2; k++) {
                s.costs.cp_f[k] = each_of_two(20000.0, 2000);
                s.costs.cp_r[k] = each_of_two(7500.0, 1000);
                s.costs.f[k] = (sp_action_cost){.compute_ns = F_NS, .cp_ns = 2000};
                s.costs.r[k] = (sp_action_cost){.compute_ns = F_NS, .cp_ns = 1000};
                s.costs.b[k] = (sp_action_cost){.compute_ns = F_NS + B_NS, .cp_ns = 1000};
                const char *actions[2][2] = {{"F0B0", "F1B1"}, {"F0R0B0", "F1R1B1"}};
                add_actions(&s, k, 0, actions[apart][k]);
            }
            run(&s, &s.network, &timeline);
            // Alone 625 ns for 3750 bytes, of which both send no more than 5 a nanosecond.
            int64_t again_ns = F_NS + (shared ? 750 : 1000);
            assert_int_equal(span_ns(&timeline, 0), F_NS + 2000);
            assert_int_equal(span_ns(&timeline, 1), apart == 1 ? again_ns : B_NS + again_ns);
            assert_int_equal(apart == 1 ? span_ns(&timeline, 2) : B_NS, B_NS);
            sp_timeline_fini(&timeline);
            flow_step_fini(&s);
        }
    }
}

// On GPUs that differ, alone on the network and not.
static void run_apart(const flow_step *s, int seed)
{
    for (int shared = 0; shared < 2; shared++) {
        const sp_engine_options options = {.verify = true,
                                           .jitter = {0.1, (uint64_t)seed},
                                           .network = shared == 0 ? NULL : &s->network};
        simulated_plan made;
        simulate_plan(&s->plan, &s->costs, &options, &made);
        assert_reduced_last(&made.timeline);
        simulated_plan_fini(&made);
    }
}

// Pack 0 is on both data-parallel ranks, pack 1 on the first, pack 2 on the second.
TEST(merged_packs)
{
    static const int ranks[3][2] = {{0, 2}, {0, 1}, {1, 1}};
    sp_prng prng = prng_seeded(8);
    for (int round = 0; round < 40; round++) {
        flow_step s = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1}};
        sp_packing_init(&s.packing, NULL, 2);
        for (int k = 0; k < 3; k++) {
            assert_true(sp_pack_list_begin(&s.packing.forward, ranks[k][0], ranks[k][1]));
        }
        random_costs(&prng, &s.layout, &s.packing, 0, &s.costs);
        flow_step_lengthen(&s.costs);
        flow_step_set_bytes(&s.costs, round % 2 == 0 ? 20.0 : 20000.0, 20.0);
        flow_step_set_exchanges(&s, round % 2 == 0 ? 2.0 : 2000.0);
        flow_step_draw_sharded(&prng, &s, round % 2 == 0 ? 10.0 : 10000.0);
        must_succeed(sp_plan_init(&s.plan, &s.layout, &s.packing, ERR));
        bool last = round % 4 < 2; // pack 0, on the first rank
        add_actions(&s, 0, 0, last ? "F1F0B1B0" : "F0F1B0B1");
        add_actions(&s, 0, 1, last ? "F1B1F0B0" : "F0B0F1B1");
        add_actions(&s, 1, 0, "F2F0B2B0");
        add_actions(&s, 1, 1, "F2B2F0B0");
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
        flow_step_fini(&s);
    }
}

// ---- refusals ----

// Four ranks that run two actions each: all of them together are below the limit, or above it.
TEST(sums_over_all_ranks)
{
    const struct {
        int64_t action_ns;
        sp_status status;
    } cases[] = {{500000000000000000, SP_OK}, {2000000000000000000, SP_ERR_LIMIT}};
    for (int i = 0; i < 4; i++) {
        flow_step s = {.layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 4, .chunks = 1}};
        must_succeed(uniform_packing(&s.packing, 4, 1, ERR));
        must_succeed(sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, false, ERR));
        flow_step_set_bytes(&s.costs, 0.0, 0.0);
        for (int k = 0; k < 4; k++) {
            s.costs.f[k].compute_ns = s.costs.b[k].compute_ns = cases[i / 2].action_ns;
        }
        must_succeed(plan_by_schedule(&s.plan, &s.layout, &s.packing, SP_SCHEDULE_1F1B, ERR));
        flow_step_set_cluster(&s, SP_NETWORK_FLOWS);
        // Alone, ranks that are alike run once.
        const sp_engine_options options = {.network = i % 2 == 0 ? NULL : &s.network};
        sp_timeline timeline;
        sp_memory_timeline memory;
        sp_engine_counts counts;
        sp_error_clear(ERR);
        assert_int_equal(sp_simulate(&s.plan, &s.costs, &options, &timeline, &memory, &counts, ERR),
                         cases[i / 2].status);
        sp_timeline_fini(&timeline);
        sp_memory_timeline_fini(&memory);
        flow_step_fini(&s);
    }
}

TEST(allocations_that_fail)
{
    sp_prng prng = prng_seeded(9);
    flow_step s;
    flow_step_draw(&prng, &s, true);
    for (int detail = 1; detail < 3; detail++) {
        const sp_engine_options options = {.network = &s.network};
        s.network.detail = (sp_network_detail)detail;
        for (memory_failures failing = {0}; memory_fails(&failing);) {
            sp_timeline timeline;
            sp_memory_timeline memory;
            sp_engine_counts counts;
            sp_error_clear(ERR);
            memory_try(&failing,
                       sp_simulate(&s.plan, &s.costs, &options, &timeline, &memory, &counts, ERR),
                       ERR);
            sp_timeline_fini(&timeline);
            sp_memory_timeline_fini(&memory);
        }
    }
    flow_step_fini(&s);
}

TEST(allocations_for_bytes_that_fail)
{
    sp_prng prng = prng_seeded(17);
    flow_step s;
    flow_step_draw(&prng, &s, true);
    while (s.layout.dp * s.layout.cp == 1) {
        flow_step_fini(&s);
        flow_step_draw(&prng, &s, true);
    }
    size_t vstages = (size_t)sp_layout_vstages(&s.layout);
    s.costs.sharded = sp_calloc(vstages, sizeof *s.costs.sharded);
    assert_non_null(s.costs.sharded);
    for (size_t v = 0; v < vstages; v++) {
        s.costs.sharded[v] = (sp_sharded_stage){.gather = {1e-6, 1e3}, .scatter = {2e-6, 2e3}};
    }
    for (memory_failures failing = {0}; memory_fails(&failing);) {
        sp_topology *topology = NULL;
        double *bytes = NULL;
        sp_error_clear(ERR);
        memory_try(&failing, sp_step_traffic(&s.plan, &s.costs, &s.network, &topology, &bytes, ERR),
                   ERR);
        sp_topology_free(topology);
        sp_free(bytes);
    }
    flow_step_fini(&s);
}

TEST(what_flows_do_not_go_with)
{
    sp_prng prng = prng_seeded(6);
    flow_step s;
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts;
    flow_step_draw(&prng, &s, true);
    const sp_engine_options options = {.network = &s.network};
    s.plan.layout.vocab_parallel = true;
    must_fail(sp_simulate(&s.plan, &s.costs, &options, &timeline, &memory, &counts, ERR),
              SP_ERR_CONTENT, "network.detail: flows do not go with parallel.vocab_parallel");
    s.plan.layout.vocab_parallel = false;
    sp_free(s.costs.p2p_f_bytes);
    s.costs.p2p_f_bytes = NULL;
    must_fail(sp_simulate(&s.plan, &s.costs, &options, &timeline, &memory, &counts, ERR),
              SP_ERR_CONTENT, "network.detail: uniform costs have no bytes");
    flow_step_fini(&s);
}
