// What the executor holds between its actions, beside what the predictor says for the very same
// timeline: equal to the byte in each category.
#include "tests/support/host_memory.h"
#include "tests/support/test_main.h"

static void is_equal(const host_memory *memory)
{
    sp_memory_category all[SP_MEM_CATEGORIES];
    for (int k = 0; k < SP_MEM_CATEGORIES; k++) {
        all[k] = (sp_memory_category)k;
    }
    host_memory_equal_after_actions(memory, all, SP_MEM_CATEGORIES);
}

static void model_is_as_predicted(int model, const char *layout, const char *more)
{
    host_memory_compare(host_models[model], layout, more, is_equal);
}

static void is_as_predicted(const char *layout, const char *more)
{
    model_is_as_predicted(0, layout, more);
    model_is_as_predicted(1, layout, more);
}

TEST(whole_samples_hold_what_is_predicted)
{
    is_as_predicted("{}", "'schedule': {'kind': 'gpipe'}");
    is_as_predicted("{'pp': 2, 'dp': 2}", "'schedule': {'kind': '1f1b'}");
    is_as_predicted("{'pp': 2, 'dp': 3, 'zero': 0}", "'schedule': {'kind': '1f1b'}");
    is_as_predicted("{'pp': 2, 'chunks_per_rank': 2}",
                    "'schedule': {'kind': 'interleaved', 'group': 'even'}");
    is_as_predicted("{'pp': 2}", "'strategy': {'kind': 'padded'}");
}

TEST(split_backwards_hold_what_is_predicted)
{
    is_as_predicted("{'pp': 4}", "'schedule': {'kind': 'zb-h1'}");
    is_as_predicted("{'pp': 2}", "'schedule': {'kind': 'zb-h2'}");
    is_as_predicted("{'pp': 2}", "'schedule': {'kind': 'zb-v'}");
}

TEST(slices_hold_what_is_predicted)
{
    is_as_predicted("{'pp': 2}", "'schedule': {'kind': 'seq1f1b', 'slices': 4}");
    is_as_predicted("{'pp': 2}", "'schedule': {'kind': 'terapipe', 'slices': 2}");
    is_as_predicted("{'pp': 2}", "'strategy': {'kind': 'slimpipe'}, 'schedule': {'slices': 4}");
    is_as_predicted("{'pp': 2}", "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 16}");
}

TEST(regrouped_packs_hold_what_is_predicted)
{
    is_as_predicted("{'pp': 2}", "'strategy': {'kind': 'slimpack'}");
    is_as_predicted("{'pp': 2}", "'strategy': {'kind': 'slimpack', 'slice_tokens': 16}");
    is_as_predicted("{'pp': 4}", "'strategy': {'kind': 'slimpack-symmetric'}");
    is_as_predicted("{'pp': 2}", "'strategy': {'kind': 'slimpack-zb', 'slice_tokens': 16}");
}

TEST(recomputation_holds_what_is_predicted)
{
    static const char *const modes[] = {"activation", "partial-fc1", "attention", "full"};
    static const char *const plans[] = {"'schedule': {'kind': '1f1b'}",
                                        "'schedule': {'kind': 'zb-h1'}",
                                        "'schedule': {'kind': 'seq1f1b', 'slices': 4}",
                                        "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 16}",
                                        "'strategy': {'kind': 'slimpack'}",
                                        "'strategy': {'kind': 'slimpack-zb', 'slice_tokens': 16}"};
    for (int m = 0; m < 4; m++) {
        for (int p = 0; p < 6; p++) {
            char more[256];
            snprintf(more, sizeof more, "'memory': {'recompute': '%s'}, %s", modes[m], plans[p]);
            // The models in turn; in a full run both.
            model_is_as_predicted((m + p) % 2, "{'pp': 2}", more);
            if (test_is_full()) {
                model_is_as_predicted((m + p + 1) % 2, "{'pp': 2}", more);
            }
        }
    }
}

// Slices, padding and packs that no strategy makes.
TEST_CALL(random_plans_hold_what_is_predicted, host_memory_compare_random_plans(is_equal))

TEST(a_shared_vocabulary_holds_what_is_predicted)
{
    static const char *const plans[] = {
        "'schedule': {'kind': '1f1b'}",
        "'schedule': {'kind': 'zb-h1'}",
        "'strategy': {'kind': 'slimpipe'}, 'schedule': {'slices': 4}",
        "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 16}",
        "'strategy': {'kind': 'slimpack', 'slice_tokens': 16}",
        "'strategy': {'kind': 'slimpack-zb', 'slice_tokens': 16}"};
    for (size_t p = 0; p < sizeof plans / sizeof plans[0]; p++) {
        is_as_predicted("{'pp': 2, 'vocab_parallel': true}", plans[p]);
    }
    is_as_predicted("{'pp': 4, 'vocab_parallel': true}", plans[2]);
    is_as_predicted("{'pp': 2, 'dp': 2, 'tp': 2, 'vocab_parallel': true}", plans[4]);
    sp_model llama = host_llama();
    sp_model gpt = host_gpt();
    host_memory_compare_random(&llama, 5, test_draws(40), true, is_equal);
    host_memory_compare_random(&gpt, 6, test_draws(40), true, is_equal);
}
