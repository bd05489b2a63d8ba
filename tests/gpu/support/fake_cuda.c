#include "tests/gpu/support/fake_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "tests/gpu/support/followed.h"
#include "tests/gpu/support/stream_queue.h"

fake_cuda fake;

// Ranks on the wall clock are threads.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void count(int *alive, int change)
{
    followed_lock(&lock);
    *alive += change;
    followed_unlock(&lock);
}

static bool log_and_fail(const char *call)
{
    size_t used = strlen(fake.log);
    snprintf(fake.log + used, sizeof fake.log - used, "%s ", call);
    return fake.fail != NULL && strcmp(fake.fail, call) == 0 && fake.calls++ == fake.fail_at;
}

static bool fails(const char *call)
{
    followed_lock(&lock);
    bool failed = log_and_fail(call);
    followed_unlock(&lock);
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
} recorded;

// A stream knows its context. Green contexts, and what can be current of them, are one object.
typedef struct stream_of_context {
    CUcontext context;
} stream_of_context;

// Contexts of the calling thread; the first is the one that SetDevice sets.
enum { MOST_CONTEXTS = 4 };
static _Thread_local CUcontext contexts[MOST_CONTEXTS];
static _Thread_local int pushed;

CUcontext fake_stream_context(cudaStream_t of)
{
    return of != NULL ? ((const stream_of_context *)(const void *)of)->context
                      : fake_current_context();
}

CUcontext fake_current_context(void)
{
    return contexts[pushed];
}

// ---- streams that may wait for other GPUs, and memory of the host ----

enum { MOST_NOTED = 256 };

static struct {
    const void *streams[MOST_NOTED];
    int stream_count;
    struct {
        const char *begin;
        size_t bytes;
    } pinned[MOST_NOTED];
    int pinned_count;
} noted;

static int find_stream(cudaStream_t stream)
{
    int i = 0;
    while (i < noted.stream_count && noted.streams[i] != (const void *)stream) {
        i++;
    }
    return i;
}

void fake_stream_may_wait(cudaStream_t stream)
{
    followed_lock(&lock);
    const int i = find_stream(stream);
    if (i == noted.stream_count && i < MOST_NOTED) {
        noted.streams[noted.stream_count++] = stream;
    }
    followed_unlock(&lock);
}

void fake_stream_is_over(cudaStream_t stream)
{
    followed_lock(&lock);
    const int i = find_stream(stream);
    if (i < noted.stream_count) {
        noted.streams[i] = noted.streams[--noted.stream_count];
    }
    followed_unlock(&lock);
}

static void note_pinned(const char *begin, size_t bytes)
{
    followed_lock(&lock);
    if (noted.pinned_count < MOST_NOTED) {
        noted.pinned[noted.pinned_count].begin = begin;
        noted.pinned[noted.pinned_count++].bytes = bytes;
    }
    followed_unlock(&lock);
}

static void forget_pinned(const char *begin)
{
    followed_lock(&lock);
    for (int i = 0; i < noted.pinned_count; i++) {
        if (noted.pinned[i].begin == begin) {
            noted.pinned[i] = noted.pinned[--noted.pinned_count];
        }
    }
    followed_unlock(&lock);
}

static bool look_at_copy(const char *host, cudaStream_t stream)
{
    followed_lock(&lock);
    bool pinned = noted.pinned_count == MOST_NOTED; // more than are noted: not known
    for (int i = 0; i < noted.pinned_count; i++) {
        pinned = pinned || (host >= noted.pinned[i].begin &&
                            host < noted.pinned[i].begin + noted.pinned[i].bytes);
    }
    fake.blocked_copies += !pinned && find_stream(stream) < noted.stream_count;
    followed_unlock(&lock);
    return pinned;
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
    contexts[pushed] = NULL;
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
    const size_t taken = fake.taken_bytes + (size_t)fake.live_contexts * fake.context_bytes;
    *free_bytes = !fake.counts_memory       ? fake.free_bytes
                  : fake.free_bytes > taken ? fake.free_bytes - taken
                                            : 0;
    *total_bytes = fake.total_bytes;
    return cudaSuccess;
}

