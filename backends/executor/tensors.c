#include "backends/executor/tensors.h"

#include <string.h>

enum { BF16 = 2, FP32 = 4, MASK = 1 };

typedef struct saved_rows {
    sp_saved_tensor row[SP_SAVED_TENSORS];
    int count, cp;
} saved_rows;

static const sp_saved_tensor *find(const saved_rows *rows, const char *name)
{
    for (int r = 0; r < rows->count; r++) {
        if (strcmp(rows->row[r].name, name) == 0) {
            return &rows->row[r];
        }
    }
    SP_UNREACHABLE(name);
}

// The table has logits as their softmax in fp32; here they are values.
static int64_t real_bytes_of(const sp_i_exec_specs *specs, const sp_saved_tensor *row)
{
    if (row->element_bytes == MASK) {
        return MASK;
    }
    return row->element_bytes == FP32 && !row->is_logits ? specs->statistic.real_bytes
                                                         : specs->value.real_bytes;
}

// A tensor that the table has.
static void set(sp_i_exec_specs *specs, sp_i_exec_tensor tensor, const saved_rows *rows,
                const char *name, sp_recompute mode)
{
    const sp_saved_tensor *row = find(rows, name);
    specs->of[tensor] = (sp_i_exec_spec){
        .name = row->name,
        .columns = row->row_bytes / row->element_bytes,
        .width = {.real_bytes = real_bytes_of(specs, row), .table_bytes = row->element_bytes},
        .category = row->is_logits ? SP_MEM_LOGITS : SP_MEM_ACTIVATIONS,
        .kept = (row->kept >> mode & 1u) != 0,
        .own = row->shard != rows->cp};
}

// A number for each token that the table leaves out; kept with another tensor.
static void set_statistic(sp_i_exec_specs *specs, sp_i_exec_tensor tensor, sp_i_exec_tensor with)
{
    specs->of[tensor] = (sp_i_exec_spec){.columns = 1,
                                         .width = specs->statistic,
                                         .category = SP_MEM_WORKSPACE,
                                         .kept = specs->of[with].kept,
                                         .own = specs->of[with].own};
}

static void set_layer(const saved_rows *rows, sp_recompute mode, sp_i_exec_specs *specs)
{
    set(specs, SP_I_EXEC_INPUT, rows, "layer input", mode);
    set(specs, SP_I_EXEC_NORM1, rows, "first norm output", mode);
    set(specs, SP_I_EXEC_QUERIES, rows, "queries", mode);
    set(specs, SP_I_EXEC_ATTENTION, rows, "attention output", mode);
    set(specs, SP_I_EXEC_LSE, rows, "log-sum-exp", mode);
    set(specs, SP_I_EXEC_RESIDUAL, rows, "residual", mode);
    set(specs, SP_I_EXEC_NORM2, rows, "second norm output", mode);
    set(specs, SP_I_EXEC_FC1, rows, "fc1 output", mode);
    set(specs, SP_I_EXEC_FC2_INPUT, rows, "fc2 input", mode);
    set_statistic(specs, SP_I_EXEC_MEAN1, SP_I_EXEC_NORM1);
    set_statistic(specs, SP_I_EXEC_RSTD1, SP_I_EXEC_NORM1);
    set_statistic(specs, SP_I_EXEC_MEAN2, SP_I_EXEC_NORM2);
    set_statistic(specs, SP_I_EXEC_RSTD2, SP_I_EXEC_NORM2);
    const sp_saved_tensor *kv = find(rows, "keys and values");
    specs->kv_columns = kv->row_bytes / kv->element_bytes;
    specs->keeps_kv = (kv->kept >> mode & 1u) != 0;
}

// The table has masks only for models that train with dropout.
static void set_masks(const saved_rows *rows, sp_recompute mode, sp_i_exec_specs *specs)
{
    set(specs, SP_I_EXEC_ATTENTION_MASK, rows, "attention block dropout mask", mode);
    set(specs, SP_I_EXEC_MLP_MASK, rows, "MLP dropout mask", mode);
}

static void set_head(const saved_rows *rows, sp_recompute mode, sp_i_exec_specs *specs)
{
    set(specs, SP_I_EXEC_FINAL_INPUT, rows, "final norm input", mode);
    set(specs, SP_I_EXEC_FINAL_NORM, rows, "final norm output", mode);
    set(specs, SP_I_EXEC_LOGITS, rows, SP_SOFTMAX_NAME, mode);
    set_statistic(specs, SP_I_EXEC_FINAL_MEAN, SP_I_EXEC_FINAL_NORM);
    set_statistic(specs, SP_I_EXEC_FINAL_RSTD, SP_I_EXEC_FINAL_NORM);
    set_statistic(specs, SP_I_EXEC_FINAL_LSE, SP_I_EXEC_LOGITS);
}

void sp_i_exec_specs_make(const sp_model *model, const sp_layout *layout, sp_recompute recompute,
                          int64_t real_bytes, int64_t exact_bytes, sp_i_exec_specs *specs)
{
    const sp_memory_options options = {.recompute = recompute, .stack = {.fused_swiglu = true}};
    saved_rows rows = {.cp = layout->cp};
    *specs = (sp_i_exec_specs){
        .value = {real_bytes, BF16}, .statistic = {exact_bytes, FP32}, .scratch = {exact_bytes, 0}};
    rows.count = sp_saved_layer(model, layout, &options, rows.row);
    set_layer(&rows, recompute, specs);
    specs->drops = sp_shard_of(model, layout).dropout;
    if (specs->drops) {
        set_masks(&rows, recompute, specs);
        rows.count = sp_saved_part(model, layout, &options.stack, SP_PART_EMBEDDING, rows.row);
        set(specs, SP_I_EXEC_EMBEDDING_MASK, &rows, "embedding dropout mask", recompute);
    }
    rows.count = sp_saved_part(model, layout, &options.stack, SP_PART_HEAD, rows.row);
    set_head(&rows, recompute, specs);
}
