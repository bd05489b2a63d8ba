// Units. Time inside the simulator is int64_t nanoseconds, memory is int64_t bytes.
#ifndef SLIMPACK_SIM_BASE_UNITS_H
#define SLIMPACK_SIM_BASE_UNITS_H

#include <math.h>
#include <stdint.h>

#define SP_NS_PER_S 1e9
#define SP_NS_PER_MS 1e6
#define SP_GIB 1073741824.0
#define SP_MIB 1048576.0

// Seconds (or milliseconds) to nanoseconds, to the nearest, halves away from zero.
static inline int64_t sp_ns_from_s(double s)
{
    return (int64_t)llround(s * SP_NS_PER_S);
}

static inline int64_t sp_ns_from_ms(double ms)
{
    return (int64_t)llround(ms * SP_NS_PER_MS);
}

// A number without its fraction; what int64_t does not hold is the largest or the least of it.
static inline int64_t sp_whole(double number)
{
    if (number >= 9223372036854775807.0) {
        return INT64_MAX;
    }
    return number > -9223372036854775808.0 ? (int64_t)number : INT64_MIN;
}

static inline double sp_ms_from_ns(int64_t ns)
{
    return (double)ns / SP_NS_PER_MS;
}

static inline double sp_gib_from_bytes(int64_t bytes)
{
    return (double)bytes / SP_GIB;
}

static inline int64_t sp_larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t sp_smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Behind a noun of so many: "1 step", "2 steps".
static inline const char *sp_plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

// ceil(a / b) for a >= 0, b > 0.
static inline int64_t sp_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

// The greatest common divisor of a, b >= 0; the other one where one is 0.
static inline int64_t sp_gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// Byte arithmetic that stays defined for absurd inputs: products stop at 2^50 (a pebibyte, more
// than any rank holds), so that sums of a few thousand of them still fit int64_t.

#define SP_MOST_BYTES (INT64_C(1) << 50)

// a * b for a, b >= 0.
static inline int64_t sp_mul_bytes(int64_t a, int64_t b)
{
    return b != 0 && a > SP_MOST_BYTES / b ? SP_MOST_BYTES : a * b;
}

#endif
