// Steps in FP8 by hand: which products run so, what their casts, saved tensors and weights take by
// recipe (Transformer Engine's recipes; sim/model/precision.h), products against DeepGEMM's
// published table, and what does not know FP8.
#include <unistd.h>

#include "sim/cost/op_time.h"
#include "sim/memory/saved_tensors.h"
#include "sim/model/inventory.h"
#include "sim/prefill/prefill.h"
#include "sim/scenario/scenario.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static const sp_layout one = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
static const sp_layout four = {
    .tp = 4, .cp = 1, .pp = 1, .dp = 1, .chunks = 1, .sequence_parallel = true};

static sp_stack stack_of(sp_fp8_recipe recipe, bool parameters, bool transposes)
{
    return (sp_stack){.name = "plain",
                      .fused_swiglu = true,
                      .fused_cross_entropy = true,
                      .precision = {SP_COMPUTE_FP8, recipe, parameters, transposes}};
}

static sp_inventory ops_of(const sp_model *model, const sp_layout *layout, const sp_stack *stack,
                           sp_part part, sp_pass pass)
{
    sp_inventory inventory;
    sp_inventory_build(model, layout, stack, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE, part, pass,
                       &inventory);
    return inventory;
}

// Products of layers are in FP8 in all passes, the router, a gate, embedding and head are not; and
// no FLOPs differ.
TEST(products_of_layers_alone)
{
    static const char *const names[] = {"llama-3-8b", "mixtral-8x7b", "gpt-175b"};
    const sp_stack bf16 = {.name = "plain", .fused_swiglu = true, .fused_cross_entropy = true};
    const sp_stack fp8 = stack_of(SP_FP8_DELAYED, true, true);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        sp_model model = builtin_model(names[i]);
        for (int part = 0; part < SP_PARTS; part++) {
            for (int pass = SP_PASS_F; pass <= SP_PASS_W; pass++) {
                sp_inventory in = ops_of(&model, &four, &fp8, (sp_part)part, (sp_pass)pass);
                sp_inventory before = ops_of(&model, &four, &bf16, (sp_part)part, (sp_pass)pass);
                int products = 0;
                for (int o = 0; o < in.count; o++) {
                    bool kept = part != SP_PART_LAYER || strcmp(in.ops[o].name, "router") == 0;
                    bool gemm = in.ops[o].kind == SP_OP_GEMM;
                    assert_int_equal(in.ops[o].fp8, gemm && !kept);
                    products += in.ops[o].fp8;
                }
                assert_int_equal(products, part == SP_PART_LAYER ? 4 : 0);
                double flops = sp_inventory_flops(&in, &model, &four, (sp_pass)pass, 4096.0, 1e7);
                assert_true(flops ==
                            sp_inventory_flops(&before, &model, &four, (sp_pass)pass, 4096.0, 1e7));
            }
        }
    }
}

static double casts(const sp_inventory *inventory)
{
    double bytes = 0.0;
    for (int o = 0; o < inventory->count; o++) {
        const sp_op *op = &inventory->ops[o];
        bool is_cast = strncmp(op->name, "cast ", 5) == 0 || strncmp(op->name, "transp", 6) == 0;
        bytes += is_cast ? op->bytes_per_token : 0.0;
    }
    return bytes;
}

