#include "sim/model/model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/model/layer.h"
#include "sim/model/settings.h"

// ---- settings ----

// 4h is the width of every GPT; gated MLPs have no common rule (sp_model_from_object).
static double four_times_hidden(const void *owner)
{
    return 4.0 * (double)((const sp_model *)owner)->hidden;
}

static double as_many_as_heads(const void *owner)
{
    return ((const sp_model *)owner)->heads;
}

static double share_of_hidden(const void *owner)
{
    const sp_model *model = owner;
    if (sp_model_is_latent(model)) {
        return (double)(model->qk_nope_dim + model->qk_rope_dim);
    }
    return fmax(1.0, (double)(model->hidden / model->heads));
}

static double as_bias(const void *owner)
{
    return ((const sp_model *)owner)->bias;
}

// Written where they differ from what model.bias says.
static bool states_output_bias(const void *owner)
{
    return ((const sp_model *)owner)->output_bias && !((const sp_model *)owner)->bias;
}

static bool states_mlp_bias(const void *owner)
{
    return ((const sp_model *)owner)->mlp_bias && !((const sp_model *)owner)->bias;
}

static bool has_experts(const void *owner)
{
    return ((const sp_model *)owner)->experts > 0;
}

static bool has_adapters(const void *owner)
{
    return sp_model_is_frozen(owner);
}

static double any_expert(const void *owner)
{
    return has_experts(owner);
}

// The model's own MLP, which is that of kinds that state none.
static sp_layer_mlp own_mlp(const sp_model *model)
{
    return (sp_layer_mlp){.ffn = model->ffn,
                          .experts = model->experts,
                          .experts_per_token = model->experts_per_token,
                          .shared_ffn = model->shared_ffn,
                          .shared_gate = model->shared_gate,
                          .window_tokens = model->window_tokens,
                          .chunk_tokens = model->chunk_tokens,
                          .mixer = model->mixer,
                          .without_mlp = model->without_mlp};
}

static bool is_same_kind(const sp_layer_mlp *a, const sp_layer_mlp *b)
{
    return a->ffn == b->ffn && a->experts == b->experts &&
           a->experts_per_token == b->experts_per_token && a->shared_ffn == b->shared_ffn &&
           a->shared_gate == b->shared_gate && a->window_tokens == b->window_tokens &&
           a->chunk_tokens == b->chunk_tokens && a->mixer == b->mixer &&
           a->without_mlp == b->without_mlp;
}

static int kind_like(sp_model *model, const sp_layer_mlp *mlp)
{
    int k = 0;
    while (k < model->kinds && !is_same_kind(&model->kind[k], mlp)) {
        k++;
    }
    if (k == model->kinds && k < SP_LAYER_KINDS) {
        model->kind[model->kinds++] = *mlp;
    }
    return k;
}

// Tokens that a layer sees: a window of the layer's own takes the place of the model's chunks, and
// the other way round.
static void read_seen(sp_object *object, sp_layer_mlp *mlp)
{
    bool window = sp_object_has(object, "window_tokens");
    bool chunk = sp_object_has(object, "chunk_tokens");
    int64_t usual_window = chunk ? 0 : mlp->window_tokens;
    int64_t usual_chunk = window ? 0 : mlp->chunk_tokens;
    const sp_setting_table rows = sp_model_settings;
    mlp->window_tokens = sp_setting_read_int(object, rows, "window_tokens", usual_window);
    mlp->chunk_tokens = sp_setting_read_int(object, rows, "chunk_tokens", usual_chunk);
}

// False: it would be one kind too many.
static bool read_run(sp_object *object, sp_model *model)
{
    sp_layer_mlp mlp = own_mlp(model);
    const sp_setting_table rows = sp_model_settings;
    sp_layer_run run = {.layers = (int)sp_setting_read_int(object, rows, "layers", 1)};
    mlp.ffn = sp_setting_read_int(object, rows, "ffn", mlp.ffn);
    mlp.experts = (int)sp_setting_read_int(object, rows, "experts", mlp.experts);
    int usual = mlp.experts > 0 ? mlp.experts_per_token : 0;
    mlp.experts_per_token = (int)sp_setting_read_int(object, rows, "experts_per_token", usual);
    if (mlp.experts > 0 && usual == 0) {
        sp_object_require(object, "experts_per_token");
    }
    int64_t usual_shared = mlp.experts > 0 ? mlp.shared_ffn : 0;
    mlp.shared_ffn = sp_setting_read_int(object, rows, "shared_ffn", usual_shared);
    bool usual_gate = mlp.shared_ffn > 0 && mlp.shared_gate;
    mlp.shared_gate = sp_object_bool(object, "shared_gate", usual_gate);
    read_seen(object, &mlp);
    mlp.mixer = (sp_mixer)sp_object_enum(object, "mixer", sp_mixer_names, (int)mlp.mixer);
    mlp.without_mlp = sp_object_bool(object, "without_mlp", mlp.without_mlp);
    run.kind = kind_like(model, &mlp);
    if (run.kind < SP_LAYER_KINDS) {
        model->run[model->runs++] = run;
    }
    return run.kind < SP_LAYER_KINDS;
}

static void read_layer_kinds(sp_object *section, const sp_setting *row, void *owner, void *context)
{
    sp_model *model = owner;
    const json_t *array = sp_object_get(section, "layer_kinds");
    (void)context;
    if (array == NULL) {
        return;
    }
    if (!json_is_array(array) || json_array_size(array) == 0 ||
        json_array_size(array) > SP_LAYER_RUNS) {
        sp_object_expected(section, "layer_kinds", array, "%s", row->type);
        return;
    }
    for (size_t i = 0; i < json_array_size(array); i++) {
        sp_object run;
        sp_object_item(section, "layer_kinds", i, &run);
        if (!read_run(&run, model)) {
            sp_object_error(section, "layer_kinds", "more than %d kinds of layers", SP_LAYER_KINDS);
        }
        sp_object_end(&run);
    }
}

static json_t *write_layer_kinds(const void *owner, const void *context)
{
    const sp_model *model = owner;
    (void)context;
    json_t *array = model->runs > 0 ? json_array() : NULL;
    for (int r = 0; r < model->runs; r++) {
        const sp_layer_mlp *mlp = &model->kind[model->run[r].kind];
        json_t *run = json_object();
        sp_json_add(run, SP_JSON("layers", model->run[r].layers), SP_JSON("ffn", mlp->ffn),
                    SP_JSON("experts", mlp->experts));
        if (mlp->experts > 0) {
            sp_json_add(run, SP_JSON("experts_per_token", mlp->experts_per_token));
        }
        if (mlp->experts > 0 &&
            (mlp->shared_ffn != model->shared_ffn || mlp->shared_gate != model->shared_gate)) {
            sp_json_add(run, SP_JSON("shared_ffn", mlp->shared_ffn),
                        SP_JSON("shared_gate", mlp->shared_gate));
        }
        if (mlp->window_tokens != model->window_tokens ||
            mlp->chunk_tokens != model->chunk_tokens) {
            sp_json_add(run, SP_JSON("window_tokens", mlp->window_tokens),
                        SP_JSON("chunk_tokens", mlp->chunk_tokens));
        }
        if (mlp->mixer != model->mixer) {
            sp_json_add(run, SP_JSON("mixer", sp_mixer_names[mlp->mixer]));
        }
        if (mlp->without_mlp != model->without_mlp) {
            sp_json_add(run, SP_JSON("without_mlp", mlp->without_mlp));
        }
        json_array_append_new(array, run);
    }
    return array;
}

static void read_dropout(sp_object *section, const sp_setting *row, void *owner, void *context)
{
    (void)row;
    (void)context;
    if (sp_object_has(section, "dropout")) {
        ((sp_model *)owner)->dropout =
            sp_object_bool(section, "dropout", false) ? SP_DROPOUT_ON : SP_DROPOUT_OFF;
    }
}

static json_t *write_dropout(const void *owner, const void *context)
{
    const sp_model *model = owner;
    (void)context;
    return model->dropout != SP_DROPOUT_USUAL ? json_boolean(model->dropout == SP_DROPOUT_ON)
                                              : NULL;
}

// A standard deviation, or "exact".
static void read_imbalance(sp_object *section, const sp_setting *row, void *owner, void *context)
{
    sp_model *model = owner;
    const json_t *value = sp_object_get(section, "expert_imbalance");
    (void)context;
    if (value == NULL ||
        (json_is_string(value) && strcmp(json_string_value(value), "exact") == 0)) {
        return;
    }
    if (!json_is_number(value)) {
        sp_object_expected(section, "expert_imbalance", value, "%s", row->type);
        return;
    }
    model->forced_routing = true;
    model->expert_imbalance =
        sp_object_real(section, "expert_imbalance", 0.0, -SP_I_MAX_IMBALANCE, SP_I_MAX_IMBALANCE);
}

