// Peak memory of Llama-65B on 256 H800: measured values (PyTorch's max_memory_allocated, maximum
// over all ranks, after the second iteration) from github.com/kwai/Megatron-Kwai, branch atc24ae,
// README, "Reproduce Figure 7"; artefact of "Accelerating the Training of Large Language Models
// using Efficient Activation Rematerialization and Optimal Hybrid Parallelism" (USENIX ATC'24).
// Sequence 8192, global batch 256, tp 2, cp 2, pp 8, two layers a chunk; padded vocabulary 32256.
#include "solver/evaluate/evaluate.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define MIB INT64_C(1048576)

typedef struct measured {
    const char *recompute;
    double offload_ratio;
    int64_t bytes;
} measured;

static const measured rows[] = {
    {"none", 0.3, 72762730496},       {"none", 0.5, 61136119808},
    {"none", 0.7, 50331592704},       {"none", 0.9, 39527328256},
    {"activation", 0.0, 65330982400}, {"activation", 0.2, 58907405824},
    {"activation", 0.4, 52089073152}, {"activation", 0.6, 45722611200},
    {"activation", 0.8, 38925740032}, {"activation", 1.0, 32462145024},
};

enum { ROWS = sizeof rows / sizeof rows[0] };

static void evaluate(const measured *row, const sp_evaluate_options *options, sp_result *result)
{
    json_auto_t *root = json_document(json_text(
        "{'model': {'layers': 80, 'hidden': 8192, 'ffn': 22016, 'heads': 64, 'kv_heads': 64, "
        "'vocab': 32256, 'activation': 'swiglu', 'norm': 'rmsnorm', 'positional': 'rope', "
        "'tied_embeddings': false, 'bias': false}, "
        "'cluster': 'h800-8x100g', 'profile': 'h800', "
        "'stack': {'name': 'megatron-core-2024', 'split_limit_mib': 21}, "
        "'parallel': {'tp': 2, 'cp': 2, 'pp': 8, 'dp': 8, 'layers_per_chunk': 2, 'zero': 1, "
        "'sequence_parallel': true}, 'schedule': {'kind': 'interleaved'}, "
        "'memory': {'recompute': '%s', 'offload_ratio': %g}, "
        "'workload': {'uniform': 8192, 'context': 8192, 'samples_per_batch': 256}}",
        row->recompute, row->offload_ratio));
    AUTO(sp_scenario) scenario;
    AUTO(sp_batches) batches;
    must_succeed(sp_scenario_from_json(root, "test", NULL, 0, &scenario, ERR));
    must_succeed(sp_evaluate_batches(&scenario, &batches, ERR));
    must_succeed(sp_evaluate(&scenario, &batches, options, result, ERR));
}

// Without an allocator's rules the sums of tensors come out a little low: never more than 1.5 %.
TEST(plain_bytes)
{
    double sum = 0.0;
    for (int i = 0; i < ROWS; i++) {
        AUTO(sp_result) result;
        evaluate(&rows[i], &(sp_evaluate_options){0}, &result);
        double error = (double)result.peak_bytes / (double)rows[i].bytes - 1.0;
        printf("%-10s offload %.1f: %7.2f MiB, measured %7.2f, %+.2f %% on pp %d in %s\n",
               rows[i].recompute, rows[i].offload_ratio, (double)result.peak_bytes / (double)MIB,
               (double)rows[i].bytes / (double)MIB, 100.0 * error, result.peak_memory.pp,
               result.peak_memory.action);
        assert_true(fabs(error) <= 0.015);
        sum += fabs(error);
    }
    assert_true(sum / ROWS <= 0.01);
}

static const sp_memory_holder *holder(const sp_result *result, const char *name)
{
    for (int i = 0; i < result->peak_memory.count; i++) {
        if (strcmp(result->peak_memory.holders[i].name, name) == 0) {
            return &result->peak_memory.holders[i];
        }
    }
    fail_msg("no holder %s", name);
    return NULL;
}

// The first rank holds 2(p-1) + (v-1)p + 1 units with p 8 and v 5 (Narayanan et al., arXiv
// 2104.04473, section 2.2). At a ratio of 0.5 the two halves of the first projection's output stay,
// 86 MiB each in two layers; with the activation rebuilt the whole output does.
TEST(holders)
{
    const int64_t units = 2 * 7 + 4 * 8 + 1;
    AUTO(sp_result) result;
    evaluate(&rows[1], &(sp_evaluate_options){0}, &result);
    assert_int_equal(result.peak_memory.pp, 0);
    assert_int_equal(result.peak_memory.action[0], 'F');
    assert_int_equal(holder(&result, "fc1 output, gate half")->count, units);
    assert_int_equal(holder(&result, "fc1 output, gate half")->bytes, units * 172 * MIB);
    assert_int_equal(holder(&result, "gradients")->bytes,
                     4 * (INT64_C(4047667200) + INT64_C(132120576)));
    sp_result_fini(&result);

    evaluate(&rows[4], &(sp_evaluate_options){0}, &result);
    assert_int_equal(result.peak_memory.pp, 0);
    assert_int_equal(result.peak_memory.action[0], 'B');
    assert_int_equal(holder(&result, "fc1 output")->count, units);
    assert_int_equal(holder(&result, "fc1 output")->bytes, units * 344 * MIB);
    sp_result_fini(&result);

    // With all of them away the last rank's logits decide: bf16 and fp32, 126 and 252 MiB. Buffers
    // are as large as a unit.
    evaluate(&rows[9], &(sp_evaluate_options){0}, &result);
    assert_int_equal(result.peak_memory.pp, 7);
    assert_int_equal(holder(&result, "logits in flight")->bytes, (126 + 252) * MIB);
    assert_int_equal(holder(&result, "copy-back buffers")->bytes, 2 * 728 * MIB);
    assert_int_equal(holder(&result, "copy-back buffers")->count, 2);
}
