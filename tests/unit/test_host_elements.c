// Numbers to and from a machine's elements: what each can hold comes back, and the rest is rounded
// to the nearest, ties to even (bf16: 8 bits of significand).
#include "backends/executor/run.h"
#include "tests/support/test_main.h"

enum { COUNT = 6 };

static void come_back(sp_element element, const double *from, const double *expected)
{
    double stored[COUNT], back[COUNT];
    sp_i_exec_elements_from(element, COUNT, from, stored);
    sp_i_exec_elements_to(element, COUNT, stored, back);
    for (int i = 0; i < COUNT; i++) {
        assert_true(back[i] == expected[i]);
    }
}

TEST(are_rounded_to_the_nearest)
{
    const double x[COUNT] = {0.0,           -1.5,   1.0 + 0x1p-8, 1.0 + 0x1p-7 + 0x1p-8,
                             1.0 + 0x1p-24, -0x1p60};
    const double bf16[COUNT] = {0.0, -1.5, 1.0, 1.0 + 0x1p-6, 1.0, -0x1p60};
    const double f32[COUNT] = {0.0, -1.5, 1.0 + 0x1p-8, 1.0 + 0x1p-7 + 0x1p-8, 1.0, -0x1p60};
    come_back(SP_ELEMENT_F64, x, x);
    come_back(SP_ELEMENT_F32, x, f32);
    come_back(SP_ELEMENT_BF16, x, bf16);
}

// A parameter starts as its master rounded: 1 + 2^-8 + 2^-30 is a tie in fp32 and goes to even.
TEST(bf16_is_rounded_from_fp32)
{
    const double x[COUNT] = {1.0 + 0x1p-8 + 0x1p-30};
    const double expected[COUNT] = {1.0};
    come_back(SP_ELEMENT_BF16, x, expected);
}
