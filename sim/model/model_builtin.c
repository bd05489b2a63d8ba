#include <stdio.h>
#include <string.h>

#include "sim/model/model.h"

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
        .positional = SP_LEARNED, .tied_embeddings = true, .bias = true, .qkv_bias = true          \
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
    // Megatron-LM, arXiv 2104.04473, table 1.
    GPT("gpt-3.6b", 30, 3072, 32),
    GPT("gpt-18.4b", 40, 6144, 48),
    GPT("gpt-39.1b", 48, 8192, 64),
    // GPT-3, arXiv 2005.14165, table 2.1.
    GPT("gpt-175b", 96, 12288, 96),
    GPT("gpt3-6.7b", 32, 4096, 32),
    // The same, but that its width of 5140 is not 40 heads of 128, and 5120 is.
    GPT("gpt3-13b", 40, 5120, 40),
};

enum { BUILTINS = sizeof builtin / sizeof builtin[0] };

int sp_model_builtin_count(void)
{
    return BUILTINS;
}

const char *sp_model_builtin_name(int index)
{
    return index >= 0 && index < BUILTINS ? builtin[index].name : NULL;
}

sp_status sp_model_builtin(const char *name, sp_model *model, sp_error *err)
{
    const char *names[BUILTINS];
    for (int i = 0; i < BUILTINS; i++) {
        names[i] = builtin[i].name;
        if (strcmp(names[i], name) == 0) {
            *model = builtin[i];
            return SP_OK;
        }
    }
    const char *near = sp_nearest_name(name, names, BUILTINS);
    if (near != NULL) {
        return sp_error_set(err, SP_ERR_CONTENT, "unknown model '%.64s' (did you mean '%s'?)", name,
                            near);
    }
    return sp_error_set(err, SP_ERR_CONTENT, "unknown model '%.64s'", name);
}
