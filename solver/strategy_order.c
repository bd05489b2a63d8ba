// The order that a strategy brings, in the place of the scenario's own.
#include "sim/base/json.h"
#include "solver/chunk_choice.h"
#include "solver/strategy.h"

// The document then says what is run, so that reading it again gives the same scenario.
static bool write_resolved(const sp_scenario *scenario)
{
    const sp_schedule_spec *schedule = &scenario->schedule;
    json_t *object = json_object_get(scenario->resolved, "schedule");
    json_t *parallel = json_object_get(scenario->resolved, "parallel");
    return object == NULL || parallel == NULL ||
           (sp_json_put(parallel, "chunks_per_rank", json_integer(scenario->layout.chunks)) &&
            sp_json_put(object, "kind", json_string(sp_schedule_names[schedule->kind])) &&
            sp_json_put(object, "slices", json_integer(schedule->slices)) &&
            sp_json_put(object, "slice_rule",
                        json_string(sp_slice_rule_names[schedule->slice_rule])));
}

sp_status sp_strategy_settle(sp_scenario *scenario, bool compared, sp_error *err)
{
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    if (scenario->uniform || strategy == NULL || strategy->schedule == SP_SCHEDULE_KINDS) {
        return SP_OK;
    }
    sp_schedule_spec *schedule = &scenario->schedule;
    if (scenario->schedule_given && schedule->kind != strategy->schedule && !compared) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "schedule.kind",
                           "is \"%s\", but strategy \"%s\" brings its own order, \"%s\"",
                           sp_schedule_names[schedule->kind], strategy->name,
                           sp_schedule_names[strategy->schedule]);
    }
    if (schedule->kind != strategy->schedule && !scenario->chunks_given) {
        int chunks = sp_schedule_traits_of(strategy->schedule).chunks;
        scenario->layout.chunks = chunks > 1 ? chunks : 1;
    }
    schedule->kind = strategy->schedule;
    schedule->split_backward = strategy->split_backward;
    scenario->schedule_given = true;
    if (schedule->slices == 0) {
        schedule->slices = scenario->layout.pp;
    }
    sp_status status = sp_scenario_resolve_layout(scenario, err);
    if (status == SP_OK && strategy->chooses_chunks) {
        status = sp_i_choose_chunks(scenario, err);
        if (status == SP_OK) {
            status = sp_scenario_resolve_layout(scenario, err);
        }
    }
    if (status == SP_OK && !write_resolved(scenario)) {
        status = sp_error_no_memory(err, "a scenario");
    }
    return status;
}
