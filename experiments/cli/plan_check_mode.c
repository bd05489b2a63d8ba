// slimpack plan --check
#include "experiments/cli/plan_modes.h"
#include "experiments/cli/report.h"
#include "experiments/cli/run_report.h"
#include "sim/base/json.h"
#include "sim/schedule/plan_json.h"
#include "solver/evaluate.h"
#include "solver/plan_rules.h"

typedef struct checked {
    json_t *root;
    sp_scenario scenario;
    sp_plan_file plans;
    sp_result result;
} checked;

// Reading checks what makes a plan a plan (sp_plan_check()).
static sp_status read_plan(const char *path, checked *c, sp_error *err)
{
    sp_status status = sp_json_read_file(path, 0, &c->root, err);
    if (status != SP_OK) {
        return status;
    }
    json_t *scenario = json_object_get(c->root, "scenario");
    if (scenario == NULL || !sp_plan_json_is_plan(c->root)) {
        return sp_error_in(err, SP_ERR_CONTENT, path, "",
                           "expected a plan (schema slimpack/plan/1) with its scenario");
    }
    status = sp_scenario_from_json(scenario, path, NULL, 0, &c->scenario, err);
    return status != SP_OK ? status
                           : sp_plan_json_read(c->root, path, &c->scenario.layout, &c->plans, err);
}

static sp_status check_plan(const char *path, checked *c, sp_error *err)
{
    sp_status status = SP_OK;
    for (int b = 0; b < c->plans.count && err->count < SP_ERROR_MESSAGES; b++) {
        sp_status found = sp_plan_check_scenario(&c->plans.plans[b], b, &c->scenario, path, err);
        status = found != SP_OK ? found : status;
    }
    if (status != SP_OK) {
        return status;
    }
    // The rules look at one rank at a time: whether the ranks wait for each other in a circle, and
    // what they hold together, shows in the step.
    const sp_evaluate_options options = {.engine = {.verify = true}};
    return sp_evaluate_plans(&c->scenario, c->plans.plans, c->plans.count, &options, &c->result,
                             err);
}

static int64_t actions_of(const checked *c)
{
    int64_t actions = 0;
    int64_t stages = (int64_t)c->scenario.layout.dp * c->scenario.layout.pp;
    for (int b = 0; b < c->plans.count; b++) {
        for (int64_t s = 0; s < stages; s++) {
            actions += (int64_t)c->plans.plans[b].stages[s].count;
        }
    }
    return actions;
}

static int print(const char *path, const checked *c, bool json)
{
    bool oom = sp_result_is_oom(&c->result);
    if (json) {
        json_t *root = json_object();
        sp_json_put(root, "schema", json_string("slimpack/plan-check/1"));
        sp_json_put(root, "plan", json_string(path));
        sp_json_put(root, "batches", json_integer(c->plans.count));
        sp_json_put(root, "actions", json_integer(actions_of(c)));
        sp_json_put(root, "iteration_ms", json_real(sp_result_iteration_ms(&c->result)));
        sp_json_put(root, "oom", json_boolean(oom));
        return cli_print_json(root);
    }
    char actions[CLI_GROUPED];
    printf("%s: %d batch%s, %s actions, all rules kept, %.1f ms a step%s\n", path, c->plans.count,
           c->plans.count == 1 ? "" : "es", cli_grouped(actions_of(c), actions),
           sp_result_iteration_ms(&c->result), oom ? ", OUT OF MEMORY" : "");
    return 0;
}

int cli_plan_check(const char *path, bool json, bool quiet)
{
    checked c = {0};
    sp_error err = {0};
    int exit_status = 0;
    sp_status status = read_plan(path, &c, &err);
    if (status == SP_OK) {
        status = check_plan(path, &c, &err);
    }
    if (status == SP_OK) {
        exit_status = print(path, &c, json);
        cli_print_notes(quiet || json, &c.result);
        if (exit_status == 0 && sp_result_is_oom(&c.result)) {
            exit_status = sp_status_exit(SP_ERR_INFEASIBLE);
        }
    } else {
        exit_status = cli_fail(&err);
    }
    sp_result_fini(&c.result);
    sp_plan_file_fini(&c.plans);
    sp_scenario_fini(&c.scenario);
    json_decref(c.root);
    return exit_status;
}
