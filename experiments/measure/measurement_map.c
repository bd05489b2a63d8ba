// Reading a map: which column sets what; and the rows of its table as scenario documents.
#include "experiments/measure/measurement_map.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/writer.h"
#include "sim/scenario/scenario.h"

enum { QUOTE = 80 };

static const char *const check_names[] = {
    [SP_MAP_NO_CHECK] = "none",
    [SP_MAP_CHECK_RANKS] = "ranks",
    [SP_MAP_CHECK_WHOLE_MICROBATCHES] = "whole_microbatches",
    [SP_MAP_CHECK_WHOLE_MICROBATCHES + 1] = NULL,
};

typedef struct map_reader {
    sp_map *map;
    const sp_csv *csv;
    const char *csv_source;
    sp_error *err;
    const char *names[SP_CSV_COLUMNS]; // of the table's columns
    bool named[SP_CSV_COLUMNS];        // in the map
} map_reader;

void sp_map_fini(sp_map *map)
{
    json_decref(map->document);
    *map = (sp_map){0};
}

// ---- what the table is ----

static void read_description(sp_object *root, sp_measurements *measurements)
{
    sp_object published;
    measurements->published_error = -1.0;
    sp_object_text(root, "source", "", measurements->source, sizeof measurements->source);
    sp_object_text(root, "licence", "", measurements->licence, sizeof measurements->licence);
    bool in_percent = sp_object_has(root, "bound_percent");
    if (in_percent && sp_object_has(root, "bound")) {
        sp_object_error(root, "bound", "give bound or bound_percent, not both");
    }
    if (in_percent) {
        measurements->bound = sp_object_real(root, "bound_percent", 0.0, 0.0, 1e6) / 100.0;
    } else {
        measurements->bound = sp_object_real(root, "bound", -1.0, 0.0, 1e6);
    }
    if (sp_object_member(root, "published", &published)) {
        sp_object_require(&published, "error_percent");
        measurements->published_error =
            sp_object_real(&published, "error_percent", 0.0, 0.0, 1e6) / 100.0;
        sp_object_text(&published, "by", "", measurements->published_by,
                       sizeof measurements->published_by);
        sp_object_end(&published);
    }
}

void sp_map_describe(const sp_map *map, sp_measurements *measurements)
{
    sp_error err;
    sp_object root;
    sp_error_clear(&err);
    sp_object_begin(&root, map->document, map->source, "", &err);
    read_description(&root, measurements);
    measurements->kind = map->kind;
    measurements->less = map->less;
    measurements->scale = map->scale > 0.0 ? map->scale : 1.0;
}

// ---- columns ----

static int column_index(const map_reader *reader, const char *name)
{
    for (int c = 0; c < reader->csv->columns; c++) {
        if (strcmp(reader->names[c], name) == 0) {
            return c;
        }
    }
    return -1;
}

// A column that the map names and the table lacks is an error of the table. It may be one that the
// map does not name.
static int find_column(const map_reader *reader, const char *name)
{
    int c = column_index(reader, name);
    if (c >= 0) {
        return c;
    }
    const char *others[SP_CSV_COLUMNS];
    int count = 0;
    const json_t *columns = json_object_get(reader->map->document, "columns");
    for (int i = 0; i < reader->csv->columns; i++) {
        if (json_object_get(columns, reader->names[i]) == NULL) {
            others[count++] = reader->names[i];
        }
    }
    const char *near = sp_nearest_name(name, others, count);
    if (near != NULL) {
        sp_error_at(reader->err, SP_ERR_CONTENT, reader->csv_source, 1, 0,
                    "column '%.64s' is missing (is it '%.64s'?)", name, near);
    } else {
        sp_error_at(reader->err, SP_ERR_CONTENT, reader->csv_source, 1, 0,
                    "column '%.64s' is missing", name);
    }
    return -1;
}

