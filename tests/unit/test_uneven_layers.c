// parallel.stage_layers: pipeline stages of unlike depth, from parameters and costs to whole
// simulated steps. Expected are sums over the model, proportions between stages, and bounds that
// hold for every 1F1B step; every simulation is checked against the longest path in igraph.
#include "sim/cost/cost_model.h"
#include "sim/memory/planner_memory.h"
#include "sim/plan/plan_json.h"
#include "solver/evaluate/evaluate.h"
#include "tests/support/flat_profile.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

enum { TEXT = 2048, MOST_STAGES = 64, LAYERS = 40 };

// Single quotes stand for double ones.
static sp_status read_scenario(const char *text, sp_scenario *scenario, sp_error *err)
{
    json_auto_t *root = json_document(text);
    sp_error_clear(err);
    return sp_scenario_from_json(root, "test", NULL, 0, scenario, err);
}

static sp_model llama_13b(void)
{
    sp_model model;
    assert_int_equal(sp_model_builtin("llama-13b", &model, NULL), SP_OK);
    assert_int_equal(model.layers, LAYERS);
    return model;
}

// A random way to share LAYERS layers: the first and the last stage may stay empty.
static void share_out(sp_prng *prng, int stages, int layers[MOST_STAGES])
{
    int left = LAYERS;
    for (int s = 0; s < stages; s++) {
        layers[s] = 0;
    }
    while (left-- > 0) {
        layers[sp_prng_below(prng, (uint64_t)stages)]++;
    }
}

// ---- what the stages hold ----

static int64_t rank_parameters(const sp_model *model, const sp_layout *layout, int rank)
{
    sp_stage stages[MOST_STAGES], held[MOST_STAGES];
    sp_bytes bytes;
    must_succeed(sp_layout_stages(layout, model, "test", stages, ERR));
    for (int c = 0; c < layout->chunks; c++) {
        held[c] = stages[sp_layout_vstage(layout, rank, c)];
    }
    sp_footprint_states(model, layout, &(sp_stack){0}, held, layout->chunks, &bytes);
    return bytes.of[SP_MEM_PARAMETERS] / 2; // bf16
}

// 13,015,864,320 parameters: the count of the published weights of LLaMA 13B.
TEST_ROUNDS(parameters_add_up, 41, 200)
{
    sp_model model = llama_13b();
    static const int chunk_counts[] = {1, 2, 2, 3};
    int layers[MOST_STAGES] = {11, 10, 10, 9};
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 4, .dp = 1, .chunks = 1};
    if (round > 0) {
        layout.pp = 2 + prng_below(prng, 7);
        layout.chunks = chunk_counts[round % 4];
        layout.placement = round % 4 == 1 ? SP_PLACE_V : SP_PLACE_LINEAR;
        share_out(prng, sp_layout_vstages(&layout), layers);
    }
    layout.stage_layers = layers;
    int64_t sum = 0;
    for (int r = 0; r < layout.pp; r++) {
        sum += rank_parameters(&model, &layout, r);
    }
    assert_int_equal(sum, INT64_C(13015864320));
}

// Ranks without embedding and head hold their layers and nothing else; one without layers holds the
// table: 32000 * 5120.
TEST(parameters_follow_the_layers)
{
    sp_model model = llama_13b();
    static const int layers[] = {9, 12, 9, 10};
    static const int lean[] = {0, 20, 20, 0};
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 4, .dp = 1, .chunks = 1, .stage_layers = layers};
    assert_int_equal(9 * rank_parameters(&model, &layout, 1),
                     12 * rank_parameters(&model, &layout, 2));
    layout.stage_layers = lean;
    assert_int_equal(rank_parameters(&model, &layout, 0), INT64_C(32000) * 5120);
    // Final norm and head.
    assert_int_equal(rank_parameters(&model, &layout, 3), INT64_C(32001) * 5120);
}

// ---- what they cost ----

typedef struct flat_costs {
    sp_cluster cluster;
    sp_profile profile;
    sp_cost_model model;
    sp_packing packing;
    sp_step_costs costs;
} flat_costs;

