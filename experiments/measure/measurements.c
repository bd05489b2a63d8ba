// Tables of measured steps are read and predicted, and their errors summed up.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "experiments/measure/measurement_map.h"
#include "experiments/measure/measurements.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/writer.h"
#include "solver/evaluate/evaluate.h"
#include "solver/strategy.h"

enum {
    PATH = SP_MEASUREMENTS_FILE,
    SHOWN = 64,
};

// One table being read.
typedef struct table_reader {
    sp_measurements *measurements;
    sp_csv csv;
    sp_map map;
    const char *const *overrides;
    int override_count;
    sp_scenario_cache *files;
    sp_error *err;
    // A mistake that no cell of the row explains is in every row: one is told of.
    bool stop;
    bool varies[SP_CSV_COLUMNS]; // over the rows
} table_reader;

static void case_fini(sp_measured_case *measured)
{
    sp_scenario_fini(&measured->scenario);
    sp_batches_fini(&measured->batches);
    if (measured->baseline != NULL) {
        case_fini(measured->baseline);
        sp_free(measured->baseline);
    }
}

void sp_measurements_fini(sp_measurements *measurements)
{
    for (size_t i = 0; i < measurements->count; i++) {
        case_fini(&measurements->cases[i]);
    }
    sp_free(measurements->cases);
    *measurements = (sp_measurements){0};
}

// ---- files ----

// Cut at the front where it is too long: the end says more.
static void note_path(sp_measurements *measurements, const char *csv_path)
{
    size_t length = strlen(csv_path);
    size_t most = sizeof measurements->path - 1;
    size_t kept = length < most ? length : most;
    memcpy(measurements->path, csv_path + (length - kept), kept + 1);
}

// The table that a map names, in the map's folder, or the one of its own name.
static sp_status table_of_map(const char *map_path, const json_t *map, char path[PATH],
                              sp_error *err)
{
    const char *table = json_string_value(json_object_get(map, "table"));
    const char *slash = strrchr(map_path, '/');
    int folder = slash != NULL ? (int)(slash - map_path) + 1 : 0;
    int length = table != NULL
                     ? snprintf(path, PATH, "%.*s%s", folder, map_path, table)
                     : snprintf(path, PATH, "%.*s.csv", (int)strlen(map_path) - 5, map_path);
    if (length >= PATH) {
        return sp_error_set(err, SP_ERR_IO, "%s: the path is too long", map_path);
    }
    if (json_object_get(map, "measured") == NULL && json_object_get(map, "columns") == NULL) {
        const char *kind = sp_json_kind(map);
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: expected a table (CSV) with a row for each measured step, or the "
                            "map of one (" SP_MAP_SCHEMA "), got %s",
                            map_path, kind != NULL ? kind : "another document");
    }
    if (access(path, R_OK) != 0) {
        return sp_error_set(err, SP_ERR_IO, "%s: the table that it is the map of, %s: %s", map_path,
                            path, strerror(errno));
    }
    return SP_OK;
}

void sp_measurements_name(const char *csv_path, char name[SP_MEASUREMENTS_NAME])
{
    const char *slash = strrchr(csv_path, '/');
    const char *base = slash != NULL ? slash + 1 : csv_path;
    const char *dot = strrchr(base, '.');
    size_t bytes = dot != NULL && dot > base ? (size_t)(dot - base) : strlen(base);
    bytes = bytes < SP_MEASUREMENTS_NAME ? bytes : SP_MEASUREMENTS_NAME - 1;
    memcpy(name, base, bytes);
    name[bytes] = '\0';
}

// Errors go to `own` where the caller asks for none.
static void begin_table(table_reader *reader, sp_measurements *measurements, const char *csv_source,
                        sp_error *err, sp_error *own)
{
    sp_error_clear(own);
    reader->err = err != NULL ? err : own;
    reader->measurements = measurements;
    *measurements = (sp_measurements){0};
    note_path(measurements, csv_source);
    sp_measurements_name(csv_source, measurements->name);
}

