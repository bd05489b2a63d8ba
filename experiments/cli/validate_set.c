// `validate` of a set of scenarios, which a backend executes.
#include <errno.h>
#include <math.h>
#include <sys/stat.h>

#include "experiments/cli/validate.h"
#include "experiments/execution/execution.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"

enum { PATH_BYTES = 1024 };

// All cases of a set share this.
typedef struct set_run {
    const validate_args *args;
    int repeat;
    sp_scenario_set set;
    sp_case_outcome *outcomes; // owned
    cli_executor executor;     // of the last case
    json_t *rows;              // of --export with --json
    cli_table table;           // for people
    FILE *runs;                // what `slimpack run` is given for each exported case
    size_t written;
} set_run;

// ---- the table ----

enum { MEMORY_TEXT = 200, CASES_SHOWN = 24, EXPORTS_SHOWN = 30 };

static const char *memory_text(const sp_case_outcome *outcome, char text[MEMORY_TEXT])
{
    bool exact = outcome->memory_compared && sp_case_memory_is_exact(outcome);
    snprintf(text, MEMORY_TEXT, "%s", !outcome->memory_compared ? "-" : exact ? "exact" : "other:");
    for (int c = 0; outcome->memory_compared && !exact && c < SP_MEM_CATEGORIES; c++) {
        if ((outcome->memory_differs >> c & 1u) != 0 && c != SP_MEM_WORKSPACE) {
            sp_append(text, MEMORY_TEXT, " %s", sp_memory_category_names[c]);
        }
    }
    return text;
}

// Over that of the calibration; '!' where it differs.
static const char *speed_of(const sp_case_outcome *outcome, char text[CLI_PERCENT])
{
    if (isfinite(outcome->speed)) {
        snprintf(text, CLI_PERCENT, "%.2f%s", outcome->speed, outcome->steady ? " " : "!");
    } else {
        snprintf(text, CLI_PERCENT, "- ");
    }
    return text;
}

static void print_speeds(const sp_set_summary *summary)
{
    if (summary->speeds == 0) {
        return;
    }
    printf("speed of the machine over that at calibration, %.2f to %.2f", summary->least_speed,
           summary->most_speed);
    size_t other = summary->speeds - summary->steady;
    if (other > 0) {
        printf(": %zu of %zu cases (!) ran more than %.0f %% beside it, their times say little",
               other, summary->speeds, 100.0 * SP_STEADY_SPEED);
    }
    putchar('\n');
}

static const char case_columns[] =
    "-10~2 group|-30 case|10 pred. ms|11 executed ms|8 error|7~4 bubble|7~5 exec.|8~3 delta|7 "
    "peak|6~1 speed|0~6 memory held";

static void print_case(cli_table *table, const sp_case_outcome *outcome)
{
    char speed[CLI_PERCENT];
    char memory[MEMORY_TEXT];
    cli_row_begin(table);
    cli_cell(table, "%s", outcome->of->group);
    cli_cell(table, "%s", outcome->of->name);
    if (sp_case_has_figures(outcome)) {
        cli_number_cell(table, "%.2f", outcome->predicted_ms);
        cli_number_cell(table, "%.2f", outcome->measured_ms);
        cli_number_cell(table, "%+.1f %%", 100.0 * outcome->error.iteration_time);
        cli_number_cell(table, "%.3f", outcome->predicted_bubble);
        cli_number_cell(table, "%.3f", outcome->measured_bubble);
        cli_number_cell(table, "%+.4f", outcome->error.bubble_ratio);
        cli_number_cell(table, "%.1f %%", 100.0 * outcome->error.peak_memory_mape);
        cli_cell(table, "%s", speed_of(outcome, speed));
        cli_cell(table, "%s%s", memory_text(outcome, memory),
                 outcome->status == SP_CASE_OOM ? "  out of memory" : "");
    } else {
        char text[SP_ERROR_TEXT + 32];
        snprintf(text, sizeof text, "%s: %s", sp_case_status_names[outcome->status],
                 outcome->reason);
        cli_row_text(table, text);
    }
    cli_row_end(table);
    fflush(stdout);
}

