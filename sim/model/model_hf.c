// Hugging Face config.json. Defaults of absent keys are those of the transformers library's
// configuration classes (src/transformers/models/*/configuration_*.py).
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/data_folder.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/model/hf_config.h"
#include "sim/model/model.h"

enum { KIND_TEXT = 80 };

sp_status sp_model_from_hf(const json_t *config, const char *source, sp_model *model, sp_error *err)
{
    return sp_i_hf_read(config, source, NULL, model, err);
}

// ---- what is read ----

static void name_model(sp_object *object, const char *fallback, sp_model *model)
{
    const json_t *given = sp_object_get(object, "_name_or_path");
    const char *text = json_is_string(given) ? json_string_value(given) : "";
    text = text[0] != '\0' ? text : fallback;
    size_t length = sp_fitting(text, sizeof model->name);
    memcpy(model->name, text, length);
    model->name[length] = '\0';
}

static void read_named(sp_object *object, const sp_i_hf_family *family, sp_model *model)
{
    for (size_t i = 0; family->stated != NULL && family->stated[i] != NULL; i++) {
        if (json_object_get(object->json, family->stated[i]) == NULL) { // not read: may be refused
            sp_object_require(object, family->stated[i]);
        }
    }
    for (size_t i = 0; family->free != NULL && family->free[i] != NULL; i++) {
        sp_object_get(object, family->free[i]);
    }
    for (size_t i = 0; family->noted != NULL && family->noted[i] != NULL; i++) {
        const json_t *value = sp_object_get(object, family->noted[i]);
        if (value != NULL && !sp_i_hf_asks_for_nothing(value)) {
            sp_i_hf_add_key(model->ignored_keys, family->noted[i]);
        }
    }
}

// False where the family has no such key.
static bool read_switch(sp_object *object, const sp_i_hf_stated *number)
{
    return number->key != NULL &&
           (number->key[0] == '\0' || sp_object_bool(object, number->key, number->usual != 0));
}

static int read_count(sp_object *object, const sp_i_hf_stated *number)
{
    if (number->usual == 0) {
        sp_object_require(object, number->key);
        return (int)sp_object_int(object, number->key, 1, 1, SP_I_MAX_EXPERTS);
    }
    return (int)sp_i_hf_number(object, number->key, number->usual, SP_I_HF_NO_NULL, 1,
                               SP_I_MAX_EXPERTS);
}

// Attention scores have a cap where the file gives one. Caps on logits, scaled embeddings and
// another scale of scores cost nothing.
static bool has_caps(sp_object *object, const sp_i_hf_family *family)
{
    if (family->soft_caps.key == NULL) {
        return false;
    }
    sp_object_get(object, "final_logit_softcapping");
    sp_object_get(object, family->soft_caps.key);
    const json_t *cap = json_object_get(object->json, family->soft_caps.key); // perhaps null
    return cap == NULL ? family->soft_caps.usual != 0 : !sp_i_hf_asks_for_nothing(cap);
}

static void read_biases(sp_object *object, const sp_i_hf_family *family, sp_model *model)
{
    bool attention = read_switch(object, &family->attention_bias);
    bool behind = family->behind_bias.key != NULL ? read_switch(object, &family->behind_bias)
                                                  : attention && family->output_bias;
    bool mlp = read_switch(object, &family->mlp_bias);
    sp_i_hf_set_biases(model, attention && behind && mlp);
    model->qkv_bias = attention;
    model->output_bias = behind;
    model->mlp_bias = mlp || family->expert_biases;
    model->router_bias = family->expert_biases;
    model->head_bias = read_switch(object, &family->head_bias);
}

