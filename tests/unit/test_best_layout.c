// The best layout of a strategy against every layout evaluated one by one.
#include "experiments/sweep/best_layout.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define BASE                                                                           \
    "{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, " \
    "'cluster': 'h800-8', 'workload': {'lengths': [9000, 300, 200, 4000, 1200, 700], " \
    "'order': 'file'}"

enum { KINDS = 5 };

static const struct {
    const char *schedule;
    int chunks;
} ways[KINDS] = {{"1f1b", 1}, {"interleaved", 2}, {"interleaved", 4}, {"zb-h1", 1}, {"zb-v", 2}};

static const char *const recomputes[] = {"none", "attention", "full"};

// INFINITY where it cannot run or does not fit.
static double evaluate(const char *text)
{
    sp_scenario scenario;
    sp_batches batches;
    sp_result result = {0};
    double ms = (double)HUGE_VAL;
    sp_error_clear(ERR);
    if (run_read(text, &scenario, ERR) != SP_OK) {
        return ms;
    }
    must_succeed(sp_evaluate_batches(&scenario, &batches, ERR));
    if (sp_evaluate(&scenario, &batches, &(sp_evaluate_options){.no_bounds = true}, &result, ERR) ==
            SP_OK &&
        !sp_result_is_oom(&result)) {
        ms = sp_result_iteration_ms(&result);
    }
    sp_result_fini(&result);
    sp_batches_fini(&batches);
    sp_scenario_fini(&scenario);
    return ms;
}

typedef struct searched {
    double fastest_ms;
    int layouts; // evaluated
} searched;

static void try_one(const char *strategy, const int at[4], const char *recompute, int way,
                    searched *found)
{
    char text[RUN_TEXT] = "";
    put_json(text, BASE ", 'parallel': {'tp': %d, 'cp': %d, 'pp': %d, 'dp': %d", at[0], at[1],
             at[2], at[3]);
    if (way < KINDS) {
        put_json(text, ", 'chunks_per_rank': %d}, 'schedule': {'kind': '%s'", ways[way].chunks,
                 ways[way].schedule);
    }
    put_json(text, "}, 'memory': {'recompute': '%s'}, 'strategy': {'kind': '%s'}}", recompute,
             strategy);
    double ms = evaluate(text);
    found->fastest_ms = ms < found->fastest_ms ? ms : found->fastest_ms;
    found->layouts++;
}

static searched try_all(const char *strategy, bool brings_order, int ranks)
{
    searched found = {.fastest_ms = (double)HUGE_VAL};
    int at[4];
    for (at[0] = 1; at[0] <= ranks; at[0]++) {
        for (at[1] = 1; at[1] <= ranks; at[1]++) {
            for (at[2] = 1; at[2] <= ranks; at[2]++) {
                at[3] = ranks / (at[0] * at[1] * at[2]);
                if (at[0] * at[1] * at[2] * at[3] != ranks) {
                    continue;
                }
                for (int i = 0; i < 3; i++) {
                    int kinds = brings_order || at[2] == 1 ? 1 : KINDS;
                    for (int way = 0; way < kinds; way++) {
                        try_one(strategy, at, recomputes[i], brings_order ? KINDS : way, &found);
                    }
                }
            }
        }
    }
    return found;
}

static void check(const char *strategy, bool brings_order, int ranks, int threads)
{
    char text[RUN_TEXT] = "";
    char settled[RUN_TEXT];
    sp_scenario scenario;
    sweep_best_layout best;
    put_json(text, BASE ", 'parallel': {'tp': %d}}", ranks);
    must_succeed(run_read(text, &scenario, ERR));
    json_t *base = json_loads(text, 0, NULL);
    must_succeed(sweep_best_layout_find(base, &scenario, strategy, threads, &best, ERR));
    searched all = try_all(strategy, brings_order, ranks);
    int64_t layouts = 0;
    for (int s = 0; s < SWEEP_STATUSES; s++) {
        layouts += best.of_status[s];
    }
    assert_int_equal(layouts, all.layouts);
    assert_non_null(best.document);
    char *document = json_dumps(best.document, 0);
    snprintf(settled, sizeof settled, "%s", document);
    assert_within(evaluate(settled), all.fastest_ms, 0.0);
    // The base is as it was.
    json_t *again = json_loads(text, 0, NULL);
    assert_true(json_equal(base, again));
    json_decref(again);
    free(document);
    json_decref(base);
    sweep_best_layout_fini(&best);
    sp_scenario_fini(&scenario);
}

TEST(fastest_of_all_layouts)
{
    check("packed", false, 8, 1);
    check("packed-tuned", false, 8, 3);
}

TEST(of_a_strategy_with_an_order_of_its_own)
{
    check("slimpack-symmetric", true, 2, 2);
}

// Where no layout fits there is none, with a reason.
TEST(nothing_fits)
{
    char text[RUN_TEXT] = "";
    sp_scenario scenario;
    sweep_best_layout best;
    put_json(text, BASE ", 'parallel': {'tp': 2}, 'memory': {'limit_gib': 0.001}}");
    must_succeed(run_read(text, &scenario, ERR));
    json_t *base = json_loads(text, 0, NULL);
    must_succeed(sweep_best_layout_find(base, &scenario, "packed", 2, &best, ERR));
    assert_null(best.document);
    assert_int_equal(best.of_status[SWEEP_OK], 0);
    assert_true(best.of_status[SWEEP_OOM] > 0);
    assert_non_null(strstr(best.reason, "GiB"));
    json_decref(base);
    sweep_best_layout_fini(&best);
    sp_scenario_fini(&scenario);
}
