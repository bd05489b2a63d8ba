// Hugging Face config.json. Defaults of absent keys are those of the transformers library's
// configuration classes (src/transformers/models/*/configuration_*.py).
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/alloc.h"
#include "sim/base/data_folder.h"
#include "sim/base/files.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/model/model.h"

enum { KINDS_TEXT = 160 };

// In the order of family_names.
typedef enum hf_family { LLAMA, MISTRAL, QWEN2, QWEN3, MIXTRAL, GPT2, GPT_NEOX } hf_family;

static const char *const family_names[] = {"llama",   "mistral", "qwen2",    "qwen3",
                                           "mixtral", "gpt2",    "gpt_neox", NULL};

static const char adapters[] = "adapters (LoRA) are not modelled";

static sp_status read_config(const json_t *config, const char *source, const char *called,
                             sp_model *model, sp_error *err);
static void read_dtype(sp_object *object, sp_model *model);
static void read_llama_family(sp_object *object, hf_family family, sp_model *model);
static void read_gpt2(sp_object *object, sp_model *model);
static void read_gpt_neox(sp_object *object, sp_model *model);
static void name_model(sp_object *object, const char *fallback, sp_model *model);
static void refuse_keys(sp_object *object, hf_family family, bool is_part);
static void note_parts(const json_t *config, sp_model *model);
static void note_unread(const sp_object *object, hf_family family, sp_model *model);

// ---- by name or path ----

static bool config_in(const char *folder, char path[SP_DATA_PATH])
{
    int bytes = snprintf(path, SP_DATA_PATH, "%s%sconfig.json", folder,
                         folder[0] != '\0' && folder[strlen(folder) - 1] == '/' ? "" : "/");
    return bytes < SP_DATA_PATH && sp_is_file(path);
}

bool sp_model_is_there(const char *path)
{
    char config[SP_DATA_PATH];
    return sp_is_file(path) || config_in(path, config);
}

sp_status sp_model_named(const char *name, sp_model *model, bool *known, sp_error *err)
{
    char config[SP_DATA_PATH];
    const char *built_in = sp_model_builtin_meant(name);
    *known = true;
    if (sp_is_file(name)) {
        return sp_model_read_hf(name, model, err);
    }
    bool is_folder = access(name, F_OK) == 0;
    if (is_folder && config_in(name, config)) {
        return sp_model_read_hf(config, model, err);
    }
    // A plain name is that of a built-in model although a folder of results may be called so.
    if (is_folder && (built_in == NULL || strchr(name, '/') != NULL)) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: the folder holds no config.json, which Hugging Face's library "
                            "writes beside the weights",
                            name);
    }
    if (built_in != NULL) {
        return sp_model_builtin(built_in, model, err);
    }
    *known = false;
    return SP_OK;
}

// Names the model as the file, or its folder where it has the name that all have; the whole path
// where a built-in model is called so, from which it is told apart.
static void name_of_path(const char *path, char name[SP_DATA_PATH])
{
    static const char usual[] = "config.json";
    const char *slash = strrchr(path, '/');
    size_t file = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    bool is_usual = strcmp(path + file, usual) == 0;
    const char *last = NULL;
    snprintf(name, SP_DATA_PATH, "%s", path);
    if (is_usual && file < SP_DATA_PATH) {
        name[file > 1 ? file - 1 : file] = '\0';
    }
    if (is_usual && (name[0] == '\0' || strcmp(name, ".") == 0)) {
        name[0] = '\0';
        last = getcwd(name, SP_DATA_PATH) != NULL ? strrchr(name, '/') : NULL;
    } else if (!is_usual) {
        char *dot = strrchr(name, '.');
        if (dot != NULL && dot > name + file && strcmp(dot, ".json") == 0) {
            *dot = '\0';
        }
    }
    last = last != NULL ? last : strrchr(name, '/');
    last = last != NULL ? last + 1 : name;
    if (last[0] == '\0') {
        snprintf(name, SP_DATA_PATH, "%s", usual);
    } else if (sp_model_builtin_meant(last) == NULL) {
        memmove(name, last, strlen(last) + 1);
    }
}