static void read_experts(sp_object *object, const sp_i_hf_family *family, sp_model *model)
{
    if (family->may_lack_experts &&
        json_integer_value(json_object_get(object->json, family->experts.key)) == 0) {
        sp_object_require(object, family->experts.key);
        sp_object_get(object, family->active.key);
        model->ffn = sp_i_hf_size(object, family->shared_width.key, SP_I_MAX_FFN);
        return;
    }
    model->experts = read_count(object, &family->experts);
    model->experts_per_token = read_count(object, &family->active);
    if (family->expert_width != NULL) {
        model->ffn = sp_i_hf_size(object, family->expert_width, SP_I_MAX_FFN);
    }
    if (family->shared_width.key != NULL) {
        model->shared_ffn =
            sp_i_hf_number(object, family->shared_width.key, family->shared_width.usual,
                           SP_I_HF_NO_NULL, 0, SP_I_MAX_FFN);
    } else if (family->shared.key != NULL) {
        bool stated = family->shared.key[0] != '\0';
        model->shared_ffn =
            model->ffn * (stated ? sp_i_hf_number(object, family->shared.key, family->shared.usual,
                                                  0, 0, SP_I_MAX_EXPERTS)
                                 : family->shared.usual);
    }
    model->shared_gate = family->shared_gate && model->shared_ffn > 0;
    sp_i_hf_read_groups(object, family, model);
}

// ---- layers ----

// Does the layer see a window, or its chunk, where the file has no layer_types?
static bool is_local(sp_object *object, const sp_i_hf_family *family, int64_t pattern, int layer)
{
    if (family->pattern > 0) {
        return pattern == 0 || (layer + 1) % pattern != 0;
    }
    const sp_i_hf_stated *key = &family->first_window;
    const json_t *first = key->key != NULL ? sp_object_get(object, key->key) : NULL;
    return key->key == NULL ||
           layer >= (json_is_integer(first) ? json_integer_value(first) : key->usual);
}

// Tokens that layers with a window or a chunk see; 0: all layers see all. Null is no window.
static int64_t read_seen(sp_object *object, const sp_i_hf_family *family, bool typed)
{
    if (family->chunks) {
        return sp_i_hf_number(object, "attention_chunk_size", family->window, 0, 1,
                              SP_I_MAX_POSITIONS);
    }
    bool used =
        family->windows == SP_I_HF_ALWAYS ||
        sp_object_bool(object, "use_sliding_window", typed || family->windows == SP_I_HF_IF_STATED);
    if (json_equal(json_object_get(object->json, "sliding_window_size"),
                   json_object_get(object->json, "sliding_window"))) {
        sp_object_get(object, "sliding_window_size"); // published files of Gemma 2 say it twice
    }
    return used ? sp_i_hf_number(object, "sliding_window", family->window, 0, 1, SP_I_MAX_POSITIONS)
                : 0;
}

static bool check_types(sp_object *object, const json_t *types, const char *local, bool has_local)
{
    size_t i;
    json_t *type;
    json_array_foreach (types, i, type) {
        if (!sp_i_hf_is_text(type, "full_attention") &&
            !(has_local && sp_i_hf_is_text(type, local))) {
            sp_object_expected(object, "layer_types", type,
                               has_local ? "\"full_attention\" or \"%s\" of each layer"
                                         : "\"full_attention\" of each layer, or with a window "
                                           "(sliding_window) \"%s\"",
                               local);
            return false;
        }
    }
    return true;
}

