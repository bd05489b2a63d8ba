// Layers with experts: shared experts with and without a gate, biases, sinks and norms that some
// models have alone, and what is kept of such a layer, against sums written out here.
#include "sim/cost/cost_model.h"
#include "sim/memory/saved_tensors.h"
#include "sim/model/inventory.h"
#include "sim/model/parameter_list.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static const sp_layout single = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};

// Qwen1.5-MoE-A2.7B's layer, with fewer of them.
static const sp_model routed = {
    .name = "m", LLAMA_SHAPE(2, 2048, 1408, 16, 8, 32000), .experts = 60, .experts_per_token = 4};

enum { SHARED = 5632, V = 32000, H = 2048, F = 1408, E = 60, K = 4, A = 16, G = 8, D = 128 };

static int64_t more(void (*change)(sp_model *model))
{
    sp_model model = routed;
    int64_t before = sp_model_parameters(&model);
    change(&model);
    assert_int_equal(sp_model_check(&model, "test", "", ERR), SP_OK);
    // The list of tensors agrees, and so does what a rank of two holds of what is split.
    const sp_stage all = {.layers = model.layers, .embedding = true, .head = true};
    for (int tp = 1; tp <= 2; tp++) {
        sp_layout layout = single;
        AUTO(sp_parameter_list) list = {0};
        int64_t sum = 0;
        layout.tp = tp;
        sp_parameter_list_add(&model, &layout, &all, true, &list);
        for (size_t i = 0; i < list.count; i++) {
            sum += list.items[i].elements;
        }
        assert_int_equal(sum, sp_footprint_parameters(&model, &layout, &all, 1));
        assert_true(tp > 1 || sum == sp_model_parameters(&model));
    }
    return sp_model_parameters(&model) - before;
}

static void share(sp_model *model)
{
    model->shared_ffn = SHARED;
}

static void gate(sp_model *model)
{
    share(model);
    model->shared_gate = true;
}

static void attention_bias(sp_model *model)
{
    model->qkv_bias = model->output_bias = true;
}

static void mlp_bias(sp_model *model)
{
    model->mlp_bias = model->router_bias = true;
}

static void shared_bias(sp_model *model)
{
    share(model);
    model->mlp_bias = true;
}

static void sinks(sp_model *model)
{
    model->attention_sinks = true;
}

static void head_bias(sp_model *model)
{
    model->head_bias = true;
}

static void head_norm(sp_model *model)
{
    model->qk_norm = true;
}

static void whole_norm(sp_model *model)
{
    model->qk_norm = model->qk_norm_whole = true;
}

TEST(parameters_by_hand)
{
    assert_int_equal(more(share), 2 * 3 * H * SHARED);
    assert_int_equal(more(gate), 2 * (3 * H * SHARED + H));
    assert_int_equal(more(attention_bias), 2 * ((A + 2 * G) * D + H));
    assert_int_equal(more(mlp_bias), 2 * (E * (2 * F + H) + E));
    assert_int_equal(more(shared_bias), 2 * (3 * H * SHARED + 2 * SHARED + H + E * (2 * F + H)));
    assert_int_equal(more(sinks), 2 * A);
    assert_int_equal(more(head_bias), V);
    assert_int_equal(more(head_norm), 2 * 2 * D);
    assert_int_equal(more(whole_norm), 2 * (A + G) * D);
}

static sp_inventory operators(const sp_model *model, const sp_layout *layout, sp_part part,
                              sp_pass pass)
{
    static const sp_stack stack = {.fused_swiglu = true};
    sp_inventory inventory;
    sp_inventory_build(model, layout, &stack, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE, part, pass,
                       &inventory);
    return inventory;
}

static double sum_of(const sp_inventory *inventory, sp_op_kind kind)
{
    double sum = 0.0;
    for (int i = 0; i < inventory->count; i++) {
        const sp_op *op = &inventory->ops[i];
        sum += op->kind == kind ? op->bytes_per_token + op->bytes_fixed : 0.0;
    }
    return sum;
}

