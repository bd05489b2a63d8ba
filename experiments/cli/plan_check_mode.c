// slimpack plan --check
#include "experiments/cli/plan_modes.h"
#include "experiments/cli/report.h"
#include "experiments/cli/run_report.h"
#include "sim/base/json.h"
#include "sim/scenario/plan_input.h"
#include "solver/evaluate/evaluate.h"
#include "solver/strategy.h"

typedef struct checked {
    sp_plan_input in;
    sp_result result;
} checked;

static sp_status check_plan(const char *path, checked *c, sp_error *err)
{
    sp_status status = SP_OK;
    for (int b = 0; b < c->in.plans.count && err->count < SP_ERROR_MESSAGES; b++) {
        sp_status found =
            sp_plan_check_scenario(&c->in.plans.plans[b], b, &c->in.scenario, path, err);
        status = found != SP_OK ? found : status;
    }
    if (status != SP_OK) {
        return status;
    }
    // The rules look at one rank at a time: whether the ranks wait for each other in a circle, and
    // what they hold together, shows in the step.
    const sp_evaluate_options options = {.engine = {.verify = true}, .formed = &c->in.plans.formed};
    return sp_evaluate_plans(&c->in.scenario, c->in.plans.plans, c->in.plans.count, &options,
                             &c->result, err);
}

static int64_t actions_of(const checked *c)
{
    int64_t actions = 0;
    int64_t stages = (int64_t)c->in.scenario.layout.dp * c->in.scenario.layout.pp;
    for (int b = 0; b < c->in.plans.count; b++) {
        for (int64_t s = 0; s < stages; s++) {
            actions += (int64_t)c->in.plans.plans[b].stages[s].count;
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
        sp_json_put(root, "batches", json_integer(c->in.plans.count));
        sp_json_put(root, "actions", json_integer(actions_of(c)));
        sp_json_put(root, "iteration_ms", json_real(sp_result_iteration_ms(&c->result)));
        sp_json_put(root, "oom", json_boolean(oom));
        return cli_print_json(root);
    }
    char actions[CLI_GROUPED];
    printf("%s: %d batch%s, %s actions, all rules kept, %.1f ms a step%s\n", path,
           c->in.plans.count, c->in.plans.count == 1 ? "" : "es",
           cli_grouped(actions_of(c), actions), sp_result_iteration_ms(&c->result),
           oom ? ", OUT OF MEMORY" : "");
    return 0;
}

int cli_plan_check(const char *path, bool json, bool quiet)
{
    checked c = {0};
    sp_error err = {0};
    int exit_status = 0;
    sp_status status = sp_plan_input_read(path, &c.in, &err);
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
    sp_plan_input_fini(&c.in);
    return exit_status;
}
