// `validate` compares tables of measured steps, or steps that it executes, with what is computed.
#include "experiments/cli/traces.h"
#include "experiments/cli/validate.h"
#include "experiments/execution/execution.h"
#include "experiments/execution/measurement.h"
#include "experiments/measure/training_log.h"
#include "sim/base/alloc.h"
#include "sim/base/data_folder.h"
#include "sim/base/json.h"
#include "solver/strategy.h"

// ---- one scenario ----

// The picture shows the first batch.
static sp_status draw(void *context, const sp_step_view *predicted, const sp_step_view *measured,
                      sp_error *err)
{
    const validate_args *args = context;
    if (args->plot == NULL || predicted->batch != 0) {
        return SP_OK;
    }
    return cli_plot_comparison(args->plot, predicted->timeline, measured->timeline, err);
}

static sp_status execute(validate_args *args, const sp_scenario *scenario, cli_executor *executor,
                         sp_execution *execution, sp_error *err)
{
    sp_status status = cli_executor_begin(&args->execute, scenario, VALIDATE_STEPS, executor, err);
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

static int report(const validate_args *args, const sp_scenario *scenario,
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
    if (cli_prints_tables_alone()) {
        cli_print_figures(NULL, sp_execution_validation_json(execution));
    }
    cli_print_validation(stdout, scenario, execution);
    return 0;
}

static void warn_of_profile(const validate_args *args, const sp_scenario *scenario,
                            sp_warnings *warnings)
{
    if (!scenario->uniform && sp_profile_level(&scenario->profile) == SP_LEVEL_ASSUMED) {
        sp_warnings_add(warnings,
                        "profile %s is assumed: 'slimpack calibrate --backend %s -o FILE' measures "
                        "one on this machine, --set profile=FILE predicts by it",
                        scenario->profile.name, args->execute.backend);
    }
}

static int validate_scenario(const validate_args *args, json_t *document)
{
    validate_args own = *args;
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
        sp_result both = execution.predicted; // borrows; measured steps have no profile's tables
        sp_execution_warnings(&execution, &both.warnings);
        cli_print_notes(own.common.quiet || own.common.json, NULL, &both);
        bool oom = sp_result_is_oom(&execution.predicted) || sp_result_is_oom(&execution.measured);
        exit_status = exit_status == 0 && oom ? sp_status_exit(SP_ERR_INFEASIBLE) : exit_status;
    } else {
        exit_status = cli_fail_json(
            args->common.json, "slimpack/validation/1",
            sp_json_object(SP_JSON("clock", json_null()), SP_JSON("predicted", json_null()),
                           SP_JSON("measured", json_null()), SP_JSON("error", json_null()),
                           SP_JSON("ranks", json_array())),
            executor.process, &err);
    }
    sp_execution_fini(&execution);
    cli_executor_end(&executor);
    sp_scenario_fini(&scenario);
    return exit_status;
}

static int validate_document(const validate_args *args)
{
    sp_error err = {0};
    json_t *document = NULL;
    if (cli_read_root(args->scenario, &document, &err) != SP_OK) {
        return cli_fail(&err);
    }
    return sp_is_scenario_set(document) ? cli_validate_set(args, document)
                                        : validate_scenario(args, document);
}

// What `measure` has written stands in a folder of its own, as --executed takes it, with the
// profiles that it was measured with before those of the program.
static int validate_measurement(const validate_args *args)
{
    char folder[SP_DATA_PATH];
    validate_args own = *args;
    sp_error err = {0};
    json_t *measurement = NULL;
    sp_warnings warnings = {0};
    sp_status status = sp_json_read_file(args->executed, 0, &measurement, &err);
    status = status == SP_OK ? sp_work_folder_make_temporary(folder, sizeof folder, &err) : status;
    bool made = status == SP_OK;
    status = status == SP_OK
                 ? sp_measurement_unpack(measurement, args->executed, folder, &warnings, &err)
                 : status;
    status = status == SP_OK ? sp_work_folder_use(folder, &err) : status;
    json_decref(measurement);
    own.executed = folder;
    cli_print_warnings(args->common.quiet, &warnings);
    int exit_status = status == SP_OK ? validate_document(&own) : cli_fail(&err);
    if (made) {
        sp_work_folder_remove(folder);
    }
    return exit_status;
}