// Attention of each layer over a window or over its chunk: as layer_types say, or of Llama 4
// no_rope_layers, in which layers with rotary positions (1) see their chunk, or the family's order.
static void read_local(sp_object *object, const sp_i_hf_family *family, sp_model *model,
                       sp_layer_mlp *of_layer)
{
    const char *local = family->chunks ? "chunked_attention" : "sliding_attention";
    const json_t *types = sp_i_hf_of_layers(object, "layer_types", model);
    const json_t *rotary =
        family->chunks ? sp_i_hf_of_layers(object, "no_rope_layers", model) : NULL;
    const char *key = family->pattern_key;
    int64_t pattern = key == NULL ? family->pattern
                                  : sp_object_int(object, key, family->pattern, 0, SP_I_MAX_LAYERS);
    bool is_overruled = false;    // the order that the key states
    bool is_contradicted = false; // layers with rotary positions, by layer_types
    int64_t seen = read_seen(object, family, types != NULL);
    bool stated = json_is_integer(json_object_get(object->json, "sliding_window"));
    if (!check_types(object, types, local, family->chunks || stated)) {
        return;
    }
    for (int i = 0; seen > 0 && i < model->layers; i++) {
        const json_t *number = json_array_get(rotary, (size_t)i);
        bool usual = is_local(object, family, pattern, i);
        bool here = types != NULL    ? sp_i_hf_is_text(json_array_get(types, (size_t)i), local)
                    : rotary != NULL ? json_integer_value(number) != 0
                                     : usual;
        is_overruled = is_overruled || here != usual;
        is_contradicted =
            is_contradicted || (rotary != NULL && here != (json_integer_value(number) != 0));
        *(family->chunks ? &of_layer[i].chunk_tokens : &of_layer[i].window_tokens) =
            here ? seen : 0;
    }
    if (is_overruled && key != NULL && sp_object_has(object, key)) {
        sp_i_hf_add_key(model->ignored_keys, key);
    }
    if (is_contradicted) {
        sp_i_hf_add_key(model->ignored_keys, "no_rope_layers");
    }
}

// Layers without experts have a width of their own.
static void read_dense(sp_object *object, const sp_i_hf_family *family, const sp_model *model,
                       sp_layer_mlp *of_layer)
{
    if (family->is_routed == NULL) {
        return;
    }
    bool is_stated = family->dense_width.key == NULL;
    const char *key = is_stated ? "intermediate_size" : family->dense_width.key;
    int64_t width = sp_i_hf_number(object, key, is_stated ? model->ffn : family->dense_width.usual,
                                   SP_I_HF_NO_NULL, 1, SP_I_MAX_FFN);
    for (int i = 0; i < model->layers; i++) {
        if (!family->is_routed(object, i)) {
            of_layer[i] = (sp_layer_mlp){.ffn = width};
        }
    }
}

// The key that says in which order layers differ: by their attention where MLPs alone repeat.
static const char *key_of_order(const sp_object *object, sp_model mlps, sp_layer_mlp *of_layer)
{
    static const char *const routed[] = {"moe_layers", "mlp_only_layers", "moe_layer_freq",
                                         "decoder_sparse_step", "interleave_moe_layer_step"};
    static const char *const seen[] = {"layer_types", "no_rope_layers", "sliding_window_pattern",
                                       "no_rope_layer_interval", "max_window_layers"};
    for (int i = 0; i < mlps.layers; i++) {
        of_layer[i].window_tokens = of_layer[i].chunk_tokens = 0;
    }
    const char *const *keys = sp_model_set_kinds(&mlps, of_layer) ? seen : routed;
    for (size_t k = 0; k < sizeof seen / sizeof seen[0]; k++) {
        const json_t *value = json_object_get(object->json, keys[k]);
        if (value != NULL && !sp_i_hf_asks_for_nothing(value) && json_integer_value(value) != 1) {
            return keys[k];
        }
    }
    return "num_hidden_layers";
}

static void read_layers(sp_object *object, const sp_i_hf_family *family, sp_model *model)
{
    sp_layer_mlp *of_layer = sp_calloc((size_t)model->layers, sizeof *of_layer);
    for (int i = 0; i < model->layers; i++) {
        of_layer[i] = (sp_layer_mlp){.ffn = model->ffn,
                                     .experts = model->experts,
                                     .experts_per_token = model->experts_per_token,
                                     .shared_ffn = model->shared_ffn,
                                     .shared_gate = model->shared_gate};
    }
    read_dense(object, family, model, of_layer);
    if (family->read_mixers != NULL) {
        family->read_mixers(object, model, of_layer);
    } else {
        read_local(object, family, model, of_layer);
    }
    if (!sp_model_set_kinds(model, of_layer)) {
        sp_object_error(object, key_of_order(object, *model, of_layer),
                        "no order of at most %d runs of layers of %d kinds repeats", SP_LAYER_RUNS,
                        SP_LAYER_KINDS);
    }
    if (model->kinds == 1) { // all layers are alike
        sp_model space;
        *model = *sp_model_of_kind(model, 0, &space);
    }
    sp_free(of_layer);
}

