#include <math.h>

#include "kernels/typed.h"
#include "kernels/vector.h"

// ---- RMSNorm ----

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

// ---- LayerNorm ----

SP_KERNEL_WIDE void SP_KERNEL(layer_norm)(int64_t tokens, int64_t features, const real *x,
                                          int64_t x_stride, const real *weight, const real *bias,
                                          double epsilon, real *y, int64_t y_stride, real *mean,
                                          real *rstd)
{
    for (int64_t t = 0; t < tokens; t++) {
        const real *restrict row = x + t * x_stride;
        real *restrict to = y + t * y_stride;
        real centre = row_sum(features, row) / (real)features;
        // From the differences: the mean of squares less the square of the mean would cancel.
        for (int64_t i = 0; i < features; i++) {
            to[i] = row[i] - centre;
        }
        double variance = (double)row_dot(features, to, to) / (double)features;
        real scale = (real)(1.0 / sqrt(variance + epsilon));
        for (int64_t i = 0; i < features; i++) {
            to[i] = to[i] * scale * weight[i] + bias[i];
        }
        mean[t] = centre;
        rstd[t] = scale;
    }
}

// Writes g = dy weight; returns the sum of g (x - centre).
static inline real weigh(int64_t features, const real *restrict dy, const real *restrict weight,
                         const real *restrict x, real centre, real *restrict g)
{
    for (int64_t i = 0; i < features; i++) {
        g[i] = dy[i] * weight[i];
    }
    return row_dot(features, g, x) - centre * row_sum(features, g);
}

SP_KERNEL_WIDE void SP_KERNEL(layer_norm_backward_input)(int64_t tokens, int64_t features,
                                                         const real *x, int64_t x_stride,
                                                         const real *weight, const real *mean,
                                                         const real *rstd, const real *dy,
                                                         int64_t dy_stride, real *dx,
                                                         int64_t dx_stride)
{
    for (int64_t t = 0; t < tokens; t++) {
        const real *restrict row = x + t * x_stride;
        real *restrict to = dx + t * dx_stride;
        real centre = mean[t];
        real scale = rstd[t];
        real along = weigh(features, dy + t * dy_stride, weight, row, centre, to);
        along = along * scale * scale / (real)features;
        real level = row_sum(features, to) / (real)features;
        for (int64_t i = 0; i < features; i++) {
            to[i] = scale * (to[i] - level - (row[i] - centre) * along);
        }
    }
}

SP_KERNEL_WIDE void SP_KERNEL(layer_norm_backward_weight)(int64_t tokens, int64_t features,
                                                          const real *x, int64_t x_stride,
                                                          const real *mean, const real *rstd,
                                                          const real *dy, int64_t dy_stride,
                                                          real *dweight, real *dbias)
{
    real *restrict weight_sum = dweight;
    real *restrict bias_sum = dbias;
    for (int64_t t = 0; t < tokens; t++) {
        const real *restrict row = x + t * x_stride;
        const real *restrict from = dy + t * dy_stride;
        real centre = mean[t];
        real scale = rstd[t];
        for (int64_t i = 0; i < features; i++) {
            weight_sum[i] += from[i] * ((row[i] - centre) * scale);
            bias_sum[i] += from[i];
        }
    }
}
