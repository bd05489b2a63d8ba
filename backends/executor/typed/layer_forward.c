#include "backends/executor/typed/layer.h"

static const sp_model *model_of(const layer *l)
{
    return l->stage->job->model;
}

// y = x W^T + b, both of full width.
static void linear(const layer *l, sp_i_exec_layer_weight weight, int64_t in, int64_t out,
                   const real *x, const real *bias, real *y)
{
    SP_OP(linear)(l->rows, in, out, x, SP_EXEC(value)(l, weight), bias, y);
}

static const real *bias_of(const layer *l, sp_i_exec_layer_weight weight)
{
    return SP_EXEC(value)(l, (sp_i_exec_layer_weight)(weight + 1));
}

// Column-parallel: from hidden states to this rank's outputs.
static bool enter_block(const layer *l, sp_i_exec_layer_weight weight, int64_t out, real *x,
                        real *y)
{
    real *all = SP_EXEC(gather)(l, x);
    if (all == NULL) {
        return false;
    }
    linear(l, weight, model_of(l)->hidden, out, all, bias_of(l, weight), y);
    SP_EXEC(release)(l, x, all);
    return true;
}

// A norm with its statistics, from one tensor of the layer to another.
static bool norm(layer *l, sp_i_exec_layer_weight weight, sp_i_exec_tensor from,
                 sp_i_exec_tensor to)
{
    sp_i_exec_tensor mean = (sp_i_exec_tensor)(to + 1);
    sp_i_exec_tensor rstd = (sp_i_exec_tensor)(to + 2);
    if (!SP_EXEC(make)(l, to) || !SP_EXEC(make)(l, mean) || !SP_EXEC(make)(l, rstd)) {
        return false;
    }
    SP_EXEC(norm)
    (l, l->stage->value + sp_i_exec_layer_slot(l->index, weight), l->t[from], l->t[to], l->t[mean],
     l->t[rstd]);
    return true;
}

static bool project_qkv(layer *l)
{
    const sp_shard *shard = &l->stage->job->shard;
    int64_t width = shard->q + 2 * shard->kv;
    real *qkv = SP_EXEC(take)(l, width);
    if (qkv == NULL) {
        return false;
    }
    bool ok = enter_block(l, SP_I_EXEC_QKV_WEIGHT, width, l->t[SP_I_EXEC_NORM1], qkv) &&
              SP_EXEC(split_qkv)(l, qkv);
    sp_i_exec_give(l->stage->arena, qkv);
    return ok;
}

// Row-parallel: y = dropout(sum over ranks of x W^T, + b) + around, the output of a block.
static bool leave_block(layer *l, sp_i_exec_layer_weight weight, int64_t in, const real *x,
                        sp_i_exec_tensor mask, const real *around, real *y)
{
    int64_t h = model_of(l)->hidden;
    real *part = SP_EXEC(partial)(l, y);
    if (part == NULL) {
        return false;
    }
    linear(l, weight, in, h, x, SP_EXEC(adds)(l) ? bias_of(l, weight) : NULL, part);
    if (!SP_EXEC(sum)(l, part, y) || !SP_EXEC(drop_out)(l, mask, y)) {
        return false;
    }
    SP_EXEC(drop)(l, mask);
    SP_OP(add)(l->own * h, around, y);
    return true;
}

static bool attention_block(layer *l)
{
    if (!SP_EXEC(make)(l, SP_I_EXEC_RESIDUAL)) {
        return false;
    }
    return leave_block(l, SP_I_EXEC_PROJECTION_WEIGHT, l->stage->job->shard.q,
                       l->t[SP_I_EXEC_ATTENTION], SP_I_EXEC_ATTENTION_MASK, l->t[SP_I_EXEC_INPUT],
                       l->t[SP_I_EXEC_RESIDUAL]);
}

static bool fc1(layer *l)
{
    if (!SP_EXEC(make)(l, SP_I_EXEC_FC1)) {
        return false;
    }
    return enter_block(l, SP_I_EXEC_FC1_WEIGHT, l->stage->job->shard.fc1, l->t[SP_I_EXEC_NORM2],
                       l->t[SP_I_EXEC_FC1]);
}

static bool activate(layer *l)
{
    if (!SP_EXEC(make)(l, SP_I_EXEC_FC2_INPUT)) {
        return false;
    }
    int64_t ffn = l->stage->job->shard.ffn;
    const real *x = l->t[SP_I_EXEC_FC1];
    real *y = l->t[SP_I_EXEC_FC2_INPUT];
    if (model_of(l)->activation == SP_SWIGLU) {
        SP_OP(swiglu)(l->rows, ffn, x, y);
    } else {
        SP_OP(gelu)(l->rows * ffn, x, y);
    }
    return true;
}

bool SP_EXEC(layer_forward)(layer *l, real *y)
{
    if (!norm(l, SP_I_EXEC_NORM1_WEIGHT, SP_I_EXEC_INPUT, SP_I_EXEC_NORM1) || !project_qkv(l)) {
        return false;
    }
    SP_EXEC(drop)(l, SP_I_EXEC_NORM1);
    if (!SP_EXEC(attend)(l)) {
        return false;
    }
    SP_EXEC(drop)(l, SP_I_EXEC_LSE);
    SP_EXEC(drop)(l, SP_I_EXEC_QUERIES);
    if (!attention_block(l)) {
        return false;
    }
    SP_EXEC(drop)(l, SP_I_EXEC_ATTENTION);
    if (!norm(l, SP_I_EXEC_NORM2_WEIGHT, SP_I_EXEC_RESIDUAL, SP_I_EXEC_NORM2) || !fc1(l)) {
        return false;
    }
    SP_EXEC(drop)(l, SP_I_EXEC_NORM2);
    if (!activate(l)) {
        return false;
    }
    SP_EXEC(drop)(l, SP_I_EXEC_FC1);
    if (!leave_block(l, SP_I_EXEC_FC2_WEIGHT, l->stage->job->shard.ffn, l->t[SP_I_EXEC_FC2_INPUT],
                     SP_I_EXEC_MLP_MASK, l->t[SP_I_EXEC_RESIDUAL], y)) {
        return false;
    }
    SP_EXEC(release_kv)(l);
    return true;
}

bool SP_EXEC(layer_rebuild)(layer *l)
{
    l->rebuilds = true;
    bool ok = true;
    if (l->t[SP_I_EXEC_NORM1] == NULL) {
        ok = norm(l, SP_I_EXEC_NORM1_WEIGHT, SP_I_EXEC_INPUT, SP_I_EXEC_NORM1);
    }
    if (ok && l->t[SP_I_EXEC_QUERIES] == NULL) {
        ok = project_qkv(l);
    }
    if (ok && l->t[SP_I_EXEC_LSE] == NULL) {
        ok = SP_EXEC(attend)(l);
    }
    if (ok && l->t[SP_I_EXEC_RESIDUAL] == NULL) {
        ok = attention_block(l);
    }
    if (ok && l->t[SP_I_EXEC_NORM2] == NULL) {
        ok = norm(l, SP_I_EXEC_NORM2_WEIGHT, SP_I_EXEC_RESIDUAL, SP_I_EXEC_NORM2);
    }
    if (ok && l->t[SP_I_EXEC_FC1] == NULL) {
        ok = fc1(l);
    }
    if (ok && l->t[SP_I_EXEC_FC2_INPUT] == NULL) {
        ok = activate(l);
    }
    return ok && SP_EXEC(mask)(l, SP_I_EXEC_MLP_MASK);
}
