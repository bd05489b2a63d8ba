#include "sim/model/parameter_list.h"

#include "sim/base/alloc.h"
#include "sim/model/layout.h"

static void add(sp_parameter_list *list, int64_t elements, bool decays)
{
    sp_reserve((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items);
    list->items[list->count++] = (sp_parameter){.elements = elements, .decays = decays};
}

static void add_norm(sp_parameter_list *list, const sp_model *model, int64_t width)
{
    add(list, width, false);
    if (model->norm == SP_LAYERNORM) {
        add(list, width, false);
    }
}

static void add_linear(sp_parameter_list *list, int64_t inputs, int64_t outputs, int64_t bias)
{
    add(list, inputs * outputs, true);
    if (bias != 0) {
        add(list, bias, false);
    }
}

static void add_layer(sp_parameter_list *list, const sp_model *model, const sp_shard *shard)
{
    int64_t h = model->hidden;
    int64_t qkv = shard->q + 2 * shard->kv;
    add_norm(list, model, h);
    add_linear(list, h, qkv, model->bias || model->qkv_bias ? qkv : 0);
    if (model->qk_norm) {
        add_norm(list, model, model->head_dim);
        add_norm(list, model, model->head_dim);
    }
    add_linear(list, shard->q, h, model->bias ? h : 0);
    add_norm(list, model, h);
    if (model->experts > 0) {
        add_linear(list, h, model->experts, 0);
    }
    for (int64_t e = 0; e < shard->experts; e++) {
        add_linear(list, h, shard->fc1, model->bias ? shard->fc1 : 0);
        add_linear(list, shard->ffn, h, model->bias ? h : 0);
    }
}

void sp_parameter_list_add(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                           bool head_table, sp_parameter_list *list)
{
    sp_shard shard = sp_shard_of(model, layout);
    if (stage->embedding) {
        add(list, shard.vocab * model->hidden, true);
        if (model->positional == SP_LEARNED) {
            add(list, model->max_positions * model->hidden, true);
        }
    }
    for (int i = 0; i < stage->layers; i++) {
        add_layer(list, model, &shard);
    }
    if (stage->head) {
        add_norm(list, model, model->hidden);
        if (head_table) {
            add(list, shard.vocab * model->hidden, true);
        }
    }
}

void sp_parameter_list_fini(sp_parameter_list *list)
{
    sp_free(list->items);
    *list = (sp_parameter_list){0};
}
