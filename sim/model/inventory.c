// The operators of Megatron-LM's layer. Traffic is counted in bf16 elements read plus written.
#include "sim/model/inventory.h"

#include "sim/model/layout.h"

const char *const sp_attention_names[] = {"flash", "unfused", NULL};

enum { BF16 = 2, FP32 = 4, MASK = 1 };

typedef struct builder {
    const sp_model *model;
    const sp_layout *layout;
    const sp_stack *stack;
    sp_shard shard;
    int64_t width[SP_LAYER_WIDTHS];
    bool unfused;
    sp_inventory *out;
} builder;

static void layer_forward(builder *b, unsigned repeated);
static void layer_input_gradient(builder *b);
static void layer_weight_gradient(builder *b);
static void embedding_pass(builder *b, sp_pass pass);
static void head_pass(builder *b, sp_pass pass);

void sp_inventory_build(const sp_model *model, const sp_layout *layout, const sp_stack *stack,
                        sp_attention attention, sp_recompute recompute, sp_part part, sp_pass pass,
                        sp_inventory *inventory)
{
    inventory->count = 0;
    builder b = {.model = model,
                 .layout = layout,
                 .stack = stack,
                 .shard = sp_shard_of(model, layout),
                 .unfused = attention == SP_ATTENTION_UNFUSED,
                 .out = inventory};
    sp_layer_widths(model, &b.shard, b.width);
    if (part == SP_PART_EMBEDDING) {
        embedding_pass(&b, pass);
    } else if (part == SP_PART_HEAD) {
        head_pass(&b, pass);
    } else if (pass == SP_PASS_F) {
        layer_forward(&b, SP_LAYER_ALL);
    } else if (pass == SP_PASS_I) {
        layer_input_gradient(&b);
    } else if (pass == SP_PASS_W) {
        layer_weight_gradient(&b);
    } else {
        layer_forward(&b, sp_recompute_operations(recompute, model));
    }
}

double sp_inventory_flops(const sp_inventory *inventory, const sp_model *model,
                          const sp_layout *layout, sp_pass pass, double local_tokens, double pairs2)
{
    double heads = (double)(model->heads / layout->tp);
    double total = 0.0;
    for (int i = 0; i < inventory->count; i++) {
        const sp_op *op = &inventory->ops[i];
        if (op->kind == SP_OP_GEMM) {
            double tokens = op->token_share * local_tokens;
            double m = op->m == 0 ? tokens : (double)op->m;
            double n = op->n == 0 ? tokens : (double)op->n;
            double k = op->k == 0 ? tokens : (double)op->k;
            total += 2.0 * m * n * k * op->repeat;
        } else if (op->kind == SP_OP_MEMORY) {
            total += op->flops_per_token * local_tokens;
        } else if (op->kind == SP_OP_ATTENTION) {
            SP_ASSERT(pass != SP_PASS_W);
            double features = (double)sp_model_pair_features(model, (int)op->m);
            total += 2.0 * heads * features * (pairs2 / 2.0);
        }
    }
    return total;
}

static sp_op *add(builder *b, const char *name, sp_op_kind kind)
{
    SP_ASSERT(b->out->count < SP_INVENTORY_OPS);
    sp_op *op = &b->out->ops[b->out->count++];
    *op = (sp_op){.name = name, .kind = kind, .token_share = 1.0, .repeat = 1};
    return op;
}

// A linear layer of k inputs and n outputs, in the shape that the pass needs.
static sp_op *gemm(builder *b, const char *name, sp_pass pass, int64_t k, int64_t n)
{
    sp_op *op = add(b, name, SP_OP_GEMM);
    op->kernels = 1;
    op->m = pass == SP_PASS_W ? n : 0;
    op->n = pass == SP_PASS_F ? n : k;
    op->k = pass == SP_PASS_F ? k : pass == SP_PASS_I ? n : 0;
    return op;
}

static sp_op *memory(builder *b, const char *name, double bytes_per_token, int kernels)
{
    sp_op *op = add(b, name, SP_OP_MEMORY);
    op->bytes_per_token = bytes_per_token;
    op->kernels = kernels;
    return op;
}

static void collective(builder *b, const char *name, sp_op_kind kind, double bytes_per_token)
{
    if (b->layout->tp > 1) {
        add(b, name, kind)->bytes_per_token = bytes_per_token;
    }
}

static double hidden_bytes(const builder *b)
{
    return (double)(BF16 * b->model->hidden);
}

// Of what an expert reads of a token, or gives.
static double expert_bytes(const builder *b)
{
    return (double)(BF16 * b->shard.expert);
}

// Entry of a tensor-parallel block (forward) and the mirror of its exit (backward): with sequence
// parallelism the tokens are gathered, else every rank has them.
static void gather(builder *b, const char *name, double bytes)
{
    if (b->layout->sequence_parallel) {
        collective(b, name, SP_OP_ALL_GATHER, bytes);
    }
}

// Exit of a block (forward), gradient of its entry (backward): partial sums are added up.
static void reduce(builder *b, const char *name, double bytes)
{
    sp_op_kind kind = b->layout->sequence_parallel ? SP_OP_REDUCE_SCATTER : SP_OP_ALL_REDUCE;
    collective(b, name, kind, bytes);
}

// A norm of `width` features reads and writes the hidden states, or their latents; its backward
// reads the input and the output's gradient and writes the input's (the gradient of its weights is
// made in the same kernel). As separate kernels in fp32 (RMSNorm in plain PyTorch): cast (6 B an
// element), square (8), mean (4), scaling (8), cast (6) and weight (4); backward about twice that.
static void norm(builder *b, const char *name, sp_pass pass, int64_t width)
{
    double bytes = (pass == SP_PASS_F ? 2.0 : 3.0) * (double)(BF16 * width);
    if (b->stack->unfused_norms) {
        bytes = (pass == SP_PASS_F ? 36.0 : 72.0) * (double)width;
    }
    memory(b, name, bytes / b->shard.norm_split,
           b->stack->unfused_norms ? (pass == SP_PASS_F ? 6 : 12) : 1);
}

