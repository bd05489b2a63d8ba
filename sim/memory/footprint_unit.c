// What one unit holds between its forward and its backward, and what passes through memory while
// either runs. The transients are maxima over the phases of a pass; the phases follow
// kwai/Megatron-Kwai, branch atc24ae (megatron/model/transformer.py), where Python keeps
// intermediate tensors to the end of the enclosing function.
#include "sim/base/units.h"
#include "sim/memory/explicit_unit.h"
#include "sim/memory/footprint.h"
#include "sim/memory/saved_tensors.h"
#include "sim/model/layout.h"

enum { BF16 = 2, FP32 = 4 };

// Sizes in bytes that the phases are put together from, all on one rank, for layers of one kind.
typedef struct unit {
    const sp_model *model; // of all kinds
    const sp_model *alike; // of the kind: the same, or `space`
    sp_model space;
    const sp_layout *layout;
    const sp_stage *stage;
    int layers;          // of the kind
    unsigned repeated;   // operations
    bool unread_product; // no weight gradient reads the second projection's input
    bool split_swiglu;   // SwiGLU as a kernel for each of its steps
    bool keeps_experts;  // outputs, for the gradient of the router
    bool sequence_split; // hidden states are split over TP outside attention and MLP
    sp_unit_sizes size;
    bool gathered_inputs; // column-parallel layers keep them so
    const sp_stack *stack;
    uint64_t conditions;    // of the layer
    int64_t input;          // of a column-parallel layer, as it is kept
    int64_t score_buffer;   // kept from step to step
    int64_t dropped_scores; // score tensors that are rebuilt
    int64_t all_scores;     // those that full recomputation does
    int64_t dropped_layer;  // what a layer keeps without recomputation less what it keeps with it
    int64_t dropped_mlp;    // of that its MLP
    int64_t softmax;        // of the loss: held, but there only while the head is at work
    int64_t fresh_logits;   // of the head's forward, beyond what is held
    int64_t logit_gradient; // of its backward, in bf16; 0 where it takes the place of the logits
    int64_t table;          // gradient of the output weight as a tensor of its own; 0: none
    bool chunked_loss;      // its gradients are there when the head's forward ends
    bool repeated_loss;     // by chunks that run again in the backward, with their gradients
} unit;

// [kinds]: units of the same stage, of which each stands for layers of its kind.
typedef unit units[SP_LAYER_KINDS];

static void measure(unit *u, const sp_saved_rows *saved, const sp_memory_options *options,
                    const sp_unit_load *load);
static void fill_unit(units u, const sp_saved_parts *parts, const sp_memory_options *options,
                      const sp_unit_load *load, sp_unit_bytes *out);
static void hold(sp_unit_tensor *tensors, int count, double offload_ratio, sp_unit_bytes *out);
static void sum_gradients(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                          const sp_stack *stack, const sp_unit_load *load, sp_unit_bytes *out);
static void run_with_autograd(units u, const sp_unit_load *load, sp_unit_bytes *out);
static void forward_transients(const units u, sp_bytes *bytes);
static void backward_transients(const units u, sp_bytes *bytes);
static void first_transients(const units u, sp_bytes *bytes);
static void add_buffers(const unit *u, int64_t tokens, sp_unit_bytes *out);
static void keep_for_weights(const units u, sp_bytes *bytes);

// All that does not depend on the stage is measured once.
void sp_footprint_units(const sp_saved_parts *parts, const sp_model *model, const sp_layout *layout,
                        const sp_stage *stages, int n, const sp_memory_options *options,
                        const sp_unit_load *load, sp_unit_bytes *out)
{
    units u;
    for (int k = 0; k < sp_model_kinds(model); k++) {
        u[k] = (unit){.model = model, .layout = layout};
        u[k].alike = sp_model_of_kind(model, k, &u[k].space);
        measure(&u[k], &parts->layer[k], options, load);
    }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < sp_model_kinds(model); k++) {
            u[k].stage = &stages[i];
            u[k].layers = sp_stage_count(&stages[i], model, k);
        }
        fill_unit(u, parts, options, load, &out[i]);
    }
}

void sp_footprint_unit(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                       const sp_memory_options *options, const sp_unit_load *load,
                       sp_unit_bytes *out)
{
    sp_saved_parts parts;
    sp_saved_parts_find(model, layout, options, &parts);
    sp_footprint_units(&parts, model, layout, stage, 1, options, load, out);
}

