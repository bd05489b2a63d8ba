// Loops over one row that several kernels need. Shared by the kernels alone. All are linear in n;
// sums run in 16 partial sums of fixed order, so that the result does not depend on the width of
// the machine's vector registers.
#include <stdint.h>

#include "kernels/real.h"

// Put before a function whose loops should exist for each vector width.
#ifdef SP_KERNEL_CLONES
#define SP_KERNEL_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SP_KERNEL_WIDE
#endif

#define row_max SP_KERNEL_I(row_max)
#define row_exp SP_KERNEL_I(row_exp)
#define row_exp_sum SP_KERNEL_I(row_exp_sum)
#define row_sum_exp SP_KERNEL_I(row_sum_exp)
#define row_sum SP_KERNEL_I(row_sum)
#define row_dot SP_KERNEL_I(row_dot)
#define row_dot3 SP_KERNEL_I(row_dot3)
#define row_add SP_KERNEL_I(row_add)
#define row_scale SP_KERNEL_I(row_scale)

// Largest of n > 0 elements.
real row_max(int64_t n, const real *x);

// x[i] = scale exp(x[i] - shift).
void row_exp(int64_t n, real *x, real shift, real scale);

// Scale 1; returns the sum of the results.
real row_exp_sum(int64_t n, real *x, real shift);

// Sum of exp(x[i] - shift), x unchanged.
real row_sum_exp(int64_t n, const real *x, real shift);

real row_sum(int64_t n, const real *x);

// Sum of x[i] y[i].
real row_dot(int64_t n, const real *x, const real *y);

// Sum of x[i] y[i] z[i].
real row_dot3(int64_t n, const real *x, const real *y, const real *z);

// y[i] += x[i].
void row_add(int64_t n, const real *restrict x, real *restrict y);

// x[i] *= scale.
void row_scale(int64_t n, real scale, real *x);
