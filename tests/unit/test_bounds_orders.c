// Lower bounds against every packing and every order of tiny cases.
#include "tests/support/bound_costs.h"
#include "tests/support/test_main.h"
#include "tests/support/tiny_step.h"

enum { WORK, SIMPLE, GROWTH, FLOW_SHOP, ANY_SLICED, ALL_WHOLE, BOUNDS };

static const char *const names[BOUNDS] = {"work",      "simple",         "growth",
                                          "flow shop", "best of sliced", "whole samples"};

// How near the bounds come to the optima, in sums over cases.
typedef struct nearness {
    double share[BOUNDS], least[BOUNDS];
    int cases, reached[BOUNDS];
} nearness;

static void note(nearness *n, int bound, double bound_s, double optimum)
{
    must_hold(bound_s <= optimum * (1.0 + 1e-12), "%s: bound %.6f above the optimum %.6f",
              names[bound], bound_s, optimum);
    double share = bound_s / optimum;
    n->share[bound] += share;
    n->least[bound] = n->cases == 0 || share < n->least[bound] ? share : n->least[bound];
    n->reached[bound] += share > 1.0 - 1e-9;
}

static void check_tiny(const tiny_step *t, int ranks, nearness *n)
{
    sp_bound_batch batch = {.tokens = t->samples, .count = (size_t)t->count, .ranks = ranks};
    double sliced_s = ranks == 1 ? tiny_step_least_s(t, false) : tiny_step_least_of_two_s(t, false);
    double whole_s = ranks == 1 ? tiny_step_least_s(t, true) : tiny_step_least_of_two_s(t, true);
    double of[BOUNDS] = {sp_bound_work_s(t->costs, &batch), sp_bound_simple_s(t->costs, &batch),
                         sp_bound_growth_s(t->costs, &batch),
                         sp_bound_flow_shop_s(t->costs, &batch)};
    of[ANY_SLICED] = fmax(of[GROWTH], of[FLOW_SHOP]);
    of[ALL_WHOLE] = fmax(of[ANY_SLICED], sp_bound_whole_s(t->costs, &batch));
    for (int bound = 0; bound < BOUNDS; bound++) {
        note(n, bound, of[bound], bound == ALL_WHOLE ? whole_s : sliced_s);
    }
    n->cases++;
    // Shared samples leave less to prove.
    sp_bound_batch merged = batch;
    merged.merged = true;
    assert_true(sp_bound_growth_s(t->costs, &merged) <=
                sp_bound_growth_s(t->costs, &batch) * (1.0 + 1e-3));
}

static double one_of(sp_prng *prng, double a, double b, double c)
{
    uint64_t at = sp_prng_below(prng, 3);
    return at == 0 ? a : at == 1 ? b : c;
}

static sp_bound_costs random_costs(sp_prng *prng, bool split)
{
    sp_bound_costs c = {.stages = 1 + prng_below(prng, TINY_STAGES), .split = split};
    c.f_token_s = one_of(prng, 1.0, 4.0, 10.0);
    c.f_square_s = one_of(prng, 0.0, 1.0, 3.0);
    c.i_token_s = c.f_token_s * one_of(prng, 0.5, 1.0, 2.0);
    c.i_square_s = c.f_square_s * one_of(prng, 1.0, 2.0, 3.0);
    c.b_token_s = c.i_token_s + (split ? c.f_token_s : 0.0);
    c.b_square_s = c.i_square_s;
    c.f_pack_s = one_of(prng, 0.0, 1.0, 5.0);
    c.i_pack_s = one_of(prng, 0.0, 2.0, 7.0);
    c.b_pack_s = c.i_pack_s + (split ? one_of(prng, 0.0, 1.0, 2.0) : 0.0);
    c.p2p_s = one_of(prng, 0.0, 0.0, 2.0);
    c.f_last_token_s = one_of(prng, 0.0, 0.0, 2.0);
    c.b_last_token_s = one_of(prng, 0.0, 1.0, 5.0);
    return c;
}

// Packs of one token cost more, those of two less more.
static void add_sizes(sp_prng *prng, sp_bound_costs *c)
{
    double f_s = one_of(prng, 1.0, 3.0, 8.0);
    double b_s = one_of(prng, 1.0, 3.0, 8.0);
    double two = one_of(prng, 0.0, 0.3, 1.0);
    c->size[0] = (sp_bound_size){1.0, c->f_pack_s + f_s, c->b_pack_s + b_s};
    c->size[1] = (sp_bound_size){2.0, c->f_pack_s + two * f_s, c->b_pack_s + two * b_s};
    c->sizes = 2;
}

static void check_many(bool split, int ranks, int rounds, int most_units, bool sized)
{
    static const int64_t sets[][TINY_UNITS] = {{1},    {2},       {3},       {4},
                                               {1, 1}, {2, 1},    {1, 2},    {3, 1},
                                               {2, 2}, {1, 1, 1}, {2, 1, 1}, {1, 1, 1, 1}};
    sp_prng prng = prng_seeded(5);
    nearness n = {0};
    for (int round = 0; round < test_rounds(rounds); round++) {
        sp_bound_costs costs = random_costs(&prng, split);
        if (sized) {
            add_sizes(&prng, &costs);
        }
        for (size_t set = 0; set < sizeof sets / sizeof sets[0]; set++) {
            int count = 0;
            int64_t units = 0;
            while (count < TINY_UNITS && sets[set][count] > 0) {
                units += sets[set][count++];
            }
            if (units <= most_units && count >= ranks) {
                tiny_step t = tiny_step_make(&costs, sets[set], count);
                check_tiny(&t, ranks, &n);
            }
        }
    }
    for (int bound = 0; bound < BOUNDS; bound++) {
        print_message("%-15s of the optimum: mean %.3f, least %.3f, reached in %d of %d\n",
                      names[bound], n.share[bound] / n.cases, n.least[bound], n.reached[bound],
                      n.cases);
    }
}

TEST_CALL(no_order_of_one_rank_is_faster, check_many(false, 1, 20, 4, false))
TEST_CALL(no_split_order_is_faster, check_many(true, 1, 20, 3, false))

TEST(no_spread_over_two_ranks_is_faster)
{
    check_many(false, 2, 20, 4, false);
    check_many(true, 2, 20, 3, false);
}

TEST(no_order_of_dear_small_packs_is_faster)
{
    check_many(false, 1, 20, 4, true);
    check_many(true, 1, 20, 3, true);
}
