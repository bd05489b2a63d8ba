// Plans that are simulated and then executed: both results, made by the same metrics (sim/metrics).
#ifndef SLIMPACK_EXPERIMENTS_EXECUTION_EXECUTION_H
#define SLIMPACK_EXPERIMENTS_EXECUTION_EXECUTION_H

#include "backends/device.h"
#include "experiments/execution/held_memory.h"
#include "solver/evaluate.h"

// Called after each batch with the simulated and the executed step.
typedef sp_status (*sp_execution_observer)(void *context, const sp_step_view *predicted,
                                           const sp_step_view *measured, sp_error *err);

// What is shown of a batch is one whole step, so that time, timeline and memory belong together:
// the first of several is a warm-up, and of the others it is the one of median time (the faster of
// the two in the middle, the earlier of equal ones).
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
} sp_execution_options;

typedef struct sp_executed_step {
    int64_t iteration_ns;
    bool has_loss;
    double loss;
} sp_executed_step;

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

// Packs and schedules the scenario's batches, predicts and executes them. Where the scenario states
// no stack it is the backend's own, if that names one. Each batch is a run of
// its own, from the same starting parameters. Errors: those of sp_evaluate and of sp_backend_run.
// On success the caller calls sp_execution_fini.
sp_status sp_execution_run(const sp_scenario *scenario, const sp_execution_options *options,
                           sp_execution *execution, sp_error *err);

// The same with plans that exist already.
sp_status sp_execution_run_plans(const sp_scenario *scenario, const sp_plan *plans, int count,
                                 const sp_execution_options *options, sp_execution *execution,
                                 sp_error *err);

void sp_execution_fini(sp_execution *execution);

// Index of the step that is shown of `count`.
int sp_execution_median_step(const sp_executed_step *steps, int count);

#endif
