// The shape of a transformer and what follows from it alone: parameters and FLOPs per token.
#ifndef SLIMPACK_SIM_MODEL_MODEL_H
#define SLIMPACK_SIM_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/json.h"
#include "sim/base/status.h"
#include "sim/model/precision.h"

// GEGLU is SwiGLU with GELU in SiLU's place, of the same cost.
typedef enum sp_activation { SP_SWIGLU, SP_GELU, SP_SQUARED_RELU, SP_GEGLU } sp_activation;
// The type that weights are stored in. Steps compute in BF16 whatever that is.
typedef enum sp_stored_dtype {
    SP_STORED_BF16,
    SP_STORED_FP16,
    SP_STORED_FP32,
    SP_STORED_FP8 // with scales, for blocks of weights or for tensors
} sp_stored_dtype;
// Dropout of hidden states and attention; usual: with GELU alone.
typedef enum sp_dropout { SP_DROPOUT_USUAL, SP_DROPOUT_OFF, SP_DROPOUT_ON } sp_dropout;
// Which projections of a layer carry adapters: all of them, those of attention or of the MLP, or
// queries and values alone (the choice of the LoRA paper); or all of them as Megatron-Bridge's LoRA
// class has them, with one adapter for queries, keys and values, and one for gate and up.
typedef enum sp_lora_targets {
    SP_LORA_ALL_LINEAR,
    SP_LORA_ATTENTION,
    SP_LORA_MLP,
    SP_LORA_QUERY_VALUE,
    SP_LORA_MEGATRON
} sp_lora_targets;
// Attention and MLP of a layer: the MLP reads the sum of the attention's output and the residual
// path, or both read the layer's input, through a norm each or one norm of both, and one sum
// follows (GPT-J, GPT-NeoX).
typedef enum sp_blocks { SP_BLOCKS_IN_TURN, SP_BLOCKS_TWO_NORMS, SP_BLOCKS_ONE_NORM } sp_blocks;
typedef enum sp_norm { SP_RMSNORM, SP_LAYERNORM } sp_norm;
// What tokens of a layer learn from each other by: attention; a state that each token changes
// (Mamba-2, arXiv 2405.21060; gated DeltaNet, arXiv 2412.06464), in place of it; or nothing, in a
// layer that is an MLP alone.
typedef enum sp_mixer {
    SP_MIXER_ATTENTION,
    SP_MIXER_MAMBA2,
    SP_MIXER_GATED_DELTA,
    SP_MIXER_NONE
} sp_mixer;
typedef enum sp_positional { SP_ROPE, SP_LEARNED, SP_NO_POSITIONS } sp_positional;

// NULL-terminated, in the order of the enums.
extern const char *const sp_activation_names[];
extern const char *const sp_norm_names[];
extern const char *const sp_blocks_names[];
extern const char *const sp_mixer_names[];
extern const char *const sp_positional_names[];
extern const char *const sp_stored_dtype_names[]; // as PyTorch names them
extern const char *const sp_lora_target_names[];

enum { SP_MODEL_NAME = 64, SP_MODEL_KEY = 40, SP_MODEL_KEYS = 160 };

// What may differ from layer to layer: attention or what stands in its place, the MLP, dense or
// routed to experts, and the tokens that attention sees. All else is alike in all layers.
typedef struct sp_layer_mlp {
    int64_t ffn; // f, of one expert where there are experts
    int experts; // 0: dense MLP
    int experts_per_token;
    int64_t shared_ffn; // of all shared experts together, which every token passes; 0: none
    bool shared_gate;   // their output is multiplied by a number for each token (h to 1, Qwen2-MoE)
    int64_t window_tokens, chunk_tokens; // as of sp_model
    sp_mixer mixer;
    bool without_mlp;
} sp_layer_mlp;

// So many layers of one kind behind each other.
typedef struct sp_layer_run {
    int layers, kind;
} sp_layer_run;

enum { SP_LAYER_KINDS = 4, SP_LAYER_RUNS = 128 }; // at most

