// The CPU's products without a BLAS, for small models on machines that have none: in place of
// kernels/gemm.c and kernels/start.c.
#include "kernels/gemm.h"

void gemm(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t n_inner, double alpha,
          const real *a, int64_t a_stride, const real *b, int64_t b_stride, double beta, real *c,
          int64_t c_stride)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < n_inner; k++) {
                real x = a_transposed ? a[k * a_stride + i] : a[i * a_stride + k];
                real y = b_transposed ? b[j * b_stride + k] : b[k * b_stride + j];
                sum += (double)x * (double)y;
            }
            real *to = &c[i * c_stride + j];
            *to = (real)(alpha * sum + (beta != 0.0 ? beta * (double)*to : 0.0));
        }
    }
}
