// TFLOP/s per GPU as Megatron-LM prints them: num_floating_point_operations() of its
// megatron/training/training.py (v0.7 to v0.10), which is formula 3 of Narayanan et al., arXiv
// 2104.04473, extended by GQA and gated MLPs:
//
//   12 B s L h^2 ((1 + g/a + s/h) q + (f/h) 1.5 [gated, else 1] + V / (2 L h)), q = a d / h
//
// for B sequences of s tokens: 3 for forward and backward, 2 for multiply and add, 2 for GEMMs in
// pairs; all s^2 pairs of attention count. It leaves out embeddings, norms and recomputation.
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

typedef struct shape {
    int layers, hidden, ffn, heads, kv_heads, head_dim, vocab;
    const char *activation;
} shape;

static const shape shapes[] = {
    {2, 512, 2048, 8, 8, 64, 1024, "gelu"},    {3, 1024, 2816, 16, 4, 64, 32000, "swiglu"},
    {2, 512, 1536, 8, 2, 128, 2048, "swiglu"}, {4, 768, 3072, 12, 1, 64, 512, "gelu"},
    {1, 256, 1024, 4, 4, 32, 50304, "swiglu"},
};

static double megatron_flops(const shape *m, double sequences, double tokens)
{
    double hidden = m->hidden;
    double query = m->heads * m->head_dim / hidden;
    double gated = strcmp(m->activation, "swiglu") == 0 ? 1.5 : 1.0;
    double attention = (1.0 + (double)m->kv_heads / m->heads + tokens / hidden) * query;
    double mlp = m->ffn / hidden * gated;
    double head = m->vocab / (2.0 * m->layers * hidden);
    return 12.0 * sequences * tokens * m->layers * hidden * hidden * (attention + mlp + head);
}

static double real(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

// Of a step on two GPUs, full recomputation among them.
static void check(const shape *m, int tokens, int sequences, const char *recompute)
{
    const char *text =
        json_text("{'model': {'layers': %d, 'hidden': %d, 'ffn': %d, 'heads': %d, 'kv_heads': %d, "
                  "'head_dim': %d, 'vocab': %d, 'activation': '%s'}, 'cluster': 'h100-8', "
                  "'profile': 'h100', 'parallel': {'dp': 2}, 'memory': {'recompute': '%s'}, "
                  "'workload': {'uniform': %d, 'context': %d, 'samples_per_batch': %d}}",
                  m->layers, m->hidden, m->ffn, m->heads, m->kv_heads, m->head_dim, m->vocab,
                  m->activation, recompute, tokens, tokens, sequences);
    SCENARIO_RUN(r, text, &run_verified);
    json_auto_t *json = sp_result_json(&r.result, false);
    double seconds = real(json, "iteration_ms") * 1e-3;
    double tflops = megatron_flops(m, sequences, tokens) / seconds / 2.0 / 1e12;
    assert_within(real(json, "tflops_per_gpu") / tflops, 1.0, 1e-9);
    // The peak of an H100 SXM in bf16 without sparsity is 989.4 TFLOP/s.
    assert_within(real(json, "mfu_full_attention") / (tflops / 989.4), 1.0, 1e-3);
    assert_true(fabs(real(json, "tokens_per_gpu_s") / (sequences * tokens / seconds / 2.0) - 1.0) <
                1e-9);
    // A causal mask keeps half of the pairs.
    double pairs = 12.0 * sequences * tokens * m->layers * (double)tokens * m->heads * m->head_dim;
    double causal = tflops * (1.0 - 0.5 * pairs / megatron_flops(m, sequences, tokens));
    assert_within(real(json, "tflops_per_gpu_causal") / causal, 1.0, 1e-9);
    assert_true(fabs(real(json, "mfu") / real(json, "mfu_full_attention") - causal / tflops) <
                1e-9);
}

TEST(as_megatron_prints)
{
    static const int lengths[] = {128, 1024, 8192};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
            check(&shapes[i], lengths[l], 4, "none");
        }
        check(&shapes[i], 1024, 6, "full");
    }
}
