// RMSNorm and LayerNorm: against their definitions, gradients against finite differences, fp32
// against fp64.
#include "kernels/kernels.h"
#include "tests/support/kernels/tensors.h"
#include "tests/support/test_main.h"

enum { TOKENS = 5, FEATURES = 21, X_STRIDE = 24, Y_STRIDE = 23 };
static const double epsilon = 1e-5;

typedef struct problem {
    tensors all;
    tensor x, weight, bias, dy, y, mean, rstd;
} problem;

static void set_up(problem *p)
{
    tensors_init(&p->all, 11);
    p->x = tensor_random(&p->all, TOKENS * X_STRIDE);
    p->weight = tensor_random(&p->all, FEATURES);
    p->bias = tensor_random(&p->all, FEATURES);
    p->dy = tensor_random(&p->all, TOKENS * Y_STRIDE);
    p->y = tensor_zero(&p->all, TOKENS * Y_STRIDE);
    p->mean = tensor_zero(&p->all, TOKENS);
    p->rstd = tensor_zero(&p->all, TOKENS);
    // Columns beyond the features stand for a neighbour's; they must not count.
    for (int t = 0; t < TOKENS; t++) {
        for (int i = FEATURES; i < Y_STRIDE; i++) {
            p->dy.d[t * Y_STRIDE + i] = 0;
            p->dy.f[t * Y_STRIDE + i] = 0;
        }
    }
}

static void run_rms_norm(problem *p)
{
    sp_kernel_rms_norm_f64(TOKENS, FEATURES, p->x.d, X_STRIDE, p->weight.d, epsilon, p->y.d,
                           Y_STRIDE, p->rstd.d);
    sp_kernel_rms_norm_f32(TOKENS, FEATURES, p->x.f, X_STRIDE, p->weight.f, epsilon, p->y.f,
                           Y_STRIDE, p->rstd.f);
}

static void run_layer_norm(problem *p)
{
    sp_kernel_layer_norm_f64(TOKENS, FEATURES, p->x.d, X_STRIDE, p->weight.d, p->bias.d, epsilon,
                             p->y.d, Y_STRIDE, p->mean.d, p->rstd.d);
    sp_kernel_layer_norm_f32(TOKENS, FEATURES, p->x.f, X_STRIDE, p->weight.f, p->bias.f, epsilon,
                             p->y.f, Y_STRIDE, p->mean.f, p->rstd.f);
}

static double rms_norm_loss(void *data)
{
    problem *p = data;
    run_rms_norm(p);
    return dot_of(p->y.d, p->dy.d, p->y.n);
}

static double layer_norm_loss(void *data)
{
    problem *p = data;
    run_layer_norm(p);
    return dot_of(p->y.d, p->dy.d, p->y.n);
}

TEST(rms_norm_definition)
{
    PROBLEM(p);
    tensor expected = tensor_zero(&p.all, p.y.n);
    for (int t = 0; t < TOKENS; t++) {
        const double *row = p.x.d + t * X_STRIDE;
        double rms = sqrt(dot_of(row, row, FEATURES) / FEATURES + epsilon);
        for (int i = 0; i < FEATURES; i++) {
            expected.d[t * Y_STRIDE + i] = row[i] / rms * p.weight.d[i];
        }
    }
    run_rms_norm(&p);
    assert_near_rows(p.y.d, expected.d, p.y.n, 1e-14);
    assert_types_agree(p.y, 1e-6);
    assert_types_agree(p.rstd, 1e-6);
}

TEST(rms_norm_gradients)
{
    PROBLEM(p);
    tensor dx = tensor_zero(&p.all, p.x.n);
    tensor dweight = tensor_zero(&p.all, FEATURES);
    run_rms_norm(&p);
    sp_kernel_rms_norm_backward_input_f64(TOKENS, FEATURES, p.x.d, X_STRIDE, p.weight.d, p.rstd.d,
                                          p.dy.d, Y_STRIDE, dx.d, X_STRIDE);
    sp_kernel_rms_norm_backward_input_f32(TOKENS, FEATURES, p.x.f, X_STRIDE, p.weight.f, p.rstd.f,
                                          p.dy.f, Y_STRIDE, dx.f, X_STRIDE);
    sp_kernel_rms_norm_backward_weight_f64(TOKENS, FEATURES, p.x.d, X_STRIDE, p.rstd.d, p.dy.d,
                                           Y_STRIDE, dweight.d);
    sp_kernel_rms_norm_backward_weight_f32(TOKENS, FEATURES, p.x.f, X_STRIDE, p.rstd.f, p.dy.f,
                                           Y_STRIDE, dweight.f);
    assert_gradient(rms_norm_loss, &p, p.x.d, p.x.n, dx.d);
    assert_gradient(rms_norm_loss, &p, p.weight.d, FEATURES, dweight.d);
    assert_types_agree(dx, 1e-5);
    assert_types_agree(dweight, 1e-5);
}

