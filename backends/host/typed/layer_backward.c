#include "backends/host/typed/layer.h"

static const sp_model *model_of(const layer *l)
{
    return l->stage->job->model;
}

// Input gradient of a projection, as a new matrix.
static real *input_gradient(const layer *l, sp_i_host_layer_weight weight, int64_t in, int64_t out,
                            const real *dy)
{
    real *dx = SP_HOST(take)(l, in);
    if (dx != NULL) {
        SP_KERNEL(linear_backward_input)
        (l->rows, in, out, dy, out, SP_HOST(value)(l, weight), in, false, dx, in);
    }
    return dx;
}

// Through a norm and, with the gradient that goes around the block, to that of the block's input.
// Gives back dy.
static real *norm_backward(const layer *l, sp_i_host_layer_weight weight, sp_i_host_tensor from,
                           sp_i_host_tensor norm, real *dy, const real *around)
{
    int64_t h = model_of(l)->hidden;
    int slot = sp_i_host_layer_slot(l->index, weight);
    real *dx = SP_HOST(take)(l, h);
    if (dx != NULL) {
        SP_HOST(norm_backward)
        (l, l->stage->value + slot, l->stage->gradient + slot, l->t[from], l->t[norm + 1],
         l->t[norm + 2], dy, dx);
        SP_KERNEL(add)(l->rows * h, around, dx);
    }
    sp_i_host_give(l->stage->arena, dy);
    return dx;
}

static real *activation_backward(const layer *l, real *dproduct)
{
    int64_t ffn = l->stage->job->shard.ffn;
    int64_t width = l->stage->job->shard.fc1;
    const real *x = l->t[SP_I_HOST_FC1];
    real *dx = SP_HOST(take)(l, width);
    if (dx != NULL && model_of(l)->activation == SP_SWIGLU) {
        SP_KERNEL(swiglu_backward)
        (l->rows, ffn, x, x + ffn, width, dproduct, ffn, dx, dx + ffn, width);
    } else if (dx != NULL) {
        SP_KERNEL(gelu_backward)(l->rows * ffn, x, dproduct, dx);
    }
    sp_i_host_give(l->stage->arena, dproduct);
    return dx;
}

typedef struct product {
    sp_i_host_layer_weight weight;
    int64_t in, out;
} product;

static product product_of(const sp_i_host_job *job, sp_i_host_deferred input)
{
    int64_t h = job->model->hidden;
    const sp_i_shard *shard = &job->shard;
    switch (input) {
    case SP_I_HOST_QKV_IN:
        return (product){SP_I_HOST_QKV_WEIGHT, h, shard->q + 2 * shard->kv};
    case SP_I_HOST_PROJECTION_IN:
        return (product){SP_I_HOST_PROJECTION_WEIGHT, shard->q, h};
    case SP_I_HOST_FC1_IN:
        return (product){SP_I_HOST_FC1_WEIGHT, h, shard->fc1};
    default:
        return (product){SP_I_HOST_FC2_WEIGHT, shard->ffn, h};
    }
}

static void weight_gradient(const sp_i_host_stage *stage, int index, int64_t rows,
                            sp_i_host_deferred input, void *const *pair)
{
    product p = product_of(stage->job, input);
    int slot = sp_i_host_layer_slot(index, p.weight);
    SP_KERNEL(linear_backward_weight)
    (rows, p.in, p.out, pair[1], p.out, pair[0], p.in, stage->gradient[slot], p.in,
     stage->gradient[slot + 1]);
}

// What the weight gradients read is counted among the activations until they run.
static void defer(const layer *l, sp_i_host_deferred input, void *const *pairs, void **deferred)
{
    const sp_i_host_job *job = l->stage->job;
    product p = product_of(job, input);
    const int64_t columns[2] = {p.in, p.out};
    for (int i = 0; i < 2; i++) {
        void *block = pairs[(int)input + i];
        sp_i_host_recount(l->stage->arena, block, SP_MEM_ACTIVATIONS, l->rows * columns[i],
                          job->specs.value);
        deferred[(int)input + i] = block;
    }
}

// Runs a product now, or leaves it for later; takes over its matrices.
static void finish_product(const layer *l, int32_t backward_pack, sp_i_host_deferred input,
                           void **pairs, bool split)
{
    if (split) {
        defer(l, input, pairs, sp_i_host_deferred_of(l->stage, backward_pack, l->index));
        return;
    }
    weight_gradient(l->stage, l->index, l->rows, input, pairs + input);
    sp_i_host_give(l->stage->arena, pairs[input]);
    sp_i_host_give(l->stage->arena, pairs[(int)input + 1]);
}

static void give(layer *l, sp_i_host_tensor tensor)
{
    sp_i_host_give(l->stage->arena, l->t[tensor]);
    l->t[tensor] = NULL;
}

static void *move(layer *l, sp_i_host_tensor tensor)
{
    void *block = l->t[tensor];
    l->t[tensor] = NULL;
    return block;
}

// The gradient of a block's output, behind its dropout: `around` itself where there is none.
static real *enter_block(layer *l, sp_i_host_tensor mask, real *around)
{
    if (l->t[mask] == NULL) {
        return around;
    }
    real *dy = SP_HOST(drop_out_backward)(l, mask, around);
    give(l, mask);
    return dy;
}

