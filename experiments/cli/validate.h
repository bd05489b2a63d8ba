// `validate` compares tables of measured steps, or steps that it executes, with what is computed.
#ifndef SLIMPACK_EXPERIMENTS_CLI_VALIDATE_H
#define SLIMPACK_EXPERIMENTS_CLI_VALIDATE_H

#include "experiments/cli/execute_options.h"
#include "experiments/execution/scenario_set.h"

// Each batch has one step to warm up and five, unless --steps says otherwise.
#define CLI_VALIDATE_STEPS 6

typedef struct cli_validate {
    cli_common common;
    cli_list set;
    int64_t jobs;
    bool published, rows;
    const char *table;        // only this one of the published tables
    const char *measurements; // NULL: the published tables
    const char *map, *profile, *plot, *output;
    const char *export, *executed; // folders; at most one is not NULL
    int64_t repeat;                // of each case of a set
    int64_t bound_percent;         // 0: what the tables state
    cli_execute execute;
    const char *scenario; // path, of one or of a set of them
} cli_validate;

// --published and --measurements: computes the rows of tables. Returns the exit status.
int cli_validate_with_tables(const cli_validate *args);

#endif
