// A transformer layer as one list of operations and one table of the tensors that they write. The
// forward runs the list in order, the input gradient in reverse, a recomputation the operations
// that it repeats (recompute.h). FLOPs and operators (inventory.h),
// saved tensors (saved_tensors.h), the allocator's program (tensor_program.h) and peaks of
// hand-written passes (explicit_unit.h) follow from it.
#ifndef SLIMPACK_SIM_MODEL_LAYER_H
#define SLIMPACK_SIM_MODEL_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/model/layout.h"
#include "sim/model/model.h"
#include "sim/model/parameter_list.h"
#include "sim/model/stack.h"

typedef enum sp_attention { SP_ATTENTION_FLASH, SP_ATTENTION_UNFUSED } sp_attention;
typedef enum sp_part { SP_PART_LAYER, SP_PART_EMBEDDING, SP_PART_HEAD } sp_part;
enum { SP_PARTS = SP_PART_HEAD + 1 };

// Bits, so that what a backward repeats is a set of them.
typedef enum sp_layer_operation {
    SP_LAYER_NORM1 = 1 << 0,
    // From hidden states, or from their latents with the norms of these; with the element-wise work
    // on queries and keys.
    SP_LAYER_QKV = 1 << 1,
    SP_LAYER_CORE = 1 << 2,
    SP_LAYER_OUTPUT = 1 << 3,
    SP_LAYER_RESIDUAL1 = 1 << 4,
    SP_LAYER_NORM2 = 1 << 5,
    SP_LAYER_ROUTER = 1 << 6,
    SP_LAYER_PERMUTATION = 1 << 7, // rows are copied to their experts
    SP_LAYER_FC1 = 1 << 8,
    SP_LAYER_ACTIVATION = 1 << 9,
    SP_LAYER_FC2 = 1 << 10,
    SP_LAYER_RESIDUAL2 = 1 << 11,
    SP_LAYER_LATENT = 1 << 12, // hidden states to the latents of queries, and of keys and values
    SP_LAYER_STATE = 1 << 13,  // a state in place of attention, with its projections
    SP_LAYER_SHARED_GATE = 1 << 14, // of shared experts
    SP_LAYER_SHARED_FC1 = 1 << 15,
    SP_LAYER_SHARED_ACTIVATION = 1 << 16,
    SP_LAYER_SHARED_FC2 = 1 << 17,
    SP_LAYER_SHARED = SP_LAYER_SHARED_GATE | SP_LAYER_SHARED_FC1 | SP_LAYER_SHARED_ACTIVATION |
                      SP_LAYER_SHARED_FC2,
    // No operation: the MLP is one function that makes again what it reads and holds that to its
    // end (kwai/Megatron-Kwai).
    SP_LAYER_JOINED = 1 << 18,
    SP_LAYER_ALL = (1 << 19) - 1
} sp_layer_operation;

// How one step of the list works, forward and backward.
typedef enum sp_layer_kind {
    SP_LAYER_KIND_NORM,
    SP_LAYER_KIND_GATHER, // entry of a tensor-parallel block; backward a reduction
    SP_LAYER_KIND_LINEAR,
    SP_LAYER_KIND_ELEMENTWISE, // of queries and keys
    SP_LAYER_KIND_ATTENTION,   // with the exchange over CP
    SP_LAYER_KIND_GATE,        // of the attention's output
    SP_LAYER_KIND_STATE,       // convolution, state and gated norm
    SP_LAYER_KIND_REDUCE,      // exit of a tensor-parallel block; backward a gather
    SP_LAYER_KIND_RESIDUAL,
    SP_LAYER_KIND_PERMUTATION, // to experts
    SP_LAYER_KIND_SUM,         // of routed and shared experts, these behind their gate
    SP_LAYER_KIND_DISPATCH,    // to experts on other ranks; backward a combination
    SP_LAYER_KIND_COMBINE,     // of what they give; backward a dispatch
    SP_LAYER_KIND_ACTIVATION
} sp_layer_kind;

