// Prefill: closed forms of its pipeline, SampleAttention's parts by their definition, and what one
// attention does beside another.

#include "sim/prefill/prefill.h"
#include "tests/support/scenario_fixture.h"

#define PROMPTS(lengths, more)                                                             \
    "{'model': 'llama-2-7b', 'cluster': 'a100-8', 'workload': {'lengths': [" lengths "], " \
    "'order': 'file'}" more "}"
#define SAMPLE(more) ", 'prefill': {'attention': 'sample'" more "}"

// A scenario with its first batch as prompts.
typedef struct prompts {
    sp_scenario scenario;
    sp_batches batches;
} prompts;

static void prompts_init(prompts *p, const char *text)
{
    *p = (prompts){0};
    must_succeed(fixture_read(text, &p->scenario, ERR));
    if (!p->scenario.uniform) {
        must_succeed(sp_batches_make(&p->scenario.workload, &p->batches, ERR));
    }
}

static void prompts_fini(prompts *p)
{
    sp_batches_fini(&p->batches);
    sp_scenario_fini(&p->scenario);
}

static sp_prefill_result prefill(const char *text)
{
    AUTO(prompts) p;
    sp_prefill_result result;
    prompts_init(&p, text);
    must_succeed(sp_prefill(&p.scenario, &p.batches.batch[0], NULL, NULL, &result, ERR));
    return result;
}

static int64_t first_token_ns(const char *text)
{
    AUTO(sp_prefill_result) result = prefill(text);
    return result.last_ns;
}

// On one rank prompts follow each other, each as if it were alone.
TEST(prompts_one_after_the_other)
{
    AUTO(sp_prefill_result) both = prefill(PROMPTS("3000, 5000", ""));
    int64_t first_ns = first_token_ns(PROMPTS("3000", ""));
    int64_t second_ns = first_token_ns(PROMPTS("5000", ""));
    assert_int_equal(both.count, 2);
    assert_int_equal(both.prompts[0].tokens, 3000);
    assert_int_equal(both.prompts[0].first_token_ns, first_ns);
    assert_int_equal(both.prompts[1].first_token_ns, first_ns + second_ns);
    assert_int_equal(both.last_ns, first_ns + second_ns);
}

// In one pack all prompts end together: their work is that of each, and no sooner than the longest
// alone. Whole prompts alone run so.
TEST(prompts_together)
{
    AUTO(sp_prefill_result) r =
        prefill(PROMPTS("3000, 5000, 3000", ", 'prefill': {'together': true}"));
    AUTO(sp_prefill_result) apart = prefill(PROMPTS("3000, 5000, 3000", ""));
    for (size_t p = 0; p < 3; p++) {
        assert_int_equal(r.prompts[p].first_token_ns, r.last_ns);
    }
    assert_close((double)r.parts.attention_ns, (double)apart.parts.attention_ns, 1e-6);
    assert_true(r.last_ns <= apart.last_ns);
    assert_true(r.last_ns > apart.prompts[1].first_token_ns - apart.prompts[0].first_token_ns);
}

// Equal prompts keep what one keeps.
TEST(sampled_prompts_together)
{
    AUTO(sp_prefill_result) one = prefill(PROMPTS("40000", SAMPLE("")));
    AUTO(sp_prefill_result) two = prefill(PROMPTS("40000, 40000", SAMPLE(", 'together': true")));
    assert_close((double)two.parts.attention_ns, 2.0 * (double)one.parts.attention_ns, 1e-6);
}

// The parts of one rank's time are all of it, and a dense prompt is as fast as dense.
TEST(parts_add_up)
{
    AUTO(sp_prefill_result) r = prefill(PROMPTS("20000", ""));
    const sp_prefill_parts *p = &r.parts;
    assert_int_equal(p->linear_ns + p->attention_ns + p->tp_ns + p->cp_ns, r.last_ns);
    assert_int_equal(r.last_ns, r.dense_last_ns);
    // 4 x hidden FLOPs of each of l*l/2 pairs in 32 layers, at 100 TFLOP/s.
    assert_close((double)p->attention_ns, 32.0 * 4.0 * 4096.0 * 2e8 / 1e14 * 1e9, 1e-6);
}

