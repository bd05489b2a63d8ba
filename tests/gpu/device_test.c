// The device layer on a GPU: memory, errors, partitions, transfers between them, products.
#include <math.h>
#include <string.h>

#include "backends/cuda/calibration.h"
#include "backends/cuda/device.h"
#include "backends/cuda/gemm.h"
#include "backends/cuda/runtime.h"
#include "sim/base/alloc.h"
#include "tests/gpu/gpu_check.h"

static sp_status failures_leave_the_device_usable(gpu_test *t, sp_error *err)
{
    sp_error refused = {0};
    void *data = NULL;
    sp_status status = sp_i_cuda_take(&t->device, (size_t)1 << 50, &data, &refused);
    gpu_require(t, status == SP_ERR_NO_MEMORY, "%s", refused.message[0]);
    status = sp_i_cuda_take(&t->device, 256, &data, err);
    sp_i_cuda_give(&t->device, data);
    return status;
}

static sp_status random_numbers_are_normal(gpu_test *t, sp_error *err)
{
    const int64_t count = 10000001; // more than is drawn, and odd
    void *data = NULL;
    sp_status status = sp_i_cuda_take(&t->device, (size_t)(2 * count), &data, err);
    if (status == SP_OK) {
        status = sp_i_cuda_fill_normal(&t->device, data, count, SP_I_CUDA_DRAWN, 2.0, 5, NULL, err);
    }
    double *values = status == SP_OK ? gpu_read(t, data, count, false, err) : NULL;
    sp_i_cuda_give(&t->device, data);
    if (values == NULL) {
        return status != SP_OK ? status : SP_ERR_INTERNAL;
    }
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += values[i];
        squares += values[i] * values[i];
    }
    double mean = sum / (double)count;
    double deviation = sqrt(squares / (double)count);
    // 4.2 million different numbers: the mean's own deviation is 0.001.
    gpu_require(t, fabs(mean) < 0.005 && fabs(deviation - 2.0) < 0.01, "mean %.4f, deviation %.4f",
                mean, deviation);
    sp_free(values);
    return SP_OK;
}

static int64_t bytes_of_block(int block)
{
    return 1000 + 40000 * block;
}

// Blocks of an arena keep what was written while others come and go.
static sp_status arena_blocks_keep_their_bytes(gpu_test *t, sp_error *err)
{
    enum { BLOCKS = 24, CAPACITY = 64 << 20 };
    void *block[BLOCKS];
    unsigned char *read = sp_malloc(CAPACITY);
    void *base = NULL;
    GPU_TRY(sp_i_cuda_take(&t->device, CAPACITY, &base, err));
    sp_i_cuda_arena *arena = sp_i_cuda_arena_new(base, CAPACITY);
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = sp_i_cuda_arena_take(arena, bytes_of_block(i));
        GPU_TRY(SP_I_CUDA(&t->device, err, MemsetD8Async, sp_i_cuda_at(block[i]),
                          (unsigned char)(i + 1), (size_t)bytes_of_block(i), NULL));
        if (i % 3 == 2) {
            sp_i_cuda_arena_give(arena, block[i - 1]);
            block[i - 1] = NULL;
        }
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (block[i] == NULL) {
            continue;
        }
        GPU_TRY(gpu_download(t, read, block[i], bytes_of_block(i), NULL, err));
        for (int64_t b = 0; b < bytes_of_block(i); b++) {
            gpu_require(t, read[b] == i + 1, "block %d byte %lld is %d", i, (long long)b, read[b]);
        }
    }
    sp_i_cuda_arena_free(arena);
    sp_i_cuda_give(&t->device, base);
    sp_free(read);
    return SP_OK;
}

static sp_status partitions_split_the_device(gpu_test *t, sp_error *err)
{
    for (int count = 2; count <= 16; count *= 2) {
        const char *reason;
        sp_i_cuda_partitions *p;
        int sms = 0;
        GPU_TRY(sp_i_cuda_partitions_new(&t->device, count, 2, &p, err));
        for (int i = 0; i < count; i++) {
            sms += sp_i_cuda_partition_sms(p, i);
        }
        bool disjoint = sp_i_cuda_are_partitioned(p, &reason);
        gpu_require(t, disjoint && sms <= t->info.sm_count && sms > 0,
                    "%d partitions: %d of %d SMs, %s", count, sms, t->info.sm_count,
                    disjoint ? "disjoint" : reason);
        sp_i_cuda_partitions_free(p);
    }
    return SP_OK;
}

