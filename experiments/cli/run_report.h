// Commands print steps for people by these.
#ifndef SLIMPACK_EXPERIMENTS_CLI_RUN_REPORT_H
#define SLIMPACK_EXPERIMENTS_CLI_RUN_REPORT_H

#include <stdio.h>

#include "experiments/execution/execution.h"
#include "experiments/sweep/point.h"
#include "sim/metrics/result.h"
#include "sim/scenario/scenario.h"
#include "solver/setting_uses.h"

// Model, cluster and layout, without a newline.
void cli_print_place(FILE *out, const sp_scenario *scenario);

// One line: model, layout, cluster, schedule.
void cli_print_headline(FILE *out, const sp_scenario *scenario);

// "tp 4, cp 1, pp 8, dp 4, 2 chunks, interleaved, recompute none, rank_tokens 8192"; returns text.
enum { CLI_LAYOUT = 256 };
const char *cli_layout_text(const sp_result *result, const sp_scenario *scenario,
                            char text[CLI_LAYOUT]);

// The figures of one result, with time and memory broken down and a table of pipeline ranks, the
// first CLI_RANKS_SHOWN of them.
enum { CLI_RANKS_SHOWN = 32 };
void cli_print_result(FILE *out, const sp_scenario *scenario, const sp_result *result);

// Parts of a step's time are "compute", "tp", "cp", "pp wait", "dp", "optimizer", "bubble".
extern const char *const cli_time_part_names[];

// On standard error, into a result, and into `warnings` of its JSON (NULL stays).
// Forms the batches, and warns beforehand of a workload that takes long.
sp_status cli_form_batches(bool quiet, const sp_scenario *scenario, sp_batches *batches,
                           sp_error *err);
void cli_print_warnings(bool quiet, const sp_warnings *warnings);
void cli_add_warnings(sp_warnings *to, const sp_warnings *warnings);
void cli_add_warnings_json(json_t *result, const sp_warnings *warnings);
// Warnings, and table ranges that were left, on standard error.
void cli_print_notes(bool quiet, const sp_result *result);
// Warns where one replica takes a part of a node because neither parallel.dp nor nodes are stated.
void cli_print_idle_gpus(bool quiet, const sp_scenario *scenario);
// The warnings of prompts and text, for which there is no sp_result: the profile's, then settings
// without effect.
void cli_print_profile_notes(bool quiet, const sp_scenario *scenario);
void cli_print_unused(bool quiet, const sp_scenario *scenario, sp_run_kind run);
// Adds the latter to `warnings` of their result; NULL stays.
void cli_add_unused(json_t *result, const sp_scenario *scenario, sp_run_kind run);

// "h100 (assumed)"; of rates that the cluster's GPU changed "h100, scaled by 0.303 (peak) and 0.299
// (HBM) (assumed)"; returns text.
enum { CLI_PROFILE = SP_PROFILE_NAME + 80 };
const char *cli_profile_text(const sp_scenario *scenario, sp_level level, char text[CLI_PROFILE]);

// "runs with probability 0.72": by what logged steps that fill as much of the memory did. "" where
// that is above 0.95, not known, or where the step is out of memory;
// returns text.
enum { CLI_RISK = 40 };
const char *cli_memory_risk(const sp_result *result, char text[CLI_RISK]);

// "±3.0 % in the median, 8.1 % for nine in ten, on 607 logged steps like this (scope)", or "not
// validated: ..." with the reason; returns text.
enum { CLI_STEP_ERROR = 640 };
const char *cli_step_error(const sp_step_error *error, char text[CLI_STEP_ERROR]);

// A figure of a point of a sweep, for cli_figure_cells().
double cli_figure_of_digest(const void *digest, const char *key);
// {"ok", "oom", "infeasible", "invalid"}: how many points; the caller owns it.
json_t *cli_statuses_json(const int64_t of_status[SWEEP_STATUSES]);

// Is the step's idle time no pipeline's, but that of waiting for data-parallel ranks with more
// work?
bool cli_waits_for_peers(const sp_result *result);

// "ok", "tight" or "oom".
const char *cli_memory_word(const sp_result *result);

// Shares of tokens that are not trained as asked: a strategy leaves them out or cuts them off from
// the beginning of their document, or batches were formed without them because of the context. Not
// finite: not known.
typedef struct cli_loss {
    double left_out, cut, over_length;
    bool lossy; // whether tokens show it or not
} cli_loss;

// "", or "12.3 % of tokens left out, 1.2 % of tokens cut from their beginning, 4.5 % of tokens over
// the context", or
// "not lossless" where no token shows it; returns text.
enum { CLI_LOSS = 120 };
cli_loss cli_loss_of_digest(const sweep_digest *digest); // without the last share
const char *cli_loss_text(cli_loss loss, char text[CLI_LOSS]);

// ---- executed steps ----

// The measured result as `simulate` prints a predicted one, then time and loss of each step.
void cli_print_execution(FILE *out, const sp_scenario *scenario, const sp_execution *execution);

// Predicted beside measured.
void cli_print_validation(FILE *out, const sp_scenario *scenario, const sp_execution *execution);

#endif
