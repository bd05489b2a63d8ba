#include "tests/gpu/support/fake_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/support/fake_graph.h"

fake_cuda fake;

// Ranks on the wall clock are threads.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void count(int *alive, int change)
{
    (void)pthread_mutex_lock(&lock);
    *alive += change;
    (void)pthread_mutex_unlock(&lock);
}

static bool log_and_fail(const char *call)
{
    size_t used = strlen(fake.log);
    snprintf(fake.log + used, sizeof fake.log - used, "%s ", call);
    return fake.fail != NULL && strcmp(fake.fail, call) == 0 &&
           (!fake.fail_captured || fake_graph_capturing()) && fake.calls++ == fake.fail_at;
}

static bool fails(const char *call)
{
    (void)pthread_mutex_lock(&lock);
    bool failed = log_and_fail(call);
    (void)pthread_mutex_unlock(&lock);
    return failed;
}

#define RUNTIME(call)          \
    if (fails(call)) {         \
        return fake.fail_code; \
    }
#define DRIVER(call)             \
    if (fails(call)) {           \
        return fake.fail_result; \
    }

// An event: the last of its records.
typedef struct recorded {
    int64_t clock_ns;
    cudaStream_t stream;
    int record; // how manyth of all records, from 1
    fake_graph_point point;
} recorded;

// ---- what captures keep ----

typedef struct kept_copy {
    void *to;
    const void *from; // NULL: `value` in all bytes
    int value;
    size_t bytes;
} kept_copy;

static void do_copy(void *context)
{
    const kept_copy *c = context;
    if (c->from != NULL) {
        memcpy(c->to, c->from, c->bytes);
    } else {
        memset(c->to, c->value, c->bytes);
    }
}

static void put_copy(cudaStream_t stream, const kept_copy *c)
{
    if (fake_graph_holds(stream)) {
        kept_copy *kept = malloc(sizeof *kept);
        *kept = *c;
        fake_graph_add(stream, do_copy, kept, free);
    } else {
        do_copy((void *)c);
    }
}

// An event that a graph records.
typedef struct kept_record {
    cudaEvent_t event;
    cudaStream_t stream;
} kept_record;

static void record_now(cudaEvent_t event, cudaStream_t stream)
{
    (void)pthread_mutex_lock(&lock);
    fake.clock_ns += fake.tick_ns;
    const recorded now = {.clock_ns = fake.clock_ns, .stream = stream, .record = ++fake.records};
    memcpy(event, &now, sizeof now);
    (void)pthread_mutex_unlock(&lock);
}

static void do_record(void *context)
{
    const kept_record *r = context;
    record_now(r->event, r->stream);
}

static bool is_captured(cudaEvent_t event)
{
    recorded last;
    memcpy(&last, event, sizeof last);
    return last.point.capture != 0;
}

#define NOT_IN_A_CAPTURE                                             \
    if (fake_graph_capturing()) {                                    \
        return fake_graph_refuse(cudaErrorStreamCaptureUnsupported); \
    }

// ---- runtime ----

static cudaError_t version(int *value)
{
    *value = 13000;
    return cudaSuccess;
}

static cudaError_t device_count(int *found)
{
    *found = fake.devices;
    return fake.count_code;
}

static cudaError_t set_device(int device)
{
    RUNTIME("SetDevice")
    return device < fake.devices ? cudaSuccess : cudaErrorInvalidDevice;
}

static cudaError_t properties(struct cudaDeviceProp *p, int device)
{
    RUNTIME("GetDeviceProperties")
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Fake %d", device);
    p->major = 9;
    p->multiProcessorCount = (int)fake.sms;
    p->totalGlobalMem = (size_t)1 << 37;
    p->l2CacheSize = 60 << 20;
    return cudaSuccess;
}

static cudaError_t attribute(int *value, enum cudaDeviceAttr which, int device)
{
    (void)device;
    RUNTIME("DeviceGetAttribute")
    *value = which == cudaDevAttrMultiProcessorCount ? (int)fake.sms : 1980000;
    return cudaSuccess;
}

static cudaError_t last_error(void)
{
    fake.cleared = true;
    return cudaSuccess;
}

static const char *error_name(cudaError_t code)
{
    return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOther";
}

static const char *error_text(cudaError_t code)
{
    return code == cudaErrorMemoryAllocation ? "out of memory" : "something else";
}

static cudaError_t memory(size_t *free_bytes, size_t *total_bytes)
{
    RUNTIME("MemGetInfo")
    *free_bytes = fake.free_bytes;
    *total_bytes = fake.total_bytes;
    return cudaSuccess;
}

