#include "experiments/cli/reproduce_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = 32, WIDEST = 46, MOST_ROWS = 60, WORST_ROWS = 10, FILE_BYTES = 900 };

// ---- the table ----

static const char *value_text(double value, const char *before, char text[CELL])
{
    snprintf(text, CELL, isfinite(value) ? "%s%.*g" : "-", before, fabs(value) < 1.0 ? 4 : 6,
             value);
    return text;
}

static const char *error_text(double error, bool relative, bool with_sign, char text[CELL])
{
    if (!isfinite(error)) {
        return "-";
    }
    if (relative) {
        snprintf(text, CELL, with_sign ? "%+.2f %%" : "%.2f %%", 100.0 * error);
    } else {
        snprintf(text, CELL, with_sign ? "%+.4g" : "%.4g", error);
    }
    return text;
}

static void print_row(FILE *out, const figure_outcome *o, int width)
{
    static const char *const claims[] = {[FIGURE_AT_LEAST] = ">= ", [FIGURE_AT_MOST] = "<= "};
    char published[CELL];
    char computed[CELL];
    char error[CELL];
    char bar[CELL];
    const char *claim = o->claim == FIGURE_EQUAL ? "" : claims[o->claim];
    fprintf(out, "  %-*.*s %12s %12s %12s", width, width, o->label,
            value_text(o->published, claim, published), value_text(o->computed, "", computed),
            error_text(o->error, o->relative, true, error));
    if (o->has_bar) {
        fprintf(out, " %10s  %s", error_text(o->bar, o->relative, false, bar),
                o->within ? "within" : "outside");
    }
    fputc('\n', out);
    if (o->note[0] != '\0') {
        fputs("    ", out);
        cli_print_wrapped(out, o->note, 4, 4);
    }
    if (!o->within && o->why != NULL) {
        fputs("    why: ", out);
        cli_print_wrapped(out, o->why, 9, 9);
    }
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

static void print_rows(FILE *out, const figure_reproduction *r)
{
    size_t widest = strlen("point");
    for (size_t i = 0; i < r->count; i++) {
        size_t length = strlen(r->outcomes[i].label);
        widest = length > widest ? length : widest;
    }
    int width = (int)(widest < WIDEST || r->count <= MOST_ROWS ? widest : WIDEST);
    fprintf(out, "  %-*s %12s %12s %12s", width, "point", "published", "computed", "error");
    fputs(r->of_table ? "\n" : "        bar\n", out);
    if (r->count <= MOST_ROWS) {
        for (size_t i = 0; i < r->count; i++) {
            print_row(out, &r->outcomes[i], width);
        }
        return;
    }
    size_t row = r->count;
    double above = (double)HUGE_VAL;
    for (int i = 0; i < WORST_ROWS; i++) {
        row = next_worst(r, row, above);
        above = fabs(r->outcomes[row].error);
        print_row(out, &r->outcomes[row], width);
    }
    fprintf(out, "  (the %d rows with the largest errors, of %zu)\n", (int)WORST_ROWS, r->count);
}

const char *cli_verdict(const figure_reproduction *r, char text[CLI_VERDICT])
{
    char error[CELL];
    char bar[CELL];
    if (r->of_table) {
        snprintf(text, CLI_VERDICT, "%s: %s error of %zu rows %s, bar %s",
                 r->within ? "within" : "outside", r->relative ? "mean" : "largest", r->count,
                 error_text(r->table_error, r->relative, false, error),
                 error_text(r->table_bar, r->relative, false, bar));
    } else {
        snprintf(text, CLI_VERDICT, "%s: %zu of %zu within their bars",
                 r->within ? "within" : "outside", r->within_count, r->count);
    }
    return text;
}

void cli_print_reproduction(FILE *out, const figure_reproduction *r)
{
    char verdict[CLI_VERDICT];
    fprintf(out, "%s: %s\n  ", r->spec->name, r->spec->title);
    cli_print_wrapped(out, r->spec->source, 2, 2);
    if (r->of_table) {
        fprintf(out, "  %s of the table %s\n", r->unit, r->spec->table);
    }
    fputc('\n', out);
    print_rows(out, r);
    fputc('\n', out);
    for (size_t i = 0; i < json_array_size(r->spec->assumptions); i++) {
        fputs("  assumed: ", out);
        cli_print_wrapped(out, json_string_value(json_array_get(r->spec->assumptions, i)), 11, 11);
    }
    fprintf(out, "  %s\n", cli_verdict(r, verdict));
}

// ---- files ----

static sp_status write_text(FILE *file, const void *what, sp_error *err)
{
    (void)err;
    cli_print_reproduction(file, what);
    return SP_OK;
}

static sp_status write_data(FILE *file, const void *what, sp_error *err)
{
    const figure_reproduction *r = what;
    (void)err;
    fprintf(file, "# %s: label, published, computed\n", r->spec->name);
    for (size_t i = 0; i < r->count; i++) {
        const figure_outcome *o = &r->outcomes[i];
        fputc('"', file);
        for (const char *c = o->label; *c != '\0'; c++) {
            fputc(*c == '"' ? '\'' : *c, file);
        }
        fprintf(file, "\" %.15g %.15g\n", o->published, o->computed);
    }
    return SP_OK;
}

sp_status cli_write_reproduction(const char *folder, const char *format,
                                 const figure_reproduction *r, sp_error *err)
{
    char path[FILE_BYTES + FIGURE_NAME + 8];
    if (strlen(folder) > FILE_BYTES) {
        return sp_error_set(err, SP_ERR_USAGE, "-o: the name of the folder is too long");
    }
    snprintf(path, sizeof path, "%s/%s.txt", folder, r->spec->name);
    sp_status status = cli_write_file(path, write_text, r, err);
    if (status == SP_OK) {
        snprintf(path, sizeof path, "%s/%s.json", folder, r->spec->name);
        status = cli_write_json(path, figure_reproduction_json(r), err);
    }
    if (status == SP_OK && format != NULL) {
        snprintf(path, sizeof path, "%s/%s.%s", folder, r->spec->name, format);
        status = cli_plot("figure.gp", path, write_data, r, err);
    }
    return status;
}
