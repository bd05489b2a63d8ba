#include "experiments/calibrate/fit_model.h"

#include <stdio.h>

#include "experiments/calibrate/profile_document.h"
#include "sim/base/json.h"

static bool is_set(const fit_ablation *ablation, const char *path)
{
    const char *set;
    json_t *value;
    const json_t *settings = ablation != NULL ? ablation->set : NULL;
    json_object_foreach ((json_t *)settings, set, value) {
        if (fit_paths_overlap(set, path)) {
            return true;
        }
    }
    return false;
}

sp_status fit_model_init(const fit_spec *spec, const fit_ablation *ablation, fit_model *model,
                         sp_error *err)
{
    *model = (fit_model){.source = spec->source};
    sp_status status = fit_document_load(spec->profile, &model->document, err);
    if (status == SP_OK) {
        status = fit_document_apply(model->document, spec->start, err);
    }
    // What the ablation takes away may be what a constant's start would have made.
    for (int c = 0; status == SP_OK && c < spec->constant_count; c++) {
        const fit_constant *constant = &spec->constants[c];
        if (constant->start > 0.0 &&
            !fit_document_set(model->document, constant->path, json_real(constant->start))) {
            status = sp_error_no_memory(err, "a profile");
        }
        if (!is_set(ablation, constant->path)) {
            model->number[model->constant_count] = c;
            model->constants[model->constant_count++] = *constant;
        }
    }
    if (status == SP_OK && ablation != NULL) {
        status = fit_document_apply(model->document, ablation->set, err);
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
    for (int c = 0; document != NULL && c < model->constant_count; c++) {
        if (!fit_document_set(document, model->constants[c].path, json_real(constants[c]))) {
            json_decref(document);
            return NULL;
        }
    }
    return document;
}

sp_status fit_model_predict(void *context, const double *constants, const uint8_t *wanted,
                            double *predicted, sp_error *err)
{
    const fit_model *model = context;
    sp_profile profile;
    json_t *document = fit_model_document(model, constants);
    if (document == NULL) {
        return sp_error_no_memory(err, "a profile");
    }
    sp_status status = sp_profile_from_json(document, model->source, &profile, err);
    if (status == SP_OK) {
        status = fit_rows_predict(model->rows, &profile, wanted, model->threads, predicted, err);
        sp_profile_fini(&profile);
    }
    json_decref(document);
    return status;
}
