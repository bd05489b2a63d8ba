#include "backends/host/cpu_runtime.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "backends/host/host.h"
#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "sim/base/alloc.h"
#include "sim/base/units.h"

// ---- Free memory ----

enum { FIELD_PATH = 512 };

// The number behind `key` at the beginning of a line of a file, or the file's first number where
// there is no key; -1 where there is none.
static int64_t read_field(const char *path, const char *key)
{
    FILE *file = fopen(path, "r");
    char line[FIELD_PATH];
    size_t length = key != NULL ? strlen(key) : 0;
    int64_t value = -1;
    while (file != NULL && value < 0 && fgets(line, sizeof line, file) != NULL) {
        char *end;
        if (length == 0 || strncmp(line, key, length) == 0) {
            int64_t number = strtoll(line + length, &end, 10);
            value = end != line + length ? number : -1;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return value;
}

// What a control group leaves of its limit; pages of files that it can drop count as free.
static int64_t group_left(const char *group, const char *limit_name, const char *used_name,
                          const char *dropped_key)
{
    char path[2 * FIELD_PATH];
    snprintf(path, sizeof path, "%s/%s", group, limit_name);
    int64_t limit = read_field(path, NULL);
    snprintf(path, sizeof path, "%s/%s", group, used_name);
    int64_t used = read_field(path, NULL);
    snprintf(path, sizeof path, "%s/memory.stat", group);
    int64_t dropped = read_field(path, dropped_key);
    if (limit < 0 || used < 0) {
        return INT64_MAX;
    }
    int64_t left = limit - used + (dropped > 0 ? dropped : 0);
    return left > 0 ? left : 0;
}

// The least that the group of this process and those above it leave. In a container the group's
// path may not be there: then the root is the container's own.
static int64_t groups_left(const char *root, const char *own, const char *limit_name,
                           const char *used_name, const char *dropped_key)
{
    char group[FIELD_PATH];
    snprintf(group, sizeof group, "%s%s", root, own);
    int64_t left = INT64_MAX;
    while (true) {
        left = sp_smaller(left, group_left(group, limit_name, used_name, dropped_key));
        char *last = strrchr(group, '/');
        if (last == NULL || strlen(group) <= strlen(root)) {
            return left;
        }
        *last = '\0';
    }
}

// By the kernel's documents cgroup-v2.rst and cgroup-v1/memory.rst.
static int64_t control_groups_left(void)
{
    static const char root[] = "/sys/fs/cgroup";
    static const char memory[] = "/sys/fs/cgroup/memory";
    FILE *file = fopen("/proc/self/cgroup", "r");
    char line[FIELD_PATH];
    int64_t left = INT64_MAX;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':');
        char *own = names != NULL ? strchr(names + 1, ':') : NULL;
        if (own == NULL) {
            continue;
        }
        *own++ = '\0';
        own = strcmp(own, "/") == 0 ? own + 1 : own;
        if (names[1] == '\0') {
            left = sp_smaller(
                left, groups_left(root, own, "memory.max", "memory.current", "inactive_file "));
        } else if (strstr(names + 1, "memory") != NULL) {
            left = sp_smaller(left, groups_left(memory, own, "memory.limit_in_bytes",
                                                "memory.usage_in_bytes", "total_inactive_file "));
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return left;
}

static int64_t address_space_left(void)
{
    struct rlimit space;
    if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY) {
        return INT64_MAX;
    }
    int64_t pages = read_field("/proc/self/statm", NULL);
    int64_t used = pages > 0 ? pages * sysconf(_SC_PAGESIZE) : 0;
    return used < (int64_t)space.rlim_cur ? (int64_t)space.rlim_cur - used : 0;
}

// Bytes of memory that this process can still have without the kernel ending it: what the machine
// has available, what the control groups of the process leave, and what its address space may still
// grow by (ulimit -v). INT64_MAX where the system tells none of them.
static int64_t free_bytes(sp_runtime *runtime SP_UNUSED)
{
    int64_t available_kib = read_field("/proc/meminfo", "MemAvailable:");
    int64_t left = available_kib >= 0 ? available_kib * 1024 : INT64_MAX;
    return sp_smaller(left, sp_smaller(control_groups_left(), address_space_left()));
}

// ---- Blocks ----

// Stands before what was allocated, so that it is found again.
typedef struct header {
    void *memory;
} header;

// Linux gives more address space than there is memory and ends a process that fills it. So new
// blocks count against what was free when last looked at, and half of that is given before it is
// looked at again.
static bool is_free(int64_t bytes)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int64_t allowed_bytes;
    pthread_mutex_lock(&lock);
    bool good = bytes <= allowed_bytes;
    if (!good) {
        int64_t left = free_bytes(NULL);
        good = bytes <= left;
        allowed_bytes = good && bytes < left / 2 ? left / 2 : bytes;
    }
    allowed_bytes = good ? allowed_bytes - bytes : 0;
    pthread_mutex_unlock(&lock);
    return good;
}

