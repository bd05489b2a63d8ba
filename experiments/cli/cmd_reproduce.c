#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/cli/report.h"
#include "experiments/cli/reproduce_report.h"
#include "experiments/figures/folder.h"
#include "sim/base/json.h"

typedef struct reproduce_args {
    cli_common common;
    int64_t jobs;
    const char *output, *plot;
    bool all;
} reproduce_args;

static const char *const formats[] = {"png", "svg", NULL};

// ---- the list ----

static sp_status list_one(const figure_folder *folder, const char *name, json_t *list,
                          sp_error *err)
{
    char path[SP_DATA_PATH];
    figure_spec spec;
    sp_status status = figure_folder_file(folder, name, path, err);
    if (status == SP_OK) {
        status = figure_spec_read(path, &spec, err);
    }
    if (status != SP_OK) {
        return status;
    }
    if (list == NULL) {
        printf("%-24s %s\n", name, spec.title);
    } else if (json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", name, "title",
                                                     spec.title, "source", spec.source)) != 0) {
        status = sp_error_no_memory(err, "the names of figures");
    }
    figure_spec_fini(&spec);
    return status;
}

static int list_figures(const figure_folder *folder, bool as_json)
{
    sp_error err = {0};
    json_t *list = as_json ? json_array() : NULL;
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < folder->count; i++) {
        status = list_one(folder, folder->names[i], list, &err);
    }
    if (status != SP_OK) {
        json_decref(list);
        return cli_fail(&err);
    }
    return as_json ? cli_print_json(
                         json_pack("{s:s, s:o}", "schema", "slimpack/figures/1", "figures", list))
                   : 0;
}

// ---- reproducing ----

typedef struct totals {
    json_t *figures; // NULL: printed for people
    int within, outside;
} totals;

static sp_status report(const reproduce_args *args, const figure_reproduction *r, totals *sum,
                        sp_error *err)
{
    sum->within += r->within;
    sum->outside += !r->within;
    if (sum->figures != NULL) {
        if (json_array_append_new(sum->figures, figure_reproduction_json(r)) != 0) {
            return sp_error_no_memory(err, "a figure");
        }
    } else {
        cli_print_reproduction(stdout, r);
        putchar('\n');
        fflush(stdout);
    }
    return args->output != NULL ? cli_write_reproduction(args->output, args->plot, r, err) : SP_OK;
}

static sp_status reproduce_one(const reproduce_args *args, const figure_folder *folder,
                               const char *name, totals *sum, sp_error *err)
{
    char path[SP_DATA_PATH];
    figure_spec spec = {0};
    figure_reproduction reproduction;
    sp_status status = figure_folder_file(folder, name, path, err);
    if (status == SP_OK) {
        status = figure_spec_read(path, &spec, err);
    }
    if (status != SP_OK) {
        return status;
    }
    status =
        figure_reproduce(&spec, cli_threads(args->jobs), args->common.quiet, &reproduction, err);
    if (status == SP_OK) {
        status = report(args, &reproduction, sum, err);
        figure_reproduction_fini(&reproduction);
    }
    figure_spec_fini(&spec);
    return status;
}

static int reproduce(const reproduce_args *args, const figure_folder *folder,
                     const cli_operands *operands)
{
    int count = args->all ? folder->count : operands->count;
    sp_error err = {0};
    totals sum = {.figures = args->common.json ? json_array() : NULL};
    sp_status status = SP_OK;
    if (args->output != NULL && mkdir(args->output, 0777) != 0 && errno != EEXIST) {
        status = sp_error_set(&err, SP_ERR_IO, "%.512s: %s", args->output, strerror(errno));
    }
    for (int i = 0; status == SP_OK && i < count; i++) {
        const char *name = args->all ? folder->names[i] : operands->items[i];
        status = reproduce_one(args, folder, name, &sum, &err);
    }
    if (status != SP_OK) {
        json_decref(sum.figures);
        return cli_fail(&err);
    }
    int exit_status = 0;
    if (args->common.json) {
        exit_status =
            cli_print_json(json_pack("{s:s, s:o, s:b}", "schema", "slimpack/reproduction/1",
                                     "figures", sum.figures, "within", sum.outside == 0));
    } else if (count > 1) {
        printf("%d of %d figures within their bars\n", sum.within, count);
    }
    return cli_answer(exit_status, sum.outside == 0);
}

static int run(const void *given, const cli_operands *operands)
{
    const reproduce_args *args = given;
    sp_error err = {0};
    figure_folder folder;
    if (args->plot != NULL && strcmp(args->plot, "png") != 0 && strcmp(args->plot, "svg") != 0) {
        return cli_usage_error(&cli_cmd_reproduce, "--plot expects png or svg, got '%s'",
                               args->plot);
    }
    if (args->plot != NULL && args->output == NULL) {
        return cli_usage_error(&cli_cmd_reproduce, "--plot needs -o DIR");
    }
    if (args->all && operands->count > 0) {
        return cli_usage_error(&cli_cmd_reproduce, "--all takes no names beside it");
    }
    if (figure_folder_list(&folder, &err) != SP_OK) {
        return cli_fail(&err);
    }
    return args->all || operands->count > 0 ? reproduce(args, &folder, operands)
                                            : list_figures(&folder, args->common.json);
}

// ---- the command ----

static const cli_option options[] = {
    CLI_FLAG_OPTION("all", reproduce_args, all, "every figure that travels with the program"),
    CLI_TEXT_OPTION(CLI_FILE, 'o', "output", "DIR", reproduce_args, output,
                    "write NAME.txt and NAME.json of each figure there"),
    {.kind = CLI_STRING,
     .name = "plot",
     .value = "FORMAT",
     .at = offsetof(reproduce_args, plot),
     .names = formats,
     .help = "with -o: draw each figure with gnuplot, as png or svg (the data stays in "
             "NAME.FORMAT.dat)"},
    CLI_JOBS_OPTION(reproduce_args),
    CLI_COMMON_OPTIONS(reproduce_args),
    {0},
};

static const char *const examples[] = {
    "slimpack reproduce",
    "slimpack reproduce zb_table5 slimpipe_memory",
    "slimpack reproduce --all -o reproduced --plot svg",
    NULL,
};

const cli_command cli_cmd_reproduce = {
    .name = "reproduce",
    .summary = "put published figures and tables beside what is computed for them",
    .operands = "[NAME|FILE.json...]",
    .max_operands = -1,
    .description =
        "Evaluates the scenarios of published figures and tables, and prints what was published "
        "beside what is computed, with the error, a verdict (within or outside the bar of the "
        "point) and every assumption that was made where the publication is silent. Without a "
        "name the figures are listed, each with its title."
        "\n\nA figure is a JSON file: \"base\" is a scenario, and each of \"points\" changes some "
        "settings of it (\"set\"), names a \"key\" of the result, and states the \"published\" "
        "value with its \"bar\" ({\"relative\": 0.05} or {\"absolute\": 0.01}). \"measure\" is "
        "the value itself, or a ratio, difference or reduction against the point's \"baseline\", "
        "settings again, or longest, the largest value of a setting with which the scenario "
        "fits. A setting may have several values; \"take\" says which of the values counts "
        "(mean, max, min). In place of base and points, \"table\" names a table of 'slimpack "
        "validate --published', whose bound is the bar."
        "\n\nThe exit status is 1 when a figure is outside its bar.",
    .examples = examples,
    .options = options,
    .args_bytes = sizeof(reproduce_args),
    .run = run,
};
