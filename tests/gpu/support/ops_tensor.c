#include "tests/gpu/support/ops_tensor.h"

#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "tests/gpu/support/emulated_backend.h"
#include "tests/support/test_main.h"

#define BF16_BOUND (1.02 / 256)
#define FP32_BOUND 1e-5

static sp_prng prng;

sp_runtime *ops_runtime;

void ops_begin(void)
{
    sp_prng_seed(&prng, 11);
    sp_kernels_start();
    ops_runtime = emulated_runtime_new(1, false, 64 << 20);
}

void ops_end(void)
{
    sp_error_clear(ERR);
    sp_status status = ops_runtime->ops->synchronize(ops_runtime, ERR);
    if (status != SP_OK) {
        print_error("%s\n", ERR->message[0]);
    }
    assert_int_equal(status, SP_OK);
    emulated_runtime_free(ops_runtime);
}

ops_tensor *ops_bf16(int64_t rows, int64_t columns)
{
    return ops_drawn(ops_runtime, true, rows, columns, 1.0);
}

ops_tensor *ops_fp32(int64_t rows, int64_t columns)
{
    return ops_drawn(ops_runtime, false, rows, columns, 1.0);
}

void ops_check(const char *what, ops_tensor *t, const double *expected)
{
    ops_check_rounded(ops_runtime, what, t, expected, 1.0);
}

void ops_put(sp_runtime *runtime, ops_tensor *t)
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
        runtime->ops->upload(runtime, t->data, half, n * (int64_t)sizeof *half);
    } else {
        runtime->ops->upload(runtime, t->data, single, n * (int64_t)sizeof *single);
    }
}

static void get(sp_runtime *runtime, ops_tensor *t)
{
    static sp_bf16 half[OPS_MOST];
    static float single[OPS_MOST];
    int64_t n = t->rows * t->columns;
    if (t->bf16) {
        runtime->ops->download(runtime, half, t->data, n * (int64_t)sizeof *half);
    } else {
        runtime->ops->download(runtime, single, t->data, n * (int64_t)sizeof *single);
    }
    for (int64_t i = 0; i < n; i++) {
        t->value[i] = t->bf16 ? (double)sp_bf16_to_float(half[i]) : (double)single[i];
    }
}

ops_tensor *ops_drawn(sp_runtime *runtime, bool bf16, int64_t rows, int64_t columns, double size)
{
    ops_tensor *t = calloc(1, sizeof *t);
    assert_non_null(t);
    assert_true(rows * columns <= OPS_MOST);
    t->rows = rows;
    t->columns = columns;
    t->bf16 = bf16;
    t->data = runtime->ops->allocate(runtime, rows * columns * 4);
    for (int64_t i = 0; i < rows * columns; i++) {
        t->value[i] = size * (2.0 * sp_prng_uniform(&prng) - 1.0);
    }
    ops_put(runtime, t);
    return t;
}

int64_t ops_below(int64_t n)
{
    return (int64_t)sp_prng_below(&prng, (uint64_t)n);
}

void ops_drop(sp_runtime *runtime, int count, ops_tensor *const *all)
{
    for (int i = 0; i < count; i++) {
        runtime->ops->release(runtime, all[i]->data);
        free(all[i]);
    }
}

void ops_check_rounded(sp_runtime *runtime, const char *what, ops_tensor *t, const double *expected,
                       double roundings)
{
    get(runtime, t);
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
