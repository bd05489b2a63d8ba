// strategy.cp_sharding from a scenario's text to the result: what it reads, says and refuses, and
// that strategies of every kind run with it.
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static const char *const ways[] = {"even", "sequence", "document", "adaptive"};

enum { WAYS = 4 };

// A long document among short ones on two ranks of four CP ranks each.
static void write_scenario(char text[RUN_TEXT], const char *parallel, const char *memory,
                           const char *strategy)
{
    text[0] = '\0';
    put_json(text,
             TINY_MODEL "'cluster': 'h100-8', 'parallel': {%s}, 'memory': {%s}, "
                        "'workload': {'lengths': [30000, 500, 700, 9000, 1100, 300, 2000, 12000, "
                        "800, 5000, 640, 900], 'context': 32768, 'samples_per_batch': 12}, "
                        "'strategy': {%s}}",
             parallel, memory, strategy);
}

static const json_t *resolved_way(const sp_scenario *scenario)
{
    return json_object_get(json_object_get(scenario->resolved, "strategy"), "cp_sharding");
}

TEST(resolved_scenario)
{
    for (int i = 0; i < WAYS; i++) {
        char text[RUN_TEXT], strategy[64];
        sp_scenario scenario, again;
        snprintf(strategy, sizeof strategy, "'cp_sharding': '%s'", ways[i]);
        write_scenario(text, "'pp': 2, 'cp': 4", "", strategy);
        must_succeed(run_read(text, &scenario, ERR));
        assert_int_equal(scenario.layout.cp_sharding, i);
        const json_t *said = resolved_way(&scenario);
        if (i == SP_SHARD_EVEN) {
            assert_null(said);
        } else {
            assert_string_equal(json_string_value(said), ways[i]);
        }
        must_succeed(
            sp_scenario_from_json(scenario.resolved, "resolved.json", NULL, 0, &again, ERR));
        assert_int_equal(again.layout.cp_sharding, i);
        sp_scenario_fini(&again);
        sp_scenario_fini(&scenario);
    }
}

static void expect_error(const char *text, const char *message)
{
    AUTO(sp_scenario) scenario;
    must_fail_with(run_read(text, &scenario, ERR), SP_ERR_CONTENT, message);
    assert_int_equal(ERR->count, 1);
}

TEST(refusals)
{
    char text[RUN_TEXT];
    write_scenario(text, "'pp': 2, 'cp': 4", "", "'cp_sharding': 'documents'");
    expect_error(text, "strategy.cp_sharding: expected one of \"even\", \"sequence\", "
                       "\"document\", \"adaptive\", got \"documents\"");
    write_scenario(text, "'pp': 2, 'cp': 4", "'attention': 'unfused'", "'cp_sharding': 'sequence'");
    expect_error(text, "strategy.cp_sharding: \"sequence\" needs memory.attention \"flash\"");
    text[0] = '\0';
    put_json(text, TINY_MODEL "'parallel': {'pp': 2, 'cp': 2}, 'schedule': {'kind': 'slimpipe', "
                              "'exchange': true}, 'workload': {'lengths': [64, 64]}, 'strategy': "
                              "{'cp_sharding': 'document'}}");
    expect_error(text, "strategy.cp_sharding: \"document\" does not go with schedule.exchange");
}

// One forward pack's cut is kept in the backward: where a way cuts whole packs, no backward pack
// regroups slices. Every way with a strategy; in a full run with each.
TEST(regrouped_packs)
{
    static const char *const kinds[] = {"slimpack", "slimpack-symmetric", "slimpack-zb"};
    for (int i = 0; i < 3 * WAYS; i++) {
        char text[RUN_TEXT], strategy[96];
        scenario_run r;
        if (!test_is_full() && i / WAYS != i % WAYS % 3) {
            continue;
        }
        snprintf(strategy, sizeof strategy, "'kind': '%s', 'cp_sharding': '%s'", kinds[i / WAYS],
                 ways[i % WAYS]);
        write_scenario(text, "'pp': 2, 'cp': 2, 'dp': 2", "", strategy);
        must_succeed_for(text, run_text(text, &run_verified, &r, ERR));
        scenario_run_fini(&r);
    }
}

