// Queries, keys and values of a pack out of the QKV projection and back: each slice's keys and
// values stand in a block of their own, where its own forward left them, and so do their gradients.
// What is computed from them is each device's own (attend_pack, attend_pack_backward).
#include <math.h>

#include "backends/executor/typed/layer.h"

sp_kernel_attention_shape SP_EXEC(attention_shape)(const layer *l)
{
    const sp_i_exec_job *job = l->stage->job;
    return (sp_kernel_attention_shape){.heads = job->shard.heads,
                                       .kv_heads = job->shard.kv / job->model->head_dim,
                                       .head_dim = job->model->head_dim,
                                       .q_stride = job->shard.q,
                                       .kv_stride = 2 * job->shard.kv,
                                       .out_stride = job->shard.q,
                                       .scale = 1.0 / sqrt((double)job->model->head_dim)};
}

bool SP_EXEC(is_shared)(const layer *l)
{
    return l->pack->count > 0 && slice_of(l, l->pack->slice[0])->shards > 1;
}

// Turns the heads of a piece by its positions; x begins at its first row.
static void turn(const layer *l, const sp_i_exec_piece *piece, int64_t heads, bool backward,
                 real *x, int64_t stride)
{
    const sp_model *model = l->stage->job->model;
    if (model->positional == SP_ROPE) {
        SP_OP(rope)
        (piece->rows, piece->begin, heads, model->head_dim, l->stage->cosine, l->stage->sine,
         backward, x, stride);
    }
}

// Where later slices read them they are cached, in every mode; else they are kept like the rest of
// the layer's tensors.
static sp_memory_category kv_category(const layer *l, const sp_i_exec_slice *slice)
{
    if (l->rebuilds) {
        return SP_MEM_RECOMPUTE;
    }
    if (slice->later != SP_I_EXEC_NONE) {
        return SP_MEM_KV_CACHE;
    }
    return l->keep && l->stage->job->specs.keeps_kv ? SP_MEM_ACTIVATIONS : SP_MEM_WORKSPACE;
}

// The keys and values of the pack's i-th slice out of the projection's output, unless they are
// there.
static bool store_kv(const layer *l, int32_t i, const real *qkv)
{
    const sp_i_exec_job *job = l->stage->job;
    int32_t number = l->pack->slice[i];
    const sp_i_exec_slice *slice = slice_of(l, number);
    int64_t kv = job->shard.kv;
    int64_t width = job->shard.q + 2 * kv;
    void **place = sp_i_exec_kv(l->stage, number, l->index);
    if (*place != NULL) {
        return true;
    }
    real *block = sp_i_exec_take(l->stage->arena, kv_category(l, slice), slice->rows * 2 * kv,
                                 job->specs.value);
    if (block == NULL) {
        return false;
    }
    for (size_t p = l->pack->first_piece[i]; p < l->pack->first_piece[i + 1]; p++) {
        const sp_i_exec_piece *piece = &l->pack->piece[p];
        real *to = block + piece->at * 2 * kv;
        SP_OP(copy_rows)
        (piece->rows, 2 * kv, qkv + piece->row * width + job->shard.q, width, to, 2 * kv);
        turn(l, piece, kv / job->model->head_dim, false, to, 2 * kv);
    }
    *place = block;
    return true;
}

bool SP_EXEC(split_qkv)(layer *l, real *qkv)
{
    const sp_i_exec_job *job = l->stage->job;
    int64_t q = job->shard.q;
    if (l->t[SP_I_EXEC_QUERIES] == NULL && !SP_EXEC(make)(l, SP_I_EXEC_QUERIES)) {
        return false;
    }
    real *queries = l->t[SP_I_EXEC_QUERIES];
    SP_OP(copy_rows)(l->rows, q, qkv, q + 2 * job->shard.kv, queries, q);
    for (size_t p = 0; p < l->pack->first_piece[l->pack->count]; p++) {
        const sp_i_exec_piece *piece = &l->pack->piece[p];
        turn(l, piece, job->shard.heads, false, queries + piece->row * q, q);
    }
    for (int32_t i = 0; i < l->pack->count; i++) {
        if (!store_kv(l, i, qkv)) {
            return false;
        }
    }
    return true;
}

void SP_EXEC(release_kv)(const layer *l)
{
    const sp_i_exec_specs *specs = &l->stage->job->specs;
    for (int32_t i = 0; i < l->pack->count && !(l->keep && specs->keeps_kv); i++) {
        void **place = sp_i_exec_kv(l->stage, l->pack->slice[i], l->index);
        if (slice_of(l, l->pack->slice[i])->later == SP_I_EXEC_NONE) {
            sp_i_exec_give(l->stage->arena, *place);
            *place = NULL;
        }
    }
}

bool SP_EXEC(attend)(layer *l)
{
    return (l->t[SP_I_EXEC_ATTENTION] != NULL || SP_EXEC(make)(l, SP_I_EXEC_ATTENTION)) &&
           SP_EXEC(make)(l, SP_I_EXEC_LSE) && SP_EXEC(attend_pack)(l);
}

// ---- backward ----

exact *SP_EXEC(kv_gradient)(const layer *l, int32_t number)
{
    const sp_i_exec_specs *specs = &l->stage->job->specs;
    const sp_i_exec_width width = {specs->statistic.real_bytes, specs->value.table_bytes};
    void **place = sp_i_exec_kv_gradient(l->stage, number, l->index);
    if (*place == NULL) {
        *place = sp_i_exec_take_zeroed(l->stage->arena, SP_MEM_KV_GRADIENTS,
                                       slice_of(l, number)->rows * specs->kv_columns, width);
    }
    return *place;
}

// Moves the gradients of the i-th slice's keys and values, complete now, into that of the
// projection's output.
static void take_slice(const layer *l, int32_t i, real *dqkv)
{
    const sp_i_exec_job *job = l->stage->job;
    int32_t number = l->pack->slice[i];
    int64_t q = job->shard.q;
    int64_t kv = job->shard.kv;
    int64_t width = q + 2 * kv;
    void **gradient = sp_i_exec_kv_gradient(l->stage, number, l->index);
    void **stored = sp_i_exec_kv(l->stage, number, l->index);
    for (size_t p = l->pack->first_piece[i]; p < l->pack->first_piece[i + 1]; p++) {
        const sp_i_exec_piece *piece = &l->pack->piece[p];
        real *to = dqkv + piece->row * width;
        SP_OP(round_rows)
        (piece->rows, 2 * kv, (exact *)*gradient + piece->at * 2 * kv, 2 * kv, to + q, width);
        turn(l, piece, job->shard.heads, true, to, width);
        turn(l, piece, kv / job->model->head_dim, true, to + q, width);
    }
    sp_i_exec_give(l->stage->arena, *gradient);
    sp_i_exec_give(l->stage->arena, *stored);
    *gradient = NULL;
    *stored = NULL;
}

// A pack may hold several slices of a sample, in any order: all of them run before any of their
// gradients is taken.
bool SP_EXEC(attend_backward)(layer *l, const real *dout, real *dqkv)
{
    int64_t q = l->stage->job->shard.q;
    real *dq = SP_EXEC(take)(l, q);
    if (dq == NULL || !SP_EXEC(attend_pack_backward)(l, dout, dq)) {
        return false;
    }
    SP_OP(copy_rows)(l->rows, q, dq, q, dqkv, q + l->stage->job->specs.kv_columns);
    for (int32_t i = 0; i < l->pack->count; i++) {
        take_slice(l, i, dqkv);
    }
    sp_i_exec_give(l->stage->arena, dq);
    return true;
}
