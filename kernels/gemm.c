#include "kernels/gemm.h"

#ifdef SP_OPENBLAS

#include <f77blas.h>

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

#else

// Where OpenBLAS was not found when this was built: right for small models, slow.

enum { COLUMNS = 32 };

// Column by column of the row's block, each a sum over k in order.
void gemm(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t n_inner, double alpha,
          const real *a, int64_t a_stride, const real *b, int64_t b_stride, double beta, real *c,
          int64_t c_stride)
{
    const int64_t b_row = b_transposed ? 1 : b_stride;
    const int64_t b_column = b_transposed ? b_stride : 1;
    for (int64_t i = 0; i < m; i++) {
        for (int64_t first = 0; first < n; first += COLUMNS) {
            const int64_t columns = n - first < COLUMNS ? n - first : COLUMNS;
            double sums[COLUMNS] = {0.0};
            for (int64_t k = 0; k < n_inner; k++) {
                const double x = (double)(a_transposed ? a[k * a_stride + i] : a[i * a_stride + k]);
                const real *row = &b[k * b_row + first * b_column];
                for (int64_t j = 0; j < columns; j++) {
                    sums[j] += x * (double)row[j * b_column];
                }
            }
            for (int64_t j = 0; j < columns; j++) {
                real *to = &c[i * c_stride + first + j];
                *to = (real)(alpha * sums[j] + (beta != 0.0 ? beta * (double)*to : 0.0));
            }
        }
    }
}

#endif
