#include "backends/executor/stage.h"

#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"

typedef struct key {
    int32_t sample;
    int64_t begin;
    size_t at; // in its list
} key;

static int compare_keys(const void *a, const void *b)
{
    const key *x = a;
    const key *y = b;
    return SP_ORDER_2(x, y, sample, begin);
}

static key *sorted_keys(const sp_pack_list *list)
{
    key *keys = sp_calloc(list->slice_count, sizeof *keys);
    for (size_t s = 0; s < list->slice_count; s++) {
        keys[s] = (key){list->slices[s].sample, list->slices[s].begin, s};
    }
    qsort(keys, list->slice_count, sizeof *keys, compare_keys);
    return keys;
}

// The data-parallel ranks of a pack, times those of context parallelism, share its tokens.
static void cut(const sp_i_exec_place *place, const sp_pack *pack, sp_i_exec_slice *slice)
{
    int among = place->dp - pack->dp_first;
    slice->shards = pack->dp_count * place->cp;
    slice->shard = among >= 0 && among < pack->dp_count ? among * place->cp + place->cp_rank : -1;
    slice->rows =
        slice->shard >= 0 ? sp_zigzag_tokens(slice->computed, slice->shards, slice->shard) : 0;
}

static void find_zone(const sp_i_exec_place *place, const sp_pack *pack, int32_t zone,
                      sp_i_exec_slice *slice)
{
    if (zone != 0) {
        slice->zone_shard = (sp_zone_first(zone) - pack->dp_first) * place->cp;
        slice->zone_shards = sp_zone_ranks(zone) * place->cp;
    }
}

static void fill_slices(sp_i_exec_slices *slices, const sp_pack_list *list)
{
    for (size_t p = 0; p < list->count; p++) {
        for (size_t i = 0; i < list->packs[p].slice_count; i++) {
            size_t s = list->packs[p].first_slice + i;
            const sp_slice *from = &list->slices[s];
            slices->slice[s] = (sp_i_exec_slice){.sample = from->sample,
                                                 .begin = from->begin,
                                                 .tokens = from->tokens,
                                                 .computed = from->computed_tokens,
                                                 .earlier = SP_I_EXEC_NONE,
                                                 .later = SP_I_EXEC_NONE,
                                                 .forward_pack = (int32_t)p};
            cut(&slices->place, &list->packs[p], &slices->slice[s]);
            find_zone(&slices->place, &list->packs[p], from->zone, &slices->slice[s]);
            slices->store[s] = (int32_t)s;
            int64_t end = from->begin + from->computed_tokens;
            slices->positions = end > slices->positions ? end : slices->positions;
            slices->trained += from->tokens;
        }
    }
}

static void link_samples(sp_i_exec_slices *slices, const key *keys)
{
    for (size_t i = 1; i < slices->count; i++) {
        if (keys[i].sample == keys[i - 1].sample) {
            slices->slice[keys[i].at].earlier = (int32_t)keys[i - 1].at;
            slices->slice[keys[i - 1].at].later = (int32_t)keys[i].at;
        }
    }
}

static int64_t part_begin(const sp_i_exec_slices *slices, int32_t slice, int part)
{
    int64_t rows = slices->slice[slice].rows;
    int64_t each = rows / slices->place.parts;
    int64_t longer = rows % slices->place.parts;
    return each * part + (part < longer ? part : longer);
}

int64_t sp_i_exec_part_rows(const sp_i_exec_slices *slices, int32_t slice, int part)
{
    return part_begin(slices, slice, part + 1) - part_begin(slices, slice, part);
}

int64_t sp_i_exec_forward_row(const sp_i_exec_slices *slices, int32_t slice, int part)
{
    return slices->forward_row[(size_t)slice * (size_t)slices->place.parts + (size_t)part];
}

int sp_i_exec_shard_runs(const sp_i_exec_slice *slice, int shard, sp_token_run runs[SP_ZIGZAG_RUNS])
{
    int count = 1;
    runs[0] = (sp_token_run){0, slice->computed};
    if (slice->shards > 1) {
        sp_zigzag_runs(slice->computed, slice->shards, shard, runs);
        count = SP_ZIGZAG_RUNS;
    }
    for (int r = 0; r < count; r++) {
        runs[r].begin += slice->begin;
    }
    return count;
}

// Writes the pieces of one part of a slice, whose rows begin at `row` of the pack; returns how
// many.
static size_t cut_part(const sp_i_exec_slices *slices, int32_t number, int part, int64_t row,
                       sp_i_exec_piece *pieces)
{
    const sp_i_exec_slice *slice = &slices->slice[number];
    sp_token_run runs[SP_ZIGZAG_RUNS];
    int count = sp_i_exec_shard_runs(slice, slice->shard, runs);
    int64_t from = part_begin(slices, number, part);
    int64_t to = part_begin(slices, number, part + 1);
    int64_t run_at = 0;
    size_t made = 0;
    for (int r = 0; r < count; r++) {
        int64_t run_end = run_at + runs[r].tokens;
        int64_t first = from > run_at ? from : run_at;
        int64_t end = to < run_end ? to : run_end;
        if (first < end) {
            pieces[made++] = (sp_i_exec_piece){.slice = number,
                                               .part = part,
                                               .at = first,
                                               .begin = runs[r].begin + first - run_at,
                                               .rows = end - first,
                                               .row = row + first - from};
        }
        run_at = run_end;
    }
    return made;
}