// With alpha 1 every key is kept.
TEST(alpha_of_one_is_dense)
{
    AUTO(sp_prefill_result) r = prefill(PROMPTS("50000", SAMPLE(", 'alpha': 1.0")));
    assert_int_equal(r.last_ns, r.dense_last_ns);
}

// A prompt passes p stages one after the other; in c equal chunks it takes about (c + p - 1) / c of
// one stage.
TEST(chunks_fill_the_pipeline)
{
    int64_t alone_ns = first_token_ns(PROMPTS("65536", ""));
    int64_t whole_ns = first_token_ns(PROMPTS("65536", ", 'parallel': {'pp': 4}"));
    int64_t chunked_ns =
        first_token_ns(PROMPTS("65536", ", 'parallel': {'pp': 4}, 'prefill': {'chunk_tokens': "
                                        "4096}"));
    assert_true(whole_ns > alone_ns && (double)whole_ns < 1.02 * (double)alone_ns);
    assert_true(chunked_ns < whole_ns / 2 && chunked_ns > alone_ns / 4);
}

// Tensor and context parallelism share out the work.
TEST(more_ranks_are_faster)
{
    int64_t one_ns = first_token_ns(PROMPTS("65536", SAMPLE("")));
    int64_t tp_ns = first_token_ns(PROMPTS("65536", ", 'parallel': {'tp': 4}" SAMPLE("")));
    int64_t cp_ns = first_token_ns(PROMPTS("65536", ", 'parallel': {'cp': 4}" SAMPLE("")));
    assert_true(tp_ns < one_ns && tp_ns > one_ns / 4);
    assert_true(cp_ns < one_ns && cp_ns > one_ns / 4);
}

static sp_prefill_attention sampled(sp_prefill_spec spec, int tp, double begin, double tokens)
{
    const sp_model model = {.layers = 12, .heads = 32};
    spec.attention = SP_PREFILL_SAMPLE;
    return sp_prefill_attention_of(&spec, &model, tp, 1, begin, tokens);
}

static const sp_prefill_spec usual = {
    .alpha = 0.95, .window_share = 0.08, .row_share = 0.05, .stripe_share = 0.2, .fixed_us = 10.0};

// A window of r S keys holds 2r - r^2 of the pairs; sampling takes half of the sampled rows'
// products; the last 128 rows see all keys.
TEST(parts_of_sampled_attention)
{
    sp_prefill_attention a = sampled(usual, 1, 0, 1e6);
    assert_within(a.window, 2 * 0.08 - 0.08 * 0.08, 1e-9);
    assert_within(a.sampling, 0.025, 1e-15);
    assert_within(a.bottom, 2 * 128 / 1e6, 1e-12);
    assert_within(a.stripes, 0.2, 1e-15);
    // Over the heads of one rank the stripes of single heads have that mean.
    assert_within(a.share, a.window + a.sampling + a.bottom + 0.2, 1e-9);
    assert_within(a.fixed_s, 32 * 10e-6, 1e-15);
}

// By the window alone attention is at most 5.6 times as fast.
TEST(the_window_caps_the_speedup)
{
    sp_prefill_spec spec = usual;
    spec.stripe_share = 0.0;
    sp_prefill_attention a = sampled(spec, 1, 0, 1e7);
    assert_within(1.0 / a.share, 1.0 / (0.1536 + 0.025), 1e-3);
}

// Chunks see together the pairs that the whole prompt has.
TEST(windows_of_chunks_add_up)
{
    sp_prefill_spec spec = usual;
    spec.window_share = 1.0;
    double pairs = 0;
    for (double begin = 0; begin < 64000; begin += 16000) {
        double own = 16000 * begin + 16000.0 * 16000.0 / 2.0;
        pairs += own * sampled(spec, 1, begin, 16000).window;
    }
    assert_close(pairs, 64000.0 * 64000.0 / 2.0, 1e-12);
}

