// Queries, keys and values: each slice's keys and values stand in a block of their own, where its
// own forward left them, and so do their gradients. Each device computes from them in its own way
// (attend_pack, attend_pack_backward). They come from one product, or from latents.
#include "backends/executor/typed/layer.h"

// Turns the heads of a piece by its positions, of latent attention what the position turns of each
// head; x begins at its first row.
static void rotate(const layer *l, const sp_i_exec_piece *piece, int64_t heads, bool backward,
                   real *x, int64_t stride)
{
    const sp_model *model = &l->kind->model;
    int64_t turned = sp_model_rotary_dim(model);
    if (model->positional != SP_ROPE) {
        return;
    }
    if (turned == model->head_dim) {
        SP_OP(rope)
        (piece->rows, piece->begin, heads, turned, l->stage->cosine, l->stage->sine, backward, x,
         stride);
        return;
    }
    for (int64_t h = 0; h < heads; h++) {
        SP_OP(rope)
        (piece->rows, piece->begin, 1, turned, l->stage->cosine, l->stage->sine, backward,
         x + h * model->head_dim + model->qk_nope_dim, stride);
    }
}

static int64_t key_heads(const layer *l)
{
    return l->kind->shard.k / l->kind->model.head_dim;
}

static int64_t kv_width(const layer *l)
{
    return l->kind->shard.k + l->kind->shard.v;
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
    return l->keep && l->kind->specs.of[SP_TENSOR_KEYS_VALUES].kept ? SP_MEM_ACTIVATIONS
                                                                    : SP_MEM_WORKSPACE;
}

// Writes the keys and values of a piece, not yet turned, out of what they are projected to.
typedef void fill_piece(const layer *l, const sp_i_exec_piece *piece, const real *projected,
                        real *to);

// Those of the pack's i-th slice, unless they are there.
static bool store_kv(const layer *l, int32_t i, const real *projected, fill_piece *fill)
{
    int32_t number = l->pack->slice[i];
    const sp_i_exec_slice *slice = slice_of(l, number);
    int64_t width = kv_width(l);
    void **place = sp_i_exec_kv(l->stage, number, l->index);
    if (*place != NULL) {
        return true;
    }
    real *block = sp_i_exec_take(l->stage->arena, kv_category(l, slice), slice->rows * width,
                                 l->stage->job->width.value);
    if (block == NULL) {
        return false;
    }
    for (size_t p = l->pack->first_piece[i]; p < l->pack->first_piece[i + 1]; p++) {
        const sp_i_exec_piece *piece = &l->pack->piece[p];
        real *to = block + piece->at * width;
        fill(l, piece, projected, to);
        rotate(l, piece, key_heads(l), false, to, width);
    }
    *place = block;
    return true;
}

static bool store_all(layer *l, const real *projected, fill_piece *fill)
{
    bool ok = true;
    int64_t q = l->kind->shard.q;
    for (size_t p = 0; p < l->pack->first_piece[l->pack->count]; p++) {
        const sp_i_exec_piece *piece = &l->pack->piece[p];
        rotate(l, piece, l->kind->shard.heads, false,
               (real *)l->t[SP_TENSOR_QUERIES] + piece->row * q, q);
    }
    for (int32_t i = 0; ok && i < l->pack->count; i++) {
        ok = store_kv(l, i, projected, fill);
    }
    return ok;
}

static void fill_of_product(const layer *l, const sp_i_exec_piece *piece, const real *qkv, real *to)
{
    int64_t q = l->kind->shard.q;
    int64_t kv = kv_width(l);
    SP_OP(copy_rows)(piece->rows, kv, qkv + piece->row * (q + kv) + q, q + kv, to, kv);
}

bool SP_EXEC(split_qkv)(layer *l, const real *qkv)
{
    int64_t q = l->kind->shard.q;
    if (l->t[SP_TENSOR_QUERIES] == NULL && !SP_EXEC(make)(l, SP_TENSOR_QUERIES)) {
        return false;
    }
    SP_OP(copy_rows)(l->rows, q, qkv, q + kv_width(l), l->t[SP_TENSOR_QUERIES], q);
    return store_all(l, qkv, fill_of_product);
}

// ---- of latent attention: a head's keys and values stand one behind the other in the product, and
// all heads share the part of the keys that the position turns, which stands behind the latent ----

static void fill_of_latent(const layer *l, const sp_i_exec_piece *piece, const real *product,
                           real *to)
{
    const sp_model *model = &l->kind->model;
    const real *latent = l->t[SP_TENSOR_KV_LATENT];
    int64_t nope = model->qk_nope_dim;
    int64_t rope = model->qk_rope_dim;
    int64_t v = model->v_head_dim;
    int64_t from_stride = key_heads(l) * (nope + v);
    int64_t latent_stride = model->kv_lora_rank + rope;
    int64_t stride = kv_width(l);
    for (int64_t h = 0; h < key_heads(l); h++) {
        const real *from = product + piece->row * from_stride + h * (nope + v);
        real *key = to + h * model->head_dim;
        SP_OP(copy_rows)(piece->rows, nope, from, from_stride, key, stride);
        SP_OP(copy_rows)
        (piece->rows, rope, latent + piece->row * latent_stride + model->kv_lora_rank,
         latent_stride, key + nope, stride);
        SP_OP(copy_rows)
        (piece->rows, v, from + nope, from_stride, to + l->kind->shard.k + h * v, stride);
    }
}

