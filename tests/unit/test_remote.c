// Cases of a set that another machine executes: what comes out is what executing here gives.
#include "backends/api/device.h"
#include "experiments/execution/execution.h"
#include "sim/base/json.h"
#include "tests/support/host_run.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define SET                                                                                      \
    "{'schema': 'slimpack/validation-set/1', 'base': {'model': {'layers': 4, 'hidden': 32, "     \
    "'ffn': 48, 'heads': 4, 'kv_heads': 2, 'vocab': 61}, 'cluster': 'h800-8', 'parallel': "      \
    "{'pp': 2}, 'workload': {'lengths': [38, 11, 64, 24, 12, 83, 15, 22], 'order': 'file', "     \
    "'samples_per_batch': 4, 'batches': 2, 'context': 128}}, 'groups': [{'name': 'a', 'clock': " \
    "'wall', 'cases': [{'name': '1F1B, packed (pp 2)'}, {'name': 'slimpack', 'clock': "          \
    "'virtual', 'set': {'strategy.kind': 'slimpack'}}, {'name': 'wide', 'set': "                 \
    "{'model.hidden': 64, 'model.head_dim': 8}}]}, {'name': 'b', 'cases': [{'name': 'own'}]}]}"

typedef struct fixture {
    host_device device;
    sp_scenario_set set;
    sp_execution_options options;
} fixture;

static void open_fixture(fixture *f)
{
    host_open(&f->device);
    const char *text = json_text("%s", SET);
    must_succeed(
        sp_scenario_set_from_json(json_loads(text, 0, NULL), "set", NULL, 0, &f->set, ERR));
    f->options = (sp_execution_options){.backend = f->device.backend,
                                        .precision = SP_FP64,
                                        .seed = 3,
                                        .steps = 2,
                                        .compare_memory = true};
}

static void fixture_fini(fixture *f)
{
    sp_scenario_set_fini(&f->set);
    host_device_fini(&f->device);
}

TEST(clocks_of_groups_and_cases)
{
    AUTO(fixture) f;
    open_fixture(&f);
    assert_string_equal(f.set.cases[0].clock, "wall");
    assert_string_equal(f.set.cases[1].clock, "virtual");
    assert_string_equal(f.set.cases[2].clock, "wall");
    assert_null(f.set.cases[3].clock);
}

TEST(files_are_named_after_cases)
{
    char name[SP_CASE_FILE];
    char text[3 * SP_CASE_FILE];
    sp_scenario_case of = {.name = "1F1B, packed (pp 2)"};
    sp_case_file_name(&of, 0, name);
    assert_string_equal(name, "01-1f1b-packed-pp-2");
    of.name = "...";
    sp_case_file_name(&of, 98, name);
    assert_string_equal(name, "99");
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    of.name = text;
    sp_case_file_name(&of, 99, name);
    assert_true(strncmp(name, "100-xxxx", 8) == 0 && strlen(name) < SP_CASE_FILE);
}

// What `slimpack run --record` does on the other machine.
static void execute_remotely(const sp_execution_options *options, const char *plan,
                             const char *record)
{
    AUTO(sp_plan_input) in;
    AUTO(sp_execution) execution;
    must_succeed(sp_plan_input_read(plan, &in, ERR));
    must_succeed(sp_execution_run_recorded(&in, options, record, &execution, ERR));
}

// A record of an execution that came to nothing.
static void fail_remotely(const sp_execution_options *options, const char *plan, const char *record,
                          sp_status status, const char *reason)
{
    AUTO(sp_plan_input) in;
    const sp_run_request run = {.seed = 1, .steps = options->steps};
    must_succeed(sp_plan_input_read(plan, &in, ERR));
    json_auto_t *document =
        sp_result_document(sp_backend_name(options->backend), &run, in.root, NULL, status, reason);
    assert_int_equal(json_dump_file(document, record, 0), 0);
}

