// The costs of steps, and one packing by itself: what strategies and the diagnosis of lacking
// memory ask for.
#include "solver/step/step.h"
#include "solver/time_limit.h"

// Of the memory limit: a step with a lower peak fits by blocks, too. Of some hundred packings of
// 7B to 13B without a pipeline blocks took up to 1.72 times the peak.
#define AMPLE 0.5

// Blocks are not counted of steps in which a rank runs more forwards and backwards of layers, as
// that would take over 0.2 s by an estimate (about 40 us for a forward and a backward).
enum { MOST_LAYER_PASSES = 8192, PASS_UNITS = 200 };

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
    const sp_scenario *scenario = steps->scenario;
    *costs = (sp_step_costs){0};
    sp_status status = sp_schedule_check_size(&scenario->layout, packing, err);
    if (status != SP_OK) {
        return status;
    }
    return scenario->uniform ? sp_step_costs_uniform(&scenario->uniform_costs, &scenario->layout,
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
    sp_plan_init(&plan, &steps->scenario->layout, packing);
    sp_status status = sp_i_step_costs(steps, packing, &costs, err);
    if (status == SP_OK) {
        sp_i_group_starts_try(steps->starts, packing, &costs);
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

// What is asked of the allocator while the step's timelines are alive.
typedef struct asked {
    const sp_i_steps *steps;
    const sp_packflow_outcome *best;
    double deadline_s;
    int64_t reserved_bytes; // 0: not known
} asked;

static sp_packflow_outcome outcome_of(const sp_result *alone)
{
    int64_t lacking_bytes =
        sp_result_is_oom(alone) ? alone->peak_bytes - alone->memory_limit_bytes : 0;
    bool tight = sp_result_fits(alone) == SP_FITS_TIGHT;
    return (sp_packflow_outcome){.makespan_ns = alone->batches[0].iteration_ns,
                                 .lacking_bytes = lacking_bytes,
                                 .tight = tight,
                                 .overfull = tight && alone->reserved_peak_bytes > 0};
}

static bool is_worth_asking(const asked *a)
{
    const sp_scenario *scenario = a->steps->scenario;
    const sp_result *alone = a->steps->result;
    sp_packflow_outcome at_best = outcome_of(alone);
    at_best.tight = false;
    return scenario->layout.pp == 1 && scenario->memory_model == SP_MEMORY_TENSORS &&
           alone->memory_limit_bytes > 0 && at_best.lacking_bytes == 0 &&
           (double)alone->peak_bytes > AMPLE * (double)alone->memory_limit_bytes &&
           sp_packflow_is_better(&at_best, a->best) && !sp_i_is_late(scenario, a->deadline_s);
}

static sp_status ask_allocator(void *context, const sp_step_view *view, sp_error *err)
{
    asked *a = context;
    const sp_scenario *scenario = a->steps->scenario;
    const char *obstacle;
    const size_t passes = sp_layer_passes(view->timeline, &scenario->model);
    if (!is_worth_asking(a) || passes > MOST_LAYER_PASSES) {
        return SP_OK;
    }
    sp_i_spend(scenario, (int64_t)passes * PASS_UNITS);
    double enough_bytes = (1.0 - SP_RESERVED_TIGHT) * (double)scenario->memory_limit_bytes;
    return sp_allocator_reserved(view->timeline, view->costs, view->memory, &scenario->model,
                                 &scenario->memory, (int64_t)enough_bytes, &a->reserved_bytes,
                                 &obstacle, err);
}

// Unless `rows` is NULL, it is the packing: first cut where the schedule runs slices. Unless `best`
// is NULL, blocks count where the step would be better than that.
static sp_status judge(const sp_strategy_input *input, const sp_packing *packing, sp_packing *rows,
                       const sp_packflow_outcome *best, sp_packflow_outcome *outcome, sp_error *err)
{
    asked ask = {.best = best, .deadline_s = input->deadline_s};
    const sp_evaluate_options options = {.engine = {.no_cycle = true},
                                         .no_bounds = true,
                                         .no_causes = true,
                                         .observer = best != NULL ? ask_allocator : NULL,
                                         .observer_context = &ask};
    sp_error own;
    sp_result alone = {0};
    sp_i_kept_step judged = {.plan = {.packing = NULL}};
    // Ranks that exchange attention change the costs, which are not kept.
    bool keeps = input->kept != NULL && rows == NULL &&
                 input->scenario->schedule.kind != SP_SCHEDULE_SLIMPIPE;
    // With the strategy's cost model, which goes on from what it has priced.
    sp_i_steps steps = {.scenario = input->scenario,
                        .options = &options,
                        .cost = *input->cost,
                        .trial = *input->cost,
                        .starts = input->starts,
                        .result = &alone,
                        .keep = keeps ? &judged : NULL};
    ask.steps = &steps;
    sp_error_clear(&own);
    *outcome = SP_PACKFLOW_WORST;
    sp_status status = rows != NULL ? sp_i_step_rows(&steps, rows, &own) : SP_OK;
    if (status == SP_OK) {
        status = sp_i_step_alone(&steps, packing, &own);
    }
    sp_i_spend_step(input->scenario, packing);
    if (status == SP_OK) {
        alone.reserved_peak_bytes = ask.reserved_bytes;
        sp_result_add_stalls(&alone, steps.scenario->profile.interference.tight_microbatch_s);
        *outcome = outcome_of(&alone);
    }
    judged.outcome = *outcome;
    if (status == SP_OK && steps.keep != NULL) {
        sp_i_kept_step_keep(input->kept, &judged, packing);
    } else {
        sp_i_kept_step_fini(&judged);
    }
    sp_result_fini(&alone);
    return sp_status_is_fatal(status) ? sp_error_set(err, status, "%s", own.message[0]) : SP_OK;
}

sp_status sp_step_judge(const sp_strategy_input *input, const sp_packing *packing,
                        sp_packflow_outcome *outcome, sp_error *err)
{
    return judge(input, packing, NULL, NULL, outcome, err);
}

sp_status sp_step_judge_blocks(const sp_strategy_input *input, const sp_packing *packing,
                               const sp_packflow_outcome *best, sp_packflow_outcome *outcome,
                               sp_error *err)
{
    return judge(input, packing, NULL, best, outcome, err);
}

sp_status sp_step_judge_rows(const sp_strategy_input *input, sp_packing *packing,
                             sp_packflow_outcome *outcome, sp_error *err)
{
    return judge(input, packing, packing, NULL, outcome, err);
}
