#include <cuda_runtime_api.h>

#include "backends/cuda/calibrate/elements.h"
#include "kernels/cuda_kernels.h"

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