static void fill_unit(units u, const sp_saved_parts *parts, const sp_memory_options *options,
                      const sp_unit_load *load, sp_unit_bytes *out)
{
    const sp_stage *stage = u->stage;
    *out = (sp_unit_bytes){.held = {{0}}};
    sp_unit_tensor tensors[SP_UNIT_TENSORS];
    int count = sp_unit_tensors_of(parts, u->model, u->layout, stage, options, load, tensors);
    hold(tensors, count, options->offload_ratio, out);
    sum_gradients(u->model, u->layout, stage, &options->stack, load, out);
    keep_for_weights(u, &out->weights);
    out->repeated.of[SP_MEM_KV_CACHE] = out->held.of[SP_MEM_KV_CACHE];
    out->repeated.of[SP_MEM_RECOMPUTE] = stage->embedding ? 0 : u->size.hidden;
    if (options->stack.tensors == SP_TENSORS_EXPLICIT) {
        sp_i_explicit_unit(u->model, u->layout, stage, options, load, tensors, count, out);
    } else {
        run_with_autograd(u, load, out);
    }
}

static void measure_loss(unit *u, const sp_stack *stack);
static void measure_layer(unit *u, const sp_saved_rows *saved, const sp_unit_load *load);

static void measure(unit *u, const sp_saved_rows *saved, const sp_memory_options *options,
                    const sp_unit_load *load)
{
    u->repeated = saved->repeated;
    sp_unit_sizes_of(u->alike, u->layout, options, load, &u->size);
    u->split_swiglu = sp_model_is_gated(u->alike) && !options->stack.fused_swiglu;
    u->keeps_experts = !options->stack.memory_efficient_permutation;
    u->sequence_split = u->size.shard.norm_split > 1;
    u->gathered_inputs = options->stack.keep_gathered_inputs;
    u->stack = &options->stack;
    u->conditions = sp_layer_conditions(u->alike, u->layout, u->stack, options->attention);
    u->unread_product = !sp_layer_reads_input(u->conditions, SP_STEP_FC2);
    u->input =
        options->stack.keep_gathered_inputs ? u->size.width[SP_WIDTH_HIDDEN] : u->size.hidden;
    u->score_buffer = options->stack.score_buffer ? u->size.scores : 0;
    measure_loss(u, &options->stack);
    measure_layer(u, saved, load);
}

// The projection's bf16 logits, and an fp32 copy of them where the softmax is a tensor of its own.
static void measure_loss(unit *u, const sp_stack *stack)
{
    const sp_unit_sizes *s = &u->size;
    bool fused = sp_stack_keeps_bf16_logits(stack);
    int ranks = sp_stack_logit_ranks(stack, u->layout);
    int64_t logits = sp_mul_bytes(ranks, s->width[SP_WIDTH_VOCAB]);
    int64_t copy = stack->copied_logits ? logits * FP32 / BF16 : 0;
    // Before logits are gathered, and of their gradient.
    int64_t share = ranks > 1 ? s->width[SP_WIDTH_VOCAB] : 0;
    u->fresh_logits = fused ? share : logits + copy;
    u->logit_gradient = fused ? share : s->width[SP_WIDTH_LOGITS];
    u->chunked_loss = sp_stack_loss_chunks(stack) > 0;
    u->repeated_loss = sp_stack_repeats_loss(stack);
    if (u->chunked_loss) {
        int64_t softmax = fused ? logits : logits * FP32 / BF16;
        u->fresh_logits = stack->cut_cross_entropy
                              ? 0
                              : sp_ceil_div(u->fresh_logits + softmax, sp_stack_loss_chunks(stack));
        u->logit_gradient = u->repeated_loss ? u->fresh_logits : 0;
    }
    u->table = stack->unfused_weight_gradient && !sp_model_is_frozen(u->model)
                   ? sp_mul_bytes(s->shard.vocab, BF16 * u->model->hidden)
                   : 0;
}

