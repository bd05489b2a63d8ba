// Causal attention in tiles of scores, in blocks of keys.
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/shapes.h"
#include "kernels/typed.h"
#include "kernels/vector.h"

// Scores of one tile stay in the second-level cache.
enum { QUERY_TILE = 128, KEY_TILE = 256, TILE_ELEMENTS = QUERY_TILE * KEY_TILE };

// Queries [query, query + queries) and keys [key, key + keys), counted from the block's first ones,
// of one query head and the KV head it reads. Every query sees at least one of the keys, and every
// key is seen.
typedef struct score_tile {
    int64_t head, kv_head;
    int64_t query, queries;
    int64_t key, keys;
} score_tile;

#define FIRST_TILE       \
    {                    \
        .key = -KEY_TILE \
    }

// The first position that a query sees.
static int64_t first_seen(const sp_kernel_attention_shape *shape, int64_t query)
{
    if (shape->chunk > 0) {
        return query - query % shape->chunk;
    }
    return shape->window > 0 && query >= shape->window ? query - shape->window + 1 : 0;
}

// The position behind the last query that sees a key.
static int64_t last_seer_end(const sp_kernel_attention_shape *shape, int64_t key)
{
    return shape->chunk > 0 ? key - key % shape->chunk + shape->chunk : key + shape->window;
}

// Cuts off keys that the tile's queries no longer see, and queries that see none of its keys any
// more.
static void trim_unseen(const sp_kernel_attention_shape *shape,
                        const sp_kernel_attention_block *block, score_tile *tile)
{
    int64_t seen = first_seen(shape, block->query_begin + tile->query) - block->key_begin;
    if (tile->key < seen) {
        tile->keys -= seen - tile->key;
        tile->key = seen;
    }
    int64_t end = last_seer_end(shape, block->key_begin + tile->key + tile->keys - 1);
    tile->queries = sp_i_least(tile->queries, end - block->query_begin - tile->query);
}

// Cuts off what the causal order hides; false if nothing is left.
static bool trim(const sp_kernel_attention_shape *shape, const sp_kernel_attention_block *block,
                 int64_t next_query, score_tile *tile)
{
    int64_t first_key = block->key_begin + tile->key;
    int64_t first_query = block->query_begin + tile->query;
    if (first_query < first_key) {
        tile->query += first_key - first_query;
    }
    tile->queries = next_query - tile->query;
    int64_t last_visible = block->query_begin + next_query - first_key;
    tile->keys = sp_i_least(sp_i_least(KEY_TILE, block->keys - tile->key), last_visible);
    tile->kv_head = tile->head / (shape->heads / shape->kv_heads);
    if (shape->window + shape->chunk > 0 && tile->queries > 0 && tile->keys > 0) {
        trim_unseen(shape, block, tile);
    }
    return tile->queries > 0 && tile->keys > 0;
}

// The first tile of keys that queries from this one on may see.
static int64_t first_key(const sp_kernel_attention_shape *shape,
                         const sp_kernel_attention_block *block, int64_t query)
{
    int64_t seen = first_seen(shape, block->query_begin + query) - block->key_begin;
    return seen > 0 ? seen / KEY_TILE * KEY_TILE : 0;
}

// The next tile that has a visible pair, of a tile that begins as FIRST_TILE: keys run fastest,
// then queries, then heads. False if there is none.
static bool next_tile(const sp_kernel_attention_shape *shape,
                      const sp_kernel_attention_block *block, score_tile *tile)
{
    bool begins = tile->key < 0;
    int64_t query = tile->query / QUERY_TILE * QUERY_TILE;
    int64_t key = begins ? first_key(shape, block, 0) : tile->key / KEY_TILE * KEY_TILE + KEY_TILE;
    for (int64_t head = tile->head; head < shape->heads; head++) {
        for (; query < block->queries; query += QUERY_TILE) {
            int64_t next_query = sp_i_least(query + QUERY_TILE, block->queries);
            *tile = (score_tile){.head = head, .query = query, .key = key};
            // Once a tile of keys is hidden, so are all later ones.
            if (key < block->keys && trim(shape, block, next_query, tile)) {
                return true;
            }
            key = first_key(shape, block, next_query);
        }
        query = 0;
        key = first_key(shape, block, 0);
    }
    return false;
}

// Keys of the tile [begin, end) that a query sees, which is `row` after the tile's first.
typedef struct seen_keys {
    int64_t begin, end;
} seen_keys;

static seen_keys seen_of(const sp_kernel_attention_shape *shape,
                         const sp_kernel_attention_block *block, const score_tile *tile,
                         int64_t row)
{
    int64_t query = block->query_begin + tile->query + row;
    int64_t tile_key = block->key_begin + tile->key;
    int64_t begin = first_seen(shape, query) - tile_key;
    return (seen_keys){begin > 0 ? begin : 0, sp_i_least(query - tile_key + 1, tile->keys)};
}

