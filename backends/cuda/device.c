// One GPU: its entry points, its failures as errors, its events, clocks, power and partitions.
#include <dlfcn.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/cuda/device.h"
#include "kernels/cuda_kernels.h"
#include "sim/base/alloc.h"
#include "sim/base/units.h"

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
    {"cuCtxFromGreenCtx", 12040, offsetof(sp_i_cuda_api, CtxFromGreenCtx)},
    {"cuCtxPushCurrent", 4000, offsetof(sp_i_cuda_api, CtxPushCurrent)},
    {"cuCtxPopCurrent", 4000, offsetof(sp_i_cuda_api, CtxPopCurrent)},
};

static void find_driver_entries(sp_i_cuda_api *api);

void sp_i_cuda_api_init(sp_i_cuda_api *api)
{
    // With fewer queues than streams work of one stream may wait for that of another. CUDA reads it
    // when it starts.
    if (setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) != 0) {
        sp_out_of_memory(sizeof "CUDA_DEVICE_MAX_CONNECTIONS=32");
    }
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

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

sp_status sp_i_cuda_check(const sp_i_cuda_device *device, cudaError_t code, const char *call,
                          const char *file, int line, sp_error *err)
{
    if (code == cudaSuccess) {
        return SP_OK;
    }
    const sp_i_cuda_api *api = device->api;
    (void)api->GetLastError();
    return sp_error_set(err, code == cudaErrorMemoryAllocation ? SP_ERR_NO_MEMORY : SP_ERR_INTERNAL,
                        "GPU %d: %s failed with %s: %s (%s:%d)", device->index, call,
                        api->GetErrorName(code), api->GetErrorString(code), file_name(file), line);
}

sp_status sp_i_cu_check(const sp_i_cuda_device *device, CUresult code, const char *call,
                        const char *file, int line, sp_error *err)
{
    if (code == CUDA_SUCCESS) {
        return SP_OK;
    }
    const char *name = NULL;
    if (device->api->DrvGetErrorName == NULL ||
        device->api->DrvGetErrorName(code, &name) != CUDA_SUCCESS || name == NULL) {
        name = "an unknown code";
    }
    return sp_error_set(err, code == CUDA_ERROR_OUT_OF_MEMORY ? SP_ERR_NO_MEMORY : SP_ERR_INTERNAL,
                        "GPU %d: %s failed with %s, %d (%s:%d)", device->index, call, name,
                        (int)code, file_name(file), line);
}

sp_status sp_i_cuda_device_count(const sp_i_cuda_api *api, int *count, char reason[SP_I_CUDA_TEXT],
                                 sp_error *err)
{
    const sp_i_cuda_device none = {api, 0};
    reason[0] = '\0';
    *count = 0;
    cudaError_t code = api->GetDeviceCount(count);
    if (code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver ||
        code == cudaErrorStubLibrary || code == cudaErrorSystemDriverMismatch ||
        code == cudaErrorCompatNotSupportedOnDevice) {
        (void)api->GetLastError();
        *count = 0;
        // Where there is no driver at all the runtime calls it too old.
        int driver = 1;
        bool none_there = api->DriverGetVersion(&driver) == cudaSuccess && driver == 0;
        snprintf(reason, SP_I_CUDA_TEXT, "%s",
                 none_there ? "no driver is installed" : api->GetErrorString(code));
        return SP_OK;
    }
    if (code == cudaSuccess && *count == 0) {
        snprintf(reason, SP_I_CUDA_TEXT, "the driver shows no device");
    }
    return sp_i_cuda_check(&none, code, "cudaGetDeviceCount", __FILE__, __LINE__, err);
}