static void measure_layer(unit *u, const sp_saved_rows *saved, const sp_unit_load *load)
{
    const sp_saved_tensor *layer = saved->row;
    for (int i = 0; i < saved->count; i++) {
        bool plain = sp_saved_is_kept(&layer[i], 0);
        bool scores = layer[i].pair_bytes > 0;
        int dropped = plain - sp_saved_is_kept(&layer[i], u->repeated);
        int all = scores ? plain - sp_saved_is_kept(&layer[i], SP_LAYER_ALL) : 0;
        if (dropped == 0 && all == 0) {
            continue;
        }
        int64_t bytes = sp_saved_load_bytes(&layer[i], u->layout, load);
        if (layer[i].is_kv) {
            bytes -= sp_saved_bytes(&layer[i], u->layout, load->kv_tokens, 0);
        }
        u->dropped_layer += dropped * bytes;
        u->dropped_mlp += sp_layer_tensors[layer[i].id].made >= SP_STEP_NORM2 ? dropped * bytes : 0;
        u->dropped_scores += scores ? dropped * bytes : 0;
        u->all_scores += all * bytes;
    }
}

static void hold(sp_unit_tensor *tensors, int count, double offload_ratio, sp_unit_bytes *out)
{
    for (int i = 0; i < count; i++) {
        int64_t bytes = sp_mul_bytes(tensors[i].count, tensors[i].bytes);
        out->held.of[tensors[i].category] += bytes;
        if (tensors[i].is_kv && tensors[i].category == SP_MEM_ACTIVATIONS) {
            out->kv_activations += bytes;
        }
    }
    int64_t offloaded = sp_unit_offload_bytes(tensors, count, offload_ratio);
    out->held.of[SP_MEM_OFFLOADED] = offloaded;
    out->held.of[SP_MEM_ACTIVATIONS] -= offloaded;
    out->rebuilt = sp_unit_offload(tensors, count, offload_ratio);
}

static void sum_gradients(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                          const sp_stack *stack, const sp_unit_load *load, sp_unit_bytes *out)
{
    out->gradients_begun =
        sp_footprint_gradient_sums(model, layout, stage, stack, load->begun_tokens);
    out->gradients_found =
        sp_footprint_gradient_sums(model, layout, stage, stack, load->found_tokens);
}

int64_t sp_footprint_gradient_sums(const sp_model *model, const sp_layout *layout,
                                   const sp_stage *stage, const sp_stack *stack, int64_t tokens)
{
    int64_t number = sp_footprint_kv_gradient_bytes(stack);
    sp_shard shard = sp_shard_of(model, layout);
    int64_t row = sp_stage_attending_layers(stage, model) * number * (shard.k + shard.v);
    return sp_mul_bytes(tokens / layout->cp, row);
}

static void run_with_autograd(units u, const sp_unit_load *load, sp_unit_bytes *out)
{
    u->softmax = out->held.of[SP_MEM_LOGITS];
    forward_transients(u, &out->forward);
    first_transients(u, &out->first);
    backward_transients(u, &out->backward);
    out->backward.of[SP_MEM_KV_GRADIENTS] = out->gradients_begun;
    add_buffers(u, load->tokens, out);
    out->repeat = out->forward;
    out->input_gradient = out->backward;
    out->loaded_backward = out->backward;
    out->loaded_input_gradient = out->input_gradient;
}

// Adds the phase with the larger total.
static void add_larger(const sp_bytes *a, const sp_bytes *b, sp_bytes *bytes)
{
    const sp_bytes *larger = sp_bytes_total(b) > sp_bytes_total(a) ? b : a;
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        bytes->of[c] += larger->of[c];
    }
}

// Takes the phase with the larger total.
static void take_larger(const sp_bytes *phase, sp_bytes *largest)
{
    if (sp_bytes_total(phase) > sp_bytes_total(largest)) {
        *largest = *phase;
    }
}

// Is there such a layer? Transients of a stage of no layers are counted as the first kind's.
static bool counts_kind(const units u, int kind)
{
    return u[kind].layers > 0 || (kind == 0 && u->stage->layers == 0);
}

// A rank's own tokens once for each of their experts, as they go to these and come back.
static int64_t own_rows(const unit *u)
{
    return sp_mul_bytes(u->size.shard.active, u->size.split[SP_WIDTH_EXPERT]);
}

// What adapters give, and the same scaled, of one at a time.
static int64_t adapters_forward(const unit *u, sp_layer_place step)
{
    const sp_layer_adapters a = sp_layer_adapters_of(u->alike, &u->size.shard, step);
    return a.count > 0 ? 2 * u->size.width[a.output_width] : 0;
}

