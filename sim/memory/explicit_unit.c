#include "sim/memory/explicit_unit.h"

#include "sim/memory/explicit_state.h"

static sp_bytes less(const sp_bytes *a, const sp_bytes *b)
{
    sp_bytes difference;
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        difference.of[c] = a->of[c] - b->of[c];
    }
    return difference;
}

static sp_bytes backward_peak(sp_i_explicit *x, bool splits)
{
    static const sp_bytes nothing;
    sp_i_explicit_begin(x, &nothing);
    x->splits = splits;
    sp_i_explicit_backward(x);
    return x->gauge.high;
}

// What is offloaded is there while a pass runs: forwards start with it.
void sp_i_explicit_unit(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                        const sp_memory_options *options, const sp_unit_load *load,
                        const sp_unit_tensor *tensors, int count, sp_unit_bytes *unit)
{
    static const sp_bytes nothing;
    sp_i_explicit x;
    sp_i_explicit_measure(model, layout, stage, options, load, &x);
    sp_bytes held = unit->held;
    held.of[SP_MEM_ACTIVATIONS] += held.of[SP_MEM_OFFLOADED];
    held.of[SP_MEM_OFFLOADED] = 0;

    sp_bytes start = less(&nothing, &held);
    sp_i_explicit_begin(&x, &start);
    x.keeps = true;
    sp_i_explicit_forward(&x);
    unit->forward = x.gauge.high;

    start = less(&nothing, &unit->repeated);
    sp_i_explicit_begin(&x, &start);
    x.keeps = false;
    sp_i_memory_take(&x.gauge, SP_MEM_RECOMPUTE, unit->repeated.of[SP_MEM_RECOMPUTE]);
    sp_i_explicit_forward(&x);
    unit->first = x.gauge.high;

    start = less(&unit->repeated, &held);
    sp_i_explicit_begin(&x, &start);
    x.keeps = true;
    x.cached = true;
    // Nobody reads the output a second time.
    sp_i_explicit_take(&x, stage->head ? 0 : x.hidden);
    sp_i_explicit_forward(&x);
    unit->repeat = x.gauge.high;

    unit->backward = backward_peak(&x, false);
    unit->input_gradient = backward_peak(&x, true);
    unit->loaded_backward = unit->backward;
    unit->loaded_input_gradient = unit->input_gradient;
    if (options->offload_ratio > 0.0) {
        sp_i_explicit_offload(&x, tensors, count, options->offload_ratio);
        x.loaded = true;
        unit->loaded_backward = backward_peak(&x, false);
        unit->loaded_input_gradient = backward_peak(&x, true);
    }
}

static void layer_forward(sp_i_explicit *x);
static void head_forward(sp_i_explicit *x);

// Its readers are done: only what is kept survives them, and what a backward rebuilt.
static void leave(sp_i_explicit *x, sp_layer_tensor_id tensor)
{
    if (!x->rebuilds && !(x->keeps && x->kept[tensor])) {
        sp_i_explicit_drop(x, tensor);
    }
}

// The end of a layer: what is kept is nobody's to give until the backward.
static void end_layer(sp_i_explicit *x)
{
    for (int t = 0; t < SP_ALL_TENSORS; t++) {
        leave(x, (sp_layer_tensor_id)t);
        x->place[t] = SP_MEM_CATEGORIES;
    }
}

