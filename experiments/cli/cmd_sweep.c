// Sweeps, and the files of their shards put together: what is asked, the run, and its answer for
// people, for programs, as CSV and as a picture.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/sweep/sweep.h"
#include "sim/base/alloc.h"
#include "sim/base/data_folder.h"
#include "sim/base/json.h"
#include "sim/base/launcher.h"
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"

enum {
    CELL = 64,
    TITLE = 512,
    GROUPS_SHOWN = 16,
    ROWS_SHOWN = 8, // of a table
    COLUMNS = 2048,
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

// Settings of the grid stand behind what decides.
static void choose_columns(const sweep_spec *spec, const sweep_best *points, int64_t count,
                           char columns[COLUMNS])
{
    bool chosen = false;
    for (int64_t i = 0; i < count; i++) {
        chosen = chosen || isfinite(points[i].trial.choice[SWEEP_ROW_TOKENS]);
    }
    snprintf(columns, COLUMNS, "12 @iteration_ms|8 @peak_memory_gib|5~4 fits");
    for (int a = 0; a < spec->axis_count; a++) {
        sp_append(columns, COLUMNS, "|%d %s", width_of(spec, a, points, count), axis_name(spec, a));
    }
    sp_append(
        columns, COLUMNS,
        "|8~3 error|12~2 @tokens_per_gpu_s|10~6 @memory_margin_gib|9~5 @mfu_full_attention|8~5 "
        "@bubble_ratio|10 @tokens_per_s|11 @tflops_per_gpu|10 @mfu%s|0 notes",
        chosen ? "|10 @row_tokens" : "");
}

static void print_point(cli_table *table, const sweep_spec *spec, const sweep_best *point,
                        bool best)
{
    int64_t digit[SWEEP_AXES];
    char text[CLI_NOTES];
    const sweep_trial *trial = &point->trial;
    sweep_spec_digits(spec, point->combination, digit);
    cli_row_begin(table);
    cli_figure_cells(table, cli_figure_of_trial, trial);
    cli_cell(table, "%s", trial->fits == SP_FITS_NONE ? "-" : sp_fits_names[trial->fits]);
    for (int a = 0; a < spec->axis_count; a++) {
        char value[CELL];
        cell(spec, a, digit[a], value);
        cli_cell(table, "%s", value);
    }
    cli_number_cell(table, "%.1f %%", 100.0 * trial->median_error);
    cli_figure_cells(table, cli_figure_of_trial, trial);
    cli_loss loss = cli_loss_of_trial(trial);
    loss.over_length = trial->figure[SWEEP_OVER_LENGTH_SHARE];
    cli_row_notes(loss, trial->figure[SWEEP_FIT_PROBABILITY],
                  trial->figure[SWEEP_MEMORY_MARGIN_GIB], text);
    cli_add_choices(table, trial, text);
    cli_cell(table, "%s%s%s", best ? "best" : "", best && text[0] != '\0' ? ", " : "", text);
    cli_row_end(table);
}

static void print_table(const sweep_spec *spec, const sweep_best *points, int64_t count,
                        const char *title, bool ranked)
{
    char columns[COLUMNS];
    cli_table table;
    choose_columns(spec, points, count, columns);
    cli_table_begin(&table, columns, title, ROWS_SHOWN);
    for (int64_t i = 0; i < count; i++) {
        print_point(&table, spec, &points[i], ranked && i == 0);
    }
    cli_table_end(&table);
}

// Points that fit tightly are ranked last, so where the first is one, all are.
static void print_tight_pick(const sweep_best *best)
{
    const sweep_trial *first = &best->trial;
    if (first->fits == SP_FITS_TIGHT) {
        int column = printf("no point fits well: ");
        char text[160];
        snprintf(text, sizeof text,
                 "the first %s, with a margin of %.2f GiB; tight steps may run several times "
                 "slower than predicted",
                 cli_tight_text(first->figure[SWEEP_MEMORY_MARGIN_GIB]),
                 first->figure[SWEEP_MEMORY_MARGIN_GIB]);
        cli_print_wrapped(stdout, text, column, 2);
    }
}

// "fastest points that fit, context 8K"
static void write_title(const sweep_summary *summary, const sweep_best *first, const char *title,
                        char text[TITLE])
{
    int64_t digit[SWEEP_AXES];
    snprintf(text, TITLE, "%s", title);
    sweep_spec_digits(summary->spec, first->combination, digit);
    for (int g = 0; g < summary->group_axis_count; g++) {
        char value[CELL];
        int a = summary->group_axes[g];
        cell(summary->spec, a, digit[a], value);
        sp_append(text, TITLE, ", %s %s", axis_name(summary->spec, a), value);
    }
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
        char text[TITLE];
        write_title(summary, &points[from], title, text);
        printf("\n%s:\n", text);
        print_table(summary->spec, &points[from], end - from, text, note != NULL);
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
        const sweep_trial *trial = &summary->best[i].trial;
        if (trial->not_validated[0] != '\0' && isfinite(trial->figure[SWEEP_TOKENS_PER_S])) {
            int column = printf("times not validated: ");
            cli_print_wrapped(stdout, trial->not_validated, column, 2);
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

// Of points that fit: of others nothing is noted.
static void add_warnings_of_points(const sweep_summary *summary, json_t *texts)
{
    for (size_t w = 0; w < summary->warnings.count; w++) {
        json_array_append_new(texts, sp_warning_kind_json(&summary->warnings.kind[w],
                                                          summary->of_status[SWEEP_OK], "points"));
    }
}

static void warn_of_points(const cli_common *common, const sweep_summary *summary)
{
    json_t *texts = json_array();
    add_warnings_of_points(summary, texts);
    cli_warn_all(common->quiet || common->json, NULL, texts);
    json_decref(texts);
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
                 sweep_figure_better(options->by) > 0 ? "most" : "least",
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

// " --set KEY=VALUE", such that --set reads the value as the grid has it.
static void put_setting(FILE *out, const char *path, const json_t *value)
{
    const char *word = json_string_value(value);
    json_t *read = word != NULL ? json_loads(word, JSON_DECODE_ANY, NULL) : NULL;
    char *text = word != NULL && read == NULL
                     ? strdup(word)
                     : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
    sp_text memory;
    fprintf(sp_text_begin(&memory), "%s=%s", path, text != NULL ? text : "");
    char *assignment = sp_text_end(&memory);
    fputs(" --set ", out);
    sp_print_word(out, assignment);
    sp_free(assignment);
    free(text);
    json_decref(read);
}

// The command that simulates the first point that is listed; NULL: none is, or the base is of no
// file that can be read again. The caller frees it with sp_free().
static char *go_on(const sweep_summary *summary)
{
    const sweep_spec *spec = summary->spec;
    int64_t digit[SWEEP_AXES];
    sp_text memory;
    if (summary->best_count == 0 || spec->base_file[0] == '\0' || cli_is_stream(spec->base_file)) {
        return NULL;
    }
    FILE *out = sp_text_begin(&memory);
    sweep_spec_digits(spec, summary->best[0].combination, digit);
    fputs("slimpack simulate ", out);
    sp_print_word(out, spec->base_file);
    for (int a = 0; a < spec->axis_count; a++) {
        put_setting(out, spec->axes[a].path,
                    json_array_get(spec->axes[a].values, (size_t)digit[a]));
    }
    return sp_text_end(&memory);
}

// `output` is the name of the results file.
static void print_sweep(const sweep_summary *summary, const char *output)
{
    char number[CLI_GROUPED];
    const sweep_summary_options *options = &summary->options;
    char *command = go_on(summary);
    if (command != NULL) {
        cli_leave_end(command);
    }
    printf("%s point%s", cli_grouped(summary->written, number), sp_plural(summary->written));
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
        int column = printf("  %-10s %10s", sweep_status_names[s],
                            cli_grouped(summary->of_status[s], number));
        if (summary->reason[s][0] != '\0') {
            column += printf("  first: ");
            cli_print_wrapped(stdout, summary->reason[s], column, 21);
        } else {
            putchar('\n');
        }
    }
    if (summary->beyond > 0) {
        printf("%s of them are beyond their stacks (--any-schedule)\n",
               cli_grouped(summary->beyond, number));
    }
    print_best(summary);
    if (options->front && summary->front_count > 0) {
        char title[TITLE];
        snprintf(title, sizeof title, "the Pareto front of %s and %s",
                 sweep_figure_names[options->x], sweep_figure_names[options->y]);
        print_groups(summary, summary->front, summary->front_count, title, NULL);
    }
    if (command != NULL) {
        cli_print_end(command);
    }
    sp_free(command);
}

// ---- for programs ----

static json_t *point_json(const sweep_spec *spec, const sweep_best *point)
{
    int64_t digit[SWEEP_AXES];
    const sweep_trial *trial = &point->trial;
    const char *fits = trial->fits != SP_FITS_NONE ? sp_fits_names[trial->fits] : NULL;
    json_t *object = json_object();
    sweep_spec_digits(spec, point->combination, digit);
    sp_json_put(object, "point", sweep_spec_point(spec, digit));
    for (int d = 0; d < SWEEP_DEGREES; d++) {
        sp_json_put(object, sweep_degree_names[d], json_integer(trial->degree[d]));
    }
    cli_put_figures(object, trial);
    cli_put_choices(object, trial);
    return sp_json_add(object, SP_JSON("fits", sp_json_text_or_null(fits)),
                       SP_JSON("median_error", trial->median_error),
                       SP_JSON("not_validated", sp_json_text_or_null(trial->not_validated)));
}

static json_t *points_json(const sweep_spec *spec, const sweep_best *points, int64_t count)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < count; i++) {
        json_array_append_new(array, point_json(spec, &points[i]));
    }
    return array;
}

static json_t *summary_json(const sweep_summary *summary)
{
    const sweep_summary_options *options = &summary->options;
    char *command = go_on(summary);
    json_t *json = sp_json_object(
        SP_JSON("schema", "slimpack/sweep-summary/1"),
        SP_JSON("settings", json_incref(summary->spec->settings)),
        SP_JSON("combinations", summary->spec->combinations), SP_JSON("points", summary->points),
        SP_JSON("resumed", summary->resumed), SP_JSON("written", summary->written),
        SP_JSON("status", cli_statuses_json(summary->of_status)),
        SP_JSON("go_on", command != NULL ? json_string(command) : NULL),
        SP_JSON("best", points_json(summary->spec, summary->best, summary->best_count)));
    sp_free(command);
    if (summary->beyond > 0) {
        sp_json_put(json, "beyond_stack", json_integer(summary->beyond));
    }
    if (summary->group_axis_count > 0) {
        json_t *paths = json_array();
        for (int g = 0; g < summary->group_axis_count; g++) {
            const char *path = summary->spec->axes[summary->group_axes[g]].path;
            json_array_append_new(paths, json_string(path));
        }
        sp_json_put(json, "per", paths);
    }
    json_t *warnings = json_array();
    char text[MIXED];
    if (summary->mixed > 0) {
        json_array_append_new(warnings, json_string(mixed_text(summary, text)));
    }
    add_warnings_of_points(summary, warnings);
    if (json_array_size(warnings) > 0) {
        sp_json_put(json, "warnings", json_incref(warnings));
    }
    json_decref(warnings);
    if (options->front) {
        sp_json_put(json, "pareto",
                    sp_json_object(SP_JSON("x", sweep_figure_names[options->x]),
                                   SP_JSON("y", sweep_figure_names[options->y]),
                                   SP_JSON("points", points_json(summary->spec, summary->front,
                                                                 summary->front_count))));
    }
    return json;
}

// ---- CSV ----

// The values of each axis that points have which --where lists: the first, and whether others.
typedef struct listed_axes {
    bool any, varies[SWEEP_AXES];
    int64_t digit[SWEEP_AXES];
} listed_axes;

// The table of points, which lines fill as they come. A column for each axis of the grid, then
// status, degrees, strategy, schedule, what the strategy chose, the figures, fits, median error,
// and the reason where there is one.
typedef struct point_rows {
    const sweep_summary *summary;
    listed_axes listed;
    bool every; // rows are printed as they come
    cli_table table;
    char columns[2 * COLUMNS];
} point_rows;

static void begin_rows(point_rows *rows, const sweep_summary *summary)
{
    const sweep_spec *spec = summary->spec;
    char *columns = rows->columns;
    *rows = (point_rows){.summary = summary};
    for (int a = 0; a < spec->axis_count; a++) {
        sp_append(columns, sizeof rows->columns, "1 %s|", spec->axes[a].path);
    }
    sp_append(columns, sizeof rows->columns, "1 status");
    for (int d = 0; d < SWEEP_DEGREES; d++) {
        sp_append(columns, sizeof rows->columns, "|1 %s", sweep_degree_names[d]);
    }
    sp_append(columns, sizeof rows->columns, "|1 strategy|1 schedule");
    for (int c = 0; c < SWEEP_CHOICES; c++) {
        sp_append(columns, sizeof rows->columns, "|1 %s", sweep_choice_names[c]);
    }
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        sp_append(columns, sizeof rows->columns, "|1 %s", sweep_figure_names[f]);
    }
    sp_append(columns, sizeof rows->columns, "|1 fits|1 median_error|1 reason");
    cli_table_begin(&rows->table, columns, NULL, 0);
}

