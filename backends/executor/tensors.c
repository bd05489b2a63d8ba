#include "backends/executor/tensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/model/layout.h"
#include "sim/model/parameter_list.h"

// ---- Tensors of a layer and of the head ----

enum { BF16 = 2, FP32 = 4, MASK = 1 };

typedef struct saved_rows {
    sp_saved_tensor row[SP_SAVED_TENSORS];
    int count, cp;
} saved_rows;

static const sp_saved_tensor *find(const saved_rows *rows, const char *name)
{
    for (int r = 0; r < rows->count; r++) {
        if (strcmp(rows->row[r].name, name) == 0) {
            return &rows->row[r];
        }
    }
    SP_UNREACHABLE(name);
}

// The table has logits as their softmax in fp32; here they are values.
static int64_t real_bytes_of(const sp_i_exec_specs *specs, const sp_saved_tensor *row)
{
    if (row->element_bytes == MASK) {
        return MASK;
    }
    return row->element_bytes == FP32 && !row->is_logits ? specs->statistic.real_bytes
                                                         : specs->value.real_bytes;
}

// A tensor that the table has.
static void set(sp_i_exec_specs *specs, sp_i_exec_tensor tensor, const saved_rows *rows,
                const char *name, sp_recompute mode)
{
    const sp_saved_tensor *row = find(rows, name);
    specs->of[tensor] = (sp_i_exec_spec){
        .name = row->name,
        .columns = row->row_bytes / row->element_bytes,
        .width = {.real_bytes = real_bytes_of(specs, row), .table_bytes = row->element_bytes},
        .category = row->is_logits ? SP_MEM_LOGITS : SP_MEM_ACTIVATIONS,
        .kept = (row->kept >> mode & 1u) != 0,
        .own = row->shard != rows->cp};
}

// A number for each token that the table leaves out; kept with another tensor.
static void set_statistic(sp_i_exec_specs *specs, sp_i_exec_tensor tensor, sp_i_exec_tensor with)
{
    specs->of[tensor] = (sp_i_exec_spec){.columns = 1,
                                         .width = specs->statistic,
                                         .category = SP_MEM_WORKSPACE,
                                         .kept = specs->of[with].kept,
                                         .own = specs->of[with].own};
}

static void set_layer(const saved_rows *rows, sp_recompute mode, sp_i_exec_specs *specs)
{
    set(specs, SP_I_EXEC_INPUT, rows, "layer input", mode);
    set(specs, SP_I_EXEC_NORM1, rows, "first norm output", mode);
    set(specs, SP_I_EXEC_QUERIES, rows, "queries", mode);
    set(specs, SP_I_EXEC_ATTENTION, rows, "attention output", mode);
    set(specs, SP_I_EXEC_LSE, rows, "log-sum-exp", mode);
    set(specs, SP_I_EXEC_RESIDUAL, rows, "residual", mode);
    set(specs, SP_I_EXEC_NORM2, rows, "second norm output", mode);
    set(specs, SP_I_EXEC_FC1, rows, "fc1 output", mode);
    set(specs, SP_I_EXEC_FC2_INPUT, rows, "fc2 input", mode);
    set_statistic(specs, SP_I_EXEC_MEAN1, SP_I_EXEC_NORM1);
    set_statistic(specs, SP_I_EXEC_RSTD1, SP_I_EXEC_NORM1);
    set_statistic(specs, SP_I_EXEC_MEAN2, SP_I_EXEC_NORM2);
    set_statistic(specs, SP_I_EXEC_RSTD2, SP_I_EXEC_NORM2);
    const sp_saved_tensor *kv = find(rows, "keys and values");
    specs->kv_columns = kv->row_bytes / kv->element_bytes;
    specs->keeps_kv = (kv->kept >> mode & 1u) != 0;
}

// The table has masks only for models that train with dropout.
static void set_masks(const saved_rows *rows, sp_recompute mode, sp_i_exec_specs *specs)
{
    set(specs, SP_I_EXEC_ATTENTION_MASK, rows, "attention block dropout mask", mode);
    set(specs, SP_I_EXEC_MLP_MASK, rows, "MLP dropout mask", mode);
}

