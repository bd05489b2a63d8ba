// What the ways of cutting a pack over CP ranks cost: closed forms on rates that do not depend on
// length, properties on a published profile.

#include "tests/support/flat_profile.h"
#include "tests/support/initializers.h"
#include "tests/support/pack_times.h"

enum { HIDDEN = 1024, MOST_SLICES = 40 };

static sp_profile profile;

static const sp_model model = {.name = "dense", LLAMA_SHAPE(4, HIDDEN, 2816, 8, 8, 32000)};

static const sp_cluster cluster = {
    .gpus_per_node = 8, .nodes = 8, .nics_per_node = 8, .nic_bytes_per_s = 50e9};

static const sp_cp_sharding ways[] = {SP_SHARD_SEQUENCE, SP_SHARD_DOCUMENT, SP_SHARD_ADAPTIVE};

static pack_times_case case_of(sp_cp_sharding way, int cp, int dp)
{
    return (pack_times_case){
        .model = &model,
        .cluster = &cluster,
        .profile = &profile,
        .layout = {.tp = 1, .cp = cp, .cp_sharding = way, .pp = 1, .dp = dp, .chunks = 1}};
}

typedef struct attention {
    double forward_s, backward_s;
} attention;

static attention attention_of(const pack_times_case *of, const sp_slice *slices, int count,
                              int dp_count)
{
    sp_i_pack_time time;
    pack_times(of, slices, count, dp_count, &time);
    return (attention){time.of[SP_PART_LAYER][SP_PASS_F].attention_s,
                       time.of[SP_PART_LAYER][SP_PASS_I].attention_s};
}

static attention sharded(sp_cp_sharding way, int cp, const sp_slice *slices, int count)
{
    pack_times_case of = case_of(way, cp, 1);
    return attention_of(&of, slices, count, 1);
}

// On the flat profile: QK^T and PV forward, 2.5 times that backward.
static void assert_pairs2(attention a, double pairs2)
{
    assert_close(a.forward_s, 2.0 * pairs2 * HIDDEN / FLAT_FORWARD_FLOPS_PER_S, 1e-12);
    assert_close(a.backward_s, 5.0 * pairs2 * HIDDEN / FLAT_BACKWARD_FLOPS_PER_S, 1e-12);
}

TEST(one_document_costs_an_even_share)
{
    flat_profile_load(NULL, &profile);
    for (int cp = 1; cp <= 8; cp *= 2) {
        const sp_slice slice = {0, 0, 0, 1600, 1600};
        for (int way = SP_SHARD_EVEN; way <= SP_SHARD_ADAPTIVE; way++) {
            assert_pairs2(sharded((sp_cp_sharding)way, cp, &slice, 1), 1600.0 * 1600.0 / cp);
        }
    }
    sp_profile_fini(&profile);
}

// The documents of test_cp_sharding.c: 96 and 64 per sequence, 80 each per document.
TEST(slowest_rank_counts)
{
    flat_profile_load(NULL, &profile);
    const sp_slice slices[] = {{0, 0, 0, 4, 4}, {1, 0, 0, 12, 12}};
    assert_pairs2(sharded(SP_SHARD_EVEN, 2, slices, 2), 80.0);
    assert_pairs2(sharded(SP_SHARD_SEQUENCE, 2, slices, 2), 96.0);
    assert_pairs2(sharded(SP_SHARD_DOCUMENT, 2, slices, 2), 80.0);
    assert_pairs2(sharded(SP_SHARD_ADAPTIVE, 2, slices, 2), 80.0);
    sp_profile_fini(&profile);
}

// 4 documents of n on 2 ranks: chunk by chunk a document, all ranks alike, and a chunk is a whole
// document. One of 2n among 2 of n, last: the first rank has n*n and the end of the long one.
TEST(documents_on_chunk_borders)
{
    flat_profile_load(NULL, &profile);
    const double n2 = 100.0 * 100.0;
    const sp_slice equal[] = {
        {0, 0, 0, 100, 100}, {1, 0, 0, 100, 100}, {2, 0, 0, 100, 100}, {3, 0, 0, 100, 100}};
    const sp_slice uneven[] = {{0, 0, 0, 100, 100}, {1, 0, 0, 100, 100}, {2, 0, 0, 200, 200}};
    assert_pairs2(sharded(SP_SHARD_SEQUENCE, 2, equal, 4), 2.0 * n2);
    assert_pairs2(sharded(SP_SHARD_SEQUENCE, 2, uneven, 3), n2 + 3.0 * n2);
    assert_pairs2(sharded(SP_SHARD_DOCUMENT, 2, uneven, 3), (2.0 * n2 + 4.0 * n2) / 2.0);
    sp_profile_fini(&profile);
}

