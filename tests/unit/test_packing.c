#include "tests/support/test_main.h"

#include "sim/plan/packing.h"

static void add(sp_pack_list *list, int64_t begin, int64_t tokens, int64_t computed, bool last)
{
    sp_slice slice = {.begin = begin, .tokens = tokens, .computed_tokens = computed};
    sp_pack_list_add(list, slice, last);
}

// Token q of a sample attends to the q tokens before it and, for half a pair, to itself (twice: 2q
// + 1); without a mask it attends to all tokens computed so far.
TEST_ROUNDS(sums_count_token_pairs, 11, 50)
{
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, NULL, 1);
    sp_pack_list_begin(&packing.forward, 0, 1);
    int64_t tokens = 0, computed = 0, pairs2 = 0, full = 0, kv = 0;
    for (int i = 0; i < 6; i++) {
        int64_t begin = (int64_t)sp_prng_below(prng, 60);
        int64_t length = 1 + (int64_t)sp_prng_below(prng, 60);
        int64_t padded = length + (int64_t)sp_prng_below(prng, 5);
        bool last = sp_prng_below(prng, 2) == 0;
        add(&packing.forward, begin, length, padded, last);
        tokens += length;
        for (int64_t q = begin; q < begin + padded; q++) {
            computed++;
            pairs2 += 2 * q + 1;
            kv += last ? 0 : 1;
            for (int64_t k = 0; k < begin + padded; k++) {
                full++;
            }
        }
    }
    const sp_pack *pack = &packing.forward.packs[0];
    assert_int_equal(pack->slice_count, 6);
    assert_int_equal(pack->tokens, tokens);
    assert_int_equal(pack->computed, computed);
    assert_int_equal(pack->pairs2, pairs2);
    assert_int_equal(pack->full_pairs, full);
    assert_int_equal(pack->kv_tokens, kv);
}

// GPUs that share a pack have `each` tokens of it and more in equal parts: padding is less than one
// part for each, and none where one GPU has the pack, or the slice has a zone of its own.
TEST_ROUNDS(shared_packs_are_padded, 13, 200)
{
    const sp_padding padding = {.cp = 1 + prng_below(prng, 4), .each = prng_below(prng, 4)};
    sp_batch batch = sp_batch_view(&(sp_batch){0}, padding);
    AUTO(sp_packing) packing;
    int dp_count = 1 + prng_below(prng, 4);
    bool zoned = dp_count > 1 && prng_below(prng, 4) == 0;
    sp_packing_init(&packing, &batch, dp_count);
    sp_pack_list_begin(&packing.forward, 0, dp_count);
    sp_slice slice = {.tokens = 1 + (int64_t)sp_prng_below(prng, 999),
                      .zone = zoned ? sp_zone_of(0, 1) : 0};
    slice.computed_tokens = slice.tokens;
    sp_pack_list_add(&packing.forward, slice, true);
    int64_t added = packing.forward.packs[0].computed - slice.tokens;
    int64_t gpus = (int64_t)padding.cp * dp_count;
    if (gpus == 1 || padding.each == 0 || zoned) {
        assert_int_equal(added, 0);
    } else {
        assert_true(added >= 0 && added < gpus * padding.each);
        assert_int_equal((slice.tokens + added) % (gpus * padding.each), 0);
    }
    assert_int_equal(packing.forward.packs[0].tokens, slice.tokens);
    assert_int_equal(packing.forward.slices[0].computed_tokens, slice.tokens + added);
}

// (o + l)^2 - o^2 telescopes: however a sample of L tokens is cut, its slices have L^2 / 2 pairs.
TEST_ROUNDS(cutting_loses_no_pairs, 12, 100)
{
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, NULL, 1);
    int64_t length = 1 + (int64_t)sp_prng_below(prng, INT32_MAX);
    for (int64_t begin = 0; begin < length;) {
        int64_t size = 1 + (int64_t)sp_prng_below(prng, (uint64_t)(length - begin));
        sp_pack_list_begin(&packing.forward, 0, 1);
        add(&packing.forward, begin, size, size, begin + size == length);
        begin += size;
    }
    int64_t pairs2 = 0, tokens = 0;
    for (size_t p = 0; p < packing.forward.count; p++) {
        pairs2 += packing.forward.packs[p].pairs2;
        tokens += packing.forward.packs[p].tokens;
        assert_int_equal(packing.forward.packs[p].first_slice, p);
    }
    assert_true(pairs2 == length * length);
    assert_int_equal(tokens, length);
}

