// What the executor holds between its actions, and the most that it holds while each of them runs,
// beside what the predictor says for the very same timeline: equal to the byte, rank by rank and in
// each category.
#include "tests/support/host_memory.h"
#include "tests/support/test_main.h"

static void is_held(const host_memory *memory)
{
    sp_memory_category all[SP_MEM_CATEGORIES];
    for (int k = 0; k < SP_MEM_CATEGORIES; k++) {
        all[k] = (sp_memory_category)k;
    }
    host_memory_equal_after_actions(memory, all, SP_MEM_CATEGORIES);
}

// The largest total of any moment from the start to the end of a span: what was held when it began
// is the last point before.
static int64_t most_during(const sp_rank_memory *memory, const sp_span *span)
{
    int64_t most = 0;
    for (size_t i = 0; i < memory->point_count; i++) {
        bool ended = i + 1 < memory->point_count && memory->points[i + 1].time_ns < span->start_ns;
        if (!ended && memory->points[i].time_ns <= span->end_ns) {
            int64_t total = sp_bytes_total(&memory->points[i].bytes);
            most = total > most ? total : most;
        }
    }
    return most;
}

static void is_exact(const host_memory *memory)
{
    is_held(memory);
    for (size_t i = 0; i < memory->rank->count; i++) {
        const sp_span *span = &memory->rank->spans[i];
        int64_t mine = most_during(memory->measured, span);
        int64_t theirs = most_during(memory->predicted, span);
        if (mine != theirs) {
            host_memory_differs(memory, span->action, "peak", mine, theirs);
        }
    }
    assert_memory_equal(&memory->measured->peak, &memory->predicted->peak, sizeof(sp_bytes));
}

static const char *const modes[] = {"none", "activation", "partial-fc1", "attention", "full"};

enum { MODES = sizeof modes / sizeof modes[0] };

// Every model and every mode, on one and on two data-parallel ranks in turn; every pair of them in
// a full run.
static void agrees(int pp, const char *layout, const char *plan)
{
    for (int m = 0; m < HOST_MODELS; m++) {
        for (int mode = 0; mode < MODES; mode++) {
            if (!test_is_full() && mode % HOST_MODELS != m) {
                continue;
            }
            char parallel[128], more[256];
            snprintf(parallel, sizeof parallel, "{'pp': %d, 'dp': %d%s}", pp,
                     1 + (test_is_full() ? m + mode : m) % 2, layout);
            snprintf(more, sizeof more, "'memory': {'recompute': '%s'}, %s", modes[mode], plan);
            assert_float_equal(host_memory_compare(host_models[m], parallel, more, is_exact), 0.0,
                               0.0);
        }
    }
}

#define CHUNKFLOW "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 16}"
#define SLIMPIPE "'strategy': {'kind': 'slimpipe'}, 'schedule': {'slices': 4}"
#define SLIMPACK "'strategy': {'kind': 'slimpack', 'slice_tokens': 16}"
#define SLIMPACK_ZB "'strategy': {'kind': 'slimpack-zb', 'slice_tokens': 16}"

TEST(whole_samples)
{
    agrees(1, "", "'schedule': {'kind': 'gpipe'}");
    agrees(2, "", "'schedule': {'kind': '1f1b'}");
    agrees(4, ", 'zero': 0", "'strategy': {'kind': 'padded'}");
    agrees(2, ", 'chunks_per_rank': 2", "'schedule': {'kind': 'interleaved', 'group': 'even'}");
}

TEST(split_backwards)
{
    agrees(4, "", "'schedule': {'kind': 'zb-h1'}");
    agrees(2, "", "'schedule': {'kind': 'zb-h2'}");
    agrees(2, "", "'schedule': {'kind': 'zb-v'}");
}

TEST(slices)
{
    agrees(2, "", "'schedule': {'kind': 'seq1f1b', 'slices': 4}");
    agrees(2, "", "'schedule': {'kind': 'terapipe', 'slices': 2}");
    agrees(2, "", SLIMPIPE);
}

TEST_CALL(forwards_that_run_again, agrees(2, "", CHUNKFLOW))

