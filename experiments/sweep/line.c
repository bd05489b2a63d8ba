#include "experiments/sweep/line.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/json.h"

#define LINE_FLAGS (JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(SWEEP_DIGITS))

// ---- writing ----

// A member that is there where it says something.
static bool put_text(json_t *row, const char *key, const char *text)
{
    return text[0] == '\0' || sp_json_put(row, key, json_string(text));
}

static bool put_figure(json_t *row, const char *key, double value)
{
    return !isfinite(value) || sp_json_put(row, key, json_real(value));
}

static bool put_digest(json_t *row, const sweep_digest *digest)
{
    bool complete = true;
    for (int d = 0; complete && d < SWEEP_DEGREES && digest->degree[d] > 0; d++) {
        complete = sp_json_put(row, sweep_degree_names[d], json_integer(digest->degree[d]));
    }
    complete = complete && put_text(row, "strategy", digest->strategy) &&
               put_text(row, "schedule", digest->schedule);
    for (int f = 0; complete && f < SWEEP_FIGURE_COUNT; f++) {
        complete = put_figure(row, sweep_figure_names[f], digest->figure[f]);
    }
    if (complete && digest->fits != SP_FITS_NONE) {
        complete = sp_json_put(row, "fits", json_string(sp_fits_names[digest->fits]));
    }
    if (complete && digest->lossy) {
        complete = sp_json_put(row, "lossless", json_false());
    }
    if (complete && isfinite(digest->median_error)) {
        complete = sp_json_put(row, "error", json_pack("{s:f}", "median", digest->median_error));
    }
    complete = complete && put_text(row, "not_validated", digest->not_validated);
    return complete;
}

// Behind the members of a line stands a check of them, by which a line that was changed is told.
enum { CHECK = 32 }; // `,"check":"0123456789abcdef"}`

static void check_of(const char *members, size_t bytes, char check[CHECK])
{
    char tag[SWEEP_TAG];
    sweep_tag(members, bytes, tag);
    snprintf(check, CHECK, ",\"check\":\"%s\"}", tag);
}

// Lines of a version without checks are taken as they are.
static bool is_as_written(const json_t *row, const char *line, size_t bytes)
{
    char check[CHECK];
    check_of("", 0, check);
    size_t length = strlen(check);
    if (json_object_get(row, "check") == NULL) {
        return true;
    }
    if (bytes < length) {
        return false;
    }
    check_of(line, bytes - length, check);
    return memcmp(line + bytes - length, check, length) == 0;
}

// The line of a point with its newline, without what it has no value for; freed with free(). NULL
// when memory ran out.
static char *write_line(const sweep_spec *spec, int64_t combination, const sweep_digest *digest)
{
    int64_t digit[SWEEP_AXES];
    sweep_spec_digits(spec, combination, digit);
    json_t *row = json_object();
    char *line = NULL;
    if (sp_json_put(row, "point", sweep_spec_point(spec, digit)) &&
        sp_json_put(row, "status", json_string(sweep_status_names[digest->status])) &&
        put_text(row, "reason", digest->reason) &&
        sp_json_put(row, "base", json_string(spec->base_tag)) && put_digest(row, digest)) {
        size_t bytes = json_dumpb(row, NULL, 0, LINE_FLAGS);
        line = malloc(bytes + CHECK + 2);
        if (line != NULL && json_dumpb(row, line, bytes, LINE_FLAGS) == bytes) {
            check_of(line, bytes - 1, line + bytes - 1);
            strcat(line, "\n");
        }
    }
    json_decref(row);
    return line;
}

sp_status sweep_row_evaluate(const sweep_evaluator *evaluator, int thread, sweep_row *row,
                             sp_error *err)
{
    sp_status status = sweep_evaluate_point(evaluator, thread, row->combination, &row->digest, err);
    if (status == SP_OK) {
        row->line = write_line(evaluator->spec, row->combination, &row->digest);
        status = row->line != NULL ? SP_OK : sp_error_no_memory(err, "a line of results");
    }
    return status;
}

// ---- reading ----

static double figure(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static int degree(const json_t *row, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(row, key));
    return value > 0 && value <= INT_MAX ? (int)value : 0;
}

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? text : "";
}

