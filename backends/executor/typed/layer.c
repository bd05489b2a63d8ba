// A layer runs the steps of sim/model/layer.h: the forward in their order, a recompute mode those
// that it repeats, the backward in reverse. Each kind of step has a function for either direction.
#include "sim/model/layer.h"

#include "backends/executor/typed/layer.h"

// A product and the gradient of its output, with all rows of that where they have been gathered.
typedef struct due_product {
    const sp_layer_step *step;
    real *gradient, *all;
} due_product;

// A walk over the layer's steps, and what each leaves for the next.
typedef struct walk {
    layer *l;
    real *output;    // of the layer, for the forward
    real *projected; // forward: the output of a column-parallel product
    real *gathered;  // all rows of hidden states or of their gradient
    real *part;      // this rank's part of a sum of hidden states
    real *shared;    // output of the shared experts, or its gradient
    // Backward: the gradient of what the last step read, and the one of the block's output, which
    // the residual carries past the block.
    real *gradient, *residual;
    int32_t pack; // of the backward
    bool split;   // weight gradients are left for later
    // Backward: gradients of the router's logits and of the shared experts' gate, and what the
    // experts give to the gradient of what both they and the shared ones read.
    real *logits, *score, *joined;
    // Backward of latent attention: gradients of queries, of the products' output and inputs.
    real *queries, *product, *normed, *q_latent, *kv_latent;
    // Backward: products of the block whose weight gradients are due at its norm.
    due_product due[SP_I_EXEC_DEFERRED / 2];
    int due_count;
} walk;

static const sp_model *model_of(const layer *l)
{
    return &l->kind->model;
}

// Is it the work of experts?
static bool is_routed(const layer *l, const sp_layer_step *o)
{
    bool of_mlp = o == &sp_layer_steps[SP_STEP_FC1] || o == &sp_layer_steps[SP_STEP_ACTIVATION] ||
                  o == &sp_layer_steps[SP_STEP_FC2];
    return of_mlp && model_of(l)->experts > 0;
}

// Experts have rows of their own.
static sp_layer_tensor_id reads_of(const layer *l, const sp_layer_step *o)
{
    bool enters = is_routed(l, o) && o->reads == SP_TENSOR_NORM2;
    return enters ? SP_TENSOR_EXPERT_INPUT : o->reads;
}

static sp_layer_tensor_id writes_of(const layer *l, const sp_layer_step *o)
{
    bool leaves = is_routed(l, o) && o->writes == SP_LAYER_TENSORS;
    return leaves ? SP_TENSOR_EXPERT_OUTPUT : o->writes;
}

// Numbers of a row of a tensor: of one expert where a token has rows of several.
static int64_t row_of(const layer *l, sp_layer_tensor_id tensor)
{
    const sp_i_exec_spec *spec = &l->kind->specs.of[tensor];
    return spec->routed ? spec->columns / l->kind->shard.active : spec->columns;
}

static int64_t rows_of(const layer *l, const sp_layer_step *o)
{
    return is_routed(l, o) ? l->routed.count : l->rows;
}

// A product's widths, of one expert.
static sp_layer_linear widths_of(const layer *l, const sp_layer_step *o)
{
    sp_layer_linear linear;
    sp_layer_place place = (sp_layer_place)(o - sp_layer_steps);
    bool has = sp_layer_linear_of(model_of(l), &l->kind->shard, place, &linear);
    SP_ASSERT(has);
    return linear;
}

static int64_t inputs_of(const layer *l, const sp_layer_step *o)
{
    return widths_of(l, o).inputs;
}

static int64_t outputs_of(const layer *l, const sp_layer_step *o)
{
    return widths_of(l, o).outputs;
}

// A matrix of as many rows as the step works on.
static real *take_rows(const layer *l, const sp_layer_step *o, int64_t columns)
{
    return sp_i_exec_take(l->stage->arena, SP_MEM_WORKSPACE, rows_of(l, o) * columns,
                          l->stage->job->width.value);
}

static expert_product product_of(const layer *l, const sp_layer_step *o)
{
    return (expert_product){(int)o->weight, inputs_of(l, o), outputs_of(l, o)};
}

// ---- Forward ----

_Static_assert((int)SP_TENSOR_STATISTICS1 == SP_TENSOR_NORM1 + 1 &&
                   (int)SP_TENSOR_STATISTICS2 == SP_TENSOR_NORM2 + 1,
               "the statistics of a norm follow its output");

