// MicroPacks: every token once on both sides, the order rules of slices, the work that the taper
// asks for, and plans of random ones that pass the checks and run.
#include "sim/cost/step_costs.h"
#include "tests/support/assumed_split.h"
#include "tests/support/drawn_packs.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_step.h"

// More than any packing here has: a slice of one token each.
enum { MOST_ENDS = 1 << 16 };

static double end_s[MOST_ENDS];
static double target_s[MOST_ENDS];
static drawn_batch d;

static const sp_i_shape even = {
    .forward = {.flat = 8, .grow = 1.0, .shrink = 1.0}, .shorts_first = 0.3, .slice_tokens = 128};

static void make(const sp_i_shape *shape, int dp, sp_packing *packing, sp_i_needs *needs)
{
    sp_i_rank_samples samples = drawn_samples(&d, 0, dp);
    sp_packing_init(packing, &d.batch, dp);
    sp_i_micropacks_make(&drawn_work, &d.batch, &samples, shape, packing, needs);
}

// All samples on the groups of a split, with merged ranks or (merge_share 0) without.
static void fill(int dp, double merge_share, const sp_i_shape *shape, sp_packing *packing)
{
    AUTO(sp_i_rank_split) split;
    assumed_split(&drawn_work, &d.batch, dp, 8, merge_share, 0, &split);
    sp_packing_init(packing, &d.batch, dp);
    for (int g = 0; g < split.count; g++) {
        const sp_i_rank_group *group = &split.groups[g];
        sp_i_rank_samples samples = {group->sample, group->count, group->dp_first, group->dp_count};
        AUTO(sp_packing) rank;
        sp_i_needs needs = {0};
        sp_packing_init(&rank, &d.batch, dp);
        if (group->count > 0) {
            sp_i_micropacks_make(&drawn_work, &d.batch, &samples, shape, &rank, &needs);
            assert_needs(&rank, &needs);
        }
        must_succeed(sp_i_micropacks_append(&rank, packing, ERR));
        sp_free(needs.pack);
    }
}

TEST_ROUNDS(every_token_once, 61, 1000)
{
    draw_batch(prng, 100 + sp_prng_below(prng, 30000), &d);
    sp_i_shape shape = draw_shape(prng);
    int dp = 1 + prng_below(prng, 6);
    AUTO(sp_packing) packing;
    fill(dp, sp_prng_below(prng, 2) == 0 ? 0.0 : 0.9, &shape, &packing);
    assert_pack_rules(&packing);
    if (!shape.regrouped) {
        assert_cuts(&packing, shape.slice_tokens);
        assert_int_equal(packing.forward.count, packing.backward.count);
    }
}

// The cumulative targets have the ratios of the taper and end at the total.
TEST_ROUNDS(targets_of_tapers, 67, 1000)
{
    sp_i_taper taper = draw_taper(prng);
    int packs = sp_i_taper_packs(&taper);
    assert_int_equal(packs, taper.rise + taper.flat + taper.fall);
    double total = 1e-3 + sp_prng_uniform(prng);
    sp_i_taper_targets(&taper, total, target_s);
    assert_true(fabs(target_s[packs - 1] - total) < 1e-12 * total);
    double unit =
        taper.flat > 0 ? target_s[taper.rise] - (taper.rise > 0 ? target_s[taper.rise - 1] : 0.0)
        : taper.rise > 0
            ? (target_s[taper.rise - 1] - (taper.rise > 1 ? target_s[taper.rise - 2] : 0.0)) *
                  taper.grow
            : target_s[0] * taper.shrink;
    double before = 0.0;
    for (int k = 0; k < packs; k++) {
        double size = k < taper.rise ? pow(taper.grow, k - taper.rise)
                      : k < taper.rise + taper.flat
                          ? 1.0
                          : pow(taper.shrink, -(k + 1 - taper.rise - taper.flat));
        assert_true(fabs(target_s[k] - before - unit * size) < 1e-9 * total);
        before = target_s[k];
    }
}

static double total_work_s(void)
{
    double sum_s = 0.0;
    for (size_t i = 0; i < d.batch.count; i++) {
        sum_s += sp_i_slice_work_s(&drawn_work, 0, d.tokens[i]);
    }
    return sum_s;
}

// One sample is cut where the targets say, to a slice.
TEST_ROUNDS(a_long_sample_follows_the_taper, 71, 1000)
{
    d.tokens[0] = 1 + (int64_t)sp_prng_below(prng, 50000);
    drawn_batch_of(&d, 1);
    sp_i_shape shape = draw_shape(prng);
    shape.regrouped = false;
    AUTO(sp_packing) packing;
    make(&shape, 1, &packing, NULL);
    assert_cuts(&packing, shape.slice_tokens);
    // What is less than a slice goes with the one before it, and no pack has less than one.
    double slice_s = sp_i_slice_work_s(&drawn_work, d.tokens[0], 2 * shape.slice_tokens);
    sp_i_taper_targets(&shape.forward, total_work_s(), target_s);
    pack_ends(&drawn_work, &packing.forward, false, end_s);
    if (sp_i_taper_packs(&shape.forward) <= 1 << shape.doublings) {
        assert_int_equal(packing.forward.count, 1);
    } else {
        assert_ends_meet(end_s, packing.forward.count, target_s,
                         (size_t)sp_i_taper_packs(&shape.forward), slice_s);
    }
}

