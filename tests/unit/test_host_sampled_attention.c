// A layer of sampled attention on several threads: the bits of one, and a report that says what its
// heads say by themselves.

#include "backends/host/sampled_attention.h"
#include "sim/base/progress.h"
#include "tests/support/kernels/tensors.h"
#include "tests/support/test_main.h"

enum { HEADS = 4, KV_HEADS = 2, HEAD_DIM = 64, TOKENS = 700, BEGIN = 70, LEN = TOKENS - BEGIN };
enum { Q = HEADS * HEAD_DIM, KV = KV_HEADS * HEAD_DIM };

typedef struct layer_case {
    tensors all;
    tensor q, k, v, out, lse;
    sp_host_sampled_layer layer;
} layer_case;

// Heads of one KV head differ by their queries' noise alone, those of the other by their keys too.
static void set_up(layer_case *c, sp_kernel_sample_pattern pattern)
{
    static const sp_sample_input inputs[KV_HEADS] = {
        {.sink = 9, .stripe = 9, .stripe_share = 0.01, .band = 9, .noise = 0.7},
        {.sink = 5, .band = 14, .noise = 0.5}};
    tensors_init(&c->all, 3);
    c->q = tensor_zero(&c->all, TOKENS * Q);
    c->k = tensor_zero(&c->all, TOKENS * KV);
    c->v = tensor_random(&c->all, TOKENS * KV);
    c->out = tensor_zero(&c->all, LEN * Q);
    c->lse = tensor_zero(&c->all, LEN * HEADS);
    for (int h = 0; h < HEADS; h++) {
        int kv = h / (HEADS / KV_HEADS);
        sp_sample_input_fill(&inputs[kv], 1 + (uint64_t)h, TOKENS, HEAD_DIM, c->q.f + h * HEAD_DIM,
                             Q, c->k.f + kv * HEAD_DIM, KV);
    }
    c->layer = (sp_host_sampled_layer){.shape = {.heads = HEADS,
                                                 .kv_heads = KV_HEADS,
                                                 .head_dim = HEAD_DIM,
                                                 .q_stride = Q,
                                                 .kv_stride = KV,
                                                 .out_stride = Q,
                                                 .scale = 0.125},
                                       .options = {.pattern = pattern,
                                                   .alpha = 0.9,
                                                   .alpha_slash = 0.8,
                                                   .row_share = 0.1,
                                                   .window_share = 0.08,
                                                   .window_counts = true,
                                                   .bottom_rows = 1},
                                       .begin = BEGIN,
                                       .len = LEN,
                                       .q = c->q.f + BEGIN * Q,
                                       .k = c->k.f,
                                       .v = c->v.f,
                                       .out = c->out.f,
                                       .lse = c->lse.f};
    sp_kernels_start_threads(1);
}

static sp_host_sampled_report run(layer_case *c, int threads)
{
    sp_host_sampled_report report;
    memset(c->out.f, 0, LEN * Q * sizeof(float));
    must_succeed(sp_host_sampled_attention(&c->layer, threads, &report, ERR));
    return report;
}

static void check_threads(sp_kernel_sample_pattern pattern)
{
    layer_case c;
    set_up(&c, pattern);
    sp_host_sampled_report alone = run(&c, 1);
    static float out[LEN * Q];
    memcpy(out, c.out.f, sizeof out);
    assert_within(alone.slowest_share, 1.0, 1e-12);
    assert_true(alone.coverage > 0.0 && alone.coverage < 1.0);
    assert_true(alone.kept_pairs > 0.0 && alone.kept_pairs < 1.0 && alone.densest_head >= 1.0);
    for (int threads = 2; threads < 5; threads++) {
        sp_host_sampled_report report = run(&c, threads);
        assert_memory_equal(c.out.f, out, sizeof out);
        assert_within(report.coverage, alone.coverage, 0.0);
        assert_within(report.kept_pairs, alone.kept_pairs, 0.0);
        // Tiles are small beside a thread's share.
        assert_true(report.slowest_share >= 1.0 && report.slowest_share < 1.1);
    }
    tensors_fini(&c.all);
}

TEST(any_number_of_threads_gives_the_bits_of_one)
{
    check_threads(SP_KERNEL_SAMPLE_STRIPES);
    check_threads(SP_KERNEL_SAMPLE_SLASHES);
}

TEST(with_alpha_of_one_all_is_kept)
{
    layer_case c;
    set_up(&c, SP_KERNEL_SAMPLE_STRIPES);
    c.layer.options.alpha = 1.0;
    sp_host_sampled_report report = run(&c, 2);
    assert_within(report.coverage, 1.0, 1e-5);
    assert_within(report.kept_pairs, 1.0, 1e-12);
    assert_within(report.densest_head, 1.0, 1e-12);
    tensors_fini(&c.all);
}

static const sp_sampled_execution execution = {.heads = 4,
                                               .kv_heads = 2,
                                               .head_dim = 32,
                                               .tokens = 500,
                                               .options = {.pattern = SP_KERNEL_SAMPLE_STRIPES,
                                                           .alpha = 0.9,
                                                           .row_share = 0.1,
                                                           .window_share = 0.08,
                                                           .window_counts = true,
                                                           .bottom_rows = 1},
                                               .seed = 1,
                                               .threads = 2};

// The sampled queries are some of all, and no output differs by more than the coverage allows.
TEST(execution_within_its_bound)
{
    sp_sampled_outcome outcome;
    must_succeed(sp_sampled_execute(&execution, &outcome, ERR));
    assert_true(outcome.coverage <= outcome.report.coverage + 1e-5);
    assert_true(outcome.coverage > 0.0 && outcome.coverage < 0.999);
    assert_true(outcome.error > 1e-4 && outcome.error <= outcome.bound + 1e-4);
    assert_true(outcome.dense_s > 0.0 && outcome.sampled_s > 0.0);
}

// The bits of dense attention.
TEST(execution_of_every_key)
{
    sp_sampled_execution all = execution;
    sp_sampled_outcome outcome;
    all.options.alpha = 1.0;
    must_succeed(sp_sampled_execute(&all, &outcome, ERR));
    assert_within(outcome.coverage, 1.0, 1e-5);
    assert_within(outcome.error, 0.0, 0.0);
}