sp_status sp_model_read_hf(const char *path, sp_model *model, sp_error *err)
{
    json_t *root = NULL;
    char called[SP_DATA_PATH];
    sp_status status = sp_json_read_python_file(path, 0, &root, err);
    if (status == SP_OK) {
        name_of_path(path, called);
        status = read_config(root, path, called, model, err);
        json_decref(root);
    }
    return status;
}

sp_status sp_model_from_hf(const json_t *config, const char *source, sp_model *model, sp_error *err)
{
    return read_config(config, source, NULL, model, err);
}

// ---- the document ----

// Numbers tell kinds apart, so none is a misspelt other.
static int family_of(sp_object *object)
{
    const json_t *value = sp_object_get(object, "model_type");
    const char *kind = json_string_value(value);
    char list[KINDS_TEXT] = "";
    for (int i = 0; family_names[i] != NULL; i++) {
        if (kind != NULL && strcmp(kind, family_names[i]) == 0) {
            return i;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s\"%s\"", i > 0 ? ", " : "", family_names[i]);
    }
    sp_object_expected(object, "model_type", value, "one of %s", list);
    return -1;
}

static bool is_known_kind(const json_t *config)
{
    const char *kind = json_string_value(json_object_get(config, "model_type"));
    for (int i = 0; kind != NULL && family_names[i] != NULL; i++) {
        if (strcmp(kind, family_names[i]) == 0) {
            return true;
        }
    }
    return false;
}

// The text model of one that also sees or hears; what the file says of both stands around it.
static json_t *text_part(sp_object *whole)
{
    const json_t *part = json_object_get(whole->json, "text_config");
    json_t *text = json_is_object(part) ? json_copy((json_t *)(uintptr_t)part) : NULL;
    const json_t *tied = json_object_get(whole->json, "tie_word_embeddings");
    if (text != NULL && json_is_boolean(tied) &&
        json_object_get(text, "tie_word_embeddings") == NULL) {
        json_object_set(text, "tie_word_embeddings", (json_t *)(uintptr_t)tied);
    }
    return text;
}

// `called` is the name of a file that gives none of its own; NULL: its kind.
static sp_status read_config(const json_t *config, const char *source, const char *called,
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
    json_t *text = NULL;
    if (whole.json != NULL && !is_known_kind(config)) {
        text = text_part(&whole);
    }
    if (text != NULL) {
        refuse_keys(&whole, LLAMA, true);
        sp_object_begin(&object, text, source, "text_config", found);
    }
    const char *kind = text == NULL ? sp_json_kind(config) : NULL;
    if (kind != NULL && json_object_get(config, "model_type") == NULL &&
        json_object_get(config, "architectures") == NULL) {
        sp_error_in(found, SP_ERR_CONTENT, source, NULL, "expected a model's config.json, got %s",
                    kind);
    } else if (json_object_get(object.json, "peft_type") != NULL) {
        sp_object_error(&object, "peft_type", "%s, their base model's config.json is", adapters);
    } else if (object.json != NULL) {
        sp_object_require(&object, "model_type");
    }
    int family = found->count + found->dropped == before ? family_of(&object) : -1;
    if (family >= 0) {
        snprintf(name, sizeof name, "%s%s", called != NULL ? called : family_names[family],
                 text != NULL ? " (text)" : "");
        name_model(text != NULL ? &whole : &object, name, model);
        refuse_keys(&object, (hf_family)family, false);
        read_dtype(&object, model);
        if (family == GPT2) {
            read_gpt2(&object, model);
        } else if (family == GPT_NEOX) {
            read_gpt_neox(&object, model);
        } else {
            read_llama_family(&object, (hf_family)family, model);
        }
        note_unread(&object, (hf_family)family, model);
        if (text != NULL) {
            note_parts(config, model);
        }
    }
    json_decref(text);
    return found->count + found->dropped != before ? found->status
                                                   : sp_model_check(model, source, "", found);
}

