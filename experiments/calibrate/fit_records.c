#include "experiments/calibrate/fit_records.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/scenario/scenario.h"

enum { NUMBER = 32 };

// One table; rows that make a record stand together in observed and predicted.
typedef struct recording {
    const fit_spec *spec;
    const fit_outcome *outcome;
    int table;
    size_t first, count;          // rows of the table
    sp_step_kind *kinds;          // [count]
    bool *done;                   // [count]: in a record of its kind already
    double *observed, *predicted; // [count], of times
    json_t *records;
    sp_error *err;
} recording;

static sp_status record_table(recording *r, const sp_profile *profile);
static sp_status record_kinds(recording *r);

sp_status fit_records_json(const fit_spec *spec, const fit_outcome *outcome,
                           const sp_profile *profile, json_t **records, sp_error *err)
{
    recording r = {.spec = spec, .outcome = outcome, .records = json_array(), .err = err};
    sp_status status = r.records != NULL ? SP_OK : sp_error_no_memory(err, "the errors of a fit");
    for (int t = 0; status == SP_OK && t < outcome->rows.table_count; t++) {
        bool of_times = outcome->rows.tables[t].kind == SP_MEASURED_ITERATION_MS ||
                        outcome->rows.tables[t].kind == SP_MEASURED_TOKENS_PER_S;
        if (outcome->folds[t] > 0 && of_times) {
            r.table = t;
            r.first = outcome->rows.first[t];
            r.count = outcome->rows.first[t + 1] - r.first;
            r.kinds = sp_i_calloc(r.count, sizeof *r.kinds);
            r.done = sp_i_calloc(r.count, sizeof *r.done);
            r.observed = sp_i_calloc(r.count, sizeof *r.observed);
            r.predicted = sp_i_calloc(r.count, sizeof *r.predicted);
            bool all =
                r.kinds != NULL && r.done != NULL && r.observed != NULL && r.predicted != NULL;
            status = all ? record_table(&r, profile) : sp_error_no_memory(err, "errors");
            sp_i_free(r.kinds);
            sp_i_free(r.done);
            sp_i_free(r.observed);
            sp_i_free(r.predicted);
        }
    }
    if (status != SP_OK) {
        json_decref(r.records);
        r.records = NULL;
    }
    *records = r.records;
    return status;
}

// ---- one record ----

static double brief(double value)
{
    char text[NUMBER];
    snprintf(text, sizeof text, "%.3g", value);
    return strtod(text, NULL);
}

static json_t *whole(double value)
{
    return json_integer((json_int_t)value);
}

// Values of one figure among the chosen rows.
static json_t *range_json(const recording *r, const size_t *chosen, size_t count, int figure)
{
    double least = HUGE_VAL;
    double most = -HUGE_VAL;
    for (size_t i = 0; i < count; i++) {
        double value = r->kinds[chosen[i]].figure[figure];
        least = fmin(least, value);
        most = fmax(most, value);
    }
    json_t *range = json_array();
    json_array_append_new(range, whole(least));
    json_array_append_new(range, whole(most));
    return range;
}

static json_t *words_json(const recording *r, const size_t *chosen, size_t count, int word)
{
    json_t *words = json_array();
    for (size_t i = 0; i < count; i++) {
        const char *text = r->kinds[chosen[i]].word[word];
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

static json_t *when_json(const recording *r, const size_t *chosen, size_t count)
{
    json_t *when = json_object();
    for (int f = 0; f < SP_STEP_FIGURES; f++) {
        sp_json_put(when, sp_step_figure_names[f], range_json(r, chosen, count, f));
    }
    for (int w = 0; w < SP_STEP_WORDS; w++) {
        sp_json_put(when, sp_step_word_names[w], words_json(r, chosen, count, w));
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
static sp_status record(recording *r, const size_t *chosen, size_t count, const sp_step_kind *kind)
{
    char scope[SP_ERROR_SCOPE];
    char source[SP_ERROR_SOURCE];
    fit_errors errors;
    if (json_array_size(r->records) == SP_ERROR_RECORDS) {
        return SP_OK;
    }
    // A throughput that is predicted too high is a time that is predicted too short.
    bool rate = r->outcome->rows.tables[r->table].kind == SP_MEASURED_TOKENS_PER_S;
    for (size_t i = 0; i < count; i++) {
        double observed = r->outcome->rows.observed[r->first + chosen[i]];
        double predicted = r->outcome->left_out[r->first + chosen[i]];
        r->observed[i] = rate ? 1.0 / observed : observed;
        r->predicted[i] = rate ? 1.0 / predicted : predicted;
    }
    sp_status status = fit_errors_of(r->observed, r->predicted, 0, count, &errors, r->err);
    if (status != SP_OK) {
        return status;
    }
    scope_text(r, kind, scope);
    source_text(r, source);
    json_t *object = json_object();
    bool complete = sp_json_put(object, "scope", json_string(scope)) &&
                    sp_json_put(object, "when", when_json(r, chosen, count)) &&
                    sp_json_put(object, "steps", json_integer((json_int_t)count)) &&
                    sp_json_put(object, "median", json_real(brief(errors.median))) &&
                    sp_json_put(object, "p90", json_real(brief(errors.p90))) &&
                    sp_json_put(object, "bias", json_real(brief(errors.bias))) &&
                    sp_json_put(object, "source", json_string(source));
    if (!complete) {
        json_decref(object);
        return sp_error_no_memory(r->err, "the errors of a fit");
    }
    return json_array_append_new(r->records, object) == 0
               ? SP_OK
               : sp_error_no_memory(r->err, "the errors of a fit");
}

// ---- which rows ----

static sp_status record_table(recording *r, const sp_profile *profile)
{
    size_t *all = sp_i_calloc(r->count, sizeof *all);
    if (all == NULL) {
        return sp_error_no_memory(r->err, "errors");
    }
    for (size_t i = 0; i < r->count; i++) {
        const sp_measured_case *measured = r->outcome->rows.cases[r->first + i];
        sp_step_kind_of(&measured->scenario, profile, &r->kinds[i]);
        all[i] = i;
    }
    sp_status status = record(r, all, r->count, NULL);
    sp_i_free(all);
    bool by_kind = r->spec->tables[r->table].errors_by_count > 0;
    return status == SP_OK && by_kind ? record_kinds(r) : status;
}

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

static sp_status record_kinds(recording *r)
{
    size_t *chosen = sp_i_calloc(r->count, sizeof *chosen);
    sp_status status = chosen != NULL ? SP_OK : sp_error_no_memory(r->err, "errors");
    for (size_t i = 0; status == SP_OK && i < r->count; i++) {
        size_t count = 0;
        for (size_t j = i; j < r->count && !r->done[i]; j++) {
            if (same_kind(r, i, j)) {
                chosen[count++] = j;
            }
        }
        for (size_t k = 0; k < count; k++) {
            r->done[chosen[k]] = true;
        }
        if (count >= FIT_RECORD_STEPS && count < r->count) {
            status = record(r, chosen, count, &r->kinds[i]);
        }
    }
    sp_i_free(chosen);
    return status;
}
