// The rows of settings: that each is read, what values may be, and whom a name means.
#include "sim/scenario/scenario_private.h"

#include "sim/model/model.h"
#include "tests/support/scenario_fixture.h"

#define MODEL                                                                          \
    "{'layers': 8, 'hidden': 64, 'ffn': 128, 'heads': 4, 'vocab': 100, 'experts': 2, " \
    "'experts_per_token': 1}"
#define WITH_MODEL                                                                                \
    "{'model': " MODEL                                                                            \
    ", 'cluster': {'name': 'h100-8', 'fabric': {}}, 'stack': {'name': 'ours'}, "                  \
    "'parallel': {}, 'network': {}, 'jitter': {}, 'schedule': {}, 'memory': {}, 'workload': {}, " \
    "'strategy': {}}"
#define WITH_COSTS                                                                          \
    "{'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'memory_units': {'f': 1, 'b': -1, 'w': 0}}, " \
    "'parallel': {}, 'schedule': {}}"

TEST(pages_are_written_out)
{
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        char usual[SP_SETTING_TYPE];
        size_t length = strlen(setting->text);
        must_hold(length >= 10 && setting->text[length - 1] == '.' &&
                      sp_setting_default(setting, usual)[0] != '\0',
                  "the page of %s is not complete", setting->key);
        must_hold(setting->kind != SP_SETTING_OTHER || setting->type != NULL, "%s has no type",
                  setting->key);
        assert_true(sp_setting_find(setting->key) == setting);
    }
}

// Reads the document with a wrong value at `key` and finds what the reader expected there.
static bool expected_at(const char *key, const char *wrong, char expected[SP_ERROR_TEXT])
{
    char assignment[SP_JSON_PATH + 16];
    char head[SP_JSON_PATH + 32];
    bool costs = strncmp(key, "uniform_costs", strlen("uniform_costs")) == 0;
    json_t *root = json_document(costs ? WITH_COSTS : WITH_MODEL);
    snprintf(assignment, sizeof assignment, "%s=%s", key, wrong);
    const char *const overrides[] = {assignment};
    AUTO(sp_scenario) scenario;
    sp_error_clear(ERR);
    sp_scenario_from_json(root, "s.json", overrides, 1, &scenario, ERR);
    json_decref(root);
    snprintf(head, sizeof head, "s.json: %s: expected ", key);
    for (int i = 0; i < ERR->count; i++) {
        if (strncmp(ERR->message[i], head, strlen(head)) == 0) {
            snprintf(expected, SP_ERROR_TEXT, "%s", ERR->message[i] + strlen(head));
            return true;
        }
    }
    return false;
}

// Every row is read, and its type stands in errors. Long lists of names are cut in messages.
TEST(types_are_those_of_the_reader)
{
    const sp_setting *setting = NULL;
    fixture_begin();
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        char type[SP_SETTING_TYPE];
        char expected[SP_ERROR_TEXT];
        sp_setting_type(setting, type);
        // What takes a name takes no number, and what takes no object takes neither.
        must_hold(expected_at(setting->key, "{\"a\": 1}", expected) ||
                      expected_at(setting->key, "7.25", expected),
                  "%s: no word of what is expected", setting->key);
        size_t compared = 150;
        if (strlen(type) < compared) {
            strcat(type, ", got");
            compared = strlen(type);
        }
        must_hold(strcmp(setting->key, "strategy.kind") == 0 ||
                      strncmp(expected, type, compared) == 0,
                  "%s: the table says \"%s\", the reader \"%s\"", setting->key, type, expected);
    }
}

// Each value with a name is one that the reader takes for this key.
TEST(values_are_those_of_the_reader)
{
    const sp_setting *setting = NULL;
    fixture_begin();
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        const char *value = NULL;
        for (int v = 0; (value = sp_setting_value(setting, v)) != NULL; v++) {
            char expected[SP_ERROR_TEXT];
            must_hold(!expected_at(setting->key, value, expected), "%s: \"%s\" is refused",
                      setting->key, value);
        }
    }
}

