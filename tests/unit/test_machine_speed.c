// Without a limit of time the plan is the same however fast the machine is. This program's clock
// stands in for the C library's, also for GLPK: every look at it is a step later.
#include <jansson.h>
#include <sys/time.h>
#include <time.h>

#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static struct {
    int64_t now_ns, step_ns;
} fake;

static int64_t look(void)
{
    return __atomic_add_fetch(&fake.now_ns, fake.step_ns, __ATOMIC_RELAXED);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    int64_t ns = look();
    *now = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return 0;
}

// The type of its second argument differs from one C library to the next.
int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    (void)zone;
    int64_t ns = look();
    *now = (struct timeval){.tv_sec = ns / 1000000000, .tv_usec = ns / 1000 % 1000000};
    return 0;
}

clock_t clock(void)
{
    return (clock_t)(look() / (1000000000 / CLOCKS_PER_SEC));
}

// The result without what is a time of this machine.
static char *result_text(const char *scenario)
{
    scenario_run r;
    run_good(scenario, &(sp_evaluate_options){0}, &r);
    json_t *object = sp_result_json(&r.result, true);
    json_object_del(object, "solver_ms");
    json_object_del(object, "simulate_ms");
    size_t b;
    json_t *batch;
    json_array_foreach (json_object_get(object, "batches"), b, batch) {
        json_object_del(batch, "solver_ms");
        json_object_del(batch, "simulate_ms");
    }
    char *text = json_dumps(object, JSON_INDENT(1));
    assert_non_null(text);
    json_decref(object);
    run_fini(&r);
    return text;
}

// On a machine that needs no time, and on one that needs a millisecond from one look at the clock
// to the next, a thousand times as long as today's.
static void assert_same_on(const char *scenario)
{
    fake.now_ns = 0;
    fake.step_ns = 0;
    char *fast = result_text(scenario);
    fake.step_ns = 1000000;
    char *slow = result_text(scenario);
    assert_true(fake.now_ns > 0);
    assert_string_equal(fast, slow);
    free(fast);
    free(slow);
}

// 23 samples on 4 ranks: the integer program has thousands of nodes left after a second.
#define SAMPLES                                                                                 \
    "[222, 456, 497, 438, 106, 354, 125, 67, 428, 23, 123, 167, 356, 249, 100, 158, 119, 412, " \
    "461, 343, 413, 215, 292]"

TEST(assignment_to_ranks)
{
    assert_same_on("{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'tp': 1, 'pp': 2, "
                   "'dp': 4, 'zero': 3}, 'memory': {'limit_gib': 2000, 'recompute': 'activation'},"
                   " 'workload': {'lengths': " SAMPLES ", 'context': 4096, 'samples_per_batch': 23,"
                   " 'seed': 54}, 'strategy': {'kind': 'slimpack'}}");
}

TEST(groups_of_flexsp)
{
    assert_same_on(
        "{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'tp': 1, 'dp': 8}, "
        "'memory': {'limit_gib': 2000}, 'workload': {'lengths': 'wikipedia', 'context': "
        "32768, 'samples_per_batch': 256}, 'strategy': {'kind': 'flexsp', 'rank_tokens': "
        "4096}}");
}

// Every strategy, on several ranks and stages.
TEST(every_strategy)
{
    for (int i = 0; sp_strategy_names[i] != NULL; i++) {
        const char *text = json_text(
            TINY_MODEL "'cluster': 'h100-8', 'parallel': {'pp': 2, 'dp': 4}, 'workload': "
                       "{'lengths': 'wikipedia', 'context': 16384, 'samples_per_batch': 40}, "
                       "'strategy': {'kind': '%s'}}",
            sp_strategy_names[i]);
        assert_same_on(text);
    }
}

// The stand-in is what the solver looks at: with a limit of time a slow machine gets less far.
TEST(limits_of_time_are_seen)
{
    scenario_run r[2];
    for (int slow = 0; slow < 2; slow++) {
        fake.now_ns = 0;
        fake.step_ns = slow * (int64_t)100000000;
        run_good("{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'tp': 4, 'pp': 4, 'dp': "
                 "2}, 'workload': {'lengths': " SAMPLES ", 'context': 4096}, 'strategy': {'kind': "
                 "'slimpack', 'time_limit_ms': 1000}}",
                 &(sp_evaluate_options){0}, &r[slow]);
    }
    assert_true(sp_result_iteration_ms(&r[1].result) > sp_result_iteration_ms(&r[0].result));
    run_fini(&r[0]);
    run_fini(&r[1]);
}