static void set_head(const saved_rows *rows, sp_recompute mode, sp_i_exec_specs *specs)
{
    set(specs, SP_I_EXEC_FINAL_INPUT, rows, "final norm input", mode);
    set(specs, SP_I_EXEC_FINAL_NORM, rows, "final norm output", mode);
    set(specs, SP_I_EXEC_LOGITS, rows, SP_SOFTMAX_NAME, mode);
    set_statistic(specs, SP_I_EXEC_FINAL_MEAN, SP_I_EXEC_FINAL_NORM);
    set_statistic(specs, SP_I_EXEC_FINAL_RSTD, SP_I_EXEC_FINAL_NORM);
    set_statistic(specs, SP_I_EXEC_FINAL_LSE, SP_I_EXEC_LOGITS);
}

void sp_i_exec_specs_make(const sp_model *model, const sp_layout *layout, sp_recompute recompute,
                          int64_t real_bytes, int64_t exact_bytes, sp_i_exec_specs *specs)
{
    const sp_memory_options options = {.recompute = recompute, .stack = {.fused_swiglu = true}};
    saved_rows rows = {.cp = layout->cp};
    *specs = (sp_i_exec_specs){.recompute = recompute,
                               .value = {real_bytes, BF16},
                               .statistic = {exact_bytes, FP32},
                               .scratch = {exact_bytes, 0}};
    rows.count = sp_saved_layer(model, layout, &options, rows.row);
    set_layer(&rows, recompute, specs);
    specs->drops = sp_shard_of(model, layout).dropout;
    if (specs->drops) {
        set_masks(&rows, recompute, specs);
        rows.count = sp_saved_part(model, layout, &options.stack, SP_PART_EMBEDDING, rows.row);
        set(specs, SP_I_EXEC_EMBEDDING_MASK, &rows, "embedding dropout mask", recompute);
    }
    rows.count = sp_saved_part(model, layout, &options.stack, SP_PART_HEAD, rows.row);
    set_head(&rows, recompute, specs);
}

// ---- Parameters ----

#define TABLE_SPREAD 0.02

typedef struct writer {
    const sp_model *model;
    sp_shard shard;
    int tp, tp_rank;
    int vocab_rank;        // of the ranks that share the vocabulary tables
    bool later_vocabulary; // an earlier rank's tables have these names
    sp_i_exec_weights *weights;
    int chunk, layers;
} writer;