// Whole samples, none longer than the mean pack: a pack ends within one of them of its target.
TEST_ROUNDS(short_samples_follow_the_taper, 73, 2000)
{
    draw_batch(prng, 1000, &d);
    sp_i_shape shape = draw_shape(prng);
    shape.regrouped = false;
    double total_s = total_work_s();
    double longest_s = sp_i_slice_work_s(&drawn_work, 0, d.tokens[d.order[0]]);
    int packs = sp_i_taper_packs(&shape.forward);
    if (longest_s > total_s / packs) {
        return;
    }
    AUTO(sp_packing) packing;
    make(&shape, 1, &packing, NULL);
    assert_int_equal(packing.forward.slice_count, d.batch.count);
    assert_true(packing.forward.count <= (size_t)packs);
    sp_i_taper_targets(&shape.forward, total_s, target_s);
    pack_ends(&drawn_work, &packing.forward, false, end_s);
    assert_ends_meet(end_s, packing.forward.count, target_s, (size_t)packs,
                     longest_s * (1.0 + 1e-9));
}

// A long sample may end in the middle of a pack that nothing else fills: then the next has the work
// of two at most. Long samples that begin in packs of their own leave a rest to further packs.
TEST_ROUNDS(mixed_samples_stay_below_two_packs, 79, 1500)
{
    draw_batch(prng, 100 + sp_prng_below(prng, 30000), &d);
    sp_i_shape shape = draw_shape(prng);
    AUTO(sp_packing) packing;
    make(&shape, 1, &packing, NULL);
    double total_s = total_work_s();
    int packs = sp_i_taper_packs(&shape.forward);
    sp_i_taper_targets(&shape.forward, total_s, target_s);
    double largest_s = target_s[0];
    for (int k = 1; k < packs; k++) {
        largest_s = fmax(largest_s, target_s[k] - target_s[k - 1]);
    }
    size_t longs = 0;
    double short_s = 0.0; // the longest one that is not cut
    for (size_t i = 0; i < d.batch.count; i++) {
        double work_s = sp_i_slice_work_s(&drawn_work, 0, d.tokens[i]);
        bool is_long = work_s > ldexp(total_s / packs, shape.doublings);
        longs += is_long;
        short_s = is_long ? short_s : fmax(short_s, work_s);
    }
    double slice_s = sp_i_slice_work_s(&drawn_work, d.tokens[d.order[0]], 2 * shape.slice_tokens);
    pack_ends(&drawn_work, &packing.forward, false, end_s);
    for (size_t k = 0; k < packing.forward.count; k++) {
        double work_s = end_s[k] - (k > 0 ? end_s[k - 1] : 0.0);
        assert_true(work_s <= 2.0 * largest_s + short_s + slice_s);
    }
    assert_true(packing.forward.count <= (size_t)packs + longs);
}

// Samples up to the work of so many mean packs stay whole forward; longer ones may be cut.
TEST(doublings_keep_samples_whole)
{
    sp_prng prng = prng_seeded(81);
    int cut = 0;
    for (int round = 0; round < 1000; round++) {
        draw_batch(&prng, 100 + sp_prng_below(&prng, 30000), &d);
        sp_i_shape shape = draw_shape(&prng);
        shape.regrouped = false;
        AUTO(sp_packing) packing;
        make(&shape, 1, &packing, NULL);
        double mean_s = total_work_s() / sp_i_taper_packs(&shape.forward);
        for (size_t i = 0; i < packing.forward.slice_count; i++) {
            const sp_slice *slice = &packing.forward.slices[i];
            int64_t tokens = d.tokens[slice->sample];
            if (slice->tokens < tokens) {
                double means = sp_i_slice_work_s(&drawn_work, 0, tokens) / mean_s;
                assert_true(means > (1 << shape.doublings) * (1.0 - 1e-9));
                cut += shape.doublings > 0;
            }
        }
    }
    assert_true(cut > 0);
}

// With slices as long as anything, samples stay whole in both passes.
TEST_ROUNDS(without_slices_nothing_is_cut, 83, 500)
{
    draw_batch(prng, 100 + sp_prng_below(prng, 30000), &d);
    sp_i_shape shape = draw_shape(prng);
    shape.slice_tokens = INT64_MAX / 4;
    AUTO(sp_packing) packing;
    sp_i_needs needs = {0};
    make(&shape, 1, &packing, &needs);
    assert_pack_rules(&packing);
    assert_needs(&packing, &needs);
    assert_int_equal(packing.forward.slice_count, d.batch.count);
    assert_int_equal(packing.backward.slice_count, d.batch.count);
    sp_free(needs.pack);
}

