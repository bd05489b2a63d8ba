// Rotary position embedding (Su and others: "RoFormer", 2021, equation 34), in the half-split order
// of Llama's published checkpoints in Hugging Face form: feature i < head_dim/2 of a head turns
// with feature i + head_dim/2 by the angle position x base^(-2 i / head_dim).
#include <stdbool.h>
#include <stdint.h>

#include "kernels/real.h"

// Cosine and sine [tokens, head_dim/2] of the angles of each token's position; head_dim is even.
// Angles are computed in fp64 in both types. tokens x head_dim/2 sines and cosines.
void SP_KERNEL(rope_table)(int64_t tokens, const int64_t *position, int64_t head_dim, double base,
                           real *cosine, real *sine);

// Turns x [tokens, heads, head_dim] in place. With `backward`, turns the other way, which maps dy
// to dx because a rotation's transpose is its inverse. Linear time.
void SP_KERNEL(rope)(int64_t tokens, int64_t heads, int64_t head_dim, const real *cosine,
                     const real *sine, bool backward, real *x, int64_t x_stride);
