#include "sim/memory/footprint.h"
#include "sim/memory/saved_tensors.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define MIB INT64_C(1048576)

static const sp_stack plain_stack = {.name = "ours"};

static sp_memory_options mode(sp_recompute recompute, sp_attention attention)
{
    return (sp_memory_options){.recompute = recompute, .attention = attention};
}

static sp_unit_bytes unit_of(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                             const sp_memory_options *options, sp_unit_load load)
{
    sp_unit_bytes unit;
    sp_footprint_unit(model, layout, stage, options, &load, &unit);
    return unit;
}

// The measured configuration of kwai/Megatron-Kwai, branch atc24ae: Llama-65B, 8192 tokens, TP 2,
// CP 2, PP 8, DP 8, two layers a chunk, vocabulary 32256; a local pack is 4096 tokens.
static const sp_layout h800 = {
    .tp = 2, .cp = 2, .pp = 8, .dp = 8, .chunks = 5, .sequence_parallel = true, .zero = 1};

static sp_unit_bytes h800_unit(sp_recompute recompute, bool embedding, bool head)
{
    sp_model model = builtin_model("llama-65b");
    model.vocab = 32256;
    sp_stage stage = {.layers = 2, .embedding = embedding, .head = head};
    sp_memory_options options = mode(recompute, SP_ATTENTION_FLASH);
    options.stack.copied_logits = true;
    return unit_of(&model, &h800, &stage, &options,
                   (sp_unit_load){.tokens = 8192, .pairs = INT64_C(8192) * 8192});
}

// Held per layer in units of S/t rows (S = 4096, t = 2), from that runtime's saved tensors: without
// recomputation 2*(6h + 2k + 4f) bytes, with the activation function and the norms rebuilt
// 2*(4h + 2k + 2f): 600 and 364 MiB. The softmax statistics add 32 heads * 4 B * 4096 tokens.
TEST(h800_units)
{
    int64_t statistics = 2 * (32 * 4 * 4096);
    sp_unit_bytes none = h800_unit(SP_RECOMPUTE_NONE, false, false);
    assert_int_equal(none.held.of[SP_MEM_ACTIVATIONS], 1200 * MIB + statistics);
    assert_int_equal(sp_bytes_total(&none.held), 1200 * MIB + statistics);
    sp_unit_bytes ours = h800_unit(SP_RECOMPUTE_ACTIVATION, false, false);
    assert_int_equal(ours.held.of[SP_MEM_ACTIVATIONS], 728 * MIB + statistics);
}

// Transients of the same runtime: 224 MiB at the end of a forward without recomputation, 278 MiB in
// the second projection with it, 644 MiB in the backward of the activation function; three hidden
// tensors of 32 MiB held at the borders in a forward and four in a backward. Through both, 64 MiB
// of gather buffer and 5 rotary tables of 2 MiB.
TEST(h800_transients)
{
    int64_t buffers = (64 + 10) * MIB;
    sp_unit_bytes none = h800_unit(SP_RECOMPUTE_NONE, false, false);
    assert_int_equal(none.forward.of[SP_MEM_WORKSPACE], 224 * MIB + buffers);
    assert_int_equal(none.forward.of[SP_MEM_COMMUNICATION], 96 * MIB);
    assert_int_equal(none.backward.of[SP_MEM_COMMUNICATION], 128 * MIB);
    assert_int_equal(none.backward.of[SP_MEM_RECOMPUTE], 0);
    sp_unit_bytes ours = h800_unit(SP_RECOMPUTE_ACTIVATION, false, false);
    assert_int_equal(ours.forward.of[SP_MEM_WORKSPACE], 278 * MIB + buffers);
    assert_int_equal(ours.backward.of[SP_MEM_RECOMPUTE], 86 * MIB);
    assert_int_equal(ours.backward.of[SP_MEM_WORKSPACE], (644 - 86) * MIB + buffers);
}

// The last chunk of the last rank: final norm input and output of 32 MiB, fp32 softmax of 252 MiB,
// and while its forward ends bf16 and fp32 logits of 126 and 252 MiB.
TEST(h800_head)
{
    sp_unit_bytes plain = h800_unit(SP_RECOMPUTE_NONE, false, false);
    sp_unit_bytes head = h800_unit(SP_RECOMPUTE_NONE, false, true);
    assert_int_equal(head.held.of[SP_MEM_ACTIVATIONS] - plain.held.of[SP_MEM_ACTIVATIONS],
                     64 * MIB);
    assert_int_equal(head.held.of[SP_MEM_LOGITS], 252 * MIB);
    assert_int_equal(head.forward.of[SP_MEM_LOGITS], (126 + 252) * MIB);
}

static sp_unit_bytes unit_under(const sp_model *model, const sp_layout *layout, bool head,
                                const sp_stack *stack, int64_t tokens)
{
    sp_stage stage = {.layers = 3, .head = head};
    sp_memory_options options = mode(SP_RECOMPUTE_NONE, SP_ATTENTION_FLASH);
    options.stack = *stack;
    return unit_of(model, layout, &stage, &options,
                   (sp_unit_load){.tokens = tokens, .pairs = tokens * tokens});
}

// Adam's states: 4 bytes a parameter of master weights, which pure bf16 training has not, and two
// moments of 4 bytes or as many as the stack says.
TEST(optimizer_states_follow_the_stack)
{
    static const struct {
        sp_stack stack;
        int64_t bytes;
    } cases[] = {{{.name = "fp32"}, 12},
                 {{.moment_bytes = 1}, 6},
                 {{.moment_bytes = 2, .no_master_weights = true}, 4}};
    sp_model model = builtin_model("llama-7b");
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 4, .zero = 1, .chunks = 1};
    sp_stage stage = {.layers = 4};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_bytes bytes;
        sp_footprint_states(&model, &layout, &cases[i].stack, &stage, 1, &bytes);
        int64_t parameters = sp_footprint_parameters(&model, &layout, &stage, 1);
        assert_int_equal(bytes.of[SP_MEM_OPTIMIZER], cases[i].bytes * parameters / 4);
    }
}