static void put_row(point_rows *rows, int64_t combination, const sweep_trial *trial)
{
    int64_t digit[SWEEP_AXES];
    const sweep_spec *spec = rows->summary->spec;
    cli_table *table = &rows->table;
    sweep_spec_digits(spec, combination, digit);
    cli_row_begin(table);
    for (int a = 0; a < spec->axis_count; a++) {
        char *text = value_text(spec, a, digit[a]);
        cli_text_cell(table, text != NULL ? text : "?");
        free(text);
    }
    cli_text_cell(table, sweep_status_names[trial->status]);
    for (int d = 0; d < SWEEP_DEGREES; d++) {
        cli_number_cell(table, "%.10g", trial->degree[d] > 0 ? trial->degree[d] : (double)NAN);
    }
    cli_text_cell(table, trial->strategy);
    cli_text_cell(table, trial->schedule);
    for (int c = 0; c < SWEEP_CHOICES; c++) {
        cli_number_cell(table, "%.10g", trial->choice[c]);
    }
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        cli_number_cell(table, "%.10g", trial->figure[f]);
    }
    cli_text_cell(table, trial->fits == SP_FITS_NONE ? "" : sp_fits_names[trial->fits]);
    cli_number_cell(table, "%.10g", trial->median_error);
    cli_text_cell(table, trial->reason);
    cli_row_end(table);
}

