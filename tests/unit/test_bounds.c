// Lower bounds against closed forms.
#include "tests/support/bound_costs.h"
#include "tests/support/test_main.h"

// One sample of forward work 64 in packs of fixed cost 1 over 5 stages: m + 4*64/m is least at 16,
// and the backward of work 128 and fixed cost 2 has 2 m + 4*128/m, also at 16.
TEST(one_sample_is_a_flow_shop)
{
    const sp_bound_costs costs = {.stages = 5,
                                  .f_token_s = 1.0,
                                  .b_token_s = 2.0,
                                  .i_token_s = 2.0,
                                  .f_pack_s = 1.0,
                                  .b_pack_s = 2.0,
                                  .i_pack_s = 2.0};
    const int64_t tokens[] = {64};
    const sp_bound_batch batch = {.tokens = tokens, .count = 1, .ranks = 1};
    double expected_s = 192.0 + (16.0 + 16.0) + (32.0 + 32.0) + 4.0 * 3.0;
    assert_within(sp_bound_flow_shop_s(&costs, &batch), expected_s, 1e-9);
    // The growth bound sees the same, but for the ends of its intervals.
    double bound_s = sp_bound_growth_s(&costs, &batch);
    assert_true(bound_s <= expected_s + 1e-9 && bound_s > 0.99 * expected_s);
    // Uncut: five stages each way.
    assert_within(sp_bound_whole_s(&costs, &batch), 5.0 * (64.0 + 1.0 + 128.0 + 2.0), 1e-9);
}

// Without fixed costs, a perfectly divisible load has no gap to its work.
TEST(nothing_is_lost_without_fixed_costs)
{
    const sp_bound_costs costs = {
        .stages = 4, .f_token_s = 1.0, .b_token_s = 2.0, .i_token_s = 2.0};
    int64_t tokens[1000];
    for (size_t i = 0; i < 1000; i++) {
        tokens[i] = 1;
    }
    const sp_bound_batch batch = {.tokens = tokens, .count = 1000, .ranks = 1};
    double work_s = sp_bound_work_s(&costs, &batch);
    assert_true(work_s == 3000.0);
    // One forward and one backward of a token on the way through the other three stages.
    assert_true(sp_bound_growth_s(&costs, &batch) >= 3009.0);
    assert_true(sp_bound_growth_s(&costs, &batch) < 3030.0);
}

// A sample of over half of the work cannot be spread, unless ranks share it.
TEST(the_longest_sample_limits_the_ranks)
{
    const sp_bound_costs costs = {
        .stages = 1, .f_token_s = 1.0, .b_token_s = 2.0, .i_token_s = 2.0};
    const int64_t tokens[] = {700, 100, 200};
    sp_bound_batch batch = {.tokens = tokens, .count = 3, .ranks = 2};
    assert_true(sp_bound_work_s(&costs, &batch) == 1500.0);
    assert_true(sp_bound_flow_shop_s(&costs, &batch) == 2100.0);
    batch.merged = true;
    assert_true(sp_bound_flow_shop_s(&costs, &batch) == 0.0);
}
