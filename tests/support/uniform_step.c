#include "tests/support/uniform_step.h"

#include "tests/support/test_main.h"

static void succeed(sp_status status, const sp_error *err)
{
    if (status != SP_OK) {
        fail_msg("%s", err->count > 0 ? err->message[0] : sp_status_text(status));
    }
}

void uniform_step_run(const uniform_case *c, const sp_engine_options *options, uniform_step *step)
{
    sp_error err = {0};
    *step = (uniform_step){0};
    sp_layout layout = {.tp = 1, .cp = 1, .pp = c->pp, .dp = c->dp, .chunks = c->chunks};
    sp_uniform_costs costs = {.f_ms = (double)c->f_ns / 1e6,
                              .b_ms = (double)c->i_ns / 1e6,
                              .w_ms = (double)c->w_ns / 1e6,
                              .p2p_ms = (double)c->p2p_ns / 1e6,
                              .per_chunk = 1};
    sp_schedule_spec spec = {.kind = c->kind, .group = c->group};
    succeed(sp_packing_uniform(&step->packing, c->dp, c->microbatches, &err), &err);
    succeed(sp_plan_init(&step->plan, &layout, &step->packing, &err), &err);
    succeed(sp_schedule_generate(&spec, "test", &step->plan, &err), &err);
    succeed(sp_plan_check(&step->plan, "test", &err), &err);
    succeed(sp_step_costs_uniform(&costs, &layout, &step->packing, &step->costs, &err), &err);
    sp_engine_options verified = *options;
    verified.verify = true;
    succeed(sp_simulate(&step->plan, &step->costs, &verified, &step->timeline, &step->memory,
                        &step->counts, &err),
            &err);
    succeed(sp_step_metrics_compute(&step->timeline, &step->memory, &step->metrics, &err), &err);
}

void uniform_step_fini(uniform_step *step)
{
    sp_step_metrics_fini(&step->metrics);
    sp_memory_timeline_fini(&step->memory);
    sp_timeline_fini(&step->timeline);
    sp_step_costs_fini(&step->costs);
    sp_plan_fini(&step->plan);
    sp_packing_fini(&step->packing);
}