// Adding a block's output to the residual path reads two tensors and writes one; dropout writes its
// mask too. Backward the two gradients meet, and dropout masks the block's share of them. A norm
// behind the block (Gemma 2) stands between.
static void residual(builder *b, const char *name, sp_pass pass)
{
    if (b->model->post_norms) {
        norm(b, "norm behind the block", pass, b->model->hidden);
    }
    bool beside = b->model->blocks != SP_BLOCKS_IN_TURN;
    if (beside) { // the outputs of both blocks before they are reduced, or two gradients
        double split = pass == SP_PASS_F ? 1.0 : b->shard.norm_split;
        memory(b, "sum of attention and MLP", 3.0 * hidden_bytes(b) / split, 1);
    }
    double bytes = 3.0 * hidden_bytes(b);
    double masks = (double)(MASK * b->model->hidden);
    if (b->shard.dropout) {
        bytes += pass == SP_PASS_F ? masks : 2.0 * hidden_bytes(b) + masks;
    }
    memory(b, name, bytes / b->shard.norm_split, b->shard.dropout && pass == SP_PASS_I ? 2 : 1);
}

// Matmuls over the (query, key) pairs: 2 forward; backward 4, and a fifth where flash attention
// rebuilds the scores (Dao, arXiv 2307.08691, section 3.1).
static void attention_core(builder *b, sp_pass pass)
{
    sp_op *core = add(b, "attention", SP_OP_ATTENTION);
    bool forward = pass == SP_PASS_F;
    core->m = forward ? 2 : b->unfused ? 4 : 5;
    // Flash attention's backward has a kernel before (row sums) and one after (dQ to bf16).
    core->kernels = b->unfused ? (int)core->m : forward ? 1 : 3;
    if (!b->unfused) {
        return;
    }
    // Scale, mask, softmax and dropout in Megatron-LM's fused fp16 kernels: forward the softmax
    // reads and writes (4 B) and dropout reads, writes and keeps a mask (5 B); backward dropout
    // reads, writes and reads the mask (5 B) and the softmax reads two and writes one (6 B).
    double softmax = forward ? 4.0 : 6.0;
    double dropout = b->shard.dropout ? 5.0 : 0.0;
    sp_op *op = memory(b, "softmax", 0.0, b->shard.dropout ? 2 : 1);
    op->bytes_per_pair = (softmax + dropout) * (double)b->shard.heads;
    // Without the fused kernel the scores go through fp32: cast (6 B), mask (8), softmax (8) and
    // cast (6) in place of 4; backward cast (6), softmax (12) and cast (6) in place of 6.
    op->unfused_bytes_per_pair = (forward ? 24.0 : 18.0) * (double)b->shard.heads;
}

// Element-wise work on q and k (and, unfused, copies of q, k, v and the context into the layout of
// the batched GEMMs); a backward moves as much as a forward. With latents a kernel turns the
// queries' rotary part in place, and one makes keys and values of the up-projection's output
// (Megatron-LM, core/fusions/fused_mla_yarn_rope_apply.py).
static void attention_elementwise(builder *b, sp_pass pass)
{
    double qk = (double)(BF16 * (b->shard.q + b->shard.k));
    if (b->model->qk_norm) {
        memory(b, "query and key norms", (pass == SP_PASS_F ? 2.0 : 3.0) * qk, 2);
    }
    if (sp_model_is_latent(b->model)) {
        int64_t turned = 2 * b->shard.heads * b->model->qk_rope_dim;
        int64_t up = b->shard.heads * b->model->qk_nope_dim + b->shard.v;
        memory(b, "rotary embedding", (double)(BF16 * (turned + up + b->shard.k + b->shard.v)), 2);
    } else if (b->model->positional == SP_ROPE) {
        memory(b, "rotary embedding", 2.0 * qk, 2);
    }
    if (b->unfused) {
        double copied = (double)(BF16 * (b->shard.q + b->shard.k + b->shard.v + b->shard.context));
        memory(b, "attention layout", 2.0 * copied, 4);
    }
}

// The gate reads what attention gives and its own input and writes their product; backward it also
// reads the product's gradient and writes two.
static void attention_gate(builder *b, const char *name, sp_pass pass)
{
    memory(b, name, (pass == SP_PASS_F ? 3.0 : 5.0) * (double)(BF16 * b->shard.context), 1);
}

// Tokens of a chunk, for each of which kernels write the state and read it again (mamba_ssm's
// Mamba-2 and flash-linear-attention's gated DeltaNet by default).
enum { MAMBA2_CHUNK = 256, GATED_DELTA_CHUNK = 64 };

// Assumed to be bound by memory, with no rate measured. Forward the convolution reads and writes
// its width; what writes into the state of a chunk reads values and what writes, what reads the
// state reads values, and both of these again, and writes its output; the states of chunks, in
// fp32, are written, read and written once more by the pass over chunks, and read; a norm reads the
// output and what is let through and writes. Backward all of that runs again, and twice as much for
// the gradients.
static void state(builder *b, const char *name, sp_pass pass)
{
    double values = (double)b->shard.state_values;
    double keys = (double)b->shard.state_keys;
    bool mamba = b->model->mixer == SP_MIXER_MAMBA2;
    double chunk = mamba ? MAMBA2_CHUNK : GATED_DELTA_CHUNK;
    double elements =
        2.0 * (values + 2.0 * keys) + 2.0 * values + 3.0 * keys + values + 3.0 * values;
    double rates = (mamba ? 1.0 : 2.0) * (double)b->shard.state_heads;
    double states = values * (double)b->model->state_dim / chunk;
    double bytes = BF16 * elements + 2.0 * FP32 * rates + 4.0 * FP32 * states;
    bool forward = pass == SP_PASS_F;
    enum { KERNELS = 7 };
    sp_op *op = memory(b, name, (forward ? 1.0 : 3.0) * bytes, (forward ? 1 : 2) * KERNELS);
    op->flops_per_token =
        (forward ? 1.0 : 2.0) * sp_model_state_flops_per_token(b->model) / b->layout->tp;
}

