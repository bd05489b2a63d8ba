// Scenarios that are right: defaults, every key, sources of every kind, and reading the resolved
// document again. Expected values are the defaults and rules of the documented scenario format.
#include <sys/stat.h>

#include "sim/base/units.h"
#include "sim/scenario/scenario_private.h"
#include "tests/support/scenario_fixture.h"
#include "tests/support/scenario_run.h"

// Is every value of `stated` in the other document, too?
static bool says(const json_t *resolved, const json_t *stated)
{
    const char *key;
    json_t *value;
    bool all = true;
    json_object_foreach ((json_t *)stated, key, value) {
        const json_t *there = json_object_get(resolved, key);
        bool same = json_is_number(value) ? json_number_value(value) == json_number_value(there)
                                          : json_equal(value, there) != 0;
        all = all && (json_is_object(value) ? says(there, value) : same);
    }
    return all;
}

TEST(defaults)
{
    // LLaMA 13B (Touvron et al., arXiv 2302.13971, table 2): dimension 5120, 40 heads, 40 layers.
    // An H100's 80 GiB without the 3 that cluster.h accounts for.
    json_auto_t *usual = json_document(
        "{'model': {'layers': 40, 'hidden': 5120, 'head_dim': 128}, 'cluster': {'name': 'h100-8'}, "
        "'profile': 'h100', 'stack': {'name': 'ours'}, 'parallel': {'tp': 1, 'cp': 1, 'pp': 1, "
        "'dp': 1, 'chunks_per_rank': 1, 'sequence_parallel': false, 'vocab_parallel': false, "
        "'zero': 1, 'order': 'tp-cp-dp-pp'}, 'schedule': {'kind': '1f1b', 'microbatch_samples': "
        "1}, 'memory': {'model': 'tensors', 'recompute': 'none', 'offload_ratio': 0.0, "
        "'limit_gib': 77.0, 'reserve_gib': 3.0, 'attention': 'flash'}, 'workload': {'uniform': "
        "4096, 'context': 4096, 'over_length': 'drop', 'samples_per_batch': 2, 'batches': 1, "
        "'seed': 1, 'order': 'shuffled'}, 'strategy': {'kind': 'packed', 'pad_to': 'context'}}");
    FIXTURE_SCENARIO(s, "{'model': 'llama-13b'}");
    assert_true(says(s.resolved, usual));
    assert_string_equal(s.source, "scenario.json");
    assert_string_equal(s.workload.source, "scenario.json");
    assert_false(s.uniform || s.schedule_given || s.strategy.given || s.prefill.given);
    assert_int_equal(s.cluster.nodes, 1);
    assert_int_equal(s.layout.placement, SP_PLACE_LINEAR);
    assert_int_equal(s.microbatches, 0);
    assert_null(s.workload.lengths);
    assert_null(s.workload.distribution);
    assert_int_equal(s.workload.tokens_per_batch, 0);
    assert_null(json_object_get(s.resolved, "network"));
    assert_null(json_object_get(s.resolved, "jitter"));
}

// What a scenario with overrides is resolved as; the caller owns it.
static json_t *resolved_with(const char *text, const char *const *sets, int count)
{
    AUTO(sp_scenario) s = {0};
    fixture_begin();
    json_auto_t *root = json_document(text);
    must_hold(sp_scenario_from_json(root, "scenario.json", sets, count, &s, ERR) == SP_OK, "%s: %s",
              text, ERR->message[0]);
    return json_deep_copy(s.resolved);
}

static void same_when_written_out(const char *text, const char *set, const char *written_out)
{
    json_auto_t *found = resolved_with(text, &set, 1);
    json_auto_t *expected = resolved_with(written_out, NULL, 0);
    must_hold(json_equal(found, expected), "%s with --set %s is not %s", text, set, written_out);
}

TEST(overrides_inside_a_name)
{
    same_when_written_out(
        "{'model': 'llama-13b', 'cluster': 'h800-8'}", "cluster.nic_gbit_per_s=800",
        "{'model': 'llama-13b', 'cluster': {'name': 'h800-8', 'nic_gbit_per_s': 800}}");
    same_when_written_out("{'model': 'llama-13b', 'cluster': 'cluster.json'}",
                          "cluster.nic_latency_us=9",
                          "{'model': 'llama-13b', 'cluster': {'name': 'h800-8', 'nvlink_gb_per_s': "
                          "100, 'nic_latency_us': 9}}");
    same_when_written_out(
        "{'model': 'llama-13b'}", "cluster.nic_gbit_per_s=800",
        "{'model': 'llama-13b', 'cluster': {'name': 'h100-8', 'nic_gbit_per_s': 800}}");
    same_when_written_out("{'model': 'llama-13b', 'profile': 'a100'}", "cluster.nic_gbit_per_s=100",
                          "{'model': 'llama-13b', 'profile': 'a100', 'cluster': {'name': 'a100-8', "
                          "'nic_gbit_per_s': 100}}");
    same_when_written_out("{'model': 'llama-13b', 'stack': 'megatron-core-2024'}",
                          "stack.cp_overlap=blocking",
                          "{'model': 'llama-13b', 'stack': {'name': 'megatron-core-2024', "
                          "'cp_overlap': 'blocking'}}");
    // LLaMA 13B's numbers (arXiv 2302.13971, table 2) with half of its layers.
    same_when_written_out("{'model': 'llama-13b'}", "model.layers=20",
                          "{'model': {'name': 'llama-13b with model.layers changed', 'layers': 20, "
                          "'hidden': 5120, 'ffn': 13824, 'heads': 40, 'vocab': 32000}}");
}

