// Runs of a plan by the CPU executor in which every rank stands alone, as in a process of its own
// (threaded_transport.h), and by a clock of its own.
#ifndef SLIMPACK_TESTS_SUPPORT_PROCESS_RUNS_H
#define SLIMPACK_TESTS_SUPPORT_PROCESS_RUNS_H

#include "tests/support/host_run.h"
#include "tests/support/job.h"

typedef struct process_settings {
    bool late;   // messages (threaded_transport.h)
    bool skewed; // clocks that differ by minutes and do not go alike
} process_settings;

// How a job of all ranks of the request's plan ends, of which one fails. The plan is of fp64 on the
// wall clock.
job_end process_runs_job(const sp_run_request *request, const process_settings *settings);

// Executes the plan so, and fails the test case unless all ranks end well with the same timeline,
// memory, loss and tensors; these are, to the bit, those of a run of all ranks in one process, and
// memory is what that one held; and after a single step gradients and loss are within 1e-10 of the
// plain step's.
void process_runs_agree(const host_device *device, const sp_run_request *request,
                        const process_settings *settings);

#endif
