// Activations and rotation.
#include "backends/cuda/ops.h"
#include "kernels/cuda_kernels.h"

void SP_OP(swiglu)(int64_t tokens, int64_t features, const sp_bf16 *x, sp_bf16 *y)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), swiglu, tokens, features, x, x + features, 2 * features, y,
                  features);
}

void SP_OP(swiglu_backward)(int64_t tokens, int64_t features, const sp_bf16 *x, const sp_bf16 *dy,
                            sp_bf16 *dx)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), swiglu_backward, tokens, features, x, x + features,
                  2 * features, dy, features, dx, dx + features, 2 * features);
}

void SP_OP(gelu)(int64_t n, const sp_bf16 *x, sp_bf16 *y)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), gelu, n, x, y);
}

void SP_OP(gelu_backward)(int64_t n, const sp_bf16 *x, const sp_bf16 *dy, sp_bf16 *dx)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), gelu_backward, n, x, dy, dx);
}

void SP_OP(rope_table)(int64_t positions, int64_t head_dim, double base, float *cosine, float *sine)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), rope_table, positions, head_dim, base, cosine, sine);
}

void SP_OP(rope)(int64_t tokens, int64_t begin, int64_t heads, int64_t head_dim,
                 const float *cosine, const float *sine, bool backward, sp_bf16 *x,
                 int64_t x_stride)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), rope_run, tokens, begin, heads, head_dim, cosine, sine,
                  backward, x, x_stride);
}
