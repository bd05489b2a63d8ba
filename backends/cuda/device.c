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

typedef struct driver_function {
    const char *symbol;
    int version;
    size_t offset;
} driver_function;

static const driver_function functions[] = {
#define ROW(name, version) {"cu" #name, version, offsetof(sp_cuda_api, name)},
    SP_I_CUDA_FUNCTIONS(ROW)
#undef ROW
};

// The driver's text for a code, and its name.
static const char *error_text(const sp_cuda_api *api, CUresult code, const char **name)
{
    const char *text = NULL;
    if (api->GetErrorName(code, name) != CUDA_SUCCESS || *name == NULL) {
        *name = "an unknown code";
    }
    return api->GetErrorString(code, &text) == CUDA_SUCCESS && text != NULL ? text : "no text";
}

void sp_i_cuda_api_init(sp_cuda_api *api)
{
    static const char *const names[] = {"libcuda.so.1", NULL};
    static const sp_i_library_symbol symbol = {"cuGetProcAddress_v2", 0};
    PFN_cuGetProcAddress_v12000 find = NULL;
    const char *name;
    char reason[SP_I_CUDA_TEXT];
    *api = (sp_cuda_api){.missing = ""};
    // With fewer queues than streams work of one stream may wait for that of another. CUDA reads it
    // when it starts.
    if (setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) != 0) {
        sp_out_of_memory(sizeof "CUDA_DEVICE_MAX_CONNECTIONS=32");
    }
    if (!sp_i_library_open(names, &symbol, 1, &find, reason, sizeof reason)) {
        snprintf(api->missing, sizeof api->missing, "no driver of CUDA 12 or later: %.*s",
                 SP_I_CUDA_TEXT - 1, reason);
        return;
    }
    sp_i_cuda_api_find(api, find);
    const CUresult code = api->missing[0] == '\0' ? api->Init(0) : CUDA_SUCCESS;
    if (code != CUDA_SUCCESS) {
        const char *text = error_text(api, code, &name);
        snprintf(api->missing, sizeof api->missing, "cuInit failed with %s, %d: %s", name,
                 (int)code, text);
    }
}

void sp_i_cuda_api_find(sp_cuda_api *api, PFN_cuGetProcAddress_v12000 find)
{
    int latest = 0;
    int has = 0;
    const char *lacks = NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        const driver_function *f = &functions[i];
        CUdriverProcAddressQueryResult result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        void *found = NULL;
        const CUresult code =
            find(f->symbol, &found, f->version, CU_GET_PROC_ADDRESS_DEFAULT, &result);
        latest = f->version > latest ? f->version : latest;
        if (code == CUDA_SUCCESS && result == CU_GET_PROC_ADDRESS_SUCCESS && found != NULL) {
            memcpy((char *)api + f->offset, &found, sizeof found);
        } else if (lacks == NULL) {
            lacks = f->symbol;
        }
    }
    if (lacks != NULL && api->DriverGetVersion != NULL) {
        (void)api->DriverGetVersion(&has);
    }
    api->missing[0] = '\0';
    if (lacks != NULL) {
        snprintf(api->missing, sizeof api->missing,
                 "the driver is of CUDA %d.%d, and CUDA %d.%d or later is needed (for %s)",
                 has / 1000, has % 1000 / 10, latest / 1000, latest % 1000 / 10, lacks);
    }
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

sp_status sp_i_cuda_check(const sp_i_cuda_device *device, CUresult code, const char *call,
                          const char *file, int line, sp_error *err)
{
    if (code == CUDA_SUCCESS) {
        return SP_OK;
    }
    const sp_cuda_api *api = device->api;
    const char *name = NULL;
    const char *text = error_text(api, code, &name);
    return sp_error_set(err, code == CUDA_ERROR_OUT_OF_MEMORY ? SP_ERR_NO_MEMORY : SP_ERR_INTERNAL,
                        "GPU %d: %s failed with %s, %d: %s (%s:%d)", device->index, call, name,
                        (int)code, text, file_name(file), line);
}

sp_status sp_i_cuda_device_count(const sp_cuda_api *api, int *count, char reason[SP_I_CUDA_TEXT],
                                 sp_error *err)
{
    const sp_i_cuda_device none = {api, 0};
    snprintf(reason, SP_I_CUDA_TEXT, "%.*s", SP_I_CUDA_TEXT - 1, api->missing);
    *count = 0;
    if (api->missing[0] != '\0') {
        return SP_OK;
    }
    SP_TRY(SP_I_CUDA(&none, err, DeviceGetCount, count));
    if (*count == 0) {
        snprintf(reason, SP_I_CUDA_TEXT, "the driver shows no device");
    }
    return SP_OK;
}

