// What commands print of executed steps for people.
#ifndef SLIMPACK_EXPERIMENTS_CLI_EXECUTION_REPORT_H
#define SLIMPACK_EXPERIMENTS_CLI_EXECUTION_REPORT_H

#include <stdio.h>

#include "experiments/execution/execution.h"

// The measured result as `simulate` prints a predicted one, then time and loss of each step.
void cli_print_execution(FILE *out, const sp_scenario *scenario, const sp_execution *execution);

// Predicted beside measured.
void cli_print_validation(FILE *out, const sp_scenario *scenario, const sp_execution *execution);

#endif
