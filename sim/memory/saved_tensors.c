// The saved tensors of a layer as PyTorch's autograd keeps them in Megatron-LM. Llama family: read
// from kwai/Megatron-Kwai, branch atc24ae (megatron/model/transformer.py,
// core/tensor_parallel/layers.py, core/context_parallel/dattention.py). GPT with unfused attention:
// Korthikanti et al., arXiv 2205.05198, section 4.1: s*b*h*(34 + 5*a*s/h) bytes.
#include "sim/base/units.h"
#include "sim/memory/footprint.h"
#include "sim/model/layer.h"
#include "sim/model/layout.h"

#define LASTING ((sp_layer_operation)0) // of no operation that runs again: kept in every mode

enum { BF16 = 2, FP32 = 4, MASK = 1 }; // bytes of an element; dropout masks take a byte

typedef struct saved_table {
    sp_saved_tensor *rows;
    int count;
    int cp;         // split of what attention and MLP see
    int norm_split; // split of the rest
} saved_table;

// A mode that runs `operation` again drops the tensor: the operation that writes it, or else the
// one that keeps it as its input.
static sp_saved_tensor *add(saved_table *table, const char *name, int64_t row_bytes, int shard,
                            sp_layer_operation operation)
{
    SP_ASSERT(table->count < SP_SAVED_TENSORS);
    sp_saved_tensor *row = &table->rows[table->count++];
    *row = (sp_saved_tensor){.name = name,
                             .row_bytes = row_bytes,
                             .element_bytes = BF16,
                             .shard = shard,
                             .contiguous = true,
                             .kept = sp_recompute_keeping(operation)};
    return row;
}

static saved_table begin(sp_saved_tensor *rows, const sp_layout *layout, const sp_shard *shard)
{
    return (saved_table){rows, 0, layout->cp, layout->cp * shard->norm_split};
}

static void add_norm_inputs(saved_table *table, const sp_model *model, const sp_shard *shard);
static void add_attention(saved_table *table, const sp_shard *shard,
                          const sp_memory_options *options);
static void add_mlp(saved_table *table, const sp_model *model, const sp_shard *shard,
                    const sp_stack *stack);

int sp_saved_layer(const sp_model *model, const sp_layout *layout, const sp_memory_options *options,
                   sp_saved_tensor rows[SP_SAVED_TENSORS])
{
    sp_shard shard = sp_shard_of(model, layout);
    saved_table table = begin(rows, layout, &shard);
    int64_t hidden = BF16 * model->hidden;
    add(&table, "layer input", hidden, table.norm_split, LASTING);
    int input_split = options->stack.keep_gathered_inputs ? table.cp : table.norm_split;
    add(&table, "first norm output", hidden, input_split, SP_LAYER_NORM1);
    if (model->qk_norm && options->stack.tensors == SP_TENSORS_AUTOGRAD) {
        add_norm_inputs(&table, model, &shard);
    }
    add_attention(&table, &shard, options);
    if (shard.dropout) {
        add(&table, "attention block dropout mask", MASK * model->hidden, table.norm_split,
            SP_LAYER_RESIDUAL1)
            ->element_bytes = MASK;
    }
    add(&table, "residual", hidden, table.norm_split, SP_LAYER_RESIDUAL1);
    add(&table, "second norm output", hidden, input_split, SP_LAYER_NORM2);
    add_mlp(&table, model, &shard, &options->stack);
    if (shard.dropout) {
        add(&table, "MLP dropout mask", MASK * model->hidden, table.norm_split, SP_LAYER_RESIDUAL2)
            ->element_bytes = MASK;
    }
    add(&table, "keys and values", 2 * BF16 * shard.kv, table.cp, SP_LAYER_QKV)->is_kv = true;
    if (sp_stack_head_ranks(&options->stack, layout) > 1 || options->stack.transposed_output) {
        // As the attention gave it; the output projection keeps it by tokens.
        add(&table, "attention output in its own order", BF16 * shard.q, table.cp, SP_LAYER_OUTPUT);
    }
    return table.count;
}

// Norms of queries and keys keep copies of what they norm, the attention keeps what they give.
// Values are a view of the projection's output and so hold its other parts too; after rotary
// positions they are copied.
static void add_norm_inputs(saved_table *table, const sp_model *model, const sp_shard *shard)
{
    if (model->positional != SP_ROPE) {
        add(table, "rest of the QKV output", BF16 * (shard->q + shard->kv), table->cp,
            SP_LAYER_QKV);
    }
    add(table, "queries before their norm", BF16 * shard->q, table->cp, SP_LAYER_QKV);
    add(table, "keys before their norm", BF16 * shard->kv, table->cp, SP_LAYER_QKV);
}

