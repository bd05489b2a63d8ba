#include "backends/host/weights.h"

#include <math.h>
#include <stdio.h>

#include "backends/host/draw.h"
#include "sim/base/alloc.h"
#include "sim/model/parameter_list.h"
#include "sim/model/shard.h"

#define TABLE_SPREAD 0.02

typedef struct writer {
    const sp_model *model;
    sp_i_shard shard;
    sp_i_host_weights *weights;
    int chunk, layers;
    bool failed;
} writer;

// The next tensor; `spread` 0: all elements start as `centre`.
static sp_i_host_weight *add(writer *w, int slot, int64_t rows, int64_t columns, double centre,
                             double spread)
{
    sp_i_host_weights *list = w->weights;
    if (w->failed || !sp_i_reserve((void **)&list->items, &list->capacity, list->count + 1,
                                   sizeof *list->items)) {
        w->failed = true;
        return NULL;
    }
    sp_i_host_weight *made = &list->items[list->count++];
    *made = (sp_i_host_weight){.chunk = w->chunk,
                               .slot = slot,
                               .offset = list->elements,
                               .elements = rows * columns,
                               .rows = rows,
                               .columns = columns,
                               .centre = centre,
                               .spread = spread};
    list->elements += made->elements;
    return made;
}

static void name_end(sp_i_host_weight *weight, const char *name)
{
    if (weight != NULL) {
        snprintf(weight->name, sizeof weight->name, "%s", name);
    }
}

static void name_layer(sp_i_host_weight *weight, int layer, const char *name)
{
    if (weight != NULL) {
        snprintf(weight->name, sizeof weight->name, "layers.%d.%s", layer, name);
    }
}

static void add_layer_norm(writer *w, int layer, int global, sp_i_host_layer_weight weight,
                           const char *weight_name, const char *bias_name)
{
    int slot = sp_i_host_layer_slot(layer, weight);
    name_layer(add(w, slot, 1, w->model->hidden, 1.0, 0.0), global, weight_name);
    if (w->model->norm == SP_LAYERNORM) {
        name_layer(add(w, slot + 1, 1, w->model->hidden, 0.0, 0.0), global, bias_name);
    }
}

// Weights start with a spread of 1/sqrt(inputs) (LeCun and others: "Efficient BackProp", 1998,
// equation 16), biases at 0.
static void add_linear(writer *w, int layer, int global, sp_i_host_layer_weight weight,
                       int64_t outputs, int64_t inputs, bool bias, const char *weight_name,
                       const char *bias_name)
{
    int slot = sp_i_host_layer_slot(layer, weight);
    double spread = 1.0 / sqrt((double)inputs);
    name_layer(add(w, slot, outputs, inputs, 0.0, spread), global, weight_name);
    if (bias) {
        name_layer(add(w, slot + 1, 1, outputs, 0.0, 0.0), global, bias_name);
    }
}

static void add_layer(writer *w, int layer, int global)
{
    const sp_model *model = w->model;
    const sp_i_shard *shard = &w->shard;
    int64_t h = model->hidden;
    add_layer_norm(w, layer, global, SP_I_HOST_NORM1_WEIGHT, "norm1.weight", "norm1.bias");
    add_linear(w, layer, global, SP_I_HOST_QKV_WEIGHT, shard->q + 2 * shard->kv, h,
               model->bias || model->qkv_bias, "qkv.weight", "qkv.bias");
    add_linear(w, layer, global, SP_I_HOST_PROJECTION_WEIGHT, h, shard->q, model->bias,
               "projection.weight", "projection.bias");
    add_layer_norm(w, layer, global, SP_I_HOST_NORM2_WEIGHT, "norm2.weight", "norm2.bias");
    add_linear(w, layer, global, SP_I_HOST_FC1_WEIGHT, shard->fc1, h, model->bias, "fc1.weight",
               "fc1.bias");
    add_linear(w, layer, global, SP_I_HOST_FC2_WEIGHT, h, shard->ffn, model->bias, "fc2.weight",
               "fc2.bias");
}

