#include <math.h>

#include "kernels/typed.h"
#include "kernels/vector.h"

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