// ---- the picture ----

enum { MOST_LINES = 12 }; // in one picture

typedef struct drawn {
    const sweep_summary *summary;
    const listed_axes *listed; // NULL: not known before the run
    const char *results;
    int x, other; // axes that lines are drawn over, and by; other -1: one line
} drawn;

// Numbers, and numbers of tokens such as "8K"; NAN: the value is none.
static double number_of(const json_t *value)
{
    int64_t tokens = 0;
    if (json_is_string(value) && sp_tokens_from_text(json_string_value(value), &tokens)) {
        return (double)tokens;
    }
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static bool is_numeric(const sweep_spec *spec, int axis)
{
    size_t i;
    json_t *value;
    json_array_foreach (spec->axes[axis].values, i, value) {
        if (!isfinite(number_of(value))) {
            return false;
        }
    }
    return true;
}

static void note_listed(listed_axes *listed, const sweep_spec *spec, int64_t combination)
{
    int64_t digit[SWEEP_AXES];
    sweep_spec_digits(spec, combination, digit);
    for (int a = 0; a < spec->axis_count; a++) {
        listed->varies[a] = listed->any && (listed->varies[a] || listed->digit[a] != digit[a]);
        listed->digit[a] = listed->any ? listed->digit[a] : digit[a];
    }
    listed->any = true;
}

// Has the picture one value of an axis that the grid changes?
static bool is_fixed(const drawn *what, int axis)
{
    return what->listed != NULL && what->listed->any && !what->listed->varies[axis];
}

// Lines show one axis of numbers, and one more of few values. Of two of numbers the one with more
// values is drawn over, of equals that of the work, of these the first.
static bool choose_lines(const sweep_spec *spec, drawn *what)
{
    what->x = -1;
    what->other = -1;
    for (int a = 0; a < spec->axis_count; a++) {
        if (spec->axes[a].count < 2 || is_fixed(what, a)) {
            continue;
        }
        if (what->x >= 0 && what->other >= 0) {
            return false;
        }
        bool better =
            what->x < 0 || spec->axes[a].count > spec->axes[what->x].count ||
            (spec->axes[a].count == spec->axes[what->x].count &&
             sweep_is_work(spec->axes[a].path) && !sweep_is_work(spec->axes[what->x].path));
        if (is_numeric(spec, a) && better) {
            what->other = what->x >= 0 ? what->x : what->other;
            what->x = a;
        } else {
            what->other = a;
        }
    }
    return what->x >= 0 && (what->other < 0 || spec->axes[what->other].count <= MOST_LINES);
}

// Calls `take` with the lines of the results file, which are read again: a summary does not keep
// them.
typedef void (*line_taker)(void *context, const json_t *row, const sweep_trial *trial);
static sp_status each_line(const char *results, line_taker take, void *context, sp_error *err)
{
    FILE *lines = fopen(results, "r");
    char *line = NULL;
    size_t room = 0;
    if (lines == NULL) {
        return sp_error_set(err, SP_ERR_IO, "%s: cannot be read", results);
    }
    for (ssize_t bytes; (bytes = getline(&line, &room, lines)) > 0;) {
        const char *expected;
        sweep_trial trial;
        json_t *row = json_loadb(line, (size_t)bytes, JSON_REJECT_DUPLICATES, NULL);
        if (row != NULL && sweep_trial_read(row, &trial, &expected)) {
            take(context, row, &trial);
        }
        json_decref(row);
    }
    free(line);
    fclose(lines);
    return SP_OK;
}

// ---- time and memory over an axis ----

typedef struct spot {
    double ms, gib;
    double over; // share of tokens over the context
} spot;

typedef struct spots {
    const drawn *what;
    spot *spot;           // [values of `other`][values of x]
    int64_t *lines, *fit; // points of each value of `other`, and those that fit
} spots;

static int64_t place_of(const sweep_spec *spec, int axis, const json_t *point)
{
    const json_t *stated = sweep_spec_stated(spec, axis);
    const json_t *value = json_object_get(point, spec->axes[axis].path);
    size_t i = 0;
    while (i < json_array_size(stated) && !json_equal(json_array_get(stated, i), value)) {
        i++;
    }
    return (int64_t)i;
}

static void take_spot(void *context, const json_t *row, const sweep_trial *trial)
{
    const spots *all = context;
    const drawn *what = all->what;
    const sweep_spec *spec = what->summary->spec;
    const json_t *point = json_object_get(row, "point");
    for (int a = 0; a < spec->axis_count; a++) {
        if (is_fixed(what, a) && place_of(spec, a, point) != what->listed->digit[a]) {
            return;
        }
    }
    int64_t x = place_of(spec, what->x, point);
    int64_t line = what->other >= 0 ? place_of(spec, what->other, point) : 0;
    if (x == spec->axes[what->x].count ||
        (what->other >= 0 && line == spec->axes[what->other].count)) {
        return; // of another grid, which the run refused
    }
    all->lines[line]++;
    if (trial->status == SWEEP_OK) {
        all->fit[line]++;
        all->spot[line * spec->axes[what->x].count + x] =
            (spot){trial->figure[SWEEP_ITERATION_MS], trial->figure[SWEEP_PEAK_MEMORY_GIB],
                   trial->figure[SWEEP_OVER_LENGTH_SHARE]};
    }
}

// The values of an axis in ascending order, by their places; the caller frees them.
static int64_t *ascending(const sweep_spec *spec, int axis)
{
    int64_t *order = sp_calloc((size_t)spec->axes[axis].count, sizeof *order);
    for (int64_t i = 0; i < spec->axes[axis].count; i++) {
        int64_t at = i;
        double value = number_of(json_array_get(spec->axes[axis].values, (size_t)i));
        for (; at > 0 &&
               number_of(json_array_get(spec->axes[axis].values, (size_t)order[at - 1])) > value;
             at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    return order;
}

static double value_at(const sweep_spec *spec, int axis, int64_t place)
{
    return number_of(json_array_get(spec->axes[axis].values, (size_t)place));
}

// The share of tokens over the context that points with one value have in common, of x or (`line`)
// of the lines; 0: none, or they differ.
static double share_over(const drawn *what, const spots *all, bool line, int64_t place)
{
    const sweep_spec *spec = what->summary->spec;
    const int64_t values = spec->axes[what->x].count;
    const int64_t lines = what->other >= 0 ? spec->axes[what->other].count : 1;
    double share = (double)NAN;
    for (int64_t i = 0; i < (line ? values : lines); i++) {
        double over = all->spot[line ? place * values + i : i * values + place].over;
        if (over != share && isfinite(over) && isfinite(share)) {
            return 0.0;
        }
        share = isfinite(over) ? over : share;
    }
    return isfinite(share) ? share : 0.0;
}

// Values that span a factor of 8 and more are drawn by factors.
static void write_axis(FILE *out, const drawn *what, const spots *all, const int64_t *order)
{
    enum { FACTOR = 8 };
    char title[TITLE];
    const sweep_spec *spec = what->summary->spec;
    const sweep_axis *x = &spec->axes[what->x];
    double least = value_at(spec, what->x, order[0]);
    double most = value_at(spec, what->x, order[x->count - 1]);
    snprintf(title, sizeof title, "Points that fit, by %s", x->path);
    if (what->other >= 0) {
        sp_append(title, sizeof title, " and %s", spec->axes[what->other].path);
    }
    for (int a = 0; a < spec->axis_count; a++) {
        if (spec->axes[a].count > 1 && is_fixed(what, a)) {
            char value[CELL];
            cell(spec, a, what->listed->digit[a], value);
            sp_append(title, sizeof title, ", %s %s", spec->axes[a].path, value);
        }
    }
    fputs("# title, the setting, whether it grows by factors; its values; then a block for each "
          "line: its name, and value, ms and GiB of each point\n",
          out);
    cli_plot_text(out, "", title);
    fputc(' ', out);
    bool over = false;
    for (int64_t i = 0; i < x->count; i++) {
        over = over || share_over(what, all, false, i) > 0.0;
    }
    snprintf(title, sizeof title, "%s%s", x->path,
             over ? ", and the share of tokens over the context, which are not trained" : "");
    cli_plot_text(out, "", title);
    fprintf(out, " %d\n\n\n", least > 0.0 && most >= FACTOR * least);
    for (int64_t i = 0; i < x->count; i++) {
        char text[CELL + 16];
        cell(spec, what->x, order[i], text);
        if (over) { // gnuplot reads \n as a new line
            sp_append(text, sizeof text, "\\n%.1f %%",
                      100.0 * share_over(what, all, false, order[i]));
        }
        cli_plot_number(out, value_at(spec, what->x, order[i]));
        fputc(' ', out);
        cli_plot_text(out, "", text);
        fputc('\n', out);
    }
}

// "tp 8 (3 of 4 points fit)", "packed"
static void write_line_name(FILE *out, const drawn *what, const spots *all, int64_t line)
{
    char name[TITLE] = "";
    const sweep_spec *spec = what->summary->spec;
    if (what->other >= 0) {
        char value[CELL];
        cell(spec, what->other, line, value);
        bool is_kind = strcmp(sp_setting_leaf(spec->axes[what->other].path), "kind") == 0;
        sp_append(name, sizeof name, "%s%s%s", is_kind ? "" : axis_name(spec, what->other),
                  is_kind ? "" : " ", value);
    }
    if (all->fit[line] < all->lines[line]) {
        sp_append(name, sizeof name, " (%lld of %lld points fit)", (long long)all->fit[line],
                  (long long)all->lines[line]);
    }
    if (what->other >= 0 && share_over(what, all, true, line) > 0.0) {
        sp_append(name, sizeof name, ", %.1f %% of tokens over the context",
                  100.0 * share_over(what, all, true, line));
    }
    cli_plot_text(out, "", name);
    fputc('\n', out);
}

static sp_status write_lines(FILE *out, const void *given, sp_error *err)
{
    const drawn *what = given;
    const sweep_spec *spec = what->summary->spec;
    int64_t values = spec->axes[what->x].count;
    int64_t count = what->other >= 0 ? spec->axes[what->other].count : 1;
    spots all = {.what = what,
                 .spot = sp_calloc((size_t)(values * count), sizeof *all.spot),
                 .lines = sp_calloc((size_t)count, sizeof *all.lines),
                 .fit = sp_calloc((size_t)count, sizeof *all.fit)};
    for (int64_t i = 0; i < values * count; i++) {
        all.spot[i] = (spot){(double)NAN, (double)NAN, (double)NAN};
    }
    int64_t *order = ascending(spec, what->x);
    sp_status status = each_line(what->results, take_spot, &all, err);
    write_axis(out, what, &all, order);
    for (int64_t line = 0; line < count; line++) {
        fputs("\n\n", out);
        write_line_name(out, what, &all, line);
        for (int64_t i = 0; i < values; i++) {
            const spot *at = &all.spot[line * values + order[i]];
            cli_plot_number(out, value_at(spec, what->x, order[i]));
            cli_plot_number(out, at->ms);
            cli_plot_number(out, at->gib);
            fputc('\n', out);
        }
    }
    sp_free(order);
    sp_free(all.spot);
    sp_free(all.lines);
    sp_free(all.fit);
    return status;
}

// ---- two figures of all points, and their front ----

typedef struct dots {
    FILE *out;
    const sweep_summary_options *options;
} dots;

static void put_dot(void *context, const json_t *row, const sweep_trial *trial)
{
    const dots *d = context;
    const double *figure = trial->figure;
    (void)row;
    if (trial->status == SWEEP_OK && isfinite(figure[d->options->x]) &&
        isfinite(figure[d->options->y])) {
        fprintf(d->out, "%.10g %.10g\n", figure[d->options->x], figure[d->options->y]);
    }
}

static sp_status write_front(FILE *out, const void *given, sp_error *err)
{
    const drawn *what = given;
    const sweep_summary_options *options = &what->summary->options;
    fprintf(out, "# the two figures, all points, the front\n%s %s\n\n\n",
            sweep_figure_names[options->x], sweep_figure_names[options->y]);
    dots all = {.out = out, .options = options};
    sp_status status = each_line(what->results, put_dot, &all, err);
    fputs("\n\n", out);
    for (int64_t i = 0; i < what->summary->front_count; i++) {
        const sweep_best *point = &what->summary->front[i];
        const double *figure = point->trial.figure;
        // A blank line ends the line of one group.
        fputs(i > 0 && point[-1].group != point->group ? "\n" : "", out);
        fprintf(out, "%.10g %.10g\n", figure[options->x], figure[options->y]);
    }
    return status;
}

// Draws the points of the results file that fit: over the axes of the grid, or by figures x and y
// of the front, with the front.
static sp_status plot_points(const sweep_summary *summary, const listed_axes *listed,
                             const char *results, const char *path, sp_error *err)
{
    drawn what = {.summary = summary, .listed = listed, .results = results};
    const sweep_summary_options *options = &summary->options;
    if (!options->front) {
        (void)choose_lines(summary->spec, &what);
        return cli_plot("sweep.gp", path, write_lines, &what, err);
    }
    if (summary->front_count == 0) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: nothing to draw: no point that is listed has %s and %s", path,
                            sweep_figure_names[options->x], sweep_figure_names[options->y]);
    }
    return cli_plot("pareto.gp", path, write_front, &what, err);
}

enum { FIRST_POINTS = 5 }; // that --dry-run shows

typedef struct sweep_args {
    cli_common common;
    int64_t jobs, top, sample, search, seed;
    const char *output, *by, *where, *pareto, *plot, *shard;
    bool resume, dry_run, any_schedule;
    bool launched; // a launcher chooses the shard
} sweep_args;

_Static_assert((int)CLI_MOST_THREADS <= (int)SWEEP_MOST_THREADS, "threads");

// ---- what is asked ----

static sp_status summary_options(const sweep_args *args, sweep_summary_options *options,
                                 sp_error *err)
{
    *options = (sweep_summary_options){.top = args->top, .where = args->where};
    const char *unknown = NULL;
    char first[SP_ERROR_TEXT]; // of two figures
    if (args->by != NULL) {
        options->by_figure = true;
        unknown = sweep_figure_find(args->by, &options->by) ? NULL : args->by;
    }
    const char *pareto = args->pareto != NULL ? args->pareto
                         : args->plot != NULL ? "iteration_ms,peak_memory_gib"
                                              : NULL;
    if (pareto != NULL && unknown == NULL) {
        size_t length = strcspn(pareto, ",");
        options->front = true;
        if (pareto[length] != ',') {
            return sp_error_set(err, SP_ERR_USAGE,
                                "--pareto expects two figures with a comma, such as "
                                "iteration_ms,peak_memory_gib, got '%s'",
                                pareto);
        }
        snprintf(first, sizeof first, "%.*s", (int)length, pareto);
        const char *second = pareto + length + 1;
        unknown = !sweep_figure_find(first, &options->x)    ? first
                  : !sweep_figure_find(second, &options->y) ? second
                                                            : NULL;
    }
    if (unknown != NULL) {
        char hint[SP_NAME_HINT];
        char known[SP_NAME_CHOICE];
        bool near = sp_name_hint(unknown, sweep_figure_names, SWEEP_FIGURE_COUNT, hint)[0] != '\0';
        return sp_error_set(
            err, SP_ERR_USAGE, "'%s' is not a figure of a sweep%s", unknown,
            near ? hint : sp_name_choice(unknown, sweep_figure_names, SWEEP_FIGURE_COUNT, known));
    }
    return args->plot != NULL ? cli_plot_check(args->plot, err) : SP_OK;
}

// "2/8"
static bool read_shard(const char *text, sweep_choice_options *choice)
{
    int used = 0;
    long long shard = 0;
    long long shards = 0;
    bool read = sscanf(text, "%6lld/%6lld%n", &shard, &shards, &used) == 2 && text[used] == '\0';
    choice->shard = shard;
    choice->shards = shards;
    return read && shard >= 1 && shard <= shards && shards <= SWEEP_MOST_SHARDS;
}

// Processes that a launcher started take a shard each, also without --shard: they would write one
// file otherwise.
static sp_status read_launcher(sweep_args *args, sweep_choice_options *choice, sp_error *err)
{
    bool asked = args->shard != NULL;
    sp_launcher_place place;
    sp_status status = sp_launcher_read(getenv, false, &place, err);
    if (status != SP_OK || (!asked && place.ranks == 1)) {
        return status;
    }
    if (place.variable == NULL) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "--shard auto: no launcher started this process: %s are not set",
                            sp_launcher_variables);
    }
    choice->shard = place.rank + 1;
    choice->shards = place.ranks;
    if (args->jobs == 0 && place.local_ranks > 1) {
        // Ranks of one machine share its cores.
        args->jobs = cli_threads(0) / place.local_ranks;
        args->jobs = args->jobs > 0 ? args->jobs : 1;
    }
    if (!asked && place.rank == 0) {
        cli_warn(args->common.quiet || args->search > 0,
                 "%s says that %d processes share this sweep: each writes a file of its own, which "
                 "'slimpack merge' puts together (--shard auto)",
                 place.variable, place.ranks);
    }
    return SP_OK;
}

