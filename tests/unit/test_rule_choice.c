// Packs by the rules of other strategies, and the exchange that they ask for: a plan
// is no worse than without them. A search at 100 % of its effort is the same search, but tries no
// rules: a part of the effort leaves them out (slimpack.c, rule_choice.c).
#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// A step that fits tightly counts as 5 % longer (packflow.h).
static const double tight_share = 1.05;

typedef struct outcome {
    double counted_ms; // a tight step's is longer
    bool fits;
    char exchange[32];
} outcome;

static outcome outcome_of(const char *text, int effort_percent)
{
    const sp_evaluate_options options = {.no_bounds = true, .effort_percent = effort_percent};
    SCENARIO_RUN(r, text, &options);
    const double margin = (double)sp_result_margin_bytes(&r.result);
    const bool tight = margin < SP_MEMORY_TIGHT * (double)r.scenario.memory_limit_bytes;
    outcome found = {.counted_ms = sp_result_iteration_ms(&r.result) * (tight ? tight_share : 1.0),
                     .fits = !sp_result_is_oom(&r.result)};
    snprintf(found.exchange, sizeof found.exchange, "%s", r.result.cp_overlap);
    return found;
}

// *without is the plan for which no rules were tried.
static outcome assert_rules_are_no_worse(const char *text, outcome *without)
{
    const outcome with = outcome_of(text, 0);
    *without = outcome_of(text, 100);
    assert_true(with.fits || !without->fits);
    assert_true(!without->fits || with.counted_ms <= without->counted_ms);
    return with;
}

#define LONG_SAMPLES(layers)                                                                      \
    "{'model': {'layers': " #layers ", 'hidden': 2048, 'ffn': 8192, 'heads': 16, 'kv_heads': 8, " \
    "'vocab': 128256, 'tied_embeddings': true}, 'cluster': 'h800-8', 'memory': {'recompute': "    \
    "'none'}, "

// Both steps of rules are tight. With the margin of memory left free one is taken so, one is not.
TEST(tight_steps_are_judged_with_memory_left_free)
{
    outcome without;
    assert_rules_are_no_worse(
        LONG_SAMPLES(4) "'stack': 'megatron-core-2025', 'parallel': {'pp': 2}, 'workload': "
                        "{'context': 131072, 'order': 'file', 'lengths': [74156, 92508, 31804, "
                        "30525, 104093, 80536]}, 'strategy': {'kind': 'slimpack'}}",
        &without);
    assert_rules_are_no_worse(
        LONG_SAMPLES(2) "'stack': 'megatron-core-2024', 'parallel': {'cp': 2, 'pp': 2}, "
                        "'workload': {'context': 131072, 'order': 'file', 'lengths': [100650, "
                        "31155, 101235]}, 'strategy': {'kind': 'slimpack'}}",
        &without);
}

// The exchange of rules is another than that of SlimPack's own packs, in as many chunks.
TEST(an_exchange_that_rules_ask_for)
{
    outcome without;
    const outcome with = assert_rules_are_no_worse(
        "{'model': {'layers': 8, 'hidden': 1024, 'ffn': 1408, 'heads': 16, 'kv_heads': 8, 'vocab': "
        "8000, 'experts': 8, 'experts_per_token': 2}, 'cluster': 'h800-8', 'memory': {'limit_gib': "
        "200, 'recompute': 'activation'}, 'parallel': {'pp': 4, 'cp': 2, 'zero': 3}, 'network': "
        "{'detail': 'auto'}, 'workload': {'context': 8192, 'lengths': [381, 20000, 511, 8, 1000, "
        "100]}, 'strategy': {'kind': 'slimpack'}}",
        &without);
    assert_true(with.counted_ms < without.counted_ms);
    assert_string_not_equal(with.exchange, without.exchange);
}
