// slimpack validate SET --backend --export
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/cli/report.h"
#include "experiments/cli/validate_modes.h"
#include "experiments/execution/elsewhere.h"
#include "sim/base/units.h"

enum { NAME = 30, PATH_BYTES = 1024 };

typedef struct export_run {
    const cli_validate *args;
    sp_scenario_set set;
    json_t *rows; // of --json
    FILE *runs;   // what `slimpack run` is given for each case
    size_t written;
} export_run;

static long long bytes_of(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (long long)info.st_size : 0;
}

static void print_case(const sp_case_outcome *outcome, const char *path)
{
    printf("%-10s %-*s ", outcome->of->group, NAME, outcome->of->name);
    if (sp_case_has_figures(outcome)) {
        printf("%10.2f %8.3f %9.3f %8lld  %s%s\n", outcome->predicted_ms, outcome->predicted_bubble,
               sp_gib_from_bytes(outcome->predicted_peak_bytes), bytes_of(path), path,
               outcome->status == SP_CASE_OOM ? "  out of memory" : "");
    } else {
        printf("%s: %s\n", sp_case_status_names[outcome->status], outcome->reason);
    }
    fflush(stdout);
}

static json_t *case_json(const sp_case_outcome *outcome, const char *path)
{
    bool planned = sp_case_has_figures(outcome);
    return json_pack("{s:s, s:s, s:s, s:s?, s:s?, s:I}", "group", outcome->of->group, "name",
                     outcome->of->name, "status", sp_case_status_names[outcome->status], "reason",
                     planned ? NULL : outcome->reason, "plan", planned ? path : NULL, "bytes",
                     (json_int_t)bytes_of(path));
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

static sp_status export_case(export_run *run, size_t index, sp_error *err)
{
    const cli_validate *args = run->args;
    const sp_scenario_case *of = &run->set.cases[index];
    cli_execute execute = cli_execute_of_case(&args->execute, of);
    cli_executor executor;
    sp_case_outcome outcome;
    char name[SP_CASE_FILE];
    char path[PATH_BYTES];
    execute.elsewhere = true;
    sp_case_file_name(of, index, name);
    snprintf(path, sizeof path, "%s/%s.json", args->export, name);
    sp_status status =
        cli_executor_begin(&execute, &of->scenario, CLI_VALIDATE_STEPS, &executor, err);
    if (status == SP_OK) {
        executor.options.threads = cli_threads(args->jobs);
        status = sp_set_export_case(of, &executor.options, path, &outcome, err);
    }
    if (status == SP_OK) {
        run->written += outcome.status == SP_CASE_OK;
        if (sp_case_has_figures(&outcome)) {
            put_run(run->runs, name, &executor.options);
        }
        if (args->common.json) {
            json_array_append_new(run->rows, case_json(&outcome, path));
        } else {
            print_case(&outcome, path);
        }
    }
    cli_executor_end(&executor);
    return status;
}

static sp_status export_cases(export_run *run, sp_error *err)
{
    const cli_validate *args = run->args;
    if (mkdir(args->export, 0777) != 0 && errno != EEXIST) {
        return sp_error_set(err, SP_ERR_IO, "%s: %s", args->export, strerror(errno));
    }
    if (!args->common.json) {
        printf("%-10s %-*s %10s %8s %9s %8s  %s\n", "group", NAME, "case", "pred. ms", "bubble",
               "peak GiB", "bytes", "plan");
    }
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/runs.txt", args->export);
    run->runs = fopen(path, "w");
    if (run->runs == NULL) {
        return sp_error_set(err, SP_ERR_IO, "%s: %s", path, strerror(errno));
    }
    sp_status status = SP_OK;
    for (size_t i = 0; status == SP_OK && i < run->set.count; i++) {
        status = export_case(run, i, err);
    }
    if (fclose(run->runs) != 0 && status == SP_OK) {
        status = sp_error_set(err, SP_ERR_IO, "%s: %s", path, strerror(errno));
    }
    return status;
}

// A case without a plan, or out of memory, is no success.
static int report(export_run *run)
{
    bool good = run->written == run->set.count;
    if (run->args->common.json) {
        int printed = cli_print_json(
            json_pack("{s:s, s:O}", "schema", "slimpack/export/1", "cases", run->rows));
        if (printed != 0) {
            return printed;
        }
    } else {
        printf("%zu of %zu plans in %s\n", run->written, run->set.count, run->args->export);
    }
    return sp_status_exit(good ? SP_OK : SP_ERR_INFEASIBLE);
}

int cli_validate_export(const cli_validate *args, json_t *document)
{
    sp_error err = {0};
    export_run run = {.args = args, .rows = json_array()};
    sp_status status = sp_scenario_set_from_json(document, args->scenario, args->set.items,
                                                 args->set.count, &run.set, &err);
    if (status == SP_OK) {
        status = export_cases(&run, &err);
    }
    int exit_status = status == SP_OK ? report(&run) : cli_fail(&err);
    sp_scenario_set_fini(&run.set);
    json_decref(run.rows);
    return exit_status;
}