// A share of the states is on the host: of 12 bytes a parameter, and there with pinned copies of
// its gradients (fp32 or bf16) and bf16 weights. All else stays.
TEST(states_on_the_host)
{
    sp_model model = builtin_model("llama-7b");
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 4, .zero = 1, .chunks = 1};
    sp_stage stage = {.layers = 4};
    int64_t parameters = sp_footprint_parameters(&model, &layout, &stage, 1);
    assert_int_equal(parameters % 16, 0);
    for (int zero = 0; zero <= 3; zero++) {
        for (int quarters = 0; quarters <= 4; quarters++) {
            sp_stack stack = {.offload_states = quarters / 4.0,
                              .gradient_reduce_dtype = zero == 2 ? SP_REDUCE_BF16 : SP_REDUCE_FP32};
            sp_stack stays = stack;
            stays.offload_states = 0.0;
            sp_bytes bytes, whole;
            layout.zero = zero;
            sp_footprint_states(&model, &layout, &stack, &stage, 1, &bytes);
            sp_footprint_states(&model, &layout, &stays, &stage, 1, &whole);
            int64_t share = parameters / (zero > 0 ? 4 : 1);
            int64_t copies = zero == 2 ? 2 + 2 : 4 + 2;
            assert_int_equal(bytes.of[SP_MEM_OPTIMIZER], 12 * share / 4 * (4 - quarters));
            assert_int_equal(bytes.of[SP_MEM_OFFLOADED], (12 + copies) * share / 4 * quarters);
            assert_int_equal(sp_bytes_total(&whole) - sp_bytes_total(&bytes),
                             12 * share / 4 * quarters);
        }
    }
}

// Norms in PyTorch's operations keep their input and their result in fp32, 8 bytes a number, each
// of two a layer and the head's, unless they are rebuilt.
TEST(unfused_norms_are_held)
{
    sp_model model = builtin_model("llama-7b");
    sp_layout layout = {.tp = 1, .cp = 2, .pp = 2, .dp = 1, .chunks = 1};
    const sp_stack stacks[] = {{.name = "fused"}, {.name = "unfused", .unfused_norms = true}};
    int64_t held[2][2];
    for (int i = 0; i < 4; i++) {
        sp_unit_bytes unit = unit_under(&model, &layout, i / 2 != 0, &stacks[i % 2], 8192);
        held[i / 2][i % 2] = unit.held.of[SP_MEM_ACTIVATIONS];
    }
    int64_t norm = 8 * model.hidden * (8192 / 2);
    assert_int_equal(held[0][1] - held[0][0], 3 * 2 * norm);
    assert_int_equal(held[1][1] - held[1][0], (3 * 2 + 1) * norm);
    sp_stage stage = {.layers = 3};
    sp_memory_options options = mode(SP_RECOMPUTE_ACTIVATION, SP_ATTENTION_FLASH);
    sp_unit_bytes rebuilt[2];
    for (int i = 0; i < 2; i++) {
        options.stack = stacks[i];
        sp_footprint_unit(&model, &layout, &stage, &options, &(sp_unit_load){.tokens = 8192},
                          &rebuilt[i]);
    }
    assert_int_equal(rebuilt[0].held.of[SP_MEM_ACTIVATIONS],
                     rebuilt[1].held.of[SP_MEM_ACTIVATIONS]);
}

// Bytes a logit at the end of the forward, held, and in the backward of the loss. The vocabulary is
// large enough for the head to be the fullest moment.
TEST(losses_hold_logits)
{
    static const struct {
        sp_stack stack;
        int64_t held, forward, backward;
    } cases[] = {
        {{.fused_cross_entropy = true}, 2, 2, 2},
        {{.fused_cross_entropy = false}, 4, 6, 6},
        {{.copied_logits = true}, 4, 10, 6},
        // A chunk with its softmax, and its fp32 copy; the 2 bytes of a fused loss.
        {{.copied_logits = true, .loss_chunks = 5}, 0, 2, 0},
        {{.fused_cross_entropy = true, .loss_chunks = 2}, 0, 1, 0},
        // A chunk that runs again has them in the backward, too.
        {{.copied_logits = true, .loss_chunks = 5, .loss_recompute = true}, 0, 2, 2},
        {{.fused_cross_entropy = true, .loss_chunks = 2, .loss_recompute = true}, 0, 1, 1},
        {{.cut_cross_entropy = true}, 0, 0, 0},
        // Of four ranks, all of which each has, with its share of the bf16 logits before
        // they are gathered and of their gradient.
        {{.fused_cross_entropy = true, .gathered_logits = true}, 8, 10, 10},
        {{.gathered_logits = true}, 16, 24, 24},
        {{.copied_logits = true, .gathered_logits = true}, 16, 40, 24},
        {{.copied_logits = true, .loss_chunks = 5, .gathered_logits = true}, 0, 8, 0},
        {{.copied_logits = true, .loss_chunks = 5, .gathered_logits = true, .loss_recompute = true},
         0,
         8,
         8},
        {{.fused_cross_entropy = true, .loss_chunks = 2, .gathered_logits = true}, 0, 5, 0}};
    sp_model model = builtin_model("llama-7b");
    model.vocab = 512000;
    sp_layout layout = {.tp = 4, .cp = 2, .pp = 2, .dp = 1, .chunks = 1};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_unit_bytes unit = unit_under(&model, &layout, true, &cases[i].stack, 8192);
        int64_t logits = 8192 / 2 * (512000 / 4);
        int64_t held = unit.held.of[SP_MEM_LOGITS];
        assert_int_equal(held, cases[i].held * logits);
        assert_int_equal(held + unit.forward.of[SP_MEM_LOGITS], cases[i].forward * logits);
        assert_int_equal(held + unit.backward.of[SP_MEM_LOGITS], cases[i].backward * logits);
    }
}

