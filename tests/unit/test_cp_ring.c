// The steps of a ring of context-parallel ranks: what each rank finds at each of them, against a
// count token by token; how long it takes, by hand and where all shares are even.
#include "sim/cost/cost_private.h"
#include "tests/support/test_main.h"

OWNS(sp_i_cp_ring)

enum { MOST_TOKENS = 128, MOST_RANKS = 8 };

static void add(void *state, int rank, int64_t tokens, int64_t context)
{
    sp_i_cp_ring_add(state, rank, tokens, context);
}

// Which rank holds each token of a pack of whole samples.
typedef struct holders {
    int rank[MOST_TOKENS], count;
} holders;

static void hold(void *state, int rank, int64_t tokens, int64_t context)
{
    holders *h = state;
    for (int64_t i = 0; i < tokens; i++) {
        h->rank[h->count++] = rank;
    }
}

// A pair of a token with itself counts a half, as on a continuous diagonal.
static double count_pairs(const holders *h, const int *lengths, int samples, int rank, int step,
                          int cp)
{
    double pairs = 0.0;
    int first = 0;
    for (int s = 0; s < samples; first += lengths[s++]) {
        for (int q = first; q < first + lengths[s]; q++) {
            for (int k = first; k <= q && h->rank[q] == rank; k++) {
                bool now = h->rank[k] == (rank - step + cp) % cp;
                pairs += now ? (k == q ? 0.5 : 1.0) : 0.0;
            }
        }
    }
    return pairs;
}

TEST_ROUNDS(pairs_token_by_token, 2, test_rounds(40))
{
    int cp = 2 + prng_below(prng, MOST_RANKS - 1);
    int lengths[3];
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, NULL, 1);
    sp_pack_list_begin(&packing.forward, 0, 1);
    int samples = 1 + prng_below(prng, 3);
    for (int s = 0; s < samples; s++) {
        lengths[s] = 1 + prng_below(prng, MOST_TOKENS / 3);
        const sp_slice slice = {s, 0, 0, lengths[s], lengths[s]};
        sp_pack_list_add(&packing.forward, slice, true);
    }
    for (int way = 0; way < 2; way++) {
        OWNED(sp_i_cp_ring) ring = sp_i_cp_ring_new(cp);
        holders h = {.count = 0};
        assert_non_null(ring);
        (way == 0 ? sp_i_cp_by_sequence
                  : sp_i_cp_by_document)(&packing.forward, packing.forward.packs, cp, add, ring);
        (way == 0 ? sp_i_cp_by_sequence : sp_i_cp_by_document)(&packing.forward,
                                                               packing.forward.packs, cp, hold, &h);
        for (int i = 0; i < cp * cp; i++) {
            assert_near(sp_i_cp_ring_pairs(ring, i / cp, i % cp),
                        count_pairs(&h, lengths, samples, i / cp, i % cp, cp), 1e-12, 1e-9);
        }
    }
}

// Whatever is known of who holds them, no keys before a piece are lost.
TEST(keys_of_earlier_packs_are_spread_evenly)
{
    enum { RANKS = 3, PIECES = 50, EARLIER = 30 };
    double pairs = 0.0;
    int64_t context = EARLIER;
    OWNED(sp_i_cp_ring) ring = sp_i_cp_ring_new(RANKS);
    assert_non_null(ring);
    sp_i_cp_ring_add(ring, 1, 4, EARLIER);
    for (int step = 0; step < RANKS; step++) {
        double own = step == 0 ? 0.5 * 4 * 4 : 0.0;
        assert_close(sp_i_cp_ring_pairs(ring, 1, step), 4.0 * EARLIER / RANKS + own, 1e-12);
    }
    sp_i_cp_ring_clear(ring);
    for (int i = 0; i < PIECES; i++) {
        sp_i_cp_ring_add(ring, i % RANKS, 1 + i, context);
        context += 1 + i;
    }
    for (int i = 0; i < RANKS * RANKS; i++) {
        pairs += sp_i_cp_ring_pairs(ring, i / RANKS, i % RANKS);
    }
    assert_close(pairs, 0.5 * (double)(context * context - EARLIER * EARLIER), 1e-12);
}

// One document in 2 cp chunks: every rank finds as much at each step. cp - 1 transfers run behind
// cp - 1 of cp equal parts, as the closed form has it.
TEST(even_shares_take_the_closed_form)
{
    for (int cp = 2; cp <= MOST_RANKS; cp++) {
        OWNED(sp_i_cp_ring) ring = sp_i_cp_ring_new(cp);
        double rank_s[MOST_RANKS];
        const sp_slice slice = {0, 0, 0, 20 * cp, 20 * cp};
        AUTO(sp_packing) packing;
        assert_non_null(ring);
        sp_packing_init(&packing, NULL, 1);
        sp_pack_list_begin(&packing.forward, 0, 1);
        sp_pack_list_add(&packing.forward, slice, true);
        sp_i_cp_by_sequence(&packing.forward, packing.forward.packs, cp, add, ring);
        for (int r = 0; r < cp; r++) {
            rank_s[r] = cp;
        }
        for (double transfer_s = 0.0; transfer_s < 3.0; transfer_s += 0.25) {
            double exposed_s = fmax(0.0, (cp - 1) * transfer_s - (double)cp * (cp - 1) / cp);
            assert_close(sp_i_cp_ring_s(ring, rank_s, transfer_s), cp + exposed_s, 1e-12);
        }
    }
}

// Rank 0 has 8 pairs of its own. Rank 1 has 4.5 of its own and 6 with keys of rank 2, which come to
// it by rank 0 and so once that begins its second step, at 8, though rank 1 is free from 4.5 on.
TEST(a_rank_waits_for_the_one_before_it)
{
    const double rank_s[3] = {8.0, 10.5, 2.0};
    OWNED(sp_i_cp_ring) ring = sp_i_cp_ring_new(3);
    assert_non_null(ring);
    sp_i_cp_ring_add(ring, 0, 4, 0);
    sp_i_cp_ring_add(ring, 2, 2, 0);
    sp_i_cp_ring_add(ring, 1, 3, 2);
    assert_close(sp_i_cp_ring_s(ring, rank_s, 0.0), 8.0 + 6.0, 1e-12);
    assert_close(sp_i_cp_ring_s(ring, rank_s, 1.0), 8.0 + 1.0 + 6.0, 1e-12);
    // Transfers that take longer than all work come one after the other.
    assert_close(sp_i_cp_ring_s(ring, rank_s, 20.0), 2 * 20.0 + 6.0, 1e-12);
}

// Rank 0 hands on two blocks at once, at 8: they come to rank 1 one after the other, and what it
// needs, the keys of rank 2, is the second.
TEST(blocks_come_one_after_the_other)
{
    const double rank_s[4] = {8.0, 10.5, 2.0, 0.0};
    OWNED(sp_i_cp_ring) ring = sp_i_cp_ring_new(4);
    assert_non_null(ring);
    sp_i_cp_ring_add(ring, 0, 4, 0);
    sp_i_cp_ring_add(ring, 2, 2, 0);
    sp_i_cp_ring_add(ring, 1, 3, 2);
    assert_close(sp_i_cp_ring_s(ring, rank_s, 1.0), 8.0 + 2.0 + 6.0, 1e-12);
}