static json_t *write_imbalance(const void *owner, const void *context)
{
    const sp_model *model = owner;
    (void)context;
    return model->forced_routing ? json_real(model->expert_imbalance) : NULL;
}

static bool forces_routing(const void *owner)
{
    return ((const sp_model *)owner)->forced_routing;
}

// Built-in models have 0.
static bool states_routing_seed(const void *owner)
{
    return forces_routing(owner) || ((const sp_model *)owner)->expert_imbalance_seed > 1;
}

// clang-format off
static const sp_setting model_rows[] = {
    {.key = "model", .type = "a name, a path or an object", .name_at = sp_model_builtin_name,
     .fallback = "none, it must be given unless uniform_costs stand in its place",
     .text = "The transformer: a built-in name, the path of a Hugging Face config.json or of the "
             "folder that holds one, or an object with its shape (model.*). A file, beside the "
             "scenario or in the working directory, is taken before a built-in of the same name. Case, "
             "hyphens and underscores of a name do not count."},
    {.key = "model.name", SP_TEXT, SP_FIELD(sp_model, name), .fallback = "\"custom\"",
     .text = "What the model is called in reports."},
    {.key = "model.layers", SP_INT(1, SP_I_MAX_LAYERS), SP_FIELD(sp_model, layers),
     .required = true, .usual = 1, .fallback = "none, it must be given",
     .text = "Transformer layers.", .aliases = "num_layers num_hidden_layers n_layer n_layers"},
    {.key = "model.hidden", SP_INT(1, SP_I_MAX_HIDDEN), SP_FIELD(sp_model, hidden),
     .required = true, .usual = 1, .fallback = "none, it must be given",
     .text = "Width of the hidden states.", .aliases = "hidden_size d_model n_embd dim"},
    {.key = "model.ffn", SP_INT(1, SP_I_MAX_FFN), SP_FIELD(sp_model, ffn),
     .derive = four_times_hidden, .fallback = "4 times hidden; required with \"swiglu\" and \"geglu\"",
     .text = "Width of the MLP, of one expert where there are experts.",
     .aliases = "ffn_hidden_size intermediate_size n_inner"},
    {.key = "model.heads", SP_INT(1, SP_I_MAX_HEADS), SP_FIELD(sp_model, heads), .required = true,
     .usual = 1, .fallback = "none, it must be given", .text = "Attention heads of the queries.",
     .aliases = "num_attention_heads num_heads n_head n_heads"},
    {.key = "model.q_lora_rank", SP_INT(0, SP_I_MAX_HIDDEN), SP_FIELD(sp_model, q_lora_rank),
     .if_changed = true, .fallback = "0, none",
     .text = "Width of the latent that queries are made from, with latent attention."},
    {.key = "model.kv_lora_rank", SP_INT(0, SP_I_MAX_HIDDEN), SP_FIELD(sp_model, kv_lora_rank),
     .if_changed = true, .fallback = "0, no latent attention",
     .text = "Width of the latent that keys and values are made from: latent attention (MLA, "
             "DeepSeek), trained in its expanded form, with heads of qk_nope_dim, qk_rope_dim and "
             "v_head_dim features."},
    {.key = "model.qk_nope_dim", SP_INT(0, SP_I_MAX_HEAD_DIM), SP_FIELD(sp_model, qk_nope_dim),
     .if_changed = true, .fallback = "0; required with kv_lora_rank",
     .text = "Features of a head of queries and keys without positions, with latent attention.",
     .aliases = "qk_nope_head_dim qk_head_dim"},
    {.key = "model.qk_rope_dim", SP_INT(0, SP_I_MAX_HEAD_DIM), SP_FIELD(sp_model, qk_rope_dim),
     .if_changed = true, .fallback = "0; required with kv_lora_rank",
     .text = "Features of a head of queries and keys with rotary positions, with latent attention; "
             "all heads share those of the keys.",
     .aliases = "qk_rope_head_dim qk_pos_emb_head_dim"},
    {.key = "model.v_head_dim", SP_INT(0, SP_I_MAX_HEAD_DIM), SP_FIELD(sp_model, v_head_dim),
     .if_changed = true, .fallback = "0; required with kv_lora_rank",
     .text = "Features of a head of the values, with latent attention.", .aliases = "v_dim"},
    {.key = "model.mtp_layers", SP_INT(0, SP_I_MAX_MTP_LAYERS), SP_FIELD(sp_model, mtp_layers),
     .if_changed = true, .fallback = "0, none",
     .text = "Layers that predict further tokens (multi-token prediction, DeepSeek-V3), on the last "
             "stage: each is like the last layer, behind a projection of hidden states joined with "
             "the embedding, and has logits and a loss of its own.",
     .aliases = "num_nextn_predict_layers mtp_num_layers"},
    {.key = "model.lora_rank", SP_INT(0, SP_I_MAX_LORA_RANK), SP_FIELD(sp_model, lora_rank),
     .if_changed = true, .fallback = "0, all parameters are trained",
     .text = "Rank r of low-rank adapters (LoRA): the model's own weights are frozen, without "
             "gradients, optimizer states and weight-gradient products, and beside each projection "
             "of model.lora_targets with n inputs and m outputs n*r and r*m parameters are "
             "trained. Gradients still pass through all layers down to the first. FLOPs and MFU "
             "count what is computed: forward and input gradients of all, weight gradients of "
             "adapters alone. Tensor-parallel ranks each have 1/tp of both matrices of an adapter, "
             "as in Megatron-Bridge. Not with experts, latent attention, layers that predict "
             "further tokens, or stacks of hand-written passes.",
     .aliases = "lora_r lora_dim peft_dim"},
    {.key = "model.lora_targets", SP_ONE_OF(sp_lora_target_names), SP_FIELD(sp_model, lora_targets),
     .is_written = has_adapters,
     .text = "Projections with adapters: all-linear (queries, keys, values, attention output, gate, "
             "up and down, one adapter each, as PEFT and Megatron-Bridge's CanonicalLoRA have "
             "them), attention (the first four), mlp (the last three), query-value (queries and "
             "values), megatron-linear (all, but one adapter for queries, keys and values together "
             "and one for gate and up, as Megatron-Bridge's LoRA class). With model.lora_rank.",
     .aliases = "target_modules lora_target_modules"},
    {.key = "model.lora_dropout", SP_SWITCH, SP_FIELD(sp_model, lora_dropout),
     .is_written = has_adapters,
     .text = "Adapters drop out inputs: each keeps what is left of its own and a mask. With "
             "model.lora_rank."},
    {.key = "model.frozen_weights", SP_ONE_OF(sp_frozen_weight_names),
     SP_FIELD(sp_model, frozen_weights), .if_changed = true,
     .text = "How the weights of the layers' products are kept beside adapters: bf16, 4bit (QLoRA by "
             "bitsandbytes: 4 bits a weight and an fp32 scale for 64 of them), or 4bit-double (these "
             "scales in 8 bits with an fp32 scale for 256 of them: 4.127 bits a weight). Embedding, "
             "LM head, norms, biases and adapters stay in bf16. Each product turns its weight back "
             "into bf16, forward and backward. With model.lora_rank, without parallel.tp."},
    {.key = "model.kv_heads", SP_INT(1, SP_I_MAX_HEADS), SP_FIELD(sp_model, kv_heads),
     .derive = as_many_as_heads, .fallback = "as many as heads",
     .text = "Heads of keys and values; fewer than heads is grouped-query attention.",
     .aliases = "num_key_value_heads num_query_groups n_kv_heads"},
    {.key = "model.head_dim", SP_INT(1, SP_I_MAX_HEAD_DIM), SP_FIELD(sp_model, head_dim),
     .derive = share_of_hidden,
     .fallback = "hidden / heads; with latent attention qk_nope_dim + qk_rope_dim",
     .text = "Features of a head of queries and keys.",
     .aliases = "kv_channels"},
    {.key = "model.vocab", SP_INT(1, SP_I_MAX_VOCAB), SP_FIELD(sp_model, vocab), .required = true,
     .usual = 1, .fallback = "none, it must be given",
     .text = "Entries of the vocabulary. It is taken as given and never padded.",
     .aliases = "vocab_size padded_vocab_size vocabulary vocabulary_size"},
    {.key = "model.activation", SP_ONE_OF(sp_activation_names), SP_FIELD(sp_model, activation),
     .text = "Activation function of the MLP; swiglu and geglu have a third projection.",
     .aliases = "hidden_act activation_function"},
    {.key = "model.norm", SP_ONE_OF(sp_norm_names), SP_FIELD(sp_model, norm),
     .text = "Normalisation before attention, before the MLP and before the head.",
     .aliases = "normalization"},
    {.key = "model.positional", SP_ONE_OF(sp_positional_names), SP_FIELD(sp_model, positional),
     .text = "Positions: rotary embeddings, a learned table, or none (Nemotron-H).",
     .aliases = "position_embedding_type"},
    {.key = "model.max_positions", SP_INT(0, SP_I_MAX_POSITIONS), SP_FIELD(sp_model, max_positions),
     .if_changed = true, .fallback = "0, not counted",
     .text = "Rows of a learned table of positions, in tokens.",
     .aliases = "max_position_embeddings n_positions"},
    {.key = "model.window_tokens", SP_TOKENS(0, SP_I_MAX_POSITIONS),
     SP_FIELD(sp_model, window_tokens), .if_changed = true,
     .fallback = "0, all tokens before it",
     .text = "Tokens that a token attends to, itself among them (sliding_window of a config.json). "
             "Layers that differ in it are model.layer_kinds.",
     .aliases = "sliding_window window_size"},
    {.key = "model.chunk_tokens", SP_TOKENS(0, SP_I_MAX_POSITIONS),
     SP_FIELD(sp_model, chunk_tokens), .if_changed = true,
     .fallback = "0, all tokens before it",
     .text = "A token attends to those before it in its own chunk of so many tokens of the sample "
             "(attention_chunk_size of a config.json). Not with model.window_tokens.",
     .aliases = "attention_chunk_size"},
    {.key = "model.mixer", SP_ONE_OF(sp_mixer_names), SP_FIELD(sp_model, mixer), .if_changed = true,
     .text = "How tokens of a layer learn from each other: by attention, by a state that each token "
             "changes (mamba2, gated-delta; with model.state_heads and the keys that begin with "
             "state_), or not at all (none: the layer is an MLP alone). Layers that differ in it are model.layer_kinds."},
    {.key = "model.without_mlp", SP_SWITCH, SP_FIELD(sp_model, without_mlp), .if_changed = true,
     .text = "Layers are attention, or what stands in its place, without an MLP (Nemotron-H). "
             "Layers that differ in it are model.layer_kinds."},
    {.key = "model.state_heads", SP_INT(0, SP_I_MAX_HEADS), SP_FIELD(sp_model, state_heads),
     .if_changed = true, .fallback = "0, no layers with a state",
     .text = "Heads of a layer with a state (model.mixer).",
     .aliases = "mamba_num_heads linear_num_value_heads"},
    {.key = "model.state_head_dim", SP_INT(0, SP_I_MAX_HEAD_DIM), SP_FIELD(sp_model, state_head_dim),
     .if_changed = true, .fallback = "0; required with state_heads",
     .text = "Features of a token in a head of a layer with a state.",
     .aliases = "mamba_head_dim linear_value_head_dim"},
    {.key = "model.state_groups", SP_INT(0, SP_I_MAX_HEADS), SP_FIELD(sp_model, state_groups),
     .if_changed = true, .fallback = "0; required with state_heads",
     .text = "Groups of heads of a layer with a state that share what writes into the state and what "
             "reads it (B and C of Mamba-2, keys and queries of gated DeltaNet).",
     .aliases = "mamba_num_groups linear_num_key_heads"},
    {.key = "model.state_dim", SP_INT(0, SP_I_MAX_HEAD_DIM), SP_FIELD(sp_model, state_dim),
     .if_changed = true, .fallback = "0; required with state_heads",
     .text = "Numbers that the state of a head has for each of its features.",
     .aliases = "mamba_state_dim ssm_state_size linear_key_head_dim"},
    {.key = "model.state_conv", SP_INT(0, SP_I_MAX_STATE_CONV), SP_FIELD(sp_model, state_conv),
     .if_changed = true, .fallback = "0; required with state_heads",
     .text = "Tokens that the convolution in front of a state takes in.",
     .aliases = "conv_kernel linear_conv_kernel_dim mamba_d_conv"},
    {.key = "model.attention_gate", SP_SWITCH, SP_FIELD(sp_model, attention_gate),
     .if_changed = true,
     .text = "What attention gives is multiplied by a gate for each of its features, made beside the "
             "queries (Qwen3-Next).", .aliases = "attn_output_gate attention_output_gate"},
    {.key = "model.stored_dtype", SP_ONE_OF(sp_stored_dtype_names),
     SP_FIELD(sp_model, stored_dtype), .if_changed = true,
     .text = "Type that the weights are stored in (torch_dtype of a config.json, or its "
             "quantization_config of FP8). Steps compute as precision says all the same, with a "
             "warning; with float8 precision must be stated."},
    {.key = "model.tied_embeddings", SP_SWITCH, SP_FIELD(sp_model, tied_embeddings),
     .text = "Embedding and LM head share one matrix.", .aliases = "tie_word_embeddings"},
    {.key = "model.bias", SP_SWITCH, SP_FIELD(sp_model, bias),
     .text = "Every linear layer but routers and the LM head has a bias.",
     .aliases = "add_bias_linear"},
    {.key = "model.qkv_bias", SP_SWITCH, SP_FIELD(sp_model, qkv_bias), .derive = as_bias,
     .fallback = "as model.bias", .text = "The QKV projection has a bias (Qwen2).",
     .aliases = "add_qkv_bias"},
    {.key = "model.output_bias", SP_SWITCH, SP_FIELD(sp_model, output_bias), .derive = as_bias,
     .is_written = states_output_bias, .fallback = "as model.bias",
     .text = "The projection behind the attention has a bias."},
    {.key = "model.mlp_bias", SP_SWITCH, SP_FIELD(sp_model, mlp_bias), .derive = as_bias,
     .is_written = states_mlp_bias, .fallback = "as model.bias",
     .text = "The projections of MLPs, experts and shared experts have biases."},
    {.key = "model.router_bias", SP_SWITCH, SP_FIELD(sp_model, router_bias), .if_changed = true,
     .text = "Routers have a bias that is trained (gpt-oss).",
     .aliases = "add_router_bias moe_router_bias"},
    {.key = "model.head_bias", SP_SWITCH, SP_FIELD(sp_model, head_bias), .if_changed = true,
     .text = "The LM head has a bias (Phi-3.5-MoE).", .aliases = "lm_head_bias"},
    {.key = "model.attention_sinks", SP_SWITCH, SP_FIELD(sp_model, attention_sinks),
     .if_changed = true,
     .text = "The softmax of each query head has one more term, which is trained (gpt-oss)."},
    {.key = "model.qk_norm", SP_SWITCH, SP_FIELD(sp_model, qk_norm),
     .text = "Queries and keys of each head are normalised (Qwen3).", .aliases = "qk_layernorm"},
    {.key = "model.qk_norm_whole", SP_SWITCH, SP_FIELD(sp_model, qk_norm_whole), .if_changed = true,
     .text = "Queries and keys of all heads are normalised at once, each feature with a weight of "
             "its own (OLMoE): with model.qk_norm, and parallel.tp 1."},
    {.key = "model.post_norms", SP_SWITCH, SP_FIELD(sp_model, post_norms), .if_changed = true,
     .text = "Norms behind attention and MLP as well, before their output goes into the residual "
             "path (Gemma 2).",
     .aliases = "post_norm sandwich_norm"},
    {.key = "model.post_norms_alone", SP_SWITCH, SP_FIELD(sp_model, post_norms_alone),
     .if_changed = true,
     .text = "Attention and MLP read the residual path itself, with no norm before them (OLMo 2, "
             "EXAONE 4): with model.post_norms, in BF16 and without adapters."},
    {.key = "model.blocks", SP_ONE_OF(sp_blocks_names), SP_FIELD(sp_model, blocks),
     .if_changed = true,
     .text = "Attention and MLP of a layer: the MLP behind the attention (\"in-turn\"), or beside "
             "it, where both read the layer's input through a norm each (\"two-norms\": GPT-NeoX) "
             "or one norm (\"one-norm\": GPT-J, Falcon, Phi-2, Command R). Side by side TP ranks "
             "sum both outputs in one collective.",
     .aliases = "parallel_blocks"},
    {.key = "model.soft_caps", SP_SWITCH, SP_FIELD(sp_model, soft_caps), .if_changed = true,
     .text = "Attention scores are capped (attn_logit_softcapping of a config.json). A warning says "
             "that kernels without caps cannot run; nothing else changes.",
     .aliases = "attn_logit_softcapping"},
    {.key = "model.dropout", SP_SWITCH, .read = read_dropout, .write = write_dropout,
     .fallback = "true with \"gelu\" alone",
     .text = "Dropout of hidden states and attention, whose masks are kept for the backward.",
     .aliases = "hidden_dropout attention_dropout"},
    {.key = "model.ignored_dropout", SP_TEXT, SP_FIELD(sp_model, ignored_dropout),
     .if_changed = true, .fallback = "none",
     .text = "Key of a config.json, as attention_dropout of a Llama, that asks for dropout which "
             "is not modelled. A warning says so; nothing else changes."},
    {.key = "model.ignored_parts", SP_TEXT, SP_FIELD(sp_model, ignored_parts), .if_changed = true,
     .fallback = "none",
     .text = "Keys of a config.json, as vision_config, of parts beside its text model that are "
             "left out. A warning says so; nothing else changes."},
    {.key = "model.ignored_keys", SP_TEXT, SP_FIELD(sp_model, ignored_keys), .if_changed = true,
     .fallback = "none",
     .text = "Keys of a config.json that are not simulated. A warning names them; nothing else "
             "changes."},
    {.key = "model.experts", SP_INT(0, SP_I_MAX_EXPERTS), SP_FIELD(sp_model, experts),
     .if_changed = true, .fallback = "0, a dense MLP",
     .text = "Experts of each MLP, spread over ranks by parallel.ep.",
     .aliases = "num_experts num_local_experts n_routed_experts"},
    {.key = "model.experts_per_token", SP_INT(0, SP_I_MAX_EXPERTS),
     SP_FIELD(sp_model, experts_per_token), .derive = any_expert, .is_written = has_experts,
     .fallback = "0; required with experts", .text = "Experts that each token is routed to.",
     .aliases = "moe_router_topk num_experts_per_tok topk"},
    {.key = "model.expert_groups", SP_INT(0, SP_I_MAX_EXPERTS), SP_FIELD(sp_model, expert_groups),
     .if_changed = true, .fallback = "0, no groups",
     .text = "Groups of neighbouring experts, of which a token goes to expert_group_top_k at most. "
             "Where each node holds one group, a token is sent to no more nodes than groups, by "
             "which stack.dispatcher deepep and hybridep send less.",
     .aliases = "moe_router_num_groups n_group"},
    {.key = "model.expert_group_top_k", SP_INT(0, SP_I_MAX_EXPERTS),
     SP_FIELD(sp_model, expert_group_top_k), .if_changed = true,
     .fallback = "0; required with expert_groups",
     .text = "Groups of experts that a token goes to at most.",
     .aliases = "moe_router_group_topk topk_group"},
    {.key = "model.expert_latent", SP_INT(0, SP_I_MAX_HIDDEN), SP_FIELD(sp_model, expert_latent),
     .if_changed = true, .fallback = "0, experts of hidden states",
     .text = "Width of what experts read and give (LatentMoE, Nemotron-3 Super): hidden states are "
             "projected to it before they go to experts, and from it behind. Routers and shared "
             "experts read hidden states.",
     .aliases = "moe_latent_size"},
    {.key = "model.expert_imbalance", .type = "\"exact\" or a number from -4 to 4",
     .read = read_imbalance, .write = write_imbalance, .fallback = "\"exact\"",
     .text = "How unevenly tokens are routed to experts on several ranks (parallel.ep). \"exact\": "
             "every rank gets as many rows. A number forces routing as Megatron-LM's "
             "moe_router_force_biased does: logits are drawn from N(0, 1), plus a bias of each "
             "expert, whose standard deviation over experts is the number without its sign. A "
             "positive number draws biases anew for every layer and micro-batch, a negative one "
             "once for each layer; 0 is its forced load balancing, even on average. All ranks "
             "wait for the fullest (expert_overload, expert_wait_ms), and memory is the fullest's.",
     .aliases = "moe_router_force_biased"},
    {.key = "model.expert_imbalance_seed", SP_INT(0, HUGE_VAL),
     SP_FIELD(sp_model, expert_imbalance_seed), .usual = 1, .is_written = states_routing_seed,
     .text = "Seed of what model.expert_imbalance draws."},
    {.key = "model.expert_capacity_factor", SP_REAL(0, 64),
     SP_FIELD(sp_model, expert_capacity_factor), .if_changed = true, .fallback = "0, none",
     .text = "Each expert gets so many times its even share of a rank's tokens, rounded up: what is "
             "beyond is dropped, and what lacks is padded, so that all have as many rows whatever "
             "the routing (Megatron-LM with moe_pad_expert_input_to_capacity). 0: no token is "
             "dropped.",
     .aliases = "moe_expert_capacity_factor"},
    {.key = "model.shared_ffn", SP_INT(0, SP_I_MAX_FFN), SP_FIELD(sp_model, shared_ffn),
     .if_changed = true, .fallback = "0, no shared experts",
     .text = "Width of all shared experts together: one dense MLP beside the experts, which every "
             "token passes.",
     .aliases = "moe_shared_expert_intermediate_size shared_expert_intermediate_size"},
    {.key = "model.shared_gate", SP_SWITCH, SP_FIELD(sp_model, shared_gate), .if_changed = true,
     .text = "What shared experts give is multiplied by a number for each token that a gate makes "
             "of its hidden states (Qwen2-MoE).", .aliases = "moe_shared_expert_gate"},
    {.key = "model.layer_kinds", .type = "an array of 1 to 128 objects", .read = read_layer_kinds,
     .write = write_layer_kinds, .fallback = "none, all layers are alike",
     .text = "Layers that differ in their MLP or in what they attend to, in the order of the model "
             "and again up to model.layers: objects with layers (how many, 1 unless stated), ffn, "
             "experts, experts_per_token, shared_ffn, shared_gate, window_tokens and chunk_tokens (0: all tokens), "
             "mixer and without_mlp, each as the model's where it is not stated. [{\"layers\": 3, \"experts\": 0, \"ffn\": 18432}, "
             "{\"layers\": 58}] begins with three dense layers."},
};
// clang-format on