// The processes of a launcher have one command line: "layouts.jsonl" is "layouts-2-of-3.jsonl" of
// the second. A path that is NULL stays so.
static sp_status name_shard_file(const char **path, char named[SP_DATA_PATH],
                                 const sweep_choice_options *choice, sp_error *err)
{
    if (*path == NULL) {
        return SP_OK;
    }
    const char *slash = strrchr(*path, '/');
    const char *name = slash != NULL ? slash + 1 : *path;
    const char *dot = strrchr(name, '.');
    size_t stem = dot != NULL && dot > name ? (size_t)(dot - *path) : strlen(*path);
    int length = snprintf(named, SP_DATA_PATH, "%.*s-%lld-of-%lld%s", (int)stem, *path,
                          (long long)choice->shard, (long long)choice->shards, *path + stem);
    if (length >= SP_DATA_PATH) {
        return sp_error_system(err, *path, ENAMETOOLONG);
    }
    *path = named;
    return SP_OK;
}

// Where a launcher chooses the shard, its files get names of their own: in names[0] and names[1].
static sp_status choice_options(sweep_args *args, sweep_choice_options *choice,
                                char names[2][SP_DATA_PATH], sp_error *err)
{
    *choice =
        (sweep_choice_options){.sample = args->sample, .search = args->search, .seed = args->seed};
    bool launcher = args->shard == NULL || strcmp(args->shard, "auto") == 0;
    if (!launcher && !read_shard(args->shard, choice)) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "--shard expects I/N, 1 to N, such as 2/8, or auto, got '%s'",
                            args->shard);
    }
    sp_status status = launcher ? read_launcher(args, choice, err) : SP_OK;
    if (status != SP_OK) {
        return status;
    }
    if (args->seed > 0 && args->sample == 0 && args->search == 0) {
        return sp_error_set(err, SP_ERR_USAGE, "--seed is for --sample and --search");
    }
    if (args->search > 0 && (args->sample > 0 || choice->shards > 0)) {
        return sp_error_set(err, SP_ERR_USAGE, "--search chooses its own points: no --%s with it%s",
                            args->sample > 0 ? "sample" : "shard",
                            args->sample == 0 && args->shard == NULL
                                ? ", which several processes of one launcher need"
                                : "");
    }
    args->launched = launcher && choice->shards > 0;
    if (args->launched) {
        status = name_shard_file(&args->output, names[0], choice, err);
        status = status == SP_OK ? name_shard_file(&args->plot, names[1], choice, err) : status;
    }
    return status;
}