static void add_embedding(writer *w)
{
    const sp_model *model = w->model;
    int slot = sp_i_host_end_slot(w->layers, SP_I_HOST_TOKEN_TABLE);
    name_end(add(w, slot, w->shard.vocab, model->hidden, 0.0, TABLE_SPREAD), "embedding.tokens");
    if (model->positional == SP_LEARNED) {
        slot = sp_i_host_end_slot(w->layers, SP_I_HOST_POSITION_TABLE);
        name_end(add(w, slot, model->max_positions, model->hidden, 0.0, TABLE_SPREAD),
                 "embedding.positions");
    }
}

static void add_head(writer *w, bool table)
{
    const sp_model *model = w->model;
    int slot = sp_i_host_end_slot(w->layers, SP_I_HOST_FINAL_WEIGHT);
    name_end(add(w, slot, 1, model->hidden, 1.0, 0.0), "final_norm.weight");
    if (model->norm == SP_LAYERNORM) {
        name_end(add(w, slot + 1, 1, model->hidden, 0.0, 0.0), "final_norm.bias");
    }
    if (!table) {
        return;
    }
    slot = sp_i_host_end_slot(w->layers, SP_I_HOST_HEAD_TABLE);
    sp_i_host_weight *made = add(w, slot, w->shard.vocab, model->hidden, 0.0, TABLE_SPREAD);
    name_end(made, model->tied_embeddings ? "embedding.tokens" : "head.weight");
    if (made != NULL) {
        made->copy = model->tied_embeddings;
    }
}

// The predictor's list says which of the tensors decay, and must agree in every size.
static sp_status follow_list(writer *w, const sp_layout *layout, const sp_stage *stage, bool table,
                             size_t first, sp_error *err)
{
    sp_parameter_list list = {0};
    if (w->failed || !sp_parameter_list_add(w->model, layout, stage, table, &list)) {
        sp_parameter_list_fini(&list);
        return sp_error_no_memory(err, "the parameters of a rank");
    }
    SP_ASSERT(list.count == w->weights->count - first);
    for (size_t i = 0; i < list.count; i++) {
        sp_i_host_weight *weight = &w->weights->items[first + i];
        SP_ASSERT(weight->elements == list.items[i].elements);
        weight->decays = list.items[i].decays;
    }
    sp_parameter_list_fini(&list);
    return SP_OK;
}

static int first_layer_of(const sp_stage *stages, int vstage)
{
    int layers = 0;
    for (int s = 0; s < vstage; s++) {
        layers += stages[s].layers;
    }
    return layers;
}

sp_status sp_i_host_weights_make(const sp_model *model, const sp_layout *layout,
                                 const sp_stage *stages, int pp, sp_i_host_weights *weights,
                                 sp_error *err)
{
    *weights = (sp_i_host_weights){0};
    writer w = {.model = model, .shard = sp_i_shard_of(model, layout), .weights = weights};
    bool embedding = false;
    for (int c = 0; c < layout->chunks; c++) {
        embedding = embedding || stages[sp_layout_vstage(layout, pp, c)].embedding;
    }
    sp_status status = SP_OK;
    for (int c = 0; status == SP_OK && c < layout->chunks; c++) {
        int vstage = sp_layout_vstage(layout, pp, c);
        const sp_stage *stage = &stages[vstage];
        size_t first = weights->count;
        bool table = stage->head && !(model->tied_embeddings && embedding);
        w.chunk = c;
        w.layers = stage->layers;
        if (stage->embedding) {
            add_embedding(&w);
        }
        for (int l = 0; l < stage->layers; l++) {
            add_layer(&w, l, first_layer_of(stages, vstage) + l);
        }
        if (stage->head) {
            add_head(&w, table);
        }
        status = follow_list(&w, layout, stage, table, first, err);
    }
    return status;
}

void sp_i_host_weights_fini(sp_i_host_weights *weights)
{
    sp_i_free(weights->items);
    *weights = (sp_i_host_weights){0};
}

uint64_t sp_i_host_weight_seed(const sp_i_host_weight *weight, uint64_t seed)
{
    return sp_i_host_draw_name(seed, weight->name);
}

// An even spread over [-s sqrt(3), s sqrt(3)) has the standard deviation s.
double sp_i_host_weight_start(const sp_i_host_weight *weight, uint64_t tensor_seed, int64_t index)
{
    double place = 2.0 * sp_i_host_unit(sp_i_host_draw(tensor_seed, (uint64_t)index)) - 1.0;
    return weight->centre + weight->spread * sqrt(3.0) * place;
}