const sp_setting_table sp_model_settings = SP_SETTING_TABLE("model", model_rows);

// ---- models ----

int64_t sp_model_norm_parameters(const sp_model *model)
{
    return (model->norm == SP_LAYERNORM ? 2 : 1) * model->hidden;
}

static sp_shard whole(const sp_model *model)
{
    return sp_shard_of(model, &(sp_layout){.tp = 1});
}

// Layers of all runs; 0: there are none.
static int layers_of_runs(const sp_model *model)
{
    int layers = 0;
    for (int r = 0; r < model->runs; r++) {
        layers += model->run[r].layers;
    }
    return layers;
}

// The fewest layers after which the kinds begin anew.
static int period_of(const sp_layer_mlp *of_layer, int layers)
{
    int period = 1;
    for (int i = period; i < layers; i++) {
        if (!is_same_kind(&of_layer[i], &of_layer[i - period])) {
            i = period++; // anew, from one layer further on
        }
    }
    return period;
}

bool sp_model_set_kinds(sp_model *model, const sp_layer_mlp *of_layer)
{
    int period = period_of(of_layer, model->layers);
    model->kinds = model->runs = 0;
    for (int i = 0; i < period; i++) {
        int kind = kind_like(model, &of_layer[i]);
        bool begins = model->runs == 0 || model->run[model->runs - 1].kind != kind;
        if (kind == SP_LAYER_KINDS || (begins && model->runs == SP_LAYER_RUNS)) {
            return false;
        }
        if (begins) {
            model->run[model->runs++] = (sp_layer_run){.kind = kind};
        }
        model->run[model->runs - 1].layers++;
    }
    return true;
}