// ---- a family ----

// Without a rank of the queries' latent (null) they are made from hidden states. Keys of usual
// heads say nothing here: each query head has its own keys and values.
static void read_latents(sp_object *object, sp_model *model)
{
    model->q_lora_rank = sp_i_hf_number(object, "q_lora_rank", 1536, 0, 0, SP_I_MAX_HIDDEN);
    model->kv_lora_rank =
        sp_i_hf_number(object, "kv_lora_rank", 512, SP_I_HF_NO_NULL, 1, SP_I_MAX_HIDDEN);
    model->qk_nope_dim =
        sp_i_hf_number(object, "qk_nope_head_dim", 128, SP_I_HF_NO_NULL, 1, SP_I_MAX_HEAD_DIM);
    model->qk_rope_dim =
        sp_i_hf_number(object, "qk_rope_head_dim", 64, SP_I_HF_NO_NULL, 1, SP_I_MAX_HEAD_DIM);
    model->v_head_dim =
        sp_i_hf_number(object, "v_head_dim", 128, SP_I_HF_NO_NULL, 1, SP_I_MAX_HEAD_DIM);
    model->kv_heads = model->heads;
    model->head_dim = model->qk_nope_dim + model->qk_rope_dim;
    sp_object_get(object, "num_key_value_heads");
    sp_object_get(object, "head_dim");
    sp_object_get(object, "qk_head_dim");
    if (sp_object_bool(object, "attention_bias", false)) {
        sp_object_error(object, "attention_bias",
                        "biases of latent attention alone are not modelled");
    }
}

static void read_heads(sp_object *object, const sp_i_hf_family *family, sp_model *model)
{
    int kv_heads = family->kv_heads > 0 ? family->kv_heads : model->heads;
    model->kv_heads = (int)sp_i_hf_number(object, sp_i_hf_key(family, "num_key_value_heads"),
                                          kv_heads, model->heads, 1, SP_I_MAX_HEADS);
    model->head_dim = sp_i_hf_head_dim(object, family, model);
}

static void read_family(sp_object *object, const sp_i_hf_family *family, sp_model *model)
{
    model->activation = family->activation;
    model->norm = family->norm;
    model->positional = SP_ROPE;
    sp_i_hf_read_sizes(object, family, model);
    if (family->expert_width != NULL && family->is_routed == NULL) { // no layer is dense
        sp_object_get(object, "intermediate_size");
    } else {
        const char *key = sp_i_hf_key(family, "intermediate_size");
        int64_t usual = family->ffn_of_hidden * model->hidden;
        model->ffn = usual > 0 ? sp_i_hf_number(object, key, usual, usual, 1, SP_I_MAX_FFN)
                               : sp_i_hf_size(object, key, SP_I_MAX_FFN);
    }
    if (family->latents) {
        read_latents(object, model);
    } else {
        read_heads(object, family, model);
    }
    model->tied_embeddings = sp_object_bool(object, "tie_word_embeddings", family->tied);
    model->qk_norm = read_switch(object, &family->qk_norm);
    model->qk_norm_whole = model->qk_norm && family->qk_norm_whole;
    model->post_norms = family->post_norms || family->post_norms_alone;
    model->post_norms_alone = family->post_norms_alone;
    model->blocks = family->blocks;
    model->attention_sinks = family->attention_sinks;
    model->soft_caps = has_caps(object, family);
    if (family->experts.key != NULL) {
        read_experts(object, family, model);
    }
    read_biases(object, family, model);
    read_layers(object, family, model);
    if (family->finish != NULL) {
        family->finish(object, model);
    }
    if (family->dropouts[0] != NULL) {
        sp_i_hf_read_dropout(object, family->dropouts, 0.0, model);
    } else {
        model->dropout = model->blocks != SP_BLOCKS_IN_TURN ? SP_DROPOUT_OFF : model->dropout;
        sp_i_hf_note_dropout(object, model);
    }
}

