#include "sim/plan/regroup.h"

#include "sim/base/alloc.h"

// Forward slices by sample; a sample's slices lie in ascending packs, so their begins ascend too.
typedef struct slice_index {
    size_t *first; // [samples + 2]
    int32_t *pack; // [slices]
    int64_t *begin;
} slice_index;

static bool build_index(const sp_packing *packing, slice_index *index)
{
    const sp_pack_list *list = &packing->forward;
    size_t samples = packing->batch->count;
    index->first = sp_i_calloc(samples + 2, sizeof *index->first);
    index->pack = sp_i_malloc(list->slice_count * sizeof *index->pack);
    index->begin = sp_i_malloc(list->slice_count * sizeof *index->begin);
    if (index->first == NULL || index->pack == NULL || index->begin == NULL) {
        return false;
    }
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
    return true;
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

sp_status sp_i_regroup(const sp_packing *packing, int32_t **pack, sp_error *err)
{
    const sp_pack_list *list = &packing->backward;
    *pack = NULL;
    if (list->count == 0) {
        return SP_OK;
    }
    slice_index index = {0};
    int32_t *found = sp_i_malloc(list->slice_count * sizeof *found);
    bool ok = found != NULL && build_index(packing, &index);
    for (size_t s = 0; ok && s < list->slice_count; s++) {
        found[s] = find(&index, &list->slices[s]);
    }
    sp_i_free(index.first);
    sp_i_free(index.pack);
    sp_i_free(index.begin);
    if (!ok) {
        sp_i_free(found);
        return sp_error_no_memory(err, "an index of slices");
    }
    *pack = found;
    return SP_OK;
}