// Transformer Engine's tensors for SwiGLU: 2*(2fh + fh + (a + 2g)dh + adh)/tp, and 2Vh/tp where the
// head is; one where two weights have one shape.
TEST(dummies_for_each_shape)
{
    sp_model model = builtin_model("llama-7b");
    model.kv_heads = 8;
    int64_t h = model.hidden;
    int64_t d = model.head_dim;
    for (int tp = 1; tp <= 8; tp *= 2) {
        sp_layout layout = {.tp = tp, .cp = 1, .pp = 2, .dp = 1, .chunks = 1};
        sp_stage ends[] = {{.layers = 16, .embedding = true}, {.layers = 16, .head = true}};
        sp_stack stack = {.dummy_weight_gradients = true};
        int64_t layers =
            2 * (3 * model.ffn * h + (model.heads + 2 * 8) * d * h + model.heads * d * h) / tp;
        for (int end = 0; end < 2; end++) {
            sp_bytes with, without;
            sp_footprint_states(&model, &layout, &stack, &ends[end], 1, &with);
            sp_footprint_states(&model, &layout, &plain_stack, &ends[end], 1, &without);
            assert_int_equal(sp_bytes_total(&with) - sp_bytes_total(&without),
                             layers + (end == 1 ? 2 * model.vocab / tp * h : 0));
        }
        int64_t bytes[SP_DUMMY_GRADIENTS];
        stack.unfused_weight_gradient = true;
        assert_int_equal(sp_footprint_dummy_gradients(&model, &layout, &stack, ends, 1, bytes), 0);
    }
    sp_layout one = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    sp_stage middle = {.layers = 1};
    sp_stack stack = {.dummy_weight_gradients = true};
    int64_t bytes[SP_DUMMY_GRADIENTS];
    model.activation = SP_GELU;
    model.ffn = model.heads * d; // three of hidden x hidden, and QKV
    assert_int_equal(sp_footprint_dummy_gradients(&model, &one, &stack, &middle, 1, bytes), 2);
    model.ffn = 2 * h; // of two shapes with as many weights
    assert_int_equal(sp_footprint_dummy_gradients(&model, &one, &stack, &middle, 1, bytes), 4);
}

static int64_t held_more(const sp_model *model, const sp_layout *layout, const sp_stack *stack,
                         bool head)
{
    sp_unit_bytes with = unit_under(model, layout, head, stack, 8192);
    sp_unit_bytes without = unit_under(model, layout, head, &plain_stack, 8192);
    return sp_bytes_total(&with.held) - sp_bytes_total(&without.held);
}

// All-to-all context parallelism, and an attention on other axes, keep its output once more:
// 2*L*s*a*d/tp bytes. Gathered inputs are two hidden states a layer, and the head's, in full width
// in place of 1/tp.
TEST(stacks_keep_more)
{
    sp_model model = builtin_model("llama-7b");
    sp_layout layout = {.tp = 4, .cp = 2, .pp = 2, .dp = 1, .chunks = 1, .sequence_parallel = true};
    int64_t output = 2 * 3 * INT64_C(4096) * model.hidden / 4;
    assert_int_equal(held_more(&model, &layout, &(sp_stack){.cp_overlap = SP_CP_A2A}, false),
                     output);
    assert_int_equal(held_more(&model, &layout, &(sp_stack){.transposed_output = true}, false),
                     output);
    int64_t gathered = 2 * INT64_C(4096) * model.hidden * 3 / 4;
    sp_stack keeps = {.keep_gathered_inputs = true};
    assert_int_equal(held_more(&model, &layout, &keeps, false), 2 * 3 * gathered);
    assert_int_equal(held_more(&model, &layout, &keeps, true), (2 * 3 + 1) * gathered);
    layout.cp = 1;
    assert_int_equal(held_more(&model, &layout, &(sp_stack){.cp_overlap = SP_CP_A2A}, false), 0);
}

// The mask is there while the ends of the model run forward, the buffer of scores in every pass.
TEST(masks_and_scores_take_room)
{
    sp_model model = builtin_model("gpt-175b");
    sp_layout layout = {.tp = 8, .cp = 1, .pp = 2, .dp = 1, .chunks = 1};
    sp_unit_load load = {.tokens = 4096, .pairs = INT64_C(2) * 2048 * 2048};
    for (int head = 0; head < 2; head++) {
        sp_stage stage = {.layers = 2, .head = head == 1};
        sp_memory_options options = mode(SP_RECOMPUTE_NONE, SP_ATTENTION_UNFUSED);
        sp_unit_bytes plain, unit;
        plain = unit_of(&model, &layout, &stage, &options, load);
        options.stack.attention_mask = true;
        options.stack.score_buffer = true;
        unit = unit_of(&model, &layout, &stage, &options, load);
        int64_t scores = 2 * load.pairs * model.heads / 8;
        assert_int_equal(sp_bytes_total(&unit.held), sp_bytes_total(&plain.held));
        assert_int_equal(sp_bytes_total(&unit.forward) - sp_bytes_total(&plain.forward),
                         scores + head * load.pairs);
        assert_int_equal(sp_bytes_total(&unit.backward) - sp_bytes_total(&plain.backward), scores);
    }
}

// 4 bytes of gradients a parameter, 2 where they are added up in bf16, 2 more for buckets.
TEST(gradients_follow_their_type)
{
    sp_model model = builtin_model("llama-7b");
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 8, .chunks = 1, .zero = 1};
    sp_stage stage = {.layers = 32, .embedding = true, .head = true};
    for (int i = 0; i < 4; i++) {
        sp_stack stack = {.gradient_reduce_dtype = i % 2 == 0 ? SP_REDUCE_FP32 : SP_REDUCE_BF16,
                          .gradient_buckets = i >= 2};
        sp_bytes bytes;
        sp_footprint_states(&model, &layout, &stack, &stage, 1, &bytes);
        assert_int_equal(bytes.of[SP_MEM_GRADIENTS],
                         ((i % 2 == 0 ? 4 : 2) + (i >= 2 ? 2 : 0)) * sp_model_parameters(&model));
    }
}

