// Linear layer. x [tokens, in], weight [out, in], bias [out] or NULL, y [tokens, out]. Each product
// takes 2 tokens in out operations. Strides are in elements, so that a layer can read or write some
// columns of a wider tensor (Q, K and V in one buffer, the parts of a tensor-parallel layer).
#include <stdbool.h>
#include <stdint.h>

#include "kernels/real.h"

// y = x W^T + b.
void SP_KERNEL(linear)(int64_t tokens, int64_t in, int64_t out, const real *x, int64_t x_stride,
                       const real *weight, int64_t weight_stride, const real *bias, real *y,
                       int64_t y_stride);

// dx = dy W, or dx += dy W with `accumulate`.
void SP_KERNEL(linear_backward_input)(int64_t tokens, int64_t in, int64_t out, const real *dy,
                                      int64_t dy_stride, const real *weight, int64_t weight_stride,
                                      bool accumulate, real *dx, int64_t dx_stride);

// dW += dy^T x, and db += the column sums of dy unless dbias is NULL.
void SP_KERNEL(linear_backward_weight)(int64_t tokens, int64_t in, int64_t out, const real *dy,
                                       int64_t dy_stride, const real *x, int64_t x_stride,
                                       real *dweight, int64_t dweight_stride, real *dbias);
