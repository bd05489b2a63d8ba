// Attention by its definition in fp64, one sample or slice: P = softmax(scale Q K^T) where query r
// sees key c if r + keys - queries >= c, and c lies in the window or chunk of the shape; O = P V;
// statistics log(sum(exp)). Gradients by dV = P^T dO, dP = dO V^T, dS = scale P (dP - sum(P dP)),
// dQ = dS K, dK = dS^T Q.
#ifndef SLIMPACK_TESTS_GPU_ATTENTION_REFERENCE_H
#define SLIMPACK_TESTS_GPU_ATTENTION_REFERENCE_H

#include "kernels/shapes.h"

typedef struct attention_reference {
    sp_kernel_attention_shape shape;
    int64_t queries, keys, dkv_stride;
    const double *q, *k, *v, *d_out;
    double *out, *stats, *dq, *dk, *dv; // of statistics every row; of others no gaps are written
} attention_reference;

// O(heads queries keys head_dim).
void attention_reference_compute(const attention_reference *r);

#endif
