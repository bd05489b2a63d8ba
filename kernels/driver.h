// The CUDA driver, by whose functions alone kernels and backend reach a GPU. C17 and C++.
#ifndef SLIMPACK_KERNELS_DRIVER_H
#define SLIMPACK_KERNELS_DRIVER_H

#include <cudaTypedefs.h>

// A row for each function: its name without "cu", and the version of CUDA whose signature it has
// (PFN_cuInit_v2000 is the type of cuInit). The latest versions say which drivers serve.
#define SP_I_CUDA_FUNCTIONS(row)                                                                   \
    row(DriverGetVersion, 2020) row(Init, 2000) row(GetErrorName, 6000) row(GetErrorString, 6000)  \
        row(DeviceGetCount, 2000) row(DeviceGetName, 2000) row(DeviceGetPCIBusId, 4010) row(       \
            DeviceTotalMem, 3020) row(DeviceGetAttribute, 2000) row(DevicePrimaryCtxRetain, 7000)  \
            row(CtxSetCurrent, 4000) row(CtxGetCurrent, 4000) row(CtxPushCurrent, 4000) row(       \
                CtxPopCurrent, 4000) row(MemGetInfo, 3020) row(MemAlloc, 3020) row(MemFree, 3020)  \
                row(MemHostAlloc, 2020) row(MemFreeHost, 2000) row(MemcpyAsync, 4000) row(         \
                    MemcpyHtoDAsync, 3020) row(MemcpyDtoHAsync, 3020) row(MemsetD8Async, 3020)     \
                    row(StreamCreateWithPriority, 5050) row(StreamDestroy, 4000) row(              \
                        StreamSynchronize, 2000) row(StreamQuery, 2000) row(StreamWaitEvent, 3020) \
                        row(EventCreate, 2000) row(EventDestroy, 4000) row(EventRecord, 2000)      \
                            row(EventQuery, 2000) row(EventSynchronize, 2000)                      \
                                row(EventElapsedTime, 2000) row(DeviceGetDevResource, 12040)       \
                                    row(DevSmResourceSplitByCount, 12040)                          \
                                        row(DevResourceGenerateDesc, 12040)                        \
                                            row(GreenCtxCreate, 12040) row(GreenCtxDestroy, 12040) \
                                                row(CtxFromGreenCtx, 12040)                        \
                                                    row(GreenCtxStreamCreate, 12050)

// The functions as a table, so that a test puts its own in their place.
typedef struct sp_i_cuda_api {
#define SP_I_CUDA_MEMBER(name, version) PFN_cu##name##_v##version name;
    SP_I_CUDA_FUNCTIONS(SP_I_CUDA_MEMBER)
#undef SP_I_CUDA_MEMBER
    char missing[240]; // why none of them may be called; "": they may
} sp_i_cuda_api;

#endif
