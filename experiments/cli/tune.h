// What `tune` is asked, what it found, and how that is said: cmd_tune.c searches, tune_report.c
// prints.
#ifndef SLIMPACK_EXPERIMENTS_CLI_TUNE_H
#define SLIMPACK_EXPERIMENTS_CLI_TUNE_H

#include "experiments/cli/options.h"
#include "experiments/cli/run_report.h"
#include "experiments/sweep/layouts.h"

enum { CLI_TUNE_MOST_GPUS = 1 << 20 };

typedef struct cli_tune_args {
    cli_common common;
    cli_list set, current;
    int64_t gpus, context, tokens_per_batch, jobs, top;
    const char *cluster, *lengths, *strategies, *output;
    bool exhaustive;
} cli_tune_args;

// Does an override, or --set, state what is at the dotted path, by itself or as part of an object?
bool cli_tune_states(const char *const *overrides, int count, const char *path);
bool cli_tune_is_set(const cli_tune_args *args, const char *path);

// The command for a shell that simulates a point: that of the file that holds it, else the same
// question with every setting of the point stated, which evaluates this one alone, and then that.
// The caller frees it with free().
char *cli_tune_command(const cli_tune_args *args, const char *model, const sweep_layouts *layouts,
                       const sweep_layout *point, const char *strategy);

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

// What is to be known of models with experts.
#define CLI_TUNE_EXPERTS \
    "expert parallelism is not searched: every GPU holds all experts of its layers"

// Settings that the search turns, and how a column of them is headed.
typedef struct cli_tune_axis {
    const char *path, *name;
    int width;
} cli_tune_axis;

enum { CLI_TUNE_AXES = 11, CLI_TUNE_VALUE = 24, CLI_TUNE_POINT = 200 };
extern const cli_tune_axis cli_tune_axes[CLI_TUNE_AXES];

// An integer or a text, "-" where there is neither; returns text.
const char *cli_tune_value(const json_t *value, char text[CLI_TUNE_VALUE]);

// "tp 8, cp 4, ..., packed"; returns text.
const char *cli_tune_point(const sweep_layouts_options *options, const sweep_layouts *layouts,
                           const sweep_layout *point, char text[CLI_TUNE_POINT]);

// "12.3 GiB", of less than one "0.123 GiB"; returns text.
const char *cli_tune_gib(double gib, char text[CLI_TUNE_VALUE]);

// What a point's strategy loses ("12.3 % of tokens left out", "no tokens lost") where the answer
// does not lose as much, else ""; returns text.
const char *cli_tune_loss(const cli_tuned *tuned, const sweep_digest *digest, char text[CLI_LOSS]);

// What other choices cost, with all others free (tune_choices.c).
void cli_print_choices(const cli_tuned *tuned);

// {"tp": [{"value", "iteration_ms", "tight_ms", "at_least_ms", "cost", "reason",
// "left_out_share", "cut_share"}], ...}: times are
// null where there is none, "cost" says in words what the terminal says, "reason" why no such
// point goes together (else null); shares of tokens are of the point of that time. The caller owns
// it.
json_t *cli_choices_json(const cli_tuned *tuned);

// What the step spends its time on, and what would take less of it (tune_findings.c).
void cli_print_findings(const cli_tuned *tuned);

// [{"limit", "share" (of the step, null where it is no part of it), "remedy"}]; the caller owns it.
json_t *cli_findings_json(const cli_tuned *tuned);

#endif
