#include "backends/cuda/calibrate/elements.h"

#include <cuda_runtime_api.h>

#include "backends/cuda/calibrate/bench.h"
#include "kernels/cuda_grid.h"
#include "kernels/cuda_kernels.h"
#include "sim/model/layout.h"

enum { BF16 = 2, FP32 = 4, INDEX = 8, LOSS = 256 };

// What an element moves, in bytes for each: number of the hidden states, of the MLP's activation,
// of queries and keys, of keys and values, of the logits, of the distinct rows of a table. What the
// cost model counts of it: all of that, so many bytes for each number of the hidden states, or
// nothing; and kernels. How often it stands in a layer, in whose models: a layer has two norms and
// two blocks whose outputs are added to the residual path, forward and backward, and turns queries
// and keys once each way.
typedef enum models { ALL, RMS, LAYER_NORM, SWIGLU, GELU, ROPE } models;
enum { AS_MOVED = -1, BACKWARD = 3 * BF16 };

static const struct element {
    const char *name;
    double states, ffn, turned, kv, logits, rows;
    double counted;
    int kernels;
    int in_layer;
    models of;
} elements[] = {
    [SP_I_CUDA_RMS_NORM] = {"rms_norm", 2 * BF16, .counted = AS_MOVED, 1, 2, RMS},
    // Input and gradient are read twice.
    [SP_I_CUDA_RMS_NORM_BACKWARD] = {"rms_norm_backward", 5 * BF16, .counted = BACKWARD, 1, 2, RMS},
    [SP_I_CUDA_LAYER_NORM] = {"layer_norm", 2 * BF16, .counted = AS_MOVED, 1, 2, LAYER_NORM},
    [SP_I_CUDA_LAYER_NORM_BACKWARD] = {"layer_norm_backward", 5 * BF16, .counted = BACKWARD, 1, 2,
                                       LAYER_NORM},
    [SP_I_CUDA_SWIGLU] = {"swiglu", .ffn = 3 * BF16, .counted = AS_MOVED, 1, 1, SWIGLU},
    [SP_I_CUDA_SWIGLU_BACKWARD] = {"swiglu_backward", .ffn = 5 * BF16, .counted = AS_MOVED, 1, 1,
                                   SWIGLU},
    [SP_I_CUDA_GELU] = {"gelu", .ffn = 2 * BF16, .counted = AS_MOVED, 1, 1, GELU},
    [SP_I_CUDA_GELU_BACKWARD] = {"gelu_backward", .ffn = 3 * BF16, .counted = AS_MOVED, 1, 1, GELU},
    [SP_I_CUDA_ROPE] = {"rope", .turned = 2 * BF16, .counted = AS_MOVED, 2, 2, ROPE},
    [SP_I_CUDA_RESIDUAL_ADD] = {"residual_add", 3 * BF16, .counted = AS_MOVED, 1, 4},
    [SP_I_CUDA_LOOKUP] = {"embedding", 2 * BF16, .counted = AS_MOVED, 1},
    [SP_I_CUDA_LOOKUP_BACKWARD] = {"embedding_backward", BF16, .rows = 2 * FP32,
                                   .counted = BACKWARD, 1},
    [SP_I_CUDA_CROSS_ENTROPY] = {"cross_entropy", .logits = BF16, .kernels = 6},
    [SP_I_CUDA_CROSS_ENTROPY_BACKWARD] = {"cross_entropy_backward", .logits = 2 * BF16,
                                          .kernels = 2},
    [SP_I_CUDA_KEY_VALUE_GRADIENT] = {"key_value_gradient", .kv = BF16 + 2 * FP32},
    // Four read, three and the bf16 copy written, the gradient cleared.
    [SP_I_CUDA_ADAMW] = {"adamw", 8 * FP32 + BF16}};

const char *sp_i_cuda_element_name(sp_i_cuda_element element)
{
    return elements[element].name;
}

// ---- sizes ----

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t widest(const sp_i_cuda_element_shape *s)
{
    return largest(largest(s->hidden, s->ffn), largest(s->q + s->kv, 2 * s->kv));
}

static int64_t activation_bytes(const sp_i_cuda_element_shape *s)
{
    return sp_i_cuda_aligned_bytes(BF16 * s->tokens * widest(s));
}

static int64_t wide_bytes(const sp_i_cuda_element_shape *s)
{
    // Angles of the rotation are in here as well.
    return sp_i_cuda_aligned_bytes(FP32 * s->tokens *
                                   largest(largest(s->hidden, 2 * s->kv), s->head_dim));
}

sp_i_cuda_element_shape sp_i_cuda_element_shape_of(const sp_model *model, int64_t tokens,
                                                   int64_t memory_tokens)
{
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    const sp_shard shard = sp_shard_of(model, &layout);
    sp_i_cuda_element_shape s = {.tokens = memory_tokens,
                                 .hidden = model->hidden,
                                 .q = shard.q,
                                 .kv = shard.kv,
                                 .head_dim = model->head_dim,
                                 .ffn = shard.ffn,
                                 .vocab = shard.vocab};
    int64_t room = SP_I_CUDA_ELEMENT_BF16 * (activation_bytes(&s) / BF16) / s.vocab;
    s.tokens = tokens;
    s.loss_tokens = room < tokens ? room : tokens;
    s.distinct = tokens;
    return s;
}

