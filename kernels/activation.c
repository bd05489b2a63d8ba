#include "kernels/exp.h"
#include "kernels/typed.h"
#include "kernels/vector.h"

static inline real sigmoid(real x)
{
    return (real)1.0 / ((real)1.0 + exp_real(-x));
}

SP_KERNEL_WIDE void SP_KERNEL(swiglu)(int64_t tokens, int64_t features, const real *gate,
                                      const real *up, int64_t in_stride, real *y, int64_t y_stride)
{
    for (int64_t t = 0; t < tokens; t++) {
        const real *restrict g = gate + t * in_stride;
        const real *restrict u = up + t * in_stride;
        real *restrict to = y + t * y_stride;
        for (int64_t i = 0; i < features; i++) {
            to[i] = g[i] * sigmoid(g[i]) * u[i];
        }
    }
}

SP_KERNEL_WIDE void SP_KERNEL(swiglu_backward)(int64_t tokens, int64_t features, const real *gate,
                                               const real *up, int64_t in_stride, const real *dy,
                                               int64_t dy_stride, real *dgate, real *dup,
                                               int64_t din_stride)
{
    for (int64_t t = 0; t < tokens; t++) {
        const real *restrict g = gate + t * in_stride;
        const real *restrict u = up + t * in_stride;
        const real *restrict from = dy + t * dy_stride;
        real *restrict to_gate = dgate + t * din_stride;
        real *restrict to_up = dup + t * din_stride;
        for (int64_t i = 0; i < features; i++) {
            real s = sigmoid(g[i]);
            to_up[i] = from[i] * g[i] * s;
            to_gate[i] = from[i] * u[i] * s * ((real)1.0 + g[i] * ((real)1.0 - s));
        }
    }
}

#define GELU_SQRT_2_OVER_PI ((real)0.79788456080286536)
#define GELU_CUBIC ((real)0.044715)

SP_KERNEL_WIDE void SP_KERNEL(gelu)(int64_t n, const real *restrict x, real *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        real u = GELU_SQRT_2_OVER_PI * (x[i] + GELU_CUBIC * x[i] * x[i] * x[i]);
        y[i] = x[i] * sigmoid((real)2.0 * u);
    }
}

SP_KERNEL_WIDE void SP_KERNEL(gelu_backward)(int64_t n, const real *restrict x,
                                             const real *restrict dy, real *restrict dx)
{
    for (int64_t i = 0; i < n; i++) {
        real square = x[i] * x[i];
        real u = GELU_SQRT_2_OVER_PI * (x[i] + GELU_CUBIC * square * x[i]);
        real slope = GELU_SQRT_2_OVER_PI * ((real)1.0 + (real)3.0 * GELU_CUBIC * square);
        real s = sigmoid((real)2.0 * u);
        dx[i] = dy[i] * (s + x[i] * s * ((real)1.0 - s) * (real)2.0 * slope);
    }
}
