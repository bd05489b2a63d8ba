// What ZeRO 2 and 3 exchange inside actions, as flows: alone it takes the time of its closed
// formula (cost/data_parallel.c) to the nanosecond, and where it meets others on a link all take
// longer.
#include "tests/support/flow_run.h"
#include "tests/support/priced_step.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

static int one_of(sp_prng *prng, int count, const int *values)
{
    return values[prng_below(prng, count)];
}

// ZeRO 2 or 3 on a network from fast to slow, of which computation hides all or nearly nothing.
static priced_case draw_case(sp_prng *prng, char share[64])
{
    static const int degrees[] = {1, 2, 4};
    static const sp_schedule_kind kinds[] = {SP_SCHEDULE_1F1B, SP_SCHEDULE_GPIPE, SP_SCHEDULE_ZB_H1,
                                             SP_SCHEDULE_ZB_V, SP_SCHEDULE_DUALPIPE_V};
    priced_case c = priced_default();
    c.nvlink_gb_per_s = exp(8.0 * sp_prng_uniform(prng));
    c.layout.zero = 2 + prng_below(prng, 2);
    c.layout.pp = one_of(prng, 3, degrees);
    c.layout.dp = 1 + prng_below(prng, 5);
    c.layout.cp = one_of(prng, 2, degrees);
    c.layout.tp = one_of(prng, 2, degrees);
    c.schedule.kind = kinds[prng_below(prng, c.layout.pp > 1 ? 5 : 2)];
    bool two = c.schedule.kind == SP_SCHEDULE_ZB_V || c.schedule.kind == SP_SCHEDULE_DUALPIPE_V;
    c.layout.chunks = two ? 2 : 1;
    c.layout.placement = sp_schedule_placement(c.schedule.kind, c.layout.chunks);
    c.microbatches = 2 * c.layout.pp;
    c.model.tied_embeddings = prng_below(prng, 2) == 1;
    c.memory.recompute = (sp_recompute)prng_below(prng, SP_RECOMPUTE_MODES);
    c.algorithm = (sp_collective_algorithm)prng_below(prng, SP_ALGORITHMS);
    snprintf(share, 64, "interference.overlap_share=%.17g",
             prng_below(prng, 2) * sp_prng_uniform(prng));
    c.overrides[0] = "interference.level=assumed";
    c.overrides[1] = "interference.source=the test";
    c.overrides[2] = share;
    return c;
}

static void simulate(const priced_step *step, const sp_engine_options *options,
                     sp_timeline *timeline, sp_engine_counts *counts)
{
    AUTO(sp_memory_timeline) memory;
    must_succeed(sp_simulate(&step->plan, &step->costs, options, timeline, &memory, counts, ERR));
}

// The network of a step, of so many times its rates.
static sp_network network_of(const priced_step *step, sp_cluster *cluster, double times,
                             sp_network_detail detail)
{
    *cluster = step->cluster;
    cluster->nic_bytes_per_s *= times;
    cluster->host_link_bytes_per_s = 1e15;
    cluster->fabric = (sp_fabric){.rails = 8, .oversubscription = 1.0};
    return (sp_network){.detail = detail,
                        .cluster = cluster,
                        .rates = {.nvlink_bytes_per_s = times * step->profile.nvlink_bytes_per_s,
                                  .nic_efficiency = step->profile.nic_efficiency}};
}

// Simulates a step on its network with links of so many times their rates, as flows and only where
// something is shared, which must not be where `apart`.
static void assert_closed(const priced_step *step, double times, bool apart)
{
    AUTO(sp_timeline) closed;
    sp_engine_counts counts;
    simulate(step, &(sp_engine_options){.unfold = true}, &closed, &counts);
    for (int detail = SP_NETWORK_FLOWS; detail <= SP_NETWORK_AUTO; detail++) {
        sp_cluster cluster;
        AUTO(sp_timeline) timeline;
        const sp_network network = network_of(step, &cluster, times, (sp_network_detail)detail);
        simulate(step, &(sp_engine_options){.verify = true, .unfold = true, .network = &network},
                 &timeline, &counts);
        flow_assert_same(&timeline, &closed);
        sp_timeline_fini(&timeline);
        simulate(step, &(sp_engine_options){.network = &network}, &timeline, &counts);
        if (apart && detail == SP_NETWORK_AUTO) {
            assert_true(counts.tasks == step->counts.tasks);
        }
    }
}

TEST_ROUNDS(links_that_are_never_full_change_nothing, 21, test_rounds(60))
{
    char share[64];
    priced_case c = draw_case(prng, share);
    PRICED_STEP(step, &c);
    assert_closed(&step, 1e4, false);
}

// Data-parallel ranks with a NIC each, which all exchange at a time, fill links that none of the
// others uses where nodes are populated alike: nothing has to be a flow, and flows take as long.
TEST(a_ring_of_ranks_shares_nothing)
{
    sp_prng prng = prng_seeded(22);
    for (int dp = 2; dp <= 20; dp++) {
        for (int zero = 2; zero <= 3; zero++) {
            char share[64];
            priced_case c = draw_case(&prng, share);
            AUTO(priced_step) step;
            c.layout = (sp_layout){.tp = 1, .cp = 1, .pp = 1, .dp = dp, .chunks = 1, .zero = zero};
            c.schedule.kind = SP_SCHEDULE_1F1B;
            c.algorithm = dp % 2 == 0 ? SP_ALGORITHM_HIERARCHICAL : SP_ALGORITHM_RING;
            priced_step_run(&c, &step);
            assert_closed(&step, 1.0, dp <= 8 || dp == 16);
        }
    }
}