int sp_model_kind_of(const sp_model *model, int layer)
{
    layer = layer < model->layers ? layer : model->layers - 1;
    int left = model->runs > 0 ? layer % layers_of_runs(model) : 0;
    for (int r = 0; r < model->runs; r++) {
        if (left < model->run[r].layers) {
            return model->run[r].kind;
        }
        left -= model->run[r].layers;
    }
    return 0;
}

// Adds `times` for each of the first `layers` layers to its kind.
static void add_kinds(const sp_model *model, int layers, int times, int count[SP_LAYER_KINDS])
{
    int period = layers_of_runs(model);
    int left = layers % period;
    for (int r = 0; r < model->runs; r++) {
        int own = model->run[r].layers;
        int begun = left < own ? left : own;
        count[model->run[r].kind] += times * (layers / period * own + begun);
        left -= begun;
    }
}

void sp_model_count_kinds(const sp_model *model, int first, int layers, int count[SP_LAYER_KINDS])
{
    memset(count, 0, SP_LAYER_KINDS * sizeof *count);
    if (model->runs == 0) {
        count[0] = layers;
        return;
    }
    // Those behind the model's own are like its last.
    int beyond = first + layers - model->layers;
    int further = beyond <= 0 ? 0 : beyond < layers ? beyond : layers;
    add_kinds(model, first + layers - further, 1, count);
    add_kinds(model, first, -1, count);
    count[sp_model_kind_of(model, model->layers - 1)] += further;
}