// One document of 4n before four of n, on 4 ranks of a chunk of each: 2n2, 4n2, 6n2 and 8n2. Where
// neighbours exchange heads, each has the mean of theirs.
TEST(neighbours_that_exchange_heads_are_level)
{
    flat_profile_load(NULL, &profile);
    const double n2 = 100.0 * 100.0;
    const sp_slice slices[] = {{0, 0, 0, 400, 400},
                               {1, 0, 0, 100, 100},
                               {2, 0, 0, 100, 100},
                               {3, 0, 0, 100, 100},
                               {4, 0, 0, 100, 100}};
    static const double expected[] = {8.0, 7.0, 5.0};
    for (int i = 0; i < 3; i++) {
        for (int steps = 0; steps < 2; steps++) {
            pack_times_case of = case_of(SP_SHARD_SEQUENCE, 1, 4);
            of.layout.cp_a2a = 1 << i;
            of.layout.cp_ring_steps = steps == 1;
            of.memory.stack.cp_overlap = SP_CP_A2A;
            assert_pairs2(attention_of(&of, slices, 5, 4), expected[i] * n2);
        }
    }
    sp_profile_fini(&profile);
}

// DP-Merge: two data-parallel ranks of cp ranks each are one group of twice as many.
TEST(merged_ranks_shard_alike)
{
    flat_profile_load(NULL, &profile);
    const sp_slice slices[] = {{0, 0, 0, 400, 400}, {1, 0, 0, 96, 96}, {2, 0, 0, 900, 900}};
    for (int i = 0; i < 3; i++) {
        for (int cp = 1; cp <= 4; cp *= 2) {
            pack_times_case merged = case_of(ways[i], cp, 2);
            pack_times_case grown = case_of(ways[i], 2 * cp, 1);
            attention a = attention_of(&merged, slices, 3, 2);
            attention b = attention_of(&grown, slices, 3, 1);
            assert_close(a.forward_s, b.forward_s, 1e-12);
            assert_close(a.backward_s, b.backward_s, 1e-12);
        }
    }
    sp_profile_fini(&profile);
}

static void published(void)
{
    must_succeed(sp_profile_load("h100", &profile, ERR));
}

static double piece_s(double l, double o)
{
    sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
    return sp_time_attention_piece(&timer, false, l, o, HUGE_VAL, 8.0, 128.0);
}

// A piece takes what its tiles of 128 queries take; whole tiles no shorter than the table's first
// length take what a slice takes.
TEST(pieces_fill_tiles)
{
    published();
    sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
    for (int o = 0; o <= 20000; o += 4000) {
        for (int l = 1; l <= 1100; l++) {
            assert_true(piece_s(l, o) == piece_s((l + 127) / 128 * 128, o));
            assert_true(l % 128 != 1 || piece_s(l, o) < piece_s(l + 128, o));
        }
        for (int l = 512; l <= 8192; l += 128) {
            assert_true(piece_s(l, o) ==
                        sp_time_attention_slice(&timer, false, l, o, HUGE_VAL, 8.0, 128.0));
        }
    }
    assert_true(piece_s(0, 100) == 0.0);
    sp_profile_fini(&profile);
}

// Equal documents, a chunk and more of them to a rank: per sequence whole documents, per document
// 16 pieces of 16 tokens each in tiles of 128. A long document among short ones: per sequence the
// ranks that hold its end have most of the pairs, per document all pieces are long enough.
TEST(each_way_has_its_packs)
{
    published();
    sp_slice shorts[MOST_SLICES];
    for (int i = 0; i < 32; i++) {
        shorts[i] = (sp_slice){i, 0, 0, 256, 256};
    }
    attention sequence = sharded(SP_SHARD_SEQUENCE, 8, shorts, 32);
    attention document = sharded(SP_SHARD_DOCUMENT, 8, shorts, 32);
    assert_true(document.forward_s > 2.0 * sequence.forward_s);
    shorts[0] = (sp_slice){0, 0, 0, 32768, 32768};
    sequence = sharded(SP_SHARD_SEQUENCE, 4, shorts, 32);
    document = sharded(SP_SHARD_DOCUMENT, 4, shorts, 32);
    assert_true(document.forward_s < 0.95 * sequence.forward_s);
    sp_profile_fini(&profile);
}