// ---- closed forms ----

enum { F_NS = 10000 };

// Two stages on each of two nodes share its NIC of 10 bytes a nanosecond, by rings that carry half
// of what is gathered. The forward of the second micro-batch on the first stage begins with that of
// the first on the second stage.
static void make_stages(double bytes, int64_t whole_ns, int64_t bare_ns, int64_t shown_ns,
                        flow_step *s)
{
    *s = (flow_step){.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1, .zero = 3}};
    assert_true(sp_rank_order_read("pp-tp-cp-dp", &s->layout.order));
    uniform_packing(&s->packing, 2, 2);
    sp_i_step_costs_init(&s->costs, &s->layout, &s->packing, 1, false);
    flow_step_set_bytes(&s->costs, 0.0, 0.0);
    flow_step_set_exchanges(s, 0.0);
    s->costs.shards = true;
    for (int p = 0; p < 2; p++) {
        s->costs.sharded[p].gather = (sp_exchanged){
            .s = (double)whole_ns * 1e-9, .bytes = bytes, .bare_s = (double)bare_ns * 1e-9};
    }
    for (size_t k = 0; k < s->costs.side[0].count; k++) {
        s->costs.action[SP_ACTION_F][k] = (sp_action_cost){.compute_ns = F_NS, .dp_ns = shown_ns};
        s->costs.action[SP_ACTION_B][k] = (sp_action_cost){.compute_ns = F_NS};
    }
    flow_step_schedule(s, SP_SCHEDULE_GPIPE, SP_NETWORK_CLOSED);
    s->network.rates.nic_latency_s = 0.0;
}

// Forwards show alone_ns of what they exchange where nobody else sends, and where those of both
// stages run at a time met_ns. No work is beside bare_ns of whole_ns.
static void assert_forwards(double bytes, int64_t whole_ns, int64_t bare_ns, int64_t shown_ns,
                            int64_t alone_ns, int64_t met_ns)
{
    AUTO(flow_step) s;
    make_stages(bytes, whole_ns, bare_ns, shown_ns, &s);
    for (int detail = 0; detail < 3; detail++) {
        AUTO(sp_timeline) timeline;
        s.network.detail = (sp_network_detail)detail;
        flow_run(&s, &s.network, &timeline);
        for (size_t i = 0; i < 2 * timeline.rank_count; i++) {
            const sp_rank_timeline *rank = &timeline.ranks[i / 2];
            const sp_span *span = &rank->spans[i % 2];
            bool meets = rank->pp != (int)(i % 2);
            int64_t dp_ns = detail == SP_NETWORK_CLOSED ? shown_ns : meets ? met_ns : alone_ns;
            assert_int_equal(span->dp_ns, dp_ns);
            assert_int_equal(span->cp_ns, 0);
            assert_int_equal(span->end_ns - span->start_ns, F_NS + dp_ns);
        }
    }
}

TEST(two_stages_gather_over_one_nic)
{
    // In the open, with the NIC full; half as full, by something else that is slower. Formulas give
    // each half of it.
    assert_forwards(20000.0, 2000, 0, 2000, 1000, 2000);
    assert_forwards(10000.0, 1500, 0, 1500, 1000, 1000);
    // Behind the computation, at a tenth of the NIC each, and at three quarters.
    assert_forwards(20000.0, 2000, 0, 0, 0, 0);
    assert_forwards(150000.0, 15000, 0, 5000, 0, 5000);
    // Four fifths behind it, where both fit, and the rest in the open.
    assert_forwards(50000.0, 5000, 0, 3000, 500, 1000);
    // Alone the work hides all that it can, but not the half of 4000 ns that come before it.
    assert_forwards(150000.0, 15000, 4000, 5000, 2000, 5000);
}

// A ring of two nodes with two GPUs and one NIC each comes into a node twice, once to each of two
// data-parallel ranks, which have half of the NIC each whenever they begin.
TEST(ranks_of_a_ring_leave_each_other_their_part)
{
    for (int detail = 0; detail < 3; detail++) {
        AUTO(flow_step) s = {
            .layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 4, .chunks = 1, .zero = 2}};
        flow_step_uniform(&s, 0.0, 0.0);
        s.costs.shards = true;
        // Each of two rings sends three quarters of a half.
        s.costs.sharded[0].scatter = (sp_exchanged){.s = 6e-6, .bytes = 80000.0};
        for (size_t k = 0; k < 4; k++) {
            s.costs.action[SP_ACTION_B][k] =
                (sp_action_cost){.compute_ns = F_NS + 2000 * (int)k, .dp_ns = 6000};
        }
        flow_step_schedule(&s, SP_SCHEDULE_1F1B, (sp_network_detail)detail);
        s.network.rates.nic_latency_s = s.network.rates.nvlink_latency_s = 0.0;
        AUTO(sp_timeline) timeline;
        flow_run(&s, &s.network, &timeline);
        for (int d = 0; d < 4; d++) {
            assert_int_equal(sp_rank_last_ns(&timeline.ranks[d]), F_NS + 2000 * d + 6000);
        }
    }
}
