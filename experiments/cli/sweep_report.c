#include "experiments/cli/sweep_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/report.h"
#include "experiments/cli/run_report.h"
#include "experiments/sweep/point.h"
#include "sim/base/json.h"

enum {
    REASON_SHOWN = 200, // characters
    CELL = 64,
    TITLE = 128,
    GROUPS_SHOWN = 16,
};

// ---- the columns of the grid ----

// The last part of an axis' path where no other axis has the same.
static const char *axis_name(const sweep_spec *spec, int axis)
{
    const char *path = spec->axes[axis].path;
    const char *dot = strrchr(path, '.');
    const char *name = dot != NULL ? dot + 1 : path;
    for (int a = 0; a < spec->axis_count; a++) {
        const char *other = strrchr(spec->axes[a].path, '.');
        if (a != axis && strcmp(other != NULL ? other + 1 : spec->axes[a].path, name) == 0) {
            return path;
        }
    }
    return name;
}

// The value of an axis as one word; an object that has a name by that.
static char *value_text(const sweep_spec *spec, int axis, int64_t digit)
{
    const json_t *value = json_array_get(spec->axes[axis].values, (size_t)digit);
    const json_t *name = json_object_get(value, "name");
    const char *text = json_string_value(json_is_string(name) ? name : value);
    return text != NULL ? strdup(text) : sweep_point_text(value);
}

static void cell(const sweep_spec *spec, int axis, int64_t digit, char text[CELL])
{
    char *whole = value_text(spec, axis, digit);
    snprintf(text, CELL, "%s", whole != NULL ? whole : "?");
    free(whole);
}

// ---- the table ----

static int width_of(const sweep_spec *spec, int axis, const sweep_best *points, int64_t count)
{
    size_t width = strlen(axis_name(spec, axis));
    for (int64_t i = 0; i < count; i++) {
        int64_t digit[SWEEP_AXES];
        char text[CELL];
        sweep_spec_digits(spec, points[i].combination, digit);
        cell(spec, axis, digit[axis], text);
        width = strlen(text) > width ? strlen(text) : width;
    }
    return (int)width;
}

static void print_figures(const sweep_digest *digest)
{
    char tokens[CLI_SHORT_NUMBER];
    const double *figure = digest->figure;
    printf("%14.1f", figure[SWEEP_ITERATION_MS]);
    if (isfinite(digest->median_error)) {
        printf(" %6.1f %%", 100.0 * digest->median_error);
    } else {
        printf(" %8s", "-");
    }
    printf(" %12s", cli_short_number(figure[SWEEP_TOKENS_PER_GPU_S], tokens));
    printf(" %10s", cli_short_number(figure[SWEEP_TOKENS_PER_S], tokens));
    if (isfinite(figure[SWEEP_MFU])) {
        printf(" %11.1f %7.2f %% %8.2f %% %9.2f %9.2f %5s", figure[SWEEP_TFLOPS_PER_GPU],
               100.0 * figure[SWEEP_MFU_FULL_ATTENTION], 100.0 * figure[SWEEP_MFU],
               figure[SWEEP_PEAK_MEMORY_GIB], figure[SWEEP_MEMORY_MARGIN_GIB],
               digest->fits == SP_FITS_NONE ? "-" : sp_fits_names[digest->fits]);
    } else {
        printf(" %11s %9s %10s %9s %9s %5s", "-", "-", "-", "-", "-", "-");
    }
    printf(" %7.2f %%", 100.0 * figure[SWEEP_BUBBLE_RATIO]);
}

// Behind the columns, of rows alone that lose something.
static void print_loss(const sweep_digest *digest)
{
    char text[CLI_LOSS];
    const cli_loss loss = {.left_out = digest->figure[SWEEP_LEFT_OUT_SHARE],
                           .cut = digest->figure[SWEEP_CUT_SHARE],
                           .over_length = digest->figure[SWEEP_OVER_LENGTH_SHARE],
                           .lossy = digest->lossy};
    cli_loss_text(loss, text);
    printf("%s%s", text[0] != '\0' ? "  " : "", text);
}

