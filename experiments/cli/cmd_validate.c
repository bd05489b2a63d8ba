#include "experiments/cli/options.h"
#include "experiments/cli/report.h"
#include "experiments/cli/validate_modes.h"
#include "experiments/execution/steady_case.h"

typedef struct validate_args {
    cli_common common;
    cli_list set;
    int64_t jobs;
    bool published, rows;
    const char *table;
    const char *measurements, *map, *profile;
    const char *plot;
    const char *output;
    const char *export, *executed;
    int64_t repeat;
    cli_execute execute;
} validate_args;

static const cli_option options[] = {
    {.kind = CLI_FLAG,
     .name = "published",
     .at = offsetof(validate_args, published),
     .help = "the tables of published measurements that travel with the program"},
    {.kind = CLI_STRING,
     .name = "table",
     .value = "NAME",
     .at = offsetof(validate_args, table),
     .help = "only this one of the published tables"},
    {.kind = CLI_FILE,
     .name = "measurements",
     .value = "TABLE",
     .at = offsetof(validate_args, measurements),
     .help = "a table of your own (CSV)"},
    {.kind = CLI_FILE,
     .name = "map",
     .value = "FILE",
     .at = offsetof(validate_args, map),
     .help = "what the columns of TABLE set (default: TABLE's name ending in .json, where there is "
             "such a file)"},
    {.kind = CLI_FILE,
     .name = "profile",
     .value = "PROFILE",
     .at = offsetof(validate_args, profile),
     .help = "compute with this profile in place of the tables' own"},
    CLI_SET_OPTION(validate_args),
    {.kind = CLI_FLAG,
     .name = "rows",
     .at = offsetof(validate_args, rows),
     .help = "list every case"},
    {.kind = CLI_FILE,
     .name = "plot",
     .value = "FILE",
     .at = offsetof(validate_args, plot),
     .help = "draw computed over measured, or both timelines of --backend, as .png or .svg (needs "
             "gnuplot)"},
    CLI_EXECUTE_OPTIONS(validate_args, "6"),
    {.kind = CLI_INT,
     .name = "repeat",
     .value = "N",
     .at = offsetof(validate_args, repeat),
     .min = 1,
     .max = SP_MOST_REPEAT,
     .help = "runs of each case of a set; of those at the speed of the calibration the one of "
             "median time is shown (default 1)"},
    {.kind = CLI_FILE,
     .name = "export",
     .value = "FOLDER",
     .at = offsetof(validate_args, export),
     .help = "write the plan of each case of a set to FOLDER, to be executed on another machine"},
    {.kind = CLI_FILE,
     .name = "executed",
     .value = "FOLDER",
     .at = offsetof(validate_args, executed),
     .help = "take what another machine executed of each case of a set from FOLDER"},
    {.kind = CLI_FILE,
     .letter = 'o',
     .name = "output",
     .value = "FILE",
     .at = offsetof(validate_args, output),
     .help = "keep the report of --backend in a file (JSON)"},
    CLI_JOBS_OPTION(validate_args),
    CLI_COMMON_OPTIONS(validate_args),
    {0},
};

static const char *const examples[] = {
    "slimpack validate --published",
    "slimpack validate --published --table a100_multi_node --rows",
    "slimpack validate --measurements my_runs.csv --profile a100",
    "slimpack validate experiments/host_small.json --backend host",
    "slimpack validate experiments/validate_host.json --backend fake --set profile=host -o "
    "report.json",
    "slimpack validate experiments/validate_host.json --backend host --set profile=host --export "
    "requests",
    NULL,
};

static int run(const void *given, const cli_operands *operands);