static void add_measured(map_reader *reader, sp_object *object, const char *key, const char *column,
                         const json_t *settings, bool at_most)
{
    sp_map *map = reader->map;
    if (map->measured_count == SP_MEASURED_COLUMNS) {
        sp_object_error(object, key, "names more than the %d measured columns of a table",
                        (int)SP_MEASURED_COLUMNS);
        return;
    }
    int c = find_column(reader, column);
    if (c < 0) {
        return;
    }
    if (strlen(column) >= sizeof((sp_measured_case *)0)->measured_column) {
        sp_object_error(object, key, "the name '%.64s' is too long", column);
        return;
    }
    map->measured[map->measured_count] =
        (sp_map_measured){.column = column, .index = c, .settings = settings, .at_most = at_most};
    map->columns[c].measured = map->measured_count++;
    reader->named[c] = true;
}

static void check_settings(sp_object *object, const char *key, const json_t *settings)
{
    const char *path;
    json_t *value;
    json_object_foreach ((json_t *)settings, path, value) {
        if (!sp_json_path_is_valid(path, SP_JSON_PATH)) {
            sp_object_error(object, key, "expected paths such as \"parallel.tp\", got \"%.64s\"",
                            path);
        }
    }
}

static void read_measured_columns(map_reader *reader, sp_object *columns)
{
    const char *name;
    json_t *rule;
    json_object_foreach ((json_t *)columns->json, name, rule) {
        sp_object object;
        sp_object settings;
        char path[SP_JSON_PATH];
        snprintf(path, sizeof path, "%.64s.%.64s", columns->path, name);
        sp_object_begin(&object, rule, columns->source, path, columns->err);
        sp_object_member(&object, "with", &settings);
        check_settings(&object, "with", settings.json);
        bool at_most = sp_object_bool(&object, "at_most", false);
        sp_object_end(&object);
        add_measured(reader, columns, name, name, settings.json, at_most);
    }
}

static void read_measured_values(sp_map *map, sp_object *object)
{
    sp_object values;
    const char *cell;
    json_t *value;
    if (!sp_object_member(object, "values", &values)) {
        return;
    }
    map->measured_values = values.json;
    json_object_foreach ((json_t *)values.json, cell, value) {
        if (!json_is_number(value)) {
            sp_object_expected(&values, cell, value, "a number");
        }
    }
}

// ---- what a column sets ----

// path NULL: no text was given.
static void add_target(sp_object *columns, const char *name, sp_map_column *column,
                       const char *path, double factor)
{
    if (path == NULL || !sp_json_path_is_valid(path, SP_JSON_PATH)) {
        sp_object_error(columns, name, "expected a setting's path such as \"parallel.tp\"%s%.64s",
                        path != NULL ? ", got " : "", path != NULL ? path : "");
    } else if (column->target_count == SP_MAP_TARGETS) {
        sp_object_error(columns, name, "sets more than %d settings", (int)SP_MAP_TARGETS);
    } else {
        column->targets[column->target_count++] = (sp_map_target){.path = path, .factor = factor};
    }
}

static void add_targets(sp_object *columns, const char *name, sp_map_column *column,
                        const json_t *path, double factor)
{
    if (!json_is_array(path)) {
        add_target(columns, name, column, json_string_value(path), factor);
        return;
    }
    for (size_t i = 0; i < json_array_size(path); i++) {
        add_target(columns, name, column, json_string_value(json_array_get(path, i)), factor);
    }
}

static bool is_long_form(const json_t *rule)
{
    static const char *const keys[] = {"path", "scale", "values", "check"};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        if (json_object_get(rule, keys[k]) != NULL) {
            return true;
        }
    }
    return false;
}

// {"model.hidden": 1, "model.ffn": 4}
static void read_factors(sp_object *columns, const char *name, const json_t *rule,
                         sp_map_column *column)
{
    const char *path;
    json_t *value;
    if (json_object_size(rule) == 0) {
        sp_object_error(columns, name, "sets nothing: expected paths with factors, or null");
    }
    json_object_foreach ((json_t *)rule, path, value) {
        double factor = json_number_value(value);
        if (!json_is_number(value) || factor == 0.0) {
            sp_object_expected(columns, name, value, "a factor for '%.64s'", path);
        } else {
            add_target(columns, name, column, path, factor);
        }
    }
}