// The output of a layer is made before the layer runs, as the input of what follows it; that of the
// last one goes into a message.
void sp_i_explicit_forward(sp_i_explicit *x)
{
    const sp_stage *stage = x->stage;
    sp_i_explicit_make(x, stage->layers > 0 ? SP_TENSOR_INPUT : SP_TENSOR_FINAL_INPUT);
    if (stage->embedding) {
        sp_i_explicit_open(x, SP_PART_EMBEDDING, false);
        sp_i_explicit_pass(x, x->hidden_gathered);
        sp_i_explicit_make(x, SP_TENSOR_EMBEDDING_MASK);
        sp_i_explicit_close(x, SP_PART_EMBEDDING, false);
    }
    for (int i = 0; i < stage->layers; i++) {
        bool last = i + 1 == stage->layers;
        sp_layer_tensor_id next = last ? SP_TENSOR_FINAL_INPUT : SP_TENSOR_INPUT;
        sp_memory_category output = SP_MEM_CATEGORIES;
        if (!last || stage->head) {
            output = sp_i_explicit_place(x, next);
            sp_i_memory_take(&x->gauge, output, x->bytes[next]);
        }
        sp_i_explicit_open(x, SP_PART_LAYER, false);
        layer_forward(x);
        sp_i_explicit_close(x, SP_PART_LAYER, false);
        end_layer(x);
        x->place[next] = output;
    }
    if (stage->head) {
        sp_i_explicit_open(x, SP_PART_HEAD, false);
        head_forward(x);
        sp_i_explicit_close(x, SP_PART_HEAD, false);
    } else if (stage->layers == 0) {
        sp_i_explicit_drop(x, SP_TENSOR_FINAL_INPUT);
    }
    end_layer(x);
}

static sp_layer_tensor_id first_of(uint32_t tensors)
{
    return (sp_layer_tensor_id)__builtin_ctz(tensors);
}

static void make_all(sp_i_explicit *x, sp_layer_place step)
{
    for (uint32_t left = x->made[step]; left != 0; left &= left - 1) {
        sp_i_explicit_make(x, first_of(left));
    }
}

// A column-parallel product has read its gathered input when its output is there. Queries, keys
// and values are taken from the output of theirs.
static void project(sp_i_explicit *x, sp_layer_place step)
{
    sp_i_explicit_take(x, x->hidden_gathered);
    sp_i_explicit_take(x, step == SP_STEP_QKV ? x->qkv : 0);
    make_all(x, step);
    sp_i_explicit_give(x, x->hidden_gathered);
}

static void split_qkv(sp_i_explicit *x)
{
    sp_i_explicit_make(x, SP_TENSOR_QUERIES);
    if (!x->cached && !x->rebuilds) {
        sp_i_memory_take(&x->gauge, SP_MEM_KV_CACHE, x->kv_cached);
    }
    sp_i_explicit_make(x, SP_TENSOR_KEYS_VALUES);
    sp_i_explicit_give(x, x->qkv);
}

// The output is there before the scores, which go when there are probabilities.
static void attend(sp_i_explicit *x)
{
    sp_i_explicit_make(x, SP_TENSOR_ATTENTION);
    sp_i_explicit_take(x, x->scores);
    sp_i_explicit_make(x, SP_TENSOR_PROBABILITIES);
    sp_i_explicit_give(x, x->scores);
    make_all(x, SP_STEP_CORE);
    sp_i_explicit_pass(x, x->attend);
}

// A row-parallel product gives all rows, whose sum goes into the residual path.
static void reduce(sp_i_explicit *x, sp_layer_place step)
{
    if (step == SP_STEP_OUTPUT_REDUCE) {
        sp_i_explicit_make(x, SP_TENSOR_RESIDUAL);
    }
    sp_i_explicit_pass(x, x->hidden_gathered);
}

static void run_step(sp_i_explicit *x, sp_layer_place step)
{
    switch (step) {
    case SP_STEP_QKV:
    case SP_STEP_FC1:
        project(x, step);
        break;
    case SP_STEP_QKV_ELEMENTWISE:
        split_qkv(x);
        break;
    case SP_STEP_CORE:
        attend(x);
        break;
    case SP_STEP_OUTPUT_REDUCE:
    case SP_STEP_FC2_REDUCE:
        reduce(x, step);
        break;
    default:
        make_all(x, step);
    }
}

