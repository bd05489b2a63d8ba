// One row of a table as a scenario document.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measurements/measurement_map.h"
#include "sim/base/json.h"

enum { SHOWN = 64 };

typedef struct row_writer {
    const sp_csv *csv;
    const char *csv_source;
    json_t *document;
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

// What a cell says as JSON. Anything that is neither number nor truth value is a text; where a
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

static void cell_error(row_writer *writer, const char *name, const sp_csv_cell *cell,
                       const char *expected)
{
    char got[SHOWN + 4] = "an empty cell";
    if (cell->text[0] != '\0') {
        snprintf(got, sizeof got, "\"%.*s\"", SHOWN, cell->text);
    }
    sp_error_at(writer->err, SP_ERR_CONTENT, writer->csv_source, cell->line, cell->column,
                "column '%.*s': expected %s, got %s", SHOWN, name, expected, got);
}

// Puts a value (taken over) at a path of the document, with the objects on the way.
static void put(row_writer *writer, const char *name, const sp_csv_cell *cell, const char *path,
                json_t *value)
{
    char part[SP_JSON_PATH];
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
    static const char start[] = "one of ";
    size_t used = strlen(strcpy(list, start));
    const char *known;
    json_t *value;
    json_object_foreach ((json_t *)values, known, value) {
        int more = snprintf(list + used, SP_MAP_LIST - used, "%s\"%.*s\"",
                            used > strlen(start) ? ", " : "", SHOWN, known);
        used = used + (size_t)more < SP_MAP_LIST ? used + (size_t)more : SP_MAP_LIST - 1;
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

static void set_target(row_writer *writer, const sp_map_target *target, const char *name,
                       const sp_csv_cell *cell)
{
    json_t *value =
        target->factor == 1.0 ? cell_value(cell->text) : scaled(cell->text, target->factor);
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

static void set_columns(row_writer *writer, const sp_map_column *columns, size_t row)
{
    for (int c = 0; c < writer->csv->columns; c++) {
        if (columns[c].is_setting) {
            set_cell(writer, &columns[c], sp_csv_header(writer->csv, c)->text,
                     sp_csv_at(writer->csv, row, c));
        }
    }
}

sp_status sp_map_row(const sp_map *map, const sp_csv *csv, const char *csv_source, size_t row,
                     int measured, bool baseline, json_t **document, sp_error *err)
{
    sp_error own = {0};
    err = err != NULL ? err : &own;
    // Errors of other rows may stand there already.
    int before = err->count + err->dropped;
    row_writer writer = {
        .csv = csv, .csv_source = csv_source, .document = json_deep_copy(map->base), .err = err};
    *document = NULL;
    set_columns(&writer, map->columns, row);
    if (map->measured[measured].settings != NULL) {
        set_object(&writer, map->measured[measured].column, sp_csv_at(csv, row, 0),
                   map->measured[measured].settings);
    }
    if (baseline) {
        set_columns(&writer, map->baseline.columns, row);
        set_object(&writer, map->measured[measured].column, sp_csv_at(csv, row, 0),
                   map->baseline.settings);
    }
    if (err->count + err->dropped != before) {
        json_decref(writer.document);
        return err->status;
    }
    *document = writer.document;
    return SP_OK;
}
