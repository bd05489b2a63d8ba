// Element by element: bounds are one rounding to bf16, as each kernel rounds once.
#include "kernels/cuda_kernels.h"
#include "tests/gpu/kernels_test.h"

static const int64_t sizes[] = {1, 7, 8, 2048, 5000, 20011};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static const tensor_layout aligned = {0, 0};
static const tensor_layout shifted = {1, 0};

static void add(void)
{
    for (int s = 0; s < 2 * SIZES; s++) {
        int64_t n = sizes[s / 2];
        tensor x = tensor_drawn(TENSOR_BF16, 1, n, s % 2 ? shifted : aligned, 1);
        tensor y = tensor_drawn(TENSOR_BF16, 1, n, aligned, 1);
        double *expected = tensor_values(&y);
        sp_kernel_add_f64(n, x.value, expected);
        device_wait(sp_cuda_add(n, BF16(x), BF16(y), NULL));
        tensor_check("add", &y, expected, BF16_ROUNDING, 0);
    }
}

static void add_fp32(void)
{
    for (int s = 0; s < 2 * SIZES; s++) {
        int64_t n = sizes[s / 2];
        tensor x = tensor_drawn(TENSOR_FP32, 1, n, s % 2 ? shifted : aligned, 1);
        tensor y = tensor_drawn(TENSOR_FP32, 1, n, aligned, 1);
        double *expected = tensor_values(&y);
        sp_kernel_add_f64(n, x.value, expected);
        device_wait(sp_cuda_add_fp32(n, FP32(x), FP32(y), NULL));
        tensor_check("add_fp32", &y, expected, 6e-8, 0);
    }
}

// What is dropped is zero even where it was no number.
static void drop(void)
{
    for (int s = 0; s < 2 * SIZES; s++) {
        int64_t n = sizes[s / 2];
        tensor x = tensor_drawn(TENSOR_BF16, 1, n, aligned, 1);
        tensor y = tensor_blank(TENSOR_BF16, 1, n, aligned);
        uint8_t *keeps = malloc((size_t)n);
        unsigned char *there = device_new((size_t)n + 1);
        EXPECT(keeps != NULL);
        double *expected = tensor_zeros(n);
        for (int64_t i = 0; i < n; i++) {
            keeps[i] = (uint8_t)(tensor_below(4) * 85);
            expected[i] = keeps[i] != 0 ? 1.25 * x.value[i] : 0;
        }
        x.value[n / 2] = (double)NAN;
        tensor_put(&x);
        keeps[n / 2] = 0;
        expected[n / 2] = 0;
        device_put(there + s % 2, keeps, (size_t)n);
        device_wait(sp_cuda_drop(n, there + s % 2, 1.25, BF16(x), BF16(y), NULL));
        tensor_check("drop", &y, expected, BF16_ROUNDING, 0);
        device_wait(sp_cuda_drop(n, there + s % 2, 1.25, BF16(x), BF16(x), NULL));
        tensor_check("drop in place", &x, expected, BF16_ROUNDING, 0);
        device_free(there);
        free(keeps);
    }
}

static void bias(void)
{
    for (int l = 0; l < TENSOR_LAYOUTS; l++) {
        tensor y = tensor_drawn(TENSOR_BF16, 37, 72, tensor_layouts[l], 1);
        tensor b = tensor_drawn(TENSOR_BF16, 1, 72, aligned, 1);
        double *expected = tensor_values(&y);
        for (int64_t r = 0; r < 37; r++) {
            sp_kernel_add_f64(72, b.value, expected + r * y.stride);
        }
        device_wait(sp_cuda_add_bias(37, 72, BF16(b), BF16(y), y.stride, NULL));
        tensor_check("add_bias", &y, expected, BF16_ROUNDING, 0);
    }
}