static void make_and_check(const sp_i_shape *shape, size_t least_packs, size_t most_packs)
{
    AUTO(sp_packing) packing;
    make(shape, 1, &packing, NULL);
    assert_pack_rules(&packing);
    assert_in_range(packing.forward.count, least_packs, most_packs);
}

TEST(degenerate_batches)
{
    for (int regrouped = 0; regrouped < 2; regrouped++) {
        sp_i_shape shape = even;
        shape.regrouped = regrouped != 0;
        shape.backward = shape.forward;
        d.tokens[0] = 80000;
        drawn_batch_of(&d, 1);
        make_and_check(&shape, 8, 8);
        d.tokens[0] = 1;
        drawn_batch_of(&d, 1);
        make_and_check(&shape, 1, 1);
        for (size_t i = 0; i < 100; i++) {
            d.tokens[i] = 1;
        }
        drawn_batch_of(&d, 100);
        make_and_check(&shape, 8, 8);
        // A thousand times the rest.
        d.tokens[37] = 1000;
        drawn_batch_of(&d, 100);
        make_and_check(&shape, 1, 9);
        // Fewer samples than packs.
        for (size_t i = 0; i < 3; i++) {
            d.tokens[i] = 100 + (int64_t)i;
        }
        drawn_batch_of(&d, 3);
        shape.forward.flat = 1000;
        shape.backward.flat = 1000;
        make_and_check(&shape, 3, 3);
    }
}

// Equal samples fill equal packs, whatever the rounding of sums.
TEST(equal_samples_fill_equal_packs)
{
    for (int packs = 1; packs <= 12; packs++) {
        for (int each = 1; each <= 10; each++) {
            for (int i = 0; i < packs * each; i++) {
                d.tokens[i] = 1237;
            }
            drawn_batch_of(&d, (size_t)(packs * each));
            for (int regrouped = 0; regrouped < 2; regrouped++) {
                sp_i_shape shape = even;
                shape.forward.flat = packs;
                shape.regrouped = regrouped != 0;
                shape.backward = shape.forward;
                AUTO(sp_packing) packing;
                make(&shape, 1, &packing, NULL);
                assert_int_equal(packing.forward.count, packs);
                assert_int_equal(packing.backward.count, packs);
                for (int k = 0; k < packs; k++) {
                    assert_int_equal(packing.forward.packs[k].tokens, 1237 * each);
                    assert_int_equal(packing.backward.packs[k].tokens, 1237 * each);
                }
            }
        }
    }
}

// Times by the cost model, the order by PackFlow, the rules of plans, and the simulated step
// against the longest path in igraph.
static void run_plan(const sp_scenario *scenario, const sp_packing *packing, bool split)
{
    AUTO(sp_cost_model) cost;
    AUTO(sp_step_costs) costs;
    AUTO(sp_plan) plan;
    sp_schedule_costs *times = NULL;
    must_succeed(sp_scenario_cost_model(scenario, &cost, ERR));
    must_succeed(sp_cost_model_build(&cost, packing, &costs, ERR));
    sp_plan_init(&plan, &scenario->layout, packing);
    times = sp_step_costs_means(&costs, &plan);
    sp_step_costs_by_pack(&costs, &plan, times);
    const sp_schedule_spec spec = {.kind = SP_SCHEDULE_PACKFLOW, .split_backward = split};
    must_succeed(sp_schedule_generate(&spec, times, "test", &plan, ERR));
    must_succeed(sp_plan_check(&plan, "test", ERR));
    AUTO(simulated_plan) s;
    simulate_plan(&plan, &costs, &(sp_engine_options){.verify = true}, &s);
    sp_schedule_costs_free(times);
}

TEST(random_plans_run)
{
    sp_prng prng = prng_seeded(89);
    int merged = 0;
    for (int round = 0; round < 100; round++) {
        draw_batch(&prng, 100 + sp_prng_below(&prng, 30000), &d);
        sp_i_shape shape = draw_shape(&prng);
        shape.slice_tokens += 64; // the engine's time is for packs, not for thousands of slices
        int dp = 1 + prng_below(&prng, 4);
        int pp = 1 << sp_prng_below(&prng, 2);
        AUTO(sp_scenario) scenario;
        const char *text =
            json_text("%s'cluster': 'h800-8', 'parallel': {'pp': %d, 'dp': %d}, 'workload': "
                      "{'uniform': 64}, 'schedule': {'kind': 'packflow'}, 'strategy': {'kind': "
                      "'slimpack'}}",
                      TINY_MODEL, pp, dp);
        must_succeed(run_read(text, &scenario, ERR));
        AUTO(sp_packing) packing;
        fill(dp, sp_prng_below(&prng, 2) == 0 ? 0.0 : 0.9, &shape, &packing);
        for (size_t k = 0; k < packing.forward.count; k++) {
            merged += packing.forward.packs[k].dp_count > 1;
        }
        run_plan(&scenario, &packing, sp_prng_below(&prng, 2) == 0);
    }
    assert_true(merged > 0);
}
