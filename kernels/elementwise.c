#include <string.h>

#include "kernels/typed.h"
#include "kernels/vector.h"

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
