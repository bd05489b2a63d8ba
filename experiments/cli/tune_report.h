// What `tune` answers, for people and for programs.
#ifndef SLIMPACK_EXPERIMENTS_CLI_TUNE_REPORT_H
#define SLIMPACK_EXPERIMENTS_CLI_TUNE_REPORT_H

#include "experiments/cli/run_report.h"
#include "experiments/sweep/layouts.h"

enum { CLI_FRONT_SHOWN = 12 }; // points of the front of time against memory

typedef struct cli_tuned {
    const sweep_layouts_options *options;
    const sweep_layouts *layouts;
    const sp_scenario *scenario; // at the fastest layout
    const sp_result *result;     // there
    const sp_batches *batches;   // that all were evaluated on
    double current_ms;       // of the layout that is compared with; NAN: none, or it does not fit
    double current_left_out; // share of tokens that its strategy leaves out
    const char *current;     // why not, else NULL
    int top;                 // layouts listed
    bool stopped;            // by a signal: the answer is the best so far
    const char *go_on;       // the command that makes something of the answer
} cli_tuned;

// The answer in a line, the fastest layouts, the front of time against memory, what limits the
// step, and what other choices cost.
void cli_print_tuned(const cli_tuned *tuned);

// {"schema": "slimpack/tune/1", "question", "answer", "nearest_error" (of logged steps, where the
// answer's is not known), "within_error" (points behind the first), "go_on" (a command),
// "current_ms", "current_reason" (of a current_ms that is null), "points", "top", "front",
// "limits_ms", "findings", "choices"}; the caller owns it.
json_t *cli_tuned_json(const cli_tuned *tuned);

// Its keys where no point fits, null but for the question and the counts of points.
json_t *cli_tuned_json_empty(const cli_tuned *tuned);

#endif
