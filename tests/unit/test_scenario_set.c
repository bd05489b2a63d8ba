// Sets of scenarios: how settings come together, what is refused, and what cases come to.
#include "backends/api/device.h"
#include "experiments/execution/execution.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define HEAD                                                                                 \
    "{'schema': 'slimpack/validation-set/1', 'base': {'model': {'layers': 4, 'hidden': 32, " \
    "'ffn': 48, 'heads': 4, 'kv_heads': 2, 'vocab': 61}, 'cluster': 'h800-8', 'parallel': "  \
    "{'pp': 2}, 'workload': {'lengths': [38, 11, 64, 24, 12, 83, 15, 22], 'order': 'file', " \
    "'samples_per_batch': 8, 'context': 128}}, "

static sp_status read_set(const char *rest, const char *const *overrides, int override_count,
                          sp_scenario_set *set, sp_error *err)
{
    const char *text = json_text("%s%s", HEAD, rest);
    json_t *document = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(document);
    assert_true(sp_is_scenario_set(document));
    return sp_scenario_set_from_json(document, "set.json", overrides, override_count, set, err);
}

static void good_set(const char *rest, const char *const *overrides, int override_count,
                     sp_scenario_set *set)
{
    must_succeed(read_set(rest, overrides, override_count, set, ERR));
}

#define TWO_GROUPS                                                                               \
    "'groups': [{'name': 'a', 'cases': [{'name': 'base'}, {'name': 'wide', 'set': "              \
    "{'parallel.pp': 4}}]}, {'name': 'b', 'set': {'parallel.dp': 2, 'schedule.kind': 'gpipe'}, " \
    "'cases': [{'name': 'own', 'set': {'schedule.kind': 'zb-h1'}}, {'name': 'group'}]}], "       \
    "'bounds': {'iteration_time_mape': 0.25}}"

TEST(settings_count_in_order)
{
    AUTO(sp_scenario_set) set;
    good_set(TWO_GROUPS, NULL, 0, &set);
    assert_int_equal(set.count, 4);
    assert_string_equal(set.cases[1].group, "a");
    assert_string_equal(set.cases[1].name, "wide");
    assert_int_equal(set.cases[0].scenario.layout.pp, 2);
    assert_int_equal(set.cases[1].scenario.layout.pp, 4);
    // The case before leaves nothing behind.
    assert_int_equal(set.cases[2].scenario.layout.pp, 2);
    assert_int_equal(set.cases[2].scenario.layout.dp, 2);
    assert_int_equal(set.cases[2].scenario.schedule.kind, SP_SCHEDULE_ZB_H1);
    assert_int_equal(set.cases[3].scenario.schedule.kind, SP_SCHEDULE_GPIPE);
    assert_true(set.bounds.iteration_time_mape == 0.25);
    assert_true(set.bounds.peak_memory_mape < 0.0);
    sp_scenario_set_fini(&set);
    const char *const last[] = {"schedule.kind=1f1b"};
    good_set(TWO_GROUPS, last, 1, &set);
    assert_int_equal(set.cases[2].scenario.schedule.kind, SP_SCHEDULE_1F1B);
}

static void refuses(const char *rest, const char *message)
{
    sp_scenario_set set;
    must_fail_with(read_set(rest, NULL, 0, &set, ERR), SP_ERR_CONTENT, "");
    must_hold(strstr(ERR->message[0], message) != NULL, "expected '%s', got '%s'", message,
              ERR->message[0]);
}

TEST(names_what_is_wrong)
{
    refuses("'cases': []}", "groups");
    refuses("'groups': [{'name': 'a', 'cases': []}]}", "groups[0].cases");
    refuses("'groups': [{'name': 'a', 'cases': [{'set': {}}]}]}",
            "groups[0].cases[0]: key 'name' is missing");
    refuses("'groups': [{'name': 'a', 'cases': [{'name': 'x', 'sets': {}}]}]}", "'sets'");
    refuses("'groups': [{'name': 'a', 'cases': [{'name': 'x', 'set': {'parallel.pq': 2}}]}]}",
            "set.json: a: x: parallel");
    refuses("'groups': [{'name': 'a', 'cases': [{'name': 'x', 'set': {'parallel.pp': 3}}]}]}",
            "set.json: a: x");
    refuses("'groups': [{'name': 'a', 'cases': [{'name': 'x'}]}], 'bounds': {'time': 1}}",
            "'time'");
}

