#include "sim/model/shard.h"

#include "sim/base/units.h"

sp_i_shard sp_i_shard_of(const sp_model *model, const sp_layout *layout)
{
    int64_t tp = layout->tp;
    // Fewer key and value heads than ranks: each rank holds one whole head.
    int64_t kv_heads = model->kv_heads >= tp ? model->kv_heads / tp : 1;
    sp_i_shard shard = {
        .heads = model->heads / tp,
        .q = model->heads / tp * model->head_dim,
        .kv = kv_heads * model->head_dim,
        .ffn = model->ffn / tp,
        .fc1 = (model->activation == SP_SWIGLU ? 2 : 1) * (model->ffn / tp),
        .vocab = sp_ceil_div(model->vocab, tp * (layout->vocab_parallel ? layout->pp : 1)),
        .experts = model->experts > 0 ? model->experts : 1,
        .active = model->experts > 0 ? model->experts_per_token : 1,
        .norm_split = layout->sequence_parallel ? layout->tp : 1,
        .dropout = model->dropout == SP_DROPOUT_USUAL ? model->activation == SP_GELU
                                                      : model->dropout == SP_DROPOUT_ON,
    };
    return shard;
}
