#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/cli/cli.h"
#include "experiments/figures/figure.h"
#include "experiments/measure/published.h"
#include "sim/base/json.h"
#include "sim/base/units.h"

// ---- published figures beside computed ones, for people and for gnuplot ----

// "12 of 14 within their bars, 3 of them fitted to what is published"
enum { VERDICT = 160 };

enum {
    MOST_ROWS = 60,
    WORST_ROWS = 10,
    FILE_BYTES = 900,
    ROWS_OF_ONE = 16, // that people see
    ROWS_OF_FEW = 4,
    FIGURES_LISTED = 34,
    FEW = 2, // figures with rows
    PAPER = sizeof "arXiv 2504.14519",
    MANY = 30, // figures of which those within their bars are counted alone
};

// Before the label of the number by which a publication is known.
#define HEADLINE "headline: "

// ---- the table ----

static void value_cell(cli_table *table, double value)
{
    cli_number_cell(table, fabs(value) < 1.0 ? "%.4g" : "%.6g", value);
}

static void error_cell(cli_table *table, double error, bool relative, bool with_sign)
{
    if (relative) {
        cli_number_cell(table, with_sign ? "%+.2f %%" : "%.2f %%", 100.0 * error);
    } else {
        cli_number_cell(table, with_sign ? "%+.4g" : "%.4g", error);
    }
}

static const char *error_text(double error, bool relative, char text[CLI_PERCENT])
{
    if (relative) {
        return cli_percent(error, "%.2f %%", text);
    }
    snprintf(text, CLI_PERCENT, isfinite(error) ? "%.4g" : "-", error);
    return text;
}

static void print_why(FILE *out, const figure_outcome *o)
{
    if (o->why != NULL) {
        fputs("    why: ", out);
        cli_print_wrapped(out, o->why, 9, 9);
    }
}

static void print_row(cli_table *table, const figure_outcome *o)
{
    static const char *const claims[] = {[FIGURE_AT_LEAST] = ">= ", [FIGURE_AT_MOST] = "<= "};
    if (!cli_row_begin(table)) {
        return;
    }
    cli_cell(table, "  %s%s", o->headline ? HEADLINE : "", o->label);
    if (o->claim == FIGURE_EQUAL) {
        value_cell(table, o->published);
    } else {
        cli_cell(table, "%s%.*g", claims[o->claim], fabs(o->published) < 1.0 ? 4 : 6, o->published);
    }
    value_cell(table, o->computed);
    error_cell(table, o->error, o->relative, true);
    if (o->has_bar) {
        error_cell(table, o->bar, o->relative, false);
        cli_cell(table, "%s%s", o->within ? "within" : "outside", o->fitted ? ", fitted" : "");
    }
    if (table->out == stdout && cli_is_csv()) {
        cli_text_cell(table, o->relative ? "relative" : "absolute");
        cli_text_cell(table, o->why != NULL ? o->why : "");
    }
    cli_row_end(table);
    if (o->note[0] != '\0') {
        fputs("    ", table->out);
        cli_print_wrapped(table->out, o->note, 4, 4);
    }
    print_why(table->out, o);
}

// The row with the largest error after `last` of size `above`, in the order of the table where
// errors are equal.
static size_t next_worst(const figure_reproduction *r, size_t last, double above)
{
    size_t worst = r->count;
    for (size_t i = 0; i < r->count; i++) {
        double size = fabs(r->outcomes[i].error);
        bool after = size < above || (size == above && last < r->count && i > last);
        if (after && (worst == r->count || size > fabs(r->outcomes[worst].error))) {
            worst = i;
        }
    }
    return worst;
}

