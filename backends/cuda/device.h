// One GPU of CUDA: the entry points it is reached by, how their failures become errors, events,
// clocks and power, and partitions of its SMs.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_H

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"

// The entry points of CUDA that the device layer calls, as a table, so that a test puts its own in
// their place. Runtime entry points are linked; those of the driver are looked up when the table is
// made, and are NULL where there is no driver or one that is too old.
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
    PFN_cuCtxFromGreenCtx_v12040 CtxFromGreenCtx;
    PFN_cuCtxPushCurrent_v4000 CtxPushCurrent;
    PFN_cuCtxPopCurrent_v4000 CtxPopCurrent;
    bool partitions;         // all of the driver's are there
    char no_partitions[160]; // why not
} sp_i_cuda_api;

// The table of this machine. It does not fail: without a driver the runtime's calls report that.
// CUDA_DEVICE_MAX_CONNECTIONS becomes 32, the most, where it is not set.
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

// ---- One GPU ----

// One GPU: the entry points it is reached by, and how their failures become errors.

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
// The calling thread's device.
sp_status sp_i_cuda_memory(const sp_i_cuda_device *device, int64_t *free_bytes,
                           int64_t *total_bytes, sp_error *err);

// A copy from host to device that returns when it is over, for what is not timed.
sp_status sp_i_cuda_upload(const sp_i_cuda_device *device, void *to, const void *from,
                           int64_t bytes, cudaStream_t stream, sp_error *err);

// Milliseconds of a clock that never goes back.
int64_t sp_i_cuda_now_ms(void);

// Waits for all work of a stream or, unless it is NULL, for an event, which may wait for another
// GPU: SP_ERR_LIMIT where that is not over in limit_ms.
sp_status sp_i_cuda_wait_within(const sp_i_cuda_device *device, cudaStream_t stream,
                                cudaEvent_t event, int limit_ms, sp_error *err);

// ---- Events ----

// Events of one device: order between streams, and times on its own clock.

typedef struct sp_i_cuda_events {
    sp_i_cuda_device device;
    int count;
    cudaEvent_t *event;
} sp_i_cuda_events;

// `timed`: with time stamps; without them an event is cheaper.
sp_status sp_i_cuda_events_init(const sp_i_cuda_device *device, int count, bool timed,
                                sp_i_cuda_events *events, sp_error *err);
void sp_i_cuda_events_fini(sp_i_cuda_events *events);

sp_status sp_i_cuda_record(const sp_i_cuda_events *events, int event, cudaStream_t stream,
                           sp_error *err);
// Work that is put on the stream from now on starts after the event's last record.
sp_status sp_i_cuda_wait(const sp_i_cuda_events *events, int event, cudaStream_t stream,
                         sp_error *err);
// From one event to another, both over: nanoseconds, of about half a microsecond's resolution.
sp_status sp_i_cuda_between(const sp_i_cuda_events *events, int from, int to, int64_t *ns,
                            sp_error *err);

// Time that passes on a stream and keeps no SM busy but one: until all streams that are to begin
// together have been given their work.

// Puts a delay of `ns` on a stream; a launcher of a kernel.
typedef cudaError_t (*sp_i_cuda_delay)(int64_t ns, cudaStream_t stream);

// By a kernel that waits for the device's timer.
cudaError_t sp_i_cuda_put_delay(int64_t ns, cudaStream_t stream);

// ---- Clocks and power ----

// The GPU's own reading of its clocks and its power, by NVIDIA's management library where there is
// one.
// Nothing is set.

typedef struct sp_i_nvml sp_i_nvml;

// A reading; a member that the GPU does not give is -1.
typedef struct sp_i_nvml_state {
    int sm_mhz, memory_mhz;
    double power_w, power_limit_w;
    int temperature_c;
    long long throttle; // bits of nvmlClocksEventReasons
} sp_i_nvml_state;

// The GPU with this PCI bus ("0000:8b:00.0"). NULL, with the reason, where there is no library.
sp_i_nvml *sp_i_nvml_open(const char *pci_bus, char *reason, size_t reason_bytes);
void sp_i_nvml_close(sp_i_nvml *nvml);
sp_i_nvml_state sp_i_nvml_read(const sp_i_nvml *nvml);
// "580.65.06", or "" where it cannot be had.
void sp_i_nvml_driver(const sp_i_nvml *nvml, char *text, size_t text_bytes);

// ---- Partitions of SMs ----

// SM partitions: the streams of each run on SMs of its own, by green contexts of the driver. Where
// that cannot be had there is one partition for all, of the whole device, with the reason; nothing
// but the streams' place changes then.
//
// Source: CUDA driver API 13.0, "Green Contexts". Streams carry the place, and a green context is
// current only around calls of a library that compares the current context with a stream's
// (sp_i_cuda_push_context): cudaSetDevice, which every action begins with, makes the primary
// context current again.

typedef struct sp_i_cuda_partitions sp_i_cuda_partitions;

// The device's SMs, in its own words.
typedef struct sp_i_cuda_sm_resource {
    int count, smallest, alignment;
} sp_i_cuda_sm_resource;

// `partitions` groups of SMs from one split, each with `streams` streams that do not wait for the
// default stream. The calling thread must use the device (sp_i_cuda_use).
sp_status sp_i_cuda_partitions_new(const sp_i_cuda_device *device, int partitions, int streams,
                                   sp_i_cuda_partitions **made, sp_error *err);
void sp_i_cuda_partitions_free(sp_i_cuda_partitions *partitions);

// Disjoint SMs? Where not, `reason` (may be NULL) gets why.
bool sp_i_cuda_are_partitioned(const sp_i_cuda_partitions *partitions, const char **reason);
// SMs that the streams of a partition run on.
int sp_i_cuda_partition_sms(const sp_i_cuda_partitions *partitions, int partition);
cudaStream_t sp_i_cuda_partition_stream(const sp_i_cuda_partitions *partitions, int partition,
                                        int stream);
// The context that the streams of a partition belong to; NULL: the device's primary one.
CUcontext sp_i_cuda_partition_context(const sp_i_cuda_partitions *partitions, int partition);

// Makes a context the calling thread's until _pop_context. NULL: nothing, and likewise the pop.
sp_status sp_i_cuda_push_context(const sp_i_cuda_device *device, CUcontext context, sp_error *err);
void sp_i_cuda_pop_context(const sp_i_cuda_device *device, CUcontext context);

// The device's SMs as a resource to split. SP_ERR_USAGE with the reason where the driver has none.
sp_status sp_i_cuda_sms(const sp_i_cuda_device *device, sp_i_cuda_sm_resource *resource,
                        sp_error *err);

#endif
