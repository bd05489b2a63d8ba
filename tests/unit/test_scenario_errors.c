// Scenarios that are wrong: what is said about each mistake, that all mistakes of a document are
// said at once, and that nothing is lost when memory runs out at any place.
#include <errno.h>

#include "tests/support/scenario_fixture.h"

// The document must be refused with exactly this one content error.
static void expect_error(const char *text, const char *message)
{
    sp_scenario s;
    sp_status status = fixture_read(text, &s, ERR);
    assert_int_equal(status, SP_ERR_CONTENT);
    assert_int_equal(ERR->status, SP_ERR_CONTENT);
    assert_string_equal(ERR->message[0], message);
    assert_int_equal(ERR->count, 1);
    sp_scenario_fini(&s);
}

// The same, for messages whose tail is the wording of another folder or a list of names.
static void expect_error_prefix(const char *text, const char *prefix)
{
    sp_scenario s;
    assert_int_equal(fixture_read(text, &s, ERR), SP_ERR_CONTENT);
    if (strncmp(ERR->message[0], prefix, strlen(prefix)) != 0) {
        fail_msg("expected %s..., got %s", prefix, ERR->message[0]);
    }
    assert_int_equal(ERR->count, 1);
    sp_scenario_fini(&s);
}

typedef struct wrong {
    const char *text, *message;
} wrong;

static void expect_errors(const wrong *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        expect_error(cases[i].text, cases[i].message);
    }
}

