// A timeline for other programs and for the eye: Perfetto trace, PyTorch memory snapshot, gnuplot
// data, text. Every function writes to an open FILE and returns SP_ERR_IO when that fails.
#ifndef SLIMPACK_SIM_METRICS_EXPORT_H
#define SLIMPACK_SIM_METRICS_EXPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "sim/network/topology.h"
#include "sim/plan/timeline.h"

// The part of a timeline that is exported. Ranks are the timeline's own entries; an empty selection
// means all; the window is in nanoseconds, [0, 0] means all.
typedef struct sp_export_window {
    const int *pp_ranks;
    int pp_rank_count;
    const int *dp_ranks;
    int dp_rank_count;
    int64_t from_ns, to_ns;
} sp_export_window;

// "0-3,8" to a list of ranks (at most max, below limit); returns the count or -1 with an error.
SP_API int sp_export_parse_ranks(const char *text, int limit, int *ranks, int max, sp_error *err);

// They tell what each action waited for (sim/metrics/predecessors.h).
typedef struct sp_predecessors sp_predecessors;

// Chrome/Perfetto JSON: ranks as processes, compute and communication as threads, memory as
// counters (memory may be NULL; needs points). With predecessors actions tell what of another rank
// they waited for, and a flow connects the critical path; NULL: neither. `compressed`: as gzip
// does, to about a seventh. Returns the number of events through *events (may be NULL).
SP_API sp_status sp_export_trace(FILE *file, const sp_timeline *timeline,
                                 const sp_memory_timeline *memory, const sp_export_window *window,
                                 const sp_predecessors *predecessors, bool compressed,
                                 int64_t *events, sp_error *err);

// Events the trace would have without predecessors, for the size warning (viewers of JSON die above
// about a million).
SP_API int64_t sp_export_trace_events(const sp_timeline *timeline, const sp_export_window *window,
                                      bool with_memory);

// The timeline as text, one line per rank, `columns` wide; colour by ANSI codes where `colour`.
SP_API sp_status sp_export_text(FILE *file, const sp_timeline *timeline,
                                const sp_export_window *window, int columns, bool colour,
                                sp_error *err);

// Data blocks for plots/timeline.gp: rank, kind, chunk, pack, start and end in ms; then memory in
// GiB.
SP_API sp_status sp_export_gnuplot(FILE *file, const sp_timeline *timeline,
                                   const sp_memory_timeline *memory, const sp_export_window *window,
                                   sp_error *err);

// The cluster as SVG with the bytes that a step of step_ns puts on its links, [links], as
// sp_step_traffic counts them: the first nodes (32 GPUs, or one node) with a line for each link
// from NVSwitches to the spine, the others as cells of their GPUs and NICs.
SP_API sp_status sp_export_topology(FILE *file, const sp_topology *topology,
                                    const double *link_bytes, int64_t step_ns, sp_error *err);

// Memory of one rank (index into the timeline's ranks) as the snapshot that PyTorch's memory viewer
// (memory_viz) opens: a pickle of segments and trace entries.
SP_API sp_status sp_export_memory_snapshot(FILE *file, const sp_timeline *timeline,
                                           const sp_memory_timeline *memory, size_t rank,
                                           sp_error *err);

#endif
