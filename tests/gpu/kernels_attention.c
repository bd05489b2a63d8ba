// Attention of segments against its definition over every pair in fp64, segment by segment. Sums
// are fp32 and results are rounded once to bf16: elements may be off by their own rounding and 0.1
// % of the largest. A backward takes the output as it was rounded: dQ and dK may be off by 1 %.
#include "tests/gpu/attention_reference.h"
#include "tests/gpu/kernels_test.h"

static const double ELEMENT_SHARE = 1e-3;
static const double ROUNDED_OUTPUT_SHARE = 1e-2;

enum { MOST = 4 };

typedef sp_cuda_attention_segment segment;

typedef struct problem {
    sp_kernel_attention_shape shape;
    segment segments[MOST];
    int64_t count;
    tensor q, k, v, out, lse, dout, delta, dq, dk, dv; // of all segments; strides leave gaps
} problem;

static void fill(problem *p, int64_t rows, int64_t key_rows, int64_t gradient_rows)
{
    sp_kernel_attention_shape *s = &p->shape;
    const int64_t q = s->heads * s->head_dim;
    const int64_t kv = s->kv_heads * s->head_dim;
    const tensor_layout q_gap = {0, 3}, kv_gap = {0, 5}, out_gap = {0, 1}, plain = {0, 0};
    s->q_stride = q + q_gap.gap;
    s->kv_stride = kv + kv_gap.gap;
    s->out_stride = q + out_gap.gap;
    s->scale = 1.0 / sqrt((double)s->head_dim);
    p->q = tensor_drawn(TENSOR_BF16, rows, q, q_gap, 1.5);
    p->k = tensor_drawn(TENSOR_BF16, key_rows, kv, kv_gap, 1.5);
    p->v = tensor_drawn(TENSOR_BF16, key_rows, kv, kv_gap, 1);
    p->out = tensor_drawn(TENSOR_BF16, rows, q, out_gap, 1);
    p->lse = tensor_drawn(TENSOR_FP32, rows, s->heads, plain, 1);
    p->dout = tensor_drawn(TENSOR_BF16, rows, q, out_gap, 1);
    p->delta = tensor_drawn(TENSOR_FP32, rows, s->heads, plain, 1);
    p->dq = tensor_drawn(TENSOR_BF16, rows, q, q_gap, 1);
    p->dk = tensor_drawn(TENSOR_BF16, gradient_rows, kv, plain, 1);
    p->dv = tensor_drawn(TENSOR_BF16, gradient_rows, kv, plain, 1);
}

static void *segments_on_device(const problem *p)
{
    const int64_t words = p->count * (int64_t)(sizeof(segment) / sizeof(int64_t));
    tensor room = tensor_drawn(TENSOR_INT64, 1, words, (tensor_layout){0, 0}, 0);
    device_put(room.device, p->segments, (size_t)p->count * sizeof(segment));
    return room.device;
}

static void compute(const problem *p, int64_t rows, int64_t gradient_rows)
{
    const sp_cuda_attention_pack pack = {.segments = segments_on_device(p),
                                         .count = p->count,
                                         .rows = rows,
                                         .gradient_rows = gradient_rows,
                                         .q = BF16(p->q),
                                         .k = BF16(p->k),
                                         .v = BF16(p->v),
                                         .out = BF16(p->out),
                                         .lse = FP32(p->lse),
                                         .dout = BF16(p->dout),
                                         .delta = FP32(p->delta),
                                         .dq = BF16(p->dq),
                                         .dk = BF16(p->dk),
                                         .dv = BF16(p->dv)};
    device_wait(sp_cuda_attention(&p->shape, &pack, false, NULL));
    device_wait(sp_cuda_attention(&p->shape, &pack, true, NULL));
}

