// Activations of the MLP. Linear time; a backward recomputes what it needs from the inputs.
#include <stdint.h>

#include "kernels/real.h"

// SwiGLU (Shazeer: "GLU Variants Improve Transformer", 2020, equation 6 without the products):
// y = gate sigmoid(gate) up. gate and up [tokens, features] share a stride, so that both may be
// halves of one buffer.
void SP_KERNEL(swiglu)(int64_t tokens, int64_t features, const real *gate, const real *up,
                       int64_t in_stride, real *y, int64_t y_stride);

// Overwrites dgate and dup, which share din_stride.
void SP_KERNEL(swiglu_backward)(int64_t tokens, int64_t features, const real *gate, const real *up,
                                int64_t in_stride, const real *dy, int64_t dy_stride, real *dgate,
                                real *dup, int64_t din_stride);

// GELU in the tanh form that GPT-2 uses (Hendrycks, Gimpel: "Gaussian Error Linear Units", 2016,
// section 2): y = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), n elements. Computed as
// x sigmoid(2 u), which is the same.
void SP_KERNEL(gelu)(int64_t n, const real *restrict x, real *restrict y);

// Overwrites dx.
void SP_KERNEL(gelu_backward)(int64_t n, const real *restrict x, const real *restrict dy,
                              real *restrict dx);