TEST(no_name_means_two_settings)
{
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        char text[512];
        char *rest = text;
        snprintf(text, sizeof text, "%s", setting->aliases != NULL ? setting->aliases : "");
        for (char *word = strtok_r(text, " ", &rest); word != NULL;
             word = strtok_r(NULL, " ", &rest)) {
            must_hold(sp_setting_find(word) == setting, "'%s' is a name of %s, and of %s", word,
                      setting->key, sp_setting_find(word)->key);
        }
    }
}

TEST(settings_are_found)
{
    static const char *const found[][2] = {
        {"parallel.pp", "parallel.pp"},
        {"pp", "parallel.pp"},
        {"vpp", "parallel.chunks_per_rank"},
        {"mbs", "schedule.microbatch_samples"},
        {"Micro-Batch-Size", "schedule.microbatch_samples"},
        {"--global-batch-size", "workload.samples_per_batch"},
        {"gbs", "workload.samples_per_batch"},
        {"seq_length", "workload.context"},
        {"tensor_model_parallel_size", "parallel.tp"},
        {"nodes", "nodes"},
    };
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++) {
        const sp_setting *setting = sp_setting_find(found[i][0]);
        assert_non_null(setting);
        assert_string_equal(setting->key, found[i][1]);
    }
    // Several keys end so.
    assert_null(sp_setting_find("kind"));
    assert_null(sp_setting_find("nothing_of_ours"));
    assert_string_equal(sp_setting_near("paralel.pp"), "parallel.pp");
    assert_null(sp_setting_near("zzzzzzzz"));
    assert_string_equal(sp_setting_near("seed"), "workload.seed");
    assert_string_equal(sp_setting_near("sede"), "workload.seed");
    assert_string_equal(sp_setting_meant("dim"), "model.hidden");
    assert_string_equal(sp_setting_meant("context_parallel"), "parallel.cp");
    assert_non_null(sp_setting_missing("model.quantization"));
}

TEST(model_names_in_other_spellings)
{
    assert_string_equal(sp_model_builtin_meant("llama3-70b"), "llama-3-70b");
    assert_string_equal(sp_model_builtin_meant("Llama-3_70B"), "llama-3-70b");
    assert_string_equal(sp_model_builtin_meant("meta-llama/Llama-2-7b"), "llama-2-7b");
    // A dot counts: 3.6 is not 36.
    assert_null(sp_model_builtin_meant("gpt-36b"));
    assert_null(sp_model_builtin_meant("llama"));
    const char *name = NULL;
    for (int i = 0; (name = sp_model_builtin_name(i)) != NULL; i++) {
        assert_string_equal(sp_model_builtin_meant(name), name);
    }
}

static void refuses(const char *text, const char *path)
{
    AUTO(sp_scenario) s;
    char head[SP_JSON_PATH + 32];
    snprintf(head, sizeof head, "scenario.json: %s: ", path);
    must_fail_with(fixture_read(text, &s, ERR), SP_ERR_CONTENT, head);
}

// A bit of sp_scenario.states for each.
TEST(there_is_room_for_all)
{
    int count = 0;
    while (sp_setting_at(count) != NULL) {
        count++;
    }
    assert_in_range(count, 200, 64 * SP_STATED_WORDS);
}

