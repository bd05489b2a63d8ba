// Normalisation over the features of each token, with a weight for each feature. x, y, dx, dy
// [tokens, features] with strides, weight, bias [features], mean, rstd [tokens]. Time is linear in
// tokens x features; what a backward needs beside x is one or two numbers a token.
#include <stdint.h>

#include "kernels/real.h"

// RMSNorm (Zhang, Sennrich: "Root Mean Square Layer Normalization", 2019, equation 4):
// rstd = 1 / sqrt(mean(x^2) + epsilon), y = x rstd weight. Writes y and rstd.
void SP_KERNEL(rms_norm)(int64_t tokens, int64_t features, const real *x, int64_t x_stride,
                         const real *weight, double epsilon, real *y, int64_t y_stride, real *rstd);

// dx = rstd (g - xhat mean(g xhat)) with xhat = x rstd, g = dy weight. Overwrites dx.
void SP_KERNEL(rms_norm_backward_input)(int64_t tokens, int64_t features, const real *x,
                                        int64_t x_stride, const real *weight, const real *rstd,
                                        const real *dy, int64_t dy_stride, real *dx,
                                        int64_t dx_stride);

// dweight += sum over tokens of dy xhat.
void SP_KERNEL(rms_norm_backward_weight)(int64_t tokens, int64_t features, const real *x,
                                         int64_t x_stride, const real *rstd, const real *dy,
                                         int64_t dy_stride, real *dweight);

// LayerNorm (Ba, Kiros, Hinton: "Layer Normalization", 2016, equations 3 and 4): the variance is
// that of the population, rstd = 1 / sqrt(variance + epsilon), y = (x - mean) rstd weight + bias.
// Writes y, mean and rstd.
void SP_KERNEL(layer_norm)(int64_t tokens, int64_t features, const real *x, int64_t x_stride,
                           const real *weight, const real *bias, double epsilon, real *y,
                           int64_t y_stride, real *mean, real *rstd);

// dx = rstd (g - mean(g) - xhat mean(g xhat)) with xhat = (x - mean) rstd, g = dy weight.
// Overwrites dx.
void SP_KERNEL(layer_norm_backward_input)(int64_t tokens, int64_t features, const real *x,
                                          int64_t x_stride, const real *weight, const real *mean,
                                          const real *rstd, const real *dy, int64_t dy_stride,
                                          real *dx, int64_t dx_stride);

// dweight += sum over tokens of dy xhat, dbias += sum over tokens of dy.
void SP_KERNEL(layer_norm_backward_weight)(int64_t tokens, int64_t features, const real *x,
                                           int64_t x_stride, const real *mean, const real *rstd,
                                           const real *dy, int64_t dy_stride, real *dweight,
                                           real *dbias);
