#include "backends/cuda/cuda.h"

#include <stdio.h>

#include "backends/cuda/device/device.h"
#include "backends/executor/run.h"

sp_status sp_i_cuda_backend_count(int *count, sp_error *err)
{
    sp_i_cuda_api api;
    char reason[SP_I_CUDA_TEXT];
    sp_i_cuda_api_init(&api);
    return sp_i_cuda_device_count(&api, count, reason, err);
}

sp_status sp_i_cuda_backend_info(int device, sp_device_info *info, sp_error *err)
{
    sp_i_cuda_api api;
    sp_i_cuda_info gpu;
    sp_i_cuda_api_init(&api);
    const sp_i_cuda_device of = {&api, device};
    sp_status status = sp_i_cuda_device_info(&of, &gpu, err);
    *info = (sp_device_info){0};
    snprintf(info->name, sizeof info->name, "%s", gpu.name);
    info->capabilities = SP_I_EXEC_CAPABILITIES | SP_CAN(BF16);
    return status;
}

sp_status sp_i_cuda_backend_memory(int device, sp_device_memory *memory, sp_error *err)
{
    sp_i_cuda_api api;
    sp_i_cuda_api_init(&api);
    const sp_i_cuda_device of = {&api, device};
    *memory = (sp_device_memory){0};
    sp_status status = sp_i_cuda_use(&of, err);
    return status == SP_OK ? sp_i_cuda_memory(&of, &memory->free_bytes, &memory->total_bytes, err)
                           : status;
}
