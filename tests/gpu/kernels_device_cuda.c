#include <stdio.h>
#include <stdlib.h>

#include "backends/cuda/device.h"
#include "tests/gpu/kernels_tensor.h"

static sp_cuda_api api;
static const sp_i_cuda_device device = {&api, 0};

static void need(sp_status status, const sp_error *err)
{
    if (status != SP_OK) {
        fprintf(stderr, "%s\n", err->message[0]);
        exit(1);
    }
}

const char *device_missing(void)
{
    static char reason[SP_I_CUDA_TEXT];
    sp_error err = {0};
    int count = 0;
    sp_i_cuda_api_init(&api);
    need(sp_i_cuda_device_count(&api, &count, reason, &err), &err);
    if (count > 0) {
        need(sp_i_cuda_use(&device, &err), &err);
    }
    return count > 0 ? NULL : reason;
}

void *device_new(size_t bytes)
{
    sp_error err = {0};
    void *memory;
    need(sp_i_cuda_take(&device, bytes, &memory, &err), &err);
    return memory;
}

void device_free(void *memory)
{
    sp_i_cuda_give(&device, memory);
}

void device_put(void *to, const void *from, size_t bytes)
{
    sp_error err = {0};
    need(sp_i_cuda_upload(&device, to, from, (int64_t)bytes, NULL, &err), &err);
}

void device_get(void *to, const void *from, size_t bytes)
{
    sp_error err = {0};
    need(SP_I_CUDA(&device, &err, MemcpyDtoHAsync, to, sp_i_cuda_at(from), bytes, NULL), &err);
    need(SP_I_CUDA(&device, &err, StreamSynchronize, NULL), &err);
}

void device_wait(int error)
{
    sp_error err = {0};
    need(sp_i_cuda_check(&device, (CUresult)error, "a kernel's launcher", __FILE__, __LINE__, &err),
         &err);
    need(SP_I_CUDA(&device, &err, StreamSynchronize, NULL), &err);
}
