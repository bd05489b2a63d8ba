#include "backends/cuda/kernel_record.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/device.h"
#include "sim/base/alloc.h"

#ifdef SP_CUPTI

enum { BUFFER_BYTES = 1 << 20, ALIGNMENT = 8, LONGEST = 10 };

typedef struct kernel {
    uint64_t start_ns, end_ns;
    uint32_t context;
} kernel;

typedef struct context {
    uint32_t id;
    int sms;
    bool green;
} context;

// Kernels of one name.
typedef struct named {
    char *name;
    int64_t count, ns;
} named;

struct sp_i_kernel_records {
    sp_i_cupti_api api;
    pthread_mutex_t lock; // buffers are given back by a thread of CUPTI's
    kernel *kernels;
    size_t kernel_count, kernel_capacity;
    context *contexts;
    size_t context_count, context_capacity;
    named *names;
    size_t name_count, name_capacity;
    size_t dropped;
};

// CUPTI's callbacks carry nothing of ours.
static pthread_mutex_t current_lock = PTHREAD_MUTEX_INITIALIZER;
static sp_i_kernel_records *current;

bool sp_i_cupti_api_init(sp_i_cupti_api *api, char *reason, size_t reason_bytes)
{
    static const char *const names[] = {"libcupti.so.13", "libcupti.so", NULL};
    static const sp_i_library_symbol symbols[] = {
        {"cuptiGetVersion", offsetof(sp_i_cupti_api, GetVersion)},
        {"cuptiGetResultString", offsetof(sp_i_cupti_api, GetResultString)},
        {"cuptiActivityRegisterCallbacks", offsetof(sp_i_cupti_api, ActivityRegisterCallbacks)},
        {"cuptiActivityEnable", offsetof(sp_i_cupti_api, ActivityEnable)},
        {"cuptiActivityDisable", offsetof(sp_i_cupti_api, ActivityDisable)},
        {"cuptiActivityFlushAll", offsetof(sp_i_cupti_api, ActivityFlushAll)},
        {"cuptiActivityGetNextRecord", offsetof(sp_i_cupti_api, ActivityGetNextRecord)},
        {"cuptiActivityGetNumDroppedRecords",
         offsetof(sp_i_cupti_api, ActivityGetNumDroppedRecords)},
    };
    return sp_i_library_open(names, symbols, sizeof symbols / sizeof *symbols, api, reason,
                             reason_bytes);
}

// ---- records ----

static void add_context(sp_i_kernel_records *r, const CUpti_ActivityContext3 *record)
{
    *SP_ADDED(r->contexts, r->context_capacity, r->context_count) =
        (context){record->contextId, record->numMultiprocessors, record->isGreenContext != 0};
}

static named *name_of(sp_i_kernel_records *r, const char *name)
{
    for (size_t i = 0; i < r->name_count; i++) {
        if (strcmp(r->names[i].name, name) == 0) {
            return &r->names[i];
        }
    }
    SP_RESERVE(r->names, r->name_capacity, r->name_count + 1);
    r->names[r->name_count] = (named){.name = sp_malloc(strlen(name) + 1)};
    strcpy(r->names[r->name_count].name, name);
    return &r->names[r->name_count++];
}

static void add_kernel(sp_i_kernel_records *r, const CUpti_ActivityKernel10 *record)
{
    *SP_ADDED(r->kernels, r->kernel_capacity, r->kernel_count) =
        (kernel){record->start, record->end, record->contextId};
    named *n = name_of(r, record->name != NULL ? record->name : "?");
    n->count++;
    n->ns += (int64_t)(record->end - record->start);
}

static void read_buffer(sp_i_kernel_records *r, uint8_t *buffer, size_t bytes)
{
    CUpti_Activity *record = NULL;
    while (r->api.ActivityGetNextRecord(buffer, bytes, &record) == CUPTI_SUCCESS) {
        if (record->kind == CUPTI_ACTIVITY_KIND_CONTEXT) {
            add_context(r, (const CUpti_ActivityContext3 *)(const void *)record);
        } else if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
            add_kernel(r, (const CUpti_ActivityKernel10 *)(const void *)record);
        }
    }
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
    *buffer = aligned_alloc(ALIGNMENT, BUFFER_BYTES);
    *bytes = *buffer != NULL ? BUFFER_BYTES : 0;
    *most_records = 0; // as many as there is room for
}

