#include <string.h>

#include "kernels/attention_tiles.h"
#include "kernels/exp.h"
#include "kernels/gemm.h"
#include "kernels/typed.h"
#include "kernels/vector.h"

enum { SCORE_STRIDE = SP_I_KERNEL_KEY_TILE };

// Scores become exp(score - running maximum), 0 where hidden; out and sum are brought to the new
// maximum, and the row's exponentials added to sum.
static void take_row(int64_t visible, int64_t keys, int64_t head_dim, real *scores, real *out,
                     real *max, real *sum)
{
    real largest = row_max(visible, scores);
    if (largest > *max) {
        real factor = exp_real(*max - largest);
        *max = largest;
        *sum *= factor;
        row_scale(head_dim, factor, out);
    }
    *sum += row_exp_sum(visible, scores, *max);
    memset(scores + visible, 0, (size_t)(keys - visible) * sizeof *scores);
}

void SP_KERNEL(attention_block)(const sp_kernel_attention_shape *shape,
                                const sp_kernel_attention_block *block, const real *q,
                                const real *k, const real *v, real *out, real *max, real *sum,
                                real *workspace)
{
    int64_t head_dim = shape->head_dim;
    real *scores = workspace;
    sp_i_kernel_tile tile;
    for (bool more = sp_i_kernel_first_tile(shape, block, &tile); more;
         more = sp_i_kernel_next_tile(shape, block, &tile)) {
        const real *tile_q = q + tile.query * shape->q_stride + tile.head * head_dim;
        int64_t kv_at = tile.key * shape->kv_stride + tile.kv_head * head_dim;
        real *tile_out = out + tile.query * shape->out_stride + tile.head * head_dim;
        gemm(false, true, tile.queries, tile.keys, head_dim, shape->scale, tile_q, shape->q_stride,
             k + kv_at, shape->kv_stride, 0.0, scores, SCORE_STRIDE);
        for (int64_t i = 0; i < tile.queries; i++) {
            int64_t at = (tile.query + i) * shape->heads + tile.head;
            take_row(sp_i_kernel_visible_keys(block, &tile, i), tile.keys, head_dim,
                     scores + i * SCORE_STRIDE, tile_out + i * shape->out_stride, max + at,
                     sum + at);
        }
        gemm(false, false, tile.queries, head_dim, tile.keys, 1.0, scores, SCORE_STRIDE, v + kv_at,
             shape->kv_stride, 1.0, tile_out, shape->out_stride);
    }
}
