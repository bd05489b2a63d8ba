#include "sim/model/layer.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "sim/base/units.h"

#define STEP(identifier, of_operation, of_kind, forward_name, backward_name, ...) \
    [SP_STEP_##identifier] = {.operation = SP_LAYER_##of_operation,               \
                              .kind = SP_LAYER_KIND_##of_kind,                    \
                              .forward = (forward_name),                          \
                              .backward = (backward_name),                        \
                              __VA_ARGS__},
const sp_layer_step sp_layer_steps[SP_LAYER_STEPS] = {SP_LAYER_STEP_ROWS(STEP)};
#undef STEP

#define TENSOR(identifier, tensor_name, of_part, of_width, of_rows, of_type, operation, made_by, \
               read, end, back, needs)                                                           \
    [SP_TENSOR_##identifier] = {.name = tensor_name,                                             \
                                .part = SP_PART_##of_part,                                       \
                                .width = SP_WIDTH_##of_width,                                    \
                                .rows = SP_ROWS_##of_rows,                                       \
                                .type = SP_TYPE_##of_type,                                       \
                                .kept_by = (operation),                                          \
                                .made = SP_##made_by,                                            \
                                .last_read = SP_##read,                                          \
                                .scope = SP_##end,                                               \
                                .read_back = SP_##back,                                          \
                                .conditions = (needs)},
_Static_assert(SP_LAYER_TENSORS <= 128, "sets of a layer's tensors are 128 bits");
const sp_layer_tensor sp_layer_tensors[SP_ALL_TENSORS] = {SP_LAYER_TENSOR_ROWS(TENSOR)};
#undef TENSOR

static uint64_t attention_conditions(const sp_model *model)
{
    bool latent = sp_model_is_latent(model);
    if (sp_mixer_has_state(model->mixer)) {
        return SP_IF_STATE | SP_IF_MIXER;
    }
    if (model->mixer == SP_MIXER_NONE) {
        return 0;
    }
    return SP_IF_ATTENTION | SP_IF_MIXER | (model->attention_gate ? SP_IF_ATTENTION_GATE : 0) |
           (latent ? SP_IF_LATENT : SP_IF_JOINT_QKV) |
           (latent && model->q_lora_rank > 0 ? SP_IF_QUERY_LATENT : SP_IF_QUERIES_OF_HIDDEN);
}

static uint64_t mlp_conditions(const sp_model *model)
{
    if (model->without_mlp) {
        return 0;
    }
    return SP_IF_MLP | (model->experts > 0 ? SP_IF_ROUTED : 0) |
           (model->experts > 0 && model->expert_latent > 0 ? SP_IF_EXPERT_LATENT : 0) |
           (model->shared_ffn > 0 ? SP_IF_SHARED : 0) |
           (model->shared_gate ? SP_IF_SHARED_GATE : 0);
}

uint64_t sp_layer_model_conditions(const sp_model *model)
{
    return attention_conditions(model) | mlp_conditions(model) |
           (model->post_norms_alone ? 0 : SP_IF_NORMED_INPUTS) |
           (model->post_norms_alone || model->blocks == SP_BLOCKS_ONE_NORM ? 0
                                                                           : SP_IF_SECOND_NORM) |
           (model->blocks == SP_BLOCKS_IN_TURN ? SP_IF_IN_TURN : 0);
}

sp_layer_tensor_id sp_layer_reads(uint64_t conditions, sp_layer_place step)
{
    sp_layer_tensor_id reads = sp_layer_steps[step].reads;
    bool normed = (conditions & SP_IF_NORMED_INPUTS) != 0;
    bool in_turn = (conditions & SP_IF_IN_TURN) != 0;
    if (reads == SP_TENSOR_NORM2 && (conditions & SP_IF_SECOND_NORM) == 0) {
        reads = in_turn ? SP_TENSOR_RESIDUAL : SP_TENSOR_NORM1;
    }
    bool first = reads == SP_TENSOR_RESIDUAL && (!in_turn || (conditions & SP_IF_MIXER) == 0);
    return first || (reads == SP_TENSOR_NORM1 && !normed) ? SP_TENSOR_INPUT : reads;
}

