// The files that `simulate` writes beside its result.
#ifndef SLIMPACK_EXPERIMENTS_CLI_SIMULATE_EXPORT_H
#define SLIMPACK_EXPERIMENTS_CLI_SIMULATE_EXPORT_H

#include "experiments/cli/options.h"
#include "sim/base/files.h"
#include "sim/metrics/export.h"
#include "solver/evaluate/evaluate.h"

enum { CLI_MOST_BATCHES = 1000000 };

// Members are NULL or false where nobody asked for them. All but the plan show one batch.
typedef struct cli_exports {
    int64_t batch;
    const char *trace;
    const char *trace_ranks;  // "0-3,8": pipeline ranks
    const char *trace_window; // "FROM-TO" in ms
    const char *plot;         // PNG or SVG
    const char *snapshot;
    const char *graphml;
    const char *topology; // SVG
    sp_network network;   // whose links it shows
    bool timeline;        // text, to `text`
    bool critical_path;   // text, to `text`
    FILE *text;
    const char *plan;
    bool planner_memory;      // memory.model is no sum of tensors
    const json_t *scenario;   // resolved, for the plan
    const sp_batches *formed; // for the plan
    const sp_result *result;  // for the plan, which is noted with what stands there afterwards
    sp_warnings *warnings;    // of what is shown
    sp_output plan_file;      // open while batches are evaluated
    sp_export_window window;  // trace_ranks and trace_window as read
    int *ranks;               // those of the window
} cli_exports;

// clang-format off
// Rows of an option table, for a member `cli_exports exports` of the argument struct.
#define CLI_STEP_OPTIONS(type)                                                                    \
    CLI_TEXT_OPTION(CLI_OUTPUT, 0, "trace", "FILE", type, exports.trace,                            \
                    "write a trace that opens in ui.perfetto.dev, as JSON; compressed where FILE "  \
                    "ends in .gz"),                                                               \
    CLI_TEXT_OPTION(CLI_STRING, 0, "trace-ranks", "LIST", type, exports.trace_ranks,              \
                    "pipeline ranks that trace, timeline and plot show, such as 0-3,7"),          \
    CLI_TEXT_OPTION(CLI_STRING, 0, "trace-window", "FROM-TO", type, exports.trace_window,         \
                    "part of the step that they show, in milliseconds"),                          \
    CLI_FLAG_OPTION("timeline", type, exports.timeline, "draw the timeline in the terminal"),     \
    CLI_TEXT_OPTION(CLI_KEPT, 0, "plot", "FILE", type, exports.plot,                              \
                    "draw timeline and memory with gnuplot (.png or .svg), or keep the data for " \
                    "that (.dat)")
// `shows` is text: what of it shows one batch.
#define CLI_BATCH_OPTION(type, shows)                                                             \
    CLI_INT_OPTION("batch", "N", type, exports.batch, 0, CLI_MOST_BATCHES,                        \
                   "batch that " shows " show (default 0)")
// clang-format on

// Do the exports need the whole memory timeline?
bool cli_exports_need_memory(const cli_exports *exports);

// Reads the selections for `pp` pipeline ranks, checks the names of files that are drawn, and opens
// the plan file. cli_exports_end closes it, and leaves none after an error; call both, whatever
// happened between.
sp_status cli_exports_begin(cli_exports *exports, int pp, sp_error *err);
sp_status cli_exports_end(cli_exports *exports, sp_error *err);

// An sp_step_observer; context is the cli_exports.
sp_status cli_exports_observe(void *context, const sp_step_view *view, sp_error *err);

#endif
