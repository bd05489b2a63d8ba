// Small assignments of samples to ranks after integer programming: against exhaustive search.
#include "solver/slimpack/slimpack_search.h"
#include "tests/support/assumed_split.h"
#include "tests/support/test_main.h"

enum { MOST = 10, RANKS = 3 };

static const sp_i_work some_work = {{1e-3, 1e-6, 1e-10}, {2e-3, 2e-6, 2.5e-10}, NULL};

typedef struct drawn {
    int64_t ids[80], tokens[80];
    sp_batch batch;
} drawn;

static void draw(drawn *d, size_t count, sp_prng *prng)
{
    d->batch = (sp_batch){.ids = d->ids, .tokens = d->tokens, .count = count};
    for (size_t i = 0; i < count; i++) {
        d->ids[i] = (int64_t)i;
        d->tokens[i] = 1000 + (int64_t)sp_prng_below(prng, 20000);
        d->batch.total_tokens += d->tokens[i];
    }
}

static double sample_s(const drawn *d, size_t i)
{
    return sp_i_slice_work_s(&some_work, 0, d->tokens[i]);
}

// Largest work of the best of all assignments of the samples from `i` on.
static double best_s(const drawn *d, size_t i, double load_s[RANKS])
{
    if (i == d->batch.count) {
        return fmax(load_s[0], fmax(load_s[1], load_s[2]));
    }
    double best = HUGE_VAL;
    for (int r = 0; r < RANKS; r++) {
        load_s[r] += sample_s(d, i);
        best = fmin(best, best_s(d, i + 1, load_s));
        load_s[r] -= sample_s(d, i);
    }
    return best;
}

static void make(const drawn *d, int ranks, sp_i_rank_split *split)
{
    assumed_split(&some_work, &d->batch, ranks, 1, 0.0, 0, split);
}

// Every sample once, longest first, with the work that is said.
static double check(const drawn *d, const sp_i_rank_split *split)
{
    int seen[80] = {0};
    double largest_s = 0.0;
    for (int g = 0; g < split->count; g++) {
        const sp_i_rank_group *group = &split->groups[g];
        double work_s = 0.0;
        for (size_t i = 0; i < group->count; i++) {
            seen[group->sample[i]]++;
            work_s += sample_s(d, (size_t)group->sample[i]);
            assert_true(i == 0 || d->tokens[group->sample[i]] <= d->tokens[group->sample[i - 1]]);
        }
        assert_within(group->work_s, work_s, 1e-9);
        largest_s = fmax(largest_s, work_s);
    }
    for (size_t i = 0; i < d->batch.count; i++) {
        assert_int_equal(seen[i], 1);
    }
    assert_true(split->bound_s <= largest_s * (1.0 + 1e-9));
    return largest_s;
}

TEST(small_ones_are_best)
{
    sp_prng prng = prng_seeded(41);
    int improved = 0;
    for (int round = 0; round < 30; round++) {
        drawn d = {0};
        AUTO(sp_i_rank_split) split;
        double load_s[RANKS] = {0};
        draw(&d, 4 + (size_t)sp_prng_below(&prng, MOST - 4), &prng);
        make(&d, RANKS, &split);
        double before_s = check(&d, &split);
        must_succeed(sp_i_rank_split_prove(&some_work, &d.batch, 10000, 0.0, &split, ERR));
        double after_s = check(&d, &split);
        double best = best_s(&d, 0, load_s);
        assert_true(after_s <= best * (1.0 + 1e-6) && after_s <= before_s);
        // Proven, and not beyond the truth.
        assert_true(split.bound_s >= best * (1.0 - 1e-5) && split.bound_s <= best * (1.0 + 1e-9));
        improved += after_s < before_s * (1.0 - 1e-9);
    }
    assert_true(improved > 0);
}

TEST(large_ones_are_left)
{
    sp_prng prng = prng_seeded(43);
    drawn d = {0};
    AUTO(sp_i_rank_split) split;
    draw(&d, 80, &prng);
    make(&d, 4, &split);
    double before_s = check(&d, &split);
    double bound_s = split.bound_s;
    must_succeed(sp_i_rank_split_prove(&some_work, &d.batch, 1, 0.0, &split, ERR));
    assert_true(check(&d, &split) == before_s && split.bound_s == bound_s);
}