// The steps of the list in the order of the forward. Columns: identifier, operation that the step
// is a part of, kind, what it is called forward and backward (NULL: the pass does not run it); then
// the tensors that it reads and writes (of a reduction the mask of the dropout behind it), of
// projections and norms the weight and its widths for one expert, of gathers and reductions theirs,
// whether every TP rank has all of the weight and its share of the tokens, and the conditions under
// which the model has the step. SP_LAYER_TENSORS: the layer's output. The step of a norm stays in
// layers without it, with no work: there the backward of its block ends. Attention and MLP side by
// side read what the layer reads, or its one norm gives, and TP ranks sum their outputs once, as
// one matrix (EleutherAI/gpt-neox, megatron/model/transformer.py, gpt_j_residual); each gathers its
// input, and reduces that one's gradient, by itself. Shared experts are one dense MLP beside the
// routed one, which gathers and reduces for itself and runs before it (Megatron-LM,
// core/transformer/moe/{moe_layer,shared_experts}.py). Latent attention (DeepSeek-V2, arXiv
// 2405.04434, section 2.1, as Megatron-LM's multi_latent_attention.py runs it) gathers latents over
// TP in place of hidden states; without a latent of the queries it projects these from hidden
// states. Experts of latents (LatentMoE, moe_latent_size of Megatron-LM's moe_layer.py) read a
// projection of a TP rank's own tokens, and what they give goes through another.
#define SP_LAYER_STEP_ROWS(ROW)                                                                    \
    ROW(NORM1, NORM1, NORM, "first norm", "first norm", .reads = SP_TENSOR_INPUT,                  \
        .writes = SP_TENSOR_NORM1, .weight = SP_PARAMETER_NORM1_WEIGHT, .inputs = SP_WIDTH_HIDDEN, \
        .conditions = SP_IF_MIXER)                                                                 \
    ROW(Q_DOWN, LATENT, LINEAR, "query down-projection", "query down-projection",                  \
        .reads = SP_TENSOR_NORM1, .writes = SP_TENSOR_Q_LATENT,                                    \
        .weight = SP_PARAMETER_Q_DOWN_WEIGHT, .inputs = SP_WIDTH_HIDDEN,                           \
        .outputs = SP_WIDTH_Q_LATENT, .duplicated = true, .conditions = SP_IF_QUERY_LATENT)        \
    ROW(KV_DOWN, LATENT, LINEAR, "key and value down-projection", "key and value down-projection", \
        .reads = SP_TENSOR_NORM1, .writes = SP_TENSOR_KV_LATENT,                                   \
        .weight = SP_PARAMETER_KV_DOWN_WEIGHT, .inputs = SP_WIDTH_HIDDEN,                          \
        .outputs = SP_WIDTH_KV_DOWN, .duplicated = true, .conditions = SP_IF_LATENT)               \
    ROW(ROTARY_GATHER, LATENT, GATHER, "gather of the rotary keys",                                \
        "reduction of the rotary keys' gradient", .reads = SP_TENSOR_KV_LATENT,                    \
        .inputs = SP_WIDTH_ROTARY, .conditions = SP_IF_LATENT)                                     \
    ROW(Q_NORM, QKV, NORM, "norm of the query latent", "norm of the query latent",                 \
        .reads = SP_TENSOR_Q_LATENT, .writes = SP_TENSOR_Q_NORM,                                   \
        .weight = SP_PARAMETER_Q_LATENT_NORM_WEIGHT, .inputs = SP_WIDTH_Q_LATENT,                  \
        .conditions = SP_IF_QUERY_LATENT)                                                          \
    ROW(Q_GATHER, QKV, GATHER, "gather of the query latent",                                       \
        "reduction of the query latent's gradient", .reads = SP_TENSOR_Q_NORM,                     \
        .inputs = SP_WIDTH_Q_LATENT, .conditions = SP_IF_QUERY_LATENT)                             \
    ROW(Q_UP, QKV, LINEAR, "query up-projection", "query up-projection",                           \
        .reads = SP_TENSOR_Q_NORM, .writes = SP_TENSOR_QUERIES,                                    \
        .weight = SP_PARAMETER_Q_UP_WEIGHT, .inputs = SP_WIDTH_Q_LATENT, .outputs = SP_WIDTH_Q,    \
        .conditions = SP_IF_QUERY_LATENT)                                                          \
    ROW(KV_NORM, QKV, NORM, "norm of the key and value latent",                                    \
        "norm of the key and value latent", .reads = SP_TENSOR_KV_LATENT,                          \
        .writes = SP_TENSOR_KV_NORM, .weight = SP_PARAMETER_KV_LATENT_NORM_WEIGHT,                 \
        .inputs = SP_WIDTH_KV_LATENT, .conditions = SP_IF_LATENT)                                  \
    ROW(KV_GATHER, QKV, GATHER, "gather of the key and value latent",                              \
        "reduction of the key and value latent's gradient", .reads = SP_TENSOR_KV_NORM,            \
        .inputs = SP_WIDTH_KV_LATENT, .conditions = SP_IF_LATENT)                                  \
    ROW(KV_UP, QKV, LINEAR, "key and value up-projection", "key and value up-projection",          \
        .reads = SP_TENSOR_KV_NORM, .writes = SP_TENSOR_KEYS_VALUES,                               \
        .weight = SP_PARAMETER_KV_UP_WEIGHT, .inputs = SP_WIDTH_KV_LATENT,                         \
        .outputs = SP_WIDTH_KV_UP, .conditions = SP_IF_LATENT)                                     \
    ROW(QKV_GATHER, QKV, GATHER, "gather of the attention input",                                  \
        "reduction of the attention input's gradient", .reads = SP_TENSOR_NORM1,                   \
        .inputs = SP_WIDTH_HIDDEN, .conditions = SP_IF_QUERIES_OF_HIDDEN)                          \
    ROW(Q, QKV, LINEAR, "query projection", "query projection", .reads = SP_TENSOR_NORM1,          \
        .writes = SP_TENSOR_QUERIES, .weight = SP_PARAMETER_Q_WEIGHT, .inputs = SP_WIDTH_HIDDEN,   \
        .outputs = SP_WIDTH_Q, .conditions = SP_IF_LATENT | SP_IF_QUERIES_OF_HIDDEN)               \
    ROW(QKV, QKV, LINEAR, "QKV projection", "QKV projection", .reads = SP_TENSOR_NORM1,            \
        .writes = SP_TENSOR_QUERIES, .weight = SP_PARAMETER_QKV_WEIGHT, .inputs = SP_WIDTH_HIDDEN, \
        .outputs = SP_WIDTH_QKV, .conditions = SP_IF_JOINT_QKV)                                    \
    ROW(QKV_ELEMENTWISE, QKV, ELEMENTWISE, "element-wise work on queries and keys",                \
        "element-wise work on queries and keys", .writes = SP_TENSOR_QUERIES,                      \
        .conditions = SP_IF_ATTENTION)                                                             \
    ROW(CORE, CORE, ATTENTION, "attention", "attention", .reads = SP_TENSOR_QUERIES,               \
        .writes = SP_TENSOR_ATTENTION, .conditions = SP_IF_ATTENTION)                              \
    ROW(ATTENTION_GATE, OUTPUT, GATE, "gate of the attention output",                              \
        "gate of the attention output", .reads = SP_TENSOR_ATTENTION,                              \
        .writes = SP_TENSOR_GATED_ATTENTION, .conditions = SP_IF_ATTENTION_GATE)                   \
    ROW(OUTPUT, OUTPUT, LINEAR, "output projection", "output projection",                          \
        .reads = SP_TENSOR_ATTENTION, .writes = SP_TENSOR_RESIDUAL,                                \
        .weight = SP_PARAMETER_PROJECTION_WEIGHT, .inputs = SP_WIDTH_CONTEXT,                      \
        .outputs = SP_WIDTH_HIDDEN, .conditions = SP_IF_ATTENTION)                                 \
    ROW(STATE_GATHER, STATE, GATHER, "gather of the state's input",                                \
        "reduction of the state's input gradient", .reads = SP_TENSOR_NORM1,                       \
        .inputs = SP_WIDTH_HIDDEN, .conditions = SP_IF_STATE)                                      \
    ROW(STATE_IN, STATE, LINEAR, "projection into the state", "projection into the state",         \
        .reads = SP_TENSOR_NORM1, .writes = SP_TENSOR_STATE_INPUT,                                 \
        .weight = SP_PARAMETER_STATE_IN_WEIGHT, .inputs = SP_WIDTH_HIDDEN,                         \
        .outputs = SP_WIDTH_STATE_IN, .conditions = SP_IF_STATE)                                   \
    ROW(STATE, STATE, STATE, "convolution and state", "convolution and state",                     \
        .reads = SP_TENSOR_STATE_INPUT, .writes = SP_TENSOR_STATE_OUTPUT,                          \
        .outputs = SP_WIDTH_STATE_VALUES, .conditions = SP_IF_STATE)                               \
    ROW(STATE_OUT, STATE, LINEAR, "projection of the state's output",                              \
        "projection of the state's output", .reads = SP_TENSOR_STATE_OUTPUT,                       \
        .writes = SP_TENSOR_RESIDUAL, .weight = SP_PARAMETER_STATE_OUT_WEIGHT,                     \
        .inputs = SP_WIDTH_STATE_VALUES, .outputs = SP_WIDTH_HIDDEN, .conditions = SP_IF_STATE)    \
    ROW(OUTPUT_REDUCE, OUTPUT, REDUCE, "reduction of the attention output",                        \
        "gather of the attention output's gradient", .reads = SP_TENSOR_ATTENTION_MASK,            \
        .writes = SP_TENSOR_RESIDUAL, .outputs = SP_WIDTH_HIDDEN, .conditions = SP_IF_MIXER)       \
    ROW(RESIDUAL1, RESIDUAL1, RESIDUAL, "first residual add", "first residual add",                \
        .reads = SP_TENSOR_INPUT, .writes = SP_TENSOR_RESIDUAL,                                    \
        .conditions = SP_IF_MIXER | SP_IF_IN_TURN)                                                 \
    ROW(NORM2, NORM2, NORM, "second norm", "second norm", .reads = SP_TENSOR_RESIDUAL,             \
        .writes = SP_TENSOR_NORM2, .weight = SP_PARAMETER_NORM2_WEIGHT, .inputs = SP_WIDTH_HIDDEN, \
        .conditions = SP_IF_MLP)                                                                   \
    ROW(ROUTER, ROUTER, LINEAR, "router", "router", .reads = SP_TENSOR_NORM2,                      \
        .writes = SP_TENSOR_ROUTER, .weight = SP_PARAMETER_ROUTER_WEIGHT,                          \
        .inputs = SP_WIDTH_HIDDEN, .outputs = SP_WIDTH_EXPERTS, .duplicated = true,                \
        .conditions = SP_IF_MLP)                                                                   \
    ROW(SHARED_GATE, SHARED_GATE, LINEAR, "shared experts' gate", "shared experts' gate",          \
        .reads = SP_TENSOR_NORM2, .writes = SP_TENSOR_SHARED_SCORE,                                \
        .weight = SP_PARAMETER_SHARED_GATE_WEIGHT, .inputs = SP_WIDTH_HIDDEN,                      \
        .outputs = SP_WIDTH_ONE, .duplicated = true,                                               \
        .conditions = SP_IF_SHARED | SP_IF_SHARED_GATE)                                            \
    ROW(SHARED_GATHER, SHARED_FC1, GATHER, "gather of the shared experts' input",                  \
        "reduction of the shared experts' input gradient", .reads = SP_TENSOR_NORM2,               \
        .inputs = SP_WIDTH_HIDDEN, .conditions = SP_IF_SHARED)                                     \
    ROW(SHARED_FC1, SHARED_FC1, LINEAR, "first projection of the shared experts",                  \
        "first projection of the shared experts", .reads = SP_TENSOR_NORM2,                        \
        .writes = SP_TENSOR_SHARED_FC1, .weight = SP_PARAMETER_SHARED_FC1_WEIGHT,                  \
        .inputs = SP_WIDTH_HIDDEN, .outputs = SP_WIDTH_SHARED_FC1, .conditions = SP_IF_SHARED)     \
    ROW(SHARED_ACTIVATION, SHARED_ACTIVATION, ACTIVATION,                                          \
        "activation function of the shared experts", "activation function of the shared experts",  \
        .reads = SP_TENSOR_SHARED_FC1, .writes = SP_TENSOR_SHARED_FC2_INPUT,                       \
        .outputs = SP_WIDTH_SHARED_FFN, .conditions = SP_IF_SHARED)                                \
    ROW(SHARED_FC2, SHARED_FC2, LINEAR, "second projection of the shared experts",                 \
        "second projection of the shared experts", .reads = SP_TENSOR_SHARED_FC2_INPUT,            \
        .writes = SP_TENSOR_SHARED_OUTPUT, .weight = SP_PARAMETER_SHARED_FC2_WEIGHT,               \
        .inputs = SP_WIDTH_SHARED_FFN, .outputs = SP_WIDTH_HIDDEN, .conditions = SP_IF_SHARED)     \
    ROW(SHARED_REDUCE, SHARED_FC2, REDUCE, "reduction of the shared experts' output",              \
        "gather of the shared experts' output gradient", .reads = SP_LAYER_TENSORS,                \
        .writes = SP_TENSOR_SHARED_OUTPUT, .outputs = SP_WIDTH_HIDDEN, .conditions = SP_IF_SHARED) \
    ROW(EXPERT_DOWN, PERMUTATION, LINEAR, "down-projection to experts",                            \
        "down-projection to experts", .reads = SP_TENSOR_NORM2,                                    \
        .weight = SP_PARAMETER_EXPERT_DOWN_WEIGHT, .inputs = SP_WIDTH_HIDDEN,                      \
        .outputs = SP_WIDTH_EXPERT_LATENT, .duplicated = true, .conditions = SP_IF_EXPERT_LATENT)  \
    ROW(FC1_GATHER, FC1, GATHER, "gather of the MLP input",                                        \
        "reduction of the MLP input's gradient", .reads = SP_TENSOR_NORM2,                         \
        .inputs = SP_WIDTH_EXPERT, .conditions = SP_IF_MLP)                                        \
    ROW(PERMUTATION, PERMUTATION, PERMUTATION, "expert permutation", NULL,                         \
        .reads = SP_TENSOR_NORM2, .writes = SP_TENSOR_EXPERT_INPUT, .conditions = SP_IF_MLP)       \
    ROW(DISPATCH, PERMUTATION, DISPATCH, "token dispatch", "combination of dispatched gradients",  \
        .reads = SP_TENSOR_NORM2, .conditions = SP_IF_MLP)                                         \
    ROW(FC1, FC1, LINEAR, "first MLP projection", "first MLP projection",                          \
        .reads = SP_TENSOR_NORM2, .writes = SP_TENSOR_FC1, .weight = SP_PARAMETER_FC1_WEIGHT,      \
        .inputs = SP_WIDTH_EXPERT, .outputs = SP_WIDTH_FC1, .conditions = SP_IF_MLP)               \
    ROW(ACTIVATION, ACTIVATION, ACTIVATION, "activation function", "activation function",          \
        .reads = SP_TENSOR_FC1, .writes = SP_TENSOR_FC2_INPUT, .outputs = SP_WIDTH_FFN,            \
        .conditions = SP_IF_MLP)                                                                   \
    ROW(FC2, FC2, LINEAR, "second MLP projection", "second MLP projection",                        \
        .reads = SP_TENSOR_FC2_INPUT, .writes = SP_LAYER_TENSORS,                                  \
        .weight = SP_PARAMETER_FC2_WEIGHT, .inputs = SP_WIDTH_FFN, .outputs = SP_WIDTH_EXPERT,     \
        .conditions = SP_IF_MLP)                                                                   \
    ROW(COMBINE, FC2, COMBINE, "combination of expert outputs", "dispatch of output gradients",    \
        .writes = SP_LAYER_TENSORS, .conditions = SP_IF_MLP)                                       \
    ROW(UNPERMUTATION, FC2, PERMUTATION, NULL, "expert permutation",                               \
        .reads = SP_TENSOR_EXPERT_OUTPUT, .writes = SP_LAYER_TENSORS, .conditions = SP_IF_MLP)     \
    ROW(FC2_REDUCE, FC2, REDUCE, "reduction of the MLP output",                                    \
        "gather of the MLP output's gradient", .reads = SP_TENSOR_MLP_MASK,                        \
        .writes = SP_LAYER_TENSORS, .outputs = SP_WIDTH_EXPERT, .conditions = SP_IF_MLP)           \
    ROW(EXPERT_UP, FC2, LINEAR, "up-projection from experts", "up-projection from experts",        \
        .reads = SP_TENSOR_COMBINED, .writes = SP_LAYER_TENSORS,                                   \
        .weight = SP_PARAMETER_EXPERT_UP_WEIGHT, .inputs = SP_WIDTH_EXPERT_LATENT,                 \
        .outputs = SP_WIDTH_HIDDEN, .duplicated = true, .conditions = SP_IF_EXPERT_LATENT)         \
    ROW(SHARED_SUM, FC2, SUM, "sum with the shared experts", "sum with the shared experts",        \
        .reads = SP_TENSOR_SHARED_OUTPUT, .writes = SP_LAYER_TENSORS, .conditions = SP_IF_SHARED)  \
    ROW(RESIDUAL2, RESIDUAL2, RESIDUAL, "second residual add", "second residual add",              \
        .reads = SP_TENSOR_RESIDUAL, .writes = SP_LAYER_TENSORS, .conditions = SP_IF_MLP)

