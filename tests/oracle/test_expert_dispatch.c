// Times of DeepEP's and HybridEP's dispatches and combinations against published bandwidths that
// the constants of sim/cost/expert_dispatch.c were not fitted to.
//
// Sources: deepseek-ai/DeepEP@567632d, README.md (V1, normal kernels), and @94a9f8f (branch
// hybrid-ep), docs/README_Hybrid-EP.md (kernels alone): 4096 tokens of 7168 features, 8 of 256
// experts. Bandwidths count the bytes of a token once for each node, its own among them (once for
// each rank where there is one node), FP8 rows with 4 bytes for each 128 numbers (tests/
// test_internode.py, tests/test_hybrid_ep.py). With more than four nodes DeepEP's tokens go to four
// of them at most. Constants were fitted to every second configuration of GPU, ranks and SMs; these
// are the others, without those whose ranks do not divide the experts.

#include "sim/cost/cost_private.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { TOKENS = 4096, FEATURES = 7168, EXPERTS = 256, ACTIVE = 8 };

typedef struct published {
    sp_dispatcher by;
    const char *gpu;
    double nvlink_gb_per_s, nic_gb_per_s; // of a GPU; 0 NICs: one node
    int ranks, per_node;
    bool limited;
    int sms;
    bool fp8, combines;
    double gb_per_s;
} published;

// clang-format off
static const published held_out[] = {
    {SP_DISPATCH_DEEPEP, "H800", 200, 50, 8, 8, false, 20, true, false, 153},
    {SP_DISPATCH_DEEPEP, "H800", 200, 50, 8, 8, false, 20, false, true, 158},
    {SP_DISPATCH_DEEPEP, "H800", 200, 50, 32, 8, false, 20, true, false, 58},
    {SP_DISPATCH_DEEPEP, "H800", 200, 50, 32, 8, false, 20, false, true, 57},
    {SP_DISPATCH_DEEPEP, "B200", 900, 0, 8, 8, false, 24, true, false, 349},
    {SP_DISPATCH_DEEPEP, "B200", 900, 0, 8, 8, false, 24, false, true, 420},
    {SP_DISPATCH_DEEPEP, "B200", 900, 0, 8, 8, false, 24, false, false, 494},
    {SP_DISPATCH_DEEPEP, "B200", 900, 0, 8, 8, false, 40, true, false, 519},
    {SP_DISPATCH_DEEPEP, "B200", 900, 0, 8, 8, false, 40, false, true, 570},
    {SP_DISPATCH_DEEPEP, "B200", 900, 0, 8, 8, false, 40, false, false, 629},
    {SP_DISPATCH_HYBRIDEP, "H100", 450, 50, 16, 8, false, 8, true, false, 62},
    {SP_DISPATCH_HYBRIDEP, "H100", 450, 50, 16, 8, false, 8, false, true, 68},
    {SP_DISPATCH_HYBRIDEP, "H100", 450, 50, 16, 8, false, 8, false, false, 76.8},
    {SP_DISPATCH_HYBRIDEP, "H100", 450, 50, 32, 8, false, 8, true, false, 51.3},
    {SP_DISPATCH_HYBRIDEP, "H100", 450, 50, 32, 8, false, 8, false, true, 56.4},
    {SP_DISPATCH_HYBRIDEP, "H100", 450, 50, 32, 8, false, 8, false, false, 54.5},
    {SP_DISPATCH_HYBRIDEP, "H100", 450, 50, 64, 8, false, 8, true, false, 46.63},
    {SP_DISPATCH_HYBRIDEP, "H100", 450, 50, 64, 8, false, 8, false, true, 51.03},
    {SP_DISPATCH_HYBRIDEP, "H100", 450, 50, 64, 8, false, 8, false, false, 50.55},
    {SP_DISPATCH_HYBRIDEP, "GB200", 900, 0, 8, 8, false, 16, false, true, 684.27},
    {SP_DISPATCH_HYBRIDEP, "GB200", 900, 0, 8, 8, false, 16, false, false, 750.15},
    {SP_DISPATCH_HYBRIDEP, "GB200", 900, 0, 16, 16, false, 16, false, true, 600.75},
    {SP_DISPATCH_HYBRIDEP, "GB200", 900, 0, 16, 16, false, 16, false, false, 661.93},
    {SP_DISPATCH_HYBRIDEP, "GB200", 900, 0, 32, 32, false, 16, false, true, 547.25},
    {SP_DISPATCH_HYBRIDEP, "GB200", 900, 0, 32, 32, false, 16, false, false, 629.79},
};
// clang-format on