// ---- the document ----

static const sp_i_hf_family *family_named(const char *kind)
{
    for (int i = 0; kind != NULL && i < SP_I_HF_FAMILIES; i++) {
        if (strcmp(kind, sp_i_hf_families[i].name) == 0) {
            return &sp_i_hf_families[i];
        }
    }
    return NULL;
}

// Kinds that are published often, and what of them no layer here has.
static const struct {
    const char *names, *why;
} other_kinds[] = {
    {"codegen cohere2_moe", "attention and MLP side by side"},
    {"mpt bloom", "positions that are added to scores (ALiBi)"},
    {"opt", "ReLU"},
    {"olmo", "norms without weights"},
    {"apertus", "an activation with parameters (xIELU)"},
    {"deepseek_v32 glm_moe_dsa", "attention to tokens that an index chooses"},
    {"deepseek_v4", "attention to compressed tokens"},
    {"gemma3n_text", "embeddings for each layer"},
    {"gemma4_text mimo_v2_flash", "heads that differ from layer to layer"},
    {"longcat_flash", "two attentions in a layer"},
    {"mllama llama4_vision_model t5 bart whisper", "layers that attend to another part"},
    {"mamba falcon_mamba rwkv recurrent_gemma zamba falcon_h1 lfm2 lfm2_moe jamba minimax "
     "kimi_linear",
     "layers other than attention, Mamba-2 and MLP"},
};

const char *sp_model_hf_kind(int index)
{
    return index >= 0 && index < SP_I_HF_FAMILIES ? sp_i_hf_families[index].name : NULL;
}

// Numbers tell kinds apart, so none is a misspelt other.
static const sp_i_hf_family *family_of(sp_object *object)
{
    const json_t *value = sp_object_get(object, "model_type");
    const char *kind = json_string_value(value);
    const sp_i_hf_family *family = family_named(kind);
    const char *why = NULL;
    for (size_t i = 0; kind != NULL && i < sizeof other_kinds / sizeof other_kinds[0]; i++) {
        why = sp_names_hold(other_kinds[i].names, kind) ? other_kinds[i].why : why;
    }
    if (family == NULL) {
        char found[KIND_TEXT];
        sp_json_quote(value, found, sizeof found);
        sp_object_error(object, "model_type",
                        "expected one of the kinds that \"slimpack help model_types\" lists, or in "
                        "place of the file an object with the shape of the model (model.layers, "
                        "model.hidden, ...), got %s%s%s",
                        found, why != NULL ? ", which has " : "", why != NULL ? why : "");
    }
    return family;
}

// The text model of one that also sees or hears, under one of these names; what the file says of
// both stands around it.
static json_t *text_part(sp_object *whole, const char **name)
{
    static const char *const names[] = {"text_config", "llm_config", "language_config"};
    const json_t *part = NULL;
    for (size_t i = 0; !json_is_object(part) && i < sizeof names / sizeof names[0]; i++) {
        part = json_object_get(whole->json, names[i]);
        *name = names[i];
    }
    json_t *text = json_is_object(part) ? json_copy((json_t *)(uintptr_t)part) : NULL;
    const json_t *tied = json_object_get(whole->json, "tie_word_embeddings");
    if (text != NULL && json_is_boolean(tied) &&
        json_object_get(text, "tie_word_embeddings") == NULL) {
        json_object_set(text, "tie_word_embeddings", (json_t *)(uintptr_t)tied);
    }
    return text;
}

