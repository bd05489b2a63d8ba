#include "sim/base/alloc.h"
#include "sim/model/tensor_builder.h"

enum { BF16 = 2, FP32 = 4 };

// Frees what the weight gradients still read: inputs of the GEMMs and gradients of their outputs.
static void release_for_weights(sp_i_program_builder *b, int32_t tensor)
{
    if (!b->splits || tensor == SP_NO_TENSOR) {
        sp_i_program_free(b, tensor);
        return;
    }
    sp_reserve((void **)&b->deferred, &b->deferred_capacity, b->deferred_count + 1,
               sizeof *b->deferred);
    b->deferred[b->deferred_count++] = tensor;
}

// The gradient that goes around a block; `read` says that it is also that of the block's output.
// What came from outside is held there until the pass ends.
static void release_around(sp_i_program_builder *b, int32_t gradient, bool read)
{
    if (gradient == b->program->output_gradient) {
        b->outer_read = b->outer_read || read;
    } else if (read) {
        release_for_weights(b, gradient);
    } else {
        sp_i_program_free(b, gradient);
    }
}

static int32_t take(sp_i_program_builder *b, const char *name)
{
    int r = sp_i_program_row(b, name);
    int32_t tensor = r < 0 ? SP_NO_TENSOR : b->now[r];
    if (r >= 0) {
        b->now[r] = SP_NO_TENSOR;
    }
    return tensor;
}

static void drop(sp_i_program_builder *b, const char *name)
{
    sp_i_program_free(b, take(b, name));
}

static void drop_for_weights(sp_i_program_builder *b, const char *name)
{
    release_for_weights(b, take(b, name));
}

static bool has(const sp_i_program_builder *b, const char *name)
{
    int r = sp_i_program_row(b, name);
    return r >= 0 && b->now[r] != SP_NO_TENSOR;
}

static void rebuild(sp_i_program_builder *b, const char *name)
{
    if (!has(b, name)) {
        sp_i_program_make(b, name);
    }
}

// Gradient of a column-parallel projection's input, reduced to this rank's share.
static int32_t project_back(sp_i_program_builder *b, int64_t full_bytes)
{
    bool narrows = b->sequence_split || full_bytes != b->hidden;
    int32_t full = SP_NO_TENSOR;
    if (narrows) {
        full = sp_i_program_allocate(b, "gradient before its reduction", full_bytes);
    }
    int32_t gradient = sp_i_program_allocate(b, "gradient of a projection's input", b->hidden);
    sp_i_program_free(b, full);
    return gradient;
}

// A weight gradient that the GEMM does not add itself: there until it is added to its buffer.
static void make_weight_gradient(sp_i_program_builder *b, int weight)
{
    if (b->weight_gradients) {
        int32_t gradient =
            sp_i_program_allocate(b, "gradient of a layer's weight", b->weights[weight]);
        sp_i_program_free(b, gradient);
    }
}

// Through a norm, and the sum with the gradient that goes around the block.
static int32_t norm_backward(sp_i_program_builder *b, int32_t inner, int32_t around, bool read)
{
    int32_t gradient = sp_i_program_allocate(b, "gradient of a norm's input", b->hidden);
    sp_i_program_free(b, inner);
    int32_t sum = sp_i_program_allocate(b, "gradient of the residual path", b->hidden);
    sp_i_program_free(b, gradient);
    release_around(b, around, read);
    return sum;
}

// The activation as nodes of autograd; gives the gradient of fc1's output.
static int32_t activation_backward(sp_i_program_builder *b, int32_t product_gradient)
{
    if (!b->swiglu || b->fused_swiglu) {
        int32_t gradient = sp_i_program_allocate(b, "gradient of fc1's output", b->fc1);
        sp_i_program_free(b, product_gradient);
        drop(b, "fc1 output");
        return gradient;
    }
    int32_t silu = sp_i_program_allocate(b, "gradient of the SiLU output", b->ffn);
    int32_t up = sp_i_program_allocate(b, "gradient of the up half", b->ffn);
    sp_i_program_free(b, product_gradient);
    drop(b, "SiLU output");
    drop(b, "fc1 output, up half");
    int32_t gate = sp_i_program_allocate(b, "gradient of the gate half", b->ffn);
    sp_i_program_free(b, silu);
    drop(b, "fc1 output, gate half");
    int32_t gradient = sp_i_program_allocate(b, "gradient of fc1's output", b->fc1);
    sp_i_program_free(b, gate);
    sp_i_program_free(b, up);
    drop(b, "fc1 output");
    return gradient;
}

