// What ZeRO 2 and 3 exchange inside a step (Rajbhandari et al., arXiv 1910.02054).
#include "tests/support/priced_step.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define BYTES_BF16 2.0
#define BYTES_FP32 4.0

static const sp_stage one_layer = {.layers = 1};

static priced_case sharded(int zero, double nvlink_gb_per_s)
{
    priced_case c = priced_default();
    c.layout.dp = 4;
    c.layout.zero = zero;
    c.nvlink_gb_per_s = nvlink_gb_per_s;
    return c;
}

// Section 7: data parallelism moves 2 elements per parameter and step (all-reduce); ZeRO 2 as many
// (reduce-scatter of gradients, gather of the new parameters), ZeRO 3 half as many again
// (parameters gathered for the forward and for the backward). Counted from times on a network so
// slow that computation hides less than 1e-6 of them: bytes of bf16 for parameters, fp32 for
// gradients. One micro-batch.
TEST(volumes)
{
    AUTO(priced_step) plain, two, three;
    priced_case c = sharded(0, 1e-5);
    priced_step_run(&c, &plain);
    c.layout.zero = 2;
    priced_step_run(&c, &two);
    c.layout.zero = 3;
    priced_step_run(&c, &three);
    double parameters = (double)sp_model_parameters(&c.model);
    double baseline = (double)plain.costs.ranks[0].epilogue.grad_reduce_ns / BYTES_FP32;
    // A ring all-reduce: 2(n-1)/n of the tensor through each link.
    assert_within(baseline / (parameters * 1e5), 1.5, 1e-9);
    double scattered = (double)two.costs.action[SP_ACTION_B][0].dp_ns / BYTES_FP32;
    double gathered = (double)two.costs.ranks[0].epilogue.param_gather_ns / BYTES_BF16;
    assert_within((scattered + gathered) / baseline, 1.0, 1e-6);
    assert_int_equal(two.costs.action[SP_ACTION_F][0].dp_ns, 0);
    double forward = (double)three.costs.action[SP_ACTION_F][0].dp_ns;
    double backward = (double)three.costs.action[SP_ACTION_B][0].dp_ns;
    double elements = 2.0 * forward / BYTES_BF16 + (backward - forward) / BYTES_FP32;
    assert_within(elements / baseline, 1.5, 1e-6);
}

// Bytes that all GPUs send over NVLink in a step, and get.
static double nvlink_bytes(const priced_step *step)
{
    sp_cluster cluster = step->cluster;
    sp_topology *topology;
    AUTO_FREE double *bytes;
    double sum = 0.0;
    cluster.host_link_bytes_per_s = 64e9;
    cluster.fabric = (sp_fabric){.rails = 8, .oversubscription = 1.0};
    const sp_network network = {
        .cluster = &cluster,
        .rates = {.nvlink_bytes_per_s = step->profile.nvlink_bytes_per_s, .nic_efficiency = 1.0}};
    must_succeed(sp_step_traffic(&step->plan, &step->costs, &network, &topology, &bytes, ERR));
    for (int32_t l = 0; l < sp_topology_links(topology); l++) {
        sum += bytes[l];
    }
    sp_topology_free(topology);
    return sum;
}

// The same volumes as bytes on links, hidden or not: in ZeRO 2 gradients are scattered once for
// each micro-batch, in ZeRO 3 parameters are gathered twice as well; splitting the backward moves
// nothing more.
TEST(volumes_on_links)
{
    for (int i = 0; i < 32; i++) {
        int zero = i % 4;
        bool hidden = i / 4 % 2 == 1;
        AUTO(priced_step) step;
        priced_case c = sharded(zero, 100.0);
        c.microbatches = i / 8 % 2 == 1 ? 3 : 1;
        c.layout.pp = 2;
        c.layout.dp = 2;
        c.schedule.kind = i / 16 == 1 ? SP_SCHEDULE_ZB_H1 : SP_SCHEDULE_1F1B;
        c.memory.stack.hide_gradient_reduce = c.memory.stack.hide_parameter_gather = hidden;
        priced_step_run(&c, &step);
        double reduced = BYTES_FP32 * (zero == 0 ? 2 : zero == 1 ? 1 : c.microbatches);
        double gathered = BYTES_BF16 * (zero == 0 ? 0 : zero < 3 ? 1 : 2 * c.microbatches);
        // Half of a tensor from each of two ranks, over a link out and a link in.
        double exchanged = 2.0 * (reduced + gathered) * (double)sp_model_parameters(&c.model);
        double sent = 4.0 * c.microbatches *
                      (step.costs.side[0].pack[0].p2p_bytes + step.costs.side[1].pack[0].p2p_bytes);
        assert_close(nvlink_bytes(&step), exchanged + sent, 1e-9);
    }
}

