// Attention of a pack's slices over the slices of their samples: block after block, each slice's
// keys and values where its own forward left them. Earlier slices show their tokens without the
// padding behind them.
#include <math.h>
#include <string.h>

#include "backends/host/typed/layer.h"

static const sp_i_host_slice *slice_of(const layer *l, int32_t number)
{
    return &l->stage->job->slices.slice[number];
}

static sp_kernel_attention_shape shape_of(const layer *l)
{
    const sp_i_host_job *job = l->stage->job;
    return (sp_kernel_attention_shape){.heads = job->shard.heads,
                                       .kv_heads = job->shard.kv / job->model->head_dim,
                                       .head_dim = job->model->head_dim,
                                       .q_stride = job->shard.q,
                                       .kv_stride = 2 * job->shard.kv,
                                       .out_stride = job->shard.q,
                                       .scale = 1.0 / sqrt((double)job->model->head_dim)};
}

// Turns the heads of a piece by its positions; x begins at its first row.
static void turn(const layer *l, const sp_i_host_piece *piece, int64_t heads, bool backward,
                 real *x, int64_t stride)
{
    const sp_model *model = l->stage->job->model;
    if (model->positional != SP_ROPE) {
        return;
    }
    int64_t at = piece->begin * (model->head_dim / 2);
    SP_KERNEL(rope)
    (piece->rows, heads, model->head_dim, (const real *)l->stage->cosine + at,
     (const real *)l->stage->sine + at, backward, x, stride);
}

// Where later slices read them they are cached, in every mode; else they are kept like the rest of
// the layer's tensors.
static sp_memory_category kv_category(const layer *l, const sp_i_host_slice *slice)
{
    if (l->rebuilds) {
        return SP_MEM_RECOMPUTE;
    }
    if (slice->later != SP_I_HOST_NONE) {
        return SP_MEM_KV_CACHE;
    }
    return l->keep && l->stage->job->specs.keeps_kv ? SP_MEM_ACTIVATIONS : SP_MEM_WORKSPACE;
}

// The keys and values of the pack's i-th slice out of the projection's output, unless they are
// there.
static bool store_kv(const layer *l, int32_t i, const real *qkv)
{
    const sp_i_host_job *job = l->stage->job;
    int32_t number = l->pack->slice[i];
    const sp_i_host_slice *slice = slice_of(l, number);
    int64_t kv = job->shard.kv;
    int64_t width = job->shard.q + 2 * kv;
    void **place = sp_i_host_kv(l->stage, number, l->index);
    if (*place != NULL) {
        return true;
    }
    real *block = sp_i_host_take(l->stage->arena, kv_category(l, slice), slice->rows * 2 * kv,
                                 job->specs.value);
    if (block == NULL) {
        return false;
    }
    for (size_t p = l->pack->first_piece[i]; p < l->pack->first_piece[i + 1]; p++) {
        const sp_i_host_piece *piece = &l->pack->piece[p];
        real *to = block + piece->at * 2 * kv;
        SP_KERNEL(copy_rows)
        (piece->rows, 2 * kv, qkv + piece->row * width + job->shard.q, width, to, 2 * kv);
        turn(l, piece, kv / job->model->head_dim, false, to, 2 * kv);
    }
    *place = block;
    return true;
}

bool SP_HOST(split_qkv)(layer *l, real *qkv)
{
    const sp_i_host_job *job = l->stage->job;
    int64_t q = job->shard.q;
    if (l->t[SP_I_HOST_QUERIES] == NULL && !SP_HOST(make)(l, SP_I_HOST_QUERIES)) {
        return false;
    }
    real *queries = l->t[SP_I_HOST_QUERIES];
    SP_KERNEL(copy_rows)(l->rows, q, qkv, q + 2 * job->shard.kv, queries, q);
    for (size_t p = 0; p < l->pack->first_piece[l->pack->count]; p++) {
        const sp_i_host_piece *piece = &l->pack->piece[p];
        turn(l, piece, job->shard.heads, false, queries + piece->row * q, q);
    }
    for (int32_t i = 0; i < l->pack->count; i++) {
        if (!store_kv(l, i, qkv)) {
            return false;
        }
    }
    return true;
}

