// The parts of `validate`: tables of measured steps, logs of a run, and sets of scenarios that a
// backend executes.
#ifndef SLIMPACK_EXPERIMENTS_CLI_VALIDATE_H
#define SLIMPACK_EXPERIMENTS_CLI_VALIDATE_H

#include "experiments/cli/cli.h"

// Steps of each batch, one of them to warm up, unless --steps says otherwise.
enum { VALIDATE_STEPS = 6 };

enum { VALIDATE_OVERRIDES = 64, VALIDATE_OVERRIDE = 1100, VALIDATE_NO_SKIP = -1 };

typedef struct validate_args {
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
    cli_list logs;        // of a run of the scenario
    cli_list traces;      // likewise, files and folders
    int64_t skip;         // steps at the beginning of a log; VALIDATE_NO_SKIP: not given
} validate_args;

// The --set of the command, and before them --profile, whose text is put into `profile`.
sp_status cli_validate_overrides(const validate_args *args, char profile[VALIDATE_OVERRIDE],
                                 const char *overrides[VALIDATE_OVERRIDES], int *count,
                                 sp_error *err);

// The scenario with these overrides, resolved; `of` names what is compared with it ("log").
sp_status cli_validate_scenario(const validate_args *args, const char *of, sp_scenario *scenario,
                                sp_error *err);

// Do measured times, over predicted ones, lie in what is told of the error: 1, 0, or -1, nothing
// is.
int cli_validate_expected(const sp_step_error *error, double times);
// What fits a profile to the steps, from " --from-measurements ..." on; FIT is to be written first.
void cli_validate_print_fit(const char *measurements, const char *table);

// Is the error of time, predicted over measured - 1 (NAN: not known), within --bound?
bool cli_validate_holds(const validate_args *args, double time_error);
// Adds --bound, null where there is none, and whether it holds; returns the document.
json_t *cli_validate_put_bound(const validate_args *args, double time_error, json_t *document);
// Keeps a comparison (-o), or prints it (--json), and takes it over; returns the exit status.
int cli_validate_end(const validate_args *args, const sp_result *predicted, double time_error,
                     json_t *document);

// All return the exit status.
int cli_validate_tables(const validate_args *args);
int cli_validate_log(const validate_args *args);
int cli_validate_traces(const validate_args *args);
// Predicts and executes the cases of a set, or with --export writes their plans. Takes over
// `document`.
int cli_validate_set(const validate_args *args, json_t *document);

#endif
