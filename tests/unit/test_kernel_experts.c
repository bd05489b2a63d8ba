// Experts of tokens by their definition: the largest logits, and the softmax over these.
#include "kernels/kernels.h"
#include "tests/support/kernels/tensors.h"
#include "tests/support/test_main.h"

enum { TOKENS = 40, EXPERTS = 11 };

// Experts with a larger logit, or an equal one and a smaller number.
static int before(const double *logits, int expert)
{
    int count = 0;
    for (int e = 0; e < EXPERTS; e++) {
        count += logits[e] > logits[expert] || (logits[e] == logits[expert] && e < expert);
    }
    return count;
}

static void must_be_chosen(const double *logits, int active, const double *weights,
                           const uint8_t *chosen)
{
    double sum = 0.0;
    for (int e = 0; e < EXPERTS; e++) {
        sum += before(logits, e) < active ? exp(logits[e]) : 0.0;
    }
    for (int e = 0; e < EXPERTS; e++) {
        bool is_chosen = before(logits, e) < active;
        assert_int_equal(chosen[e], is_chosen);
        assert_within(weights[e], is_chosen ? exp(logits[e]) / sum : 0.0, 1e-14);
    }
}

TEST(the_largest_logits)
{
    uint8_t chosen[TOKENS * EXPERTS];
    for (int active = 1; active <= EXPERTS; active++) {
        AUTO(tensors) all;
        tensors_init(&all, (uint64_t)active);
        tensor logits = tensor_random(&all, TOKENS * EXPERTS);
        tensor weights = tensor_zero(&all, TOKENS * EXPERTS);
        // Many of them equal.
        for (int i = 0; i < TOKENS * EXPERTS; i++) {
            logits.d[i] = i / EXPERTS % 2 == 0 ? round(2.0 * logits.d[i]) : logits.d[i];
            weights.d[i] = logits.d[i];
        }
        sp_kernel_choose_experts_f64(TOKENS, EXPERTS, active, weights.d, chosen);
        for (int t = 0; t < TOKENS; t++) {
            must_be_chosen(logits.d + t * EXPERTS, active, weights.d + t * EXPERTS,
                           chosen + t * EXPERTS);
        }
    }
}

typedef struct choice {
    tensor logits, weights, dweights;
    uint8_t chosen[TOKENS * EXPERTS];
} choice;

static double sum_of_weights(void *data)
{
    choice *c = data;
    memcpy(c->weights.d, c->logits.d, (size_t)c->logits.n * sizeof(double));
    sp_kernel_choose_experts_f64(TOKENS, EXPERTS, 4, c->weights.d, c->chosen);
    return dot_of(c->weights.d, c->dweights.d, c->weights.n);
}

TEST(gradients_of_logits)
{
    AUTO(tensors) all;
    choice c;
    tensors_init(&all, 5);
    c.logits = tensor_random(&all, TOKENS * EXPERTS);
    c.dweights = tensor_random(&all, TOKENS * EXPERTS);
    c.weights = tensor_zero(&all, TOKENS * EXPERTS);
    tensor gradient = tensor_zero(&all, TOKENS * EXPERTS);
    sum_of_weights(&c);
    memcpy(gradient.d, c.dweights.d, (size_t)gradient.n * sizeof(double));
    sp_kernel_choose_experts_backward_f64(TOKENS, EXPERTS, c.weights.d, gradient.d);
    assert_gradient(sum_of_weights, &c, c.logits.d, c.logits.n, gradient.d);
}
