// Scenarios written as arguments and read back: with what --emit says that it cannot say they are
// the same again, and all names are the framework's own.
#include "experiments/frameworks/frameworks.h"
#include "sim/base/alloc.h"
#include "sim/base/writer.h"
#include "tests/support/framework_names.h"
#include "tests/support/scenario_fixture.h"

enum { DRAWS = 300, PAIRS = 8, TEXT = 4096 };

static int one_of(sp_prng *prng, const int *values, int count)
{
    return values[prng_below(prng, count)];
}

static const char *word_of(sp_prng *prng, const char *const *words, int count)
{
    return words[prng_below(prng, count)];
}

static bool coin(sp_prng *prng)
{
    return prng_below(prng, 2) == 1;
}

// A mode that Megatron-LM has, or modules that the model may have.
static json_t *recomputed(sp_prng *prng, bool experts)
{
    static const char *const modes[] = {"none", "attention", "full"};
    static const char *const dense[] = {"core_attn", "mlp"};
    static const char *const routed[] = {"core_attn", "layernorm", "mlp",
                                         "moe",       "moe_act",   "shared_experts"};
    json_t *modules = json_array();
    for (int m = 0; m < (experts ? 6 : 2); m++) {
        if (coin(prng)) {
            json_array_append_new(modules, json_string(experts ? routed[m] : dense[m]));
        }
    }
    if (json_array_size(modules) > 0 && coin(prng)) {
        return modules;
    }
    json_decref(modules);
    return json_string(word_of(prng, modes, 3));
}

// A model, ranks and a stack of Megatron-LM's; perhaps not a possible scenario.
static json_t *draw(sp_prng *prng)
{
    static const int few[] = {1, 2, 4};
    static const char *const activations[] = {"swiglu", "gelu", "squared-relu", "geglu"};
    static const char *const norms[] = {"rmsnorm", "layernorm"};
    static const char *const positions[] = {"rope", "learned", "none"};
    static const char *const exchanges[] = {"attention", "a2a", "blocking"};
    static const char *const dispatchers[] = {"alltoall", "allgather", "deepep", "hybridep"};
    int tp = one_of(prng, few, 3);
    int cp = one_of(prng, few, 2);
    int pp = one_of(prng, few, 3);
    int dp = one_of(prng, few, 3);
    int chunks = pp > 1 && coin(prng) ? 2 : 1;
    int heads = 8 * one_of(prng, few, 2);
    int each = 1 + prng_below(prng, 3);
    int experts = prng_below(prng, 3) == 0 ? 8 : 0;
    int context = 1024 * one_of(prng, few, 3);
    int rows = one_of(prng, few, 2);
    bool hides = tp > 1 && coin(prng);
    json_t *model = sp_json_object(
        SP_JSON("layers", pp * chunks * each), SP_JSON("hidden", heads * 64),
        SP_JSON("ffn", 256 * (1 + prng_below(prng, 8))), SP_JSON("heads", heads),
        SP_JSON("kv_heads", coin(prng) ? heads : 4),
        SP_JSON("vocab", 512 * (1 + prng_below(prng, 9))),
        SP_JSON("activation", word_of(prng, activations, 4)),
        SP_JSON("norm", word_of(prng, norms, 2)),
        SP_JSON("positional", word_of(prng, positions, 3)),
        SP_JSON("tied_embeddings", json_boolean(coin(prng))),
        SP_JSON("bias", json_boolean(coin(prng))), SP_JSON("qk_norm", json_boolean(coin(prng))),
        SP_JSON("dropout", json_boolean(coin(prng))));
    if (strcmp(json_string_value(json_object_get(model, "positional")), "learned") == 0) {
        sp_json_put(model, "max_positions", json_integer(context));
    }
    if (experts > 0) {
        sp_json_add(model, SP_JSON("experts", experts), SP_JSON("experts_per_token", 2));
        if (coin(prng)) {
            sp_json_put(model, "shared_ffn", json_integer(512));
        }
        if (coin(prng) && pp * chunks * each > 2) {
            json_t *kinds = json_array();
            json_array_append_new(kinds, sp_json_object(SP_JSON("layers", 1), SP_JSON("ffn", 1024),
                                                        SP_JSON("experts", 0),
                                                        SP_JSON("experts_per_token", 0),
                                                        SP_JSON("shared_ffn", 0)));
            json_array_append_new(kinds, sp_json_object(SP_JSON("layers", pp * chunks * each - 1)));
            sp_json_put(model, "layer_kinds", kinds);
        }
    }
    const int64_t loss = prng_below(prng, 3); // eager, in place, native fusion
    json_t *stack = sp_json_object(
        SP_JSON("name", "megatron-core-2025"), SP_JSON("hide_forward_gather", hides),
        SP_JSON("hide_forward_reduce", hides), SP_JSON("hide_backward_gather", hides),
        SP_JSON("hide_backward_reduce", hides),
        SP_JSON("hide_gradient_reduce", json_boolean(coin(prng))),
        SP_JSON("hide_parameter_gather", json_boolean(coin(prng))),
        SP_JSON("fused_cross_entropy", json_boolean(loss == 1)),
        SP_JSON("copied_logits", json_boolean(loss == 2)),
        SP_JSON("fused_swiglu", json_boolean(coin(prng))),
        SP_JSON("unfused_weight_gradient", json_boolean(coin(prng))),
        SP_JSON("gradient_reduce_dtype", coin(prng) ? "bf16" : "fp32"));
    if (cp > 1) {
        sp_json_put(stack, "cp_overlap", json_string(word_of(prng, exchanges, 3)));
    }
    if (experts > 0) {
        const char *dispatcher = word_of(prng, dispatchers, 4);
        sp_json_put(stack, "dispatcher", json_string(dispatcher));
        // Those of collectives are NCCL's, which no argument states.
        if (strstr(dispatcher, "ep") != NULL && coin(prng)) {
            sp_json_put(stack, "dispatcher_sms", json_integer(8));
        }
    }
    json_t *parallel = sp_json_object(SP_JSON("tp", tp), SP_JSON("cp", cp), SP_JSON("pp", pp),
                                      SP_JSON("dp", dp), SP_JSON("zero", prng_below(prng, 4)));
    if (chunks > 1) {
        sp_json_put(parallel, "chunks_per_rank", json_integer(chunks));
    }
    if (tp > 1) {
        sp_json_put(parallel, "sequence_parallel", json_boolean(coin(prng)));
    }
    if (experts > 0 && coin(prng)) {
        sp_json_put(parallel, "ep", json_integer(2));
    }
    if (chunks == 1 && pp > 1 && experts == 0 && coin(prng)) {
        json_t *stages = json_array();
        for (int i = 0; i < pp; i++) {
            int more = i == 0 ? -1 : i == pp - 1 ? 1 : 0;
            json_array_append_new(stages, json_integer(each + (each > 1 ? more : 0)));
        }
        sp_json_put(parallel, "stage_layers", stages);
    }
    return sp_json_object(
        SP_JSON("model", model), SP_JSON("stack", stack), SP_JSON("parallel", parallel),
        SP_JSON("memory", sp_json_object(SP_JSON("recompute", recomputed(prng, experts > 0)))),
        SP_JSON("schedule", sp_json_object(SP_JSON("microbatch_samples", rows))),
        SP_JSON("workload", sp_json_object(SP_JSON("uniform", context), SP_JSON("context", context),
                                           SP_JSON("samples_per_batch", rows * dp * pp * 2))));
}

