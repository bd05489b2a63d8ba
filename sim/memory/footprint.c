#include "sim/memory/footprint.h"

#include "sim/base/units.h"
#include "sim/model/layout.h"

const char *const sp_memory_category_names[] = {
    "parameters", "gradients", "optimizer", "activations",   "kv_cache",  "kv_gradients",
    "logits",     "recompute", "workspace", "communication", "offloaded", NULL,
};

// cuBLAS work spaces that PyTorch holds for good: 32 MiB each on Hopper (CUBLAS_WORKSPACE_CONFIG
// default), for the forward thread, the backward thread and the GEMM that overlaps communication
// (kwai/Megatron-Kwai, branch atc24ae).
enum { BF16 = 2, CUBLAS_WORKSPACES = 3, CUBLAS_WORKSPACE_BYTES = 32 << 20 };

static int64_t work_space_bytes(const sp_stack *stack);
static int64_t sharded(int64_t bytes, int64_t ranks, bool divided);

// The sum over all layers of what a count says of one.
static int64_t in_layers(const sp_model *model, const sp_layout *layout, const sp_stage *stages,
                         int n, int64_t (*of_layer)(const sp_model *, const sp_shard *))
{
    int64_t total = 0;
    for (int k = 0; k < sp_model_kinds(model); k++) {
        sp_model space;
        const sp_model *alike = sp_model_of_kind(model, k, &space);
        sp_shard shard = sp_shard_of(alike, layout);
        int64_t each = of_layer(alike, &shard);
        for (int i = 0; i < n; i++) {
            total += sp_stage_count(&stages[i], model, k) * each;
        }
    }
    return total;
}

int64_t sp_footprint_parameters(const sp_model *model, const sp_layout *layout,
                                const sp_stage *stages, int n)
{
    int64_t vocab = sp_shard_of(model, layout).vocab;
    bool embedding = false;
    bool head = false;
    int64_t parameters = in_layers(model, layout, stages, n, sp_layer_parameters);
    for (int i = 0; i < n; i++) {
        embedding = embedding || stages[i].embedding;
        head = head || stages[i].head;
    }
    // A rank with embedding and LM head of a tied model holds the table once; where two ranks have
    // them, both do.
    // What predicts further tokens looks them up on the head's rank.
    bool looks_up = embedding || (head && model->mtp_layers > 0);
    int tables = model->tied_embeddings ? looks_up || head : looks_up + head;
    parameters += tables * vocab * model->hidden;
    if (embedding && model->positional == SP_LEARNED) {
        parameters += model->max_positions * model->hidden;
    }
    parameters += head && model->head_bias ? vocab : 0;
    if (head) {
        int64_t projection = 2 * model->hidden * (model->hidden / layout->tp);
        parameters += (1 + 3 * model->mtp_layers) * sp_model_norm_parameters(model) +
                      model->mtp_layers * projection;
    }
    return parameters;
}

int64_t sp_footprint_trained_parameters(const sp_model *model, const sp_layout *layout,
                                        const sp_stage *stages, int n)
{
    return sp_model_is_frozen(model)
               ? in_layers(model, layout, stages, n, sp_layer_trained_parameters)
               : sp_footprint_parameters(model, layout, stages, n);
}

int64_t sp_footprint_expert_parameters(const sp_model *model, const sp_layout *layout,
                                       const sp_stage *stages, int n)
{
    return in_layers(model, layout, stages, n, sp_layer_expert_parameters);
}

int64_t sp_footprint_product_weights(const sp_model *model, const sp_layout *layout,
                                     const sp_stage *stages, int n, bool experts_alone)
{
    return in_layers(model, layout, stages, n,
                     experts_alone ? sp_layer_expert_weights : sp_layer_product_weights);
}

// Bytes that weights have less in 4 bits than in BF16.
static int64_t saved_in_4bit(const sp_model *model, const sp_layout *layout, const sp_stage *stages,
                             int n)
{
    return model->frozen_weights == SP_FROZEN_BF16
               ? 0
               : BF16 * in_layers(model, layout, stages, n, sp_layer_product_weights) -
                     in_layers(model, layout, stages, n, sp_layer_packed_bytes);
}

