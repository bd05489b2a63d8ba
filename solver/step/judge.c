// The costs of steps, and one packing by itself: what strategies and the diagnosis of lacking
// memory ask for.
#include "solver/step/step.h"

sp_status sp_i_steps_init(sp_i_steps *steps, sp_error *err)
{
    sp_status status = sp_scenario_cost_model(steps->scenario, &steps->cost, err);
    return status == SP_OK ? sp_scenario_cost_model(steps->scenario, &steps->trial, err) : status;
}

void sp_i_steps_fini(sp_i_steps *steps)
{
    sp_cost_model_fini(&steps->cost);
    sp_cost_model_fini(&steps->trial);
}

sp_status sp_i_step_costs(sp_i_steps *steps, const sp_packing *packing, sp_step_costs *costs,
                          sp_error *err)
{
    return steps->scenario->uniform
               ? sp_step_costs_uniform(&steps->scenario->uniform_costs, &steps->scenario->layout,
                                       packing, costs, err)
               : sp_cost_model_build(&steps->cost, packing, costs, err);
}

sp_status sp_i_step_alone(sp_i_steps *steps, const sp_packing *packing, sp_error *err)
{
    sp_plan plan = {0};
    sp_step_costs costs = {0};
    sp_batch_facts facts = {.microbatches = sp_i_step_microbatches(packing)};
    sp_result_fini(steps->result);
    sp_i_step_describe(steps->scenario, steps->result);
    sp_status status = sp_plan_init(&plan, &steps->scenario->layout, packing, err);
    if (status == SP_OK) {
        status = sp_i_step_costs(steps, packing, &costs, err);
    }
    if (status == SP_OK) {
        status = sp_i_group_starts_try(steps->starts, packing, &costs, err);
    }
    if (status == SP_OK) {
        status = sp_i_step_schedule(steps, &plan, &costs, err);
    }
    if (status == SP_OK) {
        status = sp_i_step_simulate(steps, 0, &plan, &costs, &facts, err);
    }
    sp_step_costs_fini(&costs);
    if (steps->keep != NULL && status == SP_OK) {
        steps->keep->plan = plan;
    } else {
        sp_plan_fini(&plan);
    }
    return status;
}

// Unless `rows` is NULL, it is the packing: first cut where the schedule runs slices.
static sp_status judge(const sp_strategy_input *input, const sp_packing *packing, sp_packing *rows,
                       sp_packflow_outcome *outcome, sp_error *err)
{
    static const sp_evaluate_options plain = {.no_bounds = true, .no_causes = true};
    sp_error own;
    sp_result alone = {0};
    sp_i_kept_step judged = {.plan = {.packing = NULL}};
    // Ranks that exchange attention change the costs, which are not kept.
    bool keeps = input->kept != NULL && rows == NULL &&
                 input->scenario->schedule.kind != SP_SCHEDULE_SLIMPIPE;
    // With the strategy's cost model, which goes on from what it has priced.
    sp_i_steps steps = {.scenario = input->scenario,
                        .options = &plain,
                        .cost = *input->cost,
                        .trial = *input->cost,
                        .starts = input->starts,
                        .result = &alone,
                        .keep = keeps ? &judged : NULL};
    sp_error_clear(&own);
    *outcome = SP_PACKFLOW_WORST;
    sp_status status = rows != NULL ? sp_i_step_rows(&steps, rows, &own) : SP_OK;
    if (status == SP_OK) {
        status = sp_i_step_alone(&steps, packing, &own);
    }
    if (status == SP_OK) {
        sp_result_add_stalls(&alone, steps.scenario->profile.interference.tight_microbatch_s);
        outcome->makespan_ns = alone.batches[0].iteration_ns;
        int64_t margin_bytes = sp_result_margin_bytes(&alone);
        outcome->lacking_bytes = margin_bytes < 0 ? -margin_bytes : 0;
        outcome->tight = sp_result_fits(&alone) == SP_FITS_TIGHT;
    }
    judged.outcome = *outcome;
    if (status == SP_OK && steps.keep != NULL) {
        status = sp_i_kept_step_keep(input->kept, &judged, packing, &own);
    } else {
        sp_i_kept_step_fini(&judged);
    }
    sp_result_fini(&alone);
    return sp_status_is_fatal(status) ? sp_error_set(err, status, "%s", own.message[0]) : SP_OK;
}

sp_status sp_step_judge(const sp_strategy_input *input, const sp_packing *packing,
                        sp_packflow_outcome *outcome, sp_error *err)
{
    return judge(input, packing, NULL, outcome, err);
}

sp_status sp_step_judge_rows(const sp_strategy_input *input, sp_packing *packing,
                             sp_packflow_outcome *outcome, sp_error *err)
{
    return judge(input, packing, packing, outcome, err);
}
