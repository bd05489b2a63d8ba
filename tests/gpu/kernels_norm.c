// Normalisation: outputs within one rounding to bf16 of the fp64 reference, statistics and weight
// gradients within fp32's.
#include "kernels/cuda_kernels.h"
#include "tests/gpu/kernels_test.h"

static const double EPSILON = 1e-5;

// Rows of one vector, of several, within what a block holds and beyond it (16384 elements by
// vectors, 2048 one by one).
static const int64_t widths[] = {8, 24, 264, 1000, 2056, 16392};
enum { WIDTHS = sizeof widths / sizeof widths[0] };

typedef struct problem {
    int64_t tokens, features;
    tensor x, dy, weight, bias, y, dx, mean, rstd, dweight, dbias, room;
    double *expected, *expected_mean, *expected_rstd, *expected_weight, *expected_bias;
} problem;

static problem set_up(int64_t tokens, int64_t features, tensor_layout layout)
{
    tensor_layout plain = {0, 0};
    problem p = {.tokens = tokens, .features = features};
    p.x = tensor_drawn(TENSOR_BF16, tokens, features, layout, 2);
    p.dy = tensor_drawn(TENSOR_BF16, tokens, features, layout, 1);
    p.weight = tensor_drawn(TENSOR_BF16, 1, features, plain, 1);
    p.bias = tensor_drawn(TENSOR_BF16, 1, features, plain, 1);
    p.y = tensor_blank(TENSOR_BF16, tokens, features, layout);
    p.dx = tensor_blank(TENSOR_BF16, tokens, features, layout);
    p.mean = tensor_blank(TENSOR_FP32, 1, tokens, plain);
    p.rstd = tensor_blank(TENSOR_FP32, 1, tokens, plain);
    p.dweight = tensor_drawn(TENSOR_FP32, 1, features, plain, 1);
    p.dbias = tensor_drawn(TENSOR_FP32, 1, features, plain, 1);
    p.room = tensor_blank(TENSOR_FP32, 1, sp_cuda_column_sums_workspace(tokens, features), plain);
    p.expected = tensor_zeros(tokens * p.y.stride);
    p.expected_mean = tensor_zeros(tokens);
    p.expected_rstd = tensor_zeros(tokens);
    p.expected_weight = tensor_values(&p.dweight);
    p.expected_bias = tensor_values(&p.dbias);
    return p;
}

static void check_rms(int64_t tokens, int64_t features, tensor_layout layout)
{
    problem p = set_up(tokens, features, layout);
    sp_kernel_rms_norm_f64(tokens, features, p.x.value, p.x.stride, p.weight.value, EPSILON,
                           p.expected, p.y.stride, p.expected_rstd);
    device_wait(sp_cuda_rms_norm(tokens, features, BF16(p.x), p.x.stride, BF16(p.weight), EPSILON,
                                 BF16(p.y), p.y.stride, FP32(p.rstd), NULL));
    tensor_check("rms_norm", &p.y, p.expected, BF16_ROUNDING, 1e-6);
    tensor_check("rms_norm's rstd", &p.rstd, p.expected_rstd, 2e-6, 0);
    sp_kernel_rms_norm_backward_input_f64(tokens, features, p.x.value, p.x.stride, p.weight.value,
                                          p.expected_rstd, p.dy.value, p.dy.stride, p.expected,
                                          p.dx.stride);
    device_wait(sp_cuda_rms_norm_backward_input(tokens, features, BF16(p.x), p.x.stride,
                                                BF16(p.weight), FP32(p.rstd), BF16(p.dy),
                                                p.dy.stride, BF16(p.dx), p.dx.stride, NULL));
    tensor_check("rms_norm_backward_input", &p.dx, p.expected, BF16_ROUNDING, 1e-5);
    sp_kernel_rms_norm_backward_weight_f64(tokens, features, p.x.value, p.x.stride, p.expected_rstd,
                                           p.dy.value, p.dy.stride, p.expected_weight);
    device_wait(sp_cuda_rms_norm_backward_weight(tokens, features, BF16(p.x), p.x.stride,
                                                 FP32(p.rstd), BF16(p.dy), p.dy.stride,
                                                 FP32(p.dweight), FP32(p.room), NULL));
    tensor_check_share("rms_norm_backward_weight", &p.dweight, p.expected_weight, 1e-5, 1e-5);
    // In place.
    device_wait(sp_cuda_rms_norm_backward_input(tokens, features, BF16(p.x), p.x.stride,
                                                BF16(p.weight), FP32(p.rstd), BF16(p.dy),
                                                p.dy.stride, BF16(p.dy), p.dy.stride, NULL));
    tensor_check("rms_norm_backward_input in place", &p.dy, p.expected, BF16_ROUNDING, 1e-5);
}