bool sp_layer_has_step(const sp_model *model, const sp_layer_step *step)
{
    return (step->conditions & ~sp_layer_model_conditions(model)) == 0;
}

// The condition under which a projection has adapters; 0: none may.
static uint64_t adapters_condition(sp_layer_place step)
{
    return step == SP_STEP_QKV                          ? SP_IF_QKV_ADAPTERS
           : step == SP_STEP_OUTPUT                     ? SP_IF_OUTPUT_ADAPTERS
           : step == SP_STEP_FC1 || step == SP_STEP_FC2 ? SP_IF_MLP_ADAPTERS
                                                        : 0;
}

static uint64_t adapter_conditions(const sp_model *model)
{
    uint64_t attention = SP_IF_QKV_ADAPTERS;
    if (!sp_model_is_frozen(model)) {
        return SP_IF_TRAINED;
    }
    attention |= model->lora_targets == SP_LORA_QUERY_VALUE ? 0 : SP_IF_OUTPUT_ADAPTERS;
    bool alone =
        model->lora_targets == SP_LORA_ATTENTION || model->lora_targets == SP_LORA_QUERY_VALUE;
    return (model->lora_dropout ? SP_IF_ADAPTER_DROPOUT : 0) |
           (model->lora_targets == SP_LORA_MLP ? 0 : attention) | (alone ? 0 : SP_IF_MLP_ADAPTERS);
}

bool sp_layer_reads_input(uint64_t conditions, sp_layer_place step)
{
    bool adapts = (conditions & adapters_condition(step)) != 0;
    return (conditions & SP_IF_TRAINED) != 0 ||
           (adapts && (conditions & SP_IF_ADAPTER_DROPOUT) == 0);
}

static bool copies_inputs(const sp_step_precision *precision)
{
    return sp_precision_is_fp8(precision) && !sp_fp8_keeps_original(precision);
}

uint64_t sp_layer_conditions(const sp_model *model, const sp_layout *layout, const sp_stack *stack,
                             sp_attention attention)
{
    bool is_explicit = stack->tensors == SP_TENSORS_EXPLICIT;
    // Megatron-LM's fused activations that take the probabilities are of gated units.
    bool weighted = stack->memory_efficient_permutation && !is_explicit &&
                    !(sp_model_is_gated(model) && stack->fused_swiglu);
    bool reorders = sp_stack_head_ranks(stack, layout) > 1 || stack->transposed_output;
    return sp_layer_model_conditions(model) |
           (attention == SP_ATTENTION_FLASH ? SP_IF_FLASH : SP_IF_UNFUSED) |
           (sp_shard_of(model, layout).dropout ? SP_IF_DROPOUT : 0) |
           (is_explicit ? SP_IF_EXPLICIT : 0) |
           (model->qk_norm && !is_explicit ? SP_IF_QK_NORM : 0) |
           (model->positional != SP_ROPE ? SP_IF_VIEWED_VALUES : 0) |
           (sp_model_is_gated(model) && !stack->fused_swiglu && !is_explicit ? SP_IF_SPLIT_SWIGLU
                                                                             : 0) |
           (reorders ? SP_IF_REORDERED : 0) |
           (stack->unfused_norms && !is_explicit ? SP_IF_UNFUSED_NORMS : 0) |
           (sp_stack_loss_chunks(stack) == 0 ? SP_IF_WHOLE_LOSS : 0) |
           (weighted ? SP_IF_WEIGHTED : 0) | (model->post_norms ? SP_IF_POST_NORMS : 0) |
           (model->mtp_layers > 0 ? SP_IF_MTP : 0) |
           (sp_precision_is_fp8(&stack->precision) ? SP_IF_FP8 : 0) |
           (copies_inputs(&stack->precision) ? SP_IF_FP8_COPIES : 0) | adapter_conditions(model);
}

