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

// How attention is seen by a family whose file has no layer_types: all tokens unless
// use_sliding_window says so, a window unless it says no, or always.
typedef enum hf_windows { IF_ASKED, IF_STATED, ALWAYS } hf_windows;

// A key with the value that the library's class has where a file does not state it; NULL: none.
typedef struct hf_number {
    const char *key;
    int usual;
} hf_number;

// A key of a size that a family calls otherwise.
typedef struct hf_renamed {
    const char *usual, *here;
} hf_renamed;

enum { RENAMED = 8, DROPOUTS = 4 };

typedef struct hf_family hf_family;
struct hf_family {
    const char *name; // model_type
    // Reads all of the file; NULL: as most do, with the rows below.
    void (*read)(sp_object *object, const hf_family *family, sp_model *model);
    hf_renamed renamed[RENAMED];
    // Keys that change neither parameters nor bytes nor time, and those of what the family's model
    // has, or may have, and is not simulated. NULL: none.
    const char *const *free, *const *noted;
    const char *dropouts[DROPOUTS]; // keys of models whose dropout is simulated; NULL: none
    // What the library has where a file states nothing; 0: as many as heads, hidden_size over
    // heads, and of heads and vocabulary, of no window: they must be stated.
    int kv_heads, head_dim, heads, vocab;
    int window;
    hf_windows windows;
    int pattern;              // one layer of so many sees all tokens; 0: none does
    const char *pattern_key;  // the same in the file
    const char *first_window; // key of the first layer with a window
    bool chunks;              // layers see the chunk of attention_chunk_size, not a window
    sp_activation activation; // SwiGLU, or another whose name must have "gelu" in it
    sp_norm norm;
    bool tied, post_norms;
    hf_number soft_caps;
    hf_number qk_norm; // key "": always
    bool qk_norm_whole;
    bool latents; // of queries, keys and values (MLA)
    // Biases of queries, keys and values, and with `output_bias` of what is behind the attention,
    // unless this has a key of its own.
    hf_number attention_bias, behind_bias;
    bool output_bias;
    bool expert_biases, attention_sinks; // experts' with those of routers
    hf_number mlp_bias, head_bias;
    // Experts: how many, and of them for a token; the key of their width where intermediate_size
    // is that of dense layers. Of shared ones the key of their number, each as wide as an expert,
    // or of the width of all.
    hf_number experts, active, shared, shared_width;
    hf_number groups, active_groups; // of experts; key NULL: none
    const char *expert_width;
    bool shared_gate;
    bool may_lack_experts; // 0 of them: what would be shared is the MLP
    // Of a model whose layers differ: has this one experts?
    bool (*is_routed)(sp_object *object, int layer);
    hf_number dense_width; // where it is not intermediate_size
    // Layers that have no attention.
    void (*read_mixers)(sp_object *object, const sp_model *model, sp_layer_mlp *of_layer);
    // What else the file may say.
    void (*finish)(sp_object *object, sp_model *model);
};

static void read_gpt2(sp_object *object, const hf_family *family, sp_model *model);
static void read_gpt_neox(sp_object *object, const hf_family *family, sp_model *model);
static void read_dbrx(sp_object *object, const hf_family *family, sp_model *model);
static bool is_routed_qwen(sp_object *object, int layer);
static bool is_routed_glm(sp_object *object, int layer);
static bool is_routed_llama4(sp_object *object, int layer);
static bool is_routed_deepseek_v2(sp_object *object, int layer);
static bool is_routed_deepseek_v3(sp_object *object, int layer);
static bool is_routed_ernie(sp_object *object, int layer);
static void read_mtp(sp_object *object, sp_model *model);
static void finish_gpt_oss(sp_object *object, sp_model *model);
static void finish_llama4(sp_object *object, sp_model *model);
static void finish_minimax(sp_object *object, sp_model *model);
static void finish_bailing_v2(sp_object *object, sp_model *model);
static void finish_qwen(sp_object *object, sp_model *model);
static void finish_chatglm(sp_object *object, sp_model *model);
static void finish_qwen3_next(sp_object *object, sp_model *model);
static void read_layers_of_qwen3_next(sp_object *object, const sp_model *model,
                                      sp_layer_mlp *of_layer);
static void read_nemotron_h(sp_object *object, const hf_family *family, sp_model *model);
static void read_layers_of_granite(sp_object *object, const sp_model *model,
                                   sp_layer_mlp *of_layer);
static void finish_granite(sp_object *object, sp_model *model);
static void read_layers_of_bamba(sp_object *object, const sp_model *model, sp_layer_mlp *of_layer);
static void read_mamba(sp_object *object, sp_model *model);

enum { LIBRARY_WINDOW = 4096 };

// Kimi K2 is a DeepSeek-V3 of other sizes, as Moonlight is, whose files say deepseek_v3. The
// numbers that choose its experts evenly (e_score_correction_bias) have no gradients and are not
// counted.
#define DEEPSEEK_V3(name_)                                                                         \
    {                                                                                              \
        .name = (name_), .latents = true, .experts = {"n_routed_experts", 256},                    \
        .active = {"num_experts_per_tok", 8}, .expert_width = "moe_intermediate_size",             \
        .shared = {"n_shared_experts", 1}, .groups = {"n_group", 8},                               \
        .active_groups = {"topk_group", 4}, .is_routed = is_routed_deepseek_v3, .finish = read_mtp \
    }

#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

// Of embeddings, residual adds, scores and logits.
#define GRANITE_SCALES \
    KEYS("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling")

// Text models of those that see pictures are those of the family.
#define QWEN2(name_)                                               \
    {                                                              \
        .name = (name_), .kv_heads = 32, .window = LIBRARY_WINDOW, \
        .first_window = "max_window_layers", .attention_bias = {   \
            "qkv_bias",                                            \
            true                                                   \
        }                                                          \
    }
