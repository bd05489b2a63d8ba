#include "backends/host/cpu_runtime.h"

#include <string.h>
#include <time.h>

#include "backends/host/cpu_reduce.h"
#include "kernels/kernels.h"
#include "sim/base/alloc.h"

// Stands before what was allocated, so that it is found again.
typedef struct header {
    void *memory;
} header;

static void *allocate(sp_machine *machine, int64_t bytes)
{
    (void)machine;
    char *memory = sp_i_malloc((size_t)bytes + SP_MACHINE_ALIGNMENT + sizeof(header));
    if (memory == NULL) {
        return NULL;
    }
    uintptr_t first = (uintptr_t)memory + sizeof(header);
    uintptr_t data =
        (first + SP_MACHINE_ALIGNMENT - 1) / SP_MACHINE_ALIGNMENT * SP_MACHINE_ALIGNMENT;
    char *at = memory + (data - (uintptr_t)memory);
    ((header *)(void *)at)[-1].memory = memory;
    return at;
}

static void release(sp_machine *machine, void *memory)
{
    (void)machine;
    if (memory != NULL) {
        sp_i_free(((header *)memory)[-1].memory);
    }
}

static void enter(sp_machine *machine, int rank)
{
    (void)machine;
    (void)rank;
}

static void copy(sp_machine *machine, void *to, const void *from, int64_t bytes)
{
    (void)machine;
    if (bytes > 0) {
        memcpy(to, from, (size_t)bytes);
    }
}

static void copy_rows(sp_machine *machine, int64_t rows, int64_t bytes, void *to, int64_t to_stride,
                      const void *from, int64_t from_stride)
{
    for (int64_t r = 0; r < rows; r++) {
        copy(machine, (char *)to + r * to_stride, (const char *)from + r * from_stride, bytes);
    }
}

static void zero(sp_machine *machine, void *to, int64_t bytes)
{
    (void)machine;
    if (bytes > 0) {
        memset(to, 0, (size_t)bytes);
    }
}

static void sum_of_squares(sp_machine *machine, sp_element element, int64_t n, const void *x,
                           double *sum)
{
    (void)machine;
    *sum = element == SP_ELEMENT_F64 ? sp_kernel_sum_of_squares_f64(n, x)
                                     : sp_kernel_sum_of_squares_f32(n, x);
}

static sp_fence mark(sp_machine *machine)
{
    (void)machine;
    return (sp_fence){0};
}

static void wait(sp_machine *machine, sp_fence fence)
{
    (void)machine;
    (void)fence;
}

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// An action has its core to itself, whatever else runs on this machine.
static int64_t now_ns(sp_machine *machine)
{
    (void)machine;
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

static uint64_t stamp(sp_machine *machine)
{
    (void)machine;
    return (uint64_t)read_clock(CLOCK_MONOTONIC);
}

static int64_t stamp_ns(sp_machine *machine, uint64_t stamp)
{
    (void)machine;
    return (int64_t)stamp;
}

static sp_status settle(sp_machine *machine, sp_error *err)
{
    (void)machine;
    (void)err;
    return SP_OK;
}

static void reduce(sp_machine *machine, sp_element element, bool maximum, int64_t count,
                   const void *const *in, int members, void *const *out, int outs)
{
    (void)machine;
    sp_i_cpu_reduce(element, maximum, count, in, members, out, outs);
}

sp_machine *sp_machine_cpu(void)
{
    static const sp_machine_ops ops = {.allocate = allocate,
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
                                       .settle = settle,
                                       .plain_memory = true};
    static sp_machine machine = {.ops = &ops};
    return &machine;
}