static bool norm(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    sp_layer_tensor_id statistics = o->writes + 1;
    if (!SP_EXEC(make)(l, o->writes) || !SP_EXEC(make)(l, statistics)) {
        return false;
    }
    SP_EXEC(norm)
    (l, model_of(l)->hidden, l->stage->value + sp_i_exec_slot(l->index, o->weight), l->t[o->reads],
     l->t[o->writes], l->t[statistics]);
    return true;
}

static bool gather(walk *w, const sp_layer_step *o)
{
    w->gathered = SP_EXEC(gather)(w->l, w->l->t[o->reads]);
    return w->gathered != NULL;
}

// A block's output [own, hidden]: the residual, the output of the layer, or that of the shared
// experts, which is kept where a gate's backward reads it.
static real *block_output(const walk *w, const sp_layer_step *o)
{
    if (o->writes == SP_TENSOR_SHARED_OUTPUT) {
        return w->shared;
    }
    return o->writes == SP_LAYER_TENSORS ? w->output : w->l->t[o->writes];
}

static bool make_output(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    if (o->writes == SP_LAYER_TENSORS || o->operation == SP_LAYER_QKV) {
        return true;
    }
    if (o->writes == SP_TENSOR_SHARED_OUTPUT && !model_of(l)->shared_gate) {
        w->shared = SP_EXEC(take_own)(l);
        return w->shared != NULL;
    }
    bool ok = SP_EXEC(make)(l, o->writes);
    w->shared = o->writes == SP_TENSOR_SHARED_OUTPUT ? l->t[o->writes] : w->shared;
    return ok;
}

// Every row with the weights of its expert.
static bool multiply(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    const expert_product p = product_of(l, o);
    sp_layer_tensor_id to = writes_of(l, o);
    return SP_EXEC(make)(l, to) &&
           SP_EXEC(experts)->multiply(l, &p, l->t[reads_of(l, o)], l->t[to]);
}

// y = x W^T + b, both of full width. Of row-parallel ones the first rank adds the bias.
static bool linear(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    bool column = sp_layer_enters(o);
    if (is_routed(l, o)) {
        return multiply(w, o);
    }
    const real *bias = l->stage->value[sp_i_exec_slot(l->index, o->weight) + 1];
    if (!make_output(w, o)) {
        return false;
    }
    real *y = o->operation == SP_LAYER_QKV ? SP_EXEC(take)(l, outputs_of(l, o))
              : column                     ? l->t[o->writes]
                                           : SP_EXEC(partial)(l, block_output(w, o));
    if (y == NULL) {
        return false;
    }
    SP_OP(linear)
    (l->rows, inputs_of(l, o), outputs_of(l, o), column ? w->gathered : l->t[o->reads],
     SP_EXEC(value)(l, o->weight), column || SP_EXEC(adds)(l) ? bias : NULL, y);
    if (column) {
        SP_EXEC(release)(l, l->t[o->reads], w->gathered);
        w->projected = y;
    } else {
        w->part = y;
    }
    return true;
}

static bool elementwise(walk *w, const sp_layer_step *o SP_UNUSED)
{
    bool ok = sp_model_is_latent(model_of(w->l)) ? SP_EXEC(split_latent)(w->l, w->projected)
                                                 : SP_EXEC(split_qkv)(w->l, w->projected);
    sp_i_exec_give(w->l->stage->arena, w->projected);
    return ok;
}

// A backward that repeats it may have the output, and the log-sum-exp never.
static bool attention(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    return (l->t[o->writes] != NULL || SP_EXEC(make)(l, o->writes)) &&
           SP_EXEC(make)(l, SP_TENSOR_LOG_SUM_EXP) && SP_EXEC(attend_pack)(l);
}

static bool reduce(walk *w, const sp_layer_step *o)
{
    real *y = block_output(w, o);
    if (!SP_EXEC(sum)(w->l, w->part, y)) {
        return false;
    }
    if (o->reads == SP_LAYER_TENSORS) { // nothing is dropped
        return true;
    }
    bool ok = SP_EXEC(drop_out)(w->l, o->reads, y);
    SP_EXEC(drop)(w->l, o->reads);
    return ok;
}

