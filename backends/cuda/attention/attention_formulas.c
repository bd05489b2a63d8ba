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

// The gradient of K or V before the query heads of a group are added up, in memory of its own that
// is laid out as the gradient with a group's heads in place of one.
static sp_i_cudnn_node spread_gradient(sp_i_attention_parts *parts, int64_t id)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const int64_t stride = s->dkv_stride * (s->heads / s->kv_heads);
    const sp_i_cudnn_tensor t = {.id = id,
                                 .type = CUDNN_DATA_BFLOAT16,
                                 .size = {s->segments, s->heads, s->keys, s->head_dim},
                                 .stride = {s->keys * stride, s->head_dim, stride, 1},
                                 .ragged = parts->offsets[SP_I_CUDA_DKV_OFFSETS]};
    return sp_i_cudnn_add_tensor(parts->graph, &t);
}

// gradient = x^T y, with x of the size of scores and y [queries, head_dim].
static void add_gradient(sp_i_attention_parts *parts, sp_i_cudnn_node x, sp_i_cudnn_node y,
                         sp_i_cudnn_node gradient, int64_t spread_id)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const int64_t square = s->queries * s->keys;
    const sp_i_cudnn_tensor transposed = {.type = CUDNN_DATA_BFLOAT16,
                                          .size = {s->segments, s->heads, s->keys, s->queries},
                                          .stride = {s->heads * square, square, 1, s->keys}};
    const sp_i_cudnn_lengths lengths = {.m = parts->key_lengths, .k = parts->query_lengths};
    sp_i_cudnn_node x_transposed = sp_i_cudnn_add_tensor(parts->graph, &transposed);
    sp_i_cudnn_add_reshape(parts->graph, x, x_transposed);
    if (s->heads == s->kv_heads) {
        sp_i_cudnn_add_matmul(parts->graph, x_transposed, y, lengths, gradient);
        return;
    }
    sp_i_cudnn_node spread = spread_gradient(parts, spread_id);
    sp_i_cudnn_add_matmul(parts->graph, x_transposed, y, lengths, spread);
    sp_i_cudnn_add_reduction(parts->graph, CUDNN_REDUCE_TENSOR_ADD, spread, gradient);
}

// D = sum(dO O) of each row; in memory, because engines compute it in a kernel of its own.
static sp_i_cudnn_node row_sums(sp_i_attention_parts *parts, sp_i_cudnn_node d_out,
                                sp_i_cudnn_node o)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const sp_i_cudnn_tensor t = {.type = CUDNN_DATA_FLOAT,
                                 .size = {s->segments, s->heads, s->queries, s->head_dim},
                                 .stride = {s->heads * s->queries * s->head_dim,
                                            s->queries * s->head_dim, s->heads * s->head_dim, 1}};
    sp_i_cudnn_node one = sp_i_cudnn_add_scalar(parts->graph, SP_I_ATTENTION_ONE, CUDNN_DATA_FLOAT);
    sp_i_cudnn_node product = sp_i_cudnn_add_tensor(parts->graph, &t);
    sp_i_cudnn_add_pointwise(parts->graph, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1, d_out, o,
                             NULL, product);
    sp_i_cudnn_node sum = sp_i_attention_rows(parts, 0);
    sp_i_cudnn_add_reduction(parts->graph, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    // The factor is dropout's place in the form that engines know.
    sp_i_cudnn_node scaled = sp_i_attention_rows(parts, SP_I_ATTENTION_SOFTMAX_SUM);
    sp_i_cudnn_add_pointwise(parts->graph, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1, sum, one,
                             NULL, scaled);
    return scaled;
}

// The fp32 sum over keys that engines add dQ up in.
static sp_i_cudnn_node dq_sum(sp_i_attention_parts *parts)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const sp_i_cudnn_tensor t = {
        .id = SP_I_ATTENTION_DQ_SUM,
        .type = CUDNN_DATA_FLOAT,
        .size = {s->segments, s->heads, s->queries, s->head_dim},
        .stride = {s->queries * s->dq_stride, s->head_dim, s->dq_stride, 1},
        .ragged = parts->offsets[SP_I_CUDA_DQ_OFFSETS]};
    return sp_i_cudnn_add_tensor(parts->graph, &t);
}