// The scaled gradient of the output, that of what A gives, and that of the input.
static int64_t adapters_backward(const unit *u, sp_layer_place step)
{
    const sp_layer_adapters a = sp_layer_adapters_of(u->alike, &u->size.shard, step);
    const int64_t *width = u->size.width;
    return a.count > 0 ? width[a.low_width] + sp_larger(width[a.output_width], width[a.input_width])
                       : 0;
}

// The BF16 copy that a product makes of a weight in 4 bits, beside so many bytes; 0: it makes none.
static int64_t beside_copy(const unit *u, sp_layer_place step, int64_t bytes)
{
    const sp_layer_frozen of = sp_layer_frozen_of(u->alike, &u->size.shard, step);
    return of.tensors > 0 ? BF16 * of.largest + bytes : 0;
}

// What attention or MLP gives: side by side they are summed before they are reduced.
static int64_t block_output(const unit *u)
{
    return u->alike->blocks == SP_BLOCKS_IN_TURN ? u->size.hidden : u->size.width[SP_WIDTH_HIDDEN];
}

// What passes in the forward of an MLP, dense or of experts, or of the shared experts: the largest
// of its phases. The second projection gives `output`, all rows before the reduce-scatter or those
// of experts, beside what it gives a token.
static int64_t mlp_forward(const unit *u, sp_layer_width ffn, sp_layer_width fc1, int64_t output)
{
    const sp_unit_sizes *s = &u->size;
    bool shared = ffn == SP_WIDTH_SHARED_FFN;
    bool drops_fc1 = (u->repeated & (shared ? SP_LAYER_SHARED_FC1 : SP_LAYER_FC1)) != 0;
    bool drops_product =
        (u->repeated & (shared ? SP_LAYER_SHARED_ACTIVATION : SP_LAYER_ACTIVATION)) != 0;
    int64_t product = drops_product || u->unread_product ? s->width[ffn] : 0;
    int64_t silu = u->split_swiglu && drops_product ? s->width[ffn] : 0;
    // What experts read, where all of them runs again.
    bool rebuilds_experts = !shared && (u->repeated & SP_LAYER_PERMUTATION) != 0 &&
                            u->repeated != SP_LAYER_ALL && u->alike->experts > 0;
    int64_t input = rebuilds_experts ? s->width[SP_WIDTH_ROUTED] : 0;
    int64_t around = block_output(u);
    int64_t activation = around + (drops_fc1 ? s->width[fc1] : 0) + silu + product;
    int64_t token = shared ? s->hidden : s->split[SP_WIDTH_EXPERT];
    int64_t second = sp_larger(token + output, adapters_forward(u, SP_STEP_FC2));
    second = sp_larger(second, beside_copy(u, SP_STEP_FC2, s->hidden + output));
    int64_t first = beside_copy(u, SP_STEP_FC1, s->hidden + (drops_fc1 ? s->width[fc1] : 0));
    return input + sp_larger(sp_larger(activation, first), around + product + second);
}

static sp_bytes layer_forward(const unit *u)
{
    const sp_unit_sizes *s = &u->size;
    // What the shared experts give stays beside the experts.
    int64_t shared = u->alike->shared_ffn > 0 ? s->hidden : 0;
    bool passes_experts = u->alike->experts > 0 && !u->keeps_experts;
    // Until the layer ends, the gathered keys and values stand in for this rank's own copy.
    int64_t gathered = s->kv_gathered > 0 ? s->kv_gathered - s->width[SP_WIDTH_KV] : 0;

    int64_t scores = s->kv_gathered + s->scores + u->dropped_scores;
    // Of experts on other ranks the rank's own rows come back.
    int64_t gathers = u->sequence_split ? s->width[SP_WIDTH_HIDDEN] : 0;
    int64_t returned = s->shard.dispatches ? own_rows(u)
                       : u->sequence_split ? s->width[SP_WIDTH_EXPERT]
                                           : 0;
    int64_t experts = passes_experts ? s->width[SP_WIDTH_ROUTED] : 0;
    int64_t mlp =
        u->alike->without_mlp
            ? 0
            : gathered + shared + mlp_forward(u, SP_WIDTH_FFN, SP_WIDTH_FC1, returned + experts);
    if (shared > 0) {
        int64_t ungated = u->alike->shared_gate ? s->hidden : 0;
        int64_t first =
            gathered + mlp_forward(u, SP_WIDTH_SHARED_FFN, SP_WIDTH_SHARED_FC1, gathers + ungated);
        mlp = sp_larger(mlp, first);
    }
    // Output of both blocks and their sum.
    int64_t residual = s->kv_gathered + 3 * block_output(u) + shared;
    // What queries, keys and values are made from.
    bool attends = u->alike->mixer == SP_MIXER_ATTENTION;
    int64_t latent = attends && sp_model_is_latent(u->model)
                         ? s->width[SP_WIDTH_Q] + s->width[SP_WIDTH_KV_UP]
                         : 0;

    int64_t copy = sp_larger(beside_copy(u, SP_STEP_QKV, s->hidden + s->width[SP_WIDTH_QKV]),
                             beside_copy(u, SP_STEP_OUTPUT, s->kv_gathered + s->hidden));

    sp_bytes layer = {{0}};
    layer.of[SP_MEM_WORKSPACE] =
        sp_larger(sp_larger(sp_larger(scores, latent), copy), sp_larger(mlp, residual));
    return layer;
}

