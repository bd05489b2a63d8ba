// slimpack validate SCENARIO --backend

#include "experiments/cli/execution_report.h"
#include "experiments/cli/report.h"
#include "experiments/cli/run_report.h"
#include "experiments/cli/validate_modes.h"
#include "experiments/execution/execution.h"
#include "sim/base/json.h"
#include "solver/strategy.h"

// The picture shows the first batch.
static sp_status draw(void *context, const sp_step_view *predicted, const sp_step_view *measured,
                      sp_error *err)
{
    const cli_validate *args = context;
    if (args->plot == NULL || predicted->batch != 0) {
        return SP_OK;
    }
    return cli_plot_comparison(args->plot, predicted->timeline, measured->timeline, err);
}

static sp_status execute(cli_validate *args, const sp_scenario *scenario, cli_executor *executor,
                         sp_execution *execution, sp_error *err)
{
    sp_status status =
        cli_executor_begin(&args->execute, scenario, CLI_VALIDATE_STEPS, executor, err);
    if (executor->process > 0) {
        args->plot = args->output = NULL;
        args->common.quiet = true;
    }
    if (status == SP_OK && args->plot != NULL) {
        status = cli_plot_check(args->plot, err);
    }
    if (status != SP_OK) {
        return status;
    }
    sp_execution_options *options = &executor->options;
    options->compare_memory =
        !scenario->uniform && (executor->capabilities & SP_CAN(MEMORY_POINTS)) != 0;
    options->bounds = true;
    options->threads = cli_threads(args->jobs);
    options->observer = draw;
    options->observer_context = args;
    return sp_execution_run(scenario, options, execution, err);
}

static int report(const cli_validate *args, const sp_scenario *scenario,
                  const sp_execution *execution)
{
    sp_error err = {0};
    if (args->output != NULL &&
        cli_write_json(args->output, sp_execution_validation_json(execution), &err) != SP_OK) {
        return cli_fail(&err);
    }
    if (args->common.json) {
        return cli_print_json(sp_execution_validation_json(execution));
    }
    cli_print_validation(stdout, scenario, execution);
    return 0;
}

static void warn_of_profile(const cli_validate *args, const sp_scenario *scenario,
                            sp_warnings *warnings)
{
    if (!scenario->uniform && sp_profile_level(&scenario->profile) == SP_LEVEL_ASSUMED) {
        sp_warnings_add(warnings,
                        "profile %s is assumed: 'slimpack calibrate --backend %s -o FILE' measures "
                        "one on this machine, --set profile=FILE predicts by it",
                        scenario->profile.name, args->execute.backend);
    }
}

static int validate_scenario(const cli_validate *args, json_t *document)
{
    cli_validate own = *args;
    sp_error err = {0};
    sp_scenario scenario = {0};
    cli_executor executor = {0};
    sp_execution execution = {0};
    int exit_status;
    sp_status status = SP_OK;
    if (args->repeat != 0 || args->export != NULL || args->executed != NULL) {
        status = sp_error_set(&err, SP_ERR_USAGE,
                              "--repeat, --export and --executed are for sets, %s is one scenario",
                              args->scenario);
    } else {
        status = sp_scenario_place(document, args->scenario, &err);
    }
    if (status == SP_OK) {
        status = sp_scenario_from_json(document, args->scenario, args->set.items, args->set.count,
                                       &scenario, &err);
    }
    json_decref(document);
    if (status == SP_OK) {
        status = sp_strategy_resolve(&scenario, false, &err);
    }
    if (status == SP_OK) {
        status = execute(&own, &scenario, &executor, &execution, &err);
    }
    if (status == SP_OK) {
        warn_of_profile(&own, &scenario, &execution.predicted.warnings);
        exit_status = report(&own, &scenario, &execution);
        cli_print_notes(own.common.quiet || own.common.json, &execution.predicted);
        cli_print_notes(own.common.quiet || own.common.json, &execution.measured);
        bool oom = sp_result_is_oom(&execution.predicted) || sp_result_is_oom(&execution.measured);
        exit_status = exit_status == 0 && oom ? sp_status_exit(SP_ERR_INFEASIBLE) : exit_status;
    } else {
        exit_status = cli_fail_json(args->common.json, "slimpack/validation/1",
                                    json_pack("{s:n, s:n, s:n, s:n, s:[]}", "clock", "predicted",
                                              "measured", "error", "ranks"),
                                    executor.process, &err);
    }
    sp_execution_fini(&execution);
    cli_executor_end(&executor);
    sp_scenario_fini(&scenario);
    return exit_status;
}

int cli_validate_with_backend(const cli_validate *args)
{
    sp_error err = {0};
    json_t *document = NULL;
    if (sp_json_read_file(args->scenario, 0, &document, &err) != SP_OK) {
        return cli_fail(&err);
    }
    return sp_is_scenario_set(document) ? cli_validate_set_with_backend(args, document)
                                        : validate_scenario(args, document);
}
