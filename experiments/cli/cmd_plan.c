#include <math.h>

#include "experiments/cli/options.h"
#include "experiments/cli/plan_modes.h"
#include "experiments/cli/report.h"
#include "experiments/cli/run_report.h"
#include "experiments/cli/simulate_export.h"
#include "experiments/stream/plan_stream.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "solver/evaluate/evaluate.h"
#include "solver/strategy.h"

typedef struct plan_args {
    cli_common common;
    cli_list set;
    int64_t jobs, ahead;
    const char *output, *check;
    bool stream;
} plan_args;

static const cli_option options[] = {
    {.kind = CLI_FILE,
     .letter = 'o',
     .name = "output",
     .value = "FILE",
     .at = offsetof(plan_args, output),
     .help = "write the plan of all batches of the scenario's workload"},
    {.kind = CLI_FILE,
     .name = "check",
     .value = "PLAN",
     .at = offsetof(plan_args, check),
     .help = "check a plan, in place of making one"},
    {.kind = CLI_FLAG,
     .name = "stream",
     .at = offsetof(plan_args, stream),
     .help = "plan the batches on standard input, one JSON array of lengths per line, and answer "
             "one plan per line"},
    {.kind = CLI_INT,
     .name = "ahead",
     .value = "K",
     .at = offsetof(plan_args, ahead),
     .min = 1,
     .max = STREAM_MOST_AHEAD,
     .help = "batches of a stream that are read and not yet answered, at most (default 16)"},
    CLI_SET_OPTION(plan_args),
    CLI_JOBS_OPTION(plan_args),
    CLI_COMMON_OPTIONS(plan_args),
    {0},
};

static const char *const examples[] = {
    "slimpack plan experiments/demo.json -o plan.json",
    "slimpack plan --check plan.json",
    "echo '[5321, 812, 40960]' | slimpack plan experiments/demo.json --stream",
    NULL,
};

static int run(int argc, char **argv);

const cli_command cli_cmd_plan = {
    .name = "plan",
    .summary = "write the plan of a step, or one for every batch of a stream",
    .operands = "SCENARIO",
    .min_operands = 0,
    .max_operands = 1,
    .description =
        "Packs the workload of a scenario and schedules it, and writes the plan for a training "
        "job's loader: samples, forward and backward packs, the actions of each pipeline rank, the "
        "predicted time and a lower bound under it."
        "\n\nWith --stream the batches come from standard input: a line holds the lengths of one "
        "batch as a JSON array, and its plan is answered as one line, a plan document of its own. "
        "A sample's id is its position in the array; samples over the context are treated as "
        "workload.over_length says. Samples that a plan lists as delayed are to be sent again, in "
        "a later batch. The answers come in the order of the lines while the "
        "next batches are planned on other threads. A batch for which there is no plan is answered "
        "by a document without batches that holds the reason. A line that is no batch ends the "
        "stream with an error that names it; the lines before it are answered."
        "\n\nWith --check a plan is read and every rule of plans is checked, independently of what "
        "made it: each slice in one forward and one backward pack, the order of slices and "
        "actions, lengths within the context. It is then simulated, which finds ranks that "
        "wait for each other without end and memory that does not suffice."
        "\n\nThe exit status is 1 when a rank needs more memory than its limit, or a batch "
        "of a stream has no plan; the plans are written all the same.",
    .examples = examples,
    .options = options,
    .run = run,
};

// ---- the plan of a scenario's own batches ----

static sp_status make_plans(const plan_args *args, const sp_scenario *scenario, sp_result *result,
                            sp_error *err)
{
    sp_batches batches = {0};
    sp_status status = sp_evaluate_batches(scenario, &batches, err);
    if (status != SP_OK) {
        return status;
    }
    // No batch but the plan itself is shown.
    cli_exports exports = {.batch = -1,
                           .quiet = args->common.quiet,
                           .plan = args->output,
                           .scenario = scenario->resolved,
                           .formed = &batches};
    sp_evaluate_options evaluate = {.threads = cli_threads(args->jobs),
                                    .observer = cli_exports_observe,
                                    .observer_context = &exports};
    status = cli_exports_begin(&exports, scenario->layout.pp, err);
    if (status == SP_OK) {
        status = sp_evaluate(scenario, &batches, &evaluate, result, err);
    }
    sp_status closed = cli_exports_end(&exports, err);
    sp_batches_fini(&batches);
    return status != SP_OK ? status : closed;
}

static double predicted_ms(const sp_batch_result *batch)
{
    return sp_ms_from_ns(batch->iteration_ns);
}

static double bound_ms(const sp_batch_result *batch)
{
    return batch->facts.lower_bound_ns / SP_NS_PER_MS;
}

