// A tensor program being written: its state, and single tensors that come and go.
#ifndef SLIMPACK_SIM_MODEL_TENSOR_BUILDER_H
#define SLIMPACK_SIM_MODEL_TENSOR_BUILDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/model/footprint.h"
#include "sim/model/layout.h"
#include "sim/model/tensor_program.h"

typedef struct sp_i_program_builder {
    sp_tensor_program *program;
    sp_tensor_events *to; // the pass that events go to
    const sp_layout *layout;
    const sp_stage *stage;
    sp_recompute mode; // of the layer at hand: none while a whole layer is rebuilt
    bool recomputes_layers;
    bool splits;           // the backward being written leaves the weight gradients
    bool swiglu;           // gate and up
    bool fused_loss;       // keeps the bf16 logits, and puts their gradient in their place
    bool copied_logits;    // to fp32, beside the softmax
    bool weight_gradients; // are tensors of their own, then added to their buffer
    // Queries, keys and values stay parts of what the projection gave: nothing is done to them
    // before the attention.
    bool mixed_views;
    bool fused_swiglu;
    bool unfused_attention;
    bool sequence_split; // hidden states are split over TP outside attention and MLP
    bool routed;         // mixture of experts
    // Keys and values are projected apart from the queries, so that their gathering hides behind
    // the projection of the queries.
    bool splits_qkv;
    int64_t tokens, kv_tokens, pairs;
    // Bytes on one rank.
    int64_t hidden, hidden_full; // as the residual path holds them; gathered over TP
    int64_t routed_rows;         // one full hidden state for each expert of a token
    int64_t q, kv_own, kv_gathered, kv_cached;
    int64_t ffn, fc1, scores, logits, table;
    int64_t mask; // of the attention, from the data loader; 0: none
    int64_t weights[SP_LAYER_WEIGHTS];
    int64_t gathered_parameters; // of one layer, with ZeRO 3; 0: a rank holds them
    // The layer's saved-tensor table, and which tensor each row is in the layer at hand.
    sp_saved_tensor rows[SP_SAVED_TENSORS];
    int row_count;
    int32_t now[SP_SAVED_TENSORS];
    int32_t *kept;   // [layers * row_count]: which tensor each row is among what a layer keeps
    int32_t *cached; // [layers]: keys and values of later slices, where the mode does not keep them
    // Tables of embedding and LM head, and which tensor each of their rows is.
    sp_saved_tensor embedding_rows[SP_SAVED_TENSORS], head_rows[SP_SAVED_TENSORS];
    int embedding_count, head_count;
    int32_t embedding_saved[SP_SAVED_TENSORS], head_saved[SP_SAVED_TENSORS];
    bool shares_table;     // of embedding and head, both on this stage
    int32_t head_gradient; // of the output weight
    bool outer_read;       // the gradient from outside is that of a projection's output
    // What the weight gradients free.
    int32_t *deferred;
    size_t deferred_count, deferred_capacity;
} sp_i_program_builder;

int32_t sp_i_program_allocate(sp_i_program_builder *b, const char *name, int64_t bytes);
void sp_i_program_free(sp_i_program_builder *b, int32_t tensor);

// Index into rows, or -1.
int sp_i_program_row(const sp_i_program_builder *b, const char *name);
bool sp_i_program_keeps(const sp_i_program_builder *b, const char *name);
int64_t sp_i_program_row_bytes(const sp_i_program_builder *b, const sp_saved_tensor *row);
// Makes the tensor of a row; a name that the table does not have is no tensor.
int32_t sp_i_program_make(sp_i_program_builder *b, const char *name);

// With ZeRO 3 the parameters of the layer that runs are gathered, and behind it those of the next.
// Takes a layer's, SP_NO_TENSOR where nothing is gathered.
int32_t sp_i_program_gather_parameters(sp_i_program_builder *b);

// The forward of one layer from its input to its output.
int32_t sp_i_program_layer_forward(sp_i_program_builder *b, int32_t input, const char *output_name);

// All of the forward, into its pass.
void sp_i_program_forward(sp_i_program_builder *b);

// All of the backward, into b->to, and the weight gradients of a split one into `weights`. Autograd
// frees what a node has saved when the node is done; inside one recomputing function everything
// stays to its end.
int32_t sp_i_program_backward(sp_i_program_builder *b, sp_tensor_events *weights);

#endif
