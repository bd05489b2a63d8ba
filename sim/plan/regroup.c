#include "sim/plan/regroup.h"

#include "sim/base/alloc.h"
#include "sim/base/units.h"

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

sp_status sp_regroup(const sp_packing *packing, int32_t **pack, sp_error *err)
{
    const sp_pack_list *list = &packing->backward;
    (void)err;
    *pack = NULL;
    if (list->count == 0) {
        return SP_OK;
    }
    slice_index index;
    sp_arena work = {0};
    *pack = sp_malloc(list->slice_count * sizeof **pack);
    build_index(packing, &work, &index);
    for (size_t s = 0; s < list->slice_count; s++) {
        (*pack)[s] = find(&index, &list->slices[s]);
    }
    sp_arena_free(&work);
    return SP_OK;
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

sp_status sp_same_packs(const sp_packing *packing, int32_t **forward, sp_error *err)
{
    const sp_pack_list *backward = &packing->backward;
    size_t samples = packing->batch != NULL ? packing->batch->count : 0;
    starts index = {
        .first = sp_malloc((samples > 0 ? samples : 1) * sizeof *index.first),
        .next = sp_calloc(packing->forward.count, sizeof *index.next),
    };
    (void)err;
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
    return SP_OK;
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

sp_status sp_slice_sums_make(const sp_packing *packing, int cp, sp_slice_sums **sums, sp_error *err)
{
    const sp_pack_list *list = sp_packing_backward(packing);
    size_t samples = packing->batch != NULL ? packing->batch->count : 0;
    (void)err;
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
    return SP_OK;
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