// A tensor goes when the last step of the forward that reads it is done.
static void layer_forward(sp_i_explicit *x)
{
    for (int step = 0; step < SP_LAYER_STEPS; step++) {
        run_step(x, (sp_layer_place)step);
        for (uint32_t left = x->last_read[step]; left != 0; left &= left - 1) {
            leave(x, first_of(left));
        }
    }
}

// Is anything missing that the step makes? A product runs for what is taken from its output, a
// reduction for the residual path that it adds to.
static bool misses_any(const sp_i_explicit *x, sp_layer_place step)
{
    sp_layer_place made = step == SP_STEP_QKV             ? SP_STEP_QKV_ELEMENTWISE
                          : step == SP_STEP_OUTPUT_REDUCE ? SP_STEP_RESIDUAL1
                                                          : step;
    for (uint32_t left = x->made[made]; left != 0; left &= left - 1) {
        sp_layer_tensor_id tensor = first_of(left);
        if (x->place[tensor] == SP_MEM_CATEGORIES && x->bytes[tensor] > 0) {
            return true;
        }
    }
    return false;
}

// Makes what a layer's backward reads and the mode dropped.
static void rebuild(sp_i_explicit *x)
{
    x->rebuilds = true;
    for (int step = 0; step < SP_LAYER_STEPS; step++) {
        if (misses_any(x, (sp_layer_place)step)) {
            run_step(x, (sp_layer_place)step);
        }
    }
    x->rebuilds = false;
}

static void head_forward(sp_i_explicit *x)
{
    sp_i_explicit_make(x, SP_TENSOR_FINAL_NORM);
    sp_i_explicit_make(x, SP_TENSOR_FINAL_STATISTICS);
    sp_i_explicit_take(x, x->hidden_gathered);
    sp_i_explicit_make(x, SP_TENSOR_LOGITS);
    sp_i_explicit_give(x, x->hidden_gathered);
    sp_i_explicit_make(x, SP_TENSOR_LOGITS_SUM);
}

static void head_backward(sp_i_explicit *x);
static void layer_backward(sp_i_explicit *x, int layer);
static void embedding_backward(sp_i_explicit *x);

// The gradient of the hidden states is a buffer of its own from the head, or from a message, to the
// end.
void sp_i_explicit_backward(sp_i_explicit *x)
{
    if (x->stage->head) {
        sp_i_explicit_open(x, SP_PART_HEAD, true);
        head_backward(x);
        sp_i_explicit_close(x, SP_PART_HEAD, true);
    } else {
        sp_i_explicit_take(x, x->hidden);
    }
    for (int i = 0; i < x->stage->layers; i++) {
        sp_i_explicit_open(x, SP_PART_LAYER, true);
        layer_backward(x, x->stage->layers - 1 - i);
        sp_i_explicit_close(x, SP_PART_LAYER, true);
    }
    if (x->stage->embedding) {
        sp_i_explicit_open(x, SP_PART_EMBEDDING, true);
        embedding_backward(x);
        sp_i_explicit_close(x, SP_PART_EMBEDDING, true);
    }
    sp_i_explicit_give(x, x->hidden);
}

// Is the tensor of one of `layers` a view of the buffer that a copy came back into?
static bool is_viewed(const sp_i_explicit *x, int tensor, int layer, int layers)
{
    int place = x->away_from_last ? layers - 1 - layer : layer;
    return x->loaded && x->kept[tensor] && place < x->away_layers[tensor];
}

// What the forward kept. Where its rows lie in several forward packs they are copied, and given
// back where they came from.
static void fetch(sp_i_explicit *x, sp_layer_tensor_id first, sp_layer_tensor_id end, int layer,
                  int layers)
{
    for (int t = (int)first; t < (int)end; t++) {
        x->place[t] = x->kept[t] ? x->category[t] : SP_MEM_CATEGORIES;
        x->viewed[t] = is_viewed(x, t, layer, layers);
        if (x->kept[t] && x->collects && t != SP_TENSOR_KEYS_VALUES) {
            sp_i_memory_take(&x->gauge, x->category[t], x->bytes[t]);
            sp_i_memory_give(&x->gauge, x->category[t], x->bytes[t]);
        }
    }
}