// Shared experts are the MLP of a dense layer of their width beside the routed one: products, and
// gathers and reductions over TP, of one dense MLP more, and the sum of both.
TEST(shared_experts_cost_a_dense_mlp)
{
    sp_model dense = routed;
    sp_model shared = routed;
    sp_model gated = routed;
    dense.experts = dense.experts_per_token = 0;
    dense.ffn = SHARED;
    share(&shared);
    gate(&gated);
    sp_layout layouts[] = {single, single};
    layouts[1].tp = 4;
    layouts[1].sequence_parallel = true;
    for (int l = 0; l < 2; l++) {
        const sp_layout *layout = &layouts[l];
        for (int p = SP_PASS_F; p <= SP_PASS_W; p++) {
            sp_inventory without = operators(&routed, layout, SP_PART_LAYER, (sp_pass)p);
            sp_inventory with = operators(&shared, layout, SP_PART_LAYER, (sp_pass)p);
            sp_inventory of_gate = operators(&gated, layout, SP_PART_LAYER, (sp_pass)p);
            sp_inventory one = operators(&dense, layout, SP_PART_LAYER, (sp_pass)p);
            double added = sp_inventory_flops(&with, &shared, layout, (sp_pass)p, 1.0, 0.0) -
                           sp_inventory_flops(&without, &routed, layout, (sp_pass)p, 1.0, 0.0);
            assert_close(added, 6.0 * H * SHARED / layout->tp, 1e-9);
            double scores = sp_inventory_flops(&of_gate, &gated, layout, (sp_pass)p, 1.0, 0.0) -
                            sp_inventory_flops(&with, &shared, layout, (sp_pass)p, 1.0, 0.0);
            assert_close(scores, 2.0 * H / layout->tp, 1e-6);
            // A dense layer has one gather for its attention and one for its MLP.
            double gathers = sum_of(&one, SP_OP_ALL_GATHER) / 2.0;
            assert_close(sum_of(&with, SP_OP_ALL_GATHER) - sum_of(&without, SP_OP_ALL_GATHER),
                         gathers, 1e-9);
            double scatters = sum_of(&one, SP_OP_REDUCE_SCATTER) / 2.0;
            assert_close(sum_of(&with, SP_OP_REDUCE_SCATTER) -
                             sum_of(&without, SP_OP_REDUCE_SCATTER),
                         scatters, 1e-9);
        }
        // Gate and up are read and their product written; two hidden states are read and one is
        // written; the gate reads and writes one.
        sp_inventory without = operators(&routed, layout, SP_PART_LAYER, SP_PASS_F);
        sp_inventory with = operators(&shared, layout, SP_PART_LAYER, SP_PASS_F);
        sp_inventory of_gate = operators(&gated, layout, SP_PART_LAYER, SP_PASS_F);
        double split = l == 1 ? 4.0 : 1.0;
        assert_close(sum_of(&with, SP_OP_MEMORY) - sum_of(&without, SP_OP_MEMORY),
                     3.0 * 2.0 * SHARED / layout->tp + 3.0 * 2.0 * H / split, 1e-9);
        assert_close(sum_of(&of_gate, SP_OP_MEMORY) - sum_of(&with, SP_OP_MEMORY),
                     2.0 * 2.0 * H / split, 1e-9);
    }
}

// What Megatron Core keeps of a layer with experts, in bytes of a token (flash attention, fused
// SwiGLU, no recomputation): inputs and outputs of both norms are of the rank's own tokens, queries
// to attention output and the shared experts of its heads and features.
static int64_t kept_of_tokens(const sp_model *model, const sp_layout *layout, bool efficient)
{
    const sp_memory_options options = {
        .stack = {.fused_swiglu = true, .memory_efficient_permutation = efficient}};
    const sp_stage stage = {.layers = 1};
    const sp_unit_load load = {.tokens = 4096};
    sp_unit_tensor tensors[SP_UNIT_TENSORS];
    int count = sp_unit_tensors(model, layout, &stage, &options, &load, tensors);
    int64_t sum = 0;
    for (int i = 0; i < count; i++) {
        sum += tensors[i].count * tensors[i].bytes;
    }
    return sum;
}

