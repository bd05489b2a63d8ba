#include "experiments/cli/report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/files.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/metrics/result.h"

enum {
    LINE_COLUMNS = 80,
    // Enough for every digit that can be told from rounding; the same on every compiler.
    JSON_DIGITS = 15,
};

// One of several processes that execute together says who it is, but for the first.
static int fail_of(int process, const sp_error *err)
{
    char who[32] = "";
    fflush(stdout);
    if (process > 0) {
        snprintf(who, sizeof who, "process %d: ", process);
    }
    for (int i = 0; i < err->count; i++) {
        fprintf(stderr, "%serror: %s\n", who, err->message[i]);
    }
    if (err->dropped > 0) {
        fprintf(stderr, "%serror: and %d more\n", who, err->dropped);
    }
    if (err->count == 0) {
        fprintf(stderr, "%serror: %s\n", who, sp_status_text(err->status));
    }
    return err->status == SP_ERR_STOPPED ? cli_exit_of_stop() : sp_status_exit(err->status);
}

int cli_fail(const sp_error *err)
{
    return fail_of(0, err);
}

static json_t *reason_json(const sp_error *err)
{
    char text[SP_ERROR_MESSAGES * SP_ERROR_TEXT];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < err->count; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? "; " : "",
                                 err->message[i]);
    }
    return json_string(used > 0 ? text : sp_status_text(err->status));
}

int cli_fail_json(bool json, const char *schema, json_t *nothing, int process, const sp_error *err)
{
    bool stopped = err->status == SP_ERR_STOPPED;
    if (!json || process > 0 || nothing == NULL || (err->status != SP_ERR_INFEASIBLE && !stopped)) {
        json_decref(nothing);
        return fail_of(process, err);
    }
    sp_json_put(nothing, "schema", json_string(schema));
    sp_json_put(nothing, "status", json_string(stopped ? "stopped" : "infeasible"));
    sp_json_put(nothing, "reason", reason_json(err));
    int printed = cli_print_json(nothing);
    int failed = fail_of(process, err);
    return printed != 0 ? printed : failed;
}

int cli_answer(int exit_status, bool positive)
{
    return exit_status == 0 && !positive ? sp_status_exit(SP_ERR_INFEASIBLE) : exit_status;
}

int cli_usage_error(const cli_command *command, const char *format, ...)
{
    va_list args;
    fflush(stdout);
    fputs("error: ", stderr);
    va_start(args, format);
    sp_vprint(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nrun 'slimpack help%s%s' for the usage\n", command == NULL ? "" : " ",
            command == NULL ? "" : command->name);
    return sp_status_exit(SP_ERR_USAGE);
}

