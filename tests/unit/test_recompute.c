// Sets of modules that run again in a backward (sim/model/recompute.h): their names, what each
// drops of a layer and repeats of its products, and how unions of them relate to their parts.
#include "sim/model/recompute.h"

#include "sim/base/units.h"
#include "sim/memory/saved_tensors.h"
#include "sim/model/inventory.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { SETS = 1 << SP_MODULES };

static sp_recompute set_of(int bits)
{
    return sp_recompute_of_modules((unsigned)bits << 3);
}

static const sp_layout one = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
static const sp_stack stack = {
    .name = "test", .fused_swiglu = true, .memory_efficient_permutation = true};

// A dense layer and one with experts and shared experts, both with latent attention; widths of
// DeepSeek-V2-Lite with latents of queries.
enum {
    H = 2048,
    A = 16,
    QL = 1536,
    KL = 512,
    NOPE = 128,
    ROPE = 64,
    V = 128,
    F = 1408,
    E = 64,
    K = 6,
    SHARED = 2816,
    DENSE = 10944,
    T = 1024
};

static sp_model deepseek(void)
{
    SCENARIO_READ(scenario,
                  "{'model': {'layers': 2, 'hidden': 2048, 'ffn': 1408, 'heads': 16, "
                  "'q_lora_rank': 1536, 'kv_lora_rank': 512, 'qk_nope_dim': 128, "
                  "'qk_rope_dim': 64, 'v_head_dim': 128, 'vocab': 32000, 'experts': 64, "
                  "'experts_per_token': 6, 'shared_ffn': 2816, 'layer_kinds': [{'layers': "
                  "1, 'ffn': 10944, 'experts': 0, 'experts_per_token': 0, 'shared_ffn': "
                  "0}, {'layers': 1}]}, 'cluster': 'h100-8'}");
    return scenario.model;
}

// Bytes that a layer of the kind keeps of T tokens.
static int64_t kept(const sp_model *model, int kind, sp_recompute recompute)
{
    const sp_memory_options options = {.recompute = recompute, .stack = stack};
    const sp_unit_load load = {.tokens = T, .pairs = (int64_t)T * T};
    sp_saved_tensor rows[SP_SAVED_TENSORS];
    sp_model space;
    const sp_model *alike = sp_model_of_kind(model, kind, &space);
    unsigned repeated = sp_recompute_operations(recompute, alike);
    int count = sp_saved_part(alike, &one, &options, SP_PART_LAYER, rows);
    int64_t bytes = 0;
    for (int r = 0; r < count; r++) {
        bytes +=
            sp_saved_is_kept(&rows[r], repeated) ? sp_saved_load_bytes(&rows[r], &one, &load) : 0;
    }
    return bytes;
}

static int64_t saves(const sp_model *model, int kind, sp_recompute recompute)
{
    return kept(model, kind, SP_RECOMPUTE_NONE) - kept(model, kind, recompute);
}

static void again(const sp_model *model, int kind, sp_recompute recompute, sp_inventory *ops)
{
    sp_model space;
    sp_inventory_build(sp_model_of_kind(model, kind, &space), &one, &stack, SP_ATTENTION_FLASH,
                       recompute, SP_PART_LAYER, SP_PASS_RECOMPUTE, ops);
}

static double flops_again(const sp_model *model, int kind, sp_recompute recompute)
{
    sp_inventory ops;
    sp_model space;
    again(model, kind, recompute, &ops);
    return sp_inventory_flops(&ops, sp_model_of_kind(model, kind, &space), &one, SP_PASS_RECOMPUTE,
                              T, (double)T * T);
}

TEST(names_and_documents_round_trip)
{
    for (int bits = 0; bits < SETS; bits++) {
        sp_recompute recompute = set_of(bits);
        sp_recompute read = SP_RECOMPUTE_FULL;
        char text[SP_RECOMPUTE_TEXT];
        char wrong[SP_RECOMPUTE_TEXT];
        json_auto_t *document = sp_recompute_json(recompute);
        assert_true(sp_recompute_read(document, &read, wrong));
        assert_int_equal(read, recompute);
        json_decref(document);
        document = json_string(sp_recompute_text(recompute, text));
        read = SP_RECOMPUTE_FULL;
        assert_true(sp_recompute_read(document, &read, wrong));
        assert_int_equal(read, recompute);
        assert_int_equal(sp_recompute_modules(recompute), bits << 3);
    }
    // Modes are sets that have a name.
    assert_int_equal(sp_recompute_of_modules(SP_MODULE_CORE_ATTN), SP_RECOMPUTE_ATTENTION);
    assert_int_equal(sp_recompute_of_modules(SP_MODULE_MLA_UP_PROJ), SP_RECOMPUTE_MLA_UP_PROJ);
    assert_int_equal(sp_recompute_of_modules(0), SP_RECOMPUTE_NONE);
}

