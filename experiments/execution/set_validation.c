#include "experiments/execution/set_validation.h"

#include <math.h>
#include <stdio.h>

const char *const sp_case_status_names[] = {"ok",     "oom", "infeasible", "cannot execute",
                                            "failed", NULL};

static void take_predicted(const sp_execution *execution, sp_case_outcome *outcome);
static void take_figures(const sp_execution *execution, sp_case_outcome *outcome);

sp_status sp_set_run_case(const sp_scenario_case *of, const sp_execution_options *options,
                          sp_case_outcome *outcome, sp_error *err)
{
    sp_execution execution = {0};
    sp_error reason = {0};
    *outcome =
        (sp_case_outcome){.of = of, .clock = options->clock, .speed = (double)NAN, .runs = 1};
    const sp_result_file *executed = options->executed;
    sp_status status =
        executed != NULL
            ? sp_execution_run_plans(&of->scenario, executed->plans.plans, executed->plans.count,
                                     options, &execution, &reason)
            : sp_execution_run(&of->scenario, options, &execution, &reason);
    switch (status) {
    case SP_OK:
        take_predicted(&execution, outcome);
        if (options->taker == NULL) {
            take_figures(&execution, outcome);
        }
        break;
    case SP_ERR_INFEASIBLE:
        outcome->status = SP_CASE_INFEASIBLE;
        break;
    case SP_ERR_CONTENT:
        outcome->status = SP_CASE_CANNOT_EXECUTE;
        break;
    case SP_ERR_DEADLOCK:
    case SP_ERR_LIMIT:
    case SP_ERR_INTERNAL:
        outcome->status = SP_CASE_FAILED;
        break;
    case SP_ERR_USAGE:
    case SP_ERR_IO:
    case SP_ERR_SYNTAX:
    case SP_ERR_NO_MEMORY:
        return sp_error_set(err, status, "%s: %s: %.400s", of->group, of->name,
                            reason.count > 0 ? reason.message[0] : sp_status_text(status));
    }
    if (status != SP_OK) {
        snprintf(outcome->reason, sizeof outcome->reason, "%s",
                 reason.count > 0 ? reason.message[0] : sp_status_text(status));
    }
    sp_execution_fini(&execution);
    return SP_OK;
}

static uint32_t categories_that_differ(const sp_execution *execution)
{
    size_t ranks = (size_t)execution->measured.layout.dp * (size_t)execution->measured.layout.pp;
    uint32_t differs = 0;
    for (size_t r = 0; r < ranks; r++) {
        const sp_held_memory *held = &execution->held[r];
        for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
            bool equal = held->predicted.of[c] == held->measured.of[c];
            differs |= equal ? 0 : UINT32_C(1) << c;
        }
    }
    return differs;
}

static void take_predicted(const sp_execution *execution, sp_case_outcome *outcome)
{
    const sp_result *predicted = &execution->predicted;
    outcome->status = sp_result_is_oom(predicted) ? SP_CASE_OOM : SP_CASE_OK;
    outcome->predicted_ms = sp_result_iteration_ms(predicted);
    outcome->predicted_bubble = sp_result_bubble_ratio(predicted);
    outcome->predicted_peak_bytes = predicted->peak_bytes;
}

static void take_figures(const sp_execution *execution, sp_case_outcome *outcome)
{
    const sp_result *measured = &execution->measured;
    if (sp_result_is_oom(measured)) {
        outcome->status = SP_CASE_OOM;
    }
    snprintf(outcome->device, sizeof outcome->device, "%s", execution->device.name);
    outcome->measured_ms = sp_result_iteration_ms(measured);
    outcome->measured_bubble = sp_result_bubble_ratio(measured);
    outcome->measured_peak_bytes = measured->peak_bytes;
    outcome->error = sp_execution_compare(execution);
    outcome->memory_compared = execution->held != NULL;
    outcome->memory_differs = execution->held != NULL ? categories_that_differ(execution) : 0;
}

bool sp_case_memory_is_exact(const sp_case_outcome *outcome)
{
    const uint32_t work_spaces = UINT32_C(1) << SP_MEM_WORKSPACE;
    return outcome->memory_compared && (outcome->memory_differs & ~work_spaces) == 0;
}

// ---- all cases ----

static bool has_figures(const sp_case_outcome *outcome)
{
    return outcome->status == SP_CASE_OK || outcome->status == SP_CASE_OOM;
}

// A figure that is not known is outside every bound.
static bool within(double figure, double bound)
{
    return bound < 0.0 || figure <= bound;
}

void sp_set_summarize(const sp_case_outcome *outcomes, size_t count,
                      const sp_scenario_set_bounds *bounds, sp_set_summary *summary)
{
    double time = 0.0;
    double bias = 0.0;
    double bubble = 0.0;
    double peak = 0.0;
    size_t peaks = 0;
    *summary = (sp_set_summary){0};
    for (size_t i = 0; i < count; i++) {
        const sp_case_outcome *o = &outcomes[i];
        summary->of_status[o->status]++;
        if (!has_figures(o)) {
            continue;
        }
        summary->compared++;
        time += fabs(o->error.iteration_time);
        bias += o->error.iteration_time;
        bubble = fmax(bubble, fabs(o->error.bubble_ratio));
        if (isfinite(o->error.peak_memory_mape)) {
            peak += o->error.peak_memory_mape;
            peaks++;
        }
        if (isfinite(o->speed)) {
            bool first = summary->speeds++ == 0;
            summary->steady += o->steady;
            summary->least_speed = first ? o->speed : fmin(summary->least_speed, o->speed);
            summary->most_speed = first ? o->speed : fmax(summary->most_speed, o->speed);
        }
        summary->memory_compared += o->memory_compared;
        summary->memory_exact += sp_case_memory_is_exact(o);
    }
    double compared = (double)summary->compared;
    summary->iteration_time_mape = compared > 0.0 ? time / compared : (double)NAN;
    summary->iteration_time_bias = compared > 0.0 ? bias / compared : (double)NAN;
    summary->largest_bubble_error = compared > 0.0 ? bubble : (double)NAN;
    summary->peak_memory_mape = peaks > 0 ? peak / (double)peaks : (double)NAN;
    summary->within_bounds = within(summary->iteration_time_mape, bounds->iteration_time_mape) &&
                             within(summary->largest_bubble_error, bounds->bubble_ratio_abs) &&
                             within(summary->peak_memory_mape, bounds->peak_memory_mape);
}