sp_status sp_i_cuda_device_info(const sp_i_cuda_device *device, sp_i_cuda_info *info, sp_error *err)
{
    struct cudaDeviceProp p;
    *info = (sp_i_cuda_info){0};
    sp_status status = SP_I_CUDA(device, err, GetDeviceProperties, &p, device->index);
    if (status != SP_OK) {
        return status;
    }
    snprintf(info->name, sizeof info->name, "%.63s", p.name);
    snprintf(info->pci, sizeof info->pci, "%08x:%02x:%02x.0", (unsigned)p.pciDomainID & 0xffffffffu,
             (unsigned)p.pciBusID & 0xffu, (unsigned)p.pciDeviceID & 0xffu);
    info->major = p.major;
    info->minor = p.minor;
    info->sm_count = p.multiProcessorCount;
    info->memory_bytes = (int64_t)p.totalGlobalMem;
    info->l2_bytes = p.l2CacheSize;
    status = SP_I_CUDA(device, err, DeviceGetAttribute, &info->clock_khz, cudaDevAttrClockRate,
                       device->index);
    if (status == SP_OK) {
        status = SP_I_CUDA(device, err, DeviceGetAttribute, &info->memory_clock_khz,
                           cudaDevAttrMemoryClockRate, device->index);
    }
    if (status == SP_OK) {
        status = SP_I_CUDA(device, err, DriverGetVersion, &info->driver);
    }
    if (status == SP_OK) {
        status = SP_I_CUDA(device, err, RuntimeGetVersion, &info->runtime);
    }
    return status;
}

sp_status sp_i_cuda_use(const sp_i_cuda_device *device, sp_error *err)
{
    return SP_I_CUDA(device, err, SetDevice, device->index);
}

sp_status sp_i_cuda_memory(const sp_i_cuda_device *device, int64_t *free_bytes,
                           int64_t *total_bytes, sp_error *err)
{
    size_t free_now = 0;
    size_t total = 0;
    sp_status status = SP_I_CUDA(device, err, MemGetInfo, &free_now, &total);
    *free_bytes = (int64_t)free_now;
    *total_bytes = (int64_t)total;
    return status;
}

sp_status sp_i_cuda_upload(const sp_i_cuda_device *device, void *to, const void *from,
                           int64_t bytes, cudaStream_t stream, sp_error *err)
{
    sp_status status = SP_I_CUDA(device, err, MemcpyAsync, to, from, (size_t)bytes,
                                 cudaMemcpyHostToDevice, stream);
    return status == SP_OK ? SP_I_CUDA(device, err, StreamSynchronize, stream) : status;
}

int64_t sp_i_cuda_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Most work is over in microseconds.
sp_status sp_i_cuda_wait_within(const sp_i_cuda_device *device, cudaStream_t stream,
                                cudaEvent_t event, int limit_ms, sp_error *err)
{
    enum { YIELDS = 64, PAUSE_NS = 50000 };
    const sp_i_cuda_api *api = device->api;
    const int64_t until_ms = sp_i_cuda_now_ms() + limit_ms;
    cudaError_t code = event != NULL ? api->EventQuery(event) : api->StreamQuery(stream);
    for (int polls = 0; code == cudaErrorNotReady; polls++) {
        // It would stay behind as the thread's last error.
        (void)api->GetLastError();
        if (polls < YIELDS) {
            (void)sched_yield();
        } else if (sp_i_cuda_now_ms() >= until_ms) {
            return sp_error_set(err, SP_ERR_LIMIT,
                                "GPU %d: the work of a stream was not over in %d ms", device->index,
                                limit_ms);
        } else {
            (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        }
        code = event != NULL ? api->EventQuery(event) : api->StreamQuery(stream);
    }
    return sp_i_cuda_check(device, code, event != NULL ? "cudaEventQuery" : "cudaStreamQuery",
                           __FILE__, __LINE__, err);
}

// ---- Events ----

sp_status sp_i_cuda_events_init(const sp_i_cuda_device *device, int count, bool timed,
                                sp_i_cuda_events *events, sp_error *err)
{
    *events = (sp_i_cuda_events){.device = *device};
    events->event = sp_calloc((size_t)count, sizeof *events->event);
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < count; i++) {
        status = SP_I_CUDA(device, err, EventCreateWithFlags, &events->event[i],
                           timed ? cudaEventDefault : cudaEventDisableTiming);
        events->count += status == SP_OK;
    }
    if (status != SP_OK) {
        sp_i_cuda_events_fini(events);
    }
    return status;
}

