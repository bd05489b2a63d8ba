#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "experiments/calibrate/calibrate.h"
#include "experiments/calibrate/fit_report.h"
#include "experiments/calibrate/fitted_profile.h"
#include "experiments/calibrate/profile_document.h"
#include "experiments/cli/calibrate_modes.h"
#include "experiments/cli/options.h"
#include "experiments/cli/plot.h"
#include "experiments/cli/report.h"
#include "sim/base/alloc.h"

enum { NOT_GIVEN = -1 };

typedef struct calibrate_args {
    cli_common common;
    int64_t jobs;
    cli_list tables, maps;
    const char *fit, *output, *report, *plot;
    int64_t folds, bootstrap;
    bool no_ablation;
    const char *backend, *precision, *model;
    int64_t partitions;
    bool quick;
} calibrate_args;

static const cli_option options[] = {
    {.kind = CLI_LIST,
     .name = "from-measurements",
     .value = "TABLE",
     .at = offsetof(calibrate_args, tables),
     .help = "table of measured steps (CSV), or several, separated by commas; may be repeated"},
    {.kind = CLI_LIST,
     .name = "map",
     .value = "FILE",
     .at = offsetof(calibrate_args, maps),
     .help = "what the columns of a table mean, one for each table in their order (default: the "
             ".json file beside the table, where there is one)"},
    {.kind = CLI_FILE,
     .name = "fit",
     .value = "SPEC",
     .at = offsetof(calibrate_args, fit),
     .help = "what is fitted: start profile, free constants, tables"},
    {.kind = CLI_FILE,
     .letter = 'o',
     .name = "output",
     .value = "PROFILE",
     .at = offsetof(calibrate_args, output),
     .help = "write the profile"},
    {.kind = CLI_STRING,
     .name = "backend",
     .value = "NAME",
     .at = offsetof(calibrate_args, backend),
     .help = "measure the operators of this backend instead: host or cuda"},
    {.kind = CLI_STRING,
     .name = "precision",
     .value = "P",
     .at = offsetof(calibrate_args, precision),
     .help = "with --backend: fp32 or fp64 (host), bf16 (cuda) (default: fp32 where it can)"},
    {.kind = CLI_STRING,
     .name = "model",
     .value = "MODEL",
     .at = offsetof(calibrate_args, model),
     .help = "with --backend: whose shapes are measured, a built-in name or a Hugging Face "
             "config.json (default: a Llama of hidden size 256)"},
    {.kind = CLI_INT,
     .name = "partitions",
     .value = "N",
     .at = offsetof(calibrate_args, partitions),
     .help = "with --backend: measure one of N partitions of a GPU beside busy others (default: "
             "all of it)",
     .min = 0,
     .max = 16},
    {.kind = CLI_FLAG,
     .name = "quick",
     .at = offsetof(calibrate_args, quick),
     .help = "with --backend: a few seconds and small sizes in place of a minute"},
    {.kind = CLI_FILE,
     .name = "report",
     .value = "FILE",
     .at = offsetof(calibrate_args, report),
     .help = "write a report (Markdown), with the rows that are not explained"},
    {.kind = CLI_FILE,
     .name = "plot",
     .value = "FILE",
     .at = offsetof(calibrate_args, plot),
     .help = "draw the residuals with gnuplot (.png or .svg); the data stays in FILE.dat"},
    {.kind = CLI_INT,
     .name = "folds",
     .value = "N",
     .at = offsetof(calibrate_args, folds),
     .help = "folds of the cross-validation of every table; 0: none (default: as SPEC says)",
     .min = 0,
     .max = FIT_FOLDS},
    {.kind = CLI_INT,
     .name = "bootstrap",
     .value = "N",
     .at = offsetof(calibrate_args, bootstrap),
     .help = "resamples for the spread of the constants; 0: none (default: as SPEC says)",
     .min = 0,
     .max = FIT_RESAMPLES},
    {.kind = CLI_FLAG,
     .name = "no-ablation",
     .at = offsetof(calibrate_args, no_ablation),
     .help = "leave the ablations of SPEC out"},
    CLI_JOBS_OPTION(calibrate_args),
    CLI_COMMON_OPTIONS(calibrate_args),
    {0},
};

static const char *const examples[] = {
    "slimpack calibrate --from-measurements experiments/published/a100_single_node.csv "
    "--from-measurements experiments/published/a100_multi_node.csv "
    "--fit experiments/published/fit_a100.json -o a100-fitted.json --report a100.md",
    "slimpack calibrate --from-measurements runs.csv --fit fit.json -o mine.json --bootstrap 0",
    "slimpack calibrate --backend host -o host.json",
    NULL,
};

static int run(int argc, char **argv);

