// Runs a sweep: chooses the points (all, a shard, a sample drawn at random, or those that a search
// along the Pareto front asks for), evaluates them with threads and writes their lines in order,
// goes on with a file that is there, and puts the files of shards together.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_RUN_H
#define SLIMPACK_EXPERIMENTS_SWEEP_RUN_H

#include "experiments/sweep/summary.h"

enum { SWEEP_MOST_POINTS = 100000000, SWEEP_MOST_SHARDS = 100000 };

typedef struct sweep_choice_options {
    int64_t sample; // so many points, drawn with equal chance, in the order of the grid; 0: all
    int64_t search; // so many points, found by a search; 0: none
    int64_t seed;   // of both
    int64_t shard,
        shards; // of the points every `shards`th, from number `shard`, 1 to shards; 0: all
} sweep_choice_options;

typedef struct sweep_choice {
    const sweep_spec *spec;
    sweep_choice_options options;
    int64_t in_grid; // points of the whole grid
    int64_t points;  // that the run evaluates
    int64_t passed;  // points of all shards that were passed
    sweep_cursor cursor;
    int64_t *chosen; // combinations; NULL: those of the cursor; owned
    int64_t chosen_count;
    int64_t *sorted; // of a search: the chosen ones, ascending; owned
    sp_prng prng;
} sweep_choice;

// The caller calls sweep_choice_end(), also after an error.
sp_status sweep_choice_begin(sweep_choice *choice, const sweep_spec *spec,
                             const sweep_choice_options *options, sp_error *err);

// The next point; *found is false after the last one that is chosen so far.
sp_status sweep_choice_next(sweep_choice *choice, int64_t *combination, bool *found, sp_error *err);

// Has a search choose more points by what is known of those before, all of which are in `summary`.
// Children of the front: one to three settings of a point on it are changed, or taken from another
// one. Nothing depends on threads or on time.
sp_status sweep_choice_extend(sweep_choice *choice, const sweep_summary *summary, sp_error *err);

void sweep_choice_end(sweep_choice *choice);

// ---- running ----

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

// ---- merging ----

// Writes the lines of `count` files, one for each shard, in the order of the points to `path`, and
// adds them to `summary`, which has begun. The files may stand in any order. A content error names
// the file and line where a point is missing or another one is found, or the shard that is missing
// or there twice; `path` is then not made.
sp_status sweep_merge(const sweep_spec *spec, const sweep_choice_options *options,
                      const char *const *files, int count, const char *path, sweep_summary *summary,
                      sp_error *err);

#endif