// Bytes of a number: delayed reads 2 and writes 1 for each copy, current reads twice, blocks have
// 1/32 of scales. Norms write FP8 themselves with delayed scaling and MXFP8, and then copies beyond
// the two bytes of BF16 alone count. The attention's output is cast again for the weight gradient
// but with delayed scaling.
TEST(casts_by_hand)
{
    const sp_model model = builtin_model("llama-3-8b");
    const double h = 4096.0;
    const double f = 14336.0;
    const double qkv = 6144.0;
    const double outputs = qkv + h + 2.0 * f + h;
    const double mx = 1.0 + 1.0 / 32.0;
    const struct {
        sp_fp8_recipe recipe;
        bool transposes;
        double forward, gradient, weight;
    } cases[] = {
        {SP_FP8_DELAYED, true, 4.0 * (h + f), 4.0 * outputs, 0.0},
        {SP_FP8_DELAYED, false, 3.0 * (h + f), 3.0 * outputs, 3.0 * h},
        {SP_FP8_CURRENT, true, 6.0 * (2.0 * h + f) + 5.0 * h, 6.0 * outputs, 5.0 * h},
        {SP_FP8_BLOCKWISE, true, (2.0 + 2.0 * mx) * (2.0 * h + f) + (2.0 + mx) * h,
         (2.0 + 2.0 * mx) * outputs, (2.0 + mx) * h},
        {SP_FP8_MXFP8, false, (2.0 * mx - 2.0) * 2.0 * h + (2.0 + 2.0 * mx) * f + (2.0 + mx) * h,
         (2.0 + 2.0 * mx) * outputs, (2.0 + mx) * h},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_stack stack = stack_of(cases[i].recipe, true, cases[i].transposes);
        sp_inventory in = ops_of(&model, &one, &stack, SP_PART_LAYER, SP_PASS_F);
        assert_close(casts(&in), cases[i].forward, 1e-12);
        in = ops_of(&model, &one, &stack, SP_PART_LAYER, SP_PASS_I);
        assert_close(casts(&in), cases[i].gradient, 1e-12);
        in = ops_of(&model, &one, &stack, SP_PART_LAYER, SP_PASS_W);
        bool again = cases[i].recipe != SP_FP8_DELAYED;
        assert_close(casts(&in), again ? cases[i].weight : 0.0, 1e-12);
    }
}

static double bytes_of(const sp_inventory *inventory, sp_op_kind kind)
{
    double bytes = 0.0;
    for (int o = 0; o < inventory->count; o++) {
        bytes += inventory->ops[o].kind == kind ? inventory->ops[o].bytes_per_token : 0.0;
    }
    return bytes;
}

// Rows are cast before they are gathered: a byte a number; sums stay in BF16. With one scale for a
// tensor what Hopper reads along the other dimension is turned behind the gather.
TEST(gathers_carry_fp8)
{
    const sp_model model = builtin_model("llama-3-8b");
    const double h = 4096.0;
    const sp_stack delayed = stack_of(SP_FP8_DELAYED, true, true);
    const sp_stack blockwise = stack_of(SP_FP8_BLOCKWISE, true, true);
    static const sp_pass passes[] = {SP_PASS_F, SP_PASS_I, SP_PASS_W};
    for (int p = 0; p < 3; p++) {
        sp_inventory in = ops_of(&model, &four, &delayed, SP_PART_LAYER, passes[p]);
        assert_close(bytes_of(&in, SP_OP_ALL_GATHER), 2.0 * h, 1e-12);
        assert_close(bytes_of(&in, SP_OP_REDUCE_SCATTER), p < 2 ? 4.0 * h : 0.0, 1e-12);
        in = ops_of(&model, &four, &blockwise, SP_PART_LAYER, passes[p]);
        assert_close(bytes_of(&in, SP_OP_ALL_GATHER), 2.0 * h * 33.0 / 32.0, 1e-12);
    }
    // Two inputs of norms, and two gradients, each of hidden states.
    sp_inventory in = ops_of(&model, &four, &delayed, SP_PART_LAYER, SP_PASS_W);
    assert_close(casts(&in), 2.0 * 2.0 * h, 1e-12);
}

