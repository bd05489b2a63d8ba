// Matrix product through OpenBLAS, row-major. Shared by the kernels alone.
#include <stdbool.h>
#include <stdint.h>

#include "kernels/real.h"

#define gemm SP_KERNEL_I(gemm)

// C = alpha op(A) op(B) + beta C with op(A) [m, n_inner] and op(B) [n_inner, n]; op transposes
// where `a_transposed` or `b_transposed` is true. Row strides of A, B and C as they are stored.
// With beta = 0, C may hold anything before. 2 m n n_inner operations.
void gemm(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t n_inner, double alpha,
          const real *a, int64_t a_stride, const real *b, int64_t b_stride, double beta, real *c,
          int64_t c_stride);
