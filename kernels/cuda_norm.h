// RMSNorm and LayerNorm on a CUDA device, by the formulas of norm.h. Activations and weights bf16,
// statistics and sums fp32, weight gradients added to in fp32. x, y, dx, dy [tokens, features],
// weight, bias, dweight, dbias [features], mean, rstd [tokens].
#ifndef SLIMPACK_KERNELS_CUDA_NORM_H
#define SLIMPACK_KERNELS_CUDA_NORM_H

#include "kernels/cuda_stream.h"

SP_CUDA_BEGIN

int sp_cuda_rms_norm(int64_t tokens, int64_t features, const sp_bf16 *x, int64_t x_stride,
                     const sp_bf16 *weight, double epsilon, sp_bf16 *y, int64_t y_stride,
                     float *rstd, sp_cuda_stream stream);

// Overwrites dx, which may be dy itself.
int sp_cuda_rms_norm_backward_input(int64_t tokens, int64_t features, const sp_bf16 *x,
                                    int64_t x_stride, const sp_bf16 *weight, const float *rstd,
                                    const sp_bf16 *dy, int64_t dy_stride, sp_bf16 *dx,
                                    int64_t dx_stride, sp_cuda_stream stream);

int sp_cuda_layer_norm(int64_t tokens, int64_t features, const sp_bf16 *x, int64_t x_stride,
                       const sp_bf16 *weight, const sp_bf16 *bias, double epsilon, sp_bf16 *y,
                       int64_t y_stride, float *mean, float *rstd, sp_cuda_stream stream);

int sp_cuda_layer_norm_backward_input(int64_t tokens, int64_t features, const sp_bf16 *x,
                                      int64_t x_stride, const sp_bf16 *weight, const float *mean,
                                      const float *rstd, const sp_bf16 *dy, int64_t dy_stride,
                                      sp_bf16 *dx, int64_t dx_stride, sp_cuda_stream stream);

// fp32 numbers of workspace that each call below needs. Their sums run in an order that depends on
// shape and alignment alone, so that equal input gives equal bits on every device.
int64_t sp_cuda_column_sums_workspace(int64_t tokens, int64_t features);

// dweight += sum over tokens of dy xhat.
int sp_cuda_rms_norm_backward_weight(int64_t tokens, int64_t features, const sp_bf16 *x,
                                     int64_t x_stride, const float *rstd, const sp_bf16 *dy,
                                     int64_t dy_stride, float *dweight, float *workspace,
                                     sp_cuda_stream stream);

// The same and dbias += sum over tokens of dy.
int sp_cuda_layer_norm_backward_weight(int64_t tokens, int64_t features, const sp_bf16 *x,
                                       int64_t x_stride, const float *mean, const float *rstd,
                                       const sp_bf16 *dy, int64_t dy_stride, float *dweight,
                                       float *dbias, float *workspace, sp_cuda_stream stream);

// dbias += column sums of dy: the bias of a linear layer.
int sp_cuda_bias_backward(int64_t tokens, int64_t features, const sp_bf16 *dy, int64_t dy_stride,
                          float *dbias, float *workspace, sp_cuda_stream stream);

SP_CUDA_END

#endif
