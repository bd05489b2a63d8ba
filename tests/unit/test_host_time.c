// Launches beside the GPU, from the equations in profile.h: a layer's launches in quarters, the
// softmax of unfused attention, the shares of the ends, and the norm of GPU and host time.

#include "tests/support/flat_profile.h"
#include "tests/support/initializers.h"
#include "tests/support/pack_times.h"
#include "tests/support/priced_step.h"
#include "tests/support/scenario_run.h"

#include "sim/cost/cost_model.h"
#include "sim/cost/cost_private.h"

static const sp_host_model plain = {.layer_s = 4e-3, .softmax_s = 1e-3, .head_s = 10e-3};
static const sp_layout one_rank = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};

TEST(quarters_of_a_layer)
{
    const sp_i_pack_time time = {.layout = &one_rank, .recompute_share = 1.0};
    const sp_stage stage = {.layers = 3};
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        assert_close(sp_i_exec_s(&plain, &time, &stage, (sp_pass)pass, false), 3 * 1e-3, 1e-12);
    }
}

// Layers with experts take more, in the same quarters, which grow with TP alike.
TEST(layers_with_experts)
{
    const sp_host_model host = {.layer_s = 4e-3, .expert_layer_s = 8e-3, .tp_growth = 0.5};
    sp_layout layout = one_rank;
    const sp_i_pack_time time = {.layout = &layout, .recompute_share = 0.25};
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        double share = pass == SP_PASS_RECOMPUTE ? 0.25 : 1.0;
        layout.tp = 1;
        assert_close(sp_i_experts_exec_s(&host, &time, 3, (sp_pass)pass), 3 * 2e-3 * share, 1e-12);
        layout.tp = 4;
        assert_close(sp_i_experts_exec_s(&host, &time, 3, (sp_pass)pass), 6 * 2e-3 * share, 1e-12);
    }
}

// A step of next to no work takes what the launches of its layers take, three quarters of each and
// of the two with experts; this program's own stacks launch otherwise than the profile's framework.
TEST(launches_of_a_step)
{
    static const char text[] =
        "{'model': {'layers': 4, 'hidden': 64, 'ffn': 64, 'heads': 8, 'vocab': 1000, 'experts': 8, "
        "'experts_per_token': 1, 'layer_kinds': [{'layers': 1}, {'layers': 1, 'experts': 0, "
        "'experts_per_token': 0}]}, 'cluster': 'h100-8', 'stack': '%s', 'workload': {'uniform': "
        "64, 'samples_per_batch': 1}}";
    SCENARIO_RUN(r, json_text(text, "megatron-core-2025"), &run_verified);
    SCENARIO_RUN(own, json_text(text, "ours"), &run_verified);
    const sp_host_model *host = &r.scenario.profile.host;
    const double launches_ms = 1e3 * 0.75 * (4 * host->layer_s + 2 * host->expert_layer_s);
    assert_true(host->expert_layer_s > 0.0 && own.scenario.profile.host.layer_s == 0.0);
    assert_within(sp_result_iteration_ms(&r.result), launches_ms, 0.05);
    assert_true(sp_result_iteration_ms(&own.result) < 0.5 * launches_ms);
}

// Each doubling of TP adds its share of the launches, of the softmax too.
TEST(tensor_parallel_growth)
{
    sp_host_model host = plain;
    host.tp_growth = 0.05;
    const sp_stage stage = {.layers = 2};
    for (int doublings = 0; doublings < 5; doublings++) {
        sp_layout layout = one_rank;
        layout.tp = 1 << doublings;
        const sp_i_pack_time time = {.layout = &layout, .unfused_softmax = 1.0};
        double grown = 1.0 + 0.05 * doublings;
        assert_close(sp_i_exec_s(&host, &time, &stage, SP_PASS_F, false), 2 * grown * (1e-3 + 1e-3),
                     1e-12);
        assert_close(sp_i_exec_s(&host, &time, &stage, SP_PASS_I, false),
                     2 * grown * (1e-3 + 0.5e-3), 1e-12);
        assert_close(sp_i_exec_s(&host, &time, &stage, SP_PASS_W, false), 2 * grown * 1e-3, 1e-12);
    }
}

