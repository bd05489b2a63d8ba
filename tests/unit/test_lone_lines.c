// Collectives of data-parallel ranks by algorithm over a spine: their closed times are those of a
// flow that meets no other.
#include "tests/support/priced_step.h"
#include "tests/support/test_main.h"

// Several nodes at leaf switches of one or two each.
static priced_case draw_case(sp_prng *prng)
{
    static const int degrees[] = {1, 2, 8};
    priced_case c = priced_default();
    c.nvlink_gb_per_s = exp(6.0 + sp_prng_uniform(prng));
    c.layout.zero = prng_below(prng, 4);
    c.layout.tp = degrees[prng_below(prng, 3)];
    c.layout.dp = 8 / c.layout.tp * (2 + prng_below(prng, 3)) + prng_below(prng, 2);
    c.microbatches = 2;
    c.memory.stack.hide_gradient_reduce = prng_below(prng, 2) == 1;
    c.memory.stack.bucketed_epilogue = prng_below(prng, 2) == 1;
    c.fabric = (sp_fabric){.rails = 1 + 7 * prng_below(prng, 2),
                           .nodes_per_leaf = 1 + prng_below(prng, 2),
                           .oversubscription = exp(3.0 * sp_prng_uniform(prng)),
                           .spine_latency_s = prng_below(prng, 2) * 1e-5,
                           .pxn = prng_below(prng, 2) == 1};
    return c;
}

static int64_t iteration_ns(const priced_step *step, sp_network_detail detail)
{
    const sp_network network = {
        .detail = detail,
        .cluster = &step->cluster,
        .rates = sp_profile_link_rates(&step->profile),
    };
    const sp_engine_options options = {.network = &network};
    AUTO(sp_timeline) timeline;
    AUTO(sp_memory_timeline) memory;
    sp_engine_counts counts;
    must_succeed(
        sp_simulate(&step->plan, &step->costs, &options, &timeline, &memory, &counts, ERR));
    return timeline.iteration_ns;
}

// And the fastest is found by those.
TEST(they_are_those_of_a_lone_flow)
{
    sp_prng prng = prng_seeded(31);
    int slowed = 0;
    for (int round = 0; round < test_rounds(60); round++) {
        priced_case c = draw_case(&prng);
        int64_t least_ns = INT64_MAX;
        for (int a = SP_ALGORITHM_RING; a <= SP_ALGORITHM_AUTO; a++) {
            AUTO(priced_step) step;
            c.algorithm = (sp_collective_algorithm)a;
            priced_step_run(&c, &step);
            int64_t closed_ns = step.timeline.iteration_ns;
            assert_int_equal(iteration_ns(&step, SP_NETWORK_FLOWS), closed_ns);
            assert_int_equal(iteration_ns(&step, SP_NETWORK_AUTO), closed_ns);
            if (a == SP_ALGORITHM_AUTO) {
                assert_true(closed_ns <= least_ns);
            }
            least_ns = closed_ns < least_ns ? closed_ns : least_ns;
            priced_step_fini(&step);
            sp_fabric fabric = c.fabric;
            c.fabric = (sp_fabric){.rails = 1};
            priced_step_run(&c, &step);
            slowed += closed_ns > step.timeline.iteration_ns;
            c.fabric = fabric;
        }
    }
    assert_true(slowed > test_rounds(60));
}

// The same from costs that know of no spine, which the flow of a reduction meets then.
TEST_ROUNDS(a_flow_is_slowed_as_much, 33, test_rounds(60))
{
    priced_case c = draw_case(prng);
    AUTO(priced_step) step, plain;
    c.layout.zero = round % 2;
    c.memory.stack.hide_gradient_reduce = c.memory.stack.bucketed_epilogue = false;
    c.fabric.spine_latency_s = 0.0;
    c.algorithm = (sp_collective_algorithm)(SP_ALGORITHM_RING + round / 2 % 4);
    priced_step_run(&c, &step);
    c.fabric = (sp_fabric){.rails = 1};
    priced_step_run(&c, &plain);
    int64_t closed_ns = step.timeline.iteration_ns;
    plain.cluster.fabric = step.cluster.fabric;
    assert_within((double)iteration_ns(&plain, SP_NETWORK_FLOWS), (double)closed_ns, 20.0);
}