// Nothing is hinted at that would change something else.
TEST(what_is_not_modelled_is_said)
{
    static const char why[] =
        "expert-parallel ranks are parallel.ep, the experts of a layer model.experts";
    refuses("{'model': 'llama-13b', 'parallel': {'ep': 2}}", "parallel.ep");
    // In this section; a model has experts.
    static const char *const degrees[] = {"experts", "expert", "moe"};
    for (size_t i = 0; i < sizeof degrees / sizeof degrees[0]; i++) {
        refuses(json_text("{'model': 'mixtral-8x7b', 'parallel': {'%s': 2}}", degrees[i]),
                "parallel");
        assert_non_null(strstr(ERR->message[0], why));
        sp_error_clear(ERR);
    }
    assert_null(sp_setting_missing("experts"));
    assert_null(sp_setting_missing("model.expert"));
    assert_null(sp_setting_missing("--Expert-Model-Parallel-Size"));
    assert_null(sp_setting_missing("parallel.ep"));
    assert_null(sp_setting_missing("tp"));
    // Others' switches of the opposite sense, and sizes in other units.
    static const char *const opposite[] = {"reset_attention_mask", "ddp_bucket_size",
                                           "untie_embeddings_and_output_weights", "loss_parallel",
                                           "offload_param"};
    for (size_t i = 0; i < sizeof opposite / sizeof opposite[0]; i++) {
        assert_null(sp_setting_find(opposite[i]));
        assert_non_null(sp_setting_missing(opposite[i]));
    }
    // No name has two meanings.
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        char aliases[600];
        snprintf(aliases, sizeof aliases, "%s", setting->aliases != NULL ? setting->aliases : "");
        assert_null(sp_setting_missing(setting->key));
        for (char *word = strtok(aliases, " "); word != NULL; word = strtok(NULL, " ")) {
            assert_null(sp_setting_missing(word));
        }
    }
}

TEST(tokens_in_binary_thousands)
{
    AUTO(sp_scenario) s;
    must_succeed(fixture_read("{'model': 'llama3-8b', 'workload': {'lengths': 'wikipedia', "
                              "'context': '128K', 'tokens_per_batch': '4m'}, 'strategy': {'kind': "
                              "'chunkflow', 'chunk_tokens': '2k'}}",
                              &s, ERR));
    assert_string_equal(s.model.name, "llama-3-8b");
    assert_int_equal(s.workload.context, 131072);
    assert_int_equal(s.workload.tokens_per_batch, 4194304);
    assert_int_equal(s.strategy.chunk_tokens, 2048);
    refuses("{'model': 'llama-13b', 'workload': {'context': '128X'}}", "workload.context");
    refuses("{'model': 'llama-13b', 'workload': {'context': '4096M'}}", "workload.context");
    int64_t tokens = 7;
    assert_true(sp_tokens_from_text("0", &tokens));
    assert_int_equal(tokens, 0);
    static const char *const none[] = {"",
                                       "K",
                                       "-1",
                                       "1KK",
                                       "1.5K",
                                       " 1",
                                       "+1",
                                       "1K ",
                                       "9223372036854775807K",
                                       "92233720368547758080"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_false(sp_tokens_from_text(none[i], &tokens));
    }
}

TEST(selective_recomputation_is_of_the_attention_core)
{
    AUTO(sp_scenario) s;
    must_succeed(
        fixture_read("{'model': 'llama-13b', 'memory': {'recompute': 'selective'}}", &s, ERR));
    assert_int_equal(s.memory.recompute, SP_RECOMPUTE_ATTENTION);
}

// 16 nodes of 8 GPUs: 128 = tp 8 x pp 8 x dp 2.
TEST(dp_fills_the_nodes)
{
    AUTO(sp_scenario) s;
    must_succeed(fixture_read("{'model': 'llama-13b', 'nodes': 16, 'parallel': {'tp': 8, 'pp': 8}}",
                              &s, ERR));
    assert_int_equal(s.layout.dp, 2);
    sp_scenario_fini(&s);
    must_succeed(fixture_read("{'model': 'llama-13b', 'parallel': {'tp': 8, 'pp': 8}}", &s, ERR));
    assert_int_equal(s.layout.dp, 1);
    // 24 GPUs are no multiple of 16.
    refuses("{'model': 'llama-13b', 'nodes': 3, 'parallel': {'tp': 8, 'pp': 2}}", "nodes");
    refuses("{'model': 'llama-13b', 'nodes': 16, 'parallel': {'tp': 8, 'pp': 8, 'dp': 1}}",
            "nodes");
}