static void accumulate_and_round(void)
{
    for (int l = 0; l < TENSOR_LAYOUTS; l++) {
        tensor x = tensor_drawn(TENSOR_BF16, 19, 136, tensor_layouts[l], 1);
        tensor y = tensor_drawn(TENSOR_FP32, 19, 136, tensor_layouts[l], 1);
        tensor rounded = tensor_blank(TENSOR_BF16, 19, 136, tensor_layouts[l]);
        double *expected = tensor_values(&y);
        for (int64_t r = 0; r < 19; r++) {
            sp_kernel_add_f64(136, x.value + r * x.stride, expected + r * y.stride);
        }
        device_wait(sp_cuda_accumulate(19, 136, BF16(x), x.stride, FP32(y), y.stride, NULL));
        tensor_check("accumulate", &y, expected, 6e-8, 0);
        device_wait(sp_cuda_round(19, 136, FP32(y), y.stride, BF16(rounded), rounded.stride, NULL));
        tensor_check("round", &rounded, y.value, 1.0 / 256, 0);
    }
}

static void sum_of_squares(void)
{
    for (int s = 0; s < 2 * SIZES; s++) {
        int64_t n = sizes[s / 2];
        tensor x = tensor_drawn(TENSOR_FP32, 1, n, s % 2 ? shifted : aligned, 3);
        tensor sum = tensor_drawn(TENSOR_FP64, 1, 1, aligned, 1);
        tensor room = tensor_blank(TENSOR_FP64, 1, SP_CUDA_SUM_OF_SQUARES_WORKSPACE, aligned);
        tensor moved = tensor_blank(TENSOR_FP64, 1, 1, aligned);
        double squares = sp_kernel_sum_of_squares_f64(n, x.value);
        double both = sum.value[0] + squares;
        device_wait(sp_cuda_sum_of_squares(n, FP32(x), true, FP64(sum), FP64(room), NULL));
        tensor_check("sum_of_squares added", &sum, &both, 1e-13, 1e-13);
        device_wait(sp_cuda_sum_of_squares(n, FP32(x), false, FP64(sum), FP64(room), NULL));
        tensor_check("sum_of_squares", &sum, &squares, 1e-13, 0);
        tensor elsewhere = tensor_drawn(TENSOR_FP32, 1, n, s % 2 ? aligned : shifted, 0);
        for (int64_t i = 0; i < n; i++) {
            elsewhere.value[i] = x.value[i];
        }
        tensor_put(&elsewhere);
        device_wait(
            sp_cuda_sum_of_squares(n, FP32(elsewhere), false, FP64(moved), FP64(room), NULL));
        tensor_get(&sum);
        tensor_check("sum_of_squares at another address", &moved, sum.value, 0, 0);
    }
}

static void swiglu(void)
{
    for (int l = 0; l < 2 * TENSOR_LAYOUTS; l++) {
        int64_t tokens = 23;
        int64_t features = l % 2 ? 40 : 37;
        tensor_layout layout = tensor_layouts[l / 2];
        // Gate and up as halves of one buffer.
        tensor in = tensor_drawn(TENSOR_BF16, tokens, 2 * features, layout, 6);
        tensor dy = tensor_drawn(TENSOR_BF16, tokens, features, layout, 1);
        tensor y = tensor_blank(TENSOR_BF16, tokens, features, layout);
        tensor din = tensor_blank(TENSOR_BF16, tokens, 2 * features, layout);
        double *expected = tensor_zeros(tokens * y.stride);
        double *expected_din = tensor_zeros(tokens * din.stride);
        sp_kernel_swiglu_f64(tokens, features, in.value, in.value + features, in.stride, expected,
                             y.stride);
        sp_kernel_swiglu_backward_f64(tokens, features, in.value, in.value + features, in.stride,
                                      dy.value, dy.stride, expected_din, expected_din + features,
                                      din.stride);
        device_wait(sp_cuda_swiglu(tokens, features, BF16(in), BF16(in) + features, in.stride,
                                   BF16(y), y.stride, NULL));
        tensor_check("swiglu", &y, expected, BF16_ROUNDING, 1e-6);
        device_wait(sp_cuda_swiglu_backward(tokens, features, BF16(in), BF16(in) + features,
                                            in.stride, BF16(dy), dy.stride, BF16(din),
                                            BF16(din) + features, din.stride, NULL));
        tensor_check("swiglu_backward", &din, expected_din, BF16_ROUNDING, 1e-5);
        // In place.
        device_wait(sp_cuda_swiglu_backward(tokens, features, BF16(in), BF16(in) + features,
                                            in.stride, BF16(dy), dy.stride, BF16(in),
                                            BF16(in) + features, in.stride, NULL));
        tensor_check("swiglu_backward in place", &in, expected_din, BF16_ROUNDING, 1e-5);
    }
}

