// The families of models whose Hugging Face config.json is read: a row for each, and what single
// families say. Values of absent keys are those of the transformers library's configuration classes
// (src/transformers/models/*/configuration_*.py).
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/model/hf_config.h"
#include "sim/model/model.h"

// ---- values ----

int64_t sp_i_hf_size(sp_object *object, const char *key, int64_t max)
{
    sp_object_require(object, key);
    return sp_object_int(object, key, 1, 1, max);
}

const char *sp_i_hf_key(const sp_i_hf_family *family, const char *usual)
{
    for (int i = 0; i < SP_I_HF_RENAMED && family->renamed[i].usual != NULL; i++) {
        if (strcmp(family->renamed[i].usual, usual) == 0) {
            return family->renamed[i].here;
        }
    }
    return usual;
}

static bool is_null(const sp_object *object, const char *key)
{
    return json_is_null(json_object_get(object->json, key));
}

// The number of a list that has it for each layer, as Hunyuan's files write it; else the value.
static int64_t number_of_layers(sp_object *object, const char *key, int64_t usual, int64_t least,
                                int64_t most)
{
    const json_t *list = sp_object_get(object, key);
    json_t *first = json_array_get(list, 0);
    bool alike = first != NULL;
    for (size_t i = 1; alike && i < json_array_size(list); i++) {
        alike = json_equal(first, json_array_get(list, i)) != 0;
    }
    if (!alike) {
        return sp_object_int(object, key, usual, least, most);
    }
    json_auto_t *one = json_object();
    json_object_set(one, key, first);
    sp_object each = *object;
    each.json = one;
    return sp_object_int(&each, key, usual, least, most);
}

int64_t sp_i_hf_number(sp_object *object, const char *key, int64_t usual, int64_t null,
                       int64_t least, int64_t most)
{
    if (!is_null(object, key)) {
        return number_of_layers(object, key, usual, least, most);
    }
    sp_object_get(object, key);
    if (null == SP_I_HF_NO_NULL) {
        sp_object_error(object, key, "expected an integer from %lld to %lld, got null",
                        (long long)least, (long long)most);
    }
    return null == SP_I_HF_NO_NULL ? usual : null;
}

int64_t sp_i_hf_head_dim(sp_object *object, const sp_i_hf_family *family, const sp_model *model)
{
    const char *key = sp_i_hf_key(family, "head_dim");
    if (sp_object_has(object, key)) {
        return sp_object_int(object, key, 1, 1, SP_I_MAX_HEAD_DIM);
    }
    if (family->head_dim > 0 && !is_null(object, key)) {
        return family->head_dim;
    }
    const json_t *hidden = json_object_get(object->json, sp_i_hf_key(family, "hidden_size"));
    bool is_refused = json_integer_value(hidden) != model->hidden;
    if (model->hidden % model->heads != 0 && !is_refused) {
        sp_object_error(object, sp_i_hf_key(family, "num_attention_heads"),
                        "%d heads do not divide a hidden size of %lld, and %s is not given",
                        model->heads, (long long)model->hidden, key);
        return 1;
    }
    return sp_larger(1, model->hidden / model->heads);
}

static int64_t size_or(sp_object *object, const char *key, int64_t usual, int64_t max)
{
    return usual > 0 ? sp_object_int(object, key, usual, 1, max) : sp_i_hf_size(object, key, max);
}

void sp_i_hf_read_sizes(sp_object *object, const sp_i_hf_family *family, sp_model *model)
{
    const char *heads = sp_i_hf_key(family, "num_attention_heads");
    model->layers =
        (int)sp_i_hf_size(object, sp_i_hf_key(family, "num_hidden_layers"), SP_I_MAX_LAYERS);
    model->hidden = sp_i_hf_size(object, sp_i_hf_key(family, "hidden_size"), SP_I_MAX_HIDDEN);
    model->heads = (int)size_or(object, heads, family->heads, SP_I_MAX_HEADS);
    model->vocab =
        size_or(object, sp_i_hf_key(family, "vocab_size"), family->vocab, SP_I_MAX_VOCAB);
}

void sp_i_hf_read_dropout(sp_object *object, const char *const keys[], double usual,
                          sp_model *model)
{
    double first = 0.0;
    for (int i = 0; i < SP_I_HF_DROPOUTS && keys[i] != NULL; i++) {
        double share = sp_object_real(object, keys[i], usual, 0.0, 1.0);
        first = i == 0 ? share : first;
        if ((share > 0.0) != (first > 0.0)) {
            sp_object_error(object, keys[i], "dropout in one place and none at %s is not modelled",
                            keys[0]);
        }
    }
    model->dropout = first > 0.0 ? SP_DROPOUT_ON : SP_DROPOUT_OFF;
}

void sp_i_hf_set_biases(sp_model *model, bool all)
{
    model->bias = model->qkv_bias = model->output_bias = model->mlp_bias = all;
}

bool sp_i_hf_is_text(const json_t *type, const char *name)
{
    return json_is_string(type) && strcmp(json_string_value(type), name) == 0;
}

// A switch of which one value alone is modelled.
static void expect(sp_object *object, const char *key, bool value, const char *why)
{
    if (sp_object_bool(object, key, value) != value) {
        sp_object_error(object, key, "%s: expected it to be absent or %s", why,
                        value ? "true" : "false");
    }
}

// A number that must be another one, where the file states it.
static void expect_number(sp_object *object, const char *key, int64_t number, const char *what)
{
    int64_t stated = sp_i_hf_number(object, key, number, number, 0, SP_I_MAX_FFN);
    if (stated != number) {
        sp_object_error(object, key, "is %lld, and %s %lld", (long long)stated, what,
                        (long long)number);
    }
}

static const char other_biases[] = "biases other than those of the model_type are not modelled";
static const char bare_convolution[] = "a convolution without a bias is not modelled";

const json_t *sp_i_hf_of_layers(sp_object *object, const char *key, const sp_model *model)
{
    const json_t *array = sp_object_get(object, key);
    if (!json_is_array(array) || json_array_size(array) == 0) {
        return NULL;
    }
    if (json_array_size(array) != (size_t)model->layers) {
        sp_object_error(object, key, "has %zu layers, the model has %d", json_array_size(array),
                        model->layers);
        return NULL;
    }
    return array;
}

// ---- what single families say ----

// Granite 4's layer_types: "mamba" or "attention".
static void read_layers_of_granite(sp_object *object, const sp_model *model, sp_layer_mlp *of_layer)
{
    const json_t *types = sp_i_hf_of_layers(object, "layer_types", model);
    sp_object_require(object, "layer_types");
    for (int i = 0; types != NULL && i < model->layers; i++) {
        const json_t *type = json_array_get(types, (size_t)i);
        bool attends = sp_i_hf_is_text(type, "attention");
        if (!attends && !sp_i_hf_is_text(type, "mamba")) {
            sp_object_expected(object, "layer_types", type,
                               "\"mamba\" or \"attention\" of each layer");
            return;
        }
        of_layer[i].mixer = attends ? SP_MIXER_ATTENTION : SP_MIXER_MAMBA2;
    }
}