// Work dealt by cost is as slow as the mean head, dealt head by head as the densest; over TP ranks
// the slowest is between the two, and nearer to the densest the fewer heads a rank has.
TEST(imbalance_of_heads_and_ranks)
{
    sp_prefill_spec by_heads = usual;
    by_heads.deal = SP_PREFILL_BY_HEADS;
    double least = sampled(usual, 1, 0, 1e5).share;
    double most = sampled(by_heads, 1, 0, 1e5).share;
    double before = least;
    for (int tp = 2; tp <= 16; tp *= 2) {
        sp_prefill_attention a = sampled(usual, tp, 0, 1e5);
        assert_true(a.share > before && a.share <= most);
        assert_close(a.slowest_over_mean, a.share / least, 1e-9);
        assert_close(a.densest_over_mean, most / least, 1e-9);
        before = a.share;
    }
    assert_close(sampled(usual, 32, 0, 1e5).share, most, 1e-9);
}

// No head keeps more than all keys: a wide window cuts the dense ones, and the mean with them.
TEST(a_wide_window_cuts_dense_heads)
{
    sp_prefill_spec spec = usual;
    spec.window_share = 0.5;
    sp_prefill_attention a = sampled(spec, 1, 0, 1e6);
    assert_true(a.stripes < 0.2);
    assert_within(a.share, a.window + a.sampling + a.bottom + a.stripes, 1e-12);
    assert_within(a.slowest_over_mean, 1.0, 1e-12);
    assert_within(a.densest_over_mean * a.share, 1.0 + a.sampling, 1e-12);
    assert_true(sampled(spec, 4, 0, 1e6).slowest_over_mean > 1.0);
}

// A higher alpha, a wider window, more sampled rows and a fixed time cost more; stripes thin out
// with the length.
TEST(each_setting_costs_what_it_says)
{
    sp_prefill_spec fitted = usual;
    fitted.stripe_share = fitted.fixed_us = -1.0;
    double base = sampled(fitted, 1, 0, 1e5).share;
    sp_prefill_spec spec = fitted;
    spec.alpha = 0.9;
    assert_true(sampled(spec, 1, 0, 1e5).share < base);
    spec = fitted;
    spec.window_share = 0.1;
    assert_true(sampled(spec, 1, 0, 1e5).share > base);
    spec = fitted;
    spec.row_share = 0.1;
    assert_close(sampled(spec, 1, 0, 1e5).share, base + 0.025, 1e-9);
    assert_true(sampled(fitted, 1, 0, 1e6).stripes < sampled(fitted, 1, 0, 1e5).stripes);
    assert_true(sampled(fitted, 1, 0, 1e5).fixed_s > sampled(usual, 1, 0, 1e5).fixed_s);
}

// The figure's speed-ups at 8K, 64K and 256K; between its points the mean of their logarithms.
TEST(peers_by_their_figure)
{
    const struct {
        sp_prefill_method method;
        double keys, speedup;
    } rows[] = {{SP_PREFILL_FLEXPREFILL, 8192, 0.2},
                {SP_PREFILL_FLEXPREFILL, 65536, 3.9},
                {SP_PREFILL_FLEXPREFILL, 262144, 7.6},
                {SP_PREFILL_XATTENTION, 8192, 1.7},
                {SP_PREFILL_XATTENTION, 65536, 4.3},
                {SP_PREFILL_XATTENTION, 262144, 9.8},
                {SP_PREFILL_XATTENTION, 185363.8, sqrt(7.1 * 9.8)}};
    const sp_model model = {.layers = 32, .heads = 32};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sp_prefill_spec spec = {.attention = rows[i].method};
        double share = sp_prefill_attention_of(&spec, &model, 1, 1, 0, rows[i].keys).share;
        assert_close(1.0 / share, rows[i].speedup, 1e-6);
    }
}

// Below the figure's lengths a method takes at most the share of dense attention that it takes at
// the shortest of them, or all of it.
TEST(below_their_figure_peers_are_bounded)
{
    const sp_model model = {.layers = 32, .heads = 32};
    for (double keys = 1.0; keys < 8192.0; keys *= 1.7) {
        sp_prefill_spec spec = {.attention = SP_PREFILL_FLEXPREFILL};
        assert_close(sp_prefill_attention_of(&spec, &model, 1, 1, 0, keys).share, 5.0, 1e-9);
        spec.attention = SP_PREFILL_XATTENTION;
        double share = sp_prefill_attention_of(&spec, &model, 1, 1, 0, keys).share;
        assert_true(share >= 1.0 / 1.7 && share <= 1.0);
    }
}

