#include "backends/executor/stage.h"

#include <math.h>
#include <stdio.h>

#include "sim/base/alloc.h"
#include "sim/memory/saved_tensors.h"
#include "sim/model/layout.h"

// ---- Tensors of a layer and of the head ----

enum { BF16 = 2, FP32 = 4, MASK = 1 };

// The table has logits as their softmax in fp32; here they are values.
static int64_t real_bytes_of(const sp_i_exec_widths *widths, const sp_saved_tensor *row)
{
    if (row->element_bytes == MASK) {
        return MASK;
    }
    return row->element_bytes == FP32 && !row->is_logits ? widths->statistic.real_bytes
                                                         : widths->value.real_bytes;
}

static void add_specs(const sp_saved_tensor *rows, int count, int cp,
                      const sp_i_exec_widths *widths, sp_i_exec_specs *specs)
{
    for (const sp_saved_tensor *row = rows; row < rows + count; row++) {
        specs->of[row->id] = (sp_i_exec_spec){
            .columns = row->row_bytes / row->element_bytes,
            .arrays = sp_layer_tensors[row->id].width == SP_WIDTH_TWO ? 2 : 1,
            .width = {.real_bytes = real_bytes_of(widths, row), .table_bytes = row->element_bytes},
            .category = sp_saved_category(row),
            .kept = sp_saved_is_kept(row, specs->repeated),
            .own = row->shard != cp && !row->of_experts,
            .routed = row->of_experts};
    }
}

sp_i_exec_widths sp_i_exec_widths_of(int64_t real_bytes, int64_t exact_bytes)
{
    return (sp_i_exec_widths){
        .value = {real_bytes, BF16}, .statistic = {exact_bytes, FP32}, .scratch = {exact_bytes, 0}};
}

// As sim/model/parameter_list.c adds them.
static void place_expert(sp_i_exec_kind *kind)
{
    static const sp_layer_place products[] = {SP_STEP_FC1, SP_STEP_FC2};
    for (int p = 0; p < 2; p++) {
        sp_layer_linear linear;
        bool has = sp_layer_linear_of(&kind->model, &kind->shard, products[p], &linear);
        SP_ASSERT(has);
        kind->expert_at[2 * p] = kind->expert_elements;
        kind->expert_elements += linear.outputs * linear.inputs;
        kind->expert_at[2 * p + 1] = linear.bias ? kind->expert_elements : -1;
        kind->expert_elements += linear.bias ? linear.outputs : 0;
    }
}

void sp_i_exec_kind_make(const sp_model *model, int number, const sp_layout *layout,
                         sp_recompute recompute, const sp_i_exec_widths *widths,
                         sp_i_exec_kind *kind)
{
    const sp_memory_options options = {
        .recompute = recompute, .stack = {.fused_swiglu = true, .tensors = SP_TENSORS_EXPLICIT}};
    sp_saved_tensor rows[SP_SAVED_TENSORS];
    sp_model space;
    const sp_model *alike = sp_model_of_kind(model, number, &space);
    *kind = (sp_i_exec_kind){.model = *alike, .shard = sp_shard_of(alike, layout)};
    place_expert(kind);
    kind->specs = (sp_i_exec_specs){.repeated = sp_recompute_operations(recompute, alike),
                                    .drops = kind->shard.dropout};
    for (int part = 0; part < SP_PARTS; part++) {
        add_specs(rows, sp_saved_part(alike, layout, &options, (sp_part)part, rows), layout->cp,
                  widths, &kind->specs);
    }
}

// ---- Parameters ----

// The place of a rank among those that share its tensors.
typedef struct place {
    const sp_model *model;
    sp_shard shard;
    int tp, tp_rank, ep_rank;
    int expert;            // that the parameter belongs to; -1: none
    int vocab_rank;        // of the ranks that share the vocabulary tables
    bool later_vocabulary; // an earlier rank's tables have these names
} place;

