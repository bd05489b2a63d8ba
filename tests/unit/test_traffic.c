// A step's transfers as flows that share links: where no link is full they take their closed times,
// to the nanosecond; where links are shared every action runs when a small event simulation that is
// written by itself says so (flow_step.h). Every run is checked against igraph's longest path.
#include "sim/engine/engine.h"
#include "tests/support/flow_run.h"
#include "tests/support/random_step.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"
#include "tests/support/uniform_step.h"

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
    flow_run(s, first, &a);
    flow_run(s, second, &b);
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

TEST(algorithms_alone_take_their_closed_times)
{
    sp_prng prng = prng_seeded(14);
    for (int round = 0; round < test_rounds(60); round++) {
        flow_step s;
        flow_step_draw(&prng, &s, false);
        flow_step_draw_algorithms(&prng, &s);
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
        flow_step_draw_spine(&prng, &s);
        flow_step_draw_algorithms(&prng, &s);
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
        flow_step_draw_spine(&prng, &s);
        sp_network quick = s.network;
        quick.detail = SP_NETWORK_AUTO;
        compare(&s, &quick, &s.network);
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
        sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, false);
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

// Nanoseconds are rounded at every change of a rate there and at every event here.
TEST(a_step_event_by_event)
{
    sp_prng prng = prng_seeded(5);
    for (int round = 0; round < test_rounds(60); round++) {
        flow_step s;
        sp_timeline walked, expected;
        flow_step_draw(&prng, &s, true);
        flow_step_draw_spine(&prng, &s);
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
        sp_timeline_fini(&walked);
        sp_timeline_fini(&expected);
        flow_step_fini(&s);
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
        flow_reduced_last(&made.timeline);
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
        sp_plan_init(&s.plan, &s.layout, &s.packing);
        bool last = round % 4 < 2; // pack 0, on the first rank
        flow_add_actions(&s, 0, 0, last ? "F1F0B1B0" : "F0F1B0B1");
        flow_add_actions(&s, 0, 1, last ? "F1B1F0B0" : "F0B0F1B1");
        flow_add_actions(&s, 1, 0, "F2F0B2B0");
        flow_add_actions(&s, 1, 1, "F2B2F0B0");
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