void sp_i_cuda_events_fini(sp_i_cuda_events *events)
{
    for (int i = 0; i < events->count; i++) {
        (void)events->device.api->EventDestroy(events->event[i]);
    }
    sp_free(events->event);
    *events = (sp_i_cuda_events){0};
}

sp_status sp_i_cuda_record(const sp_i_cuda_events *events, int event, cudaStream_t stream,
                           sp_error *err)
{
    return SP_I_CUDA(&events->device, err, EventRecord, events->event[event], stream);
}

sp_status sp_i_cuda_wait(const sp_i_cuda_events *events, int event, cudaStream_t stream,
                         sp_error *err)
{
    return SP_I_CUDA(&events->device, err, StreamWaitEvent, stream, events->event[event], 0);
}

sp_status sp_i_cuda_between(const sp_i_cuda_events *events, int from, int to, int64_t *ns,
                            sp_error *err)
{
    float ms = 0.0f;
    *ns = 0;
    sp_status status = SP_I_CUDA(&events->device, err, EventSynchronize, events->event[to]);
    if (status == SP_OK) {
        status = SP_I_CUDA(&events->device, err, EventElapsedTime, &ms, events->event[from],
                           events->event[to]);
    }
    if (status == SP_OK) {
        *ns = sp_ns_from_ms((double)ms);
    }
    return status;
}

cudaError_t sp_i_cuda_put_delay(int64_t ns, cudaStream_t stream)
{
    return (cudaError_t)sp_cuda_delay(ns, stream);
}

// ---- Clocks and power ----

// The toolkit does not always bring nvml.h. These are the calls and numbers that it documents; the
// library keeps them for good.
typedef struct nvml_device *nvml_device;

enum { NVML_OK = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2, NVML_TEMPERATURE_GPU = 0 };

struct sp_i_nvml {
    int (*Init)(void);
    int (*Shutdown)(void);
    const char *(*ErrorString)(int code);
    int (*HandleByPci)(const char *bus, nvml_device *device);
    int (*ClockInfo)(nvml_device device, int which, unsigned *mhz);
    int (*PowerUsage)(nvml_device device, unsigned *mw);
    int (*PowerLimit)(nvml_device device, unsigned *mw);
    int (*Temperature)(nvml_device device, int sensor, unsigned *celsius);
    int (*Throttle)(nvml_device device, unsigned long long *reasons);
    int (*DriverVersion)(char *text, unsigned bytes);
    nvml_device device;
};

sp_i_nvml *sp_i_nvml_open(const char *pci_bus, char *reason, size_t reason_bytes)
{
    static const char *const names[] = {"libnvidia-ml.so.1", NULL};
    static const sp_i_library_symbol symbols[] = {
        {"nvmlInit_v2", offsetof(sp_i_nvml, Init)},
        {"nvmlShutdown", offsetof(sp_i_nvml, Shutdown)},
        {"nvmlErrorString", offsetof(sp_i_nvml, ErrorString)},
        {"nvmlDeviceGetHandleByPciBusId_v2", offsetof(sp_i_nvml, HandleByPci)},
        {"nvmlDeviceGetClockInfo", offsetof(sp_i_nvml, ClockInfo)},
        {"nvmlDeviceGetPowerUsage", offsetof(sp_i_nvml, PowerUsage)},
        {"nvmlDeviceGetEnforcedPowerLimit", offsetof(sp_i_nvml, PowerLimit)},
        {"nvmlDeviceGetTemperature", offsetof(sp_i_nvml, Temperature)},
        {"nvmlDeviceGetCurrentClocksThrottleReasons", offsetof(sp_i_nvml, Throttle)},
        {"nvmlSystemGetDriverVersion", offsetof(sp_i_nvml, DriverVersion)},
    };
    sp_i_nvml *nvml = sp_calloc(1, sizeof *nvml);
    if (!sp_i_library_open(names, symbols, sizeof symbols / sizeof *symbols, nvml, reason,
                           reason_bytes)) {
        sp_free(nvml);
        return NULL;
    }
    int code = nvml->Init();
    if (code == NVML_OK) {
        code = nvml->HandleByPci(pci_bus, &nvml->device);
        if (code != NVML_OK) {
            (void)nvml->Shutdown();
        }
    }
    if (code != NVML_OK) {
        snprintf(reason, reason_bytes, "NVML: %s", nvml->ErrorString(code));
        sp_free(nvml);
        return NULL;
    }
    return nvml;
}

