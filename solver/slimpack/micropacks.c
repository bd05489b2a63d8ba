#include "solver/slimpack/micropacks.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "solver/rows.h"

// Share of all work that sums may be off by rounding.
#define ROUNDING 1e-9

typedef struct filling {
    const sp_i_work *work;
    const sp_batch *batch;
    const sp_i_rank_samples *rank;
    sp_packing *packing;
    sp_arena memory;      // of the next three
    double *target_s;     // [packs], cumulative
    double *sample_s;     // [count]
    size_t longs;         // the first so many are cut
    size_t *next_free;    // [count + 1]: shorts not placed yet, a forest with path halving
    size_t next_long;     // being placed
    int64_t placed;       // tokens of it
    double shorts_left_s; // before the long samples
    double placed_s;      // all so far
    double rounding_s;    // that the sums of work may be off
    int64_t slice_tokens;
    uint8_t *tied; // [packs made]: a sample continues from this pack into the next
    size_t tied_count, tied_capacity;
} filling;

static double whole_s(const filling *f, size_t i)
{
    return sp_i_slice_work_s(f->work, 0, f->batch->tokens[f->rank->sample[i]]);
}

static size_t find_free(filling *f, size_t i)
{
    while (f->next_free[i] != i) {
        f->next_free[i] = f->next_free[f->next_free[i]];
        i = f->next_free[i];
    }
    return i;
}

// The largest short sample that is left and fits; count: none. Samples descend.
static size_t largest_short(filling *f, double room_s)
{
    size_t low = f->longs;
    size_t high = f->rank->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (f->sample_s[middle] <= room_s) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return find_free(f, low);
}

static void add_slice(filling *f, size_t i, int64_t begin, int64_t tokens)
{
    sp_slice slice = {
        .sample = f->rank->sample[i], .begin = begin, .tokens = tokens, .computed_tokens = tokens};
    f->placed_s += sp_i_slice_work_s(f->work, begin, tokens);
    sp_i_add_slice(f->batch, slice, &f->packing->forward);
}

static void place_short(filling *f, size_t i)
{
    f->next_free[i] = i + 1;
    f->shorts_left_s -= f->sample_s[i];
    add_slice(f, i, 0, f->batch->tokens[f->rank->sample[i]]);
}

// Fills the open pack with short samples. An empty pack takes one that does not fit.
static void fill_shorts(filling *f, double end_s, bool before_longs)
{
    for (;;) {
        size_t i = largest_short(f, end_s - f->placed_s + f->rounding_s);
        const sp_pack_list *list = &f->packing->forward;
        bool empty = list->packs[list->count - 1].slice_count == 0;
        if (i == f->rank->count && empty) {
            i = find_free(f, f->longs);
        }
        if (i == f->rank->count || (before_longs && f->shorts_left_s <= 0.0)) {
            return;
        }
        place_short(f, i);
    }
}

// As much of the long sample at hand as fits; all of it where little would be left.
static void place_long(filling *f, double end_s)
{
    int64_t total = f->batch->tokens[f->rank->sample[f->next_long]];
    int64_t left = total - f->placed;
    int64_t tokens = sp_i_slice_tokens(f->work, f->placed, end_s - f->placed_s + f->rounding_s);
    const sp_pack_list *list = &f->packing->forward;
    bool empty = list->packs[list->count - 1].slice_count == 0;
    bool whole = tokens >= left;
    tokens = tokens / f->slice_tokens * f->slice_tokens;
    if (empty && tokens == 0) {
        tokens = f->slice_tokens;
    }
    if (whole || (tokens > 0 && tokens >= left - f->slice_tokens)) {
        tokens = left;
    }
    if (tokens == 0) {
        return;
    }
    add_slice(f, f->next_long, f->placed, tokens);
    f->placed += tokens;
    if (f->placed == total) {
        f->next_long++;
        f->placed = 0;
    }
}

static bool done(filling *f)
{
    return f->next_long == f->longs && find_free(f, f->longs) == f->rank->count;
}

