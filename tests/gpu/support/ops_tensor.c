#include "tests/gpu/support/ops_tensor.h"

#include <math.h>
#include <stdlib.h>

#include "backends/cuda/machine.h"
#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "sim/base/prng.h"
#include "tests/gpu/support/computing_cublas.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/test_main.h"

#define BF16_BOUND (1.02 / 256)
#define FP32_BOUND 1e-5

static sp_i_cuda_api api;
static sp_i_cublas_api cublas;
static const sp_i_cuda_device device = {&api, 0};
static sp_prng prng;

sp_runtime *ops_begin(void)
{
    const sp_i_cuda_machine_options options = {.ranks = 1, .memory_bytes = 64 << 20};
    sp_error err = {0};
    sp_runtime *machine;
    fake_cuda_reset(&api);
    computing_cublas_reset(&cublas);
    sp_prng_seed(&prng, 11);
    sp_kernels_start();
    assert_int_equal(sp_i_cuda_machine_new(&device, &cublas, &options, &machine, &err), SP_OK);
    machine->ops->enter(machine, 0);
    return machine;
}

void ops_end(sp_runtime *machine)
{
    sp_error err = {0};
    sp_status status = machine->ops->synchronize(machine, &err);
    if (status != SP_OK) {
        print_error("%s\n", err.message[0]);
    }
    assert_int_equal(status, SP_OK);
    sp_i_cuda_machine_free(machine);
    assert_int_equal(fake.live_blocks, 0);
    assert_int_equal(computing.live, 0);
}

void ops_put(sp_runtime *machine, ops_tensor *t)
{
    static sp_bf16 half[OPS_MOST];
    static float single[OPS_MOST];
    int64_t n = t->rows * t->columns;
    for (int64_t i = 0; i < n; i++) {
        single[i] = (float)t->value[i];
        half[i] = sp_bf16_from_float(single[i]);
        t->value[i] = t->bf16 ? (double)sp_bf16_to_float(half[i]) : (double)single[i];
    }
    if (t->bf16) {
        machine->ops->upload(machine, t->data, half, n * (int64_t)sizeof *half);
    } else {
        machine->ops->upload(machine, t->data, single, n * (int64_t)sizeof *single);
    }
}

static void get(sp_runtime *machine, ops_tensor *t)
{
    static sp_bf16 half[OPS_MOST];
    static float single[OPS_MOST];
    int64_t n = t->rows * t->columns;
    if (t->bf16) {
        machine->ops->download(machine, half, t->data, n * (int64_t)sizeof *half);
    } else {
        machine->ops->download(machine, single, t->data, n * (int64_t)sizeof *single);
    }
    for (int64_t i = 0; i < n; i++) {
        t->value[i] = t->bf16 ? (double)sp_bf16_to_float(half[i]) : (double)single[i];
    }
}

ops_tensor *ops_drawn(sp_runtime *machine, bool bf16, int64_t rows, int64_t columns, double size)
{
    ops_tensor *t = calloc(1, sizeof *t);
    assert_non_null(t);
    assert_true(rows * columns <= OPS_MOST);
    t->rows = rows;
    t->columns = columns;
    t->bf16 = bf16;
    t->data = machine->ops->allocate(machine, rows * columns * 4);
    for (int64_t i = 0; i < rows * columns; i++) {
        t->value[i] = size * (2.0 * sp_prng_uniform(&prng) - 1.0);
    }
    ops_put(machine, t);
    return t;
}

int64_t ops_below(int64_t n)
{
    return (int64_t)sp_prng_below(&prng, (uint64_t)n);
}

void ops_drop(sp_runtime *machine, int count, ops_tensor *const *all)
{
    for (int i = 0; i < count; i++) {
        machine->ops->release(machine, all[i]->data);
        free(all[i]);
    }
}

void ops_check_rounded(sp_runtime *machine, const char *what, ops_tensor *t, const double *expected,
                       double roundings)
{
    get(machine, t);
    for (int64_t r = 0; r < t->rows; r++) {
        const double *want = expected + r * t->columns;
        const double *got = t->value + r * t->columns;
        double largest = 0.0;
        for (int64_t c = 0; c < t->columns; c++) {
            largest = fmax(largest, isfinite(want[c]) ? fabs(want[c]) : 0.0);
        }
        double bound = roundings * (t->bf16 ? BF16_BOUND : FP32_BOUND) * largest;
        for (int64_t c = 0; c < t->columns; c++) {
            if (!(got[c] == want[c] || fabs(got[c] - want[c]) <= bound)) {
                fail_msg("%s: [%lld, %lld] is %.9g, expected %.9g within %.3g", what, (long long)r,
                         (long long)c, got[c], want[c], bound);
            }
        }
    }
}

double *ops_copy(const ops_tensor *t)
{
    static double kept[4][OPS_MOST];
    static int next;
    double *to = kept[next++ % 4];
    memcpy(to, t->value, sizeof t->value);
    return to;
}
