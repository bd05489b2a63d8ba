// The task of a fit, and a profile with free constants as a model of its rows.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/fit/fit.h"
#include "experiments/measure/training_log.h"
#include "sim/base/files.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/base/writer.h"
#include "sim/scenario/scenario.h"

enum { DOCUMENT_LIMIT_BYTES = 16 << 20 };

static const double least_value = 1e-12;
static const double most_value = 1e18;

void fit_spec_fini(fit_spec *spec)
{
    json_decref(spec->document);
    *spec = (fit_spec){0};
}

int fit_spec_table(const fit_spec *spec, const char *name)
{
    for (int t = 0; t < spec->table_count; t++) {
        if (strcmp(spec->tables[t].name, name) == 0) {
            return t;
        }
    }
    return -1;
}

// ---- reading ----

// The name is also that of a file.
static void read_name(sp_object *root, fit_spec *spec)
{
    sp_object_require(root, "name");
    spec->name = sp_object_string(root, "name", "");
    size_t length = strlen(spec->name);
    if (sp_object_has(root, "name") && (length == 0 || length >= SP_PROFILE_NAME)) {
        sp_object_error(root, "name", "expected 1 to %d bytes, got %zu", SP_PROFILE_NAME - 1,
                        length);
    }
}

static bool check_path(sp_object *object, const char *path)
{
    if (!sp_json_path_is_valid(path, SP_JSON_PATH / 2)) {
        sp_object_error(object, path, "expected a dotted path such as gemm_model.tflops");
        return false;
    }
    return true;
}

static const json_t *read_settings(sp_object *object, const char *key)
{
    sp_object settings;
    if (!sp_object_member(object, key, &settings)) {
        return NULL;
    }
    const char *path;
    json_t *value;
    json_object_foreach ((json_t *)settings.json, path, value) {
        check_path(&settings, path);
    }
    return settings.json;
}

// ---- constants ----

static void read_prior(sp_object *object, fit_constant *constant)
{
    bool expects = sp_object_has(object, "expect");
    if (expects != sp_object_has(object, "within")) {
        sp_object_error(object, expects ? "within" : "expect",
                        "is missing: a prior has a value and its spread, expect and within");
    }
    constant->expect = sp_object_real(object, "expect", 0.0, least_value, most_value);
    constant->within = sp_object_real(object, "within", 0.0, 1e-6, 100.0);
}

static void read_constant(sp_object *constants, const char *path, fit_constant *constant)
{
    sp_object object;
    *constant = (fit_constant){.path = path};
    if (!check_path(constants, path) || !sp_object_member(constants, path, &object)) {
        return;
    }
    constant->unit = sp_object_string(&object, "unit", "");
    sp_object_require_all(&object, "least", "most");
    constant->least = sp_object_real(&object, "least", least_value, least_value, most_value);
    constant->most = sp_object_real(&object, "most", most_value, least_value, most_value);
    constant->start = sp_object_real(&object, "start", 0.0, least_value, most_value);
    read_prior(&object, constant);
    if (constant->most < constant->least * 1.0001) {
        sp_object_error(&object, "most", "expected more than least");
    } else if (constant->start > 0.0 &&
               (constant->start < constant->least || constant->start > constant->most)) {
        sp_object_error(&object, "start", "expected a number from least to most, got %g",
                        constant->start);
    }
    sp_object_end(&object);
}

static void read_constants(sp_object *root, fit_spec *spec)
{
    sp_object constants;
    sp_object_require(root, "constants");
    if (!sp_object_member(root, "constants", &constants)) {
        return;
    }
    size_t count = json_object_size(constants.json);
    if (count == 0 || count > FIT_CONSTANTS) {
        sp_object_error(root, "constants", "expected 1 to %d constants, got %zu",
                        (int)FIT_CONSTANTS, count);
        return;
    }
    const char *path;
    json_t *value;
    json_object_foreach ((json_t *)constants.json, path, value) {
        fit_constant *constant = &spec->constants[spec->constant_count];
        read_constant(&constants, path, constant);
        for (int c = 0; c < spec->constant_count; c++) {
            if (sp_json_paths_overlap(spec->constants[c].path, path)) {
                sp_object_error(&constants, path, "overlaps with '%.64s'", spec->constants[c].path);
            }
        }
        spec->constant_count++;
    }
}