// One pack of one sample under the flat profile, whose times are FLOPs over rates.
static void flat_costs_make(const sp_model *model, const sp_layout *layout, sp_recompute recompute,
                            int64_t tokens, flat_costs *f)
{
    static const char *const arithmetic_only[] = {
        "memory.gb_per_s=1e15", "links.nvlink_latency_us=0", "links.nic_latency_us=0", NULL};
    *f = (flat_costs){.cluster = {.gpus_per_node = 8,
                                  .nics_per_node = 8,
                                  .nic_bytes_per_s = 50e9,
                                  .peak_flops_per_s = 1e15}};
    must_succeed(sp_cluster_fit(&f->cluster, sp_layout_ranks(layout), "test", ERR));
    must_succeed(flat_profile(arithmetic_only, &f->profile, ERR));
    must_succeed(sp_cost_model_init(&f->model, model, layout, &f->cluster, &f->profile,
                                    (sp_memory_options){.recompute = recompute}, "test", ERR));
    sp_packing_init(&f->packing, NULL, layout->dp);
    pack_sample(&f->packing.forward, 0, 1, 0, tokens);
    must_succeed(sp_cost_model_build(&f->model, &f->packing, &f->costs, ERR));
}

static void flat_costs_fini(flat_costs *f)
{
    sp_step_costs_fini(&f->costs);
    sp_packing_fini(&f->packing);
    sp_cost_model_fini(&f->model);
    sp_profile_fini(&f->profile);
}

// A layer of LLaMA 13B multiplies every token by Q, K, V and O (4 h^2) and by gate, up and down
// (3 h f), 2 FLOPs a weight, and attends to half of n^2 pairs with 4 h FLOPs each.
TEST(time_is_proportional_to_layers)
{
    sp_model model = llama_13b();
    static const int layers[] = {11, 7, 13, 9};
    const sp_layout layout = {
        .tp = 1, .cp = 1, .pp = 4, .dp = 1, .chunks = 1, .stage_layers = layers};
    const double n = 4096.0;
    const double h = 5120.0;
    const double linear_s = n * 2.0 * (4.0 * h * h + 3.0 * h * 13824.0) / FLAT_GEMM_FLOPS_PER_S;
    const double layer_s = linear_s + n * n / 2.0 * 4.0 * h / FLAT_FORWARD_FLOPS_PER_S;
    for (int full = 0; full < 2; full++) {
        AUTO(flat_costs) f;
        flat_costs_make(&model, &layout, full ? SP_RECOMPUTE_FULL : SP_RECOMPUTE_NONE, 4096, &f);
        for (int s = 0; s < 4; s++) {
            int c = f.costs.stages[s].cost_class;
            double head_ns = s == 3 ? n * 2.0 * h * 32000.0 / FLAT_GEMM_FLOPS_PER_S * 1e9 : 0.0;
            assert_within((double)f.costs.action[SP_ACTION_F][c].compute_ns,
                          layers[s] * layer_s * 1e9 + head_ns, 2.0);
            assert_within((double)f.costs.action[SP_ACTION_W][c].compute_ns,
                          layers[s] * linear_s * 1e9 + head_ns, 2.0);
            assert_within((double)f.costs.action[SP_ACTION_R][c].compute_ns,
                          full ? layers[s] * layer_s * 1e9 : 0.0, 2.0);
        }
    }
}

TEST(activations_are_proportional_to_layers)
{
    sp_model model = llama_13b();
    static const int layers[] = {11, 7, 13, 9};
    const sp_layout layout = {
        .tp = 1, .cp = 1, .pp = 4, .dp = 1, .chunks = 1, .stage_layers = layers};
    for (int m = 0; m < SP_RECOMPUTE_MODES; m++) {
        AUTO(flat_costs) f;
        flat_costs_make(&model, &layout, (sp_recompute)m, 1000, &f);
        int64_t a = f.costs.side[0].unit[f.costs.stages[1].cost_class].held.of[SP_MEM_ACTIVATIONS];
        int64_t b = f.costs.side[0].unit[f.costs.stages[2].cost_class].held.of[SP_MEM_ACTIVATIONS];
        assert_true(a > 0);
        assert_int_equal(13 * a, 7 * b);
    }
}

