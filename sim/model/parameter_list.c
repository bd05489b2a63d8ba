#include "sim/model/parameter_list.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/model/layer.h"
#include "sim/model/layout.h"

#define TABLE_SPREAD 0.02

const char *const sp_parameter_names[SP_PARAMETER_KINDS] = {
    [SP_PARAMETER_NORM1_WEIGHT] = "norm1.weight",
    [SP_PARAMETER_NORM1_BIAS] = "norm1.bias",
    [SP_PARAMETER_QKV_WEIGHT] = "qkv.weight",
    [SP_PARAMETER_QKV_BIAS] = "qkv.bias",
    [SP_PARAMETER_QUERY_NORM_WEIGHT] = "query_norm.weight",
    [SP_PARAMETER_QUERY_NORM_BIAS] = "query_norm.bias",
    [SP_PARAMETER_KEY_NORM_WEIGHT] = "key_norm.weight",
    [SP_PARAMETER_KEY_NORM_BIAS] = "key_norm.bias",
    [SP_PARAMETER_Q_WEIGHT] = "q.weight",
    [SP_PARAMETER_Q_BIAS] = "q.bias",
    [SP_PARAMETER_Q_DOWN_WEIGHT] = "q_down.weight",
    [SP_PARAMETER_Q_DOWN_BIAS] = "q_down.bias",
    [SP_PARAMETER_Q_UP_WEIGHT] = "q_up.weight",
    [SP_PARAMETER_Q_UP_BIAS] = "q_up.bias",
    [SP_PARAMETER_KV_DOWN_WEIGHT] = "kv_down.weight",
    [SP_PARAMETER_KV_DOWN_BIAS] = "kv_down.bias",
    [SP_PARAMETER_KV_UP_WEIGHT] = "kv_up.weight",
    [SP_PARAMETER_KV_UP_BIAS] = "kv_up.bias",
    [SP_PARAMETER_Q_LATENT_NORM_WEIGHT] = "q_latent_norm.weight",
    [SP_PARAMETER_Q_LATENT_NORM_BIAS] = "q_latent_norm.bias",
    [SP_PARAMETER_KV_LATENT_NORM_WEIGHT] = "kv_latent_norm.weight",
    [SP_PARAMETER_KV_LATENT_NORM_BIAS] = "kv_latent_norm.bias",
    [SP_PARAMETER_SINKS] = "sinks",
    [SP_PARAMETER_PROJECTION_WEIGHT] = "projection.weight",
    [SP_PARAMETER_PROJECTION_BIAS] = "projection.bias",
    [SP_PARAMETER_POST_NORM1_WEIGHT] = "post_norm1.weight",
    [SP_PARAMETER_POST_NORM1_BIAS] = "post_norm1.bias",
    [SP_PARAMETER_STATE_IN_WEIGHT] = "state.in.weight",
    [SP_PARAMETER_STATE_IN_BIAS] = "state.in.bias",
    [SP_PARAMETER_STATE_CONV_WEIGHT] = "state.conv.weight",
    [SP_PARAMETER_STATE_CONV_BIAS] = "state.conv.bias",
    [SP_PARAMETER_STATE_RATES] = "state.rates",
    [SP_PARAMETER_STATE_NORM] = "state.norm.weight",
    [SP_PARAMETER_STATE_OUT_WEIGHT] = "state.out.weight",
    [SP_PARAMETER_STATE_OUT_BIAS] = "state.out.bias",
    [SP_PARAMETER_NORM2_WEIGHT] = "norm2.weight",
    [SP_PARAMETER_NORM2_BIAS] = "norm2.bias",
    [SP_PARAMETER_ROUTER_WEIGHT] = "router.weight",
    [SP_PARAMETER_ROUTER_BIAS] = "router.bias",
    [SP_PARAMETER_EXPERT_DOWN_WEIGHT] = "expert_down.weight",
    [SP_PARAMETER_EXPERT_DOWN_BIAS] = "expert_down.bias",
    [SP_PARAMETER_EXPERT_UP_WEIGHT] = "expert_up.weight",
    [SP_PARAMETER_EXPERT_UP_BIAS] = "expert_up.bias",
    [SP_PARAMETER_FC1_WEIGHT] = "fc1.weight",
    [SP_PARAMETER_FC1_BIAS] = "fc1.bias",
    [SP_PARAMETER_FC2_WEIGHT] = "fc2.weight",
    [SP_PARAMETER_FC2_BIAS] = "fc2.bias",
    [SP_PARAMETER_SHARED_FC1_WEIGHT] = "shared.fc1.weight",
    [SP_PARAMETER_SHARED_FC1_BIAS] = "shared.fc1.bias",
    [SP_PARAMETER_SHARED_FC2_WEIGHT] = "shared.fc2.weight",
    [SP_PARAMETER_SHARED_FC2_BIAS] = "shared.fc2.bias",
    [SP_PARAMETER_SHARED_GATE_WEIGHT] = "shared.gate.weight",
    [SP_PARAMETER_POST_NORM2_WEIGHT] = "post_norm2.weight",
    [SP_PARAMETER_POST_NORM2_BIAS] = "post_norm2.bias",
    [SP_PARAMETER_ADAPTER_A] = "adapter_a.weight",
    [SP_PARAMETER_ADAPTER_B] = "adapter_b.weight",
    [SP_PARAMETER_TOKEN_TABLE] = "embedding.tokens",
    [SP_PARAMETER_POSITION_TABLE] = "embedding.positions",
    [SP_PARAMETER_FINAL_WEIGHT] = "final_norm.weight",
    [SP_PARAMETER_FINAL_BIAS] = "final_norm.bias",
    [SP_PARAMETER_HEAD_TABLE] = "head.weight",
    [SP_PARAMETER_MTP_WEIGHT] = "further.weight",
    [SP_PARAMETER_MTP_NORM_WEIGHT] = "further_norm.weight",
    [SP_PARAMETER_MTP_NORM_BIAS] = "further_norm.bias",
    [SP_PARAMETER_HEAD_BIAS] = "head.bias"};