TEST(documents)
{
    static const wrong cases[] = {
        {"[1]", "scenario.json: expected an object, got [1]"},
        {"{'model': 'llama-13b', 'scedule': {}}",
         "scenario.json: unknown key 'scedule' (did you mean 'schedule'?)"},
        {"{'model': 'llama-13b', 'zzzzzzzz': 1}", "scenario.json: unknown key 'zzzzzzzz'"},
        {"{'model': 'llama-13b', 'parallel': {'zeroo': 2}}",
         "scenario.json: parallel: unknown key 'zeroo' (did you mean 'zero'?)"},
        // A word of one of the object's own keys is nearer than a key of another object.
        {"{'model': 'llama-13b', 'jitter': {'cv': 0.1}}",
         "scenario.json: jitter: unknown key 'cv' (did you mean 'gpu_cv'?)"},
        {"{'model': 'llama-13b', 'schema': 'slimpack/plan/1'}",
         "scenario.json: schema: expected \"slimpack/scenario/1\", got \"slimpack/plan/1\""},
        {"{'model': 'llama-13b', 'schema': 1}",
         "scenario.json: schema: expected \"slimpack/scenario/1\", got 1"},
        {"{'model': 'llama-13b', 'parallel': 8}",
         "scenario.json: parallel: expected an object, got 8"},
        {"{}", "scenario.json: model: is missing: expected a name, the path of a Hugging Face "
               "config.json or an object (or uniform_costs in its place)"},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
}

TEST(runtime)
{
    static const wrong cases[] = {
        {"{'model': 13}", "scenario.json: model: expected a name, a path or an object, got 13"},
        {"{'model': 'llama-13b', 'cluster': 8}",
         "scenario.json: cluster: expected a name, a path or an object, got 8"},
        {"{'model': 'llama-13b', 'profile': {}}",
         "scenario.json: profile: expected a name or a path, got {}"},
        {"{'model': 'llama-13b', 'nodes': 0}",
         "scenario.json: nodes: expected an integer from 1 to 10000000, got 0"},
        {"{'model': 'llama-13b', 'profile': 'orphan'}",
         "scenario.json: cluster: is missing: the profile carries no cluster, name one"},
        {"{'model': 'llama-13b', 'cluster': {'name': 'h800-8', 'profile': ''}}",
         "scenario.json: profile: is missing: the cluster has no profile of its own, name one"},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
    static const wrong prefixes[] = {
        {"{'model': 'lama-13b'}", "scenario.json: model: \"lama-13b\" is neither a built-in model "
                                  "nor a file (did you mean \"llama-13b\"?); built in: "},
        {"{'model': '..'}", "scenario.json: model: ..: the folder holds no config.json, "},
        {"{'model': 'llama-13b', 'cluster': 'h10-8'}",
         "scenario.json: cluster: \"h10-8\" is neither a built-in cluster nor a file (did you mean "
         "\"h100-8\"?); built in: a100-8, a100-selene, "},
        {"{'model': 'llama-13b', 'cluster': 'syntax.json'}",
         "scenario.json: cluster: syntax.json:2:"},
        {"{'model': 'llama-13b', 'profile': 'h101'}",
         "scenario.json: profile: unknown profile 'h101'"},
        {"{'model': 'llama-13b', 'profile': './none.json'}",
         "scenario.json: profile: ./none.json: "},
        {"{'model': 'llama-13b', 'profile': 'broken.json'}",
         "scenario.json: profile: broken.json:2:"},
        {"{'model': 'lengths.csv'}", "scenario.json: model: lengths.csv:1:"},
        {"{'model': {'layers': 4, 'hidden': 64, 'ffn': 96, 'heads': 4, 'vocab': 9, 'hiden': 1}}",
         "scenario.json: model: unknown key 'hiden' (did you mean 'hidden'?)"},
    };
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        expect_error_prefix(prefixes[i].text, prefixes[i].message);
    }
}

// Of the keys in the object the one that has such a value, else its kind; none where neither is.
TEST(a_text_in_place_of_an_object)
{
    static const wrong cases[] = {
        {"{'model': 'llama-13b', 'strategy': 'slimpack'}",
         "scenario.json: strategy: expected an object, got \"slimpack\" (did you mean "
         "'strategy.kind'?)"},
        {"{'model': 'llama-13b', 'schedule': 'zbv'}",
         "scenario.json: schedule: expected an object, got \"zbv\" (did you mean "
         "'schedule.kind'?)"},
        {"{'model': 'llama-13b', 'memory': 'full'}",
         "scenario.json: memory: expected an object, got \"full\" (did you mean "
         "'memory.recompute'?)"},
        {"{'model': 'llama-13b', 'workload': 'wikipedia'}",
         "scenario.json: workload: expected an object, got \"wikipedia\" (did you mean "
         "'workload.lengths'?)"},
        {"{'model': 'llama-13b', 'parallel': 'x'}",
         "scenario.json: parallel: expected an object, got \"x\""},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
}

TEST(ranks_and_layers)
{
    expect_error_prefix("{'model': 'llama-13b', 'nodes': 2, 'parallel': {'dp': 15}}",
                        "scenario.json: nodes: ");
    expect_error_prefix("{'model': 'llama-13b', 'parallel': {'pp': 3, 'chunks_per_rank': 1}}",
                        "scenario.json: parallel.pp: 40 layers ");
    expect_error_prefix("{'model': 'llama-13b', 'parallel': {'pp': 4096, 'chunks_per_rank': 1024}}",
                        "scenario.json: parallel.pp: 40 layers ");
    // GPT-3 175B has as many key and value heads as heads, and neither splits over 64.
    sp_scenario s;
    assert_int_equal(fixture_read("{'model': 'gpt-175b', 'parallel': {'tp': 64}}", &s, ERR),
                     SP_ERR_CONTENT);
    assert_int_equal(ERR->count, 2);
    assert_non_null(strstr(ERR->message[0], "scenario.json: parallel.tp: 96 attention heads "));
    sp_scenario_fini(&s);
}

TEST(parallel)
{
    static const wrong cases[] = {
        {"{'model': 'llama-13b', 'parallel': {'pp': 'four'}}",
         "scenario.json: parallel.pp: expected an integer from 1 to 4096, got \"four\""},
        {"{'model': 'llama-13b', 'parallel': {'tp': 0}}",
         "scenario.json: parallel.tp: expected an integer from 1 to 4096, got 0"},
        {"{'model': 'llama-13b', 'parallel': {'cp': 2.5}}",
         "scenario.json: parallel.cp: expected an integer from 1 to 4096, got 2.5"},
        {"{'model': 'llama-13b', 'parallel': {'dp': 9223372036854775807}}",
         "scenario.json: parallel.dp: expected an integer from 1 to 1000000, got "
         "9223372036854775807"},
        {"{'model': 'llama-13b', 'parallel': {'zero': 4}}",
         "scenario.json: parallel.zero: expected an integer from 0 to 3, got 4"},
        {"{'model': 'llama-13b', 'parallel': {'sequence_parallel': 1}}",
         "scenario.json: parallel.sequence_parallel: expected true or false, got 1"},
        {"{'model': 'llama-13b', 'parallel': {'tp': 4096, 'cp': 4096, 'pp': 4096, 'dp': 1000000}, "
         "'workload': {'samples_per_batch': 1}}",
         "scenario.json: parallel: tp x cp x pp x dp makes 68719476736000000 ranks, more than the "
         "10000000 that are simulated"},
        {"{'model': 'llama-13b', 'parallel': {'pp': 4, 'layers_per_chunk': 3}}",
         "scenario.json: parallel.layers_per_chunk: 40 layers on 4 pipeline ranks do not make "
         "chunks of 3 layers"},
        {"{'model': 'llama-13b', 'parallel': {'pp': 4, 'layers_per_chunk': 5, 'chunks_per_rank': "
         "5}}",
         "scenario.json: parallel.layers_per_chunk: 40 layers on 4 pipeline ranks make 2 chunks of "
         "5 layers, chunks_per_rank is 5"},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
}

TEST(schedule_and_memory)
{
    static const wrong cases[] = {
        {"{'model': 'llama-13b', 'schedule': {'kind': '1f1c'}}",
         "scenario.json: schedule.kind: expected one of \"gpipe\", \"1f1b\", \"interleaved\", "
         "\"zb-h1\", \"zb-h2\", \"zb-auto\", \"zb-v\", \"v-half\", \"v-min\", \"dualpipe-v\", "
         "\"terapipe\", \"seq1f1b\", \"slimpipe\", \"chunkflow\", \"packflow\", got \"1f1c\" "
         "(did you mean \"1f1b\"?)"},
        {"{'model': 'llama-13b', 'schedule': {'kind': '1f1b'}, 'parallel': {'pp': 2, "
         "'chunks_per_rank': 2}}",
         "scenario.json: schedule.kind: \"1f1b\" runs one chunk per rank, parallel.chunks_per_rank "
         "is 2"},
        {"{'model': 'llama-13b', 'schedule': {'kind': 'gpipe'}, 'parallel': {'pp': 2, "
         "'chunks_per_rank': 4}}",
         "scenario.json: schedule.kind: \"gpipe\" runs one chunk per rank, "
         "parallel.chunks_per_rank is 4"},
        {"{'model': 'llama-13b', 'parallel': {'chunks_per_rank': 2}}",
         "scenario.json: schedule.kind: \"interleaved\" with several chunks needs parallel.pp of "
         "at least 2"},
        {"{'model': 'llama-13b', 'schedule': {'microbatches': 0}}",
         "scenario.json: schedule.microbatches: expected an integer from 1 to 1000000, got 0"},
        {"{'model': 'llama-13b', 'schedule': {'group': true}}",
         "scenario.json: schedule.group: expected an integer from 1 to 1000000 or \"even\", got "
         "true"},
        {"{'model': 'llama-13b', 'memory': {'recompute': 'ful'}}",
         "scenario.json: memory.recompute: expected one of \"none\", \"activation\", "
         "\"partial-fc1\", \"attention\", \"full\", got \"ful\" (did you mean \"full\"?)"},
        {"{'model': 'llama-13b', 'memory': {'attention': 3}}",
         "scenario.json: memory.attention: expected one of \"flash\", \"unfused\", got 3"},
        // As the document is read: packing, which comes before the memory, may take long.
        {"{'model': 'gpt3-6.7b', 'memory': {'model': 'slimpipe-planner'}}",
         "scenario.json: memory.model: \"slimpipe-planner\" knows models with SwiGLU, which "
         "'gpt3-6.7b' has not"},
        {"{'model': 'llama-13b', 'memory': {'model': 'slimpipe-planner', 'offload_ratio': 0.5}}",
         "scenario.json: memory.offload_ratio: \"slimpipe-planner\" offloads with the schedule "
         "\"slimpipe\" alone"},
        {"{'model': 'llama-13b', 'memory': {'offload_ratio': 1.5}}",
         "scenario.json: memory.offload_ratio: expected a number from 0 to 1, got 1.5"},
        {"{'model': 'llama-13b', 'memory': {'reserve_gib': 80}}",
         "scenario.json: memory.reserve_gib: expected less than the 80 GiB that a GPU has, got 80"},
        {"{'model': 'llama-13b', 'memory': {'reserve_gib': 'some'}}",
         "scenario.json: memory.reserve_gib: expected a number from 0 to 1e+06, got \"some\""},
        {"{'model': 'llama-13b', 'memory': {'limit_gib': -1}}",
         "scenario.json: memory.limit_gib: expected a number from 0.001 to 1e+06, got -1"},
        {"{'model': 'llama-13b', 'strategy': {'kind': ''}}",
         "scenario.json: strategy.kind: expected the name of a strategy, got \"\""},
        {"{'model': 'llama-13b', 'strategy': {'kind': 'a-name-that-is-as-long-as-none-is'}}",
         "scenario.json: strategy.kind: expected the name of a strategy, got "
         "\"a-name-that-is-as-long-as-none-is\""},
        {"{'model': 'llama-13b', 'strategy': {'pad_to': 'longer'}}",
         "scenario.json: strategy.pad_to: expected one of \"context\", \"longest\", got \"longer\" "
         "(did you mean \"longest\"?)"},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
}

TEST(workload)
{
    static const wrong cases[] = {
        {"{'model': 'llama-13b', 'workload': {'lengths': [1], 'uniform': 8}}",
         "scenario.json: workload.uniform: give lengths or uniform, not both"},
        {"{'model': 'llama-13b', 'workload': {'lengths': 7}}",
         "scenario.json: workload.lengths: expected a name, a path or an array, got 7"},
        {"{'model': 'llama-13b', 'workload': {'lengths': []}}",
         "scenario.json: workload.lengths: expected 1 to 10000000 lengths, got 0"},
        {"{'model': 'llama-13b', 'workload': {'lengths': [5, 0]}}",
         "scenario.json: workload.lengths[1]: expected an integer from 1 to 2147483647, got 0"},
        {"{'model': 'llama-13b', 'workload': {'lengths': [2147483648]}}",
         "scenario.json: workload.lengths[0]: expected an integer from 1 to 2147483647, got "
         "2147483648"},
        {"{'model': 'llama-13b', 'workload': {'lengths': [1.5]}}",
         "scenario.json: workload.lengths[0]: expected an integer from 1 to 2147483647, got 1.5"},
        {"{'model': 'llama-13b', 'workload': {'lengths': ['9']}}",
         "scenario.json: workload.lengths[0]: expected an integer from 1 to 2147483647, got "
         "\"9\""},
        {"{'model': 'llama-13b', 'workload': {'lengths': [9], 'column': 'x'}}",
         "scenario.json: workload.column: only a file of lengths has columns"},
        {"{'model': 'llama-13b', 'workload': {'column': 'x'}}",
         "scenario.json: workload.column: only a file of lengths has columns"},
        {"{'model': 'llama-13b', 'workload': {'samples_per_batch': 8, 'tokens_per_batch': 8}}",
         "scenario.json: workload.tokens_per_batch: give samples_per_batch or tokens_per_batch, "
         "not both"},
        {"{'model': 'llama-13b', 'workload': {'samples_per_batch': 10000001}}",
         "scenario.json: workload.samples_per_batch: expected an integer from 1 to 10000000, got "
         "10000001"},
        {"{'model': 'llama-13b', 'parallel': {'dp': 1000000}, 'schedule': {'microbatches': "
         "1000000, 'microbatch_samples': 10000000}}",
         "scenario.json: workload.samples_per_batch: dp x microbatches x microbatch_samples makes "
         "more than 10000000 samples"},
        {"{'model': 'llama-13b', 'workload': {'samples_per_batch': 10000000, 'batches': 11}}",
         "scenario.json: workload.batches: 11 batches of 10000000 samples are more than the "
         "100000000 samples that are held"},
        {"{'model': 'llama-13b', 'workload': {'context': 2147483648}}",
         "scenario.json: workload.context: expected an integer from 1 to 2147483647, got "
         "2147483648"},
        {"{'model': 'llama-13b', 'workload': {'batches': 0}}",
         "scenario.json: workload.batches: expected an integer from 1 to 100000, got 0"},
        {"{'model': 'llama-13b', 'workload': {'seed': -1}}",
         "scenario.json: workload.seed: expected an integer of at least 0, got -1"},
        {"{'model': 'llama-13b', 'workload': {'order': 'random'}}",
         "scenario.json: workload.order: expected one of \"shuffled\", \"file\", got \"random\""},
        {"{'model': 'llama-13b', 'workload': {'over_length': 'trunkate'}}",
         "scenario.json: workload.over_length: expected one of \"drop\", \"truncate\", \"error\", "
         "\"split\", got \"trunkate\" (did you mean \"truncate\"?)"},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
    expect_error_prefix("{'model': 'llama-13b', 'workload': {'lengths': 'wikipedja'}}",
                        "scenario.json: workload.lengths: \"wikipedja\" is neither a built-in "
                        "length distribution nor a file (did you mean \"wikipedia\"?); built in: ");
    expect_error_prefix("{'model': 'llama-13b', 'workload': {'lengths': 'scenario.json'}}",
                        "scenario.json:1: ");
    expect_error_prefix("{'model': 'llama-13b', 'workload': {'lengths': 'lengths.csv', 'column': "
                        "'yours'}}",
                        "lengths.csv:");
}

TEST(uniform_costs)
{
    static const wrong cases[] = {
        {"{'uniform_costs': 3}", "scenario.json: uniform_costs: expected an object, got 3"},
        {"{'uniform_costs': {'b_ms': 1}}", "scenario.json: uniform_costs: key 'f_ms' is missing"},
        {"{'uniform_costs': {'f_ms': 0, 'b_ms': 1}}",
         "scenario.json: uniform_costs.f_ms: expected a number from 1e-06 to 1e+06, got 0"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'wms': 1}}",
         "scenario.json: uniform_costs: unknown key 'wms' (did you mean 'w_ms'?)"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'model': 'llama-13b'}",
         "scenario.json: model: has no use here: uniform_costs stand in place of a model"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'cluster': 'h100-8'}",
         "scenario.json: cluster: has no use here: uniform_costs give every time, no cluster is "
         "asked"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'nodes': 1}",
         "scenario.json: nodes: has no use here: uniform_costs give every time, no cluster is "
         "asked"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'profile': 'h100'}",
         "scenario.json: profile: has no use here: uniform_costs give every time, no profile is "
         "asked"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'memory': {}}",
         "scenario.json: memory: has no use here: uniform_costs count activation units, see "
         "uniform_costs.memory_units"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'workload': {}}",
         "scenario.json: workload: has no use here: uniform_costs have no samples, see "
         "schedule.microbatches"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'strategy': {}}",
         "scenario.json: strategy: has no use here: uniform_costs have no samples to pack"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'parallel': {'tp': 2}}",
         "scenario.json: parallel.tp: has no use beside uniform_costs, got 2"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'parallel': {'zero': 0}}",
         "scenario.json: parallel.zero: has no use beside uniform_costs, got 0"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'parallel': {'layers_per_chunk': 1}}",
         "scenario.json: parallel.layers_per_chunk: has no use beside uniform_costs, got 1"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'parallel': {'stage_layers': [1]}}",
         "scenario.json: parallel.stage_layers: has no use beside uniform_costs, got [1]"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'schedule': {'microbatch_samples': 2}}",
         "scenario.json: schedule.microbatch_samples: has no use beside uniform_costs, got 2"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'memory_units': {'f': 1, 'b': -1, 'w': 0.5}}}",
         "scenario.json: uniform_costs.memory_units: f + b + w must be 0, is 0.5"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'memory_units': {'f': 1, 'b': -1}}}",
         "scenario.json: uniform_costs.memory_units: key 'w' is missing"},
        // 1e6 * 4096 * 1024 * 2e6 ms
        {"{'uniform_costs': {'f_ms': 1e6, 'b_ms': 1e6}, 'parallel': {'pp': 4096, "
         "'chunks_per_rank': 1024}, 'schedule': {'microbatches': 1000000}}",
         "scenario.json: uniform_costs: the actions of a step add up to 8.38861e+18 ms, more than "
         "the 4e+12 that are timed"},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
}