static sp_op op_of(bool fp8, bool returns, int groups, int active_groups)
{
    return (sp_op){.kind = SP_OP_ROUTED_TOKENS,
                   .token_share = 1.0,
                   .repeat = 1,
                   .returns = returns,
                   .bytes_per_token = fp8 ? FEATURES + FEATURES / 128.0 * 4.0 : 2.0 * FEATURES,
                   .routing = {EXPERTS, ACTIVE, groups, active_groups}};
}

// Seconds by the bytes that the bandwidth counts.
static double measured_s(const published *p)
{
    sp_op op = op_of(p->fp8 && !p->combines, p->combines, p->limited ? 8 : 0, p->limited ? 4 : 0);
    int of_each = p->ranks > p->per_node ? p->per_node : 1;
    double counted = sp_i_distinct(&op.routing, p->ranks, of_each);
    return counted * TOKENS * op.bytes_per_token / (p->gb_per_s * 1e9);
}

static double modelled_s(const published *p)
{
    static const sp_profile profile = {.name = "none", .nic_efficiency = 0.92};
    const sp_cluster cluster = {.gpus_per_node = p->per_node,
                                .nics_per_node = p->nic_gb_per_s > 0.0 ? p->per_node : 0,
                                .nic_bytes_per_s = p->nic_gb_per_s * 1e9,
                                .nvlink_bytes_per_s = p->nvlink_gb_per_s * 1e9};
    const sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
    const sp_stack stack = {.dispatcher = p->by, .dispatcher_sms = p->sms};
    const sp_group group = {p->ranks, p->ranks / p->per_node, p->per_node, p->per_node};
    sp_op op = op_of(p->fp8 && !p->combines, p->combines, p->limited ? 8 : 0, p->limited ? 4 : 0);
    return TOKENS * sp_i_routed_s_per_token(&timer, &stack, group, 1, &op);
}

static void check_errors(sp_dispatcher by, double most_mean, double most)
{
    double sum = 0.0;
    double worst = 0.0;
    int count = 0;
    for (int i = 0; i < COUNT_OF(held_out); i++) {
        const published *p = &held_out[i];
        if (p->by == by) {
            double error = fabs(modelled_s(p) / measured_s(p) - 1.0);
            sum += error;
            worst = fmax(worst, error);
            count++;
        }
    }
    print_message("%d times: mean error %.1f %%, worst %.1f %%\n", count, 100.0 * sum / count,
                  100.0 * worst);
    assert_true(sum / count <= most_mean);
    assert_true(worst <= most);
}

TEST(deepep_as_published)
{
    check_errors(SP_DISPATCH_DEEPEP, 0.04, 0.08);
}

TEST(hybridep_as_published)
{
    check_errors(SP_DISPATCH_HYBRIDEP, 0.06, 0.16);
}

// ---- DeepSeek's training trace ----

// deepseek-ai/profile-data, train.json: a forward and a backward chunk of four layers of
// DeepSeek-V3 on H800, 64 ranks on 8 nodes, 4096 tokens a rank, DualPipe's pairs, 20 SMs. Kernels
// of the last two layers, in ms; FP8 rows go, bf16 rows come back (exchange_slows was fitted to the
// first two).
static const double trace_sends_ms[] = {3.613, 4.437, 3.113, 4.188};
static const double trace_returns_ms[] = {5.889, 5.847, 6.492, 6.052};

// The computing stream, busy: forward attention, experts' input gradients with what is computed
// again, their weight gradients, forward experts, attention's input and weight gradients.
static const double trace_computing_ms[4][6] = {{4.311, 5.108, 5.910, 3.911, 9.357, 2.375},
                                                {4.286, 4.798, 5.637, 4.029, 9.723, 2.382},
                                                {4.438, 4.787, 5.869, 4.790, 9.837, 2.392},
                                                {4.490, 4.085, 5.235, 4.207, 9.924, 2.405}};

#define TRACE_SPAN_MS 129.012

static double alone_ms(bool returns)
{
    static const sp_profile profile = {.name = "none", .nic_efficiency = 0.92};
    sp_cluster cluster;
    must_succeed(sp_cluster_builtin("h800-8", &cluster, ERR));
    const sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
    const sp_stack stack = {.dispatcher = SP_DISPATCH_DEEPEP};
    const sp_group group = {64, 8, 8, 8};
    sp_op op = op_of(!returns, returns, 8, 4);
    return 1e3 * TOKENS * sp_i_routed_s_per_token(&timer, &stack, group, 1, &op);
}

