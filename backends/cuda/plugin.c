// The table by which a registry finds the backend.
#include <stdio.h>

#include "backends/cuda/calibration.h"
#include "backends/cuda/device.h"
#include "backends/cuda/execute.h"
#include "backends/cuda/multi_process.h"
#include "backends/executor/executor.h"

static sp_status count_devices(int *count, sp_error *err)
{
    sp_cuda_api api;
    char reason[SP_I_CUDA_TEXT];
    sp_i_cuda_api_init(&api);
    return sp_i_cuda_device_count(&api, count, reason, err);
}

static sp_status describe(int device, sp_device_info *info, sp_error *err)
{
    sp_cuda_api api;
    sp_i_cuda_info gpu = {0};
    char reason[SP_I_CUDA_TEXT];
    int count = 0;
    sp_i_cuda_api_init(&api);
    const sp_i_cuda_device of = {&api, device};
    sp_status status = sp_i_cuda_device_count(&api, &count, reason, err);
    if (status == SP_OK && count == 0) {
        status =
            sp_error_set(err, SP_ERR_USAGE,
                         "backend 'cuda' finds no NVIDIA GPU: %s (nvidia-smi lists the GPUs of "
                         "the driver; CUDA_VISIBLE_DEVICES may hide them; --backend host runs "
                         "on the CPU)",
                         reason);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_device_info(&of, &gpu, err);
    }
    *info = (sp_device_info){0};
    snprintf(info->name, sizeof info->name, "%s", gpu.name);
    info->capabilities = SP_I_EXEC_CAPABILITIES | SP_CAN(BF16);
    return status;
}

const sp_backend_ops sp_backend_plugin = {
    .abi = SP_BACKEND_ABI,
    .size = sizeof(sp_backend_ops),
    .types = SP_BACKEND_TYPES,
    .name = "cuda",
    .description = "a real transformer in bf16 on NVIDIA GPUs, all ranks on one or one on each",
    .options = sp_i_cuda_option_list,
    .device_count = count_devices,
    .device_info = describe,
    .execute = sp_i_cuda_execute,
    .free_state = sp_i_cuda_free_state,
    .check = sp_i_cuda_check_request,
    .tensor_count = sp_i_cuda_tensor_count,
    .tensor_info = sp_i_cuda_tensor_info,
    .tensor_read = sp_i_cuda_tensor_read,
    .calibrate = sp_i_cuda_calibrate,
    .stack = "cuda",
    .report = sp_i_cuda_report,
    .reference = sp_i_cuda_reference,
    .process = sp_i_cuda_process,
};
