#include "backends/host/run.h"
#include "sim/base/alloc.h"
#include "sim/base/units.h"

// Real bytes of `elements` numbers beside the bytes that the predictor counts for them.
static void *take_state(const sp_i_host_run *run, sp_i_host_rank *rank, sp_memory_category category,
                        int64_t elements, int64_t table_bytes)
{
    const sp_i_host_width all = {elements * run->math->real_bytes, table_bytes};
    return sp_i_host_take_zeroed(rank->arena, category, 1, all);
}

static void start_values(const sp_i_host_run *run, sp_i_host_rank *rank, int pp)
{
    const sp_i_host_weights *weights = &run->weights[pp];
    for (size_t w = 0; w < weights->count; w++) {
        const sp_i_host_weight *weight = &weights->items[w];
        uint64_t seed = sp_i_host_weight_seed(weight, run->request->seed);
        for (int64_t i = 0; i < weight->elements; i++) {
            double value = sp_i_host_weight_start(weight, seed, i);
            if (run->request->precision == SP_FP64) {
                ((double *)rank->values)[weight->offset + i] = value;
            } else {
                ((float *)rank->values)[weight->offset + i] = (float)value;
            }
        }
    }
}

// With ZeRO each data-parallel rank steps an equal share of the rank's parameters.
static void set_share(const sp_i_host_run *run, sp_i_host_rank *rank, int dp, int pp)
{
    const sp_layout *layout = &run->request->plan->layout;
    int64_t all = run->weights[pp].elements;
    int64_t share = layout->zero >= 1 ? sp_ceil_div(all, layout->dp) : all;
    int64_t begin = layout->zero >= 1 ? share * dp : 0;
    rank->share_begin = begin < all ? begin : all;
    rank->share_end = begin + share < all ? begin + share : all;
}

static bool take_states(sp_i_host_run *run, sp_i_host_rank *rank, int dp, int pp)
{
    const sp_layout *layout = &run->request->plan->layout;
    int64_t all = run->weights[pp].elements;
    sp_stage *parts = sp_i_calloc((size_t)layout->chunks, sizeof *parts);
    if (parts == NULL) {
        return false;
    }
    for (int c = 0; c < layout->chunks; c++) {
        parts[c] = run->parts[sp_layout_vstage(layout, pp, c)];
    }
    sp_bytes bytes;
    const sp_stack stack = {.work_spaces = 1, .work_space_bytes = 1};
    sp_footprint_states(run->request->model, layout, &stack, parts, layout->chunks, &bytes);
    sp_i_free(parts);
    set_share(run, rank, dp, pp);
    int64_t share = rank->share_end - rank->share_begin;
    int64_t moment = bytes.of[SP_MEM_OPTIMIZER] / 2;
    rank->values = take_state(run, rank, SP_MEM_PARAMETERS, all, bytes.of[SP_MEM_PARAMETERS]);
    rank->gradients = take_state(run, rank, SP_MEM_GRADIENTS, all, bytes.of[SP_MEM_GRADIENTS]);
    rank->first = take_state(run, rank, SP_MEM_OPTIMIZER, share, moment);
    rank->second =
        take_state(run, rank, SP_MEM_OPTIMIZER, share, bytes.of[SP_MEM_OPTIMIZER] - moment);
    return rank->values != NULL && rank->gradients != NULL && rank->first != NULL &&
           rank->second != NULL;
}

static bool make_rope(sp_i_host_run *run, sp_i_host_rank *rank)
{
    const sp_model *model = run->request->model;
    int64_t positions = run->job.slices.positions;
    if (model->positional != SP_ROPE || positions == 0) {
        return true;
    }
    int64_t elements = positions * (model->head_dim / 2);
    int64_t *position = sp_i_malloc((size_t)positions * sizeof *position);
    rank->cosine = sp_i_host_take(rank->arena, SP_MEM_WORKSPACE, elements, run->job.specs.value);
    rank->sine = sp_i_host_take(rank->arena, SP_MEM_WORKSPACE, elements, run->job.specs.value);
    bool ok = position != NULL && rank->cosine != NULL && rank->sine != NULL;
    for (int64_t i = 0; ok && i < positions; i++) {
        position[i] = i;
    }
    if (ok) {
        run->math->rope_table(positions, position, model->head_dim, rank->cosine, rank->sine);
    }
    sp_i_free(position);
    return ok;
}

// Where the stages of a rank find their parameters.
static void place_weights(sp_i_host_run *run, int dp, int pp)
{
    const sp_layout *layout = &run->request->plan->layout;
    const sp_i_host_weights *weights = &run->weights[pp];
    sp_i_host_rank *rank = sp_i_host_rank_at(run, dp, pp);
    void *table[2] = {NULL, NULL};
    for (size_t w = 0; w < weights->count; w++) {
        const sp_i_host_weight *weight = &weights->items[w];
        int vstage = sp_layout_vstage(layout, pp, weight->chunk);
        sp_i_host_stage *stage = sp_i_host_stage_at(run, dp, vstage);
        int64_t at = weight->offset * run->math->real_bytes;
        stage->value[weight->slot] = (char *)rank->values + at;
        stage->gradient[weight->slot] = (char *)rank->gradients + at;
        if (weight->slot == sp_i_host_end_slot(stage->part.layers, SP_I_HOST_TOKEN_TABLE)) {
            table[0] = stage->value[weight->slot];
            table[1] = stage->gradient[weight->slot];
        }
    }
    for (int c = 0; c < layout->chunks; c++) {
        sp_i_host_stage *stage = sp_i_host_stage_at(run, dp, sp_layout_vstage(layout, pp, c));
        int slot = sp_i_host_end_slot(stage->part.layers, SP_I_HOST_HEAD_TABLE);
        if (stage->part.head && stage->value[slot] == NULL) {
            // Tied, both ends on this rank.
            stage->value[slot] = table[0];
            stage->gradient[slot] = table[1];
        }
        stage->cosine = rank->cosine;
        stage->sine = rank->sine;
    }
}

sp_status sp_i_host_states_make(sp_i_host_run *run, sp_error *err)
{
    const sp_layout *layout = &run->request->plan->layout;
    for (int d = 0; d < layout->dp; d++) {
        for (int p = 0; p < layout->pp; p++) {
            sp_i_host_rank *rank = sp_i_host_rank_at(run, d, p);
            if (!take_states(run, rank, d, p) || !make_rope(run, rank)) {
                return sp_i_host_run_out(run, rank->arena, NULL, err);
            }
            start_values(run, rank, p);
            place_weights(run, d, p);
        }
    }
    return SP_OK;
}
