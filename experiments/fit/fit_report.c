// The findings of a fit, for people and for programs, and as a profile.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/fit/fit.h"
#include "experiments/measure/validation.h"
#include "sim/base/json.h"
#include "sim/base/writer.h"

// Columns of text and of numbers, in a file and on a screen of 100 columns; what is longer pushes
// the rest aside.
typedef struct widths {
    int text, wide, narrow;
} widths;

static const widths of_file = {.text = 44, .wide = 14, .narrow = 8};
static const widths of_screen = {.text = 33, .wide = 12, .narrow = 6};

enum { FIGURE = 32 };

// The first column is text and stands left.
static void print_head(FILE *out, const char *const *names, int count, int text, int width)
{
    static const char dashes[] = "--------------------------------------------------";
    sp_print(out, "| %-*s |", text, names[0]);
    for (int c = 1; c < count; c++) {
        sp_print(out, " %*s |", width, names[c]);
    }
    sp_print(out, "\n| %.*s |", text, dashes);
    for (int c = 1; c < count; c++) {
        sp_print(out, " %.*s: |", width - 1, dashes);
    }
    fputc('\n', out);
}

static void print_percent(FILE *out, int width, bool known, double fraction, const char *format)
{
    char text[FIGURE] = "-";
    if (known) {
        snprintf(text, sizeof text, format, 100.0 * fraction);
    }
    sp_print(out, " %*s |", width, text);
}

// ---- parts ----

static void print_constants(FILE *out, const widths *w, const fit_outcome *outcome)
{
    static const char *const names[] = {"constant", "value", "sd %", "unit", "note"};
    print_head(out, names, sizeof names / sizeof names[0], w->text, w->wide);
    for (int i = 0; i < outcome->model.constant_count; i++) {
        const fit_value *value = &outcome->values[i];
        sp_print(out, "| %-*s | %*.*g |", w->text, outcome->model.constants[i].path, w->wide,
                 FIT_DIGITS, value->value);
        print_percent(out, w->wide, value->spread >= 0.0 && !value->undetermined, value->spread,
                      "%.1f");
        sp_print(out, " %*s | %*s |\n", w->wide, outcome->model.constants[i].unit, w->wide,
                 value->undetermined ? "no row says"
                 : value->at_bound   ? "at its bound"
                                     : "");
    }
    if (outcome->resamples > 0) {
        sp_print(out, "\nsd: of %d bootstrap resamples\n", outcome->resamples);
    } else {
        fputs("\nsd: of the linearised fit\n", out);
    }
    for (int c = 0; c < outcome->correlation_count; c++) {
        const fit_correlation *pair = &outcome->correlations[c];
        sp_print(out, "correlated: %s and %s, r = %.3f: the rows hardly tell them apart\n",
                 outcome->model.constants[pair->a].path, outcome->model.constants[pair->b].path,
                 pair->r);
    }
}

static void print_errors(FILE *out, const widths *w, const fit_outcome *outcome)
{
    static const char *const names[] = {
        "table, errors in %", "rows", "mean", "median", "bias", "worst", "k-fold", "folds"};
    print_head(out, names, sizeof names / sizeof names[0], w->text, w->narrow);
    for (int t = 0; t < outcome->rows.table_count; t++) {
        const sp_prediction_errors *errors = &outcome->errors[t];
        const sp_prediction_errors *folds = &outcome->fold_errors[t];
        sp_print(out, "| %-*s | %*zu |", w->text, outcome->rows.tables[t].name, w->narrow,
                 outcome->rows.tables[t].count);
        print_percent(out, w->narrow, errors->known, errors->mean, "%.2f");
        print_percent(out, w->narrow, errors->known, errors->median, "%.2f");
        print_percent(out, w->narrow, errors->known, errors->bias, "%+.2f");
        print_percent(out, w->narrow, errors->known, errors->worst, "%+.1f");
        print_percent(out, w->narrow, folds->known, folds->mean, "%.2f");
        sp_print(out, " %*d |\n", w->narrow, outcome->folds[t]);
    }
}

