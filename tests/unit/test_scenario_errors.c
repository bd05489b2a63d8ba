// Scenarios that are wrong: where each mistake is said to be, and that all mistakes of a document
// are said at once.
#include <errno.h>

#include "tests/support/scenario_fixture.h"

// A document, or what stands in one beside its model, is refused with one error, at this key ("":
// of the document itself) and with the hint at what may be meant, if any. Whole messages stand in
// the golden cases of the commands.
typedef struct wrong {
    const char *text, *path, *meant;
} wrong;

static void expect_errors(const wrong *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const wrong *c = &cases[i];
        AUTO(sp_scenario) s;
        char head[SP_JSON_PATH + 32];
        char text[400];
        bool whole = c->text[0] == '{' || c->text[0] == '[';
        snprintf(text, sizeof text, whole ? "%s" : "{'model': 'llama-13b', %s}", c->text);
        assert_int_equal(fixture_read(text, &s, ERR), SP_ERR_CONTENT);
        snprintf(head, sizeof head, "scenario.json: %s%s", c->path, c->path[0] != '\0' ? ": " : "");
        const char *hint = strstr(ERR->message[0], "(did you mean ");
        size_t quote = strlen("(did you mean '");
        bool good = strncmp(ERR->message[0], head, strlen(head)) == 0 && ERR->count == 1;
        good = good && (hint != NULL) == (c->meant != NULL);
        must_hold(good && (hint == NULL || strncmp(hint + quote, c->meant, strlen(c->meant)) == 0),
                  "%s: %d errors, %s", c->text, ERR->count, ERR->message[0]);
    }
}

