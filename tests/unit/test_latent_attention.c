// Latent attention (MLA) by hand: parameters, FLOPs and saved bytes from the shapes of DeepSeek-V2
// (arXiv 2405.04434, section 2.1) and V3 (arXiv 2412.19437), and what does not know it.
#include "sim/cost/cost_private.h"
#include "sim/inference/decode.h"
#include "sim/memory/saved_tensors.h"
#include "sim/model/inventory.h"
#include "sim/model/layout.h"
#include "sim/prefill/prefill.h"
#include "sim/scenario/scenario.h"
#include "tests/support/flat_profile.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static const sp_stack plain = {.name = "plain", .fused_swiglu = true, .fused_cross_entropy = true};

// h, heads, latents of queries and of keys and values, parts of a head.
typedef struct shape {
    int64_t h, a, ql, kl, nope, rope, v;
} shape;

// Of DeepSeek-V3 and of DeepSeek-V2-Lite.
static const shape v3 = {7168, 128, 1536, 512, 128, 64, 128};
static const shape lite = {2048, 16, 0, 512, 128, 64, 128};

static sp_model model_of(shape s)
{
    return (sp_model){.name = "latent",
                      .layers = 1,
                      .hidden = s.h,
                      .ffn = 4096,
                      .heads = (int)s.a,
                      .kv_heads = (int)s.a,
                      .head_dim = s.nope + s.rope,
                      .vocab = 1000,
                      .activation = SP_SWIGLU,
                      .positional = SP_ROPE,
                      .q_lora_rank = s.ql,
                      .kv_lora_rank = s.kl,
                      .qk_nope_dim = s.nope,
                      .qk_rope_dim = s.rope,
                      .v_head_dim = s.v};
}

// Weights of the attention's products: down, up and output projections.
static int64_t products(shape s)
{
    int64_t queries =
        s.ql > 0 ? s.h * s.ql + s.ql * s.a * (s.nope + s.rope) : s.h * s.a * (s.nope + s.rope);
    return queries + s.h * (s.kl + s.rope) + s.kl * s.a * (s.nope + s.v) + s.a * s.v * s.h;
}

TEST(parameters_by_hand)
{
    static const shape shapes[] = {v3, lite};
    for (int i = 0; i < 2; i++) {
        sp_model model = model_of(shapes[i]);
        // Norms of the latents and of hidden states, and the MLP.
        int64_t rest =
            shapes[i].ql + shapes[i].kl + 2 * model.hidden + 3 * model.hidden * model.ffn;
        assert_int_equal(sp_model_layer_parameters(&model), products(shapes[i]) + rest);
        assert_int_equal(sp_model_check(&model, "test", "", NULL), SP_OK);
    }
    // 187,105,280 of DeepSeek-V3's 61 layers, by hand.
    assert_int_equal(products(v3), INT64_C(187105280));
}