// layers_per_chunk is resolved as chunks_per_rank, and names as the objects that they stand for.
TEST(every_key_is_resolved_as_stated)
{
    static const char *const documents[] = {
        "{'schema': 'slimpack/scenario/1', 'cluster': {'name': 'h800-8'}, 'nodes': 16, 'profile': "
        "'h800', 'parallel': {'tp': 8, 'cp': 2, 'pp': 4, 'dp': 2, 'chunks_per_rank': 2, "
        "'sequence_parallel': false, 'vocab_parallel': true, 'zero': 3, 'order': 'cp-tp-dp-pp'}, "
        "'schedule': {'kind': 'interleaved', 'microbatches': 12, 'microbatch_samples': 2, 'group': "
        "6}, 'memory': {'recompute': 'full', 'offload_ratio': 0.25, 'limit_gib': 70.5, "
        "'reserve_gib': 2.5, 'attention': 'unfused'}, 'workload': {'lengths': 'lengths.csv', "
        "'column': 'mine', 'context': 8192, 'samples_per_batch': 64, 'batches': 3, 'seed': 9, "
        "'order': 'file', 'over_length': 'truncate'}, 'strategy': {'kind': 'padded', 'pad_to': "
        "'longest', 'outlier_queues': 3, 'outlier_tokens': 7, 'pack_tokens': 8, 'max_per_pack': 9, "
        "'rank_tokens': 10, 'group_start_ms': 0.5, 'pack_rounds': true, 'attention_across': true, "
        "'chunk_tokens': 11, 'slice_tokens': 12, 'time_limit_ms': 13, 'mip_gap': 0.0, 'slices': "
        "false, 'gathers': false}}",
        "{'jitter': {'gpu_cv': 0.1, 'seed': 3}, 'network': {'detail': 'auto', 'collectives': "
        "'tree'}, 'schedule': {'group': 'even', 'slices': 3, 'slice_rule': 'flops', 'exchange': "
        "true, 'retained_chunks': 2, 'memory_limit_microbatches': 1.5}, 'prefill': {'attention': "
        "'sample', 'alpha': 0.5, 'stripe_share': 0.0, 'fixed_us': 0.0, 'deal': 'heads', "
        "'chunk_tokens': 256, 'together': true, 'dense_below': 1}, 'stack': {'name': 'ours', "
        "'cp_overlap': 'qkv', 'cp_ring_nics': 2, 'cp_a2a_ranks': 4, 'tensors': 'explicit', "
        "'bucket_mib': 0.5, 'work_spaces': 1, 'device_bytes': true}, 'workload': "
        "{'tokens_per_batch': 4096, 'uniform': 16}}"};
    for (size_t i = 0; i < sizeof documents / sizeof documents[0]; i++) {
        AUTO(sp_scenario) s;
        json_auto_t *root = json_document(documents[i]);
        fixture_begin();
        json_object_set_new(root, "model", json_string("llama-13b"));
        must_succeed(sp_scenario_from_json(root, "scenario.json", NULL, 0, &s, ERR));
        json_object_del(root, "model");
        assert_true(says(s.resolved, root));
        assert_true(s.schedule_given == (i == 0) && s.strategy.given == (i == 0));
    }
}

