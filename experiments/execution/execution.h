// Plans that are simulated and then executed: both results, made by the same metrics (sim/metrics).
#ifndef SLIMPACK_EXPERIMENTS_EXECUTION_EXECUTION_H
#define SLIMPACK_EXPERIMENTS_EXECUTION_EXECUTION_H

#include "backends/api/device.h"
#include "backends/record/result.h"
#include "solver/evaluate/evaluate.h"

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
    int threads;
    sp_execution_observer observer; // may be NULL
    void *observer_context;
    const sp_plan_file *plans; // that exist already; NULL: the scenario is packed and scheduled
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

json_t *sp_execution_error_json(const sp_execution_error *error);

double sp_relative_error(double predicted, double measured);

// The result of what was executed (slimpack/result/1) with one more key, "execution": backend,
// device, clock, precision, seed, and of each batch the time and loss of every step.
json_t *sp_execution_result_json(const sp_execution *execution);

// slimpack/validation/1: both results, errors, and ranks[] with both.
json_t *sp_execution_validation_json(const sp_execution *execution);

// Adds to the array an object for each rank of a measured step: dp, pp, and its actions as [name,
// start in ms, end in ms] in order, copies likewise. Where an action waited for another rank, or
// for a copy, a fourth element names what it waited for last: "F3 of dp0 pp1".
void sp_execution_put_timeline(json_t *ranks, const sp_step_view *step);

#endif
