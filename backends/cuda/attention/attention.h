// Attention through cuDNN, for one thread and its streams: plans by shape, made when a shape is
// first asked for, and shared by all streams of a device.
#ifndef SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_H
#define SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cuda/device/device.h"

// Attention as training on slices needs it: grouped queries, causal with the diagonal at the bottom
// right (the last query sees all keys, so that a slice sees the tokens before it), of samples of
// different lengths packed behind each other, whose lengths and offsets are in device memory.

// Plans are kept by this. Matrices are row-major: a token's heads one after another, tokens
// `..._stride` elements apart. O and dO have one stride, and so have K and V, and dK and dV.
typedef struct sp_i_cuda_attention_shape {
    int64_t segments;                  // packed samples, at most
    int64_t queries, keys;             // of the longest segment, at most
    int64_t all_queries, all_keys;     // of all segments, at most
    int64_t heads, kv_heads, head_dim; // head_dim a multiple of 8, up to 256
    int64_t q_stride, kv_stride, out_stride, dq_stride, dkv_stride; // elements
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
    // int32 [segments] lengths, int32 [segments + 1] first elements (tokens times
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

typedef struct sp_i_cuda_attention sp_i_cuda_attention;

// `shares`: another of the device, whose plans it uses too; NULL: plans of its own. SP_ERR_USAGE
// with the reason where cuDNN is not there, in this build or on this machine.
sp_status sp_i_cuda_attention_new(const sp_i_cuda_device *device, sp_i_cuda_attention *shares,
                                  sp_i_cuda_attention **made, sp_error *err);
void sp_i_cuda_attention_free(sp_i_cuda_attention *attention);

// What cuDNN does not take, as text; NULL: nothing is known against the shape.
const char *sp_i_cuda_attention_refusal(const sp_i_cuda_attention_shape *shape);

// Whether a plan of the one shape computes the other: heads and strides are the plan's, and there
// are no more segments, and no longer ones, than it is for. Tokens of all segments are nothing to a
// plan, only to its workspace.
bool sp_i_cuda_attention_serves(const sp_i_cuda_attention_shape *plan,
                                const sp_i_cuda_attention_shape *needed);

// Finds a plan that serves a shape, else makes one of this shape; *shape becomes that of the plan,
// whose tables of lengths it takes.
sp_status sp_i_cuda_attention_plan(sp_i_cuda_attention *attention, sp_i_cuda_attention_shape *shape,
                                   bool backward, sp_error *err);

// Bytes that a pass needs beside its tensors. Makes the plan where there is none of this very
// shape, which takes up to a second; O(plans) after that. SP_ERR_USAGE for a refused shape,
// SP_ERR_INTERNAL where cuDNN finds no engine.
sp_status sp_i_cuda_attention_workspace(sp_i_cuda_attention *attention,
                                        const sp_i_cuda_attention_shape *shape, bool backward,
                                        int64_t *bytes, sp_error *err);
// Puts a pass on the stream. Tensors stand at their numbers; those of other passes may be NULL.
// `workspace` holds the bytes above, at a multiple of 256, and is written.
sp_status sp_i_cuda_attention_run(sp_i_cuda_attention *attention,
                                  const sp_i_cuda_attention_shape *shape, bool backward,
                                  void *const tensors[SP_I_CUDA_ATTENTION_TENSORS], void *workspace,
                                  cudaStream_t stream, sp_error *err);

#endif
