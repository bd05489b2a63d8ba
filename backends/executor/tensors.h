// The tensors of a layer and of the head as the executor holds them, sized and kept as the
// saved-tensor table says (sim/model/footprint.h). All have a row for each
// of the pack's rows, or of the rank's own part of them.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_TENSORS_H
#define SLIMPACK_BACKENDS_EXECUTOR_TENSORS_H

#include "backends/executor/arena.h"
#include "sim/model/footprint.h"
#include "sim/model/layout.h"

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
    bool drops;            // the model trains with dropout
    bool keeps_kv;         // of slices that no later slice reads; the others' stay in every mode
    int64_t kv_columns;    // keys, then values
    sp_i_exec_width value; // of hidden states, queries and the like: bf16 in the table
    sp_i_exec_width statistic; // of statistics and sums over tokens: fp32 in the table
    sp_i_exec_width scratch;   // of the kernels' own work spaces, which no table has
} sp_i_exec_specs;

// For values of `real_bytes` and statistics of `exact_bytes`. SwiGLU is one kernel whatever the
// stack says. The table has no norm statistics: they are kept where the norm's output is, as
// workspace.
void sp_i_exec_specs_make(const sp_model *model, const sp_layout *layout, sp_recompute recompute,
                          int64_t real_bytes, int64_t exact_bytes, sp_i_exec_specs *specs);

#endif