// `most`: rows that people see; a file has all that is worth a row.
static void print_rows(FILE *out, const figure_reproduction *r, int most)
{
    size_t widest = strlen("point");
    for (size_t i = 0; i < r->count; i++) {
        const figure_outcome *o = &r->outcomes[i];
        size_t length = strlen(o->label) + (o->headline ? strlen(HEADLINE) : 0);
        widest = length > widest ? length : widest;
    }
    // Points are all shown, as many as somebody has written down.
    bool all = !r->of_table || r->count <= MOST_ROWS;
    char columns[128];
    cli_table table;
    const bool csv = out == stdout && cli_is_csv();
    const char *verdicts = csv && r->of_table    ? "|10 error_is|0 why"
                           : csv                 ? "|10 bar|15 verdict|10 error_is|0 why"
                           : r->of_table         ? ""
                           : r->fitted_count > 0 ? "|10 bar|0~15 " // "outside, fitted"
                                                 : "|10 bar|0~7 ";
    snprintf(columns, sizeof columns, "-%d   point|12 published|12 computed|12 error%s",
             (int)widest + 2, verdicts);
    cli_table_begin_in(&table, out, columns, r->spec->name, most);
    if (all) {
        for (size_t i = 0; i < r->count; i++) {
            print_row(&table, &r->outcomes[i]);
        }
        cli_table_end(&table);
        return;
    }
    size_t row = r->count;
    double above = (double)HUGE_VAL;
    for (int i = 0; i < WORST_ROWS; i++) {
        row = next_worst(r, row, above);
        above = fabs(r->outcomes[row].error);
        print_row(&table, &r->outcomes[row]);
    }
    cli_table_end(&table);
    fprintf(out, "  (the %d rows with the largest errors, of %zu)\n", (int)WORST_ROWS, r->count);
}

static const char *verdict_text(const figure_reproduction *r, char text[VERDICT])
{
    char error[CLI_PERCENT];
    char bar[CLI_PERCENT];
    char fitted[VERDICT / 2] = "";
    if (r->of_table) {
        snprintf(text, VERDICT, "%s: %s error of %zu row%s %s, bar %s%s",
                 r->within ? "within" : "outside", r->relative ? "mean" : "largest", r->count,
                 sp_plural((int64_t)r->count), error_text(r->table_error, r->relative, error),
                 error_text(r->table_bar, r->relative, bar),
                 r->spec->fitted ? ", a profile fitted to them" : "");
        return text;
    }
    if (r->fitted_count > 0) {
        snprintf(fitted, sizeof fitted, ", %zu of them fitted to what is published",
                 r->fitted_count);
    }
    snprintf(text, VERDICT, "%s: %zu of %zu points within their bars%s",
             r->within ? "within" : "outside", r->within_count, r->count, fitted);
    return text;
}

static void print_reproduction(FILE *out, const figure_reproduction *r, int most)
{
    char verdict[VERDICT];
    fprintf(out, "%s: %s\n  ", r->spec->name, r->spec->title);
    cli_print_wrapped(out, r->spec->source, 2, 2);
    if (r->of_table) {
        fprintf(out, "  %s of the table %s\n", r->unit, r->spec->table);
    }
    fputc('\n', out);
    print_rows(out, r, most);
    fputc('\n', out);
    for (size_t i = 0; i < json_array_size(r->spec->assumptions); i++) {
        fputs("  assumed: ", out);
        cli_print_wrapped(out, json_string_value(json_array_get(r->spec->assumptions, i)), 11, 11);
    }
    fprintf(out, "  %s\n", verdict_text(r, verdict));
}

// ---- files ----

static sp_status write_text(FILE *file, const void *what, sp_error *err SP_UNUSED)
{
    print_reproduction(file, what, 0);
    return SP_OK;
}

