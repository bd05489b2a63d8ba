#include "solver/strategies/job_choice.h"

#include <stdio.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "solver/step/step.h"
#include "solver/strategy_list.h"

static bool has_plan(const sp_packflow_outcome *outcome)
{
    return outcome->makespan_ns < INT64_MAX;
}

static void add(sp_packflow_outcome *total, const sp_packflow_outcome *step)
{
    if (!has_plan(total) || !has_plan(step)) {
        *total = SP_PACKFLOW_WORST;
        return;
    }
    total->makespan_ns += step->makespan_ns;
    total->lacking_bytes = sp_larger(total->lacking_bytes, step->lacking_bytes);
    total->tight = total->tight || step->tight;
}

// Plans the batches in their order, and adds up what they come to.
static sp_status run_batches(const sp_scenario *scenario, const sp_batches *batches,
                             sp_strategy_input *input, sp_i_group_starts *starts,
                             sp_packflow_outcome *total, sp_error *err)
{
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    sp_status status = SP_OK;
    *total = (sp_packflow_outcome){0};
    for (int b = 0; status == SP_OK && b < batches->count; b++) {
        sp_packing packing;
        sp_packflow_outcome judged;
        sp_batch joined = {0};
        input->batch = &batches->batch[b];
        if (strategy->joins_documents) {
            status = sp_batch_concatenate(input->batch, batches->context,
                                          scenario->strategy.attention_across, &joined, err);
            input->batch = &joined;
        }
        if (status == SP_OK) {
            status = strategy->pack(input, &packing, err);
        }
        if (status == SP_OK) {
            status = strategy->sliced ? sp_step_judge(input, &packing, &judged, err)
                                      : sp_step_judge_rows(input, &packing, &judged, err);
            if (status == SP_OK) {
                sp_step_costs none = {0};
                sp_i_group_starts_add(starts, &packing, &none);
                add(total, &judged);
            }
            sp_packing_fini(&packing);
        }
        sp_batch_fini(&joined);
    }
    return status;
}

sp_status sp_i_job_run(const sp_scenario *scenario, const sp_batches *batches,
                       sp_packflow_outcome *total, sp_error *err)
{
    sp_cost_model cost;
    sp_i_group_starts starts;
    sp_strategy_input input = {
        .scenario = scenario, .context = batches->context, .cost = &cost, .starts = &starts};
    sp_status status = sp_i_group_starts_init(&starts, scenario, err);
    if (status == SP_OK) {
        status = sp_scenario_cost_model(scenario, &cost, err);
        if (status == SP_OK) {
            status = run_batches(scenario, batches, &input, &starts, total, err);
            sp_cost_model_fini(&cost);
        }
    }
    sp_i_group_starts_fini(&starts);
    return status;
}

static sp_status take_way(sp_scenario *scenario, const sp_i_job_way *way, sp_error *err)
{
    sp_status status = sp_scenario_set_strategy(scenario, way->kind, err);
    snprintf(scenario->strategy.exchange_of, sizeof scenario->strategy.exchange_of, "%s",
             way->exchange_of != NULL ? way->exchange_of : "");
    if (status == SP_OK && way->exchange_of != NULL) {
        status = sp_i_take_exchange(sp_strategy_find(way->exchange_of), scenario, err);
        scenario->order_resolved = false;
    }
    return status;
}

// In a copy that has no document and owns nothing but the layers that its strategy chooses.
static sp_status try_way(const sp_scenario *scenario, const sp_batches *batches,
                         const sp_i_job_way *way, bool compared, sp_packflow_outcome *outcome,
                         sp_error *err)
{
    sp_error own;
    sp_scenario tried = *scenario;
    sp_error_clear(&own);
    tried.resolved = NULL;
    tried.chosen_layers = NULL;
    *outcome = SP_PACKFLOW_WORST;
    sp_status status = take_way(&tried, way, &own);
    if (status == SP_OK) {
        status = sp_strategy_resolve(&tried, compared, &own);
    }
    if (status == SP_OK) {
        status = sp_i_job_run(&tried, batches, outcome, &own);
    }
    sp_free(tried.chosen_layers);
    if (status != SP_OK) {
        *outcome = SP_PACKFLOW_WORST;
    }
    return sp_status_is_fatal(status) ? sp_error_set(err, status, "%s", own.message[0]) : SP_OK;
}

static sp_status find_fastest(const sp_scenario *scenario, const sp_i_job_way *ways, int count,
                              bool compared, int *fastest, sp_error *err)
{
    sp_batches batches;
    sp_workload_spec workload = scenario->workload;
    sp_packflow_outcome least = SP_PACKFLOW_WORST;
    workload.batches = scenario->strategy.time_limit_ms > 0 ? 1 : workload.batches;
    sp_status status = sp_batches_make(&workload, &batches, err);
    *fastest = 0;
    for (int i = 0; status == SP_OK && i < count; i++) {
        sp_packflow_outcome outcome;
        status = try_way(scenario, &batches, &ways[i], compared, &outcome, err);
        if (status == SP_OK && sp_packflow_is_better(&outcome, &least)) {
            least = outcome;
            *fastest = i;
        }
    }
    sp_batches_fini(&batches);
    return status;
}

// As a resolved document does, which is to give the same scenario when it is read again.
static bool states_all(const sp_scenario *scenario)
{
    return scenario->schedule_given && scenario->chunks_given && scenario->cp_overlap_given;
}

sp_status sp_i_job_choose(sp_scenario *scenario, const sp_i_job_way *ways, int count, bool compared,
                          sp_error *err)
{
    int fastest = 0;
    sp_strategy_spec *strategy = &scenario->strategy;
    snprintf(strategy->asked, sizeof strategy->asked, "%s", strategy->kind);
    sp_status status = SP_OK;
    if (count > 1 && (compared || !states_all(scenario))) {
        status = find_fastest(scenario, ways, count, compared, &fastest, err);
    }
    return status == SP_OK ? take_way(scenario, &ways[fastest], err) : status;
}