const sp_model *sp_model_of_kind(const sp_model *model, int kind, sp_model *space)
{
    if (model->runs == 0) {
        return model;
    }
    *space = *model;
    space->ffn = model->kind[kind].ffn;
    space->experts = model->kind[kind].experts;
    space->experts_per_token = model->kind[kind].experts_per_token;
    space->shared_ffn = model->kind[kind].shared_ffn;
    space->shared_gate = model->kind[kind].shared_gate;
    space->window_tokens = model->kind[kind].window_tokens;
    space->chunk_tokens = model->kind[kind].chunk_tokens;
    space->mixer = model->kind[kind].mixer;
    space->without_mlp = model->kind[kind].without_mlp;
    space->kinds = space->runs = 0;
    return space;
}

int sp_model_most_experts(const sp_model *model)
{
    int most = model->runs == 0 ? model->experts : 0;
    for (int r = 0; r < model->runs; r++) {
        int experts = model->kind[model->run[r].kind].experts;
        most = experts > most ? experts : most;
    }
    return most;
}

int64_t sp_model_most_shared(const sp_model *model)
{
    int64_t most = model->runs == 0 ? model->shared_ffn : 0;
    for (int r = 0; r < model->runs; r++) {
        int64_t shared = model->kind[model->run[r].kind].shared_ffn;
        most = shared > most ? shared : most;
    }
    return most;
}

bool sp_model_has_state(const sp_model *model)
{
    bool found = model->runs == 0 && sp_mixer_has_state(model->mixer);
    for (int r = 0; r < model->runs; r++) {
        found = found || sp_mixer_has_state(model->kind[model->run[r].kind].mixer);
    }
    return found;
}

bool sp_model_lacks_blocks(const sp_model *model)
{
    bool lacks = model->runs == 0 && (model->without_mlp || model->mixer == SP_MIXER_NONE);
    for (int r = 0; r < model->runs; r++) {
        const sp_layer_mlp *kind = &model->kind[model->run[r].kind];
        lacks = lacks || kind->without_mlp || kind->mixer == SP_MIXER_NONE;
    }
    return lacks;
}

static bool attends_everywhere(const sp_model *model)
{
    bool all = model->runs > 0 || model->mixer == SP_MIXER_ATTENTION;
    for (int r = 0; r < model->runs; r++) {
        all = all && model->kind[model->run[r].kind].mixer == SP_MIXER_ATTENTION;
    }
    return all;
}

double sp_model_attending_share(const sp_model *model)
{
    int count[SP_LAYER_KINDS];
    int attending = 0;
    if (attends_everywhere(model)) {
        return 1.0;
    }
    sp_model_count_kinds(model, 0, sp_model_all_layers(model), count);
    for (int k = 0; model->runs > 0 && k < model->kinds; k++) {
        attending += model->kind[k].mixer == SP_MIXER_ATTENTION ? count[k] : 0;
    }
    return (double)attending / sp_model_all_layers(model);
}

bool sp_model_sees_all(const sp_model *model)
{
    return attends_everywhere(model) && sp_model_least_seen(model) == 0;
}

double sp_model_state_flops_per_token(const sp_model *alike)
{
    if (!sp_mixer_has_state(alike->mixer)) {
        return 0.0;
    }
    double values = (double)(alike->state_heads * alike->state_head_dim);
    double keys = (double)(alike->state_groups * alike->state_dim);
    double each = alike->mixer == SP_MIXER_MAMBA2 ? 7.0 : 4.0;
    return 2.0 * (double)alike->state_conv * (values + 2.0 * keys) +
           each * values * (double)alike->state_dim;
}

// 0: all tokens.
static int64_t seen_of(int64_t window_tokens, int64_t chunk_tokens)
{
    return window_tokens > 0 ? window_tokens : chunk_tokens;
}

int64_t sp_model_least_seen(const sp_model *model)
{
    int64_t least = model->runs == 0 ? seen_of(model->window_tokens, model->chunk_tokens) : 0;
    for (int r = 0; r < model->runs; r++) {
        const sp_layer_mlp *kind = &model->kind[model->run[r].kind];
        int64_t seen = seen_of(kind->window_tokens, kind->chunk_tokens);
        least = seen > 0 && (least == 0 || seen < least) ? seen : least;
    }
    return least;
}

static void drop_seen(int64_t *seen, int64_t longest)
{
    *seen = *seen >= longest ? 0 : *seen;
}

void sp_model_drop_seen(sp_model *model, int64_t longest)
{
    drop_seen(&model->window_tokens, longest);
    drop_seen(&model->chunk_tokens, longest);
    for (int k = 0; model->runs > 0 && k < model->kinds; k++) {
        drop_seen(&model->kind[k].window_tokens, longest);
        drop_seen(&model->kind[k].chunk_tokens, longest);
    }
}

bool sp_model_sees_alike(const sp_model *model, int kind, int other)
{
    const sp_layer_mlp *a = &model->kind[kind];
    const sp_layer_mlp *b = &model->kind[other];
    return kind == other ||
           (a->window_tokens == b->window_tokens && a->chunk_tokens == b->chunk_tokens);
}

static double causal_pairs2(double begin, double tokens)
{
    return 2.0 * tokens * begin + tokens * tokens;
}

static double window_pairs2(double begin, double tokens, double window)
{
    double before = fmin(fmax(window - begin, 0.0), tokens); // that see all before them
    return causal_pairs2(begin, before) + 2.0 * window * (tokens - before);
}

static double chunk_pairs2(double begin, double tokens, double chunk)
{
    double inside = fmod(begin, chunk);
    double first = fmin(chunk - inside, tokens);
    double left = tokens - first;
    double last = fmod(left, chunk);
    return causal_pairs2(inside, first) + (left - last) * chunk + last * last;
}

static double pairs2_of(sp_mixer mixer, int64_t window_tokens, int64_t chunk_tokens, double begin,
                        double tokens)
{
    if (mixer != SP_MIXER_ATTENTION) {
        return 0.0;
    }
    if (window_tokens > 0) {
        return window_pairs2(begin, tokens, (double)window_tokens);
    }
    return chunk_tokens > 0 ? chunk_pairs2(begin, tokens, (double)chunk_tokens)
                            : causal_pairs2(begin, tokens);
}

double sp_model_pairs2(const sp_model *model, double begin, double tokens)
{
    int64_t least = sp_model_least_seen(model);
    if (attends_everywhere(model) && (least == 0 || begin + tokens <= (double)least)) {
        return causal_pairs2(begin, tokens);
    }
    if (model->runs == 0) {
        return pairs2_of(model->mixer, model->window_tokens, model->chunk_tokens, begin, tokens);
    }
    int count[SP_LAYER_KINDS];
    double sum = 0.0;
    sp_model_count_kinds(model, 0, sp_model_all_layers(model), count);
    for (int k = 0; k < model->kinds; k++) {
        const sp_layer_mlp *kind = &model->kind[k];
        sum += count[k] *
               pairs2_of(kind->mixer, kind->window_tokens, kind->chunk_tokens, begin, tokens);
    }
    return sum / sp_model_all_layers(model);
}

// The sum of a figure over all layers.
static double sum_layers(const sp_model *model, double (*of_layer)(const sp_model *alike))
{
    int count[SP_LAYER_KINDS];
    double sum = 0.0;
    sp_model_count_kinds(model, 0, sp_model_all_layers(model), count);
    for (int k = 0; k < sp_model_kinds(model); k++) {
        sp_model space;
        sum += count[k] * of_layer(sp_model_of_kind(model, k, &space));
    }
    return sum;
}

// Exact: fewer than 2^50.
static double parameters_of_layer(const sp_model *alike)
{
    sp_shard shard = whole(alike);
    return (double)sp_layer_parameters(alike, &shard);
}

static double trained_of_layer(const sp_model *alike)
{
    sp_shard shard = whole(alike);
    return (double)sp_layer_trained_parameters(alike, &shard);
}

int64_t sp_model_layer_parameters(const sp_model *model)
{
    const int layers = sp_model_all_layers(model);
    return layers > 0 ? (int64_t)(sum_layers(model, parameters_of_layer) / layers) : 0;
}

int64_t sp_model_embedding_parameters(const sp_model *model)
{
    int64_t positions = model->positional == SP_LEARNED ? model->max_positions : 0;
    return (model->vocab + positions) * model->hidden;
}

int64_t sp_model_mtp_parameters(const sp_model *model)
{
    return 2 * model->hidden * model->hidden + 3 * sp_model_norm_parameters(model);
}

// Of the final norm, and of the head if untied.
static int64_t head_parameters(const sp_model *model)
{
    return sp_model_norm_parameters(model) + (model->head_bias ? model->vocab : 0) +
           (model->tied_embeddings ? 0 : model->vocab * model->hidden);
}

int64_t sp_model_parameters(const sp_model *model)
{
    return (int64_t)sum_layers(model, parameters_of_layer) + sp_model_embedding_parameters(model) +
           head_parameters(model) + model->mtp_layers * sp_model_mtp_parameters(model);
}

int64_t sp_model_trained_parameters(const sp_model *model)
{
    return sp_model_is_frozen(model) ? (int64_t)sum_layers(model, trained_of_layer)
                                     : sp_model_parameters(model);
}

