#include "backends/cuda/attention/attention_graph.h"

enum { QUERY_AXIS = 2, KEY_AXIS = 3 };

static sp_i_cudnn_node index_table(sp_i_attention_parts *parts, sp_i_cuda_attention_tensor id,
                                   int64_t count)
{
    const sp_i_cudnn_tensor t = {
        .id = id, .type = CUDNN_DATA_INT32, .size = {count, 1, 1, 1}, .stride = {1, 1, 1, 1}};
    return sp_i_cudnn_add_tensor(parts->graph, &t);
}

void sp_i_attention_begin(sp_i_cudnn_graph *graph, const sp_i_cuda_attention_shape *shape,
                          sp_i_attention_parts *parts)
{
    *parts = (sp_i_attention_parts){.graph = graph, .shape = shape};
    parts->query_lengths = index_table(parts, SP_I_CUDA_QUERY_LENGTHS, shape->segments);
    parts->key_lengths = index_table(parts, SP_I_CUDA_KEY_LENGTHS, shape->segments);
    parts->scale = sp_i_cudnn_add_scalar(graph, SP_I_ATTENTION_SCALE, CUDNN_DATA_FLOAT);
    parts->masked = sp_i_cudnn_add_scalar(graph, SP_I_ATTENTION_MASKED, CUDNN_DATA_FLOAT);
}

// ---- tensors ----

typedef struct matrix {
    int64_t heads, tokens, stride;
    sp_i_cuda_attention_tensor offsets;
} matrix;

static matrix matrix_of(const sp_i_cuda_attention_shape *s, sp_i_cuda_attention_tensor id)
{
    switch (id) {
    case SP_I_CUDA_Q:
        return (matrix){s->heads, s->queries, s->q_stride, SP_I_CUDA_Q_OFFSETS};
    case SP_I_CUDA_K:
    case SP_I_CUDA_V:
        return (matrix){s->kv_heads, s->keys, s->kv_stride, SP_I_CUDA_KV_OFFSETS};
    case SP_I_CUDA_DQ:
        return (matrix){s->heads, s->queries, s->dq_stride, SP_I_CUDA_DQ_OFFSETS};
    case SP_I_CUDA_DK:
    case SP_I_CUDA_DV:
        return (matrix){s->kv_heads, s->keys, s->dkv_stride, SP_I_CUDA_DKV_OFFSETS};
    default:
        return (matrix){s->heads, s->queries, s->out_stride, SP_I_CUDA_O_OFFSETS};
    }
}

static sp_i_cudnn_node offsets_of(sp_i_attention_parts *parts, sp_i_cuda_attention_tensor id)
{
    if (parts->offsets[id] == NULL) {
        parts->offsets[id] = index_table(parts, id, parts->shape->segments + 1);
    }
    return parts->offsets[id];
}

sp_i_cudnn_node sp_i_attention_matrix(sp_i_attention_parts *parts, sp_i_cuda_attention_tensor id,
                                      bool transposed)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const matrix m = matrix_of(s, id);
    const int row = transposed ? 3 : 2;
    sp_i_cudnn_tensor t = {.id = id,
                           .type = CUDNN_DATA_BFLOAT16,
                           .size = {s->segments, m.heads},
                           .stride = {m.tokens * m.stride, s->head_dim},
                           .ragged = offsets_of(parts, m.offsets)};
    t.size[row] = m.tokens;
    t.stride[row] = m.stride;
    t.size[5 - row] = s->head_dim;
    t.stride[5 - row] = 1;
    return sp_i_cudnn_add_tensor(parts->graph, &t);
}

sp_i_cudnn_node sp_i_attention_scores(sp_i_attention_parts *parts, cudnnDataType_t type)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const int64_t square = s->queries * s->keys;
    const sp_i_cudnn_tensor t = {.type = type,
                                 .size = {s->segments, s->heads, s->queries, s->keys},
                                 .stride = {s->heads * square, square, s->keys, 1}};
    return sp_i_cudnn_add_tensor(parts->graph, &t);
}

// In memory the heads of a token stand beside each other, as in every other matrix.
sp_i_cudnn_node sp_i_attention_rows(sp_i_attention_parts *parts, int64_t id)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const int64_t all = s->heads * s->queries;
    sp_i_cudnn_tensor t = {.id = id,
                           .type = CUDNN_DATA_FLOAT,
                           .size = {s->segments, s->heads, s->queries, 1},
                           .stride = {all, s->queries, 1, 1}};
    if (id != 0) {
        t.stride[1] = 1;
        t.stride[2] = s->heads;
        t.ragged = offsets_of(parts, SP_I_CUDA_STATS_OFFSETS);
    }
    return sp_i_cudnn_add_tensor(parts->graph, &t);
}

// ---- operations ----