static double mean_of(const double *values, int count)
{
    double sum = 0.0;
    for (int i = 0; i < count; i++) {
        sum += values[i];
    }
    return sum / count;
}

// Beside computation, of layers that the constant had not seen: the mean dispatch 9 % too short,
// the mean combination 11 % too long.
TEST(kernels_of_the_training_trace)
{
    double sends = alone_ms(false) * (1.0 + SP_I_EXCHANGE_SLOWS) / mean_of(trace_sends_ms, 4) - 1.0;
    double returns =
        alone_ms(true) * (1.0 + SP_I_EXCHANGE_SLOWS) / mean_of(trace_returns_ms, 4) - 1.0;
    print_message("dispatch %+.1f %%, combination %+.1f %%\n", 100.0 * sends, 100.0 * returns);
    assert_true(fabs(sends) <= 0.12);
    assert_true(fabs(returns) <= 0.12);
}

// Products of FP8 matrices that a token passes in a layer, outputs and inputs: latents of queries,
// queries, latent of keys and values, these, output; gate and up, down of the shared expert.
static const double trace_dense[][2] = {{1536, 7168},  {24576, 1536}, {576, 7168}, {32768, 512},
                                        {7168, 16384}, {4096, 7168},  {7168, 2048}};
static const double trace_grouped[][2] = {{4096, 7168}, {7168, 2048}};

// Forward, both gradients, and the queries, keys and values that DeepSeek-V3 computes again (arXiv
// 2412.19437, section 3.2.3); a rank has 4 experts with 8192 rows each.
static double trace_products_s(const sp_op_timer *timer)
{
    double sum_s = 0.0;
    for (int i = 0; i < COUNT_OF(trace_dense); i++) {
        double n = trace_dense[i][0];
        double k = trace_dense[i][1];
        double forward_s = sp_time_fp8_gemm(timer, SP_GEMM_TOKENS_OUT, 1, TOKENS, n, k);
        sum_s += (i == 1 || i == 3 ? 2.0 : 1.0) * forward_s +
                 sp_time_fp8_gemm(timer, SP_GEMM_TOKENS_OUT, 1, TOKENS, k, n) +
                 sp_time_fp8_gemm(timer, SP_GEMM_TOKENS_IN, 1, TOKENS, n, k);
    }
    for (int i = 0; i < COUNT_OF(trace_grouped); i++) {
        double n = trace_grouped[i][0];
        double k = trace_grouped[i][1];
        double rows = TOKENS * ACTIVE * 64.0 / EXPERTS;
        sum_s += sp_time_fp8_gemm(timer, SP_GEMM_TOKENS_OUT, 4, rows, n, k) +
                 sp_time_fp8_gemm(timer, SP_GEMM_TOKENS_OUT, 4, rows, k, n) +
                 sp_time_fp8_gemm(timer, SP_GEMM_TOKENS_IN, 4, rows, n, k);
    }
    return sum_s;
}

// All kernels of CUTLASS in the trace, 91.537 ms, are its FP8 products but for the backward of the
// attention, 3.8 ms a layer. By DeepGEMM's rates in short bursts, of which products keep 0.865
// through a step (BF16 ones, profiles/README.md), on the SMs that the exchanges leave, 112 of 132,
// while these run: 114.5 of 129.0 ms. Nothing of it was fitted to the trace.
TEST(products_of_the_training_trace)
{
    const double published_ms = 91.537 - 4.0 * 3.8;
    const double slowed = 1.0 + 114.5 / TRACE_SPAN_MS * (132.0 / 112.0 - 1.0);
    static const double keeps[] = {0.865, 1.0};
    static const char *const names[] = {"h800-burst", "h800-fitted"};
    for (int i = 0; i < 2; i++) {
        AUTO(sp_profile) profile;
        must_succeed(sp_profile_load(names[i], &profile, ERR));
        const sp_op_timer timer = {.profile = &profile};
        double alone_ms = 4.0e3 * trace_products_s(&timer);
        double error = alone_ms / keeps[i] * slowed / published_ms - 1.0;
        print_message("%s: %.1f ms alone, %+.1f %% of %.1f\n", names[i], alone_ms, 100.0 * error,
                      published_ms);
        assert_true(fabs(error) <= 0.12);
    }
}