// A pipeline across nodes adds its time for each rank of a TP group, in quarters, and nothing
// without tensor parallelism.
TEST(tensor_parallel_beside_a_pipeline)
{
    sp_host_model host = plain;
    const sp_stage stage = {.layers = 3};
    host.tp_rank_s = 2e-3;
    for (int tp = 1; tp <= 16; tp *= 2) {
        sp_layout layout = one_rank;
        layout.tp = tp;
        const sp_i_pack_time time = {.layout = &layout};
        double more_s = tp > 1 ? 0.5e-3 * tp : 0.0;
        assert_close(sp_i_exec_s(&host, &time, &stage, SP_PASS_W, false), 3 * 1e-3, 1e-12);
        assert_close(sp_i_exec_s(&host, &time, &stage, SP_PASS_W, true), 3 * (1e-3 + more_s),
                     1e-12);
    }
}

// The softmax counts with the share of the attention calls that run it unfused, and runs again
// where the attention does.
TEST(softmax_share)
{
    const sp_stage stage = {.layers = 1};
    sp_i_pack_time time = {.layout = &one_rank, .unfused_softmax = 0.25, .recompute_share = 0.5};
    assert_close(sp_i_exec_s(&plain, &time, &stage, SP_PASS_F, false), 1e-3 + 0.25e-3, 1e-12);
    assert_close(sp_i_exec_s(&plain, &time, &stage, SP_PASS_I, false), 1e-3 + 0.125e-3, 1e-12);
    assert_close(sp_i_exec_s(&plain, &time, &stage, SP_PASS_RECOMPUTE, false), 0.5e-3, 1e-12);
    time.recomputes_attention = true;
    assert_close(sp_i_exec_s(&plain, &time, &stage, SP_PASS_RECOMPUTE, false), 0.5e-3 + 0.25e-3,
                 1e-12);
}

// Each step of a ring is launched half forward and half with the input gradient, again where the
// attention runs again, and not with weight gradients.
TEST(ring_steps)
{
    const sp_host_model host = {.layer_s = 4e-3, .cp_step_s = 0.8e-3};
    const sp_stage stage = {.layers = 2};
    for (int steps = 0; steps <= 8; steps += 2) {
        sp_i_pack_time time = {.layout = &one_rank, .recompute_share = 0.5, .ring_steps = steps};
        double ring = 0.4e-3 * steps;
        assert_close(sp_i_exec_s(&host, &time, &stage, SP_PASS_F, false), 2 * (1e-3 + ring), 1e-12);
        assert_close(sp_i_exec_s(&host, &time, &stage, SP_PASS_I, false), 2 * (1e-3 + ring), 1e-12);
        assert_close(sp_i_exec_s(&host, &time, &stage, SP_PASS_W, false), 2 * 1e-3, 1e-12);
        assert_close(sp_i_exec_s(&host, &time, &stage, SP_PASS_RECOMPUTE, false), 2 * 0.5e-3,
                     1e-12);
        time.recomputes_attention = true;
        assert_close(sp_i_exec_s(&host, &time, &stage, SP_PASS_RECOMPUTE, false),
                     2 * (0.5e-3 + ring), 1e-12);
    }
}

