// A plan file with the scenario it was made for.
#ifndef SLIMPACK_EXPERIMENTS_CLI_PLAN_INPUT_H
#define SLIMPACK_EXPERIMENTS_CLI_PLAN_INPUT_H

#include "sim/plan/plan_json.h"
#include "sim/scenario/scenario.h"

typedef struct cli_plan_input {
    json_t *root;
    sp_scenario scenario;
    sp_plan_file plans;
} cli_plan_input;

// Reading checks what makes a plan a plan (sp_plan_check()). cli_plan_input_fini is called whatever
// happened.
sp_status cli_plan_input_read(const char *path, cli_plan_input *in, sp_error *err);
void cli_plan_input_fini(cli_plan_input *in);

#endif