// Of four tokens, which TP ranks of four have one of.
static int64_t kept_bytes(const sp_model *model, const sp_layout *layout, bool efficient)
{
    int64_t sum = kept_of_tokens(model, layout, efficient);
    assert_int_equal(sum % 1024, 0);
    return sum / 1024;
}

TEST(kept_of_a_layer)
{
    sp_model model = routed;
    for (int tp = 1; tp <= 4; tp *= 4) {
        sp_layout layout = single;
        layout.tp = tp;
        layout.sequence_parallel = tp > 1;
        int64_t attention = 4 * (2 * (A + 2 * G) * D + 2 * A * D + 4 * A) / tp;
        int64_t norms = 4 * 4 * 2 * H / tp;
        int64_t router = 4 * (4 * E + E) / tp;
        int64_t experts = 4 * K * (2 * H + 4 * F / tp + 2 * F / tp + 4 + 4);
        int64_t shared = 4 * (4 * SHARED + 2 * SHARED) / tp;
        int64_t sum = attention + norms + router + experts;
        assert_int_equal(kept_bytes(&model, &layout, true), sum);
        assert_int_equal(kept_bytes(&model, &layout, false), sum + 4 * K * 2 * H);
        sp_model with = model;
        share(&with);
        assert_int_equal(kept_bytes(&with, &layout, true), sum + shared);
        gate(&with); // its number, and what it is multiplied with
        assert_int_equal(kept_bytes(&with, &layout, true), sum + shared + 4 * (2 * H + 2) / tp);
    }
}

// Without a fused activation that takes the probabilities, autograd keeps what they are multiplied
// with beside the product (Megatron-LM, core/transformer/mlp.py); where they come behind the
// experts, the experts' outputs.
TEST(kept_of_an_activation_that_is_not_gated)
{
    sp_model model = routed;
    model.activation = SP_SQUARED_RELU;
    int64_t others =
        4 * (2 * (A + 2 * G) * D + 2 * A * D + 4 * A) + 4 * 4 * 2 * H + 4 * (4 * E + E);
    int64_t experts = 4 * K * (2 * H + 2 * F + 2 * F + 4 + 4);
    assert_int_equal(kept_bytes(&model, &single, true), others + experts + 4 * K * 2 * F);
    assert_int_equal(kept_bytes(&model, &single, false), others + experts + 4 * K * 2 * H);
}

// 4096 tokens choose 4 of 60 experts: an even share of 273.07 rows, of which 1.25 are 341.33, so
// 342 for each and 20,520 for all, 5,130 tokens' worth. On ranks of four 1024 tokens each: 85.33
// rows, 86 for each expert, 5,160 from each rank. Megatron-LM: ceil(tokens * k / experts * factor).
TEST(kept_of_padded_rows)
{
    static const struct {
        int tp, ep;
        int64_t rows;
    } cases[] = {{1, 1, 20520}, {4, 4, 5160}};
    sp_model model = routed;
    model.expert_capacity_factor = 1.25;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        sp_layout layout = single;
        layout.tp = cases[i].tp;
        layout.ep = cases[i].ep;
        layout.etp = cases[i].ep > 1;
        layout.sequence_parallel = layout.tp > 1;
        int64_t even = 4096 * K / layout.tp;
        int64_t row = 2 * H + 4 * F + 2 * F + 4 + 4;
        int64_t dropless = kept_bytes(&routed, &layout, true) * 1024;
        assert_int_equal(kept_of_tokens(&model, &layout, true),
                         dropless + (cases[i].rows - even) * row);
    }
}

