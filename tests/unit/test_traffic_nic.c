// Pipelines that share a network card: closed forms of their steps.
#include "tests/support/flow_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"
#include "tests/support/uniform_step.h"

enum { F_NS = 10000, B_NS = 20000 };

// One micro-batch of 40,000 bytes on each of dp pipelines of two stages, whose first stages are in
// one node and the last in another: with several, they share its NIC, of which the formula gives
// each its part. Each pipeline begins later_ns behind the one before. Fills the starts of the last
// stages' forwards.
static int64_t makespan_ns(const char *order, int dp, double rate, int64_t later_ns,
                           sp_network_detail detail, int64_t starts_ns[])
{
    AUTO(flow_step) s = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = dp, .chunks = 1}};
    AUTO(sp_timeline) timeline;
    assert_true(sp_rank_order_read(order, &s.layout.order));
    flow_step_uniform(&s, 40000.0, 40000.0);
    s.costs.crosses_nodes[0] = s.costs.crosses_nodes[1] = 1;
    for (int k = 0; k < dp; k++) {
        s.costs.action[SP_ACTION_F][k].compute_ns = F_NS + k * later_ns;
        s.costs.action[SP_ACTION_B][k].compute_ns = B_NS;
        s.costs.side[0].p2p[k].internode_ns = s.costs.side[1].p2p[k].internode_ns =
            llround(40000.0 / rate * dp * 1e9);
    }
    flow_step_schedule(&s, SP_SCHEDULE_1F1B, detail);
    s.cluster.nodes = 2;
    s.cluster.nic_bytes_per_s = rate;
    s.network.rates.nic_latency_s = 0.0;
    s.cluster.gpus_per_node = dp;
    flow_run(&s, &s.network, &timeline);
    for (int d = 0; starts_ns != NULL && d < dp; d++) {
        starts_ns[d] = timeline.ranks[2 * d + 1].spans[0].start_ns;
    }
    return timeline.makespan_ns;
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
    AUTO(flow_step) s = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1, .zero = 1}};
    assert_true(sp_rank_order_read("tp-pp-cp-dp", &s.layout.order));
    flow_step_uniform(&s, 0.0, 0.0);
    for (int k = 0; k < 2; k++) {
        s.costs.action[SP_ACTION_F][k].compute_ns = F_NS;
        s.costs.action[SP_ACTION_B][k].compute_ns = b_ns;
        s.costs.ranks[k].epilogue.grad_reduce_ns = 4000;
        s.costs.ranks[k].epilogue.reduce_bytes = 40000.0;
    }
    flow_step_schedule(&s, SP_SCHEDULE_1F1B, detail);
    s.network.rates.nic_latency_s = 0.0;
    flow_run(&s, &s.network, timeline);
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
            AUTO(sp_timeline) timeline;
            run_reductions(b_ns, (sp_network_detail)detail, &timeline);
            for (size_t r = 0; r < timeline.rank_count; r++) {
                int64_t begin_ns = timeline.ranks[r].pp == 0 ? first_ns : last_ns;
                assert_int_equal(timeline.ranks[r].reduce_end_ns,
                                 begin_ns + (shared ? ALONE_NS + left_ns : 2 * ALONE_NS));
            }
        }
    }
}
