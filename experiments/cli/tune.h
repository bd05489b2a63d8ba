// The answer of `tune`, which cmd_tune.c searches and tune_report.c prints.
#ifndef SLIMPACK_EXPERIMENTS_CLI_TUNE_H
#define SLIMPACK_EXPERIMENTS_CLI_TUNE_H

#include "experiments/cli/run_report.h"
#include "experiments/tune/layouts.h"

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

// This holds for models with experts.
#define CLI_TUNE_EXPERTS \
    "expert parallelism is not searched: every GPU holds all experts of its layers"

enum { CLI_TUNE_VALUE = 24, CLI_TUNE_POINT = 200 };

// "tp 8, cp 4, ..., packed"; returns text.
const char *cli_tune_point(const sweep_layouts_options *options, const sweep_layouts *layouts,
                           const sweep_layout *point, char text[CLI_TUNE_POINT]);

// "12.3 GiB", of less than one "0.123 GiB"; returns text.
const char *cli_tune_gib(double gib, char text[CLI_TUNE_VALUE]);

#endif
