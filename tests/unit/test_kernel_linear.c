// Linear layer against its definition, on columns of wider tensors.
#include "kernels/kernels.h"
#include "tests/support/kernels/tensors.h"
#include "tests/support/test_main.h"

enum { TOKENS = 7, IN = 5, OUT = 6, X_STRIDE = 8, W_STRIDE = 9, Y_STRIDE = 11 };

typedef struct layer {
    tensors all;
    tensor x, weight, bias, y, expected;
} layer;

static void set_up(layer *l)
{
    tensors_init(&l->all, 3);
    l->x = tensor_random(&l->all, TOKENS * X_STRIDE);
    l->weight = tensor_random(&l->all, OUT * W_STRIDE);
    l->bias = tensor_random(&l->all, OUT);
    l->y = tensor_random(&l->all, TOKENS * Y_STRIDE);
    l->expected = tensor_copy(&l->all, l->y);
    sp_kernels_start_threads(1);
}

static void check_forward(const double *bias, const float *bias_f32)
{
    layer l;
    set_up(&l);
    for (int t = 0; t < TOKENS; t++) {
        for (int o = 0; o < OUT; o++) {
            double sum = bias != NULL ? bias[o] : 0.0;
            for (int i = 0; i < IN; i++) {
                sum += l.x.d[t * X_STRIDE + i] * l.weight.d[o * W_STRIDE + i];
            }
            l.expected.d[t * Y_STRIDE + o] = sum;
        }
    }
    sp_kernel_linear_f64(TOKENS, IN, OUT, l.x.d, X_STRIDE, l.weight.d, W_STRIDE, bias, l.y.d,
                         Y_STRIDE);
    sp_kernel_linear_f32(TOKENS, IN, OUT, l.x.f, X_STRIDE, l.weight.f, W_STRIDE, bias_f32, l.y.f,
                         Y_STRIDE);
    assert_near_rows(l.y.d, l.expected.d, l.y.n, 1e-15);
    assert_types_agree(l.y, 1e-6);
    tensors_fini(&l.all);
}

TEST_CALL(forward_without_bias, check_forward(NULL, NULL))

TEST(forward_with_bias)
{
    static const double bias[OUT] = {0.5, -2.0, 0.25, 4.0, 0.0, -1.0};
    static const float bias_f32[OUT] = {0.5F, -2.0F, 0.25F, 4.0F, 0.0F, -1.0F};
    check_forward(bias, bias_f32);
}

static void check_backward_input(bool accumulate)
{
    layer l;
    set_up(&l);
    tensor dx = tensor_random(&l.all, TOKENS * X_STRIDE);
    tensor expected = tensor_copy(&l.all, dx);
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < IN; i++) {
            double sum = accumulate ? dx.d[t * X_STRIDE + i] : 0.0;
            for (int o = 0; o < OUT; o++) {
                sum += l.y.d[t * Y_STRIDE + o] * l.weight.d[o * W_STRIDE + i];
            }
            expected.d[t * X_STRIDE + i] = sum;
        }
    }
    sp_kernel_linear_backward_input_f64(TOKENS, IN, OUT, l.y.d, Y_STRIDE, l.weight.d, W_STRIDE,
                                        accumulate, dx.d, X_STRIDE);
    sp_kernel_linear_backward_input_f32(TOKENS, IN, OUT, l.y.f, Y_STRIDE, l.weight.f, W_STRIDE,
                                        accumulate, dx.f, X_STRIDE);
    assert_near_rows(dx.d, expected.d, dx.n, 1e-15);
    assert_types_agree(dx, 1e-6);
    tensors_fini(&l.all);
}

TEST_CALL(input_gradient, check_backward_input(false))
TEST_CALL(input_gradient_added, check_backward_input(true))

TEST(weight_gradient_adds_up)
{
    layer l;
    set_up(&l);
    tensor dweight = tensor_random(&l.all, OUT * W_STRIDE);
    tensor dbias = tensor_random(&l.all, OUT);
    tensor expected = tensor_copy(&l.all, dweight);
    tensor expected_bias = tensor_copy(&l.all, dbias);
    for (int o = 0; o < OUT; o++) {
        for (int t = 0; t < TOKENS; t++) {
            double dy = l.y.d[t * Y_STRIDE + o];
            expected_bias.d[o] += dy;
            for (int i = 0; i < IN; i++) {
                expected.d[o * W_STRIDE + i] += dy * l.x.d[t * X_STRIDE + i];
            }
        }
    }
    // In two calls, as of two slices.
    for (int part = 0; part < 2; part++) {
        int from = part == 0 ? 0 : 3;
        int tokens = part == 0 ? 3 : TOKENS - 3;
        sp_kernel_linear_backward_weight_f64(tokens, IN, OUT, l.y.d + from * Y_STRIDE, Y_STRIDE,
                                             l.x.d + from * X_STRIDE, X_STRIDE, dweight.d, W_STRIDE,
                                             dbias.d);
        sp_kernel_linear_backward_weight_f32(tokens, IN, OUT, l.y.f + from * Y_STRIDE, Y_STRIDE,
                                             l.x.f + from * X_STRIDE, X_STRIDE, dweight.f, W_STRIDE,
                                             dbias.f);
    }
    assert_near_rows(dweight.d, expected.d, dweight.n, 1e-15);
    assert_near_rows(dbias.d, expected_bias.d, OUT, 1e-15);
    assert_types_agree(dweight, 1e-6);
    assert_types_agree(dbias, 1e-6);
    tensors_fini(&l.all);
}

TEST(no_tokens_change_nothing)
{
    layer l;
    set_up(&l);
    tensor before = tensor_copy(&l.all, l.weight);
    sp_kernel_linear_f64(0, IN, OUT, l.x.d, X_STRIDE, l.weight.d, W_STRIDE, l.bias.d, l.y.d,
                         Y_STRIDE);
    sp_kernel_linear_backward_weight_f64(0, IN, OUT, l.y.d, Y_STRIDE, l.x.d, X_STRIDE, l.weight.d,
                                         W_STRIDE, l.bias.d);
    assert_memory_equal(l.weight.d, before.d, (size_t)before.n * sizeof(double));
    assert_memory_equal(l.y.d, l.expected.d, (size_t)l.y.n * sizeof(double));
    tensors_fini(&l.all);
}
