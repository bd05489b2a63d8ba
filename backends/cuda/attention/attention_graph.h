// cuDNN's graphs of attention: composite graphs of products and element-wise operations, in the
// form that its fused engines know.
//
// Source: NVIDIA cuDNN developer guide, "Attention"; the composite form that the cudnn-frontend
// library (1.x) builds for "scaled dot product attention" and its backward.
#ifndef SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_GRAPH_H
#define SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_GRAPH_H

#include "backends/cuda/attention/attention.h"
#include "backends/cuda/attention/cudnn.h"

// Numbers of the tensors that are no sp_i_cuda_attention_tensor: scalars of host memory and parts
// of the workspace.
enum {
    SP_I_ATTENTION_SCALE = SP_I_CUDA_ATTENTION_TENSORS, // fp32: 1 / sqrt(head_dim)
    SP_I_ATTENTION_MASKED,                              // fp32: minus infinity
    SP_I_ATTENTION_ONE,                                 // fp32: 1
    SP_I_ATTENTION_DQ_SUM,                              // fp32 [queries, heads, head_dim]
    SP_I_ATTENTION_SOFTMAX_SUM,                         // fp32 [queries, heads]
    SP_I_ATTENTION_DK_HEADS,                            // grouped: dK and dV of each query head
    SP_I_ATTENTION_DV_HEADS,
    SP_I_ATTENTION_IDS
};

// Bytes of our own parts of the backward's workspace, each at a multiple of 256: offset[part], by
// position from SP_I_ATTENTION_DQ_SUM on; what cuDNN asks for comes behind them. Returns the sum.
int64_t sp_i_attention_workspace(const sp_i_cuda_attention_shape *shape,
                                 int64_t offset[SP_I_ATTENTION_IDS - SP_I_ATTENTION_DQ_SUM]);

// O and statistics from Q, K, V.
void sp_i_attention_forward(sp_i_cudnn_graph *graph, const sp_i_cuda_attention_shape *shape);
// dQ, dK and dV from those and dO. The fp32 sum of dQ is cleared by the engine (cuDNN 9.6 and
// later).
void sp_i_attention_backward(sp_i_cudnn_graph *graph, const sp_i_cuda_attention_shape *shape);

// ---- what both passes share (attention_graph.c) ----

typedef struct sp_i_attention_parts {
    sp_i_cudnn_graph *graph;
    const sp_i_cuda_attention_shape *shape;
    sp_i_cudnn_node query_lengths, key_lengths;
    sp_i_cudnn_node scale, masked;
    // Reused where two tensors have one table of offsets.
    sp_i_cudnn_node offsets[SP_I_CUDA_ATTENTION_TENSORS];
} sp_i_attention_parts;

void sp_i_attention_begin(sp_i_cudnn_graph *graph, const sp_i_cuda_attention_shape *shape,
                          sp_i_attention_parts *parts);
// A matrix of tokens in memory as [segments, heads, tokens, width]; transposed: the last two
// exchanged.
sp_i_cudnn_node sp_i_attention_matrix(sp_i_attention_parts *parts, sp_i_cuda_attention_tensor id,
                                      bool transposed);
// As many numbers as scores, nowhere in memory.
sp_i_cudnn_node sp_i_attention_scores(sp_i_attention_parts *parts, cudnnDataType_t type);
// fp32 [segments, heads, queries, 1]: a number for each row of scores; id 0: nowhere in memory.
sp_i_cudnn_node sp_i_attention_rows(sp_i_attention_parts *parts, int64_t id);
// scale Q K^T.
sp_i_cudnn_node sp_i_attention_products(sp_i_attention_parts *parts, sp_i_cudnn_node q,
                                        sp_i_cudnn_node k_transposed);
// Scores that no query may see are minus infinity.
sp_i_cudnn_node sp_i_attention_mask(sp_i_attention_parts *parts, sp_i_cudnn_node scores);
// mode(x, b) of the size of scores.
sp_i_cudnn_node sp_i_attention_each(sp_i_attention_parts *parts, cudnnPointwiseMode_t mode,
                                    sp_i_cudnn_node x, sp_i_cudnn_node b, cudnnDataType_t type);

#endif
