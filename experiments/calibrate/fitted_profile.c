#include "experiments/calibrate/fitted_profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/calibrate/fit_records.h"
#include "experiments/calibrate/profile_document.h"
#include "sim/base/json.h"
#include "sim/cost/profile.h"

enum { SOURCE = sizeof(((sp_curve *)0)->source), PART = 120, NUMBER = 32 };

// Numbers for people: three significant digits, the same on every machine.
static json_t *brief(double value)
{
    char text[NUMBER];
    snprintf(text, sizeof text, "%.3g", value);
    return json_real(strtod(text, NULL));
}

static json_t *brief_percent(bool known, double fraction)
{
    return known ? brief(100.0 * fraction) : json_null();
}

static json_t *constants_json(const fit_outcome *outcome)
{
    json_t *constants = json_object();
    for (int i = 0; i < outcome->model.constant_count; i++) {
        const fit_value *value = &outcome->values[i];
        json_t *constant = json_object();
        sp_json_put(constant, "value", json_real(value->value));
        sp_json_put(constant, "sd_percent", brief_percent(value->spread >= 0.0, value->spread));
        sp_json_put(constant, "unit", json_string(outcome->model.constants[i].unit));
        sp_json_put(constants, outcome->model.constants[i].path, constant);
    }
    return constants;
}

static json_t *tables_json(const fit_outcome *outcome)
{
    json_t *tables = json_array();
    for (int t = 0; t < outcome->rows.table_count; t++) {
        const sp_prediction_errors *errors = &outcome->errors[t];
        const sp_prediction_errors *folds = &outcome->fold_errors[t];
        json_t *table = json_object();
        sp_json_put(table, "name", json_string(outcome->rows.tables[t].name));
        sp_json_put(table, "rows", json_integer((json_int_t)outcome->rows.tables[t].count));
        sp_json_put(table, "mean_error_percent", brief_percent(errors->known, errors->mean));
        sp_json_put(table, "kfold_error_percent", brief_percent(folds->known, folds->mean));
        sp_json_put(table, "worst_percent", brief_percent(errors->known, errors->worst));
        json_array_append_new(tables, table);
    }
    return tables;
}

static json_t *fit_json(const fit_spec *spec, const fit_outcome *outcome)
{
    json_t *fit = json_object();
    if (spec->description[0] != '\0') {
        sp_json_put(fit, "description", json_string(spec->description));
    }
    sp_json_put(fit, "constants", constants_json(outcome));
    sp_json_put(fit, "tables", tables_json(outcome));
    return fit;
}

// ---- sections ----

// Length of what stands before the last name of the path, with its dot.
static size_t section_length(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL ? (size_t)(dot - path) + 1 : 0;
}

static void add(char *text, size_t bytes, const char *more, const char *name, size_t name_length)
{
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%.*s", more, (int)name_length, name);
}

static void add_source(char source[SOURCE], const char *fitted, const char *tables,
                       const char *before)
{
    int bytes = snprintf(source, SOURCE, "%s: slimpack calibrate, fitted to %s%s%s", fitted, tables,
                         before[0] != '\0' ? "; else: " : "", before);
    if (bytes >= SOURCE) {
        memcpy(source + SOURCE - 4, "...", 4);
        // A character of several bytes must not be cut.
        for (size_t i = SOURCE - 5; i > 0 && ((unsigned char)source[i] & 0x80) != 0; i--) {
            source[i] = '.';
        }
    }
}

static void mark(json_t *section, const char *fitted, const char *tables)
{
    char source[SOURCE];
    const char *before = json_string_value(json_object_get(section, "source"));
    add_source(source, fitted, tables, before != NULL ? before : "");
    sp_json_put(section, "level", json_string(sp_level_names[SP_LEVEL_FITTED]));
    sp_json_put(section, "source", json_string(source));
}

// A scale stands over tables that have levels of their own.
static void mark_section(json_t *section, const char *fitted, const char *tables)
{
    const char *key;
    json_t *member;
    if (json_object_get(section, "level") != NULL) {
        mark(section, fitted, tables);
        return;
    }
    json_object_foreach (section, key, member) {
        if (json_object_get(member, "level") != NULL) {
            mark(member, fitted, tables);
        }
    }
}

// "tflops and half_rate_k", of all constants in the section of constant `first`; false where an
// earlier one is in it.
static bool names_in_section(const fit_model *model, int first, char names[PART])
{
    const char *path = model->constants[first].path;
    size_t length = section_length(path);
    names[0] = '\0';
    for (int i = 0; i < model->constant_count; i++) {
        const char *other = model->constants[i].path;
        if (section_length(other) != length || strncmp(path, other, length) != 0) {
            continue;
        }
        if (i < first) {
            return false;
        }
        add(names, PART, names[0] != '\0' ? ", " : "", other + length, strlen(other + length));
    }
    return true;
}

static void mark_sections(const fit_outcome *outcome, json_t *document)
{
    char tables[PART] = "";
    char names[PART];
    char section[SP_JSON_PATH];
    for (int t = 0; t < outcome->rows.table_count; t++) {
        const char *name = outcome->rows.tables[t].name;
        add(tables, sizeof tables, t > 0 ? ", " : "", name, strlen(name));
    }
    for (int i = 0; i < outcome->model.constant_count; i++) {
        const char *path = outcome->model.constants[i].path;
        size_t length = section_length(path);
        if (length > 0 && names_in_section(&outcome->model, i, names)) {
            snprintf(section, sizeof section, "%.*s", (int)length - 1, path);
            mark_section(fit_document_get(document, section), names, tables);
        }
    }
}

// ---- errors ----

static sp_status add_errors(const fit_spec *spec, const fit_outcome *outcome, json_t *document,
                            sp_error *err)
{
    sp_profile profile;
    json_t *records = NULL;
    sp_status status = sp_profile_from_json(document, spec->name, &profile, err);
    if (status != SP_OK) {
        return status;
    }
    status = fit_records_json(spec, outcome, &profile, &records, err);
    sp_profile_fini(&profile);
    if (status == SP_OK && json_array_size(records) > 0) {
        return sp_json_put(document, "errors", records)
                   ? SP_OK
                   : sp_error_no_memory(err, "the errors of a fit");
    }
    json_decref(records);
    return status;
}

// ---- the document ----

// What jansson could not put for want of memory, the reading back finds missing or the copy shows.
sp_status fit_profile_document(const fit_spec *spec, const fit_outcome *outcome, json_t **document,
                               sp_error *err)
{
    double constants[FIT_CONSTANTS] = {0.0};
    for (int i = 0; i < outcome->model.constant_count; i++) {
        constants[i] = outcome->values[i].value;
    }
    *document = fit_model_document(&outcome->model, constants);
    if (*document == NULL || !sp_json_put(*document, "name", json_string(spec->name)) ||
        !sp_json_put(*document, "fit", fit_json(spec, outcome))) {
        json_decref(*document);
        *document = NULL;
        return sp_error_no_memory(err, "a profile");
    }
    mark_sections(outcome, *document);
    // Errors of the profile that the fit started from are not those of the fitted one.
    json_object_del(*document, "errors");
    sp_status status = add_errors(spec, outcome, *document, err);
    sp_profile profile;
    if (status == SP_OK) {
        status = sp_profile_from_json(*document, spec->name, &profile, err);
    }
    if (status == SP_OK) {
        sp_profile_fini(&profile);
    } else {
        json_decref(*document);
        *document = NULL;
    }
    return status;
}
