// Low-rank adapters (Hu et al., LoRA, arXiv 2106.09685) of frozen models: parameters, states, saved
// tensors, FLOPs and exchanges by closed forms.
#include "sim/inference/decode.h"
#include "sim/memory/footprint.h"
#include "sim/memory/tensor_program.h"
#include "sim/model/inventory.h"
#include "sim/prefill/prefill.h"
#include "sim/simulate/engine.h"
#include "solver/strategy.h"
#include "tests/support/priced_step.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { H = 4096, KV = 1024, F = 14336, LAYERS = 32, R = 16 };

static const sp_layout single = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};

static sp_model adapted(int64_t rank, sp_lora_targets targets)
{
    sp_model model;
    assert_int_equal(sp_model_builtin("llama-3-8b", &model, NULL), SP_OK);
    model.lora_rank = rank;
    model.lora_targets = targets;
    return model;
}

// Inputs and outputs of all adapters of a layer.
static int64_t ends_of(sp_lora_targets targets)
{
    const int64_t q = H + H;
    const int64_t k = H + KV;
    const int64_t o = H + H;
    const int64_t mlp = 2 * (H + F) + F + H;
    switch (targets) {
    case SP_LORA_ATTENTION:
        return q + 2 * k + o;
    case SP_LORA_MLP:
        return mlp;
    case SP_LORA_QUERY_VALUE:
        return q + k;
    case SP_LORA_MEGATRON:
        return H + (H + 2 * KV) + o + H + 2 * F + F + H;
    default:
        return q + 2 * k + o + mlp;
    }
}

// What PEFT's print_trainable_parameters() says of Llama-3-8B with r 16 on all seven projections:
// "trainable params: 41,943,040 || all params: 8,072,204,288".
TEST(parameters_are_those_of_peft)
{
    sp_model model = adapted(R, SP_LORA_ALL_LINEAR);
    assert_int_equal(sp_model_trained_parameters(&model), 41943040);
    assert_int_equal(sp_model_parameters(&model), 8072204288);
}

TEST(parameters_follow_the_targets)
{
    for (int t = SP_LORA_ALL_LINEAR; t <= SP_LORA_MEGATRON; t++) {
        for (int64_t rank = 1; rank <= 64; rank *= 4) {
            sp_model model = adapted(rank, (sp_lora_targets)t);
            int64_t trained = LAYERS * rank * ends_of((sp_lora_targets)t);
            assert_int_equal(sp_model_trained_parameters(&model), trained);
            assert_int_equal(sp_model_parameters(&model), 8030261248 + trained);
        }
    }
    sp_model model = adapted(0, SP_LORA_ALL_LINEAR);
    assert_int_equal(sp_model_trained_parameters(&model), 8030261248);
}

// TP ranks split both matrices of every adapter.
TEST(tensor_parallel_ranks_split_adapters)
{
    const sp_stage all = {.layers = LAYERS, .embedding = true, .head = true};
    for (int t = SP_LORA_ALL_LINEAR; t <= SP_LORA_MEGATRON; t++) {
        for (int tp = 1; tp <= 8; tp *= 2) {
            sp_model model = adapted(R, (sp_lora_targets)t);
            sp_layout layout = single;
            layout.tp = tp;
            assert_int_equal(tp * sp_footprint_trained_parameters(&model, &layout, &all, 1),
                             sp_model_trained_parameters(&model));
        }
    }
}

// 2 bytes of each parameter, and gradients, fp32 weights and two moments of adapters alone: 4 + 12
// bytes. ZeRO splits as it does all parameters.
TEST(states_are_those_of_adapters)
{
    const sp_stage all = {.layers = LAYERS, .embedding = true, .head = true};
    const int64_t trained = 41943040;
    const int64_t parameters = 8072204288;
    for (int zero = 0; zero <= 3; zero++) {
        sp_model model = adapted(R, SP_LORA_ALL_LINEAR);
        sp_layout layout = single;
        sp_bytes bytes;
        layout.dp = 8;
        layout.zero = zero;
        sp_footprint_states(&model, &layout, &(sp_stack){.dummy_weight_gradients = true}, &all, 1,
                            &bytes);
        assert_int_equal(bytes.of[SP_MEM_PARAMETERS], 2 * parameters / (zero >= 3 ? 8 : 1));
        assert_int_equal(bytes.of[SP_MEM_GRADIENTS], 4 * trained / (zero >= 2 ? 8 : 1));
        assert_int_equal(bytes.of[SP_MEM_OPTIMIZER], 12 * trained / (zero >= 1 ? 8 : 1));
        assert_int_equal(bytes.of[SP_MEM_WORKSPACE], INT64_C(3) * 32 << 20);
    }
}

