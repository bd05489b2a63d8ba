// Layers of several kinds (model.layer_kinds): parameters, times and memory of a mixture against
// those of models whose layers are all of one kind, and whole steps against the longest path in
// igraph.
#include "sim/cost/cost_model.h"
#include "solver/evaluate/evaluate.h"
#include "tests/support/flat_profile.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

enum { LAYERS = 12, DENSE_FFN = 4096, EXPERT_FFN = 1024 };

static const sp_layer_mlp dense = {.ffn = DENSE_FFN};
static const sp_layer_mlp routed = {.ffn = EXPERT_FFN, .experts = 8, .experts_per_token = 2};

static sp_model model_of(sp_layer_mlp mlp)
{
    return (sp_model){.name = "m",
                      LLAMA_SHAPE(LAYERS, 1024, mlp.ffn, 16, 4, 32000),
                      .experts = mlp.experts,
                      .experts_per_token = mlp.experts_per_token};
}

// Runs of dense and of routed layers in turn, of so many layers each.
static sp_model mixture(int dense_run, int routed_run)
{
    sp_model model = model_of(dense);
    model.kinds = model.runs = 2;
    model.kind[0] = dense;
    model.kind[1] = routed;
    model.run[0] = (sp_layer_run){dense_run, 0};
    model.run[1] = (sp_layer_run){routed_run, 1};
    return model;
}

// A dense SwiGLU has three matrices of hidden x ffn; a routed one as many for each expert, and a
// router of hidden x experts.
TEST(parameters_are_those_of_the_kinds)
{
    sp_model all = model_of(dense);
    for (int first = 1; first < LAYERS; first++) {
        sp_model model = mixture(first, LAYERS - first);
        int64_t more =
            8 * 3 * INT64_C(1024) * EXPERT_FFN + 1024 * 8 - 3 * INT64_C(1024) * DENSE_FFN;
        assert_int_equal(sp_model_parameters(&model),
                         sp_model_parameters(&all) + (LAYERS - first) * more);
        int count[SP_LAYER_KINDS];
        sp_model_count_kinds(&model, 0, LAYERS, count);
        assert_int_equal(count[0], first);
        assert_int_equal(sp_model_kind_of(&model, first - 1), 0);
        assert_int_equal(sp_model_kind_of(&model, first), 1);
    }
}

// Every fourth layer of twelve is routed where a run of three and a run of one repeat.
TEST(runs_repeat)
{
    sp_model model = mixture(3, 1);
    for (int layer = 0; layer < LAYERS; layer++) {
        assert_int_equal(sp_model_kind_of(&model, layer), layer % 4 == 3);
    }
}

static sp_step_costs costs_of(const sp_model *model, const sp_layout *layout,
                              const sp_memory_options *memory)
{
    sp_cluster cluster = {
        .gpus_per_node = 8, .nics_per_node = 8, .nic_bytes_per_s = 50e9, .peak_flops_per_s = 1e15};
    AUTO(sp_profile) profile;
    AUTO(sp_cost_model) cost;
    AUTO(sp_packing) packing;
    sp_step_costs costs;
    must_succeed(sp_cluster_fit(&cluster, sp_layout_ranks(layout), "test", ERR));
    must_succeed(flat_profile(NULL, &profile, ERR));
    must_succeed(
        sp_cost_model_init(&cost, model, layout, &cluster, &profile, *memory, "test", ERR));
    sp_packing_init(&packing, NULL, layout->dp);
    pack_sample(&packing.forward, 0, 1, 0, 4096);
    must_succeed(sp_cost_model_build(&cost, &packing, &costs, ERR));
    return costs;
}

// Embedding and head are the same in all three models, so that a mixture of a and b layers takes a
// parts of one and b parts of the other.
static void is_between(double mixed, double all_dense, double all_routed, int dense_layers,
                       double tolerance)
{
    double share = (double)dense_layers / LAYERS;
    assert_within(mixed, share * all_dense + (1.0 - share) * all_routed, tolerance);
}