static void print_mean(const char *what, double figure, double bound)
{
    char text[CLI_PERCENT];
    char bound_text[CLI_PERCENT];
    printf("\n%s %s", what, cli_percent(figure, "%.1f %%", text));
    if (bound >= 0.0) {
        printf(" (at most %s%s)", cli_percent(bound, "%.1f %%", bound_text),
               figure <= bound ? "" : ": MISSED");
    }
}

static void print_summary(const sp_set_summary *summary, const sp_scenario_set_bounds *bounds,
                          size_t count)
{
    char bias[CLI_PERCENT];
    printf("\n%zu of %zu cases executed", summary->compared, count);
    for (int s = SP_CASE_OOM; s < SP_CASE_STATUSES; s++) {
        if (summary->of_status[s] > 0) {
            printf(", %zu %s", summary->of_status[s], sp_case_status_names[s]);
        }
    }
    print_mean("iteration time, mean absolute error", summary->iteration_time_mape,
               bounds->iteration_time_mape);
    printf(", bias %s", cli_percent(summary->iteration_time_bias, "%+.1f %%", bias));
    if (isnan(summary->largest_bubble_error)) {
        printf("\nbubble ratio, largest error -");
    } else {
        printf("\nbubble ratio, largest error %.4f", summary->largest_bubble_error);
    }
    if (bounds->bubble_ratio_abs >= 0.0) {
        printf(" (at most %.4f%s)", bounds->bubble_ratio_abs,
               summary->largest_bubble_error <= bounds->bubble_ratio_abs ? "" : ": MISSED");
    }
    print_mean("peak memory, mean absolute error over ranks", summary->peak_memory_mape,
               bounds->peak_memory_mape);
    printf("\nmemory held between actions: as predicted in every category in %zu of %zu cases\n",
           summary->memory_exact, summary->memory_compared);
    print_speeds(summary);
}

// ---- the run ----

// How a case of a set is executed: as on the command line, by the clock that the case states where
// the command line states none.
static cli_execute execute_of_case(const cli_execute *execute, const sp_scenario_case *entry)
{
    cli_execute own = *execute;
    own.clock = own.clock != NULL ? own.clock : entry->clock;
    return own;
}

static sp_status begin_case(set_run *run, const cli_execute *execute, const sp_scenario_case *entry,
                            sp_error *err)
{
    cli_executor_end(&run->executor);
    sp_status status =
        cli_executor_begin(execute, &entry->scenario, VALIDATE_STEPS, &run->executor, err);
    sp_execution_options *options = &run->executor.options;
    options->compare_memory =
        !entry->scenario.uniform && (run->executor.capabilities & SP_CAN(MEMORY_POINTS)) != 0;
    options->threads = cli_threads(run->args->jobs);
    return status;
}

static sp_status run_case(set_run *run, size_t index, sp_error *err)
{
    const sp_scenario_case *entry = &run->set.cases[index];
    const cli_execute execute = execute_of_case(&run->args->execute, entry);
    SP_TRY(begin_case(run, &execute, entry, err));
    // Repeats go by the clock, which processes do not share.
    if (run->executor.processes > 1) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "sets are executed by one process, this run has %d: validate one "
                            "scenario, or export the set",
                            run->executor.processes);
    }
    return sp_set_run_steady_case(entry, &run->executor.options, run->repeat, &run->outcomes[index],
                                  err);
}

// --executed: the case's result in place of a run. That there is none is the case's outcome.
static sp_status recall_case(set_run *run, size_t index, sp_error *err)
{
    const sp_scenario_case *entry = &run->set.cases[index];
    sp_case_outcome *outcome = &run->outcomes[index];
    sp_execution_options *options = &run->executor.options;
    // The result says what executed it; this stands for cases that have none.
    cli_execute execute = execute_of_case(&run->args->execute, entry);
    execute.remote = true;
    execute.precision = sp_precision_names[run->executor.options.precision];
    char name[SP_CASE_FILE];
    char path[PATH_BYTES];
    sp_result_file executed;
    sp_error missing = {0};
    sp_case_file_name(entry, index, name);
    snprintf(path, sizeof path, "%s/%s.result.json", run->args->executed, name);
    SP_TRY(begin_case(run, &execute, entry, err));
    sp_status status = sp_set_read_executed(entry, options->backend, path, &executed, &missing);
    if (status == SP_ERR_IO) {
        *outcome = (sp_case_outcome){
            .of = entry, .status = SP_CASE_FAILED, .clock = options->clock, .speed = (double)NAN};
        snprintf(outcome->reason, sizeof outcome->reason, "%s", missing.message[0]);
        return SP_OK;
    }
    if (status != SP_OK) {
        *err = missing;
        return status;
    }
    const sp_run_request *settings = &executed.run;
    options->executed = &executed;
    options->clock = settings->clock;
    options->precision = settings->precision;
    options->seed = settings->seed;
    options->steps = settings->steps;
    options->compare_memory = settings->memory_points;
    status = sp_set_run_case(entry, options, outcome, err);
    options->executed = NULL;
    sp_result_file_fini(&executed);
    return status;
}

