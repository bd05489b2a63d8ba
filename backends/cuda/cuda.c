#include "backends/cuda/cuda.h"

#include <stdio.h>

#include "backends/cuda/device.h"

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

sp_status sp_i_cuda_backend_execute(int device, const sp_run_request *request,
                                    sp_measured_step *steps, void **state, sp_error *err)
{
    (void)request;
    (void)steps;
    *state = NULL;
    return sp_error_set(err, SP_ERR_USAGE, "backend 'cuda' does not execute plans yet (GPU %d)",
                        device);
}
