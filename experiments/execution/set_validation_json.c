#include <math.h>

#include "experiments/execution/set_validation.h"
#include "sim/base/json.h"
#include "sim/base/units.h"

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *figures_json(double iteration_ms, double bubble_ratio, int64_t peak_bytes)
{
    json_t *object = json_object();
    sp_json_put(object, "iteration_ms", number(iteration_ms));
    sp_json_put(object, "bubble_ratio", number(bubble_ratio));
    sp_json_put(object, "peak_memory_gib", number(sp_gib_from_bytes(peak_bytes)));
    return object;
}

static json_t *error_json(const sp_execution_error *error)
{
    json_t *object = json_object();
    sp_json_put(object, "iteration_time", number(error->iteration_time));
    sp_json_put(object, "bubble_ratio_abs", number(error->bubble_ratio));
    sp_json_put(object, "peak_memory_mape", number(error->peak_memory_mape));
    return object;
}

static json_t *differing_json(uint32_t differs)
{
    json_t *names = json_array();
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        if ((differs >> c & 1u) != 0) {
            json_array_append_new(names, json_string(sp_memory_category_names[c]));
        }
    }
    return names;
}

static json_t *parallel_json(const sp_layout *layout)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i}", "tp", layout->tp, "cp", layout->cp, "pp",
                     layout->pp, "dp", layout->dp, "chunks_per_rank", layout->chunks);
}

static json_t *case_json(const sp_case_outcome *outcome)
{
    const sp_scenario *scenario = &outcome->of->scenario;
    json_t *object = json_object();
    sp_json_put(object, "group", json_string(outcome->of->group));
    sp_json_put(object, "name", json_string(outcome->of->name));
    sp_json_put(object, "status", json_string(sp_case_status_names[outcome->status]));
    sp_json_put(object, "reason",
                outcome->reason[0] != '\0' ? json_string(outcome->reason) : json_null());
    sp_json_put(object, "parallel", parallel_json(&scenario->layout));
    sp_json_put(object, "schedule", json_string(sp_schedule_names[scenario->schedule.kind]));
    sp_json_put(object, "strategy", json_string(scenario->strategy.kind));
    sp_json_put(object, "clock", json_string(sp_clock_names[outcome->clock]));
    if (outcome->status == SP_CASE_OK || outcome->status == SP_CASE_OOM) {
        sp_json_put(object, "profile", json_string(scenario->profile.name));
        sp_json_put(object, "predicted",
                    figures_json(outcome->predicted_ms, outcome->predicted_bubble,
                                 outcome->predicted_peak_bytes));
        sp_json_put(object, "measured",
                    figures_json(outcome->measured_ms, outcome->measured_bubble,
                                 outcome->measured_peak_bytes));
        sp_json_put(object, "error", error_json(&outcome->error));
        sp_json_put(object, "speed", number(outcome->speed));
        sp_json_put(object, "steady",
                    isfinite(outcome->speed) ? json_boolean(outcome->steady) : json_null());
        sp_json_put(object, "runs", json_integer(outcome->runs));
        sp_json_put(object, "memory_exact",
                    outcome->memory_compared ? json_boolean(sp_case_memory_is_exact(outcome))
                                             : json_null());
        sp_json_put(object, "memory_differs", differing_json(outcome->memory_differs));
    }
    return object;
}

static json_t *bound_json(double bound)
{
    return bound >= 0.0 ? json_real(bound) : json_null();
}

static json_t *summary_json(const sp_set_summary *summary, const sp_scenario_set_bounds *bounds)
{
    json_t *object = json_object();
    json_t *of_status = json_object();
    json_t *stated = json_object();
    for (int s = 0; s < SP_CASE_STATUSES; s++) {
        sp_json_put(of_status, sp_case_status_names[s],
                    json_integer((json_int_t)summary->of_status[s]));
    }
    sp_json_put(stated, "iteration_time_mape", bound_json(bounds->iteration_time_mape));
    sp_json_put(stated, "bubble_ratio_abs", bound_json(bounds->bubble_ratio_abs));
    sp_json_put(stated, "peak_memory_mape", bound_json(bounds->peak_memory_mape));
    sp_json_put(object, "cases", of_status);
    sp_json_put(object, "compared", json_integer((json_int_t)summary->compared));
    sp_json_put(object, "iteration_time_mape", number(summary->iteration_time_mape));
    sp_json_put(object, "iteration_time_bias", number(summary->iteration_time_bias));
    sp_json_put(object, "bubble_ratio_abs", number(summary->largest_bubble_error));
    sp_json_put(object, "peak_memory_mape", number(summary->peak_memory_mape));
    sp_json_put(object, "memory_exact", json_integer((json_int_t)summary->memory_exact));
    sp_json_put(object, "memory_compared", json_integer((json_int_t)summary->memory_compared));
    sp_json_put(object, "speeds_known", json_integer((json_int_t)summary->speeds));
    sp_json_put(object, "steady", json_integer((json_int_t)summary->steady));
    sp_json_put(object, "bounds", stated);
    sp_json_put(object, "within_bounds", json_boolean(summary->within_bounds));
    return object;
}

json_t *sp_set_validation_json(const sp_case_outcome *outcomes, size_t count,
                               const sp_execution_options *options, int repeat,
                               const sp_scenario_set_bounds *bounds)
{
    sp_set_summary summary;
    const char *device = "";
    json_t *object = json_object();
    json_t *cases = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(cases, case_json(&outcomes[i]));
        device = outcomes[i].device[0] != '\0' ? outcomes[i].device : device;
    }
    sp_set_summarize(outcomes, count, bounds, &summary);
    sp_json_put(object, "schema", json_string("slimpack/validation/1"));
    sp_json_put(object, "backend", json_string(sp_backend_name(options->backend)));
    sp_json_put(object, "device", json_string(device));
    sp_json_put(object, "precision", json_string(sp_precision_names[options->precision]));
    sp_json_put(object, "seed", json_integer((json_int_t)options->seed));
    sp_json_put(object, "steps", json_integer(options->steps));
    sp_json_put(object, "repeat", json_integer(repeat));
    sp_json_put(object, "cases", cases);
    sp_json_put(object, "summary", summary_json(&summary, bounds));
    return object;
}
