// Plans on one GPU, or on one for each rank: the executor (backends/executor) on the device runtime
// of the GPU, in bf16.
#ifndef SLIMPACK_BACKENDS_CUDA_EXECUTE_H
#define SLIMPACK_BACKENDS_CUDA_EXECUTE_H

#include "backends/api/backend.h"
#include "backends/cuda/device.h"
#include "backends/cuda/gemm.h"
#include "backends/cuda/multi_process.h"

// Options of the executor and of this backend.
extern const sp_backend_option_info sp_i_cuda_option_list[];

// On the virtual clock all ranks take turns on the whole GPU ("serial"), on the wall clock they
// work side by side, each with a stream and, where the driver can, SMs of its own ("partition").

// The tables of CUDA that a run calls.
typedef struct sp_i_cuda_tables {
    const sp_cuda_api *cuda;
    const sp_i_cublas_api *cublas;
    const struct sp_i_nccl_api *nccl;   // lives as long as the run's state; NULL: that of libnccl
    const struct sp_i_cupti_api *cupti; // NULL: that of libcupti
} sp_i_cuda_tables;

// Executes a request in a process that may be one of several, each with a rank of the plan
// (multi_process.h). Where it is and fails, nothing of its run is freed.
sp_status sp_i_cuda_execute_at(const sp_i_cuda_tables *tables, const sp_i_place *place, int device,
                               const sp_run_request *request, sp_measured_step *steps, void **state,
                               sp_error *err);

// Slots of the backend's table (backends/api/backend.h).
sp_status sp_i_cuda_execute(int device, const sp_run_request *request, sp_measured_step *steps,
                            void **state, sp_error *err);
sp_status sp_i_cuda_check_request(int device, const sp_run_request *request, sp_error *err);
void sp_i_cuda_free_state(void *state);
sp_status sp_i_cuda_report(void *state, json_t **report, sp_error *err);
sp_status sp_i_cuda_tensor_count(void *state, size_t *count, sp_error *err);
sp_status sp_i_cuda_tensor_info(void *state, size_t index, sp_tensor_info *info, sp_error *err);
sp_status sp_i_cuda_tensor_read(void *state, size_t index, double *values, sp_error *err);

#endif
