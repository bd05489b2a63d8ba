// Cases on a machine whose speed changes: which run stands for several, and how many are made.
#include "backends/api/device.h"
#include "experiments/execution/scenario_set.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

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

// ---- runs ----

#define SET                                                                                    \
    "{'schema': 'slimpack/validation-set/1', 'base': {'model': {'layers': 2, 'hidden': 16, "   \
    "'ffn': 24, 'heads': 2, 'vocab': 31}, 'cluster': 'host', 'profile': 'host', 'parallel': "  \
    "{'pp': 2}, 'workload': {'lengths': [12, 7, 20], 'order': 'file', 'samples_per_batch': 3," \
    "'context': 32}}, 'groups': [{'name': 'g', 'cases': [{'name': 'c'}]}]}"

// With a profile whose reference work took so many seconds.
static void run_case(const char *backend, double reference_s, int repeat, sp_case_outcome *outcome)
{
    sp_scenario_set set;
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
    sp_scenario_set_fini(&set);
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