// A block goes around all partitions many times, each step on its sender's stream alone: it arrives
// whole only if every receiver waited for its sender.
static sp_status transfers_arrive_in_order(gpu_test *t, sp_error *err)
{
    enum { PARTITIONS = 4, BYTES = 8 << 20 };
    const int rounds = t->small ? 2 : 25;
    sp_i_cuda_partitions *p = NULL;
    sp_i_cuda_events events = {0};
    void *memory = NULL;
    unsigned char *sent = sp_malloc(BYTES);
    unsigned char *got = sp_malloc(BYTES);
    GPU_TRY(sp_i_cuda_partitions_new(&t->device, PARTITIONS, 1, &p, err));
    GPU_TRY(sp_i_cuda_events_init(&t->device, PARTITIONS, false, &events, err));
    GPU_TRY(sp_i_cuda_take(&t->device, (size_t)PARTITIONS * BYTES, &memory, err));
    for (int i = 0; i < BYTES; i++) {
        sent[i] = (unsigned char)(i * 31 + i / 251);
    }
    char *place = memory;
    GPU_TRY(
        sp_i_cuda_upload(&t->device, place, sent, BYTES, sp_i_cuda_partition_stream(p, 0, 0), err));
    for (int i = 0; i < rounds * PARTITIONS; i++) {
        int from = i % PARTITIONS;
        int to = (i + 1) % PARTITIONS;
        CUstream sender = sp_i_cuda_partition_stream(p, from, 0);
        GPU_TRY(SP_I_CUDA(&t->device, err, MemcpyAsync, sp_i_cuda_at(place + (size_t)to * BYTES),
                          sp_i_cuda_at(place + (size_t)from * BYTES), BYTES, sender));
        GPU_TRY(sp_i_cuda_record(&events, from, sender, err));
        GPU_TRY(sp_i_cuda_wait(&events, from, sp_i_cuda_partition_stream(p, to, 0), err));
        // What was sent must not be read again by a late copy.
        GPU_TRY(SP_I_CUDA(&t->device, err, MemsetD8Async,
                          sp_i_cuda_at(place + (size_t)from * BYTES), 0, BYTES, sender));
    }
    GPU_TRY(gpu_download(t, got, place, BYTES, sp_i_cuda_partition_stream(p, 0, 0), err));
    gpu_require(t, memcmp(sent, got, BYTES) == 0, "%d transfers of %d MiB", rounds * PARTITIONS,
                BYTES >> 20);
    sp_i_cuda_give(&t->device, memory);
    sp_i_cuda_events_fini(&events);
    sp_i_cuda_partitions_free(p);
    sp_free(sent);
    sp_free(got);
    return SP_OK;
}

// ---- products ----

enum { TOKENS = 200, IN = 136, OUT = 264 };

static double reference(sp_i_product kind, const double *left, const double *right, int64_t row,
                        int64_t column)
{
    const int64_t inner = kind == SP_I_PRODUCT_FORWARD ? IN
                          : kind == SP_I_PRODUCT_INPUT ? OUT
                                                       : TOKENS;
    double sum = 0.0;
    for (int64_t i = 0; i < inner; i++) {
        double x = kind == SP_I_PRODUCT_FORWARD ? left[row * IN + i]
                   : kind == SP_I_PRODUCT_INPUT ? left[row * OUT + i]
                                                : left[i * OUT + row];
        double y = kind == SP_I_PRODUCT_FORWARD ? right[column * IN + i]
                   : kind == SP_I_PRODUCT_INPUT ? right[i * IN + column]
                                                : right[i * IN + column];
        sum += x * y;
    }
    return sum;
}

typedef struct matrices {
    char *x, *weight, *dy, *result, *workspace;
} matrices;