static void put_point(FILE *file, const figure_outcome *o)
{
    static const char *const claims[] = {
        [FIGURE_EQUAL] = "=", [FIGURE_AT_LEAST] = ">=", [FIGURE_AT_MOST] = "<="};
    char error[CLI_PERCENT];
    cli_plot_text(file, o->headline ? HEADLINE : "", o->label);
    cli_plot_number(file, o->published);
    cli_plot_number(file, o->computed);
    fprintf(file, " \"%s\" %s %d", claims[o->claim],
            !o->has_bar ? "-"
            : o->within ? "within"
                        : "outside",
            o->fitted);
    cli_plot_number(file, o->limit);
    // How far from a bound that holds says nothing.
    bool tells = o->claim == FIGURE_EQUAL || !o->within;
    if (!tells || !isfinite(o->error)) {
        error[0] = '\0';
    } else if (o->relative) {
        cli_percent(o->error, "%+.1f %%", error);
    } else {
        snprintf(error, sizeof error, "%+.3g", o->error);
    }
    fprintf(file, " \"%s\" ", error);
    cli_plot_text(file, "", o->panel);
    fputc('\n', file);
}

// A block for each panel, in the order in which the points come to them.
static sp_status write_data(FILE *file, const void *what, sp_error *err SP_UNUSED)
{
    const figure_reproduction *r = what;
    char verdict[VERDICT];
    fputs("# name, title, verdict\n", file);
    cli_plot_text(file, "", r->spec->name);
    fputc(' ', file);
    cli_plot_text(file, "", r->spec->title);
    fputc(' ', file);
    cli_plot_text(file, "", verdict_text(r, verdict));
    fputc('\n', file);
    for (size_t first = 0; first < r->count; first++) {
        const char *panel = r->outcomes[first].panel;
        bool begun = false;
        for (size_t i = 0; i < first && !begun; i++) {
            begun = strcmp(r->outcomes[i].panel, panel) == 0;
        }
        if (begun) {
            continue;
        }
        fputs("\n\n# label, published, computed, claim, verdict, fitted, memory limit, error, "
              "panel\n",
              file);
        for (size_t i = first; i < r->count; i++) {
            if (strcmp(r->outcomes[i].panel, panel) == 0) {
                put_point(file, &r->outcomes[i]);
            }
        }
    }
    return SP_OK;
}

// DIR/NAME.txt, NAME.json and, with a plot format (NULL: none), NAME.FORMAT.
static sp_status write_reproduction(const char *folder, const char *format,
                                    const figure_reproduction *r, sp_error *err)
{
    char path[FILE_BYTES + FIGURE_NAME + 8];
    if (strlen(folder) > FILE_BYTES) {
        return sp_error_set(err, SP_ERR_USAGE, "-o: the name of the folder is too long");
    }
    snprintf(path, sizeof path, "%s/%s.txt", folder, r->spec->name);
    SP_TRY(cli_write_file(path, write_text, r, err));
    snprintf(path, sizeof path, "%s/%s.json", folder, r->spec->name);
    SP_TRY(cli_write_json(path, figure_reproduction_json(r), err));
    if (format != NULL) {
        snprintf(path, sizeof path, "%s/%s.%s", folder, r->spec->name, format);
        SP_TRY(cli_plot("figure.gp", path, write_data, r, err));
    }
    return SP_OK;
}

typedef struct reproduce_args {
    cli_common common;
    int64_t jobs;
    cli_list set;
    const char *output, *plot;
    bool all;
} reproduce_args;

static const char *const formats[] = {"png", "svg", "pdf", "dat", NULL};

// ---- the list ----

static sp_status read_figure(const sp_published *folder, const char *name, const cli_list *set,
                             figure_spec *spec, sp_error *err)
{
    char path[SP_DATA_PATH];
    sp_status status = figure_file(folder, name, path, err);
    return status != SP_OK ? status
                           : figure_spec_read(path, set != NULL ? set->items : NULL,
                                              set != NULL ? set->count : 0, spec, err);
}

static bool has_headline(const figure_spec *spec)
{
    bool found = false;
    for (size_t i = 0; i < spec->count; i++) {
        found = found || spec->points[i].headline;
    }
    return found;
}

