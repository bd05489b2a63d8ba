// A set of scenarios predicted and executed: an outcome of each case, and what they come to.
#ifndef SLIMPACK_EXPERIMENTS_EXECUTION_SET_VALIDATION_H
#define SLIMPACK_EXPERIMENTS_EXECUTION_SET_VALIDATION_H

#include "experiments/execution/execution_json.h"
#include "experiments/execution/scenario_set.h"

// ok: executed and compared; oom: executed and compared, but a rank needs more memory than its
// limit; infeasible: there is no plan; cannot_execute: the backend refuses it; failed: it broke
// while it was executed. Only the first two have figures.
typedef enum sp_case_status {
    SP_CASE_OK,
    SP_CASE_OOM,
    SP_CASE_INFEASIBLE,
    SP_CASE_CANNOT_EXECUTE,
    SP_CASE_FAILED,
    SP_CASE_STATUSES
} sp_case_status;

extern const char *const sp_case_status_names[]; // "ok", ..., NULL

typedef struct sp_case_outcome {
    const sp_scenario_case *of; // not owned
    sp_case_status status;
    char reason[SP_ERROR_TEXT]; // "" where there are figures
    sp_clock clock;
    char device[sizeof((sp_device_info *)0)->name];
    double predicted_ms, measured_ms;
    double predicted_bubble, measured_bubble;
    int64_t predicted_peak_bytes, measured_peak_bytes; // of the largest rank
    sp_execution_error error;
    // The machine's speed while it ran over that at the profile's calibration, by the backend's
    // reference work; NAN: not known. Nothing is scaled by it.
    double speed;
    bool steady; // speed within SP_STEADY_SPEED of 1, before and after the run
    int runs;    // of which this is one
    bool memory_compared;
    uint32_t
        memory_differs; // bit of each category of which a rank holds other bytes than predicted
} sp_case_outcome;

// Means over the cases that have figures; NAN where no case has.
typedef struct sp_set_summary {
    size_t of_status[SP_CASE_STATUSES];
    size_t compared;
    double iteration_time_mape, iteration_time_bias;
    double largest_bubble_error; // absolute
    double peak_memory_mape;     // mean over cases of the mean over their ranks
    size_t memory_compared, memory_exact;
    size_t speeds, steady; // cases whose speed is known, and of them those at that of the profile
    double least_speed, most_speed;
    bool within_bounds; // of what the set states
} sp_set_summary;

// Runs one case once, without a look at the machine's speed. What was executed elsewhere
// (options->executed) has its plans with it; a case that is only handed over (options->taker) has
// no measured figures. What is wrong with a case is its
// outcome; lack of memory, wrong usage and files that cannot be read are errors.
sp_status sp_set_run_case(const sp_scenario_case *of, const sp_execution_options *options,
                          sp_case_outcome *outcome, sp_error *err);

// A case of a set on a machine whose speed changes: runs are made until enough of them were at the
// speed that the profile was measured at.
// Largest share by which a speed may differ from another and still be taken for the same.
#define SP_STEADY_SPEED 0.05

enum { SP_MOST_REPEAT = 100, SP_RUNS_PER_REPEAT = 3 };

// Runs a case until `repeat` runs were at the speed of the scenario's profile, or
// SP_RUNS_PER_REPEAT * repeat were made; without a speed (the profile states no reference, or the
// backend has none) exactly `repeat`. The outcome is the run of median time among those at that
// speed (the faster of two in the middle), or among all where none has a speed; where none was at
// it, the run of nearest speed. A run without figures ends it. Errors as sp_set_run_case.
sp_status sp_set_run_steady_case(const sp_scenario_case *of, const sp_execution_options *options,
                                 int repeat, sp_case_outcome *outcome, sp_error *err);

// The one of `count` runs that stands for them, by the rules above.
const sp_case_outcome *sp_set_steady_run(const sp_case_outcome *runs, int count);

bool sp_case_has_figures(const sp_case_outcome *outcome);

// Does every rank hold what was predicted, of each category, between its actions? Work spaces live
// inside actions and are each executor's own: they do not count.
bool sp_case_memory_is_exact(const sp_case_outcome *outcome);

void sp_set_summarize(const sp_case_outcome *outcomes, size_t count,
                      const sp_scenario_set_bounds *bounds, sp_set_summary *summary);

// slimpack/validation/1 of a set: cases[] and summary. NULL when memory runs out.
json_t *sp_set_validation_json(const sp_case_outcome *outcomes, size_t count,
                               const sp_execution_options *options, int repeat,
                               const sp_scenario_set_bounds *bounds);

#endif
