#include "backends/cuda/device/api.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

// Looked up by the version that the typedef names, so that the signature is the one compiled for.
typedef struct driver_entry {
    const char *symbol;
    unsigned version;
    size_t offset;
} driver_entry;

static const driver_entry driver_entries[] = {
    {"cuGetErrorName", 6000, offsetof(sp_i_cuda_api, DrvGetErrorName)},
    {"cuDeviceGetDevResource", 12040, offsetof(sp_i_cuda_api, DeviceGetDevResource)},
    {"cuDevSmResourceSplitByCount", 12040, offsetof(sp_i_cuda_api, DevSmResourceSplitByCount)},
    {"cuDevResourceGenerateDesc", 12040, offsetof(sp_i_cuda_api, DevResourceGenerateDesc)},
    {"cuGreenCtxCreate", 12040, offsetof(sp_i_cuda_api, GreenCtxCreate)},
    {"cuGreenCtxDestroy", 12040, offsetof(sp_i_cuda_api, GreenCtxDestroy)},
    {"cuGreenCtxGetDevResource", 12040, offsetof(sp_i_cuda_api, GreenCtxGetDevResource)},
    {"cuGreenCtxStreamCreate", 12050, offsetof(sp_i_cuda_api, GreenCtxStreamCreate)},
};

static void find_driver_entries(sp_i_cuda_api *api);

void sp_i_cuda_api_init(sp_i_cuda_api *api)
{
    *api = (sp_i_cuda_api){
        .DriverGetVersion = cudaDriverGetVersion,
        .RuntimeGetVersion = cudaRuntimeGetVersion,
        .GetDeviceCount = cudaGetDeviceCount,
        .SetDevice = cudaSetDevice,
        .GetDeviceProperties = cudaGetDeviceProperties,
        .DeviceGetAttribute = cudaDeviceGetAttribute,
        .GetLastError = cudaGetLastError,
        .GetErrorName = cudaGetErrorName,
        .GetErrorString = cudaGetErrorString,
        .MemGetInfo = cudaMemGetInfo,
        .Malloc = cudaMalloc,
        .Free = cudaFree,
        .HostAlloc = cudaHostAlloc,
        .FreeHost = cudaFreeHost,
        .MemcpyAsync = cudaMemcpyAsync,
        .MemsetAsync = cudaMemsetAsync,
        .StreamCreateWithPriority = cudaStreamCreateWithPriority,
        .StreamDestroy = cudaStreamDestroy,
        .StreamSynchronize = cudaStreamSynchronize,
        .StreamQuery = cudaStreamQuery,
        .StreamWaitEvent = cudaStreamWaitEvent,
        .EventCreateWithFlags = cudaEventCreateWithFlags,
        .EventDestroy = cudaEventDestroy,
        .EventRecord = cudaEventRecord,
        .EventQuery = cudaEventQuery,
        .EventSynchronize = cudaEventSynchronize,
        .EventElapsedTime = cudaEventElapsedTime,
    };
    find_driver_entries(api);
}

static void find_driver_entries(sp_i_cuda_api *api)
{
    api->partitions = true;
    for (size_t i = 0; i < sizeof driver_entries / sizeof *driver_entries; i++) {
        const driver_entry *e = &driver_entries[i];
        void *found = NULL;
        enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
        cudaError_t code = cudaGetDriverEntryPointByVersion(e->symbol, &found, e->version,
                                                            cudaEnableDefault, &result);
        if (code == cudaSuccess && result == cudaDriverEntryPointSuccess && found != NULL) {
            memcpy((char *)api + e->offset, &found, sizeof found);
        } else if (api->partitions) {
            api->partitions = false;
            snprintf(api->no_partitions, sizeof api->no_partitions,
                     "the driver does not give %s of version %u.%u (%s)", e->symbol,
                     e->version / 1000, e->version % 1000 / 10,
                     code != cudaSuccess ? cudaGetErrorString(code) : "not found");
        }
    }
    // A failed look-up stays behind as the thread's last error.
    (void)cudaGetLastError();
}

bool sp_i_library_open(const char *const *names, const sp_i_library_symbol *symbols, size_t count,
                       void *table, char *reason, size_t reason_bytes)
{
    void *library = NULL;
    const char *name = names[0];
    for (int i = 0; library == NULL && names[i] != NULL; i++) {
        name = names[i];
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) {
        const char *why = dlerror();
        snprintf(reason, reason_bytes, "%s", why != NULL ? why : name);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (dlsym(library, symbols[i].name) == NULL) {
            snprintf(reason, reason_bytes, "%s has no %s", name, symbols[i].name);
            dlclose(library);
            return false;
        }
    }
    for (size_t i = 0; i < count; i++) {
        // POSIX lets a function's address pass through void *; C has no such conversion.
        void *found = dlsym(library, symbols[i].name);
        memcpy((char *)table + symbols[i].offset, &found, sizeof found);
    }
    return true;
}
