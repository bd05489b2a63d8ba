#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#include "sim/base/json.h"
#include "sim/model/layer.h"
#include "sim/model/stack.h"
#include "sim/schedule/schedule.h"
#include "solver/strategy.h"

// Every on/off switch by its key, as the documentation names it.
static const struct {
    const char *key;
    size_t offset;
} switches[] = {{"fused_swiglu", offsetof(sp_stack, fused_swiglu)},
                {"unfused_norms", offsetof(sp_stack, unfused_norms)},
                {"fused_softmax_limited", offsetof(sp_stack, fused_softmax_limited)},
                {"unfused_weight_gradient", offsetof(sp_stack, unfused_weight_gradient)},
                {"timed_accumulation", offsetof(sp_stack, timed_accumulation)},
                {"in_place_lookup_gradient", offsetof(sp_stack, in_place_lookup_gradient)},
                {"hide_forward_gather", offsetof(sp_stack, hide_forward_gather)},
                {"hide_forward_reduce", offsetof(sp_stack, hide_forward_reduce)},
                {"hide_backward_gather", offsetof(sp_stack, hide_backward_gather)},
                {"hide_backward_reduce", offsetof(sp_stack, hide_backward_reduce)},
                {"hide_gradient_reduce", offsetof(sp_stack, hide_gradient_reduce)},
                {"hide_parameter_gather", offsetof(sp_stack, hide_parameter_gather)},
                {"bucketed_tail", offsetof(sp_stack, bucketed_epilogue)},
                {"sharded_step", offsetof(sp_stack, sharded_step)},
                {"blocking_transfers", offsetof(sp_stack, blocking_transfers)},
                {"blocking_launches", offsetof(sp_stack, blocking_launches)},
                {"rooted_shares", offsetof(sp_stack, rooted_shares)},
                {"whole_transfers", offsetof(sp_stack, whole_transfers)},
                {"unfused_softmax", offsetof(sp_stack, unfused_softmax)},
                {"fused_cross_entropy", offsetof(sp_stack, fused_cross_entropy)},
                {"copied_logits", offsetof(sp_stack, copied_logits)},
                {"dummy_weight_gradients", offsetof(sp_stack, dummy_weight_gradients)},
                {"keep_gathered_inputs", offsetof(sp_stack, keep_gathered_inputs)},
                {"lingering_inputs", offsetof(sp_stack, lingering_inputs)},
                {"gradient_buckets", offsetof(sp_stack, gradient_buckets)},
                {"transposed_output", offsetof(sp_stack, transposed_output)},
                {"attention_mask", offsetof(sp_stack, attention_mask)},
                {"score_buffer", offsetof(sp_stack, score_buffer)},
                {"hide_gradient_all_reduce", offsetof(sp_stack, hide_gradient_all_reduce)},
                {"device_bytes", offsetof(sp_stack, device_bytes)},
                {"cudnn_attention", offsetof(sp_stack, cudnn_attention)},
                {"no_master_weights", offsetof(sp_stack, no_master_weights)},
                {"gathered_logits", offsetof(sp_stack, gathered_logits)},
                {"padded_documents", offsetof(sp_stack, padded_documents)}};

enum { SWITCHES = sizeof switches / sizeof switches[0] };

static bool switch_of(const sp_stack *stack, int i)
{
    return *(const bool *)((const char *)stack + switches[i].offset);
}

static int switches_on(const sp_stack *stack)
{
    int on = 0;
    for (int i = 0; i < SWITCHES; i++) {
        on += switch_of(stack, i);
    }
    return on;
}

// Reads {"stack": value} over `stack`; true without an error.
static bool read(const char *value, sp_stack *stack)
{
    char text[2048];
    json_auto_t *root = NULL;
    sp_object parent;
    snprintf(text, sizeof text, "{\"stack\": %s}", value);
    must_succeed(sp_json_read_text(text, strlen(text), "test", &root, ERR));
    sp_object_begin(&parent, root, "test", "", ERR);
    sp_stack_from_member(&parent, "stack", stack);
    sp_object_end(&parent);
    return ERR->count == 0;
}

