#include "backends/executor/typed/layer.h"

static const sp_model *model_of(const layer *l)
{
    return l->stage->job->model;
}

// Row-parallel: from the gradient of all rows' outputs to that of this rank's inputs, as a new
// matrix.
static real *leave_backward(const layer *l, sp_i_exec_layer_weight weight, int64_t in,
                            const real *dy)
{
    int64_t h = model_of(l)->hidden;
    real *dx = SP_EXEC(take)(l, in);
    if (dx != NULL) {
        SP_OP(linear_backward_input)(l->rows, in, h, dy, SP_EXEC(value)(l, weight), dx);
    }
    return dx;
}

// Column-parallel: from the gradient of this rank's outputs to that of the hidden states, as a new
// matrix.
static real *enter_backward(const layer *l, sp_i_exec_layer_weight weight, int64_t out,
                            const real *dy)
{
    int64_t h = model_of(l)->hidden;
    real *dx = SP_EXEC(take_own)(l);
    real *part = dx != NULL ? SP_EXEC(partial)(l, dx) : NULL;
    if (part == NULL) {
        return NULL;
    }
    SP_OP(linear_backward_input)(l->rows, h, out, dy, SP_EXEC(value)(l, weight), part);
    return SP_EXEC(sum)(l, part, dx) ? dx : NULL;
}

// Through a norm and, with the gradient that goes around the block, to that of the block's input.
// Gives back dy.
static real *norm_backward(const layer *l, sp_i_exec_layer_weight weight, sp_i_exec_tensor from,
                           sp_i_exec_tensor norm, real *dy, const real *around)
{
    int64_t h = model_of(l)->hidden;
    int slot = sp_i_exec_layer_slot(l->index, weight);
    real *dx = SP_EXEC(take_own)(l);
    if (dx != NULL) {
        SP_EXEC(norm_backward)
        (l, l->stage->value + slot, l->stage->gradient + slot, l->t[from], l->t[norm + 1],
         l->t[norm + 2], dy, dx);
        SP_OP(add)(l->own * h, around, dx);
    }
    sp_i_exec_give(l->stage->arena, dy);
    return dx;
}

static real *activation_backward(const layer *l, real *dproduct)
{
    int64_t ffn = l->stage->job->shard.ffn;
    int64_t width = l->stage->job->shard.fc1;
    const real *x = l->t[SP_I_EXEC_FC1];
    real *dx = SP_EXEC(take)(l, width);
    if (dx != NULL && model_of(l)->activation == SP_SWIGLU) {
        SP_OP(swiglu_backward)(l->rows, ffn, x, dproduct, dx);
    } else if (dx != NULL) {
        SP_OP(gelu_backward)(l->rows * ffn, x, dproduct, dx);
    }
    sp_i_exec_give(l->stage->arena, dproduct);
    return dx;
}

// One product with weights: column-parallel ones read hidden states, row-parallel ones write them.
typedef struct product {
    sp_i_exec_layer_weight weight;
    int64_t in, out;
    bool column;
} product;

static product product_of(const sp_i_exec_job *job, sp_i_exec_deferred input)
{
    int64_t h = job->model->hidden;
    const sp_shard *shard = &job->shard;
    switch (input) {
    case SP_I_EXEC_QKV_IN:
        return (product){SP_I_EXEC_QKV_WEIGHT, h, shard->q + 2 * shard->kv, true};
    case SP_I_EXEC_PROJECTION_IN:
        return (product){SP_I_EXEC_PROJECTION_WEIGHT, shard->q, h, false};
    case SP_I_EXEC_FC1_IN:
        return (product){SP_I_EXEC_FC1_WEIGHT, h, shard->fc1, true};
    default:
        return (product){SP_I_EXEC_FC2_WEIGHT, shard->ffn, h, false};
    }
}