// Every stage another depth, 1 to 16 layers: each keeps its own cost.
TEST(every_stage_may_differ)
{
    sp_model model = llama_13b();
    int layers[16];
    for (int s = 0; s < 16; s++) {
        layers[s] = 1 + (5 * s) % 16;
    }
    model.layers = 16 * 17 / 2;
    const sp_layout layout = {
        .tp = 1, .cp = 1, .pp = 16, .dp = 1, .chunks = 1, .stage_layers = layers};
    AUTO(flat_costs) f;
    flat_costs_make(&model, &layout, SP_RECOMPUTE_NONE, 512, &f);
    assert_int_equal(f.costs.classes, 16);
    const double one_ns =
        (double)f.costs.action[SP_ACTION_F][f.costs.stages[13].cost_class].compute_ns / layers[13];
    for (int s = 0; s < 15; s++) {
        double ns = (double)f.costs.action[SP_ACTION_F][f.costs.stages[s].cost_class].compute_ns;
        assert_within(ns, layers[s] * one_ns, 16.0);
    }
}

// ---- whole steps ----

typedef struct step {
    sp_scenario scenario;
    sp_result result;
    double bound_ns; // of the makespan
    FILE *plan;
} step;

static int64_t total_ns(sp_action_cost cost)
{
    return cost.compute_ns + cost.tp_ns + cost.cp_ns;
}

// With micro-batches of one size and one chunk per rank: before a stage starts, the first
// micro-batch runs forward on all stages before it; then come the m forwards and backwards of the
// stage itself, and the last backward runs on all stages before it.
static sp_status measure(void *context, const sp_step_view *view, sp_error *err)
{
    step *s = context;
    double above_ns = 0.0;
    const sp_step_costs *costs = view->costs;
    double m = (double)view->plan->packing->forward.count;
    int pp = view->plan->layout.pp;
    for (int stage = 0; stage < pp; stage++) {
        int c = costs->stages[stage].cost_class;
        double work_ns = (double)(total_ns(costs->action[SP_ACTION_F][c]) +
                                  total_ns(costs->action[SP_ACTION_B][c]));
        s->bound_ns = fmax(s->bound_ns, above_ns + m * work_ns);
        int below = (stage + 1) % pp;
        above_ns += work_ns + (double)(sp_step_costs_p2p_ns(costs, 0, 0, stage, below, pp) +
                                       sp_step_costs_p2p_ns(costs, 1, 0, below, stage, pp));
    }
    sp_plan_predictions none = {.lower_bound_ms = -1.0, .predicted_ms = -1.0};
    return s->plan == NULL ? SP_OK
                           : sp_plan_json_batch(s->plan, view->batch, view->plan, none, err);
}

static void run(const char *text, FILE *plan, step *s)
{
    AUTO(sp_batches) batches;
    *s = (step){.plan = plan};
    const sp_evaluate_options options = {
        .engine = {.verify = true}, .observer = measure, .observer_context = s};
    must_succeed_for(text, read_scenario(text, &s->scenario, ERR));
    if (plan != NULL) {
        must_succeed_for(text, sp_plan_json_begin(plan, s->scenario.resolved, ERR));
    }
    must_succeed_for(text, sp_evaluate_batches(&s->scenario, &batches, ERR));
    must_succeed_for(text, sp_evaluate(&s->scenario, &batches, &options, &s->result, ERR));
    if (plan != NULL) {
        must_succeed_for(text, sp_plan_json_end(plan, NULL, NULL, ERR));
    }
}

static void step_fini(step *s)
{
    sp_result_fini(&s->result);
    sp_scenario_fini(&s->scenario);
}

static void list(const int *layers, int count, char text[TEXT])
{
    size_t used = 0;
    text[0] = '\0';
    for (int s = 0; s < count; s++) {
        used += (size_t)snprintf(text + used, TEXT - used, "%s%d", s > 0 ? "," : "", layers[s]);
    }
}

