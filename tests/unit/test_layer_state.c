// Layers with a state in place of attention (Mamba-2, arXiv 2405.21060; gated DeltaNet, arXiv
// 2412.06464) by hand: parameters, FLOPs and saved bytes, layers that lack a block, gates of the
// attention's output, and what does not know them.
#include "sim/cost/cost_private.h"
#include "sim/memory/footprint.h"
#include "sim/memory/saved_tensors.h"
#include "sim/model/inventory.h"
#include "sim/model/layout.h"
#include "sim/model/parameter_list.h"
#include "sim/scenario/scenario.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static const sp_stack plain = {.name = "plain", .fused_swiglu = true, .fused_cross_entropy = true};

enum {
    H = 2048,
    F = 4096,
    HEADS = 32,
    GROUPS = 16,
    VALUE = 128,
    KEY = 64,
    CONV = 4,
    TOKENS = 4096
};

static sp_model model_of(sp_mixer mixer)
{
    return (sp_model){.name = "state",
                      LLAMA_SHAPE(1, H, F, 16, 4, 1000),
                      .mixer = mixer,
                      .state_heads = HEADS,
                      .state_groups = GROUPS,
                      .state_head_dim = VALUE,
                      .state_dim = KEY,
                      .state_conv = CONV};
}

// What is let through and what goes into the state; what writes into it and what reads it; of each
// head how fast it forgets, with gated DeltaNet how much it writes too.
static int64_t width_in(sp_mixer mixer)
{
    int64_t each = mixer == SP_MIXER_MAMBA2 ? 1 : 2;
    return 2 * HEADS * VALUE + 2 * GROUPS * KEY + each * HEADS;
}

static int64_t width_conv(void)
{
    return HEADS * VALUE + 2 * GROUPS * KEY;
}

static const sp_mixer states[] = {SP_MIXER_MAMBA2, SP_MIXER_GATED_DELTA};

TEST(parameters_by_hand)
{
    for (int i = 0; i < 2; i++) {
        sp_model model = model_of(states[i]);
        bool mamba = states[i] == SP_MIXER_MAMBA2;
        int64_t products = H * width_in(states[i]) + HEADS * VALUE * H;
        int64_t conv = width_conv() * (CONV + (mamba ? 1 : 0));
        int64_t heads = (mamba ? 3 : 2) * HEADS;
        int64_t norm = mamba ? HEADS * VALUE : VALUE;
        int64_t rest = 3 * H * F + 2 * H;
        assert_int_equal(sp_model_layer_parameters(&model), products + conv + heads + norm + rest);
        assert_int_equal(sp_model_check(&model, "test", "", ERR), SP_OK);
        model.without_mlp = true;
        assert_int_equal(sp_model_layer_parameters(&model), products + conv + heads + norm + H);
    }
}

