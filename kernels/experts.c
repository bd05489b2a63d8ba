// Experts of tokens: the choice, and the weights of what they give.
#include <string.h>

#include "kernels/typed.h"
#include "kernels/vector.h"

static void choose(int64_t experts, int64_t active, real *logits, uint8_t *chosen)
{
    real largest = 0;
    real sum = 0;
    memset(chosen, 0, (size_t)experts);
    for (int64_t i = 0; i < active; i++) {
        int64_t best = -1;
        for (int64_t e = 0; e < experts; e++) {
            best = !chosen[e] && (best < 0 || logits[e] > logits[best]) ? e : best;
        }
        chosen[best] = 1;
        largest = i == 0 ? logits[best] : largest;
    }
    for (int64_t e = 0; e < experts; e++) {
        logits[e] = chosen[e] ? exp_real(logits[e] - largest) : (real)0.0;
        sum += logits[e];
    }
    row_scale(experts, (real)1.0 / sum, logits);
}

void SP_KERNEL(choose_experts)(int64_t tokens, int64_t experts, int64_t active, real *logits,
                               uint8_t *chosen)
{
    for (int64_t t = 0; t < tokens; t++) {
        choose(experts, active, logits + t * experts, chosen + t * experts);
    }
}

void SP_KERNEL(choose_experts_backward)(int64_t tokens, int64_t experts, const real *weights,
                                        real *dweights)
{
    for (int64_t t = 0; t < tokens; t++) {
        const real *weight = weights + t * experts;
        real *row = dweights + t * experts;
        real mean = row_dot(experts, weight, row);
        for (int64_t e = 0; e < experts; e++) {
            row[e] = weight[e] * (row[e] - mean);
        }
    }
}

void SP_KERNEL(add_weighted)(int64_t n, real weight, const real *restrict x, real *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] += weight * x[i];
    }
}

real SP_KERNEL(add_weighted_backward)(int64_t n, real weight, const real *x, real *dy)
{
    real dweight = row_dot(n, x, dy);
    row_scale(n, weight, dy);
    return dweight;
}
