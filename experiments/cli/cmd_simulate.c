#include <string.h>

#include "experiments/cli/report.h"
#include "experiments/cli/run_report.h"
#include "experiments/cli/simulate_export.h"
#include "sim/plan/plan_json.h"
#include "solver/strategy.h"

typedef struct simulate_args {
    cli_common common;
    cli_list set;
    cli_exports exports;
    bool explain, verify;
    int64_t jobs;
} simulate_args;

// A scenario, or a plan with the scenario it was made for.
typedef struct input {
    json_t *root;
    sp_scenario scenario;
    bool is_plan;
    sp_plan_file plans;
    sp_batches batches;
} input;

// A plan has been packed and scheduled: only what it is run on can still be changed.
static sp_status check_plan_overrides(const cli_list *set, sp_error *err)
{
    static const char *const fixed[] = {"schedule", "strategy", "workload", "parallel"};
    for (int i = 0; i < set->count; i++) {
        size_t length = strcspn(set->items[i], ".=");
        for (size_t f = 0; f < sizeof fixed / sizeof fixed[0]; f++) {
            if (strlen(fixed[f]) == length && strncmp(fixed[f], set->items[i], length) == 0) {
                return sp_error_set(
                    err, SP_ERR_USAGE,
                    "--set %s: the plan fixes %s; change the scenario and plan anew", set->items[i],
                    fixed[f]);
            }
        }
    }
    return SP_OK;
}

static sp_status read_input(const char *path, const simulate_args *args, input *in, sp_error *err)
{
    sp_status status = sp_json_read_file(path, 0, &in->root, err);
    if (status != SP_OK) {
        return status;
    }
    in->is_plan = sp_plan_json_is_plan(in->root);
    json_t *scenario = in->root;
    if (in->is_plan) {
        scenario = json_object_get(in->root, "scenario");
        if (scenario == NULL) {
            return sp_error_in(err, SP_ERR_CONTENT, path, "", "key 'scenario' is missing");
        }
        status = check_plan_overrides(&args->set, err);
        if (status != SP_OK) {
            return status;
        }
    }
    status = in->is_plan ? sp_scenario_place_paths(scenario, path, err)
                         : sp_scenario_place(scenario, path, err);
    if (status != SP_OK) {
        return status;
    }
    status =
        sp_scenario_from_json(scenario, path, args->set.items, args->set.count, &in->scenario, err);
    if (status != SP_OK) {
        return status;
    }
    if (in->is_plan) {
        return sp_plan_json_read(in->root, path, &in->scenario.layout, &in->plans, err);
    }
    status = sp_strategy_resolve(&in->scenario, false, err);
    return status == SP_OK ? cli_form_batches(args->common.quiet, &in->scenario, &in->batches, err)
                           : status;
}

static void input_fini(input *in)
{
    sp_batches_fini(&in->batches);
    sp_plan_file_fini(&in->plans);
    sp_scenario_fini(&in->scenario);
    json_decref(in->root);
}

static sp_status simulate(const simulate_args *args, input *in, FILE *text, sp_result *result,
                          sp_error *err)
{
    const sp_batches *formed = in->is_plan ? &in->plans.formed : &in->batches;
    cli_exports exports = args->exports;
    exports.text = text;
    exports.scenario = in->scenario.resolved;
    exports.planner_memory = in->scenario.memory_model != SP_MEMORY_TENSORS;
    exports.formed = formed;
    exports.result = result;
    sp_warnings shown = {.count = 0};
    exports.warnings = &shown;
    if (!in->scenario.uniform) {
        exports.network = sp_scenario_network(&in->scenario);
    }
    sp_evaluate_options evaluate = {
        .engine = {.memory_points = cli_exports_need_memory(&exports), .verify = args->verify},
        .allocator_peak = true,
        .threads = cli_threads(args->jobs),
        .formed = formed,
        .curtailed = in->plans.curtailed,
        .settings = args->set.count == 0 ? json_string_value(in->plans.settings) : NULL,
        .observer = cli_exports_observe,
        .observer_context = &exports};
    int batches = in->is_plan ? in->plans.count : in->scenario.uniform ? 1 : in->batches.count;
    if (exports.planner_memory && (exports.trace != NULL || exports.plot != NULL)) {
        sp_warnings_add(&shown, "memory.model \"slimpipe-planner\" knows one figure alone: trace "
                                "and plot show no memory");
    }
    if (exports.batch >= batches) {
        return sp_error_set(err, SP_ERR_USAGE, "--batch %lld: the last of %d is %d",
                            (long long)exports.batch, batches, batches - 1);
    }
    sp_status status = cli_exports_begin(&exports, in->scenario.layout.pp, err);
    if (status == SP_OK) {
        status = in->is_plan ? sp_evaluate_plans(&in->scenario, in->plans.plans, in->plans.count,
                                                 &evaluate, result, err)
                             : sp_evaluate(&in->scenario, &in->batches, &evaluate, result, err);
    }
    sp_status closed = cli_exports_end(&exports, err);
    cli_add_warnings(&result->warnings, &shown);
    return status != SP_OK ? status : closed;
}