// The executor's list of tensors has as many elements, whole and on a rank.
TEST(lists_of_parameters_agree)
{
    static const sp_mixer mixers[] = {SP_MIXER_ATTENTION, SP_MIXER_MAMBA2, SP_MIXER_GATED_DELTA,
                                      SP_MIXER_NONE};
    for (int i = 0; i < 4; i++) {
        for (int tp = 1; tp <= 4; tp *= 2) {
            sp_model model = model_of(mixers[i]);
            model.attention_gate = i == 0;
            const sp_layout layout = {.tp = tp, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
            const sp_stage stage = {.layers = 1, .count = {1}};
            AUTO(sp_parameter_list) list = {0};
            sp_parameter_list_add(&model, &layout, &stage, false, &list);
            int64_t elements = 0;
            for (size_t p = 0; p < list.count; p++) {
                elements += list.items[p].elements;
            }
            assert_int_equal(elements, sp_footprint_parameters(&model, &layout, &stage, 1));
        }
    }
}

static double layer_flops(const sp_model *model, const sp_layout *layout, sp_pass pass,
                          double pairs2)
{
    sp_inventory inventory;
    sp_inventory_build(model, layout, &plain, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE, SP_PART_LAYER,
                       pass, &inventory);
    return sp_inventory_flops(&inventory, model, layout, pass, TOKENS, pairs2);
}

// Products of weights, a convolution, and the state: 7 FLOPs for each number of it with Mamba-2, 4
// with gated DeltaNet. No pair of tokens costs anything. The backward of what has no weights is
// twice its forward; TP ranks share all.
TEST(flops_by_hand)
{
    const sp_layout one = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    const sp_layout four = {
        .tp = 4, .cp = 1, .pp = 1, .dp = 1, .chunks = 1, .sequence_parallel = true};
    for (int i = 0; i < 2; i++) {
        sp_model model = model_of(states[i]);
        double each = states[i] == SP_MIXER_MAMBA2 ? 7.0 : 4.0;
        double linear =
            2.0 * TOKENS * (double)(H * width_in(states[i]) + HEADS * VALUE * H + 3 * H * F);
        double core =
            TOKENS * (2.0 * CONV * (double)width_conv() + each * HEADS * VALUE * (double)KEY);
        assert_close(layer_flops(&model, &one, SP_PASS_F, 1e9), linear + core, 1e-12);
        assert_close(layer_flops(&model, &one, SP_PASS_I, 1e9), linear + 2.0 * core, 1e-12);
        assert_close(layer_flops(&model, &one, SP_PASS_W, 0.0), linear, 1e-12);
        assert_close(4.0 * layer_flops(&model, &four, SP_PASS_F, 1e9), linear + core, 1e-12);
        double head = 2.0 * TOKENS * H * 1000.0;
        assert_close(sp_model_forward_flops(&model, TOKENS, sp_model_pairs2(&model, 0.0, TOKENS)),
                     linear + core + head, 1e-12);
    }
}

// Of a model whose every fourth layer attends, pairs are a quarter of those of all layers.
TEST(pairs_are_of_layers_that_attend)
{
    sp_model model = model_of(SP_MIXER_ATTENTION);
    model.layers = 12;
    sp_layer_mlp of_layer[12];
    for (int i = 0; i < 12; i++) {
        of_layer[i] = (sp_layer_mlp){
            .ffn = F, .mixer = i % 4 == 3 ? SP_MIXER_ATTENTION : SP_MIXER_GATED_DELTA};
    }
    assert_true(sp_model_set_kinds(&model, of_layer));
    assert_int_equal(model.kinds, 2);
    assert_close(sp_model_pairs2(&model, 100.0, 50.0), 0.25 * (2.0 * 50.0 * 100.0 + 2500.0), 1e-12);
    assert_close(sp_model_attending_share(&model), 0.25, 1e-12);
    assert_true(sp_model_has_state(&model) && !sp_model_sees_all(&model));
    // A layer that predicts a further token is like the last, which attends.
    model.mtp_layers = 1;
    assert_close(sp_model_attending_share(&model), 4.0 / 13.0, 1e-12);
}

static int64_t held(const sp_model *model, int tp, sp_recompute recompute)
{
    const sp_layout layout = {
        .tp = tp, .cp = 1, .pp = 1, .dp = 1, .chunks = 1, .sequence_parallel = true};
    const sp_stage stage = {.layers = 1, .count = {1}};
    const sp_memory_options options = {.recompute = recompute, .stack = plain};
    const sp_unit_load load = {.tokens = TOKENS, .pairs = (int64_t)TOKENS * TOKENS};
    sp_unit_bytes unit;
    sp_footprint_unit(model, &layout, &stage, &options, &load, &unit);
    return unit.held.of[SP_MEM_ACTIVATIONS];
}

// A layer keeps its input, the norm's output, what the projection, the convolution and the state
// give, and of an MLP the residual, its norm and its tensors; all recomputed its input alone.
TEST(saved_bytes_by_hand)
{
    for (int i = 0; i < 2; i++) {
        for (int tp = 1; tp <= 4; tp *= 4) {
            sp_model model = model_of(states[i]);
            int64_t hidden = TOKENS / tp * 2 * H;
            int64_t state = TOKENS * 2 * (width_in(states[i]) + width_conv() + HEADS * VALUE) / tp;
            int64_t mlp = 2 * hidden + TOKENS * 2 * 3 * F / tp;
            assert_int_equal(held(&model, tp, SP_RECOMPUTE_NONE), 2 * hidden + state + mlp);
            assert_int_equal(held(&model, tp, SP_RECOMPUTE_FULL), hidden);
            // What selective modes repeat is not of such a layer.
            assert_int_equal(held(&model, tp, SP_RECOMPUTE_ATTENTION), 2 * hidden + state + mlp);
            model.without_mlp = true;
            assert_int_equal(held(&model, tp, SP_RECOMPUTE_NONE), 2 * hidden + state);
        }
    }
    sp_model alone = model_of(SP_MIXER_NONE);
    alone.state_heads = alone.state_groups = 0;
    alone.state_head_dim = alone.state_dim = alone.state_conv = 0;
    assert_int_equal(held(&alone, 1, SP_RECOMPUTE_NONE), TOKENS * 2 * (2 * H + 3 * F));
    assert_int_equal(sp_model_layer_parameters(&alone), 3 * H * F + H);
}

// A gate is made beside the queries: as many outputs more, and kept, as what it gives is.
TEST(gates_of_attention_by_hand)
{
    const sp_layout one = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    sp_model model = model_of(SP_MIXER_ATTENTION);
    sp_model gated = model;
    gated.attention_gate = true;
    int64_t width = 16 * 128;
    assert_int_equal(sp_model_layer_parameters(&gated) - sp_model_layer_parameters(&model),
                     H * width);
    assert_close(layer_flops(&gated, &one, SP_PASS_F, 1e9) -
                     layer_flops(&model, &one, SP_PASS_F, 1e9),
                 2.0 * TOKENS * H * (double)width, 1e-9);
    assert_int_equal(held(&gated, 1, SP_RECOMPUTE_NONE) - held(&model, 1, SP_RECOMPUTE_NONE),
                     TOKENS * 2 * 2 * width);
}

#define SIZES                                                                       \
    "'state_heads': 16, 'state_groups': 4, 'state_head_dim': 64, 'state_dim': 32, " \
    "'state_conv': 4"
#define STATE                                                                             \
    "{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'kv_heads': 4, "     \
    "'vocab': 1000, 'attention_gate': true, 'qk_norm': true, 'layer_kinds': [{'layers': " \
    "3, 'mixer': 'gated-delta'}, {'layers': 1}], " SIZES "}, 'cluster': 'h100-8', "       \
    "'workload': {'lengths': [4096, 300, 1500, 700]}"
#define ALONE                                                                                \
    "{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'kv_heads': 4, "        \
    "'vocab': 1000, 'positional': 'none', 'activation': 'squared-relu', 'layer_kinds': "     \
    "[{'mixer': 'mamba2', 'without_mlp': true}, {'mixer': 'none'}, {'mixer': 'mamba2', "     \
    "'without_mlp': true}, {'without_mlp': true}, {'layers': 4, 'mixer': 'mamba2'}], " SIZES \
    "}, 'cluster': 'h100-8', 'workload': {'lengths': [4096, 300, 1500, 700]}"

// With modes and orders, the allocator's program included, checked against the longest path in
// igraph; whatever strategy keeps samples whole.
TEST(steps_run)
{
    static const char *const rest[] = {
        "",
        ", 'memory': {'recompute': 'full'}",
        ", 'memory': {'recompute': 'attention'}",
        ", 'memory': {'recompute': 'activation'}",
        ", 'memory': {'recompute': 'partial-fc1'}",
        ", 'memory': {'attention': 'unfused'}",
        ", 'parallel': {'tp': 2, 'pp': 2}",
        ", 'parallel': {'pp': 2}, 'schedule': {'kind': 'zb-h1'}",
        ", 'parallel': {'pp': 2}, 'schedule': {'kind': 'interleaved', 'group': 3}",
        ", 'parallel': {'tp': 4, 'zero': 3, 'dp': 2}",
        ", 'parallel': {'dp': 2}, 'strategy': {'kind': 'bfd'}",
        ", 'parallel': {'dp': 2}, 'strategy': {'kind': 'kk-flops'}",
        ", 'parallel': {'dp': 2}, 'strategy': {'kind': 'dynapipe'}"};
    static const char *const models[] = {STATE, ALONE};
    for (size_t i = 0; i < 2 * sizeof rest / sizeof rest[0]; i++) {
        SCENARIO_RUN(run, json_text("%s%s}", models[i % 2], rest[i / 2]), &run_verified);
        assert_true(run.result.iteration_ns > 0);
        assert_true(run.result.peak_bytes > 0);
    }
}

TEST(what_does_not_know_them_is_refused)
{
    static const struct {
        const char *rest, *told;
    } cases[] = {
        {", 'stack': 'reference'", "hand-written passes"},
        {", 'stack': 'hf-trainer'", "unfused norms"},
        {", 'parallel': {'cp': 2}", "parallel.cp: is 2, and how ranks hand on the state"},
        {", 'parallel': {'tp': 8}", "16 heads of a state in 4 groups cannot be split over 8"},
        {", 'memory': {'model': 'slimpipe-planner'}", "slimpipe-planner"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_refused(json_text(STATE "%s}", cases[i].rest), cases[i].told);
    }
}

// Layers of an MLP alone have no keys and values: ranks that share samples gather none for them,
// slices keep none and sum up no gradients of them, and the allocator's blocks drain. Four such
// layers and four with attention keep and sum up as many as these four.
TEST(layers_without_attention_have_no_keys_and_values)
{
#define SLICED                                                                                    \
    "{'model': {'layers': %d, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, '%s': %s}, " \
    "'cluster': 'h100-8', 'workload': {'lengths': [4096, 300], 'context': 4096}"
    static const char *const exchanges[] = {"attention", "qkv", "blocking", "a2a", "blocks"};
    const sp_evaluate_options counted = {.engine = {.verify = true}, .allocator_peak = true};
    static const char alternating[] = "[{'mixer': 'none'}, {}]";
    int64_t alone_bytes = 0;
    double alone_ns = 0.0;
    for (size_t i = 0; i < sizeof exchanges / sizeof exchanges[0]; i++) {
        scenario_run alone, mixed;
        const char *stack = json_text("'parallel': {'cp': 2}, 'stack': {'name': 'ours', "
                                      "'cp_overlap': '%s'}",
                                      exchanges[i]);
        run_good(json_text(SLICED ", %s}", 8, "mixer", "'none'", stack), &counted, &alone);
        run_good(json_text(SLICED ", %s}", 8, "layer_kinds", alternating, stack), &counted, &mixed);
        alone_bytes = i == 0 ? alone.result.allocator_peak_bytes : alone_bytes;
        alone_ns = i == 0 ? alone.result.iteration_ns : alone_ns;
        assert_int_equal(alone.result.allocator_peak_bytes, alone_bytes);
        assert_true(!(alone.result.iteration_ns < alone_ns) &&
                    !(alone.result.iteration_ns > alone_ns));
        assert_true(mixed.result.allocator_peak_bytes > 0);
        scenario_run_fini(&alone);
        scenario_run_fini(&mixed);
    }
    static const char slices[] = "'memory': {'recompute': 'full'}, 'strategy': {'kind': "
                                 "'chunkflow', 'chunk_tokens': 512}";
    scenario_run four, eight, none;
    run_good(json_text(SLICED ", %s}", 4, "mixer", "'attention'", slices), &counted, &four);
    run_good(json_text(SLICED ", %s}", 8, "layer_kinds", alternating, slices), &counted, &eight);
    run_good(json_text(SLICED ", %s}", 8, "mixer", "'none'", slices), &counted, &none);
    for (int c = SP_MEM_KV_CACHE; c <= SP_MEM_KV_GRADIENTS; c++) {
        assert_true(four.result.peak.of[c] > 0);
        assert_int_equal(eight.result.peak.of[c], four.result.peak.of[c]);
        assert_int_equal(none.result.peak.of[c], 0);
    }
    scenario_run_fini(&four);
    scenario_run_fini(&eight);
    scenario_run_fini(&none);
#undef SLICED
}

// In whichever order kinds of layers come: what is recomputed of those with attention, hidden
// behind their projection and shared in zones is as much. Of two models that have the same layers.
TEST(the_first_layer_need_not_attend)
{
#define ZONES                                                                             \
    ", 'parallel': {'dp': 4}, 'strategy': {'kind': 'zeppelin'}, 'memory': {'recompute': " \
    "'full'}"
#define ORDERED                                                                            \
    "{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, "      \
    "'layer_kinds': %s}, 'cluster': 'h100-8', 'workload': {'lengths': [8000, 300, 2000], " \
    "'context': 8192}%s}"
    static const char *const orders[][2] = {
        {"[{'mixer': 'none'}, {}]", "[{}, {'mixer': 'none'}]"},
        {"[{'mixer': 'gated-delta'}, {}], " SIZES, "[{}, {'mixer': 'gated-delta'}], " SIZES}};
    static const char *const rest[] = {
        ", 'memory': {'recompute': 'full'}",
        ", 'memory': {'recompute': 'attention'}",
        ", 'memory': {'recompute': 'full', 'attention': 'unfused'}",
        ", 'parallel': {'cp': 2}, 'stack': {'name': 'ours', 'cp_overlap': 'qkv'}",
        ", 'parallel': {'cp': 2}, 'memory': {'recompute': 'attention'}",
        ZONES};
    for (size_t i = 0; i < 2 * sizeof rest / sizeof rest[0]; i++) {
        scenario_run first, last;
        bool shares = strstr(rest[i / 2], "parallel") != NULL; // not with a state
        if (i % 2 == 1 && shares) {
            continue;
        }
        run_good(json_text(ORDERED, orders[i % 2][0], rest[i / 2]), &run_verified, &first);
        run_good(json_text(ORDERED, orders[i % 2][1], rest[i / 2]), &run_verified, &last);
        assert_close(first.result.iteration_ns, last.result.iteration_ns, 1e-9);
        assert_true(first.result.batches[0].facts.lower_bound_ns <= first.result.iteration_ns);
        scenario_run_fini(&first);
        scenario_run_fini(&last);
    }
#undef ORDERED
#undef ZONES
}

// Strategies and schedules that cut samples, or share them among ranks, are refused by name.
TEST(slices_are_refused)
{
    static const struct {
        const char *rest, *told;
    } cases[] = {
        {", 'parallel': {'pp': 2}, 'strategy': {'kind': 'slimpipe', 'slice_tokens': 512}",
         "\"slimpipe\", with schedule \"slimpipe\", cuts samples into slices"},
        {", 'parallel': {'pp': 2}, 'strategy': {'kind': 'chunkflow', 'chunk_tokens': 512}",
         "\"chunkflow\", with schedule \"chunkflow\", cuts samples into slices"},
        {", 'parallel': {'pp': 2}, 'schedule': {'kind': 'seq1f1b', 'slices': 4}",
         "with schedule \"seq1f1b\", cuts samples into slices"},
        {", 'parallel': {'dp': 2}, 'strategy': {'kind': 'te-cp'}",
         "\"te-cp\", with schedule \"1f1b\", shares samples among ranks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO(scenario_run) run;
        sp_error err = {0};
        sp_status status =
            run_text(json_text(STATE "%s}", cases[i].rest), &run_verified, &run, &err);
        assert_int_equal(status, SP_ERR_CONTENT);
        must_hold(strstr(err.message[0], cases[i].told) != NULL, "%s, expected %s", err.message[0],
                  cases[i].told);
    }
}

// No logged step has such layers, so that none's error is taken over.
TEST(logged_steps_are_unlike)
{
    AUTO(sp_scenario) scenario;
    sp_step_kind kind;
    must_succeed(run_read(json_text(STATE "}"), &scenario, ERR));
    sp_step_kind_of(&scenario, &scenario.profile, 0.0, 1.0, &kind);
    assert_string_equal(kind.word[SP_STEP_ATTENTION], "with states");
}

static sp_model read_model(const char *quoted, sp_error *err)
{
    json_auto_t *root = NULL;
    sp_model model;
    const char *text = json_text("%s", quoted);
    must_succeed(sp_json_read_text(text, strlen(text), "s.json", &root, ERR));
    sp_object object;
    sp_error_clear(err);
    sp_object_begin(&object, root, "s.json", "model", err);
    sp_model_from_object(&object, &model);
    return model;
}

#define BASE "{'layers': 4, 'hidden': 64, 'ffn': 64, 'heads': 4, 'vocab': 10"

TEST(shapes_that_contradict_themselves)
{
    static const struct {
        const char *rest, *told;
    } cases[] = {
        {", 'mixer': 'mamba2'", "state_heads: layers with a state need it"},
        {", 'state_heads': 4",
         "state_heads: is of layers with a state, of which the model has none"},
        {", 'mixer': 'mamba2', 'state_heads': 6, 'state_groups': 4, 'state_head_dim': 8, "
         "'state_dim': 8, 'state_conv': 4",
         "state_groups: 4 groups do not divide 6 heads"},
        {", 'mixer': 'none', 'without_mlp': true", "without_mlp: a layer without attention"},
        {", 'layer_kinds': [{'mixer': 'none', 'without_mlp': true}, {}]",
         "layer_kinds: a layer without attention"},
        {", 'without_mlp': true, 'experts': 4, 'experts_per_token': 1", "has no experts"},
        {", 'layer_kinds': [{'mixer': 'rwkv'}]", "expected one of"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_error err;
        char text[400];
        snprintf(text, sizeof text, BASE "%s}", cases[i].rest);
        read_model(text, &err);
        assert_true(err.count > 0);
        must_hold(strstr(err.message[0], cases[i].told) != NULL, "%s, expected %s", err.message[0],
                  cases[i].told);
    }
}

// What is written is read back as it was.
TEST(documents_say_all)
{
    sp_error err;
    sp_model model = read_model(BASE ", 'attention_gate': true, 'layer_kinds': [{'layers': 2, "
                                     "'mixer': 'mamba2'}, {'mixer': 'none'}, {'without_mlp': "
                                     "true}], 'state_heads': 4, 'state_groups': 2, "
                                     "'state_head_dim': 8, 'state_dim': 16, 'state_conv': 4}",
                                &err);
    assert_int_equal(err.count, 0);
    json_auto_t *document = sp_model_to_json(&model);
    AUTO_FREE char *written = json_dumps(document, 0);
    sp_object object;
    sp_model again;
    sp_object_begin(&object, document, "s.json", "model", ERR);
    sp_model_from_object(&object, &again);
    assert_int_equal(ERR->count, 0);
    json_auto_t *twice = sp_model_to_json(&again);
    assert_true(json_equal(document, twice));
    assert_int_equal(sp_model_parameters(&model), sp_model_parameters(&again));
}
