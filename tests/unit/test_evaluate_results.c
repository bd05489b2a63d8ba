// What a result says of a scenario: counts and times worked out by hand, and its warnings. Every
// simulation is checked against the longest path in igraph.
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// ---- counts and times ----

// One layer of hidden size h, ffn f, head count a of dimension d, vocabulary V, on the rows
// (60), (30, 40), (50): 2 FLOPs per weight and token, 4*a*d per causal pair, backward twice that.
TEST(flops_by_hand)
{
    SCENARIO_RUN(r,
                 "{'model': {'layers': 1, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, "
                 "'activation': 'swiglu'}, 'memory': {'recompute': 'full'}, "
                 "'workload': {'lengths': [60, 30, 40, 50], 'context': 70, 'order': 'file', "
                 "'samples_per_batch': 4}}",
                 &run_verified);
    const sp_batch_facts *facts = &r.result.batches[0].facts;
    double tokens = 180.0;
    double layer = 4.0 * 512.0 * 512.0 + 3.0 * 512.0 * 1024.0;
    double head = 512.0 * 1000.0;
    double squares = 3600.0 + 900.0 + 1600.0 + 2500.0;
    double forward = 2.0 * layer * tokens + 4.0 * 512.0 * squares / 2.0;
    double model = 3.0 * (forward + 2.0 * head * tokens);
    assert_int_equal(facts->microbatches, 3);
    assert_int_equal(facts->samples, 4);
    assert_within(facts->model_flops / model, 1.0, 1e-12);
    assert_true(fabs(facts->full_flops - model - 3.0 * 4.0 * 512.0 * squares / 2.0) < 1.0);
    // Full recomputation runs the layer once more, not the head.
    assert_within(facts->hardware_flops / (model + forward), 1.0, 1e-12);
}

// Rebuilding the attention under context parallelism fetches the keys and values again, as
// rebuilding the whole layer does.
TEST(rebuilt_attention_fetches_keys)
{
    static const char *const modes[] = {"none", "attention", "full"};
    double cp_ns[3];
    for (int i = 0; i < 3; i++) {
        const char *text =
            json_text("%s'cluster': 'h800-8', 'profile': 'h800-burst', "
                      "'parallel': {'tp': 8, 'cp': 2}, 'memory': {'recompute': '%s'}, "
                      "'workload': {'uniform': 4096, 'samples_per_batch': 1}}",
                      TINY_MODEL, modes[i]);
        SCENARIO_RUN(r, text, &run_verified);
        cp_ns[i] = r.result.cp_ns;
    }
    assert_true(cp_ns[1] > cp_ns[0]);
    assert_true(cp_ns[1] == cp_ns[2]);
}

// A tied table on the two ends of the pipeline has two gradients, 4 B for each of V/tp * h numbers,
// that the ends add up: two ranks in one node, at the bus bandwidth of the profile.
TEST(tied_gradients_are_added_up)
{
    const char *text =
        "{'model': {'layers': 2, 'hidden': 4096, 'ffn': 4096, 'heads': 8, "
        "'vocab': 65536, 'tied_embeddings': %s}, 'cluster': 'h800-8', 'profile': 'h800-burst', "
        "'parallel': {'pp': %d, 'zero': 0}, "
        "'workload': {'uniform': 512, 'samples_per_batch': 4}}";
    double dp_ns[2][2];
    for (int tied = 0; tied < 2; tied++) {
        for (int pp = 1; pp <= 2; pp++) {
            const char *with = json_text(text, tied ? "true" : "false", pp);
            SCENARIO_RUN(r, with, &run_verified);
            dp_ns[tied][pp - 1] = r.result.reduce_ns;
        }
    }
    assert_true(dp_ns[0][0] == 0.0 && dp_ns[0][1] == 0.0 && dp_ns[1][0] == 0.0);
    // 1 GiB is a point of the table: 212.3 GB/s; 2(n-1)/n = 1.
    double expected_ns = 65536.0 * 4096.0 * 4.0 / 212.3;
    assert_within(dp_ns[1][1] / expected_ns, 1.0, 1e-6);
}