// The next tensor; `spread` 0: all elements start as `centre`.
static sp_i_exec_weight *add(writer *w, int slot, int64_t rows, int64_t columns, double centre,
                             double spread)
{
    sp_i_exec_weights *list = w->weights;
    sp_reserve((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items);
    sp_i_exec_weight *made = &list->items[list->count++];
    *made = (sp_i_exec_weight){.chunk = w->chunk,
                               .slot = slot,
                               .offset = list->elements,
                               .elements = rows * columns,
                               .rows = rows,
                               .columns = columns,
                               .all_rows = rows,
                               .all_columns = columns,
                               .run = {{rows, 0}},
                               .centre = centre,
                               .spread = spread};
    list->elements += made->elements;
    return made;
}

static void name_end(const writer *w, sp_i_exec_weight *weight, const char *name)
{
    snprintf(weight->name, sizeof weight->name, "%s", name);
    weight->copy = w->later_vocabulary && !weight->continued;
}

static void name_layer(sp_i_exec_weight *weight, int layer, const char *name)
{
    snprintf(weight->name, sizeof weight->name, "layers.%d.%s", layer, name);
}

// Sequence parallelism: each rank saw its own part of the tokens.
static void share_sum(const writer *w, sp_i_exec_weight *weight)
{
    if (w->shard.norm_split > 1) {
        weight->shared_elements = weight->elements;
        weight->shared_by = w->shard.norm_split;
    }
}

static sp_i_exec_weight *add_norm(writer *w, int slot, double start)
{
    sp_i_exec_weight *made = add(w, slot, 1, w->model->hidden, start, 0.0);
    share_sum(w, made);
    return made;
}

static void add_layer_norm(writer *w, int layer, int global, sp_i_exec_layer_weight weight,
                           const char *weight_name, const char *bias_name)
{
    int slot = sp_i_exec_layer_slot(layer, weight);
    name_layer(add_norm(w, slot, 1.0), global, weight_name);
    if (w->model->norm == SP_LAYERNORM) {
        name_layer(add_norm(w, slot + 1, 0.0), global, bias_name);
    }
}

// A linear layer on this rank: outputs that follow one another in up to three groups, or a share of
// the inputs.
typedef struct product {
    sp_i_exec_layer_weight weight;
    int64_t outputs, inputs, all_outputs, all_inputs;
    sp_i_exec_row_run run[SP_I_EXEC_ROW_RUNS];
    int64_t first_input;
    int64_t shared_first, shared_outputs;
    int shared_by;
    bool bias;
    const char *weight_name, *bias_name;
} product;

static void place_outputs(const product *p, int64_t columns, int64_t all_columns,
                          sp_i_exec_weight *made)
{
    made->all_rows = p->all_outputs;
    made->all_columns = all_columns;
    memcpy(made->run, p->run, sizeof made->run);
    made->shared_first = p->shared_first * columns;
    made->shared_elements = p->shared_outputs * columns;
    made->shared_by = p->shared_by;
}

// Weights start with a spread of 1/sqrt(inputs) (LeCun and others: "Efficient BackProp", 1998,
// equation 16), biases at 0.
static void add_linear(writer *w, int layer, int global, const product *p)
{
    int slot = sp_i_exec_layer_slot(layer, p->weight);
    double spread = 1.0 / sqrt((double)p->all_inputs);
    sp_i_exec_weight *made = add(w, slot, p->outputs, p->inputs, 0.0, spread);
    place_outputs(p, p->inputs, p->all_inputs, made);
    made->first_column = p->first_input;
    name_layer(made, global, p->weight_name);
    if (p->bias) {
        made = add(w, slot + 1, p->outputs, 1, 0.0, 0.0);
        place_outputs(p, 1, 1, made);
        name_layer(made, global, p->bias_name);
    }
}

// Each rank has its share of the query heads, and of the heads of keys and values; where those are
// fewer than the ranks, neighbours hold the same one.
static void add_qkv(writer *w, int layer, int global)
{
    const sp_model *model = w->model;
    const sp_shard *shard = &w->shard;
    int64_t all_q = model->heads * model->head_dim;
    int64_t all_kv = model->kv_heads * model->head_dim;
    int64_t kv_from = w->tp_rank * model->kv_heads / w->tp * model->head_dim;
    int replicas = model->kv_heads < w->tp ? (int)(w->tp / model->kv_heads) : 0;
    const product p = {
        .weight = SP_I_EXEC_QKV_WEIGHT,
        .outputs = shard->q + 2 * shard->kv,
        .inputs = model->hidden,
        .all_outputs = all_q + 2 * all_kv,
        .all_inputs = model->hidden,
        .run = {{shard->q, w->tp_rank * shard->q},
                {shard->kv, all_q + kv_from},
                {shard->kv, all_q + all_kv + kv_from}},
        .shared_first = shard->q,
        .shared_outputs = replicas > 0 ? 2 * shard->kv : 0,
        .shared_by = replicas,
        .bias = model->bias || model->qkv_bias,
        .weight_name = "qkv.weight",
        .bias_name = "qkv.bias",
    };
    add_linear(w, layer, global, &p);
}

static void add_fc1(writer *w, int layer, int global)
{
    const sp_model *model = w->model;
    int64_t ffn = w->shard.ffn;
    int64_t from = w->tp_rank * ffn;
    bool gated = model->activation == SP_SWIGLU;
    const product p = {.weight = SP_I_EXEC_FC1_WEIGHT,
                       .outputs = w->shard.fc1,
                       .inputs = model->hidden,
                       .all_outputs = (gated ? 2 : 1) * model->ffn,
                       .all_inputs = model->hidden,
                       .run = {{ffn, from}, {gated ? ffn : 0, model->ffn + from}},
                       .bias = model->bias,
                       .weight_name = "fc1.weight",
                       .bias_name = "fc1.bias"};
    add_linear(w, layer, global, &p);
}

// A row-parallel layer: `inputs` of each rank.
static void add_rows(writer *w, int layer, int global, sp_i_exec_layer_weight weight,
                     int64_t inputs, int64_t all_inputs, const char *weight_name,
                     const char *bias_name)
{
    const sp_model *model = w->model;
    const product p = {.weight = weight,
                       .outputs = model->hidden,
                       .inputs = inputs,
                       .all_outputs = model->hidden,
                       .all_inputs = all_inputs,
                       .run = {{model->hidden, 0}},
                       .first_input = w->tp_rank * inputs,
                       .bias = model->bias,
                       .weight_name = weight_name,
                       .bias_name = bias_name};
    add_linear(w, layer, global, &p);
}

static void add_layer(writer *w, int layer, int global)
{
    const sp_model *model = w->model;
    add_layer_norm(w, layer, global, SP_I_EXEC_NORM1_WEIGHT, "norm1.weight", "norm1.bias");
    add_qkv(w, layer, global);
    add_rows(w, layer, global, SP_I_EXEC_PROJECTION_WEIGHT, w->shard.q,
             model->heads * model->head_dim, "projection.weight", "projection.bias");
    add_layer_norm(w, layer, global, SP_I_EXEC_NORM2_WEIGHT, "norm2.weight", "norm2.bias");
    add_fc1(w, layer, global);
    add_rows(w, layer, global, SP_I_EXEC_FC2_WEIGHT, w->shard.ffn, model->ffn, "fc2.weight",
             "fc2.bias");
}

// Equal rows for each rank; the last ones may have fewer that are real.
static sp_i_exec_weight *add_vocabulary(writer *w, sp_i_exec_vocab_weight weight)
{
    int64_t rows = w->shard.vocab;
    int64_t from = w->vocab_rank * rows;
    int64_t left = w->model->vocab > from ? w->model->vocab - from : 0;
    sp_i_exec_weight *made =
        add(w, sp_i_exec_vocab_slot(w->layers, weight), rows, w->model->hidden, 0.0, TABLE_SPREAD);
    made->all_rows = w->model->vocab;
    made->continued = w->later_vocabulary;
    made->run[0] = (sp_i_exec_row_run){left < rows ? left : rows, from};
    return made;
}

static void add_embedding(writer *w)
{
    const sp_model *model = w->model;
    name_end(w, add_vocabulary(w, SP_I_EXEC_TOKEN_TABLE), "embedding.tokens");
    if (model->positional == SP_LEARNED) {
        int slot = sp_i_exec_vocab_slot(w->layers, SP_I_EXEC_POSITION_TABLE);
        name_end(w, add(w, slot, model->max_positions, model->hidden, 0.0, TABLE_SPREAD),
                 "embedding.positions");
    }
}

static void add_head(writer *w, bool table)
{
    const sp_model *model = w->model;
    int slot = sp_i_exec_vocab_slot(w->layers, SP_I_EXEC_FINAL_WEIGHT);
    name_end(w, add_norm(w, slot, 1.0), "final_norm.weight");
    if (model->norm == SP_LAYERNORM) {
        name_end(w, add_norm(w, slot + 1, 0.0), "final_norm.bias");
    }
    if (!table) {
        return;
    }
    sp_i_exec_weight *made = add_vocabulary(w, SP_I_EXEC_HEAD_TABLE);
    name_end(w, made, model->tied_embeddings ? "embedding.tokens" : "head.weight");
    if (model->tied_embeddings) {
        made->copy = !made->continued;
    }
}

// The predictor's list says which of the tensors decay, and must agree in every size.
static void follow_list(writer *w, const sp_layout *layout, const sp_stage *stage, bool table,
                        size_t first)
{
    sp_parameter_list list = {0};
    sp_parameter_list_add(w->model, layout, stage, table, &list);
    SP_ASSERT(list.count == w->weights->count - first);
    for (size_t i = 0; i < list.count; i++) {
        sp_i_exec_weight *weight = &w->weights->items[first + i];
        SP_ASSERT(weight->elements == list.items[i].elements);
        weight->decays = list.items[i].decays;
    }
    sp_parameter_list_fini(&list);
}

static int first_layer_of(const sp_stage *stages, int vstage)
{
    int layers = 0;
    for (int s = 0; s < vstage; s++) {
        layers += stages[s].layers;
    }
    return layers;
}

void sp_i_exec_weights_make(const sp_model *model, const sp_layout *layout, const sp_stage *stages,
                            int pp, int tp_rank, sp_i_exec_weights *weights)
{
    *weights = (sp_i_exec_weights){0};
    writer w = {.model = model,
                .shard = sp_shard_of(model, layout),
                .tp = layout->tp,
                .tp_rank = tp_rank,
                .vocab_rank = (layout->vocab_parallel ? pp * layout->tp : 0) + tp_rank,
                .later_vocabulary = layout->vocab_parallel && pp > 0,
                .weights = weights};
    bool embedding = false;
    for (int c = 0; c < layout->chunks; c++) {
        embedding = embedding || stages[sp_layout_vstage(layout, pp, c)].embedding;
    }
    for (int c = 0; c < layout->chunks; c++) {
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
        follow_list(&w, layout, stage, table, first);
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
    double place = 2.0 * sp_i_exec_uniform(sp_i_exec_draw(tensor_seed, (uint64_t)index)) - 1.0;
    return weight->centre + weight->spread * sqrt(3.0) * place;
}
