// Which pieces of a pack's slices the CP ranks hold: by hand, against a count token by token, and
// what both ways promise. Twice the causal pairs of l queries after o tokens are l * (2 * o + l).
#include "sim/cost/cost_private.h"
#include "tests/support/test_main.h"

enum { MOST_RANKS = 16, MOST_SLICES = 12, MOST_TOKENS = 4096 };

// What the ranks hold.
typedef struct shares {
    int cp;
    int64_t pieces, tokens[MOST_RANKS], pairs2[MOST_RANKS];
} shares;

static void add(void *state, int rank, int64_t tokens, int64_t context)
{
    shares *s = state;
    assert_true(rank >= 0 && rank < s->cp);
    assert_true(tokens > 0 && context >= 0);
    s->pieces++;
    s->tokens[rank] += tokens;
    s->pairs2[rank] += tokens * (2 * context + tokens);
}

static void one_pack(sp_packing *packing, const sp_slice *slices, int count)
{
    sp_packing_init(packing, NULL, 1);
    sp_pack_list_begin(&packing->forward, 0, 1);
    for (int i = 0; i < count; i++) {
        sp_pack_list_add(&packing->forward, slices[i], true);
    }
}

typedef void shard(const sp_pack_list *list, const sp_pack *pack, int cp, sp_i_cp_visit *visit,
                   void *state);

static shares shares_of(shard *way, const sp_slice *slices, int count, int cp)
{
    AUTO(sp_packing) packing;
    shares s = {.cp = cp};
    one_pack(&packing, slices, count);
    way(&packing.forward, packing.forward.packs, cp, add, &s);
    return s;
}

static void expect(const shares *s, const int64_t *tokens, const int64_t *pairs2)
{
    for (int i = 0; i < s->cp; i++) {
        assert_int_equal(s->tokens[i], tokens[i]);
        assert_int_equal(s->pairs2[i], pairs2[i]);
    }
}

// Documents of 4 and 12 tokens on two ranks. Per sequence, chunks of 4: the first document is chunk
// 0, so that rank 0 holds it and the end of the second: 16 + 4*(16+4) = 96; rank 1 the rest:
// 4*4 + 4*(8+4) = 64. Per document half of 16 + 144 each.
TEST(two_documents)
{
    const sp_slice slices[] = {{0, 0, 0, 4, 4}, {1, 0, 0, 12, 12}};
    shares sequence = shares_of(sp_i_cp_by_sequence, slices, 2, 2);
    expect(&sequence, (const int64_t[]){8, 8}, (const int64_t[]){96, 64});
    assert_int_equal(sequence.pieces, 4);
    shares document = shares_of(sp_i_cp_by_document, slices, 2, 2);
    expect(&document, (const int64_t[]){8, 8}, (const int64_t[]){80, 80});
    assert_int_equal(document.pieces, 8);
}

// Padding is computed, so it counts in the row.
TEST(padding_takes_part)
{
    const sp_slice slices[] = {{0, 0, 0, 1, 4}, {1, 0, 0, 12, 12}};
    shares sequence = shares_of(sp_i_cp_by_sequence, slices, 2, 2);
    expect(&sequence, (const int64_t[]){8, 8}, (const int64_t[]){96, 64});
}

static int random_slices(sp_prng *prng, sp_slice slices[MOST_SLICES])
{
    int count = 1 + prng_below(prng, MOST_SLICES);
    for (int i = 0; i < count; i++) {
        int64_t tokens = 1 + (int64_t)sp_prng_below(prng, sp_prng_below(prng, 2) == 0 ? 8 : 200);
        bool goes_on = i > 0 && sp_prng_below(prng, 3) == 0;
        int64_t begin = goes_on ? slices[i - 1].begin + slices[i - 1].tokens
                                : (int64_t)sp_prng_below(prng, 2) * 50;
        slices[i] = (sp_slice){goes_on ? slices[i - 1].sample : 100 + i, 0, begin, tokens, tokens};
    }
    return count;
}

