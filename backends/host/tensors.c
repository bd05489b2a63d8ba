#include "backends/host/tensors.h"

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

// A tensor that the table has.
static void set(sp_i_host_specs *specs, sp_i_host_tensor tensor, const saved_rows *rows,
                const char *name, sp_recompute mode)
{
    const sp_saved_tensor *row = find(rows, name);
    specs->of[tensor] = (sp_i_host_spec){
        .name = row->name,
        .columns = row->row_bytes / row->element_bytes,
        .width = {.real_bytes = row->element_bytes == MASK ? MASK : specs->value.real_bytes,
                  .table_bytes = row->element_bytes},
        .category = row->is_logits ? SP_MEM_LOGITS : SP_MEM_ACTIVATIONS,
        .kept = (row->kept >> mode & 1u) != 0,
        .own = row->shard != rows->cp};
}

// A number for each token that the table leaves out; kept with another tensor.
static void set_statistic(sp_i_host_specs *specs, sp_i_host_tensor tensor, sp_i_host_tensor with)
{
    specs->of[tensor] = (sp_i_host_spec){.columns = 1,
                                         .width = specs->exact,
                                         .category = SP_MEM_WORKSPACE,
                                         .kept = specs->of[with].kept,
                                         .own = specs->of[with].own};
}

static void set_layer(const saved_rows *rows, sp_recompute mode, sp_i_host_specs *specs)
{
    set(specs, SP_I_HOST_INPUT, rows, "layer input", mode);
    set(specs, SP_I_HOST_NORM1, rows, "first norm output", mode);
    set(specs, SP_I_HOST_QUERIES, rows, "queries", mode);
    set(specs, SP_I_HOST_ATTENTION, rows, "attention output", mode);
    set(specs, SP_I_HOST_LSE, rows, "log-sum-exp", mode);
    set(specs, SP_I_HOST_RESIDUAL, rows, "residual", mode);
    set(specs, SP_I_HOST_NORM2, rows, "second norm output", mode);
    set(specs, SP_I_HOST_FC1, rows, "fc1 output", mode);
    set(specs, SP_I_HOST_FC2_INPUT, rows, "fc2 input", mode);
    set_statistic(specs, SP_I_HOST_MEAN1, SP_I_HOST_NORM1);
    set_statistic(specs, SP_I_HOST_RSTD1, SP_I_HOST_NORM1);
    set_statistic(specs, SP_I_HOST_MEAN2, SP_I_HOST_NORM2);
    set_statistic(specs, SP_I_HOST_RSTD2, SP_I_HOST_NORM2);
    const sp_saved_tensor *kv = find(rows, "keys and values");
    specs->kv_columns = kv->row_bytes / kv->element_bytes;
    specs->keeps_kv = (kv->kept >> mode & 1u) != 0;
}

// The table has masks only for models that train with dropout.
static void set_masks(const saved_rows *rows, sp_recompute mode, sp_i_host_specs *specs)
{
    set(specs, SP_I_HOST_ATTENTION_MASK, rows, "attention block dropout mask", mode);
    set(specs, SP_I_HOST_MLP_MASK, rows, "MLP dropout mask", mode);
}

static void set_head(const saved_rows *rows, sp_recompute mode, sp_i_host_specs *specs)
{
    set(specs, SP_I_HOST_FINAL_INPUT, rows, "final norm input", mode);
    set(specs, SP_I_HOST_FINAL_NORM, rows, "final norm output", mode);
    set(specs, SP_I_HOST_LOGITS, rows, SP_SOFTMAX_NAME, mode);
    set_statistic(specs, SP_I_HOST_FINAL_MEAN, SP_I_HOST_FINAL_NORM);
    set_statistic(specs, SP_I_HOST_FINAL_RSTD, SP_I_HOST_FINAL_NORM);
    set_statistic(specs, SP_I_HOST_FINAL_LSE, SP_I_HOST_LOGITS);
}

void sp_i_host_specs_make(const sp_model *model, const sp_layout *layout, sp_recompute recompute,
                          int64_t real_bytes, sp_i_host_specs *specs)
{
    const sp_memory_options options = {.recompute = recompute, .stack = {.fused_swiglu = true}};
    saved_rows rows = {.cp = layout->cp};
    *specs = (sp_i_host_specs){
        .value = {real_bytes, BF16}, .exact = {real_bytes, FP32}, .scratch = {real_bytes, 0}};
    rows.count = sp_saved_layer(model, layout, &options, rows.row);
    set_layer(&rows, recompute, specs);
    specs->drops = sp_i_shard_of(model, layout).dropout;
    if (specs->drops) {
        set_masks(&rows, recompute, specs);
        rows.count = sp_saved_part(model, layout, SP_PART_EMBEDDING, rows.row);
        set(specs, SP_I_HOST_EMBEDDING_MASK, &rows, "embedding dropout mask", recompute);
    }
    rows.count = sp_saved_part(model, layout, SP_PART_HEAD, rows.row);
    set_head(&rows, recompute, specs);
}
