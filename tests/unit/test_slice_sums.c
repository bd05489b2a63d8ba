// What backward packs leave for each other, and which of them are forward packs, against their
// definitions, slice by slice.
#include "sim/plan/packing.h"
#include "tests/support/random_plan.h"
#include "tests/support/test_main.h"

static int64_t rows(int64_t tokens, int64_t ranks)
{
    return (tokens + ranks - 1) / ranks * ranks;
}

static bool is_last(const sp_pack_list *list, const sp_slice *slice)
{
    for (size_t s = 0; s < list->slice_count; s++) {
        if (list->slices[s].sample == slice->sample && list->slices[s].begin > slice->begin) {
            return false;
        }
    }
    return true;
}

static size_t pack_of_last(const sp_pack_list *list, int32_t sample)
{
    for (size_t k = 0; k < list->count; k++) {
        for (size_t i = 0; i < list->packs[k].slice_count; i++) {
            const sp_slice *slice = &list->slices[list->packs[k].first_slice + i];
            if (slice->sample == sample && is_last(list, slice)) {
                return k;
            }
        }
    }
    fail_msg("sample %d has no slice", sample);
    return 0;
}

static void check_sums(const sp_packing *packing, int cp)
{
    const sp_pack_list *list = sp_packing_backward(packing);
    AUTO_FREE sp_slice_sums *sums;
    sp_slice_sums_make(packing, cp, &sums);
    AUTO_FREE int64_t *expected = sp_calloc(2 * list->count, sizeof *expected);
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        for (size_t i = 0; i < pack->slice_count; i++) {
            const sp_slice *slice = &list->slices[pack->first_slice + i];
            size_t begins = pack_of_last(list, slice->sample);
            int64_t tokens = rows(slice->computed_tokens, (int64_t)cp * pack->dp_count);
            expected[2 * begins] += begins != k ? tokens : 0;
            expected[2 * k + 1] += begins != k ? tokens : 0;
        }
    }
    for (size_t k = 0; k < list->count; k++) {
        assert_int_equal(sums[k].begun_tokens, expected[2 * k]);
        assert_int_equal(sums[k].found_tokens, expected[2 * k + 1]);
    }
}

static bool same_slices(const sp_packing *packing, const sp_pack *forward, const sp_pack *backward)
{
    bool same = forward->slice_count == backward->slice_count && forward->slice_count > 0;
    for (size_t i = 0; same && i < forward->slice_count; i++) {
        const sp_slice *a = &packing->forward.slices[forward->first_slice + i];
        const sp_slice *b = &packing->backward.slices[backward->first_slice + i];
        same = a->sample == b->sample && a->begin == b->begin;
    }
    return same;
}

// Returns how many backward packs are forward packs.
static int check_same(const sp_packing *packing)
{
    AUTO_FREE int32_t *same;
    int count = 0;
    sp_same_packs(packing, &same);
    for (size_t b = 0; b < packing->backward.count; b++) {
        int32_t expected = -1;
        for (size_t f = 0; f < packing->forward.count; f++) {
            if (same_slices(packing, &packing->forward.packs[f], &packing->backward.packs[b])) {
                expected = (int32_t)f;
            }
        }
        assert_int_equal(same[b], expected);
        count += expected >= 0;
    }
    return count;
}

TEST(random_packings)
{
    sp_prng prng = prng_seeded(21);
    int regrouped = 0, same = 0;
    for (int round = 0; round < 500; round++) {
        AUTO(random_plan) r;
        random_plan_make(&prng, 3, 1, &r);
        check_sums(&r.packing, 1 + round % 3);
        same += check_same(&r.packing);
        regrouped += r.packing.backward.count > 0;
    }
    assert_true(regrouped > 50);
    assert_true(same > 50);
}

// Samples of 30 tokens in three slices: the packs of the first two slices find sums, that of the
// last one begins them; packs without samples have none.
TEST(by_hand)
{
    int64_t id = 0;
    int64_t tokens = 30;
    const sp_batch batch = {.ids = &id, .tokens = &tokens, .count = 1};
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, &batch, 1);
    for (int s = 0; s < 3; s++) {
        sp_slice slice = {.begin = 10 * s, .tokens = 10, .computed_tokens = 10};
        sp_pack_list_begin(&packing.forward, 0, 1);
        sp_pack_list_add(&packing.forward, slice, s == 2);
    }
    AUTO_FREE sp_slice_sums *sums;
    sp_slice_sums_make(&packing, 4, &sums);
    assert_int_equal(sums[0].found_tokens, 12);
    assert_int_equal(sums[1].found_tokens, 12);
    assert_int_equal(sums[2].found_tokens, 0);
    assert_int_equal(sums[2].begun_tokens, 24);
    sp_free(sums);
    packing.batch = NULL;
    sp_slice_sums_make(&packing, 4, &sums);
    assert_int_equal(sums[2].begun_tokens, 0);
}