TEST(documents)
{
    static const wrong cases[] = {
        {"[1]", "", NULL},
        {"'scedule': {}", "", "schedule"},
        {"'zzzzzzzz': 1", "", NULL},
        {"'parallel': {'zeroo': 2}", "parallel", "zero"},
        // A word of one of the object's own keys is nearer than a key of another object.
        {"'jitter': {'cv': 0.1}", "jitter", "gpu_cv"},
        {"'schema': 'slimpack/scenario/9'", "schema", NULL},
        {"'schema': 1", "schema", NULL},
        {"'parallel': 8", "parallel", NULL},
        {"{}", "model", NULL},
        {"'vpp': 2", "", "parallel.chunks_per_rank"},
        {"'workload': {'seq_length': 4096}", "workload", "workload.context"},
        {"'parallel': {'context': 4096}", "parallel", "workload.context"},
        {"'workload': {'batch': 2}", "workload", "batches"},
        {"'parallel': {'vp': 2}", "parallel", "parallel.chunks_per_rank"},
        {"'schedule': {'type': 'gpipe'}", "schedule", "kind"},
        {"'strategy': {'name': 'padded'}", "strategy", "kind"},
        {"'memory': {'type': 2}", "memory", NULL},
        // A key of another section is meant where it is spelt like that, not where it is half
        // alike.
        {"'recomput': 'full'", "", "memory.recompute"},
        {"'peak_memory_gib': 2", "", NULL},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
}

TEST(runtime)
{
    static const wrong cases[] = {
        {"{'model': 13}", "model", NULL},
        {"'cluster': 8", "cluster", NULL},
        {"'profile': {}", "profile", NULL},
        {"'profile': 'orphan'", "cluster", NULL},
        {"'cluster': {'name': 'h800-8', 'profile': ''}", "profile", NULL},
        {"{'model': 'lama-13b'}", "model", "llama-13b"},
        {"{'model': '..'}", "model", NULL},
        {"'cluster': 'h10-8'", "cluster", "h100-8"},
        {"'cluster': 'syntax.json'", "cluster", NULL},
        {"'profile': 'h101'", "profile", "h100"},
        {"'profile': './none.json'", "profile", NULL},
        {"'profile': 'broken.json'", "profile", NULL},
        {"{'model': 'lengths.csv'}", "model", NULL},
        {"{'model': {'layers': 4, 'hidden': 64, 'ffn': 96, 'heads': 4, 'vocab': 9, 'hiden': 1}}",
         "model", "hidden"},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
}

// Of the keys in the object the one that has such a value, else its kind; none where neither is.
TEST(a_text_in_place_of_an_object)
{
    static const wrong cases[] = {
        {"'strategy': 'slimpack'", "strategy", "strategy.kind"},
        {"'schedule': 'zbv'", "schedule", "schedule.kind"},
        {"'memory': 'full'", "memory", "memory.recompute"},
        {"'workload': 'wikipedia'", "workload", "workload.lengths"},
        {"'parallel': 'x'", "parallel", NULL},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
}

TEST(ranks_and_layers)
{
    static const wrong cases[] = {
        {"'nodes': 2, 'parallel': {'dp': 15}", "nodes", NULL},
        {"'parallel': {'pp': 3, 'chunks_per_rank': 1}", "parallel.pp", NULL},
        {"'parallel': {'pp': 4096, 'chunks_per_rank': 1024}", "parallel.pp", NULL},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
    // GPT-3 175B has as many key and value heads as heads, and neither splits over 64.
    AUTO(sp_scenario) s;
    assert_int_equal(fixture_read("{'model': 'gpt-175b', 'parallel': {'tp': 64}}", &s, ERR),
                     SP_ERR_CONTENT);
    assert_int_equal(ERR->count, 2);
}

TEST(parallel)
{
    static const wrong cases[] = {
        {"'parallel': {'tp': 4096, 'cp': 4096, 'pp': 4096, 'dp': 1000000}, 'workload': "
         "{'samples_per_batch': 1}",
         "parallel", NULL},
        {"'parallel': {'pp': 4, 'layers_per_chunk': 3}", "parallel.layers_per_chunk", NULL},
        {"'parallel': {'pp': 4, 'layers_per_chunk': 5, 'chunks_per_rank': 5}",
         "parallel.layers_per_chunk", NULL},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
}

TEST(schedule_and_memory)
{
    static const wrong cases[] = {
        {"'schedule': {'kind': '1f1c'}", "schedule.kind", "1f1b"},
        {"'schedule': {'kind': '1f1b'}, 'parallel': {'pp': 2, 'chunks_per_rank': 2}",
         "schedule.kind", NULL},
        {"'schedule': {'kind': 'gpipe'}, 'parallel': {'pp': 2, 'chunks_per_rank': 4}",
         "schedule.kind", NULL},
        {"'parallel': {'chunks_per_rank': 2}", "schedule.kind", NULL},
        {"'memory': {'recompute': 'ful'}", "memory.recompute", "full"},
        {"'memory': {'recompute': 'layernrom'}", "memory.recompute", "layernorm"},
        // As the document is read: packing, which comes before the memory, may take long.
        {"{'model': 'gpt3-6.7b', 'memory': {'model': 'slimpipe-planner'}}", "memory.model", NULL},
        {"'memory': {'model': 'slimpipe-planner', 'offload_ratio': 0.5}", "memory.offload_ratio",
         NULL},
        {"'memory': {'reserve_gib': 80}", "memory.reserve_gib", NULL},
        {"'strategy': {'kind': ''}", "strategy.kind", NULL},
        {"'strategy': {'kind': 'a-name-that-is-as-long-as-none-is'}", "strategy.kind", NULL},
        {"'strategy': {'pad_to': 'longer'}", "strategy.pad_to", "longest"},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
}

TEST(workload)
{
    static const wrong cases[] = {
        {"'workload': {'lengths': [1], 'uniform': 8}", "workload.uniform", NULL},
        {"'workload': {'lengths': 7}", "workload.lengths", NULL},
        {"'workload': {'lengths': []}", "workload.lengths", NULL},
        {"'workload': {'lengths': [5, 0]}", "workload.lengths[1]", NULL},
        {"'workload': {'lengths': [2147483648]}", "workload.lengths[0]", NULL},
        {"'workload': {'lengths': [1.5]}", "workload.lengths[0]", NULL},
        {"'workload': {'lengths': ['9']}", "workload.lengths[0]", NULL},
        {"'workload': {'lengths': [9], 'column': 'x'}", "workload.column", NULL},
        {"'workload': {'column': 'x'}", "workload.column", NULL},
        {"'workload': {'samples_per_batch': 8, 'tokens_per_batch': 8}", "workload.tokens_per_batch",
         NULL},
        {"'parallel': {'dp': 1000000}, 'schedule': {'microbatches': 1000000, 'microbatch_samples': "
         "10000000}",
         "workload.samples_per_batch", NULL},
        {"'workload': {'samples_per_batch': 10000000, 'batches': 11}", "workload.batches", NULL},
        {"'workload': {'over_length': 'trunkate'}", "workload.over_length", "truncate"},
        {"'workload': {'lengths': 'wikipedja'}", "workload.lengths", "wikipedia"},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
}

TEST(uniform_costs)
{
    static const wrong cases[] = {
        {"{'uniform_costs': 3}", "uniform_costs", NULL},
        {"{'uniform_costs': {'b_ms': 1}}", "uniform_costs", NULL},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'wms': 1}}", "uniform_costs", "w_ms"},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'model': 'llama-13b'}", "model", NULL},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'cluster': 'h100-8'}", "cluster", NULL},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'nodes': 1}", "nodes", NULL},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'profile': 'h100'}", "profile", NULL},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'memory': {}}", "memory", NULL},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'workload': {}}", "workload", NULL},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'strategy': {}}", "strategy", NULL},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'parallel': {'tp': 2}}", "parallel.tp", NULL},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'parallel': {'zero': 0}}", "parallel.zero",
         NULL},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'parallel': {'zero_group': 1}}",
         "parallel.zero_group", NULL},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'parallel': {'layers_per_chunk': 1}}",
         "parallel.layers_per_chunk", NULL},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'parallel': {'stage_layers': [1]}}",
         "parallel.stage_layers", NULL},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1}, 'schedule': {'microbatch_samples': 2}}",
         "schedule.microbatch_samples", NULL},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'memory_units': {'f': 1, 'b': -1, 'w': 0.5}}}",
         "uniform_costs.memory_units", NULL},
        {"{'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'memory_units': {'f': 1, 'b': -1}}}",
         "uniform_costs.memory_units", NULL},
        // 1e6 * 4096 * 1024 * 2e6 ms
        {"{'uniform_costs': {'f_ms': 1e6, 'b_ms': 1e6}, 'parallel': {'pp': 4096, "
         "'chunks_per_rank': 1024}, 'schedule': {'microbatches': 1000000}}",
         "uniform_costs", NULL},
    };
    expect_errors(cases, sizeof cases / sizeof cases[0]);
}

