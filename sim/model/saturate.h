// Byte arithmetic that stays defined for absurd inputs: products stop at 2^50 (a pebibyte, more
// than any rank holds), so that sums of a few thousand of them still fit int64_t.
#ifndef SLIMPACK_SIM_MODEL_SATURATE_H
#define SLIMPACK_SIM_MODEL_SATURATE_H

#include <stdint.h>

#define SP_I_MOST_BYTES (INT64_C(1) << 50)

// a * b for a, b >= 0.
static inline int64_t sp_i_mul_bytes(int64_t a, int64_t b)
{
    return b != 0 && a > SP_I_MOST_BYTES / b ? SP_I_MOST_BYTES : a * b;
}

#endif
