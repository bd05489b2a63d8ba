// Groups of merged ranks: the bound against all groups and all assignments, and sizes that are
// known.
#include "tests/support/assumed_split.h"
#include "tests/support/test_main.h"

enum { MOST_SAMPLES = 300, MOST_RANKS = 32 };

typedef struct drawn {
    double work_s[MOST_SAMPLES];
    int least[MOST_SAMPLES];
    sp_i_merge_costs costs;
    sp_i_group_problem problem;
} drawn;

// `longs` samples of `shares` of a rank's share of all work, the rest equal.
static void outliers(drawn *d, size_t longs, double shares, size_t count, int dp, int most)
{
    double left = dp - (double)longs * shares;
    assert_true(left >= 0.0);
    for (size_t i = 0; i < count; i++) {
        d->work_s[i] = i < longs ? shares : left / (double)(count - longs);
        d->least[i] = 1;
    }
    d->costs = assumed_costs(most);
    d->problem = (sp_i_group_problem){.work_s = d->work_s,
                                      .least = d->least,
                                      .count = count,
                                      .dp = dp,
                                      .costs = &d->costs,
                                      .merge_share = 0.95};
}

static int sizes_of(const drawn *d, int *size)
{
    int groups = sp_i_group_sizes(&d->problem, size);
    int ranks = 0;
    for (int g = 0; g < groups; g++) {
        assert_int_equal(size[g] & (size[g] - 1), 0);
        assert_true(size[g] <= 1 << (d->costs.levels - 1) && (g == 0 || size[g] <= size[g - 1]));
        assert_int_equal(ranks % size[g], 0);
        ranks += size[g];
    }
    assert_int_equal(ranks, d->problem.dp);
    return groups;
}

static double least_of_all(const drawn *d, size_t i, const int *size, int groups, double *load_s,
                           double best_s)
{
    double largest_s = 0.0;
    for (int g = 0; g < groups; g++) {
        largest_s = fmax(largest_s, load_s[g]);
    }
    if (largest_s >= best_s || i == d->problem.count) {
        return fmin(largest_s, best_s);
    }
    for (int g = 0; g < groups; g++) {
        double before_s = load_s[g];
        load_s[g] += d->work_s[i] * sp_i_merge_pace(&d->costs, size[g]);
        best_s =
            size[g] >= d->least[i] ? least_of_all(d, i + 1, size, groups, load_s, best_s) : best_s;
        load_s[g] = before_s;
    }
    return best_s;
}

TEST(bound_against_all_groups)
{
    static const int all[5][4] = {{1, 1, 1, 1}, {2, 1, 1}, {2, 2}, {4}, {0}};
    static drawn d;
    sp_prng prng = prng_seeded(61);
    int tight = 0;
    for (int round = 0; round < 400; round++) {
        int most = 1 << sp_prng_below(&prng, 3);
        outliers(&d, 0, 0.0, 1 + (size_t)sp_prng_below(&prng, 6), 4, most);
        double work_s = 10.0;
        for (size_t i = 0; i < d.problem.count; i++) {
            work_s *= pow(sp_prng_uniform(&prng), 0.5);
            d.work_s[i] = work_s;
        }
        for (int l = 1; round % 2 == 0 && l < d.costs.levels; l++) { // dearer the larger
            d.costs.cost[l] = d.costs.cost[l - 1] * (1.0 + 0.5 * sp_prng_uniform(&prng));
        }
        d.least[0] = most > 1 && sp_prng_below(&prng, 3) == 0 ? 2 : 1;
        double least_s = HUGE_VAL;
        for (int k = 0; all[k][0] != 0; k++) {
            double load_s[4] = {0};
            int groups = 0;
            for (int ranks = 0; ranks < 4; groups++) {
                ranks += all[k][groups];
            }
            if (all[k][0] <= most) {
                least_s = least_of_all(&d, 0, all[k], groups, load_s, least_s);
            }
        }
        double bound_s = sp_i_group_bound_s(&d.problem);
        assert_true(bound_s <= least_s * (1.0 + 1e-12));
        tight += bound_s >= least_s * 0.97;
        int size[MOST_RANKS];
        sizes_of(&d, size);
    }
    assert_true(tight > 100);
}

// One sample of x shares on 32 ranks. Up to some 7.6 shares a group of at most eight is large
// enough; above, eight ranks are at work on it for 1.05 x / 8 shares, which nothing can change.
TEST(one_outlier)
{
    static drawn d;
    int size[MOST_RANKS];
    for (double x = 0.5; x < 12.0; x += 0.25) {
        outliers(&d, 1, x, 300, MOST_RANKS, 8);
        sizes_of(&d, size);
        if (x > 1.0) {
            assert_true(x * sp_i_merge_pace(&d.costs, size[0]) <= fmax(1.01, 1.05 * x / 8.0));
        }
        double bound_s = sp_i_group_bound_s(&d.problem);
        assert_true(bound_s >= fmax(1.0, 1.05 * x / 8.0) * (1.0 - 1e-12));
        assert_true(bound_s <= fmax((32.0 + 0.05 * x) / 32.0, 1.05 * x / 8.0) * (1.0 + 1e-12));
        outliers(&d, 1, x, 300, MOST_RANKS, 16);
        sizes_of(&d, size);
        assert_true(x < 1.0 || x * sp_i_merge_pace(&d.costs, size[0]) <= 1.01);
    }
}

// Alone in its least group each would do, but there are not ranks enough: in larger groups several
// of them fill the ranks. Twenty of 1.2 shares: three to a group of four, or more to eight; twelve
// of 2.25: three to a group of eight.
TEST(outliers_share_groups)
{
    static const struct {
        size_t longs;
        double shares;
    } cases[] = {{20, 1.2}, {12, 2.25}, {20, 1.5}, {24, 1.25}};
    static drawn d;
    int size[MOST_RANKS];
    for (size_t k = 0; k < 4; k++) {
        outliers(&d, cases[k].longs, cases[k].shares, 300, MOST_RANKS, 8);
        int groups = sizes_of(&d, size);
        // Round robin by room: as many to a group as end within 1.06 of a share.
        size_t placed = 0;
        for (int g = 0; g < groups; g++) {
            placed += (size_t)(1.06 / (cases[k].shares * sp_i_merge_pace(&d.costs, size[g])));
        }
        assert_true(placed >= cases[k].longs);
    }
}

TEST(tokens_ask_for_ranks)
{
    static drawn d;
    int size[MOST_RANKS];
    outliers(&d, 2, 0.5, 300, 8, 8);
    d.least[0] = 4;
    d.least[1] = 2;
    sizes_of(&d, size);
    assert_int_equal(size[0], 4);
    d.costs.levels = 2;
    sizes_of(&d, size);
    assert_int_equal(size[0], 2);
}