static void rms_norm(void)
{
    for (int w = 0; w < WIDTHS; w++) {
        for (int l = 0; l < TENSOR_LAYOUTS; l++) {
            check_rms(widths[w] > 10000 ? 2 : 9, widths[w], tensor_layouts[l]);
        }
    }
}

// A row that is far from 0, where the mean of squares less the square of the mean would cancel.
static void check_layer(int64_t tokens, int64_t features, tensor_layout layout, double away)
{
    problem p = set_up(tokens, features, layout);
    for (int64_t i = 0; i < features; i++) {
        p.x.value[i] += away;
    }
    tensor_put(&p.x);
    sp_kernel_layer_norm_f64(tokens, features, p.x.value, p.x.stride, p.weight.value, p.bias.value,
                             EPSILON, p.expected, p.y.stride, p.expected_mean, p.expected_rstd);
    device_wait(sp_cuda_layer_norm(tokens, features, BF16(p.x), p.x.stride, BF16(p.weight),
                                   BF16(p.bias), EPSILON, BF16(p.y), p.y.stride, FP32(p.mean),
                                   FP32(p.rstd), NULL));
    tensor_check("layer_norm", &p.y, p.expected, BF16_ROUNDING, 2e-5);
    tensor_check_share("layer_norm's mean", &p.mean, p.expected_mean, 1e-6, 1e-6);
    tensor_check("layer_norm's rstd", &p.rstd, p.expected_rstd, 1e-5, 0);
    sp_kernel_layer_norm_backward_input_f64(tokens, features, p.x.value, p.x.stride, p.weight.value,
                                            p.expected_mean, p.expected_rstd, p.dy.value,
                                            p.dy.stride, p.expected, p.dx.stride);
    device_wait(sp_cuda_layer_norm_backward_input(
        tokens, features, BF16(p.x), p.x.stride, BF16(p.weight), FP32(p.mean), FP32(p.rstd),
        BF16(p.dy), p.dy.stride, BF16(p.dx), p.dx.stride, NULL));
    tensor_check("layer_norm_backward_input", &p.dx, p.expected, BF16_ROUNDING, 2e-5);
    sp_kernel_layer_norm_backward_weight_f64(tokens, features, p.x.value, p.x.stride,
                                             p.expected_mean, p.expected_rstd, p.dy.value,
                                             p.dy.stride, p.expected_weight, p.expected_bias);
    device_wait(sp_cuda_layer_norm_backward_weight(
        tokens, features, BF16(p.x), p.x.stride, FP32(p.mean), FP32(p.rstd), BF16(p.dy),
        p.dy.stride, FP32(p.dweight), FP32(p.dbias), FP32(p.room), NULL));
    tensor_check_share("layer_norm_backward_weight", &p.dweight, p.expected_weight, 1e-5, 1e-5);
    tensor_check_share("layer_norm_backward_weight's bias", &p.dbias, p.expected_bias, 1e-6, 1e-6);
}

static void layer_norm(void)
{
    for (int w = 0; w < WIDTHS; w++) {
        for (int l = 0; l < TENSOR_LAYOUTS; l++) {
            check_layer(widths[w] > 10000 ? 2 : 9, widths[w], tensor_layouts[l], l == 1 ? 40 : 0);
        }
    }
}

// Many rows: several slabs, warps and steps of each.
static void weight_gradients_of_many_rows(void)
{
    check_rms(1000, 40, tensor_layouts[0]);
    check_rms(1000, 40, tensor_layouts[2]);
    check_layer(700, 264, tensor_layouts[1], 0);
}

static void bias_gradient(void)
{
    for (int l = 0; l < TENSOR_LAYOUTS; l++) {
        problem p = set_up(333, 56, tensor_layouts[l]);
        for (int64_t t = 0; t < p.tokens; t++) {
            sp_kernel_add_f64(p.features, p.dy.value + t * p.dy.stride, p.expected_bias);
        }
        device_wait(sp_cuda_bias_backward(p.tokens, p.features, BF16(p.dy), p.dy.stride,
                                          FP32(p.dbias), FP32(p.room), NULL));
        tensor_check_share("bias_backward", &p.dbias, p.expected_bias, 1e-6, 1e-6);
    }
}

const kernel_case kernels_norm_cases[] = {
    KERNEL_CASE(rms_norm),
    KERNEL_CASE(layer_norm),
    KERNEL_CASE(weight_gradients_of_many_rows),
    KERNEL_CASE(bias_gradient),
    {NULL, NULL},
};
