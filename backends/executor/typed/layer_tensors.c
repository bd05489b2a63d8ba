#include "backends/executor/typed/layer.h"

static const sp_i_exec_spec *spec_of(const layer *l, sp_i_exec_tensor tensor)
{
    return &l->stage->job->specs.of[tensor];
}

bool SP_EXEC(make)(layer *l, sp_i_exec_tensor tensor)
{
    const sp_i_exec_spec *spec = spec_of(l, tensor);
    sp_memory_category category = l->rebuilds             ? SP_MEM_RECOMPUTE
                                  : l->keep && spec->kept ? spec->category
                                                          : SP_MEM_WORKSPACE;
    int64_t rows = spec->own ? l->own : l->rows;
    SP_ASSERT(l->t[tensor] == NULL);
    l->t[tensor] = sp_i_exec_take(l->stage->arena, category, rows * spec->columns, spec->width);
    return l->t[tensor] != NULL;
}

static void give(layer *l, int tensor)
{
    sp_i_exec_give(l->stage->arena, l->t[tensor]);
    l->t[tensor] = NULL;
}

void SP_EXEC(drop)(layer *l, sp_i_exec_tensor tensor)
{
    if (!l->rebuilds && !(l->keep && spec_of(l, tensor)->kept)) {
        give(l, (int)tensor);
    }
}

void SP_EXEC(settle)(layer *l, int32_t forward_pack)
{
    for (int t = 0; t < SP_I_EXEC_TENSORS; t++) {
        // What is not here may be there: a stage without layers saves its share of a head beside
        // what its own forward leaves.
        if (l->t[t] == NULL) {
            continue;
        }
        if (l->keep && spec_of(l, (sp_i_exec_tensor)t)->kept) {
            *sp_i_exec_saved(l->stage, forward_pack, l->index, (sp_i_exec_tensor)t) = l->t[t];
            l->t[t] = NULL;
        } else {
            give(l, t);
        }
    }
}

void SP_EXEC(clear)(layer *l)
{
    for (int t = 0; t < SP_I_EXEC_TENSORS; t++) {
        give(l, t);
    }
}

void *SP_EXEC(take)(const layer *l, int64_t columns)
{
    return sp_i_exec_take(l->stage->arena, SP_MEM_WORKSPACE, l->rows * columns,
                          l->stage->job->specs.value);
}

void *SP_EXEC(take_own)(const layer *l)
{
    return sp_i_exec_take(l->stage->arena, SP_MEM_WORKSPACE, l->own * l->stage->job->model->hidden,
                          l->stage->job->specs.value);
}

real *SP_EXEC(value)(const layer *l, sp_i_exec_layer_weight weight)
{
    return l->stage->value[sp_i_exec_layer_slot(l->index, weight)];
}

exact *SP_EXEC(gradient)(const layer *l, sp_i_exec_layer_weight weight)
{
    return l->stage->gradient[sp_i_exec_layer_slot(l->index, weight)];
}