// A scenario that can be, and its document.
static bool make(sp_prng *prng, sp_scenario *scenario)
{
    sp_error err = {0};
    json_auto_t *document = draw(prng);
    char *text = json_dumps(document, JSON_COMPACT);
    bool good = fixture_read(text, scenario, &err) == SP_OK;
    free(text);
    if (!good) {
        sp_scenario_fini(scenario);
    }
    return good;
}

static json_t *without_names(const json_t *resolved)
{
    json_t *copy = json_deep_copy(resolved);
    json_object_del(copy, "chosen");
    json_object_del(copy, "nodes");
    json_object_del(json_object_get(copy, "model"), "name");
    json_object_del(json_object_get(copy, "stack"), "name");
    // TRL packs best fit first, which makes the rows that samples of one length fill in order, and
    // truncates, which no sample needs.
    json_object_del(json_object_get(copy, "workload"), "over_length");
    json_t *strategy = json_object_get(copy, "strategy");
    const char *kind = json_string_value(json_object_get(strategy, "kind"));
    if (kind != NULL && strcmp(kind, "bfd") == 0) {
        sp_json_put(strategy, "kind", json_string("packed"));
    }
    // Where it is not stated, models with GELU alone have dropout.
    json_t *model = json_object_get(copy, "model");
    if (json_object_get(model, "dropout") == NULL) {
        const char *activation = json_string_value(json_object_get(model, "activation"));
        sp_json_put(model, "dropout", json_boolean(strcmp(activation, "gelu") == 0));
    }
    return copy;
}

// The scenario as arguments, and what they cannot say; the caller owns both.
static char *write_text(const framework *of, const sp_scenario *scenario, json_t **lost)
{
    char *text = NULL;
    *lost = NULL;
    must_succeed(framework_emit(of, scenario, &text, lost, ERR));
    return text;
}

static json_t *read_text(const framework *of, const char *text)
{
    json_t *document = NULL;
    json_auto_t *unread = NULL;
    json_auto_t *notes = NULL;
    sp_error err = {0};
    sp_status status =
        framework_import_text("written", text, strlen(text), of, &document, &unread, &notes, &err);
    if (status != SP_OK) {
        fail_msg("%s: %s\n%s", of->name, err.message[0], text);
    }
    if (json_array_size(unread) != 0) {
        fail_msg("%s: does not understand what it wrote: %s\n%s", of->name,
                 json_dumps(unread, JSON_COMPACT), text);
    }
    return document;
}

// What was read, with what was said to be lost. The machine is the scenario's own.
static void read_again(const framework *of, const sp_scenario *scenario, const char *text,
                       const json_t *lost, sp_scenario *again)
{
    static const char *const taken[] = {"cluster", "profile"};
    json_auto_t *document = read_text(of, text);
    const json_t *from = scenario->resolved;
    size_t i;
    json_t *item;
    for (size_t t = 0; t < 2; t++) {
        sp_json_put(document, taken[t], json_deep_copy(json_object_get(from, taken[t])));
    }
    json_array_foreach ((json_t *)lost, i, item) {
        const char *key = json_string_value(json_object_get(item, "key"));
        json_t *value = framework_get(from, key);
        // Null: the scenario does not have it.
        framework_put_at(document, key,
                         value != NULL ? json_deep_copy(value)
                                       : json_incref(json_object_get(item, "value")));
    }
    if (framework_get(document, "parallel.dp") == NULL) {
        framework_put_at(document, "parallel.dp",
                         json_deep_copy(framework_get(from, "parallel.dp")));
    }
    if (framework_is_lost(lost, "parallel.stage_layers")) { // as even ones would be stated
        json_object_del(json_object_get(document, "parallel"), "layers_per_chunk");
    }
    // A batch that is lost has been put back.
    const json_int_t count = framework_is_lost(lost, "workload.samples_per_batch")
                                 ? 0
                                 : framework_get_int(document, "schedule.microbatches", 0);
    if (count > 0) {
        framework_put_at(
            document, "workload.samples_per_batch",
            json_integer(count * framework_get_int(document, "parallel.dp", 1) *
                         framework_get_int(document, "schedule.microbatch_samples", 1)));
    }
    json_object_del(json_object_get(document, "schedule"), "microbatches");
    if (framework_get(document, "workload.samples_per_batch") == NULL) {
        framework_put_at(document, "workload.samples_per_batch",
                         json_deep_copy(framework_get(from, "workload.samples_per_batch")));
    }
    sp_error err = {0};
    if (sp_scenario_from_json(document, "again", NULL, 0, again, &err) != SP_OK) {
        fail_msg("%s: %s\n%s", of->name, err.message[0], text);
    }
}

static void check_same(const framework *of, const sp_scenario *scenario, const char *text,
                       const json_t *lost)
{
    sp_scenario again = {0};
    read_again(of, scenario, text, lost, &again);
    json_t *first = without_names(scenario->resolved);
    json_t *second = without_names(again.resolved);
    if (!json_equal(first, second)) {
        const char *section;
        json_t *value;
        json_object_foreach (first, section, value) {
            const json_t *other = json_object_get(second, section);
            if (!json_equal(value, other)) {
                fail_msg("%s: %s differs: %s, read back %s\n%s", of->name, section,
                         json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT),
                         other != NULL ? json_dumps(other, JSON_ENCODE_ANY | JSON_COMPACT) : "-",
                         text);
            }
        }
        fail_msg("%s: more is read back than was there\n%s", of->name, text);
    }
    json_decref(first);
    json_decref(second);
    sp_scenario_fini(&again);
}

// Every drawn scenario that can be is all said by Megatron-LM's arguments.
TEST(megatron_says_all)
{
    fixture_begin();
    sp_prng prng = prng_seeded(1);
    const framework *megatron = framework_find("megatron");
    int checked = 0;
    for (int i = 0; i < DRAWS; i++) {
        sp_scenario scenario = {0};
        if (!make(&prng, &scenario)) {
            continue;
        }
        json_auto_t *lost;
        AUTO_FREE char *text = write_text(megatron, &scenario, &lost);
        if (json_array_size(lost) != 0) {
            fail_msg("not said: %s\n%s", json_dumps(lost, JSON_COMPACT), text);
        }
        check_same(megatron, &scenario, text, lost);
        checked++;
        sp_scenario_fini(&scenario);
    }
    assert_true(checked >= 100);
}