static void *allocate(sp_runtime *runtime SP_UNUSED, int64_t bytes)
{
    size_t all = (size_t)bytes + SP_RUNTIME_ALIGNMENT + sizeof(header);
    char *memory = is_free((int64_t)all) ? malloc(all) : NULL;
    if (memory == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    uintptr_t first = (uintptr_t)memory + sizeof(header);
    uintptr_t data =
        (first + SP_RUNTIME_ALIGNMENT - 1) / SP_RUNTIME_ALIGNMENT * SP_RUNTIME_ALIGNMENT;
    char *aligned = memory + (data - (uintptr_t)memory);
    ((header *)(void *)aligned)[-1].memory = memory;
    return aligned;
}

static void release(sp_runtime *runtime SP_UNUSED, void *memory)
{
    if (memory != NULL) {
        free(((header *)memory)[-1].memory);
    }
}

static void enter(sp_runtime *runtime SP_UNUSED, int rank SP_UNUSED)
{
}

static void copy(sp_runtime *runtime SP_UNUSED, void *to, const void *from, int64_t bytes)
{
    if (bytes > 0) {
        memcpy(to, from, (size_t)bytes);
    }
}

static void copy_rows(sp_runtime *runtime, int64_t rows, int64_t bytes, void *to, int64_t to_stride,
                      const void *from, int64_t from_stride)
{
    for (int64_t r = 0; r < rows; r++) {
        copy(runtime, (char *)to + r * to_stride, (const char *)from + r * from_stride, bytes);
    }
}

static void zero(sp_runtime *runtime SP_UNUSED, void *to, int64_t bytes)
{
    if (bytes > 0) {
        memset(to, 0, (size_t)bytes);
    }
}

static void sum_of_squares(sp_runtime *runtime SP_UNUSED, sp_element element, int64_t n,
                           const void *x, double *sum)
{
    *sum = element == SP_ELEMENT_F64 ? sp_kernel_sum_of_squares_f64(n, x)
                                     : sp_kernel_sum_of_squares_f32(n, x);
}

static sp_fence mark(sp_runtime *runtime SP_UNUSED)
{
    return (sp_fence){0};
}

static void wait(sp_runtime *runtime SP_UNUSED, sp_fence fence SP_UNUSED)
{
}

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// An action has its core to itself, whatever else runs on this machine.
static int64_t now_ns(sp_runtime *runtime SP_UNUSED)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

static uint64_t stamp(sp_runtime *runtime SP_UNUSED)
{
    return (uint64_t)read_clock(CLOCK_MONOTONIC);
}

static int64_t stamp_ns(sp_runtime *runtime SP_UNUSED, uint64_t stamp)
{
    return (int64_t)stamp;
}

static sp_status synchronize(sp_runtime *runtime SP_UNUSED, sp_error *err SP_UNUSED)
{
    return SP_OK;
}

static void reduce(sp_runtime *runtime SP_UNUSED, sp_element element, bool maximum, int64_t count,
                   const void *const *in, int members, void *const *out, int outs)
{
    sp_i_cpu_reduce(element, maximum, count, in, members, out, outs);
}

sp_runtime *sp_runtime_cpu(void)
{
    static const sp_runtime_ops ops = {.allocate = allocate,
                                       .release = release,
                                       .allocate_host = allocate,
                                       .release_host = release,
                                       .free_bytes = free_bytes,
                                       .enter = enter,
                                       .copy = copy,
                                       .copy_rows = copy_rows,
                                       .zero = zero,
                                       .upload = copy,
                                       .download = copy,
                                       .reduce = reduce,
                                       .sum_of_squares = sum_of_squares,
                                       .mark = mark,
                                       .wait = wait,
                                       .now_ns = now_ns,
                                       .stamp = stamp,
                                       .stamp_ns = stamp_ns,
                                       .synchronize = synchronize,
                                       .plain_memory = true};
    static sp_runtime runtime = {.ops = &ops};
    return &runtime;
}

// ---- Reductions ----

// Sums and maxima of the members' elements, in the order of members.

// A block stays in the first cache while all members' elements are taken in.
enum { BLOCK_BYTES = 8192 };

typedef union block {
    float f32[BLOCK_BYTES / sizeof(float)];
    double f64[BLOCK_BYTES / sizeof(double)];
    sp_bf16 bf16[BLOCK_BYTES / sizeof(sp_bf16)];
    char bytes[BLOCK_BYTES];
} block;

// Not larger and not equal is a NaN in one of the two; the sum of both keeps it.
static void max_f32(int64_t count, const float *restrict in, float *restrict max)
{
    for (int64_t i = 0; i < count; i++) {
        max[i] = in[i] > max[i] ? in[i] : in[i] <= max[i] ? max[i] : in[i] + max[i];
    }
}

static void max_f64(int64_t count, const double *restrict in, double *restrict max)
{
    for (int64_t i = 0; i < count; i++) {
        max[i] = in[i] > max[i] ? in[i] : in[i] <= max[i] ? max[i] : in[i] + max[i];
    }
}

static void widen(int64_t count, const sp_bf16 *in, float *out)
{
    for (int64_t i = 0; i < count; i++) {
        out[i] = sp_bf16_to_float(in[i]);
    }
}

// Works on elements from `first` on.
static void reduce_bf16(bool maximum, int64_t first, int64_t count, const void *const *in,
                        int members, sp_bf16 *result)
{
    float sum[BLOCK_BYTES / sizeof(sp_bf16)];
    float next[BLOCK_BYTES / sizeof(sp_bf16)];
    widen(count, (const sp_bf16 *)in[0] + first, sum);
    for (int j = 1; j < members; j++) {
        widen(count, (const sp_bf16 *)in[j] + first, next);
        (maximum ? max_f32 : sp_kernel_add_f32)(count, next, sum);
    }
    for (int64_t i = 0; i < count; i++) {
        result[i] = sp_bf16_from_float(sum[i]);
    }
}

static void take(sp_element element, bool maximum, int64_t count, const void *in, block *result)
{
    if (element == SP_ELEMENT_F32) {
        (maximum ? max_f32 : sp_kernel_add_f32)(count, in, result->f32);
    } else {
        (maximum ? max_f64 : sp_kernel_add_f64)(count, in, result->f64);
    }
}

void sp_i_cpu_reduce(sp_element element, bool maximum, int64_t count, const void *const *in,
                     int members, void *const *out, int outs)
{
    int64_t size = sp_element_bytes(element);
    int64_t step = BLOCK_BYTES / size;
    SP_ASSERT(element != SP_ELEMENT_BYTE);
    for (int64_t done = 0; done < count; done += step) {
        int64_t n = count - done < step ? count - done : step;
        size_t bytes = (size_t)(n * size);
        block result;
        if (element == SP_ELEMENT_BF16) {
            reduce_bf16(maximum, done, n, in, members, result.bf16);
        } else {
            memcpy(result.bytes, (const char *)in[0] + done * size, bytes);
            for (int j = 1; j < members; j++) {
                take(element, maximum, n, (const char *)in[j] + done * size, &result);
            }
        }
        for (int k = 0; k < outs; k++) {
            memcpy((char *)out[k] + done * size, result.bytes, bytes);
        }
    }
}

// ---- Runs ----

static sp_status start_threads(int threads, sp_error *err)
{
    return sp_kernels_start_threads(threads)
               ? SP_OK
               : sp_error_no_memory(err, "address space for OpenBLAS, 136 MiB a core; "
                                         "see ulimit -v");
}

sp_status sp_i_host_start(sp_error *err)
{
    return start_threads(1, err);
}

sp_status sp_i_host_run_new_cpu(const sp_run_request *request, sp_i_exec_run **run, sp_error *err)
{
    *run = NULL;
    // On the wall clock every rank is a thread.
    bool together = request->clock == SP_CLOCK_WALL;
    SP_TRY(start_threads(together ? (int)sp_layout_ranks(&request->plan->layout) : 1, err));
    const sp_i_exec_site site = {.backend = "host",
                                 .runtime = sp_runtime_cpu(),
                                 .math = request->precision == SP_FP64 ? &sp_i_exec_math_f64
                                                                       : &sp_i_exec_math_f32};
    return sp_i_exec_run_new(request, &site, run, err);
}