// Rows of no segment stay as they were drawn.
static void check(problem *p, int64_t rows, int64_t key_rows, int64_t gradient_rows)
{
    fill(p, rows, key_rows, gradient_rows);
    double *out = tensor_values(&p->out), *lse = tensor_values(&p->lse);
    double *dq = tensor_values(&p->dq), *dk = tensor_values(&p->dk), *dv = tensor_values(&p->dv);
    for (int64_t i = 0; i < p->count; i++) {
        const segment *s = &p->segments[i];
        const sp_kernel_attention_shape *shape = &p->shape;
        const int64_t gradient = s->gradient_row * p->dk.stride;
        const attention_reference r = {.shape = *shape,
                                       .queries = s->queries,
                                       .keys = s->keys,
                                       .dkv_stride = p->dk.stride,
                                       .q = p->q.value + s->row * shape->q_stride,
                                       .k = p->k.value + s->key_row * shape->kv_stride,
                                       .v = p->v.value + s->key_row * shape->kv_stride,
                                       .d_out = p->dout.value + s->row * shape->out_stride,
                                       .out = out + s->row * shape->out_stride,
                                       .stats = lse + s->row * shape->heads,
                                       .dq = dq + s->row * shape->q_stride,
                                       .dk = dk + gradient,
                                       .dv = dv + gradient};
        attention_reference_compute(&r);
    }
    compute(p, rows, gradient_rows);
    tensor_check_share("attention", &p->out, out, BF16_ROUNDING, ELEMENT_SHARE);
    tensor_check("attention's lse", &p->lse, lse, 1e-6, 5e-5);
    tensor_check_share("attention's dq", &p->dq, dq, BF16_ROUNDING, ROUNDED_OUTPUT_SHARE);
    tensor_check_share("attention's dk", &p->dk, dk, BF16_ROUNDING, ROUNDED_OUTPUT_SHARE);
    tensor_check_share("attention's dv", &p->dv, dv, BF16_ROUNDING, ELEMENT_SHARE);
}

static void check_sample(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t tokens)
{
    problem p = {.shape = {.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim},
                 .segments = {{0, tokens, 0, tokens, 0}},
                 .count = 1};
    check(&p, tokens, tokens, tokens);
}

static void attention_sizes(void)
{
    static const int64_t tokens[] = {1, 15, 127, 128, 129, 200};
    for (int i = 0; i < 6; i++) {
        check_sample(1, 1, 16, tokens[i]);
    }
}

static void attention_head_dims(void)
{
    static const int64_t dims[] = {1, 12, 64, 128, 136, 256};
    for (int i = 0; i < 6; i++) {
        check_sample(2, 1, dims[i], 40);
    }
}

static void attention_grouped_heads(void)
{
    check_sample(6, 2, 8, 60);
    check_sample(4, 4, 16, 60);
}

// A late slice, a whole sample, and two runs of one sample that read the same keys; rows of none
// between them.
static void attention_of_a_pack(void)
{
    problem p = {.shape = {.heads = 2, .kv_heads = 1, .head_dim = 24},
                 .segments = {{0, 20, 0, 150, 0},
                              {22, 5, 150, 5, 150},
                              {27, 30, 155, 40, 155},
                              {57, 9, 155, 60, 195}},
                 .count = 4};
    check(&p, 70, 220, 255);
}

// Heads that no key head is shared by evenly, and a pack of nothing.
static void attention_refusals(void)
{
    const sp_cuda_attention_pack none = {.count = 0};
    sp_kernel_attention_shape shape = {.heads = 3, .kv_heads = 2, .head_dim = 8};
    EXPECT(sp_cuda_attention(&shape, &none, false, NULL) == 1);
    shape.kv_heads = 1;
    EXPECT(sp_cuda_attention(&shape, &none, false, NULL) == 0);
    EXPECT(sp_cuda_attention(&shape, &none, true, NULL) == 0);
}

const kernel_case kernels_attention_cases[] = {
    KERNEL_CASE(attention_sizes),         KERNEL_CASE(attention_head_dims),
    KERNEL_CASE(attention_grouped_heads), KERNEL_CASE(attention_of_a_pack),
    KERNEL_CASE(attention_refusals),      {NULL, NULL},
};