static void list_one(const figure_spec *spec, json_t *list, cli_table *table)
{
    if (list == NULL) {
        cli_row_begin(table);
        cli_cell(table, "%s", spec->name);
        cli_row_text(table, spec->title);
        cli_row_end(table);
    } else {
        json_array_append_new(list, sp_json_object(SP_JSON("name", spec->name),
                                                   SP_JSON("title", spec->title),
                                                   SP_JSON("source", spec->source)));
    }
}

// Figures with a headline stand first: a short screen shows them all.
static sp_status list_all(const sp_published *folder, json_t *list, cli_table *table, sp_error *err)
{
    sp_status status = SP_OK;
    for (int with = 1; with >= 0; with--) {
        for (int i = 0; status == SP_OK && i < folder->count; i++) {
            figure_spec spec;
            status = read_figure(folder, folder->names[i], NULL, &spec, err);
            if (status != SP_OK) {
                return status;
            }
            if (has_headline(&spec) == (with == 1)) {
                list_one(&spec, list, table);
            }
            figure_spec_fini(&spec);
        }
    }
    return status;
}

static int list_figures(const sp_published *folder, bool as_json)
{
    sp_error err = {0};
    json_t *list = as_json ? json_array() : NULL;
    cli_table table;
    if (!as_json) {
        cli_table_begin(&table, "-24 name|0 title", NULL, FIGURES_LISTED);
    }
    sp_status status = list_all(folder, list, &table, &err);
    if (status != SP_OK) {
        json_decref(list);
        return cli_fail(&err);
    }
    if (!as_json) {
        cli_table_end(&table);
    }
    return as_json ? cli_print_json(sp_json_object(SP_JSON("schema", "slimpack/figures/1"),
                                                   SP_JSON("figures", list)))
                   : 0;
}

// ---- reproducing ----

typedef struct totals {
    json_t *figures; // NULL: printed for people
    int count, within, outside;
} totals;

// Under the verdict of a figure whose rows are not printed.
static void print_headlines(const figure_reproduction *r, int figures)
{
    for (size_t i = 0; figures <= MANY && i < r->count; i++) {
        const figure_outcome *o = &r->outcomes[i];
        if (o->headline) {
            printf("  " HEADLINE "%s: published %.6g, computed %.4g, %s%s\n", o->label,
                   o->published, o->computed, o->within ? "within" : "outside",
                   o->fitted ? ", fitted" : "");
            print_why(stdout, o);
        }
    }
}

// The publication that a source names, as its number in arXiv; "": none.
static const char *paper_of(const figure_spec *spec, char paper[PAPER])
{
    const char *at = spec->source != NULL ? strstr(spec->source, "arXiv ") : NULL;
    snprintf(paper, PAPER, "%s", at != NULL ? at : "");
    return paper;
}

// Names other figures of a publication, one of which was asked for.
static sp_status print_more(const sp_published *folder, const figure_spec *shown, sp_error *err)
{
    char text[FIGURES_LISTED * FIGURE_NAME] = "";
    char papers[2][PAPER];
    const char *separator = "";
    sp_status status = SP_OK;
    paper_of(shown, papers[0]);
    for (int i = 0; papers[0][0] != '\0' && status == SP_OK && i < folder->count; i++) {
        figure_spec spec;
        status = read_figure(folder, folder->names[i], NULL, &spec, err);
        if (status == SP_OK && strcmp(spec.name, shown->name) != 0 &&
            strcmp(paper_of(&spec, papers[1]), papers[0]) == 0) {
            sp_append(text, sizeof text, "%s%s", separator, spec.name);
            separator = ", ";
        }
        if (status == SP_OK) {
            figure_spec_fini(&spec);
        }
    }
    if (*separator != '\0') {
        cli_print_wrapped(stdout, text, printf("  more of this paper: "), 4);
    }
    return status;
}

