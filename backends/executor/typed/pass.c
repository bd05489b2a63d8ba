// Whole passes of a stage over a pack.
#include "backends/executor/typed/layer.h"
#include "backends/ranks/comm.h"

static layer layer_of(sp_i_exec_stage *stage, const sp_i_exec_pack *pack, int index)
{
    const sp_i_exec_kind *kind = sp_i_exec_kind_of(stage, index);
    return (layer){.stage = stage,
                   .pack = pack,
                   .kind = kind,
                   .index = index,
                   .rows = pack->rows,
                   .own = pack->own_rows,
                   .routed = {.count = pack->rows * kind->shard.active}};
}

// Hidden states of the pack.
static void copy_hidden(const layer *l, const void *from, void *to)
{
    const sp_i_exec_job *job = l->stage->job;
    int64_t elements = l->own * job->model->hidden;
    job->runtime->ops->copy(job->runtime, to, from, elements * (int64_t)sizeof(real));
}

// What a rank computes in a head that pipeline ranks share is no part of its action's time. Begins
// and ends that.
static void count_head(const sp_i_exec_stage *stage, int sign)
{
    sp_i_exec_links *links = stage->links;
    if (links->vocab_group >= 0) {
        links->end_ns += sign * sp_comm_clock_own(links->me);
    }
}

// What the first layer reads, as its own saved tensor.
static bool enter(layer *l, const real *input)
{
    sp_layer_tensor_id tensor =
        l->stage->model_part.layers > 0 ? SP_TENSOR_INPUT : SP_TENSOR_FINAL_INPUT;
    if (!SP_EXEC(make)(l, tensor)) {
        return false;
    }
    if (l->stage->first) {
        sp_i_exec_unit unit = sp_i_exec_embedding_unit(l->stage, SP_I_EXEC_FORWARD);
        return sp_i_exec_open(l->stage, unit) && SP_EXEC(embed)(l, l->t[tensor]) &&
               sp_i_exec_close(l->stage, unit);
    }
    copy_hidden(l, input, l->t[tensor]);
    return true;
}

// Runs the layers and the head. `output` may be NULL for the head alone.
static bool run_forward(sp_i_exec_stage *stage, int32_t pack, const real *input, real *output,
                        bool keep, bool counts)
{
    int layers = stage->model_part.layers;
    layer now = layer_of(stage, &stage->job->slices.forward[pack], 0);
    now.keep = keep;
    bool ok = enter(&now, input);
    for (int i = 0; ok && i < layers; i++) {
        bool last = i + 1 == layers;
        layer next = layer_of(stage, now.pack, i + 1);
        next.keep = keep;
        sp_layer_tensor_id into = last ? SP_TENSOR_FINAL_INPUT : SP_TENSOR_INPUT;
        bool leaves = last && !stage->last;
        sp_i_exec_unit unit = sp_i_exec_layer_unit(i, SP_I_EXEC_FORWARD);
        ok = (leaves || SP_EXEC(make)(&next, into)) && sp_i_exec_open(stage, unit) &&
             SP_EXEC(layer_forward)(&now, leaves ? output : next.t[into]) &&
             sp_i_exec_close(stage, unit);
        if (ok) {
            SP_EXEC(keep_saved)(&now, pack);
            now = next;
        }
    }
    if (ok && stage->last) {
        sp_i_exec_unit unit = sp_i_exec_head_unit(stage, SP_I_EXEC_FORWARD);
        count_head(stage, -1);
        ok = sp_i_exec_open(stage, unit) && SP_EXEC(head_forward)(&now, pack, counts) &&
             sp_i_exec_close(stage, unit);
        count_head(stage, 1);
        SP_EXEC(keep_saved)(&now, pack);
    } else if (ok && layers == 0) {
        copy_hidden(&now, now.t[SP_TENSOR_FINAL_INPUT], output);
        sp_i_exec_give(stage->arena, now.t[SP_TENSOR_FINAL_INPUT]);
        now.t[SP_TENSOR_FINAL_INPUT] = NULL;
        SP_EXEC(keep_saved)(&now, pack);
    }
    return ok;
}