static double overlap_share;

// What an exchange of `a` costs beside work of `b`: what is not hidden, and what the work loses.
static double excess(double a, double b)
{
    return a > b ? a - b + overlap_share * b : overlap_share * a;
}

// What stays whole in a step is exchanged once, as with ZeRO 1, whatever the number of
// micro-batches; its gather hides behind the first forward but for a layer's.
TEST(whole_in_a_step)
{
    for (int zero = 2; zero <= 3; zero++) {
        AUTO(priced_step) one, whole;
        priced_case c = sharded(1, 100.0);
        c.layout.pp = 2;
        c.microbatches = 3;
        c.memory.stack.hide_parameter_gather = true;
        priced_step_run(&c, &one);
        c.memory.stack.hide_parameter_gather = false;
        c.layout.zero = zero;
        c.layout.whole_in_step = true;
        priced_step_run(&c, &whole);
        assert_int_equal(whole.costs.action[SP_ACTION_F][0].dp_ns, 0);
        assert_int_equal(whole.costs.action[SP_ACTION_B][0].dp_ns, 0);
        assert_true(whole.costs.ranks[0].epilogue.grad_reduce_ns > 0);
        assert_int_equal(whole.costs.ranks[0].epilogue.grad_reduce_ns,
                         one.costs.ranks[0].epilogue.grad_reduce_ns);
        assert_int_equal(whole.costs.ranks[0].epilogue.hideable_gather_ns,
                         one.costs.ranks[0].epilogue.hideable_gather_ns);
        assert_close(nvlink_bytes(&whole), nvlink_bytes(&one), 1e-12);
        assert_int_equal(whole.metrics.iteration_ns, one.metrics.iteration_ns);
    }
}

// A stage of n equal layers, each taking c, with gathers of g and scatters of s a layer:
// forward g + (n-1) max(0, g-c); in the backward the second gather runs beside the first layer,
// the last but one scatter beside the last, and both beside the layers between them. Of what is
// hidden the work gets longer by a share. In DeepSpeed without overlap_comm the stream that
// computes waits for each scatter (reduce_and_partition_stream of deepspeed/runtime/zero/stage3.py,
// and average_tensor of stage_1_and_2.py), so that n scatters show.
TEST_ROUNDS(closed_form, 3, 360)
{
    enum { OF_OTHERS, OVERLAPS, WAITS } kind = round / 120;
    char share[64];
    overlap_share = round % 120 < 60 ? 0.0 : sp_prng_uniform(prng);
    snprintf(share, sizeof share, "interference.overlap_share=%.17g", overlap_share);
    // From hidden altogether to not at all.
    priced_case c = sharded(2 + round % 2, exp(8.0 * sp_prng_uniform(prng)));
    bool gathers = c.layout.zero == 3;
    int n = 1 + prng_below(prng, 6);
    c.layout.pp = 3;
    c.layout.dp = 2;
    c.model.layers = 3 * n;
    c.microbatches = 3;
    c.memory.recompute = round % 4 < 2 ? SP_RECOMPUTE_FULL : SP_RECOMPUTE_NONE;
    // The name alone: gradients stay in fp32, as of the other rounds.
    strcpy(c.memory.stack.name, kind == OF_OTHERS ? "ours" : "hf-trainer");
    c.memory.stack.hide_gradient_reduce = kind == OVERLAPS;
    c.overrides[0] = "interference.level=assumed";
    c.overrides[1] = "interference.source=the test";
    c.overrides[2] = share;
    PRICED_STEP(step, &c);
    double parameters = priced_parameters(&step, one_layer);
    double g =
        gathers ? 1e9 * priced_collective_s(&step, SP_ALL_GATHER, parameters * BYTES_BF16) : 0;
    double s = 1e9 * priced_collective_s(&step, SP_REDUCE_SCATTER, parameters * BYTES_FP32);
    int inner = step.costs.stages[1].cost_class;
    const sp_step_costs *costs = &step.costs;
    double f = (double)costs->action[SP_ACTION_F][inner].compute_ns / n;
    double b = (double)costs->action[SP_ACTION_B][inner].compute_ns / n;
    double i = (double)costs->action[SP_ACTION_I][inner].compute_ns / n;
    double w = (double)costs->action[SP_ACTION_W][inner].compute_ns / n;
    double r = (double)costs->action[SP_ACTION_R][inner].compute_ns / n;
    assert_within((double)costs->action[SP_ACTION_F][inner].dp_ns, g + (n - 1) * excess(g, f), n);
    assert_within((double)costs->action[SP_ACTION_I][inner].dp_ns, g + (n - 1) * excess(g, i), n);
    assert_within((double)costs->action[SP_ACTION_W][inner].dp_ns,
                  kind == WAITS ? n * s : s + (n - 1) * excess(s, w), n);
    assert_within((double)costs->action[SP_ACTION_R][inner].dp_ns,
                  r > 0.0 ? g + (n - 1) * excess(g, r) : 0.0, n);
    double between = n > 1 ? excess(g, b) + (n - 2) * excess(g + s, b) + excess(s, b) : 0.0;
    if (kind == WAITS) {
        between = (n - 1) * (excess(g, b) + s);
    }
    assert_within((double)costs->action[SP_ACTION_B][inner].dp_ns, g + s + between, n);
    // Side by side, the halves of a backward hide no less than one after the other.
    assert_true(costs->action[SP_ACTION_B][inner].dp_ns <=
                costs->action[SP_ACTION_I][inner].dp_ns + costs->action[SP_ACTION_W][inner].dp_ns +
                    2);
}