// The inputs of products take half of what they take in BF16, with their scales; the attention's
// output, which the attention keeps, stays, and with delayed scaling has a copy.
TEST(saved_bytes_by_hand)
{
    const sp_model model = builtin_model("llama-3-8b");
    const sp_stage stage = {.layers = 1, .count = {1}};
    const int64_t tokens = 4096;
    const sp_unit_load load = {.tokens = tokens, .pairs = tokens * tokens};
    const int64_t inputs = 2 * 4096 + 14336;
    sp_memory_options options = {.stack = stack_of(SP_FP8_DELAYED, true, true)};
    options.stack.precision = (sp_step_precision){0};
    sp_unit_bytes bf16;
    sp_footprint_unit(&model, &one, &stage, &options, &load, &bf16);
    for (int recipe = SP_FP8_DELAYED; recipe <= SP_FP8_MXFP8; recipe++) {
        options.stack = stack_of((sp_fp8_recipe)recipe, true, recipe != SP_FP8_MXFP8);
        sp_unit_bytes fp8;
        sp_footprint_unit(&model, &one, &stage, &options, &load, &fp8);
        int64_t scales = recipe >= SP_FP8_BLOCKWISE ? inputs / 32 : 0;
        int64_t copy = recipe == SP_FP8_DELAYED ? 4096 : 0;
        assert_int_equal(bf16.held.of[SP_MEM_ACTIVATIONS] - fp8.held.of[SP_MEM_ACTIVATIONS],
                         tokens * (inputs - scales - copy));
    }
}

// A router reads what experts' tokens are copied from, so that it stays in BF16; their own rows do
// not.
TEST(experts_keep_their_rows_in_fp8)
{
    const sp_model model = builtin_model("mixtral-8x7b");
    const sp_stage stage = {.layers = 1, .count = {1}};
    const sp_unit_load load = {.tokens = 1024, .pairs = 1024 * 1024};
    sp_memory_options options = {.stack = stack_of(SP_FP8_CURRENT, true, true)};
    sp_unit_bytes fp8, bf16;
    sp_footprint_unit(&model, &one, &stage, &options, &load, &fp8);
    options.stack.precision = (sp_step_precision){0};
    sp_footprint_unit(&model, &one, &stage, &options, &load, &bf16);
    int64_t rows = 4096 + 2 * (4096 + 14336); // first norm; inputs of both products, twice a token
    assert_int_equal(bf16.held.of[SP_MEM_ACTIVATIONS] - fp8.held.of[SP_MEM_ACTIVATIONS],
                     1024 * rows);
}

// Bytes of a weight: 2 in BF16 unless parameters are FP8, and its copies, two where both dimensions
// need one. Tables, norms and all other states stay.
TEST(weights_by_hand)
{
    const sp_model model = builtin_model("llama-3-8b");
    const sp_stage stage = {.layers = 32, .count = {32}, .embedding = true, .head = true};
    const int64_t products = INT64_C(32) * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336);
    const struct {
        sp_fp8_recipe recipe;
        bool parameters, transposes;
        double bytes;
    } cases[] = {
        {SP_FP8_DELAYED, false, true, 4.0},
        {SP_FP8_DELAYED, true, true, 2.0},
        {SP_FP8_CURRENT, true, false, 1.0},
        {SP_FP8_CURRENT, false, false, 3.0},
        {SP_FP8_BLOCKWISE, true, true, 2.0 + 2.0 * 4.0 / (128.0 * 128.0)},
        {SP_FP8_MXFP8, true, false, 2.0 + 2.0 / 32.0},
    };
    sp_stack stack = stack_of(SP_FP8_DELAYED, true, true);
    stack.precision = (sp_step_precision){0};
    sp_bytes bf16;
    sp_footprint_states(&model, &one, &stack, &stage, 1, &bf16);
    assert_int_equal(sp_footprint_product_weights(&model, &one, &stage, 1, false), products);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_bytes fp8;
        stack = stack_of(cases[i].recipe, cases[i].parameters, cases[i].transposes);
        sp_footprint_states(&model, &one, &stack, &stage, 1, &fp8);
        double more = (double)(fp8.of[SP_MEM_PARAMETERS] - bf16.of[SP_MEM_PARAMETERS]);
        assert_close(more + 1.0, (cases[i].bytes - 2.0) * (double)products + 1.0, 1e-6);
        fp8.of[SP_MEM_PARAMETERS] = bf16.of[SP_MEM_PARAMETERS];
        assert_memory_equal(&fp8, &bf16, sizeof fp8);
        assert_close(sp_fp8_gathered_bytes(&stack.precision),
                     cases[i].parameters && cases[i].recipe != SP_FP8_MXFP8 ? 1.0 : 2.0, 1e-12);
    }
}