static json_t *figure(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static int print_json(const plan_args *args, const sp_result *result)
{
    json_t *root = json_object();
    json_t *batches = json_array();
    for (size_t b = 0; b < result->batch_count; b++) {
        const sp_batch_result *batch = &result->batches[b];
        json_t *row = json_object();
        sp_json_put(row, "samples", json_integer(batch->facts.samples));
        sp_json_put(row, "tokens", json_integer(batch->facts.tokens));
        sp_json_put(row, "microbatches", json_integer(batch->facts.microbatches));
        sp_json_put(row, "predicted_ms", figure(predicted_ms(batch)));
        sp_json_put(row, "lower_bound_ms", figure(bound_ms(batch)));
        sp_json_put(row, "solver_ms", figure(batch->facts.solver_ms));
        json_array_append_new(batches, row);
    }
    sp_json_put(root, "schema", json_string("slimpack/plan-summary/1"));
    sp_json_put(root, "plan", json_string(args->output));
    sp_json_put(root, "strategy", json_string(result->strategy));
    sp_json_put(root, "schedule", json_string(result->schedule));
    sp_json_put(root, "lossless", json_boolean(result->lossless));
    sp_json_put(root, "oom", json_boolean(sp_result_is_oom(result)));
    sp_json_put(root, "batches", batches);
    return cli_print_json(root);
}

static int print(const plan_args *args, const sp_result *result)
{
    if (args->common.json) {
        return print_json(args, result);
    }
    printf("%5s %8s %12s %8s %14s %14s\n", "batch", "samples", "tokens", "packs", "predicted ms",
           "lower bound ms");
    for (size_t b = 0; b < result->batch_count; b++) {
        const sp_batch_result *batch = &result->batches[b];
        char tokens[CLI_GROUPED];
        printf("%5zu %8lld %12s %8lld %14.1f %14.1f\n", b, (long long)batch->facts.samples,
               cli_grouped(batch->facts.tokens, tokens), (long long)batch->facts.microbatches,
               predicted_ms(batch), bound_ms(batch));
    }
    printf("plan in %s%s\n", args->output, sp_result_is_oom(result) ? ", OUT OF MEMORY" : "");
    return 0;
}

static int write_plan(const plan_args *args, const sp_scenario *scenario)
{
    sp_error err = {0};
    sp_result result = {0};
    int exit_status = 0;
    if (make_plans(args, scenario, &result, &err) == SP_OK) {
        exit_status = print(args, &result);
        cli_print_notes(args->common.quiet || args->common.json, &result);
        if (exit_status == 0 && sp_result_is_oom(&result)) {
            exit_status = sp_status_exit(SP_ERR_INFEASIBLE);
        }
    } else {
        exit_status = cli_fail(&err);
    }
    sp_result_fini(&result);
    return exit_status;
}

// ---- the command ----

// Options that have no use in what was asked for.
static int check_usage(const plan_args *args, const cli_operands *operands)
{
    int modes = (args->output != NULL) + (args->check != NULL) + args->stream;
    if (modes != 1) {
        return cli_usage_error(&cli_cmd_plan, modes == 0
                                                  ? "'plan' needs -o FILE, --stream or --check PLAN"
                                                  : "-o, --stream and --check exclude each other");
    }
    if (args->check != NULL && operands->count > 0) {
        return cli_usage_error(&cli_cmd_plan, "--check has no use for the argument '%s'",
                               operands->items[0]);
    }
    if (args->check != NULL && args->set.count > 0) {
        return cli_usage_error(&cli_cmd_plan, "--check has no use for --set");
    }
    if (args->check == NULL && operands->count == 0) {
        return cli_usage_error(&cli_cmd_plan, "'plan' needs SCENARIO");
    }
    if (!args->stream && args->ahead > 0) {
        return cli_usage_error(&cli_cmd_plan, "--ahead needs --stream");
    }
    return CLI_PROCEED;
}

static int plan_scenario(const plan_args *args, const char *path)
{
    sp_error err = {0};
    sp_scenario scenario = {0};
    int exit_status = 0;
    sp_status status = sp_scenario_read(path, args->set.items, args->set.count, &scenario, &err);
    if (status == SP_OK) {
        status = sp_strategy_resolve(&scenario, false, &err);
    }
    if (status != SP_OK) {
        exit_status = cli_fail(&err);
    } else if (args->stream) {
        exit_status = cli_plan_stream(&scenario, args->jobs, args->ahead, args->common.quiet);
    } else {
        exit_status = write_plan(args, &scenario);
    }
    sp_scenario_fini(&scenario);
    return exit_status;
}

static int run(int argc, char **argv)
{
    plan_args args = {0};
    cli_operands operands;
    int exit_status = cli_parse(&cli_cmd_plan, argc, argv, &args, &operands);
    if (exit_status != CLI_PROCEED) {
        return exit_status;
    }
    exit_status = check_usage(&args, &operands);
    if (exit_status == CLI_PROCEED) {
        exit_status = args.check != NULL
                          ? cli_plan_check(args.check, args.common.json, args.common.quiet)
                          : plan_scenario(&args, operands.items[0]);
    }
    cli_list_fini(&args.set);
    return exit_status;
}
