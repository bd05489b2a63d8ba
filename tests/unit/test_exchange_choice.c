// The SlimPack strategies choose how keys and values are exchanged where that is not stated: no
// slower than any way stated by hand, obeying what is stated, and as the plan says.
#include "sim/plan/plan_json.h"
#include "solver/evaluate/plan_batch.h"
#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

typedef struct outcome {
    double ms;
    bool fits; // with memory to spare
} outcome;

// `stack`: a member of the scenario, with a comma, or "".
static outcome outcome_of(const char *more, const char *stack, const char *kind)
{
    const sp_evaluate_options options = {
        .no_bounds = true, .effort_percent = 30, .allocator_if_near = true};
    SCENARIO_RUN(r, json_text("%s, %s'strategy': {'kind': '%s'}}", more, stack, kind), &options);
    const outcome found = {.ms = sp_result_iteration_ms(&r.result),
                           .fits = sp_result_fits(&r.result) == SP_FITS_YES};
    return found;
}

// 8 heads of keys, which tp * cp * dp, up to 8, divides.
static const char *scenario_of(sp_prng *prng)
{
    static char text[4096];
    static const char *const clusters[] = {"a100-8", "h800-8", "h100-8"};
    int cp = 1 << prng_below(prng, 3);
    int dp = cp == 4 ? 1 << prng_below(prng, 2) : cp == 2 ? 1 << prng_below(prng, 3) : 2;
    size_t used = (size_t)snprintf(
        text, sizeof text,
        "{'model': {'layers': 8, 'hidden': 2048, 'ffn': 8192, 'heads': 16, 'kv_heads': %d, "
        "'vocab': 1000}, 'cluster': '%s', 'parallel': {'cp': %d, 'pp': %d, 'dp': %d}, 'workload': "
        "{'context': 65536, 'samples_per_batch': 10, 'lengths': [",
        8 << prng_below(prng, 2), clusters[prng_below(prng, 3)], cp, 1 << prng_below(prng, 3), dp);
    for (int i = 0; i < 10; i++) {
        int most = prng_below(prng, 4) == 0 ? 60000 : 4000;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", i > 0 ? ", " : "",
                                 1 + prng_below(prng, most));
    }
    snprintf(text + used, sizeof text - used, "]}");
    return text;
}

// Where memory is short the ways are compared by time alone, by which all-to-all is faster here; in
// whole plans it leaves less room, and they say that the stack's own ring is faster.
TEST(falls_back_where_memory_is_short)
{
    static const char *const more =
        "{'model': {'layers': 2, 'hidden': 2048, 'ffn': 4096, 'heads': 16, 'kv_heads': 2, 'vocab': "
        "1000}, 'cluster': 'a100-8', 'parallel': {'dp': 16}, 'memory': {'limit_gib': %s}, "
        "'workload': {'samples_per_batch': 3, 'lengths': [1939, 6039, 5812], 'order': 'file'}";
    static const char *const limits[] = {"0.615", "0.617"};
    for (int i = 0; i < test_rounds(COUNT_OF(limits)); i++) {
        const char *scenario = json_text(more, limits[i]);
        const outcome open = outcome_of(scenario, "'stack': 'megatron-core-2025', ", "slimpack");
        const outcome own = outcome_of(
            scenario, "'stack': {'name': 'megatron-core-2025', 'cp_overlap': 'p2p'}, ", "slimpack");
        assert_true(open.ms <= own.ms || (open.fits && !own.fits));
    }
}

// Choices are made by short searches: 1 %.
TEST_OF_VALUES(no_slower_than_stated_by_hand)
{
    static const char *const stacks[] = {"megatron-core-2024", "megatron-core-2025",
                                         "nanotron-2025"};
    static const char *const ways[] = {"p2p", "all_gather", "a2a", "a2a+p2p"};
    static const char *const kinds[] = {"slimpack", "slimpack-zb", "slimpack-symmetric"};
    sp_prng prng = prng_seeded(71);
    for (int round = 0; round < test_draws(5); round++) {
        const char *more = scenario_of(&prng);
        const char *stack = stacks[prng_below(&prng, 3)];
        const char *kind = kinds[round % 3];
        const outcome chosen = outcome_of(more, json_text("'stack': '%s', ", stack), kind);
        for (int w = 0; w < 4; w++) {
            const char *stated =
                json_text("'stack': {'name': '%s', 'cp_overlap': '%s'}, ", stack, ways[w]);
            const outcome by_hand = outcome_of(more, stated, kind);
            assert_true(chosen.fits || !by_hand.fits);
            assert_true(chosen.ms <= 1.01 * by_hand.ms || (chosen.fits && !by_hand.fits));
        }
    }
}

// Few long samples over ranks whose stack hides its gathers behind the QKV projection alone.
static const char *const long_samples =
    "{'model': 'llama-13b', 'cluster': 'h800-8', 'parallel': {'tp': 8, 'cp': 2, 'pp': 2, 'dp': "
    "16}, 'workload': {'order': 'file', 'lengths': [131072, 500, 500, 8000, 8000, 8000, 8000, 500, "
    "2000]}";

