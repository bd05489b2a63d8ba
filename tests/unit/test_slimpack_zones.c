// slimpack-zones: never slower than slimpack, and without a pipeline than zeppelin with the same
// exchange; faster where all ranks share packs whose attention has zones.
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// Counts slices with zones of the last step, and holds that all of a sample have one.
static sp_status count_zones(void *context, const sp_step_view *view, sp_error *err)
{
    (void)err;
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

static double iteration_ms(const char *kind, const char *more, size_t *zones)
{
    scenario_run r;
    const sp_evaluate_options options = {.engine = {.verify = strcmp(kind, "slimpack-zones") == 0},
                                         .observer = count_zones,
                                         .observer_context = zones};
    run_good(json_text("%s, 'strategy': {'kind': '%s'}}", more, kind), &options, &r);
    double ms = (double)r.result.batches[0].iteration_ns / 1e6;
    run_fini(&r);
    return ms;
}

static const char *scenario_of(sp_prng *prng, int pp)
{
    static char text[4096];
    size_t used = (size_t)snprintf(
        text, sizeof text,
        "{'model': {'layers': 4, 'hidden': 2048, 'ffn': 8192, 'heads': 16, 'vocab': 1000}, "
        "'cluster': '%s', 'stack': {'cp_overlap': 'attention', 'cp_ring_nics': %d}, 'parallel': "
        "{'pp': %d, 'dp': %d}, 'workload': {'context': 65536, 'samples_per_batch': 12, 'lengths': "
        "[",
        prng_below(prng, 2) == 0 ? "a800-8" : "h100-8", 1 + 7 * prng_below(prng, 2), pp,
        2 << prng_below(prng, 3));
    for (int i = 0; i < 12; i++) {
        int most = prng_below(prng, 6) == 0 ? 50000 : 3000;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", i > 0 ? ", " : "",
                                 1 + prng_below(prng, most));
    }
    snprintf(text + used, sizeof text - used, "]}");
    return text;
}

TEST(no_slower_than_its_parts)
{
    sp_prng prng = prng_seeded(31);
    for (int round = 0; round < test_draws(16); round++) {
        int pp = 1 << round % 3;
        size_t zones;
        const char *more = scenario_of(&prng, pp);
        double ms = iteration_ms("slimpack-zones", more, &zones);
        double slimpack_ms = iteration_ms("slimpack", more, &zones);
        assert_true(ms <= slimpack_ms * (1.0 + 1e-9));
        assert_true(pp > 1 || ms <= iteration_ms("zeppelin", more, &zones) * (1.0 + 1e-9));
    }
}

// Eight ranks, of which one sample would keep one busy for longer than all others together: pooled
// they share it, and the others stay whole.
TEST(zones_level_pipelines)
{
    size_t zones;
    const char *more =
        "{'model': {'layers': 8, 'hidden': 2048, 'ffn': 8192, 'heads': 16, 'vocab': 1000}, "
        "'cluster': 'h100-8', 'parallel': {'pp': 2, 'dp': 4}, 'workload': {'context': 65536, "
        "'samples_per_batch': 17, 'lengths': [60000, 900, 901, 902, 903, 904, 905, 906, 907, 908, "
        "909, 910, 911, 912, 913, 914, 915]}";
    double ms = iteration_ms("slimpack-zones", more, &zones);
    assert_true(zones > 0);
    assert_true(ms < iteration_ms("slimpack", more, &zones) && zones == 0);
}

TEST(allocation_failures)
{
    sp_scenario scenario;
    sp_batches batches;
    const sp_evaluate_options options = {0};
    const char *text = json_text(
        TINY_MODEL "'cluster': 'h100-8', 'parallel': {'pp': 1, 'dp': 2}, 'workload': {'lengths': "
                   "[9000, 300, 200], 'samples_per_batch': 3}, 'strategy': {'kind': "
                   "'slimpack-zones', 'group_start_ms': 3}}");
    must_succeed_for(text, run_read(text, &scenario, ERR));
    must_succeed(sp_evaluate_batches(&scenario, &batches, ERR));
    // Thousands of packings are tried: each early failure, then ever fewer of them.
    for (memory_failures failing = {.fewer = 6}; memory_fails(&failing);) {
        sp_result result;
        sp_error_clear(ERR);
        memory_try(&failing, sp_evaluate(&scenario, &batches, &options, &result, ERR), ERR);
        sp_result_fini(&result);
    }
    sp_batches_fini(&batches);
    sp_scenario_fini(&scenario);
}
