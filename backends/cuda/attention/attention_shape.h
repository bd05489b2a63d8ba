// Attention as training on slices needs it: grouped queries, causal with the diagonal at the bottom
// right (the last query sees all keys, so that a slice sees the tokens before it), one slice or
// several samples of different lengths packed behind each other.
#ifndef SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_SHAPE_H
#define SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

// Plans are kept by this. Matrices are row-major: a token's heads one after another, tokens
// `..._stride` elements apart. O and dO have one stride, and so have K and V, and dK and dV.
typedef struct sp_i_cuda_attention_shape {
    int64_t segments;              // packed samples; 1: one slice, whose lengths are the two below
    int64_t queries, keys;         // of the longest segment
    int64_t all_queries, all_keys; // of all segments, at most; one slice: the same again
    int64_t heads, kv_heads, head_dim; // head_dim a multiple of 8, up to 256
    int64_t q_stride, kv_stride, out_stride, dq_stride, dkv_stride; // elements
    bool causal;
    bool packed; // by lengths and offsets in device memory
} sp_i_cuda_attention_shape;

// Tensors in device memory. Statistics are fp32, a token's heads one after another: log(sum(exp)).
typedef enum sp_i_cuda_attention_tensor {
    SP_I_CUDA_Q = 1, // bf16 [queries, heads, head_dim]
    SP_I_CUDA_K,     // bf16 [keys, kv_heads, head_dim]
    SP_I_CUDA_V,
    SP_I_CUDA_O,     // bf16 [queries, heads, head_dim]
    SP_I_CUDA_STATS, // fp32 [queries, heads]
    SP_I_CUDA_DO,
    SP_I_CUDA_DQ,
    SP_I_CUDA_DK, // overwritten, not added to
    SP_I_CUDA_DV,
    // of a packed one: int32 [segments] lengths, int32 [segments + 1] first elements (tokens times
    // stride; statistics: tokens times heads)
    SP_I_CUDA_QUERY_LENGTHS,
    SP_I_CUDA_KEY_LENGTHS,
    SP_I_CUDA_Q_OFFSETS,
    SP_I_CUDA_KV_OFFSETS,
    SP_I_CUDA_O_OFFSETS,
    SP_I_CUDA_STATS_OFFSETS,
    SP_I_CUDA_DQ_OFFSETS,
    SP_I_CUDA_DKV_OFFSETS,
    SP_I_CUDA_ATTENTION_TENSORS
} sp_i_cuda_attention_tensor;

#endif
