// Keys of a Hugging Face config.json that no reader of a family takes: those that change what is
// computed and are refused, and those that are passed over.
#include <stdio.h>
#include <string.h>

#include "sim/base/writer.h"
#include "sim/model/hf_config.h"

// ---- keys that are not modelled ----

// One that begins with an underscore stands anywhere in a key, as a word; one that ends with it
// begins a key.
typedef struct refused_key {
    const char *key;
    const char *why;
} refused_key;

const char sp_i_hf_adapters[] = "adapters (LoRA) are asked for by model.lora_rank";
static const char quantized[] = "quantized weights are not modelled, without this key the model is "
                                "simulated as it trains in BF16";
static const char experts[] = "experts are modelled where the model_type has them, or in a "
                              "model given by its shape (model.experts)";
static const char latent[] =
    "latent attention (MLA) is modelled where the model_type has it, or in "
    "a model given by its shape (model.kv_lora_rank)";
static const char partly[] = "attention that does not read all tokens before is not modelled";
static const char mixers[] =
    "layers other than attention and MLP are modelled where the model_type "
    "has them, or by model.mixer and model.layer_kinds";
static const char biases[] = "biases other than those of the model_type are not modelled";
static const char norms[] = "norms other than those of the model_type are not modelled";
static const char shapes[] = "heads and sizes that differ from the usual are not modelled";
static const char caps[] = "caps on logits, which fused kernels lack, are not modelled";
static const char heads[] = "layers that predict further tokens are modelled where the model_type "
                            "has them, or by model.mtp_layers";
static const char parts[] = "parts beside the decoder are not modelled";
static const char parallel[] =
    "attention and MLP side by side are modelled where the model_type has them, or in place of the "
    "file (model.blocks)";

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
    {"attention_bias", biases},
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
    {"peft_type", sp_i_hf_adapters},
    {"_lora_", sp_i_hf_adapters},
    {"_adapter_", sp_i_hf_adapters},
    {"_adapters_", sp_i_hf_adapters},
};

// Absent, null, false, 0, and an empty text, list or object ask for nothing.
bool sp_i_hf_asks_for_nothing(const json_t *value)
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

// One expert is an MLP; vision and the like stand beside a text model that is read alone.
static bool is_harmless(const char *key, const json_t *value, const refused_key *refused,
                        bool is_part)
{
    bool counts = strcmp(key, "num_local_experts") == 0 || strcmp(key, "num_experts") == 0;
    return sp_i_hf_asks_for_nothing(value) ||
           (counts && json_is_number(value) && json_number_value(value) == 1.0) ||
           (is_part && refused->why == parts);
}

static bool is_read(const sp_object *object, const char *key)
{
    bool read = false;
    for (int i = 0; !read && i < object->known_count; i++) {
        read = strcmp(object->known[i], key) == 0;
    }
    return read;
}

static void refuse_key(sp_object *object, const char *key, const json_t *value, bool is_part)
{
    for (size_t i = 0; i < sizeof refused_keys / sizeof refused_keys[0]; i++) {
        const refused_key *refused = &refused_keys[i];
        if (is_named(key, refused->key)) {
            if (json_is_true(json_object_get(value, "load_in_4bit"))) { // of bitsandbytes
                bool nested = json_is_true(json_object_get(value, "bnb_4bit_use_double_quant"));
                sp_object_error(
                    object, key,
                    "weights in 4 bits are trained beside adapters alone: leave it out "
                    "and state model.lora_rank and model.frozen_weights \"%s\"",
                    sp_frozen_weight_names[nested ? SP_FROZEN_4BIT_DOUBLE : SP_FROZEN_4BIT]);
            } else if (!is_read(object, key) && !is_harmless(key, value, refused, is_part)) {
                sp_object_error(object, key, "%s: expected it to be absent or null", refused->why);
            }
            return;
        }
    }
}

void sp_i_hf_read_quantization(sp_object *object, sp_model *model)
{
    const json_t *config = json_object_get(object->json, "quantization_config");
    const char *method = json_string_value(json_object_get(config, "quant_method"));
    if (method != NULL && strcmp(method, "fp8") == 0) {
        sp_object_get(object, "quantization_config");
        model->stored_dtype = SP_STORED_FP8;
    }
}

// ---- keys that are passed over ----

