#include "sim/plan/same_packs.h"

#include "sim/base/alloc.h"

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

sp_status sp_i_same_packs(const sp_packing *packing, int32_t **forward, sp_error *err)
{
    const sp_pack_list *backward = &packing->backward;
    size_t samples = packing->batch != NULL ? packing->batch->count : 0;
    starts index = {
        .first = sp_i_malloc((samples > 0 ? samples : 1) * sizeof *index.first),
        .next = sp_i_calloc(packing->forward.count, sizeof *index.next),
    };
    *forward = sp_i_calloc(backward->count, sizeof **forward);
    bool ok = index.first != NULL && index.next != NULL && *forward != NULL;
    if (ok && samples > 0) {
        index_starts(&packing->forward, samples, &index);
    }
    for (size_t k = 0; ok && k < backward->count; k++) {
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
    sp_i_free(index.first);
    sp_i_free(index.next);
    if (!ok) {
        sp_i_free(*forward);
        *forward = NULL;
        return sp_error_no_memory(err, "an index of packs");
    }
    return SP_OK;
}
