// Cross-entropy: definition, finite differences, weights and targets that do not count, and a
// vocabulary split over ranks with the all-reduces done by hand.
#include "kernels/kernels.h"
#include "tests/support/kernels/tensors.h"
#include "tests/support/test_main.h"

enum { TOKENS = 5, VOCAB = 37, STRIDE = 40, RANKS = 3 };
static const int64_t target[TOKENS] = {0, 36, 12, -100, 25};
static const double total_weight = 9.5;

typedef struct problem {
    tensors all;
    tensor logits, weight, lse, dlogits;
} problem;

static void set_up(problem *p)
{
    tensors_init(&p->all, 41);
    p->logits = tensor_random(&p->all, TOKENS * STRIDE);
    p->weight = tensor_random(&p->all, TOKENS);
    p->lse = tensor_zero(&p->all, TOKENS);
    p->dlogits = tensor_zero(&p->all, TOKENS * STRIDE);
    for (int64_t i = 0; i < p->logits.n; i++) {
        p->logits.d[i] *= 8.0;
        p->logits.f[i] *= 8.0F;
    }
}

static double run(problem *p)
{
    return sp_kernel_cross_entropy_f64(TOKENS, VOCAB, p->logits.d, STRIDE, target, p->weight.d,
                                       total_weight, p->lse.d);
}

static double loss_of(void *data)
{
    return run(data);
}

static void run_backward(problem *p)
{
    sp_kernel_cross_entropy_backward_f64(TOKENS, VOCAB, 0, p->logits.d, STRIDE, target, p->weight.d,
                                         total_weight, p->lse.d, p->dlogits.d, STRIDE);
}

TEST(definition)
{
    PROBLEM(p);
    double expected = 0;
    for (int t = 0; t < TOKENS; t++) {
        double sum = 0;
        for (int j = 0; j < VOCAB; j++) {
            sum += exp(p.logits.d[t * STRIDE + j]);
        }
        if (target[t] >= 0) {
            expected -=
                p.weight.d[t] / total_weight * log(exp(p.logits.d[t * STRIDE + target[t]]) / sum);
        }
    }
    double loss = run(&p);
    double loss_f32 = sp_kernel_cross_entropy_f32(TOKENS, VOCAB, p.logits.f, STRIDE, target,
                                                  p.weight.f, total_weight, p.lse.f);
    assert_close(loss, expected, 1e-14);
    assert_close(loss_f32, expected, 1e-6);
    assert_types_agree(p.lse, 1e-6);
}

// All logits equal: each token's loss is log(VOCAB), however large the logits are.
TEST(uniform_logits)
{
    PROBLEM(p);
    for (int64_t i = 0; i < p.logits.n; i++) {
        p.logits.d[i] = 1e5;
    }
    double loss =
        sp_kernel_cross_entropy_f64(TOKENS, VOCAB, p.logits.d, STRIDE, target, NULL, 4.0, p.lse.d);
    assert_within(loss, log(VOCAB), 1e-10);
}

TEST(gradient)
{
    PROBLEM(p);
    run(&p);
    run_backward(&p);
    sp_kernel_cross_entropy_f32(TOKENS, VOCAB, p.logits.f, STRIDE, target, p.weight.f, total_weight,
                                p.lse.f);
    sp_kernel_cross_entropy_backward_f32(TOKENS, VOCAB, 0, p.logits.f, STRIDE, target, p.weight.f,
                                         total_weight, p.lse.f, p.dlogits.f, STRIDE);
    assert_gradient(loss_of, &p, p.logits.d, p.logits.n, p.dlogits.d);
    assert_types_agree(p.dlogits, 1e-5);
}

TEST(gradient_in_place)
{
    PROBLEM(p);
    run(&p);
    run_backward(&p);
    sp_kernel_cross_entropy_backward_f64(TOKENS, VOCAB, 0, p.logits.d, STRIDE, target, p.weight.d,
                                         total_weight, p.lse.d, p.logits.d, STRIDE);
    for (int t = 0; t < TOKENS; t++) {
        assert_memory_equal(p.logits.d + t * STRIDE, p.dlogits.d + t * STRIDE,
                            VOCAB * sizeof(double));
    }
}

// A token that does not count must not spread infinities.
TEST(ignored_tokens)
{
    PROBLEM(p);
    run(&p);
    double before = run(&p);
    for (int j = 0; j < VOCAB; j++) {
        p.logits.d[3 * STRIDE + j] = INFINITY;
    }
    assert_true(run(&p) == before);
    run_backward(&p);
    for (int j = 0; j < VOCAB; j++) {
        assert_true(p.dlogits.d[3 * STRIDE + j] == 0.0);
    }
}

TEST(parts_add_up)
{
    PROBLEM(p);
    double whole = run(&p);
    double sum = 0;
    for (int t = 0; t < TOKENS; t++) {
        double lse;
        sum += sp_kernel_cross_entropy_f64(1, VOCAB, p.logits.d + t * STRIDE, STRIDE, target + t,
                                           p.weight.d + t, total_weight, &lse);
        assert_true(lse == p.lse.d[t]);
    }
    assert_close(sum, whole, 1e-15);
}

static const int64_t first_column[RANKS + 1] = {0, 11, 12, VOCAB};

// What the ranks and their three all-reduces make of the logits.
static double vocabulary_parallel(const problem *p, double *lse)
{
    double max[TOKENS];
    double sum[TOKENS] = {0};
    double logit[TOKENS] = {0};
    for (int r = 0; r < RANKS; r++) {
        int64_t columns = first_column[r + 1] - first_column[r];
        double local[TOKENS];
        sp_kernel_cross_entropy_max_f64(TOKENS, columns, p->logits.d + first_column[r], STRIDE,
                                        local);
        for (int t = 0; t < TOKENS; t++) {
            max[t] = r == 0 ? local[t] : fmax(max[t], local[t]);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        int64_t columns = first_column[r + 1] - first_column[r];
        double local_sum[TOKENS], local_logit[TOKENS];
        sp_kernel_cross_entropy_sums_f64(TOKENS, columns, first_column[r],
                                         p->logits.d + first_column[r], STRIDE, target, max,
                                         local_sum, local_logit);
        sp_kernel_add_f64(TOKENS, local_sum, sum);
        sp_kernel_add_f64(TOKENS, local_logit, logit);
    }
    return sp_kernel_cross_entropy_loss_f64(TOKENS, target, p->weight.d, total_weight, max, sum,
                                            logit, lse);
}

TEST(vocabulary_over_ranks)
{
    PROBLEM(p);
    tensor lse = tensor_zero(&p.all, TOKENS);
    tensor dlogits = tensor_zero(&p.all, p.dlogits.n);
    double whole = run(&p);
    run_backward(&p);
    double parallel = vocabulary_parallel(&p, lse.d);
    assert_close(parallel, whole, 1e-14);
    assert_near_rows(lse.d, p.lse.d, TOKENS, 1e-15);
    for (int r = 0; r < RANKS; r++) {
        sp_kernel_cross_entropy_backward_f64(TOKENS, first_column[r + 1] - first_column[r],
                                             first_column[r], p.logits.d + first_column[r], STRIDE,
                                             target, p.weight.d, total_weight, lse.d,
                                             dlogits.d + first_column[r], STRIDE);
    }
    assert_near_rows(dlogits.d, p.dlogits.d, dlogits.n, 1e-14);
}