static void hide(seen_keys seen, int64_t keys, real *row)
{
    if (seen.begin > 0) {
        memset(row, 0, (size_t)seen.begin * sizeof *row);
    }
    memset(row + seen.end, 0, (size_t)(keys - seen.end) * sizeof *row);
}

// ---- Forward ----

// Scores become exp(score - running maximum), 0 where hidden; out and sum are brought to the new
// maximum, and the row's exponentials added to sum.
static void take_row(seen_keys seen, int64_t keys, int64_t head_dim, real *scores, real *out,
                     real *max, real *sum)
{
    real largest = row_max(seen.end - seen.begin, scores + seen.begin);
    if (largest > *max) {
        real factor = exp_real(*max - largest);
        *max = largest;
        *sum *= factor;
        row_scale(head_dim, factor, out);
    }
    *sum += row_exp_sum(seen.end - seen.begin, scores + seen.begin, *max);
    hide(seen, keys, scores);
}

void SP_KERNEL(attention_block)(const sp_kernel_attention_shape *shape,
                                const sp_kernel_attention_block *block, const real *q,
                                const real *k, const real *v, real *out, real *max, real *sum,
                                real *workspace)
{
    int64_t head_dim = shape->head_dim;
    int64_t value_dim = sp_kernel_value_dim(shape);
    real *scores = workspace;
    score_tile tile = FIRST_TILE;
    while (next_tile(shape, block, &tile)) {
        const real *tile_q = q + tile.query * shape->q_stride + tile.head * head_dim;
        int64_t kv_at = tile.key * shape->kv_stride + tile.kv_head * head_dim;
        int64_t v_at = tile.key * shape->kv_stride + tile.kv_head * value_dim;
        real *tile_out = out + tile.query * shape->out_stride + tile.head * value_dim;
        gemm(false, true, tile.queries, tile.keys, head_dim, shape->scale, tile_q, shape->q_stride,
             k + kv_at, shape->kv_stride, 0.0, scores, KEY_TILE);
        for (int64_t i = 0; i < tile.queries; i++) {
            int64_t at = (tile.query + i) * shape->heads + tile.head;
            take_row(seen_of(shape, block, &tile, i), tile.keys, value_dim, scores + i * KEY_TILE,
                     tile_out + i * shape->out_stride, max + at, sum + at);
        }
        gemm(false, false, tile.queries, value_dim, tile.keys, 1.0, scores, KEY_TILE, v + v_at,
             shape->kv_stride, 1.0, tile_out, shape->out_stride);
    }
}

// ---- Backward ----

// dscores holds the gradient by the probabilities p and becomes that by the scores, p (dp - delta).
SP_KERNEL_WIDE static void through_softmax(int64_t n, real delta, const real *restrict p,
                                           real *restrict dscores)
{
    for (int64_t i = 0; i < n; i++) {
        dscores[i] = p[i] * (dscores[i] - delta);
    }
}

// From the scores in p and dout v^T in dscores: the probabilities and the scores' gradients.
static void differentiate_tile(const sp_kernel_attention_shape *shape,
                               const sp_kernel_attention_block *block, const score_tile *tile,
                               const real *lse, const real *delta, real *p, real *dscores)
{
    for (int64_t i = 0; i < tile->queries; i++) {
        int64_t at = (tile->query + i) * shape->heads + tile->head;
        seen_keys seen = seen_of(shape, block, tile, i);
        int64_t count = seen.end - seen.begin;
        real *p_row = p + i * KEY_TILE;
        real *dscores_row = dscores + i * KEY_TILE;
        row_exp(count, p_row + seen.begin, lse[at], (real)1.0);
        through_softmax(count, delta[at], p_row + seen.begin, dscores_row + seen.begin);
        hide(seen, tile->keys, p_row);
        hide(seen, tile->keys, dscores_row);
    }
}