// Prompts that are too short to gain are read densely, others not.
TEST(short_prompts_may_stay_dense)
{
    AUTO(sp_prefill_result) r = prefill(PROMPTS("4000, 60000", SAMPLE(", 'dense_below': 8000")));
    assert_int_equal(r.prompts[0].first_token_ns, r.prompts[0].dense_ns);
    assert_true(r.prompts[1].first_token_ns < r.prompts[1].dense_ns);
}

static int64_t of_length(const sp_scenario *scenario, int64_t tokens, bool dense)
{
    int64_t id = 0;
    sp_batch one = {.ids = &id, .tokens = &tokens, .count = 1, .total_tokens = tokens};
    AUTO(sp_prefill_result) result;
    must_succeed(sp_prefill(scenario, &one, NULL, NULL, &result, ERR));
    return dense ? result.dense_last_ns : result.last_ns;
}

// No method reads a shorter prompt more slowly, from one token to a million.
TEST(longer_prompts_take_longer)
{
    AUTO(prompts) p;
    prompts_init(&p, PROMPTS("1000", SAMPLE("")));
    for (int m = 0; m < SP_PREFILL_METHODS; m++) {
        int64_t before_ns = 0;
        p.scenario.prefill.attention = (sp_prefill_method)m;
        for (double tokens = 1.0; tokens <= 1048576.0; tokens = ceil(1.13 * tokens)) {
            int64_t ns = of_length(&p.scenario, (int64_t)tokens, false);
            assert_true(ns >= before_ns);
            before_ns = ns;
        }
    }
}

// A short prompt beside a long one in one pack adds about what it takes alone.
TEST(a_short_prompt_beside_a_long_one)
{
    for (int m = SP_PREFILL_DENSE + 1; m < SP_PREFILL_METHODS; m++) {
        AUTO(prompts) p;
        prompts_init(&p, PROMPTS("60000, 50", ", 'prefill': {'together': true}"));
        p.scenario.prefill.attention = (sp_prefill_method)m;
        AUTO(sp_prefill_result) both;
        must_succeed(sp_prefill(&p.scenario, &p.batches.batch[0], NULL, NULL, &both, ERR));
        int64_t alone_ns = of_length(&p.scenario, 60000, false);
        assert_true(both.last_ns >= alone_ns);
        assert_true(both.last_ns <= alone_ns + of_length(&p.scenario, 50, false));
    }
}

TEST(crossover_is_where_nothing_is_lost)
{
    AUTO(prompts) p;
    int64_t tokens, again;
    prompts_init(&p, PROMPTS("1000", SAMPLE("")));
    sp_scenario *scenario = &p.scenario;
    must_succeed(sp_prefill_crossover(scenario, &tokens, ERR));
    assert_true(tokens > 256);
    assert_true(of_length(scenario, tokens, false) <= of_length(scenario, tokens, true));
    assert_true(of_length(scenario, tokens - 256, false) > of_length(scenario, tokens - 256, true));
    scenario->prefill.dense_below = 1000000; // does not move it
    must_succeed(sp_prefill_crossover(scenario, &again, ERR));
    assert_int_equal(again, tokens);
    scenario->prefill.attention = SP_PREFILL_DENSE;
    must_succeed(sp_prefill_crossover(scenario, &tokens, ERR));
    assert_int_equal(tokens, 0);
}

// Keys and values of each token in each layer in bf16, shared out by tp and cp; two bytes a
// parameter.
TEST(memory_of_keys_and_values)
{
    AUTO(sp_prefill_result) r = prefill(PROMPTS("1000, 3000", ", 'parallel': {'tp': 2, 'cp': 2}"));
    assert_int_equal(r.kv_cache_bytes, 2 * 2 * 4096 / 2 * 32 * (4000 / 2));
    sp_prefill_result_fini(&r);
    r = prefill(PROMPTS("1000", ""));
    assert_int_equal(r.parameter_bytes, 2 * INT64_C(6738415616)); // published of Llama 2 7B
}