// Memory of the device says in front of it how much it is.
enum { FRONT = 256 };

static cudaError_t take(void **data, size_t bytes)
{
    RUNTIME("Malloc")
    char *made = aligned_alloc(FRONT, (bytes + 2 * FRONT - 1) / FRONT * FRONT);
    if (made == NULL) {
        return cudaErrorMemoryAllocation;
    }
    memcpy(made, &bytes, sizeof bytes);
    *data = made + FRONT;
    followed_lock(&lock);
    fake.live_blocks++;
    fake.taken_bytes += bytes;
    followed_unlock(&lock);
    return cudaSuccess;
}

static cudaError_t give(void *data)
{
    size_t bytes;
    if (data == NULL) {
        return cudaSuccess;
    }
    stream_queue_finish_all(); // as giving memory back waits for the device
    memcpy(&bytes, (char *)data - FRONT, sizeof bytes);
    followed_lock(&lock);
    fake.live_blocks--;
    fake.taken_bytes -= bytes;
    followed_unlock(&lock);
    free((char *)data - FRONT);
    return cudaSuccess;
}

// Fails with the calls of Malloc.
static cudaError_t host_take(void **data, size_t bytes, unsigned flags)
{
    (void)flags;
    RUNTIME("Malloc")
    *data = aligned_alloc(FRONT, (bytes + FRONT - 1) / FRONT * FRONT);
    count(&fake.live_blocks, *data != NULL);
    note_pinned(*data, bytes);
    return *data != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

static cudaError_t host_give(void *data)
{
    stream_queue_finish_all();
    forget_pinned(data);
    count(&fake.live_blocks, data != NULL ? -1 : 0);
    free(data);
    return cudaSuccess;
}

// A copy, or without `from` bytes of one value. What is copied of plain memory of the host is taken
// now.
typedef struct moved {
    void *to;
    const void *from;
    int value;
    size_t bytes;
    void *taken;
} moved;

static void move(void *context)
{
    moved *m = context;
    if (m->from != NULL) {
        memcpy(m->to, m->from, m->bytes);
    } else {
        memset(m->to, m->value, m->bytes);
    }
    sp_free(m->taken);
    sp_free(m);
}

// Of the host's memory no event of a stream says when it may be used again: the host waits.
static void put_move(moved what, bool now, cudaStream_t stream)
{
    moved *m = sp_malloc(sizeof *m);
    *m = what;
    if (now) {
        m->taken = sp_malloc(what.bytes);
        memcpy(m->taken, what.from, what.bytes);
        m->from = m->taken;
    }
    stream_queue_put(stream, move, m);
}

static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                        cudaStream_t stream)
{
    RUNTIME("MemcpyAsync")
    const bool plain = (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToHost) &&
                       !look_at_copy(kind == cudaMemcpyHostToDevice ? from : to, stream);
    put_move((moved){.to = to, .from = from, .bytes = bytes},
             plain && kind == cudaMemcpyHostToDevice, stream);
    if (plain && kind == cudaMemcpyDeviceToHost) {
        stream_queue_finish(stream);
    }
    return cudaSuccess;
}

static cudaError_t set(void *to, int value, size_t bytes, cudaStream_t stream)
{
    RUNTIME("MemsetAsync")
    put_move((moved){.to = to, .value = value, .bytes = bytes}, false, stream);
    return cudaSuccess;
}

static cudaStream_t new_stream(CUcontext context)
{
    stream_of_context *made = calloc(1, sizeof *made);
    made->context = context;
    count(&fake.live_streams, 1);
    return (cudaStream_t)(void *)made;
}

static cudaError_t stream_new(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)flags;
    (void)priority;
    RUNTIME("StreamCreateWithPriority")
    *stream = new_stream(fake_current_context());
    return cudaSuccess;
}