static int print(const simulate_args *args, const input *in, const sp_result *result)
{
    if (args->common.json) {
        json_t *object = sp_result_json(result, true);
        if (args->explain) {
            sp_json_put(object, "scenario", json_incref(in->scenario.resolved));
            sp_json_put(object, "derived", sp_scenario_derived(&in->scenario));
        }
        return cli_print_json(object);
    }
    cli_print_result(stdout, &in->scenario, result);
    if (args->verify) {
        puts("verified against an independent longest path");
    }
    return 0;
}

static int run(const void *given, const cli_operands *operands)
{
    const simulate_args *args = given;
    int exit_status = 0;
    input in = {0};
    sp_result result = {0};
    sp_error err = {0};
    sp_status status = read_input(operands->items[0], args, &in, &err);
    if (status == SP_OK && args->explain && !args->common.json) {
        cli_print_json(json_incref(in.scenario.resolved));
        cli_print_json(sp_scenario_derived(&in.scenario));
        putchar('\n');
    }
    if (status == SP_OK) {
        // With --json standard output belongs to the result alone.
        status = simulate(args, &in, args->common.json ? stderr : stdout, &result, &err);
    }
    if (status == SP_OK) {
        exit_status = print(args, &in, &result);
        cli_print_idle_gpus(args->common.quiet || args->common.json, &in.scenario);
        cli_print_notes(args->common.quiet || args->common.json, &result);
        exit_status = cli_answer(exit_status, !sp_result_is_oom(&result));
    } else {
        exit_status =
            cli_fail_json(args->common.json, "slimpack/result/1", sp_result_json_empty(), 0, &err);
    }
    sp_result_fini(&result);
    input_fini(&in);
    return exit_status;
}

// ---- the command ----

static const cli_option options[] = {
    CLI_SET_OPTION(simulate_args),
    CLI_STEP_OPTIONS(simulate_args),
    CLI_TEXT_OPTION(CLI_OUTPUT, 0, "plan", "FILE", simulate_args, exports.plan,
                    "write the plan of all batches"),
    CLI_TEXT_OPTION(CLI_OUTPUT, 0, "memory-snapshot", "FILE", simulate_args, exports.snapshot,
                    "write the memory of the fullest rank for PyTorch's memory viewer"),
    CLI_TEXT_OPTION(CLI_OUTPUT, 0, "graphml", "FILE", simulate_args, exports.graphml,
                    "write the dependency graph, with durations and slack"),
    CLI_TEXT_OPTION(CLI_OUTPUT, 0, "topology", "FILE", simulate_args, exports.topology,
                    "draw the cluster as SVG, with the bytes of the step on its links, but tensor "
                    "parallelism's"),
    CLI_FLAG_OPTION("critical-path", simulate_args, exports.critical_path,
                    "print the actions that decide the makespan"),
    CLI_BATCH_OPTION(simulate_args, "trace, timeline, plot and graph"),
    CLI_FLAG_OPTION("explain", simulate_args, explain,
                    "print all settings as resolved, and what follows from them"),
    CLI_FLAG_OPTION("verify", simulate_args, verify,
                    "check the result against an independent longest path"),
    CLI_JOBS_OPTION(simulate_args),
    CLI_COMMON_OPTIONS(simulate_args),
    {0},
};

static const char *const examples[] = {
    "slimpack simulate experiments/demo.json --timeline",
    "slimpack simulate experiments/demo.json --set parallel.pp=4 --set nodes=8 --json",
    "slimpack simulate experiments/demo.json --plan plan.json && slimpack simulate plan.json",
    NULL,
};

const cli_command cli_cmd_simulate = {
    .name = "simulate",
    .summary = "predict time, bubbles and memory of a training step",
    CLI_TAKES("SCENARIO|PLAN", 1, 1),
    .description =
        "Packs the workload of a scenario, schedules it and simulates one training step per batch, "
        "or simulates the steps of a plan. Prints iteration time with the error of the profile on "
        "logged steps like this one (or why that is not known), bubble ratios, tokens/s/GPU, "
        "TFLOP/s/GPU and MFU (with all pairs of attention, as Megatron-LM counted before January "
        "2026, and with the causal pairs alone, as it counts since), and the memory of each "
        "pipeline rank. The margin is what the "
        "limit leaves of what PyTorch's allocator would reserve, whose blocks are counted, or of "
        "the peak where they cannot be; a step fits tightly where less than 3 % of the limit (of "
        "the peak: a tenth) is left. With which probability it runs, by logged steps that filled "
        "as much of their memory, is told where that is not above 0.95."
        "\n\nIn a trace a flow connects the actions of the critical path, and an action that "
        "waited for another rank tells for what (waited_for)."
        "\n\nThe exit status is 1 when a rank needs more memory than its limit; the result is "
        "printed all the same, with a warning that says which sample needs how much.",
    CLI_RUNS(run, simulate_args, options, examples),
};