// By the tables of saved tensors of Megatron-Core: 2 bytes a number, 4 of probabilities and
// log-sum-exp; rows of experts K times those of tokens.
TEST(modules_drop_what_they_make)
{
    sp_model model = deepseek();
    const int64_t up = 2 * (QL + KL) + 2 * A * (2 * (NOPE + ROPE) + V);
    const int64_t experts = K * (2 * H + 4 * F + 2 * F + 4 + 4) + 4 * E + E;
    const int64_t shared = 4 * SHARED + 2 * SHARED;
    const struct {
        unsigned modules;
        int64_t dense, routed; // bytes of a token
    } cases[] = {{SP_MODULE_CORE_ATTN, 4 * A, 4 * A},
                 {SP_MODULE_LAYERNORM, 2 * H, 2 * 2 * H},
                 {SP_MODULE_MLA_UP_PROJ, up, up},
                 {SP_MODULE_MLP, 2 * H + 6 * DENSE, 0},
                 {SP_MODULE_MOE, 0, experts + shared},
                 {SP_MODULE_MOE_ACT, 0, K * 2 * F},
                 {SP_MODULE_SHARED_EXPERTS, 0, shared},
                 {SP_MODULE_MLP | SP_MODULE_LAYERNORM, 2 * 2 * H + 6 * DENSE, 2 * 2 * H},
                 {SP_MODULE_MOE | SP_MODULE_MOE_ACT, 0, experts + shared}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_recompute recompute = sp_recompute_of_modules(cases[i].modules);
        assert_int_equal(saves(&model, 0, recompute), T * cases[i].dense);
        assert_int_equal(saves(&model, 1, recompute), T * cases[i].routed);
    }
}

// Products that run again: both projections of an MLP, up-projections and pairs of attention.
TEST(modules_repeat_their_products)
{
    sp_model model = deepseek();
    const double pairs = (double)T * T / 2.0;
    const double up = 2.0 * T * A * (QL * (NOPE + ROPE) + KL * (NOPE + V));
    const double core = 2.0 * pairs * A * (NOPE + ROPE + V);
    const double dense = 2.0 * T * 3.0 * H * DENSE;
    const double shared = 2.0 * T * 3.0 * H * SHARED;
    const double experts = 2.0 * T * (K * 3.0 * H * F + H * E);
    const struct {
        unsigned modules;
        double dense, routed;
    } cases[] = {{SP_MODULE_CORE_ATTN, core, core},
                 {SP_MODULE_LAYERNORM, 0, 0},
                 {SP_MODULE_MLA_UP_PROJ, up, up},
                 {SP_MODULE_MLP, dense, 0},
                 {SP_MODULE_MOE, 0, experts + shared},
                 {SP_MODULE_MOE_ACT, 0, 0},
                 {SP_MODULE_SHARED_EXPERTS, 0, shared},
                 {SP_MODULE_CORE_ATTN | SP_MODULE_MOE, core, core + experts + shared}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_recompute recompute = sp_recompute_of_modules(cases[i].modules);
        assert_close(flops_again(&model, 0, recompute), cases[i].dense, 1e-12);
        assert_close(flops_again(&model, 1, recompute), cases[i].routed, 1e-12);
    }
}

// Is every operator of `a` one of `b`? Both are in the order of the forward.
static bool is_part(const sp_inventory *a, const sp_inventory *b)
{
    int found = 0;
    for (int i = 0; i < b->count && found < a->count; i++) {
        found += strcmp(a->ops[found].name, b->ops[i].name) == 0;
    }
    return found == a->count;
}

TEST(unions_save_between_the_largest_and_the_sum)
{
    sp_model model = deepseek();
    for (int a = 0; a < SETS; a++) {
        for (int b = 0; b < SETS; b++) {
            for (int kind = 0; kind < 2; kind++) {
                int64_t of_a = saves(&model, kind, set_of(a));
                int64_t of_b = saves(&model, kind, set_of(b));
                int64_t both = saves(&model, kind, set_of(a | b));
                sp_inventory ops_a, ops_both;
                assert_true(both <= of_a + of_b);
                assert_true(both >= of_a && both >= of_b);
                again(&model, kind, set_of(a), &ops_a);
                again(&model, kind, set_of(a | b), &ops_both);
                assert_true(is_part(&ops_a, &ops_both));
            }
        }
    }
}

// Whole layers keep their input alone, and run again all that modules do; beside these stand the
// projections around attention, residual adds and, of a dense layer, no norm of the attention's.
TEST(whole_layers_save_more_than_all_modules)
{
    sp_model model = deepseek();
    sp_recompute all = set_of(SETS - 1);
    for (int kind = 0; kind < 2; kind++) {
        sp_inventory ops_all, ops_full;
        assert_int_equal(kept(&model, kind, SP_RECOMPUTE_FULL), T * 2 * H);
        // Input, latents, what attention gave, residual.
        assert_int_equal(kept(&model, kind, all), T * 2 * (H + QL + KL + ROPE + A * V + H));
        again(&model, kind, all, &ops_all);
        again(&model, kind, SP_RECOMPUTE_FULL, &ops_full);
        assert_true(is_part(&ops_all, &ops_full) && ops_all.count < ops_full.count);
    }
}