// Each rank has its share of the query heads, and of the heads of keys and values; where those are
// fewer than the ranks, neighbours hold the same one.
static void place_qkv(const place *p, sp_i_exec_weight *weight)
{
    const sp_model *model = p->model;
    const sp_shard *shard = &p->shard;
    int64_t all_q = model->heads * model->head_dim;
    int64_t all_kv = model->kv_heads * model->head_dim;
    int64_t kv_from = p->tp_rank * model->kv_heads / p->tp * model->head_dim;
    weight->run[0] = (sp_i_exec_row_run){shard->q, p->tp_rank * shard->q};
    weight->run[1] = (sp_i_exec_row_run){shard->k, all_q + kv_from};
    weight->run[2] = (sp_i_exec_row_run){shard->k, all_q + all_kv + kv_from};
    weight->shared_first = shard->q * weight->columns;
    if (model->kv_heads < p->tp) {
        weight->shared_elements = 2 * shard->k * weight->columns;
        weight->shared_by = (int)(p->tp / model->kv_heads);
    }
}

// Equal rows for each rank; the last ones may have fewer that are real.
static void place_vocabulary(const place *p, sp_i_exec_weight *weight)
{
    int64_t from = p->vocab_rank * weight->rows;
    int64_t left = p->model->vocab > from ? p->model->vocab - from : 0;
    weight->run[0] = (sp_i_exec_row_run){left < weight->rows ? left : weight->rows, from};
    weight->continued = p->later_vocabulary;
}

// The rows and columns of the whole tensor that the rank holds.
static void place_rows(const place *p, sp_parameter_kind kind, sp_i_exec_weight *weight)
{
    int64_t ffn = p->shard.ffn;
    bool gated = p->model->activation == SP_SWIGLU;
    weight->run[0] = (sp_i_exec_row_run){weight->rows, 0};
    switch (kind) {
    case SP_PARAMETER_QKV_WEIGHT:
    case SP_PARAMETER_QKV_BIAS:
        place_qkv(p, weight);
        break;
    case SP_PARAMETER_FC1_WEIGHT:
    case SP_PARAMETER_FC1_BIAS:
        weight->run[0] = (sp_i_exec_row_run){ffn, p->tp_rank * ffn};
        weight->run[1] = (sp_i_exec_row_run){gated ? ffn : 0, p->model->ffn + p->tp_rank * ffn};
        break;
    case SP_PARAMETER_PROJECTION_WEIGHT:
    case SP_PARAMETER_FC2_WEIGHT:
        weight->first_column = p->tp_rank * weight->columns;
        break;
    case SP_PARAMETER_TOKEN_TABLE:
    case SP_PARAMETER_HEAD_TABLE:
        place_vocabulary(p, weight);
        break;
    case SP_PARAMETER_NORM1_WEIGHT:
    case SP_PARAMETER_NORM1_BIAS:
    case SP_PARAMETER_NORM2_WEIGHT:
    case SP_PARAMETER_NORM2_BIAS:
    case SP_PARAMETER_FINAL_WEIGHT:
    case SP_PARAMETER_FINAL_BIAS:
        if (p->shard.norm_split > 1) { // sequence parallelism: each rank saw a part of the tokens
            weight->shared_elements = weight->elements;
            weight->shared_by = p->shard.norm_split;
        }
        break;
    default:
        break;
    }
}

static void name_weight(const place *p, const sp_parameter *parameter, const sp_stage *stage,
                        sp_i_exec_weight *weight)
{
    const char *name = sp_parameter_names[parameter->kind];
    bool tied = parameter->kind == SP_PARAMETER_HEAD_TABLE && p->model->tied_embeddings;
    if (p->expert >= 0) {
        snprintf(weight->name, sizeof weight->name, "layers.%d.experts.%d.%s",
                 stage->first + parameter->layer, p->expert, name);
        return;
    }
    if (parameter->layer >= 0) {
        snprintf(weight->name, sizeof weight->name, "layers.%d.%s", stage->first + parameter->layer,
                 name);
        return;
    }
    snprintf(weight->name, sizeof weight->name, "%s",
             tied ? sp_parameter_names[SP_PARAMETER_TOKEN_TABLE] : name);
    weight->copy = (tied || p->later_vocabulary) && !weight->continued;
}