// Without a path each value says what it sets.
static void check_values(sp_object *object, const sp_map_column *column)
{
    const char *cell;
    json_t *value;
    json_object_foreach ((json_t *)column->values, cell, value) {
        if (column->target_count == 0 && !json_is_object(value)) {
            char found[QUOTE];
            sp_json_quote(value, found, sizeof found);
            sp_object_error(object, "values",
                            "without \"path\" expected an object of settings for \"%.64s\", got %s",
                            cell, found);
        } else if (column->target_count == 0) {
            check_settings(object, "values", value);
        }
    }
}

static void read_long_form(sp_object *columns, const char *name, const json_t *rule,
                           sp_map_column *column)
{
    sp_object object;
    sp_object values;
    char where[SP_JSON_PATH];
    snprintf(where, sizeof where, "%.64s.%.64s", columns->path, name);
    sp_object_begin(&object, rule, columns->source, where, columns->err);
    double scale = sp_object_real(&object, "scale", 1.0, 1e-30, 1e30);
    const json_t *path = sp_object_get(&object, "path");
    if (path != NULL) {
        add_targets(columns, name, column, path, scale);
    }
    if (sp_object_member(&object, "values", &values)) {
        column->values = values.json;
        check_values(&object, column);
    }
    column->check =
        (sp_map_check)sp_object_enum(&object, "check", check_names, (int)SP_MAP_NO_CHECK);
    if (sp_object_has(&object, "scale") && (path == NULL || column->values != NULL)) {
        sp_object_error(&object, "scale", "has a use beside \"path\" and without \"values\" only");
    }
    if (path == NULL && column->values == NULL && column->check == SP_MAP_NO_CHECK) {
        sp_object_error(columns, name, "sets nothing: expected \"path\", \"values\" or \"check\"");
    }
    sp_object_end(&object);
}

static void read_rule(sp_object *columns, const char *name, const json_t *rule,
                      sp_map_column *column)
{
    if (json_is_object(rule) && is_long_form(rule)) {
        read_long_form(columns, name, rule, column);
    } else if (json_is_object(rule)) {
        read_factors(columns, name, rule, column);
    } else if (!json_is_null(rule)) {
        add_targets(columns, name, column, rule, 1.0);
    }
    column->is_setting = column->target_count > 0 || column->values != NULL;
}

// A speed-up needs what it is over; nothing else has a baseline.
static void read_baseline(map_reader *reader, sp_object *measured)
{
    sp_object baseline;
    sp_object settings;
    sp_object columns;
    const char *name;
    json_t *rule;
    bool given = sp_object_member(measured, "baseline", &baseline);
    reader->map->baseline.given = given;
    if (given != (reader->map->kind == SP_MEASURED_SPEEDUP)) {
        sp_object_error(measured, "baseline",
                        given ? "only a \"speedup\" has a baseline"
                              : "expected what a \"speedup\" is over: {\"with\": settings by path, "
                                "\"columns\": rules of columns}");
        return;
    }
    sp_object_member(&baseline, "with", &settings);
    check_settings(&baseline, "with", settings.json);
    reader->map->baseline.settings = settings.json;
    sp_object_member(&baseline, "columns", &columns);
    json_object_foreach ((json_t *)columns.json, name, rule) {
        int c = find_column(reader, name);
        if (c >= 0) {
            read_rule(&columns, name, rule, &reader->map->baseline.columns[c]);
        }
    }
    sp_object_end(&baseline);
}

static void read_measured(map_reader *reader, sp_object *root)
{
    sp_object object;
    sp_object columns;
    sp_object_require(root, "measured");
    sp_object_member(root, "measured", &object);
    const char *column = sp_object_string(&object, "column", NULL);
    bool several = sp_object_member(&object, "columns", &columns);
    reader->map->kind = (sp_measured)sp_object_enum(&object, "is", sp_measured_names, 0);
    reader->map->scale = sp_object_real(&object, "scale", 1.0, 1e-30, 1e30);
    reader->map->less = sp_object_real(&object, "less", 0.0, 0.0, 1e30);
    read_measured_values(reader->map, &object);
    if (object.json != NULL) {
        sp_object_require(&object, "is");
    }
    if (object.json != NULL && (column != NULL) == several) {
        sp_object_error(root, "measured", "expected one of the keys 'column' and 'columns'");
    } else if (several) {
        read_measured_columns(reader, &columns);
    } else if (column != NULL) {
        add_measured(reader, &object, "column", column, NULL, false);
    }
    if (object.json != NULL) {
        read_baseline(reader, &object);
    }
    sp_object_end(&object);
}

