// A few long samples among short ones: groups of ranks for them that are at least as good as those
// of hybrid context parallelism and of ByteScale, whatever the network costs.
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// In ms, by the strategy's defaults and a part of its search's effort; infinite where it does not
// fit.
static double step_ms(const char *scenario, const char *kind, int effort_percent)
{
    const sp_evaluate_options plain = {.no_bounds = true, .effort_percent = effort_percent};
    AUTO(scenario_run) r;
    const char *text = json_text("%s, 'strategy': {'kind': '%s'}}", scenario, kind);
    sp_status status = run_text(text, &plain, &r, ERR);
    assert_true(status == SP_OK || status == SP_ERR_INFEASIBLE);
    bool fits = status == SP_OK && !sp_result_is_oom(&r.result);
    return fits ? sp_result_iteration_ms(&r.result) : HUGE_VAL;
}

// True where both fit.
static bool assert_not_slower(const char *scenario)
{
    double ours_ms = fmin(step_ms(scenario, "slimpack", 25), step_ms(scenario, "slimpack-zb", 25));
    double theirs_ms =
        fmin(step_ms(scenario, "hybrid-cp", 100), step_ms(scenario, "bytescale", 100));
    must_hold(ours_ms <= 1.01 * theirs_ms, "%.1f ms against %.1f: %s", ours_ms, theirs_ms,
              scenario);
    return isfinite(ours_ms) && isfinite(theirs_ms);
}

// Once slower, 1.03 to 5 times: one sample alone, and one among short ones, before what takes
// longer.
static const char *const once_slower[] = {
    "{'model': 'llama-13b', 'cluster': 'h100-8', 'parallel': {'tp': 8, 'pp': 2, 'dp': 8}, "
    "'workload': {'lengths': [262144]}",
    "{'model': 'llama-13b', 'cluster': 'h800-8', 'parallel': {'tp': 8, 'cp': 2, 'pp': 2, 'dp': "
    "16}, 'workload': {'order': 'file', 'lengths': [131072, 500, 500, 8000, 8000, 8000, 8000, "
    "500, 2000]}",
    "{'model': 'llama-13b', 'cluster': 'h100-8', 'parallel': {'tp': 8, 'cp': 2, 'pp': 2, 'dp': "
    "4}, 'workload': {'order': 'file', 'lengths': [65536, 65536, 131072, 500, 8000]}",
    "{'model': 'llama-7b', 'cluster': 'h100-8', 'stack': 'megatron-core-2025', 'memory': "
    "{'recompute': 'full'}, 'parallel': {'tp': 2, 'pp': 2, 'dp': 16}, 'workload': {'order': "
    "'file', 'lengths': [262144, 485, 182, 151, 4067, 1188, 1101, 1666]}",
    "{'model': 'llama-13b', 'cluster': 'a100-8', 'parallel': {'tp': 8, 'pp': 2, 'dp': 4}, "
    "'workload': {'lengths': [262144]}",
    "{'model': 'llama-7b', 'cluster': 'a100-8', 'parallel': {'tp': 4, 'pp': 2, 'dp': 16}, "
    "'workload': {'order': 'file', 'lengths': [262144, 1000]}"};

TEST_OF_VALUES(not_slower_where_it_was)
{
    for (int i = 0; i < test_rounds(test_is_full() ? COUNT_OF(once_slower) : 2); i++) {
        assert_true(assert_not_slower(once_slower[i]));
    }
}

static const char *draw(sp_prng *prng)
{
    static const char *const models[] = {"llama-7b", "llama-13b", "llama-3-8b"};
    static const char *const clusters[] = {"h100-8", "a100-8", "h800-8"};
    static const int tps[] = {2, 4, 8}, cps[] = {1, 1, 2}, pps[] = {1, 2, 4}, dps[] = {4, 8, 16};
    static const int longs[] = {65536, 131072, 262144}, shorts[] = {0, 2, 8};
    char lengths[256] = "";
    for (int i = 1 + prng_below(prng, 3); i > 0; i--) {
        put_json(lengths, "%d, ", ONE_OF(prng, longs));
    }
    for (int i = ONE_OF(prng, shorts); i > 0; i--) {
        put_json(lengths, "%d, ", 200 + prng_below(prng, 8000));
    }
    lengths[strlen(lengths) - 2] = '\0';
    int tp = ONE_OF(prng, tps);
    int cp = ONE_OF(prng, cps);
    int pp = ONE_OF(prng, pps);
    int dp = ONE_OF(prng, dps);
    const char *model = ONE_OF(prng, models);
    const char *cluster = ONE_OF(prng, clusters);
    const char *recompute = prng_below(prng, 2) == 0 ? "none" : "full";
    return json_text("{'model': '%s', 'cluster': '%s', 'memory': {'recompute': '%s'}, 'parallel': "
                     "{'tp': %d, 'cp': %d, 'pp': %d, 'dp': %d}, 'workload': {'order': 'file', "
                     "'lengths': [%s]}",
                     model, cluster, recompute, tp, cp, pp, dp, lengths);
}

TEST_OF_VALUES(not_slower_than_groups_by_tokens)
{
    sp_prng prng = prng_seeded(7);
    int compared = 0;
    for (int i = 0; i < test_rounds(test_draws(32)); i++) {
        compared += assert_not_slower(draw(&prng));
    }
    assert_true(compared > 0);
}

// Of few samples the model chunks that are chosen are as good as any that could be stated.
TEST_OF_VALUES(no_stated_chunks_are_faster)
{
    static const struct {
        const char *model, *parallel, *rest;
        int most; // chunks: the layers of a rank
    } rows[] = {
        {"llama-13b", "'tp': 8, 'pp': 2",
         "'memory': {'recompute': 'activation'}, 'workload': {'order': 'file', 'lengths': [147812, "
         "177380, 19382, 2256, 12305, 1907, 7847]}",
         20},
        {"llama-70b", "'tp': 2, 'cp': 4, 'pp': 5",
         "'memory': {'recompute': 'full'}, 'workload': {'order': 'file', 'lengths': [16789, 16789, "
         "16789, 16789, 16789, 16789, 16789, 16789, 16789, 16789, 16789, 16789, 16789, 16789]}",
         16},
    };
    for (int i = 0; i < (test_is_full() ? COUNT_OF(rows) : 1); i++) {
        char text[RUN_TEXT] = "";
        char stated[64];
        double chosen_ms = 0.0;
        int fit = 0;
        for (int chunks = 0; chunks <= rows[i].most; chunks++) {
            if (chunks > 0 && rows[i].most % chunks != 0) {
                continue;
            }
            snprintf(stated, sizeof stated, ", 'chunks_per_rank': %d", chunks);
            snprintf(text, sizeof text,
                     "{'model': '%s', 'cluster': 'h800-8', 'parallel': {%s%s}, %s", rows[i].model,
                     rows[i].parallel, chunks > 0 ? stated : "", rows[i].rest);
            double ms = step_ms(text, "slimpack", 100);
            chosen_ms = chunks == 0 ? ms : chosen_ms;
            assert_true(isfinite(chosen_ms) && chosen_ms <= 1.01 * ms);
            fit += isfinite(ms);
        }
        assert_true(fit > 2);
    }
}