// The constant that moved most when it was fitted again.
static void print_moved(FILE *out, const fit_outcome *outcome, const fit_ablation_result *ablation)
{
    int moved = -1;
    double most = 0.0;
    for (int i = 0; i < outcome->model.constant_count; i++) {
        if (ablation->constants[i] > 0.0) {
            double moved_by = fabs(log(ablation->constants[i] / outcome->values[i].value));
            moved = moved_by > most ? i : moved;
            most = fmax(most, moved_by);
        }
    }
    if (moved >= 0) {
        sp_print(out, " %s %.4g to %.4g", outcome->model.constants[moved].path,
                 outcome->values[moved].value, ablation->constants[moved]);
    }
    fputs(" |\n", out);
}

static void print_ablation(FILE *out, const widths *w, const fit_outcome *outcome,
                           const fit_ablation_result *ablation)
{
    sp_print(out, "| %-*s |", w->text, ablation != NULL ? ablation->name : "nothing");
    for (int t = 0; t < outcome->rows.table_count; t++) {
        double refitted = ablation != NULL ? ablation->refitted[t].mean : outcome->errors[t].mean;
        double kept = ablation != NULL ? ablation->kept[t].mean : outcome->errors[t].mean;
        sp_print(out, " %8.2f | %8.2f |", 100.0 * refitted, 100.0 * kept);
    }
    if (ablation != NULL) {
        print_moved(out, outcome, ablation);
    } else {
        fputs(" |\n", out);
    }
}

static void print_ablations(FILE *out, const widths *w, const fit_outcome *outcome)
{
    sp_print(out, "| %-*s |", w->text, "taken away, mean error in %");
    for (int t = 0; t < outcome->rows.table_count; t++) {
        fputs(" refitted |     kept |", out);
    }
    sp_print(out, " most changed by the refit |\n| %.*s |", w->text,
             "--------------------------------------------");
    for (int t = 0; t < outcome->rows.table_count; t++) {
        fputs(" -------: | -------: |", out);
    }
    fputs(" ------------------------- |\n", out);
    print_ablation(out, w, outcome, NULL);
    for (int a = 0; a < outcome->ablation_count; a++) {
        print_ablation(out, w, outcome, &outcome->ablations[a]);
    }
    if (outcome->rows.table_count > 1) {
        fputs("\nColumns by table:", out);
        for (int t = 0; t < outcome->rows.table_count; t++) {
            sp_print(out, "%s %s", t > 0 ? "," : "", outcome->rows.tables[t].name);
        }
        fputc('\n', out);
    }
}

static double error_of(const fit_outcome *outcome, size_t row)
{
    return outcome->predicted[row] / outcome->rows.observed[row] - 1.0;
}

static void print_unexplained(FILE *out, const fit_outcome *outcome)
{
    size_t count = 0;
    for (size_t row = 0; row < outcome->rows.count; row++) {
        count += fabs(error_of(outcome, row)) > FIT_UNEXPLAINED;
    }
    sp_print(out, "%zu of %zu rows are off by more than %.0f %%.\n", count, outcome->rows.count,
             100.0 * FIT_UNEXPLAINED);
    if (count == 0) {
        return;
    }
    fputs("\n| table | line | settings | measured | predicted | error % |\n"
          "| ----- | ---: | -------- | -------: | --------: | ------: |\n",
          out);
    for (size_t row = 0; row < outcome->rows.count; row++) {
        double error = error_of(outcome, row);
        if (fabs(error) > FIT_UNEXPLAINED) {
            const sp_measured_case *measured = outcome->rows.cases[row];
            sp_print(out, "| %s | %d | %s | %.5g | %.5g | %+.1f |\n",
                     outcome->rows.tables[fit_rows_table(&outcome->rows, row)].name, measured->line,
                     measured->label, outcome->rows.observed[row], outcome->predicted[row],
                     100.0 * error);
        }
    }
}

static void print_sources(FILE *out, const fit_outcome *outcome)
{
    for (int t = 0; t < outcome->rows.table_count; t++) {
        const sp_measurements *table = &outcome->rows.tables[t];
        sp_print(out, "- %s: %zu rows of %s", table->name, table->count,
                 sp_measured_names[table->kind]);
        sp_print(out, table->source[0] != '\0' ? ". %s\n" : "%s\n", table->source);
    }
}