// Bytes of the runtime of h800_units, without rounding to blocks: first, inner and last rank. They
// include the 74 MiB of buffers that a unit's transients count here.
TEST(h800_states)
{
    sp_model model = builtin_model("llama-65b");
    model.vocab = 32256;
    sp_stage inner[5] = {{.layers = 2}, {.layers = 2}, {.layers = 2}, {.layers = 2}, {.layers = 2}};
    sp_stage first[5] = {{.layers = 2, .embedding = true},
                         {.layers = 2},
                         {.layers = 2},
                         {.layers = 2},
                         {.layers = 2}};
    sp_stage last[5] = {
        {.layers = 2}, {.layers = 2}, {.layers = 2}, {.layers = 2}, {.layers = 2, .head = true}};
    sp_bytes bytes;
    sp_footprint_states(&model, &h800, &plain_stack, inner, 5, &bytes);
    assert_int_equal(bytes.of[SP_MEM_PARAMETERS], 2 * INT64_C(4047667200));
    assert_int_equal(sp_bytes_total(&bytes) + 74 * MIB, 27500011520);
    sp_footprint_states(&model, &h800, &plain_stack, first, 5, &bytes);
    assert_int_equal(sp_bytes_total(&bytes) + 74 * MIB, 28391825408);
    sp_footprint_states(&model, &h800, &plain_stack, last, 5, &bytes);
    assert_int_equal(sp_bytes_total(&bytes) + 74 * MIB, 28391880704);
}