// The pieces of both ways again, token by token: a token at place c of its sample has 2*c + 1.
static void count_token(shares *s, int rank, int64_t place)
{
    s->tokens[rank]++;
    s->pairs2[rank] += 2 * place + 1;
}

static int zigzag(int64_t chunk, int cp)
{
    return (int)(chunk < cp ? chunk : 2 * cp - 1 - chunk);
}

static shares counted_by_sequence(const sp_slice *slices, int count, int cp)
{
    shares s = {.cp = cp};
    int chunk_of[MOST_TOKENS];
    int64_t row = 0;
    for (int i = 0; i < count; i++) {
        row += slices[i].computed_tokens;
    }
    int64_t at = 0;
    for (int chunk = 0; chunk < 2 * cp; chunk++) {
        int64_t tokens = row / (2 * cp) + (chunk < row % (2 * cp));
        for (int64_t t = 0; t < tokens; t++) {
            chunk_of[at++] = chunk;
        }
    }
    assert_int_equal(at, row);
    at = 0;
    for (int i = 0; i < count; i++) {
        for (int64_t t = 0; t < slices[i].computed_tokens; t++) {
            count_token(&s, zigzag(chunk_of[at++], cp), slices[i].begin + t);
        }
    }
    return s;
}

static shares counted_by_document(const sp_slice *slices, int count, int cp)
{
    shares s = {.cp = cp};
    int64_t dealt = 0;
    for (int i = 0; i < count; i++) {
        int64_t chunk = slices[i].computed_tokens / (2 * cp);
        for (int64_t t = 0; t < slices[i].computed_tokens; t++) {
            int rank = t < 2 * cp * chunk ? zigzag(t / chunk, cp) : (int)(dealt++ % cp);
            count_token(&s, rank, slices[i].begin + t);
        }
    }
    return s;
}

TEST_ROUNDS(random_packs_by_token, 7, 2000)
{
    sp_slice slices[MOST_SLICES];
    int count = random_slices(prng, slices);
    int cp = 1 + prng_below(prng, MOST_RANKS);
    shares sequence = shares_of(sp_i_cp_by_sequence, slices, count, cp);
    shares document = shares_of(sp_i_cp_by_document, slices, count, cp);
    shares expected = counted_by_sequence(slices, count, cp);
    expect(&sequence, expected.tokens, expected.pairs2);
    expected = counted_by_document(slices, count, cp);
    expect(&document, expected.tokens, expected.pairs2);
}

static int64_t most(const int64_t *of, int count)
{
    int64_t value = of[0];
    for (int i = 1; i < count; i++) {
        value = of[i] > value ? of[i] : value;
    }
    return value;
}

static int64_t least(const int64_t *of, int count)
{
    int64_t value = of[0];
    for (int i = 1; i < count; i++) {
        value = of[i] < value ? of[i] : value;
    }
    return value;
}

// Tokens are level either way, within one for every chunk or round; pairs per document but for the
// tokens left over, of which a rank gets one a round and no more than twice per slice.
TEST_ROUNDS(shares_are_level, 11, 2000)
{
    sp_slice slices[MOST_SLICES];
    int count = random_slices(prng, slices);
    int cp = 1 + prng_below(prng, MOST_RANKS);
    int64_t left_over2 = 0;
    for (int i = 0; i < count; i++) {
        left_over2 += 2 * (2 * (slices[i].begin + slices[i].tokens) - 1);
    }
    shares sequence = shares_of(sp_i_cp_by_sequence, slices, count, cp);
    shares document = shares_of(sp_i_cp_by_document, slices, count, cp);
    assert_true(most(sequence.tokens, cp) - least(sequence.tokens, cp) <= 2);
    assert_true(most(document.tokens, cp) - least(document.tokens, cp) <= 1);
    assert_true(most(document.pairs2, cp) - least(document.pairs2, cp) <= left_over2);
}
