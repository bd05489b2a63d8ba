// Whole passes of a stage over a pack.
#include <string.h>

#include "backends/host/typed/layer.h"

static layer layer_of(sp_i_host_stage *stage, const sp_i_host_pack *pack, int index)
{
    return (layer){.stage = stage, .pack = pack, .index = index, .rows = pack->rows};
}

static size_t hidden_bytes(const layer *l)
{
    return (size_t)(l->rows * l->stage->job->model->hidden) * sizeof(real);
}

// What the first layer reads, as its own saved tensor.
static bool enter(layer *l, const real *input)
{
    sp_i_host_tensor tensor = l->stage->part.layers > 0 ? SP_I_HOST_INPUT : SP_I_HOST_FINAL_INPUT;
    if (!SP_HOST(make)(l, tensor)) {
        return false;
    }
    if (l->stage->part.embedding) {
        return SP_HOST(embed)(l, l->t[tensor]);
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
        bool leaves = last && !stage->part.head;
        ok = (leaves || SP_HOST(make)(&next, into)) &&
             SP_HOST(layer_forward)(&now, leaves ? output : next.t[into]);
        if (ok) {
            SP_HOST(settle)(&now, pack);
            now = next;
        }
    }
    if (ok && stage->part.head) {
        ok = SP_HOST(head_forward)(&now, pack, counts);
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
    stage->input[pack] =
        sp_i_host_take(stage->arena, SP_MEM_RECOMPUTE, l.rows * stage->job->model->hidden,
                       stage->job->specs.value);
    if (stage->input[pack] != NULL) {
        memcpy(stage->input[pack], input, hidden_bytes(&l));
    }
    return stage->input[pack] != NULL;
}

static bool forward(sp_i_host_stage *stage, int32_t pack, const void *input, void *output,
                    bool keep)
{
    if (!keep && !stage->part.embedding && !keep_input(stage, pack, input)) {
        return false;
    }
    return run_forward(stage, pack, input, output, keep, true);
}

static bool again(sp_i_host_stage *stage, int32_t pack)
{
    real *output = NULL;
    layer l = layer_of(stage, &stage->job->slices.forward[pack], 0);
    if (!stage->part.head) {
        output = SP_HOST(take)(&l, stage->job->model->hidden);
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
    layer l = layer_of(stage, rows, stage->part.layers);
    real *dy = NULL;
    bool ok;
    if (stage->part.head) {
        ok = SP_HOST(head_backward)(&l, pack, split, &dy);
    } else {
        dy = SP_HOST(take)(&l, stage->job->model->hidden);
        ok = dy != NULL;
        if (ok) {
            memcpy(dy, gradient, hidden_bytes(&l));
        }
    }
    for (int i = stage->part.layers - 1; ok && i >= 0; i--) {
        layer now = layer_of(stage, rows, i);
        real *dx = NULL;
        ok = SP_HOST(layer_backward)(&now, pack, dy, split, &dx);
        dy = dx;
    }
    if (ok && stage->part.embedding) {
        layer first = layer_of(stage, rows, 0);
        ok = SP_HOST(embed_backward)(&first, dy);
    } else if (ok) {
        memcpy(input_gradient, dy, hidden_bytes(&l));
    }
    if (ok) {
        sp_i_host_give(stage->arena, dy);
    }
    return ok;
}

static void weights(sp_i_host_stage *stage, int32_t pack)
{
    if (stage->part.head) {
        SP_HOST(head_weights)(stage, pack);
    }
    for (int i = stage->part.layers - 1; i >= 0; i--) {
        SP_HOST(layer_weights)(stage, pack, i);
    }
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
                                       .gradient_scale = 1.0};
    SP_KERNEL(adamw)(&step, n, gradient, value, first, second);
}

const sp_i_host_math SP_HOST(math) = {.real_bytes = (int64_t)sizeof(real),
                                      .forward = forward,
                                      .again = again,
                                      .backward = backward,
                                      .weights = weights,
                                      .rope_table = rope_table,
                                      .add = add,
                                      .update = update};