#define SP_STEP_IDENTIFIER(identifier, ...) SP_STEP_##identifier,
typedef enum sp_layer_place {
    SP_LAYER_STEP_ROWS(SP_STEP_IDENTIFIER) SP_LAYER_STEPS
} sp_layer_place;
#undef SP_STEP_IDENTIFIER

// Elements of a tensor for one token on one rank.
typedef enum sp_layer_width {
    SP_WIDTH_ONE,
    SP_WIDTH_TWO, // mean and deviation
    SP_WIDTH_HIDDEN,
    SP_WIDTH_EXPERT, // of what an MLP reads and gives: hidden states, or experts' latents of them
    SP_WIDTH_EXPERT_LATENT,
    SP_WIDTH_ROUTED, // of what experts read, once for each expert of a token
    SP_WIDTH_Q,
    SP_WIDTH_K,
    SP_WIDTH_V,
    SP_WIDTH_QK,
    SP_WIDTH_KV,
    SP_WIDTH_QKV,      // with the gate of the attention's output
    SP_WIDTH_CONTEXT,  // of the attention's output
    SP_WIDTH_STATE_IN, // of the projection into a state
    SP_WIDTH_STATE_CONV,
    SP_WIDTH_STATE_VALUES, // of what a state gives
    SP_WIDTH_Q_LATENT,     // of latent attention from here on
    SP_WIDTH_KV_LATENT,
    SP_WIDTH_ROTARY,  // of the keys' rotary part, which all heads share
    SP_WIDTH_KV_DOWN, // latent and rotary part
    SP_WIDTH_KV_UP,   // keys without their rotary part, and values
    SP_WIDTH_HEADS,   // a number for each query head
    SP_WIDTH_EXPERTS,
    SP_WIDTH_ROUTES, // a probability and a place for each expert of a token
    SP_WIDTH_FFN,
    SP_WIDTH_FC1,
    SP_WIDTH_SHARED_FFN, // of the shared experts
    SP_WIDTH_SHARED_FC1,
    SP_WIDTH_VOCAB,
    SP_WIDTH_LOGITS, // of all tokens that a position predicts
    SP_WIDTH_MTP,    // hidden states of the further ones among them
    SP_WIDTH_MTP_JOINED,
    // Of the adapters of a projection: what their first products give, and what these read where
    // each has a copy.
    SP_WIDTH_LOW_QKV,
    SP_WIDTH_LOW_OUTPUT,
    SP_WIDTH_LOW_FC1,
    SP_WIDTH_LOW_FC2,
    SP_WIDTH_DROPPED_QKV,
    SP_WIDTH_DROPPED_OUTPUT,
    SP_WIDTH_DROPPED_FC1,
    SP_WIDTH_DROPPED_FC2,
    SP_LAYER_WIDTHS
} sp_layer_width;

// How many rows a rank has of a pack's tokens.
typedef enum sp_layer_rows {
    SP_ROWS_RESIDUAL, // as outside attention and MLP: over CP, and TP where sequences are split
    SP_ROWS_INPUT,    // the same, or as gathered over TP where the stack keeps inputs so
    SP_ROWS_BLOCK,    // as within attention and MLP: over CP
    SP_ROWS_EXPERTS,  // the same, of experts over several ranks those that these send
    SP_ROWS_PAIRS     // one for each (query, key) pair, over CP
} sp_layer_rows;

typedef enum sp_layer_type {
    SP_TYPE_BF16,
    SP_TYPE_PRODUCT, // what an FP8 product reads: one copy in FP8 with its scales; else bf16
    SP_TYPE_FP32,
    SP_TYPE_BYTE,    // dropout masks
    SP_TYPE_SOFTMAX, // bf16, or fp32 where the softmax runs as several kernels
    SP_TYPE_LOGITS   // fp32, or bf16 where the loss works in the logits' place
} sp_layer_type;