// ---- tables ----

// Up to `most` different texts; returns how many.
static int read_names(sp_object *object, const char *key, int most, const char **names)
{
    const json_t *list = sp_object_get(object, key);
    size_t count = json_array_size(list);
    bool good = list == NULL || (json_is_array(list) && count >= 1 && count <= (size_t)most);
    for (size_t i = 0; good && i < count; i++) {
        names[i] = json_string_value(json_array_get(list, i));
        good = names[i] != NULL;
        for (size_t j = 0; good && j < i; j++) {
            good = strcmp(names[i], names[j]) != 0;
        }
    }
    if (!good) {
        sp_object_expected(object, key, list, "an array of 1 to %d different names", most);
        return 0;
    }
    return (int)count;
}

static int read_fold_count(sp_object *object, const char *key)
{
    int folds = (int)sp_object_int(object, key, 0, 0, FIT_FOLDS);
    if (folds == 1) {
        sp_object_error(object, key, "expected 0 (none) or at least 2, got 1");
    }
    return folds;
}

// A number, or {"group": [columns], "count": number}.
static void read_folds(sp_object *object, fit_table_spec *table)
{
    sp_object folds;
    if (!json_is_object(sp_object_get(object, "folds"))) {
        table->folds = read_fold_count(object, "folds");
        return;
    }
    sp_object_member(object, "folds", &folds);
    sp_object_require(&folds, "group");
    table->group_count = read_names(&folds, "group", FIT_GROUP_COLUMNS, table->group);
    table->folds = read_fold_count(&folds, "count");
    sp_object_end(&folds);
}

static void read_traits(sp_object *object, fit_table_spec *table)
{
    const char *names[FIT_RECORD_TRAITS];
    const char *known[SP_STEP_FIGURES + SP_STEP_WORDS + 1] = {NULL};
    for (int i = 0; i < SP_STEP_FIGURES + SP_STEP_WORDS; i++) {
        known[i] = sp_step_trait_name(i);
    }
    int count = read_names(object, "errors_by", FIT_RECORD_TRAITS, names);
    for (int i = 0; i < count; i++) {
        int trait = 0;
        while (known[trait] != NULL && strcmp(known[trait], names[i]) != 0) {
            trait++;
        }
        if (known[trait] == NULL) {
            char list[SP_ERROR_TEXT / 2] = "";
            for (int k = 0; known[k] != NULL; k++) {
                sp_append(list, sizeof list, "%s%s", k > 0 ? ", " : "", known[k]);
            }
            sp_object_error(object, "errors_by", "expected some of %s, got '%.64s'", list,
                            names[i]);
            return;
        }
        table->errors_by[i] = trait;
    }
    table->errors_by_count = count;
}

static void read_table_specs(sp_object *root, fit_spec *spec)
{
    sp_object tables;
    sp_object_require(root, "tables");
    if (!sp_object_member(root, "tables", &tables)) {
        return;
    }
    size_t count = json_object_size(tables.json);
    if (count == 0 || count > FIT_TABLES) {
        sp_object_error(root, "tables", "expected 1 to %d tables, got %zu", (int)FIT_TABLES, count);
        return;
    }
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)tables.json, name, value) {
        fit_table_spec *table = &spec->tables[spec->table_count++];
        sp_object object;
        *table = (fit_table_spec){.name = name};
        if (sp_object_member(&tables, name, &object)) {
            table->weight = sp_object_real(&object, "weight", 1.0, 0.0, 1e6);
            read_folds(&object, table);
            read_traits(&object, table);
            table->own_stack = sp_object_bool(&object, "own_stack", false);
            sp_object_end(&object);
        }
    }
}

// ---- ablations ----

static void read_overrides(sp_object *object, fit_ablation *ablation)
{
    const json_t *list = sp_object_get(object, "scenario");
    size_t count = json_array_size(list);
    bool fits = list == NULL || (json_is_array(list) && count <= FIT_OVERRIDES);
    for (size_t i = 0; fits && i < count; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        fits = text != NULL && strchr(text, '=') != NULL;
        ablation->overrides[i] = text;
    }
    if (!fits) {
        sp_object_expected(object, "scenario", list, "an array of at most %d texts PATH=VALUE",
                           (int)FIT_OVERRIDES);
        return;
    }
    ablation->override_count = (int)count;
}