TEST(layer_norm_definition)
{
    PROBLEM(p);
    tensor expected = tensor_zero(&p.all, p.y.n);
    for (int t = 0; t < TOKENS; t++) {
        const double *row = p.x.d + t * X_STRIDE;
        double mean = 0, variance = 0;
        for (int i = 0; i < FEATURES; i++) {
            mean += row[i] / FEATURES;
        }
        for (int i = 0; i < FEATURES; i++) {
            variance += (row[i] - mean) * (row[i] - mean) / FEATURES;
        }
        for (int i = 0; i < FEATURES; i++) {
            expected.d[t * Y_STRIDE + i] =
                (row[i] - mean) / sqrt(variance + epsilon) * p.weight.d[i] + p.bias.d[i];
        }
    }
    run_layer_norm(&p);
    assert_near_rows(p.y.d, expected.d, p.y.n, 1e-14);
    assert_types_agree(p.y, 1e-6);
    assert_types_agree(p.mean, 1e-5);
    assert_types_agree(p.rstd, 1e-6);
}

TEST(layer_norm_gradients)
{
    PROBLEM(p);
    tensor dx = tensor_zero(&p.all, p.x.n);
    tensor dweight = tensor_zero(&p.all, FEATURES);
    tensor dbias = tensor_zero(&p.all, FEATURES);
    run_layer_norm(&p);
    sp_kernel_layer_norm_backward_input_f64(TOKENS, FEATURES, p.x.d, X_STRIDE, p.weight.d, p.mean.d,
                                            p.rstd.d, p.dy.d, Y_STRIDE, dx.d, X_STRIDE);
    sp_kernel_layer_norm_backward_input_f32(TOKENS, FEATURES, p.x.f, X_STRIDE, p.weight.f, p.mean.f,
                                            p.rstd.f, p.dy.f, Y_STRIDE, dx.f, X_STRIDE);
    sp_kernel_layer_norm_backward_weight_f64(TOKENS, FEATURES, p.x.d, X_STRIDE, p.mean.d, p.rstd.d,
                                             p.dy.d, Y_STRIDE, dweight.d, dbias.d);
    sp_kernel_layer_norm_backward_weight_f32(TOKENS, FEATURES, p.x.f, X_STRIDE, p.mean.f, p.rstd.f,
                                             p.dy.f, Y_STRIDE, dweight.f, dbias.f);
    assert_gradient(layer_norm_loss, &p, p.x.d, p.x.n, dx.d);
    assert_gradient(layer_norm_loss, &p, p.weight.d, FEATURES, dweight.d);
    assert_gradient(layer_norm_loss, &p, p.bias.d, FEATURES, dbias.d);
    assert_types_agree(dx, 1e-5);
    assert_types_agree(dweight, 1e-5);
    assert_types_agree(dbias, 1e-5);
}

// Tokens far from zero: the variance must not come from cancelling sums.
TEST(layer_norm_of_a_large_mean)
{
    PROBLEM(p);
    for (int64_t i = 0; i < p.x.n; i++) {
        // Multiples of 1/4 near 4096 are exact in fp32.
        p.x.d[i] = 4096.0 + (double)(i * 7 % 16) / 4.0;
        p.x.f[i] = (float)p.x.d[i];
    }
    run_layer_norm(&p);
    assert_types_agree(p.rstd, 1e-3);
    assert_types_agree(p.y, 1e-3);
}

TEST(weight_gradients_add_up)
{
    PROBLEM(p);
    tensor whole = tensor_zero(&p.all, FEATURES);
    tensor parts = tensor_zero(&p.all, FEATURES);
    run_rms_norm(&p);
    sp_kernel_rms_norm_backward_weight_f64(TOKENS, FEATURES, p.x.d, X_STRIDE, p.rstd.d, p.dy.d,
                                           Y_STRIDE, whole.d);
    for (int t = 0; t < TOKENS; t++) {
        sp_kernel_rms_norm_backward_weight_f64(1, FEATURES, p.x.d + t * X_STRIDE, X_STRIDE,
                                               p.rstd.d + t, p.dy.d + t * Y_STRIDE, Y_STRIDE,
                                               parts.d);
    }
    assert_memory_equal(parts.d, whole.d, FEATURES * sizeof(double));
}