// ---- frozen weights in 4 bits (QLoRA, arXiv 2305.14314) ----

// Weights of the products of a layer: two square ones, two of keys and values, three of the MLP.
static const int64_t products = 2 * H * H + 2 * H * KV + 3 * (int64_t)H * F;

// Section 3 of the paper: a scale of 32 bits for 64 weights are 0.5 bits a weight, with double
// quantisation 8/64 + 32/(64 * 256) = 0.127.
TEST(bits_of_a_weight_are_those_of_the_paper)
{
    const int64_t weights = 64 * 256 * 7;
    for (int f = SP_FROZEN_4BIT; f <= SP_FROZEN_4BIT_DOUBLE; f++) {
        sp_frozen_weights frozen = (sp_frozen_weights)f;
        int64_t bytes = sp_4bit_packed_bytes(weights) + sp_4bit_scale_bytes(frozen, weights) +
                        sp_4bit_nested_bytes(frozen, weights);
        double bits = 8.0 * (double)bytes / (double)weights;
        assert_close(bits, f == SP_FROZEN_4BIT ? 4.5 : 4.0 + 8.0 / 64.0 + 32.0 / (64.0 * 256.0),
                     1e-15);
    }
    // Blocks that are not full have a scale of their own.
    assert_int_equal(sp_4bit_packed_bytes(65), 33);
    assert_int_equal(sp_4bit_scale_bytes(SP_FROZEN_4BIT, 65), 8);
    assert_int_equal(sp_4bit_scale_bytes(SP_FROZEN_4BIT_DOUBLE, 65), 2);
    assert_int_equal(sp_4bit_nested_bytes(SP_FROZEN_4BIT_DOUBLE, 64 * 256 + 1), 8);
}

// Half a byte of each weight of a product, which ZeRO 3 splits, and its scales, which every rank
// has whole; all other parameters in bf16. Gradients and states are those of adapters.
TEST(frozen_weights_take_their_bits)
{
    const sp_stage all = {.layers = LAYERS, .embedding = true, .head = true};
    const int64_t parameters = 8072204288;
    for (int f = SP_FROZEN_4BIT; f <= SP_FROZEN_4BIT_DOUBLE; f++) {
        for (int zero = 0; zero <= 3; zero++) {
            sp_model model = adapted(R, SP_LORA_ALL_LINEAR);
            sp_layout layout = single;
            sp_bytes bytes;
            model.frozen_weights = (sp_frozen_weights)f;
            layout.dp = 8;
            layout.zero = zero;
            sp_footprint_states(&model, &layout, &(sp_stack){.name = "ours"}, &all, 1, &bytes);
            int64_t packed = 2 * (parameters - LAYERS * products) + LAYERS * products / 2;
            int64_t scales = f == SP_FROZEN_4BIT ? LAYERS * products / 64 * 4
                                                 : LAYERS * products / 64 * (256 + 4) / 256;
            assert_int_equal(bytes.of[SP_MEM_PARAMETERS], packed / (zero >= 3 ? 8 : 1) + scales);
            assert_int_equal(bytes.of[SP_MEM_OPTIMIZER],
                             INT64_C(12) * 41943040 / (zero >= 1 ? 8 : 1));
        }
    }
}