// ---- --dry-run ----

static int print_points(const sweep_spec *spec, const sweep_choice *choice, json_t *first)
{
    char combinations[CLI_GROUPED];
    char kept[CLI_GROUPED];
    printf("%s combination%s, %s point%s", cli_grouped(spec->combinations, combinations),
           sp_plural(spec->combinations), cli_grouped(choice->in_grid, kept),
           sp_plural(choice->in_grid));
    if (choice->points < choice->in_grid) {
        printf(", %s to evaluate", cli_grouped(choice->points, kept));
    }
    putchar('\n');
    size_t shown = json_array_size(first);
    for (size_t i = 0; i < shown; i++) {
        char *text = sweep_point_text(json_array_get(first, i));
        printf("  %s\n", text != NULL ? text : "?");
        free(text);
    }
    if ((int64_t)shown < choice->points) {
        puts("  ...");
    }
    json_decref(first);
    return 0;
}

static sp_status first_points(const sweep_spec *spec, sweep_choice *choice, json_t *first,
                              sp_error *err)
{
    bool found = true;
    sp_status status = SP_OK;
    while (status == SP_OK && found && json_array_size(first) < FIRST_POINTS) {
        int64_t combination = 0;
        int64_t digit[SWEEP_AXES];
        status = sweep_choice_next(choice, &combination, &found, err);
        if (status == SP_OK && found) {
            sweep_spec_digits(spec, combination, digit);
            json_array_append_new(first, sweep_spec_point(spec, digit));
        }
    }
    return status;
}

