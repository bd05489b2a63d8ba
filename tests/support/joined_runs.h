// Runs of a plan by the CPU executor in which every rank stands alone, as in a process of its own
// (joined_ranks.h), and by a clock of its own.
#ifndef SLIMPACK_TESTS_SUPPORT_JOINED_RUNS_H
#define SLIMPACK_TESTS_SUPPORT_JOINED_RUNS_H

#include "tests/support/host_run.h"

typedef struct joined_settings {
    bool late;   // messages (joined_ranks.h)
    bool skewed; // clocks that differ by minutes and do not go alike
    int absent;  // rank that never comes, from 1; 0: none
} joined_settings;

// What one rank ended with; its tensors only where it ended well.
typedef struct joined_rank {
    sp_status status;
    sp_error err;
    sp_measured_step *steps; // [of the request]
    size_t tensor_count;
    sp_tensor_info *tensors;
    double **values; // of the tensors
} joined_rank;

typedef struct joined_runs {
    const sp_run_request *request;
    int rank_count;
    joined_rank *ranks;
} joined_runs;

// Of all ranks of the request's plan, which is of fp64 on the wall clock.
void joined_runs_make(const sp_run_request *request, const joined_settings *settings,
                      joined_runs *runs);
void joined_runs_fini(joined_runs *runs);

// Executes the plan so, and fails the test case unless all ranks end well with the same timeline,
// memory, loss and tensors; these are, to the bit, those of a run of all ranks in one process, and
// memory is what that one held; and after a single step gradients and loss are within 1e-10 of the
// plain step's.
void joined_runs_agree(const host_device *device, const sp_run_request *request,
                       const joined_settings *settings);

#endif