static int validate_with_backend(const validate_args *args)
{
    bool is_measurement = args->executed != NULL && sp_is_file(args->executed);
    return is_measurement ? validate_measurement(args) : validate_document(args);
}

// The options that say how.
#define HOW "--device, --clock, --precision, --seed, --steps, --lr, --warmup and --option"

static bool says_how(const cli_execute *execute)
{
    return execute->clock != NULL || execute->precision != NULL || execute->device != 0 ||
           execute->seed != 0 || execute->steps != 0 || execute->options.count > 0 ||
           execute->learning_rate != NULL || execute->warmup != 0;
}

// Nothing is executed here: an export has no report, and what was executed states how.
static const char *wrong_remote_usage(const validate_args *args)
{
    if (args->export == NULL && args->executed == NULL) {
        return NULL;
    }
    if (args->export != NULL && args->executed != NULL) {
        return "--export and --executed exclude each other";
    }
    if (args->repeat != 0 || args->plot != NULL) {
        return "--repeat and --plot have no use with --export and --executed";
    }
    if (args->export != NULL && args->output != NULL) {
        return "-o keeps a report, --export has none";
    }
    if (args->executed != NULL && says_how(&args->execute)) {
        return "--executed has its own " HOW;
    }
    return NULL;
}

// NULL: the options fit together.
static const char *wrong_backend_usage(const validate_args *args, int operands)
{
    if (operands == 0) {
        return "--backend needs SCENARIO";
    }
    if (args->published || args->measurements != NULL) {
        return "--published, --measurements and --backend exclude each other";
    }
    if (args->table != NULL || args->map != NULL || args->profile != NULL || args->rows ||
        args->bound_percent != 0) {
        return "--table, --map, --profile, --bound and --rows are for tables of measured steps";
    }
    return wrong_remote_usage(args);
}

static const char *wrong_run_usage(const validate_args *args, int operands)
{
    if (operands == 0) {
        return "--log and --trace need SCENARIO, of whose run they are";
    }
    if (args->published || args->measurements != NULL || args->execute.backend != NULL ||
        (args->logs.count > 0 && args->traces.count > 0)) {
        return "--published, --measurements, --backend, --log and --trace exclude each other";
    }
    if (args->table != NULL || args->map != NULL || args->rows || args->plot != NULL) {
        return "--table, --map, --rows and --plot have no use with --log and --trace";
    }
    if (args->traces.count > 0 && args->skip != VALIDATE_NO_SKIP) {
        return "--skip goes with --log";
    }
    if (says_how(&args->execute) || args->repeat != 0 || args->export != NULL ||
        args->executed != NULL) {
        return "--export, --executed, --repeat, " HOW " need --backend";
    }
    return NULL;
}

static const char *wrong_usage(const validate_args *args, int operands)
{
    if (args->logs.count + args->traces.count > 0) {
        return wrong_run_usage(args, operands);
    }
    if (args->skip != VALIDATE_NO_SKIP) {
        return "--skip goes with --log";
    }
    if (operands > 1) {
        return "behind SCENARIO only '--log FILE...' or '--trace FILE...' may stand";
    }
    if (args->execute.backend != NULL) {
        return wrong_backend_usage(args, operands);
    }
    if (args->output != NULL || says_how(&args->execute) || args->repeat != 0 ||
        args->export != NULL || args->executed != NULL) {
        return "-o, --export, --executed, --repeat, " HOW " need --backend";
    }
    if (operands > 0) {
        return "SCENARIO needs --backend NAME, --log FILE or --trace FILE";
    }
    if (args->published == (args->measurements != NULL)) {
        return "'validate' needs either --published or --measurements TABLE, or SCENARIO with "
               "--backend NAME, --log FILE or --trace FILE";
    }
    if (args->table != NULL && !args->published) {
        return "--table chooses among the tables of --published";
    }
    if (args->map != NULL && args->published) {
        return "--map has a use beside --measurements only";
    }
    return NULL;
}

// `--log a.log b.log c.log`, as a shell writes names out: those behind the scenario are logs, and
// so with --trace.
static int validate_run(const validate_args *given, const cli_operands *operands)
{
    validate_args args = *given;
    bool logs = args.logs.count > 0;
    cli_list *files = logs ? &args.logs : &args.traces;
    files->items =
        cli_trace_paths(logs ? &given->logs : &given->traces, operands, 1, &files->count);
    int exit_status = logs ? cli_validate_log(&args) : cli_validate_traces(&args);
    sp_free(files->items);
    return exit_status;
}

