#include "sim/plan/packing.h"

#include "sim/base/alloc.h"

void sp_packing_init(sp_packing *packing, const sp_batch *batch, int dp)
{
    *packing = (sp_packing){.batch = batch, .dp = dp};
}

static void pack_list_fini(sp_pack_list *list)
{
    sp_free(list->packs);
    sp_free(list->slices);
    *list = (sp_pack_list){0};
}

void sp_packing_fini(sp_packing *packing)
{
    pack_list_fini(&packing->forward);
    pack_list_fini(&packing->backward);
    sp_free(packing->dropped);
    sp_free(packing->delayed);
    *packing = (sp_packing){0};
}

bool sp_pack_list_begin(sp_pack_list *list, int dp_first, int dp_count)
{
    SP_ASSERT(dp_first >= 0 && dp_count > 0);
    void *packs = list->packs;
    // Actions name packs by 32-bit indices.
    if (list->count >= INT32_MAX) {
        return false;
    }
    sp_reserve(&packs, &list->capacity, list->count + 1, sizeof *list->packs);
    list->packs = packs;
    list->packs[list->count] = (sp_pack){.dp_first = dp_first,
                                         .dp_count = dp_count,
                                         .microbatch = (int32_t)list->count,
                                         .first_slice = list->slice_count};
    list->count++;
    return true;
}

// Sums and products of non-negative numbers that stop at INT64_MAX: two samples of 2^31-1 tokens in
// one pack already have more than 2^63 / 2 pairs.
static int64_t plus(int64_t a, int64_t b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static int64_t times(int64_t a, int64_t b)
{
    if ((a | b) <= INT32_MAX) {
        return a * b; // without the division, which takes longer than all else here
    }
    return a != 0 && b > INT64_MAX / a ? INT64_MAX : a * b;
}

bool sp_pack_list_add(sp_pack_list *list, sp_slice slice, bool last)
{
    SP_ASSERT(list->count > 0);
    SP_ASSERT(slice.begin >= 0 && slice.tokens >= 0 && slice.computed_tokens >= slice.tokens);
    if (list->slice_count == list->slice_capacity) {
        void *slices = list->slices;
        sp_reserve(&slices, &list->slice_capacity, list->slice_count + 1, sizeof *list->slices);
        list->slices = slices;
    }
    list->slices[list->slice_count++] = slice;

    sp_pack *pack = &list->packs[list->count - 1];
    int64_t l = slice.computed_tokens;
    int64_t o = slice.begin;
    pack->slice_count++;
    pack->tokens = plus(pack->tokens, slice.tokens);
    pack->computed = plus(pack->computed, l);
    pack->pairs2 = plus(pack->pairs2, times(l, plus(plus(o, o), l)));
    pack->full_pairs = plus(pack->full_pairs, times(l, plus(o, l)));
    if (!last) {
        pack->kv_tokens = plus(pack->kv_tokens, l);
    }
    return true;
}

static bool same_packs(const sp_pack_list *a, const sp_pack_list *b)
{
    bool same = a->count == b->count && a->slice_count == b->slice_count;
    for (size_t i = 0; i < a->count && same; i++) {
        const sp_pack *x = &a->packs[i];
        const sp_pack *y = &b->packs[i];
        same = x->dp_first == y->dp_first && x->dp_count == y->dp_count &&
               x->slice_count == y->slice_count && x->gathers == y->gathers;
    }
    for (size_t i = 0; i < a->slice_count && same; i++) {
        const sp_slice *x = &a->slices[i];
        const sp_slice *y = &b->slices[i];
        same = x->sample == y->sample && x->begin == y->begin && x->tokens == y->tokens &&
               x->computed_tokens == y->computed_tokens && x->zone == y->zone;
    }
    return same;
}

static int64_t cut_tokens_of(const sp_batch *batch, const int64_t *samples, size_t count)
{
    int64_t tokens = 0;
    for (size_t i = 0; i < count && batch->goes_on != NULL; i++) {
        tokens += batch->goes_on[samples[i]] ? batch->tokens[samples[i]] : 0;
    }
    return tokens;
}

int64_t sp_packing_cut_tokens(const sp_packing *packing)
{
    const sp_batch *batch = packing->batch;
    return batch->cut_tokens - cut_tokens_of(batch, packing->dropped, packing->dropped_count) -
           cut_tokens_of(batch, packing->delayed, packing->delayed_count);
}

bool sp_packing_repeats_sides(const sp_packing *packing)
{
    return packing->backward.count > 0 && same_packs(&packing->forward, &packing->backward);
}

void sp_packing_merge_sides(sp_packing *packing)
{
    if (sp_packing_repeats_sides(packing)) {
        pack_list_fini(&packing->backward);
    }
}

const sp_pack_list *sp_packing_backward(const sp_packing *packing)
{
    return packing->backward.count > 0 ? &packing->backward : &packing->forward;
}

static sp_status check_uniform(int dp, int64_t packs, sp_error *err)
{
    SP_ASSERT(dp > 0 && packs >= 0);
    if (packs <= INT32_MAX / dp) {
        return SP_OK;
    }
    return sp_error_set(err, SP_ERR_LIMIT,
                        "%lld packs on each of %d data-parallel ranks are more than the %d packs a "
                        "plan can hold",
                        (long long)packs, dp, (int)INT32_MAX);
}

static void add_token(sp_pack_list *list, int dp_rank, int64_t sample, int position, int slices)
{
    sp_slice slice = {
        .sample = (int32_t)sample, .begin = position, .tokens = 1, .computed_tokens = 1};
    sp_pack_list_begin(list, dp_rank, 1);
    sp_pack_list_add(list, slice, position + 1 == slices);
    list->packs[list->count - 1].microbatch = (int32_t)sample;
}

sp_status sp_packing_uniform_sliced(sp_packing *packing, sp_batch *batch, int dp,
                                    int64_t microbatches, int slices, sp_error *err)
{
    SP_ASSERT(slices > 0);
    *batch = (sp_batch){0};
    sp_packing_init(packing, batch, dp);
    sp_status status = check_uniform(
        dp, microbatches > INT32_MAX / slices ? INT32_MAX : microbatches * slices, err);
    if (status != SP_OK) {
        return status;
    }
    batch->count = (size_t)(dp * microbatches);
    batch->total_tokens = (int64_t)batch->count * slices;
    batch->ids = sp_calloc(batch->count, sizeof *batch->ids);
    batch->tokens = sp_calloc(batch->count, sizeof *batch->tokens);
    for (int64_t m = 0; m < dp * microbatches; m++) {
        batch->ids[m] = m;
        batch->tokens[m] = slices;
        for (int s = 0; s < slices; s++) {
            add_token(&packing->forward, (int)(m % dp), m, s, slices);
        }
        // With one slice the backward packs are the forward packs.
        for (int s = slices; slices > 1 && s > 0; s--) {
            add_token(&packing->backward, (int)(m % dp), m, s - 1, slices);
        }
    }
    return SP_OK;
}