int64_t sp_i_cuda_element_drawn(const sp_i_cuda_element_shape *s)
{
    return SP_I_CUDA_ELEMENT_BF16 * activation_bytes(s) + SP_I_CUDA_ELEMENT_FP32 * wide_bytes(s);
}

// At least what sp_cuda_column_sums_workspace says of any number of tokens.
static int64_t column_sums_bytes(const sp_i_cuda_element_shape *s)
{
    return sp_i_cuda_aligned_bytes(FP32 * 2 * SP_I_CUDA_SLABS * s->hidden);
}

int64_t sp_i_cuda_element_bytes(const sp_i_cuda_element_shape *s)
{
    return sp_i_cuda_element_drawn(s) + 2 * sp_i_cuda_aligned_bytes(BF16 * s->hidden) +
           2 * sp_i_cuda_aligned_bytes(FP32 * s->hidden) +
           SP_I_CUDA_ELEMENT_ROWS * sp_i_cuda_aligned_bytes(FP32 * s->tokens) +
           column_sums_bytes(s) + LOSS + 2 * sp_i_cuda_aligned_bytes(INDEX * s->tokens);
}

void sp_i_cuda_element_place(const sp_i_cuda_element_shape *s, void *memory,
                             sp_i_cuda_element_data *data)
{
    char *next = memory;
    for (int i = 0; i < SP_I_CUDA_ELEMENT_BF16; i++) {
        data->x[i] = sp_i_cuda_take_part(&next, activation_bytes(s));
    }
    for (int i = 0; i < SP_I_CUDA_ELEMENT_FP32; i++) {
        data->wide[i] = sp_i_cuda_take_part(&next, wide_bytes(s));
    }
    for (int i = 0; i < 2; i++) {
        data->vector[i] = sp_i_cuda_take_part(&next, BF16 * s->hidden);
        data->column[i] = sp_i_cuda_take_part(&next, FP32 * s->hidden);
    }
    for (int i = 0; i < SP_I_CUDA_ELEMENT_ROWS; i++) {
        data->row[i] = sp_i_cuda_take_part(&next, FP32 * s->tokens);
    }
    data->workspace = sp_i_cuda_take_part(&next, column_sums_bytes(s));
    data->loss = sp_i_cuda_take_part(&next, LOSS);
    data->index = sp_i_cuda_take_part(&next, INDEX * s->tokens);
    data->order = sp_i_cuda_take_part(&next, INDEX * s->tokens);
    SP_ASSERT(next - (char *)memory == sp_i_cuda_element_bytes(s));
}

// ---- bytes ----

sp_i_cuda_element_cost sp_i_cuda_element_cost_of(sp_i_cuda_element element,
                                                 const sp_i_cuda_element_shape *s)
{
    const struct element *e = &elements[element];
    const double t = (double)s->tokens;
    const double h = (double)s->hidden;
    const double moved = e->states * t * h + e->ffn * t * (double)s->ffn +
                         e->turned * t * (double)(s->q + s->kv) + e->kv * t * 2.0 * (double)s->kv +
                         e->logits * (double)s->loss_tokens * (double)s->vocab +
                         e->rows * (double)s->distinct * h;
    return (sp_i_cuda_element_cost){moved, e->counted < 0.0 ? moved : e->counted * t * h,
                                    e->kernels};
}

int sp_i_cuda_element_in_layer(sp_i_cuda_element element, const sp_model *model)
{
    const bool rms = model->norm == SP_RMSNORM;
    const bool swiglu = model->activation == SP_SWIGLU;
    const bool holds[] = {true, rms, !rms, swiglu, !swiglu, model->positional == SP_ROPE};
    return holds[elements[element].of] ? elements[element].in_layer : 0;
}

#define EPSILON 1e-5

static int norm_backward(bool rms, const sp_i_cuda_element_shape *s,
                         const sp_i_cuda_element_data *d, cudaStream_t stream)
{
    int64_t t = s->tokens;
    int64_t h = s->hidden;
    int code = rms ? sp_cuda_rms_norm_backward_input(t, h, d->x[0], h, d->vector[0], d->row[0],
                                                     d->x[1], h, d->x[2], h, stream)
                   : sp_cuda_layer_norm_backward_input(t, h, d->x[0], h, d->vector[0], d->row[1],
                                                       d->row[0], d->x[1], h, d->x[2], h, stream);
    if (code != 0) {
        return code;
    }
    return rms ? sp_cuda_rms_norm_backward_weight(t, h, d->x[0], h, d->row[0], d->x[1], h,
                                                  d->column[0], d->workspace, stream)
               : sp_cuda_layer_norm_backward_weight(t, h, d->x[0], h, d->row[1], d->row[0], d->x[1],
                                                    h, d->column[0], d->column[1], d->workspace,
                                                    stream);
}

