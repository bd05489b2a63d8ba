// The summary of a sweep's lines: how many are of which status, the best points, and the
// Pareto front of two figures. Points of other work (another workload or model on an axis of the
// grid) answer another question: each such group has its own best points and its own front. Memory
// does not grow with the number of lines.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_SUMMARY_H
#define SLIMPACK_EXPERIMENTS_SWEEP_SUMMARY_H

#include "experiments/sweep/point.h"

enum { SWEEP_TOP = 5, SWEEP_MOST_TOP = 1000, SWEEP_MOST_GROUPS = 1024 };

typedef struct sweep_summary_options {
    int64_t top;     // points that are kept of a group, the best first; 0: SWEEP_TOP
    bool by_figure;  // the best by figure `by`; else the fastest. Those that fit tightly come last
    sweep_figure by; //
    const char *where; // condition on settings and figures of the points that are listed, as in
                       // "tp <= 4 && peak_memory_gib < 60"; NULL: all that fit
    bool front;        // keep the front of figures x and y, ascending in x
    sweep_figure x, y;
    // Called with every line in order, of which those that fit and for which `where` holds are
    // listed; may be NULL.
    void (*each)(void *context, int64_t combination, const sweep_digest *digest, bool listed);
    void *context;
} sweep_summary_options;

typedef struct sweep_best {
    int64_t combination;
    int64_t group;
    sweep_digest digest;
} sweep_best;

// Covers the whole file, with what an earlier run had written.
typedef struct sweep_summary {
    sweep_summary_options options;
    int64_t points;  // of the sweep
    int64_t resumed; // found in the file
    int64_t written; // lines in the file now
    int64_t of_status[SWEEP_STATUSES];
    char reason[SWEEP_STATUSES][SP_ERROR_TEXT]; // the first of each
    int group_axes[SWEEP_AXES];                 // by which points are grouped
    int group_axis_count;
    int64_t mixed;    // groups that are too many to be told apart: all points are one; else 0
    sweep_best *best; // by group, then the best first, of equal ones the first; owned
    int64_t best_count;
    size_t best_capacity;
    sweep_best *front; // by group; owned
    int64_t front_count;
    size_t front_capacity;
    bool stopped;             // before the end
    const sweep_spec *spec;   // not owned
    sweep_symbols symbols;    // of the condition
    sweep_symbol *of_figures; // SWEEP_FIGURE_COUNT of them, then status and fits
    sweep_where *where;
} sweep_summary;

// The caller calls sweep_summary_fini(), also after an error.
sp_status sweep_summary_begin(sweep_summary *summary, const sweep_spec *spec,
                              const sweep_summary_options *options, sp_error *err);
sp_status sweep_summary_add(sweep_summary *summary, int64_t combination, const sweep_digest *digest,
                            sp_error *err);
void sweep_summary_fini(sweep_summary *summary);

// Does a setting change what is to be trained?
bool sweep_is_work(const char *path);

// The figure of that name; false where there is none.
bool sweep_figure_find(const char *name, sweep_figure *figure);

#endif