static void assert_same(const sp_stack *a, const sp_stack *b)
{
    assert_string_equal(a->name, b->name);
    for (int i = 0; i < SWITCHES; i++) {
        assert_int_equal(switch_of(a, i), switch_of(b, i));
    }
    assert_int_equal(a->cp_overlap, b->cp_overlap);
    assert_int_equal(a->cp_ring_nics, b->cp_ring_nics);
    assert_int_equal(a->gradient_reduce_dtype, b->gradient_reduce_dtype);
    assert_int_equal(a->tensors, b->tensors);
    assert_true(a->bucket_bytes == b->bucket_bytes);
    assert_int_equal(a->split_limit_bytes, b->split_limit_bytes);
    assert_int_equal(a->work_spaces, b->work_spaces);
    assert_int_equal(a->work_space_bytes, b->work_space_bytes);
}

static void message_is(const char *value, const char *message)
{
    sp_stack stack = {.name = "ours"};
    assert_false(read(value, &stack));
    assert_int_equal(ERR->count, 1);
    assert_string_equal(ERR->message[0], message);
}

static void lies_within(const char *stack, const char *setting, const char *list, const char *value)
{
    must_hold(list == NULL || sp_stack_lists(list, value), "%s: %s is %s by default, of %s", stack,
              setting, value, list);
}

// A scenario that states a stack alone has, by default, what its software runs: the exchange of
// keys and values, the schedule, the strategy, the recomputation and the stage of ZeRO.
TEST(defaults_of_stacks_lie_within_their_abilities)
{
    const char *name = NULL;
    for (int i = 0; (name = sp_stack_builtin_name(i)) != NULL; i++) {
        char recompute[SP_RECOMPUTE_TEXT];
        SCENARIO_READ(scenario,
                      json_text(TINY_MODEL
                                "'stack': '%s', 'parallel': {'cp': 2, 'dp': 2}, 'workload': "
                                "{'uniform': 512}}",
                                name));
        const sp_stack *stack = &scenario.memory.stack;
        const sp_stack_abilities can = sp_stack_abilities_of(stack);
        const char zero[] = {(char)('0' + scenario.layout.zero), '\0'};
        if (can.exchanges != NULL && can.exchanges[0] != '\0') {
            lies_within(name, "cp_overlap", can.exchanges, sp_cp_overlap_names[stack->cp_overlap]);
        }
        if (can.schedules != NULL && can.schedules[0] != '\0') {
            lies_within(name, "schedule", can.schedules, sp_schedule_names[scenario.schedule.kind]);
        }
        lies_within(name, "strategy", can.strategies, scenario.strategy.kind);
        lies_within(name, "recompute", can.recomputes,
                    sp_recompute_text(scenario.memory.recompute, recompute));
        lies_within(name, "zero", can.zero, zero);
    }
}

TEST(every_name_is_a_stack)
{
    for (int i = 0; sp_stack_builtin_name(i) != NULL; i++) {
        const char *name = sp_stack_builtin_name(i);
        sp_stack stack;
        sp_stack read_stack = {.name = "ours"};
        char quoted[SP_STACK_NAME + 2];
        assert_true(sp_stack_builtin(name, &stack));
        assert_string_equal(stack.name, name);
        snprintf(quoted, sizeof quoted, "\"%s\"", name);
        assert_true(read(quoted, &read_stack));
        assert_same(&read_stack, &stack);
    }
    sp_stack kept = {.name = "kept"};
    assert_false(sp_stack_builtin("theirs", &kept));
    assert_string_equal(kept.name, "kept");
}

TEST(ours_has_every_switch_off)
{
    sp_stack stack;
    assert_true(sp_stack_builtin("ours", &stack));
    assert_same(&stack, &(sp_stack){.name = "ours"});
}