// The gradient of a column-parallel product's input: all rows come first.
static void back_through(sp_i_explicit *x, int64_t bytes)
{
    sp_i_explicit_take(x, x->hidden_gathered);
    sp_i_explicit_take(x, bytes);
    sp_i_explicit_give(x, x->hidden_gathered);
}

// The end of a product: its input and the gradient of its output are read once more, by the weight
// gradient, now or later. Until then they count as activations.
static void finish(sp_i_explicit *x, sp_layer_tensor_id input, int64_t output_gradient)
{
    if (x->splits) {
        sp_i_memory_give(&x->gauge, x->place[input], x->viewed[input] ? 0 : x->bytes[input]);
        sp_i_memory_take(&x->gauge, SP_MEM_ACTIVATIONS, x->bytes[input]);
        sp_i_explicit_give(x, output_gradient);
        sp_i_memory_take(&x->gauge, SP_MEM_ACTIVATIONS, output_gradient);
    } else {
        sp_i_explicit_drop(x, input);
        sp_i_explicit_give(x, output_gradient);
    }
    x->place[input] = SP_MEM_CATEGORIES;
}

// The input of a column-parallel product is gathered once more for its weight gradient.
static void finish_column(sp_i_explicit *x, sp_layer_tensor_id input, int64_t output_gradient)
{
    sp_i_explicit_pass(x, x->splits ? 0 : x->hidden_gathered);
    finish(x, input, output_gradient);
}

// The gradient of a block's output is behind its dropout a matrix of its own.
static bool enter_block(sp_i_explicit *x, sp_layer_tensor_id mask)
{
    bool own = sp_i_explicit_has(x, mask);
    if (own) {
        sp_i_explicit_take(x, x->hidden);
        sp_i_explicit_drop(x, mask);
    }
    return own;
}

// Through the product behind a norm and the norm, to the gradient of the block's input; then what
// goes around the block is there no more, unless it is also the gradient of its output.
static void leave_block(sp_i_explicit *x, bool own)
{
    back_through(x, x->hidden);
    sp_i_explicit_take(x, x->hidden);
    sp_i_explicit_give(x, x->hidden);
    sp_i_explicit_give(x, own ? x->hidden : 0);
}

// What was gathered of the gradient of a block's output stays for the weight gradient.
static void mlp_backward(sp_i_explicit *x)
{
    bool own = enter_block(x, SP_TENSOR_MLP_MASK);
    sp_i_explicit_drop(x, SP_TENSOR_ROUTER);
    sp_i_explicit_drop(x, SP_TENSOR_EXPERT_OUTPUT);
    sp_i_explicit_take(x, x->hidden_gathered);
    sp_i_explicit_take(x, x->ffn);
    sp_i_explicit_take(x, x->fc1);
    sp_i_explicit_give(x, x->ffn);
    sp_i_explicit_drop(x, SP_TENSOR_FC1);
    leave_block(x, own);
    sp_i_explicit_give(x, x->hidden_gathered);
    finish(x, SP_TENSOR_FC2_INPUT, x->hidden);
    finish_column(x, SP_TENSOR_NORM2, x->fc1);
    sp_i_explicit_drop(x, SP_TENSOR_EXPERT_INPUT);
    sp_i_explicit_drop(x, SP_TENSOR_RESIDUAL);
}