// Any numbers will do as cosines and sines.
static int rope(const sp_i_cuda_element_shape *s, const sp_i_cuda_element_data *d,
                cudaStream_t stream)
{
    int64_t dim = s->head_dim;
    int code = sp_cuda_rope(s->tokens, s->q / dim, dim, d->index, d->wide[0], d->wide[1], false,
                            d->x[0], s->q, stream);
    return code != 0 ? code
                     : sp_cuda_rope(s->tokens, s->kv / dim, dim, d->index, d->wide[0], d->wide[1],
                                    false, d->x[1], s->kv, stream);
}

static int cross_entropy(const sp_i_cuda_element_shape *s, const sp_i_cuda_element_data *d,
                         cudaStream_t stream)
{
    int64_t t = s->loss_tokens;
    int code = sp_cuda_cross_entropy_local(t, s->vocab, 0, d->x[0], s->vocab, d->index, d->row[0],
                                           d->row[1], d->row[2], stream);
    return code != 0 ? code
                     : sp_cuda_cross_entropy_loss(t, d->index, NULL, (double)t, d->row[0],
                                                  d->row[1], d->row[2], d->row[3], d->loss, stream);
}

static int adamw(const sp_i_cuda_element_shape *s, const sp_i_cuda_element_data *d,
                 cudaStream_t stream)
{
    const sp_kernel_adamw_step step = {.step = 3,
                                       .learning_rate = 1e-4,
                                       .beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .epsilon = 1e-8,
                                       .gradient_scale = 1.0};
    return sp_cuda_adamw(&step, NULL, s->tokens * s->hidden, d->wide[0], d->wide[1], d->wide[2],
                         d->wide[3], d->x[0], stream);
}

int sp_i_cuda_launch_element(sp_i_cuda_element element, const sp_i_cuda_element_shape *s,
                             const sp_i_cuda_element_data *d, cudaStream_t stream)
{
    const int64_t t = s->tokens;
    const int64_t h = s->hidden;
    const int64_t f = s->ffn;
    sp_bf16 *const *x = d->x;
    switch (element) {
    case SP_I_CUDA_RMS_NORM:
        return sp_cuda_rms_norm(t, h, x[0], h, d->vector[0], EPSILON, x[1], h, d->row[0], stream);
    case SP_I_CUDA_LAYER_NORM:
        return sp_cuda_layer_norm(t, h, x[0], h, d->vector[0], d->vector[1], EPSILON, x[1], h,
                                  d->row[1], d->row[0], stream);
    case SP_I_CUDA_RMS_NORM_BACKWARD:
    case SP_I_CUDA_LAYER_NORM_BACKWARD:
        return norm_backward(element == SP_I_CUDA_RMS_NORM_BACKWARD, s, d, stream);
    case SP_I_CUDA_SWIGLU:
        return sp_cuda_swiglu(t, f, x[0], x[1], f, x[2], f, stream);
    case SP_I_CUDA_SWIGLU_BACKWARD:
        return sp_cuda_swiglu_backward(t, f, x[0], x[1], f, x[2], f, x[3], x[4], f, stream);
    case SP_I_CUDA_GELU:
        return sp_cuda_gelu(t * f, x[0], x[1], stream);
    case SP_I_CUDA_GELU_BACKWARD:
        return sp_cuda_gelu_backward(t * f, x[0], x[1], x[2], stream);
    case SP_I_CUDA_ROPE:
        return rope(s, d, stream);
    case SP_I_CUDA_RESIDUAL_ADD:
        return sp_cuda_add(t * h, x[0], x[1], stream);
    case SP_I_CUDA_LOOKUP:
        return sp_cuda_embedding(t, h, d->index, 0, t, x[0], false, x[1], h, stream);
    case SP_I_CUDA_LOOKUP_BACKWARD:
        return sp_cuda_embedding_backward_weight(t, h, d->index, d->order, 0, t, x[0], h,
                                                 d->wide[0], stream);
    case SP_I_CUDA_CROSS_ENTROPY:
        return cross_entropy(s, d, stream);
    case SP_I_CUDA_CROSS_ENTROPY_BACKWARD:
        return sp_cuda_cross_entropy_backward(s->loss_tokens, s->vocab, 0, x[0], s->vocab, d->index,
                                              NULL, (double)s->loss_tokens, d->row[3], x[0],
                                              s->vocab, stream);
    case SP_I_CUDA_KEY_VALUE_GRADIENT:
        return sp_cuda_accumulate(t, 2 * s->kv, x[0], 2 * s->kv, d->wide[0], 2 * s->kv, stream);
    case SP_I_CUDA_ADAMW:
        return adamw(s, d, stream);
    case SP_I_CUDA_ELEMENTS:
        break;
    }
    return cudaErrorInvalidValue;
}