// Bits of a 64-bit set: where a tensor or a step exists. All of its row must hold.
#define SP_CONDITION(bit) (UINT64_C(1) << (bit))
#define SP_IF_FLASH SP_CONDITION(0)
#define SP_IF_UNFUSED SP_CONDITION(1) // attention
#define SP_IF_DROPOUT SP_CONDITION(2)
#define SP_IF_ROUTED SP_CONDITION(3)
#define SP_IF_EXPLICIT SP_CONDITION(4) // tensors, not autograd's
// Autograd keeps copies of what norms of queries and keys read.
#define SP_IF_QK_NORM SP_CONDITION(5)
// Values are a view of the projection's output and so hold its other parts too; after rotary
// positions they are copied.
#define SP_IF_VIEWED_VALUES SP_CONDITION(6)
#define SP_IF_SPLIT_SWIGLU SP_CONDITION(7) // a kernel for each of its steps, and autograd's tensors
// The attention gave its output in another order than that in which the projection keeps it.
#define SP_IF_REORDERED SP_CONDITION(8)
// Norms written in PyTorch's operations: what they multiply is kept in fp32.
#define SP_IF_UNFUSED_NORMS SP_CONDITION(9)
#define SP_IF_WHOLE_LOSS SP_CONDITION(10) // of all rows at once, with its gradient in the backward
#define SP_IF_POST_NORMS SP_CONDITION(11) // behind attention and MLP, before the residual path
#define SP_IF_SHARED SP_CONDITION(12)     // experts
#define SP_IF_SHARED_GATE SP_CONDITION(13)
// Attention.
#define SP_IF_LATENT SP_CONDITION(14)            // of keys and values at least
#define SP_IF_QUERY_LATENT SP_CONDITION(15)      // of queries too
#define SP_IF_QUERIES_OF_HIDDEN SP_CONDITION(16) // no latent of theirs
#define SP_IF_JOINT_QKV SP_CONDITION(17)         // no latent at all
#define SP_IF_MTP SP_CONDITION(18)               // further tokens are predicted
// What a layer has.
#define SP_IF_ATTENTION SP_CONDITION(19)
#define SP_IF_ATTENTION_GATE SP_CONDITION(20)
#define SP_IF_STATE SP_CONDITION(21) // in place of attention
#define SP_IF_MIXER SP_CONDITION(22) // either
#define SP_IF_MLP SP_CONDITION(23)
// Probabilities of experts are multiplied in behind the activation, by an operation of its own.
#define SP_IF_WEIGHTED SP_CONDITION(24)
// Products keep FP8 copies of inputs that others keep in bf16.
#define SP_IF_FP8_COPIES SP_CONDITION(25)
#define SP_IF_TRAINED SP_CONDITION(26) // weights and gains; else adapters alone are
// Adapters of a projection, of both of the MLP, and their dropout.
#define SP_IF_QKV_ADAPTERS SP_CONDITION(27)
#define SP_IF_OUTPUT_ADAPTERS SP_CONDITION(28)
#define SP_IF_MLP_ADAPTERS SP_CONDITION(29)
#define SP_IF_ADAPTER_DROPOUT SP_CONDITION(30)
#define SP_IF_NORMED_INPUTS SP_CONDITION(31) // of attention and MLP
#define SP_IF_SECOND_NORM SP_CONDITION(32)   // the MLP's input has a norm of its own
#define SP_IF_IN_TURN SP_CONDITION(33) // attention, its sum with the residual path, then the MLP
#define SP_IF_EXPERT_LATENT SP_CONDITION(34)
#define SP_IF_FP8 SP_CONDITION(35)
#define SP_IF_ADAPTERS (SP_IF_QKV_ADAPTERS | SP_IF_OUTPUT_ADAPTERS | SP_IF_MLP_ADAPTERS)