// To experts, and, of the outputs, back. The exchanges between ranks are part of it.
static bool permute(walk *w, const sp_layer_step *o)
{
    return o->operation == SP_LAYER_PERMUTATION ? SP_EXEC(experts)->dispatch(w->l)
                                                : SP_EXEC(experts)->combine(w->l, w->output);
}

static bool choose(walk *w, const sp_layer_step *o)
{
    return o->writes == SP_TENSOR_ROUTER ? SP_EXEC(experts)->choose(w->l)
                                         : SP_EXEC(experts)->gate(w->l);
}

static bool add_shared(walk *w, const sp_layer_step *o SP_UNUSED)
{
    layer *l = w->l;
    if (model_of(l)->shared_gate) {
        SP_EXEC(experts)->add_gated(l, w->shared, w->output);
        return true;
    }
    SP_OP(add)(l->own * model_of(l)->hidden, w->shared, w->output);
    sp_i_exec_give(l->stage->arena, w->shared);
    return true;
}

static bool residual(walk *w, const sp_layer_step *o)
{
    SP_OP(add)(w->l->own * model_of(w->l)->hidden, w->l->t[o->reads], block_output(w, o));
    return true;
}

static bool activation(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    int64_t rows = rows_of(l, o);
    int64_t ffn = row_of(l, o->writes);
    if (!SP_EXEC(make)(l, o->writes)) {
        return false;
    }
    if (model_of(l)->activation == SP_SWIGLU) {
        SP_OP(swiglu)(rows, ffn, l->t[o->reads], l->t[o->writes]);
    } else {
        SP_OP(gelu)(rows * ffn, l->t[o->reads], l->t[o->writes]);
    }
    return true;
}

// ---- Latent attention (sim/model/layer.h): all rows are the rank's own ----

// The product of a latent with all heads' keys and values is workspace.
static bool latent_linear(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    bool stays = o->writes != SP_TENSOR_KEYS_VALUES;
    if (stays && !SP_EXEC(make)(l, o->writes)) {
        return false;
    }
    real *y = stays ? l->t[o->writes] : take_rows(l, o, outputs_of(l, o));
    if (y == NULL) {
        return false;
    }
    SP_OP(linear)
    (l->rows, inputs_of(l, o), outputs_of(l, o), l->t[o->reads], SP_EXEC(value)(l, o->weight),
     l->stage->value[sp_i_exec_slot(l->index, o->weight) + 1], y);
    w->projected = stays ? w->projected : y;
    return true;
}

// A latent and its norm's statistics, which no table keeps.
typedef struct latent {
    int64_t features;
    real *x;    // [rows, features]
    real *copy; // of what stands beside other features; else NULL
    exact *statistics;
} latent;

static bool take_latent(const layer *l, const sp_layer_step *o, latent *of)
{
    bool of_queries = o->reads == SP_TENSOR_Q_LATENT;
    int64_t columns = row_of(l, o->reads);
    *of = (latent){.features = of_queries ? model_of(l)->q_lora_rank : model_of(l)->kv_lora_rank,
                   .x = l->t[o->reads]};
    if (columns > of->features) {
        of->x = of->copy = take_rows(l, o, of->features);
        if (of->copy == NULL) {
            return false;
        }
        SP_OP(copy_rows)
        (l->rows, of->features, l->t[o->reads], columns, of->copy, of->features);
    }
    of->statistics = sp_i_exec_take(l->stage->arena, SP_MEM_WORKSPACE, 2 * l->rows,
                                    l->stage->job->width.statistic);
    return of->statistics != NULL;
}

static void give_latent(const layer *l, const latent *of)
{
    sp_i_exec_give(l->stage->arena, of->statistics);
    sp_i_exec_give(l->stage->arena, of->copy);
}

static bool latent_norm(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    latent of;
    if (!SP_EXEC(make)(l, o->writes) || !take_latent(l, o, &of)) {
        return false;
    }
    SP_EXEC(norm)
    (l, of.features, l->stage->value + sp_i_exec_slot(l->index, o->weight), of.x, l->t[o->writes],
     of.statistics);
    give_latent(l, &of);
    return true;
}

// ---- Weight gradients ----