static void forward_transients(const units u, sp_bytes *bytes)
{
    const sp_unit_sizes *s = &u->size;
    sp_bytes layer = {{0}};
    for (int k = 0; k < sp_model_kinds(u->model); k++) {
        if (counts_kind(u, k)) {
            const sp_bytes phase = layer_forward(&u[k]);
            take_larger(&phase, &layer);
        }
    }
    layer.of[SP_MEM_LOGITS] = -u->softmax;
    sp_bytes head = {{0}};
    head.of[SP_MEM_LOGITS] = u->stage->head ? u->fresh_logits : 0;
    head.of[SP_MEM_WORKSPACE] = u->stage->head && u->chunked_loss && !u->repeated_loss
                                    ? s->width[SP_WIDTH_HIDDEN] + u->table
                                    : 0;
    add_larger(&layer, &head, bytes);
}

// A forward that runs again keeps nothing for autograd: beside what passes in a layer that is
// rebuilt there are the input of one layer and, in the head, the softmax.
static void first_transients(const units u, sp_bytes *bytes)
{
    units first;
    for (int k = 0; k < sp_model_kinds(u->model); k++) {
        first[k] = u[k];
        first[k].repeated = SP_LAYER_ALL;
        first[k].dropped_scores = u[k].all_scores;
    }
    forward_transients(first, bytes);
    bytes->of[SP_MEM_WORKSPACE] += u->size.hidden;
    bytes->of[SP_MEM_LOGITS] += u->softmax;
}

// Gradients of the second projection's input and of the first one's output. Where SwiGLU is not one
// kernel its two halves are gradients of their own before they are put together.
static sp_bytes mlp_backward(const unit *u, sp_layer_width ffn, sp_layer_width fc1)
{
    const sp_unit_sizes *s = &u->size;
    bool full = u->repeated == SP_LAYER_ALL;
    bool rebuilds_product = (u->repeated & SP_LAYER_ACTIVATION) != 0;
    sp_bytes mlp = {{0}};
    int64_t halves = u->split_swiglu ? s->width[fc1] : 0;
    mlp.of[SP_MEM_WORKSPACE] = s->kv_gathered + s->width[ffn] + s->width[fc1] + halves;
    if (s->shard.dispatches && ffn == SP_WIDTH_FFN) {
        // Gradients of the expert output: sent, received, and sorted.
        mlp.of[SP_MEM_WORKSPACE] += own_rows(u) + 2 * s->width[SP_WIDTH_ROUTED];
    }
    if (sp_model_is_frozen(u->model)) {
        int64_t second = s->width[ffn] + sp_larger(adapters_backward(u, SP_STEP_FC2),
                                                   beside_copy(u, SP_STEP_FC2, s->hidden));
        int64_t first =
            s->width[fc1] + s->hidden +
            sp_larger(adapters_backward(u, SP_STEP_FC1), beside_copy(u, SP_STEP_FC1, 0));
        mlp.of[SP_MEM_WORKSPACE] =
            sp_larger(mlp.of[SP_MEM_WORKSPACE], s->kv_gathered + sp_larger(first, second));
    }
    if (!full && (u->repeated & SP_LAYER_JOINED) == 0) {
        // Modules that are functions of their own, with what they give where they run whole.
        unsigned given = u->repeated & (SP_LAYER_FC2 | SP_LAYER_SHARED_FC2);
        mlp.of[SP_MEM_RECOMPUTE] = u->dropped_mlp + (given != 0 ? s->hidden : 0);
        return mlp;
    }
    mlp.of[SP_MEM_RECOMPUTE] = full ? u->dropped_layer : rebuilds_product ? s->width[ffn] : 0;
    if (!full && (u->repeated & SP_LAYER_FC1) != 0) {
        mlp.of[SP_MEM_RECOMPUTE] += s->width[fc1];
    }
    return mlp;
}