void sp_i_nvml_close(sp_i_nvml *nvml)
{
    if (nvml != NULL) {
        (void)nvml->Shutdown();
        sp_free(nvml);
    }
}

sp_i_nvml_state sp_i_nvml_read(const sp_i_nvml *nvml)
{
    unsigned value;
    unsigned long long reasons;
    nvml_device device = nvml->device;
    sp_i_nvml_state s = {-1, -1, -1.0, -1.0, -1, -1};
    if (nvml->ClockInfo(device, NVML_CLOCK_SM, &value) == NVML_OK) {
        s.sm_mhz = (int)value;
    }
    if (nvml->ClockInfo(device, NVML_CLOCK_MEMORY, &value) == NVML_OK) {
        s.memory_mhz = (int)value;
    }
    if (nvml->PowerUsage(device, &value) == NVML_OK) {
        s.power_w = 1e-3 * value;
    }
    if (nvml->PowerLimit(device, &value) == NVML_OK) {
        s.power_limit_w = 1e-3 * value;
    }
    if (nvml->Temperature(device, NVML_TEMPERATURE_GPU, &value) == NVML_OK) {
        s.temperature_c = (int)value;
    }
    if (nvml->Throttle(device, &reasons) == NVML_OK) {
        s.throttle = (long long)reasons;
    }
    return s;
}

void sp_i_nvml_driver(const sp_i_nvml *nvml, char *text, size_t text_bytes)
{
    if (nvml->DriverVersion(text, (unsigned)text_bytes) != NVML_OK) {
        text[0] = '\0';
    }
}

// ---- Partitions of SMs ----

// Green contexts are made from one split into equal groups: split calls made one after another
// overlap, so that partitions of different sizes would have to be put together from groups of one
// split.
typedef struct partition_plan {
    int partitions;
    int sms;  // of each
    int rest; // in none
} partition_plan;

// The largest equal groups of `total` SMs, each a multiple of `alignment` and at least `smallest`
// (compute capability 9.0: 8 and 8). False, with the reason in `text`, where they do not fit.
static bool plan_partitions(int total, int smallest, int alignment, int partitions,
                            partition_plan *plan, char *text, size_t text_bytes)
{
    int step = alignment > 0 ? alignment : 1;
    *plan = (partition_plan){0};
    if (partitions < 1) {
        snprintf(text, text_bytes, "%d partitions", partitions);
        return false;
    }
    int sms = total / partitions / step * step;
    if (sms == 0 || sms < smallest) {
        int least = (smallest + step - 1) / step * step;
        snprintf(text, text_bytes,
                 "%d SMs do not make %d partitions of at least %d SMs in steps of %d", total,
                 partitions, least > 0 ? least : step, step);
        return false;
    }
    *plan =
        (partition_plan){.partitions = partitions, .sms = sms, .rest = total - partitions * sms};
    return true;
}

typedef struct place {
    CUgreenCtx context; // NULL: the whole device
    CUcontext current;  // the same as a context that can be current
    int sms;
    cudaStream_t *streams;
} place;

struct sp_i_cuda_partitions {
    sp_i_cuda_device device;
    int count, streams;
    bool disjoint;
    char reason[SP_I_CUDA_TEXT];
    place *places;
};

static void split_device(sp_i_cuda_partitions *p);
static sp_status make_streams(sp_i_cuda_partitions *p, sp_error *err);
static sp_status whole_device(sp_i_cuda_partitions *p, sp_error *err);

