// What the growth bound lets a fill cost, against a search of every way to fill.
#include "solver/bounds/bounds.h"
#include "tests/support/test_main.h"

static int64_t between(sp_prng *prng, int64_t least, int64_t most)
{
    return least + (int64_t)sp_prng_below(prng, (uint64_t)(most - least + 1));
}

// Least fixed cost to cover `cover_s` on every way of own packs of the largest size and packs of
// the other pass between them.
static double all_ways_s(const sp_i_side *side, double idle_s, double cover_s, double content_s,
                         double enabled_s, double credit_s, double limit_s)
{
    double budget_s = idle_s + credit_s + enabled_s + side->extra * content_s;
    double pack_s = budget_s / side->hops - side->p2p_s - side->own.least_s[0];
    double own_s = side->own.least_s[0];
    double other_s = side->other.least_s[0];
    if (pack_s <= 0.0 || own_s >= limit_s) {
        return limit_s;
    }
    content_s += pack_s;
    if (content_s >= cover_s) {
        return own_s;
    }
    double now_s = sp_i_knapsack_most_s(&side->enabled, content_s);
    double same_s =
        own_s + all_ways_s(side, idle_s, cover_s, content_s, enabled_s, credit_s, limit_s - own_s);
    double next_s = own_s + other_s >= limit_s
                        ? limit_s
                        : own_s + other_s +
                              all_ways_s(side, idle_s, cover_s, content_s, now_s,
                                         credit_s + other_s, limit_s - own_s - other_s);
    return fmin(same_s, next_s);
}

// The merged search is never above the search of all ways, and near it.
TEST(epochs_cost_no_more_than_any_way)
{
    sp_prng prng = prng_seeded(3);
    double sum = 0.0;
    int cases = 0;
    for (int round = 0; round < 200; round++) {
        sp_i_item items[40];
        size_t count = (size_t)between(&prng, 1, 40);
        for (size_t i = 0; i < count; i++) {
            double size_s = (double)between(&prng, 1, 20);
            items[i] = (sp_i_item){size_s, size_s * (1.0 + 2.0 * sp_prng_uniform(&prng))};
        }
        double cover_s = (double)between(&prng, 20, 400);
        sp_bound_batch batch = {.ranks = 1};
        sp_i_side side = {.hops = (double)between(&prng, 1, 7),
                          .p2p_s = sp_prng_uniform(&prng),
                          .extra = 0.2 * sp_prng_uniform(&prng),
                          .own = {.edge_s = {HUGE_VAL}, .count = 1},
                          .other = {.edge_s = {HUGE_VAL}, .count = 1},
                          .group = 1};
        side.own.least_s[0] = 2.0 + 3.0 * sp_prng_uniform(&prng);
        side.other.least_s[0] = 2.0 + 3.0 * sp_prng_uniform(&prng);
        sp_i_knapsack_init(&side.enabled, items, count, &batch, cover_s);
        double idle_s =
            side.hops * (side.own.least_s[0] + side.p2p_s + 20.0 * sp_prng_uniform(&prng));
        double limit_s = 40.0;
        double all_s = all_ways_s(&side, idle_s, cover_s, 0.0, 0.0, 0.0, limit_s);
        double least_s;
        sp_i_epochs_least_s(&side, idle_s, &cover_s, 1, limit_s, 1000000, &least_s);
        assert_true(least_s <= all_s * (1.0 + 1e-12));
        sum += least_s / all_s;
        cases++;
        // Packs of the other pass that a group does not count are part of the idle time.
        double grouped_s = HUGE_VAL;
        side.group = 4;
        for (double uncounted_s = 0.0; uncounted_s <= limit_s;
             uncounted_s += side.other.least_s[0]) {
            double cost_s;
            sp_i_epochs_least_s(&side, idle_s + uncounted_s, &cover_s, 1, limit_s, 1000000,
                                &cost_s);
            grouped_s = fmin(grouped_s, uncounted_s + cost_s);
        }
        assert_true(grouped_s <= all_s * (1.0 + 1e-12));
    }
    print_message("merged over all ways: mean %.4f\n", sum / cases);
    assert_true(sum / cases > 0.98);
}