static sp_bytes layer_backward(const unit *u)
{
    const sp_unit_sizes *s = &u->size;
    sp_bytes mlp = {{0}};
    if (!u->alike->without_mlp) {
        mlp = mlp_backward(u, SP_WIDTH_FFN, SP_WIDTH_FC1);
    }
    if (u->alike->shared_ffn > 0) {
        // The gradient of what the experts read is there already, and with a gate that of its
        // output.
        sp_bytes shared = mlp_backward(u, SP_WIDTH_SHARED_FFN, SP_WIDTH_SHARED_FC1);
        shared.of[SP_MEM_WORKSPACE] += (u->alike->shared_gate ? 2 : 1) * s->hidden;
        take_larger(&shared, &mlp);
    }

    // Gradients of K and V, of the queries (with an fp32 accumulator) and of the output; unfused,
    // those of the probabilities and of the scores too.
    sp_bytes attention = {{0}};
    attention.of[SP_MEM_WORKSPACE] =
        s->kv_gathered + sp_larger(s->kv_gathered, s->width[SP_WIDTH_KV]) + s->width[SP_WIDTH_Q] +
        s->width[SP_WIDTH_Q] * FP32 / BF16 + s->width[SP_WIDTH_CONTEXT] + 2 * s->scores;
    int64_t copy = sp_larger(beside_copy(u, SP_STEP_OUTPUT, s->width[SP_WIDTH_CONTEXT] + s->hidden),
                             beside_copy(u, SP_STEP_QKV, s->width[SP_WIDTH_QKV] + s->hidden));
    attention.of[SP_MEM_WORKSPACE] = sp_larger(attention.of[SP_MEM_WORKSPACE], copy);
    if (u->alike->mixer != SP_MIXER_ATTENTION) {
        // Gradients of what the state gives, of the convolution and of its input.
        bool has = sp_mixer_has_state(u->alike->mixer);
        attention.of[SP_MEM_WORKSPACE] = has ? s->width[SP_WIDTH_STATE_VALUES] +
                                                   s->width[SP_WIDTH_STATE_CONV] +
                                                   s->width[SP_WIDTH_STATE_IN]
                                             : 0;
        attention.of[SP_MEM_RECOMPUTE] = u->repeated == SP_LAYER_ALL ? u->dropped_layer : 0;
    } else if (u->repeated == SP_LAYER_ALL) {
        attention.of[SP_MEM_RECOMPUTE] = u->dropped_layer;
    } else if ((u->repeated & SP_LAYER_JOINED) == 0) {
        attention.of[SP_MEM_RECOMPUTE] = u->dropped_layer - u->dropped_mlp;
    }

    return sp_bytes_total(&attention) > sp_bytes_total(&mlp) ? attention : mlp;
}

static void backward_transients(const units u, sp_bytes *bytes)
{
    const sp_unit_sizes *s = &u->size;
    sp_bytes layer = {{0}};
    for (int k = 0; k < sp_model_kinds(u->model); k++) {
        if (counts_kind(u, k)) {
            const sp_bytes phase = layer_backward(&u[k]);
            take_larger(&phase, &layer);
        }
    }
    layer.of[SP_MEM_LOGITS] -= u->softmax;

    // The loss overwrites the softmax with its gradient and casts it to bf16.
    sp_bytes head = {{0}};
    if (u->stage->head) {
        head.of[SP_MEM_LOGITS] = u->logit_gradient;
        head.of[SP_MEM_WORKSPACE] = s->width[SP_WIDTH_HIDDEN] + u->table;
    }
    // PyTorch makes the gradient of the lookup as a dense bf16 table.
    sp_bytes lookup = {{0}};
    if (u->stage->embedding && !sp_model_is_frozen(u->model)) {
        lookup.of[SP_MEM_WORKSPACE] = BF16 * s->shard.vocab * u->model->hidden;
    }
    lookup.of[SP_MEM_LOGITS] = -u->softmax;
    sp_bytes ends = {{0}};
    add_larger(&head, &lookup, &ends);
    add_larger(&layer, &ends, bytes);
}