sp_status sp_i_cuda_partitions_new(const sp_i_cuda_device *device, int partitions, int streams,
                                   sp_i_cuda_partitions **made, sp_error *err)
{
    *made = NULL;
    SP_ASSERT(partitions > 0 && streams > 0);
    sp_i_cuda_partitions *p = sp_calloc(1, sizeof *p);
    place *places = sp_calloc((size_t)partitions, sizeof *places);
    *p = (sp_i_cuda_partitions){
        .device = *device, .count = partitions, .streams = streams, .places = places};
    for (int i = 0; i < partitions; i++) {
        places[i].streams = sp_calloc((size_t)streams, sizeof(cudaStream_t));
    }
    // One partition is the whole device: a split would leave SMs out, and a green context may
    // launch more slowly than a plain stream.
    p->disjoint = partitions == 1;
    if (partitions > 1) {
        split_device(p);
    }
    sp_status status = p->disjoint && partitions > 1 ? SP_OK : whole_device(p, err);
    if (status == SP_OK) {
        status = make_streams(p, err);
    }
    if (status != SP_OK) {
        sp_i_cuda_partitions_free(p);
        return status;
    }
    *made = p;
    return SP_OK;
}

static void destroy_contexts(sp_i_cuda_partitions *p)
{
    for (int i = 0; i < p->count; i++) {
        if (p->places[i].context != NULL) {
            (void)p->device.api->GreenCtxDestroy(p->places[i].context);
            p->places[i].context = NULL;
            p->places[i].current = NULL;
        }
    }
}

void sp_i_cuda_partitions_free(sp_i_cuda_partitions *p)
{
    if (p == NULL) {
        return;
    }
    for (int i = 0; i < p->count; i++) {
        for (int s = 0; s < p->streams; s++) {
            if (p->places[i].streams[s] != NULL) {
                (void)p->device.api->StreamDestroy(p->places[i].streams[s]);
            }
        }
        sp_free(p->places[i].streams);
    }
    destroy_contexts(p);
    sp_free(p->places);
    sp_free(p);
}

sp_status sp_i_cuda_sms(const sp_i_cuda_device *device, sp_i_cuda_sm_resource *resource,
                        sp_error *err)
{
    CUdevResource all;
    memset(&all, 0, sizeof all);
    if (!device->api->partitions) {
        return sp_error_set(err, SP_ERR_USAGE, "GPU %d: %s", device->index,
                            device->api->no_partitions);
    }
    // The driver's ordinals are the runtime's.
    sp_status status =
        SP_I_CU(device, err, DeviceGetDevResource, device->index, &all, CU_DEV_RESOURCE_TYPE_SM);
    *resource = (sp_i_cuda_sm_resource){.count = (int)all.sm.smCount,
                                        .smallest = (int)all.sm.minSmPartitionSize,
                                        .alignment = (int)all.sm.smCoscheduledAlignment};
    return status;
}

static sp_status make_context(const sp_i_cuda_partitions *p, CUdevResource *group, place *made,
                              sp_error *err)
{
    CUdevResourceDesc description = NULL;
    sp_status status = SP_I_CU(&p->device, err, DevResourceGenerateDesc, &description, group, 1);
    if (status == SP_OK) {
        status = SP_I_CU(&p->device, err, GreenCtxCreate, &made->context, description,
                         p->device.index, CU_GREEN_CTX_DEFAULT_STREAM);
    }
    return status == SP_OK
               ? SP_I_CU(&p->device, err, CtxFromGreenCtx, &made->current, made->context)
               : status;
}

