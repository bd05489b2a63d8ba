// Rotary position embedding: its definition on complex numbers, what a rotation keeps, and that
// scores depend on distances alone.
#include <complex.h>

#include "kernels/kernels.h"
#include "tests/support/kernels/tensors.h"
#include "tests/support/test_main.h"

enum { TOKENS = 6, HEADS = 3, HEAD_DIM = 10, HALF = HEAD_DIM / 2, STRIDE = HEADS * HEAD_DIM + 4 };
static const double base = 500000.0;
static const int64_t position[TOKENS] = {0, 1, 2, 7, 4096, 131071};

typedef struct problem {
    tensors all;
    tensor x, cosine, sine;
} problem;

static void set_up(problem *p)
{
    tensors_init(&p->all, 5);
    p->x = tensor_random(&p->all, TOKENS * STRIDE);
    p->cosine = tensor_zero(&p->all, TOKENS * HALF);
    p->sine = tensor_zero(&p->all, TOKENS * HALF);
    sp_kernel_rope_table_f64(TOKENS, position, HEAD_DIM, base, p->cosine.d, p->sine.d);
    sp_kernel_rope_table_f32(TOKENS, position, HEAD_DIM, base, p->cosine.f, p->sine.f);
}

TEST(definition)
{
    PROBLEM(p);
    tensor expected = tensor_copy(&p.all, p.x);
    for (int t = 0; t < TOKENS; t++) {
        for (int h = 0; h < HEADS; h++) {
            for (int i = 0; i < HALF; i++) {
                int low = t * STRIDE + h * HEAD_DIM + i;
                double angle = (double)position[t] / pow(base, 2.0 * i / HEAD_DIM);
                double complex z = CMPLX(p.x.d[low], p.x.d[low + HALF]) * cexp(CMPLX(0.0, angle));
                expected.d[low] = creal(z);
                expected.d[low + HALF] = cimag(z);
            }
        }
    }
    sp_kernel_rope_f64(TOKENS, HEADS, HEAD_DIM, p.cosine.d, p.sine.d, false, p.x.d, STRIDE);
    sp_kernel_rope_f32(TOKENS, HEADS, HEAD_DIM, p.cosine.f, p.sine.f, false, p.x.f, STRIDE);
    // Angles up to 131071 keep 10 digits after the point.
    assert_near_rows(p.x.d, expected.d, p.x.n, 1e-10);
    assert_types_agree(p.x, 1e-6);
}

TEST(backward_undoes_forward)
{
    PROBLEM(p);
    tensor x = tensor_copy(&p.all, p.x);
    sp_kernel_rope_f64(TOKENS, HEADS, HEAD_DIM, p.cosine.d, p.sine.d, false, p.x.d, STRIDE);
    sp_kernel_rope_f64(TOKENS, HEADS, HEAD_DIM, p.cosine.d, p.sine.d, true, p.x.d, STRIDE);
    assert_near_rows(p.x.d, x.d, x.n, 1e-14);
}

// <R x, dy> = <x, R^T dy> makes the backward the gradient of a linear map.
TEST(backward_is_the_transpose)
{
    PROBLEM(p);
    tensor y = tensor_copy(&p.all, p.x);
    tensor dy = tensor_random(&p.all, p.x.n);
    tensor dx = tensor_copy(&p.all, dy);
    sp_kernel_rope_f64(TOKENS, HEADS, HEAD_DIM, p.cosine.d, p.sine.d, false, y.d, STRIDE);
    sp_kernel_rope_f64(TOKENS, HEADS, HEAD_DIM, p.cosine.d, p.sine.d, true, dx.d, STRIDE);
    sp_kernel_rope_f32(TOKENS, HEADS, HEAD_DIM, p.cosine.f, p.sine.f, true, dx.f, STRIDE);
    double forward = dot_of(y.d, dy.d, y.n);
    assert_within(forward, dot_of(p.x.d, dx.d, dx.n), 1e-13 * fabs(forward));
    assert_types_agree(dx, 1e-6);
}

static double score(const double *q, const double *k, int64_t q_position, int64_t k_position)
{
    double turned[2][HEAD_DIM];
    double cosine[2 * HALF];
    double sine[2 * HALF];
    int64_t positions[2] = {q_position, k_position};
    memcpy(turned[0], q, sizeof turned[0]);
    memcpy(turned[1], k, sizeof turned[1]);
    sp_kernel_rope_table_f64(2, positions, HEAD_DIM, 10000.0, cosine, sine);
    sp_kernel_rope_f64(2, 1, HEAD_DIM, cosine, sine, false, turned[0], HEAD_DIM);
    return dot_of(turned[0], turned[1], HEAD_DIM);
}

TEST(scores_depend_on_distance)
{
    PROBLEM(p);
    const double *k = p.x.d + HEAD_DIM;
    double near_start = score(p.x.d, k, 12, 5);
    double far_away = score(p.x.d, k, 1012, 1005);
    assert_within(near_start, far_away, 1e-11);
    assert_true(fabs(near_start - score(p.x.d, k, 13, 5)) > 1e-3);
}
