// The parameters of one rank, tensor by tensor: names, places in the rank and in the whole model,
// and starting values. Tensor-parallel ranks hold rows of the column-parallel matrices (queries,
// keys and values, gate and up each cut by itself) and of the vocabulary tables, columns of the
// row-parallel ones, and all of the rest.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_WEIGHTS_H
#define SLIMPACK_BACKENDS_EXECUTOR_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/model/layout.h"
#include "sim/model/model.h"

// Weights are [outputs, inputs], row-major.
typedef enum sp_i_exec_layer_weight {
    SP_I_EXEC_NORM1_WEIGHT,
    SP_I_EXEC_NORM1_BIAS,
    SP_I_EXEC_QKV_WEIGHT, // queries, keys, values
    SP_I_EXEC_QKV_BIAS,
    SP_I_EXEC_PROJECTION_WEIGHT,
    SP_I_EXEC_PROJECTION_BIAS,
    SP_I_EXEC_NORM2_WEIGHT,
    SP_I_EXEC_NORM2_BIAS,
    SP_I_EXEC_FC1_WEIGHT, // gate, then up
    SP_I_EXEC_FC1_BIAS,
    SP_I_EXEC_FC2_WEIGHT,
    SP_I_EXEC_FC2_BIAS,
    SP_I_EXEC_LAYER_WEIGHTS
} sp_i_exec_layer_weight;

typedef enum sp_i_exec_end_weight {
    SP_I_EXEC_TOKEN_TABLE,
    SP_I_EXEC_POSITION_TABLE,
    SP_I_EXEC_FINAL_WEIGHT,
    SP_I_EXEC_FINAL_BIAS,
    SP_I_EXEC_HEAD_TABLE,
    SP_I_EXEC_END_WEIGHTS
} sp_i_exec_end_weight;

// Slots of a virtual stage: those of each layer, then the ends.
static inline int sp_i_exec_layer_slot(int layer, sp_i_exec_layer_weight weight)
{
    return layer * SP_I_EXEC_LAYER_WEIGHTS + (int)weight;
}

static inline int sp_i_exec_end_slot(int layers, sp_i_exec_end_weight weight)
{
    return layers * SP_I_EXEC_LAYER_WEIGHTS + (int)weight;
}

static inline int sp_i_exec_slots(int layers)
{
    return sp_i_exec_end_slot(layers, SP_I_EXEC_END_WEIGHTS);
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
sp_status sp_i_exec_weights_make(const sp_model *model, const sp_layout *layout,
                                 const sp_stage *stages, int pp, int tp_rank,
                                 sp_i_exec_weights *weights, sp_error *err);
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