static void print_table(const sweep_spec *spec, const sweep_best *points, int64_t count)
{
    int width[SWEEP_AXES];
    printf("%14s %8s %12s %10s %11s %9s %10s %9s %9s %5s %9s ", "iteration ms", "error",
           "tokens/s/GPU", "tokens/s", "TFLOP/s/GPU", "MFU full", "MFU causal", "peak GiB",
           "margin", "fits", "bubble");
    for (int a = 0; a < spec->axis_count; a++) {
        width[a] = width_of(spec, a, points, count);
        printf(" %*s", width[a], axis_name(spec, a));
    }
    putchar('\n');
    for (int64_t i = 0; i < count; i++) {
        int64_t digit[SWEEP_AXES];
        char text[CELL];
        sweep_spec_digits(spec, points[i].combination, digit);
        print_figures(&points[i].digest);
        putchar(' ');
        for (int a = 0; a < spec->axis_count; a++) {
            cell(spec, a, digit[a], text);
            printf(" %*s", width[a], text);
        }
        print_loss(&points[i].digest);
        putchar('\n');
    }
}

// Points that fit tightly are ranked last, so where the first is one, all are.
static void print_tight_pick(const sweep_best *best)
{
    const sweep_digest *first = &best->digest;
    if (first->fits == SP_FITS_TIGHT) {
        int column = printf("no point fits well: ");
        char text[160];
        snprintf(text, sizeof text,
                 "the first fits TIGHTLY, with a margin of %.2f GiB; tight steps may run several "
                 "times slower than predicted",
                 first->figure[SWEEP_MEMORY_MARGIN_GIB]);
        cli_print_wrapped(stdout, text, column, 2);
    }
}

// "fastest points that fit, context 8K:"
static void print_title(const sweep_summary *summary, const sweep_best *first, const char *title)
{
    int64_t digit[SWEEP_AXES];
    printf("\n%s", title);
    sweep_spec_digits(summary->spec, first->combination, digit);
    for (int g = 0; g < summary->group_axis_count; g++) {
        char text[CELL];
        int a = summary->group_axes[g];
        cell(summary->spec, a, digit[a], text);
        printf(", %s %s", axis_name(summary->spec, a), text);
    }
    puts(":");
}

// A table for each group of points, with what `note` says of its first.
static void print_groups(const sweep_summary *summary, const sweep_best *points, int64_t count,
                         const char *title, void (*note)(const sweep_best *first))
{
    int64_t from = 0;
    for (int groups = 0; from < count && groups < GROUPS_SHOWN; groups++) {
        int64_t end = from;
        while (end < count && points[end].group == points[from].group) {
            end++;
        }
        print_title(summary, &points[from], title);
        print_table(summary->spec, &points[from], end - from);
        if (note != NULL) {
            note(&points[from]);
        }
        from = end;
    }
    if (from < count) {
        puts("... and of further workloads or models: --json and --csv list all, --where chooses");
    }
}

// The reason of the first point that has no error.
static void print_not_validated(const sweep_summary *summary)
{
    for (int64_t i = 0; i < summary->best_count; i++) {
        const sweep_digest *digest = &summary->best[i].digest;
        if (digest->not_validated[0] != '\0' && isfinite(digest->figure[SWEEP_TOKENS_PER_S])) {
            int column = printf("times not validated: ");
            cli_print_wrapped(stdout, digest->not_validated, column, 2);
            return;
        }
    }
}

enum { MIXED = 160 };

static const char *mixed_text(const sweep_summary *summary, char text[MIXED])
{
    char number[CLI_GROUPED];
    snprintf(text, MIXED,
             "points of %s workloads or models are ranked together, though their steps are not the "
             "same work: --where chooses some",
             cli_grouped(summary->mixed, number));
    return text;
}

static void print_best(const sweep_summary *summary)
{
    const sweep_summary_options *options = &summary->options;
    if (summary->best_count == 0) {
        if (options->where != NULL) {
            printf("\nno point that fits has %s\n", options->where);
        }
        return;
    }
    char title[TITLE];
    if (options->by_figure) {
        snprintf(title, sizeof title, "points that fit with the %s %s",
                 sweep_figure_better[options->by] > 0 ? "most" : "least",
                 sweep_figure_names[options->by]);
    } else {
        snprintf(title, sizeof title, "fastest points that fit");
    }
    print_groups(summary, summary->best, summary->best_count, title, print_tight_pick);
    print_not_validated(summary);
    char text[MIXED];
    if (summary->mixed > 0) {
        puts(mixed_text(summary, text));
    }
}

