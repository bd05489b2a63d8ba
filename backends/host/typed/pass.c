// Whole passes of a stage over a pack.
#include <string.h>

#include "backends/host/typed/layer.h"
#include "backends/host/unit.h"

static layer layer_of(sp_i_host_stage *stage, const sp_i_host_pack *pack, int index)
{
    return (layer){
        .stage = stage, .pack = pack, .index = index, .rows = pack->rows, .own = pack->own_rows};
}

static size_t hidden_bytes(const layer *l)
{
    return (size_t)(l->own * l->stage->job->model->hidden) * sizeof(real);
}

// What the first layer reads, as its own saved tensor.
static bool enter(layer *l, const real *input)
{
    sp_i_host_tensor tensor = l->stage->part.layers > 0 ? SP_I_HOST_INPUT : SP_I_HOST_FINAL_INPUT;
    if (!SP_HOST(make)(l, tensor)) {
        return false;
    }
    if (l->stage->first) {
        sp_i_host_unit unit = sp_i_host_embedding_unit(l->stage, SP_I_HOST_FORWARD);
        return sp_i_host_open(l->stage, unit) && SP_HOST(embed)(l, l->t[tensor]) &&
               sp_i_host_close(l->stage, unit);
    }
    memcpy(l->t[tensor], input, hidden_bytes(l));
    return true;
}

// Runs the layers and the head. `output` may be NULL for the head alone.
static bool run_forward(sp_i_host_stage *stage, int32_t pack, const real *input, real *output,
                        bool keep, bool counts)
{
    int layers = stage->part.layers;
    layer now = layer_of(stage, &stage->job->slices.forward[pack], 0);
    now.keep = keep;
    bool ok = enter(&now, input);
    for (int i = 0; ok && i < layers; i++) {
        bool last = i + 1 == layers;
        layer next = layer_of(stage, now.pack, i + 1);
        next.keep = keep;
        sp_i_host_tensor into = last ? SP_I_HOST_FINAL_INPUT : SP_I_HOST_INPUT;
        bool leaves = last && !stage->last;
        sp_i_host_unit unit = sp_i_host_layer_unit(i, SP_I_HOST_FORWARD);
        ok = (leaves || SP_HOST(make)(&next, into)) && sp_i_host_open(stage, unit) &&
             SP_HOST(layer_forward)(&now, leaves ? output : next.t[into]) &&
             sp_i_host_close(stage, unit);
        if (ok) {
            SP_HOST(settle)(&now, pack);
            now = next;
        }
    }
    if (ok && stage->last) {
        sp_i_host_unit unit = sp_i_host_head_unit(stage, SP_I_HOST_FORWARD);
        ok = sp_i_host_open(stage, unit) && SP_HOST(head_forward)(&now, pack, counts) &&
             sp_i_host_close(stage, unit);
        SP_HOST(settle)(&now, pack);
    } else if (ok && layers == 0) {
        memcpy(output, now.t[SP_I_HOST_FINAL_INPUT], hidden_bytes(&now));
        sp_i_host_give(stage->arena, now.t[SP_I_HOST_FINAL_INPUT]);
        now.t[SP_I_HOST_FINAL_INPUT] = NULL;
        SP_HOST(settle)(&now, pack);
    }
    return ok;
}

static bool keep_input(sp_i_host_stage *stage, int32_t pack, const real *input)
{
    layer l = layer_of(stage, &stage->job->slices.forward[pack], 0);
    stage->input[pack] = sp_i_host_take(stage->arena, SP_MEM_RECOMPUTE,
                                        l.own * stage->job->model->hidden, stage->job->specs.value);
    if (stage->input[pack] != NULL) {
        memcpy(stage->input[pack], input, hidden_bytes(&l));
    }
    return stage->input[pack] != NULL;
}

static bool forward(sp_i_host_stage *stage, int32_t pack, const void *input, void *output,
                    bool keep)
{
    if (!keep && !stage->first && !keep_input(stage, pack, input)) {
        return false;
    }
    return run_forward(stage, pack, input, output, keep, true);
}

static bool again(sp_i_host_stage *stage, int32_t pack)
{
    real *output = NULL;
    layer l = layer_of(stage, &stage->job->slices.forward[pack], 0);
    if (!stage->last) {
        output = SP_HOST(take_own)(&l);
        if (output == NULL) {
            return false;
        }
    }
    bool ok = run_forward(stage, pack, stage->input[pack], output, true, false);
    sp_i_host_give(stage->arena, output);
    sp_i_host_give(stage->arena, stage->input[pack]);
    stage->input[pack] = NULL;
    return ok;
}

static bool backward(sp_i_host_stage *stage, int32_t pack, const void *gradient,
                     void *input_gradient, bool split)
{
    const sp_i_host_pack *rows = &stage->job->slices.backward[pack];
    const sp_i_host_unit_use use = split ? SP_I_HOST_INPUTS : SP_I_HOST_BACKWARD;
    layer l = layer_of(stage, rows, stage->part.layers);
    real *dy = NULL;
    bool ok;
    if (stage->last) {
        sp_i_host_unit unit = sp_i_host_head_unit(stage, use);
        ok = sp_i_host_open(stage, unit) && SP_HOST(head_backward)(&l, pack, split, &dy) &&
             sp_i_host_close(stage, unit);
    } else {
        dy = SP_HOST(take_own)(&l);
        ok = dy != NULL;
        if (ok) {
            memcpy(dy, gradient, hidden_bytes(&l));
        }
    }
    for (int i = stage->part.layers - 1; ok && i >= 0; i--) {
        layer now = layer_of(stage, rows, i);
        real *dx = NULL;
        sp_i_host_unit unit = sp_i_host_layer_unit(i, use);
        ok = sp_i_host_open(stage, unit) && SP_HOST(layer_backward)(&now, pack, dy, split, &dx) &&
             sp_i_host_close(stage, unit);
        dy = dx;
    }
    if (ok && stage->first) {
        layer first = layer_of(stage, rows, 0);
        sp_i_host_unit unit = sp_i_host_embedding_unit(stage, use);
        ok = sp_i_host_open(stage, unit) && SP_HOST(embed_backward)(&first, dy) &&
             sp_i_host_close(stage, unit);
    } else if (ok) {
        memcpy(input_gradient, dy, hidden_bytes(&l));
    }
    if (ok) {
        sp_i_host_give(stage->arena, dy);
    }
    return ok;
}