// Large arguments too, where e^-x leaves fp32's range.
static void gelu(void)
{
    for (int s = 0; s < 2 * SIZES; s++) {
        int64_t n = sizes[s / 2];
        tensor x = tensor_drawn(TENSOR_BF16, 1, n, s % 2 ? shifted : aligned, 5);
        x.value[n / 2] = s % 4 < 2 ? 300 : -300;
        tensor_put(&x);
        tensor dy = tensor_drawn(TENSOR_BF16, 1, n, aligned, 1);
        tensor y = tensor_blank(TENSOR_BF16, 1, n, aligned);
        tensor dx = tensor_blank(TENSOR_BF16, 1, n, aligned);
        double *expected = tensor_zeros(n);
        sp_kernel_gelu_f64(n, x.value, expected);
        device_wait(sp_cuda_gelu(n, BF16(x), BF16(y), NULL));
        tensor_check("gelu", &y, expected, BF16_ROUNDING, 1e-6);
        sp_kernel_gelu_backward_f64(n, x.value, dy.value, expected);
        device_wait(sp_cuda_gelu_backward(n, BF16(x), BF16(dy), BF16(dx), NULL));
        tensor_check("gelu_backward", &dx, expected, BF16_ROUNDING, 1e-5);
    }
}

// Three steps, so that the moments are not what they started as; the last with clipping.
static void adamw(void)
{
    for (int s = 0; s < 2 * SIZES; s++) {
        int64_t n = sizes[s / 2];
        tensor master = tensor_drawn(TENSOR_FP32, 1, n, aligned, 1);
        tensor first = tensor_drawn(TENSOR_FP32, 1, n, s % 2 ? shifted : aligned, 0);
        tensor second = tensor_drawn(TENSOR_FP32, 1, n, aligned, 0);
        tensor parameter = tensor_blank(TENSOR_BF16, 1, n, aligned);
        tensor clip = tensor_drawn(TENSOR_FP32, 1, 1, aligned, 0);
        clip.value[0] = 0.5;
        tensor_put(&clip);
        double *expected = tensor_values(&master);
        double *m = tensor_zeros(n);
        double *v = tensor_zeros(n);
        for (int64_t count = 1; count <= 3; count++) {
            sp_kernel_adamw_step step = {.step = count,
                                         .learning_rate = 0.01,
                                         .beta1 = 0.9,
                                         .beta2 = 0.95,
                                         .epsilon = 1e-8,
                                         .weight_decay = 0.1,
                                         .gradient_scale = 2};
            tensor gradient = tensor_drawn(TENSOR_FP32, 1, n, aligned, 1);
            device_wait(sp_cuda_adamw(&step, count == 3 ? FP32(clip) : NULL, n, FP32(gradient),
                                      FP32(master), FP32(first), FP32(second), BF16(parameter),
                                      NULL));
            step.gradient_scale = count == 3 ? 1 : 2;
            sp_kernel_adamw_f64(&step, n, gradient.value, expected, m, v);
        }
        tensor_check("adamw's first moment", &first, m, 1e-6, 1e-7);
        tensor_check("adamw's second moment", &second, v, 1e-6, 1e-7);
        tensor_check("adamw's master", &master, expected, 1e-6, 1e-6);
        tensor_check("adamw's parameter", &parameter, master.value, 1.0 / 256, 0);
    }
}

const kernel_case kernels_elementwise_cases[] = {
    KERNEL_CASE(add),
    KERNEL_CASE(add_fp32),
    KERNEL_CASE(drop),
    KERNEL_CASE(bias),
    KERNEL_CASE(accumulate_and_round),
    KERNEL_CASE(sum_of_squares),
    KERNEL_CASE(swiglu),
    KERNEL_CASE(gelu),
    KERNEL_CASE(adamw),
    {NULL, NULL},
};
