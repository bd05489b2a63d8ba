// A unit in one of its passes (explicit_unit.h): its sizes, and where each tensor is counted.
#ifndef SLIMPACK_SIM_MEMORY_EXPLICIT_STATE_H
#define SLIMPACK_SIM_MEMORY_EXPLICIT_STATE_H

#include "sim/memory/footprint.h"
#include "sim/memory/unit_tensors.h"

// A running sum of bytes by category with its high-water mark.
typedef struct sp_i_memory_gauge {
    sp_bytes now;
    sp_bytes high; // when the total was first at its largest
    int64_t total, high_total;
} sp_i_memory_gauge;

void sp_i_memory_take(sp_i_memory_gauge *gauge, sp_memory_category category, int64_t bytes);
void sp_i_memory_give(sp_i_memory_gauge *gauge, sp_memory_category category, int64_t bytes);

// Tensors that a layer or the head may keep; statistics of a norm stand behind its output.
typedef enum sp_i_explicit_tensor {
    SP_I_INPUT,
    SP_I_NORM1,
    SP_I_STATISTICS1,
    SP_I_QUERIES,
    SP_I_PROBABILITIES,
    SP_I_PROBABILITY_MASK,
    SP_I_DROPPED_PROBABILITIES,
    SP_I_ATTENTION,
    SP_I_LOG_SUM_EXP,
    SP_I_ATTENTION_MASK,
    SP_I_RESIDUAL,
    SP_I_NORM2,
    SP_I_STATISTICS2,
    SP_I_ROUTER,
    SP_I_EXPERT_INPUT,
    SP_I_FC1,
    SP_I_FC2_INPUT,
    SP_I_EXPERT_OUTPUT,
    SP_I_MLP_MASK,
    SP_I_KEYS_VALUES, // of slices that no later slice reads
    SP_I_LAYER_TENSORS,
    SP_I_EMBEDDING_MASK = SP_I_LAYER_TENSORS,
    SP_I_FINAL_INPUT,
    SP_I_FINAL_NORM,
    SP_I_FINAL_STATISTICS,
    SP_I_LOGITS, // in the place of their softmax
    SP_I_LOGITS_SUM,
    SP_I_EXPLICIT_TENSORS
} sp_i_explicit_tensor;

typedef struct sp_i_explicit {
    sp_i_memory_gauge gauge;
    const sp_stage *stage;
    // Bytes on one rank, 0 of a tensor that the model does not have.
    int64_t bytes[SP_I_EXPLICIT_TENSORS];
    sp_memory_category category[SP_I_EXPLICIT_TENSORS]; // of one that is kept
    bool kept[SP_I_EXPLICIT_TENSORS];
    int64_t hidden, hidden_gathered; // all rows, 0 where no gathering is
    int64_t q, qkv, scores, ffn, fc1;
    int64_t logits_gradient; // bf16
    // Work space of a GPU's attention, forward and backward.
    int64_t attend, attend_backward;
    int64_t kv_cached;                      // of slices with later slices
    int64_t kv_found, kv_begun, kv_missing; // sums of gradients: found, for others, own made here
    bool collects;
    // Layers whose tensor an offload takes whole: so many from the first on, or from the last.
    int away_layers[SP_I_EXPLICIT_TENSORS];
    bool away_from_last;
    // Parameters that a layer, embedding or LM head has gathered while it is at work, and its
    // gradients before they go to the ranks whose share they are: by part; 0 where ZeRO does not
    // split them. The last of a backward that leaves the weight gradients.
    int64_t parameters[SP_PARTS], gradients[SP_PARTS], input_gradients[SP_PARTS];
    // The pass that runs now.
    bool keeps;    // a forward: what the mode keeps stays
    bool cached;   // a forward: keys and values of later slices are there
    bool rebuilds; // a backward makes what the mode dropped
    bool splits;   // a backward leaves the weight gradients
    bool loaded;   // a backward of what an offload took and brought back
    // Where each tensor of the layer at hand is counted; SP_MEM_CATEGORIES: not there.
    sp_memory_category place[SP_I_EXPLICIT_TENSORS];
    bool viewed[SP_I_EXPLICIT_TENSORS]; // of these a view of the copy's buffer, which stays
} sp_i_explicit;

// Sizes of a unit; nothing has run.
void sp_i_explicit_measure(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                           const sp_memory_options *options, const sp_unit_load *load,
                           sp_i_explicit *x);
// Finds the part of the unit's tensors that an offload of this ratio takes (unit_tensors.h,
// away_bytes).
void sp_i_explicit_offload(sp_i_explicit *x, const sp_unit_tensor *tensors, int count,
                           double ratio);
// A pass begins with this much.
void sp_i_explicit_begin(sp_i_explicit *x, const sp_bytes *there);

void sp_i_explicit_take(sp_i_explicit *x, int64_t workspace_bytes);
void sp_i_explicit_give(sp_i_explicit *x, int64_t workspace_bytes);
// A buffer that comes and goes at once.
void sp_i_explicit_pass(sp_i_explicit *x, int64_t workspace_bytes);
bool sp_i_explicit_has(const sp_i_explicit *x, sp_i_explicit_tensor tensor);
// Where the pass at hand counts a tensor that it makes.
sp_memory_category sp_i_explicit_place(const sp_i_explicit *x, sp_i_explicit_tensor tensor);
// Makes a tensor of the layer at hand unless it is there.
void sp_i_explicit_make(sp_i_explicit *x, sp_i_explicit_tensor tensor);
void sp_i_explicit_drop(sp_i_explicit *x, sp_i_explicit_tensor tensor);

// A layer, embedding or LM head begins, in a forward or a backward, and ends.
void sp_i_explicit_open(sp_i_explicit *x, sp_part part, bool backward);
void sp_i_explicit_close(sp_i_explicit *x, sp_part part, bool backward);

// A whole pass, begun already (explicit_unit.c).
void sp_i_explicit_forward(sp_i_explicit *x);
void sp_i_explicit_backward(sp_i_explicit *x);

#endif