// Each product makes a bf16 copy of its weight, in the forward, in a forward that runs again and
// for the input gradient, and none for a weight gradient: of each weight half a byte and 4/64 of
// its scale read and 2 bytes written; double quantisation makes the scales of 1 byte and 4/256, and
// adds an offset (4 read, 4 written) before.
TEST(products_turn_frozen_weights_back)
{
    const double bytes[] = {0.0, 0.5 + 2.0 + 4.0 / 64.0,
                            0.5 + 2.0 + (4.0 + 1.0 + 4.0 / 256.0 + 4.0 + 8.0) / 64.0};
    for (int f = SP_FROZEN_BF16; f <= SP_FROZEN_4BIT_DOUBLE; f++) {
        sp_model model = adapted(R, SP_LORA_ALL_LINEAR);
        model.frozen_weights = (sp_frozen_weights)f;
        for (int p = SP_PASS_F; p <= SP_PASS_RECOMPUTE; p++) {
            sp_inventory ops;
            double turned = 0.0;
            int kernels = 0;
            sp_inventory_build(&model, &single, &(sp_stack){.name = "ours"}, SP_ATTENTION_FLASH,
                               SP_RECOMPUTE_FULL, SP_PART_LAYER, (sp_pass)p, &ops);
            for (int i = 0; i < ops.count; i++) {
                bool is = strcmp(ops.ops[i].name, "frozen weight to BF16") == 0;
                turned += is ? ops.ops[i].bytes_fixed : 0.0;
                kernels += is ? ops.ops[i].kernels : 0;
            }
            double all = p == SP_PASS_W ? 0.0 : bytes[f] * (double)products;
            int tensors = p == SP_PASS_W || f == SP_FROZEN_BF16 ? 0 : 7;
            assert_near(turned, all, 1e-12, 0.5);
            assert_int_equal(kernels, tensors * (f == SP_FROZEN_4BIT_DOUBLE ? 3 : 1));
        }
    }
}

// The copy is there while its product runs: of one of the three matrices of the MLP beside rows of
// one token, in a layer's forward and backward.
TEST(one_copy_is_there_at_a_time)
{
    const sp_unit_load load = {.tokens = 1, .pairs = 1};
    const sp_stage stage = {.layers = 2};
    sp_memory_options options = {.stack = {.fused_swiglu = true}};
    sp_model model = adapted(R, SP_LORA_ALL_LINEAR);
    sp_unit_bytes plain;
    sp_footprint_unit(&model, &single, &stage, &options, &load, &plain);
    model.frozen_weights = SP_FROZEN_4BIT;
    sp_unit_bytes unit;
    sp_footprint_unit(&model, &single, &stage, &options, &load, &unit);
    const int64_t copy = INT64_C(2) * H * F;
    const int64_t rows = 2 * (4 * F + 8 * H);
    assert_int_equal(sp_bytes_total(&unit.held), sp_bytes_total(&plain.held));
    int64_t forward = sp_bytes_total(&unit.forward);
    int64_t backward = sp_bytes_total(&unit.backward);
    assert_true(forward >= copy && forward < copy + rows);
    assert_true(backward >= copy && backward < copy + rows);

    AUTO(sp_tensor_program) program;
    sp_tensor_program_build(&model, &single, &stage, &options, &load, &program);
    int64_t made[SP_PROGRAM_PASSES] = {0};
    for (int p = 0; p < SP_PROGRAM_PASSES; p++) {
        int there = 0;
        for (size_t e = 0; e < program.pass[p].count; e++) {
            const sp_tensor_event *event = &program.pass[p].items[e];
            const sp_program_tensor *tensor = &program.tensors[event->tensor];
            if (strcmp(tensor->name, "frozen weight in BF16") == 0) {
                there += event->gone ? -1 : 1;
                made[p] += event->gone ? 0 : tensor->bytes;
                assert_true(there == 0 || there == 1);
            }
        }
        assert_int_equal(there, 0);
    }
    // The largest tensor of queries, keys and values and that of gate and up stand for all.
    const int64_t layer = 2 * (2 * H * H + 2 * (int64_t)H * F);
    assert_int_equal(made[SP_PROGRAM_FORWARD], 2 * layer);
    assert_int_equal(made[SP_PROGRAM_BACKWARD], 2 * layer);
    assert_int_equal(made[SP_PROGRAM_INPUT_GRADIENT], 2 * layer);
    assert_int_equal(made[SP_PROGRAM_WEIGHT_GRADIENT], 0);
}

// ---- FLOPs ----

static double flops_of(const sp_model *model, const sp_layout *layout, sp_part part, sp_pass pass,
                       double tokens)
{
    sp_inventory ops;
    sp_inventory_build(model, layout, &(sp_stack){.name = "ours"}, SP_ATTENTION_FLASH,
                       SP_RECOMPUTE_NONE, part, pass, &ops);
    return sp_inventory_flops(&ops, model, layout, pass, tokens, 0.0);
}

