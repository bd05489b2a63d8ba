#include "experiments/fit/fit_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/fit/fit_model.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

enum {
    SOURCE = sizeof(((sp_curve *)0)->source),
    PART = 120,
    NUMBER = 32,
    // Kinds with fewer steps have no record of their own: nine in ten of them would be all.
    RECORD_STEPS = 10,
};

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
        sp_json_put(constants, outcome->model.constants[i].path,
                    json_pack("{s:f, s:o, s:s}", "value", value->value, "sd_percent",
                              brief_percent(value->spread >= 0.0, value->spread), "unit",
                              outcome->model.constants[i].unit));
    }
    return constants;
}

static json_t *tables_json(const fit_outcome *outcome)
{
    json_t *tables = json_array();
    for (int t = 0; t < outcome->rows.table_count; t++) {
        const sp_prediction_errors *errors = &outcome->errors[t];
        const sp_prediction_errors *folds = &outcome->fold_errors[t];
        json_array_append_new(
            tables, json_pack("{s:o*, s:I, s:o, s:o, s:o}", "name",
                              json_string(outcome->rows.tables[t].name), "rows",
                              (json_int_t)outcome->rows.tables[t].count, "mean_error_percent",
                              brief_percent(errors->known, errors->mean), "kfold_error_percent",
                              brief_percent(folds->known, folds->mean), "worst_percent",
                              brief_percent(errors->known, errors->worst)));
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

// Error records: how far the rows that no fit had seen were from their predictions, for each table
// and for kinds of steps in it. Of one table; rows of a record stand together in observed and
// predicted.
typedef struct recording {
    const fit_spec *spec;
    const fit_outcome *outcome;
    int table;
    size_t first, count;          // rows of the table
    const sp_step_kind *kinds;    // [count]
    bool *done;                   // [count]: in a record of its kind already
    size_t *chosen;               // [count]: rows of the record under way
    double *observed, *predicted; // [count], of times
    json_t *records;
} recording;

// ---- one record ----

// Six significant digits: so exactly are steps compared.
static json_t *bound_json(double value)
{
    char text[NUMBER];
    snprintf(text, sizeof text, "%.6g", value);
    return value == floor(value) ? json_integer((json_int_t)value) : json_real(strtod(text, NULL));
}

// Values of one figure among the chosen rows.
static json_t *range_json(const recording *r, size_t count, int figure)
{
    double least = HUGE_VAL;
    double most = -HUGE_VAL;
    for (size_t i = 0; i < count; i++) {
        double value = r->kinds[r->chosen[i]].figure[figure];
        least = fmin(least, value);
        most = fmax(most, value);
    }
    if (figure == SP_STEP_BUBBLE) { // a step of a slightly other one is like these
        least = floor(100.0 * least) / 100.0;
        most = ceil(100.0 * most) / 100.0;
    }
    return json_pack("[o, o]", bound_json(least), bound_json(most));
}

static json_t *words_json(const recording *r, size_t count, int word)
{
    json_t *words = json_array();
    for (size_t i = 0; i < count; i++) {
        const char *text = r->kinds[r->chosen[i]].word[word];
        size_t at = 0;
        while (at < json_array_size(words) &&
               strcmp(json_string_value(json_array_get(words, at)), text) != 0) {
            at++;
        }
        if (at == json_array_size(words)) {
            json_array_append_new(words, json_string(text));
        }
    }
    return words;
}

static json_t *when_json(const recording *r, size_t count)
{
    json_t *when = json_object();
    for (int f = 0; f < SP_STEP_FIGURES; f++) {
        sp_json_put(when, sp_step_figure_names[f], range_json(r, count, f));
    }
    for (int w = SP_STEP_CLUSTER + 1; w < SP_STEP_WORDS; w++) { // its figures say what it is
        sp_json_put(when, sp_step_word_names[w], words_json(r, count, w));
    }
    return when;
}

// "h100_nanotron, tp_nodes 1, model_parameters 8.03 billion", of a row.
static void scope_text(const recording *r, const sp_step_kind *kind, char text[SP_ERROR_SCOPE])
{
    const fit_table_spec *table = &r->spec->tables[r->table];
    snprintf(text, SP_ERROR_SCOPE, "%s", table->name);
    for (int i = 0; kind != NULL && i < table->errors_by_count; i++) {
        int trait = table->errors_by[i];
        size_t used = strlen(text);
        if (trait < SP_STEP_FIGURES) {
            double value = kind->figure[trait];
            bool billions = value >= 1e8;
            snprintf(text + used, SP_ERROR_SCOPE - used,
                     billions ? ", %s %.4g billion" : ", %s %.6g", sp_step_trait_name(trait),
                     billions ? value / 1e9 : value);
        } else {
            snprintf(text + used, SP_ERROR_SCOPE - used, ", %s %s", sp_step_trait_name(trait),
                     kind->word[trait - SP_STEP_FIGURES]);
        }
    }
}

static void source_text(const recording *r, char text[SP_ERROR_SOURCE])
{
    const fit_table_spec *table = &r->spec->tables[r->table];
    snprintf(text, SP_ERROR_SOURCE,
             "slimpack calibrate: rows of %s left out of the fit, in %d folds", table->name,
             r->outcome->folds[r->table]);
    for (int i = 0; i < table->group_count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, SP_ERROR_SOURCE - used, "%s%s",
                 i == 0 ? " of whole groups by " : ", ", table->group[i]);
    }
}

// `kind`: of all chosen rows in what the table's errors are told by; NULL: all rows of the table.
static void record(recording *r, size_t count, const sp_step_kind *kind)
{
    char scope[SP_ERROR_SCOPE];
    char source[SP_ERROR_SOURCE];
    sp_prediction_errors errors;
    if (json_array_size(r->records) == SP_ERROR_RECORDS) {
        return;
    }
    // A throughput that is predicted too high is a time that is predicted too short.
    bool rate = sp_measured_is_throughput(r->outcome->rows.tables[r->table].kind);
    for (size_t i = 0; i < count; i++) {
        double observed = r->outcome->rows.observed[r->first + r->chosen[i]];
        double predicted = r->outcome->left_out[r->first + r->chosen[i]];
        r->observed[i] = rate ? 1.0 / observed : observed;
        r->predicted[i] = rate ? 1.0 / predicted : predicted;
    }
    fit_errors_of(r->observed, r->predicted, 0, count, &errors);
    scope_text(r, kind, scope);
    source_text(r, source);
    json_t *object = json_pack("{s:s, s:o, s:I, s:i, s:o, s:o, s:o, s:s}", "scope", scope, "when",
                               when_json(r, count), "steps", (json_int_t)count, "folds",
                               r->outcome->folds[r->table], "median", brief(errors.median), "p90",
                               brief(errors.p90), "bias", brief(errors.bias), "source", source);
    json_array_append_new(r->records, object);
}

// ---- which rows ----

static bool same_kind(const recording *r, size_t a, size_t b)
{
    const fit_table_spec *table = &r->spec->tables[r->table];
    for (int i = 0; i < table->errors_by_count; i++) {
        int trait = table->errors_by[i];
        int word = trait - SP_STEP_FIGURES;
        bool same = word < 0 ? r->kinds[a].figure[trait] == r->kinds[b].figure[trait]
                             : strcmp(r->kinds[a].word[word], r->kinds[b].word[word]) == 0;
        if (!same) {
            return false;
        }
    }
    return true;
}

static void record_kinds(recording *r)
{
    for (size_t i = 0; i < r->count; i++) {
        size_t count = 0;
        for (size_t j = i; j < r->count && !r->done[i]; j++) {
            if (same_kind(r, i, j)) {
                r->chosen[count++] = j;
            }
        }
        for (size_t k = 0; k < count; k++) {
            r->done[r->chosen[k]] = true;
        }
        if (count >= RECORD_STEPS && count < r->count) {
            record(r, count, &r->kinds[i]);
        }
    }
}

static void record_table(recording *r)
{
    for (size_t i = 0; i < r->count; i++) {
        r->chosen[i] = i;
    }
    record(r, r->count, NULL);
    if (r->spec->tables[r->table].errors_by_count > 0) {
        record_kinds(r);
    }
}

// As `errors` of a profile: a record of each table of times that has folds and, where its
// specification says `errors_by`, of its rows with equal values of these traits.
static json_t *records_json(const fit_spec *spec, const fit_outcome *outcome)
{
    recording r = {.spec = spec, .outcome = outcome, .records = json_array()};
    for (int t = 0; t < outcome->rows.table_count; t++) {
        r.table = t;
        r.first = outcome->rows.first[t];
        r.count = outcome->rows.first[t + 1] - r.first;
        if (fit_left_out_time(outcome, r.first)) {
            sp_arena arena = {0};
            r.kinds = outcome->kinds + r.first;
            r.done = sp_arena_take(&arena, r.count, sizeof *r.done);
            r.chosen = sp_arena_take(&arena, r.count, sizeof *r.chosen);
            r.observed = sp_arena_take(&arena, r.count, sizeof *r.observed);
            r.predicted = sp_arena_take(&arena, r.count, sizeof *r.predicted);
            record_table(&r);
            sp_arena_free(&arena);
        }
    }
    return r.records;
}

static void add_errors(const fit_spec *spec, const fit_outcome *outcome, json_t *document)
{
    json_t *records = records_json(spec, outcome);
    if (json_array_size(records) > 0) {
        sp_json_put(document, "errors", records);
    } else {
        json_decref(records);
    }
}

// ---- the document ----

sp_status fit_profile_document(const fit_spec *spec, const fit_outcome *outcome, json_t **document,
                               sp_error *err)
{
    double constants[FIT_CONSTANTS] = {0.0};
    for (int i = 0; i < outcome->model.constant_count; i++) {
        constants[i] = outcome->values[i].value;
    }
    *document = fit_model_document(&outcome->model, constants);
    sp_json_put(*document, "name", json_string(spec->name));
    sp_json_put(*document, "fit", fit_json(spec, outcome));
    mark_sections(outcome, *document);
    // Errors of the profile that the fit started from are not those of the fitted one.
    json_object_del(*document, "errors");
    add_errors(spec, outcome, *document);
    sp_status status = fit_document_check(*document, spec->name, err);
    if (status != SP_OK) {
        json_decref(*document);
        *document = NULL;
    }
    return status;
}