#define QWEN3(name_)                                                                \
    {                                                                               \
        .name = (name_), .kv_heads = 32, .head_dim = 128, .window = LIBRARY_WINDOW, \
        .first_window = "max_window_layers", .qk_norm = {"use_qk_norm", true},      \
        .attention_bias = {"attention_bias", 0}, .output_bias = true                \
    }
#define QWEN3_MOE(name_)                                                               \
    {                                                                                  \
        .name = (name_), .kv_heads = 4, .window = LIBRARY_WINDOW,                      \
        .qk_norm = {"use_qk_norm", true}, .attention_bias = {"attention_bias", 0},     \
        .output_bias = true, .experts = {"num_experts", 128},                          \
        .active = {"num_experts_per_tok", 8}, .expert_width = "moe_intermediate_size", \
        .is_routed = is_routed_qwen                                                    \
    }
#define GLM4(name_)                                                                              \
    {                                                                                            \
        .name = (name_), .kv_heads = 2, .head_dim = 128, .post_norms = true, .attention_bias = { \
            "attention_bias",                                                                    \
            true                                                                                 \
        }                                                                                        \
    }

#define NAMES_OF_GPT2                              \
    .renamed = {{"num_hidden_layers", "n_layer"},  \
                {"hidden_size", "n_embd"},         \
                {"num_attention_heads", "n_head"}, \
                {"intermediate_size", "n_inner"}}

