// Strategies, or schedules, evaluated on the same batches: what `compare` is asked, a row for each,
// and its table.
#ifndef SLIMPACK_EXPERIMENTS_CLI_COMPARISON_H
#define SLIMPACK_EXPERIMENTS_CLI_COMPARISON_H

#include "experiments/cli/options.h"
#include "experiments/cli/run_report.h"
#include "experiments/sweep/layouts.h"
#include "solver/strategy.h"

typedef struct cli_compare_args {
    cli_common common;
    cli_list set;
    const char *strategies;
    const char *schedules;
    bool best_layout, memory_curve;
    int64_t jobs;
} cli_compare_args;

typedef struct cli_compared {
    char name[SP_STRATEGY_NAME]; // of the strategy or the schedule
    sp_status status;
    char reason[SP_ERROR_TEXT];
    sp_result result;
    // With --best-layout: where, how many layouts there were, and the time in the stated one (NAN:
    // none, or it does not fit).
    char layout[CLI_LAYOUT];
    bool stopped; // the search for it: there may be a better one
    int64_t of_status[SWEEP_STATUSES], left_out;
    double stated_ms;
    // The fastest layout that fits tightly, where that is faster than the row's; NAN: there is
    // none.
    double tight_ms, tight_margin_gib;
    char tight_layout[CLI_LAYOUT];
} cli_compared;

typedef struct cli_comparison {
    json_t *root;   // of the scenario, with its overrides; --best-layout alone
    json_t *stated; // without them; of schedules alone
    sp_scenario scenario;
    sp_batches batches;
    bool of_schedules;
    bool listed;        // names were stated: the first is the baseline
    bool stopped;       // by a signal, before all rows were evaluated
    cli_compared *rows; // [count], the baseline first; owned
    int count;
} cli_comparison;

enum { CLI_MOST_COMPARED = 64 };

// A row for each name that is asked for. *cmp is empty; the caller ends it in any case.
sp_status cli_comparison_choose(const cli_compare_args *args, cli_comparison *cmp, sp_error *err);

// Reads the scenario and forms its batches.
sp_status cli_comparison_read(const cli_compare_args *args, const char *path, cli_comparison *cmp,
                              sp_error *err);

// Does that, and evaluates every row. One that cannot be has its reason. Without a list the
// baseline is `packed` where that fits, else the first row that fits and trains all tokens, else
// the first that fits: no row that nobody would run. A stop ends it with the rows that there are.
sp_status cli_comparison_evaluate(const cli_compare_args *args, const char *path,
                                  cli_comparison *cmp, sp_error *err);

void cli_comparison_fini(cli_comparison *cmp);

// "ok", "oom", "infeasible", or "stopped": not evaluated.
const char *cli_compared_status(const cli_compared *r);

// The table, and {"schema": "slimpack/comparison/1", ...}, which the caller owns
// (comparison_report.c).
void cli_print_comparison(const cli_comparison *cmp);
json_t *cli_comparison_json(const cli_comparison *cmp);

#endif