// 2 FLOPs a token and weight: of a layer forward and of its inputs' gradient with those of
// adapters, of the weights' gradient with those of adapters alone; of the head none there.
TEST(passes_leave_out_frozen_gradients)
{
    const double layer = (double)(H * (H + 2 * KV) + H * H) + 3.0 * H * F;
    for (int t = SP_LORA_ALL_LINEAR; t <= SP_LORA_MEGATRON; t++) {
        for (int tp = 1; tp <= 4; tp *= 4) {
            sp_model model = adapted(R, (sp_lora_targets)t);
            sp_layout layout = single;
            layout.tp = tp;
            layout.sequence_parallel = tp > 1;
            double adapters = (double)(R * ends_of((sp_lora_targets)t));
            double tokens = 777.0;
            for (int p = SP_PASS_F; p <= SP_PASS_W; p++) {
                double weights = p == SP_PASS_W ? adapters : layer + adapters;
                double head = p == SP_PASS_W ? 0.0 : 128256.0 * H;
                assert_close(tp * flops_of(&model, &layout, SP_PART_LAYER, (sp_pass)p, tokens),
                             2.0 * weights * tokens, 1e-12);
                assert_near(tp * flops_of(&model, &layout, SP_PART_HEAD, (sp_pass)p, tokens),
                            2.0 * head * tokens, 1e-12, 0.5);
            }
        }
    }
}

// Forward and input gradient of all weights, three passes of adapters and of the attention, which
// has no weights: 3 * 4*a*d per pair.
TEST(step_flops_follow_the_closed_form)
{
    sp_model model = adapted(R, SP_LORA_ALL_LINEAR);
    double tokens = 4096.0;
    double weights = LAYERS * ((double)(H * (H + 2 * KV) + H * H) + 3.0 * H * F) + 128256.0 * H;
    double attention = LAYERS * 4.0 * H * (tokens * tokens / 2.0);
    assert_close(sp_model_step_flops(&model, tokens, tokens * tokens),
                 2.0 * tokens * (2.0 * weights + 3.0 * 41943040.0) + 3.0 * attention, 1e-12);
    model.lora_rank = 0;
    assert_close(sp_model_step_flops(&model, tokens, tokens * tokens),
                 3.0 * sp_model_forward_flops(&model, tokens, tokens * tokens), 1e-15);
}

// ---- what stays for the backward ----

static int64_t held(const sp_model *model, sp_stage stage, sp_memory_options options,
                    int64_t tokens)
{
    sp_unit_bytes unit;
    sp_unit_load load = {.tokens = tokens, .pairs = tokens * tokens};
    sp_footprint_unit(model, &single, &stage, &options, &load, &unit);
    return sp_bytes_total(&unit.held);
}

// Bytes a token, fused SwiGLU and flash attention: all that a layer keeps, less the inputs of
// projections without adapters (but not the attention's output, which its own backward reads), and
// 2 r for each adapter; with dropout less the inputs of all, and a copy and a mask for each
// adapter.
TEST(layers_keep_what_adapters_read)
{
    static const struct {
        sp_lora_targets targets;
        int64_t less, adapters, read; // widths not kept; what all adapters read
    } cases[] = {
        {SP_LORA_ALL_LINEAR, 0, 7, 3 * H + H + 2 * H + F},
        {SP_LORA_ATTENTION, H + F, 4, 3 * H + H},
        {SP_LORA_MLP, H, 3, 2 * H + F},
        {SP_LORA_QUERY_VALUE, H + F, 2, 2 * H},
        {SP_LORA_MEGATRON, 0, 4, H + H + H + F},
    };
    const sp_memory_options options = {.stack = {.fused_swiglu = true}};
    const int64_t tokens = 1000;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_model full = adapted(0, SP_LORA_ALL_LINEAR);
        sp_model model = adapted(R, cases[i].targets);
        sp_stage stage = {.layers = 3};
        int64_t all = held(&full, stage, options, tokens);
        int64_t low = 2 * R * cases[i].adapters;
        assert_int_equal(held(&model, stage, options, tokens),
                         all + 3 * tokens * (low - 2 * cases[i].less));
        model.lora_dropout = true;
        assert_int_equal(held(&model, stage, options, tokens),
                         all + 3 * tokens * (low + 3 * cases[i].read - 2 * (2 * H + F)));
    }
}

