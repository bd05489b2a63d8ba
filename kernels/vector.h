// Functions that several kernels need: loops over one row, the exponential, the matrix product.
// Shared by the kernels alone, and without a guard, as real.h.
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/real.h"

// ---- Loops over one row ----

// All are linear in n; sums run in 16 partial sums of fixed order, so that the result does not
// depend on the width of the machine's vector registers.

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

// ---- The exponential function ----

// It is plain arithmetic, which the compiler can put into vector registers.

#define exp_real SP_KERNEL_I(exp)

#if SP_KERNEL_BITS == 64
typedef uint64_t SP_KERNEL_I(bits);
#else
typedef uint32_t SP_KERNEL_I(bits);
#endif

// exp(x) to 2 units in the last place; NaN for NaN. Below -87 (fp32) or -708
// (fp64) it is 0, and arguments above 88 or 709 count as that. x = n ln 2 + r with |r| <= (ln 2)/2,
// ln 2 in two parts (Cody, Waite: "Software Manual for the Elementary Functions", 1980, chapter 6),
// and the Taylor polynomial of exp(r), whose first term left out is below the rounding of the type.
static inline real exp_real(real x)
{
#if SP_KERNEL_BITS == 64
    const real lowest = -708.0;
    const real highest = 709.0;
    const real to_integer = 6755399441055744.0; // 1.5 x 2^52: the sum's low bits are an integer
    const real ln2_high = 0x1.62e42fee00000p-1;
    const real ln2_low = 0x1.a39ef35793c76p-33;
    const int mantissa_bits = 52;
    const SP_KERNEL_I(bits) bias = 1023;
#else
    const real lowest = -87.0F;
    const real highest = 88.0F;
    const real to_integer = 12582912.0F; // 1.5 x 2^23
    const real ln2_high = 0x1.62e4p-1F;
    const real ln2_low = 0x1.7f7d1cp-20F;
    const int mantissa_bits = 23;
    const SP_KERNEL_I(bits) bias = 127;
#endif
    // Written so that NaN passes both comparisons.
    real clamped = x > highest ? highest : x;
    clamped = clamped < lowest ? lowest : clamped;
    real shifted = clamped * (real)1.4426950408889634 + to_integer;
    real n = shifted - to_integer;
    real r = clamped - n * ln2_high - n * ln2_low;
#if SP_KERNEL_BITS == 64
    real p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
#else
    real p = 1.0F / 5040.0F;
#endif
    p = p * r + (real)(1.0 / 720.0);
    p = p * r + (real)(1.0 / 120.0);
    p = p * r + (real)(1.0 / 24.0);
    p = p * r + (real)(1.0 / 6.0);
    p = p * r + (real)0.5;
    p = p * r + (real)1.0;
    p = p * r + (real)1.0;
    SP_KERNEL_I(bits) bits;
    SP_KERNEL_I(bits) zero_bits;
    memcpy(&bits, &shifted, sizeof bits);
    memcpy(&zero_bits, &to_integer, sizeof zero_bits);
    bits = (bits - zero_bits + bias) << mantissa_bits;
    real power;
    memcpy(&power, &bits, sizeof power);
    return x < lowest ? (real)0.0 : p * power;
}

// ---- The matrix product, by OpenBLAS (linear.c) ----

#define gemm SP_KERNEL_I(gemm)

// C = alpha op(A) op(B) + beta C with op(A) [m, n_inner] and op(B) [n_inner, n]; op transposes
// where `a_transposed` or `b_transposed` is true. Row strides of A, B and C as they are stored.
// With beta = 0, C may hold anything before. 2 m n n_inner operations.
void gemm(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t n_inner, double alpha,
          const real *a, int64_t a_stride, const real *b, int64_t b_stride, double beta, real *c,
          int64_t c_stride);