// Korthikanti et al., arXiv 2205.05198, table 2: activation bytes of a GPT layer with s tokens, one
// sequence, all masks kept.
TEST_ROUNDS(gpt_layers_follow_korthikanti, 34, 300)
{
    int64_t t = INT64_C(1) << sp_prng_below(prng, 4);
    int64_t a = t * (1 + (int64_t)sp_prng_below(prng, 12));
    int64_t h = a * 64;
    int64_t s = 64 * (1 + (int64_t)sp_prng_below(prng, 64));
    sp_model model = builtin_model("gpt-3.6b");
    model.heads = (int)a;
    model.kv_heads = (int)a;
    model.head_dim = 64;
    model.hidden = h;
    model.ffn = 4 * h;
    sp_layout layout = {.tp = (int)t, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    sp_stage stage = {.layers = 1};
    sp_memory_options none = mode(SP_RECOMPUTE_NONE, SP_ATTENTION_UNFUSED);
    int64_t scores = 5 * a * s * s / t;
    sp_unit_bytes unit =
        unit_of(&model, &layout, &stage, &none, (sp_unit_load){.tokens = s, .pairs = s * s});
    assert_int_equal(sp_bytes_total(&unit.held), s * h * 10 + s * h * 24 / t + scores);
    layout.sequence_parallel = true;
    unit = unit_of(&model, &layout, &stage, &none, (sp_unit_load){.tokens = s, .pairs = s * s});
    assert_int_equal(sp_bytes_total(&unit.held), s * h * 34 / t + scores);
    // Qi et al., arXiv 2401.10241, table 1: a weight gradient holds 32h a token.
    assert_int_equal(sp_bytes_total(&unit.weights), s * h * 32 / t);
    sp_memory_options selective = mode(SP_RECOMPUTE_ATTENTION, SP_ATTENTION_UNFUSED);
    unit =
        unit_of(&model, &layout, &stage, &selective, (sp_unit_load){.tokens = s, .pairs = s * s});
    assert_int_equal(sp_bytes_total(&unit.held), s * h * 34 / t);
    assert_int_equal(unit.backward.of[SP_MEM_RECOMPUTE], scores);
    sp_memory_options full = mode(SP_RECOMPUTE_FULL, SP_ATTENTION_UNFUSED);
    unit = unit_of(&model, &layout, &stage, &full, (sp_unit_load){.tokens = s, .pairs = s * s});
    assert_int_equal(sp_bytes_total(&unit.held), s * h * 2 / t);
    assert_int_equal(unit.backward.of[SP_MEM_RECOMPUTE], s * h * 32 / t + scores);
}

// What weight gradients of a layer read, 2 bytes each: inputs of projections, h and (of attention
// and MLPs) a TP rank's share, and gradients of their outputs. Experts have h of each token's rows
// on every TP rank, and their input is another than that of shared experts; a sequence is split
// outside the blocks.
TEST(weight_gradients_of_experts_read_their_rows)
{
    const int64_t s = 4096, h = 1024, kv = 256, f = 512, g = 768, k = 4;
    for (int i = 0; i < 8; i++) {
        const int64_t tp = 1 + i % 2;
        const bool shares = i / 2 % 2 == 1;
        sp_model model = {.name = "routed",
                          LLAMA_SHAPE(1, h, f, 16, 4, 1000),
                          .experts = 16,
                          .experts_per_token = (int)k,
                          .shared_ffn = shares ? g : 0};
        sp_layout layout = {.tp = (int)tp, .cp = 1, .pp = 1, .dp = 4, .chunks = 1};
        layout.sequence_parallel = true;
        layout.ep = i / 4 == 1 ? 4 : 1;
        const sp_stage stage = {.layers = 1};
        sp_memory_options none = mode(SP_RECOMPUTE_NONE, SP_ATTENTION_FLASH);
        sp_unit_bytes unit = unit_of(&model, &layout, &stage, &none, (sp_unit_load){.tokens = s});
        int64_t attention = h + (h + 2 * kv) + h + h;
        int64_t experts = k * (tp * h + 2 * f) + k * (f + tp * h);
        int64_t shared = shares ? (h + 2 * g) + (g + h) : 0;
        assert_int_equal(sp_bytes_total(&unit.weights),
                         2 * s * (attention + experts + shared) / tp);
    }
}

// SlimPipe, arXiv 2504.14519: 8h + 4k bytes per token and layer stay with the first projection and
// all behind it rebuilt (k = width of the keys), 2h with full recomputation. The softmax statistics
// are not in its count.
TEST(llama_layers_follow_slimpipe)
{
    sp_layout layout = {.tp = 8, .cp = 1, .pp = 1, .dp = 1, .chunks = 1, .sequence_parallel = true};
    sp_model model = builtin_model("llama-70b");
    sp_stage stage = {.layers = 3};
    int64_t s = 4096;
    sp_memory_options partial = mode(SP_RECOMPUTE_PARTIAL_FC1, SP_ATTENTION_FLASH);
    sp_unit_bytes unit =
        unit_of(&model, &layout, &stage, &partial, (sp_unit_load){.tokens = s, .pairs = s * s});
    int64_t statistics = 3 * s * 4 * 64 / 8;
    assert_int_equal(sp_bytes_total(&unit.held) - statistics, 3 * s * (8 * 8192 + 4 * 1024) / 8);
    sp_memory_options full = mode(SP_RECOMPUTE_FULL, SP_ATTENTION_FLASH);
    unit = unit_of(&model, &layout, &stage, &full, (sp_unit_load){.tokens = s, .pairs = s * s});
    assert_int_equal(sp_bytes_total(&unit.held), 3 * s * 2 * 8192 / 8);
}

// Keys and values of slices that are read later move to their own category, 4k bytes a token and
// layer; nothing else changes. They stay under full recomputation as well.
TEST_ROUNDS(slices_keep_keys_and_values, 9, 200)
{
    sp_model model = builtin_model("llama-70b");
    sp_layout layout = {.tp = 4, .cp = 2, .pp = 2, .dp = 1, .chunks = 1};
    sp_stage stage = {.layers = 1 + prng_below(prng, 8)};
    int64_t tokens = 2 * (1 + (int64_t)sp_prng_below(prng, 20000));
    int64_t kv_tokens = 2 * (int64_t)sp_prng_below(prng, (uint64_t)tokens / 2 + 1);
    int64_t cached = stage.layers * (kv_tokens / 2) * 4 * 1024 / 4;
    for (int m = 0; m < SP_RECOMPUTE_MODES; m++) {
        sp_memory_options options = mode((sp_recompute)m, SP_ATTENTION_FLASH);
        sp_unit_bytes whole, sliced;
        whole = unit_of(&model, &layout, &stage, &options, (sp_unit_load){.tokens = tokens});
        sliced = unit_of(&model, &layout, &stage, &options,
                         (sp_unit_load){.tokens = tokens, .kv_tokens = kv_tokens});
        assert_int_equal(sliced.held.of[SP_MEM_KV_CACHE], cached);
        assert_int_equal(whole.held.of[SP_MEM_KV_CACHE], 0);
        int64_t extra = sp_recompute_repeats((sp_recompute)m, SP_LAYER_QKV) ? cached : 0;
        assert_int_equal(sp_bytes_total(&sliced.held), sp_bytes_total(&whole.held) + extra);
    }
}

// The sums of their gradients are as large, and are there while the backward that begins them runs.
TEST(slices_sum_gradients)
{
    sp_model model = builtin_model("llama-70b");
    sp_layout layout = {.tp = 4, .cp = 2, .pp = 2, .dp = 1, .chunks = 1};
    sp_stage stage = {.layers = 3};
    sp_memory_options options = mode(SP_RECOMPUTE_NONE, SP_ATTENTION_FLASH);
    int64_t token = 3 * 4 * 1024 / 4 / 2;
    sp_unit_bytes unit = unit_of(&model, &layout, &stage, &options,
                                 (sp_unit_load){.tokens = 1000, .begun_tokens = 3000});
    assert_int_equal(unit.gradients_begun, 3000 * token);
    assert_int_equal(unit.gradients_found, 0);
    assert_int_equal(unit.backward.of[SP_MEM_KV_GRADIENTS], 3000 * token);
    assert_int_equal(unit.forward.of[SP_MEM_KV_GRADIENTS], 0);
    unit = unit_of(&model, &layout, &stage, &options,
                   (sp_unit_load){.tokens = 1000, .kv_tokens = 600, .found_tokens = 600});
    assert_int_equal(unit.gradients_begun, 0);
    assert_int_equal(unit.gradients_found, 600 * token);
    assert_int_equal(unit.backward.of[SP_MEM_KV_GRADIENTS], 0);
}

// Of the tensors of at least 1 MiB each, here all but the softmax statistics, the share in whole
// MiB; the two statistics are 512 KiB each.
TEST(offload_moves_activations)
{
    sp_model model = builtin_model("llama-65b");
    sp_stage stage = {.layers = 2};
    sp_memory_options options = mode(SP_RECOMPUTE_NONE, SP_ATTENTION_FLASH);
    int64_t statistics = 2 * (32 * 4 * 4096);
    for (int percent = 0; percent <= 100; percent++) {
        options.offload_ratio = percent / 100.0;
        sp_unit_bytes unit = unit_of(&model, &h800, &stage, &options,
                                     (sp_unit_load){.tokens = 8192, .pairs = INT64_C(8192) * 8192});
        int64_t leaves = (1200 * percent + 99) / 100 * MIB;
        assert_int_equal(unit.held.of[SP_MEM_OFFLOADED], leaves);
        assert_int_equal(unit.held.of[SP_MEM_ACTIVATIONS], 1200 * MIB + statistics - leaves);
    }
}

// Rounding up takes no more than there is: ten layers of 1000 tokens, per token 2*(6h + 2h + 4f)
// bytes that may leave, no tensor of a whole number of MiB.
TEST(offload_rounds_to_what_there_is)
{
    sp_model model = builtin_model("llama-13b");
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 4, .dp = 1, .chunks = 1};
    sp_stage stage = {.layers = 10};
    sp_memory_options options = mode(SP_RECOMPUTE_NONE, SP_ATTENTION_FLASH);
    int64_t all = INT64_C(10000) * 2 * (8 * 5120 + 4 * 13824);
    int64_t statistics = 10000 * 4 * 40;
    const double ratios[] = {0.0, 1e-9, 0.75, 1.0};
    const int64_t leaves[] = {0, MIB, (all * 3 / 4 + MIB - 1) / MIB * MIB, all};
    assert_true(all % MIB != 0);
    for (int i = 0; i < 4; i++) {
        options.offload_ratio = ratios[i];
        sp_unit_bytes unit =
            unit_of(&model, &layout, &stage, &options, (sp_unit_load){.tokens = 1000});
        assert_int_equal(unit.held.of[SP_MEM_OFFLOADED], leaves[i]);
        assert_int_equal(unit.held.of[SP_MEM_ACTIVATIONS], all + statistics - leaves[i]);
    }
    // Nothing of a short pack is as large as 1 MiB.
    options.offload_ratio = 1.0;
    sp_unit_bytes unit = unit_of(&model, &layout, &stage, &options, (sp_unit_load){.tokens = 30});
    assert_int_equal(unit.held.of[SP_MEM_OFFLOADED], 0);
}

