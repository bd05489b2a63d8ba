// The emulated CUDA backend with a rank of the plan on each of several GPUs: ranks are threads of
// this process, each executes the request as a process of its own would, and all meet by a
// file and the fake NCCL (gpu_ranks.h). What comes back is rank 0's, when all ranks' is the
// same.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_MULTI_GPU_BACKEND_H
#define SLIMPACK_TESTS_GPU_SUPPORT_MULTI_GPU_BACKEND_H

#include "backends/api/device.h"
#include "tests/gpu/support/gpu_ranks.h"

sp_backend *multi_gpu_backend_new(void);
// Fails the test case where anything of CUDA or NCCL is still alive.
void multi_gpu_backend_free(sp_backend *backend);

// How the ranks end that execute a request of which one fails.
job_end multi_gpu_job(const sp_run_request *request);

// Changes what a rank is given; NULL, as it is at first: nothing.
typedef void (*gpu_rank_change)(int rank, sp_i_place *place, sp_run_request *request);
extern gpu_rank_change multi_gpu_backend_change;

#endif
