#include <stdlib.h>

#include "kernels/cuda_attention.h"
#include "kernels/cuda_attention_index.h"
#include "kernels/cuda_grid.h"

static bool aligned(const void *pointer)
{
    return (uintptr_t)pointer % 16 == 0;
}

static bool range_fits(int64_t first, int64_t count, int64_t all)
{
    return first >= 0 && count >= 0 && first <= all && count <= all - first;
}

static bool rows_fit(int64_t begin, int64_t count)
{
    return begin >= 0 && count >= 0 && count <= INT32_MAX;
}

// Every slice and key block stands in the range of the group it names.
static bool tables_fit(const sp_cuda_attention_tables *t)
{
    for (int64_t i = 0; i < t->group_count; i++) {
        const sp_cuda_attention_group *g = &t->groups[i];
        if (!range_fits(g->first_slice, g->slices, t->slice_count) ||
            !range_fits(g->first_keys, g->key_blocks, t->key_count)) {
            return false;
        }
    }
    for (int64_t i = 0; i < t->slice_count; i++) {
        const sp_cuda_attention_slice *s = &t->slices[i];
        if (s->group < 0 || s->group >= t->group_count || !rows_fit(s->query_begin, s->queries) ||
            i < t->groups[s->group].first_slice ||
            i >= t->groups[s->group].first_slice + t->groups[s->group].slices || !aligned(s->q) ||
            !aligned(s->out) || !aligned(s->dout) || !aligned(s->dq)) {
            return false;
        }
    }
    for (int64_t i = 0; i < t->key_count; i++) {
        const sp_cuda_attention_keys *k = &t->keys[i];
        if (k->group < 0 || k->group >= t->group_count || !rows_fit(k->key_begin, k->keys) ||
            i < t->groups[k->group].first_keys ||
            i >= t->groups[k->group].first_keys + t->groups[k->group].key_blocks ||
            !aligned(k->k) || !aligned(k->v) || !aligned(k->dk) || !aligned(k->dv)) {
            return false;
        }
    }
    return t->slice_count <= INT32_MAX && t->key_count <= INT32_MAX;
}

static int by_pairs(const void *x, const void *y)
{
    const sp_cuda_attention_tile *a = x;
    const sp_cuda_attention_tile *b = y;
    if (a->pairs != b->pairs) {
        return a->pairs > b->pairs ? -1 : 1;
    }
    if (a->owner != b->owner) {
        return a->owner < b->owner ? -1 : 1;
    }
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

static void sort(int64_t count, sp_cuda_attention_tile *tiles)
{
    if (count > 0) {
        qsort(tiles, (size_t)count, sizeof *tiles, by_pairs);
    }
}

static void fill_query_tiles(const sp_cuda_attention_tables *t)
{
    sp_cuda_attention_tile *tile = t->query_tiles;
    for (int64_t i = 0; i < t->slice_count; i++) {
        const sp_cuda_attention_slice *s = &t->slices[i];
        const sp_cuda_attention_group *g = &t->groups[s->group];
        for (int64_t begin = 0; begin < s->queries; begin += SP_CUDA_ATTENTION_TILE) {
            int64_t rows = sp_i_cuda_least(SP_CUDA_ATTENTION_TILE, s->queries - begin);
            *tile = (sp_cuda_attention_tile){.owner = (int32_t)i, .begin = (int32_t)begin};
            for (int64_t k = g->first_keys; k < g->first_keys + g->key_blocks; k++) {
                tile->pairs += sp_i_attention_pairs(s->query_begin + begin, rows,
                                                    t->keys[k].key_begin, t->keys[k].keys);
            }
            tile++;
        }
    }
}

static void fill_key_tiles(const sp_cuda_attention_tables *t)
{
    sp_cuda_attention_tile *tile = t->key_tiles;
    for (int64_t i = 0; i < t->key_count; i++) {
        const sp_cuda_attention_keys *k = &t->keys[i];
        const sp_cuda_attention_group *g = &t->groups[k->group];
        for (int64_t begin = 0; begin < k->keys; begin += SP_CUDA_ATTENTION_TILE) {
            int64_t rows = sp_i_cuda_least(SP_CUDA_ATTENTION_TILE, k->keys - begin);
            *tile = (sp_cuda_attention_tile){.owner = (int32_t)i, .begin = (int32_t)begin};
            for (int64_t s = g->first_slice; s < g->first_slice + g->slices; s++) {
                tile->pairs += sp_i_attention_pairs(t->slices[s].query_begin, t->slices[s].queries,
                                                    k->key_begin + begin, rows);
            }
            tile++;
        }
    }
}

int sp_cuda_attention_plan(const sp_kernel_attention_shape *shape, sp_cuda_attention_tables *tables)
{
    if (!sp_i_attention_shape_fits(shape) || !tables_fit(tables)) {
        return SP_I_CUDA_INVALID;
    }
    fill_query_tiles(tables);
    fill_key_tiles(tables);
    sort(tables->query_tile_count, tables->query_tiles);
    sort(tables->key_tile_count, tables->key_tiles);
    return 0;
}