// table.csv -> table.json; false where that is no file.
static bool map_beside(const char *csv_path, char name[PATH])
{
    const char *slash = strrchr(csv_path, '/');
    const char *dot = strrchr(csv_path, '.');
    size_t stem =
        dot != NULL && (slash == NULL || dot > slash) ? (size_t)(dot - csv_path) : strlen(csv_path);
    int bytes = stem < PATH ? snprintf(name, PATH, "%.*s.json", (int)stem, csv_path) : PATH;
    return bytes < PATH && strcmp(name, csv_path) != 0 && access(name, F_OK) == 0;
}

// *map stays NULL where the header says all.
static sp_status read_map(const char *csv_path, const char *map_path, json_t **map, char *name,
                          sp_error *err)
{
    if (map_path != NULL) {
        snprintf(name, PATH, "%s", map_path);
    } else if (!map_beside(csv_path, name)) {
        return SP_OK;
    }
    return sp_json_read_file(map_path != NULL ? map_path : name, SP_MAP_LIMIT_BYTES, map, err);
}

static bool has_rows(const table_reader *reader)
{
    for (size_t row = 0; row < reader->csv.rows; row++) {
        if (sp_map_takes(&reader->map, &reader->csv, row)) {
            return true;
        }
    }
    return false;
}

static bool varies(const sp_csv *csv, int column)
{
    for (size_t row = 1; row < csv->rows; row++) {
        if (strcmp(sp_csv_at(csv, row, column)->text, sp_csv_at(csv, 0, column)->text) != 0) {
            return true;
        }
    }
    return false;
}

// ---- one row ----

// The message of a scenario reader ("source: path: text") in its parts. An unknown key counts to
// the path. Returns the text.
static const char *split_message(const char *source, const char *message,
                                 char path[2 * SP_JSON_PATH], bool *unknown)
{
    static const char unknown_key[] = SP_UNKNOWN_KEY;
    const char *text = message;
    size_t prefix = strlen(source);
    path[0] = '\0';
    if (strncmp(message, source, prefix) == 0 && strncmp(message + prefix, ": ", 2) == 0) {
        text = message + prefix + 2;
    }
    size_t length = strcspn(text, ": ");
    if (length < SP_JSON_PATH && strncmp(text + length, ": ", 2) == 0) {
        memcpy(path, text, length);
        path[length] = '\0';
        text += length + 2;
    }
    *unknown = strncmp(text, unknown_key, sizeof unknown_key - 1) == 0;
    if (*unknown) {
        const char *key = text + sizeof unknown_key - 1;
        size_t used = strlen(path);
        snprintf(path + used, SP_JSON_PATH, "%s%.*s", used > 0 ? "." : "", (int)strcspn(key, "'"),
                 key);
    }
    return text;
}

// Tells it of the cell that set the path, or of the header where the path itself is wrong.
static void adopt_message(table_reader *reader, size_t row, const char *source, const char *message)
{
    char path[2 * SP_JSON_PATH];
    bool unknown = false;
    const char *text = split_message(source, message, path, &unknown);
    int c = sp_map_column_of(&reader->map, &reader->csv, row, path, unknown);
    reader->stop = reader->stop || c < 0 || unknown;
    if (c < 0) {
        sp_error_set(reader->err, SP_ERR_CONTENT, "%s", message);
        return;
    }
    const sp_csv_cell *header = sp_csv_header(&reader->csv, c);
    const sp_csv_cell *cell = unknown ? header : sp_csv_at(&reader->csv, row, c);
    // Which of its settings is wrong where the cell stands for several.
    bool one = reader->map.columns[c].target_count == 1;
    sp_error_at(reader->err, SP_ERR_CONTENT, reader->measurements->path, cell->line, cell->column,
                "column '%.*s'%s%s: %s", SHOWN, header->text, one ? "" : ": ", one ? "" : path,
                text);
}