// A decoder-only transformer. All counts are of the whole model, before sharding.
typedef struct sp_model {
    char name[SP_MODEL_NAME];
    int layers;
    int64_t hidden;        // h
    int64_t ffn;           // f of all layers, or of kinds that state none
    int heads;             // a
    int kv_heads;          // < heads: grouped-query attention
    int64_t head_dim;      // d, of queries and keys; hidden/heads unless given
    int64_t vocab;         // V, as given, never padded
    int64_t max_positions; // length of the learned position table; 0: not counted
    // A token attends to the last so many tokens of its sample, itself among them (a window), or to
    // those of its own chunk (of so many tokens, counted from the sample's first); 0: to all before
    // it. One of them at most.
    int64_t window_tokens, chunk_tokens;
    sp_mixer mixer;
    bool without_mlp;
    // Of layers with a state: heads, each with so many features of a token and a state of that many
    // times state_dim; groups of heads that share what writes into the state and what reads it; and
    // tokens that a convolution in front takes in.
    int state_heads, state_groups;
    int64_t state_head_dim, state_dim, state_conv;
    bool attention_gate; // of each feature of the attention's output (Qwen3-Next)
    sp_activation activation;
    sp_norm norm;
    sp_positional positional;
    bool tied_embeddings;
    bool bias; // on every linear layer
    // On the QKV projection (Qwen2), on that behind the attention, on MLPs and experts: implied by
    // bias.
    bool qkv_bias, output_bias, mlp_bias;
    bool router_bias, head_bias; // on the router; on the LM head (Phi-3.5-MoE)
    bool attention_sinks;        // a number for each query head that its softmax adds (gpt-oss)
    bool qk_norm;                // norm of each head's q and k (Qwen3)
    bool qk_norm_whole;          // of all heads at once (OLMoE)
    bool post_norms;             // norms behind attention and MLP, too (Gemma 2)
    bool post_norms_alone;       // and none of what they read (OLMo 2)
    sp_blocks blocks;
    bool soft_caps; // of attention scores: read, and warned of
    sp_dropout dropout;
    char ignored_dropout[SP_MODEL_KEY]; // key of a config.json that asks for more; "": none
    // Keys of a config.json: of what stands beside a text model, and of what nothing reads that may
    // be something the model has; "": none.
    char ignored_parts[SP_MODEL_KEYS], ignored_keys[SP_MODEL_KEYS];
    sp_stored_dtype stored_dtype;
    // Latent attention (MLA, DeepSeek-V2): ranks of the latents of queries (0: none) and of keys
    // and values (0: no latent attention), and the parts of a head, of queries and keys one that
    // the position does not turn and one that it does, which all keys share.
    int64_t q_lora_rank, kv_lora_rank;
    int64_t qk_nope_dim, qk_rope_dim, v_head_dim;
    // Low-rank adapters (Hu et al., LoRA, arXiv 2106.09685): r of each; 0: all parameters are
    // trained, else adapters alone. Their dropout keeps a copy of what each reads, and a mask.
    int64_t lora_rank;
    sp_lora_targets lora_targets;
    bool lora_dropout;
    sp_frozen_weights frozen_weights; // of the products beside adapters; all else is BF16
    int mtp_layers; // that predict further tokens, on the last stage, alike the last layer
    int experts;    // as ffn
    int experts_per_token;
    // Experts of a layer in so many groups of neighbours, of which a token's lie in so many at most
    // (DeepSeek-V2, arXiv 2405.04434, section 2.2.2); 0: anywhere.
    int expert_groups, expert_group_top_k;
    // Width of what experts read and give, a projection of hidden states before tokens go to them
    // and one behind (LatentMoE); 0: hidden states.
    int64_t expert_latent;
    int64_t shared_ffn;
    bool shared_gate;
    // Tokens go to experts as Megatron-LM's forced routing sends them (sim/cost/expert_load.h),
    // with biases of that standard deviation and draws of that seed; else evenly, each expert as
    // many.
    bool forced_routing;
    double expert_imbalance;
    int64_t expert_imbalance_seed;
    // Every expert gets so many times its even share of each rank's tokens, rows without a token
    // among them (drop and pad); 0: the tokens that choose it.
    double expert_capacity_factor;
    // Layers in the order of the model, again and again up to their number; 0 runs: all alike.
    int kinds, runs;
    sp_layer_mlp kind[SP_LAYER_KINDS];
    sp_layer_run run[SP_LAYER_RUNS];
} sp_model;

// Built-in shapes, by name ("llama-13b"). An unknown name is a content error with the nearest name.
sp_status sp_model_builtin(const char *name, sp_model *model, sp_error *err);
int sp_model_builtin_count(void);
const char *sp_model_builtin_name(int index); // NULL past the last
// The name that differs from `word` in case, hyphens and underscores at most ("llama3-70B"),
// also with an owner in front ("meta-llama/Llama-3-70B"); NULL: none.
const char *sp_model_builtin_meant(const char *word);