TEST(stage_layers)
{
    static const wrong cases[] = {
        {"'parallel': {'pp': 4, 'stage_layers': 10}", "parallel.stage_layers", NULL},
        {"'parallel': {'pp': 4, 'stage_layers': [20, 20]}", "parallel.stage_layers", NULL},
        {"'parallel': {'pp': 2, 'chunks_per_rank': 2, 'stage_layers': [20, 20]}",
         "parallel.stage_layers", NULL},
        {"'parallel': {'stage_layers': []}", "parallel.stage_layers", NULL},
        {"'parallel': {'pp': 2, 'stage_layers': ['x', 40]}", "parallel.stage_layers[0]", NULL},
        {"'parallel': {'pp': 2, 'stage_layers': [19, 20.5]}", "parallel.stage_layers[1]", NULL},
        {"'parallel': {'pp': 2, 'stage_layers': [41, -1]}", "parallel.stage_layers[1]", NULL},
        {"'parallel': {'pp': 4, 'stage_layers': [11, 10, 10, 10]}", "parallel.stage_layers", NULL},
        {"'parallel': {'pp': 4, 'layers_per_chunk': 10, 'stage_layers': [10, 10, 10, 10]}",
         "parallel.stage_layers", NULL},
        // Of a pp that is wrong itself the entries cannot be counted.
        {"'parallel': {'pp': 0, 'stage_layers': [20, 20]}", "parallel.pp", NULL},
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
    AUTO(sp_scenario) s;
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
}

TEST(a_wrong_profile_does_not_hide_other_errors)
{
    AUTO(sp_scenario) s;
    assert_int_equal(fixture_read("{'model': 'llama-13b', 'profile': './none.json', 'cluster': "
                                  "'h100-8', 'parallel': {'pp': 0}}",
                                  &s, ERR),
                     SP_ERR_CONTENT);
    assert_int_equal(ERR->count, 2);
    assert_string_equal(ERR->message[1],
                        "scenario.json: parallel.pp: expected an integer from 1 to 4096, got 0");
}

TEST(files)
{
    AUTO(sp_scenario) s;
    fixture_begin();
    must_fail_with(sp_scenario_read("none.json", NULL, 0, &s, ERR), SP_ERR_IO, "");
    sp_scenario_fini(&s);
    must_fail(sp_scenario_read("marked.json", NULL, 0, &s, ERR), SP_ERR_SYNTAX,
              "marked.json:1:1: a byte order mark (UTF-8 BOM) is no "
              "JSON: save the text without it");
    sp_scenario_fini(&s);
    must_fail_with(sp_scenario_read("syntax.json", NULL, 0, &s, ERR), SP_ERR_SYNTAX, "");
    assert_int_equal(strncmp(ERR->message[0], "syntax.json:2:", 14), 0);
    sp_scenario_fini(&s);
    assert_int_equal(sp_scenario_read("none.json", NULL, 0, &s, NULL), SP_ERR_IO);
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
        AUTO(sp_scenario) s;
        sp_error_clear(ERR);
        assert_int_equal(sp_scenario_read("scenario.json", &cases[i].set, 1, &s, ERR),
                         cases[i].status);
        assert_string_equal(ERR->message[0], cases[i].message);
    }
}

TEST(empty_after_failure)
{
    AUTO(sp_scenario) s;
    assert_int_equal(
        fixture_read("{'model': 'llama-13b', 'workload': {'lengths': [5, 6]}, 'x': 1}", &s, ERR),
        SP_ERR_CONTENT);
    assert_null(s.resolved);
    assert_int_equal(s.lengths.count, 0);
}

TEST(lists_that_cannot_be_read)
{
    static const char *const lists[] = {"'empty.txt'", "'scenario.json'",
                                        "'lengths.csv', 'column': 'yours'"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        AUTO(sp_scenario) s;
        const char *text =
            json_text("{'model': 'llama-13b', 'workload': {'lengths': %s}}", lists[i]);
        assert_int_equal(fixture_read(text, &s, ERR), SP_ERR_CONTENT);
        assert_int_equal(ERR->count, 1);
    }
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
