// MicroPacks: every token once on both sides, the order rules of slices, the work that the shape
// asks for, and plans of random ones that pass the checks and run.
#include <math.h>
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "sim/cost/step_costs.h"
#include "solver/micropacks.h"
#include "solver/rank_split.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { MOST_SAMPLES = 120 };

typedef struct drawn_batch {
    int64_t ids[MOST_SAMPLES], tokens[MOST_SAMPLES];
    sp_batch batch;
    sp_i_work work;
} drawn_batch;

static const sp_i_work some_work = {{2e-4, 1e-6, 1e-10}, {4e-4, 2e-6, 2.5e-10}};

static void batch_of(drawn_batch *d, size_t count)
{
    d->work = some_work;
    d->batch = (sp_batch){.ids = d->ids, .tokens = d->tokens, .count = count};
    for (size_t i = 0; i < count; i++) {
        d->ids[i] = (int64_t)i;
        d->batch.total_tokens += d->tokens[i];
    }
}

static void draw(drawn_batch *d, sp_prng *prng)
{
    size_t count = 1 + (size_t)sp_prng_below(prng, MOST_SAMPLES);
    uint64_t longest = 100 + sp_prng_below(prng, 30000);
    for (size_t i = 0; i < count; i++) {
        uint64_t most = sp_prng_below(prng, 8) == 0 ? longest : longest / 20 + 1;
        d->tokens[i] = 1 + (int64_t)sp_prng_below(prng, most);
    }
    batch_of(d, count);
}

static sp_i_shape draw_shape(sp_prng *prng)
{
    return (sp_i_shape){.packs = 1 + (int)sp_prng_below(prng, 40),
                        .first = 0.05 + 0.95 * sp_prng_uniform(prng),
                        .grow = 1.0 + 0.5 * sp_prng_uniform(prng),
                        .last = 0.05 + 0.95 * sp_prng_uniform(prng),
                        .shrink = 1.0 + 0.5 * sp_prng_uniform(prng),
                        .shorts_first = sp_prng_uniform(prng),
                        .merge_backward = 1 + (int)sp_prng_below(prng, 3)};
}

static const sp_i_shape even = {.packs = 8,
                                .first = 1.0,
                                .grow = 1.0,
                                .last = 1.0,
                                .shrink = 1.0,
                                .shorts_first = 0.3,
                                .merge_backward = 1};

// All samples on the groups of a split without merges, or with.
static void fill(const drawn_batch *d, int dp, double merge_share, const sp_i_shape *shape,
                 sp_packing *packing)
{
    sp_error err = {0};
    sp_i_rank_split split;
    assert_int_equal(sp_i_rank_split_make(&d->work, &d->batch, dp, 8, merge_share, 0, &split, &err),
                     SP_OK);
    sp_packing_init(packing, &d->batch, dp);
    for (int g = 0; g < split.count; g++) {
        const sp_i_rank_group *group = &split.groups[g];
        sp_i_rank_samples samples = {group->sample, group->count, group->dp_first, group->dp_count};
        if (group->count > 0) {
            assert_int_equal(
                sp_i_micropacks_add(&d->work, &d->batch, &samples, shape, packing, &err), SP_OK);
        }
    }
    sp_i_rank_split_fini(&split);
}