static cudaError_t take(void **data, size_t bytes)
{
    RUNTIME("Malloc")
    NOT_IN_A_CAPTURE
    *data = aligned_alloc(256, (bytes + 255) / 256 * 256);
    count(&fake.live_blocks, 1);
    return *data != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

static cudaError_t give(void *data)
{
    NOT_IN_A_CAPTURE
    count(&fake.live_blocks, data != NULL ? -1 : 0);
    free(data);
    return cudaSuccess;
}

static cudaError_t host_take(void **data, size_t bytes, unsigned flags)
{
    (void)flags;
    return take(data, bytes);
}

static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                        cudaStream_t stream)
{
    (void)kind;
    RUNTIME("MemcpyAsync")
    const kept_copy c = {to, from, 0, bytes};
    count(&fake.copies, 1);
    put_copy(stream, &c);
    return cudaSuccess;
}

static cudaError_t set(void *to, int value, size_t bytes, cudaStream_t stream)
{
    RUNTIME("MemsetAsync")
    const kept_copy c = {to, NULL, value, bytes};
    count(&fake.sets, 1);
    put_copy(stream, &c);
    return cudaSuccess;
}

static cudaError_t stream_new(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)flags;
    (void)priority;
    RUNTIME("StreamCreateWithPriority")
    *stream = malloc(1);
    count(&fake.live_streams, 1);
    return cudaSuccess;
}

static cudaError_t stream_free(cudaStream_t stream)
{
    free(stream);
    count(&fake.live_streams, -1);
    return cudaSuccess;
}

static cudaError_t stream_end(cudaStream_t stream)
{
    RUNTIME("StreamSynchronize")
    return fake_graph_holds(stream) ? fake_graph_refuse(cudaErrorStreamCaptureUnsupported)
                                    : cudaSuccess;
}

static cudaError_t stream_wait(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    RUNTIME("StreamWaitEvent")
    recorded last;
    (void)pthread_mutex_lock(&lock);
    memcpy(&last, event, sizeof last);
    fake.waited = (fake_wait){stream, last.stream, last.record};
    (void)pthread_mutex_unlock(&lock);
    return last.point.capture != 0 || fake_graph_holds(stream) ? fake_graph_wait(stream, last.point)
                                                               : cudaSuccess;
}

static cudaError_t event_new(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    RUNTIME("EventCreateWithFlags")
    *event = calloc(1, sizeof(recorded));
    count(&fake.live_events, 1);
    return cudaSuccess;
}

static cudaError_t event_free(cudaEvent_t event)
{
    free(event);
    count(&fake.live_events, -1);
    return cudaSuccess;
}

static cudaError_t event_record(cudaEvent_t event, cudaStream_t stream)
{
    RUNTIME("EventRecord")
    if (fake_graph_holds(stream)) {
        const recorded now = {.stream = stream, .point = fake_graph_record(stream)};
        memcpy(event, &now, sizeof now);
    } else {
        record_now(event, stream);
    }
    return cudaSuccess;
}

static cudaError_t event_record_in_graph(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    RUNTIME("EventRecordWithFlags")
    if (flags != cudaEventRecordExternal || !fake_graph_holds(stream)) {
        return cudaErrorInvalidValue;
    }
    kept_record *kept = malloc(sizeof *kept);
    *kept = (kept_record){event, stream};
    fake_graph_add(stream, do_record, kept, free);
    return cudaSuccess;
}

static cudaError_t event_end(cudaEvent_t event)
{
    RUNTIME("EventSynchronize")
    return is_captured(event) ? fake_graph_refuse(cudaErrorCapturedEvent) : cudaSuccess;
}

static cudaError_t event_query(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}

static cudaError_t event_between(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    RUNTIME("EventElapsedTime")
    if (is_captured(start) || is_captured(end)) {
        return fake_graph_refuse(cudaErrorCapturedEvent);
    }
    recorded from, to;
    memcpy(&from, start, sizeof from);
    memcpy(&to, end, sizeof to);
    *ms = (float)((double)(to.clock_ns - from.clock_ns) / 1e6);
    return cudaSuccess;
}

// ---- graphs ----

static cudaError_t capture_begin(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    RUNTIME("StreamBeginCapture")
    return fake_graph_begin(stream, mode);
}

static cudaError_t capture_end(cudaStream_t stream, cudaGraph_t *graph)
{
    bool failed = fails("StreamEndCapture");
    cudaError_t code = fake_graph_end(stream, graph);
    if (failed && code == cudaSuccess) {
        (void)fake_graph_free(*graph);
        *graph = NULL;
    }
    return failed ? fake.fail_code : code;
}

static cudaError_t graph_make(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    RUNTIME("GraphInstantiate")
    return fake_graph_instantiate(made, graph);
}

