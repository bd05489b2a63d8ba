// slimpack-zones: never slower than slimpack and zeppelin over a job, whatever is stated of the
// exchange and however long groups take to start; faster where all ranks share packs whose
// attention has zones.
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// Counts slices with zones of the last step, and holds that all of a sample have one.
static sp_status count_zones(void *context, const sp_step_view *view, sp_error *err)
{
    size_t *zones = context;
    const sp_pack_list *lists[] = {&view->plan->packing->forward, &view->plan->packing->backward};
    *zones = 0;
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < lists[side]->slice_count; i++) {
            *zones += lists[side]->slices[i].zone != 0;
        }
    }
    return sp_plan_check(view->plan, "test", ERR);
}

// The mean of all batches; `strategy`: a kind and what follows it.
static double iteration_ms(const char *strategy, const char *more, size_t *zones)
{
    const sp_evaluate_options options = {
        .effort_percent = 30,
        .engine = {.verify = strncmp(strategy, "'slimpack-zones'", 16) == 0},
        .observer = count_zones,
        .observer_context = zones};
    SCENARIO_RUN(r, json_text("%s, 'strategy': {'kind': %s}}", more, strategy), &options);
    return sp_result_iteration_ms(&r.result);
}

static const char *scenario_of(sp_prng *prng, int pp)
{
    static char text[4096];
    static const char *const exchanges[] = {"", "'stack': {'cp_overlap': 'attention'}, ",
                                            "'stack': {'cp_ring_nics': 1}, ",
                                            "'stack': {'cp_overlap': 'attention', 'cp_ring_nics': "
                                            "8}, "};
    size_t used = (size_t)snprintf(
        text, sizeof text,
        "{'model': {'layers': 4, 'hidden': 2048, 'ffn': 8192, 'heads': 16, 'vocab': 1000}, "
        "'cluster': '%s', %s'parallel': {'pp': %d, 'dp': %d}, 'workload': {'context': 65536, "
        "'samples_per_batch': 6, 'batches': %d, 'lengths': [",
        prng_below(prng, 2) == 0 ? "a800-8" : "h100-8", exchanges[prng_below(prng, 4)], pp,
        2 << prng_below(prng, 3), 1 + prng_below(prng, 2));
    for (int i = 0; i < 12; i++) {
        int most = prng_below(prng, 6) == 0 ? 50000 : 3000;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", i > 0 ? ", " : "",
                                 1 + prng_below(prng, most));
    }
    snprintf(text + used, sizeof text - used, "]}");
    return text;
}

TEST_OF_VALUES(no_slower_than_its_parts)
{
    sp_prng prng = prng_seeded(31);
    for (int round = 0; round < test_draws(16); round++) {
        int pp = 1 << round % 3;
        static const int starts_ms[] = {0, 0, 2, 50, 1000};
        static const char *const kinds[] = {"slimpack-zones", "slimpack", "zeppelin"};
        size_t zones;
        double ms[3];
        const char *more = scenario_of(&prng, pp);
        int start_ms = starts_ms[prng_below(&prng, 5)];
        for (int k = 0; k < 3; k++) {
            const char *strategy = json_text("'%s', 'group_start_ms': %d", kinds[k], start_ms);
            ms[k] = iteration_ms(strategy, more, &zones);
        }
        assert_true(ms[0] <= ms[1] * (1.0 + 1e-9));
        assert_true(ms[0] <= ms[2] * (1.0 + 1e-9));
    }
}

// Its stack gathers keys and values before the attention, and does so where that is stated; rings
// hide.
TEST(takes_the_faster_exchange)
{
    size_t zones;
    static const char *const scenario =
        "{'model': {'layers': 8, 'hidden': 1024, 'ffn': 4096, 'heads': 16, 'vocab': 32000, "
        "'activation': 'gelu'}, 'cluster': 'gb200-nvl72', 'stack': {'name': "
        "'megatron-core-2024'%s}, "
        "'parallel': {'cp': 2, 'dp': 6}, 'memory': {'limit_gib': 1000}, 'workload': {'lengths': "
        "[3935, 1054, 31792, 42307, 13128, 65536, 8004, 6527, 29576, 21366], 'context': 65536, "
        "'samples_per_batch': 10}";
    const char *more = json_text(scenario, "");
    const char *stated = json_text(scenario, ", 'cp_overlap': 'qkv'");
    double ms = iteration_ms("'slimpack-zones'", more, &zones);
    assert_true(ms <= iteration_ms("'zeppelin'", more, &zones) * (1.0 + 1e-9));
    assert_true(ms < 0.99 * iteration_ms("'slimpack'", stated, &zones));
}

// Merged ranks would level the long sample, but packs of ranks that share none start no groups.
TEST(starts_are_no_reason_to_merge)
{
    for (int dp = 2; dp <= 8; dp *= 2) {
        size_t zones;
        const char *more = json_text(
            "{'model': {'layers': 4, 'hidden': 2048, 'ffn': 8192, 'heads': 16, 'vocab': 1000}, "
            "'cluster': 'h100-8', 'parallel': {'pp': 2, 'dp': %d, 'chunks_per_rank': 1}, "
            "'workload': {'context': 65536, 'samples_per_batch': 9, 'lengths': [50000, 900, 1400, "
            "2000, 2500, 3000, 700, 600, 500]}",
            dp);
        double apart_ms = iteration_ms("'slimpack', 'dp_merge': false", more, &zones);
        assert_true(iteration_ms("'slimpack'", more, &zones) < 0.99 * apart_ms);
        double ms = iteration_ms("'slimpack', 'group_start_ms': 1000", more, &zones);
        assert_true(ms <= (1.0 + 1e-9) * apart_ms);
    }
}

// Ranks on four nodes, of which one sample would keep one busy for longer than all others together:
// pooled they share it, and the others stay whole.
TEST(zones_level_pipelines)
{
    size_t zones;
    const char *more =
        "{'model': {'layers': 8, 'hidden': 2048, 'ffn': 8192, 'heads': 16, 'vocab': 1000}, "
        "'cluster': 'a800-8', 'parallel': {'pp': 2, 'dp': 16}, 'workload': {'context': 65536, "
        "'samples_per_batch': 17, 'lengths': [60000, 900, 901, 902, 903, 904, 905, 906, 907, 908, "
        "909, 910, 911, 912, 913, 914, 915]}";
    double ms = iteration_ms("'slimpack-zones'", more, &zones);
    assert_true(zones > 0);
    assert_true(ms < iteration_ms("'slimpack', 'zones': false", more, &zones) && zones == 0);
}