void fit_report_text(FILE *out, const fit_spec *spec, const fit_outcome *outcome, bool whole)
{
    const widths *w = whole ? &of_file : &of_screen;
    if (whole) {
        sp_print(out, "# Profile %s, fitted to measured steps\n\n", spec->name);
        if (spec->description[0] != '\0') {
            sp_print(out, "%s\n\n", spec->description);
        }
        sp_print(out,
                 "Starts from profile %s; soft-L1 loss of scale %g on the logarithm of "
                 "predicted / measured; %d iterations%s.\n\n",
                 spec->profile, spec->loss_scale, outcome->iterations,
                 outcome->converged ? "" : ", not converged");
        print_sources(out, outcome);
        fputs("\n## Constants\n\n", out);
    }
    print_constants(out, w, outcome);
    fputs(whole ? "\n## Errors\n\n" : "\n", out);
    print_errors(out, w, outcome);
    if (outcome->ablation_count > 0) {
        fputs(whole ? "\n## Ablation\n\n" : "\n", out);
        print_ablations(out, w, outcome);
    }
    if (whole) {
        fputs("\n## Rows that the model does not explain\n\n", out);
        for (size_t i = 0; i < json_array_size(spec->tried); i++) {
            sp_print(out, "- %s\n", json_string_value(json_array_get(spec->tried, i)));
        }
        fputs(json_array_size(spec->tried) > 0 ? "\n" : "", out);
        print_unexplained(out, outcome);
    }
}

void fit_report_data(FILE *out, const fit_outcome *outcome)
{
    fputs("# table measured predicted error_percent left_out_error_percent name\n", out);
    for (int t = 0; t < outcome->rows.table_count; t++) {
        for (size_t row = outcome->rows.first[t]; row < outcome->rows.first[t + 1]; row++) {
            double left_out = outcome->left_out[row];
            sp_print(out, "%d %.9g %.9g %.6g ", t, outcome->rows.observed[row],
                     outcome->predicted[row], 100.0 * error_of(outcome, row));
            if (left_out > 0.0) {
                sp_print(out, "%.6g", 100.0 * (left_out / outcome->rows.observed[row] - 1.0));
            } else {
                fputc('-', out);
            }
            sp_print(out, " \"%s\"\n", outcome->rows.tables[t].name);
        }
        fputs("\n\n", out);
    }
}

// ---- JSON ----

static json_t *percent(bool known, double fraction)
{
    return known ? sp_json_figure(100.0 * fraction) : json_null();
}

static json_t *constants_json(const fit_outcome *outcome)
{
    json_t *constants = json_object();
    for (int i = 0; i < outcome->model.constant_count; i++) {
        const fit_value *value = &outcome->values[i];
        sp_json_put(constants, outcome->model.constants[i].path,
                    sp_json_object(
                        SP_JSON("value", value->value),
                        SP_JSON("sd_percent", percent(value->spread >= 0.0 && !value->undetermined,
                                                      value->spread)),
                        SP_JSON("unit", outcome->model.constants[i].unit),
                        SP_JSON("at_bound", value->at_bound),
                        SP_JSON("determined", json_boolean(!value->undetermined))));
    }
    return constants;
}

static json_t *correlations_json(const fit_outcome *outcome)
{
    json_t *list = json_array();
    for (int c = 0; c < outcome->correlation_count; c++) {
        const fit_correlation *pair = &outcome->correlations[c];
        json_array_append_new(list,
                              sp_json_object(SP_JSON("a", outcome->model.constants[pair->a].path),
                                             SP_JSON("b", outcome->model.constants[pair->b].path),
                                             SP_JSON("r", pair->r)));
    }
    return list;
}