TEST(longest_samples_do_not_overflow)
{
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, NULL, 1);
    int64_t longest = INT32_MAX;
    sp_pack_list_begin(&packing.forward, 0, 1);
    add(&packing.forward, 0, longest, longest, true);
    const sp_pack *pack = &packing.forward.packs[0];
    assert_true(pack->pairs2 == longest * longest);
    assert_true(pack->full_pairs == longest * longest);
    for (int i = 0; i < 4; i++) {
        add(&packing.forward, longest, longest, longest, false);
        assert_true(pack->pairs2 >= longest * longest);
    }
    assert_true(pack->pairs2 == INT64_MAX);
    assert_true(pack->full_pairs == INT64_MAX);
    assert_true(pack->kv_tokens == 4 * longest);
}

TEST(packs_hold_their_own_slices)
{
    enum { PACKS = 1000 };
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, NULL, 4);
    size_t slices = 0;
    for (int p = 0; p < PACKS; p++) {
        sp_pack_list_begin(&packing.forward, p % 3, 1 + p % 2);
        for (int i = 0; i < p % 7; i++) {
            add(&packing.forward, 1000 * p + i, 1, 1, true);
            slices++;
        }
    }
    assert_int_equal(packing.forward.count, PACKS);
    assert_int_equal(packing.forward.slice_count, slices);
    for (int p = 0; p < PACKS; p++) {
        const sp_pack *pack = &packing.forward.packs[p];
        assert_int_equal(pack->dp_first, p % 3);
        assert_int_equal(pack->dp_count, 1 + p % 2);
        assert_int_equal(pack->slice_count, p % 7);
        for (size_t i = 0; i < pack->slice_count; i++) {
            int64_t begin = packing.forward.slices[pack->first_slice + i].begin;
            assert_int_equal(begin, 1000 * p + (int)i);
        }
    }
}

TEST(backward_packs_default_to_the_forward_packs)
{
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, NULL, 1);
    assert_true(sp_packing_backward(&packing) == &packing.forward);
    sp_pack_list_begin(&packing.forward, 0, 1);
    assert_true(sp_packing_backward(&packing) == &packing.forward);
    sp_pack_list_begin(&packing.backward, 0, 1);
    assert_true(sp_packing_backward(&packing) == &packing.backward);
}

TEST(uniform_deals_packs_round_robin)
{
    AUTO(sp_packing) packing;
    AUTO(sp_batch) batch;
    assert_int_equal(sp_packing_uniform_sliced(&packing, &batch, 3, 4, 1, NULL), SP_OK);
    assert_int_equal(packing.forward.count, 12);
    assert_int_equal(packing.forward.slice_count, 12);
    assert_int_equal(packing.backward.count, 0);
    assert_int_equal(packing.dp, 3);
    for (size_t k = 0; k < 12; k++) {
        assert_int_equal(packing.forward.packs[k].dp_first, k % 3);
        assert_int_equal(packing.forward.packs[k].dp_count, 1);
    }
}

TEST(uniform_refuses_more_packs_than_an_action_can_name)
{
    const int64_t many = INT64_C(1) << 30;
    AUTO(sp_packing) packing;
    AUTO(sp_batch) batch;
    must_fail_with(sp_packing_uniform_sliced(&packing, &batch, 2, many, 1, ERR), SP_ERR_LIMIT, "");
    assert_int_equal(ERR->count, 1);
    sp_packing_fini(&packing);
    sp_batch_fini(&batch);
    assert_int_equal(sp_packing_uniform_sliced(&packing, &batch, 7, INT64_MAX, 3, NULL),
                     SP_ERR_LIMIT);
}
