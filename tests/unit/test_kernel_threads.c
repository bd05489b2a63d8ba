// Kernels on several threads at once: every thread gets the bits that one alone gets.
#include <pthread.h>

#include "kernels/kernels.h"
#include "tests/support/kernels/naive_attention.h"
#include "tests/support/test_main.h"

enum { THREADS = 4, ROUNDS = 6, HEADS = 4, HEAD_DIM = 16, TOKENS = 200 };
enum { FEATURES = HEADS * HEAD_DIM };

typedef struct work {
    attention_problem p;
    tensor weight, hidden, dweight;
} work;

static void set_up(work *w)
{
    attention_set_up(&w->p, HEADS, 2, HEAD_DIM, TOKENS);
    w->weight = tensor_random(&w->p.all, FEATURES * FEATURES);
    w->hidden = tensor_zero(&w->p.all, TOKENS * FEATURES);
    w->dweight = tensor_zero(&w->p.all, FEATURES * FEATURES);
}

static void compute(work *w)
{
    attention_problem *p = &w->p;
    const sp_kernel_attention_shape *s = &p->shape;
    sp_kernel_attention_f32(s, 0, TOKENS, p->q.f, p->k.f, p->v.f, p->out.f, p->lse.f,
                            p->workspace.f);
    sp_kernel_linear_f32(TOKENS, FEATURES, FEATURES, p->out.f, s->out_stride, w->weight.f, FEATURES,
                         NULL, w->hidden.f, FEATURES);
    sp_kernel_attention_backward_input_f32(s, 0, TOKENS, p->q.f, p->k.f, p->v.f, p->out.f,
                                           p->dout.f, p->lse.f, p->dq.f, p->dk.f, p->dv.f,
                                           p->workspace.f);
    sp_kernel_linear_backward_weight_f32(TOKENS, FEATURES, FEATURES, w->hidden.f, FEATURES,
                                         p->out.f, s->out_stride, w->dweight.f, FEATURES, NULL);
}

static void *compute_again(void *data)
{
    for (int round = 0; round < ROUNDS; round++) {
        compute(data);
    }
    return NULL;
}

static void assert_same_bits(tensor x, tensor y)
{
    assert_memory_equal(x.f, y.f, (size_t)x.n * sizeof(float));
}

TEST(same_bits_on_every_thread)
{
    static work alone, together[THREADS];
    pthread_t thread[THREADS];
    set_up(&alone);
    compute_again(&alone);
    for (int i = 0; i < THREADS; i++) {
        set_up(&together[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, compute_again, &together[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_same_bits(together[i].p.out, alone.p.out);
        assert_same_bits(together[i].p.dq, alone.p.dq);
        assert_same_bits(together[i].p.dk, alone.p.dk);
        assert_same_bits(together[i].p.dv, alone.p.dv);
        assert_same_bits(together[i].hidden, alone.hidden);
        assert_same_bits(together[i].dweight, alone.dweight);
        tensors_fini(&together[i].p.all);
    }
    tensors_fini(&alone.p.all);
}