// They change neither parameters nor bytes nor time: names, tokens, how weights begin, rotation of
// positions, how text is generated, and what the library writes into every file. Written as those
// of refused_key; a word that stands in many keys must not hide a setting of model.*.
// clang-format off
static const char *const harmless_keys[] = {
    "architectures", "model_type", "auto_map", "_name_", "_version_", "torch_dtype", "dtype",
    "use_cache", "_token_id_", "_token_ids_", "_token_index_", "_suppress_tokens_", "_init_",
    "_initializer_", "_initialization_", "_eps_", "_epsilon_", "rope_", "_rotary_", "_yarn_",
    "max_position_embeddings", "n_positions", "n_ctx", "_max_length_", "min_length", "_seq_length_",
    "_sequence_length_", "_context_length_", "pretraining_tp", "_dropout_", "_pdrop_", "layerdrop",
    "_router_aux_loss_", "_router_z_loss_", "_router_jitter_noise_", "output_attentions",
    "output_hidden_states", "output_past", "output_logits", "output_scores", "output_router_logits",
    "return_", "use_return_dict", "torchscript", "task_specific_params", "summary_",
    "finetuning_task", "problem_type", "id2label", "label2id", "num_labels", "_class_", "prefix",
    "scale_attn_", "reorder_and_upcast_attn", "_attn_implementation_", "_flash_",
    "gradient_checkpointing", "clip_qkv", "query_pre_attn_scalar", "sliding_window",
    "use_sliding_window", "max_window_layers", "layer_types", "hidden_act", "hidden_activation",
    "activation_function", "is_decoder", "is_causal", "tf_legacy_loss", "use_bfloat16", "unsloth_",
    "cache_implementation", "_sliding_window_pattern", "chunk_size_feed_forward", "temperature",
    "top_k", "top_p", "typical_p", "do_sample", "num_beams", "num_beam_groups",
    "num_return_sequences", "_penalty_", "_ngram_", "early_stopping", "bad_words_ids",
    "remove_invalid_values", "tie_encoder_decoder", "transformers.js_config", "norm_topk_prob",
    "routed_scaling_factor", "swiglu_limit", "input_jitter_noise",
    "original_max_position_embeddings", "attn_scale", "attn_temperature_tuning", "floor_scale",
    "for_llm_compression", "scoring_func", "aux_loss_alpha", "seq_aux", "ep_size",
};
// clang-format on

// As far as they fit.
void sp_i_hf_add_key(char keys[SP_MODEL_KEYS], const char *key)
{
    static const char more[] = ", ...";
    size_t used = strlen(keys);
    bool fits = used + strlen(key) + 2 + sizeof more <= SP_MODEL_KEYS;
    if (fits || used < sizeof more || strcmp(keys + used - strlen(more), more) != 0) {
        sp_append(keys, SP_MODEL_KEYS, "%s%s", used > 0 ? ", " : "", fits ? key : "...");
    }
}

void sp_i_hf_note_parts(const json_t *config, const char *text, sp_model *model)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)config, key, value) {
        bool is_part = json_is_object(value) && json_object_size(value) > 0 &&
                       strcmp(key, "quantization_config") != 0 && strcmp(key, text) != 0;
        if (is_part && strstr(key, "_config") != NULL) {
            sp_i_hf_add_key(model->ignored_parts, key);
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

void sp_i_hf_note_unread(const sp_object *object, sp_model *model)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)object->json, key, value) {
        if (!sp_i_hf_asks_for_nothing(value) && !is_passed_over(key) && !is_read(object, key)) {
            sp_i_hf_add_key(model->ignored_keys, key);
        }
    }
}

// ---- a whole file ----

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

void sp_i_hf_refuse_keys(sp_object *object, bool is_part)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)object->json, key, value) {
        refuse_key(object, key, value, is_part);
    }
    if (is_part) {
        return;
    }
    refuse_architectures(object);
    if (json_is_false(json_object_get(object->json, "is_causal"))) {
        sp_object_error(object, "is_causal", "attention to later tokens is not modelled");
    }
}

// A key that asks for dropout, of the Llama family whose steps have none here. The dropout of a
// head that classifies is not that of a language model.
void sp_i_hf_note_dropout(const sp_object *object, sp_model *model)
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