sp_status sp_i_cuda_device_info(const sp_i_cuda_device *device, sp_i_cuda_info *info, sp_error *err)
{
    int l2_bytes = 0;
    const struct {
        CUdevice_attribute attribute;
        int *value;
    } numbers[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &info->major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &info->minor},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &info->sm_count},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2_bytes},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &info->clock_khz},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &info->memory_clock_khz},
    };
    size_t bytes = 0;
    *info = (sp_i_cuda_info){0};
    sp_status status =
        SP_I_CUDA(device, err, DeviceGetName, info->name, (int)sizeof info->name, device->index);
    if (status == SP_OK) {
        status = SP_I_CUDA(device, err, DeviceGetPCIBusId, info->pci, (int)sizeof info->pci,
                           device->index);
    }
    if (status == SP_OK) {
        status = SP_I_CUDA(device, err, DeviceTotalMem, &bytes, device->index);
    }
    for (size_t i = 0; status == SP_OK && i < sizeof numbers / sizeof *numbers; i++) {
        status = SP_I_CUDA(device, err, DeviceGetAttribute, numbers[i].value, numbers[i].attribute,
                           device->index);
    }
    info->memory_bytes = (int64_t)bytes;
    info->l2_bytes = l2_bytes;
    return status == SP_OK ? SP_I_CUDA(device, err, DriverGetVersion, &info->driver) : status;
}

sp_status sp_i_cuda_use(const sp_i_cuda_device *device, sp_error *err)
{
    CUcontext primary = NULL;
    if (device->api->missing[0] != '\0') {
        return sp_error_set(err, SP_ERR_USAGE, "GPU %d: %s", device->index, device->api->missing);
    }
    // The driver's ordinals are its devices.
    SP_TRY(SP_I_CUDA(device, err, DevicePrimaryCtxRetain, &primary, device->index));
    SP_TRY(SP_I_CUDA(device, err, CtxSetCurrent, primary));
    return sp_i_cuda_check(device, (CUresult)sp_cuda_kernels_load(device->api),
                           "sp_cuda_kernels_load", __FILE__, __LINE__, err);
}

sp_status sp_i_cuda_take(const sp_i_cuda_device *device, size_t bytes, void **memory, sp_error *err)
{
    CUdeviceptr address = 0;
    sp_status status = SP_I_CUDA(device, err, MemAlloc, &address, bytes);
    *memory = (void *)(uintptr_t)address;
    return status;
}

void sp_i_cuda_give(const sp_i_cuda_device *device, void *memory)
{
    if (memory != NULL) {
        (void)device->api->MemFree(sp_i_cuda_at(memory));
    }
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
                           int64_t bytes, CUstream stream, sp_error *err)
{
    SP_TRY(SP_I_CUDA(device, err, MemcpyHtoDAsync, sp_i_cuda_at(to), from, (size_t)bytes, stream));
    return SP_I_CUDA(device, err, StreamSynchronize, stream);
}