static void read_ablation(sp_object *root, size_t number, fit_ablation *ablation)
{
    sp_object object;
    *ablation = (fit_ablation){.name = ""};
    sp_object_item(root, "ablations", number, &object);
    sp_object_require(&object, "name");
    ablation->name = sp_object_string(&object, "name", "");
    ablation->set = read_settings(&object, "set");
    read_overrides(&object, ablation);
    if (!sp_object_has(&object, "set") && !sp_object_has(&object, "scenario")) {
        sp_object_error(&object, "set",
                        "is missing: an ablation changes the profile (set), the "
                        "scenarios (scenario) or both");
    }
    sp_object_end(&object);
}

static void read_ablations(sp_object *root, fit_spec *spec)
{
    size_t count = json_array_size(sp_object_list(root, "ablations", FIT_ABLATIONS, "objects"));
    for (size_t i = 0; i < count; i++) {
        read_ablation(root, i, &spec->ablations[i]);
    }
    spec->ablation_count = (int)count;
}

// ---- the document ----

static void read_document(fit_spec *spec, sp_error *err)
{
    sp_object root;
    sp_object_begin(&root, spec->document, spec->source, "", err);
    const char *kind = sp_json_kind(spec->document);
    if (kind != NULL && json_object_get(spec->document, "constants") == NULL &&
        json_object_get(spec->document, "tables") == NULL) {
        sp_error_in(err, SP_ERR_CONTENT, spec->source, NULL,
                    "expected a fit's specification (" FIT_SCHEMA "), got %s", kind);
        return;
    }
    sp_object_require_all(&root, "schema", "profile");
    sp_object_schema(&root, FIT_SCHEMA);
    read_name(&root, spec);
    spec->description = sp_object_string(&root, "description", "");
    spec->tried = sp_object_texts(&root, "tried");
    spec->profile = sp_object_string(&root, "profile", "");
    spec->extends = sp_object_bool(&root, "extends", false);
    spec->start = read_settings(&root, "start");
    read_constants(&root, spec);
    read_table_specs(&root, spec);
    spec->leaves_out_tables = sp_object_bool(&root, "leave_out_tables", false);
    if (spec->leaves_out_tables && spec->table_count < 2) {
        sp_object_error(&root, "leave_out_tables", "expected false of one table");
    }
    read_ablations(&root, spec);
    spec->loss_scale = sp_object_real(&root, "loss_scale", 0.005, 1e-6, 10.0);
    spec->bootstrap = (int)sp_object_int(&root, "bootstrap", 0, 0, FIT_RESAMPLES);
    spec->seed = (uint64_t)sp_object_int(&root, "seed", 1, 0, INT64_MAX);
    sp_object_end(&root);
}

sp_status fit_spec_from_json(json_t *document, const char *source, fit_spec *spec, sp_error *err)
{
    sp_error own = {0};
    err = err != NULL ? err : &own;
    *spec = (fit_spec){.document = document};
    snprintf(spec->source, sizeof spec->source, "%s", source);
    read_document(spec, err);
    sp_status status = err->status;
    if (status != SP_OK) {
        fit_spec_fini(spec);
    }
    return status;
}

sp_status fit_spec_read(const char *path, fit_spec *spec, sp_error *err)
{
    *spec = (fit_spec){0};
    json_t *document = NULL;
    sp_status status = sp_json_read_file(path, DOCUMENT_LIMIT_BYTES, &document, err);
    if (status == SP_OK) {
        status = sp_scenario_place(document, path, err);
        if (status != SP_OK) {
            json_decref(document);
        }
    }
    return status == SP_OK ? fit_spec_from_json(document, path, spec, err) : status;
}

// ---- documents of profiles ----

enum {
    DIGITS = 15, // that every decimal number of so many digits keeps
    INDENT = 2,
};

// ---- paths ----