// Forward: slices of a sample one after the other, one in a pack. Backward: the same slices, in
// reverse, in packs that never come earlier, on the same ranks.
static void assert_rules(const drawn_batch *d, const sp_packing *packing)
{
    int64_t done[MOST_SAMPLES] = {0};
    int64_t last_pack[MOST_SAMPLES];
    int ranks[MOST_SAMPLES][2];
    size_t slices[2] = {0};
    memset(last_pack, -1, sizeof last_pack);
    for (size_t k = 0; k < packing->forward.count; k++) {
        const sp_pack *pack = &packing->forward.packs[k];
        assert_true(pack->slice_count > 0);
        slices[0] += pack->slice_count;
        for (size_t i = 0; i < pack->slice_count; i++) {
            const sp_slice *slice = &packing->forward.slices[pack->first_slice + i];
            assert_true(slice->tokens > 0);
            assert_int_equal(slice->computed_tokens, slice->tokens);
            assert_int_equal(slice->begin, done[slice->sample]);
            assert_true(last_pack[slice->sample] < (int64_t)k);
            done[slice->sample] += slice->tokens;
            last_pack[slice->sample] = (int64_t)k;
            if (slice->begin == 0) {
                ranks[slice->sample][0] = pack->dp_first;
                ranks[slice->sample][1] = pack->dp_count;
            }
            assert_int_equal(pack->dp_first, ranks[slice->sample][0]);
            assert_int_equal(pack->dp_count, ranks[slice->sample][1]);
        }
    }
    for (size_t i = 0; i < d->batch.count; i++) {
        assert_int_equal(done[i], d->tokens[i]);
    }
    memset(last_pack, -1, sizeof last_pack);
    for (size_t k = 0; k < packing->backward.count; k++) {
        const sp_pack *pack = &packing->backward.packs[k];
        assert_true(pack->slice_count > 0);
        slices[1] += pack->slice_count;
        for (size_t i = 0; i < pack->slice_count; i++) {
            const sp_slice *slice = &packing->backward.slices[pack->first_slice + i];
            assert_int_equal(slice->begin + slice->tokens, done[slice->sample]);
            assert_true(last_pack[slice->sample] <= (int64_t)k);
            done[slice->sample] = slice->begin;
            last_pack[slice->sample] = (int64_t)k;
            assert_int_equal(pack->dp_first, ranks[slice->sample][0]);
            assert_int_equal(pack->dp_count, ranks[slice->sample][1]);
        }
    }
    for (size_t i = 0; i < d->batch.count; i++) {
        assert_int_equal(done[i], 0);
    }
    // With equal numbers of slices that tile the same samples, the cuts are the same: checked by
    // sp_plan_check below.
    assert_int_equal(slices[0], slices[1]);
    assert_int_equal(slices[0], packing->forward.slice_count);
}

static double pack_s(const drawn_batch *d, const sp_pack_list *list, size_t k)
{
    double sum_s = 0.0;
    for (size_t i = 0; i < list->packs[k].slice_count; i++) {
        const sp_slice *slice = &list->slices[list->packs[k].first_slice + i];
        sum_s += sp_i_slice_work_s(&d->work, slice->begin, slice->tokens);
    }
    return sum_s;
}

static void every_token_once(void **state)
{
    (void)state;
    sp_prng prng;
    sp_prng_seed(&prng, 61);
    static drawn_batch d;
    for (int round = 0; round < 1500; round++) {
        draw(&d, &prng);
        sp_i_shape shape = draw_shape(&prng);
        int dp = 1 + (int)sp_prng_below(&prng, 6);
        sp_packing packing;
        fill(&d, dp, sp_prng_below(&prng, 2) == 0 ? 0.0 : 0.9, &shape, &packing);
        assert_rules(&d, &packing);
        sp_packing_fini(&packing);
    }
}

// Without long samples a pack ends within one sample of its target. A long one may end in the
// middle of a pack that nothing else fills: then the next has the work of two at most.
static void work_follows_the_shape(void **state)
{
    (void)state;
    sp_prng prng;
    sp_prng_seed(&prng, 67);
    static drawn_batch d;
    for (int round = 0; round < 1500; round++) {
        draw(&d, &prng);
        sp_i_shape shape = draw_shape(&prng);
        sp_packing packing;
        fill(&d, 1, 0.0, &shape, &packing);
        double total_s = 0.0;
        double longest_s = 0.0;
        int64_t longest = 0;
        for (size_t i = 0; i < d.batch.count; i++) {
            double work_s = sp_i_slice_work_s(&d.work, 0, d.tokens[i]);
            total_s += work_s;
            longest_s = fmax(longest_s, work_s);
            longest = d.tokens[i] > longest ? d.tokens[i] : longest;
        }
        double target_s[64];
        double sum = 0.0;
        double most = 0.0;
        for (int k = 0; k < shape.packs; k++) {
            target_s[k] = fmin(1.0, fmin(shape.first * pow(shape.grow, k),
                                         shape.last * pow(shape.shrink, shape.packs - 1 - k)));
            sum += target_s[k];
            most = fmax(most, target_s[k]);
        }
        double largest_s = most * total_s / sum;
        double mean_s = total_s / shape.packs;
        // Cuts at multiples of 128 tokens, no slice below 128.
        double cut_s = sp_i_slice_work_s(&d.work, longest, 256);
        size_t longs = 0;
        for (size_t i = 0; i < d.batch.count; i++) {
            longs += sp_i_slice_work_s(&d.work, 0, d.tokens[i]) > 0.5 * mean_s;
        }
        for (size_t k = 0; k < packing.forward.count; k++) {
            double work_s = pack_s(&d, &packing.forward, k);
            if (longs == 0) {
                assert_true(work_s <= (largest_s + longest_s) * (1.0 + 1e-9));
            } else {
                assert_true(work_s <= 2.0 * largest_s + 0.5 * mean_s + cut_s);
            }
        }
        // Long samples that start in packs of their own leave a rest to further packs.
        assert_true(packing.forward.count <= (size_t)shape.packs + longs + 1);
        sp_packing_fini(&packing);
    }
}

