// The parts of what `tune` answers, and the settings that it searches. Private to tune_*.c.
#ifndef SLIMPACK_EXPERIMENTS_CLI_TUNE_PARTS_H
#define SLIMPACK_EXPERIMENTS_CLI_TUNE_PARTS_H

#include "experiments/cli/tune_report.h"

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
