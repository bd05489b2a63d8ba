// Sums, copies and norms of plain arrays. Linear time.
#include <stdint.h>

#include "kernels/real.h"

// y += x, n elements: a residual connection forward, and gradients that meet backward.
void SP_KERNEL(add)(int64_t n, const real *restrict x, real *restrict y);

// Copies [rows, columns] between different strides.
void SP_KERNEL(copy_rows)(int64_t rows, int64_t columns, const real *from, int64_t from_stride,
                          real *to, int64_t to_stride);

// Sum of x^2, n elements, summed in fp64 in both types and in an order that depends on n alone. The
// norm of a whole gradient is the square root of the sum over all tensors of all ranks.
double SP_KERNEL(sum_of_squares)(int64_t n, const real *x);