bool SP_EXEC(split_latent)(layer *l, const real *product)
{
    return store_all(l, product, fill_of_latent);
}

// The gradient of the shared part is the sum over heads. dkv: of keys and values as they are
// stored, not turned.
static bool split_gradient(const layer *l, const real *dkv, real *dproduct, real *dlatent)
{
    const sp_model *model = &l->kind->model;
    int64_t nope = model->qk_nope_dim;
    int64_t rope = model->qk_rope_dim;
    int64_t v = model->v_head_dim;
    int64_t stride = kv_width(l);
    int64_t to_stride = key_heads(l) * (nope + v);
    real *sum = SP_EXEC(take)(l, rope);
    real *one = SP_EXEC(take)(l, rope);
    if (sum == NULL || one == NULL) {
        return false;
    }
    for (int64_t h = 0; h < key_heads(l); h++) {
        const real *key = dkv + h * model->head_dim;
        real *to = dproduct + h * (nope + v);
        SP_OP(copy_rows)(l->rows, nope, key, stride, to, to_stride);
        SP_OP(copy_rows)(l->rows, v, dkv + l->kind->shard.k + h * v, stride, to + nope, to_stride);
        SP_OP(copy_rows)(l->rows, rope, key + nope, stride, h == 0 ? sum : one, rope);
        if (h > 0) {
            SP_OP(add)(l->rows * rope, one, sum);
        }
    }
    SP_OP(copy_rows)
    (l->rows, rope, sum, rope, dlatent + model->kv_lora_rank, model->kv_lora_rank + rope);
    sp_i_exec_give(l->stage->arena, one);
    sp_i_exec_give(l->stage->arena, sum);
    return true;
}

// At the end of a forward: gives back keys and values that neither later slices nor the layer keep.
void SP_EXEC(release_kv)(const layer *l)
{
    const sp_i_exec_specs *specs = &l->kind->specs;
    for (int32_t i = 0; i < l->pack->count && !(l->keep && specs->of[SP_TENSOR_KEYS_VALUES].kept);
         i++) {
        void **place = sp_i_exec_kv(l->stage, l->pack->slice[i], l->index);
        if (slice_of(l, l->pack->slice[i])->later == SP_I_EXEC_NONE) {
            sp_i_exec_give(l->stage->arena, *place);
            *place = NULL;
        }
    }
}

// Moves the gradients of the i-th slice's keys and values, complete now, into rows of `stride`, and
// turns them and those of its queries back.
static void take_slice(const layer *l, int32_t i, real *dq, int64_t q_stride, real *dkv,
                       int64_t stride)
{
    int32_t number = l->pack->slice[i];
    int64_t width = kv_width(l);
    void **gradient = sp_i_exec_kv_gradient(l->stage, number, l->index);
    void **stored = sp_i_exec_kv(l->stage, number, l->index);
    for (size_t p = l->pack->first_piece[i]; p < l->pack->first_piece[i + 1]; p++) {
        const sp_i_exec_piece *piece = &l->pack->piece[p];
        real *to = dkv + piece->row * stride;
        SP_OP(round_rows)
        (piece->rows, width, (exact *)*gradient + piece->at * width, width, to, stride);
        rotate(l, piece, l->kind->shard.heads, true, dq + piece->row * q_stride, q_stride);
        rotate(l, piece, key_heads(l), true, to, stride);
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
    int64_t q = l->kind->shard.q;
    int64_t width = q + kv_width(l);
    real *dq = SP_EXEC(take)(l, q);
    if (dq == NULL || !SP_EXEC(attend_pack_backward)(l, dout, dq)) {
        return false;
    }
    SP_OP(copy_rows)(l->rows, q, dq, q, dqkv, width);
    for (int32_t i = 0; i < l->pack->count; i++) {
        take_slice(l, i, dqkv, width, dqkv + q, width);
    }
    sp_i_exec_give(l->stage->arena, dq);
    return true;
}

bool SP_EXEC(attend_latent_backward)(layer *l, const real *dout, real *dq, real *dproduct,
                                     real *dlatent)
{
    int64_t width = kv_width(l);
    real *dkv = SP_EXEC(take)(l, width);
    if (dkv == NULL || !SP_EXEC(attend_pack_backward)(l, dout, dq)) {
        return false;
    }
    for (int32_t i = 0; i < l->pack->count; i++) {
        take_slice(l, i, dq, l->kind->shard.q, dkv, width);
    }
    bool ok = split_gradient(l, dkv, dproduct, dlatent);
    sp_i_exec_give(l->stage->arena, dkv);
    return ok;
}