// ---- keys that are not modelled ----

// One that begins with an underscore stands anywhere in a key, as a word; one that ends with it
// begins a key.
typedef struct refused_key {
    const char *key;
    const char *why;
} refused_key;

static const char quantized[] = "quantized weights are not modelled";
static const char experts[] = "experts are modelled of model_type \"mixtral\" alone";
static const char latent[] = "latent attention (MLA) is not modelled";
static const char partly[] = "attention that does not read all tokens before is not modelled";
static const char mixers[] = "layers other than attention and MLP are not modelled";
static const char biases[] = "biases other than those of the model_type are not modelled";
static const char norms[] = "norms other than those of the model_type are not modelled";
static const char shapes[] = "heads and sizes that differ from the usual are not modelled";
static const char caps[] = "caps on logits, which fused kernels lack, are not modelled";
static const char heads[] = "layers that predict further tokens are not modelled";
static const char parts[] = "parts beside the decoder are not modelled";
static const char parallel[] = "attention and MLP side by side are not modelled";

static const refused_key refused_keys[] = {
    {"quantization_config", quantized},
    {"quantization", quantized},
    {"compression_config", quantized},
    {"quant_method", quantized},
    {"quantization_bit", quantized},
    {"load_in_4bit", quantized},
    {"load_in_8bit", quantized},
    {"_expert_", experts},
    {"_experts_", experts},
    {"_moe_", experts},
    {"mlp_only_layers", experts},
    {"first_k_dense_replace", experts},
    {"interleave_moe_layer_step", experts},
    {"kv_lora_rank", latent},
    {"q_lora_rank", latent},
    {"o_lora_rank", latent},
    {"qk_nope_head_dim", latent},
    {"qk_rope_head_dim", latent},
    {"v_head_dim", latent},
    {"use_mla", latent},
    {"attention_chunk_size", partly},
    {"sliding_window_pattern", partly},
    {"attention_window", partly},
    {"attention_window_size", partly},
    {"window_attention", partly},
    {"full_attention_interval", partly},
    {"global_attn_every_n_layers", partly},
    {"index_topk", partly},
    {"sparse_attention_config", partly},
    {"use_bidirectional_attention", "attention to later tokens is not modelled"},
    {"mamba_", mixers},
    {"ssm_", mixers},
    {"d_state", mixers},
    {"state_size", mixers},
    {"linear_num_", mixers},
    {"linear_conv_", mixers},
    {"layers_block_type", mixers},
    {"block_types", mixers},
    {"hybrid_override_pattern", mixers},
    {"block_configs", mixers},
    {"attn_layer_indices", mixers},
    {"bias", biases},
    {"use_bias", biases},
    {"add_bias_linear", biases},
    {"qkv_bias", biases},
    {"add_qkv_bias", biases},
    {"use_qkv_bias", biases},
    {"attention_out_bias", biases},
    {"lm_head_bias", biases},
    {"mlp_bias", biases},
    {"qk_norm", norms},
    {"use_qk_norm", norms},
    {"qk_layernorm", norms},
    {"use_qk_layernorm", norms},
    {"post_norm", norms},
    {"use_post_norm", norms},
    {"sandwich_norm", norms},
    {"multi_query", shapes},
    {"multi_query_attention", shapes},
    {"multi_query_group_num", shapes},
    {"attn_config", shapes},
    {"ffn_config", shapes},
    {"num_attention_heads_per_layer", shapes},
    {"new_decoder_architecture", shapes},
    {"num_kv_heads", shapes},
    {"n_kv_heads", shapes},
    {"n_head_kv", shapes},
    {"num_key_value_heads_per_layer", shapes},
    {"num_kv_shared_layers", shapes},
    {"hidden_size_per_layer_input", shapes},
    {"attn_output_gate", shapes},
    {"pruned_heads", shapes},
    {"attn_logit_softcapping", caps},
    {"final_logit_softcapping", caps},
    {"num_nextn_predict_layers", heads},
    {"mtp_", heads},
    {"num_mtp_", heads},
    {"eagle_config", heads},
    {"add_cross_attention", parts},
    {"cross_attention_layers", parts},
    {"cross_attention_hidden_size", parts},
    {"encoder_layers", parts},
    {"is_encoder_decoder", parts},
    {"vision_config", parts},
    {"audio_config", parts},
    {"parallel_attn", parallel},
    {"parallel_residual", parallel},
    {"use_parallel_residual", parallel},
    {"peft_type", adapters},
    {"_lora_", adapters},
    {"_adapter_", adapters},
    {"_adapters_", adapters},
};

