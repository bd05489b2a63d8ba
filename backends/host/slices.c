#include "backends/host/slices.h"

#include <stdlib.h>

#include "sim/base/alloc.h"

typedef struct key {
    int32_t sample;
    int64_t begin;
    size_t at; // in its list
} key;

static int compare_keys(const void *a, const void *b)
{
    const key *x = a;
    const key *y = b;
    if (x->sample != y->sample) {
        return x->sample < y->sample ? -1 : 1;
    }
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static key *sorted_keys(const sp_pack_list *list)
{
    key *keys = sp_i_calloc(list->slice_count, sizeof *keys);
    for (size_t s = 0; keys != NULL && s < list->slice_count; s++) {
        keys[s] = (key){list->slices[s].sample, list->slices[s].begin, s};
    }
    if (keys != NULL) {
        qsort(keys, list->slice_count, sizeof *keys, compare_keys);
    }
    return keys;
}

static void fill_forward(sp_i_host_slices *slices, const sp_pack_list *list)
{
    for (size_t p = 0; p < list->count; p++) {
        int64_t row = 0;
        for (size_t i = 0; i < list->packs[p].slice_count; i++) {
            size_t s = list->packs[p].first_slice + i;
            const sp_slice *from = &list->slices[s];
            slices->slice[s] = (sp_i_host_slice){.sample = from->sample,
                                                 .begin = from->begin,
                                                 .tokens = from->tokens,
                                                 .computed = from->computed_tokens,
                                                 .earlier = SP_I_HOST_NONE,
                                                 .later = SP_I_HOST_NONE,
                                                 .forward_pack = (int32_t)p,
                                                 .forward_row = row};
            slices->store[s] = (int32_t)s;
            row += from->computed_tokens;
            int64_t end = from->begin + from->computed_tokens;
            slices->positions = end > slices->positions ? end : slices->positions;
            slices->trained += from->tokens;
        }
    }
}

static void link_samples(sp_i_host_slices *slices, const key *keys)
{
    for (size_t i = 1; i < slices->count; i++) {
        if (keys[i].sample == keys[i - 1].sample) {
            slices->slice[keys[i].at].earlier = (int32_t)keys[i - 1].at;
            slices->slice[keys[i - 1].at].later = (int32_t)keys[i].at;
        }
    }
}

static void fill_packs(const sp_i_host_slices *slices, const sp_pack_list *list,
                       const int32_t *numbers, sp_i_host_pack *packs)
{
    for (size_t p = 0; p < list->count; p++) {
        const sp_pack *from = &list->packs[p];
        sp_i_host_pack *pack = &packs[p];
        *pack = (sp_i_host_pack){.slice = numbers + from->first_slice,
                                 .count = (int32_t)from->slice_count,
                                 .same_as = SP_I_HOST_NONE};
        for (int32_t i = 0; i < pack->count; i++) {
            pack->rows += slices->slice[pack->slice[i]].computed;
        }
    }
}

// A backward pack is a forward pack where it begins with its first slice and goes on in its order.
static void find_same(sp_i_host_slices *slices)
{
    for (size_t b = 0; b < slices->backward_count; b++) {
        sp_i_host_pack *pack = &slices->backward[b];
        if (pack->count == 0) {
            continue;
        }
        int32_t number = slices->slice[pack->slice[0]].forward_pack;
        const sp_i_host_pack *forward = &slices->forward[number];
        bool same = forward->count == pack->count;
        for (int32_t i = 0; same && i < pack->count; i++) {
            same = forward->slice[i] == pack->slice[i];
        }
        pack->same_as = same ? number : SP_I_HOST_NONE;
    }
}

sp_status sp_i_host_slices_init(sp_i_host_slices *slices, const sp_packing *packing, sp_error *err)
{
    const sp_pack_list *forward = &packing->forward;
    const sp_pack_list *backward = sp_packing_backward(packing);
    size_t count = forward->slice_count;
    SP_ASSERT(backward->slice_count == count);
    *slices = (sp_i_host_slices){
        .count = count, .forward_count = forward->count, .backward_count = backward->count};
    slices->slice = sp_i_calloc(count, sizeof *slices->slice);
    slices->store = sp_i_calloc(2 * count, sizeof *slices->store);
    slices->forward = sp_i_calloc(forward->count, sizeof *slices->forward);
    slices->backward = sp_i_calloc(backward->count, sizeof *slices->backward);
    key *keys = sorted_keys(forward);
    key *back = sorted_keys(backward);
    sp_status status = SP_OK;
    if (slices->slice == NULL || slices->store == NULL || slices->forward == NULL ||
        slices->backward == NULL || keys == NULL || back == NULL) {
        status = sp_error_no_memory(err, "the slices of a plan");
        sp_i_host_slices_fini(slices);
        goto out;
    }
    fill_forward(slices, forward);
    link_samples(slices, keys);
    int32_t *backward_numbers = slices->store + count;
    for (size_t i = 0; i < count; i++) {
        backward_numbers[back[i].at] = (int32_t)keys[i].at;
    }
    fill_packs(slices, forward, slices->store, slices->forward);
    fill_packs(slices, backward, backward_numbers, slices->backward);
    find_same(slices);
out:
    sp_i_free(back);
    sp_i_free(keys);
    return status;
}

void sp_i_host_slices_fini(sp_i_host_slices *slices)
{
    sp_i_free(slices->slice);
    sp_i_free(slices->forward);
    sp_i_free(slices->backward);
    sp_i_free(slices->store);
    *slices = (sp_i_host_slices){0};
}