static bool keep_input(sp_i_exec_stage *stage, int32_t pack, const real *input)
{
    layer l = layer_of(stage, &stage->job->slices.forward[pack], 0);
    stage->input[pack] = sp_i_exec_take(stage->arena, SP_MEM_RECOMPUTE,
                                        l.own * stage->job->model->hidden, stage->job->width.value);
    if (stage->input[pack] != NULL) {
        copy_hidden(&l, input, stage->input[pack]);
    }
    return stage->input[pack] != NULL;
}

static bool forward(sp_i_exec_stage *stage, int32_t pack, const void *input, void *output,
                    bool keep)
{
    if (!keep && !stage->first && !keep_input(stage, pack, input)) {
        return false;
    }
    return run_forward(stage, pack, input, output, keep, true);
}

static bool again(sp_i_exec_stage *stage, int32_t pack)
{
    real *output = NULL;
    layer l = layer_of(stage, &stage->job->slices.forward[pack], 0);
    if (!stage->last) {
        output = SP_EXEC(take_own)(&l);
        if (output == NULL) {
            return false;
        }
    }
    bool ok = run_forward(stage, pack, stage->input[pack], output, true, false);
    sp_i_exec_give(stage->arena, output);
    sp_i_exec_give(stage->arena, stage->input[pack]);
    stage->input[pack] = NULL;
    return ok;
}

static bool backward(sp_i_exec_stage *stage, int32_t pack, const void *gradient,
                     void *input_gradient, bool split)
{
    const sp_i_exec_pack *rows = &stage->job->slices.backward[pack];
    const sp_i_exec_unit_use use = split ? SP_I_EXEC_INPUTS : SP_I_EXEC_BACKWARD;
    layer l = layer_of(stage, rows, stage->model_part.layers);
    real *dy = NULL;
    bool ok;
    if (stage->last) {
        sp_i_exec_unit unit = sp_i_exec_head_unit(stage, use);
        count_head(stage, -1);
        ok = sp_i_exec_open(stage, unit) && SP_EXEC(head_backward)(&l, pack, split, &dy) &&
             sp_i_exec_close(stage, unit);
        count_head(stage, 1);
    } else {
        dy = SP_EXEC(take_own)(&l);
        ok = dy != NULL;
        if (ok) {
            copy_hidden(&l, gradient, dy);
        }
    }
    for (int i = stage->model_part.layers - 1; ok && i >= 0; i--) {
        layer now = layer_of(stage, rows, i);
        real *dx = NULL;
        sp_i_exec_unit unit = sp_i_exec_layer_unit(i, use);
        ok = sp_i_exec_open(stage, unit) && SP_EXEC(layer_backward)(&now, pack, dy, split, &dx) &&
             sp_i_exec_close(stage, unit);
        dy = dx;
    }
    if (ok && stage->first) {
        layer first = layer_of(stage, rows, 0);
        sp_i_exec_unit unit = sp_i_exec_embedding_unit(stage, use);
        ok = sp_i_exec_open(stage, unit) && SP_EXEC(embed_backward)(&first, dy) &&
             sp_i_exec_close(stage, unit);
    } else if (ok) {
        copy_hidden(&l, dy, input_gradient);
    }
    if (ok) {
        sp_i_exec_give(stage->arena, dy);
    }
    return ok;
}

static bool weights(sp_i_exec_stage *stage, int32_t pack)
{
    layer l = layer_of(stage, &stage->job->slices.backward[pack], stage->model_part.layers);
    bool ok = true;
    if (stage->model_part.head) {
        sp_i_exec_unit unit = sp_i_exec_head_unit(stage, SP_I_EXEC_WEIGHTS);
        ok = sp_i_exec_open(stage, unit) && SP_EXEC(head_weights)(&l, pack) &&
             sp_i_exec_close(stage, unit);
    }
    for (int i = stage->model_part.layers - 1; ok && i >= 0; i--) {
        sp_i_exec_unit unit = sp_i_exec_layer_unit(i, SP_I_EXEC_WEIGHTS);
        l = layer_of(stage, l.pack, i);
        ok = sp_i_exec_open(stage, unit) && SP_EXEC(layer_weights)(&l, pack) &&
             sp_i_exec_close(stage, unit);
    }
    return ok;
}

