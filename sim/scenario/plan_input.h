// A plan file with the scenario it was made for.
#ifndef SLIMPACK_SIM_SCENARIO_PLAN_INPUT_H
#define SLIMPACK_SIM_SCENARIO_PLAN_INPUT_H

#include "sim/plan/plan_json.h"
#include "sim/scenario/scenario.h"

typedef struct sp_plan_input {
    json_t *root;
    sp_scenario scenario;
    sp_plan_file plans;
} sp_plan_input;

// Reading checks what makes a plan a plan (sp_plan_check()). sp_plan_input_fini is called whatever
// happened.
sp_status sp_plan_input_read(const char *path, sp_plan_input *in, sp_error *err);
void sp_plan_input_fini(sp_plan_input *in);

#endif
