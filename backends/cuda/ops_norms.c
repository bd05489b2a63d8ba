#include "backends/cuda/ops.h"
#include "kernels/cuda_kernels.h"

// Holds the rank's lane, for sums over tokens.
static float *column_sums_workspace(sp_i_cuda_rank *rank, int64_t tokens, int64_t features)
{
    sp_i_cuda_hold(rank);
    return sp_i_cuda_scratch(rank, sp_cuda_column_sums_workspace(tokens, features) *
                                       (int64_t)sizeof(float));
}

void SP_OP(rms_norm)(int64_t tokens, int64_t features, const sp_bf16 *x, const sp_bf16 *weight,
                     double epsilon, sp_bf16 *y, float *rstd)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), rms_norm, tokens, features, x, features, weight, epsilon, y,
                  features, rstd);
}

void SP_OP(rms_norm_backward_input)(int64_t tokens, int64_t features, const sp_bf16 *x,
                                    const sp_bf16 *weight, const float *rstd, const sp_bf16 *dy,
                                    sp_bf16 *dx)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), rms_norm_backward_input, tokens, features, x, features,
                  weight, rstd, dy, features, dx, features);
}

void SP_OP(rms_norm_backward_weight)(int64_t tokens, int64_t features, const sp_bf16 *x,
                                     const float *rstd, const sp_bf16 *dy, float *dweight)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    float *workspace = column_sums_workspace(rank, tokens, features);
    SP_I_CUDA_PUT(rank, rms_norm_backward_weight, tokens, features, x, features, rstd, dy, features,
                  dweight, workspace);
    sp_i_cuda_release(rank);
}

void SP_OP(layer_norm)(int64_t tokens, int64_t features, const sp_bf16 *x, const sp_bf16 *weight,
                       const sp_bf16 *bias, double epsilon, sp_bf16 *y, float *mean, float *rstd)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), layer_norm, tokens, features, x, features, weight, bias,
                  epsilon, y, features, mean, rstd);
}

void SP_OP(layer_norm_backward_input)(int64_t tokens, int64_t features, const sp_bf16 *x,
                                      const sp_bf16 *weight, const float *mean, const float *rstd,
                                      const sp_bf16 *dy, sp_bf16 *dx)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), layer_norm_backward_input, tokens, features, x, features,
                  weight, mean, rstd, dy, features, dx, features);
}

void SP_OP(layer_norm_backward_weight)(int64_t tokens, int64_t features, const sp_bf16 *x,
                                       const float *mean, const float *rstd, const sp_bf16 *dy,
                                       float *dweight, float *dbias)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    float *workspace = column_sums_workspace(rank, tokens, features);
    SP_I_CUDA_PUT(rank, layer_norm_backward_weight, tokens, features, x, features, mean, rstd, dy,
                  features, dweight, dbias, workspace);
    sp_i_cuda_release(rank);
}