// The groups of one split.
static sp_status split_sms(const sp_i_cuda_partitions *p, const partition_plan *plan,
                           CUdevResource *groups, sp_error *err)
{
    const sp_i_cuda_device *device = &p->device;
    CUdevResource all;
    CUdevResource rest;
    unsigned count = (unsigned)plan->partitions;
    memset(&all, 0, sizeof all);
    sp_status status =
        SP_I_CU(device, err, DeviceGetDevResource, device->index, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (status == SP_OK) {
        status = SP_I_CU(device, err, DevSmResourceSplitByCount, groups, &count, &all, &rest, 0,
                         (unsigned)plan->sms);
    }
    if (status == SP_OK && count < (unsigned)plan->partitions) {
        status =
            sp_error_set(err, SP_ERR_INFEASIBLE, "GPU %d: a split into %d groups of %d SMs gave %u",
                         device->index, plan->partitions, plan->sms, count);
    }
    return status;
}

static sp_status try_split(sp_i_cuda_partitions *p, CUdevResource *groups, sp_error *err)
{
    sp_i_cuda_sm_resource all;
    partition_plan plan;
    char text[SP_I_CUDA_TEXT];
    sp_status status = sp_i_cuda_sms(&p->device, &all, err);
    if (status != SP_OK) {
        return status;
    }
    if (!plan_partitions(all.count, all.smallest, all.alignment, p->count, &plan, text,
                         sizeof text)) {
        return sp_error_set(err, SP_ERR_INFEASIBLE, "GPU %d: %s", p->device.index, text);
    }
    status = split_sms(p, &plan, groups, err);
    for (int i = 0; status == SP_OK && i < p->count; i++) {
        p->places[i].sms = (int)groups[i].sm.smCount;
        status = make_context(p, &groups[i], &p->places[i], err);
    }
    return status;
}

// A device that cannot be split is no failure of the run: the reason is kept.
static void split_device(sp_i_cuda_partitions *p)
{
    sp_error why;
    sp_error_clear(&why);
    CUdevResource *groups = sp_calloc((size_t)p->count, sizeof *groups);
    sp_status status = try_split(p, groups, &why);
    sp_free(groups);
    p->disjoint = status == SP_OK;
    if (!p->disjoint) {
        snprintf(p->reason, sizeof p->reason, "%.*s", SP_I_CUDA_TEXT - 1, why.message[0]);
        destroy_contexts(p);
    }
}

static sp_status whole_device(sp_i_cuda_partitions *p, sp_error *err)
{
    int sms = 0;
    sp_status status = SP_I_CUDA(&p->device, err, DeviceGetAttribute, &sms,
                                 cudaDevAttrMultiProcessorCount, p->device.index);
    for (int i = 0; i < p->count; i++) {
        p->places[i].sms = sms;
    }
    return status;
}

static sp_status make_stream(const sp_i_cuda_partitions *p, int partition, cudaStream_t *stream,
                             sp_error *err)
{
    const sp_i_cuda_device *device = &p->device;
    return p->places[partition].context != NULL
               ? SP_I_CU(device, err, GreenCtxStreamCreate, stream, p->places[partition].context,
                         CU_STREAM_NON_BLOCKING, 0)
               : SP_I_CUDA(device, err, StreamCreateWithPriority, stream, cudaStreamNonBlocking, 0);
}

static sp_status make_streams(sp_i_cuda_partitions *p, sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; i < p->count; i++) {
        for (int s = 0; status == SP_OK && s < p->streams; s++) {
            status = make_stream(p, i, &p->places[i].streams[s], err);
        }
    }
    return status;
}

bool sp_i_cuda_are_partitioned(const sp_i_cuda_partitions *p, const char **reason)
{
    if (reason != NULL) {
        *reason = p->reason;
    }
    return p->disjoint;
}

int sp_i_cuda_partition_sms(const sp_i_cuda_partitions *p, int partition)
{
    SP_ASSERT(partition >= 0 && partition < p->count);
    return p->places[partition].sms;
}

cudaStream_t sp_i_cuda_partition_stream(const sp_i_cuda_partitions *p, int partition, int stream)
{
    SP_ASSERT(partition >= 0 && partition < p->count && stream >= 0 && stream < p->streams);
    return p->places[partition].streams[stream];
}

CUcontext sp_i_cuda_partition_context(const sp_i_cuda_partitions *p, int partition)
{
    SP_ASSERT(partition >= 0 && partition < p->count);
    return p->places[partition].current;
}

sp_status sp_i_cuda_push_context(const sp_i_cuda_device *device, CUcontext context, sp_error *err)
{
    return context != NULL ? SP_I_CU(device, err, CtxPushCurrent, context) : SP_OK;
}

void sp_i_cuda_pop_context(const sp_i_cuda_device *device, CUcontext context)
{
    CUcontext popped = NULL;
    if (context != NULL) {
        (void)device->api->CtxPopCurrent(&popped);
    }
}