// The type that weights are stored in; "auto" says none.
static void read_dtype(sp_object *object, sp_model *model)
{
    static const char *const keys[] = {"torch_dtype", "dtype"};
    for (size_t k = 0; k < 2; k++) {
        const json_t *value = json_object_get(object->json, keys[k]);
        const char *name = json_string_value(value);
        name = name != NULL && strncmp(name, "torch.", 6) == 0 ? name + 6 : name;
        bool known = name == NULL || strcmp(name, "auto") == 0;
        for (int i = 0; !known && i < SP_STORED_FP8; i++) {
            known = strcmp(name, sp_stored_dtype_names[i]) == 0;
            model->stored_dtype = known ? (sp_stored_dtype)i : model->stored_dtype;
        }
        if (!known) {
            sp_object_expected(object, keys[k], value, "bfloat16, float16 or float32");
        }
    }
}

// GELU by any of the names that approximations of it have, and what a gated MLP multiplies with.
static void refuse_activations(sp_object *object, const sp_i_hf_family *family)
{
    static const char *const keys[] = {"hidden_act", "hidden_activation", "activation_function"};
    bool gelu = family->activation == SP_GELU || family->activation == SP_GEGLU;
    bool squared = family->activation == SP_SQUARED_RELU;
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        const json_t *value = json_object_get(object->json, keys[k]);
        const char *name = json_string_value(value);
        bool known =
            value == NULL || json_is_null(value) ||
            (name != NULL && (gelu      ? strstr(name, "gelu") != NULL
                              : squared ? strcmp(name, "relu2") == 0
                                        : strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0));
        if (!known) {
            sp_object_expected(object, keys[k], value, "%s",
                               gelu      ? "\"gelu\" or one of its approximations"
                               : squared ? "\"relu2\""
                                         : "\"silu\"");
        }
    }
}

sp_status sp_i_hf_read(const json_t *config, const char *source, const char *called,
                       sp_model *model, sp_error *err)
{
    sp_error local;
    sp_error_clear(&local);
    sp_error *found = err != NULL ? err : &local;
    int before = found->count + found->dropped;
    char name[SP_DATA_PATH];

    *model = (sp_model){.layers = 1};
    sp_object whole;
    sp_object object;
    sp_object_begin(&whole, config, source, "", found);
    object = whole;
    const char *part = "";
    json_t *text = text_part(&whole, &part);
    if (text != NULL) {
        sp_i_hf_read_quantization(&whole, model);
        sp_i_hf_refuse_keys(&whole, true);
        sp_object_begin(&object, text, source, part, found);
    }
    const char *kind = text == NULL ? sp_json_kind(config) : NULL;
    if (kind != NULL && json_object_get(config, "model_type") == NULL &&
        json_object_get(config, "architectures") == NULL) {
        sp_error_in(found, SP_ERR_CONTENT, source, NULL, "expected a model's config.json, got %s",
                    kind);
    } else if (json_object_get(object.json, "peft_type") != NULL) {
        sp_object_error(&object, "peft_type", "%s, beside the config.json of their base model",
                        sp_i_hf_adapters);
    } else if (object.json != NULL) {
        sp_object_require(&object, "model_type");
    }
    const sp_i_hf_family *family =
        found->count + found->dropped == before ? family_of(&object) : NULL;
    if (family != NULL) {
        snprintf(name, sizeof name, "%s%s", called != NULL ? called : family->name,
                 text != NULL ? " (text)" : "");
        name_model(text != NULL ? &whole : &object, name, model);
        refuse_activations(&object, family);
        read_dtype(&object, model);
        sp_i_hf_read_quantization(&whole, model);
        sp_i_hf_read_quantization(&object, model);
        read_named(&object, family, model);
        if (family->read != NULL) {
            family->read(&object, family, model);
        } else {
            read_family(&object, family, model);
        }
        sp_i_hf_refuse_keys(&object, false);
        sp_i_hf_note_unread(&object, model);
        if (text != NULL || json_object_get(config, "vision_config") != NULL) {
            sp_i_hf_note_parts(config, part, model);
        }
    }
    json_decref(text);
    return found->count + found->dropped != before ? found->status
                                                   : sp_model_check(model, source, "", found);
}