// One pack up to the cumulative target: shorts until their share is used up, then the long sample
// at hand; where that ends, shorts fill the rest, so that no two long samples tie their packs.
static void fill_pack(filling *f, double end_s)
{
    sp_pack_list_begin(&f->packing->forward, f->rank->dp_first, f->rank->dp_count);
    bool continues = f->placed > 0;
    if (!continues && f->shorts_left_s > 0.0) {
        fill_shorts(f, end_s, true);
    }
    if (f->next_long < f->longs && (continues || f->placed_s < end_s)) {
        place_long(f, end_s);
    }
    if (f->placed == 0) {
        fill_shorts(f, end_s, false);
    }
    sp_reserve((void **)&f->tied, &f->tied_capacity, f->tied_count + 1, 1);
    f->tied[f->tied_count++] = f->placed > 0;
}

// What rounding leaves over goes into packs of the mean work.
static void fill_all(filling *f, const sp_i_shape *shape)
{
    int packs = sp_i_taper_packs(&shape->forward);
    double mean_s = f->target_s[packs - 1] / packs;
    for (int k = 0; !done(f); k++) {
        double end_s = k < packs ? f->target_s[k] : f->placed_s + mean_s;
        if (k >= packs || end_s > f->placed_s + f->rounding_s) {
            fill_pack(f, end_s);
        }
    }
}

static void prepare(filling *f, const sp_i_shape *shape)
{
    size_t count = f->rank->count;
    f->target_s =
        sp_arena_take(&f->memory, (size_t)sp_i_taper_packs(&shape->forward), sizeof *f->target_s);
    f->sample_s = sp_arena_take(&f->memory, count, sizeof *f->sample_s);
    f->next_free = sp_arena_take(&f->memory, count + 1, sizeof *f->next_free);
    double total_s = 0.0;
    for (size_t i = 0; i < count; i++) {
        f->sample_s[i] = whole_s(f, i);
        total_s += f->sample_s[i];
    }
    double long_s = ldexp(total_s / sp_i_taper_packs(&shape->forward), shape->doublings);
    while (f->longs < count && f->sample_s[f->longs] > long_s) {
        f->longs++;
    }
    for (size_t i = f->longs; i < count; i++) {
        f->shorts_left_s += f->sample_s[i] * shape->shorts_first;
    }
    for (size_t i = 0; i <= count; i++) {
        f->next_free[i] = i;
    }
    f->rounding_s = ROUNDING * total_s;
    sp_i_taper_targets(&shape->forward, total_s, f->target_s);
}

void sp_i_micropacks_make(const sp_i_work *work, const sp_batch *batch,
                          const sp_i_rank_samples *rank, const sp_i_shape *shape,
                          sp_packing *packing, sp_i_needs *needs)
{
    filling f = {.work = work,
                 .batch = batch,
                 .rank = rank,
                 .packing = packing,
                 .slice_tokens = shape->slice_tokens};
    prepare(&f, shape);
    fill_all(&f, shape);
    if (shape->regrouped) {
        sp_i_backward_regroup(work, shape, f.tied, packing, needs);
    } else {
        sp_i_backward_mirror(f.tied, shape->retained, packing, needs);
    }
    sp_arena_free(&f.memory);
    sp_free(f.tied);
}

static sp_status append(const sp_pack_list *from, sp_pack_list *to, sp_error *err)
{
    void *packs = to->packs;
    void *slices = to->slices;
    // Actions name packs by 32-bit indices.
    if (to->count + from->count > INT32_MAX) {
        return sp_error_no_memory(err, "micro packs");
    }
    if (from->count == 0) {
        return SP_OK;
    }
    sp_reserve(&packs, &to->capacity, to->count + from->count, sizeof *to->packs);
    sp_reserve(&slices, &to->slice_capacity, to->slice_count + from->slice_count,
               sizeof *to->slices);
    to->packs = packs;
    to->slices = slices;
    for (size_t k = 0; k < from->count; k++) {
        sp_pack *added = &to->packs[to->count];
        *added = from->packs[k];
        added->microbatch = (int32_t)to->count++;
        added->first_slice += to->slice_count;
    }
    memcpy(to->slices + to->slice_count, from->slices, from->slice_count * sizeof *to->slices);
    to->slice_count += from->slice_count;
    return SP_OK;
}

sp_status sp_i_micropacks_append(const sp_packing *rank, sp_packing *packing, sp_error *err)
{
    sp_status status = append(&rank->forward, &packing->forward, err);
    return status == SP_OK ? append(&rank->backward, &packing->backward, err) : status;
}