const cli_command cli_cmd_validate = {
    .name = "validate",
    .summary = "compare measured steps with what is computed for them",
    .operands = "SCENARIO",
    .max_operands = 1,
    .description =
        "Simulates every row of tables of measured steps and prints for each table the mean error, "
        "the bias, the worst row, the bound that the table states and, where there is one, the "
        "error that others published for it."
        "\n\n--published takes the tables that travel with the program, --measurements one of your "
        "own. A row of a table is a scenario and what was measured of it: iteration_ms, "
        "tokens_per_s (of all GPUs), peak_memory_allocator_bytes (PyTorch's "
        "max_memory_allocated, largest rank), peak_memory_last_rank_bytes (of the last rank), "
        "peak_memory_first_rank_reserved_bytes (max_memory_reserved of rank 0) or speedup (over a "
        "baseline that the map states). A map says which columns set what; without one the "
        "columns are named by the settings (\"parallel.tp\"). experiments/published/README.md "
        "describes both, and where the published tables come from."
        "\n\nSCENARIO --backend NAME plans the scenario, predicts its steps with the scenario's "
        "profile, executes the same plan and prints predicted beside measured: iteration time, "
        "bubble ratio, peak memory of each rank, and by category what ranks hold between actions. "
        "SCENARIO may be a set (schema slimpack/validation-set/1): {\"base\": {scenario}, "
        "\"groups\": [{\"name\", \"set\": {\"parallel.pp\": 4, ...}, \"cases\": "
        "[{\"name\", \"set\"}, ...]}, ...], \"bounds\": {\"iteration_time_mape\", "
        "\"bubble_ratio_abs\", \"peak_memory_mape\"}}. Every case is then a row, with means "
        "below; a case that the backend cannot execute says why and is no success."
        "\n\n--export FOLDER writes FOLDER/NN-name.json, a plan, for each case of a set, and to "
        "FOLDER/runs.txt the arguments with which 'slimpack run' executes each of them on another "
        "machine. That leaves NN-name.result.json, which --executed "
        "FOLDER reads in place of executing: its plans are predicted with the profile that the "
        "set names now, and compared as above. Groups and cases of a set may state a \"clock\", "
        "which --clock overrides."
        "\n\nMachines change their speed. Where the profile says what the backend's reference work "
        "took at its calibration, the same work is timed around each run of a case of a set, and "
        "the row says how fast the machine was against then. A run that differs by more than 5 % "
        "is made again, up to three times as many runs as --repeat asks for; where no run was at "
        "the profile's speed the nearest is shown and marked with '!'. Times are never scaled."
        "\n\nThe exit status is 1 when a table misses its bound, or a rank needs more memory than "
        "its limit.",
    .examples = examples,
    .options = options,
    .args_bytes = sizeof(validate_args),
    .run = run,
};

// Nothing is executed here: an export has no report, and what was executed states how.
static const char *wrong_elsewhere_usage(const validate_args *args)
{
    const cli_execute *execute = &args->execute;
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
    if (args->executed != NULL &&
        (execute->clock != NULL || execute->precision != NULL || execute->device != 0 ||
         execute->seed != 0 || execute->steps != 0 || execute->options.count > 0)) {
        return "--executed has its own --device, --clock, --precision, --seed, --steps and "
               "--option";
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
    if (args->table != NULL || args->map != NULL || args->profile != NULL || args->rows) {
        return "--table, --map, --profile and --rows are for tables of measured steps";
    }
    return wrong_elsewhere_usage(args);
}

static const char *wrong_usage(const validate_args *args, int operands)
{
    const cli_execute *execute = &args->execute;
    if (execute->backend != NULL) {
        return wrong_backend_usage(args, operands);
    }
    if (args->output != NULL || execute->clock != NULL || execute->precision != NULL ||
        execute->device != 0 || execute->seed != 0 || execute->steps != 0 ||
        execute->options.count > 0 || args->repeat != 0 || args->export != NULL ||
        args->executed != NULL) {
        return "-o, --export, --executed, --repeat, --device, --clock, --precision, --seed, "
               "--steps and --option need "
               "--backend";
    }
    if (operands > 0) {
        return "SCENARIO needs --backend NAME";
    }
    if (args->published == (args->measurements != NULL)) {
        return "'validate' needs either --published or --measurements TABLE, or SCENARIO "
               "--backend NAME";
    }
    if (args->table != NULL && !args->published) {
        return "--table chooses among the tables of --published";
    }
    if (args->map != NULL && args->published) {
        return "--map has a use beside --measurements only";
    }
    return NULL;
}

static int validate_tables(const validate_args *args)
{
    const cli_validate_tables mode = {.table = args->table,
                                      .measurements = args->measurements,
                                      .map = args->map,
                                      .profile = args->profile,
                                      .set = &args->set,
                                      .plot = args->plot,
                                      .threads = cli_threads(args->jobs),
                                      .rows = args->rows,
                                      .json = args->common.json};
    return cli_validate_with_tables(&mode);
}

static int validate_backend(const validate_args *args, const char *scenario)
{
    const cli_validate_backend mode = {.scenario = scenario,
                                       .set = &args->set,
                                       .execute = &args->execute,
                                       .output = args->output,
                                       .plot = args->plot,
                                       .export = args->export,
                                       .executed = args->executed,
                                       .repeat = (int)args->repeat,
                                       .threads = cli_threads(args->jobs),
                                       .json = args->common.json,
                                       .quiet = args->common.quiet};
    return cli_validate_with_backend(&mode);
}

static int run(const void *given, const cli_operands *operands)
{
    const validate_args *args = given;
    const char *wrong = wrong_usage(args, operands->count);
    if (wrong != NULL) {
        return cli_usage_error(&cli_cmd_validate, "%s", wrong);
    }
    return args->execute.backend != NULL ? validate_backend(args, operands->items[0])
                                         : validate_tables(args);
}