int64_t sp_i_cuda_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Most work is over in microseconds.
sp_status sp_i_cuda_wait_within(const sp_i_cuda_device *device, CUstream stream, CUevent event,
                                int limit_ms, sp_error *err)
{
    enum { YIELDS = 64, PAUSE_NS = 50000 };
    const sp_cuda_api *api = device->api;
    const int64_t until_ms = sp_i_cuda_now_ms() + limit_ms;
    CUresult code = event != NULL ? api->EventQuery(event) : api->StreamQuery(stream);
    for (int polls = 0; code == CUDA_ERROR_NOT_READY; polls++) {
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
    return sp_i_cuda_check(device, code, event != NULL ? "cuEventQuery" : "cuStreamQuery", __FILE__,
                           __LINE__, err);
}

// ---- Events ----

sp_status sp_i_cuda_events_init(const sp_i_cuda_device *device, int count, bool timed,
                                sp_i_cuda_events *events, sp_error *err)
{
    *events = (sp_i_cuda_events){.device = *device};
    events->event = sp_calloc((size_t)count, sizeof *events->event);
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < count; i++) {
        status = SP_I_CUDA(device, err, EventCreate, &events->event[i],
                           timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
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

sp_status sp_i_cuda_record(const sp_i_cuda_events *events, int event, CUstream stream,
                           sp_error *err)
{
    return SP_I_CUDA(&events->device, err, EventRecord, events->event[event], stream);
}

sp_status sp_i_cuda_wait(const sp_i_cuda_events *events, int event, CUstream stream, sp_error *err)
{
    return SP_I_CUDA(&events->device, err, StreamWaitEvent, stream, events->event[event], 0);
}

sp_status sp_i_cuda_between(const sp_i_cuda_events *events, int from, int to, int64_t *ns,
                            sp_error *err)
{
    float ms = 0.0f;
    *ns = 0;
    SP_TRY(SP_I_CUDA(&events->device, err, EventSynchronize, events->event[to]));
    SP_TRY(SP_I_CUDA(&events->device, err, EventElapsedTime, &ms, events->event[from],
                     events->event[to]));
    *ns = sp_ns_from_ms((double)ms);
    return SP_OK;
}

CUresult sp_i_cuda_put_delay(int64_t ns, CUstream stream)
{
    return (CUresult)sp_cuda_delay(ns, stream);
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
    CUstream *streams;
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
        places[i].streams = sp_calloc((size_t)streams, sizeof(CUstream));
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
    sp_status status =
        SP_I_CUDA(device, err, DeviceGetDevResource, device->index, &all, CU_DEV_RESOURCE_TYPE_SM);
    *resource = (sp_i_cuda_sm_resource){.count = (int)all.sm.smCount,
                                        .smallest = (int)all.sm.minSmPartitionSize,
                                        .alignment = (int)all.sm.smCoscheduledAlignment};
    return status;
}

static sp_status make_context(const sp_i_cuda_partitions *p, CUdevResource *group, place *made,
                              sp_error *err)
{
    CUdevResourceDesc description = NULL;
    sp_status status = SP_I_CUDA(&p->device, err, DevResourceGenerateDesc, &description, group, 1);
    if (status == SP_OK) {
        status = SP_I_CUDA(&p->device, err, GreenCtxCreate, &made->context, description,
                           p->device.index, CU_GREEN_CTX_DEFAULT_STREAM);
    }
    return status == SP_OK
               ? SP_I_CUDA(&p->device, err, CtxFromGreenCtx, &made->current, made->context)
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
    SP_TRY(
        SP_I_CUDA(device, err, DeviceGetDevResource, device->index, &all, CU_DEV_RESOURCE_TYPE_SM));
    SP_TRY(SP_I_CUDA(device, err, DevSmResourceSplitByCount, groups, &count, &all, &rest, 0,
                     (unsigned)plan->sms));
    if (count < (unsigned)plan->partitions) {
        return sp_error_set(err, SP_ERR_INFEASIBLE,
                            "GPU %d: a split into %d groups of %d SMs gave %u", device->index,
                            plan->partitions, plan->sms, count);
    }
    return SP_OK;
}

static sp_status try_split(sp_i_cuda_partitions *p, CUdevResource *groups, sp_error *err)
{
    sp_i_cuda_sm_resource all;
    partition_plan plan;
    char text[SP_I_CUDA_TEXT];
    SP_TRY(sp_i_cuda_sms(&p->device, &all, err));
    if (!plan_partitions(all.count, all.smallest, all.alignment, p->count, &plan, text,
                         sizeof text)) {
        return sp_error_set(err, SP_ERR_INFEASIBLE, "GPU %d: %s", p->device.index, text);
    }
    SP_TRY(split_sms(p, &plan, groups, err));
    for (int i = 0; i < p->count; i++) {
        p->places[i].sms = (int)groups[i].sm.smCount;
        SP_TRY(make_context(p, &groups[i], &p->places[i], err));
    }
    return SP_OK;
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
                                 CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, p->device.index);
    for (int i = 0; i < p->count; i++) {
        p->places[i].sms = sms;
    }
    return status;
}

static sp_status make_stream(const sp_i_cuda_partitions *p, int partition, CUstream *stream,
                             sp_error *err)
{
    const sp_i_cuda_device *device = &p->device;
    return p->places[partition].context != NULL
               ? SP_I_CUDA(device, err, GreenCtxStreamCreate, stream, p->places[partition].context,
                           CU_STREAM_NON_BLOCKING, 0)
               : SP_I_CUDA(device, err, StreamCreateWithPriority, stream, CU_STREAM_NON_BLOCKING,
                           0);
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

CUstream sp_i_cuda_partition_stream(const sp_i_cuda_partitions *p, int partition, int stream)
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
    return context != NULL ? SP_I_CUDA(device, err, CtxPushCurrent, context) : SP_OK;
}

void sp_i_cuda_pop_context(const sp_i_cuda_device *device, CUcontext context)
{
    CUcontext popped = NULL;
    if (context != NULL) {
        (void)device->api->CtxPopCurrent(&popped);
    }
}