// Values of absent keys are those of the library's classes, src/transformers/models/*; what only
// some layers or files have is read by the functions named here.
static const hf_family families[] = {
    {.name = "llama",
     .windows = IF_STATED, // of another library's model
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .mlp_bias = {"mlp_bias", 0}},
    {.name = "mistral", .kv_heads = 8, .windows = ALWAYS, .window = LIBRARY_WINDOW},
    QWEN2("qwen2"),
    QWEN2("qwen2_vl_text"),
    QWEN2("qwen2_5_vl_text"),
    QWEN3("qwen3"),
    QWEN3("qwen3_vl_text"),
    {.name = "mixtral",
     .kv_heads = 8,
     .windows = ALWAYS,
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
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .soft_caps = {"attn_logit_softcapping", 0}},
    {.name = "gemma2",
     .kv_heads = 4,
     .head_dim = 256,
     .windows = ALWAYS,
     .window = LIBRARY_WINDOW,
     .pattern = 2,
     .activation = SP_GEGLU,
     .tied = true,
     .post_norms = true,
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .soft_caps = {"attn_logit_softcapping", true}},
    // Files that see pictures leave out heads and vocabulary where they are the library's.
    {.name = "gemma3_text",
     .kv_heads = 4,
     .head_dim = 256,
     .heads = 8,
     .vocab = 262208,
     .windows = ALWAYS,
     .window = LIBRARY_WINDOW,
     .pattern = 6,
     .pattern_key = "sliding_window_pattern",
     .activation = SP_GEGLU,
     .tied = true,
     .post_norms = true,
     .qk_norm = {"", 0},
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .soft_caps = {"attn_logit_softcapping", 0}},
    {.name = "qwen2_moe",
     .kv_heads = 16,
     .window = LIBRARY_WINDOW,
     .first_window = "max_window_layers",
     .attention_bias = {"qkv_bias", true},
     .experts = {"num_experts", 60},
     .active = {"num_experts_per_tok", 4},
     .expert_width = "moe_intermediate_size",
     .shared_width = {"shared_expert_intermediate_size", 5632},
     .shared_gate = true,
     .is_routed = is_routed_qwen},
    QWEN3_MOE("qwen3_moe"),
    QWEN3_MOE("qwen3_vl_moe_text"),
    {.name = "olmoe",
     .qk_norm = {"", 0},
     .qk_norm_whole = true,
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .experts = {"num_experts", 64},
     .active = {"num_experts_per_tok", 8}},
    {.name = "phimoe",
     .kv_heads = 8,
     .windows = ALWAYS,
     .norm = SP_LAYERNORM,
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .head_bias = {"lm_head_bias", 0},
     .experts = {"num_local_experts", 16},
     .active = {"num_experts_per_tok", 2}},
    {.name = "glm4_moe",
     .kv_heads = 8,
     .qk_norm = {"use_qk_norm", false},
     .attention_bias = {"attention_bias", 0},
     .experts = {"n_routed_experts", 128},
     .active = {"num_experts_per_tok", 8},
     .expert_width = "moe_intermediate_size",
     .shared = {"n_shared_experts", 1},
     .groups = {"n_group", 1},
     .active_groups = {"topk_group", 1},
     .is_routed = is_routed_glm,
     .finish = read_mtp},
    {.name = "deepseek_v2",
     .latents = true,
     .experts = {"n_routed_experts", 64},
     .active = {"num_experts_per_tok", 6},
     .expert_width = "moe_intermediate_size",
     .shared = {"n_shared_experts", 2},
     .groups = {"n_group", 1},
     .active_groups = {"topk_group", 1},
     .is_routed = is_routed_deepseek_v2},
    DEEPSEEK_V3("deepseek_v3"),
    DEEPSEEK_V3("kimi_k2"),
    {.name = "gpt_oss",
     .kv_heads = 8,
     .head_dim = 64,
     .windows = ALWAYS,
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
     .windows = ALWAYS,
     .window = 8192,
     .pattern = 4,
     .pattern_key = "no_rope_layer_interval",
     .chunks = true,
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .experts = {"num_local_experts", 16},
     .active = {"num_experts_per_tok", 1},
     .shared = {"", 1},
     .is_routed = is_routed_llama4,
     .dense_width = {"intermediate_size_mlp", 16384},
     .finish = finish_llama4},
    {.name = "phi3", .windows = ALWAYS},
    {.name = "granite",
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .mlp_bias = {"mlp_bias", 0},
     .free = GRANITE_SCALES},
    {.name = "granitemoe",
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .experts = {"num_local_experts", 8},
     .active = {"num_experts_per_tok", 2},
     .free = GRANITE_SCALES},
    {.name = "granitemoeshared",
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .experts = {"num_local_experts", 8},
     .active = {"num_experts_per_tok", 2},
     .shared_width = {"shared_intermediate_size", 0},
     .free = GRANITE_SCALES},
    {.name = "glm", .kv_heads = 2, .head_dim = 128, .attention_bias = {"attention_bias", true}},
    GLM4("glm4"),
    GLM4("glm4v_text"),
    {.name = "chatglm",
     .kv_heads = 1,
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
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .mlp_bias = {"mlp_bias", 0},
     .free = KEYS("no_rope_layers", "no_rope_layer_interval")},
    {.name = "nemotron",
     .activation = SP_SQUARED_RELU,
     .norm = SP_LAYERNORM,
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .mlp_bias = {"mlp_bias", 0}},
    {.name = "arcee",
     .activation = SP_SQUARED_RELU,
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .mlp_bias = {"mlp_bias", 0}},
    {.name = "internlm2", .attention_bias = {"bias", true}, .output_bias = true},
    {.name = "internlm3",
     .attention_bias = {"qkv_bias", 0},
     .behind_bias = {"bias", 0},
     .mlp_bias = {"bias", 0}},
    {.name = "stablelm", .norm = SP_LAYERNORM, .attention_bias = {"use_qkv_bias", 0}},
    {.name = "starcoder2",
     .kv_heads = 2,
     .windows = ALWAYS,
     .activation = SP_GELU,
     .norm = SP_LAYERNORM,
     .tied = true,
     .attention_bias = {"use_bias", true},
     .output_bias = true,
     .mlp_bias = {"use_bias", true},
     .dropouts = {"residual_dropout", "embedding_dropout", "attention_dropout"},
     .free = KEYS("norm_type", "mlp_type")},
    {.name = "exaone", .renamed = {{"num_hidden_layers", "num_layers"}}},
    {.name = "minicpm",
     .tied = true,
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .free = KEYS("scale_emb", "scale_depth", "dim_model_base")},
    {.name = "qwen",
     .renamed = {{"head_dim", "kv_channels"}},
     .attention_bias = {"", 0},
     .free = KEYS("use_dynamic_ntk", "use_logn_attn", "softmax_in_fp32", "bf16", "fp16", "fp32",
                  "onnx_safe"),
     .finish = finish_qwen},
    {.name = "ministral", .kv_heads = 8, .windows = ALWAYS, .window = LIBRARY_WINDOW},
    {.name = "ministral3", .kv_heads = 8, .head_dim = 128, .windows = ALWAYS},
    {.name = "deepseek",
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .experts = {"n_routed_experts", 0},
     .active = {"num_experts_per_tok", 0},
     .expert_width = "moe_intermediate_size",
     .shared = {"n_shared_experts", 0},
     .is_routed = is_routed_deepseek_v2},
    {.name = "dots1",
     .qk_norm = {"", 0},
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .experts = {"n_routed_experts", 0},
     .active = {"num_experts_per_tok", 0},
     .expert_width = "moe_intermediate_size",
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
    {.name = "bailing_moe",
     .experts = {"num_experts", 0},
     .active = {"num_experts_per_tok", 0},
     .expert_width = "moe_intermediate_size",
     .shared = {"num_shared_experts", 0},
     .is_routed = is_routed_deepseek_v2,
     .free = KEYS("norm_softmax")},
    {.name = "bailing_moe_v2",
     .qk_norm = {"use_qk_norm", 0},
     .experts = {"num_experts", 0},
     .active = {"num_experts_per_tok", 0},
     .expert_width = "moe_intermediate_size",
     .shared = {"num_shared_experts", 0},
     .is_routed = is_routed_deepseek_v2,
     .free = KEYS("norm_softmax", "score_function", "moe_router_enable_expert_bias",
                  "moe_router_topk_scaling_factor", "mtp_loss_scaling_factor", "router_dtype"),
     .finish = finish_bailing_v2},
    {.name = "grok-1",
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
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .experts = {"num_experts", 512},
     .active = {"num_experts_per_tok", 10},
     .expert_width = "moe_intermediate_size",
     .shared_width = {"shared_expert_intermediate_size", 512},
     .shared_gate = true,
     .is_routed = is_routed_qwen,
     .read_mixers = read_layers_of_qwen3_next,
     .finish = finish_qwen3_next},
    {.name = "granitemoehybrid",
     .attention_bias = {"attention_bias", 0},
     .output_bias = true,
     .experts = {"num_local_experts", 0},
     .active = {"num_experts_per_tok", 0},
     .shared_width = {"shared_intermediate_size", 1024},
     .may_lack_experts = true,
     .read_mixers = read_layers_of_granite,
     .free = GRANITE_SCALES,
     .finish = finish_granite},
    {.name = "bamba", .kv_heads = 8, .read_mixers = read_layers_of_bamba, .finish = read_mamba},
    {.name = "nemotron_h", .read = read_nemotron_h, .activation = SP_SQUARED_RELU},
    {.name = "dbrx",
     .read = read_dbrx,
     .renamed = {{"num_hidden_layers", "n_layers"},
                 {"hidden_size", "d_model"},
                 {"num_attention_heads", "n_heads"}}},
};

enum { FAMILIES = sizeof families / sizeof families[0], KIND_TEXT = 80 };

static void read_dtype(sp_object *object, sp_model *model);
static void refuse_activations(sp_object *object, const hf_family *family);
static void read_family(sp_object *object, const hf_family *family, sp_model *model);
static void name_model(sp_object *object, const char *fallback, sp_model *model);

sp_status sp_model_from_hf(const json_t *config, const char *source, sp_model *model, sp_error *err)
{
    return sp_i_hf_read(config, source, NULL, model, err);
}

// ---- the document ----

static const hf_family *family_named(const char *kind)
{
    for (int i = 0; kind != NULL && i < FAMILIES; i++) {
        if (strcmp(kind, families[i].name) == 0) {
            return &families[i];
        }
    }
    return NULL;
}

// Kinds that are published often, and what of them no layer here has.
static const struct {
    const char *names, *why;
} other_kinds[] = {
    {"falcon gptj codegen phi cohere cohere2", "attention and MLP side by side"},
    {"mpt bloom", "positions that are added to scores (ALiBi)"},
    {"opt", "ReLU"},
    {"olmo", "norms without weights"},
    {"olmo2 olmo3 exaone4", "norms behind attention and MLP alone"},
    {"mllama llama4_vision_model t5 bart whisper", "layers that attend to another part"},
    {"mamba mamba2 falcon_mamba rwkv recurrent_gemma zamba zamba2 falcon_h1 lfm2 jamba",
     "layers other than attention, Mamba-2 and MLP"},
};

const char *sp_model_hf_kind(int index)
{
    return index >= 0 && index < FAMILIES ? families[index].name : NULL;
}

// Numbers tell kinds apart, so none is a misspelt other.
static const hf_family *family_of(sp_object *object)
{
    const json_t *value = sp_object_get(object, "model_type");
    const char *kind = json_string_value(value);
    const hf_family *family = family_named(kind);
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

static bool is_known_kind(const json_t *config)
{
    return family_named(json_string_value(json_object_get(config, "model_type"))) != NULL;
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
    json_t *text = NULL;
    if (whole.json != NULL && !is_known_kind(config)) {
        text = text_part(&whole);
    }
    if (text != NULL) {
        sp_i_hf_read_quantization(&whole, model);
        sp_i_hf_refuse_keys(&whole, true);
        sp_object_begin(&object, text, source, "text_config", found);
    }
    const char *kind = text == NULL ? sp_json_kind(config) : NULL;
    if (kind != NULL && json_object_get(config, "model_type") == NULL &&
        json_object_get(config, "architectures") == NULL) {
        sp_error_in(found, SP_ERR_CONTENT, source, NULL, "expected a model's config.json, got %s",
                    kind);
    } else if (json_object_get(object.json, "peft_type") != NULL) {
        sp_object_error(&object, "peft_type", "%s, their base model's config.json is",
                        sp_i_hf_adapters);
    } else if (object.json != NULL) {
        sp_object_require(&object, "model_type");
    }
    const hf_family *family = found->count + found->dropped == before ? family_of(&object) : NULL;
    if (family != NULL) {
        snprintf(name, sizeof name, "%s%s", called != NULL ? called : family->name,
                 text != NULL ? " (text)" : "");
        name_model(text != NULL ? &whole : &object, name, model);
        refuse_activations(&object, family);
        read_dtype(&object, model);
        sp_i_hf_read_quantization(&whole, model);
        sp_i_hf_read_quantization(&object, model);
        if (family->read != NULL) {
            family->read(&object, family, model);
        } else {
            read_family(&object, family, model);
        }
        sp_i_hf_refuse_keys(&object, false);
        sp_i_hf_note_unread(&object, model);
        if (text != NULL) {
            sp_i_hf_note_parts(config, model);
        }
    }
    json_decref(text);
    return found->count + found->dropped != before ? found->status
                                                   : sp_model_check(model, source, "", found);
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
static void refuse_activations(sp_object *object, const hf_family *family)
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

static const char *key_of(const hf_family *family, const char *usual)
{
    for (int i = 0; i < RENAMED && family->renamed[i].usual != NULL; i++) {
        if (strcmp(family->renamed[i].usual, usual) == 0) {
            return family->renamed[i].here;
        }
    }
    return usual;
}

// A number that the library's class knows: what an explicit null stands for, or NO_NULL where the
// library cannot build a model of it.
enum { NO_NULL = -1 };

static bool is_null(const sp_object *object, const char *key)
{
    return json_is_null(json_object_get(object->json, key));
}

static int64_t number_or_null(sp_object *object, const char *key, int64_t usual, int64_t null,
                              int64_t least, int64_t most)
{
    if (!is_null(object, key)) {
        return sp_object_int(object, key, usual, least, most);
    }
    sp_object_get(object, key);
    if (null == NO_NULL) {
        sp_object_error(object, key, "expected an integer from %lld to %lld, got null",
                        (long long)least, (long long)most);
    }
    return null == NO_NULL ? usual : null;
}

// hidden/heads where the file gives no head_dim.
static int64_t head_dim_of(sp_object *object, const hf_family *family, const sp_model *model)
{
    const char *key = key_of(family, "head_dim");
    if (sp_object_has(object, key)) {
        return sp_object_int(object, key, 1, 1, SP_I_MAX_HEAD_DIM);
    }
    if (family->head_dim > 0 && !is_null(object, key)) {
        return family->head_dim;
    }
    const json_t *hidden = json_object_get(object->json, key_of(family, "hidden_size"));
    bool is_refused = json_integer_value(hidden) != model->hidden;
    if (model->hidden % model->heads != 0 && !is_refused) {
        sp_object_error(object, key_of(family, "num_attention_heads"),
                        "%d heads do not divide a hidden size of %lld, and %s is not given",
                        model->heads, (long long)model->hidden, key);
        return 1;
    }
    return sp_larger(1, model->hidden / model->heads);
}

static int64_t size_or(sp_object *object, const char *key, int64_t usual, int64_t max)
{
    return usual > 0 ? sp_object_int(object, key, usual, 1, max) : required_size(object, key, max);
}

static void read_sizes(sp_object *object, const hf_family *family, sp_model *model)
{
    const char *heads = key_of(family, "num_attention_heads");
    model->layers =
        (int)required_size(object, key_of(family, "num_hidden_layers"), SP_I_MAX_LAYERS);
    model->hidden = required_size(object, key_of(family, "hidden_size"), SP_I_MAX_HIDDEN);
    model->heads = (int)size_or(object, heads, family->heads, SP_I_MAX_HEADS);
    model->vocab = size_or(object, key_of(family, "vocab_size"), family->vocab, SP_I_MAX_VOCAB);
}

// Masks that the dropout of hidden states and of the attention leaves, where there is one.
static void read_dropout(sp_object *object, const char *const keys[], double usual, sp_model *model)
{
    double first = 0.0;
    for (int i = 0; i < DROPOUTS && keys[i] != NULL; i++) {
        double share = sp_object_real(object, keys[i], usual, 0.0, 1.0);
        first = i == 0 ? share : first;
        if ((share > 0.0) != (first > 0.0)) {
            sp_object_error(object, keys[i], "dropout in one place and none at %s is not modelled",
                            keys[0]);
        }
    }
    model->dropout = first > 0.0 ? SP_DROPOUT_ON : SP_DROPOUT_OFF;
}

static void set_biases(sp_model *model, bool all)
{
    model->bias = model->qkv_bias = model->output_bias = model->mlp_bias = all;
}

// False where the family has no such key.
static bool read_switch(sp_object *object, const hf_number *number)
{
    return number->key != NULL &&
           (number->key[0] == '\0' || sp_object_bool(object, number->key, number->usual != 0));
}

static int read_count(sp_object *object, const hf_number *number)
{
    if (number->usual == 0) {
        sp_object_require(object, number->key);
        return (int)sp_object_int(object, number->key, 1, 1, SP_I_MAX_EXPERTS);
    }
    return (int)number_or_null(object, number->key, number->usual, NO_NULL, 1, SP_I_MAX_EXPERTS);
}

// Attention scores have a cap where the file gives one. Caps on logits, scaled embeddings and
// another scale of scores cost nothing.
static bool has_caps(sp_object *object, const hf_family *family)
{
    if (family->soft_caps.key == NULL) {
        return false;
    }
    sp_object_get(object, "final_logit_softcapping");
    sp_object_get(object, family->soft_caps.key);
    const json_t *cap = json_object_get(object->json, family->soft_caps.key); // perhaps null
    return cap == NULL ? family->soft_caps.usual != 0 : !sp_i_hf_asks_for_nothing(cap);
}

static void read_biases(sp_object *object, const hf_family *family, sp_model *model)
{
    bool attention = read_switch(object, &family->attention_bias);
    bool behind = family->behind_bias.key != NULL ? read_switch(object, &family->behind_bias)
                                                  : attention && family->output_bias;
    bool mlp = read_switch(object, &family->mlp_bias);
    set_biases(model, attention && behind && mlp);
    model->qkv_bias = attention;
    model->output_bias = behind;
    model->mlp_bias = mlp || family->expert_biases;
    model->router_bias = family->expert_biases;
    model->head_bias = read_switch(object, &family->head_bias);
}

// All groups, or a choice that does not look at them, are none.
static void read_groups(sp_object *object, const hf_family *family, sp_model *model)
{
    const char *method = json_string_value(sp_object_get(object, "topk_method"));
    int64_t groups =
        number_or_null(object, family->groups.key, family->groups.usual, 1, 1, SP_I_MAX_EXPERTS);
    int64_t active = number_or_null(object, family->active_groups.key, family->active_groups.usual,
                                    1, 1, SP_I_MAX_EXPERTS);
    if (groups > active && (method == NULL || strcmp(method, "greedy") != 0)) {
        model->expert_groups = (int)groups;
        model->expert_group_top_k = (int)active;
    }
}

static void read_experts(sp_object *object, const hf_family *family, sp_model *model)
{
    if (family->may_lack_experts &&
        json_integer_value(json_object_get(object->json, family->experts.key)) == 0) {
        sp_object_require(object, family->experts.key);
        sp_object_get(object, family->active.key);
        model->ffn = required_size(object, family->shared_width.key, SP_I_MAX_FFN);
        return;
    }
    model->experts = read_count(object, &family->experts);
    model->experts_per_token = read_count(object, &family->active);
    if (family->expert_width != NULL) {
        model->ffn = required_size(object, family->expert_width, SP_I_MAX_FFN);
    }
    if (family->shared_width.key != NULL) {
        model->shared_ffn = number_or_null(object, family->shared_width.key,
                                           family->shared_width.usual, NO_NULL, 0, SP_I_MAX_FFN);
    } else if (family->shared.key != NULL) {
        bool stated = family->shared.key[0] != '\0';
        model->shared_ffn =
            model->ffn * (stated ? number_or_null(object, family->shared.key, family->shared.usual,
                                                  0, 0, SP_I_MAX_EXPERTS)
                                 : family->shared.usual);
    }
    model->shared_gate = family->shared_gate && model->shared_ffn > 0;
    if (family->groups.key != NULL) {
        read_groups(object, family, model);
    }
}

// ---- layers ----

static bool is_type(const json_t *type, const char *name)
{
    return json_is_string(type) && strcmp(json_string_value(type), name) == 0;
}

// The key's array of a number or text for each layer; NULL: it has none, or of another length.
static const json_t *of_layers(sp_object *object, const char *key, const sp_model *model)
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

// Does the layer see a window, or its chunk, where the file has no layer_types?
static bool is_local(sp_object *object, const hf_family *family, int64_t pattern, int layer)
{
    if (family->pattern > 0) {
        return pattern == 0 || (layer + 1) % pattern != 0;
    }
    enum { LIBRARY_FIRST = 28 };
    const json_t *first =
        family->first_window != NULL ? sp_object_get(object, family->first_window) : NULL;
    int64_t begin = json_is_integer(first) ? json_integer_value(first) : LIBRARY_FIRST;
    return family->first_window == NULL || layer >= begin;
}

// Tokens that layers with a window or a chunk see; 0: all layers see all. Null is no window.
static int64_t read_seen(sp_object *object, const hf_family *family, bool typed)
{
    if (family->chunks) {
        return number_or_null(object, "attention_chunk_size", family->window, 0, 1,
                              SP_I_MAX_POSITIONS);
    }
    bool used = family->windows == ALWAYS ||
                sp_object_bool(object, "use_sliding_window", typed || family->windows == IF_STATED);
    if (json_equal(json_object_get(object->json, "sliding_window_size"),
                   json_object_get(object->json, "sliding_window"))) {
        sp_object_get(object, "sliding_window_size"); // published files of Gemma 2 say it twice
    }
    return used ? number_or_null(object, "sliding_window", family->window, 0, 1, SP_I_MAX_POSITIONS)
                : 0;
}

static bool check_types(sp_object *object, const json_t *types, const char *local, bool has_local)
{
    size_t i;
    json_t *type;
    json_array_foreach (types, i, type) {
        if (!is_type(type, "full_attention") && !(has_local && is_type(type, local))) {
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
static void read_local(sp_object *object, const hf_family *family, sp_model *model,
                       sp_layer_mlp *of_layer)
{
    const char *local = family->chunks ? "chunked_attention" : "sliding_attention";
    const json_t *types = of_layers(object, "layer_types", model);
    const json_t *rotary = family->chunks ? of_layers(object, "no_rope_layers", model) : NULL;
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
        bool here = types != NULL    ? is_type(json_array_get(types, (size_t)i), local)
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
static void read_dense(sp_object *object, const hf_family *family, const sp_model *model,
                       sp_layer_mlp *of_layer)
{
    if (family->is_routed == NULL) {
        return;
    }
    bool is_stated = family->dense_width.key == NULL;
    const char *key = is_stated ? "intermediate_size" : family->dense_width.key;
    int64_t width = number_or_null(object, key, is_stated ? model->ffn : family->dense_width.usual,
                                   NO_NULL, 1, SP_I_MAX_FFN);
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

static void read_layers(sp_object *object, const hf_family *family, sp_model *model)
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

// Granite 4's layer_types: "mamba" or "attention".
static void read_layers_of_granite(sp_object *object, const sp_model *model, sp_layer_mlp *of_layer)
{
    const json_t *types = of_layers(object, "layer_types", model);
    sp_object_require(object, "layer_types");
    for (int i = 0; types != NULL && i < model->layers; i++) {
        const json_t *type = json_array_get(types, (size_t)i);
        bool attends = is_type(type, "attention");
        if (!attends && !is_type(type, "mamba")) {
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
    const json_t *types = of_layers(object, "layer_types", model);
    int64_t every = sp_object_int(object, "full_attention_interval", 4, 1, SP_I_MAX_LAYERS);
    for (int i = 0; i < model->layers; i++) {
        const json_t *type = json_array_get(types, (size_t)i);
        bool attends = types != NULL ? is_type(type, "full_attention") : (i + 1) % every == 0;
        if (types != NULL && !attends && !is_type(type, "linear_attention")) {
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
    const json_t *attending = sp_object_get(object, "attn_layer_indices");
    for (int i = 0; i < model->layers; i++) {
        of_layer[i].mixer = holds(attending, i) ? SP_MIXER_ATTENTION : SP_MIXER_MAMBA2;
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

// ---- what single families say ----

// Layers that predict further tokens, which Megatron-Bridge trains and the library's classes leave
// out (model.mtp_layers 0).
static void read_mtp(sp_object *object, sp_model *model)
{
    model->mtp_layers =
        (int)sp_object_int(object, "num_nextn_predict_layers", 0, 0, SP_I_MAX_MTP_LAYERS);
}

// Published files say it twice.
static void finish_gpt_oss(sp_object *object, sp_model *model)
{
    int64_t again =
        sp_object_int(object, "experts_per_token", model->experts_per_token, 1, SP_I_MAX_EXPERTS);
    if (again != model->experts_per_token) {
        sp_object_error(object, "experts_per_token", "is %lld, and num_experts_per_tok %d",
                        (long long)again, model->experts_per_token);
    }
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
    const json_t *types = of_layers(object, "attn_type_list", model);
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
        !is_type(json_object_get(object->json, "qk_norm_type"), "per_layer")) {
        sp_object_expected(object, "qk_norm_type", json_object_get(object->json, "qk_norm_type"),
                           "\"per_layer\"");
    }
}

// Files say the width of the shared experts besides.
static void finish_bailing_v2(sp_object *object, sp_model *model)
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
    set_biases(model, !sp_object_bool(object, "no_bias", true));
    model->qkv_bias = true;
}

static void finish_chatglm(sp_object *object, sp_model *model)
{
    if (!sp_object_bool(object, "multi_query_attention", false)) {
        model->kv_heads = model->heads;
    }
    model->norm = sp_object_bool(object, "rmsnorm", true) ? SP_RMSNORM : SP_LAYERNORM;
    set_biases(model, model->mlp_bias);
    model->qkv_bias = model->mlp_bias || sp_object_bool(object, "add_qkv_bias", false);
    if (!sp_object_bool(object, "post_layer_norm", true)) {
        sp_object_error(object, "post_layer_norm",
                        "a model without a norm before its head is not "
                        "modelled: expected true");
    }
    if (sp_object_bool(object, "apply_residual_connection_post_layernorm", false)) {
        sp_object_error(object, "apply_residual_connection_post_layernorm",
                        "a residual path of normed states is not modelled: expected false");
    }
}

// Mamba-2 as Bamba and Granite 4 have it. Heads share mamba_expand times the width of the hidden
// states where the file does not say how wide each is.
static void read_mamba(sp_object *object, sp_model *model)
{
    static const char *const free[] = {"mamba_chunk_size", "mamba_expand",  "time_step_limit",
                                       "time_step_min",    "time_step_max", "num_logits_to_keep"};
    for (size_t i = 0; i < sizeof free / sizeof free[0]; i++) {
        sp_object_get(object, free[i]);
    }
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
    if (dim != NULL && !is_type(dim, "auto")) {
        model->state_head_dim = sp_object_int(object, "mamba_d_head", 64, 1, SP_I_MAX_HEAD_DIM);
    }
    if (model->state_head_dim * model->state_heads != width) {
        sp_object_error(object, "mamba_d_head", "%d heads of %lld are not the width of %lld",
                        model->state_heads, (long long)model->state_head_dim, (long long)width);
    }
    if (!sp_object_bool(object, "mamba_conv_bias", true)) {
        sp_object_error(object, "mamba_conv_bias", "a convolution without a bias is not modelled");
    }
    if (sp_object_bool(object, "mamba_proj_bias", false)) {
        sp_object_error(object, "mamba_proj_bias",
                        "biases other than those of the model_type are not modelled: expected it "
                        "to be absent or false");
    }
}

// Granite 4: a shared MLP beside experts, alone where there are none; positions or none.
static void finish_granite(sp_object *object, sp_model *model)
{
    const json_t *positions = sp_object_get(object, "position_embedding_type");
    if (positions != NULL && !is_type(positions, "rope") && !is_type(positions, "nope")) {
        sp_object_expected(object, "position_embedding_type", positions, "\"rope\" or \"nope\"");
    }
    model->positional = positions != NULL && is_type(positions, "rope") ? SP_ROPE : SP_NO_POSITIONS;
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

// Without a rank of the queries' latent (null) they are made from hidden states. Keys of usual
// heads say nothing here: each query head has its own keys and values.
static void read_latents(sp_object *object, sp_model *model)
{
    model->q_lora_rank = number_or_null(object, "q_lora_rank", 1536, 0, 0, SP_I_MAX_HIDDEN);
    model->kv_lora_rank = number_or_null(object, "kv_lora_rank", 512, NO_NULL, 1, SP_I_MAX_HIDDEN);
    model->qk_nope_dim =
        number_or_null(object, "qk_nope_head_dim", 128, NO_NULL, 1, SP_I_MAX_HEAD_DIM);
    model->qk_rope_dim =
        number_or_null(object, "qk_rope_head_dim", 64, NO_NULL, 1, SP_I_MAX_HEAD_DIM);
    model->v_head_dim = number_or_null(object, "v_head_dim", 128, NO_NULL, 1, SP_I_MAX_HEAD_DIM);
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

static void read_heads(sp_object *object, const hf_family *family, sp_model *model)
{
    int kv_heads = family->kv_heads > 0 ? family->kv_heads : model->heads;
    model->kv_heads = (int)number_or_null(object, key_of(family, "num_key_value_heads"), kv_heads,
                                          model->heads, 1, SP_I_MAX_HEADS);
    model->head_dim = head_dim_of(object, family, model);
}

static void read_named(sp_object *object, const hf_family *family, sp_model *model)
{
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

static void read_family(sp_object *object, const hf_family *family, sp_model *model)
{
    model->activation = family->activation;
    model->norm = family->norm;
    model->positional = SP_ROPE;
    read_sizes(object, family, model);
    model->ffn = required_size(object, key_of(family, "intermediate_size"), SP_I_MAX_FFN);
    if (family->latents) {
        read_latents(object, model);
    } else {
        read_heads(object, family, model);
    }
    model->tied_embeddings = sp_object_bool(object, "tie_word_embeddings", family->tied);
    model->qk_norm = read_switch(object, &family->qk_norm);
    model->qk_norm_whole = model->qk_norm && family->qk_norm_whole;
    model->post_norms = family->post_norms;
    model->attention_sinks = family->attention_sinks;
    model->soft_caps = has_caps(object, family);
    if (family->experts.key != NULL) {
        read_experts(object, family, model);
    }
    read_biases(object, family, model);
    read_layers(object, family, model);
    read_named(object, family, model);
    if (family->finish != NULL) {
        family->finish(object, model);
    }
    if (family->dropouts[0] != NULL) {
        read_dropout(object, family->dropouts, 0.0, model);
    } else {
        sp_i_hf_note_dropout(object, model);
    }
}

// GPT-2, and GPT-BigCode, whose query heads share one head of keys and values unless the file says
// no (multi_query).
static void read_gpt2(sp_object *object, const hf_family *family, sp_model *model)
{
    model->activation = SP_GELU;
    model->norm = SP_LAYERNORM;
    model->positional = SP_LEARNED;
    read_sizes(object, family, model);
    model->ffn = sp_object_int(object, "n_inner", 4 * model->hidden, 1, SP_I_MAX_FFN);
    model->max_positions = sp_object_int(object, "n_positions", 1024, 1, SP_I_MAX_POSITIONS);
    bool shares = family->kv_heads == 1 && sp_object_bool(object, "multi_query", true);
    model->kv_heads = shares ? 1 : model->heads;
    model->head_dim = head_dim_of(object, family, model);
    model->tied_embeddings = sp_object_bool(object, "tie_word_embeddings", true);
    set_biases(model, sp_object_bool(object, "use_bias", true));
    static const char *const dropouts[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop", NULL};
    read_dropout(object, dropouts, 0.1, model);
}

static void read_gpt_neox(sp_object *object, const hf_family *family, sp_model *model)
{
    model->activation = SP_GELU;
    model->norm = SP_LAYERNORM;
    model->positional = SP_ROPE;
    read_sizes(object, family, model);
    model->ffn = required_size(object, "intermediate_size", SP_I_MAX_FFN);
    model->kv_heads = model->heads;
    if (sp_object_int(object, "num_key_value_heads", model->heads, 1, SP_I_MAX_HEADS) !=
        model->heads) {
        sp_object_error(object, "num_key_value_heads",
                        "groups of heads are not modelled of this model_type");
    }
    model->head_dim = head_dim_of(object, family, model);
    model->tied_embeddings = sp_object_bool(object, "tie_word_embeddings", false);
    set_biases(model, sp_object_bool(object, "attention_bias", true));
    model->mlp_bias = true;
    // Its MLP is simulated behind the attention.
    const json_t *side_by_side = sp_object_get(object, "use_parallel_residual");
    if (!json_is_false(side_by_side)) { // true where it is absent
        sp_i_hf_add_key(model->ignored_keys, "use_parallel_residual");
    }
    static const char *const dropouts[] = {"hidden_dropout", "attention_dropout", NULL};
    read_dropout(object, dropouts, 0.0, model);
}

// Sizes of attention and experts stand in objects of their own. Its norms have no biases, as
// RMSNorm, at whose cost LayerNorm runs too.
static void read_dbrx(sp_object *object, const hf_family *family, sp_model *model)
{
    sp_object attention;
    sp_object experts;
    model->activation = SP_SWIGLU;
    model->norm = SP_RMSNORM;
    model->positional = SP_ROPE;
    read_sizes(object, family, model);
    sp_object_require(object, "attn_config");
    sp_object_require(object, "ffn_config");
    sp_object_begin(&attention, sp_object_get(object, "attn_config"), object->source, "attn_config",
                    object->err);
    sp_object_begin(&experts, sp_object_get(object, "ffn_config"), object->source, "ffn_config",
                    object->err);
    model->kv_heads = (int)sp_object_int(&attention, "kv_n_heads", 1, 1, SP_I_MAX_HEADS);
    model->head_dim = head_dim_of(object, family, model);
    model->ffn = sp_object_int(&experts, "ffn_hidden_size", 3584, 1, SP_I_MAX_FFN);
    model->experts = (int)sp_object_int(&experts, "moe_num_experts", 4, 1, SP_I_MAX_EXPERTS);
    model->experts_per_token = (int)sp_object_int(&experts, "moe_top_k", 1, 1, SP_I_MAX_EXPERTS);
    model->tied_embeddings = sp_object_bool(object, "tie_word_embeddings", false);
    sp_object activation;
    sp_object_begin(&activation, sp_object_get(&experts, "ffn_act_fn"), object->source,
                    "ffn_config.ffn_act_fn", object->err);
    const json_t *name = json_object_get(activation.json, "name");
    if (name != NULL && !is_type(name, "silu")) {
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

// One letter a layer: a state (M), attention (*), an MLP (-), each with one norm.
static void read_pattern(sp_object *object, sp_model *model)
{
    static const char key[] = "hybrid_override_pattern";
    sp_object_require(object, key);
    const char *pattern = json_string_value(sp_object_get(object, key));
    if (pattern == NULL || strlen(pattern) != (size_t)model->layers) {
        sp_object_error(object, key,
                        "expected a letter for each of %d layers: \"M\" (Mamba-2), "
                        "\"*\" (attention) or \"-\" (an MLP)",
                        model->layers);
        return;
    }
    sp_layer_mlp *of_layer = sp_calloc((size_t)model->layers, sizeof *of_layer);
    bool known = true;
    for (int i = 0; known && i < model->layers; i++) {
        known = strchr("M*-", pattern[i]) != NULL;
        of_layer[i] = (sp_layer_mlp){.ffn = model->ffn,
                                     .mixer = pattern[i] == 'M'   ? SP_MIXER_MAMBA2
                                              : pattern[i] == '*' ? SP_MIXER_ATTENTION
                                                                  : SP_MIXER_NONE,
                                     .without_mlp = pattern[i] != '-'};
    }
    if (!known) {
        sp_object_error(object, key,
                        "layers other than \"M\" (Mamba-2), \"*\" (attention) and \"-\" (an MLP) "
                        "are not modelled in a file of this model_type");
    } else if (!sp_model_set_kinds(model, of_layer)) {
        sp_object_error(object, key, "no order of at most %d runs of layers repeats",
                        SP_LAYER_RUNS);
    } else if (model->kinds == 1) {
        sp_model space;
        *model = *sp_model_of_kind(model, 0, &space);
    }
    sp_free(of_layer);
}

// Nemotron-H (arXiv 2504.03624), whose attention has no positions and whose Mamba-2 has heads of
// their own.
static void read_nemotron_h(sp_object *object, const hf_family *family, sp_model *model)
{
    model->activation = SP_SQUARED_RELU;
    model->norm = SP_RMSNORM;
    model->positional = SP_NO_POSITIONS;
    read_sizes(object, family, model);
    model->ffn = required_size(object, "intermediate_size", SP_I_MAX_FFN);
    model->kv_heads =
        (int)number_or_null(object, "num_key_value_heads", 8, model->heads, 1, SP_I_MAX_HEADS);
    const char *dim =
        sp_object_has(object, "attention_head_dim") ? "attention_head_dim" : "head_dim";
    model->head_dim = sp_object_int(object, dim, 128, 1, SP_I_MAX_HEAD_DIM);
    model->tied_embeddings = sp_object_bool(object, "tie_word_embeddings", false);
    read_pattern(object, model);
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
        if (name != NULL && !is_type(name, activations[i][1])) {
            sp_object_expected(object, activations[i][0], name, "\"%s\"", activations[i][1]);
        }
    }
    if (!sp_object_bool(object, "use_conv_bias", true)) {
        sp_object_error(object, "use_conv_bias", "a convolution without a bias is not modelled");
    }
    static const char *const biases[] = {"use_bias", "mlp_bias", "attention_bias",
                                         "mamba_proj_bias"};
    for (size_t i = 0; i < sizeof biases / sizeof biases[0]; i++) {
        if (sp_object_bool(object, biases[i], false)) {
            sp_object_error(object, biases[i],
                            "biases other than those of the model_type are not "
                            "modelled: expected it to be absent or false");
        }
    }
    static const char *const others[] = {"expand",
                                         "chunk_size",
                                         "residual_in_fp32",
                                         "time_step_limit",
                                         "time_step_min",
                                         "time_step_max",
                                         "time_step_floor",
                                         "rescale_prenorm_residual",
                                         "use_mamba_kernels",
                                         "num_logits_to_keep",
                                         "mamba_ssm_cache_dtype"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        sp_object_get(object, others[i]);
    }
    sp_i_hf_note_dropout(object, model);
}