static void compare(int dense_run, int routed_run, const sp_memory_options *memory, int zero)
{
    const sp_layout layout = {.tp = 2, .cp = 1, .pp = 1, .dp = 4, .chunks = 1, .zero = zero};
    sp_model mixed = mixture(dense_run, routed_run);
    sp_model ones[] = {model_of(dense), model_of(routed)};
    sp_step_costs of[3] = {costs_of(&mixed, &layout, memory), costs_of(&ones[0], &layout, memory),
                           costs_of(&ones[1], &layout, memory)};
    int count[SP_LAYER_KINDS];
    sp_model_count_kinds(&mixed, 0, LAYERS, count);
    for (int kind = SP_ACTION_F; kind <= SP_ACTION_R; kind++) {
        if (of[0].action[kind] != NULL) {
            is_between((double)of[0].action[kind]->compute_ns,
                       (double)of[1].action[kind]->compute_ns,
                       (double)of[2].action[kind]->compute_ns, count[0], 4.0);
        }
    }
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        is_between((double)of[0].side[0].unit->held.of[c], (double)of[1].side[0].unit->held.of[c],
                   (double)of[2].side[0].unit->held.of[c], count[0], 1.0);
        is_between((double)of[0].side[0].unit->weights.of[c],
                   (double)of[1].side[0].unit->weights.of[c],
                   (double)of[2].side[0].unit->weights.of[c], count[0], 1.0);
    }
    // A pass needs no more than with the larger layers alone, and no less than with the smaller.
    int64_t backward[3];
    for (int i = 0; i < 3; i++) {
        backward[i] = sp_bytes_total(&of[i].side[0].unit->held) +
                      sp_bytes_total(&of[i].side[0].unit->backward);
    }
    assert_in_range(backward[0], backward[1] < backward[2] ? backward[1] : backward[2],
                    backward[1] < backward[2] ? backward[2] : backward[1]);
    for (int i = 0; i < 3; i++) {
        sp_step_costs_fini(&of[i]);
    }
}

TEST(costs_are_those_of_the_kinds)
{
    static const int runs[][2] = {{1, 11}, {3, 9}, {1, 1}, {2, 1}, {3, 1}};
    for (size_t r = 0; r < sizeof runs / sizeof runs[0]; r++) {
        for (int m = 0; m < SP_RECOMPUTE_MODES; m++) {
            for (int tensors = 0; tensors < 2; tensors++) {
                sp_memory_options memory = {.recompute = (sp_recompute)m};
                memory.stack.tensors = tensors == 0 ? SP_TENSORS_AUTOGRAD : SP_TENSORS_EXPLICIT;
                compare(runs[r][0], runs[r][1], &memory, 0);
                compare(runs[r][0], runs[r][1], &memory, 3);
            }
        }
    }
}

// The order of the layers changes no time on one stage without ZeRO 3, which waits for each layer's
// parameters.
TEST(order_changes_no_time_on_one_stage)
{
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    const sp_memory_options memory = {.recompute = SP_RECOMPUTE_FULL};
    sp_model apart = mixture(6, 6);
    sp_model in_turn = mixture(1, 1);
    AUTO(sp_step_costs) a = costs_of(&apart, &layout, &memory);
    AUTO(sp_step_costs) b = costs_of(&in_turn, &layout, &memory);
    assert_int_equal(a.action[SP_ACTION_F]->compute_ns, b.action[SP_ACTION_F]->compute_ns);
    assert_int_equal(a.action[SP_ACTION_B]->compute_ns, b.action[SP_ACTION_B]->compute_ns);
}

// Stages of one number of layers but other kinds, or another order of them, cost apart.
TEST(stages_differ_by_their_kinds)
{
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 4, .dp = 1, .chunks = 1};
    const sp_memory_options memory = {0};
    sp_model model = mixture(3, 9); // stages of 3: dense; then routed alone, and one with the head
    AUTO(sp_step_costs) costs = costs_of(&model, &layout, &memory);
    assert_int_equal(costs.classes, 3);
    assert_int_equal(costs.stages[1].cost_class, costs.stages[2].cost_class);
    assert_true(costs.stages[0].cost_class != costs.stages[1].cost_class);
    sp_step_costs_fini(&costs);
    model = mixture(1, 1); // d r d, r d r, d r d, r d r
    costs = costs_of(&model, &layout, &memory);
    assert_true(costs.stages[1].cost_class != costs.stages[2].cost_class);
}

