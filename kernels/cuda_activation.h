// Activations of the MLP on a CUDA device, by the formulas of activation.h; one rounding to bf16.
#ifndef SLIMPACK_KERNELS_CUDA_ACTIVATION_H
#define SLIMPACK_KERNELS_CUDA_ACTIVATION_H

#include "kernels/cuda_stream.h"

SP_CUDA_BEGIN

// y = gate sigmoid(gate) up. gate and up [tokens, features] share a stride.
int sp_cuda_swiglu(int64_t tokens, int64_t features, const sp_bf16 *gate, const sp_bf16 *up,
                   int64_t in_stride, sp_bf16 *y, int64_t y_stride, sp_cuda_stream stream);

// Overwrites dgate and dup, which share din_stride; they may be gate and up themselves.
int sp_cuda_swiglu_backward(int64_t tokens, int64_t features, const sp_bf16 *gate,
                            const sp_bf16 *up, int64_t in_stride, const sp_bf16 *dy,
                            int64_t dy_stride, sp_bf16 *dgate, sp_bf16 *dup, int64_t din_stride,
                            sp_cuda_stream stream);

// GELU in its tanh form, n elements.
int sp_cuda_gelu(int64_t n, const sp_bf16 *x, sp_bf16 *y, sp_cuda_stream stream);

// Overwrites dx, which may be dy itself.
int sp_cuda_gelu_backward(int64_t n, const sp_bf16 *x, const sp_bf16 *dy, sp_bf16 *dx,
                          sp_cuda_stream stream);

SP_CUDA_END

#endif
