// The files that `simulate` writes beside its result.
#ifndef SLIMPACK_EXPERIMENTS_CLI_SIMULATE_EXPORT_H
#define SLIMPACK_EXPERIMENTS_CLI_SIMULATE_EXPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "sim/metrics/export.h"
#include "solver/evaluate/evaluate.h"

// What was asked for; NULL or false where it was not. All but the plan show one batch.
typedef struct cli_exports {
    int batch;
    bool quiet;
    const char *trace;
    const char *trace_ranks;  // "0-3,8": pipeline ranks
    const char *trace_window; // "FROM-TO" in ms
    const char *plot;         // PNG or SVG
    const char *snapshot;
    const char *graphml;
    bool timeline;      // text, to `text`
    bool critical_path; // text, to `text`
    FILE *text;
    const char *plan;
    const json_t *scenario;   // resolved, for the plan
    const sp_batches *formed; // for the plan
    FILE *plan_file;          // open while batches are evaluated
    sp_export_window window;  // trace_ranks and trace_window as read
    int *ranks;               // those of the window
} cli_exports;

// Do the exports need the whole memory timeline?
bool cli_exports_need_memory(const cli_exports *exports);

// Reads the selections for `pp` pipeline ranks, checks the names of files that are drawn, and opens
// the plan file. cli_exports_end closes it; call both, whatever happened between.
sp_status cli_exports_begin(cli_exports *exports, int pp, sp_error *err);
sp_status cli_exports_end(cli_exports *exports, sp_error *err);

// An sp_step_observer; context is the cli_exports.
sp_status cli_exports_observe(void *context, const sp_step_view *view, sp_error *err);

#endif