static void unknown_column(const map_reader *reader, int c, const char *const *known, int count)
{
    const sp_csv_cell *cell = sp_csv_header(reader->csv, c);
    char hint[SP_NAME_HINT];
    bool near = sp_name_hint(cell->text, known, count, hint)[0] != '\0';
    sp_error_at(reader->err, SP_ERR_CONTENT, reader->csv_source, cell->line, cell->column,
                "unknown column '%.64s'%s%s%s", cell->text, near ? hint : ": ",
                near ? "" : reader->map->source,
                near ? "" : " says nothing of it (null there ignores it)");
}

static void read_columns(map_reader *reader, sp_object *root)
{
    sp_object columns;
    const char *known[SP_CSV_COLUMNS];
    int known_count = 0;
    const char *name;
    json_t *rule;
    sp_object_require(root, "columns");
    if (!sp_object_member(root, "columns", &columns) || columns.json == NULL) {
        return;
    }
    json_object_foreach ((json_t *)columns.json, name, rule) {
        int c = column_index(reader, name);
        if (c < 0) {
            if (known_count < SP_CSV_COLUMNS) {
                known[known_count++] = name;
            }
            find_column(reader, name);
        } else if (reader->map->columns[c].measured >= 0) {
            sp_object_error(&columns, name, "is the measured column");
        } else {
            read_rule(&columns, name, rule, &reader->map->columns[c]);
            reader->named[c] = true;
        }
    }
    for (int c = 0; c < reader->csv->columns; c++) {
        if (!reader->named[c]) {
            unknown_column(reader, c, known, known_count);
        }
    }
}

// Marks the columns that the array `key` names, and returns the array.
static const json_t *mark_columns(map_reader *reader, sp_object *root, const char *key,
                                  bool named[SP_CSV_COLUMNS])
{
    const json_t *names = sp_object_get(root, key);
    if (names != NULL && !json_is_array(names)) {
        sp_object_error(root, key, "expected an array of column names");
    }
    for (size_t i = 0; i < json_array_size(names); i++) {
        const json_t *entry = json_array_get(names, i);
        const char *name = json_string_value(entry);
        int c = name != NULL ? column_index(reader, name) : -1;
        if (c < 0) {
            sp_object_expected(root, key, entry, "the name of a column");
        } else {
            named[c] = true;
        }
    }
    return names;
}

// Without "label" all columns that set something are in it.
static void read_label_and_cells(map_reader *reader, sp_object *root)
{
    bool in_label[SP_CSV_COLUMNS] = {false};
    bool in_cell[SP_CSV_COLUMNS] = {false};
    bool given = mark_columns(reader, root, "label", in_label) != NULL;
    mark_columns(reader, root, "cells", in_cell);
    for (int c = 0; c < reader->csv->columns; c++) {
        sp_map_column *column = &reader->map->columns[c];
        column->in_label = given ? in_label[c] : column->is_setting;
        column->in_cell = in_cell[c];
    }
}

// {"status": ["ok"], "tp": [1, 2]}
static void read_rows(map_reader *reader, sp_object *root)
{
    sp_object rows;
    const char *name;
    json_t *taken;
    if (!sp_object_member(root, "rows", &rows)) {
        return;
    }
    json_object_foreach ((json_t *)rows.json, name, taken) {
        int c = column_index(reader, name);
        if (c < 0) {
            sp_object_error(&rows, name, "the table has no such column");
        } else if (!json_is_array(taken) || json_array_size(taken) == 0) {
            sp_object_error(&rows, name, "expected an array of cells");
        } else {
            reader->map->columns[c].taken = taken;
        }
    }
}

// ---- the map ----