// Keys and values of the whole CP group, bf16. The backward moves them again together with their
// gradients, also bf16. All-to-all moves this rank's queries, keys, values and outputs, each way
// once, and so their gradients. Where only some ranks exchange heads, each then has its share of
// them for as many times the tokens: a ring passes on blocks as large as without.
static void cp_exchange(builder *b, sp_pass pass)
{
    int ranks = sp_stack_head_ranks(b->stack, b->layout);
    int peers = b->layout->cp / ranks;
    if (ranks > 1) {
        add(b, "heads over CP", SP_OP_CP_HEADS)->bytes_per_token =
            (double)(BF16 * (b->shard.q + b->shard.k + b->shard.v + b->shard.context));
    }
    if (peers > 1) {
        double forward = (double)(BF16 * (b->shard.k + b->shard.v) * peers);
        add(b, "keys and values over CP", SP_OP_CP_KV)->bytes_per_token =
            pass == SP_PASS_F ? forward : 2.0 * forward;
    }
}

// Rows of the MLP for each row within attention, but for experts per token.
static double expert_rows(const builder *b)
{
    return (double)b->shard.rows_of / (double)b->shard.rows_over *
           sp_capacity_share(&b->shard.capacity);
}

// In elements of the activation's width read plus written. GELU maps one to one; its backward also
// reads the output's gradient. SwiGLU in one kernel reads gate and up and writes their product; its
// backward also reads the product's gradient and writes one for each input. As PyTorch runs it from
// SiLU and a product: 2 + 3 forward; backward 5 for the product, 3 for SiLU and 4 to put the halves
// together.
static void activation(builder *b, sp_layer_place place, sp_pass pass)
{
    bool experts = place == SP_STEP_ACTIVATION && b->model->experts > 0;
    bool forward = pass == SP_PASS_F;
    double tensors = forward ? 2.0 : 3.0;
    int kernels = 1;
    if (sp_model_is_gated(b->model) && b->stack->fused_swiglu) {
        tensors = forward ? 3.0 : 5.0;
    } else if (sp_model_is_gated(b->model)) {
        tensors = forward ? 5.0 : 12.0;
        kernels = forward ? 2 : 4;
    }
    double width = (double)(BF16 * b->width[sp_layer_steps[place].outputs]);
    double rows = place == SP_STEP_ACTIVATION ? expert_rows(b) : 1.0;
    sp_op *op = memory(b, sp_layer_steps[place].forward, tensors * width * rows,
                       kernels * (experts ? (int)b->shard.held : 1));
    op->of_experts = op->routed = experts;
}

static void adapter_collective(builder *b, const char *name, sp_op_kind kind, double width,
                               int repeat)
{
    if (b->layout->tp > 1) {
        sp_op *op = add(b, name, kind);
        op->bytes_per_token = BF16 * width;
        op->repeat = repeat;
        op->blocks = true;
    }
}

// Dropout reads and writes what an adapter reads, and its mask.
static void adapter_dropout(builder *b, const sp_layer_adapters *adapters)
{
    if (b->model->lora_dropout) {
        double rows = adapters->column ? 1.0 / b->shard.norm_split : 1.0;
        double inputs = (double)(adapters->count * adapters->inputs);
        memory(b, "adapter dropout", (2.0 * BF16 + MASK) * inputs * rows, adapters->count);
    }
}

// All outputs of the projection that get what adapters give, of a row-parallel one as gathered.
static double added_outputs(const builder *b, const sp_layer_adapters *adapters)
{
    return adapters->column ? (double)sp_layer_adapter_outputs(adapters)
                            : (double)b->model->hidden / b->shard.norm_split;
}

// What the adapters give is scaled (2 tensors) and added (3).
static void adapters_forward(builder *b, const sp_layer_adapters *a)
{
    adapter_dropout(b, a);
    gemm(b, "adapter A", SP_PASS_F, a->inputs, a->low)->repeat = a->count;
    adapter_collective(b, "gather of adapters", a->column ? SP_OP_ALL_GATHER : SP_OP_ALL_REDUCE,
                       (double)a->rank, a->count);
    for (int i = 0; i < a->count; i++) {
        gemm(b, "adapter B", SP_PASS_F, a->rank, a->outputs[i]);
    }
    if (!a->column) {
        adapter_collective(b, "gather of the adapter's output", SP_OP_ALL_GATHER,
                           (double)b->model->hidden, 1);
    }
    memory(b, "adapter scaling and sum", 5.0 * BF16 * added_outputs(b, a), 2 * a->count);
}

// The gradient of the output is scaled, and that of the input added to the projection's. Ranks add
// up what B's parts and, without split sequences, A's parts give.
static void adapters_input_gradient(builder *b, const sp_layer_adapters *a)
{
    memory(b, "adapter scaling", 2.0 * BF16 * added_outputs(b, a), a->count);
    if (!a->column && b->layout->sequence_parallel) {
        adapter_collective(b, "gather of the adapter's gradient", SP_OP_ALL_GATHER,
                           (double)b->model->hidden, 1);
    }
    for (int i = 0; i < a->count; i++) {
        gemm(b, "adapter B", SP_PASS_I, a->rank, a->outputs[i]);
    }
    adapter_collective(b, "reduction of adapters", SP_OP_ALL_REDUCE, (double)a->rank, a->count);
    gemm(b, "adapter A", SP_PASS_I, a->inputs, a->low)->repeat = a->count;
    if (a->column && !b->layout->sequence_parallel) {
        adapter_collective(b, "reduction of the adapters' input gradient", SP_OP_ALL_REDUCE,
                           (double)a->inputs, a->count);
    }
    adapter_dropout(b, a);
    memory(b, "adapter sum", 3.0 * BF16 * (double)(a->count * a->inputs), a->count);
}

static void adapters_weight_gradient(builder *b, const sp_layer_adapters *a)
{
    for (int i = 0; i < a->count; i++) {
        gemm(b, "adapter B", SP_PASS_W, a->rank, a->outputs[i]);
    }
    gemm(b, "adapter A", SP_PASS_W, a->inputs, a->low)->repeat = a->count;
}

// ---- FP8 ----

