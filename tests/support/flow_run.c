#include "tests/support/flow_run.h"

#include "sim/engine/engine.h"
#include "tests/support/test_main.h"

void flow_add_actions(flow_step *s, int dp, int pp, const char *actions)
{
    for (const char *c = actions; *c != '\0'; c += 2) {
        sp_action_kind kind = *c == 'F' ? SP_ACTION_F : *c == 'R' ? SP_ACTION_R : SP_ACTION_B;
        sp_stage_plan_add(sp_plan_stage(&s->plan, dp, pp), kind, 0, c[1] - '0');
    }
}

void flow_reduced_last(const sp_timeline *timeline)
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

void flow_run(const flow_step *s, const sp_network *network, sp_timeline *timeline)
{
    const sp_engine_options options = {.verify = true, .unfold = true, .network = network};
    sp_memory_timeline memory;
    sp_engine_counts counts;
    must_succeed(sp_simulate(&s->plan, &s->costs, &options, timeline, &memory, &counts, ERR));
    flow_reduced_last(timeline);
    sp_memory_timeline_fini(&memory);
}