void cli_print_sweep(const sweep_summary *summary, const char *output)
{
    char number[CLI_GROUPED];
    const sweep_summary_options *options = &summary->options;
    printf("%s points", cli_grouped(summary->written, number));
    if (summary->written < summary->points) {
        printf(" of %s", cli_grouped(summary->points, number));
    }
    printf(" in %s", output);
    if (summary->resumed > 0) {
        printf(", %s from before", cli_grouped(summary->resumed, number));
    }
    putchar('\n');
    for (int s = 0; s < SWEEP_STATUSES; s++) {
        if (summary->of_status[s] == 0) {
            continue;
        }
        printf("  %-10s %10s", sweep_status_names[s], cli_grouped(summary->of_status[s], number));
        if (summary->reason[s][0] != '\0') {
            printf("  first: %.*s", (int)REASON_SHOWN, summary->reason[s]);
        }
        putchar('\n');
    }
    print_best(summary);
    if (options->front && summary->front_count > 0) {
        char title[TITLE];
        snprintf(title, sizeof title, "the Pareto front of %s and %s",
                 sweep_figure_names[options->x], sweep_figure_names[options->y]);
        print_groups(summary, summary->front, summary->front_count, title, NULL);
    }
}

// ---- for programs ----

static json_t *point_json(const sweep_spec *spec, const sweep_best *point)
{
    int64_t digit[SWEEP_AXES];
    const sweep_digest *digest = &point->digest;
    const char *fits = digest->fits != SP_FITS_NONE ? sp_fits_names[digest->fits] : NULL;
    json_t *object = json_object();
    sweep_spec_digits(spec, point->combination, digit);
    sp_json_put(object, "point", sweep_spec_point(spec, digit));
    for (int d = 0; d < SWEEP_DEGREES; d++) {
        sp_json_put(object, sweep_degree_names[d], json_integer(digest->degree[d]));
    }
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        sp_json_put(object, sweep_figure_names[f], sp_json_figure(digest->figure[f]));
    }
    sp_json_put(object, "fits", sp_json_text_or_null(fits));
    sp_json_put(object, "median_error", sp_json_figure(digest->median_error));
    sp_json_put(object, "not_validated", sp_json_text_or_null(digest->not_validated));
    return object;
}

static json_t *points_json(const sweep_spec *spec, const sweep_best *points, int64_t count)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < count; i++) {
        json_array_append_new(array, point_json(spec, &points[i]));
    }
    return array;
}

json_t *cli_sweep_json(const sweep_summary *summary)
{
    const sweep_summary_options *options = &summary->options;
    json_t *statuses = json_object();
    for (int s = 0; s < SWEEP_STATUSES; s++) {
        sp_json_put(statuses, sweep_status_names[s], json_integer(summary->of_status[s]));
    }
    json_t *json = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "schema", "slimpack/sweep-summary/1", "combinations",
        (json_int_t)summary->spec->combinations, "points", (json_int_t)summary->points, "resumed",
        (json_int_t)summary->resumed, "written", (json_int_t)summary->written, "status", statuses,
        "best", points_json(summary->spec, summary->best, summary->best_count));
    if (summary->group_axis_count > 0) {
        json_t *paths = json_array();
        for (int g = 0; g < summary->group_axis_count; g++) {
            const char *path = summary->spec->axes[summary->group_axes[g]].path;
            json_array_append_new(paths, json_string(path));
        }
        sp_json_put(json, "per", paths);
    }
    char text[MIXED];
    if (summary->mixed > 0) {
        sp_json_put(json, "warnings", json_pack("[s]", mixed_text(summary, text)));
    }
    if (options->front) {
        sp_json_put(json, "pareto",
                    json_pack("{s:s, s:s, s:o}", "x", sweep_figure_names[options->x], "y",
                              sweep_figure_names[options->y], "points",
                              points_json(summary->spec, summary->front, summary->front_count)));
    }
    return json;
}

// ---- CSV ----

static void put_field(FILE *out, const char *text)
{
    const char *quote = strpbrk(text, ",\"") != NULL ? "\"" : "";
    fputs(quote, out);
    for (size_t piece; *text != '\0'; text += piece) {
        piece = *text == '"' ? 1 : strcspn(text, "\"");
        fprintf(out, "%s%.*s", *text == '"' ? "\"" : "", (int)piece, text);
    }
    fputs(quote, out);
}