// The tensors of a layer, of embedding and head, in the order in which the forward saves them. Of a
// layer with a state what the projection, the convolution and the state give stays; kernels make
// the states of chunks again.
// Columns: identifier, name, part; width, rows and type; the operation whose repetition makes it
// needless to keep the tensor, or several of them (the one that writes it, or else the one that
// keeps it as its input; 0: always kept); the step that writes it (SP_LAYER_STEPS: none of the
// layer's); the last step of the forward that it outlives with hand-written passes (SP_LAYER_STEPS:
// it stays to the end of the layer); the same with autograd, whose tensors live to the end of the
// function that makes them; the last step of the backward of hand-written passes that reads it,
// where products read their inputs for weight gradients at the norm of their block; and its
// condition.
#define SP_LAYER_TENSOR_ROWS(ROW)                                                                  \
    ROW(INPUT, "layer input", LAYER, HIDDEN, RESIDUAL, BF16, 0, LAYER_STEPS, LAYER_STEPS,          \
        LAYER_STEPS, STEP_NORM1, 0)                                                                \
    ROW(NORM1, "first norm output", LAYER, HIDDEN, INPUT, PRODUCT, SP_LAYER_NORM1, STEP_NORM1,     \
        STEP_QKV_ELEMENTWISE, STEP_QKV, STEP_NORM1, SP_IF_NORMED_INPUTS | SP_IF_MIXER)             \
    ROW(STATISTICS1, "statistics of the first norm", LAYER, TWO, RESIDUAL, FP32, SP_LAYER_NORM1,   \
        STEP_NORM1, LAYER_STEPS, LAYER_STEPS, STEP_NORM1,                                          \
        SP_IF_EXPLICIT | SP_IF_NORMED_INPUTS | SP_IF_MIXER)                                        \
    ROW(NORM1_INPUT, "input of the first norm in fp32", LAYER, HIDDEN, RESIDUAL, FP32,             \
        SP_LAYER_NORM1, STEP_NORM1, STEP_NORM1, STEP_NORM1, STEP_NORM1,                            \
        SP_IF_UNFUSED_NORMS | SP_IF_NORMED_INPUTS | SP_IF_MIXER)                                   \
    ROW(NORM1_RESULT, "result of the first norm in fp32", LAYER, HIDDEN, RESIDUAL, FP32,           \
        SP_LAYER_NORM1, STEP_NORM1, STEP_NORM1, STEP_NORM1, STEP_NORM1,                            \
        SP_IF_UNFUSED_NORMS | SP_IF_NORMED_INPUTS | SP_IF_MIXER | SP_IF_TRAINED)                   \
    ROW(Q_LATENT, "query latent", LAYER, Q_LATENT, RESIDUAL, BF16, SP_LAYER_LATENT, STEP_Q_DOWN,   \
        LAYER_STEPS, STEP_QKV_ELEMENTWISE, STEP_Q_NORM, SP_IF_QUERY_LATENT)                        \
    ROW(KV_LATENT, "key and value latent", LAYER, KV_DOWN, RESIDUAL, BF16, SP_LAYER_LATENT,        \
        STEP_KV_DOWN, LAYER_STEPS, STEP_QKV_ELEMENTWISE, STEP_KV_NORM, SP_IF_LATENT)               \
    ROW(Q_NORM, "normed query latent", LAYER, Q_LATENT, INPUT, PRODUCT, SP_LAYER_QKV, STEP_Q_NORM, \
        LAYER_STEPS, STEP_QKV_ELEMENTWISE, STEP_Q_UP, SP_IF_QUERY_LATENT)                          \
    ROW(KV_NORM, "normed key and value latent", LAYER, KV_LATENT, INPUT, PRODUCT, SP_LAYER_QKV,    \
        STEP_KV_NORM, LAYER_STEPS, STEP_QKV_ELEMENTWISE, STEP_KV_UP, SP_IF_LATENT)                 \
    ROW(DROPPED_QKV, "inputs of the QKV adapters, dropped out", LAYER, DROPPED_QKV, INPUT, BF16,   \
        SP_LAYER_QKV, STEP_QKV, LAYER_STEPS, STEP_QKV, STEP_QKV,                                   \
        SP_IF_QKV_ADAPTERS | SP_IF_ADAPTER_DROPOUT)                                                \
    ROW(DROPPED_QKV_MASK, "dropout mask of the QKV adapters", LAYER, DROPPED_QKV, INPUT, BYTE,     \
        SP_LAYER_QKV, STEP_QKV, LAYER_STEPS, STEP_QKV, STEP_QKV,                                   \
        SP_IF_QKV_ADAPTERS | SP_IF_ADAPTER_DROPOUT)                                                \
    ROW(LOW_QKV, "first products of the QKV adapters", LAYER, LOW_QKV, BLOCK, BF16, SP_LAYER_QKV,  \
        STEP_QKV, LAYER_STEPS, STEP_QKV, STEP_QKV, SP_IF_QKV_ADAPTERS)                             \
    ROW(QKV_REST, "rest of the QKV output", LAYER, QK, BLOCK, BF16, SP_LAYER_QKV,                  \
        STEP_QKV_ELEMENTWISE, LAYER_STEPS, STEP_OUTPUT_REDUCE, STEP_CORE,                          \
        SP_IF_QK_NORM | SP_IF_VIEWED_VALUES | SP_IF_ATTENTION)                                     \
    ROW(RAW_QUERIES, "queries before their norm", LAYER, Q, BLOCK, BF16, SP_LAYER_QKV,             \
        STEP_QKV_ELEMENTWISE, LAYER_STEPS, STEP_OUTPUT_REDUCE, STEP_CORE,                          \
        SP_IF_QK_NORM | SP_IF_ATTENTION)                                                           \
    ROW(RAW_KEYS, "keys before their norm", LAYER, K, BLOCK, BF16, SP_LAYER_QKV,                   \
        STEP_QKV_ELEMENTWISE, LAYER_STEPS, STEP_OUTPUT_REDUCE, STEP_CORE,                          \
        SP_IF_QK_NORM | SP_IF_ATTENTION)                                                           \
    ROW(QUERIES, "queries", LAYER, Q, BLOCK, BF16, SP_LAYER_QKV, STEP_QKV_ELEMENTWISE, STEP_CORE,  \
        STEP_OUTPUT_REDUCE, STEP_CORE, SP_IF_ATTENTION)                                            \
    ROW(PROBABILITIES, "probabilities", LAYER, HEADS, PAIRS, SOFTMAX, SP_LAYER_CORE, STEP_CORE,    \
        STEP_CORE, STEP_CORE, STEP_CORE, SP_IF_UNFUSED | SP_IF_ATTENTION)                          \
    ROW(PROBABILITY_MASK, "probability dropout mask", LAYER, HEADS, PAIRS, BYTE, SP_LAYER_CORE,    \
        STEP_CORE, STEP_CORE, STEP_CORE, STEP_CORE,                                                \
        SP_IF_UNFUSED | SP_IF_DROPOUT | SP_IF_ATTENTION)                                           \
    ROW(DROPPED_PROBABILITIES, "dropped probabilities", LAYER, HEADS, PAIRS, BF16, SP_LAYER_CORE,  \
        STEP_CORE, STEP_CORE, STEP_CORE, STEP_CORE,                                                \
        SP_IF_UNFUSED | SP_IF_DROPOUT | SP_IF_ATTENTION)                                           \
    ROW(ATTENTION, "attention output", LAYER, CONTEXT, BLOCK, BF16, SP_LAYER_OUTPUT, STEP_CORE,    \
        STEP_RESIDUAL1, STEP_OUTPUT_REDUCE, STEP_NORM1, SP_IF_ATTENTION)                           \
    ROW(LOG_SUM_EXP, "log-sum-exp", LAYER, HEADS, BLOCK, FP32, SP_LAYER_CORE, STEP_CORE,           \
        STEP_CORE, STEP_CORE, STEP_CORE, SP_IF_FLASH | SP_IF_ATTENTION)                            \
    ROW(DROPPED_OUTPUT, "inputs of the attention output adapters, dropped out", LAYER,             \
        DROPPED_OUTPUT, BLOCK, BF16, SP_LAYER_OUTPUT, STEP_OUTPUT, LAYER_STEPS, STEP_OUTPUT,       \
        STEP_OUTPUT, SP_IF_OUTPUT_ADAPTERS | SP_IF_ADAPTER_DROPOUT)                                \
    ROW(DROPPED_OUTPUT_MASK, "dropout mask of the attention output adapters", LAYER,               \
        DROPPED_OUTPUT, BLOCK, BYTE, SP_LAYER_OUTPUT, STEP_OUTPUT, LAYER_STEPS, STEP_OUTPUT,       \
        STEP_OUTPUT, SP_IF_OUTPUT_ADAPTERS | SP_IF_ADAPTER_DROPOUT)                                \
    ROW(LOW_OUTPUT, "first products of the attention output adapters", LAYER, LOW_OUTPUT, BLOCK,   \
        BF16, SP_LAYER_OUTPUT, STEP_OUTPUT, LAYER_STEPS, STEP_OUTPUT, STEP_OUTPUT,                 \
        SP_IF_OUTPUT_ADAPTERS)                                                                     \
    ROW(ATTENTION_COPY, "attention output in FP8", LAYER, CONTEXT, BLOCK, PRODUCT,                 \
        SP_LAYER_OUTPUT, STEP_OUTPUT, LAYER_STEPS, STEP_OUTPUT_REDUCE, STEP_NORM1,                 \
        SP_IF_FP8_COPIES | SP_IF_ATTENTION)                                                        \
    ROW(ATTENTION_GATE, "gate of the attention output", LAYER, CONTEXT, BLOCK, BF16, SP_LAYER_QKV, \
        STEP_QKV_ELEMENTWISE, LAYER_STEPS, STEP_OUTPUT_REDUCE, STEP_ATTENTION_GATE,                \
        SP_IF_ATTENTION_GATE)                                                                      \
    ROW(GATED_ATTENTION, "gated attention output", LAYER, CONTEXT, BLOCK, BF16, SP_LAYER_OUTPUT,   \
        STEP_ATTENTION_GATE, STEP_RESIDUAL1, STEP_OUTPUT_REDUCE, STEP_NORM1, SP_IF_ATTENTION_GATE) \
    ROW(STATE_INPUT, "projection into the state", LAYER, STATE_IN, BLOCK, BF16, SP_LAYER_STATE,    \
        STEP_STATE_IN, LAYER_STEPS, STEP_OUTPUT_REDUCE, STEP_STATE, SP_IF_STATE)                   \
    ROW(STATE_CONV, "convolution before the state", LAYER, STATE_CONV, BLOCK, BF16,                \
        SP_LAYER_STATE, STEP_STATE, LAYER_STEPS, STEP_OUTPUT_REDUCE, STEP_STATE, SP_IF_STATE)      \
    ROW(STATE_OUTPUT, "output of the state", LAYER, STATE_VALUES, BLOCK, BF16, SP_LAYER_STATE,     \
        STEP_STATE, LAYER_STEPS, STEP_OUTPUT_REDUCE, STEP_NORM1, SP_IF_STATE)                      \
    ROW(POST_NORM1, "input of the norm behind attention", LAYER, HIDDEN, RESIDUAL, BF16,           \
        SP_LAYER_OUTPUT, STEP_OUTPUT_REDUCE, STEP_RESIDUAL1, STEP_OUTPUT_REDUCE,                   \
        STEP_OUTPUT_REDUCE, SP_IF_POST_NORMS | SP_IF_MIXER)                                        \
    ROW(POST_NORM1_INPUT, "input of the norm behind attention in fp32", LAYER, HIDDEN, RESIDUAL,   \
        FP32, SP_LAYER_OUTPUT, STEP_OUTPUT_REDUCE, STEP_OUTPUT_REDUCE, STEP_OUTPUT_REDUCE,         \
        STEP_OUTPUT_REDUCE, SP_IF_POST_NORMS | SP_IF_UNFUSED_NORMS | SP_IF_MIXER)                  \
    ROW(POST_NORM1_RESULT, "result of the norm behind attention in fp32", LAYER, HIDDEN, RESIDUAL, \
        FP32, SP_LAYER_OUTPUT, STEP_OUTPUT_REDUCE, STEP_OUTPUT_REDUCE, STEP_OUTPUT_REDUCE,         \
        STEP_OUTPUT_REDUCE, SP_IF_POST_NORMS | SP_IF_UNFUSED_NORMS | SP_IF_MIXER | SP_IF_TRAINED)  \
    ROW(ATTENTION_MASK, "attention block dropout mask", LAYER, HIDDEN, RESIDUAL, BYTE,             \
        SP_LAYER_RESIDUAL1, STEP_RESIDUAL1, STEP_RESIDUAL1, STEP_RESIDUAL2, STEP_OUTPUT_REDUCE,    \
        SP_IF_DROPOUT | SP_IF_MIXER)                                                               \
    ROW(RESIDUAL, "residual", LAYER, HIDDEN, RESIDUAL, BF16, SP_LAYER_RESIDUAL1, STEP_RESIDUAL1,   \
        LAYER_STEPS, STEP_RESIDUAL2, STEP_NORM2, SP_IF_MIXER | SP_IF_MLP | SP_IF_IN_TURN)          \
    ROW(NORM2, "second norm output", LAYER, HIDDEN, INPUT, PRODUCT, SP_LAYER_NORM2, STEP_NORM2,    \
        STEP_FC1, STEP_FC1, STEP_NORM2, SP_IF_SECOND_NORM | SP_IF_MLP)                             \
    ROW(STATISTICS2, "statistics of the second norm", LAYER, TWO, RESIDUAL, FP32, SP_LAYER_NORM2,  \
        STEP_NORM2, LAYER_STEPS, LAYER_STEPS, STEP_NORM1,                                          \
        SP_IF_EXPLICIT | SP_IF_SECOND_NORM | SP_IF_MLP)                                            \
    ROW(NORM2_INPUT, "input of the second norm in fp32", LAYER, HIDDEN, RESIDUAL, FP32,            \
        SP_LAYER_NORM2, STEP_NORM2, STEP_NORM2, STEP_NORM2, STEP_NORM2,                            \
        SP_IF_UNFUSED_NORMS | SP_IF_SECOND_NORM | SP_IF_MLP)                                       \
    ROW(NORM2_RESULT, "result of the second norm in fp32", LAYER, HIDDEN, RESIDUAL, FP32,          \
        SP_LAYER_NORM2, STEP_NORM2, STEP_NORM2, STEP_NORM2, STEP_NORM2,                            \
        SP_IF_UNFUSED_NORMS | SP_IF_SECOND_NORM | SP_IF_MLP | SP_IF_TRAINED)                       \
    ROW(ROUTER, "router probabilities", LAYER, EXPERTS, RESIDUAL, FP32, SP_LAYER_ROUTER,           \
        STEP_ROUTER, LAYER_STEPS, STEP_FC2_REDUCE, STEP_UNPERMUTATION, SP_IF_ROUTED)               \
    ROW(ROUTING_MAP, "routing map", LAYER, EXPERTS, RESIDUAL, BYTE, SP_LAYER_ROUTER, STEP_ROUTER,  \
        LAYER_STEPS, STEP_FC2_REDUCE, STEP_UNPERMUTATION, SP_IF_ROUTED)                            \
    ROW(SHARED_INPUT_COPY, "shared experts' input in FP8", LAYER, HIDDEN, INPUT, PRODUCT,          \
        SP_LAYER_SHARED_FC1 | SP_LAYER_JOINED, STEP_SHARED_FC1, LAYER_STEPS, STEP_SHARED_REDUCE,   \
        STEP_NORM2, SP_IF_SHARED | SP_IF_FP8_COPIES)                                               \
    ROW(SHARED_SCORE, "shared experts' gate", LAYER, ONE, RESIDUAL, BF16, SP_LAYER_SHARED_GATE,    \
        STEP_SHARED_GATE, LAYER_STEPS, STEP_SHARED_SUM, STEP_SHARED_GATE,                          \
        SP_IF_SHARED | SP_IF_SHARED_GATE)                                                          \
    ROW(SHARED_HALF, "shared experts' fc1 output, gate half", LAYER, SHARED_FFN, BLOCK, BF16,      \
        SP_LAYER_SHARED_ACTIVATION, STEP_SHARED_FC1, LAYER_STEPS, LAYER_STEPS,                     \
        STEP_SHARED_ACTIVATION, SP_IF_SHARED | SP_IF_SPLIT_SWIGLU)                                 \
    ROW(SHARED_UP, "shared experts' fc1 output, up half", LAYER, SHARED_FFN, BLOCK, BF16,          \
        SP_LAYER_SHARED_ACTIVATION, STEP_SHARED_FC1, LAYER_STEPS, LAYER_STEPS,                     \
        STEP_SHARED_ACTIVATION, SP_IF_SHARED | SP_IF_SPLIT_SWIGLU)                                 \
    ROW(SHARED_FC1, "shared experts' fc1 output", LAYER, SHARED_FC1, BLOCK, BF16,                  \
        SP_LAYER_SHARED_FC1, STEP_SHARED_FC1, STEP_SHARED_ACTIVATION, STEP_SHARED_REDUCE,          \
        STEP_SHARED_ACTIVATION, SP_IF_SHARED)                                                      \
    ROW(SHARED_SILU, "shared experts' SiLU output", LAYER, SHARED_FFN, BLOCK, BF16,                \
        SP_LAYER_SHARED_ACTIVATION, STEP_SHARED_ACTIVATION, LAYER_STEPS, STEP_SHARED_ACTIVATION,   \
        STEP_SHARED_ACTIVATION, SP_IF_SHARED | SP_IF_SPLIT_SWIGLU)                                 \
    ROW(SHARED_FC2_INPUT, "shared experts' fc2 input", LAYER, SHARED_FFN, BLOCK, PRODUCT,          \
        SP_LAYER_SHARED_ACTIVATION, STEP_SHARED_ACTIVATION, LAYER_STEPS, STEP_SHARED_REDUCE,       \
        STEP_NORM2, SP_IF_SHARED)                                                                  \
    ROW(SHARED_OUTPUT, "shared experts' output before their gate", LAYER, HIDDEN, RESIDUAL, BF16,  \
        SP_LAYER_SHARED_FC2, STEP_SHARED_REDUCE, LAYER_STEPS, STEP_SHARED_SUM, STEP_SHARED_SUM,    \
        SP_IF_SHARED | SP_IF_SHARED_GATE)                                                          \
    ROW(ROUTES, "probabilities and places of expert rows", LAYER, ROUTES, EXPERTS, FP32,           \
        SP_LAYER_PERMUTATION, STEP_PERMUTATION, LAYER_STEPS, STEP_FC2_REDUCE, STEP_NORM2,          \
        SP_IF_ROUTED)                                                                              \
    ROW(EXPERT_INPUT, "expert input", LAYER, ROUTED, EXPERTS, PRODUCT, SP_LAYER_PERMUTATION,       \
        STEP_PERMUTATION, LAYER_STEPS, STEP_FC2_REDUCE, STEP_NORM2, SP_IF_ROUTED)                  \
    ROW(LATENT_INPUT_COPY, "input of the experts' down-projection in FP8", LAYER, HIDDEN,          \
        RESIDUAL, PRODUCT, SP_LAYER_PERMUTATION, STEP_EXPERT_DOWN, LAYER_STEPS, STEP_EXPERT_DOWN,  \
        STEP_EXPERT_DOWN, SP_IF_EXPERT_LATENT | SP_IF_FP8)                                         \
    ROW(DROPPED_FC1, "inputs of the fc1 adapters, dropped out", LAYER, DROPPED_FC1, INPUT, BF16,   \
        SP_LAYER_FC1, STEP_FC1, LAYER_STEPS, STEP_FC1, STEP_FC1,                                   \
        SP_IF_MLP_ADAPTERS | SP_IF_ADAPTER_DROPOUT)                                                \
    ROW(DROPPED_FC1_MASK, "dropout mask of the fc1 adapters", LAYER, DROPPED_FC1, INPUT, BYTE,     \
        SP_LAYER_FC1, STEP_FC1, LAYER_STEPS, STEP_FC1, STEP_FC1,                                   \
        SP_IF_MLP_ADAPTERS | SP_IF_ADAPTER_DROPOUT)                                                \
    ROW(LOW_FC1, "first products of the fc1 adapters", LAYER, LOW_FC1, BLOCK, BF16, SP_LAYER_FC1,  \
        STEP_FC1, LAYER_STEPS, STEP_FC1, STEP_FC1, SP_IF_MLP_ADAPTERS)                             \
    ROW(GATE, "fc1 output, gate half", LAYER, FFN, EXPERTS, BF16, SP_LAYER_ACTIVATION, STEP_FC1,   \
        LAYER_STEPS, LAYER_STEPS, STEP_ACTIVATION, SP_IF_SPLIT_SWIGLU | SP_IF_MLP)                 \
    ROW(UP, "fc1 output, up half", LAYER, FFN, EXPERTS, BF16, SP_LAYER_ACTIVATION, STEP_FC1,       \
        LAYER_STEPS, LAYER_STEPS, STEP_ACTIVATION, SP_IF_SPLIT_SWIGLU | SP_IF_MLP)                 \
    ROW(FC1, "fc1 output", LAYER, FC1, EXPERTS, BF16, SP_LAYER_FC1, STEP_FC1, STEP_ACTIVATION,     \
        STEP_FC2_REDUCE, STEP_ACTIVATION, SP_IF_MLP)                                               \
    ROW(SILU, "SiLU output", LAYER, FFN, EXPERTS, BF16, SP_LAYER_ACTIVATION, STEP_ACTIVATION,      \
        LAYER_STEPS, STEP_ACTIVATION, STEP_ACTIVATION, SP_IF_SPLIT_SWIGLU | SP_IF_MLP)             \
    ROW(UNWEIGHTED, "activation output before its probabilities", LAYER, FFN, EXPERTS, BF16,       \
        SP_LAYER_ACTIVATION, STEP_ACTIVATION, LAYER_STEPS, STEP_FC2_REDUCE, STEP_ACTIVATION,       \
        SP_IF_ROUTED | SP_IF_WEIGHTED)                                                             \
    ROW(FC2_INPUT, "fc2 input", LAYER, FFN, EXPERTS, PRODUCT, SP_LAYER_ACTIVATION,                 \
        STEP_ACTIVATION, LAYER_STEPS, STEP_FC2_REDUCE, STEP_NORM2, SP_IF_MLP)                      \
    ROW(EXPERT_OUTPUT, "expert output", LAYER, ROUTED, EXPERTS, BF16, SP_LAYER_FC2, STEP_FC2,      \
        LAYER_STEPS, STEP_FC2_REDUCE, STEP_UNPERMUTATION, SP_IF_ROUTED)                            \
    ROW(DROPPED_FC2, "inputs of the fc2 adapters, dropped out", LAYER, DROPPED_FC2, BLOCK, BF16,   \
        SP_LAYER_FC2, STEP_FC2, LAYER_STEPS, STEP_FC2, STEP_FC2,                                   \
        SP_IF_MLP_ADAPTERS | SP_IF_ADAPTER_DROPOUT)                                                \
    ROW(DROPPED_FC2_MASK, "dropout mask of the fc2 adapters", LAYER, DROPPED_FC2, BLOCK, BYTE,     \
        SP_LAYER_FC2, STEP_FC2, LAYER_STEPS, STEP_FC2, STEP_FC2,                                   \
        SP_IF_MLP_ADAPTERS | SP_IF_ADAPTER_DROPOUT)                                                \
    ROW(LOW_FC2, "first products of the fc2 adapters", LAYER, LOW_FC2, BLOCK, BF16, SP_LAYER_FC2,  \
        STEP_FC2, LAYER_STEPS, STEP_FC2, STEP_FC2, SP_IF_MLP_ADAPTERS)                             \
    ROW(COMBINED, "sum of a token's experts", LAYER, EXPERT_LATENT, RESIDUAL, PRODUCT,             \
        SP_LAYER_FC2, STEP_FC2_REDUCE, LAYER_STEPS, STEP_EXPERT_UP, STEP_FC2_REDUCE,               \
        SP_IF_EXPERT_LATENT)                                                                       \
    ROW(POST_NORM2, "input of the norm behind the MLP", LAYER, HIDDEN, RESIDUAL, BF16,             \
        SP_LAYER_RESIDUAL2, STEP_FC2_REDUCE, STEP_RESIDUAL2, STEP_FC2_REDUCE, STEP_FC2_REDUCE,     \
        SP_IF_POST_NORMS | SP_IF_MLP)                                                              \
    ROW(POST_NORM2_INPUT, "input of the norm behind the MLP in fp32", LAYER, HIDDEN, RESIDUAL,     \
        FP32, SP_LAYER_RESIDUAL2, STEP_FC2_REDUCE, STEP_FC2_REDUCE, STEP_FC2_REDUCE,               \
        STEP_FC2_REDUCE, SP_IF_POST_NORMS | SP_IF_UNFUSED_NORMS | SP_IF_MLP)                       \
    ROW(POST_NORM2_RESULT, "result of the norm behind the MLP in fp32", LAYER, HIDDEN, RESIDUAL,   \
        FP32, SP_LAYER_RESIDUAL2, STEP_FC2_REDUCE, STEP_FC2_REDUCE, STEP_FC2_REDUCE,               \
        STEP_FC2_REDUCE, SP_IF_POST_NORMS | SP_IF_UNFUSED_NORMS | SP_IF_MLP | SP_IF_TRAINED)       \
    ROW(MLP_MASK, "MLP dropout mask", LAYER, HIDDEN, RESIDUAL, BYTE, SP_LAYER_RESIDUAL2,           \
        STEP_RESIDUAL2, LAYER_STEPS, STEP_RESIDUAL2, STEP_FC2_REDUCE, SP_IF_DROPOUT | SP_IF_MLP)   \
    ROW(KEYS_VALUES, "keys and values", LAYER, KV, BLOCK, BF16, SP_LAYER_QKV,                      \
        STEP_QKV_ELEMENTWISE, LAYER_STEPS, STEP_OUTPUT_REDUCE, STEP_CORE, SP_IF_ATTENTION)         \
    ROW(REORDERED, "attention output in its own order", LAYER, CONTEXT, BLOCK, BF16,               \
        SP_LAYER_OUTPUT, STEP_CORE, LAYER_STEPS, STEP_OUTPUT_REDUCE, STEP_NORM1,                   \
        SP_IF_REORDERED | SP_IF_ATTENTION)                                                         \
    ROW(EMBEDDING_MASK, "embedding dropout mask", EMBEDDING, HIDDEN, RESIDUAL, BYTE, 0,            \
        LAYER_STEPS, LAYER_STEPS, LAYER_STEPS, LAYER_STEPS, SP_IF_DROPOUT)                         \
    ROW(FINAL_INPUT, "final norm input", HEAD, HIDDEN, RESIDUAL, BF16, 0, LAYER_STEPS,             \
        LAYER_STEPS, LAYER_STEPS, LAYER_STEPS, 0)                                                  \
    ROW(FINAL_NORM, "final norm output", HEAD, HIDDEN, INPUT, BF16, 0, LAYER_STEPS, LAYER_STEPS,   \
        LAYER_STEPS, LAYER_STEPS, 0)                                                               \
    ROW(FINAL_STATISTICS, "statistics of the final norm", HEAD, TWO, RESIDUAL, FP32, 0,            \
        LAYER_STEPS, LAYER_STEPS, LAYER_STEPS, LAYER_STEPS, SP_IF_EXPLICIT)                        \
    ROW(FINAL_NORM_INPUT, "input of the final norm in fp32", HEAD, HIDDEN, RESIDUAL, FP32, 0,      \
        LAYER_STEPS, LAYER_STEPS, LAYER_STEPS, LAYER_STEPS, SP_IF_UNFUSED_NORMS)                   \
    ROW(FINAL_NORM_RESULT, "result of the final norm in fp32", HEAD, HIDDEN, RESIDUAL, FP32, 0,    \
        LAYER_STEPS, LAYER_STEPS, LAYER_STEPS, LAYER_STEPS, SP_IF_UNFUSED_NORMS | SP_IF_TRAINED)   \
    ROW(MTP_EMBEDDING, "embeddings of further tokens", HEAD, MTP, RESIDUAL, BF16, 0, LAYER_STEPS,  \
        LAYER_STEPS, LAYER_STEPS, LAYER_STEPS, SP_IF_MTP)                                          \
    ROW(MTP_INPUT, "hidden states of further tokens", HEAD, MTP, RESIDUAL, BF16, 0, LAYER_STEPS,   \
        LAYER_STEPS, LAYER_STEPS, LAYER_STEPS, SP_IF_MTP)                                          \
    ROW(MTP_JOINED, "hidden states joined with embeddings", HEAD, MTP_JOINED, INPUT, BF16, 0,      \
        LAYER_STEPS, LAYER_STEPS, LAYER_STEPS, LAYER_STEPS, SP_IF_MTP)                             \
    ROW(MTP_NORM, "final norm output of further tokens", HEAD, MTP, INPUT, BF16, 0, LAYER_STEPS,   \
        LAYER_STEPS, LAYER_STEPS, LAYER_STEPS, SP_IF_MTP)                                          \
    ROW(LOGITS, "softmax of the logits", HEAD, LOGITS, BLOCK, LOGITS, 0, LAYER_STEPS, LAYER_STEPS, \
        LAYER_STEPS, LAYER_STEPS, SP_IF_WHOLE_LOSS)                                                \
    ROW(LOGITS_SUM, "log-sum-exp of the logits", HEAD, ONE, BLOCK, FP32, 0, LAYER_STEPS,           \
        LAYER_STEPS, LAYER_STEPS, LAYER_STEPS, SP_IF_EXPLICIT)

