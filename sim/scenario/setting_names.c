// What a name means that people write for a setting: its key, the last part of it, what other
// frameworks call it, with the values that they have, or something that is not modelled.
#include <string.h>

#include "sim/scenario/scenario.h"
#include "sim/scenario/scenario_private.h"

static const char other_precisions[] =
    "other precisions than BF16 and FP8 (precision) are not modelled";

// Names that others set and nothing here stands for, some in one section alone. A hint at the
// setting spelt most alike, or at one of another matter, would change something else. `modelled`
// are values that say what is modelled anyway.
static const struct {
    const char *names, *why, *modelled;
} missing[] = {
    {"moe_router_force_load_balancing", "it is model.expert_imbalance 0", "false"},
    {"moe_pad_expert_input_to_capacity",
     "experts with a model.expert_capacity_factor are always padded to it", "true"},
    {"parallel.expert parallel.experts parallel.num_experts parallel.moe parallel.moe_parallel",
     "expert-parallel ranks are parallel.ep, the experts of a layer model.experts", ""},
    {"data_parallel_replicate_degree dp_replicate num_distributed_optimizer_instances",
     "a number of copies of the states is not read: state the ranks that split them, "
     "parallel.zero_group, which is dp x cp over that number",
     "1"},
    {"hsdp dp_shard data_parallel_shard_degree",
     "parameters split over some of the ranks are parallel.zero 3 with parallel.zero_group, the "
     "ranks that split them, of all parallel.dp x cp",
     ""},
    {"mixed_precision dtype torch_dtype", other_precisions,
     "bf16 bfloat16 torch.bfloat16 bf16_mixed bf16_true amp_bf16"},
    {"bf16", other_precisions, "true 1"},
    {"fp16 fp32", other_precisions, "false 0"},
    {"multi_latent_attention", "latent attention (MLA) is asked for by model.kv_lora_rank",
     "none false"},
    {"num_shared_experts n_shared_experts",
     "model.shared_ffn is the width of all shared experts together", "0 none"},
    {"moe_layer_freq first_k_dense_replace mlp_only_layers decoder_sparse_step",
     "which layers have experts is said by model.layer_kinds", ""},
    {"load_in_4bit bnb_4bit_quant_type",
     "it is model.frozen_weights \"4bit\", beside model.lora_rank", "none false"},
    {"bnb_4bit_use_double_quant use_bnb_nested_quant",
     "it is model.frozen_weights \"4bit-double\", beside model.lora_rank", "none false"},
    {"quantization_config quantization quantize quant_method compression_config load_in_8bit",
     "quantized weights are modelled of QLoRA alone, by model.frozen_weights", "none false"},
    {"offload_optimizer", "it is memory.offload_states, with the ratio of DeepSpeed's, 1 for all",
     "none false"},
    {"offload_param offload_params cpu_offload fsdp_offload",
     "parameters on the host are not modelled; memory.offload_states is of the optimizer, "
     "memory.offload_ratio of activations",
     "none false"},
    {"loss_parallel enable_loss_parallel",
     "it is the opposite of stack.gathered_logits; parallel.vocab_parallel is over pipeline ranks",
     "true"},
    {"recompute_num_layers recompute_method selective_ac_option",
     "memory.recompute holds for all layers", "none"},
    {"reset_attention_mask", "with strategy concat it is the opposite of strategy.attention_across",
     ""},
    {"untie_embeddings_and_output_weights", "it is the opposite of model.tied_embeddings", ""},
    {"disable_bias_linear", "it is the opposite of model.bias", ""},
    {"ddp_bucket_size bucket_size reduce_bucket_size allgather_bucket_size",
     "it is a number of gradients; stack.bucket_mib is in MiB", ""},
    {"world_size num_gpus", "the GPUs are parallel.tp x cp x pp x dp, or what nodes hold", ""},
    {"optimizer optim adam_8bit adamw_8bit",
     "other optimizers than Adam are not modelled; stack.moment_bytes and "
     "stack.no_master_weights are of its states",
     "adam adamw adamw_torch adamw_torch_fused fused_adam fusedadam"},
    {"use_liger_kernel use_liger liger fused_linear_cross_entropy",
     "a loss by chunks is stack.loss_chunks, norms and SwiGLU as kernels are stack.unfused_norms "
     "and stack.fused_swiglu",
     "false"},
    {"padding_free",
     "rows of packed documents have no padding; rows that have are strategy \"padded\"", "true"},
    {"fsdp", "it is parallel.zero 3, with stack \"fsdp-2024\" or \"fsdp2-2025\"", ""},
    {"ulysses ulysses_sequence_parallel_size", "it is parallel.cp with stack.cp_overlap \"a2a\"",
     "1 false none"},
    {"sp", "Megatron's is parallel.sequence_parallel, that of Ulysses parallel.cp", ""},
};