// Padding is computed, not trained: rows of 100 for 60, 30, 40 and 50 tokens.
TEST(padding_is_no_throughput)
{
    AUTO(scenario_run) padded, packed;
    const char *text = "%s'strategy': {'kind': '%s'}, 'workload': {'lengths': [60, 30, 40, 50], "
                       "'context': 100, 'samples_per_batch': 4}}";
    char without[RUN_TEXT] = "";
    const char *with = json_text(text, TINY_MODEL, "padded");
    put_json(without, text, TINY_MODEL, "packed");
    run_good(with, &run_verified, &padded);
    run_good(without, &run_verified, &packed);
    assert_int_equal(padded.result.batches[0].facts.tokens, 180);
    assert_int_equal(padded.result.batches[0].facts.computed_tokens, 400);
    assert_true(padded.result.batches[0].facts.model_flops ==
                packed.result.batches[0].facts.model_flops);
    assert_true(padded.result.batches[0].facts.lower_bound_ns ==
                packed.result.batches[0].facts.lower_bound_ns);
    assert_true(sp_result_tokens_per_s(&padded.result) < sp_result_tokens_per_s(&packed.result));
}

TEST(memory_limit_decides)
{
    const char *text = "{'model': 'llama-13b', 'cluster': 'h800-8', 'parallel': {'tp': %d}, "
                       "'workload': {'uniform': 4096, 'samples_per_batch': 1}}";
    char large[RUN_TEXT] = "";
    const char *small = json_text(text, 1);
    put_json(large, text, 8);
    // 13e9 parameters of 18 bytes are 218 GiB; an eighth of them fits 80.
    SCENARIO_RUN(r, small, &run_verified);
    assert_true(sp_result_is_oom(&r.result));
    scenario_run_fini(&r);
    run_good(large, &run_verified, &r);
    assert_false(sp_result_is_oom(&r.result));
}

// Interleaved 1F1B at p = 4, v = 2, m = 8: bubble (p-1)(F+B+W)/v (Narayanan et al., arXiv
// 2104.04473, section 2.2), the published latency term c(2pv - p - 2) and the busiest rank as
// bound.
TEST(uniform_costs)
{
    SCENARIO_RUN(r,
                 "{'uniform_costs': {'f_ms': 4, 'b_ms': 4, 'w_ms': 4, 'p2p_ms': 0.5}, "
                 "'parallel': {'pp': 4, 'chunks_per_rank': 2}, "
                 "'schedule': {'kind': 'interleaved', 'microbatches': 8}}",
                 &run_verified);
    assert_int_equal(r.batches.count, 0);
    double work = 8.0 * 12.0;
    double bubble = 3.0 * 12.0 / 2.0 + 0.5 * (2.0 * 4.0 * 2.0 - 4.0 - 2.0);
    assert_within(r.result.published_bubble_ratio, bubble / (work + bubble), 1e-12);
    assert_within(sp_result_lower_bound_ms(&r.result), work, 1e-9);
    assert_true(sp_result_iteration_ms(&r.result) >= work + 3.0 * 12.0 / 2.0);
    assert_true(isnan(sp_result_mfu(&r.result, SP_FLOPS_CAUSAL)));
    assert_false(sp_result_is_oom(&r.result));
    scenario_run_fini(&r);
    run_good("{'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'w_ms': 1}, 'parallel': {'pp': 4, 'dp': 3}, "
             "'schedule': {'kind': '1f1b', 'microbatches': 8}}",
             &run_verified, &r);
    assert_true(r.result.published_bubble_ratio < 0.0);
    assert_within(sp_result_iteration_ms(&r.result), (8.0 + 3.0) * 3.0, 1e-9);
}

// ---- warnings ----

