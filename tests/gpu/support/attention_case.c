#include "tests/gpu/support/attention_case.h"

#include <math.h>

#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "sim/base/alloc.h"
#include "sim/base/prng.h"

static void *zeros(int64_t count, size_t bytes)
{
    void *memory = sp_calloc((size_t)count, bytes);
    return memory;
}

void case_pack(attention_case *c)
{
    if (c->packing.dp == 0) {
        c->cp = c->cp > 0 ? c->cp : 1;
        c->dp = c->dp > 0 ? c->dp : 1;
        c->parts = c->parts > 0 ? c->parts : 1;
        sp_packing_init(&c->packing, NULL, c->dp);
    }
    SP_ASSERT(sp_pack_list_begin(&c->packing.forward, 0, c->dp));
}

void case_slice(attention_case *c, int32_t sample, int64_t begin, int64_t tokens, int64_t padding)
{
    sp_slice slice = {
        .sample = sample, .begin = begin, .tokens = tokens, .computed_tokens = tokens + padding};
    SP_ASSERT(sp_pack_list_add(&c->packing.forward, slice, false));
}

void case_pack_of(attention_case *c, const int64_t slices[][4], size_t count)
{
    case_pack(c);
    for (size_t i = 0; i < count; i++) {
        case_slice(c, (int32_t)slices[i][0], slices[i][1], slices[i][2], slices[i][3]);
    }
}

// ---- what is expected ----

// Keys and values of a slice's sample up to its end, or its own part of their gradients back.
static void join_sample(const attention_case *c, int32_t number, double *prefix, bool back)
{
    const sp_i_exec_slice *slices = c->slices.slice;
    int64_t width = c->shape.kv_stride;
    for (int32_t e = number; e != SP_I_EXEC_NONE; e = slices[e].earlier) {
        int64_t shown = e == number ? slices[e].computed : slices[e].tokens;
        double *rows = prefix + slices[e].begin * width;
        for (int64_t i = 0; i < shown * width; i++) {
            if (back) {
                c->want[e].dkv[i] += rows[i];
            } else {
                rows[i] = c->kv[e][i];
            }
        }
    }
}

static void expect(const attention_case *c, int32_t number)
{
    const sp_kernel_attention_shape *shape = &c->shape;
    const sp_i_exec_slice *slice = &c->slices.slice[number];
    const case_result *want = &c->want[number];
    int64_t keys = (slice->begin + slice->computed) * shape->kv_stride;
    int64_t value = shape->kv_heads * shape->head_dim;
    double *kv = zeros(keys, sizeof *kv);
    double *dkv = zeros(keys, sizeof *dkv);
    double *workspace =
        zeros(sp_kernel_attention_workspace_f64(shape, slice->computed), sizeof *workspace);
    join_sample(c, number, kv, false);
    sp_kernel_attention_f64(shape, slice->begin, slice->computed, c->q[number], kv, kv + value,
                            want->out, want->lse, workspace);
    sp_kernel_attention_backward_input_f64(shape, slice->begin, slice->computed, c->q[number], kv,
                                           kv + value, want->out, c->dout[number], want->lse,
                                           want->dq, dkv, dkv + value, workspace);
    join_sample(c, number, dkv, true);
    sp_free(workspace);
    sp_free(dkv);
    sp_free(kv);
}

// ---- numbers ----

static double *draw(sp_prng *prng, int64_t count, double most)
{
    double *x = zeros(count, sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        float drawn = (float)(most * (2 * sp_prng_uniform(prng) - 1));
        x[i] = (double)sp_bf16_to_float(sp_bf16_from_float(drawn));
    }
    return x;
}

static case_result result_of(const attention_case *c, int64_t rows)
{
    return (case_result){.out = zeros(rows * c->shape.out_stride, sizeof(double)),
                         .lse = zeros(rows * c->shape.heads, sizeof(double)),
                         .dq = zeros(rows * c->shape.q_stride, sizeof(double)),
                         .dkv = zeros(rows * c->shape.kv_stride, sizeof(double))};
}

