#include "sim/model/explicit_forward.h"

static void layer_forward(sp_i_explicit *x);
static void head_forward(sp_i_explicit *x);

// Its readers are done: only what is kept survives them, and what a backward rebuilt.
static void leave(sp_i_explicit *x, sp_i_explicit_tensor tensor)
{
    if (!x->rebuilds && !(x->keeps && x->kept[tensor])) {
        sp_i_explicit_drop(x, tensor);
    }
}

// The end of a layer: what is kept is nobody's to give until the backward.
static void settle(sp_i_explicit *x)
{
    for (int t = 0; t < SP_I_EXPLICIT_TENSORS; t++) {
        leave(x, (sp_i_explicit_tensor)t);
        x->place[t] = SP_MEM_CATEGORIES;
    }
}

// The output of a layer is made before the layer runs, as the input of what follows it; that of the
// last one goes into a message.
void sp_i_explicit_forward(sp_i_explicit *x)
{
    const sp_stage *stage = x->stage;
    sp_i_explicit_make(x, stage->layers > 0 ? SP_I_INPUT : SP_I_FINAL_INPUT);
    if (stage->embedding) {
        sp_i_explicit_open(x, SP_PART_EMBEDDING, false);
        sp_i_explicit_pass(x, x->hidden_gathered);
        sp_i_explicit_make(x, SP_I_EMBEDDING_MASK);
        sp_i_explicit_close(x, SP_PART_EMBEDDING, false);
    }
    for (int i = 0; i < stage->layers; i++) {
        bool last = i + 1 == stage->layers;
        sp_i_explicit_tensor next = last ? SP_I_FINAL_INPUT : SP_I_INPUT;
        sp_memory_category output = SP_MEM_CATEGORIES;
        if (!last || stage->head) {
            output = sp_i_explicit_place(x, next);
            sp_i_memory_take(&x->gauge, output, x->bytes[next]);
        }
        sp_i_explicit_open(x, SP_PART_LAYER, false);
        layer_forward(x);
        sp_i_explicit_close(x, SP_PART_LAYER, false);
        settle(x);
        x->place[next] = output;
    }
    if (stage->head) {
        sp_i_explicit_open(x, SP_PART_HEAD, false);
        head_forward(x);
        sp_i_explicit_close(x, SP_PART_HEAD, false);
    } else if (stage->layers == 0) {
        sp_i_explicit_drop(x, SP_I_FINAL_INPUT);
    }
    settle(x);
}

static void norm(sp_i_explicit *x, sp_i_explicit_tensor output)
{
    sp_i_explicit_make(x, output);
    sp_i_explicit_make(x, (sp_i_explicit_tensor)(output + 1));
}

// A column-parallel product has read its gathered input when its output is there.
static void project(sp_i_explicit *x, sp_i_explicit_tensor output)
{
    sp_i_explicit_take(x, x->hidden_gathered);
    sp_i_explicit_make(x, output);
    sp_i_explicit_give(x, x->hidden_gathered);
}

static void project_qkv(sp_i_explicit *x)
{
    sp_i_explicit_take(x, x->hidden_gathered);
    sp_i_explicit_take(x, x->qkv);
    sp_i_explicit_give(x, x->hidden_gathered);
    sp_i_explicit_make(x, SP_I_QUERIES);
    if (!x->cached && !x->rebuilds) {
        sp_i_memory_take(&x->gauge, SP_MEM_KV_CACHE, x->kv_cached);
    }
    sp_i_explicit_make(x, SP_I_KEYS_VALUES);
    sp_i_explicit_give(x, x->qkv);
}

static void attend(sp_i_explicit *x)
{
    sp_i_explicit_make(x, SP_I_ATTENTION);
    sp_i_explicit_take(x, x->scores);
    sp_i_explicit_make(x, SP_I_PROBABILITIES);
    sp_i_explicit_give(x, x->scores);
    sp_i_explicit_make(x, SP_I_PROBABILITY_MASK);
    sp_i_explicit_make(x, SP_I_DROPPED_PROBABILITIES);
    sp_i_explicit_make(x, SP_I_LOG_SUM_EXP);
    sp_i_explicit_pass(x, x->attend);
}

static void attention_block(sp_i_explicit *x)
{
    sp_i_explicit_make(x, SP_I_RESIDUAL);
    sp_i_explicit_pass(x, x->hidden_gathered);
    sp_i_explicit_make(x, SP_I_ATTENTION_MASK);
    leave(x, SP_I_ATTENTION_MASK);
}

static void layer_forward(sp_i_explicit *x)
{
    norm(x, SP_I_NORM1);
    project_qkv(x);
    leave(x, SP_I_NORM1);
    attend(x);
    leave(x, SP_I_PROBABILITIES);
    leave(x, SP_I_PROBABILITY_MASK);
    leave(x, SP_I_DROPPED_PROBABILITIES);
    leave(x, SP_I_LOG_SUM_EXP);
    leave(x, SP_I_QUERIES);
    attention_block(x);
    leave(x, SP_I_ATTENTION);
    norm(x, SP_I_NORM2);
    sp_i_explicit_make(x, SP_I_ROUTER);
    sp_i_explicit_make(x, SP_I_EXPERT_INPUT);
    project(x, SP_I_FC1);
    leave(x, SP_I_NORM2);
    sp_i_explicit_make(x, SP_I_FC2_INPUT);
    leave(x, SP_I_FC1);
    sp_i_explicit_make(x, SP_I_EXPERT_OUTPUT);
    sp_i_explicit_pass(x, x->hidden_gathered);
    sp_i_explicit_make(x, SP_I_MLP_MASK);
}

static bool misses(const sp_i_explicit *x, sp_i_explicit_tensor tensor)
{
    return x->place[tensor] == SP_MEM_CATEGORIES && x->bytes[tensor] > 0;
}

void sp_i_explicit_rebuild(sp_i_explicit *x)
{
    x->rebuilds = true;
    norm(x, SP_I_NORM1);
    if (misses(x, SP_I_QUERIES)) {
        project_qkv(x);
    }
    // Of no pairs there are no probabilities, but there is an output.
    if (misses(x, SP_I_LOG_SUM_EXP) || misses(x, SP_I_PROBABILITIES) || misses(x, SP_I_ATTENTION)) {
        attend(x);
    }
    if (misses(x, SP_I_RESIDUAL)) {
        attention_block(x);
    }
    norm(x, SP_I_NORM2);
    sp_i_explicit_make(x, SP_I_ROUTER);
    sp_i_explicit_make(x, SP_I_EXPERT_INPUT);
    if (misses(x, SP_I_FC1)) {
        project(x, SP_I_FC1);
    }
    sp_i_explicit_make(x, SP_I_FC2_INPUT);
    sp_i_explicit_make(x, SP_I_EXPERT_OUTPUT);
    sp_i_explicit_make(x, SP_I_MLP_MASK);
    x->rebuilds = false;
}

static void head_forward(sp_i_explicit *x)
{
    norm(x, SP_I_FINAL_NORM);
    project(x, SP_I_LOGITS);
    sp_i_explicit_make(x, SP_I_LOGITS_SUM);
}
