// Attention by its definition, with all scores in memory: what the kernels are compared with.
#ifndef SLIMPACK_TESTS_SUPPORT_KERNELS_NAIVE_ATTENTION_H
#define SLIMPACK_TESTS_SUPPORT_KERNELS_NAIVE_ATTENTION_H

#include "kernels/kernels.h"
#include "tests/support/kernels/tensors.h"

// One sample of `tokens` tokens, with all its tensors; strides as in the shape.
typedef struct attention_problem {
    tensors all;
    sp_kernel_attention_shape shape;
    int64_t tokens;
    tensor q, k, v, dout;
    tensor out, lse, dq, dk, dv; // zero at first
    tensor workspace;
} attention_problem;

void attention_set_up(attention_problem *p, int64_t heads, int64_t kv_heads, int64_t head_dim,
                      int64_t tokens);

// fp64 results and gradients of all tokens, with the shape's strides.
void naive_attention(const attention_problem *p, double *out, double *lse, double *dq, double *dk,
                     double *dv);

#endif