static bool is_of_tp(const builder *b, sp_layer_place place);
static int entry_of(sp_layer_place place);

// Do the rows that a step gathers go to an FP8 product, so that they are cast before? Those of a
// row-parallel product are of its output's gradient. Experts get theirs behind a permutation.
static bool gathers_fp8(const builder *b, sp_layer_place place)
{
    bool of_experts =
        b->model->experts > 0 && (place == SP_STEP_FC1_GATHER || place == SP_STEP_FC2_REDUCE);
    return sp_precision_is_fp8(&b->stack->precision) && place != SP_STEP_ROTARY_GATHER &&
           !of_experts;
}

static double gathered_bytes(const builder *b, sp_layer_place place, int64_t numbers)
{
    return (double)numbers * (gathers_fp8(b, place) ? sp_fp8_bytes(&b->stack->precision) : BF16);
}

// Are the rows of a product's input, or of its output's gradient, cast before TP ranks gather them?
static bool is_cast_split(const builder *b, sp_layer_place place, bool gradient)
{
    int entry = place == SP_STEP_OUTPUT       ? SP_STEP_OUTPUT_REDUCE
                : place == SP_STEP_FC2        ? SP_STEP_FC2_REDUCE
                : place == SP_STEP_SHARED_FC2 ? SP_STEP_SHARED_REDUCE
                                              : entry_of(place);
    bool splits = b->layout->sequence_parallel && b->layout->tp > 1 && entry >= 0;
    return splits && gathers_fp8(b, (sp_layer_place)entry) &&
           gradient == (sp_layer_steps[entry].kind == SP_LAYER_KIND_REDUCE);
}

// Rows of a product's matrices for one local token.
static double product_rows(const builder *b, sp_layer_place place, const sp_layer_linear *shape)
{
    return sp_layer_steps[place].duplicated ? 1.0 / b->shard.norm_split
           : shape->of_experts              ? (double)shape->active * expert_rows(b)
                                            : 1.0;
}

static void add_cast(builder *b, const char *name, const sp_layer_linear *shape, double numbers,
                     sp_fp8_cast cast)
{
    if (cast.bytes > 0.0) {
        memory(b, name, numbers * cast.bytes, cast.kernels)->routed = shape->of_experts;
    }
}

// Does the tensor come out of a norm's kernel, and no other product read it?
static bool is_of_norm(const builder *b, sp_layer_place place)
{
    sp_layer_tensor_id reads = sp_layer_steps[place].reads;
    return !b->stack->unfused_norms &&
           (place == SP_STEP_QKV || place == SP_STEP_Q_UP || place == SP_STEP_KV_UP ||
            (reads == SP_TENSOR_NORM2 && b->model->experts == 0));
}

// Do others keep what the product reads in BF16, so that its FP8 copy for the weight gradient is
// made there?
static bool is_cast_again(const builder *b, sp_layer_place place)
{
    bool kept = place == SP_STEP_OUTPUT || place == SP_STEP_SHARED_FC1;
    return kept && sp_fp8_keeps_original(&b->stack->precision);
}

// Casts of a product's input in the forward and of its output's gradient in the backward, each to
// the copies that this pass and the weight gradient read. Where rows are gathered and a tensor has
// one scale, the second copy is a transposition behind the gather: a byte read and one written.
static void cast_operand(builder *b, sp_layer_place place, sp_pass pass,
                         const sp_layer_linear *shape)
{
    const sp_step_precision *precision = &b->stack->precision;
    const sp_fp8_cast turned = {2.0, 1};
    bool gradient = pass == SP_PASS_I;
    bool split = is_cast_split(b, place, gradient);
    bool turns = split && sp_fp8_is_per_tensor(precision) && precision->transposes;
    double all =
        product_rows(b, place, shape) * (double)(gradient ? shape->outputs : shape->inputs);
    double cast = split ? all / b->shard.norm_split : all;
    bool again = !gradient && is_cast_again(b, place);
    if (pass == SP_PASS_W && again) {
        add_cast(b, "cast of the input again", shape, cast, sp_fp8_cast_of(precision, 1, false));
    } else if (pass != SP_PASS_W) {
        int copies = turns || again ? 1 : sp_fp8_copies(precision);
        add_cast(b, gradient ? "cast of the output's gradient" : "cast of the input", shape, cast,
                 sp_fp8_cast_of(precision, copies, !gradient && is_of_norm(b, place)));
    }
    if (turns && pass != SP_PASS_F) {
        add_cast(b,
                 gradient ? "transposition of the output's gradient" : "transposition of the input",
                 shape, all, turned);
    }
}

// A weight in 4 bits, whose product is then one in BF16, tensor by tensor.
static void turn_back(builder *b, sp_layer_place place)
{
    const sp_layer_frozen of = sp_layer_frozen_of(b->model, &b->shard, place);
    double weights = 0.0;
    for (int t = 0; t < of.tensors; t++) {
        weights += (double)of.weights[t];
    }
    if (of.tensors > 0) {
        memory(b, "frozen weight to BF16", 0.0,
               of.tensors * sp_4bit_kernels(b->model->frozen_weights))
            ->bytes_fixed = weights * sp_4bit_turned_back_bytes(b->model->frozen_weights);
    }
}

// Each expert sees its share of the tokens; what TP ranks all have works where the norms do.
static void product(builder *b, sp_layer_place place, sp_pass pass)
{
    sp_layer_linear shape;
    if (!sp_layer_linear_of(b->model, &b->shard, place, &shape)) {
        return;
    }
    if (sp_layer_is_fp8(&sp_layer_steps[place], b->stack)) {
        cast_operand(b, place, pass, &shape);
    }
    turn_back(b, place);
    sp_op *op = gemm(b, sp_layer_steps[place].forward, pass, shape.inputs, shape.outputs);
    op->is_qkv = place == SP_STEP_QKV;
    op->fp8 = sp_layer_is_fp8(&sp_layer_steps[place], b->stack);
    if (sp_layer_steps[place].duplicated) {
        op->token_share = 1.0 / b->shard.norm_split;
    } else if (shape.of_experts) {
        op->token_share = (double)shape.active / (double)shape.weights * expert_rows(b);
        op->repeat = (int)shape.weights;
        op->of_experts = op->routed = true;
        op->pad_rows = op->fp8 ? sp_fp8_expert_rows(&b->stack->precision) : 0;
        op->even_rows = b->model->expert_capacity_factor > 0.0;
    }
}