// By default every piece of an array is trained; what fewer samples leave over is said.
TEST(pieces_of_split_samples_are_counted)
{
    SCENARIO_RUN(r,
                 TINY_MODEL "'workload': {'lengths': [1000, 10, 20], 'context': 100, "
                            "'over_length': 'split'}}",
                 &run_verified);
    assert_int_equal(r.result.batches[0].facts.tokens, 1030);
    assert_int_equal(r.result.batches[0].facts.samples, 12);
    assert_close(sp_result_cut_share(&r.result), 900.0 / 1030.0, 1e-12);
    assert_int_equal(r.result.warnings.count, 1);
    assert_true(run_warned(&r.result.warnings, "samples longer than the context, split: 1"));
    scenario_run_fini(&r);
    run_good(TINY_MODEL "'workload': {'lengths': [1000, 10, 20], 'context': 100, 'order': 'file', "
                        "'over_length': 'split', 'samples_per_batch': 4}}",
             &run_verified, &r);
    assert_int_equal(r.result.batches[0].facts.tokens, 400);
    assert_close(sp_result_cut_share(&r.result), 0.75, 1e-12);
    assert_true(run_warned(&r.result.warnings,
                           "samples left over when all batches are full: 3 (630 tokens)"));
    scenario_run_fini(&r);
    // "balanced" delays all pieces of the long sample here: no more is cut than is trained.
    run_good(TINY_MODEL "'workload': {'lengths': [1000, 10, 20], 'context': 100, "
                        "'over_length': 'split', 'order': 'file'}, "
                        "'strategy': {'kind': 'balanced'}}",
             &run_verified, &r);
    assert_int_equal(r.result.batches[0].facts.delayed_tokens, 1020);
    assert_int_equal(r.result.batches[0].facts.cut_tokens, 0);
    int64_t tokens[] = {100, 100, 30, 7};
    bool goes_on[] = {false, true, true, true};
    int64_t delayed[] = {0, 1};
    int64_t dropped[] = {3};
    const sp_batch batch = {.tokens = tokens, .count = 4, .goes_on = goes_on, .cut_tokens = 137};
    const sp_packing packing = {.batch = &batch,
                                .delayed = delayed,
                                .delayed_count = 2,
                                .dropped = dropped,
                                .dropped_count = 1};
    assert_int_equal(sp_packing_cut_tokens(&packing), 30);
}

// GPT-2's table has 1024 rows.
TEST(samples_beyond_a_table_of_positions_are_said)
{
    static const char gpt2[] =
        "{'model': {'layers': 2, 'hidden': 64, 'heads': 4, 'vocab': 100, 'activation': 'gelu', "
        "'positional': 'learned', 'max_positions': 1024}, 'workload': {'lengths': [500, %d]}}";
    for (int tokens = 1024; tokens <= 1025; tokens++) {
        char text[300];
        snprintf(text, sizeof text, gpt2, tokens);
        SCENARIO_RUN(r, text, &run_verified);
        assert_int_equal(run_warned(&r.result.warnings, "the table of 1024 positions ends before "
                                                        "samples of 1025 tokens do"),
                         tokens > 1024);
    }
}

TEST(losses_are_said)
{
    SCENARIO_RUN(r,
                 TINY_MODEL "'workload': {'lengths': [10, 20, 30, 400], 'context': 100, "
                            "'over_length': 'drop', 'samples_per_batch': 3}}",
                 &run_verified);
    assert_int_equal(r.result.warnings.count, 1);
    assert_true(run_warned(&r.result.warnings, "samples longer than the context, dropped: 1"));
    assert_int_equal(r.result.batches[0].facts.tokens, 60);
    scenario_run_fini(&r);
    run_good(TINY_MODEL "'workload': {'lengths': [10, 20, 300, 400], 'context': 100, "
                        "'over_length': 'truncate', 'samples_per_batch': 4}}",
             &run_verified, &r);
    assert_int_equal(r.result.warnings.count, 1);
    assert_true(run_warned(&r.result.warnings, "samples longer than the context, truncated: 2"));
    assert_int_equal(r.result.batches[0].facts.tokens, 230);
    scenario_run_fini(&r);
    run_good(TINY_MODEL
             "'workload': {'lengths': [10, 20, 30], 'samples_per_batch': 2, 'batches': 2}}",
             &run_verified, &r);
    assert_int_equal(r.result.warnings.count, 1);
    assert_true(run_warned(&r.result.warnings, "started again"));
    scenario_run_fini(&r);
    run_good(TINY_MODEL "'workload': {'lengths': [10, 20, 30], 'samples_per_batch': 3}}",
             &run_verified, &r);
    assert_int_equal(r.result.warnings.count, 0);
    scenario_run_fini(&r);
    run_good(TINY_MODEL
             "'parallel': {'dp': 4}, 'workload': {'lengths': [10, 20, 30], 'context': 30, "
             "'samples_per_batch': 3}}",
             &run_verified, &r);
    assert_true(run_warned(&r.result.warnings, "leave"));
}