// The second projection as one function that rebuilds its input.
static int32_t rebuilding_fc2_backward(sp_i_program_builder *b)
{
    bool gated = b->swiglu && !b->fused_swiglu;
    int32_t fc1 = take(b, "fc1 output");
    if (fc1 == SP_NO_TENSOR) {
        rebuild(b, "second norm output");
        fc1 = sp_i_program_allocate(b, "fc1 output", b->fc1);
    }
    int32_t silu = gated ? sp_i_program_allocate(b, "SiLU output", b->ffn) : SP_NO_TENSOR;
    int32_t product = sp_i_program_allocate(b, "fc2 input", b->ffn);
    int32_t product_gradient = sp_i_program_allocate(b, "gradient of fc2's input", b->ffn);
    int32_t gate = SP_NO_TENSOR;
    int32_t up = SP_NO_TENSOR;
    if (gated) {
        int32_t silu_gradient = sp_i_program_allocate(b, "gradient of the SiLU output", b->ffn);
        up = sp_i_program_allocate(b, "gradient of the up half", b->ffn);
        sp_i_program_free(b, silu);
        gate = sp_i_program_allocate(b, "gradient of the gate half", b->ffn);
        sp_i_program_free(b, silu_gradient);
    }
    int32_t gradient = sp_i_program_allocate(b, "gradient of fc1's output", b->fc1);
    sp_i_program_free(b, gate);
    sp_i_program_free(b, up);
    sp_i_program_free(b, product_gradient);
    release_for_weights(b, product);
    sp_i_program_free(b, fc1);
    return gradient;
}

// Gives the gradient of the layer's second half's input.
static int32_t mlp_backward(sp_i_program_builder *b, int32_t around)
{
    int32_t output_gradient = SP_NO_TENSOR;
    if (has(b, "MLP dropout mask")) {
        output_gradient = sp_i_program_allocate(b, "gradient of the MLP output", b->hidden);
        drop(b, "MLP dropout mask");
    }
    int32_t routed = SP_NO_TENSOR;
    if (b->routed) {
        routed = sp_i_program_allocate(b, "gradient of the expert output", b->routed_rows);
        drop(b, "expert output");
        drop(b, "router probabilities");
    }
    int32_t fc1_gradient;
    if (has(b, "fc2 input")) {
        int32_t product = sp_i_program_allocate(b, "gradient of fc2's input", b->ffn);
        make_weight_gradient(b, SP_WEIGHT_FC2);
        drop_for_weights(b, "fc2 input");
        fc1_gradient = activation_backward(b, product);
    } else {
        fc1_gradient = rebuilding_fc2_backward(b);
    }
    release_for_weights(b, routed);
    release_for_weights(b, output_gradient);
    rebuild(b, "second norm output");
    int32_t inner = project_back(b, b->routed ? b->routed_rows : b->hidden_full);
    make_weight_gradient(b, SP_WEIGHT_FC1);
    release_for_weights(b, fc1_gradient);
    drop_for_weights(b, "expert input");
    drop_for_weights(b, "second norm output");
    int32_t sum = norm_backward(b, inner, around, output_gradient == SP_NO_TENSOR);
    drop(b, "residual");
    return sum;
}

