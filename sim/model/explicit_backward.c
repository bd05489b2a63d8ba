#include "sim/model/explicit_backward.h"

#include "sim/model/explicit_forward.h"

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
static void fetch(sp_i_explicit *x, sp_i_explicit_tensor first, sp_i_explicit_tensor end, int layer,
                  int layers)
{
    for (int t = (int)first; t < (int)end; t++) {
        x->place[t] = x->kept[t] ? x->category[t] : SP_MEM_CATEGORIES;
        x->viewed[t] = is_viewed(x, t, layer, layers);
        if (x->kept[t] && x->collects && t != SP_I_KEYS_VALUES) {
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
static void finish(sp_i_explicit *x, sp_i_explicit_tensor input, int64_t output_gradient)
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
static void finish_column(sp_i_explicit *x, sp_i_explicit_tensor input, int64_t output_gradient)
{
    sp_i_explicit_pass(x, x->splits ? 0 : x->hidden_gathered);
    finish(x, input, output_gradient);
}

// The gradient of a block's output is behind its dropout a matrix of its own.
static bool enter_block(sp_i_explicit *x, sp_i_explicit_tensor mask)
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
    bool own = enter_block(x, SP_I_MLP_MASK);
    sp_i_explicit_drop(x, SP_I_ROUTER);
    sp_i_explicit_drop(x, SP_I_EXPERT_OUTPUT);
    sp_i_explicit_take(x, x->hidden_gathered);
    sp_i_explicit_take(x, x->ffn);
    sp_i_explicit_take(x, x->fc1);
    sp_i_explicit_give(x, x->ffn);
    sp_i_explicit_drop(x, SP_I_FC1);
    leave_block(x, own);
    sp_i_explicit_give(x, x->hidden_gathered);
    finish(x, SP_I_FC2_INPUT, x->hidden);
    finish_column(x, SP_I_NORM2, x->fc1);
    sp_i_explicit_drop(x, SP_I_EXPERT_INPUT);
    sp_i_explicit_drop(x, SP_I_RESIDUAL);
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
    sp_i_explicit_drop(x, SP_I_KEYS_VALUES);
    sp_i_explicit_give(x, 2 * x->scores);
    sp_i_explicit_give(x, x->q);
}

static void attention_block_backward(sp_i_explicit *x)
{
    bool own = enter_block(x, SP_I_ATTENTION_MASK);
    sp_i_explicit_take(x, x->hidden_gathered);
    sp_i_explicit_take(x, x->q);
    sp_i_explicit_take(x, x->qkv);
    attend_backward(x);
    sp_i_explicit_give(x, x->q);
    sp_i_explicit_drop(x, SP_I_PROBABILITIES);
    sp_i_explicit_drop(x, SP_I_PROBABILITY_MASK);
    sp_i_explicit_drop(x, SP_I_DROPPED_PROBABILITIES);
    sp_i_explicit_drop(x, SP_I_QUERIES);
    sp_i_explicit_drop(x, SP_I_LOG_SUM_EXP);
    leave_block(x, own);
    sp_i_explicit_give(x, x->hidden_gathered);
    finish(x, SP_I_ATTENTION, x->hidden);
    finish_column(x, SP_I_NORM1, x->qkv);
}

static void layer_backward(sp_i_explicit *x, int layer)
{
    fetch(x, SP_I_INPUT, SP_I_LAYER_TENSORS, layer, x->stage->layers);
    sp_i_explicit_rebuild(x);
    mlp_backward(x);
    attention_block_backward(x);
    for (int t = 0; t < SP_I_LAYER_TENSORS; t++) {
        sp_i_explicit_drop(x, (sp_i_explicit_tensor)t);
    }
}

// The gradient of the logits takes their place.
static void head_backward(sp_i_explicit *x)
{
    int64_t gradient = x->logits_gradient;
    sp_i_explicit_take(x, x->hidden);
    sp_i_explicit_take(x, x->hidden);
    fetch(x, SP_I_FINAL_INPUT, SP_I_EXPLICIT_TENSORS, 0, 1);
    sp_i_memory_give(&x->gauge, SP_MEM_LOGITS, x->bytes[SP_I_LOGITS] - gradient);
    x->place[SP_I_LOGITS] = SP_MEM_CATEGORIES;
    sp_i_explicit_pass(x, x->hidden_gathered);
    sp_i_explicit_give(x, x->hidden);
    if (x->splits) {
        x->place[SP_I_FINAL_NORM] = SP_MEM_CATEGORIES;
    } else {
        sp_i_memory_give(&x->gauge, SP_MEM_LOGITS, gradient);
    }
    for (int t = SP_I_FINAL_INPUT; t < SP_I_EXPLICIT_TENSORS; t++) {
        sp_i_explicit_drop(x, (sp_i_explicit_tensor)t);
    }
}

static void embedding_backward(sp_i_explicit *x)
{
    fetch(x, SP_I_EMBEDDING_MASK, SP_I_FINAL_INPUT, 0, 1);
    bool own = enter_block(x, SP_I_EMBEDDING_MASK);
    sp_i_explicit_pass(x, x->hidden_gathered);
    sp_i_explicit_give(x, own ? x->hidden : 0);
}
