// Attention over slices: against its definition and finite differences, slices against the whole
// sample, in sizes within, at and across the tiles.
#include "kernels/kernels.h"
#include "tests/support/kernels/naive_attention.h"
#include "tests/support/test_main.h"

static void forward_f64(attention_problem *p, int64_t begin, int64_t len)
{
    const sp_kernel_attention_shape *s = &p->shape;
    sp_kernel_attention_f64(s, begin, len, p->q.d + begin * s->q_stride, p->k.d, p->v.d,
                            p->out.d + begin * s->out_stride, p->lse.d + begin * s->heads,
                            p->workspace.d);
}

static void backward_f64(attention_problem *p, int64_t begin, int64_t len)
{
    const sp_kernel_attention_shape *s = &p->shape;
    sp_kernel_attention_backward_input_f64(
        s, begin, len, p->q.d + begin * s->q_stride, p->k.d, p->v.d,
        p->out.d + begin * s->out_stride, p->dout.d + begin * s->out_stride,
        p->lse.d + begin * s->heads, p->dq.d + begin * s->q_stride, p->dk.d, p->dv.d,
        p->workspace.d);
}

static void run_f32(attention_problem *p)
{
    const sp_kernel_attention_shape *s = &p->shape;
    sp_kernel_attention_f32(s, 0, p->tokens, p->q.f, p->k.f, p->v.f, p->out.f, p->lse.f,
                            p->workspace.f);
    sp_kernel_attention_backward_input_f32(s, 0, p->tokens, p->q.f, p->k.f, p->v.f, p->out.f,
                                           p->dout.f, p->lse.f, p->dq.f, p->dk.f, p->dv.f,
                                           p->workspace.f);
}

// Tokens that a query sees, and features of a head of values where they are fewer.
typedef struct sight {
    int64_t window, chunk;
    int64_t value_dim;
} sight;

static void check_seen(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t tokens,
                       sight seen)
{
    attention_problem p;
    attention_set_up(&p, heads, kv_heads, head_dim, tokens);
    p.shape.window = seen.window;
    p.shape.chunk = seen.chunk;
    p.shape.value_dim = seen.value_dim;
    tensor out = tensor_zero(&p.all, p.out.n);
    tensor lse = tensor_zero(&p.all, p.lse.n);
    tensor dq = tensor_zero(&p.all, p.dq.n);
    tensor dk = tensor_zero(&p.all, p.dk.n);
    tensor dv = tensor_zero(&p.all, p.dv.n);
    naive_attention(&p, out.d, lse.d, dq.d, dk.d, dv.d);
    forward_f64(&p, 0, tokens);
    backward_f64(&p, 0, tokens);
    assert_near_rows(p.out.d, out.d, out.n, 1e-13);
    assert_near_rows(p.lse.d, lse.d, lse.n, 1e-13);
    assert_near_rows(p.dq.d, dq.d, dq.n, 1e-13);
    assert_near_rows(p.dk.d, dk.d, dk.n, 1e-13);
    assert_near_rows(p.dv.d, dv.d, dv.n, 1e-13);
    run_f32(&p);
    assert_types_agree(p.out, 1e-5);
    assert_types_agree(p.lse, 1e-5);
    assert_types_agree(p.dq, 1e-5);
    assert_types_agree(p.dk, 1e-5);
    assert_types_agree(p.dv, 1e-5);
    tensors_fini(&p.all);
}

static void check_against_naive(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t tokens)
{
    check_seen(heads, kv_heads, head_dim, tokens, (sight){0, 0, 0});
}

TEST(short_samples)
{
    for (int64_t tokens = 1; tokens < 20; tokens++) {
        check_against_naive(2, 1, 6, tokens);
    }
}

TEST(sizes_about_the_tiles)
{
    static const int64_t tokens[8] = {127, 128, 129, 255, 256, 257, 384, 391};
    for (int i = 0; i < 8; i++) {
        check_against_naive(1, 1, 4, tokens[i]);
    }
}

TEST(grouped_queries)
{
    check_against_naive(6, 2, 8, 40);
    check_against_naive(4, 4, 8, 40);
    check_against_naive(4, 1, 64, 150);
}

static double loss_of(void *data)
{
    attention_problem *p = data;
    forward_f64(p, 0, p->tokens);
    return dot_of(p->out.d, p->dout.d, p->out.n);
}

TEST(gradients)
{
    attention_problem p;
    attention_set_up(&p, 4, 2, 6, 9);
    forward_f64(&p, 0, p.tokens);
    backward_f64(&p, 0, p.tokens);
    assert_gradient(loss_of, &p, p.q.d, p.q.n, p.dq.d);
    assert_gradient(loss_of, &p, p.k.d, p.k.n, p.dk.d);
    assert_gradient(loss_of, &p, p.v.d, p.v.n, p.dv.d);
    tensors_fini(&p.all);
}