static double linear_flops_of_layer(const sp_model *model)
{
    sp_shard shard = whole(model);
    // That a token passes.
    int64_t weights = sp_model_is_frozen(model) ? sp_layer_trained_parameters(model, &shard) : 0;
    for (int s = 0; s < SP_LAYER_STEPS; s++) {
        sp_layer_linear linear;
        if (sp_layer_is_product(&sp_layer_steps[s]) &&
            sp_layer_linear_of(model, &shard, (sp_layer_place)s, &linear)) {
            weights += linear.active * linear.inputs * linear.outputs;
        }
    }
    return 2.0 * (double)weights + sp_model_state_flops_per_token(model);
}

double sp_model_layer_linear_flops_per_token(const sp_model *model)
{
    return sum_layers(model, linear_flops_of_layer) / sp_model_all_layers(model);
}

double sp_model_attention_flops_per_pair(const sp_model *model)
{
    return 2.0 * (double)(model->heads * sp_model_pair_features(model, 2));
}

double sp_model_forward_flops(const sp_model *model, double tokens, double pairs2)
{
    double head = 2.0 * (double)(model->vocab * model->hidden);
    double further = 4.0 * (double)(model->hidden * model->hidden) + head;
    double linear = sum_layers(model, linear_flops_of_layer) + head + model->mtp_layers * further;
    double attention = sp_model_all_layers(model) * sp_model_attention_flops_per_pair(model);
    return linear * tokens + attention * (pairs2 / 2.0);
}

double sp_model_step_flops(const sp_model *model, double tokens, double pairs2)
{
    double all = 3.0 * sp_model_forward_flops(model, tokens, pairs2);
    if (!sp_model_is_frozen(model)) {
        return all;
    }
    double trained = 2.0 * (double)sp_model_trained_parameters(model) * tokens;
    return all - (sp_model_forward_flops(model, tokens, 0.0) - trained);
}

typedef struct checker {
    const char *source, *path;
    sp_error *err;
    bool good;
} checker;

// Says that the value of `key`, below the checked path, is wrong, and why.
SP_PRINTF(4, 5)
static void refuse(checker *check, bool wrong, const char *key, const char *why, ...)
{
    if (!wrong) {
        return;
    }
    bool below = check->path != NULL && check->path[0] != '\0';
    char place[SP_JSON_PATH];
    char text[SP_ERROR_TEXT];
    va_list values;
    va_start(values, why);
    vsnprintf(text, sizeof text, why, values);
    va_end(values);
    snprintf(place, sizeof place, "%s%s%s", below ? check->path : "", below ? "." : "", key);
    check->good = false;
    sp_error_in(check->err, SP_ERR_CONTENT, check->source, place, "%s", text);
}

static void check_range(checker *check, const char *key, int64_t value, int64_t min, int64_t max)
{
    refuse(check, value < min || value > max, key,
           "expected an integer from %lld to %lld, got %lld", (long long)min, (long long)max,
           (long long)value);
}

static void check_kind(checker *check, const sp_model *model, const char *experts_key,
                       const char *chunk_key, const sp_layer_mlp *kind);
static void check_relations(checker *check, const sp_model *model);

sp_status sp_model_check(const sp_model *model, const char *source, const char *path, sp_error *err)
{
    checker check = {source, path, err, true};
    for (int i = 0; i < sp_model_settings.count; i++) {
        const sp_setting *row = &sp_model_settings.rows[i];
        if (row->kind == SP_SETTING_INT && row->is_written == NULL) {
            check_range(&check, sp_setting_leaf(row->key), sp_setting_int(row, model),
                        (int64_t)row->least, (int64_t)row->most);
        }
    }
    const sp_layer_mlp own = own_mlp(model);
    check_kind(&check, model, "experts_per_token", "chunk_tokens", &own);
    for (int k = 0; model->runs > 0 && k < model->kinds; k++) {
        check_kind(&check, model, "layer_kinds", "layer_kinds", &model->kind[k]);
    }
    if (check.good) {
        check_relations(&check, model);
    }
    return check.good ? SP_OK : SP_ERR_CONTENT;
}

static void check_experts(checker *check, const char *key, const sp_layer_mlp *mlp)
{
    if (mlp->experts > 0) {
        check_range(check, key, mlp->experts_per_token, 1, mlp->experts);
    }
    refuse(check, mlp->experts == 0 && mlp->experts_per_token != 0, key,
           "is %d, and the model has no experts: state how many it has, or neither",
           mlp->experts_per_token);
}

static void check_groups(checker *check, const sp_model *model, const sp_layer_mlp *mlp)
{
    int groups = model->expert_groups;
    int top = model->expert_group_top_k;
    if (groups == 0 || mlp->experts == 0) {
        return;
    }
    refuse(check, mlp->experts % groups != 0, "expert_groups",
           "%d experts cannot be cut into %d equal groups", mlp->experts, groups);
    refuse(check,
           mlp->experts % groups == 0 && mlp->experts / groups * top < mlp->experts_per_token,
           "expert_group_top_k", "%d groups of %d experts have no %d for a token", top,
           mlp->experts / groups, mlp->experts_per_token);
}

static void check_latent(checker *check, const sp_model *model)
{
    static const char needed[] = "latent attention (kv_lora_rank) needs it";
    static const char alone[] = "is of latent attention, which kv_lora_rank asks for";
    if (!sp_model_is_latent(model)) {
        refuse(check, model->q_lora_rank > 0, "q_lora_rank", alone);
        refuse(check, model->qk_nope_dim > 0, "qk_nope_dim", alone);
        refuse(check, model->qk_rope_dim > 0, "qk_rope_dim", alone);
        refuse(check, model->v_head_dim > 0, "v_head_dim", alone);
        return;
    }
    refuse(check, model->qk_nope_dim == 0, "qk_nope_dim", needed);
    refuse(check, model->qk_rope_dim == 0, "qk_rope_dim", needed);
    refuse(check, model->v_head_dim == 0, "v_head_dim", needed);
    refuse(check, model->qk_nope_dim + model->qk_rope_dim != model->head_dim, "head_dim",
           "is not qk_nope_dim + qk_rope_dim: with latent attention leave it out");
    refuse(check, model->kv_heads != model->heads, "kv_heads",
           "latent attention has as many heads of keys and values as of queries");
    refuse(check, model->positional != SP_ROPE, "positional",
           "latent attention needs rotary positions");
    refuse(check, model->qk_norm, "qk_norm",
           "latent attention has norms of its latents, which are counted without it");
    refuse(check, model->qkv_bias && !model->bias, "qkv_bias",
           "latent attention has no QKV projection");
}

static void check_adapters(checker *check, const sp_model *model)
{
    static const char key[] = "lora_rank";
    static const char alone[] = "is of adapters, which lora_rank asks for";
    if (!sp_model_is_frozen(model)) {
        refuse(check, model->lora_targets != SP_LORA_ALL_LINEAR, "lora_targets", alone);
        refuse(check, model->lora_dropout, "lora_dropout", alone);
        refuse(check, model->frozen_weights != SP_FROZEN_BF16, "frozen_weights",
               "weights in 4 bits are not trained, expected adapters beside them (lora_rank)");
        return;
    }
    refuse(check, sp_model_most_experts(model) > 0, key,
           "adapters are not simulated in models with experts, expected 0, got %lld",
           (long long)model->lora_rank);
    refuse(check, sp_model_is_latent(model), key,
           "adapters are not simulated with latent attention (kv_lora_rank), expected 0, got %lld",
           (long long)model->lora_rank);
    refuse(check, model->mtp_layers > 0, key,
           "adapters are not simulated with layers that predict further tokens (mtp_layers), "
           "expected 0, got %lld",
           (long long)model->lora_rank);
    refuse(check, sp_model_has_state(model) || sp_model_lacks_blocks(model), key,
           "adapters are not simulated beside layers with a state, or without attention or an MLP "
           "(mixer, without_mlp), expected 0, got %lld",
           (long long)model->lora_rank);
    refuse(check, model->post_norms_alone, key,
           "adapters are not simulated without norms before attention and MLP (post_norms_alone), "
           "expected 0, got %lld",
           (long long)model->lora_rank);
    refuse(check, model->attention_gate, key,
           "adapters are not simulated with a gate of attention (attention_gate), expected 0, got "
           "%lld",
           (long long)model->lora_rank);
}