// Short samples alone are whole; equal small ones fill equal packs.
static void degenerate_batches(void **state)
{
    (void)state;
    static drawn_batch d;
    sp_packing packing;
    for (int merge = 1; merge <= 3; merge++) {
        sp_i_shape shape = even;
        shape.merge_backward = merge;

        // One sample is cut into packs of equal work.
        d.tokens[0] = 80000;
        batch_of(&d, 1);
        fill(&d, 1, 0.0, &shape, &packing);
        assert_rules(&d, &packing);
        assert_int_equal(packing.forward.count, 8);
        assert_int_equal(packing.backward.count, (8 + merge - 1) / merge);
        double mean_s = sp_i_slice_work_s(&d.work, 0, 80000) / 8;
        for (size_t k = 0; k < 8; k++) {
            assert_true(fabs(pack_s(&d, &packing.forward, k) - mean_s) < 0.05 * mean_s);
        }
        sp_packing_fini(&packing);

        // Of one token it stays whole.
        d.tokens[0] = 1;
        batch_of(&d, 1);
        fill(&d, 1, 0.0, &shape, &packing);
        assert_rules(&d, &packing);
        assert_int_equal(packing.forward.count, 1);
        sp_packing_fini(&packing);

        // All equal: 64 samples in 8 packs of 8.
        for (size_t i = 0; i < 64; i++) {
            d.tokens[i] = 1000;
        }
        batch_of(&d, 64);
        fill(&d, 1, 0.0, &shape, &packing);
        assert_rules(&d, &packing);
        assert_int_equal(packing.forward.slice_count, 64);
        // Sums of targets and of samples round apart: 7 or 8 samples, and a remainder.
        for (size_t k = 0; k < packing.forward.count; k++) {
            assert_true(packing.forward.packs[k].slice_count <= 9);
        }
        sp_packing_fini(&packing);

        // All of one token.
        for (size_t i = 0; i < 100; i++) {
            d.tokens[i] = 1;
        }
        batch_of(&d, 100);
        fill(&d, 3, 0.9, &shape, &packing);
        assert_rules(&d, &packing);
        assert_int_equal(packing.forward.slice_count, 100);
        sp_packing_fini(&packing);

        // One sample of 1000 times the rest, on one rank and merged.
        d.tokens[37] = 1000;
        batch_of(&d, 100);
        fill(&d, 1, 0.0, &shape, &packing);
        assert_rules(&d, &packing);
        sp_packing_fini(&packing);
        for (size_t i = 0; i < 100; i++) {
            d.tokens[i] = i == 37 ? 200000 : 200;
        }
        batch_of(&d, 100);
        fill(&d, 4, 0.9, &shape, &packing);
        assert_rules(&d, &packing);
        assert_int_equal(packing.forward.packs[0].dp_count, 4);
        sp_packing_fini(&packing);

        // Fewer samples than packs, and than ranks.
        for (size_t i = 0; i < 3; i++) {
            d.tokens[i] = 100 + (int64_t)i;
        }
        batch_of(&d, 3);
        shape.packs = 1000;
        fill(&d, 1, 0.0, &shape, &packing);
        assert_rules(&d, &packing);
        assert_true(packing.forward.count <= 6);
        sp_packing_fini(&packing);
        fill(&d, 5, 0.0, &shape, &packing);
        assert_rules(&d, &packing);
        sp_packing_fini(&packing);
    }
}