void SP_KERNEL(attention_block_backward)(const sp_kernel_attention_shape *shape,
                                         const sp_kernel_attention_block *block, const real *q,
                                         const real *k, const real *v, const real *dout,
                                         const real *lse, const real *delta, real *dq, real *dk,
                                         real *dv, real *workspace)
{
    int64_t d = shape->head_dim;
    int64_t value_dim = sp_kernel_value_dim(shape);
    int64_t q_stride = shape->q_stride;
    int64_t kv_stride = shape->kv_stride;
    int64_t out_stride = shape->out_stride;
    real *p = workspace;
    real *dscores = workspace + TILE_ELEMENTS;
    score_tile tile = FIRST_TILE;
    while (next_tile(shape, block, &tile)) {
        int64_t q_at = tile.query * q_stride + tile.head * d;
        int64_t kv_at = tile.key * kv_stride + tile.kv_head * d;
        int64_t v_at = tile.key * kv_stride + tile.kv_head * value_dim;
        const real *tile_dout = dout + tile.query * out_stride + tile.head * value_dim;
        gemm(false, true, tile.queries, tile.keys, d, shape->scale, q + q_at, q_stride, k + kv_at,
             kv_stride, 0.0, p, KEY_TILE);
        gemm(false, true, tile.queries, tile.keys, value_dim, 1.0, tile_dout, out_stride, v + v_at,
             kv_stride, 0.0, dscores, KEY_TILE);
        differentiate_tile(shape, block, &tile, lse, delta, p, dscores);
        gemm(true, false, tile.keys, value_dim, tile.queries, 1.0, p, KEY_TILE, tile_dout,
             out_stride, 1.0, dv + v_at, kv_stride);
        gemm(false, false, tile.queries, d, tile.keys, shape->scale, dscores, KEY_TILE, k + kv_at,
             kv_stride, 1.0, dq + q_at, q_stride);
        gemm(true, false, tile.keys, d, tile.queries, shape->scale, dscores, KEY_TILE, q + q_at,
             q_stride, 1.0, dk + kv_at, kv_stride);
    }
}

// ---- Slices, and the parts of a ring ----

// Two tiles of scores, and a number for each query.
enum { TILES_ELEMENTS = 2 * TILE_ELEMENTS };

int64_t SP_KERNEL(attention_workspace)(const sp_kernel_attention_shape *shape, int64_t queries)
{
    return TILES_ELEMENTS + queries * shape->heads;
}

void SP_KERNEL(attention)(const sp_kernel_attention_shape *shape, int64_t begin, int64_t len,
                          const real *q, const real *k, const real *v, real *out, real *lse,
                          real *workspace)
{
    sp_kernel_attention_block block = {
        .query_begin = begin, .queries = len, .key_begin = 0, .keys = begin + len};
    real *sum = workspace + TILES_ELEMENTS;
    real *max = lse;
    SP_KERNEL(attention_start)(shape, len, out, max, sum);
    SP_KERNEL(attention_block)(shape, &block, q, k, v, out, max, sum, workspace);
    SP_KERNEL(attention_finish)(shape, len, max, sum, out, lse);
}

void SP_KERNEL(attention_backward_input)(const sp_kernel_attention_shape *shape, int64_t begin,
                                         int64_t len, const real *q, const real *k, const real *v,
                                         const real *out, const real *dout, const real *lse,
                                         real *dq, real *dk, real *dv, real *workspace)
{
    sp_kernel_attention_block block = {
        .query_begin = begin, .queries = len, .key_begin = 0, .keys = begin + len};
    real *delta = workspace + TILES_ELEMENTS;
    for (int64_t i = 0; i < len; i++) {
        memset(dq + i * shape->q_stride, 0, (size_t)(shape->heads * shape->head_dim) * sizeof *dq);
    }
    SP_KERNEL(attention_delta)(shape, len, out, dout, delta);
    SP_KERNEL(attention_block_backward)
    (shape, &block, q, k, v, dout, lse, delta, dq, dk, dv, workspace);
}

void SP_KERNEL(attention_start)(const sp_kernel_attention_shape *shape, int64_t queries, real *out,
                                real *max, real *sum)
{
    for (int64_t i = 0; i < queries; i++) {
        memset(out + i * shape->out_stride, 0,
               (size_t)(shape->heads * sp_kernel_value_dim(shape)) * sizeof *out);
    }
    for (int64_t i = 0; i < queries * shape->heads; i++) {
        max[i] = (real)-INFINITY;
        sum[i] = 0;
    }
}

void SP_KERNEL(attention_finish)(const sp_kernel_attention_shape *shape, int64_t queries,
                                 const real *max, const real *sum, real *out, real *lse)
{
    int64_t value_dim = sp_kernel_value_dim(shape);
    for (int64_t i = 0; i < queries; i++) {
        for (int64_t h = 0; h < shape->heads; h++) {
            int64_t at = i * shape->heads + h;
            real *row = out + i * shape->out_stride + h * value_dim;
            // Where no key was seen the row is zero already.
            row_scale(value_dim, sum[at] == (real)0.0 ? (real)1.0 : (real)1.0 / sum[at], row);
            lse[at] = (real)((double)max[at] + log((double)sum[at]));
        }
    }
}

void SP_KERNEL(attention_delta)(const sp_kernel_attention_shape *shape, int64_t queries,
                                const real *out, const real *dout, real *delta)
{
    int64_t value_dim = sp_kernel_value_dim(shape);
    for (int64_t i = 0; i < queries; i++) {
        for (int64_t h = 0; h < shape->heads; h++) {
            int64_t at = i * shape->out_stride + h * value_dim;
            delta[i * shape->heads + h] = row_dot(value_dim, out + at, dout + at);
        }
    }
}