// MInference's kernels are launched head by head: short prompts take what that takes, 2.697 ms each
// in a layer, whatever their lengths, chunk by chunk; long ones what they took anyway.
TEST(launches_of_the_host_bound_short_prompts)
{
#define MINFERENCE(lengths, more) \
    PROMPTS(lengths, ", 'prefill': {'attention': 'minference'" more "}")
    const double host_ms = 32.0 * 32.0 * 2.697;
    AUTO(sp_prefill_result) r = prefill(MINFERENCE("1000", ""));
    double head_ms = 1e-6 * (double)r.last_ns - host_ms;
    assert_true(head_ms > 0.0 && head_ms < 1.0);
    assert_true(first_token_ns(MINFERENCE("4000", "")) == r.last_ns);
    assert_int_equal(r.parts.linear_ns + r.parts.attention_ns, r.last_ns);
    sp_prefill_result_fini(&r);
    assert_near(1e-6 * (double)first_token_ns(MINFERENCE("4000", ", 'chunk_tokens': 1000")),
                4.0 * host_ms + head_ms, 1e-3, 1e-3);
    assert_near(1e-6 *
                    (double)first_token_ns(PROMPTS(
                        "1000", ", 'prefill': {'attention': 'minference'}, 'parallel': {'tp': 4}")),
                0.25 * host_ms, 1.0, 1.0);
    r = prefill(MINFERENCE("200000", ""));
    assert_true(1e-6 * (double)r.last_ns > 2.0 * host_ms);
    // Kernels as long as the host: from there on a longer prompt takes longer.
    int64_t last = 0;
    static const char *const lengths[] = {MINFERENCE("10000", ""), MINFERENCE("20000", ""),
                                          MINFERENCE("40000", ""), MINFERENCE("80000", "")};
    for (int i = 0; i < 4; i++) {
        int64_t ns = first_token_ns(lengths[i]);
        assert_true(ns >= last && (i < 3 || ns > last));
        last = ns;
    }
#undef MINFERENCE
}

// Of the longest chunk alone: hidden states twice, and gate, up and their product, in bf16.
TEST(memory_of_a_layers_activations)
{
    const int64_t width = 2 * (2 * 4096 + 3 * 11008);
    AUTO(sp_prefill_result) r = prefill(PROMPTS("1000, 3000", ""));
    assert_int_equal(r.activation_bytes, 3000 * width);
    sp_prefill_result_fini(&r);
    r = prefill(PROMPTS("1000, 3000", ", 'prefill': {'chunk_tokens': 500}"));
    assert_int_equal(r.activation_bytes, 500 * width);
    sp_prefill_result_fini(&r);
    r = prefill(PROMPTS("1000, 3000", ", 'prefill': {'together': true}, 'parallel': {'tp': 2}"));
    assert_int_equal(r.activation_bytes, 4000 * 2 * (2 * 4096 + 3 * 11008 / 2));
}

// A byte less than parameters, keys and values need does not fit.
TEST(keys_and_values_must_fit_too)
{
    AUTO(prompts) p;
    AUTO(sp_prefill_result) r;
    prompts_init(&p, PROMPTS("1000, 3000", ", 'parallel': {'pp': 2}"));
    must_succeed(sp_prefill(&p.scenario, &p.batches.batch[0], NULL, NULL, &r, ERR));
    p.scenario.memory_limit_bytes = r.parameter_bytes + r.kv_cache_bytes;
    assert_true(sp_prefill_fits(&p.scenario, &r));
    p.scenario.memory_limit_bytes--;
    assert_false(sp_prefill_fits(&p.scenario, &r));
}

// Unfused attention has a bf16 score of each of 32 heads for every query and key, of the chunk with
// most.
TEST(scores_of_unfused_attention_must_fit)
{
    static const struct {
        const char *text;
        int64_t pairs;
        int heads;
    } of[] = {
        {PROMPTS("1000, 3000", ""), 0, 0},
        {PROMPTS("1000, 3000", ", 'memory': {'attention': 'unfused'}"), 3000 * 3000, 32},
        {PROMPTS("1000, 3000", ", 'memory': {'attention': 'unfused'}, 'parallel': {'tp': 4}"),
         3000 * 3000, 8},
        {PROMPTS("1000, 3000", ", 'memory': {'attention': 'unfused'}, 'prefill': {'chunk_tokens': "
                               "500}"),
         500 * 3000, 32},
        {PROMPTS("1000, 3000", ", 'memory': {'attention': 'unfused'}, 'prefill': {'together': "
                               "true}"),
         1000 * 1000 + 3000 * 3000, 32},
    };
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        AUTO(prompts) p;
        AUTO(sp_prefill_result) r;
        prompts_init(&p, of[i].text);
        must_succeed(sp_prefill(&p.scenario, &p.batches.batch[0], NULL, NULL, &r, ERR));
        assert_int_equal(r.score_bytes, 2 * of[i].heads * of[i].pairs);
        p.scenario.memory_limit_bytes = r.parameter_bytes + r.kv_cache_bytes + r.score_bytes;
        assert_true(sp_prefill_fits(&p.scenario, &r));
        p.scenario.memory_limit_bytes--;
        assert_false(sp_prefill_fits(&p.scenario, &r));
    }
}

