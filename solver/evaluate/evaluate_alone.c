// The costs of an evaluation, and one packing by itself: what strategies and shortages ask for.
#include "solver/evaluate/evaluate_private.h"

static sp_status new_costs(const sp_scenario *scenario, sp_cost_model *cost, sp_error *err)
{
    return sp_cost_model_init(cost, &scenario->model, &scenario->layout, &scenario->cluster,
                              &scenario->profile, scenario->memory, scenario->source, err);
}

sp_status sp_i_evaluate_costs(sp_i_evaluation *ev, sp_error *err)
{
    sp_status status = new_costs(ev->scenario, &ev->cost, err);
    return status == SP_OK ? new_costs(ev->scenario, &ev->trial, err) : status;
}

void sp_i_evaluate_costs_fini(sp_i_evaluation *ev)
{
    sp_cost_model_fini(&ev->cost);
    sp_cost_model_fini(&ev->trial);
}

sp_status sp_i_evaluate_build(sp_i_evaluation *ev, const sp_packing *packing, sp_step_costs *costs,
                              sp_error *err)
{
    return ev->scenario->uniform ? sp_step_costs_uniform(&ev->scenario->uniform_costs,
                                                         &ev->scenario->layout, packing, costs, err)
                                 : sp_cost_model_build(&ev->cost, packing, costs, err);
}

sp_status sp_i_evaluate_alone(sp_i_evaluation *ev, const sp_packing *packing, sp_error *err)
{
    sp_plan plan = {0};
    sp_step_costs costs = {0};
    sp_batch_facts facts = {.microbatches = sp_i_evaluate_microbatches(packing)};
    sp_result_fini(ev->result);
    sp_i_evaluate_describe(ev->scenario, ev->result);
    sp_status status = sp_plan_init(&plan, &ev->scenario->layout, packing, err);
    if (status == SP_OK) {
        status = sp_i_evaluate_build(ev, packing, &costs, err);
    }
    if (status == SP_OK) {
        status = sp_i_evaluate_schedule(ev, &plan, &costs, err);
    }
    if (status == SP_OK) {
        status = sp_i_evaluate_simulate(ev, 0, &plan, &costs, &facts, err);
    }
    sp_step_costs_fini(&costs);
    sp_plan_fini(&plan);
    return status;
}