sp_shard sp_shard_of(const sp_model *model, const sp_layout *layout)
{
    int64_t tp = layout->tp;
    // Fewer key and value heads than ranks: each rank holds one whole head.
    int64_t kv_heads = model->kv_heads >= tp ? model->kv_heads / tp : 1;
    int64_t halves = sp_model_is_gated(model) ? 2 : 1;
    bool dispatches = model->experts > 0 && sp_layout_dispatches(layout);
    int64_t etp = dispatches ? sp_layout_etp(layout) : tp;
    int64_t common = sp_gcd(etp, tp);
    int64_t experts = model->experts > 0 ? model->experts : 1;
    sp_shard shard = {
        .tp = layout->tp,
        .heads = model->heads / tp,
        .q = model->heads / tp * model->head_dim,
        .k = kv_heads * model->head_dim,
        .v = kv_heads * sp_model_v_dim(model),
        .context = model->heads / tp * sp_model_v_dim(model),
        .expert =
            model->experts > 0 && model->expert_latent > 0 ? model->expert_latent : model->hidden,
        .ffn = model->ffn / etp,
        .fc1 = halves * (model->ffn / etp),
        .shared_ffn = model->shared_ffn / tp,
        .shared_fc1 = halves * (model->shared_ffn / tp),
        .state_heads = model->state_heads / tp,
        .state_values = model->state_heads / tp * model->state_head_dim,
        .state_keys = model->state_groups / tp * model->state_dim,
        .vocab = sp_ceil_div(model->vocab, tp * (layout->vocab_parallel ? layout->pp : 1)),
        .experts = experts,
        .held = experts / (dispatches ? sp_layout_ep(layout) : 1),
        .active = model->experts > 0 ? model->experts_per_token : 1,
        .rows_of = etp / common,
        .rows_over = tp / common,
        .dispatches = dispatches,
        .norm_split = layout->sequence_parallel ? layout->tp : 1,
        .dropout = model->dropout == SP_DROPOUT_USUAL ? model->activation == SP_GELU
                                                      : model->dropout == SP_DROPOUT_ON,
    };
    shard.capacity = (sp_expert_capacity){
        .factor = model->experts > 0 ? model->expert_capacity_factor : 0.0,
        .experts = shard.experts,
        .active = shard.active,
        .split = shard.norm_split,
    };
    return shard;
}

int64_t sp_capacity_tokens(const sp_expert_capacity *capacity, const sp_layout *layout,
                           int64_t tokens)
{
    if (!(capacity->factor > 0.0)) {
        return tokens;
    }
    int64_t ranks = (int64_t)layout->cp * capacity->split;
    double routed = (double)sp_mul_bytes(sp_ceil_div(tokens, ranks), capacity->active);
    double each = ceil(routed / (double)capacity->experts * capacity->factor);
    return (int64_t)ceil(each * (double)capacity->experts / (double)capacity->active) * ranks;
}

int64_t sp_layer_mlp_rows(const sp_shard *shard, const sp_layout *layout, int64_t tokens)
{
    int64_t routed = sp_capacity_tokens(&shard->capacity, layout, tokens);
    return sp_mul_bytes(sp_ceil_div(routed, layout->cp * shard->rows_over), shard->rows_of);
}

// Outputs of the adapters of a projection: parts of the projection's own, or all of them.
static int adapter_outputs(const sp_model *model, const sp_shard *shard, sp_layer_place step,
                           int64_t outputs[3])
{
    bool whole = model->lora_targets == SP_LORA_MEGATRON;
    int count = 0;
    if (step == SP_STEP_QKV && !whole) {
        outputs[count++] = shard->q;
        if (model->lora_targets != SP_LORA_QUERY_VALUE) {
            outputs[count++] = shard->k;
        }
        outputs[count++] = shard->v;
        return count;
    }
    bool halves = step == SP_STEP_FC1 && sp_model_is_gated(model) && !whole;
    outputs[count++] = step == SP_STEP_QKV   ? shard->q + shard->k + shard->v
                       : step != SP_STEP_FC1 ? sp_ceil_div(model->hidden, shard->tp)
                       : halves              ? shard->ffn
                                             : shard->fc1;
    if (halves) {
        outputs[count++] = shard->ffn;
    }
    return count;
}