// A ring over as many ranks as hold the pack, those of merged data-parallel ranks among them; none
// on one rank, nor where a gather or all-to-alls bring all keys before the attention.
TEST(steps_of_a_pack)
{
    sp_model model;
    AUTO(sp_profile) profile;
    must_succeed(sp_model_builtin("llama-7b", &model, ERR));
    must_succeed(flat_profile(NULL, &profile, ERR));
    const sp_cluster cluster = {
        .gpus_per_node = 8, .nodes = 1, .nics_per_node = 8, .nic_bytes_per_s = 5e10};
    for (int cp = 1; cp <= 8; cp *= 2) {
        for (int overlap = 0; overlap <= (int)SP_CP_A2A_P2P; overlap++) {
            sp_layout layout = one_rank;
            layout.cp = cp;
            layout.cp_a2a = 2;
            pack_times_case of = {.model = &model,
                                  .cluster = &cluster,
                                  .profile = &profile,
                                  .layout = layout,
                                  .memory = {.stack = {.cp_overlap = (sp_cp_overlap)overlap}}};
            sp_i_pack_time time;
            pack_times_of_samples(&of, 1, 1000, &time);
            bool nested = overlap == SP_CP_A2A_P2P || overlap == SP_CP_A2A; // beyond the heads
            int steps = overlap == SP_CP_ATTENTION ? cp : nested ? cp / 2 : 0;
            assert_int_equal(time.ring_steps, steps > 1 ? steps : 0);
        }
    }
}

// 0.2 of it on the embedding's forward, 0.4 on the head's forward and 0.4 on its backward; one rank
// with both ends pays all of it.
TEST(head_shares)
{
    const sp_i_pack_time time = {.layout = &one_rank, .recompute_share = 1.0};
    const sp_host_model host = {.head_s = 10e-3};
    const double shares[3][SP_I_PASSES] = {{[SP_PASS_F] = 0.2},
                                           {[SP_PASS_F] = 0.4, [SP_PASS_I] = 0.4},
                                           {[SP_PASS_F] = 0.6, [SP_PASS_I] = 0.4}};
    for (int i = 0; i < 3; i++) {
        const sp_stage stage = {.layers = 1, .embedding = i != 1, .head = i != 0};
        double total = 0.0;
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            double host_s = sp_i_exec_s(&host, &time, &stage, (sp_pass)pass, false);
            assert_close(host_s, shares[i][pass] * 10e-3, 1e-12);
            total += host_s;
        }
        assert_true(i < 2 || fabs(total - 10e-3) < 1e-15);
    }
}

// A recomputation launches its share of the forward's kernels. Llama's forward without TP: norms 2,
// QKV, rotary 2, attention 1, output, adds 2, fc1, SwiGLU 2 (SiLU and product), fc2: 13 kernels;
// again run: attention 1; norms and SwiGLU 4, and fc1 5; all 13.
TEST(partial_recompute_share)
{
    const double shares[SP_RECOMPUTE_MODES] = {0, 4.0 / 13, 5.0 / 13, 1.0 / 13, -1, 1};
    sp_model model;
    sp_profile profile;
    must_succeed(sp_model_builtin("llama-7b", &model, ERR));
    must_succeed(flat_profile(NULL, &profile, ERR));
    const sp_cluster cluster = {
        .gpus_per_node = 8, .nodes = 1, .nics_per_node = 8, .nic_bytes_per_s = 5e10};
    for (int mode = 0; mode < SP_RECOMPUTE_MODES; mode++) {
        if (mode == SP_RECOMPUTE_MLA_UP_PROJ) {
            continue; // of latents, which the model has none of
        }
        pack_times_case of = {.model = &model,
                              .cluster = &cluster,
                              .profile = &profile,
                              .layout = one_rank,
                              .memory = {.recompute = (sp_recompute)mode}};
        sp_i_pack_time time;
        pack_times_of_samples(&of, 1, 1000, &time);
        assert_close(time.recompute_share, shares[mode], 1e-12);
        assert_int_equal(time.recomputes_attention,
                         mode == SP_RECOMPUTE_ATTENTION || mode == SP_RECOMPUTE_FULL);
        assert_close(sp_i_exec_s(&plain, &time, &(sp_stage){.layers = 1}, SP_PASS_RECOMPUTE, false),
                     1e-3 * shares[mode], 1e-12);
    }
    sp_profile_fini(&profile);
}

