#include <string.h>
#include <unistd.h>

#include "experiments/cli/traces.h"
#include "experiments/execution/execution.h"
#include "experiments/execution/measurement.h"
#include "experiments/fit/fit.h"
#include "experiments/measure/training_log.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

// Time that the repetitions of --backend share. Each piece runs some four times however long that
// takes, which of one partition in four is five times as long: with half the time to share its
// calibration takes 77 s by the estimate of backends/cuda/README.md, about half of the 150 s that
// `measure` gives a part (CALIBRATION_S of cmd_measure.c). No figure of a GPU stands behind it yet.
#define LIMIT_S 40.0
#define PARTITION_LIMIT_S 20.0
#define QUICK_LIMIT_S 3.0

enum { NOT_GIVEN = -1 };

typedef struct calibrate_args {
    cli_common common;
    int64_t jobs;
    cli_list tables, maps, logs, traces;
    const char *base;     // of the traces
    const char *measured; // by `measure`
    const char *fit, *output, *report, *plot;
    int64_t folds, bootstrap;
    bool no_ablation;
    const char *backend, *precision, *model;
    int64_t device, partitions;
    bool quick;
} calibrate_args;

// ---- tables ----

typedef struct source_list {
    fit_source items[FIT_TABLES];
    int count;
    const char *logs[SP_LOG_FILES]; // of the sources that are scenarios, in their order
    int log_count;
    char *texts[FIT_TABLES + SP_LOG_FILES]; // owned copies of lists with commas
    int text_count;
} source_list;