static int dry_run(const sweep_args *args, const sweep_spec *spec,
                   const sweep_choice_options *options)
{
    sp_error err = {0};
    sweep_choice choice;
    json_t *first = json_array();
    sp_status status = sweep_choice_begin(&choice, spec, options, &err);
    if (status == SP_OK) {
        status = first_points(spec, &choice, first, &err);
    }
    int exit_status = 0;
    if (status != SP_OK) {
        json_decref(first);
        exit_status = cli_fail(&err);
    } else if (args->common.json) {
        exit_status = cli_print_json(sp_json_object(SP_JSON("schema", "slimpack/sweep-points/1"),
                                                    SP_JSON("combinations", spec->combinations),
                                                    SP_JSON("points", choice.points),
                                                    SP_JSON("first", first)));
    } else {
        exit_status = print_points(spec, &choice, first);
    }
    sweep_choice_end(&choice);
    return exit_status;
}

// ---- the run ----

// Speed, which no two runs have in common, goes to standard error.
static void print_speed(bool quiet, int64_t points, double seconds)
{
    if (!quiet && isatty(STDERR_FILENO) == 1 && seconds > 0.0) {
        fprintf(stderr, "%lld point%s in %.1f s (%.0f/s)\n", (long long)points, sp_plural(points),
                seconds, (double)points / seconds);
    }
}

// Rows are printed as their lines come where all are asked for.
static void take_row(void *given, int64_t combination, const sweep_trial *trial, bool holds)
{
    point_rows *rows = given;
    if (holds) {
        note_listed(&rows->listed, rows->summary->spec, combination);
    }
    if (holds && rows->every) {
        put_row(rows, combination, trial);
    }
}

static void print_chosen_rows(const sweep_args *args, point_rows *rows)
{
    const sweep_summary *summary = rows->summary;
    bool front = args->pareto != NULL;
    int64_t count = front ? summary->front_count : args->top > 0 ? summary->best_count : 0;
    const sweep_best *points = front ? summary->front : summary->best;
    for (int64_t i = 0; i < count; i++) {
        put_row(rows, points[i].combination, &points[i].trial);
    }
}

// `rows` were begun with --csv.
static int print_answer(const sweep_args *args, const sweep_summary *summary, point_rows *rows)
{
    sp_error err = {0};
    int exit_status = 0;
    if (args->common.csv) {
        print_chosen_rows(args, rows);
    } else if (args->common.json) {
        exit_status = cli_print_json(summary_json(summary));
    } else {
        print_sweep(summary, args->output);
    }
    warn_of_points(&args->common, summary);
    // Where nothing is listed that is the answer.
    if (exit_status == 0 && args->plot != NULL && summary->best_count > 0 &&
        plot_points(summary, &rows->listed, args->output, args->plot, &err) != SP_OK) {
        exit_status = cli_fail(&err);
    }
    if (exit_status == 0 && summary->stopped) {
        cli_warn(args->common.quiet, "stopped by a signal; --resume goes on from here");
        return cli_exit_of_stop(true);
    }
    // One process that fails would end all of a launcher's; the answer is that of the merged file.
    return cli_answer(exit_status, args->launched || summary->best_count > 0);
}

static int sweep(const sweep_args *args, sweep_summary *summary, const sweep_choice_options *choice)
{
    sp_error err = {0};
    sweep_run_options how = {.threads = cli_threads(args->jobs),
                             .resume = args->resume,
                             .quiet = args->common.quiet,
                             .within_stack = !args->any_schedule,
                             .choice = *choice};
    point_rows rows = {.summary = summary};
    if (args->common.csv) {
        begin_rows(&rows, summary);
        rows.every = args->top == 0 && args->pareto == NULL;
    }
    summary->options.each = take_row;
    summary->options.context = &rows;
    cli_catch_stop(0);
    double started_s = sp_clock_s();
    if (sweep_run(summary->spec, args->output, &how, summary, &err) != SP_OK) {
        return cli_fail(&err);
    }
    // Nobody asked for the front of points that lines can show.
    drawn lines = {.summary = summary, .listed = &rows.listed};
    summary->options.front = summary->options.front && (args->pareto != NULL || args->search > 0 ||
                                                        !choose_lines(summary->spec, &lines));
    print_speed(args->common.quiet, summary->written - summary->resumed, sp_clock_s() - started_s);
    return print_answer(args, summary, &rows);
}

// The shortest context of the grid, or of its base, tells of all.
static void hint_context(bool quiet, const sweep_spec *spec)
{
    int64_t least = 0;
    for (int a = 0; a < spec->axis_count; a++) {
        size_t i;
        json_t *value;
        if (strcmp(spec->axes[a].path, "workload.context") != 0) {
            continue;
        }
        json_array_foreach (spec->axes[a].values, i, value) {
            int64_t tokens = cli_tokens_in(value);
            least = tokens > 0 && (least == 0 || tokens < least) ? tokens : least;
        }
    }
    const json_t *workload = json_object_get(json_object_get(spec->document, "base"), "workload");
    cli_hint_context(quiet,
                     least > 0 ? least : cli_tokens_in(json_object_get(workload, "context")));
}

