#include "sim/model/parameter_list.h"

#include <math.h>

#include "sim/base/alloc.h"
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
    [SP_PARAMETER_PROJECTION_WEIGHT] = "projection.weight",
    [SP_PARAMETER_PROJECTION_BIAS] = "projection.bias",
    [SP_PARAMETER_NORM2_WEIGHT] = "norm2.weight",
    [SP_PARAMETER_NORM2_BIAS] = "norm2.bias",
    [SP_PARAMETER_ROUTER_WEIGHT] = "router.weight",
    [SP_PARAMETER_FC1_WEIGHT] = "fc1.weight",
    [SP_PARAMETER_FC1_BIAS] = "fc1.bias",
    [SP_PARAMETER_FC2_WEIGHT] = "fc2.weight",
    [SP_PARAMETER_FC2_BIAS] = "fc2.bias",
    [SP_PARAMETER_TOKEN_TABLE] = "embedding.tokens",
    [SP_PARAMETER_POSITION_TABLE] = "embedding.positions",
    [SP_PARAMETER_FINAL_WEIGHT] = "final_norm.weight",
    [SP_PARAMETER_FINAL_BIAS] = "final_norm.bias",
    [SP_PARAMETER_HEAD_TABLE] = "head.weight"};

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

// A linear layer on this rank and in whole.
typedef struct product {
    int64_t inputs, outputs, all_inputs, all_outputs;
    bool bias;
} product;

// Weights start with a spread of 1/sqrt(inputs) (LeCun and others: "Efficient BackProp", 1998,
// equation 16), biases at 0.
static void add_linear(sp_parameter_list *list, int layer, sp_parameter_kind kind, product p)
{
    sp_parameter parameter = {.rows = p.outputs,
                              .columns = p.inputs,
                              .all_rows = p.all_outputs,
                              .all_columns = p.all_inputs,
                              .spread = 1.0 / sqrt((double)p.all_inputs)};
    add(list, layer, kind, parameter);
    if (p.bias) {
        parameter.columns = parameter.all_columns = 1;
        parameter.spread = 0.0;
        add(list, layer, kind + 1, parameter);
    }
}

static void add_layer(sp_parameter_list *list, int layer, const sp_model *model,
                      const sp_shard *shard)
{
    int64_t h = model->hidden;
    int64_t all_q = model->heads * model->head_dim;
    int64_t all_kv = model->kv_heads * model->head_dim;
    int64_t all_fc1 = (model->activation == SP_SWIGLU ? 2 : 1) * model->ffn;
    add_norm(list, layer, SP_PARAMETER_NORM1_WEIGHT, model, h);
    add_linear(list, layer, SP_PARAMETER_QKV_WEIGHT,
               (product){h, shard->q + 2 * shard->kv, h, all_q + 2 * all_kv,
                         model->bias || model->qkv_bias});
    if (model->qk_norm) {
        add_norm(list, layer, SP_PARAMETER_QUERY_NORM_WEIGHT, model, model->head_dim);
        add_norm(list, layer, SP_PARAMETER_KEY_NORM_WEIGHT, model, model->head_dim);
    }
    add_linear(list, layer, SP_PARAMETER_PROJECTION_WEIGHT,
               (product){shard->q, h, all_q, h, model->bias});
    add_norm(list, layer, SP_PARAMETER_NORM2_WEIGHT, model, h);
    if (model->experts > 0) {
        add_linear(list, layer, SP_PARAMETER_ROUTER_WEIGHT,
                   (product){h, model->experts, h, model->experts, false});
    }
    for (int64_t e = 0; e < shard->experts; e++) {
        add_linear(list, layer, SP_PARAMETER_FC1_WEIGHT,
                   (product){h, shard->fc1, h, all_fc1, model->bias});
        add_linear(list, layer, SP_PARAMETER_FC2_WEIGHT,
                   (product){shard->ffn, h, model->ffn, h, model->bias});
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

void sp_parameter_list_add(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                           bool head_table, sp_parameter_list *list)
{
    sp_shard shard = sp_shard_of(model, layout);
    int64_t h = model->hidden;
    if (stage->embedding) {
        add_table(list, SP_PARAMETER_TOKEN_TABLE, shard.vocab, model->vocab, h);
        if (model->positional == SP_LEARNED) {
            int64_t positions = model->max_positions;
            add_table(list, SP_PARAMETER_POSITION_TABLE, positions, positions, h);
        }
    }
    if (stage->layers > 0) {
        size_t first = list->count;
        add_layer(list, 0, model, &shard);
        repeat_layer(list, first, stage->layers);
    }
    if (stage->head) {
        add_norm(list, -1, SP_PARAMETER_FINAL_WEIGHT, model, h);
        if (head_table) {
            add_table(list, SP_PARAMETER_HEAD_TABLE, shard.vocab, model->vocab, h);
        }
    }
}

void sp_parameter_list_fini(sp_parameter_list *list)
{
    sp_free(list->items);
    *list = (sp_parameter_list){0};
}
