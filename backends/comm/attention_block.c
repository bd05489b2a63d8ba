#include "backends/comm/attention_block.h"

#include "kernels/kernels.h"

// Where the rows of one run of queries and one of keys begin in the shards' buffers, in elements.
typedef struct pair {
    sp_kernel_attention_block block;
    int64_t q, out, row, key;
} pair;

typedef void visit(const sp_kernel_attention_shape *shape, const pair *p,
                   const sp_i_attention_queries *mine, const sp_i_attention_keys *theirs,
                   void *tiles);

static void for_visible_pairs(const sp_kernel_attention_shape *shape, const sp_comm_shard *queries,
                              const sp_comm_shard *keys, const sp_i_attention_queries *mine,
                              const sp_i_attention_keys *theirs, void *tiles, visit *take)
{
    int64_t query_row = 0;
    for (int i = 0; i < queries->count; i++) {
        sp_token_run query = queries->runs[i];
        int64_t key_row = 0;
        query_row = queries->rows != NULL ? queries->rows[i] : query_row;
        for (int j = 0; j < keys->count; j++) {
            sp_token_run key = keys->runs[j];
            pair p = {.block = {query.begin, query.tokens, key.begin, key.tokens},
                      .q = query_row * shape->q_stride,
                      .out = query_row * shape->out_stride,
                      .row = query_row * shape->heads,
                      .key = key_row * shape->kv_stride};
            if (query.tokens > 0 && key.tokens > 0 && key.begin < query.begin + query.tokens) {
                take(shape, &p, mine, theirs, tiles);
            }
            key_row += key.tokens;
        }
        query_row += query.tokens;
    }
}

static const float *f32(const char *base, int64_t i)
{
    return (const float *)(const void *)base + i;
}

static float *to_f32(char *base, int64_t i)
{
    return (float *)(void *)base + i;
}

static const double *f64(const char *base, int64_t i)
{
    return (const double *)(const void *)base + i;
}

static double *to_f64(char *base, int64_t i)
{
    return (double *)(void *)base + i;
}

static void forward_f32(const sp_kernel_attention_shape *shape, const pair *p,
                        const sp_i_attention_queries *mine, const sp_i_attention_keys *theirs,
                        void *tiles)
{
    sp_kernel_attention_block_f32(shape, &p->block, f32(mine->q, p->q), f32(theirs->k, p->key),
                                  f32(theirs->v, p->key), to_f32(mine->out, p->out),
                                  to_f32(mine->max, p->row), to_f32(mine->sum, p->row), tiles);
}

static void forward_f64(const sp_kernel_attention_shape *shape, const pair *p,
                        const sp_i_attention_queries *mine, const sp_i_attention_keys *theirs,
                        void *tiles)
{
    sp_kernel_attention_block_f64(shape, &p->block, f64(mine->q, p->q), f64(theirs->k, p->key),
                                  f64(theirs->v, p->key), to_f64(mine->out, p->out),
                                  to_f64(mine->max, p->row), to_f64(mine->sum, p->row), tiles);
}

static void backward_f32(const sp_kernel_attention_shape *shape, const pair *p,
                         const sp_i_attention_queries *mine, const sp_i_attention_keys *theirs,
                         void *tiles)
{
    sp_kernel_attention_block_backward_f32(
        shape, &p->block, f32(mine->q, p->q), f32(theirs->k, p->key), f32(theirs->v, p->key),
        f32(mine->dout, p->out), f32(mine->lse_in, p->row), f32(mine->delta, p->row),
        to_f32(mine->dq, p->q), to_f32(theirs->dk, p->key), to_f32(theirs->dv, p->key), tiles);
}

static void backward_f64(const sp_kernel_attention_shape *shape, const pair *p,
                         const sp_i_attention_queries *mine, const sp_i_attention_keys *theirs,
                         void *tiles)
{
    sp_kernel_attention_block_backward_f64(
        shape, &p->block, f64(mine->q, p->q), f64(theirs->k, p->key), f64(theirs->v, p->key),
        f64(mine->dout, p->out), f64(mine->lse_in, p->row), f64(mine->delta, p->row),
        to_f64(mine->dq, p->q), to_f64(theirs->dk, p->key), to_f64(theirs->dv, p->key), tiles);
}

void sp_i_attention_forward_shard(sp_element type, const sp_kernel_attention_shape *shape,
                                  const sp_comm_shard *queries, const sp_comm_shard *keys,
                                  const sp_i_attention_queries *mine,
                                  const sp_i_attention_keys *theirs, void *tiles)
{
    for_visible_pairs(shape, queries, keys, mine, theirs, tiles,
                      type == SP_ELEMENT_F64 ? forward_f64 : forward_f32);
}

void sp_i_attention_backward_shard(sp_element type, const sp_kernel_attention_shape *shape,
                                   const sp_comm_shard *queries, const sp_comm_shard *keys,
                                   const sp_i_attention_queries *mine,
                                   const sp_i_attention_keys *theirs, void *tiles)
{
    for_visible_pairs(shape, queries, keys, mine, theirs, tiles,
                      type == SP_ELEMENT_F64 ? backward_f64 : backward_f32);
}