const cli_command cli_cmd_calibrate = {
    .name = "calibrate",
    .summary = "fit a profile to measured steps, or measure one",
    .operands = "[TABLE...]",
    .min_operands = 0,
    .max_operands = -1,
    .description =
        "Fits constants of a profile so that the simulator reproduces measured training steps. The "
        "tables are CSV files with a row for each measured step; the map of a table says which "
        "setting of a scenario each column is, and what was measured. Tables may also be given as "
        "operands."
        "\n\nSPEC (slimpack/fit/1) is a JSON object: \"name\" of the new profile, \"profile\" to "
        "start from, \"start\" with values to set on it by dotted path, \"constants\" with the "
        "paths of the free numbers and for each \"unit\", \"least\", \"most\" and, where something "
        "is known beforehand, \"expect\" and \"within\" (its standard deviation, as a share); "
        "\"tables\" with \"weight\", \"folds\" (a number, or columns whose groups stay together) "
        "and \"errors_by\" of each; \"loss_scale\", \"bootstrap\", "
        "\"seed\"; and \"ablations\", each with \"name\", \"set\" (values on the profile) and "
        "\"scenario\" (overrides of every row's scenario). experiments/published/README.md "
        "describes "
        "tables, maps and SPEC, profiles/README.md the constants of a profile."
        "\n\nThe fit is least squares on the logarithm of predicted over measured, with a soft-L1 "
        "loss so that rows that nothing explains bend it little. Beside the constants it prints "
        "their spread, constants that the rows cannot tell apart, the errors on the rows "
        "themselves and on rows that were left out (k-fold), and the errors of the model without "
        "each of its parts. -o writes the profile, with these figures in it."
        "\n\nWith --backend it measures operators on this machine instead: products, attention, "
        "copies, and whole actions of small steps, on one core; the profile predicts the steps of "
        "`run --backend` on its virtual clock.",
    .examples = examples,
    .options = options,
    .run = run,
};

// ---- tables ----

typedef struct source_list {
    fit_source items[FIT_TABLES];
    int count;
    char *texts[FIT_TABLES]; // owned copies of lists with commas
    int text_count;
} source_list;

static void free_sources(source_list *list)
{
    for (int i = 0; i < list->text_count; i++) {
        sp_i_free(list->texts[i]);
    }
}

static sp_status add_source(source_list *list, const char *csv, sp_error *err)
{
    if (csv[0] == '\0' || list->count == FIT_TABLES) {
        return sp_error_set(err, SP_ERR_USAGE, "--from-measurements takes 1 to %d tables",
                            (int)FIT_TABLES);
    }
    list->items[list->count++] = (fit_source){.csv = csv};
    return SP_OK;
}

// A name that is a file as it stands keeps its commas.
static sp_status add_sources(source_list *list, const char *text, sp_error *err)
{
    if (strchr(text, ',') == NULL || access(text, F_OK) == 0) {
        return add_source(list, text, err);
    }
    char *copy = list->text_count < FIT_TABLES ? sp_i_strdup(text) : NULL;
    if (copy == NULL) {
        return sp_error_no_memory(err, "the tables");
    }
    list->texts[list->text_count++] = copy;
    sp_status status = SP_OK;
    char *next = copy;
    while (status == SP_OK && next != NULL) {
        char *csv = next;
        next = strchr(csv, ',');
        if (next != NULL) {
            *next++ = '\0';
        }
        status = add_source(list, csv, err);
    }
    return status;
}

static sp_status list_sources(const calibrate_args *args, const cli_operands *operands,
                              source_list *list, sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < args->tables.count; i++) {
        status = add_sources(list, args->tables.items[i], err);
    }
    for (int i = 0; status == SP_OK && i < operands->count; i++) {
        status = add_source(list, operands->items[i], err);
    }
    if (status == SP_OK && args->maps.count > 0 && args->maps.count != list->count) {
        status = sp_error_set(err, SP_ERR_USAGE, "%d maps for %d tables: give one --map for each",
                              args->maps.count, list->count);
    }
    for (int i = 0; status == SP_OK && i < args->maps.count; i++) {
        list->items[i].map = args->maps.items[i];
    }
    return status;
}

// ---- output ----

static sp_status write_profile(const calibrate_args *args, const fit_spec *spec,
                               const fit_outcome *outcome, sp_error *err)
{
    json_t *document = NULL;
    sp_status status = fit_profile_document(spec, outcome, &document, err);
    if (status == SP_OK && spec->extends) {
        status = fit_document_extend(spec->profile, &document, err);
    }
    FILE *file = status == SP_OK ? fopen(args->output, "w") : NULL;
    if (status == SP_OK && file == NULL) {
        status = sp_error_set(err, SP_ERR_IO, "%s: %s", args->output, strerror(errno));
    }
    if (status == SP_OK) {
        status = fit_document_write(document, file, args->output, err);
    }
    if (file != NULL && fclose(file) != 0 && status == SP_OK) {
        status = sp_error_set(err, SP_ERR_IO, "%s: %s", args->output, strerror(errno));
    }
    json_decref(document);
    return status;
}