static void check_kind(checker *check, const sp_model *model, const char *experts_key,
                       const char *chunk_key, const sp_layer_mlp *kind)
{
    bool of_kind = strcmp(experts_key, "layer_kinds") == 0;
    check_experts(check, experts_key, kind);
    check_groups(check, model, kind);
    refuse(check, kind->shared_ffn > 0 && kind->experts == 0,
           of_kind ? "layer_kinds" : "shared_ffn",
           "shared experts stand beside experts, and there are none (experts)");
    refuse(check, kind->shared_gate && kind->shared_ffn == 0,
           of_kind ? "layer_kinds" : "shared_gate",
           "a gate is of shared experts, and there are none (shared_ffn)");
    refuse(check, kind->window_tokens > 0 && kind->chunk_tokens > 0, chunk_key,
           "a layer attends to a window (window_tokens) or to its chunk (chunk_tokens), not both");
    refuse(check, kind->without_mlp && kind->mixer == SP_MIXER_NONE,
           of_kind ? "layer_kinds" : "without_mlp",
           "a layer without attention or a state (mixer) has an MLP");
    refuse(check, kind->without_mlp && kind->experts > 0, of_kind ? "layer_kinds" : "without_mlp",
           "a layer without an MLP has no experts");
}

static void check_state(checker *check, const sp_model *model)
{
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"state_heads", model->state_heads},
                 {"state_head_dim", model->state_head_dim},
                 {"state_groups", model->state_groups},
                 {"state_dim", model->state_dim},
                 {"state_conv", model->state_conv}};
    bool has = sp_model_has_state(model);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        refuse(check, has && sizes[i].value == 0, sizes[i].key,
               "layers with a state need it (mixer)");
        refuse(check, !has && sizes[i].value > 0, sizes[i].key,
               "is of layers with a state, of which the model has none (mixer)");
    }
    refuse(check, has && model->state_groups > 0 && model->state_heads % model->state_groups != 0,
           "state_groups", "%d groups do not divide %d heads (state_heads)", model->state_groups,
           model->state_heads);
    refuse(check, model->attention_gate && sp_model_is_latent(model), "attention_gate",
           "is not simulated with latent attention (kv_lora_rank)");
}

static void check_biases(checker *check, const sp_model *model)
{
    static const char why[] =
        "is false, while \"bias\" gives every linear layer one, that of %s too";
    refuse(check, model->bias && !model->qkv_bias, "qkv_bias", why, "QKV");
    refuse(check, model->bias && !model->output_bias, "output_bias", why, "the attention's output");
    refuse(check, model->bias && !model->mlp_bias, "mlp_bias", why, "the MLP");
}

// What is not simulated with attention and MLP side by side.
static void check_blocks(checker *check, const sp_model *model)
{
    bool drops = model->dropout == SP_DROPOUT_ON ||
                 (model->dropout == SP_DROPOUT_USUAL && model->activation == SP_GELU);
    const char *what = sp_model_most_experts(model) > 0 ? "experts (experts)"
                       : sp_model_has_state(model) || sp_model_lacks_blocks(model)
                           ? "layers with a state, or without attention or an MLP (mixer)"
                       : sp_model_is_latent(model) ? "latent attention (kv_lora_rank)"
                       : model->post_norms         ? "norms behind them (post_norms)"
                       : sp_model_is_frozen(model) ? "adapters (lora_rank)"
                       : drops                     ? "dropout (dropout: false)"
                                                   : NULL;
    refuse(check, model->blocks != SP_BLOCKS_IN_TURN && what != NULL, "blocks",
           "is \"%s\": attention and MLP side by side are not simulated with %s",
           sp_blocks_names[model->blocks], what);
}

static void check_relations(checker *check, const sp_model *model)
{
    const char *rotary = sp_model_is_latent(model) ? "qk_rope_dim" : "head_dim";
    check_latent(check, model);
    check_state(check, model);
    check_adapters(check, model);
    check_biases(check, model);
    check_blocks(check, model);
    refuse(check, model->heads % model->kv_heads != 0, "kv_heads",
           "%d key and value heads do not divide %d query heads", model->kv_heads, model->heads);
    refuse(check, model->router_bias && sp_model_most_experts(model) == 0, "router_bias",
           "is true, and no layer has a router (experts)");
    refuse(check, model->expert_groups > 0 && sp_model_most_experts(model) == 0, "expert_groups",
           "is %d, and the model has no experts (experts)", model->expert_groups);
    refuse(check,
           model->expert_group_top_k > model->expert_groups ||
               (model->expert_group_top_k == 0 && model->expert_groups > 0),
           "expert_group_top_k", "is %d, and there are %d groups (expert_groups)",
           model->expert_group_top_k, model->expert_groups);
    refuse(check, model->qk_norm_whole && !model->qk_norm, "qk_norm_whole",
           "is true, and queries and keys have no norm (qk_norm)");
    refuse(check, model->expert_latent > 0 && sp_model_most_experts(model) == 0, "expert_latent",
           "is of experts, and there are none (experts)");
    refuse(check, model->post_norms_alone && !model->post_norms, "post_norms_alone",
           "is true, and there are no norms behind attention and MLP (post_norms)");
    refuse(check, model->post_norms_alone && sp_model_is_latent(model), "post_norms_alone",
           "is not simulated with latent attention (kv_lora_rank)");
    refuse(check, model->positional == SP_ROPE && sp_model_rotary_dim(model) % 2 != 0, rotary,
           "rotary positions need an even %s, got %lld", rotary,
           (long long)sp_model_rotary_dim(model));
    refuse(check, layers_of_runs(model) > model->layers, "layer_kinds",
           "has %d layers, the model has %d", layers_of_runs(model), model->layers);
    if (sp_model_parameters(model) > SP_I_MAX_PARAMETERS) {
        check->good = false;
        sp_error_in(check->err, SP_ERR_CONTENT, check->source, check->path,
                    "more than 2^50 parameters");
    }
}

const char *const sp_activation_names[] = {"swiglu", "gelu", "squared-relu", "geglu", NULL};
const char *const sp_mixer_names[] = {"attention", "mamba2", "gated-delta", "none", NULL};
const char *const sp_blocks_names[] = {"in-turn", "two-norms", "one-norm", NULL};
const char *const sp_norm_names[] = {"rmsnorm", "layernorm", NULL};
const char *const sp_positional_names[] = {"rope", "learned", "none", NULL};
const char *const sp_lora_target_names[] = {"all-linear",  "attention",       "mlp",
                                            "query-value", "megatron-linear", NULL};
const char *const sp_stored_dtype_names[] = {"bfloat16", "float16", "float32", "float8", NULL};

void sp_model_from_object(sp_object *object, sp_model *model)
{
    int before = object->err->count + object->err->dropped;
    *model = (sp_model){0};
    sp_settings_init(sp_model_settings, model);
    sp_settings_read(object, sp_model_settings, model, NULL);
    // Of a size that was refused nothing more is told.
    bool is_hidden = json_integer_value(json_object_get(object->json, "hidden")) == model->hidden;
    if (!sp_object_has(object, "head_dim") && !sp_model_is_latent(model) && is_hidden &&
        model->hidden % model->heads != 0) {
        sp_object_error(object, "heads",
                        "%d heads do not divide a hidden size of %lld, and "
                        "head_dim is not given",
                        model->heads, (long long)model->hidden);
    }
    if (sp_model_is_gated(model)) {
        sp_object_require(object, "ffn");
    }
    if (model->experts > 0) {
        sp_object_require(object, "experts_per_token");
    }
    static const char *const of_adapters[] = {"lora_targets", "lora_dropout"};
    for (size_t k = 0; k < sizeof of_adapters / sizeof of_adapters[0]; k++) {
        if (model->lora_rank == 0 && sp_object_has(object, of_adapters[k])) {
            sp_object_error(object, of_adapters[k], "is of adapters, which lora_rank asks for");
        }
    }
    sp_object_end(object);
    if (object->json != NULL && object->err->count + object->err->dropped == before) {
        sp_model_check(model, object->source, object->path, object->err);
    }
}

json_t *sp_model_to_json(const sp_model *model)
{
    return sp_settings_write(sp_model_settings, model, NULL);
}

// The Llama family: SwiGLU, RMSNorm, rotary positions, untied, no bias, heads of 128.
#define LLAMA(name_, layers_, hidden_, ffn_, heads_, kv_, vocab_, experts_, active_)               \
    {                                                                                              \
        .name = name_, .layers = (layers_), .hidden = (hidden_), .ffn = (ffn_), .heads = (heads_), \
        .kv_heads = (kv_), .head_dim = (hidden_) / (heads_), .vocab = (vocab_),                    \
        .activation = SP_SWIGLU, .norm = SP_RMSNORM, .positional = SP_ROPE, .experts = (experts_), \
        .experts_per_token = (active_)                                                             \
    }

