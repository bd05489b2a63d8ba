// Evaluates the points of a sweep with threads and writes their lines in order.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_RUN_H
#define SLIMPACK_EXPERIMENTS_SWEEP_RUN_H

#include <signal.h>

#include "experiments/sweep/point.h"

enum { SWEEP_BEST = 5, SWEEP_MOST_THREADS = 1024 };

typedef struct sweep_run_options {
    int threads; // 1 to SWEEP_MOST_THREADS
    bool resume; // go on with a file that is there
    bool quiet;  // no progress
    // Ends the run early once it is not 0, with whole lines; may be NULL.
    const volatile sig_atomic_t *stop;
} sweep_run_options;

typedef struct sweep_best {
    int64_t combination;
    sweep_digest digest;
} sweep_best;

// Covers the whole file, with what an earlier run had written.
typedef struct sweep_summary {
    int64_t points;  // of the sweep
    int64_t resumed; // found in the file
    int64_t written; // lines in the file now
    int64_t of_status[SWEEP_STATUSES];
    char reason[SWEEP_STATUSES][SP_ERROR_TEXT]; // the first of each
    // The fastest that fit: by tokens per second where there are tokens, else by iteration time; of
    // equal ones the first. Those that fit tightly come last.
    sweep_best best[SWEEP_BEST];
    int best_count;
    bool stopped; // before the end, by options->stop
} sweep_summary;

// Runs the sweep into `path`. The lines do not depend on the number of threads (but for solver_ms
// and simulate_ms, which are measured). After an error the file holds whole lines and can be gone
// on with. A kill loses the points in work and those that wait for an earlier one, at most
// SWEEP_WINDOW for each thread.
enum { SWEEP_WINDOW = 32 };
sp_status sweep_run(const sweep_spec *spec, const char *path, const sweep_run_options *options,
                    sweep_summary *summary, sp_error *err);

#endif
