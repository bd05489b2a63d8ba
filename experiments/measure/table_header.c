// The map of a table without one: its header names the settings.
#include "experiments/measure/measurement_map.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sim/scenario/scenario.h"

// Does a key of a scenario begin with the name's first part?
static bool in_a_section(const char *name)
{
    size_t bytes = strcspn(name, ".") + 1;
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        if (strncmp(setting->key, name, bytes) == 0) {
            return true;
        }
    }
    return false;
}

static const char no_step[] =
    "prompts that are read (prefill) and text that is generated (decode) are no part of a step";

static bool is_of_steps(const char *key)
{
    return strncmp(key, "decode.", 7) != 0 && strncmp(key, "prefill.", 8) != 0;
}

// The path that a column sets: its name where that is one, else the key that the name stands for,
// by its last part or as others call it, however it is written. NULL: none.
static const char *path_of(const char *name, const char *plain)
{
    if (strchr(name, '.') != NULL) {
        return in_a_section(name) && is_of_steps(name) ? name : NULL;
    }
    const sp_setting *setting = sp_setting_find(plain);
    return setting != NULL && is_of_steps(setting->key) ? setting->key : NULL;
}

// Another column that sets the path; NULL: none.
static const char *other_column(const json_t *columns, const char *path)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)columns, name, value) {
        if (json_is_string(value) && strcmp(json_string_value(value), path) == 0) {
            return name;
        }
    }
    return NULL;
}

// Columns with the number of GPUs, which the layout says already.
static const char gpu_names[] =
    "gpus num_gpus n_gpus ngpus gpu_count world_size ranks num_ranks devices";

// Columns that set nothing, as what a log says of its steps; so do all that begin with "note_".
static const char note_names[] =
    "note notes index unnamed_0 comment comments remark remarks run run_id run_name id name label "
    "job job_id date "
    "source url reference experiment iteration iter step epoch global_step consumed_samples "
    "consumed_tokens loss lm_loss train_loss learning_rate lr loss_scale grad_norm";

// A map of a table's header as it is written.
typedef struct header_map {
    const sp_csv *csv;
    const char *csv_source;
    sp_error *err;
    json_t *columns, *label;
    const char *measured_column; // NULL: none was met
    sp_measured_name measured;
    bool unknown; // some column sets nothing that is known
} header_map;

// `why` NULL: not known.
static void unknown_header(header_map *map, const sp_csv_cell *cell, const char *plain,
                           const char *why)
{
    bool dotted = strchr(cell->text, '.') != NULL;
    const char *leaf = dotted ? sp_setting_leaf(cell->text) : plain;
    const sp_setting *meant = sp_setting_find(leaf);
    char kind[SP_JSON_PATH + 8];
    snprintf(kind, sizeof kind, "%s.kind", plain);
    meant = meant != NULL ? meant : sp_setting_find(kind);
    const char *near = meant != NULL
                           ? meant->key
                           : sp_nearest_name(cell->text, sp_measured_names, SP_MEASURED_FITS + 1);
    near = near != NULL ? near : sp_setting_near(cell->text);
    if (why == NULL && !is_of_steps(cell->text)) {
        why = no_step;
    } else if (why == NULL && sp_names_hold("batch bs", plain)) {
        why = "samples of a step are workload.samples_per_batch, rows of a micro-batch "
              "schedule.microbatch_samples";
    }
    why = why != NULL ? why : sp_setting_missing(leaf);
    if (why == NULL && near != NULL && !is_of_steps(near)) {
        why = meant != NULL ? no_step : NULL;
        near = NULL;
    }
    map->unknown = true;
    if (why == NULL && near == NULL) {
        why = "without a map a column is named by the setting that it gives, such as parallel.tp";
    }
    if (why != NULL) {
        sp_error_at(map->err, SP_ERR_CONTENT, map->csv_source, cell->line, cell->column,
                    "unknown column '%.64s': %s", cell->text, why);
    } else {
        sp_error_at(map->err, SP_ERR_CONTENT, map->csv_source, cell->line, cell->column,
                    "unknown column '%.64s' (did you mean '%s'?)", cell->text, near);
    }
}