// ---- execution ----

typedef struct executed {
    sp_registry *registry;
    sp_scenario_set set;
    sp_case_outcome outcomes[4];
} executed;

static void execute(const char *backend, const char *rest, executed *e)
{
    sp_execution_options options = {
        .precision = SP_FP32, .seed = 1, .steps = 2, .compare_memory = true};
    good_set(rest, NULL, 0, &e->set);
    assert_true(e->set.count <= 4);
    must_succeed(sp_registry_new(&e->registry, ERR));
    must_succeed(sp_registry_find(e->registry, backend, &options.backend, ERR));
    for (size_t i = 0; i < e->set.count; i++) {
        must_succeed(sp_set_run_case(&e->set.cases[i], &options, &e->outcomes[i], ERR));
    }
}

static void executed_fini(executed *e)
{
    sp_registry_free(e->registry);
    sp_scenario_set_fini(&e->set);
}

// The fake backend takes the simulator's durations and memory.
TEST(exact_cases_have_no_error)
{
    AUTO(executed) e;
    sp_set_summary summary;
    execute("fake", TWO_GROUPS, &e);
    sp_set_summarize(e.outcomes, e.set.count, &e.set.bounds, &summary);
    assert_int_equal(summary.of_status[SP_CASE_OK], 4);
    assert_int_equal(summary.compared, 4);
    assert_int_equal(summary.memory_exact, 4);
    assert_true(summary.iteration_time_mape == 0.0);
    assert_true(summary.largest_bubble_error == 0.0);
    assert_true(summary.peak_memory_mape == 0.0);
    assert_true(summary.within_bounds);
    assert_true(e.outcomes[0].measured_ms > 0.0);
}

// No backend runs GEGLU; a case without a plan and one that is refused are counted as
// what they are.
TEST(refused_cases_are_no_success)
{
    AUTO(executed) e;
    sp_set_summary summary;
    execute("host",
            "'groups': [{'name': 'g', 'cases': [{'name': 'geglu', 'set': {'model.activation': "
            "'geglu'}}, "
            "{'name': 'good'}]}]}",
            &e);
    sp_set_summarize(e.outcomes, e.set.count, &e.set.bounds, &summary);
    assert_int_equal(e.outcomes[0].status, SP_CASE_CANNOT_EXECUTE);
    assert_non_null(strstr(e.outcomes[0].reason, "GEGLU"));
    assert_int_equal(e.outcomes[1].status, SP_CASE_OK);
    assert_int_equal(summary.of_status[SP_CASE_CANNOT_EXECUTE], 1);
    assert_int_equal(summary.compared, 1);
}

// ---- means ----

static sp_case_outcome outcome(double time, double bubble, double peak, uint32_t differs)
{
    return (sp_case_outcome){
        .error = {time, bubble, peak}, .memory_compared = true, .memory_differs = differs};
}

TEST(means_follow_their_definitions)
{
    const uint32_t work_space = UINT32_C(1) << SP_MEM_WORKSPACE;
    const uint32_t logits = UINT32_C(1) << SP_MEM_LOGITS;
    const sp_case_outcome outcomes[] = {outcome(0.1, -0.02, 0.3, work_space),
                                        outcome(-0.3, 0.01, 0.1, logits),
                                        {.status = SP_CASE_CANNOT_EXECUTE}};
    sp_scenario_set_bounds bounds = {0.2, 0.02, 0.25};
    sp_set_summary summary;
    sp_set_summarize(outcomes, 3, &bounds, &summary);
    assert_int_equal(summary.compared, 2);
    assert_within(summary.iteration_time_mape, 0.2, 1e-15);
    assert_true(fabs(summary.iteration_time_bias + 0.1) < 1e-15);
    assert_true(summary.largest_bubble_error == 0.02);
    assert_within(summary.peak_memory_mape, 0.2, 1e-15);
    assert_int_equal(summary.memory_exact, 1);
    assert_true(summary.within_bounds);
    bounds.bubble_ratio_abs = 0.019;
    sp_set_summarize(outcomes, 3, &bounds, &summary);
    assert_false(summary.within_bounds);
}