// From a product's input and the gradient of its output, of which one is hidden states. `all`:
// those where they have been gathered, else NULL; given back.
static bool weight_gradient(const layer *l, const sp_layer_step *o, void *const *pair, real *all,
                            const sp_i_exec_routed *routed)
{
    bool column = sp_layer_enters(o);
    if (is_routed(l, o)) {
        const expert_product p = product_of(l, o);
        return SP_EXEC(experts)->weight_gradient(l, &p, routed, pair[0], pair[1]);
    }
    void *const *gradient = l->stage->gradient + sp_i_exec_slot(l->index, o->weight);
    real *hidden = pair[column ? 0 : 1];
    all = all != NULL ? all : SP_EXEC(gather)(l, hidden);
    if (all == NULL) {
        return false;
    }
    SP_OP(linear_backward_weight)
    (l->rows, inputs_of(l, o), outputs_of(l, o), column ? pair[1] : all, column ? all : pair[0],
     gradient[0], gradient[1]);
    SP_EXEC(release)(l, hidden, all);
    return true;
}

// A product's input and the gradient of its output, where they wait for `weights`.
static void **deferred_of(const layer *l, int32_t backward_pack, const sp_layer_step *o)
{
    ptrdiff_t earlier = 0;
    for (const sp_layer_step *p = sp_layer_steps; p < o; p++) {
        earlier += sp_layer_is_product(p) && sp_layer_has_step(model_of(l), p) ? 2 : 0;
    }
    return sp_i_exec_deferred_of(l->stage, backward_pack, l->index) + earlier;
}

// The matrices that weight gradients read count among the activations until they run.
static bool defer(const walk *w, const sp_layer_step *o, void *const *pair)
{
    const layer *l = w->l;
    bool column = sp_layer_enters(o);
    bool own = !is_routed(l, o);
    const int64_t elements[2] = {(column && own ? l->own : rows_of(l, o)) * inputs_of(l, o),
                                 (!column && own ? l->own : rows_of(l, o)) * outputs_of(l, o)};
    void **deferred = deferred_of(l, w->pack, o);
    deferred[0] = NULL;
    for (int i = pair[0] != NULL ? 0 : 1; i < 2; i++) {
        deferred[i] = sp_i_exec_recount(l->stage->arena, pair[i], SP_MEM_ACTIVATIONS, elements[i],
                                        l->stage->job->width.value);
        if (deferred[i] == NULL) {
            return false;
        }
    }
    return true;
}

// Computes a weight gradient now, or leaves it for later; takes over the matrices.
static bool finish_product(const walk *w, const due_product *due)
{
    layer *l = w->l;
    sp_layer_tensor_id reads = reads_of(l, due->step);
    void *pair[2] = {l->t[reads], due->gradient};
    bool is_read_again = false;
    for (const due_product *d = due + 1; d < w->due + w->due_count; d++) {
        is_read_again = is_read_again || reads_of(l, d->step) == reads;
    }
    if (!is_read_again) {
        l->t[reads] = NULL;
    } else if (w->split) { // another product of the block leaves it
        pair[0] = NULL;
    }
    if (w->split) {
        if (due->all != NULL) {
            SP_EXEC(release)(l, due->gradient, due->all);
        }
        return defer(w, due->step, pair);
    }
    bool ok = weight_gradient(l, due->step, pair, due->all, &l->routed);
    sp_i_exec_give(l->stage->arena, is_read_again ? NULL : pair[0]);
    sp_i_exec_give(l->stage->arena, pair[1]);
    return ok;
}

bool SP_EXEC(layer_weights)(const layer *l, int32_t backward_pack)
{
    sp_i_exec_routed *routed = sp_i_exec_deferred_rows(l->stage, backward_pack, l->index);
    void *inputs[SP_LAYER_TENSORS] = {NULL};
    bool ok = true;
    for (const sp_layer_step *o = sp_layer_steps; ok && o < sp_layer_steps + SP_LAYER_STEPS; o++) {
        if (!sp_layer_is_product(o) || !sp_layer_has_step(model_of(l), o)) {
            continue;
        }
        // Of products that read one tensor the first has it: it is the last in the backward.
        void **deferred = deferred_of(l, backward_pack, o);
        void **input = &inputs[reads_of(l, o)];
        *input = deferred[0] != NULL ? deferred[0] : *input;
        void *const pair[2] = {*input, deferred[1]};
        ok = weight_gradient(l, o, pair, NULL, routed);
        sp_i_exec_give(l->stage->arena, deferred[1]);
        deferred[0] = deferred[1] = NULL;
    }
    for (int t = 0; ok && t < SP_LAYER_TENSORS; t++) {
        sp_i_exec_give(l->stage->arena, inputs[t]);
    }
    if (!ok) {
        return false;
    }
    sp_i_exec_give(l->stage->arena, routed->expert);
    *routed = (sp_i_exec_routed){0};
    return true;
}

