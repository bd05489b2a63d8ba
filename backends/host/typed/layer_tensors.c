#include "backends/host/typed/layer.h"

static const sp_i_host_spec *spec_of(const layer *l, sp_i_host_tensor tensor)
{
    return &l->stage->job->specs.of[tensor];
}

bool SP_HOST(make)(layer *l, sp_i_host_tensor tensor)
{
    const sp_i_host_spec *spec = spec_of(l, tensor);
    sp_memory_category category = l->rebuilds             ? SP_MEM_RECOMPUTE
                                  : l->keep && spec->kept ? spec->category
                                                          : SP_MEM_WORKSPACE;
    int64_t rows = spec->own ? l->own : l->rows;
    SP_ASSERT(l->t[tensor] == NULL);
    l->t[tensor] = sp_i_host_take(l->stage->arena, category, rows * spec->columns, spec->width);
    return l->t[tensor] != NULL;
}

static void give(layer *l, int tensor)
{
    sp_i_host_give(l->stage->arena, l->t[tensor]);
    l->t[tensor] = NULL;
}

void SP_HOST(drop)(layer *l, sp_i_host_tensor tensor)
{
    if (!l->rebuilds && !(l->keep && spec_of(l, tensor)->kept)) {
        give(l, (int)tensor);
    }
}

void SP_HOST(settle)(layer *l, int32_t forward_pack)
{
    for (int t = 0; t < SP_I_HOST_TENSORS; t++) {
        if (l->keep && spec_of(l, (sp_i_host_tensor)t)->kept) {
            *sp_i_host_saved(l->stage, forward_pack, l->index, (sp_i_host_tensor)t) = l->t[t];
            l->t[t] = NULL;
        } else {
            give(l, t);
        }
    }
}

void SP_HOST(clear)(layer *l)
{
    for (int t = 0; t < SP_I_HOST_TENSORS; t++) {
        give(l, t);
    }
}

void *SP_HOST(take)(const layer *l, int64_t columns)
{
    return sp_i_host_take(l->stage->arena, SP_MEM_WORKSPACE, l->rows * columns,
                          l->stage->job->specs.value);
}

void *SP_HOST(take_own)(const layer *l)
{
    return sp_i_host_take(l->stage->arena, SP_MEM_WORKSPACE, l->own * l->stage->job->model->hidden,
                          l->stage->job->specs.value);
}

real *SP_HOST(value)(const layer *l, sp_i_host_layer_weight weight)
{
    return l->stage->value[sp_i_host_layer_slot(l->index, weight)];
}

real *SP_HOST(gradient)(const layer *l, sp_i_host_layer_weight weight)
{
    return l->stage->gradient[sp_i_host_layer_slot(l->index, weight)];
}
