// The table by which a registry finds the backend.
#include "backends/cuda/calibrate/calibrate.h"
#include "backends/cuda/calibrate/reference.h"
#include "backends/cuda/cuda.h"
#include "backends/cuda/execute.h"
#include "backends/cuda/joined.h"

const sp_backend_ops sp_backend_plugin = {
    .abi = SP_BACKEND_ABI,
    .size = sizeof(sp_backend_ops),
    .types = SP_BACKEND_TYPES,
    .name = "cuda",
    .description = "a real transformer in bf16 on NVIDIA GPUs, all ranks on one or one on each",
    .options = sp_i_cuda_option_list,
    .device_count = sp_i_cuda_backend_count,
    .device_info = sp_i_cuda_backend_info,
    .execute = sp_i_cuda_execute,
    .free_state = sp_i_cuda_free_state,
    .check = sp_i_cuda_check_request,
    .tensor_count = sp_i_cuda_tensor_count,
    .tensor_info = sp_i_cuda_tensor_info,
    .tensor_read = sp_i_cuda_tensor_read,
    .device_memory = sp_i_cuda_backend_memory,
    .calibrate = sp_i_cuda_calibrate,
    .stack = "cuda",
    .reference = sp_i_cuda_reference,
    .process = sp_i_cuda_process,
};
