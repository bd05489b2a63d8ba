#include "backends/record/request_settings.h"

#include <stdio.h>

#include "sim/base/alloc.h"

static const char *const placement_names[] = {"linear", "v", NULL};

enum { MOST = 1 << 20 }; // of any degree; sp_layout_check has the narrower limits

static json_t *stage_layers_json(const sp_layout *layout)
{
    json_t *array = json_array();
    for (int s = 0; array != NULL && s < sp_layout_vstages(layout); s++) {
        json_array_append_new(array, json_integer(layout->stage_layers[s]));
    }
    return array;
}

json_t *sp_i_layout_json(const sp_layout *layout)
{
    char order[SP_RANK_ORDER_TEXT];
    sp_rank_order_write(&layout->order, order);
    json_t *object = json_pack(
        "{s:i, s:i, s:i, s:i, s:i, s:s, s:b, s:b, s:i, s:s, s:s}", "tp", layout->tp, "cp",
        layout->cp, "pp", layout->pp, "dp", layout->dp, "chunks_per_rank", layout->chunks,
        "placement", placement_names[layout->placement], "sequence_parallel",
        layout->sequence_parallel, "vocab_parallel", layout->vocab_parallel, "zero", layout->zero,
        "order", order, "cp_sharding", sp_cp_sharding_names[layout->cp_sharding]);
    if (object != NULL && layout->stage_layers != NULL &&
        !sp_json_put(object, "stage_layers", stage_layers_json(layout))) {
        json_decref(object);
        return NULL;
    }
    return object;
}

json_t *sp_i_memory_json(const sp_memory_options *memory)
{
    // Without a name and without switches it is the stack "ours" (stack.h).
    sp_stack stack = memory->stack;
    if (stack.name[0] == '\0') {
        snprintf(stack.name, sizeof stack.name, "ours");
    }
    return json_pack("{s:s, s:s, s:f, s:o}", "recompute", sp_recompute_names[memory->recompute],
                     "attention", sp_attention_names[memory->attention], "offload_ratio",
                     memory->offload_ratio, "stack", sp_stack_to_json(&stack));
}

// ---- reading ----

static int required(sp_object *object, const char *key, int min)
{
    sp_object_require(object, key);
    return (int)sp_object_int(object, key, min, min, MOST);
}

static int required_name(sp_object *object, const char *key, const char *const *names)
{
    sp_object_require(object, key);
    return sp_object_enum(object, key, names, 0);
}

static bool required_bool(sp_object *object, const char *key)
{
    sp_object_require(object, key);
    return sp_object_bool(object, key, false);
}

// Layers of every virtual stage; their sum is the business of sp_layout_stages.
static bool read_stage_layers(sp_object *object, sp_layout *layout, int **stage_layers)
{
    if (!sp_object_has(object, "stage_layers")) {
        return true;
    }
    const json_t *array = sp_object_get(object, "stage_layers");
    int64_t stages = (int64_t)layout->pp * layout->chunks;
    if (!json_is_array(array) || (int64_t)json_array_size(array) != stages) {
        char found[80];
        sp_json_quote(array, found, sizeof found);
        sp_object_error(object, "stage_layers", "expected %lld numbers, got %s", (long long)stages,
                        found);
        return true;
    }
    *stage_layers = sp_i_calloc((size_t)stages, sizeof **stage_layers);
    layout->stage_layers = *stage_layers;
    for (size_t s = 0; *stage_layers != NULL && s < (size_t)stages; s++) {
        const json_t *value = json_array_get(array, s);
        json_int_t layers = json_integer_value(value);
        if (!json_is_integer(value) || layers < 0 || layers > MOST) {
            char key[40];
            char found[80];
            snprintf(key, sizeof key, "stage_layers[%zu]", s);
            sp_json_quote(value, found, sizeof found);
            sp_object_error(object, key, "expected a number of layers, got %s", found);
        } else {
            (*stage_layers)[s] = (int)layers;
        }
    }
    return *stage_layers != NULL;
}

bool sp_i_layout_from_member(sp_object *root, sp_layout *layout, int **stage_layers)
{
    sp_object object;
    sp_object_require(root, "parallel");
    sp_object_member(root, "parallel", &object);
    *stage_layers = NULL;
    *layout = (sp_layout){.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    if (object.json == NULL) {
        return true;
    }
    layout->tp = required(&object, "tp", 1);
    layout->cp = required(&object, "cp", 1);
    layout->pp = required(&object, "pp", 1);
    layout->dp = required(&object, "dp", 1);
    layout->chunks = required(&object, "chunks_per_rank", 1);
    layout->placement = (sp_placement)required_name(&object, "placement", placement_names);
    layout->sequence_parallel = required_bool(&object, "sequence_parallel");
    layout->vocab_parallel = required_bool(&object, "vocab_parallel");
    layout->zero = required(&object, "zero", 0);
    layout->cp_sharding =
        (sp_cp_sharding)required_name(&object, "cp_sharding", sp_cp_sharding_names);
    sp_object_require(&object, "order");
    const char *order = sp_object_string(&object, "order", "tp-cp-dp-pp");
    if (!sp_rank_order_read(order, &layout->order)) {
        sp_object_error(&object, "order", "expected tp, cp, dp and pp once each, got \"%.40s\"",
                        order);
    }
    bool good = read_stage_layers(&object, layout, stage_layers);
    sp_object_end(&object);
    return good;
}

void sp_i_memory_from_member(sp_object *root, sp_memory_options *memory)
{
    sp_object object;
    sp_object_require(root, "memory");
    sp_object_member(root, "memory", &object);
    *memory = (sp_memory_options){0};
    if (object.json == NULL) {
        return;
    }
    memory->recompute = (sp_recompute)required_name(&object, "recompute", sp_recompute_names);
    memory->attention = (sp_attention)required_name(&object, "attention", sp_attention_names);
    sp_object_require(&object, "offload_ratio");
    memory->offload_ratio = sp_object_real(&object, "offload_ratio", 0.0, 0.0, 1.0);
    sp_object_require(&object, "stack");
    sp_stack_from_member(&object, "stack", &memory->stack);
    sp_object_end(&object);
}

const json_t *sp_i_texts_of_member(sp_object *root, const char *key)
{
    const char *name;
    json_t *value;
    sp_object_require(root, key);
    json_t *texts = (json_t *)(uintptr_t)sp_object_get(root, key);
    if (texts != NULL && !json_is_object(texts)) {
        sp_object_error(root, key, "expected an object");
        return NULL;
    }
    json_object_foreach (texts, name, value) {
        if (!json_is_string(value)) {
            char found[80];
            sp_json_quote(value, found, sizeof found);
            sp_object_error(root, key, "%.40s: expected text, got %s", name, found);
        }
    }
    return texts;
}