static void add_weight(const place *p, const sp_parameter *parameter, int chunk,
                       const sp_stage *stage, sp_i_exec_weights *list)
{
    int layer = parameter->layer >= 0 ? parameter->layer : stage->layers;
    sp_i_exec_weight weight = {
        .chunk = chunk,
        .slot = sp_i_exec_slot(layer, p->expert >= 0 ? SP_PARAMETER_FC1_WEIGHT : parameter->kind),
        .expert = p->expert,
        .offset = list->elements,
        .elements = parameter->elements,
        .rows = parameter->rows,
        .columns = parameter->columns,
        .all_rows = parameter->all_rows,
        .all_columns = parameter->all_columns,
        .decays = parameter->decays,
        .centre = parameter->centre,
        .spread = parameter->spread};
    place_rows(p, parameter->kind, &weight);
    name_weight(p, parameter, stage, &weight);
    *SP_ADDED(list->items, list->capacity, list->count) = weight;
    list->elements += weight.elements;
}

// A rank's experts come one behind the other, each with its first product first.
static int next_expert(const place *p, const sp_parameter *parameter, int before)
{
    if (!parameter->of_experts) {
        return -1;
    }
    int first = p->ep_rank * (int)p->shard.held;
    bool begins = parameter->kind == SP_PARAMETER_FC1_WEIGHT;
    return begins ? (before < 0 ? first : before + 1) : before;
}

void sp_i_exec_weights_make(const sp_model *model, const sp_layout *layout, const sp_stage *stages,
                            int pp, int tp_rank, int ep_rank, sp_i_exec_weights *weights)
{
    *weights = (sp_i_exec_weights){0};
    place p = {.tp = layout->tp,
               .tp_rank = tp_rank,
               .ep_rank = ep_rank,
               .vocab_rank = (layout->vocab_parallel ? pp * layout->tp : 0) + tp_rank,
               .later_vocabulary = layout->vocab_parallel && pp > 0};
    bool embedding = false;
    for (int c = 0; c < layout->chunks; c++) {
        embedding = embedding || stages[sp_layout_vstage(layout, pp, c)].embedding;
    }
    for (int c = 0; c < layout->chunks; c++) {
        int vstage = sp_layout_vstage(layout, pp, c);
        const sp_stage *stage = &stages[vstage];
        sp_parameter_list list = {0};
        sp_parameter_list_add(model, layout, stage, embedding, &list);
        for (size_t i = 0; i < list.count; i++) {
            const sp_parameter *parameter = &list.items[i];
            int kind =
                parameter->layer < 0 ? 0 : sp_model_kind_of(model, stage->first + parameter->layer);
            sp_model space;
            p.model = sp_model_of_kind(model, kind, &space);
            p.shard = sp_shard_of(p.model, layout);
            p.expert = next_expert(&p, parameter, p.expert);
            add_weight(&p, parameter, c, stage, weights);
        }
        sp_parameter_list_fini(&list);
    }
}

void sp_i_exec_weights_fini(sp_i_exec_weights *weights)
{
    sp_free(weights->items);
    *weights = (sp_i_exec_weights){0};
}

// ---- Starting values ----

uint64_t sp_i_exec_weight_seed(const sp_i_exec_weight *weight, uint64_t seed)
{
    return sp_i_exec_draw_name(seed, weight->name);
}

int64_t sp_i_exec_weight_index(const sp_i_exec_weight *weight, int64_t element)
{
    int64_t row = element / weight->columns;
    for (int r = 0; r < SP_I_EXEC_ROW_RUNS; r++) {
        if (row < weight->run[r].rows) {
            return (weight->run[r].from + row) * weight->all_columns + weight->first_column +
                   element % weight->columns;
        }
        row -= weight->run[r].rows;
    }
    return -1;
}

// An even spread over [-s sqrt(3), s sqrt(3)) has the standard deviation s.
double sp_i_exec_weight_start(const sp_i_exec_weight *weight, uint64_t tensor_seed, int64_t element)
{
    int64_t index = sp_i_exec_weight_index(weight, element);
    if (index < 0) {
        return 0.0;
    }
    double even = 2.0 * sp_i_exec_uniform(sp_i_exec_draw(tensor_seed, (uint64_t)index)) - 1.0;
    return weight->centre + weight->spread * sqrt(3.0) * even;
}