// A projection, and its adapters on the side that no collective of the projection stands on, so
// that this hides behind the projection.
static void linear(builder *b, sp_layer_place place, sp_pass pass)
{
    const sp_layer_adapters a = sp_layer_adapters_of(b->model, &b->shard, place);
    bool runs = pass != SP_PASS_W || !sp_model_is_frozen(b->model);
    bool product_first = a.column == (pass == SP_PASS_F);
    if (runs && product_first) {
        product(b, place, pass);
    }
    if (a.count > 0) {
        (pass == SP_PASS_F   ? adapters_forward
         : pass == SP_PASS_I ? adapters_input_gradient
                             : adapters_weight_gradient)(b, &a);
    }
    if (runs && !product_first) {
        product(b, place, pass);
    }
}

// Beside its product a router scores all experts, finds the best ones of each token, once more for
// the loss that levels their loads, and lays out and counts the rows, in kernels that take a fixed
// time each. Assumed: half of them read and write a matrix of tokens and experts in fp32, and the
// backward, of the scores and that loss, has a quarter of them and finds nothing.
static void choose_experts(builder *b, sp_pass pass)
{
    bool flex = b->shard.dispatches && sp_dispatches_once(b->stack->dispatcher);
    int forward = (int)b->stack->router_kernels - (flex ? SP_FLEX_SAVES_KERNELS : 0);
    int kernels = pass == SP_PASS_F ? forward : forward / 4;
    if (kernels <= 0) {
        return;
    }
    double tokens = 1.0 / b->shard.norm_split;
    double matrices = 0.5 * kernels * 2.0 * FP32 * (double)b->shard.experts;
    sp_op *op = memory(b, "choice of experts", tokens * matrices, kernels);
    op->top_ks_per_token = pass == SP_PASS_F && b->stack->router_kernels > SP_FUSED_ROUTER_KERNELS
                               ? 2.0 * tokens
                               : 0.0;
}

// Rows are copied to their experts and the weighted outputs are added up: each way one read and one
// write per token and expert. Before they go to other ranks they are the rank's own tokens; those
// that it receives are sorted by its experts, and back, where it holds several. A sum that is not
// fused, of outputs or in the backward of inputs' gradients, is a scatter_add of PyTorch, which
// reads and writes its result for each row (Megatron-LM, transformer/moe/moe_utils.py).
static void permutation(builder *b)
{
    double row = expert_bytes(b) * (double)b->shard.active;
    double copied = 4.0 * row;
    double passes = b->stack->unfused_permutation ? 5.0 : 4.0;
    double rows = passes * row * sp_capacity_share(&b->shard.capacity);
    if (b->model->experts == 0) {
        return;
    }
    if (!b->shard.dispatches) {
        memory(b, "expert permutation", rows, 2);
        return;
    }
    if (b->stack->dispatcher == SP_DISPATCH_ALLTOALL) {
        memory(b, "expert permutation", rows / b->shard.norm_split, 2);
    }
    if (b->stack->dispatcher != SP_DISPATCH_ALLTOALL || b->shard.held > 1) {
        sp_op *op = memory(b, "sorting by expert", copied * expert_rows(b), 2);
        op->routed = op->of_mlp = true;
    }
}

// `out`: to experts.
static void expert_exchange(builder *b, const char *name, sp_op_kind kind, bool out, int ranks,
                            double bytes_per_token)
{
    if (ranks > 1) {
        sp_op *op = add(b, name, kind);
        op->bytes_per_token = bytes_per_token;
        op->routed = kind == SP_OP_EXPERT_GATHER || kind == SP_OP_EXPERT_SCATTER;
        op->returns = !out;
    }
}

// A token's row with its k probabilities in the dispatch, once to wherever the token goes.
static void routed_tokens(builder *b, const char *name, bool of_dispatch, bool out, int ranks)
{
    double tokens = 1.0 / b->shard.norm_split;
    double weights = of_dispatch ? (double)(FP32 * b->shard.active) : 0.0;
    if (ranks > 1) {
        sp_op *op = add(b, name, SP_OP_ROUTED_TOKENS);
        op->bytes_per_token = tokens * (expert_bytes(b) + weights);
        op->token_share = tokens;
        op->returns = !out;
        op->routing = (sp_routing){.experts = b->model->experts,
                                   .active = b->model->experts_per_token,
                                   .groups = b->model->expert_groups,
                                   .active_groups = b->model->expert_group_top_k};
    }
}

// The tokens of a rank's sequence shard, T, on their way to their experts (`out`) or what these
// give back, in a step of the dispatch or of the combination. All-to-all: T*k rows, in the dispatch
// with the router's probability of each, then the same rows over the ranks of an expert; before the
// forward's dispatch, how many rows go where. All-gather: T tokens of each of the ETP*EP ranks with
// E probabilities (Megatron-LM, core/transformer/moe/token_dispatcher.py).
static void exchange_tokens(builder *b, const char *name, bool of_dispatch, bool out)
{
    int etp = sp_layout_etp(b->layout);
    int ranks = etp * sp_layout_ep(b->layout);
    double tokens = 1.0 / b->shard.norm_split;
    double rows = tokens * (double)b->shard.active * sp_capacity_share(&b->shard.capacity);
    double gathered = rows * etp * expert_bytes(b);
    if (!b->shard.dispatches) {
        return;
    }
    if (sp_dispatches_once(b->stack->dispatcher)) {
        routed_tokens(b, name, of_dispatch, out, ranks);
        return;
    }
    if (b->stack->dispatcher == SP_DISPATCH_ALLGATHER) {
        double weights = of_dispatch ? (double)(FP32 * b->shard.experts) : 0.0;
        expert_exchange(b, name, out ? SP_OP_TOKENS_GATHER : SP_OP_TOKENS_SCATTER, out, ranks,
                        tokens * ranks * (expert_bytes(b) + weights));
        return;
    }
    double sent = rows * (expert_bytes(b) + (of_dispatch ? FP32 : 0.0));
    if (!out) {
        expert_exchange(b, name, SP_OP_EXPERT_SCATTER, out, etp, gathered);
    }
    expert_exchange(b, name, SP_OP_EXPERT_ALL_TO_ALL, out, sp_layout_ep(b->layout), sent);
    if (out) {
        expert_exchange(b, name, SP_OP_EXPERT_GATHER, out, etp, gathered);
    }
}

