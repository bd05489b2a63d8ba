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
static int64_t layer_parameters(const sp_model *model, const sp_shard *shard);
static int64_t norm_parameters(const sp_model *model);
static int64_t sharded(int64_t bytes, int64_t ranks, bool divided);

int64_t sp_footprint_parameters(const sp_model *model, const sp_layout *layout,
                                const sp_stage *stages, int n)
{
    sp_shard shard = sp_shard_of(model, layout);
    bool embedding = false;
    bool head = false;
    int64_t parameters = 0;
    for (int i = 0; i < n; i++) {
        parameters += stages[i].layers * layer_parameters(model, &shard);
        embedding = embedding || stages[i].embedding;
        head = head || stages[i].head;
    }
    // A rank with embedding and LM head of a tied model holds the table once; where two ranks have
    // them, both do.
    int tables = model->tied_embeddings ? embedding || head : embedding + head;
    parameters += tables * shard.vocab * model->hidden;
    if (embedding && model->positional == SP_LEARNED) {
        parameters += model->max_positions * model->hidden;
    }
    return parameters + (head ? norm_parameters(model) : 0);
}

void sp_footprint_states(const sp_model *model, const sp_layout *layout, const sp_stack *stack,
                         const sp_stage *stages, int n, sp_bytes *bytes)
{
    int64_t parameters = sp_footprint_parameters(model, layout, stages, n);
    int64_t ranks = sp_layout_zero_ranks(layout);
    *bytes = (sp_bytes){{0}};
    bytes->of[SP_MEM_PARAMETERS] = sharded(2 * parameters, ranks, layout->zero >= 3);
    bytes->of[SP_MEM_GRADIENTS] =
        sharded((int64_t)sp_stack_gradient_bytes(stack) * parameters, ranks, layout->zero >= 2) +
        (stack->gradient_buckets && layout->dp * layout->cp > 1 ? 2 * parameters : 0);
    bytes->of[SP_MEM_OPTIMIZER] = sharded(12 * parameters, ranks, layout->zero >= 1);
    bytes->of[SP_MEM_WORKSPACE] = work_space_bytes(stack);
    int64_t dummies[SP_DUMMY_GRADIENTS];
    int count = sp_footprint_dummy_gradients(model, layout, stack, stages, n, dummies);
    for (int i = 0; i < count; i++) {
        bytes->of[SP_MEM_WORKSPACE] += dummies[i];
    }
}

void sp_footprint_weights(const sp_model *model, const sp_layout *layout,
                          int64_t bytes[SP_LAYER_WEIGHTS])
{
    sp_shard shard = sp_shard_of(model, layout);
    bytes[SP_WEIGHT_FC1] = BF16 * model->hidden * shard.fc1;
    bytes[SP_WEIGHT_FC2] = BF16 * model->hidden * shard.ffn;
    bytes[SP_WEIGHT_QKV] = BF16 * model->hidden * (shard.q + 2 * shard.kv);
    bytes[SP_WEIGHT_OUTPUT] = BF16 * model->hidden * shard.q;
}

// Weights are rows of outputs: fc1 and QKV have `hidden` columns, fc2 and the output projection
// `hidden` rows, so that a shape may come twice where two widths are equal.
int sp_footprint_dummy_gradients(const sp_model *model, const sp_layout *layout,
                                 const sp_stack *stack, const sp_stage *stages, int n,
                                 int64_t bytes[SP_DUMMY_GRADIENTS])
{
    if (!stack->dummy_weight_gradients || stack->unfused_weight_gradient) {
        return 0;
    }
    int64_t all[SP_LAYER_WEIGHTS];
    sp_footprint_weights(model, layout, all);
    int count = 0;
    bytes[count++] = all[SP_WEIGHT_FC1];
    bytes[count++] = all[SP_WEIGHT_FC2];
    if (all[SP_WEIGHT_QKV] != all[SP_WEIGHT_FC1]) {
        bytes[count++] = all[SP_WEIGHT_QKV];
    }
    if (all[SP_WEIGHT_OUTPUT] != all[SP_WEIGHT_FC2]) {
        bytes[count++] = all[SP_WEIGHT_OUTPUT];
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
    return lasts ? sp_mul_bytes(positions, 2 * number * (model->head_dim / 2)) : 0;
}

static int64_t work_space_bytes(const sp_stack *stack)
{
    int64_t usual = stack->tensors == SP_TENSORS_EXPLICIT ? 0 : CUBLAS_WORKSPACES;
    int64_t count = stack->work_spaces > 0 ? stack->work_spaces : usual;
    int64_t bytes = stack->work_space_bytes > 0 ? stack->work_space_bytes : CUBLAS_WORKSPACE_BYTES;
    return sp_mul_bytes(count, bytes);
}

// One layer on one TP rank: projections and their column-split biases are divided, norms, router
// and the biases after a reduction are not.
static int64_t layer_parameters(const sp_model *model, const sp_shard *shard)
{
    int64_t h = model->hidden;
    int64_t qkv = shard->q + 2 * shard->kv;
    int64_t attention = h * qkv + h * shard->q;
    int64_t mlp = h * shard->fc1 + h * shard->ffn;
    if (model->bias || model->qkv_bias) {
        attention += qkv;
    }
    if (model->bias) {
        attention += h;
        mlp += shard->fc1 + h;
    }
    if (model->qk_norm) {
        attention += 2 * (model->norm == SP_LAYERNORM ? 2 : 1) * model->head_dim;
    }
    int64_t router = model->experts > 0 ? h * model->experts : 0;
    return attention + router + shard->experts * mlp + 2 * norm_parameters(model);
}

static int64_t norm_parameters(const sp_model *model)
{
    return (model->norm == SP_LAYERNORM ? 2 : 1) * model->hidden;
}

static int64_t sharded(int64_t bytes, int64_t ranks, bool divided)
{
    return divided ? sp_ceil_div(bytes, ranks) : bytes;
}