sp_status sp_map_from_json(json_t *document, const char *source, const char *csv_source,
                           const sp_csv *csv, sp_map *map, sp_error *err)
{
    sp_error own = {0};
    *map = (sp_map){.document = document, .source = source};
    map_reader reader = {
        .map = map, .csv = csv, .csv_source = csv_source, .err = err != NULL ? err : &own};
    for (int c = 0; c < csv->columns; c++) {
        reader.names[c] = sp_csv_header(csv, c)->text;
        map->columns[c].measured = -1;
    }
    sp_object root;
    sp_measurements described = {0};
    sp_object_begin(&root, document, source, "", reader.err);
    sp_object_schema(&root, SP_MAP_SCHEMA);
    read_description(&root, &described);
    sp_object_require(&root, "base");
    sp_object base;
    sp_object_member(&root, "base", &base);
    map->base = json_object_get(document, "base");
    read_measured(&reader, &root);
    read_columns(&reader, &root);
    read_label_and_cells(&reader, &root);
    read_rows(&reader, &root);
    sp_object_get(&root, "table");
    sp_object_end(&root);
    sp_status status = reader.err->status;
    if (status != SP_OK) {
        sp_map_fini(map);
    }
    return status;
}

static bool is_cell(const json_t *value, const char *text)
{
    double number = 0.0;
    return json_is_string(value)
               ? strcmp(json_string_value(value), text) == 0
               : sp_map_number(text, &number) && number == json_number_value(value);
}

bool sp_map_takes(const sp_map *map, const sp_csv *csv, size_t row)
{
    bool takes = true;
    for (int c = 0; c < csv->columns && takes; c++) {
        const json_t *taken = map->columns[c].taken;
        bool found = taken == NULL;
        for (size_t i = 0; i < json_array_size(taken) && !found; i++) {
            found = is_cell(json_array_get(taken, i), sp_csv_at(csv, row, c)->text);
        }
        takes = found;
    }
    return takes;
}

// ---- rows ----

// One row of a table as a scenario document.

enum { SHOWN = 64 };

typedef struct row_writer {
    const sp_map *map;
    const sp_csv *csv;
    size_t row;
    const char *csv_source;
    json_t *document;
    bool in_names; // settings inside models, clusters and stacks are written, else all others
    bool refused;  // one of these is not known
    sp_error *err;
} row_writer;

// Is it the path, or one inside it where that is asked for?
static bool matches(const char *set, const char *path, bool inside)
{
    size_t length = strlen(path);
    return strcmp(set, path) == 0 ||
           (inside && strncmp(set, path, length) == 0 && set[length] == '.');
}

static bool sets_path(const sp_map_column *column, const char *cell, const char *path, bool inside)
{
    for (int t = 0; t < column->target_count; t++) {
        if (matches(column->targets[t].path, path, inside)) {
            return true;
        }
    }
    if (column->target_count == 0) {
        const char *set;
        json_t *value;
        json_object_foreach (json_object_get(column->values, cell), set, value) {
            if (matches(set, path, inside)) {
                return true;
            }
        }
    }
    return false;
}

int sp_map_column_of(const sp_map *map, const sp_csv *csv, size_t row, const char *path,
                     bool inside)
{
    for (int c = csv->columns - 1; c >= 0; c--) {
        if (map->columns[c].is_setting &&
            sets_path(&map->columns[c], sp_csv_at(csv, row, c)->text, path, inside)) {
            return c;
        }
    }
    return -1;
}

// ---- cells ----

static bool looks_like_a_number(const char *text)
{
    return text[0] != '\0' && text[strspn(text, "0123456789+-.eE")] == '\0';
}

bool sp_map_number(const char *text, double *number)
{
    char *end = NULL;
    if (!looks_like_a_number(text)) {
        return false;
    }
    *number = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*number);
}

static bool whole_number(const char *text, long long *number)
{
    char *end = NULL;
    if (!looks_like_a_number(text)) {
        return false;
    }
    errno = 0;
    *number = strtoll(text, &end, 10);
    return errno == 0 && *end == '\0';
}

// Turns a cell into JSON. Anything that is neither number nor truth value is a text; where a
// setting is none, its reader says what it expected.
static json_t *cell_value(const char *text)
{
    static const char *const truths[][3] = {{"false", "False", "FALSE"}, {"true", "True", "TRUE"}};
    long long whole = 0;
    double number = 0.0;
    for (int t = 0; t < 6; t++) {
        if (strcmp(text, truths[t / 3][t % 3]) == 0) {
            return json_boolean(t / 3);
        }
    }
    if (whole_number(text, &whole)) {
        return json_integer(whole);
    }
    return sp_map_number(text, &number) ? json_real(number) : json_string(text);
}