static void dispatch(builder *b, const char *name, bool forward)
{
    int ranks = sp_layout_etp(b->layout) * sp_layout_ep(b->layout);
    bool counts = forward && b->shard.dispatches && b->stack->dispatcher != SP_DISPATCH_ALLGATHER;
    if (counts && ranks > 1) {
        add(b, "counts of rows by expert", SP_OP_EXPERT_COUNTS)->bytes_fixed =
            (double)(FP32 * b->shard.experts * ranks);
    }
    exchange_tokens(b, name, true, forward);
}

// Do TP ranks have all tokens of their group in this step? Not where experts get them elsewhere.
static bool is_of_tp(const builder *b, sp_layer_place place)
{
    bool mlp = place == SP_STEP_FC1_GATHER || place == SP_STEP_FC2_REDUCE;
    return !mlp || !b->shard.dispatches;
}

// Routed and shared experts are added up: two tensors are read and one is written, backward the
// gradients of what both have read. The gate reads and writes what the shared ones give; backward
// it also reads the gradient.
static void sum_experts(builder *b, const char *name, sp_pass pass)
{
    double gate = !b->model->shared_gate ? 0.0 : pass == SP_PASS_F ? 2.0 : 3.0;
    memory(b, name, (3.0 + gate) * hidden_bytes(b) / b->shard.norm_split,
           b->model->shared_gate ? 2 : 1);
}

// Shared experts run beside the routed ones: up to their activation while rows go to experts, or,
// backward, while they come back.
static void mark_mlp(sp_op *op, sp_layer_place place, bool forward)
{
    bool shared = place >= SP_STEP_SHARED_GATHER && place <= SP_STEP_SHARED_REDUCE;
    op->of_mlp = op->of_mlp || shared || place == SP_STEP_FC1 || place == SP_STEP_ACTIVATION ||
                 place == SP_STEP_FC2;
    op->beside = !shared                                           ? SP_BESIDE_NOTHING
                 : (place <= SP_STEP_SHARED_ACTIVATION) == forward ? SP_BESIDE_FIRST
                                                                   : SP_BESIDE_RETURN;
}

static void work_of_step(builder *b, sp_layer_place place, sp_pass pass);

static void run_step(builder *b, sp_layer_place place, sp_pass pass)
{
    int before = b->out->count;
    work_of_step(b, place, pass);
    for (int i = before; i < b->out->count; i++) {
        mark_mlp(&b->out->ops[i], place, pass == SP_PASS_F);
    }
}

static void work_of_step(builder *b, sp_layer_place place, sp_pass pass)
{
    const sp_layer_step *step = &sp_layer_steps[place];
    bool forward = pass == SP_PASS_F;
    const char *name = forward ? step->forward : step->backward;
    if (name == NULL || !sp_layer_has_step(b->model, step) || !is_of_tp(b, place)) {
        return;
    }
    switch (step->kind) {
    case SP_LAYER_KIND_NORM:
        if (sp_layer_has(&sp_layer_tensors[step->writes], sp_layer_model_conditions(b->model))) {
            norm(b, name, pass, b->width[step->inputs]);
        }
        break;
    case SP_LAYER_KIND_GATHER:
        if (forward) {
            gather(b, name, gathered_bytes(b, place, b->width[step->inputs]));
        } else {
            reduce(b, name, (double)(BF16 * b->width[step->inputs]));
        }
        break;
    case SP_LAYER_KIND_LINEAR:
        linear(b, place, pass);
        if (place == SP_STEP_ROUTER && b->model->experts > 0) {
            choose_experts(b, pass);
        }
        break;
    case SP_LAYER_KIND_ELEMENTWISE:
        attention_elementwise(b, pass);
        break;
    case SP_LAYER_KIND_ATTENTION:
        cp_exchange(b, pass);
        attention_core(b, pass);
        break;
    case SP_LAYER_KIND_GATE:
        attention_gate(b, name, pass);
        break;
    case SP_LAYER_KIND_STATE:
        state(b, name, pass);
        break;
    case SP_LAYER_KIND_REDUCE:
        if (place == SP_STEP_OUTPUT_REDUCE && b->model->blocks != SP_BLOCKS_IN_TURN) {
            break; // one collective is of both blocks
        }
        if (forward) {
            reduce(b, name, (double)(BF16 * b->width[step->outputs]));
        } else {
            gather(b, name, gathered_bytes(b, place, b->width[step->outputs]));
        }
        break;
    case SP_LAYER_KIND_RESIDUAL:
        residual(b, name, pass);
        break;
    case SP_LAYER_KIND_PERMUTATION:
        permutation(b);
        break;
    case SP_LAYER_KIND_DISPATCH:
        dispatch(b, name, forward);
        break;
    case SP_LAYER_KIND_COMBINE:
        exchange_tokens(b, name, false, !forward);
        break;
    case SP_LAYER_KIND_ACTIVATION:
        activation(b, place, pass);
        break;
    case SP_LAYER_KIND_SUM:
        sum_experts(b, name, pass);
        break;
    }
}

// A set of operations: all of them, or those that run again. Keys and values of other CP ranks come
// again with the attention: only this rank's share was kept.
static void layer_forward(builder *b, unsigned repeated)
{
    for (int i = 0; i < SP_LAYER_STEPS; i++) {
        if ((repeated & sp_layer_steps[i].operation) != 0) {
            run_step(b, (sp_layer_place)i, SP_PASS_F);
        }
    }
}

static void layer_input_gradient(builder *b)
{
    for (int i = SP_LAYER_STEPS - 1; i >= 0; i--) {
        run_step(b, (sp_layer_place)i, SP_PASS_I);
    }
}