// By which command its rows are found again.
static void print_again(const figure_reproduction *r, const char *name)
{
    const figure_spec *spec = r->spec;
    if (r->of_table) {
        printf("  each row: slimpack validate --published --table %s --rows\n", spec->table);
    } else {
        printf("  again: slimpack reproduce %s, with other settings --set KEY=VALUE\n", name);
    }
}

// Of a few figures people see some rows, of many the verdicts and the headlines.
static void print_for_people(const figure_reproduction *r, const char *name, int figures)
{
    if (cli_is_wide() || figures <= FEW) {
        print_reproduction(stdout, r, figures == 1 || cli_is_wide() ? ROWS_OF_ONE : ROWS_OF_FEW);
        print_again(r, name);
        fputs(figures > 1 ? "\n" : "", stdout);
    } else if (!r->within || figures <= MANY) {
        char verdict[VERDICT];
        printf("%s: %s\n", r->spec->name, verdict_text(r, verdict));
        print_headlines(r, figures);
    }
}

static sp_status report(const reproduce_args *args, const figure_reproduction *r, const char *name,
                        totals *sum, sp_error *err)
{
    sum->within += r->within;
    sum->outside += !r->within;
    if (sum->figures != NULL) {
        json_array_append_new(sum->figures, figure_reproduction_json(r));
    } else {
        print_for_people(r, name, sum->count);
        fflush(stdout);
    }
    return args->output != NULL ? write_reproduction(args->output, args->plot, r, err) : SP_OK;
}

// Before the first one runs, which may take minutes.
static sp_status check_names(const reproduce_args *args, const sp_published *folder,
                             const cli_operands *operands, sp_error *err)
{
    for (int i = 0; i < operands->count; i++) {
        figure_spec spec = {0};
        if (read_figure(folder, operands->items[i], &args->set, &spec, err) == SP_OK) {
            figure_spec_fini(&spec);
        }
    }
    return err->status;
}

static sp_status reproduce_one(const reproduce_args *args, const sp_published *folder,
                               const char *name, totals *sum, sp_error *err)
{
    figure_spec spec = {0};
    figure_reproduction reproduction;
    SP_TRY(read_figure(folder, name, &args->set, &spec, err));
    sp_status status =
        figure_reproduce(&spec, cli_threads(args->jobs), args->common.quiet, &reproduction, err);
    if (status == SP_OK) {
        status = report(args, &reproduction, name, sum, err);
        if (status == SP_OK && sum->count == 1 && sum->figures == NULL) {
            status = print_more(folder, &spec, err);
            putchar('\n');
        }
        figure_reproduction_fini(&reproduction);
    }
    figure_spec_fini(&spec);
    return status;
}

static int reproduce(const reproduce_args *args, const sp_published *folder,
                     const cli_operands *operands)
{
    int count = args->all ? folder->count : operands->count;
    sp_error err = {0};
    totals sum = {.figures = args->common.json ? json_array() : NULL, .count = count};
    sp_status status = check_names(args, folder, operands, &err);
    if (status == SP_OK && args->output != NULL && mkdir(args->output, 0777) != 0 &&
        errno != EEXIST) {
        status = sp_error_system(&err, args->output, errno);
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
        exit_status = cli_print_json(sp_json_object(
            SP_JSON("schema", "slimpack/reproduction/1"), SP_JSON("figures", sum.figures),
            SP_JSON("within", json_boolean(sum.outside == 0))));
    } else if (count > 1) {
        printf("%d of %d figures within their bars%s\n", sum.within, count,
               cli_is_wide() || count <= FEW ? "" : "; rows and assumptions with --wide");
    }
    return cli_answer(exit_status, sum.outside == 0);
}

