// Layers that predict further tokens (multi-token prediction, DeepSeek-V3, arXiv 2412.19437,
// section 2.2), by hand.
#include "sim/memory/footprint.h"
#include "sim/model/inventory.h"
#include "sim/model/layout.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { H = 1024, FFN = 4096, V = 32000, TOKENS = 4096 };

static const sp_layout alone = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};

static sp_model model_of(int further)
{
    return (sp_model){.name = "m", LLAMA_SHAPE(8, H, FFN, 16, 16, V), .mtp_layers = further};
}

// Weights of a layer's products.
static const int64_t layer = INT64_C(4) * H * H + INT64_C(3) * H * FFN;

// A layer with its norms, the projection of joined states, and norms of the embedding, of the
// hidden states and before the head, which all tokens share with the embedding.
TEST(parameters_by_hand)
{
    for (int further = 0; further <= 2; further++) {
        sp_model model = model_of(further);
        int64_t each = layer + 2 * H + INT64_C(2) * H * H + 3 * H;
        assert_int_equal(sp_model_parameters(&model),
                         8 * (layer + 2 * H) + INT64_C(2) * V * H + H + further * each);
    }
}

// Forward 2 FLOPs a weight and token: of the projection 4 h^2, of the layer, and of logits again.
TEST(flops_by_hand)
{
    for (int further = 0; further <= 2; further++) {
        sp_model model = model_of(further);
        double pairs = 0.5 * TOKENS * TOKENS;
        double layers = (8.0 + further) * (2.0 * (double)layer * TOKENS + 4.0 * H * pairs);
        double logits = (1.0 + further) * 2.0 * (double)V * H * TOKENS;
        double all = layers + logits + further * 4.0 * (double)H * H * TOKENS;
        assert_close(sp_model_forward_flops(&model, TOKENS, 2.0 * pairs), all, 1e-12);
        const sp_stack ours = {.name = "ours"};
        for (int pass = SP_PASS_F; pass <= SP_PASS_W; pass++) {
            sp_inventory head;
            sp_inventory_build(&model, &alone, &ours, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                               SP_PART_HEAD, (sp_pass)pass, &head);
            assert_close(sp_inventory_flops(&head, &model, &alone, (sp_pass)pass, TOKENS, 0.0),
                         all - layers, 1e-12);
        }
    }
}

static void stages_of(const sp_model *model, const sp_layout *layout, sp_stage *stages)
{
    must_succeed(sp_layout_stages(layout, model, "test", stages, ERR));
}

// They stand behind the last layer and are of its kind.
TEST(the_last_stage_has_them)
{
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 4, .dp = 1, .chunks = 1};
    sp_model model = model_of(2);
    model.kinds = model.runs = 2;
    model.kind[0] = (sp_layer_mlp){.ffn = FFN};
    model.kind[1] = (sp_layer_mlp){.ffn = 512, .experts = 4, .experts_per_token = 2};
    model.run[0] = (sp_layer_run){1, 0};
    model.run[1] = (sp_layer_run){3, 1};
    sp_stage stages[4];
    stages_of(&model, &layout, stages);
    for (int s = 0; s < 4; s++) {
        assert_int_equal(stages[s].layers, s == 3 ? 4 : 2);
        assert_int_equal(stages[s].count[0], s % 2 == 0);
        assert_int_equal(stages[s].count[1], s == 3 ? 4 : s % 2 == 0 ? 1 : 2);
    }
}

// Of a token: a layer's tensors; the embedding and the projection's output, both matrices that are
// joined, what the norm before the head gives, and logits with a softmax in place of them.
TEST(saved_bytes_by_hand)
{
    sp_model with = model_of(1);
    sp_model without = model_of(0);
    const sp_memory_options options = {
        .stack = {.name = "s", .fused_swiglu = true, .fused_cross_entropy = true}};
    const sp_unit_load load = {.tokens = TOKENS};
    sp_stage stage[2];
    sp_unit_bytes unit[2];
    stages_of(&with, &alone, &stage[0]);
    stages_of(&without, &alone, &stage[1]);
    sp_footprint_unit(&with, &alone, &stage[0], &options, &load, &unit[0]);
    sp_footprint_unit(&without, &alone, &stage[1], &options, &load, &unit[1]);
    int64_t of_layer = 2 * (5 * H) + 2 * 3 * H + 4 * 16 + 2 * 3 * FFN;
    int64_t of_head = 2 * (H + H + 2 * H + H);
    assert_int_equal(unit[0].held.of[SP_MEM_ACTIVATIONS] - unit[1].held.of[SP_MEM_ACTIVATIONS],
                     TOKENS * (of_layer + of_head));
    assert_int_equal(unit[0].held.of[SP_MEM_LOGITS], 2 * unit[1].held.of[SP_MEM_LOGITS]);
    assert_int_equal(unit[1].held.of[SP_MEM_LOGITS], INT64_C(2) * TOKENS * V);
}

// The rank of the head looks tokens up as well, so that it holds the embedding too.
TEST(the_last_rank_holds_the_embedding)
{
    sp_layout layout = {.tp = 2, .cp = 1, .pp = 4, .dp = 1, .chunks = 1};
    for (int tied = 0; tied < 2; tied++) {
        sp_model model = model_of(1);
        model.tied_embeddings = tied == 1;
        sp_stage stages[4];
        stages_of(&model, &layout, stages);
        int64_t layers = 3 * (layer / 2 + 2 * H);
        int64_t further = INT64_C(2) * H * H / 2 + 3 * H;
        int64_t tables = (tied ? 1 : 2) * INT64_C(16000) * H;
        assert_int_equal(sp_footprint_parameters(&model, &layout, &stages[3], 1),
                         layers + further + H + tables);
    }
}

#define MODEL                                                                         \
    "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, " \
    "'mtp_layers': 1}, 'cluster': 'h100-8', 'workload': {'lengths': [4096, 300, 1500, 700]}"

TEST(steps_run)
{
    static const char *const rest[] = {
        "",
        ", 'parallel': {'tp': 2, 'cp': 2, 'pp': 2}",
        ", 'parallel': {'pp': 2}, 'schedule': {'kind': 'zb-h1'}",
        ", 'parallel': {'pp': 2, 'chunks_per_rank': 2}, 'schedule': {'kind': 'zb-v'}",
        ", 'parallel': {'dp': 2, 'zero': 3}",
        ", 'memory': {'recompute': 'full'}",
    };
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
        SCENARIO_RUN(run, json_text(MODEL "%s}", rest[i]), &run_verified);
        assert_true(run.result.iteration_ns > 0);
    }
}

TEST(what_does_not_know_them_is_refused)
{
    static const struct {
        const char *rest, *told;
    } cases[] = {
        {", 'stack': 'reference'", "hand-written passes"},
        {", 'stack': {'name': 'ours', 'loss_chunks': 4}", "loss_chunks"},
        {", 'stack': {'name': 'ours', 'gathered_logits': true}", "gathered_logits"},
        {", 'memory': {'model': 'slimpipe-planner'}", "slimpipe-planner"},
        {", 'parallel': {'pp': 2, 'vocab_parallel': true}", "vocab_parallel"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO(sp_scenario) scenario;
        sp_error err = {0};
        assert_int_equal(run_read(json_text(MODEL "%s}", cases[i].rest), &scenario, &err),
                         SP_ERR_CONTENT);
        bool told = false;
        for (int m = 0; m < err.count; m++) {
            told = told || strstr(err.message[m], cases[i].told) != NULL;
        }
        assert_true(told);
    }
}