// Twice the even share: experts' products and what is sent to other ranks and back twice, and all
// else as without.
TEST(padded_rows_are_computed_and_sent)
{
    sp_layout layout = single;
    layout.dp = layout.ep = 4;
    layout.etp = 1;
    sp_model model = routed;
    model.expert_capacity_factor = 2.0;
    sp_inventory even = operators(&routed, &layout, SP_PART_LAYER, SP_PASS_F);
    sp_inventory padded = operators(&model, &layout, SP_PART_LAYER, SP_PASS_F);
    int doubled = 0;
    assert_int_equal(even.count, padded.count);
    for (int i = 0; i < even.count; i++) {
        const sp_op *a = &even.ops[i];
        const sp_op *b = &padded.ops[i];
        bool rows = a->routed || a->kind == SP_OP_EXPERT_ALL_TO_ALL ||
                    strcmp(a->name, "expert permutation") == 0;
        assert_close(b->token_share,
                     (a->of_experts && a->kind == SP_OP_GEMM ? 2.0 : 1.0) * a->token_share, 1e-12);
        assert_close(b->bytes_per_token, (rows ? 2.0 : 1.0) * a->bytes_per_token, 1e-12);
        doubled += rows;
    }
    assert_true(doubled >= 6);
}

// A tenth of the even share: nine of ten rows are dropped. With all experts for each token and
// wide ones the rows that are counted and not computed would be more than the GPU's peak.
TEST(dropped_rows_are_told)
{
    static const char wide[] =
        "{'model': {'layers': 2, 'hidden': 4096, 'ffn': 65536, 'heads': 32, 'vocab': 1000, "
        "'experts': 8, 'experts_per_token': 8, 'expert_capacity_factor': %s}, 'cluster': "
        "'h100-8', 'parallel': {'tp': 8}, 'workload': {'uniform': 4096, 'samples_per_batch': 4}}";
    static const char *const told = "at least 90 % of the rows";
    SCENARIO_RUN(run, json_text(wide, "0.1"), &run_verified);
    assert_true(sp_result_mfu(&run.result, SP_FLOPS_CAUSAL) > 1.0);
    assert_true(run_warned(&run.result.warnings, told));
    scenario_run_fini(&run);
    run_good(json_text(wide, "1"), &run_verified, &run);
    assert_false(run_warned(&run.result.warnings, "are dropped"));
}

TEST(a_capacity_needs_an_all_to_all)
{
    AUTO(sp_scenario) scenario;
    must_fail_with(
        run_read(
            "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, "
            "'experts': 8, 'experts_per_token': 2, 'expert_capacity_factor': 1}, 'cluster': "
            "'h100-8', 'workload': {'uniform': 4096}, 'parallel': {'dp': 4, 'ep': 4}, 'stack': "
            "{'name': 'megatron-core-2025', 'dispatcher': 'allgather'}}",
            &scenario, ERR),
        SP_ERR_CONTENT, "model.expert_capacity_factor: needs stack.dispatcher");
    sp_error_clear(ERR);
}

// Four ranks that each hold whole experts, a quarter of them: a rank has as many rows as its own
// tokens have experts, of whole width, and of the shared experts the features of a TP rank for the
// tokens of all four.
TEST(kept_of_a_layer_with_experts_on_other_ranks)
{
    sp_model model = routed;
    gate(&model);
    sp_layout layout = single;
    layout.tp = layout.ep = 4;
    layout.etp = 1;
    layout.sequence_parallel = true;
    int64_t attention = 4 * (2 * (A + 2 * G) * D + 2 * A * D + 4 * A) / 4;
    int64_t own = 4 * 2 * H + (4 * E + E) + (2 * H + 2);
    int64_t experts = K * (2 * H + 4 * F + 2 * F + 4 + 4);
    int64_t shared = 4 * (4 * SHARED + 2 * SHARED) / 4;
    assert_int_equal(kept_bytes(&model, &layout, true), attention + own + experts + shared);
}

// Megatron-LM's num_floating_point_operations without the router, with causal pairs: 6 FLOPs for
// each weight that a token passes, and 6 * heads * head_dim * tokens for the attention.
TEST(flops_count_shared_experts_and_no_router)
{
    sp_model model = routed;
    gate(&model);
    double weights =
        (double)H * (A + 2 * G) * D + (double)A * D * H + 3.0 * H * F * K + 3.0 * H * SHARED;
    double tokens = 4096.0;
    double expected = 2.0 * (model.layers * weights + (double)V * H) * tokens +
                      model.layers * 4.0 * A * D * tokens * tokens / 2.0;
    assert_close(sp_model_forward_flops(&model, tokens, tokens * tokens), expected, 1e-12);
}

