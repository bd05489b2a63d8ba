// Hugging Face config.json. Defaults of absent keys are those of the transformers library's
// configuration classes (src/transformers/models/*/configuration_*.py).
#include <string.h>

#include "sim/model/model.h"

// In the order of family_names.
typedef enum hf_family { LLAMA, MISTRAL, QWEN2, QWEN3, MIXTRAL, GPT2, GPT_NEOX } hf_family;

static const char *const family_names[] = {"llama",   "mistral", "qwen2",    "qwen3",
                                           "mixtral", "gpt2",    "gpt_neox", NULL};

static void read_llama_family(sp_object *object, hf_family family, sp_model *model);
static void read_gpt2(sp_object *object, sp_model *model);
static void read_gpt_neox(sp_object *object, sp_model *model);
static void name_model(sp_object *object, const char *fallback, sp_model *model);

sp_status sp_model_read_hf(const char *path, sp_model *model, sp_error *err)
{
    json_t *root = NULL;
    sp_status status = sp_json_read_file(path, 0, &root, err);
    if (status == SP_OK) {
        status = sp_model_from_hf(root, path, model, err);
        json_decref(root);
    }
    return status;
}

sp_status sp_model_from_hf(const json_t *config, const char *source, sp_model *model, sp_error *err)
{
    sp_error local;
    sp_error_clear(&local);
    sp_error *found = err != NULL ? err : &local;
    int before = found->count + found->dropped;

    *model = (sp_model){.layers = 1};
    sp_object object;
    sp_object_begin(&object, config, source, "", found);
    if (object.json != NULL) {
        sp_object_require(&object, "model_type");
    }
    if (found->count + found->dropped != before) {
        return found->status;
    }
    hf_family family = (hf_family)sp_object_enum(&object, "model_type", family_names, LLAMA);
    if (found->count + found->dropped != before) {
        return found->status;
    }
    name_model(&object, family_names[family], model);
    if (family == GPT2) {
        read_gpt2(&object, model);
    } else if (family == GPT_NEOX) {
        read_gpt_neox(&object, model);
    } else {
        read_llama_family(&object, family, model);
    }
    if (found->count + found->dropped != before) {
        return found->status;
    }
    return sp_model_check(model, source, "", found);
}

static void name_model(sp_object *object, const char *fallback, sp_model *model)
{
    const json_t *given = sp_object_get(object, "_name_or_path");
    const char *text = json_is_string(given) ? json_string_value(given) : "";
    text = text[0] != '\0' ? text : fallback;
    size_t length = strlen(text);
    if (length >= sizeof model->name) {
        // Cut between characters: half of one is not valid UTF-8 and could not be written as JSON.
        length = sizeof model->name - 1;
        while (length > 0 && ((unsigned char)text[length] & 0xC0u) == 0x80u) {
            length--;
        }
    }
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
    if (model->hidden % model->heads != 0) {
        sp_object_error(object, heads_key,
                        "%d heads do not divide a hidden size of %lld, and head_dim is not given",
                        model->heads, (long long)model->hidden);
        return 1;
    }
    return model->hidden / model->heads;
}

static void read_sizes(sp_object *object, sp_model *model)
{
    model->layers = (int)required_size(object, "num_hidden_layers", SP_I_MAX_LAYERS);
    model->hidden = required_size(object, "hidden_size", SP_I_MAX_HIDDEN);
    model->ffn = required_size(object, "intermediate_size", SP_I_MAX_FFN);
    model->heads = (int)required_size(object, "num_attention_heads", SP_I_MAX_HEADS);
    model->vocab = required_size(object, "vocab_size", SP_I_MAX_VOCAB);
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
}

// Qwen2 always has biases on q, k and v alone. Where `attention_bias` is read it covers the output
// projection as well, which a model holds only together with the MLP's.
static void read_biases(sp_object *object, hf_family family, sp_model *model)
{
    if (family == QWEN2) {
        model->qkv_bias = true;
        return;
    }
    if (family != LLAMA && family != QWEN3) {
        return;
    }
    bool attention = sp_object_bool(object, "attention_bias", false);
    bool mlp = family == LLAMA && sp_object_bool(object, "mlp_bias", false);
    if (attention != mlp) {
        sp_object_error(object, attention ? "attention_bias" : "mlp_bias",
                        "biases on the %s alone are not supported",
                        attention ? "attention" : "MLP");
    }
    model->bias = attention && mlp;
    model->qkv_bias = model->bias;
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
    model->bias = true;
    model->qkv_bias = true;
}

static void read_gpt_neox(sp_object *object, sp_model *model)
{
    model->activation = SP_GELU;
    model->norm = SP_LAYERNORM;
    model->positional = SP_ROPE;
    read_sizes(object, model);
    model->kv_heads = model->heads;
    model->head_dim = head_dim_of(object, "num_attention_heads", model, 0);
    model->tied_embeddings = sp_object_bool(object, "tie_word_embeddings", false);
    model->bias = sp_object_bool(object, "attention_bias", true);
    if (!model->bias) {
        sp_object_error(object, "attention_bias", "biases on the MLP alone are not supported");
    }
    model->qkv_bias = model->bias;
}