// Appends one; the rest of its description is the caller's.
static void add(sp_parameter_list *list, int layer, sp_parameter_kind kind, sp_parameter parameter)
{
    parameter.kind = kind;
    parameter.layer = layer;
    parameter.elements = parameter.rows * parameter.columns;
    parameter.decays = parameter.spread > 0.0;
    sp_reserve((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items);
    list->items[list->count++] = parameter;
}

static void add_table(sp_parameter_list *list, sp_parameter_kind kind, int64_t rows,
                      int64_t all_rows, int64_t columns)
{
    add(list, -1, kind,
        (sp_parameter){.rows = rows,
                       .columns = columns,
                       .all_rows = all_rows,
                       .all_columns = columns,
                       .spread = TABLE_SPREAD});
}

// One that starts at 0.
static void add_vector(sp_parameter_list *list, int layer, sp_parameter_kind kind, int64_t rows,
                       int64_t all_rows)
{
    add(list, layer, kind,
        (sp_parameter){.rows = rows, .columns = 1, .all_rows = all_rows, .all_columns = 1});
}

static void add_norm(sp_parameter_list *list, int layer, sp_parameter_kind kind,
                     const sp_model *model, int64_t width)
{
    sp_parameter vector = {
        .rows = 1, .columns = width, .all_rows = 1, .all_columns = width, .centre = 1.0};
    add(list, layer, kind, vector);
    if (model->norm == SP_LAYERNORM) {
        vector.centre = 0.0;
        add(list, layer, kind + 1, vector);
    }
}

// The shares of a model's widths on this rank, and all of them.
typedef struct shares {
    const sp_model *model;
    sp_shard rank, whole;
} shares;

// A starts as a weight, B at 0 (LoRA, section 4.1), which decays all the same.
static void add_adapters(sp_parameter_list *list, int layer, const shares *s, sp_layer_place step)
{
    const sp_layer_adapters own = sp_layer_adapters_of(s->model, &s->rank, step);
    const sp_layer_adapters all = sp_layer_adapters_of(s->model, &s->whole, step);
    for (int i = 0; i < own.count; i++) {
        sp_parameter first = {.rows = own.low,
                              .columns = own.inputs,
                              .all_rows = all.low,
                              .all_columns = all.inputs,
                              .spread = 1.0 / sqrt((double)all.inputs)};
        sp_parameter second = {.rows = own.outputs[i],
                               .columns = own.rank,
                               .all_rows = all.outputs[i],
                               .all_columns = all.rank};
        add(list, layer, SP_PARAMETER_ADAPTER_A, first);
        add(list, layer, SP_PARAMETER_ADAPTER_B, second);
        list->items[list->count - 1].decays = true;
    }
}

// Weights start with a spread of 1/sqrt(inputs) (LeCun and others: "Efficient BackProp", 1998,
// equation 16), biases at 0.
static void add_linear(sp_parameter_list *list, int layer, const shares *s, sp_layer_place step)
{
    sp_layer_linear own, all;
    if (!sp_layer_linear_of(s->model, &s->rank, step, &own) ||
        !sp_layer_linear_of(s->model, &s->whole, step, &all)) {
        return;
    }
    sp_parameter parameter = {.rows = own.outputs,
                              .columns = own.inputs,
                              .all_rows = all.outputs,
                              .all_columns = all.inputs,
                              .spread = 1.0 / sqrt((double)all.inputs),
                              .of_experts = own.of_experts};
    add(list, layer, sp_layer_steps[step].weight, parameter);
    if (own.bias) {
        parameter.columns = parameter.all_columns = 1;
        parameter.spread = 0.0;
        add(list, layer, sp_layer_steps[step].weight + 1, parameter);
    }
    add_adapters(list, layer, s, step);
}

static void add_latent(sp_parameter_list *list, int layer, const shares *s)
{
    static const sp_layer_place products[] = {SP_STEP_Q, SP_STEP_Q_DOWN, SP_STEP_Q_UP,
                                              SP_STEP_KV_DOWN, SP_STEP_KV_UP};
    for (size_t p = 0; p < sizeof products / sizeof products[0]; p++) {
        add_linear(list, layer, s, products[p]);
    }
    if (s->model->q_lora_rank > 0) {
        add_norm(list, layer, SP_PARAMETER_Q_LATENT_NORM_WEIGHT, s->model, s->model->q_lora_rank);
    }
    if (sp_model_is_latent(s->model)) {
        add_norm(list, layer, SP_PARAMETER_KV_LATENT_NORM_WEIGHT, s->model, s->model->kv_lora_rank);
    }
}

static void add_attention(sp_parameter_list *list, int layer, const shares *s)
{
    const sp_model *model = s->model;
    add_linear(list, layer, s, SP_STEP_QKV);
    if (model->qk_norm) {
        add_norm(list, layer, SP_PARAMETER_QUERY_NORM_WEIGHT, model, sp_model_query_norm(model));
        add_norm(list, layer, SP_PARAMETER_KEY_NORM_WEIGHT, model, sp_model_key_norm(model));
    }
    if (model->attention_sinks) {
        add_vector(list, layer, SP_PARAMETER_SINKS, s->rank.heads, s->whole.heads);
    }
    add_latent(list, layer, s);
    add_linear(list, layer, s, SP_STEP_OUTPUT);
}

static void add_state(sp_parameter_list *list, int layer, const shares *s)
{
    int64_t own[SP_STATE_PARTS];
    int64_t all[SP_STATE_PARTS];
    sp_layer_state_parameters(s->model, &s->rank, own);
    sp_layer_state_parameters(s->model, &s->whole, all);
    add_linear(list, layer, s, SP_STEP_STATE_IN);
    for (int p = 0; p < SP_STATE_PARTS; p++) {
        if (all[p] > 0) {
            add_vector(list, layer, (sp_parameter_kind)(SP_PARAMETER_STATE_CONV_WEIGHT + p), own[p],
                       all[p]);
        }
    }
    add_linear(list, layer, s, SP_STEP_STATE_OUT);
}

static void add_mlp(sp_parameter_list *list, int layer, const shares *s)
{
    const sp_model *model = s->model;
    if (!model->post_norms_alone && model->blocks != SP_BLOCKS_ONE_NORM) {
        add_norm(list, layer, SP_PARAMETER_NORM2_WEIGHT, model, model->hidden);
    }
    add_linear(list, layer, s, SP_STEP_ROUTER);
    add_linear(list, layer, s, SP_STEP_EXPERT_DOWN);
    add_linear(list, layer, s, SP_STEP_EXPERT_UP);
    for (int64_t e = 0; e < s->rank.held; e++) {
        add_linear(list, layer, s, SP_STEP_FC1);
        add_linear(list, layer, s, SP_STEP_FC2);
    }
    add_linear(list, layer, s, SP_STEP_SHARED_FC1);
    add_linear(list, layer, s, SP_STEP_SHARED_FC2);
    add_linear(list, layer, s, SP_STEP_SHARED_GATE);
    if (model->post_norms) {
        add_norm(list, layer, SP_PARAMETER_POST_NORM2_WEIGHT, model, model->hidden);
    }
}

static void add_layer(sp_parameter_list *list, int layer, const shares *s)
{
    const sp_model *model = s->model;
    if (model->mixer != SP_MIXER_NONE) {
        if (!model->post_norms_alone) {
            add_norm(list, layer, SP_PARAMETER_NORM1_WEIGHT, model, model->hidden);
        }
        (model->mixer == SP_MIXER_ATTENTION ? add_attention : add_state)(list, layer, s);
        if (model->post_norms) {
            add_norm(list, layer, SP_PARAMETER_POST_NORM1_WEIGHT, model, model->hidden);
        }
    }
    if (!model->without_mlp) {
        add_mlp(list, layer, s);
    }
}

// Adds the further layers, which are like the one that begins at `first`.
static void repeat_layer(sp_parameter_list *list, size_t first, int layers)
{
    size_t each = list->count - first;
    sp_reserve((void **)&list->items, &list->capacity, first + each * (size_t)layers,
               sizeof *list->items);
    for (int layer = 1; layer < layers; layer++) {
        for (size_t i = 0; i < each; i++) {
            sp_parameter *added = &list->items[list->count++];
            *added = list->items[first + i];
            added->layer = layer;
        }
    }
}

static void add_stage(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                      bool embedded, sp_parameter_list *list)
{
    const sp_layout alone = {.tp = 1};
    const shares s = {model, sp_shard_of(model, layout), sp_shard_of(model, &alone)};
    int64_t h = model->hidden;
    if (stage->embedding) {
        add_table(list, SP_PARAMETER_TOKEN_TABLE, s.rank.vocab, model->vocab, h);
        if (model->positional == SP_LEARNED) {
            int64_t positions = model->max_positions;
            add_table(list, SP_PARAMETER_POSITION_TABLE, positions, positions, h);
        }
    }
    if (stage->layers > 0 && model->runs == 0) {
        size_t first = list->count;
        add_layer(list, 0, &s);
        repeat_layer(list, first, stage->layers);
    }
    for (int layer = 0; model->runs > 0 && layer < stage->layers; layer++) {
        sp_model space;
        const sp_model *alike =
            sp_model_of_kind(model, sp_model_kind_of(model, stage->first + layer), &space);
        const shares own = {alike, sp_shard_of(alike, layout), sp_shard_of(alike, &alone)};
        add_layer(list, layer, &own);
    }
    if (stage->head) {
        add_norm(list, -1, SP_PARAMETER_FINAL_WEIGHT, model, h);
        if (!model->tied_embeddings || !embedded) {
            add_table(list, SP_PARAMETER_HEAD_TABLE, s.rank.vocab, model->vocab, h);
        }
        if (model->mtp_layers > 0 && !model->tied_embeddings && !embedded) {
            add_table(list, SP_PARAMETER_TOKEN_TABLE, s.rank.vocab, model->vocab, h);
        }
        for (int further = 0; further < model->mtp_layers; further++) {
            for (int norm = 0; norm < 3; norm++) {
                add_norm(list, -1, SP_PARAMETER_MTP_NORM_WEIGHT, model, h);
            }
            add(list, -1, SP_PARAMETER_MTP_WEIGHT,
                (sp_parameter){.rows = h / layout->tp,
                               .columns = 2 * h,
                               .all_rows = h,
                               .all_columns = 2 * h,
                               .spread = 1.0 / sqrt(2.0 * (double)h)});
        }
        if (model->head_bias) {
            add_vector(list, -1, SP_PARAMETER_HEAD_BIAS, s.rank.vocab, model->vocab);
        }
    }
}

void sp_parameter_list_add(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                           bool embedded, sp_parameter_list *list)
{
    size_t first = list->count;
    add_stage(model, layout, stage, embedded, list);
    for (size_t i = first; i < list->count; i++) {
        sp_parameter *added = &list->items[i];
        bool adapter =
            added->kind == SP_PARAMETER_ADAPTER_A || added->kind == SP_PARAMETER_ADAPTER_B;
        added->frozen = sp_model_is_frozen(model) && !adapter;
    }
}

void sp_parameter_list_fini(sp_parameter_list *list)
{
    sp_free(list->items);
    *list = (sp_parameter_list){0};
}
