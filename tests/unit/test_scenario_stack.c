// The software stack of a scenario: what states it, what beats what, and what is refused.
#include "solver/evaluate/evaluate.h"
#include "tests/support/scenario_fixture.h"

static const char plain[] = "{'model': 'llama-13b', 'parallel': {'tp': 8}}";

static void read_with(const char *text, const char *const *overrides, int count, sp_scenario *s)
{
    fixture_begin();
    json_auto_t *root = json_document(text);
    sp_error_clear(ERR);
    sp_status status = sp_scenario_from_json(root, "scenario.json", overrides, count, s, ERR);
    must_hold(status == SP_OK, "%s", ERR->message[0]);
}

// A profile file in the fixture's folder that states `stack`.
static void write_profile(const char *name, const char *stack)
{
    fixture_begin();
    char text[2048], path[64];
    snprintf(text, sizeof text, "%.*s, 'stack': %s}", (int)strlen(FIXTURE_PROFILE("")) - 1,
             FIXTURE_PROFILE(""), stack);
    snprintf(path, sizeof path, "%s.json", name);
    put_file(path, json_text("%s", text));
}

TEST(default_is_ours)
{
    AUTO(sp_scenario) s;
    must_succeed(fixture_read(plain, &s, ERR));
    assert_string_equal(s.memory.stack.name, "ours");
    assert_false(s.memory.stack.hide_forward_gather);
}

TEST(scenario_beats_profile_beats_default)
{
    AUTO(sp_scenario) s;
    write_profile("stacked", "{'name': 'megatron-core-2024', 'unfused_norms': true}");
    read_with("{'model': 'llama-13b', 'profile': 'stacked', 'cluster': 'h800-8'}", NULL, 0, &s);
    assert_string_equal(s.memory.stack.name, "megatron-core-2024");
    assert_true(s.memory.stack.unfused_norms && s.memory.stack.hide_forward_gather);
    sp_scenario_fini(&s);

    // Single switches change the profile's stack, a name replaces it.
    read_with("{'model': 'llama-13b', 'profile': 'stacked', 'cluster': 'h800-8', 'stack': "
              "{'hide_forward_gather': false}}",
              NULL, 0, &s);
    assert_string_equal(s.memory.stack.name, "megatron-core-2024");
    assert_true(s.memory.stack.unfused_norms && s.memory.stack.hide_backward_gather);
    assert_false(s.memory.stack.hide_forward_gather);
    sp_scenario_fini(&s);
    read_with("{'model': 'llama-13b', 'profile': 'stacked', 'cluster': 'h800-8', 'stack': "
              "'megatron-deepspeed-2022'}",
              NULL, 0, &s);
    assert_string_equal(s.memory.stack.name, "megatron-deepspeed-2022");
    assert_false(s.memory.stack.unfused_norms || s.memory.stack.hide_backward_gather);
    assert_true(s.memory.stack.blocking_transfers);
    assert_int_equal(remove("stacked.json"), 0);
}

// A profile may name another that holds for other software: a scenario that states such a stack and
// no profile gets it, and its resolved document names it. A stated profile stays.
TEST(a_stack_brings_its_profile)
{
    static const struct {
        const char *profile, *cluster, *stack, *found, *instead;
    } cases[] = {
        {"", "'h800-8'", "'ours'", "h800", ""},
        {"", "'h800-8'", "'fsdp-2024'", "h800", ""},
        {"", "'h800-8'", "'nanotron-2025'", "other", ""},
        {"", "{'name': 'h800-8', 'nvlink_gb_per_s': 100}", "'nanotron-2025'", "other", ""},
        {"", "'h800-8'", "{'name': 'nanotron-2025', 'fused_swiglu': true}", "other", ""},
        {"'profile': 'h800', ", "'h800-8'", "'nanotron-2025'", "h800", "other"},
        {"'profile': 'h800', ", "'h800-8'", "'fsdp-2024'", "h800", ""},
        {"", "{'name': 'h800-8', 'profile': 'h800'}", "'nanotron-2025'", "h800", "other"},
        {"'profile': 'other', ", "'h800-8'", "'ours'", "other", ""},
    };
    write_profile("other", "{'name': 'nanotron-2025'}");
    write_profile("h800", "{'name': 'ours'}, 'for_stack': {'nanotron-2025': 'other'}");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        AUTO(sp_scenario) s, again;
        snprintf(text, sizeof text, "{'model': 'llama-13b', %s'cluster': %s, 'stack': %s}",
                 cases[i].profile, cases[i].cluster, cases[i].stack);
        read_with(text, NULL, 0, &s);
        assert_string_equal(s.profile.name, cases[i].found);
        assert_string_equal(s.profile.of_stack, cases[i].instead);
        json_auto_t *resolved = json_deep_copy(s.resolved);
        must_succeed(sp_scenario_from_json(resolved, "again", NULL, 0, &again, ERR));
        assert_string_equal(again.profile.name, cases[i].found);
    }
    assert_int_equal(remove("other.json"), 0);
    write_profile("h800", "{'name': 'ours'}");
}