// The model that a name stands for: the config.json at that path or in the folder of that path,
// else a built-in model. *known false: there is none, and no folder.
SP_API sp_status sp_model_named(const char *name, sp_model *model, bool *known, sp_error *err);
// Is it the path of a file, or of a folder that holds a config.json?
bool sp_model_is_there(const char *path);

// Reads a Hugging Face config.json of one of the families of hf_families.c; keys that are not read
// are named in the model, missing ones take the architecture's defaults.
sp_status sp_model_read_hf(const char *path, sp_model *model, sp_error *err);
// A config.json that is parsed already; `source` names it in messages.
sp_status sp_model_from_hf(const json_t *config, const char *source, sp_model *model,
                           sp_error *err);

// The model_type of the families that are read, NULL past the last.
const char *sp_model_hf_kind(int index);

// The `model` object of a scenario. Ends and checks the object; errors are
// collected in object->err.
void sp_model_from_object(sp_object *object, sp_model *model);

// A model as a document, every key stated.
json_t *sp_model_to_json(const sp_model *model);

// Checks that the numbers make a transformer (heads divide, kv_heads divide heads, ...). `source`
// and `path` name the place in messages.
sp_status sp_model_check(const sp_model *model, const char *source, const char *path,
                         sp_error *err);

// Has the MLP a gate beside what it lets through?
static inline bool sp_model_is_gated(const sp_model *model)
{
    return model->activation == SP_SWIGLU || model->activation == SP_GEGLU;
}

// ---- Kinds of layers ----

// At least 1.
static inline int sp_model_kinds(const sp_model *model)
{
    return model->runs > 0 ? model->kinds : 1;
}
// With those that predict further tokens (multi-token prediction, DeepSeek-V3, arXiv 2412.19437,
// section 2.2), which stand behind the others.
static inline int sp_model_all_layers(const sp_model *model)
{
    return model->layers + model->mtp_layers;
}
// Gives the model its kinds and runs from those of its layers, [layers]: the shortest order that
// repeats. False: there are more than a model may have.
bool sp_model_set_kinds(sp_model *model, const sp_layer_mlp *of_layer);
// The kind of a layer, counted from 0. O(runs).
int sp_model_kind_of(const sp_model *model, int layer);
// How many of `layers` layers from `first` on are of each kind. O(runs).
void sp_model_count_kinds(const sp_model *model, int first, int layers, int count[SP_LAYER_KINDS]);
// The model that has such layers alone: itself where all are alike, else *space.
const sp_model *sp_model_of_kind(const sp_model *model, int kind, sp_model *space);
// The most experts of a layer; 0: all MLPs are dense.
int sp_model_most_experts(const sp_model *model);
// Has an expert less room than its even share, so that rows are dropped whatever the routing?
static inline bool sp_model_drops_rows(const sp_model *model)
{
    return model->expert_capacity_factor > 0.0 && model->expert_capacity_factor < 1.0;
}
// The widest shared experts of a layer; 0: no layer has any.
int64_t sp_model_most_shared(const sp_model *model);
// The shortest window or chunk of a layer: samples that are no longer see all tokens; 0: all do.
int64_t sp_model_least_seen(const sp_model *model);
// From now on layers that see no fewer than the `longest` tokens of a sample see all.
void sp_model_drop_seen(sp_model *model, int64_t longest);
// Do layers of the two kinds see the same tokens?
bool sp_model_sees_alike(const sp_model *model, int kind, int other);

// ---- Layers with a state ----

static inline bool sp_mixer_has_state(sp_mixer mixer)
{
    return mixer == SP_MIXER_MAMBA2 || mixer == SP_MIXER_GATED_DELTA;
}
// Has a layer of the model a state?
bool sp_model_has_state(const sp_model *model);
// Has a layer attention, or what stands in its place, or an MLP alone?
bool sp_model_lacks_blocks(const sp_model *model);
// The share of all layers that have attention; 1 of most models.
double sp_model_attending_share(const sp_model *model);
// Do all layers attend to all tokens before?
bool sp_model_sees_all(const sp_model *model);
// FLOPs that a token takes in a layer beside its products, forward: the convolution, and the state
// as recurrent: 7 for each of its elements with Mamba-2, 4 with gated DeltaNet. 0: the layer has no
// state. (Megatron-LM counts the same, training/training.py.)
double sp_model_state_flops_per_token(const sp_model *alike);

// ---- Attention ----