static void make_slices(attention_case *c)
{
    const sp_i_exec_place place = {.cp = c->cp, .parts = 1, .tp = 1};
    SP_ASSERT(sp_i_exec_slices_init(&c->slices, &c->packing, &place, NULL) == SP_OK);
    int64_t q = c->heads * c->head_dim;
    c->shape = (sp_kernel_attention_shape){.heads = c->heads,
                                           .kv_heads = c->kv_heads,
                                           .head_dim = c->head_dim,
                                           .q_stride = q,
                                           .kv_stride = 2 * c->kv_heads * c->head_dim,
                                           .out_stride = q,
                                           .scale = 1.0 / sqrt((double)c->head_dim)};
    int64_t count = (int64_t)c->slices.count;
    c->q = zeros(count, sizeof *c->q);
    c->kv = zeros(count, sizeof *c->kv);
    c->dout = zeros(count, sizeof *c->dout);
    c->want = zeros(count, sizeof *c->want);
    c->got = zeros(count, sizeof *c->got);
}

void case_fill(attention_case *c, uint64_t seed)
{
    sp_prng prng;
    sp_prng_seed(&prng, seed);
    make_slices(c);
    for (size_t s = 0; s < c->slices.count; s++) {
        int64_t rows = c->slices.slice[s].computed;
        c->q[s] = draw(&prng, rows * c->shape.q_stride, 2);
        c->kv[s] = draw(&prng, rows * c->shape.kv_stride, 2);
        c->dout[s] = draw(&prng, rows * c->shape.out_stride, 1);
        c->want[s] = result_of(c, rows);
        c->got[s] = result_of(c, rows);
    }
    for (size_t s = 0; s < c->slices.count; s++) {
        expect(c, (int32_t)s);
    }
}

// ---- errors ----

typedef struct norm {
    double error, want;
} norm;

// Of `columns` of rows of `stride`.
static void compare(int64_t rows, int64_t columns, int64_t stride, const double *want,
                    const double *got, norm *n)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = r * stride; i < r * stride + columns; i++) {
            n->error += (got[i] - want[i]) * (got[i] - want[i]);
            n->want += want[i] * want[i];
        }
    }
}

double case_error(const attention_case *c, double *lse_error)
{
    const sp_kernel_attention_shape *shape = &c->shape;
    int64_t value = shape->kv_heads * shape->head_dim;
    norm norms[4] = {{0}};
    *lse_error = 0;
    for (size_t s = 0; s < c->slices.count; s++) {
        const case_result *want = &c->want[s];
        const case_result *got = &c->got[s];
        int64_t rows = c->slices.slice[s].computed;
        compare(rows, shape->out_stride, shape->out_stride, want->out, got->out, &norms[0]);
        compare(rows, shape->q_stride, shape->q_stride, want->dq, got->dq, &norms[1]);
        compare(rows, value, shape->kv_stride, want->dkv, got->dkv, &norms[2]);
        compare(rows, value, shape->kv_stride, want->dkv + value, got->dkv + value, &norms[3]);
        for (int64_t i = 0; i < rows * shape->heads; i++) {
            // A NaN is an error too.
            double error = fabs(got->lse[i] - want->lse[i]);
            *lse_error = error <= *lse_error ? *lse_error : error;
        }
    }
    double most = 0;
    for (int i = 0; i < 4; i++) {
        double error = sqrt(norms[i].error / norms[i].want);
        most = error <= most ? most : error;
    }
    return most;
}

static void free_result(const case_result *result)
{
    sp_free(result->out);
    sp_free(result->lse);
    sp_free(result->dq);
    sp_free(result->dkv);
}

void case_fini(attention_case *c)
{
    for (size_t s = 0; s < c->slices.count; s++) {
        sp_free(c->q[s]);
        sp_free(c->kv[s]);
        sp_free(c->dout[s]);
        free_result(&c->want[s]);
        free_result(&c->got[s]);
    }
    sp_free(c->q);
    sp_free(c->kv);
    sp_free(c->dout);
    sp_free(c->want);
    sp_free(c->got);
    sp_i_exec_slices_fini(&c->slices);
    sp_packing_fini(&c->packing);
}