// A rank keeps dummies of the shapes that its own layers have: 2 bytes for each number of gate and
// up, of the way back, of QKV (16 query heads, 4 of keys, 4 of values) and of the output.
TEST(dummies_are_of_the_ranks_own_kinds)
{
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 1};
    const sp_stack stack = {.dummy_weight_gradients = true};
    sp_model model = mixture(LAYERS / 2, LAYERS / 2);
    sp_stage stages[2];
    must_succeed(sp_layout_stages(&layout, &model, "test", stages, ERR));
    stages[1].head = false;
    const int64_t h = 1024;
    const int64_t attention = h * 64 * (16 + 4 + 4) + h * 64 * 16;
    const int64_t ffn[] = {DENSE_FFN, EXPERT_FFN};
    for (int s = 0; s < 2; s++) {
        int64_t bytes[SP_DUMMY_GRADIENTS];
        int64_t sum = 0;
        int count = sp_footprint_dummy_gradients(&model, &layout, &stack, &stages[s], 1, bytes);
        for (int i = 0; i < count; i++) {
            sum += bytes[i];
        }
        // The expert's way back has the shape of the output projection: 1024 x 1024.
        int64_t shared = ffn[s] == h ? h * h : 0;
        assert_int_equal(sum, 2 * (3 * h * ffn[s] + attention - shared));
    }
}

// ---- whole steps ----

static double step_ms(const char *schedule, const char *strategy, int pp, int zero,
                      const char *kinds)
{
    char text[2048];
    AUTO(sp_scenario) scenario;
    AUTO(sp_batches) batches;
    AUTO(sp_result) result;
    const sp_evaluate_options options = {.engine = {.verify = true}};
    snprintf(text, sizeof text,
             "{'model': {'layers': 8, 'hidden': 1024, 'ffn': 2816, 'heads': 16, 'vocab': 32000%s},"
             " 'cluster': 'h100-8', 'parallel': {'tp': 2, 'pp': %d, 'dp': 2, 'zero': %d},"
             " 'schedule': {'kind': '%s'}, 'strategy': {'kind': '%s'},"
             " 'workload': {'lengths': [8192, 512, 700, 4096, 100, 2048, 6000, 333, 1024, 256,"
             " 5000, 64], 'context': 8192, 'samples_per_batch': 12}}",
             kinds, pp, zero, schedule, strategy);
    json_auto_t *root = json_document(text);
    must_succeed_for(text, sp_scenario_from_json(root, "test", NULL, 0, &scenario, ERR));
    must_succeed_for(text, sp_evaluate_batches(&scenario, &batches, ERR));
    must_succeed_for(text, sp_evaluate(&scenario, &batches, &options, &result, ERR));
    return (double)result.batches[0].makespan_ns / 1e6;
}

TEST(steps_agree_with_the_longest_path)
{
    static const char kinds[] = ", 'layer_kinds': [{'layers': 1, 'ffn': 4096}, {'layers': 2, "
                                "'ffn': 1024, 'experts': 4, 'experts_per_token': 2}]";
    static const struct {
        const char *schedule, *strategy;
        int pp, zero;
    } steps[] = {{"1f1b", "packed", 1, 3},          {"1f1b", "packed", 2, 1},
                 {"zb-h1", "packed", 2, 0},         {"zb-v", "packed", 2, 0},
                 {"slimpipe", "packed", 2, 1},      {"packflow", "slimpack", 2, 1},
                 {"packflow", "slimpack-zb", 2, 0}, {"1f1b", "flexsp", 1, 3}};
    for (int i = 0; i < COUNT_OF(steps); i += test_step()) {
        double ms =
            step_ms(steps[i].schedule, steps[i].strategy, steps[i].pp, steps[i].zero, kinds);
        // One kind that is stated is no other model.
        double all = step_ms(steps[i].schedule, steps[i].strategy, steps[i].pp, steps[i].zero, "");
        double same = step_ms(steps[i].schedule, steps[i].strategy, steps[i].pp, steps[i].zero,
                              ", 'layer_kinds': [{'layers': 3}]");
        assert_true(all == same);
        assert_true(ms > all);
    }
}
