#include "sim/inference/held_memory.h"

#include "sim/inference/forward_time.h"
#include "sim/model/footprint.h"

// All chunks of a rank as one.
static sp_stage whole_of(const sp_layout *layout, const sp_stage *stages, int pp)
{
    sp_stage whole = {0};
    for (int chunk = 0; chunk < layout->chunks; chunk++) {
        const sp_stage *stage = &stages[sp_layout_vstage(layout, pp, chunk)];
        whole.layers += stage->layers;
        whole.embedding = whole.embedding || stage->embedding;
        whole.head = whole.head || stage->head;
    }
    return whole;
}

sp_i_held sp_i_held_by(const sp_model *model, const sp_layout *layout, const sp_stage *stages,
                       int pp, int64_t tokens)
{
    const sp_stage whole = whole_of(layout, stages, pp);
    return (sp_i_held){
        .parameters = SP_I_BF16_BYTES * sp_footprint_parameters(model, layout, &whole, 1),
        .kv_cache = sp_kv_bytes(model, layout) * whole.layers * tokens,
    };
}
