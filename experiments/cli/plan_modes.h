// What `plan` does besides writing the plan of a scenario's own batches.
#ifndef SLIMPACK_EXPERIMENTS_CLI_PLAN_MODES_H
#define SLIMPACK_EXPERIMENTS_CLI_PLAN_MODES_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/scenario/scenario.h"

// --check: reads a plan, checks its rules and those of its scenario, and simulates it. Returns the
// exit status.
int cli_plan_check(const char *path, bool json, bool quiet);

// --stream: answers the batches on standard input. jobs 0: all cores; ahead 0: the default.
enum { CLI_PLAN_AHEAD = 16 };
int cli_plan_stream(const sp_scenario *scenario, int64_t jobs, int64_t ahead, bool quiet);

#endif
