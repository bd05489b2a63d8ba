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

static void start_value(const sp_i_host_run *run, const sp_i_host_rank *rank, int64_t element,
                        double value)
{
    void *at = sp_i_host_value_at(run, rank, element);
    if (run->request->precision == SP_FP64) {
        *(double *)at = value;
    } else {
        *(float *)at = (float)value;
    }
}

static void start_values(const sp_i_host_run *run, const sp_i_host_rank *rank)
{
    const sp_i_host_range *there = &rank->values_at;
    for (size_t w = 0; w < rank->weights->count; w++) {
        const sp_i_host_weight *weight = &rank->weights->items[w];
        uint64_t seed = sp_i_host_weight_seed(weight, run->request->seed);
        for (int64_t i = 0; i < weight->elements; i++) {
            int64_t element = weight->offset + i;
            if (element >= there->begin && element < there->begin + there->count) {
                start_value(run, rank, element, sp_i_host_weight_start(weight, seed, i));
            }
        }
    }
}

// With ZeRO each rank with the same parameters steps an equal share of them.
static void set_share(const sp_i_host_run *run, sp_i_host_rank *rank)
{
    const sp_layout *layout = sp_i_host_layout(run);
    int64_t all = rank->weights->elements;
    bool shares = layout->zero >= 1;
    int64_t share = shares ? sp_ceil_div(all, (int64_t)layout->dp * layout->cp) : all;
    int64_t begin = shares ? share * (rank->dp * layout->cp + rank->cp) : 0;
    rank->share_begin = begin < all ? begin : all;
    rank->share_end = begin + share < all ? begin + share : all;
    const sp_i_host_range whole = {0, all};
    const sp_i_host_range own = {rank->share_begin, rank->share_end - rank->share_begin};
    rank->values_at = sp_i_host_shards_values(run) ? own : whole;
    rank->gradients_at = sp_i_host_shards_gradients(run) ? own : whole;
}

static bool take_states(const sp_i_host_run *run, sp_i_host_rank *rank)
{
    const sp_layout *layout = sp_i_host_layout(run);
    sp_stage *parts = sp_i_calloc((size_t)layout->chunks, sizeof *parts);
    if (parts == NULL) {
        return false;
    }
    for (int c = 0; c < layout->chunks; c++) {
        parts[c] = run->parts[sp_layout_vstage(layout, rank->pp, c)];
    }
    sp_bytes bytes;
    const sp_stack stack = {.work_spaces = 1, .work_space_bytes = 1};
    sp_footprint_states(run->request->model, layout, &stack, parts, layout->chunks, &bytes);
    sp_i_free(parts);
    set_share(run, rank);
    int64_t share = rank->share_end - rank->share_begin;
    int64_t moment = bytes.of[SP_MEM_OPTIMIZER] / 2;
    rank->values = take_state(run, rank, SP_MEM_PARAMETERS, rank->values_at.count,
                              bytes.of[SP_MEM_PARAMETERS]);
    rank->gradients = take_state(run, rank, SP_MEM_GRADIENTS, rank->gradients_at.count,
                                 bytes.of[SP_MEM_GRADIENTS]);
    rank->first = take_state(run, rank, SP_MEM_OPTIMIZER, share, moment);
    rank->second =
        take_state(run, rank, SP_MEM_OPTIMIZER, share, bytes.of[SP_MEM_OPTIMIZER] - moment);
    return rank->values != NULL && rank->gradients != NULL && rank->first != NULL &&
           rank->second != NULL;
}