TEST(regrouped_packs)
{
    agrees(2, "", "'strategy': {'kind': 'slimpack'}");
    agrees(2, "", SLIMPACK);
    agrees(4, "", "'strategy': {'kind': 'slimpack-symmetric'}");
    agrees(2, "", SLIMPACK_ZB);
}

// Slices, padding and packs that no strategy makes.
TEST_CALL(random_plans, host_memory_compare_random_plans(is_exact))

TEST(windows_and_kinds)
{
    sp_model kinds = host_kinds();
    sp_model window = host_llama();
    window.window_tokens = 6;
    host_memory_compare_random(&kinds, 7, test_draws(40), false, is_exact);
    host_memory_compare_random(&window, 8, test_draws(20), false, is_exact);
}

TEST(routed_layers)
{
    sp_model routed = host_routed();
    host_memory_compare_random(&routed, 9, test_draws(60), false, is_exact);
}

// Plans of strategies, under the stack that the executor names as its own; scenarios refuse latent
// attention under it.
TEST(todays_layers_by_strategy)
{
    static const char *const layers[] = {
        "{'layers': 4, 'hidden': 32, 'ffn': 24, 'heads': 4, 'vocab': 61, 'layer_kinds': "
        "[{'experts': 0, 'ffn': 48}, {'experts': 6, 'experts_per_token': 2}, {'experts': 4, "
        "'experts_per_token': 1, 'shared_ffn': 16}, {'experts': 4, 'experts_per_token': 3, "
        "'shared_ffn': 24, 'shared_gate': true}]}",
        "{'layers': 4, 'hidden': 32, 'ffn': 48, 'heads': 4, 'vocab': 61, 'layer_kinds': "
        "[{'window_tokens': 9}, {'chunk_tokens': 16}, {'layers': 2}]}"};
    static const char *const plans[] = {"'schedule': {'kind': '1f1b'}",
                                        "'schedule': {'kind': 'zb-h1'}",
                                        SLIMPIPE,
                                        CHUNKFLOW,
                                        SLIMPACK,
                                        SLIMPACK_ZB};
    for (size_t m = 0; m < sizeof layers / sizeof layers[0]; m++) {
        for (size_t p = 0; p < sizeof plans / sizeof plans[0]; p++) {
            assert_float_equal(host_memory_compare(layers[m], "{'pp': 2}", plans[p], is_exact), 0.0,
                               0.0);
        }
    }
}

TEST(latent_attention)
{
    for (int of_queries = 0; of_queries < 2; of_queries++) {
        sp_model latent = host_latent(of_queries != 0);
        host_memory_compare_random(&latent, 11, test_draws(30), false, is_held);
    }
}

// One rank gathers and scatters nothing.
TEST(zero_on_one_rank)
{
    for (int m = 0; m < HOST_MODELS; m++) {
        for (int zero = 2; zero <= 3; zero++) {
            char parallel[32];
            snprintf(parallel, sizeof parallel, "{'zero': %d}", zero);
            host_memory_compare(host_models[m], parallel, "'memory': {'recompute': 'attention'}",
                                is_exact);
        }
    }
}

TEST(a_shared_vocabulary)
{
    static const char *const plans[] = {"'schedule': {'kind': '1f1b'}",
                                        "'schedule': {'kind': 'zb-h1'}",
                                        SLIMPIPE,
                                        CHUNKFLOW,
                                        SLIMPACK,
                                        SLIMPACK_ZB};
    for (int m = 0; m < 2; m++) {
        sp_model model = m == 0 ? host_llama() : host_gpt();
        for (size_t p = 0; p < sizeof plans / sizeof plans[0]; p++) {
            host_memory_compare(host_models[m], "{'pp': 2, 'vocab_parallel': true}", plans[p],
                                is_held);
        }
        host_memory_compare(host_models[m], "{'pp': 4, 'vocab_parallel': true}", SLIMPIPE, is_held);
        host_memory_compare(host_models[m], "{'pp': 2, 'dp': 2, 'tp': 2, 'vocab_parallel': true}",
                            SLIMPACK, is_held);
        host_memory_compare_random(&model, 5 + (uint64_t)m, test_draws(40), true, is_held);
    }
}