static sp_status adopt_errors(table_reader *reader, size_t row, const char *source,
                              sp_status status, const sp_error *found)
{
    for (int i = 0; i < found->count; i++) {
        if (status == SP_ERR_CONTENT) {
            adopt_message(reader, row, source, found->message[i]);
        } else {
            sp_error_set(reader->err, status, "%s", found->message[i]);
        }
    }
    return status;
}

// Stated costs know neither tokens nor bytes.
static sp_status check_kind(table_reader *reader, const sp_scenario *scenario)
{
    sp_measured kind = reader->map.kind;
    if (!scenario->uniform || kind == SP_MEASURED_ITERATION_MS || kind == SP_MEASURED_BUBBLE_RATE ||
        kind == SP_MEASURED_SPEEDUP) {
        return SP_OK;
    }
    reader->stop = true;
    return sp_error_in(reader->err, SP_ERR_CONTENT, scenario->source, "uniform_costs",
                       "a table of %s needs a model", sp_measured_names[kind]);
}

static sp_status check_cells(table_reader *reader, size_t row, sp_measured_case *measured_case)
{
    const sp_scenario *scenario = &measured_case->scenario;
    int64_t ranks = sp_layout_ranks(&scenario->layout);
    int64_t group = scenario->layout.dp * scenario->strategy.microbatch_samples;
    sp_status status = SP_OK;
    for (int c = 0; c < reader->csv.columns; c++) {
        const sp_csv_cell *cell = sp_csv_at(&reader->csv, row, c);
        const char *name = sp_csv_header(&reader->csv, c)->text;
        sp_map_check check = reader->map.columns[c].check;
        double number = 0.0;
        bool is_number = sp_map_number(cell->text, &number);
        if (cell->text[0] == '\0') {
            continue;
        }
        measured_case->assumes_replica =
            measured_case->assumes_replica && check != SP_MAP_CHECK_RANKS;
        if (check == SP_MAP_CHECK_RANKS && (!is_number || number != (double)ranks)) {
            status = sp_map_wrong_cell(reader->err, reader->measurements->path, name, cell,
                                       "%lld, the row's tp x cp x pp x dp", (long long)ranks);
        } else if (check == SP_MAP_CHECK_WHOLE_MICROBATCHES &&
                   (!is_number || fmod(number, (double)group) != 0.0)) {
            status = sp_map_wrong_cell(reader->err, reader->measurements->path, name, cell,
                                       "a multiple of %lld, samples of a micro-batch times dp",
                                       (long long)group);
        }
    }
    return status;
}

// The last part of a column's name says enough where that is the path that it sets.
static const char *label_name(const sp_map_column *column, const char *name)
{
    const char *dot = strrchr(name, '.');
    bool is_path = column->target_count == 1 && strcmp(column->targets[0].path, name) == 0;
    return is_path && dot != NULL ? dot + 1 : name;
}

// Ends a text that was cut with "...", and in no character of several bytes.
static void mark_cut(char *text, size_t bytes)
{
    size_t end = bytes - sizeof "...";
    while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80) {
        end--;
    }
    memcpy(text + end, "...", sizeof "...");
}

// Column c of a row behind what the text has already; it may be cut, then the size is `bytes` or
// more.
static size_t add_column(const table_reader *reader, size_t row, int c, char *text, size_t used,
                         size_t bytes)
{
    const sp_csv *csv = &reader->csv;
    const sp_map_column *column = &reader->map.columns[c];
    return used + (size_t)snprintf(text + used, bytes - used, "%s%s=%s", used > 0 ? " " : "",
                                   label_name(column, sp_csv_header(csv, c)->text),
                                   sp_csv_at(csv, row, c)->text);
}

static void write_label(const table_reader *reader, size_t row, int measured, char *label,
                        size_t bytes)
{
    size_t used = 0;
    label[0] = '\0';
    for (int c = 0; c < reader->csv.columns && used < bytes; c++) {
        if (reader->map.columns[c].in_label && reader->varies[c]) {
            used = add_column(reader, row, c, label, used, bytes);
        }
    }
    if (reader->map.measured_count > 1 && used < bytes) {
        used += (size_t)snprintf(label + used, bytes - used, "%s%s", used > 0 ? " " : "",
                                 reader->map.measured[measured].column);
    }
    if (used >= bytes) {
        mark_cut(label, bytes);
    }
}