// dQ = dS K, where K comes back from its transposed form.
static void add_query_gradient(sp_i_attention_parts *parts, sp_i_cudnn_node ds,
                               sp_i_cudnn_node k_transposed, sp_i_cudnn_node dq)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const sp_i_cudnn_tensor plain = {
        .type = CUDNN_DATA_BFLOAT16,
        .size = {s->segments, s->kv_heads, s->keys, s->head_dim},
        .stride = {s->keys * s->kv_stride, s->head_dim, s->kv_stride, 1},
        .ragged = parts->offsets[SP_I_CUDA_KV_OFFSETS]};
    const sp_i_cudnn_lengths lengths = {.m = parts->query_lengths, .k = parts->key_lengths};
    sp_i_cudnn_node k = sp_i_cudnn_add_tensor(parts->graph, &plain);
    sp_i_cudnn_add_reshape(parts->graph, k_transposed, k);
    sp_i_cudnn_node sum = dq_sum(parts);
    sp_i_cudnn_add_matmul(parts->graph, ds, k, lengths, sum);
    sp_i_cudnn_add_pointwise(parts->graph, CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, -1, sum,
                             NULL, NULL, dq);
}

// P = exp(mask(scale Q K^T - statistics)); dV = P^T dO; dS = scale P (dO V^T - D); dK = dS^T Q.
void sp_i_attention_backward(sp_i_cudnn_graph *graph, const sp_i_cuda_attention_shape *shape)
{
    const cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;
    sp_i_attention_parts parts;
    sp_i_attention_begin(graph, shape, &parts);
    sp_i_cudnn_node q = sp_i_attention_matrix(&parts, SP_I_CUDA_Q, false);
    sp_i_cudnn_node k = sp_i_attention_matrix(&parts, SP_I_CUDA_K, true);
    sp_i_cudnn_node v = sp_i_attention_matrix(&parts, SP_I_CUDA_V, true);
    sp_i_cudnn_node o = sp_i_attention_matrix(&parts, SP_I_CUDA_O, false);
    sp_i_cudnn_node d_out = sp_i_attention_matrix(&parts, SP_I_CUDA_DO, false);
    sp_i_cudnn_node dq = sp_i_attention_matrix(&parts, SP_I_CUDA_DQ, false);
    sp_i_cudnn_node dk = sp_i_attention_matrix(&parts, SP_I_CUDA_DK, false);
    sp_i_cudnn_node dv = sp_i_attention_matrix(&parts, SP_I_CUDA_DV, false);
    sp_i_cudnn_node stats = sp_i_attention_rows(&parts, SP_I_CUDA_STATS);

    sp_i_cudnn_node d = row_sums(&parts, d_out, o);
    sp_i_cudnn_node s = sp_i_attention_products(&parts, q, k);
    s = sp_i_attention_each(&parts, CUDNN_POINTWISE_SUB, s, stats, fp32);
    s = sp_i_attention_mask(&parts, s);
    sp_i_cudnn_node p = sp_i_attention_each(&parts, CUDNN_POINTWISE_EXP, s, NULL, fp32);
    add_gradient(&parts, p, d_out, dv, SP_I_ATTENTION_DV_HEADS);

    const sp_i_cudnn_lengths lengths = {.m = parts.query_lengths, .n = parts.key_lengths};
    sp_i_cudnn_node ds = sp_i_attention_scores(&parts, fp32);
    sp_i_cudnn_add_matmul(graph, d_out, v, lengths, ds);
    ds = sp_i_attention_each(&parts, CUDNN_POINTWISE_SUB, ds, d, fp32);
    ds = sp_i_attention_each(&parts, CUDNN_POINTWISE_MUL, ds, p, fp32);
    // The last product takes bf16.
    ds = sp_i_attention_each(&parts, CUDNN_POINTWISE_MUL, ds, parts.scale, CUDNN_DATA_BFLOAT16);
    add_gradient(&parts, ds, q, dk, SP_I_ATTENTION_DK_HEADS);
    add_query_gradient(&parts, ds, k, dq);
}
