// The exponential function as plain arithmetic, which the compiler can put into vector registers.
#include <stdint.h>
#include <string.h>

#include "kernels/real.h"

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
