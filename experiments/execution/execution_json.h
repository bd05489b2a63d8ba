// Executions as JSON documents.
#ifndef SLIMPACK_EXPERIMENTS_EXECUTION_EXECUTION_JSON_H
#define SLIMPACK_EXPERIMENTS_EXECUTION_EXECUTION_JSON_H

#include "experiments/execution/execution.h"

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
// device, clock, precision, seed, and of each batch the time and loss of every step. NULL when
// memory runs out; so below.
json_t *sp_execution_result_json(const sp_execution *execution);

// slimpack/validation/1: both results, errors, and ranks[] with both.
json_t *sp_execution_validation_json(const sp_execution *execution);

// Adds to the array an object for each rank of a measured step: dp, pp, and its actions as [name,
// start in ms, end in ms] in order, copies likewise. Where an action waited for another rank, or
// for a copy, a fourth element names what it waited for last: "F3 of dp0 pp1".
void sp_execution_put_timeline(json_t *ranks, const sp_step_view *step);

#endif