json_t *fit_document_get(const json_t *document, const char *path)
{
    char part[SP_JSON_PATH];
    bool more = true;
    json_t *value = (json_t *)document;
    while (more && value != NULL) {
        more = sp_json_path_next(&path, part);
        value = json_object_get(value, part);
    }
    return value;
}

void fit_document_set(json_t *document, const char *path, json_t *value)
{
    char part[SP_JSON_PATH];
    json_t *object = document;
    while (sp_json_path_next(&path, part)) {
        json_t *child = json_object_get(object, part);
        if (!json_is_object(child)) {
            if (value == NULL) {
                return;
            }
            child = json_object();
            sp_json_put(object, part, child);
        }
        object = child;
    }
    if (value == NULL) {
        json_object_del(object, part);
    } else {
        sp_json_put(object, part, value);
    }
}

void fit_document_apply(json_t *document, const json_t *settings)
{
    const char *path;
    json_t *value;
    json_object_foreach ((json_t *)settings, path, value) {
        fit_document_set(document, path, json_is_null(value) ? NULL : json_deep_copy(value));
    }
}

// ---- files ----

sp_status fit_document_check(const json_t *document, const char *source, sp_error *err)
{
    sp_profile profile;
    SP_TRY(sp_profile_from_json(document, source, &profile, err));
    sp_profile_fini(&profile);
    return SP_OK;
}

// The document of a valid profile by name or path, found as sp_profile_load finds it. The caller
// owns it; NULL after an error.
static sp_status load_document(const char *name, json_t **document, sp_error *err)
{
    char file[SP_PROFILE_PATH];
    sp_status status = sp_profile_document(name, document, file, err);
    if (status == SP_OK) {
        status = fit_document_check(*document, file, err);
        if (status != SP_OK) {
            json_decref(*document);
            *document = NULL;
        }
    }
    return status;
}

sp_status fit_document_extend(const char *name, const char *file, json_t **document, sp_error *err)
{
    char base_file[SP_PROFILE_PATH];
    char from_file[SP_PROFILE_PATH];
    const char *key;
    json_t *value;
    json_t *base = NULL;
    SP_TRY(sp_profile_document(name, &base, base_file, err));
    if (sp_profile_is_path(name) && sp_path_from(file, name, from_file, sizeof from_file)) {
        name = from_file;
    }
    json_t *own =
        sp_json_object(SP_JSON("schema", json_incref(json_object_get(*document, "schema"))),
                       SP_JSON("extends", name));
    json_object_foreach (*document, key, value) {
        if (!json_equal(value, json_object_get(base, key))) {
            json_object_set(own, key, value);
        }
    }
    json_object_foreach (base, key, value) {
        if (json_object_get(*document, key) == NULL) {
            json_object_set_new(own, key, json_null());
        }
    }
    json_decref(base);
    json_decref(*document);
    *document = own;
    return SP_OK;
}

// ---- text ----

static void write_value(const json_t *value, FILE *file, int depth);

static void write_flat(const json_t *value, FILE *file)
{
    if (json_is_array(value)) {
        size_t count = json_array_size(value);
        fputc('[', file);
        for (size_t i = 0; i < count; i++) {
            fputs(i > 0 ? ", " : "", file);
            write_flat(json_array_get(value, i), file);
        }
        fputc(']', file);
        return;
    }
    json_dumpf(value, file, JSON_ENCODE_ANY | JSON_REAL_PRECISION(DIGITS));
}

static void write_key(const char *key, FILE *file)
{
    json_t *text = json_string(key);
    write_flat(text, file);
    json_decref(text);
    fputs(": ", file);
}

static void write_object(const json_t *object, FILE *file, int depth)
{
    const char *key;
    json_t *value;
    bool first = true;
    fputc('{', file);
    json_object_foreach ((json_t *)object, key, value) {
        fprintf(file, "%s\n%*s", first ? "" : ",", (depth + 1) * INDENT, "");
        write_key(key, file);
        write_value(value, file, depth + 1);
        first = false;
    }
    if (!first) {
        fprintf(file, "\n%*s", depth * INDENT, "");
    }
    fputc('}', file);
}

