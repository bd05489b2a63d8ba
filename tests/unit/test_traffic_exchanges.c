// What context-parallel ranks exchange in actions, as flows: closed forms of groups that share
// network cards, and the bytes that their links carry.
#include "sim/simulate/engine.h"
#include "tests/support/flow_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

enum { F_NS = 10000, B_NS = 20000 };

// One pack on each of two data-parallel ranks, whose context-parallel ranks lie in two nodes: both
// groups exchange over the same NICs, by rings that carry half of the bytes.
static void set_groups_of(flow_step *s, int cp, int dp, const char *order, sp_network_detail detail)
{
    *s = (flow_step){.layout = {.tp = 1, .cp = cp, .pp = 1, .dp = dp, .chunks = 1}};
    assert_true(sp_rank_order_read(order, &s->layout.order));
    flow_step_uniform(s, 0.0, 0.0);
    for (int k = 0; k < dp; k++) {
        s->costs.side[1].pack[k].cp = s->costs.side[1].pack[k].cp_again = (sp_cp_exchange){0};
    }
    sp_plan_init(&s->plan, &s->layout, &s->packing);
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

// A forward whose shown_ns come after 10,000 ns of computation.
static int64_t exchange_ns(double bytes, int64_t whole_ns, int64_t shown_ns,
                           sp_network_detail detail)
{
    AUTO(flow_step) s;
    AUTO(sp_timeline) timeline;
    set_groups(&s, detail);
    for (int k = 0; k < 2; k++) {
        s.costs.side[0].pack[k].cp = each_of_two(bytes, whole_ns);
        s.costs.action[SP_ACTION_F][k] = (sp_action_cost){.compute_ns = F_NS, .cp_ns = shown_ns};
        plan_add_actions(&s.plan, k, 0, k == 0 ? "F0B0" : "F1B1");
    }
    flow_run(&s, &s.network, &timeline);
    int64_t ns = span_ns(&timeline, 0);
    assert_int_equal(timeline.ranks[1].spans[0].cp_ns, ns - F_NS);
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
        AUTO(flow_step) s;
        AUTO(sp_timeline) timeline;
        set_groups_of(&s, 4, 2, "dp-tp-cp-pp", (sp_network_detail)detail);
        for (int k = 0; k < 2; k++) {
            // Of 2500 ns for the keys, at 10 bytes a nanosecond, 2000 are hidden; a NIC sends one
            // of two ranks' blocks, and of a rank's heads those of the other. Formulas give half of
            // it.
            sp_cp_exchange *exchange = &s.costs.side[0].pack[k].cp;
            *exchange = each_of_two(50000.0, 5000);
            exchange->head_ranks = 2;
            exchange->heads_s = 600e-9;
            exchange->heads_bytes = 6000.0;
            s.costs.action[SP_ACTION_F][k] =
                (sp_action_cost){.compute_ns = F_NS, .cp_ns = 3000 + 1200};
            plan_add_actions(&s.plan, k, 0, k == 0 ? "F0B0" : "F1B1");
        }
        flow_run(&s, &s.network, &timeline);
        assert_int_equal(span_ns(&timeline, 0), F_NS + (shared ? 2 * 500 : 3000) + 1200);
    }
}

// Each of four GPUs sends the other one of its node half of its heads, and hands one of two blocks
// to the one of the other node; a forward and a backward that hides it, of two layers each.
TEST(bytes_of_heads_and_keys)
{
    AUTO(flow_step) s;
    double sums[SP_LINK_KINDS][2];
    set_groups_of(&s, 4, 1, "tp-cp-dp-pp", SP_NETWORK_CLOSED);
    sp_cp_exchange exchange = {
        .s = 2e-6, .bytes = 8000.0, .heads_s = 1e-6, .heads_bytes = 3000.0, .head_ranks = 2};
    s.costs.side[0].pack[0].cp = s.costs.side[1].pack[0].cp = exchange;
    s.costs.action[SP_ACTION_F][0] = (sp_action_cost){.compute_ns = F_NS, .cp_ns = 2500};
    s.costs.action[SP_ACTION_B][0] = (sp_action_cost){.compute_ns = F_NS};
    plan_add_actions(&s.plan, 0, 0, "F0B0");
    flow_link_bytes(&s, sums);
    for (int inward = 0; inward < 2; inward++) {
        assert_close(sums[SP_LINK_NIC][inward], 2 * 2 * 4 * 4000.0, 1e-12);
        assert_close(sums[SP_LINK_NVLINK][inward], 2 * 2 * 4 * 1500.0, 1e-12);
    }
}

// A ring whose hops between nodes go by one NIC of two, or by both.
TEST(bytes_of_a_ring_by_its_nics)
{
    for (int nics = 1; nics <= 2; nics++) {
        AUTO(flow_step) s;
        sp_topology *topology;
        AUTO_FREE double *bytes;
        int used = 0;
        set_groups_of(&s, 4, 1, "tp-cp-dp-pp", SP_NETWORK_FLOWS);
        s.cluster.nics_per_node = 2;
        s.costs.side[0].pack[0].cp =
            (sp_cp_exchange){.s = 2e-6, .bytes = 8000.0, .ring_nics = nics};
        s.costs.action[SP_ACTION_F][0] = (sp_action_cost){.compute_ns = F_NS, .cp_ns = 2500};
        s.costs.action[SP_ACTION_B][0] = (sp_action_cost){.compute_ns = F_NS};
        plan_add_actions(&s.plan, 0, 0, "F0B0");
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
    }
}

// A recomputation exchanges again, by itself or in the backward, at three quarters of what its
// formula gives it of the NIC.
TEST(a_recomputation_exchanges_again)
{
    for (int apart = 0; apart < 2; apart++) {
        for (int detail = 0; detail < 3; detail++) {
            bool shared = detail != SP_NETWORK_CLOSED;
            AUTO(flow_step) s;
            AUTO(sp_timeline) timeline;
            set_groups(&s, (sp_network_detail)detail);
            for (int k = 0; k < 2; k++) {
                s.costs.side[0].pack[k].cp = each_of_two(20000.0, 2000);
                s.costs.side[1].pack[k].cp_again = each_of_two(7500.0, 1000);
                s.costs.action[SP_ACTION_F][k] =
                    (sp_action_cost){.compute_ns = F_NS, .cp_ns = 2000};
                s.costs.action[SP_ACTION_R][k] =
                    (sp_action_cost){.compute_ns = F_NS, .cp_ns = 1000};
                s.costs.action[SP_ACTION_B][k] =
                    (sp_action_cost){.compute_ns = F_NS + B_NS, .cp_ns = 1000};
                const char *actions[2][2] = {{"F0B0", "F1B1"}, {"F0R0B0", "F1R1B1"}};
                plan_add_actions(&s.plan, k, 0, actions[apart][k]);
            }
            flow_run(&s, &s.network, &timeline);
            // Alone 625 ns for 3750 bytes, of which both send no more than 5 a nanosecond.
            int64_t again_ns = F_NS + (shared ? 750 : 1000);
            assert_int_equal(span_ns(&timeline, 0), F_NS + 2000);
            assert_int_equal(span_ns(&timeline, 1), apart == 1 ? again_ns : B_NS + again_ns);
            assert_int_equal(apart == 1 ? span_ns(&timeline, 2) : B_NS, B_NS);
        }
    }
}