static sp_status run_cases(set_run *run, sp_error *err)
{
    sp_status status = SP_OK;
    run->outcomes = sp_calloc(run->set.count, sizeof *run->outcomes);
    for (size_t i = 0; status == SP_OK && i < run->set.count; i++) {
        status = run->args->executed != NULL ? recall_case(run, i, err) : run_case(run, i, err);
        if (status == SP_OK && !run->args->common.json) {
            if (i == 0) {
                cli_table_begin(&run->table, case_columns, NULL, CASES_SHOWN);
            }
            print_case(&run->table, &run->outcomes[i]);
        }
    }
    return status;
}

static json_t *report_json(const set_run *run)
{
    return sp_set_validation_json(run->outcomes, run->set.count, &run->executor.options,
                                  run->repeat, &run->set.bounds);
}

// A case that was not executed is no success, and neither is one that is outside its bounds.
static int verdict(const sp_set_summary *summary, size_t count)
{
    if (summary->of_status[SP_CASE_FAILED] > 0) {
        return sp_status_exit(SP_ERR_INTERNAL);
    }
    bool good = summary->of_status[SP_CASE_OK] == count && summary->within_bounds;
    return sp_status_exit(good ? SP_OK : SP_ERR_INFEASIBLE);
}

static int report_set(set_run *run)
{
    const validate_args *args = run->args;
    sp_error err = {0};
    sp_set_summary summary;
    if (args->output != NULL && cli_write_json(args->output, report_json(run), &err) != SP_OK) {
        return cli_fail(&err);
    }
    sp_set_summarize(run->outcomes, run->set.count, &run->set.bounds, &summary);
    if (args->common.json) {
        int printed = cli_print_json(report_json(run));
        return printed != 0 ? printed : verdict(&summary, run->set.count);
    }
    cli_table_end(&run->table);
    print_summary(&summary, &run->set.bounds, run->set.count);
    return verdict(&summary, run->set.count);
}

// ---- --export ----

static long long bytes_of(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (long long)info.st_size : 0;
}

static const char export_columns[] =
    "-10~1 group|-30 case|10 pred. ms|8~2 bubble|9 peak GiB|8~3 bytes|0~20 plan";

static void print_exported(cli_table *table, const sp_case_outcome *outcome, const char *path)
{
    cli_row_begin(table);
    cli_cell(table, "%s", outcome->of->group);
    cli_cell(table, "%s", outcome->of->name);
    if (sp_case_has_figures(outcome)) {
        cli_number_cell(table, "%.2f", outcome->predicted_ms);
        cli_number_cell(table, "%.3f", outcome->predicted_bubble);
        cli_number_cell(table, "%.3f", sp_gib_from_bytes(outcome->predicted_peak_bytes));
        cli_cell(table, "%lld", bytes_of(path));
        cli_cell(table, "%s%s", path, outcome->status == SP_CASE_OOM ? "  out of memory" : "");
    } else {
        char text[SP_ERROR_TEXT + 32];
        snprintf(text, sizeof text, "%s: %s", sp_case_status_names[outcome->status],
                 outcome->reason);
        cli_row_text(table, text);
    }
    cli_row_end(table);
    fflush(stdout);
}

static json_t *exported_json(const sp_case_outcome *outcome, const char *path)
{
    bool planned = sp_case_has_figures(outcome);
    return sp_json_object(SP_JSON("group", outcome->of->group), SP_JSON("name", outcome->of->name),
                          SP_JSON("status", sp_case_status_names[outcome->status]),
                          SP_JSON("reason", sp_json_text_or_null(planned ? NULL : outcome->reason)),
                          SP_JSON("plan", sp_json_text_or_null(planned ? path : NULL)),
                          SP_JSON("bytes", bytes_of(path)));
}