// Every strategy, with packs merged over data-parallel ranks and without: no step below the bound
// that holds for even shares too. Every strategy with half of the ways, in a full run with all.
TEST(strategies_of_every_kind)
{
    static const char *const kinds[] = {
        "packed",   "padded",    "bfd",    "balanced",  "dynapipe",          "chunkflow",
        "slimpipe", "hybrid-cp", "flexsp", "bytescale", "slimpack-symmetric"};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (int i = 0; i < 2 * WAYS; i++) {
            char text[RUN_TEXT], strategy[96];
            scenario_run r;
            if (!test_is_full() && (k + (size_t)i) % 2 != 0) {
                continue;
            }
            snprintf(strategy, sizeof strategy, "'kind': '%s', 'cp_sharding': '%s'", kinds[k],
                     ways[i % WAYS]);
            write_scenario(text, i < WAYS ? "'pp': 2, 'cp': 4, 'dp': 2" : "'pp': 2, 'dp': 4", "",
                           strategy);
            run_good(text, &run_verified, &r);
            double ms = sp_result_iteration_ms(&r.result);
            assert_true(sp_result_lower_bound_ms(&r.result) <= ms * (1.0 + 1e-9));
            scenario_run_fini(&r);
        }
    }
}

static double step_ms(const char *parallel, const char *way)
{
    char text[RUN_TEXT], strategy[64];
    AUTO(scenario_run) r;
    snprintf(strategy, sizeof strategy, "'cp_sharding': '%s'", way);
    write_scenario(text, parallel, "", strategy);
    run_good(text, &run_verified, &r);
    return sp_result_iteration_ms(&r.result);
}

// Without context parallelism nothing is cut; with it and one pipeline rank, which runs pack after
// pack, the adaptive way is no slower than either.
TEST(ways_in_a_step)
{
    double even = step_ms("'cp': 1", "even");
    for (int i = 1; i < WAYS; i++) {
        assert_true(step_ms("'cp': 1", ways[i]) == even);
    }
    for (int cp = 2; cp <= 8; cp *= 2) {
        const char *parallel = json_text("'cp': %d, 'pp': 1", cp);
        double adaptive = step_ms(parallel, "adaptive");
        assert_true(adaptive <= step_ms(parallel, "sequence"));
        assert_true(adaptive <= step_ms(parallel, "document"));
    }
}

// Documents are padded to 2 x cp tokens, and with sequence parallelism to lcm(2 x cp, cp x tp),
// where Transformer Engine cuts them one by one; not where rows are cut as wholes, remainders are
// dealt, or the software has no such rows. The step computes as many tokens more.
TEST(padding_of_documents_is_counted)
{
    static const struct {
        const char *parallel, *way, *stack;
        int64_t tokens;
    } cases[] = {
        // 500, 700, 1100, 300 and 900 are 4 below a multiple of 8.
        {"'cp': 4", "even", "megatron-core-2025", 20},
        {"'cp': 4", "even", "megatron-bridge-2025", 20},
        {"'cp': 4", "even", "megatron-core-2024", 20},
        {"'cp': 4", "even", "fsdp-2024", 0},
        {"'cp': 4", "even", "nanotron-2025", 0},
        {"'cp': 4", "even", "ours", 0},
        {"'cp': 4", "document", "megatron-core-2025", 0},
        {"'cp': 4", "sequence", "megatron-core-2025", 0},
        {"'cp': 1", "even", "megatron-core-2025", 0},
        // Two tensor-parallel ranks ask for no more, four for multiples of 16: 12, 4, 8 (of 9000),
        // 4, 4, 8 (of 5000) and 12.
        {"'cp': 4, 'tp': 2", "even", "megatron-core-2025", 20},
        {"'cp': 4, 'tp': 4", "even", "megatron-core-2025", 52},
        {"'cp': 4, 'tp': 4, 'sequence_parallel': false", "even", "megatron-core-2025", 20},
        // To 64: 16, 12, 4, 24, 52, 20, 48, 32, 32, 56, 0 and 60.
        {"'cp': 32", "even", "megatron-core-2025", 356},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[RUN_TEXT], strategy[128];
        AUTO(scenario_run) r;
        snprintf(strategy, sizeof strategy, "'cp_sharding': '%s'}, 'stack': {'name': '%s'",
                 cases[i].way, cases[i].stack);
        write_scenario(text, cases[i].parallel, "", strategy);
        run_good(text, &run_verified, &r);
        const sp_batch_facts *facts = &r.result.batches[0].facts;
        assert_int_equal(facts->padding_tokens, cases[i].tokens);
        assert_int_equal(facts->computed_tokens - facts->tokens, cases[i].tokens);
        assert_int_equal(facts->tokens, 62940);
    }
}

static scenario_run padded_run(const char *strategy, const char *padded)
{
    char text[RUN_TEXT];
    scenario_run r;
    text[0] = '\0';
    put_json(text,
             TINY_MODEL "'cluster': 'h100-8', 'parallel': {'cp': 32, 'dp': 2}, 'stack': "
                        "{'padded_documents': %s}, 'workload': {'lengths': [65, 65, 65, 65, 65, "
                        "65, 65, 65], 'context': 256, 'samples_per_batch': 8}, 'strategy': {%s}}",
             padded, strategy);
    run_good(text, &run_verified, &r);
    return r;
}