static void write_cell(const table_reader *reader, size_t row, char *cell, size_t bytes)
{
    size_t used = 0;
    cell[0] = '\0';
    for (int c = 0; c < reader->csv.columns && used < bytes; c++) {
        if (reader->map.columns[c].in_cell) {
            used = add_column(reader, row, c, cell, used, bytes);
        }
    }
}

static bool measured_number(const sp_map *map, const char *text, double *number)
{
    const json_t *value = json_object_get(map->measured_values, text);
    bool is_number = map->measured_values != NULL ? value != NULL : sp_map_number(text, number);
    if (map->kind == SP_MEASURED_FITS && value == NULL &&
        (sp_same_name(text, "true") || sp_same_name(text, "false"))) {
        *number = sp_same_name(text, "true") ? 1.0 : 0.0;
        return true;
    }
    *number = ((value != NULL ? json_number_value(value) : *number) - map->less) * map->scale;
    return is_number;
}

static sp_status read_measured(table_reader *reader, size_t row, int measured,
                               sp_measured_case *measured_case)
{
    const char *name = reader->map.measured[measured].column;
    const sp_csv_cell *cell = sp_csv_at(&reader->csv, row, reader->map.measured[measured].index);
    double value = 0.0;
    bool is_number = measured_number(&reader->map, cell->text, &value);
    measured_case->measured = value;
    measured_case->at_most = reader->map.measured[measured].at_most;
    measured_case->row = row;
    measured_case->line = cell->line;
    measured_case->column = cell->column;
    snprintf(measured_case->measured_column, sizeof measured_case->measured_column, "%s", name);
    write_label(reader, row, measured, measured_case->label, sizeof measured_case->label);
    write_cell(reader, row, measured_case->cell, sizeof measured_case->cell);
    bool fits = reader->map.kind == SP_MEASURED_FITS;
    bool bubble = reader->map.kind == SP_MEASURED_BUBBLE_RATE;
    bool good = fits     ? value == 0.0 || value == 1.0
                : bubble ? value > 0.0 && value < 1.0
                         : isfinite(value) && value > 0.0;
    if (is_number && good) {
        return SP_OK;
    }
    char expected[SP_MAP_LIST] = "a finite number above 0";
    if (!is_number && strchr(cell->text, ',') != NULL) {
        strcpy(expected, "a finite number above 0, with a decimal point and no other mark");
    }
    if (!is_number && reader->map.measured_values != NULL) {
        sp_map_list_values(reader->map.measured_values, expected);
    } else if (fits) {
        strcpy(expected, "0 (did not run) or 1 (ran)");
    } else if (bubble) {
        strcpy(expected, "a share above 0 and below 1");
    }
    return sp_map_wrong_cell(reader->err, reader->measurements->path, name, cell, "%s", expected);
}

static sp_status read_scenario(table_reader *reader, size_t row, json_t *document,
                               sp_measured_case *measured_case)
{
    char source[SP_SOURCE_NAME];
    sp_error found = {0};
    int line = sp_csv_at(&reader->csv, row, 0)->line;
    snprintf(source, sizeof source, "%s:%d", reader->measurements->path, line);
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < reader->override_count; i++) {
        status = sp_scenario_override(document, reader->overrides[i], reader->err);
    }
    if (status != SP_OK) {
        return status;
    }
    sp_scenario *scenario = &measured_case->scenario;
    status = sp_scenario_from_json_cached(document, source, reader->files, scenario, &found);
    if (status == SP_OK && !scenario->uniform) {
        status = sp_strategy_check(scenario->strategy.kind, source, &found);
    }
    if (status == SP_OK) {
        status = sp_strategy_check_shares(scenario, &found);
        measured_case->assumes_replica = sp_scenario_assumes_replica(scenario, document);
    }
    if (status != SP_OK) {
        sp_scenario_fini(scenario);
        return adopt_errors(reader, row, source, status, &found);
    }
    status = check_kind(reader, scenario);
    if (status == SP_OK) {
        status = check_cells(reader, row, measured_case);
    }
    if (status == SP_OK) {
        status = sp_evaluate_batches(scenario, &measured_case->batches, reader->err);
    }
    if (status != SP_OK) {
        sp_scenario_fini(scenario);
    }
    return status;
}