// The parts that are told are those of the last chunk of the longest prompt, wherever it stands.
TEST(parts_are_those_of_the_longest_prompt)
{
    static const char *const texts[] = {
        PROMPTS("9000, 3000, 5000", SAMPLE("")), PROMPTS("3000, 9000, 5000", SAMPLE("")),
        PROMPTS("3000, 5000, 9000", SAMPLE(", 'together': true")),
        PROMPTS("5000, 9000, 3000", SAMPLE(", 'together': true")),
        PROMPTS("3000, 9000, 5000", SAMPLE(", 'chunk_tokens': 4000"))};
    for (int i = 0; i < 5; i++) {
        AUTO(prompts) p;
        AUTO(sp_prefill_result) r;
        prompts_init(&p, texts[i]);
        double begin = i < 4 ? 0.0 : 8000.0;
        sp_prefill_attention expected =
            sp_prefill_attention_of(&p.scenario.prefill, &p.scenario.model, 1,
                                    p.scenario.workload.seed, begin, 9000.0 - begin);
        must_succeed(sp_prefill(&p.scenario, &p.batches.batch[0], NULL, NULL, &r, ERR));
        assert_true(r.attention.window == expected.window && r.attention.share == expected.share &&
                    r.attention.bottom == expected.bottom &&
                    r.attention.stripes == expected.stripes);
    }
}

static void refused(const char *text, sp_status status, const char *path)
{
    AUTO(prompts) p;
    sp_prefill_result result;
    const sp_batch none = {0};
    prompts_init(&p, text);
    const sp_batch *batch = p.scenario.uniform ? &none : &p.batches.batch[0];
    must_fail_with(sp_prefill(&p.scenario, batch, NULL, NULL, &result, ERR), status, path);
}

TEST(what_reads_no_prompts)
{
    static const char *const refusals[][2] = {
        {PROMPTS("1000", ", 'parallel': {'dp': 2}"), "parallel.dp: "},
        {PROMPTS("1000", ", 'parallel': {'pp': 2, 'chunks_per_rank': 2}, 'schedule': {'kind': "
                         "'interleaved'}"),
         "parallel.chunks_per_rank: "},
        {PROMPTS("1000", ", 'parallel': {'pp': 2, 'vocab_parallel': true}"),
         "parallel.vocab_parallel: "},
        {PROMPTS("1000", ", 'jitter': {'gpu_cv': 0.1}"), "jitter.gpu_cv: "},
        {PROMPTS("1000", ", 'parallel': {'pp': 2, 'cp': 2}, 'stack': {'cp_overlap': 'tasks'}"),
         "stack.cp_overlap: "},
        {"{'model': {'layers': 4, 'hidden': 512, 'ffn': 512, 'heads': 4, 'vocab': 100, 'experts': "
         "4, 'experts_per_token': 2, 'expert_capacity_factor': 1}, 'prefill': {}}",
         "model.expert_capacity_factor: "},
        {PROMPTS("1000", SAMPLE("") ", 'memory': {'attention': 'unfused'}"), "memory.attention: "},
        {PROMPTS("1000", ", 'prefill': {'together': true, 'chunk_tokens': 100}"),
         "prefill.chunk_tokens: "},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'schedule': {'microbatches': 1}}",
         "uniform_costs: "},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        refused(refusals[i][0], SP_ERR_CONTENT, refusals[i][1]);
    }
    refused(PROMPTS("65537", ", 'prefill': {'chunk_tokens': 1}"), SP_ERR_LIMIT, "65536 chunks");
}