// Where each part of a pack begins.
static void begin_parts(const sp_i_exec_slices *slices, sp_i_exec_pack *pack, int64_t *part_row)
{
    for (int part = 0; part < slices->place.parts; part++) {
        part_row[part] = pack->rows;
        for (int32_t i = 0; i < pack->count; i++) {
            pack->rows += sp_i_exec_part_rows(slices, pack->slice[i], part);
        }
        if (part == slices->place.part) {
            pack->own_row = part_row[part];
            pack->own_rows = pack->rows - part_row[part];
        }
    }
}

// The tables that the packs take their entries from.
typedef struct store {
    sp_i_exec_piece *piece;
    size_t *first;
} store;

static void lay_out(sp_i_exec_slices *slices, bool forward, sp_i_exec_pack *pack, store *next)
{
    int parts = slices->place.parts;
    int64_t part_row[SP_I_EXEC_MOST_PARTS];
    size_t pieces = 0;
    begin_parts(slices, pack, part_row);
    pack->piece = next->piece;
    pack->first_piece = next->first;
    for (int32_t i = 0; i < pack->count; i++) {
        int32_t number = pack->slice[i];
        next->first[i] = pieces;
        for (int part = 0; part < parts; part++) {
            if (forward) {
                slices->forward_row[(size_t)number * (size_t)parts + (size_t)part] = part_row[part];
            }
            if (slices->slice[number].shard >= 0) {
                pieces += cut_part(slices, number, part, part_row[part], next->piece + pieces);
            }
            part_row[part] += sp_i_exec_part_rows(slices, number, part);
        }
    }
    next->first[pack->count] = pieces;
    next->first += pack->count + 1;
    next->piece += pieces;
}

static void fill_packs(sp_i_exec_slices *slices, const sp_pack_list *list, const int32_t *numbers,
                       bool forward, store *next)
{
    sp_i_exec_pack *packs = forward ? slices->forward : slices->backward;
    for (size_t p = 0; p < list->count; p++) {
        const sp_pack *from = &list->packs[p];
        packs[p] = (sp_i_exec_pack){.slice = numbers + from->first_slice,
                                    .count = (int32_t)from->slice_count,
                                    .same_as = SP_I_EXEC_NONE};
        for (int32_t i = 0; i < packs[p].count; i++) {
            packs[p].all_rows += slices->slice[packs[p].slice[i]].computed;
        }
        lay_out(slices, forward, &packs[p], next);
    }
}

// Which forward pack a backward pack is.
static void find_same(sp_i_exec_slices *slices, const sp_packing *packing)
{
    int32_t *same;
    sp_same_packs(packing, &same);
    for (size_t b = 0; b < slices->backward_count; b++) {
        sp_i_exec_pack *pack = &slices->backward[b];
        pack->same_as = pack->count == 0              ? SP_I_EXEC_NONE
                        : packing->backward.count > 0 ? same[b]
                                                      : (int32_t)b;
    }
    sp_free(same);
}

static void add_empty(sp_i_exec_slices *slices)
{
    static const size_t no_piece[1];
    for (int32_t e = 0; e < slices->place.empty_packs; e++) {
        int32_t forward = (int32_t)slices->forward_count + e;
        const sp_i_exec_pack empty = {.first_piece = no_piece, .same_as = forward};
        slices->forward[forward] = empty;
        slices->backward[slices->backward_count + (size_t)e] = empty;
    }
}

void sp_i_exec_slices_init(sp_i_exec_slices *slices, const sp_packing *packing,
                           const sp_i_exec_place *place)
{
    const sp_pack_list *forward = &packing->forward;
    const sp_pack_list *backward = sp_packing_backward(packing);
    size_t count = forward->slice_count;
    SP_ASSERT(backward->slice_count == count);
    size_t parts = (size_t)place->parts;
    *slices = (sp_i_exec_slices){.place = *place,
                                 .count = count,
                                 .forward_count = forward->count,
                                 .backward_count = backward->count};
    sp_arena *work = &slices->work;
    slices->slice = sp_arena_take(work, count, sizeof *slices->slice);
    slices->store = sp_arena_take(work, 2 * count, sizeof *slices->store);
    // A part that a shard's two runs meet in has a piece of each.
    slices->pieces = sp_arena_take(work, 2 * count * (parts + 1), sizeof *slices->pieces);
    slices->first_pieces = sp_arena_take(work, 2 * count + forward->count + backward->count,
                                         sizeof *slices->first_pieces);
    slices->forward_row = sp_arena_take(work, count * parts, sizeof *slices->forward_row);
    size_t empty = (size_t)place->empty_packs;
    slices->forward = sp_arena_take(work, forward->count + empty, sizeof *slices->forward);
    slices->backward = sp_arena_take(work, backward->count + empty, sizeof *slices->backward);
    key *keys = sorted_keys(forward);
    key *back = sorted_keys(backward);
    fill_slices(slices, forward);
    link_samples(slices, keys);
    int32_t *backward_numbers = slices->store + count;
    for (size_t i = 0; i < count; i++) {
        backward_numbers[back[i].at] = (int32_t)keys[i].at;
    }
    store next = {slices->pieces, slices->first_pieces};
    fill_packs(slices, forward, slices->store, true, &next);
    fill_packs(slices, backward, backward_numbers, false, &next);
    find_same(slices, packing);
    add_empty(slices);
    sp_free(back);
    sp_free(keys);
}

void sp_i_exec_slices_fini(sp_i_exec_slices *slices)
{
    sp_arena_free(&slices->work);
    *slices = (sp_i_exec_slices){0};
}
