// Without a limit of time the plan is the same however fast the machine is. With one it is made in
// time, and is no worse where there is time enough. This program's clock stands in for the C
// library's, also for GLPK: every look at it is a step later.
#include <jansson.h>
#include <sys/time.h>
#include <time.h>

#include "solver/slimpack/slimpack_search.h"
#include "solver/step/step.h"
#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static struct {
    int64_t now_ns, step_ns;
    int64_t
        trial_ns; // a packing of one group of ranks that is timed, or a whole step that is judged
} fake;

static int64_t look(void)
{
    return __atomic_add_fetch(&fake.now_ns, fake.step_ns, __ATOMIC_RELAXED);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int64_t ns = look();
    *now = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return 0;
}

// The type of its second argument differs from one C library to the next.
int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    int64_t ns = look();
    *now = (struct timeval){.tv_sec = ns / 1000000000, .tv_usec = ns / 1000 % 1000000};
    return 0;
}

clock_t clock(void)
{
    return (clock_t)(look() / (1000000000 / CLOCKS_PER_SEC));
}

// The result without what is a time of this machine.
static char *result_text(const char *scenario, int effort_percent)
{
    SCENARIO_RUN(r, scenario, &(sp_evaluate_options){.effort_percent = effort_percent});
    json_auto_t *object = sp_result_json(&r.result, true);
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
    return text;
}

// On a machine that needs no time, and on one that needs a millisecond from one look at the clock
// to the next, a thousand times as long as today's.
static void assert_same_on(const char *scenario, int effort_percent)
{
    fake.now_ns = 0;
    fake.step_ns = 0;
    AUTO_FREE char *fast = result_text(scenario, effort_percent);
    fake.step_ns = 1000000;
    AUTO_FREE char *slow = result_text(scenario, effort_percent);
    assert_true(fake.now_ns > 0);
    assert_string_equal(fast, slow);
}

// 23 samples on 4 ranks: the integer program has thousands of nodes left after a second.
#define SAMPLES                                                                                 \
    "[222, 456, 497, 438, 106, 354, 125, 67, 428, 23, 123, 167, 356, 249, 100, 158, 119, 412, " \
    "461, 343, 413, 215, 292]"

TEST(assignment_to_ranks)
{
    assert_same_on("{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'tp': 1, 'pp': 2, "
                   "'chunks_per_rank': 1, 'dp': 4, 'zero': 3}, 'memory': {'limit_gib': 2000, "
                   "'recompute': 'activation'},"
                   " 'workload': {'lengths': " SAMPLES ", 'context': 4096, 'samples_per_batch': 23,"
                   " 'seed': 54}, 'strategy': {'kind': 'slimpack'}}",
                   100);
}

TEST(groups_of_flexsp)
{
    assert_same_on(
        "{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'tp': 1, 'dp': 8}, "
        "'memory': {'limit_gib': 2000}, 'workload': {'lengths': 'wikipedia', 'context': "
        "32768, 'samples_per_batch': 256}, 'strategy': {'kind': 'flexsp', 'rank_tokens': "
        "4096}}",
        100);
}