// What one SwiGLU kernel keeps: the first projection's output and the second one's input, 6f bytes
// a token in place of 8f; with the activation rebuilt only the former.
TEST(fused_swiglu_keeps_two_tensors)
{
    sp_model model = builtin_model("llama-65b");
    sp_stage stage = {.layers = 2};
    for (int m = 0; m < SP_RECOMPUTE_MODES; m++) {
        sp_memory_options options = mode((sp_recompute)m, SP_ATTENTION_FLASH);
        sp_unit_bytes split, fused;
        split = unit_of(&model, &h800, &stage, &options, (sp_unit_load){.tokens = 8192});
        options.stack.fused_swiglu = true;
        fused = unit_of(&model, &h800, &stage, &options, (sp_unit_load){.tokens = 8192});
        bool keeps = !sp_recompute_repeats((sp_recompute)m, SP_LAYER_ACTIVATION);
        assert_int_equal(sp_bytes_total(&split.held) - sp_bytes_total(&fused.held),
                         keeps ? 2 * 86 * MIB : 0);
        // Its backward gives the gradient of both halves at once, 172 MiB less; where that makes
        // the attention's phase the larger one, less is gained.
        int64_t gained = sp_bytes_total(&split.backward) - sp_bytes_total(&fused.backward);
        assert_true(gained >= 0 && gained <= (172 + (m == SP_RECOMPUTE_FULL ? 172 : 0)) * MIB);
    }
}

// By the stack: count and size of the work spaces; 0 stands for three of 32 MiB.
TEST(stacks_have_work_spaces)
{
    sp_model model = builtin_model("llama-7b");
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    sp_stage stage = {.layers = 1};
    const int64_t cases[][3] = {{0, 0, 96}, {2, 0, 64}, {0, 8, 24}, {2, 8, 16}, {1, 4, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_stack stack = {.work_spaces = cases[i][0], .work_space_bytes = cases[i][1] * MIB};
        sp_bytes bytes;
        sp_footprint_states(&model, &layout, &stack, &stage, 1, &bytes);
        assert_int_equal(bytes.of[SP_MEM_WORKSPACE], cases[i][2] * MIB);
    }
}

static const sp_unit_tensor *unit_tensor(const sp_unit_tensor *tensors, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(tensors[i].name, name) == 0) {
            return &tensors[i];
        }
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

// Without recomputation: first SiLU output and product, 86 MiB each in two layers, then the shards
// of keys and values, 64 MiB; 0.5 of 1200 MiB end in the layers' 32 MiB tensors. Above one half
// the order is reversed: the strided halves of the first projection's output, then 32 MiB tensors
// from the last saved on.
TEST(offload_takes_contiguous_and_large_first)
{
    static const struct {
        double ratio;
        const char *name;
        int64_t away_mib;                  // of both layers
    } cases[] = {{0.1, "SiLU output", 86}, // and the first layer's product, 34 of 86
                 {0.1, "fc2 input", 34},
                 {0.1, "keys and values", 0},
                 {0.3, "SiLU output", 172},
                 {0.3, "fc2 input", 172},
                 {0.3, "keys and values", 16},
                 {0.5, "keys and values", 128},
                 {0.5, "layer input", 32}, // of 128 MiB: four of the first layer's six
                 {0.5, "attention output", 32},
                 {0.5, "residual", 0},
                 {0.5, "fc1 output, gate half", 0},
                 {0.6, "fc1 output, gate half", 172},
                 {0.6, "fc1 output, up half", 172},
                 {0.6, "second norm output", 64},
                 {0.6, "residual", 64},
                 {0.6, "attention output", 64},
                 {0.6, "queries", 64},
                 {0.6, "first norm output", 64},
                 {0.6, "layer input", 56},
                 {0.6, "keys and values", 0},
                 {1.0, "SiLU output", 172},
                 {1.0, "log-sum-exp", 0}};
    sp_model model = builtin_model("llama-65b");
    sp_stage stage = {.layers = 2};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_memory_options options = mode(SP_RECOMPUTE_NONE, SP_ATTENTION_FLASH);
        sp_unit_tensor tensors[SP_UNIT_TENSORS];
        const sp_unit_load load = {.tokens = 8192};
        int count = sp_unit_tensors(&model, &h800, &stage, &options, &load, tensors);
        sp_unit_offload(tensors, count, cases[i].ratio);
        assert_int_equal(unit_tensor(tensors, count, cases[i].name)->away_bytes,
                         cases[i].away_mib * MIB);
        int64_t away = 0;
        for (int k = 0; k < count; k++) {
            assert_true(tensors[k].away_bytes <= tensors[k].count * tensors[k].bytes);
            away += tensors[k].away_bytes;
        }
        assert_int_equal(away, sp_unit_offload_bytes(tensors, count, cases[i].ratio));
    }
}