// Every full_attention_interval-th layer has attention, unless layer_types say which.
static void read_layers_of_qwen3_next(sp_object *object, const sp_model *model,
                                      sp_layer_mlp *of_layer)
{
    const json_t *types = sp_i_hf_of_layers(object, "layer_types", model);
    int64_t every = sp_object_int(object, "full_attention_interval", 4, 1, SP_I_MAX_LAYERS);
    for (int i = 0; i < model->layers; i++) {
        const json_t *type = json_array_get(types, (size_t)i);
        bool attends =
            types != NULL ? sp_i_hf_is_text(type, "full_attention") : (i + 1) % every == 0;
        if (types != NULL && !attends && !sp_i_hf_is_text(type, "linear_attention")) {
            sp_object_expected(object, "layer_types", type,
                               "\"full_attention\" or \"linear_attention\" of each layer");
            return;
        }
        of_layer[i].mixer = attends ? SP_MIXER_ATTENTION : SP_MIXER_GATED_DELTA;
    }
}

static bool holds(const json_t *list, int layer)
{
    bool found = false;
    for (size_t i = 0; !found && i < json_array_size(list); i++) {
        const json_t *number = json_array_get(list, i);
        found = json_is_integer(number) && json_integer_value(number) == layer;
    }
    return found;
}

static void read_layers_of_bamba(sp_object *object, const sp_model *model, sp_layer_mlp *of_layer)
{
    static const char key[] = "attn_layer_indices";
    const json_t *attending = sp_object_get(object, key);
    size_t found = 0;
    for (int i = 0; i < model->layers; i++) {
        bool attends = holds(attending, i);
        found += attends;
        of_layer[i].mixer = attends ? SP_MIXER_ATTENTION : SP_MIXER_MAMBA2;
    }
    if (attending != NULL && (!json_is_array(attending) || found != json_array_size(attending))) {
        sp_object_expected(object, key, attending, "a list of layers, each below %d and once",
                           model->layers);
    }
}

// Qwen2-MoE's and Qwen3-MoE's: every decoder_sparse_step-th layer but those of a list.
static bool is_routed_qwen(sp_object *object, int layer)
{
    int64_t step = sp_object_int(object, "decoder_sparse_step", 1, 1, SP_I_MAX_LAYERS);
    return !holds(sp_object_get(object, "mlp_only_layers"), layer) && (layer + 1) % step == 0;
}

static bool is_routed_glm(sp_object *object, int layer)
{
    return layer >= sp_object_int(object, "first_k_dense_replace", 1, 0, SP_I_MAX_LAYERS);
}

// As a list says of each layer, or as GLM-4.5's.
static bool is_routed_glm_lite(sp_object *object, int layer)
{
    const json_t *types = sp_object_get(object, "mlp_layer_types");
    const json_t *type = json_array_get(types, (size_t)layer);
    bool routed = sp_i_hf_is_text(type, "sparse");
    if (types != NULL && !routed && !sp_i_hf_is_text(type, "dense")) {
        sp_object_expected_item(object, "mlp_layer_types", (size_t)layer, type,
                                "\"dense\" or \"sparse\"");
    }
    return types != NULL ? routed : is_routed_glm(object, layer);
}

static bool is_routed_afmoe(sp_object *object, int layer)
{
    return layer >= sp_object_int(object, "num_dense_layers", 1, 0, SP_I_MAX_LAYERS);
}

// DeepSeek's: every so many layers from one on.
static bool is_routed_behind(sp_object *object, int layer, int usual)
{
    int64_t every = sp_object_int(object, "moe_layer_freq", 1, 1, SP_I_MAX_LAYERS);
    return layer % every == 0 &&
           layer >= sp_object_int(object, "first_k_dense_replace", usual, 0, SP_I_MAX_LAYERS);
}

static bool is_routed_deepseek_v2(sp_object *object, int layer)
{
    return is_routed_behind(object, layer, 0);
}

static bool is_routed_deepseek_v3(sp_object *object, int layer)
{
    return is_routed_behind(object, layer, 3);
}

// Llama 4's: those of a list, which may be empty, or every so many.
static bool is_routed_llama4(sp_object *object, int layer)
{
    const json_t *list = sp_object_get(object, "moe_layers");
    int64_t step = sp_object_int(object, "interleave_moe_layer_step", 1, 1, SP_I_MAX_LAYERS);
    return json_is_array(list) ? holds(list, layer) : (layer + 1) % step == 0;
}

// ERNIE 4.5's: those between two indices, of which the last counts too; -1 is that of the last
// layer.
static bool is_routed_ernie(sp_object *object, int layer)
{
    int64_t every = sp_object_int(object, "moe_layer_interval", 1, 1, SP_I_MAX_LAYERS);
    int64_t first = sp_object_int(object, "moe_layer_start_index", 1, 0, SP_I_MAX_LAYERS);
    int64_t last = sp_object_int(object, "moe_layer_end_index", -1, -1, SP_I_MAX_LAYERS);
    return (layer + 1) % every == 0 && layer >= first && (last < 0 || layer <= last);
}

// Layers that predict further tokens, which Megatron-Bridge trains and the library's classes leave
// out (model.mtp_layers 0).
static void read_mtp(sp_object *object, sp_model *model)
{
    model->mtp_layers =
        (int)sp_object_int(object, "num_nextn_predict_layers", 0, 0, SP_I_MAX_MTP_LAYERS);
}

// Where a list and a number of dense layers differ, the list counts.
static void finish_glm_lite(sp_object *object, sp_model *model)
{
    static const char key[] = "first_k_dense_replace";
    bool differs = false;
    for (int i = 0; sp_object_has(object, key) && i < model->layers; i++) {
        differs = differs || is_routed_glm_lite(object, i) != is_routed_glm(object, i);
    }
    if (differs) {
        sp_i_hf_add_key(model->ignored_keys, key);
    }
    read_mtp(object, model);
}

// Published files say it twice.
// Models before the newer architecture have one head of keys and values, or one for each query
// head, whatever their number says.
static void finish_falcon(sp_object *object, sp_model *model)
{
    bool newer = sp_object_bool(object, "new_decoder_architecture", false);
    bool shares = sp_object_bool(object, "multi_query", true);
    bool beside = sp_object_bool(object, "parallel_attn", true);
    int norms = (int)sp_i_hf_number(object, "num_ln_in_parallel_attn", 2, 2, 1, 2);
    if (!newer) {
        model->kv_heads = shares ? 1 : model->heads;
    }
    model->blocks = newer && norms == 2 ? SP_BLOCKS_TWO_NORMS
                    : newer || beside   ? SP_BLOCKS_ONE_NORM
                                        : SP_BLOCKS_IN_TURN;
    expect(object, "alibi", false, "positions that are added to scores (ALiBi) are not modelled");
}

// Published files say in letters, beside layer_types, which layers are local and global.
static void finish_exaone4(sp_object *object, sp_model *model)
{
    const json_t *pattern = sp_object_get(object, "sliding_window_pattern");
    bool usual = json_integer_value(pattern) == 4 || sp_i_hf_is_text(pattern, "LLLG");
    if (pattern != NULL && !usual && !sp_i_hf_asks_for_nothing(pattern) &&
        sp_i_hf_of_layers(object, "layer_types", model) == NULL) {
        sp_object_expected(object, "sliding_window_pattern", pattern,
                           "4 or \"LLLG\", or layer_types beside it");
    }
}

static void finish_gpt_oss(sp_object *object, sp_model *model)
{
    expect_number(object, "experts_per_token", model->experts_per_token, "num_experts_per_tok");
}

// Published files say the size of a head under another name too, and of the experts their width.
static void finish_hunyuan(sp_object *object, sp_model *model)
{
    expect_number(object, "attention_head_dim", model->head_dim, "the size of a head");
    expect(object, "use_cla", false, "layers that share keys and values are not modelled");
    if (model->experts > 0) {
        expect_number(object, "moe_intermediate_size", model->ffn, "intermediate_size");
        expect(object, "use_mixed_mlp_moe", true, "a model without shared experts is not modelled");
    }
}