static void describe(const char *kind, int pp, int chunks, const char *layers, char text[TEXT])
{
    snprintf(text, TEXT,
             "{'model': 'llama-13b', 'cluster': 'h800-8', 'parallel': {'tp': 8, 'pp': %d, "
             "'chunks_per_rank': %d, 'stage_layers': [%.200s]}, 'schedule': {'kind': '%s'}, "
             "'workload': {'uniform': 2048, 'samples_per_batch': 12}}",
             pp, chunks, layers, kind);
}

TEST_ROUNDS(steps_wait_for_the_slowest_stage, 42, 30)
{
    int layers[MOST_STAGES] = {11, 10, 10, 9};
    int pp = round == 0 ? 4 : 2 + prng_below(prng, 5);
    char text[TEXT], shares[TEXT];
    AUTO(step) s;
    if (round > 0) {
        share_out(prng, pp, layers);
    }
    list(layers, pp, shares);
    describe("1f1b", pp, 1, shares, text);
    run(text, NULL, &s);
    int64_t makespan_ns = s.result.batches[0].makespan_ns;
    must_hold((double)makespan_ns >= s.bound_ns, "%s: %lld ns, at least %.0f", shares,
              (long long)makespan_ns, s.bound_ns);
    assert_null(s.result.layout.stage_layers);
}

// Where the forward of one stage outlasts a micro-batch's way down and up again through all stages
// after it, that stage never waits once it has started: the bound is met.
TEST(a_dominant_stage_sets_the_pace)
{
    for (int slow = 0; slow < 4; slow++) {
        int layers[4] = {2, 2, 2, 2};
        char text[TEXT], shares[TEXT];
        AUTO(step) s;
        layers[slow] = 34;
        list(layers, 4, shares);
        describe("1f1b", 4, 1, shares, text);
        run(text, NULL, &s);
        assert_true((double)s.result.batches[0].makespan_ns == s.bound_ns);
    }
}

// The same work in equal shares is what no share at all says.
TEST(equal_shares_change_nothing)
{
    static const char *const rest = "}, 'workload': {'uniform': 2048, 'samples_per_batch': 12}}";
    char text[TEXT];
    AUTO(step) stated, implied;
    snprintf(text, sizeof text,
             "{'model': 'llama-13b', 'parallel': {'pp': 4, 'stage_layers': [10, 10, 10, 10]%s",
             rest);
    run(text, NULL, &stated);
    snprintf(text, sizeof text, "{'model': 'llama-13b', 'parallel': {'pp': 4%s", rest);
    run(text, NULL, &implied);
    assert_int_equal(stated.result.batches[0].iteration_ns, implied.result.batches[0].iteration_ns);
    assert_int_equal(stated.result.peak_bytes, implied.result.peak_bytes);
}

// GPipe holds all micro-batches on every rank: of ranks without embedding and head, the one with
// more layers has the higher peak.
TEST_ROUNDS(memory_follows_the_layers, 43, 10)
{
    int layers[MOST_STAGES];
    char text[TEXT], shares[TEXT];
    AUTO(step) s;
    share_out(prng, 6, layers);
    list(layers, 6, shares);
    describe("gpipe", 6, 1, shares, text);
    run(text, NULL, &s);
    const sp_rank_metrics *ranks = s.result.ranks;
    for (int a = 1; a < 5; a++) {
        for (int b = 1; b < 5; b++) {
            assert_int_equal(layers[a] < layers[b], ranks[a].peak_bytes < ranks[b].peak_bytes);
        }
    }
}

// ---- documents ----