void cli_sweep_csv_head(FILE *out, const sweep_spec *spec)
{
    for (int a = 0; a < spec->axis_count; a++) {
        put_field(out, spec->axes[a].path);
        fputc(',', out);
    }
    fputs("status", out);
    for (int d = 0; d < SWEEP_DEGREES; d++) {
        fprintf(out, ",%s", sweep_degree_names[d]);
    }
    fputs(",strategy,schedule", out);
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        fprintf(out, ",%s", sweep_figure_names[f]);
    }
    fputs(",fits,median_error,reason\n", out);
}

static void put_number(FILE *out, double value)
{
    fputc(',', out);
    if (isfinite(value)) {
        fprintf(out, "%.10g", value);
    }
}

void cli_sweep_csv_row(FILE *out, const sweep_spec *spec, int64_t combination,
                       const sweep_digest *digest)
{
    int64_t digit[SWEEP_AXES];
    sweep_spec_digits(spec, combination, digit);
    for (int a = 0; a < spec->axis_count; a++) {
        char *text = value_text(spec, a, digit[a]);
        put_field(out, text != NULL ? text : "?");
        fputc(',', out);
        free(text);
    }
    fputs(sweep_status_names[digest->status], out);
    for (int d = 0; d < SWEEP_DEGREES; d++) {
        put_number(out, digest->degree[d] > 0 ? digest->degree[d] : (double)NAN);
    }
    fprintf(out, ",%s,%s", digest->strategy, digest->schedule);
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        put_number(out, digest->figure[f]);
    }
    fprintf(out, ",%s", digest->fits == SP_FITS_NONE ? "" : sp_fits_names[digest->fits]);
    put_number(out, digest->median_error);
    fputc(',', out);
    put_field(out, digest->reason);
    fputc('\n', out);
}

// ---- the picture ----

typedef struct drawn {
    const sweep_summary *summary;
    const char *results;
} drawn;

// The lines are read again: a summary does not keep them.
static sp_status write_points(FILE *out, const drawn *what, sp_error *err)
{
    const sweep_summary_options *options = &what->summary->options;
    FILE *lines = fopen(what->results, "r");
    char *line = NULL;
    size_t room = 0;
    if (lines == NULL) {
        return sp_error_set(err, SP_ERR_IO, "%s: cannot be read", what->results);
    }
    for (ssize_t bytes; (bytes = getline(&line, &room, lines)) > 0;) {
        const char *expected;
        sweep_digest digest;
        json_t *row = json_loadb(line, (size_t)bytes, JSON_REJECT_DUPLICATES, NULL);
        if (row != NULL && sweep_digest_read(row, &digest, &expected) &&
            digest.status == SWEEP_OK && isfinite(digest.figure[options->x]) &&
            isfinite(digest.figure[options->y])) {
            fprintf(out, "%.10g %.10g\n", digest.figure[options->x], digest.figure[options->y]);
        }
        json_decref(row);
    }
    free(line);
    fclose(lines);
    return SP_OK;
}

static sp_status write_front(FILE *out, const void *given, sp_error *err)
{
    const drawn *what = given;
    const sweep_summary_options *options = &what->summary->options;
    fprintf(out, "# the two figures, all points, the front\n%s %s\n\n\n",
            sweep_figure_names[options->x], sweep_figure_names[options->y]);
    sp_status status = write_points(out, what, err);
    fputs("\n\n", out);
    for (int64_t i = 0; i < what->summary->front_count; i++) {
        const sweep_best *point = &what->summary->front[i];
        const double *figure = point->digest.figure;
        // A blank line ends the line of one group.
        fputs(i > 0 && point[-1].group != point->group ? "\n" : "", out);
        fprintf(out, "%.10g %.10g\n", figure[options->x], figure[options->y]);
    }
    return status;
}

sp_status cli_sweep_plot(const sweep_summary *summary, const char *results, const char *path,
                         sp_error *err)
{
    const drawn what = {.summary = summary, .results = results};
    const sweep_summary_options *options = &summary->options;
    if (summary->front_count == 0) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: nothing to draw: no point that is listed has %s and %s", path,
                            sweep_figure_names[options->x], sweep_figure_names[options->y]);
    }
    return cli_plot("pareto.gp", path, write_front, &what, err);
}