static int run(const void *given, const cli_operands *operands)
{
    const reproduce_args *args = given;
    sp_error err = {0};
    sp_published folder;
    bool known = args->plot == NULL;
    for (int i = 0; formats[i] != NULL && !known; i++) {
        known = strcmp(args->plot, formats[i]) == 0;
    }
    if (!known) {
        return cli_usage_error(&cli_cmd_reproduce, "--plot expects png, svg, pdf or dat, got '%s'",
                               args->plot);
    }
    if (args->plot != NULL && args->output == NULL) {
        return cli_usage_error(&cli_cmd_reproduce, "--plot needs -o DIR");
    }
    if (args->output != NULL && !args->all && operands->count == 0) {
        return cli_usage_error(&cli_cmd_reproduce, "-o DIR needs names of figures or --all");
    }
    if (args->all && operands->count > 0) {
        return cli_usage_error(&cli_cmd_reproduce, "--all takes no names beside it");
    }
    if (args->set.count > 0 && operands->count == 0) {
        return cli_usage_error(&cli_cmd_reproduce, "--set needs names of figures");
    }
    if (sp_published_list(&figure_published, &folder, &err) != SP_OK) {
        return cli_fail(&err);
    }
    return args->all || operands->count > 0 ? reproduce(args, &folder, operands)
                                            : list_figures(&folder, args->common.json);
}

// ---- the command ----

static const cli_option options[] = {
    CLI_FLAG_OPTION("all", reproduce_args, all, "every figure that travels with the program"),
    CLI_TEXT_OPTION(CLI_FOLDER, 'o', "output", "DIR", reproduce_args, output,
                    "write NAME.txt and NAME.json of each figure there"),
    CLI_NAMES_OPTION(
        "plot", "FORMAT", reproduce_args, plot, formats,
        "with -o: draw each figure with gnuplot (png, svg, pdf), or keep the data for that (dat)"),
    CLI_SET_OPTION(reproduce_args),
    CLI_JOBS_OPTION(reproduce_args),
    CLI_TABLE_OPTIONS(reproduce_args),
    CLI_COMMON_OPTIONS(reproduce_args),
    {0},
};

static const char *const examples[] = {
    "slimpack reproduce",
    "slimpack reproduce zb_table5 slimpipe_memory",
    "slimpack reproduce slimpack --set workload.samples_per_batch=1024",
    "slimpack reproduce --all -o reproduced --plot svg",
    NULL,
};

const cli_command cli_cmd_reproduce = {
    .name = "reproduce",
    .summary = "put published figures and tables beside what is computed for them",
    CLI_TAKES("[NAME|FILE.json...]", 0, -1),
    .description =
        "Evaluates the scenarios of published figures and tables, and prints what was published "
        "beside what is computed, with the error, a verdict (within or outside the bar of the "
        "point) and every assumption that was made where the publication is silent. Without a name "
        "the figures are listed, each with its title. The number by which a paper is known is its "
        "headline (reproduce slimpack, slimpipe, zeppelin, heterospec, sampleattention): where it "
        "does not come out, it is told why, or that this is not known.\n\nA figure is a JSON file: "
        "\"base\" is a "
        "scenario, and each of \"points\" changes some settings of it (\"set\"), names a \"key\" "
        "of the result, and states the \"published\" value with its \"bar\" ({\"relative\": 0.05} "
        "or {\"absolute\": 0.01}). \"measure\" is the value itself, or a ratio, difference or "
        "reduction against the point's \"baseline\", settings again, or longest, the largest value "
        "of a setting with which the scenario fits. A setting may have several values; \"take\" "
        "says which of the values counts (mean, max, min), and \"mean_of\" takes those of other "
        "points, by their labels. A point to whose number something was fitted says so "
        "(\"fitted\"), and is counted by itself. In place of base and points, "
        "\"table\" names a table of 'slimpack validate --published', whose bound is the "
        "bar.\n\n--set changes the scenario that all points of a figure have in common, and the "
        "figure then says that it is not as published.\n\nThe exit status is 1 when a figure is "
        "outside its bar.",
    CLI_RUNS(run, reproduce_args, options, examples),
};
