#include "experiments/calibrate/fit_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/calibrate/profile_document.h"
#include "experiments/measurements/row_threads.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

enum { OVERRIDES = FIT_OVERRIDES + 2 };

// ---- reading ----

// The source of each table, as an index.
static sp_status match_sources(const fit_spec *spec, const fit_source *sources, int source_count,
                               int source_of[FIT_TABLES], sp_error *err)
{
    for (int t = 0; t < spec->table_count; t++) {
        source_of[t] = -1;
    }
    for (int s = 0; s < source_count; s++) {
        char name[SP_MEASUREMENTS_NAME];
        sp_measurements_name(sources[s].csv, name);
        int t = fit_spec_table(spec, name);
        if (t < 0) {
            return sp_error_in(err, SP_ERR_CONTENT, spec->source, "tables",
                               "has no '%s', the table of %s", name, sources[s].csv);
        }
        if (source_of[t] >= 0) {
            return sp_error_set(err, SP_ERR_USAGE, "table '%s' is given twice: %s and %s", name,
                                sources[source_of[t]].csv, sources[s].csv);
        }
        source_of[t] = s;
    }
    for (int t = 0; t < spec->table_count; t++) {
        if (source_of[t] < 0) {
            return sp_error_in(err, SP_ERR_CONTENT, spec->source, "tables",
                               "names '%.64s', but --from-measurements does not",
                               spec->tables[t].name);
        }
    }
    return SP_OK;
}

// "key=..." with the value (taken over) as JSON; the caller frees it.
static sp_status override_of(const char *key, json_t *value, char **text, sp_error *err)
{
    char *dump = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(value);
    size_t bytes = dump != NULL ? strlen(key) + strlen(dump) + 2 : 0;
    *text = dump != NULL ? sp_i_malloc(bytes) : NULL;
    if (*text != NULL) {
        snprintf(*text, bytes, "%s=%s", key, dump);
    }
    free(dump);
    return *text != NULL ? SP_OK : sp_error_no_memory(err, "an override");
}

// The stack of the profile as an object, so that single switches can be overridden; *text stays
// NULL where the profile names none.
static sp_status stack_override(const json_t *profile, char **text, sp_error *err)
{
    const json_t *stack = json_object_get(profile, "stack");
    if (stack == NULL) {
        return SP_OK;
    }
    json_t *object = json_is_string(stack) ? json_object() : json_deep_copy(stack);
    if (json_is_string(stack)) {
        sp_json_put(object, "name", json_string(json_string_value(stack)));
    }
    return override_of("stack", object, text, err);
}

static sp_status read_tables(const fit_spec *spec, const fit_source *sources,
                             const int source_of[FIT_TABLES], const char *const *overrides,
                             int override_count, fit_rows *rows, sp_error *err)
{
    for (int t = 0; t < spec->table_count; t++) {
        const fit_source *source = &sources[source_of[t]];
        sp_status status = sp_measurements_read(source->csv, source->map, overrides, override_count,
                                                &rows->tables[t], err);
        if (status != SP_OK) {
            return status;
        }
        rows->table_count++;
        sp_measured kind = rows->tables[t].kind;
        if (kind == SP_MEASURED_BUBBLE_RATE || kind == SP_MEASURED_FITS) {
            return sp_error_set(err, SP_ERR_CONTENT, "%s: holds %s, which no profile has a part in",
                                source->csv,
                                kind == SP_MEASURED_FITS ? "what ran" : "bubble rates");
        }
        rows->first[t + 1] = rows->first[t] + rows->tables[t].count;
    }
    rows->count = rows->first[spec->table_count];
    return SP_OK;
}