void SP_HOST(release_kv)(const layer *l)
{
    const sp_i_host_specs *specs = &l->stage->job->specs;
    for (int32_t i = 0; i < l->pack->count && !(l->keep && specs->keeps_kv); i++) {
        void **place = sp_i_host_kv(l->stage, l->pack->slice[i], l->index);
        if (slice_of(l, l->pack->slice[i])->later == SP_I_HOST_NONE) {
            sp_i_host_give(l->stage->arena, *place);
            *place = NULL;
        }
    }
}

// Does another rank hold tokens of the pack's slices?
static bool is_shared(const layer *l)
{
    return l->pack->count > 0 && slice_of(l, l->pack->slice[0])->shards > 1;
}

// Queries of a piece against the keys of slice `keys` of the same sample.
static sp_kernel_attention_block block_of(const layer *l, const sp_i_host_piece *piece,
                                          int32_t keys)
{
    const sp_i_host_slice *slice = slice_of(l, keys);
    return (sp_kernel_attention_block){.query_begin = piece->begin,
                                       .queries = piece->rows,
                                       .key_begin = slice->begin,
                                       .keys =
                                           keys == piece->slice ? slice->computed : slice->tokens};
}

static void attend_piece(const layer *l, const sp_kernel_attention_shape *shape,
                         const sp_i_host_piece *piece, real *sum, real *tiles)
{
    const real *q = (real *)l->t[SP_I_HOST_QUERIES] + piece->row * shape->q_stride;
    real *out = (real *)l->t[SP_I_HOST_ATTENTION] + piece->row * shape->out_stride;
    real *max = (real *)l->t[SP_I_HOST_LSE] + piece->row * shape->heads;
    for (int32_t e = piece->slice; e != SP_I_HOST_NONE; e = slice_of(l, e)->earlier) {
        sp_kernel_attention_block block = block_of(l, piece, e);
        const real *k = *sp_i_host_kv(l->stage, e, l->index);
        SP_KERNEL(attention_block)
        (shape, &block, q, k, k + l->stage->job->shard.kv, out, max,
         sum + piece->row * shape->heads, tiles);
    }
}

static bool attend_all(const layer *l, const sp_kernel_attention_shape *shape, real *sum,
                       real *tiles)
{
    if (is_shared(l)) {
        return SP_HOST(attend_shards)(l, shape, sum);
    }
    for (size_t p = 0; p < l->pack->first_piece[l->pack->count]; p++) {
        attend_piece(l, shape, &l->pack->piece[p], sum, tiles);
    }
    return true;
}

bool SP_HOST(attend)(layer *l)
{
    sp_kernel_attention_shape shape = shape_of(l);
    int64_t tiles = SP_KERNEL(attention_workspace)(&shape, 0);
    real *workspace = sp_i_host_take(l->stage->arena, SP_MEM_WORKSPACE,
                                     SP_KERNEL(attention_workspace)(&shape, l->rows),
                                     l->stage->job->specs.scratch);
    if (workspace == NULL ||
        (l->t[SP_I_HOST_ATTENTION] == NULL && !SP_HOST(make)(l, SP_I_HOST_ATTENTION)) ||
        !SP_HOST(make)(l, SP_I_HOST_LSE)) {
        return false;
    }
    real *out = l->t[SP_I_HOST_ATTENTION];
    real *lse = l->t[SP_I_HOST_LSE];
    real *sum = workspace + tiles;
    SP_KERNEL(attention_start)(&shape, l->rows, out, lse, sum);
    if (!attend_all(l, &shape, sum, workspace)) {
        return false;
    }
    SP_KERNEL(attention_finish)(&shape, l->rows, lse, sum, out, lse);
    sp_i_host_give(l->stage->arena, workspace);
    return true;
}

// ---- backward ----

// The gradients of a slice's keys and values, zero before its sample's last slice.
real *SP_HOST(kv_gradient)(const layer *l, int32_t number)
{
    void **place = sp_i_host_kv_gradient(l->stage, number, l->index);
    if (*place == NULL) {
        *place = sp_i_host_take_zeroed(l->stage->arena, SP_MEM_KV_GRADIENTS,
                                       slice_of(l, number)->rows * l->stage->job->specs.kv_columns,
                                       l->stage->job->specs.value);
    }
    return *place;
}

