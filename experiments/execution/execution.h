// Plans that are executed and compared with what is predicted for them, one by one and in sets.
#ifndef SLIMPACK_EXPERIMENTS_EXECUTION_EXECUTION_H
#define SLIMPACK_EXPERIMENTS_EXECUTION_EXECUTION_H

#include <jansson.h>

#include "backends/api/backend.h"
#include "backends/api/device.h"
#include "backends/api/proof.h"
#include "backends/record/result.h"
#include "sim/scenario/scenario.h"
#include "solver/evaluate/evaluate.h"

// ---- one plan ----

// Plans that are simulated and then executed: both results, made by the same metrics (sim/metrics).

// Ranks hold memory between their actions. What passes while an action runs is each executor's own;
// what is left after it is what the saved-tensor table (sim/memory/footprint.h) describes, for the
// simulator and for whatever executes the plan.
//
// The most that one rank holds of each category after any action.
typedef struct sp_held_memory {
    sp_bytes predicted, measured;
} sp_held_memory;

// Raises held[dp * pp + p] of every rank of the timeline to what it held after its actions;
// `memory` has its points. O(actions + points).
void sp_held_memory_add(sp_held_memory *held, int pp, const sp_timeline *timeline,
                        const sp_memory_timeline *memory, bool measured);

// Called after each batch with the simulated and the executed step.
typedef sp_status (*sp_execution_observer)(void *context, const sp_step_view *predicted,
                                           const sp_step_view *measured, sp_error *err);

// Called in place of executing a batch.
typedef sp_status (*sp_execution_taker)(void *context, const sp_step_view *predicted,
                                        sp_error *err);

// The plan of each batch beside its plain step (backends/api/proof.h), on a backend of its own.
typedef struct sp_proofs {
    const sp_backend *plain;
    sp_proof *items; // by batch; owned
    size_t count, capacity;
} sp_proofs;

void sp_proofs_fini(sp_proofs *proofs);
// Does every one hold, and is there one?
bool sp_proofs_hold(const sp_proofs *proofs);

// The figures of a batch are those of one whole step, so that time, timeline and memory belong
// together (backends/record/result.h).
typedef struct sp_execution_options {
    const sp_backend *backend;
    int device;
    sp_clock clock;
    sp_precision precision;
    uint64_t seed;
    int steps; // of each batch, all with its plan; at least 1
    const sp_backend_option *options;
    size_t option_count;
    bool compare_memory; // also what ranks hold between actions; the plans need a model
    bool memory_points;  // observers get the course of memory
    bool bounds;         // lower bounds of the predicted result
    bool learning_rates; // documents and tables tell that of each step
    int threads;
    sp_execution_observer observer; // may be NULL
    void *observer_context;
    const sp_plan_file *plans; // that exist already; NULL: the scenario is packed and scheduled
    sp_proofs *proofs;         // to be filled in place of measuring steps; NULL: none. `steps` is 1
    // At most one of these two is set; the device need not be here then.
    const sp_result_file *executed; // what another machine came to, batch by batch; NULL: execute
    sp_execution_taker taker; // who gets what is to be executed; nothing is measured. May be NULL
    void *taker_context;
    json_t *record; // sp_result_document, to which every batch is added; NULL: none
} sp_execution_options;

typedef struct sp_executed_batch {
    sp_executed_step *steps; // owned
    int step_count;
    int shown; // the step whose figures are in the result
} sp_executed_batch;

typedef struct sp_execution {
    const sp_execution_options *options; // not owned
    sp_device_info device;
    sp_stack stack; // that the prediction is made with
    sp_result predicted, measured;
    sp_executed_batch *batches; // owned
    size_t batch_count, batch_capacity;
    // Between actions, largest over the batches; [dp * pp] by dp then pp; owned, NULL: not
    // compared.
    sp_held_memory *held;
} sp_execution;

// Predicts and executes the plans that the options give, or those of the scenario's batches. Where
// the scenario states no stack it is the backend's own, if that names one. Each batch is a run of
// its own, from the same starting parameters. Errors: those of sp_evaluate and of sp_backend_run.
// On success the caller calls sp_execution_fini.
sp_status sp_execution_run(const sp_scenario *scenario, const sp_execution_options *options,
                           sp_execution *execution, sp_error *err);

void sp_execution_fini(sp_execution *execution);

// ---- Documents ----

// Executions as JSON documents.

// Predicted beside measured. Relative errors are predicted over measured - 1, NAN where that is not
// defined.
typedef struct sp_execution_error {
    double iteration_time;
    double bubble_ratio;     // predicted - measured
    double peak_memory_mape; // mean over ranks of the absolute relative error of the peak
} sp_execution_error;

sp_execution_error sp_execution_compare(const sp_execution *execution);

double sp_relative_error(double predicted, double measured);

// The result of what was executed (slimpack/result/1) with one more key, "execution": backend,
// device, clock, precision, seed, and of each batch the time and loss of every step.
json_t *sp_execution_result_json(const sp_execution *execution);

// slimpack/proof/1: backend, device, precision and seed, whether all hold, and of each batch loss,
// plain loss, the worst tensor and all tensors with errors and bounds.
json_t *sp_execution_proofs_json(const sp_execution *execution);

