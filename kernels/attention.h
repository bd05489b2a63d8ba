// Causal grouped-query attention without a score matrix: tiles of scores with a running maximum and
// sum (Dao: "FlashAttention-2", 2023, algorithms 1 and 2; Milakov, Gimelshein: "Online normalizer
// calculation for softmax", 2018). q, dq, out, dout [tokens, heads, head_dim], k, v, dk, dv
// [tokens, kv_heads, head_dim] with the strides of the shape; max, sum, lse, delta [tokens, heads]
// contiguous. Counting visible pairs of a query and a key, forward takes 4 and backward 10 head_dim
// operations for each pair and query head.
//
// A slice [begin, begin + len) of a sample attends to the sample's keys [0, begin + len), so k and
// v start at the sample's first token and hold the keys of all slices so far. Backward runs the
// slices last to first: each adds to dk and dv of the whole prefix, so the gradient of a slice's
// own keys is complete when its own backward is done, and dk, dv are zero before the sample's last
// slice.
#include <stdint.h>

#include "kernels/attention_shape.h"
#include "kernels/real.h"

// Elements of workspace that the calls below need for at most `queries` queries.
int64_t SP_KERNEL(attention_workspace)(const sp_kernel_attention_shape *shape, int64_t queries);

// Writes out and lse = log of the sum over keys of exp(score), of the slice's `len` queries.
void SP_KERNEL(attention)(const sp_kernel_attention_shape *shape, int64_t begin, int64_t len,
                          const real *q, const real *k, const real *v, real *out, real *lse,
                          real *workspace);

// Overwrites dq of the slice; adds to dk and dv of the keys [0, begin + len).
void SP_KERNEL(attention_backward_input)(const sp_kernel_attention_shape *shape, int64_t begin,
                                         int64_t len, const real *q, const real *k, const real *v,
                                         const real *out, const real *dout, const real *lse,
                                         real *dq, real *dk, real *dv, real *workspace);

// The same in parts, for a rank that sees the keys block after block (Liu, Zaharia, Abbeel: "Ring
// Attention with Blockwise Transformers", 2023). Forward: _start once, _block for each block of
// keys in any order, _finish once. Pointers are those of the block's first query and first key.

// out = 0, max = -infinity, sum = 0.
void SP_KERNEL(attention_start)(const sp_kernel_attention_shape *shape, int64_t queries, real *out,
                                real *max, real *sum);

// Takes one block of keys into max, sum and the still unnormalised out.
void SP_KERNEL(attention_block)(const sp_kernel_attention_shape *shape,
                                const sp_kernel_attention_block *block, const real *q,
                                const real *k, const real *v, real *out, real *max, real *sum,
                                real *workspace);

// out /= sum, lse = max + log(sum); lse may be max itself. A query that saw no key gets out = 0 and
// lse = -infinity.
void SP_KERNEL(attention_finish)(const sp_kernel_attention_shape *shape, int64_t queries,
                                 const real *max, const real *sum, real *out, real *lse);

// delta = sum over head_dim of out dout.
void SP_KERNEL(attention_delta)(const sp_kernel_attention_shape *shape, int64_t queries,
                                const real *out, const real *dout, real *delta);

// Adds one block's part to dq, dk and dv, given lse and delta over all blocks.
void SP_KERNEL(attention_block_backward)(const sp_kernel_attention_shape *shape,
                                         const sp_kernel_attention_block *block, const real *q,
                                         const real *k, const real *v, const real *dout,
                                         const real *lse, const real *delta, real *dq, real *dk,
                                         real *dv, real *workspace);