// Ranks that read parameters one-sidedly read the bytes that a collective gathers: a byte of each
// weight that is kept in FP8, two of all others. The flat profile has no latencies, so that seconds
// of all layers are those of their bytes together: inside a node 7 of 8 parts over NVLink, of two
// nodes beside that the other's half over a NIC.
TEST(one_sided_reads_are_of_the_bytes_that_are_kept)
{
    static const struct {
        sp_fp8_recipe recipe;
        bool parameters;
        double bytes; // of a weight of products
    } cases[] = {{SP_FP8_CURRENT, false, 2.0},
                 {SP_FP8_CURRENT, true, 1.0},
                 {SP_FP8_DELAYED, true, 1.0},
                 {SP_FP8_MXFP8, true, 2.0}};
    for (int i = 0; i < 2 * COUNT_OF(cases); i++) {
        priced_case c = sharded(3, 100.0);
        int nodes = 1 + i % 2;
        c.layout.dp = 8 * nodes;
        c.memory.stack.one_sided = true;
        c.memory.stack.precision = (sp_step_precision){SP_COMPUTE_FP8, cases[i / 2].recipe,
                                                       cases[i / 2].parameters, false};
        c.overrides[0] = "fp8_gemm={\"tflops\":1000,\"level\":\"assumed\",\"source\":\"test\"}";
        PRICED_STEP(step, &c);
        sp_shard shard = sp_shard_of(&c.model, &c.layout);
        double products = (double)(c.model.layers * sp_layer_product_weights(&c.model, &shard));
        double bytes = BYTES_BF16 * ((double)sp_model_parameters(&c.model) - products) +
                       cases[i / 2].bytes * products;
        double inside_s = 7.0 / 8.0 * bytes / nodes / 100e9;
        double beside_s = (1.0 - 1.0 / nodes) * bytes / (50e9 * step.profile.nic_efficiency);
        assert_close(step.costs.sharded[0].gather.bytes, bytes, 1e-12);
        assert_close(step.costs.sharded[0].gather.s, fmax(inside_s, beside_s), 1e-9);
    }
}

// The end stages have the vocabulary tables too: all parameters are gathered once each way, whoever
// holds them, and hidden by less than the computation.
TEST(ends_of_the_model)
{
    for (int tied = 0; tied < 2; tied++) {
        AUTO(priced_step) step;
        priced_case c = sharded(3, 0.1);
        c.model.tied_embeddings = tied == 1;
        priced_step_run(&c, &step);
        double parameters = (double)sp_model_parameters(&c.model);
        double gather_ns = 1e9 * priced_collective_s(&step, SP_ALL_GATHER, parameters * BYTES_BF16);
        double scatter_ns =
            1e9 * priced_collective_s(&step, SP_REDUCE_SCATTER, parameters * BYTES_FP32);
        const sp_action_cost *f = &step.costs.action[SP_ACTION_F][0];
        const sp_action_cost *b = &step.costs.action[SP_ACTION_B][0];
        assert_true((double)f->dp_ns <= gather_ns + 2.0);
        assert_true((double)(f->dp_ns + f->compute_ns) >= gather_ns);
        assert_true((double)b->dp_ns <= gather_ns + scatter_ns + 2.0);
        assert_true((double)(b->dp_ns + b->compute_ns) >= gather_ns + scatter_ns);
    }
}