// deepseek-ai/DeepGEMM@a6d97a1, README: dense products of 4096 rows on H800, TFLOP/s. The two
// constants of h800-burst are a fit to these six, the rates themselves are not in it.
TEST(products_take_what_deepgemm_printed)
{
    static const double printed[][3] = {{2112, 7168, 1058}, {24576, 1536, 990},
                                        {32768, 512, 590},  {7168, 16384, 1358},
                                        {4096, 7168, 1304}, {7168, 2048, 1025}};
    // Grouped: experts, rows of each, n, k.
    static const double grouped[][5] = {{4, 8192, 4096, 7168, 1297}, {4, 8192, 7168, 2048, 1099},
                                        {8, 4096, 4096, 7168, 1288}, {8, 4096, 7168, 2048, 1093},
                                        {2, 512, 4096, 7168, 1040},  {2, 512, 7168, 2048, 916},
                                        {4, 256, 4096, 7168, 932},   {4, 256, 7168, 2048, 815}};
    AUTO(sp_profile) profile;
    assert_int_equal(sp_profile_load("h800-burst", &profile, NULL), SP_OK);
    const sp_op_timer timer = {.profile = &profile};
    for (size_t i = 0; i < sizeof printed / sizeof printed[0]; i++) {
        const double *p = printed[i];
        double s = sp_time_fp8_gemm(&timer, SP_GEMM_TOKENS_OUT, 1, 4096.0, p[0], p[1]);
        assert_close(2.0 * 4096.0 * p[0] * p[1] / s / 1e12, p[2], 0.17);
        double bf16_s = sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 4096.0, p[0], p[1]);
        assert_true(p[1] < 2000.0 || s < bf16_s);
    }
    for (size_t i = 0; i < sizeof grouped / sizeof grouped[0]; i++) {
        const double *g = grouped[i];
        double s = sp_time_fp8_gemm(&timer, SP_GEMM_TOKENS_OUT, (int)g[0], g[1], g[2], g[3]);
        assert_close(2.0 * g[0] * g[1] * g[2] * g[3] / s / 1e12, g[4], 0.12);
    }
}

// By blocks a product takes the longer by what the profile says of its rate; another recipe has all
// of it.
TEST(products_by_blocks_have_a_share_of_the_rate)
{
    static const char *const recipes[] = {"delayed", "current", "blockwise"};
    double rate[COUNT_OF(recipes)];
    double share = 0.0;
    for (int i = 0; i < COUNT_OF(recipes); i++) {
        SCENARIO_READ(scenario, json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', "
                                          "'workload': {'lengths': [4096]}, 'precision': 'fp8', "
                                          "'fp8_recipe': '%s'}",
                                          recipes[i]));
        rate[i] = scenario.profile.fp8.flops_per_s;
        share = scenario.profile.fp8.block_share;
    }
    assert_true(share > 0.0 && share < 1.0);
    assert_true(rate[1] == rate[0]);
    assert_close(rate[2], share * rate[0], 1e-12);
}

#define STEP                                                                                     \
    "{'model': {'layers': 4, 'hidden': 2048, 'ffn': 5632, 'heads': 16, 'kv_heads': 4, 'vocab': " \
    "32000}, 'cluster': '%s', 'workload': {'lengths': [4096, 4096, 300, 1500, 700, 2048, 3000, " \
    "900], 'context': 4096}, 'precision': 'fp8'"