TEST(stage_layers)
{
    static const wrong cases[] = {
        {"{'model': 'llama-13b', 'parallel': {'pp': 4, 'stage_layers': 10}}",
         "scenario.json: parallel.stage_layers: expected an array, \"auto\" or "
         "\"nanotron\", got 10"},
        {"{'model': 'llama-13b', 'parallel': {'pp': 4, 'stage_layers': [20, 20]}}",
         "scenario.json: parallel.stage_layers: expected 4 entries, one for each of pp x "
         "chunks_per_rank virtual stages (4 x 1), got 2"},
        {"{'model': 'llama-13b', 'parallel': {'pp': 2, 'chunks_per_rank': 2, 'stage_layers': [20, "
         "20]}}",
         "scenario.json: parallel.stage_layers: expected 4 entries, one for each of pp x "
         "chunks_per_rank virtual stages (2 x 2), got 2"},
        {"{'model': 'llama-13b', 'parallel': {'stage_layers': []}}",
         "scenario.json: parallel.stage_layers: expected 1 entries, one for each of pp x "
         "chunks_per_rank virtual stages (1 x 1), got 0"},
        {"{'model': 'llama-13b', 'parallel': {'pp': 2, 'stage_layers': ['x', 40]}}",
         "scenario.json: parallel.stage_layers[0]: expected an integer from 0 to 100000, got "
         "\"x\""},
        {"{'model': 'llama-13b', 'parallel': {'pp': 2, 'stage_layers': [19, 20.5]}}",
         "scenario.json: parallel.stage_layers[1]: expected an integer from 0 to 100000, got "
         "20.5"},
        {"{'model': 'llama-13b', 'parallel': {'pp': 2, 'stage_layers': [41, -1]}}",
         "scenario.json: parallel.stage_layers[1]: expected an integer from 0 to 100000, got -1"},
        {"{'model': 'llama-13b', 'parallel': {'pp': 4, 'stage_layers': [11, 10, 10, 10]}}",
         "scenario.json: parallel.stage_layers: add up to 41 layers, the model has 40"},
        {"{'model': 'llama-13b', 'parallel': {'pp': 4, 'layers_per_chunk': 10, 'stage_layers': "
         "[10, 10, 10, 10]}}",
         "scenario.json: parallel.stage_layers: give layers_per_chunk or stage_layers, not both"},
        // Of a pp that is wrong itself the entries cannot be counted.
        {"{'model': 'llama-13b', 'parallel': {'pp': 0, 'stage_layers': [20, 20]}}",
         "scenario.json: parallel.pp: expected an integer from 1 to 4096, got 0"},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
}

TEST(all_at_once)
{
    static const char *const expected[] = {
        "scenario.json: model: expected a name, a path or an object, got 1",
        "scenario.json: cluster: expected a name, a path or an object, got 2",
        "scenario.json: schedule.microbatches: expected an integer from 1 to 1000000, got -3",
        "scenario.json: parallel.tp: expected an integer from 1 to 4096, got 0",
        "scenario.json: parallel.pp: expected an integer from 1 to 4096, got \"four\"",
        "scenario.json: parallel: unknown key 'pq' (did you mean 'pp'?)",
        "scenario.json: memory.offload_ratio: expected a number from 0 to 1, got 2",
        "scenario.json: workload.lengths[0]: expected an integer from 1 to 2147483647, got 0",
        "scenario.json: workload.lengths[2]: expected an integer from 1 to 2147483647, got -7",
        "scenario.json: strategy.kind: expected a string, got 8",
    };
    sp_scenario s;
    assert_int_equal(
        fixture_read("{'model': 1, 'cluster': 2, 'parallel': {'tp': 0, 'pp': 'four', 'pq': 1}, "
                     "'schedule': {'microbatches': -3}, 'memory': {'offload_ratio': 2}, "
                     "'workload': {'lengths': [0, 5, -7]}, 'strategy': {'kind': 8}, 'eleven': 11, "
                     "'twelve': 12}",
                     &s, ERR),
        SP_ERR_CONTENT);
    assert_int_equal(ERR->count, SP_ERROR_MESSAGES);
    assert_int_equal(ERR->dropped, 2);
    for (int i = 0; i < SP_ERROR_MESSAGES; i++) {
        assert_string_equal(ERR->message[i], expected[i]);
    }
    sp_scenario_fini(&s);
}

TEST(a_wrong_profile_does_not_hide_other_errors)
{
    sp_scenario s;
    assert_int_equal(fixture_read("{'model': 'llama-13b', 'profile': './none.json', 'cluster': "
                                  "'h100-8', 'parallel': {'pp': 0}}",
                                  &s, ERR),
                     SP_ERR_CONTENT);
    assert_int_equal(ERR->count, 2);
    assert_string_equal(ERR->message[1],
                        "scenario.json: parallel.pp: expected an integer from 1 to 4096, got 0");
    sp_scenario_fini(&s);
}

TEST(files)
{
    sp_scenario s;
    fixture_begin();
    sp_error_clear(ERR);
    assert_int_equal(sp_scenario_read("none.json", NULL, 0, &s, ERR), SP_ERR_IO);
    sp_scenario_fini(&s);
    sp_error_clear(ERR);
    assert_int_equal(sp_scenario_read("marked.json", NULL, 0, &s, ERR), SP_ERR_SYNTAX);
    assert_string_equal(ERR->message[0], "marked.json:1:1: a byte order mark (UTF-8 BOM) is no "
                                         "JSON: save the text without it");
    sp_scenario_fini(&s);
    sp_error_clear(ERR);
    assert_int_equal(sp_scenario_read("syntax.json", NULL, 0, &s, ERR), SP_ERR_SYNTAX);
    assert_int_equal(strncmp(ERR->message[0], "syntax.json:2:", 14), 0);
    sp_scenario_fini(&s);
    assert_int_equal(sp_scenario_read("none.json", NULL, 0, &s, NULL), SP_ERR_IO);
    sp_scenario_fini(&s);
}

TEST(overrides)
{
    static const struct {
        const char *set;
        sp_status status;
        const char *message;
    } cases[] = {
        {"parallel.pp", SP_ERR_USAGE, "--set expects KEY=VALUE, got 'parallel.pp'"},
        {"parallel.pp.x=3", SP_ERR_USAGE, "--set parallel.pp.x=3: no such place in the scenario"},
        {"parallel.pp=four", SP_ERR_CONTENT,
         "scenario.json: parallel.pp: expected an integer from 1 to 4096, got \"four\""},
        {"paralel.pp=4", SP_ERR_CONTENT,
         "scenario.json: unknown key 'paralel' (did you mean 'parallel'?)"},
    };
    fixture_begin();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_scenario s;
        sp_error_clear(ERR);
        assert_int_equal(sp_scenario_read("scenario.json", &cases[i].set, 1, &s, ERR),
                         cases[i].status);
        assert_string_equal(ERR->message[0], cases[i].message);
        sp_scenario_fini(&s);
    }
}

