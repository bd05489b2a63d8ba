// One GPU: the entry points it is reached by, and how their failures become errors.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_DEVICE_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_DEVICE_H

#include <stdint.h>

#include "backends/cuda/device/api.h"
#include "sim/base/status.h"

typedef struct sp_i_cuda_device {
    const sp_i_cuda_api *api;
    int index;
} sp_i_cuda_device;

// Calls a member of the table and turns its code into a status, with the call, its place and the
// device in the message: `SP_I_CUDA(device, err, Malloc, &data, bytes)`.
#define SP_I_CUDA(device, err, call, ...)                                                         \
    sp_i_cuda_check((device), (device)->api->call(__VA_ARGS__), "cuda" #call, __FILE__, __LINE__, \
                    (err))
#define SP_I_CU(device, err, call, ...) \
    sp_i_cu_check((device), (device)->api->call(__VA_ARGS__), "cu" #call, __FILE__, __LINE__, (err))

// SP_ERR_NO_MEMORY where the device (or pinned host memory) ran out, SP_ERR_INTERNAL otherwise.
// The thread's last error is cleared, so that it is not reported again by a later call.
sp_status sp_i_cuda_check(const sp_i_cuda_device *device, cudaError_t code, const char *call,
                          const char *file, int line, sp_error *err);
sp_status sp_i_cu_check(const sp_i_cuda_device *device, CUresult code, const char *call,
                        const char *file, int line, sp_error *err);

enum { SP_I_CUDA_TEXT = 200 };

typedef struct sp_i_cuda_info {
    char name[64];
    char pci[20];     // bus, as NVIDIA's tools print it
    int major, minor; // compute capability
    int sm_count;
    int64_t memory_bytes, l2_bytes;
    int clock_khz, memory_clock_khz; // highest
    int driver, runtime;             // CUDA versions: 1000 * major + 10 * minor
} sp_i_cuda_info;

// Devices of this machine. None is no error: *count is 0 and `reason` says why.
sp_status sp_i_cuda_device_count(const sp_i_cuda_api *api, int *count, char reason[SP_I_CUDA_TEXT],
                                 sp_error *err);
sp_status sp_i_cuda_device_info(const sp_i_cuda_device *device, sp_i_cuda_info *info,
                                sp_error *err);
// Makes it the calling thread's device.
sp_status sp_i_cuda_use(const sp_i_cuda_device *device, sp_error *err);
// Of the calling thread's device.
sp_status sp_i_cuda_memory(const sp_i_cuda_device *device, int64_t *free_bytes,
                           int64_t *total_bytes, sp_error *err);

// Copies between host and device that return when they are over, for what is not timed.

sp_status sp_i_cuda_upload(const sp_i_cuda_device *device, void *to, const void *from,
                           int64_t bytes, cudaStream_t stream, sp_error *err);
sp_status sp_i_cuda_download(const sp_i_cuda_device *device, void *to, const void *from,
                             int64_t bytes, cudaStream_t stream, sp_error *err);

// Milliseconds of a clock that never goes back.
int64_t sp_i_cuda_now_ms(void);

// Waits for all work of a stream or, unless it is NULL, for an event, which may wait for another
// GPU: SP_ERR_LIMIT where that is not over in limit_ms.
sp_status sp_i_cuda_wait_within(const sp_i_cuda_device *device, cudaStream_t stream,
                                cudaEvent_t event, int limit_ms, sp_error *err);

#endif