// Nothing known is not within a bound, and without a bound it is no miss.
TEST(nothing_executed_is_outside_bounds)
{
    const sp_case_outcome none = {.status = SP_CASE_INFEASIBLE};
    sp_scenario_set_bounds bounds = {0.5, -1.0, -1.0};
    sp_set_summary summary;
    sp_set_summarize(&none, 1, &bounds, &summary);
    assert_true(isnan(summary.iteration_time_mape));
    assert_false(summary.within_bounds);
    bounds.iteration_time_mape = -1.0;
    sp_set_summarize(&none, 1, &bounds, &summary);
    assert_true(summary.within_bounds);
}

// ---- cases on a machine whose speed changes ----

#define UNKNOWN ((double)NAN)

static sp_case_outcome run_of(double ms, double speed)
{
    bool steady = fabs(speed - 1.0) <= SP_STEADY_SPEED;
    return (sp_case_outcome){.measured_ms = ms, .speed = speed, .steady = steady};
}

static void shows(int expected, const sp_case_outcome *runs, int count)
{
    assert_int_equal(sp_set_steady_run(runs, count) - runs, expected);
}

// The fastest and the slowest run had another speed and do not count.
TEST(median_of_the_steady_runs)
{
    const sp_case_outcome odd[] = {run_of(9, 0.7), run_of(5, 1.0), run_of(1, 1.4), run_of(7, 0.96),
                                   run_of(6, 1.04)};
    shows(4, odd, 5);
    shows(1, odd, 4); // of 5 and 7 the faster
    const sp_case_outcome equal[] = {run_of(5, 1.0), run_of(5, 1.0), run_of(5, 1.0)};
    shows(1, equal, 3);
}

TEST(nearest_where_none_is_steady)
{
    const sp_case_outcome runs[] = {run_of(9, 0.5), run_of(5, 1.5), run_of(6, 0.8)};
    shows(2, runs, 3);
    shows(1, runs, 2); // half is farther than one and a half times
}

TEST(median_of_all_without_speeds)
{
    const sp_case_outcome runs[] = {run_of(9, UNKNOWN), run_of(5, UNKNOWN), run_of(6, UNKNOWN)};
    shows(2, runs, 3);
    shows(0, runs, 1);
}

#define SET                                                                                    \
    "{'schema': 'slimpack/validation-set/1', 'base': {'model': {'layers': 2, 'hidden': 16, "   \
    "'ffn': 24, 'heads': 2, 'vocab': 31}, 'cluster': 'host', 'profile': 'host', 'parallel': "  \
    "{'pp': 2}, 'workload': {'lengths': [12, 7, 20], 'order': 'file', 'samples_per_batch': 3," \
    "'context': 32}}, 'groups': [{'name': 'g', 'cases': [{'name': 'c'}]}]}"

// With a profile whose reference work took so many seconds.
static void run_case(const char *backend, double reference_s, int repeat, sp_case_outcome *outcome)
{
    AUTO(sp_scenario_set) set;
    sp_registry *registry;
    sp_execution_options options = {.precision = SP_FP32, .seed = 1, .steps = 1};
    const char *text = json_text("%s", SET);
    must_succeed(
        sp_scenario_set_from_json(json_loads(text, 0, NULL), "set.json", NULL, 0, &set, ERR));
    set.cases[0].scenario.profile.reference_s = reference_s;
    must_succeed(sp_registry_new(&registry, ERR));
    must_succeed(sp_registry_find(registry, backend, &options.backend, ERR));
    must_succeed(sp_set_run_steady_case(&set.cases[0], &options, repeat, outcome, ERR));
    sp_registry_free(registry);
}

TEST(as_many_runs_as_asked_for)
{
    sp_case_outcome outcome;
    run_case("host", 0.0, 2, &outcome); // the profile states no reference
    assert_int_equal(outcome.runs, 2);
    assert_true(isnan(outcome.speed) && !outcome.steady);
    run_case("fake", 1.0, 3, &outcome); // the backend has none
    assert_int_equal(outcome.runs, 3);
    assert_true(isnan(outcome.speed) && !outcome.steady);
}

// A machine that took an hour for what takes less than a second now never has that speed again.
TEST(repeats_in_vain)
{
    sp_case_outcome outcome;
    run_case("host", 3600.0, 2, &outcome);
    assert_int_equal(outcome.runs, SP_RUNS_PER_REPEAT * 2);
    assert_true(outcome.speed > 10.0 && !outcome.steady);
    assert_true(outcome.measured_ms > 0.0);
}
