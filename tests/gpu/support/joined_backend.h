// The emulated CUDA backend with a rank of the plan on each of several GPUs: ranks are threads of
// this process, each executes the request as a process of its own would, and all meet by files
// and the fake NCCL (joined_gpus.h). What comes back is rank 0's, when all ranks' is the
// same.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_JOINED_BACKEND_H
#define SLIMPACK_TESTS_GPU_SUPPORT_JOINED_BACKEND_H

#include "backends/api/device.h"
#include "tests/gpu/support/joined_gpus.h"

sp_backend *joined_backend_new(void);
// Fails the test case where anything of CUDA or NCCL is still alive.
void joined_backend_free(sp_backend *backend);

// What each rank's last execution ended with: joined[r].status and .err. Changes what a rank is
// given; NULL, as it is at first: nothing.
typedef void (*joined_change)(int rank, sp_i_place *place, sp_run_request *request);
extern joined_change joined_backend_change;
extern int joined_backend_absent; // a rank that never comes; -1, as it is at first: none

#endif