#define SP_TENSOR_IDENTIFIER(identifier, ...) SP_TENSOR_##identifier,
typedef enum sp_layer_tensor_id {
    SP_LAYER_TENSOR_ROWS(SP_TENSOR_IDENTIFIER) SP_ALL_TENSORS,
    SP_LAYER_TENSORS = SP_TENSOR_EMBEDDING_MASK // those of a layer come first
} sp_layer_tensor_id;
#undef SP_TENSOR_IDENTIFIER

typedef struct sp_layer_tensor {
    const char *name;
    sp_part part;
    sp_layer_width width;
    sp_layer_rows rows;
    sp_layer_type type;
    unsigned kept_by; // operations
    sp_layer_place made;
    sp_layer_place last_read; // by the forward of hand-written passes
    sp_layer_place scope;     // the step at whose end the function that made it returns
    sp_layer_place read_back; // last, by the backward of hand-written passes
    uint64_t conditions;
} sp_layer_tensor;

extern const sp_layer_tensor sp_layer_tensors[SP_ALL_TENSORS];

// A set of a layer's tensors: bit 1 << id.
__extension__ typedef unsigned __int128 sp_layer_set;
#define SP_LAYER_SET(id) ((sp_layer_set)1 << (id))

static inline sp_layer_tensor_id sp_layer_set_first(sp_layer_set tensors)
{
    uint64_t low = (uint64_t)tensors;
    return (sp_layer_tensor_id)(low != 0 ? __builtin_ctzll(low)
                                         : 64 + __builtin_ctzll((uint64_t)(tensors >> 64)));
}