// Gives back what went around a block, unless a product has taken it over.
static void leave_block(const layer *l, real *around, const real *dy)
{
    if (around != dy) {
        sp_i_host_give(l->stage->arena, around);
    }
}

static bool mlp_backward(layer *l, int32_t backward_pack, real *around, bool split,
                         real **dresidual)
{
    const sp_i_shard *shard = &l->stage->job->shard;
    int64_t h = model_of(l)->hidden;
    void *pairs[SP_I_HOST_DEFERRED];
    real *dy = enter_block(l, SP_I_HOST_MLP_MASK, around);
    if (dy == NULL) {
        return false;
    }
    pairs[SP_I_HOST_FC2_OUT] = dy;
    pairs[SP_I_HOST_FC2_IN] = move(l, SP_I_HOST_FC2_INPUT);
    real *dproduct = input_gradient(l, SP_I_HOST_FC2_WEIGHT, shard->ffn, h, dy);
    real *dfc1 = dproduct != NULL ? activation_backward(l, dproduct) : NULL;
    if (dfc1 == NULL) {
        return false;
    }
    give(l, SP_I_HOST_FC1);
    pairs[SP_I_HOST_FC1_OUT] = dfc1;
    pairs[SP_I_HOST_FC1_IN] = move(l, SP_I_HOST_NORM2);
    real *dnorm = input_gradient(l, SP_I_HOST_FC1_WEIGHT, h, shard->fc1, dfc1);
    *dresidual = dnorm == NULL ? NULL
                               : norm_backward(l, SP_I_HOST_NORM2_WEIGHT, SP_I_HOST_RESIDUAL,
                                               SP_I_HOST_NORM2, dnorm, around);
    if (*dresidual == NULL) {
        return false;
    }
    leave_block(l, around, dy);
    finish_product(l, backward_pack, SP_I_HOST_FC2_IN, pairs, split);
    finish_product(l, backward_pack, SP_I_HOST_FC1_IN, pairs, split);
    give(l, SP_I_HOST_RESIDUAL);
    return true;
}

static bool attention_block_backward(layer *l, int32_t backward_pack, real *around, bool split,
                                     real **dx)
{
    const sp_i_shard *shard = &l->stage->job->shard;
    int64_t h = model_of(l)->hidden;
    int64_t width = shard->q + 2 * shard->kv;
    void *pairs[SP_I_HOST_DEFERRED];
    real *dy = enter_block(l, SP_I_HOST_ATTENTION_MASK, around);
    if (dy == NULL) {
        return false;
    }
    pairs[SP_I_HOST_PROJECTION_OUT] = dy;
    real *dout = input_gradient(l, SP_I_HOST_PROJECTION_WEIGHT, shard->q, h, dy);
    real *dqkv = dout != NULL ? SP_HOST(take)(l, width) : NULL;
    if (dqkv == NULL || !SP_HOST(attend_backward)(l, dout, dqkv)) {
        return false;
    }
    sp_i_host_give(l->stage->arena, dout);
    give(l, SP_I_HOST_QUERIES);
    give(l, SP_I_HOST_LSE);
    pairs[SP_I_HOST_PROJECTION_IN] = move(l, SP_I_HOST_ATTENTION);
    pairs[SP_I_HOST_QKV_OUT] = dqkv;
    pairs[SP_I_HOST_QKV_IN] = move(l, SP_I_HOST_NORM1);
    real *dnorm = input_gradient(l, SP_I_HOST_QKV_WEIGHT, h, width, dqkv);
    *dx = dnorm == NULL ? NULL
                        : norm_backward(l, SP_I_HOST_NORM1_WEIGHT, SP_I_HOST_INPUT, SP_I_HOST_NORM1,
                                        dnorm, around);
    if (*dx == NULL) {
        return false;
    }
    leave_block(l, around, dy);
    finish_product(l, backward_pack, SP_I_HOST_PROJECTION_IN, pairs, split);
    finish_product(l, backward_pack, SP_I_HOST_QKV_IN, pairs, split);
    return true;
}

bool SP_HOST(layer_backward)(layer *l, int32_t backward_pack, real *dy, bool split, real **dx)
{
    for (int t = 0; t < SP_I_HOST_LAYER_TENSORS; t++) {
        if (l->stage->job->specs.of[t].kept &&
            !sp_i_host_fetch(l->stage, l->pack, l->index, (sp_i_host_tensor)t, &l->t[t])) {
            return false;
        }
    }
    real *dresidual = NULL;
    if (!SP_HOST(layer_rebuild)(l) || !mlp_backward(l, backward_pack, dy, split, &dresidual) ||
        !attention_block_backward(l, backward_pack, dresidual, split, dx)) {
        return false;
    }
    SP_HOST(clear)(l);
    return true;
}

void SP_HOST(layer_weights)(sp_i_host_stage *stage, int32_t backward_pack, int index)
{
    void **deferred = sp_i_host_deferred_of(stage, backward_pack, index);
    int64_t rows = stage->job->slices.backward[backward_pack].rows;
    for (int p = 0; p < SP_I_HOST_DEFERRED; p += 2) {
        weight_gradient(stage, index, rows, (sp_i_host_deferred)p, deferred + p);
        for (int i = p; i < p + 2; i++) {
            sp_i_host_give(stage->arena, deferred[i]);
            deferred[i] = NULL;
        }
    }
}