// Megatron of 2022: blocking transfers that each TP rank sends its part of (Narayanan et al., arXiv
// 2104.04473, section 4.1) and a fused softmax for n_b % 4 == 0 (Megatron-LM, fused_softmax.py);
// nothing overlaps, and each replica steps its share of the weights. kwai/Megatron-Kwai (branch
// atc24ae): TP gathers and all of the backward's TP collectives run beside GEMMs, the two
// reduce-scatters of the forward block (core/tensor_parallel/layers.py).
TEST(named_stacks)
{
    sp_stack stack;
    assert_true(sp_stack_builtin("megatron-deepspeed-2022", &stack));
    assert_true(stack.blocking_transfers && stack.fused_softmax_limited && stack.sharded_step);
    // Their loss has its softmax beside the fp32 logits (tensor_parallel/cross_entropy.py).
    assert_true(stack.copied_logits);
    assert_int_equal(switches_on(&stack), 4);
    assert_true(sp_stack_builtin("megatron-core-2024", &stack));
    assert_true(stack.copied_logits);
    assert_true(stack.hide_forward_gather);
    assert_false(stack.hide_forward_reduce);
    assert_true(stack.hide_backward_gather && stack.hide_backward_reduce);
    assert_int_equal(stack.cp_overlap, SP_CP_QKV);
    assert_true(stack.padded_documents); // packed rows of Transformer Engine
    assert_int_equal(switches_on(&stack), 5);
    assert_int_equal(stack.tensors, SP_TENSORS_AUTOGRAD);
    // NVIDIA's recipes of 2025 with Transformer Engine; gradients are summed in bf16.
    assert_true(sp_stack_builtin("megatron-core-2025", &stack));
    assert_true(stack.fused_cross_entropy && stack.dummy_weight_gradients && stack.fused_swiglu);
    assert_false(stack.copied_logits);
    assert_int_equal(stack.gradient_reduce_dtype, SP_REDUCE_BF16);
    assert_true(sp_stack_builtin("nanotron-2025", &stack));
    assert_true(stack.lingering_inputs && stack.gradient_buckets);
    assert_false(stack.dummy_weight_gradients || stack.fused_cross_entropy);
    // The CPU executor of this project.
    assert_true(sp_stack_builtin("reference", &stack));
    assert_true(stack.fused_swiglu && stack.timed_accumulation && stack.in_place_lookup_gradient);
    assert_int_equal(switches_on(&stack), 3);
    assert_int_equal(stack.tensors, SP_TENSORS_EXPLICIT);
    assert_false(sp_stack_counts_device(&stack));
    // The same on a GPU.
    assert_true(sp_stack_builtin("cuda", &stack));
    assert_true(stack.fused_swiglu && stack.timed_accumulation && stack.in_place_lookup_gradient);
    assert_int_equal(stack.cp_overlap, SP_CP_GATHERED);
    assert_true(sp_stack_counts_device(&stack));
    assert_int_equal(switches_on(&stack), 5);
    stack.tensors = SP_TENSORS_AUTOGRAD;
    assert_false(sp_stack_counts_device(&stack));
}

TEST(reads_each_switch)
{
    for (int i = 0; i < SWITCHES; i++) {
        sp_stack stack = {.name = "ours"};
        char text[96];
        snprintf(text, sizeof text, "{\"%s\": true}", switches[i].key);
        assert_true(read(text, &stack));
        assert_true(switch_of(&stack, i));
        assert_int_equal(switches_on(&stack), 1);
        snprintf(text, sizeof text, "{\"%s\": false}", switches[i].key);
        assert_true(read(text, &stack));
        assert_int_equal(switches_on(&stack), 0);
    }
}

TEST(reads_the_words_of_transformer_engine)
{
    sp_stack stack = {.name = "ours"};
    assert_true(read("{\"cp_overlap\": \"p2p\"}", &stack));
    assert_int_equal(stack.cp_overlap, SP_CP_ATTENTION);
    assert_true(read("{\"cp_overlap\": \"all_gather\"}", &stack));
    assert_int_equal(stack.cp_overlap, SP_CP_BLOCKING);
    assert_true(read("{\"cp_overlap\": \"a2a+p2p\"}", &stack));
    assert_int_equal(stack.cp_overlap, SP_CP_A2A_P2P);
}

