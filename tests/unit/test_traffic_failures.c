// Steps over a network that are refused: times that do not fit, memory that is not there, what
// flows do not go with.
#include "sim/base/alloc.h"
#include "sim/engine/engine.h"
#include "tests/support/flow_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"
#include "tests/support/uniform_step.h"

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
        sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, false);
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
    s.costs.has_bytes = false;
    must_fail(sp_simulate(&s.plan, &s.costs, &options, &timeline, &memory, &counts, ERR),
              SP_ERR_CONTENT, "network.detail: uniform costs have no bytes");
    flow_step_fini(&s);
}