// Absent, null, false, 0, and an empty text, list or object ask for nothing.
static bool asks_for_nothing(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0.0) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static bool has_word(const char *key, const char *word)
{
    char whole[SP_JSON_PATH];
    snprintf(whole, sizeof whole, "_%.100s_", key);
    return strstr(whole, word) != NULL;
}

static bool is_named(const char *key, const char *name)
{
    size_t length = strlen(name);
    if (name[0] == '_') {
        return has_word(key, name);
    }
    return name[length - 1] == '_' ? strncmp(key, name, length) == 0 : strcmp(key, name) == 0;
}

static bool is_of_family(const char *key, const refused_key *refused, hf_family family)
{
    bool has_biases = family == GPT2 || family == GPT_NEOX;
    bool read = refused->why == biases && ((family == QWEN2 && strstr(key, "qkv") != NULL) ||
                                           (family == LLAMA && strcmp(key, "mlp_bias") == 0));
    return read || (refused->why == biases && has_biases && strcmp(key, "lm_head_bias") != 0) ||
           (refused->why == experts && family == MIXTRAL &&
            (strcmp(key, "num_local_experts") == 0 || strcmp(key, "num_experts_per_tok") == 0)) ||
           (refused->why == norms && family == QWEN3 && strstr(key, "qk") != NULL) ||
           (refused->why == parallel && family == GPT_NEOX);
}

// One expert is an MLP; vision and the like stand beside a text model that is read alone.
static bool is_harmless(const char *key, const json_t *value, const refused_key *refused,
                        bool is_part)
{
    bool counts = strcmp(key, "num_local_experts") == 0 || strcmp(key, "num_experts") == 0;
    return asks_for_nothing(value) ||
           (counts && json_is_number(value) && json_number_value(value) == 1.0) ||
           (is_part && refused->why == parts);
}

static void refuse_key(sp_object *object, const char *key, const json_t *value, hf_family family,
                       bool is_part)
{
    for (size_t i = 0; i < sizeof refused_keys / sizeof refused_keys[0]; i++) {
        const refused_key *refused = &refused_keys[i];
        if (is_named(key, refused->key)) {
            if (!is_of_family(key, refused, family) && !is_harmless(key, value, refused, is_part)) {
                sp_object_error(object, key, "%s: expected it to be absent or null", refused->why);
            }
            return;
        }
    }
}

// ---- keys that are passed over ----

// They change neither parameters nor bytes nor time: names, tokens, how weights begin, rotation of
// positions, how text is generated, and what the library writes into every file. Written as those
// of refused_key.
// clang-format off
static const char *const harmless_keys[] = {
    "architectures", "model_type", "auto_map", "_name_", "_version_", "torch_dtype", "dtype",
    "use_cache", "_token_", "_tokens_", "_init_", "_initializer_", "_initialization_", "_eps_",
    "_epsilon_", "_rope_", "_rotary_", "_yarn_", "max_position_embeddings", "n_positions",
    "n_ctx", "_length_", "pretraining_tp", "_dropout_", "_pdrop_", "layerdrop", "_router_",
    "output_", "return_", "use_return_dict", "torchscript", "task_specific_params", "summary_",
    "finetuning_task", "problem_type", "id2label", "label2id", "num_labels", "_class_", "prefix",
    "scale_attn_", "reorder_and_upcast_attn", "_attn_implementation_", "_flash_",
    "gradient_checkpointing", "clip_qkv", "query_pre_attn_scalar", "sliding_window",
    "use_sliding_window", "max_window_layers", "layer_types", "hidden_act", "hidden_activation",
    "activation_function", "is_decoder", "is_causal", "tf_legacy_loss", "use_bfloat16",
    "unsloth_", "chunk_size_feed_forward", "temperature", "top_k", "top_p", "typical_p",
    "do_sample", "num_beams", "num_beam_groups", "num_return_sequences", "_penalty_", "_ngram_",
    "early_stopping", "bad_words_ids", "remove_invalid_values", "tie_encoder_decoder",
    "transformers.js_config",
};
// clang-format on