static void CUPTIAPI take_buffer(CUcontext of, uint32_t stream, uint8_t *buffer,
                                 size_t bytes SP_UNUSED, size_t valid_bytes)
{
    size_t dropped = 0;
    (void)pthread_mutex_lock(&current_lock);
    sp_i_kernel_records *r = current;
    if (r != NULL) {
        (void)pthread_mutex_lock(&r->lock);
        if (valid_bytes > 0) {
            read_buffer(r, buffer, valid_bytes);
        }
        if (r->api.ActivityGetNumDroppedRecords(of, stream, &dropped) == CUPTI_SUCCESS) {
            r->dropped += dropped;
        }
        (void)pthread_mutex_unlock(&r->lock);
    }
    (void)pthread_mutex_unlock(&current_lock);
    free(buffer);
}

// ---- a recording ----

static sp_status check(const sp_i_kernel_records *r, CUptiResult code, const char *call,
                       sp_error *err)
{
    const char *text = NULL;
    if (code == CUPTI_SUCCESS) {
        return SP_OK;
    }
    (void)r->api.GetResultString(code, &text);
    return sp_error_set(err, SP_ERR_INTERNAL, "CUPTI: %s failed with %d (%s)", call, (int)code,
                        text != NULL ? text : "no text");
}

#define CHECKED(call, ...) check(r, r->api.call(__VA_ARGS__), "cupti" #call, err)

// Records of later versions are assumed to begin as those of the headers do: so far each version of
// a record has added behind the last.
static sp_status check_version(const sp_i_kernel_records *r, sp_error *err)
{
    uint32_t version = 0;
    const sp_status status = CHECKED(GetVersion, &version);
    if (status == SP_OK && version < 130000) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "CUPTI: its version is %u, expected 130000 (of CUDA 13.0) or later",
                            version);
    }
    return status;
}

static sp_status start(sp_i_kernel_records *r, sp_error *err)
{
    sp_status status = check_version(r, err);
    status =
        status == SP_OK ? CHECKED(ActivityRegisterCallbacks, give_buffer, take_buffer) : status;
    status = status == SP_OK ? CHECKED(ActivityEnable, CUPTI_ACTIVITY_KIND_CONTEXT) : status;
    return status == SP_OK ? CHECKED(ActivityEnable, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
                           : status;
}

sp_status sp_i_kernel_records_begin(const sp_i_cupti_api *api, sp_i_kernel_records **made,
                                    sp_error *err)
{
    char reason[SP_I_CUDA_TEXT];
    sp_i_kernel_records *r = sp_calloc(1, sizeof *r);
    *made = NULL;
    if (api != NULL) {
        r->api = *api;
    } else if (!sp_i_cupti_api_init(&r->api, reason, sizeof reason)) {
        sp_free(r);
        return sp_error_set(err, SP_ERR_USAGE, "no CUPTI: %s", reason);
    }
    (void)pthread_mutex_lock(&current_lock);
    const bool is_alone = current == NULL;
    if (is_alone) {
        current = r;
    }
    (void)pthread_mutex_unlock(&current_lock);
    if (!is_alone) {
        sp_free(r);
        return sp_error_set(err, SP_ERR_USAGE, "CUPTI: kernels of another run are recorded");
    }
    if (pthread_mutex_init(&r->lock, NULL) != 0) {
        sp_out_of_memory(sizeof r->lock);
    }
    const sp_status status = start(r, err);
    if (status != SP_OK) {
        sp_i_kernel_records_free(r);
        return status;
    }
    *made = r;
    return SP_OK;
}

static void forget_kernels(sp_i_kernel_records *r)
{
    (void)pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->name_count; i++) {
        sp_free(r->names[i].name);
    }
    r->kernel_count = r->name_count = r->dropped = 0;
    (void)pthread_mutex_unlock(&r->lock);
}

sp_status sp_i_kernel_records_restart(sp_i_kernel_records *r, sp_error *err)
{
    const sp_status status = CHECKED(ActivityFlushAll, 0);
    if (status == SP_OK) {
        forget_kernels(r);
    }
    return status;
}

sp_status sp_i_kernel_records_end(sp_i_kernel_records *r, sp_error *err)
{
    return CHECKED(ActivityFlushAll, 0);
}

void sp_i_kernel_records_free(sp_i_kernel_records *r)
{
    if (r == NULL) {
        return;
    }
    (void)r->api.ActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    (void)r->api.ActivityDisable(CUPTI_ACTIVITY_KIND_CONTEXT);
    (void)r->api.ActivityFlushAll(0);
    (void)pthread_mutex_lock(&current_lock);
    current = NULL;
    (void)pthread_mutex_unlock(&current_lock);
    forget_kernels(r);
    pthread_mutex_destroy(&r->lock);
    sp_free(r->names);
    sp_free(r->kernels);
    sp_free(r->contexts);
    sp_free(r);
}

// ---- the report ----

