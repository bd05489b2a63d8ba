#include "experiments/fit/fit_report.h"

#include <math.h>

#include "sim/base/json.h"
#include "sim/base/writer.h"

// Columns of text and of numbers; what is longer pushes the rest aside.
enum { TEXT = 44, WIDE = 14, NARROW = 8, FIGURE = 32 };

// The first column is text and stands left.
static void print_head(FILE *out, const char *const *names, int count, int width)
{
    static const char dashes[] = "--------------------------------------------------";
    sp_print(out, "| %-*s |", TEXT, names[0]);
    for (int c = 1; c < count; c++) {
        sp_print(out, " %*s |", width, names[c]);
    }
    sp_print(out, "\n| %.*s |", TEXT, dashes);
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

static void print_constants(FILE *out, const fit_outcome *outcome)
{
    static const char *const names[] = {"constant", "value", "sd %", "unit", "note"};
    print_head(out, names, sizeof names / sizeof names[0], WIDE);
    for (int i = 0; i < outcome->model.constant_count; i++) {
        const fit_value *value = &outcome->values[i];
        sp_print(out, "| %-*s | %*.*g |", TEXT, outcome->model.constants[i].path, WIDE, FIT_DIGITS,
                 value->value);
        print_percent(out, WIDE, value->spread >= 0.0 && !value->undetermined, value->spread,
                      "%.1f");
        sp_print(out, " %*s | %*s |\n", WIDE, outcome->model.constants[i].unit, WIDE,
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

static void print_errors(FILE *out, const fit_outcome *outcome)
{
    static const char *const names[] = {
        "table, errors in %", "rows", "mean", "median", "bias", "worst", "k-fold", "folds"};
    print_head(out, names, sizeof names / sizeof names[0], NARROW);
    for (int t = 0; t < outcome->rows.table_count; t++) {
        const sp_prediction_errors *errors = &outcome->errors[t];
        const sp_prediction_errors *folds = &outcome->fold_errors[t];
        sp_print(out, "| %-*s | %*zu |", TEXT, outcome->rows.tables[t].name, NARROW,
                 outcome->rows.tables[t].count);
        print_percent(out, NARROW, errors->known, errors->mean, "%.2f");
        print_percent(out, NARROW, errors->known, errors->median, "%.2f");
        print_percent(out, NARROW, errors->known, errors->bias, "%+.2f");
        print_percent(out, NARROW, errors->known, errors->worst, "%+.1f");
        print_percent(out, NARROW, folds->known, folds->mean, "%.2f");
        sp_print(out, " %*d |\n", NARROW, outcome->folds[t]);
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

static void print_ablation(FILE *out, const fit_outcome *outcome,
                           const fit_ablation_result *ablation)
{
    sp_print(out, "| %-*s |", TEXT, ablation != NULL ? ablation->name : "nothing");
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

static void print_ablations(FILE *out, const fit_outcome *outcome)
{
    sp_print(out, "| %-*s |", TEXT, "taken away, mean error in %");
    for (int t = 0; t < outcome->rows.table_count; t++) {
        fputs(" refitted |     kept |", out);
    }
    fputs(" most changed by the refit |\n| -------------------------------------------- |", out);
    for (int t = 0; t < outcome->rows.table_count; t++) {
        fputs(" -------: | -------: |", out);
    }
    fputs(" ------------------------- |\n", out);
    print_ablation(out, outcome, NULL);
    for (int a = 0; a < outcome->ablation_count; a++) {
        print_ablation(out, outcome, &outcome->ablations[a]);
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
    print_constants(out, outcome);
    fputs(whole ? "\n## Errors\n\n" : "\n", out);
    print_errors(out, outcome);
    if (outcome->ablation_count > 0) {
        fputs(whole ? "\n## Ablation\n\n" : "\n", out);
        print_ablations(out, outcome);
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
                    json_pack("{s:f, s:o, s:s, s:b, s:b}", "value", value->value, "sd_percent",
                              percent(value->spread >= 0.0 && !value->undetermined, value->spread),
                              "unit", outcome->model.constants[i].unit, "at_bound",
                              (int)value->at_bound, "determined", (int)!value->undetermined));
    }
    return constants;
}

static json_t *correlations_json(const fit_outcome *outcome)
{
    json_t *list = json_array();
    for (int c = 0; c < outcome->correlation_count; c++) {
        const fit_correlation *pair = &outcome->correlations[c];
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:f}", "a", outcome->model.constants[pair->a].path, "b",
                            outcome->model.constants[pair->b].path, "r", pair->r));
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
        json_array_append_new(
            list, json_pack("{s:o*, s:s, s:I, s:o, s:o, s:o, s:o, s:o*, s:i, s:o}", "name",
                            json_string(table->name), "measured", sp_measured_names[table->kind],
                            "rows", (json_int_t)table->count, "mean_error_percent",
                            percent(errors->known, errors->mean), "median_error_percent",
                            percent(errors->known, errors->median), "bias_percent",
                            percent(errors->known, errors->bias), "worst_percent",
                            percent(errors->known, errors->worst), "worst_row", worst_row, "folds",
                            outcome->folds[t], "kfold_error_percent",
                            percent(folds->known, folds->mean)));
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
            list,
            json_pack("{s:s, s:o, s:o, s:o}", "name", ablation->name, "refitted_error_percent",
                      means_json(outcome, ablation->refitted), "kept_error_percent",
                      means_json(outcome, ablation->kept), "refitted", constants));
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
        json_t *object =
            json_pack("{s:o*, s:i, s:o*, s:f, s:f, s:o, s:o}", "table",
                      json_string(outcome->rows.tables[table].name), "line", measured->line,
                      "label", json_string(measured->label), "measured", observed, "predicted",
                      outcome->predicted[row], "error_percent",
                      percent(true, outcome->predicted[row] / observed - 1.0),
                      "left_out_error_percent", percent(left_out > 0.0, left_out / observed - 1.0));
        if (fit_left_out_time(outcome, row)) {
            sp_json_put(object, "differing_traits", json_integer(outcome->differing[row]));
            sp_json_put(object, "foreign_traits", json_integer(outcome->foreign[row]));
            sp_json_put(object, "layer_ms", json_real(outcome->layer_ms[row]));
        }
        json_array_append_new(list, object);
    }
    return list;
}

json_t *fit_report_json(const fit_spec *spec, const fit_outcome *outcome)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:o, s:i, s:o, s:o, s:o, s:o, s:i, s:I, s:b}", "schema",
                     "slimpack/calibration/1", "profile", spec->name, "start", spec->profile,
                     "seed", (json_int_t)spec->seed, "constants", constants_json(outcome),
                     "bootstrap", outcome->resamples, "correlations", correlations_json(outcome),
                     "tables", tables_json(outcome), "ablations", ablations_json(outcome), "rows",
                     rows_json(outcome), "iterations", outcome->iterations, "evaluations",
                     (json_int_t)outcome->evaluations, "converged", (int)outcome->converged);
}
