// What a name means: a key, its last part, or what others call it.
#include <ctype.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/scenario/scenario_private.h"
#include "sim/scenario/settings.h"

static const char *last_part(const char *key)
{
    size_t section = sp_setting_section(key);
    return section > 0 ? key + section + 1 : key;
}

// The first `length` bytes of a as b, in any case and with hyphens for underscores.
static bool alike(const char *a, size_t length, const char *b)
{
    for (size_t i = 0; i < length; i++) {
        int x = a[i] == '-' ? '_' : tolower((unsigned char)a[i]);
        int y = b[i] == '-' ? '_' : tolower((unsigned char)b[i]);
        if (x != y) {
            return false;
        }
    }
    return b[length] == '\0';
}

static bool holds_name(const char *names, const char *name)
{
    while (*names != '\0') {
        size_t length = strcspn(names, " ");
        if (alike(names, length, name)) {
            return true;
        }
        names += length + (names[length] == ' ');
    }
    return false;
}

// Names that others set and nothing here stands for. A hint at the setting spelt most alike, or at
// one of another matter, would change something else.
static const struct {
    const char *names, *why;
} missing[] = {
    {"ep etp ep_size expert_parallel expert_parallel_size expert_model_parallel_size "
     "expert_tensor_parallel_size expert_parallel_degree moe_ep_size moe_tp_size dispatcher "
     "moe_token_dispatcher_type expert_overlap expert_imbalance",
     "expert parallelism is not modelled, every rank holds all experts of its layers"},
    {"zero_group hsdp data_parallel_replicate_degree data_parallel_shard_degree dp_replicate "
     "dp_shard num_distributed_optimizer_instances",
     "states sharded over a part of the dp x cp ranks are not modelled"},
    {"precision mixed_precision fp8 fp8_format fp8_recipe dtype torch_dtype",
     "other precisions than BF16 are not modelled"},
    {"mtp_num_layers num_nextn_predict_layers",
     "layers that predict further tokens are not modelled"},
    {"sliding_window window_size attention_chunk_size",
     "attention over a window is not modelled where samples are longer (model.window_tokens)"},
    {"kv_lora_rank q_lora_rank multi_latent_attention", "latent attention (MLA) is not modelled"},
    {"num_shared_experts n_shared_experts moe_shared_expert_intermediate_size moe_layer_freq "
     "first_k_dense_replace",
     "shared experts, and dense layers beside those with experts, are not modelled"},
    {"quantization_config quantization quantize quant_method compression_config load_in_4bit "
     "load_in_8bit",
     "quantized weights are not modelled"},
    {"optimizer_cpu_offload offload_optimizer offload_param offload_params cpu_offload "
     "fsdp_offload",
     "states and parameters on the host are not modelled; memory.offload_ratio is of activations"},
    {"loss_parallel enable_loss_parallel",
     "the ranks of parallel.tp always share the logits; parallel.vocab_parallel is over pipeline "
     "ranks"},
    {"recompute_num_layers recompute_method recompute_modules selective_ac_option",
     "memory.recompute holds for all layers"},
    {"reset_attention_mask",
     "with strategy concat it is the opposite of strategy.attention_across"},
    {"untie_embeddings_and_output_weights", "it is the opposite of model.tied_embeddings"},
    {"disable_bias_linear", "it is the opposite of model.bias"},
    {"ddp_bucket_size bucket_size reduce_bucket_size allgather_bucket_size",
     "it is a number of gradients; stack.bucket_mib is in MiB"},
    {"world_size num_gpus", "the GPUs are parallel.tp x cp x pp x dp, or what nodes hold"},
    {"optimizer", "other optimizers than Adam are not modelled"},
    {"sp", "Megatron's is parallel.sequence_parallel, that of Ulysses parallel.cp"},
};

const char *sp_setting_missing(const char *name)
{
    name += strncmp(name, "--", 2) == 0 ? 2 : 0;
    const char *dot = strrchr(name, '.');
    name = dot != NULL ? dot + 1 : name;
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++) {
        if (holds_name(missing[i].names, name)) {
            return missing[i].why;
        }
    }
    return NULL;
}

static const sp_setting *by_alias(const char *name)
{
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        if (setting->aliases != NULL && holds_name(setting->aliases, name)) {
            return setting;
        }
    }
    return NULL;
}

// The only setting whose key ends so; NULL where none or several do.
static const sp_setting *by_last_part(const char *name)
{
    const sp_setting *found = NULL;
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        const char *last = last_part(setting->key);
        if (alike(last, strlen(last), name)) {
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
    const sp_setting *found = by_last_part(name);
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
        keys[count] = whole ? setting->key : last_part(setting->key);
    }
    const char *near = sp_nearest_name(name, keys, count);
    // In another section that letters are lost or swapped is no more likely than another word.
    if (near != NULL && !whole &&
        (near[0] != name[0] || length_apart(near, name) > (strlen(name) > 5 ? 2 : 1))) {
        return NULL;
    }
    // Of several keys that end so the workload's: "seed" is rather its than that of jitter.
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
    found = found != NULL ? found : by_last_part(key);
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
        const char *last = last_part(setting->key);
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