// ZeRO 3 holds the whole parameters of the layer that runs and of the next one, which is gathered
// behind it.
static int64_t gathered_parameters(const unit *u)
{
    int64_t most = 0;
    int pairs = u->model->runs > 0 ? u->stage->layers - 1 : 1;
    for (int layer = 0; layer < pairs || layer == 0; layer++) {
        sp_stage two = {.layers = u->stage->layers > 1 ? 2 : u->stage->layers};
        sp_model_count_kinds(u->model, u->stage->first + layer, two.layers, two.count);
        most = sp_larger(most, sp_footprint_gathered(u->model, u->layout, &two, 1));
    }
    return most;
}

// Buffers that live through the whole pass.
static void add_buffers(const unit *u, int64_t tokens, sp_unit_bytes *out)
{
    const sp_unit_sizes *s = &u->size;
    int64_t buffers = 0;
    if (u->sequence_split) {
        buffers += s->width[SP_WIDTH_HIDDEN]; // one all-gather buffer, shared by all layers
    }
    if (u->model->positional == SP_ROPE) {
        // cos and sin of every local token, cached by each model chunk.
        int64_t rows = sp_ceil_div(tokens, u->layout->cp);
        buffers += sp_mul_bytes(rows, 2 * BF16 * sp_model_rotary_dim(u->model) * u->layout->chunks);
    }
    if (sp_layout_zero_in_step(u->layout) >= 3) {
        buffers += gathered_parameters(u);
    }
    buffers += u->score_buffer;
    int64_t mask = u->stage->embedding || u->stage->head ? s->mask : 0;
    out->forward.of[SP_MEM_WORKSPACE] += mask;
    out->first.of[SP_MEM_WORKSPACE] += mask;
    out->forward.of[SP_MEM_WORKSPACE] += buffers;
    out->first.of[SP_MEM_WORKSPACE] += buffers;
    out->backward.of[SP_MEM_WORKSPACE] += buffers;
    if (u->layout->pp > 1) {
        // Tensors at the stage's borders: one being sent and one being received. With transfers
        // overlapped by the other chunks' work a third stays in the forward and a fourth in the
        // backward.
        bool overlapped = u->layout->chunks > 1;
        out->forward.of[SP_MEM_COMMUNICATION] = (overlapped ? 3 : 2) * s->hidden;
        out->first.of[SP_MEM_COMMUNICATION] = out->forward.of[SP_MEM_COMMUNICATION];
        out->backward.of[SP_MEM_COMMUNICATION] = (overlapped ? 4 : 2) * s->hidden;
    }
}

static int64_t fp8_bytes_of(const unit *u, int64_t bf16_bytes)
{
    return sp_fp8_tensor_bytes(&u->stack->precision, bf16_bytes / BF16);
}