// As far as they fit.
static void add_key(char keys[SP_MODEL_KEYS], const char *key)
{
    static const char more[] = ", ...";
    size_t used = strlen(keys);
    bool fits = used + strlen(key) + 2 + sizeof more <= SP_MODEL_KEYS;
    if (fits || used < sizeof more || strcmp(keys + used - strlen(more), more) != 0) {
        sp_append(keys, SP_MODEL_KEYS, "%s%s", used > 0 ? ", " : "", fits ? key : "...");
    }
}

// Objects around a text_config: an encoder of pictures or sound, with its own layers.
static void note_parts(const json_t *config, sp_model *model)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)config, key, value) {
        bool is_part =
            json_is_object(value) && json_object_size(value) > 0 && strcmp(key, "text_config") != 0;
        if (is_part && strstr(key, "_config") != NULL) {
            add_key(model->ignored_parts, key);
        }
    }
}

static bool is_passed_over(const char *key)
{
    bool found = false;
    for (size_t i = 0; !found && i < sizeof harmless_keys / sizeof harmless_keys[0]; i++) {
        found = is_named(key, harmless_keys[i]);
    }
    for (size_t i = 0; !found && i < sizeof refused_keys / sizeof refused_keys[0]; i++) {
        found = is_named(key, refused_keys[i].key);
    }
    return found;
}

// After all keys were read that are; with GPT-NeoX's MLP beside its attention, which is simulated
// behind it.
static void note_unread(const sp_object *object, hf_family family, sp_model *model)
{
    const json_t *side_by_side = json_object_get(object->json, "use_parallel_residual");
    if (family == GPT_NEOX && !json_is_false(side_by_side)) { // true where it is absent
        add_key(model->ignored_keys, "use_parallel_residual");
    }
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)object->json, key, value) {
        bool known = asks_for_nothing(value) || is_passed_over(key);
        for (int i = 0; !known && i < object->known_count; i++) {
            known = strcmp(object->known[i], key) == 0;
        }
        if (!known) {
            add_key(model->ignored_keys, key);
        }
    }
}

// Classes with another head than that over the vocabulary.
static void refuse_architectures(sp_object *object)
{
    static const char *const other[] = {"Classification", "QuestionAnswering", "Reward",
                                        "MultipleChoice"};
    const json_t *first = json_array_get(json_object_get(object->json, "architectures"), 0);
    const char *name = json_string_value(first);
    for (size_t i = 0; name != NULL && i < sizeof other / sizeof other[0]; i++) {
        if (strstr(name, other[i]) != NULL) {
            sp_object_expected(object, "architectures", first,
                               "a model with a head over its vocabulary");
        }
    }
}

static bool is_type(const json_t *type, const char *name)
{
    return json_is_string(type) && strcmp(json_string_value(type), name) == 0;
}

static void refuse_layer_types(sp_object *object)
{
    size_t i;
    json_t *type;
    bool has_window = json_is_integer(json_object_get(object->json, "sliding_window"));
    json_array_foreach (json_object_get(object->json, "layer_types"), i, type) {
        if (!is_type(type, "full_attention") &&
            !(has_window && is_type(type, "sliding_attention"))) {
            sp_object_expected(object, "layer_types", type,
                               "\"full_attention\" or, with a sliding_window, "
                               "\"sliding_attention\" of each layer");
            return;
        }
    }
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
        for (int i = 0; !known && sp_stored_dtype_names[i] != NULL; i++) {
            known = strcmp(name, sp_stored_dtype_names[i]) == 0;
            model->stored_dtype = known ? (sp_stored_dtype)i : model->stored_dtype;
        }
        if (!known) {
            sp_object_expected(object, keys[k], value, "bfloat16, float16 or float32");
        }
    }
}