// ---- Backward ----

static bool residual_backward(walk *w, const sp_layer_step *o SP_UNUSED)
{
    w->residual = w->gradient;
    return true;
}

// Through the dropout to the gradient of all rows of the product.
static bool reduce_backward(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    if (o->writes == SP_TENSOR_SHARED_OUTPUT) {
        w->joined = w->gradient;
        w->gradient = w->shared;
    } else if (l->t[o->reads] != NULL) {
        w->gradient = SP_EXEC(drop_out_backward)(l, o->reads, w->residual);
        give_tensor(l, (int)o->reads);
    }
    w->gathered = w->gradient != NULL ? SP_EXEC(gather)(l, w->gradient) : NULL;
    return w->gathered != NULL;
}

static bool add_shared_backward(walk *w, const sp_layer_step *o SP_UNUSED)
{
    layer *l = w->l;
    w->shared = w->residual;
    if (!model_of(l)->shared_gate) {
        return true;
    }
    w->shared = SP_EXEC(take_own)(l);
    w->score = SP_EXEC(take)(l, 1);
    if (w->shared == NULL || w->score == NULL) {
        return false;
    }
    SP_EXEC(experts)->add_gated_backward(l, w->residual, w->shared, w->score);
    return true;
}

// From outputs to the rows of experts, and from what these read to hidden states.
static bool permute_backward(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    real *before = w->gradient;
    if (o->operation == SP_LAYER_PERMUTATION) {
        w->gradient = w->part = SP_EXEC(take_own)(l);
        bool ok =
            w->gradient != NULL && SP_EXEC(experts)->dispatch_backward(l, before, w->gradient);
        sp_i_exec_give(l->stage->arena, before);
        return ok;
    }
    w->gradient = w->gathered =
        sp_i_exec_take(l->stage->arena, SP_MEM_WORKSPACE, l->routed.count * model_of(l)->hidden,
                       l->stage->job->width.value);
    w->logits = SP_EXEC(take)(l, model_of(l)->experts);
    bool ok = w->gradient != NULL && w->logits != NULL &&
              SP_EXEC(experts)->combine_backward(l, before, w->gradient, w->logits);
    if (before != w->residual) {
        sp_i_exec_give(l->stage->arena, before);
    }
    return ok;
}

static bool choose_backward(walk *w, const sp_layer_step *o)
{
    real **from = o->writes == SP_TENSOR_ROUTER ? &w->logits : &w->score;
    if (from == &w->logits) {
        SP_EXEC(experts)->choose_backward(w->l, *from, w->gradient);
    } else {
        SP_EXEC(experts)->gate_backward(w->l, *from, w->gradient);
    }
    sp_i_exec_give(w->l->stage->arena, *from);
    return true;
}

// Of a row-parallel product the gathered gradient stays for the weight gradient.
static bool linear_backward(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    bool column = sp_layer_enters(o);
    bool routed = is_routed(l, o);
    real *dy = column ? w->gradient : w->gathered;
    w->due[w->due_count++] = (due_product){o, w->gradient, column || routed ? NULL : w->gathered};
    if (column && !routed) {
        w->gradient = SP_EXEC(take_own)(l);
        w->part = w->gradient != NULL ? SP_EXEC(partial)(l, w->gradient) : NULL;
    } else {
        w->gradient = w->part = take_rows(l, o, inputs_of(l, o));
    }
    if (w->part == NULL) {
        return false;
    }
    if (routed) {
        const expert_product p = product_of(l, o);
        return SP_EXEC(experts)->multiply_backward(l, &p, dy, w->part);
    }
    SP_OP(linear_backward_input)
    (l->rows, inputs_of(l, o), outputs_of(l, o), dy, SP_EXEC(value)(l, o->weight), w->part);
    return true;
}