// A rank of TP has its heads' share of the up-projections and of the output projection, and all of
// the down-projections and norms.
TEST(tensor_parallelism_duplicates_down_projections)
{
    sp_model model = model_of(v3);
    sp_layout layout = {.tp = 4, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    sp_shard shard = sp_shard_of(&model, &layout);
    int64_t whole = v3.h * (v3.ql + v3.kl + v3.rope) + v3.ql + v3.kl + 2 * v3.h;
    int64_t split = v3.ql * v3.a * (v3.nope + v3.rope) + v3.kl * v3.a * (v3.nope + v3.v) +
                    v3.a * v3.v * v3.h + 3 * model.hidden * model.ffn;
    assert_int_equal(sp_layer_parameters(&model, &shard), whole + split / 4);
}

static double layer_flops(const sp_model *model, const sp_layout *layout, sp_attention attention,
                          sp_pass pass, double tokens, double pairs2)
{
    sp_inventory inventory;
    sp_inventory_build(model, layout, &plain, attention, SP_RECOMPUTE_NONE, SP_PART_LAYER, pass,
                       &inventory);
    return sp_inventory_flops(&inventory, model, layout, pass, tokens, pairs2);
}

// Forward two products over a pair, of the width of queries and of values; backward the two
// gradients of each, and with flash attention the scores again.
TEST(flops_by_hand)
{
    const sp_layout one = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    static const shape shapes[] = {v3, lite};
    const double tokens = 4096.0;
    const double pairs = tokens * tokens / 2.0;
    for (int i = 0; i < 2; i++) {
        shape s = shapes[i];
        sp_model model = model_of(s);
        double linear = 2.0 * (double)(products(s) + 3 * model.hidden * model.ffn) * tokens;
        double qk = 2.0 * (double)(s.a * (s.nope + s.rope)) * pairs;
        double v = 2.0 * (double)(s.a * s.v) * pairs;
        assert_close(layer_flops(&model, &one, SP_ATTENTION_FLASH, SP_PASS_F, tokens, 2.0 * pairs),
                     linear + qk + v, 1e-12);
        assert_close(layer_flops(&model, &one, SP_ATTENTION_FLASH, SP_PASS_I, tokens, 2.0 * pairs),
                     linear + 3.0 * qk + 2.0 * v, 1e-12);
        assert_close(
            layer_flops(&model, &one, SP_ATTENTION_UNFUSED, SP_PASS_I, tokens, 2.0 * pairs),
            linear + 2.0 * qk + 2.0 * v, 1e-12);
        assert_close(layer_flops(&model, &one, SP_ATTENTION_FLASH, SP_PASS_W, tokens, 0.0), linear,
                     1e-12);
        assert_close(sp_model_attention_flops_per_pair(&model) * pairs, qk + v, 1e-12);
    }
}

// With sequence parallelism ranks share the tokens of the down-projections and the heads of all
// else, so that together they do the work of one; without, each runs all of the down-projections.
TEST(tensor_parallelism_shares_the_work)
{
    sp_model model = model_of(v3);
    const sp_layout one = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    sp_layout four = {.tp = 4, .cp = 1, .pp = 1, .dp = 1, .chunks = 1, .sequence_parallel = true};
    double all = layer_flops(&model, &one, SP_ATTENTION_FLASH, SP_PASS_F, 4096.0, 1e7);
    double share = layer_flops(&model, &four, SP_ATTENTION_FLASH, SP_PASS_F, 4096.0, 1e7);
    assert_close(4.0 * share, all, 1e-12);
    four.sequence_parallel = false;
    double whole = layer_flops(&model, &four, SP_ATTENTION_FLASH, SP_PASS_F, 4096.0, 1e7);
    double down = 2.0 * 4096.0 * (double)(v3.h * (v3.ql + v3.kl + v3.rope));
    assert_close(whole - share, 0.75 * down, 1e-9);
}

// Bytes a token that TP ranks gather: latents and the keys' rotary part in place of hidden states,
// and those for the queries where they have no latent.
TEST(latents_are_gathered)
{
    const sp_layout layout = {
        .tp = 4, .cp = 1, .pp = 1, .dp = 1, .chunks = 1, .sequence_parallel = true};
    static const shape shapes[] = {v3, lite};
    for (int i = 0; i < 2; i++) {
        shape s = shapes[i];
        sp_model model = model_of(s);
        for (int pass = SP_PASS_F; pass <= SP_PASS_W; pass++) {
            sp_inventory inventory;
            sp_inventory_build(&model, &layout, &plain, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                               SP_PART_LAYER, (sp_pass)pass, &inventory);
            double gathered = 0.0;
            double reduced = 0.0;
            for (int o = 0; o < inventory.count; o++) {
                const sp_op *op = &inventory.ops[o];
                gathered += op->kind == SP_OP_ALL_GATHER ? op->bytes_per_token : 0.0;
                reduced += op->kind == SP_OP_REDUCE_SCATTER ? op->bytes_per_token : 0.0;
            }
            int64_t latents = (s.ql > 0 ? s.ql : s.h) + s.kl;
            // The input of the MLP in all passes; weight gradients gather no rotary part again.
            int64_t in = latents + s.h + (pass == SP_PASS_W ? 0 : s.rope);
            // The outputs of attention and MLP.
            int64_t out = pass == SP_PASS_W ? 0 : 2 * s.h;
            assert_close(pass == SP_PASS_I ? reduced : gathered, 2.0 * (double)in, 1e-12);
            assert_close(pass == SP_PASS_I ? gathered : reduced, 2.0 * (double)out, 1e-12);
        }
    }
}

// CP ranks pass on keys and values as the up-projection gives them, of every head.
TEST(context_parallelism_exchanges_heads_of_keys_and_values)
{
    sp_model model = model_of(v3);
    const sp_layout layout = {.tp = 2, .cp = 4, .pp = 1, .dp = 1, .chunks = 1};
    sp_inventory inventory;
    sp_inventory_build(&model, &layout, &plain, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                       SP_PART_LAYER, SP_PASS_F, &inventory);
    double bytes = 0.0;
    for (int o = 0; o < inventory.count; o++) {
        bytes += inventory.ops[o].kind == SP_OP_CP_KV ? inventory.ops[o].bytes_per_token : 0.0;
    }
    assert_close(bytes, 4.0 * 2.0 * (double)(v3.a / 2 * (v3.nope + v3.rope + v3.v)), 1e-12);
}

// Bytes that a layer keeps of its attention, by what Megatron-LM saves for it; MLP and norms as in
// any layer. `up` false: Megatron-LM's mla_up_proj drops what the up-projections give.
static int64_t saved_by_hand(shape s, int64_t ffn, int64_t tokens, int64_t tp, bool up)
{
    int64_t rows = tokens / tp; // of the sequence's shard
    int64_t a = s.a / tp;
    int64_t bytes = rows * 2 * s.h;             // layer input
    bytes += rows * 2 * s.h;                    // output of the first norm
    bytes += rows * 2 * (s.ql + s.kl + s.rope); // down-projections
    bytes += up ? rows * 2 * (s.ql + s.kl) : 0; // norms of the latents
    bytes += up ? tokens * 2 * a * (2 * (s.nope + s.rope) + s.v) : 0;
    bytes += tokens * (2 * a * s.v + 4 * a);  // attention's output, log-sum-exp
    bytes += rows * 2 * s.h + rows * 2 * s.h; // residual, output of the second norm
    bytes += tokens * 2 * (2 * ffn / tp + ffn / tp);
    return bytes;
}

TEST(saved_bytes_by_hand)
{
    static const shape shapes[] = {v3, lite};
    for (int i = 0; i < 2; i++) {
        for (int tp = 1; tp <= 4; tp *= 4) {
            for (int up = 0; up < 2; up++) {
                sp_model model = model_of(shapes[i]);
                const sp_layout layout = {
                    .tp = tp, .cp = 1, .pp = 1, .dp = 1, .chunks = 1, .sequence_parallel = true};
                const sp_stage stage = {.layers = 1, .count = {1}};
                const sp_memory_options options = {
                    .recompute = up ? SP_RECOMPUTE_NONE : SP_RECOMPUTE_MLA_UP_PROJ, .stack = plain};
                const sp_unit_load load = {.tokens = 4096, .pairs = 4096 * 4096};
                sp_unit_bytes unit;
                sp_footprint_unit(&model, &layout, &stage, &options, &load, &unit);
                assert_int_equal(unit.held.of[SP_MEM_ACTIVATIONS],
                                 saved_by_hand(shapes[i], model.ffn, 4096, tp, up));
            }
        }
    }
}

// A head whose values are as wide as its queries and keys takes what any head does.
TEST(values_as_wide_as_keys_are_usual_attention)
{
    const sp_layout one = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    sp_model latent = model_of((shape){2048, 16, 0, 512, 64, 64, 128});
    sp_model usual = latent;
    usual.kv_lora_rank = usual.qk_nope_dim = usual.qk_rope_dim = usual.v_head_dim = 0;
    assert_int_equal(latent.head_dim, usual.head_dim);
    assert_true(sp_model_attention_flops_per_pair(&latent) ==
                sp_model_attention_flops_per_pair(&usual));
    for (int pass = SP_PASS_F; pass <= SP_PASS_I; pass++) {
        double pairs2 = 1e9;
        double with = layer_flops(&latent, &one, SP_ATTENTION_FLASH, (sp_pass)pass, 0.0, pairs2);
        assert_true(with ==
                    layer_flops(&usual, &one, SP_ATTENTION_FLASH, (sp_pass)pass, 0.0, pairs2));
    }
}

#define LATENT                                                                        \
    "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, " \
    "'kv_lora_rank': 128, 'q_lora_rank': 192, 'qk_nope_dim': 64, 'qk_rope_dim': 32, " \
    "'v_head_dim': 64}, 'cluster': 'h100-8', 'workload': {'lengths': [4096, 300, 1500, 700]}"

// With every mode and order, checked against the longest path in igraph.
TEST(steps_run)
{
    static const char *const rest[] = {
        "",
        ", 'memory': {'recompute': 'mla-up-proj'}",
        ", 'memory': {'recompute': 'full'}",
        ", 'memory': {'attention': 'unfused', 'recompute': 'attention'}",
        ", 'parallel': {'tp': 2, 'cp': 2, 'pp': 2}",
        ", 'parallel': {'pp': 2}, 'schedule': {'kind': 'zb-h1'}",
        ", 'parallel': {'cp': 4}, 'stack': {'name': 'ours', 'cp_overlap': 'a2a'}",
        ", 'parallel': {'tp': 2, 'zero': 3, 'dp': 2}"};
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
        SCENARIO_RUN(run, json_text(LATENT "%s}", rest[i]), &run_verified);
        assert_true(run.result.iteration_ns > 0);
    }
}