// By its last part or, in one section alone, by all of it; perhaps as an option.
static bool is_named_so(const char *names, const char *name)
{
    const char *path = name + (strncmp(name, "--", 2) == 0 ? 2 : 0);
    return sp_names_hold(names, path) || sp_names_hold(names, sp_setting_leaf(path));
}

bool sp_setting_is_modelled(const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++) {
        if (is_named_so(missing[i].names, name)) {
            return value[0] == '\0' || sp_names_hold(missing[i].modelled, value);
        }
    }
    return false;
}

const char *sp_setting_missing(const char *name)
{
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++) {
        if (is_named_so(missing[i].names, name)) {
            return missing[i].why;
        }
    }
    return NULL;
}

// Values that others write under names of theirs, each with what it is here; NULL: it leaves open
// what that is. "*" is any other value, which else is read as it stands.
enum { MOST_FOREIGN_VALUES = 10 };

static const struct {
    const char *names;
    const char *values[MOST_FOREIGN_VALUES][2];
    const char *expected; // in place of what leaves open
} foreign[] = {
    {.names = "gradient_checkpointing activation_checkpointing activation_checkpoint",
     .values = {{"true", "full"}, {"false", "none"}}},
    {.names = "recompute_activations", .values = {{"true", "attention"}, {"false", "none"}}},
    {.names = "use_distributed_optimizer distributed_optimizer",
     .values = {{"true", "1"}, {"false", "0"}, {"*", NULL}},
     .expected = "true or false (the stage of ZeRO is parallel.zero)"},
    {.names = "grad_reduce_in_fp32 accumulate_allreduce_grads_in_fp32",
     .values = {{"true", "fp32"}, {"false", "bf16"}, {"*", NULL}},
     .expected = "true or false"},
    {.names = "grad_reduce_in_bf16",
     .values = {{"true", "bf16"}, {"false", "fp32"}, {"*", NULL}},
     .expected = "true or false"},
    {.names = "use_flash_attn flash_attention attention_backend attn_implementation",
     .values = {{"true", "flash"},
                {"fused", "flash"},
                {"sdpa", "flash"},
                {"flash_attention_2", "flash"},
                {"flash_attention_3", "flash"},
                {"eager", "unfused"},
                {"local", "unfused"},
                {"false", NULL},
                {"auto", NULL}},
     .expected = "\"flash\", which cuDNN's fused attention and SDPA are, too, or \"unfused\", "
                 "which keeps the scores"},
    {.names = "fp8 fp8_format", .values = {{"true", "fp8"}, {"false", "bf16"}, {"none", "bf16"}}},
    {.names = "shuffle", .values = {{"true", "shuffled"}, {"false", "file"}}},
    {.names = "packing packing_strategy",
     .values = {{"true", NULL}, {"false", NULL}, {"bfd_split", NULL}, {"wrapped", "concat"}},
     .expected = "a strategy: \"bfd\" (with workload.over_length \"split\" TRL's bfd_split), "
                 "\"packed\" or \"concat\" (joined and cut), or \"padded\" with "
                 "strategy.pad_to"},
    {.names = "optimizer_cpu_offload", .values = {{"true", "1"}, {"false", "0"}}},
    {.names = "cpu_offloading",
     .values = {{"true", NULL}, {"false", "0"}},
     .expected = "the share of the activations that is offloaded"},
    // 0.1 is Megatron-LM's default.
    {.names = "hidden_dropout attention_dropout dropout",
     .values = {{"0", "false"}, {"0.0", "false"}, {"0.1", "true"}}},
    {.names = "position_embedding_type", .values = {{"learned_absolute", "learned"}}},
    {.names = "hidden_act activation_function",
     .values = {{"silu", "swiglu"}, {"gelu_new", "gelu"}, {"gelu_fast", "gelu"}}},
    {.names = "pipeline_model_parallel_layout num_layers_in_first_pipeline_stage "
              "num_layers_in_last_pipeline_stage decoder_first_pipeline_num_layers "
              "decoder_last_pipeline_num_layers",
     .values = {{"none", ""}, {"*", NULL}},
     .expected = "\"auto\" or \"nanotron\" as parallel.stage_layers (a list, which no cell holds, "
                 "is stated in a map)"},
};