static sp_status read_row(table_reader *reader, size_t row, int measured, bool baseline,
                          sp_measured_case *measured_case)
{
    json_t *document = NULL;
    const sp_measurements *m = reader->measurements;
    sp_status status =
        sp_map_row(&reader->map, &reader->csv, m->path, m->file[0] != '\0' ? m->file : m->path, row,
                   measured, baseline, &document, reader->err);
    if (status == SP_OK) {
        status = read_scenario(reader, row, document, measured_case);
    }
    json_decref(document);
    return status;
}

static sp_status read_baseline(table_reader *reader, size_t row, int measured,
                               sp_measured_case *measured_case)
{
    sp_measured_case *baseline = sp_calloc(1, sizeof *baseline);
    sp_status status = read_row(reader, row, measured, true, baseline);
    if (status == SP_OK) {
        measured_case->baseline = baseline;
    } else {
        sp_free(baseline);
    }
    return status;
}

static sp_status read_case(table_reader *reader, size_t row, int measured,
                           sp_measured_case *measured_case)
{
    sp_status status = read_measured(reader, row, measured, measured_case);
    if (status == SP_OK) {
        status = read_row(reader, row, measured, false, measured_case);
    }
    if (status == SP_OK && reader->map.baseline.given) {
        status = read_baseline(reader, row, measured, measured_case);
        if (status != SP_OK) {
            case_fini(measured_case);
        }
    }
    return status;
}

// ---- the table ----

// Errors of several rows are collected; what no cell is to blame for ends it.
static sp_status read_cases(table_reader *reader)
{
    sp_measurements *measurements = reader->measurements;
    size_t columns = (size_t)reader->map.measured_count;
    measurements->cases = sp_calloc(reader->csv.rows * columns, sizeof *measurements->cases);
    for (int c = 0; c < reader->csv.columns; c++) {
        reader->varies[c] = varies(&reader->csv, c);
    }
    for (size_t i = 0; i < reader->csv.rows * columns && !reader->stop; i++) {
        if (!sp_map_takes(&reader->map, &reader->csv, i / columns)) {
            continue;
        }
        sp_measured_case *next = &measurements->cases[measurements->count];
        sp_status status = read_case(reader, i / columns, (int)(i % columns), next);
        measurements->count += status == SP_OK;
        reader->stop = reader->stop || (status != SP_OK && status != SP_ERR_CONTENT) ||
                       reader->err->count == SP_ERROR_MESSAGES;
    }
    return reader->err->status;
}

// Takes over the map and the CSV.
static sp_status read_table(table_reader *reader, json_t *map, const char *map_source)
{
    sp_measurements *measurements = reader->measurements;
    const char *path = measurements->path;
    sp_status status = SP_OK;
    bool of_header = map == NULL;
    if (of_header) {
        map_source = path;
        status = sp_map_of_header(&reader->csv, path, &map, reader->err);
    }
    if (status == SP_OK) {
        status = sp_map_from_json(map, map_source, path, &reader->csv, &reader->map, reader->err);
    }
    reader->map.of_header = of_header;
    if (status == SP_OK && !has_rows(reader)) {
        status = sp_error_set(reader->err, SP_ERR_CONTENT,
                              reader->csv.rows == 0 ? "%s: has a header and no rows"
                                                    : "%s: has no row that the map takes",
                              path);
    }
    if (status == SP_OK) {
        reader->files = sp_scenario_cache_new();
        sp_map_describe(&reader->map, measurements);
        status = read_cases(reader);
    }
    sp_scenario_cache_free(reader->files);
    sp_map_fini(&reader->map);
    sp_csv_fini(&reader->csv);
    if (status != SP_OK) {
        sp_measurements_fini(measurements);
    }
    return status;
}

