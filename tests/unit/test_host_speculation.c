// Real models, small: trees that a draft proposes and one forward verifies yield what the model
// yields token by token.
#include "backends/host/speculation.h"

#include "kernels/kernels.h"
#include "tests/support/test_main.h"

OWNS(sp_small_model)

enum { VOCAB = 48, PROMPT = 12, TOKENS = 40 };

static sp_small_model *model_of(uint64_t seed, double late_scale)
{
    sp_small_shape shape = {.layers = 4,
                            .heads = 2,
                            .head_dim = 16,
                            .ffn = 64,
                            .vocab = VOCAB,
                            .draft_layers = 2,
                            .late_scale = late_scale,
                            .logit_scale = 3.0};
    sp_small_model *model = NULL;
    sp_kernels_start_threads(1);
    model = sp_small_model_new(&shape, seed);
    return model;
}

static sp_speculation method(sp_decode_method kind, int depth, int top_k, int nodes)
{
    // Borders that all low bins of the small models reach.
    double step = 0.2 * depth * log(top_k);
    return (sp_speculation){.method = kind,
                            .depth = depth,
                            .top_k = top_k,
                            .nodes = nodes,
                            .extend = true,
                            .prune = true,
                            .alpha = sp_speculation_usual_alpha(depth),
                            .keep = {0.3, 0.6, 1.0},
                            .bins = {.count = 4, .above = {step, 2.0 * step, 3.0 * step}}};
}

static int draw_prompt(sp_prng *prng, int64_t prompt[PROMPT])
{
    int count = 1 + prng_below(prng, PROMPT);
    for (int i = 0; i < count; i++) {
        prompt[i] = prng_below(prng, VOCAB);
    }
    return count;
}

static double logits_apart(const double *a, const double *b)
{
    double apart = 0.0;
    for (int i = 0; i < VOCAB; i++) {
        apart = fmax(apart, fabs(a[i] - b[i]));
    }
    return apart;
}

// A chain read at once, token by token, or as one path of a tree with other tokens between.
TEST(paths_of_a_tree_are_texts)
{
    enum { CHAIN = 6 };
    OWNED(sp_small_model) model = model_of(1, 0.3);
    AUTO(sp_small_cache) cache;
    static double whole[CHAIN * VOCAB];
    static double single[VOCAB];
    static double tree[2 * CHAIN * VOCAB];
    int64_t chain[CHAIN];
    int64_t mixed[2 * CHAIN];
    int parents[2 * CHAIN];
    for (int i = 0; i < CHAIN; i++) {
        chain[i] = (7 * i + 3) % VOCAB;
        mixed[2 * i] = chain[i];
        mixed[2 * i + 1] = (5 * i + 1) % VOCAB; // a sibling of the chain's next token
        parents[2 * i] = 2 * i - 2 < 0 ? -1 : 2 * i - 2;
        parents[2 * i + 1] = 2 * i;
    }
    int line[CHAIN] = {-1, 0, 1, 2, 3, 4};
    sp_small_cache_init(&cache, model, 4, 4 * CHAIN);
    sp_small_forward(&cache, CHAIN, chain, line, whole);
    sp_small_settle(&cache, line, 0);
    sp_small_forward(&cache, 2 * CHAIN, mixed, parents, tree);
    sp_small_settle(&cache, line, 0);
    for (int i = 0; i < CHAIN; i++) {
        sp_small_forward(&cache, 1, &chain[i], line, single);
        sp_small_settle(&cache, (int[]){0}, 1);
        assert_true(logits_apart(single, whole + i * VOCAB) < 1e-10);
        assert_true(logits_apart(single, tree + 2 * i * VOCAB) < 1e-10);
    }
}

