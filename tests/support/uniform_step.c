#include "tests/support/uniform_step.h"
#include "tests/support/initializers.h"

#include "tests/support/test_main.h"

void simulate_plan(const sp_plan *plan, const sp_step_costs *costs,
                   const sp_engine_options *options, simulated_plan *s)
{
    *s = (simulated_plan){0};
    must_succeed(sp_simulate(plan, costs, options, &s->timeline, &s->memory, &s->counts, ERR));
    sp_step_metrics_compute(&s->timeline, &s->memory, &s->metrics);
}

void simulated_plan_fini(simulated_plan *s)
{
    sp_step_metrics_fini(&s->metrics);
    sp_memory_timeline_fini(&s->memory);
    sp_timeline_fini(&s->timeline);
}

void uniform_step_run(const uniform_case *c, const sp_engine_options *options, uniform_step *step)
{
    *step = (uniform_step){0};
    sp_layout layout = {LAYOUT(1, 1, c->pp, c->dp > 0 ? c->dp : 1, c->chunks > 0 ? c->chunks : 1),
                        .placement = sp_schedule_traits_of(c->kind).placement};
    int slices = c->slices > 1 ? c->slices : 1;
    sp_uniform_costs costs = {.f_ms = (double)(c->f_ns * slices) / 1e6,
                              .b_ms = (double)(c->i_ns * slices) / 1e6,
                              .w_ms = (double)(c->w_ns * slices) / 1e6,
                              .attention_share = c->attention_share,
                              .p2p_ms = (double)c->p2p_ns / 1e6,
                              .per_chunk = 1,
                              .has_units = c->has_units,
                              .unit_f = c->unit_f,
                              .unit_b = c->unit_b,
                              .unit_w = c->unit_w};
    sp_schedule_spec spec = {.kind = c->kind,
                             .group = c->group,
                             .slices = c->slices,
                             .retained = c->retained,
                             .memory_limit_microbatches = c->memory_limit_microbatches};
    must_succeed(sp_packing_uniform_sliced(&step->packing, &step->batch, layout.dp, c->microbatches,
                                           slices, ERR));
    sp_plan_init(&step->plan, &layout, &step->packing);
    sp_step_costs_uniform(&costs, &layout, &step->packing, &step->costs);
    sp_schedule_costs *means = sp_step_costs_means(&step->costs, &step->plan);
    sp_step_costs_by_pack(&step->costs, &step->plan, means);
    must_succeed(sp_schedule_generate(&spec, means, "test", &step->plan, ERR));
    sp_schedule_costs_free(means);
    must_succeed(sp_plan_check(&step->plan, "test", ERR));
    sp_engine_options verified = *options;
    verified.verify = true;
    must_succeed(sp_simulate(&step->plan, &step->costs, &verified, &step->timeline, &step->memory,
                             &step->counts, ERR));
    sp_step_metrics_compute(&step->timeline, &step->memory, &step->metrics);
}

void uniform_step_fini(uniform_step *step)
{
    sp_step_metrics_fini(&step->metrics);
    sp_memory_timeline_fini(&step->memory);
    sp_timeline_fini(&step->timeline);
    sp_step_costs_fini(&step->costs);
    sp_plan_fini(&step->plan);
    sp_packing_fini(&step->packing);
    sp_batch_fini(&step->batch);
}

void uniform_step_same_times(const sp_step_metrics *a, const sp_step_metrics *b)
{
    assert_int_equal(a->makespan_ns, b->makespan_ns);
    assert_int_equal(a->iteration_ns, b->iteration_ns);
    assert_int_equal(a->busy_ns, b->busy_ns);
    assert_int_equal(a->tp_ns, b->tp_ns);
    assert_int_equal(a->cp_ns, b->cp_ns);
    assert_int_equal(a->dp_ns, b->dp_ns);
    assert_int_equal(a->launch_ns, b->launch_ns);
    assert_int_equal(a->wait_p2p_ns, b->wait_p2p_ns);
    assert_int_equal(a->reduce_ns, b->reduce_ns);
    assert_int_equal(a->optimizer_ns, b->optimizer_ns);
    assert_int_equal(a->peak_bytes, b->peak_bytes);
}
