// The decode section of a scenario: what it is where nothing is stated, what it must be, and that
// its resolved form reads as itself.
#include "sim/inference/decode.h"

#include "tests/support/scenario_fixture.h"

static void read_text(const char *text, sp_scenario *s)
{
    fixture_begin();
    must_succeed(fixture_read(text, s, ERR));
}

TEST(defaults_are_those_of_the_papers)
{
    AUTO(sp_scenario) s;
    read_text("{'model': 'llama-3-8b', 'decode': {}}", &s);
    const sp_decode_spec *spec = s.decode;
    assert_non_null(spec);
    // EAGLE-3's depth, top K and N of an 8B target (arXiv 2503.01840, appendix A), HeteroSpec's
    // alpha and gamma (arXiv 2505.13254, sections 4.2 and 4.3).
    assert_int_equal(spec->how.method, SP_DECODE_HETEROSPEC);
    assert_int_equal(spec->how.depth, 8);
    assert_int_equal(spec->how.top_k, 10);
    assert_int_equal(spec->how.nodes, 60);
    assert_int_equal(spec->how.alpha, 4);
    assert_true(spec->how.keep[0] == 0.3 && spec->how.keep[1] == 0.6 && spec->how.keep[2] == 1.0);
    assert_true(spec->how.extend && spec->how.prune && !spec->draft_apart);
    assert_int_equal(spec->eagle_graphs, spec->graphs);
    assert_int_equal(spec->draft_kind, SP_DRAFT_EAGLE);
    sp_scenario_fini(&s);
    read_text("{'model': 'llama-3-8b', 'decode': {'depth': 5}}", &s);
    assert_int_equal(s.decode->how.alpha, 3);
    sp_scenario_fini(&s);
    read_text("{'model': 'llama-3-8b'}", &s);
    assert_null(s.decode);
    assert_null(json_object_get(s.resolved, "decode"));
}

static const char *const documents[] = {
    "{'model': 'llama-3-8b', 'decode': {}}",
    "{'model': 'llama-3-8b', 'decode': {'method': 'eagle', 'depth': 6, 'top_k': 8, 'draft_tokens': "
    "40, 'alpha': 2, 'extend': false, 'prune': false, 'keep': [0.1, 0.2, 0.3], 'graphs': 0, "
    "'eagle_graphs': 3, 'draft': 'llama-3-70b', 'draft_tp': 2, 'draft_gpus': 'own', 'sequences': "
    "3, "
    "'prompt_tokens': '1K', 'output_tokens': 9, 'batch': 2, 'batch_policy': 'bucket', 'call_ms': "
    "0.5, 'graph_miss_ms': 1, 'text': {'tokens_per_call': 4, 'training_tokens_per_call': 3, "
    "'spread': 1, 'noise': 2, 'persistence': 0, 'agreement': 3, 'blind': 0.1}}, 'workload': "
    "{'seed': 7}}",
    "{'model': 'llama-3-8b', 'decode': {'method': 'eagle', 'sequences': 3, 'text': {'ease': -1, "
    "'training_ease': "
    "2}}}",
};

TEST(resolved_form_reads_as_itself)
{
    for (size_t i = 0; i < sizeof documents / sizeof documents[0]; i++) {
        AUTO(sp_scenario) s;
        AUTO(sp_scenario) again;
        read_text(documents[i], &s);
        json_auto_t *copy = json_deep_copy(s.resolved);
        must_succeed(sp_scenario_from_json(copy, "again", NULL, 0, &again, ERR));
        assert_true(json_equal(s.resolved, again.resolved));
        assert_int_equal(s.decode->seed, again.decode->seed);
    }
}

TEST(resolved_form_predicts_the_same)
{
    AUTO(sp_scenario) s;
    sp_decode_result result[2];
    read_text(documents[2], &s);
    must_succeed(sp_decode_scenario(&s, &result[0], ERR));
    json_auto_t *copy = json_deep_copy(s.resolved);
    sp_scenario_fini(&s);
    must_succeed(sp_scenario_from_json(copy, "again", NULL, 0, &s, ERR));
    must_succeed(sp_decode_scenario(&s, &result[1], ERR));
    assert_true(result[0].seconds == result[1].seconds);
}

TEST(what_it_must_be)
{
    static const char *const refusals[][2] = {
        {"{'depth': 33}", "decode.depth: "},
        {"{'keep': [0.3, 0.6]}", "decode.keep: "},
        {"{'draft': 3}", "decode.draft: "},
        {"{'draft': 'llama-7b'}", "decode.draft: llama-7b knows 32000 tokens, the target 128256"},
        {"{'draft_tp': 3, 'draft_gpus': 'own'}", "decode.draft_tp: "},
        {"{'depth': 4, 'text': {'training_tokens_per_call': 5.5}}",
         "decode.text.training_tokens_per_call: "},
        {"{'text': {'training_ease': 1, 'training_tokens_per_call': 5.5}}",
         "decode.text.training_ease: "},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        char text[512];
        AUTO(sp_scenario) s;
        snprintf(text, sizeof text, "{'model': 'llama-3-8b', 'decode': %s}", refusals[i][0]);
        must_fail_with(fixture_read(text, &s, ERR), SP_ERR_CONTENT, refusals[i][1]);
        assert_int_equal(ERR->count, 1);
    }
}

TEST(gpus_of_one_speed)
{
    AUTO(sp_scenario) s;
    sp_decode_result result;
    read_text("{'model': 'llama-3-8b', 'decode': {}, 'jitter': {'gpu_cv': 0.1}}", &s);
    must_fail_with(sp_decode_scenario(&s, &result, ERR), SP_ERR_CONTENT, "jitter.gpu_cv: ");
}

TEST(generated_text_drops_no_tokens)
{
    AUTO(sp_scenario) s;
    sp_decode_result result;
    read_text("{'model': {'layers': 4, 'hidden': 512, 'ffn': 512, 'heads': 4, 'vocab': 100, "
              "'experts': 4, 'experts_per_token': 2, 'expert_capacity_factor': 1}, 'decode': {}}",
              &s);
    must_fail_with(sp_decode_scenario(&s, &result, ERR), SP_ERR_CONTENT,
                   "model.expert_capacity_factor: ");
}

TEST(a_scenario_without_it_has_no_text)
{
    AUTO(sp_scenario) s;
    sp_decode_result result;
    read_text("{'model': 'llama-3-8b'}", &s);
    must_fail_with(sp_decode_scenario(&s, &result, ERR), SP_ERR_CONTENT, "decode: is missing");
}