TEST(others_name_what_they_cannot_say)
{
    fixture_begin();
    sp_prng prng = prng_seeded(2);
    int checked = 0;
    for (int i = 0; i < DRAWS / 3; i++) {
        sp_scenario scenario = {0};
        if (!make(&prng, &scenario)) {
            continue;
        }
        for (int f = 1; framework_names[f] != NULL; f++) {
            json_auto_t *lost;
            const framework *of = framework_find(framework_names[f]);
            AUTO_FREE char *text = write_text(of, &scenario, &lost);
            check_same(of, &scenario, text, lost);
        }
        checked++;
        sp_scenario_fini(&scenario);
    }
    assert_true(checked >= 30);
}

// What the arguments say of the scenario of a text; the caller owns it and what they cannot say.
static json_t *read_back(const framework *of, const char *text, json_t **lost)
{
    AUTO(sp_scenario) scenario = {0};
    fixture_good(text, &scenario);
    AUTO_FREE char *written = write_text(of, &scenario, lost);
    return read_text(of, written);
}

// Optimizer states on the host are said by Megatron-LM and by Bridge, their overlap too.
TEST(states_on_the_host_are_said)
{
    fixture_begin();
    static const char *const says[] = {"megatron", "bridge"};
    for (int overlaps = 0; overlaps < 2; overlaps++) {
        for (int f = 0; f < 2; f++) {
            const char *text = json_text(
                "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1024}, "
                "'cluster': 'h100-8', 'stack': {'name': 'megatron-core-2025', 'host_overlap': %s}, "
                "'memory': {'offload_states': 0.5}, 'workload': {'uniform': 512, 'context': 512}}",
                overlaps == 1 ? "true" : "false");
            json_auto_t *lost;
            json_auto_t *document = read_back(framework_find(says[f]), text, &lost);
            assert_close(json_number_value(framework_get(document, "memory.offload_states")), 0.5,
                         1e-12);
            assert_int_equal(json_is_true(framework_get(document, "stack.host_overlap")),
                             overlaps == 1);
        }
    }
}

// DeepSpeed has a share of them with ZeRO 3 alone: else all go.
TEST(deepspeed_says_states_on_the_host)
{
    fixture_begin();
    static const struct {
        int stage;
        double share;
    } cases[] = {{3, 0.5}, {3, 1.0}, {2, 1.0}, {2, 0.5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_auto_t *lost;
        json_auto_t *document = read_back(
            framework_find("deepspeed"),
            json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': 'hf-trainer', "
                      "'parallel': {'dp': 8, 'zero': %d}, 'memory': {'offload_states': %g}, "
                      "'workload': {'uniform': 512, 'context': 512}}",
                      cases[i].stage, cases[i].share),
            &lost);
        const bool is_said = cases[i].stage == 3 || cases[i].share == 1.0;
        assert_close(json_number_value(framework_get(document, "memory.offload_states")),
                     is_said ? cases[i].share : 1.0, 1e-12);
        assert_int_equal(framework_is_lost(lost, "memory.offload_states"), !is_said);
    }
}

// TRL packs best fit first, joins and cuts, or pads (trl/trainer/sft_config.py). What packs
// otherwise is said to become best fit, but where all samples are equally long.
TEST(trl_says_what_it_packs)
{
    fixture_begin();
    static const char drawn[] = "'lengths': [100, 300, 200, 400], 'order': 'file', "
                                "'samples_per_batch': 4";
    static const struct {
        const char *kind, *workload, *becomes;
        bool lost;
    } cases[] = {{"packed", drawn, "bfd", true},
                 {"packed", "'uniform': 512", "bfd", false},
                 {"packed", "'uniform': 100, 'samples_per_batch': 8", "bfd", false},
                 {"sorted", drawn, "bfd", true},
                 {"ffd", drawn, "bfd", true},
                 {"bfd", drawn, "bfd", false},
                 {"concat", drawn, "concat", false},
                 {"padded", drawn, "padded", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_auto_t *lost;
        const char *text = json_text(
            "{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': 'trl-2025', 'strategy': "
            "{'kind': '%s'}, 'workload': {%s, 'context': 512, 'over_length': 'truncate'}}",
            cases[i].kind, cases[i].workload);
        json_auto_t *document = read_back(framework_find("trl"), json_text("%s", text), &lost);
        const char *kind = json_string_value(framework_get(document, "strategy.kind"));
        assert_string_equal(kind, cases[i].becomes);
        if (framework_is_lost(lost, "strategy.kind") != cases[i].lost) {
            fail_msg("%s: %s", text, json_dumps(lost, JSON_COMPACT));
        }
    }
}

// DeepSpeed's file has no switch for what the Trainer recomputes: the loss says whose arguments
// have it, in the document and in the text. Such rows are of settings that the framework does not
// write.
TEST(what_another_file_has_is_said)
{
    fixture_begin();
    static const char whose[] = "gradient_checkpointing of the trainer's arguments";
    for (int recomputes = 0; recomputes < 2; recomputes++) {
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(
            json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': 'hf-trainer', "
                      "'parallel': {'dp': 8, 'zero': 3}, 'memory': {'recompute': '%s'}, "
                      "'workload': {'uniform': 512, 'context': 512}}",
                      recomputes == 1 ? "full" : "none"),
            &scenario);
        AUTO_FREE char *text = write_text(framework_find("deepspeed"), &scenario, &lost);
        assert_int_equal(framework_is_lost(lost, "memory.recompute"), recomputes == 1);
        assert_int_equal(strstr(text, whose) != NULL, recomputes == 1);
    }
    for (int f = 0; framework_names[f] != NULL; f++) {
        const framework *of = framework_find(framework_names[f]);
        for (const framework_elsewhere *row = of->elsewhere; row != NULL && row->key != NULL;
             row++) {
            assert_non_null(sp_setting_find(row->key));
            for (const framework_row *own = of->rows; own->key != NULL; own++) {
                assert_false(strcmp(own->key, row->key) == 0 && own->names[of->dialect] != NULL);
            }
        }
    }
}

// TRL pads to the longest of a micro-batch, which is no matter of rows that are not padded.
TEST(what_rows_are_padded_to_is_lost_where_they_are)
{
    static const char *const kinds[] = {"packed", "bfd", "padded"};
    fixture_begin();
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        json_auto_t *lost;
        json_decref(read_back(framework_find("trl"),
                              json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': "
                                        "'megatron-core-2025', 'strategy': {'kind': '%s'}, "
                                        "'workload': {'uniform': 512, 'context': 512}}",
                                        kinds[i]),
                              &lost));
        assert_int_equal(framework_is_lost(lost, "strategy.pad_to"),
                         strcmp(kinds[i], "padded") == 0);
    }
}