// What the simulator does not time is said.
TEST(free_settings_are_said)
{
    SCENARIO_RUN(r,
                 TINY_MODEL
                 "'parallel': {'dp': 2, 'pp': 2, 'zero': 3, 'vocab_parallel': true}, "
                 "'memory': {'offload_ratio': 0.5}, 'workload': {'lengths': [10, 20, 30, "
                 "40], 'context': 40}}",
                 &run_verified);
    assert_int_equal(r.result.warnings.count, 3);
    assert_false(run_warned(&r.result.warnings, "offloading: copies"));
    assert_true(run_warned(&r.result.warnings, "nothing is offloaded"));
    assert_true(run_warned(&r.result.warnings, "zero 3"));
    assert_true(run_warned(&r.result.warnings, "vocab_parallel"));
}

// Transformer Engine keeps an attention plan for each length of padded rows; packed rows share a
// few (github NVIDIA/TransformerEngine, pull request 2653: up to 512 samples a row).
TEST(new_attention_plans_are_a_risk)
{
    static const struct {
        const char *lengths, *context, *strategy, *stack, *said;
    } cases[] = {
        // Micro-batches of one sample: three lengths, of which one comes twice.
        {"64, 96, 64, 32", "128", "'kind': 'padded', 'pad_to': 'longest'", "megatron-core-2025",
         "rows here have 3 lengths"},
        {"64, 96, 64, 32", "128", "'kind': 'padded'", "megatron-core-2025", NULL},
        {"64, 96, 64, 32", "128", "'kind': 'packed'", "megatron-core-2025", NULL},
        {"64, 96, 64, 32", "128", "'kind': 'padded', 'pad_to': 'longest'", "fsdp-2024", NULL},
        {"64, 64, 64, 64", "128", "'kind': 'padded', 'pad_to': 'longest'", "megatron-core-2025",
         NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = json_text(
            TINY_MODEL "'cluster': 'h100-8', 'stack': {'name': '%s'}, 'workload': {'lengths': "
                       "[%s], 'context': %s}, 'strategy': {%s}}",
            cases[i].stack, cases[i].lengths, cases[i].context, cases[i].strategy);
        SCENARIO_RUN(r, text, &run_verified);
        const char *said = NULL;
        for (int w = 0; w < r.result.warnings.count; w++) {
            const char *found = strstr(r.result.warnings.text[w], "a risk that is not in the time");
            said = found != NULL ? found : said;
        }
        assert_int_equal(said != NULL, cases[i].said != NULL);
        if (said != NULL) {
            assert_non_null(strstr(said, cases[i].said));
        }
    }
}

// Rows of 514 and 513 samples are two shapes; those of 512 and 511 share one.
TEST(numbers_of_samples_beyond_the_buckets_are_a_risk)
{
    for (int more = 0; more < 2; more++) {
        char text[RUN_TEXT];
        int first = more ? 513 : 511;
        text[0] = '\0';
        put_json(text, TINY_MODEL "'cluster': 'h100-8', 'stack': {'name': 'megatron-core-2025'}, "
                                  "'workload': {'context': 1024, 'order': 'file', 'lengths': [");
        for (int i = 0; i < first + 1; i++) {
            put_json(text, "%d, ", i == first ? 1024 - first : 1);
        }
        for (int i = 0; i < first; i++) {
            put_json(text, "%s1", i == 0 ? "" : ", ");
        }
        put_json(text, "]}, 'strategy': {'kind': 'packed'}}");
        SCENARIO_RUN(r, text, &run_verified);
        int said = 0;
        for (int w = 0; w < r.result.warnings.count; w++) {
            said += strstr(r.result.warnings.text[w], "such numbers") != NULL;
        }
        assert_int_equal(said, more);
    }
}
