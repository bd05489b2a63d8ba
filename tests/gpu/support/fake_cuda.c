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

#define MAY_FAIL(call)         \
    if (fails(call)) {         \
        return fake.fail_code; \
    }
// A call that works in the thread's current context.
#define NEEDS_CONTEXT(call)                \
    MAY_FAIL(call)                         \
    if (contexts[pushed] == NULL) {        \
        return CUDA_ERROR_INVALID_CONTEXT; \
    }

// An event: the last of its records.
typedef struct recorded {
    int64_t clock_ns;
    CUstream stream;
    int record; // how manyth of all records, from 1
} recorded;

// A stream knows its context. Green contexts, and what can be current of them, are one object.
typedef struct stream_of_context {
    CUcontext context;
} stream_of_context;

// Contexts of the calling thread; NULL: none is current.
enum { MOST_CONTEXTS = 4 };
static _Thread_local CUcontext contexts[MOST_CONTEXTS];
static _Thread_local int pushed;

// The device's.
static char primary;

CUcontext fake_stream_context(CUstream of)
{
    return of != NULL ? ((const stream_of_context *)(const void *)of)->context
                      : fake_current_context();
}

CUcontext fake_current_context(void)
{
    return contexts[pushed] == (CUcontext)(void *)&primary ? NULL : contexts[pushed];
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

static int find_stream(CUstream stream)
{
    int i = 0;
    while (i < noted.stream_count && noted.streams[i] != (const void *)stream) {
        i++;
    }
    return i;
}

void fake_stream_may_wait(CUstream stream)
{
    followed_lock(&lock);
    const int i = find_stream(stream);
    if (i == noted.stream_count && i < MOST_NOTED) {
        noted.streams[noted.stream_count++] = stream;
    }
    followed_unlock(&lock);
}

void fake_stream_is_over(CUstream stream)
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

static bool look_at_copy(const char *host, CUstream stream)
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

// ---- the device and its memory ----

static CUresult version(int *value)
{
    *value = 13000;
    return CUDA_SUCCESS;
}

static CUresult device_count(int *found)
{
    MAY_FAIL("DeviceGetCount")
    *found = fake.devices;
    return CUDA_SUCCESS;
}

static CUresult primary_context(CUcontext *context, CUdevice device)
{
    MAY_FAIL("DevicePrimaryCtxRetain")
    *context = (CUcontext)(void *)&primary;
    return device < fake.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult set_context(CUcontext context)
{
    MAY_FAIL("CtxSetCurrent")
    contexts[pushed] = context;
    return CUDA_SUCCESS;
}

static CUresult get_context(CUcontext *context)
{
    *context = contexts[pushed];
    return CUDA_SUCCESS;
}

static CUresult device_name(char *name, int bytes, CUdevice device)
{
    MAY_FAIL("DeviceGetName")
    snprintf(name, (size_t)bytes, "Fake %d", device);
    return CUDA_SUCCESS;
}

static CUresult bus(char *text, int bytes, CUdevice device)
{
    snprintf(text, (size_t)bytes, "0000:%02X:00.0", (unsigned)device);
    return CUDA_SUCCESS;
}

static CUresult all_memory(size_t *bytes, CUdevice device)
{
    *bytes = (size_t)1 << 37;
    return CUDA_SUCCESS;
}

static CUresult attribute(int *value, CUdevice_attribute which, CUdevice device)
{
    MAY_FAIL("DeviceGetAttribute")
    switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = 9;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = 0;
        break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = (int)fake.sms;
        break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *value = 60 << 20;
        break;
    default: // clocks
        *value = 1980000;
    }
    return CUDA_SUCCESS;
}

// Codes that tests do not look for by name have none.
static CUresult error_name(CUresult code, const char **name)
{
    *name = code == CUDA_ERROR_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
                                               : NULL;
    return *name != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult error_text(CUresult code, const char **text)
{
    *text = code == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "something else";
    return CUDA_SUCCESS;
}

static CUresult memory(size_t *free_bytes, size_t *total_bytes)
{
    NEEDS_CONTEXT("MemGetInfo")
    const size_t taken = fake.taken_bytes + (size_t)fake.live_contexts * fake.context_bytes;
    *free_bytes = !fake.counts_memory       ? fake.free_bytes
                  : fake.free_bytes > taken ? fake.free_bytes - taken
                                            : 0;
    *total_bytes = fake.total_bytes;
    return CUDA_SUCCESS;
}

// Memory of the device says in front of it how much it is.
enum { FRONT = 256 };

static CUresult take(CUdeviceptr *data, size_t bytes)
{
    NEEDS_CONTEXT("MemAlloc")
    char *made = aligned_alloc(FRONT, (bytes + 2 * FRONT - 1) / FRONT * FRONT);
    if (made == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(made, &bytes, sizeof bytes);
    *data = sp_i_cuda_at(made + FRONT);
    followed_lock(&lock);
    fake.live_blocks++;
    fake.taken_bytes += bytes;
    followed_unlock(&lock);
    return CUDA_SUCCESS;
}

static void *memory_at(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

static CUresult give(CUdeviceptr data)
{
    size_t bytes;
    char *made = (char *)memory_at(data) - FRONT;
    NEEDS_CONTEXT("MemFree")
    stream_queue_finish_all(); // as giving memory back waits for the device
    memcpy(&bytes, made, sizeof bytes);
    followed_lock(&lock);
    fake.live_blocks--;
    fake.taken_bytes -= bytes;
    followed_unlock(&lock);
    free(made);
    return CUDA_SUCCESS;
}

// Fails with the calls of MemAlloc.
static CUresult host_take(void **data, size_t bytes, unsigned flags)
{
    NEEDS_CONTEXT("MemAlloc")
    *data = aligned_alloc(FRONT, (bytes + FRONT - 1) / FRONT * FRONT);
    count(&fake.live_blocks, *data != NULL);
    note_pinned(*data, bytes);
    return *data != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult host_give(void *data)
{
    stream_queue_finish_all();
    forget_pinned(data);
    count(&fake.live_blocks, data != NULL ? -1 : 0);
    free(data);
    return CUDA_SUCCESS;
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
static void put_move(moved what, bool now, CUstream stream)
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

// Copies of all directions fail with the calls of MemcpyAsync. Between addresses the driver finds
// the direction, which for memory of the host must be pinned.
static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    NEEDS_CONTEXT("MemcpyAsync")
    put_move((moved){.to = memory_at(to), .from = memory_at(from), .bytes = bytes}, false, stream);
    return CUDA_SUCCESS;
}

static CUresult copy_to_device(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    NEEDS_CONTEXT("MemcpyAsync")
    const bool plain = !look_at_copy(from, stream);
    put_move((moved){.to = memory_at(to), .from = from, .bytes = bytes}, plain, stream);
    return CUDA_SUCCESS;
}

static CUresult copy_to_host(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    NEEDS_CONTEXT("MemcpyAsync")
    const bool plain = !look_at_copy(to, stream);
    put_move((moved){.to = to, .from = memory_at(from), .bytes = bytes}, false, stream);
    if (plain) {
        stream_queue_finish(stream);
    }
    return CUDA_SUCCESS;
}

static CUresult set(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
    NEEDS_CONTEXT("MemsetD8Async")
    put_move((moved){.to = memory_at(to), .value = value, .bytes = bytes}, false, stream);
    return CUDA_SUCCESS;
}

static CUstream new_stream(CUcontext context)
{
    stream_of_context *made = calloc(1, sizeof *made);
    made->context = context;
    count(&fake.live_streams, 1);
    return (CUstream)(void *)made;
}

static CUresult stream_new(CUstream *stream, unsigned flags, int priority)
{
    NEEDS_CONTEXT("StreamCreateWithPriority")
    *stream = new_stream(fake_current_context());
    return CUDA_SUCCESS;
}

static CUresult stream_free(CUstream stream)
{
    stream_queue_forget(stream);
    free(stream);
    count(&fake.live_streams, -1);
    return CUDA_SUCCESS;
}

static CUresult stream_end(CUstream stream)
{
    MAY_FAIL("StreamSynchronize")
    stream_queue_finish(stream);
    fake_stream_is_over(stream);
    return CUDA_SUCCESS;
}

static CUresult stream_wait(CUstream stream, CUevent event, unsigned flags)
{
    MAY_FAIL("StreamWaitEvent")
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
    return CUDA_SUCCESS;
}

static CUresult event_new(CUevent *event, unsigned flags)
{
    NEEDS_CONTEXT("EventCreate")
    *event = calloc(1, sizeof(recorded));
    count(&fake.live_events, 1);
    return CUDA_SUCCESS;
}

static CUresult event_free(CUevent event)
{
    stream_queue_forget(event);
    free(event);
    count(&fake.live_events, -1);
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    MAY_FAIL("EventRecord")
    stream_queue_record(event, stream);
    followed_lock(&lock);
    fake.clock_ns += fake.tick_ns;
    const recorded now = {.clock_ns = fake.clock_ns, .stream = stream, .record = ++fake.records};
    memcpy(event, &now, sizeof now);
    followed_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult event_end(CUevent event)
{
    MAY_FAIL("EventSynchronize")
    stream_queue_finish_event(event);
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
    stream_queue_finish_event(event);
    return CUDA_SUCCESS;
}

static CUresult event_between(float *ms, CUevent start, CUevent end)
{
    MAY_FAIL("EventElapsedTime")
    recorded from, to;
    memcpy(&from, start, sizeof from);
    memcpy(&to, end, sizeof to);
    *ms = (float)((double)(to.clock_ns - from.clock_ns) / 1e6);
    return CUDA_SUCCESS;
}

// ---- partitions ----

static CUresult resource(CUdevice device, CUdevResource *made, CUdevResourceType type)
{
    MAY_FAIL("DeviceGetDevResource")
    made->sm.smCount = fake.sms;
    made->sm.minSmPartitionSize = fake.smallest;
    made->sm.smCoscheduledAlignment = fake.alignment;
    return CUDA_SUCCESS;
}

static CUresult split(CUdevResource *made, unsigned *groups, const CUdevResource *input,
                      CUdevResource *rest, unsigned flags, unsigned least)
{
    MAY_FAIL("DevSmResourceSplitByCount")
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
    MAY_FAIL("DevResourceGenerateDesc")
    *made = NULL;
    return CUDA_SUCCESS;
}

static CUresult context_new(CUgreenCtx *made, CUdevResourceDesc description, CUdevice device,
                            unsigned flags)
{
    MAY_FAIL("GreenCtxCreate")
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

static CUresult context_stream(CUstream *stream, CUgreenCtx context, unsigned flags, int priority)
{
    MAY_FAIL("GreenCtxStreamCreate")
    *stream = new_stream((CUcontext)(void *)context);
    return CUDA_SUCCESS;
}

static CUresult context_of(CUcontext *found, CUgreenCtx context)
{
    MAY_FAIL("CtxFromGreenCtx")
    *found = (CUcontext)(void *)context;
    return CUDA_SUCCESS;
}

static CUresult context_push(CUcontext context)
{
    MAY_FAIL("CtxPushCurrent")
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

void fake_cuda_reset(sp_cuda_api *api)
{
    memset(&noted, 0, sizeof noted);
    stream_queue_reset();
    pushed = 0;
    contexts[0] = (CUcontext)(void *)&primary; // the calling thread's alone
    fake = (fake_cuda){.devices = 1,
                       .free_bytes = 100,
                       .total_bytes = 200,
                       .fail_code = CUDA_ERROR_UNKNOWN,
                       .sms = 132,
                       .smallest = 8,
                       .alignment = 8};
    *api = (sp_cuda_api){
        .DriverGetVersion = version,
        .GetErrorName = error_name,
        .GetErrorString = error_text,
        .DeviceGetCount = device_count,
        .DeviceGetName = device_name,
        .DeviceGetPCIBusId = bus,
        .DeviceTotalMem = all_memory,
        .DeviceGetAttribute = attribute,
        .DevicePrimaryCtxRetain = primary_context,
        .CtxSetCurrent = set_context,
        .CtxGetCurrent = get_context,
        .CtxPushCurrent = context_push,
        .CtxPopCurrent = context_pop,
        .MemGetInfo = memory,
        .MemAlloc = take,
        .MemFree = give,
        .MemHostAlloc = host_take,
        .MemFreeHost = host_give,
        .MemcpyAsync = copy,
        .MemcpyHtoDAsync = copy_to_device,
        .MemcpyDtoHAsync = copy_to_host,
        .MemsetD8Async = set,
        .StreamCreateWithPriority = stream_new,
        .StreamDestroy = stream_free,
        .StreamSynchronize = stream_end,
        .StreamWaitEvent = stream_wait,
        .EventCreate = event_new,
        .EventDestroy = event_free,
        .EventRecord = event_record,
        .EventQuery = event_query,
        .EventSynchronize = event_end,
        .EventElapsedTime = event_between,
        .DeviceGetDevResource = resource,
        .DevSmResourceSplitByCount = split,
        .DevResourceGenerateDesc = describe,
        .GreenCtxCreate = context_new,
        .GreenCtxDestroy = context_free,
        .CtxFromGreenCtx = context_of,
        .GreenCtxStreamCreate = context_stream,
    };
}
