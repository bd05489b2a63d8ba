#include "tests/support/flow_run.h"

#include "sim/simulate/engine.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"
#include "tests/support/uniform_step.h"

void flow_step_uniform(flow_step *s, double f_bytes, double b_bytes)
{
    uniform_packing(&s->packing, s->layout.dp, 1);
    sp_i_step_costs_init(&s->costs, &s->layout, &s->packing, 1, false);
    flow_step_set_bytes(&s->costs, f_bytes, b_bytes);
    flow_step_set_exchanges(s, 0.0);
}

void flow_step_schedule(flow_step *s, sp_schedule_kind kind, sp_network_detail detail)
{
    must_succeed(plan_by_schedule(&s->plan, &s->layout, &s->packing, kind, ERR));
    flow_step_set_cluster(s, detail);
}

void flow_assert_same(const sp_timeline *a, const sp_timeline *b)
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

void flow_link_bytes(const flow_step *s, double bytes[SP_LINK_KINDS][2])
{
    sp_topology *topology;
    AUTO_FREE double *of_links;
    memset(bytes, 0, sizeof(double[SP_LINK_KINDS][2]));
    must_succeed(sp_step_traffic(&s->plan, &s->costs, &s->network, &topology, &of_links, ERR));
    for (int32_t l = 0; l < sp_topology_links(topology); l++) {
        sp_link link = sp_topology_link(topology, l);
        bytes[link.kind][link.inward] += of_links[l];
    }
    sp_topology_free(topology);
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
    AUTO(sp_memory_timeline) memory;
    sp_engine_counts counts;
    must_succeed(sp_simulate(&s->plan, &s->costs, &options, timeline, &memory, &counts, ERR));
    flow_reduced_last(timeline);
}
