// Attention of packs on a GPU that the CPU emulates against fp64, in the norm of each tensor:
// outputs and gradients within 1e-2, lse within 1e-3.
#include "backends/cuda/attention.h"
#include "tests/gpu/support/attention_case.h"
#include "tests/support/test_main.h"

static void check(attention_case *c)
{
    double lse_error;
    must_succeed(case_run(c, ERR));
    double error = case_error(c, &lse_error);
    if (!(error <= 1e-2) || !(lse_error <= 1e-3)) {
        fail_msg("errors of %g, and of %g of lse", error, lse_error);
    }
    assert_int_equal(c->leaked, 0);
    assert_int_equal(c->table_bytes, 0);
    case_fini(c);
}

// The sizes of a case's heads, and how its packs are shared.
static attention_case small(int cp, int dp, int parts)
{
    return (attention_case){
        .heads = 4, .kv_heads = 2, .head_dim = 16, .cp = cp, .dp = dp, .parts = parts};
}

TEST(slices_see_those_before_them)
{
    attention_case c = small(1, 1, 1);
    CASE_PACK(&c, {0, 0, 150, 0}, {1, 0, 7, 0});
    CASE_PACK(&c, {0, 150, 64, 0}, {2, 0, 90, 0});
    CASE_PACK(&c, {0, 214, 33, 0}, {1, 7, 100, 0});
    case_fill(&c, 1);
    check(&c);
}

// Two slices of a sample in a pack, not in their order and with another sample between them.
TEST(slices_of_one_sample_share_a_pack)
{
    attention_case c = small(1, 1, 1);
    CASE_PACK(&c, {0, 0, 40, 0});
    CASE_PACK(&c, {0, 80, 50, 0}, {1, 0, 30, 0}, {0, 40, 40, 0});
    case_fill(&c, 2);
    check(&c);
}

// Positions of padding are those of the next slice's tokens: neither may see the other.
TEST(padding_is_seen_by_its_slice_alone)
{
    attention_case c = small(1, 1, 1);
    CASE_PACK(&c, {0, 0, 50, 14}, {1, 0, 20, 0});
    CASE_PACK(&c, {0, 100, 60, 4}, {0, 50, 50, 14}, {1, 20, 20, 12}, {1, 40, 9, 0});
    case_fill(&c, 3);
    check(&c);
}

enum { SAMPLES = 2, SLICES = 4, PACKS = 2 };

// Slices of up to 50 tokens in one pack or the other, or nowhere: a sample may have fewer.
static void draw_packs(attention_case *c, uint64_t seed)
{
    int64_t tokens[SAMPLES][SLICES], padding[SAMPLES][SLICES];
    int at[SAMPLES][SLICES];
    sp_prng prng = prng_seeded(seed);
    c->heads = 1;
    c->kv_heads = 1;
    for (int s = 0; s < SAMPLES; s++) {
        for (int i = 0; i < SLICES; i++) {
            tokens[s][i] = 1 + (int64_t)sp_prng_below(&prng, 50);
            padding[s][i] = sp_prng_below(&prng, 3) == 0 ? (int64_t)sp_prng_below(&prng, 9) : 0;
            at[s][i] = i < PACKS && s == 0 ? i : prng_below(&prng, PACKS + 1);
        }
    }
    for (int p = 0; p < PACKS; p++) {
        case_pack(c);
        for (int32_t s = 0; s < SAMPLES; s++) {
            int64_t begin = 0;
            for (int i = 0; i < SLICES; i++) {
                if (at[s][i] == p) {
                    case_slice(c, s, begin, tokens[s][i], padding[s][i]);
                }
                begin += at[s][i] < PACKS ? tokens[s][i] : 0;
            }
        }
    }
    case_fill(c, seed);
}

TEST(drawn_packs_agree)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        attention_case c = small(1, 1, 1);
        draw_packs(&c, seed);
        check(&c);
    }
}

TEST(large_heads_agree)
{
    attention_case c = {.heads = 3, .kv_heads = 1, .head_dim = 128};
    CASE_PACK(&c, {0, 0, 70, 2});
    CASE_PACK(&c, {0, 70, 80, 0}, {1, 0, 1, 0});
    case_fill(&c, 5);
    check(&c);
}

// Heads that cuDNN refuses.
TEST(heads_of_any_size_agree)
{
    static const int64_t dims[] = {12, 136};
    for (int i = 0; i < 2; i++) {
        attention_case c = small(1, 1, 1);
        c.head_dim = dims[i];
        CASE_PACK(&c, {0, 0, 20, 0});
        case_fill(&c, 42);
        check(&c);
    }
}

// Sequence parallelism: the rows of a pack stand part by part.
TEST(parts_of_a_pack_agree)
{
    for (uint64_t seed = 11; seed <= 12; seed++) {
        attention_case c = small(1, 1, 2);
        draw_packs(&c, seed);
        check(&c);
    }
}

// Context parallelism: two zig-zag runs of each slice at each rank, some of them empty.
TEST(shards_of_ranks_agree)
{
    attention_case c = small(2, 1, 1);
    CASE_PACK(&c, {0, 0, 50, 0});
    CASE_PACK(&c, {0, 50, 33, 2}, {1, 0, 2, 0});
    case_fill(&c, 21);
    check(&c);
}

// Padding of shards, with its launches.
TEST(padded_shards_agree)
{
    attention_case c = small(3, 1, 1);
    c.heads = 1;
    c.kv_heads = 1;
    CASE_PACK(&c, {0, 0, 30, 7}, {0, 30, 20, 4});
    case_fill(&c, 22);
    check(&c);
}

// DP-Merge: data-parallel ranks hold shards too.
TEST(merged_packs_agree)
{
    attention_case c = small(2, 2, 1);
    c.heads = 1;
    c.kv_heads = 1;
    CASE_PACK(&c, {0, 0, 40, 0});
    CASE_PACK(&c, {0, 40, 24, 0});
    case_fill(&c, 31);
    check(&c);
}

// And parts of shards under sequence parallelism.
TEST(parts_of_shards_agree)
{
    attention_case c = small(1, 2, 3);
    c.heads = 1;
    c.kv_heads = 1;
    CASE_PACK(&c, {0, 0, 40, 0}, {1, 0, 30, 1});
    CASE_PACK(&c, {0, 40, 24, 0});
    case_fill(&c, 32);
    check(&c);
}

TEST(a_ring_is_refused)
{
    attention_case c = small(2, 1, 1);
    c.ring = true;
    CASE_PACK(&c, {0, 0, 20, 0});
    case_fill(&c, 41);
    must_fail_with(case_run(&c, ERR), SP_ERR_USAGE, "\"ring\"");
    case_fini(&c);
}

// ---- failures ----

// Two launches of tiny slices.
static attention_case little(int cp)
{
    attention_case c = small(cp, 1, 1);
    c.heads = 1;
    c.kv_heads = 1;
    CASE_PACK(&c, {0, 0, 5, 1}, {0, 5, 4, 0});
    case_fill(&c, 43);
    return c;
}

// From less than the tensors need to what the passes need.
TEST(memory_over_the_limit_is_an_error)
{
    for (int cp = 1; cp <= 2; cp++) {
        sp_status status = SP_ERR_INFEASIBLE;
        attention_case c = little(cp);
        for (c.limit_bytes = 256; status != SP_OK; c.limit_bytes += 256) {
            sp_error_clear(ERR);
            status = case_run(&c, ERR);
            assert_true(status == SP_OK || status == SP_ERR_INFEASIBLE);
        }
        assert_true(c.limit_bytes > 1024);
        case_fini(&c);
    }
}