// Its attention's output has a gate for each feature, beside four norms in a layer. Another pair of
// keys also names groups of experts.
static void finish_afmoe(sp_object *object, sp_model *model)
{
    model->attention_gate = true;
    expect(object, "attention_bias", false, other_biases);
    expect_number(object, "num_expert_groups", 1, "modelled is");
    expect_number(object, "num_limited_groups", 1, "modelled is");
}

// Its norms of queries and keys have no weights, and are not simulated.
static void finish_llama4(sp_object *object, sp_model *model)
{
    if (sp_object_bool(object, "use_qk_norm", true)) {
        sp_i_hf_add_key(model->ignored_keys, "use_qk_norm");
    }
}

// Layers of another model_type of theirs have linear attention (0), these softmax attention (1).
static void finish_minimax(sp_object *object, sp_model *model)
{
    const json_t *types = sp_i_hf_of_layers(object, "attn_type_list", model);
    size_t i;
    json_t *type;
    json_array_foreach (types, i, type) {
        if (json_integer_value(type) != 1) {
            sp_object_expected(object, "attn_type_list", type,
                               "1 (softmax attention) of each layer");
            return;
        }
    }
    sp_object_get(object, "qk_norm_type");
    if (model->qk_norm && json_object_get(object->json, "qk_norm_type") != NULL &&
        !sp_i_hf_is_text(json_object_get(object->json, "qk_norm_type"), "per_layer")) {
        sp_object_expected(object, "qk_norm_type", json_object_get(object->json, "qk_norm_type"),
                           "\"per_layer\"");
    }
}

// Files say the width of the shared experts besides.
static void finish_bailing(sp_object *object, sp_model *model)
{
    int64_t shared = 0;
    for (int k = 0; k < sp_model_kinds(model); k++) {
        sp_model space;
        shared = sp_larger(shared, sp_model_of_kind(model, k, &space)->shared_ffn);
    }
    static const char key[] = "moe_shared_expert_intermediate_size";
    if (sp_object_int(object, key, shared, 0, SP_I_MAX_FFN) != shared) {
        sp_object_error(object, key, "is not the width of all shared experts, %lld",
                        (long long)shared);
    }
    read_mtp(object, model);
}

// The first Qwen's files give the width of gate and up together; only queries, keys and values have
// biases unless no_bias is false.
static void finish_qwen(sp_object *object, sp_model *model)
{
    if (model->ffn % 2 != 0) {
        sp_object_error(object, "intermediate_size", "expected an even number, got %lld",
                        (long long)model->ffn);
    }
    model->ffn = sp_larger(1, model->ffn / 2);
    sp_i_hf_set_biases(model, !sp_object_bool(object, "no_bias", true));
    model->qkv_bias = true;
}

static void finish_chatglm(sp_object *object, sp_model *model)
{
    if (!sp_object_bool(object, "multi_query_attention", false)) {
        model->kv_heads = model->heads;
    }
    model->norm = sp_object_bool(object, "rmsnorm", true) ? SP_RMSNORM : SP_LAYERNORM;
    model->qkv_bias = model->qkv_bias || model->mlp_bias;
    model->bias = model->mlp_bias;
    expect(object, "post_layer_norm", true,
           "a model without a norm before its head is not modelled");
    expect(object, "apply_residual_connection_post_layernorm", false,
           "a residual path of normed states is not modelled");
}

// Mamba-2 as Bamba and Granite 4 have it. Heads share mamba_expand times the width of the hidden
// states where the file does not say how wide each is.
static void read_mamba(sp_object *object, sp_model *model)
{
    if (!sp_model_has_state(model)) {
        return;
    }
    int64_t width = model->hidden * sp_object_int(object, "mamba_expand", 2, 1, 64);
    model->state_heads = (int)sp_object_int(object, "mamba_n_heads", 128, 1, SP_I_MAX_HEADS);
    model->state_groups = (int)sp_object_int(object, "mamba_n_groups", 1, 1, SP_I_MAX_HEADS);
    model->state_dim = sp_object_int(object, "mamba_d_state", 256, 1, SP_I_MAX_HEAD_DIM);
    model->state_conv = sp_object_int(object, "mamba_d_conv", 4, 1, SP_I_MAX_STATE_CONV);
    model->state_head_dim = sp_larger(1, width / model->state_heads);
    const json_t *dim = sp_object_get(object, "mamba_d_head");
    if (dim != NULL && !sp_i_hf_is_text(dim, "auto")) {
        model->state_head_dim = sp_object_int(object, "mamba_d_head", 64, 1, SP_I_MAX_HEAD_DIM);
    }
    if (model->state_head_dim * model->state_heads != width) {
        sp_object_error(object, "mamba_d_head", "%d heads of %lld are not the width of %lld",
                        model->state_heads, (long long)model->state_head_dim, (long long)width);
    }
    expect(object, "mamba_conv_bias", true, bare_convolution);
    expect(object, "mamba_proj_bias", false, other_biases);
}

// Granite 4: a shared MLP beside experts, alone where there are none; positions or none.
static void finish_granite(sp_object *object, sp_model *model)
{
    const json_t *positions = sp_object_get(object, "position_embedding_type");
    if (positions != NULL && !sp_i_hf_is_text(positions, "rope") &&
        !sp_i_hf_is_text(positions, "nope")) {
        sp_object_expected(object, "position_embedding_type", positions, "\"rope\" or \"nope\"");
    }
    model->positional =
        positions != NULL && sp_i_hf_is_text(positions, "rope") ? SP_ROPE : SP_NO_POSITIONS;
    read_mamba(object, model);
}

// A state whose heads forget and write by themselves, in place of attention in most layers, and a
// gate of the attention's output in the others (Qwen/Qwen3-Next-80B-A3B, arXiv 2412.06464). Its
// files hold a layer that predicts a further token, of which their keys say nothing.
static void finish_qwen3_next(sp_object *object, sp_model *model)
{
    model->attention_gate = true;
    if (!sp_model_has_state(model)) {
        return;
    }
    model->state_heads =
        (int)sp_object_int(object, "linear_num_value_heads", 32, 1, SP_I_MAX_HEADS);
    model->state_groups = (int)sp_object_int(object, "linear_num_key_heads", 16, 1, SP_I_MAX_HEADS);
    model->state_head_dim =
        sp_object_int(object, "linear_value_head_dim", 128, 1, SP_I_MAX_HEAD_DIM);
    model->state_dim = sp_object_int(object, "linear_key_head_dim", 128, 1, SP_I_MAX_HEAD_DIM);
    model->state_conv = sp_object_int(object, "linear_conv_kernel_dim", 4, 1, SP_I_MAX_STATE_CONV);
}

// The same layers, of which files name those that predict further tokens: with attention.
static void finish_qwen3_5(sp_object *object, sp_model *model)
{
    static const char key[] = "mtp_num_hidden_layers";
    finish_qwen3_next(object, model);
    expect(object, "attn_output_gate", true, "attention without a gate is not modelled");
    expect(object, "mtp_use_dedicated_embeddings", false,
           "embeddings of layers that predict further tokens are not modelled");
    model->mtp_layers = (int)sp_object_int(object, key, 0, 0, SP_I_MAX_MTP_LAYERS);
    sp_model space;
    int last = sp_model_kind_of(model, model->layers - 1);
    if (model->mtp_layers > 0 && sp_mixer_has_state(sp_model_of_kind(model, last, &space)->mixer)) {
        sp_object_error(object, key,
                        "a layer unlike the last, which has no attention, that "
                        "predicts a further token is not modelled");
    }
}

