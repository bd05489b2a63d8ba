// What `validate` prints of tables of measured steps.
#ifndef SLIMPACK_EXPERIMENTS_CLI_VALIDATE_REPORT_H
#define SLIMPACK_EXPERIMENTS_CLI_VALIDATE_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "experiments/measurements/validation.h"

// One line for each table, and what the columns mean.
void cli_print_validations(FILE *out, const sp_validation *validations, int count);

// Every case of a table as measured and computed.
void cli_print_validated_cases(FILE *out, const sp_validation *validation);

// slimpack/validation/1 with every case. NULL when memory ran out.
json_t *cli_validations_json(const sp_validation *validations, int count);

// Data of plots/validation.gp: a block for each table.
void cli_write_validations(FILE *out, const sp_validation *validations, int count);

#endif
