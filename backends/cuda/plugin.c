// The table by which a registry finds the backend.
#include "backends/cuda/calibrate.h"
#include "backends/cuda/cuda.h"

const sp_backend_ops sp_backend_plugin = {
    .abi = SP_BACKEND_ABI,
    .size = sizeof(sp_backend_ops),
    .types = SP_BACKEND_TYPES,
    .name = "cuda",
    .description = "NVIDIA GPUs: measured for profiles; plans are not executed yet",
    .device_count = sp_i_cuda_backend_count,
    .device_info = sp_i_cuda_backend_info,
    .execute = sp_i_cuda_backend_execute,
    .device_memory = sp_i_cuda_backend_memory,
    .calibrate = sp_i_cuda_calibrate,
};