TEST(reads_numbers_in_their_units)
{
    sp_stack stack = {.name = "ours"};
    assert_true(read("{\"cp_overlap\": \"blocking\", \"tensors\": \"explicit\", \"bucket_mib\": "
                     "0.5, \"split_limit_mib\": 21, "
                     "\"work_spaces\": 2, \"work_space_mib\": 8.5}",
                     &stack));
    assert_int_equal(stack.cp_overlap, SP_CP_BLOCKING);
    assert_int_equal(stack.tensors, SP_TENSORS_EXPLICIT);
    assert_true(stack.bucket_bytes == 524288.0);
    assert_int_equal(stack.split_limit_bytes, 21 << 20);
    assert_int_equal(stack.work_spaces, 2);
    assert_int_equal(stack.work_space_bytes, 17 << 19);
}

// A switch beats the name beside it; without a name the switches change what is there; a name
// alone, or in an object, starts anew.
TEST(switches_stand_on_the_named_stack)
{
    sp_stack stack = {.name = "ours", .unfused_norms = true};
    assert_true(read("{\"name\": \"megatron-core-2024\", \"hide_forward_reduce\": true, "
                     "\"cp_overlap\": \"attention\"}",
                     &stack));
    assert_string_equal(stack.name, "megatron-core-2024");
    assert_false(stack.unfused_norms);
    assert_true(stack.hide_forward_reduce && stack.hide_forward_gather);
    assert_int_equal(stack.cp_overlap, SP_CP_ATTENTION);
    assert_true(read("{\"hide_forward_gather\": false}", &stack));
    assert_true(stack.hide_forward_reduce && stack.hide_backward_reduce);
    assert_false(stack.hide_forward_gather);
    assert_true(read("\"ours\"", &stack));
    assert_int_equal(switches_on(&stack), 0);

    // A nameless start, such as a profile without a stack, is the default stack.
    sp_stack nameless = {.name = ""};
    assert_true(read("{\"whole_transfers\": true}", &nameless));
    assert_string_equal(nameless.name, "ours");
    assert_true(nameless.whole_transfers);
}

TEST(absent_and_null_leave_it)
{
    sp_stack stack = {.name = "ours", .unfused_norms = true};
    sp_stack before = stack;
    assert_true(read("null", &stack));
    assert_same(&stack, &before);
}

TEST(wrong_ones_are_refused)
{
    sp_stack stack = {.name = "ours"};
    assert_false(read("\"megatron-core-2042\"", &stack));
    assert_non_null(strstr(ERR->message[0], "unknown stack 'megatron-core-2042' (did you mean "
                                            "'megatron-core-2024'? known: ours, "));
    assert_false(read("{\"name\": \"x\"}", &stack));
    assert_non_null(strstr(ERR->message[0], "test: stack.name: unknown stack 'x' (known: ours, "));
    message_is("7", "test: stack: expected the name of a stack or an object, got 7");
    message_is("[\"ours\"]",
               "test: stack: expected the name of a stack or an object, got [\"ours\"]");
    message_is("{\"hide_foward_gather\": true}",
               "test: stack: unknown key 'hide_foward_gather' (did you mean "
               "'hide_forward_gather'?)");
    message_is("{\"fused_swiglu\": 1}", "test: stack.fused_swiglu: expected true or false, got 1");
    message_is("{\"cp_overlap\": \"ring\"}",
               "test: stack.cp_overlap: expected one of \"attention\", \"qkv\", \"blocking\", "
               "\"slices\", \"gathered\", \"a2a\", \"a2a+p2p\", \"blocks\", \"tasks\", got "
               "\"ring\"");
    message_is("{\"tensors\": \"mine\"}",
               "test: stack.tensors: expected one of \"autograd\", \"explicit\", got \"mine\"");
    message_is("{\"bucket_mib\": -1}",
               "test: stack.bucket_mib: expected a number from 0 to 1.04858e+06, got -1");
    message_is("{\"work_spaces\": 65}",
               "test: stack.work_spaces: expected an integer from 0 to 64, got 65");
}