// Heads of 192 in keys and 128 in values at a share of the rates; usual heads keep them, unless
// FlashAttention-2 runs them.
TEST(rates_have_shares)
{
    AUTO(sp_profile) profile;
    flat_profile_load(
        (const char *[]){"latent_attention={\"forward_share\":0.8,\"backward_share\":"
                         "0.5,\"level\":\"fitted\",\"source\":\"s\"}",
                         "flash_attention_2={\"forward_share\":0.6,"
                         "\"backward_share\":0.4,\"level\":\"fitted\",\"source\":\"s\"}",
                         NULL},
        &profile);
    const sp_op_timer timer = {.profile = &profile};
    const sp_memory_options memory = {.stack = plain};
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1};
    sp_model usual = {.heads = 128, .kv_heads = 128, .head_dim = 160};
    sp_model latent = model_of(v3);
    // FLOPs of a pair: two products forward, of 192 and 128; five backward, three of 192. Half a
    // pair for each token squared.
    double forward_s[] = {2.0 * 128 * 320, 2.0 * 128 * (192 + 128)};
    double backward_s[] = {2.0 * 128 * 5 * 160, 2.0 * 128 * (3 * 192 + 2 * 128)};
    const sp_model *models[] = {&usual, &latent};
    for (int flash_2 = 0; flash_2 < 2; flash_2++) {
        for (int i = 0; i < 2; i++) {
            double forward_share = i == 1 ? 0.8 : flash_2 ? 0.6 : 1.0;
            double backward_share = i == 1 ? 0.5 : flash_2 ? 0.4 : 1.0;
            profile.flash_2.is_used = flash_2;
            sp_i_attention attention = {
                .model = models[i], .layout = &layout, .memory = &memory, .timer = &timer};
            double least_s[2];
            sp_i_attention_least_s(&attention, least_s);
            assert_close(least_s[0], 0.5 * forward_s[i] / FLAT_FORWARD_FLOPS_PER_S / forward_share,
                         1e-12);
            assert_close(least_s[1],
                         0.5 * backward_s[i] / FLAT_BACKWARD_FLOPS_PER_S / backward_share, 1e-12);
        }
    }
}

