#include "backends/executor/offload.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/model/unit_tensors.h"

typedef struct lister {
    const sp_i_exec_stage *stage;
    const sp_i_exec_pack *rows;
    int32_t pack;
    sp_i_exec_copies *copies;
    bool in_part; // the tensor at hand
} lister;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Of a block up to `bytes` of the table's; returns how many.
static int64_t add(const lister *l, void **place, int64_t elements, sp_i_exec_width width,
                   int64_t bytes, bool *ok)
{
    sp_i_exec_copies *to = l->copies;
    int64_t away = least(bytes, elements * width.table_bytes);
    *ok = *ok && sp_i_reserve((void **)&to->items, &to->capacity, to->count + 1, sizeof *to->items);
    if (*ok && away > 0) {
        to->items[to->count++] = (sp_i_exec_leaving){
            .place = place,
            .elements = elements,
            .width = width,
            .away = {sp_ceil_div(away, width.table_bytes) * width.real_bytes, away},
            .in_part = l->in_part};
    }
    return away;
}

// Keys and values stand slice by slice; those of slices that later ones read stay in the cache.
static void add_kv(const lister *l, int layer, int64_t bytes, bool *ok)
{
    const sp_i_exec_job *job = l->stage->job;
    for (int32_t i = 0; i < l->rows->count; i++) {
        int32_t number = l->rows->slice[i];
        const sp_i_exec_slice *slice = &job->slices.slice[number];
        if (slice->later == SP_I_EXEC_NONE) {
            bytes -= add(l, sp_i_exec_kv(l->stage, number, layer),
                         slice->rows * job->specs.kv_columns, job->specs.value, bytes, ok);
        }
    }
}

static void add_tensor(const lister *l, const char *name, int layer, int64_t bytes, bool *ok)
{
    const sp_i_exec_specs *specs = &l->stage->job->specs;
    int t = 0;
    while (t < SP_I_EXEC_TENSORS &&
           (specs->of[t].name == NULL || strcmp(specs->of[t].name, name) != 0)) {
        t++;
    }
    if (t == SP_I_EXEC_TENSORS) {
        add_kv(l, layer, bytes, ok);
        return;
    }
    bool of_head = t >= SP_I_EXEC_FINAL_INPUT && t <= SP_I_EXEC_FINAL_LSE;
    int64_t rows = specs->of[t].own ? l->rows->own_rows : l->rows->rows;
    add(l,
        sp_i_exec_saved(l->stage, l->pack, of_head ? l->stage->part.layers : layer,
                        (sp_i_exec_tensor)t),
        rows * specs->of[t].columns, specs->of[t].width, bytes, ok);
}

bool sp_i_exec_list_leaving(const sp_i_exec_stage *stage, int32_t pack, const sp_pack *shape,
                            const sp_layout *layout, sp_recompute recompute, double ratio,
                            sp_i_exec_copies *copies)
{
    lister l = {stage, &stage->job->slices.forward[pack], pack, copies, false};
    const sp_memory_options options = {
        .recompute = recompute, .offload_ratio = ratio, .stack = {.fused_swiglu = true}};
    sp_layout shared = *layout;
    sp_unit_tensor tensors[SP_UNIT_TENSORS];
    bool ok = true;
    shared.cp *= shape->dp_count;
    int count = sp_unit_tensors(stage->job->model, &shared, &stage->part, &options, shape->computed,
                                shape->kv_tokens, shape->full_pairs, tensors);
    sp_unit_offload(tensors, count, ratio);
    for (int k = 0; k < count; k++) {
        // Of one kind they leave layer by layer, above a ratio of a half from the last one on.
        int64_t left = tensors[k].away_bytes;
        for (int i = 0; ok && left > 0; i++) {
            int layer = ratio > 0.5 ? tensors[k].count - 1 - i : i;
            l.in_part = left < tensors[k].bytes;
            add_tensor(&l, tensors[k].name, layer, least(left, tensors[k].bytes), &ok);
            left -= least(left, tensors[k].bytes);
        }
    }
    return ok;
}
