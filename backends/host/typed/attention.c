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

// Turns one slice's heads by its positions.
static void turn(const layer *l, const sp_i_host_slice *slice, int64_t heads, bool backward,
                 real *x, int64_t stride)
{
    const sp_model *model = l->stage->job->model;
    if (model->positional != SP_ROPE) {
        return;
    }
    int64_t at = slice->begin * (model->head_dim / 2);
    SP_KERNEL(rope)
    (slice->computed, heads, model->head_dim, (const real *)l->stage->cosine + at,
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

// One slice's keys and values out of its rows of the projection's output.
static bool store_kv(const layer *l, int32_t number, const real *rows)
{
    const sp_i_host_job *job = l->stage->job;
    const sp_i_host_slice *slice = slice_of(l, number);
    int64_t kv = job->shard.kv;
    int64_t width = job->shard.q + 2 * kv;
    void **place = sp_i_host_kv(l->stage, number, l->index);
    if (*place != NULL) {
        return true;
    }
    real *to = sp_i_host_take(l->stage->arena, kv_category(l, slice), slice->computed * 2 * kv,
                              job->specs.value);
    if (to == NULL) {
        return false;
    }
    SP_KERNEL(copy_rows)(slice->computed, 2 * kv, rows + job->shard.q, width, to, 2 * kv);
    turn(l, slice, kv / job->model->head_dim, false, to, 2 * kv);
    *place = to;
    return true;
}

bool SP_HOST(split_qkv)(layer *l, real *qkv)
{
    const sp_i_host_job *job = l->stage->job;
    int64_t q = job->shard.q;
    int64_t width = q + 2 * job->shard.kv;
    if (l->t[SP_I_HOST_QUERIES] == NULL && !SP_HOST(make)(l, SP_I_HOST_QUERIES)) {
        return false;
    }
    real *queries = l->t[SP_I_HOST_QUERIES];
    SP_KERNEL(copy_rows)(l->rows, q, qkv, width, queries, q);
    int64_t row = 0;
    for (int32_t i = 0; i < l->pack->count; i++) {
        const sp_i_host_slice *slice = slice_of(l, l->pack->slice[i]);
        turn(l, slice, job->shard.heads, false, queries + row * q, q);
        if (!store_kv(l, l->pack->slice[i], qkv + row * width)) {
            return false;
        }
        row += slice->computed;
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

static int64_t longest(const layer *l)
{
    int64_t rows = 0;
    for (int32_t i = 0; i < l->pack->count; i++) {
        int64_t computed = slice_of(l, l->pack->slice[i])->computed;
        rows = computed > rows ? computed : rows;
    }
    return rows;
}

// Queries of `slice` against the keys of slice `keys` of the same sample.
static sp_kernel_attention_block block_of(const sp_i_host_slice *slice, const sp_i_host_slice *keys)
{
    return (sp_kernel_attention_block){.query_begin = slice->begin,
                                       .queries = slice->computed,
                                       .key_begin = keys->begin,
                                       .keys = keys == slice ? keys->computed : keys->tokens};
}

bool SP_HOST(attend)(layer *l)
{
    sp_kernel_attention_shape shape = shape_of(l);
    int64_t tiles = SP_KERNEL(attention_workspace)(&shape, 0);
    real *workspace = sp_i_host_take(l->stage->arena, SP_MEM_WORKSPACE,
                                     SP_KERNEL(attention_workspace)(&shape, longest(l)),
                                     l->stage->job->specs.scratch);
    if (workspace == NULL ||
        (l->t[SP_I_HOST_ATTENTION] == NULL && !SP_HOST(make)(l, SP_I_HOST_ATTENTION)) ||
        !SP_HOST(make)(l, SP_I_HOST_LSE)) {
        return false;
    }
    int64_t row = 0;
    for (int32_t i = 0; i < l->pack->count; i++) {
        int32_t number = l->pack->slice[i];
        const sp_i_host_slice *slice = slice_of(l, number);
        const real *q = (real *)l->t[SP_I_HOST_QUERIES] + row * shape.q_stride;
        real *out = (real *)l->t[SP_I_HOST_ATTENTION] + row * shape.out_stride;
        real *lse = (real *)l->t[SP_I_HOST_LSE] + row * shape.heads;
        real *sum = workspace + tiles;
        SP_KERNEL(attention_start)(&shape, slice->computed, out, lse, sum);
        for (int32_t e = number; e != SP_I_HOST_NONE; e = slice_of(l, e)->earlier) {
            sp_kernel_attention_block block = block_of(slice, slice_of(l, e));
            const real *k = *sp_i_host_kv(l->stage, e, l->index);
            SP_KERNEL(attention_block)
            (&shape, &block, q, k, k + l->stage->job->shard.kv, out, lse, sum, workspace);
        }
        SP_KERNEL(attention_finish)(&shape, slice->computed, lse, sum, out, lse);
        row += slice->computed;
    }
    sp_i_host_give(l->stage->arena, workspace);
    return true;
}

// ---- backward ----

// The gradients of a slice's keys and values, zero before its sample's last slice.
static real *kv_gradient(const layer *l, int32_t number)
{
    void **place = sp_i_host_kv_gradient(l->stage, number, l->index);
    if (*place == NULL) {
        *place =
            sp_i_host_take_zeroed(l->stage->arena, SP_MEM_KV_GRADIENTS,
                                  slice_of(l, number)->computed * l->stage->job->specs.kv_columns,
                                  l->stage->job->specs.value);
    }
    return *place;
}

// One slice: writes dq, adds to the gradients of the keys and values that it sees.
static bool slice_backward(const layer *l, int32_t number, int64_t row, const real *dout, real *dq,
                           real *workspace)
{
    sp_kernel_attention_shape shape = shape_of(l);
    const sp_i_host_slice *slice = slice_of(l, number);
    int64_t kv = l->stage->job->shard.kv;
    const real *q = (real *)l->t[SP_I_HOST_QUERIES] + row * shape.q_stride;
    const real *out = (real *)l->t[SP_I_HOST_ATTENTION] + row * shape.out_stride;
    const real *lse = (real *)l->t[SP_I_HOST_LSE] + row * shape.heads;
    real *delta = workspace + SP_KERNEL(attention_workspace)(&shape, 0);
    SP_KERNEL(attention_delta)(&shape, slice->computed, out, dout, delta);
    memset(dq, 0, (size_t)(slice->computed * shape.q_stride) * sizeof *dq);
    for (int32_t e = number; e != SP_I_HOST_NONE; e = slice_of(l, e)->earlier) {
        sp_kernel_attention_block block = block_of(slice, slice_of(l, e));
        const real *k = *sp_i_host_kv(l->stage, e, l->index);
        real *dk = kv_gradient(l, e);
        if (dk == NULL) {
            return false;
        }
        SP_KERNEL(attention_block_backward)
        (&shape, &block, q, k, k + kv, dout, lse, delta, dq, dk, dk + kv, workspace);
    }
    return true;
}

// Moves what is complete now into the gradient of the projection's output.
static void take_slice(const layer *l, int32_t number, const real *dq, real *dqkv)
{
    const sp_i_host_job *job = l->stage->job;
    const sp_i_host_slice *slice = slice_of(l, number);
    int64_t q = job->shard.q;
    int64_t kv = job->shard.kv;
    int64_t width = q + 2 * kv;
    void **gradient = sp_i_host_kv_gradient(l->stage, number, l->index);
    void **stored = sp_i_host_kv(l->stage, number, l->index);
    SP_KERNEL(copy_rows)(slice->computed, q, dq, q, dqkv, width);
    SP_KERNEL(copy_rows)(slice->computed, 2 * kv, *gradient, 2 * kv, dqkv + q, width);
    turn(l, slice, job->shard.heads, true, dqkv, width);
    turn(l, slice, kv / job->model->head_dim, true, dqkv + q, width);
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
                                     SP_KERNEL(attention_workspace)(&shape, longest(l)),
                                     l->stage->job->specs.scratch);
    bool ok = dq != NULL && workspace != NULL;
    int64_t row = 0;
    for (int32_t i = 0; ok && i < l->pack->count; i++) {
        ok = slice_backward(l, l->pack->slice[i], row, dout + row * shape.out_stride,
                            dq + row * shape.q_stride, workspace);
        row += slice_of(l, l->pack->slice[i])->computed;
    }
    row = 0;
    for (int32_t i = 0; ok && i < l->pack->count; i++) {
        take_slice(l, l->pack->slice[i], dq + row * shape.q_stride, dqkv + row * width);
        row += slice_of(l, l->pack->slice[i])->computed;
    }
    sp_i_host_give(l->stage->arena, workspace);
    sp_i_host_give(l->stage->arena, dq);
    return ok;
}
