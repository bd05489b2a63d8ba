// Initializers of the models that tests build: a Llama (SwiGLU, RMSNorm, rotary positions) and a
// GPT (GELU, LayerNorm, learned positions), whose head size is the hidden size over the heads.
#ifndef SLIMPACK_TESTS_SUPPORT_MODEL_SHAPE_H
#define SLIMPACK_TESTS_SUPPORT_MODEL_SHAPE_H

#include "sim/model/model.h"

#define MODEL_SIZES(layers_, hidden_, ffn_, heads_, kv_heads_, vocab_)          \
    .layers = (layers_), .hidden = (hidden_), .ffn = (ffn_), .heads = (heads_), \
    .kv_heads = (kv_heads_), .head_dim = (hidden_) / (heads_), .vocab = (vocab_)

#define LLAMA_SHAPE(layers, hidden, ffn, heads, kv_heads, vocab_) \
    MODEL_SIZES(layers, hidden, ffn, heads, kv_heads, vocab_),    \
        .activation = SP_SWIGLU, .norm = SP_RMSNORM, .positional = SP_ROPE

#define GPT_SHAPE(layers, hidden, ffn, heads, vocab_)       \
    MODEL_SIZES(layers, hidden, ffn, heads, heads, vocab_), \
        .activation = SP_GELU, .norm = SP_LAYERNORM, .positional = SP_LEARNED

#endif
