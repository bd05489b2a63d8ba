// What ZeRO 2 and 3 exchange inside actions, for the bytes on links alone: its time is part of the
// actions (cost/zero.c).
#include "sim/base/alloc.h"
#include "sim/engine/traffic_private.h"

// Bytes of tensors that are gathered and scattered.
typedef struct sums {
    double gathered, scattered;
} sums;

static sums sums_of(const sp_sharded_stage *stage, sp_action_kind kind, bool regrouped)
{
    switch (kind) {
    case SP_ACTION_F:
    case SP_ACTION_I:
        return (sums){stage->gather_bytes, 0.0};
    case SP_ACTION_B:
        return (sums){stage->gather_bytes, stage->scatter_bytes};
    case SP_ACTION_W:
        return (sums){0.0, stage->scatter_bytes};
    case SP_ACTION_R:
        return (sums){regrouped ? stage->gather_bytes : stage->layers_gather_bytes, 0.0};
    default:
        return (sums){0.0, 0.0};
    }
}

// Of a virtual stage in the whole step. All data-parallel ranks exchange at a time, each in an
// action of its own.
static sums sums_of_chunk(const sp_i_traffic *t, int pp, int chunk)
{
    const sp_layout *layout = &t->plan->layout;
    const sp_sharded_stage *sharded = &t->costs->sharded[sp_layout_vstage(layout, pp, chunk)];
    bool regrouped = t->plan->packing->backward.count > 0;
    sums whole = {0.0, 0.0};
    for (int d = 0; d < layout->dp; d++) {
        const sp_stage_plan *stage = sp_plan_stage(t->plan, d, pp);
        for (size_t a = 0; a < stage->count; a++) {
            sp_action action = stage->actions[a];
            if (action.chunk == chunk) {
                sums of = sums_of(sharded, (sp_action_kind)action.kind, regrouped);
                whole.gathered += of.gathered / layout->dp;
                whole.scattered += of.scattered / layout->dp;
            }
        }
    }
    return whole;
}

static sp_status carry(sp_i_traffic *t, sp_collective kind, sp_collective_algorithm by,
                       double bytes, const int64_t *gpus, sp_error *err)
{
    const sp_layout *layout = &t->plan->layout;
    sp_passage passage;
    if (!(bytes > 0.0)) {
        return SP_OK;
    }
    sp_status status = sp_passage_make(t->topology, by, kind, gpus, layout->tp,
                                       layout->dp * layout->cp, &passage, err);
    if (status == SP_OK) {
        sp_i_traffic_carry_passage(t, &passage, bytes);
        sp_passage_fini(&passage);
    }
    return status;
}

sp_status sp_i_sharded_carry(sp_i_traffic *t, sp_error *err)
{
    const sp_layout *layout = &t->plan->layout;
    size_t ranks = (size_t)layout->tp * (size_t)layout->cp * (size_t)layout->dp;
    if (t->costs->sharded == NULL || layout->dp * layout->cp == 1) {
        return SP_OK;
    }
    int64_t *gpus = sp_malloc(ranks * sizeof *gpus);
    if (gpus == NULL) {
        return sp_error_no_memory(err, "the traffic of a step");
    }
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < layout->pp * layout->chunks; i++) {
        int pp = i / layout->chunks;
        int chunk = i % layout->chunks;
        const sp_sharded_stage *by = &t->costs->sharded[sp_layout_vstage(layout, pp, chunk)];
        sums bytes = sums_of_chunk(t, pp, chunk);
        sp_i_list_joint(t, 0, layout->dp, pp, gpus);
        status = carry(t, SP_ALL_GATHER, by->gathers_by, bytes.gathered, gpus, err);
        if (status == SP_OK) {
            status = carry(t, SP_REDUCE_SCATTER, by->scatters_by, bytes.scattered, gpus, err);
        }
    }
    sp_free(gpus);
    return status;
}
