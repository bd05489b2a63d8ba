// Plain arrays, and the optimizer's step.
#include "backends/cuda/ops.h"
#include "kernels/cuda_kernels.h"

void SP_OP(add)(int64_t n, const sp_bf16 *x, sp_bf16 *y)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), add, n, x, y);
}

void SP_OP(add_exact)(int64_t n, const float *x, float *y)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), add_fp32, n, x, y);
}

void SP_OP(copy_rows)(int64_t rows, int64_t columns, const sp_bf16 *from, int64_t from_stride,
                      sp_bf16 *to, int64_t to_stride)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), copy_rows, rows, columns, from, from_stride, to, to_stride);
}

void SP_OP(round_rows)(int64_t rows, int64_t columns, const float *from, int64_t from_stride,
                       sp_bf16 *to, int64_t to_stride)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), round, rows, columns, from, from_stride, to, to_stride);
}

void SP_OP(drop)(int64_t n, const uint8_t *keeps, double scale, const sp_bf16 *x, sp_bf16 *y)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), drop, n, keeps, scale, x, y);
}

void SP_OP(adamw)(const sp_kernel_adamw_step *step, int64_t n, const float *gradient, float *master,
                  float *first, float *second, sp_bf16 *value)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), adamw, step, NULL, n, gradient, master, first, second,
                  value);
}