static cudaError_t graph_launch(cudaGraphExec_t graph, cudaStream_t stream)
{
    (void)stream;
    RUNTIME("GraphLaunch")
    return fake_graph_launch(graph);
}

// ---- driver ----

static CUresult result_name(CUresult code, const char **name)
{
    *name = code == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : NULL;
    return *name != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult resource(CUdevice device, CUdevResource *made, CUdevResourceType type)
{
    (void)device;
    (void)type;
    DRIVER("DeviceGetDevResource")
    made->sm.smCount = fake.sms;
    made->sm.minSmPartitionSize = fake.smallest;
    made->sm.smCoscheduledAlignment = fake.alignment;
    return CUDA_SUCCESS;
}

static CUresult split(CUdevResource *made, unsigned *groups, const CUdevResource *input,
                      CUdevResource *rest, unsigned flags, unsigned least)
{
    (void)flags;
    DRIVER("DevSmResourceSplitByCount")
    fake.splits++;
    *groups -= fake.groups_less;
    for (unsigned i = 0; i < *groups; i++) {
        made[i].sm.smCount = least;
    }
    rest->sm.smCount = input->sm.smCount - *groups * least;
    return CUDA_SUCCESS;
}

static CUresult describe(CUdevResourceDesc *made, CUdevResource *resources, unsigned count)
{
    (void)resources;
    (void)count;
    DRIVER("DevResourceGenerateDesc")
    *made = NULL;
    return CUDA_SUCCESS;
}

static CUresult context_new(CUgreenCtx *made, CUdevResourceDesc description, CUdevice device,
                            unsigned flags)
{
    (void)description;
    (void)device;
    (void)flags;
    DRIVER("GreenCtxCreate")
    *made = malloc(1);
    count(&fake.live_contexts, 1);
    return CUDA_SUCCESS;
}

static CUresult context_free(CUgreenCtx context)
{
    free(context);
    count(&fake.live_contexts, -1);
    return CUDA_SUCCESS;
}

static CUresult context_resource(CUgreenCtx context, CUdevResource *made, CUdevResourceType type)
{
    (void)context;
    return resource(0, made, type);
}

static CUresult context_stream(CUstream *stream, CUgreenCtx context, unsigned flags, int priority)
{
    (void)context;
    (void)flags;
    (void)priority;
    DRIVER("GreenCtxStreamCreate")
    *stream = malloc(1);
    count(&fake.live_streams, 1);
    return CUDA_SUCCESS;
}

void fake_cuda_reset(sp_i_cuda_api *api)
{
    fake = (fake_cuda){.devices = 1,
                       .free_bytes = 100,
                       .total_bytes = 200,
                       .fail_code = cudaErrorUnknown,
                       .fail_result = CUDA_ERROR_INVALID_VALUE,
                       .sms = 132,
                       .smallest = 8,
                       .alignment = 8};
    fake_graph_reset();
    *api = (sp_i_cuda_api){
        .DriverGetVersion = version,
        .RuntimeGetVersion = version,
        .GetDeviceCount = device_count,
        .SetDevice = set_device,
        .GetDeviceProperties = properties,
        .DeviceGetAttribute = attribute,
        .GetLastError = last_error,
        .GetErrorName = error_name,
        .GetErrorString = error_text,
        .MemGetInfo = memory,
        .Malloc = take,
        .Free = give,
        .HostAlloc = host_take,
        .FreeHost = give,
        .MemcpyAsync = copy,
        .MemsetAsync = set,
        .StreamCreateWithPriority = stream_new,
        .StreamDestroy = stream_free,
        .StreamSynchronize = stream_end,
        .StreamWaitEvent = stream_wait,
        .EventCreateWithFlags = event_new,
        .EventDestroy = event_free,
        .EventRecord = event_record,
        .EventQuery = event_query,
        .EventSynchronize = event_end,
        .EventElapsedTime = event_between,
        .EventRecordWithFlags = event_record_in_graph,
        .StreamBeginCapture = capture_begin,
        .StreamEndCapture = capture_end,
        .GraphInstantiate = graph_make,
        .GraphLaunch = graph_launch,
        .GraphExecDestroy = fake_graph_exec_free,
        .GraphDestroy = fake_graph_free,
        .DrvGetErrorName = result_name,
        .DeviceGetDevResource = resource,
        .DevSmResourceSplitByCount = split,
        .DevResourceGenerateDesc = describe,
        .GreenCtxCreate = context_new,
        .GreenCtxDestroy = context_free,
        .GreenCtxGetDevResource = context_resource,
        .GreenCtxStreamCreate = context_stream,
        .partitions = true,
    };
}