// The attention output is the input of the output projection, which keeps it in every mode but
// full recompute.
static void add_attention(saved_table *table, const sp_shard *shard,
                          const sp_memory_options *options)
{
    add(table, "queries", BF16 * shard->q, table->cp, SP_LAYER_QKV);
    if (options->attention == SP_ATTENTION_FLASH) {
        add(table, "attention output", BF16 * shard->q, table->cp, SP_LAYER_OUTPUT);
        add(table, "log-sum-exp", FP32 * shard->heads, table->cp, SP_LAYER_CORE)->element_bytes =
            FP32;
        return;
    }
    int number = options->stack.unfused_softmax ? FP32 : BF16;
    sp_saved_tensor *probabilities = add(table, "probabilities", 0, table->cp, SP_LAYER_CORE);
    probabilities->pair_bytes = number * shard->heads;
    probabilities->element_bytes = number;
    if (shard->dropout) {
        sp_saved_tensor *mask = add(table, "probability dropout mask", 0, table->cp, SP_LAYER_CORE);
        mask->pair_bytes = MASK * shard->heads;
        mask->element_bytes = MASK;
        add(table, "dropped probabilities", 0, table->cp, SP_LAYER_CORE)->pair_bytes =
            BF16 * shard->heads;
    }
    add(table, "attention output", BF16 * shard->q, table->cp, SP_LAYER_OUTPUT);
}

// Mixture of experts without expert parallelism: each token's row is copied for each of its
// experts, and the experts' outputs are kept for the gradient of the router's weights.
static void add_mlp(saved_table *table, const sp_model *model, const sp_shard *shard,
                    const sp_stack *stack)
{
    int64_t ffn = BF16 * shard->ffn * shard->active;
    if (model->experts > 0) {
        add(table, "router probabilities", FP32 * shard->experts, table->norm_split,
            SP_LAYER_ROUTER)
            ->element_bytes = FP32;
        add(table, "expert input", BF16 * model->hidden * shard->active, table->cp,
            SP_LAYER_PERMUTATION);
    }
    bool fused = stack->fused_swiglu || stack->tensors == SP_TENSORS_EXPLICIT;
    if (model->activation == SP_SWIGLU && fused) {
        add(table, "fc1 output", 2 * ffn, table->cp, SP_LAYER_FC1);
    } else if (model->activation == SP_SWIGLU) {
        // Autograd keeps the halves as views of one tensor; a fused recomputing MLP keeps it whole.
        add(table, "fc1 output, gate half", ffn, table->cp, SP_LAYER_ACTIVATION)->contiguous =
            false;
        add(table, "fc1 output, up half", ffn, table->cp, SP_LAYER_ACTIVATION)->contiguous = false;
        add(table, "fc1 output", 2 * ffn, table->cp, SP_LAYER_FC1)->kept &=
            ~sp_recompute_keeping(SP_LAYER_ACTIVATION);
        add(table, "SiLU output", ffn, table->cp, SP_LAYER_ACTIVATION);
    } else {
        add(table, "fc1 output", ffn, table->cp, SP_LAYER_FC1);
    }
    add(table, "fc2 input", ffn, table->cp, SP_LAYER_ACTIVATION);
    if (model->experts > 0) {
        add(table, "expert output", BF16 * model->hidden * shard->active, table->cp, SP_LAYER_FC2);
    }
}

// Mean and deviation of each norm, kept where its output is; of the loss the log-sum-exp.
int sp_saved_statistics(const sp_model *model, const sp_layout *layout, const sp_stack *stack,
                        sp_part part, sp_saved_tensor rows[SP_SAVED_TENSORS])
{
    sp_shard shard = sp_shard_of(model, layout);
    saved_table table = begin(rows, layout, &shard);
    if (stack->tensors != SP_TENSORS_EXPLICIT) {
        return 0;
    }
    if (part == SP_PART_LAYER) {
        add(&table, "statistics of the first norm", 2 * FP32, table.norm_split, SP_LAYER_NORM1);
        add(&table, "statistics of the second norm", 2 * FP32, table.norm_split, SP_LAYER_NORM2);
    } else if (part == SP_PART_HEAD) {
        add(&table, "statistics of the final norm", 2 * FP32, table.norm_split, LASTING);
        add(&table, "log-sum-exp of the logits", FP32, table.cp, LASTING);
    }
    for (int r = 0; r < table.count; r++) {
        rows[r].element_bytes = FP32;
        rows[r].is_statistic = true;
    }
    return table.count;
}

// Recomputation covers layers only, so embedding and head keep theirs in every mode.
int sp_saved_part(const sp_model *model, const sp_layout *layout, const sp_stack *stack,
                  sp_part part, sp_saved_tensor rows[SP_SAVED_TENSORS])
{
    sp_shard shard = sp_shard_of(model, layout);
    saved_table table = begin(rows, layout, &shard);
    if (part == SP_PART_EMBEDDING && shard.dropout) {
        add(&table, "embedding dropout mask", MASK * model->hidden, table.norm_split, LASTING)
            ->element_bytes = MASK;
    }
    if (part == SP_PART_HEAD) {
        add(&table, "final norm input", BF16 * model->hidden, table.norm_split, LASTING);
        add(&table, "final norm output", BF16 * model->hidden,
            stack->keep_gathered_inputs ? table.cp : table.norm_split, LASTING);
        int number = sp_stack_keeps_bf16_logits(stack) ? BF16 : FP32;
        sp_saved_tensor *softmax =
            add(&table, SP_SOFTMAX_NAME, number * shard.vocab, table.cp, LASTING);
        softmax->is_logits = true;
        softmax->element_bytes = number;
    }
    return table.count;
}

int64_t sp_saved_bytes(const sp_saved_tensor *tensor, const sp_layout *layout, int64_t tokens,
                       int64_t pairs)
{
    return sp_mul_bytes(sp_ceil_div(tokens, tensor->shard), tensor->row_bytes) +
           sp_mul_bytes(sp_ceil_div(pairs, layout->cp), tensor->pair_bytes);
}
