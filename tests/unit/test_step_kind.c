// What kind of step a scenario asks for.
#include "sim/scenario/scenario.h"

#include "tests/support/scenario_fixture.h"

static void read_kind(const char *text, sp_step_kind *kind)
{
    FIXTURE_SCENARIO(s, text);
    sp_step_kind_of(&s, &s.profile, 0.25, 24.0, kind);
}

TEST(figures_of_a_scenario)
{
    sp_step_kind kind;
    read_kind(
        "{'model': {'layers': 2, 'hidden': 64, 'ffn': 96, 'heads': 16, 'vocab': 100, 'activation': "
        "'gelu', 'experts': 4, 'experts_per_token': 2}, 'cluster': 'a100-8', 'parallel': {'tp': "
        "16, 'cp': 2, 'pp': 2, 'dp': 3, 'zero': 0}, 'memory': {'recompute': 'full', 'attention': "
        "'unfused'}, 'workload': {'uniform': 512, 'context': 512, 'samples_per_batch': 6}}",
        &kind);
    assert_true(kind.figure[SP_STEP_EXPERTS] == 4.0);
    assert_true(kind.figure[SP_STEP_GPUS] == 16.0 * 2.0 * 2.0 * 3.0);
    assert_true(kind.figure[SP_STEP_TP] == 16.0);
    assert_true(kind.figure[SP_STEP_TP_NODES] == 2.0); // 16 ranks on nodes of 8
    assert_true(kind.figure[SP_STEP_CP] == 2.0);
    assert_true(kind.figure[SP_STEP_PP] == 2.0);
    assert_true(kind.figure[SP_STEP_ZERO] == 0.0);
    assert_true(kind.figure[SP_STEP_CONTEXT] == 512.0);
    assert_true(kind.figure[SP_STEP_CHUNKS] == 1.0);
    assert_true(kind.figure[SP_STEP_MICROBATCH] == 1.0);
    assert_true(kind.figure[SP_STEP_MICROBATCHES_PER_STAGE] == 24.0 / 3.0 / 2.0);
    assert_true(kind.figure[SP_STEP_BUBBLE] == 0.25);
    // The built-in cluster, by the data sheet of its source.
    assert_close(kind.figure[SP_STEP_PEAK], 312.0, 1e-12);
    assert_close(kind.figure[SP_STEP_MEMORY], 80.0, 1e-12);
    assert_close(kind.figure[SP_STEP_HBM], 2039.0, 1e-12);
    assert_close(kind.figure[SP_STEP_NVLINK], 300.0, 1e-12);
    assert_close(kind.figure[SP_STEP_NODE], 8.0, 1e-12);
    assert_close(kind.figure[SP_STEP_NODE_NICS], 4.0, 1e-12);
    assert_close(kind.figure[SP_STEP_NIC], 200.0, 1e-12);
    assert_string_equal(kind.word[SP_STEP_SCHEDULE], "1f1b");
    assert_string_equal(kind.word[SP_STEP_CLUSTER], "a100-8");
    assert_string_equal(kind.word[SP_STEP_STACK], "ours");
    assert_string_equal(kind.word[SP_STEP_PRECISION], "bf16");
    assert_string_equal(kind.word[SP_STEP_ATTENTION], "unfused");
    assert_string_equal(kind.word[SP_STEP_RECOMPUTE], "full");
    assert_string_equal(kind.word[SP_STEP_LENGTHS], "uniform");
    // Llama 2 7B has 6,738,415,616 parameters (arXiv 2307.09288, its config.json).
    read_kind("{'model': 'config.json'}", &kind);
    assert_true(kind.figure[SP_STEP_PARAMETERS] == 6738415616.0);
    assert_true(kind.figure[SP_STEP_TP_NODES] == 1.0);
    assert_true(kind.figure[SP_STEP_EXPERTS] == 0.0);
}

// A cluster is what its figures say, whatever it is called.
TEST(equal_figures_make_a_cluster)
{
    static const struct {
        const char *cluster, *word;
    } cases[] = {
        {"{'name': 'h800-8', 'peak_tflops': 300}", "h800-8"},
        {"{'name': 'mine', 'profile': 'a100', 'peak_tflops': 312, 'memory_gib': 80, "
         "'hbm_gb_per_s': 2039, 'nvlink_gb_per_s': 300, 'nics_per_node': 4, 'nic_gbit_per_s': 200}",
         "a100-8"},
        {"{'name': 'mine', 'profile': 'a100', 'peak_tflops': 312, 'memory_gib': 40, "
         "'hbm_gb_per_s': 2039, 'nvlink_gb_per_s': 300, 'nics_per_node': 4, 'nic_gbit_per_s': 200}",
         "mine"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_step_kind kind;
        read_kind(json_text("{'model': 'llama-13b', 'cluster': %s}", cases[i].cluster), &kind);
        assert_string_equal(kind.word[SP_STEP_CLUSTER], cases[i].word);
    }
}

TEST(lengths_and_context)
{
    static const struct {
        const char *workload, *lengths;
        double context;
    } cases[] = {
        {"{'uniform': 4096}", "uniform", 4096.0},
        // Rows of several samples are packed.
        {"{'uniform': 1024, 'context': 4096}", "mixed", 4096.0},
        {"{'lengths': [100, 300, 200]}", "mixed", 300.0},
        {"{'lengths': [100, 300, 200], 'context': 1000}", "mixed", 1000.0},
        {"{'lengths': 'wikipedia', 'context': 8192}", "mixed", 8192.0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_step_kind kind;
        read_kind(json_text("{'model': 'llama-13b', 'workload': %s}", cases[i].workload), &kind);
        assert_string_equal(kind.word[SP_STEP_LENGTHS], cases[i].lengths);
        assert_true(kind.figure[SP_STEP_CONTEXT] == cases[i].context);
    }
}

// A switch that is set as it is anyway changes nothing, another one does.
TEST(changed_stack_says_so)
{
    static const struct {
        const char *stack, *word;
    } cases[] = {
        {"'megatron-core-2024'", "megatron-core-2024"},
        {"{'name': 'megatron-core-2024', 'hide_forward_gather': true}", "megatron-core-2024"},
        {"{'name': 'megatron-core-2024', 'hide_forward_gather': false}",
         "megatron-core-2024, changed"},
        {"{'bucket_mib': 25}", "ours, changed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_step_kind kind;
        read_kind(json_text("{'model': 'llama-13b', 'stack': %s}", cases[i].stack), &kind);
        assert_string_equal(kind.word[SP_STEP_STACK], cases[i].word);
    }
}

// The profile's stack is the one that its errors are of, whatever the built-in one of that name is.
TEST(profile_has_a_stack_of_its_own)
{
    sp_step_kind kind;
    FIXTURE_SCENARIO(
        s,
        "{'model': 'llama-13b', 'stack': {'name': 'megatron-core-2024', 'split_limit_mib': 21}}");
    sp_step_kind_of(&s, &s.profile, (double)NAN, (double)NAN, &kind);
    assert_string_equal(kind.word[SP_STEP_STACK], "megatron-core-2024, changed");
    s.profile.stack = s.memory.stack;
    sp_step_kind_of(&s, &s.profile, (double)NAN, (double)NAN, &kind);
    assert_string_equal(kind.word[SP_STEP_STACK], "megatron-core-2024");
}