TEST(documents_are_resolved)
{
    static const struct {
        const char *text, *resolved;
    } cases[] = {
        {"{'model': 'llama-13b', 'parallel': {'tp': 8}}",
         "{'parallel': {'sequence_parallel': true}}"},
        // What is null is not stated.
        {"{'model': 'llama-13b', 'schema': null, 'uniform_costs': null, 'workload': null, 'nodes': "
         "null, 'parallel': {'pp': null}}",
         "{'parallel': {'pp': 1}}"},
        {"{'model': {'name': 'tiny', 'layers': 4, 'hidden': 64, 'ffn': 128, 'heads': 8, "
         "'kv_heads': "
         "2, 'vocab': 1000, 'activation': 'gelu', 'norm': 'layernorm'}, 'parallel': {'pp': 2}}",
         "{'model': {'name': 'tiny', 'kv_heads': 2, 'head_dim': 8, 'activation': 'gelu', 'norm': "
         "'layernorm'}}"},
        {"{'model': './config.json', 'parallel': {'pp': 8}}",
         "{'model': {'layers': 32, 'ffn': 11008, 'vocab': 32000}}"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        FIXTURE_SCENARIO(s, cases[i].text);
        json_auto_t *resolved = json_document(cases[i].resolved);
        must_hold(says(s.resolved, resolved), "%s", cases[i].text);
    }
}

TEST(names_in_any_case)
{
    FIXTURE_SCENARIO(s, "{'model': 'Llama-13B', 'cluster': 'H100_8', 'profile': 'H100', 'stack': "
                        "'Megatron-Core-2025', 'schedule': {'kind': '1F1B'}, 'memory': "
                        "{'recompute': 'Full'}, 'strategy': {'kind': 'SlimPack_ZB'}, 'workload': "
                        "{'lengths': 'Wikipedia'}}");
    assert_string_equal(s.profile.name, "h100");
    assert_string_equal(s.memory.stack.name, "megatron-core-2025");
    assert_string_equal(s.strategy.kind, "slimpack-zb");
    assert_int_equal(s.memory.recompute, SP_RECOMPUTE_FULL);
    assert_string_equal(s.workload.distribution->name, "wikipedia");
}

static void write_json(const char *path, const char *text)
{
    put_file(path, json_text("%s", text));
}

// What exists beats what is built in: a folder of a model and files that are called like built-in
// names, in the working directory and beside the scenario.
TEST(existing_paths_beat_names)
{
    static const char small[] =
        "{'model_type': 'llama', 'hidden_size': 64, 'vocab_size': 100, 'intermediate_size': 128, "
        "'num_attention_heads': 4, 'num_hidden_layers': 3, 'time_step_limit': [0.0, Infinity], "
        "'eps': NaN}";
    static const char text[] = "{'model': 'llama-3.1-70b', 'cluster': 'h800-8', 'profile': 'a100', "
                               "'workload': {'lengths': 'wikipedia'}}";
    AUTO(sp_scenario) s;
    fixture_begin();
    assert_int_equal(mkdir("own", 0700), 0);
    assert_int_equal(mkdir("own/llama-3.1-70b", 0700), 0);
    write_json("own/llama-3.1-70b/config.json", small);
    write_json("own/h800-8", "{'name': 'mine', 'gpus_per_node': 4, 'gpu': 'X', 'peak_tflops': 500, "
                             "'memory_gib': 24, 'hbm_gb_per_s': 900, 'nvlink_gb_per_s': 50, "
                             "'nics_per_node': 1, 'nic_gbit_per_s': 100, 'profile': 'h800'}");
    write_json("own/a100", FIXTURE_PROFILE(", 'name': 'own'"));
    put_file("own/wikipedia", "5\n6\n");
    write_json("own/s.json", text);
    for (int here = 0; here < 2; here++) {
        if (here != 0) {
            assert_int_equal(chdir("own"), 0);
            fixture_good(text, &s);
        } else {
            must_succeed(sp_scenario_read("own/s.json", NULL, 0, &s, ERR));
        }
        assert_int_equal(s.model.layers, 3);
        // Told apart from the built-in one.
        assert_string_equal(s.model.name, here != 0 ? "./llama-3.1-70b" : "own/llama-3.1-70b");
        assert_string_equal(s.cluster.name, "mine");
        assert_string_equal(s.profile.name, "own");
        assert_int_equal(s.lengths.count, 2);
        // As resolved it is read the same, and overrides are relative to the working directory.
        json_auto_t *resolved = json_deep_copy(s.resolved);
        sp_scenario again;
        must_succeed(sp_scenario_from_json(resolved, "again.json", NULL, 0, &again, ERR));
        assert_true(json_equal(again.resolved, s.resolved));
        sp_scenario_fini(&again);
        sp_scenario_fini(&s);
    }
    assert_int_equal(chdir(".."), 0);
    const char *const set[] = {"model=llama-3.1-70b", "cluster=h800-8", "profile=a100",
                               "workload.lengths=wikipedia"};
    must_succeed(sp_scenario_read("own/s.json", set, 4, &s, ERR));
    assert_int_equal(s.model.layers, 80);
    assert_string_equal(s.cluster.name, "h800-8");
    assert_non_null(s.workload.distribution);
    sp_scenario_fini(&s);
    // Values of a grid are placed as well.
    json_auto_t *values = json_document("['llama-3.1-70b', 'llama-13b', 7, '/own']");
    must_succeed(sp_scenario_place_values(values, "model", "own/sweep.json", ERR));
    assert_string_equal(json_string_value(json_array_get(values, 0)), "own/llama-3.1-70b");
    assert_string_equal(json_string_value(json_array_get(values, 1)), "llama-13b");
    // A folder of results is no model.
    remove("own/llama-3.1-70b/config.json");
    must_succeed(sp_scenario_read("own/s.json", NULL, 0, &s, ERR));
    assert_int_equal(s.model.layers, 80);
    remove("own/h800-8");
    remove("own/a100");
    remove("own/wikipedia");
    remove("own/s.json");
    rmdir("own/llama-3.1-70b");
    rmdir("own");
}

TEST(cluster_and_profile)
{
    static const struct {
        const char *text, *cluster, *profile;
    } cases[] = {
        {"{'model': 'llama-13b', 'cluster': 'h800-8'}", "h800-8", "h800"},
        {"{'model': 'llama-13b', 'profile': 'carrier'}", "carried", "carrier"},
        {"{'model': 'llama-13b', 'profile': './carrier.json'}", "carried", "carrier"},
        {"{'model': 'llama-13b', 'profile': 'carrier', 'cluster': 'a100-8'}", "a100-8", "carrier"},
        // Without a cluster of its own: the first built-in cluster that uses the profile.
        {"{'model': 'llama-13b', 'profile': 'h800'}", "h800-8", "h800"},
        {"{'model': 'llama-13b', 'profile': 'a100'}", "a100-8", "a100"},
        {"{'model': 'llama-13b', 'cluster': {'name': 'h800-8', 'memory_gib': 40}}", "h800-8",
         "h800"},
        {"{'model': 'llama-13b', 'cluster': './cluster.json'}", "h800-8", "h800"},
        {"{'model': 'llama-13b', 'profile': 'orphan', 'cluster': {'name': 'mine', 'peak_tflops': "
         "100, 'memory_gib': 40, 'hbm_gb_per_s': 1000, 'gpus_per_node': 4, 'nvlink_gb_per_s': 50, "
         "'nics_per_node': 1, 'nic_gbit_per_s': 100}}",
         "mine", "orphan"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        FIXTURE_SCENARIO(s, cases[i].text);
        assert_string_equal(s.cluster.name, cases[i].cluster);
        assert_string_equal(s.profile.name, cases[i].profile);
        assert_int_equal(s.memory_limit_bytes, s.cluster.memory_bytes - (INT64_C(3) << 30));
    }
}

static void check_round_trip(sp_scenario *s);

// Of the GPU's memory the reserve is not for tensors; a stated limit goes before it.
TEST(memory_limit)
{
    static const struct {
        const char *cluster, *memory;
        double reserve_gib, limit_gib;
    } cases[] = {
        {"'h100-8'", "{}", 3.0, 77.0},
        {"'h100-8'", "{'reserve_gib': 5.5}", 5.5, 74.5},
        {"'h100-8'", "{'reserve_gib': 0}", 0.0, 80.0},
        {"'h100-8'", "{'limit_gib': 60}", 3.0, 60.0},
        {"'h100-8'", "{'limit_gib': 60, 'reserve_gib': 90}", 90.0, 60.0},
        // No driver takes of a host's memory.
        {"'host'", "{}", 0.0, 8.0},
        {"{'name': 'h100-8', 'memory_gib': 96}", "{}", 3.0, 93.0},
        // Most of a small device stays.
        {"{'name': 'h100-8', 'memory_gib': 4}", "{}", 1.0, 3.0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = json_text("{'model': 'llama-13b', 'cluster': %s, 'memory': %s}",
                                     cases[i].cluster, cases[i].memory);
        FIXTURE_SCENARIO(s, text);
        assert_true((double)s.memory_reserve_bytes == cases[i].reserve_gib * SP_GIB);
        assert_true((double)s.memory_limit_bytes == cases[i].limit_gib * SP_GIB);
        check_round_trip(&s);
    }
}

TEST(nodes)
{
    static const struct {
        const char *text;
        int nodes;
        bool stated; // in the resolved document
    } cases[] = {
        {"{'model': 'llama-13b', 'parallel': {'dp': 16}}", 2, true},
        {"{'model': 'llama-13b', 'nodes': 2, 'parallel': {'dp': 16}}", 2, true},
        {"{'model': 'llama-13b', 'parallel': {'dp': 17}}", 3, false}, // the last part filled
        {"{'model': 'llama-13b', 'parallel': {'dp': 3}}", 1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        FIXTURE_SCENARIO(s, cases[i].text);
        assert_int_equal(s.cluster.nodes, cases[i].nodes);
        assert_int_equal(json_object_get(s.resolved, "nodes") != NULL, cases[i].stated);
    }
}

TEST(chunks)
{
    static const struct {
        const char *parallel;
        int chunks;
        sp_schedule_kind kind;
    } cases[] = {
        {"{'pp': 4, 'chunks_per_rank': 2}", 2, SP_SCHEDULE_INTERLEAVED},
        {"{'pp': 4, 'layers_per_chunk': 2}", 5, SP_SCHEDULE_INTERLEAVED},
        {"{'pp': 4, 'layers_per_chunk': 10}", 1, SP_SCHEDULE_1F1B},
        {"{'pp': 4, 'layers_per_chunk': 5, 'chunks_per_rank': 2}", 2, SP_SCHEDULE_INTERLEAVED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = json_text("{'model': 'llama-13b', 'parallel': %s}", cases[i].parallel);
        FIXTURE_SCENARIO(s, text);
        assert_int_equal(s.layout.chunks, cases[i].chunks);
        assert_int_equal(s.schedule.kind, cases[i].kind);
        assert_false(s.schedule_given);
    }
}

// The samples of a batch where neither samples nor tokens are given; 512 follow from nothing.
TEST(default_batch_size)
{
    static const struct {
        const char *rest;
        int64_t samples, tokens, context, uniform;
    } cases[] = {
        // dp * 2 pp and dp * microbatches * microbatch_samples
        {"'parallel': {'pp': 4, 'dp': 3}", 24, 0, 4096, 4096},
        {"'parallel': {'pp': 4, 'dp': 3}, 'schedule': {'microbatches': 5, 'microbatch_samples': 2}",
         30, 0, 4096, 4096},
        {"'workload': {'uniform': 1000}, 'parallel': {'pp': 2}", 4, 0, 1000, 1000},
        {"'workload': {'context': 512}, 'parallel': {'pp': 2}", 4, 0, 512, 512},
        {"'workload': {'uniform': 100, 'context': 512}", 2, 0, 512, 100},
        {"'workload': {'uniform': 100, 'samples_per_batch': 7}", 7, 0, 100, 100},
        {"'workload': {'uniform': 100, 'tokens_per_batch': 700}", 0, 700, 100, 100},
        {"'workload': {'lengths': [5, 6, 7]}", 3, 0, 0, 0},
        {"'workload': {'lengths': [5, 60.0, 7, 61], 'context': 60}", 3, 0, 60, 0},
        {"'workload': {'lengths': [5, 61], 'context': 60, 'over_length': 'truncate'}", 2, 0, 60, 0},
        {"'workload': {'lengths': [5, 6], 'tokens_per_batch': 1e3}", 0, 1000, 0, 0},
        {"'workload': {'lengths': 'lengths.txt'}", 512, 0, 0, 0},
        {"'workload': {'lengths': 'wikipedia'}", 512, 0, 0, 0},
        {"'workload': {'lengths': 'wikipedia', 'samples_per_batch': 512}", 512, 0, 0, 0},
        {"'workload': {'lengths': 'wikipedia', 'context': 60}, 'schedule': {'microbatches': 5}", 0,
         0, 60, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = json_text("{'model': 'llama-13b', %s}", cases[i].rest);
        FIXTURE_SCENARIO(s, text);
        assert_int_equal(s.workload.samples_assumed,
                         cases[i].samples == 512 && strstr(text, "samples_per_batch") == NULL);
        assert_int_equal(s.workload.samples_per_batch, cases[i].samples);
        assert_int_equal(s.workload.tokens_per_batch, cases[i].tokens);
        assert_int_equal(s.workload.context, cases[i].context);
        assert_int_equal(s.workload.uniform_tokens, cases[i].uniform);
    }
}

// A training step fills its pipeline where nothing says how many samples it has; prompts are one.
TEST(one_prompt_by_default)
{
    FIXTURE_SCENARIO(
        s, "{'model': 'llama-13b', 'parallel': {'pp': 2}, 'workload': {'context': 4096}}");
    assert_int_equal(s.workload.samples_per_batch, 4);
    sp_scenario_fini(&s);
    fixture_good("{'model': 'llama-13b', 'parallel': {'pp': 2}, 'workload': {'context': 4096}, "
                 "'prefill': {}}",
                 &s);
    assert_int_equal(s.workload.samples_per_batch, 1);
}

TEST(length_sources)
{
    FIXTURE_SCENARIO(s, "{'model': 'llama-13b', 'workload': {'lengths': 'wikipedia'}}");
    assert_ptr_equal(s.workload.distribution, sp_distribution_find("wikipedia"));
    assert_null(s.workload.lengths);
    assert_string_equal(s.workload.source, "wikipedia");
    sp_scenario_fini(&s);
    fixture_good("{'model': 'llama-13b', 'workload': {'lengths': 'lengths.txt'}}", &s);
    assert_null(s.workload.distribution);
    assert_int_equal(s.lengths.count, 3);
    assert_int_equal(s.lengths.tokens[2], 300);
    sp_scenario_fini(&s);
    fixture_good("{'model': 'llama-13b', 'workload': {'lengths': [3, 2147483647]}}", &s);
    assert_ptr_equal(s.workload.lengths, &s.lengths);
    assert_int_equal(s.lengths.count, 2);
    assert_int_equal(s.lengths.tokens[1], 2147483647);
}

TEST(uniform_costs)
{
    FIXTURE_SCENARIO(
        s,
        "{'uniform_costs': {'f_ms': 1, 'b_ms': 1.5}, 'parallel': {'pp': 4, 'tp': 1, 'zero': 1}}");
    assert_true(s.uniform);
    assert_true(s.uniform_costs.f_ms == 1.0);
    assert_true(s.uniform_costs.b_ms == 1.5);
    assert_true(s.uniform_costs.w_ms == 0.0);
    assert_true(s.uniform_costs.p2p_ms == 0.0);
    assert_false(s.uniform_costs.per_chunk);
    assert_false(s.uniform_costs.has_units);
    assert_int_equal(s.microbatches, 8);
    assert_int_equal(s.layout.tp, 1);
    assert_string_equal(s.strategy.kind, "");
    sp_scenario_fini(&s);
    fixture_good(
        "{'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'w_ms': 0.5, 'p2p_ms': 0.1, 'per_chunk': "
        "true, 'memory_units': {'f': 1, 'b': -0.25, 'w': -0.75}}, 'parallel': {'pp': 4, "
        "'dp': 2, 'chunks_per_rank': 3}, 'schedule': {'microbatches': 12}}",
        &s);
    assert_true(s.uniform_costs.w_ms == 0.5);
    assert_true(s.uniform_costs.p2p_ms == 0.1);
    assert_true(s.uniform_costs.per_chunk);
    assert_true(s.uniform_costs.has_units);
    assert_true(s.uniform_costs.unit_w == -0.75);
    assert_int_equal(s.layout.chunks, 3);
    assert_int_equal(s.schedule.kind, SP_SCHEDULE_INTERLEAVED);
    assert_int_equal(s.microbatches, 12);
}

TEST(overrides)
{
    fixture_begin();
    const char *const set[] = {"parallel.pp=8", "cluster=h800-8", "workload.lengths=[10, 20]",
                               "strategy.kind=ffd"};
    AUTO(sp_scenario) s;
    assert_int_equal(sp_scenario_read("scenario.json", set, 4, &s, NULL), SP_OK);
    assert_int_equal(s.layout.pp, 8); // the file says 4
    assert_string_equal(s.cluster.name, "h800-8");
    assert_int_equal(s.lengths.count, 2);
    assert_string_equal(s.strategy.kind, "ffd");
}

TEST(schedule_change_is_resolved)
{
    FIXTURE_SCENARIO(
        s, "{'model': 'llama-13b', 'parallel': {'pp': 4, 'dp': 3, 'chunks_per_rank': 2}}");
    must_succeed(sp_scenario_resolve_layout(&s, ERR));
    s.schedule.kind = SP_SCHEDULE_1F1B;
    must_fail(sp_scenario_resolve_layout(&s, ERR), SP_ERR_CONTENT,
              "scenario.json: schedule.kind: \"1f1b\" runs one chunk "
              "per rank, parallel.chunks_per_rank is 2");
}

// A strategy's order does not pass for what the user wrote, and the document says it.
TEST(order_of_a_strategy_is_not_given)
{
    sp_scenario s, again;
    fixture_good("{'model': 'llama-13b', 'parallel': {'pp': 4, 'dp': 3}}", &s);
    assert_false(s.order_resolved);
    s.schedule.kind = SP_SCHEDULE_INTERLEAVED;
    s.schedule.slices = 3;
    s.layout.chunks = 5;
    must_succeed(sp_scenario_set_order(&s, ERR));
    assert_true(s.order_resolved);
    assert_false(s.schedule_given);
    assert_false(s.chunks_given);
    assert_false(s.strategy.given);
    must_succeed(sp_scenario_from_json(s.resolved, "again", NULL, 0, &again, ERR));
    assert_int_equal(again.schedule.kind, SP_SCHEDULE_INTERLEAVED);
    assert_int_equal(again.schedule.slices, 3);
    assert_int_equal(again.layout.chunks, 5);
    assert_true(json_equal(again.resolved, s.resolved));
    assert_true(again.schedule_given);
    sp_scenario_fini(&again);
    // 40 layers do not make 28 equal stages: the choice is refused as a file with it would be.
    s.layout.chunks = 7;
    assert_int_equal(sp_scenario_set_order(&s, ERR), SP_ERR_CONTENT);
    sp_scenario_fini(&s);
}

TEST(derived_facts)
{
    FIXTURE_SCENARIO(
        s, "{'model': 'llama-13b', 'parallel': {'tp': 2, 'pp': 4, 'dp': 3, 'chunks_per_rank': 2}}");
    json_auto_t *derived = sp_scenario_derived(&s);
    assert_int_equal(json_int(derived, "ranks"), 24);
    assert_int_equal(json_int(derived, "nodes"), 3);
    assert_int_equal(json_int(derived, "gpus_per_node"), 8);
    assert_int_equal(json_int(derived, "virtual_stages"), 8);
    assert_int_equal(json_int(derived, "layers_per_chunk"), 5);
    // 13,015,864,320 parameters: the count of the published weights of LLaMA 13B.
    assert_int_equal(json_int(derived, "parameters"), INT64_C(13015864320));
}

// ---- the resolved document ----

// Reads the resolved document of `s` again, through its text: what it says is as before, and what
// follows from it.
static void check_round_trip(sp_scenario *s)
{
    AUTO(sp_scenario) again;
    sp_error_clear(ERR);
    AUTO_FREE char *text = json_dumps(s->resolved, JSON_COMPACT);
    assert_non_null(text);
    json_auto_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    must_hold(sp_scenario_from_json(root, "again.json", NULL, 0, &again, ERR) == SP_OK, "%s: %s",
              text, ERR->message[0]);
    AUTO_FREE char *text_again = json_dumps(again.resolved, JSON_COMPACT);
    assert_string_equal(text, text_again);
    assert_true(s->profile.nvlink_bytes_per_s == again.profile.nvlink_bytes_per_s);
    assert_int_equal(s->cluster.nodes, again.cluster.nodes);
    assert_int_equal(s->lengths.count, again.lengths.count);
    assert_ptr_equal(s->workload.distribution, again.workload.distribution);
}

TEST(round_trip_of_documents)
{
    static const char *const documents[] = {
        "{'model': 'llama-13b'}",
        "{'model': 'long_name.json'}",
        "{'model': 'config.json', 'cluster': 'h200-8', 'parallel': {'dp': 9}}",
        "{'model': 'llama-13b', 'profile': 'carrier', 'nodes': 4, 'parallel': {'dp': 8}}",
        "{'model': {'layers': 2, 'hidden': 64, 'ffn': 96, 'heads': 4, 'vocab': 999, 'experts': 8, "
        "'experts_per_token': 2}, 'schedule': {'microbatches': 3}}",
        "{'model': 'llama-13b', 'cluster': {'name': 'h800-8', 'profile': '', 'peak_tflops': "
        "123.456789, 'memory_gib': 79.3, 'nic_gbit_per_s': 33.3}, 'profile': 'h100'}",
        "{'model': 'llama-13b', 'cluster': {'name': 'a800-8', 'fabric': {'rails': 2, 'pxn': false, "
        "'nodes_per_leaf': 7, 'oversubscription': 1.7, 'spine_latency_us': 0.3, 'nic_affinity': "
        "'round-robin'}}}",
        "{'model': 'llama-13b', 'cluster': 'cluster.json'}",
        "{'model': 'llama-13b', 'cluster': {'name': 'a800-8', 'nvlink_latency_us': 0.7, "
        "'nic_latency_us': 0, 'host_link_latency_us': 1.3}}",
        "{'model': 'llama-13b', 'cluster': {'name': 'a800-8', 'nvls': true}, 'network': "
        "{'collectives': 'nvls'}}",
        "{'model': 'llama-13b', 'cluster': {'name': 'h100-8', 'nvls': false}, 'network': "
        "{'detail': 'flows', 'collectives': 'auto'}}",
        "{'model': 'llama-13b', 'workload': {'lengths': 'lengths.csv', 'column': 'mine'}}",
        "{'model': 'llama-13b', 'workload': {'lengths': [5, 6.0, 70], 'context': 8}}",
        "{'model': 'llama-13b', 'workload': {'lengths': 'wikipedia', 'tokens_per_batch': 1000000, "
        "'batches': 4, 'order': 'file', 'seed': 9223372036854775807}, 'strategy': {'kind': "
        "'padded', 'pad_to': 'longest'}, 'memory': {'limit_gib': 61.7, 'reserve_gib': 2.2, "
        "'offload_ratio': 0.1}}",
        "{'model': 'llama-13b', 'parallel': {'pp': 3, 'stage_layers': [13, 14.0, 13]}}",
        "{'uniform_costs': {'f_ms': 0.1, 'b_ms': 0.2}, 'parallel': {'pp': 3}}",
        "{'uniform_costs': {'f_ms': 0.1, 'b_ms': 0.2, 'memory_units': {'f': 1, 'b': -0.5, 'w': "
        "-0.5}}, 'parallel': {'pp': 2, 'chunks_per_rank': 2}, 'schedule': {'group': 4}}",
    };
    for (size_t i = 0; i < sizeof documents / sizeof documents[0]; i++) {
        FIXTURE_SCENARIO(s, documents[i]);
        check_round_trip(&s);
    }
}

// Taken out of a resolved document, what nobody stated is open again; what was changed in it, or is
// stated, stays.
TEST(what_nobody_stated_is_undone)
{
    sp_scenario s, again;
    fixture_good("{'model': 'llama-13b', 'parallel': {'pp': 4, 'tp': 2}, 'stack': {'name': 'ours', "
                 "'cp_ring_nics': 2}, 'workload': {'uniform': 1024}}",
                 &s);
    json_auto_t *root = json_deep_copy(s.resolved);
    json_t *parallel = json_object_get(root, "parallel");
    assert_int_equal(json_integer_value(json_object_get(parallel, "chunks_per_rank")), 1);
    sp_i_scenario_undo_choices(root);
    assert_null(json_object_get(parallel, "chunks_per_rank"));
    assert_null(json_object_get(parallel, "sequence_parallel"));
    assert_null(json_object_get(json_object_get(root, "schedule"), "kind"));
    assert_null(json_object_get(root, "chosen"));
    must_succeed(sp_scenario_from_json(root, "again.json", NULL, 0, &again, ERR));
    assert_false(again.chunks_given || again.schedule_given || again.cp_overlap_given);
    assert_true(again.cp_ring_nics_given);
    assert_true(json_equal(again.resolved, s.resolved));
    sp_scenario_fini(&again);
    json_decref(root);

    root = json_deep_copy(s.resolved);
    parallel = json_object_get(root, "parallel");
    must_succeed(sp_scenario_override(root, "parallel.chunks_per_rank=2", ERR));
    sp_i_scenario_undo_choices(root);
    assert_int_equal(json_integer_value(json_object_get(parallel, "chunks_per_rank")), 2);
    must_succeed(sp_scenario_from_json(root, "again.json", NULL, 0, &again, ERR));
    assert_true(again.chunks_given && !again.cp_overlap_given);
    sp_scenario_fini(&again);
    json_decref(root);

    root = json_deep_copy(s.resolved);
    must_succeed(sp_scenario_override(root, "chosen.parallel.pp=3", ERR));
    must_fail_with(sp_scenario_from_json(root, "again.json", NULL, 0, &again, ERR), SP_ERR_CONTENT,
                   "again.json: chosen.parallel: expected the value that a resolved document has");
    sp_scenario_fini(&s);
}

// What knows attention to all tokens alone is refused where a sample may be longer than a layer
// sees of it, whatever layer that is.
TEST(what_windows_are_refused_with)
{
    static const char *const seen[] = {"'window_tokens': 4096", "'chunk_tokens': 4096",
                                       "'layer_kinds': [{}, {'window_tokens': 4096}]"};
    static const struct {
        const char *settings, *error; // NULL: runs
    } cases[] = {
        {"'workload': {'uniform': 8192}", NULL},
        {"'schedule': {'kind': 'slimpipe', 'exchange': true}, 'workload': {'uniform': 4096}", NULL},
        {"'schedule': {'kind': 'slimpipe', 'exchange': true}, 'workload': {'uniform': 4097}",
         "s.json: schedule.exchange: hands over attention to all tokens, not where layers see 4096 "
         "tokens (model.window_tokens, chunk_tokens; 0: all) of samples of 4097 tokens"},
        {"'strategy': {'cp_sharding': 'document', 'cp_ring_steps': true}, 'parallel': {'cp': 2}, "
         "'workload': {'lengths': [100, 5000], 'context': 8192}",
         "s.json: strategy.cp_ring_steps: follows attention to all tokens, not where layers see "
         "4096 tokens (model.window_tokens, chunk_tokens; 0: all) of samples of 8192 tokens"},
        {"'prefill': {'attention': 'sample'}, 'workload': {'lengths': 'wikipedia'}",
         "s.json: prefill.attention: chooses among all tokens, not where layers see 4096 tokens "
         "(model.window_tokens, chunk_tokens; 0: all) of samples of any length"},
        {"'decode': {'prompt_tokens': 4000, 'output_tokens': 97}",
         "s.json: decode.prompt_tokens: expected prompt and output tokens of at most 4096, which"},
        {"'decode': {'prompt_tokens': 4000, 'output_tokens': 96}", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t k = 0; k < sizeof seen / sizeof seen[0]; k++) {
            sp_scenario s;
            const char *text =
                json_text("{'model': {'layers': 2, 'hidden': 64, 'ffn': 96, 'heads': 4, "
                          "'vocab': 999, %s}, %s}",
                          seen[k], cases[i].settings);
            json_auto_t *root = json_document(text);
            if (cases[i].error == NULL) {
                must_succeed_for(text, sp_scenario_from_json(root, "s.json", NULL, 0, &s, ERR));
                sp_scenario_fini(&s);
            } else {
                must_fail_with(sp_scenario_from_json(root, "s.json", NULL, 0, &s, ERR),
                               SP_ERR_CONTENT, cases[i].error);
            }
        }
    }
}

TEST(round_trip_of_built_ins)
{
    for (int m = 0; m < sp_model_builtin_count(); m++) {
        for (int c = 0; c < sp_cluster_builtin_count(); c++) {
            const char *text = json_text("{'model': '%s', 'cluster': '%s'}",
                                         sp_model_builtin_name(m), sp_cluster_builtin_name(c));
            FIXTURE_SCENARIO(s, text);
            check_round_trip(&s);
        }
    }
}

TEST_ROUNDS(round_trip_of_random_settings, 20, 200)
{
    char text[700];
    int pp = 1 << sp_prng_below(prng, 3);
    snprintf(text, sizeof text,
             "{'model': 'llama-13b', 'cluster': {'name': 'c', 'profile': 'h100', "
             "'peak_tflops': %.17g, 'memory_gib': %.17g, 'hbm_gb_per_s': %.17g, "
             "'nvlink_gb_per_s': %.17g, 'nic_gbit_per_s': %.17g}, 'parallel': {'tp': %d, 'pp': "
             "%d, 'dp': %d, 'zero': %d}, 'memory': {'limit_gib': %.17g, 'offload_ratio': "
             "%.17g}, 'workload': {'uniform': %d, 'seed': %d}}",
             1.0 + 999.0 * sp_prng_uniform(prng), 1.0 + 99.0 * sp_prng_uniform(prng),
             1.0 + 9999.0 * sp_prng_uniform(prng), 1.0 + 999.0 * sp_prng_uniform(prng),
             1.0 + 999.0 * sp_prng_uniform(prng), 1 << sp_prng_below(prng, 4), pp,
             1 + prng_below(prng, 9), prng_below(prng, 4), 1.0 + 99.0 * sp_prng_uniform(prng),
             sp_prng_uniform(prng), 1 + prng_below(prng, 100000), prng_below(prng, 1000000));
    FIXTURE_SCENARIO(s, text);
    check_round_trip(&s);
}

// The resolved document can still be changed: its parts do not contradict each other.
TEST(resolved_takes_overrides)
{
    AUTO(sp_scenario) s, changed;
    fixture_good("{'model': 'llama-13b', 'parallel': {'layers_per_chunk': 10, 'pp': 2}}", &s);
    const char *const set[] = {"parallel.pp=4"};
    assert_int_equal(sp_scenario_from_json(s.resolved, "again.json", set, 1, &changed, NULL),
                     SP_OK);
    assert_int_equal(changed.layout.pp, 4);
    assert_int_equal(changed.layout.chunks, 2);
}

// Messages name a list by its source, so the text must outlive the document.
TEST(nothing_points_into_the_document)
{
    AUTO(sp_scenario) s;
    fixture_begin();
    json_auto_t *root =
        json_document("{'model': 'llama-13b', 'workload': {'lengths': 'lengths.txt', "
                      "'samples_per_batch': 2}, 'strategy': {'kind': 'sorted'}}");
    must_succeed(sp_scenario_from_json(root, "scenario.json", NULL, 0, &s, ERR));
    AUTO(sp_batches) batches;
    must_succeed(sp_batches_make(&s.workload, &batches, ERR));
    assert_int_equal(batches.count, 1);
    assert_int_equal(batches.batch[0].count, 2);
    assert_string_equal(s.workload.source, "lengths.txt");
    assert_string_equal(s.strategy.kind, "sorted");
}
