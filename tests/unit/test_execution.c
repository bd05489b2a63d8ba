// Plans predicted and executed with the backend that takes the simulator's durations.
#include "backends/api/device.h"
#include "experiments/execution/execution.h"
#include "sim/plan/timeline.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define SCENARIO                                                                              \
    "{'model': {'layers': 4, 'hidden': 32, 'ffn': 48, 'heads': 4, 'kv_heads': 2, 'vocab': "   \
    "61}, 'cluster': 'h800-8', 'parallel': {'pp': 2, 'dp': 2}, 'schedule': {'kind': '1f1b'}," \
    "'workload': {'lengths': [38, 11, 64, 24, 12, 83, 15, 22], 'order': 'file', "             \
    "'samples_per_batch': 4, 'batches': 2, 'context': 128}}"

typedef struct fixture {
    sp_registry *registry;
    sp_scenario scenario;
    sp_execution_options options;
} fixture;

static void open_fixture(fixture *f)
{
    *f = (fixture){.options = {.precision = SP_FP32, .seed = 3, .steps = 3}};
    f->options.compare_memory = true;
    must_succeed(run_read(SCENARIO, &f->scenario, ERR));
    must_succeed(sp_registry_new(&f->registry, ERR));
    must_succeed(sp_registry_find(f->registry, "fake", &f->options.backend, ERR));
}

static void fixture_fini(fixture *f)
{
    sp_registry_free(f->registry);
    sp_scenario_fini(&f->scenario);
}

// Of an odd number the middle; of an even one the faster of the two in the middle; the first of
// several steps never.
TEST(median_step_is_in_the_middle)
{
    const sp_executed_step one[] = {{.iteration_ns = 9}};
    const sp_executed_step two[] = {{.iteration_ns = 1}, {.iteration_ns = 9}};
    const sp_executed_step four[] = {
        {.iteration_ns = 5}, {.iteration_ns = 9}, {.iteration_ns = 3}, {.iteration_ns = 4}};
    const sp_executed_step equal[] = {
        {.iteration_ns = 5}, {.iteration_ns = 7}, {.iteration_ns = 7}, {.iteration_ns = 7}};
    assert_int_equal(sp_execution_median_step(one, 1), 0);
    assert_int_equal(sp_execution_median_step(two, 2), 1);
    assert_int_equal(sp_execution_median_step(four, 4), 3);
    assert_int_equal(sp_execution_median_step(four, 3), 2);
    assert_int_equal(sp_execution_median_step(equal, 4), 2);
}

static sp_status compare_views(void *context, const sp_step_view *predicted,
                               const sp_step_view *measured, sp_error *err)
{
    int *calls = context;
    assert_int_equal(predicted->batch, *calls);
    assert_int_equal(measured->batch, *calls);
    assert_true(predicted->plan == measured->plan);
    assert_int_equal(predicted->timeline->iteration_ns, measured->timeline->iteration_ns);
    (*calls)++;
    return SP_OK;
}

TEST(durations_of_the_simulator_give_no_error)
{
    AUTO(fixture) f;
    AUTO(sp_execution) execution;
    int calls = 0;
    open_fixture(&f);
    f.options.observer = compare_views;
    f.options.observer_context = &calls;
    must_succeed(sp_execution_run(&f.scenario, &f.options, &execution, ERR));
    const sp_execution_error error = sp_execution_compare(&execution);
    assert_true(error.iteration_time == 0.0);
    assert_true(error.bubble_ratio == 0.0);
    assert_true(error.peak_memory_mape == 0.0);
    assert_int_equal(calls, 2);
    assert_int_equal(execution.batch_count, 2);
    assert_int_equal(execution.batches[1].step_count, 3);
    for (int r = 0; r < 4; r++) {
        assert_memory_equal(&execution.held[r].predicted, &execution.held[r].measured,
                            sizeof(sp_bytes));
        assert_true(execution.held[r].measured.of[SP_MEM_ACTIVATIONS] > 0);
    }
}

static sp_execution_error executed(const char *backend, const char *stack, char name[SP_STACK_NAME])
{
    AUTO(fixture) f;
    AUTO(sp_execution) execution;
    open_fixture(&f);
    must_succeed(sp_registry_find(f.registry, backend, &f.options.backend, ERR));
    if (stack != NULL) {
        assert_true(sp_stack_builtin(stack, &f.scenario.memory.stack));
        f.scenario.stack_given = true;
    }
    must_succeed(sp_execution_run(&f.scenario, &f.options, &execution, ERR));
    const sp_execution_error error = sp_execution_compare(&execution);
    snprintf(name, SP_STACK_NAME, "%s", execution.stack.name);
    return error;
}