// A text that is not UTF-8 has no place in JSON: its key is left out.
static json_t *tables_json(const fit_outcome *outcome)
{
    json_t *list = json_array();
    for (int t = 0; t < outcome->rows.table_count; t++) {
        const sp_measurements *table = &outcome->rows.tables[t];
        const sp_prediction_errors *errors = &outcome->errors[t];
        const sp_prediction_errors *folds = &outcome->fold_errors[t];
        json_t *worst_row = errors->known
                                ? json_string(outcome->rows.cases[errors->worst_row]->label)
                                : json_null();
        json_t *object = sp_json_object(
            SP_JSON("name", table->name), SP_JSON("measured", sp_measured_names[table->kind]),
            SP_JSON("rows", table->count),
            SP_JSON("mean_error_percent", percent(errors->known, errors->mean)),
            SP_JSON("median_error_percent", percent(errors->known, errors->median)),
            SP_JSON("bias_percent", percent(errors->known, errors->bias)),
            SP_JSON("worst_percent", percent(errors->known, errors->worst)),
            SP_JSON("worst_row", worst_row), SP_JSON("folds", outcome->folds[t]),
            SP_JSON("kfold_error_percent", percent(folds->known, folds->mean)));
        if (json_array_size(outcome->warnings[t]) > 0) {
            sp_json_put(object, "warnings", json_incref(outcome->warnings[t]));
        }
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *means_json(const fit_outcome *outcome, const sp_prediction_errors errors[FIT_TABLES])
{
    json_t *means = json_object();
    for (int t = 0; t < outcome->rows.table_count; t++) {
        sp_json_put(means, outcome->rows.tables[t].name, percent(errors[t].known, errors[t].mean));
    }
    return means;
}

static json_t *ablations_json(const fit_outcome *outcome)
{
    json_t *list = json_array();
    for (int a = 0; a < outcome->ablation_count; a++) {
        const fit_ablation_result *ablation = &outcome->ablations[a];
        json_t *constants = json_object();
        for (int i = 0; i < outcome->model.constant_count; i++) {
            if (ablation->constants[i] > 0.0) {
                sp_json_put(constants, outcome->model.constants[i].path,
                            json_real(ablation->constants[i]));
            }
        }
        json_array_append_new(
            list, sp_json_object(
                      SP_JSON("name", ablation->name),
                      SP_JSON("refitted_error_percent", means_json(outcome, ablation->refitted)),
                      SP_JSON("kept_error_percent", means_json(outcome, ablation->kept)),
                      SP_JSON("refitted", constants)));
    }
    return list;
}

static json_t *rows_json(const fit_outcome *outcome)
{
    json_t *list = json_array();
    for (size_t row = 0; row < outcome->rows.count; row++) {
        double observed = outcome->rows.observed[row];
        double left_out = outcome->left_out[row];
        const sp_measured_case *measured = outcome->rows.cases[row];
        int table = fit_rows_table(&outcome->rows, row);
        json_t *object = sp_json_object(
            SP_JSON("table", outcome->rows.tables[table].name), SP_JSON("line", measured->line),
            SP_JSON("label", measured->label), SP_JSON("measured", observed),
            SP_JSON("predicted", outcome->predicted[row]),
            SP_JSON("error_percent", percent(true, outcome->predicted[row] / observed - 1.0)),
            SP_JSON("left_out_error_percent", percent(left_out > 0.0, left_out / observed - 1.0)));
        if (fit_left_out_time(outcome, row)) {
            sp_json_add(object, SP_JSON("differing_traits", outcome->differing[row]),
                        SP_JSON("foreign_traits", outcome->foreign[row]),
                        SP_JSON("layer_ms", outcome->layer_ms[row]));
        }
        json_array_append_new(list, object);
    }
    return list;
}

json_t *fit_report_json(const fit_spec *spec, const fit_outcome *outcome)
{
    return sp_json_object(
        SP_JSON("schema", "slimpack/calibration/1"), SP_JSON("profile", spec->name),
        SP_JSON("start", spec->profile), SP_JSON("seed", spec->seed),
        SP_JSON("constants", constants_json(outcome)), SP_JSON("bootstrap", outcome->resamples),
        SP_JSON("correlations", correlations_json(outcome)),
        SP_JSON("tables", tables_json(outcome)), SP_JSON("ablations", ablations_json(outcome)),
        SP_JSON("rows", rows_json(outcome)), SP_JSON("iterations", outcome->iterations),
        SP_JSON("evaluations", outcome->evaluations), SP_JSON("converged", outcome->converged));
}

// ---- the findings as a profile ----

enum {
    SOURCE = sizeof(((sp_curve *)0)->source),
    PART = 120,
    NUMBER = 32,
    // Kinds with fewer steps have no record of their own: nine in ten of them would be all.
    RECORD_STEPS = 10,
};
#define FITTED ": slimpack calibrate, fitted to "
#define ELSE "; else "

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

static json_t *brief_constants_json(const fit_outcome *outcome)
{
    json_t *constants = json_object();
    for (int i = 0; i < outcome->model.constant_count; i++) {
        const fit_value *value = &outcome->values[i];
        sp_json_put(constants, outcome->model.constants[i].path,
                    sp_json_object(
                        SP_JSON("value", value->value),
                        SP_JSON("sd_percent", brief_percent(value->spread >= 0.0, value->spread)),
                        SP_JSON("unit", outcome->model.constants[i].unit)));
    }
    return constants;
}

static json_t *brief_tables_json(const fit_outcome *outcome)
{
    json_t *tables = json_array();
    for (int t = 0; t < outcome->rows.table_count; t++) {
        const sp_prediction_errors *errors = &outcome->errors[t];
        const sp_prediction_errors *folds = &outcome->fold_errors[t];
        json_array_append_new(
            tables, sp_json_object(
                        SP_JSON("name", outcome->rows.tables[t].name),
                        SP_JSON("rows", outcome->rows.tables[t].count),
                        SP_JSON("mean_error_percent", brief_percent(errors->known, errors->mean)),
                        SP_JSON("kfold_error_percent", brief_percent(folds->known, folds->mean)),
                        SP_JSON("worst_percent", brief_percent(errors->known, errors->worst))));
    }
    return tables;
}

static json_t *fit_json(const fit_spec *spec, const fit_outcome *outcome)
{
    json_t *fit = json_object();
    if (spec->description[0] != '\0') {
        sp_json_put(fit, "description", json_string(spec->description));
    }
    return sp_json_add(fit, SP_JSON("constants", brief_constants_json(outcome)),
                       SP_JSON("tables", brief_tables_json(outcome)));
}

// ---- sections ----

// Length of what stands before the last name of the path, with its dot.
static size_t section_length(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL ? (size_t)(dot - path) + 1 : 0;
}

// What stood there before, with its level before it: "assumed: start of the fit". Where that was
// fitted too, by the same constants, nothing of that fit is left.
static void text_before(const json_t *section, const char *fitted, char text[SOURCE])
{
    const char *before = json_string_value(json_object_get(section, "source"));
    const char *level = json_string_value(json_object_get(section, "level"));
    size_t length = strlen(fitted);
    text[0] = '\0';
    if (before == NULL || level == NULL) {
        return;
    }
    if (strncmp(before, fitted, length) == 0 &&
        strncmp(before + length, FITTED, strlen(FITTED)) == 0) {
        const char *other = strstr(before, ELSE);
        snprintf(text, SOURCE, "%s", other != NULL ? other + strlen(ELSE) : "");
    } else if (before[0] != '\0') {
        snprintf(text, SOURCE, "%s: %s", level, before);
    }
}

static void add_source(char source[SOURCE], const char *fitted, const char *tables,
                       const char *before)
{
    int bytes = snprintf(source, SOURCE, "%s" FITTED "%s%s%s", fitted, tables,
                         before[0] != '\0' ? ELSE : "", before);
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
    char source[SOURCE], before[SOURCE];
    text_before(section, fitted, before);
    add_source(source, fitted, tables, before);
    sp_json_add(section, SP_JSON("level", sp_level_names[SP_LEVEL_FITTED]),
                SP_JSON("source", source));
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
        sp_append(names, PART, "%s%s", names[0] != '\0' ? ", " : "", other + length);
    }
    return true;
}

static void mark_sections(const fit_outcome *outcome, json_t *document)
{
    char tables[PART] = "";
    char names[PART];
    char section[SP_JSON_PATH];
    for (int t = 0; t < outcome->rows.table_count; t++) {
        if (outcome->rows.weight[outcome->rows.first[t]] > 0.0) {
            sp_append(tables, sizeof tables, "%s%s", tables[0] != '\0' ? ", " : "",
                      outcome->rows.tables[t].name);
        }
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
        if (trait < SP_STEP_FIGURES) {
            double value = kind->figure[trait];
            bool billions = value >= 1e8;
            sp_append(text, SP_ERROR_SCOPE, billions ? ", %s %.4g billion" : ", %s %.6g",
                      sp_step_trait_name(trait), billions ? value / 1e9 : value);
        } else {
            sp_append(text, SP_ERROR_SCOPE, ", %s %s", sp_step_trait_name(trait),
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
        sp_append(text, SP_ERROR_SOURCE, "%s%s", i == 0 ? " of whole groups by " : ", ",
                  table->group[i]);
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
    json_t *object =
        sp_json_object(SP_JSON("scope", scope), SP_JSON("when", when_json(r, count)),
                       SP_JSON("steps", count), SP_JSON("folds", r->outcome->folds[r->table]),
                       SP_JSON("median", brief(errors.median)), SP_JSON("p90", brief(errors.p90)),
                       SP_JSON("bias", brief(errors.bias)), SP_JSON("source", source));
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
    sp_json_add(*document, SP_JSON("name", spec->name), SP_JSON("fit", fit_json(spec, outcome)));
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