// By every recipe, layout and order, checked against the longest path in igraph; the allocator's
// program, which knows each tensor, agrees with the closed forms as it does in BF16.
TEST(steps_run_and_memory_agrees)
{
    static const char *const rest[] = {
        ", 'stack': 'megatron-core-2025'",
        ", 'stack': 'megatron-core-2025', 'fp8_params': true",
        ", 'stack': 'megatron-core-2025', 'parallel': {'tp': 4, 'pp': 2}, 'fp8_params': true",
        ", 'parallel': {'pp': 2, 'cp': 2, 'dp': 2}, 'memory': {'recompute': 'full'}",
        ", 'stack': 'megatron-core-2024', 'parallel': {'pp': 2}, 'schedule': {'kind': 'zb-h1'}",
        ", 'stack': 'ours', 'parallel': {'dp': 4, 'zero': 2}"};
    static const char *const recipes[] = {"delayed", "current", "blockwise", "mxfp8"};
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
        for (int r = 0; r < 4; r++) {
            const char *cluster = r == 3 ? "b200-8" : "h100-8";
            AUTO(scenario_run) fp8, bf16;
            char start[600];
            snprintf(start, sizeof start, STEP, cluster);
            run_good(json_text("%s, 'fp8_recipe': '%s'%s}", start, recipes[r], rest[i]),
                     &run_verified, &fp8);
            strcpy(strstr(start, ", 'precision'"), "");
            const char *end = strstr(rest[i], ", 'fp8_params': true");
            run_good(json_text("%s%.*s}", start, end != NULL ? (int)(end - rest[i]) : 999, rest[i]),
                     &run_verified, &bf16);
            assert_true(fp8.result.iteration_ns > 0);
            assert_false(sp_result_gap(&fp8.result) < 0.0); // no bound above it
            assert_true(fp8.result.peak_bytes > 0);
            if (fp8.result.allocator_peak_bytes > 0) {
                double agree =
                    (double)fp8.result.allocator_peak_bytes / (double)fp8.result.peak_bytes;
                double usual =
                    (double)bf16.result.allocator_peak_bytes / (double)bf16.result.peak_bytes;
                assert_close(agree, usual, 0.02);
            }
        }
    }
}

// A cast that reads twice takes longer than one that knows its scale, and all but the casts is
// alike.
TEST(recipes_differ_by_their_casts)
{
    AUTO(scenario_run) delayed, current;
    char start[600];
    snprintf(start, sizeof start, STEP, "h100-8");
    run_good(json_text("%s}", start), &run_verified, &delayed);
    run_good(json_text("%s, 'fp8_recipe': 'tensorwise'}", start), &run_verified, &current);
    assert_true(current.result.iteration_ns > delayed.result.iteration_ns);
    assert_string_equal(json_string_value(json_object_get(current.scenario.resolved, "fp8_recipe")),
                        "current");
}

// Steps in BF16 have no word of FP8 in what is resolved, and no record of theirs holds for FP8.
TEST(records_do_not_carry_over)
{
    static const char dgxc[] =
        "{'model': 'llama-3-8b', 'cluster': 'h100-8', 'parallel': {'cp': 2, 'dp': 4}, 'workload': "
        "{'uniform': 8192, 'samples_per_batch': 128}";
    SCENARIO_RUN(run, json_text("%s}", dgxc), &run_verified);
    assert_true(run.result.step_error.known);
    assert_string_equal(run.result.step_error.scope, "h100_dgxc_2025");
    assert_null(json_object_get(run.scenario.resolved, "precision"));
    assert_null(json_object_get(run.scenario.resolved, "fp8_recipe"));
    scenario_run_fini(&run);
    run_good(json_text("%s, 'precision': 'fp8', 'fp8_params': true}", dgxc), &run_verified, &run);
    assert_true(run.result.step_error.known);
    assert_string_equal(run.result.step_error.scope, "h100_dgxc_fp8");
    scenario_run_fini(&run);
    run_good(json_text("%s, 'precision': 'fp8', 'profile': 'h100-burst'}", dgxc), &run_verified,
             &run);
    assert_false(run.result.step_error.known);
    assert_int_equal(run.result.step_error.range.steps, 0);
}