// A scenario states samples, of which every one is as long as the context where it says no more.
static void hint_tokens(bool quiet, const sweep_spec *spec)
{
    static const char *const keeps[] = {"tokens_per_batch", "samples_per_batch", "lengths",
                                        "uniform"};
    const json_t *workload = json_object_get(json_object_get(spec->document, "base"), "workload");
    bool kept = json_object_get(workload, "tokens_per_batch") != NULL ||
                json_object_get(workload, "lengths") != NULL ||
                json_object_get(workload, "uniform") != NULL;
    size_t contexts = 0;
    for (int a = 0; a < spec->axis_count; a++) {
        const char *path = spec->axes[a].path;
        for (size_t k = 0; k < sizeof keeps / sizeof keeps[0]; k++) {
            kept = kept || (strncmp(path, "workload.", 9) == 0 && strcmp(path + 9, keeps[k]) == 0);
        }
        if (strcmp(path, "workload.context") == 0) {
            contexts = json_array_size(spec->axes[a].values);
        }
    }
    if (contexts > 1 && !kept) {
        cli_warn(quiet, "tokens a step grow with the context: workload.tokens_per_batch in place "
                        "of samples_per_batch keeps them");
    }
}

static int run_spec(const sweep_args *args, const sweep_spec *spec,
                    const sweep_summary_options *options, const sweep_choice_options *choice)
{
    sp_error err = {0};
    sweep_summary summary;
    hint_context(args->common.quiet, spec);
    hint_tokens(args->common.quiet, spec);
    int exit_status = sweep_summary_begin(&summary, spec, options, &err) != SP_OK ? cli_fail(&err)
                      : args->dry_run ? dry_run(args, spec, choice)
                                      : sweep(args, &summary, choice);
    sweep_summary_fini(&summary);
    return exit_status;
}

static int run(const void *given, const cli_operands *operands)
{
    sweep_args args = *(const sweep_args *)given;
    sp_error err = {0};
    sweep_spec spec;
    sweep_summary_options options;
    sweep_choice_options choice;
    char names[2][SP_DATA_PATH];
    if (args.output == NULL && !args.dry_run) {
        return cli_usage_error(&cli_cmd_sweep, "'sweep' needs -o FILE (or --dry-run)");
    }
    if (args.dry_run && (args.common.csv || args.common.markdown)) {
        return cli_usage_error(&cli_cmd_sweep,
                               "--csv and --markdown are of points that were evaluated: --dry-run "
                               "--json prints those of the grid");
    }
    if (args.common.csv && args.pareto != NULL && (args.by != NULL || args.top > 0)) {
        return cli_usage_error(&cli_cmd_sweep,
                               "--csv prints the front of --pareto: no --%s with it",
                               args.by != NULL ? "by" : "top");
    }
    if (args.common.csv && args.by != NULL && args.top == 0) {
        return cli_usage_error(
            &cli_cmd_sweep, "--csv prints every point in the order of the grid: --by needs --top");
    }
    if (summary_options(&args, &options, &err) != SP_OK ||
        choice_options(&args, &choice, names, &err) != SP_OK ||
        sweep_spec_read(operands->items[0], &spec, &err) != SP_OK) {
        return cli_fail(&err);
    }
    int exit_status = run_spec(&args, &spec, &options, &choice);
    sweep_spec_fini(&spec);
    return exit_status;
}

// ---- the command ----

static const cli_option options[] = {
    CLI_TEXT_OPTION(CLI_KEPT, 'o', "output", "FILE", sweep_args, output,
                    "results file, one JSON object per line in the order of the points"),
    CLI_FLAG_OPTION("resume", sweep_args, resume,
                    "go on with the results file of a sweep that was stopped; of a finished one "
                    "only the answer is printed again"),
    CLI_FLAG_OPTION("dry-run", sweep_args, dry_run,
                    "count the points and show the first ones, nothing else"),
    CLI_FLAG_OPTION("any-schedule", sweep_args, any_schedule,
                    "evaluate points that their stack cannot run, too"),
    CLI_INT_OPTION(
        "top", "N", sweep_args, top, 1, SWEEP_MOST_TOP,
        "points that are listed of each workload and model of the grid (default 5, beside a "
        "Pareto front 3)"),
    CLI_NAMES_OPTION("by", "FIGURE", sweep_args, by, sweep_figure_names,
                     "list the points with the best of a figure, such as peak_memory_gib"),
    CLI_TEXT_OPTION(CLI_STRING, 0, "where", "CONDITION", sweep_args, where,
                    "list points for which a condition on settings and figures holds, such as \"tp "
                    "<= 4 && peak_memory_gib < 60\"; all are evaluated"),
    CLI_NAMES_OPTION("pareto", "X,Y", sweep_args, pareto, sweep_figure_names,
                     "list the Pareto front of two figures, too"),
    CLI_FLAG_OPTION("csv", sweep_args, common.csv,
                    "print CSV on standard output in place of the summary: every point, or those "
                    "of --where, --top or --pareto"),
    CLI_FLAG_OPTION("markdown", sweep_args, common.markdown, "print the tables alone, as Markdown"),
    CLI_TEXT_OPTION(CLI_KEPT, 0, "plot", "FILE", sweep_args, plot,
                    "draw with gnuplot (.png, .svg, .pdf), or keep the data for that (.dat): time "
                    "and memory over the setting of numbers that the grid changes, a line for each "
                    "value of one more; of more settings, or with --pareto and --search, the "
                    "points and their Pareto front (default iteration_ms,peak_memory_gib)"),
    CLI_SAMPLE_OPTIONS(sweep_args),
    CLI_INT_OPTION("search", "N", sweep_args, search, 1, 1000000,
                   "evaluate N points that a search looks for along the Pareto front (default "
                   "tokens_per_s,peak_memory_gib)"),
    CLI_TEXT_OPTION(
        CLI_STRING, 0, "shard", "I/N|auto", sweep_args, shard,
        "evaluate every Nth point from number I on, each I into another file (-o); 'slimpack "
        "merge' puts the files together. auto: I and N are what mpirun or srun says, "
        "and the files' names follow"),
    CLI_JOBS_OPTION(sweep_args),
    CLI_COMMON_OPTIONS(sweep_args),
    {0},
};

static const char *const examples[] = {
    "slimpack sweep experiments/sweep_layouts.json --dry-run",
    "slimpack sweep experiments/sweep_layouts.json -o layouts.jsonl",
    "slimpack sweep experiments/sweep_layouts.json -o layouts.jsonl --resume --csv --top 100",
    "mpirun -n 4 slimpack sweep experiments/sweep_layouts.json -o layouts.jsonl --shard auto",
    "slimpack sweep experiments/sweep_layouts.json -o few.jsonl --search 500 --plot front.png",
    NULL,
};