// Of the head the input of its weight gradient goes, 2 h bytes a token, of a layer that runs again
// nothing changes.
TEST(heads_and_recomputed_layers_keep_no_more)
{
    sp_model full = adapted(0, SP_LORA_ALL_LINEAR);
    sp_model model = adapted(R, SP_LORA_ALL_LINEAR);
    const sp_memory_options options = {.stack = {.fused_swiglu = true}};
    const sp_memory_options again = {.recompute = SP_RECOMPUTE_FULL};
    assert_int_equal(held(&model, (sp_stage){.head = true}, options, 1000),
                     held(&full, (sp_stage){.head = true}, options, 1000) - 1000 * 2 * H);
    assert_int_equal(held(&model, (sp_stage){.layers = 4}, again, 1000),
                     held(&full, (sp_stage){.layers = 4}, again, 1000));
}

// Norms in PyTorch's operations keep their input in fp32, 4 h bytes a token of each of two a layer
// and of the head's; the result, that the gain's gradient reads, only where gains are trained.
TEST(frozen_gains_read_no_result)
{
    const sp_memory_options plain = {.recompute = SP_RECOMPUTE_NONE};
    const sp_memory_options unfused = {.stack = {.unfused_norms = true}};
    for (int64_t rank = 0; rank <= R; rank += R) {
        sp_model model = adapted(rank, SP_LORA_ALL_LINEAR);
        sp_stage stage = {.layers = 2, .head = true};
        int64_t numbers = rank == 0 ? 2 : 1;
        assert_int_equal(held(&model, stage, unfused, 1000) - held(&model, stage, plain, 1000),
                         1000 * 5 * numbers * 4 * H);
    }
}

// ---- steps ----

static priced_case small_case(int zero, int64_t rank)
{
    priced_case c = priced_default();
    c.layout.dp = 4;
    c.layout.zero = zero;
    c.model.lora_rank = rank;
    return c;
}

// Gradients of adapters alone are reduced, and theirs alone the parameters that ZeRO 1 and 2 gather
// after the step; ZeRO 3 gathers all of them in the step, and so does a frozen model.
TEST(adapters_alone_are_reduced)
{
    for (int zero = 0; zero <= 3; zero++) {
        priced_case c = small_case(zero, R);
        PRICED_STEP(step, &c);
        double trained = (double)sp_model_trained_parameters(&c.model);
        double parameters = (double)sp_model_parameters(&c.model);
        const sp_epilogue_cost *epilogue = &step.costs.ranks[0].epilogue;
        double reduce_ns =
            1e9 * priced_collective_s(&step, zero == 0 ? SP_ALL_REDUCE : SP_REDUCE_SCATTER,
                                      4.0 * trained);
        double gather_ns = 1e9 * priced_collective_s(&step, SP_ALL_GATHER, 2.0 * trained);
        double optimizer_ns = 1e9 * trained / (zero > 0 ? 4.0 : 1.0) *
                              step.profile.optimizer_bytes_per_parameter /
                              step.profile.memory_bytes_per_s;
        assert_within((double)epilogue->grad_reduce_ns, zero <= 1 ? reduce_ns : 0.0, 1.0);
        assert_within((double)epilogue->param_gather_ns, zero == 1 || zero == 2 ? gather_ns : 0.0,
                      1.0);
        assert_within((double)epilogue->optimizer_ns, optimizer_ns, 1.0);
        if (zero >= 2) {
            assert_close(step.costs.sharded[0].scatter.bytes, 4.0 * trained, 1e-12);
        }
        if (zero >= 3) {
            assert_close(step.costs.sharded[0].gather.bytes, 2.0 * parameters, 1e-12);
        }
    }
}

// ZeRO 3 gathers weights in 4 bits as they are, without scales, and so they are read one-sidedly:
// inside a node as fast as by a collective.
TEST(frozen_weights_are_gathered_in_4_bits)
{
    int64_t ns[3];
    for (int i = 0; i < 6; i++) {
        int f = i / 2;
        priced_case c = small_case(3, R);
        c.model.frozen_weights = (sp_frozen_weights)f;
        c.memory.stack.one_sided = i % 2 == 1;
        PRICED_STEP(step, &c);
        sp_shard shard = sp_shard_of(&c.model, &c.layout);
        double weights = (double)(c.model.layers * sp_layer_product_weights(&c.model, &shard));
        double parameters = (double)sp_model_parameters(&c.model);
        double saved = f == SP_FROZEN_BF16 ? 0.0 : 1.5 * weights;
        double bytes = 2.0 * parameters - saved;
        assert_close(step.costs.sharded[0].gather.bytes, bytes, 1e-12);
        assert_close(step.costs.sharded[0].gather.s,
                     priced_collective_s(&step, SP_ALL_GATHER, bytes), 1e-9);
        ns[f] = step.metrics.iteration_ns;
    }
    assert_true(ns[SP_FROZEN_4BIT] < ns[SP_FROZEN_4BIT_DOUBLE]);
}

