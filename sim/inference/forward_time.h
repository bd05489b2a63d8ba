// Time and memory of one forward of a model that generates text: few tokens, many earlier ones.
// Operators and rates are those of a training step's forward (sim/model/inventory.h,
// sim/cost/op_time.h): a GEMM of few rows takes the time to read its weights, once for all rows; of
// experts those that the rows are expected to be routed to, if each is as likely as the others.
#ifndef SLIMPACK_SIM_INFERENCE_FORWARD_TIME_H
#define SLIMPACK_SIM_INFERENCE_FORWARD_TIME_H

#include "sim/cost/op_time.h"
#include "sim/model/inventory.h"

enum { SP_FORWARD_ROWS = 512 }; // forwards of fewer rows are priced once

// The tokens of one forward, of all sequences together.
typedef struct sp_forward {
    double rows;      // tokens that are fed
    double kv_tokens; // earlier tokens, whose keys and values are read once
    double pairs;     // of a token and one that it attends to
} sp_forward;

typedef struct sp_forward_pricer {
    sp_op_timer timer;
    sp_stack stack;
    sp_model model;
    sp_layout layout;
    sp_group tp;
    int boundaries[2]; // between pipeline ranks of one node, and of two
    sp_inventory layer[SP_LAYER_KINDS], embedding, head;
    double token_s[SP_FORWARD_ROWS]; // what depends on the rows alone; 0: not asked for yet
} sp_forward_pricer;

// A model over layout.tp x layout.pp GPUs; pipeline ranks work one after the other. `profile` and
// `cluster` must outlive the pricer.
void sp_forward_pricer_init(sp_forward_pricer *pricer, const sp_profile *profile,
                            const sp_cluster *cluster, const sp_stack *stack, const sp_model *model,
                            const sp_layout *layout);

// Seconds from the tokens to their logits. Attention takes as long as its keys and values take to
// be read from memory, or as its FLOPs at the best rate of a GEMM where that is longer.
double sp_forward_s(sp_forward_pricer *pricer, const sp_forward *forward);

// Bytes of the keys and values of a token in one layer, on one of the tensor-parallel ranks.
int64_t sp_kv_bytes(const sp_model *model, const sp_layout *layout);

enum { SP_I_BF16_BYTES = 2 };

// A GPU holds parameters, and keys and values, of a model that reads or generates text: bytes in
// bf16.
typedef struct sp_i_held {
    int64_t parameters, kv_cache;
} sp_i_held;

// The bytes that one tensor-parallel rank of pipeline rank `pp` holds, with keys and values of so
// many tokens.
// `stages` are all of the model (sp_layout_stages()).
sp_i_held sp_i_held_by(const sp_model *model, const sp_layout *layout, const sp_stage *stages,
                       int pp, int64_t tokens);

static inline int64_t sp_i_held_bytes(const sp_i_held *held)
{
    return held->parameters + held->kv_cache;
}

#endif
