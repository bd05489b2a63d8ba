#include <math.h>

#include "kernels/typed.h"
#include "kernels/vector.h"

SP_KERNEL_WIDE void SP_KERNEL(rms_norm)(int64_t tokens, int64_t features, const real *x,
                                        int64_t x_stride, const real *weight, double epsilon,
                                        real *y, int64_t y_stride, real *rstd)
{
    for (int64_t t = 0; t < tokens; t++) {
        const real *restrict row = x + t * x_stride;
        real *restrict to = y + t * y_stride;
        double mean_square = (double)row_dot(features, row, row) / (double)features;
        real scale = (real)(1.0 / sqrt(mean_square + epsilon));
        for (int64_t i = 0; i < features; i++) {
            to[i] = row[i] * scale * weight[i];
        }
        rstd[t] = scale;
    }
}

SP_KERNEL_WIDE void SP_KERNEL(rms_norm_backward_input)(int64_t tokens, int64_t features,
                                                       const real *x, int64_t x_stride,
                                                       const real *weight, const real *rstd,
                                                       const real *dy, int64_t dy_stride, real *dx,
                                                       int64_t dx_stride)
{
    for (int64_t t = 0; t < tokens; t++) {
        const real *restrict row = x + t * x_stride;
        const real *restrict from = dy + t * dy_stride;
        real *restrict to = dx + t * dx_stride;
        real scale = rstd[t];
        // mean(g xhat) xhat = x times this.
        real along = row_dot3(features, from, weight, row) * scale * scale / (real)features;
        for (int64_t i = 0; i < features; i++) {
            to[i] = scale * (from[i] * weight[i] - row[i] * along);
        }
    }
}

SP_KERNEL_WIDE void SP_KERNEL(rms_norm_backward_weight)(int64_t tokens, int64_t features,
                                                        const real *x, int64_t x_stride,
                                                        const real *rstd, const real *dy,
                                                        int64_t dy_stride, real *dweight)
{
    real *restrict sum = dweight;
    for (int64_t t = 0; t < tokens; t++) {
        const real *restrict row = x + t * x_stride;
        const real *restrict from = dy + t * dy_stride;
        real scale = rstd[t];
        for (int64_t i = 0; i < features; i++) {
            sum[i] += from[i] * (row[i] * scale);
        }
    }
}