// GPT-3 shapes as Megatron-LM trains them: GELU of width 4h, LayerNorm, learned positions for 2048
// tokens, tied embeddings, biases, and GPT-2's vocabulary padded to 51200.
#define GPT(name_, layers_, hidden_, heads_)                                                       \
    {                                                                                              \
        .name = name_, .layers = (layers_), .hidden = (hidden_), .ffn = 4 * (hidden_),             \
        .heads = (heads_), .kv_heads = (heads_), .head_dim = (hidden_) / (heads_), .vocab = 51200, \
        .max_positions = 2048, .activation = SP_GELU, .norm = SP_LAYERNORM,                        \
        .positional = SP_LEARNED, .tied_embeddings = true, .bias = true, .qkv_bias = true,         \
        .output_bias = true, .mlp_bias = true                                                      \
    }

// Qwen3's models with experts: 8 of 128, heads of 128, norms of queries and keys.
#define QWEN3_MOE(name_, layers_, hidden_, ffn_, heads_)                                           \
    {                                                                                              \
        .name = name_, .layers = (layers_), .hidden = (hidden_), .ffn = (ffn_), .heads = (heads_), \
        .kv_heads = 4, .head_dim = 128, .vocab = 151936, .qk_norm = true, .experts = 128,          \
        .experts_per_token = 8                                                                     \
    }

// GLM-4.5: dense layers first, then 8 of the experts and a shared one.
#define GLM_45(name_, layers_, hidden_, experts_, ffn_, dense_, dense_ffn_, norms_)             \
    {                                                                                           \
        .name = name_, .layers = (layers_), .hidden = (hidden_), .ffn = (ffn_), .heads = 96,    \
        .kv_heads = 8, .head_dim = 128, .vocab = 151552, .qkv_bias = true, .qk_norm = (norms_), \
        .experts = (experts_), .experts_per_token = 8, .shared_ffn = (ffn_), .kinds = 2,        \
        .runs = 2,                                                                              \
        .kind = {{.ffn = (dense_ffn_)},                                                         \
                 {.ffn = (ffn_),                                                                \
                  .experts = (experts_),                                                        \
                  .experts_per_token = 8,                                                       \
                  .shared_ffn = (ffn_)}},                                                       \
        .run = {                                                                                \
            {(dense_), 0},                                                                      \
            {(layers_) - (dense_), 1}                                                           \
        }                                                                                       \
    }

// gpt-oss: 4 of the experts, biases everywhere, sinks, and a window of 128 in every second layer.
#define GPT_OSS(name_, layers_, experts_)                                                        \
    {                                                                                            \
        .name = name_, .layers = (layers_), .hidden = 2880, .ffn = 2880, .heads = 64,            \
        .kv_heads = 8, .head_dim = 64, .vocab = 201088, .qkv_bias = true, .output_bias = true,   \
        .mlp_bias = true, .router_bias = true, .attention_sinks = true, .experts = (experts_),   \
        .experts_per_token = 4, .kinds = 2, .runs = 2,                                           \
        .kind =                                                                                  \
            {{.ffn = 2880, .experts = (experts_), .experts_per_token = 4, .window_tokens = 128}, \
             {.ffn = 2880, .experts = (experts_), .experts_per_token = 4}},                      \
        .run = {                                                                                 \
            {1, 0},                                                                              \
            {1, 1}                                                                               \
        }                                                                                        \
    }

static const sp_model builtin[] = {
    // LLaMA, arXiv 2302.13971, table 2.
    LLAMA("llama-7b", 32, 4096, 11008, 32, 32, 32000, 0, 0),
    LLAMA("llama-13b", 40, 5120, 13824, 40, 40, 32000, 0, 0),
    LLAMA("llama-65b", 80, 8192, 22016, 64, 64, 32000, 0, 0),
    // Llama 2, arXiv 2307.09288, and meta-llama/Llama-2 config.json.
    LLAMA("llama-70b", 80, 8192, 28672, 64, 8, 32000, 0, 0),
    // SlimPipe, arXiv 2504.14519 (149B).
    LLAMA("llama-149b", 96, 12288, 32768, 96, 8, 128256, 0, 0),
    // kwai/Megatron-Kwai, branch atc24ae, examples/atc24 (USENIX ATC'24).
    LLAMA("llama-175b", 96, 12288, 32768, 96, 96, 32000, 0, 0),
    // Llama 2, as above.
    LLAMA("llama-2-7b", 32, 4096, 11008, 32, 32, 32000, 0, 0),
    LLAMA("llama-2-13b", 40, 5120, 13824, 40, 40, 32000, 0, 0),
    LLAMA("llama-2-70b", 80, 8192, 28672, 64, 8, 32000, 0, 0),
    // The Llama 3 Herd of Models, arXiv 2407.21783, table 3.
    LLAMA("llama-3-8b", 32, 4096, 14336, 32, 8, 128256, 0, 0),
    LLAMA("llama-3-70b", 80, 8192, 28672, 64, 8, 128256, 0, 0),
    // Mixtral of Experts, arXiv 2401.04088, table 1.
    LLAMA("mixtral-8x7b", 32, 4096, 14336, 32, 8, 32000, 8, 2),
    // mistralai/Mixtral-8x22B-v0.1 config.json.
    LLAMA("mixtral-8x22b", 56, 6144, 16384, 48, 8, 32000, 8, 2),
    // Qwen3, arXiv 2505.09388, table 2, and Qwen/Qwen3-30B-A3B and Qwen3-235B-A22B config.json.
    QWEN3_MOE("qwen3-30b-a3b", 48, 2048, 768, 32),
    QWEN3_MOE("qwen3-235b-a22b", 94, 4096, 1536, 64),
    // zai-org/GLM-4.5 and GLM-4.5-Air config.json, without the layer that predicts a further token.
    GLM_45("glm-4.5", 92, 5120, 160, 1536, 3, 12288, true),
    GLM_45("glm-4.5-air", 46, 4096, 128, 1408, 1, 10944, false),
    // openai/gpt-oss-20b and gpt-oss-120b config.json.
    GPT_OSS("gpt-oss-20b", 24, 32),
    GPT_OSS("gpt-oss-120b", 36, 128),
    // Megatron-LM, arXiv 2104.04473, table 1.
    GPT("gpt-3.6b", 30, 3072, 32),
    GPT("gpt-18.4b", 40, 6144, 48),
    GPT("gpt-39.1b", 48, 8192, 64),
    // GPT-3, arXiv 2005.14165, table 2.1.
    GPT("gpt-175b", 96, 12288, 96),
    GPT("gpt3-6.7b", 32, 4096, 32),
    // GPT-3's table 2.1 again, but its width of 5140 is not 40 heads of 128, and 5120 is.
    GPT("gpt3-13b", 40, 5120, 40),
};

enum { BUILTINS = sizeof builtin / sizeof builtin[0] };

// Names of others, and what has the same shape. Llama 3.1 and 3.3 differ from Llama 3 in their
// rotary embeddings alone.
static const char *const aliases[][2] = {
    {"llama-3.1-8b", "llama-3-8b"},
    {"llama-3.1-70b", "llama-3-70b"},
    {"llama-3.3-70b", "llama-3-70b"},
    {"meta-llama-3-8b", "llama-3-8b"},
    {"meta-llama-3-70b", "llama-3-70b"},
    {"meta-llama-3.1-8b", "llama-3-8b"},
    {"meta-llama-3.1-70b", "llama-3-70b"},
    {"llama-2-7b-hf", "llama-2-7b"},
    {"llama-2-13b-hf", "llama-2-13b"},
    {"llama-2-70b-hf", "llama-2-70b"},
    {"mixtral-8x7b-v0.1", "mixtral-8x7b"},
    {"mixtral-8x22b-v0.1", "mixtral-8x22b"},
    {"gpt-3", "gpt-175b"},
    {"gpt-3-175b", "gpt-175b"},
};

int sp_model_builtin_count(void)
{
    return BUILTINS;
}

const char *sp_model_builtin_name(int index)
{
    return index >= 0 && index < BUILTINS ? builtin[index].name : NULL;
}

const char *sp_model_builtin_meant(const char *word)
{
    // One owner is that of a repository; longer paths and those that begin so are of files.
    const char *owned = word[0] != '.' && word[0] != '~' ? strchr(word, '/') : NULL;
    word = owned != NULL && owned > word ? owned + 1 : word;
    for (int i = 0; i < BUILTINS; i++) {
        if (sp_same_name(word, builtin[i].name)) {
            return builtin[i].name;
        }
    }
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        if (sp_same_name(word, aliases[i][0])) {
            return aliases[i][1];
        }
    }
    return NULL;
}

sp_status sp_model_builtin(const char *name, sp_model *model, sp_error *err)
{
    const char *names[BUILTINS];
    char hint[SP_NAME_HINT];
    for (int i = 0; i < BUILTINS; i++) {
        names[i] = builtin[i].name;
        if (strcmp(names[i], name) == 0) {
            *model = builtin[i];
            return SP_OK;
        }
    }
    return sp_error_set(err, SP_ERR_CONTENT, "unknown model '%.64s'%s", name,
                        sp_name_hint(name, names, BUILTINS, hint));
}