// TRL's distributing_training.md: rows are padded to multiples of sp_size where ranks exchange
// heads, else of 2 x cp_size. Its accelerate file for the former states lengths that vary and the
// attention, which DeepSpeed takes as the model has it alone and never "eager" (ulysses_sp.py).
TEST(rows_of_ranks_that_share_them_are_multiples)
{
    fixture_begin();
    static const char varies[] = "  parallelism_config_sp_seq_length_is_variable: true\n";
    static const struct {
        int cp;
        const char *exchange, *attention, *multiple; // NULL: not said
        bool heads;
    } cases[] = {
        {1, "a2a", "flash", NULL, false},
        {4, "a2a", "flash", "\npad_to_multiple_of: 4\n", true},
        {4, "a2a", "unfused", "\npad_to_multiple_of: 4\n", true},
        {2, "blocking", "flash", "\npad_to_multiple_of: 4\n", false},
        {4, "attention", "flash", "\npad_to_multiple_of: 8\n", false},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        static const char *const names[] = {"trl", "accelerate"};
        static const char *const attentions[] = {
            "\nattn_implementation: \"flash_attention_2\"\n",
            "  parallelism_config_sp_attn_implementation: \"flash_attention_2\"\n"};
        for (int f = 0; f < 2; f++) {
            AUTO(sp_scenario) scenario = {0};
            json_auto_t *lost;
            fixture_good(
                json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': {'name': "
                          "'trl-2025', 'cp_overlap': '%s'}, 'strategy': {'kind': 'concat'}, "
                          "'parallel': {'cp': %d, 'dp': 2, 'zero': 3}, 'memory': {'attention': "
                          "'%s'}, 'workload': {'uniform': 512, 'context': 512}}",
                          cases[i].exchange, cases[i].cp, cases[i].attention),
                &scenario);
            AUTO_FREE char *text = write_text(framework_find(names[f]), &scenario, &lost);
            assert_int_equal(strstr(text, cases[i].multiple != NULL ? cases[i].multiple
                                                                    : "pad_to_multiple_of") != NULL,
                             f == 0 && cases[i].multiple != NULL);
            assert_int_equal(strstr(text, varies) != NULL, f == 1 && cases[i].heads);
            assert_int_equal(strstr(text, attentions[f]) != NULL, f == 0 || cases[i].heads);
            check_same(framework_find(names[f]), &scenario, text, lost);
        }
    }
}

// What accelerate's file of the same job states is said to be set there, not to become another.
// What is done with long documents is told where there are such.
TEST(trl_tells_what_its_own_file_changes_alone)
{
    fixture_begin();
    for (int longer = 0; longer < 2; longer++) {
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(
            json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': {'name': 'trl-2025', "
                      "'cp_overlap': 'blocking'}, 'strategy': {'kind': 'bfd'}, 'parallel': {'cp': "
                      "2, 'dp': 2, 'zero': 3}, 'memory': {'offload_states': 1}, 'workload': "
                      "{'lengths': [100, %d, 300], 'context': 512, 'over_length': 'drop', "
                      "'order': 'file', 'samples_per_batch': 4}}",
                      longer == 1 ? 513 : 512),
            &scenario);
        AUTO_FREE char *text = write_text(framework_find("trl"), &scenario, &lost);
        assert_int_equal(framework_is_lost(lost, "workload.over_length"), longer == 1);
        assert_true(framework_is_lost(lost, "memory.offload_states"));
        assert_true(framework_is_lost(lost, "stack.hide_gradient_reduce"));
        assert_int_equal(strstr(text, "it becomes") != NULL, longer == 1);
    }
}

// torchrun's nodes find each other where there are several, and their number is read back.
TEST(megatron_says_where_nodes_meet)
{
    fixture_begin();
    for (int nodes = 1; nodes <= 2; nodes++) {
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', 'parallel': {'tp': 4, "
                               "'dp': %d}, 'workload': {'uniform': 512, 'context': 512}}",
                               2 * nodes),
                     &scenario);
        const framework *megatron = framework_find("megatron");
        AUTO_FREE char *text = write_text(megatron, &scenario, &lost);
        assert_int_equal(strstr(text, " --node-rank \"${NODE_RANK:?}\" --master-addr "
                                      "\"${MASTER_ADDR:?}\" pretrain_gpt.py") != NULL,
                         nodes > 1);
        assert_int_equal(strstr(text, "master-addr") != NULL, nodes > 1);
        json_auto_t *document = read_text(megatron, text);
        assert_int_equal(framework_get_int(document, "parallel.dp", 0), 2 * nodes);
    }
}