sp_i_cudnn_node sp_i_attention_each(sp_i_attention_parts *parts, cudnnPointwiseMode_t mode,
                                    sp_i_cudnn_node x, sp_i_cudnn_node b, cudnnDataType_t type)
{
    sp_i_cudnn_node y = sp_i_attention_scores(parts, type);
    sp_i_cudnn_add_pointwise(parts->graph, mode, CUDNN_DATA_FLOAT, -1, x, b, NULL, y);
    return y;
}

sp_i_cudnn_node sp_i_attention_products(sp_i_attention_parts *parts, sp_i_cudnn_node q,
                                        sp_i_cudnn_node k_transposed)
{
    const sp_i_cudnn_lengths lengths = {.m = parts->query_lengths, .n = parts->key_lengths};
    sp_i_cudnn_node product = sp_i_attention_scores(parts, CUDNN_DATA_FLOAT);
    sp_i_cudnn_add_matmul(parts->graph, q, k_transposed, lengths, product);
    return sp_i_attention_each(parts, CUDNN_POINTWISE_MUL, product, parts->scale, CUDNN_DATA_FLOAT);
}

static sp_i_cudnn_node position(sp_i_attention_parts *parts, sp_i_cudnn_node scores, int64_t axis)
{
    sp_i_cudnn_node y = sp_i_attention_scores(parts, CUDNN_DATA_INT32);
    sp_i_cudnn_add_pointwise(parts->graph, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, axis,
                             scores, NULL, NULL, y);
    return y;
}

static sp_i_cudnn_node combine(sp_i_attention_parts *parts, cudnnPointwiseMode_t mode,
                               cudnnDataType_t type, sp_i_cudnn_node x, sp_i_cudnn_node b)
{
    sp_i_cudnn_node y = sp_i_attention_scores(parts, type);
    sp_i_cudnn_add_pointwise(parts->graph, mode, type, -1, x, b, NULL, y);
    return y;
}

// Scores where `seen` holds, else minus infinity.
static sp_i_cudnn_node keep(sp_i_attention_parts *parts, sp_i_cudnn_node scores,
                            sp_i_cudnn_node seen)
{
    sp_i_cudnn_node y = sp_i_attention_scores(parts, CUDNN_DATA_FLOAT);
    sp_i_cudnn_add_pointwise(parts->graph, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1,
                             scores, parts->masked, seen, y);
    return y;
}

// Rows and columns beyond a segment's lengths.
static sp_i_cudnn_node mask_padding(sp_i_attention_parts *parts, sp_i_cudnn_node scores)
{
    sp_i_cudnn_node row = position(parts, scores, QUERY_AXIS);
    sp_i_cudnn_node column = position(parts, scores, KEY_AXIS);
    sp_i_cudnn_node rows =
        combine(parts, CUDNN_POINTWISE_CMP_LT, CUDNN_DATA_BOOLEAN, row, parts->query_lengths);
    sp_i_cudnn_node columns =
        combine(parts, CUDNN_POINTWISE_CMP_LT, CUDNN_DATA_BOOLEAN, column, parts->key_lengths);
    return keep(parts, scores,
                combine(parts, CUDNN_POINTWISE_LOGICAL_AND, CUDNN_DATA_BOOLEAN, rows, columns));
}

// Query r sees key c where r + keys - queries >= c.
static sp_i_cudnn_node mask_later(sp_i_attention_parts *parts, sp_i_cudnn_node scores)
{
    sp_i_cudnn_node row = position(parts, scores, QUERY_AXIS);
    row = combine(parts, CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, row, parts->key_lengths);
    row = combine(parts, CUDNN_POINTWISE_SUB, CUDNN_DATA_INT32, row, parts->query_lengths);
    sp_i_cudnn_node column = position(parts, scores, KEY_AXIS);
    return keep(parts, scores,
                combine(parts, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, row, column));
}

sp_i_cudnn_node sp_i_attention_mask(sp_i_attention_parts *parts, sp_i_cudnn_node scores)
{
    return mask_later(parts, mask_padding(parts, scores));
}

// ---- workspace ----

int64_t sp_i_attention_workspace(const sp_i_cuda_attention_shape *s,
                                 int64_t offset[SP_I_ATTENTION_IDS - SP_I_ATTENTION_DQ_SUM])
{
    const int64_t spread = s->heads != s->kv_heads ? s->all_keys : 0;
    const int64_t bytes[SP_I_ATTENTION_IDS - SP_I_ATTENTION_DQ_SUM] = {
        4 * s->all_queries * s->dq_stride, 4 * s->all_queries * s->heads,
        4 * spread * s->dkv_stride * (s->heads / s->kv_heads),
        4 * spread * s->dkv_stride * (s->heads / s->kv_heads)};
    int64_t sum = 0;
    for (int i = 0; i < SP_I_ATTENTION_IDS - SP_I_ATTENTION_DQ_SUM; i++) {
        offset[i] = sum;
        sum += (bytes[i] + 255) / 256 * 256;
    }
    return sum;
}
