// First tokens of one prompt by length, method and alpha.
#ifndef SLIMPACK_EXPERIMENTS_CLI_PREFILL_TABLE_H
#define SLIMPACK_EXPERIMENTS_CLI_PREFILL_TABLE_H

#include "sim/scenario/scenario.h"

// Prints a row for each length of "16K,96K" (NULL: the scenario's longest prompt) and method, and
// of SampleAttention for each alpha of "0.8,0.95" (NULL: the scenario's). Changes
// scenario->prefill.
sp_status cli_prefill_table(sp_scenario *scenario, const char *lengths, const char *alphas,
                            bool json, int *exit_status, sp_error *err);

#endif
