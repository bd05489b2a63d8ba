// A folder with profiles, lengths and a model file that scenario tests read from, made anew by each
// test program, and short hands to read documents.
#ifndef SLIMPACK_TESTS_SUPPORT_SCENARIO_FIXTURE_H
#define SLIMPACK_TESTS_SUPPORT_SCENARIO_FIXTURE_H

#include <jansson.h>
#include <unistd.h>

#include "sim/base/json.h"
#include "sim/scenario/scenario.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define FIXTURE_TABLE "{'level': 'assumed', 'source': 'test', 'points': [[1024, 100]]}"
#define FIXTURE_PROFILE(more)                                                                \
    "{'schema': 'slimpack/profile/1', 'gemm_rate': " FIXTURE_TABLE                           \
    ", 'attention': {'forward_causal': " FIXTURE_TABLE ", 'backward_causal': " FIXTURE_TABLE \
    "}, 'memory': {'gb_per_s': 1000, 'level': 'assumed', 'source': 'test'}"                  \
    ", 'kernel': {'us': 3, 'level': 'assumed', 'source': 'test'}"                            \
    ", 'optimizer': {'bytes_per_parameter': 28, 'level': 'assumed', 'source': 'test'}"       \
    ", 'links': {'nvlink_gb_per_s': 200, 'nvlink_latency_us': 2, 'nic_efficiency': 0.8, "    \
    "'nic_latency_us': 5, 'level': 'assumed', 'source': 'test'}" more "}"

static const struct {
    const char *name, *text;
} fixture_files[] = {
    // The profiles that the built-in clusters name.
    {"a100.json", FIXTURE_PROFILE("")},
    {"h100.json", FIXTURE_PROFILE("")},
    {"h200.json", FIXTURE_PROFILE("")},
    {"h800.json", FIXTURE_PROFILE("")},
    {"host.json", FIXTURE_PROFILE("")},
    {"orphan.json", FIXTURE_PROFILE("")}, // that no built-in cluster uses
    {"carrier.json",
     FIXTURE_PROFILE(", 'cluster': {'name': 'carried', 'gpu': 'X', 'peak_tflops': 500, "
                     "'memory_gib': 24, 'hbm_gb_per_s': 900, 'gpus_per_node': 2, "
                     "'nvlink_gb_per_s': 50, 'nics_per_node': 1, 'nic_gbit_per_s': 100}")},
    {"cluster.json", "{'name': 'h800-8', 'nvlink_gb_per_s': 100, 'nic_latency_us': 7}"},
    {"broken.json", "{'schema': 'slimpack/profile/1',\n 'gpu' 3}"},
    {"lengths.txt", "100\n200\n300\n"},
    {"lengths.csv", "name,mine\na,7\nb,9\n"},
    {"empty.txt", ""},
    // Llama 2 7B (Touvron et al., arXiv 2307.09288): shapes of its config.json.
    {"config.json",
     "{'model_type': 'llama', 'hidden_size': 4096, 'intermediate_size': 11008, "
     "'num_attention_heads': 32, 'num_hidden_layers': 32, 'num_key_value_heads': 32, "
     "'vocab_size': 32000, 'hidden_act': 'silu', 'tie_word_embeddings': false}"},
    // A name of 33 two-byte characters: the 63 bytes that are kept end with half a one.
    {"long_name.json",
     "{'model_type': 'llama', '_name_or_path': "
     "'\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9"
     "\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9"
     "\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9', "
     "'hidden_size': 64, 'intermediate_size': 128, 'num_attention_heads': 4, "
     "'num_hidden_layers': 2, 'num_key_value_heads': 4, 'vocab_size': 100}"},
    {"scenario.json", "{'model': 'llama-13b', 'parallel': {'pp': 4}}"},
    {"marked.json", "\xef\xbb\xbf{'model': 'llama-13b'}"}, // by a byte order mark
    {"syntax.json", "{\n  'model' 'llama-13b'\n}"},
};

static char fixture_folder[] = "/tmp/slimpack-scenario-XXXXXX";

static void fixture_remove(void)
{
    for (size_t i = 0; i < sizeof fixture_files / sizeof fixture_files[0]; i++) {
        remove(fixture_files[i].name);
    }
    if (chdir("/") == 0) {
        rmdir(fixture_folder);
    }
}

// Makes the folder and goes there; once per program.
static void fixture_begin(void)
{
    static int begun;
    if (begun) {
        return;
    }
    begun = 1;
    assert_non_null(mkdtemp(fixture_folder));
    assert_int_equal(chdir(fixture_folder), 0);
    atexit(fixture_remove);
    assert_int_equal(setenv("SLIMPACK_PROFILE_PATH", fixture_folder, 1), 0);
    for (size_t i = 0; i < sizeof fixture_files / sizeof fixture_files[0]; i++) {
        FILE *file = fopen(fixture_files[i].name, "wb");
        assert_non_null(file);
        const char *json = json_text("%s", fixture_files[i].text);
        fputs(json, file);
        assert_int_equal(fclose(file), 0);
    }
}

// Reads a document as "scenario.json".
static sp_status fixture_read(const char *text, sp_scenario *scenario, sp_error *err)
{
    fixture_begin();
    json_auto_t *root = json_document(text);
    sp_error_clear(err);
    return sp_scenario_from_json(root, "scenario.json", NULL, 0, scenario, err);
}

static inline void fixture_good(const char *text, sp_scenario *scenario)
{
    must_succeed_for(text, fixture_read(text, scenario, ERR));
}

#define FIXTURE_SCENARIO(name, text) \
    AUTO(sp_scenario) name;          \
    fixture_good(text, &(name))

#endif
