// Passes of a unit whose tensors go as soon as their last reader is done (SP_TENSORS_EXPLICIT,
// stack.h): every take and every give of a forward and of a backward in order, and the peak of
// each. The order is that of backends/executor/typed.
//
// Under tensor parallelism with split sequences a column-parallel product reads all rows, gathered
// for it, and a row-parallel one gives all rows before its sum is scattered; backwards the other
// way round.
#ifndef SLIMPACK_SIM_MEMORY_EXPLICIT_UNIT_H
#define SLIMPACK_SIM_MEMORY_EXPLICIT_UNIT_H

#include "sim/memory/footprint.h"
#include "sim/memory/saved_tensors.h"

// A running sum of bytes by category with its high-water mark.
typedef struct sp_i_memory_gauge {
    sp_bytes now;
    sp_bytes high; // when the total was first at its largest
    int64_t total, high_total;
} sp_i_memory_gauge;

// What layers of one kind have, and embedding and head.
typedef struct sp_i_explicit_kind {
    // Bytes on one rank, 0 of a tensor that the model does not have.
    int64_t bytes[SP_ALL_TENSORS];
    sp_memory_category category[SP_ALL_TENSORS]; // of one that is kept
    bool kept[SP_ALL_TENSORS];
    int64_t width[SP_LAYER_WIDTHS]; // of matrices that no table names (saved_tensors.h)
    // Tensors that the layer has, by the step that makes them, the last that reads them, and the
    // last of the backward that does: bits of sp_layer_tensor_id.
    sp_layer_set made[SP_LAYER_STEPS + 1], last_read[SP_LAYER_STEPS + 1];
    sp_layer_set read_back[SP_LAYER_STEPS + 1];
    // Parameters that a layer, embedding or LM head has gathered while it is at work, and its
    // gradients before they go to the ranks whose share they are: by part; 0 where ZeRO does not
    // split them. The last of a backward that leaves the weight gradients.
    int64_t parameters[SP_PARTS], gradients[SP_PARTS], input_gradients[SP_PARTS];
    bool runs[SP_LAYER_STEPS]; // does a layer have the step?
    sp_layer_tensor_id reads[SP_LAYER_STEPS];
    bool routed, gated; // experts; shared ones behind a gate
    bool latent;        // attention
    // Rows that go to experts on other ranks and come back, 0 where all stay.
    int64_t sent_rows, sent_routes;
} sp_i_explicit_kind;

// A unit in one of its passes: its sizes, and where each tensor is counted.
typedef struct sp_i_explicit {
    sp_i_memory_gauge gauge;
    const sp_model *model;
    const sp_stage *stage;
    sp_i_explicit_kind kinds[SP_LAYER_KINDS];
    sp_i_explicit_kind *at;          // that of the layer at hand
    int64_t hidden, hidden_gathered; // all rows, 0 where no gathering is
    // Work space of a GPU's attention, forward and backward.
    int64_t attend, attend_backward;
    int64_t kv_cached;                      // of slices with later slices
    int64_t kv_found, kv_begun, kv_missing; // sums of gradients: found, for others, own made here
    bool collects;
    // Layers whose tensor an offload takes whole: so many from the first on, or from the last.
    int away_layers[SP_ALL_TENSORS];
    bool away_from_last;
    // The pass that runs now.
    bool keeps;    // a forward: what the mode keeps stays
    bool cached;   // a forward: keys and values of later slices are there
    bool rebuilds; // a backward makes what the mode dropped
    bool splits;   // a backward leaves the weight gradients
    bool loaded;   // a backward of what an offload took and brought back
    // Where each tensor of the layer at hand is counted; SP_MEM_CATEGORIES: not there.
    sp_memory_category place[SP_ALL_TENSORS];
    bool viewed[SP_ALL_TENSORS]; // of these a view of the copy's buffer, which stays
} sp_i_explicit;

// Fills forward, repeat, backward, input_gradient and first, from held, repeated and the sums of
// gradients, and the backwards of an offloaded unit from what of `tensors` goes away. O(layers).
void sp_i_explicit_unit(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                        const sp_memory_options *options, const sp_unit_load *load,
                        const sp_unit_tensor *tensors, int count, sp_unit_bytes *unit);

// ---- the same pass by pass ----

// Sizes of a unit; nothing has run.
void sp_i_explicit_measure(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                           const sp_memory_options *options, const sp_unit_load *load,
                           sp_i_explicit *x);
// A pass begins with this much.
void sp_i_explicit_begin(sp_i_explicit *x, const sp_bytes *there);
// A whole pass, begun already.
void sp_i_explicit_forward(sp_i_explicit *x);
void sp_i_explicit_backward(sp_i_explicit *x);

#endif