// DeepSeek's training trace (deepseek-ai/profile-data, train.json: H800, 4096 tokens, DeepSeek-V3's
// heads): 1.24 ms forward and 3.8 ms backward.
TEST(attention_of_a_published_trace)
{
    AUTO(sp_profile) profile;
    must_succeed(sp_profile_load("h800", &profile, ERR));
    const sp_op_timer timer = {.profile = &profile};
    const sp_memory_options memory = {.stack = plain};
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1};
    const sp_model model = model_of(v3);
    sp_i_attention attention = {
        .model = &model, .layout = &layout, .memory = &memory, .timer = &timer};
    double least_s[2]; // of a token squared
    sp_i_attention_least_s(&attention, least_s);
    assert_within(4096.0 * 4096.0 * least_s[0], 1.24e-3, 0.12 * 1.24e-3);
    assert_within(4096.0 * 4096.0 * least_s[1], 3.8e-3, 0.12 * 3.8e-3);
}

TEST(what_does_not_know_it_is_refused)
{
    static const struct {
        const char *rest, *told;
    } cases[] = {
        {", 'stack': 'reference'", "hand-written passes"},
        {", 'stack': 'hf-trainer'", "unfused norms"},
        {", 'parallel': {'cp': 2}, 'stack': {'name': 'ours', 'cp_overlap': 'qkv'}", "cp_overlap"},
        {", 'memory': {'model': 'slimpipe-planner'}", "knows no latent attention"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_refused(json_text(LATENT "%s}", cases[i].rest), cases[i].told);
    }
    run_refused("{'model': 'llama-2-7b', 'cluster': 'h100-8', 'memory': {'recompute': "
                "'mla-up-proj'}}",
                "latent attention");
}

TEST(dynamic_context_parallelism_is_refused)
{
    AUTO(scenario_run) run;
    sp_error err = {0};
    sp_status status =
        run_text(json_text(LATENT ", 'strategy': {'kind': 'hybrid-cp'}, 'parallel': {'dp': 2}}"),
                 &run_verified, &run, &err);
    assert_int_equal(status, SP_ERR_CONTENT);
    assert_non_null(strstr(err.message[0], "hybrid-cp"));
}

static void is_refused(sp_status status, const sp_error *err, const char *told)
{
    assert_int_equal(status, SP_ERR_CONTENT);
    assert_non_null(strstr(err->message[0], told));
}

TEST(prompts_and_text_are_refused)
{
    AUTO(sp_scenario) scenario;
    sp_decode_result decoded;
    sp_prefill_result read;
    const sp_batch none = {.count = 0};
    sp_error err;
    read_good(json_text(LATENT ", 'decode': {}}"), &scenario);
    sp_error_clear(&err);
    is_refused(sp_decode_scenario(&scenario, &decoded, &err), &err, "generated text");
    sp_error_clear(&err);
    is_refused(sp_prefill(&scenario, &none, NULL, NULL, &read, &err), &err, "prompts");
}

// Each number that contradicts the others is named.
TEST(shapes_that_contradict_themselves)
{
    sp_model base = model_of(lite);
    sp_model cases[8];
    for (int i = 0; i < 8; i++) {
        cases[i] = base;
    }
    cases[0].head_dim = 128;
    cases[1].kv_heads = 8;
    cases[2].qk_norm = true;
    cases[3].positional = SP_LEARNED;
    cases[4].qkv_bias = true;
    cases[5].v_head_dim = 0;
    cases[6].kv_lora_rank = 0;
    cases[7].qk_rope_dim = 63;
    static const char *const keys[] = {"head_dim", "kv_heads",   "qk_norm",     "positional",
                                       "qkv_bias", "v_head_dim", "qk_nope_dim", "qk_rope_dim"};
    for (int i = 0; i < 8; i++) {
        sp_error err = {0};
        assert_int_equal(sp_model_check(&cases[i], "test", "model", &err), SP_ERR_CONTENT);
        assert_non_null(strstr(err.message[0], keys[i]));
    }
}