// Every strategy, on several ranks and stages; searches with a tenth of their effort.
TEST(every_strategy)
{
    for (int i = 0; sp_strategy_names[i] != NULL; i++) {
        const char *text = json_text(
            TINY_MODEL "'cluster': 'h100-8', 'parallel': {%s, 'dp': 4}, 'workload': "
                       "{'lengths': 'wikipedia', 'context': 16384, 'samples_per_batch': 40}, "
                       "'strategy': {'kind': '%s'}}",
            sp_strategy_find(sp_strategy_names[i])->one_sided ? "'zero': 3" : "'pp': 2",
            sp_strategy_names[i]);
        assert_same_on(text, 10);
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
    scenario_run_fini(&r[0]);
    scenario_run_fini(&r[1]);
}

// ---- limits of time, where trials alone take time ----

sp_status __real_sp_i_rank_score(sp_i_rank_scorer *scorer, const sp_packing *packing,
                                 const int32_t *need, bool split, const sp_packflow_outcome *beaten,
                                 sp_packflow_outcome *outcome, sp_error *err);
sp_status __wrap_sp_i_rank_score(sp_i_rank_scorer *scorer, const sp_packing *packing,
                                 const int32_t *need, bool split, const sp_packflow_outcome *beaten,
                                 sp_packflow_outcome *outcome, sp_error *err);
sp_status __wrap_sp_i_rank_score(sp_i_rank_scorer *scorer, const sp_packing *packing,
                                 const int32_t *need, bool split, const sp_packflow_outcome *beaten,
                                 sp_packflow_outcome *outcome, sp_error *err)
{
    fake.now_ns += fake.trial_ns;
    return __real_sp_i_rank_score(scorer, packing, need, split, beaten, outcome, err);
}

sp_status __real_sp_step_judge(const sp_strategy_input *input, const sp_packing *packing,
                               sp_packflow_outcome *outcome, sp_error *err);
sp_status __wrap_sp_step_judge(const sp_strategy_input *input, const sp_packing *packing,
                               sp_packflow_outcome *outcome, sp_error *err);
sp_status __wrap_sp_step_judge(const sp_strategy_input *input, const sp_packing *packing,
                               sp_packflow_outcome *outcome, sp_error *err)
{
    fake.now_ns += fake.trial_ns;
    return __real_sp_step_judge(input, packing, outcome, err);
}

sp_status __real_sp_step_judge_blocks(const sp_strategy_input *input, const sp_packing *packing,
                                      const sp_packflow_outcome *best, sp_packflow_outcome *outcome,
                                      sp_error *err);
sp_status __wrap_sp_step_judge_blocks(const sp_strategy_input *input, const sp_packing *packing,
                                      const sp_packflow_outcome *best, sp_packflow_outcome *outcome,
                                      sp_error *err);
sp_status __wrap_sp_step_judge_blocks(const sp_strategy_input *input, const sp_packing *packing,
                                      const sp_packflow_outcome *best, sp_packflow_outcome *outcome,
                                      sp_error *err)
{
    fake.now_ns += fake.trial_ns;
    return __real_sp_step_judge_blocks(input, packing, best, outcome, err);
}

sp_status __real_sp_step_judge_rows(const sp_strategy_input *input, sp_packing *packing,
                                    sp_packflow_outcome *outcome, sp_error *err);
sp_status __wrap_sp_step_judge_rows(const sp_strategy_input *input, sp_packing *packing,
                                    sp_packflow_outcome *outcome, sp_error *err);
sp_status __wrap_sp_step_judge_rows(const sp_strategy_input *input, sp_packing *packing,
                                    sp_packflow_outcome *outcome, sp_error *err)
{
    fake.now_ns += fake.trial_ns;
    return __real_sp_step_judge_rows(input, packing, outcome, err);
}

// What tries packings, and how many it has to try of a batch even where it is late: the first of
// each group of ranks, in each of several ways to run the job.
static const struct {
    const char *kind;
    int must_try;
} searching[] = {{"slimpack", 16},       {"slimpack-symmetric", 16}, {"slimpack-zb", 16},
                 {"slimpack-zones", 64}, {"zeppelin", 16},           {"packed-tuned", 16}};

// 4 to 16 samples of 16K to 128K tokens in each batch, up to the kind of strategy. A small part of
// the effort is enough for all parts of a search.
static void draw_few(sp_prng *prng, int batches, char text[RUN_TEXT])
{
    static const int tps[] = {2, 4, 8}, cps[] = {1, 2, 4}, pps[] = {1, 2, 4, 8}, dps[] = {1, 2};
    int count = 4 + prng_below(prng, 13);
    int pp = ONE_OF(prng, pps);
    int dp = ONE_OF(prng, dps);
    int tp = ONE_OF(prng, tps);
    int cp = ONE_OF(prng, cps);
    text[0] = '\0';
    put_json(text,
             "{'model': '%s', 'cluster': 'h800-8', 'memory': {'limit_gib': 4000}, 'parallel': "
             "{'tp': %d, 'cp': %d, 'pp': %d, 'dp': %d}, 'workload': {'context': 131072, "
             "'samples_per_batch': %d, 'batches': %d, 'order': 'file', 'lengths': [",
             prng_below(prng, 2) == 0 ? "llama-13b" : "llama-70b", tp, cp, pp, dp, count, batches);
    for (int i = 0; i < count * batches; i++) {
        int shortest = prng_below(prng, 4) == 0 ? 65536 : 16384;
        put_json(text, "%s%d", i > 0 ? ", " : "", shortest + prng_below(prng, shortest));
    }
    put_json(text, "]}, 'strategy': {'group_start_ms': %d, 'kind': ", batches > 1 ? 50 : 0);
}

typedef struct timed {
    double step_ms;
    int64_t trials;
} timed;

// In a time that is enough for so many trials; 0: without a limit.
static timed run_limited(const char *begin, const char *kind, int64_t limit)
{
    static const sp_evaluate_options brief = {.no_bounds = true, .effort_percent = 2};
    char limited[64] = "";
    if (limit > 0) {
        put_json(limited, ", 'time_limit_ms': %lld", (long long)limit);
    }
    fake.now_ns = 0;
    fake.step_ns = 0;
    fake.trial_ns = 1000000;
    SCENARIO_RUN(r, json_text("%s'%s'%s}}", begin, kind, limited), &brief);
    assert_true(r.result.lossless);
    const timed t = {sp_result_iteration_ms(&r.result), fake.now_ns / fake.trial_ns};
    fake.trial_ns = 0;
    return t;
}

// With time enough a plan is the one that is made without a limit, with half of it not far worse,
// and with little it is there in time. A job of two batches, whose groups take time to connect,
// chooses by both how it runs them.
TEST_OF_VALUES(limits_of_time)
{
    sp_prng prng = prng_seeded(11);
    for (int i = 0; i < test_rounds(test_draws(8)); i++) {
        char begin[RUN_TEXT];
        int batches = 2 - i % 2;
        draw_few(&prng, batches, begin);
        for (int k = 0; k < COUNT_OF(searching); k++) {
            const char *kind = searching[k].kind;
            const timed all = run_limited(begin, kind, 0);
            const timed enough = run_limited(begin, kind, 100 * all.trials);
            const timed half = run_limited(begin, kind, (all.trials + 1) / 2);
            must_hold(enough.step_ms <= all.step_ms && half.step_ms <= 1.25 * all.step_ms,
                      "%s: %.3f ms in enough time, %.3f in half of it, %.3f without a limit: %s",
                      kind, enough.step_ms, half.step_ms, all.step_ms, begin);
            for (int64_t limit = 1; limit <= 400; limit *= 20) {
                const timed little = run_limited(begin, kind, limit);
                must_hold(little.trials <= batches * (limit + searching[k].must_try),
                          "%s: %lld trials in time for %lld: %s", kind, (long long)little.trials,
                          (long long)limit, begin);
            }
        }
    }
}