// GELU by any of the names that approximations of it have, and what a gated MLP multiplies with.
static void refuse_activations(sp_object *object, hf_family family)
{
    static const char *const keys[] = {"hidden_act", "hidden_activation", "activation_function"};
    bool gelu = family == GPT2 || family == GPT_NEOX;
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        const json_t *value = json_object_get(object->json, keys[k]);
        const char *name = json_string_value(value);
        bool known =
            value == NULL || json_is_null(value) ||
            (name != NULL && (gelu ? strstr(name, "gelu") != NULL
                                   : strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0));
        if (!known) {
            sp_object_expected(object, keys[k], value, "%s",
                               gelu ? "\"gelu\" or one of its approximations" : "\"silu\"");
        }
    }
}

// Keys that change parameters, bytes or time, and that nothing here reads.
// `is_part`: the file around a text_config.
static void refuse_keys(sp_object *object, hf_family family, bool is_part)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)object->json, key, value) {
        refuse_key(object, key, value, family, is_part);
    }
    if (is_part) {
        return;
    }
    refuse_architectures(object);
    refuse_layer_types(object);
    refuse_activations(object, family);
    if (json_is_false(json_object_get(object->json, "is_causal"))) {
        sp_object_error(object, "is_causal", "attention to later tokens is not modelled");
    }
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

// Sizes have no default: the library's own ones are those of one particular checkpoint.
static int64_t required_size(sp_object *object, const char *key, int64_t max)
{
    sp_object_require(object, key);
    return sp_object_int(object, key, 1, 1, max);
}

// hidden/heads where the file gives no head_dim.
static int64_t head_dim_of(sp_object *object, const char *heads_key, const sp_model *model,
                           int64_t fallback)
{
    if (sp_object_has(object, "head_dim")) {
        return sp_object_int(object, "head_dim", 1, 1, SP_I_MAX_HEAD_DIM);
    }
    if (fallback > 0) {
        return fallback;
    }
    const char *hidden_key = strcmp(heads_key, "n_head") == 0 ? "n_embd" : "hidden_size";
    bool is_refused =
        json_integer_value(json_object_get(object->json, hidden_key)) != model->hidden;
    if (model->hidden % model->heads != 0 && !is_refused) {
        sp_object_error(object, heads_key,
                        "%d heads do not divide a hidden size of %lld, and head_dim is not given",
                        model->heads, (long long)model->hidden);
        return 1;
    }
    return sp_larger(1, model->hidden / model->heads);
}

static void read_sizes(sp_object *object, sp_model *model)
{
    model->layers = (int)required_size(object, "num_hidden_layers", SP_I_MAX_LAYERS);
    model->hidden = required_size(object, "hidden_size", SP_I_MAX_HIDDEN);
    model->ffn = required_size(object, "intermediate_size", SP_I_MAX_FFN);
    model->heads = (int)required_size(object, "num_attention_heads", SP_I_MAX_HEADS);
    model->vocab = required_size(object, "vocab_size", SP_I_MAX_VOCAB);
}

// Does the layer see a window where the file has no layer_types? All layers of Mistral's and of a
// Llama whose file is of another class; of Qwen's those from max_window_layers on.
static bool is_local(const sp_object *object, hf_family family, int layer)
{
    if (family == QWEN2 || family == QWEN3) {
        const json_t *first = json_object_get(object->json, "max_window_layers");
        enum { LIBRARY_FIRST = 28 };
        return layer >= (json_is_integer(first) ? json_integer_value(first) : LIBRARY_FIRST);
    }
    return true;
}