// Arrays of objects, one to a line, as deep as the profile has them.
static void write_objects(const json_t *array, FILE *file, int depth)
{
    size_t count = json_array_size(array);
    fputc('[', file);
    for (size_t i = 0; i < count; i++) {
        fprintf(file, "%s\n%*s", i > 0 ? "," : "", (depth + 1) * INDENT, "");
        write_value(json_array_get(array, i), file, depth + 1);
    }
    fprintf(file, "\n%*s]", depth * INDENT, "");
}

static void write_value(const json_t *value, FILE *file, int depth)
{
    if (json_is_object(value)) {
        write_object(value, file, depth);
    } else if (json_is_object(json_array_get(value, 0))) {
        write_objects(value, file, depth);
    } else {
        write_flat(value, file);
    }
}

void fit_document_write(const json_t *document, FILE *file)
{
    write_value(document, file, 0);
    fputc('\n', file);
}

enum { OVERRIDES = FIT_OVERRIDES + 2 };

// ---- rows ----

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

// "key=..." with the value (taken over) as JSON, as a JSON text.
static json_t *override_of(const char *key, json_t *value)
{
    char *dump = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    json_t *text = json_sprintf("%s=%s", key, dump);
    json_decref(value);
    free(dump);
    return text;
}

// The stack of the profile as an object, so that single switches can be overridden.
static json_t *stack_override(const json_t *stack)
{
    json_t *object = json_is_string(stack) ? json_object() : json_deep_copy(stack);
    if (json_is_string(stack)) {
        sp_json_put(object, "name", json_string(json_string_value(stack)));
    }
    return override_of("stack", object);
}

// Places among the overrides; those of an ablation come behind.
enum { PROFILE, STACK, STATED };

