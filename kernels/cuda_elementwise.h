// Sums and norms of plain arrays on a CUDA device.
#ifndef SLIMPACK_KERNELS_CUDA_ELEMENTWISE_H
#define SLIMPACK_KERNELS_CUDA_ELEMENTWISE_H

#include "kernels/cuda_stream.h"

SP_CUDA_BEGIN

// y += x, n elements: residual connections, and gradients that meet.
int sp_cuda_add(int64_t n, const sp_bf16 *x, sp_bf16 *y, sp_cuda_stream stream);

// The same in fp32: gradients of weights that meet.
int sp_cuda_add_fp32(int64_t n, const float *x, float *y, sp_cuda_stream stream);

// y = scale x where keeps[i] is not 0, else 0; a byte for each of n elements. y may be x.
int sp_cuda_drop(int64_t n, const uint8_t *keeps, double scale, const sp_bf16 *x, sp_bf16 *y,
                 sp_cuda_stream stream);

// y += bias of each row; y [tokens, features].
int sp_cuda_add_bias(int64_t tokens, int64_t features, const sp_bf16 *bias, sp_bf16 *y,
                     int64_t y_stride, sp_cuda_stream stream);

// y += x in fp32: gradients of keys and values that later slices left in bf16. [rows, columns].
int sp_cuda_accumulate(int64_t rows, int64_t columns, const sp_bf16 *x, int64_t x_stride, float *y,
                       int64_t y_stride, sp_cuda_stream stream);

// y = x rounded to bf16, [rows, columns].
int sp_cuda_round(int64_t rows, int64_t columns, const float *x, int64_t x_stride, sp_bf16 *y,
                  int64_t y_stride, sp_cuda_stream stream);

// fp64 numbers of workspace that sp_cuda_sum_of_squares needs.
enum { SP_CUDA_SUM_OF_SQUARES_WORKSPACE = 1024 };

// *sum = sum of x^2, or *sum += with `accumulate`; n elements, summed in fp64 and in an order that
// depends on n alone.
int sp_cuda_sum_of_squares(int64_t n, const float *x, bool accumulate, double *sum,
                           double *workspace, sp_cuda_stream stream);

SP_CUDA_END

#endif