static cudaError_t stream_free(cudaStream_t stream)
{
    stream_queue_forget(stream);
    free(stream);
    count(&fake.live_streams, -1);
    return cudaSuccess;
}

static cudaError_t stream_end(cudaStream_t stream)
{
    RUNTIME("StreamSynchronize")
    stream_queue_finish(stream);
    fake_stream_is_over(stream);
    return cudaSuccess;
}

static cudaError_t stream_wait(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    RUNTIME("StreamWaitEvent")
    recorded last;
    followed_lock(&lock);
    bool drops = ++fake.waits == fake.wait_dropped;
    followed_unlock(&lock);
    if (!drops) {
        stream_queue_wait(stream, event);
    }
    followed_lock(&lock);
    memcpy(&last, event, sizeof last);
    fake.waited = (fake_wait){stream, last.stream, last.record};
    followed_unlock(&lock);
    return cudaSuccess;
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
    stream_queue_forget(event);
    free(event);
    count(&fake.live_events, -1);
    return cudaSuccess;
}

static cudaError_t event_record(cudaEvent_t event, cudaStream_t stream)
{
    RUNTIME("EventRecord")
    stream_queue_record(event, stream);
    followed_lock(&lock);
    fake.clock_ns += fake.tick_ns;
    const recorded now = {.clock_ns = fake.clock_ns, .stream = stream, .record = ++fake.records};
    memcpy(event, &now, sizeof now);
    followed_unlock(&lock);
    return cudaSuccess;
}

static cudaError_t event_end(cudaEvent_t event)
{
    RUNTIME("EventSynchronize")
    stream_queue_finish_event(event);
    return cudaSuccess;
}

static cudaError_t event_query(cudaEvent_t event)
{
    stream_queue_finish_event(event);
    return cudaSuccess;
}

static cudaError_t event_between(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    RUNTIME("EventElapsedTime")
    recorded from, to;
    memcpy(&from, start, sizeof from);
    memcpy(&to, end, sizeof to);
    *ms = (float)((double)(to.clock_ns - from.clock_ns) / 1e6);
    return cudaSuccess;
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
    (void)flags;
    (void)priority;
    DRIVER("GreenCtxStreamCreate")
    *stream = new_stream((CUcontext)(void *)context);
    return CUDA_SUCCESS;
}

static CUresult context_of(CUcontext *found, CUgreenCtx context)
{
    DRIVER("CtxFromGreenCtx")
    *found = (CUcontext)(void *)context;
    return CUDA_SUCCESS;
}

static CUresult context_push(CUcontext context)
{
    DRIVER("CtxPushCurrent")
    if (pushed + 1 == MOST_CONTEXTS) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    contexts[++pushed] = context;
    return CUDA_SUCCESS;
}

static CUresult context_pop(CUcontext *popped)
{
    if (pushed == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *popped = contexts[pushed--];
    return CUDA_SUCCESS;
}

void fake_cuda_reset(sp_i_cuda_api *api)
{
    memset(&noted, 0, sizeof noted);
    stream_queue_reset();
    fake = (fake_cuda){.devices = 1,
                       .free_bytes = 100,
                       .total_bytes = 200,
                       .fail_code = cudaErrorUnknown,
                       .fail_result = CUDA_ERROR_INVALID_VALUE,
                       .sms = 132,
                       .smallest = 8,
                       .alignment = 8};
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
        .FreeHost = host_give,
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
        .DrvGetErrorName = result_name,
        .DeviceGetDevResource = resource,
        .DevSmResourceSplitByCount = split,
        .DevResourceGenerateDesc = describe,
        .GreenCtxCreate = context_new,
        .GreenCtxDestroy = context_free,
        .GreenCtxGetDevResource = context_resource,
        .GreenCtxStreamCreate = context_stream,
        .CtxFromGreenCtx = context_of,
        .CtxPushCurrent = context_push,
        .CtxPopCurrent = context_pop,
        .partitions = true,
    };
}