// Times by the cost model, the order by PackFlow, the rules of plans, and the simulated step
// against the longest path in igraph.
static void random_plans_run(void **state)
{
    (void)state;
    sp_prng prng;
    sp_prng_seed(&prng, 71);
    static drawn_batch d;
    int merged = 0;
    for (int round = 0; round < 120; round++) {
        draw(&d, &prng);
        sp_i_shape shape = draw_shape(&prng);
        int dp = 1 + (int)sp_prng_below(&prng, 4);
        int pp = 1 << sp_prng_below(&prng, 2);
        sp_error err = {0};
        sp_scenario scenario;
        sp_cost_model cost;
        char text[RUN_TEXT] = "";
        put_json(text,
                 "%s'cluster': 'h800-8', 'parallel': {'pp': %d, 'dp': %d}, 'workload': "
                 "{'uniform': 64}, 'schedule': {'kind': 'packflow'}, 'strategy': {'kind': "
                 "'slimpack'}}",
                 TINY_MODEL, pp, dp);
        must_succeed("scenario", run_read(text, &scenario, &err), &err);
        must_succeed("cost model",
                     sp_cost_model_init(&cost, &scenario.model, &scenario.layout, &scenario.cluster,
                                        &scenario.profile, scenario.memory, scenario.source, &err),
                     &err);
        sp_packing packing;
        fill(&d, dp, sp_prng_below(&prng, 2) == 0 ? 0.0 : 0.9, &shape, &packing);
        for (size_t k = 0; k < packing.forward.count; k++) {
            merged += packing.forward.packs[k].dp_count > 1;
        }
        sp_step_costs costs;
        sp_plan plan;
        sp_schedule_costs *times = NULL;
        must_succeed("costs", sp_cost_model_build(&cost, &packing, &costs, &err), &err);
        must_succeed("plan", sp_plan_init(&plan, &scenario.layout, &packing, &err), &err);
        must_succeed("means", sp_step_costs_means(&costs, &plan, &times, &err), &err);
        must_succeed("packs", sp_step_costs_by_pack(&costs, &plan, times, &err), &err);
        sp_schedule_spec spec = {.kind = SP_SCHEDULE_PACKFLOW,
                                 .split_backward = sp_prng_below(&prng, 2) == 0};
        spec.token_limit =
            sp_prng_below(&prng, 2) == 0 ? 0 : 1 + (int64_t)sp_prng_below(&prng, 20000);
        must_succeed("order", sp_schedule_generate(&spec, times, "test", &plan, &err), &err);
        must_succeed("rules", sp_plan_check(&plan, "test", &err), &err);
        sp_timeline timeline;
        sp_memory_timeline memory;
        sp_engine_counts counts;
        const sp_engine_options options = {.verify = true};
        must_succeed("step",
                     sp_simulate(&plan, &costs, &options, &timeline, &memory, &counts, &err), &err);
        sp_timeline_fini(&timeline);
        sp_memory_timeline_fini(&memory);
        sp_schedule_costs_free(times);
        sp_plan_fini(&plan);
        sp_step_costs_fini(&costs);
        sp_packing_fini(&packing);
        sp_cost_model_fini(&cost);
        sp_scenario_fini(&scenario);
    }
    assert_true(merged > 0);
}

static void allocation_failures(void **state)
{
    (void)state;
    sp_prng prng;
    sp_prng_seed(&prng, 73);
    static drawn_batch d;
    draw(&d, &prng);
    int32_t sample[MOST_SAMPLES];
    for (size_t i = 0; i < d.batch.count; i++) {
        size_t k = i;
        for (; k > 0 && d.tokens[sample[k - 1]] < d.tokens[i]; k--) {
            sample[k] = sample[k - 1];
        }
        sample[k] = (int32_t)i;
    }
    sp_i_rank_samples samples = {sample, d.batch.count, 0, 1};
    sp_status status = SP_ERR_NO_MEMORY;
    for (long n = 0; status != SP_OK; n++) {
        assert_true(n < 500);
        sp_error err = {0};
        sp_packing packing;
        sp_packing_init(&packing, &d.batch, 1);
        sp_i_alloc_fail_after(n);
        status = sp_i_micropacks_add(&d.work, &d.batch, &samples, &even, &packing, &err);
        sp_i_alloc_fail_after(-1);
        assert_true(status == SP_OK || (status == SP_ERR_NO_MEMORY && err.status == status));
        if (status == SP_OK) {
            assert_rules(&d, &packing);
        }
        sp_packing_fini(&packing);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_token_once),    cmocka_unit_test(work_follows_the_shape),
    cmocka_unit_test(degenerate_batches),  cmocka_unit_test(random_plans_run),
    cmocka_unit_test(allocation_failures),
};

SP_TEST_MAIN(tests)
