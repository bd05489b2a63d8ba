// What attention on every device asks of a layer: the heads of the rank, whether others share its
// slices, and the sums of gradients of keys and values.
#include <math.h>

#include "backends/executor/typed/layer.h"

sp_kernel_attention_shape SP_EXEC(attention_shape)(const layer *l)
{
    const sp_shard *shard = &l->kind->shard;
    const sp_model *model = &l->kind->model;
    return (sp_kernel_attention_shape){.heads = shard->heads,
                                       .kv_heads = shard->k / model->head_dim,
                                       .head_dim = model->head_dim,
                                       .value_dim = sp_model_v_dim(model),
                                       .window = model->window_tokens,
                                       .chunk = model->chunk_tokens,
                                       .q_stride = shard->q,
                                       .kv_stride = shard->k + shard->v,
                                       .out_stride = shard->context,
                                       .scale = 1.0 / sqrt((double)model->head_dim)};
}

bool SP_EXEC(is_shared)(const layer *l)
{
    return l->pack->count > 0 && slice_of(l, l->pack->slice[0])->shards > 1;
}

exact *SP_EXEC(kv_gradient)(const layer *l, int32_t number)
{
    const sp_i_exec_widths *of = &l->stage->job->width;
    const sp_i_exec_width width = {of->statistic.real_bytes, of->value.table_bytes};
    void **place = sp_i_exec_kv_gradient(l->stage, number, l->index);
    if (*place == NULL) {
        *place = sp_i_exec_take_zeroed(
            l->stage->arena, SP_MEM_KV_GRADIENTS,
            slice_of(l, number)->rows * l->kind->specs.of[SP_TENSOR_KEYS_VALUES].columns, width);
    }
    return *place;
}