// The list schedule of both chunks, with the trace's own computation, which the exchanges slowed
// already, and the exchanges of this model: within 8 % of the span.
TEST(span_of_the_training_trace)
{
    sp_layer_tasks forward[4];
    sp_layer_tasks backward[4];
    static const uint8_t kind[] = {0, 1, 2, 3};
    static const uint8_t reversed[] = {3, 2, 1, 0}; // the backward's last layer runs first
    int64_t sends_ns = llround(alone_ms(false) * 1e6);
    int64_t returns_ns = llround(alone_ms(true) * 1e6);
    for (int l = 0; l < 4; l++) {
        int64_t ns[6];
        for (int i = 0; i < 6; i++) {
            ns[i] = llround(trace_computing_ms[l][i] * 1e6);
        }
        forward[l] = (sp_layer_tasks){
            .attention_ns = ns[0], .first_ns = sends_ns, .mlp_ns = ns[3], .return_ns = returns_ns};
        backward[l] = (sp_layer_tasks){.attention_ns = ns[4],
                                       .first_ns = sends_ns,
                                       .mlp_ns = ns[1],
                                       .return_ns = returns_ns,
                                       .attention_weights_ns = ns[5],
                                       .mlp_weights_ns = ns[2]};
    }
    const sp_task_chain f = {forward, kind, 4};
    const sp_task_chain b = {backward, reversed, 4};
    for (int delays = 0; delays < 2; delays++) {
        const sp_overlap_rates rates = {.exchange_slows = SP_I_EXCHANGE_SLOWS,
                                        .delays_weights = delays != 0};
        sp_pair_times times = sp_time_pair(&rates, &f, &b);
        print_message("%.2f ms, computing %.2f, exchanging %.2f alone\n",
                      (double)times.makespan_ns * 1e-6, (double)times.compute_ns * 1e-6,
                      (double)times.exchange_ns * 1e-6);
        assert_close((double)times.makespan_ns * 1e-6, TRACE_SPAN_MS, 0.08);
    }
}

// ---- steps with and without an overlap ----

// Qwen3-30B-A3B on 16 H100, a pipeline of one rank, 64 micro-batches of 4096 tokens on each, 16
// expert ranks, balanced routing, bf16: seconds of a step without and with
// overlap_moe_expert_parallel_comm (NVIDIA-NeMo/Megatron-Bridge, pull requests 3862 for the
// all-to-all, without fused permutation, and 5094 for HybridEP). Nothing was fitted to them. What
// an overlap saves is the share that is compared more closely. All are predicted too fast:
// launches of layers with experts are not known (qwen3_overlap in experiments/published).
TEST(published_steps_with_and_without_an_overlap)
{
    static const struct {
        const char *dispatcher;
        double step_s[2];
        double most_error, most_error_of_ratio;
    } steps[] = {{"alltoall", {41.25, 31.31}, 0.12, 0.03},
                 {"hybridep", {24.71, 20.99}, 0.14, 0.08}};
    // Of all-to-all, PR 3880: "max allocated, GB as logged". A pair holds no more than a step
    // alone.
    static const double allocated_gb[2] = {61.35, 62.036};
    for (int i = 0; i < COUNT_OF(steps); i++) {
        double predicted_s[2];
        for (int on = 0; on < 2; on++) {
            scenario_run r;
            run_good(json_text("{'model': 'qwen3-30b-a3b', 'cluster': 'h100-8', 'workload': "
                               "{'uniform': 4096, 'samples_per_batch': 1024}, 'parallel': {'dp': "
                               "16, 'ep': 16}, 'stack': {'name': 'megatron-bridge-2025', "
                               "'dispatcher': '%s', 'expert_overlap': %s}}",
                               steps[i].dispatcher, on != 0 ? "true" : "false"),
                     &run_verified, &r);
            predicted_s[on] = sp_result_iteration_ms(&r.result) * 1e-3;
            assert_close((double)r.result.peak_bytes * 1e-9, allocated_gb[on], 0.03);
            scenario_run_fini(&r);
            print_message("%s: %.2f s, published %.2f\n", steps[i].dispatcher, predicted_s[on],
                          steps[i].step_s[on]);
            assert_close(predicted_s[on], steps[i].step_s[on], steps[i].most_error);
        }
        assert_close(predicted_s[1] / predicted_s[0], steps[i].step_s[1] / steps[i].step_s[0],
                     steps[i].most_error_of_ratio);
    }
}