static int by_start(const void *a, const void *b)
{
    const kernel *x = a, *y = b;
    return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

static int by_ns(const void *a, const void *b)
{
    const named *x = a, *y = b;
    return x->ns > y->ns ? -1 : x->ns < y->ns ? 1 : strcmp(x->name, y->name);
}

// A copy in order, the caller's.
static void *sorted(const void *items, size_t count, size_t bytes,
                    int (*compare)(const void *a, const void *b))
{
    void *made = sp_malloc((count + 1) * bytes);
    if (count > 0) {
        memcpy(made, items, count * bytes);
        qsort(made, count, bytes, compare);
    }
    return made;
}

// Of one context, or of all.
typedef struct spread {
    int64_t kernels, busy_ns, span_ns;
} spread;

// `kernels` by their start.
static spread spread_of(const kernel *kernels, size_t count, const uint32_t *of)
{
    spread s = {0};
    uint64_t first = 0, end = 0;
    for (size_t i = 0; i < count; i++) {
        const kernel *k = &kernels[i];
        if (of != NULL && k->context != *of) {
            continue;
        }
        if (s.kernels++ == 0) {
            first = end = k->start_ns;
        }
        const uint64_t from = k->start_ns > end ? k->start_ns : end;
        s.busy_ns += k->end_ns > from ? (int64_t)(k->end_ns - from) : 0;
        end = k->end_ns > end ? k->end_ns : end;
    }
    s.span_ns = (int64_t)(end - first);
    return s;
}

// The latest record of a context counts: a later one may come by its number.
static context context_at(const sp_i_kernel_records *r, uint32_t id)
{
    for (size_t i = r->context_count; i-- > 0;) {
        if (r->contexts[i].id == id) {
            return r->contexts[i];
        }
    }
    return (context){.id = id};
}

static json_t *report_contexts(const sp_i_kernel_records *r, const kernel *kernels)
{
    json_t *list = json_array();
    uint32_t *seen = sp_malloc((r->kernel_count + 1) * sizeof *seen);
    size_t seen_count = 0;
    for (size_t i = 0; i < r->kernel_count; i++) {
        size_t s = 0;
        while (s < seen_count && seen[s] != kernels[i].context) {
            s++;
        }
        if (s < seen_count) {
            continue;
        }
        seen[seen_count++] = kernels[i].context;
        const context of = context_at(r, kernels[i].context);
        const spread times = spread_of(kernels, r->kernel_count, &of.id);
        json_array_append_new(list, json_pack("{s:i, s:b, s:I, s:I, s:I}", "sms", of.sms, "green",
                                              of.green, "kernels", (json_int_t)times.kernels,
                                              "busy_ns", (json_int_t)times.busy_ns, "span_ns",
                                              (json_int_t)times.span_ns));
    }
    sp_free(seen);
    return list;
}

static json_t *report_longest(const sp_i_kernel_records *r)
{
    json_t *list = json_array();
    named *names = sorted(r->names, r->name_count, sizeof *names, by_ns);
    for (size_t i = 0; i < r->name_count && i < LONGEST; i++) {
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:I}", "name", names[i].name, "kernels",
                                        (json_int_t)names[i].count, "ns", (json_int_t)names[i].ns));
    }
    sp_free(names);
    return list;
}

json_t *sp_i_kernel_records_report(const sp_i_kernel_records *r)
{
    kernel *kernels = sorted(r->kernels, r->kernel_count, sizeof *kernels, by_start);
    const spread all = spread_of(kernels, r->kernel_count, NULL);
    json_t *report =
        json_pack("{s:I, s:I, s:I, s:o, s:o}", "recorded", (json_int_t)all.kernels, "dropped",
                  (json_int_t)r->dropped, "any_ns", (json_int_t)all.busy_ns, "contexts",
                  report_contexts(r, kernels), "longest", report_longest(r));
    sp_free(kernels);
    return report;
}

#else

bool sp_i_cupti_api_init(sp_i_cupti_api *api SP_UNUSED, char *reason, size_t reason_bytes)
{
    snprintf(reason, reason_bytes, "slimpack was built without its headers");
    return false;
}

sp_status sp_i_kernel_records_begin(const sp_i_cupti_api *api SP_UNUSED, sp_i_kernel_records **made,
                                    sp_error *err)
{
    *made = NULL;
    return sp_error_set(err, SP_ERR_USAGE, "no CUPTI: slimpack was built without its headers");
}

sp_status sp_i_kernel_records_restart(sp_i_kernel_records *records SP_UNUSED,
                                      sp_error *err SP_UNUSED)
{
    return SP_OK;
}

sp_status sp_i_kernel_records_end(sp_i_kernel_records *records SP_UNUSED, sp_error *err SP_UNUSED)
{
    return SP_OK;
}

void sp_i_kernel_records_free(sp_i_kernel_records *records SP_UNUSED)
{
}

json_t *sp_i_kernel_records_report(const sp_i_kernel_records *records SP_UNUSED)
{
    return NULL;
}

#endif