// Flash attention accumulates the gradient of the queries in fp32, in two halves under context
// parallelism, where the shorter part's keys and values (half of all on the last rank) have
// gradients of their own. Gives the gradients of the projection's outputs.
static void core_attention_backward(sp_i_program_builder *b, int32_t gathered, int32_t outputs[2])
{
    bool parallel = gathered != SP_NO_TENSOR;
    int32_t rebuilt_output = SP_NO_TENSOR;
    if (sp_recompute_repeats(b->mode, SP_LAYER_CORE)) {
        rebuilt_output = sp_i_program_allocate(b, "attention output", b->q);
        rebuild(b, "probabilities");
        rebuild(b, "probability dropout mask");
        rebuild(b, "dropped probabilities");
        rebuild(b, "log-sum-exp");
    }
    int32_t pairs[2] = {SP_NO_TENSOR, SP_NO_TENSOR};
    if (b->unfused_attention) {
        pairs[0] = sp_i_program_allocate(b, "gradient of the probabilities", b->scores);
        pairs[1] = sp_i_program_allocate(b, "gradient of the scores", b->scores);
    }
    int32_t kv = sp_i_program_allocate(b, "gradient of keys and values",
                                       parallel ? b->kv_gathered : b->kv_own);
    int32_t part = SP_NO_TENSOR;
    if (parallel) {
        part = sp_i_program_allocate(b, "gradient of a part's keys and values", b->kv_gathered / 2);
    }
    int32_t q = sp_i_program_allocate(b, "gradient of the queries", b->q);
    int32_t exact[2] = {SP_NO_TENSOR, SP_NO_TENSOR};
    for (int half = 0; half < (b->unfused_attention ? 0 : parallel ? 2 : 1); half++) {
        exact[half] = sp_i_program_allocate(b, "gradient of the queries in fp32",
                                            b->q * FP32 / BF16 / (parallel ? 2 : 1));
    }
    sp_i_program_free(b, exact[0]);
    sp_i_program_free(b, exact[1]);
    sp_i_program_free(b, part);
    sp_i_program_free(b, pairs[0]);
    sp_i_program_free(b, pairs[1]);
    sp_i_program_free(b, rebuilt_output);
    drop(b, "log-sum-exp");
    drop(b, "probabilities");
    drop(b, "probability dropout mask");
    drop(b, "dropped probabilities");
    drop(b, "rest of the QKV output");
    drop(b, "queries before their norm");
    drop(b, "keys before their norm");
    drop(b, "queries");
    drop(b, "attention output in its own order");
    drop_for_weights(b, "attention output");
    if (parallel) {
        int32_t own = sp_i_program_allocate(b, "gradient of own keys and values", b->kv_own);
        sp_i_program_free(b, kv);
        sp_i_program_free(b, gathered);
        kv = own;
    }
    drop(b, "keys and values");
    outputs[0] = q;
    outputs[1] = kv;
    if (!b->splits_qkv) {
        outputs[0] = sp_i_program_allocate(b, "gradient of the QKV output", b->q + b->kv_own);
        outputs[1] = SP_NO_TENSOR;
        sp_i_program_free(b, q);
        sp_i_program_free(b, kv);
    }
}

static int32_t attention_backward(sp_i_program_builder *b, int32_t around, int32_t gathered)
{
    int32_t block_gradient = SP_NO_TENSOR;
    if (has(b, "attention block dropout mask")) {
        block_gradient =
            sp_i_program_allocate(b, "gradient of the attention block output", b->hidden);
        drop(b, "attention block dropout mask");
    }
    int32_t output_gradient = sp_i_program_allocate(b, "gradient of the attention output", b->q);
    make_weight_gradient(b, SP_WEIGHT_OUTPUT);
    release_for_weights(b, block_gradient);
    int32_t mixed[2];
    core_attention_backward(b, gathered, mixed);
    sp_i_program_free(b, output_gradient);
    rebuild(b, "first norm output");
    int32_t inner = project_back(b, b->hidden_full);
    make_weight_gradient(b, SP_WEIGHT_QKV);
    release_for_weights(b, mixed[0]);
    release_for_weights(b, mixed[1]);
    drop_for_weights(b, "first norm output");
    int32_t sum = norm_backward(b, inner, around, block_gradient == SP_NO_TENSOR);
    drop(b, "layer input");
    return sum;
}