// The base of rotary positions: rope_theta of the published config.json of built-in models; of
// another model a comment asks for it, and of learned positions nothing is said.
TEST(the_base_of_rotary_positions_is_said)
{
    fixture_begin();
    static const char own[] =
        "{'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1024, "
        "'positional': 'rope'}";
    static const char changed[] =
        "{'layers': 80, 'hidden': 8192, 'ffn': 28672, 'heads': 64, 'kv_heads': 8, 'vocab': 128256, "
        "'dropout': true, 'name': 'llama-3-70b with model.dropout changed'}";
    static const struct {
        const char *framework, *model, *said;
    } cases[] = {
        {"megatron", "'llama-3-8b'", " --rotary-base 500000 "},
        {"megatron", "'llama-2-7b'", " --rotary-base 10000 "},
        {"bridge", "'mixtral-8x7b'", "  rotary_base: 1000000\n"},
        {"nemo", "'llama-3-70b'", "  rotary_base: 500000\n"},
        {"nanotron", "'llama-3-8b'", "    rope_theta: 500000\n"},
        // As --set model.dropout=true leaves it: a changed model is called after the other.
        {"megatron", changed, " --rotary-base 500000 "},
        {"megatron", own, "config.json): --rotary-base\n"},
        {"bridge", own, "config.json): model.rotary_base\n"},
        {"nanotron", own, "config.json): model.model_config.rope_theta\n"},
        {"megatron", "'gpt3-6.7b'", NULL},
        {"trl", "'llama-3-8b'", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(json_text("{'model': %s, 'cluster': 'h100-8', 'workload': {'uniform': 512, "
                               "'context': 512}}",
                               cases[i].model),
                     &scenario);
        AUTO_FREE char *text = write_text(framework_find(cases[i].framework), &scenario, &lost);
        const char *said = cases[i].said;
        if (said != NULL
                ? strstr(text, said) == NULL
                : strstr(text, "otary-base") != NULL || strstr(text, "rope_theta") != NULL) {
            fail_msg("%s of %s: %s", cases[i].framework, cases[i].model, text);
        }
    }
}

// All but two shapes that SlimPipe's authors made, of which no config.json is published.
TEST(built_in_models_have_a_base)
{
    fixture_begin();
    for (int i = 0; i < sp_model_builtin_count(); i++) {
        const char *name = sp_model_builtin_name(i);
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(json_text("{'model': '%s', 'cluster': 'h100-8', 'workload': {'uniform': 512, "
                               "'context': 512}}",
                               name),
                     &scenario);
        const bool has =
            scenario.model.positional == SP_ROPE && !sp_names_hold("llama-149b llama-175b", name);
        AUTO_FREE char *text = write_text(framework_find("megatron"), &scenario, &lost);
        if (has != (strstr(text, " --rotary-base ") != NULL)) {
            fail_msg("%s: %s", name, text);
        }
    }
}

// TRL has arguments for adapters beside weights in 4 bits; others name what they have none for.
TEST(trl_says_frozen_weights)
{
    fixture_begin();
    static const char *const frozen[] = {"bf16", "4bit", "4bit-double"};
    for (int i = 0; i < 3; i++) {
        for (int f = 0; framework_names[f] != NULL; f++) {
            const char *text = json_text(
                "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, "
                "'lora_rank': 8, 'frozen_weights': '%s'}, 'cluster': 'h100-8', 'stack': "
                "'trl-2025', 'strategy': {'kind': 'bfd'}, 'workload': {'uniform': 512, 'context': "
                "512, 'samples_per_batch': 8}}",
                frozen[i]);
            const framework *of = framework_find(framework_names[f]);
            json_auto_t *lost;
            json_auto_t *document = read_back(of, text, &lost);
            const char *read = json_string_value(framework_get(document, "model.frozen_weights"));
            if (strcmp(of->name, "trl") == 0 && i > 0) {
                assert_string_equal(read, frozen[i]);
            } else {
                assert_null(read);
            }
            bool is_lost =
                framework_is_lost(lost, "model.frozen_weights") || framework_is_lost(lost, "model");
            assert_true(is_lost || i == 0 || strcmp(of->name, "trl") == 0);
        }
    }
}

// Adapters and the type of frozen weights leave a model the one that it is called after, and what
// is read back has its shape; another shape is none that TRL has arguments for, which one name
// says.
TEST(trl_names_the_model_beside_adapters)
{
    fixture_begin();
    static const struct {
        const char *more, *name; // NULL: not said
    } cases[] = {{NULL, "model_name_or_path: \"llama-3-70b\"  # replace it"},
                 {"model.lora_rank=16", "model_name_or_path: \"llama-3-70b\"  # replace it"},
                 {"model.layers=40", NULL}};
    static const char *const stated[] = {"model.lora_rank=16", "model.frozen_weights=4bit-double"};
    const framework *trl = framework_find("trl");
    for (int i = 0; i < COUNT_OF(cases); i++) {
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        json_auto_t *document = json_loads(
            "{\"model\": \"llama-3-70b\", \"cluster\": \"h100-8\", \"stack\": \"trl-2025\", "
            "\"strategy\": {\"kind\": \"bfd\"}, \"parallel\": {\"dp\": 1, \"zero\": 0}, "
            "\"workload\": "
            "{\"uniform\": 4096, \"context\": 4096, \"samples_per_batch\": 16}}",
            0, NULL);
        for (int k = 0; cases[i].more != NULL && k < 2; k++) {
            must_succeed(sp_scenario_override(document, stated[k], ERR));
        }
        if (cases[i].more != NULL) {
            must_succeed(sp_scenario_override(document, cases[i].more, ERR));
        }
        must_succeed(sp_scenario_from_json(document, "asked", NULL, 0, &scenario, ERR));
        AUTO_FREE char *text = write_text(trl, &scenario, &lost);
        check_same(trl, &scenario, text, lost);
        if (cases[i].name != NULL) {
            assert_non_null(strstr(text, cases[i].name));
            assert_int_equal(json_array_size(lost), 0);
        } else {
            assert_null(strstr(text, "\nmodel_name_or_path: "));
            assert_int_equal(json_array_size(lost), 1);
            assert_true(framework_is_lost(lost, "model"));
        }
    }
}

// Switches that the prediction rests on are stated, whatever a release does without them: kernels
// that keep packed documents apart, recomputation, and the type of the weights that are loaded. The
// weights that Adam steps are FP32 where neither ZeRO nor FSDP keeps masters, and frozen ones BF16.
TEST(trl_states_what_a_prediction_rests_on)
{
    fixture_begin();
    static const struct {
        const char *recompute, *attention, *kind, *rank, *zero;
        const char *checkpoints, *kernels, *dtype;
    } cases[] = {
        {"full", "flash", "bfd", "0", "3", "true", "flash_attention_2", "bfloat16"},
        {"none", "flash", "bfd", "0", "0", "false", "flash_attention_2", "float32"},
        {"full", "flash", "padded", "8", "0", "true", "flash_attention_2", "bfloat16"},
        {"none", "unfused", "padded", "0", "0", "false", "eager", "float32"},
        {"none", "unfused", "concat", "0", "2", "false", "eager", "bfloat16"},
        // Packed documents need them, which is said to be another attention.
        {"none", "unfused", "bfd", "0", "0", "false", "flash_attention_2", "float32"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        char wanted[3][64];
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(
            json_text("{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': "
                      "1024, 'lora_rank': %s}, 'cluster': 'h100-8', 'stack': 'trl-2025', "
                      "'strategy': {'kind': '%s'}, 'parallel': {'dp': 2, 'zero': %s}, 'memory': "
                      "{'recompute': '%s', 'attention': '%s'}, 'workload': {'uniform': 512, "
                      "'context': 512}}",
                      cases[i].rank, cases[i].kind, cases[i].zero, cases[i].recompute,
                      cases[i].attention),
            &scenario);
        AUTO_FREE char *text = write_text(framework_find("trl"), &scenario, &lost);
        snprintf(wanted[0], sizeof wanted[0], "\ngradient_checkpointing: %s\n",
                 cases[i].checkpoints);
        snprintf(wanted[1], sizeof wanted[1], "\nattn_implementation: \"%s\"\n", cases[i].kernels);
        snprintf(wanted[2], sizeof wanted[2], "\nbf16: true\ndtype: \"%s\"\n", cases[i].dtype);
        for (int w = 0; w < 3; w++) {
            if (strstr(text, wanted[w]) == NULL) {
                fail_msg("case %d: not there: %s\n%s", i, wanted[w], text);
            }
        }
        const bool keeps_scores =
            strcmp(cases[i].attention, "unfused") == 0 && strcmp(cases[i].kernels, "eager") != 0;
        assert_int_equal(framework_is_lost(lost, "memory.attention"), keeps_scores);
        check_same(framework_find("trl"), &scenario, text, lost);
    }
}

static void check_names(const framework *of, const char *names, const char *text)
{
    framework_entries entries = {0};
    framework_commands commands = {0};
    sp_error err = {0};
    size_t bytes = strlen(text);
    sp_status status =
        of->syntax == FRAMEWORK_SHELL  ? framework_read_shell("x", text, bytes, &commands, &err)
        : of->syntax == FRAMEWORK_YAML ? framework_read_yaml("x", text, bytes, &entries, &err)
        : of->syntax == FRAMEWORK_TOML ? framework_read_toml("x", text, bytes, &entries, &err)
                                       : framework_read_json("x", text, bytes, &entries, &err);
    assert_int_equal(status, SP_OK);
    const framework_entries *all = of->syntax == FRAMEWORK_SHELL ? &commands.items[0] : &entries;
    assert_true(all->count > 0);
    for (size_t i = 0; i < all->count; i++) {
        const char *name = all->items[i].name;
        const char *found = names;
        size_t length = strlen(name);
        while ((found = strstr(found, name)) != NULL &&
               !((found == names || found[-1] == ' ') &&
                 (found[length] == ' ' || found[length] == '\0'))) {
            found++;
        }
        if (found == NULL) {
            fail_msg("%s has no argument %s", of->name, name);
        }
    }
    framework_entries_free(&entries);
    framework_commands_free(&commands);
}

// A loss by chunks is Liger's, whose kernels are those that the scenario has, and whose number of
// chunks is its own: of Llama-3-8B 32 (128256 entries and 4096 features) for rows of 8192 tokens.
TEST(trl_says_a_loss_by_chunks)
{
    fixture_begin();
    static const struct {
        int chunks;
        bool norms;
    } cases[] = {{0, false}, {32, false}, {32, true}, {8, true}};
    const framework *trl = framework_find("trl");
    for (int i = 0; i < COUNT_OF(cases); i++) {
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(
            json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': {'name': 'trl-2025', "
                      "'fused_cross_entropy': true, 'loss_chunks': %d, 'unfused_norms': %s}, "
                      "'strategy': {'kind': 'bfd'}, 'parallel': {'dp': 2, 'zero': 0}, 'workload': "
                      "{'uniform': 8192, 'context': 8192, 'samples_per_batch': 8}}",
                      cases[i].chunks, cases[i].norms ? "false" : "true"),
            &scenario);
        AUTO_FREE char *text = write_text(trl, &scenario, &lost);
        const bool is_written = strstr(text, "\nuse_liger_kernel: true  # it cuts the loss into 32 "
                                             "chunks here\n") != NULL;
        assert_int_equal(is_written, cases[i].chunks > 0);
        assert_int_equal(strstr(text, "use_liger_kernel") != NULL, is_written);
        assert_int_equal(framework_is_lost(lost, "stack.loss_chunks"), cases[i].chunks == 8);
        assert_false(is_written && framework_is_lost(lost, "stack.unfused_norms"));
        check_names(trl, framework_sources[5].names, text);
        check_same(trl, &scenario, text, lost);
    }
}

// Spelt as the framework's own source spells it.
TEST(names_are_the_frameworks_own)
{
    fixture_begin();
    sp_prng prng = prng_seeded(3);
    for (int i = 0; i < DRAWS / 3; i++) {
        sp_scenario scenario = {0};
        if (!make(&prng, &scenario)) {
            continue;
        }
        for (size_t f = 0; f < sizeof framework_sources / sizeof framework_sources[0]; f++) {
            json_auto_t *lost;
            const framework *of = framework_find(framework_sources[f].framework);
            AUTO_FREE char *text = write_text(of, &scenario, &lost);
            check_names(of, framework_sources[f].names, text);
        }
        sp_scenario_fini(&scenario);
    }
    for (size_t f = 0; f < sizeof framework_sources / sizeof framework_sources[0]; f++) {
        const framework *of = framework_find(framework_sources[f].framework);
        for (const framework_row *row = of->rows; row->key != NULL; row++) {
            const char *name = row->names[of->dialect];
            if (name != NULL && !sp_names_hold(framework_sources[f].names, name)) {
                fail_msg("%s has no argument %s", of->name, name);
            }
        }
    }
}

// Frameworks count rows: as many as the tokens of a batch of documents fill, in whole micro-batches
// of all replicas. Where a batch is one of documents the number of rows is not known.
TEST(a_batch_of_documents_is_written_as_rows)
{
    static const struct {
        const char *batch;
        int rows; // 0: not said
    } cases[] = {{"'tokens_per_batch': 65536", 16},
                 {"'tokens_per_batch': 61440", 16}, // 15 rows for 2 replicas
                 {"'tokens_per_batch': 100", 2},
                 {"'samples_per_batch': 64", 0}};
    fixture_begin();
    for (int i = 0; i < COUNT_OF(cases); i++) {
        char said[64];
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(
            json_text("{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': "
                      "1024}, 'cluster': 'h100-8', 'parallel': {'dp': 2}, 'workload': {'lengths': "
                      "'wikipedia', 'context': 4096, %s}}",
                      cases[i].batch),
            &scenario);
        AUTO_FREE char *written = write_text(framework_find("megatron"), &scenario, &lost);
        snprintf(said, sizeof said, "--global-batch-size %d ", cases[i].rows);
        assert_int_equal(strstr(written, "--global-batch-size") != NULL, cases[i].rows > 0);
        assert_int_equal(strstr(written, said) != NULL, cases[i].rows > 0);
        // Rows are nothing that the scenario says.
        assert_true(cases[i].rows == 0 || !framework_is_lost(lost, "workload.samples_per_batch"));
    }
}

// Megatron-LM's own checks (training/arguments.py): tensor and context parallelism before Blackwell
// take CUDA_DEVICE_MAX_CONNECTIONS of 1, which its FSDP does not; that saves as fsdp_dtensor, and
// an optimizer on the host is the precision-aware one.
TEST(megatron_takes_what_is_written)
{
    static const char one[] = "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
    static const char any[] = "unset CUDA_DEVICE_MAX_CONNECTIONS\n";
    static const char fsdp[] = "--ckpt-format fsdp_dtensor";
    static const char aware[] = "--use-precision-aware-optimizer";
    static const struct {
        const char *cluster, *said;
        bool one, any, fsdp, aware;
    } cases[] = {
        {"h100-8", "'parallel': {'dp': 2}", false, false, false, false},
        {"h100-8", "'parallel': {'tp': 2}", true, false, false, false},
        {"a100-8", "'parallel': {'cp': 2}", true, false, false, false},
        {"b200-8", "'parallel': {'tp': 2}", false, false, false, false},
        {"h100-8", "'parallel': {'tp': 2, 'dp': 2, 'zero': 3}", false, true, true, false},
        {"h100-8", "'memory': {'offload_states': 0.5}", false, false, false, true},
    };
    fixture_begin();
    for (int i = 0; i < COUNT_OF(cases); i++) {
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(json_text("{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, "
                               "'vocab': 1024}, 'cluster': '%s', %s, 'workload': {'context': 512}}",
                               cases[i].cluster, cases[i].said),
                     &scenario);
        AUTO_FREE char *written = write_text(framework_find("megatron"), &scenario, &lost);
        assert_int_equal(strstr(written, one) != NULL, cases[i].one);
        assert_int_equal(strstr(written, any) != NULL, cases[i].any);
        assert_int_equal(strstr(written, fsdp) != NULL, cases[i].fsdp);
        assert_int_equal(strstr(written, aware) != NULL, cases[i].aware);
    }
}

// Megatron-LM has an argument for layers of each stage, and none for a rule that makes them.
TEST(stages_by_a_rule_are_written_as_their_layers)
{
    fixture_begin();
    json_t *lost;
    json_t *document = read_back(
        framework_find("megatron"),
        json_text("{'model': {'layers': 5, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1024}, "
                  "'cluster': 'h100-8', 'stack': 'megatron-core-2025', 'parallel': {'pp': 2, "
                  "'stage_layers': 'auto'}, 'workload': {'uniform': 512, 'context': 512}}"),
        &lost);
    const json_t *stages = framework_get(document, "parallel.stage_layers");
    assert_int_equal(json_array_size(stages), 2);
    assert_int_equal(json_integer_value(json_array_get(stages, 0)) +
                         json_integer_value(json_array_get(stages, 1)),
                     5);
    assert_false(framework_is_lost(lost, "parallel.stage_layers"));
    json_decref(document);
    json_decref(lost);
}

// ---- what changes in a file ----

static const char *const endings[] = {
    [FRAMEWORK_SHELL] = "sh",
    [FRAMEWORK_YAML] = "yaml",
    [FRAMEWORK_TOML] = "toml",
    [FRAMEWORK_JSON] = "json",
};

// What a written file states, by the names in it; the caller owns it.
static json_t *stated_in(const framework *of, const char *text)
{
    framework_commands commands = {0};
    framework_entries entries = {0};
    json_t *stated = json_object();
    const size_t bytes = strlen(text);
    switch (of->syntax) {
    case FRAMEWORK_SHELL:
        must_succeed(framework_read_shell("job", text, bytes, &commands, ERR));
        entries = commands.items[commands.count - 1];
        break;
    case FRAMEWORK_YAML:
        must_succeed(framework_read_yaml("job", text, bytes, &entries, ERR));
        break;
    case FRAMEWORK_TOML:
        must_succeed(framework_read_toml("job", text, bytes, &entries, ERR));
        break;
    case FRAMEWORK_JSON:
        must_succeed(framework_read_json("job", text, bytes, &entries, ERR));
        break;
    }
    for (size_t i = 0; i < entries.count; i++) {
        json_object_set(stated, entries.items[i].name, entries.items[i].value);
    }
    if (of->syntax == FRAMEWORK_SHELL) {
        framework_commands_free(&commands);
    } else {
        framework_entries_free(&entries);
    }
    return stated;
}

static void print_words(FILE *out, const json_t *value)
{
    size_t i;
    json_t *item;
    json_array_foreach ((json_t *)value, i, item) {
        fprintf(out, " '%s'", json_string_value(item));
    }
    if (json_is_string(value)) {
        fprintf(out, " '%s'", json_string_value(value));
    }
}

// A file that states it. YAML holds all JSON.
static void write_stated(const char *path, const framework *of, const json_t *stated)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    json_t *nested = json_object();
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)stated, name, value) {
        framework_put_at(nested, name, json_incref(value));
    }
    if (of->syntax == FRAMEWORK_SHELL) {
        fputs("torchrun", out);
        for (int after = 0; after < 2; after++) {
            json_object_foreach ((json_t *)stated, name, value) {
                if ((strncmp(name, "launch.", 7) != 0) == after && name[0] != '$') {
                    fprintf(out, " --%s", name + (after ? 0 : 7));
                    print_words(out, value);
                }
            }
            fputs(after ? "\n" : " pretrain_gpt.py", out);
        }
    } else if (of->syntax == FRAMEWORK_TOML) {
        json_object_foreach (nested, name, value) {
            const char *key;
            json_t *member;
            fprintf(out, "[%s]\n", name);
            json_object_foreach (value, key, member) {
                char *text = json_dumps(member, JSON_ENCODE_ANY);
                fprintf(out, "%s = %s\n", key, text);
                free(text);
            }
        }
    } else {
        fputs(of->syntax == FRAMEWORK_YAML ? "---\n" : "", out);
        assert_int_equal(json_dumpf(nested, out, 0), 0);
    }
    json_decref(nested);
    assert_int_equal(fclose(out), 0);
}