// A wider adapter takes no less time and memory, and full training more than the narrowest.
TEST(steps_grow_with_the_rank)
{
    for (int zero = 0; zero <= 3; zero++) {
        int64_t ns = 0;
        int64_t bytes = 0;
        for (int64_t rank = 8; rank <= 512; rank *= 4) {
            priced_case c = small_case(zero, rank);
            PRICED_STEP(step, &c);
            assert_true(step.metrics.iteration_ns > ns);
            assert_true(step.metrics.peak_bytes > bytes);
            ns = step.metrics.iteration_ns;
            bytes = step.metrics.peak_bytes;
        }
    }
}

// Targets in an order in which each has all of the one before.
TEST(steps_grow_with_the_targets)
{
    static const sp_lora_targets chain[] = {SP_LORA_QUERY_VALUE, SP_LORA_ATTENTION,
                                            SP_LORA_ALL_LINEAR};
    for (int dropout = 0; dropout <= 1; dropout++) {
        int64_t ns = 0;
        int64_t bytes = 0;
        for (int i = 0; i < COUNT_OF(chain); i++) {
            priced_case c = small_case(1, R);
            AUTO(priced_step) step;
            c.model.lora_targets = chain[i];
            c.model.lora_dropout = dropout == 1;
            priced_step_run(&c, &step);
            assert_true(step.metrics.iteration_ns > ns);
            assert_true(step.metrics.peak_bytes > bytes);
            ns = step.metrics.iteration_ns;
            bytes = step.metrics.peak_bytes;
        }
    }
}

// ---- scenarios ----

#define MODEL_OF(more)                                                                         \
    "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, " more "}" \
    ", 'cluster': 'h100-8'"