void cli_warn(bool quiet, const char *format, ...)
{
    if (quiet) {
        return;
    }
    va_list args;
    fflush(stdout);
    fputs("warning: ", stderr);
    va_start(args, format);
    sp_vprint(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

static int print_json_text(const char *text, size_t bytes, void *out)
{
    sp_print_json_text(out, text, bytes);
    return ferror((FILE *)out) != 0 ? -1 : 0;
}

// jansson makes nothing of a text that is not UTF-8.
static sp_status check_json(const json_t *root, sp_error *err)
{
    return root != NULL
               ? SP_OK
               : sp_error_set(err, SP_ERR_CONTENT, "a name that is not UTF-8 has no place in JSON");
}

int cli_print_json(json_t *root)
{
    sp_error err = {0};
    if (check_json(root, &err) != SP_OK) {
        return cli_fail(&err);
    }
    // main() reports what could not be written, by the error flag of the stream.
    (void)json_dump_callback(root, print_json_text, stdout,
                             JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(JSON_DIGITS));
    json_decref(root);
    putchar('\n');
    return sp_status_exit(SP_OK);
}

// The error flag of the stream shows what could not be written.
static sp_status dump_json(FILE *file, const void *root, sp_error *err)
{
    (void)err;
    (void)json_dumpf(root, file, JSON_INDENT(2) | JSON_REAL_PRECISION(JSON_DIGITS));
    fputc('\n', file);
    return SP_OK;
}

sp_status cli_write_json(const char *path, json_t *root, sp_error *err)
{
    sp_status status = check_json(root, err);
    status = status == SP_OK ? cli_write_file(path, dump_json, root, err) : status;
    json_decref(root);
    return status;
}

void cli_print_wrapped(FILE *out, const char *text, int column, int indent)
{
    bool at_start = true;
    if (column < indent) {
        fprintf(out, "%*s", indent - column, "");
        column = indent;
    }
    while (*text != '\0') {
        if (strncmp(text, "\n\n", 2) == 0) {
            fprintf(out, "\n\n%*s", indent, "");
            column = indent;
            at_start = true;
            text += 2;
            continue;
        }
        size_t blanks = strspn(text, " \n");
        text += blanks;
        int word = (int)strcspn(text, " \n");
        if (!at_start && column + 1 + word > LINE_COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (!at_start) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", word, text);
        column += word;
        text += word;
        at_start = false;
    }
    fputc('\n', out);
}

// ---- tables ----

enum { CELL = 64 };

// The key or heading of the next column up to its end or '='.
static const char *name_of(const cli_row *row, char name[CELL])
{
    const char *text = strchr(row->columns, ' ') + 1;
    snprintf(name, CELL, "%.*s", (int)strcspn(text, "|="), text);
    return name;
}

static void put_cell(cli_row *row, const char *text)
{
    int width = (int)strtol(row->columns, NULL, 10);
    const char *space = !row->begun ? "" : width > 0 ? " " : "  ";
    fprintf(row->out, "%s%*s", space, width, text);
    row->begun = true;
    row->columns += strcspn(row->columns, "|");
    row->columns += *row->columns == '|';
}

void cli_print_heads(FILE *out, const char *columns)
{
    cli_row row = {.out = out, .columns = columns};
    while (*row.columns != '\0') {
        char name[CELL];
        const char *given = strpbrk(row.columns, "=|");
        if (given != NULL && *given == '=') {
            snprintf(name, sizeof name, "%.*s", (int)strcspn(given + 1, "|"), given + 1);
        } else if (name_of(&row, name)[0] == '@') {
            snprintf(name, sizeof name, "%s", sp_figure_find(name + 1)->label);
        }
        put_cell(&row, name);
    }
}

void cli_cell(cli_row *row, const char *format, ...)
{
    char text[SP_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put_cell(row, text);
}

void cli_number_cell(cli_row *row, const char *format, double value)
{
    char text[CELL];
    snprintf(text, sizeof text, isfinite(value) ? format : "-", value);
    put_cell(row, text);
}

void cli_figure_cells(cli_row *row, double (*value)(const void *source, const char *key),
                      const void *source)
{
    char name[CELL];
    while (*row->columns != '\0' && name_of(row, name)[0] == '@') {
        const sp_figure *figure = sp_figure_find(name + 1);
        double number = value(source, figure->key);
        char text[CELL];
        if (figure->digits == SP_SHORT_NUMBER) {
            cli_short_number(number, text);
        } else {
            snprintf(text, sizeof text,
                     !isfinite(number) ? "-"
                     : figure->percent ? "%.*f %%"
                                       : "%.*f",
                     figure->digits, figure->percent ? 100.0 * number : number);
        }
        put_cell(row, text);
    }
}

double cli_figure_of_result(const void *result, const char *key)
{
    return sp_figure_value(result, key);
}

const char *cli_short_number(double value, char text[CLI_SHORT_NUMBER])
{
    static const char *const units[] = {"", " K", " M", " G", " T"};
    int unit = 0;
    if (!isfinite(value)) {
        snprintf(text, CLI_SHORT_NUMBER, "-");
        return text;
    }
    while (fabs(value) >= 1000.0 && unit < 4) {
        value /= 1000.0;
        unit++;
    }
    snprintf(text, CLI_SHORT_NUMBER, unit == 0 ? "%.0f%s" : "%.2f%s", value, units[unit]);
    return text;
}

const char *cli_percent(double share, const char *format, char text[CLI_PERCENT])
{
    snprintf(text, CLI_PERCENT, isfinite(share) ? format : "-", 100.0 * share);
    return text;
}

const char *cli_grouped(int64_t value, char text[CLI_GROUPED])
{
    char digits[CLI_GROUPED];
    int n = snprintf(digits, sizeof digits, "%" PRId64, value);
    int used = 0;
    for (int i = 0; i < n; i++) {
        int left = n - i;
        bool after_digit = i > 0 && digits[i - 1] != '-';
        if (after_digit && left % 3 == 0) {
            text[used++] = ',';
        }
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}