// Keys and values are gathered again behind the first GEMM of the layer's backward.
static int32_t layer_backward(sp_i_program_builder *b, int layer, int32_t gradient)
{
    for (int r = 0; r < b->row_count; r++) {
        b->now[r] = b->kept[layer * b->row_count + r];
    }
    int32_t output = SP_NO_TENSOR;
    if (b->recomputes_layers) {
        b->mode = SP_RECOMPUTE_NONE;
        output = sp_i_program_layer_forward(b, take(b, "layer input"), "rebuilt layer output");
    }
    int32_t gathered = SP_NO_TENSOR;
    if (b->kv_gathered > 0) {
        gathered = sp_i_program_allocate(b, "gathered keys and values", b->kv_gathered);
    }
    gradient = mlp_backward(b, gradient);
    gradient = attention_backward(b, gradient, gathered);
    sp_i_program_free(b, output);
    sp_i_program_free(b, b->cached[layer]);
    return gradient;
}

// The loss turns the softmax into its gradient in place and casts it to bf16; a fused one has
// written it over the logits.
static int32_t head_backward(sp_i_program_builder *b)
{
    int last = b->head_count - 1;
    int32_t logits = b->head_saved[last];
    if (!b->fused_loss) {
        logits = sp_i_program_allocate(b, "gradient of the logits", b->logits);
        sp_i_program_free(b, b->head_saved[last]);
    }
    last--;
    int32_t inner = project_back(b, b->hidden_full);
    if (b->weight_gradients) {
        b->head_gradient = sp_i_program_allocate(b, "gradient of the output weight", b->table);
        if (!b->shares_table) {
            sp_i_program_free(b, b->head_gradient);
        }
    }
    release_for_weights(b, logits);
    while (last > 0) {
        release_for_weights(b, b->head_saved[last--]);
    }
    int32_t gradient = sp_i_program_allocate(b, "gradient of a norm's input", b->hidden);
    sp_i_program_free(b, inner);
    sp_i_program_free(b, b->head_saved[0]);
    return gradient;
}

// PyTorch makes the gradient of the lookup as a dense table.
static void embedding_backward(sp_i_program_builder *b, int32_t gradient)
{
    int32_t full = SP_NO_TENSOR;
    if (b->sequence_split) {
        full = sp_i_program_allocate(b, "gathered gradient", b->hidden_full);
    }
    int32_t table = sp_i_program_allocate(b, "gradient of the embedding", b->table);
    if (b->shares_table && b->weight_gradients) {
        // Autograd adds the two up before it hands them on.
        sp_i_program_free(b, b->head_gradient);
    }
    sp_i_program_free(b, table);
    sp_i_program_free(b, full);
    for (int r = 0; r < b->embedding_count; r++) {
        sp_i_program_free(b, b->embedding_saved[r]);
    }
    release_around(b, gradient, false);
}

int32_t sp_i_program_backward(sp_i_program_builder *b, sp_tensor_events *weights)
{
    const sp_tensor_program *program = b->program;
    sp_recompute mode = b->mode;
    b->deferred_count = 0;
    b->outer_read = false;
    // bf16, like the keys and values that they are gradients of.
    int32_t cached = SP_NO_TENSOR;
    if (b->kv_cached > 0) {
        cached = sp_i_program_allocate(b, "gradients of cached keys and values",
                                       b->stage->layers * b->kv_cached);
    }
    int32_t gradient = b->stage->head ? head_backward(b) : program->output_gradient;
    int32_t parameters = b->stage->layers > 0 ? sp_i_program_gather_parameters(b) : SP_NO_TENSOR;
    for (int layer = b->stage->layers - 1; layer >= 0; layer--) {
        int32_t next = layer > 0 ? sp_i_program_gather_parameters(b) : SP_NO_TENSOR;
        gradient = layer_backward(b, layer, gradient);
        sp_i_program_free(b, parameters);
        parameters = next;
    }
    if (sp_stage_is_empty(b->stage)) {
        gradient = sp_i_program_allocate(b, "gradient of the input", b->hidden);
    }
    if (b->stage->embedding) {
        embedding_backward(b, gradient);
        gradient = SP_NO_TENSOR;
    }
    sp_i_program_free(b, cached);
    b->mode = mode;
    if (b->outer_read) {
        release_for_weights(b, program->output_gradient);
    } else {
        sp_i_program_free(b, program->output_gradient);
    }
    if (b->splits) {
        b->to = weights;
        for (size_t i = 0; i < b->deferred_count; i++) {
            sp_i_program_free(b, b->deferred[i]);
        }
    }
    return gradient;
}
