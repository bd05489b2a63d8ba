#include "kernels/gemm.h"

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
