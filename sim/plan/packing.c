#include "sim/plan/packing.h"

#include "sim/base/alloc.h"
#include "sim/base/units.h"

void sp_packing_init(sp_packing *packing, const sp_batch *batch, int dp)
{
    *packing = (sp_packing){.batch = batch, .dp = dp};
    if (batch != NULL) {
        packing->forward.padding = packing->backward.padding = batch->padding;
    }
}

static void pack_list_fini(sp_pack_list *list)
{
    sp_free(list->packs);
    sp_free(list->slices);
    *list = (sp_pack_list){.padding = list->padding};
}

void sp_packing_fini(sp_packing *packing)
{
    pack_list_fini(&packing->forward);
    pack_list_fini(&packing->backward);
    sp_free(packing->dropped);
    sp_free(packing->delayed);
    *packing = (sp_packing){0};
}

void sp_pack_list_begin(sp_pack_list *list, int dp_first, int dp_count)
{
    // Actions name packs by 32-bit indices.
    SP_ASSERT(dp_first >= 0 && dp_count > 0 && list->count < INT32_MAX);
    SP_RESERVE(list->packs, list->capacity, list->count + 1);
    list->packs[list->count] = (sp_pack){.dp_first = dp_first,
                                         .dp_count = dp_count,
                                         .microbatch = (int32_t)list->count,
                                         .first_slice = list->slice_count};
    list->count++;
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

void sp_pack_list_add(sp_pack_list *list, sp_slice slice, bool last)
{
    SP_ASSERT(list->count > 0);
    SP_ASSERT(slice.begin >= 0 && slice.tokens >= 0 && slice.computed_tokens >= slice.tokens);
    if (list->slice_count == list->slice_capacity) {
        SP_RESERVE(list->slices, list->slice_capacity, list->slice_count + 1);
    }
    sp_pack *pack = &list->packs[list->count - 1];
    if (list->padding.each > 0 && slice.zone == 0) {
        slice.computed_tokens =
            sp_padded_tokens(&list->padding, slice.computed_tokens, pack->dp_count);
    }
    list->slices[list->slice_count++] = slice;
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
    SP_TRY(check_uniform(dp, microbatches > INT32_MAX / slices ? INT32_MAX : microbatches * slices,
                         err));
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

// Forward slices by sample; a sample's slices lie in ascending packs, so their begins ascend too.
typedef struct slice_index {
    size_t *first; // [samples + 2]
    int32_t *pack; // [slices]
    int64_t *begin;
} slice_index;

static void build_index(const sp_packing *packing, sp_arena *work, slice_index *index)
{
    const sp_pack_list *list = &packing->forward;
    size_t samples = packing->batch->count;
    index->first = sp_arena_take(work, samples + 2, sizeof *index->first);
    index->pack = sp_arena_take(work, list->slice_count, sizeof *index->pack);
    index->begin = sp_arena_take(work, list->slice_count, sizeof *index->begin);
    for (size_t s = 0; s < list->slice_count; s++) {
        index->first[list->slices[s].sample + 2]++;
    }
    for (size_t s = 2; s < samples + 2; s++) {
        index->first[s] += index->first[s - 1];
    }
    // first[sample + 1] runs ahead as the write position and ends where the next sample begins.
    for (size_t k = 0; k < list->count; k++) {
        for (size_t s = 0; s < list->packs[k].slice_count; s++) {
            const sp_slice *slice = &list->slices[list->packs[k].first_slice + s];
            size_t at = index->first[slice->sample + 1]++;
            index->pack[at] = (int32_t)k;
            index->begin[at] = slice->begin;
        }
    }
}

static int32_t find(const slice_index *index, const sp_slice *slice)
{
    size_t low = index->first[slice->sample];
    size_t high = index->first[slice->sample + 1];
    while (low + 1 < high) {
        size_t middle = low + (high - low) / 2;
        if (index->begin[middle] <= slice->begin) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return index->pack[low];
}

void sp_regroup(const sp_packing *packing, int32_t **pack)
{
    const sp_pack_list *list = &packing->backward;
    *pack = NULL;
    if (list->count == 0) {
        return;
    }
    slice_index index;
    sp_arena work = {0};
    *pack = sp_malloc(list->slice_count * sizeof **pack);
    build_index(packing, &work, &index);
    for (size_t s = 0; s < list->slice_count; s++) {
        (*pack)[s] = find(&index, &list->slices[s]);
    }
    sp_arena_free(&work);
}

// Forward packs by the sample that they begin with.
typedef struct starts {
    int32_t *first; // [samples], -1: none
    int32_t *next;  // [forward packs]
} starts;

static void index_starts(const sp_pack_list *list, size_t samples, const starts *index)
{
    for (size_t s = 0; s < samples; s++) {
        index->first[s] = -1;
    }
    for (size_t k = 0; k < list->count; k++) {
        index->next[k] = -1;
        if (list->packs[k].slice_count > 0) {
            int32_t sample = list->slices[list->packs[k].first_slice].sample;
            index->next[k] = index->first[sample];
            index->first[sample] = (int32_t)k;
        }
    }
}

static bool is_same(const sp_packing *packing, const sp_pack *a, const sp_pack *b)
{
    bool same = a->slice_count == b->slice_count;
    for (size_t i = 0; same && i < a->slice_count; i++) {
        const sp_slice *x = &packing->forward.slices[a->first_slice + i];
        const sp_slice *y = &packing->backward.slices[b->first_slice + i];
        same = x->sample == y->sample && x->begin == y->begin;
    }
    return same;
}

void sp_same_packs(const sp_packing *packing, int32_t **forward)
{
    const sp_pack_list *backward = &packing->backward;
    size_t samples = packing->batch != NULL ? packing->batch->count : 0;
    starts index = {
        .first = sp_malloc((samples > 0 ? samples : 1) * sizeof *index.first),
        .next = sp_calloc(packing->forward.count, sizeof *index.next),
    };
    *forward = sp_calloc(backward->count, sizeof **forward);
    if (samples > 0) {
        index_starts(&packing->forward, samples, &index);
    }
    for (size_t k = 0; k < backward->count; k++) {
        const sp_pack *pack = &backward->packs[k];
        int32_t found = -1;
        if (samples > 0 && pack->slice_count > 0) {
            found = index.first[backward->slices[pack->first_slice].sample];
        }
        while (found >= 0 && !is_same(packing, &packing->forward.packs[found], pack)) {
            found = index.next[found];
        }
        (*forward)[k] = found;
    }
    sp_free(index.first);
    sp_free(index.next);
}

// Fills last[sample] with the pack of the sample's last slice.
static void find_last(const sp_pack_list *list, const int64_t *begins, int32_t *last)
{
    for (size_t k = 0; k < list->count; k++) {
        for (size_t i = 0; i < list->packs[k].slice_count; i++) {
            const sp_slice *slice = &list->slices[list->packs[k].first_slice + i];
            if (slice->begin == begins[slice->sample]) {
                last[slice->sample] = (int32_t)k;
            }
        }
    }
}

static void add_pack(const sp_pack_list *list, size_t k, int cp, const int32_t *last,
                     sp_slice_sums *sums)
{
    const sp_pack *pack = &list->packs[k];
    int64_t ranks = (int64_t)cp * pack->dp_count;
    for (size_t i = 0; i < pack->slice_count; i++) {
        const sp_slice *slice = &list->slices[pack->first_slice + i];
        int32_t begins = last[slice->sample];
        if (begins != (int32_t)k) {
            int64_t tokens = sp_ceil_div(slice->computed_tokens, ranks) * ranks;
            sums[begins].begun_tokens += tokens;
            sums[k].found_tokens += tokens;
        }
    }
}

void sp_slice_sums_make(const sp_packing *packing, int cp, sp_slice_sums **sums)
{
    const sp_pack_list *list = sp_packing_backward(packing);
    size_t samples = packing->batch != NULL ? packing->batch->count : 0;
    *sums = sp_calloc(list->count, sizeof **sums);
    int64_t *begins = sp_last_begins(packing, list);
    int32_t *last = sp_calloc(samples, sizeof *last);
    if (samples > 0) {
        find_last(list, begins, last);
    }
    for (size_t k = 0; samples > 0 && k < list->count; k++) {
        add_pack(list, k, cp, last, *sums);
    }
    sp_free(begins);
    sp_free(last);
}

int64_t *sp_last_begins(const sp_packing *packing, const sp_pack_list *list)
{
    size_t samples = packing->batch != NULL ? packing->batch->count : 0;
    int64_t *begins = sp_malloc((samples > 0 ? samples : 1) * sizeof *begins);
    for (size_t s = 0; s < samples; s++) {
        begins[s] = -1;
    }
    for (size_t s = 0; samples > 0 && s < list->slice_count; s++) {
        const sp_slice *slice = &list->slices[s];
        int64_t *begin = &begins[slice->sample];
        *begin = slice->begin > *begin ? slice->begin : *begin;
    }
    return begins;
}