static json_t *change_stated(const framework *of, json_t *stated, const json_t *changes)
{
    size_t i;
    json_t *change;
    json_array_foreach (json_object_get(changes, "arguments"), i, change) {
        const char *name = json_string_value(json_object_get(change, "argument"));
        json_t *to = json_object_get(change, "to");
        json_t *now = json_object_get(stated, name);
        const json_t *from = json_object_get(change, "from");
        assert_true(now != NULL ? json_equal(now, from) : json_is_null(from));
        if (json_is_null(to) && !of->overrides) {
            assert_int_equal(json_object_del(stated, name), 0);
        } else {
            json_object_set(stated, name, to);
        }
    }
    return stated;
}

static char *whole_file(const char *path)
{
    sp_text text;
    FILE *out = sp_text_begin(&text);
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    for (int c = fgetc(in); c != EOF; c = fgetc(in)) {
        fputc(c, out);
    }
    fclose(in);
    return sp_text_end(&text);
}

// What is written without its comments: what is said of numbers depends on who stated them.
static char *arguments_of(const framework *of, const sp_scenario *scenario)
{
    json_t *lost;
    char *text = write_text(of, scenario, &lost);
    char *to = text;
    for (const char *from = text; *from != '\0';) {
        const size_t length = strcspn(from, "\n") + 1;
        if (*from != '#') {
            memmove(to, from, length);
            to += length;
        }
        from += length;
    }
    *to = '\0';
    json_decref(lost);
    return text;
}