sp_layer_adapters sp_layer_adapters_of(const sp_model *model, const sp_shard *shard,
                                       sp_layer_place step)
{
    sp_layer_adapters adapters = {.rank = model->lora_rank,
                                  .column = sp_layer_enters(&sp_layer_steps[step])};
    if ((adapter_conditions(model) & adapters_condition(step)) == 0) {
        return adapters;
    }
    bool whole = model->lora_targets == SP_LORA_MEGATRON;
    bool qkv = step == SP_STEP_QKV;
    adapters.count = adapter_outputs(model, shard, step, adapters.outputs);
    adapters.inputs = adapters.column          ? model->hidden
                      : step == SP_STEP_OUTPUT ? shard->context
                                               : shard->ffn;
    adapters.low = adapters.column ? sp_ceil_div(model->lora_rank, shard->tp) : model->lora_rank;
    adapters.input_width = sp_layer_steps[step].inputs;
    adapters.output_width = !adapters.column      ? SP_WIDTH_HIDDEN
                            : qkv                 ? (whole ? SP_WIDTH_QKV : SP_WIDTH_Q)
                            : adapters.count == 1 ? SP_WIDTH_FC1
                                                  : SP_WIDTH_FFN;
    adapters.low_width = qkv                      ? SP_WIDTH_LOW_QKV
                         : step == SP_STEP_OUTPUT ? SP_WIDTH_LOW_OUTPUT
                         : step == SP_STEP_FC1    ? SP_WIDTH_LOW_FC1
                                                  : SP_WIDTH_LOW_FC2;
    return adapters;
}

static void adapter_widths(const sp_model *model, const sp_shard *shard,
                           int64_t widths[SP_LAYER_WIDTHS])
{
    static const sp_layer_place steps[] = {SP_STEP_QKV, SP_STEP_OUTPUT, SP_STEP_FC1, SP_STEP_FC2};
    memset(&widths[SP_WIDTH_LOW_QKV], 0, 4 * sizeof *widths);
    memset(&widths[SP_WIDTH_DROPPED_QKV], 0, 4 * sizeof *widths);
    for (int i = 0; sp_model_is_frozen(model) && i < 4; i++) {
        const sp_layer_adapters adapters = sp_layer_adapters_of(model, shard, steps[i]);
        widths[SP_WIDTH_LOW_QKV + i] = adapters.count * adapters.rank;
        widths[SP_WIDTH_DROPPED_QKV + i] = adapters.count * adapters.inputs;
    }
}

