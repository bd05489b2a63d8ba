// What `validate` compares with what is computed: tables of measured steps, or steps that it
// executes.
#ifndef SLIMPACK_EXPERIMENTS_CLI_VALIDATE_MODES_H
#define SLIMPACK_EXPERIMENTS_CLI_VALIDATE_MODES_H

#include <jansson.h>

#include "experiments/cli/execute_options.h"
#include "experiments/execution/scenario_set.h"

// Of each batch, unless --steps says otherwise: one to warm up and five.
#define CLI_VALIDATE_STEPS 6

typedef struct cli_validate_tables {
    const char *measurements; // NULL: the published tables
    const char *table;        // only this one of them; may be NULL, as those below
    const char *map, *profile, *plot;
    const cli_list *set;
    int threads;
    bool rows, json;
} cli_validate_tables;

// --published and --measurements: computes the rows of tables. Returns the exit status.
int cli_validate_with_tables(const cli_validate_tables *args);

typedef struct cli_validate_backend {
    const char *scenario; // path, of one or of a set of them
    const cli_list *set;
    const cli_execute *execute;
    const char *output, *plot;     // may be NULL
    const char *export, *executed; // folders; at most one is not NULL
    int repeat;                    // of each case of a set
    int threads;
    bool json, quiet;
} cli_validate_backend;

// --backend: predicts a scenario's steps, or those of every case of a set, and executes them.
// Returns the exit status.
int cli_validate_with_backend(const cli_validate_backend *args);

// The same for a set that was read; takes over `document`.
int cli_validate_set_with_backend(const cli_validate_backend *args, json_t *document);

// --export: writes the plans of a set's cases; takes over `document`.
int cli_validate_export(const cli_validate_backend *args, json_t *document);

// How a case of a set is executed: as on the command line, by the clock that the case states where
// the command line states none.
cli_execute cli_execute_of_case(const cli_execute *execute, const sp_scenario_case *of);

#endif
