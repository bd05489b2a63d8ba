#include "sim/model/layer.h"

#include <stddef.h>

#define NAME(identifier, name, operations) name,
const char *const sp_recompute_names[] = {SP_RECOMPUTE_ROWS(NAME) NULL};
#undef NAME

#define OPERATIONS(identifier, name, operations) (operations),
static const unsigned repeated[] = {SP_RECOMPUTE_ROWS(OPERATIONS)};
#undef OPERATIONS

bool sp_recompute_repeats(sp_recompute mode, sp_layer_operation operation)
{
    return (repeated[mode] & operation) != 0;
}

bool sp_recompute_is_whole(sp_recompute mode)
{
    return repeated[mode] == SP_LAYER_ALL;
}

unsigned sp_recompute_keeping(sp_layer_operation operation)
{
    unsigned modes = 0;
    for (unsigned m = 0; m < SP_RECOMPUTE_MODES; m++) {
        modes |= sp_recompute_repeats((sp_recompute)m, operation) ? 0 : 1u << m;
    }
    return modes;
}

// The names of steps of both passes are those of Megatron-LM's layer.
#define BOTH(name) name, name
const sp_layer_step sp_layer_steps[SP_LAYER_STEPS] = {
    {SP_LAYER_NORM1, SP_LAYER_KIND_NORM, BOTH("first norm")},
    {SP_LAYER_QKV, SP_LAYER_KIND_GATHER, "gather of the attention input",
     "reduction of the attention input's gradient"},
    {SP_LAYER_QKV, SP_LAYER_KIND_LINEAR, BOTH("QKV projection")},
    {SP_LAYER_QKV, SP_LAYER_KIND_ELEMENTWISE, BOTH("element-wise work on queries and keys")},
    {SP_LAYER_CORE, SP_LAYER_KIND_ATTENTION, BOTH("attention")},
    {SP_LAYER_OUTPUT, SP_LAYER_KIND_LINEAR, BOTH("output projection")},
    {SP_LAYER_OUTPUT, SP_LAYER_KIND_REDUCE, "reduction of the attention output",
     "gather of the attention output's gradient"},
    {SP_LAYER_RESIDUAL1, SP_LAYER_KIND_RESIDUAL, BOTH("first residual add")},
    {SP_LAYER_NORM2, SP_LAYER_KIND_NORM, BOTH("second norm")},
    {SP_LAYER_ROUTER, SP_LAYER_KIND_LINEAR, BOTH("router")},
    {SP_LAYER_FC1, SP_LAYER_KIND_GATHER, "gather of the MLP input",
     "reduction of the MLP input's gradient"},
    {SP_LAYER_PERMUTATION, SP_LAYER_KIND_PERMUTATION, "expert permutation", NULL},
    {SP_LAYER_FC1, SP_LAYER_KIND_LINEAR, BOTH("first MLP projection")},
    {SP_LAYER_ACTIVATION, SP_LAYER_KIND_ACTIVATION, BOTH("activation function")},
    {SP_LAYER_FC2, SP_LAYER_KIND_LINEAR, BOTH("second MLP projection")},
    {SP_LAYER_FC2, SP_LAYER_KIND_PERMUTATION, NULL, "expert permutation"},
    {SP_LAYER_FC2, SP_LAYER_KIND_REDUCE, "reduction of the MLP output",
     "gather of the MLP output's gradient"},
    {SP_LAYER_RESIDUAL2, SP_LAYER_KIND_RESIDUAL, BOTH("second residual add")},
};

#define TENSOR(identifier, tensor_name, of_part, of_width, of_rows, of_type, operation, made_by, \
               read, end, needs)                                                                 \
    [SP_TENSOR_##identifier] = {.name = tensor_name,                                             \
                                .part = SP_PART_##of_part,                                       \
                                .width = SP_WIDTH_##of_width,                                    \
                                .rows = SP_ROWS_##of_rows,                                       \
                                .type = SP_TYPE_##of_type,                                       \
                                .kept_by = (operation),                                          \
                                .made = SP_##made_by,                                            \
                                .last_read = SP_##read,                                          \
                                .scope = SP_##end,                                               \
                                .conditions = (needs)},
const sp_layer_tensor sp_layer_tensors[SP_ALL_TENSORS] = {SP_LAYER_TENSOR_ROWS(TENSOR)};
#undef TENSOR

unsigned sp_layer_conditions(const sp_model *model, const sp_layout *layout, const sp_stack *stack,
                             sp_attention attention)
{
    bool is_explicit = stack->tensors == SP_TENSORS_EXPLICIT;
    bool swiglu = model->activation == SP_SWIGLU;
    bool reorders = sp_stack_head_ranks(stack, layout) > 1 || stack->transposed_output;
    return (attention == SP_ATTENTION_FLASH ? SP_IF_FLASH : SP_IF_UNFUSED) |
           (sp_shard_of(model, layout).dropout ? SP_IF_DROPOUT : 0) |
           (model->experts > 0 ? SP_IF_ROUTED : 0) | (is_explicit ? SP_IF_EXPLICIT : 0) |
           (model->qk_norm && !is_explicit ? SP_IF_QK_NORM : 0) |
           (model->positional != SP_ROPE ? SP_IF_VIEWED_VALUES : 0) |
           (swiglu && !stack->fused_swiglu && !is_explicit ? SP_IF_SPLIT_SWIGLU : 0) |
           (reorders ? SP_IF_REORDERED : 0);
}

void sp_layer_widths(const sp_model *model, const sp_shard *shard, int64_t widths[SP_LAYER_WIDTHS])
{
    widths[SP_WIDTH_ONE] = 1;
    widths[SP_WIDTH_TWO] = 2;
    widths[SP_WIDTH_HIDDEN] = model->hidden;
    widths[SP_WIDTH_ROUTED] = model->hidden * shard->active;
    widths[SP_WIDTH_Q] = shard->q;
    widths[SP_WIDTH_K] = shard->kv;
    widths[SP_WIDTH_QK] = shard->q + shard->kv;
    widths[SP_WIDTH_KV] = 2 * shard->kv;
    widths[SP_WIDTH_HEADS] = shard->heads;
    widths[SP_WIDTH_EXPERTS] = shard->experts;
    widths[SP_WIDTH_FFN] = shard->ffn * shard->active;
    widths[SP_WIDTH_FC1] = shard->fc1 * shard->active;
    widths[SP_WIDTH_VOCAB] = shard->vocab;
}

int sp_layer_element_bytes(sp_layer_type type, const sp_stack *stack)
{
    enum { BF16 = 2, FP32 = 4 };
    switch (type) {
    case SP_TYPE_BYTE:
        return 1;
    case SP_TYPE_FP32:
        return FP32;
    case SP_TYPE_SOFTMAX:
        return stack->unfused_softmax ? FP32 : BF16;
    case SP_TYPE_LOGITS:
        return sp_stack_keeps_bf16_logits(stack) ? BF16 : FP32;
    default:
        return BF16;
    }
}
