#include "sim/scenario/plan_input.h"

#include "sim/base/json.h"

sp_status sp_plan_input_read(const char *path, sp_plan_input *in, sp_error *err)
{
    *in = (sp_plan_input){0};
    sp_status status = sp_json_read_file(path, 0, &in->root, err);
    if (status != SP_OK) {
        return status;
    }
    json_t *scenario = json_object_get(in->root, "scenario");
    if (scenario == NULL || !sp_plan_json_is_plan(in->root)) {
        return sp_error_in(err, SP_ERR_CONTENT, path, "",
                           "expected a plan (schema slimpack/plan/1) with its scenario");
    }
    status = sp_scenario_from_json(scenario, path, NULL, 0, &in->scenario, err);
    return status != SP_OK
               ? status
               : sp_plan_json_read(in->root, path, &in->scenario.layout, &in->plans, err);
}

void sp_plan_input_fini(sp_plan_input *in)
{
    sp_plan_file_fini(&in->plans);
    sp_scenario_fini(&in->scenario);
    json_decref(in->root);
    *in = (sp_plan_input){0};
}
