// Evaluates the points of a sweep with threads and writes their lines in order.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_RUN_H
#define SLIMPACK_EXPERIMENTS_SWEEP_RUN_H

#include "experiments/sweep/choice.h"

enum { SWEEP_MOST_THREADS = 1024 };

typedef struct sweep_run_options {
    int threads; // 1 to SWEEP_MOST_THREADS
    bool resume; // go on with a file that is there
    bool quiet;  // no progress
    sweep_choice_options choice;
} sweep_run_options;

// Runs the sweep into `path` and adds its lines to `summary`, which has begun. The lines do not
// depend on the number of threads. After an error the file holds whole lines and can be
// gone on with. A kill, and a stop (sp_stop_request), which ends the run soon and is no error, lose
// the points in work and those that wait for an earlier one, at most SWEEP_WINDOW for each thread.
// SP_ERR_LIMIT where more than SWEEP_MOST_POINTS points would be walked.
enum { SWEEP_WINDOW = 256 };
sp_status sweep_run(const sweep_spec *spec, const char *path, const sweep_run_options *options,
                    sweep_summary *summary, sp_error *err);

#endif