// Slices add to the sums of their own and of earlier slices, then their own are complete. Keys that
// were gathered go sample by sample as sums are taken: they count to the last.
static void attend_backward(sp_i_explicit *x)
{
    sp_i_memory_gauge *gauge = &x->gauge;
    sp_i_explicit_take(x, x->q);
    sp_i_explicit_take(x, 2 * x->scores);
    sp_i_explicit_take(x, x->attend_backward);
    sp_i_memory_take(gauge, SP_MEM_KV_GRADIENTS, x->kv_missing);
    sp_i_memory_take(gauge, SP_MEM_KV_GRADIENTS, x->kv_begun);
    sp_i_explicit_give(x, x->attend_backward);
    sp_i_memory_give(gauge, SP_MEM_KV_GRADIENTS, x->kv_missing);
    sp_i_memory_give(gauge, SP_MEM_KV_GRADIENTS, x->kv_found);
    sp_i_memory_give(gauge, SP_MEM_KV_CACHE, x->kv_cached);
    sp_i_explicit_drop(x, SP_TENSOR_KEYS_VALUES);
    sp_i_explicit_give(x, 2 * x->scores);
    sp_i_explicit_give(x, x->q);
}

static void attention_block_backward(sp_i_explicit *x)
{
    bool own = enter_block(x, SP_TENSOR_ATTENTION_MASK);
    sp_i_explicit_take(x, x->hidden_gathered);
    sp_i_explicit_take(x, x->q);
    sp_i_explicit_take(x, x->qkv);
    attend_backward(x);
    sp_i_explicit_give(x, x->q);
    sp_i_explicit_drop(x, SP_TENSOR_PROBABILITIES);
    sp_i_explicit_drop(x, SP_TENSOR_PROBABILITY_MASK);
    sp_i_explicit_drop(x, SP_TENSOR_DROPPED_PROBABILITIES);
    sp_i_explicit_drop(x, SP_TENSOR_QUERIES);
    sp_i_explicit_drop(x, SP_TENSOR_LOG_SUM_EXP);
    leave_block(x, own);
    sp_i_explicit_give(x, x->hidden_gathered);
    finish(x, SP_TENSOR_ATTENTION, x->hidden);
    finish_column(x, SP_TENSOR_NORM1, x->qkv);
}

static void layer_backward(sp_i_explicit *x, int layer)
{
    fetch(x, SP_TENSOR_INPUT, SP_LAYER_TENSORS, layer, x->stage->layers);
    rebuild(x);
    mlp_backward(x);
    attention_block_backward(x);
    for (int t = 0; t < SP_LAYER_TENSORS; t++) {
        sp_i_explicit_drop(x, (sp_layer_tensor_id)t);
    }
}

// The gradient of the logits takes their place.
static void head_backward(sp_i_explicit *x)
{
    int64_t gradient = x->logits_gradient;
    sp_i_explicit_take(x, x->hidden);
    sp_i_explicit_take(x, x->hidden);
    fetch(x, SP_TENSOR_FINAL_INPUT, SP_ALL_TENSORS, 0, 1);
    sp_i_memory_give(&x->gauge, SP_MEM_LOGITS, x->bytes[SP_TENSOR_LOGITS] - gradient);
    x->place[SP_TENSOR_LOGITS] = SP_MEM_CATEGORIES;
    sp_i_explicit_pass(x, x->hidden_gathered);
    sp_i_explicit_give(x, x->hidden);
    if (x->splits) {
        x->place[SP_TENSOR_FINAL_NORM] = SP_MEM_CATEGORIES;
    } else {
        sp_i_memory_give(&x->gauge, SP_MEM_LOGITS, gradient);
    }
    for (int t = SP_TENSOR_FINAL_INPUT; t < SP_ALL_TENSORS; t++) {
        sp_i_explicit_drop(x, (sp_layer_tensor_id)t);
    }
}

static void embedding_backward(sp_i_explicit *x)
{
    fetch(x, SP_TENSOR_EMBEDDING_MASK, SP_TENSOR_FINAL_INPUT, 0, 1);
    bool own = enter_block(x, SP_TENSOR_EMBEDDING_MASK);
    sp_i_explicit_pass(x, x->hidden_gathered);
    sp_i_explicit_give(x, own ? x->hidden : 0);
}