// Greedy, token for token, over models, prompts and shapes of the tree.
TEST(speculation_is_lossless)
{
    sp_prng prng = prng_seeded(21);
    int64_t accepted = 0;
    for (int round = 0; round < test_rounds(24); round++) {
        static const double scales[] = {0.0, 0.2, 0.5, 1.0};
        OWNED(sp_small_model) model = model_of((uint64_t)round, scales[round % 4]);
        int64_t prompt[PROMPT];
        int count = draw_prompt(&prng, prompt);
        int top_k = 1 + prng_below(&prng, 6);
        int depth = 1 + prng_below(&prng, 6);
        sp_speculation how =
            method(SP_DECODE_EAGLE + prng_below(&prng, 2), depth, top_k, 2 + prng_below(&prng, 30));
        sp_speculation plain = method(SP_DECODE_PLAIN, 1, 1, 2);
        AUTO(sp_small_text) text;
        AUTO(sp_small_text) expected;
        must_succeed(sp_small_generate(model, 2, &how, prompt, count, TOKENS, &text, ERR));
        must_succeed(sp_small_generate(model, 2, &plain, prompt, count, TOKENS, &expected, ERR));
        assert_int_equal(text.count, TOKENS);
        assert_int_equal(expected.call_count, TOKENS);
        assert_memory_equal(text.tokens, expected.tokens, TOKENS * sizeof *text.tokens);
        for (int i = 0; i < text.call_count; i++) {
            accepted += text.calls[i].accepted;
            assert_true(text.calls[i].accepted <= text.calls[i].depth);
            assert_true(text.calls[i].entropy <= depth * log(top_k) + 1e-9);
        }
    }
    assert_true(accepted > 100);
}

// A draft that is the whole model but for layers that add nothing agrees always.
TEST(an_equal_draft_is_accepted_whole)
{
    OWNED(sp_small_model) model = model_of(3, 0.0);
    int64_t prompt[] = {1, 2, 3};
    sp_speculation how = method(SP_DECODE_EAGLE, 4, 3, 14);
    AUTO(sp_small_text) text;
    must_succeed(sp_small_generate(model, 2, &how, prompt, 3, TOKENS, &text, ERR));
    // The best path is of the deepest layer only where it is verified: a chain always is.
    sp_small_text_fini(&text);
    how = method(SP_DECODE_EAGLE, 4, 1, 5);
    must_succeed(sp_small_generate(model, 2, &how, prompt, 3, TOKENS, &text, ERR));
    for (int i = 0; i < text.call_count; i++) {
        assert_int_equal(text.calls[i].accepted, 4);
        assert_true(text.calls[i].path_accepted);
    }
    assert_int_equal(text.call_count, TOKENS / 5);
}

TEST(closer_drafts_are_accepted_more)
{
    static const double scales[] = {0.1, 0.4, 1.5};
    int calls[3] = {0};
    for (int s = 0; s < 3; s++) {
        for (int seed = 0; seed < 4; seed++) {
            OWNED(sp_small_model) model = model_of((uint64_t)seed, scales[s]);
            int64_t prompt[] = {5, 6, 7, 8};
            sp_speculation how = method(SP_DECODE_EAGLE, 5, 4, 20);
            AUTO(sp_small_text) text;
            must_succeed(sp_small_generate(model, 2, &how, prompt, 4, TOKENS, &text, ERR));
            calls[s] += text.call_count;
        }
    }
    assert_true(calls[0] < calls[1] && calls[1] < calls[2]);
}

static sp_small_measure measure_of(uint64_t seed)
{
    sp_speculation how = method(SP_DECODE_HETEROSPEC, 4, 4, 16);
    sp_small_measure measure;
    must_succeed(sp_small_measure_run(&how, 8, 48, seed, &measure, ERR));
    return measure;
}

TEST(measured_text_is_lossless_and_the_same_again)
{
    sp_small_measure one = measure_of(1);
    sp_small_measure again = measure_of(1);
    assert_true(one.lossless);
    assert_int_equal(one.eagle.calls, again.eagle.calls);
    assert_int_equal(one.heterospec.verified, again.heterospec.verified);
    assert_true(one.eagle.tokens >= 8 * 48);
    assert_int_equal(one.eagle.verified, 16 * one.eagle.calls);
    assert_true(one.bins.count > 1 && one.heterospec.low > 0);
}
