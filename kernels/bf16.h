// bfloat16: the upper half of an fp32 number. C17 and C++.
#ifndef SLIMPACK_KERNELS_BF16_H
#define SLIMPACK_KERNELS_BF16_H

#include <stdint.h>
#include <string.h>

typedef uint16_t sp_bf16;

// Exact.
static inline float sp_bf16_to_float(sp_bf16 x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// To the nearest, ties to even; NaN stays NaN, what is too large becomes infinite.
static inline sp_bf16 sp_bf16_from_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return (sp_bf16)(bits >> 16 | 0x40U);
    }
    return (sp_bf16)((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

#endif