sp_status sp_map_wrong_cell(sp_error *err, const char *csv_source, const char *name,
                            const sp_csv_cell *cell, const char *format, ...)
{
    char expected[SP_ERROR_TEXT / 2];
    char got[SHOWN + 4] = "an empty cell";
    va_list args;
    va_start(args, format);
    vsnprintf(expected, sizeof expected, format, args);
    va_end(args);
    if (cell->text[0] != '\0') {
        snprintf(got, sizeof got, "\"%.*s\"", SHOWN, cell->text);
    }
    return sp_error_at(err, SP_ERR_CONTENT, csv_source, cell->line, cell->column,
                       "column '%.*s': expected %s, got %s", SHOWN, name, expected, got);
}

static void cell_error(row_writer *writer, const char *name, const sp_csv_cell *cell,
                       const char *expected)
{
    sp_map_wrong_cell(writer->err, writer->csv_source, name, cell, "%s", expected);
}

// A setting may change a part of a model, a cluster or a stack that the row or the base names. One
// that is not known is told once, of the cell that names it where there is one.
static bool make_room(row_writer *writer, const char *name, const sp_csv_cell *cell,
                      const char *path)
{
    sp_error found = {0};
    sp_status status =
        writer->in_names ? sp_scenario_open_name(writer->document, path, &found) : SP_OK;
    if (status == SP_OK || writer->refused) {
        return status == SP_OK;
    }
    char section[SP_JSON_PATH];
    snprintf(section, sizeof section, "%.*s", (int)strcspn(path, "."), path);
    int c = sp_map_column_of(writer->map, writer->csv, writer->row, section, false);
    if (c >= 0) {
        name = sp_csv_header(writer->csv, c)->text;
        cell = sp_csv_at(writer->csv, writer->row, c);
    }
    writer->refused = true;
    sp_error_at(writer->err, status, writer->csv_source, cell->line, cell->column,
                "column '%.*s': %s", SHOWN, name, found.message[0]);
    return false;
}

// Puts a value (taken over) at a path of the document, with the objects on the way.
static void put(row_writer *writer, const char *name, const sp_csv_cell *cell, const char *path,
                json_t *value)
{
    char part[SP_JSON_PATH];
    if (sp_scenario_in_name(path) != writer->in_names || !make_room(writer, name, cell, path)) {
        json_decref(value);
        return;
    }
    json_t *object = writer->document;
    const char *left = path;
    while (sp_json_path_next(&left, part) && json_is_object(object)) {
        json_t *child = json_object_get(object, part);
        if (child == NULL || json_is_null(child)) {
            child = json_object();
            sp_json_put(object, part, child);
        }
        object = child;
    }
    if (!json_is_object(object)) {
        json_decref(value);
        sp_error_at(writer->err, SP_ERR_CONTENT, writer->csv_source, cell->line, cell->column,
                    "column '%.*s': '%s' lies inside a value that is no object", SHOWN, name, path);
    } else {
        sp_json_put(object, part, value);
    }
}

static void set_object(row_writer *writer, const char *name, const sp_csv_cell *cell,
                       const json_t *settings)
{
    const char *path;
    json_t *value;
    json_object_foreach ((json_t *)settings, path, value) {
        put(writer, name, cell, path, json_deep_copy(value));
    }
}

void sp_map_list_values(const json_t *values, char list[SP_MAP_LIST])
{
    const char *separator = "";
    const char *known;
    json_t *value;
    strcpy(list, "one of ");
    json_object_foreach ((json_t *)values, known, value) {
        sp_append(list, SP_MAP_LIST, "%s\"%.*s\"", separator, SHOWN, known);
        separator = ", ";
    }
}