// GPT-2, and GPT-BigCode, whose query heads share one head of keys and values unless the file says
// no (multi_query).
static void read_gpt2(sp_object *object, const sp_i_hf_family *family, sp_model *model)
{
    model->activation = SP_GELU;
    model->norm = SP_LAYERNORM;
    model->positional = SP_LEARNED;
    sp_i_hf_read_sizes(object, family, model);
    model->ffn = sp_object_int(object, "n_inner", 4 * model->hidden, 1, SP_I_MAX_FFN);
    model->max_positions = sp_object_int(object, "n_positions", 1024, 1, SP_I_MAX_POSITIONS);
    bool shares = family->kv_heads == 1 && sp_object_bool(object, "multi_query", true);
    model->kv_heads = shares ? 1 : model->heads;
    model->head_dim = sp_i_hf_head_dim(object, family, model);
    model->tied_embeddings = sp_object_bool(object, "tie_word_embeddings", true);
    sp_i_hf_set_biases(model, sp_object_bool(object, "use_bias", true));
    static const char *const dropouts[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop", NULL};
    sp_i_hf_read_dropout(object, dropouts, 0.1, model);
}

static void read_gpt_neox(sp_object *object, const sp_i_hf_family *family, sp_model *model)
{
    model->activation = SP_GELU;
    model->norm = SP_LAYERNORM;
    model->positional = SP_ROPE;
    sp_i_hf_read_sizes(object, family, model);
    model->ffn = sp_i_hf_size(object, "intermediate_size", SP_I_MAX_FFN);
    model->kv_heads = model->heads;
    if (sp_object_int(object, "num_key_value_heads", model->heads, 1, SP_I_MAX_HEADS) !=
        model->heads) {
        sp_object_error(object, "num_key_value_heads",
                        "groups of heads are not modelled of this model_type");
    }
    model->head_dim = sp_i_hf_head_dim(object, family, model);
    model->tied_embeddings = sp_object_bool(object, "tie_word_embeddings", false);
    sp_i_hf_set_biases(model, sp_object_bool(object, "attention_bias", true));
    model->mlp_bias = true;
    if (sp_object_bool(object, "use_parallel_residual", true)) { // without dropout
        model->blocks = SP_BLOCKS_TWO_NORMS;
        model->dropout = SP_DROPOUT_OFF;
        sp_i_hf_note_dropout(object, model);
        return;
    }
    static const char *const dropouts[] = {"hidden_dropout", "attention_dropout", NULL};
    sp_i_hf_read_dropout(object, dropouts, 0.0, model);
}

// Sizes of attention and experts stand in objects of their own. Its norms have no biases, as
// RMSNorm, at whose cost LayerNorm runs too.
static void read_dbrx(sp_object *object, const sp_i_hf_family *family, sp_model *model)
{
    sp_object attention;
    sp_object experts;
    model->activation = SP_SWIGLU;
    model->norm = SP_RMSNORM;
    model->positional = SP_ROPE;
    sp_i_hf_read_sizes(object, family, model);
    sp_object_require_all(object, "attn_config", "ffn_config");
    sp_object_member(object, "attn_config", &attention);
    sp_object_member(object, "ffn_config", &experts);
    model->kv_heads = (int)sp_object_int(&attention, "kv_n_heads", 1, 1, SP_I_MAX_HEADS);
    model->head_dim = sp_i_hf_head_dim(object, family, model);
    model->ffn = sp_object_int(&experts, "ffn_hidden_size", 3584, 1, SP_I_MAX_FFN);
    model->experts = (int)sp_object_int(&experts, "moe_num_experts", 4, 1, SP_I_MAX_EXPERTS);
    model->experts_per_token = (int)sp_object_int(&experts, "moe_top_k", 1, 1, SP_I_MAX_EXPERTS);
    model->tied_embeddings = sp_object_bool(object, "tie_word_embeddings", false);
    sp_object activation;
    sp_object_member(&experts, "ffn_act_fn", &activation);
    const json_t *name = json_object_get(activation.json, "name");
    if (name != NULL && !sp_i_hf_is_text(name, "silu")) {
        sp_object_expected(&activation, "name", name, "\"silu\"");
    }
    static const char *const routing[] = {"moe_loss_weight", "moe_jitter_eps",
                                          "moe_normalize_expert_weights"};
    for (size_t i = 0; i < sizeof routing / sizeof routing[0]; i++) {
        sp_object_get(&experts, routing[i]);
    }
    sp_object *parts[] = {&attention, &experts};
    for (int i = 0; i < 2; i++) {
        sp_i_hf_refuse_keys(parts[i], false);
        sp_i_hf_note_unread(parts[i], model);
        sp_i_hf_note_dropout(parts[i], model);
    }
}

// What a layer is, each with one norm: a state (M), attention (*), an MLP (-) or experts (E), as a
// text of letters or a list of names says; 0: none of them.
static char letter_of(const json_t *pattern, int layer)
{
    static const struct {
        const char *name, *newer; // of other versions of the library
        char letter;
    } kinds[] = {{"mamba", "linear_attention", 'M'},
                 {"attention", "full_attention", '*'},
                 {"mlp", "mlp", '-'},
                 {"moe", "moe", 'E'}};
    char found = json_is_string(pattern) ? json_string_value(pattern)[layer] : '\0';
    const json_t *name = json_array_get(pattern, (size_t)layer);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        if (found == kinds[k].letter || sp_i_hf_is_text(name, kinds[k].name) ||
            sp_i_hf_is_text(name, kinds[k].newer)) {
            return kinds[k].letter;
        }
    }
    return '\0';
}

// A layer of experts. They and the shared ones have no gate either.
static sp_layer_mlp experts_of_nemotron(sp_object *object)
{
    static const char *const keys[] = {"n_routed_experts", "num_experts_per_tok", NULL};
    sp_object_require_keys(object, keys);
    expect_number(object, "n_shared_experts", 1, "modelled is");
    return (sp_layer_mlp){
        .ffn = sp_i_hf_size(object, "moe_intermediate_size", SP_I_MAX_FFN),
        .experts = (int)sp_object_int(object, keys[0], 1, 1, SP_I_MAX_EXPERTS),
        .experts_per_token = (int)sp_object_int(object, keys[1], 1, 1, SP_I_MAX_EXPERTS),
        .shared_ffn = sp_i_hf_size(object, "moe_shared_expert_intermediate_size", SP_I_MAX_FFN),
        .mixer = SP_MIXER_NONE};
}