static const char *truth(const char *value, bool of_switch)
{
    bool yes = sp_same_name(value, "true") || (of_switch && sp_names_hold("1 1.0", value));
    bool no = sp_same_name(value, "false") || (of_switch && sp_names_hold("0 0.0", value));
    return yes ? "true" : no ? "false" : value;
}

const char *sp_setting_translate(const char *name, const char *value, const char **expected)
{
    const sp_setting *setting = sp_setting_find(name);
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        if (!sp_names_hold(foreign[i].names, name)) {
            continue;
        }
        const char *word = truth(value, strcmp(foreign[i].values[0][0], "true") == 0);
        for (int v = 0; v < MOST_FOREIGN_VALUES && foreign[i].values[v][0] != NULL; v++) {
            const char *theirs = foreign[i].values[v][0];
            if (strcmp(theirs, "*") == 0 || sp_same_name(theirs, word)) {
                *expected = foreign[i].expected;
                return foreign[i].values[v][1];
            }
        }
    }
    sp_setting_kind kind = setting != NULL ? setting->kind : SP_SETTING_OTHER;
    bool number = kind == SP_SETTING_INT || kind == SP_SETTING_TOKENS || kind == SP_SETTING_REAL;
    // Python's None of an argument that is not given.
    return kind == SP_SETTING_SWITCH               ? truth(value, true)
           : number && sp_same_name(value, "none") ? ""
                                                   : value;
}

static const sp_setting *by_alias(const char *name)
{
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        if (setting->aliases != NULL && sp_names_hold(setting->aliases, name)) {
            return setting;
        }
    }
    return NULL;
}

// The only setting whose key ends so; NULL where none or several do.
static const sp_setting *by_leaf(const char *name)
{
    const sp_setting *found = NULL;
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        const char *last = sp_setting_leaf(setting->key);
        if (sp_names_hold(last, name)) {
            if (found != NULL) {
                return NULL;
            }
            found = setting;
        }
    }
    return found;
}

const sp_setting *sp_setting_find(const char *name)
{
    name += strncmp(name, "--", 2) == 0 ? 2 : 0;
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        if (strcmp(setting->key, name) == 0) {
            return setting;
        }
    }
    const sp_setting *found = by_leaf(name);
    return found != NULL ? found : by_alias(name);
}

static size_t length_apart(const char *a, const char *b)
{
    size_t m = strlen(a);
    size_t n = strlen(b);
    return m > n ? m - n : n - m;
}

const char *sp_setting_near(const char *name)
{
    const char *keys[SP_I_MOST_SETTINGS];
    bool whole = strchr(name, '.') != NULL;
    int count = 0;
    for (const sp_setting *setting; (setting = sp_setting_at(count)) != NULL; count++) {
        keys[count] = whole ? setting->key : sp_setting_leaf(setting->key);
    }
    const char *near = sp_nearest_name(name, keys, count);
    // In another section that letters are lost or swapped is no more likely than another word.
    if (near != NULL && !whole &&
        (near[0] != name[0] || length_apart(near, name) > (strlen(name) > 5 ? 2 : 1))) {
        return NULL;
    }
    // Where several keys end so the workload's is meant: "seed" is rather its than that of jitter.
    const char *key = NULL;
    for (int i = 0; near != NULL && i < count; i++) {
        const char *other = sp_setting_at(i)->key;
        if (keys[i] == near ||
            (strcmp(keys[i], near) == 0 && strncmp(other, "workload.", 9) == 0)) {
            key = other;
        }
    }
    return key;
}

const char *sp_setting_meant(const char *key)
{
    const sp_setting *found = by_alias(key);
    found = found != NULL ? found : by_leaf(key);
    return found != NULL ? found->key : NULL;
}

static bool has_value(const sp_setting *setting, const char *text)
{
    const char *value = NULL;
    for (int i = 0; (value = sp_setting_value(setting, i)) != NULL; i++) {
        if (strcmp(value, text) == 0) {
            return true;
        }
    }
    return false;
}

const char *sp_setting_held(const char *section, const char *text)
{
    const char *held = NULL;
    size_t length = strlen(section);
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        const char *last = sp_setting_leaf(setting->key);
        if (sp_setting_section(setting->key) != length ||
            strncmp(setting->key, section, length) != 0) {
            continue;
        }
        if (has_value(setting, text)) {
            return setting->key;
        }
        if (strcmp(last, "kind") == 0 || strcmp(last, "name") == 0) {
            held = setting->key;
        }
    }
    return held;
}
