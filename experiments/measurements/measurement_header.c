// A table without a map: its header names the settings.
#include <string.h>

#include "experiments/measurements/measurement_map.h"
#include "sim/base/json.h"
#include "sim/scenario/settings.h"

// Settings that tables usually have, for hints; any other path may be named as well.
static const char *const usual[] = {
    "model",
    "cluster",
    "nodes",
    "profile",
    "stack",
    "model.layers",
    "model.hidden",
    "model.ffn",
    "model.heads",
    "model.kv_heads",
    "model.head_dim",
    "model.vocab",
    "parallel.tp",
    "parallel.cp",
    "parallel.pp",
    "parallel.dp",
    "parallel.chunks_per_rank",
    "parallel.layers_per_chunk",
    "parallel.sequence_parallel",
    "parallel.zero",
    "schedule.kind",
    "schedule.microbatches",
    "schedule.microbatch_samples",
    "schedule.slices",
    "memory.recompute",
    "memory.offload_ratio",
    "memory.attention",
    "workload.lengths",
    "workload.uniform",
    "workload.context",
    "workload.samples_per_batch",
    "workload.tokens_per_batch",
    "strategy.kind",
};

enum { USUAL = sizeof usual / sizeof usual[0], TOP_LEVEL = 5 };

// The path that a column sets: its name where that is one, else the key that the name stands for,
// by its last part or as others call it. NULL: none.
static const char *path_of(const char *name)
{
    for (int i = 0; i < TOP_LEVEL; i++) {
        if (strcmp(usual[i], name) == 0) {
            return name;
        }
    }
    const sp_setting *setting = strchr(name, '.') == NULL ? sp_setting_find(name) : NULL;
    return setting != NULL ? setting->key : strchr(name, '.') != NULL ? name : NULL;
}

// Another column that sets the path; NULL: none.
static const char *other_column(const json_t *columns, const char *path)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)columns, name, value) {
        if (strcmp(json_string_value(value), path) == 0) {
            return name;
        }
    }
    return NULL;
}

static int measured_kind(const char *name)
{
    for (int k = 0; sp_measured_names[k] != NULL; k++) {
        if (strcmp(sp_measured_names[k], name) == 0) {
            return k;
        }
    }
    return -1;
}

static void no_setting(const sp_csv_cell *cell, const char *csv_source, sp_error *err)
{
    const char *near = sp_nearest_name(cell->text, usual, USUAL);
    const char *why = sp_setting_missing(cell->text);
    if (why != NULL) {
        sp_error_at(err, SP_ERR_CONTENT, csv_source, cell->line, cell->column,
                    "unknown column '%.64s': %s", cell->text, why);
    } else if (near != NULL) {
        sp_error_at(err, SP_ERR_CONTENT, csv_source, cell->line, cell->column,
                    "unknown column '%.64s' (did you mean '%s'?)", cell->text, near);
    } else {
        sp_error_at(err, SP_ERR_CONTENT, csv_source, cell->line, cell->column,
                    "unknown column '%.64s': without a map a column is named by the setting that "
                    "it gives, such as parallel.tp",
                    cell->text);
    }
}

sp_status sp_map_of_header(const sp_csv *csv, const char *csv_source, json_t **document,
                           sp_error *err)
{
    sp_error own = {0};
    err = err != NULL ? err : &own;
    json_t *columns = json_object();
    int measured = -1;
    for (int c = 0; c < csv->columns; c++) {
        const sp_csv_cell *cell = sp_csv_header(csv, c);
        const char *path = path_of(cell->text);
        const char *other = path != NULL ? other_column(columns, path) : NULL;
        if (measured_kind(cell->text) >= 0 && measured < 0) {
            measured = measured_kind(cell->text);
        } else if (other != NULL) {
            sp_error_at(err, SP_ERR_CONTENT, csv_source, cell->line, cell->column,
                        "column '%.64s': '%.64s' gives %s as well", cell->text, other, path);
        } else if (path != NULL) {
            sp_json_put(columns, cell->text, json_string(path));
        } else {
            no_setting(cell, csv_source, err);
        }
    }
    if (measured < 0) {
        sp_error_at(err, SP_ERR_CONTENT, csv_source, 1, 0,
                    "no measured column: expected iteration_ms, tokens_per_s, "
                    "peak_memory_allocator_bytes, peak_memory_first_rank_reserved_bytes or "
                    "peak_memory_last_rank_bytes");
    }
    if (err->status != SP_OK) {
        json_decref(columns);
        return err->status;
    }
    *document =
        json_pack("{s:{s:s, s:s}, s:{}, s:o}", "measured", "column", sp_measured_names[measured],
                  "is", sp_measured_names[measured], "base", "columns", columns);
    return SP_OK;
}