static void read_pattern(sp_object *object, sp_model *model)
{
    const json_t *pattern = sp_object_get(object, "layers_block_type");
    const char *key = pattern != NULL ? "layers_block_type" : "hybrid_override_pattern";
    const json_t *letters = sp_object_get(object, "hybrid_override_pattern");
    sp_object_require(object, key);
    pattern = pattern != NULL ? pattern : letters;
    size_t length =
        json_is_string(pattern) ? json_string_length(pattern) : json_array_size(pattern);
    if (length != (size_t)model->layers) {
        sp_object_error(object, key,
                        "expected a letter for each of %d layers: \"M\" (Mamba-2), \"*\" "
                        "(attention), \"-\" (an MLP) or \"E\" (experts)",
                        model->layers);
        return;
    }
    sp_layer_mlp *of_layer = sp_calloc((size_t)model->layers, sizeof *of_layer);
    sp_layer_mlp experts = {.experts = 0};
    bool known = true;
    for (int i = 0; known && i < model->layers; i++) {
        char letter = letter_of(pattern, i);
        known = letter != '\0';
        if (letter == 'E' && experts.experts == 0) {
            experts = experts_of_nemotron(object);
            model->expert_latent =
                sp_i_hf_asks_for_nothing(sp_object_get(object, "moe_latent_size"))
                    ? 0
                    : sp_object_int(object, "moe_latent_size", 0, 1, SP_I_MAX_HIDDEN);
        }
        of_layer[i] = (sp_layer_mlp){.ffn = model->ffn,
                                     .mixer = letter == 'M'   ? SP_MIXER_MAMBA2
                                              : letter == '*' ? SP_MIXER_ATTENTION
                                                              : SP_MIXER_NONE,
                                     .without_mlp = letter != '-'};
        of_layer[i] = letter == 'E' ? experts : of_layer[i];
    }
    if (!known) {
        sp_object_error(object, key,
                        "layers other than \"M\" (Mamba-2), \"*\" (attention), \"-\" (an MLP) and "
                        "\"E\" (experts) are not modelled in a file of this model_type");
    } else if (!sp_model_set_kinds(model, of_layer)) {
        sp_object_error(object, key, "no order of at most %d runs of layers repeats",
                        SP_LAYER_RUNS);
    } else if (model->kinds == 1) {
        sp_model space;
        *model = *sp_model_of_kind(model, 0, &space);
    }
    sp_free(of_layer);
}

// All groups, or a choice that does not look at them, are none.
void sp_i_hf_read_groups(sp_object *object, const sp_i_hf_family *family, sp_model *model)
{
    const char *method = json_string_value(sp_object_get(object, "topk_method"));
    int usual = family->groups > 0 ? family->groups : 1;
    int usually_active = family->groups > 0 ? family->active_groups : 1;
    int64_t groups = sp_i_hf_number(object, "n_group", usual, 1, 1, SP_I_MAX_EXPERTS);
    int64_t active = sp_i_hf_number(object, "topk_group", usually_active, 1, 1, SP_I_MAX_EXPERTS);
    if (groups > active && (method == NULL || strcmp(method, "greedy") != 0)) {
        model->expert_groups = (int)groups;
        model->expert_group_top_k = (int)active;
    }
}

// Nemotron-H (arXiv 2504.03624), whose attention has no positions and whose Mamba-2 has heads of
// their own.
static void read_nemotron_h(sp_object *object, const sp_i_hf_family *family, sp_model *model)
{
    model->activation = SP_SQUARED_RELU;
    model->norm = SP_RMSNORM;
    model->positional = SP_NO_POSITIONS;
    sp_i_hf_read_sizes(object, family, model);
    model->ffn = sp_i_hf_size(object, "intermediate_size", SP_I_MAX_FFN);
    model->kv_heads =
        (int)sp_i_hf_number(object, "num_key_value_heads", 8, model->heads, 1, SP_I_MAX_HEADS);
    const char *dim =
        sp_object_has(object, "attention_head_dim") ? "attention_head_dim" : "head_dim";
    model->head_dim = sp_object_int(object, dim, 128, 1, SP_I_MAX_HEAD_DIM);
    model->tied_embeddings = sp_object_bool(object, "tie_word_embeddings", false);
    read_pattern(object, model);
    sp_i_hf_read_groups(object, family, model);
    if (sp_model_has_state(model)) {
        model->state_heads = (int)sp_object_int(object, "mamba_num_heads", 128, 1, SP_I_MAX_HEADS);
        model->state_head_dim = sp_object_int(object, "mamba_head_dim", 64, 1, SP_I_MAX_HEAD_DIM);
        model->state_groups = (int)sp_object_int(object, "n_groups", 8, 1, SP_I_MAX_HEADS);
        model->state_dim = sp_object_int(object, "ssm_state_size", 128, 1, SP_I_MAX_HEAD_DIM);
        model->state_conv = sp_object_int(object, "conv_kernel", 4, 1, SP_I_MAX_STATE_CONV);
    }
    static const char *const activations[][2] = {{"mlp_hidden_act", "relu2"},
                                                 {"mamba_hidden_act", "silu"}};
    for (size_t i = 0; i < 2; i++) {
        const json_t *name = sp_object_get(object, activations[i][0]);
        if (name != NULL && !sp_i_hf_is_text(name, activations[i][1])) {
            sp_object_expected(object, activations[i][0], name, "\"%s\"", activations[i][1]);
        }
    }
    expect(object, "use_conv_bias", true, bare_convolution);
    static const char *const biases[] = {"use_bias", "mlp_bias", "attention_bias",
                                         "mamba_proj_bias"};
    for (size_t i = 0; i < sizeof biases / sizeof biases[0]; i++) {
        expect(object, biases[i], false, other_biases);
    }
    sp_i_hf_note_dropout(object, model);
}

// ---- the table ----

enum { LIBRARY_WINDOW = 4096 };

#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

#define BIASES_OF_ATTENTION .attention_bias = {"attention_bias", 0}, .output_bias = true

// Beside dense layers of another width.
#define EXPERTS(key_, experts_, active_)                                           \
    .experts = {(key_), (experts_)}, .active = {"num_experts_per_tok", (active_)}, \
    .expert_width = "moe_intermediate_size"

// Kimi K2 is a DeepSeek-V3 of other sizes, as Moonlight is, whose files say deepseek_v3. The
// numbers that choose its experts evenly (e_score_correction_bias) have no gradients and are not
// counted.
#define DEEPSEEK_V3(name_)                                                     \
    {                                                                          \
        .name = (name_), .latents = true, EXPERTS("n_routed_experts", 256, 8), \
        .shared = {"n_shared_experts", 1}, .groups = 8, .active_groups = 4,    \
        .is_routed = is_routed_deepseek_v3, .finish = read_mtp                 \
    }

// Of embeddings, residual adds, scores and logits.
#define GRANITE_SCALES \
    "embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"

#define MAMBA_KEYS                                                                           \
    "mamba_chunk_size", "mamba_expand", "time_step_limit", "time_step_min", "time_step_max", \
        "num_logits_to_keep"

// Text models of those that see pictures are those of the family, with other values of absent keys;
// older files have their sizes beside the vision_config.
#define QWEN2(name_, kv_heads_, first_window_)                                            \
    {                                                                                     \
        .name = (name_), .kv_heads = (kv_heads_), .attention_bias = {"qkv_bias", true},   \
        .window = LIBRARY_WINDOW, .first_window = {"max_window_layers", (first_window_)}, \
        .windows = SP_I_HF_IF_ASKED, .free = KEYS("vision_config")                        \
    }
#define QWEN3(name_)                                                                 \
    {                                                                                \
        .name = (name_), .kv_heads = 32, .head_dim = 128, .window = LIBRARY_WINDOW,  \
        .first_window = {"max_window_layers", 28}, .qk_norm = {"use_qk_norm", true}, \
        BIASES_OF_ATTENTION                                                          \
    }
#define QWEN3_MOE(name_, kv_heads_, experts_, active_)                             \
    {                                                                              \
        .name = (name_), .kv_heads = (kv_heads_), .window = LIBRARY_WINDOW,        \
        .qk_norm = {"use_qk_norm", true}, BIASES_OF_ATTENTION,                     \
        EXPERTS("num_experts", (experts_), (active_)), .is_routed = is_routed_qwen \
    }
#define GLM4(name_, head_dim_)                                                      \
    {                                                                               \
        .name = (name_), .kv_heads = 2, .attention_bias = {"attention_bias", true}, \
        .head_dim = (head_dim_), .post_norms = true                                 \
    }

