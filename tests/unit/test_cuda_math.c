// The arithmetic of one element as the CUDA kernels do it, in fp32 on the host, against the fp64
// kernels: within a few roundings of fp32, and finite for every finite bf16.
#include "kernels/bf16.h"
#include "kernels/cuda_math.h"
#include "kernels/kernels.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"

// Calls step(x) for every finite bf16 up to `largest` in size.
static void over_bf16(float largest, void (*step)(float x))
{
    for (uint32_t i = 0; i < 0x10000; i++) {
        float x = sp_bf16_to_float((sp_bf16)i);
        if (isfinite(x) && fabsf(x) <= largest) {
            step(x);
        }
    }
}

static void swiglu_of(float gate)
{
    double g = (double)gate;
    double up = 1.5;
    double dy = -0.75;
    double expected, expected_gate, expected_up;
    float dgate, dup;
    sp_kernel_swiglu_f64(1, 1, &g, &up, 1, &expected, 1);
    sp_kernel_swiglu_backward_f64(1, 1, &g, &up, 1, &dy, 1, &expected_gate, &expected_up, 1);
    sp_i_cuda_swiglu_backward(gate, 1.5F, -0.75F, &dgate, &dup);
    assert_near((double)sp_i_cuda_swiglu(gate, 1.5F), expected, 1e-6, 1e-35);
    assert_near((double)dup, expected_up, 1e-6, 1e-35);
    // 1 + gate (1 - sigmoid) loses digits about its zero.
    assert_near((double)dgate, expected_gate, 1e-6, 1e-6);
}

static void gelu_of(float x)
{
    double from = (double)x;
    double dy = 1.25;
    double expected, expected_dx;
    sp_kernel_gelu_f64(1, &from, &expected);
    sp_kernel_gelu_backward_f64(1, &from, &dy, &expected_dx);
    assert_near((double)sp_i_cuda_gelu(x), expected, 1e-5, 1e-30);
    assert_near((double)sp_i_cuda_gelu_backward(x, 1.25F), expected_dx, 1e-6, 3e-6);
}

TEST_CALL(swiglu, over_bf16(1e30F, swiglu_of))

// Beyond this the cube of x is no fp32 number.
TEST_CALL(gelu, over_bf16(1e12F, gelu_of))

TEST(adamw)
{
    sp_kernel_adamw_step step = {.step = 4, ADAMW_SETTINGS, .gradient_scale = 0.5};
    sp_i_cuda_adamw a = {.beta1 = 0.9F,
                         .beta2 = 0.95F,
                         .rest1 = 0.1F,
                         .rest2 = 0.05F,
                         .rate = (float)(0.01 / (1 - pow(0.9, 4))),
                         .unbias = (float)(1 / sqrt(1 - pow(0.95, 4))),
                         .keep = 0.999F,
                         .epsilon = 1e-8F,
                         .gradient_scale = 0.5F};
    for (int i = 0; i < 1000; i++) {
        double gradient = (double)(float)sin(i);
        double parameter = (double)(float)cos(i);
        double first = (double)(float)sin(2 * i);
        double second = (double)(float)fabs(cos(2 * i));
        float p = (float)parameter;
        float m = (float)first;
        float v = (float)second;
        sp_i_cuda_adamw_update(&a, a.gradient_scale, (float)gradient, &p, &m, &v);
        sp_kernel_adamw_f64(&step, 1, &gradient, &parameter, &first, &second);
        assert_near((double)m, first, 1e-6, 1e-7);
        assert_near((double)v, second, 1e-6, 1e-7);
        assert_near((double)p, parameter, 1e-5, 1e-6);
    }
}
