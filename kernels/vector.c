#include "kernels/vector.h"

enum { LANES = 16 };

static inline real sum_lanes(real lane[LANES])
{
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++) {
            lane[l] += lane[l + width];
        }
    }
    return lane[0];
}

SP_KERNEL_WIDE real row_max(int64_t n, const real *x)
{
    real lane[LANES];
    for (int l = 0; l < LANES; l++) {
        lane[l] = x[0];
    }
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
        }
    }
    for (int l = 0; i + l < n; l++) {
        lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    }
    real largest = lane[0];
    for (int l = 1; l < LANES; l++) {
        largest = lane[l] > largest ? lane[l] : largest;
    }
    return largest;
}

SP_KERNEL_WIDE void row_exp(int64_t n, real *x, real shift, real scale)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = scale * exp_real(x[i] - shift);
    }
}

SP_KERNEL_WIDE real row_exp_sum(int64_t n, real *x, real shift)
{
    real lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            x[i + l] = exp_real(x[i + l] - shift);
            lane[l] += x[i + l];
        }
    }
    for (int l = 0; i + l < n; l++) {
        x[i + l] = exp_real(x[i + l] - shift);
        lane[l] += x[i + l];
    }
    return sum_lanes(lane);
}

SP_KERNEL_WIDE real row_sum_exp(int64_t n, const real *x, real shift)
{
    real lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lane[l] += exp_real(x[i + l] - shift);
        }
    }
    for (int l = 0; i + l < n; l++) {
        lane[l] += exp_real(x[i + l] - shift);
    }
    return sum_lanes(lane);
}

SP_KERNEL_WIDE real row_sum(int64_t n, const real *x)
{
    real lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lane[l] += x[i + l];
        }
    }
    for (int l = 0; i + l < n; l++) {
        lane[l] += x[i + l];
    }
    return sum_lanes(lane);
}

SP_KERNEL_WIDE real row_dot(int64_t n, const real *x, const real *y)
{
    real lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lane[l] += x[i + l] * y[i + l];
        }
    }
    for (int l = 0; i + l < n; l++) {
        lane[l] += x[i + l] * y[i + l];
    }
    return sum_lanes(lane);
}

SP_KERNEL_WIDE real row_dot3(int64_t n, const real *x, const real *y, const real *z)
{
    real lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lane[l] += x[i + l] * y[i + l] * z[i + l];
        }
    }
    for (int l = 0; i + l < n; l++) {
        lane[l] += x[i + l] * y[i + l] * z[i + l];
    }
    return sum_lanes(lane);
}

SP_KERNEL_WIDE void row_add(int64_t n, const real *restrict x, real *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] += x[i];
    }
}

SP_KERNEL_WIDE void row_scale(int64_t n, real scale, real *x)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] *= scale;
    }
}
