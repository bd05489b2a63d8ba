// Parts of initializers that tests share.
#ifndef SLIMPACK_TESTS_SUPPORT_INITIALIZERS_H
#define SLIMPACK_TESTS_SUPPORT_INITIALIZERS_H

#include "backends/api/backend.h"
#include "sim/model/model.h"

// Models: a Llama (SwiGLU, RMSNorm, rotary positions) and a GPT (GELU, LayerNorm, learned
// positions), whose head size is the hidden size over the heads.
#define MODEL_SIZES(layers_, hidden_, ffn_, heads_, kv_heads_, vocab_)          \
    .layers = (layers_), .hidden = (hidden_), .ffn = (ffn_), .heads = (heads_), \
    .kv_heads = (kv_heads_), .head_dim = (hidden_) / (heads_), .vocab = (vocab_)

#define LLAMA_SHAPE(layers, hidden, ffn, heads, kv_heads, vocab_) \
    MODEL_SIZES(layers, hidden, ffn, heads, kv_heads, vocab_),    \
        .activation = SP_SWIGLU, .norm = SP_RMSNORM, .positional = SP_ROPE

#define GPT_SHAPE(layers, hidden, ffn, heads, vocab_)       \
    MODEL_SIZES(layers, hidden, ffn, heads, heads, vocab_), \
        .activation = SP_GELU, .norm = SP_LAYERNORM, .positional = SP_LEARNED

#define LAYOUT(tp_, cp_, pp_, dp_, chunks_) \
    .tp = (tp_), .cp = (cp_), .pp = (pp_), .dp = (dp_), .chunks = (chunks_)

#define ADAMW_SETTINGS \
    .learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1

// Runs of a plan, in numbers of `precision` from `seed`, and their options.
#define RUN_OF(plan_, model_, memory_) .plan = (plan_), .model = (model_), .memory = (memory_)
#define RUN_STEPS(precision_, seed_, steps_) \
    .precision = (precision_), .seed = (seed_), .steps = (steps_)
#define RUN_OPTIONS(options_, count_) .options = (options_), .option_count = (count_)

#endif