// (gpu^q + host^q)^(1/q): q = 1 is the sum, q = 2 Pythagoras', 0 stands for the larger of the two.
TEST(norm_of_both)
{
    sp_host_model host = {.overlap_power = 1.0};
    assert_close(sp_i_launch_wait_s(&host, 3.0, 4.0), 4.0, 1e-12);
    assert_close(sp_i_launch_wait_s(&host, 3.0, 0.0), 0.0, 1e-12);
    assert_close(sp_i_launch_wait_s(&host, 0.0, 4.0), 4.0, 1e-12);
    host.overlap_power = 2.0;
    assert_close(sp_i_launch_wait_s(&host, 3.0, 4.0), 2.0, 1e-12);
    assert_close(sp_i_launch_wait_s(&host, 4.0, 3.0), 1.0, 1e-12);
    host.overlap_power = 0.0;
    assert_close(sp_i_launch_wait_s(&host, 3.0, 4.0), 1.0, 1e-12);
    assert_true(sp_i_launch_wait_s(&host, 4.0, 3.0) == 0.0);
    assert_true(sp_i_launch_wait_s(&host, 0.0, 0.0) == 0.0);
}

TEST_ROUNDS(norm_lies_between, 41, 10000)
{
    sp_host_model host = {.overlap_power = 1.0 + 99.0 * sp_prng_uniform(prng)};
    double gpu_s = exp(20.0 * sp_prng_uniform(prng) - 15.0);
    double host_s = exp(20.0 * sp_prng_uniform(prng) - 15.0);
    double total = gpu_s + sp_i_launch_wait_s(&host, gpu_s, host_s);
    assert_true(total >= fmax(gpu_s, host_s) * (1 - 1e-12));
    assert_true(total <= (gpu_s + host_s) * (1 + 1e-12));
    // The definition itself, where it does not overflow.
    double q = fmin(host.overlap_power, 8.0);
    host.overlap_power = q;
    double norm = pow(pow(gpu_s, q) + pow(host_s, q), 1.0 / q);
    assert_true(fabs(gpu_s + sp_i_launch_wait_s(&host, gpu_s, host_s) - norm) <= 1e-9 * norm);
    // More of either is never faster, and a harder overlap never slower.
    double more_s = sp_i_launch_wait_s(&host, gpu_s, host_s * 1.5);
    assert_true(more_s >= sp_i_launch_wait_s(&host, gpu_s, host_s) - 1e-12 * norm);
    assert_true(1.5 * gpu_s + sp_i_launch_wait_s(&host, 1.5 * gpu_s, host_s) >= norm * (1 - 1e-9));
    host.overlap_power = q + 1.0;
    assert_true(gpu_s + sp_i_launch_wait_s(&host, gpu_s, host_s) <= norm * (1 + 1e-9));
}

static const sp_model small = {LLAMA_SHAPE(4, 1024, 2816, 8, 8, 32000)};

static void build(const char *const *overrides, sp_step_costs *costs, sp_epilogue_cost *epilogue)
{
    AUTO(sp_profile) profile;
    AUTO(sp_cost_model) cost;
    AUTO(sp_packing) packing;
    const sp_cluster cluster = {
        .gpus_per_node = 8, .nodes = 1, .nics_per_node = 8, .nic_bytes_per_s = 5e10};
    must_succeed(flat_profile(overrides, &profile, ERR));
    must_succeed(sp_cost_model_init(&cost, &small, &one_rank, &cluster, &profile,
                                    (sp_memory_options){.recompute = SP_RECOMPUTE_FULL}, "test",
                                    ERR));
    sp_packing_init(&packing, NULL, 1);
    sp_pack_list_begin(&packing.forward, 0, 1);
    sp_pack_list_add(&packing.forward, (sp_slice){0, 0, 0, 2048, 2048}, true);
    must_succeed(sp_cost_model_build(&cost, &packing, costs, ERR));
    *epilogue = costs->ranks[0].epilogue;
}

#define HOST(constants) "host={" constants ",\"level\":\"fitted\",\"source\":\"s\"}"