// What was stated all the same is told.
TEST(a_stated_profile_beside_the_stacks_own_is_warned_of)
{
    write_profile("other", "{'name': 'nanotron-2025'}");
    write_profile("h800", "{'name': 'ours'}, 'for_stack': {'nanotron-2025': 'other'}");
    SCENARIO_RUN(r,
                 TINY_MODEL "'cluster': 'h800-8', 'profile': 'h800', 'stack': 'nanotron-2025', "
                            "'workload': {'uniform': 512, 'samples_per_batch': 2}}",
                 &run_verified);
    bool told = false;
    for (int i = 0; i < r.result.warnings.count; i++) {
        told = told ||
               strcmp(r.result.warnings.text[i], "profile h800 is stated; its numbers for stack "
                                                 "nanotron-2025 are profile other's") == 0;
    }
    assert_true(told);
    assert_int_equal(remove("other.json"), 0);
    write_profile("h800", "{'name': 'ours'}");
}

// Numbers of another framework's steps are told, whether the profile is stated or not; those of
// single kernels are of none.
TEST(a_profile_of_another_framework_is_warned_of)
{
    static const struct {
        const char *stack, *profile;
        bool told;
    } cases[] = {
        {"fsdp-2024", "{'name': 'megatron-core-2025'}", true},
        {"hf-trainer", "{'name': 'megatron-core-2025'}", true},
        {"nanotron-2025", "{'name': 'megatron-core-2025'}", true},
        {"megatron-bridge-2025", "{'name': 'megatron-core-2025'}", true},
        {"megatron-core-2025", "{'name': 'fsdp-2024'}", true},
        {"fsdp2-2025", "{'name': 'fsdp-2024'}", false},
        {"megatron-core-2024", "{'name': 'megatron-core-2025'}", false},
        {"ours", "{'name': 'megatron-core-2025'}", false},
        {"fsdp-2024", "{'name': 'ours'}", false},
        {"hf-trainer", "{'name': 'fsdp-2024'}, 'for_stack': {'hf-trainer': 'h800'}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char lines[SP_PROFILE_LINES][SP_PROFILE_LINE];
        write_profile("h800", cases[i].profile);
        SCENARIO_READ(s, json_text("{'model': 'llama-13b', 'cluster': 'h800-8', 'stack': '%s'}",
                                   cases[i].stack));
        int count = sp_profile_lines(&s.profile, &s.cluster, &s.memory.stack, lines);
        bool told = false;
        for (int k = 0; k < count; k++) {
            told = told || strstr(lines[k], "it has none for stack") != NULL;
        }
        assert_int_equal(told, cases[i].told);
    }
    write_profile("h800", "{'name': 'ours'}");
}

TEST(overrides_name_it_and_switch_it)
{
    AUTO(sp_scenario) s;
    read_with(plain, (const char *[]){"stack=megatron-core-2024"}, 1, &s);
    assert_string_equal(s.memory.stack.name, "megatron-core-2024");
    assert_int_equal(s.memory.stack.cp_overlap, SP_CP_QKV);
    sp_scenario_fini(&s);
    read_with(plain, (const char *[]){"stack.hide_forward_gather=true"}, 1, &s);
    assert_string_equal(s.memory.stack.name, "ours");
    assert_true(s.memory.stack.hide_forward_gather);
    assert_false(s.memory.stack.hide_backward_gather);
    sp_scenario_fini(&s);
    read_with(plain,
              (const char *[]){"stack.name=megatron-core-2024", "stack.hide_forward_reduce=true"},
              2, &s);
    assert_true(s.memory.stack.hide_forward_reduce && s.memory.stack.hide_backward_reduce);
}

static void refuses(const char *override, const char *prefix)
{
    AUTO(sp_scenario) s;
    fixture_begin();
    json_auto_t *root = json_document(plain);
    must_fail_with(
        sp_scenario_from_json(root, "scenario.json", (const char *[]){override}, 1, &s, ERR),
        SP_ERR_CONTENT, "");
    assert_int_equal(ERR->count, 1);
    must_hold(strncmp(ERR->message[0], prefix, strlen(prefix)) == 0, "expected %s..., got %s",
              prefix, ERR->message[0]);
}

TEST(wrong_ones_get_a_hint)
{
    refuses("stack=megatron-core-2026", "scenario.json: stack: unknown stack 'megatron-core-2026' "
                                        "(did you mean 'megatron-core-2024'? known: ours, ");
    refuses("stack.hide_forward_gathers=true",
            "scenario.json: stack: unknown key 'hide_forward_gathers' (did you mean "
            "'hide_forward_gather'?)");
    refuses(
        "stack.flash_attention_2=true",
        "scenario.json: stack.flash_attention_2: is on, but the profile \"h100\" does not state "
        "what share of its rates FlashAttention-2 reaches (flash_attention_2)");
}

// Four heads over two ranks of TP and four of CP.
// Heads of queries and of keys.
TEST(heads_must_divide)
{
    const char *text =
        "{'model': {'layers': 2, 'hidden': 64, 'ffn': 128, 'heads': %d, 'kv_heads': 4, 'vocab': "
        "100}, 'cluster': 'h800-8', 'profile': 'h800-fitted', 'parallel': {'tp': 2, 'cp': 4}, "
        "'stack': {'cp_overlap': 'a2a'}, 'workload': {'uniform': 64, 'samples_per_batch': 2}}";
    static const int heads[] = {4, 16};
    for (int i = 0; i < 2; i++) {
        char made[512];
        AUTO(sp_scenario) s;
        snprintf(made, sizeof made, text, heads[i]);
        fixture_begin();
        json_t *root = json_document(made);
        sp_error_clear(ERR);
        must_fail_with(sp_scenario_from_json(root, "scenario.json", NULL, 0, &s, ERR),
                       SP_ERR_CONTENT, "scenario.json: stack.cp_overlap: a2a needs ");
        json_decref(root);
        sp_scenario_fini(&s);
        read_with(made, (const char *[]){"parallel.cp=2"}, 1, &s);
    }
}

// 16 heads and 8 key heads over two ranks of TP, on nodes of 8.
static const char hierarchical[] =
    "{'model': {'layers': 2, 'hidden': 64, 'ffn': 128, 'heads': 16, 'kv_heads': 8, 'vocab': 100}, "
    "'cluster': 'h800-8', 'profile': 'h800-fitted', 'parallel': {'tp': 2, 'cp': 8}, 'stack': "
    "{'cp_overlap': 'a2a+p2p'}, 'workload': {'uniform': 64, 'samples_per_batch': 2}}";

// Of 8 CP ranks 4 are in a node, of the 4 key heads of a TP rank each has one; where a node holds
// all, or a TP group fills it, or there is one key head, fewer exchange.
TEST(neighbours_by_default)
{
    static const struct {
        const char *override;
        int ranks;
    } cases[] = {{"nodes=2", 4},
                 {"parallel.tp=1", 8},
                 {"parallel.tp=8", 1},
                 {"model.kv_heads=2", 1},
                 {"model.kv_heads=4", 2},
                 {"parallel.cp=2", 2},
                 {"parallel.cp=6", 2},
                 {"parallel.order=\"cp-tp-dp-pp\"", 4},
                 {"cluster.gpus_per_node=4", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO(sp_scenario) s, again;
        const char *const overrides[] = {"cluster={\"name\":\"h800-8\"}", cases[i].override};
        read_with(hierarchical, overrides, 2, &s);
        json_auto_t *derived = sp_scenario_derived(&s);
        assert_int_equal(json_integer_value(json_object_get(derived, "cp_a2a_ranks")),
                         cases[i].ranks);
        json_auto_t *copy = json_deep_copy(s.resolved);
        must_succeed(sp_scenario_from_json(copy, "scenario.json", NULL, 0, &again, ERR));
        assert_int_equal(sp_stack_head_ranks(&again.memory.stack, &again.layout), cases[i].ranks);
    }
}

TEST(neighbours_must_divide)
{
    static const struct {
        const char *overrides[3], *refused;
    } cases[] = {
        {{"stack.cp_a2a_ranks=3"}, "stack.cp_a2a_ranks: must divide parallel.cp"},
        {{"stack.cp_a2a_ranks=8", "model.kv_heads=16"}, NULL},
        {{"stack.cp_a2a_ranks=8"}, "stack.cp_a2a_ranks: must divide the key heads"},
        {{"stack.cp_a2a_ranks=8", "model.heads=8"}, "stack.cp_a2a_ranks: must divide the heads"},
        {{"stack.cp_a2a_ranks=4"}, NULL},
        {{"stack.cp_a2a_ranks=3", "stack.cp_overlap=a2a", "model.kv_heads=16"}, NULL},
        {{"strategy.cp_sharding=document"}, "strategy.cp_sharding: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO(sp_scenario) s;
        int count = 0;
        while (count < 3 && cases[i].overrides[count] != NULL) {
            count++;
        }
        fixture_begin();
        json_auto_t *root = json_document(hierarchical);
        sp_error_clear(ERR);
        sp_status status =
            sp_scenario_from_json(root, "scenario.json", cases[i].overrides, count, &s, ERR);
        assert_int_equal(status, cases[i].refused == NULL ? SP_OK : SP_ERR_CONTENT);
        if (cases[i].refused != NULL) {
            assert_non_null(strstr(ERR->message[0], cases[i].refused));
        }
    }
}

// What a result or a plan repeats as its scenario states every switch and reads back as the same.
TEST(resolved_form_states_it)
{
    AUTO(sp_scenario) s, again;
    read_with(plain,
              (const char *[]){"stack.name=megatron-core-2024", "stack.bucket_mib=40",
                               "stack.split_limit_mib=21", "stack.whole_transfers=true"},
              4, &s);
    const json_t *stack = json_object_get(s.resolved, "stack");
    assert_string_equal(json_string_value(json_object_get(stack, "name")), "megatron-core-2024");
    assert_true(json_is_true(json_object_get(stack, "whole_transfers")));
    assert_true(json_is_false(json_object_get(stack, "hide_forward_reduce")));
    json_auto_t *copy = json_deep_copy(s.resolved);
    must_succeed(sp_scenario_from_json(copy, "scenario.json", NULL, 0, &again, ERR));
    assert_true(json_equal(again.resolved, s.resolved));
}

// ---- what the switches do to a prediction ----

typedef struct prediction {
    double iteration_ns;
    int64_t peak_bytes, allocator_peak_bytes;
    double lower_bound_ms;
} prediction;

static prediction predict(const char *text, const char *const *overrides, int count)
{
    AUTO(sp_scenario) s;
    AUTO(sp_batches) batches;
    AUTO(sp_result) result;
    const sp_evaluate_options options = {.engine = {.verify = true}, .allocator_peak = true};
    read_with(text, overrides, count, &s);
    sp_error_clear(ERR);
    sp_status status = sp_evaluate_batches(&s, &batches, ERR);
    if (status == SP_OK) {
        status = sp_evaluate(&s, &batches, &options, &result, ERR);
    }
    must_hold(status == SP_OK, "%s: %s", overrides[count - 1], ERR->message[0]);
    prediction made = {result.iteration_ns, result.peak_bytes, result.allocator_peak_bytes,
                       sp_result_lower_bound_ms(&result)};
    return made;
}

// Every kind of parallelism, two model chunks a rank, and an attention that needs a softmax; the
// model has as many key heads as heads, so that a gather may hide behind the QKV projection.
static const char everything[] =
    "{'model': {'name': 'tiny', 'layers': 8, 'hidden': 512, 'ffn': 1376, 'heads': 12, 'kv_heads': "
    "12, 'head_dim': 64, 'vocab': 8000, 'activation': 'swiglu', 'norm': 'rmsnorm'}, 'cluster': "
    "'h800-8', 'parallel': {'tp': 2, 'cp': 2, 'pp': 2, 'dp': 2, 'chunks_per_rank': 2}, 'memory': "
    "{'attention': 'unfused'}, 'schedule': {'kind': 'interleaved'}, 'workload': {'uniform': 1000, "
    "'samples_per_batch': 8}, 'strategy': {'kind': 'padded'}}";

typedef enum direction { FASTER, SLOWER, OTHER_MEMORY } direction;

TEST(each_switch_changes_the_prediction)
{
    static const struct {
        const char *before, *override;
        direction way;
    } cases[] = {
        {"nodes=2", "stack.fused_swiglu=true", FASTER},
        {"nodes=2", "stack.unfused_norms=true", SLOWER},
        {"nodes=2", "stack.fused_softmax_limited=true", SLOWER},
        {"nodes=2", "stack.unfused_weight_gradient=true", SLOWER},
        {"nodes=2", "stack.hide_forward_gather=true", FASTER},
        {"nodes=2", "stack.hide_forward_reduce=true", FASTER},
        {"nodes=2", "stack.hide_backward_gather=true", FASTER},
        {"nodes=2", "stack.hide_backward_reduce=true", FASTER},
        {"stack.cp_overlap=blocking", "stack.cp_overlap=attention", FASTER},
        {"stack.cp_overlap=blocking", "stack.cp_overlap=qkv", FASTER},
        {"nodes=2", "stack.hide_gradient_reduce=true", FASTER},
        {"nodes=2", "stack.hide_parameter_gather=true", FASTER},
        {"stack.hide_gradient_reduce=true", "stack.bucket_mib=1000", SLOWER},
        {"parallel.zero=0", "stack.sharded_step=true", FASTER},
        {"nodes=2", "stack.blocking_transfers=true", SLOWER},
        {"parallel.sequence_parallel=false", "stack.whole_transfers=true", SLOWER},
        {"nodes=2", "stack.work_spaces=9", OTHER_MEMORY},
        {"nodes=2", "stack.unfused_softmax=true", SLOWER},
        {"stack.cp_overlap=blocking", "stack.cp_overlap=a2a", OTHER_MEMORY},
        {"stack.cp_overlap=attention", "stack.cp_overlap=a2a+p2p", OTHER_MEMORY},
        {"nodes=2", "stack.gradient_reduce_dtype=bf16", OTHER_MEMORY},
        {"nodes=2", "stack.dummy_weight_gradients=true", OTHER_MEMORY},
        {"nodes=2", "stack.keep_gathered_inputs=true", OTHER_MEMORY},
        {"nodes=2", "stack.gathered_logits=true", SLOWER},
        {"nodes=2", "stack.gradient_buckets=true", OTHER_MEMORY},
        {"nodes=2", "stack.transposed_output=true", OTHER_MEMORY},
        {"nodes=2", "stack.score_buffer=true", OTHER_MEMORY},
        {"nodes=2", "stack.work_space_mib=100", OTHER_MEMORY},
        {"nodes=2", "stack.split_limit_mib=1", OTHER_MEMORY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const overrides[] = {cases[i].before, cases[i].override};
        prediction off = predict(everything, overrides, 1);
        prediction on = predict(everything, overrides, 2);
        bool changed = cases[i].way == FASTER ? on.iteration_ns < off.iteration_ns
                       : cases[i].way == SLOWER
                           ? on.iteration_ns > off.iteration_ns
                           : on.peak_bytes != off.peak_bytes ||
                                 on.allocator_peak_bytes != off.allocator_peak_bytes;
        must_hold(changed, "%s: %.0f to %.0f ns, %lld to %lld B", cases[i].override,
                  off.iteration_ns, on.iteration_ns, (long long)off.allocator_peak_bytes,
                  (long long)on.allocator_peak_bytes);
    }
}

// Whatever else is on: what a stack hides makes no step slower, and no step beats its bound.
TEST_ROUNDS(hiding_never_slows_a_step, 61, 60)
{
    static const char *const hiding[] = {
        "stack.hide_forward_gather=",  "stack.hide_forward_reduce=",
        "stack.hide_backward_gather=", "stack.hide_backward_reduce=",
        "stack.hide_gradient_reduce=", "stack.hide_parameter_gather="};
    static const char *const others[] = {"stack.fused_swiglu=true",
                                         "stack.unfused_norms=true",
                                         "stack.blocking_transfers=true",
                                         "stack.cp_overlap=qkv",
                                         "parallel.zero=0",
                                         "parallel.zero=2",
                                         "parallel.zero=3",
                                         "nodes=2"};
    enum { HIDING = sizeof hiding / sizeof hiding[0], OTHERS = sizeof others / sizeof others[0] };
    char texts[HIDING][48];
    const char *overrides[HIDING + 1];
    size_t flipped = (size_t)sp_prng_below(prng, HIDING);
    overrides[0] = others[sp_prng_below(prng, OTHERS)];
    for (size_t i = 0; i < HIDING; i++) {
        bool on = i != flipped && sp_prng_below(prng, 2) == 1;
        snprintf(texts[i], sizeof texts[i], "%s%s", hiding[i], on ? "true" : "false");
        overrides[i + 1] = texts[i];
    }
    prediction shown = predict(everything, overrides, HIDING + 1);
    snprintf(texts[flipped], sizeof texts[flipped], "%strue", hiding[flipped]);
    prediction hidden = predict(everything, overrides, HIDING + 1);
    must_hold(hidden.iteration_ns <= shown.iteration_ns, "%s with %s: %.0f to %.0f ns",
              texts[flipped], overrides[0], shown.iteration_ns, hidden.iteration_ns);
    assert_true(hidden.lower_bound_ms <= 1e-6 * hidden.iteration_ns * (1.0 + 1e-9));
    assert_true(hidden.peak_bytes == shown.peak_bytes);
}

// Stated switches that say nothing beside others, and what a named stack brings of them.
TEST(idle_switches)
{
    static const struct {
        const char *stack, *message; // NULL: is read
    } cases[] = {
        {"{'name': 'cuda', 'transposed_output': true}",
         "scenario.json: stack.transposed_output: changes nothing: stack.tensors is \"explicit\", "
         "and attention gives its output by tokens"},
        {"{'name': 'ours', 'cudnn_attention': true}",
         "scenario.json: stack.cudnn_attention: changes nothing: stack.tensors is \"autograd\""},
        {"{'name': 'megatron-core-2025', 'copied_logits': true}",
         "scenario.json: stack.copied_logits: changes nothing: stack.fused_cross_entropy is on, "
         "which makes no copy of the logits"},
        {"{'name': 'reference', 'split_limit_mib': 20}",
         "scenario.json: stack.split_limit_mib: changes nothing: stack.tensors is \"explicit\", "
         "and its blocks are not PyTorch's"},
        {"{'name': 'megatron-core-2025', 'blocking_launches': true, 'hide_forward_gather': true}",
         "scenario.json: stack.hide_forward_gather: changes nothing: stack.blocking_launches is "
         "on, and nothing runs beside a kernel"},
        {"{'name': 'megatron-core-2025', 'blocking_launches': true}", NULL},
        {"{'name': 'cuda', 'transposed_output': false}", NULL},
        {"{'name': 'megatron-core-2025', 'fused_cross_entropy': false, 'copied_logits': true}",
         NULL},
        {"{'name': 'megatron-core-2025', 'tensors': 'explicit'}", NULL}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        sp_scenario s;
        sp_error_clear(ERR);
        const char *text = json_text("{'model': 'llama-13b', 'stack': %s}", cases[i].stack);
        if (cases[i].message != NULL) {
            must_fail_with(fixture_read(text, &s, ERR), SP_ERR_CONTENT, cases[i].message);
        } else {
            fixture_good(text, &s);
            bool explicit_tensors = s.memory.stack.tensors == SP_TENSORS_EXPLICIT;
            assert_true(!explicit_tensors || !s.memory.stack.fused_cross_entropy);
            sp_scenario_fini(&s);
        }
    }
}

// Groups of replicas that split states: they are alike, and neither flows nor algorithms know them;
// a group of all is none.
TEST(zero_groups_are_refused)
{
    static const struct {
        const char *settings, *message; // NULL: is read
    } cases[] = {
        {"'parallel': {'dp': 6, 'cp': 2, 'zero_group': 8}",
         "scenario.json: parallel.zero_group: expected a divisor of the 12 ranks of parallel.dp x "
         "cp, got 8"},
        {"'parallel': {'dp': 16, 'zero_group': 8}, 'network': {'detail': 'flows'}",
         "scenario.json: parallel.zero_group: groups of 8 of 16 ranks need network.detail "
         "\"closed\" and network.collectives \"profile\""},
        {"'parallel': {'dp': 16, 'zero_group': 8}, 'network': {'collectives': 'ring'}",
         "scenario.json: parallel.zero_group: groups of 8 of 16 ranks need network.detail "
         "\"closed\" and network.collectives \"profile\""},
        {"'parallel': {'tp': 2, 'pp': 2, 'vocab_parallel': true}, 'stack': {'gathered_logits': "
         "true}",
         "scenario.json: stack.gathered_logits: does not go with parallel.vocab_parallel, which "
         "spreads the logits over the pipeline ranks"},
        {"'parallel': {'tp': 2, 'pp': 2}, 'stack': {'gathered_logits': true}", NULL},
        {"'memory': {'offload_states': 0.5}, 'stack': 'cuda'",
         "scenario.json: memory.offload_states: is not simulated with passes written by hand, "
         "which step on the GPU (stack.tensors \"explicit\")"},
        {"'memory': {'offload_states': 0.5, 'model': 'slimpipe-planner'}",
         "scenario.json: memory.offload_states: is not simulated with memory.model "
         "\"slimpipe-planner\": expected \"tensors\""},
        {"'parallel': {'pp': 2}, 'memory': {'offload_states': 0.5, 'offload_ratio': 0.5}",
         "scenario.json: memory.offload_states: is not simulated with memory.offload_ratio: what "
         "both take of the host is not told apart"},
        {"'memory': {'offload_states': 0.5}, 'stack': {'name': 'trl-2025', 'host_overlap': true}",
         "scenario.json: stack.host_overlap: stack \"trl-2025\" copies and steps one after the "
         "other: expected false, or the stack \"megatron-core-2025\" or \"megatron-bridge-2025\""},
        {"'memory': {'offload_states': 0.5}, 'stack': {'name': 'megatron-bridge-2025', "
         "'host_overlap': true}",
         NULL},
        {"'memory': {'offload_states': 0.5}", NULL},
        {"'parallel': {'dp': 16, 'zero_group': 8}", NULL},
        {"'parallel': {'dp': 16, 'zero_group': 16}, 'network': {'detail': 'flows'}", NULL}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        sp_scenario s;
        sp_error_clear(ERR);
        const char *text = json_text("{'model': 'llama-13b', %s}", cases[i].settings);
        if (cases[i].message != NULL) {
            must_fail_with(fixture_read(text, &s, ERR), SP_ERR_CONTENT, cases[i].message);
        } else {
            fixture_good(text, &s);
            sp_scenario_fini(&s);
        }
    }
}

// Kinds of layers that some of the rest does not know, each refused in a sentence.
TEST(kinds_of_layers_are_refused_by_name)
{
#define BESIDE \
    "scenario.json: model.blocks: is \"one-norm\": attention and MLP side by side are not "
    static const struct {
        const char *model, *settings, *message; // NULL: is read
    } cases[] = {
        {"'post_norms_alone': true", "",
         "scenario.json: model.post_norms_alone: is true, and there are no norms behind"},
        {"'post_norms': true, 'post_norms_alone': true, 'lora_rank': 8", "",
         "scenario.json: model.lora_rank: adapters are not simulated without norms before"},
        {"'post_norms': true, 'post_norms_alone': true", ", 'precision': 'fp8'",
         "scenario.json: model.post_norms_alone: is not simulated with FP8 (precision)"},
        {"'post_norms': true, 'post_norms_alone': true",
         ", 'parallel': {'tp': 2}, 'stack': 'nanotron-2025'",
         "scenario.json: model.post_norms_alone: is not simulated with inputs kept as gathered"},
        {"'post_norms': true, 'post_norms_alone': true", ", 'parallel': {'tp': 2}", NULL},
        {"'blocks': 'one-norm', 'post_norms': true", "",
         BESIDE "simulated with norms behind them (post_norms)"},
        {"'blocks': 'one-norm', 'dropout': true", "",
         BESIDE "simulated with dropout (dropout: false)"},
        {"'blocks': 'one-norm', 'experts': 4, 'experts_per_token': 2", "",
         BESIDE "simulated with experts (experts)"},
        {"'blocks': 'one-norm'", ", 'precision': 'fp8'", BESIDE "simulated with FP8 (precision)"},
        {"'blocks': 'one-norm'", ", 'stack': 'cuda'",
         BESIDE "simulated with hand-written passes (stack)"},
        {"'blocks': 'one-norm'", ", 'memory': {'recompute': 'activation'}",
         BESIDE "simulated with norms that run again (memory.recompute)"},
        {"'blocks': 'one-norm'", ", 'memory': {'recompute': 'full'}", NULL},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        sp_scenario s;
        sp_error_clear(ERR);
        char text[400];
        snprintf(text, sizeof text,
                 "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1376, 'heads': 8, 'vocab': 1000, "
                 "%s}%s}",
                 cases[i].model, cases[i].settings);
        if (cases[i].message != NULL) {
            must_fail_with(fixture_read(text, &s, ERR), SP_ERR_CONTENT, cases[i].message);
        } else {
            fixture_good(text, &s);
            sp_scenario_fini(&s);
        }
    }
}

// DeepSpeed's buckets of ZeRO 2: 2 bytes of every parameter, but where they are ruled out.
// FSDP splits gradients or everything.
TEST(zero_of_fsdp)
{
    static const struct {
        const char *stack, *zero;
        int expected;
    } cases[] = {{"fsdp-2024", "", 3},
                 {"fsdp2-2025", "", 3},
                 {"hf-trainer", "", 1},
                 {"fsdp-2024", "'zero': 1, ", 1},
                 {"ours", "", 1}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        SCENARIO_READ(
            s, json_text("{'model': 'llama-13b', 'cluster': 'h100-8', 'parallel': {%s'dp': 8}, "
                         "'stack': '%s'}",
                         cases[i].zero, cases[i].stack));
        assert_int_equal(s.layout.zero, cases[i].expected);
    }
}

// Under a pipeline FSDP gathers and reduces once a step (torch/distributed/pipelining/stage.py).
TEST(fsdp_is_whole_in_a_step_of_a_pipeline)
{
    static const struct {
        const char *stack;
        int pp, zero, in_step;
    } cases[] = {{"fsdp-2024", 1, 3, 3},  {"fsdp-2024", 2, 3, 1},  {"fsdp2-2025", 2, 2, 1},
                 {"fsdp2-2025", 2, 1, 1}, {"fsdp2-2025", 2, 0, 0}, {"ours", 2, 3, 3}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        SCENARIO_READ(
            s, json_text("{'model': 'llama-13b', 'cluster': 'h100-8', 'parallel': {'pp': %d, "
                         "'dp': 4, 'zero': %d}, 'stack': '%s'}",
                         cases[i].pp, cases[i].zero, cases[i].stack));
        assert_int_equal(s.layout.zero, cases[i].zero);
        assert_int_equal(sp_layout_zero_in_step(&s.layout), cases[i].in_step);
    }
}

// Megatron-DeepSpeed of February 2022 is older than sequence parallelism (arXiv 2205.05198).
TEST(tokens_are_split_by_default_where_the_stack_can)
{
    static const struct {
        const char *stack, *parallel;
        bool expected;
    } cases[] = {{"megatron-core-2024", "", true},
                 {"megatron-core-2024", ", 'sequence_parallel': false", false},
                 {"megatron-deepspeed-2022", "", false},
                 {"megatron-deepspeed-2022", ", 'sequence_parallel': true", true}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        SCENARIO_READ(
            s, json_text("{'model': 'llama-13b', 'cluster': 'a100-8', 'parallel': {'tp': 8%s}, "
                         "'stack': '%s'}",
                         cases[i].parallel, cases[i].stack));
        assert_int_equal(s.layout.sequence_parallel, cases[i].expected);
    }
}

// TRL's configs turn gradient checkpointing on (huggingface/trl, pull request 3510); what is stated
// goes before, by a switch of the stack beside it, too, and a document that was resolved says it.
TEST(trl_recomputes_layers_by_default)
{
    static const struct {
        const char *stack, *memory;
        sp_recompute expected;
    } cases[] = {
        {"'trl-2025'", "", SP_RECOMPUTE_FULL},
        {"{'name': 'trl-2025', 'unfused_norms': false}", "", SP_RECOMPUTE_FULL},
        {"'trl-2025'", ", 'memory': {'limit_gib': 70}", SP_RECOMPUTE_FULL},
        {"'trl-2025'", ", 'memory': {'recompute': 'none'}", SP_RECOMPUTE_NONE},
        {"'trl-2025'", ", 'memory': {'recompute': 'attention'}", SP_RECOMPUTE_ATTENTION},
        {"'trl-2025'", ", 'memory': {'recompute': 'core_attn'}", SP_RECOMPUTE_ATTENTION},
        {"'hf-trainer'", "", SP_RECOMPUTE_NONE},
        {"'ours'", "", SP_RECOMPUTE_NONE},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        SCENARIO_READ(
            s, json_text("{'model': 'llama-13b', 'cluster': 'h100-8', 'parallel': {'dp': 8}, "
                         "'stack': %s%s}",
                         cases[i].stack, cases[i].memory));
        assert_int_equal(s.memory.recompute, cases[i].expected);
        json_t *memory = json_object_get(s.resolved, "memory");
        assert_string_equal(json_string_value(json_object_get(memory, "recompute")),
                            sp_recompute_names[cases[i].expected]);
    }
}

// DataCollatorWithPadding pads a micro-batch to its longest sample; other stacks have rows of one
// length, and what is stated goes before. The resolved document says which.
TEST(trainers_pad_to_the_longest_by_default)
{
    static const struct {
        const char *stack, *stated;
        sp_pad_to expected;
    } cases[] = {
        {"trl-2025", "", SP_PAD_LONGEST},
        {"hf-trainer", "", SP_PAD_LONGEST},
        {"trl-2025", ", 'pad_to': 'context'", SP_PAD_CONTEXT},
        {"megatron-core-2025", "", SP_PAD_CONTEXT},
        {"megatron-core-2025", ", 'pad_to': 'longest'", SP_PAD_LONGEST},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        SCENARIO_READ(
            s, json_text("{'model': 'llama-13b', 'cluster': 'h100-8', 'parallel': {'dp': 8}, "
                         "'stack': '%s', 'strategy': {'kind': 'padded'%s}}",
                         cases[i].stack, cases[i].stated));
        assert_int_equal(s.strategy.pad_to, cases[i].expected);
        json_t *strategy = json_object_get(s.resolved, "strategy");
        assert_string_equal(json_string_value(json_object_get(strategy, "pad_to")),
                            cases[i].expected == SP_PAD_LONGEST ? "longest" : "context");
    }
}

// Its SFTTrainer is Hugging Face's Trainer.
TEST(trl_is_hf_trainer)
{
    sp_stack trl, trainer;
    assert_true(sp_stack_builtin("trl-2025", &trl));
    assert_true(sp_stack_builtin("hf-trainer", &trainer));
    memcpy(trl.name, trainer.name, sizeof trl.name);
    assert_memory_equal(&trl, &trainer, sizeof trl);
    assert_true(sp_stack_is_deepspeed(&trl));
    assert_true(sp_stack_shares_framework(&trl, &trainer));
    assert_false(sp_stack_lacks_adapters(&trl));
}

// The stack that a scenario of 8 data-parallel ranks with that stage of ZeRO resolves.
static sp_stack stack_with_zero(int zero, const char *stack)
{
    const char *text = json_text(
        "{'model': 'llama-13b', 'parallel': {'dp': 8, 'zero': %d}, 'stack': %s}", zero, stack);
    FIXTURE_SCENARIO(s, text);
    return s.memory.stack;
}

// DeepSpeed's overlap_comm is on with ZeRO 3 unless it is stated, and off below; other stacks say
// so themselves.
TEST(zero_3_overlaps_in_deepspeed)
{
    static const struct {
        int zero;
        const char *stack;
        bool hides;
    } cases[] = {{1, "'hf-trainer'", false},
                 {2, "'hf-trainer'", false},
                 {3, "'hf-trainer'", true},
                 {3, "'trl-2025'", true},
                 {2, "{'name': 'hf-trainer', 'hide_gradient_reduce': true}", true},
                 {3, "{'name': 'hf-trainer', 'hide_gradient_reduce': false}", false},
                 {3, "'ours'", false},
                 {3, "'fsdp2-2025'", false}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const sp_stack stack = stack_with_zero(cases[i].zero, cases[i].stack);
        assert_true(stack.hide_gradient_reduce == cases[i].hides);
    }
}

TEST(zero_2_has_buckets)
{
    static const struct {
        int zero;
        const char *stack;
        bool buckets;
    } cases[] = {{2, "'ours'", true},
                 {1, "'ours'", false},
                 {3, "'ours'", false},
                 {2, "'megatron-core-2025'", true},
                 {2, "{'name': 'ours', 'gradient_buckets': false}", false},
                 {2, "'hf-trainer'", true},
                 {2, "'trl-2025'", true},
                 {2, "'internevo-2024'", true},
                 {2, "'fsdp-2024'", false},
                 {2, "'fsdp2-2025'", false},
                 {2, "'cuda'", false}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const sp_stack stack = stack_with_zero(cases[i].zero, cases[i].stack);
        assert_true(stack.gradient_buckets == cases[i].buckets);
    }
}