// Attention over the last tokens alone. A Mistral file without the key, and a Qwen file that asks
// for windows without their size, have the library's 4096 tokens; null is no window.
static void read_windows(sp_object *object, hf_family family, sp_model *model)
{
    enum { LIBRARY_WINDOW = 4096 };
    bool qwen = family == QWEN2 || family == QWEN3;
    const json_t *types = json_object_get(object->json, "layer_types");
    bool typed = json_is_array(types);
    bool used = typed || (family != LLAMA && !qwen) ||
                sp_object_bool(object, "use_sliding_window", family == LLAMA);
    bool is_null = json_is_null(json_object_get(object->json, "sliding_window"));
    int usual = !is_null && (qwen || family == MISTRAL) ? LIBRARY_WINDOW : 0;
    int64_t window =
        used ? sp_object_int(object, "sliding_window", usual, 1, SP_I_MAX_POSITIONS) : 0;
    if (typed && json_array_size(types) != (size_t)model->layers) {
        sp_object_error(object, "layer_types", "has %zu layers, the model has %d",
                        json_array_size(types), model->layers);
        return;
    }
    sp_layer_mlp *of_layer = sp_calloc((size_t)model->layers, sizeof *of_layer);
    int local = 0;
    for (int i = 0; window > 0 && i < model->layers; i++) {
        bool here = typed ? is_type(json_array_get(types, (size_t)i), "sliding_attention")
                          : is_local(object, family, i);
        of_layer[i] = (sp_layer_mlp){.ffn = model->ffn,
                                     .experts = model->experts,
                                     .experts_per_token = model->experts_per_token,
                                     .window_tokens = here ? window : 0};
        local += here;
    }
    if (local == model->layers) {
        model->window_tokens = window;
    } else if (local > 0 && !sp_model_set_kinds(model, of_layer)) {
        sp_object_error(object, "layer_types",
                        "has no order of at most %d runs of layers that repeats", SP_LAYER_RUNS);
    }
    sp_free(of_layer);
}

// Masks that the dropout of hidden states and of the attention leaves, where there is one.
static void read_dropout(sp_object *object, const char *const keys[], double usual, sp_model *model)
{
    double first = 0.0;
    for (int i = 0; keys[i] != NULL; i++) {
        double share = sp_object_real(object, keys[i], usual, 0.0, 1.0);
        first = i == 0 ? share : first;
        if ((share > 0.0) != (first > 0.0)) {
            sp_object_error(object, keys[i], "dropout in one place and none at %s is not modelled",
                            keys[0]);
        }
    }
    model->dropout = first > 0.0 ? SP_DROPOUT_ON : SP_DROPOUT_OFF;
}

// A key that asks for dropout, of the Llama family whose steps have none here. The dropout of a
// head that classifies is not that of a language model.
static void note_dropout(const sp_object *object, sp_model *model)
{
    static const char *const ends[] = {"dropout", "pdrop", "dropout_prob", "dropout_rate",
                                       "layerdrop"};
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)object->json, key, value) {
        size_t length = strlen(key);
        bool is_asked = json_is_number(value) && json_number_value(value) > 0.0 &&
                        strstr(key, "classifier") == NULL && length < sizeof model->ignored_dropout;
        for (size_t i = 0; is_asked && i < sizeof ends / sizeof ends[0]; i++) {
            size_t end = strlen(ends[i]);
            if (length >= end && strcmp(key + length - end, ends[i]) == 0) {
                memcpy(model->ignored_dropout, key, length + 1);
                return;
            }
        }
    }
}

static void set_biases(sp_model *model, bool all)
{
    model->bias = model->qkv_bias = model->output_bias = model->mlp_bias = all;
}

static void read_biases(sp_object *object, hf_family family, sp_model *model);