static bool gather_backward(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    bool ok = SP_EXEC(sum)(l, w->part, w->gradient);
    if (o == &sp_layer_steps[SP_STEP_SHARED_GATHER]) {
        SP_OP(add)(l->own * model_of(l)->hidden, w->joined, w->gradient);
        sp_i_exec_give(l->stage->arena, w->joined);
    }
    return ok;
}

static bool activation_backward(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    int64_t rows = rows_of(l, o);
    int64_t ffn = row_of(l, o->writes);
    real *dx = take_rows(l, o, row_of(l, o->reads));
    if (dx == NULL) {
        return false;
    }
    if (model_of(l)->activation == SP_SWIGLU) {
        SP_OP(swiglu_backward)(rows, ffn, l->t[o->reads], w->gradient, dx);
    } else {
        SP_OP(gelu_backward)(rows * ffn, l->t[o->reads], w->gradient, dx);
    }
    sp_i_exec_give(l->stage->arena, w->gradient);
    w->gradient = dx;
    return true;
}

// ---- of latent attention ----

static bool latent_attention_backward(walk *w)
{
    layer *l = w->l;
    w->queries = SP_EXEC(take)(l, l->kind->shard.q);
    w->product = SP_EXEC(take)(l, outputs_of(l, &sp_layer_steps[SP_STEP_KV_UP]));
    w->kv_latent = SP_EXEC(take)(l, row_of(l, SP_TENSOR_KV_LATENT));
    bool ok = w->queries != NULL && w->product != NULL && w->kv_latent != NULL &&
              SP_EXEC(attend_latent_backward)(l, w->gradient, w->queries, w->product, w->kv_latent);
    sp_i_exec_give(l->stage->arena, w->gradient);
    w->gradient = NULL;
    return ok;
}

// Of a product that reads hidden states: adds to their gradient.
static bool down_backward(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    real *dy = o->writes == SP_TENSOR_QUERIES    ? w->queries
               : o->writes == SP_TENSOR_Q_LATENT ? w->q_latent
                                                 : w->kv_latent;
    real *dx = SP_EXEC(take_own)(l);
    if (dx == NULL) {
        return false;
    }
    SP_OP(linear_backward_input)
    (l->rows, inputs_of(l, o), outputs_of(l, o), dy, SP_EXEC(value)(l, o->weight), dx);
    w->due[w->due_count++] = (due_product){o, dy, NULL};
    if (w->gradient == NULL) {
        w->gradient = w->part = dx;
        return true;
    }
    SP_OP(add)(l->own * model_of(l)->hidden, dx, w->gradient);
    sp_i_exec_give(l->stage->arena, dx);
    return true;
}

// Of a product that reads a normed latent, which its weight gradient reads last.
static bool up_backward(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    real *dy = o->writes == SP_TENSOR_QUERIES ? w->queries : w->product;
    w->normed = take_rows(l, o, inputs_of(l, o));
    if (w->normed == NULL) {
        return false;
    }
    SP_OP(linear_backward_input)
    (l->rows, inputs_of(l, o), outputs_of(l, o), dy, SP_EXEC(value)(l, o->weight), w->normed);
    w->due[w->due_count] = (due_product){o, dy, NULL};
    const walk alone = {.l = l, .pack = w->pack, .split = w->split};
    return finish_product(&alone, &w->due[w->due_count]);
}

static bool latent_linear_backward(walk *w, const sp_layer_step *o)
{
    return sp_layer_enters(o) ? down_backward(w, o) : up_backward(w, o);
}

static bool latent_norm_backward(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    latent of;
    int slot = sp_i_exec_slot(l->index, o->weight);
    if (!take_latent(l, o, &of)) {
        return false;
    }
    real *again = take_rows(l, o, of.features);
    real *dx = take_rows(l, o, of.features);
    if (again == NULL || dx == NULL) {
        return false;
    }
    SP_EXEC(norm)(l, of.features, l->stage->value + slot, of.x, again, of.statistics);
    SP_EXEC(norm_backward)
    (l, of.features, l->stage->value + slot, l->stage->gradient + slot, of.x, of.statistics,
     w->normed, dx);
    if (o->reads == SP_TENSOR_Q_LATENT) {
        w->q_latent = dx;
    } else {
        SP_OP(copy_rows)
        (l->rows, of.features, dx, of.features, w->kv_latent, row_of(l, o->reads));
        sp_i_exec_give(l->stage->arena, dx);
    }
    sp_i_exec_give(l->stage->arena, again);
    sp_i_exec_give(l->stage->arena, w->normed);
    give_latent(l, &of);
    return true;
}

