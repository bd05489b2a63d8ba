#include "backends/executor/unit.h"

sp_i_exec_unit sp_i_exec_layer_unit(int layer, sp_i_exec_unit_use use)
{
    return (sp_i_exec_unit){sp_i_exec_layer_slot(layer, SP_I_EXEC_NORM1_WEIGHT),
                            SP_I_EXEC_LAYER_WEIGHTS, use};
}

sp_i_exec_unit sp_i_exec_embedding_unit(const sp_i_exec_stage *stage, sp_i_exec_unit_use use)
{
    return (sp_i_exec_unit){sp_i_exec_end_slot(stage->part.layers, SP_I_EXEC_TOKEN_TABLE),
                            SP_I_EXEC_FINAL_WEIGHT - SP_I_EXEC_TOKEN_TABLE, use};
}

sp_i_exec_unit sp_i_exec_head_unit(const sp_i_exec_stage *stage, sp_i_exec_unit_use use)
{
    return (sp_i_exec_unit){sp_i_exec_end_slot(stage->part.layers, SP_I_EXEC_FINAL_WEIGHT),
                            SP_I_EXEC_END_WEIGHTS - SP_I_EXEC_FINAL_WEIGHT, use};
}

// Does a split backward leave the slot's gradient to the weight gradients?
static bool is_product(const sp_i_exec_stage *stage, int slot)
{
    if (slot >= sp_i_exec_end_slot(stage->part.layers, SP_I_EXEC_TOKEN_TABLE)) {
        return slot == sp_i_exec_end_slot(stage->part.layers, SP_I_EXEC_HEAD_TABLE);
    }
    switch (slot % SP_I_EXEC_LAYER_WEIGHTS) {
    case SP_I_EXEC_NORM1_WEIGHT:
    case SP_I_EXEC_NORM1_BIAS:
    case SP_I_EXEC_NORM2_WEIGHT:
    case SP_I_EXEC_NORM2_BIAS:
        return false;
    default:
        return true;
    }
}

static bool writes(const sp_i_exec_stage *stage, int slot, sp_i_exec_unit_use use)
{
    return use == SP_I_EXEC_BACKWARD ||
           (use != SP_I_EXEC_FORWARD && is_product(stage, slot) == (use == SP_I_EXEC_WEIGHTS));
}

static bool open_slot(sp_i_exec_stage *stage, int slot, sp_i_exec_unit_use use)
{
    const sp_i_exec_range *range = &stage->range[slot];
    bool ok = true;
    if (stage->gathers && use != SP_I_EXEC_WEIGHTS) {
        stage->value[slot] =
            sp_i_exec_take(stage->arena, SP_MEM_WORKSPACE, range->count, stage->job->specs.value);
        ok = stage->value[slot] != NULL;
        if (ok) {
            sp_i_exec_gather(stage->replicas, range->begin, range->count, stage->value[slot]);
        }
    }
    if (ok && stage->scatters && writes(stage, slot, use)) {
        stage->gradient[slot] = sp_i_exec_take_zeroed(stage->arena, SP_MEM_WORKSPACE, range->count,
                                                      stage->job->specs.statistic);
        ok = stage->gradient[slot] != NULL;
    }
    return ok;
}

static bool close_slot(sp_i_exec_stage *stage, int slot, sp_i_exec_unit_use use)
{
    const sp_i_exec_range *range = &stage->range[slot];
    bool ok = true;
    if (stage->gathers && use != SP_I_EXEC_WEIGHTS) {
        sp_i_exec_give(stage->arena, stage->value[slot]);
        stage->value[slot] = NULL;
    }
    if (stage->scatters && writes(stage, slot, use)) {
        ok = sp_i_exec_scatter(stage->replicas, stage->member, range->begin, range->count,
                               stage->gradient[slot]);
        sp_i_exec_give(stage->arena, stage->gradient[slot]);
        stage->gradient[slot] = NULL;
    }
    return ok;
}

static bool for_slots(sp_i_exec_stage *stage, sp_i_exec_unit unit,
                      bool (*of_slot)(sp_i_exec_stage *stage, int slot, sp_i_exec_unit_use use))
{
    uint64_t begin = sp_i_exec_exchange_begin(stage->links);
    bool ok = true;
    for (int s = unit.slot; ok && s < unit.slot + unit.count; s++) {
        ok = stage->range[s].count == 0 || of_slot(stage, s, unit.use);
    }
    return ok && sp_i_exec_exchange_end(stage->links, SP_I_EXEC_DP, begin, SP_OK);
}

bool sp_i_exec_open(sp_i_exec_stage *stage, sp_i_exec_unit unit)
{
    return (!stage->gathers && !stage->scatters) || for_slots(stage, unit, open_slot);
}

bool sp_i_exec_close(sp_i_exec_stage *stage, sp_i_exec_unit unit)
{
    return (!stage->gathers && !stage->scatters) || for_slots(stage, unit, close_slot);
}
