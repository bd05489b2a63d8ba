#include "experiments/calibrate/calibrate_ablation.h"

#include "experiments/calibrate/profile_document.h"
#include "sim/base/alloc.h"

// The software stack is part of the scenarios, which are then read again.
static bool changes_scenarios(const fit_ablation *ablation)
{
    const char *path;
    json_t *value;
    bool changes = ablation->override_count > 0;
    json_object_foreach ((json_t *)ablation->set, path, value) {
        changes = changes || fit_paths_overlap(path, "stack");
    }
    return changes;
}

static sp_status predict_kept(fit_i_calibration *c, fit_model *model, double *predicted,
                              fit_ablation_result *result)
{
    double constants[FIT_CONSTANTS] = {0.0};
    for (int i = 0; i < model->constant_count; i++) {
        constants[i] = c->best.constants[model->number[i]];
    }
    sp_status status = fit_model_predict(model, constants, NULL, predicted, c->err);
    if (status == SP_OK) {
        status = fit_i_table_errors(model->rows, predicted, result->kept, c->err);
    }
    return status;
}

static sp_status predict_refitted(fit_i_calibration *c, fit_model *model,
                                  fit_ablation_result *result)
{
    fit_solution solution;
    sp_status status = fit_i_refit(c, model, model->rows->weight, NULL, &solution);
    if (status == SP_OK) {
        status = fit_i_table_errors(model->rows, solution.predicted, result->refitted, c->err);
        for (int i = 0; i < model->constant_count; i++) {
            result->constants[model->number[i]] = solution.constants[i];
        }
        fit_solution_fini(&solution);
    }
    return status;
}

static sp_status ablate(fit_i_calibration *c, const fit_ablation *ablation, double *predicted,
                        fit_ablation_result *result)
{
    fit_model model;
    fit_rows rows = {0};
    result->name = ablation->name;
    sp_status status = fit_model_init(c->spec, ablation, &model, c->err);
    if (status != SP_OK) {
        return status;
    }
    model.rows = &c->outcome->rows;
    model.threads = c->outcome->model.threads;
    if (changes_scenarios(ablation)) {
        status = fit_rows_read(c->spec, c->sources, c->source_count, model.document, ablation,
                               &rows, c->err);
        model.rows = &rows;
    }
    if (status == SP_OK) {
        status = predict_kept(c, &model, predicted, result);
    }
    if (status == SP_OK) {
        status = predict_refitted(c, &model, result);
    }
    fit_rows_fini(&rows);
    fit_model_fini(&model);
    return status;
}

sp_status fit_i_ablate(fit_i_calibration *c)
{
    fit_outcome *outcome = c->outcome;
    int count = c->spec->ablation_count;
    sp_error *outer = c->err;
    outcome->ablations = sp_i_calloc((size_t)count, sizeof *outcome->ablations);
    double *predicted = sp_i_calloc(outcome->rows.count, sizeof *predicted);
    sp_status status = SP_OK;
    if (outcome->ablations == NULL || predicted == NULL) {
        status = sp_error_no_memory(outer, "ablations");
    }
    for (int a = 0; status == SP_OK && a < count; a++) {
        sp_error inner;
        sp_error_clear(&inner);
        c->err = &inner;
        status = ablate(c, &c->spec->ablations[a], predicted, &outcome->ablations[a]);
        if (status != SP_OK) {
            sp_error_set(outer, status, "ablation '%.64s': %.500s", c->spec->ablations[a].name,
                         inner.message[0]);
        } else {
            outcome->ablation_count++;
            fit_i_step_done(c);
        }
    }
    c->err = outer;
    sp_i_free(predicted);
    return status;
}
