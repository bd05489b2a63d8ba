// The saved tensors of a layer as PyTorch's autograd keeps them in Megatron-LM: the rows of
// sim/model/layer.h in bytes. Llama family: read from kwai/Megatron-Kwai, branch atc24ae
// (megatron/model/transformer.py, core/tensor_parallel/layers.py,
// core/context_parallel/dattention.py). GPT with unfused attention: Korthikanti et al., arXiv
// 2205.05198, section 4.1: s*b*h*(34 + 5*a*s/h) bytes. Mixture of experts without expert
// parallelism: each token's row is copied for each of its experts, and the experts' outputs are
// kept for the gradient of the router's weights.
#include "sim/base/units.h"
#include "sim/memory/footprint.h"

// Recomputation covers layers only, so embedding and head keep theirs in every mode, and so does a
// layer its input. Autograd keeps the halves of a SwiGLU in several kernels as views of one tensor;
// only a fused recomputing MLP keeps it whole.
static unsigned modes_keeping(sp_layer_tensor_id id, unsigned conditions)
{
    unsigned modes = sp_recompute_keeping((sp_layer_operation)sp_layer_tensors[id].kept_by);
    bool halves = id == SP_TENSOR_FC1 && (conditions & SP_IF_SPLIT_SWIGLU) != 0;
    return halves ? modes & ~sp_recompute_keeping(SP_LAYER_ACTIVATION) : modes;
}

static bool is_statistic(sp_layer_tensor_id id)
{
    return (sp_layer_tensors[id].conditions & SP_IF_EXPLICIT) != 0;
}

int sp_saved_part(const sp_model *model, const sp_layout *layout, const sp_memory_options *options,
                  sp_part part, sp_saved_tensor rows[SP_SAVED_TENSORS])
{
    sp_shard shard = sp_shard_of(model, layout);
    unsigned conditions = sp_layer_conditions(model, layout, &options->stack, options->attention);
    int64_t widths[SP_LAYER_WIDTHS];
    sp_layer_widths(model, &shard, widths);
    int count = 0;
    for (int t = 0; t < SP_ALL_TENSORS; t++) {
        const sp_layer_tensor *tensor = &sp_layer_tensors[t];
        sp_layer_tensor_id id = (sp_layer_tensor_id)t;
        if (tensor->part != part || !sp_layer_has(tensor, conditions)) {
            continue;
        }
        bool splits = tensor->rows == SP_ROWS_RESIDUAL ||
                      (tensor->rows == SP_ROWS_INPUT && !options->stack.keep_gathered_inputs);
        int element = sp_layer_element_bytes(tensor->type, &options->stack);
        int64_t bytes = element * widths[tensor->width];
        bool pairs = tensor->rows == SP_ROWS_PAIRS;
        rows[count++] = (sp_saved_tensor){.id = id,
                                          .name = tensor->name,
                                          .row_bytes = pairs ? 0 : bytes,
                                          .pair_bytes = pairs ? bytes : 0,
                                          .element_bytes = element,
                                          .shard = layout->cp * (splits ? shard.norm_split : 1),
                                          .is_kv = id == SP_TENSOR_KEYS_VALUES,
                                          .is_logits = id == SP_TENSOR_LOGITS,
                                          .is_statistic = is_statistic(id),
                                          .contiguous = id != SP_TENSOR_GATE && id != SP_TENSOR_UP,
                                          .kept = modes_keeping(id, conditions)};
    }
    return count;
}

sp_memory_category sp_saved_category(const sp_saved_tensor *tensor)
{
    return tensor->is_logits      ? SP_MEM_LOGITS
           : tensor->is_statistic ? SP_MEM_WORKSPACE
                                  : SP_MEM_ACTIVATIONS;
}

int64_t sp_saved_bytes(const sp_saved_tensor *tensor, const sp_layout *layout, int64_t tokens,
                       int64_t pairs)
{
    return sp_mul_bytes(sp_ceil_div(tokens, tensor->shard), tensor->row_bytes) +
           sp_mul_bytes(sp_ceil_div(pairs, layout->cp), tensor->pair_bytes);
}