static void map_measured(header_map *map, const sp_csv_cell *cell, const sp_measured_name *measured)
{
    if (map->measured_column == NULL) {
        map->measured_column = cell->text;
        map->measured = *measured;
        return;
    }
    map->unknown = true;
    sp_error_at(map->err, SP_ERR_CONTENT, map->csv_source, cell->line, cell->column,
                "column '%.64s': without a map one column is measured, and '%.64s' is", cell->text,
                map->measured_column);
}

static void map_setting(header_map *map, const sp_csv_cell *cell, const char *path)
{
    const char *other = other_column(map->columns, path);
    if (other != NULL) {
        sp_error_at(map->err, SP_ERR_CONTENT, map->csv_source, cell->line, cell->column,
                    "column '%.64s': '%.64s' gives %s as well", cell->text, other, path);
        return;
    }
    sp_json_put(map->columns, cell->text, json_string(path));
    json_array_append_new(map->label, json_string(cell->text));
}

// Does every cell say what is modelled anyway?
static bool is_modelled(const header_map *map, int column, const char *plain)
{
    bool modelled = sp_setting_missing(plain) != NULL;
    for (size_t row = 0; row < map->csv->rows && modelled; row++) {
        modelled = sp_setting_is_modelled(plain, sp_csv_at(map->csv, row, column)->text);
    }
    return modelled;
}

static void map_header(header_map *map, int column)
{
    const sp_csv_cell *cell = sp_csv_header(map->csv, column);
    char plain[SP_JSON_PATH];
    sp_measured_name measured;
    sp_plain_name(cell->text, plain);
    const char *path = path_of(cell->text, plain);
    bool is_key = path != NULL && strcmp(path, cell->text) == 0;
    if (!is_key && sp_measured_name_read(plain, &measured)) {
        if (measured.hint[0] == '\0') {
            map_measured(map, cell, &measured);
        } else {
            unknown_header(map, cell, plain, measured.hint);
        }
    } else if (sp_names_hold(note_names, plain) || strncmp(plain, "note_", 5) == 0) {
        sp_json_put(map->columns, cell->text, json_null());
        json_array_append_new(map->label, json_string(cell->text));
    } else if (path != NULL) {
        map_setting(map, cell, path);
    } else if (sp_names_hold(gpu_names, plain)) {
        sp_json_put(map->columns, cell->text, sp_json_object(SP_JSON("check", "ranks")));
    } else if (is_modelled(map, column, plain)) {
        sp_json_put(map->columns, cell->text, json_null());
    } else {
        unknown_header(map, cell, plain, NULL);
    }
}

sp_status sp_map_of_header(const sp_csv *csv, const char *csv_source, json_t **document,
                           sp_error *err)
{
    sp_error own = {0};
    err = err != NULL ? err : &own;
    header_map map = {.csv = csv,
                      .csv_source = csv_source,
                      .err = err,
                      .columns = json_object(),
                      .label = json_array()};
    for (int c = 0; c < csv->columns; c++) {
        map_header(&map, c);
    }
    if (map.measured_column == NULL) {
        sp_error_at(err, SP_ERR_CONTENT, csv_source, 1, 0,
                    "no measured column: expected iteration_ms, tokens_per_s, tokens_per_gpu_s, "
                    "peak_memory_allocator_bytes, peak_memory_first_rank_reserved_bytes or "
                    "peak_memory_last_rank_bytes");
    }
    if (map.unknown) {
        sp_error_set(err, SP_ERR_CONTENT,
                     "%s: a column that sets nothing is called note_NAME; else a map says what "
                     "each column is: --map FILE, or a .json of the table's name beside it",
                     csv_source);
    }
    if (err->status != SP_OK) {
        json_decref(map.columns);
        json_decref(map.label);
        return err->status;
    }
    json_t *measured = sp_json_object(SP_JSON("column", map.measured_column),
                                      SP_JSON("is", sp_measured_names[map.measured.kind]),
                                      SP_JSON("scale", map.measured.scale));
    *document = sp_json_object(SP_JSON("measured", measured), SP_JSON("base", json_object()),
                               SP_JSON("columns", map.columns), SP_JSON("label", map.label));
    return SP_OK;
}
