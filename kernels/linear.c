#include <f77blas.h>
#include <string.h>

#include "kernels/typed.h"
#include "kernels/vector.h"

#if SP_KERNEL_BITS == 64
#define BLAS_GEMM BLASFUNC(dgemm)
#else
#define BLAS_GEMM BLASFUNC(sgemm)
#endif

// The Fortran entry points, because GSL brings slow functions of its own under the names of CBLAS:
// in a program that has both libraries those could be the ones that are called. Column-major, the
// same memory is the transposed product, C^T = op(B)^T op(A)^T.
void gemm(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t n_inner, double alpha,
          const real *a, int64_t a_stride, const real *b, int64_t b_stride, double beta, real *c,
          int64_t c_stride)
{
    char first = b_transposed ? 'T' : 'N';
    char second = a_transposed ? 'T' : 'N';
    blasint rows = (blasint)n;
    blasint columns = (blasint)m;
    blasint inner = (blasint)n_inner;
    blasint first_stride = (blasint)b_stride;
    blasint second_stride = (blasint)a_stride;
    blasint c_step = (blasint)c_stride;
    real alpha_real = (real)alpha;
    real beta_real = (real)beta;
    // The interface is older than `const`; A and B are only read.
    BLAS_GEMM(&first, &second, &rows, &columns, &inner, &alpha_real, (real *)(uintptr_t)b,
              &first_stride, (real *)(uintptr_t)a, &second_stride, &beta_real, c, &c_step);
}

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