static sp_status write_report(const char *path, const fit_spec *spec, const fit_outcome *outcome,
                              sp_error *err)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return sp_error_set(err, SP_ERR_IO, "%s: %s", path, strerror(errno));
    }
    fit_report_text(file, spec, outcome, true);
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        return sp_error_set(err, SP_ERR_IO, "%s: cannot write", path);
    }
    return SP_OK;
}

static int put_out(const calibrate_args *args, const fit_spec *spec, const fit_outcome *outcome)
{
    sp_error err = {0};
    sp_status status = SP_OK;
    if (args->output != NULL) {
        status = write_profile(args, spec, outcome, &err);
    }
    if (status == SP_OK && args->report != NULL) {
        status = write_report(args->report, spec, outcome, &err);
    }
    if (status != SP_OK) {
        return cli_fail(&err);
    }
    if (!outcome->converged) {
        cli_warn(args->common.quiet, "the fit stopped after %d iterations, not converged",
                 outcome->iterations);
    }
    int exit_status = 0;
    if (args->common.json) {
        exit_status = cli_print_json(fit_report_json(spec, outcome));
    } else {
        fit_report_text(stdout, spec, outcome, false);
    }
    if (args->plot != NULL && cli_plot_residuals(args->plot, outcome, &err) != SP_OK) {
        return cli_fail(&err);
    }
    return exit_status;
}

// ---- the run ----

static int calibrate(const calibrate_args *args, const source_list *sources)
{
    sp_error err = {0};
    fit_spec spec;
    fit_options how = {.threads = cli_threads(args->jobs),
                       .quiet = args->common.quiet,
                       .folds = (int)args->folds,
                       .bootstrap = (int)args->bootstrap,
                       .ablations = !args->no_ablation};
    if (fit_spec_read(args->fit, &spec, &err) != SP_OK) {
        return cli_fail(&err);
    }
    fit_outcome *outcome = sp_i_calloc(1, sizeof *outcome);
    sp_status status = outcome != NULL ? SP_OK : sp_error_no_memory(&err, "a fit");
    if (status == SP_OK) {
        status = fit_calibrate(&spec, sources->items, sources->count, &how, outcome, &err);
    }
    int exit_status = 0;
    if (status != SP_OK) {
        exit_status = cli_fail(&err);
    } else {
        exit_status = put_out(args, &spec, outcome);
        fit_outcome_fini(outcome);
    }
    sp_i_free(outcome);
    fit_spec_fini(&spec);
    return exit_status;
}

static int measure_backend(const calibrate_args *args, const cli_operands *operands)
{
    if (args->tables.count + operands->count > 0 || args->fit != NULL) {
        return cli_usage_error(&cli_cmd_calibrate,
                               "--backend measures operators; it takes no tables and no --fit");
    }
    if (args->output == NULL && !args->common.json) {
        return cli_usage_error(&cli_cmd_calibrate, "--backend needs -o PROFILE or --json");
    }
    const cli_calibrate_backend_args of = {.backend = args->backend,
                                           .precision = args->precision,
                                           .model = args->model,
                                           .partitions = (int)args->partitions,
                                           .output = args->output,
                                           .quick = args->quick,
                                           .json = args->common.json};
    return cli_calibrate_backend(&of);
}

static int check_and_calibrate(const calibrate_args *args, const cli_operands *operands)
{
    sp_error err = {0};
    source_list sources = {0};
    if (args->backend != NULL) {
        return measure_backend(args, operands);
    }
    if (args->quick || args->precision != NULL || args->model != NULL || args->partitions > 0) {
        return cli_usage_error(&cli_cmd_calibrate,
                               "--quick, --precision, --model and --partitions go with --backend");
    }
    if (args->tables.count + operands->count == 0) {
        return cli_usage_error(&cli_cmd_calibrate, "'calibrate' needs --from-measurements TABLE");
    }
    if (args->fit == NULL) {
        return cli_usage_error(&cli_cmd_calibrate, "'calibrate' needs --fit SPEC");
    }
    sp_status status = args->plot != NULL ? cli_plot_check(args->plot, &err) : SP_OK;
    if (status == SP_OK && args->output != NULL) {
        status = cli_check_writable(args->output, &err);
    }
    if (status == SP_OK && args->report != NULL) {
        status = cli_check_writable(args->report, &err);
    }
    if (status == SP_OK) {
        status = list_sources(args, operands, &sources, &err);
    }
    int exit_status = status == SP_OK ? calibrate(args, &sources) : cli_fail(&err);
    free_sources(&sources);
    return exit_status;
}

static int run(int argc, char **argv)
{
    calibrate_args args = {.folds = NOT_GIVEN, .bootstrap = NOT_GIVEN};
    cli_operands operands;
    int exit_status = cli_parse(&cli_cmd_calibrate, argc, argv, &args, &operands);
    if (exit_status != CLI_PROCEED) {
        return exit_status;
    }
    exit_status = check_and_calibrate(&args, &operands);
    cli_list_fini(&args.tables);
    cli_list_fini(&args.maps);
    return exit_status;
}
