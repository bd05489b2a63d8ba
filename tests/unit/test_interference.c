// What operators lose to collectives beside them and to the slowest of many ranks
// (interference of a profile).
#include "tests/support/priced_step.h"
#include "tests/support/test_main.h"

// The profile with one constant of its interference stated.
static void state_constant(priced_case *c, const char *constant)
{
    c->overrides[0] = "interference.level=assumed";
    c->overrides[1] = "interference.source=the test";
    c->overrides[2] = constant;
}

// 1 + share * log2(nodes), on nodes of eight GPUs, on computation alone.
TEST(each_doubling_of_nodes_slows_computation)
{
    for (int nodes = 1; nodes <= 16; nodes *= 2) {
        AUTO(priced_step) even, uneven;
        priced_case c = priced_default();
        c.layout.tp = 2;
        c.layout.dp = 4 * nodes;
        priced_step_run(&c, &even);
        state_constant(&c, "interference.doubling_share=0.03");
        priced_step_run(&c, &uneven);
        double factor = 1.0 + 0.03 * log2((double)nodes);
        assert_near((double)uneven.costs.action[SP_ACTION_F][0].compute_ns,
                    factor * (double)even.costs.action[SP_ACTION_F][0].compute_ns, 1e-9, 2.0);
        assert_near((double)uneven.costs.action[SP_ACTION_B][0].compute_ns,
                    factor * (double)even.costs.action[SP_ACTION_B][0].compute_ns, 1e-9, 2.0);
        assert_int_equal(uneven.costs.action[SP_ACTION_F][0].tp_ns,
                         even.costs.action[SP_ACTION_F][0].tp_ns);
        assert_int_equal(uneven.costs.ranks[0].epilogue.grad_reduce_ns,
                         even.costs.ranks[0].epilogue.grad_reduce_ns);
    }
}

// Tensor parallelism: of what its collectives no longer take by themselves the computation that
// hides them gets longer by a share; nothing hidden, nothing lost.
TEST_ROUNDS(hidden_collectives_slow_computation, 5, 40)
{
    char constant[64];
    double share = sp_prng_uniform(prng);
    AUTO(priced_step) blocking, hidden;
    priced_case c = priced_default();
    c.layout.tp = 4;
    c.layout.sequence_parallel = round % 2 == 0;
    c.nvlink_gb_per_s = exp(8.0 * sp_prng_uniform(prng));
    snprintf(constant, sizeof constant, "interference.overlap_share=%.17g", share);
    state_constant(&c, constant);
    priced_step_run(&c, &blocking);
    sp_stack *stack = &c.memory.stack;
    stack->hide_forward_gather = stack->hide_forward_reduce = true;
    stack->hide_backward_gather = stack->hide_backward_reduce = true;
    priced_step_run(&c, &hidden);
    const sp_action_cost *before[] = {&blocking.costs.action[SP_ACTION_F][0],
                                      &blocking.costs.action[SP_ACTION_B][0]};
    const sp_action_cost *after[] = {&hidden.costs.action[SP_ACTION_F][0],
                                     &hidden.costs.action[SP_ACTION_B][0]};
    for (int i = 0; i < 2; i++) {
        double away_ns = (double)(before[i]->tp_ns - after[i]->tp_ns);
        assert_true(away_ns > 0.0);
        // Of each of a pack's parts a nanosecond may be cut.
        double lost_ns = (double)(after[i]->compute_ns - before[i]->compute_ns);
        assert_within(lost_ns, share * away_ns, 20.0 + 1e-9 * away_ns);
    }
}