static sp_status read_tables(const fit_spec *spec, const fit_source *sources,
                             const int source_of[FIT_TABLES], const char *const *overrides,
                             int override_count, fit_rows *rows, sp_error *err)
{
    for (int t = 0; t < spec->table_count; t++) {
        const fit_source *source = &sources[source_of[t]];
        const char *asked[OVERRIDES];
        int count = 0;
        for (int i = 0; i < override_count; i++) {
            if (overrides[i] != NULL && (i != STACK || !spec->tables[t].own_stack)) {
                asked[count++] = overrides[i];
            }
        }
        SP_TRY(source->logs != NULL
                   ? sp_measurements_of_log(source->csv, source->logs, source->log_count, asked,
                                            count, &rows->tables[t], err)
                   : sp_measurements_read(source->csv, source->map, asked, count, &rows->tables[t],
                                          err));
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
    rows->cases = sp_arena_take(&rows->arena, rows->count, sizeof *rows->cases);
    rows->observed = sp_arena_take(&rows->arena, rows->count, sizeof *rows->observed);
    rows->weight = sp_arena_take(&rows->arena, rows->count, sizeof *rows->weight);
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
    const json_t *named = json_object_get(profile, "stack");
    int count = STATED;
    int source_of[FIT_TABLES];
    *rows = (fit_rows){0};
    // The profile that the table's map names need not be there yet: it may be the one being fitted.
    json_t *start = override_of("profile", json_string(spec->profile));
    json_t *stack = named != NULL ? stack_override(named) : NULL;
    sp_status status = match_sources(spec, sources, source_count, source_of, err);
    overrides[PROFILE] = json_string_value(start);
    overrides[STACK] = json_string_value(stack); // NULL of NULL
    for (int i = 0; ablation != NULL && i < ablation->override_count; i++) {
        overrides[count++] = ablation->overrides[i];
    }
    if (status == SP_OK) {
        status = read_tables(spec, sources, source_of, overrides, count, rows, err);
    }
    if (status == SP_OK) {
        status = list_rows(spec, rows, err);
    }
    json_decref(start);
    json_decref(stack);
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
    sp_arena_free(&rows->arena);
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
    const uint8_t *wanted;
    double *predicted;
} prediction;

static sp_status predict_row(void *context, int worker SP_UNUSED, int row, sp_error *err)
{
    const prediction *p = context;
    if (p->wanted != NULL && p->wanted[row] == 0) {
        return SP_OK;
    }
    const sp_measurements *table = &p->rows->tables[fit_rows_table(p->rows, (size_t)row)];
    sp_error found = {0};
    sp_status status = sp_measured_case_count(p->rows->cases[row], table->kind, &found);
    if (status == SP_OK) {
        status = sp_measured_case_predict(p->rows->cases[row], table->kind, p->profile,
                                          &p->predicted[row], &found);
    }
    return status == SP_OK ? SP_OK
                           : sp_error_set(err, status, "%s line %d: %.400s", table->name,
                                          p->rows->cases[row]->line, found.message[0]);
}

// predicted[i] of every row with wanted[i] != 0 (NULL: all rows), the other values are left alone.
// Returns the error of the first of several rows that fail. Independent of `threads`.
static sp_status predict_rows(const fit_rows *rows, const sp_profile *profile,
                              const uint8_t *wanted, int threads, double *predicted, sp_error *err)
{
    prediction p = {.rows = rows, .profile = profile, .wanted = wanted, .predicted = predicted};
    return sp_parallel_for(threads, (int)rows->count, predict_row, &p, err);
}

// ---- the model ----

static bool is_set(const fit_ablation *ablation, const char *path)
{
    const char *set;
    json_t *value;
    const json_t *settings = ablation != NULL ? ablation->set : NULL;
    json_object_foreach ((json_t *)settings, set, value) {
        if (sp_json_paths_overlap(set, path)) {
            return true;
        }
    }
    return false;
}

sp_status fit_model_init(const fit_spec *spec, const fit_ablation *ablation, fit_model *model,
                         sp_error *err)
{
    *model = (fit_model){.source = spec->source};
    sp_status status = load_document(spec->profile, &model->document, err);
    if (status == SP_OK) {
        fit_document_apply(model->document, spec->start);
    }
    // The part that the ablation takes away may be what a constant's start would have made.
    for (int c = 0; status == SP_OK && c < spec->constant_count; c++) {
        const fit_constant *constant = &spec->constants[c];
        if (constant->start > 0.0) {
            fit_document_set(model->document, constant->path, json_real(constant->start));
        }
        if (!is_set(ablation, constant->path)) {
            model->number[model->constant_count] = c;
            model->constants[model->constant_count++] = *constant;
        }
    }
    if (status == SP_OK && ablation != NULL) {
        fit_document_apply(model->document, ablation->set);
    }
    if (status != SP_OK) {
        fit_model_fini(model);
    }
    return status;
}

void fit_model_fini(fit_model *model)
{
    json_decref(model->document);
    *model = (fit_model){0};
}

sp_status fit_model_parameters(const fit_model *model, fit_parameter *parameters, sp_error *err)
{
    for (int c = 0; c < model->constant_count; c++) {
        const fit_constant *constant = &model->constants[c];
        const json_t *value = fit_document_get(model->document, constant->path);
        char path[SP_JSON_PATH];
        snprintf(path, sizeof path, "constants.%s", constant->path);
        if (!json_is_number(value)) {
            return sp_error_in(err, SP_ERR_CONTENT, model->source, path,
                               "is not a number of the start profile (give it a start)");
        }
        double start = json_number_value(value);
        if (!(start >= constant->least && start <= constant->most)) {
            return sp_error_in(err, SP_ERR_CONTENT, model->source, path,
                               "starts at %g, outside least and most, %g and %g", start,
                               constant->least, constant->most);
        }
        parameters[c] = (fit_parameter){.start = start,
                                        .least = constant->least,
                                        .most = constant->most,
                                        .expect = constant->expect,
                                        .within = constant->within};
    }
    return SP_OK;
}

json_t *fit_model_document(const fit_model *model, const double *constants)
{
    json_t *document = json_deep_copy(model->document);
    for (int c = 0; c < model->constant_count; c++) {
        fit_document_set(document, model->constants[c].path, json_real(constants[c]));
    }
    return document;
}

sp_status fit_model_predict(void *context, const double *constants, const uint8_t *wanted,
                            double *predicted, sp_error *err)
{
    const fit_model *model = context;
    sp_profile profile;
    json_t *document = fit_model_document(model, constants);
    sp_status status = sp_profile_from_json(document, model->source, &profile, err);
    if (status == SP_OK) {
        status = predict_rows(model->rows, &profile, wanted, model->threads, predicted, err);
        sp_profile_fini(&profile);
    }
    json_decref(document);
    return status;
}
