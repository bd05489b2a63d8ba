// Figures: data for gnuplot, and gnuplot itself.
#ifndef SLIMPACK_EXPERIMENTS_CLI_PLOT_H
#define SLIMPACK_EXPERIMENTS_CLI_PLOT_H

#include "experiments/cli/report.h"
#include "sim/plan/timeline.h"

// Is the name one that can be drawn to?
sp_status cli_plot_check(const char *path, sp_error *err);

// Draws to `path` (.png or .svg) with a script of plots/; the data, which `write` writes, stays
// beside it, in a file of that name with ".dat" after it. Without gnuplot an SP_ERR_IO error says
// which package to install.
sp_status cli_plot(const char *script, const char *path, cli_writer write, const void *what,
                   sp_error *err);

// Draws two timelines of one plan, what was predicted over what was measured, on one axis of time.
sp_status cli_plot_comparison(const char *path, const sp_timeline *predicted,
                              const sp_timeline *measured, sp_error *err);

#endif
