// bf16 from its definition: the upper 16 bits of fp32, rounding to the nearest, ties to even.
#include "kernels/bf16.h"
#include "tests/support/test_main.h"

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

TEST(every_number_there_and_back)
{
    for (uint32_t i = 0; i < 0x10000; i++) {
        float x = sp_bf16_to_float((sp_bf16)i);
        uint32_t exponent = i >> 7 & 0xffU;
        double fraction = (double)(i & 0x7fU) / 128;
        double sign = i >> 15 ? -1 : 1;
        if (exponent == 255 && fraction > 0) {
            assert_true(isnan(x));
            assert_true(isnan(sp_bf16_to_float(sp_bf16_from_float(x))));
            continue;
        }
        double value = exponent == 255 ? HUGE_VAL
                       : exponent == 0 ? ldexp(fraction, -126)
                                       : ldexp(1 + fraction, (int)exponent - 127);
        assert_true((double)x == sign * value);
        assert_int_equal(sp_bf16_from_float(x), i);
    }
}

// Between two neighbours the nearer, in the middle the even one: at the middle, just below and just
// above it, for every finite number and the next in size.
TEST(rounds_to_the_nearest)
{
    for (uint32_t i = 0; i < 0xff80; i++) {
        if ((i & 0x7fffU) >= 0x7f80U) {
            continue;
        }
        uint32_t below = i << 16;
        uint32_t even = i % 2 == 0 ? i : i + 1;
        assert_int_equal(sp_bf16_from_float(from_bits(below + 0x7fffU)), i);
        assert_int_equal(sp_bf16_from_float(from_bits(below + 0x8000U)), even);
        assert_int_equal(sp_bf16_from_float(from_bits(below + 0x8001U)), i + 1);
    }
}

TEST(too_large_becomes_infinite)
{
    float largest = sp_bf16_to_float(0x7f7f);
    assert_true(isinf(sp_bf16_to_float(sp_bf16_from_float(from_bits(0x7f7fffffU)))));
    assert_true(sp_bf16_to_float(sp_bf16_from_float(largest)) == largest);
    assert_int_equal(sp_bf16_from_float(-INFINITY), 0xff80);
}

TEST(nan_stays_nan)
{
    // A payload that lies in the lower half alone would be cut off to infinity.
    assert_true(isnan(sp_bf16_to_float(sp_bf16_from_float(from_bits(0x7f800001U)))));
    assert_true(isnan(sp_bf16_to_float(sp_bf16_from_float(from_bits(0xffffffffU)))));
}
