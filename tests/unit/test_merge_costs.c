// What merged data-parallel ranks cost by the cost model.
#include "solver/slimpack/slimpack_search.h"
#include "tests/support/merged_ranks.h"

static sp_i_merge_costs measure_slices(int tp, int dp, int64_t tokens, int64_t slice_tokens)
{
    merged_ranks m;
    sp_i_merge_costs costs;
    merged_ranks_init(&m, "h800-8", tp, dp);
    must_succeed(sp_i_merge_costs_measure(&m.cost, tokens, slice_tokens, &costs, ERR));
    merged_ranks_fini(&m);
    return costs;
}

static sp_i_merge_costs measure(int tp, int dp, int64_t tokens)
{
    sp_i_merge_costs costs = measure_slices(tp, dp, tokens, 8192);
    sp_i_merge_costs_keep_worth(&costs);
    return costs;
}

// Every level is faster than the one before, and none is for nothing.
TEST(larger_groups_are_faster)
{
    for (int tp = 1; tp <= 8; tp *= 2) {
        for (int dp = 1; dp <= 16; dp++) {
            sp_i_merge_costs costs = measure(tp, dp, 65536);
            assert_true(costs.levels >= 1 && 1 << (costs.levels - 1) <= dp);
            assert_within(costs.cost[0], 1.0, 1e-12);
            for (int l = 1; l < costs.levels; l++) {
                assert_true(costs.cost[l] >= 1.0);
                assert_true(sp_i_merge_pace(&costs, 1 << l) <
                            0.951 * sp_i_merge_pace(&costs, 1 << (l - 1)));
            }
        }
    }
}

// Two ranks in one node exchange keys and values over NVLink, with eight tensor-parallel ranks each
// over the network. Short samples lose more than long ones.
TEST(costs_follow_the_links)
{
    sp_i_merge_costs near = measure(4, 2, 65536);
    sp_i_merge_costs far = measure(8, 2, 65536);
    assert_int_equal(near.levels, 2);
    assert_true(far.levels < 2 || far.cost[1] > near.cost[1]);
    sp_i_merge_costs brief = measure(4, 2, 512);
    assert_true(brief.levels < 2 || brief.cost[1] > near.cost[1]);
}

// Each slice of a sample brings the keys and values before it to every rank once more.
TEST(long_slices_cost_less)
{
    sp_i_merge_costs brief = measure_slices(8, 16, 262144, 4096);
    sp_i_merge_costs whole = measure_slices(8, 16, 262144, 262144);
    assert_int_equal(brief.levels, 5);
    assert_int_equal(whole.levels, 5);
    for (int l = 1; l < 5; l++) {
        assert_true(whole.cost[l] < brief.cost[l]);
    }
}

TEST(powers_of_two)
{
    const sp_i_merge_costs costs = {.levels = 3, .cost = {1.0, 1.05, 1.05}};
    assert_within(sp_i_merge_pace(&costs, 1), 1.0, 1e-12);
    assert_within(sp_i_merge_pace(&costs, 4), 1.05 / 4.0, 1e-12);
    assert_int_equal(sp_i_power_of_two(1), 1);
    assert_int_equal(sp_i_power_of_two(63), 32);
    assert_int_equal(sp_i_power_of_two(64), 64);
    assert_int_equal(sp_i_merge_level(64), 6);
}
