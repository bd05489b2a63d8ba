#include "backends/host/cpu_runtime.h"

#include <string.h>
#include <time.h>

#include "backends/host/host.h"
#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "sim/base/alloc.h"

// Stands before what was allocated, so that it is found again.
typedef struct header {
    void *memory;
} header;

static void *allocate(sp_runtime *runtime, int64_t bytes)
{
    (void)runtime;
    char *memory = sp_malloc((size_t)bytes + SP_RUNTIME_ALIGNMENT + sizeof(header));
    uintptr_t first = (uintptr_t)memory + sizeof(header);
    uintptr_t data =
        (first + SP_RUNTIME_ALIGNMENT - 1) / SP_RUNTIME_ALIGNMENT * SP_RUNTIME_ALIGNMENT;
    char *aligned = memory + (data - (uintptr_t)memory);
    ((header *)(void *)aligned)[-1].memory = memory;
    return aligned;
}

static void release(sp_runtime *runtime, void *memory)
{
    (void)runtime;
    if (memory != NULL) {
        sp_free(((header *)memory)[-1].memory);
    }
}

static void enter(sp_runtime *runtime, int rank)
{
    (void)runtime;
    (void)rank;
}

static void copy(sp_runtime *runtime, void *to, const void *from, int64_t bytes)
{
    (void)runtime;
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

static void zero(sp_runtime *runtime, void *to, int64_t bytes)
{
    (void)runtime;
    if (bytes > 0) {
        memset(to, 0, (size_t)bytes);
    }
}

static void sum_of_squares(sp_runtime *runtime, sp_element element, int64_t n, const void *x,
                           double *sum)
{
    (void)runtime;
    *sum = element == SP_ELEMENT_F64 ? sp_kernel_sum_of_squares_f64(n, x)
                                     : sp_kernel_sum_of_squares_f32(n, x);
}

static sp_fence mark(sp_runtime *runtime)
{
    (void)runtime;
    return (sp_fence){0};
}

static void wait(sp_runtime *runtime, sp_fence fence)
{
    (void)runtime;
    (void)fence;
}

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// An action has its core to itself, whatever else runs on this machine.
static int64_t now_ns(sp_runtime *runtime)
{
    (void)runtime;
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

static uint64_t stamp(sp_runtime *runtime)
{
    (void)runtime;
    return (uint64_t)read_clock(CLOCK_MONOTONIC);
}

static int64_t stamp_ns(sp_runtime *runtime, uint64_t stamp)
{
    (void)runtime;
    return (int64_t)stamp;
}

static sp_status synchronize(sp_runtime *runtime, sp_error *err)
{
    (void)runtime;
    (void)err;
    return SP_OK;
}

static void reduce(sp_runtime *runtime, sp_element element, bool maximum, int64_t count,
                   const void *const *in, int members, void *const *out, int outs)
{
    (void)runtime;
    sp_i_cpu_reduce(element, maximum, count, in, members, out, outs);
}

sp_runtime *sp_runtime_cpu(void)
{
    static const sp_runtime_ops ops = {.allocate = allocate,
                                       .release = release,
                                       .allocate_host = allocate,
                                       .release_host = release,
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
    sp_status status =
        start_threads(together ? (int)sp_layout_ranks(&request->plan->layout) : 1, err);
    if (status != SP_OK) {
        return status;
    }
    const sp_i_exec_site site = {.backend = "host",
                                 .runtime = sp_runtime_cpu(),
                                 .math = request->precision == SP_FP64 ? &sp_i_exec_math_f64
                                                                       : &sp_i_exec_math_f32};
    return sp_i_exec_run_new(request, &site, run, err);
}