// A line of arguments: files are named as from the folder.
static void put_run(FILE *file, const char *name, const sp_execution_options *options)
{
    fprintf(file, "run %s.json --backend %s --device %d --clock %s --precision %s --seed %llu",
            name, sp_backend_name(options->backend), options->device,
            sp_clock_names[options->clock], sp_precision_names[options->precision],
            (unsigned long long)options->seed);
    fprintf(file, " --steps %d", options->steps);
    for (size_t o = 0; o < options->option_count; o++) {
        fprintf(file, " --option %s=%s", options->options[o].key, options->options[o].value);
    }
    fprintf(file, " --record %s.result.json\n", name);
}

static sp_status export_case(set_run *run, size_t index, sp_error *err)
{
    const validate_args *args = run->args;
    const sp_scenario_case *entry = &run->set.cases[index];
    cli_execute execute = execute_of_case(&args->execute, entry);
    cli_executor executor;
    sp_case_outcome outcome;
    char name[SP_CASE_FILE];
    char path[PATH_BYTES];
    execute.remote = true;
    sp_case_file_name(entry, index, name);
    snprintf(path, sizeof path, "%s/%s.json", args->export, name);
    sp_status status =
        cli_executor_begin(&execute, &entry->scenario, VALIDATE_STEPS, &executor, err);
    if (status == SP_OK) {
        executor.options.threads = cli_threads(args->jobs);
        status = sp_set_export_case(entry, &executor.options, path, &outcome, err);
    }
    if (status == SP_OK) {
        run->written += outcome.status == SP_CASE_OK;
        if (sp_case_has_figures(&outcome)) {
            put_run(run->runs, name, &executor.options);
        }
        if (args->common.json) {
            json_array_append_new(run->rows, exported_json(&outcome, path));
        } else {
            print_exported(&run->table, &outcome, path);
        }
    }
    cli_executor_end(&executor);
    return status;
}

static sp_status export_cases(set_run *run, sp_error *err)
{
    const validate_args *args = run->args;
    if (mkdir(args->export, 0777) != 0 && errno != EEXIST) {
        return sp_error_system(err, args->export, errno);
    }
    if (!args->common.json) {
        cli_table_begin(&run->table, export_columns, NULL, EXPORTS_SHOWN);
    }
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/runs.txt", args->export);
    sp_output runs;
    sp_status status = sp_output_open(&runs, path, err);
    run->runs = runs.file;
    for (size_t i = 0; status == SP_OK && i < run->set.count; i++) {
        status = export_case(run, i, err);
    }
    return sp_output_close(&runs, status, err);
}

// A case without a plan, or out of memory, is no success.
static int report_export(set_run *run)
{
    if (run->args->common.json) {
        int printed = cli_print_json(sp_json_object(SP_JSON("schema", "slimpack/export/1"),
                                                    SP_JSON("cases", json_incref(run->rows))));
        if (printed != 0) {
            return printed;
        }
    } else {
        cli_table_end(&run->table);
        printf("%zu of %zu plans in %s\n", run->written, run->set.count, run->args->export);
    }
    return cli_answer(0, run->written == run->set.count);
}

int cli_validate_set(const validate_args *args, json_t *document)
{
    sp_error err = {0};
    set_run run = {.args = args, .repeat = args->repeat > 0 ? (int)args->repeat : 1};
    sp_status status = SP_OK;
    if (args->plot != NULL) {
        json_decref(document);
        status = sp_error_set(&err, SP_ERR_USAGE, "--plot draws one scenario, %s is a set of them",
                              args->scenario);
    } else {
        status = sp_scenario_set_from_json(document, args->scenario, args->set.items,
                                           args->set.count, &run.set, &err);
    }
    if (status == SP_OK) {
        run.rows = json_array();
        status = args->export != NULL ? export_cases(&run, &err) : run_cases(&run, &err);
    }
    int exit_status = status != SP_OK        ? cli_fail(&err)
                      : args->export != NULL ? report_export(&run)
                                             : report_set(&run);
    json_decref(run.rows);
    sp_free(run.outcomes);
    cli_executor_end(&run.executor);
    sp_scenario_set_fini(&run.set);
    return exit_status;
}
