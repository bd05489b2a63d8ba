// Other groups of ranks for the same samples: each is different, and holds all samples.
#include "sim/workload/batch.h"
#include "solver/slimpack/slimpack_search.h"
#include "tests/support/merged_ranks.h"

enum { MOST_SAMPLES = 20, TYPICAL = 4096 };

#define SHARE 0.95

typedef struct fixture {
    merged_ranks ranks;
    sp_i_work work;
    int64_t ids[MOST_SAMPLES], tokens[MOST_SAMPLES];
    sp_batch batch;
    sp_i_rank_split first;
} fixture;

static void fixture_init(fixture *f, int tp, int dp, sp_prng *prng)
{
    merged_ranks_init(&f->ranks, "h100-8", tp, dp);
    must_succeed(sp_i_work_measure(&f->ranks.cost, TYPICAL, &f->work, ERR));
    f->batch = (sp_batch){.ids = f->ids, .tokens = f->tokens};
    f->batch.count = 1 + (size_t)prng_below(prng, MOST_SAMPLES);
    for (size_t i = 0; i < f->batch.count; i++) {
        int most = prng_below(prng, 4) == 0 ? 262144 : 4000;
        f->ids[i] = (int64_t)i;
        f->tokens[i] = 1 + prng_below(prng, most);
        f->batch.total_tokens += f->tokens[i];
    }
    const sp_i_merge_costs alone = {.levels = 1, .cost = {1.0}};
    sp_i_rank_split_priced(&f->work, &f->batch, dp, &alone, SHARE, 0, &f->first);
}

static void fixture_fini(fixture *f)
{
    sp_i_rank_split_fini(&f->first);
    merged_ranks_fini(&f->ranks);
}

// Sizes of the groups that hold samples, as digits of their levels.
static void sizes_of(const sp_i_rank_split *split, char *text)
{
    for (int g = 0; g < split->count; g++) {
        if (split->groups[g].count > 0) {
            *text++ = (char)('a' + sp_i_merge_level(split->groups[g].dp_count));
        }
    }
    *text = '\0';
}

static void assert_complete(const sp_i_rank_split *split, int dp, size_t samples)
{
    bool seen[MOST_SAMPLES] = {false};
    int ranks = 0;
    size_t count = 0;
    for (int g = 0; g < split->count; g++) {
        const sp_i_rank_group *group = &split->groups[g];
        ranks += group->dp_count;
        count += group->count;
        for (size_t i = 0; i < group->count; i++) {
            assert_false(seen[group->sample[i]]);
            seen[group->sample[i]] = true;
        }
    }
    assert_true(ranks <= dp);
    assert_int_equal(count, samples);
}

TEST(groups_differ)
{
    sp_prng prng = prng_seeded(5);
    int found = 0;
    for (int round = 0; round < 40; round++) {
        fixture f;
        sp_i_groupings others;
        int dp = 1 + prng_below(&prng, 16);
        fixture_init(&f, 1 << prng_below(&prng, 4), dp, &prng);
        must_succeed(sp_i_groupings_make(&f.ranks.cost, &f.work, &f.batch, SHARE, 0, &f.first,
                                         &others, ERR));
        char sizes[SP_I_GROUPINGS + 1][32];
        double before_s = 0.0;
        sizes_of(&f.first, sizes[0]);
        for (int i = 0; i < others.count; i++) {
            const sp_i_rank_split *split = &others.split[i];
            assert_complete(split, dp, f.batch.count);
            sizes_of(split, sizes[i + 1]);
            for (int j = 0; j <= i; j++) {
                assert_string_not_equal(sizes[i + 1], sizes[j]);
            }
            assert_true(sp_i_rank_split_largest_s(split) >= before_s);
            before_s = sp_i_rank_split_largest_s(split);
        }
        assert_true(dp > 1 || others.count == 0);
        found += others.count;
        sp_i_groupings_fini(&others);
        fixture_fini(&f);
    }
    assert_true(found > 40);
}

// One sample on every number of ranks that is a power of two; its excess is what the idle ranks
// could have done.
TEST(one_sample_on_any_ranks)
{
    sp_prng prng = prng_seeded(1);
    fixture f;
    sp_i_groupings others;
    fixture_init(&f, 8, 16, &prng);
    sp_i_rank_split_fini(&f.first);
    f.batch.count = 1;
    f.tokens[0] = f.batch.total_tokens = 262144;
    const sp_i_merge_costs alone = {.levels = 1, .cost = {1.0}};
    sp_i_rank_split_priced(&f.work, &f.batch, 16, &alone, SHARE, 0, &f.first);
    assert_within(sp_i_rank_split_excess(&f.first, 16), 15.0, 1e-9);
    must_succeed(
        sp_i_groupings_make(&f.ranks.cost, &f.work, &f.batch, SHARE, 0, &f.first, &others, ERR));
    bool seen[5] = {true};
    for (int i = 0; i < others.count; i++) {
        seen[sp_i_merge_level(others.split[i].groups[0].dp_count)] = true;
    }
    for (int l = 0; l < 5; l++) {
        assert_true(seen[l]);
    }
    sp_i_groupings_fini(&others);
    fixture_fini(&f);
}
