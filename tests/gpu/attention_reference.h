// Attention by its definition in fp64, one sample or slice: P = softmax(Q K^T / sqrt(d)) where
// query r sees key c if r + keys - queries >= c (causal) or always; O = P V; statistics
// log(sum(exp)). Gradients by dV = P^T dO, dP = dO V^T, dS = P (dP - sum(P dP)), dQ = dS K /
// sqrt(d), dK = dS^T Q / sqrt(d).
#ifndef SLIMPACK_TESTS_GPU_ATTENTION_REFERENCE_H
#define SLIMPACK_TESTS_GPU_ATTENTION_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct attention_reference {
    int64_t queries, keys, heads, kv_heads, head_dim;
    bool causal;
    const double *q, *k, *v, *d_out;    // [tokens, heads, head_dim], k and v of kv_heads
    double *out, *stats, *dq, *dk, *dv; // made by compute
} attention_reference;

// O(heads queries keys head_dim). False when memory ran out.
bool attention_reference_compute(attention_reference *r);
void attention_reference_free(attention_reference *r);

#endif