static void check_seen_slices(int64_t tokens, const int64_t *begin, int slices, sight seen)
{
    attention_problem whole, sliced;
    attention_set_up(&whole, 4, 2, 8, tokens);
    attention_set_up(&sliced, 4, 2, 8, tokens);
    whole.shape.window = sliced.shape.window = seen.window;
    whole.shape.chunk = sliced.shape.chunk = seen.chunk;
    whole.shape.value_dim = sliced.shape.value_dim = seen.value_dim;
    forward_f64(&whole, 0, tokens);
    backward_f64(&whole, 0, tokens);
    for (int i = 0; i < slices; i++) {
        forward_f64(&sliced, begin[i], begin[i + 1] - begin[i]);
    }
    for (int i = slices - 1; i >= 0; i--) {
        backward_f64(&sliced, begin[i], begin[i + 1] - begin[i]);
    }
    assert_near_rows(sliced.out.d, whole.out.d, whole.out.n, 1e-13);
    assert_near_rows(sliced.lse.d, whole.lse.d, whole.lse.n, 1e-13);
    assert_near_rows(sliced.dq.d, whole.dq.d, whole.dq.n, 1e-13);
    assert_near_rows(sliced.dk.d, whole.dk.d, whole.dk.n, 1e-13);
    assert_near_rows(sliced.dv.d, whole.dv.d, whole.dv.n, 1e-13);
    tensors_fini(&sliced.all);
    tensors_fini(&whole.all);
}

static void check_slices(int64_t tokens, const int64_t *begin, int slices)
{
    check_seen_slices(tokens, begin, slices, (sight){0, 0, 0});
}

// Windows and chunks shorter and longer than tiles of keys and queries, and than the sample.
static const sight sights[] = {{2, 0, 0},   {7, 0, 0},   {128, 0, 0}, {256, 0, 0},
                               {300, 0, 0}, {999, 0, 0}, {0, 2, 0},   {0, 7, 0},
                               {0, 128, 0}, {0, 256, 0}, {0, 257, 0}, {0, 300, 0},
                               {0, 999, 0}, {0, 0, 1},   {0, 0, 3},   {9, 0, 2}};

enum { SIGHTS = sizeof sights / sizeof sights[0] };

TEST(windows_and_chunks)
{
    for (int s = 0; s < SIGHTS; s++) {
        check_seen(2, 1, 6, 19, sights[s]);
        check_seen(1, 1, 4, 391, sights[s]);
        check_seen(4, 2, 8, 643, sights[s]);
    }
}

TEST(slices_of_windows_and_chunks)
{
    static const int64_t odd[6] = {0, 1, 100, 357, 601, 643};
    for (int s = 0; s < SIGHTS; s++) {
        check_seen_slices(643, odd, 5, sights[s]);
    }
}

// One token of a window is a query's own: its value comes out as it is.
TEST(a_window_of_one)
{
    attention_problem p;
    attention_set_up(&p, 1, 1, 4, 300);
    p.shape.window = 1;
    forward_f64(&p, 0, p.tokens);
    for (int64_t i = 0; i < p.tokens; i++) {
        assert_within(p.out.d[i * p.shape.out_stride], p.v.d[i * p.shape.kv_stride], 1e-14);
    }
    tensors_fini(&p.all);
}

TEST(slices_against_the_whole)
{
    static const int64_t even[5] = {0, 128, 256, 384, 512};
    static const int64_t odd[6] = {0, 1, 100, 357, 601, 643};
    check_slices(512, even, 4);
    check_slices(643, odd, 5);
}

// Forward and backward may cut a sample differently.
TEST(other_slices_backward)
{
    attention_problem whole, sliced;
    attention_set_up(&whole, 2, 1, 8, 300);
    attention_set_up(&sliced, 2, 1, 8, 300);
    forward_f64(&whole, 0, 300);
    backward_f64(&whole, 0, 300);
    forward_f64(&sliced, 0, 90);
    forward_f64(&sliced, 90, 210);
    backward_f64(&sliced, 200, 100);
    backward_f64(&sliced, 130, 70);
    backward_f64(&sliced, 0, 130);
    assert_near_rows(sliced.dq.d, whole.dq.d, whole.dq.n, 1e-13);
    assert_near_rows(sliced.dk.d, whole.dk.d, whole.dk.n, 1e-13);
    assert_near_rows(sliced.dv.d, whole.dv.d, whole.dv.n, 1e-13);
    tensors_fini(&sliced.all);
    tensors_fini(&whole.all);
}

// Equal keys: the probabilities are level, so out is the mean of the values so far and lse is the
// score plus the log of their number.
TEST(equal_keys)
{
    attention_problem p;
    attention_set_up(&p, 1, 1, 4, 300);
    for (int64_t i = 0; i < p.k.n; i++) {
        p.k.d[i] = 100.0;
    }
    forward_f64(&p, 0, p.tokens);
    double sum = 0;
    for (int64_t i = 0; i < p.tokens; i++) {
        const double *q = p.q.d + i * p.shape.q_stride;
        double score = 100.0 * p.shape.scale * (q[0] + q[1] + q[2] + q[3]);
        sum += p.v.d[i * p.shape.kv_stride];
        double expected[2] = {sum / (double)(i + 1), score + log((double)(i + 1))};
        assert_within(p.out.d[i * p.shape.out_stride], expected[0], 1e-12);
        assert_within(p.lse.d[i], expected[1], 1e-11);
    }
    tensors_fini(&p.all);
}
