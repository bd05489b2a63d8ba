// The tensors that the forward leaves for the backward: the rows of sim/model/layer.h in bytes,
// those of a unit by name, which of them leave when a part of them is offloaded, and the sizes of
// matrices that come and go.
#ifndef SLIMPACK_SIM_MEMORY_SAVED_TENSORS_H
#define SLIMPACK_SIM_MEMORY_SAVED_TENSORS_H

#include "sim/memory/footprint.h"

// One tensor that the forward pass of a layer leaves for the backward pass, on one rank. For a pack
// of T tokens it has ceil(T / shard) rows of row_bytes, plus pair_bytes per full (query, key) pair
// / cp.
typedef struct sp_saved_tensor {
    sp_layer_tensor_id id;
    const char *name;
    int64_t row_bytes;
    int element_bytes;
    int shard;          // cp, or cp*tp where sequence parallelism splits the tokens over TP too
    int64_t pair_bytes; // attention scores of the unfused attention
    bool of_experts;    // of rows that experts get
    sp_expert_capacity capacity;
    bool is_kv;        // keys and values: later slices of the sample read them
    bool is_logits;    // softmax of the loss: counted as logits
    bool is_statistic; // counted as workspace
    bool contiguous;   // false: a strided view of a larger tensor (offload order)
    // Operations of a layer: kept unless one of these runs again, and, where there are any, if one
    // of those does.
    unsigned dropped_by, kept_with;
} sp_saved_tensor;

// Under a set of operations that run again (sp_recompute_operations()).
static inline bool sp_saved_is_kept(const sp_saved_tensor *tensor, unsigned repeated)
{
    return (tensor->dropped_by & repeated) == 0 &&
           (tensor->kept_with == 0 || (tensor->kept_with & repeated) != 0);
}

enum { SP_SAVED_TENSORS = 58 };

// The tensors that a layer, the embedding or the head saves, in the order in which the forward
// saves them, with statistics where the stack counts them; returns their number.
int sp_saved_part(const sp_model *model, const sp_layout *layout, const sp_memory_options *options,
                  sp_part part, sp_saved_tensor rows[SP_SAVED_TENSORS]);
typedef struct sp_saved_rows {
    sp_saved_tensor row[SP_SAVED_TENSORS]; // [count]
    int count;
    unsigned repeated; // operations, of layers of the kind
} sp_saved_rows;

// The tensors of all parts of a model, with its layers by kind: what a unit saves of them is a
// matter of its load alone.
struct sp_saved_parts {
    sp_saved_rows embedding, head, layer[SP_LAYER_KINDS];
};

void sp_saved_parts_find(const sp_model *model, const sp_layout *layout,
                         const sp_memory_options *options, sp_saved_parts *parts);
// Where memory counts one: activations, logits, or workspace for statistics. Keys and values of
// later slices are cache instead.
sp_memory_category sp_saved_category(const sp_saved_tensor *tensor);

// Bytes of one tensor for a pack of `tokens` tokens and `pairs` full (query, key) pairs.
int64_t sp_saved_bytes(const sp_saved_tensor *tensor, const sp_layout *layout, int64_t tokens,
                       int64_t pairs);

// The same for the pack of a load.
int64_t sp_saved_load_bytes(const sp_saved_tensor *tensor, const sp_layout *layout,
                            const sp_unit_load *load);

// Tensors of one kind: one for each layer, or one of embedding or head.
typedef struct sp_unit_tensor {
    sp_layer_tensor_id id;
    const char *name;
    // Activations, keys and values that stay in the cache, logits, or statistics (workspace).
    sp_memory_category category;
    bool is_kv;
    int kind; // of layers
    int count;
    int64_t bytes; // of one
    int64_t elements;
    bool contiguous;
    int64_t away_bytes; // of all, what an offload takes
} sp_unit_tensor;

// Bytes of matrices of a pack on one rank, of bf16 numbers.
typedef struct sp_unit_sizes {
    sp_shard shard;
    // By width, of all rows that the rank has within attention and MLP, its experts' among them.
    int64_t width[SP_LAYER_WIDTHS];
    int64_t split[SP_LAYER_WIDTHS]; // the same of its rows in the residual path
    int64_t hidden;                 // hidden states as the residual path holds them
    int64_t kv_gathered; // keys and values of all CP ranks that exchange them; 0: none do
    int64_t scores;      // of unfused attention; 0 otherwise
    int64_t mask;        // of the attention, from the data loader, a byte for each pair; 0: none
} sp_unit_sizes;

void sp_unit_sizes_of(const sp_model *model, const sp_layout *layout,
                      const sp_memory_options *options, const sp_unit_load *load,
                      sp_unit_sizes *sizes);

enum { SP_UNIT_TENSORS = (2 + SP_LAYER_KINDS) * SP_SAVED_TENSORS };

// The kinds of tensors of a unit, in the order of saving, statistics last; returns their number.
int sp_unit_tensors(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                    const sp_memory_options *options, const sp_unit_load *load,
                    sp_unit_tensor tensors[SP_UNIT_TENSORS]);
// The same of parts that are found already.
int sp_unit_tensors_of(const sp_saved_parts *parts, const sp_model *model, const sp_layout *layout,
                       const sp_stage *stage, const sp_memory_options *options,
                       const sp_unit_load *load, sp_unit_tensor tensors[SP_UNIT_TENSORS]);

// The bytes that an offload takes away: the share `ratio` of the activations in tensors of at least
// 1 MiB each, rounded up to whole MiB but to no more than there is. Logits and cached keys and
// values stay (kwai/Megatron-Kwai, branch atc24ae, megatron/core/pipeline_parallel/offload.py).
int64_t sp_unit_offload_bytes(const sp_unit_tensor *tensors, int count, double ratio);

// Does an offload of this ratio begin with what was saved last?
bool sp_unit_offload_from_last(double ratio);

// Fills away_bytes: contiguous tensors go first, then those of more elements, then those saved
// earlier, layer by layer; in the reverse order above a ratio of a half. The last one may go in
// part: returns what goes of that one, 0 where all go whole. O(layers * count).
int64_t sp_unit_offload(sp_unit_tensor *tensors, int count, double ratio);

#endif
