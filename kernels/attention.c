#include <math.h>
#include <string.h>

#include "kernels/attention_tiles.h"
#include "kernels/typed.h"
#include "kernels/vector.h"

// Two tiles of scores, and a number for each query.
enum { TILES_ELEMENTS = 2 * SP_I_KERNEL_QUERY_TILE * SP_I_KERNEL_KEY_TILE };

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
               (size_t)(shape->heads * shape->head_dim) * sizeof *out);
    }
    for (int64_t i = 0; i < queries * shape->heads; i++) {
        max[i] = (real)-INFINITY;
        sum[i] = 0;
    }
}

void SP_KERNEL(attention_finish)(const sp_kernel_attention_shape *shape, int64_t queries,
                                 const real *max, const real *sum, real *out, real *lse)
{
    for (int64_t i = 0; i < queries; i++) {
        for (int64_t h = 0; h < shape->heads; h++) {
            int64_t at = i * shape->heads + h;
            real *row = out + i * shape->out_stride + h * shape->head_dim;
            // Where no key was seen the row is zero already.
            row_scale(shape->head_dim, sum[at] == (real)0.0 ? (real)1.0 : (real)1.0 / sum[at], row);
            lse[at] = (real)((double)max[at] + log((double)sum[at]));
        }
    }
}

void SP_KERNEL(attention_delta)(const sp_kernel_attention_shape *shape, int64_t queries,
                                const real *out, const real *dout, real *delta)
{
    for (int64_t i = 0; i < queries; i++) {
        for (int64_t h = 0; h < shape->heads; h++) {
            int64_t at = i * shape->out_stride + h * shape->head_dim;
            delta[i * shape->heads + h] = row_dot(shape->head_dim, out + at, dout + at);
        }
    }
}