// A number times a factor stays an integer where both are.
static json_t *scaled(const char *text, double factor)
{
    long long whole = 0;
    double number = 0.0;
    if (!sp_map_number(text, &number) || !isfinite(number * factor)) {
        return NULL;
    }
    double product = number * factor;
    bool is_whole = whole_number(text, &whole) && factor == floor(factor);
    return is_whole && fabs(product) < 0x1p53 ? json_integer((json_int_t)product)
                                              : json_real(product);
}

// What tables write where there is no value. "None" is one of some settings.
static const char no_values[] = "- -- n/a na nan null ?";

static void set_target(row_writer *writer, const sp_map_target *target, const char *name,
                       const sp_csv_cell *cell)
{
    const char *expected = NULL;
    const char *text = cell->text;
    if (writer->map->of_header) {
        char plain[SP_JSON_PATH];
        sp_plain_name(name, plain);
        text = sp_setting_translate(strchr(name, '.') != NULL ? name : plain, text, &expected);
    }
    if (writer->map->of_header && text != NULL && sp_names_hold(no_values, text)) {
        expected = "a value, or an empty cell where there is none";
        text = NULL;
    }
    if (text == NULL) {
        cell_error(writer, name, cell, expected);
    }
    if (text == NULL || text[0] == '\0') {
        return;
    }
    json_t *value = target->factor == 1.0 ? cell_value(text) : scaled(text, target->factor);
    if (value == NULL && target->factor == 1.0) {
        cell_error(writer, name, cell, "a text in UTF-8");
    } else if (value == NULL) {
        cell_error(writer, name, cell, "a finite number");
    } else {
        put(writer, name, cell, target->path, value);
    }
}

static void set_cell(row_writer *writer, const sp_map_column *column, const char *name,
                     const sp_csv_cell *cell)
{
    const json_t *value = json_object_get(column->values, cell->text);
    // An empty cell leaves the setting as the base has it, or as it is by default.
    if (cell->text[0] == '\0' && value == NULL) {
        return;
    }
    if (column->values != NULL && value == NULL) {
        char list[SP_MAP_LIST];
        sp_map_list_values(column->values, list);
        cell_error(writer, name, cell, list);
    } else if (column->values != NULL && column->target_count == 0) {
        set_object(writer, name, cell, value);
    } else {
        for (int t = 0; t < column->target_count; t++) {
            if (value != NULL) {
                put(writer, name, cell, column->targets[t].path, json_deep_copy(value));
            } else {
                set_target(writer, &column->targets[t], name, cell);
            }
        }
    }
}

// ---- the row ----

static void set_columns(row_writer *writer, const sp_map_column *columns)
{
    for (int c = 0; c < writer->csv->columns; c++) {
        if (columns[c].is_setting) {
            set_cell(writer, &columns[c], sp_csv_header(writer->csv, c)->text,
                     sp_csv_at(writer->csv, writer->row, c));
        }
    }
}

static void set_row(row_writer *writer, int measured, bool baseline)
{
    const sp_map *map = writer->map;
    const sp_csv_cell *first = sp_csv_at(writer->csv, writer->row, 0);
    const char *name = map->measured[measured].column;
    set_columns(writer, map->columns);
    set_object(writer, name, first, map->measured[measured].settings);
    if (baseline) {
        set_columns(writer, map->baseline.columns);
        set_object(writer, name, first, map->baseline.settings);
    }
}

sp_status sp_map_row(const sp_map *map, const sp_csv *csv, const char *csv_source, const char *file,
                     size_t row, int measured, bool baseline, json_t **document, sp_error *err)
{
    sp_error own = {0};
    err = err != NULL ? err : &own;
    // Errors of other rows may stand there already.
    int before = err->count + err->dropped;
    row_writer writer = {.map = map,
                         .csv = csv,
                         .row = row,
                         .csv_source = csv_source,
                         .document = json_deep_copy(map->base),
                         .err = err};
    *document = NULL;
    set_row(&writer, measured, baseline);
    if (err->count + err->dropped == before) {
        sp_scenario_place(writer.document, file, err);
    }
    if (err->count + err->dropped == before) {
        writer.in_names = true;
        set_row(&writer, measured, baseline);
    }
    if (err->count + err->dropped != before) {
        json_decref(writer.document);
        return err->status;
    }
    *document = writer.document;
    return SP_OK;
}
