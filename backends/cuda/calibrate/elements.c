#include "backends/cuda/calibrate/elements.h"

#include "kernels/cuda_grid.h"
#include "sim/model/shard.h"

const char *const sp_i_cuda_element_names[] = {"rms_norm",
                                               "rms_norm_backward",
                                               "layer_norm",
                                               "layer_norm_backward",
                                               "swiglu",
                                               "swiglu_backward",
                                               "gelu",
                                               "gelu_backward",
                                               "rope",
                                               "residual_add",
                                               "embedding",
                                               "embedding_backward",
                                               "cross_entropy",
                                               "cross_entropy_backward",
                                               "key_value_gradient",
                                               "adamw",
                                               NULL};

enum { BF16 = 2, FP32 = 4, INDEX = 8, ALIGNMENT = 256 };

// ---- sizes ----

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t widest(const sp_i_cuda_element_shape *s)
{
    return largest(largest(s->hidden, s->ffn), largest(s->q + s->kv, 2 * s->kv));
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int64_t activation_bytes(const sp_i_cuda_element_shape *s)
{
    return aligned(BF16 * s->tokens * widest(s));
}

static int64_t wide_bytes(const sp_i_cuda_element_shape *s)
{
    // Angles of the rotation are in here as well.
    return aligned(FP32 * s->tokens * largest(largest(s->hidden, 2 * s->kv), s->head_dim));
}

sp_i_cuda_element_shape sp_i_cuda_element_shape_of(const sp_model *model, int64_t tokens,
                                                   int64_t memory_tokens)
{
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    const sp_i_shard shard = sp_i_shard_of(model, &layout);
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
    return aligned(FP32 * 2 * SP_I_CUDA_SLABS * s->hidden);
}

int64_t sp_i_cuda_element_bytes(const sp_i_cuda_element_shape *s)
{
    return sp_i_cuda_element_drawn(s) + 2 * aligned(BF16 * s->hidden) +
           2 * aligned(FP32 * s->hidden) + SP_I_CUDA_ELEMENT_ROWS * aligned(FP32 * s->tokens) +
           column_sums_bytes(s) + ALIGNMENT + 2 * aligned(INDEX * s->tokens);
}

static void *take(char **next, int64_t bytes)
{
    char *data = *next;
    *next += aligned(bytes);
    return data;
}

void sp_i_cuda_element_place(const sp_i_cuda_element_shape *s, void *memory,
                             sp_i_cuda_element_data *data)
{
    char *next = memory;
    for (int i = 0; i < SP_I_CUDA_ELEMENT_BF16; i++) {
        data->x[i] = take(&next, activation_bytes(s));
    }
    for (int i = 0; i < SP_I_CUDA_ELEMENT_FP32; i++) {
        data->wide[i] = take(&next, wide_bytes(s));
    }
    for (int i = 0; i < 2; i++) {
        data->vector[i] = take(&next, BF16 * s->hidden);
        data->column[i] = take(&next, FP32 * s->hidden);
    }
    for (int i = 0; i < SP_I_CUDA_ELEMENT_ROWS; i++) {
        data->row[i] = take(&next, FP32 * s->tokens);
    }
    data->workspace = take(&next, column_sums_bytes(s));
    data->loss = take(&next, ALIGNMENT);
    data->index = take(&next, INDEX * s->tokens);
    data->order = take(&next, INDEX * s->tokens);
    SP_ASSERT(next - (char *)memory == sp_i_cuda_element_bytes(s));
}

// ---- bytes ----

static double moved(sp_i_cuda_element element, const sp_i_cuda_element_shape *s)
{
    double t = (double)s->tokens;
    double h = (double)s->hidden;
    double f = (double)s->ffn;
    double logits = (double)s->loss_tokens * (double)s->vocab;
    switch (element) {
    case SP_I_CUDA_RMS_NORM:
    case SP_I_CUDA_LAYER_NORM:
    case SP_I_CUDA_LOOKUP:
        return 2.0 * BF16 * t * h;
    case SP_I_CUDA_RMS_NORM_BACKWARD:
    case SP_I_CUDA_LAYER_NORM_BACKWARD: // input and gradient are read twice
        return 5.0 * BF16 * t * h;
    case SP_I_CUDA_SWIGLU:
        return 3.0 * BF16 * t * f;
    case SP_I_CUDA_SWIGLU_BACKWARD:
        return 5.0 * BF16 * t * f;
    case SP_I_CUDA_GELU:
        return 2.0 * BF16 * t * f;
    case SP_I_CUDA_GELU_BACKWARD:
        return 3.0 * BF16 * t * f;
    case SP_I_CUDA_ROPE:
        return 2.0 * BF16 * t * (double)(s->q + s->kv);
    case SP_I_CUDA_RESIDUAL_ADD:
        return 3.0 * BF16 * t * h;
    case SP_I_CUDA_LOOKUP_BACKWARD:
        return BF16 * t * h + 2.0 * FP32 * (double)s->distinct * h;
    case SP_I_CUDA_CROSS_ENTROPY:
        return BF16 * logits;
    case SP_I_CUDA_CROSS_ENTROPY_BACKWARD:
        return 2.0 * BF16 * logits;
    case SP_I_CUDA_KEY_VALUE_GRADIENT:
        return (BF16 + 2.0 * FP32) * t * 2.0 * (double)s->kv;
    case SP_I_CUDA_ADAMW: // four read, three and the bf16 copy written, the gradient cleared
        return (8.0 * FP32 + BF16) * t * h;
    case SP_I_CUDA_ELEMENTS:
        break;
    }
    return 0.0;
}

sp_i_cuda_element_cost sp_i_cuda_element_cost_of(sp_i_cuda_element element,
                                                 const sp_i_cuda_element_shape *s)
{
    sp_i_cuda_element_cost cost = {moved(element, s), moved(element, s), 1};
    double states = BF16 * (double)s->tokens * (double)s->hidden;
    switch (element) {
    case SP_I_CUDA_RMS_NORM_BACKWARD:
    case SP_I_CUDA_LAYER_NORM_BACKWARD:
    case SP_I_CUDA_LOOKUP_BACKWARD:
        cost.counted_bytes = 3.0 * states;
        break;
    case SP_I_CUDA_ROPE:
        cost.counted_kernels = 2;
        break;
    case SP_I_CUDA_CROSS_ENTROPY:
        cost.counted_bytes = 0.0;
        cost.counted_kernels = 6;
        break;
    case SP_I_CUDA_CROSS_ENTROPY_BACKWARD:
        cost.counted_bytes = 0.0;
        cost.counted_kernels = 2;
        break;
    case SP_I_CUDA_KEY_VALUE_GRADIENT:
    case SP_I_CUDA_ADAMW:
        cost.counted_bytes = 0.0;
        cost.counted_kernels = 0;
        break;
    default:
        break;
    }
    return cost;
}

// A layer has two norms and two blocks whose outputs are added to the residual path, forward and
// backward, and turns queries and keys once each way.
int sp_i_cuda_element_in_layer(sp_i_cuda_element element, const sp_model *model)
{
    bool rms = model->norm == SP_RMSNORM;
    bool swiglu = model->activation == SP_SWIGLU;
    switch (element) {
    case SP_I_CUDA_RMS_NORM:
    case SP_I_CUDA_RMS_NORM_BACKWARD:
        return rms ? 2 : 0;
    case SP_I_CUDA_LAYER_NORM:
    case SP_I_CUDA_LAYER_NORM_BACKWARD:
        return rms ? 0 : 2;
    case SP_I_CUDA_SWIGLU:
    case SP_I_CUDA_SWIGLU_BACKWARD:
        return swiglu ? 1 : 0;
    case SP_I_CUDA_GELU:
    case SP_I_CUDA_GELU_BACKWARD:
        return swiglu ? 0 : 1;
    case SP_I_CUDA_ROPE:
        return model->positional == SP_ROPE ? 2 : 0;
    case SP_I_CUDA_RESIDUAL_ADD:
        return 4;
    default:
        return 0;
    }
}