void sp_layer_widths(const sp_model *model, const sp_shard *shard, int64_t widths[SP_LAYER_WIDTHS])
{
    widths[SP_WIDTH_ONE] = 1;
    widths[SP_WIDTH_TWO] = 2;
    widths[SP_WIDTH_HIDDEN] = model->hidden;
    widths[SP_WIDTH_EXPERT] = shard->expert;
    widths[SP_WIDTH_EXPERT_LATENT] = model->expert_latent;
    widths[SP_WIDTH_ROUTED] = shard->expert * shard->active;
    widths[SP_WIDTH_Q] = shard->q;
    widths[SP_WIDTH_K] = shard->k;
    widths[SP_WIDTH_V] = shard->v;
    widths[SP_WIDTH_QK] = shard->q + shard->k;
    widths[SP_WIDTH_KV] = shard->k + shard->v;
    widths[SP_WIDTH_QKV] =
        shard->q + shard->k + shard->v + (model->attention_gate ? shard->context : 0);
    widths[SP_WIDTH_CONTEXT] = shard->context;
    // What is let through, what writes into the state and what reads it, and for each head how much
    // is forgotten, with gated DeltaNet how much is written as well.
    widths[SP_WIDTH_STATE_IN] = 2 * (shard->state_values + shard->state_keys) +
                                (model->mixer == SP_MIXER_MAMBA2 ? 1 : 2) * shard->state_heads;
    widths[SP_WIDTH_STATE_CONV] = shard->state_values + 2 * shard->state_keys;
    widths[SP_WIDTH_STATE_VALUES] = shard->state_values;
    widths[SP_WIDTH_Q_LATENT] = model->q_lora_rank;
    widths[SP_WIDTH_KV_LATENT] = model->kv_lora_rank;
    widths[SP_WIDTH_ROTARY] = model->qk_rope_dim;
    widths[SP_WIDTH_KV_DOWN] = model->kv_lora_rank + model->qk_rope_dim;
    widths[SP_WIDTH_KV_UP] = shard->heads * (model->qk_nope_dim + sp_model_v_dim(model));
    widths[SP_WIDTH_HEADS] = shard->heads;
    widths[SP_WIDTH_EXPERTS] = shard->experts;
    widths[SP_WIDTH_ROUTES] = 2 * shard->active;
    widths[SP_WIDTH_FFN] = shard->ffn * shard->active;
    widths[SP_WIDTH_FC1] = shard->fc1 * shard->active;
    widths[SP_WIDTH_SHARED_FFN] = shard->shared_ffn;
    widths[SP_WIDTH_SHARED_FC1] = shard->shared_fc1;
    widths[SP_WIDTH_VOCAB] = shard->vocab;
    widths[SP_WIDTH_LOGITS] = (1 + model->mtp_layers) * shard->vocab;
    widths[SP_WIDTH_MTP] = model->mtp_layers * model->hidden;
    widths[SP_WIDTH_MTP_JOINED] = 2 * model->mtp_layers * model->hidden;
    adapter_widths(model, shard, widths);
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

static bool is_fp8_copy(sp_layer_tensor_id tensor, uint64_t conditions, const sp_stack *stack)
{
    uint64_t shared = tensor == SP_TENSOR_NORM1   ? SP_IF_LATENT
                      : tensor == SP_TENSOR_NORM2 ? SP_IF_ROUTED
                                                  : 0;
    return sp_precision_is_fp8(&stack->precision) &&
           sp_layer_tensors[tensor].type == SP_TYPE_PRODUCT && (conditions & shared) == 0;
}

int64_t sp_layer_tensor_bytes(sp_layer_tensor_id tensor, uint64_t conditions, const sp_stack *stack,
                              int64_t numbers)
{
    return is_fp8_copy(tensor, conditions, stack)
               ? sp_fp8_tensor_bytes(&stack->precision, numbers)
               : numbers * sp_layer_element_bytes(sp_layer_tensors[tensor].type, stack);
}

static bool has_bias(const sp_model *model, sp_layer_place step)
{
    switch (step) {
    case SP_STEP_QKV:
        return model->bias || model->qkv_bias;
    case SP_STEP_OUTPUT:
        return model->bias || model->output_bias;
    case SP_STEP_ROUTER:
        return model->router_bias;
    case SP_STEP_SHARED_GATE:
        return false;
    case SP_STEP_STATE_IN:
    case SP_STEP_STATE_OUT:
        return model->bias;
    default:
        return model->bias || model->mlp_bias;
    }
}

static bool is_linear_of(const sp_model *model, sp_layer_place step)
{
    const sp_layer_step *s = &sp_layer_steps[step];
    return s->kind == SP_LAYER_KIND_LINEAR && sp_layer_has_step(model, s) &&
           (step != SP_STEP_ROUTER || model->experts > 0);
}

static void widths_of_one_expert(const sp_model *model, const sp_shard *shard,
                                 int64_t widths[SP_LAYER_WIDTHS])
{
    sp_shard one_expert = *shard;
    one_expert.active = 1;
    sp_layer_widths(model, &one_expert, widths);
}

static sp_layer_linear linear_of(const sp_model *model, const sp_shard *shard, sp_layer_place step,
                                 const int64_t widths[SP_LAYER_WIDTHS])
{
    const sp_layer_step *s = &sp_layer_steps[step];
    bool is_mlp = step == SP_STEP_FC1 || step == SP_STEP_FC2;
    return (sp_layer_linear){.inputs = widths[s->inputs],
                             .outputs = widths[s->outputs],
                             .weights = is_mlp ? shard->held : 1,
                             .active = is_mlp ? shard->active : 1,
                             .of_experts = is_mlp && model->experts > 0,
                             .bias = has_bias(model, step)};
}

bool sp_layer_linear_of(const sp_model *model, const sp_shard *shard, sp_layer_place step,
                        sp_layer_linear *linear)
{
    if (!is_linear_of(model, step)) {
        return false;
    }
    int64_t widths[SP_LAYER_WIDTHS];
    widths_of_one_expert(model, shard, widths);
    *linear = linear_of(model, shard, step, widths);
    return true;
}

// Of all projections with their biases, or of products without them; of all, or of experts alone.
static int64_t weights_of(const sp_model *model, const sp_shard *shard, bool products_alone,
                          bool experts_alone)
{
    int64_t total = 0;
    int64_t widths[SP_LAYER_WIDTHS]; // once for all: prices of steps ask for parameters often
    widths_of_one_expert(model, shard, widths);
    for (int s = 0; s < SP_LAYER_STEPS; s++) {
        if (!is_linear_of(model, (sp_layer_place)s)) {
            continue;
        }
        const sp_layer_linear linear = linear_of(model, shard, (sp_layer_place)s, widths);
        if ((linear.of_experts || !experts_alone) &&
            (sp_layer_is_product(&sp_layer_steps[s]) || !products_alone)) {
            int64_t bias = linear.bias && !products_alone ? 1 : 0;
            total += linear.weights * linear.outputs * (linear.inputs + bias);
        }
    }
    return total;
}

static int64_t adapter_parameters(const sp_model *model, const sp_shard *shard)
{
    int64_t total = 0;
    for (int s = 0; sp_model_is_frozen(model) && s < SP_LAYER_STEPS; s++) {
        const sp_layer_adapters adapters = sp_layer_adapters_of(model, shard, (sp_layer_place)s);
        total += sp_layer_adapter_parameters(&adapters);
    }
    return total;
}

int64_t sp_layer_state_parameters(const sp_model *model, const sp_shard *shard,
                                  int64_t parts[SP_STATE_PARTS])
{
    bool mamba = model->mixer == SP_MIXER_MAMBA2;
    bool has = sp_mixer_has_state(model->mixer);
    int64_t conv = shard->state_values + 2 * shard->state_keys;
    parts[SP_STATE_CONV_WEIGHT] = has ? conv * model->state_conv : 0;
    parts[SP_STATE_CONV_BIAS] = mamba ? conv : 0;
    parts[SP_STATE_RATES] = has ? (mamba ? 3 : 2) * shard->state_heads : 0;
    parts[SP_STATE_NORM] = !has ? 0 : mamba ? shard->state_values : model->state_head_dim;
    int64_t total = 0;
    for (int p = 0; p < SP_STATE_PARTS; p++) {
        total += parts[p];
    }
    return total;
}

int64_t sp_layer_norms(const sp_model *model)
{
    int blocks = (model->mixer != SP_MIXER_NONE) +
                 (!model->without_mlp && model->blocks != SP_BLOCKS_ONE_NORM);
    return (model->post_norms && !model->post_norms_alone ? 2 : 1) * blocks;
}

int64_t sp_layer_parameters(const sp_model *model, const sp_shard *shard)
{
    bool attends = model->mixer == SP_MIXER_ATTENTION;
    int64_t latents = attends ? model->q_lora_rank + model->kv_lora_rank : 0;
    int64_t norms =
        sp_layer_norms(model) * model->hidden + latents +
        (attends && model->qk_norm ? sp_model_query_norm(model) + sp_model_key_norm(model) : 0);
    int64_t sinks = attends && model->attention_sinks ? shard->heads : 0;
    int64_t parts[SP_STATE_PARTS];
    return (model->norm == SP_LAYERNORM ? 2 : 1) * norms + sinks +
           sp_layer_state_parameters(model, shard, parts) + weights_of(model, shard, false, false) +
           adapter_parameters(model, shard);
}

int64_t sp_layer_trained_parameters(const sp_model *model, const sp_shard *shard)
{
    return sp_model_is_frozen(model) ? adapter_parameters(model, shard)
                                     : sp_layer_parameters(model, shard);
}

int64_t sp_layer_expert_parameters(const sp_model *model, const sp_shard *shard)
{
    return weights_of(model, shard, false, true);
}

bool sp_layer_is_product_weight(sp_parameter_kind kind)
{
    bool found = false;
    for (int s = 0; s < SP_LAYER_STEPS; s++) {
        const sp_layer_step *step = &sp_layer_steps[s];
        found = found || (sp_layer_is_product(step) && step->weight == kind);
    }
    return found;
}

int64_t sp_layer_product_weights(const sp_model *model, const sp_shard *shard)
{
    return weights_of(model, shard, true, false);
}

int64_t sp_layer_expert_weights(const sp_model *model, const sp_shard *shard)
{
    return weights_of(model, shard, true, true);
}

sp_layer_frozen sp_layer_frozen_of(const sp_model *model, const sp_shard *shard,
                                   sp_layer_place step)
{
    sp_layer_frozen frozen = {.tensors = 0};
    sp_layer_linear linear;
    if (model->frozen_weights == SP_FROZEN_BF16 || !sp_layer_is_product(&sp_layer_steps[step]) ||
        !sp_layer_linear_of(model, shard, step, &linear)) {
        return frozen;
    }
    bool halves = step == SP_STEP_FC1 && sp_model_is_gated(model);
    int64_t outputs[3] = {halves ? shard->ffn : linear.outputs, halves ? shard->ffn : 0, 0};
    if (step == SP_STEP_QKV) {
        outputs[0] = shard->q;
        outputs[1] = shard->k;
        outputs[2] = shard->v;
    }
    for (; frozen.tensors < 3 && outputs[frozen.tensors] > 0; frozen.tensors++) {
        int64_t weights = linear.inputs * outputs[frozen.tensors];
        frozen.weights[frozen.tensors] = weights;
        frozen.largest = weights > frozen.largest ? weights : frozen.largest;
    }
    return frozen;
}

static int64_t bytes_in_4bit(const sp_model *model, const sp_shard *shard, bool scales)
{
    int64_t bytes = 0;
    for (int s = 0; s < SP_LAYER_STEPS; s++) {
        const sp_layer_frozen of = sp_layer_frozen_of(model, shard, (sp_layer_place)s);
        for (int t = 0; t < of.tensors; t++) {
            bytes += scales ? sp_4bit_scale_bytes(model->frozen_weights, of.weights[t]) +
                                  sp_4bit_nested_bytes(model->frozen_weights, of.weights[t])
                            : sp_4bit_packed_bytes(of.weights[t]);
        }
    }
    return bytes;
}

int64_t sp_layer_packed_bytes(const sp_model *model, const sp_shard *shard)
{
    return bytes_in_4bit(model, shard, false);
}

int64_t sp_layer_scale_bytes(const sp_model *model, const sp_shard *shard)
{
    return bytes_in_4bit(model, shard, true);
}