// To the gradient of the projected queries, keys and values.
static bool attention_backward(walk *w, const sp_layer_step *o SP_UNUSED)
{
    layer *l = w->l;
    if (sp_model_is_latent(model_of(l))) {
        return latent_attention_backward(w);
    }
    real *dqkv = SP_EXEC(take)(l, l->kind->shard.q + row_of(l, SP_TENSOR_KEYS_VALUES));
    if (dqkv == NULL || !SP_EXEC(attend_backward)(l, w->gradient, dqkv)) {
        return false;
    }
    sp_i_exec_give(l->stage->arena, w->gradient);
    w->gradient = dqkv;
    return true;
}

// A norm begins a block: the gradient that went past the block joins, and the weight gradients of
// the block are due.
static bool norm_backward(walk *w, const sp_layer_step *o)
{
    layer *l = w->l;
    int slot = sp_i_exec_slot(l->index, o->weight);
    real *dx = SP_EXEC(take_own)(l);
    if (dx == NULL) {
        return false;
    }
    SP_EXEC(norm_backward)
    (l, model_of(l)->hidden, l->stage->value + slot, l->stage->gradient + slot, l->t[o->reads],
     l->t[o->writes + 1], w->gradient, dx);
    SP_OP(add)(l->own * model_of(l)->hidden, w->residual, dx);
    sp_i_exec_give(l->stage->arena, w->gradient);
    bool is_due = false;
    for (int d = 0; d < w->due_count; d++) {
        is_due = is_due || w->due[d].gradient == w->residual;
    }
    if (!is_due) {
        sp_i_exec_give(l->stage->arena, w->residual);
    }
    w->gradient = dx;
    bool ok = true;
    for (int d = 0; ok && d < w->due_count; d++) {
        ok = finish_product(w, &w->due[d]);
    }
    w->due_count = 0;
    return ok;
}

// ---- Walks ----

typedef bool run_step(walk *w, const sp_layer_step *o);

// NULL: nothing to be done here. The backward of attention is that of the element-wise work too.
static run_step *const forwards[] = {
    [SP_LAYER_KIND_NORM] = norm,           [SP_LAYER_KIND_GATHER] = gather,
    [SP_LAYER_KIND_LINEAR] = linear,       [SP_LAYER_KIND_ELEMENTWISE] = elementwise,
    [SP_LAYER_KIND_ATTENTION] = attention, [SP_LAYER_KIND_REDUCE] = reduce,
    [SP_LAYER_KIND_RESIDUAL] = residual,   [SP_LAYER_KIND_PERMUTATION] = permute,
    [SP_LAYER_KIND_SUM] = add_shared,      [SP_LAYER_KIND_DISPATCH] = NULL,
    [SP_LAYER_KIND_COMBINE] = NULL,        [SP_LAYER_KIND_ACTIVATION] = activation};
static run_step *const backwards[] = {[SP_LAYER_KIND_NORM] = norm_backward,
                                      [SP_LAYER_KIND_GATHER] = gather_backward,
                                      [SP_LAYER_KIND_LINEAR] = linear_backward,
                                      [SP_LAYER_KIND_ELEMENTWISE] = NULL,
                                      [SP_LAYER_KIND_ATTENTION] = attention_backward,
                                      [SP_LAYER_KIND_REDUCE] = reduce_backward,
                                      [SP_LAYER_KIND_RESIDUAL] = residual_backward,
                                      [SP_LAYER_KIND_PERMUTATION] = permute_backward,
                                      [SP_LAYER_KIND_SUM] = add_shared_backward,
                                      [SP_LAYER_KIND_DISPATCH] = NULL,
                                      [SP_LAYER_KIND_COMBINE] = NULL,
                                      [SP_LAYER_KIND_ACTIVATION] = activation_backward};

