// What is kept of every step of a run, and which of them stands for the others.
#ifndef SLIMPACK_BACKENDS_RECORD_EXECUTED_STEP_H
#define SLIMPACK_BACKENDS_RECORD_EXECUTED_STEP_H

#include "backends/api/backend.h"

typedef struct sp_executed_step {
    int64_t iteration_ns;
    bool has_loss;
    double loss;
} sp_executed_step;

sp_executed_step sp_executed_step_of(const sp_measured_step *step);

// Index of the step that is shown of `count`: the first of several is a warm-up, and of the others
// it is the one of median time (the faster of the two in the middle, the earlier of equal ones).
int sp_execution_median_step(const sp_executed_step *steps, int count);

#endif
