#include "backends/cuda/device/device.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

sp_status sp_i_cuda_check(const sp_i_cuda_device *device, cudaError_t code, const char *call,
                          const char *file, int line, sp_error *err)
{
    if (code == cudaSuccess) {
        return SP_OK;
    }
    const sp_i_cuda_api *api = device->api;
    (void)api->GetLastError();
    return sp_error_set(err, code == cudaErrorMemoryAllocation ? SP_ERR_NO_MEMORY : SP_ERR_INTERNAL,
                        "GPU %d: %s failed with %s: %s (%s:%d)", device->index, call,
                        api->GetErrorName(code), api->GetErrorString(code), file_name(file), line);
}

sp_status sp_i_cu_check(const sp_i_cuda_device *device, CUresult code, const char *call,
                        const char *file, int line, sp_error *err)
{
    if (code == CUDA_SUCCESS) {
        return SP_OK;
    }
    const char *name = NULL;
    if (device->api->DrvGetErrorName == NULL ||
        device->api->DrvGetErrorName(code, &name) != CUDA_SUCCESS || name == NULL) {
        name = "an unknown code";
    }
    return sp_error_set(err, code == CUDA_ERROR_OUT_OF_MEMORY ? SP_ERR_NO_MEMORY : SP_ERR_INTERNAL,
                        "GPU %d: %s failed with %s, %d (%s:%d)", device->index, call, name,
                        (int)code, file_name(file), line);
}

sp_status sp_i_cuda_device_count(const sp_i_cuda_api *api, int *count, char reason[SP_I_CUDA_TEXT],
                                 sp_error *err)
{
    const sp_i_cuda_device none = {api, 0};
    reason[0] = '\0';
    *count = 0;
    cudaError_t code = api->GetDeviceCount(count);
    if (code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver ||
        code == cudaErrorStubLibrary || code == cudaErrorSystemDriverMismatch ||
        code == cudaErrorCompatNotSupportedOnDevice) {
        (void)api->GetLastError();
        *count = 0;
        // Where there is no driver at all the runtime calls it too old.
        int driver = 1;
        bool none_there = api->DriverGetVersion(&driver) == cudaSuccess && driver == 0;
        snprintf(reason, SP_I_CUDA_TEXT, "%s",
                 none_there ? "no driver is installed" : api->GetErrorString(code));
        return SP_OK;
    }
    if (code == cudaSuccess && *count == 0) {
        snprintf(reason, SP_I_CUDA_TEXT, "the driver shows no device");
    }
    return sp_i_cuda_check(&none, code, "cudaGetDeviceCount", __FILE__, __LINE__, err);
}

sp_status sp_i_cuda_device_info(const sp_i_cuda_device *device, sp_i_cuda_info *info, sp_error *err)
{
    struct cudaDeviceProp p;
    *info = (sp_i_cuda_info){0};
    sp_status status = SP_I_CUDA(device, err, GetDeviceProperties, &p, device->index);
    if (status != SP_OK) {
        return status;
    }
    snprintf(info->name, sizeof info->name, "%.63s", p.name);
    snprintf(info->pci, sizeof info->pci, "%08x:%02x:%02x.0", (unsigned)p.pciDomainID & 0xffffffffu,
             (unsigned)p.pciBusID & 0xffu, (unsigned)p.pciDeviceID & 0xffu);
    info->major = p.major;
    info->minor = p.minor;
    info->sm_count = p.multiProcessorCount;
    info->memory_bytes = (int64_t)p.totalGlobalMem;
    info->l2_bytes = p.l2CacheSize;
    status = SP_I_CUDA(device, err, DeviceGetAttribute, &info->clock_khz, cudaDevAttrClockRate,
                       device->index);
    if (status == SP_OK) {
        status = SP_I_CUDA(device, err, DeviceGetAttribute, &info->memory_clock_khz,
                           cudaDevAttrMemoryClockRate, device->index);
    }
    if (status == SP_OK) {
        status = SP_I_CUDA(device, err, DriverGetVersion, &info->driver);
    }
    if (status == SP_OK) {
        status = SP_I_CUDA(device, err, RuntimeGetVersion, &info->runtime);
    }
    return status;
}

sp_status sp_i_cuda_use(const sp_i_cuda_device *device, sp_error *err)
{
    return SP_I_CUDA(device, err, SetDevice, device->index);
}

sp_status sp_i_cuda_memory(const sp_i_cuda_device *device, int64_t *free_bytes,
                           int64_t *total_bytes, sp_error *err)
{
    size_t free_now = 0;
    size_t total = 0;
    sp_status status = SP_I_CUDA(device, err, MemGetInfo, &free_now, &total);
    *free_bytes = (int64_t)free_now;
    *total_bytes = (int64_t)total;
    return status;
}

static sp_status copy(const sp_i_cuda_device *device, void *to, const void *from, int64_t bytes,
                      enum cudaMemcpyKind kind, cudaStream_t stream, sp_error *err)
{
    sp_status status = SP_I_CUDA(device, err, MemcpyAsync, to, from, (size_t)bytes, kind, stream);
    return status == SP_OK ? SP_I_CUDA(device, err, StreamSynchronize, stream) : status;
}

sp_status sp_i_cuda_upload(const sp_i_cuda_device *device, void *to, const void *from,
                           int64_t bytes, cudaStream_t stream, sp_error *err)
{
    return copy(device, to, from, bytes, cudaMemcpyHostToDevice, stream, err);
}

sp_status sp_i_cuda_download(const sp_i_cuda_device *device, void *to, const void *from,
                             int64_t bytes, cudaStream_t stream, sp_error *err)
{
    return copy(device, to, from, bytes, cudaMemcpyDeviceToHost, stream, err);
}

int64_t sp_i_cuda_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Most work is over in microseconds.
sp_status sp_i_cuda_wait_within(const sp_i_cuda_device *device, cudaStream_t stream,
                                cudaEvent_t event, int limit_ms, sp_error *err)
{
    enum { YIELDS = 64, PAUSE_NS = 50000 };
    const sp_i_cuda_api *api = device->api;
    const int64_t until_ms = sp_i_cuda_now_ms() + limit_ms;
    cudaError_t code = event != NULL ? api->EventQuery(event) : api->StreamQuery(stream);
    for (int polls = 0; code == cudaErrorNotReady; polls++) {
        // It would stay behind as the thread's last error.
        (void)api->GetLastError();
        if (polls < YIELDS) {
            (void)sched_yield();
        } else if (sp_i_cuda_now_ms() >= until_ms) {
            return sp_error_set(err, SP_ERR_LIMIT,
                                "GPU %d: the work of a stream was not over in %d ms", device->index,
                                limit_ms);
        } else {
            (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        }
        code = event != NULL ? api->EventQuery(event) : api->StreamQuery(stream);
    }
    return sp_i_cuda_check(device, code, event != NULL ? "cudaEventQuery" : "cudaStreamQuery",
                           __FILE__, __LINE__, err);
}