// Plan and scenario are written, read, and simulated to the same nanosecond and byte.
TEST(plans_round_trip)
{
    static const struct {
        const char *kind, *shares;
        int chunks;
    } cases[] = {
        {"1f1b", "11, 10, 10, 9", 1},          {"1f1b", "0, 14, 14, 12.0", 1},
        {"gpipe", "12, 10, 9, 9", 1},          {"interleaved", "4, 5, 5, 6, 6, 5, 5, 4", 2},
        {"zb-v", "0, 6, 6, 6, 6, 6, 6, 4", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[TEXT];
        AUTO(step) s;
        FILE *file = tmpfile();
        assert_non_null(file);
        describe(cases[i].kind, 4, cases[i].chunks, cases[i].shares, text);
        run(text, file, &s);
        rewind(file);
        json_auto_t *root = json_loadf(file, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(root);
        AUTO(sp_scenario) stored;
        must_succeed_for(text, sp_scenario_from_json(json_object_get(root, "scenario"), "stored",
                                                     NULL, 0, &stored, ERR));
        assert_non_null(stored.layout.stage_layers);
        for (int v = 0; v < 4 * cases[i].chunks; v++) {
            assert_int_equal(stored.layout.stage_layers[v], s.scenario.layout.stage_layers[v]);
        }
        assert_true(json_equal(stored.resolved, s.scenario.resolved));
        AUTO(sp_plan_file) plans;
        must_succeed_for(text, sp_plan_json_read(root, "plan.json", &stored.layout, &plans, ERR));
        const sp_evaluate_options verified = {.engine = {.verify = true}};
        AUTO(sp_result) again;
        must_succeed_for(text, sp_evaluate_plans(&stored, &plans, &verified, &again, ERR));
        assert_int_equal(again.batches[0].iteration_ns, s.result.batches[0].iteration_ns);
        assert_int_equal(again.peak_bytes, s.result.peak_bytes);
        fclose(file);
    }
}

TEST(derived_facts_name_both_ends)
{
    AUTO(sp_scenario) scenario;
    const char *text =
        "{'model': 'llama-13b', 'parallel': {'pp': 4, 'stage_layers': [11, 10, 12, 7]}}";
    must_succeed_for(text, read_scenario(text, &scenario, ERR));
    json_auto_t *derived = sp_scenario_derived(&scenario);
    assert_null(json_object_get(derived, "layers_per_chunk"));
    assert_int_equal(json_int(derived, "fewest_layers_per_chunk"), 7);
    assert_int_equal(json_int(derived, "most_layers_per_chunk"), 12);
}

// ---- what takes equal shares alone ----

TEST(closed_memory_formulas_need_equal_shares)
{
    sp_model model = llama_13b();
    static const int uneven[] = {11, 10, 10, 9};
    static const int even[] = {10, 10, 10, 10};
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 4, .dp = 1, .chunks = 1, .stage_layers = uneven};
    const sp_planner_options options = {.order = SP_PLANNER_1F1B, .sequence_tokens = 4096};
    sp_bytes bytes, plain;
    must_fail(sp_planner_memory(&model, &layout, &options, "test", &bytes, ERR), SP_ERR_CONTENT,
              "test: parallel.stage_layers: memory.model \"slimpipe-planner\" knows "
              "equal shares of the layers alone");
    sp_error_clear(ERR);
    layout.stage_layers = even;
    must_succeed(sp_planner_memory(&model, &layout, &options, "test", &bytes, ERR));
    layout.stage_layers = NULL;
    must_succeed(sp_planner_memory(&model, &layout, &options, "test", &plain, ERR));
    assert_int_equal(sp_bytes_total(&bytes), sp_bytes_total(&plain));
}

TEST(the_exchange_needs_equal_shares)
{
    AUTO(sp_scenario) scenario;
    const char *uneven = "{'model': 'llama-13b', 'parallel': {'pp': 2, 'stage_layers': [21, 19]}, "
                         "'schedule': {'kind': 'slimpipe', 'slices': 4, 'exchange': true}}";
    const char *even = "{'model': 'llama-13b', 'parallel': {'pp': 2, 'stage_layers': [20, 20]}, "
                       "'schedule': {'kind': 'slimpipe', 'slices': 4, 'exchange': true}}";
    must_fail(read_scenario(uneven, &scenario, ERR), SP_ERR_CONTENT,
              "test: schedule.exchange: needs equally many layers on every virtual "
              "stage, parallel.stage_layers differ");
    must_succeed_for(even, read_scenario(even, &scenario, ERR));
}