#define GLM4_MOE(name_, bias_)                                                              \
    {                                                                                       \
        .name = (name_), .kv_heads = 8, .qk_norm = {"use_qk_norm", false},                  \
        .attention_bias = {"attention_bias", (bias_)}, EXPERTS("n_routed_experts", 128, 8), \
        .shared = {"n_shared_experts", 1}, .is_routed = is_routed_glm, .finish = read_mtp   \
    }

// Where the library's class has other sizes than DeepSeek's.
#define LATENT_KEYS \
    KEYS("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")

// Classes of one name in published repositories have other values for the keys that must be stated.
#define BAILING_MOE(name_, ...)                                                                    \
    {                                                                                              \
        .name = (name_), .stated = KEYS("num_key_value_heads", "use_bias", __VA_ARGS__),           \
        .qk_norm = {"use_qk_norm", 0}, EXPERTS("num_experts", 0, 0),                               \
        .shared = {"num_shared_experts", 0}, .is_routed = is_routed_deepseek_v2,                   \
        .free = KEYS("norm_softmax", "score_function", "moe_router_enable_expert_bias",            \
                     "moe_router_topk_scaling_factor", "mtp_loss_scaling_factor", "router_dtype"), \
        .finish = finish_bailing                                                                   \
    }

#define QWEN3_5_KEYS .free = KEYS("mamba_ssm_dtype", "output_gate_type")

// Ids of tokens and sizes of what sees stand in its files besides.
#define HUNYUAN                                                                                   \
    BIASES_OF_ATTENTION,                                                                          \
        .free = KEYS("cla_share_factor", "norm_type", "dense_list", "moe_drop_tokens",            \
                     "moe_random_routing_dropped_token", "group_limited_greedy", "pad_id",        \
                     "im_start_id", "im_end_id", "im_newline_id", "text_start_id", "text_end_id", \
                     "video_start_id", "video_end_id", "org_vocab_size", "pool_type",             \
                     "num_media_embeds", "anyres_pooling_size"),                                  \
        .finish = finish_hunyuan

#define NAMES_OF_GPT2                              \
    .renamed = {{"num_hidden_layers", "n_layer"},  \
                {"hidden_size", "n_embd"},         \
                {"num_attention_heads", "n_head"}, \
                {"intermediate_size", "n_inner"}}