static int run(const void *given, const cli_operands *operands)
{
    validate_args args = *(const validate_args *)given;
    const char *wrong = wrong_usage(&args, operands->count);
    if (wrong != NULL) {
        return cli_usage_error(&cli_cmd_validate, "%s", wrong);
    }
    args.scenario = operands->count > 0 ? operands->items[0] : NULL;
    if (args.logs.count + args.traces.count > 0) {
        return validate_run(&args, operands);
    }
    return args.execute.backend != NULL ? validate_with_backend(&args) : cli_validate_tables(&args);
}

// ---- the command ----

static const cli_option options[] = {
    CLI_FLAG_OPTION("published", validate_args, published,
                    "the tables of published measurements that travel with the program"),
    CLI_TEXT_OPTION(CLI_STRING, 0, "table", "NAME", validate_args, table,
                    "only this one of the published tables"),
    CLI_TEXT_OPTION(CLI_FILE, 0, "measurements", "TABLE", validate_args, measurements,
                    "a table of your own (CSV)"),
    CLI_TEXT_OPTION(CLI_FILE, 0, "map", "FILE", validate_args, map,
                    "what the columns of TABLE set (default: TABLE's name ending in .json, where "
                    "there is such a file)"),
    CLI_TEXT_OPTION(CLI_FILE, 0, "profile", "PROFILE", validate_args, profile,
                    "compute with this profile in place of the tables' own"),
    CLI_INT_OPTION("bound", "PERCENT", validate_args, bound_percent, 1, 1000,
                   "the mean error that a table may have, of bubble ratios the largest, in "
                   "percent, in place of the bound that its map states"),
    CLI_SET_OPTION(validate_args),
    CLI_FLAG_OPTION("rows", validate_args, rows, "list every case"),
    CLI_TEXT_OPTION(CLI_KEPT, 0, "plot", "FILE", validate_args, plot,
                    "draw computed over measured, or both timelines of --backend, with gnuplot "
                    "(.png, .svg, .pdf), or keep the data for that (.dat)"),
    CLI_EXECUTE_OPTIONS(validate_args, "6"),
    CLI_INT_OPTION("repeat", "N", validate_args, repeat, 1, SP_MOST_REPEAT,
                   "runs of each case of a set; of those at the speed of the calibration the one "
                   "of median time is shown (default 1)"),
    CLI_TEXT_OPTION(
        CLI_FOLDER, 0, "export", "FOLDER", validate_args, export,
        "write the plan of each case of a set to FOLDER, to be executed on another machine"),
    CLI_TEXT_OPTION(CLI_FOLDER, 0, "executed", "FOLDER", validate_args, executed,
                    "take what another machine executed of each case of a set from FOLDER, or from "
                    "the file of 'slimpack measure'"),
    CLI_TEXT_OPTION(CLI_OUTPUT, 'o', "output", "FILE", validate_args, output,
                    "keep the report of --backend, --log or --trace in a file (JSON)"),
    CLI_TEXT_OPTION(CLI_FILES, 0, "log", "FILE", validate_args, logs,
                    "log of a training run of SCENARIO; several, also as FILE... behind it, are of "
                    "its ranks or restarts"),
    CLI_TEXT_OPTION(
        CLI_FILES, 0, "trace", "FILE", validate_args, traces,
        "trace of a run of SCENARIO by PyTorch's profiler (JSON, also .gz), or a folder "
        "of them; several, also as FILE... behind it, are of its ranks"),
    CLI_INT_OPTION("skip", "N", validate_args, skip, 0, SP_LOG_SKIP,
                   "logged steps to leave out at the beginning of each log and restart (default: a "
                   "tenth, 1 to 10)"),
    CLI_JOBS_OPTION(validate_args),
    CLI_TABLE_OPTIONS(validate_args),
    CLI_COMMON_OPTIONS(validate_args),
    {0},
};