const cli_command cli_cmd_sweep = {
    .name = "sweep",
    .summary = "evaluate every combination of a grid of settings",
    CLI_TAKES("SPEC", 1, 1),
    .description =
        "Evaluates a base scenario at every point of a grid, such as all layouts on a cluster. "
        "SPEC is a JSON object: \"base\" is a scenario, or the path of a file that holds one "
        "(from where SPEC lies), \"grid\" names settings by their dotted path (\"parallel.tp\") "
        "and gives each an array of values, \"where\" chooses among the combinations (\"tp*pp*dp "
        "== 512 && zero != 3\"). A path may lead into a model, cluster or stack that the base has "
        "as a name (\"cluster.nics_per_node\"), as with --set.\n\nEach point becomes a line of "
        "the results file: its settings, a status (ok; oom, it needs more memory than there is; "
        "infeasible, strategy or schedule cannot; invalid, the settings make no scenario; "
        "cannot_run, the stack of the point does not run it), the reason, its degrees (tp, cp, "
        "pp, dp), also those that the grid does not name, what its strategy chose "
        "(chunks_per_rank, row_tokens), and figures of the result. The reason of a point out of "
        "memory names the sample that needs the most alone, or the bytes of the plan, but no "
        "settings that would fit: those are mostly other points, and trying them takes simulate "
        "up to 25 steps. left_out_share and cut_share are the tokens that the strategy leaves "
        "out, or trains without the beginning of their document, over_length_share those that "
        "workload.over_length drops or truncates before batches are formed; the list of the "
        "fastest says them behind the row. The order of the lines is that of the points, the last "
        "setting turning fastest, whatever the number of threads. --resume goes on with the file "
        "after a kill; after Ctrl-C what is known is listed (exit status 130). A line that was "
        "changed is refused.\n\nAs tune does, a sweep answers within what the stack of a point "
        "runs ('slimpack help stacks'). What the base states, or an axis of one value, is taken "
        "as the stack's; points of several values that the stack lacks are cannot_run. "
        "--any-schedule evaluates them; their lines then say what the stack lacks.\n\nAt the end "
        "the fastest points that fit are listed, by tokens trained a second times the chance that "
        "the step runs (" CLI_CHANCE
        "), each with the median error of its profile on logged steps like it. --by and fronts "
        "take figures as they are, whatever the chance. Points that fit tightly come last, "
        "whatever they are listed by: such steps ran several times slower than predicted. They "
        "are those for which PyTorch's allocator, whose blocks are counted where the peak is "
        "above half of the memory limit, would reserve more than 97 % of it. memory_margin_gib is "
        "the limit less what it would reserve (peak_memory_reserved_gib) where blocks are "
        "counted, else less the peak. What points warn of stands in their lines and is told once "
        "for each kind, with the number of points.\n\nWhere the grid changes model or workload "
        "(workload.context, say), steps do not do the same work: the fastest points and the front "
        "are those of each workload and model. A condition may write numbers of tokens as "
        "settings do (\"context > 8K\").\n\nA grid may be larger than can be evaluated: --sample "
        "draws some, and --search begins with a sample and goes on with points near its Pareto "
        "front.\n\nWith --shard auto the processes that a launcher starts on any number of "
        "machines share a sweep: I and N are the rank and the count in the environment (Open "
        "MPI's OMPI_COMM_WORLD_*, PMI_* of MPICH, SLURM_* of srun). Of -o layouts.jsonl the "
        "second of three writes layouts-2-of-3.jsonl, and 'slimpack merge SPEC "
        "layouts-*-of-3.jsonl -o layouts.jsonl' puts all together; --resume goes on with each. "
        "The exit status of such a shard is 0 also where none of its points is ok: mpirun ends "
        "all processes where one fails. auto is assumed where a launcher started several "
        "processes. -j is the number of threads of each (default: the cores of its machine over "
        "the processes there; on large machines also give mpirun --bind-to none).\n\nThe last "
        "line (--json: go_on) is the command that simulates the first point listed: SPEC stands "
        "for its base where a scenario is asked for. The exit status is 1 when no point is ok, or "
        "none that is has what --where asks.",
    CLI_RUNS(run, sweep_args, options, examples),
};

// ---- merge ----

typedef struct merge_args {
    cli_common common;
    int64_t sample, seed;
    const char *output;
} merge_args;

static int print_merged(const merge_args *args, const sweep_summary *summary)
{
    int exit_status = 0;
    if (args->common.json) {
        exit_status = cli_print_json(summary_json(summary));
    } else {
        print_sweep(summary, args->output);
    }
    warn_of_points(&args->common, summary);
    return cli_answer(exit_status, summary->best_count > 0);
}

static int run_merge(const void *given, const cli_operands *operands)
{
    const merge_args *args = given;
    sp_error err = {0};
    sweep_spec spec;
    sweep_summary summary;
    const sweep_choice_options choice = {.sample = args->sample, .seed = args->seed};
    if (args->output == NULL) {
        return cli_usage_error(&cli_cmd_merge, "'merge' needs -o FILE");
    }
    if (args->seed > 0 && args->sample == 0) {
        return cli_usage_error(&cli_cmd_merge, "--seed is for --sample");
    }
    if (sweep_spec_read(operands->items[0], &spec, &err) != SP_OK) {
        return cli_fail(&err);
    }
    sp_status status = sweep_summary_begin(&summary, &spec, NULL, &err);
    if (status == SP_OK) {
        status = sweep_merge(&spec, &choice, (const char *const *)operands->items + 1,
                             operands->count - 1, args->output, &summary, &err);
    }
    int exit_status = status == SP_OK ? print_merged(args, &summary) : cli_fail(&err);
    sweep_summary_fini(&summary);
    sweep_spec_fini(&spec);
    return exit_status;
}

static const cli_option merge_options[] = {
    CLI_TEXT_OPTION(CLI_KEPT, 'o', "output", "FILE", merge_args, output, "results file"),
    CLI_SAMPLE_OPTIONS(merge_args),
    CLI_TABLE_OPTIONS(merge_args),
    CLI_COMMON_OPTIONS(merge_args),
    {0},
};

static const char *const merge_examples[] = {
    "slimpack sweep experiments/sweep_layouts.json --shard 1/2 -o layouts-1.jsonl",
    "slimpack sweep experiments/sweep_layouts.json --shard 2/2 -o layouts-2.jsonl",
    "slimpack merge experiments/sweep_layouts.json layouts-1.jsonl layouts-2.jsonl -o "
    "layouts.jsonl",
    "mpirun -n 4 slimpack sweep experiments/sweep_layouts.json --shard auto -o layouts.jsonl",
    "slimpack merge experiments/sweep_layouts.json layouts-*-of-4.jsonl -o layouts.jsonl",
    NULL,
};

const cli_command cli_cmd_merge = {
    .name = "merge",
    .summary = "put the results files of a sweep's shards together",
    CLI_TAKES("SPEC FILE...", 2, -1),
    .tells_repeated = true,
    .description =
        "Makes one results file of those that 'slimpack sweep SPEC --shard I/N' (or auto) wrote, "
        "in any order, one for each of the N shards: the file that one sweep of all points would "
        "have written. Each line is compared with its point, so a missing, unfinished or foreign "
        "file is an error. --sample and --seed are those of the shards.",
    CLI_RUNS(run_merge, merge_args, merge_options, merge_examples),
};