static void read_llama_family(sp_object *object, hf_family family, sp_model *model)
{
    model->activation = SP_SWIGLU;
    model->norm = SP_RMSNORM;
    model->positional = SP_ROPE;
    read_sizes(object, model);
    int kv_heads = model->heads;
    if (family == MISTRAL || family == MIXTRAL) {
        kv_heads = 8;
    } else if (family == QWEN2 || family == QWEN3) {
        kv_heads = 32;
    }
    // An explicit null means as many as query heads.
    if (object->json != NULL &&
        json_is_null(json_object_get(object->json, "num_key_value_heads"))) {
        kv_heads = model->heads;
    }
    model->kv_heads =
        (int)sp_object_int(object, "num_key_value_heads", kv_heads, 1, SP_I_MAX_HEADS);
    model->head_dim = head_dim_of(object, "num_attention_heads", model, family == QWEN3 ? 128 : 0);
    model->tied_embeddings = sp_object_bool(object, "tie_word_embeddings", false);
    model->qk_norm = family == QWEN3;
    if (family == MIXTRAL) {
        model->experts = (int)sp_object_int(object, "num_local_experts", 8, 1, SP_I_MAX_EXPERTS);
        model->experts_per_token =
            (int)sp_object_int(object, "num_experts_per_tok", 2, 1, SP_I_MAX_EXPERTS);
    }
    read_biases(object, family, model);
    read_windows(object, family, model);
    note_dropout(object, model);
}

// Qwen2 always has biases on q, k and v alone. Where `attention_bias` is read it covers the output
// projection as well.
static void read_biases(sp_object *object, hf_family family, sp_model *model)
{
    if (family == QWEN2) {
        model->qkv_bias = true;
        return;
    }
    if (family != LLAMA && family != QWEN3) {
        if (sp_object_bool(object, "attention_bias", false)) {
            sp_object_error(object, "attention_bias", "%s", biases);
        }
        return;
    }
    bool attention = sp_object_bool(object, "attention_bias", false);
    bool mlp = family == LLAMA && sp_object_bool(object, "mlp_bias", false);
    set_biases(model, attention && mlp);
    model->qkv_bias = model->output_bias = attention;
    model->mlp_bias = mlp;
}

static void read_gpt2(sp_object *object, sp_model *model)
{
    model->activation = SP_GELU;
    model->norm = SP_LAYERNORM;
    model->positional = SP_LEARNED;
    model->layers = (int)required_size(object, "n_layer", SP_I_MAX_LAYERS);
    model->hidden = required_size(object, "n_embd", SP_I_MAX_HIDDEN);
    model->heads = (int)required_size(object, "n_head", SP_I_MAX_HEADS);
    model->vocab = required_size(object, "vocab_size", SP_I_MAX_VOCAB);
    model->ffn = sp_object_int(object, "n_inner", 4 * model->hidden, 1, SP_I_MAX_FFN);
    model->max_positions = sp_object_int(object, "n_positions", 1024, 1, SP_I_MAX_POSITIONS);
    model->kv_heads = model->heads;
    model->head_dim = head_dim_of(object, "n_head", model, 0);
    model->tied_embeddings = sp_object_bool(object, "tie_word_embeddings", true);
    set_biases(model, true);
    static const char *const dropouts[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop", NULL};
    read_dropout(object, dropouts, 0.1, model);
}

static void read_gpt_neox(sp_object *object, sp_model *model)
{
    model->activation = SP_GELU;
    model->norm = SP_LAYERNORM;
    model->positional = SP_ROPE;
    read_sizes(object, model);
    model->kv_heads = model->heads;
    if (sp_object_int(object, "num_key_value_heads", model->heads, 1, SP_I_MAX_HEADS) !=
        model->heads) {
        sp_object_error(object, "num_key_value_heads", "%s", shapes);
    }
    model->head_dim = head_dim_of(object, "num_attention_heads", model, 0);
    model->tied_embeddings = sp_object_bool(object, "tie_word_embeddings", false);
    set_biases(model, sp_object_bool(object, "attention_bias", true));
    model->mlp_bias = true;
    static const char *const dropouts[] = {"hidden_dropout", "attention_dropout", NULL};
    read_dropout(object, dropouts, 0.0, model);
}
