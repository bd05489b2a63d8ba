// The tensors of a layer and of the head as the executor holds them, sized and kept as the
// saved-tensor table says (sim/memory/footprint.h). All have a row for each
// of the pack's rows, or of the rank's own part of them.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_TENSORS_H
#define SLIMPACK_BACKENDS_EXECUTOR_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/executor/arena.h"
#include "sim/base/status.h"
#include "sim/memory/footprint.h"
#include "sim/model/layout.h"
#include "sim/model/model.h"
#include "sim/model/parameter_list.h"

typedef enum sp_i_exec_tensor {
    SP_I_EXEC_INPUT, // of the layer
    SP_I_EXEC_NORM1,
    SP_I_EXEC_MEAN1,
    SP_I_EXEC_RSTD1,
    SP_I_EXEC_QUERIES, // turned by their positions
    SP_I_EXEC_ATTENTION,
    SP_I_EXEC_LSE,
    SP_I_EXEC_RESIDUAL, // after the attention block
    SP_I_EXEC_NORM2,
    SP_I_EXEC_MEAN2,
    SP_I_EXEC_RSTD2,
    SP_I_EXEC_FC1,
    SP_I_EXEC_FC2_INPUT,
    SP_I_EXEC_ATTENTION_MASK, // of dropout, a byte each
    SP_I_EXEC_MLP_MASK,
    SP_I_EXEC_LAYER_TENSORS,
    SP_I_EXEC_FINAL_INPUT = SP_I_EXEC_LAYER_TENSORS,
    SP_I_EXEC_FINAL_NORM,
    SP_I_EXEC_FINAL_MEAN,
    SP_I_EXEC_FINAL_RSTD,
    SP_I_EXEC_LOGITS, // in the place of the table's softmax, which follows from them and FINAL_LSE
    SP_I_EXEC_FINAL_LSE,
    SP_I_EXEC_EMBEDDING_MASK, // stands with the first layer
    SP_I_EXEC_TENSORS
} sp_i_exec_tensor;

typedef struct sp_i_exec_spec {
    const char *name; // in the table; NULL: it is not there
    int64_t columns;
    sp_i_exec_width width;
    sp_memory_category category; // where it is kept
    bool kept;                   // from the forward to the backward
    bool own; // has the rows of the rank's part alone, where sequence parallelism splits packs
} sp_i_exec_spec;

typedef struct sp_i_exec_specs {
    sp_i_exec_spec of[SP_I_EXEC_TENSORS];
    sp_recompute recompute;
    bool drops;            // the model trains with dropout
    bool keeps_kv;         // of slices that no later slice reads; the others' stay in every mode
    int64_t kv_columns;    // keys, then values
    sp_i_exec_width value; // of hidden states, queries and the like: bf16 in the table
    sp_i_exec_width statistic; // of statistics and sums over tokens: fp32 in the table
    sp_i_exec_width scratch;   // of the kernels' own work spaces, which no table has
} sp_i_exec_specs;

// Makes those for values of `real_bytes` and statistics of `exact_bytes`. SwiGLU is one kernel
// whatever the stack says. The table has no norm statistics: they are kept where the norm's output
// is, as workspace.
void sp_i_exec_specs_make(const sp_model *model, const sp_layout *layout, sp_recompute recompute,
                          int64_t real_bytes, int64_t exact_bytes, sp_i_exec_specs *specs);

// The parameters of one rank, tensor by tensor: names, places in the rank and in the whole model,
// and starting values. Tensor-parallel ranks hold rows of the column-parallel matrices (queries,
// keys and values, gate and up each cut by itself) and of the vocabulary tables, columns of the
// row-parallel ones, and all of the rest.

// Random numbers that belong to a place and not to the order of drawing: each is a hash of its seed
// and its index, so that any part of a tensor or of a text can be drawn by itself.

// The output function of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", 2014, figure 17) at the index-th state after `seed`.
static inline uint64_t sp_i_exec_draw(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// A seed for what has a name.
static inline uint64_t sp_i_exec_draw_name(uint64_t seed, const char *name)
{
    uint64_t hash = sp_i_exec_draw(seed, 0);
    for (; *name != '\0'; name++) {
        hash = sp_i_exec_draw(hash, (unsigned char)*name);
    }
    return hash;
}

// Even over [0, 1), 53 bits.
static inline double sp_i_exec_uniform(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

// Slots of a virtual stage: those of each layer, then embedding and LM head, whose `layer` is the
// number of layers.
static inline int sp_i_exec_slot(int layer, sp_parameter_kind kind)
{
    return layer * SP_PARAMETER_LAYER_KINDS + (int)kind -
           (kind < SP_PARAMETER_LAYER_KINDS ? 0 : SP_PARAMETER_LAYER_KINDS);
}

static inline int sp_i_exec_slots(int layers)
{
    return sp_i_exec_slot(layers, SP_PARAMETER_KINDS);
}

enum { SP_I_EXEC_WEIGHT_NAME = 64 };

// Rows that are neighbours in the whole tensor too.
typedef struct sp_i_exec_row_run {
    int64_t rows, from;
} sp_i_exec_row_run;

enum { SP_I_EXEC_ROW_RUNS = 3 }; // queries, keys, values

typedef struct sp_i_exec_weight {
    char name[SP_I_EXEC_WEIGHT_NAME]; // in the whole model: "layers.3.qkv.weight"
    int chunk, slot;
    int64_t offset; // among the rank's parameters
    int64_t elements, rows, columns;
    // The whole tensor, and what of it these are. Rows behind the last run are padding, always 0.
    int64_t all_rows, all_columns;
    sp_i_exec_row_run run[SP_I_EXEC_ROW_RUNS];
    int64_t first_column;
    // Elements whose gradient each tensor-parallel rank has a part of, and how many neighbouring
    // ranks have the same elements; 0 where gradients are complete or alike.
    int64_t shared_first, shared_elements;
    int shared_by;
    bool decays;
    bool copy;      // an earlier pipeline rank holds the same elements under the same name
    bool continued; // an earlier pipeline rank holds other rows of it
    double centre;  // starting values are spread evenly around it
    double spread;  // standard deviation
} sp_i_exec_weight;

typedef struct sp_i_exec_weights {
    sp_i_exec_weight *items;
    size_t count, capacity;
    int64_t elements; // of all
} sp_i_exec_weights;

// All chunks of a rank, in the order of sim/model/parameter_list; `stages` are all
// virtual stages. Owned by the caller.
void sp_i_exec_weights_make(const sp_model *model, const sp_layout *layout, const sp_stage *stages,
                            int pp, int tp_rank, sp_i_exec_weights *weights);
void sp_i_exec_weights_fini(sp_i_exec_weights *weights);

// Where a rank's element stands in the whole tensor; -1: padding.
int64_t sp_i_exec_weight_index(const sp_i_exec_weight *weight, int64_t element);

// Starting value of a rank's element: by the run's seed, the tensor's name and the place in the
// whole tensor alone, so that every layout starts from the same model. `tensor_seed` is
// sp_i_exec_weight_seed's.
uint64_t sp_i_exec_weight_seed(const sp_i_exec_weight *weight, uint64_t seed);
double sp_i_exec_weight_start(const sp_i_exec_weight *weight, uint64_t tensor_seed,
                              int64_t element);

#endif