static int random_slices(sp_prng *prng, sp_slice slices[MOST_SLICES])
{
    int count = 1 + prng_below(prng, MOST_SLICES);
    for (int i = 0; i < count; i++) {
        int64_t tokens = 1 + (int64_t)exp(11.0 * sp_prng_uniform(prng));
        int64_t begin = sp_prng_below(prng, 4) == 0 ? (int64_t)sp_prng_below(prng, 30000) : 0;
        slices[i] = (sp_slice){i, 0, begin, tokens, tokens};
    }
    return count;
}

// All-to-all over heads gives a rank all tokens for its heads (Ulysses, arXiv 2309.14509): each has
// a cp-th of all pairs, however rows are cut, also where data-parallel ranks are merged.
TEST(heads_cost_an_even_share)
{
    flat_profile_load(NULL, &profile);
    sp_prng prng = prng_seeded(23);
    for (int round = 0; round < 200; round++) {
        sp_slice slices[MOST_SLICES];
        int count = random_slices(&prng, slices);
        int cp = 1 << sp_prng_below(&prng, 3);
        int merged = 1 << sp_prng_below(&prng, 2);
        double pairs2 = 0.0;
        for (int i = 0; i < count; i++) {
            pairs2 += (double)slices[i].tokens * (double)(2 * slices[i].begin + slices[i].tokens);
        }
        for (int i = 0; i < 3; i++) {
            pack_times_case of = case_of(ways[i], cp, 2);
            of.memory.stack.cp_overlap = SP_CP_A2A;
            assert_pairs2(attention_of(&of, slices, count, merged), pairs2 / (cp * merged));
        }
    }
    sp_profile_fini(&profile);
}

// Over both passes, with the forward once more where it runs again.
static double step_s(attention a, bool recomputed)
{
    return a.forward_s * (recomputed ? 2.0 : 1.0) + a.backward_s;
}

// Adaptive is one of the two in both passes at once, the shorter.
TEST(adaptive_is_the_faster)
{
    published();
    sp_prng prng;
    int chosen[2] = {0, 0};
    sp_prng_seed(&prng, 17);
    for (int round = 0; round < 600; round++) {
        sp_slice slices[MOST_SLICES];
        attention of[3];
        int count = random_slices(&prng, slices);
        int cp = 2 << sp_prng_below(&prng, 4);
        bool recomputed = round % 2 == 1;
        for (int i = 0; i < 3; i++) {
            pack_times_case c = case_of(ways[i], cp, 1);
            c.memory.recompute = recomputed ? SP_RECOMPUTE_FULL : SP_RECOMPUTE_NONE;
            of[i] = attention_of(&c, slices, count, 1);
        }
        int taken = step_s(of[1], recomputed) < step_s(of[0], recomputed) ? 1 : 0;
        assert_true(of[2].forward_s == of[taken].forward_s);
        assert_true(of[2].backward_s == of[taken].backward_s);
        chosen[taken]++;
    }
    assert_true(chosen[0] > 50 && chosen[1] > 50);
    sp_profile_fini(&profile);
}

// The slowest rank has at least the mean of the pairs, at no better than the best causal rate: the
// lower bound of a step counts on it.
TEST(never_below_the_least)
{
    published();
    sp_prng prng = prng_seeded(19);
    const sp_curve *curve = &profile.attention[0][SP_PAIRS_CAUSAL];
    double best = curve->y[curve->points - 1];
    for (int round = 0; round < 400; round++) {
        sp_slice slices[MOST_SLICES];
        int count = random_slices(&prng, slices);
        int cp = 1 + prng_below(&prng, 12);
        double pairs2 = 0.0;
        for (int i = 0; i < count; i++) {
            pairs2 += (double)slices[i].tokens * (double)(2 * slices[i].begin + slices[i].tokens);
        }
        for (int i = 0; i < 3; i++) {
            attention a = sharded(ways[i], cp, slices, count);
            assert_true(a.forward_s >= (1.0 - 1e-12) * 2.0 * pairs2 * HIDDEN / best / cp);
        }
    }
    sp_profile_fini(&profile);
}
