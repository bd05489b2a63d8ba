// One GPU of CUDA: the entry points it is reached by, how their failures become errors, events,
// clocks and power, and partitions of its SMs.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/driver.h"
#include "sim/base/status.h"

enum { SP_I_CUDA_TEXT = 200 };

// Starts this machine's driver. It does not fail: where there is none, or one that is older than
// the functions of the table, `missing` says so. CUDA_DEVICE_MAX_CONNECTIONS becomes 32, the most,
// where it is not set.
void sp_i_cuda_api_init(sp_cuda_api *api);
// Its part behind the driver's own look-up: all functions of the table, or `missing`.
void sp_i_cuda_api_find(sp_cuda_api *api, PFN_cuGetProcAddress_v12000 find);

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
    const sp_cuda_api *api;
    int index;
} sp_i_cuda_device;

// Calls a function of the table and turns its code into a status, with the call, its place and the
// device in the message: `SP_I_CUDA(device, err, StreamQuery, stream)`.
#define SP_I_CUDA(device, err, call, ...)                                                       \
    sp_i_cuda_check((device), (device)->api->call(__VA_ARGS__), "cu" #call, __FILE__, __LINE__, \
                    (err))

// SP_ERR_NO_MEMORY where the device (or pinned host memory) ran out, SP_ERR_INTERNAL otherwise.
sp_status sp_i_cuda_check(const sp_i_cuda_device *device, CUresult code, const char *call,
                          const char *file, int line, sp_error *err);

typedef struct sp_i_cuda_info {
    char name[64];
    char pci[20];     // bus, as NVIDIA's tools print it
    int major, minor; // compute capability
    int sm_count;
    int64_t memory_bytes, l2_bytes;
    int clock_khz, memory_clock_khz; // highest
    int driver;                      // CUDA's version: 1000 * major + 10 * minor
} sp_i_cuda_info;

// Devices of this machine. None is no error: *count is 0 and `reason` says why.
sp_status sp_i_cuda_device_count(const sp_cuda_api *api, int *count, char reason[SP_I_CUDA_TEXT],
                                 sp_error *err);
sp_status sp_i_cuda_device_info(const sp_i_cuda_device *device, sp_i_cuda_info *info,
                                sp_error *err);
// Makes it the calling thread's device, by its primary context, which the libraries of CUDA use as
// well and which stays for the life of the process.
sp_status sp_i_cuda_use(const sp_i_cuda_device *device, sp_error *err);
// The calling thread's device.
sp_status sp_i_cuda_memory(const sp_i_cuda_device *device, int64_t *free_bytes,
                           int64_t *total_bytes, sp_error *err);

// Memory of the calling thread's device, which is never read as a number but by the driver.
sp_status sp_i_cuda_take(const sp_i_cuda_device *device, size_t bytes, void **memory,
                         sp_error *err);
void sp_i_cuda_give(const sp_i_cuda_device *device, void *memory); // NULL: nothing
static inline CUdeviceptr sp_i_cuda_at(const void *memory)
{
    return (CUdeviceptr)(uintptr_t)memory;
}

// A copy from host to device that returns when it is over, for what is not timed.
sp_status sp_i_cuda_upload(const sp_i_cuda_device *device, void *to, const void *from,
                           int64_t bytes, CUstream stream, sp_error *err);

// Milliseconds of a clock that never goes back.
int64_t sp_i_cuda_now_ms(void);

// Waits for all work of a stream or, unless it is NULL, for an event, which may wait for another
// GPU: SP_ERR_LIMIT where that is not over in limit_ms.
sp_status sp_i_cuda_wait_within(const sp_i_cuda_device *device, CUstream stream, CUevent event,
                                int limit_ms, sp_error *err);

// ---- Events ----

// Events of one device: order between streams, and times on its own clock.

typedef struct sp_i_cuda_events {
    sp_i_cuda_device device;
    int count;
    CUevent *event;
} sp_i_cuda_events;

// `timed`: with time stamps; without them an event is cheaper.
sp_status sp_i_cuda_events_init(const sp_i_cuda_device *device, int count, bool timed,
                                sp_i_cuda_events *events, sp_error *err);
void sp_i_cuda_events_fini(sp_i_cuda_events *events);

sp_status sp_i_cuda_record(const sp_i_cuda_events *events, int event, CUstream stream,
                           sp_error *err);
// Work that is put on the stream from now on starts after the event's last record.
sp_status sp_i_cuda_wait(const sp_i_cuda_events *events, int event, CUstream stream, sp_error *err);
// From one event to another, both over: nanoseconds, of about half a microsecond's resolution.
sp_status sp_i_cuda_between(const sp_i_cuda_events *events, int from, int to, int64_t *ns,
                            sp_error *err);

// Time that passes on a stream and keeps no SM busy but one: until all streams that are to begin
// together have been given their work.

// Puts a delay of `ns` on a stream; a launcher of a kernel.
typedef CUresult (*sp_i_cuda_delay)(int64_t ns, CUstream stream);

// By a kernel that waits for the device's timer.
CUresult sp_i_cuda_put_delay(int64_t ns, CUstream stream);

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
// (sp_i_cuda_push_context): every action begins with the primary one as the only context.

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
CUstream sp_i_cuda_partition_stream(const sp_i_cuda_partitions *partitions, int partition,
                                    int stream);
// The context that the streams of a partition belong to; NULL: the device's primary one.
CUcontext sp_i_cuda_partition_context(const sp_i_cuda_partitions *partitions, int partition);

// Makes a context the calling thread's until _pop_context. NULL: nothing, and likewise the pop.
sp_status sp_i_cuda_push_context(const sp_i_cuda_device *device, CUcontext context, sp_error *err);
void sp_i_cuda_pop_context(const sp_i_cuda_device *device, CUcontext context);

// The device's SMs as a resource to split.
sp_status sp_i_cuda_sms(const sp_i_cuda_device *device, sp_i_cuda_sm_resource *resource,
                        sp_error *err);

#endif
