#include "backends/host/unit.h"

enum { BF16 = 2, FP32 = 4 };

sp_i_host_unit sp_i_host_layer_unit(int layer, sp_i_host_unit_use use)
{
    return (sp_i_host_unit){sp_i_host_layer_slot(layer, SP_I_HOST_NORM1_WEIGHT),
                            SP_I_HOST_LAYER_WEIGHTS, use};
}

sp_i_host_unit sp_i_host_embedding_unit(const sp_i_host_stage *stage, sp_i_host_unit_use use)
{
    return (sp_i_host_unit){sp_i_host_end_slot(stage->part.layers, SP_I_HOST_TOKEN_TABLE),
                            SP_I_HOST_FINAL_WEIGHT - SP_I_HOST_TOKEN_TABLE, use};
}

sp_i_host_unit sp_i_host_head_unit(const sp_i_host_stage *stage, sp_i_host_unit_use use)
{
    return (sp_i_host_unit){sp_i_host_end_slot(stage->part.layers, SP_I_HOST_FINAL_WEIGHT),
                            SP_I_HOST_END_WEIGHTS - SP_I_HOST_FINAL_WEIGHT, use};
}

// Does a split backward leave the slot's gradient to the weight gradients?
static bool is_product(const sp_i_host_stage *stage, int slot)
{
    if (slot >= sp_i_host_end_slot(stage->part.layers, SP_I_HOST_TOKEN_TABLE)) {
        return slot == sp_i_host_end_slot(stage->part.layers, SP_I_HOST_HEAD_TABLE);
    }
    switch (slot % SP_I_HOST_LAYER_WEIGHTS) {
    case SP_I_HOST_NORM1_WEIGHT:
    case SP_I_HOST_NORM1_BIAS:
    case SP_I_HOST_NORM2_WEIGHT:
    case SP_I_HOST_NORM2_BIAS:
        return false;
    default:
        return true;
    }
}

static bool writes(const sp_i_host_stage *stage, int slot, sp_i_host_unit_use use)
{
    return use == SP_I_HOST_BACKWARD ||
           (use != SP_I_HOST_FORWARD && is_product(stage, slot) == (use == SP_I_HOST_WEIGHTS));
}

static bool open_slot(sp_i_host_stage *stage, int slot, sp_i_host_unit_use use)
{
    const sp_i_host_range *range = &stage->range[slot];
    int64_t real = stage->job->specs.value.real_bytes;
    bool ok = true;
    if (stage->gathers && use != SP_I_HOST_WEIGHTS) {
        stage->value[slot] = sp_i_host_take(stage->arena, SP_MEM_WORKSPACE, range->count,
                                            (sp_i_host_width){real, BF16});
        ok = stage->value[slot] != NULL;
        if (ok) {
            sp_i_host_gather(stage->replicas, range->begin, range->count, stage->value[slot]);
        }
    }
    if (ok && stage->scatters && writes(stage, slot, use)) {
        stage->gradient[slot] = sp_i_host_take_zeroed(stage->arena, SP_MEM_WORKSPACE, range->count,
                                                      (sp_i_host_width){real, FP32});
        ok = stage->gradient[slot] != NULL;
    }
    return ok;
}

static bool close_slot(sp_i_host_stage *stage, int slot, sp_i_host_unit_use use)
{
    const sp_i_host_range *range = &stage->range[slot];
    bool ok = true;
    if (stage->gathers && use != SP_I_HOST_WEIGHTS) {
        sp_i_host_give(stage->arena, stage->value[slot]);
        stage->value[slot] = NULL;
    }
    if (stage->scatters && writes(stage, slot, use)) {
        ok = sp_i_host_scatter(stage->replicas, stage->member, range->begin, range->count,
                               stage->gradient[slot]);
        sp_i_host_give(stage->arena, stage->gradient[slot]);
        stage->gradient[slot] = NULL;
    }
    return ok;
}

static bool for_slots(sp_i_host_stage *stage, sp_i_host_unit unit,
                      bool (*of_slot)(sp_i_host_stage *stage, int slot, sp_i_host_unit_use use))
{
    int64_t start_ns = stage->links->now_ns();
    bool ok = true;
    for (int s = unit.slot; ok && s < unit.slot + unit.count; s++) {
        ok = stage->range[s].count == 0 || of_slot(stage, s, unit.use);
    }
    stage->links->dp_ns += stage->links->now_ns() - start_ns;
    return ok;
}

bool sp_i_host_open(sp_i_host_stage *stage, sp_i_host_unit unit)
{
    return (!stage->gathers && !stage->scatters) || for_slots(stage, unit, open_slot);
}

bool sp_i_host_close(sp_i_host_stage *stage, sp_i_host_unit unit)
{
    return (!stage->gathers && !stage->scatters) || for_slots(stage, unit, close_slot);
}