// In the costs of actions: the norm is taken over a whole action, and what it adds is said apart.
TEST(actions_wait_for_launches)
{
    AUTO(sp_step_costs) bare, costs;
    sp_epilogue_cost bare_epilogue, epilogue;
    build(NULL, &bare, &bare_epilogue);
    build((const char *[]){HOST("\"layer_us\":4000,\"overlap_power\":2"), NULL}, &costs, &epilogue);
    // Four layers: 4 ms for each of forward, both gradients and the whole forward that runs again.
    const struct {
        const sp_action_cost *bare, *with;
        double host_ns;
    } actions[] = {{bare.action[SP_ACTION_F], costs.action[SP_ACTION_F], 4e6},
                   {bare.action[SP_ACTION_R], costs.action[SP_ACTION_R], 4e6},
                   {bare.action[SP_ACTION_I], costs.action[SP_ACTION_I], 8e6},
                   {bare.action[SP_ACTION_W], costs.action[SP_ACTION_W], 4e6},
                   {bare.action[SP_ACTION_B], costs.action[SP_ACTION_B], 12e6}};
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        double gpu_ns = (double)sp_action_cost_ns(actions[i].bare);
        double norm_ns = sqrt(gpu_ns * gpu_ns + actions[i].host_ns * actions[i].host_ns);
        assert_within((double)sp_action_cost_ns(actions[i].with), norm_ns, 3);
        assert_within((double)actions[i].with->launch_ns, norm_ns - gpu_ns, 3);
        assert_int_equal(actions[i].bare->launch_ns, 0);
        assert_int_equal(actions[i].with->attention_ns, actions[i].bare->attention_ns);
    }
    // Minkowski: the norm of sums is at most the sum of norms.
    assert_true(costs.action[SP_ACTION_B]->compute_ns <=
                costs.action[SP_ACTION_I]->compute_ns + costs.action[SP_ACTION_W]->compute_ns + 2);
    assert_int_equal(epilogue.optimizer_ns, bare_epilogue.optimizer_ns);
}

// Fixed times of a unit, half forward and half backward (a quarter for each gradient, nothing for
// the recomputation), and of a step.
TEST(fixed_times)
{
    AUTO(sp_step_costs) bare, costs;
    sp_epilogue_cost bare_epilogue, epilogue;
    build(NULL, &bare, &bare_epilogue);
    build((const char *[]){HOST("\"unit_us\":2000,\"iteration_us\":1500"), NULL}, &costs,
          &epilogue);
    assert_int_equal(costs.action[SP_ACTION_F]->compute_ns - bare.action[SP_ACTION_F]->compute_ns,
                     1000000);
    assert_int_equal(costs.action[SP_ACTION_I]->compute_ns - bare.action[SP_ACTION_I]->compute_ns,
                     500000);
    assert_int_equal(costs.action[SP_ACTION_W]->compute_ns - bare.action[SP_ACTION_W]->compute_ns,
                     500000);
    assert_int_equal(costs.action[SP_ACTION_B]->compute_ns - bare.action[SP_ACTION_B]->compute_ns,
                     1000000);
    assert_int_equal(costs.action[SP_ACTION_R]->compute_ns, bare.action[SP_ACTION_R]->compute_ns);
    assert_int_equal(epilogue.optimizer_ns - bare_epilogue.optimizer_ns, 1500000);
}

// Where the host waits for each kernel its time adds to the GPU's, whatever the profile says of how
// the two overlap.
TEST(blocking_launches_add)
{
    AUTO(priced_step) added, hidden, blocked;
    priced_case c = priced_default();
    c.overrides[0] = HOST("\"layer_us\":900,\"overlap_power\":1");
    priced_step_run(&c, &added);
    c.overrides[0] = HOST("\"layer_us\":900,\"overlap_power\":16");
    priced_step_run(&c, &hidden);
    c.memory.stack.blocking_launches = true;
    priced_step_run(&c, &blocked);
    assert_true(hidden.metrics.iteration_ns < added.metrics.iteration_ns);
    assert_within((double)blocked.metrics.iteration_ns, (double)added.metrics.iteration_ns, 100.0);
}
