#include "experiments/fit/fit_spec.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/scenario/scenario.h"

enum { DOCUMENT_LIMIT_BYTES = 16 << 20 };

static const double least_value = 1e-12;
static const double most_value = 1e18;

static const json_t *read_texts(sp_object *object, const char *key)
{
    const json_t *texts = sp_object_get(object, key);
    bool good = texts == NULL || json_is_array(texts);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        good = good && json_is_string(json_array_get(texts, i));
    }
    if (!good) {
        sp_object_error(object, key, "expected an array of texts");
    }
    return good ? texts : NULL;
}

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
    sp_object_require(&object, "least");
    sp_object_require(&object, "most");
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
                size_t used = strlen(list);
                snprintf(list + used, sizeof list - used, "%s%s", k > 0 ? ", " : "", known[k]);
            }
            sp_object_error(object, "errors_by", "expected some of %s, got '%.64s'", list,
                            names[i]);
            return;
        }
        table->errors_by[i] = trait;
    }
    table->errors_by_count = count;
}

static void read_tables(sp_object *root, fit_spec *spec)
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
            table->weight = sp_object_real(&object, "weight", 1.0, 1e-6, 1e6);
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

static void read_ablation(sp_object *root, size_t number, const json_t *json,
                          fit_ablation *ablation)
{
    char path[SP_JSON_PATH];
    sp_object object;
    snprintf(path, sizeof path, "ablations[%zu]", number);
    *ablation = (fit_ablation){.name = ""};
    sp_object_begin(&object, json, root->source, path, root->err);
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
    const json_t *list = sp_object_get(root, "ablations");
    size_t count = json_array_size(list);
    if (list != NULL && (!json_is_array(list) || count > FIT_ABLATIONS)) {
        sp_object_error(root, "ablations", "expected an array of at most %d objects",
                        (int)FIT_ABLATIONS);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        read_ablation(root, i, json_array_get(list, i), &spec->ablations[i]);
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
    sp_object_require(&root, "schema");
    const char *schema = sp_object_string(&root, "schema", FIT_SCHEMA);
    if (strcmp(schema, FIT_SCHEMA) != 0) {
        sp_object_error(&root, "schema", "expected \"" FIT_SCHEMA "\", got \"%.64s\"", schema);
    }
    read_name(&root, spec);
    spec->description = sp_object_string(&root, "description", "");
    spec->tried = read_texts(&root, "tried");
    sp_object_require(&root, "profile");
    spec->profile = sp_object_string(&root, "profile", "");
    spec->extends = sp_object_bool(&root, "extends", false);
    spec->start = read_settings(&root, "start");
    read_constants(&root, spec);
    read_tables(&root, spec);
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