// The file of one scenario with what changes for another is a file of the other, and no change can
// be left out of it.
static void check_changes(const framework *of, const sp_scenario *now, const sp_scenario *then)
{
    char path[32];
    json_t *lost;
    char *text = write_text(of, now, &lost);
    snprintf(path, sizeof path, "job.%s", endings[of->syntax]);
    json_t *stated = stated_in(of, text);
    write_stated(path, of, stated);
    json_t *changes = framework_changes_of_file(path, now, then);
    assert_non_null(changes);
    assert_string_equal(json_string_value(json_object_get(changes, "framework")), of->name);
    write_stated(path, of, change_stated(of, stated, changes));
    sp_free(text);
    json_decref(lost);
    json_decref(changes);
    sp_free(write_text(of, then, &lost));
    text = arguments_of(of, then);
    char *changed = whole_file(path);
    sp_scenario again = {0};
    read_again(of, then, changed, lost, &again);
    char *written = arguments_of(of, &again);
    for (size_t i = 0; i <= strlen(text); i++) {
        if (written[i] != text[i]) {
            fail_msg("%s: asks for ...%.80s, not for ...%.80s: %s", of->name, written + i, text + i,
                     changed);
        }
    }
    sp_free(written);
    sp_free(changed);
    sp_scenario_fini(&again);
    changes = framework_changes_of_file(path, then, then);
    if (json_array_size(json_object_get(changes, "arguments")) > 0 ||
        json_array_size(json_object_get(changes, "not_expressed")) > 0) {
        fail_msg("still changes: %s", json_dumps(changes, 0));
    }
    json_decref(changes);
    json_decref(lost);
    json_decref(stated);
    sp_free(text);
}