static const char *const examples[] = {
    "slimpack validate --published",
    "slimpack validate --published --table a100_multi_node --rows",
    "slimpack validate --measurements my_runs.csv --profile a100 --bound 10",
    "slimpack validate job.json --log train.log --bound 10",
    "slimpack validate job.json --log rank0.log rank8.log --json",
    "slimpack validate job.json --trace traces/",
    "slimpack validate experiments/host_small.json --backend host",
    "slimpack validate experiments/validate_host.json --backend host --set profile=host -o "
    "report.json",
    "slimpack validate experiments/validate_host.json --backend host --set profile=host --export "
    "requests",
    NULL,
};

const cli_command cli_cmd_validate = {
    .name = "validate",
    .summary = "compare measured steps with what is computed for them",
    CLI_TAKES("[SCENARIO [--log FILE...|--trace FILE...]]", 0, -1),
    .description =
        "Simulates every row of tables of measured steps and prints for each table the mean error, "
        "the bias, the worst row, the bound that the table or --bound states and, where there is "
        "one, the error that others published for it.\n\n--published takes the tables that travel "
        "with the program, --measurements one of your own. A row of a table is a scenario and what "
        "was measured of it: iteration_ms, tokens_per_s (of all GPUs), peak_memory_allocator_bytes "
        "(PyTorch's max_memory_allocated, largest rank), peak_memory_last_rank_bytes (of the last "
        "rank), peak_memory_first_rank_reserved_bytes (max_memory_reserved of rank 0) or speedup "
        "(over a baseline that the map states). A map says which columns set what; without one the "
        "columns are named by the settings (\"parallel.tp\", \"tp\", or what others call them). "
        "experiments/published/README.md describes both, and where the published tables come "
        "from.\n\nSCENARIO --log FILE reads the log of a run of this scenario in place of a table, "
        "as "
        "Megatron-LM, Megatron-Bridge, nanotron, torchtitan, NeMo, DeepSpeed and Hugging Face's "
        "Trainer print it (\"-\" is standard input), and prints step time, throughput and peak "
        "memory as predicted and as logged. Of the logged steps the first are left out (--skip), "
        "and those that take longer than the median by a fifth and by five standard deviations: "
        "checkpoints and evaluations; the median of the others is compared. Lines of unknown form "
        "are skipped.\n\nSCENARIO --trace FILE reads what PyTorch's profiler recorded of a run of "
        "this scenario, a trace for each rank, and prints by rank the time of products, attention, "
        "kernels bound by memory and the optimizer, communication that nothing hides and idle "
        "time, as predicted and as traced, and what is traced alone: copies, communication by "
        "kind, and with several ranks how long collectives wait for other ranks.\n\nSCENARIO "
        "--backend NAME plans the scenario, predicts its steps with the "
        "scenario's profile, executes the same plan and prints predicted beside measured: "
        "iteration time, bubble ratio, peak memory of each rank, and by category what ranks hold "
        "between actions. SCENARIO may be a set (schema slimpack/validation-set/1): {\"base\": "
        "{scenario}, \"groups\": [{\"name\", \"set\": {\"parallel.pp\": 4, ...}, \"cases\": "
        "[{\"name\", \"set\"}, ...]}, ...], \"bounds\": {\"iteration_time_mape\", "
        "\"bubble_ratio_abs\", \"peak_memory_mape\"}}. Every case is then a row, with means below; "
        "a case that the backend cannot execute says why and is no success.\n\n--export FOLDER "
        "writes FOLDER/NN-name.json, a plan, for each case of a set, and to FOLDER/runs.txt the "
        "arguments with which 'slimpack run' executes each of them on another machine. That leaves "
        "NN-name.result.json, which --executed FOLDER reads in place of executing: its plans are "
        "predicted with the profile that the set names now, and compared as above. Groups and "
        "cases of a set may state a \"clock\", which --clock overrides.\n\nMachines change their "
        "speed. Where the profile says what the backend's reference work took at its calibration, "
        "the same work is timed around each run of a case of a set, and the row says how fast the "
        "machine was against then. A run that differs by more than 5 % is made again, up to three "
        "times as many runs as --repeat asks for; where no run was at the profile's speed the "
        "nearest is shown and marked with '!'. Times are never scaled.\n\nThe exit status is 1 "
        "when a table or a log misses its bound, or a rank needs more memory than its limit.",
    .defaults = &(const validate_args){.skip = VALIDATE_NO_SKIP},
    CLI_RUNS(run, validate_args, options, examples),
};