// In a whole step: time rises and the activations that are held fall with the set.
TEST(steps_are_slower_and_smaller_with_the_set)
{
    static const char *const growing[] = {"'none'",
                                          "['layernorm']",
                                          "['layernorm', 'moe_act']",
                                          "['layernorm', 'moe_act', 'mlp']",
                                          "['layernorm', 'moe_act', 'mlp', 'shared_experts']",
                                          "['layernorm', 'moe', 'mlp']",
                                          "['layernorm', 'moe', 'mlp', 'mla_up_proj']",
                                          "['layernorm', 'moe', 'mlp', 'mla_up_proj', 'core_attn']",
                                          "'full'"};
    double ms = 0.0;
    double hardware = 0.0;
    double gib = HUGE_VAL;
    for (size_t i = 0; i < sizeof growing / sizeof growing[0]; i++) {
        const char *text = json_text(
            "{'model': {'layers': 4, 'hidden': 2048, 'ffn': 1408, 'heads': 16, "
            "'q_lora_rank': 1536, 'kv_lora_rank': 512, 'qk_nope_dim': 128, 'qk_rope_dim': 64, "
            "'v_head_dim': 128, 'vocab': 32000, 'experts': 64, 'experts_per_token': 6, "
            "'shared_ffn': 2816, 'layer_kinds': [{'layers': 1, 'ffn': 10944, 'experts': 0, "
            "'experts_per_token': 0, 'shared_ffn': 0}, {'layers': 3}]}, 'cluster': 'h100-8', "
            "'stack': 'megatron-core-2025', 'parallel': {'dp': 8, 'ep': 4}, "
            "'workload': {'uniform': 4096, 'samples_per_batch': 16}, 'memory': {'recompute': "
            "%s}}",
            growing[i]);
        SCENARIO_RUN(r, text, &(sp_evaluate_options){0});
        double step_ms = r.result.iteration_ns / 1e6;
        double held = sp_gib_from_bytes(r.result.peak.of[SP_MEM_ACTIVATIONS]);
        double flops = sp_result_hfu(&r.result) * step_ms;
        assert_true(step_ms > ms && held < gib && flops > hardware * (1.0 - 1e-9));
        ms = step_ms;
        gib = held;
        hardware = flops;
    }
}

static void refused(const char *settings, const char *told)
{
    const char *text = json_text("{%s, 'cluster': 'h100-8'}", settings);
    run_refused(text, told);
}

TEST(what_is_not_there_is_refused_by_name)
{
#define LLAMA "'model': 'llama-3-8b', "
#define QWEN "'model': 'qwen3-30b-a3b', "
    refused(LLAMA "'memory': {'recompute': 'moe_act'}", "\"moe_act\" is of experts");
    refused(LLAMA "'memory': {'recompute': 'mlp,layernorm'}", "\"layernorm\" is of norms");
    refused(LLAMA "'memory': {'recompute': ['mlp', 'moe']}", "\"moe\" is of experts");
    refused(QWEN "'memory': {'recompute': ['mlp']}", "\"mlp\" is of layers with a dense MLP");
    refused(QWEN "'memory': {'recompute': ['shared_experts']}", "shared experts");
    refused(QWEN "'memory': {'recompute': ['moe', 'mla_up_proj']}", "latent attention");
    refused(LLAMA "'memory': {'recompute': ['full']}", "got \"full\"");
    refused(LLAMA "'memory': {'recompute': ['mlp', 3]}", "got 3");
    refused(LLAMA "'memory': {'recompute': []}", "got []");
    refused(LLAMA "'memory': {'recompute': 'mlp,,core_attn'}", "got \"\"");
    refused(LLAMA "'memory': {'recompute': 'mlp,attn'}", "got \"attn\"");
    refused(LLAMA "'memory': {'recompute': {'mlp': true}}", "expected one of \"none\"");
    refused(LLAMA "'stack': 'trl-2025', 'memory': {'recompute': ['mlp']}",
            "stack \"trl-2025\" has no sets of modules, got \"mlp\"");
    refused(LLAMA "'memory': {'recompute': ['mlp'], 'model': 'slimpipe-planner'}", "got \"mlp\"");
    refused(QWEN "'precision': 'fp8', 'stack': 'megatron-core-2025', 'memory': {'recompute': "
                 "['moe_act']}",
            "fp8_recipe \"delayed\"");
    refused(QWEN "'stack': {'name': 'megatron-core-2025', 'expert_overlap': true}, 'parallel': "
                 "{'dp': 8, 'ep': 8}, 'memory': {'recompute': ['layernorm', 'moe']}",
            "memory.recompute \"layernorm,moe\"");
#undef LLAMA
#undef QWEN
}