static void free_sources(source_list *list)
{
    for (int i = 0; i < list->text_count; i++) {
        sp_free(list->texts[i]);
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

static sp_status add_log(source_list *list, const char *path, sp_error *err)
{
    if (path[0] == '\0' || list->log_count == SP_LOG_FILES) {
        return sp_error_set(err, SP_ERR_USAGE, "--log takes 1 to %d files", (int)SP_LOG_FILES);
    }
    list->logs[list->log_count++] = path;
    return SP_OK;
}

typedef sp_status name_adder(source_list *list, const char *name, sp_error *err);

// Adds each of the names between commas. A name that is a file as it stands keeps its commas.
static sp_status add_names(source_list *list, const char *text, name_adder *add, sp_error *err)
{
    if (strchr(text, ',') == NULL || access(text, F_OK) == 0) {
        return add(list, text, err);
    }
    if (list->text_count == (int)(sizeof list->texts / sizeof list->texts[0])) {
        return add(list, "", err);
    }
    char *copy = list->texts[list->text_count++] = sp_strdup(text);
    for (char *name = copy; name != NULL;) {
        char *comma = strchr(name, ',');
        if (comma != NULL) {
            *comma++ = '\0';
        }
        SP_TRY(add(list, name, err));
        name = comma;
    }
    return SP_OK;
}

// A JSON document that is no map of a table.
static sp_status is_scenario(const char *path, bool *scenario, sp_error *err)
{
    json_t *document = NULL;
    *scenario = false;
    if (!cli_ends_in(path, ".json")) {
        return SP_OK;
    }
    sp_status status = sp_json_read_file(path, 0, &document, err);
    *scenario = status == SP_OK && json_object_get(document, "measured") == NULL &&
                json_object_get(document, "columns") == NULL;
    json_decref(document);
    return status;
}

// The sources of one kind, in their order.
typedef struct sources_of_kind {
    fit_source *items[FIT_TABLES];
    int count;
} sources_of_kind;

// Without a log all sources are tables.
static sp_status tell_apart(const calibrate_args *args, source_list *list, sources_of_kind *tables,
                            sources_of_kind *scenarios, sp_error *err)
{
    for (int i = 0; i < list->count; i++) {
        bool scenario = false;
        if (args->logs.count > 0) {
            SP_TRY(is_scenario(list->items[i].csv, &scenario, err));
        }
        sources_of_kind *kind = scenario ? scenarios : tables;
        kind->items[kind->count++] = &list->items[i];
    }
    return SP_OK;
}

static sp_status place_maps(const calibrate_args *args, const sources_of_kind *tables,
                            sp_error *err)
{
    if (args->maps.count > 0 && args->maps.count != tables->count) {
        return sp_error_set(err, SP_ERR_USAGE, "%d maps for %d tables: give one --map for each",
                            args->maps.count, tables->count);
    }
    for (int i = 0; i < args->maps.count; i++) {
        tables->items[i]->map = args->maps.items[i];
    }
    return SP_OK;
}

// The logs of one --log are of one run: that of the only scenario, or each that of the next one.
static sp_status place_logs(const calibrate_args *args, const sources_of_kind *scenarios,
                            source_list *list, sp_error *err)
{
    int count = scenarios->count;
    sp_status status = SP_OK;
    if (args->logs.count > 0 && (count == 0 || (count > 1 && count != args->logs.count))) {
        status = sp_error_set(err, SP_ERR_USAGE,
                              "%d --log for %d scenarios among --from-measurements: give each "
                              "scenario one --log FILE[,FILE...]",
                              args->logs.count, count);
    }
    for (int i = 0; status == SP_OK && i < args->logs.count; i++) {
        fit_source *source = scenarios->items[count > 1 ? i : 0];
        int first = list->log_count;
        status = add_names(list, args->logs.items[i], add_log, err);
        if (source->logs == NULL) {
            source->logs = &list->logs[first];
        }
        source->log_count += list->log_count - first;
    }
    return status;
}

static sp_status list_sources(const calibrate_args *args, const cli_operands *operands,
                              source_list *list, sp_error *err)
{
    for (int i = 0; i < args->tables.count; i++) {
        SP_TRY(add_names(list, args->tables.items[i], add_source, err));
    }
    for (int i = 0; i < operands->count; i++) {
        SP_TRY(add_source(list, operands->items[i], err));
    }
    sources_of_kind tables = {.count = 0};
    sources_of_kind scenarios = {.count = 0};
    SP_TRY(tell_apart(args, list, &tables, &scenarios, err));
    SP_TRY(place_maps(args, &tables, err));
    return place_logs(args, &scenarios, list, err);
}

// ---- output ----

typedef struct fitted {
    const fit_spec *spec;
    const fit_outcome *outcome;
} fitted;

static sp_status write_document(FILE *file, const void *what, sp_error *err SP_UNUSED)
{
    fit_document_write(what, file);
    return SP_OK;
}

static sp_status write_report(FILE *file, const void *what, sp_error *err SP_UNUSED)
{
    const fitted *f = what;
    fit_report_text(file, f->spec, f->outcome, true);
    return SP_OK;
}

static sp_status write_residuals(FILE *file, const void *what, sp_error *err SP_UNUSED)
{
    fit_report_data(file, what);
    return SP_OK;
}

static sp_status write_profile(const calibrate_args *args, const fit_spec *spec,
                               const fit_outcome *outcome, sp_error *err)
{
    json_t *document = NULL;
    sp_status status = fit_profile_document(spec, outcome, &document, err);
    if (status == SP_OK && spec->extends) {
        status = fit_document_extend(spec->profile, args->output, &document, err);
    }
    if (status == SP_OK) {
        status = cli_write_file(args->output, write_document, document, err);
    }
    json_decref(document);
    return status;
}

static int put_out(const calibrate_args *args, const fit_spec *spec, const fit_outcome *outcome)
{
    sp_error err = {0};
    sp_status status = SP_OK;
    if (args->output != NULL) {
        status = write_profile(args, spec, outcome, &err);
    }
    if (status == SP_OK && args->report != NULL) {
        const fitted both = {.spec = spec, .outcome = outcome};
        status = cli_write_file(args->report, write_report, &both, &err);
    }
    if (status != SP_OK) {
        return cli_fail(&err);
    }
    if (!outcome->converged) {
        cli_warn(args->common.quiet, "the fit stopped after %d iterations, not converged",
                 outcome->iterations);
    }
    for (int t = 0; t < outcome->rows.table_count; t++) {
        cli_warn_all(args->common.quiet || args->common.json, outcome->rows.tables[t].path,
                     outcome->warnings[t]);
    }
    int exit_status = 0;
    if (args->common.json) {
        exit_status = cli_print_json(fit_report_json(spec, outcome));
    } else {
        fit_report_text(stdout, spec, outcome, false);
    }
    if (args->plot != NULL &&
        cli_plot("residuals.gp", args->plot, write_residuals, outcome, &err) != SP_OK) {
        return cli_fail(&err);
    }
    return exit_status;
}

// ---- the fit ----

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
    fit_outcome *outcome = sp_calloc(1, sizeof *outcome);
    sp_status status = fit_calibrate(&spec, sources->items, sources->count, &how, outcome, &err);
    int exit_status = 0;
    if (status != SP_OK) {
        exit_status = cli_fail(&err);
    } else {
        exit_status = put_out(args, &spec, outcome);
        fit_outcome_fini(outcome);
    }
    sp_free(outcome);
    fit_spec_fini(&spec);
    return exit_status;
}

// ---- --backend ----

static sp_status read_model(const char *name, sp_model *model, sp_error *err)
{
    bool known = false;
    sp_status status = sp_model_named(name, model, &known, err);
    return status == SP_OK && !known ? sp_model_builtin(name, model, err) : status;
}

// A calibration that is cut off leaves what it has measured. Whether the file can be written says
// the last time.
static void keep_part(void *context, const json_t *so_far)
{
    const calibrate_args *args = context;
    sp_error ignored = {0};
    (void)cli_write_file(args->output, write_document, so_far, &ignored);
}

static sp_status measure(const calibrate_args *args, json_t **profile, int *process, sp_error *err)
{
    int processes = 1;
    sp_registry *registry;
    const sp_backend *backend;
    sp_model model;
    sp_calibration_request request = {.seed = 1,
                                      .limit_s = args->quick            ? QUICK_LIMIT_S
                                                 : args->partitions > 1 ? PARTITION_LIMIT_S
                                                                        : LIMIT_S,
                                      .partitions = (int)args->partitions};
    sp_device_info device;
    sp_status status = SP_OK;
    if (args->model != NULL) {
        status = read_model(args->model, &model, err);
        request.model = &model;
    }
    if (status != SP_OK) {
        return status;
    }
    SP_TRY(sp_registry_new(&registry, err));
    status = sp_registry_find(registry, args->backend, &backend, err);
    if (status == SP_OK) {
        status = cli_find_process(backend, process, &processes, err);
    }
    // The others may be on computers that have no such folder.
    if (status == SP_OK && args->output != NULL && *process == 0) {
        status = sp_output_check(args->output, err);
        request.part = keep_part;
        request.part_context = (void *)(uintptr_t)args;
    }
    if (status == SP_OK) {
        status = sp_backend_device_info(backend, (int)args->device, &device, err);
    }
    if (status == SP_OK) {
        status = cli_choose_precision(args->precision, &device, &request.precision, err);
    }
    if (status == SP_OK) {
        status = sp_backend_calibrate(backend, (int)args->device, &request, profile, err);
    }
    sp_registry_free(registry);
    return status;
}

// No later step can tell that the machine changed its speed while a profile was measured.
static void warn_of_drift(bool quiet, const json_t *profile)
{
    double drift = json_real_value(json_object_get(json_object_get(profile, "reference"), "drift"));
    if (drift > SP_STEADY_SPEED) {
        cli_warn(quiet,
                 "the machine's speed changed by %.0f %% during the calibration (more than %.0f "
                 "%%): its parts do not fit together, repeat it",
                 100.0 * drift, 100.0 * SP_STEADY_SPEED);
    }
}

static int calibrate_backend(const calibrate_args *args)
{
    sp_error err = {0};
    json_t *profile = NULL;
    int process = 0;
    sp_status status = measure(args, &profile, &process, &err);
    if (status == SP_OK) {
        // The measurements must read as a profile before anybody gets them.
        status = fit_document_check(profile, "calibration", &err);
    }
    if (status == SP_OK && args->output != NULL && process == 0) {
        status = cli_write_file(args->output, write_document, profile, &err);
    }
    if (status != SP_OK) {
        json_decref(profile);
        return cli_fail_json(args->common.json, "slimpack/profile/1", json_object(), process, &err);
    }
    if (process == 0) {
        warn_of_drift(args->common.quiet, profile);
    }
    if (args->common.json) {
        return cli_print_json(profile);
    }
    printf("%s: memory %.3g GB/s, layer %.3g us\n", args->output,
           json_real_value(json_object_get(json_object_get(profile, "memory"), "gb_per_s")),
           json_real_value(json_object_get(json_object_get(profile, "host"), "layer_us")));
    json_decref(profile);
    return 0;
}

// Of those that go with --fit, is one given?
static bool says_what_is_fitted(const calibrate_args *args)
{
    return args->tables.count + args->maps.count + args->logs.count > 0 || args->fit != NULL ||
           args->report != NULL || args->plot != NULL || args->folds != NOT_GIVEN ||
           args->bootstrap != NOT_GIVEN || args->no_ablation;
}

static int measure_backend(const calibrate_args *args, const cli_operands *operands)
{
    if (operands->count > 0 || says_what_is_fitted(args)) {
        return cli_usage_error(&cli_cmd_calibrate,
                               "--backend measures operators; it takes no tables, no logs, and "
                               "nothing of --fit");
    }
    if (args->output == NULL && !args->common.json) {
        return cli_usage_error(&cli_cmd_calibrate, "--backend needs -o PROFILE or --json");
    }
    return calibrate_backend(args);
}

// ---- --from-trace ----

// Of those that go with --backend, is one given?
static bool says_what_backend_measures(const calibrate_args *args)
{
    return args->quick || args->precision != NULL || args->model != NULL || args->partitions > 0 ||
           args->device != 0;
}

static int measure_traces(const calibrate_args *args, const cli_operands *operands)
{
    if (args->backend != NULL || args->measured != NULL || says_what_backend_measures(args) ||
        says_what_is_fitted(args)) {
        return cli_usage_error(&cli_cmd_calibrate,
                               "--from-trace takes no tables and no logs, and nothing of --fit, "
                               "--backend or --measured: of the options --profile and -o alone");
    }
    if (args->base == NULL) {
        return cli_usage_error(&cli_cmd_calibrate,
                               "--from-trace needs --profile BASE, of which the profile keeps what "
                               "traces do not show");
    }
    if (args->output == NULL) {
        return cli_usage_error(&cli_cmd_calibrate, "--from-trace needs -o PROFILE");
    }
    return cli_calibrate_traces(&args->traces, operands, args->base, args->output, &args->common);
}

// ---- --measured ----

// Writes the profile to a file of its own name, which is that of the GPU and not of the set.
static sp_status write_measured(const calibrate_args *args, const json_t *measurement,
                                const char *key, const json_t *profile, sp_error *err)
{
    char path[SP_DATA_PATH];
    char part[96];
    const char *name = json_string_value(json_object_get(profile, "name"));
    int length = snprintf(path, sizeof path, "%s/%s.json", args->output, name);
    SP_TRY(fit_document_check(profile, args->measured, err));
    if (length >= (int)sizeof path) {
        return sp_error_set(err, SP_ERR_IO, "%s: the name is too long", args->output);
    }
    SP_TRY(cli_write_file(path, write_document, profile, err));
    printf("%s\n", path);
    snprintf(part, sizeof part, "profile %.64s", key);
    if (!sp_measurement_has(measurement, part, false)) {
        cli_warn(args->common.quiet, "%s is of a quick calibration", path);
    }
    warn_of_drift(args->common.quiet, profile);
    return SP_OK;
}

static int take_profiles(const calibrate_args *args, const cli_operands *operands)
{
    sp_error err = {0};
    json_t *measurement = NULL;
    json_t *profiles = NULL;
    const char *key;
    json_t *profile;
    if (args->output == NULL || operands->count > 0 || args->backend != NULL || args->common.json ||
        says_what_backend_measures(args) || says_what_is_fitted(args)) {
        return cli_usage_error(&cli_cmd_calibrate,
                               "--measured goes with -o FOLDER alone, where its profiles are "
                               "written");
    }
    sp_status status = sp_json_read_file(args->measured, 0, &measurement, &err);
    if (status == SP_OK) {
        status = sp_measurement_profiles(measurement, args->measured, &profiles, &err);
    }
    json_object_foreach (profiles, key, profile) {
        status = status == SP_OK ? write_measured(args, measurement, key, profile, &err) : status;
    }
    if (status == SP_OK && json_object_size(profiles) == 0) {
        status = sp_error_set(&err, SP_ERR_CONTENT, "%s: no calibration in it went well",
                              args->measured);
    }
    json_decref(measurement);
    return status == SP_OK ? 0 : cli_fail(&err);
}

// ---- what was asked for ----

static int run(const void *given, const cli_operands *operands)
{
    const calibrate_args *args = given;
    sp_error err = {0};
    source_list sources = {0};
    if (args->traces.count > 0) {
        return measure_traces(args, operands);
    }
    if (args->base != NULL) {
        return cli_usage_error(&cli_cmd_calibrate,
                               "--profile goes with --from-trace; a fit's SPEC names its own");
    }
    if (args->measured != NULL) {
        return take_profiles(args, operands);
    }
    if (args->backend != NULL) {
        return measure_backend(args, operands);
    }
    if (says_what_backend_measures(args)) {
        return cli_usage_error(&cli_cmd_calibrate,
                               "--quick, --device, --precision, --model and --partitions go with "
                               "--backend");
    }
    if (args->tables.count + operands->count == 0) {
        return cli_usage_error(&cli_cmd_calibrate, "'calibrate' needs --from-measurements TABLE");
    }
    if (args->fit == NULL) {
        return cli_usage_error(&cli_cmd_calibrate, "'calibrate' needs --fit SPEC");
    }
    sp_status status = args->plot != NULL ? cli_plot_check(args->plot, &err) : SP_OK;
    if (status == SP_OK && args->output != NULL) {
        status = sp_output_check(args->output, &err);
    }
    if (status == SP_OK && args->report != NULL) {
        status = sp_output_check(args->report, &err);
    }
    if (status == SP_OK) {
        status = list_sources(args, operands, &sources, &err);
    }
    int exit_status = status == SP_OK ? calibrate(args, &sources) : cli_fail(&err);
    free_sources(&sources);
    return exit_status;
}

// ---- the command ----

static const cli_option options[] = {
    CLI_TEXT_OPTION(
        CLI_FILES, 0, "from-measurements", "TABLE", calibrate_args, tables,
        "table of measured steps (CSV), or several, separated by commas; may be repeated"),
    CLI_TEXT_OPTION(CLI_FILES, 0, "map", "FILE", calibrate_args, maps,
                    "what the columns of a table mean, one for each table in their order (default: "
                    "the .json file beside the table, where there is one)"),
    CLI_TEXT_OPTION(CLI_FILES, 0, "log", "FILE", calibrate_args, logs,
                    "log of a training run (as of 'slimpack validate --log'), whose scenario "
                    "--from-measurements then names; several of one run with commas between; one "
                    "--log for each scenario"),
    CLI_TEXT_OPTION(CLI_FILE, 0, "fit", "SPEC", calibrate_args, fit,
                    "what is fitted: start profile, free constants, tables"),
    CLI_TEXT_OPTION(CLI_FILES, 0, "from-trace", "FILE", calibrate_args, traces,
                    "trace of PyTorch's profiler (JSON, also .gz), or a folder of them; several, "
                    "also as FILE... behind it, are of one run"),
    CLI_TEXT_OPTION(CLI_FILE, 0, "profile", "BASE", calibrate_args, base,
                    "with --from-trace: the profile that keeps what traces do not show"),
    CLI_TEXT_OPTION(CLI_OUTPUT, 'o', "output", "PROFILE", calibrate_args, output,
                    "write the profile"),
    CLI_TEXT_OPTION(CLI_FILE, 0, "measured", "FILE", calibrate_args, measured,
                    "the file of 'slimpack measure': write its profiles to the folder of -o, each "
                    "by its GPU's name"),
    CLI_TEXT_OPTION(CLI_STRING, 0, "backend", "NAME", calibrate_args, backend,
                    "measure the operators of this backend instead: host or cuda"),
    CLI_TEXT_OPTION(
        CLI_STRING, 0, "precision", "P", calibrate_args, precision,
        "with --backend: fp32 or fp64 (host), bf16 (cuda) (default: fp32 where it can)"),
    CLI_TEXT_OPTION(CLI_STRING, 0, "model", "MODEL", calibrate_args, model,
                    "with --backend: whose shapes are measured, a built-in name or a Hugging Face "
                    "config.json (default: a Llama of hidden size 256)"),
    CLI_INT_OPTION("device", "N", calibrate_args, device, 0, CLI_MOST_DEVICES,
                   "with --backend: device of it (default 0)"),
    CLI_INT_OPTION("partitions", "N", calibrate_args, partitions, 0, 16,
                   "with --backend: measure one of N partitions of a GPU beside busy others "
                   "(default: all of it)"),
    CLI_FLAG_OPTION("quick", calibrate_args, quick,
                    "with --backend: a few seconds and small sizes in place of a minute"),
    CLI_TEXT_OPTION(CLI_OUTPUT, 0, "report", "FILE", calibrate_args, report,
                    "write a report (Markdown), with the rows that are not explained"),
    CLI_TEXT_OPTION(
        CLI_KEPT, 0, "plot", "FILE", calibrate_args, plot,
        "draw the residuals with gnuplot (.png, .svg, .pdf), or keep the data for that (.dat)"),
    CLI_INT_OPTION("folds", "N", calibrate_args, folds, 0, FIT_FOLDS,
                   "folds of the cross-validation of every table; 0: none (default: as SPEC says)"),
    CLI_INT_OPTION("bootstrap", "N", calibrate_args, bootstrap, 0, FIT_RESAMPLES,
                   "resamples for the spread of the constants; 0: none (default: as SPEC says)"),
    CLI_FLAG_OPTION("no-ablation", calibrate_args, no_ablation, "leave the ablations of SPEC out"),
    CLI_JOBS_OPTION(calibrate_args),
    CLI_COMMON_OPTIONS(calibrate_args),
    {0},
};

static const char *const examples[] = {
    "slimpack calibrate --from-measurements experiments/published/a100_single_node.csv "
    "--from-measurements experiments/published/a100_multi_node.csv --fit "
    "experiments/published/fit_a100.json -o a100-fitted.json --report a100.md",
    "slimpack calibrate --from-measurements runs.csv --fit fit.json -o mine.json --bootstrap 0",
    "slimpack calibrate --from-measurements job.json --log train.log --fit fit.json -o mine.json",
    "slimpack calibrate --backend host -o host.json",
    "slimpack calibrate --measured h200.measured.json -o mine",
    "slimpack calibrate --from-trace rank0.json.gz rank1.json.gz --profile h100 -o mine.json",
    NULL,
};

const cli_command cli_cmd_calibrate = {
    .name = "calibrate",
    .summary = "fit a profile to measured steps, or measure one",
    CLI_TAKES("[TABLE|TRACE...]", 0, -1),
    .tells_repeated = true,
    .description =
        "Fits constants of a profile so that the simulator reproduces measured training steps. The "
        "tables are CSV files with a row for each measured step; the map of a table says which "
        "setting of a scenario each column is, and what was measured. Tables may also be given as "
        "operands. In place of a table a scenario may stand, beside the log of its run (--log): "
        "its row is the median step of the log, as 'slimpack validate --log' finds it. Tables and "
        "scenarios may stand beside each other: each --map is that of the next table, each --log "
        "that of the next scenario.\n\nSPEC "
        "(slimpack/fit/1) is a JSON object: \"name\" of the new profile, "
        "\"profile\" to start from, \"start\" with values to set on it by dotted path, "
        "\"constants\" with the paths of the free numbers and for each \"unit\", \"least\", "
        "\"most\" and, where something is known beforehand, \"expect\" and \"within\" (its "
        "standard deviation, as a share); \"tables\" with \"weight\", \"folds\" (a number, or "
        "columns whose groups stay together) and \"errors_by\" of each; \"loss_scale\", "
        "\"bootstrap\", \"seed\"; and \"ablations\", each with \"name\", \"set\" (values on the "
        "profile) and \"scenario\" (overrides of every row's scenario). "
        "experiments/published/README.md describes tables, maps and SPEC, profiles/README.md the "
        "constants of a profile.\n\nThe fit is least squares on the logarithm of predicted over "
        "measured, with a soft-L1 loss so that rows that nothing explains bend it little. Beside "
        "the constants it prints their spread, constants that the rows cannot tell apart, the "
        "errors on the rows themselves and on rows that were left out (k-fold), and the errors of "
        "the model without each of its parts. -o writes the profile, with these figures in "
        "it.\n\nWith --backend it measures operators on this machine instead: products, attention, "
        "copies, and whole actions of small steps, on one core; the profile predicts the steps of "
        "`run --backend` on its virtual clock. -o is written after each part, so that a run that "
        "is cut off leaves what it has measured.\n\nWith --from-trace it takes what kernels took "
        "in a "
        "training step that PyTorch's profiler recorded, with record_shapes=True: products of "
        "known shape, causal attention, copies and elementwise kernels, short kernels, and "
        "collectives inside a node whose bytes are recorded. A value is the median of at least "
        "five kernels, and its spread (half the distance of the quartiles, over the median) stands "
        "beside it; what the traces do not show is listed with the reason, and stays that of "
        "--profile. Traces of several ranks tell how long a collective waited for the slowest and "
        "how long it worked. A trace that is cut off is used up to there.",
    .defaults = &(const calibrate_args){.folds = NOT_GIVEN, .bootstrap = NOT_GIVEN},
    CLI_RUNS(run, calibrate_args, options, examples),
};