// Each mode keeps a subset of what the one before keeps; embedding and head are not rebuilt.
TEST(recomputation_never_keeps_more)
{
    for (int i = 0; i < sp_model_builtin_count(); i++) {
        sp_model model = builtin_model(sp_model_builtin_name(i));
        sp_layout layout = {.tp = 2, .cp = 2, .pp = 2, .dp = 1, .chunks = 1};
        layout.sequence_parallel = i % 2 == 0;
        sp_stage stage = {.layers = 2, .embedding = true, .head = true};
        sp_model_count_kinds(&model, 0, stage.layers, stage.count);
        for (int a = SP_ATTENTION_FLASH; a <= SP_ATTENTION_UNFUSED; a++) {
            int64_t held[SP_RECOMPUTE_MODES];
            for (int m = 0; m < SP_RECOMPUTE_MODES; m++) {
                sp_memory_options options = mode((sp_recompute)m, (sp_attention)a);
                sp_unit_bytes unit = unit_of(&model, &layout, &stage, &options,
                                             (sp_unit_load){.tokens = 1001, .pairs = 1001 * 1001});
                held[m] = sp_bytes_total(&unit.held);
                for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
                    assert_true(unit.held.of[c] >= 0);
                    assert_true(unit.held.of[c] + unit.forward.of[c] >= 0);
                    assert_true(unit.held.of[c] + unit.backward.of[c] >= 0);
                }
            }
            assert_true(held[SP_RECOMPUTE_ACTIVATION] < held[SP_RECOMPUTE_NONE]);
            assert_true(held[SP_RECOMPUTE_PARTIAL_FC1] < held[SP_RECOMPUTE_ACTIVATION]);
            assert_true(held[SP_RECOMPUTE_FULL] < held[SP_RECOMPUTE_PARTIAL_FC1]);
            assert_true(held[SP_RECOMPUTE_ATTENTION] < held[SP_RECOMPUTE_NONE]);
            assert_true(held[SP_RECOMPUTE_FULL] < held[SP_RECOMPUTE_ATTENTION]);
        }
    }
}

// With a vocabulary this small the layers are the fullest moment of both passes. The softmax is not
// there then: a stage with the head needs no more than one without but the input and the output of
// the final norm.
TEST(layers_run_without_the_softmax)
{
    sp_model model = builtin_model("llama-13b");
    model.vocab = 1024;
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 1};
    sp_memory_options options = mode(SP_RECOMPUTE_NONE, SP_ATTENTION_FLASH);
    sp_unit_bytes with, without;
    const sp_stage head = {.layers = 2, .head = true};
    const sp_stage plain = {.layers = 2};
    with = unit_of(&model, &layout, &head, &options,
                   (sp_unit_load){.tokens = 4096, .pairs = INT64_C(4096) * 4096});
    without = unit_of(&model, &layout, &plain, &options,
                      (sp_unit_load){.tokens = 4096, .pairs = INT64_C(4096) * 4096});
    int64_t norm = INT64_C(2) * 2 * model.hidden * 4096;
    assert_int_equal(sp_bytes_total(&with.held) + sp_bytes_total(&with.backward),
                     sp_bytes_total(&without.held) + sp_bytes_total(&without.backward) + norm);
    assert_int_equal(sp_bytes_total(&with.held) + sp_bytes_total(&with.forward),
                     sp_bytes_total(&without.held) + sp_bytes_total(&without.forward) + norm);
    assert_int_equal(with.held.of[SP_MEM_LOGITS], INT64_C(4) * 1024 * 4096);
}

// Without tensor parallelism the stages hold the model's parameters once, plus a second copy of a
// tied table where its two ends lie on different ranks.
TEST(stages_hold_the_whole_model)
{
    for (int i = 0; i < sp_model_builtin_count(); i++) {
        sp_model model = builtin_model(sp_model_builtin_name(i));
        model.qk_norm = i % 2 == 1;
        model.post_norms = i % 3 == 1;
        for (int pp = 1; pp <= 2; pp++) {
            sp_layout layout = {.tp = 1, .cp = 1, .pp = pp, .dp = 4, .chunks = 1, .zero = 1};
            sp_stage stages[2];
            assert_int_equal(sp_layout_stages(&layout, &model, "x", stages, NULL), SP_OK);
            int64_t parameters = 0;
            for (int r = 0; r < pp; r++) {
                sp_bytes bytes;
                sp_footprint_states(&model, &layout, &plain_stack, &stages[r], 1, &bytes);
                parameters += bytes.of[SP_MEM_PARAMETERS] / 2;
            }
            int64_t copy = model.tied_embeddings && pp > 1 ? model.vocab * model.hidden : 0;
            assert_int_equal(parameters, sp_model_parameters(&model) + copy);
        }
    }
}

// Norms behind attention and MLP keep what they read: 2 h bytes a token each of this rank's share
// of the sequence, nothing where whole layers run again. A gate of GELU keeps what one of SiLU
// does.
TEST(norms_behind_blocks_keep_their_input)
{
    for (int tp = 1; tp <= 4; tp *= 2) {
        const sp_layout layout = {
            .tp = tp, .cp = 1, .pp = 1, .dp = 1, .chunks = 1, .sequence_parallel = tp > 1};
        for (int m = 0; m < SP_RECOMPUTE_MODES; m++) {
            sp_model model = builtin_model("llama-13b");
            sp_memory_options options = {.recompute = (sp_recompute)m, .stack = plain_stack};
            const sp_stage stage = {.layers = 3};
            const sp_unit_load load = {.tokens = 4096};
            sp_unit_bytes plain, normed, gelu;
            sp_footprint_unit(&model, &layout, &stage, &options, &load, &plain);
            model.activation = SP_GEGLU;
            sp_footprint_unit(&model, &layout, &stage, &options, &load, &gelu);
            model.post_norms = true;
            sp_footprint_unit(&model, &layout, &stage, &options, &load, &normed);
            int64_t more = m == SP_RECOMPUTE_FULL ? 0 : 3 * 2 * INT64_C(2) * 5120 * 4096 / tp;
            assert_int_equal(sp_bytes_total(&gelu.held), sp_bytes_total(&plain.held));
            assert_int_equal(sp_bytes_total(&normed.held), sp_bytes_total(&plain.held) + more);
            // Without norms before them the products read what is kept anyway: the layer's input
            // and the residual path. Modes that make norms again have dropped their outputs.
            unsigned again = sp_recompute_operations((sp_recompute)m, &model);
            int64_t outputs = (again & SP_LAYER_NORM1) == 0 ? more : 0;
            model.post_norms_alone = true;
            sp_footprint_unit(&model, &layout, &stage, &options, &load, &gelu);
            assert_int_equal(sp_bytes_total(&gelu.held), sp_bytes_total(&normed.held) - outputs);
        }
    }
}