// Gradients are added to an fp32 buffer: 4 B read and 4 B written per weight, of which the GEMM's
// own count of a bf16 result already holds 2. As a tensor of its own the result is written whole
// and read once more.
static void accumulate(builder *b, int64_t weights)
{
    bool apart = b->stack->unfused_weight_gradient;
    if (b->stack->timed_accumulation && !apart) {
        return;
    }
    memory(b, "gradient accumulation", 0.0, apart ? 4 : 0)->bytes_fixed =
        (apart ? 10.0 : 6.0) * (double)weights;
}

// The step that gathers what a column-parallel projection reads; below 0: none does.
static int entry_of(sp_layer_place place)
{
    int entry = (int)place - 1;
    while (entry >= 0 && (sp_layer_steps[entry].kind != SP_LAYER_KIND_GATHER ||
                          sp_layer_steps[entry].operation != sp_layer_steps[place].operation)) {
        entry--;
    }
    return entry;
}

// Column-parallel projections keep their input split over the sequence and gather it again
// (Korthikanti et al., arXiv 2205.05198, section 4.2.2).
static void layer_weight_gradient(builder *b)
{
    int64_t weights = 0;
    for (int i = SP_LAYER_STEPS - 1; i >= 0; i--) {
        sp_layer_linear shape;
        if (!sp_layer_linear_of(b->model, &b->shard, (sp_layer_place)i, &shape)) {
            continue;
        }
        const sp_layer_adapters a = sp_layer_adapters_of(b->model, &b->shard, (sp_layer_place)i);
        if (sp_model_is_frozen(b->model) && a.count == 0) {
            continue;
        }
        int entry = entry_of((sp_layer_place)i);
        if (entry >= 0 && is_of_tp(b, (sp_layer_place)entry)) {
            const sp_layer_step *gathers = &sp_layer_steps[entry];
            gather(b, gathers->forward,
                   gathered_bytes(b, (sp_layer_place)entry, b->width[gathers->inputs]));
        }
        int before = b->out->count;
        linear(b, (sp_layer_place)i, SP_PASS_W);
        for (int o = before; o < b->out->count; o++) {
            mark_mlp(&b->out->ops[o], (sp_layer_place)i, false);
        }
        weights += sp_model_is_frozen(b->model) ? sp_layer_adapter_parameters(&a)
                                                : shape.weights * shape.inputs * shape.outputs;
    }
    accumulate(b, weights);
}

// The lookup is split over the vocabulary, so its rows are added up over TP.
static void embedding_pass(builder *b, sp_pass pass)
{
    double h = hidden_bytes(b);
    double mask = (double)(MASK * b->model->hidden) / b->shard.norm_split;
    double dropout = 2.0 * h / b->shard.norm_split + mask;
    if (pass != SP_PASS_F && sp_model_is_frozen(b->model)) {
        return;
    }
    if (pass == SP_PASS_F) {
        memory(b, "token lookup", 2.0 * h, 1);
        reduce(b, "reduction of the lookup", h);
        if (b->model->positional == SP_LEARNED) {
            memory(b, "position lookup", 3.0 * h, 1);
        }
        if (b->shard.dropout) {
            memory(b, "embedding dropout", dropout, 1);
        }
    } else if (pass == SP_PASS_I) {
        if (b->shard.dropout) {
            memory(b, "embedding dropout", dropout, 1);
        }
        gather(b, "gather of the lookup's gradient", h);
    } else if (pass == SP_PASS_W) {
        if (b->stack->in_place_lookup_gradient) {
            memory(b, "token gradient", 3.0 * h, 1);
            return;
        }
        // Rows of the gradient are added into a dense bf16 table, which is zeroed first (2 B
        // written per weight) and then added to the fp32 buffer (6 B read, 4 B written).
        memory(b, "token gradient", 3.0 * h, 1);
        memory(b, "table gradient", 0.0, 2)->bytes_fixed =
            12.0 * (double)(b->shard.vocab * b->model->hidden);
    }
}

// Bytes of the cross entropy per logit as Megatron-LM's vocabulary-parallel version runs it: cast
// to fp32 (6), maximum (4), subtraction (8), exponential (8), sum (4), division (8); backward
// scaling (8) and cast (6).
enum { LOSS_FORWARD_BYTES = 38, LOSS_BACKWARD_BYTES = 14 };
// Of a loss that writes the gradient over the bf16 logits (Transformer Engine's and Liger's
// cross_entropy.py, compiled losses): one kernel reads them for maximum and sum, one reads them
// again and writes, and the backward reads and writes them once more.
enum { IN_PLACE_FORWARD_BYTES = 6, IN_PLACE_BACKWARD_BYTES = 4 };

// The traffic of the loss over `all` logits of a token, by the kind that memory knows as well.
static void loss_of(builder *b, const char *name, sp_pass pass, int64_t all)
{
    bool forward = pass == SP_PASS_F;
    bool in_place = sp_stack_keeps_bf16_logits(b->stack);
    int eager_bytes = forward ? LOSS_FORWARD_BYTES : LOSS_BACKWARD_BYTES;
    int in_place_bytes = forward ? IN_PLACE_FORWARD_BYTES : IN_PLACE_BACKWARD_BYTES;
    int kernels = in_place ? 1 : 2;
    if (forward) {
        kernels = in_place ? 2 : 6;
    }
    sp_op *op = memory(b, name, (double)((in_place ? in_place_bytes : eager_bytes) * all), kernels);
    op->logits_per_token = (double)all;
    op->loss_in_place = in_place;
}

// Operators from `first` on are run by chunks of the tokens.
static void run_by_chunks(builder *b, int first, int64_t chunks)
{
    for (int i = first; i < b->out->count; i++) {
        sp_op *op = &b->out->ops[i];
        op->repeat *= (int)chunks;
        op->token_share /= op->kind == SP_OP_GEMM ? (double)chunks : 1.0;
        op->bytes_per_token /= (double)chunks;
        op->logits_per_token /= (double)chunks;
    }
}

