// Runs of a plan by the CPU executor in which every rank stands alone, as in a process of its own
// (threaded_transport.h), and by a clock of its own.
#ifndef SLIMPACK_TESTS_SUPPORT_PROCESS_RUNS_H
#define SLIMPACK_TESTS_SUPPORT_PROCESS_RUNS_H

#include "tests/support/host_run.h"

typedef struct process_settings {
    bool late;   // messages (threaded_transport.h)
    bool skewed; // clocks that differ by minutes and do not go alike
    int absent;  // rank that never comes, from 1; 0: none
} process_settings;

// What one rank ended with; its tensors only where it ended well.
typedef struct process_rank {
    sp_status status;
    sp_error err;
    sp_measured_step *steps; // [of the request]
    size_t tensor_count;
    sp_tensor_info *tensors;
    double **values; // of the tensors
} process_rank;

typedef struct process_runs {
    const sp_run_request *request;
    int rank_count;
    process_rank *ranks;
} process_runs;

// Of all ranks of the request's plan, which is of fp64 on the wall clock.
void process_runs_make(const sp_run_request *request, const process_settings *settings,
                       process_runs *runs);
void process_runs_fini(process_runs *runs);

// Executes the plan so, and fails the test case unless all ranks end well with the same timeline,
// memory, loss and tensors; these are, to the bit, those of a run of all ranks in one process, and
// memory is what that one held; and after a single step gradients and loss are within 1e-10 of the
// plain step's.
void process_runs_agree(const host_device *device, const sp_run_request *request,
                        const process_settings *settings);

#endif