// 65 tokens on 32 ranks are 128: a row of 256 takes two in place of three, every matrix has nearly
// twice the rows for a token, and what is kept grows as they do. Without padding nothing does.
TEST(padding_takes_rows_time_and_memory)
{
    AUTO(scenario_run) with = padded_run("'kind': 'packed'", "true");
    scenario_run without = padded_run("'kind': 'packed'", "false");
    assert_int_equal(with.result.batches[0].facts.computed_tokens, 8 * 128);
    assert_int_equal(without.result.batches[0].facts.computed_tokens, 8 * 65);
    assert_int_equal(with.result.batches[0].facts.microbatches, 4);
    assert_int_equal(without.result.batches[0].facts.microbatches, 3);
    assert_true(sp_result_iteration_ms(&with.result) > sp_result_iteration_ms(&without.result));
    assert_true(with.result.peak_bytes > without.result.peak_bytes);
    scenario_run_fini(&with);
    scenario_run_fini(&without);
    // As one micro-batch of both ranks' GPUs each sample would be 128 tokens, too.
    with = padded_run("'kind': 'te-cp'", "true");
    assert_int_equal(with.result.batches[0].facts.computed_tokens, 8 * 128);
}

typedef struct padded_slices {
    bool fills_rows; // slices may be padded further, to a row
    int64_t forward, backward;
} padded_slices;

// The computed tokens of a side; each slice is a multiple of 8 tokens (cp 2, tp 4) for each
// data-parallel rank of its pack, by less than one multiple more than it has.
static int64_t count_padded(const sp_pack_list *list, const padded_slices *found)
{
    int64_t computed = 0;
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        const int64_t multiple = 8 * (int64_t)pack->dp_count;
        int64_t sum = 0;
        for (size_t i = pack->first_slice; i < pack->first_slice + pack->slice_count; i++) {
            const sp_slice *slice = &list->slices[i];
            assert_int_equal(slice->computed_tokens % multiple, 0);
            assert_true(found->fills_rows || slice->computed_tokens - slice->tokens < multiple);
            sum += slice->computed_tokens;
        }
        assert_int_equal(pack->computed, sum);
        computed += sum;
    }
    return computed;
}

static sp_status look_at_slices(void *context, const sp_step_view *view, sp_error *err)
{
    padded_slices *found = context;
    found->forward = count_padded(&view->plan->packing->forward, found);
    found->backward = count_padded(sp_packing_backward(view->plan->packing), found);
    return SP_OK;
}

// Both passes compute the padded tokens, slice by slice, whoever packs (but for zones, which need
// no padding); the engine's checks of the plan, of its memory and of its times hold for them.
TEST(every_strategy_pads_what_its_ranks_share)
{
    static const char *const kinds[] = {"padded",       "packed",
                                        "packed-tuned", "sorted",
                                        "ffd",          "bfd",
                                        "lpfhp",        "kk-flops",
                                        "dp-balanced",  "hybrid-cp",
                                        "flexsp",       "bytescale",
                                        "te-cp",        "llama-cp",
                                        "hybrid-dp",    "slimpack",
                                        "dynapipe",     "chunkflow",
                                        "slimpipe",     "balanced",
                                        "slimpack-zb",  "slimpack-symmetric"};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        padded_slices found = {.fills_rows = strcmp(kinds[k], "padded") == 0 ||
                                             strcmp(kinds[k], "dynapipe") == 0};
        const sp_evaluate_options options = {
            .engine = {.verify = true}, .observer = look_at_slices, .observer_context = &found};
        char text[RUN_TEXT];
        AUTO(scenario_run) r;
        text[0] = '\0';
        put_json(text,
                 TINY_MODEL
                 "'cluster': 'h100-8', 'parallel': {'cp': 2, 'dp': 2, 'tp': 4, 'pp': 2}, "
                 "'workload': {'lengths': [235, 17, 2047, 4001, 8191, 100, 511, 3000, "
                 "77, 5, 901, 1203], 'context': 8192, 'samples_per_batch': 12}, "
                 "'strategy': {'kind': '%s'%s}}",
                 kinds[k], strncmp(kinds[k], "slimpack", 8) == 0 ? ", 'zones': false" : "");
        run_good(text, &options, &r);
        const sp_batch_facts *facts = &r.result.batches[0].facts;
        assert_int_equal(found.forward, facts->computed_tokens);
        assert_int_equal(found.backward, found.forward);
        assert_true(found.fills_rows ||
                    facts->computed_tokens == facts->tokens + facts->padding_tokens);
        assert_true(found.forward > facts->tokens);
    }
}