sp_status sp_measurements_from_text(const char *csv_text, size_t bytes, const char *csv_source,
                                    json_t *map, const char *map_source,
                                    const char *const *overrides, int override_count,
                                    sp_measurements *measurements, sp_error *err)
{
    sp_error own;
    table_reader reader = {.overrides = overrides, .override_count = override_count};
    begin_table(&reader, measurements, csv_source, err, &own);
    sp_status status = sp_csv_read_text(csv_text, bytes, csv_source, &reader.csv, reader.err);
    if (status != SP_OK) {
        json_decref(map);
        return status;
    }
    return read_table(&reader, map, map_source);
}

sp_status sp_measurements_read(const char *csv_path, const char *map_path,
                               const char *const *overrides, int override_count,
                               sp_measurements *measurements, sp_error *err)
{
    sp_error own;
    char map_name[PATH];
    char table_path[PATH];
    json_t *map = NULL;
    table_reader reader = {.overrides = overrides, .override_count = override_count};
    begin_table(&reader, measurements, csv_path, err, &own);
    const char *ending = strrchr(csv_path, '.');
    bool by_map =
        map_path == NULL && ending != NULL && ending != csv_path && strcmp(ending, ".json") == 0;
    sp_status status = read_map(csv_path, by_map ? csv_path : map_path, &map, map_name, reader.err);
    if (status == SP_OK && by_map) {
        status = table_of_map(csv_path, map, table_path, reader.err);
        csv_path = table_path;
        note_path(measurements, table_path);
    }
    if (status == SP_OK) {
        snprintf(measurements->file, sizeof measurements->file, "%s", csv_path);
        status = sp_csv_read_file(csv_path, &reader.csv, reader.err);
    }
    if (status != SP_OK) {
        json_decref(map);
        return status;
    }
    return read_table(&reader, map, map_name);
}

// ---- Predictions ----

// Returns the measured quantity of a result; of a speed-up the time.
static double value_of(sp_measured kind, const sp_result *result)
{
    switch (kind) {
    case SP_MEASURED_ITERATION_MS:
    case SP_MEASURED_SPEEDUP:
        return sp_result_iteration_ms(result);
    case SP_MEASURED_TOKENS_PER_S:
        return sp_result_tokens_per_s(result);
    case SP_MEASURED_TOKENS_PER_GPU_S:
        return sp_result_tokens_per_gpu_s(result);
    case SP_MEASURED_ALLOCATOR_PEAK_BYTES:
        return (double)result->allocator_peak_bytes;
    case SP_MEASURED_FIRST_RANK_RESERVED_BYTES:
        return (double)result->rank_reserved_bytes;
    case SP_MEASURED_LAST_RANK_BYTES:
        return (double)result->rank_peak_bytes;
    case SP_MEASURED_BUBBLE_RATE:
        return result->published_bubble_ratio >= 0.0 ? result->published_bubble_ratio
                                                     : sp_result_bubble_ratio_longest_stage(result);
    case SP_MEASURED_FITS:
        return sp_result_fits(result) == SP_FITS_NO ? 0.0 : 1.0;
    }
    SP_UNREACHABLE("a measured quantity");
}

// With another profile in place of its own. What the copy points to stays the case's.
static sp_status evaluate_with(const sp_measured_case *measured, const sp_profile *profile,
                               const sp_evaluate_options *options, sp_result *result, sp_error *err)
{
    sp_scenario *scenario = sp_malloc(sizeof *scenario);
    memcpy(scenario, &measured->scenario, sizeof *scenario);
    sp_profile_copy(profile, &scenario->profile);
    scenario->profile.algorithm = measured->scenario.profile.algorithm;
    scenario->profile.flash_2.is_used = measured->scenario.profile.flash_2.is_used;
    sp_profile_join(&scenario->profile, &scenario->cluster);
    sp_status status = sp_evaluate(scenario, &measured->batches, options, result, err);
    sp_profile_fini(&scenario->profile);
    sp_free(scenario);
    return status;
}

