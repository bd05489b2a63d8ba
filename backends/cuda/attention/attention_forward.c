#include "backends/cuda/attention/attention_graph.h"

static sp_i_cudnn_node reduced(sp_i_attention_parts *parts, cudnnReduceTensorOp_t operation,
                               sp_i_cudnn_node scores)
{
    sp_i_cudnn_node y = sp_i_attention_rows(parts, 0);
    sp_i_cudnn_add_reduction(parts->graph, operation, scores, y);
    return y;
}

// S = mask(scale Q K^T); m = max S, e = exp(S - m), z = sum e; statistics = m + log z, O = (e / z)
// V.
void sp_i_attention_forward(sp_i_cudnn_graph *graph, const sp_i_cuda_attention_shape *shape)
{
    const cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;
    sp_i_attention_parts parts;
    sp_i_attention_begin(graph, shape, &parts);
    sp_i_cudnn_node q = sp_i_attention_matrix(&parts, SP_I_CUDA_Q, false);
    sp_i_cudnn_node k = sp_i_attention_matrix(&parts, SP_I_CUDA_K, true);
    sp_i_cudnn_node v = sp_i_attention_matrix(&parts, SP_I_CUDA_V, false);
    sp_i_cudnn_node o = sp_i_attention_matrix(&parts, SP_I_CUDA_O, false);
    sp_i_cudnn_node stats = sp_i_attention_rows(&parts, SP_I_CUDA_STATS);

    sp_i_cudnn_node s = sp_i_attention_mask(&parts, sp_i_attention_products(&parts, q, k));
    sp_i_cudnn_node m = reduced(&parts, CUDNN_REDUCE_TENSOR_MAX, s);
    sp_i_cudnn_node e = sp_i_attention_each(&parts, CUDNN_POINTWISE_SUB, s, m, fp32);
    e = sp_i_attention_each(&parts, CUDNN_POINTWISE_EXP, e, NULL, fp32);
    sp_i_cudnn_node z = reduced(&parts, CUDNN_REDUCE_TENSOR_ADD, e);
    sp_i_cudnn_node log_z = sp_i_attention_rows(&parts, 0);
    sp_i_cudnn_add_pointwise(graph, CUDNN_POINTWISE_LOG, fp32, -1, z, NULL, NULL, log_z);
    sp_i_cudnn_add_pointwise(graph, CUDNN_POINTWISE_ADD, fp32, -1, m, log_z, NULL, stats);
    // The second product takes its operands in the type of the matrices.
    sp_i_cudnn_node p = sp_i_attention_each(&parts, CUDNN_POINTWISE_DIV, e, z, CUDNN_DATA_BFLOAT16);
    const sp_i_cudnn_lengths lengths = {.m = parts.query_lengths, .k = parts.key_lengths};
    sp_i_cudnn_add_matmul(graph, p, v, lengths, o);
}