// What the weight gradients read: the inputs of a layer's projections and the gradients of their
// outputs, 32 h bytes a token for GPT (Qi et al., Zero Bubble, arXiv 2401.10241, Table 1); for the
// head its input and the gradient of the logits.
static int64_t layer_keeps_for_weights(const unit *u)
{
    bool fp8 = sp_precision_is_fp8(&u->stack->precision);
    const sp_unit_sizes *s = &u->size;
    int64_t widths[SP_LAYER_WIDTHS];
    sp_layer_widths(u->alike, &s->shard, widths);
    int64_t layer = 0;
    sp_layer_set counted = 0;
    // Whose gradients of queries and of keys and values are then two tensors, with scales each.
    bool splits_qkv = u->layout->cp > 1 && u->stack->cp_overlap == SP_CP_QKV;
    for (int p = 0; p < SP_LAYER_STEPS; p++) {
        const sp_layer_step *step = &sp_layer_steps[p];
        sp_layer_linear linear;
        if (!sp_layer_is_product(step) ||
            !sp_layer_linear_of(u->alike, &s->shard, (sp_layer_place)p, &linear)) {
            continue;
        }
        // Experts have rows of their own, whoever else reads the norm's output.
        bool enters_experts = linear.of_experts && step->inputs == SP_WIDTH_EXPERT;
        bool leaves_experts = linear.of_experts && step->outputs == SP_WIDTH_EXPERT;
        sp_layer_tensor_id reads = enters_experts
                                       ? SP_TENSOR_EXPERT_INPUT
                                       : sp_layer_reads(u->conditions, (sp_layer_place)p);
        sp_layer_width inputs = enters_experts ? SP_WIDTH_ROUTED : step->inputs;
        sp_layer_width outputs = leaves_experts ? SP_WIDTH_ROUTED : step->outputs;
        bool is_split = sp_layer_tensors[reads].rows == SP_ROWS_RESIDUAL ||
                        (sp_layer_tensors[reads].rows == SP_ROWS_INPUT && !u->gathered_inputs);
        if (fp8 && (u->conditions & SP_IF_FP8_COPIES) != 0) {
            reads = reads == SP_TENSOR_ATTENTION ? SP_TENSOR_ATTENTION_COPY
                    : p == SP_STEP_SHARED_FC1    ? SP_TENSOR_SHARED_INPUT_COPY
                                                 : reads;
        }
        reads = fp8 && p == SP_STEP_EXPERT_DOWN ? SP_TENSOR_LATENT_INPUT_COPY : reads;
        is_split = is_split || p == SP_STEP_EXPERT_DOWN;
        if ((counted & SP_LAYER_SET(reads)) == 0) {
            // Blocks with a scale do not reach over rows.
            int64_t rows =
                (is_split ? s->split[inputs] : s->width[inputs]) / (BF16 * widths[inputs]);
            layer += sp_mul_bytes(
                rows, sp_layer_tensor_bytes(reads, u->conditions, u->stack, widths[inputs]));
        }
        counted |= SP_LAYER_SET(reads);
        if (p == SP_STEP_OUTPUT && u->alike->blocks != SP_BLOCKS_IN_TURN) {
            continue; // the same gradient as that of the MLP's output
        }
        bool ends_split =
            step->duplicated || step->outputs == SP_WIDTH_HIDDEN || outputs == SP_WIDTH_EXPERT;
        int64_t gradient = ends_split ? s->split[outputs] : s->width[outputs];
        if (fp8 && p == SP_STEP_QKV && splits_qkv) {
            layer += fp8_bytes_of(u, s->width[SP_WIDTH_Q]) + fp8_bytes_of(u, s->width[SP_WIDTH_KV]);
        } else {
            layer += fp8 ? fp8_bytes_of(u, gradient) : gradient;
        }
    }
    return layer;
}

// Those of adapters read what A reads and gives, and the gradients of what A and B give.
static int64_t adapters_keep_for_weights(const unit *u)
{
    const sp_unit_sizes *s = &u->size;
    int64_t layer = 0;
    for (int p = 0; p < SP_LAYER_STEPS; p++) {
        const sp_layer_adapters a = sp_layer_adapters_of(u->alike, &s->shard, (sp_layer_place)p);
        sp_layer_width input = a.input_width;
        if (a.count == 0) {
            continue;
        }
        if (u->alike->lora_dropout) {
            input = a.low_width - SP_WIDTH_LOW_QKV + SP_WIDTH_DROPPED_QKV;
        }
        layer += a.column && !u->gathered_inputs ? s->split[input] : s->width[input];
        layer += sp_mul_bytes(sp_layer_adapter_outputs(&a), s->width[SP_WIDTH_ONE]);
        layer += 2 * s->width[a.low_width];
    }
    return layer;
}

static void keep_for_weights(const units u, sp_bytes *bytes)
{
    const sp_unit_sizes *s = &u->size;
    bool frozen = sp_model_is_frozen(u->model);
    for (int k = 0; k < sp_model_kinds(u->model); k++) {
        bytes->of[SP_MEM_ACTIVATIONS] +=
            sp_mul_bytes(u[k].layers, frozen ? adapters_keep_for_weights(&u[k])
                                             : layer_keeps_for_weights(&u[k]));
    }
    if (u->stage->head && !u->chunked_loss && !frozen) {
        bytes->of[SP_MEM_ACTIVATIONS] += sp_mul_bytes(1 + 3 * u->model->mtp_layers, u->input);
        bool gathers = sp_stack_logit_ranks(u->stack, u->layout) > 1;
        bytes->of[SP_MEM_LOGITS] = s->width[gathers ? SP_WIDTH_VOCAB : SP_WIDTH_LOGITS];
    }
}