// NULL where the layer has no such step, or there is nothing to be done.
static run_step *step_of(const layer *l, bool backward, const sp_layer_step *step)
{
    bool chooses = (step->operation & (SP_LAYER_ROUTER | SP_LAYER_SHARED_GATE)) != 0;
    bool routes = chooses || step->kind == SP_LAYER_KIND_PERMUTATION;
    if (!sp_layer_has_step(model_of(l), step) || (routes && model_of(l)->experts == 0)) {
        return NULL;
    }
    if (chooses) {
        return backward ? choose_backward : choose;
    }
    if ((step->conditions & (SP_IF_LATENT | SP_IF_QUERY_LATENT)) != 0) {
        return step->kind == SP_LAYER_KIND_LINEAR
                   ? (backward ? latent_linear_backward : latent_linear)
               : step->kind == SP_LAYER_KIND_NORM ? (backward ? latent_norm_backward : latent_norm)
                                                  : NULL; // nothing is gathered
    }
    return (backward ? backwards : forwards)[step->kind];
}

// A backward repeats what the recomputation says. It does not need the layer's output, but what
// experts and shared experts behind a gate give.
static bool runs(const layer *l, const sp_layer_step *step)
{
    bool is_read =
        is_routed(l, step) || (step->writes == SP_TENSOR_SHARED_OUTPUT && model_of(l)->shared_gate);
    const unsigned ends = SP_LAYER_FC2 | SP_LAYER_SHARED_FC2 | SP_LAYER_RESIDUAL2;
    bool is_end = (step->operation & ends) != 0;
    return !l->rebuilds ||
           ((l->kind->specs.repeated & step->operation) != 0 && (!is_end || is_read));
}

// Gives back what the forward has read for the last time and does not keep.
static void drop_read(layer *l, int place)
{
    for (int t = 0; t < SP_LAYER_TENSORS; t++) {
        if ((int)sp_layer_tensors[t].last_read == place) {
            SP_EXEC(drop)(l, (sp_layer_tensor_id)t);
        }
    }
}

// Gives back what the backward has read for the last time.
static void give_read(layer *l, int place)
{
    for (int t = 0; t < SP_LAYER_TENSORS; t++) {
        if ((int)sp_layer_tensors[t].read_back == place) {
            give_tensor(l, t);
        }
    }
}

static bool walk_forward(walk *w)
{
    for (int s = 0; s < SP_LAYER_STEPS; s++) {
        const sp_layer_step *step = &sp_layer_steps[s];
        run_step *run = step_of(w->l, false, step);
        if (run == NULL || !runs(w->l, step)) {
            continue;
        }
        if (!run(w, step)) {
            return false;
        }
        drop_read(w->l, s);
    }
    return true;
}

static bool walk_backward(walk *w)
{
    for (int s = SP_LAYER_STEPS - 1; s >= 0; s--) {
        const sp_layer_step *step = &sp_layer_steps[s];
        run_step *run = step_of(w->l, true, step);
        if (run != NULL && !run(w, step)) {
            return false;
        }
        give_read(w->l, s);
    }
    return true;
}

static void end_rows(layer *l)
{
    sp_i_exec_give(l->stage->arena, l->routed.expert);
    sp_i_exec_give(l->stage->arena, l->own_rows);
    l->routed.expert = NULL;
    l->own_rows = NULL;
}

bool SP_EXEC(layer_forward)(layer *l, real *y)
{
    walk w = {.l = l, .output = y};
    if (!walk_forward(&w)) {
        return false;
    }
    SP_EXEC(release_kv)(l);
    end_rows(l);
    return true;
}

bool SP_EXEC(layer_backward)(layer *l, int32_t backward_pack, real *dy, bool split, real **dx)
{
    walk w = {.l = l, .gradient = dy, .pack = backward_pack, .split = split};
    for (int t = 0; t < SP_LAYER_TENSORS; t++) {
        if (l->kind->specs.of[t].kept && t != SP_TENSOR_KEYS_VALUES &&
            !sp_i_exec_fetch(l->stage, l->pack, l->index, (sp_layer_tensor_id)t, &l->t[t])) {
            return false;
        }
    }
    if (l->t[SP_TENSOR_ROUTES] != NULL && !SP_EXEC(experts)->recall(l)) {
        return false;
    }
    l->rebuilds = true;
    if (!walk_forward(&w) || !SP_EXEC(mask)(l, SP_TENSOR_MLP_MASK) || !walk_backward(&w)) {
        return false;
    }
    if (split) { // the weight gradients need the rows' experts once more
        *sp_i_exec_deferred_rows(l->stage, backward_pack, l->index) = l->routed;
        l->routed.expert = NULL;
    }
    end_rows(l);
    *dx = w.gradient;
    return true;
}