static sp_status evaluate(const sp_measured_case *measured, sp_measured kind,
                          const sp_profile *profile, sp_result *result, sp_error *err)
{
    const sp_evaluate_options options = {
        // Rows of a cell that fit well may be picked.
        .allocator_peak = kind == SP_MEASURED_ALLOCATOR_PEAK_BYTES ||
                          (measured->cell[0] != '\0' && measured->reserved_bytes == 0),
        .reserved_bytes = measured->reserved_bytes,
        .rank_peak = kind == SP_MEASURED_FIRST_RANK_RESERVED_BYTES ? SP_FIRST_RANK
                     : kind == SP_MEASURED_LAST_RANK_BYTES         ? SP_LAST_RANK
                                                                   : SP_NO_RANK,
        .no_bounds = true,
        .no_causes = true,
        .any_rate = profile != NULL};
    return profile != NULL
               ? evaluate_with(measured, profile, &options, result, err)
               : sp_evaluate(&measured->scenario, &measured->batches, &options, result, err);
}

sp_status sp_measured_case_evaluate(const sp_measured_case *measured, sp_measured kind,
                                    const sp_profile *profile, double *predicted, sp_result *result,
                                    sp_error *err)
{
    SP_TRY(evaluate(measured, kind, profile, result, err));
    sp_status status = SP_OK;
    *predicted = value_of(kind, result);
    if (measured->baseline != NULL) {
        sp_result baseline = {0};
        status = evaluate(measured->baseline, kind, profile, &baseline, err);
        *predicted = status == SP_OK ? value_of(kind, &baseline) / *predicted : 0.0;
        sp_result_fini(&baseline);
    } else if (sp_measured_is_memory(kind) && *predicted == 0.0) {
        const sp_warnings *said = &result->warnings;
        status = sp_error_in(err, SP_ERR_CONTENT, measured->scenario.source, NULL, "%s",
                             said->count > 0 ? said->text[said->count - 1]
                                             : "no allocator's peak can be computed");
    }
    if (status != SP_OK) {
        sp_result_fini(result);
    }
    return status;
}

sp_status sp_measured_case_count(sp_measured_case *measured, sp_measured kind, sp_error *err)
{
    sp_result result = {0};
    if (measured->cell[0] == '\0' || measured->reserved_bytes > 0) {
        return SP_OK;
    }
    SP_TRY(evaluate(measured, kind, NULL, &result, err));
    measured->reserved_bytes = result.reserved_peak_bytes;
    sp_result_fini(&result);
    return SP_OK;
}

sp_status sp_measured_case_predict(const sp_measured_case *measured, sp_measured kind,
                                   const sp_profile *profile, double *predicted, sp_error *err)
{
    sp_result result = {0};
    SP_TRY(sp_measured_case_evaluate(measured, kind, profile, predicted, &result, err));
    sp_result_fini(&result);
    return SP_OK;
}

// ---- measured values in a wrong unit ----

// Beyond what a profile gets wrong, below the 1000 of a wrong unit.
static const double most_off = 100.0;

// Guesses the unit where the measured value is far below, or far above, the predicted one.
static const char *suspected_unit(sp_measured kind, double scale, double over)
{
    switch (kind) {
    case SP_MEASURED_ITERATION_MS:
        if (scale == 1e3) {
            return over < 1.0 ? "is it in minutes?" : "is it in milliseconds?";
        }
        return over < 1.0 ? "is it in seconds?" : "is it in microseconds?";
    case SP_MEASURED_TOKENS_PER_GPU_S:
        return over < 1.0 ? "is it in thousands, or samples per second?"
                          : "is it of all GPUs together?";
    case SP_MEASURED_TOKENS_PER_S:
        return over < 1.0 ? "is it of one GPU, in thousands, or samples per second?"
                          : "is it of more than one second?";
    case SP_MEASURED_ALLOCATOR_PEAK_BYTES:
    case SP_MEASURED_FIRST_RANK_RESERVED_BYTES:
    case SP_MEASURED_LAST_RANK_BYTES:
        if (over > 1.0) {
            return "is it of all GPUs together?";
        }
        return over < 1e-7 ? "is it in GiB?" : over < 1e-4 ? "is it in MiB?" : "is it in KiB?";
    case SP_MEASURED_BUBBLE_RATE:
    case SP_MEASURED_SPEEDUP:
    case SP_MEASURED_FITS:
        break;
    }
    return "is it in percent?";
}