// A scenario of the same model on as many GPUs, of which all else is drawn anew; false: none.
static bool make_other(sp_prng *prng, const sp_scenario *now, sp_scenario *then)
{
    sp_error err = {0};
    json_t *document = draw(prng);
    sp_json_put(document, "model", json_deep_copy(json_object_get(now->resolved, "model")));
    sp_json_put(document, "workload", json_deep_copy(json_object_get(now->resolved, "workload")));
    char *text = json_dumps(document, JSON_COMPACT);
    // Stages that some frameworks cannot have make no scenario of their files.
    const bool good = fixture_read(text, then, &err) == SP_OK &&
                      sp_layout_ranks(&then->layout) == sp_layout_ranks(&now->layout) &&
                      framework_get(then->resolved, "parallel.stage_layers") == NULL;
    free(text);
    json_decref(document);
    if (!good) {
        sp_scenario_fini(then);
    }
    return good;
}

TEST(a_changed_file_asks_for_the_other)
{
    fixture_begin();
    sp_prng prng = prng_seeded(3);
    int checked = 0;
    for (int i = 0; i < 8 * DRAWS && checked < PAIRS; i++) {
        sp_scenario now = {0};
        sp_scenario then = {0};
        if (!make(&prng, &now)) {
            continue;
        }
        if (make_other(&prng, &now, &then)) {
            for (int f = 0; framework_names[f] != NULL; f++) {
                check_changes(framework_find(framework_names[f]), &now, &then);
            }
            checked++;
            sp_scenario_fini(&then);
        }
        sp_scenario_fini(&now);
    }
    assert_int_equal(checked, PAIRS);
}

// Lines of what changes in a file of the text for the scenario.
static void check_lines(const char *path, const char *text, const char *then, const char *expected)
{
    sp_scenario scenario = {0};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    fixture_good(json_text("%s", then), &scenario);
    json_t *changes = framework_changes_of_file(path, &scenario, &scenario);
    assert_non_null(changes);
    sp_text lines;
    FILE *out = sp_text_begin(&lines);
    for (size_t i = 0; i < json_array_size(json_object_get(changes, "arguments")); i++) {
        framework_print_change(out, changes, i);
        fputs("\n", out);
    }
    char *found = sp_text_end(&lines);
    assert_string_equal(found, expected);
    sp_free(found);
    json_decref(changes);
    sp_scenario_fini(&scenario);
}

#define JOB                                                                                   \
    "torchrun --nproc_per_node 8 p.py --num-layers 8 --hidden-size 512 --bf16 "               \
    "--num-attention-heads 8 --group-query-attention --num-query-groups 4 --vocab-size 1024 " \
    "--seq-length 512 --micro-batch-size 1 "
#define ASKED(parallel, more)                                                         \
    "{'model': {'layers': 8, 'hidden': 512, 'ffn': 2048, 'heads': 8, 'vocab': 1024, " \
    "'activation': 'gelu'}, 'cluster': 'h100-8', 'parallel': {" parallel "}, "        \
    "'workload': {'uniform': 512, 'context': 512, 'samples_per_batch': 16}, " more "}"
#define MEGATRON                                                                                   \
    "'stack': {'name': 'megatron-core-2025', 'gradient_reduce_dtype': 'fp32', "                    \
    "'hide_gradient_reduce': false, 'hide_parameter_gather': false, 'hide_forward_gather': "       \
    "false, 'hide_forward_reduce': false, 'hide_backward_gather': false, 'hide_backward_reduce': " \
    "false, "                                                                                      \
    "'fused_cross_entropy': false, 'copied_logits': false}"

// Arguments keep the names that the file has, of which --emit may write others: chunks by their
// layers, recomputation of attention by its old switch. Values that variables hold are theirs.
TEST(changes_are_in_the_words_of_the_file)
{
    fixture_begin();
    static const char script[] =
        "TP=2\n" JOB "--tensor-model-parallel-size $TP --pipeline-model-parallel-size 4 "
        "--num-layers-per-virtual-pipeline-stage 1 --sequence-parallel --recompute-activations "
        "--global-batch-size 16\n";
    check_lines("job.sh", script,
                ASKED("'tp': 2, 'pp': 4, 'chunks_per_rank': 2, 'zero': 0",
                      "'memory': {'recompute': 'attention'}, " MEGATRON),
                "");
    check_lines(
        "job.sh", script,
        ASKED("'tp': 4, 'pp': 2, 'zero': 1", "'memory': {'recompute': 'attention'}, " MEGATRON),
        "  --tensor-model-parallel-size 2 -> 4\n"
        "  --pipeline-model-parallel-size 4 -> 2\n"
        "+ --use-distributed-optimizer\n"
        "- --num-layers-per-virtual-pipeline-stage 1\n");
    check_lines("job.sh", script,
                ASKED("'dp': 8, 'zero': 0", "'memory': {'recompute': 'none'}, " MEGATRON),
                "- --tensor-model-parallel-size 2\n"
                "- --pipeline-model-parallel-size 4\n"
                "- --num-layers-per-virtual-pipeline-stage 1\n"
                "- --sequence-parallel\n"
                "- --recompute-activations\n");
}

// What overrides of a recipe do not state is the recipe's: nothing is stated as null there. What a
// framework does by default and is not modelled is stated otherwise: torchtitan's files recompute
// some operations (activation_checkpoint.mode).
TEST(changes_of_overrides_leave_nothing_to_the_recipe)
{
    fixture_begin();
    check_lines("job.yaml",
                "model:\n  tensor_model_parallel_size: 4\n  recompute_granularity: full\n"
                "  recompute_method: uniform\n  recompute_num_layers: 1\n"
                "train:\n  global_batch_size: 16\n  micro_batch_size: 1\n"
                "dataset:\n  sequence_length: 512\n",
                ASKED("'tp': 2, 'dp': 4",
                      "'memory': {'recompute': 'none'}, 'stack': 'megatron-bridge-2025'"),
                "  model.tensor_model_parallel_size: 4 -> 2\n"
                "  model.recompute_granularity: \"full\" -> null\n");
    check_lines(
        "job.toml",
        "[parallelism]\ntensor_parallel_degree = 4\npipeline_parallel_degree = 2\n"
        "[training]\nlocal_batch_size = 16\nseq_len = 512\n",
        ASKED("'dp': 8, 'zero': 3", "'memory': {'recompute': 'none'}, 'stack': 'fsdp2-2025'"),
        "  training.local_batch_size = 16 -> 1\n"
        "+ training.global_batch_size = 16\n"
        "+ activation_checkpoint.mode = \"none\"\n"
        "+ training.compile = true\n"
        "- parallelism.tensor_parallel_degree = 4\n"
        "- parallelism.pipeline_parallel_degree = 2\n");
}