static bool make_rope(const sp_i_host_run *run, sp_i_host_rank *rank)
{
    const sp_model *model = run->request->model;
    int64_t positions = rank->job->slices.positions;
    if (model->positional != SP_ROPE || positions == 0) {
        return true;
    }
    int64_t elements = positions * (model->head_dim / 2);
    int64_t *position = sp_i_malloc((size_t)positions * sizeof *position);
    sp_i_host_width width = rank->job->specs.value;
    rank->cosine = sp_i_host_take(rank->arena, SP_MEM_WORKSPACE, elements, width);
    rank->sine = sp_i_host_take(rank->arena, SP_MEM_WORKSPACE, elements, width);
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

static void place_stage(const sp_i_host_run *run, const sp_i_host_rank *rank,
                        sp_i_host_stage *stage)
{
    stage->scatters = sp_i_host_shards_gradients(run);
    stage->gathers = sp_i_host_shards_values(run);
    stage->replicas = stage->scatters ? sp_i_host_replicas_of(run, rank) : NULL;
    stage->member = sp_i_host_replica(run, rank);
    stage->cosine = rank->cosine;
    stage->sine = rank->sine;
    for (int s = 0; s < sp_i_host_slots(stage->part.layers); s++) {
        if (stage->range[s].count > 0 && !stage->gathers) {
            stage->value[s] = sp_i_host_value_at(run, rank, stage->range[s].begin);
        }
        if (stage->range[s].count > 0 && !stage->scatters) {
            stage->gradient[s] = sp_i_host_gradient_at(run, rank, stage->range[s].begin);
        }
    }
}

// Where the stages of a rank find their parameters. A tied table with both ends on this rank is the
// embedding's.
static void place_weights(const sp_i_host_run *run, const sp_i_host_rank *rank)
{
    sp_i_host_range table = {0};
    for (size_t w = 0; w < rank->weights->count; w++) {
        const sp_i_host_weight *weight = &rank->weights->items[w];
        sp_i_host_stage *stage = sp_i_host_stage_of(run, rank, weight->chunk);
        stage->range[weight->slot] = (sp_i_host_range){weight->offset, weight->elements};
        if (weight->slot == sp_i_host_end_slot(stage->part.layers, SP_I_HOST_TOKEN_TABLE)) {
            table = stage->range[weight->slot];
        }
    }
    for (int c = 0; c < sp_i_host_layout(run)->chunks; c++) {
        sp_i_host_stage *stage = sp_i_host_stage_of(run, rank, c);
        int slot = sp_i_host_end_slot(stage->part.layers, SP_I_HOST_HEAD_TABLE);
        if (stage->part.head && stage->range[slot].count == 0) {
            stage->range[slot] = table;
        }
        place_stage(run, rank, stage);
    }
}

// The shares of all ranks with the same parameters.
static sp_status make_replicas(sp_i_host_run *run, sp_error *err)
{
    const sp_layout *layout = sp_i_host_layout(run);
    size_t count = (size_t)layout->pp * (size_t)layout->tp;
    if (!sp_i_host_shards_gradients(run)) {
        return SP_OK;
    }
    run->replicas = sp_i_calloc(count, sizeof *run->replicas);
    sp_status status =
        run->replicas != NULL ? SP_OK : sp_error_no_memory(err, "shares of parameters");
    for (size_t i = 0; status == SP_OK && i < count; i++) {
        status = sp_i_host_replicas_init(&run->replicas[i], layout->dp * layout->cp,
                                         run->math->real_bytes, run->math->add, err);
    }
    for (size_t r = 0; status == SP_OK && r < sp_i_host_rank_count(run); r++) {
        const sp_i_host_rank *rank = &run->ranks[r];
        sp_i_host_replicas_of(run, rank)->shares[sp_i_host_replica(run, rank)] =
            (sp_i_host_share){.begin = rank->share_begin,
                              .end = rank->share_end,
                              .values = sp_i_host_shards_values(run) ? rank->values : NULL,
                              .gradients = rank->gradients};
    }
    return status;
}

sp_status sp_i_host_states_make(sp_i_host_run *run, sp_error *err)
{
    for (size_t r = 0; r < sp_i_host_rank_count(run); r++) {
        sp_i_host_rank *rank = &run->ranks[r];
        if (!take_states(run, rank) || !make_rope(run, rank)) {
            return sp_i_host_rank_failure(run, rank, NULL, err);
        }
        start_values(run, rank);
    }
    sp_status status = make_replicas(run, err);
    for (size_t r = 0; status == SP_OK && r < sp_i_host_rank_count(run); r++) {
        place_weights(run, &run->ranks[r]);
    }
    return status;
}