// Columns of SP_LAYER_STEP_ROWS.
typedef struct sp_layer_step {
    sp_layer_operation operation;
    sp_layer_kind kind;
    const char *forward, *backward;
    sp_layer_tensor_id reads, writes;
    sp_parameter_kind weight;
    sp_layer_width inputs, outputs;
    bool duplicated;
    uint64_t conditions;
} sp_layer_step;

extern const sp_layer_step sp_layer_steps[SP_LAYER_STEPS];

// Is it a projection of hidden states? The input and gradient of the router and of a gate are not
// counted again for their weights, which every TP rank has whole, and the executor has none.
static inline bool sp_layer_is_product(const sp_layer_step *step)
{
    return step->kind == SP_LAYER_KIND_LINEAR && step->operation != SP_LAYER_ROUTER &&
           step->operation != SP_LAYER_SHARED_GATE;
}

// Does it read hidden states, or what experts have of them? Column-parallel products read all rows
// of these, row-parallel ones write them.
static inline bool sp_layer_enters(const sp_layer_step *step)
{
    return step->inputs == SP_WIDTH_HIDDEN || step->inputs == SP_WIDTH_EXPERT;
}

// Does it run in FP8 where the step computes so? All products of hidden states do; head and
// embedding are no steps of a layer.
static inline bool sp_layer_is_fp8(const sp_layer_step *step, const sp_stack *stack)
{
    return sp_precision_is_fp8(&stack->precision) && sp_layer_is_product(step);
}

