#include "sim/plan/slice_sums.h"

#include "sim/base/alloc.h"
#include "sim/base/units.h"

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
                     sp_i_slice_sums *sums)
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

sp_status sp_i_slice_sums_make(const sp_packing *packing, int cp, sp_i_slice_sums **sums,
                               sp_error *err)
{
    const sp_pack_list *list = sp_packing_backward(packing);
    size_t samples = packing->batch != NULL ? packing->batch->count : 0;
    *sums = sp_i_calloc(list->count, sizeof **sums);
    int64_t *begins = sp_i_last_begins(packing, list);
    int32_t *last = sp_i_calloc(samples, sizeof *last);
    bool ok = *sums != NULL && begins != NULL && last != NULL;
    if (ok && samples > 0) {
        find_last(list, begins, last);
    }
    for (size_t k = 0; ok && samples > 0 && k < list->count; k++) {
        add_pack(list, k, cp, last, *sums);
    }
    sp_i_free(begins);
    sp_i_free(last);
    if (!ok) {
        sp_i_free(*sums);
        *sums = NULL;
        return sp_error_no_memory(err, "sums over slices");
    }
    return SP_OK;
}

int64_t *sp_i_last_begins(const sp_packing *packing, const sp_pack_list *list)
{
    size_t samples = packing->batch != NULL ? packing->batch->count : 0;
    int64_t *begins = sp_i_malloc((samples > 0 ? samples : 1) * sizeof *begins);
    if (begins == NULL) {
        return NULL;
    }
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