// A stated stack beats the backend's own, which beats the default. That of the CPU executor gives
// its peak to the byte; others have work spaces of 96 MiB beside a model of some KiB.
TEST(backends_name_their_stack)
{
    char name[SP_STACK_NAME];
    assert_true(executed("host", NULL, name).peak_memory_mape == 0.0);
    assert_string_equal(name, "reference");
    assert_true(executed("host", "ours", name).peak_memory_mape > 10.0);
    assert_string_equal(name, "ours");
    executed("fake", NULL, name);
    assert_string_equal(name, "megatron-core-2024"); // of the cluster's profile
}

TEST(errors_are_predicted_over_measured)
{
    assert_true(sp_relative_error(3.0, 2.0) == 0.5);
    assert_true(sp_relative_error(1.0, 2.0) == -0.5);
    assert_true(sp_relative_error(0.0, 0.0) == 0.0);
    assert_true(isnan(sp_relative_error(1.0, 0.0)));
    AUTO(fixture) f;
    AUTO(sp_execution) execution;
    const sp_backend_option jitter = {.key = "jitter", .value = "0.5"};
    open_fixture(&f);
    f.options.options = &jitter;
    f.options.option_count = 1;
    must_succeed(sp_execution_run(&f.scenario, &f.options, &execution, ERR));
    double error = sp_execution_compare(&execution).iteration_time;
    double predicted_ms = sp_result_iteration_ms(&execution.predicted);
    double measured_ms = sp_result_iteration_ms(&execution.measured);
    assert_true(error != 0.0);
    assert_within((error + 1.0) * measured_ms / predicted_ms, 1.0, 1e-12);
}

// What is held after an action is the point of its end, not what the next one adds at that time.
TEST(transients_are_not_held)
{
    enum { A = SP_MEM_ACTIVATIONS, W = SP_MEM_WORKSPACE };
    sp_span spans[] = {{.start_ns = 0, .end_ns = 10}, {.start_ns = 10, .end_ns = 20}};
    const int alike[] = {0, 2};
    sp_rank_timeline rank = {.pp = 1, .alike = 2, .dp_alike = alike, .spans = spans, .count = 2};
    sp_memory_point points[] = {{.time_ns = 0, .bytes = {.of = {[A] = 5, [W] = 90}}},
                                {.time_ns = 10, .bytes = {.of = {[A] = 4}}},
                                {.time_ns = 10, .bytes = {.of = {[A] = 4, [W] = 80}}},
                                {.time_ns = 20, .bytes = {.of = {[A] = 1, [W] = 2}}}};
    sp_rank_memory held_by = {.points = points, .point_count = 4};
    const sp_timeline timeline = {.ranks = &rank, .rank_count = 1};
    const sp_memory_timeline memory = {.ranks = &held_by, .rank_count = 1};
    sp_held_memory held[6] = {0};
    sp_held_memory_add(held, 2, &timeline, &memory, true);
    for (int i = 0; i < 6; i++) {
        bool one_of_them = i == 1 || i == 5;
        assert_int_equal(held[i].measured.of[A], one_of_them ? 4 : 0);
        assert_int_equal(held[i].measured.of[W], one_of_them ? 2 : 0);
        assert_int_equal(held[i].predicted.of[A], 0);
    }
}

TEST(json_states_both_results)
{
    AUTO(fixture) f;
    AUTO(sp_execution) execution;
    open_fixture(&f);
    must_succeed(sp_execution_run(&f.scenario, &f.options, &execution, ERR));
    json_auto_t *root = sp_execution_validation_json(&execution);
    const char *const keys[] = {"schema", "clock", "predicted", "measured", "error", "ranks"};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        assert_non_null(json_object_get(root, keys[k]));
    }
    assert_int_equal(json_array_size(json_object_get(root, "ranks")), 4);
    json_auto_t *result = sp_execution_result_json(&execution);
    assert_non_null(json_object_get(json_object_get(result, "execution"), "batches"));
}

TEST(failures_leave_nothing_behind)
{
    AUTO(fixture) f;
    sp_execution execution;
    const sp_backend_option fail = {.key = "fail", .value = "F1"};
    open_fixture(&f);
    f.options.options = &fail;
    f.options.option_count = 1;
    sp_status failed = sp_execution_run(&f.scenario, &f.options, &execution, ERR);
    assert_int_equal(failed, SP_ERR_INTERNAL);
}
