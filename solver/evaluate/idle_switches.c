// Finds switches of the software stack that a scenario states and that change nothing of its step.
// Whether one does follows from the simulation: a tail of buckets may be hidden or not, and so many
// of them may be one.
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/model/settings.h"
#include "solver/evaluate/evaluation.h"
#include "solver/search.h"
#include "solver/setting_uses.h"

// Layers that a data-parallel rank's actions run, of steps that are simulated again for this.
enum { MOST_LAYERS_RUN = 65536 };

#define STACK "stack."

// What strategies and layouts choose by is not taken back with the switch alone.
static bool is_tried(const sp_setting *setting)
{
    static const char chooses[] = "name tensors cp_overlap cp_a2a_ranks padded_documents";
    return strncmp(setting->key, STACK, strlen(STACK)) == 0 && setting->store != SP_STORE_NOTHING &&
           !sp_names_hold(chooses, setting->key + strlen(STACK));
}

static bool is_candidate(const sp_i_evaluation *ev, int index, const sp_setting *setting)
{
    const sp_scenario *scenario = ev->steps.scenario;
    return sp_scenario_states(scenario, index) && is_tried(setting) &&
           !sp_setting_is_unused(scenario, SP_RUN_STEP, index);
}

static bool is_short(const sp_scenario *scenario, const sp_plan *plan)
{
    const sp_layout *layout = &scenario->layout;
    double actions = 0.0;
    for (int r = 0; r < layout->pp; r++) {
        actions += (double)sp_plan_stage(plan, 0, r)->count;
    }
    return scenario->network == SP_NETWORK_CLOSED &&
           actions * scenario->model.layers <= (double)MOST_LAYERS_RUN * sp_layout_vstages(layout);
}

// The stack as it is read where this switch is not stated: one that is not may follow from others.
static sp_stack stack_without(const sp_scenario *scenario, const sp_setting *taken)
{
    const sp_stack named = sp_scenario_unchanged_stack(scenario);
    sp_stack stack = scenario->memory.stack;
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        if (is_tried(setting) && (setting == taken || !sp_scenario_states(scenario, i))) {
            memcpy((char *)&stack + setting->offset, (const char *)&named + setting->offset,
                   setting->bytes);
        }
    }
    sp_object nothing = {.json = NULL};
    sp_stack_drop_idle(&nothing, "stack", &stack);
    return stack;
}

// The figures of the plan by the scenario, without those of the clock; NULL: it goes with no such
// switch.
static sp_status figures_of(const sp_i_evaluation *ev, const sp_scenario *scenario,
                            const sp_plan *plan, json_t **figures, sp_error *err)
{
    const sp_evaluate_options options = {
        .no_bounds = true, .no_causes = true, .allocator_peak = ev->steps.options->allocator_peak};
    sp_result result = {0};
    sp_i_steps steps = {.scenario = scenario, .options = &options, .result = &result};
    sp_step_costs costs = {0};
    sp_batch_facts facts = {0};
    sp_error own;
    sp_error_clear(&own);
    *figures = NULL;
    sp_i_step_describe(scenario, &result);
    sp_status status = sp_i_steps_init(&steps, &own);
    if (status == SP_OK) {
        status = sp_i_step_costs(&steps, plan->packing, &costs, &own);
    }
    if (status == SP_OK) {
        status = sp_i_step_exchange(&steps, plan, &costs, &own);
    }
    if (status == SP_OK) {
        status = sp_i_step_simulate(&steps, 0, plan, &costs, &facts, &own);
    }
    if (status == SP_OK) {
        *figures = sp_result_json(&result, true);
        json_object_del(*figures, "simulate_ms");
    }
    sp_step_costs_fini(&costs);
    sp_i_steps_fini(&steps);
    sp_result_fini(&result);
    return sp_i_only_fatal(status, &own, err);
}

// Plans that are made by times would be others without the switch.
static bool plans_by_times(const sp_scenario *scenario)
{
    return sp_strategy_find(scenario->strategy.kind)->kind != SP_STRATEGY_ROWS ||
           scenario->schedule.kind == SP_SCHEDULE_ZB_AUTO;
}

static bool is_asked(const sp_i_evaluation *ev)
{
    const sp_scenario *scenario = ev->steps.scenario;
    return !scenario->uniform && !ev->steps.options->no_causes && !plans_by_times(scenario);
}

sp_status sp_i_idle_switches_try(sp_i_evaluation *ev, const sp_plan *plan, sp_error *err)
{
    const sp_scenario *scenario = ev->steps.scenario;
    const sp_setting *setting = NULL;
    json_t *stated = NULL;
    sp_status status = SP_OK;
    if (!is_asked(ev)) {
        return SP_OK;
    }
    for (int i = 0; status == SP_OK && (setting = sp_setting_at(i)) != NULL; i++) {
        if (ev->moves[i] || !is_candidate(ev, i, setting)) {
            continue;
        }
        if (!is_short(scenario, plan)) {
            ev->moves[i] = true; // for all that is known
            continue;
        }
        sp_scenario without = *scenario;
        without.memory.stack = stack_without(scenario, setting);
        without.profile.flash_2.is_used = without.memory.stack.flash_attention_2;
        json_t *figures = NULL;
        status = stated == NULL ? figures_of(ev, scenario, plan, &stated, err) : SP_OK;
        if (status == SP_OK) {
            status = figures_of(ev, &without, plan, &figures, err);
        }
        ev->moves[i] = figures == NULL || !json_equal(figures, stated);
        json_decref(figures);
    }
    json_decref(stated);
    return status;
}

void sp_i_idle_switches_warn(sp_i_evaluation *ev, sp_status status)
{
    const sp_setting *setting = NULL;
    sp_warnings *warnings = &ev->steps.result->warnings;
    if (status != SP_OK || !is_asked(ev)) {
        return;
    }
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        if (!ev->moves[i] && is_candidate(ev, i, setting)) {
            sp_warnings_add(warnings,
                            "%s has no effect here: time and memory of the step are the same "
                            "without it",
                            setting->key);
        }
    }
}