static inline bool sp_model_is_latent(const sp_model *model)
{
    return model->kv_lora_rank > 0;
}
// Features of a head of the values, and of those of queries and keys that rotary positions turn.
static inline int64_t sp_model_v_dim(const sp_model *model)
{
    return sp_model_is_latent(model) ? model->v_head_dim : model->head_dim;
}
static inline int64_t sp_model_rotary_dim(const sp_model *model)
{
    return sp_model_is_latent(model) ? model->qk_rope_dim : model->head_dim;
}
// Features of a head that the products of an attention pass over a (query, key) pair take: forward
// 2 products, QK^T and PV; backward dP, dV, dQ and dK, with flash attention QK^T again. Those with
// queries or keys are half of them, or one more.
static inline int64_t sp_model_pair_features(const sp_model *model, int products)
{
    return (products + 1) / 2 * model->head_dim + products / 2 * sp_model_v_dim(model);
}

// Are all parameters frozen but those of adapters?
static inline bool sp_model_is_frozen(const sp_model *model)
{
    return model->lora_rank > 0;
}

// ---- Counts ----

// Parameters, exact: equal to the published counts where they exist. With those of adapters, and
// those that are trained: adapters alone where there are any.
int64_t sp_model_parameters(const sp_model *model);
int64_t sp_model_trained_parameters(const sp_model *model);
// What a further predicted token has beside its layer: a projection of 2h to h and three norms.
int64_t sp_model_mtp_parameters(const sp_model *model);
// One layer, all experts, norms, biases; of several kinds the mean, rounded down.
int64_t sp_model_layer_parameters(const sp_model *model);
int64_t sp_model_norm_parameters(const sp_model *model); // a norm of hidden states
// Features of the norms of queries and of keys, which all TP ranks have whole.
static inline int64_t sp_model_query_norm(const sp_model *model)
{
    return (model->qk_norm_whole ? model->heads : 1) * model->head_dim;
}
static inline int64_t sp_model_key_norm(const sp_model *model)
{
    return (model->qk_norm_whole ? model->kv_heads : 1) * model->head_dim;
}
int64_t sp_model_embedding_parameters(const sp_model *model); // token (and learned position) table

// Twice the (query, key) pairs of tokens [begin, begin + tokens) of a sample and what they see; of
// several kinds of layers the mean over all layers. A row that sees all tokens up to its own counts
// half of its own, as causal pairs do (l*o + l*l/2), a row behind a window of w tokens w: those of
// n > w tokens are n*w - w*w/2, those of a chunk of c tokens c*c/2. O(runs).
double sp_model_pairs2(const sp_model *model, double begin, double tokens);

// FLOPs (multiply and add counted as two) of a forward pass of the whole model over `tokens` tokens
// whose attention covers pairs2/2 (query, key) pairs (sp_model_pairs2). pairs2 is twice the pair
// count so that the causal count of a slice, l*o + l*l/2, is exact: 2*l*o + l*l. Linear part: 2
// FLOPs per weight and token (head included, routers not, embedding not); attention: 4*a*d per
// pair, with latents 2*a*(d + v) (QK^T and PV; Korthikanti et al., arXiv 2205.05198, appendix A
// counts the same with s^2 pairs).
double sp_model_forward_flops(const sp_model *model, double tokens, double pairs2);
// Of a forward and its backward without recomputation: three times as many, but for the weight
// gradients that frozen weights have not.
double sp_model_step_flops(const sp_model *model, double tokens, double pairs2);
// One layer; of several kinds the mean.
double sp_model_layer_linear_flops_per_token(const sp_model *model);
double sp_model_attention_flops_per_pair(const sp_model *model); // one layer

// Largest sizes that are read: every parameter count then fits int64_t (3*h*f*experts*layers is
// below 2^62.6), and 16 bytes for each of at most 2^50 parameters do as well.
enum {
    SP_I_MAX_IMBALANCE = 4, // biases beyond make one rank hold all that it may
    SP_I_MAX_LAYERS = 1 << 12,
    SP_I_MAX_MTP_LAYERS = 4,
    SP_I_MAX_HIDDEN = 1 << 18,
    SP_I_MAX_FFN = 1 << 21,
    SP_I_MAX_HEADS = 1 << 12,
    SP_I_MAX_HEAD_DIM = 1 << 12,
    SP_I_MAX_VOCAB = 1 << 27,
    SP_I_MAX_POSITIONS = 1 << 27,
    SP_I_MAX_LORA_RANK = 1 << 12,
    SP_I_MAX_EXPERTS = 1 << 10,
    SP_I_MAX_STATE_CONV = 64
};

#define SP_I_MAX_PARAMETERS (INT64_C(1) << 50)

#endif