// Without sharding, or with one replica, nothing is exchanged inside a step.
TEST(nothing_to_exchange)
{
    for (int zero = 0; zero <= 3; zero++) {
        AUTO(priced_step) step;
        priced_case c = sharded(zero, 1.0);
        c.layout.dp = zero >= 2 ? 1 : 4;
        priced_step_run(&c, &step);
        const sp_action_cost *costs[] = {
            step.costs.action[SP_ACTION_F], step.costs.action[SP_ACTION_B],
            step.costs.action[SP_ACTION_I], step.costs.action[SP_ACTION_W],
            step.costs.action[SP_ACTION_R]};
        for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
            assert_int_equal(costs[i]->dp_ns, 0);
        }
        assert_int_equal(step.metrics.dp_ns, 0);
    }
}

// On a slow network every micro-batch pays: the more, the further the states are sharded. With a
// fast one the order of ZeRO does not matter beyond what starts and ends each action.
TEST(sharding_costs_time)
{
    for (int m = 1; m <= 4; m++) {
        int64_t before_ns = 0;
        for (int zero = 1; zero <= 3; zero++) {
            AUTO(priced_step) step;
            priced_case c = sharded(zero, 1.0);
            c.microbatches = m;
            priced_step_run(&c, &step);
            const sp_step_costs *costs = &step.costs;
            int64_t epilogue_ns = costs->ranks[0].epilogue.grad_reduce_ns +
                                  costs->ranks[0].epilogue.optimizer_ns +
                                  costs->ranks[0].epilogue.param_gather_ns;
            int64_t pack_ns = sp_action_cost_ns(&costs->action[SP_ACTION_F][0]) +
                              sp_action_cost_ns(&costs->action[SP_ACTION_B][0]);
            assert_int_equal(step.metrics.iteration_ns, m * pack_ns + epilogue_ns);
            assert_int_equal(step.metrics.dp_ns, 4 * m *
                                                     (costs->action[SP_ACTION_F][0].dp_ns +
                                                      costs->action[SP_ACTION_B][0].dp_ns));
            // Waiting for parameters keeps a rank busy.
            assert_int_equal(step.metrics.busy_ns, 4 * m * pack_ns);
            if (m > 1 || zero == 3) {
                assert_true(step.metrics.iteration_ns > before_ns);
            }
            before_ns = step.metrics.iteration_ns;
        }
    }
}

static int64_t iteration_ns(const priced_case *c)
{
    PRICED_STEP(step, c);
    return step.metrics.iteration_ns;
}

// Less of what context and tensor parallelism exchange is hidden by computation that is twice as
// fast. What ZeRO exchanges goes on meanwhile, and while the GPU waits for launches (every second
// pair of rounds): no step gets slower.
TEST_ROUNDS(faster_computation_slows_no_step, 11, 200)
{
    static const char *const doubled[] = {"gemm_rate.scale=2", "attention.forward_causal.scale=2",
                                          "attention.backward_causal.scale=2"};
    static const int degrees[] = {1, 2, 4, 8};
    priced_case c = sharded(2 + round % 2, exp(8.0 * sp_prng_uniform(prng)));
    c.layout.cp = degrees[sp_prng_below(prng, 4)];
    c.layout.tp = degrees[sp_prng_below(prng, 2)];
    c.layout.dp = degrees[sp_prng_below(prng, 2)];
    c.layout.pp = degrees[sp_prng_below(prng, 2)];
    c.microbatches = 1 + prng_below(prng, 3);
    c.tokens = 1024 * degrees[sp_prng_below(prng, 4)];
    c.memory.recompute = (sp_recompute)sp_prng_below(prng, SP_RECOMPUTE_MODES);
    c.launch_layer_s = round / 2 % 2 * 3e-3;
    int64_t before_ns = iteration_ns(&c);
    for (int i = 0; i < 3; i++) {
        c.overrides[i] = doubled[i];
    }
    int64_t after_ns = iteration_ns(&c);
    // Each part of an action is rounded by itself.
    int64_t rounding_ns = 8 * c.model.layers * c.microbatches;
    must_hold(after_ns <= before_ns + rounding_ns, "tp %d cp %d dp %d zero %d: %lld ns become %lld",
              c.layout.tp, c.layout.cp, c.layout.dp, c.layout.zero, (long long)before_ns,
              (long long)after_ns);
}