static bool run_share(layer *l, sp_i_exec_vocab_work what, int32_t pack, bool flag)
{
    real *dx = NULL;
    bool ok = false;
    switch (what) {
    case SP_I_EXEC_EMBED:
        return SP_EXEC(embed_share)(l);
    case SP_I_EXEC_EMBED_BACKWARD:
        return SP_EXEC(embed_share_backward)(l);
    case SP_I_EXEC_HEAD:
        ok = SP_EXEC(make)(l, SP_TENSOR_FINAL_INPUT) && SP_EXEC(head_forward)(l, pack, false);
        SP_EXEC(keep_saved)(l, pack);
        return ok;
    case SP_I_EXEC_HEAD_BACKWARD:
        ok = SP_EXEC(head_backward)(l, pack, flag, &dx);
        sp_i_exec_give(l->stage->arena, dx);
        return ok;
    }
    SP_UNREACHABLE("a share of a vocabulary");
}

static sp_i_exec_unit unit_of(const sp_i_exec_stage *stage, sp_i_exec_vocab_work what, bool flag)
{
    switch (what) {
    case SP_I_EXEC_EMBED:
        return sp_i_exec_embedding_unit(stage, SP_I_EXEC_FORWARD);
    case SP_I_EXEC_EMBED_BACKWARD:
        return sp_i_exec_embedding_unit(stage, flag ? SP_I_EXEC_INPUTS : SP_I_EXEC_BACKWARD);
    case SP_I_EXEC_HEAD:
        return sp_i_exec_head_unit(stage, SP_I_EXEC_FORWARD);
    case SP_I_EXEC_HEAD_BACKWARD:
        return sp_i_exec_head_unit(stage, flag ? SP_I_EXEC_INPUTS : SP_I_EXEC_BACKWARD);
    }
    SP_UNREACHABLE("a share of a vocabulary");
}

// A rank that takes part in another one's embedding or LM head has neither hidden states nor a loss
// of its own.
static bool share(sp_i_exec_stage *stage, sp_i_exec_vocab_work what, int32_t pack, bool flag)
{
    bool forward = what == SP_I_EXEC_EMBED || what == SP_I_EXEC_HEAD;
    layer l = layer_of(stage, sp_i_exec_pack_at(&stage->job->slices, !forward, pack),
                       stage->model_part.layers);
    sp_i_exec_unit unit = unit_of(stage, what, flag);
    l.keep = flag;
    return sp_i_exec_open(stage, unit) && run_share(&l, what, pack, flag) &&
           sp_i_exec_close(stage, unit);
}

static void rope_table(int64_t positions, int64_t head_dim, void *cosine, void *sine)
{
    SP_OP(rope_table)(positions, head_dim, SP_I_EXEC_ROPE_BASE, cosine, sine);
}

static void add_exact(int64_t n, const void *x, void *y)
{
    SP_OP(add_exact)(n, x, y);
}

static void update(const sp_i_exec_update *u, int64_t n, const void *gradient, void *master,
                   void *first, void *second, void *value)
{
    const sp_kernel_adamw_step step = {.step = u->step,
                                       .learning_rate = u->learning_rate,
                                       .beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .epsilon = 1e-8,
                                       .weight_decay = u->weight_decay,
                                       .gradient_scale = u->gradient_scale};
    SP_OP(adamw)(&step, n, gradient, master, first, second, value);
}

const sp_i_exec_math SP_EXEC(math) = {.real_bytes = (int64_t)sizeof(real),
                                      .exact_bytes = (int64_t)sizeof(exact),
                                      .forward = forward,
                                      .again = again,
                                      .backward = backward,
                                      .weights = weights,
                                      .share = share,
                                      .rope_table = rope_table,
                                      .add_exact = add_exact,
                                      .update = update};