static sp_status list_rows(const fit_spec *spec, fit_rows *rows, sp_error *err)
{
    rows->cases = sp_i_calloc(rows->count, sizeof *rows->cases);
    rows->observed = sp_i_calloc(rows->count, sizeof *rows->observed);
    rows->weight = sp_i_calloc(rows->count, sizeof *rows->weight);
    if (rows->cases == NULL || rows->observed == NULL || rows->weight == NULL) {
        return sp_error_no_memory(err, "the rows of a fit");
    }
    for (int t = 0; t < rows->table_count; t++) {
        for (size_t i = 0; i < rows->tables[t].count; i++) {
            size_t row = rows->first[t] + i;
            rows->cases[row] = &rows->tables[t].cases[i];
            rows->observed[row] = rows->cases[row]->measured;
            rows->weight[row] = spec->tables[t].weight;
            if (!(rows->observed[row] > 0.0)) {
                return sp_error_set(
                    err, SP_ERR_CONTENT, "%s: line %d: expected more than 0, got %g",
                    rows->tables[t].name, rows->cases[row]->line, rows->observed[row]);
            }
        }
    }
    return SP_OK;
}

sp_status fit_rows_read(const fit_spec *spec, const fit_source *sources, int source_count,
                        const json_t *profile, const fit_ablation *ablation, fit_rows *rows,
                        sp_error *err)
{
    const char *overrides[OVERRIDES];
    char *start = NULL;
    char *stack = NULL;
    int count = 0;
    int source_of[FIT_TABLES];
    *rows = (fit_rows){0};
    sp_status status = match_sources(spec, sources, source_count, source_of, err);
    // The profile that the table's map names need not be there yet: it may be the one being fitted.
    if (status == SP_OK) {
        status = override_of("profile", json_string(spec->profile), &start, err);
        overrides[count++] = start;
    }
    if (status == SP_OK) {
        status = stack_override(profile, &stack, err);
    }
    if (stack != NULL) {
        overrides[count++] = stack;
    }
    for (int i = 0; ablation != NULL && i < ablation->override_count; i++) {
        overrides[count++] = ablation->overrides[i];
    }
    if (status == SP_OK) {
        status = read_tables(spec, sources, source_of, overrides, count, rows, err);
    }
    if (status == SP_OK) {
        status = list_rows(spec, rows, err);
    }
    sp_i_free(start);
    sp_i_free(stack);
    if (status != SP_OK) {
        fit_rows_fini(rows);
    }
    return status;
}

void fit_rows_fini(fit_rows *rows)
{
    for (int t = 0; t < rows->table_count; t++) {
        sp_measurements_fini(&rows->tables[t]);
    }
    sp_i_free(rows->cases);
    sp_i_free(rows->observed);
    sp_i_free(rows->weight);
    *rows = (fit_rows){0};
}

int fit_rows_table(const fit_rows *rows, size_t row)
{
    int t = 0;
    while (row >= rows->first[t + 1]) {
        t++;
    }
    return t;
}

// ---- predictions ----

typedef struct prediction {
    const fit_rows *rows;
    const sp_profile *profile;
    double *predicted;
} prediction;

static sp_status predict_row(void *context, size_t row, sp_error *err)
{
    const prediction *p = context;
    const sp_measurements *table = &p->rows->tables[fit_rows_table(p->rows, row)];
    sp_error found;
    sp_error_clear(&found);
    sp_status status = sp_measured_case_count(p->rows->cases[row], table->kind, &found);
    if (status == SP_OK) {
        status = sp_measured_case_predict(p->rows->cases[row], table->kind, p->profile,
                                          &p->predicted[row], &found);
    }
    return status == SP_OK ? SP_OK
                           : sp_error_set(err, status, "%s line %d: %.400s", table->name,
                                          p->rows->cases[row]->line, found.message[0]);
}

sp_status fit_rows_predict(const fit_rows *rows, const sp_profile *profile, const uint8_t *wanted,
                           int threads, double *predicted, sp_error *err)
{
    prediction p = {.rows = rows, .profile = profile, .predicted = predicted};
    return sp_rows_work(rows->count, wanted, threads, predict_row, &p, err);
}