// What only some layers or files have is read by the functions named here.
const sp_i_hf_family sp_i_hf_families[] = {
    {.name = "llama",
     .windows = SP_I_HF_IF_STATED, // of another library's model
     BIASES_OF_ATTENTION,
     .mlp_bias = {"mlp_bias", 0}},
    {.name = "mistral", .kv_heads = 8, .windows = SP_I_HF_ALWAYS, .window = LIBRARY_WINDOW},
    QWEN2("qwen2", 32, 28),
    QWEN2("qwen2_vl", 8, 80),
    QWEN2("qwen2_vl_text", 8, 80),
    QWEN2("qwen2_5_vl", 8, 80),
    QWEN2("qwen2_5_vl_text", 8, 80),
    {.name = "mimo",
     .kv_heads = 32,
     .window = LIBRARY_WINDOW,
     .first_window = {"max_window_layers", 28},
     .attention_bias = {"attention_bias", true},
     .finish = read_mtp},
    QWEN3("qwen3"),
    QWEN3("qwen3_vl_text"),
    {.name = "mixtral",
     .kv_heads = 8,
     .windows = SP_I_HF_ALWAYS,
     .experts = {"num_local_experts", 8},
     .active = {"num_experts_per_tok", 2}},
    {.name = "gpt2", .read = read_gpt2, .activation = SP_GELU, NAMES_OF_GPT2},
    {.name = "gpt_bigcode", .read = read_gpt2, .kv_heads = 1, .activation = SP_GELU, NAMES_OF_GPT2},
    {.name = "gpt_neox", .read = read_gpt_neox, .activation = SP_GELU},
    {.name = "gemma",
     .kv_heads = 16,
     .head_dim = 256,
     .activation = SP_GEGLU,
     .tied = true,
     BIASES_OF_ATTENTION,
     .soft_caps = {"attn_logit_softcapping", 0}},
    {.name = "gemma2",
     .kv_heads = 4,
     .head_dim = 256,
     .windows = SP_I_HF_ALWAYS,
     .window = LIBRARY_WINDOW,
     .pattern = 2,
     .activation = SP_GEGLU,
     .tied = true,
     .post_norms = true,
     BIASES_OF_ATTENTION,
     .soft_caps = {"attn_logit_softcapping", true}},
    // Files that see pictures leave out heads and vocabulary where they are the library's.
    {.name = "gemma3_text",
     .kv_heads = 4,
     .head_dim = 256,
     .heads = 8,
     .vocab = 262208,
     .windows = SP_I_HF_ALWAYS,
     .window = LIBRARY_WINDOW,
     .pattern = 6,
     .pattern_key = "sliding_window_pattern",
     .activation = SP_GEGLU,
     .tied = true,
     .post_norms = true,
     .qk_norm = {"", 0},
     BIASES_OF_ATTENTION,
     .soft_caps = {"attn_logit_softcapping", 0}},
    {.name = "qwen2_moe",
     .kv_heads = 16,
     .window = LIBRARY_WINDOW,
     .first_window = {"max_window_layers", 28},
     .attention_bias = {"qkv_bias", true},
     EXPERTS("num_experts", 60, 4),
     .shared_width = {"shared_expert_intermediate_size", 5632},
     .shared_gate = true,
     .is_routed = is_routed_qwen},
    QWEN3_MOE("qwen3_moe", 4, 128, 8),
    QWEN3_MOE("qwen3_vl_moe_text", 16, 60, 4),
    {.name = "olmoe",
     .qk_norm = {"", 0},
     .qk_norm_whole = true,
     BIASES_OF_ATTENTION,
     .experts = {"num_experts", 64},
     .active = {"num_experts_per_tok", 8}},
    {.name = "olmo2",
     .post_norms_alone = true,
     .qk_norm = {"", 0},
     .qk_norm_whole = true,
     BIASES_OF_ATTENTION},
    {.name = "olmo3",
     .windows = SP_I_HF_ALWAYS,
     .window = LIBRARY_WINDOW,
     .pattern = 4,
     .post_norms_alone = true,
     .qk_norm = {"", 0},
     .qk_norm_whole = true,
     BIASES_OF_ATTENTION},
    {.name = "flex_olmo",
     .post_norms_alone = true,
     .qk_norm = {"", 0},
     .qk_norm_whole = true,
     BIASES_OF_ATTENTION,
     .experts = {"num_experts", 7},
     .active = {"num_experts_per_tok", 5}},
    {.name = "exaone4",
     .kv_heads = 32,
     .windows = SP_I_HF_ALWAYS,
     .window = LIBRARY_WINDOW,
     .pattern = 4,
     .post_norms_alone = true,
     .qk_norm = {"", 0},
     .finish = finish_exaone4},
    {.name = "phimoe",
     .kv_heads = 8,
     .windows = SP_I_HF_ALWAYS,
     .norm = SP_LAYERNORM,
     BIASES_OF_ATTENTION,
     .head_bias = {"lm_head_bias", 0},
     .experts = {"num_local_experts", 16},
     .active = {"num_experts_per_tok", 2}},
    GLM4_MOE("glm4_moe", false),
    GLM4_MOE("glm4v_moe_text", true),
    {.name = "glm4_moe_lite",
     .latents = true,
     .stated = LATENT_KEYS,
     EXPERTS("n_routed_experts", 64, 4),
     .shared = {"n_shared_experts", 1},
     .is_routed = is_routed_glm_lite,
     .finish = finish_glm_lite},
    {.name = "solar_open",
     .kv_heads = 8,
     .head_dim = 128,
     EXPERTS("n_routed_experts", 128, 8),
     .shared = {"n_shared_experts", 1}},
    {.name = "deepseek_v2",
     .latents = true,
     EXPERTS("n_routed_experts", 64, 6),
     .shared = {"n_shared_experts", 2},
     .is_routed = is_routed_deepseek_v2},
    DEEPSEEK_V3("deepseek_v3"),
    DEEPSEEK_V3("kimi_k2"),
    {.name = "mistral4",
     .latents = true,
     .stated = LATENT_KEYS,
     EXPERTS("n_routed_experts", 128, 4),
     .shared = {"n_shared_experts", 1},
     .is_routed = is_routed_deepseek_v2},
    {.name = "youtu", .latents = true, .stated = LATENT_KEYS, .tied = true},
    {.name = "gpt_oss",
     .kv_heads = 8,
     .head_dim = 64,
     .windows = SP_I_HF_ALWAYS,
     .window = 128,
     .pattern = 2,
     .attention_bias = {"attention_bias", true},
     .output_bias = true,
     .expert_biases = true,
     .attention_sinks = true,
     .experts = {"num_local_experts", 128},
     .active = {"num_experts_per_tok", 4},
     .finish = finish_gpt_oss},
    {.name = "llama4_text",
     .kv_heads = 8,
     .head_dim = 128,
     .windows = SP_I_HF_ALWAYS,
     .window = 8192,
     .pattern = 4,
     .pattern_key = "no_rope_layer_interval",
     .chunks = true,
     BIASES_OF_ATTENTION,
     .experts = {"num_local_experts", 16},
     .active = {"num_experts_per_tok", 1},
     .shared = {"", 1},
     .is_routed = is_routed_llama4,
     .dense_width = {"intermediate_size_mlp", 16384},
     .finish = finish_llama4},
    {.name = "gptj",
     .renamed = {{"hidden_size", "n_embd"},
                 {"num_hidden_layers", "n_layer"},
                 {"num_attention_heads", "n_head"},
                 {"intermediate_size", "n_inner"}},
     .ffn_of_hidden = 4,
     .activation = SP_GELU,
     .norm = SP_LAYERNORM,
     .blocks = SP_BLOCKS_ONE_NORM,
     .mlp_bias = {"", 0},
     .head_bias = {"", 0},
     .free = KEYS("rotary", "rotary_dim", "n_positions", "n_ctx")},
    {.name = "falcon",
     .renamed = {{"num_key_value_heads", "num_kv_heads"}, {"intermediate_size", "ffn_hidden_size"}},
     .ffn_of_hidden = 4,
     .activation = SP_GELU,
     .norm = SP_LAYERNORM,
     .tied = true,
     .attention_bias = {"bias", 0},
     .output_bias = true,
     .mlp_bias = {"bias", 0},
     .finish = finish_falcon},
    // Its norms are LayerNorm without biases, and those of queries and keys have a weight for each
    // feature of all heads.
    {.name = "cohere",
     .tied = true,
     .blocks = SP_BLOCKS_ONE_NORM,
     .qk_norm = {"use_qk_norm", 0},
     .qk_norm_whole = true,
     BIASES_OF_ATTENTION,
     .free = KEYS("logit_scale")},
    {.name = "cohere2",
     .windows = SP_I_HF_ALWAYS,
     .window = LIBRARY_WINDOW,
     .pattern = 4,
     .pattern_key = "sliding_window_pattern",
     .tied = true,
     .blocks = SP_BLOCKS_ONE_NORM,
     BIASES_OF_ATTENTION,
     .free = KEYS("logit_scale", "rotary_pct", "layer_switch", "order_of_interleaved_layers",
                  "position_embedding_type", "use_embedding_sharing", "use_gated_activation",
                  "use_parallel_block", "use_parallel_embedding")},
    {.name = "phi",
     .activation = SP_GELU,
     .norm = SP_LAYERNORM,
     .blocks = SP_BLOCKS_ONE_NORM,
     .qk_norm = {"qk_layernorm", 0},
     .attention_bias = {"", 0},
     .output_bias = true,
     .mlp_bias = {"", 0},
     .head_bias = {"", 0}},
    {.name = "phi3", .windows = SP_I_HF_ALWAYS},
    {.name = "granite",
     BIASES_OF_ATTENTION,
     .mlp_bias = {"mlp_bias", 0},
     .free = KEYS(GRANITE_SCALES)},
    {.name = "granitemoe",
     BIASES_OF_ATTENTION,
     .experts = {"num_local_experts", 8},
     .active = {"num_experts_per_tok", 2},
     .free = KEYS(GRANITE_SCALES)},
    {.name = "granitemoeshared",
     BIASES_OF_ATTENTION,
     .experts = {"num_local_experts", 8},
     .active = {"num_experts_per_tok", 2},
     .shared_width = {"shared_intermediate_size", 0},
     .free = KEYS(GRANITE_SCALES)},
    {.name = "glm", .kv_heads = 2, .head_dim = 128, .attention_bias = {"attention_bias", true}},
    GLM4("glm4", 128),
    GLM4("glm4v_text", 0),
    {.name = "chatglm",
     .kv_heads = 1,
     .head_dim = 128,
     .renamed = {{"num_hidden_layers", "num_layers"},
                 {"intermediate_size", "ffn_hidden_size"},
                 {"vocab_size", "padded_vocab_size"},
                 {"num_key_value_heads", "multi_query_group_num"},
                 {"head_dim", "kv_channels"}},
     .attention_bias = {"add_qkv_bias", 0},
     .behind_bias = {"add_bias_linear", 0},
     .mlp_bias = {"add_bias_linear", 0},
     .free = KEYS("original_rope", "bias_dropout_fusion", "apply_query_key_layer_scaling",
                  "attention_softmax_in_fp32"),
     .finish = finish_chatglm},
    {.name = "ernie4_5",
     .kv_heads = 2,
     .head_dim = 128,
     .tied = true,
     .attention_bias = {"use_bias", 0},
     .output_bias = true,
     .mlp_bias = {"use_bias", 0}},
    {.name = "ernie4_5_moe",
     .kv_heads = 4,
     .tied = true,
     .attention_bias = {"use_bias", 0},
     .output_bias = true,
     .mlp_bias = {"use_bias", 0},
     .head_bias = {"use_bias", 0},
     .experts = {"moe_num_experts", 64},
     .active = {"moe_k", 6},
     .expert_width = "moe_intermediate_size",
     .shared = {"moe_num_shared_experts", 2},
     .is_routed = is_routed_ernie,
     .free = KEYS("moe_gate", "moe_use_aux_free", "moe_norm_min", "moe_norm_gate_logits",
                  "compression_ratio"),
     .noted = KEYS("moe_capacity", "num_nextn_predict_layers")},
    {.name = "seed_oss",
     .kv_heads = 8,
     .head_dim = 128,
     .attention_bias = {"attention_bias", true},
     .behind_bias = {"attention_out_bias", 0},
     .mlp_bias = {"mlp_bias", 0}},
    {.name = "smollm3",
     .kv_heads = 4,
     .tied = true,
     BIASES_OF_ATTENTION,
     .mlp_bias = {"mlp_bias", 0},
     .free = KEYS("no_rope_layers", "no_rope_layer_interval")},
    {.name = "nemotron",
     .activation = SP_SQUARED_RELU,
     .norm = SP_LAYERNORM,
     BIASES_OF_ATTENTION,
     .mlp_bias = {"mlp_bias", 0}},
    {.name = "arcee",
     .activation = SP_SQUARED_RELU,
     BIASES_OF_ATTENTION,
     .mlp_bias = {"mlp_bias", 0}},
    {.name = "hunyuan_v1_dense", .qk_norm = {"use_qk_norm", true}, HUNYUAN},
    {.name = "hunyuan_v1_moe",
     .qk_norm = {"use_qk_norm", true},
     .experts = {"num_experts", 1},
     .active = {"moe_topk", 1},
     .shared = {"num_shared_expert", 1},
     HUNYUAN},
    {.name = "cwm",
     .stated = KEYS("layer_types"),
     .head_dim = 128,
     .windows = SP_I_HF_ALWAYS,
     .window = 8192,
     .mlp_bias = {"mlp_bias", 0}},
    {.name = "internlm2", .attention_bias = {"bias", true}, .output_bias = true},
    {.name = "internlm3",
     .stated = KEYS("num_key_value_heads", "tie_word_embeddings"),
     .attention_bias = {"qkv_bias", 0},
     .behind_bias = {"bias", 0},
     .mlp_bias = {"bias", 0}},
    {.name = "stablelm",
     .kv_heads = 32,
     .norm = SP_LAYERNORM,
     .attention_bias = {"use_qkv_bias", 0}},
    {.name = "starcoder2",
     .kv_heads = 2,
     .windows = SP_I_HF_ALWAYS,
     .activation = SP_GELU,
     .norm = SP_LAYERNORM,
     .tied = true,
     .attention_bias = {"use_bias", true},
     .output_bias = true,
     .mlp_bias = {"use_bias", true},
     .dropouts = {"residual_dropout", "embedding_dropout", "attention_dropout"},
     .free = KEYS("norm_type", "mlp_type")},
    {.name = "exaone", .tied = true, .renamed = {{"num_hidden_layers", "num_layers"}}},
    {.name = "minicpm",
     .tied = true,
     BIASES_OF_ATTENTION,
     .free = KEYS("scale_emb", "scale_depth", "dim_model_base")},
    {.name = "qwen",
     .head_dim = 128,
     .renamed = {{"head_dim", "kv_channels"}},
     .attention_bias = {"", 0},
     .free = KEYS("use_dynamic_ntk", "use_logn_attn", "softmax_in_fp32", "bf16", "fp16", "fp32",
                  "onnx_safe"),
     .finish = finish_qwen},
    {.name = "ministral", .kv_heads = 8, .windows = SP_I_HF_ALWAYS, .window = LIBRARY_WINDOW},
    {.name = "ministral3", .kv_heads = 8, .head_dim = 128, .windows = SP_I_HF_ALWAYS},
    {.name = "deepseek",
     BIASES_OF_ATTENTION,
     EXPERTS("n_routed_experts", 0, 0),
     .shared = {"n_shared_experts", 0},
     .is_routed = is_routed_deepseek_v2},
    {.name = "dots1",
     .kv_heads = 32,
     .qk_norm = {"", 0},
     BIASES_OF_ATTENTION,
     EXPERTS("n_routed_experts", 0, 0),
     .shared = {"n_shared_experts", 0},
     .is_routed = is_routed_deepseek_v2},
    {.name = "minimax_m2",
     .kv_heads = 8,
     .qk_norm = {"use_qk_norm", true},
     .qk_norm_whole = true,
     .experts = {"num_local_experts", 0},
     .active = {"num_experts_per_tok", 0},
     .free = KEYS("use_routing_bias"),
     .noted = KEYS("use_mtp", "num_mtp_modules", "mtp_transformer_layers"),
     .finish = finish_minimax},
    BAILING_MOE("bailing_moe", "num_experts"),
    BAILING_MOE("bailing_moe_v2", "head_dim", "use_qk_norm", "num_shared_experts",
                "first_k_dense_replace", "n_group", "topk_group"),
    {.name = "grok-1",
     .stated = KEYS("num_key_value_heads"),
     .activation = SP_GEGLU,
     .tied = true,
     .post_norms = true,
     .soft_caps = {"max_attn_value", true},
     .experts = {"num_experts", 8},
     .active = {"num_experts_per_tok", 2},
     .free =
         KEYS("attn_output_multiplier", "embedding_multiplier_scale", "output_multiplier_scale")},
    {.name = "qwen3_next",
     .kv_heads = 2,
     .head_dim = 256,
     .qk_norm = {"", 0},
     BIASES_OF_ATTENTION,
     EXPERTS("num_experts", 512, 10),
     .shared_width = {"shared_expert_intermediate_size", 512},
     .shared_gate = true,
     .is_routed = is_routed_qwen,
     .read_mixers = read_layers_of_qwen3_next,
     .finish = finish_qwen3_next},
    {.name = "qwen3_5_text",
     .kv_heads = 4,
     .head_dim = 256,
     .qk_norm = {"", 0},
     BIASES_OF_ATTENTION,
     .read_mixers = read_layers_of_qwen3_next,
     QWEN3_5_KEYS,
     .finish = finish_qwen3_5},
    {.name = "qwen3_5_moe_text",
     .kv_heads = 2,
     .head_dim = 256,
     .qk_norm = {"", 0},
     BIASES_OF_ATTENTION,
     EXPERTS("num_experts", 256, 8),
     .shared_width = {"shared_expert_intermediate_size", 512},
     .shared_gate = true,
     .read_mixers = read_layers_of_qwen3_next,
     QWEN3_5_KEYS,
     .finish = finish_qwen3_5},
    {.name = "afmoe",
     .head_dim = 128,
     .windows = SP_I_HF_ALWAYS,
     .window = 1024,
     .pattern = 4,
     .pattern_key = "global_attn_every_n_layers",
     .post_norms = true,
     .qk_norm = {"", 0},
     EXPERTS("num_experts", 64, 6),
     .shared = {"num_shared_experts", 2},
     .is_routed = is_routed_afmoe,
     .free = KEYS("route_norm", "route_scale", "score_func", "mup_enabled", "use_grouped_mm",
                  "load_balance_coeff"),
     .finish = finish_afmoe},
    {.name = "granitemoehybrid",
     BIASES_OF_ATTENTION,
     .experts = {"num_local_experts", 0},
     .active = {"num_experts_per_tok", 0},
     .shared_width = {"shared_intermediate_size", 1024},
     .may_lack_experts = true,
     .read_mixers = read_layers_of_granite,
     .free = KEYS(GRANITE_SCALES, MAMBA_KEYS),
     .finish = finish_granite},
    {.name = "bamba",
     .kv_heads = 8,
     .read_mixers = read_layers_of_bamba,
     .free = KEYS(MAMBA_KEYS),
     .finish = read_mamba},
    {.name = "nemotron_h",
     .read = read_nemotron_h,
     .activation = SP_SQUARED_RELU,
     .free =
         KEYS("expand", "chunk_size", "residual_in_fp32", "time_step_limit", "time_step_min",
              "time_step_max", "time_step_floor", "rescale_prenorm_residual", "use_mamba_kernels",
              "num_logits_to_keep", "mamba_ssm_cache_dtype", "moe_shared_expert_overlap")},
    {.name = "dbrx",
     .read = read_dbrx,
     .renamed = {{"num_hidden_layers", "n_layers"},
                 {"hidden_size", "d_model"},
                 {"num_attention_heads", "n_heads"}}},
};

_Static_assert(sizeof sp_i_hf_families / sizeof sp_i_hf_families[0] == SP_I_HF_FAMILIES,
               "rows of the table");
