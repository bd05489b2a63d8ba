// The wall clock of the CPU executor: ranks work side by side, each in one thread, and where they
// have to share cores the result says so.
#include <time.h>

#include "experiments/execution/execution.h"
#include "tests/support/host_run.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define SCENARIO                                                                              \
    "{'model': {'layers': 12, 'hidden': 64, 'ffn': 96, 'heads': 4, 'kv_heads': 2, 'vocab': "  \
    "61}, 'cluster': 'host', 'schedule': {'kind': '1f1b'}, 'workload': {'lengths': [90, 80, " \
    "100, 95, 85, 100, 75, 90], 'order': 'file', 'samples_per_batch': 8, 'context': 100}, "   \
    "'parallel': "

typedef struct fixture {
    host_device device;
    sp_scenario scenario;
    sp_execution_options options;
    sp_execution execution;
    int overlaps; // of actions on two ranks, in the step that is shown
} fixture;

static bool overlap(const sp_span *a, const sp_span *b)
{
    return a->start_ns < b->end_ns && b->start_ns < a->end_ns;
}

// Of the first two ranks.
static sp_status count_overlaps(void *context, const sp_step_view *predicted,
                                const sp_step_view *measured, sp_error *err)
{
    fixture *f = context;
    const sp_rank_timeline *ranks = measured->timeline->ranks;
    f->overlaps = 0;
    for (size_t i = 0; measured->timeline->rank_count > 1 && i < ranks[0].count; i++) {
        for (size_t j = 0; j < ranks[1].count; j++) {
            f->overlaps += overlap(&ranks[0].spans[i], &ranks[1].spans[j]);
        }
    }
    return SP_OK;
}

static void execute(fixture *f, const char *parallel, sp_clock clock)
{
    char text[1024];
    *f = (fixture){.options = {.clock = clock, .precision = SP_FP32, .seed = 1, .steps = 2}};
    snprintf(text, sizeof text, "%s%s}", SCENARIO, parallel);
    must_succeed(run_read(text, &f->scenario, ERR));
    host_open(&f->device);
    f->options.backend = f->device.backend;
    f->options.observer = count_overlaps;
    f->options.observer_context = f;
    must_succeed(sp_execution_run(&f->scenario, &f->options, &f->execution, ERR));
}

static void fixture_fini(fixture *f)
{
    sp_execution_fini(&f->execution);
    host_device_fini(&f->device);
    sp_scenario_fini(&f->scenario);
}

// Two stages with actions of milliseconds: both are inside of one at the same time, on two cores
// because they run there, on one because it goes back and forth between them.
TEST(stages_work_at_once)
{
    AUTO(fixture) f;
    execute(&f, "{'pp': 2}", SP_CLOCK_WALL);
    assert_true(f.overlaps > 0);
}

static int64_t cpu_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// One rank works on the thread of its caller. Whatever a library did in threads of its own would
// be in the processor time of the process alone: products on a second thread would double it, while
// threads that a library only starts and stops wait for a moment in the first run.
TEST(a_rank_is_one_thread)
{
    AUTO(fixture) f;
    execute(&f, "{'pp': 1}", SP_CLOCK_WALL);
    fixture_fini(&f);
    int64_t process_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    int64_t thread_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    execute(&f, "{'pp': 1}", SP_CLOCK_WALL);
    thread_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID) - thread_ns;
    process_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - process_ns;
    assert_true(thread_ns > 1000000);
    assert_true((double)process_ns <= 1.3 * (double)thread_ns);
}

static bool warns(const sp_result *result, const char *text)
{
    bool found = false;
    for (int i = 0; i < result->warnings.count; i++) {
        found = found || strcmp(result->warnings.text[i], text) == 0;
    }
    return found;
}

TEST(shared_cores_are_said)
{
    fixture f;
    sp_device_info device;
    char warning[128];
    static const char *const layouts[] = {"{'pp': 6, 'dp': 2}", "{'pp': 6, 'dp': 2}", "{'pp': 1}"};
    static const sp_clock clocks[] = {SP_CLOCK_WALL, SP_CLOCK_VIRTUAL, SP_CLOCK_WALL};
    for (int i = 0; i < 3; i++) {
        execute(&f, layouts[i], clocks[i]);
        assert_int_equal(sp_backend_device_info(f.device.backend, 0, &device, NULL), SP_OK);
        assert_true(device.cores >= 1);
        snprintf(warning, sizeof warning,
                 "12 ranks share %lld core%s: times are not those of side-by-side ranks",
                 (long long)device.cores, device.cores == 1 ? "" : "s");
        assert_true(warns(&f.execution.measured, warning) == (i == 0 && device.cores < 12));
        assert_false(warns(&f.execution.predicted, warning));
        fixture_fini(&f);
    }
}