int64_t sp_footprint_gathered(const sp_model *model, const sp_layout *layout,
                              const sp_stage *stages, int n)
{
    return BF16 * sp_footprint_parameters(model, layout, stages, n) -
           saved_in_4bit(model, layout, stages, n);
}

// States of parameters of which so many ranks hold the same and which are kept in `held` bytes;
// `trained` of them are trained.
static void add_states(const sp_layout *layout, const sp_stack *stack, int64_t held,
                       int64_t trained, int64_t ranks, bool reduces, sp_bytes *bytes)
{
    int64_t gradient = (int64_t)sp_stack_gradient_bytes(stack);
    int64_t steps = sp_stack_master_bytes(stack) + 2 * sp_stack_moment_bytes(stack);
    bytes->of[SP_MEM_PARAMETERS] += sharded(held, ranks, sp_layout_zero_in_step(layout) >= 3);
    bytes->of[SP_MEM_GRADIENTS] +=
        sharded(gradient * trained, ranks, sp_layout_zero_in_step(layout) >= 2) +
        (stack->gradient_buckets && reduces ? 2 * trained : 0);
    int64_t optimizer = sharded(steps * trained, ranks, layout->zero >= 1);
    int64_t away = (int64_t)(stack->offload_states * (double)optimizer);
    bytes->of[SP_MEM_OPTIMIZER] += optimizer - away;
    if (stack->offload_states > 0.0) {
        // Beside them a copy of the gradients and one of the bf16 weights, in pinned memory.
        int64_t copies = sharded((gradient + 2) * trained, ranks, layout->zero >= 1);
        bytes->of[SP_MEM_OFFLOADED] += away + (int64_t)(stack->offload_states * (double)copies);
    }
}

// Of parameters, `products` of them weights of FP8 products.
static int64_t held_bytes(const sp_stack *stack, int64_t parameters, int64_t products)
{
    return BF16 * (parameters - products) + sp_fp8_weight_bytes(&stack->precision, products);
}

void sp_footprint_states(const sp_model *model, const sp_layout *layout, const sp_stack *stack,
                         const sp_stage *stages, int n, sp_bytes *bytes)
{
    int64_t parameters = sp_footprint_parameters(model, layout, stages, n);
    int64_t trained = sp_footprint_trained_parameters(model, layout, stages, n);
    bool fp8 = sp_precision_is_fp8(&stack->precision);
    int64_t products = fp8 ? sp_footprint_product_weights(model, layout, stages, n, false) : 0;
    *bytes = (sp_bytes){{0}};
    if (sp_layout_dispatches(layout)) {
        int64_t experts = sp_footprint_expert_parameters(model, layout, stages, n);
        int64_t of_them = fp8 ? sp_footprint_product_weights(model, layout, stages, n, true) : 0;
        int replicas = sp_layout_expert_replicas(layout);
        add_states(layout, stack, held_bytes(stack, experts, of_them), experts, replicas,
                   replicas > 1, bytes);
        parameters -= experts;
        trained -= experts;
        products -= of_them;
    }
    int64_t held =
        held_bytes(stack, parameters, products) - saved_in_4bit(model, layout, stages, n);
    add_states(layout, stack, held, trained, sp_layout_zero_ranks(layout),
               layout->dp * layout->cp > 1, bytes);
    if (model->frozen_weights != SP_FROZEN_BF16) {
        bytes->of[SP_MEM_PARAMETERS] += in_layers(model, layout, stages, n, sp_layer_scale_bytes);
    }
    bytes->of[SP_MEM_WORKSPACE] = work_space_bytes(stack);
    int64_t dummies[SP_DUMMY_GRADIENTS];
    int count = sp_footprint_dummy_gradients(model, layout, stack, stages, n, dummies);
    for (int i = 0; i < count; i++) {
        bytes->of[SP_MEM_WORKSPACE] += dummies[i];
    }
}