static bool weights(sp_i_host_stage *stage, int32_t pack)
{
    layer l = layer_of(stage, &stage->job->slices.backward[pack], stage->part.layers);
    bool ok = true;
    if (stage->last) {
        sp_i_host_unit unit = sp_i_host_head_unit(stage, SP_I_HOST_WEIGHTS);
        ok = sp_i_host_open(stage, unit) && SP_HOST(head_weights)(&l, pack) &&
             sp_i_host_close(stage, unit);
    }
    for (int i = stage->part.layers - 1; ok && i >= 0; i--) {
        sp_i_host_unit unit = sp_i_host_layer_unit(i, SP_I_HOST_WEIGHTS);
        l.index = i;
        ok = sp_i_host_open(stage, unit) && SP_HOST(layer_weights)(&l, pack) &&
             sp_i_host_close(stage, unit);
    }
    return ok;
}

static bool run_share(layer *l, sp_i_host_end_work what, int32_t pack, bool flag)
{
    real *dx = NULL;
    bool ok = false;
    switch (what) {
    case SP_I_HOST_END_EMBED:
        return SP_HOST(embed_share)(l);
    case SP_I_HOST_END_EMBED_BACKWARD:
        return SP_HOST(embed_share_backward)(l);
    case SP_I_HOST_END_HEAD:
        ok = SP_HOST(make)(l, SP_I_HOST_FINAL_INPUT) && SP_HOST(head_forward)(l, pack, false);
        SP_HOST(settle)(l, pack);
        return ok;
    case SP_I_HOST_END_HEAD_BACKWARD:
        ok = SP_HOST(head_backward)(l, pack, flag, &dx);
        sp_i_host_give(l->stage->arena, dx);
        return ok;
    case SP_I_HOST_END_HEAD_WEIGHTS:
        return SP_HOST(head_weights)(l, pack);
    }
    SP_UNREACHABLE("a share of the ends");
}

static sp_i_host_unit unit_of(const sp_i_host_stage *stage, sp_i_host_end_work what, bool flag)
{
    switch (what) {
    case SP_I_HOST_END_EMBED:
        return sp_i_host_embedding_unit(stage, SP_I_HOST_FORWARD);
    case SP_I_HOST_END_EMBED_BACKWARD:
        return sp_i_host_embedding_unit(stage, flag ? SP_I_HOST_INPUTS : SP_I_HOST_BACKWARD);
    case SP_I_HOST_END_HEAD:
        return sp_i_host_head_unit(stage, SP_I_HOST_FORWARD);
    case SP_I_HOST_END_HEAD_BACKWARD:
        return sp_i_host_head_unit(stage, flag ? SP_I_HOST_INPUTS : SP_I_HOST_BACKWARD);
    case SP_I_HOST_END_HEAD_WEIGHTS:
        return sp_i_host_head_unit(stage, SP_I_HOST_WEIGHTS);
    }
    SP_UNREACHABLE("a share of the ends");
}

// A rank that takes part in another one's ends has neither hidden states nor a loss of its own.
static bool share(sp_i_host_stage *stage, sp_i_host_end_work what, int32_t pack, bool flag)
{
    const sp_i_host_slices *slices = &stage->job->slices;
    bool forward = what == SP_I_HOST_END_EMBED || what == SP_I_HOST_END_HEAD;
    layer l =
        layer_of(stage, (forward ? slices->forward : slices->backward) + pack, stage->part.layers);
    sp_i_host_unit unit = unit_of(stage, what, flag);
    l.keep = flag;
    return sp_i_host_open(stage, unit) && run_share(&l, what, pack, flag) &&
           sp_i_host_close(stage, unit);
}

static void rope_table(int64_t positions, const int64_t *position, int64_t head_dim, void *cosine,
                       void *sine)
{
    SP_KERNEL(rope_table)(positions, position, head_dim, SP_I_HOST_ROPE_BASE, cosine, sine);
}

static void add(int64_t n, const void *x, void *y)
{
    SP_KERNEL(add)(n, x, y);
}

static void update(const sp_i_host_update *u, int64_t n, const void *gradient, void *value,
                   void *first, void *second)
{
    const sp_kernel_adamw_step step = {.step = u->step,
                                       .learning_rate = u->learning_rate,
                                       .beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .epsilon = 1e-8,
                                       .weight_decay = u->weight_decay,
                                       .gradient_scale = u->gradient_scale};
    SP_KERNEL(adamw)(&step, n, gradient, value, first, second);
}

const sp_i_host_math SP_HOST(math) = {.real_bytes = (int64_t)sizeof(real),
                                      .forward = forward,
                                      .again = again,
                                      .backward = backward,
                                      .weights = weights,
                                      .share = share,
                                      .rope_table = rope_table,
                                      .add = add,
                                      .update = update};