// The rate of a profile that extends another is its own, and goes with the peak of another GPU.
TEST(rates_are_the_nearest_profile_s)
{
    static const char own[] = "{\"schema\": \"slimpack/profile/1\", \"extends\": \"h100\", "
                              "\"fp8_gemm\": {\"tflops\": 500, "
                              "\"level\": \"measured\", \"source\": \"s\"}}";
    char path[] = "/tmp/fp8-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0 && write(file, own, sizeof own - 1) == (ssize_t)(sizeof own - 1));
    close(file);
    const char *const model = "{'model': {'layers': 2, 'hidden': 512, 'ffn': 1024, 'heads': 8, "
                              "'vocab': 1000}, 'precision': "
                              "'fp8', 'fp8_recipe': 'current'";
    const struct {
        const char *rest;
        double tflops;
        sp_level level;
    } cases[] = {
        {json_text(", 'cluster': 'h100-8', 'profile': '%s'", path), 500.0, SP_LEVEL_MEASURED},
        {json_text(", 'cluster': {'name': 'h100-8', 'peak_tflops': 494.7}, 'profile': '%s'", path),
         250.0, SP_LEVEL_ASSUMED},
    };
    double fitted = 0.0;
    for (int i = 0; i < 2; i++) {
        SCENARIO_READ(scenario, json_text("%s%s}", model, cases[i].rest));
        assert_close(scenario.profile.fp8.flops_per_s, cases[i].tflops * 1e12, 1e-9);
        assert_int_equal(scenario.profile.fp8.level, cases[i].level);
        sp_scenario_fini(&scenario);
        read_good(json_text("%s, 'cluster': %s}", model,
                            i == 0 ? "'h100-8'" : "{'name': 'h100-8', 'peak_tflops': 494.7}"),
                  &scenario);
        assert_true(scenario.profile.fp8.is_used);
        fitted = i == 0 ? scenario.profile.fp8.flops_per_s : fitted;
        assert_close(scenario.profile.fp8.flops_per_s, fitted / (i == 0 ? 1.0 : 2.0), 1e-9);
    }
    unlink(path);
}

