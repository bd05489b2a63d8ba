#include <string.h>

#include "kernels/attention_tiles.h"
#include "kernels/gemm.h"
#include "kernels/typed.h"
#include "kernels/vector.h"

enum {
    SCORE_STRIDE = SP_I_KERNEL_KEY_TILE,
    TILE_ELEMENTS = SP_I_KERNEL_QUERY_TILE * SP_I_KERNEL_KEY_TILE
};

// dscores holds the gradient by the probabilities p and becomes that by the scores, p (dp - delta).
SP_KERNEL_WIDE static void through_softmax(int64_t n, real delta, const real *restrict p,
                                           real *restrict dscores)
{
    for (int64_t i = 0; i < n; i++) {
        dscores[i] = p[i] * (dscores[i] - delta);
    }
}

static void hide(int64_t visible, int64_t keys, real *row)
{
    memset(row + visible, 0, (size_t)(keys - visible) * sizeof *row);
}

// From the scores in p and dout v^T in dscores: the probabilities and the scores' gradients.
static void differentiate_tile(const sp_kernel_attention_shape *shape,
                               const sp_kernel_attention_block *block, const sp_i_kernel_tile *tile,
                               const real *lse, const real *delta, real *p, real *dscores)
{
    for (int64_t i = 0; i < tile->queries; i++) {
        int64_t at = (tile->query + i) * shape->heads + tile->head;
        int64_t visible = sp_i_kernel_visible_keys(block, tile, i);
        real *p_row = p + i * SCORE_STRIDE;
        real *dscores_row = dscores + i * SCORE_STRIDE;
        row_exp(visible, p_row, lse[at], (real)1.0);
        through_softmax(visible, delta[at], p_row, dscores_row);
        hide(visible, tile->keys, p_row);
        hide(visible, tile->keys, dscores_row);
    }
}

void SP_KERNEL(attention_block_backward)(const sp_kernel_attention_shape *shape,
                                         const sp_kernel_attention_block *block, const real *q,
                                         const real *k, const real *v, const real *dout,
                                         const real *lse, const real *delta, real *dq, real *dk,
                                         real *dv, real *workspace)
{
    int64_t d = shape->head_dim;
    int64_t q_stride = shape->q_stride;
    int64_t kv_stride = shape->kv_stride;
    int64_t out_stride = shape->out_stride;
    real *p = workspace;
    real *dscores = workspace + TILE_ELEMENTS;
    sp_i_kernel_tile tile;
    for (bool more = sp_i_kernel_first_tile(shape, block, &tile); more;
         more = sp_i_kernel_next_tile(shape, block, &tile)) {
        int64_t q_at = tile.query * q_stride + tile.head * d;
        int64_t kv_at = tile.key * kv_stride + tile.kv_head * d;
        const real *tile_dout = dout + tile.query * out_stride + tile.head * d;
        gemm(false, true, tile.queries, tile.keys, d, shape->scale, q + q_at, q_stride, k + kv_at,
             kv_stride, 0.0, p, SCORE_STRIDE);
        gemm(false, true, tile.queries, tile.keys, d, 1.0, tile_dout, out_stride, v + kv_at,
             kv_stride, 0.0, dscores, SCORE_STRIDE);
        differentiate_tile(shape, block, &tile, lse, delta, p, dscores);
        gemm(true, false, tile.keys, d, tile.queries, 1.0, p, SCORE_STRIDE, tile_dout, out_stride,
             1.0, dv + kv_at, kv_stride);
        gemm(false, false, tile.queries, d, tile.keys, shape->scale, dscores, SCORE_STRIDE,
             k + kv_at, kv_stride, 1.0, dq + q_at, q_stride);
        gemm(true, false, tile.keys, d, tile.queries, shape->scale, dscores, SCORE_STRIDE, q + q_at,
             q_stride, 1.0, dk + kv_at, kv_stride);
    }
}
