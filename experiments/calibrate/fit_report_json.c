#include <math.h>

#include "experiments/calibrate/fit_report.h"
#include "sim/base/json.h"

static json_t *percent(bool known, double fraction)
{
    return known && isfinite(fraction) ? json_real(100.0 * fraction) : json_null();
}

static json_t *constants_json(const fit_outcome *outcome)
{
    json_t *constants = json_object();
    for (int i = 0; i < outcome->model.constant_count; i++) {
        const fit_value *value = &outcome->values[i];
        json_t *constant = json_object();
        sp_json_put(constant, "value", json_real(value->value));
        sp_json_put(constant, "sd_percent",
                    percent(value->spread >= 0.0 && !value->blind, value->spread));
        sp_json_put(constant, "unit", json_string(outcome->model.constants[i].unit));
        sp_json_put(constant, "at_bound", json_boolean(value->at_bound));
        sp_json_put(constant, "determined", json_boolean(!value->blind));
        sp_json_put(constants, outcome->model.constants[i].path, constant);
    }
    return constants;
}

static json_t *correlations_json(const fit_outcome *outcome)
{
    json_t *list = json_array();
    for (int c = 0; c < outcome->correlation_count; c++) {
        const fit_correlation *pair = &outcome->correlations[c];
        json_t *item = json_object();
        sp_json_put(item, "a", json_string(outcome->model.constants[pair->a].path));
        sp_json_put(item, "b", json_string(outcome->model.constants[pair->b].path));
        sp_json_put(item, "r", json_real(pair->r));
        json_array_append_new(list, item);
    }
    return list;
}

static json_t *tables_json(const fit_outcome *outcome)
{
    json_t *list = json_array();
    for (int t = 0; t < outcome->rows.table_count; t++) {
        const sp_measurements *table = &outcome->rows.tables[t];
        const fit_errors *errors = &outcome->errors[t];
        const fit_errors *folds = &outcome->fold_errors[t];
        json_t *item = json_object();
        sp_json_put(item, "name", json_string(table->name));
        sp_json_put(item, "measured", json_string(sp_measured_names[table->kind]));
        sp_json_put(item, "rows", json_integer((json_int_t)table->count));
        sp_json_put(item, "mean_error_percent", percent(errors->known, errors->mean));
        sp_json_put(item, "median_error_percent", percent(errors->known, errors->median));
        sp_json_put(item, "bias_percent", percent(errors->known, errors->bias));
        sp_json_put(item, "worst_percent", percent(errors->known, errors->worst));
        sp_json_put(item, "worst_row",
                    errors->known ? json_string(outcome->rows.cases[errors->worst_row]->label)
                                  : json_null());
        sp_json_put(item, "folds", json_integer(outcome->folds[t]));
        sp_json_put(item, "kfold_error_percent", percent(folds->known, folds->mean));
        json_array_append_new(list, item);
    }
    return list;
}

static json_t *means_json(const fit_outcome *outcome, const fit_errors errors[FIT_TABLES])
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
        json_t *item = json_object();
        json_t *constants = json_object();
        for (int i = 0; i < outcome->model.constant_count; i++) {
            if (ablation->constants[i] > 0.0) {
                sp_json_put(constants, outcome->model.constants[i].path,
                            json_real(ablation->constants[i]));
            }
        }
        sp_json_put(item, "name", json_string(ablation->name));
        sp_json_put(item, "refitted_error_percent", means_json(outcome, ablation->refitted));
        sp_json_put(item, "kept_error_percent", means_json(outcome, ablation->kept));
        sp_json_put(item, "refitted", constants);
        json_array_append_new(list, item);
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
        json_t *item = json_object();
        int table = fit_rows_table(&outcome->rows, row);
        sp_json_put(item, "table", json_string(outcome->rows.tables[table].name));
        sp_json_put(item, "line", json_integer(measured->line));
        sp_json_put(item, "label", json_string(measured->label));
        sp_json_put(item, "measured", json_real(observed));
        sp_json_put(item, "predicted", json_real(outcome->predicted[row]));
        sp_json_put(item, "error_percent", percent(true, outcome->predicted[row] / observed - 1.0));
        sp_json_put(item, "left_out_error_percent",
                    percent(left_out > 0.0, left_out / observed - 1.0));
        json_array_append_new(list, item);
    }
    return list;
}

json_t *fit_report_json(const fit_spec *spec, const fit_outcome *outcome)
{
    json_t *root = json_object();
    sp_json_put(root, "schema", json_string("slimpack/calibration/1"));
    sp_json_put(root, "profile", json_string(spec->name));
    sp_json_put(root, "start", json_string(spec->profile));
    sp_json_put(root, "seed", json_integer((json_int_t)spec->seed));
    sp_json_put(root, "constants", constants_json(outcome));
    sp_json_put(root, "bootstrap", json_integer(outcome->resamples));
    sp_json_put(root, "correlations", correlations_json(outcome));
    sp_json_put(root, "tables", tables_json(outcome));
    sp_json_put(root, "ablations", ablations_json(outcome));
    sp_json_put(root, "rows", rows_json(outcome));
    sp_json_put(root, "iterations", json_integer(outcome->iterations));
    sp_json_put(root, "evaluations", json_integer((json_int_t)outcome->evaluations));
    sp_json_put(root, "converged", json_boolean(outcome->converged));
    return root;
}