bool sweep_digest_read(const json_t *row, sweep_digest *digest, const char **expected)
{
    sweep_digest_begin(digest, SWEEP_STATUSES);
    const char *status = json_string_value(json_object_get(row, "status"));
    for (int s = 0; status != NULL && sweep_status_names[s] != NULL; s++) {
        if (strcmp(status, sweep_status_names[s]) == 0) {
            digest->status = (sweep_status)s;
        }
    }
    *expected = "an object with a point";
    if (!json_is_object(json_object_get(row, "point"))) {
        return false;
    }
    *expected = "a status: ok, oom, infeasible or invalid";
    if (digest->status == SWEEP_STATUSES) {
        return false;
    }
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        digest->figure[f] = figure(row, sweep_figure_names[f]);
    }
    digest->median_error = figure(json_object_get(row, "error"), "median");
    digest->lossy = json_is_false(json_object_get(row, "lossless"));
    for (int d = 0; d < SWEEP_DEGREES; d++) {
        digest->degree[d] = degree(row, sweep_degree_names[d]);
    }
    snprintf(digest->strategy, sizeof digest->strategy, "%s", text_of(row, "strategy"));
    snprintf(digest->schedule, sizeof digest->schedule, "%s", text_of(row, "schedule"));
    const char *fits = text_of(row, "fits");
    for (int f = 0; sp_fits_names[f] != NULL; f++) {
        digest->fits = strcmp(fits, sp_fits_names[f]) == 0 ? (sp_fits)f : digest->fits;
    }
    snprintf(digest->not_validated, sizeof digest->not_validated, "%s",
             text_of(row, "not_validated"));
    snprintf(digest->reason, sizeof digest->reason, "%s", text_of(row, "reason"));
    return true;
}

char *sweep_point_text(const json_t *point)
{
    return json_dumps(point, LINE_FLAGS);
}

sp_status sweep_line_of_other(const sweep_spec *spec, const sweep_line_at *at, const char *text,
                              sp_error *err)
{
    return sp_error_at(err, SP_ERR_CONTENT, at->path, at->number, 0,
                       "%s: these are not the results of %s", text, spec->source);
}

static bool has_value(const sweep_axis *axis, const json_t *value)
{
    size_t i = 0;
    while (i < (size_t)axis->count && !json_equal(json_array_get(axis->values, i), value)) {
        i++;
    }
    return i < (size_t)axis->count;
}

static bool is_of_grid(const sweep_spec *spec, const json_t *point)
{
    bool is = json_object_size(point) == (size_t)spec->axis_count;
    for (int a = 0; is && a < spec->axis_count; a++) {
        const json_t *value = json_object_get(point, spec->axes[a].path);
        is = value != NULL && has_value(&spec->axes[a], value);
    }
    return is;
}

static sp_status other_point(const sweep_spec *spec, const json_t *row, const char *expected,
                             const char *found, const sweep_line_at *at, sp_error *err)
{
    char text[SP_ERROR_TEXT / 2];
    snprintf(text, sizeof text, "expected point %.120s, got %.120s", expected, found);
    return is_of_grid(spec, json_object_get(row, "point"))
               ? sp_error_at(err, SP_ERR_CONTENT, at->path, at->number, 0,
                             "%s: the file was written with other --sample, --search, --seed, "
                             "--shard or --pareto, or for another 'where'",
                             text)
               : sweep_line_of_other(spec, at, text, err);
}

static sp_status same_point(const sweep_spec *spec, int64_t combination, const json_t *row,
                            const sweep_line_at *at, sp_error *err)
{
    int64_t digit[SWEEP_AXES];
    const char *tag = json_string_value(json_object_get(row, "base"));
    if (tag != NULL && strcmp(tag, spec->base_tag) != 0) {
        return sweep_line_of_other(spec, at,
                                   "has another base, or a file that it names has changed", err);
    }
    sweep_spec_digits(spec, combination, digit);
    json_t *point = sweep_spec_point(spec, digit);
    char *expected = point != NULL ? sweep_point_text(point) : NULL;
    char *found = sweep_point_text(json_object_get(row, "point"));
    sp_status status = SP_OK;
    if (expected == NULL || found == NULL) {
        status = sp_error_no_memory(err, "the results of a sweep");
    } else if (strcmp(expected, found) != 0) {
        status = other_point(spec, row, expected, found, at, err);
    }
    json_decref(point);
    free(expected);
    free(found);
    return status;
}

sp_status sweep_line_read(const sweep_spec *spec, int64_t combination, const char *line,
                          size_t bytes, const sweep_line_at *at, sweep_digest *digest,
                          sp_error *err)
{
    const char *expected = "";
    json_error_t wrong;
    errno = 0;
    json_t *row = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (row == NULL) {
        return sp_json_load_error(err, at->path, at->number, &wrong);
    }
    sp_status status = SP_OK;
    if (!is_as_written(row, line, bytes)) {
        status = sp_error_at(err, SP_ERR_CONTENT, at->path, at->number, 0,
                             "the line was changed after it was written (its check differs): "
                             "without it and the lines behind it --resume evaluates them again");
    } else if (!sweep_digest_read(row, digest, &expected)) {
        status = sp_error_at(err, SP_ERR_CONTENT, at->path, at->number, 0, "expected %s", expected);
    }
    if (status == SP_OK) {
        status = same_point(spec, combination, row, at, err);
    }
    json_decref(row);
    return status;
}