// Blocks side by side keep no sum between them, and with one norm one output of it: 2 h bytes a
// token each of this rank's share.
TEST(blocks_side_by_side_keep_less)
{
    for (int tp = 1; tp <= 4; tp *= 2) {
        const sp_layout layout = {
            .tp = tp, .cp = 1, .pp = 1, .dp = 1, .chunks = 1, .sequence_parallel = tp > 1};
        sp_model model = builtin_model("llama-13b");
        sp_memory_options options = {.stack = plain_stack};
        const sp_stage stage = {.layers = 3};
        const sp_unit_load load = {.tokens = 4096};
        const int64_t hidden = 3 * INT64_C(2) * 5120 * 4096 / tp;
        sp_unit_bytes in_turn, beside;
        sp_footprint_unit(&model, &layout, &stage, &options, &load, &in_turn);
        model.blocks = SP_BLOCKS_TWO_NORMS;
        sp_footprint_unit(&model, &layout, &stage, &options, &load, &beside);
        assert_int_equal(sp_bytes_total(&beside.held), sp_bytes_total(&in_turn.held) - hidden);
        model.blocks = SP_BLOCKS_ONE_NORM;
        sp_footprint_unit(&model, &layout, &stage, &options, &load, &beside);
        assert_int_equal(sp_bytes_total(&beside.held), sp_bytes_total(&in_turn.held) - 2 * hidden);
    }
}

// TP divides all but the norms: t ranks of a Llama hold the model and (t - 1) more copies of them.
TEST(tensor_parallelism_replicates_norms)
{
    sp_model model = builtin_model("llama-13b");
    for (int tp = 1; tp <= 8; tp *= 2) {
        sp_layout layout = {.tp = tp, .cp = 1, .pp = 1, .dp = 1, .chunks = 1, .zero = 1};
        sp_stage stage = {.layers = 40, .embedding = true, .head = true};
        sp_bytes bytes;
        sp_footprint_states(&model, &layout, &plain_stack, &stage, 1, &bytes);
        assert_int_equal(tp * bytes.of[SP_MEM_PARAMETERS] / 2,
                         sp_model_parameters(&model) + (tp - 1) * (2 * 40 + 1) * 5120);
    }
}

// ZeRO 1, 2 and 3 divide optimizer, gradients and parameters over dp*cp (arXiv 1910.02054).
TEST(zero_divides_states)
{
    sp_model model = builtin_model("llama-7b");
    sp_stage stage = {.layers = 32, .embedding = true, .head = true};
    int64_t parameters = 6738415616;
    for (int zero = 0; zero <= 3; zero++) {
        sp_layout layout = {.tp = 1, .cp = 2, .pp = 1, .dp = 3, .chunks = 1, .zero = zero};
        sp_bytes bytes;
        sp_footprint_states(&model, &layout, &plain_stack, &stage, 1, &bytes);
        const struct {
            sp_memory_category category;
            int64_t bytes;
            int from;
        } expected[] = {
            {SP_MEM_OPTIMIZER, 12, 1}, {SP_MEM_GRADIENTS, 4, 2}, {SP_MEM_PARAMETERS, 2, 3}};
        for (int i = 0; i < 3; i++) {
            int64_t whole = expected[i].bytes * parameters;
            int64_t share = whole / 6 + (whole % 6 != 0);
            assert_int_equal(bytes.of[expected[i].category],
                             zero >= expected[i].from ? share : whole);
        }
    }
}

// FSDP under a pipeline has its shares of the optimizer alone: parameters and gradients stay whole
// until the last micro-batch, whichever of them ZeRO splits between steps.
TEST(whole_in_a_step)
{
    sp_model model = builtin_model("llama-7b");
    sp_stage stage = {.layers = 32, .embedding = true, .head = true};
    int64_t parameters = 6738415616;
    for (int zero = 2; zero <= 3; zero++) {
        sp_layout layout = {
            .tp = 1, .cp = 2, .pp = 1, .dp = 4, .chunks = 1, .zero = zero, .whole_in_step = true};
        sp_bytes bytes;
        sp_footprint_states(&model, &layout, &plain_stack, &stage, 1, &bytes);
        assert_int_equal(bytes.of[SP_MEM_PARAMETERS], 2 * parameters);
        assert_int_equal(bytes.of[SP_MEM_GRADIENTS], 4 * parameters);
        assert_int_equal(bytes.of[SP_MEM_OPTIMIZER], 12 * parameters / 8);
    }
}

TEST(absurd_sizes_stay_defined)
{
    sp_model model = builtin_model("gpt-175b");
    sp_layout layout = {.tp = 1, .cp = 3, .pp = 2, .dp = 1, .chunks = 4096};
    sp_stage stage = {.layers = 4096, .embedding = true, .head = true};
    sp_memory_options options = mode(SP_RECOMPUTE_FULL, SP_ATTENTION_UNFUSED);
    sp_unit_bytes unit =
        unit_of(&model, &layout, &stage, &options,
                (sp_unit_load){
                    .tokens = INT64_MAX / 2, .kv_tokens = INT64_MAX / 2, .pairs = INT64_MAX / 2});
    assert_true(sp_bytes_total(&unit.held) > 0);
    assert_true(sp_bytes_total(&unit.forward) > 0);
    assert_true(sp_bytes_total(&unit.backward) > 0);
}