// From a product's input and the gradient of its output. `all`: its hidden states where they have
// been gathered, else NULL; given back.
static bool weight_gradient(const layer *l, sp_i_exec_deferred input, void *const *pair, real *all)
{
    product p = product_of(l->stage->job, input);
    int slot = sp_i_exec_layer_slot(l->index, p.weight);
    void *const *gradient = l->stage->gradient + slot;
    real *hidden = pair[p.column ? 0 : 1];
    all = all != NULL ? all : SP_EXEC(gather)(l, hidden);
    if (all == NULL) {
        return false;
    }
    SP_OP(linear_backward_weight)
    (l->rows, p.in, p.out, p.column ? pair[1] : all, p.column ? all : pair[0], gradient[0],
     gradient[1]);
    SP_EXEC(release)(l, hidden, all);
    return true;
}

// What the weight gradients read is counted among the activations until they run.
static bool defer(const layer *l, sp_i_exec_deferred input, void *const *pair, void **deferred)
{
    product p = product_of(l->stage->job, input);
    const int64_t elements[2] = {(p.column ? l->own : l->rows) * p.in,
                                 (p.column ? l->rows : l->own) * p.out};
    for (int i = 0; i < 2; i++) {
        deferred[(int)input + i] = sp_i_exec_recount(l->stage->arena, pair[i], SP_MEM_ACTIVATIONS,
                                                     elements[i], l->stage->job->specs.value);
        if (deferred[(int)input + i] == NULL) {
            return false;
        }
    }
    return true;
}

// Runs a product now, or leaves it for later; takes over its matrices and `all`.
static bool finish_product(const layer *l, int32_t backward_pack, sp_i_exec_deferred input,
                           void **pairs, real *all, bool split)
{
    void **pair = pairs + input;
    if (split) {
        if (all != NULL) {
            SP_EXEC(release)(l, pair[1], all);
        }
        return defer(l, input, pair, sp_i_exec_deferred_of(l->stage, backward_pack, l->index));
    }
    bool ok = weight_gradient(l, input, pair, all);
    sp_i_exec_give(l->stage->arena, pair[0]);
    sp_i_exec_give(l->stage->arena, pair[1]);
    return ok;
}

static void give(layer *l, sp_i_exec_tensor tensor)
{
    sp_i_exec_give(l->stage->arena, l->t[tensor]);
    l->t[tensor] = NULL;
}

static void *move(layer *l, sp_i_exec_tensor tensor)
{
    void *block = l->t[tensor];
    l->t[tensor] = NULL;
    return block;
}

// The gradient of a block's output, behind its dropout: `around` itself where there is none.
static real *enter_block(layer *l, sp_i_exec_tensor mask, real *around)
{
    if (l->t[mask] == NULL) {
        return around;
    }
    real *dy = SP_EXEC(drop_out_backward)(l, mask, around);
    give(l, mask);
    return dy;
}

// Gives back what went around a block, unless a product has taken it over.
static void leave_block(const layer *l, real *around, const real *dy)
{
    if (around != dy) {
        sp_i_exec_give(l->stage->arena, around);
    }
}

static bool mlp_backward(layer *l, int32_t backward_pack, real *around, bool split,
                         real **dresidual)
{
    const sp_shard *shard = &l->stage->job->shard;
    void *pairs[SP_I_EXEC_DEFERRED];
    real *dy = enter_block(l, SP_I_EXEC_MLP_MASK, around);
    real *all = dy != NULL ? SP_EXEC(gather)(l, dy) : NULL;
    if (all == NULL) {
        return false;
    }
    pairs[SP_I_EXEC_FC2_OUT] = dy;
    pairs[SP_I_EXEC_FC2_IN] = move(l, SP_I_EXEC_FC2_INPUT);
    real *dproduct = leave_backward(l, SP_I_EXEC_FC2_WEIGHT, shard->ffn, all);
    real *dfc1 = dproduct != NULL ? activation_backward(l, dproduct) : NULL;
    if (dfc1 == NULL) {
        return false;
    }
    give(l, SP_I_EXEC_FC1);
    pairs[SP_I_EXEC_FC1_OUT] = dfc1;
    pairs[SP_I_EXEC_FC1_IN] = move(l, SP_I_EXEC_NORM2);
    real *dnorm = enter_backward(l, SP_I_EXEC_FC1_WEIGHT, shard->fc1, dfc1);
    *dresidual = dnorm == NULL ? NULL
                               : norm_backward(l, SP_I_EXEC_NORM2_WEIGHT, SP_I_EXEC_RESIDUAL,
                                               SP_I_EXEC_NORM2, dnorm, around);
    if (*dresidual == NULL) {
        return false;
    }
    leave_block(l, around, dy);
    bool ok = finish_product(l, backward_pack, SP_I_EXEC_FC2_IN, pairs, all, split) &&
              finish_product(l, backward_pack, SP_I_EXEC_FC1_IN, pairs, NULL, split);
    give(l, SP_I_EXEC_RESIDUAL);
    return ok;
}