// Those of both results, each once.
void sp_execution_warnings(const sp_execution *execution, sp_warnings *warnings);
// slimpack/validation/1: both results, errors, ranks[] with both, and the warnings of both.
json_t *sp_execution_validation_json(const sp_execution *execution);
json_t *sp_execution_error_json(const sp_execution_error *error);

// Adds to the array an object for each rank of a measured step: dp, pp, and its actions as [name,
// start in ms, end in ms] in order, copies likewise. Where an action waited for another rank, or
// for a copy, a fourth element names what it waited for last: "F3 of dp0 pp1".
void sp_execution_put_timeline(json_t *ranks, const sp_step_view *step);

// ---- sets of scenarios ----

// A committed set of scenarios (slimpack/validation-set/1): one base, and named cases that differ
// from it in some settings. Cases stand in groups that share settings of their own, such as a model
// and the profile that was measured for it. Groups and cases may state a "clock" beside "set".

#define SP_SCENARIO_SET_SCHEMA "slimpack/validation-set/1"

typedef struct sp_scenario_case {
    const char *group, *name; // belong to the set's document
    const char *clock;        // that it is to be executed by; NULL: not stated
    sp_scenario scenario;
} sp_scenario_case;

// The largest that errors of a set may be; negative: not stated.
typedef struct sp_scenario_set_bounds {
    double iteration_time_mape; // fraction
    double bubble_ratio_abs;    // of any case
    double peak_memory_mape;    // fraction
} sp_scenario_set_bounds;

typedef struct sp_scenario_set {
    json_t *document; // owned
    sp_scenario_set_bounds bounds;
    sp_scenario_case *cases; // owned, in the order of the file
    size_t count;
} sp_scenario_set;

// Does the document say that it is a set?
bool sp_is_scenario_set(const json_t *document);

// Reads every scenario of a set; takes over `document`. Settings count in the order base, group,
// case, overrides (`path=value`, as --set gives them). Errors are content errors that name the
// case.
sp_status sp_scenario_set_from_json(json_t *document, const char *source,
                                    const char *const *overrides, int override_count,
                                    sp_scenario_set *set, sp_error *err);
void sp_scenario_set_fini(sp_scenario_set *set);

// ---- Runs ----

// A set of scenarios predicted and executed: an outcome of each case, and what they come to.

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
sp_status sp_set_run_case(const sp_scenario_case *scenario_case,
                          const sp_execution_options *options, sp_case_outcome *outcome,
                          sp_error *err);

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
sp_status sp_set_run_steady_case(const sp_scenario_case *scenario_case,
                                 const sp_execution_options *options, int repeat,
                                 sp_case_outcome *outcome, sp_error *err);

// The one of `count` runs that stands for them, by the rules above.
const sp_case_outcome *sp_set_steady_run(const sp_case_outcome *runs, int count);

bool sp_case_has_figures(const sp_case_outcome *outcome);

// Does every rank hold what was predicted, of each category, between its actions? Work spaces live
// inside actions and are each executor's own: they do not count.
bool sp_case_memory_is_exact(const sp_case_outcome *outcome);

void sp_set_summarize(const sp_case_outcome *outcomes, size_t count,
                      const sp_scenario_set_bounds *bounds, sp_set_summary *summary);

// slimpack/validation/1 of a set: cases[] and summary.
json_t *sp_set_validation_json(const sp_case_outcome *outcomes, size_t count,
                               const sp_execution_options *options, int repeat,
                               const sp_scenario_set_bounds *bounds);

// ---- Cases that another machine executes ----

// Cases of a set that another machine executes: what it is given and what it gives back, as files.

enum { SP_CASE_FILE = 64 };

// The name of a case's files without their endings: its place in the set, counted from 1, and its
// own name in lower-case letters, digits and '-' ("07-1f1b-tp2-pp2").
void sp_case_file_name(const sp_scenario_case *scenario_case, size_t index,
                       char name[SP_CASE_FILE]);

// Plans and predicts a case and writes its plan (slimpack/plan/1) to `path`, with the stack of the
// backend that is to execute it. Where there is no plan the outcome says so, and there is no file.
// Errors: those of sp_set_run_case, and a file that cannot be written.
sp_status sp_set_export_case(const sp_scenario_case *scenario_case,
                             const sp_execution_options *options, const char *path,
                             sp_case_outcome *outcome, sp_error *err);

// Executes a plan as `options` say, and leaves at `path` a record of that or of why it failed
// (backends/record/result.h). NULL: no record. Errors: those of sp_execution_run, and a file
// that cannot be written.
sp_status sp_execution_run_recorded(const sp_plan_input *in, const sp_execution_options *options,
                                    const char *path, sp_execution *execution, sp_error *err);

// Reads a case's result (backends/record/result.h). Content errors: what is wrong with the file, or
// that it is of another backend, model, layout or memory. SP_ERR_IO: there is none.
sp_status sp_set_read_executed(const sp_scenario_case *scenario_case, const sp_backend *backend,
                               const char *path, sp_result_file *executed, sp_error *err);

#endif
