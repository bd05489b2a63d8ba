#include <string.h>

#include "kernels/gemm.h"
#include "kernels/typed.h"
#include "kernels/vector.h"

void SP_KERNEL(linear)(int64_t tokens, int64_t in, int64_t out, const real *x, int64_t x_stride,
                       const real *weight, int64_t weight_stride, const real *bias, real *y,
                       int64_t y_stride)
{
    if (bias != NULL) {
        for (int64_t t = 0; t < tokens; t++) {
            memcpy(y + t * y_stride, bias, (size_t)out * sizeof *y);
        }
    }
    gemm(false, true, tokens, out, in, 1.0, x, x_stride, weight, weight_stride,
         bias != NULL ? 1.0 : 0.0, y, y_stride);
}

void SP_KERNEL(linear_backward_input)(int64_t tokens, int64_t in, int64_t out, const real *dy,
                                      int64_t dy_stride, const real *weight, int64_t weight_stride,
                                      bool accumulate, real *dx, int64_t dx_stride)
{
    gemm(false, false, tokens, in, out, 1.0, dy, dy_stride, weight, weight_stride,
         accumulate ? 1.0 : 0.0, dx, dx_stride);
}

void SP_KERNEL(linear_backward_weight)(int64_t tokens, int64_t in, int64_t out, const real *dy,
                                       int64_t dy_stride, const real *x, int64_t x_stride,
                                       real *dweight, int64_t dweight_stride, real *dbias)
{
    gemm(true, false, out, in, tokens, 1.0, dy, dy_stride, x, x_stride, 1.0, dweight,
         dweight_stride);
    if (dbias != NULL) {
        for (int64_t t = 0; t < tokens; t++) {
            row_add(out, dy + t * dy_stride, dbias);
        }
    }
}