// `bias` [OUT], of a forward product with bf16 result, or NULL.
static sp_status check_product(gpu_test *t, sp_i_cuda_gemm *gemm, const matrices *m,
                               sp_i_cuda_product what, const void *bias, sp_error *err)
{
    bool added = false;
    const bool forward = what.kind == SP_I_PRODUCT_FORWARD;
    const bool weight = what.kind == SP_I_PRODUCT_WEIGHT;
    const int64_t rows = weight ? OUT : TOKENS;
    const int64_t columns = forward ? OUT : IN;
    const sp_i_cuda_operands operands = {forward ? m->x : m->dy, weight ? m->x : m->weight,
                                         m->result};
    GPU_TRY(sp_i_cuda_fill_normal(&t->device, m->result, (what.fp32 ? 2 : 1) * rows * columns,
                                  SP_I_CUDA_DRAWN, 1.0, 9, NULL, err));
    if (what.fp32) {
        GPU_TRY(SP_I_CUDA(&t->device, err, MemsetD8Async, sp_i_cuda_at(m->result), 0,
                          (size_t)(4 * rows * columns), NULL));
    }
    for (int i = 0; i < (what.accumulate ? 2 : 1); i++) {
        GPU_TRY(bias == NULL
                    ? sp_i_cuda_gemm_run(gemm, &what, &operands, NULL, err)
                    : sp_i_cuda_gemm_run_biased(gemm, &what, &operands, bias, &added, NULL, err));
    }
    double *left = gpu_read(t, operands.left, forward ? TOKENS * IN : TOKENS * OUT, false, err);
    double *right = gpu_read(t, operands.right, weight ? TOKENS * IN : IN * OUT, false, err);
    double *got = gpu_read(t, m->result, rows * columns, what.fp32, err);
    double *more = gpu_read(t, added ? bias : operands.left, OUT, false, err);
    double *want = sp_malloc((size_t)(rows * columns) * sizeof *want);
    bool read = left != NULL && right != NULL && got != NULL && more != NULL;
    for (int64_t i = 0; read && i < rows * columns; i++) {
        want[i] = (what.accumulate ? 2.0 : 1.0) *
                      reference(what.kind, left, right, i / columns, i % columns) +
                  (added ? more[i % columns] : 0.0);
    }
    double error = read ? gpu_relative_error(got, want, rows * columns) : (double)INFINITY;
    // bf16 keeps 8 bits: rounding alone is 2^-9 / sqrt(3) of a number, about 0.001.
    gpu_require(t, error < (what.fp32 ? 1e-5 : 3e-3),
                "kind %d fp32 %d bias %d: relative error %.2e", (int)what.kind, what.fp32, added,
                error);
    // One that is aligned as other parameters are has an algorithm; of any other it may be.
    gpu_require(t, bias == NULL || added || (uintptr_t)bias % 16 != 0,
                "no algorithm adds an aligned bias");
    sp_free(more);
    sp_free(left);
    sp_free(right);
    sp_free(got);
    sp_free(want);
    return SP_OK;
}

// Forward and input gradient to bf16 and fp32; the weight gradient added up in fp32, twice; forward
// with a bias.
static sp_status products_are_those_of_a_linear_layer(gpu_test *t, sp_error *err)
{
    sp_i_cublas_api cublas;
    sp_i_cuda_gemm *gemm = NULL;
    char reason[SP_I_CUDA_TEXT];
    void *memory = NULL;
    if (!sp_i_cublas_api_init(&cublas, reason, sizeof reason)) {
        return sp_error_set(err, SP_ERR_USAGE, "%s", reason);
    }
    const size_t part = 1 << 20;
    GPU_TRY(sp_i_cuda_take(&t->device, 4 * part + SP_I_CUDA_GEMM_WORKSPACE, &memory, err));
    char *base = memory;
    const matrices m = {base, base + part, base + 2 * part, base + 3 * part, base + 4 * part};
    GPU_TRY(sp_i_cuda_fill_normal(&t->device, base, (int64_t)(3 * part / 2), SP_I_CUDA_DRAWN, 1.0,
                                  1, NULL, err));
    const sp_i_cuda_gemm_place place = {m.workspace, SP_I_CUDA_GEMM_WORKSPACE, 0};
    GPU_TRY(sp_i_cuda_gemm_new(&t->device, &cublas, &place, &gemm, err));
    for (int kind = 0; kind < SP_I_PRODUCTS; kind++) {
        for (int fp32 = kind == SP_I_PRODUCT_WEIGHT; fp32 < 2; fp32++) {
            const sp_i_cuda_product what = {(sp_i_product)kind,         TOKENS, IN, OUT, fp32 == 1,
                                            kind == SP_I_PRODUCT_WEIGHT};
            GPU_TRY(check_product(t, gemm, &m, what, NULL, err));
        }
    }
    // As large as the sums, so that it is seen; at any even place.
    const sp_i_cuda_product forward = {SP_I_PRODUCT_FORWARD, TOKENS, IN, OUT, false, false};
    for (int shift = 0; shift < 4; shift += 2) {
        GPU_TRY(
            sp_i_cuda_fill_normal(&t->device, m.dy, OUT + 1, SP_I_CUDA_DRAWN, 10.0, 2, NULL, err));
        GPU_TRY(check_product(t, gemm, &m, forward, m.dy + shift, err));
    }
    sp_i_cuda_gemm_free(gemm);
    sp_i_cuda_give(&t->device, memory);
    return SP_OK;
}

int gpu_device_test(int argc, char **argv)
{
    static const gpu_case cases[] = {
        {"failures_leave_the_device_usable", failures_leave_the_device_usable, NULL},
        {"random_numbers_are_normal", random_numbers_are_normal, NULL},
        {"arena_blocks_keep_their_bytes", arena_blocks_keep_their_bytes, NULL},
        {"partitions_split_the_device", partitions_split_the_device, NULL},
        {"transfers_arrive_in_order", transfers_arrive_in_order, NULL},
        {"products_are_those_of_a_linear_layer", products_are_those_of_a_linear_layer, NULL},
    };
    return gpu_run_cases(cases, sizeof cases / sizeof *cases);
}