static bool is_off(double over)
{
    return !(over <= most_off && over >= 1.0 / most_off);
}

// Rows of fewer GPUs say nothing: a profile may be so far off.
enum { FEWEST_GPUS = 4 };

// By how much a throughput is too small in this row if it counts one GPU in place of all, or too
// large if it counts all in place of one; 0: the two do not differ enough to tell.
static double gpus_apart(const sp_measured_case *c, double over, sp_measured kind)
{
    int64_t gpus = sp_layout_ranks(&c->scenario.layout);
    return gpus < FEWEST_GPUS                 ? 0.0
           : kind == SP_MEASURED_TOKENS_PER_S ? (double)gpus * over
                                              : over / (double)gpus;
}

static sp_status check_gpus(const sp_measurements *m, const double *predicted, sp_error *err)
{
    for (size_t i = 0; i < m->count; i++) {
        double apart = gpus_apart(&m->cases[i], m->cases[i].measured / predicted[i], m->kind);
        if (!(apart > 0.6 && apart < 1.7)) {
            return SP_OK;
        }
    }
    const sp_measured_case *c = &m->cases[0];
    bool one = m->kind == SP_MEASURED_TOKENS_PER_S;
    return sp_error_at(
        err, SP_ERR_CONTENT, m->path, c->line, c->column,
        "column '%s': got %.6g where %.6g is predicted on %lld GPUs, and is off by "
        "about their number in every row: is it %s (%s)?",
        c->measured_column, c->measured, predicted[0],
        (long long)sp_layout_ranks(&c->scenario.layout),
        one ? "of one GPU" : "of all GPUs together",
        sp_measured_names[one ? SP_MEASURED_TOKENS_PER_GPU_S : SP_MEASURED_TOKENS_PER_S]);
}

sp_status sp_measurements_check_units(const sp_measurements *measurements, const double *predicted,
                                      sp_error *err)
{
    sp_status status = SP_OK;
    size_t off = 0;
    if (sp_measured_is_throughput(measurements->kind)) {
        SP_TRY(check_gpus(measurements, predicted, err));
    }
    for (size_t i = 0; i < measurements->count; i++) {
        off += is_off(measurements->cases[i].measured / predicted[i]);
    }
    // Ratios may well differ by any factor, and so may single steps that went wrong.
    bool ratio =
        measurements->kind == SP_MEASURED_BUBBLE_RATE || measurements->kind == SP_MEASURED_FITS;
    bool checks = !ratio && 2 * off > measurements->count;
    for (size_t i = 0; i < measurements->count && checks; i++) {
        const sp_measured_case *c = &measurements->cases[i];
        double over = c->measured / predicted[i];
        if (!is_off(over)) {
            continue;
        }
        // In the words of the cell.
        bool own = measurements->scale != 1.0;
        const char *kind = sp_measured_names[measurements->kind];
        status = sp_error_at(
            err, SP_ERR_CONTENT, measurements->path, c->line, c->column,
            "column '%s': expected about %.6g%s%s%s, got %.6g: %s", c->measured_column,
            predicted[i] / measurements->scale + measurements->less, own ? "" : " (",
            own ? "" : kind, own ? "" : ")", c->measured / measurements->scale + measurements->less,
            suspected_unit(measurements->kind, measurements->scale, over));
    }
    return status;
}
