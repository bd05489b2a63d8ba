// SwiGLU and GELU: definitions through the C library's functions, gradients against finite
// differences, fp32 against fp64.
#include "kernels/kernels.h"
#include "tests/support/kernels/tensors.h"
#include "tests/support/test_main.h"

enum { TOKENS = 4, FEATURES = 19, IN_STRIDE = 2 * FEATURES, N = TOKENS * FEATURES };

typedef struct problem {
    tensors all;
    tensor in, dy, y; // gate and up are the halves of `in`
} problem;

static void set_up(problem *p)
{
    tensors_init(&p->all, 17);
    p->in = tensor_random(&p->all, TOKENS * IN_STRIDE);
    p->dy = tensor_random(&p->all, N);
    p->y = tensor_zero(&p->all, N);
    for (int64_t i = 0; i < p->in.n; i++) {
        p->in.d[i] *= 6.0;
        p->in.f[i] = (float)p->in.d[i];
    }
}

static double swiglu_loss(void *data)
{
    problem *p = data;
    sp_kernel_swiglu_f64(TOKENS, FEATURES, p->in.d, p->in.d + FEATURES, IN_STRIDE, p->y.d,
                         FEATURES);
    return dot_of(p->y.d, p->dy.d, N);
}

static double gelu_loss(void *data)
{
    problem *p = data;
    sp_kernel_gelu_f64(N, p->in.d, p->y.d);
    return dot_of(p->y.d, p->dy.d, N);
}

TEST(swiglu_definition)
{
    PROBLEM(p);
    tensor expected = tensor_zero(&p.all, N);
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < FEATURES; i++) {
            double gate = p.in.d[t * IN_STRIDE + i];
            double up = p.in.d[t * IN_STRIDE + FEATURES + i];
            expected.d[t * FEATURES + i] = gate / (1.0 + exp(-gate)) * up;
        }
    }
    swiglu_loss(&p);
    sp_kernel_swiglu_f32(TOKENS, FEATURES, p.in.f, p.in.f + FEATURES, IN_STRIDE, p.y.f, FEATURES);
    assert_near_rows(p.y.d, expected.d, N, 1e-15);
    assert_types_agree(p.y, 1e-6);
}

TEST(swiglu_gradients)
{
    PROBLEM(p);
    tensor din = tensor_zero(&p.all, p.in.n);
    sp_kernel_swiglu_backward_f64(TOKENS, FEATURES, p.in.d, p.in.d + FEATURES, IN_STRIDE, p.dy.d,
                                  FEATURES, din.d, din.d + FEATURES, IN_STRIDE);
    sp_kernel_swiglu_backward_f32(TOKENS, FEATURES, p.in.f, p.in.f + FEATURES, IN_STRIDE, p.dy.f,
                                  FEATURES, din.f, din.f + FEATURES, IN_STRIDE);
    assert_gradient(swiglu_loss, &p, p.in.d, p.in.n, din.d);
    assert_types_agree(din, 1e-6);
}

TEST(gelu_definition)
{
    PROBLEM(p);
    tensor expected = tensor_zero(&p.all, N);
    double pi = acos(-1.0);
    for (int i = 0; i < N; i++) {
        double x = p.in.d[i];
        expected.d[i] = 0.5 * x * (1.0 + tanh(sqrt(2.0 / pi) * (x + 0.044715 * x * x * x)));
    }
    gelu_loss(&p);
    sp_kernel_gelu_f32(N, p.in.f, p.y.f);
    assert_near_rows(p.y.d, expected.d, N, 1e-15);
    assert_types_agree(p.y, 1e-6);
}

TEST(gelu_gradient)
{
    PROBLEM(p);
    tensor dx = tensor_zero(&p.all, N);
    sp_kernel_gelu_backward_f64(N, p.in.d, p.dy.d, dx.d);
    sp_kernel_gelu_backward_f32(N, p.in.f, p.dy.f, dx.f);
    assert_gradient(gelu_loss, &p, p.in.d, N, dx.d);
    assert_types_agree(dx, 1e-5);
}

// Far out both are the identity or zero, with slopes 1 and 0 and no NaN on the way.
TEST(far_from_zero)
{
    static const double x[4] = {200.0, -200.0, 1e6, -1e6};
    static const double ones[4] = {1.0, 1.0, 1.0, 1.0};
    static const double expected[4] = {200.0, 0.0, 1e6, 0.0};
    static const double slopes[4] = {1.0, 0.0, 1.0, 0.0};
    double y[4], dx[4], dup[4];
    sp_kernel_gelu_f64(4, x, y);
    sp_kernel_gelu_backward_f64(4, x, ones, dx);
    assert_near_rows(y, expected, 4, 1e-15);
    assert_near_rows(dx, slopes, 4, 1e-15);
    sp_kernel_swiglu_f64(1, 4, x, ones, 4, y, 4);
    sp_kernel_swiglu_backward_f64(1, 4, x, ones, 4, ones, 4, dx, dup, 4);
    assert_near_rows(y, expected, 4, 1e-15);
    assert_near_rows(dx, slopes, 4, 1e-15);
    assert_near_rows(dup, expected, 4, 1e-15);
}