int64_t sp_footprint_weight(const sp_model *model, const sp_layout *layout, sp_layer_place step)
{
    sp_shard shard = sp_shard_of(model, layout);
    sp_layer_linear linear;
    return sp_layer_linear_of(model, &shard, step, &linear) ? BF16 * linear.inputs * linear.outputs
                                                            : 0;
}

// Adds a weight's bytes unless one of its shape, with as many columns, is there.
static int add_dummy(int64_t bytes[SP_DUMMY_GRADIENTS], int64_t columns[SP_DUMMY_GRADIENTS],
                     int count, int64_t inputs, int64_t added)
{
    for (int i = 0; i < count; i++) {
        if (columns[i] == inputs && bytes[i] == added) {
            return count;
        }
    }
    bytes[count] = added;
    columns[count] = inputs;
    return added > 0 ? count + 1 : count;
}

// Weights are rows of outputs; a shape may come twice where two widths are equal.
int sp_footprint_dummy_gradients(const sp_model *model, const sp_layout *layout,
                                 const sp_stack *stack, const sp_stage *stages, int n,
                                 int64_t bytes[SP_DUMMY_GRADIENTS])
{
    if (!stack->dummy_weight_gradients || stack->unfused_weight_gradient ||
        sp_model_is_frozen(model)) {
        return 0;
    }
    static const sp_layer_place products[] = {
        SP_STEP_FC1,       SP_STEP_FC2,         SP_STEP_QKV,        SP_STEP_Q,
        SP_STEP_Q_DOWN,    SP_STEP_Q_UP,        SP_STEP_KV_DOWN,    SP_STEP_KV_UP,
        SP_STEP_OUTPUT,    SP_STEP_SHARED_FC1,  SP_STEP_SHARED_FC2, SP_STEP_STATE_IN,
        SP_STEP_STATE_OUT, SP_STEP_EXPERT_DOWN, SP_STEP_EXPERT_UP};
    int64_t columns[SP_DUMMY_GRADIENTS];
    int count = 0;
    for (int k = 0; k < sp_model_kinds(model); k++) {
        sp_model space;
        const sp_model *alike = sp_model_of_kind(model, k, &space);
        const sp_shard shard = sp_shard_of(alike, layout);
        int layers = 0;
        for (int i = 0; i < n; i++) {
            layers += sp_stage_count(&stages[i], model, k);
        }
        for (size_t p = 0; layers > 0 && p < sizeof products / sizeof products[0]; p++) {
            sp_layer_linear of;
            if (sp_layer_linear_of(alike, &shard, products[p], &of)) {
                count = add_dummy(bytes, columns, count, of.inputs, BF16 * of.inputs * of.outputs);
            }
        }
    }
    if (stages[n - 1].head) {
        bytes[count++] = BF16 * sp_shard_of(model, layout).vocab * model->hidden;
    }
    return count;
}

int64_t sp_footprint_kv_gradient_bytes(const sp_stack *stack)
{
    return sp_stack_counts_device(stack) ? 4 : 2;
}

// cos and sin of every position, bf16, on a GPU fp32.
int64_t sp_footprint_rotary(const sp_model *model, const sp_stack *stack, int64_t positions)
{
    bool lasts = stack->tensors == SP_TENSORS_EXPLICIT && model->positional == SP_ROPE;
    int64_t number = sp_stack_counts_device(stack) ? 4 : 2;
    return lasts ? sp_mul_bytes(positions, 2 * number * (sp_model_rotary_dim(model) / 2)) : 0;
}

static int64_t work_space_bytes(const sp_stack *stack)
{
    int64_t usual = stack->tensors == SP_TENSORS_EXPLICIT ? 0 : CUBLAS_WORKSPACES;
    int64_t count = stack->work_spaces > 0 ? stack->work_spaces : usual;
    int64_t bytes = stack->work_space_bytes > 0 ? stack->work_space_bytes : CUBLAS_WORKSPACE_BYTES;
    return sp_mul_bytes(count, bytes);
}

static int64_t sharded(int64_t bytes, int64_t ranks, bool divided)
{
    return divided ? sp_ceil_div(bytes, ranks) : bytes;
}