// Zeppelin brings rings, which SlimPack may choose as well.
TEST_OF_VALUES(no_slower_than_zeppelin)
{
    double zeppelin_ms = outcome_of(long_samples, "", "zeppelin").ms;
    assert_true(outcome_of(long_samples, "", "slimpack").ms < zeppelin_ms);
    assert_true(outcome_of(long_samples, "", "slimpack-zones").ms < zeppelin_ms);
    assert_true(outcome_of(long_samples, "'stack': {'cp_overlap': 'qkv'}, ", "slimpack").ms >
                zeppelin_ms);
}

static sp_cp_overlap way_of(const char *more, bool chosen)
{
    AUTO(sp_scenario) scenario, again;
    const char *text = json_text("%s, 'strategy': {'kind': 'slimpack'}}", more);
    must_succeed_for(text, run_read(text, &scenario, ERR));
    must_succeed(sp_strategy_resolve(&scenario, false, ERR));
    sp_cp_overlap way = scenario.memory.stack.cp_overlap;
    assert_true(scenario.strategy.exchange_chosen == chosen);
    json_auto_t *root = json_deep_copy(scenario.resolved);
    must_succeed(sp_scenario_from_json(root, "again", NULL, 0, &again, ERR));
    must_succeed(sp_strategy_resolve(&again, false, ERR));
    assert_true(json_equal(again.resolved, scenario.resolved));
    assert_int_equal(again.memory.stack.cp_overlap, way);
    return way;
}

TEST_OF_VALUES(obeys_what_is_stated)
{
    static const char *const tiny =
        TINY_MODEL "'cluster': 'h800-8', 'workload': {'lengths': [30000, 500, 600, 20000]}, ";
    assert_true(way_of(long_samples, true) != SP_CP_QKV);
    assert_int_equal(way_of(json_text("%s, 'stack': {'cp_overlap': 'qkv'}", long_samples), false),
                     SP_CP_QKV);
    // Nobody shares packs.
    assert_int_equal(way_of(json_text("%s 'parallel': {'pp': 2}", tiny), false), SP_CP_QKV);
    // Executors of explicit tensors know one way.
    assert_int_equal(
        way_of(json_text("%s 'parallel': {'cp': 2}, 'stack': 'reference'", tiny), false),
        SP_CP_SLICES);
    assert_int_equal(way_of(json_text("%s 'parallel': {'cp': 2}, 'stack': 'cuda'", tiny), false),
                     SP_CP_GATHERED);
    // Rings merge what flash attention leaves of each block.
    assert_int_equal(
        way_of(json_text("%s 'parallel': {'cp': 2}, 'memory': {'attention': 'unfused'}", tiny),
               false),
        SP_CP_QKV);
}

// A plan read again takes as long as it was predicted to.
TEST(plans_carry_the_choice)
{
    static const int64_t tokens[] = {131072, 500, 500, 8000, 8000, 8000, 8000, 500, 2000};
    AUTO(sp_scenario) scenario, read;
    sp_planner *planner;
    sp_batch_plan *plan;
    AUTO(sp_plan_file) plans;
    AUTO(sp_result) result = {0};
    const sp_evaluate_options options = {.no_bounds = true};
    char *line;
    size_t bytes;
    const char *text = json_text("%s, 'strategy': {'kind': 'slimpack-zb'}}", long_samples);
    must_succeed_for(text, run_read(text, &scenario, ERR));
    must_succeed(sp_planner_new(&scenario, &planner, ERR));
    must_succeed(sp_plan_batch(planner, tokens, sizeof tokens / sizeof tokens[0], &plan, ERR));
    must_succeed(sp_batch_plan_text(planner, plan, &line, &bytes, ERR));
    json_auto_t *root = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    json_auto_t *head = json_deep_copy(json_object_get(root, "scenario"));
    must_succeed(sp_scenario_from_json(head, "plan", NULL, 0, &read, ERR));
    assert_true(read.cp_overlap_given && read.memory.stack.cp_overlap != SP_CP_QKV);
    must_succeed(sp_plan_json_read(root, "plan", &read.layout, &plans, ERR));
    must_succeed(sp_evaluate_plans(&read, &plans, &options, &result, ERR));
    assert_float_equal(sp_result_iteration_ms(&result), plan->predicted_ms, 0.0);
    json_auto_t *told = sp_result_json(&result, false);
    const json_t *stated = json_object_get(json_object_get(head, "stack"), "cp_overlap");
    const json_t *parallel = json_object_get(head, "parallel");
    assert_true(json_equal(json_object_get(told, "cp_overlap"), stated));
    assert_true(json_equal(json_object_get(told, "chunks_per_rank"),
                           json_object_get(parallel, "chunks_per_rank")));
    sp_batch_plan_text_free(line);
    sp_batch_plan_free(plan);
    sp_planner_free(planner);
}
