// Figures: data for gnuplot, and gnuplot itself.
#ifndef SLIMPACK_EXPERIMENTS_CLI_PLOT_H
#define SLIMPACK_EXPERIMENTS_CLI_PLOT_H

#include "experiments/calibrate/calibrate.h"
#include "experiments/measurements/validation.h"
#include "sim/metrics/export.h"
#include "sim/plan/timeline.h"

// Is the name one that can be drawn to?
sp_status cli_plot_check(const char *path, sp_error *err);

// Draws a timeline to `path` (.png or .svg) with plots/timeline.gp; the data stays beside it, in
// the same name with ".dat" after it. Without gnuplot an SP_ERR_IO error says which package to
// install.
sp_status cli_plot_timeline(const char *path, const sp_timeline *timeline,
                            const sp_memory_timeline *memory, const sp_export_window *window,
                            sp_error *err);

// Draws the residuals of a fit with plots/residuals.gp, in the same way.
sp_status cli_plot_residuals(const char *path, const fit_outcome *outcome, sp_error *err);

// Draws what was computed over what was measured with plots/validation.gp, in the same way.
sp_status cli_plot_validations(const char *path, const sp_validation *validations, int count,
                               sp_error *err);

// Draws two timelines of the same plan, what was predicted over what was measured, on one axis of
// time with plots/comparison.gp, in the same way.
sp_status cli_plot_comparison(const char *path, const sp_timeline *predicted,
                              const sp_timeline *measured, sp_error *err);

#endif