// Losses and memory of both ways are the same bits; times are the machine's.
TEST(remote_execution_is_the_local_one)
{
    AUTO(fixture) f;
    open_fixture(&f);
    for (size_t i = 0; i < 2; i++) {
        const sp_scenario_case *of = &f.set.cases[i];
        sp_case_outcome exported, here, there;
        AUTO(sp_result_file) executed;
        AUTO(sp_execution) direct, recalled;
        f.options.executed = NULL;
        f.options.memory_points = true;
        // No output may replace an input of this process.
        remove("case.json");
        remove("case.result.json");
        must_succeed(sp_set_export_case(of, &f.options, "case.json", &exported, ERR));
        assert_int_equal(exported.status, SP_CASE_OK);
        execute_remotely(&f.options, "case.json", "case.result.json");
        must_succeed(sp_set_run_case(of, &f.options, &here, ERR));
        must_succeed(sp_execution_run(&of->scenario, &f.options, &direct, ERR));
        must_succeed(
            sp_set_read_executed(of, f.device.backend, "case.result.json", &executed, ERR));
        f.options.executed = &executed;
        must_succeed(sp_set_run_case(of, &f.options, &there, ERR));
        must_succeed(sp_execution_run(&of->scenario, &f.options, &recalled, ERR));
        assert_int_equal(there.status, here.status);
        assert_true(there.predicted_ms == here.predicted_ms);
        assert_true(there.predicted_ms == exported.predicted_ms);
        assert_true(there.predicted_bubble == here.predicted_bubble);
        assert_true(there.measured_peak_bytes == here.measured_peak_bytes);
        assert_true(there.error.peak_memory_mape == here.error.peak_memory_mape);
        assert_true(there.memory_compared && sp_case_memory_is_exact(&there));
        assert_string_equal(there.device, here.device);
        assert_int_equal(direct.batch_count, 2);
        assert_int_equal(recalled.batch_count, 2);
        for (size_t b = 0; b < 2; b++) {
            assert_int_equal(recalled.batches[b].step_count, 2);
            for (int s = 0; s < 2; s++) {
                assert_true(recalled.batches[b].steps[s].loss == direct.batches[b].steps[s].loss);
            }
            assert_true(executed.batches[b].steps[recalled.batches[b].shown].iteration_ns ==
                        recalled.batches[b].steps[recalled.batches[b].shown].iteration_ns);
        }
        for (size_t r = 0; r < 2; r++) {
            assert_memory_equal(&recalled.held[r], &direct.held[r], sizeof direct.held[r]);
        }
    }
}

// Of another case, of another backend, of none.
TEST(results_of_others_are_refused)
{
    AUTO(fixture) f;
    sp_backend *cuda;
    sp_case_outcome outcome;
    sp_result_file executed;
    open_fixture(&f);
    must_succeed(sp_set_export_case(&f.set.cases[0], &f.options, "one.json", &outcome, ERR));
    fail_remotely(&f.options, "one.json", "one.result.json", SP_ERR_LIMIT, "no time");
    must_fail(
        sp_set_read_executed(&f.set.cases[2], f.device.backend, "one.result.json", &executed, ERR),
        SP_ERR_CONTENT, "one.result.json: model.hidden: executed with 32, the scenario has 64");
    must_succeed(sp_backend_absent_new("cuda", &cuda, ERR));
    must_fail(sp_set_read_executed(&f.set.cases[0], cuda, "one.result.json", &executed, ERR),
              SP_ERR_CONTENT, "one.result.json: request.backend: expected \"cuda\", got \"host\"");
    sp_backend_free(cuda);
    must_fail_with(
        sp_set_read_executed(&f.set.cases[0], f.device.backend, "none.result.json", &executed, ERR),
        SP_ERR_IO, "");
}

// What ended an execution there is what the case comes to here; an error there is none here.
TEST(remote_failures_are_outcomes)
{
    static const struct {
        sp_status status;
        sp_case_status outcome;
    } cases[] = {{SP_ERR_LIMIT, SP_CASE_FAILED},          {SP_ERR_INTERNAL, SP_CASE_FAILED},
                 {SP_ERR_NO_MEMORY, SP_CASE_FAILED},      {SP_ERR_IO, SP_CASE_FAILED},
                 {SP_ERR_USAGE, SP_CASE_CANNOT_EXECUTE},  {SP_ERR_CONTENT, SP_CASE_CANNOT_EXECUTE},
                 {SP_ERR_INFEASIBLE, SP_CASE_INFEASIBLE}, {SP_ERR_DEADLOCK, SP_CASE_FAILED}};
    AUTO(fixture) f;
    sp_case_outcome outcome;
    const sp_scenario_case *of;
    open_fixture(&f);
    of = &f.set.cases[0];
    must_succeed(sp_set_export_case(of, &f.options, "two.json", &outcome, ERR));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO(sp_result_file) executed;
        fail_remotely(&f.options, "two.json", "two.result.json", cases[i].status, "the reason");
        must_succeed(sp_set_read_executed(of, f.device.backend, "two.result.json", &executed, ERR));
        f.options.executed = &executed;
        must_succeed(sp_set_run_case(of, &f.options, &outcome, ERR));
        assert_int_equal(outcome.status, cases[i].outcome);
        assert_string_equal(outcome.reason, "the reason");
    }
}

TEST(absent_backends_have_no_device)
{
    sp_backend *backend;
    sp_device_info info;
    int count = 7;
    must_succeed(sp_backend_absent_new("remote", &backend, ERR));
    must_succeed(sp_backend_device_count(backend, &count, ERR));
    assert_int_equal(count, 0);
    assert_string_equal(sp_backend_name(backend), "remote");
    assert_null(sp_backend_stack(backend));
    assert_int_equal(sp_backend_device_info(backend, 0, &info, ERR), SP_ERR_USAGE);
    sp_backend_free(backend);
    must_fail_with(sp_backend_absent_new("No Name", &backend, ERR), SP_ERR_CONTENT, "");
}
