// The summary of a sweep: for people, for programs, as CSV and as a picture.
#ifndef SLIMPACK_EXPERIMENTS_CLI_SWEEP_REPORT_H
#define SLIMPACK_EXPERIMENTS_CLI_SWEEP_REPORT_H

#include <stdio.h>

#include "experiments/sweep/summary.h"

// `output` is the name of the results file.
void cli_print_sweep(const sweep_summary *summary, const char *output);
json_t *cli_sweep_json(const sweep_summary *summary);

// CSV (RFC 4180): a column for each axis of the grid, then status, degrees, strategy, schedule, the
// figures, fits, median error, and the reason where there is one.
void cli_sweep_csv_head(FILE *out, const sweep_spec *spec);
void cli_sweep_csv_row(FILE *out, const sweep_spec *spec, int64_t combination,
                       const sweep_digest *digest);

// Draws the points of the results file that fit by figures x and y of the front, and the front.
sp_status cli_sweep_plot(const sweep_summary *summary, const char *results, const char *path,
                         sp_error *err);

#endif