static bool attention_block_backward(layer *l, int32_t backward_pack, real *around, bool split,
                                     real **dx)
{
    const sp_shard *shard = &l->stage->job->shard;
    int64_t width = shard->q + 2 * shard->kv;
    void *pairs[SP_I_EXEC_DEFERRED];
    real *dy = enter_block(l, SP_I_EXEC_ATTENTION_MASK, around);
    real *all = dy != NULL ? SP_EXEC(gather)(l, dy) : NULL;
    if (all == NULL) {
        return false;
    }
    pairs[SP_I_EXEC_PROJECTION_OUT] = dy;
    real *dout = leave_backward(l, SP_I_EXEC_PROJECTION_WEIGHT, shard->q, all);
    real *dqkv = dout != NULL ? SP_EXEC(take)(l, width) : NULL;
    if (dqkv == NULL || !SP_EXEC(attend_backward)(l, dout, dqkv)) {
        return false;
    }
    sp_i_exec_give(l->stage->arena, dout);
    give(l, SP_I_EXEC_QUERIES);
    give(l, SP_I_EXEC_LSE);
    pairs[SP_I_EXEC_PROJECTION_IN] = move(l, SP_I_EXEC_ATTENTION);
    pairs[SP_I_EXEC_QKV_OUT] = dqkv;
    pairs[SP_I_EXEC_QKV_IN] = move(l, SP_I_EXEC_NORM1);
    real *dnorm = enter_backward(l, SP_I_EXEC_QKV_WEIGHT, width, dqkv);
    *dx = dnorm == NULL ? NULL
                        : norm_backward(l, SP_I_EXEC_NORM1_WEIGHT, SP_I_EXEC_INPUT, SP_I_EXEC_NORM1,
                                        dnorm, around);
    if (*dx == NULL) {
        return false;
    }
    leave_block(l, around, dy);
    return finish_product(l, backward_pack, SP_I_EXEC_PROJECTION_IN, pairs, all, split) &&
           finish_product(l, backward_pack, SP_I_EXEC_QKV_IN, pairs, NULL, split);
}

bool SP_EXEC(layer_backward)(layer *l, int32_t backward_pack, real *dy, bool split, real **dx)
{
    for (int t = 0; t < SP_I_EXEC_LAYER_TENSORS; t++) {
        if (l->stage->job->specs.of[t].kept &&
            !sp_i_exec_fetch(l->stage, l->pack, l->index, (sp_i_exec_tensor)t, &l->t[t])) {
            return false;
        }
    }
    real *dresidual = NULL;
    if (!SP_EXEC(layer_rebuild)(l) || !mlp_backward(l, backward_pack, dy, split, &dresidual) ||
        !attention_block_backward(l, backward_pack, dresidual, split, dx)) {
        return false;
    }
    SP_EXEC(clear)(l);
    return true;
}

bool SP_EXEC(layer_weights)(const layer *l, int32_t backward_pack)
{
    void **deferred = sp_i_exec_deferred_of(l->stage, backward_pack, l->index);
    for (int p = 0; p < SP_I_EXEC_DEFERRED; p += 2) {
        if (!weight_gradient(l, (sp_i_exec_deferred)p, deferred + p, NULL)) {
            return false;
        }
        for (int i = p; i < p + 2; i++) {
            sp_i_exec_give(l->stage->arena, deferred[i]);
            deferred[i] = NULL;
        }
    }
    return true;
}
