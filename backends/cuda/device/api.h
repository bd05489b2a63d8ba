// The entry points of CUDA that the device layer calls, as a table, so that a test puts its own in
// their place. Runtime entry points are linked; those of the driver are looked up when the table is
// made, and are NULL where there is no driver or one that is too old.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_API_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_API_H

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct sp_i_cuda_api {
    // ---- runtime: the member is the call without "cuda" ----
    cudaError_t (*DriverGetVersion)(int *version);
    cudaError_t (*RuntimeGetVersion)(int *version);
    cudaError_t (*GetDeviceCount)(int *count);
    cudaError_t (*SetDevice)(int device);
    cudaError_t (*GetDeviceProperties)(struct cudaDeviceProp *properties, int device);
    cudaError_t (*DeviceGetAttribute)(int *value, enum cudaDeviceAttr attribute, int device);
    cudaError_t (*GetLastError)(void);
    const char *(*GetErrorName)(cudaError_t code);
    const char *(*GetErrorString)(cudaError_t code);
    cudaError_t (*MemGetInfo)(size_t *free_bytes, size_t *total_bytes);
    cudaError_t (*Malloc)(void **data, size_t bytes);
    cudaError_t (*Free)(void *data);
    cudaError_t (*HostAlloc)(void **data, size_t bytes, unsigned flags);
    cudaError_t (*FreeHost)(void *data);
    cudaError_t (*MemcpyAsync)(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                               cudaStream_t stream);
    cudaError_t (*MemsetAsync)(void *to, int value, size_t bytes, cudaStream_t stream);
    cudaError_t (*StreamCreateWithPriority)(cudaStream_t *stream, unsigned flags, int priority);
    cudaError_t (*StreamDestroy)(cudaStream_t stream);
    cudaError_t (*StreamSynchronize)(cudaStream_t stream);
    cudaError_t (*StreamQuery)(cudaStream_t stream);
    cudaError_t (*StreamWaitEvent)(cudaStream_t stream, cudaEvent_t event, unsigned flags);
    cudaError_t (*EventCreateWithFlags)(cudaEvent_t *event, unsigned flags);
    cudaError_t (*EventDestroy)(cudaEvent_t event);
    cudaError_t (*EventRecord)(cudaEvent_t event, cudaStream_t stream);
    cudaError_t (*EventQuery)(cudaEvent_t event);
    cudaError_t (*EventSynchronize)(cudaEvent_t event);
    cudaError_t (*EventElapsedTime)(float *ms, cudaEvent_t start, cudaEvent_t end);

    // ---- driver: the member is the call without "cu" ----
    PFN_cuGetErrorName_v6000 DrvGetErrorName;
    PFN_cuDeviceGetDevResource_v12040 DeviceGetDevResource;
    PFN_cuDevSmResourceSplitByCount_v12040 DevSmResourceSplitByCount;
    PFN_cuDevResourceGenerateDesc_v12040 DevResourceGenerateDesc;
    PFN_cuGreenCtxCreate_v12040 GreenCtxCreate;
    PFN_cuGreenCtxDestroy_v12040 GreenCtxDestroy;
    PFN_cuGreenCtxGetDevResource_v12040 GreenCtxGetDevResource;
    PFN_cuGreenCtxStreamCreate_v12050 GreenCtxStreamCreate;
    bool partitions;         // all of the driver's are there
    char no_partitions[160]; // why not
} sp_i_cuda_api;

// The table of this machine. It does not fail: without a driver the runtime's calls report that.
void sp_i_cuda_api_init(sp_i_cuda_api *api);

// Libraries of CUDA that are looked for when they are first needed (cuBLASLt, cuDNN, NVML), so that
// a machine without them starts everything else.

// A function of a library and where its address goes in a table.
typedef struct sp_i_library_symbol {
    const char *name;
    size_t offset;
} sp_i_library_symbol;

// Loads the first of `names` (NULL at the end) that there is and writes the addresses of all
// symbols into `table`. False, with what was missing in `reason`, where that fails; the table is
// then not touched. What is loaded stays for the life of the process.
bool sp_i_library_open(const char *const *names, const sp_i_library_symbol *symbols, size_t count,
                       void *table, char *reason, size_t reason_bytes);

#endif