TEST(what_does_not_know_it_is_refused)
{
    static const struct {
        const char *cluster, *rest, *told;
    } cases[] = {
        {"a100-8", "", "precision: \"fp8\" needs the rate of FP8 products"},
        {"h100-8", ", 'fp8_recipe': 'mxfp8'", "fp8_recipe: \"mxfp8\""},
        {"h100-8", ", 'stack': 'reference'", "precision: "},
        {"h100-8", ", 'stack': 'cuda'", "precision: "},
        {"h100-8", ", 'parallel': {'zero': 3, 'dp': 2}", "parallel.zero: "},
        {"h100-8", ", 'memory': {'recompute': 'activation'}", "memory.recompute: "},
        {"h100-8", ", 'memory': {'model': 'slimpipe-planner'}, 'schedule': {'kind': 'slimpipe'}",
         "memory.model: "},
        {"h100-8", ", 'prefill': {}", "precision: "},
        {"h100-8", ", 'decode': {}", "precision: "},
        {"h100-8", ", 'fp8_recipe': 'rowwise'", "fp8_recipe: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char start[600];
        snprintf(start, sizeof start, STEP, cases[i].cluster);
        run_refused(json_text("%s%s}", start, cases[i].rest), cases[i].told);
    }
    run_refused("{'model': {'layers': 2, 'hidden': 512, 'ffn': 1000, 'heads': 8, 'vocab': 1000}, "
                "'cluster': 'h100-8', 'precision': 'fp8'}",
                "needs multiples of 16");
    run_refused("{'model': 'llama-2-7b', 'cluster': 'h100-8', 'fp8_recipe': 'current'}",
                "fp8_recipe: changes nothing");
    run_refused("{'model': 'llama-2-7b', 'cluster': 'h100-8', 'fp8_params': true}",
                "fp8_params: changes nothing");
    run_refused("{'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'w_ms': 1}, 'precision': 'fp8'}",
                "precision");
}

TEST(prompts_are_refused)
{
    sp_prefill_result read;
    const sp_batch none = {.count = 0};
    char start[600];
    snprintf(start, sizeof start, STEP, "h100-8");
    SCENARIO_READ(scenario, json_text("%s}", start));
    must_fail_with(sp_prefill(&scenario, &none, NULL, NULL, &read, ERR), SP_ERR_CONTENT,
                   "prompts are priced in BF16");
}

// DeepSeek-V3's and Kimi K2's files: what a step computes in must be said.
TEST(files_in_fp8_ask_for_a_precision)
{
    static const char model[] =
        "'model': {'layers': 2, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, "
        "'stored_dtype': 'float8'}, 'cluster': 'h100-8', 'workload': {'uniform': 512}";
    run_refused(json_text("{%s}", model), "precision \"bf16\"");
    static const char *const stated[] = {"bf16", "fp8"};
    for (int i = 0; i < 2; i++) {
        SCENARIO_READ(scenario, json_text("{%s, 'precision': '%s'}", model, stated[i]));
        assert_string_equal(json_string_value(json_object_get(scenario.resolved, "precision")),
                            stated[i]);
        AUTO(sp_scenario) again;
        json_auto_t *copy = json_deep_copy(scenario.resolved);
        assert_int_equal(sp_scenario_from_json(copy, "test", NULL, 0, &again, NULL), SP_OK);
        assert_int_equal(again.memory.stack.precision.compute, i);
    }
}

// ---- rows of experts ----

static double expert_step_ms(const char *precision, const char *capacity)
{
    double ms[SP_TIME_PARTS];
    SCENARIO_RUN(
        r,
        json_text("{'model': {'layers': 2, 'hidden': 2048, 'ffn': 1024, 'heads': 16, 'vocab': "
                  "1000, 'experts': 8, 'experts_per_token': 2%s}, 'cluster': 'h800-8', "
                  "'profile': 'h800-burst', 'workload': {'lengths': [1024]}, 'precision': %s}",
                  capacity, precision),
        &run_verified);
    sp_result_time_parts(&r.result, ms);
    return ms[SP_TIME_COMPUTE];
}

// An expert has 256 rows, a multiple of all, where its capacity says so; where tokens choose, half
// of a multiple is filled up in the mean, 64 rows or 8, at times that grow with the rows.
TEST(rows_of_experts_are_filled_up)
{
    static const struct {
        sp_fp8_recipe recipe;
        int multiple;
        const char *stated; // NULL: of another GPU
    } cases[] = {{SP_FP8_BLOCKWISE, 128, "'fp8', 'fp8_recipe': 'blockwise'"},
                 {SP_FP8_DELAYED, 16, "'fp8', 'fp8_recipe': 'delayed'"},
                 {SP_FP8_MXFP8, 32, NULL}};
    static const char capacity[] = ", 'expert_capacity_factor': 1.0";
    double more_ms[COUNT_OF(cases)] = {0.0};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const sp_step_precision precision = {.compute = SP_COMPUTE_FP8, .recipe = cases[i].recipe};
        assert_int_equal(sp_fp8_expert_rows(&precision), cases[i].multiple);
        if (cases[i].stated != NULL) {
            more_ms[i] =
                expert_step_ms(cases[i].stated, "") - expert_step_ms(cases[i].stated, capacity);
        }
    }
    assert_true(more_ms[1] > 0.0);
    assert_within(more_ms[0] / more_ms[1], 8.0, 0.05);
    assert_true(expert_step_ms("'bf16'", "") == expert_step_ms("'bf16'", capacity));
}