// What the step reads: where a block has no norm of its input, what that would read.
sp_layer_tensor_id sp_layer_reads(uint64_t conditions, sp_layer_place step);
// Does a layer of the model, whose layers are alike, run the step?
bool sp_layer_has_step(const sp_model *model, const sp_layer_step *step);

// The conditions that hold: a set of SP_IF_, of the model's alone first.
uint64_t sp_layer_model_conditions(const sp_model *model);
uint64_t sp_layer_conditions(const sp_model *model, const sp_layout *layout, const sp_stack *stack,
                             sp_attention attention);
// Is there such a tensor under these conditions?
static inline bool sp_layer_has(const sp_layer_tensor *tensor, uint64_t conditions)
{
    return (tensor->conditions & ~conditions) == 0;
}

// Where each of `experts` gets `factor` times its even share of the tokens of a rank, rounded up:
// tokens beyond are dropped, and rows without a token padded (Megatron-LM's get_capacity and
// moe_pad_expert_input_to_capacity). 0: as many rows as tokens choose it.
typedef struct sp_expert_capacity {
    double factor;
    int64_t experts, active;
    int split; // ranks that share the tokens which are routed
} sp_expert_capacity;

// The tokens of a pack that, `active` rows each, make as many rows as experts then have.
int64_t sp_capacity_tokens(const sp_expert_capacity *capacity, const sp_layout *layout,
                           int64_t tokens);
// Rows by those of tokens without a capacity, but for rounding.
static inline double sp_capacity_share(const sp_expert_capacity *capacity)
{
    return capacity->factor > 0.0 ? capacity->factor : 1.0;
}

// One rank's share of a model's widths.
typedef struct sp_shard {
    int tp;                         // ranks that share a layer
    int64_t heads;                  // query heads
    int64_t q, k, v;                // widths of queries, keys and values
    int64_t context;                // width of the attention's output
    int64_t expert;                 // width of what the MLP, or an expert, reads and gives
    int64_t ffn;                    // of one expert
    int64_t fc1;                    // output of the first MLP projection: gate and up, or up alone
    int64_t shared_ffn, shared_fc1; // the same of the shared experts; 0: none
    // Of layers with a state.
    int64_t state_heads, state_values, state_keys;
    int64_t vocab;   // rows of the vocabulary tables, rounded up
    int64_t experts; // of a layer, 1 where the MLP is dense
    int64_t held;    // of them on this rank
    int64_t active;  // experts per token, 1 where the MLP is dense
    // Of rows spread evenly over experts on several ranks this one has rows_of / rows_over for each
    // row that it has within attention, times `active`: ETP / TP, whatever EP. Else 1 / 1.
    int64_t rows_of, rows_over;
    bool dispatches; // tokens go to experts on other ranks
    sp_expert_capacity capacity;
    int norm_split; // ranks that share the tokens outside attention and MLP: tp or 1
    bool dropout;   // as usual GPT models train with dropout, the Llama family without
} sp_shard;

sp_shard sp_shard_of(const sp_model *model, const sp_layout *layout);

// The rows of a rank's MLP, in tensors of SP_ROWS_EXPERTS and widths of the MLP, for so many tokens
// of a pack.
int64_t sp_layer_mlp_rows(const sp_shard *shard, const sp_layout *layout, int64_t tokens);

// Elements for one token by width, on a rank.
void sp_layer_widths(const sp_model *model, const sp_shard *shard, int64_t widths[SP_LAYER_WIDTHS]);
int sp_layer_element_bytes(sp_layer_type type, const sp_stack *stack);
// Of so many numbers of a tensor. What several products of hidden states read, each with a copy of
// its own (latent attention), or the router too, counts as bf16.
int64_t sp_layer_tensor_bytes(sp_layer_tensor_id tensor, uint64_t conditions, const sp_stack *stack,
                              int64_t numbers);

// The weights of a projection on one rank, [outputs, inputs]: one, or one for each expert, of which
// a token passes the active ones.
typedef struct sp_layer_linear {
    int64_t inputs, outputs;
    int64_t weights, active;
    bool of_experts, bias;
} sp_layer_linear;

// False: the step is no projection, or none that the model has.
bool sp_layer_linear_of(const sp_model *model, const sp_shard *shard, sp_layer_place step,
                        sp_layer_linear *linear);
// The adapters of a projection on one rank: each multiplies its input by A [inputs, low] and what
// that gives by B [rank, outputs], which is scaled and added to the projection's output. TP ranks
// split both: A of a column-parallel projection by what it gives, which is gathered, of a
// row-parallel one by what it reads, which is summed; B by its outputs, which of a row-parallel one
// are gathered (NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/peft/utils.py,
// ParallelLinearAdapter). Without TP as in PEFT.
typedef struct sp_layer_adapters {
    int count; // 0: none
    bool column;
    int64_t rank, inputs, low;
    int64_t outputs[3];                       // [count]
    sp_layer_width input_width, output_width; // of matrices of all rows; the widest output
    sp_layer_width low_width;                 // of all adapters together
} sp_layer_adapters;

sp_layer_adapters sp_layer_adapters_of(const sp_model *model, const sp_shard *shard,
                                       sp_layer_place step);
// The outputs of all together.
static inline int64_t sp_layer_adapter_outputs(const sp_layer_adapters *adapters)
{
    int64_t outputs = 0;
    for (int i = 0; i < adapters->count; i++) {
        outputs += adapters->outputs[i];
    }
    return outputs;
}
static inline int64_t sp_layer_adapter_parameters(const sp_layer_adapters *adapters)
{
    return adapters->count * adapters->inputs * adapters->low +
           adapters->rank * sp_layer_adapter_outputs(adapters);
}
// Does the gradient of the projection's weight, or of its adapters', read the projection's input
// itself?
bool sp_layer_reads_input(uint64_t conditions, sp_layer_place step);

// Of a layer with a state, beside its projections: the convolution, of Mamba-2 with a bias; numbers
// of each head, which say how fast it forgets and, of Mamba-2, what passes by the state; a norm of
// what the state gives, of Mamba-2 of all its features, else of those of a head, which every TP
// rank has whole. Gives their sum, 0 for other layers.
typedef enum sp_state_part {
    SP_STATE_CONV_WEIGHT,
    SP_STATE_CONV_BIAS,
    SP_STATE_RATES,
    SP_STATE_NORM,
    SP_STATE_PARTS
} sp_state_part;
int64_t sp_layer_state_parameters(const sp_model *model, const sp_shard *shard,
                                  int64_t parts[SP_STATE_PARTS]);
int64_t sp_layer_norms(const sp_model *model); // of hidden states
// Parameters of one layer: projections, their column-split biases and sinks are divided over TP,
// norms, router, a gate and the biases after a reduction are not.
int64_t sp_layer_parameters(const sp_model *model, const sp_shard *shard);
// Those of them that are trained: of adapters alone where there are any.
int64_t sp_layer_trained_parameters(const sp_model *model, const sp_shard *shard);
// Those of them that are of experts: 0 of a dense MLP.
int64_t sp_layer_expert_parameters(const sp_model *model, const sp_shard *shard);
// Is a parameter the weight of such a product?
bool sp_layer_is_product_weight(sp_parameter_kind kind);
// Weights of the products that run in FP8 where the step computes so, without biases, and those of
// them that are of experts.
int64_t sp_layer_product_weights(const sp_model *model, const sp_shard *shard);
int64_t sp_layer_expert_weights(const sp_model *model, const sp_shard *shard);

// The frozen weight of a projection in 4 bits, as bitsandbytes keeps and turns it back: one tensor
// for each of queries, keys and values and for gate and up, as transformers' modules have them.
typedef struct sp_layer_frozen {
    int tensors; // 0: the weight is in BF16
    int64_t weights[3];
    int64_t largest; // of them, which is in BF16 while its product runs
} sp_layer_frozen;

sp_layer_frozen sp_layer_frozen_of(const sp_model *model, const sp_shard *shard,
                                   sp_layer_place step);
// Bytes of a layer's weights in 4 bits, and of their scales.
int64_t sp_layer_packed_bytes(const sp_model *model, const sp_shard *shard);
int64_t sp_layer_scale_bytes(const sp_model *model, const sp_shard *shard);

#endif