static void object_fails(const char *more_keys, const char *message)
{
    char text[512];
    sp_model model;
    sp_object object;
    snprintf(text, sizeof text,
             "{'layers': 4, 'hidden': 64, 'ffn': 96, 'heads': 4, 'vocab': 100%s}", more_keys);
    json_auto_t *root = json_document(text);
    sp_error_clear(ERR);
    sp_object_begin(&object, root, "s.json", "model", ERR);
    sp_model_from_object(&object, &model);
    if (message == NULL) {
        assert_int_equal(ERR->count, 0);
        json_auto_t *written = sp_model_to_json(&model);
        sp_model again;
        sp_object_begin(&object, written, "s.json", "model", ERR);
        sp_model_from_object(&object, &again);
        assert_int_equal(ERR->count, 0);
        assert_memory_equal(&again, &model, sizeof model);
        return;
    }
    assert_int_equal(ERR->count, 1);
    assert_string_equal(ERR->message[0], message);
    sp_error_clear(ERR);
}

TEST(objects_that_are_read)
{
    object_fails(", 'experts': 4, 'experts_per_token': 2, 'shared_ffn': 32, 'shared_gate': true",
                 NULL);
    object_fails(", 'experts': 4, 'experts_per_token': 2, 'shared_ffn': 32, 'mlp_bias': true, "
                 "'router_bias': true, 'attention_sinks': true, 'output_bias': true, "
                 "'layer_kinds': [{'experts': 0, 'ffn': 128}, {'layers': 2}, {'shared_ffn': 64}]",
                 NULL);
    object_fails(", 'bias': true, 'head_bias': true, 'qk_norm': true, 'qk_norm_whole': true", NULL);
    object_fails(", 'shared_ffn': 32",
                 "s.json: model.shared_ffn: shared experts stand beside experts, and there are "
                 "none (experts)");
    object_fails(", 'experts': 4, 'experts_per_token': 2, 'shared_gate': true",
                 "s.json: model.shared_gate: a gate is of shared experts, and there are none "
                 "(shared_ffn)");
    object_fails(", 'experts': 4, 'experts_per_token': 2, 'layer_kinds': [{'shared_gate': true}]",
                 "s.json: model.layer_kinds: a gate is of shared experts, and there are none "
                 "(shared_ffn)");
    object_fails(", 'router_bias': true",
                 "s.json: model.router_bias: is true, and no layer has a router (experts)");
    object_fails(", 'qk_norm_whole': true",
                 "s.json: model.qk_norm_whole: is true, and queries and keys have no norm "
                 "(qk_norm)");
    object_fails(", 'bias': true, 'mlp_bias': false",
                 "s.json: model.mlp_bias: is false, while \"bias\" gives every linear layer one, "
                 "that of the MLP too");
}

static void scenario_fails(const char *model, const char *rest, const char *message)
{
    char text[1024];
    sp_scenario scenario;
    snprintf(text, sizeof text,
             "{'model': {'layers': 4, 'hidden': 64, 'ffn': 96, 'heads': 4, 'vocab': 100%s}, "
             "'workload': {'lengths': [64, 32], 'context': 64}, %s}",
             model, rest);
    json_auto_t *root = json_document(text);
    must_fail_with(sp_scenario_from_json(root, "s.json", NULL, 0, &scenario, ERR), SP_ERR_CONTENT,
                   message);
}

TEST(scenarios_that_are_refused)
{
    scenario_fails(", 'qk_norm': true, 'qk_norm_whole': true", "'parallel': {'tp': 2}",
                   "s.json: parallel.tp: is 2, and norms over the heads");
    scenario_fails(", 'experts': 4, 'experts_per_token': 2, 'shared_ffn': 32",
                   "'stack': 'reference', 'parallel': {'tp': 2}",
                   "s.json: stack.tensors: is \"explicit\"");
    scenario_fails(", 'experts': 4, 'experts_per_token': 2, 'shared_ffn': 33",
                   "'parallel': {'tp': 2}",
                   "s.json: parallel.tp: a shared_ffn of 33 cannot be split over 2 ranks");
}
