#include "sim/base/progress.h"
#include "solver/evaluate_private.h"
#include "solver/strategy.h"

static sp_status begin(sp_i_evaluation *ev, const sp_scenario *scenario,
                       const sp_evaluate_options *options, sp_result *result, sp_error *err);
static sp_status evaluate_batch(sp_i_evaluation *ev, int index, const sp_batch *batch,
                                int64_t context, sp_error *err);
static sp_status evaluate_plan(sp_i_evaluation *ev, int index, const sp_plan *plan, sp_error *err);
static sp_status build_costs(sp_i_evaluation *ev, const sp_packing *packing, sp_step_costs *costs,
                             sp_error *err);
static sp_status evaluate_costed(sp_i_evaluation *ev, int index, const sp_plan *plan,
                                 const sp_step_costs *costs, sp_batch_facts *facts, sp_error *err);
static void end(sp_i_evaluation *ev, sp_status status);

sp_status sp_evaluate_batches(const sp_scenario *scenario, sp_batches *batches, sp_error *err)
{
    *batches = (sp_batches){0};
    return scenario->uniform ? SP_OK : sp_batches_make(&scenario->workload, batches, err);
}

sp_status sp_evaluate(const sp_scenario *scenario, const sp_batches *batches,
                      const sp_evaluate_options *options, sp_result *result, sp_error *err)
{
    sp_i_evaluation ev;
    sp_status status = scenario->uniform
                           ? SP_OK
                           : sp_strategy_check(scenario->strategy.kind, scenario->source, err);
    if (status != SP_OK) {
        *result = (sp_result){0};
        return status;
    }
    status = begin(&ev, scenario, options, result, err);
    if (status == SP_OK && scenario->uniform) {
        status = evaluate_batch(&ev, 0, NULL, 0, err);
    } else {
        sp_i_evaluate_warn_of_batches(result, batches);
    }
    for (int b = 0; status == SP_OK && b < batches->count; b++) {
        status = evaluate_batch(&ev, b, &batches->batch[b], batches->context, err);
    }
    end(&ev, status);
    return status;
}

sp_status sp_evaluate_plans(const sp_scenario *scenario, const sp_plan *plans, int count,
                            const sp_evaluate_options *options, sp_result *result, sp_error *err)
{
    sp_i_evaluation ev;
    sp_status status = begin(&ev, scenario, options, result, err);
    for (int b = 0; status == SP_OK && b < count; b++) {
        status = evaluate_plan(&ev, b, &plans[b], err);
    }
    end(&ev, status);
    return status;
}

static sp_status begin(sp_i_evaluation *ev, const sp_scenario *scenario,
                       const sp_evaluate_options *options, sp_result *result, sp_error *err)
{
    *ev = (sp_i_evaluation){.scenario = scenario, .options = options, .result = result};
    sp_i_evaluate_describe(scenario, result);
    if (scenario->uniform) {
        return SP_OK;
    }
    sp_i_evaluate_recompute(ev);
    return sp_cost_model_init(&ev->cost, &scenario->model, &scenario->layout, &scenario->cluster,
                              &scenario->profile, scenario->memory, scenario->source, err);
}

static sp_status evaluate_batch(sp_i_evaluation *ev, int index, const sp_batch *batch,
                                int64_t context, sp_error *err)
{
    sp_batch uniform = {0};
    sp_packing packing;
    sp_plan plan = {0};
    sp_step_costs costs = {0};
    sp_batch_facts facts = {0};
    double started_s = sp_clock_s();
    sp_status status = sp_i_evaluate_pack(ev, batch, context, &uniform, &packing, err);
    if (status != SP_OK) {
        return status;
    }
    status = sp_plan_init(&plan, &ev->scenario->layout, &packing, err);
    double packed_s = sp_clock_s();
    if (status == SP_OK) {
        status = build_costs(ev, &packing, &costs, err);
    }
    double costed_s = sp_clock_s();
    if (status == SP_OK) {
        status = sp_i_evaluate_schedule(ev, &plan, &costs, err);
    }
    facts.simulate_ms = (costed_s - packed_s) * 1e3;
    facts.solver_ms = (sp_clock_s() - started_s) * 1e3 - facts.simulate_ms;
    if (status == SP_OK) {
        status = evaluate_costed(ev, index, &plan, &costs, &facts, err);
    }
    sp_step_costs_fini(&costs);
    sp_plan_fini(&plan);
    sp_packing_fini(&packing);
    sp_batch_fini(&uniform);
    return status;
}

// A plan that exists already.
static sp_status evaluate_plan(sp_i_evaluation *ev, int index, const sp_plan *plan, sp_error *err)
{
    sp_step_costs costs = {0};
    sp_batch_facts facts = {0};
    double started_s = sp_clock_s();
    sp_status status = build_costs(ev, plan->packing, &costs, err);
    if (status == SP_OK) {
        status = sp_i_evaluate_exchange(ev, plan, &costs, err);
    }
    facts.simulate_ms = (sp_clock_s() - started_s) * 1e3;
    if (status == SP_OK) {
        status = evaluate_costed(ev, index, plan, &costs, &facts, err);
    }
    sp_step_costs_fini(&costs);
    return status;
}

static sp_status build_costs(sp_i_evaluation *ev, const sp_packing *packing, sp_step_costs *costs,
                             sp_error *err)
{
    return ev->scenario->uniform ? sp_step_costs_uniform(&ev->scenario->uniform_costs,
                                                         &ev->scenario->layout, packing, costs, err)
                                 : sp_cost_model_build(&ev->cost, packing, costs, err);
}

// Simulates a plan whose costs are known.
static sp_status evaluate_costed(sp_i_evaluation *ev, int index, const sp_plan *plan,
                                 const sp_step_costs *costs, sp_batch_facts *facts, sp_error *err)
{
    sp_i_evaluate_count(ev, plan->packing, facts);
    if (plan->packing->dropped_count + plan->packing->delayed_count > 0) {
        ev->result->lossless = false;
    }
    return sp_i_evaluate_simulate(ev, index, plan, costs, facts, err);
}

static void end(sp_i_evaluation *ev, sp_status status)
{
    if (!ev->scenario->uniform) {
        ev->result->uncalibrated_count =
            sp_uncalibrated_lines(&ev->cost.uncalibrated, ev->result->uncalibrated);
        sp_cost_model_fini(&ev->cost);
    }
    if (status != SP_OK) {
        sp_result_fini(ev->result);
    }
}
