#include <math.h>
#include <string.h>

#include "kernels/typed.h"
#include "kernels/vector.h"

// ---- Activations ----

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

// ---- Rotary positions ----

void SP_KERNEL(rope_table)(int64_t tokens, const int64_t *position, int64_t head_dim, double base,
                           real *cosine, real *sine)
{
    int64_t half = head_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        double frequency = pow(base, -2.0 * (double)i / (double)head_dim);
        for (int64_t t = 0; t < tokens; t++) {
            double angle = (double)position[t] * frequency;
            cosine[t * half + i] = (real)cos(angle);
            sine[t * half + i] = (real)sin(angle);
        }
    }
}

static inline void turn(int64_t half, const real *restrict cosine, const real *restrict sine,
                        real direction, real *restrict low, real *restrict high)
{
    for (int64_t i = 0; i < half; i++) {
        real s = direction * sine[i];
        real a = low[i] * cosine[i] - high[i] * s;
        high[i] = high[i] * cosine[i] + low[i] * s;
        low[i] = a;
    }
}

SP_KERNEL_WIDE void SP_KERNEL(rope)(int64_t tokens, int64_t heads, int64_t head_dim,
                                    const real *cosine, const real *sine, bool backward, real *x,
                                    int64_t x_stride)
{
    int64_t half = head_dim / 2;
    real direction = backward ? (real)-1.0 : (real)1.0;
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t h = 0; h < heads; h++) {
            real *head = x + t * x_stride + h * head_dim;
            turn(half, cosine + t * half, sine + t * half, direction, head, head + half);
        }
    }
}

// ---- Plain arrays ----

enum { LANES = 16 };

void SP_KERNEL(add)(int64_t n, const real *restrict x, real *restrict y)
{
    row_add(n, x, y);
}

void SP_KERNEL(copy_rows)(int64_t rows, int64_t columns, const real *from, int64_t from_stride,
                          real *to, int64_t to_stride)
{
    for (int64_t r = 0; r < rows; r++) {
        memcpy(to + r * to_stride, from + r * from_stride, (size_t)columns * sizeof *to);
    }
}

SP_KERNEL_WIDE double SP_KERNEL(sum_of_squares)(int64_t n, const real *x)
{
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lane[l] += (double)x[i + l] * (double)x[i + l];
        }
    }
    for (int l = 0; i + l < n; l++) {
        lane[l] += (double)x[i + l] * (double)x[i + l];
    }
    double sum = 0;
    for (int l = 0; l < LANES; l++) {
        sum += lane[l];
    }
    return sum;
}

// ---- The optimizer ----

#if SP_KERNEL_BITS == 64
#define SQRT sqrt
#else
#define SQRT sqrtf
#endif

SP_KERNEL_WIDE void SP_KERNEL(adamw)(const sp_kernel_adamw_step *step, int64_t n,
                                     const real *restrict gradient, real *restrict parameter,
                                     real *restrict first, real *restrict second)
{
    real beta1 = (real)step->beta1;
    real beta2 = (real)step->beta2;
    real rest1 = (real)(1.0 - step->beta1);
    real rest2 = (real)(1.0 - step->beta2);
    double correction1 = 1.0 - pow(step->beta1, (double)step->step);
    double correction2 = 1.0 - pow(step->beta2, (double)step->step);
    real rate = (real)(step->learning_rate / correction1);
    real unbias = (real)(1.0 / sqrt(correction2));
    real keep = (real)(1.0 - step->learning_rate * step->weight_decay);
    real epsilon = (real)step->epsilon;
    real gradient_scale = (real)step->gradient_scale;
    for (int64_t i = 0; i < n; i++) {
        real g = gradient_scale * gradient[i];
        first[i] = beta1 * first[i] + rest1 * g;
        second[i] = beta2 * second[i] + rest2 * g * g;
        real size = SQRT(second[i]) * unbias + epsilon;
        parameter[i] = keep * parameter[i] - rate * first[i] / size;
    }
}