TEST(empty_after_failure)
{
    sp_scenario s;
    assert_int_equal(
        fixture_read("{'model': 'llama-13b', 'workload': {'lengths': [5, 6]}, 'x': 1}", &s, ERR),
        SP_ERR_CONTENT);
    assert_null(s.resolved);
    assert_int_equal(s.lengths.count, 0);
    sp_scenario_fini(&s);
    sp_scenario_fini(&s);
}

TEST(a_list_without_lengths)
{
    sp_scenario s;
    assert_int_equal(
        fixture_read("{'model': 'llama-13b', 'workload': {'lengths': 'empty.txt'}}", &s, ERR),
        SP_ERR_CONTENT);
    assert_int_equal(ERR->count, 1);
    sp_scenario_fini(&s);
}

// What the system ran out of is no property of an input; a file that it refuses is there.
TEST(errors_of_the_system)
{
    static const struct {
        int error;
        sp_status status;
        int exit_status;
    } cases[] = {
        {EMFILE, SP_ERR_SYSTEM, 4},    {ENFILE, SP_ERR_SYSTEM, 4}, {EINTR, SP_ERR_SYSTEM, 4},
        {ENOMEM, SP_ERR_NO_MEMORY, 4}, {EACCES, SP_ERR_ACCESS, 3}, {ENOENT, SP_ERR_IO, 3},
        {ENOSPC, SP_ERR_IO, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char expected[SP_ERROR_TEXT];
        sp_error_clear(ERR);
        assert_int_equal(sp_error_system(ERR, "f.json", cases[i].error), cases[i].status);
        assert_int_equal(sp_status_exit(cases[i].status), cases[i].exit_status);
        assert_int_equal(sp_status_is_fatal(cases[i].status), cases[i].status != SP_ERR_IO);
        snprintf(expected, sizeof expected, "f.json: %s", strerror(cases[i].error));
        assert_string_equal(ERR->message[0], expected);
    }
}