// The rest of a chunk of the loss: its gradients, at once (Liger's fused linear cross-entropy,
// liger_kernel/ops/fused_linear_cross_entropy.py; torchtitan's ChunkedCELoss, pull request 2937).
// No product runs twice, unless the chunk runs again for them in the backward. The weight's is
// added to the sum over chunks: the fp32 buffer, or a bf16 tensor of its own, which the product
// reads, too.
static void chunk_gradients(builder *b, int64_t vocab, int64_t all)
{
    int64_t h = b->model->hidden;
    if (!b->stack->cut_cross_entropy) {
        loss_of(b, "gradient of the loss", SP_PASS_I, all);
    }
    if (all > vocab) {
        memory(b, "share of the logits' gradient", (double)(2 * BF16 * vocab), 1);
    }
    gemm(b, "gradient of the head input", SP_PASS_I, h, vocab);
    if (sp_model_is_frozen(b->model)) {
        return;
    }
    gemm(b, "gradient of the output weight", SP_PASS_W, h, vocab);
    if (b->stack->unfused_weight_gradient) {
        memory(b, "sum over chunks", 0.0, 0)->bytes_fixed = (double)(BF16 * vocab * h);
    } else {
        accumulate(b, vocab * h);
    }
}

// Of all rows at once (0 chunks) or by chunks, each perhaps with its gradients.
static void logits_and_loss(builder *b, int64_t vocab, int64_t all, bool gradients, int64_t chunks)
{
    gather(b, "gather of the head input", hidden_bytes(b));
    int first = b->out->count;
    gemm(b, "logits", SP_PASS_F, b->model->hidden, vocab);
    if (all > vocab) {
        sp_op *op = add(b, "gather of the logits", SP_OP_ALL_GATHER);
        op->bytes_per_token = (double)(BF16 * all);
        op->blocks = true;
    }
    if (!b->stack->cut_cross_entropy) {
        loss_of(b, "loss", SP_PASS_F, all);
    }
    if (all == vocab) {
        // Maximum, target logit and sum of exponentials of each token.
        collective(b, "reduction of the loss", SP_OP_ALL_REDUCE, 3.0 * FP32);
    }
    if (gradients) {
        chunk_gradients(b, vocab, all);
    }
    if (chunks > 0) {
        run_by_chunks(b, first, chunks);
    }
}

// Norm, logits and loss of a token. Logits that are gathered have all of the loss on each rank, and
// of its gradient each takes the columns of its share: nothing is exchanged in the backward.
static void prediction_pass(builder *b, sp_pass pass)
{
    int64_t h = b->model->hidden;
    int64_t vocab = b->shard.vocab;
    int64_t all = vocab * sp_stack_logit_ranks(b->stack, b->layout);
    bool gathers = all > vocab;
    int64_t chunks = sp_stack_loss_chunks(b->stack);
    bool again = sp_stack_repeats_loss(b->stack);
    if (pass == SP_PASS_F) {
        norm(b, "final norm", pass, h);
        logits_and_loss(b, vocab, all, chunks > 0 && !again, chunks);
    } else if (pass == SP_PASS_I && chunks > 0) {
        if (again) {
            logits_and_loss(b, vocab, all, true, chunks);
        }
        reduce(b, "reduction of the head input's gradient", hidden_bytes(b));
        norm(b, "final norm", pass, h);
    } else if (pass == SP_PASS_I) {
        loss_of(b, "loss", SP_PASS_I, all);
        if (gathers) {
            memory(b, "share of the logits' gradient", (double)(2 * BF16 * vocab), 1);
        }
        gemm(b, "logits", pass, h, vocab);
        reduce(b, "reduction of the head input's gradient", hidden_bytes(b));
        norm(b, "final norm", pass, h);
    } else if (pass == SP_PASS_W && !sp_model_is_frozen(b->model)) {
        if (chunks == 0) {
            gather(b, "gather of the head input", hidden_bytes(b));
            gemm(b, "logits", pass, h, vocab);
        }
        if (chunks == 0 || b->stack->unfused_weight_gradient) {
            accumulate(b, vocab * h);
        }
    }
}

// What joins hidden states with the embedding of the next token, in front of the layer that
// predicts a further one (Megatron-LM, core/transformer/multi_token_prediction.py): a lookup, two
// norms, a copy into one matrix, and a column-parallel projection whose output is gathered.
static void joining_pass(builder *b, sp_pass pass)
{
    int64_t h = b->model->hidden;
    double joined = 2.0 * hidden_bytes(b);
    if (pass == SP_PASS_F) {
        embedding_pass(b, pass);
        norm(b, "norm of the embedding", pass, h);
        norm(b, "norm of the hidden states", pass, h);
        memory(b, "joining", 2.0 * joined / b->shard.norm_split, 1);
        gather(b, "gather of the joined states", joined);
        gemm(b, "projection of the joined states", pass, 2 * h, h / b->layout->tp);
        collective(b, "gather of the projection", SP_OP_ALL_GATHER, hidden_bytes(b));
    } else if (pass == SP_PASS_I) {
        collective(b, "gather of the projection's gradient", SP_OP_ALL_GATHER, hidden_bytes(b));
        gemm(b, "projection of the joined states", pass, 2 * h, h / b->layout->tp);
        reduce(b, "reduction of the joined states' gradient", joined);
        memory(b, "joining", 2.0 * joined / b->shard.norm_split, 1);
        norm(b, "norm of the hidden states", pass, h);
        norm(b, "norm of the embedding", pass, h);
        embedding_pass(b, pass);
    } else if (pass == SP_PASS_W) {
        gather(b, "gather of the joined states", joined);
        gemm(b, "projection of the joined states", pass, 2 * h, h / b->layout->tp);
        accumulate(b, 2 * h * (h / b->layout->tp));
        embedding_pass(b, pass);
    }
}

// The layers that predict further tokens are the stage's.
static void head_pass(builder *b, sp_pass pass)
{
    for (int further = 0; further < b->model->mtp_layers; further++) {
        joining_pass(b, pass);
        prediction_pass(b, pass);
    }
    prediction_pass(b, pass);
}