TEST(what_does_not_know_them_is_refused)
{
    static const struct {
        const char *text, *told;
    } cases[] = {
        {MODEL_OF("'lora_rank': 8, 'experts': 4, 'experts_per_token': 2") "}", "experts"},
        {MODEL_OF("'lora_rank': 8, 'kv_lora_rank': 64, 'qk_nope_dim': 32, 'qk_rope_dim': 32, "
                  "'v_head_dim': 64") "}",
         "latent attention"},
        {MODEL_OF("'lora_rank': 8, 'mtp_layers': 1") "}", "further tokens"},
        {MODEL_OF("'lora_rank': 8, 'mixer': 'mamba2', 'state_heads': 4, 'state_head_dim': 32, "
                  "'state_dim': 16") "}",
         "mixer"},
        {MODEL_OF("'lora_rank': 8, 'without_mlp': true") "}", "without_mlp"},
        {MODEL_OF("'lora_rank': 8, 'attention_gate': true") "}", "attention_gate"},
        {MODEL_OF("'lora_rank': 8") ", 'precision': 'fp8'}", "precision \"fp8\""},
        {MODEL_OF("'lora_targets': 'mlp'") "}", "lora_rank"},
        {MODEL_OF("'lora_dropout': false") "}", "lora_rank"},
        {MODEL_OF("'lora_rank': 8") ", 'stack': 'reference'}", "explicit"},
        {MODEL_OF("'lora_rank': 8") ", 'memory': {'model': 'slimpipe-planner'}}",
         "slimpipe-planner"},
        {MODEL_OF("'lora_rank': 9") ", 'parallel': {'tp': 2}}", "no multiple of parallel.tp 2"},
        {MODEL_OF("'frozen_weights': '4bit'") "}", "lora_rank"},
        {MODEL_OF("'lora_rank': 8, 'frozen_weights': '4bit'") ", 'stack': 'fsdp2-2025', "
                                                              "'parallel': {'tp': 2}}",
         "parallel.tp 1"},
        {MODEL_OF("'lora_rank': 8, 'frozen_weights': '4bit'") ", 'stack': 'megatron-bridge-2025'}",
         "stack \"megatron-bridge-2025\" has no weights in 4 bits"},
        {MODEL_OF("'lora_rank': 8, 'frozen_weights': '4bit'") ", 'stack': 'nanotron-2025'}",
         "stack \"nanotron-2025\" has no weights in 4 bits"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO(sp_scenario) scenario;
        sp_error err = {0};
        assert_int_equal(run_read(cases[i].text, &scenario, &err), SP_ERR_CONTENT);
        bool told = false;
        for (int m = 0; m < err.count; m++) {
            told = told || strstr(err.message[m], cases[i].told) != NULL;
        }
        assert_true(told);
    }
}

TEST(prompts_and_text_are_refused)
{
    AUTO(sp_scenario) scenario;
    sp_prefill_result read;
    sp_decode_result decoded;
    sp_error err;
    read_good(MODEL_OF("'lora_rank': 8") ", 'workload': {'lengths': [100]}, 'prefill': {}, "
                                         "'decode': {}}",
              &scenario);
    sp_error_clear(&err);
    assert_int_equal(sp_decode_scenario(&scenario, &decoded, &err), SP_ERR_CONTENT);
    assert_non_null(strstr(err.message[0], "generated text"));
    sp_error_clear(&err);
    const sp_batch none = {0};
    assert_int_equal(sp_prefill(&scenario, &none, NULL, NULL, &read, &err), SP_ERR_CONTENT);
    assert_non_null(strstr(err.message[0], "prompts"));
}

// Whatever packs and orders the samples, with whole and with split backwards: the walk agrees with
// igraph's longest path, memory drains, and no step is below its bound.
TEST(every_strategy_runs_them)
{
    static const char *const models[] = {
        "'lora_rank': 8", "'lora_rank': 16, 'lora_targets': 'attention', 'lora_dropout': true",
        "'activation': 'gelu', 'lora_rank': 64, 'lora_targets': 'megatron-linear'"};
    static const char *const recompute[] = {"none", "activation", "full"};
    int ran = 0;
    const char *name = NULL;
    for (int s = 0; (name = sp_strategy_names[s]) != NULL; s++) {
        AUTO(scenario_run) r;
        int i = s % 3;
        // One-sided reads are of shards, without a pipeline.
        bool shards = strcmp(name, "odc") == 0;
        run_good(json_text("{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, "
                           "'vocab': 1000, %s}, 'cluster': 'h100-8', 'parallel': {'tp': 2, 'pp': "
                           "%d, 'dp': %d, 'zero': %d}, 'memory': {'recompute': '%s'}, 'workload': "
                           "{'lengths': [100, 3000, 700, 4096, 20, 2048, 512, 300]}, 'strategy': "
                           "{'kind': '%s'}}",
                           models[i], shards ? 1 : 2, shards ? 4 : 2, shards ? 3 : s % 4,
                           recompute[s / 3 % 3], name),
                 &run_verified, &r);
        assert_true(r.result.sum.lower_bound_ns <= r.result.iteration_ns * 1.000001);
        ran++;
    }
    assert_true(ran > 20);
}

TEST(schedules_that_split_the_backward_run_them)
{
    static const char *const kinds[] = {"zb-h1", "zb-h2", "zb-auto"};
    for (int k = 0; k < COUNT_OF(kinds); k++) {
        SCENARIO_RUN(
            r,
            json_text(
                MODEL_OF(
                    "'lora_rank': 8, 'lora_dropout': true") ", 'parallel': {'pp': 2}, 'workload': "
                                                            "{'lengths': [1000, 1000, 1000, "
                                                            "1000, 1000, 1000]}, 'strategy': "
                                                            "{'kind': 'padded'}, 'schedule': "
                                                            "{'kind': '%s'}}",
                kinds[k]),
            &run_verified);
    }
}

// No figure of logged steps is told, and the result counts what is trained.
TEST(results_say_what_is_trained)
{
    SCENARIO_RUN(
        r,
        MODEL_OF("'lora_rank': 8, 'lora_targets': 'query-value'") ", 'workload': {'lengths': "
                                                                  "[100, 300]}}",
        &run_verified);
    assert_int_equal(r.result.trained_parameters, 4 * 8 * 2 * (512 + 512));
    assert_true(sp_result_is_frozen(&r.result));
    assert_false(r.result.step_error.known);
    assert_non_null(strstr(r.result.step_error.not_validated, "model.lora_rank"));
}
