// The CUDA driver, by whose functions alone kernels and backend reach a GPU. C17 and C++.
#ifndef SLIMPACK_KERNELS_DRIVER_H
#define SLIMPACK_KERNELS_DRIVER_H

#include <cudaTypedefs.h>

// A row for each function: its name without "cu", and the version of CUDA whose signature it has
// (PFN_cuInit_v2000 is the type of cuInit). The latest versions say which drivers serve.
#define SP_I_CUDA_FUNCTIONS(ROW)                         \
    ROW(DriverGetVersion, 2020)                          \
    ROW(Init, 2000)                                      \
    ROW(GetErrorName, 6000)                              \
    ROW(GetErrorString, 6000)                            \
    ROW(DeviceGetCount, 2000)                            \
    ROW(DeviceGetName, 2000)                             \
    ROW(DeviceGetPCIBusId, 4010)                         \
    ROW(DeviceTotalMem, 3020)                            \
    ROW(DeviceGetAttribute, 2000)                        \
    ROW(DevicePrimaryCtxRetain, 7000)                    \
    ROW(CtxSetCurrent, 4000)                             \
    ROW(CtxGetCurrent, 4000)                             \
    ROW(CtxPushCurrent, 4000)                            \
    ROW(CtxPopCurrent, 4000)                             \
    ROW(MemGetInfo, 3020)                                \
    ROW(MemAlloc, 3020)                                  \
    ROW(MemFree, 3020)                                   \
    ROW(MemHostAlloc, 2020)                              \
    ROW(MemFreeHost, 2000)                               \
    ROW(MemcpyAsync, 4000)                               \
    ROW(MemcpyHtoDAsync, 3020)                           \
    ROW(MemcpyDtoHAsync, 3020)                           \
    ROW(MemsetD8Async, 3020)                             \
    ROW(StreamCreateWithPriority, 5050)                  \
    ROW(StreamDestroy, 4000)                             \
    ROW(StreamSynchronize, 2000)                         \
    ROW(StreamQuery, 2000)                               \
    ROW(StreamWaitEvent, 3020)                           \
    ROW(EventCreate, 2000)                               \
    ROW(EventDestroy, 4000)                              \
    ROW(EventRecord, 2000)                               \
    ROW(EventQuery, 2000)                                \
    ROW(EventSynchronize, 2000)                          \
    ROW(EventElapsedTime, 2000)                          \
    ROW(CtxGetDevice, 2000)                              \
    ROW(LibraryLoadData, 12000)                          \
    ROW(LibraryGetKernel, 12000)                         \
    ROW(KernelSetAttribute, 12000)                       \
    ROW(OccupancyMaxActiveBlocksPerMultiprocessor, 6050) \
    ROW(LaunchKernelEx, 11060)                           \
    ROW(DeviceGetDevResource, 12040)                     \
    ROW(DevSmResourceSplitByCount, 12040)                \
    ROW(DevResourceGenerateDesc, 12040)                  \
    ROW(GreenCtxCreate, 12040)                           \
    ROW(GreenCtxDestroy, 12040)                          \
    ROW(CtxFromGreenCtx, 12040)                          \
    ROW(GreenCtxStreamCreate, 12050)

// The functions as a table, so that a test puts its own in their place.
typedef struct sp_cuda_api {
#define SP_I_CUDA_MEMBER(name, version) PFN_cu##name##_v##version name;
    SP_I_CUDA_FUNCTIONS(SP_I_CUDA_MEMBER)
#undef SP_I_CUDA_MEMBER
    char missing[240]; // why none of them may be called; "": they may
} sp_cuda_api;

#endif