// Writes dq of a piece, adds to the gradients of the keys and values that it sees.
static bool piece_backward(const layer *l, const sp_kernel_attention_shape *shape,
                           const sp_i_host_piece *piece, const real *dout, const real *delta,
                           real *dq, real *tiles)
{
    int64_t kv = l->stage->job->shard.kv;
    const real *q = (real *)l->t[SP_I_HOST_QUERIES] + piece->row * shape->q_stride;
    const real *lse = (real *)l->t[SP_I_HOST_LSE] + piece->row * shape->heads;
    for (int32_t e = piece->slice; e != SP_I_HOST_NONE; e = slice_of(l, e)->earlier) {
        sp_kernel_attention_block block = block_of(l, piece, e);
        const real *k = *sp_i_host_kv(l->stage, e, l->index);
        real *dk = SP_HOST(kv_gradient)(l, e);
        if (dk == NULL) {
            return false;
        }
        SP_KERNEL(attention_block_backward)
        (shape, &block, q, k, k + kv, dout + piece->row * shape->out_stride, lse,
         delta + piece->row * shape->heads, dq + piece->row * shape->q_stride, dk, dk + kv, tiles);
    }
    return true;
}

static bool backward_all(const layer *l, const sp_kernel_attention_shape *shape, const real *dout,
                         const real *delta, real *dq, real *tiles)
{
    if (is_shared(l)) {
        return SP_HOST(shards_backward)(l, shape, dout, delta, dq);
    }
    bool ok = true;
    for (size_t p = 0; ok && p < l->pack->first_piece[l->pack->count]; p++) {
        ok = piece_backward(l, shape, &l->pack->piece[p], dout, delta, dq, tiles);
    }
    return ok;
}

// Moves the gradients of the i-th slice's keys and values, complete now, into that of the
// projection's output.
static void take_slice(const layer *l, int32_t i, real *dqkv)
{
    const sp_i_host_job *job = l->stage->job;
    int32_t number = l->pack->slice[i];
    int64_t q = job->shard.q;
    int64_t kv = job->shard.kv;
    int64_t width = q + 2 * kv;
    void **gradient = sp_i_host_kv_gradient(l->stage, number, l->index);
    void **stored = sp_i_host_kv(l->stage, number, l->index);
    for (size_t p = l->pack->first_piece[i]; p < l->pack->first_piece[i + 1]; p++) {
        const sp_i_host_piece *piece = &l->pack->piece[p];
        real *to = dqkv + piece->row * width;
        SP_KERNEL(copy_rows)
        (piece->rows, 2 * kv, (real *)*gradient + piece->at * 2 * kv, 2 * kv, to + q, width);
        turn(l, piece, job->shard.heads, true, to, width);
        turn(l, piece, kv / job->model->head_dim, true, to + q, width);
    }
    sp_i_host_give(l->stage->arena, *gradient);
    sp_i_host_give(l->stage->arena, *stored);
    *gradient = NULL;
    *stored = NULL;
}

// A pack may hold several slices of a sample, in any order: all of them run before any of their
// gradients is taken.
bool SP_HOST(attend_backward)(layer *l, const real *dout, real *dqkv)
{
    sp_kernel_attention_shape shape = shape_of(l);
    int64_t width = l->stage->job->shard.q + l->stage->job->specs.kv_columns;
    real *dq = SP_HOST(take)(l, shape.q_stride);
    real *workspace = sp_i_host_take(l->stage->arena, SP_MEM_WORKSPACE,
                                     SP_KERNEL(attention_workspace)(&shape, l->rows),
                                     l->stage->job->specs.scratch);
    if (dq == NULL || workspace == NULL) {
        return false;
    }
    real *delta = workspace + SP_KERNEL(attention_workspace)(&shape, 0);
    SP_KERNEL(attention_delta)(&shape, l->rows, l->t[SP_I_HOST_ATTENTION], dout, delta);
    memset(dq, 0, (size_t)(l->rows * shape.q_stride) * sizeof *dq);
    if (!backward_all(l, &shape, dout, delta, dq, workspace)) {
        return false;
    }
    SP_KERNEL(copy_rows)(l->rows, shape.q_stride, dq, shape.q_stride, dqkv, width);
    for (int32_t i = 0; i < l->pack->count; i++) {
        take_slice(l, i, dqkv);
    }
    sp_i_host_give(l->stage->arena, workspace);
    sp_i_host_give(l->stage->arena, dq);
    return true;
}