static sp_stack random_stack(sp_prng *prng)
{
    sp_stack stack;
    uint64_t count = 0;
    while (sp_stack_builtin_name((int)count) != NULL) {
        count++;
    }
    assert_true(sp_stack_builtin(sp_stack_builtin_name((int)sp_prng_below(prng, count)), &stack));
    for (int i = 0; i < SWITCHES; i++) {
        *(bool *)((char *)&stack + switches[i].offset) = sp_prng_below(prng, 2) == 1;
    }
    stack.cp_overlap = (sp_cp_overlap)sp_prng_below(prng, 6);
    stack.cp_ring_nics = (int64_t)sp_prng_below(prng, 65);
    stack.gradient_reduce_dtype = (sp_reduce_dtype)sp_prng_below(prng, 2);
    stack.tensors = (sp_tensor_lives)sp_prng_below(prng, 2);
    stack.bucket_bytes = (double)sp_prng_below(prng, UINT64_C(1) << 40);
    stack.split_limit_bytes = (int64_t)sp_prng_below(prng, UINT64_C(1) << 40);
    stack.work_spaces = (int64_t)sp_prng_below(prng, 65);
    stack.work_space_bytes = (int64_t)sp_prng_below(prng, UINT64_C(1) << 40);
    return stack;
}

TEST_ROUNDS(document_reads_back, 23, 500)
{
    sp_stack stack = random_stack(prng);
    json_auto_t *json = sp_stack_to_json(&stack);
    assert_non_null(json);
    sp_stack named;
    assert_true(sp_stack_builtin(stack.name, &named));
    int stated = (stack.cp_ring_nics > 0) + (named.blocking_launches != stack.blocking_launches) +
                 (named.rooted_shares != stack.rooted_shares) +
                 (named.padded_documents != stack.padded_documents) + stack.no_master_weights +
                 stack.gathered_logits;
    assert_int_equal(json_object_size(json), SWITCHES - 5 + 8 + stated);
    AUTO_FREE char *text = json_dumps(json, 0);
    assert_non_null(text);
    sp_stack back = random_stack(prng);
    assert_true(read(text, &back));
    assert_same(&back, &stack);
}

static bool is_listed(const char *const *names, const char *word)
{
    bool found = false;
    for (int i = 0; names[i] != NULL; i++) {
        found = found || strcmp(names[i], word) == 0;
    }
    return found;
}

// Every word of a list of abilities is a name of the table that it stands for.
static void check_words(const char *list, const char *const *names)
{
    char copy[256];
    snprintf(copy, sizeof copy, "%s", list);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        assert_true(is_listed(names, word));
        assert_true(sp_stack_lists(list, word));
    }
    assert_false(sp_stack_lists(list, "no such name"));
}

TEST(abilities_are_names_with_a_source)
{
    static const char *const stages[] = {"0", "1", "2", "3", NULL};
    int restricted = 0;
    for (int i = 0; sp_stack_builtin_name(i) != NULL; i++) {
        sp_stack stack;
        assert_true(sp_stack_builtin(sp_stack_builtin_name(i), &stack));
        const sp_stack_abilities can = sp_stack_abilities_of(&stack);
        if (can.source == NULL) {
            assert_true(sp_stack_lists(can.schedules, "zb-v"));
            assert_true(sp_stack_lists(can.strategies, "slimpack"));
            continue;
        }
        check_words(can.schedules, sp_schedule_names);
        check_words(can.strategies, sp_strategy_names);
        check_words(can.exchanges, sp_cp_overlap_names);
        check_words(can.recomputes, sp_recompute_names);
        check_words(can.zero, stages);
        assert_true(sp_stack_lists(can.strategies, "packed"));
        assert_true(sp_stack_lists(can.recomputes, "none"));
        restricted++;
    }
    assert_true(restricted > 0);
}