// Every rank holds a share of the states; two whole layers of ZeRO 3 pass through the workspace.
TEST(memory_of_gathered_layers)
{
    AUTO(priced_step) one, three;
    priced_case c = sharded(1, 1.0);
    priced_step_run(&c, &one);
    c.layout.zero = 3;
    priced_step_run(&c, &three);
    int64_t layer_bytes = (int64_t)(BYTES_BF16 * priced_parameters(&one, one_layer));
    assert_int_equal(three.costs.side[0].unit[0].forward.of[SP_MEM_WORKSPACE] -
                         one.costs.side[0].unit[0].forward.of[SP_MEM_WORKSPACE],
                     2 * layer_bytes);
    assert_int_equal(three.costs.side[0].unit[0].backward.of[SP_MEM_WORKSPACE] -
                         one.costs.side[0].unit[0].backward.of[SP_MEM_WORKSPACE],
                     2 * layer_bytes);
    int64_t parameters = one.costs.ranks[0].states.of[SP_MEM_PARAMETERS];
    assert_int_equal(three.costs.ranks[0].states.of[SP_MEM_PARAMETERS], (parameters + 3) / 4);
}

// ---- ranks that wait for each other ----

#define STEP_OF                                                                                   \
    "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, 'cluster': " \
    "'h100-8', 'profile': 'h100-burst', 'strategy': {'kind': 'packed'}, 'workload': {'lengths': " \
    "%s, 'context': 4096, "                                                                       \
    "'order': 'file'}, 'parallel': {'dp': 2, 'zero': %d}%s}"

static double step_ms(const char *lengths, int zero, const char *more, double *wait_ms)
{
    SCENARIO_RUN(r, json_text(STEP_OF, lengths, zero, more), &run_verified);
    double ms = sp_result_iteration_ms(&r.result);
    *wait_ms = sp_result_zero_wait_ms(&r.result);
    return ms;
}

// Two ranks of as much work, in two micro-batches each, which have the longer one at different
// times: they take as long as if every micro-batch were the longer one, and wait for as much as
// micro-batches that meet their like are faster. With ZeRO 2 nobody waits, and neither do
// executors, who read the memory of other ranks.
TEST(the_slowest_rank_sets_the_pace)
{
    static const char apart[] = "[4096, 3000, 3000, 4096]";
    static const char alike[] = "[4096, 4096, 3000, 3000]";
    static const char longest[] = "[4096, 4096, 4096, 4096]";
    double wait_ms;
    double alike_ms = step_ms(alike, 3, "", &wait_ms);
    assert_true(wait_ms == 0.0);
    double longest_ms = step_ms(longest, 3, "", &wait_ms);
    assert_true(wait_ms == 0.0);
    assert_within(step_ms(apart, 3, "", &wait_ms), longest_ms, 1e-9);
    assert_within(wait_ms, longest_ms - alike_ms, 1e-9);
    assert_within(step_ms(apart, 2, "", &wait_ms), step_ms(alike, 2, "", &wait_ms), 1e-9);
    assert_true(isnan(wait_ms));
    // GPUs of another speed compute longer and wait longer.
    for (int seed = 1; seed <= 4; seed++) {
        const char *jitter = json_text(", 'jitter': {'gpu_cv': 0.2, 'seed': %d}", seed);
        longest_ms = step_ms(longest, 3, jitter, &wait_ms);
        assert_close(step_ms(apart, 3, jitter, &wait_ms), longest_ms, 1e-3);
    }
    static const char executed[] = ", 'stack': 'reference'";
    assert_within(step_ms(apart, 3, executed, &wait_ms), step_ms(alike, 3, executed, &wait_ms),
                  1e-9);
}

// Groups of ZeRO along the ranks, context-parallel ones first unless the order says otherwise.
TEST(ranks_that_gather_together)
{
    static const struct {
        int cp, dp, group, ranks;
        const char *order;
    } cases[] = {{1, 8, 0, 8, "tp-cp-dp-pp"}, {1, 8, 4, 4, "tp-cp-dp-pp"},
                 {2, 8, 4, 2, "tp-cp-dp-pp"}, {4, 3, 6, 3, "tp-cp-dp-pp"},
                 {4, 2, 2, 1, "tp-cp-dp-pp"}, {2, 8, 4, 4, "tp-dp-cp-pp"},
                 {3, 4, 6, 4, "tp-dp-cp-pp"}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        sp_layout layout = {.tp = 2,
                            .cp = cases[i].cp,
                            .dp = cases[i].dp,
                            .pp = 2,
                            .chunks = 1,
                            .zero = 3,
                            .zero_group = cases[i].group};
        assert_true(sp_rank_order_read(cases[i].order, &layout.order));
        assert_int_equal(sp_layout_parameter_ranks(&layout), cases[i].ranks);
        layout.lone_gathers = true;
        assert_int_equal(sp_layout_parameter_ranks(&layout), 1);
        layout.lone_gathers = false;
        layout.zero = 2;
        assert_int_equal(sp_layout_parameter_ranks(&layout), 1);
    }
}
